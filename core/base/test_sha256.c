/*
 * SHA-256 against the examples of FIPS 180-4 and, for every length around the edges of a block and
 * every way to cut it in two, against libsodium.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <sodium/crypto_hash_sha256.h>

#include "base/base.h"

static void hex_of(const char *text, size_t repeat, char out[65])
{
    struct br_sha256 s;
    uint8_t sum[32];
    br_sha256_init(&s);
    for (size_t i = 0; i < repeat; i++)
        br_sha256_put(&s, text, strlen(text));
    br_sha256_end(&s, sum);
    for (unsigned i = 0; i < 32; i++)
        snprintf(out + (size_t)2 * i, 3, "%02x", sum[i]);
}

static void test_examples(void **state)
{
    static const struct {
        const char *text;
        size_t repeat;
        const char *sum;
    } examples[] = {
        {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    char hex[65];
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(examples); i++) {
        hex_of(examples[i].text, examples[i].repeat, hex);
        assert_string_equal(hex, examples[i].sum);
    }
}

static void test_every_length(void **state)
{
    uint8_t text[200], want[32], got[32];
    (void)state;
    for (unsigned i = 0; i < sizeof(text); i++)
        text[i] = (uint8_t)(i * 7 + 3);
    for (size_t n = 0; n <= sizeof(text); n++) {
        crypto_hash_sha256(want, text, n);
        for (size_t cut = 0; cut <= n; cut++) {
            struct br_sha256 s;
            br_sha256_init(&s);
            br_sha256_put(&s, text, cut);
            br_sha256_put(&s, text + cut, n - cut);
            br_sha256_end(&s, got);
            assert_memory_equal(got, want, sizeof(want));
        }
    }
}

static int hardware(void **state)
{
    (void)state;
    br_sha256_fast(true);
    return 0;
}

static int software(void **state)
{
    (void)state;
    br_sha256_fast(false);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_examples, hardware), /* where there is any */
        cmocka_unit_test_setup(test_every_length, hardware),
        cmocka_unit_test_setup(test_examples, software),
        cmocka_unit_test_setup(test_every_length, software),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
