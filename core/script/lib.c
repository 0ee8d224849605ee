/*
 * The globals of a sandboxed state: an allow list, read-only, strict. What is not here (load,
 * coroutines, metamethods that run at odd times, anything that shows an address) does not exist.
 * Called by scripts that are not trusted: each function bounds its work and ticks the deadline.
 */
#include <string.h>

#include <lualib.h>

#include "script/script.h"

static const char env_key = 0;

void br_script_push_env(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &env_key);
}

/* ---- read-only views ---- */

/* Names that people try, and what to say instead of the nearest name. */
static const char *absent_hint(const char *name)
{
    static const char *const gone[] = {
        "load",  "loadstring", "dofile", "loadfile",  "debug",          "os", "io",  "package",
        "print", "rawset",     "xpcall", "coroutine", "collectgarbage", "_G", "warn"};
    for (size_t i = 0; i < BR_ARRAY_LEN(gone); i++)
        if (strcmp(gone[i], name) == 0)
            return "; the sandbox does not have it";
    return NULL;
}

static unsigned distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned row[48];
    if (n >= BR_ARRAY_LEN(row) || m >= BR_ARRAY_LEN(row))
        return 99;
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned up = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = up;
            row[j] = best;
        }
    }
    return row[m];
}

/* __index of the table behind a view: upvalue 1 is what messages call it. */
static int absent_key(lua_State *L)
{
    const char *what = lua_tostring(L, lua_upvalueindex(1));
    if (lua_type(L, 2) != LUA_TSTRING)
        return luaL_error(L, "%s has no %s keys", what, luaL_typename(L, 2));
    const char *name = lua_tostring(L, 2), *hint = absent_hint(name), *nearest = NULL;
    if (hint)
        return luaL_error(L, "%s '%s' is not there%s", what, name, hint);
    unsigned least = (unsigned)strlen(name) / 2 + 1;
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        lua_pop(L, 1);
        const char *key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
        unsigned d = distance(name, key);
        /* the smaller name on a tie, so that a message does not change from run to run */
        if (d < least || (d == least && nearest && strcmp(key, nearest) < 0)) {
            least = d;
            nearest = key;
        }
    }
    if (nearest)
        return luaL_error(L, "%s '%s' is not there; did you mean '%s'?", what, name, nearest);
    return luaL_error(L, "%s '%s' is not there", what, name);
}

static int refuse_write(lua_State *L)
{
    const char *what = lua_tostring(L, lua_upvalueindex(1));
    if (lua_type(L, 2) == LUA_TSTRING)
        return luaL_error(L, "%s '%s' cannot be set; use 'local'", what, lua_tostring(L, 2));
    return luaL_error(L, "%s cannot be changed", what);
}

void br_script_lock(lua_State *L, const char *name)
{
    int real = lua_gettop(L);
    /* the table itself is strict about what it lacks */
    lua_createtable(L, 0, 1);
    lua_pushstring(L, name);
    lua_pushcclosure(L, absent_key, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, real);
    /* and the view in front of it cannot be written */
    lua_newtable(L);
    lua_createtable(L, 0, 3);
    lua_pushvalue(L, real);
    lua_setfield(L, -2, "__index");
    lua_pushstring(L, name);
    lua_pushcclosure(L, refuse_write, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_replace(L, real);
    lua_settop(L, real);
}

/* ---- base functions ---- */

/* A view of a value without addresses. */
static int base_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    switch (lua_type(L, 1)) {
    case LUA_TSTRING:
        return 1;
    case LUA_TNUMBER:
    case LUA_TBOOLEAN:
    case LUA_TNIL:
        luaL_tolstring(L, 1, NULL);
        return 1;
    default:
        if (luaL_callmeta(L, 1, "__tostring")) {
            if (lua_type(L, -1) != LUA_TSTRING)
                return luaL_error(L, "'__tostring' must return a text");
            return 1;
        }
        if (luaL_getmetafield(L, 1, "__name") != LUA_TSTRING)
            lua_pushstring(L, luaL_typename(L, 1));
        return 1;
    }
}

