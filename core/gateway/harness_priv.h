/*
 * core/gateway, private to harness.c and its extension: harness/acp/1 (docs/protocol.md).
 */
#ifndef BR_GATEWAY_HARNESS_PRIV_H
#define BR_GATEWAY_HARNESS_PRIV_H

#include "gateway/gateway_priv.h"

#define HARNESS_VERSION "harness/acp/1"
#define HARNESS_EXTENSION "bridle/1"
#define HARNESS_CONTENT_MAX (512u * 1024)
#define HARNESS_TEXT_MAX (512u * 1024) /* of a result, escaped */
#define HARNESS_NOTE_MAX 4096u
#define HARNESS_MODELS_MAX 128u

/* X(name, number, stable name) */
#define HARNESS_ERRORS(X)                                                                          \
    X(PARSE, -32700, "ACP_PARSE_ERROR")                                                            \
    X(REQUEST, -32600, "ACP_INVALID_REQUEST")                                                      \
    X(METHOD, -32601, "ACP_METHOD_NOT_FOUND")                                                      \
    X(PARAMS, -32602, "ACP_INVALID_PARAMS")                                                        \
    X(INTERNAL, -32603, "ACP_INTERNAL_ERROR")                                                      \
    X(PROTOCOL_VERSION, -32001, "ACP_PROTOCOL_VERSION")                                            \
    X(NOT_INITIALIZED, -32002, "ACP_NOT_INITIALIZED")                                              \
    X(NO_SESSION, -32010, "ACP_SESSION_NOT_FOUND")                                                 \
    X(ALREADY_RUN, -32011, "ACP_SESSION_ALREADY_RUN")                                              \
    X(SESSION_LIMIT, -32012, "ACP_SESSION_LIMIT")                                                  \
    X(NO_PERMISSION, -32020, "ACP_PERMISSION_NOT_FOUND")                                           \
    X(RESOLVED, -32021, "ACP_PERMISSION_RESOLVED")                                                 \
    X(FORBIDDEN, -32030, "ACP_FORBIDDEN")                                                          \
    X(RATE_LIMITED, -32031, "ACP_RATE_LIMITED")
enum harness_error {
#define HARNESS_ERROR_(name, number, text) HARNESS_##name = (number),
    HARNESS_ERRORS(HARNESS_ERROR_)
#undef HARNESS_ERROR_
};

struct harness;

/* A request whose answer comes later. */
struct harness_call {
    struct harness *h; /* NULL: the connection has gone */
    char *id;
    struct harness_call *next, **at;
};

/* A session that this connection follows. */
struct harness_follow {
    struct gw_sink sink;
    struct harness *h;
    char *prompt;                 /* the id of the prompt to be answered; NULL: none */
    struct harness_call *cancels; /* to be answered when it has ended */
    bool quiet;                   /* its events are not wanted any more */
    struct harness_load *load;    /* what was stored comes first; NULL: it is not being read */
    struct harness_follow *next;
};

struct harness {
    struct conn *c;
    struct gateway *g;
    bool initialized, extended, sessions;
    unsigned made; /* sessions, those that are being made included */
    size_t behind; /* bytes of events that it was sent beyond what it takes at once */
    struct harness_call *creates, *answers;
    struct harness_follow *follows;
    struct harness_load *loads;
    struct harness_list *lists;
    struct gw_watch watch; /* gateway_ NULL: it does not */
};

/* ---- params ---- */

enum harness_kind {
    PARAM_TEXT,         /* min to max bytes */
    PARAM_KEBAB,        /* the same, kebab-case */
    PARAM_COUNT,        /* a positive safe integer, at most max if that is not 0 */
    PARAM_ROW,          /* a safe integer from -1 */
    PARAM_DECISION,     /* allow or deny */
    PARAM_SCOPE,        /* once or run; with the extension only */
    PARAM_CAPABILITIES, /* its own object */
};
struct harness_param {
    const char *name;
    enum harness_kind kind;
    bool required;
    uint32_t min, max;
};
#define HARNESS_PARAMS_MAX 6u
/* In the order of the row; text is terminated, and NULL if it is not there. */
struct harness_args {
    const char *text[HARNESS_PARAMS_MAX];
    size_t n[HARNESS_PARAMS_MAX];
    int64_t number[HARNESS_PARAMS_MAX];
    const json_t *value[HARNESS_PARAMS_MAX];
};
struct harness_method {
    const char *name;
    enum harness_needs { NEEDS_NOTHING, NEEDS_SESSIONS, NEEDS_EXTENSION } needs;
    enum br_access access;
    struct harness_param params[HARNESS_PARAMS_MAX];
    void (*fn)(struct harness *h, const char *id, const struct harness_args *a);
};

/* ---- harness.c ---- */

/* The methods of the protocol; `initialize` is the first. */
extern const struct harness_method harness_base[];
extern const unsigned harness_base_count;

void harness_error(struct harness *h, const char *id, enum harness_error code, const char *fmt, ...)
    BR_PRINTF(4, 5);
void harness_reply(struct harness *h, const char *id, const struct br_buf *result);
/* Answers a prompt: a result, or with a code its error's text. */
void harness_prompt_end(struct harness *h, const char *id, int code, struct br_buf *b);
/* What conn_send() says; 0 if it is not for this client. */
int harness_send_event(struct harness *h, const char *session, const struct gw_event *e);
struct harness_call *harness_call_new(struct harness *h, struct harness_call **list,
                                      const char *id);
void harness_call_free(struct harness_call *call);
struct harness_follow *harness_follow_find(const struct harness *h, const struct gw_session *s);
/* Follow it from now on; the one that there is, if there is one. */
struct harness_follow *harness_follow_new(struct harness *h, struct gw_session *s);
void harness_follow_free(struct harness_follow *f);
/* Free it if nobody wants its events, and nothing is to be answered at its end. */
void harness_follow_drop(struct harness_follow *f);
/* The session, if this connection owns it, or with `followed` follows it; otherwise NULL, and the
 * request was answered. */
struct gw_session *harness_session(struct harness *h, const char *id, const char *session,
                                   bool followed);

/* ---- harness_ext.c: what the extension and `sessions` bring ---- */

extern const struct harness_method harness_more[];
extern const unsigned harness_more_count;
void harness_ext_closed(struct harness *h);
/* bridle/session, whether it watches or not. */
void harness_ext_changed(struct harness *h, struct gw_session *s);
/* A live session, as in lists. */
void harness_put_session(struct br_buf *b, struct gw_session *s);

/* ---- harness_load.c: what was stored ---- */

void harness_do_list(struct harness *h, const char *id, const struct harness_args *a);
void harness_do_load(struct harness *h, const char *id, const struct harness_args *a);
void harness_do_resume(struct harness *h, const char *id, const struct harness_args *a);
/* An event of a session whose stored ones are being read: it comes behind them. */
void harness_load_hold(struct harness_load *load, const struct gw_event *e);
/* It has ended meanwhile, and its follower goes. */
void harness_load_ended(struct harness_load *load, enum gw_state state);
/* The same, and the answer to its prompt, whose id becomes the load's: it comes behind the events.
 */
void harness_load_answer(struct harness_load *load, char *id, int code, struct br_buf *b);
void harness_load_closed(struct harness *h);
/* There is room again. */
void harness_load_writable(struct harness *h);
const char *harness_status(enum gw_state state);
/* ,"KEY":TEXT of at most max bytes */
void harness_put_text(struct br_buf *b, const char *key, const char *text, size_t max);

#endif
