/*
 * core/bench, private: a client of the provider's path, over loopback or a Unix socket.
 */
#ifndef BR_BENCH_ASKER_H
#define BR_BENCH_ASKER_H

#include "base/base.h"

/* Where requests go: a path of a Unix socket, or a port of 127.0.0.1. */
struct bench_way {
    const char *name;
    char path[108]; /* "": TCP */
    uint16_t port;
    char token[65];
};

struct bench_asker {
    int fd;
    char request[2048];
    size_t request_len;
    char tail[8];    /* the last bytes that came */
    uint64_t length; /* of the answer with its head; 0: chunked */
    uint64_t started_us, first_us, ended_us, bytes;
};

/* Connect. `mode`: see upstream.c; `stream`: what the request says. */
int bench_asker_open(struct bench_asker *a, const struct bench_way *w, const char *mode,
                     bool stream, struct br_err *err);
/* Send the request on the kept connection. */
int bench_asker_ask(struct bench_asker *a, struct br_err *err);
/* Read once; 1 if the answer is over, 0 if not, or a negative code. */
int bench_asker_read(struct bench_asker *a, struct br_err *err);
/* Ask and read to the end. */
int bench_asker_exchange(struct bench_asker *a, struct br_err *err);
void bench_asker_close(struct bench_asker *a);

#endif
