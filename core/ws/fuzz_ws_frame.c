/*
 * Frames as a peer sends them. The first byte: which side reads, how large messages may be and how
 * the rest is cut. However it is cut, the messages are the same; none exceeds a limit; text is
 * UTF-8; what a refusal closes with may be sent; nothing is read outside of what came.
 */
#include <stdlib.h>
#include <string.h>

#include "ws/ws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was read, so that two readings can be compared; and the refusal at the end. */
static void read_all(struct br_buf *out, const struct br_ws_limits *l, const uint8_t *data,
                     size_t n, size_t step)
{
    struct br_ws_reader r;
    int rc = 0;
    br_ws_reader_init(&r, l);
    for (size_t at = 0; at < n && rc == 0; at += step) {
        size_t left = n - at < step ? n - at : step;
        uint8_t *piece = malloc(left), *p = piece; /* of its own: no byte behind it is there */
        struct br_ws_message m;
        struct br_err err = {.code = BR_OK};
        unsigned code = 0;
        br_require(piece);
        memcpy(piece, data + at, left);
        while ((rc = br_ws_read(&r, l, &p, &left, &m, &code, &err)) > 0) {
            bool control = m.op >= BR_WS_CLOSE;
            br_require(m.n <= (control ? 125 : l->message_bytes));
            br_require((m.op != BR_WS_TEXT && m.op != BR_WS_CLOSE) || br_utf8_valid(m.data, m.n));
            br_buf_put_u8(out, (uint8_t)m.op);
            br_buf_put_u32(out, m.op == BR_WS_CLOSE ? m.close_code : 0);
            br_buf_put_lstr(out, m.data, m.n);
        }
        br_require(rc < 0 || left == 0);
        br_require(r.message.len <= l->message_bytes && r.message.cap <= 2 * n + 65);
        if (rc < 0) {
            br_require(code == 1002 || code == 1007 || code == 1009);
            br_require(err.text[0] && strlen(err.text) <= 123 && -rc == (int)err.code);
            br_buf_put_u32(out, code);
        } else if (!br_ws_reader_open(&r)) {
            br_require(!r.message.data && !r.control);
        }
        free(piece);
    }
    br_ws_reader_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct br_ws_limits l = {data[0] & 2 ? 100 : 70000, data[0] & 4 ? 4 : 1024, data[0] & 1};
    size_t step = data[0] / 8u + 1;
    BR_CLEANUP_BUF struct br_buf whole = BR_BUF_INIT(64 * 1024 * 1024),
                                 cut = BR_BUF_INIT(64 * 1024 * 1024);
    read_all(&whole, &l, data + 1, size - 1, size);
    read_all(&cut, &l, data + 1, size - 1, step);
    br_require(!whole.failed && !cut.failed && whole.len == cut.len &&
               (whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0));
    return 0;
}
