/*
 * Connections. Called by bridle-egress's loop only. Trusts libcurl for names, proxies and TLS, and
 * the kernel. What a name resolved to is looked at when the socket is made: plaintext never leaves
 * this machine. Plain connections are made here, since they need none of what libcurl knows. Texts
 * of errors are composed of libcurl's constant strings and the origin, so that neither the key nor
 * the provider can be part of them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "egress/net.h"

#define TAG_CURL (3ull << 62)
#define TAG_SPARE (BR_NET_TAGS - 1)
/* A Unix socket whose queue is full is tried again after this. */
#define AGAIN_US 5000u
/* How long libcurl may keep the parsed certificates of the system. */
#define CA_CACHE_S 3600L

struct br_net {
    struct br_net_config config;
    int epoll;
    CURLM *multi;
    CURLSH *share;
    uint64_t curl_due_us; /* UINT64_MAX: never */
    struct br_conn spare; /* between two requests, or before the first */
    uint64_t spare_until_us;
    bool kept; /* it has carried one */
    struct br_net_event *out;
    int nout;
    bool more; /* of what libcurl has done, `out` could not take all */
};

/* ---- libcurl's side ---- */

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    struct br_net *n = ctx;
    struct epoll_event ev = {.data.u64 = TAG_CURL | (uint32_t)fd};
    (void)easy;
    (void)socket_ctx;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(n->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (epoll_ctl(n->epoll, EPOLL_CTL_MOD, fd, &ev) < 0 && errno == ENOENT)
        (void)epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &ev);
    return 0;
}

static int on_curl_timer(CURLM *multi, long ms, void *ctx)
{
    struct br_net *n = ctx;
    (void)multi;
    n->curl_due_us = ms < 0 ? UINT64_MAX : br_now_us() + (uint64_t)ms * 1000;
    return 0;
}

int br_net_new(struct br_net **out, struct br_err *err)
{
    struct br_net *n = calloc(1, sizeof(*n));
    *out = n;
    if (!n)
        return br_err_set(err, BR_E_NOMEM, "no memory for connections");
    n->curl_due_us = UINT64_MAX;
    n->spare.fd = -1;
    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    return n->epoll < 0 ? br_err_errno(err, BR_E_FAILED, "no epoll") : 0;
}

int br_net_configure(struct br_net *n, const struct br_net_config *c, struct br_err *err)
{
    n->config = *c;
    if (c->target->plaintext)
        return 0; /* and OpenSSL is not even set up */
    bool ok = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK && (n->multi = curl_multi_init()) &&
              (n->share = curl_share_init());
    ok = ok &&
         curl_share_setopt(n->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) == CURLSHE_OK &&
         curl_multi_setopt(n->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket) == CURLM_OK &&
         curl_multi_setopt(n->multi, CURLMOPT_SOCKETDATA, n) == CURLM_OK &&
         curl_multi_setopt(n->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer) == CURLM_OK &&
         curl_multi_setopt(n->multi, CURLMOPT_TIMERDATA, n) == CURLM_OK;
    return ok ? 0 : br_err_set(err, BR_E_FAILED, "'libcurl' could not be initialised");
}

void br_net_free(struct br_net **pn)
{
    struct br_net *n = *pn;
    if (!n)
        return;
    br_conn_close(n, &n->spare);
    if (n->multi)
        curl_multi_cleanup(n->multi);
    if (n->share)
        curl_share_cleanup(n->share);
    br_close(&n->epoll);
    free(n);
    *pn = NULL;
    curl_global_cleanup();
}

int br_net_watch(struct br_net *n, int fd, uint64_t tag, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.u64 = tag};
    if (epoll_ctl(n->epoll, EPOLL_CTL_MOD, fd, &ev) == 0)
        return 0;
    return errno == ENOENT && epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : -BR_E_IO;
}

void br_net_unwatch(struct br_net *n, int fd)
{
    (void)epoll_ctl(n->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* Whatever a name resolved to. */
static curl_socket_t on_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    const struct br_net *n = ctx;
    bool ok = purpose == CURLSOCKTYPE_IPCXN && !n->config.target->plaintext;
    ok = ok && (n->config.target->unix_socket ? a->family == AF_UNIX
                                              : a->family == AF_INET || a->family == AF_INET6);
    return ok ? socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol) : CURL_SOCKET_BAD;
}

