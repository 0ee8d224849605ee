/*
 * The redactor: what must be hidden, what must not, every encoding and every split of a secret, and
 * that no input makes it slow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "audit/bench.h"
#include "audit/redact.h"

#define MIB (1024u * 1024)

static char *redact(const struct br_redact *r, const char *text, size_t n)
{
    struct br_buf out = BR_BUF_INIT(16 * MIB);
    assert_int_equal(br_redact_text(r, text, n, &out, NULL), 0);
    assert_non_null(br_buf_cstr(&out));
    return (char *)out.data;
}

static char *redact_chunks(const struct br_redact *r, const char *text, size_t n, size_t first,
                           size_t step)
{
    struct br_buf out = BR_BUF_INIT(16 * MIB);
    struct br_redact_stream *s = br_redact_stream_new(r);
    assert_non_null(s);
    for (size_t at = 0, len = first; at < n; at += len, len = step) {
        if (len > n - at)
            len = n - at;
        assert_int_equal(br_redact_stream_feed(s, text + at, len, &out, NULL), 0);
    }
    assert_int_equal(br_redact_stream_end(s, &out, NULL), 0);
    br_redact_stream_free(&s);
    assert_non_null(br_buf_cstr(&out));
    return (char *)out.data;
}

/* The text in one piece, in two at every offset, and byte by byte gives `want`. */
static void check_all_ways(const struct br_redact *r, const char *text, size_t n, const char *want)
{
    char *got = redact(r, text, n);
    assert_string_equal(got, want);
    free(got);
    for (size_t at = 1; at <= n; at++) {
        got = redact_chunks(r, text, n, at, n);
        if (strcmp(got, want) != 0)
            fail_msg("split at %zu: '%s', not '%s'", at, got, want);
        free(got);
    }
    got = redact_chunks(r, text, n, 1, 1);
    assert_string_equal(got, want);
    free(got);
}

/* ---- shapes ---- */

#define A20 "aB3dE5gH7jK9mN1pQ2sT"
#define A36 A20 "uV4xY6zA8bC0dE2f"

