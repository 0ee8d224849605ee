/*
 * Guests of a provider lease, with real processes and real sockets: this test is the guest, bridled
 * and the session; then bridle-broker, bridle-egress, and a provider on loopback.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/http.h"
#include "broker/test_client.h"

static struct eg_server provider;

static const struct br_lease lease = {.max_requests = 20,
                                      .max_request_bytes = 100000,
                                      .max_response_bytes = 64u << 20,
                                      .max_tokens = 100000,
                                      .seconds = 60,
                                      .max_answer_tokens = 1000,
                                      .max_in_flight = 8,
                                      .routes = BR_ROUTES_ALL,
                                      .answers = BR_ANSWERS_STRICT,
                                      .any_tools = 1,
                                      .token = CLIENT_TOKEN};

static void start(struct rig *r, const struct br_lease *l)
{
    char url[64];
    *r = (struct rig){.server = NULL};
    eg_server_reset(&provider);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", provider.port);
    assert_int_equal(rig_start(r, &(struct rig_options){.lease = l ? *l : lease, .base_url = url}),
                     0);
    rig_listen(r);
}

static unsigned requests_seen(void)
{
    return atomic_load(&provider.shared->requests);
}

static int setup(void **state)
{
    (void)state;
    eg_server_start_with(&provider, client_provider);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    eg_server_stop(&provider);
    return 0;
}

/* ---- what works ---- */

static void test_whole_and_stream(void **state)
{
    struct rig r;
    struct client_answer a;
    (void)state;
    start(&r, NULL);
    client_once(&r, "whole", false, &a);
    assert_int_equal(a.status, 200);
    assert_true(client_has(&a, "\"content\":\"hi\"") && client_has(&a, "\"total_tokens\":17"));
    assert_non_null(strstr(a.head, "\r\ncontent-type: application/json\r\n"));
    assert_non_null(strstr(a.head, "\r\nx-request-id: up-1\r\n"));
    client_answer_free(&a);
    rig_until_responses(&r, 1);
    assert_int_equal(r.request.route, BR_ROUTE_CHAT);
    assert_int_equal(r.request.messages, 1);
    assert_true(r.request.reserved >= 100 && r.request.bytes > 80);
    assert_int_equal(r.response.code, 0);
    assert_int_equal(r.response.status, 200);
    assert_string_equal(r.response.finish, "stop");
    assert_true(r.response.settled && r.response.prompt == 12 && r.response.completion == 5);
    /* what went upstream: the key instead of the token, and identity only */
    assert_non_null(strstr(provider.shared->last, "POST /v1/chat/completions HTTP/1.1\r\n"));
    assert_non_null(strstr(provider.shared->last, "Authorization: Bearer " RIG_KEY "\r\n"));
    assert_null(strstr(provider.shared->last, CLIENT_TOKEN));
    client_once(&r, "stream", true, &a);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.head, "\r\ncontent-type: text/event-stream\r\n"));
    assert_true(client_has(&a, "\"content\":\"i\"") && client_has(&a, "data: [DONE]\n\n"));
    assert_false(client_has(&a, "total_tokens")); /* which it did not ask for */
    assert_non_null(strstr(provider.shared->last, "\"include_usage\":true"));
    client_answer_free(&a);
    rig_until_responses(&r, 2);
    struct br_account_sums s = rig_account(&r);
    assert_int_equal(s.requests, 2);
    assert_int_equal(s.settled, 2);
    assert_int_equal(s.in_flight, 0);
    assert_int_equal(s.tokens_charged, 34);
    assert_int_equal(requests_seen(), 2);
    rig_stop(&r, 0, 0);
}

