/*
 * core/sandbox, private: the system calls that build a sandbox, one thin wrapper each, so that a
 * test can make the n-th of any of them fail (br_sys_hook). Every wrapper returns what the system
 * call returns: -1 and errno on failure.
 */
#ifndef BR_SANDBOX_SYS_H
#define BR_SANDBOX_SYS_H

#include <linux/filter.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <linux/sched.h>
#include <sys/types.h>

#include "base/base.h"
#include "confine/confine.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

#define BR_SYS_CALLS(X)                                                                            \
    X(FORK)                                                                                        \
    X(CLONE3)                                                                                      \
    X(UNSHARE)                                                                                     \
    X(SETNS)                                                                                       \
    X(OPEN_TREE)                                                                                   \
    X(MOVE_MOUNT)                                                                                  \
    X(MOUNT_SETATTR)                                                                               \
    X(FSOPEN)                                                                                      \
    X(FSCONFIG)                                                                                    \
    X(FSMOUNT)                                                                                     \
    X(MOUNT)                                                                                       \
    X(UMOUNT)                                                                                      \
    X(PIVOT_ROOT)                                                                                  \
    X(CHDIR)                                                                                       \
    X(SETHOSTNAME)                                                                                 \
    X(SETSID)                                                                                      \
    X(SETGROUPS)                                                                                   \
    X(SETRESGID)                                                                                   \
    X(SETRESUID)                                                                                   \
    X(SETEUID)                                                                                     \
    X(CAPSET)                                                                                      \
    X(PRCTL)                                                                                       \
    X(SECCOMP)                                                                                     \
    X(SETRLIMIT)                                                                                   \
    X(AFFINITY)                                                                                    \
    X(LANDLOCK)                                                                                    \
    X(DUP)                                                                                         \
    X(CLOSE_RANGE)                                                                                 \
    X(EXEC)                                                                                        \
    X(KEYCTL)                                                                                      \
    X(IDMAP)                                                                                       \
    X(MKCGROUP)                                                                                    \
    X(WRITECGROUP)                                                                                 \
    X(JOINCGROUP)                                                                                  \
    X(RMCGROUP)                                                                                    \
    X(LOOP)                                                                                        \
    X(FALLOCATE)                                                                                   \
    X(STATFS)                                                                                      \
    X(SPAWN)                                                                                       \
    X(LEASEFILE)                                                                                   \
    X(COPYIN)

enum br_sys {
#define BR_SYS_ENUM_(name) BR_SYS_##name,
    BR_SYS_CALLS(BR_SYS_ENUM_)
#undef BR_SYS_ENUM_
        BR_SYS_COUNT_
};

/*
 * Tests only: returns 0 to let the call happen, the errno to fail it with, or BR_SYS_NOTHING: the
 * call reports success and does nothing (one that makes a descriptor gives that of /dev/null;
 * clone3 makes a process, but no namespace). NULL by default.
 */
#define BR_SYS_NOTHING (-1)
extern int (*br_sys_hook)(enum br_sys call);
const char *br_sys_name(enum br_sys call);

pid_t br_sys_fork(void);
long br_sys_clone3(struct clone_args *args, size_t size);
int br_sys_unshare(int flags);
int br_sys_setns(int fd, int type);
int br_sys_open_tree(int dirfd, const char *path, unsigned flags);
int br_sys_move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags);
int br_sys_mount_setattr(int dirfd, const char *path, unsigned flags, const struct mount_attr *a);
int br_sys_fsopen(const char *type);
int br_sys_fsconfig(int fd, unsigned cmd, const char *key, const char *value);
int br_sys_fsmount(int fd, unsigned attrs);
int br_sys_mount(const char *src, const char *dst, const char *type, unsigned long flags,
                 const char *data);
int br_sys_umount(const char *path, int flags);
int br_sys_pivot_root(const char *new_root, const char *put_old);
int br_sys_fchdir(int fd);
int br_sys_chdir(const char *path);
int br_sys_sethostname(const char *name);
int br_sys_setsid(void);
int br_sys_setgroups_none(void);
int br_sys_setresgid(gid_t gid);
int br_sys_setresuid(uid_t uid);
int br_sys_seteuid(uid_t uid);
int br_sys_capset_none(void);
int br_sys_prctl(int op, unsigned long a, unsigned long b);
int br_sys_seccomp(const struct sock_fprog *prog);
int br_sys_landlock(long nr, long a, long b, long c, long d);
int br_sys_setaffinity(const void *set, size_t size);
int br_sys_setrlimit(int what, uint64_t value);
int br_sys_dup2(int from, int to);
int br_sys_close_range(unsigned first, unsigned last);
int br_sys_exec(const char *path, char *const *argv, char *const *envp);
/* Leave the session key ring for a new, empty one. */
int br_sys_new_keyring(void);
/* Write `text` to /proc/PID/<file>. */
int br_sys_idmap(pid_t pid, const char *file, const char *text);
/* Write `text` to an opened uid_map or gid_map; counted with br_sys_idmap(). */
int br_sys_write_map(int fd, const char *text);
int br_sys_mkcgroup(int dirfd, const char *name);
int br_sys_rmcgroup(int dirfd, const char *name);
/* One write(2) of text to a file below a cgroup directory. */
int br_sys_writecgroup(int dirfd, const char *file, const char *text);
/* The same to a file that is open; counted with it. */
int br_sys_writelimit(int fd, const char *text);
/* The calling thread joins the version 1 cgroup whose opened file 'tasks' this is. */
int br_sys_joincgroup(int fd);

/* ---- leases ---- */
/* ioctl(2) of a loop device or of /dev/loop-control; `arg` is a pointer or a number. */
int br_sys_loop(int fd, unsigned long op, unsigned long arg);
int br_sys_fallocate(int fd, uint64_t bytes);
int br_sys_fstatfs(int fd, struct statfs *st);
/* br_confine_start(), for one of the tools of e2fsprogs. */
int br_sys_spawn(const struct br_confine *c, struct br_confined *p, struct br_err *err);
/* Files of the lease root: O_CREAT | O_EXCL, a rename that replaces nothing, and unlink. */
int br_sys_create(int dirfd, const char *name);
int br_sys_rename(int dirfd, const char *from, const char *to);
int br_sys_unlink(int dirfd, const char *name);
/* What the copy into a lease writes. */
ssize_t br_sys_pwrite(int fd, const void *p, size_t n, off_t at);
int br_sys_make(int dirfd, const char *name, int flags, mode_t mode); /* a file */
int br_sys_mkdir(int dirfd, const char *name, mode_t mode);
int br_sys_symlink(const char *target, int dirfd, const char *name);
/* Effective capabilities: none, or all that are permitted. */
int br_sys_capset_effective(bool all);

#endif
