/*
 * What was, for a connection of harness/acp/1 with `sessions`: the list of runs, and the events of
 * one from the store. If it still runs, its later events follow without a gap or a repetition: they
 * are held from before the reading begins, and those that the reading has not reached come behind
 * it. Where more is held than a moment should bring, it is let go, and the reading begins again
 * behind what was sent.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/harness_priv.h"

#define HELD_MAX (1u << 20) /* bytes of live events that wait for a reading */
#define LOADS_MAX 8u        /* readings of one connection at one time */
#define LIST_LIMIT 50u      /* rows, if the client does not say */
#define TOO_MANY_READINGS "too many readings of the record; try again in a second"
#define GOAL_SHOWN_MAX 1000u /* bytes of a goal in a list */

struct held {
    struct gw_event e;
    struct held *next;
    char bytes[];
};

struct harness_load {
    struct harness *h;
    char *id; /* of the request */
    char session[BR_ID_MAX];
    int64_t after, after_own;
    struct gw_replay *replay;
    struct harness_follow *follow; /* it lived when the reading began, and does */
    struct held *held, **held_end;
    size_t held_bytes;
    bool overflow, full;
    bool waited;  /* the reading was made to wait, and may have been given up for it */
    uint64_t row; /* the last that was read */
    char status[32];
    char *prompt; /* the id of the run's prompt, which is answered behind the events; NULL: none */
    int prompt_code;
    struct br_buf prompt_end;
    struct harness_load *next;
};

struct harness_list {
    struct harness *h;
    char *id;
    struct gw_replay *replay;
    uint32_t limit, rows;
    bool first; /* the newest are asked for, whatever their words */
    bool more;
    struct br_buf out;   /* the rows, as JSON */
    struct br_buf known; /* their ids, each with its NUL */
    struct harness_list *next;
};

const char *harness_status(enum gw_state state)
{
    static const char *const names[] = {"created", "running", "completed", "failed", "canceled"};
    return names[state];
}

/* ---- one run ---- */

static void held_free(struct harness_load *l)
{
    while (l->held) {
        struct held *next = l->held->next;
        free(l->held);
        l->held = next;
    }
    l->held_end = &l->held;
    l->held_bytes = 0;
}

static void load_free(struct harness_load *l)
{
    struct harness_load **p = &l->h->loads;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    replay_cancel(&l->replay);
    held_free(l);
    if (l->follow)
        l->follow->load = NULL;
    br_buf_free(&l->prompt_end);
    free(l->prompt);
    free(l->id);
    free(l);
}

static void load_send(struct harness_load *l, const struct gw_event *e)
{
    l->row = e->row;
    if ((int64_t)e->seq > (e->own ? l->after_own : l->after) &&
        harness_send_event(l->h, l->session, e) > 0)
        l->full = true;
}

void harness_load_hold(struct harness_load *l, const struct gw_event *e)
{
    if (l->overflow || l->held_bytes + e->n > HELD_MAX) {
        l->overflow = true;
        held_free(l);
        return;
    }
    struct held *k = malloc(sizeof(*k) + e->n);
    br_require(k);
    memcpy(k->bytes, e->bytes, e->n);
    k->e = *e;
    k->e.bytes = k->bytes;
    k->next = NULL;
    *l->held_end = k;
    l->held_end = &k->next;
    l->held_bytes += e->n;
}

/* It has ended while its record was read, to the end of which the reading goes now. */
void harness_load_ended(struct harness_load *l, enum gw_state state)
{
    snprintf(l->status, sizeof(l->status), "%s", harness_status(state));
    l->follow = NULL;
}

void harness_load_answer(struct harness_load *l, char *id, int code, struct br_buf *b)
{
    l->prompt = id;
    l->prompt_code = code;
    l->prompt_end = *b;
    br_buf_init(b, 0);
}

static void answer_prompt(struct harness_load *l)
{
    if (l->prompt)
        harness_prompt_end(l->h, l->prompt, l->prompt_code, &l->prompt_end);
}

