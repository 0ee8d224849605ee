/*
 * bridle-bench: measures what the design promises, beside its references, in one run, and prints
 * the table. Exit status 1 if a target is missed. Started by `bridle bench`.
 */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/bench.h"
#include "bench/bare.h"
#include "bench/bench.h"
#include "policy/bench.h"

#define ROUNDS 200u
#define IDLE_ROUNDS 25u
#define IDLE_PAUSE_US 100000u
#define WORKSPACE_UID 1000u

static char bin_path[BR_PATH_MAX];
static int bin_fd = -1;
static unsigned missed;
static struct br_buf rows = BR_BUF_INIT(65536);

int bench_bin(void)
{
    return bin_fd;
}

const char *bench_bin_path(void)
{
    return bin_path;
}

void samples_add(struct samples *s, uint64_t from_us, uint64_t to_us)
{
    if (s->n < BENCH_SAMPLES_MAX)
        s->v[s->n++] = (double)(to_us - from_us);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_median(struct samples *s)
{
    qsort(s->v, s->n, sizeof(*s->v), by_value);
    return s->n ? s->v[s->n / 2] : NAN;
}

double samples_p99(struct samples *s)
{
    qsort(s->v, s->n, sizeof(*s->v), by_value);
    return s->n ? s->v[s->n * 99 / 100] : NAN;
}

static bool want_json;

void bench_row(const char *name, double value, const char *unit, const char *reference,
               double reference_value, double limit, bool more_is_better)
{
    double measured = reference ? value / reference_value : value;
    bool met = more_is_better ? measured >= limit : measured <= limit;
    missed += !met;
    if (want_json) {
        br_buf_printf(&rows,
                      "%s{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"reference\":\"%s\","
                      "\"referenceValue\":%.3f,\"ratio\":%.3f,\"target\":%.3f,\"met\":%s}",
                      rows.len ? "," : "", name, value, unit, reference ? reference : "",
                      reference ? reference_value : 0.0, reference ? measured : 0.0, limit,
                      met ? "true" : "false");
        return;
    }
    char against[96] = "", target[48];
    if (reference)
        snprintf(against, sizeof(against), "%.2fx %s (%.1f)", measured, reference, reference_value);
    snprintf(target, sizeof(target), "%s %g%s", more_is_better ? ">=" : "<=", limit,
             reference ? "x" : "");
    printf("%-38s %10.2f %-5s %-34s %-9s %s\n", name, value, unit, against, target,
           met ? "ok" : "MISSED");
    fflush(stdout);
}

void bench_note(const char *fmt, ...)
{
    va_list ap;
    if (want_json)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

int bench_end(bool json)
{
    if (json)
        printf("{\"rows\":[%s],\"missed\":%u}\n", rows.len ? br_buf_cstr(&rows) : "", missed);
    else if (missed)
        printf("\n%u target%s missed\n", missed, missed == 1 ? "" : "s");
    return missed ? 1 : 0;
}

/* ---- what is measured ---- */

static char *true_argv[] = {(char *)"/bin/true", NULL};
static int true_fd = -1;

static int run_bare(struct br_err *err)
{
    int status = bench_bare(true_fd, true_argv);
    return status == 0 ? 0 : br_err_set(err, BR_E_FAILED, "the bare sandbox ended with %d", status);
}
static char *bwrap_argv[] = {(char *)"/usr/bin/bwrap",
                             (char *)"--unshare-all",
                             (char *)"--uid",
                             (char *)"1000",
                             (char *)"--ro-bind",
                             (char *)"/usr",
                             (char *)"/usr",
                             (char *)"--symlink",
                             (char *)"usr/bin",
                             (char *)"/bin",
                             (char *)"--symlink",
                             (char *)"usr/lib",
                             (char *)"/lib",
                             (char *)"--symlink",
                             (char *)"usr/lib64",
                             (char *)"/lib64",
                             (char *)"--proc",
                             (char *)"/proc",
                             (char *)"--dev",
                             (char *)"/dev",
                             (char *)"--tmpfs",
                             (char *)"/tmp",
                             (char *)"--die-with-parent",
                             (char *)"--new-session",
                             (char *)"/bin/true",
                             NULL};

/* Interleaved, so that what else the machine does hits all alike. */
static int measure_launch(struct bench_launcher *l, unsigned rounds, unsigned pause_us,
                          struct samples s[4], struct br_err *err)
{
    bool bwrap = access(bwrap_argv[0], X_OK) == 0;
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned k = 0; k < 4; k++) {
            if (k == 3 && !bwrap)
                continue;
            if (pause_us)
                usleep(pause_us);
            uint64_t from = br_now_us();
            int r = k == 0   ? bench_launch_true(l, err)
                    : k == 1 ? run_bare(err)
                    : k == 2 ? bench_spawn(true_argv, err)
                             : bench_spawn(bwrap_argv, err);
            if (r < 0)
                return r;
            samples_add(&s[k], from, br_now_us());
        }
    }
    return 0;
}

