/*
 * Values for people, bounded in every direction: a table on one line if it fits, else a key a line,
 * sorted; what is left out is said in its place. Used by purpose inspect of bridle-script, on
 * values that a script made: no metamethod is called, and no text reaches the output but as visible
 * characters. Depth of recursion is bounded by BR_PRINT_DEPTH_MAX.
 */
#include <stdlib.h>
#include <string.h>

#include "script/script.h"

/* Keys of one table that are put in order; more are counted. */
#define KEYS_MAX 1000u

struct printer {
    lua_State *L;
    const struct br_print_limits *limits;
    struct br_buf *out;
    size_t end; /* on one line: where it would become too long; 0: on several */
    bool too_long;
};

static void put(struct printer *p, const char *s)
{
    br_buf_put(p->out, s, strlen(s));
}

static void put_text(struct printer *p, const char *s, size_t n)
{
    size_t shown = n > p->limits->string ? br_utf8_floor(s, p->limits->string) : n;
    if (shown < n && shown + 4 < p->limits->string)
        shown = p->limits->string; /* it is no UTF-8 anyway */
    put(p, "\"");
    for (size_t i = 0, run = 0; i <= shown; i++) {
        bool special = i < shown && (s[i] == '"' || s[i] == '\\' || s[i] == '\n' || s[i] == '\t');
        if (i < shown && !special)
            continue;
        br_buf_put_visible(p->out, s + run, i - run, true);
        run = i + 1;
        if (special)
            br_buf_printf(p->out, "\\%c", s[i] == '\n' ? 'n' : s[i] == '\t' ? 't' : s[i]);
    }
    put(p, "\"");
    if (shown < n)
        br_buf_printf(p->out, "... %zu more bytes", n - shown);
}

static bool is_name(const char *s, size_t n)
{
    static const char *const words[] = {"and",   "break", "do",       "else", "elseif", "end",
                                        "false", "for",   "function", "goto", "if",     "in",
                                        "local", "nil",   "not",      "or",   "repeat", "return",
                                        "then",  "true",  "until",    "while"};
    if (n == 0 || n > 64 || (s[0] >= '0' && s[0] <= '9'))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(s[i] == '_' || (s[i] >= '0' && s[i] <= '9') ||
              ((s[i] | 32) >= 'a' && (s[i] | 32) <= 'z')))
            return false;
    for (size_t i = 0; i < BR_ARRAY_LEN(words); i++)
        if (strlen(words[i]) == n && memcmp(words[i], s, n) == 0)
            return false;
    return true;
}

static void put_scalar(struct printer *p, int idx)
{
    lua_State *L = p->L;
    size_t n;
    const char *s;
    switch (lua_type(L, idx)) {
    case LUA_TSTRING:
        s = lua_tolstring(L, idx, &n);
        put_text(p, s, n);
        break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, idx)) {
            br_buf_printf(p->out, "%lld", (long long)lua_tointeger(L, idx));
        } else {
            char text[48];
            snprintf(text, sizeof(text), "%.14g", lua_tonumber(L, idx));
            br_buf_printf(p->out, "%s%s", text, strpbrk(text, ".ein") ? "" : ".0");
        }
        break;
    case LUA_TBOOLEAN:
        put(p, lua_toboolean(L, idx) ? "true" : "false");
        break;
    case LUA_TUSERDATA:
        lua_pushvalue(L, idx);
        if (luaL_getmetafield(L, -1, "__name") == LUA_TSTRING) {
            s = lua_tolstring(L, -1, &n);
            br_buf_put_visible(p->out, s, n, true);
            lua_pop(L, 2);
        } else {
            put(p, "userdata");
            lua_pop(L, 1);
        }
        break;
    default:
        put(p, luaL_typename(L, idx));
        break;
    }
}

struct keys {
    size_t list;  /* 1..list are a list */
    size_t total; /* other keys, */
    size_t kept;  /* of which so many are in the table of keys */
    bool array;   /* an empty one is [] */
};

/* Push a list of the keys beyond the list part, at most KEYS_MAX: [-0, +1]. */
static void find_keys(struct printer *p, int idx, struct keys *k)
{
    lua_State *L = p->L;
    *k = (struct keys){.list = lua_rawlen(L, idx)};
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, idx)) {
        lua_pop(L, 1);
        br_script_tick(L, 2);
        lua_Integer i = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
        if (i >= 1 && (lua_Unsigned)i <= k->list)
            continue;
        k->total++;
        if (k->kept == KEYS_MAX)
            continue;
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, (lua_Integer)++k->kept);
    }
}

/* Numbers before texts before the rest. */
static bool key_less(lua_State *L, int a, int b)
{
    int ta = lua_type(L, a), tb = lua_type(L, b);
    if (ta == tb && (ta == LUA_TNUMBER || ta == LUA_TSTRING))
        return lua_compare(L, a, b, LUA_OPLT);
    return ta == LUA_TNUMBER ? tb != LUA_TNUMBER
                             : ta == LUA_TSTRING && tb != LUA_TNUMBER && tb != ta;
}

