/*
 * core/gateway, private: bridle-gateway speaks with clients. It parses what anybody may send, so it
 * holds nothing that they may not have: no file, no key, no privilege, no network but the sockets
 * that it was given. What a client wants done is asked of bridled (GATE_*); what is shown to a
 * client are the bytes that bridle-audit stored.
 *
 * Three layers, each knows only the one below: connections (conn.c, http.c, auth.c), sessions
 * (session.c, replay.c), protocols (harness.c and its extension, acp.c).
 */
#ifndef BR_GATEWAY_PRIV_H
#define BR_GATEWAY_PRIV_H

#include <jansson.h>

#include "base/base.h"
#include "wire/service.h"
#include "wire/wire.h"
#include "ws/ws.h"

struct gateway;
struct conn;
struct gw_session;

/* ---- connections: conn.c, http.c, auth.c ---- */

struct gw_who {
    char name[BR_WHO_MAX];
    enum br_access access;
};

/* What speaks on a WebSocket, chosen by its subprotocol. One thread; nothing here may block. */
struct gw_protocol {
    const char *name; /* of the subprotocol: "harness.acp.1", "acp.v1" */
    /* The connection is open; conn_set_state() what is kept for it. */
    void (*open)(struct conn *c);
    /* One whole text message, valid UTF-8, not terminated; valid during the call. */
    void (*message)(struct conn *c, const char *text, size_t n);
    /* Room again after conn_send() had said that there is little. May be NULL. */
    void (*writable)(struct conn *c);
    /* It is closed, by whomever; nothing can be sent any more. */
    void (*closed)(struct conn *c);
};
extern const struct gw_protocol gw_harness, gw_acp;

struct gateway *conn_gateway(struct conn *c);
const struct gw_who *conn_who(const struct conn *c);
uint64_t conn_id(const struct conn *c); /* for logs; never used again */
void conn_set_state(struct conn *c, void *state);
void *conn_state(struct conn *c);
/*
 * Queue one text message made of `n` pieces, which are copied. 0; 1: queued, but who produces
 * should wait for `writable` (more waits than a client of the protocol takes at once); negative:
 * the connection is being closed (for a client that does not read: with 1013), and nothing was
 * queued. `closed` is never called from inside.
 */
struct gw_piece {
    const void *p;
    size_t n;
};
int conn_send(struct conn *c, const struct gw_piece *pieces, unsigned n);
/* Send what is queued, then close. Safe from inside of a callback; `closed` follows later. */
void conn_close(struct conn *c, unsigned code, const char *reason);
/* Of a request that was read: false if this peer asks too often, and was answered `429` in words of
 * the protocol by the caller. */
bool conn_may_ask(struct conn *c);
/* The same of a reading of the store, which is a process: before each. Counted is who it is, over
 * all its connections. */
bool conn_may_read(struct conn *c);

/* ---- sessions: session.c ---- */

enum gw_state { GW_CREATED, GW_RUNNING, GW_COMPLETED, GW_FAILED, GW_CANCELED };

/* One stored event, as those who follow a session get it. */
struct gw_event {
    uint64_t row;     /* 1, 2, 3, ... of the record */
    bool own;         /* its type begins with "bridle." */
    uint64_t seq;     /* 0, 1, 2, ... of its kind: of session/event, or of bridle/event */
    int64_t after;    /* of `own`: seq of the last one of the other kind, or -1 */
    const char *type; /* not terminated */
    size_t ntype;
    const char *bytes; /* the stored bytes, which are a JSON object */
    size_t n;
};

/* Somebody who follows a session; embedded in the follower's own struct. */
struct gw_sink {
    void (*event)(struct gw_sink *k, struct gw_session *s, const struct gw_event *e);
    /* No more events; the sandbox is gone and the record closed. Not after session_unfollow(). */
    void (*ended)(struct gw_sink *k, struct gw_session *s);
    struct gw_sink *next_; /* session.c's own */
    struct gw_session *session_;
    uint64_t from_; /* rows behind this one are its; who has shown more already raises it */
};

