/*
 * Purpose inspect: the Lua of 'bridle repl'. The client starts this process itself, and it has what
 * every bridle-script has: no file, no network, no way to start anything, limits of the kernel.
 * What a script sees of the store are copies that the client read and sent when they were asked
 * for; it cannot change them, and nothing that it does reaches a session.
 *
 * Globals that a line sets are kept for the next one. Snapshots are kept for one evaluation.
 */
#include <stdlib.h>
#include <string.h>

#include "script/serve.h"
#include "script/words.h"

#define PRINT_MAX (1024u * 1024) /* what one evaluation may print */
#define PRINT_CHUNK (16u * 1024)
#define CODE_MAX (256u * 1024)
#define DATA_MAX (8u * 1024 * 1024)
#define NAMES_MAX 200u
#define FLAG_JSON 1u
#define FLAG_MORE 2u
enum { DONE_OK, DONE_INCOMPLETE, DONE_FAILED };

static struct serve *the_serve; /* for the handler of SIGINT */
/* keys of the registry */
static const char globals_key = 0, names_key = 0, cache_key = 0, serve_key = 0;

static void on_interrupt(int signo)
{
    (void)signo;
    if (the_serve && the_serve->script)
        the_serve->script->interrupted = 1;
}

static struct serve *serve_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &serve_key);
    struct serve *s = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return s;
}

/* ---- print ---- */

static int flush_said(struct serve *s)
{
    if (s->said.len == 0)
        return 0;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, s->said.data, s->said.len);
    br_buf_reset(&s->said);
    if (br_chan_send(&s->sup, BR_MSG_INSPECT_PRINT, 0, &o, NULL) == 0)
        return 0;
    s->broken = true;
    return -1;
}

static void say(lua_State *L, struct serve *s, const char *text, size_t n)
{
    s->said_total += n;
    if (s->said_total > PRINT_MAX)
        luaL_error(L, "more than %d KiB were printed; the rest is left out",
                   (int)(PRINT_MAX >> 10));
    br_script_tick(L, n);
    br_buf_put(&s->said, text, n);
    if (s->said.failed || (s->said.len >= PRINT_CHUNK && flush_said(s) < 0))
        luaL_error(L, "the client takes no more text");
}

/* The text on top: [-1, +0, m] */
static void say_top(lua_State *L, struct serve *s)
{
    size_t n;
    const char *text = lua_tolstring(L, -1, &n);
    say(L, s, text, n);
    lua_pop(L, 1);
}

static int lua_print(lua_State *L)
{
    struct serve *s = serve_of(L);
    int n = lua_gettop(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key);
    lua_getfield(L, n + 1, "tostring");
    for (int i = 1; i <= n; i++) {
        size_t len;
        lua_pushvalue(L, n + 2);
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
        const char *text = lua_tolstring(L, -1, &len);
        if (i > 1)
            say(L, s, "\t", 1);
        if (text)
            say(L, s, text, len);
        lua_pop(L, 1);
    }
    say(L, s, "\n", 1);
    return 0;
}

/* ---- snapshots ---- */

/* Ask the client; what came is in s->data, and an error of it is raised. */
static void want(lua_State *L, const char *what, const char *id, const char *type, uint64_t from,
                 uint64_t to)
{
    struct serve *s = serve_of(L);
    struct br_err err = {.code = BR_OK};
    br_script_check(L);
    if (strlen(id) >= BR_NAME_MAX)
        luaL_error(L, "an id has at most %d bytes", (int)BR_NAME_MAX - 1);
    bool ok = flush_said(s) == 0;
    {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT; /* nothing raises while it lives */
        br_buf_put_str(&o.buf, what);
        br_buf_put_str(&o.buf, id);
        br_buf_put_str(&o.buf, type);
        br_buf_put_u64(&o.buf, from);
        br_buf_put_u64(&o.buf, to);
        ok = ok && br_chan_send(&s->sup, BR_MSG_INSPECT_WANT, 0, &o, &err) == 0;
    }
    br_buf_free(&s->data);
    s->data_err = (struct br_err){.code = BR_OK};
    if (ok) {
        br_chan_permit(&s->sup, BR_MSG_INSPECT_DATA);
        ok = br_chan_dispatch(&s->sup, &err) == 0;
    }
    if (!ok) {
        s->broken = true;
        s->script->interrupted = 1; /* nothing swallows it */
        luaL_error(L, "the client has gone");
    }
    if (s->data_err.code == BR_E_CANCELED)
        s->script->interrupted = 1; /* nothing swallows it */
    br_script_check(L);
    if (s->data_err.code)
        luaL_error(L, "%s", s->data_err.text);
}

