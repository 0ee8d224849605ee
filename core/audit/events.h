/*
 * The events of a run: which types there are, which fields each carries (docs/events.md), and in
 * which order they may come. The table is the one place where a type is described; everything that
 * is stored was checked against it, after redaction.
 */
#ifndef BR_AUDIT_EVENTS_H
#define BR_AUDIT_EVENTS_H

#include <jansson.h>

#include "base/base.h"

/* The largest integer that every reader of JSON keeps exactly. */
#define BR_EVENT_INT_MAX 9007199254740991ll
/* Sentences: notes, reasons, messages. */
#define BR_EVENT_NOTE_MAX 4096u
/* One bridle.text; longer text is several events. */
#define BR_EVENT_TEXT_MAX (64u * 1024)
#define BR_EVENT_TYPE_MAX 32u
/* JSON of one event before it is checked field by field: 10,000 changed files with three members
 * each are the most that a type allows. */
#define BR_EVENT_NODES_MAX 100000u

/*
 * Check `data` (and `actor`, NULL or "" for none) against the table and append the event to `out`,
 * keys in the order of the table:
 *   {"v":1,"type":..,"eventId":..,"at":..,"actor":..,"data":{..}}
 * -BR_E_EVENT_SCHEMA, naming the field, if anything is missing, unknown, of another type, or over
 * its limit; nothing usable is in `out` then.
 */
int br_event_build(const char *type, const char *actor, const json_t *data, const char *event_id,
                   uint64_t at_us, struct br_buf *out, struct br_err *err);

/* A stored event, taken apart and checked again. Strings point into `root`. */
struct br_event {
    json_t *root;
    const char *type, *event_id, *actor; /* actor: NULL if none */
    const json_t *data;
};
int br_event_parse(const void *bytes, size_t n, struct br_event *e, struct br_err *err);
void br_event_free(struct br_event *e);

/* True for the types that the audit process makes itself and nobody may send. */
bool br_event_is_internal(const char *type);

/* ---- order ---- */

/*
 * What has happened in one run, as far as it says what may happen next:
 *   session.created is first, once; agent.stopped is last, once;
 *   an answer belongs to an open question: model.response, tool.result, permission.resolved (with
 *   the callId, action, subject and scope of its request, once), sandbox.stopped;
 *   a call does not end while it waits for a permission; a run does not end with open ones.
 */
struct br_event_order;
struct br_event_order *br_event_order_new(void);
void br_event_order_free(struct br_event_order **o);
/* Check one event, whose data br_event_build() has accepted, and if it may come now, note it.
 * -BR_E_EVENT_SCHEMA otherwise; nothing is noted then. */
int br_event_order_apply(struct br_event_order *o, const char *type, const json_t *data,
                         struct br_err *err);

struct br_open_permission {
    char *permission_id, *session_id, *call_id, *action, *subject, *scope; /* NULL: absent */
};
struct br_open_call {
    char *call_id, *tool;
    unsigned waiting; /* permissions without an answer */
};
/* What the end of a record has to close; the pointers are valid until the next apply. */
struct br_event_open {
    const struct br_open_permission *permission; /* the oldest, NULL: none */
    const struct br_open_call *call;             /* likewise */
    const char *session_id;                      /* NULL: session.created is missing */
    const char *agent_id;                        /* NULL: agent.started is missing */
    const char *sandbox_run, *sandbox_name;      /* NULL: none is running */
    const char *status;                          /* of agent.stopped, NULL: it is missing */
    uint64_t steps, tool_calls;                  /* model requests, tool calls */
};
void br_event_order_open(const struct br_event_order *o, struct br_event_open *open);

#endif
