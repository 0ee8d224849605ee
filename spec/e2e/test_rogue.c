/*
 * An unpermitted message ends the peer that sent it and fails its session closed: a rogue program
 * takes the place of a real one among the otherwise real programs. Positive control: the same
 * run with nothing replaced runs its command.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "support/e2e.h"

static const char manifest[] = "id: rogue\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [out/**]\n"
                               "permissions: {}\ndelivery: {type: none}\n";

static const char policy[] = "local policy = require \"bridle.policy\"\n"
                             "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                             "  policy.allow { id = \"touch\", action = \"process.exec\", "
                             "command = \"touch *\" },\n} }\n";

static void run_with(const char *replaced, const char *by, const char *says)
{
    struct e2e t;
    struct e2e_result r;
    char bin[128], real[BR_PATH_MAX];
    snprintf(real, sizeof(real), "%s", e2e_bin());
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/out/seed", "");
    e2e_write(&t, "task.yaml", manifest);
    e2e_write(&t, "policy.lua", policy);
    e2e_copy_bin(&t, replaced, by, bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "touch", "out/x", NULL);
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    char *made = e2e_read(&t, "workspace/out/x");
    const char *said = (const char *)r.err.data;
    if (!replaced) {
        if (r.status != 0 || !made)
            fail_msg("status %d: %s", r.status, said);
    } else {
        if (r.status != 1 || made)
            fail_msg("%s: status %d, %s made\n%s", replaced, r.status, made ? "was" : "not", said);
        if (!strstr(said, says))
            fail_msg("%s: %s", replaced, said);
        if (r.us > 60u * 1000000u) /* and not when the run's own time is over */
            fail_msg("%s: it took %llu s", replaced, (unsigned long long)r.us / 1000000u);
    }
    free(made);
    e2e_result_free(&r);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0); /* whose programs must be gone */
    e2e_expect_clean(&t);
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    e2e_close(&t);
}

static void test_nothing_replaced(void **state)
{
    (void)state;
    run_with(NULL, NULL, NULL);
}

static void test_rogue_session(void **state)
{
    (void)state;
    run_with("bridle-session", "rogue", "not permitted");
}

static void test_rogue_listener(void **state)
{
    (void)state;
    run_with("bridle-session", "rogue_listener", "malformed SUP_LISTENER");
}

static void test_rogue_script(void **state)
{
    (void)state;
    run_with("bridle-script", "rogue", "not permitted");
}

static void test_rogue_launcher(void **state)
{
    (void)state;
    run_with("bridle-launch", "rogue", "not permitted");
}

/*
 * What pid 1 measured is not what was planned: it is ended before its first call. An activation
 * pins bridle-init, so that the first who sees another one is the activation itself.
 */
static void test_lying_init(void **state)
{
    struct e2e t;
    struct e2e_result r;
    char bin[128], real[BR_PATH_MAX];
    (void)state;
    snprintf(real, sizeof(real), "%s", e2e_bin());
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/out/seed", "");
    e2e_copy_bin(&t, "bridle-init", "liar", bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    const char *said = (const char *)r.err.data;
    if (r.status != 6 || !strstr(said, "'uidMap'") || !strstr(said, "before anything ran in it"))
        fail_msg("status %d: %s", r.status, said);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    e2e_close(&t);
}

static void test_deaf_session(void **state)
{
    (void)state;
    run_with("bridle-session", "deaf", "closed its channel");
}

static void test_deaf_script(void **state)
{
    (void)state;
    run_with("bridle-script", "deaf", "closed its channel");
}

static void test_deaf_launcher(void **state)
{
    (void)state;
    run_with("bridle-launch", "deaf", "closed its channel");
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lying_init),    cmocka_unit_test(test_nothing_replaced),
        cmocka_unit_test(test_rogue_session), cmocka_unit_test(test_rogue_listener),
        cmocka_unit_test(test_rogue_script),  cmocka_unit_test(test_rogue_launcher),
        cmocka_unit_test(test_deaf_session),  cmocka_unit_test(test_deaf_script),
        cmocka_unit_test(test_deaf_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
