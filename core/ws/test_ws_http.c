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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_example),
        cmocka_unit_test(test_both_sides_agree),
        cmocka_unit_test(test_not_an_upgrade),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