/* What came of a run, for the answer to its prompt. */
struct gw_result {
    enum gw_state state; /* completed, failed or canceled */
    char stopped[24];    /* the status of agent.stopped; "" if there was none */
    const char *text;    /* of the last model turn; "" if longer than 512 KiB, and after `ended` */
    size_t ntext;
    uint64_t prompt_tokens, completion_tokens; /* sums over model.response */
    uint32_t code;                             /* of GATE_ENDED */
    const char *why;
};

/* A question that is open. */
struct gw_ask {
    char id[BR_ID_MAX];
    bool run; /* may be answered for the run */
    char call_id[BR_NAME_MAX];
    uint64_t deadline_us;
};

typedef void gw_new_fn(void *ctx, struct gw_session *s, int code, const struct br_err *why);
typedef void gw_answer_fn(void *ctx, int code, const struct br_err *why);

/*
 * Ask bridled for a session of this owner; `done` is called once, later or before this returns,
 * with the session or a negative code (-BR_E_INVALID_WORKSPACE, -BR_E_INVALID_MANIFEST,
 * -BR_E_NOT_FOUND: invalid params; -BR_E_LIMIT_EXCEEDED: the service has too many). How many one
 * connection may have is counted by its protocol. Once sessions_disown(owner) was called, `done` is
 * not called any more, and the session is forgotten.
 */
void session_create(struct gateway *g, struct conn *owner, const char *workspace,
                    const char *task_id, const char *model, gw_new_fn *done, void *ctx);
const char *session_id(const struct gw_session *s);
/* Could it be the id of one? Such a text stands in JSON as it is. */
bool session_is_id(const char *id);
enum gw_state session_state(const struct gw_session *s);
struct conn *session_owner(const struct gw_session *s); /* NULL: detached, or its owner has gone */
const struct gw_result *session_result(const struct gw_session *s); /* once it has ended */
/* Once it has ended: the record broke off, or was not in order. What was shown of it was stored,
 * and stays true; nothing more is. */
bool session_broken(const struct gw_session *s);
/* Its agent.stopped was shown. */
bool session_stopped(const struct gw_session *s);
/* It was started: something of it is, or will be, in the store. */
bool session_has_run(const struct gw_session *s);
/* What a list shows of it. */
struct gw_about {
    const char *workspace, *model, *goal; /* goal: "" as long as it was not prompted */
    uint64_t started_us;                  /* of the wall clock */
    uint64_t rows, seq, own; /* stored events that were shown: all, and those of each kind */
};
void session_about(const struct gw_session *s, struct gw_about *about);
/* Its open questions; *n of them. */
const struct gw_ask *session_asks(const struct gw_session *s, unsigned *n);
/* A session that lives, or has ended while somebody follows it; NULL. */
struct gw_session *session_find(struct gateway *g, const char *id);
/* created -> running, before anything is awaited: 0, or -BR_E_IN_USE: it has run, runs, was
 * canceled or has expired. 0 tokens or calls: as the manifest says. */
int session_run(struct gw_session *s, const char *content, size_t n, uint64_t max_tokens,
                uint64_t max_calls, struct br_err *err);
/* Every later event, in order, and the end. */
void session_follow(struct gw_session *s, struct gw_sink *k);
void session_unfollow(struct gw_sink *k); /* also from inside of its `event` and `ended` */
/* Its record is read no further until this is lifted: for an owner that does not keep up. What was
 * read already may still come. */
void session_pause(struct gw_session *s, bool yes);
/*
 * Answer a question. scope 0: deny; 1: once; 2: for the run. `done` once: 0, -BR_E_NOT_FOUND (no
 * such question of this session), -BR_E_IN_USE (it was answered, has expired or was canceled),
 * -BR_E_DENIED (not for the run). Who answers first is taken; the others get -BR_E_IN_USE.
 */
void session_answer(struct gw_session *s, const struct gw_who *who, const char *permission,
                    unsigned scope, const char *note, gw_answer_fn *done, void *ctx);
/* True: it was created or running, and ends now; questions are denied, cleanup is waited for. */
bool session_cancel(struct gw_session *s, const char *why);
/* It goes on without its owner: -BR_E_DENIED where the operator does not allow it, -BR_E_IN_USE if
 * it has ended. */
