/*
 * Mode record: how a record begins, what the session and the egress say, and how it ends. Batches
 * of messages are the matter of batch.c. Nothing that a peer says is trusted; a peer that breaks
 * the protocol ends the run.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit_priv.h"

/* Events that are taken before the disk is looked after again. */
#define LOOK_EVERY 8u
/* Messages that may still wait when the run is over. */
#define DRAIN_MAX 4096u

static int on_session_end(struct br_chan *c, int code, void *ctx, struct br_err *err);

/* ---- the row of the run ---- */

static void copy_redacted(struct audit *a, char *text, size_t cap)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_MSG_MAX * 4);
    if (br_redact_text(a->rec.redact, text, strlen(text), &b, NULL) < 0 || !br_buf_cstr(&b)) {
        snprintf(text, cap, "[redacted]");
        return;
    }
    size_t n = br_utf8_floor(b.data, b.len < cap - 1 ? b.len : cap - 1);
    memcpy(text, b.data, n);
    text[n] = 0;
}

/* What a listing shows of the goal. A longer one is cut, and what might be the beginning of a
 * secret before the cut goes with it. */
static void redact_goal(struct audit *a)
{
    struct br_store_info *info = &a->info;
    if (strlen(a->goal) < sizeof(info->goal)) {
        snprintf(info->goal, sizeof(info->goal), "%s", a->goal);
        copy_redacted(a, info->goal, sizeof(info->goal));
        return;
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_MSG_MAX * 4);
    struct br_redact_stream *s = br_redact_stream_new(a->rec.redact);
    snprintf(info->goal, sizeof(info->goal), "[redacted]");
    if (s && br_redact_stream_feed(s, a->goal, strlen(a->goal), &b, NULL) == 0) {
        size_t n = b.len < sizeof(info->goal) - 1 ? b.len : sizeof(info->goal) - 1;
        n = n ? br_utf8_floor(b.data, n) : 0;
        if (n)
            memcpy(info->goal, b.data, n);
        info->goal[n] = 0;
    }
    br_redact_stream_free(&s);
}

/*
 * Made with the first event, or at the end if there is none: bridled lets the session begin when
 * the egress is ready, so that a key is known to the redactor by then. A run that ends before its
 * egress said anything is recorded without what might hold the key.
 */
static int record_begin(struct audit *a, bool at_end, struct br_err *err)
{
    struct br_store_info *info = &a->info;
    struct br_store_run run;
    if (a->rec.run.id)
        return 0;
    if (at_end && a->with_egress && !a->secret_known) {
        info->workspace[0] = 0;
        snprintf(info->model, sizeof(info->model), "unknown");
        snprintf(info->goal, sizeof(info->goal),
                 "[not recorded: the run ended before it had begun]");
    } else {
        redact_goal(a);
        copy_redacted(a, info->workspace, sizeof(info->workspace));
        copy_redacted(a, info->model, sizeof(info->model));
    }
    int r = br_store_begin(a->rec.store, err);
    if (r == 0)
        r = br_store_add_run(a->rec.store, info, &run, err);
    if (r == 0)
        r = br_store_commit(a->rec.store, err);
    else
        br_store_rollback(a->rec.store);
    if (r == 0)
        a->rec.run = a->rec.committed = run; /* and no event is on disk */
    return r;
}

/* ---- APPEND, TEXT ---- */

static int parse_data(const char *s, size_t n, json_t **data, struct br_err *err)
{
    json_error_t why;
    int r = br_json_scan(s, n, BR_JSON_DEPTH_MAX + 4, BR_EVENT_NODES_MAX, err);
    if (r == 0) {
        *data = json_loadb(s, n, JSON_REJECT_DUPLICATES, &why);
        if (json_is_object(*data))
            return 0;
        br_err_set(err, BR_E_INVALID_JSON, "it is no JSON object");
    }
    if (err)
        err->code = BR_E_EVENT_SCHEMA;
    return br_err_wrap(err, "the data of an event was not stored");
}

static int append(struct audit *a, const char *type, const char *actor, const char *text, size_t n,
                  struct br_err *err)
{
    json_t *data = NULL;
    if (br_event_is_internal(type))
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "'%s' events are made from streamed text; nothing was stored", type);
    int r = 0;
    if (a->rec.run.id && !text_waits(a)) {
        r = recorder_add_text(&a->rec, type, actor, text, n, err);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    r = parse_data(text, n, &data, err);
    if (r == 0)
        r = record_begin(a, false, err);
    if (r == 0)
        r = strcmp(type, "agent.stopped") == 0 ? text_finish(a, err) : text_flush(a, err);
    if (r == 0)
        r = recorder_add(&a->rec, type, actor, data, false, err);
    json_decref(data);
    return r;
}