static const struct {
    const char *text, *want;
} positives[] = {
    {"sk-" A20, "[redacted:api-key]"},
    {"key sk-proj-" A36 "_" A36 ".", "key [redacted:api-key]."},
    {"x sk-ant-api03-" A36 " y", "x [redacted:anthropic-key] y"},
    {"ghp_" A36, "[redacted:github-token]"},
    {"(gho_" A36 ")", "([redacted:github-token])"},
    {"ghs_" A36 "\n", "[redacted:github-token]\n"},
    {"'github_pat_11ABCDEFG0" A36 "_" A20 "'", "'[redacted:github-token]'"},
    {"glpat-" A20, "[redacted:gitlab-token]"},
    {"xoxb-123456789012-" A20, "[redacted:slack-token]"},
    {"xoxp-123456789012-" A20, "[redacted:slack-token]"},
    {"https://hooks.slack.com/services/T0123456/B0123456/" A20, "https://[redacted:slack-webhook]"},
    {"AKIAIOSFODNN7EXAMPLE", "[redacted:aws-key-id]"},
    {"id=ASIAIOSFODNN7EXAMPLE;", "id=[redacted:aws-key-id];"},
    {"AIzaSyA1234567890abcdefghijklmnopqrstuvw", "[redacted:google-key]"},
    {"npm_" A36, "[redacted:npm-token]"},
    {"hf_" A36, "[redacted:hf-token]"},
    {"pypi-AgEIcHlwaS5vcmc" A36, "[redacted:pypi-token]"},
    {"rk_live_" A20, "[redacted:stripe-key]"},
    {"sk_live_" A20, "[redacted:stripe-key]"},
    {"SG." A20 "ab." A36 "1234567", "[redacted:sendgrid-key]"},
    {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
     "[redacted:jwt]"},
    {"Authorization: Bearer abc123def456", "Authorization: Bearer [redacted:authorization]"},
    {"authorization: basic dXNlcjpwYXNz\nnext",
     "authorization: basic [redacted:authorization]\nnext"},
    {"-H 'Authorization: token " A20 "' x", "-H 'Authorization: token [redacted:authorization]' x"},
    {"\"Authorization\": \"Bearer " A20 "\"",
     "\"Authorization\": \"Bearer [redacted:authorization]\""},
    {"curl with Bearer " A20 " works", "curl with Bearer [redacted:bearer] works"},
    {"Cookie: session=abcdef123; theme=dark\nx", "Cookie: [redacted:cookie]\nx"},
    {"Set-Cookie: sid=0a1b2c3d4e; Path=/", "Set-Cookie: [redacted:cookie]"},
    {"password=hunter2", "password=[redacted:password]"},
    {"password: hunter2 and more", "password: [redacted:password] and more"},
    {"DB_PASSWORD=correcthorse\n", "DB_PASSWORD=[redacted:password]\n"},
    {"password = \"correct horse battery\"", "password = \"[redacted:password]\""},
    {"'passwd': 'swordfish',", "'passwd': '[redacted:password]',"},
    {"{\"password\":\"p4ss\"}", "{\"password\":\"[redacted:password]\"}"},
    {"<password>s3cr3tpw</password>", "<password>[redacted:password]</password>"},
    {"api_key=abcd1234efgh", "api_key=[redacted:api-key]"},
    {"?token=0123456789abcdef&x=1", "?token=[redacted:token]&x=1"},
    {"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
     "aws_secret_access_key = [redacted:access-key]"},
    {"client_secret: \"0123abcd\"", "client_secret: \"[redacted:secret]\""},
    {"const apiKey = 'abcdef';", "const apiKey = '[redacted:api-key]';"},
    {"AccountKey=" A36 "==;End", "AccountKey=[redacted:access-key];End"},
    {"postgres://app:s3cret@db:5432/x", "postgres://app:[redacted:url-credential]@db:5432/x"},
    {"https://u:p@ss@host/", "https://u:[redacted:url-credential]@host/"},
    {"https://" A20 "@host/", "https://[redacted:url-credential]@host/"},
    {"a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA" A36 "\n" A36
     "\n-----END RSA PRIVATE KEY-----\nb",
     "a\n[redacted:private-key]\nb"},
    {"\"-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG" A20
     "\\n-----END PRIVATE KEY-----\\n\",",
     "\"[redacted:private-key]\\n\","},
    {"-----BEGIN OPENSSH PRIVATE KEY-----\n" A36 A36 " cut here", "[redacted:private-key]"},
    /* an escape in front of a token is not a letter in front of it */
    {"\\nsk-" A20, "\\n[redacted:api-key]"},
    {"%3Dghp_" A36, "%3D[redacted:github-token]"},
    {"\\u0022ghp_" A36, "\\u0022[redacted:github-token]"},
    /* neighbours and overlaps */
    {"ghp_" A36 " ghp_" A36, "[redacted:github-token] [redacted:github-token]"},
    {"token=ghp_" A36, "token=[redacted:token]"},
    {"password=Bearer " A20, "password=[redacted:password] [redacted:bearer]"},
};

static const char *const negatives[] = {
    "",
    "a",
    "The risk-management-of-long-running-tasks is described below.",
    "task-sk-1 and desk-1234567890123456789012",
    "sk-short1",
    "sk-SK-only-letters-and-dashes-here-no",
    "ghp_tooshort",
    "npm_config_registry=https://registry.example.org/",
    "npm_lifecycle_event",
    "hf_hub_download(repo_id)",
    "pypi-publish-action-with-a-very-long-name",
    "AKIAshort",
    "AKIAIOSFODNN7EXAMPLEX1",
    "xAKIAIOSFODNN7EXAMPLE",
    "AIzaShort",
    "eyJ is how base64 of {\" begins",
    "eyJuYW1lIjoidGVzdCJ9",
    "SG.1.2.3",
    "Bearer token authentication",
    "the Authorization header",
    "Authorization: required",
    "Cookie: none",
    "Bearer authentication",
    "max_tokens=100000, promptTokens: 12345678, total_tokens = 99999999",
    "token count: 12",
    "the password: is asked for",
    "password: string; token: string; secret?: boolean",
    "const token = getToken(request);",
    "token=$TOKEN password=${PASSWORD} secret=$(cat x) api_key=<your key>",
    "password=\"\" token='' secret=",
    "password: ********",
    "password=null token=None secret: undefined",
    "PASSWORD=%s",
    "def f(token: str = None, password: Optional[str] = None)",
    "if (token == other) secret = value;",
    "tokenizer = Tokenizer(vocab='abcdef123')",
    "secret_name = \"prod/database\"",
    "https://example.org:8080/a@b",
    "ssh://git@github.com/x/y.git",
    "http://[::1]:8080/",
    "mailto:somebody@example.org",
    "std::vector<int>::iterator://",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0B\n-----END PUBLIC KEY-----",
    "a line -----BEGIN PRIVATE KEY----- starts a key",
    "commit 3f1c9a0e4b7d2c8f6a5e1b0d9c8f7a6e5d4c3b2a",
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    "550e8400-e29b-41d4-a716-446655440000",
    "password=[redacted:password] Bearer [redacted:bearer]",
    "\xff\xfe\x00 raw bytes \x80",
};

