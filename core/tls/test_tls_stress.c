/*
 * bridle-tls as a server, the program itself, with many connections on which anything happens in
 * any order: pieces of any size in both directions, ends of either side in every way, readers that
 * pause. What arrives is what was sent, in order; after an orderly end it is all of it; and in the
 * end the program has the descriptors that it had in the beginning.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tls/test_server.h"

enum { SLOTS = 16, STEPS = 30000, PIECE = 40000 };

struct way {
    size_t sent, got;
    bool ended; /* nothing more is sent */
    bool whole; /* and all of it has to arrive */
    bool over;  /* the end has arrived, or nobody reads it any more */
};
struct slot {
    struct tls_client c; /* fd -1: there is none */
    int plain;           /* -1: closed */
    uint32_t id;
    size_t retry; /* of a write that the library wants to see again */
    struct way up, down;
};

static struct tls_rig r;
static struct slot slots[SLOTS];
static uint32_t seed = 1, next_id = 1;
static unsigned opened, ends[6];

static uint32_t rnd(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* Byte number `at` of what goes one way on one connection. */
static void pattern(uint8_t *p, size_t n, uint32_t id, bool up, size_t at)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)((at + i) * 31 + (at + i) / 251 + id * 7 + (up ? 101 : 0));
}

static void arrived(struct way *w, uint32_t id, bool up, const uint8_t *p, size_t n)
{
    static uint8_t want[PIECE];
    pattern(want, n, id, up, w->got);
    assert_memory_equal(p, want, n);
    w->got += n;
    assert_true(w->got <= w->sent);
}

static void over(struct way *w)
{
    if (w->over)
        return;
    if (w->whole)
        assert_int_equal(w->got, w->sent);
    w->over = true;
}

/* ---- what may happen ---- */

static void open_slot(struct slot *s)
{
    *s = (struct slot){.id = next_id++, .plain = -1};
    assert_true(
        tls_client_open(&s->c, r.port,
                        &(struct tls_client_options){
                            .trust = &authority, .max = rnd(2) ? TLS1_3_VERSION : TLS1_2_VERSION}));
    assert_true(tls_rig_next(&r));
    s->plain = br_steal_fd(&r.plain);
    assert_int_equal(fcntl(s->plain, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(s->c.fd, F_SETFL, O_NONBLOCK), 0);
    SSL_set_mode(s->c.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    opened++;
}

static void send_up(struct slot *s)
{
    static uint8_t p[PIECE];
    if (s->up.ended)
        return;
    size_t n = s->retry ? s->retry : 1 + rnd(rnd(4) ? 300 : PIECE);
    pattern(p, n, s->id, true, s->up.sent);
    int k = SSL_write(s->c.ssl, p, (int)n);
    s->retry = k > 0 ? 0 : n;
    s->up.sent += k > 0 ? (size_t)k : 0;
    if (k > 0 && (size_t)k < n) /* the rest is another piece */
        s->retry = 0;
}

static void read_up(struct slot *s)
{
    static uint8_t p[PIECE];
    if (s->plain < 0 || s->up.over)
        return;
    ssize_t k = recv(s->plain, p, 1 + rnd(PIECE), 0);
    if (k > 0)
        arrived(&s->up, s->id, true, p, (size_t)k);
    else if (k == 0 || errno != EAGAIN)
        over(&s->up);
}

static void send_down(struct slot *s)
{
    static uint8_t p[PIECE];
    if (s->plain < 0 || s->down.ended)
        return;
    size_t n = 1 + rnd(rnd(4) ? 300 : PIECE);
    pattern(p, n, s->id, false, s->down.sent);
    ssize_t k = send(s->plain, p, n, MSG_NOSIGNAL);
    s->down.sent += k > 0 ? (size_t)k : 0;
}

static void read_down(struct slot *s)
{
    static uint8_t p[PIECE];
    if (s->down.over)
        return;
    int k = SSL_read(s->c.ssl, p, (int)(1 + rnd(PIECE)));
    if (k > 0)
        arrived(&s->down, s->id, false, p, (size_t)k);
    else if (SSL_get_error(s->c.ssl, k) != SSL_ERROR_WANT_READ)
        over(&s->down);
}

static void end_up(struct slot *s) /* the client has said all */
{
    if (s->up.ended || s->retry)
        return;
    s->up.ended = true;
    if (SSL_shutdown(s->c.ssl) < 0)
        return; /* its buffer is full: no orderly end */
    (void)shutdown(s->c.fd, SHUT_WR);
    s->up.whole = s->plain >= 0;
}

static void end_down(struct slot *s)
{
    if (s->plain < 0 || s->down.ended)
        return;
    (void)shutdown(s->plain, SHUT_WR);
    s->down.ended = s->down.whole = true;
}

static void close_plain(struct slot *s)
{
    if (s->plain < 0)
        return;
    br_close(&s->plain);
    s->down.ended = s->down.whole = true;
    s->up.over = true; /* nobody reads it */
}

static void close_client(struct slot *s, bool reset)
{
    struct linger now = {1, 0};
    if (reset)
        (void)setsockopt(s->c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    tls_client_close(&s->c);
    s->c.fd = -1;
    /* what has arrived is a beginning, and the plain side hears of the end */
    for (unsigned i = 0; i < 2000 && s->plain >= 0 && !s->up.over; i++) {
        s->up.whole = false;
        read_up(s);
        (void)poll(&(struct pollfd){.fd = s->plain, .events = POLLIN}, 1, 5);
    }
    assert_true(s->plain < 0 || s->up.over);
    br_close(&s->plain);
}

static void step(struct slot *s)
{
    if (s->c.fd < 0) {
        open_slot(s);
        return;
    }
    uint32_t what = rnd(1000);
    void (*const often[])(struct slot *) = {send_up, read_up, send_down, read_down};
    if (what < 980) {
        often[what % 4](s);
    } else if (what < 984) {
        end_up(s), ends[0]++;
    } else if (what < 988) {
        end_down(s), ends[1]++;
    } else if (what < 992) {
        close_plain(s), ends[2]++;
    } else if (what < 994) {
        close_client(s, true), ends[3]++;
    } else if (what < 996) {
        close_client(s, false), ends[4]++;
    }
    if (s->c.fd >= 0 && s->up.ended && s->down.over) {
        close_client(s, false);
        ends[5]++;
    }
}

static unsigned descriptors(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void test_anything_in_any_order(void **state)
{
    (void)state;
    struct tls_client first;
    start(&r);
    assert_true(tls_client_open(&first, r.port, &trusting)); /* what is made once is made */
    assert_true(tls_rig_next(&r));
    int plain = br_steal_fd(&r.plain);
    assert_through(&first, plain);
    unsigned before = geteuid() == 0 ? descriptors(r.pid) : 0;
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = (struct slot){.c.fd = -1, .plain = -1};
    for (unsigned i = 0; i < STEPS; i++)
        step(&slots[rnd(SLOTS)]);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].c.fd >= 0)
            close_client(&slots[i], rnd(2));
    assert_true(opened > 40);
    for (unsigned i = 0; i < BR_ARRAY_LEN(ends); i++)
        assert_true(ends[i] > 0);
    assert_through(&first, plain);
    for (unsigned i = 0; before && i < 1000 && descriptors(r.pid) != before; i++)
        (void)poll(NULL, 0, 5); /* those that linger */
    assert_true(!before || descriptors(r.pid) == before);
    tls_client_close(&first);
    br_close(&plain);
    assert_int_equal(tls_rig_stop(&r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_anything_in_any_order)};
    return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
