/*
 * The guests' side of bridle-broker: connections on the socket of one sandbox, one HTTP/1.1 request
 * after the other on each. Everything that arrives is hostile, and so is who sends it: a connection
 * belongs to the process that made it, which must have the uid of the sandbox, and every piece of
 * what is read must have been sent by that same process (the kernel says so, SO_PASSCRED); so a
 * descriptor that was inherited or passed on is worth nothing. Every request presents the run's
 * token. What is refused is answered with a 4xx that no client's library repeats.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/broker.h"

#define TAG_OF(g) ((uint64_t)(g)->generation << 32 | (16u + (g)->slot))
/* The body's buffer grows by this, at least. */
#define BODY_STEP (64u * 1024)
/* What one event may read, so that nobody keeps the others waiting. */
#define READS_MAX 16u

/* ---- connections ---- */

static void watch(struct guest *g, uint32_t events)
{
    if (g->events == events)
        return;
    g->events = events;
    (void)broker_watch(g->b, EPOLL_CTL_MOD, g->fd, events, TAG_OF(g));
}

void guest_body_free(struct guest *g)
{
    g->b->bodies -= g->body.cap;
    br_buf_free(&g->body);
    br_buf_init(&g->body, BR_BLOB_MAX);
}

void guest_close(struct guest *g)
{
    struct broker *b = g->b;
    struct flight *f = g->flight;
    g->flight = NULL;
    b->guests[g->slot] = NULL;
    b->nguests--;
    (void)broker_watch(b, EPOLL_CTL_DEL, g->fd, 0, 0);
    br_close(&g->fd);
    guest_body_free(g);
    br_buf_free(&g->out);
    free(g);
    if (f)
        flight_left(f);
}

int guest_listen(struct broker *b, int fd, struct br_err *err)
{
    struct ucred who;
    socklen_t n = sizeof(who), k = sizeof(int);
    int on = 1, listens = 0, domain = 0;
    b->listener = fd;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &k) < 0 || !listens ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &k) < 0 || domain != AF_UNIX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || n != sizeof(who) ||
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
        return br_err_errno(err, BR_E_PEER_PROTOCOL,
                            "'bridled' sent something else than a listening Unix socket");
    b->guest_uid = who.uid;
    if (broker_watch(b, EPOLL_CTL_ADD, fd, EPOLLIN, 4) < 0)
        return br_err_errno(err, BR_E_IO, "the guests' socket could not be watched");
    return 0;
}

static struct guest *guest_new(struct broker *b, int fd, pid_t pid)
{
    uint32_t slot = 0;
    while (slot < BR_GUESTS_MAX && b->guests[slot])
        slot++;
    struct guest *g = slot < BR_GUESTS_MAX ? malloc(sizeof(*g)) : NULL;
    if (!g)
        return NULL;
    memset(g, 0, offsetof(struct guest, req));
    g->b = b;
    g->fd = fd;
    g->pid = pid;
    g->slot = slot;
    g->generation = ++b->generation;
    g->events = EPOLLIN;
    br_buf_init(&g->body, BR_BLOB_MAX);
    br_buf_init(&g->out, 2 * BR_BLOB_MAX);
    if (broker_watch(b, EPOLL_CTL_ADD, fd, g->events, TAG_OF(g)) < 0) {
        free(g);
        return NULL;
    }
    b->guests[slot] = g;
    b->nguests++;
    return g;
}

void guest_accept(struct broker *b)
{
    for (unsigned i = 0; i < READS_MAX; i++) {
        BR_CLEANUP_FD int fd = accept4(b->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct ucred who = {.pid = 0, .uid = (uid_t)-1};
        socklen_t n = sizeof(who), k = sizeof(int);
        int pass = 0, on = 1;
        if (fd < 0)
            return;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.uid != b->guest_uid ||
            who.pid <= 0) {
            flight_refused(b, BR_E_DENIED,
                           "a process of another user connected to the provider's socket; it was "
                           "turned away");
            continue;
        }
        /* inherited; but of who connected before the listener had it, what was sent until now names
         * no sender, and is refused */
        if (getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &pass, &k) < 0 ||
            (!pass && setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0))
            continue;
        if (guest_new(b, fd, who.pid))
            (void)br_steal_fd(&fd);
    }
}