/* pcall(f, ...): an overrun deadline is raised again, so that nothing can swallow it. */
static int base_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    br_script_tick(L, 100);
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    br_script_check(L);
    lua_pushboolean(L, status == LUA_OK);
    lua_insert(L, 1);
    return lua_gettop(L);
}

/* What a script may give a table. Finalizers, weak tables, closers and length proxies are not. */
static const char *const metamethods[] = {"__index", "__newindex", "__call", "__tostring",
                                          "__eq",    "__lt",       "__le",   "__concat",
                                          "__name",  "__pairs"};

/* setmetatable(t, mt): t gets a private copy of the metamethods, so that what was checked is what
 * stays; a table with a metatable keeps it for ever. */
static int base_setmetatable(lua_State *L)
{
    static const char *const refused[] = {"__gc",  "__mode", "__close", "__metatable", "__len",
                                          "__add", "__unm",  "__sub",   "__mul",       "__div"};
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_getmetatable(L, 1))
        return luaL_error(L, "a table that has a metatable keeps it");
    for (size_t i = 0; i < BR_ARRAY_LEN(refused); i++) {
        lua_pushstring(L, refused[i]);
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L, "a metatable cannot have '%s' here", refused[i]);
        lua_pop(L, 1);
    }
    lua_createtable(L, 0, 4);
    for (size_t i = 0; i < BR_ARRAY_LEN(metamethods); i++) {
        lua_pushstring(L, metamethods[i]);
        lua_pushvalue(L, -1);
        lua_rawget(L, 2);
        lua_rawset(L, 3);
    }
    lua_pushboolean(L, 0);
    lua_setfield(L, 3, "__metatable");
    lua_setmetatable(L, 1);
    lua_settop(L, 1);
    return 1;
}

