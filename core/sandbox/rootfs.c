/*
 * The read-only root. Built once per launcher, before any plan arrives; every sandbox gets a clone
 * of the mounts (one system call), never a writable view. Called by br_host_open() only.
 *
 * What is taken from the host is in the table below, with the reason. Everything else of the host
 * (/home, /root, /var, /run, /opt, most of /etc) does not exist inside.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sandbox/mounts.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"
#include "sandbox/weak.h"

/* The whole root tmpfs: copies of small files and empty directories. */
#define ROOTFS_MIB 8
#define ROOTFS_INODES 4096
#define TEXT_(n) #n
#define TEXT_OF(n) TEXT_(n)
#define COPY_MAX (2u * 1024 * 1024)

enum kind {
    DIR_,     /* an empty directory: a mount point or a place for others */
    TEXT,     /* a file with this text */
    LINK,     /* a symbolic link with this target */
    ALIAS,    /* as on the host: a link is copied, a directory is bound; absent: left out */
    BIND,     /* the host's directory and what is mounted below it; absent: left out */
    COPY,     /* a copy of the host's file (replaced by rename, so a bind would go stale) */
    COPY_DIR, /* copies of the regular files of a flat directory */
    DEVICE,   /* the host's device file */
    QUEUE,    /* a FIFO that everybody could write, and nobody read */
};

struct entry {
    enum kind kind;
    const char *path; /* relative to the root, and to the host's for what is taken from it */
    const char *text; /* TEXT and LINK */
    const char *why;
};

static const struct entry entries[] = {
    {DIR_, "usr", NULL, "mount point"},
    {BIND, "usr", NULL, "the programs and libraries of the host, and nothing that is personal"},
    {ALIAS, "bin", NULL, "usr-merge link, or the directory where the host has not merged"},
    {ALIAS, "sbin", NULL, "the same"},
    {ALIAS, "lib", NULL, "the same"},
    {ALIAS, "lib32", NULL, "the same"},
    {ALIAS, "lib64", NULL, "the dynamic loader's fixed path"},
    {ALIAS, "libx32", NULL, "the same"},
    {DIR_, "etc", NULL, "synthesised: the host's own may hold passwords, keys and addresses"},
    {TEXT, "etc/passwd",
     "root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n"
     "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
     "names for the three ids that can be seen inside"},
    {TEXT, "etc/group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n", "the same"},
    {TEXT, "etc/hosts",
     "127.0.0.1 localhost bridle\n::1 localhost ip6-localhost ip6-loopback bridle\n",
     "loopback only"},
    {TEXT, "etc/hostname", "bridle\n", "matches the uts namespace"},
    {TEXT, "etc/nsswitch.conf",
     "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\n"
     "protocols: files\nservices: files\n",
     "no name service outside of these files"},
    {TEXT, "etc/resolv.conf", "", "there is no network to resolve for"},
    {COPY, "etc/ld.so.cache", NULL, "without it the loader misses libraries outside of /usr/lib"},
    {COPY, "etc/ld.so.conf", NULL, "ld searches the same directories when it links"},
    {DIR_, "etc/ld.so.conf.d", NULL, "mount point"},
    {COPY_DIR, "etc/ld.so.conf.d", NULL, "the same"},
    {COPY, "etc/services", NULL, "getservbyname(); public data"},
    {COPY, "etc/protocols", NULL, "getprotobyname(); public data"},
    {COPY, "etc/mime.types", NULL, "file types of web servers under test; public data"},
    {DIR_, "etc/alternatives", NULL, "mount point"},
    {BIND, "etc/alternatives", NULL, "links of /usr/bin go through it (cc, awk, editor, java)"},
    {DIR_, "etc/ssl", NULL, "mount point"},
    {COPY, "etc/ssl/openssl.cnf", NULL, "the library reports an error without it"},
    {DIR_, "etc/ssl/certs", NULL, "mount point"},
    {BIND, "etc/ssl/certs", NULL, "public certificates; programs fail to start without"},
    {DIR_, "dev", NULL, "only what follows"},
    {DEVICE, "dev/null", NULL, "discards"},
    {DEVICE, "dev/zero", NULL, "zeros"},
    {DEVICE, "dev/full", NULL, "ENOSPC, for tests"},
    {DEVICE, "dev/random", NULL, "random numbers"},
    {DEVICE, "dev/urandom", NULL, "random numbers"},
    {DEVICE, "dev/tty", NULL, "ENXIO without a terminal, which programs expect, not ENOENT"},
    {LINK, "dev/fd", "/proc/self/fd", "shells"},
    {LINK, "dev/stdin", "/proc/self/fd/0", "shells"},
    {LINK, "dev/stdout", "/proc/self/fd/1", "shells"},
    {LINK, "dev/stderr", "/proc/self/fd/2", "shells"},
    {LINK, "dev/shm", "/tmp", "shared memory and semaphores, under the limits of /tmp"},
    {DIR_, "proc", NULL, "mount point"},
    {DIR_, "sys", NULL, "empty, but for the next: programs look, and do without"},
    {DIR_, "sys/fs", NULL, "holds only the next"},
    {DIR_, BR_ROOTFS_CGROUP, NULL, "mount point: the limits that a sandbox has (version 2)"},
    {DIR_, BR_ROOTFS_CGROUP "/memory", NULL, "mount point: the same (version 1)"},
    {DIR_, "run", NULL, "empty"},
    {DIR_, "tmp", NULL, "mount point"},
    {DIR_, "var", NULL, "holds only the next"},
    {LINK, "var/tmp", "../tmp", "one limit for both"},
    {LINK, "var/run", "../run", "as on the host"},
    {DIR_, "home", NULL, "holds only the next"},
    {DIR_, "home/agent", NULL, "mount point"},
    {DIR_, "workspace", NULL, "mount point"},
    {TEXT, BR_ROOTFS_EMPTY_FILE, "", "masks files"},
    {DIR_, BR_ROOTFS_EMPTY_DIR, NULL, "masks directories"},
    {QUEUE, BR_ROOTFS_LOCKED, NULL, "that it cannot be written proves Landlock"},
    {DIR_, "state", NULL, "mount point of a lease"},
    {DIR_, "scratch", NULL, "mount point of a lease"},
    {DIR_, &BR_BOX_BROKER[1], NULL, "mount point: the sockets of a harness"},
};

