/*
 * The diff of two hostile texts, which a NUL parts: it ends, keeps its bounds, and says nothing
 * that acts on a terminal.
 */
#include <stdint.h>
#include <string.h>

#include "promote/promote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *cut = size ? memchr(p, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - p) : size;
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    br_diff_lines(size ? p : "", n, cut ? cut + 1 : "", cut ? size - n - 1 : 0, 2000, &out);
    br_require(!out.failed && out.len < 2000 + 16 * 500);
    for (size_t i = 0; i < out.len; i++)
        br_require(out.data[i] == '\n' || out.data[i] >= 0x20);
    br_require(br_utf8_valid(out.data ? out.data : (const uint8_t *)"", out.len));
    return 0;
}