static void test_one_connection(void **state)
{
    static const char hex[] =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nx-api-key: " CLIENT_TOKEN
        "\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n";
    static const char json[] = "{\"model\":\"test-model\",\"max_tokens\":9,\"messages\":[{"
                               "\"role\":\"user\",\"content\":\"whole\"}]}";
    struct rig r;
    struct client_answer a;
    char line[32];
    (void)state;
    start(&r, NULL);
    int fd = client_connect(&r);
    for (int i = 0; i < 3; i++) {
        client_ask(fd, i == 1 ? "stream" : "whole", i == 1);
        assert_true(client_read(&r, fd, &a));
        assert_true(a.status == 200 && !a.closes);
        client_answer_free(&a);
    }
    /* chunked, one byte at a time */
    client_send(fd, hex, sizeof(hex) - 1);
    for (size_t i = 0; i < sizeof(json) - 1; i++) {
        snprintf(line, sizeof(line), "1\r\n%c\r\n", json[i]);
        client_send(fd, line, strlen(line));
    }
    client_send(fd, "0\r\n\r\n", 5);
    assert_true(client_read(&r, fd, &a));
    assert_int_equal(a.status, 200);
    client_answer_free(&a);
    /* Expect: the body comes when it is asked for */
    snprintf(line, sizeof(line), "%zu\r\n\r\n", sizeof(json) - 1);
    static const char expect[] =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nx-api-key: " CLIENT_TOKEN
        "\r\nContent-Type: application/json\r\n"
        "Expect: 100-continue\r\nConnection: close\r\nContent-Length: ";
    client_send(fd, expect, sizeof(expect) - 1);
    client_send(fd, line, strlen(line));
    assert_true(client_read(&r, fd, &a));
    assert_int_equal(a.status, 100);
    client_answer_free(&a);
    client_send(fd, json, sizeof(json) - 1);
    assert_true(client_read(&r, fd, &a));
    assert_true(a.status == 200 && a.closes);
    client_answer_free(&a);
    assert_true(client_ends(&r, fd));
    assert_int_equal(requests_seen(), 5);
    rig_until_responses(&r, 5);
    rig_stop(&r, 0, 0);
}

/* Requests that come all at once are answered one after the other, and each is one. */
static void test_pipelined(void **state)
{
    struct rig r;
    struct client_answer a;
    struct br_lease l = lease;
    BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(65536);
    (void)state;
    l.max_requests = 2;
    start(&r, &l);
    client_post(&q, "whole", false, NULL, NULL);
    client_post(&q, "stream", true, NULL, NULL);
    for (int i = 0; i < 10; i++) /* refused, and as many as one reading brings */
        client_post(&q, "whole", false, NULL, NULL);
    br_buf_printf(&q, "GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " CLIENT_TOKEN
                      "\r\nConnection: close\r\n\r\n");
    int fd = client_connect(&r);
    client_send(fd, (const char *)q.data, q.len);
    char text[65536] = "";
    size_t n = 0;
    for (ssize_t k = 1; k > 0; n += (size_t)k) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (poll(&p, 1, 0) == 0)
            (void)rig_until(&r, NULL, 5);
        k = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        assert_true(k >= 0);
    }
    (void)close(fd);
    unsigned ok = 0, refused = 0;
    for (const char *p = text; (p = strstr(p, "HTTP/1.1 ")); p++) {
        ok += strncmp(p, "HTTP/1.1 200", 12) == 0;
        refused += strncmp(p, "HTTP/1.1 403", 12) == 0;
    }
    assert_int_equal(ok, 3);
    assert_int_equal(refused, 10);
    assert_non_null(strstr(text, "\"object\":\"list\""));
    assert_int_equal(requests_seen(), 2);
    (void)a;
    rig_until_responses(&r, 2);
    rig_until_refused(&r, 10);
    rig_stop(&r, 0, 0);
}

/* ---- what is refused, and nothing is sent ---- */

static void refused(struct rig *r, const char *text, size_t n, unsigned status, const char *says)
{
    struct client_answer a;
    int fd = client_connect(r);
    assert_true(fd >= 0);
    client_send(fd, text, n);
    if (!client_read(r, fd, &a))
        fail_msg("no answer to '%.200s'", text);
    if (a.status != status || !client_has(&a, says))
        fail_msg("'%.200s' gave %u %.*s", text, a.status, (int)a.body.len,
                 (const char *)a.body.data);
    assert_non_null(strstr(a.head, "\r\nx-should-retry: false\r\n"));
    assert_true(client_has(&a, "\"error\":"));
    assert_true(status < 300 || status >= 400);
    client_answer_free(&a);
    (void)close(fd);
}