static void test_shapes(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    for (size_t i = 0; i < BR_ARRAY_LEN(positives); i++)
        check_all_ways(r, positives[i].text, strlen(positives[i].text), positives[i].want);
    br_redact_free(&r);
}

static void test_ordinary_text_is_untouched(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    for (size_t i = 0; i < BR_ARRAY_LEN(negatives); i++)
        check_all_ways(r, negatives[i], strlen(negatives[i]), negatives[i]);
    br_redact_free(&r);
}

static void test_twice_is_once(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    for (size_t i = 0; i < BR_ARRAY_LEN(positives); i++) {
        char *again = redact(r, positives[i].want, strlen(positives[i].want));
        assert_string_equal(again, positives[i].want);
        free(again);
    }
    br_redact_free(&r);
}

/* ---- secrets ---- */

static const char *const secrets[] = {
    "hunter",
    "s3cr3t-Value/with+chars=",
    "tab\tquote\"back\\slash/nl\nend",
    "p\xc3\xa4ssw\xc3\xb6rt-\xe2\x82\xac",
    "aaaaaaaaaaaaaaaa",
    "abababababababababab",
    "%41%42%43-literal",
    "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "two words here",
};

static struct br_redact *with_secret(const char *value, size_t n)
{
    struct br_redact *r = br_redact_new();
    assert_non_null(r);
    assert_int_equal(br_redact_secret(r, "KEY", value, n, NULL), 0);
    return r;
}

static void test_secret_raw(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(secrets); i++) {
        char text[512];
        struct br_redact *r = with_secret(secrets[i], strlen(secrets[i]));
        snprintf(text, sizeof(text), "<%s|%s>", secrets[i], secrets[i]);
        check_all_ways(r, text, strlen(text), "<[redacted:KEY]|[redacted:KEY]>");
        snprintf(text, sizeof(text), "x%sy", secrets[i]);
        check_all_ways(r, text, strlen(text), "x[redacted:KEY]y");
        br_redact_free(&r);
    }
}

static void percent(char *dst, const char *s, const char *keep, bool upper)
{
    for (; *s; s++)
        if (*keep && strchr(keep, *s))
            *dst++ = *s;
        else
            dst += sprintf(dst, upper ? "%%%02X" : "%%%02x", (unsigned char)*s);
    *dst = 0;
}

static void test_secret_percent_encoded(void **state)
{
    (void)state;
    static const char *const keeps[] = {
        "",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/!'()*",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(secrets); i++) {
        struct br_redact *r = with_secret(secrets[i], strlen(secrets[i]));
        for (size_t k = 0; k < BR_ARRAY_LEN(keeps); k++) {
            for (int upper = 0; upper < 2; upper++) {
                char enc[512], text[1024];
                percent(enc, secrets[i], keeps[k], upper);
                snprintf(text, sizeof(text), "?q=%s&r", enc);
                check_all_ways(r, text, strlen(text), "?q=[redacted:KEY]&r");
            }
        }
        br_redact_free(&r);
    }
}

static void test_secret_in_form_encoding(void **state)
{
    (void)state;
    struct br_redact *r = with_secret("two words/here", 14);
    check_all_ways(r, "q=two+words%2Fhere&", 19, "q=[redacted:KEY]&");
    br_redact_free(&r);
}

