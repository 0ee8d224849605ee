/*
 * The redactor on JSON values: what is taken out by its key, what by its text, and the bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "audit/redact.h"

#define MIB (1024u * 1024)
#define A20 "aB3dE5gH7jK9mN1pQ2sT"

static struct br_redact *with_secret(const char *value, size_t n)
{
    struct br_redact *r = br_redact_new();
    assert_non_null(r);
    assert_int_equal(br_redact_secret(r, "KEY", value, n, NULL), 0);
    return r;
}

static void check_json(const struct br_redact *r, const char *in, const char *want)
{
    json_t *v = json_loads(in, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    json_t *safe = br_redact_json(r, v, false, NULL);
    assert_non_null(safe);
    char *got = json_dumps(safe, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(got, want);
    free(got);
    /* the input is untouched */
    json_t *again = json_loads(in, JSON_DECODE_ANY, NULL);
    assert_true(json_equal(v, again));
    json_decref(again);
    json_decref(safe);
    json_decref(v);
}

static void test_json(void **state)
{
    (void)state;
    struct br_redact *r = with_secret("known-secret", 12);
    check_json(r, "{\"a\":\"known-secret\",\"known-secret\":1}",
               "{\"a\":\"[redacted:KEY]\",\"[redacted:KEY]\":1}");
    check_json(r, "{\"x known-secret\":1,\"x [redacted:KEY]\":2}",
               "{\"x [redacted:KEY]\":1,\"x [redacted:KEY]#2\":2}");
    check_json(r, "{\"password\":\"a\",\"Password\":\"\",\"max_tokens\":5,\"promptTokens\":\"7\"}",
               "{\"password\":\"[redacted:password]\",\"Password\":\"\",\"max_tokens\":5,"
               "\"promptTokens\":\"7\"}");
    check_json(
        r,
        "[{\"headers\":{\"X-Api-Key\":\"k\",\"cookie\":[\"a\",\"b\"],\"token\":{\"id\":\"n\"}}}]",
        "[{\"headers\":{\"X-Api-Key\":\"[redacted:api-key]\",\"cookie\":[\"[redacted:cookie]\","
        "\"[redacted:cookie]\"],\"token\":{\"id\":\"n\"}}}]");
    check_json(r, "[1,-2.5,true,false,null,\"\",\"plain \\u20ac\"]",
               "[1,-2.5,true,false,null,\"\",\"plain \xe2\x82\xac\"]");
    check_json(r, "\"run with sk-" A20 "\"", "\"run with [redacted:api-key]\"");
    br_redact_free(&r);
}

static void test_keys(void **state)
{
    (void)state;
    static const char *const yes[] = {"password",
                                      "PASSWORD",
                                      "db_password",
                                      "userPassword",
                                      "passwd",
                                      "secret",
                                      "clientSecret",
                                      "client-secret",
                                      "token",
                                      "access_token",
                                      "authToken",
                                      "api_key",
                                      "apiKey",
                                      "X-API-Key",
                                      "Authorization",
                                      "cookie",
                                      "Set-Cookie",
                                      "private_key",
                                      "aws_secret_access_key",
                                      "credentials"};
    static const char *const no[] = {"max_tokens",   "promptTokens", "completion_tokens",
                                     "tokens",       "token_count",  "secret_name",
                                     "passwordless", "sessionId",    "key",
                                     "callId",       "path",         "",
                                     "tokenizer",    "author",       "cookieConsent"};
    for (size_t i = 0; i < BR_ARRAY_LEN(yes); i++)
        if (!br_redact_key(yes[i]))
            fail_msg("'%s' names a credential", yes[i]);
    for (size_t i = 0; i < BR_ARRAY_LEN(no); i++)
        if (br_redact_key(no[i]))
            fail_msg("'%s' names no credential", no[i]);
}

static json_t *nested(unsigned depth)
{
    json_t *v = json_string("x");
    while (depth--) {
        json_t *a = json_array();
        json_array_append_new(a, v);
        v = a;
    }
    return v;
}

static void test_json_limits(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    struct br_err err = {.code = BR_OK};
    json_t *v = nested(BR_JSON_DEPTH_MAX + 8), *safe = br_redact_json(r, v, false, &err);
    assert_non_null(safe);
    json_decref(safe);
    json_decref(v);
    v = nested(BR_JSON_DEPTH_MAX + 9);
    assert_null(br_redact_json(r, v, false, &err));
    assert_int_equal(err.code, BR_E_REDACTION_FAILED);
    json_decref(v);
    v = json_array();
    for (unsigned i = 0; i + 1 < BR_REDACT_NODES_MAX; i++)
        json_array_append_new(v, json_true());
    safe = br_redact_json(r, v, false, &err);
    assert_non_null(safe);
    json_decref(safe);
    json_array_append_new(v, json_true());
    assert_null(br_redact_json(r, v, false, &err));
    json_decref(v);
    br_redact_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_json_limits),
    };
    return cmocka_run_group_tests_name("redact_json", tests, NULL, NULL);
}
