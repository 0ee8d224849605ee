/*
 * core/bench: what `bridle bench` measures. Every figure is a median, and every target is a ratio
 * to something measured beside it in the same run, or a bound that the design promises.
 */
#ifndef BR_BENCH_H
#define BR_BENCH_H

#include <sys/types.h>

#include "base/base.h"

#define BENCH_SAMPLES_MAX 2000u

struct samples {
    double v[BENCH_SAMPLES_MAX]; /* microseconds */
    unsigned n;
};
void samples_add(struct samples *s, uint64_t from_us, uint64_t to_us);
double samples_median(struct samples *s);
double samples_p99(struct samples *s);

/* main.c: the directory of this measurement; it and all that is in it are removed at the end. */
const char *bench_scratch(void);

/* rows.c: the table. One line of it. `limit` is the target for value (or for value / reference). */
void bench_row(const char *name, double value, const char *unit, const char *reference,
               double reference_value, double limit, bool more_is_better);
void bench_note(const char *fmt, ...) BR_PRINTF(1, 2);
/* Choose JSON instead of text; before the first row. */
void bench_begin(bool json);
/* 0 if every row met its target. */
int bench_end(void);

/* The directory of the programs. */
const char *bench_bin_path(void);

/* spawn.c: start a program of ours with one end of a channel as its descriptor 3. *end is the other
 * and the caller's, -1 if there is none; `quiet`: what it logs is thrown away. 0, or -BR_E_IO. */
int bench_role_start(const char *name, bool quiet, pid_t *pid, int *end, struct br_err *err);

/* launch.c: a launcher of our own, many sandboxes one after another. */
struct bench_launcher;
/* The bridle-launch in `dir` (and the bridle-init beside it), with so many prepared sandboxes. */
int bench_launcher_open(struct bench_launcher **out, const char *dir, const char *workspace,
                        unsigned pool, struct br_err *err);
void bench_launcher_close(struct bench_launcher **l);
/* Wait until it says that it is set up. */
int bench_launcher_ready(struct bench_launcher *l, struct br_err *err);
/* From the plan to the verified end of a sandbox whose pid 1 ends as soon as it may; *exit_us is
 * when it had ended. */
int bench_launch(struct bench_launcher *l, uint64_t *exit_us, struct br_err *err);
/* The same with bridle-init as pid 1, which runs /bin/true for us. */
int bench_launch_call(struct bench_launcher *l, uint64_t *exit_us, struct br_err *err);
/* Start one sandbox; call /bin/true in it; end it. */
int bench_sandbox_start(struct bench_launcher *l, struct br_err *err);
int bench_sandbox_true(struct bench_launcher *l, struct br_err *err);
int bench_sandbox_end(struct bench_launcher *l, uint64_t *exit_us, struct br_err *err);

/* lanes.c: the rows of launches. `program`: a static true; `true_programs`: a directory in which it
 * is the bridle-init. */
int bench_launches(const char *program, int program_fd, const char *programs,
                   const char *true_programs, const char *workspace, struct br_err *err);

/* spawn.c: the references. Each runs `argv` once and waits; 0 or -code. */
int bench_spawn(char *const *argv, struct br_err *err);

/* shell.c: medians of what bridle-script is asked, the hop to it included. */
struct bench_questions {
    double line_us, check_us;             /* one after another */
    double line_alone_us, check_alone_us; /* each after a pause */
};
int bench_questions(struct bench_questions *q, struct br_err *err);

/* provider.c: the rows of the provider's path. */
int bench_provider(struct br_err *err);

/* durable.c: the rows of durable events. */
int bench_durable(struct br_err *err);
/* service.c: those of the whole service. */
int bench_service(struct br_err *err);
/* Sessions for so long, and what they leave in memory. */
int bench_soak(unsigned seconds, struct br_err *err);

/* pi.c: the row of a harness. */
int bench_pi(struct br_err *err);

/* memory.c: add the proportional set sizes of the programs of Bridle below `root`, itself included;
 * of one process, whatever it is. */
void bench_memory(pid_t root, double *bytes, unsigned *programs);
void bench_memory_of(pid_t pid, double *bytes, unsigned *programs);
/* memory.c: resident memory (proportional share) of all programs of one idle session, bytes. */
int bench_session_memory(double *bytes, unsigned *programs, struct br_err *err);

#endif
