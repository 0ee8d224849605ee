/*
 * Leases on disk: an ext4 image on a loop device. The quota is the size of the file system and its
 * number of inodes; nothing is reserved for root. Root only, since the kernel lets nobody else
 * mount ext4. The loop device lets go of the image by itself when the mount is gone, whoever ends
 * first. Called by lease.c. The image is ours; what a sandbox wrote into the file system of a state
 * lease is read by the kernel's ext4 and, after a crash, by e2fsck.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sandbox/lease_priv.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

/* Others take the free device in between: as often as this, it is not by chance. */
#define LOOP_TRIES 256
#define LOOP_MAJOR_ 7u
#define WITHOUT "Use --profile workspace-tmpfs-v1, whose leases are in memory"

/* ---- is it possible at all? ---- */

static bool kernel_has_ext4(void)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(64 * 1024);
    BR_CLEANUP_FD int fd = open("/proc/filesystems", O_RDONLY | O_CLOEXEC);
    return fd >= 0 && br_read_all(fd, &text, "/proc/filesystems", NULL) == 0 &&
           br_buf_cstr(&text) && strstr(br_buf_cstr(&text), "\text4\n");
}

int br_lease_ext4_possible(const struct br_host *h, struct br_err *err)
{
    if (h->uid != 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "an 'ext4' lease needs root, and this launcher is an ordinary user; "
                          "nothing was started. " WITHOUT ", or start bridled as root");
    if (access("/dev/loop-control", R_OK | W_OK) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "an 'ext4' lease needs loop devices, and '/dev/loop-control' is not "
                            "there; nothing was started. modprobe loop. " WITHOUT);
    if (!br_lease_has_tool("mkfs.ext4"))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "an 'ext4' lease needs 'mkfs.ext4', which is neither in /usr/sbin nor in "
                          "/sbin; nothing was started. Install e2fsprogs. " WITHOUT);
    /* mounting it loads the module, where there is one */
    if (!kernel_has_ext4() && access("/proc/modules", F_OK) < 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this kernel has no ext4; nothing was started. " WITHOUT);
    return 0;
}

/* ---- format ---- */

static uint32_t le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t le16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

int br_lease_super_read(int fd, struct br_lease_super *s)
{
    static const char label[16] = "bridle-lease-1";
    uint8_t b[1024];
    if (pread(fd, b, sizeof(b), 1024) != sizeof(b) || le16(b + 0x38) != 0xEF53 ||
        memcmp(b + 0x78, label, sizeof(label)) != 0 || le32(b + 0x18) != 2 || le32(b + 0x28) == 0)
        return -1;
    s->inodes = le32(b);
    s->bytes = ((uint64_t)le32(b + 0x150) << 32 | le32(b + 4)) * BR_LEASE_BLOCK;
    s->per_group = le32(b + 0x28);
    s->groups = s->inodes / s->per_group;
    s->clean = (le16(b + 0x3A) & 3) == 1;
    return 0;
}

static int mkfs(int fd, uint64_t inodes, struct br_err *err)
{
    char n[32], said[512];
    /* every feature is named, so that the host's mke2fs.conf changes nothing. No journal: the
     * image of a run does not survive it, and a state lease is checked after a crash */
    const char *const args[] = {"-q",
                                "-F",
                                "-t",
                                "ext4",
                                "-b",
                                "4096",
                                "-I",
                                "256",
                                "-N",
                                n,
                                "-m",
                                "0",
                                "-L",
                                "bridle-lease-1",
                                "-O",
                                "none,extents,filetype,sparse_super,large_file,huge_file,dir_nlink,"
                                "extra_isize,flex_bg,metadata_csum,64bit,ext_attr,dir_index",
                                "-E",
                                "lazy_itable_init=1,nodiscard,root_owner=1000:1000",
                                NULL};
    snprintf(n, sizeof(n), "%" PRIu64, inodes);
    int r = br_lease_tool("mkfs.ext4", args, fd, said, err);
    if (r > 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "mkfs.ext4 could not make a file system for a lease; nothing was "
                          "started. It said (%d): %s",
                          r, said);
    return r;
}

int br_lease_ext4_format(int fd, uint64_t bytes, uint64_t *inodes, struct br_err *err)
{
    uint64_t want = *inodes;
    if (ftruncate(fd, (off_t)bytes) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "a lease's image could not be made as large as it should be; nothing "
                            "was started");
    /* mkfs rounds up to whole blocks of inodes in every group; a quota is never exceeded */
    for (int i = 0; i < 2; i++) {
        struct br_lease_super s = {0};
        int r = mkfs(fd, want, err);
        if (r < 0)
            return r;
        if (br_lease_super_read(fd, &s) < 0 || s.bytes > bytes)
            break;
        if (s.inodes <= *inodes) {
            *inodes = s.inodes;
            return 0;
        }
        if (want <= 16ull * s.groups)
            break;
        want -= 16ull * s.groups;
    }
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "mkfs.ext4 could not make a file system with at most %" PRIu64 " bytes and "
                      "%" PRIu64 " inodes; nothing was started. Use another size",
                      bytes, *inodes);
}

/* ---- the loop device ---- */

