/*
 * Rules as nearly everybody writes them, recognised in one step. Each function says yes only to
 * what the Lua beside it (policy.lua, command.lua, pattern.lua) would accept without a word; to
 * whatever else is there it says nothing, and the Lua looks closely and finds the words for what is
 * wrong. So nothing is accepted or refused here that would not be there. Called by these modules;
 * the texts are the operator's.
 */
#include <string.h>

#include "script/script.h"

#define TEXT_MAX 255u
#define LIST_MAX 256u

static bool is_lower(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_word(unsigned char c)
{
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

static bool is_id(const char *s, size_t n)
{
    if (n == 0 || n > 64 || !is_lower((unsigned char)s[0]))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!is_lower((unsigned char)s[i]) && !memchr("._-", s[i], 3))
            return false;
    return true;
}

/* Printable ASCII. */
static bool is_line(const char *s, size_t n, size_t max)
{
    if (n == 0 || n > max)
        return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return true;
}

/* ---- patterns ---- */

enum kind { ANY, COMMAND, PATH, HOST, TEXT };
static const char *const kinds[] = {"any", "command", "path", "host", "text"};

static bool is_command(const char *s, size_t n)
{
    size_t blanks = 0;
    for (size_t i = 0; i < n; i++) {
        blanks += s[i] == ' ';
        if (!is_word((unsigned char)s[i]) && !memchr("._/*- ", s[i], 6))
            return false;
    }
    return is_word((unsigned char)s[0]) && blanks < 2 && s[n - 1] != ' ';
}

static bool is_path(const char *s, size_t n)
{
    size_t segment = 0, dots = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i == n || s[i] == '/') {
            if (segment == 0 || (segment <= 2 && dots == segment))
                return false;
            segment = dots = 0;
            continue;
        }
        if (!is_word((unsigned char)s[i]) && !memchr("._*-", s[i], 4))
            return false;
        segment++;
        dots += s[i] == '.';
    }
    return true;
}

static bool is_host(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_lower((unsigned char)s[i]) && !memchr(".*:_-", s[i], 5))
            return false;
    return s[n - 1] != '.' && s[n - 1] != ':';
}

static bool is_pattern(enum kind kind, const char *s, size_t n)
{
    if (n == 0 || n > BR_PATTERN_MAX)
        return false;
    switch (kind) {
    case COMMAND:
        return is_command(s, n);
    case PATH:
        return is_path(s, n);
    case HOST:
        return is_host(s, n);
    case TEXT:
        return is_line(s, n, BR_PATTERN_MAX);
    default:
        return false;
    }
}

/* What pattern.matcher() says. */
static enum kind kind_of(const char *action)
{
    if (strcmp(action, "process.exec") == 0)
        return COMMAND;
    if (strncmp(action, "fs.", 3) == 0)
        return PATH;
    return strcmp(action, "network") == 0 ? HOST : TEXT;
}

/* ---- rules ---- */

struct rule {
    int id, action, pattern, reason; /* indices on the stack; 0: not there */
    enum kind kind;
};

/* The field whose value is at idx. False: look closely. */
static bool take_field(lua_State *L, struct rule *r, const char *key, int idx)
{
    size_t n;
    const char *s = lua_type(L, idx) == LUA_TSTRING ? lua_tolstring(L, idx, &n) : NULL;
    for (enum kind k = COMMAND; k <= TEXT; k++) {
        if (strcmp(key, kinds[k]) != 0)
            continue;
        bool first = r->kind == ANY;
        r->kind = k;
        r->pattern = idx;
        return first && (s ? is_pattern(k, s, n) : k == COMMAND);
    }
    if (!s)
        return false;
    if (strcmp(key, "id") == 0) {
        r->id = idx;
        return is_id(s, n);
    }
    if (strcmp(key, "action") == 0) {
        r->action = idx;
        return n > 0;
    }
    r->reason = idx;
    return strcmp(key, "reason") == 0 && is_line(s, n, 512);
}

#define FIELDS_MAX 4

