/*
 * The compiled filter against its table: a small interpreter of classic BPF runs the program for
 * every system call number and for the arguments at which a condition changes its mind.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/fs.h>
#include <linux/tcp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "sandbox/filter_want.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#define OTHER_ARCH AUDIT_ARCH_I386
#else
#define ARCH AUDIT_ARCH_AARCH64
#define OTHER_ARCH AUDIT_ARCH_ARM
#endif

static struct sock_fprog prog;

#define HIGH (1ull << 32)

static uint32_t run(const struct seccomp_data *data)
{
    uint32_t a = 0;
    for (unsigned pc = 0; pc < prog.len; pc++) {
        const struct sock_filter *i = &prog.filter[pc];
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i->k % 4 == 0 && i->k + 4 <= sizeof(*data));
            memcpy(&a, (const char *)data + i->k, 4);
            break;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            break;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            pc += a > i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            pc += a == i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            pc += a >= i->k ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            pc += a & i->k ? i->jt : i->jf;
            break;
        default:
            fail_msg("unexpected instruction 0x%x", i->code);
        }
    }
    fail_msg("the program ran past its end");
    return 0;
}

static uint32_t answer(int nr, unsigned arg, uint64_t value)
{
    struct seccomp_data d = {.nr = nr, .arch = ARCH};
    /* other arguments must not matter */
    for (unsigned i = 0; i < 6; i++)
        d.args[i] = 0x5a5a5a5a5a5a5a5aull;
    d.args[arg] = value;
    return run(&d);
}

static uint32_t error(int e)
{
    return SECCOMP_RET_ERRNO | (uint32_t)e;
}

/* All edges of all arguments with each other; the high half changes nothing. */
static void check_condition(const struct br_filter_row *r)
{
    static uint32_t v[6][BR_FILTER_EDGES_MAX];
    struct seccomp_data d = {.nr = r->nr, .arch = ARCH};
    unsigned n[6], at[6] = {0}, arg = 0, allowed = 0, refused = 0;
    assert_non_null(r->only);
    memset(d.args, 0x5a, sizeof(d.args)); /* other arguments must not matter */
    for (unsigned i = 0; i < 6; i++)
        n[i] = br_filter_edges(r, i, true, v[i]);
    while (arg < 6) {
        uint64_t a[6];
        memcpy(a, d.args, sizeof(a));
        for (unsigned i = 0; i < 6; i++)
            if (n[i])
                a[i] = v[i][at[i]];
        int e = br_filter_want(r, a);
        uint32_t want = e ? error(e) : SECCOMP_RET_ALLOW;
        *(e ? &refused : &allowed) += 1;
        static const uint64_t high[] = {0, HIGH, 1ull << 63, ~0ull << 32};
        for (unsigned h = 0; h < BR_ARRAY_LEN(high); h++) {
            for (unsigned i = 0; i < 6; i++)
                d.args[i] = n[i] ? a[i] | high[h] : d.args[i];
            if (run(&d) != want)
                fail_msg("%s 0x%llx 0x%llx 0x%llx: 0x%x, not 0x%x", r->name,
                         (unsigned long long)d.args[0], (unsigned long long)d.args[1],
                         (unsigned long long)d.args[2], run(&d), want);
        }
        for (arg = 0; arg < 6 && (n[arg] == 0 || ++at[arg] == n[arg]); arg++)
            at[arg] = 0;
    }
    assert_true(allowed > 0 && refused > 0);
}