static void load_done(struct harness_load *l)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(512);
    struct gw_session *s = l->follow ? l->follow->sink.session_ : NULL;
    for (struct held *k = l->held; k; k = k->next)
        if (k->e.row > l->row)
            load_send(l, &k->e);
    /* the store may have been ahead of what is shown live: that is not shown again */
    if (s && l->follow->sink.from_ < l->row)
        l->follow->sink.from_ = l->row;
    br_buf_printf(&b, "{\"status\":");
    if (s)
        snprintf(l->status, sizeof(l->status), "%s", harness_status(session_state(s)));
    br_buf_put_json_str(&b, l->status, strlen(l->status));
    br_buf_printf(&b, ",\"live\":%s,\"owned\":%s}", s ? "true" : "false",
                  s && session_owner(s) ? "true" : "false");
    harness_reply(l->h, l->id, &b);
    answer_prompt(l);
    struct harness_follow *f = l->follow;
    load_free(l);
    if (f) /* it may have been left meanwhile */
        harness_follow_drop(f);
}

static void load_begin(struct harness_load *l);

/* It ends with an error. What was held is lost, so nothing may come behind it. */
static void load_failed(struct harness_load *l)
{
    struct harness_follow *f = l->follow;
    answer_prompt(l);
    load_free(l);
    if (f) {
        f->quiet = true;
        harness_follow_drop(f);
    }
}

/* Again, behind what was sent. A client that reads slowly causes this, so it counts as well. */
static void load_again(struct harness_load *l)
{
    if (conn_may_read(l->h->c)) {
        load_begin(l);
        return;
    }
    harness_error(l->h, l->id, HARNESS_RATE_LIMITED, TOO_MANY_READINGS);
    load_failed(l);
}

static void on_read(void *ctx, int code, const struct br_err *why)
{
    struct harness_load *l = ctx;
    bool lost = l->overflow, slow = code == -BR_E_STORE_FAILED && l->waited;
    l->replay = NULL;
    if (code == -BR_E_NOT_FOUND && l->follow) /* nothing of it is stored yet */
        code = 0;
    if (code < 0 && !slow) {
        harness_error(l->h, l->id, code == -BR_E_NOT_FOUND ? HARNESS_NO_SESSION : HARNESS_INTERNAL,
                      "%s", why ? why->text : br_code_name(code));
        load_failed(l);
    } else if (lost || slow) {
        l->overflow = false;
        if (!l->full)
            load_again(l);
    } else {
        load_done(l);
    }
}

static void on_read_row(void *ctx, const struct gw_run_row *row)
{
    struct harness_load *l = ctx;
    if (!l->status[0])
        snprintf(l->status, sizeof(l->status), "%s", row->status);
}

static void on_read_event(void *ctx, const struct gw_event *e)
{
    struct harness_load *l = ctx;
    if (e->row > l->row)
        load_send(l, e);
}

static bool on_read_room(void *ctx)
{
    struct harness_load *l = ctx;
    l->waited |= l->full;
    return !l->full;
}

static void load_begin(struct harness_load *l)
{
    static const struct gw_reader reader = {
        .row = on_read_row, .event = on_read_event, .done = on_read, .room = on_read_room};
    l->waited = false;
    l->replay = replay_begin(l->h->g, l->session, 0, "", "", &reader, l);
}

/* Follow it, if it lives: false if the request was answered. */
static bool load_follow(struct harness_load *l, struct gw_session *s)
{
    struct harness_follow *f = harness_follow_new(l->h, s);
    if (f->load || (f->prompt && !f->quiet)) {
        harness_error(l->h, l->id, HARNESS_REQUEST, "the events of '%s' come already", l->session);
        return false;
    }
    f->quiet = false;
    f->load = l;
    l->follow = f;
    return true;
}

static bool is_live(const struct gw_session *s)
{
    return s && (session_state(s) == GW_CREATED || session_state(s) == GW_RUNNING);
}

