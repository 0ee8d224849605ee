/*
 * Read-only views of data, and values for people, in a state of this process: what a view shows and
 * that nothing writes to it; every bound of the printer; nothing that a terminal acts on.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "script/script.h"

static const struct br_print_limits wide = {.depth = 8, .items = 50, .string = 100, .width = 76};

struct job {
    const char *code;
    const struct br_print_limits *limits;
    struct br_buf out;
};

static int print_top(lua_State *L)
{
    struct job *j = lua_touserdata(L, 1);
    br_script_print(L, 2, j->limits, &j->out);
    return 0;
}

/* What is printed for the value of `code`, in which `data` is a view; free j->out. */
static void run(struct job *j, size_t max)
{
    static const char json[] = "{\"a\":[1,2,{\"b\":\"x\"}],\"n\":null,\"s\":\"text\",\"e\":[]}";
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    struct br_err err = {.code = BR_OK};
    json_t *tree = NULL;
    assert_non_null(s);
    br_buf_init(&j->out, max);
    assert_int_equal(br_script_json_parse(json, sizeof(json) - 1, 100, &tree, NULL, &err), 0);
    int r = br_script_load(s, "t", j->code, strlen(j->code), BR_E_FAILED, &err);
    if (r == 0) {
        br_script_json_push(s->L, &tree);
        br_script_view_push(s->L, -1);
        lua_remove(s->L, -2);
        r = br_script_call(s, 1, 1, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err);
    }
    if (r < 0)
        fail_msg("%s: %s", j->code, err.text);
    lua_pushcfunction(s->L, print_top);
    lua_insert(s->L, -2);
    lua_pushlightuserdata(s->L, j);
    lua_insert(s->L, -2);
    if (br_script_call(s, 2, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) < 0)
        fail_msg("%s: %s", j->code, err.text);
    assert_int_equal(lua_gettop(s->L), 0);
    br_script_free(&s);
}

static void check_with(const struct br_print_limits *limits, const char *code, const char *want)
{
    struct job j = {.code = code, .limits = limits};
    run(&j, 1u << 20);
    if (strcmp(br_buf_cstr(&j.out), want) != 0)
        fail_msg("%s\nprints: %s\nnot:    %s", code, (char *)j.out.data, want);
    br_buf_free(&j.out);
}

static void check(const char *code, const char *want)
{
    check_with(&wide, code, want);
}

static void test_scalars(void **state)
{
    (void)state;
    check("return 1", "1");
    check("return -0.5", "-0.5");
    check("return 2.0", "2.0");
    check("return 1e100", "1e+100");
    check("return 1/0", "inf");
    check("return math.mininteger", "-9223372036854775808");
    check("return true", "true");
    check("return nil", "nil");
    check("return error", "function");
    check("return json.null", "null");
    check("return 'a\"b\\\\c\\n\\td'", "\"a\\\"b\\\\c\\n\\td\"");
}

static void test_nothing_acts_on_a_terminal(void **state)
{
    (void)state;
    check("return '\\27[31m\\r\\0\\127'", "\"\\x1b[31m\\x0d\\x00\\x7f\"");
    check("return '\\255\\254'", "\"\\xff\\xfe\"");
    check("return '\\u{202e}x\\u{200b}'", "\"\\u202ex\\u200b\"");
    check("return { ['\\27k'] = '\\155m' }", "{ [\"\\x1bk\"] = \"\\x9bm\" }");
    check("return '\\u{9b}'", "\"\\x9b\"");
    for (unsigned c = 0; c < 256; c++) {
        char code[64];
        snprintf(code, sizeof(code), "return { ['k\\%u'] = '\\%u' }", c, c);
        struct job j = {.code = code, .limits = &wide};
        run(&j, 4096);
        for (size_t i = 0; i < j.out.len; i++)
            if (j.out.data[i] < 0x20 || j.out.data[i] > 0x7e)
                fail_msg("byte %u comes out as byte %u", c, j.out.data[i]);
        br_buf_free(&j.out);
    }
}

static void test_tables(void **state)
{
    (void)state;
    check("return {}", "{}");
    check("return { 1, 2, { 3 } }", "{ 1, 2, { 3 } }");
    check("return { b = 1, a = 2, [10] = 3, [true] = 4, ['end'] = 5, ['x-y'] = 6 }",
          "{ [10] = 3, a = 2, b = 1, [\"end\"] = 5, [\"x-y\"] = 6, [true] = 4 }");
    check("local t = {} for i = 1, 12 do t['key' .. string.format('%02d', i)] = { i } end return t",
          "{\n  key01 = { 1 },\n  key02 = { 2 },\n  key03 = { 3 },\n  key04 = { 4 },\n"
          "  key05 = { 5 },\n  key06 = { 6 },\n  key07 = { 7 },\n  key08 = { 8 },\n"
          "  key09 = { 9 },\n  key10 = { 10 },\n  key11 = { 11 },\n  key12 = { 12 }\n}");
    check("local t = { ('x'):rep(60) } return { t, t }",
          "{\n  { \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" },\n"
          "  { \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" }\n}");
    /* nothing of the script's runs */
    check("return setmetatable({ 7 }, { __tostring = function() error('ran') end, __index = "
          "function() error('ran') end, __pairs = function() error('ran') end })",
          "{ 7 }");
}

