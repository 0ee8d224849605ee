/*
 * What one launch costs, in every way that a user meets it, beside a bare sandbox, bubblewrap and
 * posix_spawn. A sample is from the request until the program has ended, as its starter sees it; a
 * second one until everything of it is removed (and, by bridle-launch, verified).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/bench.h"

#define ROUNDS 200u
#define IDLE_ROUNDS 300u
#define BUSY_ROUNDS 500u
#define IDLE_PAUSE_US 50000u
/* In this time the launcher has prepared the next ones, and namespaces that are over are removed.
 */
#define TURN_PAUSE_US 10000u
/* In this one the kernel has removed what the block before has left. */
#define BLOCK_PAUSE_US 500000u
#define POOL 3u
/* How long bare sandboxes are made on all processors. */
#define FLOOR_US 1000000u

enum lane {
    LANE_POOL,  /* bridle-launch with prepared sandboxes; true in the place of bridle-init */
    LANE_COLD,  /* the same, no sandbox is prepared */
    LANE_FIRST, /* the first sandbox of a launcher, for which nothing at all is */
    LANE_BARE,  /* the bare sandbox with limits */
    LANE_PLAIN, /* without */
    LANE_CALL,  /* bridle-launch, bridle-init, and one command in it */
    LANE_SPAWN,
    LANE_BWRAP,
    LANES,
};
static const char *const names[LANES] = {"prepared",
                                         "cold",
                                         "cold, the very first",
                                         "bare",
                                         "bare without limits",
                                         "prepared, and a call",
                                         "posix_spawn",
                                         "bubblewrap"};

struct lanes {
    struct bench_launcher *launcher[LANES];
    const char *program, *workspace;
    const char *true_programs; /* a directory in which it is the bridle-init */
    int program_fd;
    bool limits, bwrap;
};
struct times {
    struct samples end, all;
    uint64_t cpu_us; /* that the whole machine was busy, the kernel's removal included */
    uint64_t wall_us;
};

static int run_bwrap(const char *program, struct br_err *err)
{
    const char *const argv[] = {
        "/usr/bin/bwrap",
        "--unshare-all",
        "--new-session",
        "--die-with-parent",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/bin",
        "/bin",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--ro-bind",
        program,
        "/tmp/bench-true",
        "/tmp/bench-true",
        NULL,
    };
    return bench_spawn((char *const *)argv, err);
}

static int run_bare(const struct lanes *l, enum bare_limits limits, uint64_t *end,
                    struct br_err *err)
{
    char *const argv[] = {(char *)(uintptr_t)l->program, NULL};
    return bench_bare(l->program_fd, argv, limits, end) == 0
               ? 0
               : br_err_set(err, BR_E_FAILED, "the bare sandbox failed");
}

/* What its own start takes is not part of the sample. */
static int run_first(const struct lanes *l, uint64_t *from, uint64_t *end, uint64_t *all,
                     struct br_err *err)
{
    struct bench_launcher *one = NULL;
    int r = bench_launcher_open(&one, l->true_programs, l->workspace, 0, err);
    if (r == 0)
        r = bench_launcher_ready(one, err);
    usleep(TURN_PAUSE_US);
    *from = br_now_us();
    if (r == 0)
        r = bench_launch(one, end, err);
    *all = br_now_us();
    bench_launcher_close(&one);
    return r;
}

static int run_once(const struct lanes *l, enum lane lane, struct times *t, struct br_err *err)
{
    char *const argv[] = {(char *)(uintptr_t)l->program, NULL};
    uint64_t from = br_now_us(), end = 0, all = 0;
    int r = 0;
    switch (lane) {
    case LANE_POOL:
    case LANE_COLD:
        r = bench_launch(l->launcher[lane], &end, err);
        break;
    case LANE_FIRST:
        r = run_first(l, &from, &end, &all, err);
        break;
    case LANE_CALL:
        r = bench_launch_call(l->launcher[lane], &end, err);
        break;
    case LANE_BARE:
    case LANE_PLAIN:
        r = run_bare(l, lane == LANE_BARE && l->limits ? BARE_LIMITS : BARE_FREE, &end, err);
        break;
    case LANE_SPAWN:
        r = bench_spawn(argv, err);
        break;
    default:
        r = run_bwrap(l->program, err);
    }
    all = all ? all : br_now_us();
    samples_add(&t->end, from, end ? end : all);
    samples_add(&t->all, from, all);
    return r;
}

