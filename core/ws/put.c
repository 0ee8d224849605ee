/*
 * Frames of the WebSocket protocol (RFC 6455 section 5), written: never fragmented, no reserved
 * bits, lengths in their shortest form. Called by bridle-gateway (which does not mask) and by the
 * client (which has to, with a mask that nobody can foresee).
 */
#include <string.h>

#include "ws/ws.h"

size_t br_ws_head(uint8_t dst[14], enum br_ws_op op, uint64_t payload, const uint8_t mask[4])
{
    size_t n = 2, bytes = payload < 126 ? 0 : payload <= 0xffff ? 2 : 8;
    dst[0] = (uint8_t)(0x80 | op);
    dst[1] = (uint8_t)((mask ? 0x80 : 0) | (bytes == 0 ? payload : bytes == 2 ? 126 : 127));
    while (bytes > 0)
        dst[n++] = (uint8_t)(payload >> 8 * --bytes);
    if (mask) {
        memcpy(dst + n, mask, 4);
        n += 4;
    }
    return n;
}

void br_ws_mask(void *p, size_t n, const uint8_t mask[4], uint64_t offset)
{
    uint8_t *b = p, turned[8];
    uint64_t m, v;
    for (unsigned i = 0; i < sizeof(turned); i++)
        turned[i] = mask[(offset + i) % 4];
    memcpy(&m, turned, sizeof(m));
    size_t i = 0;
    for (; n - i >= sizeof(v); i += sizeof(v)) {
        memcpy(&v, b + i, sizeof(v));
        v ^= m;
        memcpy(b + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        b[i] ^= turned[i % 8];
}

void br_ws_put(struct br_buf *b, enum br_ws_op op, const void *p, size_t n, bool mask)
{
    uint8_t head[14], key[4];
    if (mask)
        br_random(key, sizeof(key));
    br_buf_put(b, head, br_ws_head(head, op, n, mask ? key : NULL));
    size_t at = b->len;
    if (br_buf_put(b, p, n) == 0 && mask)
        br_ws_mask(b->data + at, n, key, 0);
}

void br_ws_put_close(struct br_buf *b, unsigned code, const char *reason, bool mask)
{
    uint8_t payload[125] = {(uint8_t)(code >> 8), (uint8_t)code};
    size_t n = strlen(reason);
    if (code == BR_WS_CLOSE_NO_STATUS) {
        br_ws_put(b, BR_WS_CLOSE, NULL, 0, mask);
        return;
    }
    if (n > sizeof(payload) - 2)
        n = br_utf8_floor(reason, sizeof(payload) - 2);
    memcpy(payload + 2, reason, n);
    br_ws_put(b, BR_WS_CLOSE, payload, n + 2, mask);
}
