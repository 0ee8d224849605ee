/*
 * Connections of bridle-gateway, against the real program: bytes in every way that a client may
 * send them, its limits at N and N + 1, and the ends that the protocol knows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

static const char ask[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nonsense\"}";

static void expect_answer(struct gate_client *c)
{
    char *text = gate_read_text(c);
    assert_non_null(text);
    assert_non_null(strstr(text, "-32601"));
}

/* The connection is as it was. */
static void expect_alive(struct gate_client *c)
{
    gate_send_text(c, ask);
    expect_answer(c);
}

static void each_way(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    for (enum gate_way w = 0; w < GATE_WAYS; w++) {
        struct gate_client *c =
            gate_open_as(&r, w, "harness.acp.1", w == GATE_TLS ? GATE_TOKEN_OPERATE : NULL);
        expect_alive(c);
        gate_send_frame(c, 0x88, "\x03\xe8", 2);
        gate_expect_close(c, 1000);
        gate_expect_eof(c);
    }
    assert_non_null(strstr(gate_log(&r), "\"event\":\"connection.open\""));
    gate_stop(&r);
}

/* ---- how bytes may come ---- */

static const char head[] = "GET /acp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

static void skip_head(struct gate_client *c)
{
    gate_read_head(c);
    assert_int_equal(c->status, 101);
}

static void byte_by_byte(void **state)
{
    struct gate_rig r;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_connect(&r, GATE_TCP);
    br_buf_put(&b, head, sizeof(head) - 1);
    gate_put_frame(&b, 0x81, ask, strlen(ask));
    gate_put_frame(&b, 0x89, "ping", 4);
    gate_put_frame(&b, 0x01, ask, 10);
    gate_put_frame(&b, 0x00, ask + 10, 10);
    gate_put_frame(&b, 0x89, "in between", 10);
    gate_put_frame(&b, 0x80, ask + 20, strlen(ask) - 20);
    for (size_t i = 0; i < b.len; i++) {
        gate_send_bytes(c, b.data + i, 1);
        gate_serve(&r, 0);
        if (i + 1 == sizeof(head) - 1)
            skip_head(c);
    }
    expect_answer(c);
    expect_answer(c);
    assert_int_equal(c->pongs, 2);
    gate_stop(&r);
}

static void all_at_once(void **state)
{
    struct gate_rig r;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_connect(&r, GATE_UNIX);
    br_buf_put(&b, head, sizeof(head) - 1);
    for (unsigned i = 0; i < 50; i++)
        gate_put_frame(&b, 0x81, ask, strlen(ask));
    gate_put_frame(&b, 0x88, "\x03\xe8", 2);
    gate_send_bytes(c, b.data, b.len);
    (void)shutdown(c->fd, SHUT_WR);
    skip_head(c);
    gate_expect_close(c, 1000);
    gate_stop(&r);
}

/* ---- what is refused ---- */

/* Whole frames, but for their mask: `raw` is sent as it is. */
static void refused(struct gate_rig *r, const void *raw, size_t n, unsigned code)
{
    struct gate_client *c = gate_open(r, GATE_UNIX, "");
    expect_alive(c);
    gate_send_bytes(c, raw, n);
    gate_expect_close(c, code);
    gate_expect_eof(c);
    gate_close(c);
}

