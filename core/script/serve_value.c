/*
 * Purpose policy: a JSON Schema of the operator's and the one value that an adapter gave back, for
 * which the session asks. The schema is refused here before anything was started if it says
 * something that is not checked; the value is a model's, and hostile. Both are data: no text of
 * either runs, and lua/bridle/jsonschema.lua bounds the time.
 */
#include <string.h>

#include "script/serve.h"

struct job {
    bool schema;
    json_t *json; /* taken by the call */
    enum br_code code;
    char text[BR_ERR_TEXT_MAX];
};

static int schema_key; /* its address names the compiled schema in the registry */

/* The function of bridle.jsonschema; runs inside of a call. */
static void push_function(lua_State *L, const char *field)
{
    br_script_push_env(L);
    lua_getfield(L, -1, "require");
    lua_remove(L, -2);
    lua_pushstring(L, "bridle.jsonschema");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, field);
    lua_remove(L, -2);
}

static int run_job(lua_State *L)
{
    struct job *job = lua_touserdata(L, 1);
    push_function(L, job->schema ? "compile" : "validate");
    if (!job->schema)
        lua_rawgetp(L, LUA_REGISTRYINDEX, &schema_key);
    br_script_json_push(L, &job->json);
    lua_call(L, job->schema ? 1 : 2, 3);
    if (!lua_isnil(L, -3)) {
        lua_pop(L, 2);
        if (job->schema)
            lua_rawsetp(L, LUA_REGISTRYINDEX, &schema_key);
        return 0;
    }
    const char *code = lua_tostring(L, -1), *text = lua_tostring(L, -2);
    bool large = code && strcmp(code, br_code_name(BR_E_LIMIT_EXCEEDED)) == 0;
    job->code = large ? BR_E_LIMIT_EXCEEDED : BR_E_INVALID_ARGUMENTS;
    snprintf(job->text, sizeof(job->text), "%s", text ? text : "it was refused for no reason");
    return 0;
}

static int judge(struct br_script *s, bool schema, const struct br_buf *b, struct br_err *err)
{
    struct job job = {.schema = schema};
    int r = br_script_json_parse(b->data, b->len, BR_JSON_NODES_MAX, &job.json, NULL, err);
    if (r < 0)
        return r;
    lua_pushcfunction(s->L, run_job);
    lua_pushlightuserdata(s->L, &job);
    r = br_script_call(s, 1, 0, BR_SCRIPT_COMPILE_US, BR_E_LIMIT_EXCEEDED, err);
    json_decref(job.json);
    return r == 0 && job.code ? br_err_set(err, job.code, "%s", job.text) : r;
}

int br_serve_value(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    struct br_err why = {.code = BR_OK};
    uint8_t schema = br_rd_u8(&m->rd);
    int r = br_msg_blob(m, BR_EVENT_MAX, &text, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r < 0 || schema > 1)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a VALUE message is malformed");
    if (judge(s->script, schema == 1, &text, &why) < 0)
        return br_serve_fail(c, m->id, &why, "", 0, err);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    return br_chan_send(c, BR_MSG_VALUE_FITS, m->id, &o, err);
}
