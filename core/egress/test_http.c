/*
 * HTTP/1.1 of one answer: whole, cut anywhere, in pieces of any size, and in no form that leaves
 * open where it ends; and what a request looks like.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "egress/http.h"
#include "egress/test_rig.h"

struct result {
    int code;
    bool head, end;
    uint32_t status;
    char body[4096];
    size_t n;
    struct br_err err;
};

/* Feed it in pieces of `piece` bytes. */
static struct result feed(struct br_http *h, const char *text, size_t n, size_t piece)
{
    struct result r = {.code = 0};
    br_http_begin(h);
    for (size_t at = 0; at < n && r.code == 0; at += piece) {
        uint8_t room[4096];
        size_t k = n - at < piece ? n - at : piece;
        struct br_http_out out;
        memcpy(room, text + at, k);
        r.code = br_http_feed(h, room, k, &out, &r.err);
        if (r.code < 0)
            return r;
        assert_false(out.head && r.head);
        assert_false(out.n && !out.head && !r.head);
        r.head |= out.head;
        r.end |= out.end;
        memcpy(r.body + r.n, out.body, out.n);
        r.n += out.n;
    }
    r.status = h->status;
    return r;
}

static struct br_http h;

static void test_pieces(void **state)
{
    (void)state;
    for (unsigned t = 0; t < EG_RECORDED; t++) {
        const char *body, *all;
        size_t n;
        all = eg_recorded(t, &n, &body);
        for (size_t piece = 1; piece <= n; piece++) {
            struct result r = feed(&h, all, n, piece);
            assert_int_equal(r.code, 0);
            assert_true(r.head && r.end);
            assert_int_equal(r.n, strlen(body));
            assert_memory_equal(r.body, body, r.n);
        }
    }
}

static void test_cuts(void **state)
{
    (void)state;
    for (unsigned t = 0; t < EG_RECORDED; t++) {
        const char *body, *all;
        size_t n;
        all = eg_recorded(t, &n, &body);
        for (size_t cut = 0; cut < n; cut++) {
            struct result r = feed(&h, all, cut, 4096);
            assert_int_equal(r.code, 0);
            assert_false(r.end);
            assert_false(br_http_ended(&h));
            assert_memory_equal(r.body, body, r.n);
        }
    }
}

static void test_until_close(void **state)
{
    static const char text[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    (void)state;
    struct result r = feed(&h, text, sizeof(text) - 1, 7);
    assert_true(r.code == 0 && r.head && !r.end);
    assert_true(br_http_ended(&h));
    assert_memory_equal(r.body, "data: 1\n\n", 9);
    /* in the head the end is none */
    (void)feed(&h, text, 40, 40);
    assert_false(br_http_ended(&h));
}

static void test_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < EG_ODD; i++)
        for (size_t piece = 1; piece < 4096; piece += 4094) {
            struct result r = feed(&h, eg_odd(i), strlen(eg_odd(i)), piece);
            if (r.code != -BR_E_PROVIDER_INVALID)
                fail_msg("taken: %s", eg_odd(i));
        }
    static const char nul[] = "HTTP/1.1 200 OK\r\nA: b\0c\r\n\r\n";
    assert_int_equal(feed(&h, nul, sizeof(nul) - 1, 100).code, -BR_E_PROVIDER_INVALID);
}

static void test_bounds(void **state)
{
    static char text[BR_EGRESS_HEADERS_MAX + 64];
    char line[64];
    (void)state;
    /* exactly 64 KiB of head, and a byte more */
    for (unsigned more = 0; more < 2; more++) {
        size_t n = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nX: ");
        memset(text + n, 'x', sizeof(text) - n);
        size_t end = BR_EGRESS_HEADERS_MAX - 4 + more;
        memcpy(text + end, "\r\n\r\n", 4);
        br_http_begin(&h);
        struct br_http_out out;
        struct br_err err;
        int r = br_http_feed(&h, (uint8_t *)text, end + 4, &out, &err);
        assert_int_equal(r, more ? -BR_E_PROVIDER_INVALID : 0);
        if (more)
            assert_non_null(strstr(err.text, "64 KiB of headers"));
        else
            assert_true(out.head);
    }
    /* a chunk's line without an end */
    br_http_begin(&h);
    struct result r = {.code = 0};
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;");
    memset(text + n, 'x', 4000 - n);
    assert_int_equal(feed(&h, text, n + BR_HTTP_LINE_MAX - 4, 4000).code, 0);
    assert_int_equal(feed(&h, text, 4000, 4000).code, -BR_E_PROVIDER_INVALID);
    /* lengths at which a number ends */
    snprintf(line, sizeof(line), "HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\n");
    r = feed(&h, line, strlen(line), 4000);
    assert_true(r.code == 0 && r.head && !r.end);
    snprintf(line, sizeof(line), "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000000\r\n\r\n");
    assert_int_equal(feed(&h, line, strlen(line), 4000).code, -BR_E_PROVIDER_INVALID);
}

