/*
 * SIGKILL for bridled at every step of a run (see stepper.c for what a step is): the client says
 * that the run has failed, all other programs end by themselves and clean up, no process, cgroup,
 * mount, loop device or file is left, what the client has shown is in the record, the record of a
 * run that had begun ends once, and the next run works. Positive control: a run whose step is never
 * reached goes through; it also says how many steps there are, and which files may be there.
 *
 * A run that is over cannot fail any more: from the moment at which the audit was told to close the
 * record it may be a completed one, and a client that was told so may succeed. Both are checked to
 * be so of whole runs only, and near the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/e2e.h"

#define NEVER 1000000u
#define PATIENCE_S 30u
#define CLEAN_MS 5000u
#define STEPS_AT_LEAST 300u
#define ORDINARY_UID 61900u
#define FILES_MAX 64u

static const char scenario[] =
    "{\"v\":1,\"name\":\"steps\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0},\"text\":\"I look.\",\"tool_calls\":[{\"name\":"
    "\"process_exec\",\"arguments\":{\"argv\":[\"/bin/true\"]}}]},"
    "{\"when\":{},\"text\":\"Done.\"}]}";

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'steps', rules = {\n"
    "  policy.allow { id = 'true', action = 'process.exec', command = '/bin/true' } } }\n";

/* A copy of the workspace with a quota, and a state disk: two loop devices and their mounts. */
static const char disks[] =
    "return { name = 'disks', version = 1, rules = { { id = 'no-network', effect = 'deny', "
    "actions = { 'network' }, match = 'any', patterns = {} } }, sandbox = { backend = 'native', "
    "image = 'host', identity = 'dedicated', landlock = 'required', workspace = 'lease', limits = "
    "{ memory_bytes = 1 << 30, pids = 32, cpu_percent = 100, nofile = 256, fsize_bytes = 1 << 30, "
    "tmp_bytes = 1 << 20, tmp_inodes = 100, output_bytes = 4096, exec_seconds = 30, wall_seconds = "
    "60 }, disks = { workspace = { kind = 'ext4', bytes = 4 << 20, inodes = 64 }, state = { kind = "
    "'ext4', bytes = 2 << 20, inodes = 32, name = 'notes' } } }, offers = { 'workspace-tmpfs-v1' } "
    "}\n";

struct course {
    const char *what;
    uid_t uid;           /* who runs bridle */
    bool leases;         /* with the profile above */
    const char *rest_us; /* all others wait for bridled before it is killed */
    unsigned rounds;     /* about as many */
};

static char real[BR_PATH_MAX]; /* the build's programs */

struct place {
    struct e2e t;
    const struct course *c;
    char bin[128];
    char *mounts;         /* /proc/self/mountinfo before any run */
    char last[BR_ID_MAX]; /* the newest run of the record, or "" */
    char files[FILES_MAX][96];
    unsigned nfiles;
    unsigned failed, completed, succeeded; /* rounds: two of the record, one of the client */
};

struct round {
    unsigned n;
    bool killed;
    char report[128]; /* the stepper's */
    struct e2e_result r;
};

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* ---- what is left ---- */

static char *slurp(const char *path)
{
    struct br_buf b = BR_BUF_INIT(4u << 20);
    FILE *f = fopen(path, "re");
    char chunk[4096];
    if (!f)
        return NULL;
    for (size_t n; (n = fread(chunk, 1, sizeof(chunk), f)) > 0;)
        br_buf_put(&b, chunk, n);
    fclose(f);
    return br_buf_cstr(&b);
}

static unsigned loops(const struct place *p)
{
    unsigned n = 0;
    DIR *d = opendir("/sys/block");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[128];
        snprintf(path, sizeof(path), "/sys/block/%.64s/loop/backing_file", e->d_name);
        BR_CLEANUP_FREE char *file = strncmp(e->d_name, "loop", 4) == 0 ? slurp(path) : NULL;
        n += file && strstr(file, p->t.dir);
    }
    closedir(d);
    return n;
}

/* The mounts of this namespace, without those of tests that run at the same time: it was born with
 * a copy of them, which goes when such a test removes the directory below. */
static char *mounts_here(void)
{
    char *text = slurp("/proc/self/mountinfo"), *to = text;
    for (char *line = text; line && *line;) {
        size_t n = strcspn(line, "\n") + 1;
        if (!memmem(line, n, "/bridle-rig-", 12)) {
            memmove(to, line, n);
            to += n;
        }
        line += n;
    }
    if (to)
        *to = 0;
    return text;
}

