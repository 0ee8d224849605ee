/*
 * Channels. Everything that arrives is hostile until its row in the receiver's table says that
 * it may come now, how long it may be, and how many descriptors it may bring.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/wire.h"

#define IN_FLIGHT_STEP_MS 5

enum { BLOB_INLINE = 0, BLOB_MEMFD = 1 };

_Static_assert(sizeof(struct br_msg_header) == 16, "the header is packed by construction");

int br_chan_pair(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds);
}

void br_chan_init(struct br_chan *c, int fd, const char *peer, const struct br_msg_rule *rules,
                  unsigned nrules, void *ctx)
{
    br_require(nrules <= BR_CHAN_RULES_MAX);
    *c = (struct br_chan){.fd = fd, .peer = peer, .rules = rules, .nrules = nrules, .ctx = ctx};
    br_buf_init(&c->in_, BR_MSG_MAX + sizeof(struct br_msg_header));
    for (unsigned i = 0; i < nrules; i++)
        c->permitted[i] = (rules[i].flags & BR_PERMIT) != 0;
}

void br_chan_close(struct br_chan *c)
{
    br_close(&c->fd);
    br_buf_free(&c->in_);
}

static int chan_rule(const struct br_chan *c, unsigned type)
{
    for (unsigned i = 0; i < c->nrules; i++)
        if ((unsigned)c->rules[i].type == type)
            return (int)i;
    return -1;
}

void br_chan_permit(struct br_chan *c, enum br_msg_type type)
{
    int i = chan_rule(c, type);
    br_require(i >= 0);
    c->permitted[i] = true;
}

void br_chan_forbid(struct br_chan *c, enum br_msg_type type)
{
    int i = chan_rule(c, type);
    br_require(i >= 0);
    c->permitted[i] = false;
}

static void msg_close_fds(struct br_msg *m)
{
    for (unsigned i = m->next_fd_; i < m->nfds; i++)
        br_close(&m->fds[i]);
}

int br_msg_take_fd(struct br_msg *m)
{
    return m->next_fd_ < m->nfds ? br_steal_fd(&m->fds[m->next_fd_++]) : -1;
}

int br_msg_blob(struct br_msg *m, size_t max, struct br_buf *out, struct br_err *err)
{
    size_t n;
    br_buf_init(out, max);
    uint8_t kind = br_rd_u8(&m->rd);
    if (kind == BLOB_INLINE) {
        const void *p = br_rd_bytes(&m->rd, max < BR_MSG_MAX ? max : BR_MSG_MAX, &n);
        if (!m->rd.failed && br_buf_put(out, p, n) == 0)
            return 0;
    } else if (kind == BLOB_MEMFD) {
        uint64_t size = br_rd_u64(&m->rd);
        BR_CLEANUP_FD int fd = br_msg_take_fd(m);
        if (!m->rd.failed && fd >= 0 && size <= max) {
            int r = br_memfd_read(fd, max, out, err);
            if (r == 0 && out->len == size)
                return 0;
        }
    }
    m->rd.failed = true;
    return br_err_set(err, BR_E_PEER_PROTOCOL, "a %s message carries a malformed body",
                      br_msg_name(m->type));
}

const void *br_msg_blob_view(struct br_msg *m, size_t max, struct br_buf *large, size_t *n,
                             struct br_err *err)
{
    br_buf_init(large, 0);
    if (m->rd.off < m->rd.len && m->rd.p[m->rd.off] == BLOB_INLINE) {
        br_rd_u8(&m->rd);
        const void *p = br_rd_bytes(&m->rd, max < BR_MSG_MAX ? max : BR_MSG_MAX, n);
        return m->rd.failed ? NULL : p;
    }
    if (br_msg_blob(m, max, large, err) < 0)
        return NULL;
    *n = large->len;
    return large->data ? large->data : (const uint8_t *)"";
}

/* What was received, r bytes of it at `data`, becomes m. */
static int chan_take(struct br_chan *c, struct msghdr *mh, size_t r, const uint8_t *data,
                     struct br_msg *m, struct br_err *err)
{
    /* before anything is judged: what came along must be closed, even with an empty message */
    for (struct cmsghdr *h = CMSG_FIRSTHDR(mh); h; h = CMSG_NXTHDR(mh, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const int *fds = (const int *)(const void *)CMSG_DATA(h);
        for (size_t i = 0; i < n; i++) {
            int fd = fds[i];
            if (m->nfds < BR_MSG_FDS_MAX)
                m->fds[m->nfds++] = fd;
            else
                br_close(&fd);
        }
    }
    if (r == 0)
        return br_err_set(err, BR_E_PEER_GONE, "'%s' has gone", c->peer);
    struct br_msg_header head;
    if (r < sizeof(head) || (mh->msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a cut message", c->peer);
    memcpy(&head, data, sizeof(head));
    if (head.len != r - sizeof(head) || head.nfds != m->nfds)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "'%s' sent a message whose header disagrees with its size", c->peer);
    m->type = (enum br_msg_type)head.type;
    m->id = head.id;
    br_rd_init(&m->rd, data + sizeof(head), head.len);
    return 0;
}

/* Reads one datagram and its descriptors into c->in_ and m. */
static int chan_receive(struct br_chan *c, struct br_msg *m, struct br_err *err)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * BR_MSG_FDS_MAX)];
    } ctl;
    if (!c->in_.data) {
        /* one allocation for the life of the channel */
        c->in_.data = malloc(c->in_.max + 1);
        if (!c->in_.data)
            return br_err_set(err, BR_E_NOMEM, "no memory for a message from '%s'", c->peer);
        c->in_.cap = c->in_.max + 1;
    }
    struct iovec iov = {.iov_base = c->in_.data, .iov_len = c->in_.max + 1};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = ctl.space,
                        .msg_controllen = sizeof(ctl.space)};
    ssize_t r;
    do {
        r = recvmsg(c->fd, &mh, MSG_CMSG_CLOEXEC);
    } while (r < 0 && errno == EINTR);
    if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return -BR_E_TIMEOUT;
    if (r < 0 && errno == ECONNRESET)
        return br_err_set(err, BR_E_PEER_GONE, "'%s' has gone", c->peer);
    if (r < 0)
        return br_err_errno(err, BR_E_IO, "a message from '%s' could not be received", c->peer);
    return chan_take(c, &mh, (size_t)r, c->in_.data, m, err);
}

