/*
 * The cases of the Autobahn suite's fuzzing client (groups 1 to 7 and 9, and of 12 that there is no
 * compression), sent to the real gateway over raw sockets. It is no echo server: a text message
 * that is not JSON is answered with a parse error, a binary one closes with 1003. Each case is sent
 * in one piece, frame by frame, and (if it is short) byte by byte.
 *
 * What comes back is written as one text: "E" for a parse error, "p<payload>" for a pong, "C1002"
 * for a close frame, "." for the end of the stream. A case that should leave the connection open
 * ends with a ping of its own, whose pong is "|".
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

#define END_PING "|end|"
/* The most that is sent byte by byte, and frames of one case. */
#define SHORT 700u
#define FRAMES_MAX 4200u

static struct gate_rig rig;
static struct br_buf stream = BR_BUF_INIT(64 * 1024 * 1024);
static size_t ends[FRAMES_MAX]; /* of its frames */
static unsigned nends;
static uint8_t in[256 * 1024]; /* what came, and was not taken yet */
static size_t nin;
static struct br_buf pongs = BR_BUF_INIT(1024 * 1024); /* to be sent between frames */

static void settings(struct br_service *s)
{
    s->requests_per_second = 0;
    s->message_bytes = 16 * 1024 * 1024;
}

static int setup(void **state)
{
    static const struct gate_options o = {.settings = settings};
    (void)state;
    gate_start(&rig, &o);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate_stop(&rig);
    br_buf_free(&stream);
    br_buf_free(&pongs);
    return 0;
}

/* ---- cases ---- */

static void begin(void)
{
    br_buf_reset(&stream);
    nends = 0;
}

static void frame(uint8_t first, const void *p, size_t n)
{
    assert_true(nends < FRAMES_MAX);
    gate_put_frame(&stream, first, p, n);
    ends[nends++] = stream.len;
}
#define F(first, text) frame(first, text, sizeof(text) - 1)

/* The next frame that has come: into `out` as the head of this file says; false: not whole yet. */
static bool take(struct br_buf *out)
{
    size_t head = 2, n;
    if (nin < 2)
        return false;
    assert_int_equal(in[0] & 0xf0, 0x80);
    n = in[1];
    if (n == 126) {
        head = 4;
        if (nin < 4)
            return false;
        n = (size_t)in[2] << 8 | in[3];
    }
    assert_true(n < 127 || head == 4);
    if (nin < head + n)
        return false;
    const char *p = (const char *)in + head;
    switch (in[0] & 15) {
    case 1:
        assert_non_null(memmem(p, n, "\"id\":null", 9));
        br_buf_put(out, memmem(p, n, "-32700", 6) ? "E " : "T ", 2);
        break;
    case 8:
        br_buf_printf(out, "C%u ", n < 2 ? 1005 : (unsigned)in[head] << 8 | in[head + 1]);
        assert_true(n < 2 || br_utf8_valid(p + 2, n - 2));
        gate_put_frame(&pongs, 0x88, p, n < 2 ? 0 : 2); /* the answer, if it was the first */
        break;
    case 9: /* its pacing */
        gate_put_frame(&pongs, 0x8a, p, n);
        break;
    case 10:
        if (n == sizeof(END_PING) - 1 && memcmp(p, END_PING, n) == 0) {
            br_buf_put(out, "|", 1);
        } else {
            br_buf_put(out, "p", 1);
            br_buf_put(out, p, n);
            br_buf_put(out, " ", 1);
        }
        break;
    default:
        fail_msg("a frame %02x", in[0]);
    }
    memmove(in, in + head + n, nin - head - n);
    nin -= head + n;
    return true;
}

/* Read what is there, without waiting. */
static void take_all(struct gate_client *c, struct br_buf *out)
{
    for (;;) {
        while (take(out))
            ;
        ssize_t k = recv(c->fd, in + nin, sizeof(in) - nin, MSG_DONTWAIT);
        if (k < 0 && errno == EAGAIN)
            return;
        if (k <= 0) {
            if (!c->eof)
                br_buf_put(out, ".", 1);
            c->eof = true;
            return;
        }
        nin += (size_t)k;
    }
}

