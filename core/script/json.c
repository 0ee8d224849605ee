/*
 * JSON and Lua values. Text is scanned for size, depth and UTF-8 before jansson sees it, duplicate
 * keys are refused, integers stay integers, null is a value of its own, and an array is told from
 * an object by a metatable that every decoded array carries (so that [] comes back as []).
 * Both directions walk with a stack of their own: the depth of the input is not the depth of C.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "script/script.h"

#include "script/api_table.h"

static const char null_key = 0, array_key = 0, levels_key = 0;

#define HOLDER "bridle.json.tree"

/* ---- parse ---- */

/*
 * jansson's lexer does not look whether a byte was kept: a text of which one is lost for want of
 * memory would be another text. So the program notes each allocation that failed.
 */
static bool lacked_memory;

static void *noting_malloc(size_t n)
{
    void *p = malloc(n);
    lacked_memory |= !p;
    return p;
}

void br_script_watch_json(void)
{
    json_set_alloc_funcs(noting_malloc, free);
}

static unsigned line_at(const char *text, size_t n, int position)
{
    unsigned line = 1;
    for (size_t i = 0; i < n && (int)i < position; i++)
        line += text[i] == '\n';
    return line;
}

int br_script_json_parse(const void *text, size_t n, unsigned max_nodes, json_t **out,
                         unsigned *line, struct br_err *err)
{
    json_error_t je;
    if (line)
        *line = 0;
    int r = br_json_scan(text, n, BR_JSON_DEPTH_MAX, max_nodes, err);
    if (r < 0)
        return r;
    lacked_memory = false;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (lacked_memory) {
        json_decref(*out);
        *out = NULL;
        return br_err_set(err, BR_E_NOMEM, "no memory for a JSON text of %zu bytes", n);
    }
    if (*out)
        return 0;
    if (line)
        *line = line_at(text, n, je.position);
    return br_err_set(err, BR_E_INVALID_JSON, "the JSON text is malformed in line %d: %s", je.line,
                      je.text);
}

char *br_script_json_dump(const json_t *tree)
{
    lacked_memory = false;
    char *text = json_dumps(tree, JSON_COMPACT | JSON_SORT_KEYS);
    if (!lacked_memory)
        return text;
    free(text);
    return NULL;
}

/* ---- tree to Lua ---- */

static void push_null(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &null_key);
}

static void push_array_mark(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &array_key);
}

static void push_scalar(lua_State *L, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        lua_pushinteger(L, json_integer_value(v));
        break;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(v));
        break;
    default:
        push_null(L);
        break;
    }
}

struct frame {
    json_t *node;
    void *iter;   /* of an object */
    size_t index; /* of an array */
};

/* The next child of the container, or NULL; its key is pushed first where there is one. */
static json_t *next_child(lua_State *L, struct frame *f)
{
    if (json_is_array(f->node))
        return json_array_get(f->node, f->index++);
    f->iter = f->iter ? json_object_iter_next(f->node, f->iter) : json_object_iter(f->node);
    if (!f->iter)
        return NULL;
    lua_pushstring(L, json_object_iter_key(f->iter));
    return json_object_iter_value(f->iter);
}

static void open_container(lua_State *L, const json_t *v)
{
    lua_createtable(L, (int)json_array_size(v), (int)json_object_size(v));
    if (json_is_array(v)) {
        push_array_mark(L);
        lua_setmetatable(L, -2);
    }
}

