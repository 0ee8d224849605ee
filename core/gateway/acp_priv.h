/*
 * core/gateway, private to acp*.c: the Agent Client Protocol, version 1, as an agent speaks it. A
 * session of that protocol is a name and a directory; each of its prompts is one run, and so one
 * session of session.c.
 */
#ifndef BR_GATEWAY_ACP_PRIV_H
#define BR_GATEWAY_ACP_PRIV_H

#include "gateway/gateway_priv.h"

/* Sessions of the protocol that a connection has open: a name and a path each, so that an editor
 * may be used for days. Those that wait for a prompt or run are limited as everywhere. */
#define ACP_SESSIONS_MAX 256u
/* Blocks of content of one prompt. */
#define ACP_BLOCKS_MAX 256u
/* Arguments of calls that are remembered until the call has its result: shown with a question. */
#define ACP_CALLS_MAX (4u * 1024 * 1024)
/* What a client shows of a result. The whole is in the record. */
#define ACP_CONTENT_MAX (64u * 1024)
#define ACP_TITLE_MAX 256u
/* One message to a client. */
#define ACP_MESSAGE_MAX (1024u * 1024)
/* Of one page of session/list. */
#define ACP_LIST_PAGE 50u

/* Errors of the protocol beside those of JSON-RPC. */
#define ACP_NOT_FOUND (-32002)
#define ACP_FORBIDDEN (-32030)

/* ---- acp_map.c: from stored events to what an editor shows. Pure. ---- */

struct acp_scope {
    const char *session_id; /* of the protocol */
    const char *cwd;
    unsigned turn; /* 1, 2, ...: names of calls are unique in a session */
    bool replay;   /* user's messages too */
    bool notices;  /* the client shows notices */
};

/* The `update` of session/update that this event is; NULL: an editor does not hear of it. */
json_t *acp_map_event(const struct acp_scope *s, const char *type, size_t ntype,
                      const json_t *data);
/* A piece of the agent's message. */
json_t *acp_map_text(const char *text, size_t n);
/* The params of session/request_permission for a `bridle.ask`. `call`: the data of its tool.call,
 * or NULL. */
json_t *acp_map_ask(const struct acp_scope *s, const json_t *ask, const json_t *call);
/* What a response says: 0 deny, 1 once, 2 for the run, where `run`. *note, static, says why not
 * where the client did not choose to reject. */
unsigned acp_map_answer(const json_t *result, bool run, const char **note);
/* Append the text of a prompt's blocks. -BR_E_INVALID_ARGUMENTS, -BR_E_LIMIT_EXCEEDED. */
int acp_map_prompt(const json_t *blocks, struct br_buf *out, struct br_err *err);

/* What is learned from a run's events, for its stop reason. */
struct acp_account {
    bool tokens_warned, calls_warned; /* budget.warning */
    bool cut;                         /* the last turn of the model hit its token limit */
    char code[64];                    /* of the last `error` */
    char text[BR_ERR_TEXT_MAX];
};
void acp_account_event(struct acp_account *a, const char *type, size_t ntype, const json_t *data);
/* A stop reason, static; NULL: the run failed, and the prompt is answered with an error. */
const char *acp_account_stop(const struct acp_account *a, const struct gw_result *r, bool canceled);

/* ---- acp.c, acp_turn.c, acp_store.c ---- */

struct acp;
struct acp_turn;
struct acp_load;

struct acp_session {
    struct acp *acp;
    char id[BR_ID_MAX];
    char *cwd;
    unsigned turns;
    bool known;            /* it has been prompted, here or in what was loaded */
    char fresh[BR_ID_MAX]; /* a session of session.c that waits for a prompt; "": none */
    struct acp_turn *turn; /* NULL: idle */
    struct acp_session *next;
};

/* A request whose answer waits for bridled: session/new, session/load, session/prompt. */
struct acp_pending {
    struct acp *acp;
    char *id;                /* of the request */
    char *cwd;               /* as the client said */
    char session[BR_ID_MAX]; /* of the protocol; "": a new one */
    bool prompt;
    struct acp_pending *next;
};

struct acp {
    struct conn *c;
    struct gateway *g;
    bool initialized, notices;
    uint64_t requests; /* of ours: the id of the next one */
    struct acp_session *sessions;
    unsigned nsessions;
    struct acp_pending *pending;
    unsigned npending;
    struct acp_load *load; /* a reading of the store; one at a time */
    bool full;             /* the connection asked to wait */
};

/* acp.c */
/* NULL: no memory. All is copied. */
struct acp_pending *acp_pending_new(struct acp *a, const char *id, const char *cwd,
                                    const char *session);
void acp_pending_free(struct acp_pending *p);
/* The session of session.c that waits for a prompt is given back. */
void acp_forget_fresh(struct acp_session *s);
/* Whether one more session of session.c may be had for this connection; if not, it was answered. */
bool acp_may_run(struct acp *a, const char *id);
struct acp_session *acp_find(struct acp *a, const char *id);
/* A session of this name, made if there is none; NULL: no memory. */
struct acp_session *acp_session_put(struct acp *a, const char *id, const char *cwd);
void acp_session_drop(struct acp_session *s);
int acp_send(struct acp *a, const json_t *message);
void acp_update(struct acp *a, const char *session_id, json_t *update); /* takes `update` */
void acp_notify(struct acp *a, const char *method, json_t *params);     /* takes `params` */
void acp_reply(struct acp *a, const char *id, json_t *result);          /* takes `result` */
void acp_fail(struct acp *a, const char *id, int code, const char *name, const char *fmt, ...)
    BR_PRINTF(5, 6);
/* The same for an error of session.c or replay.c. */
void acp_fail_code(struct acp *a, const char *id, int code, const struct br_err *why);
const char *acp_string(const json_t *params, const char *key, size_t max);

/* acp_turn.c: one prompt, one run */
void acp_turn_begin(struct acp_session *s, const char *id, struct br_buf *content);
bool acp_turn_is(const struct acp_turn *t, const char *id); /* of that request */
void acp_turn_cancel(struct acp_turn *t);
/* Cancel it, answer its prompt, and free it. */
void acp_turn_close(struct acp_turn *t, const char *why);
/* An answer to a request of ours; false: to none that waits. */
bool acp_turn_answer(struct acp *a, const struct rpc_message *m);
void acp_turn_free(struct acp_turn *t); /* nobody is told; its run is left alone */

/* acp_store.c: session/list and session/load */
void acp_list(struct acp *a, const char *id, const json_t *params);
/* Replay a run, then answer. `id` and `cwd` are copied. */
void acp_load_begin(struct acp *a, const char *id, struct acp_session *s);
void acp_load_more(struct acp *a);
void acp_load_give_up(struct acp *a); /* and say so */
void acp_load_free(struct acp *a);
/* Before each reading; false if the request was answered. */
bool acp_may_read(struct acp *a, const char *id);
bool acp_load_is(const struct acp *a, const struct acp_session *s);

#endif