static int chan_check(struct br_chan *c, const struct br_msg *m, int i, struct br_err *err)
{
    const char *name = br_msg_name(m->type);
    if (i < 0 || !c->permitted[i])
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "'%s' sent %s (0x%04x), which is not permitted%s", c->peer, name,
                          (unsigned)m->type, i < 0 ? "" : " now");
    const struct br_msg_rule *rule = &c->rules[i];
    if (m->rd.len < rule->min || m->rd.len > rule->max)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent %s with %zu bytes, not %u to %u",
                          c->peer, name, m->rd.len, rule->min, rule->max);
    if (m->nfds < rule->min_fds || m->nfds > rule->max_fds)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent %s with %u descriptors, not %u to %u",
                          c->peer, name, m->nfds, rule->min_fds, rule->max_fds);
    return 0;
}

static int chan_handle(struct br_chan *c, struct br_msg *m, struct br_err *err)
{
    int i = chan_rule(c, m->type);
    int r = chan_check(c, m, i, err);
    if (r < 0)
        return r;
    if (c->rules[i].flags & BR_ONCE)
        c->permitted[i] = false;
    return c->rules[i].handler(c, m, c->ctx, err);
}

int br_chan_dispatch(struct br_chan *c, struct br_err *err)
{
    struct br_msg m = {.nfds = 0};
    int r = chan_receive(c, &m, err);
    if (r == 0)
        r = chan_handle(c, &m, err);
    msg_close_fds(&m);
    return r;
}

bool br_soon(struct pollfd *p, unsigned n, unsigned us)
{
    uint64_t start = br_now_us();
    /* a look takes a microsecond or less: the count is for a clock that stands */
    for (unsigned i = 0; i < 4 * us && br_now_us() - start < us; i++) {
        if (poll(p, n, 0) > 0)
            return true;
        (void)sched_yield();
    }
    return false;
}

bool br_chan_soon(const struct br_chan *c, unsigned us)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    return c->fd >= 0 && br_soon(&p, 1, us);
}

/* ---- sending ---- */

void br_out_free(struct br_out *o)
{
    for (unsigned i = 0; i < o->nfds; i++)
        if (o->owned[i])
            br_close(&o->fds[i]);
    o->nfds = 0;
    br_buf_free(&o->buf);
}

void br_out_fd(struct br_out *o, int fd, bool take)
{
    if (fd < 0 || o->nfds == BR_MSG_FDS_MAX) {
        o->failed = true;
        if (take)
            br_close(&fd);
        return;
    }
    o->fds[o->nfds] = fd;
    o->owned[o->nfds++] = take;
}

void br_out_blob(struct br_out *o, const void *p, size_t n)
{
    if (n <= BR_BLOB_INLINE_MAX && o->buf.len + n + 64 <= o->buf.max) {
        br_buf_put_u8(&o->buf, BLOB_INLINE);
        br_buf_put_lstr(&o->buf, p, n);
        return;
    }
    br_buf_put_u8(&o->buf, BLOB_MEMFD);
    br_buf_put_u64(&o->buf, n);
    br_out_fd(o, n <= BR_BLOB_MAX ? br_memfd_sealed("bridle-blob", p, n) : -1, true);
}

