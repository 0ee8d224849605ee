/*
 * The thin wrappers. Called by the rest of core/sandbox only. Nothing here decides anything; the
 * hook is a variable that only a test program that links this library can set.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/sys.h"

int (*br_sys_hook)(enum br_sys call);

const char *br_sys_name(enum br_sys call)
{
    static const char *const names[] = {
#define BR_SYS_NAME_(name) #name,
        BR_SYS_CALLS(BR_SYS_NAME_)
#undef BR_SYS_NAME_
    };
    return (unsigned)call < BR_ARRAY_LEN(names) ? names[call] : "?";
}

/* Does a test want something else than the call? Then *r is its result. */
static bool injected(enum br_sys call, int *r)
{
    int e = br_sys_hook ? br_sys_hook(call) : 0;
    *r = e == BR_SYS_NOTHING ? 0 : -1;
    if (e > 0)
        errno = e;
    return e != 0;
}

#define WRAP(call, expr)                                                                           \
    ({                                                                                             \
        int r_;                                                                                    \
        injected(BR_SYS_##call, &r_) ? r_ : (int)(expr);                                           \
    })
/* The same for a call that makes a descriptor. */
#define WRAP_FD(call, expr)                                                                        \
    ({                                                                                             \
        int r_;                                                                                    \
        !injected(BR_SYS_##call, &r_) ? (int)(expr) : r_ < 0 ? -1 : not_a_descriptor();            \
    })

static int not_a_descriptor(void)
{
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

pid_t br_sys_fork(void)
{
    int r;
    if (!injected(BR_SYS_FORK, &r))
        return fork();
    errno = r < 0 ? errno : EAGAIN;
    return -1;
}

long br_sys_clone3(struct clone_args *args, size_t size)
{
    int r;
    if (injected(BR_SYS_CLONE3, &r)) {
        if (r < 0)
            return -1;
        args->flags &= CLONE_PIDFD | CLONE_PARENT | CLONE_PARENT_SETTID;
        args->cgroup = 0;
    }
    return syscall(SYS_clone3, args, size);
}

int br_sys_unshare(int flags)
{
    return WRAP(UNSHARE, unshare(flags));
}

int br_sys_setns(int fd, int type)
{
    return WRAP(SETNS, setns(fd, type));
}

int br_sys_open_tree(int dirfd, const char *path, unsigned flags)
{
    return WRAP_FD(OPEN_TREE, syscall(SYS_open_tree, dirfd, path, flags | OPEN_TREE_CLOEXEC));
}

int br_sys_move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
    return WRAP(MOVE_MOUNT, syscall(SYS_move_mount, from, from_path, to, to_path, flags));
}

int br_sys_mount_setattr(int dirfd, const char *path, unsigned flags, const struct mount_attr *a)
{
    return WRAP(MOUNT_SETATTR, syscall(SYS_mount_setattr, dirfd, path, flags, a, sizeof(*a)));
}

int br_sys_fsopen(const char *type)
{
    return WRAP_FD(FSOPEN, syscall(SYS_fsopen, type, FSOPEN_CLOEXEC));
}

int br_sys_fsconfig(int fd, unsigned cmd, const char *key, const char *value)
{
    return WRAP(FSCONFIG, syscall(SYS_fsconfig, fd, cmd, key, value, 0));
}

int br_sys_fsmount(int fd, unsigned attrs)
{
    return WRAP_FD(FSMOUNT, syscall(SYS_fsmount, fd, FSMOUNT_CLOEXEC, attrs));
}

int br_sys_mount(const char *src, const char *dst, const char *type, unsigned long flags,
                 const char *data)
{
    return WRAP(MOUNT, mount(src, dst, type, flags, data));
}

int br_sys_umount(const char *path, int flags)
{
    return WRAP(UMOUNT, umount2(path, flags));
}

int br_sys_pivot_root(const char *new_root, const char *put_old)
{
    return WRAP(PIVOT_ROOT, syscall(SYS_pivot_root, new_root, put_old));
}

int br_sys_fchdir(int fd)
{
    return WRAP(CHDIR, fchdir(fd));
}

int br_sys_chdir(const char *path)
{
    return WRAP(CHDIR, chdir(path));
}

int br_sys_sethostname(const char *name)
{
    return WRAP(SETHOSTNAME, sethostname(name, strlen(name)));
}

int br_sys_setsid(void)
{
    return WRAP(SETSID, setsid());
}

int br_sys_setgroups_none(void)
{
    return WRAP(SETGROUPS, syscall(SYS_setgroups, 0, NULL));
}

int br_sys_setresgid(gid_t gid)
{
    return WRAP(SETRESGID, syscall(SYS_setresgid, gid, gid, gid));
}

int br_sys_setresuid(uid_t uid)
{
    return WRAP(SETRESUID, syscall(SYS_setresuid, uid, uid, uid));
}

int br_sys_seteuid(uid_t uid)
{
    return WRAP(SETEUID, syscall(SYS_setresuid, -1, uid, -1));
}

int br_sys_capset_none(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    return WRAP(CAPSET, syscall(SYS_capset, &head, none));
}

int br_sys_prctl(int op, unsigned long a, unsigned long b)
{
    return WRAP(PRCTL, prctl(op, a, b, 0ul, 0ul));
}

int br_sys_seccomp(const struct sock_fprog *prog)
{
    return WRAP(SECCOMP, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, prog));
}

int br_sys_landlock(long nr, long a, long b, long c, long d)
{
    return WRAP(LANDLOCK, syscall(nr, a, b, c, d));
}

int br_sys_setaffinity(const void *set, size_t size)
{
    return WRAP(AFFINITY, syscall(SYS_sched_setaffinity, 0, size, set));
}

int br_sys_setrlimit(int what, uint64_t value)
{
    struct rlimit l = {.rlim_cur = value, .rlim_max = value};
    return WRAP(SETRLIMIT, syscall(SYS_prlimit64, 0, what, &l, NULL));
}

int br_sys_dup2(int from, int to)
{
    return WRAP(DUP, dup2(from, to));
}

int br_sys_close_range(unsigned first, unsigned last)
{
    return first > last ? 0 : WRAP(CLOSE_RANGE, syscall(SYS_close_range, first, last, 0));
}

int br_sys_exec(const char *path, char *const *argv, char *const *envp)
{
    return WRAP(EXEC, execve(path, argv, envp));
}

static int write_text(int fd, const char *text)
{
    size_t n = strlen(text);
    ssize_t r = write(fd, text, n);
    if (r >= 0 && (size_t)r != n) {
        errno = EIO;
        return -1;
    }
    return r < 0 ? -1 : 0;
}

int br_sys_idmap(pid_t pid, const char *file, const char *text)
{
    char path[64];
    int r;
    if (injected(BR_SYS_IDMAP, &r))
        return r;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -1 : write_text(fd, text);
}

int br_sys_new_keyring(void)
{
    return WRAP(KEYCTL, syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL));
}

