/*
 * Attacks from inside on files: what may be written, which mounts there are, what a file may carry.
 * Part of bridle-attack.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attack/inside.h"

static bool creates(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* What may not be written in the workspace: an existing file, a new one, a name. */
static int write_workspace(void)
{
    if (in_append("/workspace/readme", "x"))
        return in_through("a file of the workspace that is not allowed was written");
    int e = errno;
    if (creates("/workspace/new"))
        return in_through("a file was created in the workspace");
    if (rename("/workspace/readme", "/workspace/other") == 0)
        return in_through("a file of the workspace was renamed");
    if (unlink("/workspace/readme") == 0)
        return in_through("a file of the workspace was removed");
    if (truncate("/workspace/readme", 0) == 0)
        return in_through("a file of the workspace was truncated");
    if (chmod("/workspace/readme", 0777) == 0)
        return in_through("the mode of a file of the workspace was changed");
    if (setxattr("/workspace/readme", "user.x", "x", 1, 0) == 0)
        return in_through("an attribute of a file of the workspace was set");
    return in_blocked("write: %s", strerror(e));
}

/* Files that do not exist at the start and that programs of the host would execute later. */
static int late_files(void)
{
    static const char *const names[] = {
        "/workspace/.git/hooks/post-checkout",
        "/workspace/.bashrc",
        "/workspace/.envrc",
        "/workspace/.gitconfig",
        "/workspace/.npmrc",
        "/workspace/Makefile",
        "/workspace/.vscode/tasks.json",
        "/workspace/conftest.py",
        "/workspace/.git/config",
    };
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (creates(names[i]))
            return in_through("'%s' was created", names[i]);
    return in_blocked("last: %s", strerror(errno));
}

/* In an allowed directory: only the operator can know what reads it. */
static int allowed_hook(void)
{
    if (mkdir("/workspace/out/.git", 0755) < 0 || mkdir("/workspace/out/.git/hooks", 0755) < 0)
        return in_blocked("%s", strerror(errno));
    return creates("/workspace/out/.git/hooks/post-checkout")
               ? in_through("a hook was created below an allowed path")
               : in_blocked("%s", strerror(errno));
}

/* A repository below an allowed path: its `.git` is read-only, and what it lies in stays there. */
static int move_git(void)
{
    static const char *const dirs[] = {"/workspace/out/a/lib", "/workspace/out/a"};
    static const char again[] = "/workspace/out/a/lib/.git";
    if (creates("/workspace/out/a/lib/.git/config"))
        return in_through("the repository's configuration was written");
    for (unsigned i = 0; i < 2; i++)
        if (rename(dirs[i], "/workspace/out/aside") == 0) {
            (void)mkdir("/workspace/out/a", 0755);
            (void)mkdir("/workspace/out/a/lib", 0755);
            (void)mkdir(again, 0755);
            return creates("/workspace/out/a/lib/.git/config")
                       ? in_through("another .git has taken its place")
                       : in_blocked("it was moved away: %s", strerror(errno));
        }
    return in_blocked("%s", strerror(errno));
}

/* A hard link from what is read-only into what is writable. */
static int hardlink(void)
{
    if (link("/workspace/readme", "/workspace/out/link") == 0 ||
        link("/workspace/readme", "/workspace/link") == 0)
        return in_through("a hard link was made");
    int e = errno;
    return linkat(open("/workspace/readme", O_PATH), "", AT_FDCWD, "/workspace/out/link",
                  AT_EMPTY_PATH) == 0
               ? in_through("a descriptor was linked")
               : in_blocked("%s", strerror(e));
}

/* A file that had two links before the sandbox started: one inside, one outside. */
static int hardlink_inside(void)
{
    return in_append(in_need("path"), "x")
               ? in_through("a file with a second link outside was written")
               : in_blocked("%s", strerror(errno));
}

/* Mount points that may be written; everything else must be read-only in the mount itself. */
static bool may_write(const char *point)
{
    static const char *const ok[] = {
        "/tmp", "/home/agent", "/workspace/out", "/workspace/exact", "/scratch", "/state"};
    for (unsigned i = 0; i < sizeof(ok) / sizeof(ok[0]); i++)
        if (strcmp(point, ok[i]) == 0)
            return true;
    return false;
}

