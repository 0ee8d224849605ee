/*
 * Text functions on any bytes: what br_buf_put_visible() lets through holds nothing that a terminal
 * acts on, br_utf8_floor() cuts only partial characters, a subject of words splits back into them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_visible(const char *s, size_t n, bool one_line)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    br_require(br_buf_put_visible(&b, s, n, one_line) == 0);
    br_require(br_utf8_valid(b.data, b.len));
    for (size_t i = 0; i < b.len; i++) {
        uint8_t c = b.data[i];
        br_require(c >= 0x20 || (!one_line && (c == '\n' || c == '\t')));
        br_require(c != 0x7f);
        if (c == 0xc2) /* C1 */
            br_require(b.data[i + 1] >= 0xa0);
        if (c == 0xe2 && b.data[i + 1] == 0x80) /* bidirectional controls, separators */
            br_require(b.data[i + 2] < 0xa8 || b.data[i + 2] > 0xae);
    }
    BR_CLEANUP_BUF struct br_buf again = BR_BUF_INIT(BR_BLOB_MAX);
    br_require(br_buf_put_visible(&again, (char *)b.data, b.len, one_line) == 0);
    br_require(again.len == b.len && (!b.len || memcmp(again.data, b.data, b.len) == 0));
}

/* Undo the quoting of a subject; false if it is not one. */
static bool next_word(const uint8_t **at, const uint8_t *end, struct br_buf *word)
{
    br_buf_reset(word);
    bool quoted = false;
    for (; *at < end; (*at)++) {
        if (quoted && **at == '\'')
            quoted = false;
        else if (quoted)
            br_buf_put_u8(word, **at);
        else if (**at == '\'')
            quoted = true;
        else if (**at == '\\')
            br_buf_put_u8(word, *++(*at));
        else if (**at == ' ')
            break;
        else
            br_buf_put_u8(word, **at);
    }
    *at += *at < end;
    return !quoted;
}

static void check_subject(const char *s, size_t n)
{
    char *words[8], *copy = malloc(n + 1);
    uint32_t argc = 0;
    if (!copy)
        return;
    memcpy(copy, s, n);
    copy[n] = 0;
    for (size_t i = 0; i <= n && argc < 8; i += strlen(copy + i) + 1)
        words[argc++] = copy + i;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX), word = BR_BUF_INIT(BR_BLOB_MAX);
    br_require(br_exec_subject(words, argc, &b) == 0);
    const uint8_t *at = b.data, *end = b.data + b.len;
    for (uint32_t i = 0; i < argc; i++) {
        br_require(next_word(&at, end, &word));
        br_require(strcmp(br_buf_cstr(&word), words[i]) == 0);
    }
    br_require(at == end);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = malloc(size ? size : 1); /* exact, so that the sanitizer sees a byte too far */
    if (!s)
        return 0;
    if (size)
        memcpy(s, data, size);
    check_visible(s, size, false);
    check_visible(s, size, true);
    size_t k = br_utf8_floor(s, size);
    br_require(k <= size && size - k <= 3);
    br_require(!br_utf8_valid(s, size) || k == size);
    if (k < size && br_utf8_valid(s, k))
        br_require(!br_utf8_valid(s, size));
    check_subject(s, size);
    free(s);
    return 0;
}