#define SET(option, value) (ok = curl_easy_setopt(e, option, value) == CURLE_OK && ok)

static bool options_tls(const struct br_net *n, CURL *e)
{
    bool ok = true;
    struct curl_blob pem = {.flags = CURL_BLOB_NOCOPY};
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_PROXY_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_PROXY_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_PROXY_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_CAPATH, NULL); /* what is only a file, libcurl parses once */
    SET(CURLOPT_PROXY_CAPATH, NULL);
    SET(CURLOPT_CA_CACHE_TIMEOUT, CA_CACHE_S);
    if (!n->config.ca)
        return ok;
    pem.data = n->config.ca->data;
    pem.len = n->config.ca->len;
    SET(CURLOPT_CAINFO, NULL);
    SET(CURLOPT_PROXY_CAINFO, NULL);
    SET(CURLOPT_CAINFO_BLOB, &pem);
    SET(CURLOPT_PROXY_CAINFO_BLOB, &pem);
    return ok;
}

static bool options(struct br_net *n, struct br_conn *c)
{
    CURL *e = c->easy;
    bool ok = true;
    const char *sock = n->config.unix_socket;
    SET(CURLOPT_CONNECT_ONLY, 1L); /* libcurl is told of no request, so it cannot repeat one */
    SET(CURLOPT_PROTOCOLS_STR, "https");
    SET(CURLOPT_URL, n->config.target->origin);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, n->config.proxy); /* "": none, and none of the environment's */
    SET(CURLOPT_NOPROXY, n->config.proxy[0] ? "" : "*");
    SET(CURLOPT_HTTPPROXYTUNNEL, 1L);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FRESH_CONNECT, 1L);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* who is given up while its name is looked up does not block */
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)BR_EGRESS_SECONDS_MAX * 1000); /* the clock is ours */
    SET(CURLOPT_USERAGENT, "bridle/0.1");
    SET(CURLOPT_SHARE, n->share);
    SET(CURLOPT_PRIVATE, c);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    SET(CURLOPT_OPENSOCKETDATA, n);
    if (sock[0] == '@')
        SET(CURLOPT_ABSTRACT_UNIX_SOCKET, sock + 1);
    else if (sock[0])
        SET(CURLOPT_UNIX_SOCKET_PATH, sock);
    return options_tls(n, e) && ok;
}

static void fail_unreachable(struct br_net *n, struct br_conn *c, const char *why)
{
    c->state = BR_CONN_FAILED;
    br_err_set(&c->why, BR_E_PROVIDER_UNREACHABLE,
               "the provider at '%s' cannot be reached%s (%s); nothing was sent. Check the base "
               "URL and the network",
               n->config.target->origin, n->config.proxy[0] ? " through the proxy" : "", why);
}

/* ---- plain connections ---- */

static int plain_socket(const struct br_net *n, unsigned attempt, struct sockaddr_storage *sa,
                        socklen_t *len)
{
    const struct br_egress_target *t = n->config.target;
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)sa;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)sa;
    memset(sa, 0, sizeof(*sa));
    bool name = strcasecmp(t->host, "localhost") == 0;
    if (attempt > (name ? 1u : 0u))
        return -1;
    if (strchr(t->host, ':') || (name && attempt == 1)) {
        *in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(t->port)};
        *len = sizeof(*in6);
        if (inet_pton(AF_INET6, name ? "::1" : t->host, &in6->sin6_addr) != 1 ||
            !IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr))
            return -1;
    } else {
        *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(t->port)};
        *len = sizeof(*in);
        if (inet_pton(AF_INET, name ? "127.0.0.1" : t->host, &in->sin_addr) != 1 ||
            (ntohl(in->sin_addr.s_addr) >> 24) != 127)
            return -1;
    }
    return socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int unix_socket(const struct br_net *n, struct sockaddr_storage *sa, socklen_t *len)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)sa;
    const char *path = n->config.unix_socket;
    size_t k = strlen(path);
    memset(sa, 0, sizeof(*sa));
    un->sun_family = AF_UNIX;
    if (k >= sizeof(un->sun_path))
        return -1;
    memcpy(un->sun_path, path, k);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + k);
    if (path[0] == '@')
        un->sun_path[0] = '\0';
    else
        *len += 1;
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static void conn_opened(struct br_conn *c)
{
    c->state = BR_CONN_OPEN;
    c->writable = true;
}

