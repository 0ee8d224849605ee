/*
 * core/bench, private: a bridle-audit as a run has it, fed with the events of a session.
 */
#ifndef BR_BENCH_RECORDER_H
#define BR_BENCH_RECORDER_H

#include <sys/types.h>

#include "wire/wire.h"

/* Events that are on their way at one time: appended, and not shown yet. */
#define BENCH_IN_FLIGHT 64u
/* A strict client takes 10,000 events of a session. */
#define BENCH_EVENTS_MAX 9400u

struct bench_recorder {
    pid_t pid;
    struct br_chan sup;
    int session; /* non-blocking */
    int client;  /* the end at which events are shown; the caller may take it */
    uint64_t made;
    double cpu_us; /* of its processor time, once it is closed */
    char ready[BR_NAME_MAX], text[BR_ERR_TEXT_MAX];
};
/* Start it on a store of its own, made in `dir`, which exists. */
int bench_recorder_open(struct bench_recorder *r, const char *dir, const char *run_id,
                        struct br_err *err);
/* Append n more events of a session that asks its model and calls tools, about 300 bytes each. */
int bench_recorder_append(struct bench_recorder *r, unsigned n, struct br_err *err);
/* Take the answers that have come; never waits. -BR_E_FAILED if one was refused. */
int bench_recorder_answers(struct bench_recorder *r, struct br_err *err);
/* Close the record, take what is still shown at `client` (if that is the recorder's), and reap. */
int bench_recorder_close(struct bench_recorder *r, struct br_err *err);

#endif
