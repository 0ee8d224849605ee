/*
 * What a state offers is what core/script/api.def says, for every purpose: the live environment is
 * walked and compared with it both ways, every example runs in a real state, and once more with
 * each function behind a check of its declared arguments and results.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "script/script.h"

/* Types, as bits. */
#define API_NIL (1 << LUA_TNIL)
#define API_BOOLEAN (1 << LUA_TBOOLEAN)
#define API_INTEGER (1 << 10)
#define API_NUMBER ((1 << LUA_TNUMBER) | API_INTEGER)
#define API_STRING (1 << LUA_TSTRING)
#define API_TABLE (1 << LUA_TTABLE)
#define API_FUNCTION (1 << LUA_TFUNCTION)
#define API_USERDATA (1 << LUA_TUSERDATA)
#define API_ANY 0xffff
#define API_OPTIONAL 0x10000
#define API_REST 0x20000

struct api_entry {
    const char *name, *library,
        *field; /* library NULL: a global; field NULL: a library's own text */
    char kind;  /* c: a C function of ours, s: the standard library's, l: Lua, v: value, d: data */
    unsigned purposes;
    int params[8], results[8]; /* 0: the end */
    const char *example;
};
struct api_class {
    const char *name;
    const char *fields[40];
};
#include "script/api_rows.h"

static const char *const purpose_names[] = {"policy", "config", "profile", "adapter"};

static bool called[BR_ARRAY_LEN(entries)]; /* by an example, through its check */

static bool has_type(lua_State *L, int idx, int mask)
{
    int type = lua_type(L, idx);
    if (type == LUA_TNONE || type == LUA_TNIL)
        return mask & (API_OPTIONAL | API_NIL);
    if (type == LUA_TNUMBER && !lua_isinteger(L, idx) && !(mask & (1 << LUA_TNUMBER))) {
        lua_Number n = lua_tonumber(L, idx);
        return mask & API_INTEGER &&
               n == (lua_Number)(lua_Integer)n; /* 1e6 is as good as 1000000 */
    }
    if (type == LUA_TNUMBER && mask & API_INTEGER)
        return true;
    return mask & (1 << type);
}

/* ---- the live environment ---- */

/* Replace the read-only view on top by the table behind it. */
static void behind_view(lua_State *L, const char *what)
{
    if (!lua_getmetatable(L, -1) || lua_getfield(L, -1, "__index") != LUA_TTABLE)
        fail_msg("'%s' is not a read-only view", what);
    lua_replace(L, -3);
    lua_pop(L, 1);
}

static const struct api_entry *find_entry(const char *library, const char *field)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(entries); i++) {
        const struct api_entry *e = &entries[i];
        bool same =
            library && e->library ? strcmp(library, e->library) == 0 : library == e->library;
        if (e->field && same && strcmp(e->field, field) == 0)
            return e;
    }
    return NULL;
}

static bool is_library(const char *name)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(entries); i++)
        if (entries[i].library && strcmp(entries[i].library, name) == 0)
            return true;
    return false;
}

/* A function that takes a name says no to a call without, and to one with something else. */
static void check_refuses(struct br_script *s, const struct api_entry *e)
{
    lua_State *L = s->L;
    struct br_err err = {.code = BR_OK};
    int first = e->params[0];
    if (!first || first & (API_OPTIONAL | API_REST))
        return;
    lua_pushvalue(L, -1);
    if (br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) == 0)
        fail_msg("'%s' needs an argument and does without", e->name);
    if (first & API_BOOLEAN)
        return;
    lua_pushvalue(L, -1);
    lua_pushboolean(L, 1);
    if (br_script_call(s, 1, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) == 0)
        fail_msg("'%s' takes true, which is of the wrong type", e->name);
}

