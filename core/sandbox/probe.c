/*
 * What this host can enforce, for `bridle doctor`. Every row does the real operation in a child
 * process (in namespaces of its own, so that nothing is kept) and reports what the kernel answered.
 * Called by bridle-launch; needs no trust. The fixes are what an operator can copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/filter.h"
#include "sandbox/probe_priv.h"
#include "sandbox/sys.h"

static int probe_userns(void)
{
    return geteuid() == 0 ? 0 : -1; /* what the map says */
}

static int probe_mount_api(void)
{
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    int tree = br_sys_open_tree(AT_FDCWD, "/usr", OPEN_TREE_CLONE | AT_RECURSIVE);
    int fs = br_sys_fsopen("tmpfs");
    if (tree < 0 || fs < 0 ||
        br_sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &ro) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return -1;
    int mnt = br_sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (mnt < 0 || br_sys_move_mount(mnt, "", AT_FDCWD, "/usr", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return -1;
    return br_sys_move_mount(tree, "", AT_FDCWD, "/usr", MOVE_MOUNT_F_EMPTY_PATH);
}

static int probe_pidns(void)
{
    errno = ECHILD;
    return getpid() != 1
               ? -1
               : mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL);
}

static int probe_netns(void)
{
    struct ifreq ifr = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifr.ifr_flags = IFF_UP;
    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &ifr);
}

static int probe_cgroupns(void)
{
    return unshare(CLONE_NEWCGROUP);
}

static int probe_seccomp(void)
{
    struct sock_fprog prog;
    if (br_filter_build(&prog, NULL) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || br_sys_seccomp(&prog) < 0)
        return -1;
    /* it must bite */
    if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

static int probe_tmpfs(void)
{
    char path[32];
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID, "size=8k,nr_inodes=4") < 0)
        return -1;
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "/tmp/%d", i);
        if (mknod(path, S_IFREG | 0600, 0) < 0) {
            if (i == 3 && errno == ENOSPC)
                return 0;
            break;
        }
    }
    errno = EDQUOT;
    return -1;
}

static int probe_openat2(void)
{
    struct statx st;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = root >= 0 ? br_open_beneath(root, "usr", O_PATH | O_DIRECTORY, 0) : -1;
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
        return -1;
    errno = ENOSYS;
    return st.stx_mask & STATX_MNT_ID ? 0 : -1;
}

static const struct {
    const char *requirement;
    int (*run)(void);
    uint64_t flags; /* namespaces that the child is born in, as its root */
    const char *ok, *fix;
} probes[] = {
    {"user namespaces", probe_userns, CLONE_NEWUSER, "made and mapped",
     "sysctl -w user.max_user_namespaces=15000"},
    {"mount API", probe_mount_api, CLONE_NEWUSER | CLONE_NEWNS,
     "fsopen, open_tree, mount_setattr, move_mount",
     "Use Linux 5.12 or newer; in a container, a seccomp profile that allows mount calls "
     "(--security-opt seccomp=unconfined)"},
    {"pid namespace, /proc", probe_pidns, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID,
     "pid 1 with a /proc of its own",
     "In a container: --security-opt systempaths=unconfined (masked /proc forbids a new one)"},
    {"network namespace", probe_netns, CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
     "net, ipc and uts namespaces, loopback up",
     "sysctl -w user.max_net_namespaces=15000; a kernel with CONFIG_NET_NS"},
    {"cgroup namespace", probe_cgroupns, CLONE_NEWUSER, "made",
     "Use Linux 4.6 or newer with CONFIG_CGROUPS"},
    {"system call filter", probe_seccomp, 0, "installed, and it refuses",
     "Use a kernel with CONFIG_SECCOMP_FILTER"},
    {"tmpfs limits", probe_tmpfs, CLONE_NEWUSER | CLONE_NEWNS, "bytes and inodes, exact",
     "Use a kernel with CONFIG_TMPFS"},
    {"openat2, mount ids", probe_openat2, 0, "paths are opened beneath the workspace",
     "Use Linux 5.8 or newer; in a container, a seccomp profile that allows openat2"},
};

static long sysctl_number(const char *path)
{
    char text[32];
    return br_read_text(AT_FDCWD, path, text, sizeof(text)) > 0 ? strtol(text, NULL, 10) : -1;
}

