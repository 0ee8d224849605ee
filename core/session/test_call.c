/*
 * Tool calls as a model may write them: what cannot be used is noted for the model, and what is
 * recorded and sent back is always a JSON object and a name that can be shown.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "session/test_rig.h"

static void read_as(struct call *c, const char *name, const char *arguments)
{
    struct br_err err = {.code = BR_OK};
    *c = (struct call){.id = "c1"};
    assert_int_equal(session_call_read(c, name, arguments, &err), 0);
    json_t *v = json_loads(c->arguments, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(v));
    assert_true(!json_object_get(v, "unparsed") == (c->bad.code == BR_OK));
    json_decref(v);
    assert_true(c->name[0] && br_utf8_valid(c->name, strlen(c->name)));
}

static char *filled(const char *before, char c, size_t n, const char *after)
{
    size_t b = strlen(before), a = strlen(after);
    char *text = malloc(b + n + a + 1);
    assert_non_null(text);
    memcpy(text, before, b);
    memset(text + b, c, n);
    memcpy(text + b + n, after, a + 1);
    return text;
}

static void test_arguments(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *said;
    } rows[] = {
        {"{}", 0, NULL},
        {" {\"a\":1} ", 0, NULL},
        {"", 0, NULL},
        {" ", BR_E_INVALID_ARGUMENTS, "the arguments"},
        {"{", BR_E_INVALID_ARGUMENTS, "the arguments"},
        {"{\"a\":}", BR_E_INVALID_ARGUMENTS, "not a valid JSON object"},
        {"{\"path\":\"a\",\"path\":\"b\"}", BR_E_INVALID_ARGUMENTS, "duplicate"},
        {"[]", BR_E_INVALID_ARGUMENTS, "a list"},
        {"null", BR_E_INVALID_ARGUMENTS, "not a valid JSON object"},
        {"\"x\"", BR_E_INVALID_ARGUMENTS, "not a valid JSON object"},
        {"{}{}", BR_E_INVALID_ARGUMENTS, "the arguments"},
        {"{\"a\":\"\\u0000\"}", BR_E_INVALID_ARGUMENTS, "the arguments"},
        {"{\"a\":\"\\ud800\"}", BR_E_INVALID_ARGUMENTS, "the arguments"},
        {"{\"a\":1e999}", BR_E_INVALID_ARGUMENTS, "the arguments"},
        {"{\"a\":\"\001\"}", BR_E_INVALID_ARGUMENTS, "the arguments"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct call c;
        read_as(&c, "fs_list", rows[i].text);
        if ((int)c.bad.code != rows[i].code || (rows[i].said && !strstr(c.bad.text, rows[i].said)))
            fail_msg("%s: %d '%s'", rows[i].text, c.bad.code, c.bad.text);
        free(c.arguments);
    }
}

static void test_limits(void **state)
{
    (void)state;
    for (size_t more = 0; more <= 1; more++) {
        struct call c;
        char *text = filled("{\"a\":\"", 'x', BR_TOOL_JSON_MAX - 8 + more, "\"}");
        read_as(&c, "fs_list", text);
        assert_int_equal(c.bad.code, more ? BR_E_LIMIT_EXCEEDED : 0);
        assert_true(!more || strlen(c.arguments) < 2200); /* not all of it goes around */
        free(c.arguments);
        free(text);

        /* the object itself is one level */
        char *deep = filled("{\"a\":", '[', BR_JSON_DEPTH_MAX - 1 + more, "");
        char *both = filled(deep, ']', BR_JSON_DEPTH_MAX - 1 + more, "}");
        read_as(&c, "fs_list", both);
        assert_int_equal(c.bad.code, more ? BR_E_INVALID_ARGUMENTS : 0);
        free(c.arguments);
        free(deep);
        free(both);
    }
    /* short in the model's spelling, too long in that of the record */
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_TOOL_JSON_MAX);
    struct call c;
    br_buf_printf(&b, "{\"pad\":\"%0*d\",\"a\":[1", (int)BR_TOOL_JSON_MAX - 9000 * 5 - 100, 0);
    for (int i = 0; i < 9000; i++)
        br_buf_printf(&b, ",1e-5");
    br_buf_printf(&b, "]}");
    read_as(&c, "fs_list", br_buf_cstr(&b));
    assert_int_equal(c.bad.code, BR_E_LIMIT_EXCEEDED);
    free(c.arguments);
}

static void test_unparsed_is_cut_at_a_character(void **state)
{
    struct call c;
    (void)state;
    char *text = filled("{", 'x', 2046, "\xc3\xa4 and more");
    read_as(&c, "fs_list", text);
    json_t *v = json_loads(c.arguments, 0, NULL);
    assert_int_equal(json_string_length(json_object_get(v, "unparsed")), 2047);
    json_decref(v);
    free(c.arguments);
    free(text);
}

static void test_names(void **state)
{
    static const struct {
        const char *name, *shown;
    } rows[] = {
        {"fs_write", "fs_write"},          {"", "(no name)"},
        {"fs\n_write", "fs\\n_write"},     {"fs_write\033[2J", "fs_write\\x1b[2J"},
        {"fs_write\177", "fs_write\\x7f"},
    };
    (void)state;
    struct call c;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct effect e;
        struct br_err err;
        read_as(&c, rows[i].name, "{\"path\":\"a\",\"content\":\"b\"}");
        assert_string_equal(c.name, rows[i].shown);
        json_t *args = json_loads(c.arguments, 0, NULL);
        assert_int_equal(tools_resolve(c.name, args, &e, &err), i ? -BR_E_UNKNOWN_TOOL : 0);
        effect_free(&e);
        json_decref(args);
        free(c.arguments);
    }
    for (size_t n = 255; n <= 257; n++) {
        char *name = filled("", 'n', n, "");
        read_as(&c, name, "{}");
        assert_true((strcmp(c.name, name) == 0) == (n == 255));
        assert_true(strlen(c.name) < sizeof(c.name));
        free(c.arguments);
        free(name);
    }
}

/* Each is answered to the model, recorded as a failed call, and decided by nobody. */
static void test_bad_calls_are_answered(void **state)
{
    static const struct {
        const char *name, *arguments, *code;
    } rows[] = {
        {"fs_write", "{\"path\":", "INVALID_ARGUMENTS"},
        {"fs_write\001", "{}", "UNKNOWN_TOOL"},
        {"fs_write",
         "{\"path\":\"../\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\",\"content\":\"x\"}",
         "INVALID_ARGUMENTS"},
        {"fs_list",
         "{\"x\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\":1}",
         "INVALID_ARGUMENTS"},
    };
    struct session_rig_options o = {.mode = BR_RUN_AGENT};
    struct session_rig r;
    (void)state;
    session_rig_open(&r, &o);
    session_rig_load(&r, &o);
    r.s.budget.calls_max = 2 + BR_ARRAY_LEN(rows);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct call c;
        BR_CLEANUP_FREE char *answer = NULL;
        read_as(&c, rows[i].name, rows[i].arguments);
        assert_int_equal(session_call(&r.s, &c, &answer), 0);
        assert_non_null(answer);
        if (strncmp(answer, "{\"ok\":false", 11) != 0 || !strstr(answer, rows[i].code))
            fail_msg("%s", answer);
        free(c.arguments);
    }
    assert_int_equal(r.s.budget.calls, BR_ARRAY_LEN(rows));
    assert_string_equal(r.seen->types, "tool.call\ntool.result\ntool.call\ntool.result\n"
                                       "tool.call\ntool.result\ntool.call\ntool.result\n");
    session_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_unparsed_is_cut_at_a_character),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bad_calls_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
