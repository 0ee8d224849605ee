/*
 * Purpose adapter: a provider's wire format, in Lua (lua/bridle/adapter). The turn comes from the
 * session, the response bytes from a provider; both are hostile. The module's functions are called
 * one at a time within their deadline, and nothing that they return is used without a check of its
 * type and size. A failure while a response is being read is kept and answers the rest of it.
 */
#include <string.h>

#include "script/serve.h"

#define ADAPTER "bridle.adapter.openai"
#define PATH_BYTES 1024u
#define TYPE_BYTES 256u

struct call {
    const char *function;
    json_t *turn; /* taken by the call; NULL: none */
    uint32_t status;
    const char *content_type;
    const void *bytes;
    size_t len;
    int code;                       /* of a refusal that says one */
    struct br_buf text, body, type; /* results */
};

static void call_init(struct call *q, const char *function)
{
    memset(q, 0, sizeof(*q));
    q->function = function;
    br_buf_init(&q->text, BR_BLOB_MAX);
    br_buf_init(&q->body, BR_BLOB_MAX);
    br_buf_init(&q->type, TYPE_BYTES);
}

static void call_free(struct call *q)
{
    json_decref(q->turn);
    br_buf_free(&q->text);
    br_buf_free(&q->body);
    br_buf_free(&q->type);
}

static void push_function(lua_State *L, const char *name)
{
    br_script_push_env(L);
    lua_getfield(L, -1, "require");
    lua_remove(L, -2);
    lua_pushstring(L, ADAPTER);
    lua_call(L, 1, 1);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

/* The three results on top: if they are nil, a message and perhaps a code, raise them. */
static void raise_refusal(lua_State *L, struct call *q)
{
    if (!lua_isnil(L, -3) || lua_type(L, -2) != LUA_TSTRING)
        return;
    const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    for (int c = 1; c < BR_CODE_COUNT_; c++)
        if (strcmp(br_code_name(c), name) == 0)
            q->code = c;
    lua_pop(L, 1);
    lua_error(L);
}

/* Append the text field of the table on top to `out`, or raise. */
static void take_field(lua_State *L, const char *key, struct br_buf *out)
{
    size_t n;
    lua_pushstring(L, key);
    if (lua_rawget(L, -2) != LUA_TSTRING)
        luaL_error(L, "the adapter's 'build' gave no text '%s'", key);
    const char *s = lua_tolstring(L, -1, &n);
    if (br_buf_put(out, s, n) < 0)
        luaL_error(L, "the adapter's '%s' is too long", key);
    lua_pop(L, 1);
}

static int run_build(lua_State *L)
{
    struct call *q = lua_touserdata(L, 1);
    push_function(L, q->function);
    br_script_json_push(L, &q->turn);
    lua_call(L, 1, 3);
    raise_refusal(L, q);
    lua_pop(L, 2);
    if (!lua_istable(L, -1))
        return luaL_error(L, "the adapter's 'build' must return a table");
    take_field(L, "path", &q->text);
    take_field(L, "body", &q->body);
    take_field(L, "content_type", &q->type);
    return 0;
}

static int run_head(lua_State *L)
{
    struct call *q = lua_touserdata(L, 1);
    push_function(L, q->function);
    lua_pushinteger(L, q->status);
    lua_pushstring(L, q->content_type);
    lua_call(L, 2, 3);
    raise_refusal(L, q);
    return 0;
}

static int run_feed(lua_State *L)
{
    struct call *q = lua_touserdata(L, 1);
    push_function(L, q->function);
    lua_pushlstring(L, q->bytes, q->len);
    lua_call(L, 1, 3);
    size_t n;
    raise_refusal(L, q);
    if (lua_isnil(L, -3))
        return 0;
    if (lua_type(L, -3) != LUA_TSTRING)
        return luaL_error(L, "the adapter's 'feed' must return a text");
    const char *s = lua_tolstring(L, -3, &n);
    return br_buf_put(&q->text, s, n) < 0 ? luaL_error(L, "the text is too long") : 0;
}

static int run_finish(lua_State *L)
{
    struct call *q = lua_touserdata(L, 1);
    push_function(L, q->function);
    lua_call(L, 0, 3);
    raise_refusal(L, q);
    if (!lua_istable(L, -3))
        return luaL_error(L, "the adapter's 'finish' must return a table");
    struct br_err err = {.code = BR_OK};
    if (br_script_json_encode(L, -3, &q->body, &err) < 0)
        return luaL_error(L, "%s", err.text);
    return 0;
}

static int invoke(struct serve *s, struct call *q, lua_CFunction run, struct br_err *why)
{
    lua_pushcfunction(s->script->L, run);
    lua_pushlightuserdata(s->script->L, q);
    int r = br_script_call(s->script, 1, 0, BR_SCRIPT_ADAPT_US, BR_E_PROVIDER_INVALID, why);
    if (r < 0 && q->code)
        why->code = (enum br_code)q->code;
    return r;
}

static int fail(struct serve *s, struct br_chan *c, uint64_t id, const struct br_err *why,
                struct br_err *err)
{
    return br_serve_fail(c, id, why, "", s->script->error_line, err);
}

static int on_build(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    BR_CLEANUP_BUF struct br_buf turn = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_BLOB_MAX, &turn, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r < 0)
        return r;
    struct br_err why = {.code = BR_OK};
    struct call q;
    call_init(&q, "build");
    s->script->error_line = 0;
    r = br_script_json_parse(turn.data, turn.len, BR_SCRIPT_NODES_MAX, &q.turn, NULL, &why);
    if (r == 0)
        r = invoke(s, &q, run_build, &why);
    if (r == 0 && q.text.len > PATH_BYTES)
        r = br_err_set(&why, BR_E_PROVIDER_INVALID, "the adapter's 'path' is too long");
    if (r < 0) {
        r = fail(s, c, m->id, &why, err);
    } else {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_lstr(&o.buf, q.text.data, q.text.len);
        br_out_blob(&o, q.body.data, q.body.len);
        br_buf_put_lstr(&o.buf, q.type.data, q.type.len);
        br_chan_permit(c, BR_MSG_ADAPT_HEAD);
        r = br_chan_send(c, BR_MSG_ADAPT_BUILT, m->id, &o, err);
    }
    call_free(&q);
    return r;
}