/* Canceled, or expired. */
static bool never_ran(const struct gw_session *s)
{
    return s && !is_live(s) && !session_has_run(s);
}

/* Before anything is done; false if the request was answered. */
static bool load_allowed(struct harness *h, const char *id, const char *session,
                         const struct gw_session *s)
{
    unsigned n = 0;
    for (const struct harness_load *k = h->loads; k; k = k->next)
        n++;
    bool stored = !never_ran(s) && !(is_live(s) && session_state(s) == GW_CREATED);
    if (n == LOADS_MAX)
        harness_error(h, id, HARNESS_REQUEST, "too many sessions are being read");
    else if (!session_is_id(session))
        harness_error(h, id, HARNESS_NO_SESSION, "no such session");
    else if (stored && !conn_may_read(h->c))
        harness_error(h, id, HARNESS_RATE_LIMITED, TOO_MANY_READINGS);
    else
        return true;
    return false;
}

static void load(struct harness *h, const char *id, const struct harness_args *a,
                 struct gw_session *s)
{
    struct harness_load *l = calloc(1, sizeof(*l));
    br_require(l);
    *l = (struct harness_load){.h = h,
                               .id = strdup(id),
                               .after = a->number[1],
                               .after_own = a->number[2],
                               .next = h->loads};
    br_require(l->id);
    l->held_end = &l->held;
    h->loads = l;
    snprintf(l->session, sizeof(l->session), "%s", a->text[0]);
    bool live = is_live(s);
    if (live && !load_follow(l, s))
        load_free(l);
    else if (live && session_state(s) == GW_CREATED)
        load_done(l);
    else if (never_ran(s)) { /* nothing was stored */
        snprintf(l->status, sizeof(l->status), "%s", harness_status(session_state(s)));
        load_done(l);
    } else
        load_begin(l);
}

void harness_do_load(struct harness *h, const char *id, const struct harness_args *a)
{
    struct gw_session *s = session_find(h->g, a->text[0]);
    if (load_allowed(h, id, a->text[0], s))
        load(h, id, a, s);
}

void harness_do_resume(struct harness *h, const char *id, const struct harness_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct gw_session *s = session_find(h->g, a->text[0]);
    if (!load_allowed(h, id, a->text[0], s))
        return;
    if (is_live(s) && session_adopt(s, h->c, &err) < 0)
        harness_error(h, id, HARNESS_FORBIDDEN, "%s", err.text);
    else
        load(h, id, a, s);
}

/* ---- the list ---- */

static void list_free(struct harness_list *l)
{
    struct harness_list **p = &l->h->lists;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    replay_cancel(&l->replay);
    br_buf_free(&l->out);
    br_buf_free(&l->known);
    free(l->id);
    free(l);
}

void harness_put_text(struct br_buf *b, const char *key, const char *text, size_t max)
{
    size_t n = strlen(text);
    br_buf_printf(b, ",\"%s\":", key);
    br_buf_put_json_str(b, text, n > max ? br_utf8_floor(text, max) : n);
}

static void put_time(struct br_buf *b, const char *key, uint64_t us)
{
    char at[32];
    br_time_iso(at, us);
    br_buf_printf(b, ",\"%s\":\"%s\"", key, at);
}

static void on_list_row(void *ctx, const struct gw_run_row *row)
{
    struct harness_list *l = ctx;
    struct br_buf *b = &l->out;
    const struct gw_session *s = session_find(l->h->g, row->run_id);
    bool live = s && session_state(s) == GW_RUNNING;
    unsigned asks = 0;
    if (l->rows == l->limit) {
        l->more = true;
        return;
    }
    if (live)
        (void)session_asks(s, &asks);
    br_buf_printf(b, "%s{\"sessionId\":", l->rows++ ? "," : "");
    br_buf_put_json_str(b, row->run_id, strlen(row->run_id));
    harness_put_text(b, "status", live ? "running" : row->status, sizeof(row->status));
    harness_put_text(b, "workspace", row->workspace, BR_PATH_MAX);
    harness_put_text(b, "model", row->model, BR_NAME_MAX);
    harness_put_text(b, "goal", row->goal, GOAL_SHOWN_MAX);
    put_time(b, "startedAt", row->started_us);
    if (row->ended_us && !live)
        put_time(b, "endedAt", row->ended_us);
    br_buf_printf(b, ",\"events\":%llu,\"live\":%s,\"owned\":%s,\"asks\":%u}",
                  (unsigned long long)row->events, live ? "true" : "false",
                  live && session_owner(s) ? "true" : "false", asks);
    br_buf_put(&l->known, row->run_id, strlen(row->run_id) + 1);
}

