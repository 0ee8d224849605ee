/*
 * The sessions of the gateway: each is one run of bridled's. What they may do is decided there
 * (GATE_CHECK, GATE_RUN); here is who owns them, who follows them, and in which state they are. A
 * session goes from created to running before anything is awaited, and ends when both was heard:
 * that its record is complete and that its sandbox is gone.
 *
 * An ended session is kept as long as its owner's connection or a follower is there, so that a
 * second prompt or a late answer hears what has become of it. One thread; called by the protocols
 * and by main.c's table of what bridled says.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/session_priv.h"

static struct sessions *sessions_of(struct gateway *g)
{
    void **slot = gw_sessions_slot(g);
    if (!*slot) {
        struct sessions *all = calloc(1, sizeof(*all));
        br_require(all);
        *slot = all;
    }
    return *slot;
}

static struct gw_session **bucket_of(struct sessions *all, const char *id)
{
    uint32_t h = 2166136261u; /* FNV-1a; ids are bridled's */
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * 16777619u;
    return &all->buckets[h % SESSION_BUCKETS];
}

struct gw_session *session_find(struct gateway *g, const char *id)
{
    struct gw_session *s = *bucket_of(sessions_of(g), id);
    while (s && strcmp(s->id, id) != 0)
        s = s->bucket;
    return s;
}

/* ---- what is known of one ---- */

const char *session_id(const struct gw_session *s)
{
    return s->id;
}

enum gw_state session_state(const struct gw_session *s)
{
    return s->state;
}

struct conn *session_owner(const struct gw_session *s)
{
    return s->owner;
}

const struct gw_result *session_result(const struct gw_session *s)
{
    return &s->result;
}

bool session_broken(const struct gw_session *s)
{
    return s->broken;
}

bool session_stopped(const struct gw_session *s)
{
    return s->stopped;
}

bool session_has_run(const struct gw_session *s)
{
    return s->fed;
}

const struct gw_ask *session_asks(const struct gw_session *s, unsigned *n)
{
    *n = s->nasks;
    return s->asks;
}

void session_about(const struct gw_session *s, struct gw_about *about)
{
    *about = (struct gw_about){.workspace = s->workspace ? s->workspace : "",
                               .model = s->model ? s->model : "",
                               .goal = s->goal ? s->goal : "",
                               .started_us = s->started_us,
                               .rows = s->row,
                               .seq = s->seq,
                               .own = s->own};
}

static bool is_live(const struct gw_session *s)
{
    return s->state == GW_CREATED || s->state == GW_RUNNING;
}

/* ---- watching the list ---- */

void sessions_watch(struct gateway *g, struct gw_watch *w)
{
    struct sessions *all = sessions_of(g);
    w->gateway_ = g;
    w->next_ = all->watches;
    all->watches = w;
}

void sessions_unwatch(struct gw_watch *w)
{
    struct sessions *all = w->gateway_ ? sessions_of(w->gateway_) : NULL;
    for (struct gw_watch **p = all ? &all->watches : NULL; p && *p; p = &(*p)->next_) {
        if (*p != w)
            continue;
        if (all->next_watch == w)
            all->next_watch = w->next_;
        *p = w->next_;
        break;
    }
    w->gateway_ = NULL;
}

void session_changed(struct gw_session *s)
{
    struct sessions *all = sessions_of(s->g);
    for (struct gw_watch *w = all->watches; w; w = all->next_watch) {
        all->next_watch = w->next_;
        w->changed(w, s);
    }
    all->next_watch = NULL;
}

void sessions_each(struct gateway *g, void (*fn)(void *ctx, struct gw_session *s), void *ctx)
{
    struct gw_session *next;
    for (struct gw_session *s = sessions_of(g)->first; s; s = next) {
        next = s->next;
        if (is_live(s))
            fn(ctx, s);
    }
}

/* ---- its life ---- */

static void session_free(struct gw_session *s)
{
    struct sessions *all = sessions_of(s->g);
    for (struct gw_session **p = bucket_of(all, s->id); *p; p = &(*p)->bucket) {
        if (*p != s)
            continue;
        *p = s->bucket;
        break;
    }
    *(s->prev ? &s->prev->next : &all->first) = s->next;
    *(s->next ? &s->next->prev : &all->last) = s->prev;
    gw_timer_cancel(s->g, &s->timer);
    session_unfeed(s);
    session_unattach(s);
    free(s->workspace);
    free(s->model);
    free(s->goal);
    free(s->asks);
    free(s->resolved);
    br_buf_free(&s->text);
    free(s);
}

static void free_if_forgotten(struct gw_session *s)
{
    if (!is_live(s) && !s->owner && !s->sinks && !s->dispatching)
        session_free(s);
}