static int launch_rows(struct bench_launcher *l, struct br_err *err)
{
    static struct samples s[4], idle[4];
    struct br_err warm;
    for (unsigned i = 0; i < 5; i++)
        (void)bench_launch_true(l, &warm);
    int r = measure_launch(l, ROUNDS, 0, s, err);
    if (r == 0)
        r = measure_launch(l, IDLE_ROUNDS, IDLE_PAUSE_US, idle, err);
    if (r < 0)
        return r;
    double bare = samples_median(&s[1]);
    bench_row("launch of true, back to back", samples_median(&s[0]), "us", "bare sandbox", bare,
              1.5, false);
    if (s[3].n)
        bench_row("launch of true", samples_median(&s[0]), "us", "bubblewrap",
                  samples_median(&s[3]), 1.0, false);
    bench_note("  posix_spawn of the same program: %.0f us; p99 of a launch: %.0f us",
               samples_median(&s[2]), samples_p99(&s[0]));
    bench_note("  idle machine (medians): launch %.0f us, bare %.0f us, posix_spawn %.0f us",
               samples_median(&idle[0]), samples_median(&idle[1]), samples_median(&idle[2]));
    return 0;
}

static int call_rows(struct bench_launcher *l, struct br_err *err)
{
    static struct samples call, spawn;
    int r = bench_sandbox_start(l, err);
    for (unsigned i = 0; r == 0 && i < 2 * ROUNDS; i++) {
        uint64_t a = br_now_us();
        r = bench_sandbox_true(l, err);
        uint64_t b = br_now_us();
        if (r == 0)
            r = bench_spawn(true_argv, err);
        samples_add(&call, a, b);
        samples_add(&spawn, b, br_now_us());
    }
    if (r == 0)
        r = bench_sandbox_end(l, err);
    if (r == 0)
        bench_row("tool call in a running sandbox", samples_median(&call), "us", "posix_spawn",
                  samples_median(&spawn), 2.0, false);
    return r;
}

static int rest_rows(struct br_err *err)
{
    double ns, mb, bytes;
    unsigned programs;
    int r = br_bench_decide(200, &ns, err);
    if (r < 0)
        return r;
    bench_row("decision, 200 rules", ns, "ns", NULL, 0, 1000, false);
    r = br_bench_decide(10000, &ns, err);
    if (r < 0)
        return r;
    bench_note("  decision, 10000 rules: %.0f ns", ns);
    r = br_bench_redact(&mb);
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "the redactor could not be measured");
    bench_row("redaction", mb, "MB/s", NULL, 0, 100, true);
    r = bench_session_memory(&bytes, &programs, err);
    if (r < 0)
        return r;
    bench_row("idle memory of one session", bytes / 1e6, "MB", NULL, 0, 25, false);
    bench_note("  proportional set size of %u programs", programs);
    return 0;
}

static int prepare(char workspace[64], struct br_err *err)
{
    ssize_t n = readlink("/proc/self/exe", bin_path, sizeof(bin_path) - 1);
    char *slash = n > 0 ? strrchr(bin_path, '/') : NULL;
    if (!slash)
        return br_err_errno(err, BR_E_IO, "the directory of the programs was not found");
    *slash = 0;
    bin_fd = open(bin_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    true_fd = open(true_argv[0], O_RDONLY | O_CLOEXEC);
    snprintf(workspace, 64, "/tmp/bridle-bench-XXXXXX");
    if (bin_fd < 0 || true_fd < 0 || !mkdtemp(workspace) ||
        (geteuid() == 0 && chown(workspace, WORKSPACE_UID, WORKSPACE_UID) < 0))
        return br_err_errno(err, BR_E_IO, "the benchmark could not be prepared");
    return 0;
}

int main(int argc, char **argv)
{
    struct br_err err = {.code = BR_OK};
    struct bench_launcher *l = NULL;
    char workspace[64] = "";
    br_log_init("bridle-bench", BR_LOG_WARN);
    want_json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 2 || (argc == 2 && !want_json)) {
        fprintf(stderr, "usage: bridle bench [--json]\n");
        return 2;
    }
    int r = prepare(workspace, &err);
    if (!want_json)
        printf("%-38s %10s %-5s %-34s %-9s\n", "what", "median", "", "against", "target");
    if (r == 0)
        r = bench_launcher_open(&l, workspace, &err);
    if (r == 0)
        r = launch_rows(l, &err);
    if (r == 0)
        r = call_rows(l, &err);
    bench_launcher_close(&l);
    if (workspace[0])
        (void)rmdir(workspace);
    if (r == 0)
        r = rest_rows(&err);
    if (r < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        return br_code_exit(r);
    }
    return bench_end(want_json);
}