/* Call fn with the mount point, the per-mount options and the rest of every line; 0 to go on. */
static int each_mount(int (*fn)(const char *point, const char *opts, const char *rest))
{
    char *text = strdup(in_read("/proc/self/mountinfo") ?: "");
    int r = *text ? 0 : in_failed("no /proc/self/mountinfo");
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line && r == 0;
         line = strtok_r(NULL, "\n", &save)) {
        char point[4096], opts[1024];
        int rest = 0;
        if (sscanf(line, "%*s %*s %*s %*s %4095s %1023s%n", point, opts, &rest) == 2)
            r = fn(point, opts, line + rest);
    }
    free(text);
    return r;
}

static int check_readonly(const char *point, const char *opts, const char *rest)
{
    (void)rest;
    return strncmp(opts, "ro", 2) != 0 && !may_write(point)
               ? in_through("the mount '%s' is writable", point)
               : 0;
}

static int mounts_readonly(void)
{
    int r = each_mount(check_readonly);
    return r ? r : in_blocked("every mount is read-only but the allowed ones");
}

static bool no_new_privs(void)
{
    const char *p = in_read("/proc/self/status");
    p = p ? strstr(p, "\nNoNewPrivs:") : NULL;
    return p && strtol(p + strlen("\nNoNewPrivs:"), NULL, 10) == 1;
}

static int check_nosuid(const char *point, const char *opts, const char *rest)
{
    (void)rest;
    return strstr(opts, "nosuid") ? 0 : in_through("setuid bits count on the mount '%s'", point);
}

static int setuid_counts(void)
{
    if (!no_new_privs())
        return in_through("no_new_privs is not set");
    int r = each_mount(check_nosuid);
    return r ? r : in_blocked("nosuid everywhere, no_new_privs");
}

static int check_nodev(const char *point, const char *opts, const char *rest)
{
    (void)rest;
    struct stat st;
    /* one device, as /dev has them and the masks of /proc are */
    if (strstr(opts, "nodev") || (stat(point, &st) == 0 && S_ISCHR(st.st_mode)))
        return 0;
    return in_through("device files count on the mount '%s'", point);
}

static int check_private(const char *point, const char *opts, const char *rest)
{
    (void)opts;
    const char *end = strstr(rest, " - ");
    for (const char *p = rest; end && p < end; p++)
        if (strncmp(p, " shared:", 8) == 0 || strncmp(p, " master:", 8) == 0)
            return in_through("the mount '%s' is connected with mounts outside", point);
    return 0;
}

static int propagation(void)
{
    int r = each_mount(check_private);
    return r ? r : in_blocked("every mount is private");
}

/* A device file of one's own, and whether it would count. */
static int make_device(void)
{
    const char *where = in_operation ? in_need("dir") : "/tmp";
    char path[4096];
    static const struct {
        mode_t type;
        unsigned ma, mi;
    } devices[] = {{S_IFCHR, 1, 1},   {S_IFBLK, 8, 0},    {S_IFBLK, 254, 0},
                   {S_IFBLK, 259, 0}, {S_IFCHR, 10, 200}, {S_IFCHR, 5, 1}};
    snprintf(path, sizeof(path), "%s/device", where);
    for (unsigned i = 0; i < sizeof(devices) / sizeof(devices[0]) && !in_operation; i++)
        if (mknod(path, devices[i].type | 0666, makedev(devices[i].ma, devices[i].mi)) == 0)
            return in_through("the device %u:%u was made", devices[i].ma, devices[i].mi);
    int e = errno;
    /* the one device file that anybody may make, and that leads nowhere; shows the detector */
    if (in_operation && mknod(path, S_IFCHR | 0666, makedev(0, 0)) == 0)
        return in_through("a device file was made");
    int r = in_operation ? 0 : each_mount(check_nodev);
    return r ? r : in_blocked("mknod: %s; nodev everywhere", strerror(e));
}

