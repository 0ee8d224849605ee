/*
 * One model turn: the adapter script writes the request, the broker sends it, the adapter reads the
 * answer as it arrives, and what it understood is checked here again. The session itself never
 * looks into a provider's bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define SCRIPT_TIMEOUT_US (10u * 1000000u)
#define TURN_TOKENS_MAX 16384u
/* What a prompt costs, about: a token is about four bytes of English. */
#define BYTES_PER_TOKEN 4u

void response_free(struct response *r)
{
    for (size_t i = 0; i < r->ncalls; i++)
        free(r->calls[i].arguments);
    free(r->calls);
    free(r->text);
    *r = (struct response){0};
}

/* Send to the adapter and wait for its one answer. */
static int adapter_call(struct session *s, enum br_msg_type type, const struct br_out *o,
                        struct br_err *err)
{
    uint64_t id = session_expect(s, &s->adapted);
    int r = br_chan_send(&s->adapter, type, id, o, err);
    if (r < 0)
        return r;
    r = session_wait(s, &s->adapted.done, SCRIPT_TIMEOUT_US, false);
    if (r == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_TIMEOUT, "the adapter did not answer %s within %u seconds",
                          br_msg_name(type), SCRIPT_TIMEOUT_US / 1000000u);
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    if (s->adapted.code < 0) {
        *err = s->adapted.err;
        return s->adapted.code;
    }
    return 0;
}

static json_t *turn_json(struct session *s, uint64_t max_tokens)
{
    return json_pack("{s:s, s:O, s:O, s:I, s:b}", "model", strchr(s->model, '/') + 1, "messages",
                     s->messages, "tools", s->tools, "maxTokens", (json_int_t)max_tokens, "stream",
                     (int)s->streaming);
}

static int build_request(struct session *s, uint64_t max_tokens, struct br_err *err)
{
    json_t *turn = turn_json(s, max_tokens);
    BR_CLEANUP_FREE char *text = turn ? json_dumps(turn, JSON_COMPACT) : NULL;
    json_decref(turn);
    if (!text)
        return br_err_set(err, BR_E_NOMEM, "the model request could not be written");
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text, strlen(text));
    return adapter_call(s, BR_MSG_ADAPT_BUILD, &o, err);
}

static int feed(struct session *s, struct br_err *err)
{
    struct br_buf part = s->provided.data;
    br_buf_init(&s->provided.data, BR_BLOB_MAX);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, part.data, part.len);
    br_buf_free(&part);
    int r = adapter_call(s, BR_MSG_ADAPT_FEED, &o, err);
    if (r < 0 || s->adapted.data.len == 0)
        return r;
    s->text_shown = true;
    r = session_text(s, (const char *)s->adapted.data.data, s->adapted.data.len, false);
    return r < 0 ? br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text) : 0;
}

/* Pass the body to the adapter as it comes, until the exchange is over. */
static int stream_body(struct session *s, struct br_err *err)
{
    bool told = false;
    for (;;) {
        if (s->http_headed && !told) {
            BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
            br_buf_put_u32(&o.buf, s->http_status);
            br_buf_put_str(&o.buf, s->content_type);
            int r = br_chan_send(&s->adapter, BR_MSG_ADAPT_HEAD, 0, &o, err);
            if (r < 0)
                return r;
            told = true;
        }
        if (told && s->provided.data.len) {
            int r = feed(s, err);
            if (r < 0)
                return r;
            continue;
        }
        if (s->provided.done)
            break;
        bool changed = false;
        s->body_kick = &changed;
        int r = session_wait(s, &changed, UINT64_MAX, false);
        s->body_kick = NULL;
        if (r < 0)
            return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    }
    if (s->provided.code < 0) {
        *err = s->provided.err;
        return s->provided.code;
    }
    if (!told)
        return br_err_set(err, BR_E_PROVIDER_TRUNCATED, "the provider sent no response");
    return 0;
}

static int read_call(json_t *v, struct call *c, struct br_err *err)
{
    const char *id, *name, *args;
    if (json_unpack_ex(v, NULL, JSON_STRICT, "{s:s, s:s, s:s}", "id", &id, "name", &name,
                       "arguments", &args) < 0 ||
        !*id || strlen(id) >= sizeof(c->id))
        return br_err_set(err, BR_E_PROVIDER_INVALID,
                          "the response holds a tool call without a usable id");
    snprintf(c->id, sizeof(c->id), "%s", id);
    return session_call_read(c, name, args, err);
}

