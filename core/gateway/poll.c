/*
 * The loop of bridle-gateway: epoll, because there are thousands of connections, and timers in a
 * pairing heap whose nodes are their owners', because each connection has one. Nothing is allocated
 * for a timer, and setting or moving one does not look at the others.
 *
 * A callback may end anything, also what the same batch of events still points at: who ends sets
 * its gw_io.fn to NULL and is freed behind the batch (gw_bury).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "gateway/conn_priv.h"

#define POLL_EVENTS 256
#define POLL_MESSAGES 64u /* of one channel before the others' turn */
#define POLL_TIMERS 4096u /* that fire in one turn */

struct gw_chan_watch {
    struct gw_io io;
    struct gw_grave grave;
    struct gateway *g;
    struct br_chan *c;
    br_chan_end_fn *on_end;
    void *ctx;
};

/* ---- timers ---- */

static struct gw_timer *meld(struct gw_timer *a, struct gw_timer *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->due_us < a->due_us) {
        struct gw_timer *t = a;
        a = b;
        b = t;
    }
    b->prev_ = a;
    b->next_ = a->child_;
    if (a->child_)
        a->child_->prev_ = b;
    a->child_ = b;
    return a;
}

/* The children of one that is taken out, as one heap: in pairs, then those from the last on. */
static struct gw_timer *meld_children(struct gw_timer *t)
{
    struct gw_timer *pairs = NULL, *c = t->child_;
    t->child_ = NULL;
    while (c) {
        struct gw_timer *a = c, *b = c->next_;
        c = b ? b->next_ : NULL;
        a->next_ = a->prev_ = NULL;
        if (b)
            b->next_ = b->prev_ = NULL;
        a = meld(a, b);
        a->next_ = pairs;
        pairs = a;
    }
    struct gw_timer *root = NULL;
    while (pairs) {
        struct gw_timer *next = pairs->next_;
        pairs->next_ = NULL;
        root = meld(root, pairs);
        pairs = next;
    }
    return root;
}

static void timer_remove(struct gw_poll *p, struct gw_timer *t)
{
    if (p->timers == t) {
        p->timers = meld_children(t);
    } else {
        if (t->prev_->child_ == t)
            t->prev_->child_ = t->next_;
        else
            t->prev_->next_ = t->next_;
        if (t->next_)
            t->next_->prev_ = t->prev_;
        p->timers = meld(p->timers, meld_children(t));
    }
    t->next_ = t->prev_ = NULL;
    t->due_us = 0;
}

void gw_timer_cancel(struct gateway *g, struct gw_timer *t)
{
    if (t->due_us)
        timer_remove(&g->poll, t);
}

void gw_timer_set(struct gateway *g, struct gw_timer *t, uint64_t after_us, void (*fn)(void *ctx),
                  void *ctx)
{
    gw_timer_cancel(g, t);
    t->fn = fn;
    t->ctx = ctx;
    t->due_us = br_now_us() + after_us;
    t->due_us += t->due_us == 0; /* 0 is "not set" */
    t->child_ = t->next_ = t->prev_ = NULL;
    g->poll.timers = meld(g->poll.timers, t);
}

static void fire_timers(struct gw_poll *p)
{
    uint64_t now = br_now_us();
    for (unsigned i = 0; p->timers && p->timers->due_us <= now && i < POLL_TIMERS; i++) {
        struct gw_timer *t = p->timers;
        timer_remove(p, t);
        t->fn(t->ctx);
    }
}

static int wait_ms(const struct gw_poll *p)
{
    if (!p->timers)
        return -1;
    uint64_t now = br_now_us(), due = p->timers->due_us;
    if (due <= now)
        return 0;
    return due - now > 3600000000u ? 3600000 : (int)((due - now + 999) / 1000);
}

/* ---- descriptors ---- */

int poll_init(struct gw_poll *p, struct br_err *err)
{
    p->ep = epoll_create1(EPOLL_CLOEXEC);
    return p->ep < 0 ? br_err_errno(err, BR_E_IO, "no epoll descriptor") : 0;
}

static void free_graves(struct gw_poll *p)
{
    while (p->graves) {
        struct gw_grave *next = p->graves->next;
        free(p->graves->object);
        p->graves = next;
    }
}

