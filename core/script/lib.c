/*
 * The globals of a sandboxed state: an allow list, read-only, strict. What is not here (load,
 * coroutines, metamethods that run at odd times, anything that shows an address) does not exist.
 * Called by scripts that are not trusted: each function bounds its work and ticks the deadline.
 */
#include <string.h>

#include <lualib.h>

#include "script/script.h"

/*
 * What is registered is what core/script/api.def says: the rows are made of it. `f` NULL: the
 * standard library's, as it is for a value, behind ticked() for a function; `wrap`: f has the
 * standard library's as its upvalue.
 */
struct api_row {
    const char *library, *name;
    lua_CFunction f;
    bool wrap;
};

/* What a text of an operator may require; `data`: every module whose name begins so. */
struct api_module {
    const char *name;
    bool data;
    unsigned purposes;
};

#define BR_API_TABLE
#include "script/api_table.h"

static const char env_key = 0, operator_key = 0;

void br_script_push_env(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &env_key);
}

void br_script_push_operator_env(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &operator_key);
}

/* ---- read-only views ---- */

/* Names that people try, and what to say instead of the nearest name. */
static const char *absent_hint(const char *name)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(api_absent); i++)
        if (strcmp(api_absent[i], name) == 0)
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
    bool global = strcmp(what, "global") == 0;
    if (global && strcmp(name, "policy") == 0)
        return luaL_error(L, "global 'policy' is not there; begin with 'local policy = require "
                             "\"bridle.policy\"'");
    if (global && distance(name, "policy") < 3) { /* the local that every policy has */
        nearest = "policy";
        least = distance(name, nearest);
    }
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
int br_lua_tostring(lua_State *L)
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
int br_lua_pcall(lua_State *L)
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
int br_lua_setmetatable(lua_State *L)
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

int br_lua_rep(lua_State *L)
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
int br_lua_format(lua_State *L)
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
            lua_pushcfunction(L, br_lua_tostring);
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

/* Push the standard library's value for a row. [-0, +1] */
static void push_standard(lua_State *L, int library, const struct api_row *row)
{
    lua_getfield(L, library, row->name);
    br_require(!lua_isnil(L, -1));
}

/* Functions whose work does not depend on their arguments: the count hook sees the calls. */
static bool is_constant_time(const struct api_row *row)
{
    static const char *const names[] = {"ipairs", "next", "rawequal", "rawget", "rawlen", "type"};
    for (size_t i = 0; strcmp(row->library, "base") == 0 && i < BR_ARRAY_LEN(names); i++)
        if (strcmp(row->name, names[i]) == 0)
            return true;
    return false;
}

/* Push a new table with the rows of a library; `open` (may be NULL) opens the standard one. */
static void push_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_newtable(L);
    if (open) {
        lua_pushcfunction(L, open);
        lua_call(L, 0, 1);
    } else {
        lua_newtable(L);
    }
    int standard = lua_gettop(L);
    for (size_t i = 0; i < BR_ARRAY_LEN(api_rows); i++) {
        const struct api_row *row = &api_rows[i];
        if (strcmp(row->library, name) != 0)
            continue;
        if (!row->f || row->wrap)
            push_standard(L, standard, row);
        if (row->f)
            lua_pushcclosure(L, row->f, row->wrap);
        else if (lua_iscfunction(L, -1) && !is_constant_time(row))
            lua_pushcclosure(L, ticked, 1);
        lua_setfield(L, standard - 1, row->name);
    }
    lua_settop(L, standard - 1);
}

/* One metatable for all texts: the methods of the table on top, and nothing else. */
static void lock_strings(lua_State *L)
{
    lua_pushliteral(L, "");
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

static void add_libraries(lua_State *L)
{
    static const luaL_Reg libraries[] = {
        {"string", luaopen_string}, {"table", luaopen_table}, {"math", luaopen_math},
        {"utf8", luaopen_utf8},     {"json", NULL},           {NULL, NULL}};
    for (const luaL_Reg *l = libraries; l->name; l++) {
        char what[32];
        push_library(L, l->name, l->func);
        if (l->func == luaopen_string)
            lock_strings(L);
        if (!l->func)
            br_script_open_json(L);
        snprintf(what, sizeof(what), "%s function", l->name);
        br_script_lock(L, what);
        lua_setfield(L, -2, l->name);
    }
}

/* Two environments of the same libraries: modules may require each other, an operator's text what
 * the API says. */
void br_script_open_env(lua_State *L, lua_CFunction require)
{
    push_library(L, "base", luaopen_base);
    add_libraries(L);
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, -3)) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    lua_pushcfunction(L, require);
    lua_setfield(L, -2, "require");
    lua_getfield(L, -1, "json");
    lua_insert(L, -3);
    br_script_lock(L, "global");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &env_key);
    br_script_lock(L, "global");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &operator_key);
}

static bool is_module(const struct api_module *m, const char *name)
{
    return m->data ? strncmp(m->name, name, strlen(m->name)) == 0 : strcmp(m->name, name) == 0;
}

void br_script_check_module(lua_State *L, const char *name)
{
    unsigned purpose = br_script_of(L)->purpose;
    char text[256] = "";
    for (size_t i = 0; i < BR_ARRAY_LEN(api_modules); i++) {
        const struct api_module *m = &api_modules[i];
        size_t at = strlen(text);
        if (purpose && !(m->purposes & purpose))
            continue;
        if (is_module(m, name))
            return;
        snprintf(text + at, sizeof(text) - at, "%s'%s%s'", at ? ", " : "", m->name,
                 m->data ? "..." : "");
    }
    luaL_error(L, "there is no module '%s'; here are %s", name, text);
}
