/*
 * One answer of a provider. The first byte chooses dialect and mode, the second how it is cut into
 * pieces, which must make no difference; the rest is the body. What passes has one form, and passed
 * a second time it stays what it is.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/dialect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct result {
    struct br_buf out;
    struct br_answer_facts facts;
    struct br_err err;
    int code;
};

static void pass(uint8_t how, bool normalize, uint8_t cut, const uint8_t *p, size_t n,
                 struct result *r)
{
    static const uint32_t routes[] = {BR_ROUTE_CHAT, BR_ROUTE_MESSAGES, BR_ROUTE_RESPONSES,
                                      BR_ROUTE_CHAT};
    struct br_lease l = {.answers = normalize ? BR_ANSWERS_NORMALIZE : BR_ANSWERS_STRICT,
                         .max_response_bytes = 1 << 20};
    struct br_ask_facts f = {
        .route = routes[how & 3], .stream = (how & 8) == 0, .hide_usage = (how & 16) != 0};
    unsigned seed = cut;
    if (!(how & 32))
        memset(l.token, 'a', 64);
    struct br_answer *a = br_answer_new(&l, &f, (how & 192) == 192 ? 500 : 200,
                                        f.stream ? "text/event-stream" : "application/json");
    br_require(a);
    *r = (struct result){.out = BR_BUF_INIT(1 << 24)};
    for (size_t at = 0; at < n && r->code == 0;) {
        seed = seed * 1103515245u + 12345u;
        size_t k = cut ? 1 + (seed >> 16) % (cut < 128 ? 8 : 100) : n;
        k = k > n - at ? n - at : k;
        uint8_t *piece = malloc(k);
        br_require(piece);
        memcpy(piece, p + at, k);
        r->code = br_answer_feed(a, piece, k, &r->out, &r->err);
        free(piece);
        at += k;
    }
    if (r->code == 0)
        r->code = br_answer_end(a, &r->out, &r->err);
    r->facts = *br_answer_facts(a);
    br_answer_free(&a);
}

static void same(const struct result *a, const struct result *b)
{
    br_require(a->code == b->code && strcmp(a->err.text, b->err.text) == 0);
    br_require(a->out.len == b->out.len &&
               (!a->out.len || memcmp(a->out.data, b->out.data, a->out.len) == 0));
    br_require(memcmp(a->facts.finish, b->facts.finish, sizeof(a->facts.finish)) == 0);
    br_require(a->facts.calls == b->facts.calls && a->facts.repairs == b->facts.repairs &&
               a->facts.prompt == b->facts.prompt && a->facts.completion == b->facts.completion &&
               a->facts.complete == b->facts.complete);
}

/* Lines that a client can split in one way only. */
static void one_form(const struct br_buf *out)
{
    if (!out->len)
        return;
    const char *p = (const char *)out->data, *end = p + out->len;
    br_require(!memchr(p, '\r', out->len));
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        br_require(lf);
        size_t n = (size_t)(lf - p);
        br_require(n == 0 || (n == 1 && *p == ':') || (n > 6 && memcmp(p, "data: ", 6) == 0) ||
                   (n > 7 && memcmp(p, "event: ", 7) == 0));
        p = lf + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct result whole, pieces, again;
    if (size < 2)
        return 0;
    uint8_t how = data[0];
    bool normalize = how & 4, stream = !(how & 8) && (how & 192) != 192;
    pass(how, normalize, 0, data + 2, size - 2, &whole);
    pass(how, normalize, data[1] | 1, data + 2, size - 2, &pieces);
    same(&whole, &pieces);
    if (stream)
        one_form(&whole.out);
    if (whole.code == 0 && (how & 192) != 192) {
        br_require(whole.facts.complete && whole.facts.finish[0]);
        pass(how, normalize, 0, whole.out.data, whole.out.len, &again);
        br_require(again.code == 0 && again.out.len == whole.out.len &&
                   memcmp(again.out.data, whole.out.data, whole.out.len) == 0);
        br_require((again.facts.repairs & ~(uint32_t)BR_REPAIR_TOTAL) == 0);
        br_require(normalize || whole.facts.repairs == 0);
        br_buf_free(&again.out);
    } else if (whole.code < 0) {
        br_require(!whole.facts.complete && whole.err.text[0] &&
                   whole.code == -(int)whole.err.code);
        br_require(stream || !whole.out.len);
    }
    br_buf_free(&whole.out);
    br_buf_free(&pieces.out);
    return 0;
}