/* One event of an APPEND; a failure to store it is in the reply. */
static int append_next(struct audit *a, struct br_msg *m, struct reply *rep, struct br_err *err)
{
    char type[BR_EVENT_TYPE_MAX + 1], actor[BR_NAME_MAX];
    BR_CLEANUP_BUF struct br_buf large;
    size_t n = 0;
    br_rd_str(&m->rd, type, sizeof(type));
    br_rd_str(&m->rd, actor, sizeof(actor));
    const char *data = br_msg_blob_view(m, BR_BLOB_MAX, &large, &n, err);
    if (!data)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an APPEND is malformed");
    struct br_err why = a->broken;
    int r = a->broken.code ? -(int)a->broken.code : append(a, type, actor, data, n, &why);
    rep->row = a->rec.run.rows;
    batch_settle(a, rep, r, &why);
    return 0;
}

static int on_append(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    struct reply *rep = batch_reply(a, m->id);
    unsigned events = 0;
    int r = 0;
    (void)c;
    do {
        r = append_next(a, m, rep, err);
        if (r == 0 && ++events % LOOK_EVERY == 0)
            r = batch_look(a, err);
    } while (r == 0 && m->rd.off < m->rd.len && events < BR_APPEND_MAX);
    batch_count(a, events);
    if (r == 0 && br_rd_done(&m->rd) < 0)
        r = br_err_set(err, BR_E_PEER_PROTOCOL, "an APPEND has %s",
                       events == BR_APPEND_MAX ? "too many events" : "something behind its events");
    if (r < 0) /* what was not taken is not answered as if it were stored */
        batch_settle(a, rep, r, err ? err : &(struct br_err){.code = BR_OK});
    return r;
}

static int on_text(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    char stream[BR_NAME_MAX + 1], kind[16];
    BR_CLEANUP_BUF struct br_buf bytes;
    (void)c;
    br_rd_str(&m->rd, stream, sizeof(stream));
    br_rd_str(&m->rd, kind, sizeof(kind));
    int r = br_msg_blob(m, BR_BLOB_MAX, &bytes, err);
    uint8_t final = br_rd_u8(&m->rd);
    if (r < 0 || br_rd_done(&m->rd) < 0 || final > 1 || !stream[0])
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a TEXT is malformed");
    struct reply *rep = batch_reply(a, m->id);
    struct br_err why = a->broken;
    r = a->broken.code ? -(int)a->broken.code : record_begin(a, false, &why);
    if (r == 0)
        r = text_feed(a, stream, kind, bytes.data, bytes.len, final == 1, rep, &why);
    batch_count(a, 1);
    batch_settle(a, rep, r, &why);
    return 0;
}

static const struct br_msg_rule session_rules[] = {
    {BR_MSG_APPEND, BR_PERMIT, 9, BR_MSG_MAX, 0, 1, on_append},
    {BR_MSG_TEXT, BR_PERMIT, 10, BR_MSG_MAX, 0, 1, on_text},
};

int record_serve(struct audit *a, struct br_err *err)
{
    int r = batch_flush(a, err);
    for (unsigned n = 0; r == 0 && a->session.fd >= 0 && n < DRAIN_MAX / AUDIT_BATCH_MAX; n++) {
        r = batch_serve(a, err);
        int f = batch_flush(a, err);
        r = f < 0 ? f : r;
    }
    return r == -BR_E_TIMEOUT ? 0 : r;
}

/* What egress has said is known before anything that came later. */
static int serve_egress(struct audit *a, struct br_err *err)
{
    int r = 0;
    while (a->egress.fd >= 0 && (r = br_chan_dispatch(&a->egress, err)) == 0)
        ;
    /* that it has gone is found by the loop as well */
    return r == -BR_E_TIMEOUT || r == -BR_E_PEER_GONE ? 0 : r;
}

static int on_session(void *ctx, int fd, short revents, struct br_err *err)
{
    struct audit *a = ctx;
    (void)fd;
    (void)revents;
    int r = serve_egress(a, err);
    if (r < 0)
        return r;
    r = batch_serve(a, err);
    if (r == -BR_E_PEER_GONE) {
        r = batch_flush(a, err);
        return r < 0 ? r : on_session_end(&a->session, r, a, err);
    }
    return r == -BR_E_TIMEOUT ? 0 : r;
}

