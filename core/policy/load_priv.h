/*
 * Inside core/policy: what the files that load parts of a decision table share.
 */
#ifndef BR_POLICY_LOAD_PRIV_H
#define BR_POLICY_LOAD_PRIV_H

#include "policy/policy_priv.h"
#include "policy/tree.h"

#define REFUSED "the decision table was not loaded: "
#define PLACE_MAX 96u

struct loader {
    struct br_table *t;
    struct br_err *err;
    unsigned source_kind[TABLE_SOURCES]; /* by index in "sources" */
    unsigned nsources;
};

enum value_type { VALUE_TEXT, VALUE_INTEGER, VALUE_BOOLEAN, VALUE_LIST, VALUE_OBJECT };

struct key {
    const char *name;
    enum value_type type;
    bool optional;
};

/* Every function returns 0 or a negative code, with the error set. `place` is the path of the
 * object that is read, "" for the document. */

/* The object has these keys, of these types, and no others. */
int br_load_object(struct loader *l, const char *place, const struct br_tree *o,
                   const struct key *keys, size_t nkeys);
/* Refuse the member `name`, saying what it must be. */
int br_load_refuse(struct loader *l, const char *place, const char *name, const char *expected);
int br_load_nomem(struct loader *l);
/* Copy the text o.name, of 1 to max bytes, into the arena. */
int br_load_text(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                 size_t max, const char **out);
/* The same, without control characters. */
int br_load_name(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                 size_t max, const char **out);
/* A piece of somebody else's text for an error message. */
const char *br_load_shown(char dst[64], const char *s);

/* The list o.name of 1 to max patterns of text; none if it is left out. */
int br_load_pattern_list(struct loader *l, const char *place, const char *name,
                         const struct br_tree *list, size_t max, struct br_patterns *out);
int br_load_patterns(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                     size_t max, struct br_patterns *out);
/* An integer of the range. */
int br_load_integer(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                    int64_t min, int64_t max, int64_t *out);
/* One word of a list of n; its index. */
int br_load_word(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                 const char *const *words, size_t n, unsigned *out);

/* ---- command.c ---- */

int br_programs_load(struct loader *l, const struct br_tree *list);
/* The "command" of a rule: r->command and r->pattern. */
int br_command_load(struct loader *l, const char *place, const struct br_tree *o,
                    struct br_rule *r);

/* ---- condition.c ---- */

int br_condition_load(struct loader *l, const char *place, const struct br_tree *o,
                      struct br_condition *c);

#endif
