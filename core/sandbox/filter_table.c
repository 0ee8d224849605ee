/*
 * The system calls of a sandbox: what may happen, what is refused with which error, and why. An
 * allow list; a call that is not named here gets ENOSYS, which is what programs expect of a kernel
 * that is older than they are. Written from what bash, git, gcc, python, node, go, rust, perl,
 * make, Lua and the test suites of projects in them need. Every call of Linux up to 6.18 has a row,
 * so that one that is not allowed was looked at. Data only; filter.c compiles it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "sandbox/filter.h"
#include "sandbox/filter_nr.h"

#define IN(arg_, list_, error_)                                                                    \
    {                                                                                              \
        .arg = arg_, .mask = UINT32_MAX, .in = list_, .n = BR_ARRAY_LEN(list_), .error = error_    \
    }
#define NOT_IN(arg_, list_, error_)                                                                \
    {                                                                                              \
        .arg = arg_, .not = true, .mask = UINT32_MAX, .in = list_, .n = BR_ARRAY_LEN(list_),       \
        .error = error_                                                                            \
    }
#define CLEAR(arg_, bits_, error_)                                                                 \
    {                                                                                              \
        .arg = arg_, .mask = bits_, .in = nothing, .n = 1, .error = error_                         \
    }
#define CLEAR_OR(arg_, bits_)                                                                      \
    {                                                                                              \
        .arg = arg_, .or_next = true, .mask = bits_, .in = nothing, .n = 1                         \
    }
typedef const struct br_filter_range ranges[];
typedef const struct br_filter_test tests[];

static ranges nothing = {{0, 0}}, one = {{1, 1}};

static tests no_namespaces = {CLEAR(0,
                                    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                        CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET,
                                    EPERM)};
/* CLONE_NEWTIME shares its bit with the signal mask of clone(), but unshare() takes it. Flags that
 * are not known yet are refused as well */
static tests unshare_own = {CLEAR(
    0,
    ~(uint32_t)(CLONE_FILES | CLONE_FS | CLONE_SYSVSEM | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM),
    EPERM)};

/* those whose result the kernel compares with RLIMIT_FSIZE, and the one that only gives back */
static ranges allocate_modes = {{0, 0}, {0x03 /* PUNCH_HOLE | KEEP_SIZE */, 0x03}, {0x10, 0x10}};
static tests allocate = {IN(1, allocate_modes, EOPNOTSUPP)};

/* PER_LINUX, PER_LINUX32, PER_LINUX | ADDR_NO_RANDOMIZE (debuggers, sanitizers), query */
static ranges personalities = {{0, 0}, {0x8, 0x8}, {0x40000, 0x40000}, {UINT32_MAX, UINT32_MAX}};
static tests usual_personality = {IN(0, personalities, EPERM)};

/* No protocol but TCP and UDP, and no type but those: others load modules (MPTCP, SCTP, DCCP, ...)
 */
static ranges families = {{AF_UNIX, AF_INET}, {AF_INET6, AF_INET6}};
static ranges types = {{SOCK_STREAM, SOCK_RAW}, {SOCK_SEQPACKET, SOCK_SEQPACKET}};
static ranges protocols = {{0, 0}, {6, 6}, {17, 17}};
static tests plain_socket = {
    IN(0, families, EAFNOSUPPORT),
    {.arg = 1, .mask = 0xf, .in = types, .n = BR_ARRAY_LEN(types), .error = ESOCKTNOSUPPORT},
    IN(2, protocols, EPROTONOSUPPORT)};

/* SO_ATTACH_FILTER; SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF; TCP_ULP */
static ranges attaching = {{26, 26}, {50, 52}}, ulp = {{31, 31}}, level_tcp = {{6, 6}};
static tests no_programs = {
    {.arg = 1, .not = true, .or_next = true, .mask = UINT32_MAX, .in = one, .n = 1},
    NOT_IN(2, attaching, ENOPROTOOPT),
    {.arg = 1, .not = true, .or_next = true, .mask = UINT32_MAX, .in = level_tcp, .n = 1},
    NOT_IN(2, ulp, ENOPROTOOPT)};

static ranges terminal_input = {{0x540e /* TIOCSCTTY */, 0x540e},
                                {0x5412 /* TIOCSTI */, 0x5412},
                                {0x541c /* TIOCLINUX */, 0x541d /* TIOCCONS */},
                                {0x5423 /* TIOCSETD */, 0x5423}};
