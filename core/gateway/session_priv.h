/*
 * core/gateway, private to session.c and its parts: what is known of a session.
 */
#ifndef BR_GATEWAY_SESSION_PRIV_H
#define BR_GATEWAY_SESSION_PRIV_H

#include "gateway/gateway_priv.h"

/* A client of the protocol takes so many session/event of one session, and no more. */
#define SESSION_EVENTS_MAX 10000u
/*
 * A run that comes so close to it is ended. What it still has to say fits: each of the 128 calls of
 * a turn may bring a call, two decisions, a question, its resolution and a result; then the
 * sandbox, an error and the end of the agent.
 */
#define SESSION_EVENTS_RESERVE 1000u
/* One message of the protocol: no client reads a larger frame. Its envelope is small. */
#define SESSION_EVENT_BYTES_MAX ((1u << 20) - 1024u)
/* Text of a result. */
#define SESSION_TEXT_MAX (512u * 1024)
/* A run that was to end cleanly and has not is ended at once. */
#define SESSION_CANCEL_US (30u * 1000 * 1000)
#define SESSION_BUCKETS 1024u

/* An answer that bridle-session has not acknowledged; it does so in order. */
struct answer {
    gw_answer_fn *done;
    void *ctx;
    struct answer *next;
};

struct gw_session {
    struct gateway *g;
    char id[BR_ID_MAX];
    char *workspace, *model, *goal;
    uint64_t started_us;
    enum gw_state state;
    struct conn *owner;
    bool detached, canceling, limited; /* limited: it came to the end of its events */
    bool over;                         /* GATE_ENDED came */
    bool fed;                          /* its record is, or was, read */
    bool paused;                       /* its record is not read, for a while */
    bool stopped, broken;
    struct gw_sink *sinks, *next_sink;
    unsigned dispatching; /* followers are being told something: it must not be freed */
    struct br_chan audit, session;
    struct gw_timer timer;
    uint64_t row, seq, own;
    struct gw_ask *asks;
    unsigned nasks, cap_asks;
    char (*resolved)[BR_ID_MAX]; /* questions that have ended */
    unsigned nresolved, cap_resolved;
    struct answer *answers, **answers_end;
    struct gw_result result;
    struct br_buf text;
    char why[BR_ERR_TEXT_MAX];
    struct gw_session *prev, *next, *bucket;
};

/* A session that was asked for. */
struct check {
    uint64_t id;
    struct conn *owner; /* NULL: nobody waits any more */
    gw_new_fn *done;
    void *ctx;
    struct check *next;
};

struct sessions {
    struct gw_session *first, *last; /* by age */
    struct gw_session *buckets[SESSION_BUCKETS];
    struct gw_watch *watches, *next_watch;
    struct check *checks;
    uint64_t last_check;
};

/* session.c */
/* What watchers see of it has changed. */
void session_changed(struct gw_session *s);
/* Its record cannot be shown any further: it fails, at once. */
void session_break(struct gw_session *s, enum br_code code, const char *why);
/* Both its ends were heard of, or one that makes the other moot: it has ended. */
void session_check_end(struct gw_session *s);

/* session_events.c: its record */
int session_feed(struct gw_session *s, int fd);
void session_unfeed(struct gw_session *s);
/* Where the type of a stored event is, and whether it is one of Bridle's own; negative: it does not
 * begin as one. */
int session_event_type(struct gw_event *e);

/* session_asks.c: its questions */
int session_attach(struct gw_session *s, int fd);
void session_unattach(struct gw_session *s);
void session_ask_open(struct gw_session *s, const json_t *data);
void session_ask_scope(struct gw_session *s, const json_t *data);
void session_ask_resolved(struct gw_session *s, const json_t *event, const json_t *data);
void session_asks_end(struct gw_session *s);

#endif
