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

/* ---- what a frame may not be ---- */

/* A frame as its parts say, right or wrong; masked with a fixed mask if `bits` has 0x80. */
static void put_raw(struct br_buf *b, unsigned first, unsigned bits, const void *p, size_t n)
{
    static const uint8_t mask[4] = {0x12, 0x34, 0xfe, 0x80};
    br_buf_put_u8(b, (uint8_t)first);
    br_buf_put_u8(b, (uint8_t)(bits | (n < 126 ? n : 126)));
    if (n >= 126) {
        br_buf_put_u8(b, (uint8_t)(n >> 8));
        br_buf_put_u8(b, (uint8_t)n);
    }
    if (bits & 0x80)
        br_buf_put(b, mask, 4);
    size_t at = b->len;
    br_buf_put(b, p, n);
    if (bits & 0x80)
        br_ws_mask(b->data + at, n, mask, 0);
}

#define SERVER_READS_RAW(expected, ...)                                                            \
    do {                                                                                           \
        BR_CLEANUP_BUF struct br_buf raw_ = BR_BUF_INIT(1024 * 1024);                              \
        __VA_ARGS__;                                                                               \
        check(&server, raw_.data, raw_.len, expected);                                             \
    } while (0)
#define FRAME(first, text) put_raw(&raw_, first, 0x80, text, sizeof(text) - 1)

static void test_reserved_bits(void **state)
{
    (void)state;
    static const uint8_t ops[] = {0, 1, 2, 8, 9, 10};
    for (unsigned i = 0; i < BR_ARRAY_LEN(ops); i++)
        for (unsigned rsv = 1; rsv < 8; rsv++) {
            /* what came before it was read, what comes after it is not */
            SERVER_READS_RAW("T5:hello !1002", FRAME(0x81, "hello"),
                             FRAME(0x80 | rsv << 4 | ops[i], "hello"), FRAME(0x81, "hello"));
            SERVER_READS_RAW("!1002", FRAME(rsv << 4 | ops[i], ""));
        }
}

static void test_reserved_opcodes(void **state)
{
    (void)state;
    for (unsigned op = 3; op < 16; op++)
        for (unsigned fin = 0; fin < 2; fin++) {
            if (op >= 8 && op <= 10)
                continue;
            SERVER_READS_RAW("T1:a !1002", FRAME(0x81, "a"), FRAME(fin << 7 | op, ""),
                             FRAME(0x81, "b"));
            SERVER_READS_RAW("!1002", FRAME(fin << 7 | op, "with a payload"));
            SERVER_READS_RAW("!1002", FRAME(0x01, "a"), FRAME(fin << 7 | op, "b"));
        }
}

static void test_masking(void **state)
{
    (void)state;
    /* found in the second byte, before anything of the payload has come */
    SERVER_READS("\x81\x05Hello", "!1002");
    SERVER_READS("\x81\x05", "!1002");
    SERVER_READS("\x89\x00", "!1002");
    SERVER_READS("\x88\x02\x03\xe8", "!1002");
    SERVER_READS("\x81\x80\x00\x00\x00\x00\x80\x00", "T0: !1002");
    CLIENT_READS("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "!1002");
    CLIENT_READS("\x81\x80", "!1002");
    /* a mask of zeros is one */
    SERVER_READS("\x81\x85\x00\x00\x00\x00Hello", "T5:Hello ");
}

static void test_lengths_have_one_form(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024 * 1024);
    static const uint64_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, 1024 * 1024};
    for (unsigned i = 0; i < BR_ARRAY_LEN(lengths); i++)
        for (unsigned bytes = 2; bytes <= 8; bytes += 6) {
            uint64_t v = lengths[i];
            if (bytes == 2 && v > 0xffff)
                continue;
            bool right = bytes == 2 ? v > 125 : v > 0xffff;
            br_buf_reset(&b);
            br_buf_put_u8(&b, 0x82);
            br_buf_put_u8(&b, bytes == 2 ? 126 : 127);
            for (unsigned k = bytes; k > 0; k--)
                br_buf_put_u8(&b, (uint8_t)(v >> 8 * (k - 1)));
            check(&client, b.data, b.len, right ? "..." : "!1002");
        }
    CLIENT_READS("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", "!1002");
    CLIENT_READS("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "!1002");
    CLIENT_READS("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", "!1009");
}

