/*
 * Every system call that builds a sandbox, made to go wrong. It fails from its N-th time on: the
 * launch is refused, with a reason, and nothing is left. It reports success and does nothing, from
 * its N-th time on or the N-th time alone, which only the measurement can notice: refused as well,
 * or, for the few that are listed in `harmless`, a sandbox whose receipt is that of a launch
 * without a fault.
 *
 * The table has a row for every wrapper of sandbox/sys.h: one that is added there fails the test
 * until somebody has said how often a launch uses it.
 */
#include <errno.h>
#include <sys/socket.h>

#include "launch/test_rig.h"
#include "sandbox/sys.h"

static const char *const names[] = {
#define NAME_(name) #name,
    BR_SYS_CALLS(NAME_)
#undef NAME_
};

/* How often one launch makes each call at least, so that none is forgotten; -1: a launch makes
 * none, and what uses it has tests of its own. */
static const int at_least[BR_SYS_COUNT_] = {
    [BR_SYS_CLONE3] = 2,
    [BR_SYS_UNSHARE] = 3,
    [BR_SYS_OPEN_TREE] = 10,
    [BR_SYS_MOVE_MOUNT] = 10,
    [BR_SYS_FSOPEN] = 1,
    [BR_SYS_FSCONFIG] = 4,
    [BR_SYS_MOUNT_SETATTR] = 8,
    [BR_SYS_FSMOUNT] = 1,
    [BR_SYS_MOUNT] = 5,
    [BR_SYS_UMOUNT] = 1,
    [BR_SYS_PIVOT_ROOT] = 1,
    [BR_SYS_CHDIR] = 3,
    [BR_SYS_SETHOSTNAME] = 1,
    [BR_SYS_SETSID] = 1,
    [BR_SYS_SETGROUPS] = 1,
    [BR_SYS_SETRESGID] = 1,
    [BR_SYS_SETRESUID] = 1,
    [BR_SYS_SETEUID] = 1,
    [BR_SYS_CAPSET] = 1,
    [BR_SYS_PRCTL] = 10,
    [BR_SYS_SECCOMP] = 1,
    [BR_SYS_SETRLIMIT] = 5,
    [BR_SYS_LANDLOCK] = 3,
    [BR_SYS_DUP] = 3,
    [BR_SYS_CLOSE_RANGE] = 2,
    [BR_SYS_EXEC] = 1,
    [BR_SYS_IDMAP] = 5,
    [BR_SYS_MKCGROUP] = 1,
    [BR_SYS_WRITECGROUP] = 3,
    [BR_SYS_JOINCGROUP] = 1,
    [BR_SYS_KEYCTL] = 1,
    [BR_SYS_AFFINITY] = -1, /* test_launch_limits.c */
    [BR_SYS_RMCGROUP] = -1,
    /* test_launch_limits.c */[BR_SYS_FORK] = -1,
    [BR_SYS_SETNS] = -1, /* test_launch_pool.c */
    /* test_launch_lease.c */[BR_SYS_LOOP] = -1,
    [BR_SYS_FALLOCATE] = -1,
    [BR_SYS_STATFS] = -1,
    [BR_SYS_SPAWN] = -1,
    [BR_SYS_LEASEFILE] = -1,
    [BR_SYS_COPYIN] = -1,
};

/*
 * Where doing nothing once does no harm. `at`: the N-th call; negative: counted from the last one;
 * 0: any but the last. `absent`: only if this file does not exist.
 */
static const struct {
    enum br_sys call;
    int at;
    bool persistent; /* also from there on */
    const char *absent, *why;
    bool user; /* of an ordinary user's launcher only */
} harmless[] = {
    {BR_SYS_CAPSET, 1, true, NULL, "exec drops them too, of who is not root"},
    {BR_SYS_PRCTL, -1, true, NULL, "not dumpable: bridle-init does it again"},
    {BR_SYS_PRCTL, -2, true, NULL, "ambient capabilities: there are none to begin with"},
    {BR_SYS_PRCTL, -6, false, NULL, "asks for a capability that the kernel does not know"},
    {BR_SYS_CLOSE_RANGE, 1, true, NULL, "all descriptors are close-on-exec"},
    {BR_SYS_CLOSE_RANGE, 2, true, NULL, "likewise"},
    {BR_SYS_CHDIR, 2, false, NULL, "to /: the workspace is entered later"},
    {BR_SYS_LANDLOCK, 0, false, NULL, "a rule less: less can be written"},
    {BR_SYS_UMOUNT, 0, false, NULL, "mounts of the launcher's own, which no sandbox sees"},
    /* a sandbox that was prepared is thrown away, and made again for the plan */
    {BR_SYS_OPEN_TREE, 0, false, NULL, "prepared again"},
    {BR_SYS_SETEUID, 1, false, NULL, "prepared again"},
    {BR_SYS_SETRLIMIT, 5, true, NULL, "message queues: what the kernel gives everybody"},
    {BR_SYS_CLONE3, 0, false, NULL, "prepared again"},
    {BR_SYS_CLONE3, -1, false, NULL, "prepared again"},
    {BR_SYS_IDMAP, 0, false, NULL, "prepared again"},
    {BR_SYS_IDMAP, -1, false, NULL, "prepared again"},
    {BR_SYS_MKCGROUP, 0, false, NULL, "prepared again"},
    {BR_SYS_MKCGROUP, -1, false, NULL, "prepared again"},
    {BR_SYS_WRITECGROUP, 0, false, NULL, "prepared again, or the kernel's own value"},
    {BR_SYS_WRITECGROUP, -1, false, NULL, "prepared again"},
    {BR_SYS_MOUNT, 1, true, NULL, "a user namespace gets no shared mounts", true},
    {BR_SYS_SETRESGID, 1, true, NULL, "it is this group already", true},
    {BR_SYS_SETRESUID, 1, true, NULL, "it is this user already", true},
};