/* In the kernel's own names, so that a mistake in a number of the table is seen. */
static void test_named(void **state)
{
    static const struct {
        int nr;
        uint64_t a[4];
        int want;
    } v[] = {
        {SYS_openat, {0, 0, O_CREAT, 0777}, 0},
        {SYS_openat, {0, 0, O_CREAT, 04755}, EPERM},
        {SYS_openat, {0, 0, O_CREAT, 02755}, EPERM},
        {SYS_openat, {0, 0, O_TMPFILE | O_RDWR, 04755}, EPERM},
        {SYS_openat, {0, 0, O_DIRECTORY, 04755}, 0},
        {SYS_fchmod, {0, 04755}, EPERM},
        {SYS_fchmod, {0, 02775}, 0},
        {SYS_mmap, {0, 1, 3, MAP_PRIVATE | MAP_ANONYMOUS}, 0},
        {SYS_mmap, {0, 1, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB}, ENOMEM},
        {SYS_memfd_create, {0, MFD_CLOEXEC | MFD_ALLOW_SEALING}, 0},
        {SYS_memfd_create, {0, MFD_HUGETLB}, EINVAL},
        {SYS_shmget, {0, 1, IPC_CREAT | 0600}, 0},
        {SYS_shmget, {0, 1, IPC_CREAT | SHM_HUGETLB | 0600}, ENOMEM},
        {SYS_setsockopt, {0, SOL_SOCKET, SO_REUSEADDR}, 0},
        {SYS_setsockopt, {0, SOL_SOCKET, SO_ATTACH_FILTER}, ENOPROTOOPT},
        {SYS_setsockopt, {0, SOL_SOCKET, SO_ATTACH_BPF}, ENOPROTOOPT},
        {SYS_setsockopt, {0, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF}, ENOPROTOOPT},
        {SYS_setsockopt, {0, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF}, ENOPROTOOPT},
        {SYS_setsockopt, {0, IPPROTO_IPV6, IPV6_V6ONLY /* 26 */}, 0},
        {SYS_setsockopt, {0, IPPROTO_TCP, TCP_NODELAY}, 0},
        {SYS_setsockopt, {0, IPPROTO_TCP, TCP_ULP}, ENOPROTOOPT},
        {SYS_socket, {AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP}, 0},
        {SYS_socket, {AF_UNIX, SOCK_SEQPACKET, 0}, 0},
        {SYS_socket, {AF_INET, SOCK_STREAM, 262 /* MPTCP */}, EPROTONOSUPPORT},
        {SYS_socket, {AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE}, EPROTONOSUPPORT},
        {SYS_socket, {AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP}, EPROTONOSUPPORT},
        {SYS_socket, {AF_INET, 6 /* SOCK_DCCP */, 0}, ESOCKTNOSUPPORT},
        {SYS_socket, {AF_NETLINK, SOCK_RAW, 0}, EAFNOSUPPORT},
        {SYS_inotify_add_watch, {0, 0, IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB}, 0},
        {SYS_inotify_add_watch, {0, 0, IN_OPEN}, EPERM},
        {SYS_inotify_add_watch, {0, 0, IN_ALL_EVENTS}, EPERM},
        {SYS_fcntl, {0, F_DUPFD_CLOEXEC}, 0},
        {SYS_fcntl, {0, F_ADD_SEALS}, 0},
        {SYS_fcntl, {0, F_OFD_SETLKW}, 0},
        {SYS_fcntl, {0, F_SETLEASE}, EINVAL},
        {SYS_fcntl, {0, F_NOTIFY}, EINVAL},
        {SYS_ioctl, {0, TCGETS}, 0},
        {SYS_ioctl, {0, FIONBIO}, 0},
        {SYS_ioctl, {0, FIOCLEX}, 0},
        {SYS_ioctl, {0, TIOCGWINSZ}, 0},
        {SYS_ioctl, {0, FICLONE}, 0},
        {SYS_ioctl, {0, SIOCGIFCONF}, 0},
        {SYS_ioctl, {0, FS_IOC_GETFLAGS}, 0},
        {SYS_ioctl, {0, FS_IOC_SETFLAGS}, ENOTTY},
        {SYS_ioctl, {0, FS_IOC_FSSETXATTR}, ENOTTY},
        {SYS_ioctl, {0, 0x40305828 /* FS_IOC_RESVSP */}, ENOTTY},
        {SYS_ioctl, {0, 0x4030582a /* FS_IOC_RESVSP64 */}, ENOTTY},
        {SYS_ioctl, {0, 0x40305839 /* FS_IOC_ZERO_RANGE */}, ENOTTY},
        {SYS_ioctl, {0, SIOCGIFBR}, ENOTTY},
        {SYS_ioctl, {0, SIOCGIFVLAN}, ENOTTY},
        {SYS_ioctl, {0, TIOCSTI}, EPERM},
        {SYS_prlimit64, {0, RLIMIT_NOFILE}, 0},
        {SYS_prlimit64, {1, RLIMIT_NOFILE}, EPERM},
        {SYS_sched_setattr, {1}, EPERM},
        {SYS_sched_setscheduler, {1, SCHED_OTHER}, EPERM},
        {SYS_setpriority, {PRIO_PROCESS, 0, 19}, 0},
        {SYS_setpriority, {PRIO_PROCESS, 1, 19}, EPERM},
        {SYS_setpriority, {PRIO_PGRP, 0, 19}, EPERM},
        {SYS_setpriority, {PRIO_USER, 0, 19}, EPERM},
        {SYS_ioprio_set, {1, 0, 0}, 0},
        {SYS_ioprio_set, {1, 1, 0}, EPERM},
        {SYS_ioprio_set, {3, 0, 0}, EPERM},
    };
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(v); i++) {
        struct seccomp_data d = {.nr = v[i].nr, .arch = ARCH};
        memcpy(d.args, v[i].a, sizeof(v[i].a));
        uint32_t want = v[i].want ? error(v[i].want) : SECCOMP_RET_ALLOW;
        if (run(&d) != want)
            fail_msg("line %u, call %d: 0x%x, not 0x%x", i, v[i].nr, run(&d), want);
    }
}

