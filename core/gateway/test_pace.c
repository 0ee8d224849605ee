/*
 * What is sent to a client, when, and how long is waited for it: pacing for strict clients, clients
 * that do not read or do not answer, and the end of each. With a clock of the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_inside.h"

static unsigned opened, closed, made, goal;

static void count_open(struct conn *c)
{
    (void)c;
    opened++;
}

static void count_closed(struct conn *c)
{
    assert_int_equal(conn_send(c, &(struct gw_piece){"x", 1}, 1), -BR_E_PEER_GONE);
    closed++;
}

static int say(struct conn *c, unsigned number)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "message %u", number);
    return conn_send(c, &(struct gw_piece){text, (size_t)n}, 1);
}

/* As many as are wanted, but no more than there is room for. */
static void produce(struct conn *c)
{
    while (made < goal && say(c, made++) == 0)
        ;
}

static void start(void)
{
    inside_start();
    opened = closed = made = goal = 0;
    inside_plan.open = count_open;
    inside_plan.closed = count_closed;
}

/* ---- a strict client: its queue has room for 128, and is emptied between two reads ---- */

struct strict {
    int fd;
    struct br_buf in;
    size_t at;
    unsigned queue, deepest, got, pings;
    unsigned close_code;
    bool silent; /* answers no ping */
};

/* One read, and all that it brought; false: nothing was there. */
static bool strict_read(struct strict *s, size_t most)
{
    struct inside_frame f;
    if (inside_read(s->fd, &s->in, most) <= 0)
        return false;
    while (inside_frame(&s->in, &s->at, &f)) {
        char expected[64];
        if (f.op == BR_WS_TEXT) {
            snprintf(expected, sizeof(expected), "message %u", s->got++);
            assert_int_equal(f.n, strlen(expected));
            assert_memory_equal(f.p, expected, f.n);
            if (++s->queue > s->deepest)
                s->deepest = s->queue;
        } else if (f.op == BR_WS_PING) {
            s->pings++;
            if (!s->silent)
                inside_send(s->fd, 0x8a, f.p, f.n);
        } else if (f.op == BR_WS_CLOSE) {
            s->close_code = (unsigned)f.p[0] << 8 | f.p[1];
        }
    }
    s->queue = 0; /* its program takes them */
    return true;
}

static void strict_free(struct strict *s)
{
    br_buf_free(&s->in);
    br_close(&s->fd);
}

static void burst(void **state)
{
    (void)state;
    for (unsigned polite = 0; polite < 2; polite++) {
        start();
        struct strict s = {.in = BR_BUF_INIT(64u << 20)};
        struct conn *c = inside_open(&s.fd);
        goal = 10000;
        if (polite) {
            inside_plan.writable = produce;
            produce(c);
        } else { /* who makes them does not ask whether there is room */
            while (made < goal)
                assert_true(say(c, made++) >= 0);
        }
        unsigned idle = 0;
        while (s.got < goal && idle < 3) {
            inside_turn();
            idle = strict_read(&s, 65536) ? 0 : idle + 1;
        }
        assert_int_equal(s.got, goal);
        assert_true(s.deepest <= CONN_WINDOW);
        assert_true(s.deepest > CONN_PING_EVERY); /* control: it was not one by one */
        assert_int_equal(s.pings, goal / CONN_PING_EVERY);
        strict_free(&s);
        inside_turn();
        assert_int_equal(closed, 1);
        inside_stop();
    }
}

static void silent(void **state)
{
    (void)state;
    start();
    struct strict s = {.in = BR_BUF_INIT(64u << 20), .silent = true};
    struct conn *c = inside_open(&s.fd);
    goal = 10000;
    inside_plan.writable = produce;
    produce(c);
    for (unsigned i = 0; i < 100; i++) {
        inside_turn();
        (void)strict_read(&s, 65536);
        /* pongs that say nothing, or what was never sent, open no window */
        inside_send(s.fd, 0x8a, "", 0);
        inside_send(s.fd, 0x8a, "1000", 4);
        inside_send(s.fd, 0x8a, "99999999999999999999", 20);
        inside_send(s.fd, 0x8a, "-1", 2);
        inside_send(s.fd, 0x8a, "0x60", 4);
    }
    assert_int_equal(s.got, CONN_WINDOW);
    inside_pass(29);
    assert_int_equal(closed, 0);
    inside_pass(2);
    assert_int_equal(closed, 1);
    (void)strict_read(&s, 65536);
    assert_int_equal(s.close_code, 1013);
    assert_int_equal(s.got, CONN_WINDOW);
    assert_int_equal(inside.counters.slow_clients, 1);
    inside_pass(10); /* it does not answer the close either */
    assert_int_equal(inside.nconns, 0);
    strict_free(&s);
    inside_stop();
}

