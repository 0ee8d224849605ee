/*
 * The question that the checks of a policy get: exactly these members, whole or not at all.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "script/question.h"

static const char *put(struct br_buf *b, const struct br_question *q, int expected)
{
    br_buf_reset(b);
    assert_int_equal(br_question_put(b, q), expected);
    return expected == 0 ? br_buf_cstr(b) : NULL;
}

static void test_members(void **state)
{
    (void)state;
    static const char *const words[] = {"git", "a \"b\"\n"}, *const env[] = {"A=\xc3\xa4", "B"};
    static const struct br_context nothing = {.tool = NULL};
    static const struct br_context all = {
        .tool = "process_exec",
        .model = "m",
        .has_env = true,
        .env = env,
        .nenv = 2,
        .has_time = true,
        .unix_time = -5,
        .has_local = true,
        .local_offset = -90,
        .counters = {{true, 1, 2}, {false, 0, 0}, {true, 3, 1ull << 40}}};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    struct br_question q = {
        .action = "own.x", .call_id = "c", .effect = BR_EFFECT_ASK, .context = &nothing};
    assert_string_equal(put(&b, &q, 0),
                        "{\"action\":\"own.x\",\"callId\":\"c\",\"effect\":\"ask\",\"budget\":{}}");
    q = (struct br_question){.action = "process.exec",
                             .subject = "git 'a'",
                             .call_id = "c",
                             .effect = BR_EFFECT_ALLOW,
                             .manifest = "deny",
                             .words = words,
                             .nwords = 2,
                             .context = &all};
    assert_string_equal(
        put(&b, &q, 0),
        "{\"action\":\"process.exec\",\"subject\":\"git "
        "'a'\",\"callId\":\"c\",\"effect\":\"allow\","
        "\"manifest\":\"deny\",\"argv\":[\"git\",\"a \\\"b\\\"\\n\"],\"tool\":\"process_exec\","
        "\"model\":\"m\",\"env\":[\"A=\xc3\xa4\",\"B\"],\"time\":-5,\"zone\":-90,\"budget\":{"
        "\"calls\":{\"used\":1,\"left\":2},\"asks\":{\"used\":3,\"left\":1099511627776}}}");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const odd[] = {"git", "\xff"};
    static const struct br_context env = {.has_env = true, .env = odd, .nenv = 2};
    static const struct br_context nothing = {.tool = NULL};
    const struct br_question good = {.action = "a",
                                     .subject = "s",
                                     .call_id = "c",
                                     .effect = BR_EFFECT_ASK,
                                     .context = &nothing};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    assert_non_null(put(&b, &good, 0));
    size_t len = b.len;
    struct br_question q = good;
    q.subject = "\xc3";
    put(&b, &q, -BR_E_INVALID_JSON);
    q = good;
    q.words = odd;
    q.nwords = 2;
    put(&b, &q, -BR_E_INVALID_JSON);
    q = good;
    q.context = &env;
    put(&b, &q, -BR_E_INVALID_JSON);
    for (unsigned over = 0; over < 2; over++) {
        BR_CLEANUP_BUF struct br_buf small = BR_BUF_INIT(len - over);
        put(&small, &good, over ? -BR_E_LIMIT_EXCEEDED : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
