/*
 * Answers of a provider, in pieces. Whatever comes: no byte of a body before a head, never more out
 * than in, and the same whether it comes at once or byte by byte.
 */
#include <stdlib.h>
#include <string.h>

#include "egress/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct got {
    int code;
    bool head, end;
    size_t n;
    uint64_t sum;
};

static struct got feed(struct br_http *h, const uint8_t *p, size_t n, size_t piece)
{
    struct got g = {.code = 0};
    uint8_t *room = malloc(n ? n : 1);
    br_require(room != NULL);
    br_http_begin(h);
    for (size_t at = 0; at < n && g.code == 0 && !g.end; at += piece) {
        size_t k = n - at < piece ? n - at : piece;
        struct br_http_out out;
        memcpy(room, p + at, k);
        g.code = br_http_feed(h, room, k, &out, NULL);
        if (g.code < 0)
            break;
        g.head |= out.head;
        g.end = out.end;
        br_require(out.n <= k && (out.n == 0 || g.head));
        br_require(out.body >= room && out.body + out.n <= room + k);
        for (size_t i = 0; i < out.n; i++)
            g.sum = g.sum * 31 + out.body[i];
        g.n += out.n;
    }
    free(room);
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct br_http h;
    struct got whole = feed(&h, p, n, n ? n : 1), bytes = feed(&h, p, n, 1);
    /* the pieces before a fault are passed on, so only good answers are alike */
    br_require((whole.code == 0) == (bytes.code == 0));
    if (whole.code == 0)
        br_require(whole.head == bytes.head && whole.end == bytes.end && whole.n == bytes.n &&
                   whole.sum == bytes.sum);
    return 0;
}