/* ---- answers ---- */

bool guest_flush(struct guest *g)
{
    while (guest_unread(g)) {
        ssize_t r =
            send(g->fd, g->out.data + g->out_off, guest_unread(g), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            watch(g, (g->events & EPOLLIN) | EPOLLOUT);
            return true;
        }
        if (r < 0) {
            guest_close(g);
            return false;
        }
        g->out_off += (size_t)r;
    }
    br_buf_reset(&g->out);
    g->out_off = 0;
    watch(g, g->events & ~(uint32_t)EPOLLOUT);
    return true;
}

void guest_flush_later(struct guest *g)
{
    if (g->dirty)
        return;
    g->dirty = true;
    g->b->dirty[g->b->ndirty++] = (uint16_t)g->slot;
}

void guest_flush_all(struct broker *b)
{
    for (unsigned i = 0; i < b->ndirty; i++) {
        struct guest *g = b->guests[b->dirty[i]];
        if (!g || !g->dirty) /* it has gone, and another one may be there */
            continue;
        g->dirty = false;
        if (guest_flush(g) && g->flight)
            flight_credit(g->flight);
    }
    b->ndirty = 0;
}

void guest_head(struct guest *g, unsigned status, const char *content_type,
                const struct br_headers *h)
{
    br_buf_printf(&g->out, "HTTP/1.1 %u %s\r\ncontent-type: %s\r\n", status, br_http_reason(status),
                  content_type);
    for (uint32_t i = 0; h && i < h->n; i++)
        if (strcmp(h->h[i].name, "content-type") != 0)
            br_buf_printf(&g->out, "%s: %s\r\n", h->h[i].name, h->h[i].value);
    br_buf_printf(&g->out, "%stransfer-encoding: chunked\r\n\r\n",
                  g->close_after ? "connection: close\r\n" : "");
    g->head_sent = true;
}

#define CHUNK_HEAD 10u /* eight digits and CRLF */

void guest_compact(struct guest *g)
{
    if (g->out_off <= BR_BROKER_WINDOW / 2)
        return;
    memmove(g->out.data, g->out.data + g->out_off, guest_unread(g));
    g->out.len -= g->out_off;
    g->out_off = 0;
}

size_t guest_chunk_begin(struct guest *g)
{
    br_buf_put(&g->out, "00000000\r\n", CHUNK_HEAD);
    return g->out.len;
}

void guest_chunk_end(struct guest *g, size_t mark)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = g->out.len - mark;
    if (g->out.failed)
        return;
    if (n == 0) { /* which would be the end of the body */
        g->out.len = mark - CHUNK_HEAD;
        return;
    }
    for (uint8_t *p = g->out.data + mark - 3; n; n >>= 4)
        *p-- = (uint8_t)digits[n & 15];
    br_buf_put(&g->out, "\r\n", 2);
}

/* Nothing more is answered; what the guest still says is read for a while, because closing a
 * socket with unread bytes takes the answer away from its reader. */
static void linger(struct guest *g)
{
    g->state = GUEST_LINGER;
    g->due_us = br_now_us() + BR_GUEST_LINGER_US;
    if (!guest_unread(g))
        (void)shutdown(g->fd, SHUT_WR);
    watch(g, EPOLLIN | (guest_unread(g) ? EPOLLOUT : 0u));
}

static void advance(struct guest *g);

/* The next request, which may be there already; but not before this answer is on its way. */
static void next_request(struct guest *g)
{
    g->state = GUEST_HEAD;
    g->due_us = 0;
    watch(g, guest_unread(g) ? EPOLLOUT : EPOLLIN);
    if (g->in_len && !guest_unread(g) && !g->advancing)
        advance(g);
}

void guest_done(struct guest *g, bool whole)
{
    g->flight = NULL;
    if (whole)
        br_buf_put(&g->out, "0\r\n\r\n", 5);
    if (!whole || g->out.failed)
        g->close_after = true;
    if (!guest_flush(g))
        return;
    if (g->close_after || g->b->over)
        linger(g);
    else
        next_request(g);
}

