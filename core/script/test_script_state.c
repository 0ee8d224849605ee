/*
 * The sandboxed state in process: library functions against the reference manual, JSON both ways,
 * the entry's stack balance, and a memory failure at every step of a compile.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script/script.h"

/* Runs `text`, which returns one value that must be true, or a text that says what is wrong. */
static void check_lua(const char *text)
{
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    struct br_err err = {.code = BR_OK};
    assert_non_null(s);
    int top = lua_gettop(s->L);
    int r = br_script_load(s, "check.lua", text, strlen(text), BR_E_INVALID_POLICY, &err);
    if (r == 0)
        r = br_script_call(s, 0, 1, BR_SCRIPT_COMPILE_US, BR_E_INVALID_POLICY, &err);
    if (r < 0)
        fail_msg("%s\n%s", err.text, text);
    if (!lua_isboolean(s->L, -1) || !lua_toboolean(s->L, -1))
        fail_msg("%s\n%s", lua_isstring(s->L, -1) ? lua_tostring(s->L, -1) : "false", text);
    lua_pop(s->L, 1);
    assert_int_equal(lua_gettop(s->L), top);
    br_script_free(&s);
}

static void test_strings(void **state)
{
    (void)state;
    check_lua("return ('ab'):rep(3) == 'ababab' and ('a'):rep(3, ',') == 'a,a,a' and "
              "('a'):rep(0) == '' and ('a'):rep(-1) == ''");
    check_lua("return string.format('%5.2f|%d|%s|%x', 1.5, 7, {}, 255) == ' 1.50|7|table|ff' and "
              "string.format('%q', 'a\"b') == '\"a\\\\\"b\"' and string.format('100%%') == '100%'");
    check_lua(
        "return tostring(nil) == 'nil' and tostring(1.0) == '1.0' and tostring(true) == 'true' "
        "and tostring(error) == 'function'");
    check_lua("local t = setmetatable({}, { __tostring = function() return 'mine' end })\n"
              "return tostring(t) == 'mine' and string.format('%s', t) == 'mine'");
}

static void test_patterns(void **state)
{
    (void)state;
    check_lua("return select(2, ('hello world'):find('o w')) == 7");
    check_lua(
        "local a, b, c = ('key = value'):find('(%w+)%s*=')\nreturn a == 1 and b == 5 and c == "
        "'key'");
    check_lua("return ('a.b'):find('.', 2, true) == 2 and ('abc'):find('', 10) == nil and "
              "('abc'):find('', 4) == 4 and ('abc'):find('b', -2) == 2");
    check_lua(
        "return ('abc'):match('^(a)(.-)c$') == 'a' and select(2, ('abc'):match('^(a)(.-)c$')) "
        "== 'b'");
    check_lua("return ('  x y  '):match('^%s*(.-)%s*$') == 'x y'");
    check_lua("return ('f(a(b)c)d'):match('%b()') == '(a(b)c)'");
    check_lua("return ('THE (quick) fox'):find('%f[%a]%a+%f[%A]') == 1");
    check_lua("return ('abcabc'):match('(abc)%1') == 'abc' and ('ab'):match('()b()') == 2");
    check_lua("return ('x-y]z'):match('[%]%-]') == '-' and (']'):match('[]]') == ']' and "
              "('^'):match('[%^]') == '^' and ('b'):match('[^a]') == 'b' and "
              "('m'):match('[a-z]') == 'm' and ('-'):match('[a-]') == '-'");
    check_lua("return ('aaa'):match('a-b') == nil and ('aab'):match('a-b') == 'aab' and "
              "('aa'):match('a?a?a?') == 'aa'");
    check_lua("return ('a1B2'):gsub('%d', '<%0>') == 'a<1>B<2>' and select(2, "
              "('a1B2'):gsub('%d', '')) == 2 and ('abc'):gsub('', '-') == '-a-b-c-'");
    check_lua("return ('hello'):gsub('l', { l = 'L' }, 1) == 'heLlo' and ('ab'):gsub('%w', "
              "function(c) if c == 'a' then return 'x' end end) == 'xb'");
    check_lua("return ('abc'):gsub('^a', 'x') == 'xbc' and ('aaa'):gsub('^a', 'x') == 'xaa' and "
              "('50%'):gsub('%%', '%%%%') == '50%%'");
    check_lua(
        "local r = {}\nfor k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do r[#r + 1] = k .. v end\n"
        "return table.concat(r, ' ') == 'a1 b2'");
    check_lua(
        "local n = 0\nfor w in ('one two  three'):gmatch('%a*') do n = n + #w end\nreturn n == 11");
    check_lua("return not pcall(string.find, 'a', '[a') and not pcall(string.find, 'a', '%') and "
              "not pcall(string.find, 'a', '(a') and not pcall(string.gsub, 'a', 'a', '%2') and "
              "not pcall(string.match, 'a', 'a)') and not pcall(string.find, 'a', '%b')");
    check_lua("return #('x'):rep(1e6):gsub('x', 'yy') == 2000000"); /* linear: within the budget */
    check_lua("local s = ('word '):rep(100000)\nlocal n = 0\nfor _ in s:gmatch('%a+') do n = n + 1 "
              "end\nreturn n == 100000");
}

