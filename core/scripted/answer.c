/*
 * Answers in the shape of OpenAI-compatible chat completions, streamed and whole, with the faults
 * that a scenario asks for. Called by bridle-scripted with one complete request, which is hostile;
 * the scenario was validated. Every answer says that it is scripted: model, system_fingerprint,
 * ids and headers.
 */
#include <stdlib.h>
#include <string.h>

#include "scripted/scripted_priv.h"

#define ANSWER_MAX (8u * 1024 * 1024)
#define OVERSIZED_PIECE (64u * 1024)
#define OVERSIZED_REPEAT 1024u

struct maker {
    struct br_answer *a;
    const struct br_scenario *s;
    const struct br_turn *turn;
    uint64_t serial, created;
    unsigned assistant_messages;
    size_t request_bytes, completion_bytes;
    bool want_usage;
};

void br_answer_init(struct br_answer *a)
{
    *a = (struct br_answer){.stall = false};
    br_buf_init(&a->bytes, ANSWER_MAX);
}

void br_answer_free(struct br_answer *a)
{
    br_buf_free(&a->bytes);
    free(a->pieces);
    br_answer_init(a);
}

/* Everything since `start` becomes one piece. */
static void piece_close(struct br_answer *a, size_t start, unsigned delay_ms)
{
    if (a->npieces == a->cap) {
        unsigned cap = a->cap ? 2 * a->cap : 64;
        struct br_piece *p = reallocarray(a->pieces, cap, sizeof(*p));
        if (!p) {
            a->failed = true;
            return;
        }
        a->pieces = p;
        a->cap = cap;
    }
    a->pieces[a->npieces++] = (struct br_piece){
        .offset = start, .len = a->bytes.len - start, .delay_ms = delay_ms, .repeat = 1};
    a->failed = a->failed || a->bytes.failed;
}

static const char *status_text(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 307:
        return "Temporary Redirect";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 404:
        return "Not Found";
    case 413:
        return "Content Too Large";
    case 429:
        return "Too Many Requests";
    case 500:
        return "Internal Server Error";
    default:
        return "Answer";
    }
}

static void put_head(struct br_answer *a, unsigned status, const char *name, uint64_t serial,
                     const char *type)
{
    br_buf_printf(&a->bytes,
                  "HTTP/1.1 %u %s\r\nServer: bridle-scripted\r\nX-Bridle-Scripted: %s\r\n"
                  "X-Request-Id: scripted-%llu\r\nCache-Control: no-store\r\nConnection: close\r\n"
                  "Content-Type: %s\r\n",
                  status, status_text(status), name, (unsigned long long)serial, type);
}

static void put_whole(struct br_answer *a, unsigned status, const char *name, uint64_t serial,
                      const char *extra, const struct br_buf *body)
{
    size_t start = a->bytes.len;
    put_head(a, status, name, serial, "application/json");
    br_buf_printf(&a->bytes, "%sContent-Length: %zu\r\n\r\n", extra, body->len);
    piece_close(a, start, 0);
    /* two pieces, so that half an answer is one that can be sent */
    size_t half = body->len / 2;
    start = a->bytes.len;
    br_buf_put(&a->bytes, body->data, half);
    piece_close(a, start, 0);
    start = a->bytes.len;
    if (body->len)
        br_buf_put(&a->bytes, body->data + half, body->len - half);
    piece_close(a, start, 0);
    a->failed = a->failed || body->failed;
}

void br_answer_error(struct br_answer *a, unsigned status, const char *code, const char *message)
{
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(BR_HTTP_HEAD_MAX);
    br_buf_printf(&body, "{\"error\":{\"message\":");
    br_buf_put_json_str(&body, message, strlen(message));
    br_buf_printf(&body, ",\"type\":\"scripted_error\",\"param\":null,\"code\":");
    br_buf_put_json_str(&body, code, strlen(code));
    br_buf_printf(&body, "}}");
    put_whole(a, status, "error", 0, "", &body);
}

/* ---- parts of a completion ---- */

static unsigned long long tokens(size_t bytes)
{
    return (bytes + 3) / 4;
}

static void put_usage(const struct maker *m, struct br_buf *b)
{
    unsigned long long prompt = tokens(m->request_bytes), done = tokens(m->completion_bytes);
    unsigned long long total = prompt + done + (m->turn->fault == BR_FAULT_BAD_USAGE ? 7 : 0);
    br_buf_printf(b, "{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu}",
                  prompt, done, total);
}

