/*
 * The public records of ways out of, and crashes of, Lua 5.1 to 5.4 and of the Lua inside Redis:
 * each is tried on a real bridle-script as far as there is something to try it on, and where the
 * library or function of the record does not exist here, that is what is tested. docs/lua-cves.md
 * explains each; the last test holds that the page and this table name the same.
 *
 * A case ends in a typed refusal that says what is expected, or (says NULL) it is a policy that
 * checks its own results and compiles. One process for all: the next case is the proof that the
 * last one did no harm.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "script/rig.h"
#include "wire/types.h"

#define HEAD "local policy = require 'bridle.policy'\n"
#define TAIL                                                                                       \
    "\nreturn policy.bundle { api = 1, name = 'good', rules = { policy.deny { id = 'kept', "       \
    "action "                                                                                      \
    "= '*' } } }\n"
#define GOOD HEAD TAIL
/* None of these globals, nor a module of this name. */
#define ABSENT(names)                                                                              \
    HEAD "for _, name in ipairs { " names " } do\n"                                                \
         "  assert(not pcall(function() return _ENV[name] end), name)\n"                           \
         "  assert(not pcall(require, name), name)\n"                                              \
         "end" TAIL
/* Each of these calls raises; then the policy compiles. */
#define RAISE(calls)                                                                               \
    HEAD "for i, f in ipairs { " calls " } do\n"                                                   \
         "  local ok, e = pcall(f)\n"                                                              \
         "  assert(not ok, 'call ' .. i .. ' raised nothing')\n"                                   \
         "end" TAIL

struct cve {
    const char *id;   /* a second case of one record has the same */
    const char *text; /* NULL: made by `make` */
    void (*make)(struct br_buf *b);
    const char *says; /* NULL: compiles, and keeps its rule */
};

/* ---- texts that are too long to be written here ---- */

/* The text n times, in which '@' is 1, 2, ... */
static void repeat(struct br_buf *b, const char *text, unsigned n)
{
    for (unsigned i = 1; i <= n; i++)
        for (const char *p = text; *p; p++)
            if (*p == '@')
                br_buf_printf(b, "%u", i);
            else
                br_buf_put_u8(b, (uint8_t)*p);
}

static void put(struct br_buf *b, const char *text)
{
    br_buf_put(b, text, strlen(text));
}

/* Many fixed parameters, none of them given, deep in the stack. */
static void make_varargs(struct br_buf *b)
{
    put(b, HEAD "local function f(");
    repeat(b, "p@, ", 180);
    put(b, "...) return select('#', ...), p180 end\n"
           "local function deep(n) if n == 0 then return f() end\n"
           "  local a, b = deep(n - 1) return a, b end\n"
           "for n = 1, 190 do local count, last = deep(n) assert(count == 0 and last == nil) end\n"
           "assert(f(table.unpack({}, 1, 200)) == 20)");
    put(b, TAIL);
}

static void make_constants(struct br_buf *b)
{
    put(b, HEAD "local t = {");
    repeat(b, "@.5,", 70000);
    put(b, "}\nassert(#t == 70000 and t[70000] == 70000.5 and t[65537] == 65537.5)\n"
           "assert(('k'):rep(3) == 'kkk' and t.nothing == nil)");
    put(b, TAIL);
}

static void make_bracket(struct br_buf *b)
{
    put(b, "return [");
    for (unsigned i = 0; i < 200000; i++)
        br_buf_put_u8(b, '=');
    put(b, "x");
}

static void make_bracket_comment(struct br_buf *b)
{
    put(b, "--[");
    for (unsigned i = 0; i < 200000; i++)
        br_buf_put_u8(b, '=');
    put(b, "[ no end ]");
    for (unsigned i = 0; i < 199999; i++)
        br_buf_put_u8(b, '=');
    put(b, "]");
}

/* Names, texts and functions enough that the parser's own tables grow while it reads. */
static void make_parser(struct br_buf *b)
{
    put(b, HEAD "local t = {}\n");
    repeat(b, "t.name_@ = function(a) local s = 'text' return a .. s end\n", 3000);
    put(b, "assert(t.name_3000('x') == 'xtext')");
    put(b, TAIL);
}

