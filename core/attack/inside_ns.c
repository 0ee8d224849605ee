/*
 * Attacks from inside that are one system call each: leaving namespaces, mounts, other processes,
 * the kernel. An answer of the kernel itself, whatever it is, counts as success: the filter is
 * meant to keep the call from it. Part of bridle-attack.
 */
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/inside.h"

struct call {
    const char *name;
    long nr;
    long a, b, c, d, e;
    int error; /* what the filter answers, which the kernel would not; 0: EPERM or ENOSYS */
};

#define S(text) ((long)(uintptr_t)(text))

static char scratch[4096]; /* for calls that want a pointer; zeros */
static struct clone_args new_user = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};

static const struct call calls[] = {
    {"unshare-user", SYS_unshare, CLONE_NEWUSER},
    {"unshare-mount", SYS_unshare, CLONE_NEWNS},
    {"unshare-net", SYS_unshare, CLONE_NEWNET},
    {"unshare-pid", SYS_unshare, CLONE_NEWPID},
    {"unshare-ipc", SYS_unshare, CLONE_NEWIPC},
    {"unshare-cgroup", SYS_unshare, CLONE_NEWCGROUP},
    {"unshare-time", SYS_unshare, 0x80},
    {"clone-user", SYS_clone, CLONE_NEWUSER | SIGCHLD},
    {"clone-high", SYS_clone, (long)(0x100000000ul | CLONE_NEWUSER | SIGCHLD)},
    {"clone3-user", SYS_clone3, S(&new_user), sizeof(new_user)},
    {"mount", SYS_mount, S("tmpfs"), S("/tmp"), S("tmpfs")},
    {"mount-proc", SYS_mount, S("proc"), S("/tmp"), S("proc")},
    {"mount-cgroup", SYS_mount, S("cgroup"), S("/tmp"), S("cgroup2")},
    {"remount-root", SYS_mount, 0, S("/"), 0, MS_REMOUNT | MS_BIND},
    {"umount", SYS_umount2, S("/workspace"), MNT_DETACH},
    {"pivot-root", SYS_pivot_root, S("/tmp"), S("/tmp")},
    {"fsopen", SYS_fsopen, S("tmpfs")},
    {"fsmount", SYS_fsmount, -1},
    {"open-tree", SYS_open_tree, AT_FDCWD, S("/tmp"), 1},
    {"move-mount", SYS_move_mount, -1, S(""), AT_FDCWD, S("/tmp")},
    {"mount-setattr", SYS_mount_setattr, AT_FDCWD, S("/workspace"), 0, S(scratch), 32},
    {"name-to-handle", SYS_name_to_handle_at, AT_FDCWD, S("/"), S(scratch), S(scratch + 512)},
    {"open-by-handle", SYS_open_by_handle_at, AT_FDCWD, S(scratch), O_RDONLY},
    {"bpf", SYS_bpf, 0, S(scratch), 8},
    {"perf-event", SYS_perf_event_open, S(scratch), 0, -1, -1},
    {"userfaultfd", SYS_userfaultfd, 1},
    {"io-uring", SYS_io_uring_setup, 4, S(scratch)},
    {"keyctl", SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING},
    {"add-key", SYS_add_key, S("user"), S("bridle-attack"), S("x"), 1, KEY_SPEC_PROCESS_KEYRING},
    {"request-key", SYS_request_key, S("user"), S("bridle-attack")},
    {"ptrace", SYS_ptrace, PTRACE_TRACEME},
    {"process-vm-writev", SYS_process_vm_writev, 1, S(scratch), 0, S(scratch), 0},
    {"kcmp", SYS_kcmp, 1, 1, 0, 0, 0},
    {"kexec", SYS_kexec_load},
    {"init-module", SYS_init_module, S(scratch), 0, S("")},
    {"delete-module", SYS_delete_module, S("bridle-attack")},
    {"swapon", SYS_swapon, S("/nothing")},
    {"reboot", SYS_reboot}, /* without its magic numbers */
    {"syslog", SYS_syslog, 10},
    {"acct", SYS_acct, S("/nothing/there")},
    {"quotactl", SYS_quotactl, 0, S("/nothing"), 0, S(scratch)},
    {"fanotify", SYS_fanotify_init, 0, O_RDONLY},
    {"clock-settime", SYS_clock_settime, 99, S(scratch)},
    {"personality", SYS_personality, READ_IMPLIES_EXEC},
    {"sethostname", SYS_sethostname, S("x"), 1},
    {"unknown", 1000},
#ifdef __x86_64__
    {"x32", 0x40000000 | SYS_getpid},
    {"iopl", SYS_iopl, 3},
    {"modify-ldt", SYS_modify_ldt, 0, S(scratch), 16},
#endif
    {"tiocsti", SYS_ioctl, 0, 0x5412, S(scratch)},
    {"tiocsti-high", SYS_ioctl, 0, 0x100005412l, S(scratch)},
    {"tiocsti-sign", SYS_ioctl, 0, (long)0xffffffff00005412ul, S(scratch)},
    {"tioclinux", SYS_ioctl, 0, 0x541c, S(scratch)},
    {"tioclinux-high", SYS_ioctl, 0, 0x700000000541cl, S(scratch)},
    /* on no descriptor: the kernel itself says EBADF */
    {"huge-mmap", SYS_mmap, 0, 2097152, 3, 0x40002 /* MAP_PRIVATE | MAP_HUGETLB */, -1, ENOMEM},
    {"huge-memfd", SYS_memfd_create, 0, 4 /* MFD_HUGETLB */, .error = EINVAL},
    {"huge-shm", SYS_shmget, 0x62726964, 2097152, 04000 /* SHM_HUGETLB */, .error = ENOMEM},
    {"socket-filter", SYS_setsockopt, -1, SOL_SOCKET, SO_ATTACH_FILTER, S(scratch), 16,
     ENOPROTOOPT},
    {"tcp-ulp", SYS_setsockopt, -1, 6, 31 /* TCP_ULP */, S("tls"), 3, ENOPROTOOPT},
    {"aio", SYS_io_setup, 1, S(scratch)},
    {"reserve", SYS_ioctl, -1, 0x4030582a /* FS_IOC_RESVSP64 */, S(scratch), .error = ENOTTY},
    {"file-flags", SYS_ioctl, -1, 0x40086602 /* FS_IOC_SETFLAGS */, S(scratch), .error = ENOTTY},
    {"bridge", SYS_ioctl, -1, 0x8940 /* SIOCGIFBR */, S(scratch), .error = ENOTTY},
    {"lease", SYS_fcntl, -1, 1024 /* F_SETLEASE */, 0, .error = EINVAL},
    {"dnotify", SYS_fcntl, -1, 1026 /* F_NOTIFY */, 1, .error = EINVAL},
    {"inotify-open", SYS_inotify_add_watch, -1, S("/usr/bin"), 0x20 /* IN_OPEN */},
    {"init-limits", SYS_prlimit64, 1, 99, S(scratch)},
    {"init-priority", SYS_setpriority, 0, 1, 19},
    {"init-group-priority", SYS_setpriority, 1, 1, 19},
    {"init-scheduler", SYS_sched_setscheduler, 1, 99, S(scratch)},
};

