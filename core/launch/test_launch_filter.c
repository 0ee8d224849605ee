/*
 * The system call filter in a real sandbox: a static program makes every call of the table there
 * (test_filter_probe.c). What is refused gets exactly the table's errno, what is allowed the same
 * answer as without the filter. Controls: without the filter, and without the filter but with the
 * capabilities of its user namespace, what was refused is answered by the kernel instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "launch/test_rig.h"

#define CASES_MAX 6000u
#define PARTS 4u

struct line {
    char name[32], what[48];
    int expected; /* 0: allowed */
    int got;
};
struct lines {
    struct line v[CASES_MAX];
    unsigned n;
};

static void copy_probe(const struct rig *r)
{
    char from[512], to[512];
    snprintf(from, sizeof(from), "%s/../tests/launch/filter-probe", getenv("BRIDLE_BIN"));
    snprintf(to, sizeof(to), "%s/filter-probe", r->ws);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u << 20);
    BR_CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    BR_CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(br_read_all(in, &b, "filter-probe", NULL), 0);
    assert_int_equal(br_write_all(out, b.data, b.len), 0);
    assert_int_equal(fchmod(out, 0755), 0);
}

static void parse(const char *out, struct lines *l)
{
    while (*out) {
        struct line *v = &l->v[l->n];
        char expected[16];
        assert_true(l->n < CASES_MAX);
        if (sscanf(out, "%31s %47s %15s %d", v->name, v->what, expected, &v->got) != 4)
            fail_msg("not a line of the probe: %.80s", out);
        v->expected = atoi(expected);
        l->n++;
        out = strchr(out, '\n');
        assert_non_null(out);
        out++;
    }
}

/* What the program says in a sandbox that lacks these locks; in parts, as an answer is bounded. */
static void probe(uid_t uid, const char *weak, struct lines *l)
{
    struct rig r;
    char command[64];
    const char *out;
    rig_make(&r, uid);
    copy_probe(&r);
    r.weak = weak;
    rig_start(&r);
    assert_true(rig_launch(&r));
    l->n = 0;
    for (unsigned part = 0; part < PARTS; part++) {
        snprintf(command, sizeof(command), "/workspace/filter-probe %u %u", part, PARTS);
        assert_int_equal(rig_sh(&r, command, &out), 0);
        parse(out, l);
    }
    assert_true(l->n > 470);
    rig_exit(&r, 0);
    rig_close(&r);
}

static bool listed(const char *const *names, unsigned n, const char *name)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Allowed, and yet the kernel itself answers so: no capability; not every kernel has it. */
static const char *const same_anyway[] = {"setgroups", "map_shadow_stack", "fchmodat2", "mseal"};

/* Allowed: the answer is the kernel's own, and no errno that a filter gives. */
static void check_allowed(const struct line *with, const struct line *without)
{
    if (with->got != without->got)
        fail_msg("%s %s is allowed: %d with the filter, %d without", with->name, with->what,
                 with->got, without->got);
    if ((with->got == ENOSYS || with->got == EPERM || with->got == EAFNOSUPPORT) &&
        !listed(same_anyway, BR_ARRAY_LEN(same_anyway), with->name))
        fail_msg("%s %s is allowed and answers %d, like a refusal", with->name, with->what,
                 with->got);
}

/* Refused by the kernel too, even with the capabilities of a user namespace: only real root may, or
 * nobody can. Everything else must be seen to work, or to fail otherwise, without the filter. */
static const char *const refused_anyway[] = {
    "sethostname", "setdomainname", "fanotify_init",  "unknown",         "swapoff",
    "syslog",      "acct",          "vhangup",        "lookup_dcookie",  "nfsservctl",
    "uselib",      "_sysctl",       "create_module",  "get_kernel_syms", "query_module",
    "getpmsg",     "putpmsg",       "afs_syscall",    "tuxcall",         "security",
    "vserver",     "epoll_ctl_old", "epoll_wait_old", "set_thread_area", "get_thread_area"};

/* Newer kernels answer these before any filter: only their own trampolines may make them. */
static const char *const before_filters[] = {"uretprobe", "uprobe"};

static void check_refused(const struct line *with, const struct line *control)
{
    if (listed(before_filters, BR_ARRAY_LEN(before_filters), with->name) &&
        with->got == control->got)
        return;
    if (with->got != with->expected)
        fail_msg("%s %s is refused with %d, not with %d", with->name, with->what, with->got,
                 with->expected);
    bool anyway = listed(refused_anyway, BR_ARRAY_LEN(refused_anyway), with->name);
    if ((control->got == with->expected) != anyway)
        fail_msg("%s %s is refused with %d, and without the filter answers %d", with->name,
                 with->what, with->expected, control->got);
}

static void check(uid_t uid)
{
    static struct lines with, without, control;
    rig_need_root();
    probe(uid, NULL, &with);
    probe(uid, "filter", &without);
    probe(uid, "filter,caps", &control);
    assert_int_equal(with.n, without.n);
    assert_int_equal(with.n, control.n);
    for (unsigned i = 0; i < with.n; i++) {
        assert_string_equal(with.v[i].name, control.v[i].name);
        assert_string_equal(with.v[i].what, control.v[i].what);
        if (with.v[i].expected)
            check_refused(&with.v[i], &control.v[i]);
        else
            check_allowed(&with.v[i], &without.v[i]);
    }
}

static void test_as_root(void **state)
{
    (void)state;
    check(0);
}

static void test_as_user(void **state)
{
    (void)state;
    rig_need_root();
    check(RIG_USER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),
        cmocka_unit_test(test_as_user),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