int br_serve_inspect_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    (void)c;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->data_err.text, sizeof(s->data_err.text));
    s->data_err.code = code < BR_CODE_COUNT_ ? (enum br_code)code : BR_E_INTERNAL;
    int r = br_msg_blob(m, DATA_MAX, &s->data, err);
    return r < 0 ? r : br_rd_done(&m->rd);
}

/* Push the list of what came: JSON values, one a line. */
static void push_data(lua_State *L, struct serve *s)
{
    json_t *list = json_array();
    if (!list)
        luaL_error(L, "no memory for the snapshot");
    br_script_json_push(L, &list);
    lua_Integer n = 0;
    for (size_t at = 0; at < s->data.len;) {
        const char *line = (const char *)s->data.data + at;
        const char *nl = memchr(line, '\n', s->data.len - at);
        size_t len = nl ? (size_t)(nl - line) : s->data.len - at;
        json_t *tree = NULL;
        struct br_err err = {.code = BR_OK};
        if (br_script_json_parse(line, len, BR_SCRIPT_NODES_MAX, &tree, NULL, &err) < 0)
            luaL_error(L, "the snapshot is not understood: %s", err.text);
        br_script_json_push(L, &tree);
        lua_rawseti(L, -2, ++n);
        br_script_tick(L, len);
        at += len + 1;
    }
    br_buf_free(&s->data);
}

static int lua_session(lua_State *L)
{
    const char *id = luaL_checkstring(L, 1);
    want(L, "session", id, "", 0, 0);
    push_data(L, serve_of(L));
    lua_rawgeti(L, -1, 1);
    br_script_view_push(L, -1);
    return 1;
}

/* lease(id), decisions(id): lists. */
static int lua_list(lua_State *L)
{
    const char *what = lua_tostring(L, lua_upvalueindex(1));
    const char *id = luaL_checkstring(L, 1);
    want(L, what, id, "", 0, 0);
    push_data(L, serve_of(L));
    br_script_view_push(L, -1);
    return 1;
}

static uint64_t row_option(lua_State *L, const char *name)
{
    uint64_t v = 0;
    lua_pushstring(L, name);
    if (lua_rawget(L, 2) != LUA_TNIL) {
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1)
            luaL_error(L, "events: '%s' is the number of a row, 1 or more", name);
        v = (uint64_t)lua_tointeger(L, -1);
    }
    lua_pop(L, 1);
    return v;
}

/* events(id, type | {type=, from=, to=}) */
static int lua_events(lua_State *L)
{
    const char *id = luaL_checkstring(L, 1), *type = "";
    uint64_t from = 0, to = 0;
    lua_settop(L, 2);
    if (lua_type(L, 2) == LUA_TSTRING) {
        type = lua_tostring(L, 2);
    } else if (!lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        lua_pushnil(L);
        while (lua_next(L, 2)) {
            const char *k = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
            if (strcmp(k, "type") != 0 && strcmp(k, "from") != 0 && strcmp(k, "to") != 0)
                return luaL_error(L, "events has no option '%s'; there are type, from and to", k);
            lua_pop(L, 1);
        }
        from = row_option(L, "from");
        to = row_option(L, "to");
        lua_pushliteral(L, "type");
        if (lua_rawget(L, 2) == LUA_TSTRING)
            type = lua_tostring(L, -1);
        else if (!lua_isnil(L, -1))
            return luaL_error(L, "events: 'type' is a text such as \"tool.call\"");
    }
    if (strlen(type) >= 64)
        return luaL_error(L, "events: there is no type as long as that");
    want(L, "events", id, type, from, to);
    push_data(L, serve_of(L));
    br_script_view_push(L, -1);
    return 1;
}

/* ---- help ---- */