/* CPU time of everybody, on all processors, since the machine started; a hundredth of a second is
 * the smallest unit. */
static uint64_t busy_us(void)
{
    unsigned long long user, nice, sys, idle, iowait, irq, softirq;
    BR_CLEANUP_FILE FILE *f = fopen("/proc/stat", "re");
    if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &sys, &idle,
                     &iowait, &irq, &softirq) != 7)
        return 0;
    return (user + nice + sys + irq + softirq) * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* Lanes take turns, `block` launches each, so that what else the machine does hits all alike. */
static int measure(const struct lanes *l, unsigned rounds, unsigned block, unsigned pause_us,
                   struct times t[LANES], struct br_err *err)
{
    for (unsigned done = 0; done < rounds; done += block)
        for (enum lane lane = 0; lane < LANES; lane++) {
            if (lane == LANE_BWRAP && !l->bwrap)
                continue;
            /* the one before it shall not be the reason for what this one costs */
            usleep(block > 1 ? BLOCK_PAUSE_US : TURN_PAUSE_US);
            uint64_t busy = busy_us(), from = br_now_us();
            for (unsigned i = 0; i < block; i++) {
                if (pause_us)
                    usleep(pause_us);
                int r = run_once(l, lane, &t[lane], err);
                if (r < 0)
                    return r;
            }
            t[lane].wall_us += br_now_us() - from;
            if (block > 1)
                usleep(BLOCK_PAUSE_US); /* the kernel's removal is still to come */
            t[lane].cpu_us += busy_us() - busy;
        }
    return 0;
}

static void note(const char *how, struct times t[LANES])
{
    double bare = samples_median(&t[LANE_BARE].end), plain = samples_median(&t[LANE_PLAIN].end);
    bench_note("  %s (until the end of true, 99th percentile, until all is removed):", how);
    for (enum lane i = 0; i < LANES; i++)
        if (t[i].end.n)
            bench_note("    %-20s %5.0f us %6.0f us %6.0f us   %.2fx bare, %.2fx without limits",
                       names[i], samples_median(&t[i].end), samples_p99(&t[i].end),
                       samples_median(&t[i].all), samples_median(&t[i].end) / bare,
                       samples_median(&t[i].end) / plain);
}

/* Back to back nothing waits: how long a launch takes there cannot be less than what it, its
 * preparation and its removal keep the processors busy, divided by their number. */
static void note_cpu(struct times t[LANES])
{
    bench_note("  back to back, one launch takes, and of the CPU time of %ld processors:",
               sysconf(_SC_NPROCESSORS_ONLN));
    for (enum lane i = 0; i < LANES; i++)
        if (t[i].end.n)
            bench_note("    %-20s %5.0f us %6.0f us", names[i], (double)t[i].wall_us / t[i].end.n,
                       (double)t[i].cpu_us / t[i].end.n);
}

/* ---- what the processors can do ---- */

/* One of several at once: until `until`, bare sandboxes as fast as they go. How many and their 99th
 * percentile go to the pipe. */
static _Noreturn void bare_loop(const struct lanes *l, uint64_t until, int out)
{
    static struct samples s;
    double told[3];
    while (br_now_us() < until && s.n < BENCH_SAMPLES_MAX) {
        struct br_err err;
        uint64_t from = br_now_us(), end;
        if (run_bare(l, BARE_ITSELF, &end, &err) < 0)
            _exit(1);
        samples_add(&s, from, end);
    }
    told[0] = s.n;
    told[1] = samples_median(&s);
    told[2] = samples_p99(&s);
    _exit(write(out, told, sizeof(told)) == (ssize_t)sizeof(told) ? 0 : 1);
}

/*
 * Back to back, a launch cannot take less than all processors need to make and remove one sandbox.
 * How much that is at the least is seen where each of them does nothing but make bare sandboxes,
 * which have fewer mounts, a shorter filter, no loopback and no receipt, in the cheapest way.
 */