static void test_bounds(void **state)
{
    (void)state;
    const struct br_print_limits small = {.depth = 2, .items = 3, .string = 10, .width = 76};
    check_with(&small, "return { 1, 2, 3 }", "{ 1, 2, 3 }");
    check_with(&small, "return { 1, 2, 3, 4 }", "{ 1, 2, 3, ... 1 more }");
    check_with(&small, "return { 1, 2, a = 1, b = 2, c = 3 }", "{ 1, 2, a = 1, ... 2 more }");
    check_with(&small, "return { { 1 } }", "{ { 1 } }");
    check_with(&small, "return { { { 1, 2 } } }", "{ { {... 2 inside} } }");
    check_with(&small, "return { { {} } }", "{ { {} } }");
    check_with(&small, "return ('x'):rep(10)", "\"xxxxxxxxxx\"");
    check_with(&small, "return ('x'):rep(11)", "\"xxxxxxxxxx\"... 1 more bytes");
    /* not inside of a character */
    check_with(&small, "return ('\\u{20ac}'):rep(4)",
               "\"\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\"... 3 more bytes");
    /* a table that contains itself ends at the depth */
    check_with(&small, "local t = {} t.t = t return t", "{ t = { t = {... 1 inside} } }");
    const struct br_print_limits deep = {.depth = 1000, .items = 3, .string = 10, .width = 10};
    struct job j = {.code = "local t = {} t.t = t return t", .limits = &deep};
    run(&j, 1u << 20);
    assert_non_null(strstr(br_buf_cstr(&j.out), "... 1 inside"));
    br_buf_free(&j.out);
}

/* The buffer's maximum ends it, whatever is printed; also many keys. */
static void test_bound_of_bytes(void **state)
{
    (void)state;
    const struct br_print_limits all = {
        .depth = 32, .items = 1u << 30, .string = 1u << 30, .width = 76};
    static const char *const codes[] = {
        "local t = {} for i = 1, 200000 do t[i] = i end return t",
        "local t = {} for i = 1, 20000 do t['k' .. i] = { i, { i } } end return t",
        "return ('x'):rep(1e6)", "local t = { 1 } for i = 1, 60 do t = { t, t } end return t"};
    for (size_t i = 0; i < BR_ARRAY_LEN(codes); i++) {
        struct job j = {.code = codes[i], .limits = &all};
        run(&j, 5000);
        assert_true(j.out.failed);
        assert_in_range(j.out.len, 0, 5000);
        br_buf_free(&j.out);
    }
}

static void test_views_read(void **state)
{
    (void)state;
    check("local d = ... return d",
          "{ a = { 1, 2, { b = \"x\" } }, e = {}, n = null, s = \"text\" }");
    check("local d = ... return { #d.a, d.a[3].b, d.s, d.absent == nil, type(d), #d.e }",
          "{ 3, \"x\", \"text\", true, \"table\", 0 }");
    check("local d, t = ..., {} for k in pairs(d) do t[#t + 1] = k end table.sort(t) return t",
          "{ \"a\", \"e\", \"n\", \"s\" }");
    check("local d, n = ..., 0 for i, v in ipairs(d.a) do n = n + i end return n", "6");
    check("local d = ... return { d.a == d.a, d.a == d.e, d == d, d.a ~= {} }",
          "{ true, false, true, true }");
    check("local d = ... return json.encode({ d, d.a })",
          "\"[{\\\"a\\\":[1,2,{\\\"b\\\":\\\"x\\\"}],\\\"e\\\":[],\\\"n\\\":null,\\\"s\\\":"
          "\\\"text\\\"},"
          "[1,2,{\\\"b\\\":\\\"x\\\"}]]\"");
}

static void test_views_are_not_written(void **state)
{
    (void)state;
    static const char *const attempts[] = {
        "d.s = 1",
        "d.new = 1",
        "d.a[1] = 9",
        "d.a[3].b = 9",
        "d.a[#d.a + 1] = 9",
        "table.insert(d.a, 9)",
        "table.remove(d.a)",
        "table.sort(d.a)",
        "setmetatable(d, {})",
        "setmetatable(d.a, { __newindex = function() end })",
        "getmetatable(d).__newindex = nil",
        "getmetatable(d).__index.s = 1",
        "for k in pairs(d) do d[k] = nil end",
        "local f, t = pairs(d) f(t, nil)[1] = 1",
        "json.array(d)",
        "rawset(d, 's', 1)",
    };
    char code[512];
    for (size_t i = 0; i < BR_ARRAY_LEN(attempts); i++) {
        snprintf(code, sizeof(code),
                 "local d = ... local ok = pcall(function() %s end) return { ok, d }", attempts[i]);
        struct job j = {.code = code, .limits = &wide};
        run(&j, 4096);
        if (strcmp(br_buf_cstr(&j.out),
                   "{ false, { a = { 1, 2, { b = \"x\" } }, e = {}, n = null, s = "
                   "\"text\" } }") != 0)
            fail_msg("%s: %s", attempts[i], (char *)j.out.data);
        br_buf_free(&j.out);
    }
    /* control: the same on a table of one's own succeeds */
    check(
        "local d = { s = 0, a = { 1 } } local ok = pcall(function() d.s = 1 d.a[2] = 9 end) return "
        "{ ok, d.s, d.a }",
        "{ true, 1, { 1, 9 } }");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_nothing_acts_on_a_terminal),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_bound_of_bytes),
        cmocka_unit_test(test_views_read),
        cmocka_unit_test(test_views_are_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
