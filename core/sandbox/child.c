/*
 * What runs between clone3 and exec: the future pid 1 of a sandbox, in its new namespaces. It first
 * does everything that needs no plan (root, /proc; then identity and tmpfs as they are expected),
 * and waits; then the workspace, and at last it gives up capabilities, installs the filter and
 * executes bridle-init.
 *
 * Called by br_box_prepare() only, in the child. Trusts the launcher, whose copy it is. Uses no
 * memory allocation. Any failure is written to the shared area and ends the child.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sandbox/attach.h"
#include "sandbox/box_priv.h"
#include "sandbox/child_priv.h"
#include "sandbox/fds.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

#define CTL_FD 100 /* where the control socket is kept out of the way of descriptor 3 */

const char *const br_child_env[] = {"PATH=/usr/local/bin:/usr/bin:/bin",
                                    "HOME=" BR_BOX_HOME,
                                    "USER=agent",
                                    "LOGNAME=agent",
                                    "LANG=C.UTF-8",
                                    "TMPDIR=/tmp",
                                    NULL};

int br_child_fail(struct br_err *err, const char *what)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the sandbox could not be set up (%s); nothing was started", what);
}

static int mount_proc(const struct br_host *h, struct br_err *err)
{
    if (br_weak(PIDNS)) /* a new one can only show a pid namespace of its own */
        return br_sys_mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL) < 0
                   ? br_child_fail(err, "bind /proc")
                   : 0;
    /* read-only as a whole: covers /proc/sys, sysrq-trigger and every other switch */
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | (br_weak(PROC) ? 0 : MS_RDONLY);
    if (br_sys_mount("proc", "proc", "proc", flags, NULL) < 0) {
        if (errno == EPERM)
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "the kernel refused a new /proc, because parts of this one are "
                              "covered by mounts; nothing was started. In a container: run it with "
                              "--security-opt systempaths=unconfined");
        return br_child_fail(err, "mount /proc");
    }
    return br_weak(PROC) ? 0 : br_mask_proc(h, err);
}

static int enter_root(const struct br_host *h, int root, struct br_err *err)
{
    STEP(br_sys_move_mount(root, "", AT_FDCWD, BR_ROOTFS_POINT, MOVE_MOUNT_F_EMPTY_PATH),
         "attach the root");
    STEP(br_sys_fchdir(root), "enter the root");
    if (br_weak(SHARED)) /* pivot_root wants no shared one */
        STEP(br_sys_mount(NULL, ".", NULL, MS_REC | MS_SLAVE, NULL), "slave mounts");
    int r = mount_proc(h, err);
    if (r < 0)
        return r;
    if (br_weak(HOSTROOT))
        STEP(br_sys_mount("/", "run", NULL, MS_BIND | MS_REC, NULL), "bind the host's root");
    STEP(br_sys_pivot_root(".", "."), "pivot_root");
    STEP(br_sys_umount(".", MNT_DETACH), "leave the host's root");
    STEP(br_sys_chdir("/"), "chdir /");
    return 0;
}

/* Descriptors 0, 1 and 2 become the sandbox's own /dev/null. */
int br_child_null_stdio(struct br_err *err)
{
    BR_CLEANUP_FD int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    STEP(fd, "open /dev/null");
    for (int i = 0; i < 3; i++)
        STEP(br_sys_dup2(fd, i), "stdin, stdout and stderr");
    if (fd < 3)
        fd = -1;
    return 0;
}

/* The bounding set only; what is needed to mount goes last. */
static int drop_bounding_set(struct br_err *err)
{
    for (int cap = 0; cap < 64; cap++)
        if (br_sys_prctl(PR_CAPBSET_DROP, (unsigned long)cap, 0) < 0) {
            if (errno == EINVAL && cap > 0)
                break; /* the kernel knows no more */
            return br_child_fail(err, "drop the bounding set");
        }
    return 0;
}

/* Everything that needs neither a plan nor an identity. */
static int prepare(const struct br_host *h, int root, struct br_err *err)
{
    (void)prctl(PR_SET_NAME, "bridle-box"); /* for ps, while it waits */
    if (!br_weak(TTY))
        STEP(br_sys_setsid(), "setsid");
    int r = br_weak(CAPS) ? 0 : drop_bounding_set(err);
    if (r == 0)
        r = enter_root(h, root, err);
    return r < 0 || br_weak(TTY) ? r : br_child_null_stdio(err);
}

/* ---- with an identity ---- */

int br_child_become(const struct br_host *h, struct br_err *err)
{
    if (h->uid == 0) /* an ordinary user's groups cannot be dropped; setgroups is denied there */
        STEP(br_sys_setgroups_none(), "drop supplementary groups");
    STEP(br_sys_setresgid(BR_BOX_UID), "setresgid");
    STEP(br_sys_setresuid(BR_BOX_UID), "setresuid");
    return 0;
}