/* All of these bytes, in pieces of at most `step`, and meanwhile what comes back. */
static void put(struct gate_client *c, const uint8_t *p, size_t n, size_t step, struct br_buf *out)
{
    for (size_t at = 0; at < n && !c->eof;) {
        ssize_t k = send(c->fd, p + at, n - at < step ? n - at : step, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0)
            at += (size_t)k;
        else if (errno == EPIPE || errno == ECONNRESET)
            return;
        else
            (void)poll(&(struct pollfd){.fd = c->fd, .events = POLLIN | POLLOUT}, 1, 10000);
        take_all(c, out);
    }
    gate_send_bytes(c, pongs.data, pongs.len);
    br_buf_reset(&pongs);
}

enum cut { WHOLE, FRAMES, BYTES, CUTS };

static void run(enum cut cut, size_t step, const char *expected, struct br_buf *out)
{
    bool open = strchr(expected, 'C') == NULL;
    struct gate_client *c = gate_open(&rig, cut == WHOLE ? GATE_UNIX : GATE_TCP, "");
    int one = 1; /* no byte waits for the acknowledgement of the one before it */
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    assert_int_equal(c->nin, 0);
    nin = 0;
    br_buf_reset(&pongs);
    br_buf_reset(out);
    size_t at = 0;
    if (cut == FRAMES)
        for (unsigned i = 0; i < nends; at = ends[i++])
            put(c, stream.data + at, ends[i] - at, step, out);
    put(c, stream.data + at, stream.len - at, cut == BYTES ? 1 : step, out);
    BR_CLEANUP_BUF struct br_buf ping = BR_BUF_INIT(64);
    gate_put_frame(&ping, 0x89, END_PING, sizeof(END_PING) - 1);
    if (open)
        put(c, ping.data, ping.len, ping.len, out);
    for (;;) {
        take_all(c, out);
        put(c, NULL, 0, 1, out);
        if (c->eof || (open && out->len && out->data[out->len - 1] == '|'))
            break;
        if (poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, GATE_WAIT_MS) != 1)
            break;
        gate_serve(&rig, 0);
    }
    gate_close(c);
}

/* The stream that was made is answered so; "A or B": in one of two ways. */
static void expect_in(enum cut last, size_t step, const char *expected, const char * or)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1024 * 1024);
    for (enum cut cut = 0; cut <= last; cut++) {
        run(cut, step, expected, &out);
        const char *got = br_buf_cstr(&out);
        assert_non_null(got);
        if (strcmp(got, expected) != 0 && (! or || strcmp(got, or) != 0))
            fail_msg("'%s' instead of '%s', cut %d", got, expected, (int)cut);
    }
}

static void expect(const char *expected)
{
    expect_in(stream.len <= SHORT ? BYTES : FRAMES, SIZE_MAX, expected, NULL);
}

#define CASE(expected, ...)                                                                        \
    do {                                                                                           \
        begin();                                                                                   \
        __VA_ARGS__;                                                                               \
        expect(expected);                                                                          \
    } while (0)

/* ---- the groups ---- */

static void test_1_messages(void **state)
{
    static const size_t sizes[] = {0, 125, 126, 127, 128, 65535, 65536};
    static char text[65536];
    (void)state;
    memset(text, '*', sizeof(text));
    for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++) {
        CASE("E |", frame(0x81, text, sizes[i]));
        expect_in(FRAMES, 997, "E |", NULL);
        CASE("C1003 .", frame(0x82, text, sizes[i]));
    }
}

