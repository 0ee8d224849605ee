/*
 * The policy's process fails, gives no usable answer, hangs or dies while it is asked: the call is
 * denied, the record says so with file and line, and the run goes on, or ends for that reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json_memory.h"
#include "session/test_rig.h"

static const char table[] =
    "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"test\"}],\"rules\":["
    "{\"id\":\"all\",\"source\":0,\"action\":\"*\",\"match\":\"any\",\"pattern\":\"\","
    "\"effect\":\"allow\"}],\"fallbacks\":[],\"predicates\":true}";

static void open_rig(struct session_rig *r, enum session_rig_predicate how)
{
    static struct session_rig_options o; /* the peers read it */
    o = (struct session_rig_options){.mode = BR_RUN_EXEC, .table = table, .predicate = how};
    session_rig_open(r, &o);
    session_rig_load(r, &o);
    snprintf(r->s.policy_path, sizeof(r->s.policy_path), "/home/op/policy.lua");
    snprintf(r->s.check_file, sizeof(r->s.check_file), "policy.lua");
    r->s.check_line = 3;
}

/* Decide `PROGRAM x`; the sentence of a denial is in err. */
static enum br_effect decide(struct session_rig *r, const char *program, struct br_err *err)
{
    struct effect e;
    enum br_effect got = BR_EFFECT_NONE;
    json_t *args = json_pack("{s:[s,s]}", "argv", program, "x");
    *err = (struct br_err){.code = BR_OK};
    assert_int_equal(tools_resolve("process_exec", args, &e, err), 0);
    int code = session_rig_authorize(r, &e, &got, err);
    assert_true((code == 0) == (got == BR_EFFECT_ALLOW));
    effect_free(&e);
    json_decref(args);
    return got;
}

static void expect_error(struct session_rig *r, const char *const parts[4])
{
    for (size_t i = 0; i < 4 && parts[i]; i++)
        if (!strstr(r->seen->errors, parts[i]))
            fail_msg("'%s' is not in: %s", parts[i], r->seen->errors);
    const char *nl = strchr(r->seen->errors, '\n');
    assert_true(nl && !nl[1]); /* one */
}

static void count(struct session_rig *r, const char *type, unsigned want)
{
    unsigned n = 0;
    for (const char *p = r->seen->types; (p = strstr(p, type)); p += strlen(type))
        n++;
    assert_int_equal(n, want);
}

/* Positive control. */
static void test_answers(void **state)
{
    struct session_rig r;
    struct br_err err;
    (void)state;
    open_rig(&r, PREDICATE_ANSWERS);
    assert_int_equal(decide(&r, "bad", &err), BR_EFFECT_ALLOW);
    assert_int_equal(r.seen->asked, 1);
    assert_string_equal(r.seen->errors, "");
    session_rig_close(&r);
}

static void denied_and_goes_on(enum session_rig_predicate how, const char *const parts[4])
{
    struct session_rig r;
    struct br_err err;
    open_rig(&r, how);
    assert_int_equal(decide(&r, "bad", &err), BR_EFFECT_DENY);
    assert_non_null(strstr(err.text, "policy-error"));
    assert_non_null(strstr(err.text, "policy.lua"));
    expect_error(&r, parts);
    count(&r, "bridle.policy.error\npolicy.decision\nbridle.votes\n", 1);
    assert_int_equal(r.s.stop_code, 0);
    assert_int_equal(decide(&r, "good", &err), BR_EFFECT_ALLOW); /* it is still asked */
    assert_int_equal(r.seen->asked, 2);
    session_rig_close(&r);
}

static void test_fails(void **state)
{
    (void)state;
    static const char *const parts[4] = {"\"code\":\"POLICY_ERROR\"", "policy.lua:7: boo",
                                         "\"file\":\"policy.lua\"", "\"line\":7"};
    denied_and_goes_on(PREDICATE_FAILS, parts);
}

static void test_garbage(void **state)
{
    (void)state;
    static const char *const parts[4] = {"\"code\":\"POLICY_ERROR\"", "no usable answer",
                                         "\"file\":\"policy.lua\"", "\"line\":3"};
    denied_and_goes_on(PREDICATE_GARBAGE, parts);
}

/* Nothing is asked of it any more: what it may still say would be taken for another answer. */
static void test_silent(void **state)
{
    struct session_rig r;
    struct br_err err;
    (void)state;
    static const char *const parts[4] = {"\"code\":\"TIMEOUT\"", "did not answer in time",
                                         "\"file\":\"policy.lua\"", "\"line\":3"};
    open_rig(&r, PREDICATE_SILENT);
    assert_int_equal(decide(&r, "bad", &err), BR_EFFECT_DENY);
    expect_error(&r, parts);
    assert_int_equal(r.s.stop_code, 0);
    assert_int_equal(decide(&r, "good", &err), BR_EFFECT_DENY);
    assert_non_null(strstr(err.text, "not asked any more"));
    assert_int_equal(r.seen->asked, 1);
    count(&r, "bridle.policy.error\npolicy.decision\n", 2);
    session_rig_close(&r);
}

static void test_dies(void **state)
{
    struct session_rig r;
    struct br_err err;
    (void)state;
    static const char *const parts[4] = {"\"code\":\"PROGRAM_DIED\"", "ended before it answered",
                                         "\"file\":\"policy.lua\"", "\"line\":3"};
    open_rig(&r, PREDICATE_DIES);
    assert_int_equal(decide(&r, "bad", &err), BR_EFFECT_DENY);
    expect_error(&r, parts);
    count(&r, "bridle.policy.error\npolicy.decision\n", 1);
    assert_int_equal(r.s.stop_code, -BR_E_PROGRAM_DIED); /* the run ends */
    assert_int_equal(decide(&r, "good", &err), BR_EFFECT_DENY);
    session_rig_close(&r);
}

/* Without memory for JSON a program ends: jansson would go on with another text. */
static void test_no_memory_for_json(void **state)
{
    (void)state;
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        volatile size_t n = PTRDIFF_MAX;
        void *p = br_json_malloc(n);
        _exit(p ? 42 : 43);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) >= 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers), cmocka_unit_test(test_fails),
        cmocka_unit_test(test_garbage), cmocka_unit_test(test_silent),
        cmocka_unit_test(test_dies),    cmocka_unit_test(test_no_memory_for_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