#define AUTH "Authorization: Bearer " CLIENT_TOKEN "\r\n"
#define HEAD "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
#define JSON "Content-Type: application/json\r\n"

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *says;
        unsigned status;
    } rows[] = {
        {HEAD JSON "Content-Length: 2\r\n\r\n{}", "token", 401},
        {HEAD JSON "Authorization: Bearer " CLIENT_TOKEN "0\r\nContent-Length: 2\r\n\r\n{}",
         "token", 401},
        {HEAD JSON AUTH "X-Api-Key: other\r\nContent-Length: 2\r\n\r\n{}", "token", 401},
        {"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", "token", 401},
        {HEAD JSON AUTH "Content-Length: 2\r\n\r\n{}", "model", 403},
        {HEAD AUTH "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "content type", 403},
        {HEAD JSON AUTH "Content-Length: 1\r\n\r\n{", "JSON", 403},
        {HEAD JSON AUTH "Content-Length: 0\r\n\r\n", "JSON", 403},
        {HEAD JSON AUTH "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "compressed", 415},
        {HEAD JSON AUTH "\r\n", "length", 411},
        {"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\n" JSON AUTH "Content-Length: 2\r\n\r\n{}",
         "not a route", 403},
        {"POST /chat/completions HTTP/1.1\r\nHost: a\r\n" JSON AUTH "Content-Length: 2\r\n\r\n{}",
         "/v1/", 404},
        {"DELETE /v1/models HTTP/1.1\r\nHost: a\r\n" AUTH "\r\n", "method", 405},
        {"GET /v1/models HTTP/1.0\r\nHost: a\r\n" AUTH "\r\n", "HTTP/1.1", 505},
        {"\x16\x03\x01\r\n\r\n", "first line", 400},
        {"POST /v1/messages HTTP/1.1\r\nHost: a\r\nX-Api-Key: no\r\nContent-Length: 2\r\n\r\n{}",
         "{\"type\":\"error\",\"error\":", 401},
    };
    struct rig r;
    struct client_answer a;
    (void)state;
    start(&r, NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        refused(&r, rows[i].text, strlen(rows[i].text), rows[i].status, rows[i].says);
    rig_until_refused(&r, BR_ARRAY_LEN(rows));
    assert_int_equal(rig_account(&r).refused, BR_ARRAY_LEN(rows));
    assert_int_equal(rig_account(&r).requests, 0);
    assert_int_equal(requests_seen(), 0);
    client_once(&r, "whole", false, &a); /* positive control */
    assert_int_equal(a.status, 200);
    client_answer_free(&a);
    assert_int_equal(requests_seen(), 1);
    rig_stop(&r, 0, 0);
}

static void test_sizes(void **state)
{
    static char text[BR_HTTP_HEAD_MAX + 16];
    static const char front[] =
        "GET /v1/models HTTP/1.1\r\nHost: a\r\n" AUTH "Connection: close\r\nX: ";
    struct rig r;
    struct client_answer a;
    struct br_lease l = lease;
    (void)state;
    l.max_request_bytes = 400;
    start(&r, &l);
    for (size_t n = BR_HTTP_HEAD_MAX; n <= BR_HTTP_HEAD_MAX + 1; n++) {
        memset(text, 'x', sizeof(text));
        memcpy(text, front, sizeof(front) - 1);
        memcpy(text + n - 4, "\r\n\r\n", 4);
        if (n > BR_HTTP_HEAD_MAX) {
            refused(&r, text, n, 431, "16 KiB");
            continue;
        }
        int fd = client_connect(&r);
        client_send(fd, text, n);
        assert_true(client_read(&r, fd, &a));
        assert_int_equal(a.status, 200);
        client_answer_free(&a);
        (void)close(fd);
    }
    /* a body at the lease's ceiling, and one byte more: with a length, and in chunks */
    for (size_t n = 400; n <= 401; n++)
        for (int chunked = 0; chunked < 2; chunked++) {
            char body[512], q[2048];
            memset(body, ' ', sizeof(body));
            int k = snprintf(q, sizeof(q), HEAD JSON AUTH "%s",
                             chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "Content-Length: ");
            k += snprintf(q + k, sizeof(q) - (size_t)k, chunked ? "%zx\r\n" : "%zu\r\n\r\n", n);
            memcpy(q + k, body, n);
            memcpy(q + k + n, "\r\n0\r\n\r\n", 8);
            refused(&r, q, (size_t)k + n + (chunked ? 7 : 0), n == 400 ? 403 : 413,
                    n == 400 ? "JSON" : "400");
        }
    assert_int_equal(requests_seen(), 0);
    rig_stop(&r, 0, 0);
}

/* ---- the account ---- */

/* However many ask at the same moment, a lease of one request is one request upstream. */
static void test_one_request_for_all(void **state)
{
    enum { ALL = 64 };
    struct rig r;
    struct br_lease l = lease;
    int fds[ALL];
    unsigned ok = 0, no = 0;
    (void)state;
    l.max_requests = 1;
    l.max_in_flight = ALL;
    start(&r, &l);
    for (int i = 0; i < ALL; i++)
        assert_true((fds[i] = client_connect(&r)) >= 0);
    for (int i = 0; i < ALL; i++)
        client_ask(fds[i], "stream", true);
    for (int i = 0; i < ALL; i++) {
        struct client_answer a;
        assert_true(client_read(&r, fds[i], &a));
        ok += a.status == 200;
        no += a.status == 403 && strstr(a.head, "x-should-retry: false") &&
              client_has(&a, "allows 1 requests and all are used");
        client_answer_free(&a);
        (void)close(fds[i]);
    }
    assert_int_equal(ok, 1);
    assert_int_equal(no, ALL - 1);
    assert_int_equal(requests_seen(), 1);
    assert_int_equal(rig_account(&r).requests, 1);
    assert_int_equal(rig_account(&r).refused, ALL - 1);
    rig_stop(&r, 0, 0);
    /* positive control: with 64 of them, all are served */
    l.max_requests = ALL;
    start(&r, &l);
    for (int i = 0; i < ALL; i++) {
        assert_true((fds[i] = client_connect(&r)) >= 0);
        client_ask(fds[i], "stream", true);
    }
    for (int i = 0; i < ALL; i++) {
        struct client_answer a;
        assert_true(client_read(&r, fds[i], &a));
        assert_int_equal(a.status, 200);
        client_answer_free(&a);
        (void)close(fds[i]);
    }
    assert_int_equal(requests_seen(), ALL);
    rig_until_responses(&r, ALL);
    assert_int_equal(rig_account(&r).tokens_charged, 17 * ALL);
    rig_stop(&r, 0, 0);
}

static void test_in_flight_limit(void **state)
{
    struct rig r;
    struct br_lease l = lease;
    struct client_answer a;
    (void)state;
    l.max_in_flight = 2;
    start(&r, &l);
    int one = client_connect(&r), two = client_connect(&r);
    client_ask(one, "hang", true);
    client_ask(two, "hang", true);
    while (r.nrequests < 2)
        (void)rig_until(&r, NULL, 5);
    client_once(&r, "whole", false, &a);
    assert_int_equal(a.status, 403);
    assert_true(client_has(&a, "2 requests are in flight"));
    client_answer_free(&a);
    (void)close(one);
    (void)close(two);
    assert_int_equal(rig_account(&r).requests, 2);
    rig_stop(&r, 0, 0);
}

static void test_statuses(void **state)
{
    struct rig r;
    struct client_answer a;
    (void)state;
    start(&r, NULL);
    client_once(&r, "429", true, &a);
    assert_int_equal(a.status, 429);
    assert_non_null(strstr(a.head, "\r\nretry-after: 3\r\n"));
    assert_non_null(strstr(a.head, "\r\nx-ratelimit-remaining-tokens: 7\r\n"));
    assert_null(strcasestr(a.head, "cookie"));
    assert_true(client_has(&a, "odd_code"));
    client_answer_free(&a);
    rig_until_responses(&r, 1);
    assert_int_equal(r.response.status, 429);
    assert_int_equal(rig_account(&r).released, 1);
    assert_int_equal(rig_account(&r).tokens_charged, 0);
    client_once(&r, "401", false, &a); /* which repeats the key */
    assert_int_equal(a.status, 401);
    assert_false(client_has(&a, RIG_KEY));
    client_answer_free(&a);
    client_once(&r, "307", false, &a); /* a guest is never sent elsewhere */
    assert_int_equal(a.status, 502);
    assert_null(strcasestr(a.head, "location"));
    client_answer_free(&a);
    client_once(&r, "500", false, &a);
    assert_int_equal(a.status, 500);
    client_answer_free(&a);
    rig_until_responses(&r, 4);
    struct br_account_sums s = rig_account(&r);
    assert_int_equal(s.released, 2);
    assert_int_equal(s.unsettled, 2); /* it may have been served */
    assert_true(s.tokens_charged >= 200);
    assert_int_equal(requests_seen(), 4); /* no retries */
    rig_stop(&r, 0, 0);
}

/* ---- answers that contradict themselves, or end early ---- */

static void test_contradictions(void **state)
{
    struct rig r;
    struct client_answer a;
    struct br_lease l = lease;
    (void)state;
    start(&r, NULL);
    client_once(&r, "calls", true, &a);
    assert_int_equal(a.status, 200);
    assert_true(client_has(&a, "PROVIDER_INVALID_RESPONSE") && !client_has(&a, "[DONE]"));
    client_answer_free(&a);
    rig_until_responses(&r, 1);
    assert_int_equal(r.response.code, BR_E_PROVIDER_INVALID);
    client_once(&r, "wrong", false, &a); /* nothing was passed on: an error like any other */
    assert_int_equal(a.status, 502);
    assert_non_null(strstr(a.head, "\r\nx-should-retry: false\r\n"));
    client_answer_free(&a);
    client_once(&r, "cut", true, &a);
    assert_int_equal(a.status, 200);
    assert_true(client_has(&a, "PROVIDER_TRUNCATED") && !client_has(&a, "[DONE]"));
    client_answer_free(&a);
    rig_until_responses(&r, 3);
    assert_int_equal(rig_account(&r).cut, 3);
    rig_stop(&r, 0, 0);
    /* a lease that repairs says what it has repaired */
    l.answers = BR_ANSWERS_NORMALIZE;
    start(&r, &l);
    client_once(&r, "calls", true, &a);
    assert_true(client_has(&a, "\"tool_calls\"") && client_has(&a, "[DONE]"));
    client_answer_free(&a);
    rig_until_responses(&r, 1);
    assert_int_equal(r.response.code, 0);
    assert_int_equal(r.response.repairs, 1);
    assert_int_equal(r.response.calls, 1);
    assert_int_equal(rig_account(&r).repaired, 1);
    rig_stop(&r, 0, 0);
}

static void test_guest_leaves(void **state)
{
    struct rig r;
    char c[512];
    (void)state;
    start(&r, NULL);
    int fd = client_connect(&r);
    client_ask(fd, "slow", true);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 0) == 0)
        (void)rig_until(&r, NULL, 5);
    assert_true(recv(fd, c, sizeof(c), 0) > 0);
    (void)close(fd);
    rig_until_responses(&r, 1); /* the rest is read, to learn what it used */
    assert_int_equal(r.response.code, BR_E_CANCELED);
    assert_true(r.response.settled);
    assert_int_equal(rig_account(&r).tokens_charged, 17);
    /* but not for ever: the reservation stays */
    fd = client_connect(&r);
    client_ask(fd, "flood", true);
    p.fd = fd;
    while (poll(&p, 1, 0) == 0)
        (void)rig_until(&r, NULL, 5);
    (void)close(fd);
    rig_until_responses(&r, 2);
    assert_false(r.response.settled);
    assert_true(r.response.bytes < 8u << 20);
    struct br_account_sums s = rig_account(&r);
    assert_int_equal(s.unsettled, 1);
    assert_int_equal(s.tokens_charged, 17 + r.request.reserved);
    assert_int_equal(r.response.prompt + r.response.completion, r.request.reserved);
    rig_stop(&r, 0, 0);
}

