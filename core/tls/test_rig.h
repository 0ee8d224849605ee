/*
 * The rig of the tests of bridle-tls: the program itself, started as bridled or 'bridle' would, and
 * a client made with the library. Test code: failures are cmocka assertions.
 */
#ifndef BR_TLS_TEST_RIG_H
#define BR_TLS_TEST_RIG_H

#include <openssl/ssl.h>

#include "base/base.h"
#include "tls/test_certs.h"
#include "wire/wire.h"

/* ---- the program ---- */

struct tls_rig {
    pid_t pid;
    struct br_chan sup, gateway;
    unsigned port;
    bool ready;
    char ready_code[64], ready_text[BR_ERR_TEXT_MAX];
    /* the last TLS_CONN */
    bool got;
    uint8_t index;
    char address[64], name[128];
    int plain;
};
struct tls_rig_options {
    const char *chain, *key, *authorities; /* PEM; NULL: "" */
    bool require;
    unsigned seconds, connections; /* 0: 30, and 100 */
};
/* The program alone. */
void tls_rig_spawn(struct tls_rig *r);
/* As a server on a free port of 127.0.0.1, with index 5; true if it says that it is ready. */
bool tls_rig_start(struct tls_rig *r, const struct tls_rig_options *o);
/* From now on with these; what it says. */
bool tls_rig_reload(struct tls_rig *r, const struct tls_rig_options *o);
/* As a client of `host`, on a connected socket; the plain end, or -1 and what it says. */
int tls_rig_connect(struct tls_rig *r, const char *host, int net, const struct tls_rig_options *o);
/* The next connection that it hands over within 10 s (false: it has gone), or none until then. */
bool tls_rig_next(struct tls_rig *r);
/* None is waiting. */
bool tls_rig_none(struct tls_rig *r);
/* Close the channels, and how it ends: its exit status, or 1000 + signal. */
int tls_rig_stop(struct tls_rig *r);

/* ---- a client ---- */

struct tls_client {
    int fd;
    SSL_CTX *ctx;
    SSL *ssl;
};
struct tls_client_options {
    const struct cert *trust;
    const struct cert *identity; /* NULL: none */
    int min, max;                /* versions; 0: any */
    const char *alpn;            /* as in the protocol; NULL: none */
};
/* A connected TCP socket with a time limit of 10 s for everything. */
int tls_dial(unsigned port);
/* True if the handshake succeeds. */
bool tls_client_open(struct tls_client *c, unsigned port, const struct tls_client_options *o);
void tls_client_close(struct tls_client *c);

/* All of it; true. */
bool tls_send_all(SSL *ssl, const void *p, size_t n);
bool tls_recv_all(SSL *ssl, void *p, size_t n);
bool fd_send_all(int fd, const void *p, size_t n);
bool fd_recv_all(int fd, void *p, size_t n);
/* The end, and nothing before it. */
bool fd_at_end(int fd);

#endif