static void push_tree(lua_State *L, json_t *tree)
{
    struct frame stack[BR_JSON_DEPTH_MAX + 1];
    unsigned depth = 0;
    if (!json_is_object(tree) && !json_is_array(tree)) {
        push_scalar(L, tree);
        return;
    }
    luaL_checkstack(L, 3 * (int)BR_JSON_DEPTH_MAX, "JSON");
    open_container(L, tree);
    stack[depth++] = (struct frame){.node = tree};
    while (depth > 0) {
        struct frame *f = &stack[depth - 1];
        json_t *v = next_child(L, f);
        if (v && (json_is_object(v) || json_is_array(v))) {
            if (depth > BR_JSON_DEPTH_MAX)
                luaL_error(L, "the JSON text is too deep");
            open_container(L, v);
            stack[depth++] = (struct frame){.node = v};
            continue;
        }
        if (v) {
            push_scalar(L, v);
        } else if (--depth == 0) {
            return; /* the root is on top */
        } else {
            f = &stack[depth - 1]; /* the finished container is on top, its key below */
        }
        if (json_is_array(f->node))
            lua_rawseti(L, -2, (lua_Integer)f->index);
        else
            lua_rawset(L, -3);
    }
}

/* ---- from one state to another ---- */

static void copy_scalar(lua_State *L, lua_State *from)
{
    size_t n;
    const char *s;
    switch (lua_type(from, -1)) {
    case LUA_TSTRING:
        s = lua_tolstring(from, -1, &n);
        lua_pushlstring(L, s, n);
        break;
    case LUA_TNUMBER:
        if (lua_isinteger(from, -1))
            lua_pushinteger(L, lua_tointeger(from, -1));
        else
            lua_pushnumber(L, lua_tonumber(from, -1));
        break;
    case LUA_TBOOLEAN:
        lua_pushboolean(L, lua_toboolean(from, -1));
        break;
    default:
        luaL_error(L, "a %s is no data", luaL_typename(from, -1));
    }
}

static bool has_array_mark(lua_State *L)
{
    if (!lua_getmetatable(L, -1))
        return false;
    push_array_mark(L);
    bool is = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    return is;
}

/* What rules have, and things like them: most tables without a list. */
#define COPY_FIELDS 12

static void copy_open(lua_State *L, lua_State *from)
{
    size_t n = lua_rawlen(from, -1);
    lua_pushnil(from);
    bool empty = !lua_next(from, -2);
    lua_pop(from, empty ? 0 : 2);
    lua_createtable(L, (int)n, n || empty ? 0 : COPY_FIELDS);
    if (has_array_mark(from)) {
        push_array_mark(L);
        lua_setmetatable(L, -2);
    }
    lua_pushnil(from);
}

void br_script_copy(lua_State *L, lua_State *from)
{
    unsigned depth = 1;
    luaL_checkstack(L, 3 * (int)BR_JSON_DEPTH_MAX, "copy");
    if (!lua_istable(from, -1) || !lua_checkstack(from, 3 * (int)BR_JSON_DEPTH_MAX))
        luaL_error(L, "there is nothing to copy");
    copy_open(L, from);
    while (depth > 0) {
        if (!lua_next(from, -2)) {
            lua_pop(from, 1); /* the table; its key is on top now */
            if (--depth > 0)
                lua_rawset(L, -3);
            continue;
        }
        lua_insert(from, -2); /* the value below its key */
        copy_scalar(L, from);
        lua_insert(from, -2);
        if (!lua_istable(from, -1)) {
            copy_scalar(L, from);
            lua_rawset(L, -3);
            lua_pop(from, 1);
            continue;
        }
        if (depth++ >= BR_JSON_DEPTH_MAX)
            luaL_error(L, "the data are too deep");
        copy_open(L, from);
    }
}

static int holder_gc(lua_State *L)
{
    json_t **tree = lua_touserdata(L, 1);
    json_decref(*tree);
    *tree = NULL;
    return 0;
}

/* An owner for a tree, made before there is one: everything here may raise. [-0, +1, m] */
static json_t **push_holder(lua_State *L)
{
    json_t **holder = lua_newuserdatauv(L, sizeof(json_t *), 0);
    *holder = NULL;
    luaL_setmetatable(L, HOLDER);
    return holder;
}

/* Replace the holder on top by the value of its tree. */
static void push_held(lua_State *L, json_t **holder)
{
    push_tree(L, *holder);
    lua_remove(L, -2);
    json_decref(*holder);
    *holder = NULL;
}

