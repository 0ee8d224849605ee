/*
 * Who comes in: listeners, and the connections that bridle-tls hands over. Before anything is read,
 * the peer is told apart, by its uid on this machine (the socket's, see core/diag, or SO_PEERCRED)
 * or else by its address, and has to be within the limits of one peer and of all.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/conn_priv.h"

#define ACCEPT_PAUSE_US 100000u

/* What is known of a peer before it has said anything. */
struct came {
    bool unix_socket, local, has_uid;
    uid_t uid;
    struct peer_key key;
};

static void key_of_uid(struct came *w, uid_t uid)
{
    w->has_uid = true;
    w->uid = uid;
    w->key = (struct peer_key){.kind = 'u'};
    memcpy(w->key.bytes, &uid, sizeof(uid));
}

static void key_of_address(struct came *w, int family, const void *address)
{
    const uint8_t *p = address;
    w->key = (struct peer_key){.kind = 'a'};
    if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)address)) {
        family = AF_INET;
        p += 12;
    }
    memcpy(w->key.bytes, p, family == AF_INET ? 4 : 8);
    w->key.bytes[15] = (uint8_t)family;
}

static bool is_loopback(const struct sockaddr_storage *ss)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
    if (ss->ss_family == AF_INET)
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    return ss->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127));
}

static bool came_by_unix(int fd, struct came *w)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return false;
    w->unix_socket = w->local = true;
    key_of_uid(w, cred.uid);
    w->has_uid = cred.uid != BR_DIAG_UID_OVERFLOW;
    return true;
}

static bool came_by_tcp(struct gateway *g, int fd, struct came *w)
{
    struct sockaddr_storage own = {.ss_family = 0}, peer = {.ss_family = 0};
    socklen_t n = sizeof(own), m = sizeof(peer);
    uid_t uid;
    int one = 1;
    if (getsockname(fd, (struct sockaddr *)&own, &n) < 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &m) < 0)
        return false;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    w->local = is_loopback(&own) && is_loopback(&peer);
    if (peer.ss_family == AF_INET)
        key_of_address(w, AF_INET, &((struct sockaddr_in *)&peer)->sin_addr);
    else if (peer.ss_family == AF_INET6)
        key_of_address(w, AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr);
    else
        return false;
    if (w->local && br_diag_peer_uid(g->auth.diag, fd, &uid) == 0)
        key_of_uid(w, uid);
    return true;
}

static bool came_by_tls(const char *address, bool loopback, struct came *w)
{
    struct in6_addr a;
    w->local = loopback;
    if (inet_pton(AF_INET, address, &a) == 1)
        key_of_address(w, AF_INET, &a);
    else if (inet_pton(AF_INET6, address, &a) == 1)
        key_of_address(w, AF_INET6, &a);
    else
        return false;
    return true;
}

/* Within the limits? The peer is entered then. */
static struct peer *admit(struct gateway *g, const struct came *w, const char **why)
{
    const struct br_service *s = gw_settings(g);
    *why = "the service has as many connections as it may have";
    if (g->nconns >= s->connections)
        return NULL;
    struct peer *p = peer_enter(&g->peers, &w->key);
    if (!p)
        return NULL;
    *why = "this peer has as many connections as it may have";
    bool operates = w->has_uid && auth_uid(g, w->uid);
    bool room = p->connections <= s->connections_per_peer;
    if (room && !operates && p->heads >= PEER_HEADS_MAX) {
        *why = "this peer has many connections that have not said who they are";
        peer_leave(&g->peers, p);
        return NULL;
    }
    if (room && peer_rate(&p->accept_at, br_now_us(), 1000000u / PEER_CONNECTIONS_PER_SECOND,
                          s->connections_per_peer))
        return p;
    if (room)
        *why = "this peer connects too often";
    peer_leave(&g->peers, p);
    return NULL;
}