/* A pong for each ping keeps the window open, one for the last of several as well. */
static void last_pong(void **state)
{
    (void)state;
    start();
    struct strict s = {.in = BR_BUF_INIT(64u << 20), .silent = true};
    struct conn *c = inside_open(&s.fd);
    for (unsigned i = 0; i < 300; i++)
        assert_true(say(c, i) >= 0);
    for (unsigned sent = 96; sent < 300; sent += 96) {
        char text[16];
        inside_turn();
        while (strict_read(&s, 65536))
            inside_turn();
        assert_int_equal(s.got, sent);
        int n = snprintf(text, sizeof(text), "%u", sent);
        inside_send(s.fd, 0x8a, text, (size_t)n);
    }
    inside_turn();
    (void)strict_read(&s, 65536);
    assert_int_equal(s.got, 300);
    strict_free(&s);
    inside_stop();
}

/* ---- silence ---- */

static void idle(void **state)
{
    (void)state;
    start();
    struct strict s = {.in = BR_BUF_INIT(1u << 20)};
    (void)inside_open(&s.fd);
    for (unsigned minute = 1; minute <= 60; minute++) {
        inside_pass(62);
        (void)strict_read(&s, 65536);
        assert_int_equal(s.pings, minute);
        inside_turn();
    }
    assert_int_equal(closed, 0);
    s.silent = true; /* its machine has no power any more */
    inside_pass(61);
    (void)strict_read(&s, 65536);
    assert_int_equal(closed, 0);
    inside_pass(31);
    assert_int_equal(closed, 1);
    inside_pass(6);
    assert_int_equal(inside.nconns, 0);
    strict_free(&s);
    inside_stop();
}

static void stuck(void **state)
{
    static char big[200000];
    (void)state;
    start();
    memset(big, 'x', sizeof(big));
    int fd;
    struct conn *c = inside_open(&fd);
    for (unsigned i = 0; i < 10; i++)
        assert_true(conn_send(c, &(struct gw_piece){big, sizeof(big)}, 1) >= 0);
    inside_turn();
    assert_true(c->out.bytes > 0); /* more than the socket takes */
    inside_pass(29);
    assert_int_equal(closed, 0);
    inside_pass(2);
    assert_int_equal(closed, 1);
    inside_pass(6);
    assert_int_equal(inside.nconns, 0);
    br_close(&fd);
    inside_stop();
}

static void queue_limit(void **state)
{
    static char text[1000 - 4]; /* with its head: 1000 */
    (void)state;
    start();
    memset(text, 'x', sizeof(text));
    inside.settings.queue_bytes = 100 * 1000;
    for (unsigned more = 0; more < 2; more++) {
        struct strict s = {.in = BR_BUF_INIT(1u << 20), .silent = true};
        struct conn *c = inside_open(&s.fd);
        closed = 0;
        for (unsigned i = 0; i < 99; i++)
            assert_true(conn_send(c, &(struct gw_piece){text, sizeof(text)}, 1) >= 0);
        size_t room = inside.settings.queue_bytes - c->out.bytes;
        assert_true(room < sizeof(text) + 4);
        int r = conn_send(c, &(struct gw_piece){text, room + more}, 1);
        assert_int_equal(r < 0, more);
        assert_int_equal(closed, 0); /* not inside of the call */
        inside_turn();
        assert_int_equal(closed, more);
        strict_free(&s);
        inside_turn();
    }
    inside_stop();
}

