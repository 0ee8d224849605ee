/*
 * Read-only views of data: an empty table in front of the real one, which nothing that a script can
 * call gives away. Reading a table inside of it gives a view of that table. Called by whoever hands
 * data to a script that must not change it; scripts reach only the metamethods below.
 */
#include "script/script.h"

static const char real_key = 0;

bool br_script_view_open(lua_State *L, int idx)
{
    if (!lua_istable(L, idx) || !lua_getmetatable(L, idx))
        return false;
    bool is = lua_rawgetp(L, -1, &real_key) == LUA_TTABLE;
    lua_remove(L, -2);
    if (!is)
        lua_pop(L, 1);
    return is;
}

/* The table behind the argument; an error for what is no view. */
static void open_arg(lua_State *L, int arg)
{
    if (!br_script_view_open(L, arg))
        luaL_argerror(L, arg, "a snapshot is expected");
}

static int view_index(lua_State *L)
{
    lua_settop(L, 2);
    open_arg(L, 1);
    lua_pushvalue(L, 2);
    lua_rawget(L, 3);
    br_script_view_push(L, -1);
    return 1;
}

static int view_newindex(lua_State *L)
{
    return luaL_error(L, "a snapshot cannot be changed; copy(x) makes a table of your own");
}

static int view_len(lua_State *L)
{
    open_arg(L, 1);
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, -1));
    return 1;
}

static int view_next(lua_State *L)
{
    lua_settop(L, 2);
    open_arg(L, 1);
    lua_pushvalue(L, 2);
    br_script_tick(L, 2);
    if (!lua_next(L, 3))
        return lua_pushnil(L), 1;
    br_script_view_push(L, -1);
    lua_replace(L, -2);
    return 2;
}

static int view_pairs(lua_State *L)
{
    open_arg(L, 1);
    lua_pushcfunction(L, view_next);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

static int view_eq(lua_State *L)
{
    lua_settop(L, 2);
    bool both = br_script_view_open(L, 1) && br_script_view_open(L, 2);
    lua_pushboolean(L, both && lua_rawequal(L, 3, 4));
    return 1;
}

void br_script_view_push(lua_State *L, int idx)
{
    static const luaL_Reg functions[] = {{"__index", view_index}, {"__newindex", view_newindex},
                                         {"__len", view_len},     {"__pairs", view_pairs},
                                         {"__eq", view_eq},       {NULL, NULL}};
    idx = lua_absindex(L, idx);
    if (!lua_istable(L, idx)) {
        lua_pushvalue(L, idx);
        return;
    }
    lua_newtable(L);
    lua_createtable(L, 0, 8);
    luaL_setfuncs(L, functions, 0);
    lua_pushvalue(L, idx);
    lua_rawsetp(L, -2, &real_key);
    lua_pushliteral(L, "snapshot");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
}