static void help_line(lua_State *L, struct serve *s, const struct br_word *w)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    (void)L;
    br_buf_printf(&b, "%s\n  ", w->call ? w->call : w->verb);
    for (const char *p = w->text; *p; p++)
        br_buf_printf(&b, *p == '\n' ? "\n  " : "%c", *p);
    br_buf_put_u8(&b, '\n');
    br_buf_put(&s->said, b.data, b.len);
}

/* The name of the function at 1 among ours, NULL if it is none. */
static const char *name_of(lua_State *L)
{
    for (const struct br_word *w = br_words; w->name; w++) {
        if (!(w->kinds & BR_WORD_NAME))
            continue;
        lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key);
        if (strcmp(w->name, "_") == 0) {
            lua_pop(L, 1);
            continue;
        }
        lua_getfield(L, -1, w->name);
        bool same = lua_rawequal(L, -1, 1);
        lua_pop(L, 2);
        if (same)
            return w->name;
    }
    return NULL;
}

static int lua_help(lua_State *L)
{
    struct serve *s = serve_of(L);
    if (lua_isnone(L, 1)) {
        for (const struct br_word *w = br_words; w->name; w++)
            if (w->kinds & BR_WORD_NAME)
                help_line(L, s, w);
        return 0;
    }
    const char *name = lua_type(L, 1) == LUA_TSTRING     ? lua_tostring(L, 1)
                       : lua_type(L, 1) == LUA_TFUNCTION ? name_of(L)
                                                         : NULL;
    const struct br_word *w = name ? br_word_find(name) : NULL;
    if (w) {
        help_line(L, s, w);
        return 0;
    }
    if (lua_type(L, 1) == LUA_TSTRING)
        return luaL_error(L, "there is no help about that word; help() lists what there is");
    lua_settop(L, 1);
    bool view = br_script_view_open(L, 1);
    if (!view)
        lua_pushvalue(L, 1);
    lua_pushfstring(L, "a %s", view ? "read-only snapshot" : luaL_typename(L, 1));
    say_top(L, s);
    if (lua_isfunction(L, 2)) {
        lua_pushliteral(L, " of Lua's own, or of yours");
        say_top(L, s);
    } else if (lua_istable(L, 2)) {
        lua_pushfstring(L,
                        ", %I elements in its list, and the names:", (LUAI_UACINT)lua_rawlen(L, 2));
        say_top(L, s);
        lua_pushnil(L);
        for (int n = 0; lua_next(L, 2); n++) {
            lua_pop(L, 1);
            if (lua_type(L, -1) != LUA_TSTRING || lua_rawlen(L, -1) > 100 || n >= 40)
                continue;
            lua_pushfstring(L, " %s", lua_tostring(L, -1));
            say_top(L, s);
        }
    }
    lua_pushliteral(L, "\n");
    say_top(L, s);
    return 0;
}

/* ---- the environment ---- */

static bool is_lazy(const char *name)
{
    return strcmp(name, "sessions") == 0 || strcmp(name, "leases") == 0 ||
           strcmp(name, "activations") == 0 || strcmp(name, "policy") == 0 ||
           strcmp(name, "policies") == 0;
}

/* __index of the globals: snapshots that are read when they are named, then what is locked. */
static int globals_index(lua_State *L)
{
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (is_lazy(name)) {
        lua_rawgetp(L, LUA_REGISTRYINDEX, &cache_key);
        if (lua_getfield(L, -1, name) != LUA_TNIL)
            return 1;
        lua_pop(L, 1);
        want(L, name, "", "", 0, 0);
        push_data(L, serve_of(L));
        if (strcmp(name, "policy") == 0) /* one value, not a list */
            lua_rawgeti(L, -1, 1);
        br_script_view_push(L, -1);
        lua_pushvalue(L, -1);
        lua_setfield(L, 3, name);
        return 1;
    }
    if (strcmp(name, "_") == 0) /* before there was a value */
        return 0;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key);
    lua_pushvalue(L, 2);
    lua_gettable(L, -2);
    return 1;
}

/* next(), which goes into a snapshot as well. */
static int lua_view_next(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    bool view = br_script_view_open(L, 1);
    if (view)
        lua_replace(L, 1);
    br_script_tick(L, 2);
    if (!lua_next(L, 1))
        return lua_pushnil(L), 1;
    if (view) {
        br_script_view_push(L, -1);
        lua_replace(L, -2);
    }
    return 2;
}