/* As root the test has a pid namespace of its own: its first process and the test, and no more. */
static unsigned strangers(void)
{
    unsigned n = 0;
    DIR *d = geteuid() == 0 ? opendir("/proc") : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        n += pid > 1 && pid != getpid();
    }
    if (d)
        closedir(d);
    return n;
}

static struct place *walking; /* nftw() has no context */
static char unknown[96];
static bool learning, tolerant;

static int on_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    struct place *p = walking;
    const char *name = path + strlen(p->t.dir);
    (void)st, (void)type;
    if (ftw->level == 1 && strcmp(name, "/bin") == 0)
        return FTW_SKIP_SUBTREE;
    if (tolerant && strncmp(name, "/state/kept/run_", 16) == 0)
        return FTW_CONTINUE;
    for (unsigned i = 0; i < p->nfiles; i++)
        if (strcmp(p->files[i], name) == 0)
            return FTW_CONTINUE;
    if (learning && p->nfiles < FILES_MAX)
        snprintf(p->files[p->nfiles++], sizeof(p->files[0]), "%s", name);
    else
        snprintf(unknown, sizeof(unknown), "%s", name);
    return FTW_CONTINUE;
}

/* A file that an undisturbed run did not leave, or "". With `learn`: none of them is unknown. */
static const char *unknown_file(struct place *p, bool learn)
{
    walking = p;
    learning = learn;
    unknown[0] = 0;
    assert_int_equal(nftw(p->t.dir, on_file, 16, FTW_PHYS | FTW_ACTIONRETVAL), 0);
    return unknown;
}

static void expect_nothing_left(struct place *p, const struct round *k)
{
    const char *file = "";
    unsigned nloops = 0, nstrangers = 0;
    bool same = false;
    /* of a workspace that may be kept, a note that the next run takes away */
    tolerant = k->killed;
    e2e_expect_clean(&p->t);
    for (unsigned ms = 0; ms < CLEAN_MS; ms += 10) {
        BR_CLEANUP_FREE char *mounts = mounts_here();
        same = mounts && strcmp(mounts, p->mounts) == 0;
        nloops = loops(p);
        nstrangers = strangers();
        file = unknown_file(p, false);
        if (same && !nloops && !nstrangers && !file[0])
            return;
        usleep(10000);
    }
    fail_msg("%s: %s left: %u processes, %u loop devices, %s mounts, file '%s'", p->c->what,
             k->report, nstrangers, nloops, same ? "no" : "other", file);
}

/* ---- one run ---- */

static void run(struct place *p, struct round *k)
{
    char step[64], rest[64], report[160];
    char *env[] = {step, rest, report, NULL};
    const char *const argv[] = {
        "bridle",     "run",           "--json",    "-C",        "workspace", "-p", "policy.lua",
        "--scenario", "scenario.json", "--profile", "disks.lua", "look",      NULL};
    const char *plain[BR_ARRAY_LEN(argv)];
    unsigned n = 0;
    for (unsigned i = 0; i < BR_ARRAY_LEN(argv); i++)
        if (p->c->leases || (i != 9 && i != 10))
            plain[n++] = argv[i];
    snprintf(step, sizeof(step), "BRIDLE_TEST_STEP=%u", k->n);
    snprintf(rest, sizeof(rest), "BRIDLE_TEST_REST=%s", p->c->rest_us);
    snprintf(report, sizeof(report), "BRIDLE_TEST_REPORT=%s/report.txt", p->t.dir);
    e2e_wait(&p->t, e2e_spawn(&p->t, (char *const *)plain, env), PATIENCE_S, &k->r);
    BR_CLEANUP_FREE char *said = e2e_read(&p->t, "report.txt");
    assert_non_null(said);
    snprintf(k->report, sizeof(k->report), "%.*s", (int)strcspn(said, "\n"), said);
    k->killed = strncmp(said, "killed ", 7) == 0;
}

static void fail_round(const struct place *p, const struct round *k, const char *why,
                       const char *record)
{
    fprintf(stderr, "%s\nthe record:\n%s", k->r.out.len ? (char *)k->r.out.data : "", record);
    fail_msg("%s: %s: %s (status %d)\n%s", p->c->what, k->report, why, k->r.status,
             k->r.err.len ? (char *)k->r.err.data : "");
}