static void put_ident(const struct maker *m, struct br_buf *b, const char *object)
{
    br_buf_printf(b,
                  "{\"id\":\"chatcmpl-scripted-%llu\",\"object\":\"%s\",\"created\":%llu,"
                  "\"model\":\"scripted/%s\",\"system_fingerprint\":\"scripted\"",
                  (unsigned long long)m->serial, object, (unsigned long long)m->created,
                  m->s->name);
}

static const char *finish_reason(const struct br_turn *t)
{
    bool calls = t->tool_calls != NULL;
    if (t->fault == BR_FAULT_WRONG_FINISH)
        return calls ? "stop" : "tool_calls";
    if (t->fault == BR_FAULT_LEGACY)
        return "function_call";
    if (t->finish_reason)
        return t->finish_reason;
    return calls ? "tool_calls" : "stop";
}

static void put_call_id(const struct maker *m, struct br_buf *b, size_t i)
{
    size_t n = m->turn->fault == BR_FAULT_DUPLICATE_IDS ? 0 : i;
    br_buf_printf(b, "\"call_scripted_%u_%zu\"", m->assistant_messages, n);
}

/* The arguments of call i as JSON text, to be freed; cut off in the middle for that fault. */
static char *call_arguments(const struct maker *m, size_t i)
{
    char *text = json_dumps(json_object_get(json_array_get(m->turn->tool_calls, i), "arguments"),
                            JSON_COMPACT);
    if (text && m->turn->fault == BR_FAULT_BAD_TOOL_JSON)
        text[strlen(text) - 1] = '\0';
    return text;
}

static const char *call_name(const struct maker *m, size_t i)
{
    return json_string_value(json_object_get(json_array_get(m->turn->tool_calls, i), "name"));
}

/* The length of the next `words` words of the text, spaces included. */
static size_t next_words(const char *s, unsigned words)
{
    size_t n = 0;
    for (unsigned w = 0; w < words && s[n]; w++) {
        n += strspn(s + n, " \n\t");
        n += strcspn(s + n, " \n\t");
    }
    return n;
}

/* ---- streamed ---- */

static void put_event(struct maker *m, const struct br_buf *data, unsigned delay_ms)
{
    struct br_answer *a = m->a;
    size_t start = a->bytes.len;
    br_buf_printf(&a->bytes, "%zx\r\ndata: ", data->len + 8);
    br_buf_put(&a->bytes, data->data, data->len);
    br_buf_printf(&a->bytes, "\n\n\r\n");
    piece_close(a, start, delay_ms);
    a->failed = a->failed || data->failed;
}

/* One chunk with this delta (the inside of an object). */
static void put_delta(struct maker *m, const struct br_buf *delta, const char *finish,
                      unsigned delay_ms)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(ANSWER_MAX);
    put_ident(m, &b, "chat.completion.chunk");
    br_buf_printf(&b, ",\"choices\":[");
    for (int i = 0; i < (m->turn->fault == BR_FAULT_TWO_CHOICES ? 2 : 1); i++) {
        br_buf_printf(&b, "%s{\"index\":%d,\"delta\":{", i ? "," : "", i);
        br_buf_put(&b, delta->data, delta->len);
        br_buf_printf(&b, "},\"logprobs\":null,\"finish_reason\":");
        if (finish)
            br_buf_put_json_str(&b, finish, strlen(finish));
        else
            br_buf_printf(&b, "null");
        br_buf_printf(&b, "}");
    }
    br_buf_printf(&b, "]%s}", m->want_usage ? ",\"usage\":null" : "");
    put_event(m, &b, delay_ms);
}

static void stream_text(struct maker *m)
{
    const struct br_turn *t = m->turn;
    for (const char *s = t->text; *s;) {
        size_t n = next_words(s, t->chunk_words);
        BR_CLEANUP_BUF struct br_buf delta = BR_BUF_INIT(ANSWER_MAX);
        br_buf_printf(&delta, "\"content\":");
        br_buf_put_json_str(&delta, s, n);
        put_delta(m, &delta, NULL, t->delay_ms);
        m->completion_bytes += n;
        s += n;
    }
}