static bool is_known(const struct harness_list *l, const char *id)
{
    for (size_t i = 0; i < l->known.len; i += strlen((char *)l->known.data + i) + 1)
        if (strcmp((char *)l->known.data + i, id) == 0)
            return true;
    return false;
}

/* Oldest first; the list is newest first. */
static void put_unstored(void *ctx, struct gw_session *s)
{
    struct harness_list *l = ctx;
    struct gw_about about;
    session_about(s, &about);
    if (about.rows || is_known(l, session_id(s))) /* it is on this page, or on a later one */
        return;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(l->out.max);
    harness_put_session(&b, s);
    br_buf_put(&b, ",", l->rows++ ? 1 : 0);
    br_buf_put(&b, l->out.data, l->out.len);
    struct br_buf old = l->out;
    l->out = b;
    b = old;
}

static void on_list_done(void *ctx, int code, const struct br_err *why)
{
    struct harness_list *l = ctx;
    l->replay = NULL;
    if (code < 0) {
        harness_error(l->h, l->id, code == -BR_E_NOT_FOUND ? HARNESS_NO_SESSION : HARNESS_INTERNAL,
                      "%s", why ? why->text : br_code_name(code));
        list_free(l);
        return;
    }
    if (l->first)
        sessions_each(l->h->g, put_unstored, l);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(l->out.max);
    br_buf_printf(&b, "{\"sessions\":[");
    br_buf_put(&b, l->out.data, l->out.len);
    br_buf_printf(&b, "],\"more\":%s}", l->more ? "true" : "false");
    b.failed |= l->out.failed;
    harness_reply(l->h, l->id, &b);
    list_free(l);
}

void harness_do_list(struct harness *h, const char *id, const struct harness_args *a)
{
    static const struct gw_reader reader = {.row = on_list_row, .done = on_list_done};
    const char *before = a->text[1] ? a->text[1] : "", *words = a->text[2] ? a->text[2] : "";
    if (h->lists) { /* one at a time: each starts a program */
        harness_error(h, id, HARNESS_REQUEST, "the last list is not complete yet");
        return;
    }
    if (!conn_may_read(h->c)) {
        harness_error(h, id, HARNESS_RATE_LIMITED, TOO_MANY_READINGS);
        return;
    }
    struct harness_list *l = calloc(1, sizeof(*l));
    br_require(l);
    *l = (struct harness_list){.h = h,
                               .id = strdup(id),
                               .limit = a->number[0] ? (uint32_t)a->number[0] : LIST_LIMIT,
                               .first = !before[0] && !words[0],
                               .next = h->lists};
    br_require(l->id);
    br_buf_init(&l->out, 16u << 20);
    br_buf_init(&l->known, 1u << 20);
    h->lists = l;
    l->replay = replay_begin(h->g, "", l->limit + 1, before, words, &reader, l);
}

/* ---- the connection ---- */

void harness_load_closed(struct harness *h)
{
    while (h->loads)
        load_free(h->loads);
    while (h->lists)
        list_free(h->lists);
}

void harness_load_writable(struct harness *h)
{
    struct harness_load *next;
    for (struct harness_load *l = h->loads; l; l = next) {
        next = l->next;
        if (!l->full)
            continue;
        l->full = false;
        if (l->replay)
            replay_more(l->replay);
        else
            load_again(l);
    }
}
