/*
 * Requests and answers of a provider lease. Called by bridle-broker on bodies of sessions and
 * guests and on answers of providers, all of which are hostile. Chat completions; an answer is
 * passed on as it is.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker_priv.h"
#include "broker/dialect.h"

const char *const br_repair_names[BR_REPAIRS] = {"finish", "ids", "function_call", "total", "done"};

struct br_answer {
    struct br_answer_facts facts;
    struct br_ask_facts ask;
};

static int rewrite(json_t *q, struct br_buf *out, struct br_ask_facts *facts, struct br_err *err)
{
    facts->stream = json_is_true(json_object_get(q, "stream"));
    facts->messages = (uint32_t)json_array_size(json_object_get(q, "messages"));
    if (facts->stream) {
        json_t *options = json_object_get(q, "stream_options");
        facts->hide_usage = !json_is_true(json_object_get(options, "include_usage"));
        if (json_object_set_new(q, "stream_options", json_pack("{s:b}", "include_usage", 1)) < 0)
            return br_err_set(err, BR_E_NOMEM, "no memory for a request");
    }
    char *text = json_dumps(q, JSON_COMPACT);
    if (!text)
        return br_err_set(err, BR_E_NOMEM, "no memory for a request");
    int r = br_buf_put(out, text, strlen(text));
    free(text);
    return r < 0 ? br_err_set(err, BR_E_LEASE_REFUSED, "the request is too large; it was not sent")
                 : 0;
}

int br_ask_check(const struct br_lease *l, const char *model, const char *method, const char *path,
                 const char *content_type, const void *body, size_t n, struct br_buf *out,
                 struct br_ask_facts *facts, struct br_err *err)
{
    struct br_broker_request q = {.max_tokens = 0};
    *facts = (struct br_ask_facts){.route = BR_ROUTE_CHAT};
    if (!(l->routes & BR_ROUTE_CHAT))
        return br_err_set(
            err, BR_E_LEASE_REFUSED,
            "'%.16s %.128s' is not a route of the provider lease; the request was not "
            "sent",
            method, path);
    int r = br_broker_check(BR_PATH_CHAT, model, method, path, content_type, body, n, &q, err);
    if (r < 0)
        return r;
    if (q.max_tokens > l->max_answer_tokens)
        return br_err_set(err, BR_E_LEASE_REFUSED,
                          "the answer may have %u tokens, not %llu; the request was not sent",
                          l->max_answer_tokens, (unsigned long long)q.max_tokens);
    json_t *o = json_loadb(body, n, JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        return br_err_set(err, BR_E_NOMEM, "no memory for a request");
    facts->max_tokens = q.max_tokens;
    facts->reserve = n / 2 + q.max_tokens;
    r = rewrite(o, out, facts, err);
    json_decref(o);
    return r;
}

struct br_answer *br_answer_new(const struct br_lease *l, const struct br_ask_facts *f,
                                uint32_t status, const char *content_type)
{
    struct br_answer *a = calloc(1, sizeof(*a));
    (void)l;
    (void)status;
    (void)content_type;
    if (a)
        a->ask = *f;
    return a;
}

int br_answer_feed(struct br_answer *a, const void *p, size_t n, struct br_buf *out,
                   struct br_err *err)
{
    (void)a;
    return br_buf_put(out, p, n) < 0 ? br_err_set(err, BR_E_NOMEM, "no memory for an answer") : 0;
}

int br_answer_end(struct br_answer *a, struct br_buf *out, struct br_err *err)
{
    (void)out;
    (void)err;
    a->facts.complete = true;
    return 0;
}

const struct br_answer_facts *br_answer_facts(const struct br_answer *a)
{
    return &a->facts;
}

void br_answer_free(struct br_answer **a)
{
    free(br_steal_ptr(a));
}

/* The provider's own vocabulary of error types, so that clients choose the right exception. */
static const char *error_type(enum br_code code)
{
    switch (code) {
    case BR_E_LEASE_REFUSED:
    case BR_E_LIMIT_EXCEEDED:
        return "invalid_request_error";
    case BR_E_DENIED:
        return "permission_error";
    case BR_E_TIMEOUT:
        return "timeout_error";
    default:
        return "api_error";
    }
}

void br_error_body(uint32_t route, bool sse, enum br_code code, const char *text,
                   struct br_buf *out)
{
    BR_CLEANUP_BUF struct br_buf safe = BR_BUF_INIT(4 * BR_ERR_TEXT_MAX);
    br_buf_put_visible(&safe, text, strnlen(text, BR_ERR_TEXT_MAX), true);
    bool messages = route == BR_ROUTE_MESSAGES;
    if (sse)
        br_buf_printf(out,
                      messages || route == BR_ROUTE_RESPONSES ? "event: error\ndata: " : "data: ");
    if (route == BR_ROUTE_RESPONSES && sse)
        br_buf_printf(out, "{\"type\":\"error\",\"code\":\"%s\",\"message\":", br_code_name(code));
    else
        br_buf_printf(out, "%s\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"message\":",
                      messages ? "{\"type\":\"error\"," : "{", error_type(code),
                      br_code_name(code));
    br_buf_put_json_str(out, (const char *)safe.data, safe.len);
    br_buf_printf(out, route == BR_ROUTE_RESPONSES && sse ? ",\"param\":null}" : "}}");
    if (sse)
        br_buf_printf(out, "\n\n");
}
