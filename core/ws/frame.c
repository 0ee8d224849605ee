/*
 * Frames of the WebSocket protocol (RFC 6455 section 5), read. Called by bridle-gateway on what
 * anybody may send, and by the client on what a server sends: all of it is untrusted. There is one
 * way to write each thing: no extension is spoken, so reserved bits are zero; a length has its
 * shortest form; a client masks and a server does not.
 *
 * A message whose payload lies in the input as a whole is not copied. Nothing is allocated for what
 * a head only announces: a buffer grows with the bytes that have come.
 */
#include <stdlib.h>
#include <string.h>

#include "ws/ws.h"

enum { CONTINUATION = 0, CONTROL_MAX = 125, DEAD = 0xff };

void br_ws_reader_init(struct br_ws_reader *r, const struct br_ws_limits *l)
{
    *r = (struct br_ws_reader){.message = BR_BUF_INIT(l->message_bytes)};
}

void br_ws_reader_free(struct br_ws_reader *r)
{
    br_buf_free(&r->message);
    free(r->control);
    r->control = NULL;
}

bool br_ws_reader_open(const struct br_ws_reader *r)
{
    return r->nhead > 0 || r->first_op != 0;
}

static int refuse(struct br_ws_reader *r, unsigned *close_code, unsigned code, struct br_err *err,
                  const char *why)
{
    r->need = DEAD;
    r->first_op = r->nhead = 0;
    br_ws_reader_free(r);
    *close_code = code;
    return br_err_set(err,
                      code == BR_WS_CLOSE_TOO_LARGE  ? BR_E_LIMIT_EXCEEDED
                      : code == BR_WS_CLOSE_INTERNAL ? BR_E_NOMEM
                                                     : BR_E_PEER_PROTOCOL,
                      "%s", why);
}

/* ---- UTF-8 as it comes ---- */

/* In the state: how many bytes of a sequence are to come, and the bounds of the next one. */
#define UTF8_STATE(left, low, high)                                                                \
    ((uint32_t)(left) | (uint32_t)(low) << 8 | (uint32_t)(high) << 16)

static uint32_t utf8_first(uint8_t c)
{
    if (c >= 0xc2 && c <= 0xdf)
        return UTF8_STATE(1, 0x80, 0xbf);
    if (c >= 0xe0 && c <= 0xef)
        return UTF8_STATE(2, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf);
    if (c >= 0xf0 && c <= 0xf4)
        return UTF8_STATE(3, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf);
    return 0;
}

/* False at the first byte that no valid text has there. */
static bool utf8_feed(uint32_t *state, const uint8_t *p, size_t n)
{
    uint32_t s = *state;
    for (size_t i = 0; i < n; i++) {
        if (s) {
            if (p[i] < (s >> 8 & 0xff) || p[i] > s >> 16)
                return false;
            s = (s & 0xff) > 1 ? UTF8_STATE((s & 0xff) - 1, 0x80, 0xbf) : 0;
            continue;
        }
        uint64_t eight;
        while (n - i >= sizeof(eight)) {
            memcpy(&eight, p + i, sizeof(eight));
            if (eight & 0x8080808080808080u)
                break;
            i += sizeof(eight);
        }
        if (i == n)
            break;
        if (p[i] >= 0x80 && !(s = utf8_first(p[i])))
            return false;
    }
    *state = s;
    return true;
}

/* ---- heads ---- */

static const char *check_first(const struct br_ws_reader *r, uint8_t b)
{
    uint8_t op = b & 0x0f;
    if (b & 0x70)
        return "a frame has reserved bits set, and no extension was agreed on";
    if (op != CONTINUATION && op != BR_WS_TEXT && op != BR_WS_BINARY && op != BR_WS_CLOSE &&
        op != BR_WS_PING && op != BR_WS_PONG)
        return "a frame has an opcode that is not defined";
    if (op >= BR_WS_CLOSE && !(b & 0x80))
        return "a control frame is fragmented";
    if (op == CONTINUATION && !r->first_op)
        return "a frame continues a message that was not begun";
    if (op != CONTINUATION && op < BR_WS_CLOSE && r->first_op)
        return "a message begins before the one before it is complete";
    return NULL;
}