static int read_calls(json_t *calls, struct response *out, struct br_err *err)
{
    size_t n = json_array_size(calls);
    if (n > BR_TOOL_CALLS_PER_TURN_MAX)
        return br_err_set(err, BR_E_PROVIDER_INVALID,
                          "the response holds %zu tool calls; at most %u are accepted", n,
                          BR_TOOL_CALLS_PER_TURN_MAX);
    out->calls = calloc(n ? n : 1, sizeof(*out->calls));
    if (!out->calls)
        return br_err_set(err, BR_E_NOMEM, "no memory for the tool calls");
    for (size_t i = 0; i < n; i++) {
        int r = read_call(json_array_get(calls, i), &out->calls[i], err);
        if (r < 0)
            return r;
        out->ncalls = i + 1;
        for (size_t k = 0; k < i; k++)
            if (strcmp(out->calls[k].id, out->calls[i].id) == 0)
                return br_err_set(err, BR_E_PROVIDER_INVALID,
                                  "the response holds two tool calls with the id '%s'",
                                  out->calls[i].id);
    }
    return 0;
}

/* {text, toolCalls, finishReason, usage, model, usageEstimated?} as the adapter made it. */
static int read_response(const struct br_buf *b, struct response *out, struct br_err *err)
{
    const char *p = (const char *)b->data;
    int r = br_json_scan(p, b->len, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, err);
    if (r < 0)
        return br_err_set(err, BR_E_PROVIDER_INVALID, "the response could not be used: %s",
                          err->text);
    json_t *root = json_loadb(p, b->len, JSON_REJECT_DUPLICATES, NULL);
    const char *text, *finish;
    json_t *calls;
    json_int_t prompt, completion;
    if (!root ||
        json_unpack(root, "{s:s, s:o, s:s, s:{s:I, s:I}}", "text", &text, "toolCalls", &calls,
                    "finishReason", &finish, "usage", "promptTokens", &prompt, "completionTokens",
                    &completion) < 0 ||
        prompt < 0 || completion < 0) {
        json_decref(root);
        return br_err_set(err, BR_E_PROVIDER_INVALID, "the adapter made no usable response");
    }
    out->text = strdup(text);
    snprintf(out->finish, sizeof(out->finish), "%s", finish);
    out->prompt_tokens = (uint64_t)prompt;
    out->completion_tokens = (uint64_t)completion;
    r = out->text ? read_calls(calls, out, err) : br_err_set(err, BR_E_NOMEM, "no memory");
    bool wants_tools = strcmp(out->finish, "tool_calls") == 0;
    if (r == 0 && (out->ncalls > 0) != wants_tools)
        r = br_err_set(err, BR_E_PROVIDER_INVALID,
                       "the response holds %zu tool calls but finished with '%s'", out->ncalls,
                       out->finish);
    json_decref(root);
    return r;
}

static int exchange(struct session *s, uint64_t max_tokens, struct response *out,
                    struct br_err *err)
{
    int r = build_request(s, max_tokens, err);
    if (r < 0)
        return r;
    s->http_headed = false;
    s->http_status = 0;
    s->request_bytes = s->adapted.data.len;
    s->response_bytes = 0;
    s->provider_request_id[0] = 0;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, "POST");
    br_buf_put_str(&o.buf, s->adapted.text);
    br_buf_put_str(&o.buf, s->content_type);
    br_buf_put_u32(&o.buf, (uint32_t)(max_tokens + s->adapted.data.len / BYTES_PER_TOKEN));
    br_out_blob(&o, s->adapted.data.data, s->adapted.data.len);
    uint64_t id = session_expect(s, &s->provided);
    br_buf_init(&s->provided.data, BR_BLOB_MAX);
    r = br_chan_send(&s->broker, BR_MSG_PROV_REQUEST, id, &o, err);
    if (r == 0)
        r = stream_body(s, err);
    if (r < 0 && !s->provided.done)
        (void)br_chan_send(&s->broker, BR_MSG_PROV_CANCEL, id, NULL, NULL);
    if (r == 0)
        r = adapter_call(s, BR_MSG_ADAPT_END, NULL, err);
    if (r < 0 && s->http_status && s->http_status / 100 != 2)
        err->code = BR_E_PROVIDER_STATUS;
    return r < 0 ? r : read_response(&s->adapted.data, out, err);
}

