/*
 * core/bench, private: a bridle-gateway whose sessions are fed by recorders (recorder.h): the whole
 * way of an event but for the agent that makes it.
 */
#ifndef BR_BENCH_GATE_H
#define BR_BENCH_GATE_H

#include "bench/recorder.h"
#include "bench/wsclient.h"

struct bench_gate {
    pid_t pid;
    uint16_t port;
    struct br_chan chan;
    bool ready, checked, run;
    uint64_t run_id; /* of GATE_RUN, to be answered */
    unsigned sessions;
    char session[BR_ID_MAX];
    double cpu_us;
};
int bench_gate_open(struct bench_gate *g, struct br_err *err);
/* A session of this client, whose events are those of the recorder; its prompt is under way. The
 * session's end of answers is *session. */
int bench_gate_session(struct bench_gate *g, struct bench_ws *w, struct bench_recorder *r,
                       int *session, struct br_err *err);
/* It is over. */
int bench_gate_end(struct bench_gate *g, struct br_err *err);
void bench_gate_close(struct bench_gate *g);

#endif
