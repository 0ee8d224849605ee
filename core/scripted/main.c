/*
 * bridle-scripted: the embedded default provider. A real HTTP/1.1 server on a listening Unix socket
 * that bridled hands over, playing a scenario. It has no network, no files, no key, and no memory
 * between requests. Its peer is bridle-egress; what arrives is nevertheless parsed as hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "scripted/scripted_priv.h"
#include "wire/types.h"
#include "wire/wire.h"

/* One run has one request in flight; a few more let a person try it with a client of their own. */
#define SCRIPTED_CONNS_MAX 8u
#define SCRIPTED_READ_US 30000000u

struct server;

struct conn {
    struct server *s;
    int fd; /* -1: free */
    struct br_buf in;
    struct br_http_request request;
    bool have_head, answering;
    struct br_answer answer;
    unsigned piece, round;
    size_t at;
    int timer;
};

struct server {
    struct br_loop *loop;
    struct br_chan sup;
    int listener;
    struct br_scenario *scenario;
    struct conn conns[SCRIPTED_CONNS_MAX];
    uint64_t serial;
    bool done;
};

static int on_writable(void *ctx, int fd, short revents, struct br_err *err);

static void conn_close(struct conn *c)
{
    br_loop_unwatch(c->s->loop, c->fd);
    br_loop_timer_cancel(c->s->loop, &c->timer);
    br_close(&c->fd);
    br_buf_free(&c->in);
    br_answer_free(&c->answer);
}

/* Behind the last piece, or while waiting: only the end of the connection matters. */
static int on_idle(void *ctx, int fd, short revents, struct br_err *err)
{
    struct conn *c = ctx;
    char drop[4096];
    (void)revents;
    (void)err;
    ssize_t r = read(fd, drop, sizeof(drop));
    if (r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR))
        conn_close(c);
    return 0;
}

static int on_delay(void *ctx, struct br_err *err)
{
    struct conn *c = ctx;
    (void)err;
    c->timer = 0;
    if (br_loop_watch(c->s->loop, c->fd, POLLOUT, on_writable, c) < 0)
        conn_close(c);
    return 0;
}

/* Wait before the next piece; 0 if there is nothing to wait for. */
static bool conn_delay(struct conn *c, unsigned ms)
{
    if (!ms)
        return false;
    c->timer = br_loop_timer(c->s->loop, (uint64_t)ms * 1000, on_delay, c);
    if (c->timer < 0 || br_loop_watch(c->s->loop, c->fd, POLLIN, on_idle, c) < 0)
        conn_close(c);
    return true;
}

static void conn_finish(struct conn *c)
{
    if (!c->answer.stall)
        conn_close(c);
    else if (br_loop_watch(c->s->loop, c->fd, POLLIN, on_idle, c) < 0)
        conn_close(c);
}

/* The present piece is out. True if there is another one to write at once. */
static bool conn_advance(struct conn *c)
{
    const struct br_answer *a = &c->answer;
    c->at = 0;
    if (++c->round >= a->pieces[c->piece].repeat) {
        c->round = 0;
        c->piece++;
    }
    if (c->piece >= a->npieces) {
        conn_finish(c);
        return false;
    }
    return !conn_delay(c, a->pieces[c->piece].delay_ms);
}