void conn_adopt(struct gateway *g, unsigned listener, int fd, const char *address, const char *cert)
{
    const struct br_listener *l = &gw_settings(g)->listeners[listener];
    struct came w = {.has_uid = false};
    const char *why = "its peer has gone";
    bool known = address                       ? came_by_tls(address, l->loopback, &w)
                 : l->kind == BR_LISTENER_UNIX ? came_by_unix(fd, &w)
                                               : came_by_tcp(g, fd, &w);
    struct peer *peer = known ? admit(g, &w, &why) : NULL;
    struct conn *c = peer ? conn_begin(g, fd, peer) : NULL;
    if (!c) {
        static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                                   "Retry-After: 5\r\nContent-Length: 0\r\n\r\n";
        gw_counters(g)->connections_refused++;
        if (peer)
            peer_leave(&g->peers, peer);
        if (known)
            (void)send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        gw_log(g, BR_LOG_WARN, "connection.refused", "reason", why, NULL);
        br_close(&fd);
        return;
    }
    c->listener = (uint8_t)listener;
    c->unix_socket = w.unix_socket;
    c->local = w.local;
    c->has_uid = w.has_uid;
    c->uid = w.uid;
    c->tls = address != NULL;
    c->counted = !(w.has_uid && auth_uid(g, w.uid));
    peer->heads += c->counted;
    if (cert && cert[0])
        c->cert = strdup(cert); /* without memory: it showed none */
}

const char *conn_peer(const struct conn *c, char dst[64])
{
    const struct peer_key *k = &c->peer->key;
    char text[INET6_ADDRSTRLEN] = "?";
    uint8_t v6[16] = {0};
    if (k->kind == 'u') {
        uid_t uid;
        memcpy(&uid, k->bytes, sizeof(uid));
        snprintf(dst, 64, "uid:%u", (unsigned)uid);
    } else if (k->bytes[15] == AF_INET) {
        snprintf(dst, 64, "%s", inet_ntop(AF_INET, k->bytes, text, sizeof(text)));
    } else {
        memcpy(v6, k->bytes, 8);
        snprintf(dst, 64, "%s/64", inet_ntop(AF_INET6, v6, text, sizeof(text)));
    }
    return dst;
}

/* ---- listeners ---- */

static void on_again(void *ctx)
{
    struct gw_listener *l = ctx;
    if (l->fd >= 0)
        (void)poll_watch(l->g, EPOLL_CTL_MOD, l->fd, EPOLLIN, &l->io);
}

static void on_listener(void *ctx, uint32_t events)
{
    struct gw_listener *l = ctx;
    (void)events;
    for (unsigned i = 0; i < CONN_ACCEPTS_MAX && l->fd >= 0; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            conn_adopt(l->g, l->index, fd, NULL, NULL);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            gw_log(l->g, BR_LOG_ERROR, "accept.failed", "reason", strerror(errno), NULL);
            (void)poll_watch(l->g, EPOLL_CTL_MOD, l->fd, 0, &l->io);
            gw_timer_set(l->g, &l->again, ACCEPT_PAUSE_US, on_again, l);
            return;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

int conn_listen(struct gateway *g, unsigned index, int fd, struct br_err *err)
{
    struct gw_listener *l = &g->listeners[index];
    *l = (struct gw_listener){.fd = fd, .g = g, .index = (uint8_t)index};
    l->io = (struct gw_io){.fn = on_listener, .ctx = l};
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        poll_watch(g, EPOLL_CTL_ADD, fd, EPOLLIN, &l->io) < 0)
        return br_err_errno(err, BR_E_IO, "listener %u cannot be watched", index);
    return 0;
}

void conns_stop_listening(struct gateway *g)
{
    for (unsigned i = 0; i < BR_LISTENERS_MAX; i++) {
        struct gw_listener *l = &g->listeners[i];
        if (!l->g)
            continue;
        if (l->fd >= 0)
            (void)poll_watch(g, EPOLL_CTL_DEL, l->fd, 0, NULL);
        gw_timer_cancel(g, &l->again);
        l->io.fn = NULL;
        br_close(&l->fd);
    }
}