static void test_headers(void **state)
{
    static const char text[] =
        "HTTP/1.1 200 OK\r\n"
        "CONTENT-TYPE:  application/json \r\nX-Request-Id: one\r\nX-Request-Id: two\r\n"
        "request-id:\treq_9\r\nRetry-After: 7\r\nretry-after-ms: 7000\r\n"
        "x-ratelimit-remaining-tokens: 11\r\nanthropic-ratelimit-tokens-limit: 12\r\n"
        "openai-processing-ms: 13\r\nSet-Cookie: a=b\r\nLocation: /x\r\nX-Echo: sk-1\r\n"
        "x-should-retry: true\r\nopenai-organization: o\r\nContent-Length: 0\r\n\r\n";
    (void)state;
    struct result r = feed(&h, text, sizeof(text) - 1, 3);
    assert_true(r.code == 0 && r.end);
    assert_int_equal(h.headers.n, 8);
    assert_string_equal(br_headers_find(&h.headers, "content-type"), "application/json");
    assert_string_equal(br_headers_find(&h.headers, "x-request-id"), "one");
    assert_string_equal(br_headers_find(&h.headers, "request-id"), "req_9");
    assert_string_equal(br_headers_find(&h.headers, "retry-after"), "7");
    assert_string_equal(br_headers_find(&h.headers, "retry-after-ms"), "7000");
    assert_string_equal(br_headers_find(&h.headers, "x-ratelimit-remaining-tokens"), "11");
    assert_string_equal(br_headers_find(&h.headers, "anthropic-ratelimit-tokens-limit"), "12");
    assert_string_equal(br_headers_find(&h.headers, "openai-processing-ms"), "13");
    static const char odd[] = "HTTP/1.1 200 OK\r\nContent-Type: a\x1b[2Jb\r\nRetry-After: "
                              "1234567890123456789012345678901234567890123456789012345678901234"
                              "\r\nX-Request-Id: \xc3\xa9\r\nContent-Length: 0\r\n\r\n";
    r = feed(&h, odd, sizeof(odd) - 1, 4000);
    assert_true(r.code == 0 && r.end);
    assert_int_equal(h.headers.n, 0);
}

/* Only what says so can be used again. */
static void test_keep(void **state)
{
    static const struct {
        const char *version, *fields;
        bool keep;
    } rows[] = {
        {"1.1", "Connection: keep-alive\r\n", true},
        {"1.1", "connection: Upgrade, Keep-Alive\r\n", true},
        {"1.1", "", false},
        {"1.1", "Keep-Alive: timeout=5\r\n", false},
        {"1.1", "Connection: close\r\n", false},
        {"1.1", "Connection: keep-alive, close\r\n", false},
        {"1.1", "Connection: keep-alive\r\nConnection: close\r\n", false},
        {"1.0", "Connection: keep-alive\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char text[256];
        snprintf(text, sizeof(text), "HTTP/%s 200 OK\r\n%sContent-Length: 2\r\n\r\nok!",
                 rows[i].version, rows[i].fields);
        struct br_http_out out;
        br_http_begin(&h);
        assert_int_equal(br_http_feed(&h, (uint8_t *)text, strlen(text) - 1, &out, NULL), 0);
        assert_true(out.end && !out.more);
        assert_int_equal(h.keep, rows[i].keep);
        snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!");
        br_http_begin(&h);
        assert_int_equal(br_http_feed(&h, (uint8_t *)text, strlen(text), &out, NULL), 0);
        assert_true(out.end && out.more);
    }
}

static void test_request(void **state)
{
    static char text[BR_HTTP_REQUEST_MAX];
    static struct br_headers headers;
    static struct br_egress_target t;
    struct br_secret key = {0};
    struct br_err err;
    (void)state;
    assert_int_equal(br_egress_target_set(&t, "https://h.example:8443/v1/", "", &err), 0);
    assert_int_equal(br_secret_set(&key, "sk-12345678", 11), 0);
    struct br_http_request q = {.post = true,
                                .keep = true,
                                .target = &t,
                                .path = "/messages",
                                .content_type = "application/json",
                                .headers = &headers,
                                .key = &key,
                                .auth = BR_AUTH_X_API_KEY,
                                .body = 17};
    assert_true(br_headers_add(&headers, "accept", "text/event-stream"));
    assert_true(br_headers_add(&headers, "anthropic-version", "2023-06-01"));
    ssize_t n = br_http_request(text, sizeof(text), &q);
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text, "POST /v1/messages HTTP/1.1\r\n"
                              "Host: h.example:8443\r\n"
                              "User-Agent: bridle/0.1\r\n"
                              "Accept-Encoding: identity\r\n"
                              "Connection: keep-alive\r\n"
                              "accept: text/event-stream\r\n"
                              "anthropic-version: 2023-06-01\r\n"
                              "Content-Type: application/json\r\n"
                              "x-api-key: sk-12345678\r\n"
                              "Content-Length: 17\r\n\r\n");
    /* it fits, or there is none */
    assert_int_equal(br_http_request(text, (size_t)n, &q), n);
    assert_int_equal(br_http_request(text, (size_t)n - 1, &q), -1);
    br_secret_wipe(&key);
    q.post = q.keep = false;
    q.content_type = "";
    q.auth = BR_AUTH_BEARER;
    headers.n = 0;
    n = br_http_request(text, sizeof(text), &q);
    text[n] = '\0';
    assert_non_null(strstr(text, "GET /v1/messages HTTP/1.1\r\n"));
    assert_null(strstr(text, "Authorization"));
    assert_null(strstr(text, "Content-"));
    assert_non_null(strstr(text, "Connection: close\r\n"));
    static const char *const never[] = {"authorization",  "idempotency-key", "host",
                                        "content-length", "cookie",          "x-api-key"};
    for (size_t i = 0; i < BR_ARRAY_LEN(never); i++) {
        headers.n = 0;
        assert_true(br_headers_add(&headers, never[i], "v"));
        assert_int_equal(br_http_request(text, sizeof(text), &q), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),      cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_until_close), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),      cmocka_unit_test(test_headers),
        cmocka_unit_test(test_keep),        cmocka_unit_test(test_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
