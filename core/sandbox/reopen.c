/*
 * Reopening across mount namespaces. Called with descriptors that another process opened; trusts
 * the kernel's path only as a hint, and the inode that is found there only if it is the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/reopen.h"
#include "sandbox/weak.h"

/*
 * File systems whose files are the kernel itself: a directory of them as a workspace would show
 * other processes, or be a switch of the host, whoever owns it.
 */
static bool is_kernels_own(int fd)
{
    static const unsigned long magic[] = {
        PROC_SUPER_MAGIC,
        SYSFS_MAGIC,
        CGROUP_SUPER_MAGIC,
        CGROUP2_SUPER_MAGIC,
        DEVPTS_SUPER_MAGIC,
        NSFS_MAGIC,
        DEBUGFS_MAGIC,
        TRACEFS_MAGIC,
        SECURITYFS_MAGIC,
        BPF_FS_MAGIC,
        BINFMTFS_MAGIC,
        EFIVARFS_MAGIC,
        PSTOREFS_MAGIC,
        SELINUX_MAGIC,
        SMACK_MAGIC,
        0x62656570 /* configfs */,
        0x19800202 /* mqueue */,
        0x65735543 /* fusectl */,
    };
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return true;
    for (unsigned i = 0; i < BR_ARRAY_LEN(magic); i++)
        if ((unsigned long)st.f_type == magic[i])
            return true;
    return false;
}

int br_reopen_here(int fd, int flags, const char *what, struct br_err *err)
{
    char link[64], path[BR_PATH_MAX];
    struct stat want, got;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0 || (size_t)n >= sizeof(path) - 1 || path[0] != '/' || fstat(fd, &want) < 0)
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "'%s' has no path that this process can see; nothing was started", what);
    path[n] = 0;
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    if (br_weak(PATHS)) {
        (void)usleep(500); /* time for whoever wants to win a race */
        return open(path, flags | O_CLOEXEC);
    }
    BR_CLEANUP_FD int again = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
    if (again < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE,
                            "'%s' ('%.512s') could not be opened; nothing was started", what, path);
    if (fstat(again, &got) < 0 || got.st_dev != want.st_dev || got.st_ino != want.st_ino)
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "'%s' ('%.512s') was moved or covered by a mount; nothing was started",
                          what, path);
    if (is_kernels_own(again))
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "'%s' ('%.512s') lies on a file system of the kernel (/proc, /sys or the "
                          "like); nothing was started. Choose a directory on a disk",
                          what, path);
    return br_steal_fd(&again);
}
