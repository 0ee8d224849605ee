/*
 * Spawn to exit of a static `true`: posix_spawn, the baseline (bare.c), bubblewrap, and
 * bridle-launch (LAUNCH_PLAN sent to LAUNCH_STOPPED received, with `true` in the place of
 * bridle-init; the channel is closed as soon as LAUNCH_STARTED is there). Prints medians.
 *
 * bench_launch [ROUNDS] [IDLE_MS]   without IDLE_MS back to back, lane after lane; with it by
 * turns, with that pause before each, as in an idle daemon
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/bare.h"
#include "wire/types.h"
#include "wire/wire.h"

#define ROUNDS_MAX 10000u

static char bench_dir[PATH_MAX / 2];
static char true_path[PATH_MAX];
static int true_fd;
static struct br_chan launch;
static char workspace[] = "/tmp/bridle-bench-XXXXXX";
static unsigned stopped, refused;
static struct br_err last_error;

static bool started;

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    started = true;
    return 0;
}

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static int on_stopped(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)ctx, (void)err;
    if (br_rd_u8(&m->rd) != 1)
        return br_err_set(err, BR_E_FAILED, "the sandbox's removal was not verified");
    stopped++;
    return 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)ctx;
    size_t n;
    (void)br_rd_u32(&m->rd);
    const char *text = br_rd_lstr(&m->rd, BR_ERR_TEXT_MAX, &n);
    refused++;
    return br_err_set(err, BR_E_FAILED, "%.*s", (int)n, text ? text : "");
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_LAUNCH_STARTED, BR_PERMIT, 0, BR_MSG_MAX, 1, 2, on_started},
    {BR_MSG_LAUNCH_STOPPED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_stopped},
    {BR_MSG_LAUNCH_REFUSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_refused},
};

static pid_t start_launcher(void)
{
    char path[PATH_MAX];
    int pair[2];
    snprintf(path, sizeof(path), "%s/bridle-launch", bench_dir);
    if (br_chan_pair(pair) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char *const argv[] = {path, NULL}, *const envp[] = {NULL};
        if (dup2(pair[1], 3) < 0)
            _exit(70);
        if (pair[1] == 3)
            (void)fcntl(3, F_SETFD, 0);
        execve(path, argv, envp);
        _exit(70);
    }
    close(pair[1]);
    br_chan_init(&launch, pair[0], "launch", rules, BR_ARRAY_LEN(rules), NULL);
    return pid;
}

static int run_launch(void)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_plan plan = {.limits = br_limits_default};
    int pair[2];
    unsigned before = stopped;
    BR_CLEANUP_FD int ws = open(workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (br_chan_pair(pair) < 0)
        return -1;
    br_id_make(plan.run_id, "run");
    br_plan_put(&o.buf, &plan);
    br_out_fd(&o, ws, false);
    br_out_fd(&o, pair[1], true);
    int r = br_chan_send(&launch, BR_MSG_LAUNCH_PLAN, 1, &o, &last_error);
    br_out_free(&o); /* the sandbox's end of the channel is the sandbox's alone */
    started = false;
    while (r == 0 && !started)
        r = br_chan_dispatch(&launch, &last_error);
    close(pair[0]);
    while (r == 0 && stopped == before)
        r = br_chan_dispatch(&launch, &last_error);
    return r;
}

static int run_spawn(char *const *argv)
{
    extern char **environ;
    pid_t pid;
    int status;
    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) != 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        ;
    return status;
}

static int run_true(void)
{
    char *const argv[] = {true_path, NULL};
    return run_spawn(argv);
}

static int run_bare(void)
{
    char *const argv[] = {true_path, NULL};
    return bench_bare(true_fd, argv);
}

