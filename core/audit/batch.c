/*
 * Messages of the session, many at a time. What waits is taken, half of what a session may have on
 * its way, and committed; the disk is waited for in the background, and meanwhile the other half is
 * taken and committed: its sync begins when the one before is over. What is on disk is shown to the
 * client and answered, in order, while the next sync runs. A few messages alone, as most of the
 * time, are synced at once.
 *
 * The first failure of redaction, schema or store is also the last thing that happens but for the
 * end of the record: every later message of the session is answered with the same failure.
 */
#include <poll.h>
#include <string.h>

#include "audit/audit_priv.h"

/* Fewer events than these are not worth a wait in the background. */
#define ALONE_MAX 8u
/* While one half is brought to the disk and read by the client, the next is prepared. */
#define HALF (AUDIT_BATCH_MAX / 2)
/* Where there are many, the next one is looked for so long before one sleeps. */
#define SOON_US 20u
/* A sync takes longer than that, the part of it that is not over when all else is done does not. */
#define LOOK_OUT_US 100u
/* Where the disk or the processors are busy, two halves by turns take longer than one whole, and
 * the thread that syncs comes late: after so many syncs in sequence that took so long, so many are
 * waited for at once. A single one may have met a checkpoint.
 */
#define SLOW_US 1000u
#define SLOW_MANY 2u
#define AT_ONCE 16u

struct reply *batch_reply(struct audit *a, uint64_t id)
{
    struct batch *b = &a->batches[a->filling];
    struct reply *rep = &b->replies[b->n++];
    rep->id = id;
    rep->code = 0;
    rep->row = 0;
    return rep;
}

void batch_count(struct audit *a, unsigned events)
{
    a->batches[a->filling].events += events;
}

void batch_settle(struct audit *a, struct reply *rep, int r, const struct br_err *err)
{
    if (r < 0 && !a->broken.code) {
        a->broken = *err;
        if (!a->broken.code)
            br_err_set(&a->broken, (enum br_code) - r, "an event was not stored");
        br_log(BR_LOG_ERROR, "%s: %s", br_code_name(a->broken.code), a->broken.text);
    }
    if (r >= 0 && !a->broken.code)
        return;
    rep->code = (int)a->broken.code;
    snprintf(rep->text, sizeof(rep->text), "%s", a->broken.text);
}

/* ---- answers ---- */

static int send_reply(struct audit *a, const struct reply *rep, struct br_err *err)
{
    if (!rep->code)
        return br_chan_send_fixed(&a->session, BR_MSG_APPENDED, rep->id, rep->row, NULL, 0, err);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)rep->code);
    br_buf_put_str(&o.buf, rep->text);
    return br_chan_send(&a->session, BR_MSG_APPEND_FAILED, rep->id, &o, err);
}

/* In the order in which they were asked for: what was stored comes before the first failure. */
static int send_replies(struct audit *a, const struct batch *b, struct br_err *err)
{
    int r = 0;
    for (unsigned i = 0; i < b->n && r == 0; i++)
        r = send_reply(a, &b->replies[i], err);
    return r;
}

