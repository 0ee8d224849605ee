/*
 * Lua patterns with a budget. The language is that of Lua 5.4 (reference manual, 6.4.1); the
 * matcher counts its steps and raises an error when a pattern and a subject together cost more than
 * any sensible one does. The standard library's runs for minutes on a hostile pattern and no hook
 * stops it. Called by scripts that are not trusted.
 */
#include <ctype.h>
#include <string.h>

#include "script/script.h"

#include "script/api_table.h"

#define CAPTURES_MAX 32
/* Nested alternatives (captures, lazy and greedy repetitions) on the C stack. */
#define DEPTH_MAX 200
#define CAPTURE_OPEN (-1)
#define CAPTURE_POSITION (-2)

struct matcher {
    lua_State *L;
    const char *src, *end; /* the subject */
    const char *pattern_end;
    uint64_t steps, max_steps;
    int depth;
    int level; /* captures in use */
    struct {
        const char *start;
        ptrdiff_t len;
    } capture[CAPTURES_MAX];
};

static const char *match_here(struct matcher *m, const char *s, const char *p);

static void step(struct matcher *m)
{
    if (++m->steps > m->max_steps)
        luaL_error(m->L, "the pattern takes too many steps on a text of this length");
}

/* The end of the single-character class at p. */
static const char *class_end(struct matcher *m, const char *p)
{
    if (*p++ == '%') {
        if (p == m->pattern_end)
            luaL_error(m->L, "malformed pattern (ends with '%%')");
        return p + 1;
    }
    if (p[-1] != '[')
        return p;
    if (p < m->pattern_end && *p == '^')
        p++;
    do { /* a first ']' is a member */
        if (p == m->pattern_end)
            luaL_error(m->L, "malformed pattern (missing ']')");
        if (*p++ == '%') {
            if (p == m->pattern_end)
                luaL_error(m->L, "malformed pattern (missing ']')");
            p++;
        }
    } while (p == m->pattern_end || *p != ']');
    return p + 1;
}

static bool in_class(int c, int class)
{
    bool r;
    switch (tolower(class)) {
    case 'a':
        r = isalpha(c);
        break;
    case 'c':
        r = iscntrl(c);
        break;
    case 'd':
        r = isdigit(c);
        break;
    case 'g':
        r = isgraph(c);
        break;
    case 'l':
        r = islower(c);
        break;
    case 'p':
        r = ispunct(c);
        break;
    case 's':
        r = isspace(c);
        break;
    case 'u':
        r = isupper(c);
        break;
    case 'w':
        r = isalnum(c);
        break;
    case 'x':
        r = isxdigit(c);
        break;
    case 'z':
        r = c == 0;
        break;
    default:
        return class == c;
    }
    return isupper(class) ? !r : r;
}

/* p is at '[', last at its ']'. */
static bool in_set(struct matcher *m, int c, const char *p, const char *last)
{
    bool sense = true;
    if (p[1] == '^') {
        sense = false;
        p++;
    }
    while (++p < last) {
        step(m);
        if (*p == '%') {
            p++;
            if (in_class(c, (unsigned char)*p))
                return sense;
        } else if (p[1] == '-' && p + 2 < last) {
            p += 2;
            if ((unsigned char)p[-2] <= c && c <= (unsigned char)*p)
                return sense;
        } else if ((unsigned char)*p == c) {
            return sense;
        }
    }
    return !sense;
}

static bool single(struct matcher *m, const char *s, const char *p, const char *ep)
{
    step(m);
    if (s >= m->end)
        return false;
    int c = (unsigned char)*s;
    switch (*p) {
    case '.':
        return true;
    case '%':
        return in_class(c, (unsigned char)p[1]);
    case '[':
        return in_set(m, c, p, ep - 1);
    default:
        return (unsigned char)*p == c;
    }
}

static const char *match_balance(struct matcher *m, const char *s, const char *p)
{
    if (p + 1 >= m->pattern_end)
        luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
    if (s >= m->end || *s != *p)
        return NULL;
    int depth = 1;
    while (++s < m->end) {
        step(m);
        if (*s == p[1]) {
            if (--depth == 0)
                return s + 1;
        } else if (*s == *p) {
            depth++;
        }
    }
    return NULL;
}

static const char *match_greedy(struct matcher *m, const char *s, const char *p, const char *ep)
{
    ptrdiff_t i = 0;
    while (single(m, s + i, p, ep))
        i++;
    for (; i >= 0; i--) {
        const char *r = match_here(m, s + i, ep + 1);
        if (r)
            return r;
    }
    return NULL;
}