static int note_floor(const struct lanes *l, double bare_us, struct br_err *err)
{
    enum { MANY = 64 };
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t pids[MANY];
    int fds[2];
    double sum = 0, median = 0, p99 = 0, told[3];
    if (!l->limits || n < 1 || n > MANY)
        return 0;
    if (pipe(fds) < 0)
        return br_err_errno(err, BR_E_IO, "no pipe for the bare sandboxes");
    usleep(IDLE_PAUSE_US);
    uint64_t until = br_now_us() + FLOOR_US;
    for (long i = 0; i < n; i++)
        if ((pids[i] = fork()) == 0)
            bare_loop(l, until, fds[1]);
    close(fds[1]);
    while (read(fds[0], told, sizeof(told)) == (ssize_t)sizeof(told)) {
        sum += told[0];
        median += told[1] / (double)n;
        p99 += told[2] / (double)n;
    }
    close(fds[0]);
    for (long i = 0; i < n; i++)
        if (pids[i] > 0)
            (void)waitpid(pids[i], NULL, 0);
    double each = FLOOR_US / sum;
    bench_note(
        "  %ld loops of bare sandboxes at once, which join their cgroups by themselves: %.0f us "
        "of the machine for each, %.2fx bare; 99th percentile %.1fx its median",
        n, each, each / bare_us, p99 / median);
    return 0;
}

/* ---- rows ---- */

static void against(const char *what, struct times t[LANES], enum lane lane, enum lane reference,
                    double limit)
{
    if (t[reference].end.n)
        bench_row(what, samples_median(&t[lane].end), "us", names[reference],
                  samples_median(&t[reference].end), limit, false);
}

static void spread(const char *what, struct times *t)
{
    bench_row(what, samples_p99(&t->end), "us", "its median", samples_median(&t->end), 3, false);
}

static int measure_all(const struct lanes *l, struct br_err *err)
{
    static struct times turns[LANES], idle[LANES], alone[LANES], warm[LANES];
    int r = measure(l, 5, 1, 0, warm, err);
    if (r == 0)
        r = measure(l, ROUNDS, 1, 0, turns, err);
    if (r == 0)
        r = measure(l, IDLE_ROUNDS, 1, IDLE_PAUSE_US, idle, err);
    if (r == 0)
        r = measure(l, BUSY_ROUNDS, BUSY_ROUNDS, 0, alone, err);
    if (r < 0)
        return r;
    against("cold launch", turns, LANE_COLD, LANE_BARE, 1.3);
    against("cold launch", turns, LANE_COLD, LANE_BWRAP, 0.5);
    spread("  99th percentile", &turns[LANE_COLD]);
    against("prepared launch, back to back", alone, LANE_POOL, LANE_BARE, 0.6);
    spread("  99th percentile", &alone[LANE_POOL]);
    against("prepared launch, idle machine", idle, LANE_POOL, LANE_BARE, 0.6);
    spread("  99th percentile", &idle[LANE_POOL]);
    note("by turns", turns);
    note("idle machine", idle);
    note("back to back", alone);
    note_cpu(alone);
    return note_floor(l, samples_median(&alone[LANE_BARE].end), err);
}

int bench_launches(const char *program, int program_fd, const char *programs,
                   const char *true_programs, const char *workspace, struct br_err *err)
{
    struct lanes l = {.program = program,
                      .workspace = workspace,
                      .true_programs = true_programs,
                      .program_fd = program_fd,
                      .limits = bench_bare_limits(),
                      .bwrap = access("/usr/bin/bwrap", X_OK) == 0};
    int r = bench_launcher_open(&l.launcher[LANE_POOL], true_programs, workspace, POOL, err);
    if (r == 0)
        r = bench_launcher_open(&l.launcher[LANE_COLD], true_programs, workspace, 0, err);
    if (r == 0)
        r = bench_launcher_open(&l.launcher[LANE_CALL], programs, workspace, POOL, err);
    if (r == 0)
        r = measure_all(&l, err);
    for (enum lane i = 0; i < LANES; i++)
        bench_launcher_close(&l.launcher[i]);
    return r;
}
