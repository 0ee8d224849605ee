/*
 * The leases of one box, from the launcher's side: make, hand over, measure, release, and the sweep
 * of what dead launchers left. Called by box.c, host.c and resolve.c. Trusts the kernel; the lease
 * root is checked before it is used, and everything in it is opened beneath it by descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/lease_priv.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

#define EXT4_MAGIC 0xEF53
#define TMPFS_MAGIC_ 0x01021994

uint64_t br_lease_attrs(const struct br_disk_lease *d)
{
    return MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (d->noexec ? MOUNT_ATTR_NOEXEC : 0) |
           (d->read_only ? MOUNT_ATTR_RDONLY : 0);
}

int br_lease_root_open(const struct br_host *h, struct br_err *err)
{
    struct stat st;
    if (h->state_fd < 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "there is no state directory, so there is no place for a lease; nothing "
                          "was started. Set BRIDLE_STATE_DIR");
    if (mkdirat(h->state_fd, "leases", 0700) < 0 && errno != EEXIST)
        return br_err_errno(err, BR_E_INVALID_CONFIG,
                            "the lease root 'leases' could not be made in the state directory; "
                            "nothing was started");
    BR_CLEANUP_FD int fd = br_open_beneath(h->state_fd, "leases", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_CONFIG,
                            "the lease root 'leases' in the state directory is no directory of its "
                            "own; nothing was started. Remove it, and it is made again");
    if (st.st_uid != h->uid || (st.st_mode & 022))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the lease root 'leases' in the state directory belongs to uid %u with "
                          "mode %04o, and others could put files there; nothing was started. "
                          "chown it to uid %u, chmod 0700",
                          (unsigned)st.st_uid, (unsigned)st.st_mode & 07777, (unsigned)h->uid);
    return br_steal_fd(&fd);
}

int br_leases_possible(const struct br_host *h, const struct br_plan *plan, struct br_err *err)
{
    uint64_t in_memory = 0;
    bool ext4 = false;
    for (unsigned i = 0; i < BR_DISKS; i++) {
        if (plan->disks[i].kind == BR_QUOTA_TMPFS)
            in_memory += plan->disks[i].bytes;
        ext4 = ext4 || plan->disks[i].kind == BR_QUOTA_EXT4;
    }
    if (in_memory > plan->limits.memory_bytes)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the leases in memory have %" PRIu64 " bytes, which the memory limit of "
                          "%" PRIu64 " bytes could never hold; nothing was started. Use smaller "
                          "leases, or more memory",
                          in_memory, plan->limits.memory_bytes);
    return ext4 ? br_lease_ext4_possible(h, err) : 0;
}

void br_leases_init(struct br_leases *ls)
{
    memset(ls, 0, sizeof(*ls));
    for (unsigned i = 0; i < BR_DISKS; i++)
        ls->disks[i].mount = ls->disks[i].image = ls->disks[i].loop = ls->disks[i].root =
            ls->disks[i].base = -1;
}

/* ---- the quota, as the kernel tells it ---- */

static int differs(struct br_err *err, const char *name, const char *what)
{
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "the quota of the %s lease was measured and is not what was planned: %s; "
                      "nothing was started",
                      name, what);
}