static void test_control_frames(void **state)
{
    (void)state;
    char most[126];
    memset(most, 'x', sizeof(most));
    for (unsigned op = 8; op <= 10; op++) {
        /* fragmented, or too long: found in the first two bytes */
        SERVER_READS_RAW("!1002", FRAME(op, ""));
        SERVER_READS_RAW("!1002", FRAME(op, "a"), FRAME(0x80, "b"));
        SERVER_READS_RAW("!1002", put_raw(&raw_, 0x80 | op, 0x80, most, 126));
        SERVER_READS_RAW("!1002", FRAME(0x80 | op, ""), raw_.data[1] = 0xff);
        SERVER_READS_RAW("!1002", FRAME(0x01, "a"), FRAME(op, "b"));
    }
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(4096);
    br_buf_printf(&want, "P125:%.125s p125:%.125s P0: ", most, most);
    SERVER_READS_RAW(br_buf_cstr(&want), put_raw(&raw_, 0x89, 0x80, most, 125),
                     put_raw(&raw_, 0x8a, 0x80, most, 125), FRAME(0x89, ""));
    /* binary, not text: a ping is not checked for UTF-8 */
    SERVER_READS_RAW("P3:\xff\xfe\xfd ", FRAME(0x89, "\xff\xfe\xfd"));
    /* pongs that nobody asked for, ten pings in one piece */
    SERVER_READS_RAW("p2:no p0: P0: ", FRAME(0x8a, "no"), FRAME(0x8a, ""), FRAME(0x89, ""));
    SERVER_READS_RAW("P1:0 P1:1 P1:2 P1:3 P1:4 P1:5 P1:6 P1:7 P1:8 P1:9 ", FRAME(0x89, "0"),
                     FRAME(0x89, "1"), FRAME(0x89, "2"), FRAME(0x89, "3"), FRAME(0x89, "4"),
                     FRAME(0x89, "5"), FRAME(0x89, "6"), FRAME(0x89, "7"), FRAME(0x89, "8"),
                     FRAME(0x89, "9"));
}

/* ---- fragments ---- */

static void test_fragments(void **state)
{
    (void)state;
    SERVER_READS_RAW("T10:fragmented ", FRAME(0x01, "frag"), FRAME(0x80, "mented"));
    SERVER_READS_RAW("B10:fragmented ", FRAME(0x02, "frag"), FRAME(0x00, ""), FRAME(0x00, "ment"),
                     FRAME(0x80, "ed"));
    SERVER_READS_RAW("T0: ", FRAME(0x01, ""), FRAME(0x00, ""), FRAME(0x80, ""));
    SERVER_READS_RAW("T6:middle ", FRAME(0x01, ""), FRAME(0x00, "middle"), FRAME(0x80, ""));
    /* pings between them are answered at once, and the message goes on */
    SERVER_READS_RAW("P4:ping T4:abcd ", FRAME(0x01, "ab"), FRAME(0x89, "ping"), FRAME(0x80, "cd"));
    SERVER_READS_RAW("P0: p1:x P1:y T4:abcd T1:z ", FRAME(0x89, ""), FRAME(0x01, "a"),
                     FRAME(0x8a, "x"), FRAME(0x00, "bc"), FRAME(0x89, "y"), FRAME(0x80, "d"),
                     FRAME(0x81, "z"));
    /* a close between them ends the message */
    SERVER_READS_RAW("C1000:bye ...", FRAME(0x01, "ab"),
                     FRAME(0x88, "\x03\xe8"
                                 "bye"));
    /* nothing was begun, or something was */
    SERVER_READS_RAW("!1002", FRAME(0x80, "a"));
    SERVER_READS_RAW("!1002", FRAME(0x00, "a"), FRAME(0x80, "b"));
    SERVER_READS_RAW("T1:a !1002", FRAME(0x81, "a"), FRAME(0x80, "b"));
    SERVER_READS_RAW("T2:ab !1002", FRAME(0x01, "a"), FRAME(0x80, "b"), FRAME(0x80, "c"));
    SERVER_READS_RAW("!1002", FRAME(0x01, "a"), FRAME(0x81, "b"));
    SERVER_READS_RAW("!1002", FRAME(0x01, "a"), FRAME(0x02, "b"));
    SERVER_READS_RAW("P1:x !1002", FRAME(0x02, "a"), FRAME(0x89, "x"), FRAME(0x01, "b"));
    /* not complete */
    SERVER_READS_RAW("...", FRAME(0x01, "a"));
    SERVER_READS_RAW("T1:a ...", FRAME(0x81, "a"), FRAME(0x00 | 0x01, ""), FRAME(0x00, ""));
    SERVER_READS_RAW("T1:a ...", FRAME(0x81, "a"), br_buf_put_u8(&raw_, 0x81));
}

