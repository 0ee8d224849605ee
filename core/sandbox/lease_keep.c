/*
 * A workspace lease that stays after its run: whether anything was changed in it, and what becomes
 * of its files. Called by lease.c when the last process of the box is gone. Names and times are
 * read, no content; what a sandbox wrote can make this say "changed", and nothing else. The time of
 * a change is set by the kernel alone, and br_leases_settle() makes all that a sandbox does later
 * than the copy.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/lease_priv.h"
#include "sandbox/sandbox.h"
#include "sandbox/sys.h"

/* A copy has at most 100 levels; what is deeper was made by the run. */
#define DEPTH_MAX 104u
#define SECOND 1000000000ull
/* One tick of the slowest kernel is 10 ms. */
#define SETTLE_TRIES 400

static uint64_t ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t = {0};
    (void)clock_gettime(clock, &t);
    return ns(&t);
}

void br_leases_settle(struct br_leases *ls, const struct br_box_shared *s)
{
    struct br_disk_lease *d = &ls->disks[BR_DISK_WORKSPACE];
    const struct timespec wait = {.tv_nsec = 100000};
    d->copied_ns = s->copied.done_ns;
    /* file systems take their times from the coarse clock */
    for (int i = 0; d->keep[0] && i < SETTLE_TRIES; i++) {
        if (clock_ns(CLOCK_REALTIME_COARSE) > d->copied_ns)
            return;
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
    }
}

static bool is_file(int root, const char *name, int fd)
{
    struct stat a, b;
    return fstatat(root, name, &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &b) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_nlink == 1;
}

bool br_lease_is_named(const struct br_disk_lease *d)
{
    char image[BR_LEASE_NAME_MAX], base[BR_LEASE_NAME_MAX];
    br_lease_keep_names(d->keep, image, base);
    return is_file(d->root, image, d->image) && is_file(d->root, base, d->base);
}

/* The next directory in `dir` is entered; or all of it was looked at. */
static bool look(DIR **stack, unsigned *depth, uint64_t since)
{
    DIR *dir = stack[*depth - 1];
    for (struct dirent *e; errno = 0, (e = readdir(dir));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || ns(&st.st_ctim) > since)
            return true;
        if (!S_ISDIR(st.st_mode))
            continue;
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *next = fd >= 0 && *depth < DEPTH_MAX ? fdopendir(fd) : NULL;
        if (!next) {
            br_close(&fd);
            return true;
        }
        stack[(*depth)++] = next;
        return false;
    }
    if (errno)
        return true;
    closedir(dir);
    --*depth;
    return false;
}

bool br_lease_changed(const struct br_disk_lease *d)
{
    DIR *stack[DEPTH_MAX];
    unsigned depth = 0;
    struct stat st;
    if (d->copied_ns == 0) /* nothing has run in it */
        return false;
    if (clock_ns(CLOCK_REALTIME) <= d->copied_ns) /* the clock was set back: nothing is known */
        return true;
    int fd = openat(d->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !(stack[depth++] = fdopendir(fd))) {
        br_close(&fd);
        return true;
    }
    bool changed = ns(&st.st_ctim) > d->copied_ns;
    while (depth > 0 && !changed)
        changed = look(stack, &depth, d->copied_ns);
    while (depth > 0)
        closedir(stack[--depth]);
    return changed;
}

void br_lease_trim(const struct br_disk_lease *d)
{
    struct fstrim_range all = {.len = UINT64_MAX};
    BR_CLEANUP_FD int fd = openat(d->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)syncfs(fd);
    (void)ioctl(fd, FITRIM, &all); /* best effort: without it the image stays as large as it was */
}

int br_lease_keep(struct br_disk_lease *d, bool keep, struct br_err *err)
{
    char image[BR_LEASE_NAME_MAX], base[BR_LEASE_NAME_MAX];
    br_lease_keep_names(d->keep, image, base);
    if (keep) {
        if (fsync(d->image) == 0 && fsync(d->base) == 0 && fsync(d->root) == 0)
            return 0;
        return br_err_errno(err, BR_E_FAILED, "'leases/%s' could not be written", image);
    }
    int r = unlinkat(d->root, base, 0) < 0 && errno != ENOENT ? -1 : 0;
    if (unlinkat(d->root, image, 0) < 0 && errno != ENOENT)
        r = -1;
    return r < 0 ? br_err_errno(err, BR_E_FAILED, "'leases/%s' could not be removed", image) : 0;
}

/* ---- and later ---- */

struct br_kept {
    struct br_leases leases;
};

int br_kept_open(struct br_kept **out, struct br_host *h, const char *run_id, unsigned uid,
                 unsigned gid, int *mount, struct br_err *err)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    const struct br_who who = {.uid = uid, .gid = gid};
    *out = NULL;
    if (!run_id[0] || strspn(run_id, letters) != strlen(run_id))
        return br_err_set(err, BR_E_NOT_FOUND, "that is no id of a run; nothing was promoted");
    struct br_kept *k = calloc(1, sizeof(*k));
    if (!k)
        return br_err_set(err, BR_E_NOMEM, "no memory for a lease");
    br_leases_init(&k->leases);
    struct br_disk_lease *d = &k->leases.disks[BR_DISK_WORKSPACE];
    d->read_only = d->noexec = true;
    int r = br_lease_ext4_possible(h, err);
    int userns = r < 0 ? r : br_idmap_leases(h, &who, err);
    BR_CLEANUP_FD int root = userns < 0 ? userns : br_lease_root_open(h, err);
    r = root < 0 ? root : br_lease_image_ended(d, root, run_id, err);
    if (r == 0)
        r = br_lease_ext4_mount(d, userns, err);
    if (r == 0 && (*mount = openat(d->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        r = br_err_errno(err, BR_E_FAILED, "the lease of the run could not be opened");
    /* it is mounted as long as the caller has it */
    br_close(&d->mount);
    if (r < 0)
        br_kept_close(&k);
    *out = k;
    return r;
}

void br_kept_close(struct br_kept **k)
{
    if (!*k)
        return;
    struct br_err err;
    (void)br_leases_close(&(*k)->leases, &err);
    free(*k);
    *k = NULL;
}
