/*
 * The result: what a guest says came of its run. Read by bridle-session, which compares it with
 * what it told the guest; a guest that says anything else than was asked has said nothing. Trusts
 * no byte of it.
 */
#include <stdlib.h>
#include <string.h>

#include "frame/frame_priv.h"

const char *const br_frame_artifacts[] = {"none", "text", "json", NULL};
const char *const br_frame_tool_statuses[] = {"ok", "error", "denied", NULL};
static const char *const statuses[] = {"failed", "completed", NULL};

int br_frame_result_put(struct br_buf *out, const struct br_frame_result *r, struct br_err *err)
{
    json_t *tools = json_array();
    for (uint32_t i = 0; i < r->ntools; i++)
        json_array_append_new(tools, json_pack("{s:s, s:s, s:I}", "name", r->tools[i].name,
                                               "status", br_frame_tool_statuses[r->tools[i].status],
                                               "count", (json_int_t)r->tools[i].count));
    json_t *artifact = r->kind == BR_ARTIFACT_NONE
                           ? json_null()
                           : json_pack("{s:s, s:O}", "kind", br_frame_artifacts[r->kind],
                                       r->kind == BR_ARTIFACT_TEXT ? "text" : "value", r->artifact);
    json_t *root =
        json_pack("{s:s, s:s, s:{s:s, s:I}, s:{s:s*}, s:o, s:o, s:s*}", "runId", r->run_id,
                  "status", statuses[r->completed], "adapter", "id", r->adapter, "revision",
                  (json_int_t)r->revision, "session", "id", r->session, "artifact", artifact,
                  "tools", tools, "providerRevision", r->provider_revision);
    if (root && r->has_usage)
        json_object_set_new(root, "usage",
                            json_pack("{s:I, s:I, s:I}", "promptTokens",
                                      (json_int_t)r->prompt_tokens, "completionTokens",
                                      (json_int_t)r->completion_tokens, "totalTokens",
                                      (json_int_t)(r->prompt_tokens + r->completion_tokens)));
    int k = root ? br_frame_put(out, root, BR_FRAME_OUTPUT_MAX, err)
                 : br_err_set(err, BR_E_INVALID_FRAME, "a result could not be written as JSON");
    json_decref(root);
    return k;
}

