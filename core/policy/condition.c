/*
 * Conditions of rules: the tool, the model, changes of the environment, the time, what of the
 * budget is used or left. Loaded from the JSON of a table, which is hostile, and tested while
 * deciding, against a context that the session knows and no model can write, except for `env`.
 * What is absent is neither true nor false: it counts against an allow and for an ask or a deny.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/load_priv.h"

#define DAY_MINUTES 1440
/* the widest offset of a time zone, and a day more than any that was ever used */
#define ZONE_MAX (24 * 60)

static const char *const counters[] = {"calls", "tokens", "asks"};
_Static_assert(BR_ARRAY_LEN(counters) == BR_COUNTERS, "a name for every counter");

/* ---- loading ---- */

static int load_time(struct loader *l, const char *place, const struct br_tree *o,
                     struct br_condition *c)
{
    static const struct key keys[] = {{"days", VALUE_INTEGER, false},
                                      {"from", VALUE_INTEGER, false},
                                      {"to", VALUE_INTEGER, false},
                                      {"zone", VALUE_INTEGER, true}};
    int64_t days = 0, from = 0, to = 0, zone = 0;
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = br_load_integer(l, place, o, "days", 1, 127, &days)) < 0 ||
        (e = br_load_integer(l, place, o, "from", 0, DAY_MINUTES - 1, &from)) < 0 ||
        (e = br_load_integer(l, place, o, "to", 1, DAY_MINUTES, &to)) < 0)
        return e;
    if (from == to)
        return br_load_refuse(l, place, "to", "another minute than 'from'");
    c->local = !br_tree_get(o, "zone");
    if (!c->local && (e = br_load_integer(l, place, o, "zone", -ZONE_MAX, ZONE_MAX, &zone)) < 0)
        return e;
    c->has_time = true;
    c->days = (uint8_t)days;
    c->from = (uint16_t)from;
    c->to = (uint16_t)to;
    c->zone = (int32_t)zone;
    return 0;
}

static int load_limit(struct loader *l, const char *place, const struct br_tree *o,
                      struct br_limit *x)
{
    static const struct key keys[] = {{"counter", VALUE_TEXT, false},
                                      {"value", VALUE_TEXT, false},
                                      {"is", VALUE_TEXT, false},
                                      {"limit", VALUE_INTEGER, false}};
    static const char *const values[] = {"used", "left"}, *const orders[] = {"over", "under"};
    unsigned counter = 0, value = 0, order = 0;
    int64_t limit = 0;
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = br_load_word(l, place, o, "counter", counters, BR_COUNTERS, &counter)) < 0 ||
        (e = br_load_word(l, place, o, "value", values, 2, &value)) < 0 ||
        (e = br_load_word(l, place, o, "is", orders, 2, &order)) < 0 ||
        (e = br_load_integer(l, place, o, "limit", 0, INT64_MAX, &limit)) < 0)
        return e;
    *x = (struct br_limit){.limit = (uint64_t)limit,
                           .counter = (uint8_t)counter,
                           .left = value == 1,
                           .under = order == 1};
    return 0;
}

static int load_budget(struct loader *l, const char *place, const struct br_tree *list,
                       struct br_condition *c)
{
    size_t n = br_tree_count(list);
    char here[PLACE_MAX];
    if (n == 0 || n > 4u * BR_COUNTERS)
        return br_load_refuse(l, place, "budget", "a list of 1 to 12 limits");
    c->limits = br_arena_alloc(&l->t->arena, n * sizeof(c->limits[0]));
    if (!c->limits)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; c->nlimits < n; c->nlimits++) {
        v = br_tree_after(list, v);
        snprintf(here, sizeof(here), "%.60s.budget[%u]", place, c->nlimits);
        int e = load_limit(l, here, v, &c->limits[c->nlimits]);
        if (e < 0)
            return e;
    }
    return 0;
}

int br_condition_load(struct loader *l, const char *place, const struct br_tree *o,
                      struct br_condition *c)
{
    static const struct key keys[] = {{"tool", VALUE_LIST, true},   {"model", VALUE_LIST, true},
                                      {"env", VALUE_LIST, true},    {"env_only", VALUE_LIST, true},
                                      {"time", VALUE_OBJECT, true}, {"budget", VALUE_LIST, true}};
    const struct br_tree *time = br_tree_get(o, "time"), *budget = br_tree_get(o, "budget");
    const struct br_tree *only = br_tree_get(o, "env_only");
    char here[PLACE_MAX];
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0)
        return e;
    if (br_tree_count(o) == 0)
        return br_load_refuse(l, place, "tool", "there, or another condition");
    c->has_env_only = only != NULL;
    size_t max = CONDITION_PATTERNS_MAX;
    if ((e = br_load_patterns(l, place, o, "tool", max, &c->tool)) < 0 ||
        (e = br_load_patterns(l, place, o, "model", max, &c->model)) < 0 ||
        (e = br_load_patterns(l, place, o, "env", max, &c->env)) < 0)
        return e;
    if (only && br_tree_count(only) > 0 &&
        (e = br_load_patterns(l, place, o, "env_only", max, &c->env_only)) < 0)
        return e;
    snprintf(here, sizeof(here), "%.80s.time", place);
    if (time && (e = load_time(l, here, time, c)) < 0)
        return e;
    return budget ? load_budget(l, place, budget, c) : 0;
}