static const char *check_second(const struct br_ws_reader *r, const struct br_ws_limits *l,
                                uint8_t b)
{
    if (!!(b & 0x80) != l->server)
        return l->server ? "a client's frame is not masked" : "a server's frame is masked";
    if ((r->head[0] & 0x0f) >= BR_WS_CLOSE && (b & 0x7f) > CONTROL_MAX)
        return "a control frame is longer than 125 bytes";
    return NULL;
}

/* The length, from a head that is complete; false if it does not have its shortest form. */
static bool head_length(const struct br_ws_reader *r, uint64_t *length)
{
    uint8_t form = r->head[1] & 0x7f;
    unsigned bytes = form == 126 ? 2 : form == 127 ? 8 : 0;
    uint64_t v = bytes ? 0 : form;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | r->head[2 + i];
    *length = v;
    return bytes == 0 || (bytes == 2 ? v > 125 : v > 0xffff && v >> 63 == 0);
}

static int head_complete(struct br_ws_reader *r, const struct br_ws_limits *l, unsigned *close_code,
                         struct br_err *err)
{
    if (!head_length(r, &r->left))
        return refuse(r, close_code, BR_WS_CLOSE_PROTOCOL, err,
                      "the length of a frame does not have its shortest form");
    r->offset = 0;
    r->op = r->head[0] & 0x0f;
    r->fin = r->head[0] & 0x80;
    if (r->op >= BR_WS_CLOSE) {
        r->ncontrol = 0;
        return 0;
    }
    if (r->op != CONTINUATION) {
        r->first_op = r->op;
        r->fragments = 0;
        r->utf8 = 0;
    }
    if (++r->fragments > l->fragments)
        return refuse(r, close_code, BR_WS_CLOSE_TOO_LARGE, err,
                      "a message has too many fragments");
    if (r->left > l->message_bytes || r->message.len > l->message_bytes - r->left)
        return refuse(r, close_code, BR_WS_CLOSE_TOO_LARGE, err, "a message is too long");
    return 0;
}

/* 1: a whole head is there; 0: not yet. */
static int read_head(struct br_ws_reader *r, const struct br_ws_limits *l, uint8_t **p, size_t *n,
                     unsigned *close_code, struct br_err *err)
{
    while (r->nhead < 2 || r->nhead < r->need) {
        if (*n == 0)
            return 0;
        uint8_t b = *(*p)++;
        (*n)--;
        const char *wrong = r->nhead == 0   ? check_first(r, b)
                            : r->nhead == 1 ? check_second(r, l, b)
                                            : NULL;
        if (wrong)
            return refuse(r, close_code, BR_WS_CLOSE_PROTOCOL, err, wrong);
        r->head[r->nhead++] = b;
        if (r->nhead == 2)
            r->need = (uint8_t)(2 +
                                ((b & 0x7f) == 126   ? 2
                                 : (b & 0x7f) == 127 ? 8
                                                     : 0) +
                                (b & 0x80 ? 4 : 0));
    }
    int rc = head_complete(r, l, close_code, err);
    return rc < 0 ? rc : 1;
}

/* ---- payloads ---- */

static bool close_may_be_sent(unsigned code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != BR_WS_CLOSE_NO_STATUS &&
            code != 1006) ||
           (code >= 3000 && code <= 4999);
}

static int control_complete(struct br_ws_reader *r, const uint8_t *p, size_t n,
                            struct br_ws_message *out, unsigned *close_code, struct br_err *err)
{
    *out = (struct br_ws_message){.op = r->op, .data = (const char *)p, .n = n};
    if (r->op != BR_WS_CLOSE)
        return 1;
    out->close_code = BR_WS_CLOSE_NO_STATUS;
    if (n == 0)
        return 1;
    unsigned code = n == 1 ? 0 : (unsigned)p[0] << 8 | p[1];
    if (!close_may_be_sent(code))
        return refuse(r, close_code, BR_WS_CLOSE_PROTOCOL, err,
                      "a close frame has a code that must not be sent");
    if (!br_utf8_valid(p + 2, n - 2))
        return refuse(r, close_code, BR_WS_CLOSE_BAD_UTF8, err,
                      "the reason in a close frame is not valid UTF-8");
    out->close_code = code;
    out->data += 2;
    out->n -= 2;
    return 1;
}

