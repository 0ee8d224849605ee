/*
 * Reading the store: bridled starts a bridle-audit that shows what was asked for (GATE_READ), and
 * its channel is read here, as fast as the reader has room. Rows come as they were stored, checked
 * on their way by audit; their numbers are counted here as session.c counts them, so that what was
 * and what is can be put together. Called by the protocols.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/session_priv.h"

/* So many at one time may be held up by slow readers. Bridled shows 32 (SERVICE_READERS_MAX): one
 * who takes no time leaves the others theirs. */
#define REPLAYS_PATIENT 16u

struct gw_replay {
    struct gateway *g;
    uint64_t id; /* of GATE_READ */
    struct gw_reader reader;
    void *ctx;
    bool one;  /* of one run: rows behind the first are of others that came of it */
    bool dead; /* nobody waits any more */
    bool busy; /* the reader is being told something */
    bool paused, ended, seen_row;
    int code; /* how it has ended */
    struct br_err err;
    struct br_chan chan;
    struct gw_timer failing;
    uint64_t row, seq, own;
    struct gw_replay *next;
};

struct replays {
    uint64_t last;
    struct gw_replay *first;
};

static struct replays *replays_of(struct gateway *g)
{
    void **slot = gw_replays_slot(g);
    if (!*slot)
        *slot = calloc(1, sizeof(struct replays));
    br_require(*slot);
    return *slot;
}

static void replay_free(struct gw_replay *p)
{
    struct gw_replay **at = &replays_of(p->g)->first;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    gw_timer_cancel(p->g, &p->failing);
    if (p->chan.fd >= 0) {
        gw_unwatch_chan(p->g, &p->chan);
        br_chan_close(&p->chan);
    }
    free(p);
}

static void finish(struct gw_replay *p, int code, const char *why)
{
    struct gw_reader reader = p->reader;
    void *ctx = p->ctx;
    bool dead = p->dead;
    struct br_err err = {.code = BR_OK};
    if (code < 0)
        br_err_set(&err, (enum br_code) - code, "%s", why);
    replay_free(p);
    if (!dead)
        reader.done(ctx, code, code < 0 ? &err : NULL);
}

static void on_failing(void *ctx)
{
    struct gw_replay *p = ctx;
    finish(p, p->code, p->err.text);
}

/* ---- slow readers ---- */

static unsigned shown(const struct replays *all)
{
    unsigned n = 0;
    for (const struct gw_replay *p = all->first; p; p = p->next)
        n += p->chan.fd >= 0;
    return n;
}

/* As if audit had lost its patience with it: who reads may begin again. */
static void give_up(struct gw_replay *p)
{
    gw_unwatch_chan(p->g, &p->chan);
    br_chan_close(&p->chan);
    p->code = br_err_set(&p->err, BR_E_STORE_FAILED,
                         "the history was read too slowly, while others wait for it");
    gw_timer_set(p->g, &p->failing, 0, on_failing, p);
}

/* Those that wait for their readers are given up where there are many. */
static void make_room(struct replays *all)
{
    for (struct gw_replay *p = all->first; p && shown(all) >= REPLAYS_PATIENT; p = p->next)
        if (p->paused && p->chan.fd >= 0 && !p->busy)
            give_up(p);
}

struct gw_replay *replay_begin(struct gateway *g, const char *run_id, uint32_t limit,
                               const char *before, const char *words, const struct gw_reader *r,
                               void *ctx)
{
    struct replays *all = replays_of(g);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct gw_replay *p = calloc(1, sizeof(*p));
    br_require(p);
    *p = (struct gw_replay){.g = g,
                            .id = ++all->last,
                            .reader = *r,
                            .ctx = ctx,
                            .one = run_id[0] != 0,
                            .chan = {.fd = -1},
                            .next = all->first};
    all->first = p;
    make_room(all);
    br_buf_put_str(&o.buf, run_id);
    br_buf_put_u64(&o.buf, 0);
    br_buf_put_u32(&o.buf, limit);
    br_buf_put_str(&o.buf, before);
    br_buf_put_str(&o.buf, words);
    p->code = strlen(run_id) < BR_ID_MAX && strlen(before) < BR_ID_MAX
                  ? gw_to_bridled(g, BR_MSG_GATE_READ, p->id, &o, &p->err)
                  : br_err_set(&p->err, BR_E_NOT_FOUND, "there is no such run");
    if (p->code < 0) /* `done` is not called before the caller knows what it is about */
        gw_timer_set(g, &p->failing, 0, on_failing, p);
    return p;
}

void replay_cancel(struct gw_replay **slot)
{
    struct gw_replay *p = br_steal_ptr(slot);
    if (!p)
        return;
    p->dead = true;
    if (p->chan.fd >= 0 && !p->busy)
        replay_free(p);
    else if (p->code < 0 && !p->busy)
        replay_free(p);
    /* otherwise bridled has not answered yet, or the reader is inside of a callback */
}