/* All together may hold no more than this; then it is the turn of who holds much. */
static void held_limit(void **state)
{
    static char big[60000];
    struct conn *c[4];
    int fd[4];
    (void)state;
    start();
    memset(big, 'x', sizeof(big));
    for (unsigned i = 0; i < 4; i++)
        c[i] = inside_open(&fd[i]);
    for (unsigned i = 0; i < 10; i++) /* what the sockets take is not held */
        assert_true(conn_send(c[0], &(struct gw_piece){big, sizeof(big)}, 1) >= 0);
    inside_turn();
    assert_true(inside.held == c[0]->out.bytes && inside.held > 0);
    inside.held_max = inside.held + 30000;
    assert_true(conn_send(c[1], &(struct gw_piece){big, 29000}, 1) >= 0);
    assert_true(conn_send(c[1], &(struct gw_piece){big, 30000}, 1) >= 0); /* it holds little */
    assert_int_equal(conn_send(c[1], &(struct gw_piece){big, 30000}, 1), -BR_E_LIMIT_EXCEEDED);
    /* half a message is held as well */
    inside.held_max = 0;
    for (unsigned k = 0; k < 900; k++) {
        inside_send(fd[2], k ? 0x00 : 0x01, big, 100);
        inside_turn();
    }
    assert_int_equal(c[2]->close_code, 1013);
    assert_int_equal(c[2]->held, 0); /* and no more of it, though it goes on */
    assert_int_equal(c[2]->reader.message.cap, 0);
    assert_int_equal(c[3]->step, CONN_OPEN);
    /* nor is one kept that is begun while its connection is closed */
    inside.held_max = CONN_HELD_MAX;
    conn_close(c[3], BR_WS_CLOSE_POLICY, "");
    inside.held_max = 0;
    for (unsigned k = 0; k < 900 && c[3]->fd >= 0; k++) {
        inside_send(fd[3], k ? 0x00 : 0x01, big, 100);
        inside_turn();
        assert_true(c[3]->reader.message.cap <= 2 * CONN_HELD_SMALL);
    }
    assert_int_equal(c[3]->reader.message.cap, 0);
    for (unsigned i = 0; i < 4; i++)
        br_close(&fd[i]);
    inside_turn();
    assert_int_equal(inside.held, 0);
    inside_stop();
}

/* ---- ends ---- */

static void end_at_once(struct conn *c, const char *text, size_t n)
{
    unsigned before = closed;
    (void)text;
    (void)n;
    assert_true(say(c, 0) >= 0);
    conn_close(c, 1008, "because");
    assert_int_equal(say(c, 1), -BR_E_PEER_GONE);
    conn_close(c, 1000, "again");
    assert_int_equal(closed, before);
}

static void no_more(struct conn *c, const char *text, size_t n)
{
    (void)c, (void)text, (void)n;
    fail_msg("a message came after the end");
}

/* Who ends a connection inside of a message: what is queued goes, then the close, and no more. */
static void end_inside(void **state)
{
    (void)state;
    start();
    inside_plan.message = end_at_once;
    struct strict s = {.in = BR_BUF_INIT(1u << 20)};
    struct conn *c = inside_open(&s.fd);
    inside_send(s.fd, 0x81, "{}", 2);
    inside_send(s.fd, 0x81, "{}", 2);
    assert_int_equal(poll_turn(&inside, 0, NULL), 0);
    assert_int_equal(closed, 1);
    inside_plan.message = no_more;
    inside_send(s.fd, 0x81, "{}", 2);
    inside_turn();
    assert_true(strict_read(&s, 65536));
    assert_int_equal(s.got, 1);
    assert_int_equal(s.close_code, 1008);
    /* its answer ends the connection, or five seconds do */
    assert_int_equal(inside.nconns, 1);
    assert_ptr_equal(inside.conns, c);
    inside_pass(6);
    assert_int_equal(inside.nconns, 0);
    strict_free(&s);
    inside_stop();
}

static void answered_close(void **state)
{
    (void)state;
    start();
    struct strict s = {.in = BR_BUF_INIT(1u << 20)};
    struct conn *c = inside_open(&s.fd);
    conn_close(c, 1000, "");
    inside_turn();
    (void)strict_read(&s, 65536);
    assert_int_equal(s.close_code, 1000);
    inside_send(s.fd, 0x88, "\x03\xe8", 2);
    inside_turn();
    assert_int_equal(inside_read(s.fd, &s.in, 100), 0); /* the server ends first */
    assert_int_equal(inside.nconns, 1);
    br_close(&s.fd);
    inside_turn();
    assert_int_equal(inside.nconns, 0);
    assert_int_equal(closed, 1);
    strict_free(&s);
    inside_stop();
}

