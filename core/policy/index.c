/*
 * The index: from an action and a subject to the few rules that can match. Every pattern with a
 * literal prefix or suffix is found through a sorted list of distinct prefixes (or suffixes, read
 * backwards): all entries that are a prefix of the subject lie on the chain of parents that starts
 * at the greatest entry not above the subject. Only patterns with a wildcard at both ends are
 * scanned. Built once per table; looking up allocates nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_priv.h"

/* ---- strings that may be read backwards ---- */

static uint8_t byte_at(const char *s, size_t n, size_t i, bool reversed)
{
    return (uint8_t)(reversed ? s[n - 1 - i] : s[i]);
}

static uint64_t key_of(const char *s, size_t n, bool reversed)
{
    uint64_t key = 0;
    for (size_t i = 0; i < 8; i++)
        key = key << 8 | (i < n ? byte_at(s, n, i, reversed) : 0);
    return key;
}

static size_t common_length(const char *a, size_t na, const char *b, size_t nb, bool reversed)
{
    size_t n = na < nb ? na : nb, i = 0;
    while (i < n && byte_at(a, na, i, reversed) == byte_at(b, nb, i, reversed))
        i++;
    return i;
}

static int compare(const char *a, size_t na, const char *b, size_t nb, bool reversed)
{
    size_t n = common_length(a, na, b, nb, reversed);
    if (n < na && n < nb)
        return byte_at(a, na, n, reversed) < byte_at(b, nb, n, reversed) ? -1 : 1;
    return na < nb ? -1 : na > nb;
}

/* ---- order of rules ---- */

static int compare_text(const char *a, const char *b)
{
    if (!a || !b)
        return !a && !b ? 0 : a ? 1 : -1;
    return strcmp(a, b);
}

/*
 * Precedence within a source: the strictest, or, in a manifest, the longest pattern first. What
 * follows only makes the answer independent of the order in which the rules were written.
 */
static int compare_rules(const void *pa, const void *pb)
{
    const struct br_rule *a = pa, *b = pb;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    int stricter = (int)b->effect - (int)a->effect;
    int longer = a->text_len == b->text_len ? 0 : a->text_len > b->text_len ? -1 : 1;
    bool manifest = a->source == BR_SOURCE_MANIFEST;
    int r = manifest ? longer : stricter;
    if (r == 0)
        r = manifest ? stricter : longer;
    if (r == 0)
        r = strcmp(a->id, b->id);
    if (r == 0)
        r = strcmp(a->text, b->text);
    if (r == 0)
        r = (int)a->pattern.kind - (int)b->pattern.kind;
    if (r == 0)
        r = strcmp(a->action, b->action);
    if (r == 0)
        r = compare_text(a->reason, b->reason);
    if (r == 0)
        r = (int)a->nwhen - (int)b->nwhen;
    for (unsigned i = 0; r == 0 && i < a->nwhen; i++)
        r = (int)a->when[i] - (int)b->when[i];
    if (r == 0)
        r = compare_text(a->file, b->file);
    return r ? r : a->line < b->line ? -1 : a->line > b->line;
}

/* ---- building ---- */

struct member {
    const char *s;
    uint32_t len;
    uint32_t rank;
    bool reversed;
};

static int compare_members(const void *pa, const void *pb)
{
    const struct member *a = pa, *b = pb;
    int r = compare(a->s, a->len, b->s, b->len, a->reversed);
    return r ? r : a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void set_parent(struct br_strindex *x, uint32_t i)
{
    struct br_strentry *e = &x->entries[i];
    uint32_t p = i ? i - 1 : RANK_NONE;
    while (p != RANK_NONE) {
        const struct br_strentry *c = &x->entries[p];
        if (c->len < e->len && common_length(c->s, c->len, e->s, e->len, x->reversed) == c->len)
            break;
        p = c->parent;
    }
    e->parent = p;
}

static int strindex_build(struct br_strindex *x, struct member *m, uint32_t n, bool reversed,
                          struct br_arena *a)
{
    x->reversed = reversed;
    if (n == 0)
        return 0;
    qsort(m, n, sizeof(*m), compare_members);
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < n; i++)
        distinct += i == 0 || compare(m[i - 1].s, m[i - 1].len, m[i].s, m[i].len, reversed) != 0;
    x->entries = br_arena_alloc(a, distinct * sizeof(x->entries[0]));
    x->ranks = br_arena_alloc(a, n * sizeof(x->ranks[0]));
    if (!x->entries || !x->ranks)
        return -BR_E_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        x->ranks[i] = m[i].rank;
        if (i == 0 || compare(m[i - 1].s, m[i - 1].len, m[i].s, m[i].len, reversed) != 0) {
            x->entries[x->n] = (struct br_strentry){.key = key_of(m[i].s, m[i].len, reversed),
                                                    .s = m[i].s,
                                                    .len = m[i].len,
                                                    .first = i};
            set_parent(x, x->n++);
        }
        x->entries[x->n - 1].count++;
    }
    return 0;
}