static int fail(struct br_err *err, const char *path)
{
    if (errno == ENOSYS)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the kernel's mount API (open_tree, mount_setattr, move_mount) is not "
                          "there, so the sandbox's '/%s' could not be made; nothing was started. "
                          "Use Linux 5.12 or newer; in a container, a seccomp profile that allows "
                          "these calls",
                          path);
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the sandbox's '/%s' could not be made; nothing was started", path);
}

static int make_file(int root, const char *path, const void *p, size_t n, struct br_err *err)
{
    BR_CLEANUP_FD int fd =
        openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
    if (fd < 0)
        return fail(err, path);
    int r = br_write_all(fd, p, n);
    if (r < 0) {
        errno = -r;
        return fail(err, path);
    }
    return 0;
}

static int copy_file(int root, int dirfd, const char *from, const char *to, struct br_err *err)
{
    struct stat st;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(COPY_MAX);
    BR_CLEANUP_FD int fd = openat(dirfd, from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT || errno == EACCES ? 0 : fail(err, to);
    if (!S_ISREG(st.st_mode))
        return 0;
    int r = br_read_all(fd, &b, from, err);
    return r < 0 ? r : make_file(root, to, b.data, b.len, err);
}

static int copy_dir(int root, const char *path, struct br_err *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof(from), "/%s", path);
    int fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int r = 0;
    if (!d) {
        br_close(&fd);
        return errno == ENOENT ? 0 : fail(err, path);
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(to, sizeof(to), "%s/%s", path, e->d_name);
        r = copy_file(root, fd, e->d_name, to, err);
    }
    closedir(d);
    return r;
}

