/*
 * Sandboxes that are prepared ahead by a process of their own: each is used once, none is shared,
 * and whatever dies (a prepared one, the preparer, the launcher), nothing is left of it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

#define POOL "3"
#define CHILDREN_MAX 16u
#define PATIENCE_US 10000000u

static void comm_of(pid_t pid, char dst[32])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, dst, 31) : 0;
    dst[n > 0 ? n - 1 : 0] = 0;
}

/* The launcher's children; *preparer is one of them, or 0. */
static unsigned children(pid_t launcher, pid_t pids[CHILDREN_MAX], pid_t *preparer)
{
    char path[64], text[4096] = "", comm[32];
    unsigned n = 0;
    *preparer = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t k = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    text[k > 0 ? k : 0] = 0;
    for (char *save = NULL, *p = strtok_r(text, " \n", &save); p && n < CHILDREN_MAX;
         p = strtok_r(NULL, " \n", &save)) {
        pids[n] = atoi(p);
        comm_of(pids[n], comm);
        /* a newborn one of its has its name for a moment, and comes later in the list */
        if (!*preparer && strcmp(comm, "bridle-prepare") == 0)
            *preparer = pids[n];
        n++;
    }
    return n;
}

/* Wait until the preparer and this many sandboxes are the launcher's children. */
static pid_t await_pool(const struct rig *r, unsigned boxes)
{
    pid_t pids[CHILDREN_MAX], preparer = 0;
    for (unsigned waited = 0; waited < PATIENCE_US; waited += 1000) {
        if (children(r->pid, pids, &preparer) == boxes + 1 && preparer > 0 &&
            rig_cgroups(r->pid) >= boxes)
            return preparer;
        usleep(1000);
    }
    fail_msg("the pool was not filled");
    return 0;
}

static void open_pool(struct rig *r, uid_t uid)
{
    rig_make(r, uid);
    r->pool = POOL;
    rig_start(r);
    assert_true(rig_launch(r)); /* the first one is the launcher's own */
    rig_exit(r, 0);
    await_pool(r, 3);
}

static void ns_of(const struct rig *r, char ns[7][32])
{
    static const char *const names[7] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        char key[32];
        snprintf(key, sizeof(key), "\"%s\":", names[i]);
        const char *at = strstr(strstr(r->receipt, "\"namespaces\""), key);
        assert_non_null(at);
        snprintf(ns[i], 32, "%.*s", (int)strcspn(at, ",}"), at);
    }
}

/* Of pid 1, as the host sees it. */
static pid_t receipt_pid(const struct rig *r)
{
    long pid = 0;
    assert_int_equal(sscanf(strstr(r->receipt, "\"pid\":"), "\"pid\":%ld", &pid), 1);
    return (pid_t)pid;
}

/* Each prepared sandbox is used once: no two runs share a namespace, a pid or a file. The inode
 * numbers of namespaces are never reused while one lives, so all are kept alive by a descriptor. */
static void never_reused(uid_t uid)
{
    enum { RUNS = 8 };
    struct rig r;
    char seen[RUNS][7][32];
    int keep[RUNS];
    const char *out;
    rig_need_root();
    open_pool(&r, uid);
    for (unsigned i = 0; i < RUNS; i++) {
        char path[64];
        assert_true(rig_launch(&r));
        ns_of(&r, seen[i]);
        snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)receipt_pid(&r));
        keep[i] = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(keep[i] >= 0);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(seen[i][3], seen[k][3]);
        assert_int_equal(rig_sh(&r, "ls -A /tmp /home/agent; echo x > /tmp/x; hostname", &out), 0);
        assert_string_equal(out, "/home/agent:\n\n/tmp:\nbridle\n");
        /* loopback is there, and nobody else: the preparer has left it */
        assert_int_equal(rig_sh(&r, "ls -d /proc/[0-9]*", &out), 0);
        assert_null(strstr(out, "/proc/10"));
        rig_exit(&r, 0);
    }
    for (unsigned i = 0; i < RUNS; i++)
        close(keep[i]);
    rig_close(&r);
}

static void test_never_reused_as_root(void **state)
{
    (void)state;
    never_reused(0);
}

static void test_never_reused_as_user(void **state)
{
    (void)state;
    never_reused(RIG_USER);
}

