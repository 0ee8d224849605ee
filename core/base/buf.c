/*
 * Buffers with a hard maximum and bounded readers. The reader is what stands between a peer's
 * bytes and a handler: every getter checks before it reads, and one failure poisons the rest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

void br_buf_init(struct br_buf *b, size_t max)
{
    *b = (struct br_buf)BR_BUF_INIT(max);
}

void br_buf_free(struct br_buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

void br_buf_reset(struct br_buf *b)
{
    b->len = 0;
    b->failed = false;
}

/* Room for n more bytes and a terminator that is never counted. */
static int buf_reserve(struct br_buf *b, size_t n)
{
    size_t need;
    if (b->failed)
        return -BR_E_LIMIT_EXCEEDED;
    if (__builtin_add_overflow(b->len, n, &need) || need > b->max) {
        b->failed = true;
        return -BR_E_LIMIT_EXCEEDED;
    }
    if (need + 1 <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need + 1)
        cap = cap > b->max / 2 ? b->max + 1 : cap * 2;
    uint8_t *p = realloc(b->data, cap);
    if (!p) {
        b->failed = true;
        return -BR_E_NOMEM;
    }
    b->data = p;
    b->cap = cap;
    return 0;
}

int br_buf_put(struct br_buf *b, const void *p, size_t n)
{
    int r = buf_reserve(b, n);
    if (r < 0)
        return r;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    return 0;
}

int br_buf_put_u8(struct br_buf *b, uint8_t v)
{
    return br_buf_put(b, &v, 1);
}

int br_buf_put_u32(struct br_buf *b, uint32_t v)
{
    uint8_t le[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return br_buf_put(b, le, sizeof(le));
}

int br_buf_put_u64(struct br_buf *b, uint64_t v)
{
    int r = br_buf_put_u32(b, (uint32_t)v);
    return r < 0 ? r : br_buf_put_u32(b, (uint32_t)(v >> 32));
}

int br_buf_put_lstr(struct br_buf *b, const void *p, size_t n)
{
    if (n > UINT32_MAX) {
        b->failed = true;
        return -BR_E_LIMIT_EXCEEDED;
    }
    int r = br_buf_put_u32(b, (uint32_t)n);
    return r < 0 ? r : br_buf_put(b, p, n);
}

int br_buf_put_str(struct br_buf *b, const char *s)
{
    return br_buf_put_lstr(b, s ? s : "", s ? strlen(s) : 0);
}

int br_buf_printf(struct br_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    size_t room = b->failed || b->len >= b->cap ? 0 : b->cap - b->len;
    va_start(ap, fmt);
    va_copy(again, ap);
    /* mostly there is room for it already */
    int n = vsnprintf(room ? (char *)b->data + b->len : NULL, room, fmt, ap);
    va_end(ap);
    int r = n < 0 ? -BR_E_INTERNAL : buf_reserve(b, (size_t)n);
    if (r == 0 && (size_t)n >= room)
        vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
    if (r == 0)
        b->len += (size_t)n;
    else
        b->failed = true;
    va_end(again);
    return r;
}

char *br_buf_cstr(struct br_buf *b)
{
    if (buf_reserve(b, 0) < 0)
        return NULL;
    b->data[b->len] = 0;
    return (char *)b->data;
}

/* ---- reader ---- */

void br_rd_init(struct br_rd *r, const void *p, size_t n)
{
    *r = (struct br_rd){.p = p, .len = n};
}

static const uint8_t *rd_take(struct br_rd *r, size_t n)
{
    if (r->failed || n > r->len - r->off) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->p + r->off;
    r->off += n;
    return p;
}

uint8_t br_rd_u8(struct br_rd *r)
{
    const uint8_t *p = rd_take(r, 1);
    return p ? *p : 0;
}

uint32_t br_rd_u32(struct br_rd *r)
{
    const uint8_t *p = rd_take(r, 4);
    return p ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
             : 0;
}

uint64_t br_rd_u64(struct br_rd *r)
{
    uint64_t lo = br_rd_u32(r);
    uint64_t hi = br_rd_u32(r);
    return r->failed ? 0 : lo | hi << 32;
}

const void *br_rd_bytes(struct br_rd *r, size_t max, size_t *n)
{
    uint32_t len = br_rd_u32(r);
    *n = 0;
    if (len > max)
        r->failed = true;
    const uint8_t *p = rd_take(r, len);
    if (p)
        *n = len;
    return p;
}

const char *br_rd_lstr(struct br_rd *r, size_t max, size_t *n)
{
    const char *p = br_rd_bytes(r, max, n);
    if (p && memchr(p, 0, *n)) {
        r->failed = true;
        *n = 0;
        return NULL;
    }
    return p;
}

void br_rd_str(struct br_rd *r, char *dst, size_t cap)
{
    size_t n;
    br_require(cap > 0);
    const char *p = br_rd_lstr(r, cap - 1, &n);
    if (p)
        memcpy(dst, p, n);
    dst[p ? n : 0] = 0;
}

char *br_rd_strdup(struct br_rd *r, size_t max)
{
    size_t n;
    const char *p = br_rd_lstr(r, max, &n);
    if (!p)
        return NULL;
    char *s = malloc(n + 1);
    if (!s) {
        r->failed = true;
        return NULL;
    }
    memcpy(s, p, n);
    s[n] = 0;
    return s;
}

int br_rd_done(const struct br_rd *r)
{
    return r->failed || r->off != r->len ? -BR_E_PEER_PROTOCOL : 0;
}
