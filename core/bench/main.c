/*
 * bridle-bench: measures what the design promises, beside its references, in one run, and prints
 * the table. Exit status 1 if a target is missed. Started by `bridle bench`.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/bench.h"
#include "bench/bench.h"
#include "policy/bench.h"
#include "script/bench.h"

#define CALLS 400u
#define WORKSPACE_UID 1000u
#define PREFIX "bridle-bench-"

static char bin_path[BR_PATH_MAX];
/* A static `true`, and the launcher that has it in the place of bridle-init. */
static char bench_dir[BR_PATH_MAX + 16], static_true[BR_PATH_MAX + 32];
static int static_true_fd = -1;
static char scratch[96], workspace[128];

const char *bench_bin_path(void)
{
    return bin_path;
}

const char *bench_scratch(void)
{
    return scratch;
}

static int call_rows(struct bench_launcher *l, struct br_err *err)
{
    uint64_t ignored;
    static struct samples call, spawn;
    char *const argv[] = {(char *)"/bin/true", NULL};
    int r = bench_sandbox_start(l, err);
    for (unsigned i = 0; r == 0 && i < CALLS; i++) {
        uint64_t a = br_now_us();
        r = bench_sandbox_true(l, err);
        uint64_t b = br_now_us();
        if (r == 0)
            r = bench_spawn(argv, err);
        samples_add(&call, a, b);
        samples_add(&spawn, b, br_now_us());
    }
    if (r == 0)
        r = bench_sandbox_end(l, &ignored, err);
    if (r == 0)
        bench_row("tool call in a running sandbox", samples_median(&call), "us", "posix_spawn",
                  samples_median(&spawn), 2.0, false);
    return r;
}

static int rest_rows(struct br_err *err)
{
    double ns, ms, mb, bytes;
    unsigned programs;
    int r = br_bench_decide(200, &ns, err);
    if (r < 0)
        return r;
    bench_row("decision, 200 rules", ns, "ns", NULL, 0, 500, false);
    r = br_bench_decide(10000, &ns, err);
    if (r < 0)
        return r;
    bench_row("decision, 10000 rules", ns, "ns", NULL, 0, 1000, false);
    r = br_bench_compile(9990, &ms, err);
    if (r < 0)
        return r;
    bench_row("compile, 10000 rules", ms, "ms", NULL, 0, 200, false);
    struct bench_questions q;
    r = bench_questions(&q, err);
    if (r < 0)
        return r;
    bench_row("shell line, parsed and decided", q.line_us, "us", NULL, 0, 60, false);
    bench_row("decision with a predicate", q.check_us, "us", NULL, 0, 30, false);
    bench_note("  each after a pause of 2 ms: %.0f us, and %.0f us with a predicate",
               q.line_alone_us, q.check_alone_us);
    r = br_bench_redact(&mb);
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "the redactor could not be measured");
    bench_row("redaction", mb, "MB/s", NULL, 0, 100, true);
    if (geteuid() != 0) { /* the programs are not dumpable: nobody else may read their maps */
        bench_note("  idle memory of one session: measured as root only");
        return 0;
    }
    r = bench_session_memory(&bytes, &programs, err);
    if (r < 0)
        return r;
    bench_row("idle memory of one session", bytes / 1e6, "MB", NULL, 0, 25, false);
    bench_note("  proportional set size of %u programs", programs);
    return 0;
}

static int prepare(struct br_err *err)
{
    ssize_t n = readlink("/proc/self/exe", bin_path, sizeof(bin_path) - 1);
    char *slash = n > 0 ? strrchr(bin_path, '/') : NULL;
    if (!slash)
        return br_err_errno(err, BR_E_IO, "the directory of the programs was not found");
    *slash = 0;
    snprintf(bench_dir, sizeof(bench_dir), "%s/../bench", bin_path);
    snprintf(static_true, sizeof(static_true), "%s/bridle-init", bench_dir);
    static_true_fd = open(static_true, O_PATH | O_CLOEXEC);
    if (static_true_fd < 0)
        return br_err_errno(err, BR_E_NOT_FOUND,
                            "'%s' is missing: measure in a directory that was built", static_true);
    br_scratch_sweep("/tmp", PREFIX);
    if (br_scratch_make(scratch, sizeof(scratch), "/tmp", PREFIX) < 0)
        return br_err_errno(err, BR_E_IO, "no directory could be made in '/tmp'");
    snprintf(workspace, sizeof(workspace), "%s/workspace", scratch);
    if (chmod(scratch, 0755) < 0 || mkdir(workspace, 0700) < 0 ||
        (geteuid() == 0 && chown(workspace, WORKSPACE_UID, WORKSPACE_UID) < 0))
        return br_err_errno(err, BR_E_IO, "'%s' could not be made", workspace);
    return 0;
}