static const char *match_lazy(struct matcher *m, const char *s, const char *p, const char *ep)
{
    for (;; s++) {
        const char *r = match_here(m, s, ep + 1);
        if (r)
            return r;
        if (!single(m, s, p, ep))
            return NULL;
    }
}

static const char *open_capture(struct matcher *m, const char *s, const char *p, ptrdiff_t what)
{
    if (m->level >= CAPTURES_MAX)
        luaL_error(m->L, "too many captures");
    m->capture[m->level].start = s;
    m->capture[m->level].len = what;
    m->level++;
    const char *r = match_here(m, s, p);
    if (!r)
        m->level--;
    return r;
}

static const char *close_capture(struct matcher *m, const char *s, const char *p)
{
    int l = m->level - 1;
    while (l >= 0 && m->capture[l].len != CAPTURE_OPEN)
        l--;
    if (l < 0)
        luaL_error(m->L, "invalid pattern capture");
    m->capture[l].len = s - m->capture[l].start;
    const char *r = match_here(m, s, p);
    if (!r)
        m->capture[l].len = CAPTURE_OPEN;
    return r;
}

static const char *match_back(struct matcher *m, const char *s, int digit)
{
    int l = digit - '1';
    if (l < 0 || l >= m->level || m->capture[l].len == CAPTURE_OPEN)
        luaL_error(m->L, "invalid capture index %%%d", l + 1);
    if (m->capture[l].len == CAPTURE_POSITION)
        return NULL; /* a position is not a text that could come again */
    size_t len = (size_t)m->capture[l].len;
    m->steps += len / 16;
    if ((size_t)(m->end - s) >= len && memcmp(m->capture[l].start, s, len) == 0)
        return s + len;
    return NULL;
}

static bool match_frontier(struct matcher *m, const char *s, const char *p, const char *ep)
{
    int before = s == m->src ? 0 : (unsigned char)s[-1];
    int here = s >= m->end ? 0 : (unsigned char)*s;
    return !in_set(m, before, p, ep - 1) && in_set(m, here, p, ep - 1);
}

/* What '%' starts, other than a class: 1 and *s, *p moved on; 0 no match; -1 it is a class. */
static int match_escape(struct matcher *m, const char **s, const char **p)
{
    const char *q = *p + 1;
    if (q >= m->pattern_end)
        luaL_error(m->L, "malformed pattern (ends with '%%')");
    if (*q == 'b') {
        *s = match_balance(m, *s, q + 1);
        *p = q + 3;
    } else if (*q == 'f') {
        const char *set = q + 1;
        if (set >= m->pattern_end || *set != '[')
            luaL_error(m->L, "missing '[' after '%%f' in pattern");
        const char *ep = class_end(m, set);
        if (!match_frontier(m, *s, set, ep))
            return 0;
        *p = ep;
    } else if (isdigit((unsigned char)*q)) {
        *s = match_back(m, *s, *q);
        *p = q + 1;
    } else {
        return -1;
    }
    return *s ? 1 : 0;
}

/* One item with its repetition; the loop of match_here() goes on for *s, *p, when it returns true;
 * else *s is the result. */
static bool match_item(struct matcher *m, const char **s, const char **p)
{
    const char *ep = class_end(m, *p);
    char rep = ep < m->pattern_end ? *ep : '\0';
    if (rep == '*') {
        *s = match_greedy(m, *s, *p, ep);
        return false;
    }
    if (rep == '-') {
        *s = match_lazy(m, *s, *p, ep);
        return false;
    }
    if (!single(m, *s, *p, ep)) {
        if (rep != '?') {
            *s = NULL;
            return false;
        }
        *p = ep + 1;
        return true;
    }
    if (rep == '+') {
        *s = match_greedy(m, *s + 1, *p, ep);
        return false;
    }
    if (rep == '?') {
        const char *r = match_here(m, *s + 1, ep + 1);
        if (r) {
            *s = r;
            return false;
        }
        *p = ep + 1;
        return true;
    }
    ++*s;
    *p = ep;
    return true;
}