/* The addresses of `localhost` one after the other; nothing is sent before one has answered. */
static void plain_open(struct br_net *n, struct br_conn *c)
{
    int problem = ECONNREFUSED;
    const int one = 1;
    for (;;) {
        struct sockaddr_storage sa;
        socklen_t len = 0;
        bool local = n->config.target->unix_socket;
        BR_CLEANUP_FD int fd = local ? (c->tries ? -1 : unix_socket(n, &sa, &len))
                                     : plain_socket(n, c->tries, &sa, &len);
        c->tries++;
        if (fd < 0)
            break;
        if (!local)
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (connect(fd, (struct sockaddr *)&sa, len) == 0 || errno == EINPROGRESS) {
            struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                     .data.u64 = c->tag};
            c->fd = br_steal_fd(&fd);
            c->state = BR_CONN_OPENING;
            len = sizeof(sa);
            if (epoll_ctl(n->epoll, EPOLL_CTL_ADD, c->fd, &ev) < 0)
                fail_unreachable(n, c, "no epoll");
            else if (getpeername(c->fd, (struct sockaddr *)&sa, &len) == 0)
                conn_opened(c); /* over loopback it usually is there at once */
            return;
        }
        problem = errno;
        if (problem != EAGAIN)
            continue;
        c->state = BR_CONN_OPENING; /* its queue is full */
        c->tries = 0;
        c->again_us = br_now_us() + AGAIN_US;
        return;
    }
    fail_unreachable(n, c, strerror(problem));
}

static void plain_event(struct br_net *n, struct br_conn *c)
{
    int problem = 0;
    socklen_t len = sizeof(problem);
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &problem, &len) < 0)
        problem = errno;
    if (problem == 0) {
        conn_opened(c);
        return;
    }
    br_close(&c->fd);
    plain_open(n, c);
    if (c->state == BR_CONN_FAILED)
        fail_unreachable(n, c, strerror(problem));
}

/* ---- with TLS ---- */

static void fail_curl(struct br_net *n, struct br_conn *c, CURLcode code)
{
    const char *origin = n->config.target->origin, *why = curl_easy_strerror(code);
    switch (code) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        c->state = BR_CONN_FAILED;
        br_err_set(&c->why, BR_E_PROVIDER_UNREACHABLE,
                   "no trusted TLS connection to the provider at '%s' could be made (%s); nothing "
                   "was sent. Check the base URL and %s",
                   origin, why,
                   n->config.ca ? "the certificates of 'ca_file'"
                                : "that 'ca-certificates' is installed");
        return;
    case CURLE_COULDNT_RESOLVE_PROXY:
        fail_unreachable(n, c, "the proxy's name cannot be resolved");
        return;
    case CURLE_PROXY:
        fail_unreachable(n, c, "the proxy did not answer as one");
        return;
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
        fail_unreachable(n, c,
                         n->config.proxy[0] ? "the proxy refused, or the connection was cut"
                                            : "the connection was cut");
        return;
    default:
        fail_unreachable(n, c, why);
    }
}

static void tls_open(struct br_net *n, struct br_conn *c)
{
    c->easy = curl_easy_init();
    c->state = BR_CONN_OPENING;
    if (!c->easy || !options(n, c) || curl_multi_add_handle(n->multi, c->easy) != CURLM_OK)
        fail_unreachable(n, c, "the connection could not be prepared");
}

/* libcurl is done with it, one way or the other. */
static void tls_done(struct br_net *n, struct br_conn *c, CURLcode code)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                             .data.u64 = c->tag};
    if (code != CURLE_OK) {
        fail_curl(n, c, code);
        return;
    }
    if (curl_easy_getinfo(c->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK ||
        fd == CURL_SOCKET_BAD ||
        (epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &ev) < 0 &&
         (errno != EEXIST || epoll_ctl(n->epoll, EPOLL_CTL_MOD, fd, &ev) < 0))) {
        fail_unreachable(n, c, "the connection was lost");
        return;
    }
    c->fd = fd;
    c->readable = true; /* what came behind the handshake may be inside of OpenSSL */
    conn_opened(c);
}