static json_t *usage_json(uint64_t prompt, uint64_t completion)
{
    return json_pack("{s:I, s:I, s:I}", "promptTokens", (json_int_t)prompt, "completionTokens",
                     (json_int_t)completion, "totalTokens", (json_int_t)(prompt + completion));
}

static int record_turn(struct session *s, const char *request_id, uint64_t started_us, int result,
                       const struct response *out, const struct br_err *err)
{
    json_t *receipt =
        json_pack("{s:s, s:i, s:I, s:I, s:I, s:b}", "requestId", request_id, "status",
                  (int)s->http_status, "requestBytes", (json_int_t)s->request_bytes,
                  "responseBytes", (json_int_t)s->response_bytes, "durationMs",
                  (json_int_t)((br_now_us() - started_us) / 1000), "scripted", (int)s->scripted);
    if (s->provider_request_id[0])
        json_object_set_new(receipt, "providerRequestId", json_string(s->provider_request_id));
    if (result < 0)
        json_object_set_new(
            receipt, "error",
            json_pack("{s:s, s:s}", "code", br_code_name(err->code), "message", err->text));
    const char *finish = result < 0 ? "error" : out->finish;
    int r = session_record_ahead(s, "bridle.provider", "kernel", receipt);
    if (r == 0)
        r = session_record(s, "model.response", "model",
                           json_pack("{s:s, s:s, s:s, s:o}", "requestId", request_id, "model",
                                     s->model, "finishReason", finish, "usage",
                                     usage_json(out->prompt_tokens, out->completion_tokens)));
    return r;
}

/* How long the answer may be, in tokens, so that the whole turn is within what is left. */
static int answer_room(struct session *s, uint64_t *room, struct br_err *err)
{
    const struct budget *b = &s->budget;
    uint64_t left = b->tokens_max > b->tokens ? b->tokens_max - b->tokens : 0;
    json_t *turn = turn_json(s, TURN_TOKENS_MAX);
    uint64_t prompt = json_dumpb(turn, NULL, 0, JSON_COMPACT) / BYTES_PER_TOKEN;
    json_decref(turn);
    if (prompt >= left)
        return br_err_set(err, BR_E_BUDGET_EXCEEDED,
                          "the run used %llu of %llu model tokens, and the next request has about "
                          "%llu; it was not sent",
                          (unsigned long long)b->tokens, (unsigned long long)b->tokens_max,
                          (unsigned long long)prompt);
    *room = left - prompt < TURN_TOKENS_MAX ? left - prompt : TURN_TOKENS_MAX;
    return 0;
}

int session_turn(struct session *s, struct response *out, struct br_err *err)
{
    char request_id[BR_ID_MAX];
    uint64_t max_tokens;
    int r = answer_room(s, &max_tokens, err);
    if (r < 0)
        return r;
    br_id_make(request_id, "req");
    br_id_make(s->stream_id, "txt");
    s->text_shown = false;
    r = session_record(s, "model.request", "kernel",
                       json_pack("{s:s, s:s, s:I}", "requestId", request_id, "model", s->model,
                                 "messageCount", (json_int_t)json_array_size(s->messages)));
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    uint64_t started = br_now_us();
    *out = (struct response){.prompt_tokens = 0};
    err->code = BR_OK;
    r = exchange(s, max_tokens, out, err);
    /* an answer that is not streamed has no deltas; its text is known only now */
    bool whole = r == 0 && !s->text_shown;
    int t = session_text(s, whole ? out->text : "", whole ? strlen(out->text) : 0, true);
    if (r == 0)
        s->budget.tokens += out->prompt_tokens + out->completion_tokens;
    int rec = record_turn(s, request_id, started, r, out, err);
    if (r == 0 && (t < 0 || rec < 0))
        r = br_err_set(err, (enum br_code) - (t < 0 ? t : rec), "%s", s->stop_err.text);
    if (r < 0)
        response_free(out);
    return r;
}
