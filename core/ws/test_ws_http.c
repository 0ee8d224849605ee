/*
 * Heads of HTTP/1.1 and the opening handshake, without sockets: what is accepted, what is refused
 * and with which status, and every limit at N and at N + 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ws/ws.h"

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define UPGRADE                                                                                    \
    "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"                                     \
    "Sec-WebSocket-Key: " KEY "\r\nSec-WebSocket-Version: 13\r\n"

static struct br_http_head h;
static struct br_ws_offer offer;
static unsigned status;
static struct br_err err;

static int request(const char *s)
{
    status = 0;
    err.text[0] = 0;
    int rc = br_http_request(s, strlen(s), &h, &status, &err);
    assert_true(rc >= 0 || (status >= 400 && err.text[0]));
    return rc;
}

static int offered(const char *s)
{
    assert_int_equal(request(s), strlen(s));
    int rc = br_ws_offer(&h, &offer, &status, &err);
    assert_true(rc >= 0 || (status >= 400 && err.text[0]));
    return rc;
}

static void assert_text(struct br_http_text t, const char *s)
{
    assert_non_null(t.p);
    assert_int_equal(t.n, strlen(s));
    assert_memory_equal(t.p, s, t.n);
}

/* RFC 6455 section 1.3 */
static void test_the_example(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    assert_int_equal(offered("GET /chat HTTP/1.1\r\nHost: server.example.com\r\n"
                             "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Key: " KEY "\r\nOrigin: http://example.com\r\n"
                             "Sec-WebSocket-Protocol: chat, superchat\r\n"
                             "Sec-WebSocket-Version: 13\r\n\r\n"),
                     0);
    assert_string_equal(offer.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_text(h.method, "GET");
    assert_text(h.path, "/chat");
    assert_null(h.query.p);
    assert_text(offer.host, "server.example.com");
    assert_text(offer.origin, "http://example.com");
    assert_true(br_http_list_has(offer.protocols, "superchat"));
    assert_false(br_http_list_has(offer.protocols, "super"));
    br_ws_put_accept(&b, &offer, "superchat");
    int n = br_http_response((char *)b.data, b.len, &h, &err);
    assert_int_equal(n, b.len);
    assert_int_equal(br_ws_check_accept(&h, KEY, "superchat", &err), 0);
    assert_int_equal(br_ws_check_accept(&h, KEY, "chat", &err), -BR_E_PEER_PROTOCOL);
    assert_int_equal(br_ws_check_accept(&h, KEY, "", &err), -BR_E_PEER_PROTOCOL);
    assert_int_equal(br_ws_check_accept(&h, "AAAAAAAAAAAAAAAAAAAAAA==", "superchat", &err),
                     -BR_E_PEER_PROTOCOL);
}

static void test_both_sides_agree(void **state)
{
    (void)state;
    char key[25], again[25];
    BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(1024), other = BR_BUF_INIT(1024),
                                 a = BR_BUF_INIT(1024);
    br_ws_put_request(&q, "[::1]:8765", "/acp?token=x", "harness.acp.1", "abc", "http://h", key);
    br_ws_put_request(&other, "h", "/", "", "", "", again);
    assert_false(q.failed || other.failed);
    assert_string_not_equal(key, again);
    assert_int_equal(offered(br_buf_cstr(&q)), 0);
    assert_text(h.path, "/acp");
    assert_text(h.query, "token=x");
    assert_text(offer.authorization, "Bearer abc");
    assert_text(offer.protocols, "harness.acp.1");
    br_ws_put_accept(&a, &offer, "harness.acp.1");
    assert_int_equal(br_http_response((char *)a.data, a.len, &h, &err), a.len);
    assert_int_equal(br_ws_check_accept(&h, key, "harness.acp.1", &err), 0);
    assert_int_equal(br_ws_check_accept(&h, again, "harness.acp.1", &err), -BR_E_PEER_PROTOCOL);
    assert_int_equal(offered(br_buf_cstr(&other)), 0);
    assert_null(offer.protocols.p);
    assert_null(offer.authorization.p);
    assert_null(offer.origin.p);
}

static void test_not_an_upgrade(void **state)
{
    (void)state;
    assert_int_equal(offered("GET /health HTTP/1.1\r\nHost: a\r\n\r\n"), 1);
    assert_int_equal(offered("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n"
                             "Connection: Upgrade\r\n\r\n"),
                     1);
    assert_int_equal(offered("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n"), 1);
    assert_int_equal(h.content_length, 12);
}

/* ---- heads that are no heads ---- */

#define GET "GET / HTTP/1.1\r\n"

static void refused(unsigned with, const char *s)
{
    int rc = request(s);
    if (rc >= 0 || status != with)
        fail_msg("%d, %u instead of %u: %s", rc, status, with, s);
    assert_int_equal(rc, with == 414 || with == 431 ? -BR_E_LIMIT_EXCEEDED : -BR_E_INVALID_FRAME);
}

static void test_request_lines(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\nHost: a\r\n\r\n",
        "GET\r\nHost: a\r\n\r\n",
        "/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET: / HTTP/1.1\r\nHost: a\r\n\r\n",
        /* targets that are no path */
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ws://a/acp HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET acp HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ?x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\\..\\ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /<x> HTTP/1.1\r\nHost: a\r\n\r\n",
        /* versions that are none */
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
        "GET / HTTP/11\r\nHost: a\r\n\r\n",
        "GET / HTTP/1,1\r\nHost: a\r\n\r\n",
        "GET / HTTP/x.1\r\nHost: a\r\n\r\n",
        "GET / HTTPS/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        refused(400, bad[i]);
    refused(505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n");
    refused(505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n");
    refused(505, "GET / HTTP/0.9\r\nHost: a\r\n\r\n");
    refused(505, "PRI / HTTP/2.0\r\n\r\n");
    const char *good = "GET //a/..;x=%2e%00/?a=b?c&d='(~!$)*+,:@ HTTP/1.0\r\nHost: a\r\n\r\n";
    assert_int_equal(request(good), strlen(good));
    assert_text(h.path, "//a/..;x=%2e%00/"); /* as it came: nothing is decoded */
    assert_text(h.query, "a=b?c&d='(~!$)*+,:@");
    assert_int_equal(h.minor, 0);
    assert_int_equal(request("GET /? HTTP/1.1\r\nHost: a\r\n\r\n"), 28);
    assert_text(h.query, "");
    char method[80];
    for (unsigned n = 32; n <= 33; n++) {
        snprintf(method, sizeof(method), "%.*s / HTTP/1.1\r\nHost: a\r\n\r\n", (int)n,
                 "MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM");
        if (n == 32)
            assert_int_equal(request(method), strlen(method));
        else
            refused(400, method);
    }
}

static void test_lines_and_fields(void **state)
{
    (void)state;
    static const char *const bad[] = {
        /* bare LF and CR, anywhere */
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        GET "Host: a\n\r\n",
        GET "Host: a\r\n\n",
        GET "Host: a\r\nX: b\nY: c\r\n\r\n",
        GET "Host: a\r\nX: b\rY: c\r\n\r\n",
        GET "Host: a\r\nX: b\r\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        /* folding */
        GET " Host: a\r\n\r\n",
        GET "Host: a\r\nX: b\r\n c\r\n\r\n",
        GET "Host: a\r\nX: b\r\n\tc\r\n\r\n",
        GET "Host: a\r\nX: b\r\n \r\n\r\n",
        /* names */
        GET "Host : a\r\n\r\n",
        GET "Host: a\r\nX\t: b\r\n\r\n",
        GET "Host: a\r\nX Y: b\r\n\r\n",
        GET "Host: a\r\n: b\r\n\r\n",
        GET "Host: a\r\nX\r\n\r\n",
        GET "Host: a\r\nX(: b\r\n\r\n",
        GET "Host: a\r\n\xc3\xa4: b\r\n\r\n",
        GET "Host: a\r\nTransfer-Encoding\x0b: chunked\r\n\r\n",
        GET "Host: a\r\n\"x\": b\r\n\r\n",
        /* control characters in values */
        GET "Host: a\r\nX: \x01\r\n\r\n",
        GET "Host: a\r\nX: a\x7f\r\n\r\n",
        GET "Host: a\r\nX: \x1b[31m\r\n\r\n",
        /* Host: one, and one of a kind */
        GET "\r\n",
        GET "X: a\r\n\r\n",
        GET "Host: a\r\nHost: a\r\n\r\n",
        GET "Host: a\r\nhOST: b\r\n\r\n",
        GET "Host: a, b\r\n\r\n",
        GET "Host: a b\r\n\r\n",
        GET "Host: u@a\r\n\r\n",
        GET "Host: a/b\r\n\r\n",
        GET "Host: \xc3\xa4\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        refused(400, bad[i]);
    /* a NUL, which no text here can hold */
    static const char nul[] = GET "Host: a\r\nX: a\0b\r\n\r\n";
    assert_int_equal(br_http_request(nul, sizeof(nul) - 1, &h, &status, &err), -BR_E_INVALID_FRAME);
    assert_int_equal(status, 400);
    const char *good = GET "hOsT:\t [::1]:8765 \t\r\nX:\r\nY: \r\nZ: a \t b\xff\r\nA:B:C\r\n\r\n";
    assert_int_equal(request(good), strlen(good));
    assert_text(br_http_field(&h, "HOST", NULL), "[::1]:8765");
    assert_text(br_http_field(&h, "x", NULL), "");
    assert_text(br_http_field(&h, "y", NULL), "");
    assert_text(br_http_field(&h, "z", NULL), "a \t b\xff");
    assert_text(br_http_field(&h, "a", NULL), "B:C");
    assert_null(br_http_field(&h, "b", NULL).p);
    assert_int_equal(request(GET "Host:\r\n\r\n"), strlen(GET "Host:\r\n\r\n"));
}

static void test_smuggling(void **state)
{
    (void)state;
#define POST "POST /login HTTP/1.1\r\nHost: a\r\n"
    static const char *const bad[] = {
        POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        POST "Content-Length: 3\r\ncontent-length: 4\r\n\r\nabc",
        POST "Content-Length: 3, 3\r\n\r\nabc",
        POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        POST "Transfer-Encoding: identity\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        POST "Content-Length: +3\r\n\r\nabc",
        POST "Content-Length: -3\r\n\r\nabc",
        POST "Content-Length: 0x3\r\n\r\nabc",
        POST "Content-Length: 3 \t3\r\n\r\nabc",
        POST "Content-Length: 3.0\r\n\r\nabc",
        POST "Content-Length:\r\n\r\nabc",
        POST "Content-Length: \xef\xbc\x93\r\n\r\nabc",
        POST "Content-Length: 1000000000000000\r\n\r\nabc",
        POST "Content-Length : 3\r\n\r\nabc",
        POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST "Content-\r\n Length: 3\r\n\r\nabc",
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        refused(400, bad[i]);
    refused(501, POST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    refused(501, POST "Transfer-Encoding: identity\r\n\r\n");
    refused(501, POST "Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n\r\n");
    /* what follows the head is not looked at */
    const char *good = POST "Content-Length: 999999999999999\r\n\r\nGET / HTTP/9\r\n\xff";
    assert_int_equal(request(good), strstr(good, "\r\n\r\n") + 4 - good);
    assert_true(h.content_length == 999999999999999);
    assert_int_equal(request(POST "Content-Length: 007\r\n\r\n"),
                     strlen(POST "Content-Length: 007\r\n\r\n"));
    assert_int_equal(h.content_length, 7);
#undef POST
}

/* However it is cut: nothing until it is complete, or refused at the byte that is wrong. */
static void test_heads_in_every_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t known; /* with so many bytes the answer is the last one */
        unsigned status;
    } rows[] = {
        {"GET /acp HTTP/1.1\r\n" UPGRADE "\r\nrest", 0, 0},
        {"GET / HTTP/1.1\nHost: a\r\n\r\n", 15, 400},
        {"\x16\x03\x01\x02\x00\x01", 1, 400}, /* TLS, where none is spoken */
        {"GET /\r\rx\r\n\r\n", 7, 400},
        {"\r\n\r\n", 2, 400},
        {GET "Host : a\r\n\r\n", 0, 400}, /* of a head that can be one: when it is complete */
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        size_t n = strlen(rows[i].text), known = rows[i].known;
        if (i == 2)
            n = 6;
        if (!known)
            known = (size_t)(strstr(rows[i].text, "\r\n\r\n") - rows[i].text) + 4;
        for (size_t k = 0; k <= n; k++) {
            char *exact = malloc(k ? k : 1); /* so that a read behind its end is seen */
            assert_non_null(exact);
            memcpy(exact, rows[i].text, k);
            status = 0;
            int rc = br_http_request(exact, k, &h, &status, &err);
            if (k < known)
                assert_int_equal(rc, 0);
            else if (rows[i].status)
                assert_true(rc < 0 && status == rows[i].status);
            else
                assert_int_equal(rc, known);
            free(exact);
        }
    }
}

/* ---- limits ---- */

static void test_head_bytes(void **state)
{
    (void)state;
    char *text = malloc(BR_WS_HEAD_MAX + 64);
    assert_non_null(text);
    for (unsigned n = BR_WS_HEAD_MAX; n <= BR_WS_HEAD_MAX + 1; n++) {
        int at = sprintf(text, GET "Host: a\r\nX: ");
        memset(text + at, 'x', n - (unsigned)at - 4);
        memcpy(text + n - 4, "\r\n\r\n", 5);
        assert_int_equal(strlen(text), n);
        if (n == BR_WS_HEAD_MAX)
            assert_int_equal(request(text), n);
        else
            refused(431, text);
        text[n - 2] = 0; /* not complete: more is waited for, but not beyond the limit */
        if (n == BR_WS_HEAD_MAX)
            assert_int_equal(request(text), 0);
    }
    /* a first line alone that fills it */
    memset(text, 'x', BR_WS_HEAD_MAX + 1);
    memcpy(text, "GET /", 5);
    text[BR_WS_HEAD_MAX - 1] = 0;
    assert_int_equal(request(text), 0);
    text[BR_WS_HEAD_MAX - 1] = 'x';
    text[BR_WS_HEAD_MAX] = 0;
    refused(414, text);
    free(text);
}

static void test_fields(void **state)
{
    (void)state;
    for (unsigned n = BR_WS_FIELDS_MAX; n <= BR_WS_FIELDS_MAX + 1; n++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_WS_HEAD_MAX);
        br_buf_printf(&b, GET "Host: a\r\n");
        for (unsigned i = 1; i < n; i++)
            br_buf_printf(&b, "F%u: %u\r\n", i, i);
        br_buf_printf(&b, "\r\n");
        if (n == BR_WS_FIELDS_MAX) {
            assert_int_equal(request(br_buf_cstr(&b)), b.len);
            assert_int_equal(h.nfields, n);
            assert_text(br_http_field(&h, "f63", NULL), "63");
        } else {
            refused(431, br_buf_cstr(&b));
        }
    }
}

static void test_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *word;
        bool has;
    } rows[] = {
        {"upgrade", "upgrade", true},
        {"keep-alive, Upgrade", "upgrade", true},
        {"Upgrade,keep-alive", "upgrade", true},
        {", ,\tUPGRADE ,", "upgrade", true},
        {"", "upgrade", false},
        {",", "upgrade", false},
        {"upgrade2", "upgrade", false},
        {"up grade", "upgrade", false},
        {"not-upgrade, upgrad", "upgrade", false},
        {"upgrade;q=1", "upgrade", false},
        {"\"upgrade\"", "upgrade", false},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_http_text t = {rows[i].list, strlen(rows[i].list)};
        assert_true(br_http_list_has(t, rows[i].word) == rows[i].has);
    }
    assert_false(br_http_list_has((struct br_http_text){NULL, 0}, "upgrade"));
}

static void test_field_twice(void **state)
{
    (void)state;
    bool many = false;
    const char *text = GET "Host: a\r\nX: 1\r\nx: 2\r\n\r\n";
    assert_int_equal(request(text), strlen(text));
    assert_null(br_http_field(&h, "X", &many).p);
    assert_true(many);
    assert_text(br_http_field(&h, "host", &many), "a");
    assert_false(many);
    assert_null(br_http_field(&h, "y", &many).p);
    assert_false(many);
}

/* ---- the opening handshake ---- */

static void test_offers(void **state)
{
    (void)state;
#define UP "Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
#define K "Sec-WebSocket-Key: " KEY "\r\n"
#define V "Sec-WebSocket-Version: 13\r\n"
#define BAD_KEY(key) GET UP V "Sec-WebSocket-Key: " key "\r\n\r\n"
    static const char *const good[] = {
        GET UP K V "\r\n",
        GET "Host: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, upgrade\r\n" K V "\r\n",
        GET "Host: a\r\nUpgrade: h2c, websocket\r\nConnection: close\r\nConnection: Upgrade\r\n" K V
            "\r\n",
        GET UP K V "Sec-WebSocket-Extensions: permessage-deflate\r\nContent-Length: 0\r\n\r\n",
        BAD_KEY("AAAAAAAAAAAAAAAAAAAAAA=="),
        BAD_KEY("/+/+/+/+/+/+/+/+/+/+/w=="),
    };
    static const struct {
        unsigned status;
        const char *text;
    } bad[] = {
        {405, "POST / HTTP/1.1\r\n" UP K V "\r\n"},
        {405, "HEAD / HTTP/1.1\r\n" UP K V "\r\n"},
        {405, "get / HTTP/1.1\r\n" UP K V "\r\n"},
        {400, "GET / HTTP/1.0\r\n" UP K V "\r\n"},
        {400, GET UP K V "Content-Length: 1\r\n\r\n"},
        {400, GET "Host: a\r\nUpgrade: websocket\r\n" K V "\r\n"},
        {400, GET "Host: a\r\nUpgrade: websocket\r\nConnection: keep-alive\r\n" K V "\r\n"},
        {426, GET UP K "\r\n"},
        {426, GET UP K "Sec-WebSocket-Version: 8\r\n\r\n"},
        {426, GET UP K "Sec-WebSocket-Version: 13, 8\r\n\r\n"},
        {426, GET UP K "Sec-WebSocket-Version: 013\r\n\r\n"},
        {426, GET UP K V V "\r\n"},
        {400, GET UP V "\r\n"},
        {400, GET UP K K V "\r\n"},
        {400, BAD_KEY("")},
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25jZQ=")},
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25jZQ===")},
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25jZR==")}, /* bits that no byte has */
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25jZQA=")},
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25jZQAA")},
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25j.Q==")},
        {400, BAD_KEY("dGhlIHNhbXBsZSBub25j Q==")},
        {400, GET UP K V "Origin: http://a\r\nOrigin: http://b\r\n\r\n"},
        {400, GET UP K V "Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n"},
        {400, GET UP K V "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n\r\n"},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++)
        assert_int_equal(offered(good[i]), 0);
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        int rc = offered(bad[i].text);
        if (rc != -BR_E_INVALID_FRAME || status != bad[i].status)
            fail_msg("%d, %u: %s", rc, status, bad[i].text);
    }
}

