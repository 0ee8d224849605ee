/*
 * Every system call that builds a sandbox is made to fail from its N-th time on: the launch is
 * refused and nothing is left. A call is through when the launch succeeds because there is no N-th
 * one.
 */
#include <errno.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

/* name, the least number of calls that one launch makes of it (so that none is forgotten) */
static const struct {
    const char *call;
    int at_least;
} calls[] = {
    {"CLONE3", 2},        {"UNSHARE", 3},  {"OPEN_TREE", 10},  {"MOVE_MOUNT", 10},
    {"MOUNT_SETATTR", 8}, {"FSOPEN", 1},   {"FSCONFIG", 4},    {"FSMOUNT", 1},
    {"MOUNT", 5},         {"UMOUNT", 1},   {"PIVOT_ROOT", 1},  {"CHDIR", 3},
    {"SETHOSTNAME", 1},   {"SETSID", 1},   {"SETGROUPS", 1},   {"SETRESGID", 1},
    {"SETRESUID", 1},     {"CAPSET", 1},   {"PRCTL", 10},      {"SECCOMP", 1},
    {"SETRLIMIT", 3},     {"DUP", 3},      {"CLOSE_RANGE", 2}, {"EXEC", 1},
    {"IDMAP", 5},         {"MKCGROUP", 1}, {"WRITECGROUP", 3},
};

static void test_each_call(void **state)
{
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(calls); i++) {
        bool through = false;
        for (int n = 1; !through; n += n < 8 ? 1 : 4) {
            struct rig r;
            char fault[64];
            rig_make(&r, 0);
            rig_put(&r, "dir/", NULL);
            rig_allow(&r, "dir/**");
            snprintf(fault, sizeof(fault), "%s:%d:%d", calls[i].call, n, EPERM);
            r.fault = fault;
            rig_start(&r);
            through = rig_launch_at(&r, -1);
            if (through) {
                if (n <= calls[i].at_least)
                    fail_msg("%s: a launch succeeded although it failed", fault);
                assert_int_equal(rig_call(&r, "getpid"), 0);
                rig_exit(&r, 0);
            } else {
                if (!r.text[0] || r.code == 0 || r.code >= BR_CODE_COUNT_)
                    fail_msg("%s: no reason: %u '%s'", fault, r.code, r.text);
                assert_int_equal(rig_children(r.pid), 0);
                assert_int_equal(rig_cgroups(r.pid), 0);
                assert_null(rig_ask(&r, "call getpid"));
            }
            rig_close(&r);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