/* The numbers that the kernel gives to these six (Documentation/admin-guide/devices.txt). */
static bool is_device(int fd, const char *path)
{
    static const struct {
        const char *path;
        unsigned major, minor;
    } known[] = {{"dev/null", 1, 3},   {"dev/zero", 1, 5},    {"dev/full", 1, 7},
                 {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/tty", 5, 0}};
    struct stat st;
    for (unsigned i = 0; i < BR_ARRAY_LEN(known); i++)
        if (strcmp(known[i].path, path) == 0)
            return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
                   st.st_rdev == makedev(known[i].major, known[i].minor);
    return false;
}

/* Clone `from` (recursively if a directory), make the clone safe, attach it over root/to. */
static int bind(int from_fd, const char *from, int root, const char *to, bool device,
                struct br_err *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                          (device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV),
                              .propagation = br_weak(SHARED) ? 0 : MS_PRIVATE};
    if (br_weak(RW))
        attr.attr_set &= ~(uint64_t)MOUNT_ATTR_RDONLY;
    unsigned rec = device ? 0 : AT_RECURSIVE;
    unsigned empty = *from ? 0 : AT_EMPTY_PATH;
    BR_CLEANUP_FD int tree = br_sys_open_tree(from_fd, from, OPEN_TREE_CLONE | rec | empty);
    if (tree >= 0 && device && !is_device(tree, to))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this host's '/%s' is not that device; nothing was started. Repair it",
                          to);
    if (tree < 0 || br_sys_mount_setattr(tree, "", AT_EMPTY_PATH | rec, &attr) < 0 ||
        br_sys_move_mount(tree, "", root, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return fail(err, to);
    return 0;
}

static int make_alias(int root, const char *path, struct br_err *err)
{
    char host[64], target[PATH_MAX];
    struct stat st;
    snprintf(host, sizeof(host), "/%s", path);
    if (lstat(host, &st) < 0)
        return errno == ENOENT ? 0 : fail(err, path);
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(host, target, sizeof(target) - 1);
        if (n < 0)
            return fail(err, path);
        target[n] = 0;
        return symlinkat(target, root, path) < 0 ? fail(err, path) : 0;
    }
    if (mkdirat(root, path, 0755) < 0)
        return fail(err, path);
    return bind(AT_FDCWD, host, root, path, false, err);
}

/* Is it taken from the host, or only there for something that is? */
static bool from_host(unsigned i)
{
    enum kind k = entries[i].kind;
    return k == ALIAS || k == BIND || k == COPY || k == COPY_DIR ||
           (i + 1 < BR_ARRAY_LEN(entries) && strcmp(entries[i].path, entries[i + 1].path) == 0);
}

static int make_entry(int root, const struct entry *e, struct br_err *err)
{
    char host[128];
    struct stat st;
    snprintf(host, sizeof(host), "/%s", e->path);
    switch (e->kind) {
    case DIR_:
        return mkdirat(root, e->path, 0755) < 0 ? fail(err, e->path) : 0;
    case TEXT:
        return make_file(root, e->path, e->text, strlen(e->text), err);
    case LINK:
        return symlinkat(e->text, root, e->path) < 0 ? fail(err, e->path) : 0;
    case ALIAS:
        return make_alias(root, e->path, err);
    case BIND:
        if (stat(host, &st) < 0 || !S_ISDIR(st.st_mode))
            return strcmp(e->path, "usr") == 0 ? fail(err, e->path) : 0;
        return bind(AT_FDCWD, host, root, e->path, false, err);
    case COPY:
        return copy_file(root, AT_FDCWD, host, e->path, err);
    case COPY_DIR:
        return copy_dir(root, e->path, err);
    case DEVICE: /* the rest of it: br_rootfs_bind() */
        return make_file(root, e->path, "", 0, err);
    case QUEUE:
        return mkfifoat(root, e->path, 0222) < 0 || fchmodat(root, e->path, 0222, 0) < 0
                   ? fail(err, e->path)
                   : 0;
    }
    return br_err_set(err, BR_E_INTERNAL, "an unknown entry in the table of the root");
}

static int fill(int root, bool host, struct br_err *err)
{
    mode_t old = umask(022);
    int r = 0;
    for (unsigned i = 0; r == 0 && i < BR_ARRAY_LEN(entries); i++)
        if (host || !from_host(i))
            r = make_entry(root, &entries[i], err);
    if (r == 0)
        r = make_file(root, &BR_BOX_INIT[1], "", 0, err);
    (void)umask(old);
    return r;
}

int br_rootfs_fill(int root, struct br_err *err)
{
    return fill(root, false, err);
}

int br_rootfs_bind(int root, int init_fd, struct br_err *err)
{
    char host[128];
    int r = 0;
    for (unsigned i = 0; r == 0 && i < BR_ARRAY_LEN(entries); i++) {
        if (entries[i].kind != DEVICE)
            continue;
        snprintf(host, sizeof(host), "/%s", entries[i].path);
        r = bind(AT_FDCWD, host, root, entries[i].path, true, err);
    }
    /* read-only, so that /proc/1/exe does not lead to a writable copy of it */
    return r < 0 ? r : bind(init_fd, "", root, &BR_BOX_INIT[1], false, err);
}

int br_rootfs_tmpfs(struct br_err *err)
{
    BR_CLEANUP_FD int fs = br_sys_fsopen("tmpfs");
    if (fs < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the kernel's mount API is not usable (fsopen); nothing was started. "
                            "Use Linux 5.12 or newer");
    if (br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", TEXT_OF(ROOTFS_MIB) "m") < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", TEXT_OF(ROOTFS_INODES)) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755") < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return fail(err, "");
    struct stat st;
    BR_CLEANUP_FD int root = br_sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (root < 0)
        return fail(err, "");
    if (fstat(root, &st) < 0 || st.st_mode != (S_IFDIR | 0755)) {
        errno = EPERM;
        return fail(err, "");
    }
    return br_steal_fd(&root);
}

int br_rootfs_build(int init_fd, struct br_err *err)
{
    BR_CLEANUP_FD int root = br_rootfs_tmpfs(err);
    int r = root < 0 ? root : 0;
    if (r == 0 &&
        br_sys_move_mount(root, "", AT_FDCWD, BR_ROOTFS_POINT, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        r = fail(err, "");
    if (r == 0)
        r = fill(root, true, err);
    if (r == 0)
        r = br_rootfs_bind(root, init_fd, err);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (r == 0 && !br_weak(RW) &&
        br_sys_mount_setattr(root, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        r = fail(err, "");
    return r < 0 ? r : br_steal_fd(&root);
}

static bool is_there(const struct br_mount *m, unsigned n, const char *path)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(m[i].target + 1, path) == 0)
            return true;
    return false;
}

int br_rootfs_check(const struct br_mount *m, unsigned n, bool image, struct br_err *err)
{
    struct stat st;
    char host[128];
    if (n == 0 || strcmp(m->target, "/") != 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox's root was not mounted; nothing was started");
    if (!image && (strcmp(m->type, "tmpfs") != 0 || m->bytes != (uint64_t)ROOTFS_MIB << 20 ||
                   m->inodes != ROOTFS_INODES))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox's root is not the small tmpfs that was planned; nothing was "
                          "started");
    for (unsigned i = 0; i < BR_ARRAY_LEN(entries); i++) {
        const struct entry *e = &entries[i];
        snprintf(host, sizeof(host), "/%s", e->path);
        bool mounted = e->kind == DEVICE ||
                       (!image && e->kind == BIND && stat(host, &st) == 0 && S_ISDIR(st.st_mode));
        if (mounted && !is_there(m, n, e->path))
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "'/%s' of the sandbox's root was not mounted; nothing was started",
                              e->path);
    }
    if (!is_there(m, n, &BR_BOX_INIT[1]))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "bridle-init was not mounted; nothing was started");
    return 0;
}

int br_rootfs_clone(int rootfs, struct br_err *err)
{
    int fd = br_sys_open_tree(rootfs, "", OPEN_TREE_CLONE | AT_EMPTY_PATH | AT_RECURSIVE);
    return fd < 0 ? fail(err, "") : fd;
}