static void test_every_number(void **state)
{
    (void)state;
    for (int nr = 0; nr < 2000; nr++) {
        const struct br_filter_row *row = NULL;
        for (unsigned i = 0; i < br_filter_nrows; i++)
            if (br_filter_rows[i].nr == nr)
                row = &br_filter_rows[i];
        if (!row)
            assert_int_equal(answer(nr, 0, 0), error(ENOSYS));
        else if (!row->allow)
            assert_int_equal(answer(nr, 0, 0), error(row->error));
        else if (row->ntests == 0)
            assert_int_equal(answer(nr, 0, 0), SECCOMP_RET_ALLOW);
        else
            check_condition(row);
    }
}

static void test_other_machines(void **state)
{
    struct seccomp_data d = {.nr = SYS_getpid, .arch = ARCH};
    (void)state;
    assert_int_equal(run(&d), SECCOMP_RET_ALLOW); /* control */
    d.arch = OTHER_ARCH;
    assert_int_equal(run(&d), SECCOMP_RET_KILL_PROCESS);
#ifdef __x86_64__
    d.arch = ARCH;
    d.nr = SYS_getpid | 0x40000000; /* x32 */
    assert_int_equal(run(&d), SECCOMP_RET_KILL_PROCESS);
    d.nr = -1;
    assert_int_equal(run(&d), SECCOMP_RET_KILL_PROCESS);
#endif
}

/* Every row says one thing: allowed, allowed if, refused, or as if it did not exist. */
static void test_categories(void **state)
{
    (void)state;
    for (unsigned i = 0; i < br_filter_nrows; i++) {
        const struct br_filter_row *r = &br_filter_rows[i];
        bool always = r->allow && !r->ntests && !r->error && !r->only;
        bool when = r->allow && r->ntests && !r->error && r->only;
        bool never =
            !r->allow && !r->ntests && !r->only && (r->error == EPERM || r->error == ENOSYS);
        if (always + when + never != 1 || !r->why || !r->why[0])
            fail_msg("the row of '%s' is in no category, or in two", r->name);
        for (unsigned k = 0; k < i; k++)
            assert_int_not_equal(r->nr, br_filter_rows[k].nr);
    }
}

static const struct br_filter_row *row_of(int nr)
{
    for (unsigned i = 0; i < br_filter_nrows; i++)
        if (br_filter_rows[i].nr == nr)
            return &br_filter_rows[i];
    return NULL;
}

#ifdef __x86_64__
/* Every call of Linux 6.18 has a row: 0 to 336, and 424 to 469. */
static void test_total(void **state)
{
    (void)state;
    for (int nr = 0; nr <= 469; nr++)
        if ((row_of(nr) != NULL) != (nr <= 336 || nr >= 424))
            fail_msg("system call %d has no row, or one that Linux does not have", nr);
}

/* And so has every call that the headers of this machine name, under that name. */
static void test_headers(void **state)
{
    char line[256], name[64];
    int nr;
    unsigned n = 0;
    (void)state;
    FILE *f = fopen("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "re");
    if (!f)
        f = fopen("/usr/include/asm/unistd_64.h", "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "#define __NR_%63s %d", name, &nr) != 2)
            continue;
        const struct br_filter_row *r = row_of(nr);
        if (nr <= 469 && (!r || strcmp(r->name, name) != 0))
            fail_msg("system call %d is '%s' in the headers and '%s' in the table", nr, name,
                     r ? r->name : "missing");
        n++;
    }
    (void)fclose(f);
    assert_true(n > 330);
}

/* Whoever changes what the filter answers gives it a new version, and its hash here. */
static void test_version(void **state)
{
    char hex[65];
    (void)state;
    br_filter_hash(&prog, hex);
    assert_int_equal(BR_FILTER_VERSION, 4);
    assert_string_equal(hex, "bbd4e1ede615a5efd63f1d0c8a4d025ce72d0b5999249b19f7ba87a8f0e4934e");
}
#endif

/* What must never be allowed, whatever the table is changed to. */
static void test_never(void **state)
{
    static const int never[] = {
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_move_mount,
        SYS_open_tree,
        SYS_fsopen,
        SYS_fsmount,
        SYS_mount_setattr,
        SYS_setns,
        SYS_ptrace,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_userfaultfd,
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_kexec_load,
        SYS_init_module,
        SYS_swapon,
        SYS_reboot,
        SYS_clone3,
        SYS_pidfd_getfd,
        SYS_chroot,
        SYS_finit_module,
        SYS_open_by_handle_at,
        SYS_process_vm_writev,
        SYS_openat2,
        SYS_io_uring_register,
        SYS_kexec_file_load,
        SYS_quotactl,
        SYS_kcmp,
        SYS_name_to_handle_at,
        SYS_io_setup,
    };
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(never); i++)
        assert_int_not_equal(answer(never[i], 0, 0), SECCOMP_RET_ALLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number), cmocka_unit_test(test_other_machines),
        cmocka_unit_test(test_never),        cmocka_unit_test(test_categories),
        cmocka_unit_test(test_named),
#ifdef __x86_64__
        cmocka_unit_test(test_total),        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_version),
#endif
    };
    assert_int_equal(br_filter_build(&prog, NULL), 0);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    free(prog.filter);
    return r;
}