const char *br_probe_userns_cause(const char **fix)
{
    static const struct {
        const char *path;
        long bad;
        const char *cause, *fix;
    } causes[] = {
        {"/proc/sys/user/max_user_namespaces", 0, "user.max_user_namespaces is 0",
         "As root: echo user.max_user_namespaces=15000 > /etc/sysctl.d/60-bridle.conf && sysctl "
         "--system"},
        {"/proc/sys/kernel/unprivileged_userns_clone", 0,
         "kernel.unprivileged_userns_clone is 0 (Debian's switch)",
         "As root: echo kernel.unprivileged_userns_clone=1 > /etc/sysctl.d/60-bridle.conf && "
         "sysctl --system"},
        {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1,
         "AppArmor restricts user namespaces to programs with a profile (Ubuntu 23.10 and newer)",
         "As root: install share/apparmor/bridle as /etc/apparmor.d/bridle and run "
         "apparmor_parser -r /etc/apparmor.d/bridle"},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(causes); i++)
        if (sysctl_number(causes[i].path) == causes[i].bad) {
            *fix = causes[i].fix;
            return causes[i].cause;
        }
    return NULL;
}

/* An id that is never root's: mapping that one needs a capability of its own. */
static int map_child(pid_t pid)
{
    char map[64];
    unsigned uid = geteuid() ? geteuid() : 65534, gid = geteuid() ? getegid() : 65534;
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (br_sys_idmap(pid, "uid_map", map) < 0 || br_sys_idmap(pid, "setgroups", "deny") < 0)
        return -1;
    snprintf(map, sizeof(map), "0 %u 1", gid);
    return br_sys_idmap(pid, "gid_map", map);
}