static void test_2_pings(void **state)
{
    char most[126];
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(4096);
    (void)state;
    memset(most, 0xfe, sizeof(most));
    br_buf_printf(&want, "p%.125s |", most);
    CASE("p |", F(0x89, ""));
    CASE("pHello, world! |", F(0x89, "Hello, world!"));
    CASE("p\xff\xfe\xfd\xfc\xfb\x01\xff |", F(0x89, "\xff\xfe\xfd\xfc\xfb\x01\xff"));
    CASE(br_buf_cstr(&want), frame(0x89, most, 125));
    CASE("C1002 .", frame(0x89, most, 126));
    CASE("|", F(0x8a, ""));
    CASE("|", F(0x8a, "unsolicited"));
    CASE("pping |", F(0x8a, "unsolicited"), F(0x89, "ping"));
    CASE("p0 p1 p2 p3 p4 p5 p6 p7 p8 p9 |", F(0x89, "0"), F(0x89, "1"), F(0x89, "2"), F(0x89, "3"),
         F(0x89, "4"), F(0x89, "5"), F(0x89, "6"), F(0x89, "7"), F(0x89, "8"), F(0x89, "9"));
}

static void test_3_reserved_bits(void **state)
{
    (void)state;
    for (uint8_t rsv = 1; rsv < 8; rsv++) {
        uint8_t bits = (uint8_t)(0x80 | rsv << 4);
        CASE("C1002 .", F(bits | 1, "small"), F(0x89, "ping"));
        CASE("E C1002 .", F(0x81, "small"), F(bits | 1, "small"), F(0x89, "ping"));
        CASE("C1002 .", F(bits | 2, "\1\2\3"));
        CASE("C1002 .", F(bits | 9, "ping"));
        CASE("C1002 .", F(bits | 8, "\x03\xe8"));
    }
}

static void test_4_opcodes(void **state)
{
    (void)state;
    for (uint8_t op = 3; op < 16; op++) {
        if (op >= 8 && op <= 10)
            continue;
        CASE("C1002 .", F(0x80 | op, ""));
        CASE("C1002 .", F(0x80 | op, "reserved"));
        CASE("E C1002 .", F(0x81, "small"), F(0x80 | op, ""), F(0x89, "ping"));
        CASE("E C1002 .", F(0x81, "small"), F(0x80 | op, "reserved"), F(0x89, "ping"));
    }
}

static void test_5_fragments(void **state)
{
    (void)state;
    CASE("C1002 .", F(0x09, "frag"), F(0x80, "ment"));
    CASE("C1002 .", F(0x0a, "frag"), F(0x80, "ment"));
    CASE("E |", F(0x01, "frag"), F(0x80, "ment"));
    CASE("pping E |", F(0x01, "frag"), F(0x89, "ping"), F(0x80, "ment"));
    CASE("C1002 .", F(0x80, "nothing to continue"), F(0x81, "text"));
    CASE("C1002 .", F(0x00, "nothing to continue"), F(0x81, "text"));
    CASE("E C1002 .", F(0x01, "frag"), F(0x80, "ment"), F(0x00, "nothing"), F(0x81, "text"));
    CASE("C1002 .", F(0x00, "a"), F(0x01, "b"), F(0x80, "c"), F(0x00, "a"), F(0x01, "b"),
         F(0x80, "c"));
    CASE("C1002 .", F(0x80, "a"), F(0x01, "b"), F(0x80, "c"), F(0x80, "a"), F(0x01, "b"),
         F(0x80, "c"));
    CASE("C1002 .", F(0x01, "frag"), F(0x81, "ment"));
    CASE("p1 p2 E |", F(0x01, "a"), F(0x00, "b"), F(0x89, "1"), F(0x00, "c"), F(0x00, "d"),
         F(0x89, "2"), F(0x80, "e"));
    CASE("C1003 .", F(0x02, "frag"), F(0x80, "ment"));
    CASE("C1002 .", F(0x02, "frag"), F(0x81, "ment"));
}