void record_watch(struct audit *a, bool yes)
{
    if (a->session.fd < 0)
        return;
    if (yes)
        (void)br_loop_watch(a->loop, a->session.fd, POLLIN, on_session, a);
    else
        br_loop_unwatch(a->loop, a->session.fd);
}

/* It has ended, well or not: bridled will say how. */
static int on_session_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    (void)code;
    (void)err;
    br_loop_unwatch(a->loop, c->fd);
    br_chan_close(c);
    return 0;
}

/* ---- SECRET ---- */

static int on_secret(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    char name[BR_NAME_MAX + 1];
    BR_CLEANUP_BUF struct br_buf value;
    br_rd_str(&m->rd, name, sizeof(name));
    int r = br_msg_blob(m, BR_REDACT_SECRET_MAX, &value, err);
    if (r == 0 && br_rd_done(&m->rd) < 0)
        r = br_err_set(err, BR_E_PEER_PROTOCOL, "a SECRET is malformed");
    if (r == 0)
        r = br_redact_secret(a->rec.redact, name, value.data ? value.data : (const uint8_t *)"",
                             value.len, err);
    a->secret_known |= r == 0;
    if (value.data)
        explicit_bzero(value.data, value.cap);
    /* the receive buffer held it too */
    if (c->in_.data)
        explicit_bzero(c->in_.data, c->in_.cap);
    if (r == 0)
        r = br_chan_send(c, BR_MSG_SECRET_KNOWN, m->id, NULL, err);
    if (r == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          "the egress tells secrets and does not read the answers");
    return r;
}

static const struct br_msg_rule egress_rules[] = {
    {BR_MSG_SECRET, BR_PERMIT, 9, BR_MSG_MAX, 0, 1, on_secret},
};

static int on_egress_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    br_chan_close(c);
    if (code == -BR_E_PEER_GONE || a->broken.code)
        return 0;
    /* a secret that is not known cannot be hidden: nothing more is recorded */
    if (err && err->code)
        a->broken = *err;
    else
        br_err_set(&a->broken, BR_E_REDACTION_FAILED, "a secret could not be registered");
    br_log(BR_LOG_ERROR, "%s: %s", br_code_name(a->broken.code), a->broken.text);
    return code;
}

/* ---- start ---- */

/* Could the store take the row? Nothing of the run is in this one, and it is taken back. */
static int try_row(struct audit *a, struct br_err *err)
{
    struct br_store_info bare = {.started_us = a->info.started_us};
    struct br_store_run run;
    memcpy(bare.run_id, a->info.run_id, sizeof(bare.run_id));
    int r = br_store_begin(a->rec.store, err);
    if (r == 0)
        r = br_store_add_run(a->rec.store, &bare, &run, err);
    br_store_rollback(a->rec.store);
    return r;
}

static bool valid(const char *text)
{
    return br_utf8_valid(text, strlen(text));
}

int record_start(struct audit *a, struct br_err *err)
{
    struct br_store_info *info = &a->info;
    snprintf(info->run_id, sizeof(info->run_id), "%s", a->wanted);
    if (!valid(info->workspace) || !valid(info->model) || !valid(a->goal))
        return br_err_set(err, BR_E_EVENT_SCHEMA,
                          "the goal, the workspace or the model of the run is not valid UTF-8; "
                          "nothing is recorded");
    a->rec.order = br_event_order_new();
    int r = a->rec.order ? try_row(a, err) : br_err_set(err, BR_E_NOMEM, "no memory for a run");
    if (r < 0)
        return r;
    br_chan_init(&a->session, a->session.fd, "session", session_rules, BR_ARRAY_LEN(session_rules),
                 a);
    br_chan_init(&a->egress, a->egress.fd, "egress", egress_rules, BR_ARRAY_LEN(egress_rules), a);
    if (a->session.fd >= 0) {
        (void)fcntl(a->session.fd, F_SETFL, O_NONBLOCK);
        r = br_loop_watch(a->loop, a->session.fd, POLLIN, on_session, a);
    }
    if (a->egress.fd >= 0)
        (void)fcntl(a->egress.fd, F_SETFL, O_NONBLOCK);
    if (r == 0 && a->egress.fd >= 0)
        r = br_loop_watch_chan(a->loop, &a->egress, on_egress_end, a);
    return r < 0 ? br_err_set(err, BR_E_INTERNAL, "the channels could not be watched") : 0;
}

