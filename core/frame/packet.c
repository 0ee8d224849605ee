/*
 * The packet: what a guest is told. Written by bridle-session from what the operator's side knows
 * (the paths in it are the sandbox's own), read by guests in C and by tests.
 */
#include <string.h>

#include "frame/frame_priv.h"

const char *const br_frame_routes[] = {"chat", "responses", "messages", "models", NULL};

static json_t *strings(const char *const *v, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(v[i]));
    return list;
}

static json_t *routes_json(uint32_t routes)
{
    json_t *list = json_array();
    for (unsigned i = 0; br_frame_routes[i]; i++)
        if (routes >> i & 1)
            json_array_append_new(list, json_string(br_frame_routes[i]));
    return list;
}

int br_frame_packet_put(struct br_buf *out, const struct br_frame_packet *p, struct br_err *err)
{
    json_t *root = json_pack(
        "{s:s, s:s, s:{s:s, s:I}, s:s, s:s%, s:s*, s:{s:s, s:o, s:I, s:b}, s:{s:s, s:s}, s:o,"
        " s:{s:s, s:s*}, s:{s:I, s:I}, s:s}",
        "protocol", BR_FRAME_PROTOCOL, "runId", p->run_id, "adapter", "id", p->adapter, "revision",
        (json_int_t)p->revision, "profile", p->profile, "prompt", p->prompt, p->prompt_len,
        "system", p->system, "model", "id", p->model.id, "routes", routes_json(p->model.routes),
        "answerTokens", (json_int_t)p->model.answer_tokens, "streaming", (int)p->model.streaming,
        "provider", "socket", p->socket, "token", p->token, "tools", strings(p->tools, p->ntools),
        "session", "intent", p->resume ? "resume" : "new", "id", p->session, "ceilings",
        "outputBytes", (json_int_t)p->output_bytes, "traceBytes", (json_int_t)p->trace_bytes,
        "deadline", p->deadline);
    if (root && p->gate)
        json_object_set_new(root, "gate", json_pack("{s:s}", "socket", p->gate));
    if (root && p->context_files)
        json_object_set_new(root, "contextFiles", json_true());
    int r = root ? br_frame_put(out, root, BR_FRAME_PACKET_MAX, err)
                 : br_err_set(err, BR_E_INVALID_FRAME,
                              "the run frame could not be written; the prompt is not valid UTF-8");
    json_decref(root);
    return r;
}

static int read_model(const json_t *o, struct br_frame_packet *out, struct br_err *err)
{
    static const struct frame_key keys[] = {
        {"id", JSON_STRING, .min = 1, .max = BR_NAME_MAX - 1},
        {"routes", JSON_ARRAY},
        {"answerTokens", JSON_INTEGER},
        {"streaming", JSON_TRUE},
    };
    int r = frame_keys(o, "model.", keys, BR_ARRAY_LEN(keys), err);
    if (r < 0)
        return r;
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(o, "routes"), i, v)
    {
        int k = frame_index(v, br_frame_routes);
        if (k < 0 || out->model.routes >> k & 1)
            return frame_bad(err, "'model.routes' names one that is not known, or one twice");
        out->model.routes |= 1u << k;
    }
    if (!frame_number(json_object_get(o, "answerTokens"), 1, BR_FRAME_TOKENS_MAX))
        return frame_bad(err, "'model.answerTokens' is not a positive integer");
    out->model.id = frame_text(o, "id");
    out->model.answer_tokens = (uint64_t)json_integer_value(json_object_get(o, "answerTokens"));
    out->model.streaming = json_is_true(json_object_get(o, "streaming"));
    return 0;
}

static int read_places(const json_t *root, struct br_frame_packet *out, struct br_err *err)
{
    static const struct frame_key provider[] = {
        {"socket", JSON_STRING, .min = 1, .max = 107},
        {"token", JSON_STRING, .min = 64, .max = 64},
    };
    static const struct frame_key gate[] = {{"socket", JSON_STRING, .min = 1, .max = 107}};
    static const struct frame_key session[] = {
        {"intent", JSON_STRING, .min = 3, .max = 6},
        {"id", JSON_STRING, .optional = true, .min = 1, .max = BR_FRAME_SESSION_MAX},
    };
    static const char *const intents[] = {"new", "resume", NULL};
    const json_t *p = json_object_get(root, "provider"), *g = json_object_get(root, "gate"),
                 *s = json_object_get(root, "session");
    int r = frame_keys(p, "provider.", provider, BR_ARRAY_LEN(provider), err);
    if (r == 0 && g)
        r = frame_keys(g, "gate.", gate, BR_ARRAY_LEN(gate), err);
    if (r == 0)
        r = frame_keys(s, "session.", session, BR_ARRAY_LEN(session), err);
    if (r < 0)
        return r;
    int intent = frame_index(json_object_get(s, "intent"), intents);
    out->socket = frame_text(p, "socket");
    out->token = frame_text(p, "token");
    out->gate = frame_text(g, "socket");
    out->session = frame_text(s, "id");
    out->resume = intent == 1;
    if (intent < 0)
        return frame_bad(err, "'session.intent' is neither new nor resume");
    return out->resume && !out->session ? frame_bad(err, "'session.id' is missing") : 0;
}

