/*
 * The compiled filter against its table: a small interpreter of classic BPF runs the program for
 * every system call number and for the arguments at which a condition changes its mind.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static void check_condition(const struct br_filter_row *r)
{
    const uint64_t high = 1ull << 32;
    switch (r->cond) {
    case BR_COND_FLAGS_CLEAR:
        assert_int_equal(answer(r->nr, r->arg, 0), SECCOMP_RET_ALLOW);
        for (unsigned bit = 0; bit < 32; bit++)
            assert_int_equal(answer(r->nr, r->arg, 1ull << bit),
                             r->list[0] & 1u << bit ? error(r->error) : SECCOMP_RET_ALLOW);
        return;
    case BR_COND_ARG_IN:
        for (unsigned i = 0; i < r->nlist; i++) {
            assert_int_equal(answer(r->nr, r->arg, r->list[i]), SECCOMP_RET_ALLOW);
            assert_int_equal(answer(r->nr, r->arg, r->list[i] | high), error(r->error));
        }
        assert_int_equal(answer(r->nr, r->arg, 12345), error(r->error));
        return;
    case BR_COND_ARG_NOT_IN:
        for (unsigned i = 0; i < r->nlist; i++) {
            assert_int_equal(answer(r->nr, r->arg, r->list[i]), error(r->error));
            assert_int_equal(answer(r->nr, r->arg, r->list[i] | high), error(r->error));
            assert_int_equal(answer(r->nr, r->arg, r->list[i] + 1), SECCOMP_RET_ALLOW);
        }
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
    };
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(never); i++)
        assert_int_not_equal(answer(never[i], 0, 0), SECCOMP_RET_ALLOW);
    for (unsigned i = 0; i < br_filter_nrows; i++)
        assert_true(br_filter_rows[i].why && br_filter_rows[i].why[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number),
        cmocka_unit_test(test_other_machines),
        cmocka_unit_test(test_never),
    };
    assert_int_equal(br_filter_build(&prog, NULL), 0);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    free(prog.filter);
    return r;
}