/* Those that it closes are the ones of another connection, too. */
static struct conn *friend;
static void end_friend(struct conn *c)
{
    count_closed(c);
    if (friend != c)
        conn_close(friend, 1000, "");
}

static void end_each_other(void **state)
{
    (void)state;
    start();
    int a, b;
    struct conn *first = inside_open(&a);
    friend = inside_open(&b);
    inside_plan.closed = end_friend;
    conn_close(first, 1000, "");
    assert_int_equal(closed, 0);
    inside_turn();
    assert_int_equal(closed, 2);
    br_close(&a);
    br_close(&b);
    inside_turn();
    assert_int_equal(closed, 2);
    inside_stop();
}

/* ---- cookies and failures, in time ---- */

/* A request on a connection of its own; the status, and the answer in `in`. */
static unsigned request(const char *text, char in[4096])
{
    unsigned status = 0;
    int fd;
    (void)inside_conn(&fd);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    inside_turn();
    ssize_t n = read(fd, in, 4095);
    assert_true(n > 0);
    in[n] = 0;
    assert_int_equal(sscanf(in, "HTTP/1.1 %u", &status), 1);
    br_close(&fd);
    inside_turn();
    return status;
}

static void login_time(void **state)
{
    static const char login[] = "POST /login HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
                                "\r\n";
    char in[4096], who[512];
    struct br_sha256 sha;
    (void)state;
    start();
    inside.auth.bridled = 1; /* the connection's uid alone is nobody */
    inside.auth.ntokens = 1;
    inside.auth.tokens[0] = (struct br_token){.name = "t", .access = BR_ACCESS_ANSWER};
    br_sha256_init(&sha);
    br_sha256_put(&sha, "good", 4);
    br_sha256_end(&sha, inside.auth.tokens[0].sha256);
    assert_int_equal(request(login, in), 200);
    char *cookie = strstr(in, "bridle=");
    assert_non_null(cookie);
    snprintf(who, sizeof(who), "GET /whoami HTTP/1.1\r\nHost: x\r\nCookie: %.*s\r\n\r\n",
             (int)strcspn(cookie, ";"), cookie);
    inside_pass(AUTH_COOKIE_US / 1000000 - 1);
    assert_int_equal(request(who, in), 200);
    assert_non_null(strstr(in, "token:t"));
    inside_pass(1);
    assert_int_equal(request(who, in), 401);
    inside_stop();
}

static void failures_time(void **state)
{
    static const char bad[] =
        "GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bad\r\n\r\n";
    char in[4096];
    (void)state;
    start();
    for (unsigned i = 0; i < AUTH_FAILURES_BURST; i++)
        assert_int_equal(request(bad, in), 401);
    for (unsigned i = 0; i < 5; i++) { /* what is not compared does not count */
        assert_int_equal(request(bad, in), 429);
        inside_pass(1);
    }
    assert_int_equal(request(bad, in), 429);
    inside_pass(1);
    assert_int_equal(request(bad, in), 401);
    assert_int_equal(request(bad, in), 429);
    inside_stop();
}

/* Readings of the store: counted is who it is, whatever its connections. */
static void readings_time(void **state)
{
    struct conn *c[3];
    int client[3];
    (void)state;
    start();
    for (unsigned i = 0; i < 3; i++) {
        c[i] = inside_open(&client[i]);
        snprintf(c[i]->who.name, sizeof(c[i]->who.name), "token:%s", i == 2 ? "another" : "one");
    }
    uint64_t limited = gw_counters(&inside)->rate_limited;
    for (unsigned i = 0; i < CONN_READINGS_BURST; i++)
        assert_true(conn_may_read(c[i % 2]));
    for (unsigned i = 0; i < 10; i++)
        assert_false(conn_may_read(c[i % 2])); /* what is refused does not count */
    assert_int_equal(gw_counters(&inside)->rate_limited, limited + 10);
    assert_true(conn_may_read(c[2]));
    inside_pass(1);
    for (unsigned i = 0; i < CONN_READINGS_PER_SECOND; i++)
        assert_true(conn_may_read(c[i % 2]));
    assert_false(conn_may_read(c[0]));
    close(client[0]);
    close(client[1]);
    inside_turn();
    c[0] = inside_open(&client[0]); /* a new connection is the same one */
    snprintf(c[0]->who.name, sizeof(c[0]->who.name), "token:one");
    assert_false(conn_may_read(c[0]));
    inside_pass(1);
    assert_true(conn_may_read(c[0]));
    close(client[0]);
    close(client[2]);
    inside_stop();
}

