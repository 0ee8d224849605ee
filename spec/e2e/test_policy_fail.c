/*
 * A policy that fails in the middle of a run: an error in its `check`, one that never ends, a
 * process that no longer answers, and one that is killed while it is asked. Each time the call is
 * denied, nothing was done, the record has a bridle.policy.error with the file, and the run goes on
 * (or, if the process died, ends failed) with nothing left behind. Positive control: the same run
 * with a policy that has no opinion.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

#define CALL(n, program, args)                                                                     \
    "{\"when\":{\"assistant_messages\":" #n "},\"text\":\"\",\"tool_calls\":[{\"name\":"           \
    "\"process_exec\",\"arguments\":{\"argv\":[\"" program "\"," args "]}}]},"

/* Time to find the policy's process, then two files. */
static const char scenario[] = "{\"v\":1,\"name\":\"fail\",\"turns\":[" CALL(0, "sleep", "\"2\"")
    CALL(1, "touch", "\"out/bad\"") CALL(2, "touch", "\"out/good\"") "{\"when\":{},\"text\":\"Done."
                                                                     "\"}]}";

static const char manifest[] = "id: fail\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [out/**]\n"
                               "permissions: {}\ndelivery: {type: none}\n";

/* The check begins in line 3, its body in line 5; the text makes the process larger than the
 * adapter's. */
#define POLICY(body)                                                                               \
    "local policy = require 'bridle.policy'\n"                                                     \
    "local weight = ('x'):rep(16000000)\n"                                                         \
    "local function check(request)\n"                                                              \
    "  if not request.subject:find('bad', 1, true) then return nil, #weight > 0 and 'ok' end\n"    \
    "  " body "\n"                                                                                 \
    "end\n"                                                                                        \
    "return policy.bundle { api = 1, name = 'fail', check = check, rules = {\n"                    \
    "  policy.allow { id = 'touch', action = 'process.exec', command = { 'touch *', 'sleep *' } }" \
    ",\n} }\n"

static pid_t start(struct e2e *t, const char *policy)
{
    const char *const argv[] = {"bridle",    "run",        "-C",         "workspace",
                                "-p",        "policy.lua", "--scenario", "scenario.json",
                                "task.yaml", NULL};
    e2e_open(t, 0);
    e2e_write(t, "workspace/out/seed", "");
    e2e_write(t, "task.yaml", manifest);
    e2e_write(t, "scenario.json", scenario);
    e2e_write(t, "policy.lua", policy);
    return e2e_spawn(t, (char *const *)argv, NULL);
}

/* KiB */
static unsigned long resident(pid_t pid)
{
    char path[64], line[256];
    unsigned long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %lu", &kib) == 1)
            break;
    return kib;
}

/* The policy's process, once the sandbox is up and its first call runs. */
static pid_t policy_process(pid_t bridle)
{
    assert_true(e2e_await(bridle, "sleep", 0, 30000) > 0);
    pid_t a = e2e_find(bridle, "bridle-script", 0), b = e2e_find(bridle, "bridle-script", 1);
    assert_true(a > 0 && b > 0);
    pid_t larger = resident(a) > resident(b) ? a : b;
    assert_true(resident(larger) > 15000);
    return larger;
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* Finish the run and its record: what its one policy error says, how it ended, which files exist.
 */
static void finish(struct e2e *t, pid_t pid, const char *const says[], const char *ended, bool good)
{
    struct e2e_result r;
    char status[64];
    e2e_wait(t, pid, 60, &r);
    bool completed = strcmp(ended, "completed") == 0;
    if (completed ? r.status != 0 : r.status <= 0)
        fail_msg("status %d\n%s%s", r.status, (char *)r.out.data, (char *)r.err.data);
    e2e_result_free(&r);
    e2e_expect_clean(t);
    e2e_expect_file(t, "workspace/out/bad", says[0] ? NULL : "");
    e2e_expect_file(t, "workspace/out/good", good ? "" : NULL);
    e2e_run(t, &r, "bridle", "show", "last", "--json", NULL);
    const char *out = (const char *)r.out.data;
    assert_int_equal(r.status, 0);
    const char *error = strstr(out, "\"type\":\"bridle.policy.error\"");
    assert_true(!error == !says[0]);
    char *line = error ? strndup(error, strcspn(error, "\n")) : NULL;
    for (size_t i = 0; says[i]; i++)
        if (!strstr(line, says[i]))
            fail_msg("'%s' is not in %s", says[i], line);
    free(line);
    assert_true(!says[0] || count(out, "\"ruleId\":\"policy-error\"") > 0);
    snprintf(status, sizeof(status), "\"status\":\"%s\"", ended);
    const char *last = strstr(out, "\"type\":\"agent.stopped\"");
    assert_non_null(last);
    if (!strstr(last, status))
        fail_msg("expected %s in %s", status, last);
    assert_int_equal(count(out, "\"type\":\"tool.call\""), count(out, "\"type\":\"tool.result\""));
    e2e_result_free(&r);
    e2e_close(t);
}

static void test_no_opinion(void **state)
{
    (void)state;
    struct e2e t;
    static const char *const nothing[] = {NULL};
    pid_t pid = start(&t, POLICY("return nil"));
    finish(&t, pid, nothing, "completed", true);
}

static void test_error(void **state)
{
    (void)state;
    struct e2e t;
    static const char *const says[] = {"\"code\":\"POLICY_ERROR\"", "\"line\":5", "policy.lua",
                                       "a request has no field 'nothing'", NULL};
    pid_t pid = start(&t, POLICY("return request.nothing.x"));
    finish(&t, pid, says, "completed", true);
}

static void test_endless(void **state)
{
    (void)state;
    struct e2e t;
    static const char *const says[] = {"\"code\":\"POLICY_ERROR\"", "\"line\":5", "policy.lua",
                                       "ran for more than", NULL};
    pid_t pid = start(&t, POLICY("while true do pcall(error) end"));
    finish(&t, pid, says, "completed", true);
}

/* Stopped before it is asked: the session's own clock ends the wait, and nothing is asked again. */
static void test_silent(void **state)
{
    (void)state;
    struct e2e t;
    static const char *const says[] = {"\"code\":\"TIMEOUT\"", "policy.lua", "\"line\":3",
                                       "did not answer in time", NULL};
    pid_t pid = start(&t, POLICY("return nil"));
    assert_int_equal(kill(policy_process(pid), SIGSTOP), 0);
    finish(&t, pid, says, "completed", false);
}

/* Killed with a question open. */
static void test_killed(void **state)
{
    (void)state;
    struct e2e t;
    static const char *const says[] = {"\"code\":\"PROGRAM_DIED\"", "policy.lua", "\"line\":3",
                                       "ended before it answered", NULL};
    pid_t pid = start(&t, POLICY("return nil"));
    pid_t victim = policy_process(pid);
    assert_int_equal(kill(victim, SIGSTOP), 0);
    for (int i = 0; i < 3000 && e2e_find(pid, "sleep", 0); i++)
        usleep(10000);
    usleep(3000000); /* of the five seconds in which it may answer */
    assert_int_equal(kill(victim, SIGKILL), 0);
    finish(&t, pid, says, "failed", false);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_opinion), cmocka_unit_test(test_error),
        cmocka_unit_test(test_endless),    cmocka_unit_test(test_silent),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