void guest_answer(struct guest *g, unsigned status, const char *content_type, bool retry,
                  const struct br_buf *body)
{
    br_buf_printf(&g->out, "HTTP/1.1 %u %s\r\ncontent-type: %s\r\n%s%scontent-length: %zu\r\n\r\n",
                  status, br_http_reason(status), content_type,
                  retry ? "" : "x-should-retry: false\r\n",
                  g->close_after ? "connection: close\r\n" : "", body->len);
    br_buf_put(&g->out, body->data, body->len);
    g->flight = NULL;
    if (!guest_flush(g))
        return;
    if (g->close_after)
        linger(g);
    else
        next_request(g);
}

void guest_refuse(struct guest *g, uint32_t route, unsigned status, enum br_code code,
                  const char *text)
{
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(BR_MSG_MAX);
    br_error_body(route, false, code, text, &body);
    guest_answer(g, status, "application/json", false, &body);
}

/* A request that is not even looked at. Where the next one begins is not known. */
static void turn_away(struct guest *g, unsigned status, enum br_code code, const char *text)
{
    uint32_t route = strstr(g->req.path, "/messages") ? BR_ROUTE_MESSAGES : BR_ROUTE_CHAT;
    g->close_after = true;
    g->in_len = g->scanned = 0;
    guest_body_free(g);
    flight_refused(g->b, code, text);
    guest_refuse(g, route, status, code, text);
}

/* ---- requests ---- */

static bool token_ok(const struct guest *g)
{
    bool ok = g->req.ntokens > 0;
    for (unsigned i = 0; i < g->req.ntokens; i++)
        ok &= br_http_token_same(g->req.tokens[i], g->req.token_len[i], g->b->account.lease.token);
    return ok;
}

/* The largest body that is read: of what is larger the lease could not pay for. */
static size_t body_max(const struct guest *g)
{
    uint64_t max = g->b->account.lease.max_request_bytes;
    return max < BR_BLOB_MAX ? (size_t)max : BR_BLOB_MAX;
}

/* Room for so many more bytes of the body as may be read at once; false if there is none. */
static bool body_room(struct guest *g)
{
    struct br_buf *q = &g->body;
    size_t want = q->cap ? 2 * q->cap : BODY_STEP;
    if (q->len < q->cap)
        return true;
    if (want > g->req.length)
        want = (size_t)g->req.length;
    if (g->b->bodies + want > BR_GUEST_BODIES_MAX)
        return false;
    uint8_t *p = realloc(q->data, want);
    if (!p)
        return false;
    g->b->bodies += want - q->cap;
    q->data = p;
    q->cap = want;
    return true;
}

/* The head is complete: n bytes. True if the body may come. */
static bool accept_head(struct guest *g, size_t n)
{
    struct br_err err = {.code = BR_OK};
    unsigned status = br_http_head(g->in, n, &g->req, &err);
    if (status == 0 && !token_ok(g))
        status = 401, br_err_set(&err, BR_E_DENIED,
                                 "the request does not present the token of this run; nothing was "
                                 "sent");
    if (status == 0 && strncmp(g->req.path, "/v1/", 4) != 0)
        status = 404, br_err_set(&err, BR_E_LEASE_REFUSED,
                                 "the provider's paths begin with '/v1/'; nothing was sent");
    if (status == 0 && g->b->over)
        status = 403,
        br_err_set(&err, BR_E_LEASE_REFUSED, "the provider lease has ended; nothing was sent");
    g->body.max = body_max(g);
    if (status == 0 && g->req.length > g->body.max)
        status = 413, br_err_set(&err, BR_E_LEASE_REFUSED,
                                 "the request has %llu bytes, and %zu are the most that the "
                                 "provider lease allows; nothing was sent",
                                 (unsigned long long)g->req.length, g->body.max);
    if (status) {
        turn_away(g, status, err.code, err.text);
        return false;
    }
    g->close_after = g->req.close;
    g->in_len -= n;
    memmove(g->in, g->in + n, g->in_len);
    g->scanned = 0;
    return true;
}