static bool is_harmless(uid_t uid, enum br_sys call, int n, int count, bool persistent)
{
    for (unsigned i = 0; i < BR_ARRAY_LEN(harmless); i++) {
        int at = harmless[i].at;
        bool here = at == 0 ? n < count : at > 0 ? n == at : n == count + 1 + at;
        if (harmless[i].call == call && here && (uid || !harmless[i].user) &&
            (!persistent || harmless[i].persistent) &&
            (!harmless[i].absent || access(harmless[i].absent, F_OK) != 0))
            return true;
    }
    return false;
}

/* A receipt without what differs from one sandbox to the next. */
static void normal(char *receipt)
{
    static const char *const keys[] = {
        "\"pid\":",      "\"namespaces\":", "\"session\":", "\"cgroups\":",
        "\"sha256\":",   "\"workspace\":",  "\"uidMap\":",  "\"gidMap\":",
        "\"identity\":", "\"uids\":",       "\"gids\":"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(keys); i++) {
        char *p = strstr(receipt, keys[i]);
        if (!p)
            continue;
        p += strlen(keys[i]);
        size_t n = *p == '{' ? strcspn(p, "}") : *p == '[' ? strcspn(p, "]") : strcspn(p, ",}");
        memmove(p, p + n, strlen(p + n) + 1);
    }
}

static char *clean; /* the receipt of a launch without a fault, normal */

/* Does the launch succeed with this fault? Otherwise it was refused well. */
static bool launch_with(uid_t uid, const char *fault)
{
    struct rig r;
    rig_make(&r, uid);
    rig_put(&r, "dir/", NULL);
    rig_allow(&r, "dir/**");
    r.fault = fault;
    rig_start(&r);
    /* as bridled does: what cannot be resolved is not started */
    bool resolved = rig_resolve(&r, -1), through = resolved && rig_launch_at(&r, -1);
    if (through) {
        assert_int_equal(rig_call(&r, "getpid"), 0);
        normal(r.receipt);
        if (!clean)
            clean = strdup(r.receipt);
        size_t at = 0;
        while (clean[at] && clean[at] == r.receipt[at])
            at++;
        if (clean[at] || r.receipt[at])
            fail_msg("%s: another sandbox than without a fault: %.200s, not %.200s", fault,
                     &r.receipt[at], &clean[at]);
        assert_true(send(r.init, "exit 0", 6, MSG_NOSIGNAL) > 0);
        rig_wait_stopped(&r);
    } else {
        if (!r.text[0] || r.code == 0 || r.code >= BR_CODE_COUNT_)
            fail_msg("%s: no reason: %u '%s'", fault, r.code, r.text);
        if (resolved) { /* otherwise the one that was prepared still waits */
            assert_int_equal(rig_children(r.pid), 0);
            assert_int_equal(rig_cgroups(r.pid), 0);
            assert_null(rig_ask(&r, "call getpid"));
        }
    }
    rig_close(&r);
    return through;
}

static bool fails_from(uid_t uid, enum br_sys call, int n)
{
    char fault[64];
    snprintf(fault, sizeof(fault), "%s:%d:%d", names[call], n,
             call == BR_SYS_KEYCTL ? EDQUOT : EPERM); /* a container may refuse this one */
    return !launch_with(uid, fault);
}

/* How often a launch makes this call: it succeeds when there is no N-th one to fail. One capability
 * is dropped like the other: of many calls in a row, not all are tried. */
static int failing(uid_t uid, enum br_sys call)
{
    int n = 1;
    while (fails_from(uid, call, n))
        n += n < 16 ? 1 : 8;
    while (n > 16 && !fails_from(uid, call, n - 1))
        n--;
    return n - 1;
}

static void doing_nothing(uid_t uid, enum br_sys call, int count)
{
    char fault[64];
    for (int n = 1; n <= count; n += n < 16 || n + 8 > count ? 1 : 8)
        for (int once = 0; once < 2; once++) {
#ifdef BR_SANITIZED
            if (once != n % 2) /* half of them: a launch takes several times as long */
                continue;
#endif
            snprintf(fault, sizeof(fault), "%s:%d:%s", names[call], n, once ? "once" : "nothing");
            if (launch_with(uid, fault) && !is_harmless(uid, call, n, count, !once))
                fail_msg("%s (of %d): a launch succeeded although it did nothing", fault, count);
        }
}

static void each_call(uid_t uid)
{
    rig_need_root();
    free(clean);
    clean = NULL;
    assert_true(launch_with(uid, "EXEC:99:1"));
    for (int call = 0; call < BR_SYS_COUNT_; call++) {
        if (at_least[call] == 0)
            fail_msg("%s has no row in the table of this test", names[call]);
        if (at_least[call] < 0)
            continue;
        if (call == BR_SYS_JOINCGROUP && access("/sys/fs/cgroup/memory/tasks", F_OK) < 0)
            continue; /* version 1 only */
        int count = failing(uid, (enum br_sys)call);
        if (uid == 0 && count < at_least[call])
            fail_msg("a launch makes %s %d times, not %d", names[call], count, at_least[call]);
        doing_nothing(uid, (enum br_sys)call, count);
    }
}

static void test_as_root(void **state)
{
    (void)state;
    each_call(0);
}

static void test_as_user(void **state)
{
    (void)state;
    each_call(RIG_USER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),
        cmocka_unit_test(test_as_user),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
