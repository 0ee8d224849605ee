/*
 * bridle-broker: one provider lease. It sits between those who may ask for anything, the session
 * and the guests of one sandbox, and bridle-egress, which has the key and sends whatever it is
 * given. No network, no files but the mapped page of its account, no key. The socket of the guests
 * comes from bridled, which has it from the sandbox; what they may ask for, how much and how long
 * was fixed by BROKER_START.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/broker.h"

enum tag { TAG_SUP = 1, TAG_SESSION, TAG_EGRESS, TAG_LISTENER, TAG_GUESTS = 16 };

/* What one turn of the loop looks at, and how many messages of egress before the others' turn. */
#define EVENTS_MAX 64
#define MESSAGES_MAX 16u
/* With few requests in flight, what comes next is waited for awake for so long: going to sleep and
 * waking up takes longer than many an answer, and there are three of us in a row. */
#define EAGER_US 200u
#define EAGER_FLIGHTS_MAX 4u

int broker_watch(struct broker *b, int op, int fd, uint32_t events, uint64_t tag)
{
    struct epoll_event ev = {.events = events, .data.u64 = tag};
    return epoll_ctl(b->ep, op, fd, &ev);
}

/* ---- sending ---- */

int broker_to_egress(struct broker *b, enum br_msg_type type, uint64_t id, const struct br_out *o,
                     struct br_err *err)
{
    for (;;) {
        int r = br_chan_send(&b->egress, type, id, o, err);
        if (r != -BR_E_TIMEOUT)
            return r;
        /* egress never waits for us, so that this ends */
        struct pollfd p = {.fd = b->egress.fd, .events = POLLOUT};
        (void)poll(&p, 1, 1000);
    }
}

int broker_to_session(struct broker *b, enum br_msg_type type, uint64_t id, const struct br_out *o,
                      struct br_err *err)
{
    if (b->session.fd < 0)
        return 0;
    int r = br_chan_send(&b->session, type, id, o, err);
    return r == -BR_E_PEER_GONE ? 0 : r;
}

/* ---- from the session ---- */

static int on_request(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return flight_of_session(ctx, m, err);
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    struct flight *f = flight_of_session_id(b, m->id);
    (void)c;
    (void)err;
    if (f)
        flight_cut(b, f, BR_E_CANCELED, "the request was cancelled");
    return 0;
}

