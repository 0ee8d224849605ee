/* The table of event types: one row a field. */
#ifndef BR_AUDIT_EVENTS_PRIV_H
#define BR_AUDIT_EVENTS_PRIV_H

#include "audit/events.h"

enum field_kind {
    FIELD_TEXT, /* min..max bytes */
    FIELD_INT,  /* min..max */
    FIELD_NUM,  /* integer or real, min..max */
    FIELD_BOOL,
    FIELD_ENUM,   /* `values`, separated by '|' */
    FIELD_ANY,    /* any JSON value within the limits of tool JSON */
    FIELD_OBJECT, /* any JSON object within the same limits */
    FIELD_USAGE,  /* {promptTokens, completionTokens, totalTokens}, the last the sum */
    FIELD_RECORD, /* `fields` */
    FIELD_LIST,   /* at most `max` records of `fields` */
};

struct event_field {
    const char *name; /* NULL ends a list of fields */
    enum field_kind kind;
    bool optional;
    bool or_null; /* optional for the sender, but always written: null if it is absent */
    int64_t min, max;
    const char *values;
    const struct event_field *fields;
};

struct event_type {
    const char *type;
    const struct event_field *fields;
    bool internal;
};

#define EVENT_ACTORS "kernel|agent|model|operator|sandbox-runner"
/* Is s one of `values`, which '|' separates? */
bool event_value_in(const char *values, const char *s);

/* Where the order reads an event: jansson's tree, or that of quick.c. */
enum event_member { MEMBER_ABSENT, MEMBER_TRUE, MEMBER_OTHER };
struct event_source {
    const char *(*get)(const void *ctx, const char *key); /* a string; NULL */
    enum event_member (*member)(const void *ctx, const char *key);
    const void *ctx;
};
/* As br_event_order_apply(). */
int event_order_apply(struct br_event_order *o, const char *type, const struct event_source *data,
                      struct br_err *err);

/* NULL if there is no such type. */
const struct event_type *event_type_find(const char *type);
/* The types in the order of the table; NULL behind the last. */
const struct event_type *event_type_at(size_t i);

#endif