static void stream_call_arguments(struct maker *m, size_t i, const char *args)
{
    static const size_t piece = 12;
    size_t n = strlen(args), at = 0;
    while (at < n) {
        size_t k = n - at < piece ? n - at : piece;
        if (at + k < n)
            k = br_utf8_floor(args + at, k) ? br_utf8_floor(args + at, k) : k;
        BR_CLEANUP_BUF struct br_buf delta = BR_BUF_INIT(ANSWER_MAX);
        br_buf_printf(&delta, "\"tool_calls\":[{\"index\":%zu,\"function\":{\"arguments\":", i);
        br_buf_put_json_str(&delta, args + at, k);
        br_buf_printf(&delta, "}}]");
        put_delta(m, &delta, NULL, m->turn->delay_ms);
        at += k;
    }
    m->completion_bytes += n;
}

static void stream_calls(struct maker *m)
{
    for (size_t i = 0; i < json_array_size(m->turn->tool_calls); i++) {
        BR_CLEANUP_FREE char *args = call_arguments(m, i);
        BR_CLEANUP_BUF struct br_buf delta = BR_BUF_INIT(ANSWER_MAX);
        const char *name = call_name(m, i);
        if (!args) {
            m->a->failed = true;
            return;
        }
        if (m->turn->fault == BR_FAULT_LEGACY) {
            br_buf_printf(&delta, "\"function_call\":{\"name\":");
            br_buf_put_json_str(&delta, name, strlen(name));
            br_buf_printf(&delta, ",\"arguments\":");
            br_buf_put_json_str(&delta, args, strlen(args));
            br_buf_printf(&delta, "}");
            put_delta(m, &delta, NULL, m->turn->delay_ms);
            return;
        }
        br_buf_printf(&delta, "\"tool_calls\":[{\"index\":%zu,\"id\":", i);
        put_call_id(m, &delta, i);
        br_buf_printf(&delta, ",\"type\":\"function\",\"function\":{\"name\":");
        br_buf_put_json_str(&delta, name, strlen(name));
        br_buf_printf(&delta, ",\"arguments\":\"\"}}]");
        put_delta(m, &delta, NULL, m->turn->delay_ms);
        stream_call_arguments(m, i, args);
    }
}

static void stream_oversized(struct maker *m)
{
    BR_CLEANUP_BUF struct br_buf delta = BR_BUF_INIT(ANSWER_MAX);
    br_buf_printf(&delta, "\"content\":\"");
    for (unsigned i = 0; i < OVERSIZED_PIECE; i++)
        br_buf_put_u8(&delta, 'x');
    br_buf_printf(&delta, "\"");
    put_delta(m, &delta, NULL, 0);
    if (m->a->npieces)
        m->a->pieces[m->a->npieces - 1].repeat = OVERSIZED_REPEAT;
}

static void make_stream(struct maker *m)
{
    struct br_answer *a = m->a;
    put_head(a, 200, m->s->name, m->serial, "text/event-stream");
    br_buf_printf(&a->bytes, "Transfer-Encoding: chunked\r\n\r\n");
    piece_close(a, 0, 0);
    BR_CLEANUP_BUF struct br_buf delta = BR_BUF_INIT(ANSWER_MAX);
    br_buf_printf(&delta, "\"role\":\"assistant\",\"content\":%s",
                  m->turn->tool_calls && !m->turn->text[0] ? "null" : "\"\"");
    put_delta(m, &delta, NULL, 0);
    stream_text(m);
    if (m->turn->fault == BR_FAULT_OVERSIZED)
        stream_oversized(m);
    stream_calls(m);
    br_buf_reset(&delta);
    put_delta(m, &delta, finish_reason(m->turn), 0);
    if (m->want_usage && m->turn->fault != BR_FAULT_NO_USAGE) {
        br_buf_reset(&delta);
        put_ident(m, &delta, "chat.completion.chunk");
        br_buf_printf(&delta, ",\"choices\":[],\"usage\":");
        put_usage(m, &delta);
        br_buf_printf(&delta, "}");
        put_event(m, &delta, 0);
    }
    size_t start = a->bytes.len;
    if (m->turn->fault != BR_FAULT_NO_DONE)
        br_buf_printf(&a->bytes, "e\r\ndata: [DONE]\n\n\r\n");
    br_buf_printf(&a->bytes, "0\r\n\r\n");
    piece_close(a, start, 0);
}