/* `more`: of MS_NOEXEC, and MS_REMOUNT to change what is there already. */
static int mount_tmpfs(const char *path, const struct br_limits *l, unsigned mode,
                       unsigned long more, struct br_err *err)
{
    char opts[128];
    unsigned long long bytes = l->tmp_bytes, inodes = l->tmp_inodes;
    if (br_weak(TMP))
        bytes = inodes = 0; /* no limit */
    snprintf(opts, sizeof(opts), "size=%llu,nr_inodes=%llu,mode=%o", bytes, inodes, mode);
    STEP(br_sys_mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | more, opts), path);
    return 0;
}

int br_child_mount_own(const struct br_limits *l, uint32_t flags, unsigned long more,
                       struct br_err *err)
{
    int r = mount_tmpfs("/tmp", l, 01777, more | (flags & BR_PLAN_TMP_NOEXEC ? MS_NOEXEC : 0), err);
    return r < 0 ? r
                 : mount_tmpfs(BR_BOX_HOME, l, 0700,
                               more | (flags & BR_PLAN_HOME_NOEXEC ? MS_NOEXEC : 0), err);
}

/* Its own limits, read-only, for programs that size their heaps by them. */
int br_child_mount_cgroup(const struct br_host *h, struct br_err *err)
{
    unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (h->cg_view == BR_CG_VIEW_V1)
        STEP(br_sys_mount("cgroup", "/" BR_ROOTFS_CGROUP "/memory", "cgroup", flags, "memory"),
             "show the memory limit");
    if (h->cg_view == BR_CG_VIEW_V2)
        STEP(br_sys_mount("cgroup2", "/" BR_ROOTFS_CGROUP, "cgroup2", flags, NULL),
             "show the limits");
    return 0;
}

/*
 * As soon as there is an identity: what most plans ask for. *rules: of Landlock, or -1.
 *
 * The cgroup namespace only now: it shows the place where its maker is.
 */
static int settle(const struct br_host *h, const struct br_box_shared *s, int ctl, int *rules,
                  struct br_err *err)
{
    char byte;
    STEP(br_sys_unshare(CLONE_NEWCGROUP), "cgroup namespace");
    int r = br_child_mount_cgroup(h, err);
    if (r == 0)
        r = br_child_become(h, err);
    if (r == 0)
        r = br_child_mount_own(&s->expect.limits, s->expect.flags, 0, err);
    if (r < 0)
        return r;
    /* after the identity changed, which clears it */
    if (!br_weak(PDEATH))
        STEP(br_sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0), "die with the launcher");
    if (recv(ctl, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
        _exit(0); /* it died before that */
    if (!br_weak(SUID))
        STEP(br_sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0), "no_new_privs");
    if (h->landlock_abi == 0 || br_weak(LANDLOCK) || br_weak(SUID))
        return 0;
    *rules = br_landlock_rules(h->landlock_abi, err);
    return *rules < 0 ? *rules : 0;
}

int br_child_take_place(int ctl, struct br_err *err)
{
    char word = 0;
    int ways[BR_CG_CTLS];
    unsigned nways;
    ssize_t n = br_fds_receive(ctl, &word, 1, 0, ways, BR_CG_CTLS, &nways);
    if (n == 0)
        _exit(0); /* the launcher has given up, or died */
    if (n != 1 || word != BR_WORD_PLACED)
        return br_err_set(err, BR_E_INTERNAL, "the launcher did not place the sandbox");
    STEP(br_cg_enter(ways, nways), "join its cgroups");
    while (nways > 0)
        br_close(&ways[--nways]);
    return 0;
}

/* ---- with the plan ---- */

int br_child_receive(int ctl, const struct br_box_shared *s, int *fds, struct br_err *err)
{
    char word = 0;
    unsigned got;
    ssize_t n = br_fds_receive(ctl, &word, 1, 0, fds, BR_BOX_FDS_MAX, &got);
    if (n == 0)
        _exit(0); /* the launcher has no plan for this child */
    unsigned want =
        BR_BOX_FD_ALLOWED + s->nallowed + (unsigned)__builtin_popcount(s->disks) + s->based;
    return n == 1 && word == BR_WORD_PLAN && got == want
               ? 0
               : br_err_set(err, BR_E_INTERNAL, "the launcher's plan did not arrive");
}

/* Room for its sockets and nothing else: what pid 1 makes there fills it. */
static int mount_broker(uint32_t flags, struct br_err *err)
{
    char opts[64];
    if (!(flags & BR_BOX_SOCKETS))
        return 0;
    snprintf(opts, sizeof(opts), "size=%llu,nr_inodes=%llu,mode=755", BR_BOX_BROKER_BYTES,
             br_box_broker_inodes(flags));
    STEP(br_sys_mount("tmpfs", BR_BOX_BROKER, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, opts),
         BR_BOX_BROKER);
    return 0;
}

