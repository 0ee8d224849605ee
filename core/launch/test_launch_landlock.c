/*
 * Landlock: required by a plan or left out by it, and what it keeps where the other locks are left
 * out, each with a sandbox that lacks Landlock too as the control.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include "launch/test_rig.h"

static void must(struct rig *r, const char *script)
{
    const char *out;
    int code = rig_sh(r, script, &out);
    if (code != 0)
        fail_msg("'%s' failed inside (%d): %s", script, code, out);
}

static void must_not(struct rig *r, const char *script, const char *why)
{
    const char *out;
    if (rig_sh(r, script, &out) == 0)
        fail_msg("this succeeded inside: %s", script);
    if (!strstr(out, why))
        fail_msg("'%s' failed, but not with '%s': %s", script, why, out);
}

/* A kernel without it: the profile that requires it is refused, with the one that does not. */
static void test_without_landlock(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    r.fault = "LANDLOCK:1:38";
    rig_start(&r);
    rig_put(&r, "src/", NULL);
    rig_allow(&r, "src/**");
    assert_false(rig_launch_at(&r, -1));
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.text, "run-nolandlock-v1"));
    assert_int_equal(rig_children(r.pid), 0);
    r.plan.flags |= BR_PLAN_NO_LANDLOCK;
    assert_true(rig_launch(&r));
    assert_non_null(strstr(r.receipt, "\"landlock\":0"));
    must(&r, "echo x > src/x");
    must_not(&r, "echo x > x", "Read-only file system");
    rig_exit(&r, 0);
    rig_close(&r);
}

/* Without the read-only mounts it is Landlock alone that keeps the workspace. */
static void test_landlock_alone(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    for (int without = 0; without < 2; without++) {
        rig_make(&r, 0);
        rig_put(&r, "src/", NULL);
        rig_put(&r, "file", "x");
        r.weak = without ? "rw,landlock" : "rw";
        rig_start(&r);
        rig_allow(&r, "src/**");
        assert_true(rig_launch(&r));
        must(&r, "echo x > src/x && mkdir src/d && mv src/x src/d/y && cat file && ls / /usr");
        if (without) {
            must(&r, "echo x >> file && mkdir d");
        } else {
            must_not(&r, "echo x >> file", "Permission denied");
            must_not(&r, "mkdir d", "Permission denied");
            must_not(&r, "truncate -s0 file", "Permission denied");
            must_not(&r, "ln -s x z", "Permission denied");
        }
        rig_exit(&r, 0);
        rig_close(&r);
    }
}

#define ABSTRACT                                                                                   \
    "python3 -c 'import socket\ns=socket.socket(socket.AF_UNIX)\ns.connect(\"\\0%s\")\n"           \
    "print(\"connected\")'"

/* In the host's network namespace it is Landlock alone that keeps abstract sockets apart. */
static void test_landlock_scopes(void **state)
{
    struct rig r;
    char script[512], name[64];
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    (void)state;
    rig_need_root();
    int n = snprintf(name, sizeof(name), "bridle-test-%d", (int)getpid());
    memcpy(sa.sun_path + 1, name, (size_t)n);
    BR_CLEANUP_FD int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sa,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
                     0);
    assert_int_equal(listen(s, 4), 0);
    snprintf(script, sizeof(script), ABSTRACT, name);
    for (int without = 0; without < 2; without++) {
        rig_make(&r, 0);
        r.weak = without ? "netns,landlock" : "netns";
        rig_start(&r);
        assert_true(rig_launch(&r));
        const char *abi = strstr(r.receipt, "\"landlock\":");
        assert_non_null(abi);
        if (without || atoi(abi + strlen("\"landlock\":")) < 6)
            must(&r, script);
        else
            must_not(&r, script, "Operation not permitted");
        rig_exit(&r, 0);
        rig_close(&r);
    }
    /* and in a sandbox that is not weakened */
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    must_not(&r, script, "refused");
    rig_exit(&r, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_landlock),
        cmocka_unit_test(test_landlock_alone),
        cmocka_unit_test(test_landlock_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
