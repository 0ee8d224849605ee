/*
 * The set-up of leases, disturbed: every system call that makes one fails, or says that it has
 * worked and does nothing, or the launcher is killed right before it. The launch is refused, or is
 * as planned after all; and nothing is left, in the last case by the sweep of the next launcher,
 * which touches nothing that belongs to a live one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launch/test_lease_rig.h"

/* name, the least number of calls that one launch makes of it, and is it noticed by measurement if
 * each of them does nothing? */
static const struct {
    const char *call;
    int at_least;
    bool measured;
} calls[] = {
    {"LOOP", 6, false},          {"FALLOCATE", 2, true},  {"STATFS", 5, true},
    {"SPAWN", 1, true},          {"LEASEFILE", 5, true},  {"COPYIN", 2, false},
    {"FSOPEN", 4, true},         {"FSCONFIG", 12, false}, {"FSMOUNT", 4, true},
    {"MOUNT_SETATTR", 3, false}, {"CAPSET", 3, false},    {"MOVE_MOUNT", 4, false},
};

static int through_at[BR_ARRAY_LEN(calls)]; /* the first test counts them */

static void plan(struct rig *r)
{
    lease_plan(r, BR_DISK_WORKSPACE, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_plan(r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_plan(r, BR_DISK_SCRATCH, BR_QUOTA_TMPFS, 4 * MIB, 64);
    rig_put(r, "file", "text");
    rig_put(r, "dir/", NULL);
}

static void rig_with(struct rig *r, const char *fault)
{
    rig_make(r, 0);
    plan(r);
    r->fault = fault;
    /* no box from the pool: all calls are made by the launcher and its child, after the fault is
     * set, and can be counted */
    r->pool = "0";
    rig_start(r);
    rig_config(r);
}

/* The leases are as planned, or nothing runs. */
static bool as_planned_or_refused(struct rig *r, const char *fault)
{
    if (!rig_launch_at(r, -1)) {
        if (!r->text[0] || r->code == 0 || r->code >= BR_CODE_COUNT_)
            fail_msg("%s: no reason: %u '%s'", fault, r->code, r->text);
        assert_int_equal(rig_children(r->pid), 0);
        assert_int_equal(rig_cgroups(r->pid), 0);
        assert_null(rig_ask(r, "call getpid"));
        return false;
    }
    const char *out;
    int k = rig_sh(
        r, "cd /workspace && echo x > new && echo x > /state/new && echo x > /scratch/new", &out);
    /* 127: a mount of another part is missing, and there is no shell */
    if ((k != 0 && k != 127) || lease_number(r, "workspace", "inodes") != 64 ||
        lease_number(r, "scratch", "bytes") != 4 * (long long)MIB)
        fail_msg("%s: started with leases that are not as planned: %d %s\n%s", fault, k, out,
                 r->receipt);
    rig_exit(r, 0);
    return true;
}

static void test_each_call_fails(void **state)
{
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(calls); i++) {
        bool through = false;
        for (int n = 1; !through; n++) {
            struct rig r;
            char fault[64];
            snprintf(fault, sizeof(fault), "%s:%d:%d", calls[i].call, n, EPERM);
            rig_with(&r, fault);
            through = as_planned_or_refused(&r, fault);
            if (through && n <= calls[i].at_least)
                fail_msg("%s: a launch succeeded although it failed", fault);
            through_at[i] = n;
            lease_close(&r);
        }
    }
}

/* One of them says that it worked. What is not measured is either harmless, or fails later. */
static void test_each_call_does_nothing(void **state)
{
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(calls); i++) {
        for (int n = 1; n < through_at[i]; n++) {
            struct rig r;
            char fault[64];
            if (strcmp(calls[i].call, "COPYIN") == 0)
                continue; /* a kernel that loses what is written is no attack on the boundary */
            snprintf(fault, sizeof(fault), "%s:%d:once", calls[i].call, n);
            rig_with(&r, fault);
            if (as_planned_or_refused(&r, fault) && calls[i].measured)
                fail_msg("%s: a launch succeeded although it did nothing", fault);
            lease_close(&r);
        }
    }
}

/* ---- the launcher is killed ---- */

/* Send the plan; true if the launcher died before it said that all is over. */
static bool dies(struct rig *r)
{
    int pair[2], status;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    int ws = open(r->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(ws >= 0);
    br_plan_put(&o.buf, &r->plan);
    br_out_fd(&o, ws, true);
    br_out_fd(&o, pair[1], true);
    assert_int_equal(br_chan_send(&r->chan, BR_MSG_LAUNCH_PLAN, 7, &o, NULL), 0);
    r->stopped = r->started = false;
    for (int k = 0; k == 0;) {
        struct pollfd p = {.fd = r->chan.fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 30000), 1);
        k = br_chan_dispatch(&r->chan, NULL);
        if (r->started) /* the sandbox ends by this: its cleanup is a step as well */
            br_close(&pair[0]);
        if (r->stopped) {
            assert_int_equal(r->verified, 1);
            return false;
        }
        if (r->refused)
            fail_msg("%s: refused: %s", r->fault, r->text);
    }
    br_close(&pair[0]);
    br_chan_close(&r->chan);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    assert_true(WIFSIGNALED(status));
    return true;
}

/* Whatever it started ends by itself: tools of e2fsprogs, the child, and with them loop devices. */
static void wait_gone(const struct rig *r)
{
    for (int i = 0; i < 5000 && lease_loops(r) > 0; i++)
        usleep(1000);
    assert_int_equal(lease_loops(r), 0);
}

