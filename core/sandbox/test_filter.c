/*
 * The compiled filter against its table: a small interpreter of classic BPF runs the program for
 * every system call number and for the arguments at which a condition changes its mind.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
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

#include "sandbox/filter.h"

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

static uint32_t answer_mode(const struct br_filter_row *r, uint64_t flags, uint64_t mode)
{
    struct seccomp_data d = {.nr = r->nr, .arch = ARCH};
    memset(d.args, 0x5a, sizeof(d.args));
    d.args[r->arg] = flags;
    d.args[r->arg + 1] = mode;
    return run(&d);
}

static void check_mode(const struct br_filter_row *r)
{
    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t mode = 1u << bit, flag = 1u << bit;
        /* a mode is refused exactly if it has such a bit, with whatever is in the high half */
        uint32_t want = mode & r->list[1] ? error(r->error) : SECCOMP_RET_ALLOW;
        assert_int_equal(answer_mode(r, O_CREAT, mode), want);
        assert_int_equal(answer_mode(r, O_CREAT | HIGH, mode | HIGH), want);
        assert_int_equal(answer_mode(r, O_TMPFILE | O_RDWR, mode), want);
        /* and looked at exactly if the flags make something */
        assert_int_equal(answer_mode(r, flag, r->list[1]),
                         flag & r->list[0] ? error(r->error) : SECCOMP_RET_ALLOW);
    }
    assert_int_equal(answer_mode(r, 0, ~0ull), SECCOMP_RET_ALLOW);
    assert_int_equal(answer_mode(r, O_DIRECTORY, 04755), SECCOMP_RET_ALLOW);
    assert_int_equal(answer_mode(r, O_CREAT, 0777), SECCOMP_RET_ALLOW);
    assert_int_equal(answer_mode(r, O_CREAT, 04755), error(EPERM));
    assert_int_equal(answer_mode(r, O_CREAT, 02755), error(EPERM));
}

static bool in_list(const struct br_filter_row *r, uint32_t v)
{
    for (unsigned i = 0; i < r->nlist; i++)
        if (r->list[i] == v)
            return true;
    return false;
}

/* Both sides of every edge; the high half, which the kernel ignores, changes nothing. */
static void check_list(const struct br_filter_row *r)
{
    for (unsigned i = 0; i < r->nlist + 1; i++)
        for (int step = -1; step <= 1; step++) {
            uint32_t v = (i < r->nlist ? r->list[i] : 12345) + (uint32_t)step;
            bool ok = in_list(r, v) == (r->cond == BR_COND_ARG_IN);
            uint32_t want = ok ? SECCOMP_RET_ALLOW : error(r->error);
            assert_int_equal(answer(r->nr, r->arg, v), want);
            assert_int_equal(answer(r->nr, r->arg, v | HIGH), want);
            assert_int_equal(answer(r->nr, r->arg, v | 1ull << 63), want);
        }
}

static void check_condition(const struct br_filter_row *r)
{
    assert_non_null(r->only);
    switch (r->cond) {
    case BR_COND_FLAGS_CLEAR:
        assert_int_equal(answer(r->nr, r->arg, 0), SECCOMP_RET_ALLOW);
        assert_int_equal(answer(r->nr, r->arg, HIGH), SECCOMP_RET_ALLOW);
        for (unsigned bit = 0; bit < 32; bit++)
            for (uint64_t high = 0; high <= HIGH; high += HIGH)
                assert_int_equal(answer(r->nr, r->arg, high | 1ull << bit),
                                 r->list[0] & 1u << bit ? error(r->error) : SECCOMP_RET_ALLOW);
        return;
    case BR_COND_ARG_IN:
    case BR_COND_ARG_NOT_IN:
        check_list(r);
        return;
    case BR_COND_MODE_CLEAR:
        check_mode(r);
        return;
    default:
        fail_msg("%s has an unknown condition", r->name);
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
        else if (row->cond == BR_COND_NONE)
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
        bool always = r->allow && r->cond == BR_COND_NONE && !r->error && !r->only && !r->list;
        bool when = r->allow && r->cond != BR_COND_NONE && r->error && r->only && r->nlist;
        bool never = !r->allow && r->cond == BR_COND_NONE && !r->only && !r->list &&
                     (r->error == EPERM || r->error == ENOSYS);
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
    assert_int_equal(BR_FILTER_VERSION, 3);
    assert_string_equal(hex, "84dce81a29d3dc8e88f24f0a5b2c05205e291acdc4ed87aa138dbe70e2ba2fa0");
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