/* A capability in a file, in the form that belongs to this user namespace. */
static int file_capability(void)
{
    struct vfs_ns_cap_data data = {
        .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
        .data = {{.permitted = 1u << CAP_SYS_ADMIN}},
    };
    char path[4096];
    if (in_operation) {
        char map[64];
        unsigned uid = geteuid(), gid = getegid();
        snprintf(map, sizeof(map), "0 %u 1", uid);
        if (unshare(CLONE_NEWUSER) < 0)
            return in_failed("unshare: %s", strerror(errno));
        if (!in_append("/proc/self/uid_map", map) || !in_append("/proc/self/setgroups", "deny"))
            return in_failed("uid_map: %s", strerror(errno));
        snprintf(map, sizeof(map), "0 %u 1", gid);
        if (!in_append("/proc/self/gid_map", map))
            return in_failed("gid_map: %s", strerror(errno));
    }
    snprintf(path, sizeof(path), "%s/file", in_operation ? in_need("dir") : "/tmp");
    if (!creates(path))
        return in_failed("no file: %s", strerror(errno));
    return setxattr(path, "security.capability", &data, sizeof(data) - 4, 0) == 0
               ? in_through("security.capability was set")
               : in_blocked("%s", strerror(errno));
}

/* Somebody on the host may execute it: then it runs with the workspace owner's id. */
static int setuid_left(void)
{
    const char *path = "/workspace/out/tool";
    struct stat st;
    if (!creates(path) || chmod(path, 04755) < 0 || stat(path, &st) < 0)
        return in_blocked("%s", strerror(errno));
    return st.st_mode & S_ISUID ? in_through("a setuid file lies in an allowed path")
                                : in_blocked("the bit was dropped");
}

/* CVE-2019-5736: overwrite the program that the runtime will execute again. */
static int overwrite(const char *path)
{
    /* O_TRUNC makes the kernel ask the mount first, and only then whether it is being executed */
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0)
        return in_through("'%s' was opened for writing", path);
    if (errno == ETXTBSY) /* the attack only has to wait until it is executed no more */
        return in_through("only its being executed keeps '%s' from being written", path);
    int e = errno;
    int handle = open(path, O_PATH | O_CLOEXEC);
    char again[64];
    snprintf(again, sizeof(again), "/proc/self/fd/%d", handle);
    if (handle >= 0 &&
        ((fd = open(again, O_WRONLY | O_TRUNC | O_CLOEXEC)) >= 0 || errno == ETXTBSY))
        return in_through("'%s' can be opened again for writing", path);
    errno = e;
    return 0;
}

static int overwrite_runtime(void)
{
    static const char *const paths[] = {"/proc/1/exe", "/.bridle-init"};
    int r = 0;
    for (unsigned i = 0; i < 2 && r == 0; i++)
        r = overwrite(paths[i]);
    return r ? r : in_blocked("%s", strerror(errno));
}

/* The interpreter trick of the same CVE: the runtime executes itself, in a process of ours. */
static int overwrite_shebang(void)
{
    char exe[64];
    int fd = open("/tmp/self", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (fd < 0 || write(fd, "#!/proc/1/exe\n", 14) != 14)
        return in_failed("no script: %s", strerror(errno));
    close(fd);
    int hold[2]; /* something that it waits on as its channel */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, hold) < 0)
        return in_failed("%s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(hold[0], 3);
        execl("/tmp/self", "self", (char *)NULL);
        execl("/.bridle-init", "init", (char *)NULL);
        _exit(1);
    }
    usleep(50000);
    snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
    int r = overwrite(exe);
    int e = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return r ? r : in_blocked("%s", strerror(e));
}

/* A file of the host by its name, in every way that a root that was left may still be reached. */
static int host_file(void)
{
    static const char *const roots[] = {"",
                                        "/run",
                                        "/proc/1/root",
                                        "/proc/1/cwd/../../..",
                                        "/proc/self/root/..",
                                        "/workspace/../..",
                                        "/.."};
    const char *name = in_need("secret"), *token = in_need("token");
    char path[8192];
    for (unsigned i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", roots[i], name);
        const char *text = in_read(path);
        if (text && strstr(text, token))
            return in_through("the host's file was read as '%s'", path);
    }
    return in_blocked("%s", strerror(errno));
}

/* What was written before the launch to a link in the workspace that leads out. */
static int through_link(void)
{
    const char *token = in_need("token");
    static const char *const links[] = {"out/link-file", "out/link-dir/secret", "link-dir/secret"};
    char path[4096];
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", in_operation ? in_need("ws") : "/workspace",
                 links[i]);
        const char *text = in_read(path);
        if (text && strstr(text, token))
            return in_through("'%s' leads to a file of the host", path);
        if (in_append(path, "x"))
            return in_through("'%s' leads to a file that can be written", path);
    }
    return in_blocked("%s", strerror(errno));
}

