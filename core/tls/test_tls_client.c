/*
 * bridle-tls as a client, the program itself: which servers it speaks to. The servers are the same
 * program, one that is silent and one that does not speak TLS. To a server whose certificate is not
 * for its name, or signed by nobody who is trusted, nothing of a client is sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
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

#include "tls/test_server.h"

/* The server of these tests has more names. */
static struct cert named;

static int setup(void **state)
{
    (void)server_setup(state);
    named = cert_make(&authority,
                      &(struct cert_wish){.cn = "cn.example",
                                          .san = "DNS:a.example,DNS:*.b.example,DNS:*c.example,"
                                                 "IP:127.0.0.1,IP:::1",
                                          .usage = "serverAuth"});
    return 0;
}

static int teardown(void **state)
{
    cert_free(&named);
    return server_teardown(state);
}

static void serve(struct tls_rig *r, const struct cert *c)
{
    assert_true(tls_rig_start(r, &(struct tls_rig_options){.chain = c->pem, .key = c->key_pem}));
}

static void assert_both_ways(int a, int b)
{
    char got[5];
    assert_true(fd_send_all(a, "hello", 5));
    assert_true(fd_recv_all(b, got, 5));
    assert_memory_equal(got, "hello", 5);
    assert_true(fd_send_all(b, "world", 5));
    assert_true(fd_recv_all(a, got, 5));
    assert_memory_equal(got, "world", 5);
}

/* It speaks to the server as this host, and what is said goes through. */
static void assert_speaks(struct tls_rig *s, const char *host, const struct tls_rig_options *o)
{
    struct tls_rig c;
    int fd = tls_rig_connect(&c, host, tls_dial(s->port), o);
    assert_true(fd >= 0);
    assert_true(tls_rig_next(s));
    assert_both_ways(fd, s->plain);
    (void)close(fd);
    assert_true(fd_at_end(s->plain));
    br_close(&s->plain);
    assert_int_equal(tls_rig_stop(&c), 0);
}

static void assert_refuses(struct tls_rig *s, const char *host, const struct tls_rig_options *o,
                           const char *code, const char *reason)
{
    struct tls_rig c;
    assert_int_equal(tls_rig_connect(&c, host, tls_dial(s->port), o), -1);
    assert_string_equal(c.ready_code, code);
    if (!strstr(c.ready_text, reason))
        fail_msg("'%s' instead of '%s'", c.ready_text, reason);
    assert_int_equal(tls_rig_stop(&c), 1);
    /* whoever came so far was not let in, or left without a word */
    if (!tls_rig_none(s)) {
        assert_true(tls_rig_next(s));
        assert_true(fd_at_end(s->plain));
        br_close(&s->plain);
    }
}

static void test_names_of_servers(void **state)
{
    (void)state;
    struct tls_rig s;
    const struct tls_rig_options trust = {.authorities = authority.pem};
    static const char *const good[] = {"a.example",  "A.EXAMPLE", "x.b.example",
                                       "a.example.", "127.0.0.1", "::1"};
    static const char *const bad[] = {"b.example",  "x.y.b.example", "a.example.org", "127.0.0.2",
                                      "cn.example", "xc.example",    "localhost",     "::2"};
    serve(&s, &named);
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++)
        assert_speaks(&s, good[i], &trust);
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_refuses(&s, bad[i], &trust, "DENIED", "mismatch");
    assert_refuses(&s, "", &trust, "INVALID_CONFIG", "name");
    assert_int_equal(tls_rig_stop(&s), 0);
}

static void test_who_is_trusted(void **state)
{
    (void)state;
    struct tls_rig s;
    struct cert expired = cert_make(&authority, &(struct cert_wish){.san = "DNS:a.example",
                                                                    .usage = "serverAuth",
                                                                    .from_days = -9,
                                                                    .to_days = -1});
    struct cert self =
        cert_make(NULL, &(struct cert_wish){.san = "DNS:a.example", .usage = "serverAuth"});
    struct cert purpose =
        cert_make(&authority, &(struct cert_wish){.san = "DNS:a.example", .usage = "clientAuth"});
    const struct {
        const struct cert *cert;
        const char *authorities, *reason;
    } bad[] = {
        {&named, other.pem, "certificate"},
        {&named, NULL, "local issuer"}, /* those of the system do not know it */
        {&expired, authority.pem, "expired"},
        {&self, authority.pem, "self"},
        {&purpose, authority.pem, "certificate"},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        serve(&s, bad[i].cert);
        assert_refuses(&s, "a.example",
                       &(struct tls_rig_options){.authorities = bad[i].authorities}, "DENIED",
                       bad[i].reason);
        assert_int_equal(tls_rig_stop(&s), 0);
    }
    serve(&s, &self); /* who names the certificate itself trusts it */
    assert_speaks(&s, "a.example", &(struct tls_rig_options){.authorities = self.pem});
    assert_int_equal(tls_rig_stop(&s), 0);
    cert_free(&expired);
    cert_free(&self);
    cert_free(&purpose);
}

