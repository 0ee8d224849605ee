/*
 * The body of a request as a guest sends it; the first byte chooses the route. What is allowed has
 * a limit of its answer, is JSON that a parser reads the same way, is allowed again as it is sent,
 * and is refused for another model.
 */
#include <jansson.h>
#include <string.h>

#include "broker/dialect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const paths[] = {"/chat/completions", "/responses", "/messages"};

static int ask(const char *path, const char *model, const void *p, size_t n, struct br_buf *out,
               struct br_ask_facts *f, struct br_err *err)
{
    struct br_lease l = {.routes = BR_ROUTES_ALL, .max_answer_tokens = 1000, .ntools = 1};
    memcpy(l.tools[0], "bash", 5);
    br_buf_reset(out);
    return br_ask_check(&l, model, "POST", path, "application/json", p, n, out, f, err);
}

/* By a parser of its own: what the lease pins is so in what is sent. */
static void pinned(const char *path, const struct br_buf *sent, const struct br_ask_facts *f)
{
    json_error_t e;
    json_t *q = json_loadb((const char *)sent->data, sent->len, JSON_REJECT_DUPLICATES, &e);
    if (!q) /* stricter than a provider: half surrogates, NUL, numbers out of range, the insides */
        return;
    br_require(strcmp(json_string_value(json_object_get(q, "model")), "m") == 0);
    json_t *limit = json_object_get(q, "max_tokens");
    limit = limit ? limit : json_object_get(q, "max_output_tokens");
    limit = limit ? limit : json_object_get(q, "max_completion_tokens");
    br_require(json_is_integer(limit) && (uint64_t)json_integer_value(limit) == f->max_tokens);
    br_require(json_is_true(json_object_get(q, "stream")) == f->stream);
    if (path == paths[0] && f->stream)
        br_require(
            json_is_true(json_object_get(json_object_get(q, "stream_options"), "include_usage")));
    if (path == paths[1])
        br_require(json_is_false(json_object_get(q, "store")));
    json_decref(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 24), again = BR_BUF_INIT(1 << 24);
    struct br_ask_facts f, g;
    struct br_err err = {.code = BR_OK};
    if (size < 1)
        return 0;
    json_object_seed(1);
    const char *path = paths[data[0] % BR_ARRAY_LEN(paths)];
    int r = ask(path, "m", data + 1, size - 1, &out, &f, &err);
    if (r < 0) {
        br_require(r == -BR_E_LEASE_REFUSED && err.text[0]);
        return 0;
    }
    br_require(f.max_tokens >= 1 && f.max_tokens <= 1000 && f.messages >= 1);
    br_require(f.reserve >= f.max_tokens);
    pinned(path, &out, &f);
    br_require(ask(path, "m", out.data, out.len, &again, &g, &err) == 0);
    br_require(again.len == out.len && memcmp(again.data, out.data, out.len) == 0);
    br_require(ask(path, "other", data + 1, size - 1, &again, &g, &err) < 0);
    return 0;
}
