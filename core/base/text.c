/*
 * Text that came from somebody else: UTF-8 checks, JSON string literals, and the one function that
 * makes text safe for a terminal.
 */
#include <string.h>

#include "base/base.h"

/*
 * Decode one sequence (RFC 3629). Returns its length and the code point, or 0 if the bytes at p are
 * not a whole valid sequence; *partial tells that they could be the start of one.
 */
static size_t utf8_decode(const uint8_t *p, size_t n, uint32_t *cp, bool *partial)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *partial = false;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    size_t len = p[0] >= 0xc2 && p[0] < 0xe0   ? 2
                 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                               : 0;
    if (!len)
        return 0;
    uint32_t v = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (i >= n) {
            *partial = true;
            return 0;
        }
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if (v < least[len] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
        return 0;
    *cp = v;
    return len;
}

bool br_utf8_valid(const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool partial;
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        size_t len = utf8_decode(p + i, n - i, &cp, &partial);
        if (!len)
            return false;
        i += len;
    }
    return true;
}

size_t br_utf8_floor(const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = p[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        uint32_t cp;
        bool partial;
        if (!utf8_decode(p + n - back, back, &cp, &partial) && partial)
            return n - back;
        return n;
    }
    return n;
}

void br_hex(char *dst, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *from = p;
    for (size_t i = 0; i < n; i++) {
        *dst++ = digits[from[i] >> 4];
        *dst++ = digits[from[i] & 15];
    }
    *dst = 0;
}

bool br_is_kebab(const char *s, size_t max)
{
    size_t n = strnlen(s, max + 1);
    if (n == 0 || n > max || s[0] == '-' || s[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++) {
        bool word = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9');
        if (!word && !(s[i] == '-' && s[i - 1] != '-'))
            return false;
    }
    return true;
}

/* Stands for itself in a JSON string, without having to be decoded. */
static bool is_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

int br_buf_put_json_str(struct br_buf *b, const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    br_buf_put_u8(b, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        bool partial;
        size_t plain = i;
        while (plain < n && is_plain(p[plain]))
            plain++;
        if (plain > i) {
            br_buf_put(b, p + i, plain - i);
            i = plain;
            continue;
        }
        size_t len = utf8_decode(p + i, n - i, &cp, &partial);
        if (!len) {
            br_buf_put(b, "\xef\xbf\xbd", 3);
            i++;
            continue;
        }
        if (cp == '"' || cp == '\\')
            br_buf_printf(b, "\\%c", (int)cp);
        else if (cp == '\n')
            br_buf_put(b, "\\n", 2);
        else if (cp == '\t')
            br_buf_put(b, "\\t", 2);
        else if (cp == '\r')
            br_buf_put(b, "\\r", 2);
        else if (cp < 0x20 || cp == 0x7f)
            br_buf_printf(b, "\\u%04x", (unsigned)cp);
        else
            br_buf_put(b, p + i, len);
        i += len;
    }
    return br_buf_put_u8(b, '"');
}

/* Characters that a terminal acts on, or that reorder or hide what a person reads. */
static bool is_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x061c ||
           (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) || cp == 0x2060 ||
           (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff || (cp >= 0xfff9 && cp <= 0xfffb) ||
           (cp >= 0xe0000 && cp <= 0xe007f);
}

int br_buf_put_visible(struct br_buf *b, const char *s, size_t n, bool one_line)
{
    const uint8_t *p = (const uint8_t *)s;
    int r = b->failed ? -BR_E_LIMIT_EXCEEDED : 0;
    for (size_t i = 0; i < n && r == 0;) {
        uint32_t cp;
        bool partial;
        size_t len = utf8_decode(p + i, n - i, &cp, &partial);
        if (!len) {
            r = br_buf_printf(b, "\\x%02x", p[i]);
            i++;
            continue;
        }
        if (!one_line && (cp == '\n' || cp == '\t'))
            r = br_buf_put_u8(b, (uint8_t)cp);
        else if (cp == '\n')
            r = br_buf_put(b, "\\n", 2);
        else if (cp == '\t')
            r = br_buf_put(b, "\\t", 2);
        else if (is_unsafe(cp))
            r = cp < 0x100 ? br_buf_printf(b, "\\x%02x", (unsigned)cp)
                           : br_buf_printf(b, "\\u%04x", (unsigned)cp);
        else
            r = br_buf_put(b, p + i, len);
        i += len;
    }
    return r;
}