static const struct cve cves[] = {
    /* ---- Lua ---- */
    {"CVE-2014-5461", NULL, make_varargs, NULL},
    {"CVE-2019-6706", ABSENT("'debug'"), NULL, NULL},
    {"CVE-2020-15888",
     HEAD
     "local function grow(n, ...)\n"
     "  if n == 0 then local t = {} for i = 1, 50 do t[i] = { i, tostring(i) } end\n"
     "    return select('#', ...), error('unwind', 0) end\n"
     "  local keep = { n }\n"
     "  return grow(n - 1, keep, ...)\n"
     "end\n"
     "for n = 1, 200 do local ok, e = pcall(grow, n) assert(not ok and e == 'unwind') end" TAIL,
     NULL, NULL},
    {"CVE-2020-15889", ABSENT("'collectgarbage'"), NULL, NULL},
    /* the error has no line, so the text runs again with a line hook */
    {"CVE-2020-15945",
     "local function f(...)\n  local a = ...\n  if a then\n    return (...)\n  end\nend\n"
     "local function g(...) f(...) f() return error('far', 0) end\n"
     "local t = setmetatable({}, { __index = function(_, k)\n  return f(k)\n end })\n"
     "return g(t.a, t.b)",
     NULL, "policy.lua:"},
    {"CVE-2020-24342", "local function f(s) return (s:gsub('.', f)) end\nreturn f('x')", NULL,
     "overflow"},
    {"CVE-2020-24342",
     "local t = setmetatable({}, { __lt = function(a, b) table.sort({ a, b }) return true end })\n"
     "table.sort({ t, t })",
     NULL, "overflow"},
    {"CVE-2020-24369", "return string.dump(function() end, true)", NULL, "'dump' is not there"},
    {"CVE-2020-24370", "return debug.getlocal(1, math.mininteger)", NULL, "'debug' is not there"},
    {"CVE-2020-24371",
     HEAD "local old = {}\n"
          "for i = 1, 20000 do\n"
          "  local t = setmetatable({}, { __index = { i } })\n"
          "  old[i % 97] = t\n"
          "  local up = t\n"
          "  t.f = function() up = { up } return up[1] end\n"
          "  if i % 3 == 0 then old[i % 89] = { t.f(), tostring(i) } end\n"
          "end\n"
          "for i = 0, 88 do local v = old[i] assert(v == nil or type(v) == 'table') end" TAIL,
     NULL, NULL},
    {"CVE-2021-43519", ABSENT("'coroutine'"), NULL, NULL},
    {"CVE-2021-44647",
     RAISE(
         "function() for _ in 5 do end end, function() for _ in setmetatable({}, { __call = 7 }) "
         "do end end, function() local x <close> = 1 end, function() return setmetatable({}, { "
         "__lt = 5 }) < {} end, function() return setmetatable({}, { __concat = {} }) .. 'a' end, "
         "function() local t = setmetatable({}, { __index = 7 }) return t.a end, function() return "
         "#nil end, function() for i = 1, 10, 0 do end end, function() return (nil)() end"),
     NULL, NULL},
    {"CVE-2021-44964",
     "local t = {}\nfor i = 1, 9 do t = setmetatable({ t }, { __gc = error }) end", NULL, "'__gc'"},
    {"CVE-2021-45985",
     "local function f() return setmetatable({}, { __gc = function() end }) end\nreturn f()", NULL,
     "'__gc'"},
    {"CVE-2021-45985",
     HEAD
     "local mt = setmetatable({}, { __index = function(_, k) return k == '__gc' and error end })\n"
     "local function f() return setmetatable({}, mt) end\n"
     "for i = 1, 1000 do f() end" TAIL,
     NULL, NULL},
    {"CVE-2022-28805", "local _ENV <const> = 11\nX = 'hi'", NULL, "index a number"},
    {"CVE-2022-28805",
     "local function f()\n  local _ENV <const> = 'text'\n  return x.y.z + w\nend\nreturn f()", NULL,
     "'x' is not there"},
    {"CVE-2022-33099",
     RAISE(
         "function() local function f() local ok, e = pcall(f) return e.x.y end return f() end, "
         "function() local t t = setmetatable({}, { __index = function(_, k) return t[k] .. {} "
         "end }) return t.a end, function() local t t = setmetatable({}, { __concat = function(a, "
         "b) return a .. b end }) return t .. t end"),
     NULL, NULL},
    {"CVE-2022-33099",
     "local function f(n) local t = {} return t[n] + f(n + 1) + t.x.y end return f(1)", NULL, ""},

    /* ---- Redis ---- */
    {"CVE-2015-8080", ABSENT("'struct'"), NULL, NULL},
    {"CVE-2015-8080",
     RAISE("function() return string.pack('i1000000', 1) end, function() return "
           "string.packsize('s17') end, function() return string.unpack('z', '') end"),
     NULL, NULL},
    {"CVE-2018-11218", ABSENT("'cmsgpack'"), NULL, NULL},
    {"CVE-2018-11219", ABSENT("'struct', 'cjson'"), NULL, NULL},
    {"CVE-2020-14147", ABSENT("'struct'"), NULL, NULL},
    {"CVE-2021-32626",
     HEAD "local wide = json.decode('[' .. ('[1],'):rep(20000) .. '1]')\n"
          "assert(#wide == 20001)\n"
          "local deep = ('['):rep(64) .. (']'):rep(64)\n"
          "for _ = 1, 200 do assert(json.encode(json.decode(deep)) == deep) end\n"
          "local function f(n) if n == 0 then return json.decode(deep) end return (f(n - 1)) end\n"
          "assert(f(10000))\n"
          "local function g(n) if n == 0 then return json.encode(json.decode(deep)) end\n"
          "  local s = g(n - 1) return s end\n"
          "assert(g(15000) == deep)\n"
          "assert(select('#', table.unpack({}, 1, 9999)) == 9999)" TAIL,
     NULL, NULL},
    {"CVE-2021-32626",
     RAISE("function() return ('x'):rep(1000001):byte(1, -1) end, function() return "
           "utf8.codepoint(('x'):rep(1000001), 1, -1) end, function() return "
           "json.decode(('['):rep(65) .. "
           "(']'):rep(65)).x end, function() return ('a'):find(('(a?)'):rep(33)) end"),
     NULL, NULL},
    {"CVE-2021-32672", ABSENT("'debug', 'redis'"), NULL, NULL},
    {"CVE-2022-0543", ABSENT("'package', 'module', 'io', 'os', 'bridle.host', 'bridle.schema'"),
     NULL, NULL},
    {"CVE-2022-0543", "return require.loadlib", NULL, "index a function"},
    {"CVE-2022-24735",
     HEAD "for _, f in ipairs {\n"
          "  function() policy.export = function() return { name = 'x', rules = {} } end end,\n"
          "  function() json.encode = error end, function() json.null.x = 1 end,\n"
          "  function() string.find = error end, function() getmetatable('').__index = {} end,\n"
          "  function() setmetatable(json.null, {}) end, function() table.sort = error end,\n"
          "  function() setmetatable(policy, {}) end, function() setmetatable(_ENV, {}) end,\n"
          "  function() rawset(policy, 'vote', error) end, function() require = error end,\n"
          "  function() _G.pcall = error end, function() table.insert(policy, 1) end,\n"
          "  function() getmetatable(policy).__index.deny = policy.allow end,\n"
          "} do assert(not pcall(f)) end" TAIL,
     NULL, NULL},
    {"CVE-2022-24736", "error()", NULL, "an error that is a nil"},
    {"CVE-2022-24736", "error(nil, 7)", NULL, "an error that is a nil"},
    {"CVE-2022-24736", "error(json.null)", NULL, "an error that is a userdata"},
    {"CVE-2022-24736", "error(setmetatable({}, { __tostring = error, __index = error }))", NULL,
     "an error that is a table"},
    {"CVE-2022-24736", "error(function() end)", NULL, "an error that is a function"},
    {"CVE-2022-24736", "error(('x'):rep(100000), 0)", NULL, "xxx"},
    {"CVE-2022-24736", "error('\\0\\xff\\27[2J', 0)", NULL, ""},
    {"CVE-2022-24834", ABSENT("'cjson', 'cmsgpack'"), NULL, NULL},
    /* one by one: each makes as much text as there may be, for which a limit of CPU time runs */
    {"CVE-2022-24834", RAISE("function() return json.encode(('\\1'):rep(3000000)) end"), NULL,
     NULL},
    {"CVE-2022-24834",
     RAISE("function() local s = ('\\1'):rep(1000000) return json.encode { s, s, s, s } end"), NULL,
     NULL},
    {"CVE-2022-24834",
     RAISE("function() local t = {} for i = 1, 60 do t[i] = ('x'):rep(300000) end "
           "return json.encode(t) end"),
     NULL, NULL},
    {"CVE-2022-24834",
     RAISE("function() local s = ('\\1'):rep(3000000) return json.encode { [s] = 1 } end"), NULL,
     NULL},
    {"CVE-2022-36021", "return ('a'):rep(60000):find(('.*'):rep(30) .. 'b')", NULL,
     "too many steps"},
    {"CVE-2024-31228", "return (('a'):rep(300)):match(('a?'):rep(5000) .. ('('):rep(20))", NULL,
     "too complex"},
    {"CVE-2024-31449", ABSENT("'bit', 'bit32'"), NULL, NULL},
    {"CVE-2024-46981", ABSENT("'newproxy', 'collectgarbage'"), NULL, NULL},
    {"CVE-2024-51741", ABSENT("'redis', 'server'"), NULL, NULL},
    {"CVE-2025-46817",
     RAISE(
         "function() return table.unpack({}, math.mininteger, math.maxinteger) end, function() "
         "return table.unpack({}, -1, 2147483647) end, function() return table.unpack({}, 0, "
         "math.maxinteger) end, function() return table.unpack({}, 1, 10000) end, function() "
         "return "
         "table.concat({}, '', math.mininteger, math.maxinteger) end, function() return "
         "('ab'):rep(math.maxinteger) end, function() return ('ab'):rep(math.maxinteger // 2 + 1) "
         "end, function() table.insert({}, math.maxinteger, 1) end, function() return "
         "table.remove({ 1 }, math.mininteger) end, function() return select(math.mininteger) end, "
         "function() return utf8.codepoint('a', math.mininteger, math.maxinteger) end, function() "
         "return utf8.char(math.maxinteger) end"),
     NULL, NULL},
    {"CVE-2025-46817",
     HEAD
     "local lo, hi = math.mininteger, math.maxinteger\n"
     "assert(('abc'):sub(lo, hi) == 'abc' and ('abc'):sub(hi, lo) == '')\n"
     "assert(select('#', ('abc'):byte(lo, hi)) == 3 and ('abc'):find('b', lo) == 2)\n"
     "assert(('abc'):find('b', hi) == nil and ('abc'):match('c', lo) == 'c')\n"
     "assert(select('#', table.unpack({}, hi, lo)) == 0 and table.concat({}, '', hi, lo) == '')\n"
     "assert(select('#', table.unpack({}, hi, hi)) == 1)" TAIL,
     NULL, NULL},
    {"CVE-2025-46818",
     HEAD "for _, v in ipairs { '', 1, 1.5, true, error, json.null } do\n"
          "  local mt = getmetatable(v)\n"
          "  assert(mt == nil or mt == false, type(v))\n"
          "  assert(not pcall(setmetatable, v, { __index = { x = error } }), type(v))\n"
          "  assert(not pcall(function() getmetatable(v).__index = error end), type(v))\n"
          "end\n"
          "assert(getmetatable(nil) == nil and not pcall(setmetatable, nil, {}))\n"
          "assert(not pcall(function() return ('').nothing.x end))" TAIL,
     NULL, NULL},
    {"CVE-2025-46819", NULL, make_bracket, "invalid long string delimiter"},
    {"CVE-2025-46819", NULL, make_bracket_comment, "unfinished long comment"},
    {"CVE-2025-46819", "return [=", NULL, "invalid long string delimiter"},
    {"CVE-2025-49844", NULL, make_parser,
     NULL}, /* and test_script_alloc: collecting at each step */

    /* ---- known bugs of the release in use, without a record ---- */
    {"lua-5.4.4 strcmp",
     HEAD "local a, b = 'a\\0' .. ('b'):rep(40), 'a\\0' .. ('b'):rep(39) .. 'c'\n"
          "assert(a < b and not (b < a) and a <= a and ('\\0') < ('\\0\\0') and '' < '\\0')" TAIL,
     NULL, NULL},
    {"lua-5.4.4 constants", NULL, make_constants, NULL},
    {"lua-5.4.4 coroutine.close", "return coroutine.close(nil)", NULL, "'coroutine' is not there"},
    {"lua-5.4.4 bytecode", "\x1bLuaT\x19\x93\r\n\x1a\n", NULL, "binary chunk"},
};