void br_script_json_push(lua_State *L, json_t **tree)
{
    json_t **holder = push_holder(L);
    *holder = br_steal_ptr(tree);
    push_held(L, holder);
}

/* ---- Lua to text ---- */

struct key {
    const char *s;
    size_t n;
};

/* One open container; the table is on the Lua stack. */
struct level {
    struct key *keys; /* of an object, sorted; owned */
    size_t n, at;
    bool array;
};

/* The open containers of one encoding: a userdata, since the walk may raise for want of memory. */
struct levels {
    unsigned depth;
    struct level stack[BR_JSON_DEPTH_MAX];
};

#define LEVELS "bridle.json.levels"

static void free_levels(struct levels *v)
{
    while (v->depth > 0) {
        struct level *top = &v->stack[--v->depth];
        free(br_steal_ptr(&top->keys)); /* the macro names its argument twice */
    }
}

static int levels_gc(lua_State *L)
{
    free_levels(lua_touserdata(L, 1));
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int r = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return r ? r : (x->n > y->n) - (x->n < y->n);
}

/* Most objects are small, for which qsort() does too much. */
static void sort_keys(struct key *keys, size_t n)
{
    if (n > 16) {
        qsort(keys, n, sizeof(*keys), compare_keys);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        struct key k = keys[i];
        size_t at = i;
        for (; at > 0 && compare_keys(&keys[at - 1], &k) > 0; at--)
            keys[at] = keys[at - 1];
        keys[at] = k;
    }
}

static int refuse(struct br_err *err, const char *what)
{
    return br_err_set(err, BR_E_INVALID_JSON, "%s cannot be written as JSON", what);
}

/* The value on top is a table: is it an array, and how long. -1: it is neither. */
static int shape(lua_State *L, bool *array, size_t *n)
{
    bool marked = false;
    if (lua_getmetatable(L, -1)) {
        push_array_mark(L);
        marked = lua_rawequal(L, -1, -2);
        lua_pop(L, 2);
    }
    size_t len = lua_rawlen(L, -1), count = 0, texts = 0;
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        count++;
        texts += lua_type(L, -2) == LUA_TSTRING;
        lua_pop(L, 1);
    }
    *array = marked || len > 0;
    *n = *array ? len : count;
    return *array ? (count == len && texts == 0 ? 0 : -1) : (texts == count ? 0 : -1);
}

static int open_level(lua_State *L, struct level *v, struct br_buf *out, struct br_err *err)
{
    memset(v, 0, sizeof(*v));
    if (shape(L, &v->array, &v->n) < 0)
        return refuse(err, "a table with mixed or broken keys");
    if (br_buf_put_u8(out, v->array ? '[' : '{') < 0) /* there are no keys to go on with */
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the JSON text is longer than %zu bytes",
                          out->max);
    if (v->array || v->n == 0)
        return 0;
    v->keys = calloc(v->n, sizeof(*v->keys));
    if (!v->keys)
        return br_err_set(err, BR_E_NOMEM, "no memory for a JSON object");
    size_t i = 0;
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        v->keys[i].s = lua_tolstring(L, -2, &v->keys[i].n);
        i++;
        lua_pop(L, 1);
    }
    sort_keys(v->keys, v->n);
    return 0;
}

static int put_text(struct br_buf *out, const char *s, size_t n, struct br_err *err)
{
    if (!br_utf8_valid(s, n))
        return refuse(err, "a text that is not UTF-8");
    br_buf_put_json_str(out, s, n);
    return 0;
}