/* The whole table, or a part of it. */
enum part { PART_ALL, PART_LAUNCHES, PART_PROVIDER, PART_SERVICE, PART_DURABLE, PART_SOAK };

static unsigned soak_seconds;

static int service_rows(struct br_err *err)
{
    int r = bench_durable(err);
    return r < 0 ? r : bench_service(err);
}

static int measure_all(enum part part, struct br_err *err)
{
    struct bench_launcher *l = NULL;
    int r = 0;
    if (part == PART_SERVICE)
        return bench_service(err);
    if (part == PART_SOAK)
        return bench_soak(soak_seconds, err);
    if (part == PART_DURABLE)
        return bench_durable(err);
    if (part != PART_PROVIDER)
        r = bench_launches(static_true, static_true_fd, bin_path, bench_dir, workspace, err);
    if (r == 0 && part != PART_LAUNCHES)
        r = bench_provider(err);
    if (r == 0 && part != PART_LAUNCHES)
        r = bench_pi(err);
    if (r < 0 || part != PART_ALL)
        return r;
    r = bench_launcher_open(&l, bin_path, workspace, 1, err);
    if (r == 0)
        r = call_rows(l, err);
    bench_launcher_close(&l);
    if (r == 0)
        r = rest_rows(err);
    return r < 0 ? r : service_rows(err);
}

static int measure(bool json, enum part part)
{
    struct br_err err = {.code = BR_OK};
    bench_begin(json);
    int r = measure_all(part, &err);
    if (r == 0)
        return bench_end();
    br_log(BR_LOG_ERROR, "%s", err.text);
    return br_code_exit(r);
}

/*
 * Measures in a child, and removes what it made, however it ended: its own end, a signal to it, or
 * one to this process, which is passed on.
 */
static int supervise(bool json, enum part part)
{
    sigset_t set, old;
    int status = 0, sig = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, &old, NULL);
        int code = measure(json, part);
        (void)fflush(NULL);
        _exit(code);
    }
    while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0) {
        int got = sigwaitinfo(&set, NULL);
        if (got > 0 && got != SIGCHLD) {
            sig = got;
            (void)kill(pid, SIGTERM);
        }
    }
    /* what the child had started ends by itself, and may still write a little */
    for (int i = 0; br_scratch_remove(scratch) < 0 && errno != ENOENT && i < 50; i++)
        usleep(100000);
    if (pid < 0)
        return 1;
    if (WIFSIGNALED(status) || sig)
        return 128 + (sig ? sig : WTERMSIG(status));
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-bench", BR_LOG_WARN);
    bool json = argc >= 2 && strcmp(argv[1], "--json") == 0;
    enum part part = PART_ALL;
    if (argc == 2 + json && strcmp(argv[1 + json], "launches") == 0)
        part = PART_LAUNCHES;
    else if (argc == 2 + json && strcmp(argv[1 + json], "provider") == 0)
        part = PART_PROVIDER;
    else if (argc == 2 + json && strcmp(argv[1 + json], "service") == 0)
        part = PART_SERVICE;
    else if (argc == 2 + json && strcmp(argv[1 + json], "durable") == 0)
        part = PART_DURABLE;
    else if (argc == 3 + json && strcmp(argv[1 + json], "soak") == 0)
        part = PART_SOAK;
    if (part == PART_SOAK)
        soak_seconds = (unsigned)strtoul(argv[2 + json], NULL, 10);
    if (argc != 1 + json + (part != PART_ALL) + (part == PART_SOAK)) {
        fprintf(stderr,
                "usage: bridle-bench [--json] [launches|provider|service|durable|soak SECONDS]\n");
        return br_code_exit(BR_E_USAGE);
    }
    if (prepare(&err) == 0)
        return supervise(json, part);
    if (scratch[0])
        (void)br_scratch_remove(scratch);
    br_log(BR_LOG_ERROR, "%s", err.text);
    return br_code_exit((int)err.code);
}
