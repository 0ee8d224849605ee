/*
 * bridle-tls as a server, the program itself: who gets in, what arrives on the plain end, what ends
 * a connection, and what it keeps from others. Everybody who does not get in is never heard of by
 * the gateway.
 */
#include <errno.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "tls/test_server.h"
#include "wire/types.h"

/* ---- handshakes ---- */

static void test_versions(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    start(&r);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(tls_client_open(
            &c, r.port, &(struct tls_client_options){.trust = &authority, .max = versions[i]}));
        assert_int_equal(SSL_version(c.ssl), versions[i]);
        assert_true(tls_rig_next(&r));
        assert_int_equal(r.index, 5);
        assert_string_equal(r.address, "127.0.0.1");
        assert_string_equal(r.name, "");
        assert_through(&c, r.plain);
        /* nothing that a later connection could be resumed with */
        SSL_SESSION *session = SSL_get1_session(c.ssl);
        assert_false(SSL_SESSION_has_ticket(session));
        SSL_SESSION_free(session);
        br_close(&r.plain);
        tls_client_close(&c);
    }
    assert_refused(&r, &(struct tls_client_options){.max = TLS1_1_VERSION});
    assert_refused(&r, &(struct tls_client_options){.max = TLS1_VERSION});
    assert_serves(&r, &trusting, "");
    assert_int_equal(tls_rig_stop(&r), 0);
}

static void test_protocols(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c;
    const unsigned char *chosen;
    unsigned n;
    start(&r);
    assert_true(tls_client_open(
        &c, r.port,
        &(struct tls_client_options){.trust = &authority, .alpn = "\x02h2\x08http/1.1"}));
    SSL_get0_alpn_selected(c.ssl, &chosen, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(chosen, "http/1.1", 8);
    assert_true(tls_rig_next(&r));
    tls_client_close(&c);
    br_close(&r.plain);
    assert_refused(&r, &(struct tls_client_options){.trust = &authority, .alpn = "\x02h2"});
    assert_int_equal(tls_rig_stop(&r), 0);
}

static void test_not_tls(void **state)
{
    (void)state;
    struct tls_rig r;
    char text[4096];
    start(&r);
    int fd = tls_dial(r.port);
    assert_true(fd_send_all(fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27));
    while (read(fd, text, sizeof(text)) > 0)
        assert_null(memmem(text, sizeof(text), "HTTP/1.1 ", 9));
    (void)close(fd);
    assert_true(tls_rig_none(&r));
    assert_serves(&r, &trusting, "");
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* A handshake that does not go on ends; those of others are not kept waiting by it. */
static void test_slow_handshakes(void **state)
{
    (void)state;
    struct tls_rig r;
    int silent[20];
    assert_true(tls_rig_start(
        &r, &(struct tls_rig_options){.chain = server.pem, .key = server.key_pem, .seconds = 1}));
    for (unsigned i = 0; i < BR_ARRAY_LEN(silent); i++) {
        silent[i] = tls_dial(r.port);
        if (i % 2) /* the beginning of a ClientHello */
            assert_true(fd_send_all(silent[i], "\x16\x03\x01\x02\x00\x01", 6));
    }
    assert_serves(&r, &trusting, "");
    for (unsigned i = 0; i < BR_ARRAY_LEN(silent); i++) {
        char text[64];
        while (read(silent[i], text, sizeof(text)) > 0) /* an alert may come first */
            ;
        assert_true(errno != EAGAIN);
        (void)close(silent[i]);
    }
    assert_true(tls_rig_none(&r));
    assert_serves(&r, &trusting, "");
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* ---- certificates of clients ---- */

static void test_mutual(void **state)
{
    (void)state;
    struct tls_rig r;
    struct cert foreign =
        cert_make(&other, &(struct cert_wish){.cn = "ops laptop", .usage = "clientAuth"});
    struct cert self =
        cert_make(NULL, &(struct cert_wish){.cn = "ops laptop", .usage = "clientAuth"});
    struct cert expired = cert_make(
        &authority, &(struct cert_wish){
                        .cn = "ops laptop", .usage = "clientAuth", .from_days = -9, .to_days = -1});
    struct cert early = cert_make(
        &authority, &(struct cert_wish){
                        .cn = "ops laptop", .usage = "clientAuth", .from_days = 1, .to_days = 9});
    struct cert *const bad[] = {&foreign, &self, &expired, &early, &server};
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (unsigned require = 0; require < 2; require++) {
        start_mutual(&r, require);
        for (unsigned v = 0; v < 2; v++) {
            struct tls_client_options o = {.trust = &authority, .max = versions[v]};
            if (require)
                assert_refused(&r, &o);
            else
                assert_serves(&r, &o, "");
            for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
                o.identity = bad[i];
                assert_refused(&r, &o);
            }
            o.identity = &laptop;
            assert_serves(&r, &o, "ops laptop");
        }
        assert_int_equal(tls_rig_stop(&r), 0);
    }
    cert_free(&foreign);
    cert_free(&self);
    cert_free(&expired);
    cert_free(&early);
}

static void test_names(void **state)
{
    (void)state;
    struct tls_rig r;
    static const struct {
        const char *cn, *cn2;
        bool good;
    } rows[] = {
        {"a", NULL, true},
        {"uid:0", NULL, true}, /* it becomes "cert:uid:0" */
        {"012345678901234567890123456789012345678901234567890123456789012", NULL, true},
        {"0123456789012345678901234567890123456789012345678901234567890123", NULL, false},
        {NULL, NULL, false},
        {"one", "two", false},
        {"line\nbreak", NULL, false},
        {"esc\x1b[31m", NULL, false},
        {"l\xc3\xa4ptop", NULL, false},
    };
    start_mutual(&r, true);
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct cert c = cert_make(
            &authority,
            &(struct cert_wish){.cn = rows[i].cn, .cn2 = rows[i].cn2, .usage = "clientAuth"});
        struct tls_client_options o = {.trust = &authority, .identity = &c};
        if (rows[i].good)
            assert_serves(&r, &o, rows[i].cn);
        else
            assert_refused(&r, &o);
        cert_free(&c);
    }
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* Without authorities nobody is asked for a certificate, and one that is shown counts for nothing.
 */
static void test_nobody_is_asked(void **state)
{
    (void)state;
    struct tls_rig r;
    start(&r);
    assert_serves(&r, &(struct tls_client_options){.trust = &authority, .identity = &laptop}, "");
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* ---- what goes through ---- */

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint8_t)(seed >> 24);
    }
}

