/*
 * core/cli: what a service sends, checked. The other half of harness/acp/1 and its extension
 * bridle/1 as a client sees it: which answers are due, what each has to look like, and that the
 * events of a session tell one story. Pure: text in, one item out; no input or output.
 *
 * Checked are: JSON-RPC (strict, one answer a request), the fields of every result, the envelope
 * and the exact fields of each event, `seq` without gap or repetition and `after` of the own
 * events, event ids that come once, the order of events (a resolution that agrees with its request
 * and with the answer that this client gave; agent.stopped once, as the last one), and that a
 * prompt's result agrees with agent.stopped and with the sum of model.response.
 *
 * Objects of the extension may have keys that this client does not know, those of harness/acp/1
 * may not.
 */
#ifndef BR_CLI_STREAM_H
#define BR_CLI_STREAM_H

#include <jansson.h>

#include "base/base.h"

#define BR_STREAM_SESSIONS_MAX 64u
#define BR_STREAM_PENDING_MAX 256u
#define BR_STREAM_EVENTS_MAX 200000u /* of one session, of either kind */

enum br_stream_method {
    BR_STREAM_INITIALIZE = 1,
    BR_STREAM_NEW,
    BR_STREAM_PROMPT,
    BR_STREAM_RESPOND,
    BR_STREAM_CANCEL,
    BR_STREAM_LIST,
    BR_STREAM_LOAD,
    BR_STREAM_RESUME,
    BR_STREAM_DETACH,
    BR_STREAM_WATCH,
};
/* "session/prompt" */
const char *br_stream_method_name(enum br_stream_method m);

enum br_stream_kind {
    BR_STREAM_RESULT = 1,
    BR_STREAM_REFUSED, /* an error of JSON-RPC */
    BR_STREAM_EVENT,   /* session/event or bridle/event */
    BR_STREAM_ROW,     /* bridle/session: a live session changed */
};

/* One message of the server; valid until the next br_stream_read(). */
struct br_stream_item {
    enum br_stream_kind kind;
    enum br_stream_method method; /* of RESULT and REFUSED */
    uint64_t id;                  /* likewise */
    const char *session;          /* that it is about; "" if it is about none */
    const char *permission;       /* of session/respond, and of events that have one; "" */
    const json_t *value;          /* the result, the event, the row */
    const char *type;             /* of an event */
    int code;                     /* of REFUSED: -32010, ... */
    const char *text, *name;      /* likewise: its message, and "ACP_..." or "" */
};

struct br_stream;
struct br_stream *br_stream_new(void);
void br_stream_free(struct br_stream **s);

/*
 * A request goes out: `session` and `permission` that it is about ("" for none), `allow` what it
 * answers. The id to send it with, or 0 if too many answers are due.
 */
uint64_t br_stream_ask(struct br_stream *s, enum br_stream_method m, const char *session,
                       const char *permission, bool allow);
/* A message came. 0 and *out, or -BR_E_PEER_PROTOCOL with "protocol failure: ..." and the
 * connection is to be closed with 1002; -BR_E_NOMEM. */
int br_stream_read(struct br_stream *s, const char *text, size_t n, struct br_stream_item *out,
                   struct br_err *err);

/* Did the server agree to bridle/1? */
bool br_stream_extended(const struct br_stream *s);
/* Has agent.stopped come? Its status then, else NULL. */
const char *br_stream_stopped(const struct br_stream *s, const char *session);
/* seq of the last event of a kind, -1: none. */
int64_t br_stream_last(const struct br_stream *s, const char *session, bool own);

#endif
