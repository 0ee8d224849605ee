/*
 * Purpose config: what an adapter is (adapter.lua) and what the operator lets it have (the table
 * `adapters` of bridle.lua), as the fixed structures that programs without a parser read. The texts
 * are the operator's, and run like any other of his in a state without files or network.
 */
#include <string.h>

#include "script/serve.h"
#include "wire/adapter.h"

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static uint64_t number_of(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void copy(char *dst, size_t cap, const char *s)
{
    snprintf(dst, cap, "%s", s);
}

void br_serve_put_terms(struct br_buf *b, const json_t *list)
{
    br_buf_put_u32(b, (uint32_t)json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *lease = json_object_get(o, "lease");
        const json_t *profiles = json_object_get(o, "profiles");
        struct br_adapter_terms t = {.nprofiles = 0};
        copy(t.ref, sizeof(t.ref), text_of(o, "ref"));
        for (size_t k = 0; k < json_array_size(profiles) && k < BR_ADAPTER_PROFILES_MAX; k++)
            copy(t.profiles[t.nprofiles++], sizeof(t.profiles[0]),
                 json_string_value(json_array_get(profiles, k)));
        copy(t.image, sizeof(t.image), text_of(o, "image"));
        copy(t.file, sizeof(t.file), text_of(o, "file"));
        t.gate = json_is_true(json_object_get(o, "gate"));
        t.context_files = json_is_true(json_object_get(o, "context_files"));
        t.requests = (uint32_t)number_of(lease, "requests");
        t.in_flight = (uint32_t)number_of(lease, "in_flight");
        t.tokens = number_of(lease, "tokens");
        t.request_bytes = number_of(lease, "request_bytes");
        t.response_bytes = number_of(lease, "response_bytes");
        t.answer_tokens = (uint32_t)number_of(lease, "answer_tokens");
        t.seconds = (uint32_t)number_of(lease, "seconds");
        t.keep_seconds = (uint32_t)number_of(o, "keep");
        br_adapter_terms_put(b, &t);
    }
}

/* The bit of a name, as enum br_route has them in this order. */
static uint32_t route_of(const char *name)
{
    static const char *const names[] = {"chat", "responses", "messages", "models"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return 1u << i;
    return 0;
}

static void fill(struct br_adapter *a, const json_t *o)
{
    static const char *const kinds[] = {"none", "text", "json"};
    const json_t *entry = json_object_get(o, "entry"), *tools = json_object_get(o, "tools"),
                 *routes = json_object_get(o, "routes"), *artifact = json_object_get(o, "artifact");
    copy(a->id, sizeof(a->id), text_of(o, "id"));
    a->revision = (uint32_t)number_of(o, "revision");
    for (size_t i = 0; i < json_array_size(entry) && i < BR_ADAPTER_ENTRY_MAX; i++)
        copy(a->entry[a->nentry++], sizeof(a->entry[0]),
             json_string_value(json_array_get(entry, i)));
    for (size_t i = 0; i < json_array_size(tools) && i < BR_LEASE_TOOLS_MAX; i++)
        copy(a->tools[a->ntools++], sizeof(a->tools[0]),
             json_string_value(json_array_get(tools, i)));
    for (size_t i = 0; i < json_array_size(routes); i++)
        a->routes |= route_of(json_string_value(json_array_get(routes, i)));
    a->session = json_is_true(json_object_get(o, "session"));
    a->gate = json_is_true(json_object_get(o, "gate"));
    for (uint8_t i = 0; i < BR_ARRAY_LEN(kinds); i++)
        if (strcmp(text_of(artifact, "kind"), kinds[i]) == 0)
            a->artifact = i;
    a->artifact_bytes = number_of(artifact, "bytes");
    a->output_bytes = (uint32_t)number_of(o, "output");
    a->trace_bytes = (uint32_t)number_of(o, "trace");
    copy(a->system, sizeof(a->system), text_of(o, "system"));
}

int br_serve_harness(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    char ref[BR_ADAPTER_REF_MAX], profile[64], path[BR_PATH_MAX];
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    struct br_adapter a = {.nentry = 0};
    br_rd_str(&m->rd, ref, sizeof(ref));
    br_rd_str(&m->rd, profile, sizeof(profile));
    br_rd_str(&m->rd, path, sizeof(path));
    int r = br_msg_blob(m, BR_ADAPTER_TEXT_MAX, &text, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    if (r == 0)
        r = br_serve_fresh(s, err);
    if (r < 0)
        return r;
    struct br_err why = {.code = BR_OK};
    json_t *o = NULL;
    r = br_compile_adapter(s->script, ref, profile, path, text.data, text.len, &o, a.sha256, &why);
    if (r < 0)
        return br_serve_fail(c, m->id, &why, path, s->script->error_line, err);
    fill(&a, o);
    json_decref(o);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_adapter_put(&out.buf, &a);
    return br_chan_send(c, BR_MSG_SCRIPT_ADAPTED, m->id, &out, err);
}

int br_serve_declared(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    char path[BR_PATH_MAX], adapter[BR_ADAPTER_REF_MAX] = "", profile[64] = "";
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    int r = br_serve_document(s, m, BR_MANIFEST_MAX, path, &text, err);
    if (r < 0)
        return r;
    struct br_err why = {.code = BR_OK};
    r = br_compile_declared(s->script, path, text.data, text.len, adapter, sizeof(adapter), profile,
                            sizeof(profile), &why);
    if (r < 0)
        return br_serve_fail(c, m->id, &why, path, 0, err);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, adapter);
    br_buf_put_str(&out.buf, profile);
    return br_chan_send(c, BR_MSG_SCRIPT_DECLARED, m->id, &out, err);
}