int br_probe_child(int (*run)(void), uint64_t flags)
{
    int status = 0, go[2], e = 0;
    char byte;
    struct clone_args args = {.flags = flags, .exit_signal = SIGCHLD};
    if (pipe2(go, O_CLOEXEC) < 0)
        return errno;
    pid_t pid = (pid_t)br_sys_clone3(&args, sizeof(args));
    if (pid == 0) {
        br_close(&go[1]);
        (void)alarm(BR_PROBE_SECONDS);
        if (read(go[0], &byte, 1) != 1)
            _exit(ECANCELED);
        if (flags && (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
            _exit(errno);
        _exit(run() < 0 ? errno : 0);
    }
    e = pid < 0 ? errno : 0;
    if (pid > 0 && flags && map_child(pid) < 0)
        e = errno;
    if (e == 0 && write(go[1], "g", 1) != 1)
        e = errno;
    br_close(&go[0]);
    br_close(&go[1]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return e ? e : WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
}

void br_probe_row(struct br_probe *p, const char *requirement, enum br_probe_result result,
                  bool required, const char *fix)
{
    *p = (struct br_probe){.result = (uint8_t)result, .required = required};
    snprintf(p->requirement, sizeof(p->requirement), "%s", requirement);
    snprintf(p->fix, sizeof(p->fix), "%s", result == BR_PROBE_OK ? "" : fix);
}

static void probe_cgroup(const struct br_host *h, enum br_cg_ctl c, struct br_probe *p)
{
    static const char *const names[] = {"memory limit", "process limit", "CPU limit"};
    struct br_cg_place own = {.ndirs = 0};
    const struct br_cg_place *place = h ? &h->place : &own;
    struct br_cg_read got = {0};
    struct br_err err = {.code = BR_OK};
    struct br_cg cg;
    if (!h)
        br_cg_find(&own, &(struct br_cg_env){.self_cgroup = "/proc/self/cgroup",
                                             .mountinfo = "/proc/self/mountinfo",
                                             .uid = geteuid()});
    if (!(place->have & 1u << c)) {
        br_probe_row(p, names[c], BR_PROBE_MISSING, true, place->fix[c]);
        snprintf(p->detail, sizeof(p->detail), "%.250s", place->missing[c]);
    } else {
        int r = br_cg_make(place, &cg, 0, &err);
        if (r == 0) {
            /* the others may be missing, and are rows of their own */
            r = br_cg_limit_one(&cg, c, &br_limits_default, &err);
            if (r == 0)
                r = br_cg_read(&cg, &got, &err);
            if (br_cg_remove(&cg, r < 0 ? NULL : &err) < 0)
                r = -BR_E_FAILED;
        }
        br_probe_row(p, names[c], r < 0 ? BR_PROBE_MISSING : BR_PROBE_OK, true,
                     "Give bridle a cgroup that it may write: see 'bridle doctor --delegate USER'");
        snprintf(p->detail, sizeof(p->detail), "%.250s", r < 0 ? err.text : "");
        const struct br_cg_dir *d = r < 0 ? NULL : br_cg_dir_of(place, c);
        if (d)
            snprintf(p->detail, sizeof(p->detail), "version %d, %.200s", d->v2 ? 2 : 1, d->path);
    }
    br_cg_place_close(&own);
}

/* What a launcher that is root cannot do without. */
static const struct {
    int cap;
    const char *name;
} root_caps[] = {
    {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},       /* namespaces and mounts */
    {CAP_SETUID, "CAP_SETUID"},             /* map the workspace's owner */
    {CAP_SETGID, "CAP_SETGID"},             /* likewise */
    {CAP_NET_ADMIN, "CAP_NET_ADMIN"},       /* loopback */
    {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"}, /* cgroups; workspaces in private homes */
    {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},     /* read what it made, which is not root's */
    {CAP_KILL, "CAP_KILL"},                 /* what a dead launcher left */
};

static void probe_privilege(const struct br_host *h, struct br_probe *p)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    char lacking[160] = "";
    uid_t uid = h ? h->uid : geteuid();
    (void)syscall(SYS_capget, &head, data);
    for (unsigned i = 0; uid == 0 && i < BR_ARRAY_LEN(root_caps); i++) {
        int c = root_caps[i].cap;
        if (!(data[c / 32].effective & 1u << (c % 32)))
            snprintf(lacking + strlen(lacking), sizeof(lacking) - strlen(lacking), " %s",
                     root_caps[i].name);
    }
    br_probe_row(p, "privilege", lacking[0] ? BR_PROBE_MISSING : BR_PROBE_OK, true,
                 "Run as an ordinary user, or give root these capabilities");
    if (lacking[0])
        snprintf(p->detail, sizeof(p->detail), "root without%s", lacking);
    else if (uid == 0)
        snprintf(
            p->detail, sizeof(p->detail),
            "root; sandboxes have a uid of their own, or the workspace owner's (run-owner-v1)");
    else
        snprintf(p->detail, sizeof(p->detail), "ordinary user %u; sandboxes run as this user",
                 (unsigned)uid);
}

/* Everything above, together: what br_host_open() did, or why it could not. */
static void probe_whole(const struct br_host *h, const struct br_err *why, struct br_probe *p)
{
    struct utsname u;
    br_probe_row(p, "native sandbox", h ? BR_PROBE_OK : BR_PROBE_MISSING, true,
                 "See the rows above; then start 'bridle doctor' again");
    if (h && uname(&u) == 0)
        snprintf(p->detail, sizeof(p->detail), "root built, filter of %u instructions, Linux %.60s",
                 h->filter.len, u.release);
    else
        snprintf(p->detail, sizeof(p->detail), "%.250s", why ? why->text : "not prepared");
}

uint32_t br_probe_run(const struct br_host *h, const struct br_err *why, struct br_probe *rows,
                      uint32_t max)
{
    uint32_t n = 0;
    br_require(max >= BR_ARRAY_LEN(probes) + BR_CG_CTLS + BR_PROBES_MORE + 2);
    probe_privilege(h, &rows[n++]);
    for (unsigned i = 0; i < BR_ARRAY_LEN(probes); i++) {
        int e = br_probe_child(probes[i].run, probes[i].flags);
        br_probe_row(&rows[n], probes[i].requirement, e ? BR_PROBE_MISSING : BR_PROBE_OK, true,
                     probes[i].fix);
        snprintf(rows[n].detail, sizeof(rows[n].detail), "%s", e ? strerror(e) : probes[i].ok);
        const char *fix, *cause = e && i == 0 ? br_probe_userns_cause(&fix) : NULL;
        if (cause) {
            snprintf(rows[n].detail, sizeof(rows[n].detail), "%s: %s", strerror(e), cause);
            snprintf(rows[n].fix, sizeof(rows[n].fix), "%s", fix);
        }
        n++;
    }
    for (int c = 0; c < BR_CG_CTLS; c++)
        probe_cgroup(h, (enum br_cg_ctl)c, &rows[n++]);
    n += br_probe_more(h, &rows[n]);
    probe_whole(h, why, &rows[n++]);
    return n;
}
