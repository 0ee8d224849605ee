/*
 * bridle-tls: the only program with the private key of the service. Started by bridled (TLS_LISTEN,
 * TLS_START: it accepts, and hands the plain end of each connection to the gateway) or by 'bridle'
 * (TLS_CONNECT: one connection to a server), with its channel on fd 3. What comes over the network
 * is hostile. It opens no file, makes no connection, starts nothing, and cannot be traced or
 * dumped; files came as bytes, and sockets as descriptors.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>

#include "tls/tls_priv.h"
#include "wire/types.h"

/* The authorities that Debian and Ubuntu keep in one file. */
#define SYSTEM_AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"
#define CONNECTIONS_MAX 65536u
#define SECONDS_MAX 600u
#define ACCEPT_AT_ONCE 64u
#define LEAVE_US 2000000u
/* Where descriptors ran out, nothing is accepted for a moment. */
#define PAUSE_US 100000u
#define COMPLAIN_US 1000000u

struct tls {
    struct br_loop *loop;
    struct br_chan sup, gateway;
    struct tls_conns conns;
    struct tls_rates rates;
    SSL_CTX *ctx;
    struct {
        int fd;
        uint8_t index;
    } listeners[TLS_LISTENERS_MAX];
    unsigned nlisteners;
    bool accepting, client, leaving, done, failed;
    int pause; /* timer */
    int system_fd;
    uint64_t connect_id;
    uint64_t complained_us; /* when a failed handshake was last told */
    unsigned untold;
    struct br_err failure; /* of a message */
};

static int say_ready(struct tls *t, uint64_t id, const struct br_err *why, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, br_code_name((int)why->code));
    br_buf_put_str(&out.buf, why->code ? why->text : "");
    return br_chan_send(&t->sup, BR_MSG_ROLE_READY, id, &out, err);
}

/* ---- the gateway ---- */

static void leave(struct tls *t)
{
    for (unsigned i = 0; i < t->nlisteners; i++)
        br_close(&t->listeners[i].fd);
    t->nlisteners = 0;
    t->leaving = true;
    tls_conns_leave(&t->conns, LEAVE_US);
    t->done = t->conns.n == 0;
}

/* "192.0.2.1", "2001:db8::1"; "" of something else. */
static void address_of(int fd, char dst[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    dst[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&a, &n) < 0)
        return;
    if (a.ss_family == AF_INET) {
        inet_ntop(AF_INET, &((struct sockaddr_in *)&a)->sin_addr, dst, INET6_ADDRSTRLEN);
    } else if (a.ss_family == AF_INET6) {
        const struct in6_addr *six = &((struct sockaddr_in6 *)&a)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(six))
            inet_ntop(AF_INET, six->s6_addr + 12, dst, INET6_ADDRSTRLEN);
        else
            inet_ntop(AF_INET6, six, dst, INET6_ADDRSTRLEN);
    }
}

/* At most once a second: it is anybody who can cause it. */
static void complain(struct tls *t, int net, const char *why)
{
    char address[INET6_ADDRSTRLEN];
    uint64_t now = br_now_us();
    if (t->complained_us && now - t->complained_us < COMPLAIN_US) {
        t->untold++;
        return;
    }
    address_of(net, address);
    br_log(BR_LOG_WARN, "the connection of '%s' was not accepted: %s (and %u others before it)",
           address, why, t->untold);
    t->complained_us = now;
    t->untold = 0;
}

static int on_server_shaken(struct tls *t, struct tls_conn *c, const struct br_err *why)
{
    char address[INET6_ADDRSTRLEN], name[TLS_NAME_MAX];
    if (why->code) {
        complain(t, c->net, why->text);
        return -1;
    }
    if (!tls_peer_name(c->ssl, name)) {
        complain(t, c->net, "its certificate has no name that could be one of 'certificates'");
        return -1;
    }
    address_of(c->net, address);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u8(&out.buf, c->index);
    br_buf_put_str(&out.buf, address);
    br_buf_put_str(&out.buf, name);
    br_out_fd(&out, c->theirs, false);
    struct br_err err = {.code = BR_OK};
    int rc = br_chan_send(&t->gateway, BR_MSG_TLS_CONN, 0, &out, &err);
    if (rc == -BR_E_TIMEOUT)
        return tls_conns_watch(&t->conns, t->gateway.fd, EPOLLIN | EPOLLOUT) < 0 ? -1 : 1;
    return rc;
}