/* ---- close ---- */

static void test_close_codes(void **state)
{
    (void)state;
    SERVER_READS_RAW("C1005: ", FRAME(0x88, ""));
    SERVER_READS_RAW("!1002", FRAME(0x88, "\x03"));
    for (unsigned code = 0; code <= 0xffff; code++) {
        bool may = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
                   (code >= 3000 && code < 5000);
        uint8_t frame[] = {0x88, 2, (uint8_t)(code >> 8), (uint8_t)code}, *p = frame;
        size_t n = sizeof(frame);
        struct br_ws_reader r;
        struct br_ws_message m;
        struct br_err err;
        unsigned with = 0;
        br_ws_reader_init(&r, &client);
        int rc = br_ws_read(&r, &client, &p, &n, &m, &with, &err);
        assert_int_equal(rc, may ? 1 : -BR_E_PEER_PROTOCOL);
        assert_int_equal(may ? m.close_code : with, may ? code : 1002);
        br_ws_reader_free(&r);
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096), want = BR_BUF_INIT(4096);
    char most[125] = "\x03\xe8";
    memset(most + 2, 'r', 123);
    br_buf_printf(&want, "C1000:%.123s ", most + 2);
    put_raw(&b, 0x88, 0x80, most, 125);
    check(&server, b.data, b.len, br_buf_cstr(&want));
    SERVER_READS_RAW("C4999:\xce\xba\xe1\xbd\xb9 ", FRAME(0x88, "\x13\x87\xce\xba\xe1\xbd\xb9"));
    SERVER_READS_RAW("!1007", FRAME(0x88, "\x03\xe8\xce\xba\xe1"));
    SERVER_READS_RAW("!1007", FRAME(0x88, "\x03\xe8\xff"));
    SERVER_READS_RAW("T1:a !1007", FRAME(0x81, "a"), FRAME(0x88, "\x03\xe8\xed\xa0\x80"));
}

static void test_close_is_put(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    br_ws_put_close(&b, BR_WS_CLOSE_NO_STATUS, "not sent", false);
    assert_int_equal(b.len, 2);
    assert_memory_equal(b.data, "\x88\x00", 2);
    char reason[136];
    for (unsigned at = 119; at < 126; at++) { /* a character across the end is left out */
        memset(reason, 'a', 135);
        reason[135] = 0;
        memcpy(reason + at, "\xf0\x9f\x98\x80", 4);
        br_buf_reset(&b);
        br_ws_put_close(&b, 1001, reason, false);
        unsigned n = at > 119 && at < 123 ? at : 123;
        assert_int_equal(b.data[0], 0x88);
        assert_int_equal(b.data[1], n + 2);
        assert_int_equal(b.len, n + 4);
        assert_true(br_utf8_valid(b.data + 4, n));
    }
}

/* ---- UTF-8 ---- */