/* ---- whole ---- */

static void put_calls_whole(struct maker *m, struct br_buf *b)
{
    bool legacy = m->turn->fault == BR_FAULT_LEGACY;
    br_buf_printf(b, legacy ? ",\"function_call\":" : ",\"tool_calls\":[");
    for (size_t i = 0; i < json_array_size(m->turn->tool_calls) && !(legacy && i); i++) {
        BR_CLEANUP_FREE char *args = call_arguments(m, i);
        const char *name = call_name(m, i);
        if (!args) {
            m->a->failed = true;
            return;
        }
        if (!legacy) {
            br_buf_printf(b, "%s{\"id\":", i ? "," : "");
            put_call_id(m, b, i);
            br_buf_printf(b, ",\"type\":\"function\",\"function\":");
        }
        br_buf_printf(b, "{\"name\":");
        br_buf_put_json_str(b, name, strlen(name));
        br_buf_printf(b, ",\"arguments\":");
        br_buf_put_json_str(b, args, strlen(args));
        br_buf_printf(b, legacy ? "}" : "}}");
        m->completion_bytes += strlen(args);
    }
    br_buf_printf(b, legacy ? "" : "]");
}

static void make_whole(struct maker *m)
{
    const struct br_turn *t = m->turn;
    const char *finish = finish_reason(t);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(ANSWER_MAX);
    put_ident(m, &b, "chat.completion");
    br_buf_printf(&b, ",\"choices\":[");
    for (int i = 0; i < (t->fault == BR_FAULT_TWO_CHOICES ? 2 : 1); i++) {
        br_buf_printf(&b, "%s{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":",
                      i ? "," : "", i);
        m->completion_bytes = strlen(t->text);
        if (t->fault == BR_FAULT_OVERSIZED) {
            br_buf_put_u8(&b, '"');
            for (unsigned k = 0; k < ANSWER_MAX / 2; k++)
                br_buf_put_u8(&b, 'x');
            br_buf_put_u8(&b, '"');
        } else if (t->text[0] || !t->tool_calls) {
            br_buf_put_json_str(&b, t->text, strlen(t->text));
        } else {
            br_buf_printf(&b, "null");
        }
        if (t->tool_calls)
            put_calls_whole(m, &b);
        br_buf_printf(&b, "},\"logprobs\":null,\"finish_reason\":");
        br_buf_put_json_str(&b, finish, strlen(finish));
        br_buf_printf(&b, "}");
    }
    br_buf_printf(&b, "]");
    if (t->fault != BR_FAULT_NO_USAGE) {
        br_buf_printf(&b, ",\"usage\":");
        put_usage(m, &b);
    }
    br_buf_printf(&b, "}");
    put_whole(m->a, 200, m->s->name, m->serial, "", &b);
}

/* ---- faults of the connection ---- */

static void make_garbage(struct maker *m, bool stream)
{
    static const char junk[] = "\x7f\x45\x4c\x46\x02\x01\xff\xfe data: {]}\n\ndata: \xc3(\n\n";
    struct br_answer *a = m->a;
    put_head(a, 200, m->s->name, m->serial, stream ? "text/event-stream" : "application/json");
    br_buf_printf(&a->bytes, "Content-Length: %zu\r\n\r\n", sizeof(junk) - 1);
    br_buf_put(&a->bytes, junk, sizeof(junk) - 1);
    piece_close(a, 0, 0);
}

static void make_status(struct maker *m)
{
    const struct br_turn *t = m->turn;
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(BR_SCENARIO_MAX);
    BR_CLEANUP_BUF struct br_buf extra = BR_BUF_INIT(BR_SCENARIO_MAX);
    if (t->fault == BR_FAULT_REDIRECT)
        br_buf_printf(&extra, "Location: /v1/redirected\r\n");
    if (t->fault_retry_after)
        br_buf_printf(&extra, "Retry-After: %s\r\n", t->fault_retry_after);
    if (t->fault_body)
        br_buf_put(&body, t->fault_body, strlen(t->fault_body));
    else
        br_buf_printf(&body, "{\"error\":{\"message\":\"the scenario answers with this status\","
                             "\"type\":\"scripted_error\",\"code\":\"scripted\"}}");
    const char *lines = extra.len ? br_buf_cstr(&extra) : "";
    put_whole(m->a, t->fault == BR_FAULT_REDIRECT ? 307 : t->fault_status, m->s->name, m->serial,
              lines ? lines : "", &body);
}