/* One text: whole, in two fragments at every byte, and each byte a fragment. */
static void check_text(const char *text, size_t n, bool valid)
{
    const char *expected = valid ? "E |" : "C1007 .";
    CASE(expected, frame(0x81, text, n));
    size_t step = n > 24 ? 5 : 1;
    for (size_t cut = 1; cut < n; cut += step) {
        begin();
        frame(0x01, text, cut);
        frame(0x80, text + cut, n - cut);
        expect_in(WHOLE, SIZE_MAX, expected, NULL);
    }
    if (n < 2)
        return;
    begin();
    for (size_t i = 0; i < n; i++)
        frame((uint8_t)((i == 0 ? 1 : 0) | (i == n - 1 ? 0x80 : 0)), text + i, 1);
    expect_in(FRAMES, SIZE_MAX, expected, NULL);
}
#define TEXT(text, valid) check_text(text, sizeof(text) - 1, valid)
#define KOSME "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"

static void test_6_text(void **state)
{
    (void)state;
    CASE("E |", F(0x81, ""));
    CASE("E |", F(0x01, ""), F(0x00, ""), F(0x80, ""));
    CASE("E |", F(0x01, ""), F(0x00, "middle"), F(0x80, ""));
    TEXT("Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!", true);
    TEXT(KOSME "\xed\xa0\x80"
               "edited",
         false);
    static const size_t whole[] = {2, 5, 7, 9, 11}; /* ends of its characters */
    for (size_t n = 1; n <= 11; n++) {
        bool valid = false;
        for (unsigned i = 0; i < BR_ARRAY_LEN(whole); i++)
            valid = valid || n == whole[i];
        check_text(KOSME, n, valid);
    }
}

static void test_6_shapes(void **state)
{
    (void)state;
    TEXT("\0", true); /* the first and the last of each length */
    TEXT("\xc2\x80", true);
    TEXT("\xe0\xa0\x80", true);
    TEXT("\xf0\x90\x80\x80", true);
    TEXT("\x7f", true);
    TEXT("\xdf\xbf", true);
    TEXT("\xef\xbf\xbf", true);
    TEXT("\xf4\x8f\xbf\xbf", true);
    TEXT("\xed\x9f\xbf", true);
    TEXT("\xee\x80\x80", true);
    TEXT("\xef\xbf\xbd", true);
    TEXT("\xf8\x88\x80\x80\x80", false);
    TEXT("\xfc\x84\x80\x80\x80\x80", false);
    TEXT("\xf7\xbf\xbf\xbf", false);
    TEXT("\xfb\xbf\xbf\xbf\xbf", false);
    TEXT("\xfd\xbf\xbf\xbf\xbf\xbf", false);
    TEXT("\xf4\x90\x80\x80", false);
    TEXT("\x80", false); /* unexpected continuations */
    TEXT("\xbf", false);
    TEXT("\x80\xbf", false);
    TEXT("\x80\xbf\x80\xbf\x80\xbf", false);
    TEXT("\xc0 \xc1 \xc2 \xc3 ", false); /* lonely starts */
    TEXT("\xe0 \xe1 \xe2 \xe3 ", false);
    TEXT("\xf0 \xf1 \xf2 \xf3 ", false);
    TEXT("\xdf", false); /* the last byte is missing */
    TEXT("\xe0\x80", false);
    TEXT("\xef\xbf", false);
    TEXT("\xf0\x80\x80", false);
    TEXT("\xf7\xbf\xbf", false);
    TEXT("\xc0\xe0\x80\xf0\x80\x80", false);
    TEXT("\xfe", false);
    TEXT("\xff", false);
    TEXT("\xfe\xfe\xff\xff", false);
    TEXT("\xc0\xaf", false); /* overlong */
    TEXT("\xe0\x80\xaf", false);
    TEXT("\xf0\x80\x80\xaf", false);
    TEXT("\xc1\xbf", false);
    TEXT("\xe0\x9f\xbf", false);
    TEXT("\xf0\x8f\xbf\xbf", false);
    TEXT("\xc0\x80", false);
    TEXT("\xe0\x80\x80", false);
    TEXT("\xf0\x80\x80\x80", false);
    TEXT("\xed\xa0\x80", false); /* surrogates, alone and in pairs */
    TEXT("\xed\xad\xbf", false);
    TEXT("\xed\xae\x80", false);
    TEXT("\xed\xaf\xbf", false);
    TEXT("\xed\xb0\x80", false);
    TEXT("\xed\xbe\x80", false);
    TEXT("\xed\xbf\xbf", false);
    TEXT("\xed\xa0\x80\xed\xb0\x80", false);
    TEXT("\xed\xaf\xbf\xed\xbf\xbf", false);
}

