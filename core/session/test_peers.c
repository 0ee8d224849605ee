/*
 * Peers that say what nobody asked them: the session ends with a typed error, and neither touches
 * what it no longer has nor takes an answer that it did not wait for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "session/test_rig.h"

#define TABLE(kind, pattern, effect)                                                               \
    "{\"v\":2,\"sources\":[{\"kind\":\"" kind "\",\"name\":\"test\"}],\"rules\":["                 \
    "{\"id\":\"git\",\"source\":0,\"action\":\"fs.write\",\"match\":\"path\",\"pattern\":"         \
    "\"" pattern "\",\"effect\":\"" effect "\"}],\"fallbacks\":[],\"predicates\":false}"

static void exec_with(const struct session_rig_options *o, struct session_rig *r,
                      struct outcome *out)
{
    *out = (struct outcome){.code = 0};
    session_rig_open(r, o);
    session_run_exec(&r->s, out);
}

/* Positive control: with peers that behave, the run gets as far as the launcher that refuses. */
static void test_good_peers(void **state)
{
    struct session_rig r;
    struct outcome out;
    (void)state;
    exec_with(&(struct session_rig_options){.mode = BR_RUN_EXEC, .warnings = 3}, &r, &out);
    assert_int_equal(out.code, BR_E_REQUIREMENT_MISSING);
    const char *last =
        strstr(r.seen->types, "bridle.run\nbridle.table\nbridle.notice\nbridle.notice\n"
                              "bridle.notice\nagent.started\n");
    assert_non_null(last);
    session_rig_close(&r);
}

static void test_unasked_answer_of_the_script(void **state)
{
    struct session_rig r;
    struct outcome out;
    (void)state;
    exec_with(
        &(struct session_rig_options){.mode = BR_RUN_EXEC, .warnings = 3, .compiled_again = true},
        &r, &out);
    assert_int_equal(out.code, BR_E_PEER_PROTOCOL);
    assert_non_null(strstr(out.text, "COMPILED"));
    assert_non_null(strstr(r.seen->types, "agent.stopped"));
    assert_string_equal(r.seen->launched, "");
    session_rig_close(&r);
}

static void test_answer_before_any_ask(void **state)
{
    struct session_rig r;
    struct outcome out;
    (void)state;
    exec_with(&(struct session_rig_options){.mode = BR_RUN_EXEC, .answer_at_start = true}, &r,
              &out);
    assert_int_equal(out.code, BR_E_PEER_PROTOCOL);
    assert_non_null(strstr(out.text, "ANSWER"));
    assert_string_equal(r.seen->launched, "");
    session_rig_close(&r);
}

/* What a client does not read is dropped; the session does not wait for it. */
static void test_client_that_does_not_read(void **state)
{
    struct session_rig r;
    struct outcome out;
    (void)state;
    exec_with(&(struct session_rig_options){.mode = BR_RUN_EXEC, .answer_flood = true}, &r, &out);
    assert_int_equal(out.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.seen->types, "agent.stopped"));
    session_rig_close(&r);
}

/* A validation never has a ledger. */
static void test_answer_to_a_validation(void **state)
{
    struct session_rig r;
    struct outcome out = {.code = 0};
    (void)state;
    session_rig_open(
        &r, &(struct session_rig_options){.mode = BR_RUN_VALIDATE, .answer_at_start = true});
    session_run_validate(&r.s, &out);
    assert_int_equal(out.code, BR_E_PEER_PROTOCOL);
    session_rig_close(&r);
}

/* Questions about the policy are for their mode alone, and there not before the table was sent. */
static void test_questions_where_none_belong(void **state)
{
    struct session_rig r;
    struct outcome out = {.code = 0};
    (void)state;
    session_rig_open(&r,
                     &(struct session_rig_options){.mode = BR_RUN_POLICY, .ask_at_start = true});
    session_run_policy(&r.s, &out);
    assert_int_equal(out.code, BR_E_PEER_PROTOCOL);
    assert_non_null(strstr(out.text, "POLICY_ASK"));
    session_rig_close(&r);
    exec_with(&(struct session_rig_options){.mode = BR_RUN_EXEC, .ask_at_start = true}, &r, &out);
    assert_int_equal(out.code, BR_E_PEER_PROTOCOL);
    assert_non_null(strstr(out.text, "POLICY_ASK"));
    assert_string_equal(r.seen->launched, "");
    session_rig_close(&r);
}

/* What may not be written by a tool is not mounted writable for commands either; a manifest says
 * what it wants, the profile and the operator what it gets. */
static void test_denied_paths_stay_read_only(void **state)
{
    static const char *const tables[] = {
        TABLE("profile", ".git/**", "deny"),  TABLE("operator", ".git/**", "deny"),
        TABLE("operator", ".git/*", "deny"),  TABLE("operator", ".git/**", "ask"),
        TABLE("manifest", ".git/**", "deny"),
    };
    static const bool writable[] = {false, false, false, true, true};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(tables); i++) {
        struct session_rig r;
        struct outcome out;
        exec_with(&(struct session_rig_options){.mode = BR_RUN_EXEC, .table = tables[i]}, &r, &out);
        assert_int_equal(out.code, BR_E_REQUIREMENT_MISSING);
        assert_string_equal(r.seen->launched, writable[i] ? "src/**\n.git/**\n" : "src/**\n");
        assert_true(!strstr(r.seen->types, "bridle.notice\n") == writable[i]);
        session_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_peers),
        cmocka_unit_test(test_unasked_answer_of_the_script),
        cmocka_unit_test(test_answer_before_any_ask),
        cmocka_unit_test(test_client_that_does_not_read),
        cmocka_unit_test(test_answer_to_a_validation),
        cmocka_unit_test(test_questions_where_none_belong),
        cmocka_unit_test(test_denied_paths_stay_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
