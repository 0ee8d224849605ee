/*
 * The baseline sandbox of the benches; see bare.c.
 */
#ifndef BR_BENCH_BARE_H
#define BR_BENCH_BARE_H

#include "base/base.h"

/* Once, before limits are used. False: this host has no place for them that bare.c knows. */
bool bench_bare_limits(void);
enum bare_limits {
    BARE_FREE,   /* none */
    BARE_LIMITS, /* the child is put into its cgroups, as one writes it */
    BARE_ITSELF, /* it joins them, which stops nobody else */
};
/* Run `program` (an O_PATH descriptor of a static executable) with argv in a bare namespace
 * sandbox and wait for it. The status as from waitpid(2), or -1 and errno; *exit_us is when the
 * program had ended, which with limits is before its cgroups are removed. */
int bench_bare(int program, char *const *argv, enum bare_limits limits, uint64_t *exit_us);

#endif
