/*
 * Frames, without sockets: what is read is what was sent however it is cut, what no frame may be is
 * refused with its close code, and every limit at N and at N + 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ws/ws.h"

static const struct br_ws_limits server = {1024 * 1024, 1024, true};
static const struct br_ws_limits client = {1024 * 1024, 1024, false};

/*
 * What a stream says, as one text: "T5:hello" for a text message, B, P (ping), p (pong),
 * "C1000:bye"; "!1002" for a refusal; "..." if a message is under way at its end. Pieces of `step`
 * bytes.
 */
static void transcript(struct br_buf *out, const struct br_ws_limits *l, const void *p, size_t n,
                       size_t step)
{
    struct br_ws_reader r;
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, p, n);
    br_buf_reset(out);
    br_ws_reader_init(&r, l);
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += step) {
        uint8_t *q = copy + at;
        size_t left = n - at < step ? n - at : step;
        struct br_ws_message m;
        unsigned code = 0;
        struct br_err err = {.code = BR_OK};
        while ((rc = br_ws_read(&r, l, &q, &left, &m, &code, &err)) > 0) {
            switch (m.op) {
            case BR_WS_CLOSE:
                br_buf_printf(out, "C%u:", m.close_code);
                break;
            default:
                br_buf_printf(out, "%c%zu:", " TB      Pp"[m.op], m.n);
            }
            br_buf_put(out, m.data, m.n);
            br_buf_put(out, " ", 1);
        }
        if (rc < 0) {
            assert_true(err.text[0]);
            assert_int_equal(-rc, err.code);
            br_buf_printf(out, "!%u", code);
        } else {
            assert_int_equal(left, 0);
        }
    }
    if (rc == 0 && br_ws_reader_open(&r))
        br_buf_printf(out, "...");
    br_ws_reader_free(&r);
    free(copy);
}

static void check(const struct br_ws_limits *l, const void *p, size_t n, const char *expected)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(4 * 1024 * 1024);
    for (size_t step = 1; step <= n; step = step < 40 || step == n ? step + 1 : n) {
        transcript(&out, l, p, n, step);
        assert_string_equal(br_buf_cstr(&out), expected);
    }
}
/* What a server sends: not masked. */
#define CLIENT_READS(bytes, expected) check(&client, bytes, sizeof(bytes) - 1, expected)
#define SERVER_READS(bytes, expected) check(&server, bytes, sizeof(bytes) - 1, expected)

/* RFC 6455 section 5.7 */
static void test_the_examples(void **state)
{
    (void)state;
    CLIENT_READS("\x81\x05Hello", "T5:Hello ");
    SERVER_READS("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "T5:Hello ");
    CLIENT_READS("\x01\x03Hel\x80\x02lo", "T5:Hello ");
    CLIENT_READS("\x89\x05Hello", "P5:Hello ");
    SERVER_READS("\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "p5:Hello ");
}

static void test_what_is_put_is_read(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 125, 126, 127, 65535, 65536, 1024 * 1024};
    for (unsigned masked = 0; masked < 2; masked++)
        for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++) {
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * 1024 * 1024),
                                         want = BR_BUF_INIT(2 * 1024 * 1024);
            char *text = malloc(sizes[i] + 1);
            assert_non_null(text);
            for (size_t k = 0; k < sizes[i]; k++)
                text[k] = (char)('a' + k % 26);
            br_ws_put(&b, BR_WS_TEXT, text, sizes[i], masked);
            br_ws_put(&b, BR_WS_PING, text, sizes[i] < 125 ? sizes[i] : 125, masked);
            br_ws_put_close(&b, 1001, "bye", masked);
            assert_false(b.failed);
            br_buf_printf(&want, "T%zu:%.*s P%zu:%.*s C1001:bye ", sizes[i], (int)sizes[i], text,
                          sizes[i] < 125 ? sizes[i] : 125, sizes[i] < 125 ? (int)sizes[i] : 125,
                          text);
            BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(2 * 1024 * 1024);
            for (size_t step = sizes[i] < 1000 ? 1 : 4096; step < 2 * b.len; step = step * 5 + 3) {
                transcript(&out, masked ? &server : &client, b.data, b.len, step);
                assert_string_equal(br_buf_cstr(&out), br_buf_cstr(&want));
            }
            free(text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_examples),
        cmocka_unit_test(test_what_is_put_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