static int read_ceilings(const json_t *o, struct br_frame_packet *out, struct br_err *err)
{
    static const struct frame_key keys[] = {{"outputBytes", JSON_INTEGER},
                                            {"traceBytes", JSON_INTEGER}};
    int r = frame_keys(o, "ceilings.", keys, BR_ARRAY_LEN(keys), err);
    if (r < 0)
        return r;
    const json_t *output = json_object_get(o, "outputBytes"),
                 *trace = json_object_get(o, "traceBytes");
    if (!frame_number(output, 1, BR_FRAME_OUTPUT_MAX) ||
        !frame_number(trace, 1, BR_FRAME_TRACE_MAX))
        return frame_bad(err, "'ceilings' has one that is 0, or more than any adapter has");
    out->output_bytes = (uint32_t)json_integer_value(output);
    out->trace_bytes = (uint32_t)json_integer_value(trace);
    return 0;
}

static int read_tools(const json_t *list, struct br_frame_packet *out, struct br_err *err)
{
    json_t *v;
    size_t i;
    if (json_array_size(list) > BR_FRAME_TOOLS_MAX)
        return frame_bad(err, "'tools' names more than %u", BR_FRAME_TOOLS_MAX);
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
    {
        const char *name = json_string_value(v);
        if (!name || !frame_is_name(name, BR_FRAME_NAME_MAX - 1))
            return frame_bad(err, "'tools' holds something that is no name of a tool");
        out->tools[out->ntools++] = name;
    }
    return 0;
}

int br_frame_packet_get(const void *p, size_t n, struct br_frame_packet *out, struct br_err *err)
{
    static const struct frame_key keys[] = {
        {"protocol", JSON_STRING, .min = 1, .max = 128},
        {"runId", JSON_STRING, .min = 1, .max = BR_ID_MAX - 1},
        {"adapter", JSON_OBJECT},
        {"profile", JSON_STRING, .min = 1, .max = 63},
        {"prompt", JSON_STRING, .min = 1, .max = BR_GOAL_MAX},
        {"system", JSON_STRING, .optional = true, .min = 1, .max = BR_FRAME_SYSTEM_MAX},
        {"model", JSON_OBJECT},
        {"provider", JSON_OBJECT},
        {"gate", JSON_OBJECT, .optional = true},
        {"tools", JSON_ARRAY},
        {"session", JSON_OBJECT},
        {"contextFiles", JSON_TRUE, .optional = true},
        {"ceilings", JSON_OBJECT},
        {"deadline", JSON_STRING, .min = 20, .max = 35},
    };
    memset(out, 0, sizeof(*out));
    json_t *root = out->root = frame_load(p, n, BR_FRAME_PACKET_MAX, err);
    if (!root)
        return -BR_E_INVALID_FRAME;
    int r = frame_keys(root, "", keys, BR_ARRAY_LEN(keys), err);
    if (r < 0)
        return r;
    if (strcmp(frame_text(root, "protocol"), BR_FRAME_PROTOCOL) != 0)
        return frame_bad(err, "its protocol is not " BR_FRAME_PROTOCOL);
    out->run_id = frame_text(root, "runId");
    out->profile = frame_text(root, "profile");
    out->prompt = frame_text(root, "prompt");
    out->prompt_len = json_string_length(json_object_get(root, "prompt"));
    out->system = frame_text(root, "system");
    if (json_is_false(json_object_get(root, "contextFiles")))
        return frame_bad(err, "'contextFiles' is there and not true");
    out->context_files = json_is_true(json_object_get(root, "contextFiles"));
    out->deadline = frame_text(root, "deadline");
    r = frame_adapter(json_object_get(root, "adapter"), &out->adapter, &out->revision, err);
    if (r == 0)
        r = read_model(json_object_get(root, "model"), out, err);
    if (r == 0)
        r = read_places(root, out, err);
    if (r == 0)
        r = read_ceilings(json_object_get(root, "ceilings"), out, err);
    return r < 0 ? r : read_tools(json_object_get(root, "tools"), out, err);
}

void br_frame_packet_free(struct br_frame_packet *p)
{
    json_decref(p->root);
    p->root = NULL;
}