static void test_secret_json_escaped(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(secrets); i++) {
        struct br_redact *r = with_secret(secrets[i], strlen(secrets[i]));
        size_t flags[] = {JSON_ENCODE_ANY, JSON_ENCODE_ANY | JSON_ESCAPE_SLASH,
                          JSON_ENCODE_ANY | JSON_ENSURE_ASCII};
        json_t *v = json_string(secrets[i]);
        for (size_t k = 0; k < BR_ARRAY_LEN(flags); k++) {
            char *text = json_dumps(v, flags[k]);
            check_all_ways(r, text, strlen(text), "\"[redacted:KEY]\"");
            free(text);
        }
        /* everything as \u, and then some */
        char text[2048] = "[\"\\n\\", *p = text + strlen(text) - 1;
        for (const char *s = secrets[i]; *s && (unsigned char)*s < 0x80; s++)
            p += sprintf(p, "\\u%04x", (unsigned char)*s);
        if (p - text == (long)(4 + 6 * strlen(secrets[i])))
            check_all_ways(r, text, strlen(text), "[\"\\n[redacted:KEY]");
        json_decref(v);
        br_redact_free(&r);
    }
}

static void test_secret_in_hex(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(secrets); i++) {
        char hex[512], text[600];
        size_t n = strlen(secrets[i]);
        struct br_redact *r = with_secret(secrets[i], n);
        sodium_bin2hex(hex, sizeof(hex), (const uint8_t *)secrets[i], n);
        snprintf(text, sizeof(text), "0x%s.", hex);
        check_all_ways(r, text, strlen(text), "0x[redacted:KEY].");
        for (char *c = hex; *c; c++)
            *c = (char)(*c >= 'a' ? *c - 32 : *c);
        snprintf(text, sizeof(text), ":%s.", hex);
        check_all_ways(r, text, strlen(text), ":[redacted:KEY].");
        br_redact_free(&r);
    }
}

/* In base64 the characters at the borders also depend on the neighbours; what must be gone is every
 * character that depends on the secret alone. */
static void check_base64(const struct br_redact *r, const char *secret, unsigned lead,
                         unsigned trail, int variant)
{
    uint8_t plain[512];
    char enc[1024], *got;
    size_t n = strlen(secret), bits = 8 * (lead + n);
    memset(plain, 0xa5, sizeof(plain));
    memcpy(plain + lead, secret, n);
    sodium_bin2base64(enc, sizeof(enc), plain, lead + n + trail, variant);
    got = redact(r, enc, strlen(enc));
    size_t first = (8 * lead + 5) / 6, last = bits / 6;
    char inner[1024];
    snprintf(inner, sizeof(inner), "%.*s", (int)(last - first), enc + first);
    if (!strstr(got, "[redacted:KEY]") || strstr(got, inner))
        fail_msg("'%s' with %u before and %u behind: '%s' became '%s'", secret, lead, trail, enc,
                 got);
    /* what is left is at most a character on each side, and what surrounds */
    assert_true(strlen(got) <= strlen("[redacted:KEY]") + first + (strlen(enc) - last));
    check_all_ways(r, enc, strlen(enc), got);
    free(got);
}

static void test_secret_in_base64(void **state)
{
    (void)state;
    static const int variants[] = {
        sodium_base64_VARIANT_ORIGINAL, sodium_base64_VARIANT_ORIGINAL_NO_PADDING,
        sodium_base64_VARIANT_URLSAFE, sodium_base64_VARIANT_URLSAFE_NO_PADDING};
    for (size_t i = 0; i < BR_ARRAY_LEN(secrets); i++) {
        struct br_redact *r = with_secret(secrets[i], strlen(secrets[i]));
        for (unsigned lead = 0; lead < 6; lead++)
            for (unsigned trail = 0; trail < 4; trail++)
                for (size_t v = 0; v < BR_ARRAY_LEN(variants); v++)
                    check_base64(r, secrets[i], lead, trail, variants[v]);
        br_redact_free(&r);
    }
}

static void test_secret_alone_in_base64_is_gone(void **state)
{
    (void)state;
    struct br_redact *r = with_secret("s3cr3t-1", 8);
    check_all_ways(r, "czNjcjN0LTE=", 12, "[redacted:KEY]=");
    br_redact_free(&r);
}

