/*
 * What is kept of a command's output: the first part and, in a ring, the last, since the reason of
 * a failure is mostly at one of the two ends. Called by exec.c; the bytes are hostile.
 */
#include <stdlib.h>
#include <string.h>

#include "init/init_priv.h"

int br_capture_init(struct br_capture *c, size_t cap)
{
    *c = (struct br_capture){.bytes = malloc(cap + 1), .cap = cap, .head = cap / 2};
    return c->bytes ? 0 : -BR_E_NOMEM;
}

void br_capture_free(struct br_capture *c)
{
    free(c->bytes);
    c->bytes = NULL;
}

/* Where the byte with this number in the stream is kept. */
static size_t place(const struct br_capture *c, uint64_t i)
{
    return i < c->head ? (size_t)i : c->head + (size_t)((i - c->head) % (c->cap - c->head));
}

void br_capture_put(struct br_capture *c, const void *p, size_t n)
{
    const uint8_t *from = p;
    size_t ring = c->cap - c->head;
    uint64_t at = c->total;
    c->total += n;
    if (at >= c->head && n > ring) { /* only its end will be kept */
        from += n - ring;
        at += n - ring;
        n = ring;
    }
    while (n) {
        size_t to = place(c, at), room = (at < c->head ? c->head : c->cap) - to;
        size_t k = n < room ? n : room;
        memcpy(c->bytes + to, from, k);
        from += k;
        at += k;
        n -= k;
    }
}

static void copy_range(const struct br_capture *c, uint64_t from, size_t n, struct br_buf *out)
{
    while (n) {
        size_t at = place(c, from), room = (from < c->head ? c->head : c->cap) - at;
        size_t k = n < room ? n : room;
        br_buf_put(out, c->bytes + at, k);
        from += k;
        n -= k;
    }
}

void br_capture_json(const struct br_capture *c, size_t budget, struct br_buf *out)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(budget + 128);
    if (c->total <= budget) {
        copy_range(c, 0, (size_t)c->total, &text);
    } else {
        size_t last = budget - budget / 2, first = budget / 2;
        copy_range(c, 0, first, &text);
        text.len = br_utf8_floor(text.data, text.len);
        br_buf_printf(&text, "\n[... %llu bytes were not kept ...]\n",
                      (unsigned long long)(c->total - budget));
        size_t tail = text.len;
        copy_range(c, c->total - last, last, &text);
        size_t skip = 0;
        while (skip < 3 && tail + skip < text.len && (text.data[tail + skip] & 0xc0) == 0x80)
            skip++;
        memmove(text.data + tail, text.data + tail + skip, text.len - tail - skip);
        text.len -= skip;
    }
    /* a reader of JSON would refuse an escaped NUL; 0xff becomes U+FFFD */
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == 0)
            text.data[i] = 0xff;
    out->failed |= text.failed;
    br_buf_put_json_str(out, (const char *)text.data, text.len);
}
