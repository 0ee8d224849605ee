/*
 * Probes, the second part: is a limit really kept, does Landlock really refuse, and what profiles
 * beyond the default one need (leases, images, bubblewrap). Called by br_probe_run(). Every row
 * does the real operation; nothing is kept; whatever runs is a child that is killed after ten
 * seconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/reopen.h"
#include "sandbox/lease.h"
#include "sandbox/probe_priv.h"
#include "sandbox/sys.h"

#define NOBODY 65534u
#define ADMIT_LIMIT (16u << 20)
#define ADMIT_TOUCH (64u << 20)

/* ---- memory: admission, not only a number in a file ---- */

static _Noreturn void eat(const int *ways, unsigned n)
{
    (void)alarm(BR_PROBE_SECONDS);
    if (br_cg_enter(ways, n) < 0)
        _exit(1);
    char *p = mmap(NULL, ADMIT_TOUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(2);
    for (size_t i = 0; i < ADMIT_TOUCH; i += 4096)
        p[i] = 1;
    _exit(0);
}

/* A child in the cgroup touches more than its limit. True: it was killed for it. */
static bool is_killed(const struct br_cg *cg, struct br_err *err)
{
    int ways[BR_CG_CTLS], status = 0, into = br_cg_v2_fd(cg);
    struct clone_args args = {.flags = into >= 0 ? CLONE_INTO_CGROUP : 0,
                              .exit_signal = SIGCHLD,
                              .cgroup = into >= 0 ? (uint64_t)into : 0};
    int n = br_cg_open_ways(cg, ways, err);
    if (n < 0)
        return false;
    pid_t pid = (pid_t)br_sys_clone3(&args, sizeof(args));
    if (pid == 0)
        eat(ways, (unsigned)n);
    if (pid < 0)
        (void)br_err_errno(err, BR_E_FAILED, "a process could not be made in a cgroup");
    while (n > 0)
        br_close(&ways[--n]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    bool killed = pid > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1)
        (void)br_err_set(err, BR_E_FAILED, "a cgroup could not be joined");
    else if (pid > 0 && !killed)
        (void)br_err_set(err, BR_E_FAILED, "%u MiB were used below a limit of %u MiB",
                         ADMIT_TOUCH >> 20, ADMIT_LIMIT >> 20);
    return killed;
}

static void probe_admission(const struct br_host *h, struct br_probe *p)
{
    struct br_limits l = br_limits_default;
    struct br_err err = {.code = BR_OK};
    struct br_cg cg;
    uint64_t id;
    bool killed = false;
    l.memory_bytes = ADMIT_LIMIT;
    br_random(&id, sizeof(id));
    if (h && h->place.have & 1u << BR_CG_MEMORY && br_cg_make(&h->place, &cg, id, &err) == 0) {
        if (br_cg_limit_one(&cg, BR_CG_MEMORY, &l, &err) == 0)
            killed = is_killed(&cg, &err);
        (void)br_cg_remove(&cg, NULL);
    }
    br_probe_row(p, "memory admission", killed ? BR_PROBE_OK : BR_PROBE_MISSING, true,
                 "See 'memory limit'. Version 1 with swap: boot with swapaccount=1, or swapoff -a");
    snprintf(p->detail, sizeof(p->detail), "%.250s",
             killed     ? "a process that goes over its limit is killed"
             : err.code ? err.text
                        : "no memory limit can be set");
}

static void probe_swap(const struct br_host *h, struct br_probe *p)
{
    struct br_cg_read got = {0};
    struct br_err err = {.code = BR_OK};
    struct br_cg cg;
    uint64_t id;
    int r = -1;
    br_random(&id, sizeof(id));
    if (h && h->place.have & 1u << BR_CG_MEMORY && br_cg_make(&h->place, &cg, id, &err) == 0) {
        r = br_cg_limit_one(&cg, BR_CG_MEMORY, &br_limits_default, &err);
        if (r == 0)
            r = br_cg_read(&cg, &got, &err);
        (void)br_cg_remove(&cg, NULL);
    }
    br_probe_row(p, "swap limit", r < 0 ? BR_PROBE_MISSING : BR_PROBE_OK, true,
                 "See 'memory limit'. A kernel that does not count swap: boot with swapaccount=1, "
                 "or swapoff -a");
    snprintf(p->detail, sizeof(p->detail), "%.250s",
             r == 0     ? got.no_swap ? "not counted, and none on this host" : "counted with memory"
             : err.code ? err.text
                        : "no memory limit can be set");
}

/* ---- Landlock ---- */

static int try_landlock(void)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE};
    int rules = br_sys_landlock(SYS_landlock_create_ruleset, (long)(uintptr_t)&attr,
                                (long)sizeof(attr.handled_access_fs), 0, 0);
    if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        br_sys_landlock(SYS_landlock_restrict_self, rules, 0, 0, 0) < 0)
        return -1;
    if (open("/dev/null", O_WRONLY | O_CLOEXEC) < 0 && errno == EACCES)
        return 0;
    errno = EINVAL;
    return -1;
}