/* The next free device, ours; -1 and errno. EBUSY: somebody else was faster. */
static int try_loop(int ctl, int image, bool read_only, int *number)
{
    char path[32];
    struct stat st;
    struct loop_config cfg = {
        .fd = (uint32_t)image,
        .block_size = BR_LEASE_BLOCK,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0)}};
    int n = br_sys_loop(ctl, LOOP_CTL_GET_FREE, 0);
    if (n < 0)
        return -1;
    snprintf(path, sizeof(path), "/dev/loop%d", n);
    BR_CLEANUP_FD int fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (!S_ISBLK(st.st_mode) || major(st.st_rdev) != LOOP_MAJOR_) {
        errno = ENOTBLK;
        return -1;
    }
    if (br_sys_loop(fd, LOOP_CONFIGURE, (unsigned long)(uintptr_t)&cfg) < 0)
        return -1;
    *number = n;
    return br_steal_fd(&fd);
}

static int attach_loop(struct br_disk_lease *d, struct br_err *err)
{
    BR_CLEANUP_FD int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int fd = -1;
    errno = EBUSY;
    for (int i = 0; fd < 0 && ctl >= 0 && errno == EBUSY && i < LOOP_TRIES; i++)
        fd = try_loop(ctl, d->image, d->read_only, &d->loop);
    if (fd < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "no loop device could be had for a lease; nothing was started. See "
                            "'losetup -l'. " WITHOUT);
    return fd;
}

static int loop_open(const struct br_disk_lease *d)
{
    char path[32];
    snprintf(path, sizeof(path), "/dev/loop%d", d->loop);
    return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

static bool is_image(const struct br_disk_lease *d, const struct loop_info64 *info)
{
    struct stat st;
    return fstat(d->image, &st) == 0 && info->lo_inode == st.st_ino &&
           info->lo_device == (uint64_t)st.st_dev;
}

bool br_lease_loop_holds(const struct br_disk_lease *d)
{
    struct loop_info64 info = {0};
    BR_CLEANUP_FD int fd = loop_open(d);
    return fd >= 0 && br_sys_loop(fd, LOOP_GET_STATUS64, (unsigned long)(uintptr_t)&info) == 0 &&
           is_image(d, &info);
}

int br_lease_loop_check(const struct br_disk_lease *d, struct br_err *err)
{
    struct loop_info64 info = {0};
    uint64_t size = 0;
    BR_CLEANUP_FD int fd = loop_open(d);
    if (fd < 0 || br_sys_loop(fd, LOOP_GET_STATUS64, (unsigned long)(uintptr_t)&info) < 0 ||
        br_sys_loop(fd, BLKGETSIZE64, (unsigned long)(uintptr_t)&size) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'/dev/loop%d' of a lease could not be read; nothing was started",
                            d->loop);
    if (!is_image(d, &info) || info.lo_offset || !(info.lo_flags & LO_FLAGS_AUTOCLEAR) ||
        (info.lo_flags & LO_FLAGS_READ_ONLY) || size != d->quota.bytes)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'/dev/loop%d' is not the whole image of its lease; nothing was started",
                          d->loop);
    return 0;
}

void br_lease_ext4_forget(const struct br_disk_lease *d)
{
    uint32_t no_log_flush = 2; /* EXT4_GOING_FLAGS_NOLOGFLUSH */
    BR_CLEANUP_FD int fd = openat(d->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* best effort: without it all that was written is written to the image first */
    if (fd >= 0)
        (void)ioctl(fd, _IOR('X', 125, uint32_t), &no_log_flush); /* EXT4_IOC_SHUTDOWN */
}

/* ---- the mount ---- */

static int mount_failed(const char *what, struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "an ext4 lease could not be mounted (%s); nothing was started. " WITHOUT,
                        what);
}

int br_lease_ext4_mount(struct br_disk_lease *d, int userns, struct br_err *err)
{
    char source[32];
    struct mount_attr map = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    BR_CLEANUP_FD int loop = attach_loop(d, err);
    if (loop < 0)
        return loop;
    snprintf(source, sizeof(source), "/proc/self/fd/%d", loop);
    BR_CLEANUP_FD int fs = br_sys_fsopen("ext4");
    if (fs < 0)
        return mount_failed("this kernel has no ext4", err);
    if (br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", source) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_FLAG, "noinit_itable", NULL) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro") < 0 ||
        /* what dies with the run need not reach the disk */
        (d->read_only && br_sys_fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL) < 0) ||
        (d->unnamed && br_sys_fsconfig(fs, FSCONFIG_SET_FLAG, "nobarrier", NULL) < 0) ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return mount_failed("fsconfig", err);
    d->mount = br_sys_fsmount(fs, (unsigned)br_lease_attrs(d));
    if (d->mount < 0)
        return mount_failed("fsmount", err);
    /* before the owners are mapped, in which root has no place. e2fsck makes it again if needed */
    if (!d->read_only && unlinkat(d->mount, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT &&
        errno != ENOTEMPTY)
        return mount_failed("lost+found", err);
    if (userns >= 0 && br_sys_mount_setattr(d->mount, "", AT_EMPTY_PATH, &map) < 0)
        return mount_failed("idmapped mount", err);
    return 0;
}

int br_lease_ext4(struct br_disk_lease *d, int root, const char *state, int userns,
                  struct br_err *err)
{
    int r = state[0]     ? br_lease_image_state(d, root, state, err)
            : d->keep[0] ? br_lease_image_kept(d, root, err)
                         : br_lease_image_new(d, root, err);
    return r < 0 ? r : br_lease_ext4_mount(d, userns, err);
}