static bool take_body(struct guest *g)
{
    size_t used = 0;
    struct br_err err;
    if (g->req.chunked) {
        size_t before = g->body.cap;
        unsigned status = br_http_chunks_feed(&g->chunks, g->in, g->in_len, &used, &g->body, &err);
        g->b->bodies += g->body.cap - before;
        if (status == 0 && g->b->bodies > BR_GUEST_BODIES_MAX)
            status = 503, br_err_set(&err, BR_E_LIMIT_EXCEEDED,
                                     "too many large requests come at the same time; nothing was "
                                     "sent");
        if (status) {
            turn_away(g, status, err.code, err.text);
            return false;
        }
    } else {
        used = g->req.length - g->body.len < g->in_len ? (size_t)(g->req.length - g->body.len)
                                                       : g->in_len;
        size_t left = used;
        while (left && body_room(g)) {
            size_t k = g->body.cap - g->body.len < left ? g->body.cap - g->body.len : left;
            memcpy(g->body.data + g->body.len, g->in + used - left, k);
            g->body.len += k;
            left -= k;
        }
        if (left) {
            turn_away(g, 503, BR_E_LIMIT_EXCEEDED,
                      "too many large requests come at the same time; nothing was sent");
            return false;
        }
    }
    g->in_len -= used;
    memmove(g->in, g->in + used, g->in_len);
    return true;
}

static bool body_complete(const struct guest *g)
{
    return g->req.chunked ? g->chunks.done : g->body.len == g->req.length;
}

static void begin_body(struct guest *g)
{
    g->state = GUEST_BODY;
    g->due_us = br_now_us() + BR_GUEST_BODY_US;
    g->chunks = (struct br_http_chunks){.state = 0};
    if (take_body(g) && g->req.expects_continue && !body_complete(g)) {
        br_buf_printf(&g->out, "HTTP/1.1 100 Continue\r\n\r\n");
        (void)guest_flush(g);
    }
}

/* A head, if it is complete; true if its body is to be read. */
static bool take_head(struct guest *g)
{
    size_t n = br_http_head_end(g->in, g->in_len, g->scanned);
    g->scanned = g->in_len;
    if (!g->due_us)
        g->due_us = br_now_us() + BR_GUEST_HEAD_US;
    if (n == 0 && g->in_len == sizeof(g->in)) {
        g->req.path[0] = 0;
        turn_away(g, 431, BR_E_INVALID_FRAME,
                  "the request's head is larger than 16 KiB; nothing was sent");
        return false;
    }
    if (n == 0 || !accept_head(g, n))
        return false;
    g->head_sent = false;
    begin_body(g);
    return true;
}

/* Go as far as the bytes that are there allow; g may be gone afterwards. */
static void advance(struct guest *g)
{
    struct broker *b = g->b;
    uint32_t slot = g->slot, generation = g->generation;
    g->advancing = true;
    while (b->guests[slot] == g && g->generation == generation) {
        if (g->state == GUEST_HEAD && g->in_len && !guest_unread(g)) {
            if (take_head(g))
                continue;
        } else if (g->state == GUEST_BODY && body_complete(g)) {
            g->state = GUEST_WAIT;
            g->due_us = 0;
            watch(g, g->events & EPOLLOUT);
            flight_of_guest(g);
            continue;
        } else if (g->state == GUEST_BODY && g->in_len && take_body(g)) {
            if (body_complete(g) || g->in_len)
                continue;
        }
        break;
    }
    if (b->guests[slot] == g && g->generation == generation)
        g->advancing = false;
}

/* ---- reading ---- */

/* Receive into p; the sender must be the process that connected. -1: there is nothing now, or the
 * guest was closed or turned away. */
