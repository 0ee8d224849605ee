/*
 * A poll(2) loop for programs that watch a handful of descriptors. Callbacks may add and remove
 * watches, and may run the loop again inside (br_loop_run_until with a condition), which lets the
 * session be written as a sequence of waits instead of a tangle of callbacks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

#define LOOP_WATCHES_MAX 32u
#define LOOP_TIMERS_MAX 32u

struct watch {
    int fd; /* -1: free */
    short events;
    unsigned generation; /* so that a slot reused during a dispatch is not called by mistake */
    br_loop_fd_fn *fn;
    struct br_chan *chan;
    br_chan_end_fn *on_end;
    void *ctx;
};

struct timer {
    int id; /* 0: free */
    uint64_t due_us;
    br_loop_timer_fn *fn;
    void *ctx;
};

struct br_loop {
    struct watch watches[LOOP_WATCHES_MAX];
    struct timer timers[LOOP_TIMERS_MAX];
    unsigned generation;
    unsigned polls; /* counts them, so that an outer run sees that an inner one has polled */
    int next_timer;
    bool stop;
};

struct br_loop *br_loop_new(void)
{
    struct br_loop *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    for (unsigned i = 0; i < LOOP_WATCHES_MAX; i++)
        l->watches[i].fd = -1;
    l->next_timer = 1;
    return l;
}

void br_loop_free(struct br_loop **l)
{
    free(*l);
    *l = NULL;
}

static struct watch *loop_slot(struct br_loop *l, int fd)
{
    struct watch *unused = NULL;
    for (unsigned i = 0; i < LOOP_WATCHES_MAX; i++) {
        if (l->watches[i].fd == fd)
            return &l->watches[i];
        if (l->watches[i].fd < 0 && !unused)
            unused = &l->watches[i];
    }
    return unused;
}

static int loop_add(struct br_loop *l, struct watch w)
{
    struct watch *slot = w.fd >= 0 ? loop_slot(l, w.fd) : NULL;
    if (!slot)
        return -BR_E_LIMIT_EXCEEDED;
    w.generation = ++l->generation;
    *slot = w;
    return 0;
}

int br_loop_watch(struct br_loop *l, int fd, short events, br_loop_fd_fn *fn, void *ctx)
{
    return loop_add(l, (struct watch){.fd = fd, .events = events, .fn = fn, .ctx = ctx});
}

void br_loop_unwatch(struct br_loop *l, int fd)
{
    for (unsigned i = 0; fd >= 0 && i < LOOP_WATCHES_MAX; i++)
        if (l->watches[i].fd == fd)
            l->watches[i].fd = -1;
}

int br_loop_watch_chan(struct br_loop *l, struct br_chan *c, br_chan_end_fn *on_end, void *ctx)
{
    return loop_add(
        l, (struct watch){.fd = c->fd, .events = POLLIN, .chan = c, .on_end = on_end, .ctx = ctx});
}

void br_loop_unwatch_chan(struct br_loop *l, struct br_chan *c)
{
    br_loop_unwatch(l, c->fd);
}

int br_loop_timer(struct br_loop *l, uint64_t after_us, br_loop_timer_fn *fn, void *ctx)
{
    for (unsigned i = 0; i < LOOP_TIMERS_MAX; i++) {
        if (l->timers[i].id)
            continue;
        int id = l->next_timer;
        l->next_timer = id == INT32_MAX ? 1 : id + 1;
        l->timers[i] =
            (struct timer){.id = id, .due_us = br_now_us() + after_us, .fn = fn, .ctx = ctx};
        return id;
    }
    return -BR_E_LIMIT_EXCEEDED;
}

void br_loop_timer_cancel(struct br_loop *l, int *id)
{
    for (unsigned i = 0; *id > 0 && i < LOOP_TIMERS_MAX; i++)
        if (l->timers[i].id == *id)
            l->timers[i].id = 0;
    *id = 0;
}

void br_loop_stop(struct br_loop *l)
{
    l->stop = true;
}

static int loop_fire_timers(struct br_loop *l, struct br_err *err)
{
    uint64_t now = br_now_us();
    for (unsigned i = 0; i < LOOP_TIMERS_MAX; i++) {
        struct timer t = l->timers[i];
        if (!t.id || t.due_us > now)
            continue;
        l->timers[i].id = 0;
        int r = t.fn(t.ctx, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Milliseconds until the next timer or the deadline, rounded up; -1 for ever. */
static int loop_timeout(const struct br_loop *l, uint64_t deadline_us)
{
    uint64_t due = deadline_us, now = br_now_us();
    for (unsigned i = 0; i < LOOP_TIMERS_MAX; i++)
        if (l->timers[i].id && l->timers[i].due_us < due)
            due = l->timers[i].due_us;
    if (due == UINT64_MAX)
        return -1;
    if (due <= now)
        return 0;
    uint64_t ms = (due - now + 999) / 1000;
    return ms > 3600000 ? 3600000 : (int)ms;
}

static int loop_serve(struct br_loop *l, const struct watch *w, short revents, struct br_err *err)
{
    if (!w->chan)
        return w->fn(w->ctx, w->fd, revents, err);
    struct br_err local = {.code = BR_OK};
    int r = br_chan_dispatch(w->chan, &local);
    if (r >= 0 || r == -BR_E_TIMEOUT)
        return 0;
    br_loop_unwatch(l, w->fd);
    if (w->on_end)
        return w->on_end(w->chan, r, w->ctx, local.code ? &local : NULL);
    if (err && local.code)
        *err = local;
    return r;
}

static int loop_once(struct br_loop *l, uint64_t deadline_us, struct br_err *err)
{
    struct pollfd pfds[LOOP_WATCHES_MAX];
    unsigned slot[LOOP_WATCHES_MAX], generation[LOOP_WATCHES_MAX], n = 0;
    for (unsigned i = 0; i < LOOP_WATCHES_MAX; i++) {
        if (l->watches[i].fd < 0)
            continue;
        pfds[n] = (struct pollfd){.fd = l->watches[i].fd, .events = l->watches[i].events};
        generation[n] = l->watches[i].generation;
        slot[n++] = i;
    }
    unsigned poll_no = ++l->polls;
    int r = poll(pfds, n, loop_timeout(l, deadline_us));
    if (r < 0 && errno != EINTR)
        return br_err_errno(err, BR_E_IO, "poll failed");
    for (unsigned i = 0; r > 0 && i < n; i++) {
        struct watch w = l->watches[slot[i]];
        if (!pfds[i].revents || w.fd != pfds[i].fd || w.generation != generation[i])
            continue;
        int k = loop_serve(l, &w, pfds[i].revents, err);
        if (k < 0)
            return k;
        /* The callback ran the loop inside: what this poll saw may have been served, and a channel
         * without a message would block us. */
        if (l->polls != poll_no)
            break;
    }
    return loop_fire_timers(l, err);
}

int br_loop_run_until(struct br_loop *l, const bool *done, uint64_t deadline_us, struct br_err *err)
{
    l->stop = false;
    while (!l->stop && !(done && *done)) {
        if (br_now_us() >= deadline_us)
            return -BR_E_TIMEOUT;
        int r = loop_once(l, deadline_us, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int br_loop_run(struct br_loop *l, const bool *done, struct br_err *err)
{
    return br_loop_run_until(l, done, UINT64_MAX, err);
}