/* Has no answer; a failure is told with the next one. */
static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    char type[TYPE_BYTES];
    struct call q;
    call_init(&q, "head");
    q.status = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, type, sizeof(type));
    int r = br_rd_done(&m->rd);
    if (r < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an ADAPT_HEAD message is malformed");
    q.content_type = type;
    s->adapt_err = (struct br_err){.code = BR_OK};
    (void)invoke(s, &q, run_head, &s->adapt_err);
    br_chan_forbid(c, BR_MSG_ADAPT_HEAD);
    br_chan_permit(c, BR_MSG_ADAPT_FEED);
    br_chan_permit(c, BR_MSG_ADAPT_END);
    call_free(&q);
    return 0;
}

static int on_feed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    BR_CLEANUP_BUF struct br_buf bytes = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_BLOB_MAX, &bytes, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r < 0)
        return r;
    struct call q;
    call_init(&q, "feed");
    q.bytes = bytes.len ? bytes.data : (const uint8_t *)"";
    q.len = bytes.len;
    if (!s->adapt_err.code)
        (void)invoke(s, &q, run_feed, &s->adapt_err);
    if (s->adapt_err.code) {
        r = fail(s, c, m->id, &s->adapt_err, err);
    } else {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_out_blob(&o, q.text.data, q.text.len);
        r = br_chan_send(c, BR_MSG_ADAPT_DELTA, m->id, &o, err);
    }
    call_free(&q);
    return r;
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    struct call q;
    call_init(&q, "finish");
    if (!s->adapt_err.code)
        (void)invoke(s, &q, run_finish, &s->adapt_err);
    br_chan_forbid(c, BR_MSG_ADAPT_FEED);
    br_chan_forbid(c, BR_MSG_ADAPT_END);
    int r;
    if (s->adapt_err.code) {
        r = fail(s, c, m->id, &s->adapt_err, err);
    } else {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_out_blob(&o, q.body.data, q.body.len);
        r = br_chan_send(c, BR_MSG_ADAPT_RESPONSE, m->id, &o, err);
    }
    call_free(&q);
    return r;
}

const struct br_msg_rule br_serve_adapter_rules[] = {
    {BR_MSG_ADAPT_BUILD, BR_PERMIT, 3, BR_MSG_MAX, 0, 1, on_build},
    {BR_MSG_ADAPT_HEAD, 0, 8, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_ADAPT_FEED, 0, 3, BR_MSG_MAX, 0, 1, on_feed},
    {BR_MSG_ADAPT_END, 0, 0, 0, 0, 0, on_end},
};
const unsigned br_serve_adapter_nrules = BR_ARRAY_LEN(br_serve_adapter_rules);