static void test_long_secret(void **state)
{
    (void)state;
    char *secret = malloc(BR_REDACT_SECRET_MAX + 1), *text = malloc(4 * BR_REDACT_SECRET_MAX);
    for (unsigned i = 0; i < BR_REDACT_SECRET_MAX; i++)
        secret[i] = (char)('!' + (i * 7919u + i / 91u) % 90u);
    secret[BR_REDACT_SECRET_MAX] = 0;
    struct br_redact *r = with_secret(secret, BR_REDACT_SECRET_MAX);
    snprintf(text, 4 * BR_REDACT_SECRET_MAX, "<%s>", secret);
    char *got = redact(r, text, strlen(text));
    assert_string_equal(got, "<[redacted:KEY]>");
    free(got);
    got = redact_chunks(r, text, strlen(text), 1, 1);
    assert_string_equal(got, "<[redacted:KEY]>");
    free(got);
    for (unsigned lead = 0; lead < 3; lead++) {
        uint8_t *plain = calloc(1, BR_REDACT_SECRET_MAX + 8);
        memcpy(plain + lead, secret, BR_REDACT_SECRET_MAX);
        sodium_bin2base64(text, 4 * BR_REDACT_SECRET_MAX, plain, BR_REDACT_SECRET_MAX + lead,
                          sodium_base64_VARIANT_ORIGINAL);
        got = redact(r, text, strlen(text));
        assert_true(strlen(got) < 32);
        free(got);
        free(plain);
    }
    br_redact_free(&r);
    free(secret);
    free(text);
}

static void test_short_secret_is_a_word(void **state)
{
    (void)state;
    struct br_redact *r = with_secret("EMPTY", 5);
    check_all_ways(r, "key EMPTY, NOT_EMPTY EMPTYNESS (EMPTY)", 38,
                   "key [redacted:KEY], NOT_EMPTY EMPTYNESS ([redacted:KEY])");
    br_redact_free(&r);
}

static void test_several_secrets(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    assert_int_equal(br_redact_secret(r, "SHORT", "abcdefgh", 8, NULL), 0);
    assert_int_equal(br_redact_secret(r, "LONG", "xxabcdefghyy", 12, NULL), 0);
    assert_int_equal(br_redact_secret(r, "bad name!", "zzzzzz999", 9, NULL), 0);
    check_all_ways(r, "1abcdefgh2xxabcdefghyy3xxabcdefghy4zzzzzz999", 44,
                   "1[redacted:SHORT]2[redacted:LONG]3xx[redacted:SHORT]y4[redacted:bad_name_]");
    br_redact_free(&r);
}

static void test_secret_across_a_shape(void **state)
{
    (void)state;
    struct br_redact *r = with_secret("KEYPART/and/more", 16);
    /* the run of the token ends at '/', the secret does not */
    check_all_ways(r, "ghp_" A20 "KEYPART/and/more!", 4 + 20 + 17, "[redacted:github-token]!");
    br_redact_free(&r);
}

static void test_secret_that_comes_later(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    struct br_buf out = BR_BUF_INIT(MIB);
    struct br_redact_stream *s = br_redact_stream_new(r);
    assert_int_equal(
        br_redact_stream_feed(s, "one late-secret-1 password=hunter2abc", 37, &out, NULL), 0);
    assert_int_equal(br_redact_secret(r, "KEY", "late-secret-1", 13, NULL), 0);
    assert_int_equal(br_redact_stream_feed(s, "def two late-sec", 16, &out, NULL), 0);
    assert_int_equal(br_redact_stream_feed(s, "ret-1 three", 11, &out, NULL), 0);
    assert_int_equal(br_redact_stream_end(s, &out, NULL), 0);
    assert_string_equal(br_buf_cstr(&out), "one late-secret-1 password=[redacted:password] two "
                                           "[redacted:KEY] three");
    br_redact_stream_free(&s);
    br_buf_free(&out);
    br_redact_free(&r);
}

/* ---- limits ---- */