/* Push a table with all that the sandbox has. */
static void push_sandbox(lua_State *L)
{
    lua_newtable(L);
    int all = lua_gettop(L);
    br_script_push_env(L);
    lua_getmetatable(L, -1);
    lua_getfield(L, -1, "__index");
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, all);
    }
    lua_settop(L, all);
}

/* lightuserdata: struct serve. */
static int open_globals(lua_State *L)
{
    static const luaL_Reg functions[] = {{"print", lua_print},    {"help", lua_help},
                                         {"events", lua_events},  {"session", lua_session},
                                         {"next", lua_view_next}, {NULL, NULL}};
    static const char *const lists[] = {"decisions", "lease"};
    static const char *const helpers[] = {"copy", "filter", "map", "count"};
    static const char *const lazy[] = {"sessions", "leases", "activations", "policy", "policies"};
    lua_rawsetp(L, LUA_REGISTRYINDEX, &serve_key);
    push_sandbox(L);
    luaL_setfuncs(L, functions, 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(lists); i++) {
        lua_pushstring(L, lists[i]);
        lua_pushcclosure(L, lua_list, 1);
        lua_setfield(L, -2, lists[i]);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(lazy); i++) { /* so that they are among the nearest names */
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, lazy[i]);
    }
    lua_getfield(L, -1, "require");
    lua_pushliteral(L, "bridle.repl");
    lua_call(L, 1, 1);
    for (size_t i = 0; i < BR_ARRAY_LEN(helpers); i++) {
        lua_getfield(L, -1, helpers[i]);
        lua_setfield(L, -3, helpers[i]);
    }
    lua_pop(L, 1);
    br_script_lock(L, "name");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &names_key);
    lua_newtable(L);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, globals_index);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &globals_key);
    return 0;
}

int br_serve_inspect_start(struct serve *s, struct br_err *err)
{
    the_serve = s;
    struct sigaction on_int = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    (void)sigaction(SIGINT, &on_int, NULL);
    br_buf_init(&s->said, PRINT_MAX + PRINT_CHUNK);
    br_buf_init(&s->result, PRINT_MAX);
    br_buf_init(&s->data, DATA_MAX);
    br_chan_permit(&s->sup, BR_MSG_INSPECT_EVAL);
    br_chan_permit(&s->sup, BR_MSG_INSPECT_NAMES);
    lua_pushcfunction(s->script->L, open_globals);
    lua_pushlightuserdata(s->script->L, s);
    return br_script_call(s->script, 1, 0, BR_SCRIPT_COMPILE_US, BR_E_INTERNAL, err);
}

/* ---- evaluate ---- */

struct evaluation {
    uint8_t flags;
    uint32_t depth, items, bytes, line;
    char chunk[64];
    struct br_buf code;
};

/* "... near <eof>", or "... near '<eof>'" in the middle of a long text. */
static bool ends_early(const struct br_err *err)
{
    size_t n = strlen(err->text);
    return n > 7 && strstr(err->text + n - 7, "<eof>") != NULL;
}

/* Push the code as a function: as an expression if it is one. `more`: its end is missing. */
static int load(struct br_script *s, const struct evaluation *e, bool *more, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * CODE_MAX);
    const char *code = (const char *)e->code.data;
    size_t n = e->code.len;
    bool asked = n && code[0] == '=';
    struct br_err why = {.code = BR_OK};
    for (uint32_t i = 1; i < e->line; i++)
        br_buf_put_u8(&b, '\n');
    size_t at = b.len;
    br_buf_printf(&b, "return ");
    br_buf_put(&b, code + asked, n - asked);
    if (b.failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the code is too long; nothing was evaluated");
    int r = br_script_load(s, e->chunk, b.data, b.len, BR_E_FAILED, &why);
    *more = r < 0 && ends_early(&why);
    if (r < 0 && !asked) {
        b.len = at;
        br_buf_put(&b, code, n);
        r = br_script_load(s, e->chunk, b.data, b.len, BR_E_FAILED, &why);
        *more = *more || (r < 0 && ends_early(&why));
    }
    if (r < 0) {
        *err = why;
        return r;
    }
    lua_rawgetp(s->L, LUA_REGISTRYINDEX, &globals_key);
    if (!lua_setupvalue(s->L, -2, 1))
        lua_pop(s->L, 1);
    return 0;
}