static void test_killed_at_each_step(void **state)
{
    /* name, and its first call that is made for a lease and not for the root */
    static const struct {
        const char *call;
        int first;
    } steps[] = {{"LEASEFILE", 1}, {"SPAWN", 1},  {"FALLOCATE", 1}, {"LOOP", 1},
                 {"STATFS", 1},    {"FSOPEN", 2}, {"FSCONFIG", 5},  {"FSMOUNT", 2}};
    unsigned with_files = 0;
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(steps); i++) {
        for (int n = steps[i].first;; n++) {
            struct rig r;
            char fault[64];
            pid_t dead;
            snprintf(fault, sizeof(fault), "%s:%d:kill", steps[i].call, n);
            rig_with(&r, fault);
            dead = r.pid;
            if (!dies(&r)) {
                if (n == steps[i].first)
                    fail_msg("%s: it was not killed", fault);
                lease_close(&r);
                break;
            }
            wait_gone(&r);
            with_files += lease_files(&r, ".tmp") > 0;
            r.fault = NULL;
            rig_start(&r); /* the next launcher, with the same state directory */
            rig_config(&r);
            assert_true(rig_launch(&r));
            assert_true(lease_files(&r, ".tmp") == 0);
            assert_int_equal(rig_cgroups(dead), 0);
            rig_exit(&r, 0);
            lease_close(&r);
        }
    }
    assert_true(with_files > 0); /* control: the sweep had something to do */
}

/* ---- the sweep ---- */

static void owner_name(char name[128], pid_t pid, const char *boot, const char *rest)
{
    char path[64], text[1024] = "", id[9] = "";
    struct stat st;
    unsigned long long start = 1;
    assert_int_equal(stat("/proc/self/ns/pid", &st), 0);
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0) {
        const char *p = strrchr(text, ')');
        for (int field = 2; p && field < 22; field++)
            p = strchr(p + 1, ' ');
        assert_non_null(p);
        start = strtoull(p + 1, NULL, 10);
    }
    BR_CLEANUP_FD int b = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    assert_true(b >= 0 && read(b, id, 8) == 8);
    snprintf(name, 128, "bridle.%llu.%s.%d.%llu.%s.tmp", (unsigned long long)st.st_ino,
             boot ? boot : id, (int)pid, start, rest);
}

static int put_lease_file(const struct rig *r, const char *name)
{
    int fd = open(lease_file(r, name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static bool there(const struct rig *r, const char *name)
{
    return access(lease_file(r, name), F_OK) == 0;
}

static void test_sweep(void **state)
{
    struct rig r;
    char live[128], dead[128], past[128], locked[128], link[128];
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    char path[128];
    snprintf(path, sizeof(path), "%s/state", r.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mkdir(lease_file(&r, ""), 0700), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    owner_name(live, getpid(), NULL, "a");
    owner_name(dead, pid, NULL, "b");
    owner_name(past, getpid(), "00000000", "c");
    owner_name(locked, getpid(), "00000000", "d");
    owner_name(link, pid, NULL, "e");
    close(put_lease_file(&r, live));
    close(put_lease_file(&r, dead));
    close(put_lease_file(&r, past));
    close(put_lease_file(&r, "state-x.img"));
    close(put_lease_file(&r, "somebody's"));
    BR_CLEANUP_FD int held = put_lease_file(&r, locked);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(symlink("state-x.img", lease_file(&r, link)), 0);
    rig_start(&r);
    rig_config(&r);
    assert_true(rig_launch(&r)); /* it has read its configuration */
    rig_exit(&r, 0);
    assert_false(there(&r, dead));
    assert_false(there(&r, past));
    assert_true(there(&r, live));
    assert_true(there(&r, locked));
    assert_true(there(&r, "state-x.img"));
    assert_true(there(&r, "somebody's"));
    br_close(&held);
    assert_int_equal(unlink(lease_file(&r, live)), 0);
    assert_int_equal(unlink(lease_file(&r, locked)), 0);
    assert_int_equal(unlink(lease_file(&r, link)), 0);
    lease_close(&r);
}

/* A launcher that starts touches nothing of one that runs. */
static void test_live_is_untouched(void **state)
{
    struct rig a;
    const char *out;
    (void)state;
    rig_need_root();
    rig_with(&a, NULL);
    strcpy(a.plan.state, "mine");
    assert_true(rig_launch(&a));
    assert_int_equal(rig_sh(&a, "echo here > /state/f; echo here > /workspace/f", &out), 0);
    struct rig b = a; /* another launcher with the same directories */
    b.receipt = NULL;
    b.init = b.pidfd = -1;
    rig_start(&b);
    rig_config(&b);
    b.plan.state[0] = 0;
    assert_true(rig_launch(&b));
    rig_exit(&b, 0);
    br_close(&b.init);
    br_close(&b.pidfd);
    br_chan_close(&b.chan);
    assert_int_equal(waitpid(b.pid, NULL, 0), b.pid);
    free(b.receipt);
    assert_int_equal(rig_sh(&a, "cat /state/f /workspace/f && echo more >> /state/f", &out), 0);
    assert_string_equal(out, "here\nhere\n");
    rig_exit(&a, 0);
    lease_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_fails),     cmocka_unit_test(test_each_call_does_nothing),
        cmocka_unit_test(test_killed_at_each_step), cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_live_is_untouched),
    };
    lease_own_mounts();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