static const struct {
    const char *name;
    int family, type, proto;
} sockets[] = {
    {"netlink", AF_NETLINK, SOCK_RAW, 0},
    {"packet", AF_PACKET, SOCK_RAW, 0},
    {"vsock", 40, SOCK_STREAM, 0},
    {"alg", 38, SOCK_SEQPACKET, 0},
    {"xdp", 44, SOCK_RAW, 0},
    {"bluetooth", 31, SOCK_RAW, 0},
    {"can", 29, SOCK_RAW, 1},
    {"key", 15, SOCK_RAW, 2},
    {"rds", 21, SOCK_SEQPACKET, 0},
    {"tipc", 30, SOCK_RDM, 0},
    {"nfc", 39, SOCK_SEQPACKET, 0},
    {"kcm", 41, SOCK_DGRAM, 0},
    {"qipcrtr", 42, SOCK_DGRAM, 0},
    {"smc", 43, SOCK_STREAM, 0},
    {"rxrpc", 33, SOCK_DGRAM, 2},
    {"ax25", 3, SOCK_DGRAM, 0},
    {"unknown-family", 200, SOCK_STREAM, 0},
    {"mptcp", AF_INET, SOCK_STREAM, 262},
    {"sctp", AF_INET, SOCK_SEQPACKET, 132},
    {"udplite", AF_INET, SOCK_DGRAM, 136},
    {"l2tp", AF_INET, SOCK_DGRAM, 115},
    {"dccp", AF_INET, 6, 0},
};

/* Did the filter say this? */
static bool refusal(const char *name, int e)
{
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0 && calls[i].error)
            return e == calls[i].error;
    return e == EPERM || e == ENOSYS || e == EAFNOSUPPORT || e == EPROTONOSUPPORT ||
           e == ESOCKTNOSUPPORT;
}