/* Calls upvalue 1, a function of the standard library, after ticking for its text arguments. */
static int ticked(lua_State *L)
{
    uint64_t work = 10;
    int n = lua_gettop(L);
    for (int i = 1; i <= n; i++)
        if (lua_type(L, i) == LUA_TSTRING)
            work += lua_rawlen(L, i) / 8;
    br_script_tick(L, work);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

/* ---- string functions beside patterns ---- */

static int str_rep(lua_State *L)
{
    size_t len, seplen, total;
    const char *s = luaL_checklstring(L, 1, &len);
    lua_Integer n = luaL_checkinteger(L, 2);
    const char *sep = luaL_optlstring(L, 3, "", &seplen);
    if (n <= 0 || len + seplen == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (__builtin_mul_overflow((size_t)n, len + seplen, &total) || total > BR_SCRIPT_STRING_MAX)
        return luaL_error(L, "string.rep would make a text of more than %d MiB",
                          (int)(BR_SCRIPT_STRING_MAX >> 20));
    br_script_tick(L, total / 8 + (uint64_t)n);
    luaL_Buffer b;
    luaL_buffinitsize(L, &b, total);
    for (lua_Integer i = 0; i < n; i++) {
        luaL_addlstring(&b, s, len);
        if (i + 1 < n)
            luaL_addlstring(&b, sep, seplen);
    }
    luaL_pushresult(&b);
    return 1;
}

/* format(f, ...): no %p, and values without addresses. */
static int str_format(lua_State *L)
{
    size_t len, total = 0;
    const char *f = luaL_checklstring(L, 1, &len);
    int n = lua_gettop(L);
    for (size_t i = 0; i + 1 < len; i++) {
        if (f[i] != '%')
            continue;
        for (i++; i < len && strchr("-+ #0123456789.", f[i]) && f[i]; i++)
            ;
        if (i < len && f[i] == 'p')
            return luaL_error(L, "string.format has no '%%p' here");
    }
    for (int i = 1; i <= n; i++) {
        if (lua_type(L, i) == LUA_TSTRING)
            total += lua_rawlen(L, i);
        if (i > 1 && lua_type(L, i) > LUA_TSTRING) {
            lua_pushcfunction(L, base_tostring);
            lua_pushvalue(L, i);
            lua_call(L, 1, 1);
            lua_replace(L, i);
        }
    }
    /* %q can make four bytes of one */
    if (total > BR_SCRIPT_STRING_MAX / 4)
        return luaL_error(L, "string.format would make a text of more than %d MiB",
                          (int)(BR_SCRIPT_STRING_MAX >> 22));
    return ticked(L);
}

/* ---- the environment ---- */

/* The standard library on top of the stack, the target under it: copy the named functions. */
static void take(lua_State *L, const char *const *names)
{
    for (; *names; names++) {
        lua_getfield(L, -1, *names);
        br_require(!lua_isnil(L, -1));
        if (lua_iscfunction(L, -1))
            lua_pushcclosure(L, ticked, 1);
        lua_setfield(L, -3, *names);
    }
    lua_pop(L, 1);
}

/* Push a table with the named functions of a standard library, and `own`. */
static void add_library(lua_State *L, lua_CFunction open, const char *const *names,
                        const luaL_Reg *own)
{
    lua_newtable(L);
    lua_pushcfunction(L, open);
    lua_call(L, 0, 1);
    take(L, names);
    if (own)
        luaL_setfuncs(L, own, 0);
}

static void add_strings(lua_State *L)
{
    static const char *const names[] = {"byte",  "char", "len",     "lower",
                                        "upper", "sub",  "reverse", NULL};
    static const luaL_Reg own[] = {{"rep", str_rep}, {NULL, NULL}};
    add_library(L, luaopen_string, names, own);
    luaL_setfuncs(L, br_script_pattern_lib, 0);
    lua_pushcfunction(L, luaopen_string);
    lua_call(L, 0, 1);
    lua_getfield(L, -1, "format");
    lua_remove(L, -2);
    lua_pushcclosure(L, str_format, 1); /* ticked() finds the original there */
    lua_setfield(L, -2, "format");
    /* one metatable for all texts: methods, and nothing else */
    lua_pushliteral(L, "");
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

void br_script_open_env(lua_State *L, lua_CFunction require)
{
    static const char *const base[] = {
        "assert", "error",  "getmetatable", "ipairs",   "next", "pairs", "rawequal",
        "rawget", "rawlen", "select",       "tonumber", "type", NULL};
    static const luaL_Reg own[] = {{"pcall", base_pcall},
                                   {"setmetatable", base_setmetatable},
                                   {"tostring", base_tostring},
                                   {NULL, NULL}};
    static const char *const math[] = {"abs",        "ceil", "floor",      "fmod", "huge", "max",
                                       "maxinteger", "min",  "mininteger", "modf", "pi",   "sqrt",
                                       "tointeger",  "type", "ult",        NULL};
    static const char *const utf[] = {"char", "charpattern", "codepoint", "codes",
                                      "len",  "offset",      NULL};
    static const char *const none[] = {NULL};
    int top = lua_gettop(L);
    add_library(L, luaopen_base, base, own);
    lua_pushcfunction(L, require);
    lua_setfield(L, -2, "require");
    lua_pushliteral(L, "Lua 5.4");
    lua_setfield(L, -2, "_VERSION");
    add_strings(L);
    br_script_lock(L, "string function");
    lua_setfield(L, -2, "string");
    add_library(L, luaopen_table, none, br_script_table_lib);
    br_script_lock(L, "table function");
    lua_setfield(L, -2, "table");
    add_library(L, luaopen_math, math, NULL);
    br_script_lock(L, "math function");
    lua_setfield(L, -2, "math");
    add_library(L, luaopen_utf8, utf, NULL);
    br_script_lock(L, "utf8 function");
    lua_setfield(L, -2, "utf8");
    lua_pushcfunction(L, require);
    lua_pushliteral(L, "json");
    lua_call(L, 1, 1);
    lua_setfield(L, -2, "json");
    br_script_lock(L, "global");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &env_key);
    lua_settop(L, top);
}