/* The value on top is what the entry says. */
static void check_value(struct br_script *s, const struct api_entry *e)
{
    lua_State *L = s->L;
    if (e->kind == 'v') {
        if (!has_type(L, -1, e->params[0]))
            fail_msg("'%s' is a %s", e->name, luaL_typename(L, -1));
        return;
    }
    if (!lua_isfunction(L, -1))
        fail_msg("'%s' is a %s, not a function", e->name, luaL_typename(L, -1));
    if (lua_iscfunction(L, -1) != (e->kind != 'l'))
        fail_msg("'%s' is not of the kind '%c'", e->name, e->kind);
    if (e->kind == 'l') {
        lua_Debug ar;
        int n = 0;
        bool rest = false;
        for (; e->params[n] && !rest; n += !rest)
            rest = e->params[n] & API_REST;
        lua_pushvalue(L, -1);
        assert_true(lua_getinfo(L, ">u", &ar));
        if (ar.nparams != n || (ar.isvararg != 0) != rest)
            fail_msg("'%s' takes %d parameters, and is said to take %d", e->name, ar.nparams, n);
    }
    check_refuses(s, e);
}

/* Walk the table on top. *seen counts the entries that were met. */
static void walk(struct br_script *s, const char *library, unsigned purpose, unsigned *seen)
{
    lua_State *L = s->L;
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        assert_int_equal(lua_type(L, -2), LUA_TSTRING);
        const char *key = lua_tostring(L, -2);
        const struct api_entry *e = find_entry(library, key);
        if (!e && !library && is_library(key)) {
            lua_pushvalue(L, -1);
            behind_view(L, key);
            walk(s, key, purpose, seen);
            lua_pop(L, 1);
        } else if (!e || !(e->purposes & purpose)) {
            fail_msg("'%s%s%s' is there and is not documented", library ? library : "",
                     library ? "." : "", key);
        } else {
            check_value(s, e);
            ++*seen;
        }
        lua_pop(L, 1);
    }
}

static struct br_script *new_state(unsigned purpose)
{
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    assert_non_null(s);
    s->purpose = purpose;
    return s;
}

/* Can a text of this purpose require the module? It is pushed then. */
static bool may_require(struct br_script *s, const char *module)
{
    struct br_err err = {.code = BR_OK};
    static const char text[] = "return require(...)";
    assert_int_equal(br_script_load(s, "r.lua", text, strlen(text), BR_E_FAILED, &err), 0);
    lua_pushstring(s->L, module);
    return br_script_call(s, 1, 1, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) == 0;
}

/* All embedded modules: those that a text may require are documented ones. */
static void walk_modules(struct br_script *s, unsigned purpose, unsigned *seen)
{
    for (unsigned i = 0; i < br_script_nmodules; i++) {
        const char *name = br_script_modules[i].name;
        bool data = strncmp(name, "profiles.", 9) == 0;
        if (!may_require(s, name))
            continue;
        if (data ? purpose != BR_API_PROFILE : !is_library(name))
            fail_msg("'%s' can be required and is not documented", name);
        behind_view(s->L, name);
        if (!data)
            walk(s, name, purpose, seen);
        lua_pop(s->L, 1);
    }
    /* made in C */
    assert_false(may_require(s, "bridle.host"));
    assert_true(may_require(s, "json"));
    lua_pop(s->L, 1);
}

static void test_environment(void **state)
{
    (void)state;
    for (unsigned k = 0; k < BR_ARRAY_LEN(purpose_names); k++) {
        unsigned purpose = 1u << k, seen = 0, wanted = 0;
        struct br_script *s = new_state(purpose);
        br_script_push_operator_env(s->L);
        behind_view(s->L, "environment");
        walk(s, NULL, purpose, &seen);
        lua_pop(s->L, 1);
        walk_modules(s, purpose, &seen);
        for (size_t i = 0; i < BR_ARRAY_LEN(entries); i++)
            wanted += entries[i].field && entries[i].purposes & purpose;
        if (seen != wanted)
            fail_msg("a %s has %u of the %u functions and values that are documented",
                     purpose_names[k], seen, wanted);
        assert_int_equal(lua_gettop(s->L), 0);
        br_script_free(&s);
    }
}