static int answered(const char *s, const char *protocol)
{
    err.text[0] = 0;
    int rc = br_http_response(s, strlen(s), &h, &err);
    if (rc >= 0) {
        assert_int_equal(rc, strlen(s));
        rc = br_ws_check_accept(&h, KEY, protocol, &err);
    }
    assert_true(rc == 0 || err.text[0]);
    return rc;
}

static void test_answers(void **state)
{
    (void)state;
#define A101 "HTTP/1.1 101 Switching Protocols\r\n"
#define UPG "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define ACC "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    static const struct {
        int code;
        const char *text, *protocol;
    } rows[] = {
        {0, A101 UPG ACC "\r\n", ""},
        {0, "HTTP/1.1 101\r\n" UPG ACC "\r\n", ""},
        {0,
         "HTTP/1.1 101 \r\nServer: x\r\nupgrade: WEBSOCKET\r\nconnection: a, upgrade\r\n" ACC
         "\r\n",
         ""},
        {0, A101 UPG ACC "Sec-WebSocket-Protocol: p\r\n\r\n", "p"},
        {0, A101 UPG ACC "Sec-WebSocket-Extensions:\r\n\r\n", ""},
        {BR_E_PEER_PROTOCOL, A101 UPG ACC "Sec-WebSocket-Protocol: p\r\n\r\n", ""},
        {BR_E_PEER_PROTOCOL, A101 UPG ACC "Sec-WebSocket-Protocol: P\r\n\r\n", "p"},
        {BR_E_PEER_PROTOCOL, A101 UPG ACC "\r\n", "p"},
        {BR_E_PEER_PROTOCOL,
         A101 UPG ACC "Sec-WebSocket-Protocol: p\r\nSec-WebSocket-Protocol: p\r\n\r\n", "p"},
        {BR_E_PEER_PROTOCOL, A101 UPG ACC "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
         ""},
        {BR_E_PEER_PROTOCOL, A101 UPG "\r\n", ""},
        {BR_E_PEER_PROTOCOL, A101 UPG ACC ACC "\r\n", ""},
        {BR_E_PEER_PROTOCOL, A101 UPG "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
         ""},
        {BR_E_PEER_PROTOCOL, A101 "Connection: Upgrade\r\n" ACC "\r\n", ""},
        {BR_E_PEER_PROTOCOL, A101 "Upgrade: websocket\r\n" ACC "\r\n", ""},
        {BR_E_PEER_PROTOCOL, "HTTP/1.0 101 x\r\n" UPG ACC "\r\n", ""},
        {BR_E_PEER_PROTOCOL, "HTTP/1.1 200 OK\r\n" UPG ACC "\r\n", ""},
        {BR_E_PEER_PROTOCOL, "HTTP/1.1 302 Found\r\nLocation: ws://b/\r\n\r\n", ""},
        {BR_E_PEER_PROTOCOL, "HTTP/1.1 426 Upgrade Required\r\n\r\n", ""},
        {BR_E_DENIED, "HTTP/1.1 401 Unauthorized\r\n\r\n", ""},
        {BR_E_DENIED, "HTTP/1.1 403 Forbidden\r\n\r\n", ""},
        {BR_E_NOT_FOUND, "HTTP/1.1 404 Not Found\r\n\r\n", ""},
        {BR_E_LIMIT_EXCEEDED, "HTTP/1.1 429 Too Many Requests\r\n\r\n", ""},
        {BR_E_LIMIT_EXCEEDED, "HTTP/1.1 503 Service Unavailable\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/1.1 099 x\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/1.1 1010 x\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/1.1 10 x\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/1.1  101 x\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/1.1\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "SSH-2.0-OpenSSH_9.2\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/2 101 x\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, A101 "X\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, A101 "X: a\r\n b\r\n\r\n", ""},
        {BR_E_INVALID_FRAME, "HTTP/1.1 101 x\n\n", ""},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        int rc = answered(rows[i].text, rows[i].protocol);
        if (rc != -(int)rows[i].code)
            fail_msg("%d (%s): %s", rc, err.text, rows[i].text);
    }
}

/* A value cannot become another line of the request. */
static void test_requests_are_plain(void **state)
{
    (void)state;
    static const char *const bad[] = {"a\r\nX: y", "a\nb", "a b", "a\tb", "a\x7f", "\xc3\xa4"};
    char key[25];
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        for (unsigned where = 0; where < 5; where++) {
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
            char path[32];
            snprintf(path, sizeof(path), "/%s", bad[i]);
            br_ws_put_request(&b, where == 0 ? bad[i] : "h", where == 1 ? path : "/",
                              where == 2 ? bad[i] : "p", where == 3 ? bad[i] : "t",
                              where == 4 ? bad[i] : "o", key);
            if (where == 2 && i == 2)
                continue; /* a list of protocols has blanks */
            assert_true(b.failed);
            assert_int_equal(b.len, 0);
        }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    br_ws_put_request(&b, "h", "no-path", "", "", "", key);
    assert_true(b.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_example),
        cmocka_unit_test(test_both_sides_agree),
        cmocka_unit_test(test_not_an_upgrade),
        cmocka_unit_test(test_request_lines),
        cmocka_unit_test(test_lines_and_fields),
        cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_heads_in_every_cut),
        cmocka_unit_test(test_head_bytes),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_field_twice),
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_requests_are_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