/* Can bytes follow that make it valid? */
static bool utf8_begins(const uint8_t *p, size_t n)
{
    static const uint8_t next[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf};
    uint8_t t[8];
    if (br_utf8_valid(p, n))
        return true;
    memcpy(t, p, n);
    for (unsigned a = 0; a < 6; a++)
        for (unsigned b = 0; b < 6; b++)
            for (unsigned c = 0; c < 6; c++) {
                t[n] = next[a], t[n + 1] = next[b], t[n + 2] = next[c];
                for (unsigned more = 1; more <= 3; more++)
                    if (br_utf8_valid(t, n + more))
                        return true;
            }
    return false;
}

/* Byte by byte in a message that does not end: refused exactly where no text goes on so. */
static void check_utf8(const uint8_t *p, size_t n)
{
    struct br_ws_reader r;
    br_ws_reader_init(&r, &client);
    struct br_ws_message m;
    unsigned code = 0;
    struct br_err err;
    uint8_t head[] = {0x01, 100}, *q = head;
    size_t left = 2;
    assert_int_equal(br_ws_read(&r, &client, &q, &left, &m, &code, &err), 0);
    for (size_t i = 0; i < n; i++) {
        uint8_t one = p[i];
        q = &one;
        left = 1;
        int rc = br_ws_read(&r, &client, &q, &left, &m, &code, &err);
        if (utf8_begins(p, i + 1)) {
            assert_int_equal(rc, 0);
            continue;
        }
        assert_int_equal(rc, -BR_E_PEER_PROTOCOL);
        assert_int_equal(code, 1007);
        break;
    }
    br_ws_reader_free(&r);
}

static void test_utf8_fails_at_its_byte(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                    0xc1, 0xc2, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xff};
    for (unsigned a = 0; a < 256; a++) {
        uint8_t t[4] = {(uint8_t)a};
        check_utf8(t, 1);
        for (unsigned b = 0; b < 256; b++) {
            t[1] = (uint8_t)b;
            if (utf8_begins(t, 1) && a >= 0x80)
                check_utf8(t, 2);
        }
    }
    for (unsigned a = 0; a < sizeof(bytes); a++)
        for (unsigned b = 0; b < sizeof(bytes); b++)
            for (unsigned c = 0; c < sizeof(bytes); c++) {
                uint8_t t[4] = {bytes[a], bytes[b], bytes[c], 0xbf};
                if (bytes[a] >= 0x80 && utf8_begins(t, 2))
                    check_utf8(t, 4);
            }
}

static void test_utf8_in_messages(void **state)
{
    (void)state;
    static const char *const good[] = {
        "Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!",
        "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",
        "\xf4\x8f\xbf\xbf",
        "\xef\xbf\xbe",
        "\xef\xbf\xbf",
        "\xed\x9f\xbf\xee\x80\x80",
        "12345678\xc2\x80"
        "12345678\xf0\x90\x80\x80"
        "1234567",
    };
    static const char *const bad[] = {
        "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"
        "edited",
        "\xf4\x90\x80\x80",
        "\xc0\xaf",
        "\xe0\x80\xaf",
        "\xf0\x80\x80\xaf",
        "\xf8\x88\x80\x80\x80",
        "\xfc\x84\x80\x80\x80\x80",
        "\xed\xbf\xbf",
        "\xed\xa0\x80\xed\xb0\x80",
        "\x80",
        "\xbf",
        "12345678\xff"
        "2345678",
        "\xce\xba\xe1\xbd", /* it ends inside of a character */
        "\xf0\x9f\x98",
        "\xe2",
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++) {
        BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(4096);
        size_t n = strlen(good[i]);
        br_buf_printf(&want, "T%zu:%s ", n, good[i]);
        SERVER_READS_RAW(br_buf_cstr(&want), put_raw(&raw_, 0x81, 0x80, good[i], n));
        for (size_t cut = 0; cut <= n; cut++) /* fragments may cut a character */
            SERVER_READS_RAW(br_buf_cstr(&want), put_raw(&raw_, 0x01, 0x80, good[i], cut),
                             put_raw(&raw_, 0x80, 0x80, good[i] + cut, n - cut));
    }
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        size_t n = strlen(bad[i]);
        SERVER_READS_RAW("!1007", put_raw(&raw_, 0x81, 0x80, bad[i], n));
        for (size_t cut = 0; cut <= n; cut++)
            SERVER_READS_RAW("!1007", put_raw(&raw_, 0x01, 0x80, bad[i], cut),
                             put_raw(&raw_, 0x80, 0x80, bad[i] + cut, n - cut));
        /* a binary message may have it */
        BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(4096);
        br_buf_printf(&want, "B%zu:%s ", n, bad[i]);
        SERVER_READS_RAW(br_buf_cstr(&want), put_raw(&raw_, 0x82, 0x80, bad[i], n));
    }
    /* what was left of one message says nothing about the next; pings do not disturb a character */
    SERVER_READS_RAW("P1:\xff T2:\xc2\xb5 T1:a ", FRAME(0x01, "\xc2"), FRAME(0x89, "\xff"),
                     FRAME(0x80, "\xb5"), FRAME(0x81, "a"));
}