static const struct br_msg_rule session_rules[] = {
    {BR_MSG_PROV_REQUEST, BR_PERMIT, 21, BR_MSG_MAX, 0, 1, on_request},
    {BR_MSG_PROV_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

/* ---- from egress ---- */

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return flight_on_head(ctx, m, err);
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return flight_on_data(ctx, m, err);
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return flight_on_end(ctx, m, err);
}

/* Each of them names a request that is in flight, or ends the run. */
static const struct br_msg_rule egress_rules[] = {
    {BR_MSG_PROV_HEAD, BR_PERMIT, 8, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_PROV_DATA, BR_PERMIT, 5, BR_MSG_MAX, 0, 0, on_data},
    {BR_MSG_PROV_END, BR_PERMIT, 24, BR_MSG_MAX, 0, 0, on_end},
};

/* ---- from bridled ---- */

void broker_over(struct broker *b, enum br_code code, const char *text)
{
    if (b->over)
        return;
    b->over = true;
    flight_cut_all(b, code, text);
    guest_close_idle(b);
}

static int lease_open(struct broker *b, const struct br_lease *l, int page, struct br_err *err)
{
    if (!b->model[0])
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider lease without a model was not opened");
    int r = br_account_open(&b->account, l, br_now_us(), err);
    if (r < 0)
        return r;
    if (page >= 0 && !(b->account.page = br_account_page_map(page, b->run_id)))
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the page of the provider lease's account cannot be used; the lease "
                            "was not opened");
    if (b->account.page)
        br_account_page_write(b->account.page, &b->account.sums);
    if (fcntl(b->egress.fd, F_SETFL, O_NONBLOCK) < 0 ||
        broker_watch(b, EPOLL_CTL_ADD, b->session.fd, EPOLLIN, TAG_SESSION) < 0 ||
        broker_watch(b, EPOLL_CTL_ADD, b->egress.fd, EPOLLIN, TAG_EGRESS) < 0)
        return br_err_errno(err, BR_E_IO, "the channels of a provider lease cannot be watched");
    br_buf_init(&b->scratch, 2 * BR_BLOB_MAX);
    b->started = true;
    return 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    struct br_lease lease;
    br_rd_str(&m->rd, b->run_id, sizeof(b->run_id));
    br_rd_str(&m->rd, b->model, sizeof(b->model));
    br_lease_get(&m->rd, &lease);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed BROKER_START");
    br_chan_init(&b->session, br_msg_take_fd(m), "session", session_rules,
                 BR_ARRAY_LEN(session_rules), b);
    br_chan_init(&b->egress, br_msg_take_fd(m), "egress", egress_rules, BR_ARRAY_LEN(egress_rules),
                 b);
    BR_CLEANUP_FD int page = br_msg_take_fd(m);
    struct br_err why = {.code = BR_OK};
    int r = lease_open(b, &lease, page, &why);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, br_code_name(r < 0 ? (int)why.code : BR_OK));
    br_buf_put_str(&out.buf, r < 0 ? why.text : "");
    if (r == 0 && lease.token[0])
        br_chan_permit(c, BR_MSG_BROKER_LISTEN);
    int sent = br_chan_send(c, BR_MSG_ROLE_READY, m->id, &out, err);
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : sent;
}

static int on_listen(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    BR_CLEANUP_FD int fd = br_msg_take_fd(m);
    (void)c;
    b->account.budget = br_rd_u64(&m->rd);
    if (b->over)
        return 0;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return br_err_errno(err, BR_E_IO, "the guests' socket cannot be used");
    return guest_listen(b, br_steal_fd(&fd), err);
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_BROKER_START, BR_PERMIT | BR_ONCE, 48, BR_MSG_MAX, 2, 3, on_start},
    {BR_MSG_BROKER_LISTEN, BR_ONCE, 8, 8, 1, 1, on_listen},
};

/* ---- loop ---- */

/* One channel has something. 0, or a negative code that ends the program. */
static int serve(struct broker *b, struct br_chan *c, unsigned messages, struct br_err *err)
{
    int r = 0;
    for (unsigned i = 0; r == 0 && i < messages && c->fd >= 0; i++)
        r = br_chan_dispatch(c, err);
    if (c == &b->egress)
        guest_flush_all(b); /* what several messages brought goes out at once */
    if (r == 0 || r == -BR_E_TIMEOUT)
        return 0;
    if (r != -BR_E_PEER_GONE)
        return r;
    if (c == &b->sup) {
        b->done = true;
        return 0;
    }
    (void)broker_watch(b, EPOLL_CTL_DEL, c->fd, 0, 0);
    br_chan_close(c);
    if (c == &b->egress)
        return flight_egress_gone(b, err);
    broker_over(b, BR_E_PEER_GONE, "the session has gone");
    return 0;
}

static int dispatch(struct broker *b, const struct epoll_event *ev, struct br_err *err)
{
    uint32_t low = (uint32_t)ev->data.u64;
    switch (low) {
    case TAG_SUP:
        return serve(b, &b->sup, 1, err);
    case TAG_SESSION:
        return serve(b, &b->session, 1, err);
    case TAG_EGRESS:
        return serve(b, &b->egress, MESSAGES_MAX, err);
    case TAG_LISTENER:
        if (b->listener >= 0)
            guest_accept(b);
        return 0;
    default:
        guest_event(b, low - TAG_GUESTS, (uint32_t)(ev->data.u64 >> 32), ev->events);
        return 0;
    }
}

