/*
 * core/bench, private: the server behind the measurements of the provider's path.
 */
#ifndef BR_BENCH_UPSTREAM_H
#define BR_BENCH_UPSTREAM_H

#include <sys/types.h>

#include "base/base.h"

/* Of one "mode=bulk" answer, chunk headers included. */
#define BENCH_BULK_BYTES (256ull << 20)
/* A "mode=paced" answer: its first event at once, then so many, one every BENCH_PACE_US, the last
 * with the end of the answer. */
#define BENCH_PACE_US 20000u
#define BENCH_PACED_EVENTS 100u

struct bench_upstream {
    pid_t pid;
    uint16_t port; /* on 127.0.0.1 */
};
/* A process of its own, which ends with its parent; kill and reap it. */
int bench_upstream_start(struct bench_upstream *u, struct br_err *err);

#endif
