/*
 * What `bridle bench` asks of core/script.
 */
#ifndef BR_SCRIPT_BENCH_H
#define BR_SCRIPT_BENCH_H

#include "base/base.h"

/*
 * Compile a policy of `rules` rules (1 to 9,990, besides those of the profile) that are written by
 * a loop, with the default profile, and load the table, five times; the median of the processor
 * time in *ms. Errors as br_compile() and br_table_load(), and -BR_E_INVALID_ARGUMENTS.
 */
int br_bench_compile(unsigned rules, double *ms, struct br_err *err);

#endif