static void bad_frames(void **state)
{
    struct gate_rig r;
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        unsigned code;
    } rows[] = {
        {"\x81\x02{}", 4, 1002},       /* no mask */
        {"\xc1\x80\0\0\0\0", 6, 1002}, /* reserved bits */
        {"\xa1\x80\0\0\0\0", 6, 1002},
        {"\x91\x80\0\0\0\0", 6, 1002},
        {"\x83\x80\0\0\0\0", 6, 1002}, /* opcodes */
        {"\x8b\x80\0\0\0\0", 6, 1002},
        {"\x81\xfe\0\x02\0\0\0\0{}", 10, 1002}, /* a longer form */
        {"\x81\xff\0\0\0\0\0\0\0\x02\0\0\0\0{}", 16, 1002},
        {"\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", 14, 1002}, /* highest bit */
        {"\x09\x80\0\0\0\0", 6, 1002},                    /* half a ping */
        {"\x89\xfe\0\x7e\0\0\0\0", 8, 1002},              /* a long ping */
        {"\x80\x80\0\0\0\0", 6, 1002},                    /* of nothing */
        {"\x01\x80\0\0\0\0\x81\x80\0\0\0\0", 12, 1002},   /* inside another */
        {"\x88\x81\0\0\0\0\x03", 7, 1002},                /* half a code */
        {"\x88\x82\0\0\0\0\x03\xed", 8, 1002},            /* 1005 */
        {"\x88\x82\0\0\0\0\x03\xe7", 8, 1002},            /* 999 */
        {"\x81\x82\0\0\0\0\xc0\xaf", 8, 1007},
        {"\x81\x83\0\0\0\0\xed\xa0\x80", 9, 1007}, /* a surrogate */
        {"\x88\x83\0\0\0\0\x03\xe8\xff", 9, 1007},
        {"\x82\x80\0\0\0\0", 6, 1003}, /* binary */
    };
    gate_start(&r, NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        refused(&r, rows[i].bytes, rows[i].n, rows[i].code);
    struct gate_client *c = gate_http(&r, GATE_TCP, "GET", "/metrics", "");
    assert_non_null(strstr(c->body, "\nbridle_protocol_errors_total 20\n"));
    gate_stop(&r);
}

/* ---- limits ---- */

static void small(struct br_service *s)
{
    s->message_bytes = 1000;
    s->fragments = 8;
    s->frame_seconds = 1;
    s->handshake_seconds = 1;
}

static void message_limits(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = small};
    char text[1002];
    (void)state;
    gate_start(&r, &o);
    memset(text, ' ', sizeof(text));
    memcpy(text, ask, strlen(ask));
    struct gate_client *c = gate_open(&r, GATE_TCP, "");
    gate_send_frame(c, 0x81, text, 1000);
    expect_answer(c);
    gate_send_frame(c, 0x01, text, 600);
    gate_send_frame(c, 0x80, text + 600, 400);
    expect_answer(c);
    gate_send_frame(c, 0x81, text, 1001);
    gate_expect_close(c, 1009);
    c = gate_open(&r, GATE_TCP, "");
    gate_send_frame(c, 0x01, text, 600);
    gate_send_frame(c, 0x80, text + 600, 401);
    gate_expect_close(c, 1009);
    c = gate_open(&r, GATE_TCP, ""); /* refused by its length, before its bytes come */
    gate_send_bytes(c, "\x81\xff\0\0\0\0\x40\0\0\0\0\0\0\0", 14);
    gate_expect_close(c, 1009);
    for (unsigned n = 8; n <= 9; n++) {
        c = gate_open(&r, GATE_TCP, "");
        for (unsigned i = 0; i < n; i++)
            gate_send_frame(c,
                            i == 0       ? 0x01
                            : i == n - 1 ? 0x80
                                         : 0x00,
                            ask + i, i == n - 1 ? strlen(ask) - i : 1);
        if (n == 8)
            expect_answer(c);
        else
            gate_expect_close(c, 1009);
    }
    gate_stop(&r);
}

static void slow_ones(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = small};
    (void)state;
    gate_start(&r, &o);
    struct gate_client *silent = gate_connect(&r, GATE_TCP);
    struct gate_client *half = gate_connect(&r, GATE_UNIX);
    struct gate_client *good = gate_open(&r, GATE_TCP, "");
    struct gate_client *frame = gate_open(&r, GATE_TCP, "");
    struct gate_client *message = gate_open(&r, GATE_TCP, "");
    gate_send_bytes(half, head, 30);
    gate_send_frame(frame, 0x81, ask, 5);           /* a whole one before it */
    gate_send_bytes(frame, "\x81\x85\0\0\0\0{", 7); /* an incomplete one */
    gate_send_frame(message, 0x01, "{", 1);
    for (unsigned i = 0; i < 8; i++) { /* which is not made complete by pings */
        gate_send_frame(message, 0x89, "", 0);
        gate_serve(&r, 100);
    }
    gate_expect_close(frame, 1002);
    gate_expect_close(message, 1002);
    assert_int_equal(message->pongs, 8);
    gate_expect_eof(silent);
    gate_expect_eof(half);
    assert_memory_equal(half->in, "HTTP/1.1 408 ", 13);
    expect_alive(good);
    gate_stop(&r);
}

