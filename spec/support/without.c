/*
 * Tests only: `without WHAT PROGRAM ARGUMENT...` runs a program of the build (from bin/ beside the
 * directory of this one) as if the kernel lacked something:
 *
 *   openat2, landlock, mount_setattr, seccomp   the system calls answer ENOSYS
 *   idmap      ./workspace lies on a file system without idmapped mounts (ramfs)
 *   cgroups    no hierarchy is mounted
 *
 * Everything that it starts is under the same filter, or in the same mount namespace.
 */
#include <errno.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DIE(what) (perror(what), exit(70))

/* Calls first..last do not exist. */
static void refuse(unsigned first, unsigned last)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        DIE("no_new_privs");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        DIE("seccomp");
}

static void own_mounts(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        DIE("mount namespace");
}

/* As much of ./workspace as the test has. */
static void ramfs_workspace(void)
{
    struct stat st;
    own_mounts();
    if (stat("workspace", &st) < 0 || mount("ramfs", "workspace", "ramfs", 0, "mode=0755") < 0 ||
        mkdir("workspace/src", 0755) < 0 || chown("workspace", st.st_uid, st.st_gid) < 0 ||
        chown("workspace/src", st.st_uid, st.st_gid) < 0)
        DIE("ramfs");
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];
    if (argc < 3)
        return 70;
    const char *what = argv[1];
    if (strcmp(what, "openat2") == 0)
        refuse(SYS_openat2, SYS_openat2);
    else if (strcmp(what, "landlock") == 0)
        refuse(SYS_landlock_create_ruleset, SYS_landlock_restrict_self);
    else if (strcmp(what, "mount_setattr") == 0)
        refuse(SYS_mount_setattr, SYS_mount_setattr);
    else if (strcmp(what, "seccomp") == 0)
        refuse(SYS_seccomp, SYS_seccomp);
    else if (strcmp(what, "idmap") == 0)
        ramfs_workspace();
    else if (strcmp(what, "cgroups") == 0) {
        own_mounts();
        if (umount2("/sys/fs/cgroup", MNT_DETACH) < 0)
            DIE("cgroups");
    } else
        return 70;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    if (n <= 0)
        return 70;
    path[n] = 0;
    snprintf(strrchr(path, '/'), 64, "/../bin/%.40s", argv[2]);
    execv(path, argv + 2);
    DIE(path);
}
