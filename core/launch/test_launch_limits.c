/*
 * The limits of a sandbox, each at N and at N + 1, and its end: by itself, by LAUNCH_KILL, by the
 * loss of the supervisor, by the loss of the launcher. Afterwards nothing is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

static void tmp_limits(struct rig *r, const char *dir)
{
    char script[512];
    const char *out;
    /* bytes: 256 pages fit, 257 do not */
    snprintf(script, sizeof(script),
             "dd if=/dev/zero of=%s/f bs=4096 count=256 2>/dev/null && rm %s/f", dir, dir);
    assert_int_equal(rig_sh(r, script, &out), 0);
    snprintf(script, sizeof(script),
             "dd if=/dev/zero of=%s/f bs=4096 count=257; s=$?; rm %s/f; "
             "exit $s",
             dir, dir);
    assert_int_equal(rig_sh(r, script, &out), 1);
    assert_non_null(strstr(out, "No space left on device"));
    /* inodes: the directory itself and 31 files */
    snprintf(script, sizeof(script),
             "cd %s && for i in $(seq 31); do : > f$i || exit 9; done; "
             ": > one-more",
             dir);
    assert_int_equal(rig_sh(r, script, &out), 2);
    assert_non_null(strstr(out, "No space left on device"));
    snprintf(script, sizeof(script), "cd %s && test -e f31 && ! test -e one-more", dir);
    assert_int_equal(rig_sh(r, script, &out), 0);
}

