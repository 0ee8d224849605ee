/*
 * The opening handshake of the WebSocket protocol (RFC 6455 section 4), both sides. The head of the
 * other side is untrusted; it was parsed by http.c. SHA-1 is here because the protocol wants it:
 * the accept key proves that the server understood the request, and nothing else rests on it.
 */
#include <string.h>
#include <strings.h>

#include "ws/ws.h"

/* ---- SHA-1 (FIPS 180-4) and base64 (RFC 4648) of short texts ---- */

static uint32_t rotate(uint32_t v, unsigned n)
{
    return v << n | v >> (32 - n);
}

static void sha1_block(uint32_t state[5], const uint8_t p[64])
{
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                              : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Of at most 119 bytes, which two blocks hold. */
static void sha1(uint8_t out[20], const void *p, size_t n)
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t block[128] = {0};
    size_t size = n < 56 ? 64 : 128;
    br_require(n <= 119);
    memcpy(block, p, n);
    block[n] = 0x80;
    block[size - 2] = (uint8_t)(n * 8 >> 8);
    block[size - 1] = (uint8_t)(n * 8);
    for (size_t at = 0; at < size; at += 64)
        sha1_block(state, block + at);
    for (unsigned i = 0; i < 20; i++)
        out[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* `dst` has room for 4 characters for every 3 bytes begun, and the NUL. */
static void base64(char *dst, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 3, dst += 4) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        for (unsigned k = 0; k < 4; k++)
            dst[k] = k < 2 || i + k - 1 < n ? base64_digits[v >> (18 - 6 * k) & 63] : '=';
    }
    *dst = 0;
}

/* 16 bytes in base64, in the one form that an encoder makes. */
static bool is_key(struct br_http_text t)
{
    if (t.n != 24 || t.p[22] != '=' || t.p[23] != '=' || !strchr("AQgw", t.p[21]))
        return false;
    for (size_t i = 0; i < 22; i++)
        if (!strchr(base64_digits, t.p[i]) || !t.p[i])
            return false;
    return true;
}

static void accept_of(char dst[29], const char key[24])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[24 + sizeof(guid) - 1];
    uint8_t digest[20];
    memcpy(text, key, 24);
    memcpy(text + 24, guid, sizeof(guid) - 1);
    sha1(digest, text, sizeof(text));
    base64(dst, digest, sizeof(digest));
}

/* ---- the server's side ---- */

/* Connection and Upgrade are lists, which may stand in several fields. */
static bool any_field_has(const struct br_http_head *h, const char *name, const char *word)
{
    for (unsigned i = 0; i < h->nfields; i++)
        if (h->fields[i].name.n == strlen(name) &&
            strncasecmp(h->fields[i].name.p, name, strlen(name)) == 0 &&
            br_http_list_has(h->fields[i].value, word))
            return true;
    return false;
}

