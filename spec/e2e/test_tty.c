/*
 * What a person at a terminal sees and does: the demo answered with y and with n, and Ctrl-C at a
 * question and while a command runs.
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

#define ASK "r for this run; only these do (120 s): "

static const char waiting[] =
    "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},\"tool_calls\":[{"
    "\"name\":"
    "\"process_exec\",\"arguments\":{\"argv\":[\"sleep\",\"60\"]}}]},{\"text\":\"The end.\"}]}";

static const char allow_exec[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"test\", rules = {\n"
    "  policy.allow { id = \"exec\", action = \"process.exec\" },\n} }\n";

static const char ask_exec[] = "local policy = require \"bridle.policy\"\n"
                               "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                               "  policy.ask { id = \"exec\", action = \"process.exec\" },\n} }\n";

#define ALL "e one by one; only these do (120 s): "
#define CALLS                                                                                      \
    "{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"touch\",\"src/a\"]}},{\"name\":"        \
    "\"process_exec\",\"arguments\":{\"argv\":[\"rm\",\"src/x\"]}},{\"name\":\"process_exec\","    \
    "\"arguments\":{\"argv\":[\"touch\",\"src/b\"]}}"

static unsigned count(const struct br_buf *b, const char *what)
{
    unsigned n = 0;
    for (const char *p = (const char *)b->data; p && (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static void expect(const struct e2e_result *r, int status, const char *said)
{
    if (r->status != status || !count(&r->out, said))
        fail_msg("status %d, not %d; expected '%s' in:\n%s\n%s", r->status, status, said,
                 (char *)r->out.data, (char *)r->err.data);
}

static char *bridle_path(void)
{
    static char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridle", e2e_bin());
    return path;
}

/* At a terminal matchers are cut, but never what names a rule or where it is. */
static void test_why(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "30", "--", bridle_path(), "policy", "why",
            "process.exec", "git", "push", "origin", NULL);
    expect(&r, 0, "  by operator:no-push (operator): ");
    expect(&r, 0, "process.exec git push origin");
    expect(&r, 0, "  operator:no-push  policy/denials.lua:");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_demo_allowed(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, "send:y", "-e", ASK, "send:yes",
            "-e", ASK, "send:Y", "--", bridle_path(), "demo", NULL);
    expect(&r, 0, "completed");
    expect(&r, 0, "scripted");
    expect(&r, 0, "seconds % 3600 // 60"); /* the difference that was made */
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
    assert_int_equal(count(&r.out, "\"decision\":\"allow\""), 3);
    assert_int_equal(count(&r.out, "\"actor\":\"operator\""), 3);
    assert_int_equal(count(&r.out, "\"path\":\"src/duration.lua\",\"change\":\"modified\""), 1);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_demo_denied(void **state)
{
    (void)state;
    static const char *const answers[] = {"send:n", "send:", "send:maybe", "eof"};
    for (size_t i = 0; i < BR_ARRAY_LEN(answers); i++) {
        struct e2e t;
        struct e2e_result r;
        e2e_open(&t, 0);
        e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, answers[i], "--", bridle_path(),
                "demo", NULL);
        expect(&r, 0, "Nothing was changed");
        e2e_result_free(&r);
        e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
        assert_int_equal(count(&r.out, "\"decision\":\"deny\""), 1);
        assert_int_equal(count(&r.out, "\"decision\":\"allow\""), 0);
        assert_int_equal(count(&r.out, "\"changed\":[]"), 1);
        e2e_result_free(&r);
        e2e_expect_clean(&t);
        e2e_close(&t);
    }
}

static void interrupt(const char *policy, const char *until)
{
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/a.txt", "a\n");
    e2e_write(&t, "scenario.json", waiting);
    e2e_write(&t, "policy.lua", policy);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "30", "-e", until, "int", "--", bridle_path(), "run",
            "-C", "workspace", "-p", "policy.lua", "--scenario", "scenario.json", "wait", NULL);
    expect(&r, 1, "canceled");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
    expect(&r, 0, "\"type\":\"session.created\"");
    assert_int_equal(count(&r.out, "\"type\":\"permission.requested\""),
                     count(&r.out, "\"type\":\"permission.resolved\""));
    assert_int_equal(count(&r.out, "\"type\":\"tool.result\""), 1);
    assert_int_equal(count(&r.out, "\"type\":\"sandbox.stopped\""), 1);
    assert_int_equal(count(&r.out, "\"agentId\":\"bridle-agent\",\"status\":\"canceled\""), 1);
    e2e_result_free(&r);
    e2e_close(&t);
}

static void test_interrupt_at_a_question(void **state)
{
    (void)state;
    interrupt(ask_exec, ASK);
}

static void test_interrupt_while_running(void **state)
{
    (void)state;
    interrupt(allow_exec, "sleep 60");
}