/* Insertion into the sorted part; at most KEYS_MAX, of which only `shown` must be right. */
static void sort_keys(lua_State *L, int idx, size_t n)
{
    for (size_t i = 2; i <= n; i++) {
        size_t at = i;
        lua_rawgeti(L, idx, (lua_Integer)i);
        for (; at > 1; at--) {
            lua_rawgeti(L, idx, (lua_Integer)at - 1);
            bool before = key_less(L, -2, -1);
            if (!before) {
                lua_pop(L, 1);
                break;
            }
            lua_rawseti(L, idx, (lua_Integer)at);
        }
        lua_rawseti(L, idx, (lua_Integer)at);
        br_script_tick(L, i - at + 1);
    }
}

static void put_value(struct printer *p, int idx, unsigned depth, unsigned indent);

static bool stop(struct printer *p)
{
    if (p->end && p->out->len > p->end)
        p->too_long = true;
    return p->too_long || p->out->failed;
}

static void put_gap(struct printer *p, bool first, unsigned indent)
{
    if (p->end) {
        put(p, first ? " " : ", ");
        return;
    }
    put(p, first ? "\n" : ",\n");
    for (unsigned i = 0; i < indent; i++)
        put(p, "  ");
}

static void put_key(struct printer *p, int idx)
{
    size_t n;
    if (lua_type(p->L, idx) == LUA_TSTRING) {
        const char *s = lua_tolstring(p->L, idx, &n);
        if (is_name(s, n)) {
            br_buf_put(p->out, s, n);
            return;
        }
    }
    put(p, "[");
    if (lua_istable(p->L, idx))
        put(p, "table");
    else
        put_scalar(p, idx);
    put(p, "]");
}

/* The entries of the table at idx, whose other keys are in the list on top. */
static void put_entries(struct printer *p, int idx, const struct keys *k, unsigned depth,
                        unsigned indent)
{
    lua_State *L = p->L;
    int keys = lua_gettop(L);
    size_t total = k->list + k->total, shown = 0;
    for (; shown < total && shown < p->limits->items && !stop(p); shown++) {
        if (shown >= k->list + k->kept)
            break;
        put_gap(p, shown == 0, indent + 1);
        if (shown < k->list) {
            lua_rawgeti(L, idx, (lua_Integer)shown + 1);
        } else {
            lua_rawgeti(L, keys, (lua_Integer)(shown - k->list) + 1);
            put_key(p, lua_gettop(L));
            put(p, " = ");
            lua_rawget(L, idx);
        }
        put_value(p, lua_gettop(L), depth + 1, indent + 1);
        lua_settop(L, keys);
    }
    if (shown < total && !stop(p)) {
        put_gap(p, shown == 0, indent + 1);
        br_buf_printf(p->out, "... %zu more", total - shown);
    }
}

static void put_table(struct printer *p, int idx, unsigned depth, unsigned indent)
{
    lua_State *L = p->L;
    struct keys k;
    luaL_checkstack(L, 16, "a value to print");
    find_keys(p, idx, &k);
    size_t total = k.list + k.total, at = p->out->len;
    if (total == 0) {
        put(p, "{}");
    } else if (depth >= p->limits->depth) {
        br_buf_printf(p->out, "{... %zu inside}", total);
    } else {
        sort_keys(L, lua_gettop(L), k.kept);
        bool nested = p->end != 0;
        if (!nested)
            p->end = at + (p->limits->width > 2 * indent + 8 ? p->limits->width - 2 * indent : 8);
        put(p, "{");
        put_entries(p, idx, &k, depth, indent);
        put(p, " }");
        (void)stop(p);
        if (!nested) {
            p->end = 0;
            if (p->too_long) {
                p->too_long = false;
                p->out->len = at;
                put(p, "{");
                put_entries(p, idx, &k, depth, indent);
                put(p, "\n");
                for (unsigned i = 0; i < indent; i++)
                    put(p, "  ");
                put(p, "}");
            }
        }
    }
    lua_pop(L, 1); /* the keys */
}

static void put_value(struct printer *p, int idx, unsigned depth, unsigned indent)
{
    lua_State *L = p->L;
    int top = lua_gettop(L);
    if (stop(p))
        return;
    br_script_tick(L, 10);
    if (br_script_view_open(L, idx))
        idx = lua_gettop(L);
    if (lua_istable(L, idx))
        put_table(p, idx, depth, indent);
    else
        put_scalar(p, idx);
    lua_settop(L, top);
}

void br_script_print(lua_State *L, int idx, const struct br_print_limits *limits,
                     struct br_buf *out)
{
    struct br_print_limits l = *limits;
    if (l.depth > BR_PRINT_DEPTH_MAX)
        l.depth = BR_PRINT_DEPTH_MAX;
    struct printer p = {.L = L, .limits = &l, .out = out};
    put_value(&p, lua_absindex(L, idx), 0, 0);
}
