/*
 * HTTP/1.1 of guests, without sockets: what is accepted, what is refused and with which status,
 * and every limit at N and at N + 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/http.h"

#define POST "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
#define GET "GET /v1/models HTTP/1.1\r\nHost: a\r\n"

static struct br_http_request q;
static struct br_err err;

static unsigned parse(const char *s, size_t n)
{
    size_t end = br_http_head_end(s, n, 0);
    assert_true(end == 0 || end == n);
    return end ? br_http_head(s, n, &q, &err) : 0xffff;
}

static unsigned head(const char *s)
{
    return parse(s, strlen(s));
}

static void test_accepted(void **state)
{
    (void)state;
    assert_int_equal(head(POST "content-length:7\r\nContent-Type: application/json\r\n"
                               "Authorization: bearer tok\r\nx-api-key:\tkey \r\n"
                               "Connection: foo, close\r\nExpect: 100-Continue\r\n"
                               "Anthropic-Version: 2023-06-01\r\nOpenAI-Beta: x=y, z\r\n"
                               "Accept: text/event-stream\r\nX-Stainless-Arch: x64\r\n\r\n"),
                     0);
    assert_string_equal(q.method, "POST");
    assert_string_equal(q.path, "/v1/chat/completions");
    assert_string_equal(q.content_type, "application/json");
    assert_true(q.has_length && q.length == 7 && !q.chunked && q.expects_continue && q.close);
    assert_int_equal(q.ntokens, 2);
    assert_memory_equal(q.tokens[0], "tok", q.token_len[0]);
    assert_memory_equal(q.tokens[1], "key", q.token_len[1]);
    assert_int_equal(q.headers.n, 3);
    assert_string_equal(br_headers_find(&q.headers, "anthropic-version"), "2023-06-01");
    assert_string_equal(br_headers_find(&q.headers, "openai-beta"), "x=y, z");
    assert_string_equal(br_headers_find(&q.headers, "accept"), "text/event-stream");
    assert_int_equal(head(POST "Transfer-Encoding: Chunked\r\nConnection: keep-alive\r\n\r\n"), 0);
    assert_true(q.chunked && !q.has_length && !q.close && q.ntokens == 0 && q.headers.n == 0);
    assert_int_equal(head(GET "\r\n"), 0);
    assert_int_equal(head(GET "Content-Length: 0\r\n\r\n"), 0);
    assert_int_equal(
        head("POST /v1/messages?beta=true HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"), 0);
    assert_string_equal(q.path, "/v1/messages");
    assert_int_equal(head(POST "Content-Length: 1\r\nContent-Encoding: identity\r\n"
                               "Accept-Encoding: gzip, br\r\n\r\n"),
                     0);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        unsigned status;
    } rows[] = {
        {"\r\n\r\n", 400},
        {"POST\r\n\r\n", 400},
        {"POST /v1\r\n\r\n", 400},
        {" POST /v1 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"POST  /v1/x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"POST /v1/x  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"POST /v1/x HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
        {"POST /v1/x http/1.1\r\nHost: a\r\n\r\n", 400},
        {"POST /v1/x HTTP/1.0\r\nHost: a\r\n\r\n", 505},
        {"POST /v1/x HTTP/2.0\r\nHost: a\r\n\r\n", 505},
        {"PUT /v1/x HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"post /v1/x HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"PROPPATCH /v1/x HTTP/1.1\r\nHost: a\r\n\r\n", 405},
        {"GET http://a/v1/models HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", 404},
        {"GET /v1/models?beta=true&a HTTP/1.1\r\nHost: a\r\n\r\n", 404},
        {"GET /v1/../x HTTP/1.1\r\nHost: a\r\n\r\n", 404},
        {"GET /v1//x HTTP/1.1\r\nHost: a\r\n\r\n", 404},
        {"GET /v1/\"x HTTP/1.1\r\nHost: a\r\n\r\n", 404},
        {"GET /v1/models HTTP/1.1\r\n\r\n", 400},
        {GET "Host: b\r\n\r\n", 400},
        {GET "A : b\r\n\r\n", 400},
        {GET "A\r\n\r\n", 400},
        {GET ": b\r\n\r\n", 400},
        {GET "A: b\r\n c\r\n\r\n", 400},
        {GET "A: b\nC: d\r\n\r\n", 400},
        {GET "A: b\rC: d\r\n\r\n", 400},
        {GET "A: \x01\r\n\r\n", 400},
        {GET "A: \x80\r\n\r\n", 400},
        {GET "A\x7f: b\r\n\r\n", 400},
        {GET "Content-Length: 1\r\n\r\n", 400},
        {GET "Transfer-Encoding: chunked\r\n\r\n", 400},
        {POST "\r\n", 411},
        {POST "Content-Length:\r\n\r\n", 400},
        {POST "Content-Length: +1\r\n\r\n", 400},
        {POST "Content-Length: 1 1\r\n\r\n", 400},
        {POST "Content-Length: 0x1\r\n\r\n", 400},
        {POST "Content-Length: 1, 1\r\n\r\n", 400},
        {POST "Content-Length: 1000000000000000\r\n\r\n", 413},
        {POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {POST "Transfer-Encoding: identity\r\n\r\n", 501},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
        {POST "Content-Length: 1\r\nContent-Encoding: gzip\r\n\r\n", 415},
        {POST "Content-Length: 1\r\nExpect: 200-maybe\r\n\r\n", 417},
        {POST "Content-Length: 1\r\nContent-Type: a\r\nContent-Type: a\r\n\r\n", 400},
        {POST "Content-Length: 1\r\nAuthorization: Basic abc\r\n\r\n", 401},
        {POST "Content-Length: 1\r\nX-Api-Key: a\r\nX-Api-Key: b\r\nX-Api-Key: c\r\n\r\n", 400},
        {POST "Content-Length: 1\r\nAccept: a\r\nAccept: b\r\n\r\n", 400},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        err = (struct br_err){.code = BR_OK};
        unsigned status = head(rows[i].text);
        if (status != rows[i].status)
            fail_msg("'%s' gave %u, not %u", rows[i].text, status, rows[i].status);
        assert_true(err.code == BR_E_INVALID_FRAME && err.text[0]);
    }
    /* a NUL is no way to end anything early */
    static const char nul[] = GET "A: b\0c\r\n\r\n";
    assert_int_equal(parse(nul, sizeof(nul) - 1), 400);
}