/* What is left out loads modules (bridges, VLANs), takes space past RLIMIT_FSIZE, changes what a
 * file system does with a file (flags, projects, encryption, verity), or is of devices */
static ranges controls = {
    {0x2, 0x2},               /* FIGETBSZ */
    {0x5401, 0x5460},         /* terminals, FIONREAD, FIONBIO, FIOCLEX, ... FIOQSIZE */
    {0x8903, 0x8937},         /* sockets and interfaces, what needs no capability: queries */
    {0x40045431, 0x40045431}, /* TIOCSPTLCK */
    {0x40049409, 0x40049409}, /* FICLONE */
    {0x4020940d, 0x4020940d}, /* FICLONERANGE */
    {0x402c542b, 0x402c542d}, /* TCSETS2, TCSETSW2, TCSETSF2 */
    {0x80045430, 0x80045430}, /* TIOCGPTN */
    {0x80045438, 0x80045440}, /* TIOCGPKT, TIOCGPTLCK, TIOCGEXCL */
    {0x80086601, 0x80086601}, /* FS_IOC_GETFLAGS */
    {0x802c542a, 0x802c542a}, /* TCGETS2 */
    {0xc020660b, 0xc020660b}, /* FS_IOC_FIEMAP */
};
static tests harmless_controls = {NOT_IN(1, terminal_input, EPERM), IN(1, controls, ENOTTY)};

/* Duplicates, flags, locks, owners; pipes, seals, hints. Not F_SETLEASE, F_NOTIFY */
static ranges file_commands = {{0, 38}, {1027, 1027}, {1030, 1038}};
static tests harmless_commands = {IN(1, file_commands, EINVAL)};

/* IN_ACCESS, IN_CLOSE_NOWRITE, IN_OPEN */
static tests changes_only = {CLEAR(2, 0x1 | 0x10 | 0x20, EPERM)};

/* What a host without huge pages answers */
static tests small_pages = {CLEAR(3, 0x40000 /* MAP_HUGETLB */, ENOMEM)};
static tests small_memfd = {CLEAR(1, 0x4 /* MFD_HUGETLB */, EINVAL)};
static tests small_shm = {CLEAR(2, 04000 /* SHM_HUGETLB */, ENOMEM)};

/* pid 1 keeps the clocks of commands */
static tests not_init = {NOT_IN(0, one, EPERM)};
static tests one_not_init = {IN(0, nothing /* PRIO_PROCESS */, EPERM), NOT_IN(1, one, EPERM)};
static tests io_one_not_init = {IN(0, one /* IOPRIO_WHO_PROCESS */, EPERM), NOT_IN(1, one, EPERM)};

/* of chmod(), which cannot be seen to name a directory; there the group's bit is inheritance */
static tests no_suid_1 = {CLEAR(1, S_ISUID, EPERM)}, no_suid_2 = {CLEAR(2, S_ISUID, EPERM)};
/* of calls that make something that is no directory */
static tests no_setid_2 = {CLEAR(2, S_ISUID | S_ISGID, EPERM)};
#define CREATING (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
static tests openat_no_setid = {CLEAR_OR(2, CREATING), CLEAR(3, S_ISUID | S_ISGID, EPERM)};
#ifdef __x86_64__
static tests no_setid_1 = {CLEAR(1, S_ISUID | S_ISGID, EPERM)};
static tests open_no_setid = {CLEAR_OR(1, CREATING), CLEAR(2, S_ISUID | S_ISGID, EPERM)};
#endif

#define ALLOW(name_, why_)                                                                         \
    {                                                                                              \
        .nr = SYS_##name_, .name = #name_, .allow = true, .why = why_                              \
    }
#define DENY(name_, why_)                                                                          \
    {                                                                                              \
        .nr = SYS_##name_, .name = #name_, .error = EPERM, .why = why_                             \
    }
/* as if the kernel had no such call: programs have another way */
#define ABSENT(name_, why_)                                                                        \
    {                                                                                              \
        .nr = SYS_##name_, .name = #name_, .error = ENOSYS, .why = why_                            \
    }
#define WHEN(name_, tests_, only_, why_)                                                           \
    {                                                                                              \
        .nr = SYS_##name_, .name = #name_, .allow = true, .tests = tests_,                         \
        .ntests = BR_ARRAY_LEN(tests_), .only = only_, .why = why_                                 \
    }