static int put_number(lua_State *L, struct br_buf *out, struct br_err *err)
{
    char text[40];
    if (lua_isinteger(L, -1)) {
        lua_Integer i = lua_tointeger(L, -1);
        lua_Unsigned u = i < 0 ? 0 - (lua_Unsigned)i : (lua_Unsigned)i;
        size_t at = sizeof(text);
        do
            text[--at] = (char)('0' + u % 10);
        while (u /= 10);
        if (i < 0)
            text[--at] = '-';
        br_buf_put(out, text + at, sizeof(text) - at);
        return 0;
    }
    double d = lua_tonumber(L, -1);
    if (!isfinite(d))
        return refuse(err, "a number that is not finite");
    snprintf(text, sizeof(text), "%.17g", d);
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
    br_buf_put(out, text, strlen(text));
    return 0;
}

/* The scalar on top. */
static int put_scalar(lua_State *L, struct br_buf *out, struct br_err *err)
{
    size_t n;
    const char *s;
    switch (lua_type(L, -1)) {
    case LUA_TSTRING:
        s = lua_tolstring(L, -1, &n);
        return put_text(out, s, n, err);
    case LUA_TNUMBER:
        return put_number(L, out, err);
    case LUA_TBOOLEAN:
        s = lua_toboolean(L, -1) ? "true" : "false";
        br_buf_put(out, s, strlen(s));
        return 0;
    default:
        push_null(L);
        bool null = lua_rawequal(L, -1, -2);
        lua_pop(L, 1);
        if (!null)
            return refuse(err, luaL_typename(L, -1));
        br_buf_put(out, "null", 4);
        return 0;
    }
}

/* Push the next child of the container on top, after its comma and key. False at the end. */
static int next_value(lua_State *L, struct level *v, struct br_buf *out, struct br_err *err)
{
    if (v->at == v->n)
        return 0;
    if (v->at > 0)
        br_buf_put_u8(out, ',');
    if (v->array) {
        lua_rawgeti(L, -1, (lua_Integer)++v->at);
        return 1;
    }
    const struct key *k = &v->keys[v->at++];
    int r = put_text(out, k->s, k->n, err);
    if (r < 0)
        return r;
    br_buf_put_u8(out, ':');
    lua_pushlstring(L, k->s, k->n);
    lua_rawget(L, -2);
    return 1;
}

static int encode(lua_State *L, struct level *stack, unsigned *depth, struct br_buf *out,
                  struct br_err *err)
{
    size_t nodes = 0;
    for (;;) {
        int r;
        if (++nodes > BR_SCRIPT_NODES_MAX)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the JSON value has more than %u parts",
                              BR_SCRIPT_NODES_MAX);
        if (br_script_view_open(L, -1))
            lua_remove(L, -2);
        const struct br_buf *rows = br_script_rows(L, -1);
        if (rows) {
            br_buf_put(out, rows->data, rows->len);
            br_buf_put_u8(out, ']');
            r = rows->failed ? refuse(err, "a list that is not whole") : 0;
            lua_pop(L, 1);
        } else if (lua_istable(L, -1)) {
            if (*depth == BR_JSON_DEPTH_MAX)
                return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                                  "the JSON value is deeper than %u levels", BR_JSON_DEPTH_MAX);
            r = open_level(L, &stack[(*depth)++], out, err);
        } else {
            r = put_scalar(L, out, err);
            lua_pop(L, 1);
        }
        if (r < 0)
            return r;
        while (*depth > 0 && (r = next_value(L, &stack[*depth - 1], out, err)) == 0) {
            --*depth;
            br_buf_put_u8(out, stack[*depth].array ? ']' : '}');
            free(br_steal_ptr(&stack[*depth].keys));
            lua_pop(L, 1);
        }
        if (r < 0)
            return r;
        if (*depth == 0)
            return 0;
        if (out->failed)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the JSON text is longer than %zu bytes",
                              out->max);
    }
}

/*
 * The one of this state: an encoding calls no function that could begin another. One for each
 * would be 2 KiB that only a whole collection frees, since it has a finalizer. [-0, +1, m]
 */