/* Whatever type a value has, its metatable leads to nothing but the functions of texts. */
static void test_metatables(void **state)
{
    (void)state;
    struct br_script *s = new_state(BR_API_POLICY);
    lua_State *L = s->L;
    lua_pushnil(L);
    lua_pushboolean(L, 1);
    lua_pushinteger(L, 1);
    lua_pushcfunction(L, lua_error);
    lua_pushlightuserdata(L, &called);
    for (; lua_gettop(L) > 0; lua_pop(L, 1))
        assert_false(lua_getmetatable(L, -1));
    lua_pushliteral(L, "");
    assert_true(lua_getmetatable(L, -1));
    unsigned fields = 0;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1))
        fields++;
    assert_int_equal(fields, 2);
    lua_getfield(L, 2, "__metatable");
    assert_false(lua_toboolean(L, -1));
    lua_settop(L, 0);
    br_script_free(&s);
}

/* ---- examples ---- */

/* Renders values as the examples write them. Runs in the state of the example. */
static const char helper[] =
    "local function show(v)\n"
    "  if type(v) ~= 'table' then\n"
    "    if type(v) == 'string' then return (string.format('%q', v):gsub('\\\\\\n', '\\\\n')) end\n"
    "    return tostring(v)\n"
    "  end\n"
    "  return 'table'\n"
    "end\n"
    "local function expect(line, want, ...)\n"
    "  local got = table.pack(...)\n"
    "  for i = 1, got.n do got[i] = show(got[i]) end\n"
    "  local text = table.concat(got, ', ')\n"
    "  if text ~= want then error(('line %d gives %s, not %s'):format(line, text, want), 0) end\n"
    "end\n"
    "local function refuse(line, want, f)\n"
    "  local ok, message = pcall(f)\n"
    "  if ok then error(('line %d raises nothing'):format(line), 0) end\n"
    "  if not tostring(message):find(want, 1, true) then\n"
    "    error(('line %d says: %s'):format(line, tostring(message)), 0)\n"
    "  end\n"
    "end\n"
    "return expect, refuse\n";

/* Leaves a new table on top with the two helpers. */
static void push_helpers(struct br_script *s)
{
    struct br_err err = {.code = BR_OK};
    if (br_script_load(s, "helper.lua", helper, strlen(helper), BR_E_FAILED, &err) < 0 ||
        br_script_call(s, 0, 2, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) < 0)
        fail_msg("%s", err.text);
    lua_newtable(s->L);
    lua_insert(s->L, -3);
    lua_setfield(s->L, -3, "__refuse");
    lua_setfield(s->L, -2, "__expect");
}

/* The values from `first` to `last` are as declared. Raises. */
static void check_list(lua_State *L, const char *name, const char *what, int first, int last,
                       const int *list)
{
    int at = 0;
    for (int i = first; i <= last; i++) {
        if (!list[at])
            luaL_error(L, "CONTRACT '%s' has more %s than are documented", name, what);
        if (!has_type(L, i, list[at]))
            luaL_error(L, "CONTRACT '%s' has a %s among its %s", name, luaL_typename(L, i), what);
        at += !(list[at] & API_REST);
    }
    for (; list[at]; at++)
        if (!(list[at] & (API_OPTIONAL | API_NIL)))
            luaL_error(L, "CONTRACT '%s' has fewer %s than are documented", name, what);
}

/* Upvalues: the function, its entry, a table from real modules to checked ones. What was refused
 * may have been refused for its types; what was not is as documented. */
static int checked(lua_State *L)
{
    const struct api_entry *e = lua_touserdata(L, lua_upvalueindex(2));
    int n = lua_gettop(L);
    called[e - entries] = true;
    luaL_checkstack(L, n + 8, "arguments");
    lua_pushvalue(L, lua_upvalueindex(1));
    for (int i = 1; i <= n; i++)
        lua_pushvalue(L, i);
    lua_call(L, n, LUA_MULTRET);
    int top = lua_gettop(L);
    check_list(L, e->name, "arguments", 1, n, e->params);
    check_list(L, e->name, "results", n + 1, top, e->results);
    if (top > n && lua_istable(L, n + 1)) {
        lua_pushvalue(L, n + 1);
        if (lua_rawget(L, lua_upvalueindex(3)) == LUA_TTABLE)
            lua_replace(L, n + 1);
    }
    lua_settop(L, top);
    return top - n;
}