/* Who does not read slows its own provider down, and nobody else. */
static void test_slow_reader(void **state)
{
    struct rig r;
    struct client_answer a;
    struct br_lease l = lease;
    (void)state;
    l.max_response_bytes = 24u << 20;
    start(&r, &l);
    int fd = client_connect(&r);
    client_ask(fd, "flood", true);
    unsigned long sent = 0, before = 1;
    for (int i = 0; (sent = atomic_load(&provider.shared->sent)) != before && i < 100; i++) {
        before = sent;
        (void)rig_until(&r, NULL, 150);
    }
    assert_int_equal(sent, before); /* it stands */
    assert_true(sent > 0 && sent < 12u << 20);
    client_once(&r, "stream", true, &a);
    assert_true(client_has(&a, "[DONE]"));
    client_answer_free(&a);
    /* reading again brings the lease's bytes and its end */
    assert_true(client_read(&r, fd, &a));
    assert_true(client_has(&a, "LIMIT_EXCEEDED"));
    assert_true(a.body.len > 8u << 20 && a.body.len < 25u << 20);
    client_answer_free(&a);
    (void)close(fd);
    rig_until_responses(&r, 2);
    assert_true(rig_account(&r).response_bytes <= 24u << 20);
    rig_stop(&r, 0, 0);
}

