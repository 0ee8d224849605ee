/*
 * How often an address may begin a handshake: the rate at N and N + 1, what counts as one address,
 * and that the table stays what it is; then the program itself, which closes who comes too often
 * before TLS begins, and serves the others.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tls/test_server.h"
#include "tls/tls_priv.h"

static struct tls_rates rates;

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage a = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    void *to = a.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&a)->sin_addr
                                      : (void *)&((struct sockaddr_in6 *)&a)->sin6_addr;
    assert_int_equal(inet_pton(a.ss_family, text, to), 1);
    return a;
}

/* How many of `most` may, at one moment. */
static unsigned may(const char *text, uint64_t now, unsigned most)
{
    struct sockaddr_storage a = address(text);
    unsigned n = 0;
    while (n < most && tls_may_shake(&rates, &a, now))
        n++;
    return n;
}

static void test_rate(void **state)
{
    enum { MOST = 2 * TLS_SHAKES_BURST };
    uint64_t now = 1000000000;
    (void)state;
    tls_rates_init(&rates);
    assert_int_equal(may("192.0.2.1", now, MOST), TLS_SHAKES_BURST);
    assert_int_equal(may("192.0.2.1", now, MOST), 0);
    assert_int_equal(may("::ffff:192.0.2.1", now, MOST), 0); /* the same one */
    assert_int_equal(may("192.0.2.2", now, MOST), TLS_SHAKES_BURST);
    assert_int_equal(may("2001:db8::1", now, MOST), TLS_SHAKES_BURST);
    assert_int_equal(may("2001:db8::2", now, MOST), 0); /* of the same network */
    assert_int_equal(may("2001:db8:0:1::1", now, MOST), TLS_SHAKES_BURST);
    now += 1000000u / TLS_SHAKES_PER_SECOND - 1;
    assert_int_equal(may("192.0.2.1", now, MOST), 0);
    assert_int_equal(may("192.0.2.1", now + 1, MOST), 1);
    now += 1000000;
    assert_int_equal(may("192.0.2.2", now, MOST), TLS_SHAKES_PER_SECOND);
    now += 3600ull * 1000000; /* a long time brings no more than the burst */
    assert_int_equal(may("192.0.2.1", now, MOST), TLS_SHAKES_BURST);
}

/* More addresses than there is room for: none of them is kept out that has not come too often, and
 * one that has is not forgotten for a few others. */
static void test_many_addresses(void **state)
{
    uint64_t now = 1000000000;
    (void)state;
    tls_rates_init(&rates);
    assert_int_equal(may("192.0.2.1", now, 2 * TLS_SHAKES_BURST), TLS_SHAKES_BURST);
    for (unsigned i = 0; i < 100000; i++) {
        char text[32];
        snprintf(text, sizeof(text), "10.%u.%u.%u", i >> 16, i >> 8 & 255, i & 255);
        assert_int_equal(may(text, now, 1), 1);
    }
    assert_int_equal(may("192.0.2.1", now, 1), 0);
}

/* ---- the program ---- */

static unsigned closed_of(const int *fd, unsigned n)
{
    unsigned closed = 0;
    char byte;
    for (unsigned i = 0; i < n; i++)
        closed += recv(fd[i], &byte, 1, MSG_DONTWAIT) == 0;
    return closed;
}

static int dial_from(const char *source, unsigned port)
{
    struct sockaddr_storage own = address(source);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(struct sockaddr_in)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void test_who_comes_too_often(void **state)
{
    enum { MOST = 4 * TLS_SHAKES_BURST, STEP = 100 };
    static int fd[MOST];
    struct tls_rig r;
    struct rlimit limit;
    unsigned n = 0;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(tls_rig_start(&r, &(struct tls_rig_options){.chain = server.pem,
                                                            .key = server.key_pem,
                                                            .connections = 2 * MOST}));
    assert_serves(&r, &trusting, "");
    while (n < TLS_SHAKES_BURST)
        fd[n++] = dial_from("127.0.0.1", r.port);
    while (n < MOST && closed_of(fd, n) == 0) {
        for (unsigned i = 0; i < STEP; i++)
            fd[n++] = dial_from("127.0.0.1", r.port);
        (void)poll(NULL, 0, 20);
    }
    assert_true(closed_of(fd, n) > 0);
    assert_int_equal(closed_of(fd, TLS_SHAKES_BURST - 1), 0); /* with the one that was served */
    assert_true(tls_rig_none(&r));
    /* another address is served meanwhile */
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int second = dial_from("127.0.0.2", r.port);
    assert_int_equal(SSL_set_fd(ssl, second), 1);
    assert_int_equal(SSL_connect(ssl), 1);
    assert_true(tls_rig_next(&r));
    assert_string_equal(r.address, "127.0.0.2");
    br_close(&r.plain);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    br_close(&second);
    for (unsigned i = 0; i < n; i++)
        br_close(&fd[i]);
    assert_int_equal(tls_rig_stop(&r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_many_addresses),
        cmocka_unit_test(test_who_comes_too_often),
    };
    return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