static int on_shaken(void *ctx, struct tls_conn *c, const struct br_err *why)
{
    struct tls *t = ctx;
    if (!t->client)
        return on_server_shaken(t, c, why);
    struct br_err told = *why, err;
    t->failed = why->code != BR_OK;
    if (why->code == BR_E_DENIED)
        br_err_set(&told, BR_E_DENIED,
                   "the server's certificate is not one to trust: %s; nothing was sent to it",
                   why->text);
    else if (why->code)
        br_err_set(&told, why->code, "no TLS connection to the server: %s", why->text);
    return say_ready(t, t->connect_id, &told, &err);
}

/* ---- accepting ---- */

static void accept_all(struct tls *t, bool on)
{
    if (t->accepting == on)
        return;
    t->accepting = on;
    for (unsigned i = 0; i < t->nlisteners; i++)
        (void)tls_conns_watch(&t->conns, t->listeners[i].fd, on ? EPOLLIN : 0);
}

static int on_pause_over(void *ctx, struct br_err *err)
{
    struct tls *t = ctx;
    (void)err;
    t->pause = 0;
    accept_all(t, true);
    return 0;
}

static void accept_some(struct tls *t, int listener, uint8_t index)
{
    int one = 1;
    for (unsigned i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        socklen_t nfrom = sizeof(from);
        int fd = accept4(listener, (struct sockaddr *)&from, &nfrom, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            accept_all(t, false);
            t->pause = br_loop_timer(t->loop, PAUSE_US, on_pause_over, t);
            return;
        }
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0)
            continue; /* a connection that has ended before it was accepted */
        if (!tls_may_shake(&t->rates, &from, br_now_us())) {
            complain(t, fd, "too many handshakes come from there");
            br_close(&fd);
            continue;
        }
        if (t->conns.n >= t->conns.max && !tls_conns_make_room(&t->conns)) {
            br_close(&fd); /* at once: whoever it is may try another server */
            continue;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct br_err err;
        (void)tls_conns_add(&t->conns, t->ctx, fd, -1, index, NULL, &err);
    }
}

static void on_other(void *ctx, int fd, uint32_t events)
{
    struct tls *t = ctx;
    if (fd == t->gateway.fd) {
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) { /* it says nothing: that is its end */
            br_chan_close(&t->gateway);
            leave(t);
            return;
        }
        (void)tls_conns_watch(&t->conns, fd, EPOLLIN);
        tls_conns_hand_over(&t->conns);
        return;
    }
    for (unsigned i = 0; i < t->nlisteners; i++)
        if (t->listeners[i].fd == fd && t->accepting)
            accept_some(t, fd, t->listeners[i].index);
}

/* A server that does not like a client's certificate says so only now. */
static void on_broken(void *ctx, const char *why)
{
    struct tls *t = ctx;
    if (t->client)
        br_log(BR_LOG_WARN, "the server ended the TLS connection: %s", why);
}

static void on_ended(void *ctx)
{
    struct tls *t = ctx;
    if ((t->client || t->leaving) && t->conns.n == 0)
        t->done = true;
}

static int on_epoll(void *ctx, int fd, short revents, struct br_err *err)
{
    struct tls *t = ctx;
    (void)fd, (void)revents;
    return tls_conns_serve(&t->conns, on_other) < 0
               ? br_err_set(err, BR_E_IO, "connections could not be waited for")
               : 0;
}

/* ---- what bridled, or 'bridle', says ---- */

static int take_file(struct br_msg *m, size_t max, struct br_buf *out, struct br_err *err)
{
    return br_msg_blob(m, max, out, err);
}

static int take_files(struct br_msg *m, struct tls_files *f, struct br_err *err)
{
    int rc = take_file(m, TLS_CHAIN_MAX, &f->chain, err);
    if (rc == 0)
        rc = take_file(m, TLS_KEY_MAX, &f->key, err);
    if (rc == 0)
        rc = take_file(m, TLS_AUTHORITIES_MAX, &f->authorities, err);
    f->require = br_rd_u8(&m->rd);
    return rc;
}

/* The key came in it. */
static void wipe_message(struct br_chan *c)
{
    explicit_bzero(c->in_.data, c->in_.cap);
}

static int malformed(const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "a malformed %s was sent", br_msg_name(m->type));
}