/* 0: it has ended. */
static ino_t ns_ino(pid_t pid, const char *name)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* What a sandbox gets from who makes it. */
static const char *const names[] = {"net", "ipc", "uts"};

/* Is what prepares sandboxes in one of these with a sandbox? Its name, or NULL. */
static const char *shared_with_one(const struct rig *r)
{
    pid_t pids[CHILDREN_MAX], preparer;
    unsigned n = children(r->pid, pids, &preparer);
    for (unsigned k = 0; preparer && k < BR_ARRAY_LEN(names); k++) {
        ino_t home = ns_ino(preparer, names[k]);
        for (unsigned i = 0; home && i < n; i++)
            if (pids[i] != preparer && ns_ino(pids[i], names[k]) == home)
                return names[k];
    }
    return NULL;
}

/* Waits until it is in none: the last sandbox is there a moment before it is left. */
static void await_left(const struct rig *r)
{
    const char *name;
    for (unsigned waited = 0; (name = shared_with_one(r)); waited += 1000) {
        if (waited >= PATIENCE_US)
            fail_msg("the preparer stays in a sandbox's %s namespace", name);
        usleep(1000);
    }
}

/* Nobody but a sandbox is in its namespaces, not even what has made it. */
static void test_preparer_leaves(void **state)
{
    struct rig r;
    ino_t home[BR_ARRAY_LEN(names)] = {0};
    (void)state;
    rig_need_root();
    open_pool(&r, 0);
    for (unsigned i = 0; i < 4; i++) {
        pid_t preparer = await_pool(&r, 3);
        await_left(&r);
        for (unsigned k = 0; k < BR_ARRAY_LEN(names); k++) {
            ino_t now = ns_ino(preparer, names[k]);
            assert_true(now && now != ns_ino(getpid(), names[k]) && now != ns_ino(r.pid, names[k]));
            assert_true(i == 0 || now == home[k]);
            home[k] = now;
        }
        assert_true(rig_launch(&r));
        rig_exit(&r, 0);
    }
    rig_close(&r);
}

/* One after another without a pause: each was there before its plan was sent; on a busy machine,
 * where the launcher does not wait for long, nearly each. */
static void test_back_to_back(void **state)
{
    struct rig r;
    pid_t pids[CHILDREN_MAX], preparer;
    (void)state;
    rig_need_root();
    open_pool(&r, 0);
    unsigned made = 0;
    for (unsigned i = 0; i < 20; i++) {
        bool there = false;
        unsigned n = children(r.pid, pids, &preparer);
        assert_true(rig_launch(&r));
        for (unsigned c = 0; c < n; c++)
            there |= pids[c] == receipt_pid(&r);
        made += !there;
        rig_exit(&r, 0);
    }
    assert_in_range(made, 0, 3);
    rig_close(&r);
}

/* Descriptors of network namespaces that the launcher has. */
static unsigned networks(pid_t launcher)
{
    char path[64], link[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)launcher);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ssize_t k = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);
        link[k > 0 ? k : 0] = 0;
        n += strncmp(link, "net:[", 5) == 0;
    }
    closedir(d);
    return n;
}

/* Until it has no more than so many. */
static void await_networks(pid_t launcher, unsigned n)
{
    for (unsigned waited = 0; networks(launcher) > n && waited < PATIENCE_US; waited += 1000)
        usleep(1000);
    assert_int_equal(networks(launcher), n);
}

/* Network namespaces of sandboxes that have ended are kept while others follow, never more than 64,
 * and given up when none does. Nobody holds one besides, and so nothing is said of that. */
