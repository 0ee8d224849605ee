/*
 * The pattern matcher against the one of the standard library: same results, same refusals. The
 * input is a pattern, a zero byte, a subject; both short, since the other one has no budget.
 */
#include <string.h>

#include <lualib.h>

#include "script/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const char *function, *pattern, *subject;
    size_t pattern_len, subject_len;
};

/* (input) on the stack and string at upvalue 1: the results as one text. */
static int run(lua_State *L)
{
    const struct input *in = lua_touserdata(L, 1);
    lua_settop(L, 0);
    lua_getfield(L, lua_upvalueindex(1), in->function);
    lua_pushlstring(L, in->subject, in->subject_len);
    lua_pushlstring(L, in->pattern, in->pattern_len);
    bool sub = strcmp(in->function, "gsub") == 0;
    if (sub)
        lua_pushliteral(L, "<%0>");
    lua_call(L, sub ? 3 : 2, LUA_MULTRET);
    luaL_Buffer b;
    int n = lua_gettop(L);
    luaL_buffinit(L, &b);
    for (int i = 1; i <= n; i++) {
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&b);
        luaL_addchar(&b, '|');
    }
    luaL_pushresult(&b);
    return 1;
}

static lua_State *standard(void)
{
    lua_State *L = luaL_newstate();
    br_require(L != NULL);
    luaL_requiref(L, "string", luaopen_string, 0);
    lua_pushcclosure(L, run, 1);
    return L;
}

static struct br_script *sandboxed(void)
{
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    br_require(s != NULL);
    br_script_push_env(s->L);
    lua_getfield(s->L, -1, "string");
    lua_remove(s->L, -2);
    lua_pushcclosure(s->L, run, 1);
    return s;
}

static void compare(const struct input *in, lua_State *L, struct br_script *s)
{
    struct br_err err = {.code = BR_OK};
    lua_pushvalue(L, -1);
    lua_pushlightuserdata(L, (void *)(uintptr_t)in);
    int theirs = lua_pcall(L, 1, 1, 0);
    lua_pushvalue(s->L, -1);
    lua_pushlightuserdata(s->L, (void *)(uintptr_t)in);
    int ours = br_script_call(s, 1, 1, BR_SCRIPT_COMPILE_US, BR_E_FAILED, &err);
    if (ours == 0) {
        size_t n, m;
        const char *a = lua_tolstring(s->L, -1, &n), *b = lua_tolstring(L, -1, &m);
        br_require(theirs == LUA_OK && n == m && memcmp(a, b, n) == 0);
        lua_pop(s->L, 1);
    } else if (!strstr(err.text, "too many steps")) {
        br_require(theirs != LUA_OK);
    }
    lua_pop(L, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lua_State *L;
    static struct br_script *s;
    static const char *const functions[] = {"find", "match", "gsub"};
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    if (!zero || zero - data > 14 || size > 40)
        return 0;
    if (!L) {
        L = standard();
        s = sandboxed();
    }
    struct input in = {.pattern = (const char *)data,
                       .pattern_len = (size_t)(zero - data),
                       .subject = (const char *)zero + 1,
                       .subject_len = size - (size_t)(zero - data) - 1};
    for (size_t i = 0; i < BR_ARRAY_LEN(functions); i++) {
        in.function = functions[i];
        compare(&in, L, s);
    }
    return 0;
}
