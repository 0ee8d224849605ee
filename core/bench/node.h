/*
 * core/bench, private: the Node server (node/server.mjs) that the rows of the service stand beside.
 */
#ifndef BR_BENCH_NODE_H
#define BR_BENCH_NODE_H

#include <sys/types.h>

#include "base/base.h"

struct bench_node {
    pid_t pid;
    uint16_t port;
    int in; /* it ends with this */
};
/* Is it there, or can it be fetched and built? Says why not, once. */
bool bench_node_there(void);
/* `mode`: tick, each, idle. */
int bench_node_start(struct bench_node *n, const char *mode, struct br_err *err);
void bench_node_end(struct bench_node *n);

#endif