/* The batch is on disk (r 0) or could not be brought there. */
static int finish(struct audit *a, struct batch *b, int r, const struct br_err *why,
                  struct br_err *err)
{
    for (unsigned i = 0; i < b->n && r < 0; i++)
        batch_settle(a, &b->replies[i], r, why);
    int shown = feed_pump(a, err);
    int sent = b->n ? send_replies(a, b, err) : 0;
    b->n = b->events = 0;
    if (sent == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the session asks and does not read the answers");
    /* otherwise it has gone, and its end of file is served next */
    return shown;
}

/* ---- taking ---- */

static bool full(const struct batch *b)
{
    return b->events >= AUDIT_BATCH_MAX || b->n == AUDIT_BATCH_MAX;
}

/* What waits at the session's channel, as far as there is room, and commit it. Who sends many at
 * once is not done when the first is there. */
static int take(struct audit *a, struct br_err *err)
{
    struct batch *b = &a->batches[a->filling];
    unsigned before = b->n, most = b->events + HALF;
    int r = 0;
    if (a->at_once || most > AUDIT_BATCH_MAX)
        most = AUDIT_BATCH_MAX;
    while (r == 0 && b->events < most && !full(b)) {
        r = br_chan_dispatch(&a->session, err);
        if (r == -BR_E_TIMEOUT && b->n > before && a->many && br_chan_soon(&a->session, SOON_US))
            r = 0;
    }
    /* what was taken before the session went is stored first: that is found again */
    if (b->n > before && (r == -BR_E_TIMEOUT || r == -BR_E_PEER_GONE))
        r = 0;
    struct br_err why = {.code = BR_OK};
    int c = recorder_commit_later(&a->rec, &why);
    for (unsigned i = before; i < b->n && c < 0; i++)
        batch_settle(a, &b->replies[i], c, &why);
    return r < 0 ? r : 0;
}

/* ---- the disk ---- */

static int on_synced(void *ctx, int fd, short revents, struct br_err *err);

/* Begin to sync what was committed: 1 in the background, 0 it is on disk, or that failed. */
static int start_sync(struct audit *a, struct br_err *why)
{
    a->syncing = a->filling;
    a->filling = (a->filling + 1) % BR_ARRAY_LEN(a->batches);
    a->sync_rows = a->rec.committed.rows;
    unsigned n = a->batches[a->syncing].events;
    bool wait = (n < ALONE_MAX && !a->many) || a->at_once;
    a->at_once -= a->at_once > 0;
    a->many = n >= HALF / 2;
    a->sync_started_us = br_now_us();
    int r = wait ? br_store_sync(a->rec.store, why) : br_store_sync_begin(a->rec.store, why);
    if (r > 0 && br_loop_watch(a->loop, br_store_sync_fd(a->rec.store), POLLIN, on_synced, a) < 0)
        r = br_store_sync_end(a->rec.store, true, why);
    a->in_sync = r > 0;
    return r;
}

/* The rows up to `rows` are on disk now, or that failed. */
static int finish_sync(struct audit *a, unsigned batch, uint64_t rows, int r,
                       const struct br_err *why, struct br_err *err)
{
    if (r == 0 && rows > a->rec.durable)
        a->rec.durable = rows;
    return finish(a, &a->batches[batch], r, why, err);
}

/* Begin to sync what was committed, unless that is under way. */
static int begin_sync(struct audit *a, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    if (a->in_sync || !a->batches[a->filling].n)
        return 0;
    int r = start_sync(a, &why);
    return r > 0 ? 0 : finish_sync(a, a->syncing, a->sync_rows, r, &why, err);
}

/* Collect the one that is under way: 1, and what it brought to the disk is shown next; 0: there is
 * none; -BR_E_TIMEOUT: it is not over. *r: how it went. */
static int collect(struct audit *a, bool wait, int *r, struct br_err *why)
{
    if (!a->in_sync)
        return 0;
    *r = br_store_sync_end(a->rec.store, wait, why);
    if (*r == -BR_E_TIMEOUT)
        return *r;
    a->in_sync = false;
    a->slow = br_now_us() - a->sync_started_us > SLOW_US ? a->slow + 1 : 0;
    if (a->slow >= SLOW_MANY)
        a->at_once = AT_ONCE;
    br_loop_unwatch(a->loop, br_store_sync_fd(a->rec.store));
    return 1;
}

int batch_look(struct audit *a, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    int r, done = collect(a, false, &r, &why);
    return done == 1 ? finish_sync(a, a->syncing, a->sync_rows, r, &why, err) : 0;
}

/* Collect the one that is under way, and begin the next before what is on disk is shown;
 * -BR_E_TIMEOUT: it is not over. */
static int end_sync(struct audit *a, bool wait, struct br_err *err)
{
    struct br_err why = {.code = BR_OK}, next_why = {.code = BR_OK};
    int r, next = 1, over = collect(a, wait, &r, &why);
    if (over <= 0)
        return over;
    unsigned done = a->syncing;
    uint64_t rows = a->sync_rows;
    if (r == 0 && !a->at_once && a->batches[a->filling].n)
        next = start_sync(a, &next_why);
    int shown = finish_sync(a, done, rows, r, &why, err);
    int n = next > 0 ? 0 : finish_sync(a, a->syncing, a->sync_rows, next, &next_why, err);
    return shown < 0 ? shown : n;
}

/* Where there are many, what comes next comes before a processor that sleeps is awake again. */
static void look_out(struct audit *a)
{
    struct pollfd p[] = {{.fd = a->session.fd, .events = POLLIN},
                         {.fd = br_store_sync_fd(a->rec.store), .events = POLLIN}};
    if (a->in_sync && a->many)
        (void)br_soon(p, BR_ARRAY_LEN(p), LOOK_OUT_US);
}

static int on_synced(void *ctx, int fd, short revents, struct br_err *err)
{
    struct audit *a = ctx;
    (void)fd;
    (void)revents;
    int r = end_sync(a, false, err);
    if (r < 0)
        return r == -BR_E_TIMEOUT ? 0 : r;
    r = begin_sync(a, err);
    record_watch(a, true);
    look_out(a);
    return r;
}

int batch_serve(struct audit *a, struct br_err *err)
{
    if (full(&a->batches[a->filling])) { /* the disk is slower than the session */
        record_watch(a, false);
        return -BR_E_TIMEOUT;
    }
    int r = take(a, err);
    int s = begin_sync(a, err);
    look_out(a);
    return s < 0 ? s : r;
}

int batch_flush(struct audit *a, struct br_err *err)
{
    int r = 0;
    while (r == 0 && (a->in_sync || a->batches[a->filling].n)) {
        r = end_sync(a, true, err);
        if (r == 0)
            r = begin_sync(a, err);
    }
    return r;
}

void batch_forget(struct audit *a)
{
    struct br_err why = {.code = BR_OK};
    if (a->in_sync)
        (void)br_store_sync_end(a->rec.store, true, &why);
    a->in_sync = false;
    for (unsigned i = 0; i < BR_ARRAY_LEN(a->batches); i++)
        a->batches[i].n = a->batches[i].events = 0;
}