static const char *match_loop(struct matcher *m, const char *s, const char *p)
{
    while (p < m->pattern_end) {
        step(m);
        if (*p == '(') {
            bool position = p + 1 < m->pattern_end && p[1] == ')';
            return position ? open_capture(m, s, p + 2, CAPTURE_POSITION)
                            : open_capture(m, s, p + 1, CAPTURE_OPEN);
        }
        if (*p == ')')
            return close_capture(m, s, p + 1);
        if (*p == '$' && p + 1 == m->pattern_end)
            return s == m->end ? s : NULL;
        if (*p == '%') {
            int r = match_escape(m, &s, &p);
            if (r == 0)
                return NULL;
            if (r == 1)
                continue;
        }
        if (!match_item(m, &s, &p))
            return s;
    }
    return s;
}

static const char *match_here(struct matcher *m, const char *s, const char *p)
{
    if (++m->depth > DEPTH_MAX)
        luaL_error(m->L, "the pattern is too complex");
    const char *r = match_loop(m, s, p);
    m->depth--;
    return r;
}

/* ---- captures as results ---- */

static void push_capture(struct matcher *m, int l, const char *s, const char *e)
{
    if (l >= m->level) {
        if (l != 0)
            luaL_error(m->L, "invalid capture index %%%d", l + 1);
        lua_pushlstring(m->L, s, (size_t)(e - s));
        return;
    }
    if (m->capture[l].len == CAPTURE_OPEN)
        luaL_error(m->L, "unfinished capture");
    if (m->capture[l].len == CAPTURE_POSITION)
        lua_pushinteger(m->L, m->capture[l].start - m->src + 1);
    else
        lua_pushlstring(m->L, m->capture[l].start, (size_t)m->capture[l].len);
}

/* All captures; the whole match if there are none and s is set. */
static int push_captures(struct matcher *m, const char *s, const char *e)
{
    int n = m->level == 0 && s ? 1 : m->level;
    luaL_checkstack(m->L, n, "too many captures");
    for (int i = 0; i < n; i++)
        push_capture(m, i, s, e);
    return n;
}

static void start(struct matcher *m, lua_State *L, const char *s, size_t n, const char *p,
                  size_t np)
{
    memset(m, 0, sizeof(*m));
    m->L = L;
    m->src = s;
    m->end = s + n;
    m->pattern_end = p + np;
    m->max_steps = BR_SCRIPT_PATTERN_STEPS + (uint64_t)n * BR_SCRIPT_PATTERN_STEPS_PER_BYTE;
}

static const char *try_at(struct matcher *m, const char *s, const char *p)
{
    m->level = 0;
    m->depth = 0;
    uint64_t before = m->steps;
    const char *e = match_here(m, s, p);
    br_script_tick(m->L, m->steps - before + 1);
    return e;
}

/* ---- functions ---- */

/* Where to start for an `init` argument; n + 1 if behind the end. */
static size_t start_at(lua_State *L, int arg, size_t n)
{
    lua_Integer i = luaL_optinteger(L, arg, 1);
    if (i < 0)
        i = 0u - (lua_Unsigned)i > n ? 1 : (lua_Integer)n + i + 1;
    if (i == 0)
        i = 1;
    return (lua_Unsigned)i > n + 1 ? n + 1 : (size_t)i - 1;
}

/* As the standard library has it, where "a)" is a plain text for find() and malformed for match().
 */
static bool is_plain(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] && strchr("^$*+?.([%-", p[i]))
            return false;
    return true;
}

static int find(lua_State *L, bool want_range)
{
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np);
    lua_Integer asked = luaL_optinteger(L, 3, 1);
    size_t at = start_at(L, 3, n);
    if (asked > 0 && (lua_Unsigned)asked > n + 1)
        return lua_pushnil(L), 1;
    if (want_range && (lua_toboolean(L, 4) || is_plain(p, np))) {
        br_script_tick(L, (n - at) / 8 + 1);
        const char *hit = np == 0 ? s + at : memmem(s + at, n - at, p, np);
        if (!hit)
            return lua_pushnil(L), 1;
        lua_pushinteger(L, hit - s + 1);
        lua_pushinteger(L, hit - s + (ptrdiff_t)np);
        return 2;
    }
    struct matcher m;
    start(&m, L, s, n, p, np);
    bool anchor = np > 0 && *p == '^';
    const char *from = s + at;
    do {
        const char *e = try_at(&m, from, p + anchor);
        if (!e)
            continue;
        if (!want_range)
            return push_captures(&m, from, e);
        lua_pushinteger(L, from - s + 1);
        lua_pushinteger(L, e - s);
        return 2 + push_captures(&m, NULL, NULL);
    } while (from++ < m.end && !anchor);
    return lua_pushnil(L), 1;
}

