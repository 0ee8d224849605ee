/*
 * Prints every character that br_buf_put_visible() does not leave as it is, and what it makes of
 * it, one a line: for the test that the board's own function does the same. Runs once, reads
 * nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"

static size_t encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | cp);
    return n;
}

int main(void)
{
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char text[4];
        if (cp >= 0xd800 && cp < 0xe000)
            continue;
        size_t n = encode(cp, text);
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64);
        br_require(br_buf_put_visible(&b, text, n, true) == 0);
        if (b.len != n || memcmp(b.data, text, n) != 0)
            printf("%x %.*s\n", (unsigned)cp, (int)b.len, (char *)b.data);
    }
    return 0;
}
