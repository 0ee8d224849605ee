/*
 * Fuzzes the view: lines of input are events. Whatever they hold, what comes out has no byte that a
 * terminal acts on and is valid UTF-8, and JSON lines mean the same after they were made safe.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_output(const struct br_buf *b)
{
    br_require(br_utf8_valid(b->data, b->len));
    for (size_t i = 0; i < b->len; i++) {
        br_require(b->data[i] >= 0x20 || b->data[i] == '\n');
        br_require(b->data[i] != 0x7f);
        br_require(b->data[i] != 0xc2 || b->data[i + 1] >= 0xa0);
    }
}

static void check_json(const char *line, size_t n)
{
    json_t *before = json_loadb(line, n, 0, NULL);
    if (!before)
        return;
    BR_CLEANUP_BUF struct br_buf safe = BR_BUF_INIT(BR_VIEW_MAX);
    br_cli_put_json_safe(&safe, line, n);
    json_t *after = json_loadb((char *)safe.data, safe.len, 0, NULL);
    br_require(after && json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

static void show(const uint8_t *data, size_t size, unsigned width, bool folded)
{
    struct br_cli_view view;
    char status[256];
    br_cli_view_init(&view, false, width);
    view.receipt = true;
    view.folded = folded;
    for (size_t at = 0; at < size && size < 65536;) {
        const uint8_t *nl = memchr(data + at, '\n', size - at);
        size_t n = nl ? (size_t)(nl - (data + at)) : size - at;
        (void)br_cli_view_event(&view, (const char *)data + at, n, NULL);
        br_cli_view_question(&view, "p", 1, 2);
        (void)br_cli_view_status(&view, status, sizeof(status));
        check_json((const char *)data + at, n);
        at += n + (nl != NULL);
    }
    br_cli_view_summary(&view);
    if (!view.out.failed)
        check_output(&view.out);
    br_cli_view_free(&view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    show(data, size, 80, false);
    show(data, size, 40, true);
    return 0;
}
