/*
 * What a model may put into a tool call: every argument at its limit and one beyond, every wrong
 * type, unknown keys, and the one spelling of a path.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

struct row {
    const char *tool, *args;
    int code;            /* 0 or a positive code */
    const char *subject; /* of the effect, when code is 0 */
};

static const struct row rows[] = {
    {"fs_read", "{\"path\":\"a/b.txt\"}", 0, "a/b.txt"},
    {"fs_read", "{\"path\":\"./a//b.txt\"}", 0, "a/b.txt"},
    {"fs_read", "{\"path\":\"/workspace/a.txt\"}", 0, "a.txt"},
    {"fs_read", "{\"path\":\"a/../b\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"/etc/passwd\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"/workspaces/a\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"a\\nb\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\".\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":7}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "[]", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"a\",\"mode\":\"b\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"a\",\"limit\":131072}", 0, "a"},
    {"fs_read", "{\"path\":\"a\",\"limit\":131073}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"a\",\"offset\":-1}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_read", "{\"path\":\"a\",\"offset\":1.5}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_list", "{}", 0, "."},
    {"fs_list", "{\"path\":\"src\",\"recursive\":true}", 0, "src"},
    {"fs_list", "{\"recursive\":1}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_search", "{\"text\":\"x\"}", 0, "."},
    {"fs_search", "{\"path\":\"x\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_write", "{\"path\":\"a\",\"content\":\"\"}", 0, "a"},
    {"fs_write", "{\"path\":\"a\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_edit", "{\"path\":\"a\",\"old_text\":\"x\",\"new_text\":\"y\"}", 0, "a"},
    {"fs_edit", "{\"path\":\"a\",\"old_text\":\"x\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[\"ls\",\"a b\"]}", 0, "ls 'a b'"},
    {"process_exec", "{\"command\":\"ls | wc\"}", 0, "ls | wc"},
    {"process_exec", "{\"command\":\" \\n\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[]}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[\"\"]}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[1]}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[\"ls\"],\"command\":\"ls\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[\"ls\"],\"cwd\":\"../x\"}", BR_E_INVALID_ARGUMENTS, NULL},
    {"process_exec", "{\"argv\":[\"ls\"],\"timeout_seconds\":3600}", 0, "ls"},
    {"process_exec", "{\"argv\":[\"ls\"],\"timeout_seconds\":3601}", BR_E_INVALID_ARGUMENTS, NULL},
    {"fs_delete", "{\"path\":\"a\"}", BR_E_UNKNOWN_TOOL, NULL},
    {"", "{}", BR_E_UNKNOWN_TOOL, NULL},
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct effect e;
        struct br_err err = {.code = BR_OK};
        json_t *args = json_loads(rows[i].args, 0, NULL);
        assert_non_null(args);
        int r = tools_resolve(rows[i].tool, args, &e, &err);
        if (r != -rows[i].code)
            fail_msg("%s %s: %d (%s)", rows[i].tool, rows[i].args, r, err.text);
        if (r == 0)
            assert_string_equal(e.subject, rows[i].subject);
        else
            assert_true(err.text[0] != 0);
        effect_free(&e);
        json_decref(args);
    }
}

static int try_words(size_t n)
{
    struct effect e;
    struct br_err err;
    json_t *argv = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(argv, json_string("x"));
    json_t *args = json_pack("{s:o}", "argv", argv);
    int r = tools_resolve("process_exec", args, &e, &err);
    effect_free(&e);
    json_decref(args);
    return r;
}

static int try_content(size_t n)
{
    struct effect e;
    struct br_err err;
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    json_t *args = json_pack("{s:s, s:s}", "path", "a", "content", text);
    int r = tools_resolve("fs_write", args, &e, &err);
    effect_free(&e);
    json_decref(args);
    free(text);
    return r;
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(try_words(BR_EXEC_ARGS_MAX), 0);
    assert_int_equal(try_words(BR_EXEC_ARGS_MAX + 1), -BR_E_INVALID_ARGUMENTS);
    assert_int_equal(try_content(BR_TOOL_JSON_MAX), 0);
    assert_int_equal(try_content(BR_TOOL_JSON_MAX + 1), -BR_E_INVALID_ARGUMENTS);
}

static void test_description_matches_check(void **state)
{
    (void)state;
    json_t *list = tools_describe(), *tool;
    size_t i;
    assert_int_equal(json_array_size(list), 6);
    json_array_foreach(list, i, tool)
    {
        json_t *schema = json_object_get(tool, "schema");
        assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
        assert_true(json_object_size(json_object_get(schema, "properties")) > 0);
    }
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_description_matches_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