static void test_ended_networks(void **state)
{
    struct rig r;
    char said[4096];
    unsigned most = 0, now = 0, before = 0, given_up = 0;
    (void)state;
    rig_need_root();
    BR_CLEANUP_FD int log = memfd_create("log", MFD_CLOEXEC), own = dup(STDERR_FILENO);
    assert_true(log >= 0 && own >= 0 && dup2(log, STDERR_FILENO) >= 0);
    rig_make(&r, 0);
    r.pool = "0";
    rig_start(&r);
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    for (unsigned i = 0; i < 140; i++) {
        assert_true(rig_launch_at(&r, -1));
        rig_exit(&r, 0);
        before = now;
        now = networks(r.pid);
        most = now > most ? now : most;
        given_up += now < before;
    }
    /* the 64th is given up with the others before its end is told */
    assert_in_range(most, 2, 63);
    assert_in_range(given_up, 1, 140);
    await_networks(r.pid, 0);
    rig_close(&r);
    ssize_t n = pread(log, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = 0;
    assert_string_equal(said, "");
}

/* Plans that are refused end sandboxes too; what those had is given up when no other one comes. */
static void test_ended_by_refusal(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    r.pool = "0";
    r.fault = "EXEC:1:1"; /* when everything else is there */
    rig_start(&r);
    unsigned first = networks(r.pid), most = 0, now; /* a rig with a fault leaves one open */
    for (unsigned i = 0; i < 70; i++) {
        assert_false(rig_launch_at(&r, -1));
        now = networks(r.pid);
        most = now > most ? now : most;
    }
    assert_true(most > first);
    await_networks(r.pid, first);
    rig_close(&r);
}

/* Does the second launch succeed although the kernel has no room for its network namespace at
 * first? Only if that of the first one is still kept. */
static bool second_with_no_room(void)
{
    struct rig r;
    rig_make(&r, 0);
    r.pool = "0";
    r.fault = "UNSHARE:3:own=28"; /* ENOSPC, after its mounts and the first one */
    rig_start(&r);
    assert_true(rig_launch_at(&r, -1));
    rig_exit(&r, 0);
    bool through = rig_launch_at(&r, -1);
    if (through)
        rig_exit(&r, 0);
    assert_true(rig_launch_at(&r, -1));
    rig_exit(&r, 0);
    rig_close(&r);
    return through;
}

static void test_no_room(void **state)
{
    unsigned through = 0;
    (void)state;
    rig_need_root();
    /* a launcher that has been idle for 2 ms in between, on a busy machine, keeps none */
    for (unsigned i = 0; !through && i < 20; i++)
        through += second_with_no_room();
    assert_true(through);
}

/* What prepares sandboxes cannot leave the namespaces of one, or makes none for it: no sandbox is
 * in them with somebody else, and launches go on. `nth`: of the call in each process. */
static void preparer_fails(const char *call, unsigned first, unsigned last, const char *how)
{
    for (unsigned nth = first; nth <= last; nth++) {
        struct rig r;
        char fault[64];
        unsigned through = 0;
        snprintf(fault, sizeof(fault), "%s:%u:%s", call, nth, how);
        rig_make(&r, 0);
        r.pool = POOL;
        r.fault = fault;
        rig_start(&r);
        for (unsigned i = 0; i < 5; i++) {
            if (!rig_launch(&r))
                continue; /* the launcher's own one, and the same fault */
            through++;
            await_left(&r);
            rig_exit(&r, 0);
            usleep(30000); /* others are prepared */
            await_left(&r);
        }
        assert_in_range(through, 3, 5);
        rig_close(&r);
    }
}

static void test_preparer_fails(void **state)
{
    (void)state;
    rig_need_root();
    preparer_fails("SETNS", 1, 1, "1");
    preparer_fails("SETNS", 1, 1, "nothing");
    preparer_fails("UNSHARE", 3, 6, "once");
}

/* A preparer that can never make one is started less and less often. */
static void test_preparer_never_works(void **state)
{
    struct rig r;
    pid_t pids[CHILDREN_MAX], preparer, last = 0;
    unsigned started = 0;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    r.pool = POOL;
    r.fault = "SETNS:1:1";
    rig_start(&r);
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    for (unsigned ms = 0; ms < 1500; ms++) {
        (void)children(r.pid, pids, &preparer);
        started += preparer && preparer != last;
        last = preparer ? preparer : last;
        usleep(1000);
    }
    assert_in_range(started, 1, 10); /* 75, if it were every 20 ms */
    rig_close(&r);
}

/* A prepared sandbox that was killed is not used. */
static void test_prepared_killed(void **state)
{
    struct rig r;
    pid_t pids[CHILDREN_MAX], preparer;
    (void)state;
    rig_need_root();
    open_pool(&r, 0);
    unsigned n = children(r.pid, pids, &preparer);
    for (unsigned i = 0; i < n; i++)
        if (pids[i] != preparer) {
            BR_CLEANUP_FD int fd = (int)syscall(SYS_pidfd_open, pids[i], 0);
            struct pollfd p = {.fd = fd, .events = POLLIN};
            assert_int_equal(kill(pids[i], SIGKILL), 0);
            assert_int_equal(poll(&p, 1, 10000), 1);
        }
    assert_true(rig_launch(&r));
    assert_int_equal(rig_call(&r, "getpid"), 0);
    rig_exit(&r, 0);
    rig_close(&r);
}

/* The preparer is killed, again and again, at any moment: launches go on, nothing is left. */
static void test_preparer_killed(void **state)
{
    struct rig r;
    pid_t pids[CHILDREN_MAX], preparer;
    (void)state;
    rig_need_root();
    open_pool(&r, 0);
    for (unsigned i = 0; i < 40; i++) {
        (void)children(r.pid, pids, &preparer);
        if (preparer > 0 && i % 2)
            assert_int_equal(kill(preparer, SIGKILL), 0);
        assert_true(rig_launch(&r));
        (void)children(r.pid, pids, &preparer);
        if (preparer > 0 && i % 3 == 0)
            (void)kill(preparer, SIGKILL);
        rig_exit(&r, 0);
        usleep(i * 150); /* the preparer is at another step each time */
    }
    await_pool(&r, 3);
    rig_close(&r);
}

static bool all_gone(const pid_t *pids, unsigned n)
{
    for (unsigned waited = 0; waited < PATIENCE_US; waited += 1000) {
        unsigned left = 0;
        for (unsigned i = 0; i < n; i++)
            left += kill(pids[i], 0) == 0;
        if (!left)
            return true;
        usleep(1000);
    }
    return false;
}

/* SIGKILL for the launcher: the preparer and the prepared ones die with it; the next one sweeps. */
static void test_launcher_killed(void **state)
{
    struct rig r, alive, next;
    pid_t pids[CHILDREN_MAX], preparer;
    int status;
    (void)state;
    rig_need_root();
    open_pool(&r, 0);
    open_pool(&alive, 0);
    unsigned n = children(r.pid, pids, &preparer);
    assert_int_equal(n, 4);
    assert_int_equal(kill(r.pid, SIGKILL), 0);
    assert_int_equal(waitpid(r.pid, &status, 0), r.pid);
    assert_true(all_gone(pids, n));
    rig_open(&next, 0);
    assert_int_equal(rig_cgroups(r.pid), 0);
    await_pool(&alive, 3);
    assert_true(rig_launch(&alive));
    rig_exit(&alive, 0);
    r.pid = 0;
    br_chan_close(&r.chan);
    rig_close(&r);
    rig_close(&alive);
    rig_close(&next);
}

/* A plan that asks for other limits than the prepared ones have. */
static void test_other_limits(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    open_pool(&r, 0);
    for (int i = 0; i < 6; i++) {
        r.plan.limits.memory_bytes = (uint64_t)(i % 2 ? 3072 : 512) << 20;
        r.plan.limits.tmp_bytes = (uint64_t)(i % 2 ? 256 : 1) << 20;
        r.plan.limits.tmp_inodes = i % 2 ? 1000 : 16;
        assert_true(rig_launch(&r));
        assert_non_null(
            strstr(r.receipt, i % 2 ? "\"memoryBytes\":3221225472" : "\"memoryBytes\":536870912"));
        for (unsigned k = 0; k < 2; k++) {
            char command[64];
            snprintf(command, sizeof(command), "stat -f -c '%%b %%S %%c' %s",
                     k ? "/tmp" : "/home/agent");
            assert_int_equal(rig_sh(&r, command, &out), 0);
            assert_string_equal(out, i % 2 ? "65536 4096 1000\n" : "256 4096 16\n");
        }
        rig_exit(&r, 0);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_reused_as_root),
        cmocka_unit_test(test_never_reused_as_user),
        cmocka_unit_test(test_preparer_leaves),
        cmocka_unit_test(test_back_to_back),
        cmocka_unit_test(test_ended_networks),
        cmocka_unit_test(test_ended_by_refusal),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_preparer_fails),
        cmocka_unit_test(test_preparer_never_works),
        cmocka_unit_test(test_prepared_killed),
        cmocka_unit_test(test_preparer_killed),
        cmocka_unit_test(test_launcher_killed),
        cmocka_unit_test(test_other_limits),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