static void limits(uid_t uid)
{
    struct rig r;
    const char *out;
    rig_need_root();
    rig_open(&r, uid);
    rig_put(&r, "out/", NULL);
    rig_allow(&r, "out/");
    r.plan.limits.tmp_bytes = 1 << 20;
    r.plan.limits.tmp_inodes = 32;
    r.plan.limits.memory_bytes = 64 << 20;
    r.plan.limits.pids = 20;
    r.plan.limits.fsize_bytes = 2 << 20;
    r.plan.limits.nofile = 64;
    assert_true(rig_launch(&r));
    tmp_limits(&r, "/tmp");
    tmp_limits(&r, "/home/agent");
    /* processes: pid 1 is one of them */
    assert_string_equal(rig_ask(&r, "fork 19"), "19 0");
    assert_string_equal(rig_ask(&r, "fork 20"), "19 11"); /* EAGAIN */
    /* memory: the child is killed, pid 1 goes on */
    assert_string_equal(rig_ask(&r, "eat 32"), "0");
    assert_string_equal(rig_ask(&r, "eat 80"), "137");
    /* file size */
    assert_int_equal(rig_sh(&r, "dd if=/dev/zero of=out/f bs=1024 count=2048 2>/dev/null", &out),
                     0);
    assert_int_not_equal(rig_sh(&r, "dd if=/dev/zero of=out/f bs=1024 count=2049 2>&1", &out), 0);
    assert_int_equal(rig_sh(&r,
                            "test $(stat -c %s out/f) = 2097152; ulimit -n; ulimit -Hn; "
                            "ulimit -c",
                            &out),
                     0);
    assert_string_equal(out, "64\n64\n0\n");
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_limits_as_root(void **state)
{
    (void)state;
    limits(0);
}

static void test_limits_as_user(void **state)
{
    (void)state;
    rig_need_root();
    limits(RIG_USER);
}

/* The directory of a controller's cgroup, from the receipt. */
static void cgroup_of(const struct rig *r, const char *controller, char *dst, size_t cap)
{
    *dst = 0;
    for (const char *p = r->receipt; (p = strstr(p, "\"path\":\""));) {
        p += strlen("\"path\":\"");
        snprintf(dst, cap, "%.*s", (int)strcspn(p, "\""), p);
        if (strstr(dst, controller) || strstr(r->receipt, "\"version\":2"))
            return;
    }
    fail_msg("the receipt names no cgroup of %s: %s", controller, r->receipt);
}

static void test_cpu_is_throttled(void **state)
{
    struct rig r;
    char path[4096], text[512] = "";
    const char *out;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    r.plan.limits.cpu_percent = 10;
    assert_true(rig_launch(&r));
    assert_non_null(strstr(r.receipt, "\"cpuPercent\":10"));
    assert_int_equal(rig_sh(&r, "timeout 0.5 sh -c 'while :; do :; done'", &out), 124);
    cgroup_of(&r, "cpu", path, sizeof(path));
    strncat(path, "/cpu.stat", sizeof(path) - strlen(path) - 1);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    const char *throttled = strstr(text, "nr_throttled ");
    assert_non_null(throttled);
    assert_true(atoi(throttled + strlen("nr_throttled ")) > 0);
    rig_exit(&r, 0);
    rig_close(&r);
}

/* What programs take for their limits: one CPU of the host's, and the cgroup's memory. */
static void test_limits_are_seen(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    r.plan.limits.cpu_percent = 50;
    r.plan.limits.memory_bytes = 96 << 20;
    assert_true(rig_launch(&r));
    assert_non_null(strstr(r.receipt, "\"cpus\":1"));
    assert_int_equal(
        rig_sh(&r, "nproc; python3 -c 'import os; print(len(os.sched_getaffinity(0)))'", &out), 0);
    assert_string_equal(out, "1\n1\n");
    assert_int_equal(rig_sh(&r,
                            "cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes "
                            "2>/dev/null",
                            &out),
                     1); /* one of the two */
    assert_string_equal(out, "100663296\n");
    /* and only seen */
    assert_int_not_equal(rig_sh(&r,
                                "cd /sys/fs/cgroup; echo 1000000000 > memory.max || "
                                "echo 1000000000 > memory/memory.limit_in_bytes",
                                &out),
                         0);
    assert_int_equal(rig_sh(&r,
                            "cat /sys/fs/cgroup/memory/cgroup.procs /sys/fs/cgroup/cgroup.procs "
                            "2>/dev/null | grep -c .",
                            &out),
                     0);
    assert_true(atoi(out) < 8); /* nobody but its own */
    if (rig_sh(&r, "command -v node", &out) == 0) {
        assert_int_equal(rig_sh(&r,
                                "node -p 'require(\"os\").cpus().length > 0 && "
                                "process.constrainedMemory()'",
                                &out),
                         0);
        assert_string_equal(out, "100663296\n");
    }
    rig_exit(&r, 0);
    rig_close(&r);
    /* a host that narrows nothing is noticed */
    rig_make(&r, 0);
    r.plan.limits.cpu_percent = 50;
    r.fault = "AFFINITY:1:nothing";
    rig_start(&r);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        assert_false(rig_launch_at(&r, -1));
        assert_non_null(strstr(r.text, "it sees more CPUs than it may use"));
    }
    rig_close(&r);
}

/* Descriptors: N are open, the next one is not. */
static void test_descriptors(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    r.plan.limits.nofile = 64;
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r,
                            "python3 -c 'import os\nn=len(os.listdir(\"/proc/self/fd\"))-1\n"
                            "try:\n while True: os.dup(0); n+=1\n"
                            "except OSError as e: print(n, e.errno)'",
                            &out),
                     0);
    assert_string_equal(out, "64 24\n"); /* EMFILE */
    assert_int_not_equal(rig_sh(&r, "ulimit -n 65", &out), 0);
    rig_exit(&r, 0);
    rig_close(&r);
}

static bool ended(int pidfd, int ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

static void test_kill(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "setsid sleep 1000 >/dev/null 2>&1 & exit 0", NULL), 0);
    assert_true(rig_cgroups(r.pid) > 0);
    assert_int_equal(br_chan_send(&r.chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL), 0);
    rig_wait_stopped(&r);
    assert_int_equal(r.verified, 1);
    assert_int_equal(r.status, SIGKILL);
    assert_true(ended(r.pidfd, 0));
    /* a late kill is no violation */
    assert_int_equal(br_chan_send(&r.chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL), 0);
    rig_close(&r);
}

