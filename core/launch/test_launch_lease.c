/*
 * Leases through real sandboxes: what the receipt says of them, the copy of a workspace, what is
 * refused, and that nothing is left. Quotas are attacked in test_launch_quota.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "launch/test_rig.h"

#define MIB (1024ull * 1024)

static void lease(struct rig *r, enum br_disk disk, uint8_t kind, uint64_t bytes, uint64_t inodes)
{
    r->plan.disks[disk] = (struct br_quota){kind, bytes, inodes};
    if (disk == BR_DISK_WORKSPACE)
        r->plan.workspace = BR_WORKSPACE_LEASE;
}

static void test_smoke(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    rig_config(&r);
    rig_put(&r, "a.txt", "hello");
    lease(&r, BR_DISK_WORKSPACE, BR_QUOTA_EXT4, 8 * MIB, 512);
    lease(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease(&r, BR_DISK_SCRATCH, BR_QUOTA_TMPFS, 4 * MIB, 64);
    assert_true(rig_launch(&r));
    assert_int_equal(
        rig_sh(&r,
               "pwd; ls -lan /workspace /state /scratch; cat a.txt; cat /proc/self/mountinfo; id",
               &out),
        0);
    assert_int_equal(rig_sh(&r, "echo x > b; echo x > /state/b; echo x>/scratch/b", &out), 0);
    rig_exit(&r, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smoke),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