int br_lua_find(lua_State *L)
{
    return find(L, true);
}

int br_lua_match(lua_State *L)
{
    return find(L, false);
}

/* Upvalues: subject, pattern, where to go on, where the last match ended (0: none). */
static int gmatch_next(lua_State *L)
{
    size_t n, np;
    const char *s = lua_tolstring(L, lua_upvalueindex(1), &n);
    const char *p = lua_tolstring(L, lua_upvalueindex(2), &np);
    size_t at = (size_t)lua_tointeger(L, lua_upvalueindex(3));
    size_t last = (size_t)lua_tointeger(L, lua_upvalueindex(4));
    struct matcher m;
    start(&m, L, s, n, p, np);
    for (; at <= n; at++) {
        const char *e = try_at(&m, s + at, p);
        if (!e || (size_t)(e - s) + 1 == last)
            continue;
        lua_pushinteger(L, e - s);
        lua_replace(L, lua_upvalueindex(3));
        lua_pushinteger(L, e - s + 1);
        lua_replace(L, lua_upvalueindex(4));
        return push_captures(&m, s + at, e);
    }
    lua_pushinteger(L, (lua_Integer)n + 1);
    lua_replace(L, lua_upvalueindex(3));
    return 0;
}

int br_lua_gmatch(lua_State *L)
{
    size_t n;
    luaL_checklstring(L, 1, &n);
    luaL_checkstring(L, 2);
    size_t at = start_at(L, 3, n);
    lua_settop(L, 2);
    lua_pushinteger(L, (lua_Integer)at);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, gmatch_next, 4);
    return 1;
}

/* Adds the replacement for the match s..e; the buffer may use the stack above. */
static void add_replacement(struct matcher *m, luaL_Buffer *b, const char *s, const char *e)
{
    lua_State *L = m->L;
    int type = lua_type(L, 3);
    if (type == LUA_TSTRING || type == LUA_TNUMBER) {
        size_t n;
        const char *r = lua_tolstring(L, 3, &n);
        for (size_t i = 0; i < n; i++) {
            if (r[i] != '%') {
                luaL_addchar(b, r[i]);
                continue;
            }
            i++;
            if (i < n && r[i] == '%') {
                luaL_addchar(b, '%');
            } else if (i < n && r[i] == '0') {
                luaL_addlstring(b, s, (size_t)(e - s));
            } else if (i < n && isdigit((unsigned char)r[i])) {
                push_capture(m, r[i] - '1', s, e);
                luaL_tolstring(L, -1, NULL);
                lua_remove(L, -2);
                luaL_addvalue(b);
            } else {
                luaL_error(L, "invalid use of '%%' in replacement string");
            }
        }
        return;
    }
    if (type == LUA_TFUNCTION) {
        lua_pushvalue(L, 3);
        lua_call(L, push_captures(m, s, e), 1);
    } else {
        push_capture(m, 0, s, e);
        lua_gettable(L, 3);
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        luaL_addlstring(b, s, (size_t)(e - s));
        return;
    }
    if (!lua_isstring(L, -1))
        luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
    luaL_addvalue(b);
}

int br_lua_gsub(lua_State *L)
{
    size_t n, np;
    const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &np);
    int type = lua_type(L, 3);
    luaL_argexpected(L,
                     type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION ||
                         type == LUA_TTABLE,
                     3, "string/function/table");
    lua_Integer max = luaL_optinteger(L, 4, (lua_Integer)n + 1), count = 0;
    bool anchor = np > 0 && *p == '^';
    const char *last = NULL;
    struct matcher m;
    start(&m, L, s, n, p, np);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    while (count < max) {
        const char *e = try_at(&m, s, p + anchor);
        if (e && e != last) {
            count++;
            add_replacement(&m, &b, s, e);
            s = last = e;
        } else if (s < m.end) {
            luaL_addchar(&b, *s++);
        } else {
            break;
        }
        if (luaL_bufflen(&b) > BR_SCRIPT_STRING_MAX)
            return luaL_error(L, "string.gsub would make a text of more than %d MiB",
                              (int)(BR_SCRIPT_STRING_MAX >> 20));
        if (anchor)
            break;
    }
    luaL_addlstring(&b, s, (size_t)(m.end - s));
    luaL_pushresult(&b);
    lua_pushinteger(L, count);
    return 2;
}