static void few(struct br_service *s)
{
    s->connections = 4;
    s->connections_per_peer = 3;
}

static void connection_limits(void **state)
{
    struct gate_rig r;
    const struct gate_options o = {.settings = few};
    struct gate_client *c[8];
    (void)state;
    gate_start(&r, &o);
    for (unsigned i = 0; i < 3; i++)
        c[i] = gate_open(&r, i ? GATE_TCP : GATE_UNIX, ""); /* one uid, by two ways */
    struct gate_client *refuse = gate_connect(&r, GATE_UNIX);
    gate_expect_eof(refuse);
    assert_memory_equal(refuse->in, "HTTP/1.1 503 ", 13);
    c[3] = gate_open_as(&r, GATE_TLS, "", GATE_TOKEN_OBSERVE); /* another peer, the 4th of all */
    refuse = gate_connect(&r, GATE_TLS);
    gate_expect_eof(refuse);
    assert_memory_equal(refuse->in, "HTTP/1.1 503 ", 13);
    for (unsigned i = 0; i < 4; i++)
        expect_alive(c[i]);
    gate_close(c[1]); /* whose place is free again */
    gate_serve(&r, 20);
    c[1] = gate_open(&r, GATE_TCP, "");
    expect_alive(c[1]);
    gate_stop(&r);
}

/* Who may not operate by its uid has few connections that have not said who they are. */
static void head_limits(void **state)
{
    struct gate_rig r;
    int fds[256];
    (void)state;
    gate_start(&r, NULL);
    for (unsigned i = 0; i < BR_ARRAY_LEN(fds); i++) {
        struct gate_client *c = gate_connect(&r, GATE_TLS);
        fds[i] = dup(c->fd);
        assert_true(fds[i] >= 0);
        gate_close(c);
    }
    struct gate_client *more = gate_connect(&r, GATE_TLS);
    gate_expect_eof(more);
    assert_memory_equal(more->in, "HTTP/1.1 503 ", 13);
    for (unsigned i = 0; i < 10; i++) /* another peer */
        expect_alive(gate_open(&r, GATE_UNIX, ""));
    close(fds[0]);
    gate_serve(&r, 20);
    struct gate_client *c = gate_open_as(&r, GATE_TLS, "", GATE_TOKEN_OPERATE);
    c = gate_open_as(&r, GATE_TLS, "", GATE_TOKEN_OPERATE); /* the first one is none any more */
    expect_alive(c);
    for (unsigned i = 1; i < BR_ARRAY_LEN(fds); i++)
        close(fds[i]);
    gate_stop(&r);
}

/* ---- floods ---- */

/* Its memory at its highest, in bytes. */
static size_t peak_memory(const struct gate_rig *r)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)r->pid);
    assert_true(br_read_text(-1, path, text, sizeof(text)) > 0);
    char *at = strstr(text, "VmHWM:");
    assert_non_null(at);
    return strtoul(at + 6, NULL, 10) * 1024;
}

#ifdef BR_SANITIZED /* which keeps what was freed */
#define MEMORY_MAX (256u << 20)
#else
#define MEMORY_MAX (32u << 20)
#endif

/* The same frame many times in one send. */
static void flood(struct gate_client *c, uint8_t first, const char *text, unsigned n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u << 20);
    for (unsigned i = 0; i < n; i++)
        gate_put_frame(&b, first, text, strlen(text));
    gate_send_bytes(c, b.data, b.len);
}