/* U+FFFE and U+FFFF of each plane are characters as far as UTF-8 is concerned. */
static void test_6_noncharacters(void **state)
{
    (void)state;
    for (unsigned plane = 0; plane <= 16; plane++)
        for (unsigned last = 0xfffe; last <= 0xffff; last++) {
            uint32_t v = plane << 16 | last;
            char text[5] = {0};
            size_t n = plane ? 4 : 3;
            text[0] = (char)(plane ? 0xf0 | v >> 18 : 0xe0 | v >> 12);
            for (size_t i = 1; i < n; i++)
                text[i] = (char)(0x80 | (v >> 6 * (n - 1 - i) & 0x3f));
            begin();
            frame(0x81, text, n);
            expect_in(WHOLE, SIZE_MAX, "E |", NULL);
        }
}

/* It does not wait for the rest of a message that can no longer be one. */
static void test_6_fails_fast(void **state)
{
    static const char bad[2000] = KOSME "\xf4\x90";
    (void)state;
    CASE("C1007 .", F(0x01, KOSME), F(0x00, "\xf4\x90"));
    CASE("C1007 .", F(0x01, KOSME "\xf4"), F(0x00, "\x90"));
    begin(); /* of a frame of 2000 bytes, only the first 13 */
    frame(0x81, bad, sizeof(bad));
    ends[0] = stream.len = 8 + sizeof(KOSME) - 1 + 2;
    expect("C1007 .");
}

static void test_7_close(void **state)
{
    static char big[262144];
    char most[126] = "\x03\xe8";
    (void)state;
    memset(big, '*', sizeof(big));
    memset(most + 2, '*', sizeof(most) - 2);
    begin(); /* who closes may not see what was on its way */
    F(0x81, "hello"), F(0x88, "\x03\xe8");
    expect_in(BYTES, SIZE_MAX, "E C1000 .", "C1000 .");
    CASE("C1000 .", F(0x88, "\x03\xe8"), F(0x88, "\x03\xe8"));
    CASE("C1000 .", F(0x88, "\x03\xe8"), F(0x89, "ping"));
    CASE("C1000 .", F(0x88, "\x03\xe8"), F(0x81, "text"));
    CASE("C1000 .", F(0x88, "\x03\xe8"), F(0xff, "no frame"));
    CASE("C1000 .", F(0x01, "frag"), F(0x88, "\x03\xe8"), F(0x80, "ment"));
    begin();
    frame(0x81, big, sizeof(big)), F(0x88, "\x03\xe8"), F(0x89, "ping");
    expect_in(FRAMES, SIZE_MAX, "E C1000 .", "C1000 .");
    CASE("C1000 .", F(0x88, ""));
    CASE("C1002 .", F(0x88, "a"));
    CASE("C1000 .", F(0x88, "\x03\xe8Hello World"));
    CASE("C1000 .", frame(0x88, most, 125));
    CASE("C1002 .", frame(0x88, most, 126));
    CASE("C1007 .", F(0x88, "\x03\xe8" KOSME "\xed\xa0\x80"
                            "edited"));
}

