/*
 * The table library with limits: raw access only, so that no __len or __index decides how long a
 * loop is, at most BR_SCRIPT_TABLE_MAX elements, every walk counted against the deadline.
 * Called by scripts that are not trusted.
 */
#include "script/script.h"

#include "script/api_table.h"

/* The length of the plain table at idx. A metatable that would answer for it is refused. */
static lua_Integer plain(lua_State *L, int idx)
{
    luaL_checktype(L, idx, LUA_TTABLE);
    if (luaL_getmetafield(L, idx, "__index") != LUA_TNIL ||
        luaL_getmetafield(L, idx, "__newindex") != LUA_TNIL)
        luaL_argerror(L, idx, "a table with its own access functions cannot be used here");
    lua_Unsigned n = lua_rawlen(L, idx);
    if (n > BR_SCRIPT_TABLE_MAX)
        luaL_argerror(L, idx, "the table has too many elements");
    return (lua_Integer)n;
}

/* The number of elements of the range, which must be within the limit. */
static lua_Integer range(lua_State *L, int arg, lua_Integer first, lua_Integer last)
{
    if (first > last)
        return 0;
    lua_Unsigned n = (lua_Unsigned)last - (lua_Unsigned)first;
    if (n >= BR_SCRIPT_TABLE_MAX)
        luaL_argerror(L, arg, "the range has too many elements");
    br_script_tick(L, n + 1);
    return (lua_Integer)n + 1;
}

int br_lua_insert(lua_State *L)
{
    lua_Integer n = plain(L, 1), at = n + 1;
    int args = lua_gettop(L);
    if (args != 2 && args != 3)
        return luaL_error(L, "table.insert takes a table, a position and a value");
    if (args == 3) {
        at = luaL_checkinteger(L, 2);
        luaL_argcheck(L, at >= 1 && at <= n + 1, 2, "position out of bounds");
        br_script_tick(L, (uint64_t)(n - at + 1));
        for (lua_Integer i = n; i >= at; i--) {
            lua_rawgeti(L, 1, i);
            lua_rawseti(L, 1, i + 1);
        }
    }
    luaL_argcheck(L, n < BR_SCRIPT_TABLE_MAX, 1, "the table has too many elements");
    br_script_tick(L, 1);
    lua_rawseti(L, 1, at);
    return 0;
}

int br_lua_remove(lua_State *L)
{
    lua_Integer n = plain(L, 1), at = luaL_optinteger(L, 2, n);
    if (n == 0 && (at == 0 || at == n + 1))
        return lua_pushnil(L), 1;
    luaL_argcheck(L, at >= 1 && at <= n + 1, 2, "position out of bounds");
    br_script_tick(L, (uint64_t)(n - at + 1));
    lua_rawgeti(L, 1, at);
    for (lua_Integer i = at; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        lua_rawseti(L, 1, i);
    }
    if (at <= n) {
        lua_pushnil(L);
        lua_rawseti(L, 1, n);
    }
    return 1;
}

int br_lua_concat(lua_State *L)
{
    lua_Integer n = plain(L, 1);
    size_t seplen, total = 0;
    const char *sep = luaL_optlstring(L, 2, "", &seplen);
    lua_Integer first = luaL_optinteger(L, 3, 1), last = luaL_optinteger(L, 4, n);
    lua_Integer count = range(L, 4, first, last);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (lua_Integer k = 0; k < count; k++) {
        size_t len;
        int type = lua_rawgeti(L, 1, first + k);
        if (type != LUA_TSTRING && type != LUA_TNUMBER)
            return luaL_error(L, "table.concat: element %d is a %s, not a text", (int)(first + k),
                              luaL_typename(L, -1));
        (void)lua_tolstring(L, -1, &len);
        total += len + seplen;
        if (total > BR_SCRIPT_STRING_MAX)
            return luaL_error(L, "table.concat would make a text of more than %d MiB",
                              (int)(BR_SCRIPT_STRING_MAX >> 20));
        br_script_tick(L, (len + seplen) / 8);
        luaL_addvalue(&b);
        if (k + 1 < count)
            luaL_addlstring(&b, sep, seplen);
    }
    luaL_pushresult(&b);
    return 1;
}

int br_lua_unpack(lua_State *L)
{
    lua_Integer n = plain(L, 1);
    lua_Integer first = luaL_optinteger(L, 2, 1), last = luaL_optinteger(L, 3, n);
    lua_Integer count = range(L, 3, first, last);
    if (count >= 10000 || !lua_checkstack(L, (int)count))
        return luaL_error(L, "table.unpack has too many results");
    for (lua_Integer k = 0; k < count; k++)
        lua_rawgeti(L, 1, first + k);
    return (int)count;
}

int br_lua_pack(lua_State *L)
{
    int n = lua_gettop(L);
    lua_createtable(L, n, 1);
    lua_insert(L, 1);
    for (int i = n; i >= 1; i--)
        lua_rawseti(L, 1, i);
    lua_pushinteger(L, n);
    lua_setfield(L, 1, "n");
    return 1;
}

/* a[i] < a[j] for the values on top: [-0, +0]; the comparison function is at 2, or nil. */
static bool less(lua_State *L, int a, int b)
{
    if (lua_isnil(L, 2))
        return lua_compare(L, a, b, LUA_OPLT);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, a < 0 ? a - 1 : a);
    lua_pushvalue(L, b < 0 ? b - 2 : b);
    lua_call(L, 2, 1);
    bool r = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return r;
}

/* Let the element at `root` sink in the heap of t[1..n]. */
static void sift(lua_State *L, lua_Integer root, lua_Integer n)
{
    for (;;) {
        lua_Integer child = 2 * root;
        if (child > n)
            return;
        br_script_tick(L, 8);
        lua_rawgeti(L, 1, child);
        if (child < n) {
            lua_rawgeti(L, 1, child + 1);
            if (less(L, -2, -1)) {
                child++;
                lua_replace(L, -2);
            } else {
                lua_pop(L, 1);
            }
        }
        lua_rawgeti(L, 1, root);
        if (!less(L, -1, -2)) {
            lua_pop(L, 2);
            return;
        }
        lua_rawseti(L, 1, child);
        lua_rawseti(L, 1, root);
        root = child;
    }
}

/* sort(t, less): a heap sort, n log n whatever the comparison answers. */
int br_lua_sort(lua_State *L)
{
    lua_Integer n = plain(L, 1);
    lua_settop(L, 2);
    if (!lua_isnil(L, 2))
        luaL_checktype(L, 2, LUA_TFUNCTION);
    for (lua_Integer root = n / 2; root >= 1; root--)
        sift(L, root, n);
    for (lua_Integer last = n; last > 1; last--) {
        lua_rawgeti(L, 1, last);
        lua_rawgeti(L, 1, 1);
        lua_rawseti(L, 1, last);
        lua_rawseti(L, 1, 1);
        sift(L, 1, last - 1);
    }
    return 0;
}