#define FILES "files, directories and their names; the mounts decide which"
#define MEMORY "memory of the process itself"
#define PROCESS "processes and signals inside of the sandbox's pid namespace"
#define IDENTITY "reading or keeping its own identity; it has no capability to change it with"
#define TIME "reading clocks, timers of the process itself"
#define EVENTS "waiting for descriptors"
#define SOCKETS "sockets in a network namespace that has only loopback"
#define SCHED "scheduling of the process itself, bounded by the cgroup"
#define IPC "System V and POSIX message passing, in an ipc namespace of its own"
#define LEAVE "namespaces and mounts are made by the launcher only"
#define SPY "reads or changes other processes"
#define KERNEL "reaches into the kernel or the machine"
#define SETID "no program that takes the identity of the workspace's owner or group"
#define NO_SETID "no set-id bit in the mode"
#define NO_SUID "no set-user-id bit in the mode"
#define HUGE "huge pages are memory that the cgroup does not count"
#define SOCKET                                                                                     \
    "AF_UNIX, AF_INET, AF_INET6; no type but STREAM, DGRAM, RAW, SEQPACKET; no protocol but TCP, " \
    "UDP"
#define INIT "pid 1 keeps the clocks of commands"
#define AIO "requests are counted for the whole machine; programs use threads"
#define NEWER "newer than the programs that this table was made for; they do without"
#define GONE "no kernel has it any more"