/* ---- ends ---- */

static void test_lease_ends(void **state)
{
    struct rig r;
    struct client_answer a;
    struct br_lease l = lease;
    (void)state;
    l.seconds = 1;
    start(&r, &l);
    int idle = client_connect(&r), mute = client_connect(&r), fd = client_connect(&r);
    client_ask(mute, "mute", false);
    client_ask(fd, "hang", true);
    assert_true(client_read(&r, mute, &a));
    assert_int_equal(a.status, 403);
    assert_true(client_has(&a, "lease has ended"));
    client_answer_free(&a);
    assert_true(client_read(&r, fd, &a));
    assert_true(a.status == 200 && client_has(&a, "lease has ended"));
    client_answer_free(&a);
    assert_true(client_ends(&r, mute) && client_ends(&r, fd) && client_ends(&r, idle));
    /* whoever comes now, from wherever, with whatever token */
    assert_true(client_connect(&r) < 0 && errno == ECONNREFUSED);
    rig_until_responses(&r, 2);
    assert_int_equal(rig_account(&r).unsettled, 2);
    rig_stop(&r, 0, 0);
}

static void test_session_gone(void **state)
{
    struct rig r;
    struct client_answer a;
    (void)state;
    start(&r, NULL);
    int fd = client_connect(&r);
    client_ask(fd, "hang", true);
    while (r.nrequests < 1)
        (void)rig_until(&r, NULL, 5);
    br_chan_close(&r.session);
    assert_true(client_read(&r, fd, &a));
    assert_true(client_has(&a, "session has gone"));
    client_answer_free(&a);
    (void)close(fd);
    assert_true(client_connect(&r) < 0 && errno == ECONNREFUSED);
    rig_stop(&r, 0, 0);
}

