/*
 * Tests only: what the tests of leases share beyond the rig.
 */
#ifndef BR_LAUNCH_TEST_LEASE_RIG_H
#define BR_LAUNCH_TEST_LEASE_RIG_H

#include "launch/test_rig.h"

#define MIB (1024ull * 1024)

/* A mount namespace of the test program's own, so that nothing it mounts can stay behind. */
void lease_own_mounts(void);
/* Ask for a lease in the plan. */
void lease_plan(struct rig *r, enum br_disk disk, uint8_t kind, uint64_t bytes, uint64_t inodes);
/* A number of the receipt, of one lease ("workspace"); -1 if it is not there. */
long long lease_number(const struct rig *r, const char *lease, const char *key);
/* Make the state directory a tmpfs of that size (before rig_config()), and undo it. */
void lease_state_tmpfs(const struct rig *r, const char *size);
void lease_state_umount(const struct rig *r);
/* Path of a file in the lease root. */
const char *lease_file(const struct rig *r, const char *name);
/* How many files there are in it whose names end so; -1 if there is no lease root. */
int lease_files(const struct rig *r, const char *suffix);
/* How many loop devices hold an image of this launcher, or a file below r->dir. */
unsigned lease_loops(const struct rig *r);
/* No loop device and no unfinished file. */
void lease_nothing_left(struct rig *r);
/* rig_close(), and all of that. */
void lease_close(struct rig *r);
/* The launch is refused with this code and a text that has `part` in it; and nothing is left: no
 * process, no cgroup either. */
void lease_refused(struct rig *r, enum br_code code, const char *part);

#endif