static void test_many_plans(void **state)
{
    struct rig r;
    const char *out;
    char first[sizeof(r.name)] = "";
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    for (int i = 0; i < 5; i++) {
        /* the limits of a prepared one are raised and lowered to the plan's */
        r.plan.limits.memory_bytes = (uint64_t)(i % 2 ? 3072 : 512) << 20;
        r.plan.limits.cpu_percent = i % 2 ? 400 : 50;
        assert_true(rig_launch(&r));
        assert_non_null(
            strstr(r.receipt, i % 2 ? "\"memoryBytes\":3221225472" : "\"memoryBytes\":536870912"));
        /* nothing of the one before */
        assert_int_equal(rig_sh(&r, "ls -A /tmp /home/agent; echo x > /tmp/x", &out), 0);
        assert_string_equal(out, "/home/agent:\n\n/tmp:\n");
        assert_string_not_equal(r.name, first);
        snprintf(first, sizeof(first), "%s", r.name);
        rig_exit(&r, i);
        if (i >= 2) /* long enough for the next one to be prepared before its plan */
            usleep(30000);
    }
    rig_close(&r);
}

static void test_supervisor_gone(void **state)
{
    struct rig r;
    int status = -1;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "setsid sleep 1000 >/dev/null 2>&1 & exit 0", NULL), 0);
    br_chan_close(&r.chan);
    assert_int_equal(waitpid(r.pid, &status, 0), r.pid);
    assert_int_equal(status, 0);
    assert_true(ended(r.pidfd, 0));
    assert_int_equal(rig_cgroups(r.pid), 0);
    r.pid = 0;
    rig_close(&r);
}

/* The launcher is killed: the sandbox dies with it; the next launcher sweeps its cgroup, and does
 * not touch that of one that lives. */
static void test_launcher_killed(void **state)
{
    struct rig dead, alive, next;
    int status = -1;
    (void)state;
    rig_need_root();
    rig_open(&dead, 0);
    rig_open(&alive, 0);
    assert_true(rig_launch(&dead));
    assert_true(rig_launch(&alive));
    assert_int_equal(kill(dead.pid, SIGKILL), 0);
    assert_int_equal(waitpid(dead.pid, &status, 0), dead.pid);
    assert_true(ended(dead.pidfd, 10000));
    assert_true(rig_cgroups(dead.pid) > 0);
    unsigned living = rig_cgroups(alive.pid);
    assert_true(living > 0);
    rig_open(&next, 0);
    assert_int_equal(rig_cgroups(dead.pid), 0);
    assert_int_equal(rig_cgroups(alive.pid), living);
    rig_exit(&alive, 0);
    dead.pid = 0;
    br_chan_close(&dead.chan);
    rig_close(&dead);
    rig_close(&alive);
    rig_close(&next);
}

/* A cgroup that cannot be removed is said, not hidden. */
static void test_unverified(void **state)
{
    struct rig r, next;
    int status = -1;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    r.fault = "RMCGROUP:1:5"; /* EIO */
    rig_start(&r);
    assert_true(rig_launch(&r));
    assert_true(send(r.init, "exit 0", 6, MSG_NOSIGNAL) > 0);
    rig_wait_stopped(&r);
    assert_int_equal(r.verified, 0);
    assert_non_null(strstr(r.text, "could not be removed"));
    assert_true(rig_cgroups(r.pid) > 0);
    br_chan_close(&r.chan);
    assert_int_equal(waitpid(r.pid, &status, 0), r.pid);
    rig_open(&next, 0); /* sweeps it */
    assert_int_equal(rig_cgroups(r.pid), 0);
    r.pid = 0;
    rig_close(&r);
    rig_close(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_as_root),   cmocka_unit_test(test_limits_as_user),
        cmocka_unit_test(test_cpu_is_throttled), cmocka_unit_test(test_limits_are_seen),
        cmocka_unit_test(test_descriptors),      cmocka_unit_test(test_kill),
        cmocka_unit_test(test_many_plans),       cmocka_unit_test(test_supervisor_gone),
        cmocka_unit_test(test_launcher_killed),  cmocka_unit_test(test_unverified),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
