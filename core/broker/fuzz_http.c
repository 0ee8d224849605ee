/*
 * What a guest sends, as one connection would see it: heads and bodies one after the other. However
 * it is cut into pieces, the requests are the same; nothing is read outside of what came.
 */
#include <string.h>

#include "broker/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One request at p. *used: what it took. True if there was one. */
static bool one(const char *p, size_t n, size_t step, struct br_http_request *q,
                struct br_buf *body, size_t *used, unsigned *status)
{
    struct br_err err = {.code = BR_OK};
    size_t end = 0, seen = 0;
    *status = 0;
    for (size_t k = step < n ? step : n;; k = n - k < step ? n : k + step) {
        end = br_http_head_end(p, k, seen);
        seen = k;
        if (end || k == n)
            break;
    }
    if (!end)
        return false;
    *used = end;
    *status = br_http_head(p, end, q, &err);
    if (*status) {
        br_require(*status >= 400 && *status < 600 && err.text[0]);
        return true;
    }
    br_require(q->path[0] == '/' && strlen(q->path) < BR_HTTP_PATH_MAX && q->ntokens <= 2);
    if (!q->chunked) {
        size_t k = q->length < n - end ? (size_t)q->length : n - end;
        *used += k;
        return k == q->length;
    }
    struct br_http_chunks c = {.state = 0};
    while (*status == 0 && !c.done && *used < n) {
        size_t k = n - *used < step ? n - *used : step, took = 0;
        *status = br_http_chunks_feed(&c, p + *used, k, &took, body, &err);
        br_require(took <= k && body->len <= body->max);
        *used += took;
    }
    return c.done || *status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct br_http_request a, b;
    size_t at = 0, step = size ? data[0] % 16 + 1u : 1;
    while (at < size) {
        BR_CLEANUP_BUF struct br_buf whole = BR_BUF_INIT(4096), cut = BR_BUF_INIT(4096);
        size_t used = 0, used2 = 0;
        unsigned status, status2;
        const char *p = (const char *)data + at;
        bool got = one(p, size - at, size, &a, &whole, &used, &status);
        bool got2 = one(p, size - at, step, &b, &cut, &used2, &status2);
        br_require(got == got2 && status == status2);
        if (!got || status)
            break;
        br_require(used == used2 && used > 0 && strcmp(a.path, b.path) == 0);
        br_require(whole.len == cut.len &&
                   (whole.len == 0 || memcmp(whole.data, cut.data, cut.len) == 0));
        at += used;
    }
    return 0;
}
