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
#include <string.h>

#include "audit/audit_priv.h"

/* Fewer than these are not worth a wait in the background. */
#define ALONE_MAX 4u
/* While one half is brought to the disk and read by the client, the next is prepared. */
#define HALF (AUDIT_BATCH_MAX / 2)
/* Where there are many, the next one is looked for so long before one sleeps. */
#define SOON_US 20u
/* Where the disk or the processors are busy, two halves by turns take longer than one whole, and
 * the kernel's worker comes late: after so many syncs in sequence that took so long, so many are
 * waited for at once. A single one may have met a checkpoint.
 */
#define SLOW_US 1000u
#define SLOW_MANY 2u
#define AT_ONCE 16u

struct reply *batch_reply(struct audit *a, uint64_t id)
{
    struct batch *b = &a->batches[a->filling];
    struct reply *rep = &b->replies[b->n++];
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

/* What waits at the session's channel, as far as there is room, and commit it. Who sends many at
 * once is not done when the first is there. */
static int take(struct audit *a, struct br_err *err)
{
    struct batch *b = &a->batches[a->filling];
    unsigned before = b->n, room = AUDIT_BATCH_MAX - before;
    unsigned most = before + (a->at_once || room < HALF ? room : HALF);
    int r;
    do {
        r = br_chan_drain(&a->session, most - b->n, err);
    } while (r > 0 && a->many && b->n < most && br_chan_soon(&a->session, SOON_US));
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
    unsigned n = a->batches[a->syncing].n;
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

/* Collect the one that is under way, and begin the next before what is on disk is shown;
 * -BR_E_TIMEOUT: it is not over. */
static int end_sync(struct audit *a, bool wait, struct br_err *err)
{
    struct br_err why = {.code = BR_OK}, next_why = {.code = BR_OK};
    if (!a->in_sync)
        return 0;
    int r = br_store_sync_end(a->rec.store, wait, &why), next = 1;
    if (r == -BR_E_TIMEOUT)
        return r;
    a->in_sync = false;
    a->slow = br_now_us() - a->sync_started_us > SLOW_US ? a->slow + 1 : 0;
    if (a->slow >= SLOW_MANY)
        a->at_once = AT_ONCE;
    br_loop_unwatch(a->loop, br_store_sync_fd(a->rec.store));
    unsigned done = a->syncing;
    uint64_t rows = a->sync_rows;
    if (r == 0 && !a->at_once && a->batches[a->filling].n)
        next = start_sync(a, &next_why);
    int shown = finish_sync(a, done, rows, r, &why, err);
    int n = next > 0 ? 0 : finish_sync(a, a->syncing, a->sync_rows, next, &next_why, err);
    return shown < 0 ? shown : n;
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
    if (a->batches[a->filling].n == AUDIT_BATCH_MAX) { /* the disk is slower than the session */
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
        a->batches[i].n = 0;
}