/* Add what the library has of functions, checked, to the table on top; the real library is below
 * it, and the table of modules at `map`. */
static void add_checked(lua_State *L, const char *library, int map)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(entries); i++) {
        const struct api_entry *e = &entries[i];
        bool same =
            library && e->library ? strcmp(library, e->library) == 0 : library == e->library;
        if (!e->field || !same || e->kind == 'v')
            continue;
        lua_getfield(L, -2, e->field);
        lua_pushlightuserdata(L, (void *)(uintptr_t)e);
        lua_pushvalue(L, map);
        lua_pushcclosure(L, checked, 3);
        lua_setfield(L, -2, e->field);
    }
    lua_newtable(L); /* the rest is the real one's */
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
}

/* (helpers, bits): gives an environment in which every documented function is checked. */
static int make_checked(lua_State *L)
{
    unsigned purpose = (unsigned)lua_tointeger(L, 2);
    static const char *const libraries[] = {"string", "table", "math", "utf8", "json"};
    lua_settop(L, 1);
    lua_newtable(L); /* 2: the map */
    br_script_push_operator_env(L);
    lua_newtable(L); /* 4: the result */
    add_checked(L, NULL, 2);
    for (size_t i = 0; i < BR_ARRAY_LEN(libraries); i++) {
        lua_getfield(L, 3, libraries[i]);
        lua_newtable(L);
        add_checked(L, libraries[i], 2);
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, 2);
        lua_setfield(L, 4, libraries[i]);
        lua_settop(L, 4);
    }
    for (unsigned i = 0; i < br_script_nmodules; i++) {
        if (!is_library(br_script_modules[i].name) || purpose != BR_API_POLICY)
            continue;
        lua_getfield(L, 3, "require");
        lua_pushstring(L, br_script_modules[i].name);
        lua_call(L, 1, 1);
        lua_newtable(L);
        add_checked(L, br_script_modules[i].name, 2);
        lua_rawset(L, 2);
    }
    static const char *const helpers[] = {"__expect", "__refuse"};
    for (size_t i = 0; i < BR_ARRAY_LEN(helpers); i++) {
        lua_getfield(L, 1, helpers[i]);
        lua_setfield(L, 4, helpers[i]);
    }
    return 1;
}

/* (helpers): the environment of an operator's text, and the helpers. */
static int make_plain(lua_State *L)
{
    lua_settop(L, 1);
    lua_newtable(L);
    br_script_push_operator_env(L);
    lua_setfield(L, 2, "__index");
    lua_setmetatable(L, 1);
    return 1;
}

static void run_example(const struct api_entry *e, unsigned purpose, lua_CFunction make)
{
    struct br_script *s = new_state(purpose);
    lua_State *L = s->L;
    struct br_err err = {.code = BR_OK};
    lua_pushcfunction(L, make);
    push_helpers(s);
    lua_pushinteger(L, purpose);
    if (br_script_call(s, 2, 1, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) < 0)
        fail_msg("%s: %s", e->name, err.text);
    if (br_script_load(s, "example.lua", e->example, strlen(e->example), BR_E_FAILED, &err) < 0)
        fail_msg("%s: %s", e->name, err.text);
    lua_insert(L, -2);
    assert_string_equal(lua_setupvalue(L, -2, 1), "_ENV");
    if (br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) < 0)
        fail_msg("the example of '%s': %s", e->name, err.text);
    br_script_free(&s);
}

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(entries); i++)
        for (unsigned k = 0; k < BR_ARRAY_LEN(purpose_names); k++)
            if (entries[i].purposes & 1u << k) {
                run_example(&entries[i], 1u << k, make_plain);
                run_example(&entries[i], 1u << k, make_checked);
            }
    for (size_t i = 0; i < BR_ARRAY_LEN(entries); i++)
        if (entries[i].field && entries[i].kind != 'v' && !called[i])
            fail_msg("no example calls '%s'", entries[i].name);
}