static bool is(struct br_http_text t, const char *s)
{
    return t.p && t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

static int bad(unsigned *status, unsigned with, struct br_err *err, const char *why)
{
    *status = with;
    return br_err_set(err, BR_E_INVALID_FRAME, "%s; the connection was not upgraded", why);
}

int br_ws_offer(const struct br_http_head *h, struct br_ws_offer *out, unsigned *status,
                struct br_err *err)
{
    bool many[5];
    if (!any_field_has(h, "upgrade", "websocket"))
        return 1;
    if (!is(h->method, "GET"))
        return bad(status, 405, err, "a request for WebSocket is not a GET");
    if (h->minor < 1 || h->content_length > 0)
        return bad(status, 400, err, "a request for WebSocket is not HTTP/1.1 without a body");
    if (!any_field_has(h, "connection", "upgrade"))
        return bad(status, 400, err, "the field Connection does not name 'Upgrade'");
    if (!is(br_http_field(h, "sec-websocket-version", NULL), "13"))
        return bad(status, 426, err, "the Sec-WebSocket-Version is not 13");
    struct br_http_text key = br_http_field(h, "sec-websocket-key", &many[0]);
    if (!key.p || !is_key(key))
        return bad(status, 400, err, "the Sec-WebSocket-Key is not one of 16 bytes in base64");
    *out = (struct br_ws_offer){
        .protocols = br_http_field(h, "sec-websocket-protocol", &many[1]),
        .origin = br_http_field(h, "origin", &many[2]),
        .host = br_http_field(h, "host", &many[3]),
        .authorization = br_http_field(h, "authorization", &many[4]),
    };
    if (many[1] || many[2] || many[3] || many[4])
        return bad(status, 400, err, "a field that decides stands in the request twice");
    accept_of(out->accept, key.p);
    return 0;
}

void br_ws_put_accept(struct br_buf *b, const struct br_ws_offer *o, const char *protocol)
{
    br_buf_printf(b,
                  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                  "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n",
                  o->accept);
    if (*protocol)
        br_buf_printf(b, "Sec-WebSocket-Protocol: %s\r\n", protocol);
    br_buf_put(b, "\r\n", 2);
}

/* ---- the client's side ---- */

/* A value that cannot end its line, nor the target of a request. */
static bool is_plain(const char *s, bool blanks)
{
    for (; *s; s++)
        if (*s < ' ' || *s >= 0x7f || (*s == ' ' && !blanks))
            return false;
    return true;
}

void br_ws_put_request(struct br_buf *b, const char *host, const char *path, const char *protocol,
                       const char *bearer, const char *origin, char key[25])
{
    uint8_t random[16];
    br_random(random, sizeof(random));
    base64(key, random, sizeof(random));
    if (!is_plain(host, false) || !is_plain(path, false) || path[0] != '/' ||
        !is_plain(protocol, true) || !is_plain(bearer, false) || !is_plain(origin, false)) {
        b->failed = true;
        return;
    }
    br_buf_printf(b,
                  "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n",
                  path, host, key);
    if (*protocol)
        br_buf_printf(b, "Sec-WebSocket-Protocol: %s\r\n", protocol);
    if (*bearer)
        br_buf_printf(b, "Authorization: Bearer %s\r\n", bearer);
    if (*origin)
        br_buf_printf(b, "Origin: %s\r\n", origin);
    br_buf_put(b, "\r\n", 2);
}

static int check_status(const struct br_http_head *h, struct br_err *err)
{
    switch (h->status) {
    case 101:
        return 0;
    case 401:
        return br_err_set(err, BR_E_DENIED,
                          "the server wants to know who you are (401); bring a token or a "
                          "certificate that it knows");
    case 403:
        return br_err_set(err, BR_E_DENIED, "the server does not let you in (403)");
    case 404:
        return br_err_set(err, BR_E_NOT_FOUND, "the server has nothing at this path (404)");
    case 429:
    case 503:
        return br_err_set(
            err, BR_E_LIMIT_EXCEEDED,
            "the server stops, or has no room for another connection (%u); try again later",
            h->status);
    default:
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the server answered with status %u; it does not speak WebSocket here",
                          h->status);
    }
}

int br_ws_check_accept(const struct br_http_head *h, const char *key, const char *protocol,
                       struct br_err *err)
{
    char expected[29];
    bool many;
    int rc = check_status(h, err);
    if (rc < 0)
        return rc;
    accept_of(expected, key);
    if (h->minor < 1 || !any_field_has(h, "upgrade", "websocket") ||
        !any_field_has(h, "connection", "upgrade"))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "the server did not upgrade to WebSocket");
    if (!is(br_http_field(h, "sec-websocket-accept", NULL), expected))
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the server's Sec-WebSocket-Accept is not the answer to this request");
    struct br_http_text extensions = br_http_field(h, "sec-websocket-extensions", &many);
    if (many || extensions.n > 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the server chose an extension that was not offered");
    struct br_http_text chosen = br_http_field(h, "sec-websocket-protocol", &many);
    if (many || (*protocol ? !is(chosen, protocol) : chosen.p != NULL))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "the server did not choose the protocol '%s'",
                          *protocol ? protocol : "none");
    return 0;
}