static ssize_t receive(struct guest *g, void *p, size_t n)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } ctl;
    struct iovec iov = {.iov_base = p, .iov_len = n};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = ctl.space,
                        .msg_controllen = sizeof(ctl.space)};
    ssize_t r;
    do {
        r = recvmsg(g->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (r < 0 && errno == EINTR);
    if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return -1;
    if (r <= 0) {
        guest_close(g);
        return -1;
    }
    const struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
    struct ucred who = {.pid = 0};
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS &&
        h->cmsg_len == CMSG_LEN(sizeof(who)))
        memcpy(&who, CMSG_DATA(h), sizeof(who));
    /* descriptors that come along find no room, and the kernel has closed them */
    if (who.pid == g->pid && who.uid == g->b->guest_uid && !(mh.msg_flags & MSG_CTRUNC))
        return r;
    g->req.path[0] = 0;
    turn_away(g, 403, BR_E_DENIED,
              "another process than the one that connected used the connection; nothing was sent");
    return -1;
}

static void read_linger(struct guest *g)
{
    char drop[16384];
    ssize_t r = recv(g->fd, drop, sizeof(drop), MSG_DONTWAIT);
    if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    g->lingered += r > 0 ? (size_t)r : 0;
    if (r <= 0 || g->lingered > BR_GUEST_LINGER_BYTES)
        guest_close(g);
}

static void on_readable(struct guest *g)
{
    struct broker *b = g->b;
    uint32_t slot = g->slot, generation = g->generation;
    for (unsigned i = 0; i < READS_MAX; i++) {
        if (b->guests[slot] != g || g->generation != generation || g->state == GUEST_WAIT)
            return;
        if (g->state == GUEST_LINGER) {
            read_linger(g);
            return;
        }
        if (g->state == GUEST_BODY && !g->req.chunked) {
            if (!body_room(g)) {
                turn_away(g, 503, BR_E_LIMIT_EXCEEDED,
                          "too many large requests come at the same time; nothing was sent");
                return;
            }
            ssize_t r = receive(g, g->body.data + g->body.len, g->body.cap - g->body.len);
            if (r < 0)
                return;
            g->body.len += (size_t)r;
        } else {
            ssize_t r = receive(g, g->in + g->in_len, sizeof(g->in) - g->in_len);
            if (r < 0)
                return;
            g->in_len += (size_t)r;
        }
        bool body = g->state == GUEST_BODY;
        advance(g);
        if (!body)
            return; /* most requests are there with one reading */
    }
}

void guest_event(struct broker *b, uint32_t slot, uint32_t generation, uint32_t events)
{
    struct guest *g = slot < BR_GUESTS_MAX ? b->guests[slot] : NULL;
    if (!g || g->generation != generation)
        return;
    /* both directions are closed: nobody is there to read an answer, and what was sent before is
     * still read where it is wanted */
    if (events & EPOLLERR || (events & EPOLLHUP && !(g->events & EPOLLIN))) {
        guest_close(g);
        return;
    }
    if (events & EPOLLOUT) {
        if (!guest_flush(g))
            return;
        if (g->flight)
            flight_credit(g->flight);
        else if (g->state == GUEST_HEAD && !guest_unread(g))
            next_request(g);
        else if (g->state == GUEST_LINGER && !guest_unread(g))
            (void)shutdown(g->fd, SHUT_WR);
    }
    if (events & (EPOLLIN | EPOLLHUP) && g->events & EPOLLIN)
        on_readable(g);
}

void guest_tick(struct broker *b, uint64_t now)
{
    for (uint32_t i = 0; i < BR_GUESTS_MAX; i++) {
        struct guest *g = b->guests[i];
        if (!g || !g->due_us || now < g->due_us)
            continue;
        if (g->state == GUEST_HEAD || g->state == GUEST_BODY) {
            g->req.path[0] = 0;
            turn_away(g, 408, BR_E_TIMEOUT, "the request did not come in time; nothing was sent");
        } else if (g->state == GUEST_LINGER) {
            guest_close(g);
        }
    }
}

void guest_close_idle(struct broker *b)
{
    if (b->listener >= 0)
        (void)broker_watch(b, EPOLL_CTL_DEL, b->listener, 0, 0);
    br_close(&b->listener);
    for (uint32_t i = 0; i < BR_GUESTS_MAX; i++)
        if (b->guests[i] && b->guests[i]->state == GUEST_HEAD && !b->guests[i]->in_len &&
            !guest_unread(b->guests[i]))
            guest_close(b->guests[i]);
}