static void tell(struct gw_session *s, enum br_msg_type type, struct br_out *o)
{
    struct br_err err = {.code = BR_OK};
    if (gw_to_bridled(s->g, type, 0, o, &err) < 0)
        gw_log(s->g, BR_LOG_ERROR, "bridled.unheard", "session", s->id, "what", br_msg_name(type),
               "error", err.text, NULL);
}

static void tell_forget(struct gw_session *s)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, s->id);
    tell(s, BR_MSG_GATE_FORGET, &o);
}

/* bridled keeps the first cause that it is told. */
static void tell_cancel(struct gw_session *s, unsigned how, enum br_code code, const char *why)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, s->id);
    br_buf_put_u8(&o.buf, (uint8_t)how);
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, why);
    tell(s, BR_MSG_GATE_CANCEL, &o);
}

static const char *state_name(enum gw_state state)
{
    static const char *const names[] = {"created", "running", "completed", "failed", "canceled"};
    return names[state];
}

/* It is over, in this state: who follows hears of it. Frees it if nobody is left. */
static void session_end(struct gw_session *s, enum gw_state state)
{
    struct gw_counters *n = gw_counters(s->g);
    if (s->state == GW_RUNNING)
        n->sessions_running--;
    n->sessions_completed += state == GW_COMPLETED;
    n->sessions_failed += state == GW_FAILED;
    n->sessions_canceled += state == GW_CANCELED;
    s->state = state;
    s->result.state = state;
    s->result.why = s->why;
    bool whole = !s->text.failed && br_buf_cstr(&s->text);
    s->result.text = whole ? (char *)s->text.data : "";
    s->result.ntext = whole ? s->text.len : 0;
    gw_timer_cancel(s->g, &s->timer);
    session_unfeed(s);
    session_unattach(s);
    session_asks_end(s);
    gw_log(s->g, BR_LOG_INFO, "session.ended", "session", s->id, "status", state_name(state),
           "code", br_code_name((int)s->result.code), NULL);
    if (s->fed)
        otlp_ended(s->g, s);
    session_changed(s);
    s->dispatching++;
    for (struct gw_sink *k = s->sinks; k; k = s->next_sink) {
        s->next_sink = k->next_;
        k->ended(k, s);
    }
    s->dispatching--;
    br_buf_free(&s->text);
    s->result.text = "";
    s->result.ntext = 0;
    free_if_forgotten(s);
}

void session_check_end(struct gw_session *s)
{
    if (s->state != GW_RUNNING || !s->over || (s->audit.fd >= 0 && !s->broken))
        return;
    if (s->fed && !s->stopped)
        s->broken = true; /* the record broke off */
    bool completed = strcmp(s->result.stopped, "completed") == 0 && !s->broken;
    bool canceled = s->fed ? strcmp(s->result.stopped, "canceled") == 0 : s->canceling;
    session_end(s, completed                               ? GW_COMPLETED
                   : canceled && !s->broken && !s->limited ? GW_CANCELED
                                                           : GW_FAILED);
}

void session_break(struct gw_session *s, enum br_code code, const char *why)
{
    if (s->broken || s->state != GW_RUNNING)
        return;
    gw_log(s->g, BR_LOG_ERROR, "session.broken", "session", s->id, "why", why, NULL);
    s->broken = true;
    snprintf(s->why, sizeof(s->why), "%s", why);
    session_unfeed(s);
    if (!s->over)
        tell_cancel(s, 1, code, why);
}

static void on_unprompted(void *ctx)
{
    struct gw_session *s = ctx;
    gw_log(s->g, BR_LOG_INFO, "session.expired", "session", s->id, NULL);
    tell_forget(s);
    session_end(s, GW_CANCELED);
}

static void on_not_canceled(void *ctx)
{
    struct gw_session *s = ctx;
    tell_cancel(s, 1, BR_E_CANCELED, "the run did not end in time after it was canceled");
}

/* ---- being made ---- */

static void check_failed(struct check *c, int code, const char *why)
{
    struct br_err err;
    br_err_set(&err, (enum br_code) - code, "%s", why);
    if (c->owner) /* else who asked has gone, and ctx with it */
        c->done(c->ctx, NULL, code, &err);
    free(c);
}