/* ---- testing ---- */

bool br_patterns_match(const struct br_patterns *p, const char *s, size_t n)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (br_pattern_match(&p->list[i], s, n))
            return true;
    return false;
}

static enum br_truth test_text(const struct br_patterns *p, const char *s)
{
    if (!s)
        return BR_UNKNOWN;
    return br_patterns_match(p, s, strlen(s)) ? BR_YES : BR_NO;
}

/* By its name, or, where the pattern has '=', as a whole. */
static bool change_matches(const struct br_patterns *p, const char *change)
{
    size_t name = strcspn(change, "="), all = strlen(change);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct br_pattern *x = &p->list[i];
        if (br_pattern_match(x, change, x->assigns ? all : name))
            return true;
    }
    return false;
}

static enum br_truth test_env(const struct br_condition *k, const struct br_context *c)
{
    bool some = false, every = true;
    if (!k->env.n && !k->has_env_only)
        return BR_YES;
    if (!c->has_env)
        return BR_UNKNOWN;
    for (size_t i = 0; i < c->nenv; i++) {
        some |= k->env.n > 0 && change_matches(&k->env, c->env[i]);
        every &= !k->has_env_only || change_matches(&k->env_only, c->env[i]);
    }
    return (k->env.n == 0 || some) && every ? BR_YES : BR_NO;
}

/* The remainder that is never negative. */
static int64_t modulo(int64_t a, int64_t b)
{
    return (a % b + b) % b;
}

static enum br_truth test_time(const struct br_condition *k, const struct br_context *c)
{
    if (!c->has_time || (k->local && !c->has_local))
        return BR_UNKNOWN;
    int64_t zone = k->local ? c->local_offset : k->zone, seconds;
    if (__builtin_add_overflow(c->unix_time, zone * 60, &seconds))
        return BR_UNKNOWN;
    int64_t day_seconds = modulo(seconds, 86400);
    unsigned minute = (unsigned)(day_seconds / 60);
    /* 1 January 1970 was a Thursday */
    unsigned day = (unsigned)modulo((seconds - day_seconds) / 86400 + 3, 7);
    bool in = k->from < k->to ? minute >= k->from && minute < k->to : minute >= k->from;
    if (in)
        return k->days >> day & 1 ? BR_YES : BR_NO;
    if (k->from > k->to && minute < k->to) /* the window of the day before */
        return k->days >> (day + 6) % 7 & 1 ? BR_YES : BR_NO;
    return BR_NO;
}

static enum br_truth test_limit(const struct br_limit *x, const struct br_context *c)
{
    if (!c->counters[x->counter].known)
        return BR_UNKNOWN;
    uint64_t v = x->left ? c->counters[x->counter].left : c->counters[x->counter].used;
    return (x->under ? v < x->limit : v > x->limit) ? BR_YES : BR_NO;
}

static enum br_truth both(enum br_truth a, enum br_truth b)
{
    if (a == BR_NO || b == BR_NO)
        return BR_NO;
    return a == BR_UNKNOWN || b == BR_UNKNOWN ? BR_UNKNOWN : BR_YES;
}

enum br_truth br_condition_test(const struct br_condition *k, const struct br_context *c)
{
    static const struct br_context nothing = {.tool = NULL};
    enum br_truth r = BR_YES;
    if (!c)
        c = &nothing;
    if (k->tool.n)
        r = both(r, test_text(&k->tool, c->tool));
    if (k->model.n)
        r = both(r, test_text(&k->model, c->model));
    r = both(r, test_env(k, c));
    if (k->has_time)
        r = both(r, test_time(k, c));
    for (uint32_t i = 0; i < k->nlimits; i++)
        r = both(r, test_limit(&k->limits[i], c));
    return r;
}

bool br_rule_applies(const struct br_table *t, const struct br_rule *r, const struct br_context *c)
{
    enum br_truth all = BR_YES;
    for (unsigned i = 0; i < r->nwhen && all != BR_NO; i++)
        all = both(all, br_condition_test(&t->conditions[r->when[i]], c));
    return all == BR_YES || (all == BR_UNKNOWN && r->effect != BR_EFFECT_ALLOW);
}