/* Two turns with the same two commands, and one that is denied. */
static const char twice[] =
    "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},\"tool_calls\":[" CALLS
    "]},{\"when\":{\"assistant_messages\":1},\"tool_calls\":[" CALLS
    "]},{\"when\":{\"assistant_messages\":2},\"tool_calls\":[{\"name\":\"process_exec\","
    "\"arguments\":{"
    "\"argv\":[\"touch\",\"src/a\",\"src/c\"]}}]},{\"text\":\"The end.\"}]}";

static const char asking[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"test\", rules = {\n"
    "  policy.otherwise { id = \"exec\", action = \"process.exec\" },\n"
    "  policy.deny { id = \"no-rm\", action = \"process.exec\", command = \"rm *\" },\n"
    "  policy.allow { id = \"ls\", action = \"process.exec\", command = \"ls\" },\n} }\n";

/* Answered for the run, together: nothing of it is asked again in that run, a word more is, and so
 * is all of it in the next run. */
static void test_for_the_run(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/x", "x\n");
    e2e_write(&t, "scenario.json", twice);
    e2e_write(&t, "policy.lua", asking);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "30", "-e", ALL, "send:r", "-e", ASK, "send:n", "--",
            bridle_path(), "run", "-C", "workspace", "-p", "policy.lua", "--scenario",
            "scenario.json", "go", NULL);
    expect(&r, 0, "2 permissions wanted in this turn:");
    expect(&r, 0, "policy.allow { id = \"allow-touch-src\", action = \"process.exec\",");
    expect(&r, 0, "allowed before, for the rest of this run");
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/src/a", "");
    e2e_expect_file(&t, "workspace/src/b", "");
    e2e_expect_file(&t, "workspace/src/c", NULL);
    e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
    assert_int_equal(count(&r.out, "\"type\":\"permission.requested\""), 3);
    assert_int_equal(count(&r.out, "\"type\":\"permission.resolved\""), 3);
    assert_int_equal(count(&r.out, "\"type\":\"bridle.asks\""), 2);
    assert_int_equal(count(&r.out, "\"type\":\"bridle.grant\""), 2);
    assert_int_equal(count(&r.out, "\"grant\":\"perm_"), 2);
    assert_int_equal(count(&r.out, "\"type\":\"tool.result\""), 7);
    /* the model is told, and the record says, what is allowed instead */
    assert_int_equal(count(&r.out, "\"rule\":\"operator:no-rm\",\"source\":\"operator\","
                                   "\"allowed\":[\"ls\"]"),
                     2);
    e2e_result_free(&r);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "30", "-e", ALL, "send:n", "-e", ALL, "send:n", "-e",
            ASK, "eof", "--", bridle_path(), "run", "-C", "workspace", "-p", "policy.lua",
            "--scenario", "scenario.json", "go", NULL);
    expect(&r, 0, "2 permissions wanted in this turn:");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* The session dies while two questions are open: nothing happens, and each has its end. */
static void test_session_dies_at_questions(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/x", "x\n");
    e2e_write(&t, "scenario.json", twice);
    e2e_write(&t, "policy.lua", asking);
    const char *const argv[] = {
        "../tests/ptydrive", "-t",  "30", "-e",        ALL,  "run:touch asking", "--",
        bridle_path(),       "run", "-C", "workspace", "-p", "policy.lua",       "--scenario",
        "scenario.json",     "go",  NULL};
    pid_t pid = e2e_spawn(&t, (char *const *)argv, NULL);
    char *asking_now = NULL;
    for (unsigned i = 0; i < 1000 && !asking_now; i++) {
        usleep(20000);
        asking_now = e2e_read(&t, "asking");
    }
    assert_non_null(asking_now);
    free(asking_now);
    pid_t session = e2e_find(pid, "bridle-session", 0);
    assert_true(session > 0);
    assert_int_equal(kill(session, SIGKILL), 0);
    e2e_wait(&t, pid, 30, &r);
    expect(&r, 1, "PROGRAM_DIED");
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/src/a", NULL);
    e2e_expect_file(&t, "workspace/src/b", NULL);
    e2e_run(&t, &r, "bridle", "show", "last", "--json", NULL);
    assert_int_equal(count(&r.out, "\"type\":\"permission.requested\""), 2);
    assert_int_equal(count(&r.out, "\"type\":\"permission.resolved\""), 2);
    assert_int_equal(count(&r.out, "\"decision\":\"deny\""), 2);
    assert_int_equal(count(&r.out, "\"type\":\"tool.result\""), 3);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_why),
        cmocka_unit_test(test_demo_allowed),
        cmocka_unit_test(test_demo_denied),
        cmocka_unit_test(test_interrupt_at_a_question),
        cmocka_unit_test(test_interrupt_while_running),
        cmocka_unit_test(test_for_the_run),
        cmocka_unit_test(test_session_dies_at_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
