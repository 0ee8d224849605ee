/*
 * Connections of bridle-tls: the handshake, its deadline, and the end. Called by main.c. The peer
 * is anybody: until its handshake is done it has cost one socket and one TLS state, has a deadline,
 * and nobody else has heard of it.
 *
 * epoll may still name a connection that was ended in the same turn, so memory is given back only
 * after the turn (list `dead`): only tls_conns_serve() and a timer do that.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

#include "tls/tls_priv.h"

/* The lowest bit of what epoll gives back says which end it is of; of others, 2 is set. */
enum { END_NET = 0, END_PLAIN = 1, OTHER = 2 };
#define EVENTS 256

int tls_conns_init(struct tls_conns *s, struct br_loop *loop, struct br_err *err)
{
    s->loop = loop;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    return s->epoll < 0 ? br_err_errno(err, BR_E_IO, "connections could not be waited for") : 0;
}

/* ---- lists ---- */

static void unlink_conn(struct tls_conn *c)
{
    struct tls_list *l = c->list;
    if (!l)
        return;
    *(c->prev ? &c->prev->next : &l->first) = c->next;
    *(c->next ? &c->next->prev : &l->last) = c->prev;
    c->next = c->prev = NULL;
    c->list = NULL;
}

void tls_conn_move(struct tls_conn *c, struct tls_list *to)
{
    unlink_conn(c);
    c->prev = to->last;
    *(to->last ? &to->last->next : &to->first) = c;
    to->last = c;
    c->list = to;
}

/* ---- deadlines ---- */

static int on_deadline(void *ctx, struct br_err *err);

static void arm(struct tls_conns *s)
{
    const struct tls_conn *of[] = {s->shaking.first, s->draining.first, s->lingering.first};
    uint64_t first = UINT64_MAX, now = br_now_us();
    for (unsigned i = 0; i < BR_ARRAY_LEN(of); i++)
        if (of[i] && of[i]->deadline_us < first)
            first = of[i]->deadline_us;
    br_loop_timer_cancel(s->loop, &s->timer);
    if (first != UINT64_MAX)
        s->timer = br_loop_timer(s->loop, first > now ? first - now : 0, on_deadline, s);
}

static void bury(struct tls_conns *s)
{
    struct tls_conn *c;
    while ((c = s->dead.first)) {
        unlink_conn(c);
        free(c);
    }
}

static int shake_failed(struct tls_conns *s, struct tls_conn *c, enum br_code code,
                        const char *reason)
{
    struct br_err why;
    br_err_set(&why, code, "%s", reason);
    s->shaken(s->ctx, c, &why);
    tls_conn_end(s, c);
    return 0;
}

static int on_deadline(void *ctx, struct br_err *err)
{
    struct tls_conns *s = ctx;
    struct tls_conn *c;
    uint64_t now = br_now_us();
    (void)err;
    s->timer = 0;
    while ((c = s->shaking.first) && c->deadline_us <= now)
        shake_failed(s, c, BR_E_TIMEOUT, "the TLS handshake took too long");
    while ((c = s->draining.first) && c->deadline_us <= now)
        tls_conn_end(s, c);
    while ((c = s->lingering.first) && c->deadline_us <= now)
        tls_conn_end(s, c);
    bury(s);
    arm(s);
    return 0;
}

/* ---- the end ---- */

void tls_conn_end(struct tls_conns *s, struct tls_conn *c)
{
    if (c->state == TLS_DEAD)
        return;
    c->state = TLS_DEAD;
    br_close(&c->net); /* epoll forgets both */
    br_close(&c->plain);
    br_close(&c->theirs);
    SSL_free(c->ssl);
    c->ssl = NULL;
    free(c->to_plain.p);
    free(c->to_net.p);
    c->to_plain.p = c->to_net.p = NULL;
    tls_conn_move(c, &s->dead);
    s->n--;
    s->ended(s->ctx);
}

/* It ends after this time, whatever it does. */
void tls_conn_limit(struct tls_conns *s, struct tls_conn *c, struct tls_list *list, uint64_t us)
{
    if (c->list == list || s->leaving)
        return;
    c->deadline_us = br_now_us() + us;
    tls_conn_move(c, list);
    arm(s);
}

/* ---- what is waited for ---- */

static void watch_end(struct tls_conns *s, struct tls_conn *c, int fd, unsigned which, uint32_t *on,
                      uint32_t events)
{
    if (fd < 0 || *on == events)
        return;
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)(uintptr_t)c | which};
    /* what nothing is wanted of is not watched at all: its end would be told again and again */
    int op = !events ? EPOLL_CTL_DEL : *on ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(s->epoll, op, fd, &e) == 0)
        *on = events;
    else
        tls_conn_end(s, c);
}

void tls_conn_watch(struct tls_conns *s, struct tls_conn *c, uint32_t net, uint32_t plain)
{
    watch_end(s, c, c->net, END_NET, &c->net_on, net);
    if (c->state != TLS_DEAD)
        watch_end(s, c, c->plain, END_PLAIN, &c->plain_on, plain);
}

int tls_conns_watch(struct tls_conns *s, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)fd << 2 | OTHER};
    if (epoll_ctl(s->epoll, EPOLL_CTL_MOD, fd, &e) == 0)
        return 0;
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -BR_E_IO;
}

/* ---- the handshake ---- */