static bool run_one(struct rig *g, const struct cve *c)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_POLICY_MAX);
    if (c->make)
        c->make(&b);
    else
        put(&b, c->text);
    assert_false(b.failed);
    rig_compile_n(g, b.data, b.len, NULL, 0, false);
    bool ok = c->says ? g->a.type == BR_MSG_SCRIPT_FAILED && g->a.code == BR_E_INVALID_POLICY &&
                            strstr(g->a.text, c->says)
                      : g->a.type == BR_MSG_COMPILED && rig_rule(g, "operator:kept");
    if (!ok)
        print_error("%s: answer 0x%x: %s\n", c->id, g->a.type, g->a.text);
    return ok;
}

static void test_cves(void **state)
{
    (void)state;
    struct rig g;
    unsigned failed = 0;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (size_t i = 0; i < BR_ARRAY_LEN(cves); i++) {
        failed += !run_one(&g, &cves[i]);
        if (g.a.type == BR_MSG_SCRIPT_FAILED)
            continue;
        if (g.a.type == BR_MSG_COMPILED) /* a table is pinned for the life of a process */
            assert_int_equal(rig_stop(&g), 0);
        else
            rig_ended(&g, 20000);
        rig_start(&g, BR_SCRIPT_POLICY);
    }
    assert_int_equal(failed, 0);
    rig_compile(&g, GOOD, NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_int_equal(rig_stop(&g), 0);
}

/* What the cases are made of does find something. */
static void test_controls(void **state)
{
    (void)state;
    static const struct cve controls[] = {
        {"a library that is there", ABSENT("'string'"), NULL, "policy.lua:"},
        {"a module that is there", ABSENT("'bridle.policy'"), NULL, "bridle.policy"},
        {"a call that raises nothing", RAISE("error, function() end"), NULL,
         "call 2 raised nothing"},
        {"a policy without its rule", "return nil", NULL, "must end with"},
        {"a good one", GOOD, NULL, NULL},
    };
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (size_t i = 0; i < BR_ARRAY_LEN(controls); i++)
        assert_true(run_one(&g, &controls[i]));
    assert_int_equal(rig_stop(&g), 0);
}

/* The page names each record of the table, and no other. */
static void test_page(void **state)
{
    (void)state;
    char path[BR_PATH_MAX];
    static char page[64 * 1024];
    snprintf(path, sizeof(path), "%s/docs/lua-cves.md", getenv("BRIDLE_SOURCE"));
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(page, 1, sizeof(page) - 1, f);
    assert_true(n > 0 && n < sizeof(page) - 1);
    unsigned distinct = 0, rows = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(cves); i++) {
        char cell[64];
        snprintf(cell, sizeof(cell), "\n| %s |", cves[i].id);
        if (!strstr(page, cell))
            fail_msg("docs/lua-cves.md does not name '%s'", cves[i].id);
        distinct += i == 0 || strcmp(cves[i].id, cves[i - 1].id) != 0;
    }
    for (const char *p = page; (p = strstr(p, "\n| ")); p++)
        rows += strncmp(p, "\n| CVE-", 7) == 0 || strncmp(p, "\n| lua-", 7) == 0;
    assert_int_equal(rows, distinct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controls),
        cmocka_unit_test(test_cves),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