/* Fill d->stat from the mount that `fd` is on, and compare. */
static int check_quota(struct br_disk_lease *d, int fd, const char *name, struct br_err *err)
{
    struct statfs s = {0};
    struct stat st;
    bool ext4 = d->quota.kind == BR_QUOTA_EXT4;
    if (br_sys_fstatfs(fd, &s) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the quota of the %s lease could not be read; nothing was started",
                            name);
    if (s.f_type != (ext4 ? EXT4_MAGIC : TMPFS_MAGIC_))
        return differs(err, name, "another file system");
    uint64_t size = (uint64_t)s.f_bsize;
    d->stat = (struct br_lease_stat){.bytes = s.f_blocks * size,
                                     .free_bytes = s.f_bavail * size,
                                     .inodes = s.f_files,
                                     .free_inodes = s.f_ffree,
                                     .nosuid = (s.f_flags & ST_NOSUID) != 0,
                                     .nodev = (s.f_flags & ST_NODEV) != 0,
                                     .noexec = (s.f_flags & ST_NOEXEC) != 0};
    if (d->stat.bytes == 0 || d->stat.bytes > d->quota.bytes ||
        d->stat.free_bytes > d->stat.bytes || (!ext4 && d->stat.bytes + size <= d->quota.bytes))
        return differs(err, name, "bytes");
    if (d->stat.inodes == 0 || d->stat.inodes != d->inodes || d->stat.inodes > d->quota.inodes ||
        d->stat.free_inodes >= d->stat.inodes)
        return differs(err, name, "inodes");
    if (!d->stat.nosuid || !d->stat.nodev || d->stat.noexec != d->noexec)
        return differs(err, name, "mount flags");
    if (fstat(fd, &st) < 0 || st.st_uid != d->uid || st.st_gid != d->gid ||
        (st.st_mode & 07777) != 0755)
        return differs(err, name, "whom it belongs to");
    if (!ext4)
        return 0;
    if (fstat(d->image, &st) < 0 || (d->unnamed && st.st_nlink != 0))
        return differs(err, name, "the image has a name");
    if (d->keep[0] && !br_lease_is_named(d))
        return differs(err, name, "the name of the image");
    if ((uint64_t)st.st_size != d->quota.bytes)
        return differs(err, name, "the size of the image");
    /* so that what is written later needs no room that the host does not have any more */
    if ((uint64_t)st.st_blocks * 512 < d->quota.bytes)
        return differs(err, name, "room reserved on the host");
    d->stat.backing_bytes = (uint64_t)st.st_size;
    return br_lease_loop_check(d, err);
}

static int mount_id(int fd, uint64_t *id)
{
    struct statx stx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0 || !(stx.stx_mask & STATX_MNT_ID))
        return -1;
    *id = stx.stx_mnt_id;
    return 0;
}

/* The root of one and the same file system, which no other lease has. */
static bool same_root(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int br_leases_measure(struct br_leases *ls, pid_t pid, bool rebound, struct br_err *err)
{
    char path[64];
    uint64_t here, inside;
    int r = 0;
    for (unsigned i = 0; r == 0 && i < BR_DISKS; i++) {
        struct br_disk_lease *d = &ls->disks[i];
        if (d->quota.kind == BR_QUOTA_NONE)
            continue;
        snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, br_disk_points[i]);
        BR_CLEANUP_FD int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || mount_id(fd, &inside) < 0 || mount_id(d->mount, &here) < 0)
            r = br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                             "the %s lease could not be measured; nothing was started",
                             br_disk_names[i]);
        else if (rebound ? !same_root(fd, d->mount) : here != inside)
            r = differs(err, br_disk_names[i], "it is not mounted at its place");
        else
            r = check_quota(d, fd, br_disk_names[i], err);
    }
    return r;
}

void br_leases_receipt(struct br_buf *out, const struct br_leases *ls, const struct br_copied *c)
{
    const char *sep = "";
    br_buf_printf(out, "[");
    for (unsigned i = 0; i < BR_DISKS; i++) {
        const struct br_disk_lease *d = &ls->disks[i];
        const struct br_lease_stat *s = &d->stat;
        if (d->quota.kind == BR_QUOTA_NONE)
            continue;
        br_buf_printf(
            out,
            "%s{\"lease\":\"%s\",\"point\":\"%s\",\"kind\":\"%s\",\"plannedBytes\":%" PRIu64
            ",\"plannedInodes\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"freeBytes\":%" PRIu64
            ",\"inodes\":%" PRIu64 ",\"freeInodes\":%" PRIu64 ",\"backingBytes\":%" PRIu64,
            sep, br_disk_names[i], br_disk_points[i], br_quota_names[d->quota.kind], d->quota.bytes,
            d->quota.inodes, s->bytes, s->free_bytes, s->inodes, s->free_inodes, s->backing_bytes);
        br_buf_printf(out, ",\"nosuid\":%s,\"nodev\":%s,\"noexec\":%s",
                      s->nosuid ? "true" : "false", s->nodev ? "true" : "false",
                      s->noexec ? "true" : "false");
        if (d->loop >= 0)
            br_buf_printf(out, ",\"device\":\"/dev/loop%d\"", d->loop);
        if (i == BR_DISK_WORKSPACE)
            br_buf_printf(out,
                          ",\"copied\":{\"files\":%" PRIu64 ",\"directories\":%" PRIu64
                          ",\"links\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"leftOut\":%" PRIu64 "}",
                          c->files, c->dirs, c->links, c->bytes, c->left_out);
        br_buf_printf(out, "}");
        sep = ",";
    }
    br_buf_printf(out, "]");
}