static int read_artifact(const json_t *o, const struct br_frame_expect *e,
                         struct br_frame_result *out, struct br_err *err)
{
    static const struct frame_key text[] = {
        {"kind", JSON_STRING, .min = 4, .max = 4},
        {"text", JSON_STRING, .max = BR_FRAME_ARTIFACT_MAX},
    };
    if (json_is_null(o))
        return out->completed && e->kind != BR_ARTIFACT_NONE
                   ? frame_bad(err, "'artifact' is null in a completed result")
                   : 0;
    int kind = frame_index(json_object_get(o, "kind"), br_frame_artifacts);
    if (kind != BR_ARTIFACT_TEXT && kind != BR_ARTIFACT_JSON)
        return frame_bad(err, "'artifact.kind' is neither text nor json");
    if (kind != (int)e->kind)
        return frame_bad(err, "'artifact.kind' is %s and not %s", br_frame_artifacts[kind],
                         br_frame_artifacts[e->kind]);
    if (kind == BR_ARTIFACT_JSON && (json_object_size(o) != 2 || !json_object_get(o, "value")))
        return frame_bad(err, "'artifact' is not {kind, value}");
    int r =
        kind == BR_ARTIFACT_TEXT ? frame_keys(o, "artifact.", text, BR_ARRAY_LEN(text), err) : 0;
    if (r < 0)
        return r;
    out->kind = (enum br_frame_artifact)kind;
    out->artifact = json_object_get(o, kind == BR_ARTIFACT_TEXT ? "text" : "value");
    size_t n = json_dumpb(out->artifact, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    return n > e->artifact_bytes
               ? frame_bad(err, "its artifact has %zu bytes as JSON, more than its ceiling of %zu",
                           n, e->artifact_bytes)
               : 0;
}

static bool is_allowed(const struct br_frame_expect *e, const char *tool)
{
    for (uint32_t i = 0; i < e->ntools; i++)
        if (strcmp(e->tools[i], tool) == 0)
            return true;
    return false;
}

static int read_receipt(const json_t *o, const struct br_frame_expect *e,
                        struct br_frame_result *out, struct br_err *err)
{
    static const struct frame_key keys[] = {
        {"name", JSON_STRING, .min = 1, .max = BR_FRAME_NAME_MAX - 1},
        {"status", JSON_STRING, .min = 1, .max = 16},
        {"count", JSON_INTEGER},
    };
    int r = frame_keys(o, "tools[].", keys, BR_ARRAY_LEN(keys), err);
    if (r < 0)
        return r;
    int status = frame_index(json_object_get(o, "status"), br_frame_tool_statuses);
    const json_t *count = json_object_get(o, "count");
    const char *name = frame_text(o, "name");
    if (status < 0)
        return frame_bad(err, "'tools[].status' is none of ok, error and denied");
    if (!frame_number(count, 1, BR_FRAME_COUNT_MAX))
        return frame_bad(err, "'tools[].count' is not an integer from 1 to %u", BR_FRAME_COUNT_MAX);
    if (!is_allowed(e, name)) /* which one, is the guest's own text */
        return frame_bad(err, "'tools' names one that the adapter does not have");
    for (uint32_t i = 0; i < out->ntools; i++)
        if (strcmp(out->tools[i].name, name) == 0 && out->tools[i].status == status)
            return frame_bad(err, "'tools' names '%s' twice with one status", name);
    if (out->ntools == BR_FRAME_RECEIPTS_MAX)
        return frame_bad(err, "'tools' has more than %u entries", BR_FRAME_RECEIPTS_MAX);
    out->tools[out->ntools++] = (struct br_frame_receipt){
        .name = name, .status = (uint8_t)status, .count = (uint32_t)json_integer_value(count)};
    return 0;
}

static int read_usage(const json_t *o, struct br_frame_result *out, struct br_err *err)
{
    static const struct frame_key keys[] = {{"promptTokens", JSON_INTEGER},
                                            {"completionTokens", JSON_INTEGER},
                                            {"totalTokens", JSON_INTEGER}};
    json_int_t n[3];
    if (!o)
        return 0;
    int r = frame_keys(o, "usage.", keys, BR_ARRAY_LEN(keys), err);
    for (size_t i = 0; r == 0 && i < BR_ARRAY_LEN(keys); i++) {
        const json_t *v = json_object_get(o, keys[i].name);
        n[i] = json_integer_value(v);
        if (!frame_number(v, 0, BR_FRAME_TOKENS_MAX))
            r = frame_bad(err, "'usage.%s' is no count of tokens", keys[i].name);
    }
    if (r < 0)
        return r;
    if (n[0] + n[1] != n[2])
        return frame_bad(err, "'usage.totalTokens' is not the sum of the others");
    out->has_usage = true;
    out->prompt_tokens = (uint64_t)n[0];
    out->completion_tokens = (uint64_t)n[1];
    return 0;
}

/* Who it is: the guest that was asked, and no other. */
static int check_identity(const json_t *root, const struct br_frame_expect *e,
                          struct br_frame_result *out, struct br_err *err)
{
    static const struct frame_key session[] = {
        {"id", JSON_STRING, .optional = true, .min = 1, .max = BR_FRAME_SESSION_MAX},
    };
    int r = frame_adapter(json_object_get(root, "adapter"), &out->adapter, &out->revision, err);
    if (r == 0)
        r = frame_keys(json_object_get(root, "session"), "session.", session, BR_ARRAY_LEN(session),
                       err);
    if (r < 0)
        return r;
    out->run_id = frame_text(root, "runId");
    out->session = frame_text(json_object_get(root, "session"), "id");
    if (strcmp(out->run_id, e->run_id) != 0)
        return frame_bad(err, "'runId' is that of another run");
    if (strcmp(out->adapter, e->adapter) != 0 || out->revision != e->revision)
        return frame_bad(err, "'adapter' is another one than '%s@%u'", e->adapter, e->revision);
    if ((out->session != NULL) != (e->session != NULL) ||
        (e->session && strcmp(e->session, out->session) != 0))
        return frame_bad(err, "'session.id' is not the one that it was given");
    return 0;
}

static int read_result(const json_t *root, const struct br_frame_expect *e,
                       struct br_frame_result *out, struct br_err *err)
{
    static const struct frame_key keys[] = {
        {"runId", JSON_STRING, .min = 1, .max = BR_NAME_MAX},
        {"status", JSON_STRING, .min = 1, .max = 16},
        {"adapter", JSON_OBJECT},
        {"session", JSON_OBJECT},
        {"artifact", JSON_OBJECT, .nullable = true},
        {"tools", JSON_ARRAY},
        {"usage", JSON_OBJECT, .optional = true},
        {"providerRevision", JSON_STRING, .optional = true, .min = 1, .max = BR_FRAME_REVISION_MAX},
    };
    json_t *v;
    size_t i;
    int r = frame_keys(root, "", keys, BR_ARRAY_LEN(keys), err);
    if (r == 0)
        r = check_identity(root, e, out, err);
    if (r < 0)
        return r;
    int status = frame_index(json_object_get(root, "status"), statuses);
    if (status < 0)
        return frame_bad(err, "'status' is neither completed nor failed");
    out->completed = status == 1;
    out->provider_revision = frame_text(root, "providerRevision");
    if (out->provider_revision && !frame_is_name(out->provider_revision, BR_FRAME_REVISION_MAX))
        return frame_bad(err, "'providerRevision' is no name (letters, digits, '.', '_', '-')");
    json_array_foreach(json_object_get(root, "tools"), i, v)
    {
        r = read_receipt(v, e, out, err);
        if (r < 0)
            return r;
    }
    r = read_usage(json_object_get(root, "usage"), out, err);
    return r < 0 ? r : read_artifact(json_object_get(root, "artifact"), e, out, err);
}

int br_frame_result_get(const void *p, size_t n, const struct br_frame_expect *e,
                        struct br_frame_result *out, struct br_err *err)
{
    memset(out, 0, sizeof(*out));
    out->root = frame_load(p, n, e->output_bytes, err);
    int r = out->root ? read_result(out->root, e, out, err) : -BR_E_INVALID_FRAME;
    if (r < 0) {
        br_frame_result_free(out);
        memset(out, 0, sizeof(*out)); /* nothing of it counts */
    }
    return r;
}

void br_frame_result_free(struct br_frame_result *r)
{
    json_decref(r->root);
    r->root = NULL;
}
