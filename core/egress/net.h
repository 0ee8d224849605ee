/*
 * core/egress, private: connections to the provider, many at once, each with one request at a
 * time. libcurl makes those with TLS (names, proxies, certificates) and then stays out:
 * it is given no request, and so has none to send again.
 */
#ifndef BR_EGRESS_NET_H
#define BR_EGRESS_NET_H

#include <curl/curl.h>
#include <sys/uio.h>

#include "egress/egress_priv.h"

struct br_net;

/* What is the same for every connection. */
struct br_net_config {
    const struct br_egress_target *target; /* outlives the net */
    const char *unix_socket;               /* likewise; "": none */
    const char *proxy;                     /* likewise; "": none, whatever the environment says */
    const struct br_buf *ca;               /* certificates in PEM instead of the system's; NULL */
};

enum br_conn_state {
    BR_CONN_NONE,
    BR_CONN_OPENING,
    BR_CONN_OPEN,
    BR_CONN_FAILED, /* `why` says what happened; nothing was sent */
};

struct br_conn {
    enum br_conn_state state;
    uint64_t tag; /* of br_net_wait(), below BR_NET_TAGS */
    int fd;       /* -1: none, or still libcurl's */
    CURL *easy;   /* NULL: it has no TLS */
    unsigned tries;
    uint64_t again_us;       /* when a full Unix socket is tried again; 0: it is not */
    bool readable, writable; /* as far as is known: until -EAGAIN */
    struct br_err why;
};

/* Tags from here on are the net's own. */
#define BR_NET_TAGS (1ull << 62)

/* 0, or -BR_E_FAILED or -BR_E_NOMEM. */
int br_net_new(struct br_net **n, struct br_err *err);
/* Once, before the first connection. -BR_E_FAILED without libcurl, which TLS needs. */
int br_net_configure(struct br_net *n, const struct br_net_config *c, struct br_err *err);
void br_net_free(struct br_net **n);

/* Another descriptor to wait for; level-triggered, EPOLLIN and, if `out`, EPOLLOUT. */
int br_net_watch(struct br_net *n, int fd, uint64_t tag, bool out);
void br_net_unwatch(struct br_net *n, int fd);

/*
 * Begin, or take the one that was opened ahead if it is still as it should be. The state tells at
 * once, or after a br_net_wait() that named the tag. Never blocks.
 */
void br_conn_open(struct br_net *n, struct br_conn *c, uint64_t tag);
/*
 * Open one ahead of the next request, if there is none. It carries nothing; it is closed after
 * BR_NET_SPARE_S, or 1 second where it has no TLS and costs little, and as soon as anything at all
 * comes from its other end. Over a Unix socket there is none.
 */
void br_net_spare(struct br_net *n);
#define BR_NET_SPARE_S 10u
/*
 * The same with one that has carried a request and its whole answer, and that the provider says it
 * keeps open: for 1 second, in which no provider gives it up. False if it is not taken, because
 * there is one already or it goes over a Unix socket; it stays the caller's then.
 */
bool br_net_keep(struct br_net *n, struct br_conn *c);
/* Something came for its tag: look at the socket. `events`: of epoll, 0 for again_us. */
void br_conn_event(struct br_net *n, struct br_conn *c, uint32_t events);
/* Bytes written or read, 0 at the end of the answer, or a negative errno; -EAGAIN: later. */
ssize_t br_conn_write(struct br_conn *c, const struct iovec *v, int n);
ssize_t br_conn_read(struct br_conn *c, void *p, size_t n);
void br_conn_close(struct br_net *n, struct br_conn *c);

struct br_net_event {
    uint64_t tag;
    uint32_t events;
};
#define BR_NET_EVENTS 64
/*
 * Wait until something happens, at most `ms` milliseconds (-1: for ever). Returns the number of
 * events, or a negative code. A connection that libcurl made, or did not, comes as an event of its
 * tag as well.
 */
int br_net_wait(struct br_net *n, struct br_net_event out[BR_NET_EVENTS], int ms,
                struct br_err *err);

#endif
