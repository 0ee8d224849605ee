/*
 * br_json_scan() and the writer of JSON strings: the scan never reads past its text, is monotonic
 * in its limits, and accepts every string literal that the writer makes of any bytes without NUL.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = malloc(size ? size : 1); /* exact, so that the sanitizer sees a byte too far */
    if (!s)
        return 0;
    if (size)
        memcpy(s, data, size);
    int strict = br_json_scan(s, size, 3, 8, NULL);
    int wide = br_json_scan(s, size, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, NULL);
    br_require(strict == 0 || strict == -BR_E_INVALID_JSON);
    br_require(strict < 0 || wide == 0);
    br_require(wide < 0 || (br_utf8_valid(s, size) && !memchr(s, 0, size)));
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    br_require(br_buf_put_json_str(&b, s, size) == 0);
    br_require(b.len >= 2 && br_utf8_valid(b.data, b.len));
    int r = br_json_scan((char *)b.data, b.len, 0, 1, NULL);
    br_require((r == 0) == !(size && memchr(s, 0, size)));
    free(s);
    return 0;
}