void session_create(struct gateway *g, struct conn *owner, const char *workspace,
                    const char *task_id, const char *model, gw_new_fn *done, void *ctx)
{
    struct sessions *all = sessions_of(g);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_err err = {.code = BR_OK};
    struct check *c = calloc(1, sizeof(*c));
    br_require(c);
    *c = (struct check){.id = ++all->last_check, .owner = owner, .done = done, .ctx = ctx};
    if (gw_draining(g)) {
        check_failed(c, -BR_E_CANCELED, "no session was created: the service is going down");
        return;
    }
    if (strlen(workspace) >= BR_PATH_MAX || (model && strlen(model) >= BR_NAME_MAX)) {
        check_failed(c, -BR_E_INVALID_WORKSPACE,
                     "no session was created: the workspace or the model is a name of nothing");
        return;
    }
    br_buf_put_str(&o.buf, workspace);
    br_buf_put_str(&o.buf, task_id ? task_id : "");
    br_buf_put_str(&o.buf, model ? model : "");
    br_buf_put_str(&o.buf, conn_who(owner)->name);
    c->next = all->checks;
    all->checks = c;
    int r = gw_to_bridled(g, BR_MSG_GATE_CHECK, c->id, &o, &err);
    if (r < 0) {
        all->checks = c->next;
        check_failed(c, r, err.text);
    }
}

static struct gw_session *session_new(struct gateway *g, struct conn *owner, const char *id)
{
    struct sessions *all = sessions_of(g);
    struct gw_session *s = calloc(1, sizeof(*s)), **bucket = bucket_of(all, id);
    br_require(s);
    s->g = g;
    s->owner = owner;
    snprintf(s->id, sizeof(s->id), "%s", id);
    s->started_us = br_now_wall_us();
    s->audit.fd = s->session.fd = -1;
    s->answers_end = &s->answers;
    s->result.text = s->result.why = "";
    br_buf_init(&s->text, SESSION_TEXT_MAX);
    s->bucket = *bucket;
    *bucket = s;
    s->prev = all->last;
    *(all->last ? &all->last->next : &all->first) = s;
    all->last = s;
    return s;
}

static struct check *check_take(struct sessions *all, uint64_t id)
{
    for (struct check **p = &all->checks; *p; p = &(*p)->next) {
        struct check *c = *p;
        if (c->id != id)
            continue;
        *p = c->next;
        return c;
    }
    return NULL;
}

bool session_is_id(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    return n > 0 && n < BR_ID_MAX && !id[n];
}

int session_on_checked(struct gateway *g, struct br_msg *m, struct br_err *err)
{
    char text[BR_ERR_TEXT_MAX], id[BR_ID_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    br_rd_str(&m->rd, id, sizeof(id));
    BR_CLEANUP_FREE char *workspace = br_rd_strdup(&m->rd, BR_PATH_MAX),
                         *model = br_rd_strdup(&m->rd, BR_NAME_MAX);
    (void)br_rd_u64(&m->rd); /* the manifest's budgets: bridled clamps to them */
    (void)br_rd_u64(&m->rd);
    struct check *c = br_rd_done(&m->rd) < 0 ? NULL : check_take(sessions_of(g), m->id);
    if (!c || (code == 0 && (!session_is_id(id) || session_find(g, id)))) {
        free(c);
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed GATE_CHECKED");
    }
    if (code) {
        check_failed(c, code < BR_CODE_COUNT_ ? -(int)code : -BR_E_INTERNAL, text);
        return 0;
    }
    struct gw_session *s = session_new(g, c->owner, id);
    s->workspace = br_steal_ptr(&workspace);
    s->model = br_steal_ptr(&model);
    if (!c->owner) { /* who asked has gone */
        tell_forget(s);
        free(c);
        session_free(s);
        return 0;
    }
    gw_counters(g)->sessions_created++;
    char connection[24];
    snprintf(connection, sizeof(connection), "%llu", (unsigned long long)conn_id(s->owner));
    gw_log(g, BR_LOG_INFO, "session.created", "session", s->id, "connection", connection, "who",
           conn_who(s->owner)->name, NULL);
    gw_timer_set(g, &s->timer, (uint64_t)gw_settings(g)->unprompted_seconds * 1000000u,
                 on_unprompted, s);
    session_changed(s);
    c->done(c->ctx, s, 0, NULL);
    free(c);
    return 0;
}

/* ---- running ---- */

int session_run(struct gw_session *s, const char *content, size_t n, uint64_t max_tokens,
                uint64_t max_calls, struct br_err *err)
{
    if (s->state != GW_CREATED)
        return br_err_set(err, BR_E_IN_USE, "the session '%s' has run, runs, or was canceled",
                          s->id);
    if (gw_draining(s->g))
        return br_err_set(err, BR_E_CANCELED,
                          "the session '%s' was not started: the service is going down", s->id);
    s->state = GW_RUNNING;
    gw_counters(s->g)->sessions_running++;
    gw_timer_cancel(s->g, &s->timer);
    s->goal = strndup(content, br_utf8_floor(content, n < 200 ? n : 200));
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, s->id);
    br_buf_put_u64(&o.buf, max_tokens);
    br_buf_put_u64(&o.buf, max_calls);
    br_buf_put_u8(&o.buf, 1);
    br_out_blob(&o, content, n);
    int r = gw_to_bridled(s->g, BR_MSG_GATE_RUN, 0, &o, err);
    if (r < 0) { /* it cannot run any more, and bridled need not remember it */
        tell_forget(s);
        session_end(s, GW_FAILED);
        return r;
    }
    session_changed(s);
    return 0;
}