const struct br_filter_row br_filter_rows[] = {
    ALLOW(read, FILES),
    ALLOW(write, FILES),
    ALLOW(close, FILES),
    ALLOW(fstat, FILES),
    ALLOW(lseek, FILES),
    ALLOW(pread64, FILES),
    ALLOW(pwrite64, FILES),
    ALLOW(readv, FILES),
    ALLOW(writev, FILES),
    ALLOW(preadv, FILES),
    ALLOW(pwritev, FILES),
    ALLOW(preadv2, FILES),
    ALLOW(pwritev2, FILES),
    WHEN(openat, openat_no_setid, NO_SETID, SETID),
    ABSENT(openat2, "its mode cannot be examined; programs fall back to openat"),
    ALLOW(newfstatat, FILES),
    ALLOW(statx, FILES),
    ALLOW(statfs, FILES),
    ALLOW(fstatfs, FILES),
    ALLOW(faccessat, FILES),
    ALLOW(faccessat2, FILES),
    ALLOW(readlinkat, FILES),
    ALLOW(getdents64, FILES),
    ALLOW(getcwd, FILES),
    ALLOW(chdir, FILES),
    ALLOW(fchdir, FILES),
    ALLOW(mkdirat, FILES),
    ALLOW(unlinkat, FILES),
    ALLOW(symlinkat, FILES),
    ALLOW(linkat, FILES),
    ALLOW(renameat2, FILES),
    WHEN(fchmod, no_suid_1, NO_SUID, SETID),
    WHEN(fchmodat, no_suid_2, NO_SUID, SETID),
    WHEN(fchmodat2, no_suid_2, NO_SUID, SETID),
    ALLOW(fchown, FILES),
    ALLOW(fchownat, FILES),
    ALLOW(utimensat, FILES),
    ALLOW(truncate, FILES),
    ALLOW(ftruncate, FILES),
    WHEN(fallocate, allocate, "mode 0, PUNCH_HOLE, ZERO_RANGE",
         "files; the other modes take disk space beyond the size that a file may have"),
    ALLOW(fsync, FILES),
    ALLOW(fdatasync, FILES),
    ALLOW(sync, FILES),
    ALLOW(syncfs, FILES),
    ALLOW(sync_file_range, FILES),
    ALLOW(fadvise64, FILES),
    ALLOW(readahead, FILES),
    ALLOW(copy_file_range, FILES),
    ALLOW(sendfile, FILES),
    ALLOW(splice, FILES),
    ALLOW(tee, FILES),
    ALLOW(vmsplice, FILES),
    ALLOW(flock, FILES),
    WHEN(fcntl, harmless_commands, "duplicates, flags, locks, owners, pipes, seals, hints",
         "F_SETLEASE makes writers outside wait, F_NOTIFY tells what others read"),
    ALLOW(dup, FILES),
    ALLOW(dup3, FILES),
    ALLOW(pipe2, FILES),
    ALLOW(close_range, FILES),
    ALLOW(umask, FILES),
    WHEN(mknodat, no_setid_2, NO_SETID, "FIFOs; devices need a capability, and mounts are nodev"),
    ALLOW(getxattr, FILES),
    ALLOW(lgetxattr, FILES),
    ALLOW(fgetxattr, FILES),
    ALLOW(listxattr, FILES),
    ALLOW(llistxattr, FILES),
    ALLOW(flistxattr, FILES),
    ALLOW(setxattr, FILES),
    ALLOW(lsetxattr, FILES),
    ALLOW(fsetxattr, FILES),
    ALLOW(removexattr, FILES),
    ALLOW(lremovexattr, FILES),
    ALLOW(fremovexattr, FILES),
    ALLOW(inotify_init1, FILES),
    WHEN(inotify_add_watch, changes_only, "not IN_ACCESS, IN_OPEN, IN_CLOSE_NOWRITE",
         "what changes is visible anyway; who reads and executes the host's /usr is not"),
    ALLOW(inotify_rm_watch, FILES),
    WHEN(ioctl, harmless_controls,
         "terminals without TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, TIOCSCTTY; queries of sockets, "
         "interfaces, extents, file flags; FICLONE, FICLONERANGE",
         "others type into a terminal (EPERM), load modules, take space that no limit counts, or "
         "administer file systems and devices"),
    WHEN(mmap, small_pages, "not MAP_HUGETLB", HUGE),
    ALLOW(munmap, MEMORY),
    ALLOW(mremap, MEMORY),
    ALLOW(mprotect, MEMORY),
    ALLOW(brk, MEMORY),
    ALLOW(madvise, MEMORY),
    ALLOW(msync, MEMORY),
    ALLOW(mincore, MEMORY),
    ALLOW(mlock, MEMORY),
    ALLOW(mlock2, MEMORY),
    ALLOW(munlock, MEMORY),
    ALLOW(mlockall, MEMORY),
    ALLOW(munlockall, MEMORY),
    WHEN(memfd_create, small_memfd, "not MFD_HUGETLB", HUGE),
    ALLOW(membarrier, MEMORY),
    ALLOW(pkey_alloc, MEMORY),
    ALLOW(pkey_free, MEMORY),
    ALLOW(pkey_mprotect, MEMORY),
    ALLOW(get_mempolicy, MEMORY),
    ALLOW(set_mempolicy, MEMORY),
    ALLOW(mbind, MEMORY),
    ALLOW(set_mempolicy_home_node, MEMORY),
    ALLOW(mseal, MEMORY),
    ALLOW(rseq, MEMORY),
    ALLOW(futex, MEMORY),
    ALLOW(futex_waitv, MEMORY),
    ALLOW(set_robust_list, MEMORY),
    ALLOW(get_robust_list, MEMORY),
    ALLOW(execve, PROCESS),
    ALLOW(execveat, PROCESS),
    ALLOW(exit, PROCESS),
    ALLOW(exit_group, PROCESS),
    ALLOW(wait4, PROCESS),
    ALLOW(waitid, PROCESS),
    ALLOW(kill, PROCESS),
    ALLOW(tkill, PROCESS),
    ALLOW(tgkill, PROCESS),
    ALLOW(rt_sigaction, PROCESS),
    ALLOW(rt_sigprocmask, PROCESS),
    ALLOW(rt_sigreturn, PROCESS),
    ALLOW(rt_sigpending, PROCESS),
    ALLOW(rt_sigtimedwait, PROCESS),
    ALLOW(rt_sigqueueinfo, PROCESS),
    ALLOW(rt_tgsigqueueinfo, PROCESS),
    ALLOW(rt_sigsuspend, PROCESS),
    ALLOW(sigaltstack, PROCESS),
    ALLOW(signalfd4, PROCESS),
    ALLOW(pidfd_open, PROCESS),
    ALLOW(pidfd_send_signal, PROCESS),
    ALLOW(set_tid_address, PROCESS),
    ALLOW(gettid, PROCESS),
    ALLOW(getpid, PROCESS),
    ALLOW(getppid, PROCESS),
    ALLOW(getpgid, PROCESS),
    ALLOW(setpgid, PROCESS),
    ALLOW(getsid, PROCESS),
    ALLOW(setsid, PROCESS),
    ALLOW(prctl, PROCESS),
    ALLOW(restart_syscall, PROCESS),
    ALLOW(seccomp, "a process may narrow its own filter further"),
    WHEN(clone, no_namespaces, "no CLONE_NEW...", "processes and threads, but no new namespaces"),
    WHEN(unshare, unshare_own, "only CLONE_FILES, FS, SYSVSEM, THREAD, SIGHAND, VM",
         "files or the working directory of its own, but no new namespaces"),
    WHEN(personality, usual_personality, "PER_LINUX, PER_LINUX32, ADDR_NO_RANDOMIZE, the query",
         "the usual ones; others change how memory is laid out"),
    ALLOW(landlock_create_ruleset, "a process may narrow its own file access further"),
    ALLOW(landlock_add_rule, "see above"),
    ALLOW(landlock_restrict_self, "see above"),
    ALLOW(getuid, IDENTITY),
    ALLOW(geteuid, IDENTITY),
    ALLOW(getgid, IDENTITY),
    ALLOW(getegid, IDENTITY),
    ALLOW(getresuid, IDENTITY),
    ALLOW(getresgid, IDENTITY),
    ALLOW(getgroups, IDENTITY),
    ALLOW(setuid, IDENTITY),
    ALLOW(setgid, IDENTITY),
    ALLOW(setreuid, IDENTITY),
    ALLOW(setregid, IDENTITY),
    ALLOW(setresuid, IDENTITY),
    ALLOW(setresgid, IDENTITY),
    ALLOW(setgroups, IDENTITY),
    ALLOW(setfsuid, IDENTITY),
    ALLOW(setfsgid, IDENTITY),
    ALLOW(capget, IDENTITY),
    ALLOW(capset, IDENTITY),
    ALLOW(uname, IDENTITY),
    ALLOW(sysinfo, IDENTITY),
    ALLOW(times, TIME),
    ALLOW(gettimeofday, TIME),
    ALLOW(clock_gettime, TIME),
    ALLOW(clock_getres, TIME),
    ALLOW(clock_nanosleep, TIME),
    ALLOW(nanosleep, TIME),
    ALLOW(getitimer, TIME),
    ALLOW(setitimer, TIME),
    ALLOW(timer_create, TIME),
    ALLOW(timer_settime, TIME),
    ALLOW(timer_gettime, TIME),
    ALLOW(timer_getoverrun, TIME),
    ALLOW(timer_delete, TIME),
    ALLOW(timerfd_create, TIME),
    ALLOW(timerfd_settime, TIME),
    ALLOW(timerfd_gettime, TIME),
    ALLOW(getrandom, TIME),
    ALLOW(ppoll, EVENTS),
    ALLOW(pselect6, EVENTS),
    ALLOW(epoll_create1, EVENTS),
    ALLOW(epoll_ctl, EVENTS),
    ALLOW(epoll_pwait, EVENTS),
    ALLOW(epoll_pwait2, EVENTS),
    ALLOW(eventfd2, EVENTS),
    ABSENT(io_setup, AIO),
    ABSENT(io_submit, AIO),
    ABSENT(io_getevents, AIO),
    ABSENT(io_pgetevents, AIO),
    ABSENT(io_cancel, AIO),
    ABSENT(io_destroy, AIO),
    WHEN(socket, plain_socket, SOCKET,
         "others (netlink, packet, vsock, alg, MPTCP, SCTP, ...) are a way into the kernel, and "
         "load modules"),
    WHEN(socketpair, plain_socket, SOCKET, "see socket"),
    ALLOW(bind, SOCKETS),
    ALLOW(connect, SOCKETS),
    ALLOW(listen, SOCKETS),
    ALLOW(accept, SOCKETS),
    ALLOW(accept4, SOCKETS),
    ALLOW(getsockname, SOCKETS),
    ALLOW(getpeername, SOCKETS),
    ALLOW(getsockopt, SOCKETS),
    WHEN(setsockopt, no_programs,
         "not SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF, "
         "TCP_ULP",
         "programs for the kernel, whose memory no limit counts; modules"),
    ALLOW(shutdown, SOCKETS),
    ALLOW(sendto, SOCKETS),
    ALLOW(sendmsg, SOCKETS),
    ALLOW(sendmmsg, SOCKETS),
    ALLOW(recvfrom, SOCKETS),
    ALLOW(recvmsg, SOCKETS),
    ALLOW(recvmmsg, SOCKETS),
    ALLOW(sched_yield, SCHED),
    ALLOW(sched_getaffinity, SCHED),
    WHEN(sched_setaffinity, not_init, "not of pid 1", INIT),
    ALLOW(sched_getparam, SCHED),
    WHEN(sched_setparam, not_init, "not of pid 1", INIT),
    ALLOW(sched_getscheduler, SCHED),
    WHEN(sched_setscheduler, not_init, "not of pid 1", INIT),
    ALLOW(sched_getattr, SCHED),
    WHEN(sched_setattr, not_init, "not of pid 1", INIT),
    ALLOW(sched_get_priority_max, SCHED),
    ALLOW(sched_get_priority_min, SCHED),
    ALLOW(sched_rr_get_interval, SCHED),
    ALLOW(getpriority, SCHED),
    WHEN(setpriority, one_not_init, "of one process, not of pid 1", INIT),
    ALLOW(ioprio_get, SCHED),
    WHEN(ioprio_set, io_one_not_init, "of one process, not of pid 1", INIT),
    ALLOW(getcpu, SCHED),
    ALLOW(getrlimit, SCHED),
    ALLOW(setrlimit, SCHED),
    WHEN(prlimit64, not_init, "not of pid 1", INIT),
    ALLOW(getrusage, SCHED),
    WHEN(shmget, small_shm, "not SHM_HUGETLB", HUGE),
    ALLOW(shmat, IPC),
    ALLOW(shmdt, IPC),
    ALLOW(shmctl, IPC),
    ALLOW(semget, IPC),
    ALLOW(semop, IPC),
    ALLOW(semtimedop, IPC),
    ALLOW(semctl, IPC),
    ALLOW(msgget, IPC),
    ALLOW(msgsnd, IPC),
    ALLOW(msgrcv, IPC),
    ALLOW(msgctl, IPC),
    ALLOW(mq_open, IPC),
    ALLOW(mq_unlink, IPC),
    ALLOW(mq_timedsend, IPC),
    ALLOW(mq_timedreceive, IPC),
    ALLOW(mq_notify, IPC),
    ALLOW(mq_getsetattr, IPC),
#ifdef __x86_64__
    /* the calls that newer architectures no longer have */
    WHEN(open, open_no_setid, NO_SETID, SETID),
    WHEN(creat, no_setid_1, NO_SETID, SETID),
    ALLOW(stat, FILES),
    ALLOW(lstat, FILES),
    ALLOW(access, FILES),
    ALLOW(readlink, FILES),
    ALLOW(getdents, FILES),
    ALLOW(mkdir, FILES),
    ALLOW(rmdir, FILES),
    ALLOW(unlink, FILES),
    ALLOW(symlink, FILES),
    ALLOW(link, FILES),
    ALLOW(rename, FILES),
    WHEN(chmod, no_suid_1, NO_SUID, SETID),
    ALLOW(chown, FILES),
    ALLOW(lchown, FILES),
    ALLOW(utime, FILES),
    ALLOW(utimes, FILES),
    ALLOW(futimesat, FILES),
    WHEN(mknod, no_setid_1, NO_SETID, "see mknodat"),
    ALLOW(dup2, FILES),
    ALLOW(pipe, FILES),
    ALLOW(inotify_init, FILES),
    ALLOW(arch_prctl, MEMORY),
    ALLOW(map_shadow_stack, MEMORY),
    ALLOW(fork, PROCESS),
    ALLOW(vfork, PROCESS),
    ALLOW(signalfd, PROCESS),
    ALLOW(getpgrp, PROCESS),
    ALLOW(pause, PROCESS),
    ALLOW(alarm, TIME),
    ALLOW(time, TIME),
    ALLOW(poll, EVENTS),
    ALLOW(select, EVENTS),
    ALLOW(epoll_create, EVENTS),
    ALLOW(epoll_wait, EVENTS),
    ALLOW(eventfd, EVENTS),
#endif
    ALLOW(renameat, FILES),

    ABSENT(clone3, "its flags cannot be examined; C libraries fall back to clone"),

    DENY(mount, LEAVE),
    DENY(umount2, LEAVE),
    DENY(pivot_root, LEAVE),
    DENY(chroot, LEAVE),
    DENY(open_tree, LEAVE),
    DENY(move_mount, LEAVE),
    DENY(fsopen, LEAVE),
    DENY(fsconfig, LEAVE),
    DENY(fsmount, LEAVE),
    DENY(fspick, LEAVE),
    DENY(mount_setattr, LEAVE),
    DENY(open_tree_attr, LEAVE),
    ABSENT(statmount, NEWER),
    ABSENT(listmount, NEWER),
    DENY(setns, LEAVE),
    DENY(sethostname, LEAVE),
    DENY(setdomainname, LEAVE),
    DENY(quotactl, LEAVE),
    DENY(quotactl_fd, LEAVE),
    DENY(ptrace, SPY),
    DENY(process_vm_readv, SPY),
    DENY(process_vm_writev, SPY),
    DENY(process_madvise, SPY),
    DENY(process_mrelease, SPY),
    DENY(pidfd_getfd, SPY),
    DENY(kcmp, SPY),
    DENY(migrate_pages, SPY),
    DENY(move_pages, SPY),
    DENY(bpf, KERNEL),
    DENY(perf_event_open, KERNEL),
    DENY(userfaultfd, "makes races in the kernel winnable"),
    DENY(io_uring_setup, "does system calls that no filter sees"),
    DENY(io_uring_enter, "see above"),
    DENY(io_uring_register, "see above"),
    DENY(add_key, "key rings are not namespaced"),
    DENY(request_key, "see above"),
    DENY(keyctl, "see above"),
    DENY(kexec_load, KERNEL),
    DENY(kexec_file_load, KERNEL),
    DENY(init_module, KERNEL),
    DENY(finit_module, KERNEL),
    DENY(delete_module, KERNEL),
    DENY(swapon, KERNEL),
    DENY(swapoff, KERNEL),
    DENY(reboot, KERNEL),
    DENY(syslog, KERNEL),
    DENY(acct, KERNEL),
    DENY(settimeofday, KERNEL),
    DENY(clock_settime, KERNEL),
    DENY(adjtimex, KERNEL),
    DENY(clock_adjtime, KERNEL),
    DENY(vhangup, KERNEL),
    DENY(name_to_handle_at, "handles open files past the mounts"),
    DENY(open_by_handle_at, "see above"),
    DENY(fanotify_init, KERNEL),
    DENY(fanotify_mark, KERNEL),
    ABSENT(memfd_secret, "memory that cannot be swapped or examined; programs do without"),
    ABSENT(remap_file_pages, "emulated by the kernel for programs of long ago"),
    ABSENT(cachestat, "tells what others have read; programs do without"),
    ABSENT(futex_wake, NEWER),
    ABSENT(futex_wait, NEWER),
    ABSENT(futex_requeue, NEWER),
    ABSENT(lsm_get_self_attr, NEWER),
    ABSENT(lsm_set_self_attr, NEWER),
    ABSENT(lsm_list_modules, NEWER),
    ABSENT(setxattrat, NEWER),
    ABSENT(getxattrat, NEWER),
    ABSENT(listxattrat, NEWER),
    ABSENT(removexattrat, NEWER),
    ABSENT(file_getattr, NEWER),
    ABSENT(file_setattr, NEWER),
    ABSENT(lookup_dcookie, GONE),
    ABSENT(nfsservctl, GONE),
#ifdef __x86_64__
    DENY(iopl, KERNEL),
    DENY(ioperm, KERNEL),
    DENY(modify_ldt, KERNEL),
    DENY(ustat, KERNEL),
    DENY(sysfs, KERNEL),
    ABSENT(uselib, GONE),
    ABSENT(_sysctl, GONE),
    ABSENT(create_module, GONE),
    ABSENT(get_kernel_syms, GONE),
    ABSENT(query_module, GONE),
    ABSENT(getpmsg, GONE),
    ABSENT(putpmsg, GONE),
    ABSENT(afs_syscall, GONE),
    ABSENT(tuxcall, GONE),
    ABSENT(security, GONE),
    ABSENT(vserver, GONE),
    ABSENT(epoll_ctl_old, GONE),
    ABSENT(epoll_wait_old, GONE),
    ABSENT(set_thread_area, "of 32 bit programs"),
    ABSENT(get_thread_area, "of 32 bit programs"),
    ABSENT(uretprobe, "only the kernel's own trampolines make it; newer kernels see to that"),
    ABSENT(uprobe, "only the kernel's own trampolines make it; newer kernels see to that"),
#endif
};
const unsigned br_filter_nrows = BR_ARRAY_LEN(br_filter_rows);