int br_sys_write_map(int fd, const char *text)
{
    return WRAP(IDMAP, write_text(fd, text));
}

int br_sys_mkcgroup(int dirfd, const char *name)
{
    return WRAP(MKCGROUP, mkdirat(dirfd, name, 0755));
}

int br_sys_rmcgroup(int dirfd, const char *name)
{
    return WRAP(RMCGROUP, unlinkat(dirfd, name, AT_REMOVEDIR));
}

int br_sys_writecgroup(int dirfd, const char *file, const char *text)
{
    int r;
    if (injected(BR_SYS_WRITECGROUP, &r))
        return r;
    BR_CLEANUP_FD int fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -1 : write_text(fd, text);
}

int br_sys_writelimit(int fd, const char *text)
{
    size_t n = strlen(text);
    return WRAP(WRITECGROUP, pwrite(fd, text, n, 0) == (ssize_t)n ? 0 : -1);
}

int br_sys_joincgroup(int fd)
{
    return WRAP(JOINCGROUP, write_text(fd, "0"));
}

int br_sys_loop(int fd, unsigned long op, unsigned long arg)
{
    return WRAP(LOOP, ioctl(fd, op, arg));
}

int br_sys_fallocate(int fd, uint64_t bytes)
{
    return WRAP(FALLOCATE, fallocate(fd, 0, 0, (off_t)bytes));
}

int br_sys_fstatfs(int fd, struct statfs *st)
{
    return WRAP(STATFS, fstatfs(fd, st));
}

int br_sys_spawn(const struct br_confine *c, struct br_confined *p, struct br_err *err)
{
    int r;
    if (!injected(BR_SYS_SPAWN, &r))
        return br_confine_start(c, p, err);
    errno = r < 0 ? errno : EAGAIN;
    return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", c->path);
}

int br_sys_create(int dirfd, const char *name)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    return WRAP_FD(LEASEFILE, openat(dirfd, name, flags, 0600));
}

int br_sys_rename(int dirfd, const char *from, const char *to)
{
    return WRAP(LEASEFILE, renameat2(dirfd, from, dirfd, to, RENAME_NOREPLACE));
}

int br_sys_unlink(int dirfd, const char *name)
{
    return WRAP(LEASEFILE, unlinkat(dirfd, name, 0));
}

ssize_t br_sys_pwrite(int fd, const void *p, size_t n, off_t at)
{
    int r;
    return injected(BR_SYS_COPYIN, &r) ? (r < 0 ? -1 : (ssize_t)n) : pwrite(fd, p, n, at);
}

int br_sys_make(int dirfd, const char *name, int flags, mode_t mode)
{
    return WRAP_FD(COPYIN, openat(dirfd, name, flags, mode));
}

int br_sys_mkdir(int dirfd, const char *name, mode_t mode)
{
    return WRAP(COPYIN, mkdirat(dirfd, name, mode));
}

int br_sys_symlink(const char *target, int dirfd, const char *name)
{
    return WRAP(COPYIN, symlinkat(target, dirfd, name));
}

int br_sys_capset_effective(bool all)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {{0}, {0}};
    if (syscall(SYS_capget, &head, caps) < 0)
        return -1;
    for (unsigned i = 0; i < 2; i++)
        caps[i].effective = all ? caps[i].permitted : 0;
    return WRAP(CAPSET, syscall(SYS_capset, &head, caps));
}
