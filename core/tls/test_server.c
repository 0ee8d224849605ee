/*
 * What the tests of bridle-tls as a server share; see test_server.h.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tls/test_server.h"

struct cert authority, other, server, laptop;

int server_setup(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    authority = cert_make(NULL, &(struct cert_wish){.cn = "authority"});
    other = cert_make(NULL, &(struct cert_wish){.cn = "authority"}); /* the same name */
    server = cert_make(&authority, &(struct cert_wish){.cn = "server",
                                                       .san = "DNS:localhost,IP:127.0.0.1",
                                                       .usage = "serverAuth"});
    laptop = cert_make(&authority, &(struct cert_wish){.cn = "ops laptop", .usage = "clientAuth"});
    return 0;
}

int server_teardown(void **state)
{
    (void)state;
    cert_free(&authority);
    cert_free(&other);
    cert_free(&server);
    cert_free(&laptop);
    return 0;
}

void start(struct tls_rig *r)
{
    assert_true(
        tls_rig_start(r, &(struct tls_rig_options){.chain = server.pem, .key = server.key_pem}));
}

void start_mutual(struct tls_rig *r, bool require)
{
    assert_true(tls_rig_start(r, &(struct tls_rig_options){.chain = server.pem,
                                                           .key = server.key_pem,
                                                           .authorities = authority.pem,
                                                           .require = require}));
}

const struct tls_client_options trusting = {.trust = &authority};

void assert_through(struct tls_client *c, int plain)
{
    char got[5];
    assert_true(tls_send_all(c->ssl, "hello", 5));
    assert_true(fd_recv_all(plain, got, 5));
    assert_memory_equal(got, "hello", 5);
    assert_true(fd_send_all(plain, "world", 5));
    assert_true(tls_recv_all(c->ssl, got, 5));
    assert_memory_equal(got, "world", 5);
}

void assert_refused(struct tls_rig *r, const struct tls_client_options *o)
{
    struct tls_client c;
    char byte;
    if (tls_client_open(&c, r->port, o)) /* TLS 1.3 tells a client only afterwards */
        assert_true(SSL_read(c.ssl, &byte, 1) <= 0);
    tls_client_close(&c);
    assert_true(tls_rig_none(r));
}

void assert_serves(struct tls_rig *r, const struct tls_client_options *o, const char *name)
{
    struct tls_client c;
    assert_true(tls_client_open(&c, r->port, o));
    assert_true(tls_rig_next(r));
    assert_string_equal(r->name, name);
    assert_through(&c, r->plain);
    br_close(&r->plain);
    tls_client_close(&c);
}