static struct gw_session *running(struct gateway *g, struct br_msg *m)
{
    char id[BR_ID_MAX];
    br_rd_str(&m->rd, id, sizeof(id));
    struct gw_session *s = m->rd.failed ? NULL : session_find(g, id);
    return s && s->state == GW_RUNNING && !s->over ? s : NULL;
}

int session_on_started(struct gateway *g, struct br_msg *m, struct br_err *err)
{
    struct gw_session *s = running(g, m);
    char model[BR_NAME_MAX];
    br_rd_str(&m->rd, model, sizeof(model));
    BR_CLEANUP_FD int session = br_msg_take_fd(m), audit = br_msg_take_fd(m);
    if (br_rd_done(&m->rd) < 0 || !s || s->fed || session < 0 || audit < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed GATE_STARTED");
    free(s->model);
    s->model = strdup(model);
    if (session_attach(s, br_steal_fd(&session)) < 0 || session_feed(s, br_steal_fd(&audit)) < 0)
        session_break(s, BR_E_INTERNAL, "the run's channels could not be watched");
    return 0;
}

int session_on_ended(struct gateway *g, struct br_msg *m, struct br_err *err)
{
    struct gw_session *s = running(g, m);
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || !s)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed GATE_ENDED");
    s->over = true;
    s->result.code = code < BR_CODE_COUNT_ ? code : BR_E_INTERNAL;
    if (!s->broken)
        snprintf(s->why, sizeof(s->why), "%s", text);
    session_check_end(s);
    return 0;
}

bool session_cancel(struct gw_session *s, const char *why)
{
    if (!is_live(s))
        return false;
    gw_log(s->g, BR_LOG_INFO, "session.canceled", "session", s->id, "why", why, NULL);
    if (s->state == GW_CREATED) {
        tell_forget(s);
        session_end(s, GW_CANCELED);
        return true;
    }
    if (!s->canceling && !s->over) {
        s->canceling = true;
        tell_cancel(s, 0, BR_E_CANCELED, why);
        gw_timer_set(s->g, &s->timer, SESSION_CANCEL_US, on_not_canceled, s);
    }
    return true;
}

/* ---- who follows ---- */

void session_follow(struct gw_session *s, struct gw_sink *k)
{
    struct gw_sink **p = &s->sinks;
    while (*p)
        p = &(*p)->next_;
    k->next_ = NULL;
    k->session_ = s;
    k->from_ = s->row;
    *p = k;
}

void session_unfollow(struct gw_sink *k)
{
    struct gw_session *s = k->session_;
    for (struct gw_sink **p = s ? &s->sinks : NULL; p && *p; p = &(*p)->next_) {
        if (*p != k)
            continue;
        if (s->next_sink == k)
            s->next_sink = k->next_;
        *p = k->next_;
        break;
    }
    k->session_ = NULL;
    k->next_ = NULL;
    if (s)
        free_if_forgotten(s);
}

/* ---- whose it is ---- */

int session_detach(struct gw_session *s, struct br_err *err)
{
    if (!gw_settings(s->g)->detach)
        return br_err_set(err, BR_E_DENIED,
                          "the session '%s' was not detached: the service does not allow it "
                          "('detach' in bridle.lua)",
                          s->id);
    if (!is_live(s))
        return br_err_set(err, BR_E_IN_USE, "the session '%s' was not detached: it has ended",
                          s->id);
    s->detached = true;
    s->owner = NULL;
    session_pause(s, false);
    session_changed(s);
    return 0;
}

int session_adopt(struct gw_session *s, struct conn *c, struct br_err *err)
{
    if (s->owner && s->owner != c)
        return br_err_set(err, BR_E_IN_USE, "the session '%s' belongs to another connection",
                          s->id);
    s->owner = c;
    s->detached = false;
    session_changed(s);
    return 0;
}

void session_release(struct gw_session *s, const char *why)
{
    bool runs = s->state == GW_RUNNING;
    s->owner = NULL;
    session_pause(s, false);
    if (!session_cancel(s, why))
        free_if_forgotten(s);
    else if (runs)
        session_changed(s);
}

void sessions_disown(struct gateway *g, struct conn *c)
{
    struct sessions *all = sessions_of(g);
    for (struct check *k = all->checks; k; k = k->next)
        if (k->owner == c)
            k->owner = NULL;
    struct gw_session *next;
    for (struct gw_session *s = all->first; s; s = next) {
        next = s->next;
        if (s->owner == c)
            session_release(s, "the client disconnected");
    }
}