int br_child_mount_plan(const struct br_host *h, struct br_box_shared *s, const int *fds,
                        struct br_err *err)
{
    int r = s->workspace == BR_WORKSPACE_BIND ? br_attach_workspace(h, s, fds, err) : 0;
    if (r == 0)
        r = br_leases_attach(s, fds[BR_BOX_FD_WORKSPACE], fds + BR_BOX_FD_ALLOWED + s->nallowed,
                             err);
    return r < 0 ? r : mount_broker(s->flags, err);
}

static int mount_all(const struct br_host *h, struct br_box_shared *s, const int *fds,
                     struct br_err *err)
{
    const struct br_limits *l = &s->limits, *e = &s->expect.limits;
    int r = 0;
    if (l->tmp_bytes != e->tmp_bytes || l->tmp_inodes != e->tmp_inodes ||
        s->flags != s->expect.flags)
        r = br_child_mount_own(l, s->flags, MS_REMOUNT, err);
    if (r == 0)
        r = br_child_mount_plan(h, s, fds, err);
    if (r < 0)
        return r;
    STEP(br_sys_chdir(BR_BOX_WORKSPACE), "enter the workspace");
    return 0;
}

/* No way back to a capability: not by a uid 0, not by keeping or raising one. Each bit is locked.
 */
#define SECURE_BITS                                                                                \
    (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                               \
     SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |       \
     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

static int drop_capabilities(struct br_err *err)
{
    STEP(br_sys_prctl(PR_SET_SECUREBITS, SECURE_BITS, 0), "secure bits");
    errno = ECANCELED; /* nobody else can read them */
    STEP(prctl(PR_GET_SECUREBITS) != SECURE_BITS ? -1 : 0, "secure bits");
    STEP(br_sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0), "drop ambient capabilities");
    STEP(br_sys_capset_none(), "drop capabilities");
    return 0;
}

/*
 * Programs size their pools by the CPUs that they may run on; what bounds them is the cgroup. Which
 * ones differs from one sandbox to the next.
 */
static int narrow_cpus(uint32_t percent, int seed, struct br_err *err)
{
    cpu_set_t have, some;
    int want = (int)((percent + 99) / 100), n, skip;
    if (sched_getaffinity(0, sizeof(have), &have) < 0 || (n = CPU_COUNT(&have)) <= want)
        return 0; /* more CPUs than the mask can tell are not narrowed */
    CPU_ZERO(&some);
    skip = seed % n;
    for (int i = 0; CPU_COUNT(&some) < want; i = (i + 1) % CPU_SETSIZE)
        if (CPU_ISSET(i, &have) && skip-- <= 0)
            CPU_SET(i, &some);
    STEP(br_sys_setaffinity(&some, sizeof(some)), "the CPUs that it may use");
    return 0;
}

void br_child_init_argv(uint32_t flags, char *argv[BR_BOX_ARGS_MAX])
{
    unsigned n = 0;
    argv[n++] = (char *)(uintptr_t) "bridle-init";
    if (flags & BR_PLAN_BROKER)
        argv[n++] = (char *)(uintptr_t)BR_INIT_PROVIDER;
    if (flags & BR_PLAN_GATE)
        argv[n++] = (char *)(uintptr_t)BR_INIT_GATE;
    argv[n] = NULL;
}

/* Not more than this, and not more than the launcher has. */
static int lower(int what, uint64_t value)
{
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)what, &l) < 0)
        return -1;
    return br_sys_setrlimit(what, l.rlim_max < value ? l.rlim_max : value);
}

static int set_limits(const struct br_limits *l, struct br_err *err)
{
    if (br_weak(RLIMITS))
        return 0;
    STEP(br_sys_setrlimit(RLIMIT_CORE, 0), "RLIMIT_CORE");
    STEP(br_sys_setrlimit(RLIMIT_FSIZE, l->fsize_bytes), "RLIMIT_FSIZE; raise the hard limit");
    STEP(br_sys_setrlimit(RLIMIT_NOFILE, l->nofile), "RLIMIT_NOFILE; raise the hard limit");
    STEP(lower(RLIMIT_SIGPENDING, BR_BOX_SIGPENDING), "RLIMIT_SIGPENDING");
    STEP(lower(RLIMIT_MSGQUEUE, BR_BOX_MSGQUEUE), "RLIMIT_MSGQUEUE");
    return 0;
}

int br_child_limits(const struct br_box_shared *s, struct br_err *err)
{
    int r = set_limits(&s->limits, err);
    return r < 0 ? r : narrow_cpus(s->limits.cpu_percent, s->pid, err);
}

