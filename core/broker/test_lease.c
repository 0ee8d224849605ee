/*
 * The checks and the account of a provider lease, without processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/broker_priv.h"

#define GOOD "\"model\":\"m\",\"messages\":[{}]"

static int check(const char *body, size_t n, uint64_t *max_tokens, struct br_err *err)
{
    struct br_broker_request q = {.max_tokens = 0};
    int r = br_broker_check(BR_PATH_CHAT, "m", "POST", BR_PATH_CHAT, "application/json", body, n,
                            &q, err);
    *max_tokens = q.max_tokens;
    return r;
}

static void test_allowed(void **state)
{
    static const struct {
        const char *body;
        uint64_t max;
    } good[] = {
        {"{" GOOD ",\"max_tokens\":1}", 1},
        {"{" GOOD ",\"max_completion_tokens\":10000000}", 10000000},
        {" {" GOOD ",\"max_tokens\":7,\"n\":1,\"stream\":false} ", 7},
        {"{" GOOD ",\"max_tokens\":7,\"tools\":[{\"type\":\"function\",\"function\":{}}],"
         "\"tool_choice\":\"auto\",\"temperature\":0.5,\"stream_options\":{\"include_usage\":true}"
         "}",
         7},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(good); i++) {
        uint64_t max;
        struct br_err err;
        if (check(good[i].body, strlen(good[i].body), &max, &err) < 0)
            fail_msg("%s was refused: %s", good[i].body, err.text);
        assert_int_equal(max, good[i].max);
    }
}

static void test_not_allowed(void **state)
{
    static const struct {
        const char *body, *text;
    } bad[] = {
        {"", "not JSON"},
        {"null", "not JSON"},
        {"[]", "not a JSON object"},
        {"{", "ends inside"},
        {"{" GOOD ",\"max_tokens\":1}x", "not JSON"},
        {"{" GOOD ",\"max_tokens\":1,\"max_tokens\":2}", "duplicate"},
        {"{" GOOD ",\"max_tokens\":1,\"user\":\"\xff\"}", "UTF-8"},
        {"{" GOOD ",\"max_tokens\":1,\"user\":\"\\u0000\"}", "NUL"},
        {"{" GOOD "}", "max_tokens"},
        {"{" GOOD ",\"max_tokens\":1,\"max_completion_tokens\":1}", "exactly one"},
        {"{" GOOD ",\"max_tokens\":0}", "from 1"},
        {"{" GOOD ",\"max_tokens\":-1}", "from 1"},
        {"{" GOOD ",\"max_tokens\":1.0}", "whole number"},
        {"{" GOOD ",\"max_tokens\":\"1\"}", "whole number"},
        {"{" GOOD ",\"max_tokens\":null}", "whole number"},
        {"{" GOOD ",\"max_tokens\":10000001}", "10000000"},
        {"{\"messages\":[{}],\"max_tokens\":1}", "model"},
        {"{\"model\":\"other\",\"messages\":[{}],\"max_tokens\":1}", "for the model 'm'"},
        {"{\"model\":\"mm\",\"messages\":[{}],\"max_tokens\":1}", "for the model 'm'"},
        {"{\"model\":[\"m\"],\"messages\":[{}],\"max_tokens\":1}", "for the model 'm'"},
        {"{\"model\":\"m\",\"max_tokens\":1}", "messages"},
        {"{\"model\":\"m\",\"messages\":[],\"max_tokens\":1}", "messages"},
        {"{" GOOD ",\"max_tokens\":1,\"n\":2}", "'n' is not 1"},
        {"{" GOOD ",\"max_tokens\":1,\"n\":null}", "'n' is not 1"},
        {"{" GOOD ",\"max_tokens\":1,\"n\":1.0}", "'n' is not 1"},
        {"{" GOOD ",\"max_tokens\":1,\"stream\":1}", "stream"},
        {"{" GOOD ",\"max_tokens\":1,\"store\":true}", "'store'"},
        {"{" GOOD ",\"max_tokens\":1,\"service_tier\":\"priority\"}", "'service_tier'"},
        {"{" GOOD ",\"max_tokens\":1,\"web_search_options\":{}}", "'web_search_options'"},
        {"{" GOOD ",\"max_tokens\":1,\"tools\":[{\"type\":\"web_search\"}]}", "not a function"},
        {"{" GOOD ",\"max_tokens\":1,\"tools\":[1]}", "not a function"},
        {"{" GOOD ",\"max_tokens\":1,\"tools\":{}}", "not a list"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        uint64_t max;
        struct br_err err;
        if (check(bad[i].body, strlen(bad[i].body), &max, &err) != -BR_E_LEASE_REFUSED)
            fail_msg("%s was allowed", bad[i].body);
        if (!strstr(err.text, bad[i].text))
            fail_msg("%s was refused with: %s", bad[i].body, err.text);
    }
}

static void test_depth(void **state)
{
    struct br_err err;
    uint64_t max;
    (void)state;
    for (unsigned depth = BR_JSON_DEPTH_MAX; depth <= BR_JSON_DEPTH_MAX + 1; depth++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
        br_buf_printf(&b, "{" GOOD ",\"max_tokens\":1,\"stop\":");
        for (unsigned i = 1; i < depth; i++)
            br_buf_put_u8(&b, '[');
        for (unsigned i = 1; i < depth; i++)
            br_buf_put_u8(&b, ']');
        br_buf_put_u8(&b, '}');
        int r = check((const char *)b.data, b.len, &max, &err);
        assert_int_equal(r, depth <= BR_JSON_DEPTH_MAX ? 0 : -BR_E_LEASE_REFUSED);
    }
}

static void test_route_and_type(void **state)
{
    static const char body[] = "{" GOOD ",\"max_tokens\":1}";
    static const struct {
        const char *method, *path, *type;
        bool ok;
    } rows[] = {
        {"POST", "/chat/completions", "application/json", true},
        {"POST", "/chat/completions", "Application/JSON; charset=utf-8", true},
        {"POST", "/chat/completions", "application/json;charset=UTF-8", true},
        {"GET", "/chat/completions", "application/json", false},
        {"post", "/chat/completions", "application/json", false},
        {"POST", "/chat/completions/", "application/json", false},
        {"POST", "/v1/chat/completions", "application/json", false},
        {"POST", "/chat/completions?x=y", "application/json", false},
        {"POST", "", "application/json", false},
        {"POST", "/chat/completions", "application/jsonp", false},
        {"POST", "/chat/completions", "application/json; charset=utf-16", false},
        {"POST", "/chat/completions", "", false},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_broker_request q;
        struct br_err err;
        int r = br_broker_check(BR_PATH_CHAT, "m", rows[i].method, rows[i].path, rows[i].type, body,
                                sizeof(body) - 1, &q, &err);
        if ((r == 0) != rows[i].ok)
            fail_msg("%s %s %s: %d", rows[i].method, rows[i].path, rows[i].type, r);
    }
}

static const struct br_lease lease = {.max_requests = 2,
                                      .max_request_bytes = 100,
                                      .max_response_bytes = 50,
                                      .max_tokens = 1000,
                                      .seconds = 10};

static void test_open(void **state)
{
    struct br_account a;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    for (unsigned i = 0; i < 5; i++) {
        struct br_lease l = lease;
        struct br_err err;
        if (i == 0)
            l.max_requests = 0;
        if (i == 1)
            l.max_request_bytes = 0;
        if (i == 2)
            l.max_response_bytes = 0;
        if (i == 3)
            l.max_tokens = 0;
        if (i == 4)
            l.seconds = 0;
        assert_int_equal(br_account_open(&a, &l, 0, &err), -BR_E_INVALID_CONFIG);
    }
}

/* Each ceiling at N and at N + 1; a refusal charges nothing. */
static void test_ceilings(void **state)
{
    static const struct {
        uint64_t now;
        size_t bytes;
        uint64_t tokens, max;
        bool ok;
    } rows[] = {
        {9999999, 100, 1000, 1000, true}, {10000000, 100, 1000, 1000, false},
        {0, 101, 1000, 1000, false},      {0, 100, 1001, 1000, false},
        {0, 100, 999, 1000, false},       {0, 100, UINT64_MAX, 1, false},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_account a;
        struct br_err err;
        assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
        int r = br_account_reserve(&a, 1, rows[i].now, rows[i].bytes, rows[i].tokens, rows[i].max,
                                   &err);
        assert_int_equal(r, rows[i].ok ? 0 : -BR_E_LEASE_REFUSED);
        assert_int_equal(a.requests, rows[i].ok);
        assert_int_equal(a.request_bytes, rows[i].ok ? rows[i].bytes : 0);
        assert_int_equal(a.tokens, rows[i].ok ? rows[i].tokens : 0);
        assert_int_equal(a.in_flight, rows[i].ok);
    }
}

