/*
 * The YAML reader alone: what scalars become, the lines it keeps, and its limits at N and N + 1.
 * What it refuses is tested through the manifest in test_script_compile.c.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "script/script.h"

static int parse(const char *text, char *json, size_t cap, struct br_err *err, unsigned *line)
{
    json_t *tree, *marks;
    int r = br_yaml_parse(text, strlen(text), &tree, &marks, line, err);
    if (r < 0)
        return r;
    char *s = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    snprintf(json, cap, "%s", s);
    free(s);
    json_decref(tree);
    json_decref(marks);
    return 0;
}

static void test_scalars(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } list[] = {
        {"[1, -2, +3, 007]", "[1,-2,3,7]"},
        {"[0x10, 0o7, 1.5, 1e3, .inf, 1_000]",
         "[\"0x10\",\"0o7\",\"1.5\",\"1e3\",\".inf\",\"1_000\"]"},
        {"[9999999999999999999]", "[\"9999999999999999999\"]"},
        {"[true, True, FALSE, yes, no, on, off, y]",
         "[true,true,false,\"yes\",\"no\",\"on\",\"off\",\"y\"]"},
        {"[null, ~, Null, nil]", "[null,null,null,\"nil\"]"},
        {"{a: , b: ''}", "{\"a\":null,\"b\":\"\"}"},
        {"['1', \"true\", 'null']", "[\"1\",\"true\",\"null\"]"},
        {"- 2026-01-01\n- 1:30\n- a b\n", "[\"2026-01-01\",\"1:30\",\"a b\"]"},
        {"a: |\n  x\n  y\nb: >-\n  x\n  y\n", "{\"a\":\"x\\ny\\n\",\"b\":\"x y\"}"},
        {"1: a\ntrue: b\n", "{\"1\":\"a\",\"true\":\"b\"}"},
        {"a: 'it''s'\nb: \"\\u263a\\n\"\n", "{\"a\":\"it's\",\"b\":\"\xe2\x98\xba\\n\"}"},
        {"--- \na: 1\n...\n", "{\"a\":1}"},
        {"'<<': 1\n", "{\"<<\":1}"},
        {"\xef\xbb\xbf"
         "a: 1\nb: 2\n",
         "{\"a\":1,\"b\":2}"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        char got[512];
        unsigned line;
        struct br_err err = {.code = BR_OK};
        int r = parse(list[i].yaml, got, sizeof(got), &err, &line);
        if ((r == 0) != (list[i].json != NULL))
            fail_msg("%s: %s", list[i].yaml, err.text);
        if (r == 0)
            assert_string_equal(got, list[i].json);
    }
}

static void test_marks(void **state)
{
    (void)state;
    static const char text[] = "a:\n  - x\n  - b c: 1\n    d-e: {f: 2}\n";
    json_t *tree, *marks;
    unsigned line;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_yaml_parse(text, strlen(text), &tree, &marks, &line, &err), 0);
    static const struct {
        const char *path;
        int line;
    } list[] = {{"", 1},         {"a", 2},         {"a[1]", 2}, {"a[2]", 3}, {"a[2]['b c']", 3},
                {"a[2].d-e", 4}, {"a[2].d-e.f", 4}};
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++)
        assert_int_equal(json_integer_value(json_object_get(marks, list[i].path)), list[i].line);
    assert_int_equal(json_object_size(marks), BR_ARRAY_LEN(list));
    json_decref(tree);
    json_decref(marks);
}

static void check(const struct br_buf *b, bool good, const char *says)
{
    json_t *tree, *marks;
    unsigned line;
    struct br_err err = {.code = BR_OK};
    int r = br_yaml_parse(b->data, b->len, &tree, &marks, &line, &err);
    if ((r == 0) != good || (!good && !strstr(err.text, says)))
        fail_msg("%s: %d %s", says, r, err.text);
    if (r == 0) {
        json_decref(tree);
        json_decref(marks);
    }
}

static void test_limits(void **state)
{
    (void)state;
    for (unsigned extra = 0; extra < 2; extra++) {
        BR_CLEANUP_BUF struct br_buf deep = BR_BUF_INIT(1 << 20), wide = BR_BUF_INIT(1 << 20),
                                     key = BR_BUF_INIT(1 << 20);
        for (unsigned i = 0; i < 16 + extra; i++)
            br_buf_put_u8(&deep, '[');
        for (unsigned i = 0; i < 16 + extra; i++)
            br_buf_put_u8(&deep, ']');
        check(&deep, !extra, "nested too deeply");
        for (unsigned i = 0; i < 4095 + extra; i++) /* the list itself counts */
            br_buf_printf(&wide, "- x\n");
        check(&wide, !extra, "too many values");
        for (unsigned i = 0; i < 1000 + 100 * extra; i++)
            br_buf_put_u8(&key, 'k');
        br_buf_printf(&key, "%s: 1\n", extra ? "k" : "");
        check(&key, !extra, extra ? "" : "key");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