/* A wrong example is found: what it gives, what it raises, what it is given. */
static void test_examples_can_fail(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "__expect(1, '2', 1)",
        "__expect(1, '1', 1, nil)",
        "__refuse(1, 'boo', function() end)",
        "__refuse(1, 'boo', function() error('other') end)",
        "string.rep(12, 2)", /* declared as a text */
        "tostring(1, 2)",    /* one too many */
        "assert(false)",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(wrong); i++) {
        struct br_script *s = new_state(BR_API_POLICY);
        struct br_err err = {.code = BR_OK};
        lua_pushcfunction(s->L, make_checked);
        push_helpers(s);
        lua_pushinteger(s->L, BR_API_POLICY);
        assert_int_equal(br_script_call(s, 2, 1, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err), 0);
        assert_int_equal(br_script_load(s, "w.lua", wrong[i], strlen(wrong[i]), BR_E_FAILED, &err),
                         0);
        lua_insert(s->L, -2);
        (void)lua_setupvalue(s->L, -2, 1);
        if (br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) == 0)
            fail_msg("not found to be wrong: %s", wrong[i]);
        br_script_free(&s);
    }
}

/* ---- the fields of tables ---- */

static bool is_field(const struct api_class *c, const char *name, size_t n)
{
    for (size_t i = 0; c->fields[i]; i++)
        if (strlen(c->fields[i]) == n && strncmp(c->fields[i], name, n) == 0)
            return true;
    return false;
}

/* The refusal of an unknown field lists the known ones: 'a', 'b', ... The text has "FIELD" where
 * one stands. */
static void check_fields(const char *class, const char *call)
{
    const struct api_class *c = NULL;
    char text[512];
    const char *at = strstr(call, "FIELD");
    for (size_t i = 0; i < BR_ARRAY_LEN(classes); i++)
        if (strcmp(classes[i].name, class) == 0)
            c = &classes[i];
    assert_true(c && at);
    snprintf(text, sizeof(text), "local policy = require 'bridle.policy' %.*s%s = 1%s",
             (int)(at - call), call, "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", at + 5);
    struct br_script *s = new_state(BR_API_POLICY);
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_script_load(s, "f.lua", text, strlen(text), BR_E_FAILED, &err), 0);
    assert_true(br_script_call(s, 0, 0, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err) < 0);
    const char *p = strstr(err.text, "known are '");
    if (!p)
        fail_msg("%s: %s", call, err.text);
    unsigned seen = 0, n = 0;
    for (p += 10; *p == '\''; seen++) {
        size_t len = strcspn(p + 1, "'");
        if (!is_field(c, p + 1, len))
            fail_msg("'%.*s' of %s is not documented", (int)len, p + 1, class);
        p += len + 2;
        p += strspn(p, ", ");
    }
    for (unsigned i = 0; c->fields[i]; i++)
        n += c->fields[i][0] != '['; /* [integer]: the elements of the list */
    if (seen != n)
        fail_msg("%s has %u fields; %u are documented", class, seen, n);
    br_script_free(&s);
}

static void test_fields(void **state)
{
    (void)state;
    check_fields("policy.RuleFields", "policy.deny { FIELD }");
    check_fields("policy.RuleFields", "policy.ask { FIELD }");
    check_fields("policy.RuleFields", "policy.allow { FIELD }");
    check_fields("policy.BundleFields", "policy.bundle { FIELD }");
    check_fields("policy.OtherwiseFields", "policy.otherwise { FIELD }");
    check_fields("policy.GroupFields", "policy.group { FIELD }");
    check_fields("policy.CommandFields", "policy.command { 'git', FIELD }");
    check_fields("policy.When", "policy.ask { id = 'a', action = '*', when = { FIELD } }");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment), cmocka_unit_test(test_metatables),
        cmocka_unit_test(test_examples),    cmocka_unit_test(test_examples_can_fail),
        cmocka_unit_test(test_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