static void test_requests_and_flight(void **state)
{
    struct br_account a;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, 1, 0, 1, 1, 1, &err), 0);
    assert_int_equal(br_account_reserve(&a, 2, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    assert_non_null(strstr(err.text, "in flight"));
    br_account_end(&a);
    assert_int_equal(br_account_reserve(&a, 2, 0, 1, 1, 1, &err), 0);
    br_account_end(&a);
    assert_int_equal(br_account_reserve(&a, 3, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    assert_int_equal(a.requests, 2);
}

static void test_settle(void **state)
{
    struct br_account a;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_false(br_account_settle(&a, 0, 1, 1)); /* nothing was asked yet */
    assert_int_equal(br_account_reserve(&a, 5, 0, 1, 600, 1, &err), 0);
    assert_false(br_account_settle(&a, 5, 1, 1)); /* it is not over */
    br_account_end(&a);
    assert_false(br_account_settle(&a, 4, 1, 1));
    assert_false(br_account_settle(&a, 5, 0, 0));
    assert_int_equal(a.tokens, 600);
    assert_true(br_account_settle(&a, 5, 100, 50));
    assert_int_equal(a.tokens, 150);
    assert_false(br_account_settle(&a, 5, 1, 1)); /* once */
    assert_int_equal(a.tokens, 150);
    /* more than was reserved is charged, and then nothing is left */
    assert_int_equal(br_account_reserve(&a, 6, 0, 1, 850, 1, &err), 0);
    br_account_end(&a);
    assert_true(br_account_settle(&a, 6, UINT64_MAX, 9));
    assert_int_equal(a.tokens, UINT64_MAX);
    a.requests = 0;
    assert_int_equal(br_account_reserve(&a, 7, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
}

static void test_release(void **state)
{
    struct br_account a;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, 1, 0, 60, 600, 1, &err), 0);
    br_account_release(&a, 60);
    br_account_end(&a);
    assert_int_equal(a.tokens, 0);
    assert_int_equal(a.request_bytes, 0);
    assert_int_equal(a.requests, 1);
    assert_false(br_account_settle(&a, 1, 5, 5));
    assert_int_equal(a.tokens, 0);
}

static void test_receive(void **state)
{
    struct br_account a;
    struct br_err err;
    (void)state;
    assert_int_equal(br_account_open(&a, &lease, 0, NULL), 0);
    assert_int_equal(br_account_reserve(&a, 1, 0, 1, 1, 1, &err), 0);
    assert_int_equal(br_account_receive(&a, 30), 30);
    assert_int_equal(br_account_receive(&a, 20), 20);
    assert_int_equal(br_account_receive(&a, 1), 0);
    br_account_end(&a);
    assert_int_equal(br_account_reserve(&a, 2, 0, 1, 1, 1, &err), -BR_E_LEASE_REFUSED);
    assert_non_null(strstr(err.text, "no bytes left for an answer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_not_allowed),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_route_and_type),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_requests_and_flight),
        cmocka_unit_test(test_settle),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_receive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