/* Everything that the client showed is in the record. */
static void expect_shown(const struct place *p, const struct round *k, const char *record)
{
    const char *out = k->r.out.len ? (const char *)k->r.out.data : "";
    for (const char *line = out; *line;) {
        size_t n = strcspn(line, "\n");
        if (!line[n] || !memmem(record, strlen(record), line, n + 1))
            fail_round(p, k, "what was shown was not stored", record);
        line += n + 1;
    }
}

/* The newest run of the record; false if there is no newer one than at the last time. */
static bool read_record(struct place *p, const struct round *k, struct e2e_result *r)
{
    char id[BR_ID_MAX];
    e2e_run(&p->t, r, "bridle", "show", "last", "--json", NULL);
    if (r->status == 3 && !p->last[0])
        return false;
    const char *out = r->out.len ? (const char *)r->out.data : "";
    if (r->status != 0 || sscanf(out, "{\"runId\":\"%39[a-z0-9_]\"", id) != 1)
        fail_round(p, k, "the record cannot be read", (char *)r->err.data);
    bool newer = strcmp(id, p->last) != 0;
    snprintf(p->last, sizeof(p->last), "%s", id);
    return newer;
}

static void expect_record(struct place *p, const struct round *k)
{
    struct e2e_result r;
    const char *why = NULL;
    bool any = read_record(p, k, &r);
    const char *record = any && r.out.len ? (const char *)r.out.data : "";
    expect_shown(p, k, record);
    const char *last = strstr(record, "\"type\":\"agent.stopped\"");
    bool completed = last && strstr(last, "\"status\":\"completed\"");
    size_t head = strcspn(record, "\n");
    if (!any) {
        if (k->r.status == 0)
            why = "success, and nothing is recorded";
    } else if (count(record, "\"type\":\"agent.stopped\"") != 1 || strstr(last, "\n{")) {
        why = "the record does not end once";
    } else if (!completed && !strstr(last, "\"status\":\"failed\"")) {
        why = "the record ends neither completed nor failed";
    } else if (!memmem(record, head,
                       completed ? "\"status\":\"completed\"" : "\"status\":\"failed\"",
                       completed ? 20 : 17) ||
               memmem(record, head, "\"endedAt\":null", 14)) {
        why = "the list of runs says something else than the record";
    } else if (count(record, "\"type\":\"tool.call\"") !=
                   count(record, "\"type\":\"tool.result\"") ||
               count(record, "\"type\":\"permission.requested\"") !=
                   count(record, "\"type\":\"permission.resolved\"")) {
        why = "something in the record stays open";
    } else if (completed && (count(record, "\"type\":\"tool.result\"") != 1 ||
                             count(record, "\"type\":\"sandbox.stopped\"") != 1)) {
        why = "completed, but not all of it happened";
    } else if (!completed && k->r.status == 0) {
        why = "success, but the record ends failed";
    }
    if (why)
        fail_round(p, k, why, record);
    p->failed += any && !completed;
    p->completed += completed;
    e2e_result_free(&r);
}

static void run_once(struct place *p, struct round *k)
{
    run(p, k);
    if (k->r.status < 0)
        fail_round(p, k, "the client hangs", "");
    if (k->r.status > 128)
        fail_round(p, k, "the client died", "");
    if (k->killed && k->r.status != 0 && !e2e_says(&k->r, "bridle: 'bridled' "))
        fail_round(p, k, "the client does not say what has happened", "");
    if (!k->killed && k->r.status != 0)
        fail_round(p, k, "undisturbed, it fails", "");
    p->succeeded += k->r.status == 0;
    if (k->n != NEVER || p->nfiles)
        expect_nothing_left(p, k);
    else
        (void)unknown_file(p, true);
    expect_record(p, k);
    e2e_result_free(&k->r);
}

/* ---- all of them ---- */

