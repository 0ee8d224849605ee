/*
 * The module `bridle.host`: what the embedded modules have that no script can require. Its
 * functions check their arguments as others do, because what reaches them comes from scripts.
 * Called by the modules of lua/bridle; opened by state.c.
 */
#include <string.h>

#include "script/script.h"

/* where(level): file and line of a caller, nil where it is not Lua. */
static int host_where(lua_State *L)
{
    lua_Debug ar;
    lua_Integer level = luaL_checkinteger(L, 1);
    if (level < 0 || level > 200 || !lua_getstack(L, (int)level, &ar) ||
        !lua_getinfo(L, "Sl", &ar) || ar.currentline <= 0)
        return 0;
    lua_pushstring(L, ar.short_src);
    lua_pushinteger(L, ar.currentline);
    return 2;
}

#define BUNDLES "policy."

/* bundles(): the names of the shipped bundles. */
static int host_bundles(lua_State *L)
{
    lua_newtable(L);
    for (unsigned i = 0, n = 0; i < br_script_nmodules; i++) {
        if (strncmp(br_script_modules[i].name, BUNDLES, strlen(BUNDLES)) != 0)
            continue;
        lua_pushstring(L, br_script_modules[i].name + strlen(BUNDLES));
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* bundle(name): what a shipped file returns; it runs once a state. Upvalue 1 is `require`. */
static int host_bundle(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushfstring(L, BUNDLES "%s", luaL_checkstring(L, 1));
    lua_call(L, 1, 1);
    return 1;
}

static int new_value(lua_State *L)
{
    lua_createtable(L, 0, 0);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_setmetatable(L, -2);
    return 1;
}

/* class(metatable): a function that makes empty values with this metatable, which is theirs alone
 * from now on and is not shown. For modules, whose metamethods need no check. */
static int host_class(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_pushboolean(L, 0);
    lua_setfield(L, 1, "__metatable");
    lua_pushcclosure(L, new_value, 1);
    return 1;
}

/* literal(pattern): how many bytes stand before its first wildcard, and behind its last one; both
 * are all of them if there is none. */
static int host_literal(lua_State *L)
{
    size_t n, tail = 0;
    const char *s = luaL_checklstring(L, 1, &n);
    size_t head = strcspn(s, "*?");
    while (tail < n && s[n - 1 - tail] != '*' && s[n - 1 - tail] != '?')
        tail++;
    lua_pushinteger(L, (lua_Integer)head);
    lua_pushinteger(L, (lua_Integer)tail);
    return 2;
}

/* part(text, first, last): bytes of a short text, from 1, both within it. */
static int host_part(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);
    lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3);
    if (first < 1 || last > (lua_Integer)n || first > last)
        return lua_pushliteral(L, ""), 1;
    lua_pushlstring(L, s + first - 1, (size_t)(last - first + 1));
    return 1;
}

/* keep(f): what compile.c calls for the data of a bundle. */
static int host_keep(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, BR_SCRIPT_BUNDLE_DATA);
    return 0;
}

/* defined(f): file and line where a function of Lua begins, nothing for one of C. */
static int host_defined(lua_State *L)
{
    lua_Debug ar;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    if (!lua_getinfo(L, ">S", &ar) || ar.linedefined <= 0)
        return 0;
    lua_pushstring(L, ar.short_src);
    lua_pushinteger(L, ar.linedefined);
    return 2;
}

/* ---- errors of a policy, all of them ---- */

/* collecting(): is a problem noted, in the place of an error. */
static int host_collecting(lua_State *L)
{
    lua_pushboolean(L, br_script_of(L)->collecting);
    return 1;
}

/* Does the text begin with "FILE:LINE: ". */
static bool has_place(const char *text)
{
    size_t n = strcspn(text, ": ");
    return n > 0 && text[n] == ':' && text[n + 1] >= '0' && text[n + 1] <= '9';
}

/* problem(text): notes one, with its place. */
static int host_problem(lua_State *L)
{
    struct br_script *s = br_script_of(L);
    const char *text = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "an error without text";
    unsigned line = br_script_line(L, s);
    if (s->nproblems++ >= BR_SCRIPT_PROBLEMS_MAX || !s->problems)
        return 0;
    text = br_script_without_module(text);
    if (!line) /* a tail call has taken it from the stack */
        line = s->last_line;
    if (has_place(text) || !line)
        lua_pushstring(L, text);
    else
        lua_pushfstring(L, "%s:%d: %s", s->chunk, (int)line, text);
    (void)json_array_append_new(s->problems, json_string(lua_tostring(L, -1)));
    return 0;
}

/* ---- the rules of a table as JSON ---- */

#define ROWS "bridle.host.rows"

static int rows_gc(lua_State *L)
{
    br_buf_free(lua_touserdata(L, 1));
    return 0;
}

/* rows(): a list that is JSON already; the encoder takes it where a list may stand. */
static int host_rows(lua_State *L)
{
    struct br_buf *b = lua_newuserdatauv(L, sizeof(*b), 0);
    br_buf_init(b, BR_TABLE_MAX);
    luaL_setmetatable(L, ROWS);
    if (br_buf_put_u8(b, '[') < 0)
        return luaL_error(L, "no memory for the rules");
    return 1;
}

const struct br_buf *br_script_rows(lua_State *L, int idx)
{
    return luaL_testudata(L, idx, ROWS);
}

/*
 * row(rows, action, command, effect, file, id, line, match, pattern, reason, source, when): adds an
 * object with these members, in the order of their names, without those that are nil.
 */
static int host_row(lua_State *L)
{
    static const char *const names[] = {"action", "command", "effect", "file",   "id",  "line",
                                        "match",  "pattern", "reason", "source", "when"};
    struct br_buf *b = luaL_checkudata(L, 1, ROWS);
    struct br_err err = {.code = BR_OK};
    lua_settop(L, 1 + (int)BR_ARRAY_LEN(names));
    br_script_tick(L, 100);
    bool first = true;
    br_buf_put(b, b->len > 1 ? ",{" : "{", b->len > 1 ? 2 : 1);
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        if (lua_isnil(L, (int)i + 2))
            continue;
        br_buf_put(b, first ? "\"" : ",\"", first ? 1 : 2);
        br_buf_put(b, names[i], strlen(names[i]));
        br_buf_put(b, "\":", 2);
        first = false;
        if (br_script_json_encode(L, (int)i + 2, b, &err) < 0)
            return luaL_error(L, "%s", err.text);
    }
    br_buf_put_u8(b, '}');
    if (b->failed)
        return luaL_error(L, "no memory for the decision table, or it is longer than %d MiB",
                          (int)(BR_TABLE_MAX >> 20));
    return 0;
}

void br_script_open_host(lua_State *L, lua_CFunction require)
{
    static const luaL_Reg functions[] = {{"where", host_where},     {"literal", host_literal},
                                         {"part", host_part},       {"keep", host_keep},
                                         {"class", host_class},     {"defined", host_defined},
                                         {"bundles", host_bundles}, {"rows", host_rows},
                                         {"row", host_row},         {"collecting", host_collecting},
                                         {"problem", host_problem}, {"rule", br_quick_rule},
                                         {"names", br_quick_names}, {NULL, NULL}};
    luaL_newmetatable(L, ROWS);
    lua_pushcfunction(L, rows_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    lua_pushcfunction(L, require);
    lua_pushcclosure(L, host_bundle, 1);
    lua_setfield(L, -2, "bundle");
}
