/*
 * The cell of an observer: the plan says that a process is alone. There is no program but pid 1's,
 * nobody's files, and room for one process more, which so can have no children; with either
 * backend, as root and as an ordinary user. Each has a control: the same in a sandbox that promises
 * less.
 */
#include <stdlib.h>
#include <string.h>

#include "launch/test_rig.h"

static void plan_of(struct rig *r, bool bwrap, bool alone)
{
    r->plan.workspace = BR_WORKSPACE_NONE;
    if (bwrap) {
        r->plan.backend = BR_BACKEND_BWRAP;
        r->plan.flags |= BR_PLAN_NO_LANDLOCK;
    }
    if (!alone) {
        r->plan.limits.pids = 64;
        return;
    }
    r->plan.flags |= BR_PLAN_ALONE | BR_PLAN_TMP_NOEXEC | BR_PLAN_HOME_NOEXEC;
    r->plan.limits.pids = bwrap ? 3 : 2;
    strcpy(r->plan.image, "none");
}

static void check(uid_t uid, bool bwrap)
{
    struct rig r;
    const char *out;
    rig_need_root();
    rig_open(&r, uid);
    rig_config(&r);
    plan_of(&r, bwrap, true);
    if (!rig_launch(&r))
        fail_msg("refused: %s", r.text);
    assert_string_equal(r.image, "none");
    assert_non_null(strstr(r.receipt, "\"image\":{\"id\":\"none\",\"verified\":\"empty\""));
    assert_int_equal(rig_sh(&r, "true", &out), 127);    /* there is no shell */
    assert_string_equal(rig_ask(&r, "fork 8"), "1 11"); /* then EAGAIN */
    rig_exit(&r, 0);
    assert_true(r.verified);
    /* the control */
    br_plan_free(&r.plan);
    br_plan_default(&r.plan);
    plan_of(&r, bwrap, false);
    if (!rig_launch(&r))
        fail_msg("refused: %s", r.text);
    assert_int_equal(rig_sh(&r, "ls /usr/bin >/dev/null && true", &out), 0);
    assert_string_equal(rig_ask(&r, "fork 8"), "8 0");
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_native(void **state)
{
    (void)state;
    check(0, false);
}

static void test_native_user(void **state)
{
    (void)state;
    check(RIG_USER, false);
}

static void test_bwrap(void **state)
{
    (void)state;
    check(0, true);
}

static void test_bwrap_user(void **state)
{
    (void)state;
    check(RIG_USER, true);
}

/* A plan that promises it and leaves room for more is not started. */
static void test_refused(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, 0);
    for (int i = 0; i < 3; i++) {
        br_plan_free(&r.plan);
        br_plan_default(&r.plan);
        plan_of(&r, false, true);
        if (i == 0)
            r.plan.limits.pids++;
        else if (i == 1)
            strcpy(r.plan.image, "host");
        else
            r.plan.workspace = BR_WORKSPACE_BIND;
        assert_false(rig_launch(&r));
        assert_int_equal(r.code, BR_E_INVALID_PROFILE);
        assert_int_equal(rig_children(r.pid), 0);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_native),  cmocka_unit_test(test_native_user),
        cmocka_unit_test(test_bwrap),   cmocka_unit_test(test_bwrap_user),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