/* ---- limits ---- */

static void test_message_limit(void **state)
{
    (void)state;
    static const struct br_ws_limits ten = {10, 1024, false};
    check(&ten,
          "\x81\x0a"
          "0123456789",
          12, "T10:0123456789 ");
    check(&ten, "\x81\x0b", 2, "!1009"); /* before its payload has come */
    check(&ten, "\x82\x7f\x00\x00\x00\x10\x00\x00\x00\x00", 10, "!1009");
    check(&ten,
          "\x01\x04"
          "0123"
          "\x00\x05"
          "45678"
          "\x80\x01"
          "9",
          16, "T10:0123456789 ");
    check(&ten,
          "\x01\x04"
          "0123"
          "\x00\x05"
          "45678"
          "\x80\x02",
          15, "!1009");
    check(&ten,
          "\x01\x0a"
          "0123456789"
          "\x80\x00",
          14, "T10:0123456789 ");
    check(&ten,
          "\x01\x0a"
          "0123456789"
          "\x80\x01",
          14, "!1009");
    /* each message has the whole of it, and what is between counts for none */
    check(&ten,
          "\x01\x0a"
          "0123456789"
          "\x89\x04"
          "ping"
          "\x80\x00\x81\x0a"
          "0123456789",
          32, "P4:ping T10:0123456789 T10:0123456789 ");
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    br_buf_put(&b, "\x89\x7d", 2);
    for (unsigned i = 0; i < 125; i++)
        br_buf_put_u8(&b, 'x');
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(1024);
    br_buf_printf(&want, "P125:%.125s ", b.data + 2);
    check(&ten, b.data, b.len, br_buf_cstr(&want));
}

static void test_fragments_limit(void **state)
{
    (void)state;
    static const struct br_ws_limits three = {100, 3, false};
    check(&three,
          "\x01\x01"
          "a"
          "\x00\x01"
          "b"
          "\x80\x01"
          "c",
          9, "T3:abc ");
    check(&three,
          "\x01\x01"
          "a"
          "\x00\x01"
          "b"
          "\x00\x01"
          "c"
          "\x80\x00",
          11, "!1009");
    check(&three, "\x01\x00\x00\x00\x00\x00\x00\x00", 8, "!1009"); /* empty ones count */
    check(&three, "\x01\x00\x89\x00\x00\x00\x89\x00\x89\x00\x80\x00\x01\x00\x00\x00\x80\x00", 18,
          "P0: P0: P0: T0: T0: ");
    for (unsigned n = 1024; n <= 1025; n++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8192), out = BR_BUF_INIT(8192);
        for (unsigned i = 0; i < n; i++)
            put_raw(&b, (i == 0 ? 1 : 0) | (i == n - 1 ? 0x80 : 0), 0, "x", 1);
        transcript(&out, &client, b.data, b.len, 7);
        assert_memory_equal(br_buf_cstr(&out), n == 1024 ? "T1024:" : "!1009", 5);
    }
}