static int run_bwrap(void)
{
    static char *const argv[] = {(char *)(uintptr_t) "/usr/bin/bwrap",
                                 (char *)(uintptr_t) "--unshare-all",
                                 (char *)(uintptr_t) "--new-session",
                                 (char *)(uintptr_t) "--die-with-parent",
                                 (char *)(uintptr_t) "--ro-bind",
                                 (char *)(uintptr_t) "/usr",
                                 (char *)(uintptr_t) "/usr",
                                 (char *)(uintptr_t) "--symlink",
                                 (char *)(uintptr_t) "usr/bin",
                                 (char *)(uintptr_t) "/bin",
                                 (char *)(uintptr_t) "--symlink",
                                 (char *)(uintptr_t) "usr/lib",
                                 (char *)(uintptr_t) "/lib",
                                 (char *)(uintptr_t) "--symlink",
                                 (char *)(uintptr_t) "usr/lib64",
                                 (char *)(uintptr_t) "/lib64",
                                 (char *)(uintptr_t) "--proc",
                                 (char *)(uintptr_t) "/proc",
                                 (char *)(uintptr_t) "--dev",
                                 (char *)(uintptr_t) "/dev",
                                 (char *)(uintptr_t) "--tmpfs",
                                 (char *)(uintptr_t) "/tmp",
                                 (char *)(uintptr_t) "--ro-bind",
                                 true_path,
                                 (char *)(uintptr_t) "/tmp/bench-true",
                                 (char *)(uintptr_t) "/tmp/bench-true",
                                 NULL};
    return run_spawn(argv);
}

static const struct lane {
    const char *name;
    int (*run)(void);
} lanes[] = {
    {"posix_spawn of a static true", run_true},
    {"bare namespace sandbox (bare.c)", run_bare},
    {"bridle-launch, all of it, with limits", run_launch},
    {"bubblewrap, no limits", run_bwrap},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void pause_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    if (ms)
        (void)nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
    static double times[BR_ARRAY_LEN(lanes)][ROUNDS_MAX];
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 200;
    unsigned idle = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    ssize_t n = readlink("/proc/self/exe", bench_dir, sizeof(bench_dir) - 1);
    bench_dir[n > 0 ? n : 0] = 0;
    *strrchr(bench_dir, '/') = 0;
    snprintf(true_path, sizeof(true_path), "%s/bridle-init", bench_dir);
    true_fd = open(true_path, O_PATH | O_CLOEXEC);
    if (true_fd < 0 || !mkdtemp(workspace))
        return 1;
    if (geteuid() == 0 && chown(workspace, 1000, 1000) < 0)
        return 1;
    pid_t pid = start_launcher();
    /* back to back: each lane alone; idle: by turns, after a pause */
    for (unsigned step = 0; step < (rounds + 5) * BR_ARRAY_LEN(lanes); step++) {
        unsigned k = idle ? step % BR_ARRAY_LEN(lanes) : step / (rounds + 5);
        unsigned i = idle ? step / BR_ARRAY_LEN(lanes) : step % (rounds + 5);
        pause_ms(idle);
        uint64_t t0 = br_now_us();
        int r = lanes[k].run();
        uint64_t t1 = br_now_us();
        if (r != 0) {
            fprintf(stderr, "%s failed: %d %s\n", lanes[k].name, r, last_error.text);
            rmdir(workspace);
            return 1;
        }
        if (i >= 5)
            times[k][i - 5] = (double)(t1 - t0) / 1000.0;
    }
    br_chan_close(&launch);
    (void)waitpid(pid, NULL, 0);
    rmdir(workspace);
    for (unsigned k = 0; k < BR_ARRAY_LEN(lanes); k++)
        qsort(times[k], rounds, sizeof(double), by_value);
    printf("%-40s %8s %8s %8s\n", "spawn to exit, ms", "median", "p90", "x bare");
    for (unsigned k = 0; k < BR_ARRAY_LEN(lanes); k++)
        printf("%-40s %8.3f %8.3f %8.2f\n", lanes[k].name, times[k][rounds / 2],
               times[k][rounds * 9 / 10], times[k][rounds / 2] / times[1][rounds / 2]);
    return 0;
}