/* Without a filter nothing stands between the call and the kernel. */
static int judge(const char *name, bool filtered, long r, int e)
{
    if (r >= 0)
        return in_through("%s succeeded", name);
    if (!filtered)
        return in_through("%s was answered by the kernel: %s", name, strerror(e));
    if (refusal(name, e))
        return in_blocked("%s", strerror(e));
    return in_through("%s was answered by the kernel in spite of the filter: %s", name,
                      strerror(e));
}

#ifdef __x86_64__
static long i386_getpid(void)
{
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    return r;
}
#endif

static long perform(const char *name)
{
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0) {
            const struct call *c = &calls[i];
            long r = syscall(c->nr, c->a, c->b, c->c, c->d, c->e);
            if (r == 0 && (c->nr == SYS_clone || c->nr == SYS_clone3))
                _exit(0); /* the child */
            return r;
        }
    for (unsigned i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++)
        if (strcmp(sockets[i].name, name) == 0)
            return socket(sockets[i].family, sockets[i].type, sockets[i].proto);
#ifdef __x86_64__
    if (strcmp(name, "i386") == 0)
        return i386_getpid();
#endif
    errno = ENOMSG;
    return -1;
}

/* One call, in a child. */
static int call(void)
{
    struct {
        long r;
        int e;
    } answer = {-1, ENOMSG};
    const char *name = in_need("call");
    bool filtered = in_filtered();
    int ends[2], status = 0;
    if (pipe(ends) < 0)
        return in_failed("%s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        answer.r = perform(name);
        answer.e = errno;
        (void)!write(ends[1], &answer, sizeof(answer));
        _exit(0);
    }
    close(ends[1]);
    bool said = read(ends[0], &answer, sizeof(answer)) == (ssize_t)sizeof(answer);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return in_failed("%s", strerror(errno));
    if (said && answer.r < 0 && answer.e == ENOMSG)
        return in_failed("this program does not know the call '%s'", name);
    if (said)
        return judge(name, filtered, answer.r, answer.e);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return in_blocked("killed by the filter");
    return filtered
               ? in_failed("%s ended with status %x", name, (unsigned)status)
               : in_through("%s was not stopped by a filter (status %x)", name, (unsigned)status);
}

/* Into the namespaces of pid 1, by its files and by a pidfd. */
static int setns_init(void)
{
    static const char *const names[] = {"mnt", "user", "net", "pid", "ipc", "uts", "cgroup"};
    bool filtered = in_filtered();
    char path[64];
    for (unsigned i = 0; i < 7; i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (setns(fd, 0) == 0)
            return in_through("setns to %s worked", path);
        if (errno != EPERM || !filtered)
            return in_through("setns was answered by the kernel: %s", strerror(errno));
    }
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    if (pidfd >= 0 && setns(pidfd, CLONE_NEWNS) == 0)
        return in_through("setns through a pidfd worked");
    return in_blocked("%s", strerror(errno));
}

/* A user namespace of its own gives every capability in it: the start of most kernel exploits. */
static int nested_namespace(void)
{
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
            _exit(1);
        _exit(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 ? 0 : 2);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return in_failed("%s", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? in_through("a mount was made in a user namespace of its own")
               : in_blocked("unshare failed");
}

/* With what the sandbox's own user namespace would allow. */
static int has_capabilities(void)
{
    const char *p = in_read("/proc/self/status");
    static const char *const names[] = {
        "\nCapInh:", "\nCapPrm:", "\nCapEff:", "\nCapBnd:", "\nCapAmb:"};
    for (unsigned i = 0; p && i < 5; i++) {
        const char *at = strstr(p, names[i]);
        if (!at)
            return in_failed("/proc/self/status lacks %s", names[i] + 1);
        if (strtoull(at + strlen(names[i]), NULL, 16))
            return in_through("%.23s", at + 1);
    }
    return p ? in_blocked("all five sets are empty") : in_failed("no /proc/self/status");
}

static int mount_something(void)
{
    return mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0 ? in_through("a tmpfs was mounted")
                                                         : in_blocked("%s", strerror(errno));
}

/* Landlock alone: may this process write where only the mounts would keep it from writing? */
static int landlock_alone(void)
{
    int fd = open("/workspace/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    return fd >= 0 ? in_through("a file was created in the workspace")
                   : in_blocked("%s", strerror(errno));
}

const struct in_attack in_ns[] = {
    {"call", call},
    {"setns-init", setns_init},
    {"nested-namespace", nested_namespace},
    {"capabilities", has_capabilities},
    {"mount-something", mount_something},
    {"landlock-alone", landlock_alone},
    {NULL, NULL},
};
