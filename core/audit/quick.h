/*
 * The common event, in one pass and without allocating: parsed, found to hold nothing that must be
 * hidden, checked against the table and the order, written. Whatever is not common (something to
 * redact, an escape or a number that is rare, a size, an error) is left to redact_json.c and
 * events.c, which say the same of every event, only later (docs/decisions/0122).
 */
#ifndef BR_AUDIT_QUICK_H
#define BR_AUDIT_QUICK_H

#include "audit/events.h"
#include "audit/redact.h"

/* Data that is larger goes the other way. */
#define BR_QUICK_BYTES_MAX (16u * 1024)
#define BR_QUICK_NODES_MAX 512u
#define BR_QUICK_DEPTH_MAX 16u

struct br_quick;
struct br_quick *br_quick_new(void); /* NULL without memory */
void br_quick_free(struct br_quick **q);
/*
 * True: this is the event, its order is noted, and *out (valid until the next call) are exactly the
 * bytes that br_redact_json(), br_event_build() and br_event_order_apply() lead to. False: nothing
 * was noted, go that way.
 */
bool br_quick_event(struct br_quick *q, const struct br_redact *r, struct br_event_order *o,
                    const char *type, const char *actor, const void *data, size_t n,
                    const char *event_id, uint64_t at_us, const uint8_t **out, size_t *nout);

#endif
