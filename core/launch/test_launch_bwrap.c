/*
 * Sandboxes that bubblewrap makes for the same plan: what the receipt says is measured like that of
 * a native one, the workspace is the plan's, the limits hold, the end is verified; and what
 * bubblewrap cannot express is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/test_rig.h"

static void plan_of(struct rig *r)
{
    r->plan.backend = BR_BACKEND_BWRAP;
    r->plan.flags |= BR_PLAN_NO_LANDLOCK;
}

static void open_bwrap(struct rig *r, uid_t uid)
{
    rig_need_root();
    rig_open(r, uid);
    plan_of(r);
}

/* Runs a script inside and compares all of its output. */
static void says(struct rig *r, const char *script, const char *expected)
{
    const char *out;
    (void)rig_sh(r, script, &out);
    if (strcmp(out, expected) != 0)
        fail_msg("%s\nexpected: %s\ngot: %s", script, expected, out);
}

static void has(const struct rig *r, const char *text)
{
    if (!strstr(r->receipt, text))
        fail_msg("no %s in %s", text, r->receipt);
}

static void check(uid_t uid)
{
    struct rig r;
    open_bwrap(&r, uid);
    rig_put(&r, "file", "x\n");
    rig_put(&r, "src/", NULL);
    rig_put(&r, "src/a", "a\n");
    rig_allow(&r, "src/**");
    r.plan.flags |= BR_PLAN_TMP_NOEXEC;
    r.plan.limits.nofile = 77;
    assert_true(rig_launch(&r));
    has(&r, "\"backend\":\"bwrap\"");
    has(&r, "\"noNewPrivs\":true,\"seccomp\":2");
    has(&r, "\"effective\":0,\"bounding\":0,\"ambient\":0");
    has(&r, "\"landlock\":0");
    has(&r, "\"nofile\":77");
    says(&r, "id -u; id -g; hostname; pwd; ulimit -n", "1000\n1000\nbridle\n/workspace\n77\n");
    says(&r, "cat file; echo y > file; echo b > src/b; cat src/b",
         "x\nsh: 1: cannot create file: Read-only file system\nb\n");
    says(&r, "cp /bin/true /tmp/t; /tmp/t || echo refused",
         "sh: 1: /tmp/t: Permission denied\nrefused\n");
    says(&r, "wc -c < /proc/cmdline; ls -A /run; ls -A /home/agent", "0\n");
    says(&r, "env | sort",
         "HOME=/home/agent\nLANG=C.UTF-8\nLOGNAME=agent\nPATH=/usr/local/bin:/usr/bin:/bin\n"
         "PWD=/workspace\nTMPDIR=/tmp\nUSER=agent\n");
    /* the channel, which this pid 1 hands on, and the directory that ls reads */
    says(&r, "ls /proc/self/fd", "0\n1\n2\n3\n4\n");
    assert_int_equal(rig_call(&r, "mount"), EPERM);
    rig_exit(&r, 7);
    assert_int_equal(r.status, 7 << 8);
    rig_close(&r);
}

static void test_as_root(void **state)
{
    (void)state;
    check(0);
}

static void test_as_user(void **state)
{
    (void)state;
    check(RIG_USER);
}

/* The limits of the cgroup and of the tmpfs hold, with one below as the control. */
static void test_limits(void **state)
{
    struct rig r;
    (void)state;
    open_bwrap(&r, 0);
    r.plan.limits.tmp_inodes = 10;
    r.plan.limits.memory_bytes = 64u << 20;
    assert_true(rig_launch(&r));
    has(&r, "\"memoryBytes\":67108864");
    says(&r, "i=0; while touch /tmp/$i 2>/dev/null; do i=$((i+1)); done; echo $i", "9\n");
    assert_int_equal(rig_sh(&r, "head -c 16m /dev/zero | tail -c 16m > /dev/null", NULL), 0);
    assert_int_not_equal(rig_sh(&r, "head -c 200m /dev/zero | tail -c 200m > /dev/null", NULL), 0);
    rig_exit(&r, 0);
    rig_close(&r);
}

/* Everything inside ends, and bubblewrap with it. */
static void test_killed(void **state)
{
    struct rig r;
    (void)state;
    open_bwrap(&r, 0);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "setsid sleep 1000 >/dev/null 2>&1 & exit 0", NULL), 0);
    assert_true(rig_children(r.pid) > 0);
    assert_int_equal(br_chan_send(&r.chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL), 0);
    rig_wait_stopped(&r);
    assert_int_equal(r.verified, 1);
    assert_int_equal(r.status, SIGKILL);
    /* and the other backend afterwards */
    br_plan_default(&r.plan);
    assert_true(rig_launch(&r));
    has(&r, "\"backend\":\"native\"");
    rig_exit(&r, 0);
    rig_close(&r);
}