/* Both directions at once, in a process of its own for one of them. */
static void test_large_transfers(void **state)
{
    (void)state;
    enum { N = 8 * 1024 * 1024 };
    struct tls_rig r;
    struct tls_client c;
    uint8_t *up = malloc(N), *down = malloc(N), *got = malloc(N);
    assert_true(up && down && got);
    fill(up, N, 1);
    fill(down, N, 2);
    start(&r);
    for (unsigned turn = 0; turn < 2; turn++) {
        assert_true(tls_client_open(
            &c, r.port,
            &(struct tls_client_options){.trust = &authority,
                                         .max = turn ? TLS1_3_VERSION : TLS1_2_VERSION}));
        assert_true(tls_rig_next(&r));
        pid_t pid = fork(); /* the gateway's side: it sends all, and then reads all */
        assert_true(pid >= 0);
        if (pid == 0) {
            pid_t reader = fork();
            if (reader == 0)
                _exit(fd_recv_all(r.plain, got, N) && memcmp(got, up, N) == 0 ? 0 : 1);
            int status;
            bool sent = fd_send_all(r.plain, down, N);
            _exit(sent && waitpid(reader, &status, 0) == reader && status == 0 ? 0 : 1);
        }
        br_close(&r.plain);
        size_t sent = 0, read = 0;
        assert_int_equal(fcntl(c.fd, F_SETFL, O_NONBLOCK), 0);
        SSL_set_mode(c.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        while (sent < N || read < N) {
            int k = sent < N ? SSL_write(c.ssl, up + sent, N - (int)sent) : 0;
            sent += k > 0 ? (size_t)k : 0;
            int m = read < N ? SSL_read(c.ssl, got + read, N - (int)read) : 0;
            read += m > 0 ? (size_t)m : 0;
            if (k <= 0 && m <= 0) {
                struct pollfd p = {.fd = c.fd, .events = POLLIN | (sent < N ? POLLOUT : 0)};
                assert_int_equal(poll(&p, 1, 10000), 1);
            }
        }
        assert_memory_equal(got, down, N);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        tls_client_close(&c);
    }
    assert_int_equal(tls_rig_stop(&r), 0);
    free(up);
    free(down);
    free(got);
}

static long resident_kib(pid_t pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    assert_true(br_read_text(AT_FDCWD, path, text, sizeof(text)) > 0);
    char *at = strstr(text, "VmRSS:");
    assert_non_null(at);
    return strtol(at + 6, NULL, 10);
}

/* A gateway that does not read: what waits is in the kernel's buffers, which are bounded. */
static void test_who_does_not_read(void **state)
{
    (void)state;
    enum { CHUNK = 16384, MOST = 64 * 1024 * 1024 };
    struct tls_rig r;
    struct tls_client c;
    uint8_t *chunk = calloc(1, CHUNK);
    size_t sent = 0, got = 0;
    assert_non_null(chunk);
    start(&r);
    assert_true(tls_client_open(&c, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    long before = resident_kib(r.pid);
    assert_int_equal(fcntl(c.fd, F_SETFL, O_NONBLOCK), 0);
    SSL_set_mode(c.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    for (unsigned idle = 0; idle < 20 && sent < MOST;) {
        int k = SSL_write(c.ssl, chunk, CHUNK);
        sent += k > 0 ? (size_t)k : 0;
        idle = k > 0 ? 0 : idle + 1;
        if (k <= 0)
            (void)poll(NULL, 0, 10);
    }
    assert_true(sent > 0 && sent < MOST);
    assert_true(resident_kib(r.pid) - before < 2048);
    while (got < sent) { /* and all of it comes, once somebody reads */
        ssize_t k = recv(r.plain, chunk, CHUNK, 0);
        assert_true(k > 0);
        got += (size_t)k;
    }
    tls_client_close(&c);
    assert_int_equal(tls_rig_stop(&r), 0);
    free(chunk);
}

static void test_half_close(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c;
    char got[8];
    start(&r);
    /* the client has said all, the answer still comes */
    assert_true(tls_client_open(&c, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    assert_true(tls_send_all(c.ssl, "ask", 3));
    assert_int_equal(SSL_shutdown(c.ssl), 0);
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    assert_true(fd_recv_all(r.plain, got, 3));
    assert_true(fd_at_end(r.plain));
    assert_true(fd_send_all(r.plain, "answer", 6));
    assert_true(tls_recv_all(c.ssl, got, 6));
    assert_memory_equal(got, "answer", 6);
    br_close(&r.plain);
    assert_int_equal(SSL_read(c.ssl, got, 1), 0);
    assert_int_equal(SSL_get_shutdown(c.ssl), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    tls_client_close(&c);
    /* and the other way round */
    assert_true(tls_client_open(&c, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    assert_true(fd_send_all(r.plain, "bye", 3));
    assert_int_equal(shutdown(r.plain, SHUT_WR), 0);
    assert_true(tls_recv_all(c.ssl, got, 3));
    assert_int_equal(SSL_read(c.ssl, got, 1), 0);
    assert_int_equal(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN);
    assert_true(tls_send_all(c.ssl, "last", 4));
    assert_true(fd_recv_all(r.plain, got, 4));
    tls_client_close(&c);
    assert_true(fd_at_end(r.plain));
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* What the gateway sent before it closed arrives, although the client goes on sending. */
static void test_close_loses_nothing(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct tls_rig r;
    struct tls_client c;
    char *text = malloc(N), *got = malloc(N);
    assert_true(text && got);
    memset(text, 'x', N);
    start(&r);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(tls_client_open(&c, r.port, &trusting));
        assert_true(tls_rig_next(&r));
        assert_true(tls_send_all(c.ssl, text, 1000)); /* nobody reads it */
        assert_true(fd_send_all(r.plain, text, N));
        br_close(&r.plain);
        assert_true(tls_send_all(c.ssl, text, 1000));
        assert_true(tls_recv_all(c.ssl, got, N));
        assert_memory_equal(got, text, N);
        assert_int_equal(SSL_read(c.ssl, got, 1), 0);
        assert_int_equal(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN);
        tls_client_close(&c);
    }
    assert_int_equal(tls_rig_stop(&r), 0);
    free(text);
    free(got);
}

static void test_reset(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c;
    struct linger now = {1, 0};
    start(&r);
    assert_true(tls_client_open(&c, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    assert_int_equal(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    br_close(&c.fd);
    assert_true(fd_at_end(r.plain));
    br_close(&r.plain);
    tls_client_close(&c);
    /* bytes that are no record: the end, and nothing of them is passed on */
    assert_true(tls_client_open(&c, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    assert_true(fd_send_all(c.fd, "\x17\x03\x03\x00\x20garbage garbage garbage garbage ", 37));
    assert_true(fd_at_end(r.plain));
    tls_client_close(&c);
    assert_int_equal(tls_rig_stop(&r), 0);
}

/* ---- files of the operator ---- */

static void test_reload(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client old;
    struct cert fresh = cert_make(
        &other, &(struct cert_wish){.cn = "server", .san = "DNS:localhost", .usage = "serverAuth"});
    start(&r);
    assert_true(tls_client_open(&old, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    int plain = br_steal_fd(&r.plain);
    /* what is wrong changes nothing */
    assert_false(
        tls_rig_reload(&r, &(struct tls_rig_options){.chain = fresh.pem, .key = server.key_pem}));
    assert_string_equal(r.ready_code, "INVALID_CONFIG");
    assert_serves(&r, &trusting, "");
    assert_true(
        tls_rig_reload(&r, &(struct tls_rig_options){.chain = fresh.pem, .key = fresh.key_pem}));
    assert_serves(&r, &(struct tls_client_options){.trust = &other}, "");
    assert_refused(&r, &(struct tls_client_options){.trust = &authority});
    assert_through(&old, plain); /* who is in stays in */
    /* from now on clients need a certificate */
    assert_true(tls_rig_reload(&r, &(struct tls_rig_options){.chain = server.pem,
                                                             .key = server.key_pem,
                                                             .authorities = authority.pem,
                                                             .require = true}));
    assert_refused(&r, &trusting);
    assert_serves(&r, &(struct tls_client_options){.trust = &authority, .identity = &laptop},
                  "ops laptop");
    assert_through(&old, plain);
    tls_client_close(&old);
    br_close(&plain);
    assert_int_equal(tls_rig_stop(&r), 0);
    cert_free(&fresh);
}

static char *encrypted_key(void)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *p, *s;
    assert_int_equal(
        PEM_write_bio_PKCS8PrivateKey(bio, server.key, EVP_aes_128_cbc(), "pass", 4, NULL, NULL),
        1);
    long n = BIO_get_mem_data(bio, &p);
    s = strndup(p, (size_t)n);
    BIO_free(bio);
    return s;
}

static void test_files_that_are_wrong(void **state)
{
    (void)state;
    BR_CLEANUP_FREE char *locked = encrypted_key();
    char cut[256];
    snprintf(cut, sizeof(cut), "%.200s", server.pem);
    const struct tls_rig_options bad[] = {
        {.chain = "", .key = server.key_pem},
        {.chain = server.pem, .key = ""},
        {.chain = "no PEM", .key = server.key_pem},
        {.chain = cut, .key = server.key_pem},
        {.chain = server.key_pem, .key = server.pem},
        {.chain = server.pem, .key = laptop.key_pem},
        {.chain = server.pem, .key = locked},
        {.chain = server.pem, .key = server.key_pem, .require = true},
        {.chain = server.pem, .key = server.key_pem, .authorities = "no PEM"},
        {.chain = server.pem, .key = server.key_pem, .authorities = cut},
        {.chain = server.pem, .key = server.key_pem, .authorities = server.key_pem},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct tls_rig r;
        assert_false(tls_rig_start(&r, &bad[i]));
        assert_string_equal(r.ready_code, "INVALID_CONFIG");
        assert_true(strlen(r.ready_text) > 20);
        assert_null(strstr(r.ready_text, "PRIVATE"));
        assert_int_equal(tls_rig_stop(&r), 1);
    }
}

/* ---- what it keeps from others, and how it ends ---- */

#ifndef BR_SANITIZED
/* A process of this uid: an ordinary program, or one that tries to look into `whom`. */
static pid_t as_uid(unsigned id, pid_t whom)
{
    char path[64];
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
            _exit(9);
        if (!whom)
            execlp("sleep", "sleep", "60", (char *)NULL);
        snprintf(path, sizeof(path), "/proc/%ld/environ", (long)whom);
        _exit(open(path, O_RDONLY) >= 0 ? 0 : errno == EACCES ? 13 : 1);
    }
    (void)close(ready[1]);
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 0); /* it has executed, or ended */
    (void)close(ready[0]);
    return pid;
}

static int looks_into(unsigned id, pid_t whom)
{
    int status;
    pid_t pid = as_uid(id, whom);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}
#endif

static void test_role(void **state)
{
    (void)state;
    struct tls_rig r;
    char path[64], text[4096];
    start(&r);
    snprintf(path, sizeof(path), "/proc/%ld/status", (long)r.pid);
    assert_true(br_read_text(AT_FDCWD, path, text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "NoNewPrivs:\t1\n"));
    assert_non_null(strstr(text, "CapEff:\t0000000000000000\n"));
    char uid[64];
    unsigned id = geteuid() == 0 ? BR_UID_TLS : geteuid();
    snprintf(uid, sizeof(uid), "Uid:\t%u\t%u\t%u\t%u\n", id, id, id, id);
    assert_non_null(strstr(text, uid));
#ifndef BR_SANITIZED
    assert_non_null(strstr(text, "Seccomp:\t2\n"));
    if (geteuid() == 0) { /* whoever has its uid cannot look into it, but into another program */
        pid_t control = as_uid(id, 0);
        assert_int_equal(looks_into(id, r.pid), 13);
        assert_int_equal(looks_into(id, control), 0);
        (void)kill(control, SIGKILL);
        assert_int_equal(waitpid(control, NULL, 0), control);
    }
#endif
    assert_int_equal(tls_rig_stop(&r), 0);
}

static void test_gateway_gone(void **state)
{
    (void)state;
    struct tls_rig r;
    struct tls_client c;
    char byte;
    start(&r);
    assert_true(tls_client_open(&c, r.port, &trusting));
    assert_true(tls_rig_next(&r));
    assert_true(fd_send_all(r.plain, "x", 1));
    br_close(&r.plain);
    br_chan_close(&r.gateway);
    assert_true(tls_recv_all(c.ssl, &byte, 1)); /* what was said before still comes */
    assert_int_equal(SSL_read(c.ssl, &byte, 1), 0);
    tls_client_close(&c);
    assert_int_equal(tls_rig_stop(&r), 0);
}

static void test_messages_out_of_place(void **state)
{
    (void)state;
    static const enum br_msg_type types[] = {BR_MSG_TLS_RELOAD, BR_MSG_TLS_CONN, BR_MSG_ROLE_READY,
                                             BR_MSG_TLS_START, BR_MSG_TLS_CONNECT};
    for (unsigned i = 0; i < BR_ARRAY_LEN(types); i++) {
        struct tls_rig r;
        BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
        for (unsigned k = 0; k < 30; k++)
            br_buf_put_u8(&out.buf, 0);
        tls_rig_spawn(&r);
        (void)br_chan_send(&r.sup, types[i], 0, &out, NULL);
        assert_int_equal(tls_rig_stop(&r), 1);
    }
    struct tls_rig r;
    BR_CLEANUP_OUT struct br_out again = BR_OUT_INIT;
    br_buf_put_u8(&again.buf, 1);
    br_out_fd(&again, 0, false);
    start(&r);
    (void)br_chan_send(&r.sup, BR_MSG_TLS_LISTEN, 0, &again, NULL);
    assert_int_equal(tls_rig_stop(&r), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_not_tls),
        cmocka_unit_test(test_slow_handshakes),
        cmocka_unit_test(test_mutual),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_nobody_is_asked),
        cmocka_unit_test(test_large_transfers),
        cmocka_unit_test(test_who_does_not_read),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_close_loses_nothing),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_reload),
        cmocka_unit_test(test_files_that_are_wrong),
        cmocka_unit_test(test_role),
        cmocka_unit_test(test_gateway_gone),
        cmocka_unit_test(test_messages_out_of_place),
    };
    return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