int session_detach(struct gw_session *s, struct br_err *err);
/* A detached session becomes that of `c`: -BR_E_IN_USE if it has an owner. */
int session_adopt(struct gw_session *s, struct conn *c, struct br_err *err);
/* Its owner wants to hear nothing more of it: it is canceled if it lives, and forgotten as soon as
 * it has ended and nobody follows it. */
void session_release(struct gw_session *s, const char *why);
/* The connection has gone: its sessions that are not detached are canceled. Called by `closed` of
 * its protocol, after its sinks were taken off. */
void sessions_disown(struct gateway *g, struct conn *c);

/* What changed in the list of live sessions, for those who watch it (bridle/session). */
struct gw_watch {
    void (*changed)(struct gw_watch *w, struct gw_session *s);
    struct gw_watch *next_;
    struct gateway *gateway_;
};
void sessions_watch(struct gateway *g, struct gw_watch *w);
void sessions_unwatch(struct gw_watch *w);
/* For each live session, oldest first. */
void sessions_each(struct gateway *g, void (*fn)(void *ctx, struct gw_session *s), void *ctx);

/* ---- the store: replay.c ---- */

struct gw_run_row {
    char run_id[BR_ID_MAX], status[32], model[BR_NAME_MAX + 1];
    const char *workspace, *goal;
    uint64_t started_us, ended_us, events;
};
struct gw_replay; /* one reading of the store; owned by replay.c until `done` */
struct gw_reader {
    void (*row)(void *ctx, const struct gw_run_row *row);
    void (*event)(void *ctx, const struct gw_event *e); /* seq and after count from row 1 */
    /* 0, or a negative code: -BR_E_NOT_FOUND, ... */
    void (*done)(void *ctx, int code, const struct br_err *why);
    /* May more come now? NULL: yes. When it may again: replay_more(). */
    bool (*room)(void *ctx);
};
/* `run_id` "": the list, newest first, at most `limit`, those before the run `before` ("": all),
 * with `words` in them. Else the events of one run from its first row on. */
struct gw_replay *replay_begin(struct gateway *g, const char *run_id, uint32_t limit,
                               const char *before, const char *words, const struct gw_reader *r,
                               void *ctx);
void replay_more(struct gw_replay *p);
void replay_cancel(struct gw_replay **p); /* `done` is not called */

/* ---- JSON-RPC 2.0: rpc.c, shared by the protocols ---- */

/* Strict (harness/acp/1): unknown keys, ids that are no string of 1 to 256 bytes or safe integer
 * are invalid requests. Lenient (Agent Client Protocol): unknown keys are left alone, responses are
 * accepted. */
struct rpc_message {
    enum { RPC_REQUEST, RPC_NOTIFICATION, RPC_RESPONSE } kind;
    char method[128]; /* "" of a response, and if it is longer than any that there is */
    char id[1600];    /* the id as JSON text, to be put back as it is; "null" if there is none */
    json_t *params;   /* owned; may be NULL */
    json_t *result;   /* owned; of a response; NULL if it is an error */
    json_t *root_;
};
/* 0, or the JSON-RPC error code (-32700, -32600), with `m->id` what the error has as its id. */
int rpc_read(const char *text, size_t n, bool strict, struct rpc_message *m, struct br_err *err);
void rpc_free(struct rpc_message *m);
/* A number without a fraction from -(2^53 - 1) to 2^53 - 1, however it is written. */
bool rpc_safe_integer(const json_t *v, int64_t *out);
/* {"jsonrpc":"2.0","id":ID,"result":RESULT}; `result` is JSON text. */
int rpc_result(struct conn *c, const char *id, const char *result, size_t n);
/* {"jsonrpc":"2.0","id":ID,"error":{"code":CODE,"message":TEXT,"data":{"code":NAME}}} */
int rpc_error(struct conn *c, const char *id, int code, const char *name, const char *text);
/* The same with a format; what is too long is cut. */
int rpc_verror(struct conn *c, const char *id, int code, const char *name, const char *fmt,
               va_list args) __attribute__((format(printf, 5, 0)));

/* ---- the whole ---- */