void gw_bury(struct gateway *g, void *p, struct gw_grave *grave)
{
    grave->object = p;
    grave->next = g->poll.graves;
    g->poll.graves = grave;
}

int poll_watch(struct gateway *g, int op, int fd, uint32_t events, struct gw_io *io)
{
    struct epoll_event ev = {.events = events, .data.ptr = io};
    return epoll_ctl(g->poll.ep, op, fd, &ev);
}

static void watch_end(struct gw_chan_watch *w)
{
    struct gateway *g = w->g;
    (void)poll_watch(g, EPOLL_CTL_DEL, w->c->fd, 0, NULL);
    g->poll.watches[w->c->fd] = NULL;
    w->io.fn = NULL;
    gw_bury(g, w, &w->grave);
}

/* A channel has something. */
static void on_chan(void *ctx, uint32_t events)
{
    struct gw_chan_watch *w = ctx;
    struct gateway *g = w->g;
    (void)events;
    for (unsigned i = 0; i < POLL_MESSAGES && w->io.fn; i++) {
        struct br_err err = {.code = BR_OK};
        int r = br_chan_dispatch(w->c, &err);
        if (r == -BR_E_TIMEOUT)
            return;
        if (r >= 0 || !w->io.fn)
            continue;
        watch_end(w);
        r = w->on_end(w->c, r, w->ctx, err.code ? &err : NULL);
        if (r < 0 && !g->poll.end) {
            g->poll.end = r;
            g->poll.err = err;
        }
    }
}

int gw_watch_chan(struct gateway *g, struct br_chan *c, br_chan_end_fn *on_end, void *ctx)
{
    struct gw_poll *p = &g->poll;
    if (c->fd < 0)
        return -BR_E_PEER_GONE;
    if (c->fd >= p->nwatches) {
        int n = c->fd + 64;
        struct gw_chan_watch **more =
            realloc(p->watches, (size_t)n * sizeof(struct gw_chan_watch *));
        if (!more)
            return -BR_E_NOMEM;
        for (int i = p->nwatches; i < n; i++)
            more[i] = NULL;
        p->watches = more;
        p->nwatches = n;
    }
    if (p->watches[c->fd])
        watch_end(p->watches[c->fd]);
    struct gw_chan_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return -BR_E_NOMEM;
    *w = (struct gw_chan_watch){
        .io = {.fn = on_chan, .ctx = w}, .g = g, .c = c, .on_end = on_end, .ctx = ctx};
    int flags = fcntl(c->fd, F_GETFL);
    if (flags < 0 || fcntl(c->fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        poll_watch(g, EPOLL_CTL_ADD, c->fd, EPOLLIN, &w->io) < 0) {
        free(w);
        return -BR_E_IO;
    }
    p->watches[c->fd] = w;
    return 0;
}

void gw_unwatch_chan(struct gateway *g, struct br_chan *c)
{
    if (c->fd >= 0 && c->fd < g->poll.nwatches && g->poll.watches[c->fd])
        watch_end(g->poll.watches[c->fd]);
}

int poll_turn(struct gateway *g, int max_ms, struct br_err *err)
{
    struct gw_poll *p = &g->poll;
    struct epoll_event events[POLL_EVENTS];
    int ms = wait_ms(p);
    if (max_ms >= 0 && (ms < 0 || max_ms < ms))
        ms = max_ms;
    int n = epoll_wait(p->ep, events, POLL_EVENTS, ms);
    if (n < 0 && errno != EINTR)
        return br_err_errno(err, BR_E_IO, "epoll_wait failed");
    for (int i = 0; i < n; i++) {
        struct gw_io *io = events[i].data.ptr;
        if (io->fn)
            io->fn(io->ctx, events[i].events);
    }
    fire_timers(p);
    conns_settle(g);
    free_graves(p);
    if (p->end && err)
        *err = p->err;
    return p->end;
}

void poll_free(struct gw_poll *p)
{
    free_graves(p);
    for (int i = 0; i < p->nwatches; i++)
        free(p->watches[i]);
    free(p->watches);
    br_close(&p->ep);
}
