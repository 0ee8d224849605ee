/*
 * One launcher, sandboxes one after another until the time is over, of every kind: prepared ones,
 * with leases, as the workspace's owner, killed, refused. Afterwards the launcher has as many
 * descriptors and children as before. Started by soak.sh, which looks at the rest of the machine.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "launch/test_rig.h"

#define MIB (1024ull * 1024)
#define POOL 3u
#define PATIENCE_US 10000000u

static unsigned descriptors(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static unsigned long resident_kib(pid_t pid)
{
    char path[64], line[256];
    unsigned long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "VmRSS: %lu", &kib) != 1)
        ;
    return kib;
}

/* Wait until the preparer and its boxes are there: the launcher is at rest. */
static void rest(const struct rig *r)
{
    for (unsigned waited = 0; rig_children(r->pid) != POOL + 1; waited += 1000) {
        if (waited > PATIENCE_US)
            fail_msg("the launcher has %u children, not %u", rig_children(r->pid), POOL + 1);
        usleep(1000);
    }
    usleep(50000); /* the last one is handed over */
}

static void plain(struct rig *r)
{
    for (unsigned i = 0; i < BR_DISKS; i++)
        r->plan.disks[i] = (struct br_quota){BR_QUOTA_NONE, 0, 0};
    r->plan.identity = BR_IDENTITY_DEDICATED;
    r->plan.workspace = BR_WORKSPACE_BIND;
    r->plan.limits = br_limits_default;
}

static void one(struct rig *r, unsigned n)
{
    bool killed = n % 5 == 3;
    plain(r);
    if (n % 8 == 1) {
        r->plan.disks[BR_DISK_STATE] = (struct br_quota){BR_QUOTA_EXT4, 4 * MIB, 64};
        r->plan.disks[BR_DISK_SCRATCH] = (struct br_quota){BR_QUOTA_TMPFS, MIB, 64};
    } else if (n % 16 == 2) {
        r->plan.workspace = BR_WORKSPACE_LEASE;
        r->plan.disks[BR_DISK_WORKSPACE] = (struct br_quota){BR_QUOTA_EXT4, 8 * MIB, 512};
    } else if (n % 16 == 4) {
        r->plan.identity = BR_IDENTITY_OWNER;
    } else if (n % 16 == 6) {
        r->plan.limits.tmp_bytes = MIB;
        r->plan.limits.memory_bytes = 64 * MIB;
    } else if (n % 16 == 7) {
        r->plan.limits.pids = 0;
        assert_false(rig_launch_at(r, -1));
        return;
    }
    assert_true(rig_launch(r));
    /* a daemon that holds a pipe, and files */
    assert_int_equal(
        rig_sh(r, "echo x > /tmp/x; setsid setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 0",
               NULL),
        0);
    if (!killed) {
        rig_exit(r, 0);
        return;
    }
    assert_int_equal(br_chan_send(&r->chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL), 0);
    rig_wait_stopped(r);
    assert_int_equal(r->verified, 1);
}

static void test_soak(void **state)
{
    struct rig r;
    const char *seconds = getenv("BRIDLE_SOAK_SECONDS");
    unsigned n = 0;
    (void)state;
    rig_need_root();
    assert_non_null(seconds);
    rig_make(&r, 0);
    r.pool = "3";
    rig_put(&r, "a.txt", "a\n");
    rig_start(&r);
    rig_config(&r);
    while (n < 32) /* every kind twice, and it has all the memory that it needs */
        one(&r, n++);
    rest(&r);
    unsigned fds = descriptors(r.pid);
    unsigned long before = resident_kib(r.pid);
    uint64_t end = br_now_us() + strtoull(seconds, NULL, 10) * 1000000;
    while (br_now_us() < end)
        one(&r, n++);
    rest(&r);
    printf("launches through one launcher: %u\n", n);
    printf("descriptors of the launcher: %u before, %u after\n", fds, descriptors(r.pid));
    printf("memory of the launcher: %lu KiB before, %lu KiB after\n", before, resident_kib(r.pid));
    fflush(stdout);
    assert_int_equal(descriptors(r.pid), fds);
#ifndef BR_SANITIZED /* whose allocator keeps what was freed */
    assert_true(resident_kib(r.pid) < before + 1024);
#endif
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