/* What only this process can see, once bridle-init has made itself undumpable. */
static int check_fds(int chan)
{
    struct stat st, want;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
            return -1;
    if (fstat(chan, &want) < 0 || fstat(3, &st) < 0)
        return -1;
    return st.st_dev == want.st_dev && st.st_ino == want.st_ino ? 0 : -1;
}

/* Only 0, 1, 2, the init channel as 3, and, until it executes, the control socket and the rules of
 * Landlock (or -1). */
static int arrange_fds(int *ctl, int *rules, int chan, struct br_err *err)
{
    /* it has closed all that the launcher had, and so the others that it got are below CTL_FD */
    int moved = fcntl(*ctl, F_DUPFD_CLOEXEC, CTL_FD);
    STEP(moved, "keep the control socket");
    *ctl = moved;
    moved = *rules < 0 ? -1 : fcntl(*rules, F_DUPFD_CLOEXEC, *ctl + 1);
    if (*rules >= 0)
        STEP(moved, "keep the rules of Landlock");
    *rules = moved;
    int last = moved < 0 ? *ctl : moved;
    if (chan != 3)
        STEP(br_sys_dup2(chan, 3), "the init channel");
    else
        STEP(fcntl(3, F_SETFD, 0), "the init channel");
    if (br_weak(FDS))
        return 0;
    errno = ECANCELED;
    if (!br_weak(TTY))
        STEP(check_fds(chan), "stdin, stdout, stderr and the init channel");
    STEP(br_sys_close_range(4, (unsigned)*ctl - 1), "close descriptors");
    STEP(br_sys_close_range((unsigned)*ctl + 1, (unsigned)last - 1), "close descriptors");
    STEP(br_sys_close_range((unsigned)last + 1, ~0u), "close descriptors");
    return 0;
}

/* The filter is last: it refuses what the rest needs. */
static int confine(const struct br_host *h, const struct br_box_shared *s, int ctl, int rules,
                   struct br_err *err)
{
    int r = br_weak(CAPS) ? 0 : drop_capabilities(err);
    if (r < 0)
        return r;
    if (br_weak(CAPS))
        STEP(br_weak_keep_caps(), "keep capabilities");
    r = rules < 0 || s->flags & BR_PLAN_NO_LANDLOCK ? 0 : br_landlock_apply(rules, err);
    if (r == 0)
        r = br_child_limits(s, err);
    if (r < 0)
        return r;
    int on_death = 0;
    errno = ECANCELED; /* nobody else can read it */
    if (!br_weak(PDEATH))
        STEP(prctl(PR_GET_PDEATHSIG, &on_death) < 0 || on_death != SIGKILL ? -1 : 0,
             "die with the launcher");
    STEP(send(ctl, (char[]){BR_WORD_MOUNTED}, 1, MSG_NOSIGNAL), "tell the launcher");
    if (!br_weak(FILTER) && !br_weak(SUID))
        STEP(br_sys_seccomp(&h->filter), "system call filter");
    return 0;
}

static int child(const struct br_host *h, struct br_box_shared *s, int ctl, int root)
{
    char *argv[BR_BOX_ARGS_MAX];
    struct br_err *err = &s->err;
    int fds[BR_BOX_FDS_MAX], rules = -1;
    if (!br_weak(FDS))
        br_close_from(3, (int[]){ctl, root}, 2);
    int r = prepare(h, root, err);
    if (r == 0)
        r = br_child_take_place(ctl, err);
    if (r == 0 && s->mapped)
        r = settle(h, s, ctl, &rules, err);
    if (r == 0)
        r = br_child_receive(ctl, s, fds, err);
    if (r == 0 && !s->mapped)
        r = settle(h, s, ctl, &rules, err);
    if (r == 0)
        r = mount_all(h, s, fds, err);
    /* on the descriptors of the mounts, not on names that may have changed meanwhile */
    if (r == 0 && rules >= 0)
        r = br_landlock_allow(h->landlock_abi, rules, s, fds, err);
    if (r == 0)
        r = arrange_fds(&ctl, &rules, fds[BR_BOX_FD_CHAN], err);
    if (r == 0)
        r = confine(h, s, ctl, rules, err);
    if (r < 0)
        return r;
    STEP(br_sys_prctl(PR_SET_DUMPABLE, 0, 0), "not dumpable");
    br_child_init_argv(s->flags, argv);
    (void)br_sys_exec(BR_BOX_INIT, argv,
                      br_weak(ENV) ? environ : (char *const *)(uintptr_t)br_child_env);
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "'bridle-init' could not be executed in the sandbox; nothing was started. "
                        "Is its file executable for everybody, on a mount without noexec?");
}

_Noreturn void br_child_run(const struct br_host *h, struct br_box_shared *s, int ctl, int root)
{
    if (s->expect.backend == BR_BACKEND_BWRAP)
        (void)br_bwrap_child(h, s, ctl, root);
    else
        (void)child(h, s, ctl, root);
    _exit(70);
}