static enum br_view_kind view_of(const struct br_pattern *p)
{
    return p->kind == BR_MATCH_COMMAND   ? BR_VIEW_WORDS
           : p->kind == BR_MATCH_PROGRAM ? BR_VIEW_PROGRAM
           : p->kind == BR_MATCH_HOST    ? BR_VIEW_HOST
                                         : BR_VIEW_SUBJECT;
}

/* Not found by either end. */
static bool is_scanned(const struct br_rule *r)
{
    size_t len = 0;
    if (r->command)
        return br_command_key(r->command, &len), len == 0;
    return r->pattern.plen == 0 && r->pattern.slen == 0;
}

/* The rules from[0..n) of one action, by rank, into one view. `m` has room for n of each. */
static int view_build(struct br_table *t, struct br_view *v, enum br_view_kind kind,
                      const uint32_t *from, uint32_t n, struct member *m)
{
    struct member *pre = m, *suf = m + n;
    uint32_t npre = 0, nsuf = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct br_rule *r = &t->rules[from[i]];
        const struct br_pattern *p = &r->pattern;
        size_t len = 0;
        if (p->kind == BR_MATCH_ANY || view_of(p) != kind)
            continue;
        v->used = true;
        const char *key = r->command ? br_command_key(r->command, &len) : NULL;
        if (is_scanned(r))
            v->nscan++;
        else if (key)
            pre[npre++] = (struct member){key, (uint32_t)len, from[i], false};
        else if (p->plen >= p->slen)
            pre[npre++] = (struct member){p->prefix, p->plen, from[i], false};
        else
            suf[nsuf++] = (struct member){p->suffix, p->slen, from[i], true};
    }
    v->scan = br_arena_alloc(&t->arena, v->nscan * sizeof(v->scan[0]));
    if (!v->scan || strindex_build(&v->prefixes, pre, npre, false, &t->arena) < 0 ||
        strindex_build(&v->suffixes, suf, nsuf, true, &t->arena) < 0)
        return -BR_E_NOMEM;
    for (uint32_t i = 0, k = 0; i < n; i++) {
        const struct br_pattern *p = &t->rules[from[i]].pattern;
        if (p->kind != BR_MATCH_ANY && view_of(p) == kind && is_scanned(&t->rules[from[i]]))
            v->scan[k++] = from[i];
    }
    return 0;
}

static int bucket_build(struct br_table *t, struct br_bucket *b, const uint32_t *from, uint32_t n)
{
    for (unsigned s = 0; s < TABLE_SOURCES; s++)
        b->any[s] = b->fallback[s] = RANK_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const struct br_rule *r = &t->rules[from[i]];
        b->has_path |= r->pattern.kind == BR_MATCH_PATH;
        b->has_host |= r->pattern.kind == BR_MATCH_HOST;
        if (r->pattern.kind != BR_MATCH_ANY)
            continue;
        if (r->nwhen)
            b->nsome++;
        else if (from[i] < b->any[r->source])
            b->any[r->source] = from[i];
    }
    b->some = br_arena_alloc(&t->arena, b->nsome * sizeof(b->some[0]));
    if (!b->some)
        return -BR_E_NOMEM;
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (t->rules[from[i]].pattern.kind == BR_MATCH_ANY && t->rules[from[i]].nwhen)
            b->some[k++] = from[i];
    BR_CLEANUP_FREE struct member *m = calloc(2 * (size_t)n + 1, sizeof(*m));
    if (!m)
        return -BR_E_NOMEM;
    for (unsigned k = 0; k < BR_VIEWS; k++)
        if (view_build(t, &b->views[k], (enum br_view_kind)k, from, n, m) < 0)
            return -BR_E_NOMEM;
    return 0;
}

/* One rule or fallback, to be grouped by action. */
struct use {
    const char *action;
    uint32_t rank; /* RANK_NONE: a fallback */
};

static int compare_uses(const void *pa, const void *pb)
{
    const struct use *a = pa, *b = pb;
    int r = strcmp(a->action, b->action);
    return r ? r : a->rank < b->rank ? -1 : a->rank > b->rank;
}

