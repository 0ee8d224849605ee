/*
 * Masks: the parts of a fresh /proc that tell about the host or reach into it, covered with an
 * empty file or an empty directory. Called in the child with the prepared root as its working
 * directory, before it pivots into it, so that "proc" is the new one. Trusts the launcher.
 *
 * What a mask is made of is a file of the launcher's own root, never a device and never a name that
 * somebody else can make; that it is this one is seen in the mount table, by the launcher.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/attach.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

static const char *const names[] = {
    [BR_MASK_FILE] = BR_ROOTFS_EMPTY_FILE, [BR_MASK_DIR] = BR_ROOTFS_EMPTY_DIR};

/*
 * Absent on many kernels; then there is nothing to mask. Each costs 8 us. Not here: what only root
 * may read (kmsg, kpage*, slabinfo, vmallocinfo, pagetypeinfo), which no uid of a sandbox is; what
 * says no more than /proc/stat and /proc/vmstat, which programs need (softirqs, zoneinfo).
 */
static const struct {
    const char *path;
    enum br_mask with;
    const char *why;
} masks[] = {
    {"proc/kcore", BR_MASK_FILE, "the memory of the host"},
    {"proc/sysrq-trigger", BR_MASK_FILE, "reboots, kills"},
    {"proc/keys", BR_MASK_FILE, "keys of the host's users"},
    {"proc/key-users", BR_MASK_FILE, "which users there are"},
    {"proc/timer_list", BR_MASK_FILE, "names and pids of the host's processes"},
    {"proc/sched_debug", BR_MASK_FILE, "the same"},
    {"proc/schedstat", BR_MASK_FILE, "what the host is doing"},
    {"proc/latency_stats", BR_MASK_FILE, "where the kernel waits"},
    {"proc/locks", BR_MASK_FILE, "inodes that the host has locked"},
    {"proc/cmdline", BR_MASK_FILE, "how the host was started: disks, addresses, secrets"},
    {"proc/config.gz", BR_MASK_FILE, "what the kernel has, to choose an attack"},
    {"proc/kallsyms", BR_MASK_FILE, "the same, with addresses where they are not hidden"},
    {"proc/modules", BR_MASK_FILE, "the same"},
    {"proc/interrupts", BR_MASK_FILE, "when keys are pressed"},
    {"proc/partitions", BR_MASK_FILE, "disks"},
    {"proc/diskstats", BR_MASK_FILE, "disks, and what they are doing"},
    {"proc/swaps", BR_MASK_FILE, "disks, and paths of the host"},
    {"proc/acpi", BR_MASK_DIR, "hardware, and switches of it"},
    {"proc/asound", BR_MASK_DIR, "hardware"},
    {"proc/bus", BR_MASK_DIR, "hardware"},
    {"proc/fs", BR_MASK_DIR, "disks and network file systems"},
    {"proc/irq", BR_MASK_DIR, "hardware"},
    {"proc/pressure", BR_MASK_DIR, "what the host is doing, to the microsecond"},
    {"proc/scsi", BR_MASK_DIR, "disks"},
};

_Static_assert(BR_ARRAY_LEN(masks) <= 64, "one bit each in br_host.masked");

const char *br_mask_path(unsigned n)
{
    return n < BR_ARRAY_LEN(masks) ? masks[n].path : NULL;
}

const char *br_mask_source(bool dir)
{
    return names[dir ? BR_MASK_DIR : BR_MASK_FILE];
}

bool br_mask_is_dir(unsigned n)
{
    return masks[n].with == BR_MASK_DIR;
}

static int failed(const char *what, struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the sandbox could not be set up ('%s' could not be masked); nothing was "
                        "started",
                        what);
}

static bool same(const struct statx *st, const struct br_mask_id *id)
{
    return st->stx_ino == id->ino && st->stx_dev_major == id->dev_major &&
           st->stx_dev_minor == id->dev_minor;
}

int br_mask_remember(struct br_host *h, int rootfs, struct br_err *err)
{
    if (h->masks_known && h->masks_root == rootfs && h->masks_made == h->image.made)
        return 0;
    h->masks_known = false;
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        struct statx st;
        BR_CLEANUP_FD int fd = br_open_beneath(rootfs, names[i], O_PATH | O_NOFOLLOW, 0);
        if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0)
            return failed(names[i], err);
        if (i == BR_MASK_DIR ? !S_ISDIR(st.stx_mode) : !S_ISREG(st.stx_mode) || st.stx_size)
            return br_err_set(err, BR_E_INTERNAL, "'%s' of the prepared root is not empty",
                              names[i]);
        h->masks[i] = (struct br_mask_id){
            .ino = st.stx_ino, .dev_major = st.stx_dev_major, .dev_minor = st.stx_dev_minor};
    }
    h->masks_known = true;
    h->masks_root = rootfs;
    h->masks_made = h->image.made;
    return 0;
}

int br_mask_open(const struct br_host *h, enum br_mask which, struct br_err *err)
{
    struct statx st;
    BR_CLEANUP_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    BR_CLEANUP_FD int fd =
        root < 0 ? -1 : br_open_beneath(root, names[which], O_PATH | O_NOFOLLOW, 0);
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &st) < 0)
        return failed(names[which], err);
    if (!same(&st, &h->masks[which]))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'/%s' of the sandbox is not the launcher's; nothing was started",
                          names[which]);
    return br_steal_fd(&fd);
}

int br_mask_proc(const struct br_host *h, struct br_err *err)
{
    for (unsigned i = 0; i < BR_ARRAY_LEN(masks); i++) {
        struct statx st;
        if (br_sys_mount(names[masks[i].with], masks[i].path, NULL, MS_BIND, NULL) < 0) {
            if (errno == ENOENT)
                continue;
            return failed(masks[i].path, err);
        }
        /* where the launcher's own /proc has it, the mount table must: br_wants_of() */
        if (h->masked >> i & 1)
            continue;
        if (statx(AT_FDCWD, masks[i].path, AT_SYMLINK_NOFOLLOW, STATX_INO, &st) < 0 ||
            !same(&st, &h->masks[masks[i].with]))
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "the mask over '/%s' is not the launcher's; nothing was started",
                              masks[i].path);
    }
    return 0;
}