/* A head that announces much costs nothing until it comes. */
static void test_nothing_is_kept_for_what_is_announced(void **state)
{
    (void)state;
    static const struct br_ws_limits big = {16 * 1024 * 1024, 1024, false};
    uint8_t head[] = {0x82, 0x7f, 0, 0, 0, 0, 1, 0, 0, 0, 'x'}, *p = head;
    size_t n = sizeof(head);
    struct br_ws_reader r;
    struct br_ws_message m;
    struct br_err err;
    unsigned code = 0;
    br_ws_reader_init(&r, &big);
    assert_int_equal(br_ws_read(&r, &big, &p, &n, &m, &code, &err), 0);
    assert_true(br_ws_reader_open(&r));
    assert_true(r.message.cap <= 64);
    br_ws_reader_free(&r);
    assert_true(sizeof(r) <= 112); /* what an idle connection costs */
}

static void assert_idle(const struct br_ws_reader *r)
{
    assert_false(br_ws_reader_open(r));
    assert_null(r->message.data);
    assert_null(r->control);
}

/* A million frames in pieces that cut them anywhere: nothing grows, and nothing stays. */
static void test_a_million_tiny_frames(void **state)
{
    (void)state;
    enum { FRAMES = 1000000, PIECE = 4093 };
    struct br_ws_reader r;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(PIECE * 4);
    unsigned made = 0, texts = 0, pings = 0;
    br_ws_reader_init(&r, &server);
    while (made < FRAMES || b.len > 0) {
        while (made < FRAMES && b.len < PIECE) {
            put_raw(&b,
                    made % 4 == 3   ? 0x89
                    : made % 4 == 1 ? 0x01
                    : made % 4 == 2 ? 0x80
                                    : 0x81,
                    0x80, "x", made % 3 == 0);
            made++;
        }
        size_t n = b.len < PIECE ? b.len : PIECE, left = n;
        uint8_t *p = b.data;
        struct br_ws_message m;
        unsigned code;
        struct br_err err;
        int rc;
        while ((rc = br_ws_read(&r, &server, &p, &left, &m, &code, &err)) > 0) {
            texts += m.op == BR_WS_TEXT;
            pings += m.op == BR_WS_PING;
        }
        assert_int_equal(rc, 0);
        assert_true(r.message.cap <= 64);
        memmove(b.data, b.data + n, b.len - n);
        b.len -= n;
    }
    assert_int_equal(texts, FRAMES / 2);
    assert_int_equal(pings, FRAMES / 4);
    assert_idle(&r);
    br_ws_reader_free(&r);
}

/* After each message, whatever it was made of, the reader holds no memory. */
static void test_idle_costs_nothing(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf raw_ = BR_BUF_INIT(8192);
    FRAME(0x81, "whole");
    FRAME(0x01, "in");
    FRAME(0x89, "ping");
    FRAME(0x80, "parts");
    FRAME(0x8a, "");
    FRAME(0x82, "bytes");
    for (size_t step = 1; step <= raw_.len; step++) {
        struct br_ws_reader r;
        uint8_t copy[256];
        memcpy(copy, raw_.data, raw_.len);
        br_ws_reader_init(&r, &server);
        for (size_t at = 0; at < raw_.len; at += step) {
            uint8_t *p = copy + at;
            size_t n = raw_.len - at < step ? raw_.len - at : step;
            struct br_ws_message m;
            unsigned code;
            struct br_err err;
            int rc;
            while ((rc = br_ws_read(&r, &server, &p, &n, &m, &code, &err)) > 0)
                ;
            assert_int_equal(rc, 0);
            if (!br_ws_reader_open(&r))
                assert_idle(&r);
        }
        assert_idle(&r);
        br_ws_reader_free(&r);
    }
}