/* ---- make, hand over, release ---- */

static int open_ext4(struct br_disk_lease *d, struct br_host *h, const char *state,
                     const struct br_who *who, struct br_err *err)
{
    int r = br_lease_ext4_possible(h, err);
    int userns = r < 0 ? r : br_idmap_leases(h, who, err);
    if (userns < 0)
        return userns;
    BR_CLEANUP_FD int root = br_lease_root_open(h, err);
    return root < 0 ? root : br_lease_ext4(d, root, state, userns, err);
}

int br_leases_open(struct br_leases *ls, struct br_host *h, const struct br_plan *plan,
                   const struct br_who *who, struct br_err *err)
{
    int r = br_leases_possible(h, plan, err);
    for (unsigned i = 0; r == 0 && i < BR_DISKS; i++) {
        struct br_disk_lease *d = &ls->disks[i];
        if (plan->disks[i].kind == BR_QUOTA_NONE)
            continue;
        d->quota = plan->disks[i];
        d->noexec = (plan->flags & br_disk_noexec[i]) != 0;
        d->uid = who->uid;
        d->gid = who->gid;
        if (i == BR_DISK_WORKSPACE)
            memcpy(d->keep, plan->keep, sizeof(d->keep));
        r = d->quota.kind == BR_QUOTA_EXT4
                ? open_ext4(d, h, i == BR_DISK_STATE ? plan->state : "", who, err)
                : br_lease_tmpfs(d, err);
        if (r == 0)
            r = check_quota(d, d->mount, br_disk_names[i], err);
        if (r < 0) {
            char name[48]; /* what names it already is not said again */
            snprintf(name, sizeof(name), "the %s lease", br_disk_names[i]);
            return err && strncmp(err->text, name, strlen(name)) == 0
                       ? r
                       : br_err_wrap(err, "%s", name);
        }
    }
    return r;
}

static int give(int fd, int *fds, int *n)
{
    fds[*n] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fds[*n] >= 0) {
        ++*n;
        return 0;
    }
    while (*n > 0)
        br_close(&fds[--*n]);
    return -1;
}

int br_leases_give(const struct br_leases *ls, struct br_box_shared *s, int fds[BR_DISKS + 1])
{
    int n = 0;
    s->disks = 0;
    s->based = false;
    for (unsigned i = 0; i < BR_DISKS; i++) {
        if (ls->disks[i].quota.kind == BR_QUOTA_NONE)
            continue;
        if (give(ls->disks[i].mount, fds, &n) < 0)
            return -1;
        s->disks |= (uint8_t)(1u << i);
        s->quotas[i] = ls->disks[i].quota;
    }
    if (ls->disks[BR_DISK_WORKSPACE].base >= 0) {
        if (give(ls->disks[BR_DISK_WORKSPACE].base, fds, &n) < 0)
            return -1;
        s->based = true;
    }
    return n;
}

int br_leases_close(struct br_leases *ls, struct br_err *err)
{
    int result = 0;
    for (unsigned i = 0; i < BR_DISKS; i++) {
        struct br_disk_lease *d = &ls->disks[i];
        bool kept = d->keep[0] && d->mount >= 0 && br_lease_changed(d);
        if ((d->unnamed || (d->keep[0] && !kept)) && d->mount >= 0)
            br_lease_ext4_forget(d);
        if (kept)
            br_lease_trim(d);
        br_close(&d->mount); /* the last one: every other was in the box's mount namespace */
        uint64_t deadline = br_now_us() + BR_LEASE_DETACH_US;
        while (d->loop >= 0 && br_lease_loop_holds(d)) {
            if (br_now_us() >= deadline) {
                result =
                    br_err_set(err, BR_E_FAILED, "the %s lease is still attached to '/dev/loop%d'",
                               br_disk_names[i], d->loop);
                break;
            }
            struct timespec ms = {.tv_nsec = 1000000};
            (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL);
        }
        if (d->root >= 0 && br_lease_keep(d, kept, err) < 0)
            result = -BR_E_FAILED;
        br_close(&d->image);
        br_close(&d->base);
        br_close(&d->root);
    }
    br_leases_init(ls);
    return result;
}