static void test_tables(void **state)
{
    (void)state;
    check_lua("local t = { 3, 1, 2 }\ntable.sort(t)\nreturn table.concat(t, ',') == '1,2,3'");
    check_lua("local t = {}\nfor i = 1, 1000 do t[i] = (i * 7919) % 1009 end\ntable.sort(t, "
              "function(a, b) return a > b end)\nfor i = 2, 1000 do if t[i - 1] < t[i] then return "
              "false end end\nreturn true");
    check_lua(
        "local t = { 1, 3 }\ntable.insert(t, 2, 2)\ntable.insert(t, 4)\nreturn "
        "table.concat(t) == '1234' and table.remove(t, 1) == 1 and table.remove(t) == 4 and #t "
        "== 2");
    check_lua(
        "return table.remove({}) == nil and table.concat({}) == '' and table.concat({ 'a', 'b', "
        "'c' }, '-', 2, 3) == 'b-c'");
    check_lua("local p = table.pack(1, nil, 3)\nreturn p.n == 3 and select('#', table.unpack(p, 1, "
              "p.n)) == 3");
    check_lua(
        "return not pcall(table.insert, { 1 }, 5, 2) and not pcall(table.remove, { 1 }, 7) and "
        "not pcall(table.concat, { {} }) and not pcall(table.sort, { 1, 'a' })");
    check_lua(
        "local ok, a, b = pcall(function(x) return x, 2 end, 1)\nreturn ok and a == 1 and b == "
        "2");
    check_lua("local ok, e = pcall(error, 'boo', 0)\nreturn not ok and e == 'boo'");
    check_lua(
        "local C = {}\nC.__index = C\nfunction C.new() return setmetatable({}, C) end\nfunction "
        "C:get() return 7 end\nreturn C.new():get() == 7 and getmetatable(C.new()) == false");
}

