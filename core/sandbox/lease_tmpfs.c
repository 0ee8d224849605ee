/*
 * Leases in memory. The launcher mounts the tmpfs; what is written into it is charged to the memory
 * cgroup of whoever writes: the sandbox, whose pid 1 sits in its cgroup before the copy-in and
 * before it executes anything. Called by lease.c. Works for an ordinary user, in the launcher's own
 * user namespace.
 */
#include <stdio.h>
#include <unistd.h>

#include "sandbox/lease_priv.h"
#include "sandbox/sys.h"

int br_lease_tmpfs(struct br_disk_lease *d, struct br_err *err)
{
    /* the kernel rounds up to pages, and a quota is never exceeded */
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = d->quota.bytes / page * page;
    char text[4][32];
    snprintf(text[0], sizeof(text[0]), "%llu", (unsigned long long)size);
    snprintf(text[1], sizeof(text[1]), "%llu", (unsigned long long)d->quota.inodes);
    snprintf(text[2], sizeof(text[2]), "%u", d->uid);
    snprintf(text[3], sizeof(text[3]), "%u", d->gid);
    BR_CLEANUP_FD int fs = br_sys_fsopen("tmpfs");
    if (fs < 0 || br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", text[0]) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", text[1]) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "uid", text[2]) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "gid", text[3]) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755") < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0 ||
        (d->mount = br_sys_fsmount(fs, (unsigned)br_lease_attrs(d))) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "a tmpfs with a quota could not be mounted; nothing was started");
    d->inodes = d->quota.inodes;
    return 0;
}