/* ---- timers ---- */

#define TIMERS 500u
static struct gw_timer timers[TIMERS];
static uint64_t due[TIMERS], last_due;
static unsigned fired;

static void on_fire(void *ctx)
{
    struct gw_timer *t = ctx;
    size_t i = (size_t)(t - timers);
    assert_true(due[i] && due[i] <= inside_now() && due[i] >= last_due);
    last_due = due[i];
    due[i] = 0;
    fired++;
}

static void many_timers(void **state)
{
    unsigned set = 0;
    (void)state;
    start();
    memset(timers, 0, sizeof(timers));
    fired = 0;
    srand(7);
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned k = 0; k < 50; k++) {
            unsigned i = (unsigned)rand() % TIMERS;
            uint64_t after = (uint64_t)(rand() % 20) * 1000000u;
            set += !due[i];
            if (rand() % 4 == 0) {
                set -= 1;
                gw_timer_cancel(&inside, &timers[i]);
                due[i] = 0;
                continue;
            }
            due[i] = inside_now() + after;
            gw_timer_set(&inside, &timers[i], after, on_fire, &timers[i]);
        }
        last_due = 0;
        inside_pass(1);
        for (unsigned i = 0; i < TIMERS; i++)
            assert_true(!due[i] || due[i] > inside_now());
    }
    inside_pass(30);
    assert_int_equal(fired, set);
    assert_null(inside.poll.timers);
    inside_stop();
}

/* ---- peers ---- */

static void peers_bounded(void **state)
{
    struct peers p;
    struct peer_key k = {.kind = 'a'};
    (void)state;
    start();
    peers_init(&p);
    struct peer *kept = peer_enter(&p, &k);
    for (uint32_t i = 1; i <= PEER_REMEMBERED_MAX + 1000; i++) {
        memcpy(k.bytes, &i, sizeof(i));
        struct peer *w = peer_enter(&p, &k);
        w->failure_at = i;
        peer_leave(&p, w);
        assert_true(p.nidle <= PEER_REMEMBERED_MAX);
    }
    assert_int_equal(p.nidle, PEER_REMEMBERED_MAX);
    struct peer *w = peer_enter(&p, &k); /* the last is remembered, one that went is not */
    assert_int_equal(w->failure_at, PEER_REMEMBERED_MAX + 1000);
    memcpy(k.bytes, &(uint32_t){1}, 4);
    assert_int_equal(peer_enter(&p, &k)->failure_at, 0);
    memset(k.bytes, 0, sizeof(k.bytes));
    assert_ptr_equal(peer_enter(&p, &k), kept);
    peers_free(&p);
    inside_stop();
}

static void rates(void **state)
{
    uint64_t at = 0, now = 1000000000;
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        assert_true(peer_rate(&at, now, 1000000, 10));
    assert_false(peer_rate(&at, now, 1000000, 10));
    assert_false(peer_rate(&at, now + 999999, 1000000, 10));
    assert_true(peer_rate(&at, now + 1000000, 1000000, 10));
    assert_false(peer_rate(&at, now + 1000000, 1000000, 10));
    now += 3600000000u; /* a long time brings no more than the burst */
    for (unsigned i = 0; i < 10; i++)
        assert_true(peer_rate(&at, now, 1000000, 10));
    assert_false(peer_rate(&at, now, 1000000, 10));
    assert_true(peer_rate(&at, now, 0, 10)); /* no limit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst),          cmocka_unit_test(silent),
        cmocka_unit_test(last_pong),      cmocka_unit_test(idle),
        cmocka_unit_test(stuck),          cmocka_unit_test(queue_limit),
        cmocka_unit_test(held_limit),     cmocka_unit_test(end_inside),
        cmocka_unit_test(answered_close), cmocka_unit_test(end_each_other),
        cmocka_unit_test(many_timers),    cmocka_unit_test(login_time),
        cmocka_unit_test(failures_time),  cmocka_unit_test(peers_bounded),
        cmocka_unit_test(readings_time),  cmocka_unit_test(rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