/* Counters of /metrics, all since the start but the gauges. */
#define GW_COUNTERS(X)                                                                             \
    X(connections_accepted)                                                                        \
    X(connections_refused)                                                                         \
    X(connections_open)                                                                            \
    X(messages_in)                                                                                 \
    X(messages_out)                                                                                \
    X(bytes_in)                                                                                    \
    X(bytes_out)                                                                                   \
    X(protocol_errors)                                                                             \
    X(slow_clients)                                                                                \
    X(auth_refused)                                                                                \
    X(rate_limited)                                                                                \
    X(sessions_created)                                                                            \
    X(sessions_running)                                                                            \
    X(sessions_completed)                                                                          \
    X(sessions_failed)                                                                             \
    X(sessions_canceled)                                                                           \
    X(events_out)                                                                                  \
    X(asks_open)                                                                                   \
    X(asks_allowed)                                                                                \
    X(asks_denied)                                                                                 \
    X(asks_expired)                                                                                \
    X(model_requests)                                                                              \
    X(tokens_prompt)                                                                               \
    X(tokens_completion)                                                                           \
    X(tool_calls)                                                                                  \
    X(telemetry_sent)                                                                              \
    X(telemetry_dropped)
struct gw_counters {
#define GW_COUNTER_(name) uint64_t name;
    GW_COUNTERS(GW_COUNTER_)
#undef GW_COUNTER_
};

/*
 * poll.c: timers and channels, of which there may be thousands (br_loop has room for 32).
 * A timer is embedded in its owner, zeroed before its first use, and fires once; setting it again
 * moves it. Cancel it before its owner is freed.
 */
struct gw_timer {
    void (*fn)(void *ctx);
    void *ctx;
    uint64_t due_us; /* 0: not set */
    struct gw_timer *child_, *next_, *prev_;
};
void gw_timer_set(struct gateway *g, struct gw_timer *t, uint64_t after_us, void (*fn)(void *ctx),
                  void *ctx);
void gw_timer_cancel(struct gateway *g, struct gw_timer *t);
/* As br_loop_watch_chan(), but `on_end` is required, and the channel is made non-blocking; pausing
 * is gw_unwatch_chan(), and watching again goes on where it was. Unwatch before closing. 0, or a
 * negative code. */
int gw_watch_chan(struct gateway *g, struct br_chan *c, br_chan_end_fn *on_end, void *ctx);
void gw_unwatch_chan(struct gateway *g, struct br_chan *c);

/* main.c */
const struct br_service *gw_settings(const struct gateway *g);
struct gw_counters *gw_counters(struct gateway *g);
/* Send to bridled without waiting: what its channel has no room for is kept and goes later, in
 * order. Takes what is in `o` (which may be NULL) and leaves it empty. 0, or a negative code: it
 * cannot be sent at all. */
int gw_to_bridled(struct gateway *g, enum br_msg_type type, uint64_t id, struct br_out *o,
                  struct br_err *err);
bool gw_draining(const struct gateway *g);
/* The models that a client may ask for; *n of them. */
char *const *gw_models(const struct gateway *g, unsigned *n);
const char *gw_version(void);
/* One line of the structured log on standard error: {"at":…,"level":…,"event":NAME, …}; the pairs
 * are name, value (NULL ends them), values are escaped. Nothing secret, no payload. */
void gw_log(struct gateway *g, enum br_log_level level, const char *event, ...);

/* session.c and replay.c: what bridled says; main.c has the table and calls these. */
int session_on_checked(struct gateway *g, struct br_msg *m, struct br_err *err);
int session_on_started(struct gateway *g, struct br_msg *m, struct br_err *err);
int session_on_ended(struct gateway *g, struct br_msg *m, struct br_err *err);
int replay_on_reading(struct gateway *g, struct br_msg *m, struct br_err *err);
/* The sessions of this gateway; NULL until the first. session.c's and replay.c's own. */
void **gw_sessions_slot(struct gateway *g);
void **gw_replays_slot(struct gateway *g);
void **gw_otlp_slot(struct gateway *g); /* otlp.c's own; NULL: nothing is exported */
/* otlp.c: the channel of bridle-egress, which is then its own. */
int otlp_begin(struct gateway *g, int fd, struct br_err *err);
/* otlp.c: what a finished session tells telemetry; nothing if there is none. */
void otlp_event(struct gateway *g, struct gw_session *s, const struct gw_event *e);
void otlp_ended(struct gateway *g, struct gw_session *s);

#endif