/* ---- what audit shows ---- */

/* The reader was told; false: p is gone. */
static bool told(struct gw_replay *p)
{
    p->busy = false;
    if (p->dead) {
        replay_free(p);
        return false;
    }
    if (p->reader.room && !p->reader.room(p->ctx) && p->chan.fd >= 0) {
        p->paused = true;
        gw_unwatch_chan(p->g, &p->chan);
        make_room(replays_of(p->g));
    }
    return true;
}

static int malformed(const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent a malformed %s", br_msg_name(m->type));
}

static int on_row(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gw_replay *p = ctx;
    struct gw_run_row row = {.workspace = NULL};
    (void)c;
    br_rd_str(&m->rd, row.run_id, sizeof(row.run_id));
    row.started_us = br_rd_u64(&m->rd);
    row.ended_us = br_rd_u64(&m->rd);
    br_rd_str(&m->rd, row.status, sizeof(row.status));
    br_rd_str(&m->rd, row.model, sizeof(row.model));
    BR_CLEANUP_FREE char *workspace = br_rd_strdup(&m->rd, BR_PATH_MAX);
    BR_CLEANUP_FREE char *goal = br_rd_strdup(&m->rd, BR_MSG_MAX);
    row.events = br_rd_u64(&m->rd);
    if (br_rd_done(&m->rd) < 0 || !workspace || !goal)
        return malformed(m, err);
    if (p->one && p->seen_row)
        return 0;
    p->seen_row = true;
    row.workspace = workspace;
    row.goal = goal;
    if (p->reader.row) {
        p->busy = true;
        p->reader.row(p->ctx, &row);
        (void)told(p);
    }
    return 0;
}

static int on_event(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gw_replay *p = ctx;
    BR_CLEANUP_BUF struct br_buf large;
    struct gw_event e = {.row = br_rd_u64(&m->rd), .after = -1};
    (void)c;
    e.bytes = br_msg_blob_view(m, BR_EVENT_MAX, &large, &e.n, err);
    if (br_rd_done(&m->rd) < 0 || !e.bytes || !p->one || session_event_type(&e) < 0)
        return malformed(m, err);
    if (e.row != p->row + 1)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "the record has a gap: row %llu came after %llu",
                          (unsigned long long)e.row, (unsigned long long)p->row);
    p->row = e.row;
    e.seq = e.own ? p->own++ : p->seq++;
    e.after = e.own ? (int64_t)p->seq - 1 : -1;
    if (p->reader.event) {
        p->busy = true;
        p->reader.event(p->ctx, &e);
        (void)told(p);
    }
    return 0;
}

static int on_events_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gw_replay *p = ctx;
    uint32_t code = br_rd_u32(&m->rd);
    (void)c;
    br_rd_str(&m->rd, p->err.text, sizeof(p->err.text));
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    p->ended = true;
    p->code = code < BR_CODE_COUNT_ ? -(int)code : -BR_E_INTERNAL;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_RUN_ROW, BR_PERMIT, 44, BR_MSG_MAX, 0, 0, on_row},
    {BR_MSG_EVENT, BR_PERMIT, 13, BR_MSG_MAX, 0, 1, on_event},
    {BR_MSG_EVENTS_END, BR_PERMIT | BR_ONCE, 8, BR_ERR_TEXT_MAX + 16, 0, 0, on_events_end},
};

static int on_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gw_replay *p = ctx;
    br_chan_close(c);
    if (p->ended && code == -BR_E_PEER_GONE)
        finish(p, p->code, p->err.text);
    else
        finish(p, -BR_E_STORE_FAILED,
               code != -BR_E_PEER_GONE && err ? err->text : "reading the store broke off");
    return 0;
}

void replay_more(struct gw_replay *p)
{
    if (!p->paused || p->dead)
        return;
    p->paused = false;
    if (gw_watch_chan(p->g, &p->chan, on_end, p) < 0)
        p->paused = true;
}

int replay_on_reading(struct gateway *g, struct br_msg *m, struct br_err *err)
{
    struct gw_replay *p = replays_of(g)->first;
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    BR_CLEANUP_FD int fd = br_msg_take_fd(m);
    while (p && p->id != m->id)
        p = p->next;
    if (br_rd_done(&m->rd) < 0 || !p || p->chan.fd >= 0 || p->code < 0 || (code == 0) != (fd >= 0))
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed GATE_READING");
    if (p->dead || code) {
        finish(p, code < BR_CODE_COUNT_ ? -(int)code : -BR_E_INTERNAL, text);
        return 0;
    }
    br_chan_init(&p->chan, br_steal_fd(&fd), "audit", rules, BR_ARRAY_LEN(rules), p);
    if (gw_watch_chan(g, &p->chan, on_end, p) < 0)
        finish(p, -BR_E_IO, "the store's channel could not be watched");
    return 0;
}