static void test_limits(void **state)
{
    char text[BR_HTTP_HEAD_MAX];
    (void)state;
    for (unsigned n = BR_HTTP_PATH_MAX - 1; n <= BR_HTTP_PATH_MAX; n++) {
        int at = snprintf(text, sizeof(text), "GET /v1/");
        memset(text + at, 'a', n - 4);
        snprintf(text + at + n - 4, 100, " HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_int_equal(head(text), n < BR_HTTP_PATH_MAX ? 0 : 414);
    }
    for (unsigned n = BR_HTTP_LINES_MAX; n <= BR_HTTP_LINES_MAX + 1; n++) {
        int at = snprintf(text, sizeof(text), GET); /* one of them */
        for (unsigned i = 1; i < n; i++)
            at += snprintf(text + at, sizeof(text) - (size_t)at, "A: b\r\n");
        snprintf(text + at, sizeof(text) - (size_t)at, "\r\n");
        assert_int_equal(head(text), n <= BR_HTTP_LINES_MAX ? 0 : 431);
    }
    for (unsigned n = 127; n <= 128; n++) {
        char type[129] = "";
        memset(type, 't', n);
        snprintf(text, sizeof(text), POST "Content-Length: 1\r\nContent-Type: %.*s\r\n\r\n", (int)n,
                 type);
        assert_int_equal(head(text), n < 128 ? 0 : 400);
    }
    for (unsigned n = BR_HEADER_VALUE_MAX - 1; n <= BR_HEADER_VALUE_MAX; n++) {
        char value[BR_HEADER_VALUE_MAX + 1] = "";
        memset(value, 'v', n);
        snprintf(text, sizeof(text), GET "openai-beta: %.*s\r\n\r\n", (int)n, value);
        assert_int_equal(head(text), n < BR_HEADER_VALUE_MAX ? 0 : 400);
    }
}

/* What makes a request dearer than the lease knows is not switched on by a header. */
static void test_betas(void **state)
{
    (void)state;
    assert_int_equal(head(GET "anthropic-beta: interleaved-thinking-2025-05-14\r\n\r\n"), 0);
    assert_int_equal(head(GET "anthropic-beta: prompt-caching-2024-07-31, "
                              "fine-grained-tool-streaming-2025-05-14\r\n\r\n"),
                     0);
    assert_int_equal(head(GET "anthropic-beta: context-1m-2025-08-07\r\n\r\n"), 403);
    assert_int_equal(
        head(GET "anthropic-beta: prompt-caching-2024-07-31,code-execution-2025\r\n\r\n"), 403);
}

/* Whatever the pieces in which a head comes, its end is found once, and where it is. */
static void test_head_end(void **state)
{
    static const char text[] = GET "A: b\r\n\r\nPOST";
    size_t end = sizeof(text) - 1 - 4;
    (void)state;
    for (size_t from = 0; from < end; from++) /* what was looked at had no end */
        for (size_t n = from; n < sizeof(text); n++) {
            assert_int_equal(br_http_head_end(text, n, from), n >= end ? end : 0);
        }
    assert_int_equal(br_http_head_end("\r\n\r", 3, 0), 0);
    assert_int_equal(br_http_head_end("", 0, 0), 0);
}

/* ---- chunked bodies ---- */

static unsigned chunks(const char *p, size_t n, size_t step, struct br_buf *body, size_t *used,
                       bool *done)
{
    struct br_http_chunks c = {.state = 0};
    unsigned status = 0;
    *used = 0;
    while (status == 0 && *used < n && !c.done) {
        size_t k = n - *used < step ? n - *used : step, took;
        status = br_http_chunks_feed(&c, p + *used, k, &took, body, &err);
        if (status)
            break;
        assert_true(took == k || c.done);
        *used += took;
    }
    *done = c.done;
    return status;
}

static void test_chunks(void **state)
{
    static const char good[] = "5\r\nhello\r\n00A\r\n, world!\r\n\r\n0\r\n\r\nGET";
    (void)state;
    for (size_t step = 1; step < sizeof(good); step++) {
        BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(15);
        size_t used;
        bool done;
        assert_int_equal(chunks(good, sizeof(good) - 1, step, &body, &used, &done), 0);
        assert_true(done);
        assert_int_equal(used, sizeof(good) - 1 - 3);
        assert_int_equal(body.len, 15);
        assert_memory_equal(body.data, "hello, world!\r\n", 15);
    }
}

static void test_bad_chunks(void **state)
{
    static const struct {
        const char *text;
        unsigned status;
    } rows[] = {
        {"\r\n", 400},
        {"g\r\n", 400},
        {"5;a=b\r\n", 400},
        {"5 \r\n", 400},
        {" 5\r\n", 400},
        {"5\n", 400},
        {"0x5\r\n", 400},
        {"-1\r\n", 400},
        {"1\r\nab", 400},
        {"1\r\na\n", 400},
        {"1\r\na\r0", 400},
        {"0\r\nA: b\r\n\r\n", 400},
        {"0\r\n\n", 400},
        {"000000001\r\n", 400},
        {"8\r\n", 0},
        {"9\r\n", 413},
        {"ffffffff\r\n", 413},
        {"5\r\nhello\r\n3\r\n", 0},
        {"5\r\nhello\r\n4\r\n", 413},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        for (size_t step = 1; step < 20; step += 6) {
            BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(8);
            size_t used;
            bool done;
            unsigned status = chunks(rows[i].text, strlen(rows[i].text), step, &body, &used, &done);
            if (status != rows[i].status)
                fail_msg("'%s' gave %u, not %u", rows[i].text, status, rows[i].status);
            assert_false(done);
        }
}

static void test_token(void **state)
{
    (void)state;
    assert_true(br_http_token_same("abc", 3, "abc"));
    assert_false(br_http_token_same("abd", 3, "abc"));
    assert_false(br_http_token_same("ab", 2, "abc"));
    assert_false(br_http_token_same("abca", 4, "abc"));
    assert_false(br_http_token_same("", 0, "abc"));
    assert_false(br_http_token_same("", 0, "")); /* a lease without guests */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_betas),
        cmocka_unit_test(test_head_end),   cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_bad_chunks), cmocka_unit_test(test_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