static void probe_landlock(struct br_probe *p)
{
    int e = br_probe_child(try_landlock, 0);
    br_probe_row(p, "Landlock", e ? BR_PROBE_MISSING : BR_PROBE_OK, true,
                 "Add landlock to the list of LSMs: in /etc/default/grub, GRUB_CMDLINE_LINUX="
                 "\"lsm=landlock,lockdown,yama,integrity,apparmor,bpf\", then update-grub and boot "
                 "again (Debian 12 and 13 and Ubuntu 24.04 have it by default). Or use the profile "
                 "run-nolandlock-v1");
    if (!e)
        snprintf(p->detail, sizeof(p->detail), "ABI %d, and it refuses", br_landlock_abi());
    else
        snprintf(p->detail, sizeof(p->detail), "%s",
                 e == ENOSYS       ? "this kernel has no Landlock"
                 : e == EOPNOTSUPP ? "the kernel was booted without it"
                 : e == EINVAL     ? "applied, and it refuses nothing"
                                   : strerror(e));
}

/* ---- idmapped mounts ---- */

static int try_idmap(int fd)
{
    struct br_idmap m = {.ns = -1, .uid_map = -1, .gid_map = -1};
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};
    char map[64];
    int e = 0;
    if (br_idmap_make(&m, NULL) < 0)
        return errno ? errno : EPERM;
    snprintf(map, sizeof(map), "65534 %u 1", (unsigned)BR_UID_SANDBOX);
    BR_CLEANUP_FD int tree = br_sys_open_tree(fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
    attr.userns_fd = (uint64_t)m.ns;
    if (tree < 0 || br_sys_write_map(m.uid_map, map) < 0 || br_sys_write_map(m.gid_map, map) < 0 ||
        br_sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
        e = errno;
    br_idmap_close(&m);
    return e;
}

static void probe_idmap(const struct br_host *h, struct br_probe *p)
{
    bool root = h && h->uid == 0;
    BR_CLEANUP_FD int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool state = h && h->state_fd >= 0;
    /* it came from another mount namespace, whose mounts cannot be cloned in this one */
    BR_CLEANUP_FD int here =
        state ? br_reopen_here(h->state_fd, O_PATH | O_DIRECTORY, "the state directory", NULL) : -1;
    state = here >= 0;
    int e = !h ? ECANCELED : root ? try_idmap(state ? here : tmp) : 0;
    br_probe_row(p, "idmapped mounts", e ? BR_PROBE_MISSING : BR_PROBE_OK, true,
                 "Use Linux 5.12 or newer and a file system that has them (ext4, xfs, btrfs, f2fs, "
                 "tmpfs from 6.3; not nfs, 9p, fuse). Or use the profile "
                 "run-owner-v1");
    snprintf(p->detail, sizeof(p->detail), "%s",
             e       ? strerror(e)
             : !root ? "not needed: sandboxes run as this user"
             : state ? "on the state directory's file system; a workspace's is tried by its run"
                     : "on /tmp; a workspace's file system is tried by its run");
}

/* ---- leases ---- */

static void probe_lease(const struct br_host *h, bool ext4, struct br_probe *p)
{
    struct br_err err = {.code = BR_OK};
    char detail[256] = "";
    int r = !h     ? br_err_set(&err, BR_E_REQUIREMENT_MISSING, "there is no native sandbox")
            : ext4 ? br_lease_probe_ext4(h, detail, &err)
                   : br_lease_probe_tmpfs(h, detail, &err);
    br_probe_row(
        p, ext4 ? "ext4 lease" : "tmpfs lease", r < 0 ? BR_PROBE_MISSING : BR_PROBE_OK, false,
        !ext4         ? "Use a kernel with CONFIG_TMPFS"
        : h && h->uid ? "Use the profile workspace-tmpfs-v1, or run Bridle as root"
                      : "apt-get install e2fsprogs; modprobe loop; in a container, give it "
                        "/dev/loop-control and /dev/loop* (--privileged). Or use the profile "
                        "workspace-tmpfs-v1");
    snprintf(p->detail, sizeof(p->detail), "%.250s", r < 0 ? err.text : detail);
}

/* ---- images ---- */

/* The file of a program of the host, or NULL. */
static const char *find_tool(const char *name, char path[64])
{
    static const char *const dirs[] = {"/usr/bin", "/usr/sbin", "/bin", "/sbin"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(dirs); i++) {
        snprintf(path, 64, "%s/%s", dirs[i], name);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

/* Runs a program: its exit status, -1 if it did not end by itself in time. `text` gets what it
 * wrote. `as_nobody`: a root that is asked for sandboxes must not make one of its own uid. */
static int run_tool(char *const *argv, bool as_nobody, char *text, size_t cap)
{
    int out[2], status = -1;
    size_t at = 0;
    if (pipe2(out, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)alarm(BR_PROBE_SECONDS);
        if (null < 0 || dup2(null, 0) < 0 || dup2(out[1], 1) < 0 || dup2(null, 2) < 0)
            _exit(127);
        br_close_from(3, NULL, 0);
        if (as_nobody && geteuid() == 0 &&
            (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
             setresuid(NOBODY, NOBODY, NOBODY) < 0))
            _exit(127);
        execve(argv[0], argv, (char *const[]){NULL});
        _exit(127);
    }
    br_close(&out[1]);
    for (ssize_t n; at + 1 < cap && (n = read(out[0], text + at, cap - 1 - at)) > 0;)
        at += (size_t)n;
    if (cap)
        text[at] = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    br_close(&out[0]);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int own_tmp(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    return mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=8m");
}

static int try_overlay(void)
{
    if (own_tmp() < 0 || mkdir("/tmp/a", 0755) < 0 || mkdir("/tmp/b", 0755) < 0)
        return -1;
    int fs = br_sys_fsopen("overlay");
    if (fs < 0 || br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", "/tmp/a:/tmp/b") < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return -1;
    return br_sys_fsmount(fs, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) < 0 ? -1
                                                                                            : 0;
}

/* Root only: makes an image and mounts the file. */
static int try_erofs(void)
{
    char path[64];
    const char *tool = find_tool("mkfs.erofs", path);
    char *const argv[] = {path, (char *)(uintptr_t) "/tmp/image", (char *)(uintptr_t) "/tmp/dir",
                          NULL};
    if (!tool) {
        errno = ENOEXEC;
        return -1;
    }
    if (br_sys_unshare(CLONE_NEWNS) < 0 || own_tmp() < 0 || mkdir("/tmp/dir", 0755) < 0)
        return -1;
    if (run_tool(argv, false, NULL, 0) != 0) {
        errno = EIO;
        return -1;
    }
    int fs = br_sys_fsopen("erofs");
    if (fs < 0 || br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", "/tmp/image") < 0)
        return -1;
    return br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL);
}

static void probe_erofs(const struct br_host *h, bool loop, struct br_probe *p)
{
    bool root = h && h->uid == 0;
    int e = !h ? ECANCELED : root ? br_probe_child(try_erofs, 0) : 0;
    bool ok = e == 0 || (e == ENOTBLK && loop);
    br_probe_row(p, "erofs images", ok ? BR_PROBE_OK : BR_PROBE_MISSING, false,
                 e == ENOEXEC
                     ? "apt-get install erofs-utils"
                     : "modprobe erofs (CONFIG_EROFS_FS; Debian and Ubuntu have it), and a "
                       "loop device where the kernel cannot mount files (before 6.12)");
    snprintf(p->detail, sizeof(p->detail), "%s",
             e == ENOEXEC   ? "mkfs.erofs is not installed"
             : e == ENOTBLK ? (loop ? "through a loop device" : "no loop device for the file")
             : e            ? strerror(e)
             : root         ? "the file is mounted directly"
                            : "not needed: an ordinary user's images are directories");
}

static void probe_overlay(struct br_probe *p)
{
    int e = br_probe_child(try_overlay, CLONE_NEWUSER | CLONE_NEWNS);
    br_probe_row(p, "overlayfs", e ? BR_PROBE_MISSING : BR_PROBE_OK, false,
                 "modprobe overlay; for ordinary users Linux 5.11 or newer");
    snprintf(p->detail, sizeof(p->detail), "%s", e ? strerror(e) : "two directories joined");
}

static void probe_tools(struct br_probe *p)
{
    static const char *const tools[] = {"umoci", "skopeo", "mkfs.erofs", "mmdebstrap"};
    char lacking[128] = "", path[64];
    for (unsigned i = 0; i < BR_ARRAY_LEN(tools); i++)
        if (!find_tool(tools[i], path))
            snprintf(lacking + strlen(lacking), sizeof(lacking) - strlen(lacking), " %s", tools[i]);
    br_probe_row(p, "image tools", lacking[0] ? BR_PROBE_MISSING : BR_PROBE_OK, false,
                 "apt-get install umoci skopeo erofs-utils mmdebstrap");
    snprintf(p->detail, sizeof(p->detail), "%s%s", lacking[0] ? "not installed:" : "installed",
             lacking);
}

/* ---- bubblewrap ---- */

static void probe_bwrap(struct br_probe *p)
{
    char path[64] = "", version[64] = "";
    const char *tool = find_tool("bwrap", path);
    char *const ask[] = {path, (char *)(uintptr_t) "--version", NULL};
    char *const try[] = {path,
                         (char *)(uintptr_t) "--unshare-all",
                         (char *)(uintptr_t) "--ro-bind",
                         (char *)(uintptr_t) "/",
                         (char *)(uintptr_t) "/",
                         (char *)(uintptr_t) "/bin/true",
                         NULL};
    int r = tool ? run_tool(ask, true, version, sizeof(version)) : -1;
    version[strcspn(version, "\n")] = 0;
    bool ok = r == 0 && run_tool(try, true, NULL, 0) == 0;
    br_probe_row(p, "bubblewrap", ok ? BR_PROBE_OK : BR_PROBE_MISSING, false,
                 tool ? "See 'user namespaces'; Ubuntu 24.04: apt-get install apparmor-profiles, "
                        "and enable bwrap-userns-restrict"
                      : "apt-get install bubblewrap");
    snprintf(p->detail, sizeof(p->detail), "%.60s%s",
             !tool    ? "not installed"
             : r != 0 ? "it cannot be run"
                      : version,
             tool && r == 0 && !ok ? " cannot make a sandbox here" : "");
}

uint32_t br_probe_more(const struct br_host *h, struct br_probe *rows)
{
    uint32_t n = 0;
    probe_admission(h, &rows[n++]);
    probe_swap(h, &rows[n++]);
    probe_landlock(&rows[n++]);
    probe_idmap(h, &rows[n++]);
    probe_lease(h, false, &rows[n++]);
    probe_lease(h, true, &rows[n++]);
    probe_erofs(h, rows[n - 1].result == BR_PROBE_OK, &rows[n]);
    n++;
    probe_overlay(&rows[n++]);
    probe_tools(&rows[n++]);
    probe_bwrap(&rows[n++]);
    return n;
}