static int on_listen(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct tls *t = ctx;
    (void)c;
    uint8_t index = br_rd_u8(&m->rd);
    if (br_rd_done(&m->rd) < 0 || t->nlisteners == TLS_LISTENERS_MAX)
        return malformed(m, err);
    int fd = br_msg_take_fd(m);
    t->listeners[t->nlisteners].index = index;
    t->listeners[t->nlisteners++].fd = fd;
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0
               ? br_err_errno(err, BR_E_IO, "a listener could not be prepared")
               : 0;
}

static int begin(struct tls *t, int gateway, struct br_err *err)
{
    br_chan_init(&t->gateway, gateway, "gateway", NULL, 0, t);
    if (fcntl(gateway, F_SETFL, O_NONBLOCK) < 0 || tls_conns_watch(&t->conns, gateway, EPOLLIN) < 0)
        return br_err_errno(err, BR_E_IO, "the gateway's channel could not be prepared");
    accept_all(t, true);
    return 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct tls *t = ctx;
    struct tls_files f = {.require = false};
    struct br_err why = {.code = BR_OK};
    uint64_t id = m->id;
    int rc = take_files(m, &f, err);
    uint32_t seconds = br_rd_u32(&m->rd), most = br_rd_u32(&m->rd);
    int gateway = br_msg_take_fd(m);
    if (rc == 0 && (br_rd_done(&m->rd) < 0 || seconds == 0 || seconds > SECONDS_MAX || most == 0 ||
                    most > CONNECTIONS_MAX || t->nlisteners == 0 || gateway < 0))
        rc = malformed(m, err);
    wipe_message(c);
    if (rc < 0) {
        br_close(&gateway);
        tls_files_free(&f);
        return rc;
    }
    t->conns.handshake_us = seconds * 1000000ull;
    t->conns.max = most;
    rc = tls_context_server(&f, &t->ctx, &why);
    tls_files_free(&f);
    if (rc == 0)
        rc = begin(t, gateway, &why);
    else
        br_close(&gateway);
    int sent = say_ready(t, id, &why, err);
    if (rc < 0 && err)
        *err = why;
    br_chan_permit(c, BR_MSG_TLS_RELOAD);
    br_chan_forbid(c, BR_MSG_TLS_LISTEN);
    br_chan_forbid(c, BR_MSG_TLS_CONNECT);
    return rc < 0 ? rc : sent;
}

static int on_reload(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct tls *t = ctx;
    struct tls_files f = {.require = false};
    struct br_err why = {.code = BR_OK};
    SSL_CTX *fresh = NULL;
    uint64_t id = m->id;
    int rc = take_files(m, &f, err);
    if (rc == 0 && br_rd_done(&m->rd) < 0)
        rc = malformed(m, err);
    wipe_message(c);
    if (rc == 0 && tls_context_server(&f, &fresh, &why) == 0) {
        SSL_CTX_free(t->ctx); /* connections that are there keep theirs */
        t->ctx = fresh;
    }
    tls_files_free(&f);
    return rc < 0 ? rc : say_ready(t, id, &why, err);
}

static int on_connect(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct tls *t = ctx;
    struct tls_files f = {.require = false};
    struct br_err why = {.code = BR_OK};
    char host[TLS_HOST_MAX];
    t->client = true;
    t->connect_id = m->id;
    br_rd_str(&m->rd, host, sizeof(host));
    int rc = take_file(m, TLS_AUTHORITIES_MAX, &f.authorities, err);
    if (rc == 0)
        rc = take_file(m, TLS_CHAIN_MAX, &f.chain, err);
    if (rc == 0)
        rc = take_file(m, TLS_KEY_MAX, &f.key, err);
    uint32_t seconds = br_rd_u32(&m->rd);
    BR_CLEANUP_FD int net = br_msg_take_fd(m), plain = br_msg_take_fd(m);
    if (rc == 0 && (br_rd_done(&m->rd) < 0 || seconds == 0 || seconds > SECONDS_MAX || net < 0 ||
                    plain < 0 || t->nlisteners > 0))
        rc = malformed(m, err);
    wipe_message(c);
    if (rc == 0) {
        t->conns.handshake_us = seconds * 1000000ull;
        t->conns.max = 1;
        rc = tls_context_client(&f, t->system_fd, &t->ctx, &why);
        if (rc == 0 &&
            (fcntl(net, F_SETFL, O_NONBLOCK) < 0 || fcntl(plain, F_SETFL, O_NONBLOCK) < 0))
            rc = br_err_errno(&why, BR_E_IO, "the connection could not be prepared");
        if (rc == 0)
            rc = tls_conns_add(&t->conns, t->ctx, br_steal_fd(&net), br_steal_fd(&plain), 0, host,
                               &why);
        if (rc < 0)
            (void)say_ready(t, t->connect_id, &why, err);
        if (rc < 0 && err)
            *err = why;
    }
    tls_files_free(&f);
    br_chan_forbid(c, BR_MSG_TLS_LISTEN);
    br_chan_forbid(c, BR_MSG_TLS_START);
    return rc;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_TLS_LISTEN, BR_PERMIT, 1, 1, 1, 1, on_listen},
    {BR_MSG_TLS_START, BR_PERMIT | BR_ONCE, 24, BR_MSG_MAX, 1, 4, on_start},
    {BR_MSG_TLS_RELOAD, 0, 16, BR_MSG_MAX, 0, 3, on_reload},
    {BR_MSG_TLS_CONNECT, BR_PERMIT | BR_ONCE, 23, BR_MSG_MAX, 2, 5, on_connect},
};