/* ---- for doctor ---- */

#define PROBE_BYTES (4u << 20)
#define PROBE_INODES 64u

static int probe(struct br_leases *ls, const char *what, char detail[256], int r,
                 struct br_err *err)
{
    struct br_disk_lease *d = &ls->disks[BR_DISK_SCRATCH];
    if (r == 0)
        r = check_quota(d, d->mount, "scratch", err);
    if (r == 0)
        snprintf(detail, 256, "%s with %" PRIu64 " of %u bytes and %" PRIu64 " of %u inodes", what,
                 d->stat.bytes, PROBE_BYTES, d->stat.inodes, PROBE_INODES);
    int closed = br_leases_close(ls, err);
    return r < 0 ? r : closed;
}

static struct br_disk_lease *probe_lease(struct br_leases *ls, uint8_t kind)
{
    br_leases_init(ls);
    ls->disks[BR_DISK_SCRATCH].quota = (struct br_quota){kind, PROBE_BYTES, PROBE_INODES};
    return &ls->disks[BR_DISK_SCRATCH];
}

int br_lease_probe_tmpfs(const struct br_host *h, char detail[256], struct br_err *err)
{
    struct br_leases ls;
    struct br_disk_lease *d = probe_lease(&ls, BR_QUOTA_TMPFS);
    d->uid = h->uid;
    d->gid = h->gid;
    int r = br_lease_tmpfs(d, err);
    return probe(&ls, "a tmpfs", detail, r, err);
}

int br_lease_probe_ext4(const struct br_host *h, char detail[256], struct br_err *err)
{
    struct br_leases ls;
    struct br_disk_lease *d = probe_lease(&ls, BR_QUOTA_EXT4);
    int r = br_lease_ext4_possible(h, err);
    if (r < 0)
        return r;
    d->inodes = PROBE_INODES;
    d->uid = d->gid = BR_BOX_UID; /* as mkfs.ext4 was told */
    d->image = memfd_create("bridle-probe", MFD_CLOEXEC);
    r = d->image < 0 ? br_err_errno(err, BR_E_REQUIREMENT_MISSING, "no memory file")
                     : br_lease_ext4_format(d->image, PROBE_BYTES, &d->inodes, err);
    if (r == 0 && br_sys_fallocate(d->image, PROBE_BYTES) < 0)
        r = br_err_errno(err, BR_E_REQUIREMENT_MISSING, "no memory for an image");
    if (r == 0)
        r = br_lease_ext4_mount(d, -1, err);
    return probe(&ls, "ext4 on a loop device", detail, r, err);
}

/* ---- the child's side ---- */

static int attach(int mount, const char *point, struct br_err *err)
{
    if (br_sys_move_mount(mount, "", AT_FDCWD, point, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "a lease could not be mounted at '%s'; nothing was started", point);
    return 0;
}

/* Reads with the rights of the sandbox's user, and no more: what its uid cannot read is not
 * copied, whatever is swapped in meanwhile. */
static int copy_in(struct br_box_shared *s, int source, int target, int base, struct br_err *err)
{
    if (br_sys_capset_effective(false) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "capabilities could not be put aside; nothing was started");
    s->copying = true;
    int r = br_lease_copy(source, target, &s->quotas[BR_DISK_WORKSPACE], base, &s->copied, err);
    s->copying = false;
    if (br_sys_capset_effective(true) < 0 && r == 0)
        r = br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                         "capabilities could not be taken up again; nothing was started");
    return r;
}

int br_leases_attach(struct br_box_shared *s, int source, const int *fds, struct br_err *err)
{
    int r = 0;
    for (unsigned i = 0, n = 0; r == 0 && i < BR_DISKS; i++) {
        if (!(s->disks & 1u << i))
            continue;
        if (i == BR_DISK_WORKSPACE)
            r = copy_in(s, source, fds[n], s->based ? fds[__builtin_popcount(s->disks)] : -1, err);
        if (r == 0)
            r = attach(fds[n], br_disk_points[i], err);
        n++;
    }
    if (r == 0 && s->disks & 1u << BR_DISK_WORKSPACE && br_sys_chdir(BR_BOX_WORKSPACE) < 0)
        r = br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                         "the workspace could not be entered; nothing was started");
    return r;
}
