/*
 * Fuzzes the redactor. Input: a byte that says how long the registered secret is, the secret, a
 * byte that seeds the sizes of chunks, the text. Whatever the text is,
 *   - a stream gives the same as one piece, however it is cut;
 *   - the secret is nowhere in the result: raw, hex, base64, or behind percent-encoding or JSON
 *     escapes.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/redact.h"

#define OUT_MAX (4u * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Replacements become one byte that the secret does not have, so that what is searched for is not
 * found across them, or in them. */
static size_t strip(uint8_t *dst, const uint8_t *p, size_t n, uint8_t gap)
{
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        const uint8_t *end =
            n - i > 10 && memcmp(p + i, "[redacted:", 10) == 0 ? memchr(p + i, ']', n - i) : NULL;
        dst[out++] = end ? gap : p[i];
        i = end ? (size_t)(end - p) + 1 : i + 1;
    }
    return out;
}

static size_t unpercent(uint8_t *dst, const uint8_t *p, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        bool esc = p[i] == '%' && n - i >= 3 && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0;
        dst[out++] = esc ? (uint8_t)(hex(p[i + 1]) << 4 | hex(p[i + 2])) : p[i];
        i += esc ? 3 : 1;
    }
    return out;
}

/* A character beyond ASCII becomes the gap as well: no secret is made of it here. */
static size_t unjson(uint8_t *dst, const uint8_t *p, size_t n, uint8_t gap)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        const char *k = p[i] == '\\' && n - i >= 2 && p[i + 1] ? strchr(from, p[i + 1]) : NULL;
        bool u = p[i] == '\\' && n - i >= 6 && p[i + 1] == 'u';
        unsigned cp = 0;
        for (size_t d = 2; u && d < 6; d++) {
            u = hex(p[i + d]) >= 0;
            cp = cp << 4 | (unsigned)(u ? hex(p[i + d]) : 0);
        }
        dst[out++] = k ? (uint8_t)to[k - from] : u ? (cp < 0x80 ? (uint8_t)cp : gap) : p[i];
        i += k ? 2 : u ? 6 : 1;
    }
    return out;
}

static void must_not_have(const uint8_t *p, size_t n, const void *needle, size_t len)
{
    if (len && memmem(p, n, needle, len))
        abort();
}

static void check_leaks(const uint8_t *p, size_t n, const uint8_t *secret, size_t len)
{
    uint8_t gap = 0;
    while (gap < 255 && (memchr(secret, gap, len) || hex(gap) >= 0 || strchr("%\\u", gap)))
        gap++;
    uint8_t *plain = malloc(n + 1), *other = malloc(n + 1);
    size_t m = strip(plain, p, n, gap);
    char text[2 * 256 + 1];
    must_not_have(plain, m, secret, len);
    for (size_t i = 0; i < len; i++)
        snprintf(text + 2 * i, 3, "%02x", secret[i]);
    must_not_have(plain, m, text, 2 * len);
    must_not_have(other, unpercent(other, plain, m), secret, len);
    must_not_have(other, unjson(other, plain, m, gap), secret, len);
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t k = 0;
    for (size_t i = 0; i + 3 <= len; i += 3) {
        unsigned v = (unsigned)secret[i] << 16 | (unsigned)secret[i + 1] << 8 | secret[i + 2];
        for (int s = 18; s >= 0; s -= 6)
            text[k++] = set[v >> s & 63];
    }
    /* for a length that is no multiple of three this is a part of what is registered */
    if (len % 3 == 0)
        must_not_have(plain, m, text, k);
    free(plain);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t len = data[0] % 64u;
    if (size < len + 2)
        return 0;
    const uint8_t *secret = data + 1, *text = data + len + 2;
    uint32_t seed = data[len + 1];
    size_t n = size - len - 2;
    struct br_redact *r = br_redact_new();
    if (!r)
        abort();
    if (len && br_redact_secret(r, "K", secret, len, NULL) < 0)
        abort();
    BR_CLEANUP_BUF struct br_buf whole = BR_BUF_INIT(OUT_MAX);
    BR_CLEANUP_BUF struct br_buf parts = BR_BUF_INIT(OUT_MAX);
    if (br_redact_text(r, text, n, &whole, NULL) < 0)
        abort();
    struct br_redact_stream *s = br_redact_stream_new(r);
    for (size_t at = 0, step; at < n; at += step) {
        seed = seed * 1664525u + 1013904223u;
        step = 1 + (seed >> 16) % (data[len + 1] % 2 ? 4u : 40u);
        step = step > n - at ? n - at : step;
        if (br_redact_stream_feed(s, text + at, step, &parts, NULL) < 0)
            abort();
    }
    if (br_redact_stream_end(s, &parts, NULL) < 0)
        abort();
    br_redact_stream_free(&s);
    if (whole.len != parts.len || (whole.len && memcmp(whole.data, parts.data, whole.len) != 0))
        abort();
    if (len >= BR_REDACT_SECRET_MIN && whole.len)
        check_leaks(whole.data, whole.len, secret, len);
    br_redact_free(&r);
    return 0;
}