static void test_secret_limits(void **state)
{
    (void)state;
    static char big[BR_REDACT_SECRET_MAX + 1];
    struct br_redact *r = br_redact_new();
    struct br_err err = {.code = BR_OK};
    memset(big, 'x', sizeof(big));
    assert_int_equal(br_redact_secret(r, "K", "", 0, &err), -BR_E_REDACTION_FAILED);
    assert_int_equal(br_redact_secret(r, "K", big, sizeof(big), &err), -BR_E_REDACTION_FAILED);
    assert_int_equal(br_redact_secret(r, "K", big, sizeof(big) - 1, &err), 0);
    br_redact_free(&r);
    r = br_redact_new();
    for (unsigned i = 0; i < BR_REDACT_SECRETS_MAX; i++) {
        char value[32];
        snprintf(value, sizeof(value), "secret-number-%u", i);
        assert_int_equal(br_redact_secret(r, "K", value, strlen(value), &err), 0);
    }
    assert_int_equal(br_redact_secret(r, "K", "another-one", 11, &err), -BR_E_REDACTION_FAILED);
    char *got = redact(r, "secret-number-31 another-one", 28);
    assert_string_equal(got, "[redacted:K] another-one");
    free(got);
    br_redact_free(&r);
}

static void test_total_limit(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    char value[1024];
    for (unsigned i = 0; i < BR_REDACT_SECRET_TOTAL_MAX / sizeof(value); i++) {
        memset(value, (int)('a' + i), sizeof(value));
        assert_int_equal(br_redact_secret(r, "K", value, sizeof(value), NULL), 0);
    }
    assert_int_equal(br_redact_secret(r, "K", "x", 1, NULL), -BR_E_REDACTION_FAILED);
    br_redact_free(&r);
}

static void test_output_limit_is_an_error(void **state)
{
    (void)state;
    struct br_redact *r = br_redact_new();
    struct br_err err = {.code = BR_OK};
    struct br_buf out = BR_BUF_INIT(9);
    assert_int_equal(br_redact_text(r, "123456789", 9, &out, &err), 0);
    br_buf_reset(&out);
    assert_int_equal(br_redact_text(r, "1234567890", 10, &out, &err), -BR_E_REDACTION_FAILED);
    br_buf_free(&out);
    br_redact_free(&r);
}

static void test_held_back_is_bounded(void **state)
{
    (void)state;
    static const char *const openings[] = {"sk-",
                                           "eyJ",
                                           "https://user:",
                                           "password = \"",
                                           "ghp_",
                                           "-----BEGIN PRIVATE KEY-----\n",
                                           "Authorization: Bearer "};
    char chunk[64];
    memset(chunk, 'a', sizeof(chunk));
    for (size_t i = 0; i < BR_ARRAY_LEN(openings); i++) {
        struct br_redact *r = with_secret("some-secret-value", 17);
        struct br_redact_stream *s = br_redact_stream_new(r);
        struct br_buf out = BR_BUF_INIT(MIB);
        br_redact_stream_feed(s, openings[i], strlen(openings[i]), &out, NULL);
        for (int k = 0; k < 200; k++) {
            assert_int_equal(br_redact_stream_feed(s, chunk, sizeof(chunk), &out, NULL), 0);
            assert_true(br_redact_stream_held(s) <= BR_REDACT_LOOKAHEAD_MAX + 64);
        }
        br_redact_stream_free(&s);
        br_buf_free(&out);
        br_redact_free(&r);
    }
}

/* ---- time ---- */

/* Microseconds of processor time for n bytes of a repeated piece, the best of three. */
static uint64_t timed(const struct br_redact *r, const char *piece, size_t n, bool chunks)
{
    uint64_t best = UINT64_MAX;
    size_t len = strlen(piece);
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++)
        text[i] = piece[i % len];
    for (int k = 0; k < 3; k++) {
        clock_t start = clock();
        free(chunks ? redact_chunks(r, text, n, 100, 100) : redact(r, text, n));
        uint64_t took = (uint64_t)(clock() - start) * 1000000u / CLOCKS_PER_SEC;
        best = took < best ? took : best;
    }
    free(text);
    return best;
}