static void test_7_codes(void **state)
{
    static const unsigned good[] = {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010,
                                    1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999};
    static const unsigned bad[] = {0,    1,    999,  1004, 1005, 1006, 1015,
                                   1016, 1100, 2000, 2999, 5000, 65535};
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++) {
        char payload[2] = {(char)(good[i] >> 8), (char)good[i]}, want[16];
        snprintf(want, sizeof(want), "C%u .", good[i]);
        CASE(want, frame(0x88, payload, 2));
    }
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        char payload[2] = {(char)(bad[i] >> 8), (char)bad[i]};
        CASE("C1002 .", frame(0x88, payload, 2));
        CASE("C1002 .", frame(0x88, payload, 2), F(0x81, "text"));
    }
}

/* Large ones: as one frame, in fragments, in small pieces. */
static void test_9_large(void **state)
{
    enum { MIB = 1024 * 1024 };
    char *text = malloc(16 * MIB);
    (void)state;
    assert_non_null(text);
    memset(text, '*', 16 * MIB);
    for (size_t n = MIB / 16; n <= 16 * MIB; n *= 4) {
        begin();
        frame(0x81, text, n);
        expect_in(WHOLE, SIZE_MAX, "E |", NULL);
    }
    begin();
    frame(0x82, text, 4 * MIB);
    expect_in(WHOLE, SIZE_MAX, "C1003 .", NULL);
    for (size_t part = 4 * MIB; part >= 4096; part /= 4) { /* down to 1024 fragments */
        begin();
        for (size_t at = 0; at < 4 * MIB; at += part)
            frame((uint8_t)((at == 0 ? 1 : 0) | (at + part == 4 * MIB ? 0x80 : 0)), text + at,
                  part);
        expect_in(WHOLE, SIZE_MAX, "E |", NULL);
    }
    for (size_t step = 64; step <= 2048; step *= 4) {
        begin();
        frame(0x81, text, MIB / 4);
        expect_in(WHOLE, step, "E |", NULL);
    }
    free(text);
}

/* A thousand messages, each answered; with pings between them. */
static void test_9_many(void **state)
{
    static const size_t sizes[] = {0, 16, 64, 256, 1024, 4096};
    static char text[4096];
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(65536);
    (void)state;
    memset(text, '*', sizeof(text));
    for (unsigned k = 0; k < 1000; k++)
        br_buf_printf(&want, "E ");
    br_buf_printf(&want, "|");
    for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++) {
        begin();
        for (unsigned k = 0; k < 1000; k++)
            frame(0x81, text, sizes[i]);
        expect_in(WHOLE, SIZE_MAX, br_buf_cstr(&want), NULL);
    }
}

/* Compression is offered and not chosen, and what is compressed all the same is refused. */
static void test_12_no_compression(void **state)
{
    (void)state;
    struct gate_client *c = gate_connect(&rig, GATE_TCP);
    assert_int_equal(gate_upgrade(c, "/acp",
                                  "Sec-WebSocket-Extensions: permessage-deflate; "
                                  "client_max_window_bits, x-webkit-deflate-frame\r\n"),
                     101);
    assert_string_equal(gate_field(c, "Sec-WebSocket-Extensions"), "");
    gate_send_text(c, "not JSON");
    assert_non_null(strstr(gate_read_text(c), "-32700"));
    gate_send_frame(c, 0xc1, "\xf2\x48\xcd\xc9\xc9\x07\x00", 7); /* "Hello" */
    gate_expect_close(c, 1002);
    gate_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1_messages),      cmocka_unit_test(test_2_pings),
        cmocka_unit_test(test_3_reserved_bits), cmocka_unit_test(test_4_opcodes),
        cmocka_unit_test(test_5_fragments),     cmocka_unit_test(test_6_text),
        cmocka_unit_test(test_6_shapes),        cmocka_unit_test(test_6_noncharacters),
        cmocka_unit_test(test_6_fails_fast),    cmocka_unit_test(test_7_close),
        cmocka_unit_test(test_7_codes),         cmocka_unit_test(test_9_large),
        cmocka_unit_test(test_9_many),          cmocka_unit_test(test_12_no_compression),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