/* The launcher dies: so does the sandbox, through bubblewrap. */
static void test_launcher_killed(void **state)
{
    struct rig r, next;
    struct pollfd p;
    (void)state;
    open_bwrap(&r, 0);
    assert_true(rig_launch(&r));
    assert_int_equal(kill(r.pid, SIGKILL), 0);
    assert_int_equal(waitpid(r.pid, NULL, 0), r.pid);
    p = (struct pollfd){.fd = r.pidfd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    rig_open(&next, 0); /* sweeps */
    assert_int_equal(rig_cgroups(r.pid), 0);
    r.pid = 0;
    br_chan_close(&r.chan);
    rig_close(&r);
    rig_close(&next);
}

/* A workspace that is a copy in a lease, and scratch space, each with its quota. */
static void test_leases(void **state)
{
    struct rig r;
    (void)state;
    open_bwrap(&r, 0);
    rig_config(&r);
    rig_put(&r, "file", "x\n");
    r.plan.workspace = BR_WORKSPACE_LEASE;
    r.plan.disks[BR_DISK_WORKSPACE] = (struct br_quota){BR_QUOTA_EXT4, 4u << 20, 64};
    r.plan.disks[BR_DISK_SCRATCH] = (struct br_quota){BR_QUOTA_TMPFS, 1u << 20, 16};
    assert_true(rig_launch(&r));
    says(&r, "cat file; echo y > file; cat file", "x\ny\n");
    says(&r, "i=0; while touch /scratch/$i 2>/dev/null; do i=$((i+1)); done; echo $i", "15\n");
    rig_exit(&r, 0);
    rig_close(&r);
}

/* The parent of a process. */
static pid_t parent_of(pid_t pid)
{
    char path[32], text[512] = "";
    int ppid = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    const char *behind = strrchr(text, ')'); /* "pid (name) state ppid" */
    assert_true(behind && sscanf(behind, ") %*c %d", &ppid) == 1);
    return ppid;
}

/* bubblewrap is killed: the sandbox ends with it, and that is verified. */
static void bwrap_killed(uid_t uid)
{
    struct rig r;
    int pid1 = 0;
    open_bwrap(&r, uid);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "setsid sleep 1000 >/dev/null 2>&1 & exit 0", NULL), 0);
    const char *said = strstr(r.receipt, "\"pid\":");
    assert_true(said && sscanf(said, "\"pid\":%d", &pid1) == 1);
    pid_t bwrap = parent_of(pid1);
    assert_int_equal(parent_of(bwrap), r.pid);
    assert_int_equal(kill(bwrap, SIGKILL), 0);
    rig_wait_stopped(&r);
    assert_int_equal(r.verified, 1);
    assert_int_equal(r.status, SIGKILL);
    assert_int_equal(waitpid(pid1, NULL, 0), pid1); /* an orphan by then: it came to us */
    assert_true(rig_launch(&r));                    /* the launcher goes on */
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_bwrap_killed(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    bwrap_killed(0);
    bwrap_killed(RIG_USER);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

/* Something else in its place, seen by this test and its launcher only. */
static void replaced(const char *text, uid_t owner, mode_t mode, const char *says)
{
    struct rig r;
    char path[] = "/tmp/bridle-bwrap-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchown(fd, owner, owner), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    assert_int_equal(mount(path, "/usr/bin/bwrap", NULL, MS_BIND, NULL), 0);
    open_bwrap(&r, 0);
    bool ok = rig_launch_at(&r, -1);
    int code = (int)r.code;
    if (!ok && !strstr(r.text, says))
        fail_msg("not '%s' in: %s", says, r.text);
    assert_int_equal(rig_children(r.pid), 0);
    assert_int_equal(rig_cgroups(r.pid), 0);
    rig_close(&r);
    assert_int_equal(umount2("/usr/bin/bwrap", MNT_DETACH), 0);
    assert_int_equal(unlink(path), 0);
    assert_false(ok);
    assert_int_equal(code, BR_E_REQUIREMENT_MISSING);
}

static void test_replaced(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    static const char ends[] = "#!/bin/sh\nexit 0\n";
    replaced(ends, RIG_USER, 0755, "is not a program that only root can change");
    replaced(ends, 0, 0775, "is not a program that only root can change");
    replaced(ends, 0, 0644, "nothing was started");
    replaced(ends, 0, 0755, "bubblewrap could not make the sandbox");
    /* one that names a process outside as the sandbox: it is neither taken for it nor killed */
    pid_t other = fork();
    if (other == 0)
        for (;;)
            (void)pause();
    char names[128];
    snprintf(names, sizeof(names), "#!/bin/sh\necho '{\"child-pid\":%d}' >&4\nexec 4>&-\nexit 0\n",
             (int)other);
    replaced(names, 0, 0755, "bubblewrap could not make the sandbox");
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, NULL, 0), other);
    open_bwrap(&r, 0); /* the control */
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_refused(void **state)
{
    struct rig r;
    (void)state;
    open_bwrap(&r, 0);
    r.plan.flags = 0;
    assert_false(rig_launch_at(&r, -1));
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.text, "cannot express Landlock"));
    assert_int_equal(rig_children(r.pid), 0);
    assert_int_equal(rig_cgroups(r.pid), 0);
    plan_of(&r);
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),         cmocka_unit_test(test_as_user),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_killed),
        cmocka_unit_test(test_launcher_killed), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_leases),          cmocka_unit_test(test_bwrap_killed),
        cmocka_unit_test(test_replaced),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