static void tls_results(struct br_net *n)
{
    int left;
    n->more = false;
    for (CURLMsg *m; (m = curl_multi_info_read(n->multi, &left));) {
        struct br_conn *c = NULL;
        if (m->msg != CURLMSG_DONE ||
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c) != CURLE_OK || !c ||
            c->state != BR_CONN_OPENING)
            continue;
        tls_done(n, c, m->data.result);
        if (c == &n->spare)
            continue;
        n->out[n->nout++] = (struct br_net_event){.tag = c->tag};
        if (n->nout == BR_NET_EVENTS) {
            n->more = true;
            return;
        }
    }
}

/* ---- all of them ---- */

static void open_fresh(struct br_net *n, struct br_conn *c, uint64_t tag)
{
    *c = (struct br_conn){.tag = tag, .fd = -1};
    if (n->config.target->plaintext)
        plain_open(n, c);
    else
        tls_open(n, c);
}

/* Whether it still is what it was when it was opened: nobody speaks before a request. */
static bool untouched(struct br_conn *c)
{
    char byte;
    if (c->state == BR_CONN_OPENING)
        return c->again_us == 0;
    if (c->state != BR_CONN_OPEN)
        return false;
    if (c->easy) /* what TLS itself has to say, OpenSSL takes in */
        return br_conn_read(c, &byte, 1) == -EAGAIN;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static bool take_spare(struct br_net *n, struct br_conn *c, uint64_t tag)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u64 = tag};
    if (n->spare.state == BR_CONN_NONE)
        return false;
    if (br_now_us() >= n->spare_until_us || !untouched(&n->spare) ||
        (n->spare.fd >= 0 && epoll_ctl(n->epoll, EPOLL_CTL_MOD, n->spare.fd, &ev) < 0)) {
        br_conn_close(n, &n->spare);
        return false;
    }
    *c = n->spare;
    c->tag = tag;
    n->spare = (struct br_conn){.fd = -1};
    if (c->easy)
        (void)curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    return true;
}

void br_conn_open(struct br_net *n, struct br_conn *c, uint64_t tag)
{
    br_require(tag < TAG_SPARE);
    if (!take_spare(n, c, tag))
        open_fresh(n, c, tag);
}

void br_net_spare(struct br_net *n)
{
    unsigned s = n->config.target->plaintext ? 1 : BR_NET_SPARE_S;
    if (n->spare.state != BR_CONN_NONE || n->config.target->unix_socket)
        return;
    n->spare_until_us = br_now_us() + (uint64_t)s * 1000000;
    n->kept = false;
    open_fresh(n, &n->spare, TAG_SPARE);
}

bool br_net_keep(struct br_net *n, struct br_conn *c)
{
    if (n->spare.state != BR_CONN_NONE || n->config.target->unix_socket || c->state != BR_CONN_OPEN)
        return false;
    n->spare = *c;
    n->spare.tag = TAG_SPARE;
    n->spare.readable = c->easy != NULL; /* the socket tells again when it is taken */
    n->spare_until_us = br_now_us() + 1000000;
    n->kept = true;
    *c = (struct br_conn){.fd = -1};
    return true;
}

static void spare_event(struct br_net *n, uint32_t events)
{
    br_conn_event(n, &n->spare, events);
    if (n->spare.state == BR_CONN_OPEN && n->spare.readable && !untouched(&n->spare))
        br_conn_close(n, &n->spare);
}

/* Of no use any more, or of none from the beginning. */
static void spare_check(struct br_net *n)
{
    bool bad = n->spare.state == BR_CONN_FAILED || n->spare.again_us;
    if (n->spare.state == BR_CONN_NONE || (!bad && br_now_us() < n->spare_until_us))
        return;
    br_conn_close(n, &n->spare);
    if (n->kept && !n->config.target->plaintext)
        br_net_spare(n); /* a handshake is worth it */
}

void br_conn_event(struct br_net *n, struct br_conn *c, uint32_t events)
{
    if (c->state == BR_CONN_OPENING && !c->easy) {
        if (c->fd < 0 && c->again_us && br_now_us() >= c->again_us) {
            c->again_us = 0;
            plain_open(n, c);
        } else if (c->fd >= 0 && events) {
            plain_event(n, c);
        }
    }
    if (c->state != BR_CONN_OPEN)
        return;
    c->readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    c->writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
}