static void make_turn(struct maker *m, bool stream)
{
    struct br_answer *a = m->a;
    switch (m->turn->fault) {
    case BR_FAULT_STATUS:
    case BR_FAULT_REDIRECT:
        make_status(m);
        return;
    case BR_FAULT_GARBAGE:
        make_garbage(m, stream);
        return;
    case BR_FAULT_SILENT:
        a->stall = true;
        return;
    default:
        break;
    }
    if (stream)
        make_stream(m);
    else
        make_whole(m);
    if (m->turn->fault == BR_FAULT_SLOW)
        a->fragment = 7;
    if (m->turn->fault == BR_FAULT_CLOSE || m->turn->fault == BR_FAULT_STALL) {
        a->npieces = a->npieces > 3 ? (a->npieces + 1) / 2 : a->npieces - 1;
        a->stall = m->turn->fault == BR_FAULT_STALL;
    }
}

/* ---- the request ---- */

static bool path_is(const struct br_http_request *r, const char *path)
{
    const char *p = strncmp(r->path, "/v1/", 4) == 0 ? r->path + 3 : r->path;
    return strcmp(p, path) == 0;
}

static unsigned count_assistant(json_t *messages)
{
    unsigned n = 0;
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        n += role && strcmp(role, "assistant") == 0;
    }
    return n;
}

static void make_models(struct br_answer *a, const struct br_scenario *s, uint64_t serial)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    br_buf_printf(&b,
                  "{\"object\":\"list\",\"data\":[{\"id\":\"scripted/%s\",\"object\":\"model\","
                  "\"created\":0,\"owned_by\":\"bridle-scripted\"}]}",
                  s->name);
    put_whole(a, 200, s->name, serial, "", &b);
}

static void make_completion(struct br_answer *a, const struct br_scenario *s, json_t *q,
                            size_t body_len, uint64_t serial)
{
    json_t *messages = json_object_get(q, "messages");
    const char *model = json_string_value(json_object_get(q, "model"));
    if (!json_is_object(q) || !json_is_array(messages) || json_array_size(messages) == 0 ||
        !model) {
        br_answer_error(a, 400, "invalid_request",
                        "the request needs 'model' and a list of 'messages'");
        return;
    }
    struct maker m = {.a = a,
                      .s = s,
                      .serial = serial,
                      .created = br_now_wall_us() / 1000000,
                      .assistant_messages = count_assistant(messages),
                      .request_bytes = body_len};
    const struct br_situation situation = {.assistant_messages = m.assistant_messages,
                                           .messages = messages};
    m.turn = br_scenario_turn(s, &situation);
    m.want_usage =
        json_is_true(json_object_get(json_object_get(q, "stream_options"), "include_usage"));
    if (!m.turn) {
        br_answer_error(a, 500, "no_turn",
                        "the scenario has no turn that matches this conversation; add one without "
                        "'when' at its end");
        return;
    }
    make_turn(&m, json_is_true(json_object_get(q, "stream")));
}

void br_answer_make(struct br_answer *a, const struct br_scenario *s,
                    const struct br_http_request *r, const char *body, uint64_t serial)
{
    if (strcmp(r->method, "GET") == 0 && path_is(r, "/models")) {
        make_models(a, s, serial);
        return;
    }
    if (strcmp(r->method, "POST") != 0 || !path_is(r, "/chat/completions")) {
        br_answer_error(a, 404, "not_found", "the scripted provider does not have this route");
        return;
    }
    struct br_err err;
    if (br_json_scan(body, r->body_len, BR_JSON_DEPTH_MAX, BR_SCRIPTED_NODES_MAX, &err) < 0) {
        br_answer_error(a, 400, "invalid_json", err.text);
        return;
    }
    json_t *q = json_loadb(body, r->body_len, JSON_REJECT_DUPLICATES, NULL);
    if (q)
        make_completion(a, s, q, r->body_len, serial);
    else
        br_answer_error(a, 400, "invalid_json", "the body is not JSON");
    json_decref(q);
}
