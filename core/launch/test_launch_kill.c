/*
 * SIGKILL for bridle-launch at every step of a launch: at the N-th system call that builds a
 * sandbox, for every N, whoever makes it (the launcher, the process that prepares sandboxes, a
 * future pid 1). Every process of it dies by itself; the next launcher removes the rest, and
 * nothing of one that lives. A launcher that gets through because there is no N-th call ends the
 * test.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

#define MIB (1024ull * 1024)
#define PATIENCE_US 10000000u

/* How often a file says this. */
static unsigned lines(const char *path, const char *what)
{
    unsigned n = 0;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4u << 20);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || br_read_all(fd, &b, path, NULL) < 0)
        return 0;
    for (const char *p = br_buf_cstr(&b); p && (p = strstr(p, what)); p++)
        n++;
    return n;
}

static unsigned loops(const struct rig *r)
{
    unsigned n = 0;
    DIR *d = opendir("/sys/block");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "/sys/block/%.64s/loop/backing_file", e->d_name);
        n += strncmp(e->d_name, "loop", 4) == 0 && lines(path, r->dir);
    }
    closedir(d);
    return n;
}

/* Files below r->dir/state/leases. */
static unsigned lease_files(const struct rig *r)
{
    char path[256];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/state/leases", r->dir);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, "bridle.", 7) == 0;
    if (d)
        closedir(d);
    return n;
}

/* What the launcher made is this process's child now: it ends without being told. */
static void await_orphans(unsigned n)
{
    for (unsigned waited = 0; rig_children(getpid()) > 1; waited += 200) { /* one is `alive` */
        (void)waitpid(-1, NULL, WNOHANG | __WALL);
        if (waited > PATIENCE_US)
            fail_msg("killed at step %u: a process of the launcher lives on", n);
        usleep(200);
    }
}

struct course {
    const char *pool;
    bool leases;
};

static void run(struct rig *r, unsigned launches)
{
    for (unsigned i = 0; !r->gone && i < launches; i++) {
        if (!rig_launch_at(r, -1) || r->gone)
            break;
        if (send(r->init, "exit 0", 6, MSG_NOSIGNAL) < 0)
            break;
        rig_wait_stopped(r);
        if (r->pool[0] > '1')
            usleep(6000); /* the next ones are prepared */
    }
}

static void set_up(struct rig *r, const struct course *c, unsigned n)
{
    rig_make(r, 0);
    r->pool = c->pool;
    r->kill = n;
    rig_put(r, "dir/", NULL);
    if (c->leases) {
        r->plan.disks[BR_DISK_STATE] = (struct br_quota){BR_QUOTA_EXT4, 4 * MIB, 64};
        r->plan.disks[BR_DISK_SCRATCH] = (struct br_quota){BR_QUOTA_TMPFS, MIB, 64};
    } else {
        rig_allow(r, "dir/**");
    }
    rig_start(r);
    if (c->leases && !r->gone)
        rig_config(r);
}

/* True: it was killed. */
static bool killed_at(unsigned n, const struct course *c, unsigned living, const struct rig *alive)
{
    struct rig r;
    int status = 0;
    set_up(&r, c, n);
    run(&r, c->pool[0] > '1' ? 3 : 1);
    bool through = !r.gone;
    if (through)
        br_chan_close(&r.chan); /* its end has steps as well */
    pid_t dead = r.pid;
    assert_int_equal(waitpid(dead, &status, 0), dead);
    if (through && WIFEXITED(status)) {
        assert_int_equal(status, 0);
    } else {
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        through = false;
        br_chan_close(&r.chan);
    }
    br_close(&r.init); /* nobody but pid 1 has the other end */
    br_close(&r.pidfd);
    await_orphans(n);
    /* the next one, in the same place */
    r.kill = 0;
    r.pool = "0";
    rig_start(&r);
    rig_config(&r);
    assert_true(rig_resolve(&r, -1)); /* it has seen the state directory */
    if (rig_cgroups(dead))
        fail_msg("killed at step %u: its cgroups were not swept", n);
    if (loops(&r) || lease_files(&r))
        fail_msg("killed at step %u: %u loop devices, %u lease files were not swept", n, loops(&r),
                 lease_files(&r));
    assert_int_equal(lines("/proc/self/mountinfo", r.dir), 0);
    assert_int_equal(rig_cgroups(alive->pid), living);
    if (n % 16 == 0) { /* and it works */
        assert_true(rig_launch(&r));
        rig_exit(&r, 0);
    }
    rig_close(&r);
    return !through;
}

/* Where a launch takes several times as long, a fifth of them. BRIDLE_TEST_STRIDE=1: each. */
static unsigned stride(void)
{
    const char *asked = getenv("BRIDLE_TEST_STRIDE");
#ifdef BR_SANITIZED
    unsigned n = 5;
#else
    unsigned n = 1;
#endif
    return asked && atoi(asked) > 0 ? (unsigned)atoi(asked) : n;
}

static void every_step(const struct course *c, unsigned at_least)
{
    struct rig alive;
    unsigned n = 1;
    rig_need_root();
    rig_open(&alive, 0);
    assert_true(rig_launch(&alive));
    unsigned living = rig_cgroups(alive.pid);
    assert_true(living > 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t keep = alive.pid;
    while (killed_at(n, c, living, &alive))
        n += stride();
    print_message("killed at %u steps\n", n - 1);
    assert_true(n > at_least);
    assert_int_equal(alive.pid, keep);
    assert_int_equal(rig_call(&alive, "getpid"), 0);
    rig_exit(&alive, 0);
    rig_close(&alive);
}

/* The first sandbox is the launcher's own, the others are prepared ones. */
static void test_prepared(void **state)
{
    (void)state;
    every_step(&(struct course){.pool = "2"}, 300);
}

static void test_cold(void **state)
{
    (void)state;
    every_step(&(struct course){.pool = "0"}, 120);
}

static void test_with_leases(void **state)
{
    (void)state;
    every_step(&(struct course){.pool = "0", .leases = true}, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_cold),
        cmocka_unit_test(test_with_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
