/*
 * core/sandbox, for tests only: what a row of the filter's table says about given arguments, read
 * from the table and not from the program, and the arguments at which it changes its mind.
 */
#ifndef BR_SANDBOX_FILTER_WANT_H
#define BR_SANDBOX_FILTER_WANT_H

#include "sandbox/filter.h"

#define BR_FILTER_EDGES_MAX 320u

static inline bool br_filter_passes(const struct br_filter_test *t, const uint64_t a[6])
{
    uint32_t v = (uint32_t)a[t->arg] & t->mask;
    for (unsigned i = 0; i < t->n; i++)
        if (v >= t->in[i].first && v <= t->in[i].last)
            return !t->not ;
    return t->not ;
}

/* 0: allowed; else the errno. */
static inline int br_filter_want(const struct br_filter_row *row, const uint64_t a[6])
{
    bool passed = false;
    if (!row->allow)
        return row->error;
    for (unsigned i = 0; i < row->ntests; i++) {
        passed = passed || br_filter_passes(&row->tests[i], a);
        if (row->tests[i].or_next)
            continue;
        if (!passed)
            return row->tests[i].error;
        passed = false;
    }
    return 0;
}

static inline unsigned br_filter_add_edge(uint32_t *v, unsigned n, uint32_t edge)
{
    for (unsigned i = 0; i < n; i++)
        if (v[i] == edge)
            return n;
    if (n == BR_FILTER_EDGES_MAX)
        __builtin_trap(); /* the probe has no library */
    v[n] = edge;
    return n + 1;
}

/* Values of one argument on both sides of every edge; 0 of them: no test looks at it. With `all`
 * also those bits that a mask leaves out. */
static inline unsigned br_filter_edges(const struct br_filter_row *row, unsigned arg, bool all,
                                       uint32_t *v)
{
    unsigned n = 0;
    for (unsigned k = 0; k < row->ntests; k++) {
        const struct br_filter_test *t = &row->tests[k];
        if (t->arg != arg)
            continue;
        for (unsigned i = 0; i < t->n; i++) {
            n = br_filter_add_edge(v, n, (t->in[i].first - 1) & t->mask);
            n = br_filter_add_edge(v, n, t->in[i].first);
            n = br_filter_add_edge(v, n, t->in[i].last);
            n = br_filter_add_edge(v, n, (t->in[i].last + 1) & t->mask);
        }
        for (unsigned bit = 0; t->mask != UINT32_MAX && bit < 32; bit++)
            if (all || t->mask & 1u << bit)
                n = br_filter_add_edge(v, n, 1u << bit);
        if (t->mask != UINT32_MAX && all)
            n = br_filter_add_edge(v, n, ~t->mask);
    }
    return n;
}

#endif
