/*
 * core/tls, private: bridle-tls holds the private key of the service and nothing else. It ends TLS:
 * what a client sends comes out of the plain end of a socket pair, which the gateway (or, in a
 * client, 'bridle') has. It reads no byte of what goes through.
 */
#ifndef BR_TLS_PRIV_H
#define BR_TLS_PRIV_H

#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/base.h"
#include "wire/wire.h"

/* What files of an operator hold: a chain, a key, authorities (those of a system: 220 KiB). */
#define TLS_CHAIN_MAX (128u * 1024)
#define TLS_KEY_MAX (32u * 1024)
#define TLS_AUTHORITIES_MAX (1024u * 1024)
/* A host name (RFC 1035), or an address. */
#define TLS_HOST_MAX 256u
/* A name in a certificate (RFC 5280: ub-common-name is 64). */
#define TLS_NAME_MAX 64u
#define TLS_LISTENERS_MAX 8u
/* How long a connection that was closed on the plain side waits for the peer to read the rest. */
#define TLS_LINGER_US 3000000u

/* Handshakes of one address: so many a second, beyond a burst. One costs about a millisecond. */
#define TLS_SHAKES_PER_SECOND 100u
#define TLS_SHAKES_BURST 1000u

/* ---- who comes too often: rate.c ---- */

struct tls_rate {
    uint8_t key[16];
    uint64_t full_us; /* when its bucket is full again; 0: the entry is free */
};
struct tls_rates {
    struct tls_rate rows[1024][4];
    uint64_t seed;
};
void tls_rates_init(struct tls_rates *r);
/* False: too often, and nothing is counted. */
bool tls_may_shake(struct tls_rates *r, const struct sockaddr_storage *from, uint64_t now);

/* ---- contexts: ctx.c ---- */

struct tls_files { /* PEM; empty: there is none */
    struct br_buf chain, key, authorities;
    bool require; /* a server: no connection without a client's certificate */
};
void tls_files_free(struct tls_files *f); /* wipes the key */
/* A server's, to be freed with SSL_CTX_free(); -BR_E_INVALID_CONFIG with the reason. */
int tls_context_server(const struct tls_files *f, SSL_CTX **out, struct br_err *err);
/* A client's; without authorities those of the system, which `system_fd` can be read from. */
int tls_context_client(const struct tls_files *f, int system_fd, SSL_CTX **out, struct br_err *err);
/* Whom it speaks to: SNI, and what the server's certificate must be for. */
int tls_expect(SSL *ssl, const char *host, struct br_err *err);
/* The one common name in the peer's certificate; "" if it showed none. False if it showed one, but
 * its name is none that could be compared: several, empty, too long, not printable ASCII. */
bool tls_peer_name(SSL *ssl, char dst[TLS_NAME_MAX]);
/* What the last failure of a handshake was, in words. */
void tls_reason(const SSL *ssl, char *dst, size_t cap);

/* ---- connections: conn.c, shovel.c ---- */

struct tls_conn;
struct tls_list {
    struct tls_conn *first, *last;
};
struct tls_conns {
    struct br_loop *loop;
    int epoll;
    unsigned n, max;
    uint64_t handshake_us; /* also for what is left when the plain side has closed */
    struct tls_list open, dead;
    struct tls_list shaking, draining, lingering; /* each by its deadline */
    int timer;
    bool leaving; /* all have the same deadline */
    /* A handshake is done (0) or has failed; in the second case the connection ends afterwards.
     * Negative: it ends. 1: call again after tls_conns_hand_over(). */
    int (*shaken)(void *ctx, struct tls_conn *c, const struct br_err *why);
    /* TLS itself failed, after the handshake. */
    void (*broken)(void *ctx, const char *why);
    /* A connection has ended. */
    void (*ended)(void *ctx);
    void *ctx;
};

struct tls_part { /* what could not be written on at once */
    uint8_t *p;
    uint32_t n, at;
};
struct tls_conn {
    struct tls_conn *next, *prev;
    struct tls_list *list;
    SSL *ssl;
    int net, plain;            /* owned */
    int theirs;                /* the other end of `plain`, until it was handed over */
    uint32_t net_on, plain_on; /* what epoll watches */
    enum { TLS_SHAKING, TLS_SHAKEN, TLS_OPEN, TLS_DEAD } state;
    uint64_t deadline_us;
    struct tls_part to_plain, to_net;
    bool net_end, plain_end;   /* nothing more comes from there */
    bool net_shut, plain_shut; /* nothing more goes there */
    bool plain_gone;           /* nobody has its other end any more */
    bool wants_write;          /* TLS itself, before it can go on */
    uint8_t index;             /* of the listener */
};

int tls_conns_init(struct tls_conns *s, struct br_loop *loop, struct br_err *err);
void tls_conns_free(struct tls_conns *s);
/* Takes net and plain (-1: a pair is made after the handshake) in any case. */
int tls_conns_add(struct tls_conns *s, SSL_CTX *ctx, int net, int plain, uint8_t index,
                  const char *host, struct br_err *err);
/* End the oldest connection whose handshake is not done: somebody who only connects does not keep
 * those away who speak. False: there is none. */
bool tls_conns_make_room(struct tls_conns *s);
/* `shaken` is called again for those that it had returned 1 for, oldest first, until it does so
 * again. */
void tls_conns_hand_over(struct tls_conns *s);
/* All that are there have this long to end. */
void tls_conns_leave(struct tls_conns *s, uint64_t us);
/* Watch `fd` as well; events come with it and not with a connection. */
int tls_conns_watch(struct tls_conns *s, int fd, uint32_t events);
/* What epoll says; `other` gets the descriptors of tls_conns_watch(). */
int tls_conns_serve(struct tls_conns *s, void (*other)(void *ctx, int fd, uint32_t events));

/* conn.c for shovel.c and back: */
void tls_conn_end(struct tls_conns *s, struct tls_conn *c);
void tls_conn_move(struct tls_conn *c, struct tls_list *to);
void tls_conn_limit(struct tls_conns *s, struct tls_conn *c, struct tls_list *list, uint64_t us);
/* Move what can be moved; what has to be waited for is then watched. */
void tls_conn_shovel(struct tls_conns *s, struct tls_conn *c);
void tls_conn_watch(struct tls_conns *s, struct tls_conn *c, uint32_t net, uint32_t plain);

#endif