/*
 * rule(fields, actions, commands): id, action, kind of matcher, pattern, data of a structured
 * command, reason; nothing for a rule that must be looked at closely. `actions` has the known
 * actions, `commands` the data of structured commands.
 */
int br_quick_rule(lua_State *L)
{
    struct rule r = {.kind = ANY};
    lua_settop(L, 3);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    if (!lua_istable(L, 1) || lua_getmetatable(L, 1))
        return 0;
    lua_pushnil(L);
    for (int n = 0; lua_next(L, 1); n++) {
        if (n == FIELDS_MAX || lua_type(L, -2) != LUA_TSTRING)
            return 0;
        int value = lua_gettop(L);
        if (!take_field(L, &r, lua_tostring(L, value - 1), value))
            return 0;
        lua_pushvalue(L, value - 1); /* the key; the value stays where it is */
    }
    if (!r.id || !r.action)
        return 0;
    const char *action = lua_tostring(L, r.action);
    if (r.kind != ANY && r.kind != kind_of(action))
        return 0;
    lua_pushvalue(L, r.action);
    if (lua_rawget(L, 2) != LUA_TBOOLEAN)
        return 0;
    bool structured = r.kind == COMMAND && lua_type(L, r.pattern) != LUA_TSTRING;
    if (structured) {
        lua_pushvalue(L, r.pattern);
        if (lua_rawget(L, 3) != LUA_TTABLE)
            return 0;
        r.pattern = lua_gettop(L);
    }
    luaL_checkstack(L, 8, "rule");
    lua_pushvalue(L, r.id);
    lua_pushvalue(L, r.action);
    lua_pushstring(L, kinds[r.kind]);
    if (r.kind == ANY || structured)
        lua_pushnil(L);
    else
        lua_pushvalue(L, r.pattern);
    if (structured)
        lua_pushvalue(L, r.pattern);
    else
        lua_pushnil(L);
    if (r.reason)
        lua_pushvalue(L, r.reason);
    else
        lua_pushnil(L);
    return 6;
}

/* ---- names ---- */

/* A program, or a word that is no option; a flag has its dash. Neither has a wildcard, a blank or
 * what separates a flag from its value. */
static bool is_name(const char *s, size_t n, bool flag)
{
    if (n == 0 || n > TEXT_MAX)
        return false;
    size_t i = 0;
    if (flag) {
        i = n > 2 && s[1] == '-' ? 2 : 1;
        if (s[0] != '-' || i == n || (i == 1 && n != 2))
            return false;
    }
    if (!is_word((unsigned char)s[i]))
        return false;
    for (; i < n; i++)
        if (!is_word((unsigned char)s[i]) && !memchr("._+-", s[i], 4))
            return false;
    return true;
}

/*
 * names(value, flag): a copy of a list of names, or of flags (a single one is a list of one), and
 * the same joined by '|'; nothing for what must be looked at closely.
 */
int br_quick_names(lua_State *L)
{
    char joined[512];
    size_t at = 0;
    bool flag = lua_toboolean(L, 2);
    lua_settop(L, 1);
    if (lua_type(L, 1) == LUA_TSTRING) {
        lua_createtable(L, 1, 0);
        lua_insert(L, 1);
        lua_rawseti(L, 1, 1);
    }
    if (!lua_istable(L, 1) || lua_getmetatable(L, 1))
        return 0;
    size_t len = lua_rawlen(L, 1), count = 0;
    if (len == 0 || len > LIST_MAX)
        return 0;
    lua_createtable(L, (int)len, 0);
    lua_pushnil(L);
    for (; lua_next(L, 1); count++) {
        size_t n;
        const char *s = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
        if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) != (lua_Integer)count + 1 || !s ||
            !is_name(s, n, flag) || at + n + 1 > sizeof(joined))
            return 0;
        if (at)
            joined[at++] = '|';
        memcpy(joined + at, s, n);
        at += n;
        lua_rawseti(L, 2, (lua_Integer)count + 1);
    }
    if (count != len)
        return 0;
    lua_pushlstring(L, joined, at);
    return 2;
}
