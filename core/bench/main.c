/*
 * bridle-bench: measures what the design promises, beside its references, in one run, and prints
 * the table. Exit status 1 if a target is missed. Started by `bridle bench`.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/bench.h"
#include "bench/bare.h"
#include "bench/bench.h"
#include "policy/bench.h"

#define ROUNDS 200u
#define IDLE_ROUNDS 30u
#define IDLE_PAUSE_US 100000u
#define WORKSPACE_UID 1000u

static char bin_path[BR_PATH_MAX];
/* A static `true`, and the launcher that has it in the place of bridle-init. */
static char bench_dir[BR_PATH_MAX + 16], static_true[BR_PATH_MAX + 32];
static int static_true_fd = -1;
static char workspace[] = "/tmp/bridle-bench-XXXXXX";

const char *bench_bin_path(void)
{
    return bin_path;
}

/* ---- a launch ---- */

enum { LANE_LAUNCH, LANE_CALL, LANE_BARE, LANE_SPAWN, LANE_BWRAP, LANES };

static int run_bwrap(struct br_err *err)
{
    const char *const argv[] = {"/usr/bin/bwrap",
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
                                static_true,
                                "/tmp/bench-true",
                                "/tmp/bench-true",
                                NULL};
    return bench_spawn((char *const *)argv, err);
}

static int run_lane(struct bench_launcher *const l[2], unsigned lane, struct br_err *err)
{
    char *const argv[] = {static_true, NULL};
    switch (lane) {
    case LANE_LAUNCH:
        return bench_launch(l[0], err);
    case LANE_CALL:
        return bench_launch_call(l[1], err);
    case LANE_BARE:
        return bench_bare(static_true_fd, argv) == 0
                   ? 0
                   : br_err_set(err, BR_E_FAILED, "the bare sandbox failed");
    case LANE_SPAWN:
        return bench_spawn(argv, err);
    default:
        return run_bwrap(err);
    }
}

/* Lanes take turns, `block` launches each, so that what else the machine does hits all alike. */
static int measure(struct bench_launcher *const l[2], unsigned rounds, unsigned block,
                   unsigned pause_us, struct samples s[LANES], struct br_err *err)
{
    unsigned lanes = access("/usr/bin/bwrap", X_OK) == 0 ? LANES : LANE_BWRAP;
    for (unsigned done = 0; done < rounds; done += block) {
        for (unsigned lane = 0; lane < lanes; lane++) {
            for (unsigned i = 0; i < block; i++) {
                if (pause_us)
                    usleep(pause_us);
                uint64_t from = br_now_us();
                int r = run_lane(l, lane, err);
                if (r < 0)
                    return r;
                samples_add(&s[lane], from, br_now_us());
            }
        }
    }
    return 0;
}

static void note_lanes(const char *how, struct samples s[LANES])
{
    double bare = samples_median(&s[LANE_BARE]);
    bench_note("  %-13s launch %.0f us (%.2fx), launch and call %.0f us (%.2fx), bare %.0f us, "
               "posix_spawn %.0f us",
               how, samples_median(&s[LANE_LAUNCH]), samples_median(&s[LANE_LAUNCH]) / bare,
               samples_median(&s[LANE_CALL]), samples_median(&s[LANE_CALL]) / bare, bare,
               samples_median(&s[LANE_SPAWN]));
}

static int launch_rows(struct bench_launcher *const l[2], struct br_err *err)
{
    static struct samples turns[LANES], idle[LANES], alone[LANES], warm[LANES];
    int r = measure(l, 5, 1, 0, warm, err);
    if (r == 0)
        r = measure(l, ROUNDS, 1, 0, turns, err);
    if (r == 0)
        r = measure(l, IDLE_ROUNDS, 1, IDLE_PAUSE_US, idle, err);
    if (r == 0)
        r = measure(l, ROUNDS, ROUNDS, 0, alone, err);
    if (r < 0)
        return r;
    bench_row("launch of true", samples_median(&turns[LANE_LAUNCH]), "us", "bare sandbox",
              samples_median(&turns[LANE_BARE]), 1.5, false);
    if (turns[LANE_BWRAP].n)
        bench_row("launch of true", samples_median(&turns[LANE_LAUNCH]), "us", "bubblewrap",
                  samples_median(&turns[LANE_BWRAP]), 1.0, false);
    note_lanes("by turns:", turns);
    note_lanes("idle machine:", idle);
    note_lanes("back to back:", alone);
    return 0;
}

static int call_rows(struct bench_launcher *l, struct br_err *err)
{
    static struct samples call, spawn;
    char *const argv[] = {(char *)"/bin/true", NULL};
    int r = bench_sandbox_start(l, err);
    for (unsigned i = 0; r == 0 && i < 2 * ROUNDS; i++) {
        uint64_t a = br_now_us();
        r = bench_sandbox_true(l, err);
        uint64_t b = br_now_us();
        if (r == 0)
            r = bench_spawn(argv, err);
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
    if (!mkdtemp(workspace) ||
        (geteuid() == 0 && chown(workspace, WORKSPACE_UID, WORKSPACE_UID) < 0))
        return br_err_errno(err, BR_E_IO, "'%s' could not be made", workspace);
    return 0;
}

static int measure_all(struct br_err *err)
{
    struct bench_launcher *l[2] = {NULL, NULL};
    int r = bench_launcher_open(&l[0], bench_dir, workspace, err);
    if (r == 0)
        r = bench_launcher_open(&l[1], bin_path, workspace, err);
    if (r == 0)
        r = launch_rows(l, err);
    if (r == 0)
        r = call_rows(l[1], err);
    bench_launcher_close(&l[0]);
    bench_launcher_close(&l[1]);
    return r < 0 ? r : rest_rows(err);
}

int main(int argc, char **argv)
{
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-bench", BR_LOG_WARN);
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 2 || (argc == 2 && !json)) {
        fprintf(stderr, "usage: bridle bench [--json]\n");
        return br_code_exit(BR_E_USAGE);
    }
    int r = prepare(&err);
    if (r == 0) {
        bench_begin(json);
        r = measure_all(&err);
        (void)rmdir(workspace);
    }
    if (r < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        return br_code_exit(r);
    }
    return bench_end();
}
