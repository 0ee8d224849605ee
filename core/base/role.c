/*
 * What a program gives up before its first message. Order: identity, capabilities, limits, dumps,
 * descriptors, no_new_privs, and last the seccomp allow list (default: kill the process), which is
 * that of every thread. A build
 * with sanitizers keeps the identity and limits part but not the filter, since the runtime of
 * AddressSanitizer makes calls of its own; the release build is what the tests of the filter run.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#ifndef BR_SANITIZED
#if defined(__x86_64__)
#define ROLE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ROLE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp architecture known for this machine"
#endif

/* What the C library needs to run a poll loop, allocate, log and exit; qsort()
 * asks how much memory there is. */
static const int base_calls[] = {
    SYS_read,         SYS_write,        SYS_close,        SYS_recvmsg,         SYS_sendmsg,
    SYS_ppoll,        SYS_brk,          SYS_mmap,         SYS_munmap,          SYS_mremap,
    SYS_mprotect,     SYS_madvise,      SYS_futex,        SYS_clock_gettime,   SYS_gettimeofday,
    SYS_rt_sigreturn, SYS_rt_sigaction, SYS_exit,         SYS_rt_sigprocmask,  SYS_exit_group,
    SYS_getpid,       SYS_gettid,       SYS_sysinfo,      SYS_getrandom,       SYS_restart_syscall,
    SYS_getrusage,    SYS_newfstatat,   SYS_memfd_create, SYS_clock_nanosleep, SYS_fstat,
    SYS_lseek,        SYS_sched_yield,
#ifdef SYS_poll
    SYS_poll,         SYS_time,
#endif
};
#endif

static void set_limit(int what, uint64_t value)
{
    struct rlimit old, lim = {.rlim_cur = value, .rlim_max = value};
    if (getrlimit(what, &old) == 0 && old.rlim_max < lim.rlim_max)
        lim.rlim_cur = lim.rlim_max = old.rlim_max;
    (void)setrlimit(what, &lim);
}

static int drop_identity(const struct br_role *role, struct br_err *err)
{
    if (role->uid == 0 || geteuid() != 0)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(role->uid, role->uid, role->uid) < 0 ||
        setresuid(role->uid, role->uid, role->uid) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not become uid %u", role->name,
                            (unsigned)role->uid);
    if (setuid(0) == 0 || geteuid() == 0)
        return br_err_set(err, BR_E_FAILED, "'%s' could take root back; it was not started",
                          role->name);
    return 0;
}

/* While the identity may still allow it; EPERM without CAP_SETPCAP, and then there is none to drop.
 */
static void drop_bounding_set(void)
{
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

/* Ambient, effective, permitted and inheritable sets. */
static int drop_capabilities(const struct br_role *role, struct br_err *err)
{
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    if (syscall(SYS_capset, &head, none) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not drop its capabilities", role->name);
    return 0;
}

#ifndef BR_SANITIZED
static size_t put(struct sock_filter *code, size_t at, uint16_t op, uint8_t jt, uint8_t jf,
                  uint32_t k)
{
    code[at] = (struct sock_filter){.code = op, .jt = jt, .jf = jf, .k = k};
    return at + 1;
}

/*
 * Signals to itself (abort(), raise()), but not to whoever else has the same uid: where an ordinary
 * user runs all programs, those are all of his processes. fcntl() would let the kernel send them
 * (F_SETOWN, F_SETSIG, F_SETOWN_EX). Arguments are little endian; pids and commands are ints.
 */
static size_t put_own_signals(struct sock_filter *code, size_t at)
{
    enum { LOAD = BPF_LD | BPF_W | BPF_ABS, EQUAL = BPF_JMP | BPF_JEQ | BPF_K };
    const uint32_t args = offsetof(struct seccomp_data, args), kill = SECCOMP_RET_KILL_PROCESS;
    at = put(code, at, EQUAL, 0, 4, SYS_tgkill);
    at = put(code, at, LOAD, 0, 0, args);
    at = put(code, at, EQUAL, 0, 1, (uint32_t)getpid());
    at = put(code, at, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    at = put(code, at, BPF_RET | BPF_K, 0, 0, kill);
    at = put(code, at, EQUAL, 0, 6, SYS_fcntl);
    at = put(code, at, LOAD, 0, 0, args + sizeof(uint64_t));
    at = put(code, at, EQUAL, 2, 0, F_SETOWN);
    at = put(code, at, EQUAL, 1, 0, 10 /* F_SETSIG */);
    at = put(code, at, EQUAL, 0, 1, 15 /* F_SETOWN_EX */);
    at = put(code, at, BPF_RET | BPF_K, 0, 0, kill);
    return put(code, at, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

static int install_filter(const struct br_role *role, struct br_err *err)
{
    size_t nbase = BR_ARRAY_LEN(base_calls), n = nbase + role->nsyscalls;
    BR_CLEANUP_FREE struct sock_filter *code = calloc(2 * n + 24, sizeof(*code));
    if (!code)
        return br_err_set(err, BR_E_NOMEM, "'%s' has no memory for its filter", role->name);
    size_t at = 0;
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ROLE_ARCH, 1, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    at = put_own_signals(code, at);
    for (size_t i = 0; i < n; i++) {
        int nr = i < nbase ? base_calls[i] : role->syscalls[i - nbase];
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog prog = {.len = (unsigned short)at, .filter = code};
    long other = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
    if (other > 0) /* the thread that it could not be given to */
        errno = EBUSY;
    if (other != 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%s' could not install its system call filter", role->name);
    return 0;
}
#endif

void br_close_from(int first, const int *keep, size_t nkeep)
{
    int low = first;
    for (;;) {
        int next = -1;
        for (size_t i = 0; i < nkeep; i++)
            if (keep[i] >= low && (next < 0 || keep[i] < next))
                next = keep[i];
        if (next < 0)
            break;
        if (next > low)
            (void)syscall(SYS_close_range, (unsigned)low, (unsigned)next - 1, 0);
        low = next + 1;
    }
    (void)syscall(SYS_close_range, (unsigned)low, ~0u, 0);
}

int br_role_enter(const struct br_role *role, struct br_err *err)
{
    drop_bounding_set();
    int r = drop_identity(role, err);
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not set no_new_privs", role->name);
    r = drop_capabilities(role, err);
    if (r < 0)
        return r;
    set_limit(RLIMIT_CORE, 0);
    if (role->max_nofile)
        set_limit(RLIMIT_NOFILE, role->max_nofile);
    if (role->max_cpu_s)
        set_limit(RLIMIT_CPU, role->max_cpu_s);
    if (role->threads)
        role->threads(role->ctx);
    if (role->no_fork && role->uid != 0)
        set_limit(RLIMIT_NPROC, 0);
#ifndef BR_SANITIZED
    if (role->max_as)
        set_limit(RLIMIT_AS, role->max_as);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (role->syscalls)
        return install_filter(role, err);
#endif
    return 0;
}