static void tiny_frames(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    size_t before = peak_memory(&r);
    struct gate_client *c = gate_open(&r, GATE_UNIX, "");
    flood(c, 0x89, "", 1000000); /* pings, and it reads nothing meanwhile */
    gate_send_frame(c, 0x89, "last", 4);
    expect_alive(c);
    assert_true(c->pongs > 0 && c->pongs <= 1000001);
    flood(c, 0x8a, "1", 1000000); /* pongs that nobody asked for */
    expect_alive(c);
    gate_send_frame(c, 0x01, "", 0);
    flood(c, 0x00, "", 1000000); /* parts of a message that never ends */
    gate_expect_close(c, 1009);
    assert_true(peak_memory(&r) - before < MEMORY_MAX);
    gate_stop(&r);
}

static void never_reads(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    size_t before = peak_memory(&r);
    struct gate_client *other = gate_open(&r, GATE_UNIX, "");
    struct gate_client *c = gate_open(&r, GATE_UNIX, "");
    c->mute = true;
    flood(c, 0x81, ask, 200000); /* each is answered, and no answer is read */
    expect_alive(other);
    gate_expect_close(c, 1013);
    assert_true(c->messages < 200000);
    assert_true(peak_memory(&r) - before < MEMORY_MAX);
    expect_alive(other);
    gate_stop(&r);
}

/* ---- ends ---- */

static void vanish(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *stays = gate_open(&r, GATE_TCP, "");
    for (unsigned i = 0; i < 20; i++) {
        struct gate_client *c = gate_open(&r, GATE_TCP, "");
        struct linger reset = {.l_onoff = 1};
        gate_send_text(c, ask);
        if (i % 2)
            assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
        gate_close(c);
    }
    expect_alive(stays);
    gate_serve(&r, 50);
    struct gate_client *c = gate_http(&r, GATE_TCP, "GET", "/metrics", "");
    assert_non_null(strstr(c->body, "\nbridle_connections_open 2\n"));
    gate_stop(&r);
}

static bool is_exited(void *ctx)
{
    return ((struct gate_rig *)ctx)->exited;
}

static void drain(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_open(&r, GATE_TCP, "");
    struct gate_client *half = gate_connect(&r, GATE_TCP);
    expect_alive(c);
    gate_drain(&r, 30);
    gate_expect_close(c, 1001);
    gate_expect_eof(c);
    gate_close(c);
    gate_expect_eof(half);
    gate_until(&r, is_exited, &r, "the end of the gateway");
    assert_int_equal(gate_wait_exit(&r), 0);
    gate_stop(&r);
}

static void bridled_is_gone(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = gate_open(&r, GATE_UNIX, "");
    br_loop_unwatch_chan(r.loop, &r.bridled);
    br_chan_close(&r.bridled);
    gate_expect_close(c, 1011);
    gate_stop(&r);
}

/* What bridled may not send ends the program, which is not trusted to go on. */
static void bridled_is_wrong(void **state)
{
    struct gate_rig r;
    (void)state;
    gate_start(&r, NULL);
    assert_int_equal(br_chan_send(&r.bridled, BR_MSG_GATE_START, 0, NULL, NULL), 0);
    gate_until(&r, is_exited, &r, "the end of the gateway");
    assert_int_not_equal(gate_wait_exit(&r), 0);
    assert_non_null(strstr(gate_log(&r), "GATE_START"));
    r.pid = -1;
    r.status = 0;
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(bad_frames),
        cmocka_unit_test(message_limits),
        cmocka_unit_test(slow_ones),
        cmocka_unit_test(connection_limits),
        cmocka_unit_test(head_limits),
        cmocka_unit_test(tiny_frames),
        cmocka_unit_test(never_reads),
        cmocka_unit_test(vanish),
        cmocka_unit_test(drain),
        cmocka_unit_test(bridled_is_gone),
        cmocka_unit_test(bridled_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
