/*
 * A session that was taken over (turned.c) can name the profile that the operator chose and ask for
 * a weaker sandbox than was activated under that name. It gets none, and nothing is started.
 * Positive controls: the activated sandbox, asked for by the same program, is started; so is one
 * with less time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "support/e2e.h"

static const char manifest[] = "id: turned\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [out/**]\n"
                               "permissions: {}\ndelivery: {type: none}\n";

static struct e2e t;
static char bin[128], real[BR_PATH_MAX];

static int open_turned(void **state)
{
    struct e2e_result r;
    (void)state;
    snprintf(real, sizeof(real), "%s", e2e_bin());
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/out/seed", "");
    e2e_write(&t, "task.yaml", manifest);
    e2e_write(&t, "policy.lua", "return { rules = {} }\n");
    t.activated = true;
    const char *const profiles[] = {"run-v1", "run-nolandlock-v1"};
    for (unsigned i = 0; i < 2; i++) { /* by the honest programs */
        e2e_run(&t, &r, "bridle", "activate", profiles[i], NULL);
        if (r.status != 0)
            fail_msg("%s: status %d: %s", profiles[i], r.status, (char *)r.err.data);
        e2e_result_free(&r);
    }
    e2e_copy_bin(&t, "bridle-session", "turned", bin);
    assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    return 0;
}

static int close_turned(void **state)
{
    (void)state;
    e2e_expect_clean(&t);
    assert_int_equal(setenv("BRIDLE_BIN", real, 1), 0);
    e2e_close(&t);
    return 0;
}

static void claim(const char *word, int status, const char *says)
{
    struct e2e_result r;
    char arg[64];
    snprintf(arg, sizeof(arg), "claim=%s", word);
    e2e_run(&t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "true", arg, NULL);
    const char *said = (const char *)r.err.data;
    if (r.status != status || !strstr(said, says))
        fail_msg("%s: status %d, not %d, and not '%s' in: %s", word, r.status, status, says, said);
    if (status != 77 && strstr(said, "the sandbox was started"))
        fail_msg("%s: %s", word, said);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
}

static void test_what_was_activated(void **state)
{
    (void)state;
    claim("honest", 77, "the sandbox was started");
    claim("time", 77, "the sandbox was started");
}

static void test_weaker(void **state)
{
    (void)state;
    static const char *const claims[][2] = {
        {"landlock", "'landlock' was 'required' and is 'none'"},
        {"identity", "'identity' was 'dedicated' and is 'owner'"},
        {"workspace", "'workspace' was 'bind' and is 'none'"},
        {"bwrap", "'backend' was 'native' and is 'bwrap'"},
        {"scratch", "'disk.scratch' was 'none 0 0' and is 'tmpfs 67108864 1000'"},
        {"memory", "'limit.memory-bytes' was '2147483648' and is '3221225472'"},
        {"pids", "'limit.pids' was '256' and is '257'"},
        {"cpu", "'limit.cpu-percent' was '200' and is '300'"},
        {"nofile", "'limit.nofile' was '1024' and is '1025'"},
        {"fsize", "'limit.fsize-bytes' was '1073741824' and is '1073741825'"},
        {"tmp", "'limit.tmp-bytes' was '268435456' and is '269484032'"},
        {"inodes", "'limit.tmp-inodes' was '20000' and is '20001'"},
        {"exec", "'limit.exec-seconds' was '1800' and is '1801'"},
        {"less", "'limit.pids' was '256' and is '255'"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(claims); i++)
        claim(claims[i][0], 78, claims[i][1]);
}

/* Another profile, though it is activated, and a hash that is not the text's. */
static void test_not_chosen(void **state)
{
    (void)state;
    claim("other", 1, "'run-nolandlock-v1', which is not the one that was chosen");
    claim("text", 1, "'run-v1', which is not the one that was chosen");
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_activated),
        cmocka_unit_test(test_weaker),
        cmocka_unit_test(test_not_chosen),
    };
    return cmocka_run_group_tests(tests, open_turned, close_turned);
}