static ssize_t tls_write(struct br_conn *c, const struct iovec *v, int n)
{
    ssize_t sum = 0;
    for (int i = 0; i < n; i++) {
        size_t k = 0;
        if (v[i].iov_len == 0)
            continue;
        CURLcode r = curl_easy_send(c->easy, v[i].iov_base, v[i].iov_len, &k);
        sum += (ssize_t)k;
        if (r != CURLE_OK && r != CURLE_AGAIN)
            return sum ? sum : -EPIPE;
        if (r == CURLE_AGAIN || k < v[i].iov_len) {
            c->writable = r != CURLE_AGAIN;
            return sum ? sum : -EAGAIN;
        }
    }
    return sum;
}

ssize_t br_conn_write(struct br_conn *c, const struct iovec *v, int n)
{
    struct msghdr mh = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};
    ssize_t r;
    if (c->easy)
        return tls_write(c, v, n);
    do {
        r = sendmsg(c->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EAGAIN)
        c->writable = false;
    return r < 0 ? -errno : r;
}

ssize_t br_conn_read(struct br_conn *c, void *p, size_t n)
{
    ssize_t r;
    size_t k = 0;
    if (c->easy) {
        CURLcode code = curl_easy_recv(c->easy, p, n, &k);
        if (code == CURLE_AGAIN)
            c->readable = false;
        return code == CURLE_OK ? (ssize_t)k : code == CURLE_AGAIN ? -EAGAIN : -ECONNRESET;
    }
    do {
        r = recv(c->fd, p, n, MSG_DONTWAIT);
    } while (r < 0 && errno == EINTR);
    if (r < 0 && errno == EAGAIN)
        c->readable = false;
    return r < 0 ? -errno : r;
}

void br_conn_close(struct br_net *n, struct br_conn *c)
{
    if (c->easy) {
        if (c->fd >= 0)
            (void)epoll_ctl(n->epoll, EPOLL_CTL_DEL, c->fd, NULL);
        (void)curl_multi_remove_handle(n->multi, c->easy); /* closes what it only connected */
        curl_easy_cleanup(c->easy);
        c->easy = NULL;
        c->fd = -1;
    }
    br_close(&c->fd);
    c->state = BR_CONN_NONE;
    c->again_us = 0;
}

/* ---- waiting ---- */

static int wait_ms(const struct br_net *n, int ms)
{
    uint64_t now = br_now_us();
    uint64_t due = n->curl_due_us;
    if (n->more)
        return 0;
    if (n->spare.state != BR_CONN_NONE && n->spare_until_us < due)
        due = n->spare_until_us;
    if (due == UINT64_MAX)
        return ms;
    uint64_t left = due <= now ? 0 : (due - now + 999) / 1000;
    return ms < 0 || left < (uint64_t)ms ? (left > 60000 ? 60000 : (int)left) : ms;
}

int br_net_wait(struct br_net *n, struct br_net_event out[BR_NET_EVENTS], int ms,
                struct br_err *err)
{
    struct epoll_event ev[BR_NET_EVENTS / 2]; /* the other half is for what libcurl has done */
    int running;
    n->out = out;
    n->nout = 0;
    int k = epoll_wait(n->epoll, ev, BR_NET_EVENTS / 2, wait_ms(n, ms));
    if (k < 0 && errno != EINTR)
        return br_err_errno(err, BR_E_IO, "waiting failed");
    for (int i = 0; i < k; i++) {
        if (ev[i].data.u64 == TAG_SPARE) {
            spare_event(n, ev[i].events);
            continue;
        }
        if (ev[i].data.u64 < BR_NET_TAGS) {
            out[n->nout++] = (struct br_net_event){.tag = ev[i].data.u64, .events = ev[i].events};
            continue;
        }
        int what = (ev[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                   (ev[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (ev[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        (void)curl_multi_socket_action(n->multi, (curl_socket_t)(uint32_t)ev[i].data.u64, what,
                                       &running);
    }
    if (n->curl_due_us != UINT64_MAX && br_now_us() >= n->curl_due_us) {
        n->curl_due_us = UINT64_MAX;
        (void)curl_multi_socket_action(n->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    if (n->multi)
        tls_results(n);
    spare_check(n);
    return n->nout;
}