/* Who started this has gone: what is under way may still reach the peer. */
static int on_sup_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct tls *t = ctx;
    (void)c;
    if (code != -BR_E_PEER_GONE) {
        if (err)
            t->failure = *err;
        return code;
    }
    leave(t);
    return 0;
}

/* ---- the program ---- */

/* Beyond the base list: sockets that are there, and pairs. No file, no connection, no process. */
static const int tls_calls[] = {
    SYS_accept4,    SYS_socketpair, SYS_getpeername, SYS_setsockopt, SYS_getsockopt,  SYS_shutdown,
    SYS_sendto,     SYS_recvfrom,   SYS_fcntl,       SYS_epoll_ctl,  SYS_epoll_pwait, SYS_tgkill,
    SYS_getuid,     SYS_geteuid,    SYS_getgid,      SYS_getegid,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
};

static int tls_run(struct tls *t, struct br_err *err)
{
    const struct br_role role = {
        .name = "bridle-tls",
        .uid = BR_UID_TLS,
        .max_nofile = 2 * CONNECTIONS_MAX + 64,
        .max_as = 4096ull * 1024 * 1024,
        .no_fork = true,
        .syscalls = tls_calls,
        .nsyscalls = BR_ARRAY_LEN(tls_calls),
    };
    /* what the library sets up for itself, before that is no longer possible */
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS |
                             OPENSSL_INIT_LOAD_CRYPTO_STRINGS,
                         NULL) != 1)
        return br_err_set(err, BR_E_FAILED, "TLS could not be set up");
    (void)setenv("TZ", "UTC0", 1); /* dates of certificates are compared with gmtime_r() */
    tzset();
    t->system_fd = open(SYSTEM_AUTHORITIES, O_RDONLY | O_CLOEXEC);
    t->loop = br_loop_new();
    int rc = !t->loop ? br_err_set(err, BR_E_NOMEM, "no memory to start")
                      : tls_conns_init(&t->conns, t->loop, err);
    if (rc == 0)
        rc = br_role_enter(&role, err);
    if (rc < 0)
        return rc;
    if (br_loop_watch(t->loop, t->conns.epoll, POLLIN, on_epoll, t) < 0 ||
        br_loop_watch_chan(t->loop, &t->sup, on_sup_end, t) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory to start");
    return br_loop_run(t->loop, &t->done, err);
}

int main(void)
{
    static struct tls t = {.gateway.fd = -1, .conns.epoll = -1, .system_fd = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-tls", BR_LOG_WARN);
    (void)signal(SIGPIPE, SIG_IGN);
    br_close_from(4, NULL, 0);
    tls_rates_init(&t.rates);
    t.conns.shaken = on_shaken;
    t.conns.broken = on_broken;
    t.conns.ended = on_ended;
    t.conns.ctx = &t;
    br_chan_init(&t.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &t);
    int rc = tls_run(&t, &err);
    if (rc < 0 && !t.client)
        br_log(BR_LOG_ERROR, "%s", t.failure.code ? t.failure.text : err.text);
    tls_conns_free(&t.conns);
    SSL_CTX_free(t.ctx);
    for (unsigned i = 0; i < t.nlisteners; i++)
        br_close(&t.listeners[i].fd);
    br_close(&t.system_fd);
    br_chan_close(&t.gateway);
    br_chan_close(&t.sup);
    br_loop_free(&t.loop);
    return rc < 0 || t.failed ? 1 : 0;
}