static void test_no_input_makes_it_slow(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "a",
        "%",
        "\\",
        "-",
        "sk-",
        "-sk-",
        "sk-a1",
        " sk-abc",
        "eyJ",
        "-eyJ",
        ".eyJa.",
        "://",
        "://a:",
        "://a:b@",
        "password",
        "password=",
        "password=\"",
        "password=\\\"",
        "token: ",
        "Bearer ",
        "Bearer a1",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAA",
        "SG.",
        "SG.aaaaaaaaaaaaaaaaaaaa.",
        "%6",
        "%61",
        "\\u006",
        "\\u0061",
        "\\\\",
        "%25",
        "AKIA",
        "Authorization: Bearer ",
        "cookie: a=",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
        "Cookie",
        "ghp_",
        " ghp_",
    };
    struct br_redact *r = br_redact_new();
    char periodic[64];
    memset(periodic, 'a', sizeof(periodic));
    assert_int_equal(br_redact_secret(r, "A", periodic, sizeof(periodic), NULL), 0);
    periodic[63] = 'b';
    assert_int_equal(br_redact_secret(r, "B", periodic, sizeof(periodic), NULL), 0);
    memset(periodic, '%', sizeof(periodic));
    assert_int_equal(br_redact_secret(r, "C", periodic, sizeof(periodic), NULL), 0);
    memset(periodic, '\\', sizeof(periodic));
    assert_int_equal(br_redact_secret(r, "D", periodic, sizeof(periodic), NULL), 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(pieces); i++) {
        for (int chunks = 0; chunks < 2; chunks++) {
            /* eight times as much may take at most thirty times as long */
            uint64_t one = timed(r, pieces[i], 32 * 1024, chunks),
                     eight = timed(r, pieces[i], 256 * 1024, chunks);
            if (eight > 30 * one + 20000)
                fail_msg("'%s': %llu us for 32 KiB, %llu us for 256 KiB", pieces[i],
                         (unsigned long long)one, (unsigned long long)eight);
            if (eight > 2000000)
                fail_msg("'%s': %llu us for 256 KiB", pieces[i], (unsigned long long)eight);
        }
    }
    br_redact_free(&r);
}

static void test_bench_runs(void **state)
{
    (void)state;
    double rate = 0;
    assert_int_equal(br_bench_redact(&rate), 0);
    assert_true(rate > 0);
#if defined(__OPTIMIZE__) && !defined(BR_SANITIZED)
    if (rate < 100)
        fail_msg("redaction runs at %.0f MB/s, less than 100", rate);
#endif
}

static void test_brief_never_grows(void **state)
{
    (void)state;
    struct br_redact *r = with_secret("known-secret", 12);
    for (size_t i = 0; i < BR_ARRAY_LEN(positives); i++) {
        struct br_buf out = BR_BUF_INIT(MIB);
        size_t n = strlen(positives[i].text);
        assert_int_equal(br_redact_text_brief(r, positives[i].text, n, &out, NULL), 0);
        assert_true(out.len <= n);
        assert_non_null(memchr(out.data, '*', out.len));
        br_buf_free(&out);
    }
    json_t *v = json_loads("{\"password\":\"a\",\"x\":\"known-secret!\"}", 0, NULL);
    json_t *safe = br_redact_json(r, v, true, NULL);
    assert_string_equal(json_string_value(json_object_get(safe, "password")), "*");
    assert_string_equal(json_string_value(json_object_get(safe, "x")), "*!");
    json_decref(safe);
    json_decref(v);
    br_redact_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_ordinary_text_is_untouched),
        cmocka_unit_test(test_twice_is_once),
        cmocka_unit_test(test_secret_raw),
        cmocka_unit_test(test_secret_percent_encoded),
        cmocka_unit_test(test_secret_in_form_encoding),
        cmocka_unit_test(test_secret_json_escaped),
        cmocka_unit_test(test_secret_in_hex),
        cmocka_unit_test(test_secret_in_base64),
        cmocka_unit_test(test_secret_alone_in_base64_is_gone),
        cmocka_unit_test(test_long_secret),
        cmocka_unit_test(test_short_secret_is_a_word),
        cmocka_unit_test(test_several_secrets),
        cmocka_unit_test(test_secret_across_a_shape),
        cmocka_unit_test(test_secret_that_comes_later),
        cmocka_unit_test(test_secret_limits),
        cmocka_unit_test(test_total_limit),
        cmocka_unit_test(test_output_limit_is_an_error),
        cmocka_unit_test(test_held_back_is_bounded),
        cmocka_unit_test(test_brief_never_grows),
        cmocka_unit_test(test_no_input_makes_it_slow),
        cmocka_unit_test(test_bench_runs),
    };
    return cmocka_run_group_tests_name("redact", tests, NULL, NULL);
}