static void test_its_own_certificate(void **state)
{
    (void)state;
    struct tls_rig s, c;
    const struct tls_rig_options mine = {
        .authorities = authority.pem, .chain = laptop.pem, .key = laptop.key_pem};
    assert_true(tls_rig_start(&s, &(struct tls_rig_options){.chain = named.pem,
                                                            .key = named.key_pem,
                                                            .authorities = authority.pem,
                                                            .require = true}));
    assert_speaks(&s, "a.example", &mine);
    assert_string_equal(s.name, "ops laptop");
    /* without one: the server ends it, and nobody hears of it */
    int fd = tls_rig_connect(&c, "a.example", tls_dial(s.port),
                             &(struct tls_rig_options){.authorities = authority.pem});
    if (fd >= 0) {
        assert_true(fd_at_end(fd));
        (void)close(fd);
    }
    (void)tls_rig_stop(&c);
    assert_true(tls_rig_none(&s));
    const struct tls_rig_options bad[] = {
        {.authorities = authority.pem, .chain = laptop.pem, .key = server.key_pem},
        {.authorities = authority.pem, .chain = laptop.pem},
        {.authorities = authority.pem, .key = laptop.key_pem},
        {.authorities = "no PEM"},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_refuses(&s, "a.example", &bad[i], "INVALID_CONFIG", "");
    assert_int_equal(tls_rig_stop(&s), 0);
}

/* A socket that accepts in the kernel, and what is said on it. */
static int plain_server(unsigned *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void test_servers_without_tls(void **state)
{
    (void)state;
    struct tls_rig c;
    unsigned port;
    int listener = plain_server(&port);
    /* one that says nothing */
    assert_int_equal(
        tls_rig_connect(&c, "a.example", tls_dial(port),
                        &(struct tls_rig_options){.authorities = authority.pem, .seconds = 1}),
        -1);
    assert_string_equal(c.ready_code, "TIMEOUT");
    assert_int_equal(tls_rig_stop(&c), 1);
    /* one that speaks HTTP */
    int fd = tls_dial(port);
    int silent = accept(listener, NULL, NULL), peer = accept(listener, NULL, NULL);
    assert_true(fd_send_all(peer, "HTTP/1.1 400 Bad Request\r\n\r\n", 28));
    assert_int_equal(tls_rig_connect(&c, "a.example", fd,
                                     &(struct tls_rig_options){.authorities = authority.pem}),
                     -1);
    assert_string_equal(c.ready_code, "PEER_PROTOCOL");
    assert_int_equal(tls_rig_stop(&c), 1);
    (void)close(peer);
    (void)close(silent);
    /* one that leaves */
    fd = tls_dial(port);
    peer = accept(listener, NULL, NULL);
    (void)close(peer);
    assert_int_equal(tls_rig_connect(&c, "a.example", fd,
                                     &(struct tls_rig_options){.authorities = authority.pem}),
                     -1);
    assert_string_equal(c.ready_code, "PEER_PROTOCOL");
    assert_int_equal(tls_rig_stop(&c), 1);
    (void)close(listener);
}

/* The client leaves at once after its last words: they arrive. */
static void test_last_words(void **state)
{
    (void)state;
    enum { N = 200000 };
    struct tls_rig s, c;
    uint8_t *text = malloc(N), *got = malloc(N);
    assert_true(text && got);
    memset(text, 'w', N);
    serve(&s, &named);
    int fd = tls_rig_connect(&c, "a.example", tls_dial(s.port),
                             &(struct tls_rig_options){.authorities = authority.pem});
    assert_true(fd >= 0);
    assert_true(tls_rig_next(&s));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(s.plain);
        _exit(fd_send_all(fd, text, N) ? 0 : 1);
    }
    (void)close(fd);
    assert_true(fd_recv_all(s.plain, got, N));
    assert_memory_equal(got, text, N);
    assert_true(fd_at_end(s.plain));
    br_close(&s.plain);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(tls_rig_stop(&c), 0);
    assert_int_equal(tls_rig_stop(&s), 0);
    free(text);
    free(got);
}

/* The server leaves: the client sees the end, and the program ends by itself. */
static void test_the_server_ends(void **state)
{
    (void)state;
    struct tls_rig s, c;
    char got[3];
    serve(&s, &named);
    int fd = tls_rig_connect(&c, "a.example", tls_dial(s.port),
                             &(struct tls_rig_options){.authorities = authority.pem});
    assert_true(fd >= 0);
    assert_true(tls_rig_next(&s));
    assert_true(fd_send_all(s.plain, "bye", 3));
    br_close(&s.plain);
    assert_true(fd_recv_all(fd, got, 3));
    assert_true(fd_at_end(fd));
    (void)close(fd);
    assert_int_equal(tls_rig_stop(&c), 0);
    assert_int_equal(tls_rig_stop(&s), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_servers),    cmocka_unit_test(test_who_is_trusted),
        cmocka_unit_test(test_its_own_certificate), cmocka_unit_test(test_servers_without_tls),
        cmocka_unit_test(test_last_words),          cmocka_unit_test(test_the_server_ends),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