static struct br_bucket *bucket_find(const struct br_table *t, const char *action)
{
    uint32_t lo = 0, hi = t->nbuckets;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        int r = strcmp(t->buckets[mid].action, action);
        if (r == 0)
            return &t->buckets[mid];
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const struct br_bucket *br_index_bucket(const struct br_table *t, const char *action)
{
    return bucket_find(t, action);
}

static int buckets_build(struct br_table *t, struct use *uses, uint32_t n, uint32_t *from)
{
    t->star.action = "*";
    if (bucket_build(t, &t->star, NULL, 0) < 0)
        return -BR_E_NOMEM;
    for (uint32_t i = 0; i < n;) {
        const char *action = uses[i].action;
        uint32_t k = 0;
        for (; i < n && strcmp(uses[i].action, action) == 0; i++)
            if (uses[i].rank != RANK_NONE)
                from[k++] = uses[i].rank;
        struct br_bucket *b = strcmp(action, "*") ? &t->buckets[t->nbuckets++] : &t->star;
        b->action = action;
        if (bucket_build(t, b, from, k) < 0)
            return -BR_E_NOMEM;
    }
    for (uint32_t i = 0; i < t->nfallbacks; i++) {
        const char *action = t->fallbacks[i].action;
        struct br_bucket *b = strcmp(action, "*") ? bucket_find(t, action) : &t->star;
        b->fallback[t->fallbacks[i].source] = i;
    }
    return 0;
}

int br_index_build(struct br_table *t)
{
    uint32_t n = t->nrules + t->nfallbacks;
    if (t->nrules)
        qsort(t->rules, t->nrules, sizeof(t->rules[0]), compare_rules);
    BR_CLEANUP_FREE struct use *uses = calloc((size_t)n + 1, sizeof(*uses));
    BR_CLEANUP_FREE uint32_t *from = calloc((size_t)n + 1, sizeof(*from));
    if (!uses || !from)
        return -BR_E_NOMEM;
    for (uint32_t i = 0; i < t->nrules; i++)
        uses[i] = (struct use){t->rules[i].action, i};
    for (uint32_t i = 0; i < t->nfallbacks; i++)
        uses[t->nrules + i] = (struct use){t->fallbacks[i].action, RANK_NONE};
    qsort(uses, n, sizeof(*uses), compare_uses);
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < n; i++)
        distinct += i == 0 || strcmp(uses[i - 1].action, uses[i].action) != 0;
    t->buckets = br_arena_alloc(&t->arena, distinct * sizeof(t->buckets[0]));
    return t->buckets ? buckets_build(t, uses, n, from) : -BR_E_NOMEM;
}

/* ---- looking up ---- */

enum br_match_result br_rule_match(const struct br_table *t, const struct br_rule *r,
                                   const struct br_probe_subject *q)
{
    if (!br_pattern_match(&r->pattern, q->s, r->command ? q->name : q->n))
        return BR_MISSED;
    const char *port = r->pattern.port;
    if (port &&
        !(q->port && strlen(port) == q->port_len && memcmp(port, q->port, q->port_len) == 0))
        return BR_MISSED;
    if (r->command &&
        !br_command_match(r->command, r->effect == BR_EFFECT_ALLOW, q->words, q->nwords))
        return BR_MISSED;
    return r->nwhen == 0 || br_rule_applies(t, r, q->context) ? BR_MATCHED : BR_UNMET;
}

static void try_rules(const struct br_table *t, const uint32_t *ranks, uint32_t n,
                      const struct br_probe_subject *q, uint32_t best[TABLE_SOURCES])
{
    for (uint32_t i = 0; i < n; i++) {
        const struct br_rule *r = &t->rules[ranks[i]];
        if (ranks[i] >= best[r->source] && !q->matched)
            continue;
        enum br_match_result m = br_rule_match(t, r, q);
        if (m == BR_MATCHED && ranks[i] < best[r->source])
            best[r->source] = ranks[i];
        if (q->matched)
            q->matched[ranks[i]] = (uint8_t)m;
    }
}

/* The greatest entry that is not above the subject; RANK_NONE if all are. */
static uint32_t floor_entry(const struct br_strindex *x, const struct br_probe_subject *q)
{
    uint64_t key = key_of(q->s, q->n, x->reversed);
    uint32_t lo = 0, hi = x->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct br_strentry *e = &x->entries[mid];
        bool above =
            e->key != key ? e->key > key : compare(e->s, e->len, q->s, q->n, x->reversed) > 0;
        if (above)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo ? lo - 1 : RANK_NONE;
}

/* Entries that the subject is a prefix of stand behind it. */
static void find_longer(const struct br_table *t, const struct br_strindex *x, uint32_t i,
                        const struct br_probe_subject *q, uint32_t best[TABLE_SOURCES])
{
    for (; i < x->n; i++) {
        const struct br_strentry *e = &x->entries[i];
        if (common_length(e->s, e->len, q->s, q->n, x->reversed) < q->n)
            return;
        try_rules(t, x->ranks + e->first, e->count, q, best);
    }
}

static void find_in(const struct br_table *t, const struct br_strindex *x,
                    const struct br_probe_subject *q, uint32_t best[TABLE_SOURCES])
{
    if (x->n == 0)
        return;
    uint32_t i = floor_entry(x, q);
    if (q->open)
        find_longer(t, x, i == RANK_NONE ? 0 : i + 1, q, best);
    if (i == RANK_NONE)
        return;
    const struct br_strentry *e = &x->entries[i];
    size_t common = common_length(e->s, e->len, q->s, q->n, x->reversed);
    for (; i != RANK_NONE; i = e->parent) {
        e = &x->entries[i];
        if (e->len <= common)
            try_rules(t, x->ranks + e->first, e->count, q, best);
    }
}

void br_index_find(const struct br_table *t, const struct br_view *v,
                   const struct br_probe_subject *q, uint32_t best[TABLE_SOURCES])
{
    find_in(t, &v->prefixes, q, best);
    find_in(t, &v->suffixes, q, best);
    try_rules(t, v->scan, v->nscan, q, best);
}
