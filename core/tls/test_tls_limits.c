/*
 * bridle-tls as a server, the program itself: how many connections it takes, who makes room for
 * whom, and that nobody keeps a place who neither speaks nor reads.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tls/test_server.h"

static void test_connection_limit(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c[3];
    int plain[3];
    assert_true(tls_rig_start(
        &r,
        &(struct tls_rig_options){.chain = server.pem, .key = server.key_pem, .connections = 3}));
    for (unsigned i = 0; i < 3; i++) {
        assert_true(tls_client_open(&c[i], r.port, &trusting));
        assert_true(tls_rig_next(&r));
        plain[i] = br_steal_fd(&r.plain);
    }
    assert_refused(&r, &trusting);
    for (unsigned i = 0; i < 3; i++)
        assert_through(&c[i], plain[i]);
    tls_client_close(&c[1]);
    assert_true(fd_at_end(plain[1]));
    br_close(&plain[1]);
    /* as soon as it has noticed */
    bool opened = false;
    for (unsigned i = 0; i < 500 && !opened; i++) {
        opened = tls_client_open(&c[1], r.port, &trusting);
        if (!opened) {
            tls_client_close(&c[1]);
            (void)poll(NULL, 0, 20);
        }
    }
    assert_true(opened);
    assert_true(tls_rig_next(&r));
    for (unsigned i = 0; i < 3; i++)
        tls_client_close(&c[i]);
    br_close(&plain[0]);
    br_close(&plain[2]);
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* Who only connects makes room for who speaks, the oldest first. */
static void test_silent_ones_make_room(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c[3];
    int silent[3], plain[3];
    char byte;
    assert_true(tls_rig_start(
        &r,
        &(struct tls_rig_options){.chain = server.pem, .key = server.key_pem, .connections = 3}));
    for (unsigned i = 0; i < 3; i++)
        silent[i] = tls_dial(r.port);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(tls_client_open(&c[i], r.port, &trusting));
        assert_true(tls_rig_next(&r));
        plain[i] = br_steal_fd(&r.plain);
        assert_true(fd_at_end(silent[i]));
        for (unsigned k = i + 1; k < 3; k++)
            assert_int_equal(recv(silent[k], &byte, 1, MSG_DONTWAIT), -1);
    }
    assert_refused(&r, &trusting); /* but not who is in */
    for (unsigned i = 0; i < 3; i++) {
        assert_through(&c[i], plain[i]);
        tls_client_close(&c[i]);
        br_close(&plain[i]);
        br_close(&silent[i]);
    }
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* A client that reads nothing, and which the gateway has closed, does not keep its place. */
static void test_who_never_reads(void **state)
{
    (void)state;
    static uint8_t much[65536];
    struct tls_rig r;
    struct tls_client deaf, c;
    assert_true(tls_rig_start(
        &r, &(struct tls_rig_options){
                .chain = server.pem, .key = server.key_pem, .seconds = 1, .connections = 1}));
    assert_true(tls_client_open(&deaf, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    for (unsigned idle = 0; idle < 20;) {
        bool went = send(r.plain, much, sizeof(much), MSG_DONTWAIT) > 0;
        idle = went ? 0 : idle + 1;
        if (!went)
            (void)poll(NULL, 0, 10);
    }
    assert_refused(&r, &trusting);
    br_close(&r.plain);
    bool opened = false;
    for (unsigned i = 0; i < 200 && !opened; i++) {
        opened = tls_client_open(&c, r.port, &trusting);
        if (!opened) {
            tls_client_close(&c);
            (void)poll(NULL, 0, 50);
        }
    }
    assert_true(opened);
    tls_client_close(&c);
    tls_client_close(&deaf);
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* The gateway goes in the very turn in which many handshakes go on, and connections speak. */
static void test_all_in_one_turn(void **state)
{
    (void)state;
    enum { N = 60 };
    struct tls_rig r;
    struct tls_client c[N / 2];
    int silent[N], plain[N / 2];
    start(&r);
    for (unsigned i = 0; i < N / 2; i++) {
        silent[i] = tls_dial(r.port); /* before and behind those that speak */
        assert_true(tls_client_open(&c[i], r.port, &trusting));
        assert_true(tls_rig_next(&r));
        plain[i] = br_steal_fd(&r.plain);
    }
    for (unsigned i = N / 2; i < N; i++)
        silent[i] = tls_dial(r.port);
    assert_through(&c[0], plain[0]);
    assert_int_equal(kill(r.pid, SIGSTOP), 0);
    br_chan_close(&r.gateway);
    for (unsigned i = 0; i < N; i++)
        assert_true(fd_send_all(silent[i], "\x16\x03\x01\x02", 4));
    for (unsigned i = 0; i < N / 2; i++) {
        assert_true(tls_send_all(c[i].ssl, "speaks", 6));
        br_close(&plain[i]);
    }
    assert_int_equal(kill(r.pid, SIGCONT), 0);
    for (unsigned i = 0; i < N; i++) {
        char byte;
        assert_true(read(silent[i], &byte, 1) <= 0);
        br_close(&silent[i]);
    }
    for (unsigned i = 0; i < N / 2; i++)
        tls_client_close(&c[i]);
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* A gateway that is busy gets all of them later. */
static void test_busy_gateway(void **state)
{
    (void)state;
    enum { N = 320 };
    struct tls_rig r;
    static struct tls_client c[N];
    assert_true(tls_rig_start(
        &r,
        &(struct tls_rig_options){.chain = server.pem, .key = server.key_pem, .connections = N}));
    for (unsigned i = 0; i < N; i++) {
        assert_true(tls_client_open(&c[i], r.port, &trusting));
        assert_true(tls_send_all(c[i].ssl, &i, sizeof(i)));
    }
    bool seen[N] = {false};
    for (unsigned i = 0; i < N; i++) {
        unsigned which = N, back = N;
        assert_true(tls_rig_next(&r));
        assert_true(fd_recv_all(r.plain, &which, sizeof(which)));
        assert_true(which < N && !seen[which]);
        seen[which] = true;
        assert_true(fd_send_all(r.plain, &which, sizeof(which)));
        assert_true(tls_recv_all(c[which].ssl, &back, sizeof(back)));
        assert_int_equal(back, which);
        br_close(&r.plain);
    }
    for (unsigned i = 0; i < N; i++)
        tls_client_close(&c[i]);
    assert_int_equal(tls_rig_stop(&r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connection_limit), cmocka_unit_test(test_silent_ones_make_room),
        cmocka_unit_test(test_who_never_reads),  cmocka_unit_test(test_all_in_one_turn),
        cmocka_unit_test(test_busy_gateway),
    };
    return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
