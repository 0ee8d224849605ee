/*
 * A parsed JSON text, as small as a decision table needs it: nodes in the order of the text, texts
 * in a copy of it. Private to core/policy.
 */
#ifndef BR_POLICY_TREE_H
#define BR_POLICY_TREE_H

#include <string.h>

#include "base/base.h"

enum br_tree_type {
    BR_TREE_NULL,
    BR_TREE_FALSE,
    BR_TREE_TRUE,
    BR_TREE_INTEGER,
    BR_TREE_REAL, /* without its value: nothing here is one */
    BR_TREE_TEXT,
    BR_TREE_LIST,
    BR_TREE_OBJECT,
};

struct br_tree {
    const char *key; /* in an object */
    const char *text;
    int64_t integer;
    uint32_t n;    /* bytes of a text, or children */
    uint32_t span; /* nodes of the value, itself included: the next one is behind them */
    uint8_t type;
};

/* Members of an object: a table's have 11 keys at most. */
#define BR_TREE_MEMBERS_MAX 64u

struct br_trees {
    struct br_tree *nodes;
    size_t n, cap;
    char *text;
    size_t at, len;
    char why[64]; /* of a refusal, with its place: */
    unsigned line, column;
};

/*
 * Parse n bytes that br_json_scan() has accepted, strictly by RFC 8259: a list or an object, no key
 * twice in an object, integers of 64 bits, no lone surrogates. The root is nodes[0]. 0,
 * -BR_E_INVALID_JSON with `why`, or -BR_E_NOMEM. To be freed in every case.
 */
int br_trees_parse(struct br_trees *t, const char *text, size_t n, unsigned max_depth);
void br_trees_free(struct br_trees *t);

/* NULL may stand for a value that is not there; it is of no type and has no children. */
static inline bool br_tree_is(const struct br_tree *v, enum br_tree_type type)
{
    return v && v->type == type;
}

/* The child of a list or an object behind `v`, NULL for the first one; NULL behind the last. */
static inline const struct br_tree *br_tree_after(const struct br_tree *parent,
                                                  const struct br_tree *v)
{
    if (!v)
        return parent && parent->type >= BR_TREE_LIST && parent->n ? parent + 1 : NULL;
    v += v->span;
    return v < parent + parent->span ? v : NULL;
}

static inline const struct br_tree *br_tree_get(const struct br_tree *o, const char *key)
{
    if (!br_tree_is(o, BR_TREE_OBJECT))
        return NULL;
    for (const struct br_tree *v = br_tree_after(o, NULL); v; v = br_tree_after(o, v))
        if (v->key[0] == key[0] && strcmp(v->key, key) == 0)
            return v;
    return NULL;
}

/* How many children a list or an object has. */
static inline size_t br_tree_count(const struct br_tree *v)
{
    return v && v->type >= BR_TREE_LIST ? v->n : 0;
}

static inline const char *br_tree_text(const struct br_tree *v)
{
    return br_tree_is(v, BR_TREE_TEXT) ? v->text : NULL;
}

static inline size_t br_tree_len(const struct br_tree *v)
{
    return br_tree_is(v, BR_TREE_TEXT) ? v->n : 0;
}

static inline int64_t br_tree_integer(const struct br_tree *v)
{
    return br_tree_is(v, BR_TREE_INTEGER) ? v->integer : 0;
}

#endif