/* ---- end ---- */

static int finish(struct audit *a, struct ending *e, struct br_err *err)
{
    if (a->broken.code && !e->code) {
        /* the session went on as if nothing had happened */
        e->code = a->broken.code;
        snprintf(e->status, sizeof(e->status), "failed");
    }
    if (a->broken.code && !e->note[0])
        snprintf(e->note, sizeof(e->note), "%s", a->broken.text);
    int r = record_begin(a, true, err);
    if (r < 0)
        return r;
    e->workspace = a->info.workspace;
    r = text_finish(a, err);
    int f = record_finish(&a->rec, e, err);
    if (f == 0)
        account_remove(a->rec.run.run_id);
    return r < 0 ? r : f;
}

static int on_wait(void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    (void)err;
    a->wait_timer = 0;
    uint64_t idle = br_now_us() - a->progress_us;
    if (idle >= AUDIT_CLIENT_WAIT_US)
        a->done = true;
    else
        a->wait_timer = br_loop_timer(a->loop, AUDIT_CLIENT_WAIT_US - idle, on_wait, a);
    return 0;
}

static int wait_client(struct audit *a, struct br_err *err)
{
    int r = feed_pump(a, err);
    a->progress_us = br_now_us();
    a->wait_timer = br_loop_timer(a->loop, AUDIT_CLIENT_WAIT_US, on_wait, a);
    while (r == 0 && !feed_idle(a) && !a->done)
        r = br_loop_run_until(a->loop, &a->done, br_now_us() + 5000, err) == -BR_E_PEER_PROTOCOL
                ? -BR_E_PEER_PROTOCOL
                : 0;
    br_loop_timer_cancel(a->loop, &a->wait_timer);
    return r;
}

int record_on_close(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    struct ending e = {.code = br_rd_u32(&m->rd)};
    struct br_event_open open;
    (void)c;
    br_rd_str(&m->rd, e.status, sizeof(e.status));
    br_rd_str(&m->rd, e.note, sizeof(e.note));
    e.sandbox = br_rd_u8(&m->rd);
    e.exit_status = br_rd_u32(&m->rd);
    e.duration_ms = br_rd_u64(&m->rd);
    if (br_rd_done(&m->rd) < 0 || e.sandbox > 2 || e.code >= BR_CODE_COUNT_ ||
        e.duration_ms > BR_EVENT_INT_MAX)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an AUDIT_CLOSE is malformed");
    struct br_err why = {.code = BR_OK};
    char note[BR_ERR_TEXT_MAX]; /* what bridled may show of it */
    snprintf(note, sizeof(note), "%s", e.note);
    int r = record_serve(a, &why);
    copy_redacted(a, note, sizeof(note));
    if (a->session.fd >= 0)
        (void)on_session_end(&a->session, 0, a, err);
    if (r == -BR_E_PEER_GONE)
        r = 0;
    if (r == 0)
        r = finish(a, &e, &why);
    br_event_order_open(a->rec.order, &open);
    a->closing = true;
    if (r == 0)
        r = wait_client(a, &why);
    feed_end(a, r, r < 0 ? why.text : "");
    a->done = true;
    return audit_send_closed(a, r, r < 0 ? why.text : note, open.status ? open.status : "failed");
}

void record_abandon(struct audit *a, int code, const char *note)
{
    struct ending e = {.code = (uint32_t)(code < 0 ? -code : code), .sandbox = 0};
    struct br_err why = {.code = BR_OK};
    struct br_event_open open;
    snprintf(e.status, sizeof(e.status), "failed");
    snprintf(e.note, sizeof(e.note), "%s", note);
    if (code == -BR_E_PEER_GONE || code == -BR_E_PROGRAM_DIED)
        (void)record_serve(a, NULL);
    batch_forget(a);
    int r = finish(a, &e, &why);
    br_event_order_open(a->rec.order, &open); /* the session may have written its end already */
    if (r < 0)
        br_log(BR_LOG_ERROR, "%s; the record could not be closed: %s", note, why.text);
    else
        br_log(BR_LOG_ERROR, "%s; the record ends as %s", note,
               open.status ? open.status : "it is");
    (void)feed_pump(a, NULL);
    feed_end(a, code, note);
}