/*
 * The kernel counts descriptors that are on their way in sockets per uid, and who shares the uid (a
 * command in the same sandbox, an ordinary user's other programs) may have used them up for a
 * moment. Waits a step; false: long enough.
 */
static bool in_flight_wait(unsigned *waited)
{
    if (*waited >= BR_CHAN_IN_FLIGHT_MS) {
        errno = ETOOMANYREFS;
        return false;
    }
    *waited += IN_FLIGHT_STEP_MS;
    (void)poll(NULL, 0, IN_FLIGHT_STEP_MS); /* which every program may call */
    return true;
}

static int send_failed(struct br_chan *c, enum br_msg_type type, struct br_err *err)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return -BR_E_TIMEOUT;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return br_err_set(err, BR_E_PEER_GONE, "'%s' has gone", c->peer);
    return br_err_errno(err, BR_E_IO, "%s could not be sent to '%s'", br_msg_name(type), c->peer);
}

/* One message of these pieces, the first of which is its header. */
static int send_pieces(struct br_chan *c, enum br_msg_type type, struct msghdr *mh,
                       struct br_err *err)
{
    ssize_t r;
    unsigned waited = 0;
    do {
        r = sendmsg(c->fd, mh, MSG_NOSIGNAL);
    } while (r < 0 && (errno == EINTR || (errno == ETOOMANYREFS && in_flight_wait(&waited))));
    return r >= 0 ? 0 : send_failed(c, type, err);
}

int br_chan_send_bytes(struct br_chan *c, enum br_msg_type type, uint64_t id, const void *p,
                       size_t n, struct br_err *err)
{
    if (c->fd < 0)
        return br_err_set(err, BR_E_PEER_GONE, "'%s' has gone", c->peer);
    if (n > BR_BYTES_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "a %s message for '%s' is too large",
                          br_msg_name(type), c->peer);
    uint8_t front[5] = {BLOB_INLINE, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16),
                        (uint8_t)(n >> 24)};
    struct br_msg_header head = {
        .type = (uint16_t)type, .len = (uint32_t)(sizeof(front) + n), .id = id};
    struct iovec iov[3] = {{.iov_base = &head, .iov_len = sizeof(head)},
                           {.iov_base = front, .iov_len = sizeof(front)},
                           {.iov_base = (void *)(uintptr_t)p, .iov_len = n}};
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = n ? 3 : 2};
    return send_pieces(c, type, &mh, err);
}

int br_chan_send_fixed(struct br_chan *c, enum br_msg_type type, uint64_t id, uint64_t first,
                       const void *p, size_t n, struct br_err *err)
{
    if (c->fd < 0)
        return br_err_set(err, BR_E_PEER_GONE, "'%s' has gone", c->peer);
    if (n > BR_MSG_MAX - 8)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "a %s message for '%s' is too large",
                          br_msg_name(type), c->peer);
    uint8_t front[8];
    for (unsigned i = 0; i < 8; i++)
        front[i] = (uint8_t)(first >> 8 * i);
    struct br_msg_header head = {
        .type = (uint16_t)type, .len = (uint32_t)(sizeof(front) + n), .id = id};
    struct iovec iov[3] = {{.iov_base = &head, .iov_len = sizeof(head)},
                           {.iov_base = front, .iov_len = sizeof(front)},
                           {.iov_base = (void *)(uintptr_t)p, .iov_len = n}};
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = n ? 3 : 2};
    return send_pieces(c, type, &mh, err);
}

int br_chan_send(struct br_chan *c, enum br_msg_type type, uint64_t id, const struct br_out *o,
                 struct br_err *err)
{
    if (c->fd < 0)
        return br_err_set(err, BR_E_PEER_GONE, "'%s' has gone", c->peer);
    if (o && (o->failed || o->buf.failed))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "a %s message for '%s' is too large",
                          br_msg_name(type), c->peer);
    size_t len = o ? o->buf.len : 0;
    unsigned nfds = o ? o->nfds : 0;
    struct br_msg_header head = {
        .type = (uint16_t)type, .nfds = (uint16_t)nfds, .len = (uint32_t)len, .id = id};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * BR_MSG_FDS_MAX)];
    } ctl;
    struct iovec iov[2] = {{.iov_base = &head, .iov_len = sizeof(head)},
                           {.iov_base = o ? o->buf.data : NULL, .iov_len = len}};
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = len ? 2 : 1};
    if (nfds) {
        memset(&ctl, 0, sizeof(ctl));
        mh.msg_control = ctl.space;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(h), o->fds, sizeof(int) * nfds);
    }
    return send_pieces(c, type, &mh, err);
}