/* A part of a control frame: kept if it is not the whole. */
static int take_control(struct br_ws_reader *r, const uint8_t *p, size_t n,
                        struct br_ws_message *out, unsigned *close_code, struct br_err *err)
{
    if (n == 0 && r->left > 0)
        return 0;
    if (r->left > 0 || r->control) {
        if (!r->control && !(r->control = malloc(CONTROL_MAX)))
            return refuse(r, close_code, BR_WS_CLOSE_INTERNAL, err,
                          "there is no memory for a frame");
        memcpy(r->control + r->ncontrol, p, n);
        r->ncontrol = (uint8_t)(r->ncontrol + n);
        if (r->left > 0)
            return 0;
        p = r->control;
        n = r->ncontrol;
    }
    r->nhead = r->need = 0;
    return control_complete(r, p, n, out, close_code, err);
}

static int take_data(struct br_ws_reader *r, const uint8_t *p, size_t n, struct br_ws_message *out,
                     unsigned *close_code, struct br_err *err)
{
    bool last = r->fin && r->left == 0;
    if (n == 0 && r->left > 0)
        return 0;
    if (r->first_op == BR_WS_TEXT && (!utf8_feed(&r->utf8, p, n) || (last && r->utf8)))
        return refuse(r, close_code, BR_WS_CLOSE_BAD_UTF8, err,
                      "a text message is not valid UTF-8");
    bool whole = last && r->fragments == 1 && n == r->offset;
    if (!whole) {
        int rc = br_buf_put(&r->message, p, n);
        if (rc < 0)
            return refuse(r, close_code,
                          rc == -BR_E_NOMEM ? BR_WS_CLOSE_INTERNAL : BR_WS_CLOSE_TOO_LARGE, err,
                          "there is no memory for a message");
        p = r->message.data;
        n = r->message.len;
    }
    if (r->left == 0)
        r->nhead = r->need = 0;
    if (!last)
        return 0;
    *out = (struct br_ws_message){.op = r->first_op, .data = p ? (const char *)p : "", .n = n};
    r->first_op = 0;
    r->delivered = !whole;
    return 1;
}

int br_ws_read(struct br_ws_reader *r, const struct br_ws_limits *l, uint8_t **p, size_t *n,
               struct br_ws_message *out, unsigned *close_code, struct br_err *err)
{
    if (r->delivered) {
        br_buf_free(&r->message);
        r->delivered = false;
    }
    if (r->control && r->ncontrol > 0 && !(r->nhead && r->op >= BR_WS_CLOSE)) {
        free(r->control);
        r->control = NULL;
        r->ncontrol = 0;
    }
    r->message.max = l->message_bytes;
    if (r->need == DEAD)
        return refuse(r, close_code, BR_WS_CLOSE_PROTOCOL, err,
                      "the connection failed before this frame");
    for (;;) {
        if (r->nhead < 2 || r->nhead < r->need) {
            int rc = read_head(r, l, p, n, close_code, err);
            if (rc <= 0)
                return rc;
        } else if (*n == 0) {
            return 0;
        }
        size_t k = r->left < *n ? (size_t)r->left : *n;
        uint8_t *at = *p;
        if (l->server)
            br_ws_mask(at, k, r->head + r->need - 4, r->offset);
        *p += k;
        *n -= k;
        r->left -= k;
        r->offset += (uint32_t)k;
        int rc = r->op >= BR_WS_CLOSE ? take_control(r, at, k, out, close_code, err)
                                      : take_data(r, at, k, out, close_code, err);
        if (rc)
            return rc;
    }
}