/* lightuserdata: struct evaluation; then the results. Prints them into s->result. */
static int put_results(lua_State *L)
{
    struct serve *s = serve_of(L);
    const struct evaluation *e = lua_touserdata(L, 1);
    const struct br_print_limits limits = {
        .depth = e->depth, .items = e->items, .string = 400, .width = 76};
    int n = lua_gettop(L);
    if (n > 1 && !lua_isnil(L, 2)) {
        lua_rawgetp(L, LUA_REGISTRYINDEX, &globals_key);
        lua_pushliteral(L, "_");
        lua_pushvalue(L, 2);
        lua_rawset(L, -3);
        lua_settop(L, n);
    }
    for (int i = 2; i <= n; i++) {
        if (n == 2 && lua_isnil(L, i))
            break;
        if (!(e->flags & FLAG_JSON)) {
            br_script_print(L, i, &limits, &s->result);
        } else if (lua_isnil(L, i)) {
            br_buf_printf(&s->result, "null");
        } else {
            struct br_err err = {.code = BR_OK};
            if (br_script_json_encode(L, i, &s->result, &err) < 0)
                return luaL_error(L, "%s", err.text);
        }
        br_buf_put_u8(&s->result, '\n');
    }
    return 0;
}

/* 0, or the code of what went wrong. */
static int evaluate(struct serve *s, struct evaluation *e, bool *more, struct br_err *why)
{
    struct br_script *sc = s->script;
    lua_State *L = sc->L;
    sc->interrupted = 0;
    lua_settop(L, 0);
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &cache_key);
    int r = load(sc, e, more, why);
    if (r == 0)
        r = br_script_call(sc, 0, LUA_MULTRET, BR_SCRIPT_INSPECT_US, BR_E_FAILED, why);
    if (r < 0)
        return r;
    int n = lua_gettop(L);
    if (n > 100 || !lua_checkstack(L, 16)) {
        lua_settop(L, 0);
        return br_err_set(why, BR_E_LIMIT_EXCEEDED, "there are %d results; at most 100 are shown",
                          n);
    }
    lua_pushlightuserdata(L, e);
    lua_insert(L, 1);
    lua_pushcfunction(L, put_results);
    lua_insert(L, 1);
    s->result.max = e->flags & FLAG_JSON ? DATA_MAX : e->bytes;
    r = br_script_call(sc, n + 1, 0, BR_SCRIPT_INSPECT_US, BR_E_FAILED, why);
    if (r == 0 && s->result.failed && (e->flags & FLAG_JSON))
        r = br_err_set(why, BR_E_LIMIT_EXCEEDED, "the result is longer than %u bytes of JSON",
                       DATA_MAX);
    return r;
}

/* The end of a text that was cut says so. */
static void close_result(struct serve *s, uint32_t bytes)
{
    if (!s->result.failed)
        return;
    size_t keep = s->result.len ? br_utf8_floor(s->result.data, s->result.len) : 0;
    s->result.len = keep;
    s->result.failed = false;
    s->result.max += 100;
    br_buf_printf(&s->result, "\n... cut after %u bytes\n", bytes);
}

int br_serve_inspect_eval(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    struct evaluation e = {.flags = br_rd_u8(&m->rd)};
    e.depth = br_rd_u32(&m->rd);
    e.items = br_rd_u32(&m->rd);
    e.bytes = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, e.chunk, sizeof(e.chunk));
    e.line = br_rd_u32(&m->rd);
    int r = br_msg_blob(m, CODE_MAX, &e.code, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r == 0 &&
        (s->busy || e.bytes > PRINT_MAX || e.line > CODE_MAX || (e.line && e.chunk[0] == 0)))
        r = br_err_set(err, BR_E_PEER_PROTOCOL, "INSPECT_EVAL is malformed, or not its turn");
    if (r < 0) {
        br_buf_free(&e.code);
        return r;
    }
    struct br_err why = {.code = BR_OK};
    bool more = false;
    s->busy = true;
    s->said_total = 0;
    br_buf_reset(&s->said);
    br_buf_reset(&s->result);
    r = evaluate(s, &e, &more, &why);
    s->busy = false;
    if (s->broken)
        r = br_err_set(err, BR_E_PEER_GONE, "the client has gone");
    else
        (void)flush_said(s);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, r == 0                          ? DONE_OK
                          : more && (e.flags & FLAG_MORE) ? DONE_INCOMPLETE
                                                          : DONE_FAILED);
    br_buf_put_u32(&o.buf, r == 0 ? 0 : why.code ? why.code : BR_E_INTERNAL);
    br_buf_put_str(&o.buf, r == 0 ? "" : why.text);
    br_buf_put_u32(&o.buf, r == 0 ? 0 : s->script->error_line);
    if (r == 0)
        close_result(s, e.bytes);
    br_out_blob(&o, s->result.data, r == 0 ? s->result.len : 0);
    br_buf_free(&e.code);
    return s->broken ? r : br_chan_send(c, BR_MSG_INSPECT_DONE, m->id, &o, err);
}