static int on_writable(void *ctx, int fd, short revents, struct br_err *err)
{
    struct conn *c = ctx;
    const struct br_answer *a = &c->answer;
    (void)revents;
    (void)err;
    while (c->piece < a->npieces) {
        const struct br_piece *p = &a->pieces[c->piece];
        size_t n = p->len - c->at;
        if (a->fragment && n > a->fragment)
            n = a->fragment;
        ssize_t r = n ? send(fd, a->bytes.data + p->offset + c->at, n, MSG_NOSIGNAL) : 0;
        if (r < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (r < 0) {
            conn_close(c);
            return 0;
        }
        c->at += (size_t)r;
        if (c->at < p->len) {
            if (a->fragment && conn_delay(c, 1))
                return 0;
            continue;
        }
        if (!conn_advance(c))
            return 0;
    }
    return 0;
}

static void conn_answer(struct conn *c)
{
    c->answering = true;
    br_loop_timer_cancel(c->s->loop, &c->timer);
    if (c->answer.failed || c->answer.bytes.failed) {
        br_log(BR_LOG_ERROR, "an answer could not be made; the connection was closed");
        conn_close(c);
    } else if (c->answer.npieces == 0) {
        conn_finish(c);
    } else if (br_loop_watch(c->s->loop, c->fd, POLLOUT, on_writable, c) < 0) {
        conn_close(c);
    }
}

static void conn_refuse(struct conn *c, unsigned status)
{
    br_answer_error(&c->answer, status, "bad_request", "the request is malformed or too large");
    conn_answer(c);
}

static void conn_parse(struct conn *c)
{
    if (!c->have_head) {
        unsigned status = 400;
        int r = br_http_parse((const char *)c->in.data, c->in.len, &c->request, &status);
        if (r < 0)
            conn_refuse(c, status);
        if (r)
            return;
        c->have_head = true;
    }
    size_t whole = c->request.head_len + c->request.body_len;
    if (c->in.len > whole) {
        conn_refuse(c, 400); /* no pipelining */
    } else if (c->in.len == whole) {
        br_answer_make(&c->answer, c->s->scenario, &c->request,
                       (const char *)c->in.data + c->request.head_len, ++c->s->serial);
        conn_answer(c);
    }
}

static int on_readable(void *ctx, int fd, short revents, struct br_err *err)
{
    struct conn *c = ctx;
    char chunk[16384];
    (void)revents;
    (void)err;
    ssize_t r = read(fd, chunk, sizeof(chunk));
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (r <= 0) {
        conn_close(c);
        return 0;
    }
    if (br_buf_put(&c->in, chunk, (size_t)r) < 0)
        conn_refuse(c, 413);
    else
        conn_parse(c);
    return 0;
}

static int on_read_timeout(void *ctx, struct br_err *err)
{
    struct conn *c = ctx;
    (void)err;
    c->timer = 0;
    conn_close(c);
    return 0;
}

/* On a Unix socket only root, egress, and whoever runs this program: its name is no secret. */
static bool is_welcome(int conn)
{
    int domain = 0;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t n = sizeof(domain), m = sizeof(peer);
    if (getsockopt(conn, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0 || domain != AF_UNIX)
        return domain != AF_UNIX && domain != 0;
    return getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &peer, &m) == 0 &&
           (peer.uid == 0 || peer.uid == BR_UID_EGRESS || peer.uid == geteuid());
}

static int on_accept(void *ctx, int fd, short revents, struct br_err *err)
{
    struct server *s = ctx;
    (void)revents;
    (void)err;
    int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (conn >= 0 && !is_welcome(conn))
        br_close(&conn);
    if (conn < 0)
        return 0;
    for (unsigned i = 0; i < SCRIPTED_CONNS_MAX; i++) {
        struct conn *c = &s->conns[i];
        if (c->fd >= 0)
            continue;
        *c = (struct conn){.s = s, .fd = conn};
        br_buf_init(&c->in, BR_HTTP_HEAD_MAX + BR_SCRIPTED_BODY_MAX);
        br_answer_init(&c->answer);
        c->timer = br_loop_timer(s->loop, SCRIPTED_READ_US, on_read_timeout, c);
        if (c->timer < 0 || br_loop_watch(s->loop, conn, POLLIN, on_readable, c) < 0)
            conn_close(c);
        return 0;
    }
    br_close(&conn);
    return 0;
}

/* ---- from bridled ---- */

static int on_start(struct br_chan *ch, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct server *s = ctx;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    int r = br_msg_blob(m, BR_SCENARIO_MAX, &text, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed SCRIPTED_START");
    s->listener = br_msg_take_fd(m);
    struct br_err why = {.code = BR_OK};
    r = br_scenario_load(text.data ? (const void *)text.data : "", text.len, &s->scenario, &why);
    if (r == 0 && (fcntl(s->listener, F_SETFL, O_NONBLOCK) < 0 ||
                   br_loop_watch(s->loop, s->listener, POLLIN, on_accept, s) < 0))
        r = br_err_set(&why, BR_E_IO, "the scripted provider's socket cannot be used");
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, br_code_name(r < 0 ? (int)why.code : BR_OK));
    br_buf_put_str(&out.buf, r < 0 ? why.text : "");
    int sent = br_chan_send(ch, BR_MSG_ROLE_READY, m->id, &out, err);
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : sent;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_SCRIPTED_START, BR_PERMIT | BR_ONCE, 5, BR_MSG_MAX, 1, 2, on_start},
};

static int on_sup_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct server *s = ctx;
    (void)c;
    s->done = true;
    if (code == -BR_E_PEER_GONE)
        return 0;
    if (err)
        br_log(BR_LOG_ERROR, "%s", err->text);
    return code;
}

static const int scripted_calls[] = {SYS_accept4, SYS_sendto, SYS_getsockopt, SYS_geteuid};

static int scripted_run(struct server *s, struct br_err *err)
{
    const struct br_role role = {
        .name = "bridle-scripted",
        .uid = BR_UID_SCRIPTED,
        .max_nofile = 64,
        .max_as = 1024ull * 1024 * 1024,
        .no_fork = true,
        .syscalls = scripted_calls,
        .nsyscalls = BR_ARRAY_LEN(scripted_calls),
    };
    size_t seed = 0;
    br_random(&seed, sizeof(seed));
    json_object_seed(seed | 1); /* otherwise jansson opens /dev/urandom, behind the filter */
    int r = br_role_enter(&role, err);
    if (r < 0)
        return r;
    s->loop = br_loop_new();
    if (!s->loop || br_loop_watch_chan(s->loop, &s->sup, on_sup_end, s) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory to start");
    return br_loop_run(s->loop, &s->done, err);
}

int main(void)
{
    static struct server s = {.listener = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-scripted", BR_LOG_WARN);
    (void)signal(SIGPIPE, SIG_IGN);
    br_close_from(4, NULL, 0);
    for (unsigned i = 0; i < SCRIPTED_CONNS_MAX; i++)
        s.conns[i].fd = -1;
    br_chan_init(&s.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &s);
    int r = scripted_run(&s, &err);
    if (r < 0 && err.code)
        br_log(BR_LOG_ERROR, "%s", err.text);
    for (unsigned i = 0; s.loop && i < SCRIPTED_CONNS_MAX; i++)
        if (s.conns[i].fd >= 0)
            conn_close(&s.conns[i]);
    br_close(&s.listener);
    br_chan_close(&s.sup);
    br_scenario_free(&s.scenario);
    if (s.loop)
        br_loop_free(&s.loop);
    return r < 0 ? 1 : 0;
}