static void delegate(struct place *p)
{
    struct e2e_result r;
    if (!p->c->uid)
        return;
    p->t.uid = 0;
    e2e_run(&p->t, &r, "bridle", "doctor", "--delegate", "61900", NULL);
    p->t.uid = p->c->uid;
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

static void undelegate(void)
{
    /* empty directories: what the delegation made, and nothing else has this name */
    assert_int_equal(system("find /sys/fs/cgroup -ignore_readdir_race -depth -type d -name "
                            "'bridle-61900' -exec rmdir {} +"),
                     0);
}

static void open_place(struct place *p, const struct course *c)
{
    char from[192], to[192];
    struct e2e_result r;
    *p = (struct place){.c = c};
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0); /* also after a test that failed */
    e2e_open(&p->t, c->uid);
    e2e_copy_bin(&p->t, NULL, NULL, p->bin);
    snprintf(from, sizeof(from), "%s/bridled", p->bin);
    snprintf(to, sizeof(to), "%s/bridled.real", p->bin);
    assert_int_equal(rename(from, to), 0);
    snprintf(to, sizeof(to), "%s", from);
    char stepper[BR_PATH_MAX + 32];
    snprintf(stepper, sizeof(stepper), "%s/../tests/stepper", real);
    e2e_copy(stepper, to);
    assert_int_equal(setenv("BRIDLE_BIN", p->bin, 1), 0);
    e2e_write(&p->t, "workspace/a.txt", "a\n");
    e2e_write(&p->t, "scenario.json", scenario);
    e2e_write(&p->t, "policy.lua", policy);
    e2e_write(&p->t, "disks.lua", disks);
    delegate(p);
    p->t.activated = true;
    e2e_run(&p->t, &r, "bridle", "activate", c->leases ? "disks.lua" : "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    p->mounts = mounts_here();
    assert_non_null(p->mounts);
}

static void close_place(struct place *p)
{
    e2e_expect_file(&p->t, "workspace/a.txt", "a\n");
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    if (p->c->uid)
        undelegate();
    free(p->mounts);
    e2e_close(&p->t);
}

/* Odd, so that rounds end before calls and after them in turn. */
static unsigned stride_of(const struct course *c, unsigned steps)
{
    const char *asked = getenv("BRIDLE_TEST_STRIDE");
    unsigned rounds = c->rounds;
#ifdef BR_SANITIZED
    rounds /= 4; /* it is some ten times as slow */
#endif
    unsigned stride = asked ? (unsigned)atoi(asked) : steps / rounds;
    return stride | 1;
}

static void every_step(const struct course *c)
{
    static struct place p;
    struct round k = {.n = NEVER};
    unsigned steps = 0, rounds = 0;
    open_place(&p, c);
    run_once(&p, &k);
    assert_int_equal(sscanf(k.report, "through %u", &steps), 1);
    assert_true(steps >= STEPS_AT_LEAST);
    assert_int_equal(p.completed, 1);
    p.completed = p.succeeded = 0;
    unsigned stride = stride_of(c, steps);
    for (k.n = 1, k.killed = true; k.killed; k.n += stride) {
        run_once(&p, &k);
        rounds += k.killed;
        if (rounds % 8 == 0 && k.killed) { /* and it works */
            struct round next = {.n = NEVER};
            unsigned completed = p.completed, succeeded = p.succeeded;
            run_once(&p, &next);
            p.completed = completed;
            p.succeeded = succeeded;
        }
    }
    assert_int_equal(k.r.status, 0); /* the last one went through */
    p.completed--;
    p.succeeded--;
    print_message("%s: killed at %u of %u steps: no record %u, failed %u, completed %u, and told "
                  "so %u\n",
                  c->what, rounds, steps, rounds - p.failed - p.completed, p.failed, p.completed,
                  p.succeeded);
    assert_true(rounds >= c->rounds / 8 && rounds >= steps / stride / 2);
    assert_true(p.failed >= rounds / 4);
    assert_true(p.succeeded <= p.completed && p.completed <= rounds / 3);
    close_place(&p);
}

/* As fast as it goes: what the others do in answer to the last message, they do without bridled. */
static void test_at_once(void **state)
{
    (void)state;
    every_step(&(struct course){.what = "at once", .rest_us = "0", .rounds = 120});
}

/* All others have done what they can, and wait for bridled. */
static void test_at_rest(void **state)
{
    (void)state;
    every_step(&(struct course){.what = "at rest", .rest_us = "20000", .rounds = 60});
}

static void test_with_leases(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("leases need root\n");
        skip();
    }
    every_step(
        &(struct course){.what = "with leases", .leases = true, .rest_us = "0", .rounds = 60});
}

/* Where bridled is not root, its programs are not either, and cgroups are those of the user. */
static void test_ordinary_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("this test starts as root; the other ones are an ordinary user's here\n");
        skip();
    }
    every_step(&(struct course){
        .what = "ordinary user", .uid = ORDINARY_UID, .rest_us = "0", .rounds = 60});
}

int main(void)
{
    e2e_isolate();
    snprintf(real, sizeof(real), "%s", e2e_bin());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_at_rest),
        cmocka_unit_test(test_with_leases),
        cmocka_unit_test(test_ordinary_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
