/* The parts of a stream: the answers that are due (stream.c), what they look like
 * (stream_result.c), and the sessions whose events come (stream_event.c). */
#ifndef BR_CLI_STREAM_PRIV_H
#define BR_CLI_STREAM_PRIV_H

#include "audit/events.h"
#include "cli/stream.h"

/* A question, and what this client said to it. */
struct stream_permission {
    char *id, *action, *subject; /* subject NULL: none */
    bool asked_me, allow;        /* this client has answered, and how */
    bool accepted;               /* the server took it */
    bool resolved, resolved_allow, by_person;
};

struct stream_session {
    char *id;
    bool prompted, followed; /* by session/prompt, by load or resume */
    bool closed;             /* the prompt was answered, or it was over when it was loaded */
    uint64_t next[2];        /* seq of the next event: of session/event, of bridle/event */
    struct br_event_order *order;
    uint8_t (*seen)[16]; /* a table of event ids, hashed */
    size_t nseen, cap_seen;
    struct stream_permission *permissions;
    size_t npermissions, cap_permissions;
    uint64_t prompt_tokens, completion_tokens;
    char stopped[24]; /* status of agent.stopped; "" before it */
};

struct stream_pending {
    uint64_t id; /* 0: free */
    enum br_stream_method method;
    char *session, *permission;
};

struct br_stream {
    uint64_t next_id;
    bool initialized, extended, watching;
    struct stream_pending pending[BR_STREAM_PENDING_MAX];
    struct stream_session sessions[BR_STREAM_SESSIONS_MAX];
    unsigned nsessions;
    json_t *root; /* of the last message */
    struct stream_pending last;
};

/* "protocol failure: ..." */
int stream_fail(struct br_err *err, const char *fmt, ...) BR_PRINTF(2, 3);

/* NULL if there is none. */
struct stream_session *stream_session(const struct br_stream *s, const char *id);
/* The same, made if there is none; NULL if there are too many. */
struct stream_session *stream_session_make(struct br_stream *s, const char *id);
void stream_session_free(struct stream_session *x);
/* This client's answer to a question, which goes out now. */
int stream_answered(struct stream_session *x, const char *permission, bool allow);
/* The server's word on it. */
int stream_answer_taken(struct stream_session *x, const char *permission, bool accepted,
                        struct br_err *err);
/* The params of session/event (own: bridle/event). */
int stream_event(struct br_stream *s, const json_t *params, bool own, struct br_stream_item *out,
                 struct br_err *err);

/* Check a result and note what follows from it. */
int stream_result(struct br_stream *s, const struct stream_pending *p, const json_t *result,
                  struct br_err *err);
/* One session, as in a list. */
int stream_row(const json_t *row, struct br_err *err);

/* ---- fields: stream_field.c ---- */

enum stream_need { STREAM_REQUIRED, STREAM_OPTIONAL };
struct stream_field {
    const char *name;
    enum stream_need need;
    enum { STREAM_TEXT, STREAM_COUNT, STREAM_SEQ, STREAM_BOOL, STREAM_OBJECT, STREAM_ARRAY } kind;
    size_t min, max;    /* of a text, in bytes */
    const char *values; /* of a text: one of these, separated by '|' */
};
/* An object with these fields; `strict`: and no others. `what` names it. */
int stream_fields(const json_t *o, const char *what, const struct stream_field *fields, size_t n,
                  bool strict, struct br_err *err);

#endif