static struct levels *push_levels(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &levels_key) == LUA_TUSERDATA) {
        struct levels *v = lua_touserdata(L, -1);
        free_levels(v); /* what one left behind that raised */
        return v;
    }
    lua_pop(L, 1);
    struct levels *v = lua_newuserdatauv(L, sizeof(*v), 0);
    v->depth = 0;
    luaL_setmetatable(L, LEVELS);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &levels_key);
    return v;
}

int br_script_json_encode(lua_State *L, int idx, struct br_buf *out, struct br_err *err)
{
    int top = lua_gettop(L);
    luaL_checkstack(L, (int)BR_JSON_DEPTH_MAX + 16, "JSON");
    idx = lua_absindex(L, idx);
    if (lua_type(L, idx) == LUA_TSTRING || lua_type(L, idx) == LUA_TNUMBER) {
        lua_pushvalue(L, idx);
        int done = put_scalar(L, out, err);
        lua_settop(L, top);
        return done < 0 || !out->failed
                   ? done
                   : br_err_set(err, BR_E_LIMIT_EXCEEDED, "the JSON text is longer than %zu bytes",
                                out->max);
    }
    struct levels *v = push_levels(L);
    lua_pushvalue(L, idx);
    int r = encode(L, v->stack, &v->depth, out, err);
    free_levels(v);
    lua_settop(L, top);
    if (r == 0 && out->failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the JSON text is longer than %zu bytes",
                          out->max);
    return r;
}

/* ---- the module ---- */

#define BUFFER "bridle.json.buffer"

static int buffer_gc(lua_State *L)
{
    br_buf_free(lua_touserdata(L, 1));
    return 0;
}

int br_lua_json_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    struct br_buf *b = lua_newuserdatauv(L, sizeof(*b), 0);
    br_buf_init(b, BR_SCRIPT_STRING_MAX);
    luaL_setmetatable(L, BUFFER);
    struct br_err err = {.code = BR_OK};
    if (br_script_json_encode(L, 1, b, &err) < 0)
        return luaL_error(L, "%s", err.text);
    br_script_tick(L, b->len);
    lua_pushlstring(L, (const char *)b->data, b->len);
    br_buf_free(b);
    return 1;
}

/* decode(text): the value, or nil and a message. */
int br_lua_json_decode(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    br_script_tick(L, n);
    struct br_err err = {.code = BR_OK};
    json_t **tree = push_holder(L);
    if (br_script_json_parse(text, n, BR_SCRIPT_NODES_MAX, tree, NULL, &err) < 0) {
        lua_pushnil(L);
        lua_pushstring(L, err.text);
        return 2;
    }
    push_held(L, tree);
    return 1;
}

/* array(t): t, marked as an array even when it is empty. */
int br_lua_json_array(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    push_array_mark(L);
    if (lua_getmetatable(L, 1)) {
        luaL_argcheck(L, lua_rawequal(L, -1, -2), 1, "a table with a metatable is not an array");
        lua_settop(L, 1);
        return 1;
    }
    lua_setmetatable(L, 1);
    return 1;
}

/* is_array(v): does v carry the mark. */
int br_lua_json_is_array(lua_State *L)
{
    luaL_checkany(L, 1);
    bool is = false;
    if (lua_istable(L, 1) && lua_getmetatable(L, 1)) {
        push_array_mark(L);
        is = lua_rawequal(L, -1, -2);
    }
    lua_pushboolean(L, is);
    return 1;
}

static void make_metatable(lua_State *L, const char *name, lua_CFunction gc)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void br_script_open_json(lua_State *L)
{
    make_metatable(L, HOLDER, holder_gc);
    make_metatable(L, BUFFER, buffer_gc);
    make_metatable(L, LEVELS, levels_gc);
    lua_createtable(L, 0, 2);
    lua_pushliteral(L, "array");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &array_key);
    (void)lua_newuserdatauv(L, 1, 0);
    lua_createtable(L, 0, 2);
    lua_pushliteral(L, "null");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &null_key);
    lua_setfield(L, -2, "null");
}