static void test_json(void **state)
{
    (void)state;
    check_lua(
        "return json.encode({ b = 1, a = json.array {}, c = {}, d = { 1, 'x', true, json.null } "
        "}) == '{\"a\":[],\"b\":1,\"c\":{},\"d\":[1,\"x\",true,null]}'");
    check_lua("local v = json.decode('{\"a\":[],\"b\":{},\"c\":1,\"d\":1.0,\"e\":null}')\nreturn "
              "json.encode(v) == '{\"a\":[],\"b\":{},\"c\":1,\"d\":1.0,\"e\":null}' and v.e == "
              "json.null and math.type(v.c) == 'integer' and math.type(v.d) == 'float'");
    check_lua("return json.encode(9007199254740993) == '9007199254740993' and "
              "json.decode('9223372036854775807') == math.maxinteger and json.encode('\\n') == "
              "'\"\\\\n\"'");
    check_lua(
        "for _, bad in ipairs { '', '{', '{\"a\":1,\"a\":2}', '[1,]', 'nan', '\"\\xff\"', "
        "'\"\\\\u0000\"', '1 2', '\"\\\\ud800\"', '[1', '01' } do local v, m = "
        "json.decode(bad)\nif v ~= nil or type(m) ~= 'string' then return bad end end\nreturn "
        "true");
    check_lua("return json.is_array(json.decode('[]')) and not json.is_array({}) and not "
              "json.is_array(json.decode('{}'))");
    check_lua(
        "local ok = pcall(json.encode, '\\xff')\nreturn not ok and not pcall(json.encode, { [1.5] "
        "= 1 }) and not pcall(json.encode, { nil, 2, nil, 4 })");
    check_lua(
        "local deep = ('['):rep(64) .. (']'):rep(64)\nreturn json.encode(json.decode(deep)) == "
        "deep and json.decode('[' .. deep .. ']') == nil");
    /* the limit is met at the end, at the brace of an object, and around it */
    static const int before[] = {9, 8, 7, 2, 1, 0};
    for (size_t i = 0; i < BR_ARRAY_LEN(before); i++) {
        char text[512];
        snprintf(text, sizeof(text),
                 "local n = 16777216 - %d\n"
                 "local ok, e = pcall(json.encode, { ('x'):rep(n - 4), { a = 1 } })\n"
                 "if ok then return #e == n + 8 and n + 8 <= 16777216 end\n"
                 "return n + 8 > 16777216 and e:find('longer than', 1, true) ~= nil",
                 before[i]);
        check_lua(text);
    }
    check_lua(
        "return tostring(json.null) == 'null' and json.array() ~= nil and not pcall(json.array, "
        "setmetatable({}, {}))");
}

/* A cap on memory that grows step by step: a failed allocation anywhere is an error, never more. */
static void test_allocation_failures(void **state)
{
    (void)state;
    static struct br_compile_out out;
    static const char manifest[] =
        "id: a\ntitle: t\ngoal: g\nacceptance: [x]\npermissions: {fs.read: "
        "{'a*': deny}}\nallowed_paths: [src/**]\ndelivery: {type: none}\n";
    unsigned failed = 0, passed = 0;
    for (size_t cap = 8 * 1024; cap < 640 * 1024; cap += 997) {
        struct br_script *s = br_script_new(cap);
        if (!s) {
            failed++;
            continue;
        }
        struct br_compile_in in = {.policy_path = "p.lua",
                                   .manifest_path = "m.yaml",
                                   .manifest = manifest,
                                   .manifest_len = sizeof(manifest) - 1};
        struct br_err err = {.code = BR_OK};
        br_compile_out_init(&out);
        int r = br_compile(s, &in, &out, &err);
        assert_true((r < 0) == (err.code != BR_OK));
        assert_true(r == 0 || out.table.len == 0);
        failed += r < 0;
        passed += r == 0;
        assert_true(s->used <= cap);
        br_compile_out_free(&out);
        br_script_free(&s);
    }
    assert_true(failed > 20 && passed > 20);
}

static int stuck(lua_State *L)
{
    (void)L;
    for (volatile unsigned i = 0;; i++)
        ;
    return 0;
}

/* What no hook can stop, the kernel's timer ends. */
static void test_hard_timer(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
        struct br_err err = {.code = BR_OK};
        (void)signal(SIGPROF, SIG_DFL);
        s->hard_timer = true;
        lua_pushcfunction(s->L, stuck);
        (void)br_script_call(s, 0, 0, 1000, BR_E_FAILED, &err);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF);
}

/* A failed call leaves the stack as it was, whatever its error is. */
static void test_balance(void **state)
{
    (void)state;
    static const char *const texts[] = {"error()", "error({})", "local function f() f() end f()",
                                        "return 1, 2, 3", "error('x', 0)"};
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    struct br_err err = {.code = BR_OK};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++) {
        int top = lua_gettop(s->L);
        assert_int_equal(
            br_script_load(s, "b.lua", texts[i], strlen(texts[i]), BR_E_INVALID_POLICY, &err), 0);
        int r = br_script_call(s, 0, 2, BR_SCRIPT_COMPILE_US, BR_E_INVALID_POLICY, &err);
        assert_int_equal(lua_gettop(s->L), r == 0 ? top + 2 : top);
        lua_settop(s->L, top);
    }
    br_script_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_hard_timer),
        cmocka_unit_test(test_balance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