/* It is done: who wants the plain end gets it. */
static void hand_over(struct tls_conns *s, struct tls_conn *c)
{
    const struct br_err ok = {.code = BR_OK};
    int pair[2], one = 1;
    /* Nothing follows that acknowledges what the client said last, and what it says next may wait
     * for that (Nagle): without this, for the 40 ms of a delayed acknowledgement. */
    (void)setsockopt(c->net, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof(one));
    if (c->plain < 0) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
            shake_failed(s, c, BR_E_IO, "there are no descriptors for it");
            return;
        }
        c->plain = pair[0];
        c->theirs = pair[1];
    }
    int rc = s->shaken(s->ctx, c, &ok);
    if (rc < 0) {
        tls_conn_end(s, c);
        return;
    }
    if (rc == 1) {
        tls_conn_watch(s, c, 0, 0);
        return;
    }
    br_close(&c->theirs);
    c->state = TLS_OPEN;
    tls_conn_move(c, &s->open);
    arm(s);
    tls_conn_shovel(s, c);
}

static void shake(struct tls_conns *s, struct tls_conn *c)
{
    char reason[256];
    ERR_clear_error();
    int rc = SSL_do_handshake(c->ssl);
    if (rc == 1) {
        c->state = TLS_SHAKEN;
        hand_over(s, c);
        return;
    }
    switch (SSL_get_error(c->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        tls_conn_watch(s, c, EPOLLIN, 0);
        return;
    case SSL_ERROR_WANT_WRITE:
        tls_conn_watch(s, c, EPOLLOUT, 0);
        return;
    default:
        tls_reason(c->ssl, reason, sizeof(reason));
        shake_failed(s, c,
                     SSL_get_verify_result(c->ssl) != X509_V_OK ? BR_E_DENIED : BR_E_PEER_PROTOCOL,
                     reason);
    }
}

bool tls_conns_make_room(struct tls_conns *s)
{
    struct tls_conn *c = s->shaking.first;
    while (c && c->state != TLS_SHAKING)
        c = c->next;
    if (c)
        shake_failed(s, c, BR_E_LIMIT_EXCEEDED, "there are too many connections, and it was slow");
    return c != NULL;
}

void tls_conns_hand_over(struct tls_conns *s)
{
    struct tls_conn *c = s->shaking.first;
    while (c) {
        struct tls_conn *next = c->next;
        if (c->state == TLS_SHAKEN) {
            hand_over(s, c);
            if (c->state == TLS_SHAKEN)
                break;
        }
        c = next;
    }
}

int tls_conns_add(struct tls_conns *s, SSL_CTX *ctx, int net, int plain, uint8_t index,
                  const char *host, struct br_err *err)
{
    struct tls_conn *c = calloc(1, sizeof(*c));
    int rc = 0;
    if (!c || !(c->ssl = SSL_new(ctx)) || SSL_set_fd(c->ssl, net) != 1) {
        if (c)
            SSL_free(c->ssl);
        free(c);
        br_close(&net);
        br_close(&plain);
        ERR_clear_error();
        return br_err_set(err, BR_E_NOMEM, "there is no memory for another connection");
    }
    c->net = net;
    c->plain = plain;
    c->theirs = -1;
    c->index = index;
    c->deadline_us = br_now_us() + s->handshake_us;
    s->n++;
    tls_conn_move(c, &s->shaking);
    if (host) {
        SSL_set_connect_state(c->ssl);
        rc = tls_expect(c->ssl, host, err);
    } else {
        SSL_set_accept_state(c->ssl);
    }
    if (rc < 0) {
        tls_conn_end(s, c);
        return rc;
    }
    if (s->shaking.first == c)
        arm(s);
    shake(s, c);
    return 0;
}

/* ---- turns ---- */

static void serve_conn(struct tls_conns *s, struct tls_conn *c)
{
    if (c->state == TLS_SHAKING)
        shake(s, c);
    else if (c->state == TLS_OPEN)
        tls_conn_shovel(s, c);
}

int tls_conns_serve(struct tls_conns *s, void (*other)(void *ctx, int fd, uint32_t events))
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(s->epoll, e, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        uint64_t u = e[i].data.u64;
        if (u & OTHER)
            other(s->ctx, (int)(u >> 2), e[i].events);
        else
            serve_conn(s, (struct tls_conn *)(uintptr_t)(u & ~(uint64_t)3));
    }
    bury(s);
    return n < 0 && errno != EINTR ? -BR_E_IO : 0;
}

void tls_conns_leave(struct tls_conns *s, uint64_t us)
{
    struct tls_conn *c;
    uint64_t until = br_now_us() + us;
    while ((c = s->shaking.first))
        tls_conn_end(s, c);
    while ((c = s->open.first ? s->open.first : s->draining.first))
        tls_conn_move(c, &s->lingering);
    s->leaving = true;
    for (c = s->lingering.first; c; c = c->next)
        c->deadline_us = until;
    arm(s);
}

void tls_conns_free(struct tls_conns *s)
{
    struct tls_list *lists[] = {&s->shaking, &s->open, &s->draining, &s->lingering};
    for (unsigned i = 0; i < BR_ARRAY_LEN(lists); i++)
        while (lists[i]->first)
            tls_conn_end(s, lists[i]->first);
    bury(s);
    br_close(&s->epoll);
}
