/*
 * What is accepted as a provider's address and as a key. No network here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "egress/egress_priv.h"

static void test_accepted(void **state)
{
    static const struct {
        const char *in, *socket, *url, *origin;
        bool plaintext;
    } good[] = {
        {"https://api.example.org/v1", "", "https://api.example.org/v1",
         "https://api.example.org:443", false},
        {"https://api.example.org/v1///", NULL, "https://api.example.org/v1",
         "https://api.example.org:443", false},
        {"HTTPS://Host:8443", "", "https://Host:8443", "https://Host:8443", false},
        {"http://127.0.0.1:8080/v1", "", "http://127.0.0.1:8080/v1", "http://127.0.0.1:8080", true},
        {"http://127.200.3.4", "", "http://127.200.3.4", "http://127.200.3.4:80", true},
        {"http://[::1]:80/v1", "", "http://[::1]:80/v1", "http://[::1]:80", true},
        {"http://LOCALHOST/v1", "", "http://LOCALHOST/v1", "http://LOCALHOST:80", true},
        {"http://scripted.invalid/v1", "/run/x.sock", "http://scripted.invalid/v1",
         "http://scripted.invalid:80", true},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(good); i++) {
        struct br_egress_target t;
        struct br_err err;
        if (br_egress_target_set(&t, good[i].in, good[i].socket, &err) < 0)
            fail_msg("'%s' was refused: %s", good[i].in, err.text);
        assert_string_equal(t.url, good[i].url);
        assert_string_equal(t.origin, good[i].origin);
        assert_int_equal(t.plaintext, good[i].plaintext);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *in, *text;
    } bad[] = {
        {"", "empty"},
        {"not a url", "not printable"},
        {"https://a b/", "not printable"},
        {"https://host/\x1b[2J", "not printable"},
        {"https://", "cannot be read"},
        {"/v1", "cannot be read"},
        {"ftp://127.0.0.1/v1", "neither https nor http"},
        {"file:///etc/passwd", "not complete"},
        {"http://10.0.0.1/v1", "plaintext"},
        {"http://128.0.0.1/v1", "plaintext"},
        {"http://127.0.0.1.example.org/v1", "plaintext"},
        {"http://localhost.example.org/v1", "plaintext"},
        {"http://[::2]/v1", "plaintext"},
        {"http://[::ffff:10.0.0.1]/v1", "plaintext"},
        {"http://0.0.0.0/v1", "plaintext"},
        {"http://api.openai.com/v1", "plaintext"},
        {"https://user:sk-canary@host/v1", "credentials"},
        {"https://sk-canary@host/v1", "credentials"},
        {"https://host/v1?key=sk-canary", "query or a fragment"},
        {"https://host/v1#sk-canary", "query or a fragment"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct br_egress_target t = {.url = "untouched"};
        struct br_err err;
        if (br_egress_target_set(&t, bad[i].in, "", &err) != -BR_E_INVALID_CONFIG)
            fail_msg("'%s' was accepted", bad[i].in);
        if (!strstr(err.text, bad[i].text))
            fail_msg("'%s' was refused with: %s", bad[i].in, err.text);
        assert_null(strstr(err.text, "sk-canary"));
        assert_string_equal(t.url, "untouched");
    }
}

static void test_length(void **state)
{
    char url[BR_EGRESS_URL_MAX + 2];
    struct br_egress_target t;
    struct br_err err;
    (void)state;
    memset(url, 'a', sizeof(url));
    memcpy(url, "https://h/", 10);
    url[BR_EGRESS_URL_MAX] = '\0';
    assert_int_equal(br_egress_target_set(&t, url, "", &err), 0);
    url[BR_EGRESS_URL_MAX] = 'a';
    url[BR_EGRESS_URL_MAX + 1] = '\0';
    assert_int_equal(br_egress_target_set(&t, url, "", &err), -BR_E_INVALID_CONFIG);
}

static void test_paths(void **state)
{
    (void)state;
    assert_true(br_egress_path_ok("/chat/completions"));
    assert_true(br_egress_path_ok("/a-b_c.d"));
    static const char *const bad[] = {"",      "/",    "chat", "/a/../b",    "//a", "/a?b=c",
                                      "/a%2e", "/a#b", "/a b", "/a\r\nX: y", "/@h", "/a\\b"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        if (br_egress_path_ok(bad[i]))
            fail_msg("'%s' was accepted", bad[i]);
}

static int take(const char *value, struct br_secret *key)
{
    struct br_err err = {.code = BR_OK};
    if (value)
        assert_int_equal(setenv("BRIDLE_TEST_KEY", value, 1), 0);
    int r = br_egress_key_take("BRIDLE_TEST_KEY", key, &err);
    if (r < 0 && value && value[0])
        assert_null(strstr(err.text, value));
    assert_null(getenv("BRIDLE_TEST_KEY"));
    return r;
}

static void test_key(void **state)
{
    BR_CLEANUP_SECRET struct br_secret key = {0};
    char text[BR_EGRESS_KEY_MAX + 2];
    size_t n;
    (void)state;
    assert_int_equal(take(NULL, &key), -BR_E_INVALID_CONFIG);
    assert_int_equal(take("", &key), -BR_E_INVALID_CONFIG);
    assert_int_equal(take("1234567", &key), -BR_E_INVALID_CONFIG);
    assert_int_equal(take("with space", &key), -BR_E_INVALID_CONFIG);
    assert_int_equal(take("sk-12345678\r\nX: y", &key), -BR_E_INVALID_CONFIG);
    assert_int_equal(take("sk-12345678\xc3\xa4", &key), -BR_E_INVALID_CONFIG);
    (void)br_secret_bytes(&key, &n);
    assert_int_equal(n, 0);
    assert_int_equal(take("12345678", &key), 0);
    assert_memory_equal(br_secret_bytes(&key, &n), "12345678", 8);
    assert_int_equal(n, 8);
    memset(text, 'k', sizeof(text));
    text[BR_EGRESS_KEY_MAX] = '\0';
    assert_int_equal(take(text, &key), 0);
    text[BR_EGRESS_KEY_MAX] = 'k';
    text[BR_EGRESS_KEY_MAX + 1] = '\0';
    assert_int_equal(take(text, &key), -BR_E_INVALID_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_length),   cmocka_unit_test(test_paths),
        cmocka_unit_test(test_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
