/*
 * What `bridle bench` asks of core/policy.
 */
#ifndef BR_POLICY_BENCH_H
#define BR_POLICY_BENCH_H

#include "base/base.h"

struct br_table;
/* A table of that kind, to be freed with br_table_free(). */
int br_bench_table(unsigned rules, struct br_table **t, struct br_err *err);

/*
 * Load a table of `rules` rules (1 to BR_RULES_MAX) of all three sources and of every matcher, and
 * decide a fixed mix of commands, paths and hosts for about 50 ms, five times; the median of the
 * processor time in *ns_per_decision. Errors as br_table_load(), and -BR_E_INVALID_ARGUMENTS.
 */
int br_bench_decide(unsigned rules, double *ns_per_decision, struct br_err *err);

#endif