/* Who failed is not read any more, whatever comes. */
static void test_failed_stays_failed(void **state)
{
    (void)state;
    struct br_ws_reader r;
    struct br_ws_message m;
    struct br_err err = {.code = BR_OK};
    unsigned code = 0;
    uint8_t bytes[] = {0xf1, 0x00, 0x81, 0x01, 'a'}, *p = bytes;
    size_t n = sizeof(bytes);
    br_ws_reader_init(&r, &client);
    assert_int_equal(br_ws_read(&r, &client, &p, &n, &m, &code, &err), -BR_E_PEER_PROTOCOL);
    for (unsigned i = 0; i < 3; i++) {
        p = bytes + 2;
        n = 3;
        code = 0;
        assert_int_equal(br_ws_read(&r, &client, &p, &n, &m, &code, &err), -BR_E_PEER_PROTOCOL);
        assert_int_equal(code, 1002);
        assert_int_equal(n, 3);
    }
    assert_idle(&r);
    br_ws_reader_free(&r);
}

static void test_mask_from_any_offset(void **state)
{
    (void)state;
    static const uint8_t mask[4] = {1, 2, 4, 8};
    for (size_t n = 0; n < 40; n++)
        for (size_t cut = 0; cut <= n; cut++) {
            uint8_t b[40] = {0};
            br_ws_mask(b, cut, mask, 0);
            br_ws_mask(b + cut, n - cut, mask, cut);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(b[i], mask[i % 4]);
        }
}

/*
 * Streams made at random of what is allowed: whatever the pieces, the messages are the same as they
 * were put in.
 */
static void test_streams_in_every_cut(void **state)
{
    (void)state;
    srand(7);
    for (unsigned round = 0; round < 60; round++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20), want = BR_BUF_INIT(1 << 20),
                                     out = BR_BUF_INIT(1 << 20);
        for (unsigned i = 0; i < 12; i++) {
            char text[400];
            size_t n = (size_t)rand() % (rand() % 4 ? 20 : sizeof(text)), at = 0;
            for (size_t k = 0; k < n; k++)
                text[k] = (char)('a' + rand() % 26);
            unsigned op = rand() % 2 ? BR_WS_TEXT : BR_WS_BINARY;
            bool first = true;
            while (rand() % 2) { /* fragments, and pings between them */
                size_t k = (size_t)rand() % (n - at + 1);
                put_raw(&b, first ? op : 0, 0x80, text + at, k);
                at += k;
                first = false;
                if (rand() % 3 == 0) {
                    put_raw(&b, 0x89, 0x80, text, n < 125 ? n : 125);
                    br_buf_printf(&want, "P%zu:%.*s ", n < 125 ? n : 125, n < 125 ? (int)n : 125,
                                  text);
                }
            }
            put_raw(&b, (first ? op : 0) | 0x80, 0x80, text + at, n - at);
            br_buf_printf(&want, "%c%zu:%.*s ", op == BR_WS_TEXT ? 'T' : 'B', n, (int)n, text);
        }
        assert_false(b.failed);
        for (size_t step = 1; step < 2 * b.len; step = step < 20 ? step + 1 : step * 2) {
            transcript(&out, &server, b.data, b.len, step);
            assert_string_equal(br_buf_cstr(&out), br_buf_cstr(&want));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_examples),
        cmocka_unit_test(test_what_is_put_is_read),
        cmocka_unit_test(test_reserved_bits),
        cmocka_unit_test(test_reserved_opcodes),
        cmocka_unit_test(test_masking),
        cmocka_unit_test(test_lengths_have_one_form),
        cmocka_unit_test(test_control_frames),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_close_codes),
        cmocka_unit_test(test_close_is_put),
        cmocka_unit_test(test_utf8_fails_at_its_byte),
        cmocka_unit_test(test_utf8_in_messages),
        cmocka_unit_test(test_message_limit),
        cmocka_unit_test(test_fragments_limit),
        cmocka_unit_test(test_nothing_is_kept_for_what_is_announced),
        cmocka_unit_test(test_a_million_tiny_frames),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_failed_stays_failed),
        cmocka_unit_test(test_mask_from_any_offset),
        cmocka_unit_test(test_streams_in_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