/* ---- names ---- */

/* The table that `path` (names and numbers, "a.b[1].") leads to is pushed; false: to none. */
static bool walk(lua_State *L, const char *path, const char *end)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &globals_key);
    for (const char *p = path; p < end;) {
        size_t n = strcspn(p, ".[]");
        if (*p == '.' || *p == ']') {
            p++;
            continue;
        }
        if (*p == '[')
            lua_pushinteger(L, strtoll(++p, NULL, 10));
        else
            lua_pushlstring(L, p, n);
        p += strcspn(p, ".[]");
        if (lua_gettable(L, -2) != LUA_TTABLE)
            return false;
    }
    return true;
}

static void take_names(lua_State *L, struct serve *s, const char *word, int from, uint32_t *n)
{
    size_t len = strlen(word);
    lua_pushnil(L);
    while (lua_next(L, from)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING || *n >= NAMES_MAX)
            continue;
        const char *k = lua_tostring(L, -1);
        if (strncmp(k, word, len) == 0 && strlen(k) < 64) {
            br_buf_put_str(&s->result, k);
            ++*n;
        }
    }
}

/* Push the real table behind a view or a locked table; the value itself if it is neither. */
static void open_any(lua_State *L)
{
    if (br_script_view_open(L, -1))
        return;
    if (!lua_getmetatable(L, -1))
        return;
    if (lua_getfield(L, -1, "__index") == LUA_TTABLE)
        return;
    lua_pop(L, 2);
}

/* lightuserdata: the text; a count: returned. */
static int find_names(lua_State *L)
{
    struct serve *s = serve_of(L);
    const char *text = lua_touserdata(L, 1), *word = text;
    uint32_t n = 0;
    for (const char *p = text; *p; p++)
        if (*p == '.')
            word = p + 1;
    if (!walk(L, text, word))
        return lua_pushinteger(L, 0), 1;
    if (word == text) {
        take_names(L, s, word, lua_gettop(L), &n);
        lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key);
    }
    open_any(L);
    take_names(L, s, word, lua_gettop(L), &n);
    lua_pushinteger(L, n);
    return 1;
}

int br_serve_inspect_names(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    char text[BR_NAME_MAX];
    struct br_err why = {.code = BR_OK};
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0 || s->busy)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "INSPECT_NAMES is malformed, or not its turn");
    lua_State *L = s->script->L;
    s->script->interrupted = 0;
    br_buf_reset(&s->result);
    s->result.max = PRINT_CHUNK;
    lua_settop(L, 0);
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &cache_key);
    lua_pushcfunction(L, find_names);
    lua_pushlightuserdata(L, text);
    s->busy = true;
    uint32_t n = 0;
    if (br_script_call(s->script, 1, 1, BR_SCRIPT_PREDICATE_US, BR_E_FAILED, &why) == 0)
        n = (uint32_t)lua_tointeger(L, -1);
    s->busy = false;
    if (s->broken)
        return br_err_set(err, BR_E_PEER_GONE, "the client has gone");
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (s->result.failed)
        n = 0;
    br_buf_put_u32(&o.buf, n);
    if (n)
        br_buf_put(&o.buf, s->result.data, s->result.len);
    return br_chan_send(c, BR_MSG_INSPECT_NAMED, m->id, &o, err);
}
