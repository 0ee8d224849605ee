/*
 * Proof that the mounts of a box are gone. The launcher holds the mount namespace by a descriptor
 * from its birth: so the end of pid 1 does not wait until everything is unmounted, and the launcher
 * knows when the last reference is dropped, since it is its own. Then it asks the kernel for the
 * namespace by its number, which is never used again.
 *
 * Called by box.c. Trusts the kernel. Before Linux 6.11 it has no such question: there the proof is
 * that pid 1 was reaped (after everybody in its pid namespace) and that the cgroup was empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/box_priv.h"

#define GONE_DEADLINE_US 2000000u

/* linux/nsfs.h and linux/mount.h of Linux 6.11; the same on all machines that have a filter table
 */
#define MNTNS_ID _IOR(0xb7, 0x5, uint64_t)
#define NR_LISTMOUNT 458
#define MOUNT_ROOT UINT64_MAX
struct list_request {
    uint32_t size, spare;
    uint64_t mount, after, namespace;
};

int br_mntns_hold(struct br_box *b, struct br_err *err)
{
    char path[64];
    b->mntns = br_measure_open_ns(b->pidfd, BR_NS_MNT);
    if (b->mntns < 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)b->pid);
        b->mntns = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (b->mntns < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the sandbox's mount namespace could not be opened; nothing was "
                            "started");
    if (ioctl(b->mntns, MNTNS_ID, &b->mntns_id) < 0)
        b->mntns_id = 0;
    return 0;
}

static bool exists(uint64_t id)
{
    struct list_request rq = {.size = sizeof(rq), .mount = MOUNT_ROOT, .namespace = id};
    uint64_t one;
    return syscall(NR_LISTMOUNT, &rq, &one, 1, 0) >= 0 || (errno != ENOENT && errno != ENOSYS);
}

int br_mntns_release(struct br_box *b, struct br_err *err)
{
    uint64_t deadline = br_now_us() + GONE_DEADLINE_US;
    br_close(&b->mntns); /* unmounts, and waits for it */
    while (b->mntns_id && exists(b->mntns_id)) {
        /* somebody who reads its /proc files holds it as well, for a moment */
        struct timespec half = {.tv_nsec = 500000};
        if (br_now_us() >= deadline)
            return br_err_set(err, BR_E_FAILED,
                              "the sandbox's mounts still exist: a process outside of it holds its "
                              "mount namespace");
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &half, NULL);
    }
    b->mntns_id = 0;
    return 0;
}
