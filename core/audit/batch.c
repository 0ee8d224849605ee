/*
 * Messages of the session, many at a time. What waits is taken together and committed; the disk is
 * waited for in the background, and meanwhile the next is taken and committed: its sync begins when
 * the one before is over. What is on disk is shown to the client and answered, in order. A few
 * messages alone, as most of the time, are synced at once.
 *
 * The first failure of redaction, schema or store is also the last thing that happens but for the
 * end of the record: every later message of the session is answered with the same failure.
 */
#include <string.h>

#include "audit/audit_priv.h"

/* Fewer than these are not worth a wait in the background. */
#define ALONE_MAX 4u
/* Where the disk or the processors are busy, two halves by turns take longer than one whole, and
 * the kernel's worker comes late: after a sync that took so long, so many are waited for at once.
 */
#define SLOW_US 5000u
#define AT_ONCE 16u

struct reply *batch_reply(struct audit *a, uint64_t id)
{
    struct reply *rep = &a->filling.replies[a->filling.n++];
    *rep = (struct reply){.id = id};
    return rep;
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

static int send_failure(struct audit *a, const struct reply *rep, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)rep->code);
    br_buf_put_str(&o.buf, rep->text);
    return br_chan_send(&a->session, BR_MSG_APPEND_FAILED, rep->id, &o, err);
}

/* The payload of APPENDED. */
static void put_reply(struct br_brief *b, const struct reply *rep)
{
    uint32_t n = (uint32_t)strlen(rep->event_id);
    b->id = rep->id;
    for (unsigned i = 0; i < 4; i++)
        b->payload[i] = (uint8_t)(n >> 8 * i);
    memcpy(b->payload + 4, rep->event_id, n);
    for (unsigned i = 0; i < 8; i++)
        b->payload[4 + n + i] = (uint8_t)(rep->row >> 8 * i);
    b->n = (uint8_t)(n + 12);
}
_Static_assert(BR_ID_MAX + 12 <= sizeof((struct br_brief){.n = 0}.payload), "an id fits");

/* In the order in which they were asked for: what was stored comes before the first failure. */
static int send_replies(struct audit *a, const struct batch *b, struct br_err *err)
{
    struct br_brief brief[AUDIT_BATCH_MAX];
    unsigned good = 0, sent;
    while (good < b->n && !b->replies[good].code) {
        put_reply(&brief[good], &b->replies[good]);
        good++;
    }
    int r = good ? br_chan_send_briefs(&a->session, BR_MSG_APPENDED, brief, good, &sent, err) : 0;
    for (unsigned i = good; i < b->n && r == 0; i++)
        r = send_failure(a, &b->replies[i], err);
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
    b->n = 0;
    if (sent == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the session asks and does not read the answers");
    /* otherwise it has gone, and its end of file is served next */
    return shown;
}

/* ---- taking ---- */

/* What waits at the session's channel, as far as there is room, and commit it. */
static int take(struct audit *a, struct br_err *err)
{
    unsigned before = a->filling.n;
    int r = br_chan_drain(&a->session, AUDIT_BATCH_MAX - before, err);
    struct br_err why = {.code = BR_OK};
    int c = recorder_commit_later(&a->rec, &why);
    for (unsigned i = before; i < a->filling.n && c < 0; i++)
        batch_settle(a, &a->filling.replies[i], c, &why);
    return r < 0 ? r : 0;
}

/* ---- the disk ---- */

static int on_synced(void *ctx, int fd, short revents, struct br_err *err);

/* Everything that is committed is on disk now, or that failed. */
static int finish_sync(struct audit *a, int r, const struct br_err *why, struct br_err *err)
{
    if (r == 0 && a->sync_rows > a->rec.durable)
        a->rec.durable = a->sync_rows;
    return finish(a, &a->syncing, r, why, err);
}

/* Begin to sync what was committed, unless that is under way. */
static int begin_sync(struct audit *a, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    if (a->in_sync || !a->filling.n)
        return 0;
    a->syncing = a->filling;
    a->filling.n = 0;
    a->sync_rows = a->rec.committed.rows;
    bool wait = a->syncing.n < ALONE_MAX || a->at_once;
    a->at_once -= a->at_once > 0;
    int r = wait ? br_store_sync(a->rec.store, &why) : br_store_sync_begin(a->rec.store, &why);
    if (r <= 0)
        return finish_sync(a, r, &why, err);
    a->in_sync = true;
    a->sync_started_us = br_now_us();
    r = br_loop_watch(a->loop, br_store_sync_fd(a->rec.store), POLLIN, on_synced, a);
    return r < 0 ? br_err_set(err, BR_E_INTERNAL, "the sync could not be watched") : 0;
}

/* Collect the one that is under way; -BR_E_TIMEOUT: it is not over. */
static int end_sync(struct audit *a, bool wait, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    if (!a->in_sync)
        return 0;
    int r = br_store_sync_end(a->rec.store, wait, &why);
    if (r == -BR_E_TIMEOUT)
        return r;
    a->in_sync = false;
    if (br_now_us() - a->sync_started_us > SLOW_US)
        a->at_once = AT_ONCE;
    br_loop_unwatch(a->loop, br_store_sync_fd(a->rec.store));
    return finish_sync(a, r, &why, err);
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
    return r;
}

int batch_serve(struct audit *a, struct br_err *err)
{
    if (a->filling.n == AUDIT_BATCH_MAX) { /* the disk is slower than the session */
        record_watch(a, false);
        return -BR_E_TIMEOUT;
    }
    int r = take(a, err);
    int s = begin_sync(a, err);
    return s < 0 ? s : r;
}

int batch_flush(struct audit *a, struct br_err *err)
{
    int r = 0;
    while (r == 0 && (a->in_sync || a->filling.n)) {
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
    a->filling.n = a->syncing.n = 0;
}