/* For races at the launch: leave a mark where the mount target is now. */
static int leave_mark(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "/workspace/evil/mark-%s", in_need("n"));
    if (creates(path)) /* a mount stays on its directory when that is renamed */
        return in_blocked("a mark was left, to be looked for outside");
    snprintf(path, sizeof(path), "/workspace/target/mark-%s", in_need("n"));
    return creates(path) ? in_blocked("a mark was left, to be looked for outside")
                         : in_blocked("%s", strerror(errno));
}

/* chroot and back out of it: the oldest way. */
static int chroot_escape(void)
{
    if (mkdir("/tmp/jail", 0755) < 0 && errno != EEXIST)
        return in_failed("%s", strerror(errno));
    int up = open("/", O_RDONLY | O_DIRECTORY);
    if (chroot("/tmp/jail") < 0)
        return in_blocked("chroot: %s", strerror(errno));
    (void)up;
    return in_through("chroot works, and with it leaving it");
}

/* A directory of /dev, of images that bring their own (crun, youki: /dev as a link). */
static int dev_is_ours(void)
{
    struct stat st;
    static const char *const unwanted[] = {
        "/dev/console", "/dev/ptmx",    "/dev/pts/0", "/dev/kmsg", "/dev/mem", "/dev/fuse",
        "/dev/kvm",     "/dev/net/tun", "/dev/loop0", "/dev/vda",  "/dev/sda", "/dev/uinput"};
    static const struct {
        const char *path;
        unsigned ma, mi;
    } wanted[] = {{"/dev/null", 1, 3},
                  {"/dev/zero", 1, 5},
                  {"/dev/full", 1, 7},
                  {"/dev/random", 1, 8},
                  {"/dev/urandom", 1, 9}};
    const char *root = in_operation ? "" : in_arg("root") ?: "";
    char path[128];
    for (unsigned i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", root, unwanted[i]);
        if (lstat(path, &st) == 0)
            return in_through("'%s' exists", path);
        snprintf(path, sizeof(path), "/run%s", unwanted[i]);
        if (lstat(path, &st) == 0)
            return in_through("'%s' exists", path);
    }
    if (lstat("/dev", &st) < 0 || !S_ISDIR(st.st_mode))
        return in_through("/dev is not a directory");
    for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (lstat(wanted[i].path, &st) < 0 || !S_ISCHR(st.st_mode) ||
            st.st_rdev != makedev(wanted[i].ma, wanted[i].mi))
            return in_through("'%s' is not the device of that name", wanted[i].path);
    return in_blocked("only null, zero, full, random, urandom and tty");
}

/* The names of an image that a launcher has a use for. */
static int image_links(void)
{
    static const char *const names[] = {"dev", "proc", "sys",    "run",     "tmp",
                                        "etc", "home", "state",  "scratch", "root",
                                        "usr", "var",  "broker", ".bridle"};
    const char *token = in_need("token"), *root = in_operation ? in_need("image") : "";
    char path[4096];
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/secret", root, names[i]);
        const char *text = in_read(path);
        if (text && strstr(text, token))
            return in_through("'%s' leads to a file of the host", path);
        snprintf(path, sizeof(path), "%s/%s/mark", root, names[i]);
        (void)creates(path); /* whether it appears outside is looked at there */
    }
    (void)creates("/home/agent/mark");
    const char *text = in_read("/.bridle-init");
    if (text && strstr(text, token))
        return in_through("the program of pid 1 is the image's");
    return dev_is_ours();
}

const struct in_attack in_fs[] = {
    {"image-links", image_links},
    {"write-workspace", write_workspace},
    {"late-files", late_files},
    {"allowed-hook", allowed_hook},
    {"move-git", move_git},
    {"hardlink", hardlink},
    {"hardlink-inside", hardlink_inside},
    {"mounts-readonly", mounts_readonly},
    {"setuid-counts", setuid_counts},
    {"propagation", propagation},
    {"make-device", make_device},
    {"file-capability", file_capability},
    {"setuid-left", setuid_left},
    {"overwrite-runtime", overwrite_runtime},
    {"overwrite-shebang", overwrite_shebang},
    {"host-file", host_file},
    {"through-link", through_link},
    {"leave-mark", leave_mark},
    {"chroot-escape", chroot_escape},
    {"dev-is-ours", dev_is_ours},
    {NULL, NULL},
};