/* Milliseconds until the loop must look at a clock; -1: never. */
static int wait_ms(const struct broker *b, uint64_t now)
{
    uint64_t due = b->started && !b->over ? b->account.deadline_us : UINT64_MAX;
    if ((b->nguests || b->nflights) && b->tick_us < due)
        due = b->tick_us;
    if (due == UINT64_MAX)
        return -1;
    if (due <= now)
        return 0;
    return due - now > 3600000000u ? 3600000 : (int)((due - now + 999) / 1000);
}

void broker_eager(struct broker *b)
{
    if (b->nflights <= EAGER_FLIGHTS_MAX)
        b->eager_until = br_now_us() + EAGER_US;
}

static int broker_loop(struct broker *b, struct br_err *err)
{
    struct epoll_event events[EVENTS_MAX];
    while (!b->done) {
        uint64_t at = br_now_us();
        bool eager = at < b->eager_until;
        int n = epoll_wait(b->ep, events, EVENTS_MAX, eager ? 0 : wait_ms(b, at));
        if (n == 0 && eager) {
            (void)sched_yield();
            continue;
        }
        if (n < 0 && errno != EINTR)
            return br_err_errno(err, BR_E_IO, "epoll_wait failed");
        for (int i = 0; i < n; i++) {
            int r = dispatch(b, &events[i], err);
            if (r < 0)
                return r;
        }
        uint64_t now = br_now_us();
        if (b->started && now >= b->account.deadline_us)
            broker_over(b, BR_E_TIMEOUT, "the provider lease has ended; the request was cut");
        if (now >= b->tick_us) {
            b->tick_us = now + BR_TICK_US;
            guest_tick(b, now);
            flight_tick(b, now);
        }
    }
    return 0;
}

static const int broker_calls[] = {
    SYS_epoll_ctl,  SYS_epoll_pwait, SYS_accept4, SYS_getsockopt,
    SYS_setsockopt, SYS_shutdown,    SYS_sendto,  SYS_recvfrom,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
};

static int broker_run(struct broker *b, struct br_err *err)
{
    const struct br_role role = {
        .name = "bridle-broker",
        .uid = BR_UID_BROKER,
        .max_nofile = BR_GUESTS_MAX + 64,
        .max_as = 1024ull * 1024 * 1024,
        .no_fork = true,
        .syscalls = broker_calls,
        .nsyscalls = BR_ARRAY_LEN(broker_calls),
    };
    b->ep = epoll_create1(EPOLL_CLOEXEC);
    if (b->ep < 0 || broker_watch(b, EPOLL_CTL_ADD, b->sup.fd, EPOLLIN, TAG_SUP) < 0)
        return br_err_errno(err, BR_E_IO, "no epoll descriptor");
    int r = br_role_enter(&role, err);
    return r < 0 ? r : broker_loop(b, err);
}

int main(void)
{
    static struct broker b = {.session.fd = -1, .egress.fd = -1, .listener = -1, .ep = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-broker", BR_LOG_WARN);
    (void)signal(SIGPIPE, SIG_IGN);
    br_close_from(4, NULL, 0);
    br_chan_init(&b.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &b);
    int r = broker_run(&b, &err);
    if (r < 0 && err.code)
        br_log(BR_LOG_ERROR, "%s", err.text);
    flight_free_all(&b);
    for (unsigned i = 0; i < BR_GUESTS_MAX; i++) {
        if (!b.guests[i])
            continue;
        b.guests[i]->flight = NULL;
        guest_close(b.guests[i]);
    }
    br_account_page_unmap(&b.account.page);
    br_buf_free(&b.scratch);
    br_close(&b.listener);
    br_chan_close(&b.session);
    br_chan_close(&b.egress);
    br_chan_close(&b.sup);
    br_close(&b.ep);
    return r < 0 ? 1 : 0;
}