/* Killed in the middle of a stream, whoever it is: the reservation is charged. */
static void test_killed(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct rig r;
        struct client_answer a;
        start(&r, NULL);
        client_once(&r, "stream", true, &a);
        client_answer_free(&a);
        int fd = client_connect(&r);
        client_ask(fd, "hang", true);
        while (r.nrequests < 2)
            (void)rig_until(&r, NULL, 5);
        struct br_account_sums s = rig_account(&r);
        assert_int_equal(s.in_flight, 1);
        assert_int_equal(s.tokens_charged, 17 + r.request.reserved);
        assert_int_equal(kill(which ? r.broker : r.egress, SIGKILL), 0);
        if (which == 0) {
            assert_true(client_read(&r, fd, &a));
            assert_true(client_has(&a, "PROGRAM_DIED"));
            client_answer_free(&a);
            rig_until_responses(&r, 2);
            (void)close(fd);
            client_once(&r, "whole", false, &a);
            assert_int_equal(a.status, 403); /* there is nobody to send it */
            client_answer_free(&a);
            s = rig_account(&r);
            assert_int_equal(s.unsettled, 1);
        } else {
            assert_true(client_ends(&r, fd));
            s = rig_account(&r);
            assert_int_equal(s.in_flight, 1);
        }
        assert_int_equal(s.requests, 2);
        assert_int_equal(s.tokens_charged, 17 + r.request.reserved);
        rig_stop(&r, which ? -1 : 0, which ? 0 : -1);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_and_stream),
        cmocka_unit_test(test_one_connection),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_one_request_for_all),
        cmocka_unit_test(test_in_flight_limit),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_guest_leaves),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_lease_ends),
        cmocka_unit_test(test_session_gone),
        cmocka_unit_test(test_killed),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
