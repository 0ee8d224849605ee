/*
 * What goes through: bytes from one end to the other, in both directions, each of which ends by
 * itself. Called by conn.c when epoll says that something can be moved. Nothing is read of one end
 * while the other has not taken what was read before, so a connection keeps at most one record in
 * each direction.
 *
 * A socket that is closed while something unread waits in it is reset, and its peer may lose what
 * was sent last. So whoever was told the end is given a moment to read it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

#include "tls/tls_priv.h"

enum { RECORD = 16384, ROUNDS = 4 };
static uint8_t record[RECORD];

enum outcome { MOVED, BLOCKED, ENDED, BROKEN };

static bool keep(struct tls_part *part, const uint8_t *p, size_t n)
{
    if (n == 0)
        return true;
    part->p = malloc(n);
    if (!part->p)
        return false;
    memcpy(part->p, p, n);
    part->n = (uint32_t)n;
    part->at = 0;
    return true;
}

static void forget(struct tls_part *part)
{
    free(part->p);
    *part = (struct tls_part){NULL, 0, 0};
}

/* ---- from the net to the plain end ---- */

/* How much of it went; -1: nobody is there any more. */
static ssize_t write_plain(struct tls_conn *c, const uint8_t *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t k = send(c->plain, p + at, n - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (k < 0)
            return -1;
        at += (size_t)k;
    }
    return (ssize_t)at;
}

static enum outcome flush_plain(struct tls_conn *c)
{
    ssize_t k = write_plain(c, c->to_plain.p + c->to_plain.at, c->to_plain.n - c->to_plain.at);
    if (k < 0) {
        c->plain_gone = true;
        forget(&c->to_plain);
        return MOVED;
    }
    c->to_plain.at += (uint32_t)k;
    if (c->to_plain.at < c->to_plain.n)
        return BLOCKED;
    forget(&c->to_plain);
    return MOVED;
}

static enum outcome read_net(struct tls_conns *s, struct tls_conn *c)
{
    ERR_clear_error();
    int n = SSL_read(c->ssl, record, sizeof(record));
    if (n <= 0) {
        int e = SSL_get_error(c->ssl, n);
        c->wants_write = c->wants_write || e == SSL_ERROR_WANT_WRITE;
        if (e == SSL_ERROR_SSL) {
            char why[256];
            tls_reason(c->ssl, why, sizeof(why));
            s->broken(s->ctx, why);
        }
        return e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE ? BLOCKED
               : e == SSL_ERROR_ZERO_RETURN                          ? ENDED
                                                                     : BROKEN;
    }
    ssize_t k = c->plain_gone ? n : write_plain(c, record, (size_t)n);
    if (k < 0)
        c->plain_gone = true;
    else if (!keep(&c->to_plain, record + k, (size_t)(n - k)))
        return BROKEN;
    return MOVED;
}

static enum outcome inwards(struct tls_conns *s, struct tls_conn *c)
{
    if (c->to_plain.p)
        return flush_plain(c);
    if (!c->net_end) {
        enum outcome o = read_net(s, c);
        if (o != ENDED)
            return o;
        c->net_end = true;
    }
    if (!c->plain_shut) {
        (void)shutdown(c->plain, SHUT_WR);
        c->plain_shut = true;
    }
    return ENDED;
}

/* ---- from the plain end to the net ---- */

static enum outcome write_net(struct tls_conn *c, const uint8_t *p, size_t n, size_t *at)
{
    while (*at < n) {
        ERR_clear_error();
        int k = SSL_write(c->ssl, p + *at, (int)(n - *at));
        if (k > 0) {
            *at += (size_t)k;
            continue;
        }
        int e = SSL_get_error(c->ssl, k);
        if (e != SSL_ERROR_WANT_WRITE && e != SSL_ERROR_WANT_READ)
            return BROKEN;
        c->wants_write = e == SSL_ERROR_WANT_WRITE;
        return BLOCKED;
    }
    return MOVED;
}

static enum outcome flush_net(struct tls_conn *c)
{
    size_t at = c->to_net.at;
    enum outcome o = write_net(c, c->to_net.p, c->to_net.n, &at);
    c->to_net.at = (uint32_t)at;
    if (o == MOVED)
        forget(&c->to_net);
    return o;
}

static enum outcome read_plain(struct tls_conn *c)
{
    ssize_t n = recv(c->plain, record, sizeof(record), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return BLOCKED;
    if (n <= 0)
        return ENDED;
    size_t at = 0;
    enum outcome o = write_net(c, record, (size_t)n, &at);
    if (o == BLOCKED && !keep(&c->to_net, record + at, (size_t)n - at))
        return BROKEN;
    return o;
}

/* Say that nothing more comes: close_notify, then FIN. */
static enum outcome shut_net(struct tls_conn *c)
{
    ERR_clear_error();
    int rc = SSL_shutdown(c->ssl);
    if (rc < 0) {
        int e = SSL_get_error(c->ssl, rc);
        if (e == SSL_ERROR_WANT_WRITE) {
            c->wants_write = true;
            return BLOCKED;
        }
    }
    (void)shutdown(c->net, SHUT_WR);
    c->net_shut = true;
    return ENDED;
}

static enum outcome outwards(struct tls_conn *c)
{
    if (c->to_net.p)
        return flush_net(c);
    if (!c->plain_end) {
        enum outcome o = read_plain(c);
        if (o != ENDED)
            return o;
        c->plain_end = true;
    }
    return c->net_shut ? ENDED : shut_net(c);
}

/* ---- both ---- */

/* Has the other side of a socket pair gone as a whole, and not only stopped writing? */
static bool is_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = 0};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

void tls_conn_shovel(struct tls_conns *s, struct tls_conn *c)
{
    enum outcome in = BLOCKED, out = BLOCKED;
    c->wants_write = false;
    for (unsigned round = 0; round < ROUNDS; round++) {
        in = inwards(s, c);
        out = in == BROKEN ? BROKEN : outwards(c);
        if (out == BROKEN || (in != MOVED && out != MOVED))
            break;
    }
    if (in == BROKEN || out == BROKEN || (in == ENDED && out == ENDED)) {
        tls_conn_end(s, c);
        return;
    }
    if ((c->plain_end || c->to_net.p) && !c->plain_gone && is_gone(c->plain)) {
        c->plain_gone = true;
        forget(&c->to_plain);
    }
    if (c->plain_gone && c->net_shut)
        tls_conn_limit(s, c, &s->lingering, TLS_LINGER_US);
    else if (c->plain_gone) /* the peer may not read, ever */
        tls_conn_limit(s, c, &s->draining, s->handshake_us);
    bool reads_net = !c->net_end && !c->to_plain.p;
    bool reads_plain = !c->plain_end && !c->to_net.p;
    bool writes_net = c->to_net.p || c->wants_write || (c->plain_end && !c->net_shut);
    uint32_t net = (reads_net ? EPOLLIN : 0) | (writes_net ? EPOLLOUT : 0);
    uint32_t plain = (reads_plain ? EPOLLIN : 0) | (c->to_plain.p ? EPOLLOUT : 0);
    /* its end is to be noticed, too: with nothing wanted, epoll tells it once */
    if (!plain && !c->plain_gone)
        plain = EPOLLET;
    tls_conn_watch(s, c, net, plain);
}
