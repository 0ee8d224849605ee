/*
 * core/bench, private: bridle-broker and bridle-egress as a run has them, with a guest's socket.
 */
#ifndef BR_BENCH_BRIDLE_WAY_H
#define BR_BENCH_BRIDLE_WAY_H

#include "bench/asker.h"

struct bench_bridle;
/* Start both before a server on this port of loopback; *w is the way to them. */
int bench_bridle_open(struct bench_bridle **b, uint16_t port, struct bench_way *w,
                      struct br_err *err);
void bench_bridle_close(struct bench_bridle **b);

#endif
