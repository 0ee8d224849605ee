/*
 * The played world of the gateway's tests. Messages between gateway and bridled cross real
 * channels, so that both tables of what may come are used.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "gateway/session_priv.h"
#include "gateway/test_world.h"

static struct gateway *world; /* for the clock */

/* ---- connections ---- */

struct gateway *conn_gateway(struct conn *c)
{
    (void)c;
    return world;
}

const struct gw_who *conn_who(const struct conn *c)
{
    return &c->who;
}

uint64_t conn_id(const struct conn *c)
{
    return c->id;
}

void conn_set_state(struct conn *c, void *state)
{
    c->state = state;
}

void *conn_state(struct conn *c)
{
    return c->state;
}

bool conn_may_ask(struct conn *c)
{
    return !c->refuse;
}

bool conn_may_read(struct conn *c)
{
    return !c->refuse_reading;
}

int conn_send(struct conn *c, const struct gw_piece *pieces, unsigned n)
{
    assert_true(c->used);
    if (c->closing)
        return -BR_E_PEER_GONE;
    if (c->nsent == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 64;
        c->sent = reallocarray(c->sent, c->cap, sizeof(*c->sent));
        assert_non_null(c->sent);
    }
    struct br_buf *b = &c->sent[c->nsent++];
    br_buf_init(b, 32u << 20);
    for (unsigned i = 0; i < n; i++)
        br_buf_put(b, pieces[i].p, pieces[i].n);
    assert_non_null(br_buf_cstr(b));
    return c->room && c->nsent - c->read >= c->room;
}

void conn_close(struct conn *c, unsigned code, const char *reason)
{
    (void)reason;
    c->closing = true;
    if (!c->close_code)
        c->close_code = code;
}

struct conn *world_connect(struct gateway *g, const struct gw_protocol *p, const char *name,
                           enum br_access access)
{
    struct conn *c = g->conns;
    while (c < g->conns + WORLD_CONNS && c->used)
        c++;
    assert_true(c < g->conns + WORLD_CONNS);
    *c = (struct conn){.used = true, .id = ++g->nconns, .protocol = p, .who = {.access = access}};
    snprintf(c->who.name, sizeof(c->who.name), "%s", name);
    p->open(c);
    return c;
}

void world_disconnect(struct gateway *g, struct conn *c)
{
    (void)g;
    c->closing = true;
    c->protocol->closed(c);
    for (unsigned i = 0; i < c->nsent; i++)
        br_buf_free(&c->sent[i]);
    free(c->sent);
    c->used = false;
}

void world_say(struct gateway *g, struct conn *c, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    assert_true(n >= 0);
    char *exact = malloc((size_t)n + 1);
    memcpy(exact, text, (size_t)n); /* not terminated: the sanitizer sees a byte too far */
    exact = realloc(exact, (size_t)n ? (size_t)n : 1);
    c->protocol->message(c, exact, (size_t)n);
    free(exact);
    free(text);
    world_pump(g);
}

const char *world_heard(struct conn *c)
{
    return c->read < c->nsent ? (char *)c->sent[c->read++].data : NULL;
}

json_t *world_heard_json(struct conn *c)
{
    const char *text = world_heard(c);
    json_error_t why;
    json_t *v = text ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (text && !v)
        fail_msg("'%s' is not JSON: %s", text, why.text);
    return v;
}

/* ---- timers and channels: poll.c, played ---- */

#define TIMERS 128u
#define CHANS 128u
static struct gw_timer *timers[TIMERS];
static struct {
    struct br_chan *c;
    br_chan_end_fn *on_end;
    void *ctx;
} chans[CHANS];

void gw_timer_cancel(struct gateway *g, struct gw_timer *t)
{
    (void)g;
    t->due_us = 0;
    for (unsigned i = 0; i < TIMERS; i++)
        if (timers[i] == t)
            timers[i] = NULL;
}

void gw_timer_set(struct gateway *g, struct gw_timer *t, uint64_t after_us, void (*fn)(void *ctx),
                  void *ctx)
{
    gw_timer_cancel(g, t);
    t->fn = fn;
    t->ctx = ctx;
    t->due_us = g->now_us + after_us;
    unsigned i = 0;
    while (i < TIMERS && timers[i])
        i++;
    assert_true(i < TIMERS);
    timers[i] = t;
}

int gw_watch_chan(struct gateway *g, struct br_chan *c, br_chan_end_fn *on_end, void *ctx)
{
    (void)g;
    unsigned i = 0;
    while (i < CHANS && chans[i].c)
        i++;
    assert_true(i < CHANS);
    chans[i].c = c;
    chans[i].on_end = on_end;
    chans[i].ctx = ctx;
    return 0;
}

void gw_unwatch_chan(struct gateway *g, struct br_chan *c)
{
    (void)g;
    for (unsigned i = 0; i < CHANS; i++)
        if (chans[i].c == c)
            chans[i].c = NULL;
}

static bool ready(int fd)
{
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || errno == ECONNRESET;
}

static bool dispatch_chan(struct gateway *g, unsigned i)
{
    struct br_chan *c = chans[i].c;
    struct br_err err = {.code = BR_OK};
    if (!c || !ready(c->fd))
        return false;
    int r = br_chan_dispatch(c, &err);
    if (r < 0 && chans[i].c == c) {
        br_chan_end_fn *fn = chans[i].on_end;
        void *ctx = chans[i].ctx;
        gw_unwatch_chan(g, c);
        fn(c, r, ctx, &err);
    }
    return true;
}

static bool pump_chans(struct gateway *g)
{
    bool any = false;
    for (unsigned i = 0; i < CHANS; i++)
        any |= dispatch_chan(g, i);
    return any;
}

static bool pump_runs(struct gateway *g)
{
    bool any = false;
    for (unsigned i = 0; i < g->nruns; i++) {
        struct run *r = &g->runs[i];
        if (r->session.fd < 0 || !ready(r->session.fd))
            continue;
        any = true;
        if (br_chan_dispatch(&r->session, NULL) < 0)
            br_chan_close(&r->session);
    }
    return any;
}

void world_pump(struct gateway *g)
{
    struct br_err err = {.code = BR_OK};
    bool any = !g->manual;
    while (any) {
        any = false;
        while (ready(g->down.fd)) {
            any = true;
            if (br_chan_dispatch(&g->down, &err) < 0)
                fail_msg("bridled cannot read what the gateway says: %s", err.text);
        }
        while (ready(g->up.fd)) {
            any = true;
            if (br_chan_dispatch(&g->up, &err) < 0)
                fail_msg("the gateway cannot read what bridled says: %s", err.text);
        }
        any |= pump_chans(g) | pump_runs(g);
    }
}

/* The gateway's channel to a peer of this name, of the only run that there is. */
static int chan_of(const char *peer)
{
    for (int i = 0; i < (int)CHANS; i++)
        if (chans[i].c && strcmp(chans[i].c->peer, peer) == 0)
            return i;
    return -1;
}

static int way_fd(struct gateway *g, enum world_way way)
{
    int i = way == WORLD_FROM_SESSION ? chan_of("session")
            : way == WORLD_FROM_AUDIT ? chan_of("audit")
                                      : -1;
    return way == WORLD_TO_BRIDLED     ? g->down.fd
           : way == WORLD_FROM_BRIDLED ? g->up.fd
           : way == WORLD_TO_SESSION   ? g->runs[0].session.fd
           : i >= 0                    ? chans[i].c->fd
                                       : -1;
}

bool world_waits(struct gateway *g, enum world_way way)
{
    int fd = way_fd(g, way);
    return fd >= 0 && ready(fd);
}

bool world_step(struct gateway *g, enum world_way way)
{
    struct run *r = &g->runs[0];
    if (!world_waits(g, way))
        return false;
    switch (way) {
    case WORLD_TO_BRIDLED:
        assert_int_equal(br_chan_dispatch(&g->down, NULL), 0);
        break;
    case WORLD_FROM_BRIDLED:
        assert_int_equal(br_chan_dispatch(&g->up, NULL), 0);
        break;
    case WORLD_TO_SESSION:
        if (br_chan_dispatch(&r->session, NULL) < 0)
            br_chan_close(&r->session);
        break;
    default:
        (void)dispatch_chan(g, (unsigned)chan_of(way == WORLD_FROM_SESSION ? "session" : "audit"));
    }
    return true;
}

void world_wait(struct gateway *g, uint64_t us)
{
    g->now_us += us;
    for (unsigned i = 0; i < TIMERS; i++) {
        struct gw_timer *t = timers[i];
        if (!t || t->due_us > g->now_us)
            continue;
        gw_timer_cancel(g, t);
        t->fn(t->ctx);
    }
    world_pump(g);
}

static uint64_t fake_now(void)
{
    return world ? world->now_us : 0;
}

static uint64_t fake_wall(void)
{
    return 1772359200000000; /* 2026-03-01T10:00:00Z */
}

/* ---- the gateway's main, played ---- */

const struct br_service *gw_settings(const struct gateway *g)
{
    return &g->settings;
}

struct gw_counters *gw_counters(struct gateway *g)
{
    return &g->counters;
}

int gw_to_bridled(struct gateway *g, enum br_msg_type type, uint64_t id, struct br_out *o,
                  struct br_err *err)
{
    int r = br_chan_send(&g->up, type, id, o, err);
    if (o)
        br_out_free(o);
    return r;
}

bool gw_draining(const struct gateway *g)
{
    return g->draining;
}

char *const *gw_models(const struct gateway *g, unsigned *n)
{
    static char one[] = "scripted", two[] = "m\"2";
    static char *const models[] = {one, two};
    (void)g;
    *n = 2;
    return models;
}

const char *gw_version(void)
{
    return "0.1.0";
}

void gw_log(struct gateway *g, enum br_log_level level, const char *event, ...)
{
    (void)level, (void)event;
    g->logs++;
}

void **gw_sessions_slot(struct gateway *g)
{
    return &g->sessions;
}

void **gw_replays_slot(struct gateway *g)
{
    return &g->replays;
}

void otlp_event(struct gateway *g, struct gw_session *s, const struct gw_event *e)
{
    (void)g, (void)s, (void)e;
}

void otlp_ended(struct gateway *g, struct gw_session *s)
{
    (void)s;
    g->otlp_ended++;
}

/* ---- what bridled hears ---- */

static int bad(const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "malformed %s", br_msg_name(m->type));
}

struct run *world_run(struct gateway *g, const char *id)
{
    for (unsigned i = 0; i < g->nruns; i++)
        if (strcmp(g->runs[i].id, id) == 0)
            return &g->runs[i];
    return NULL;
}

void world_checked(struct gateway *g, uint64_t call, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    char id[BR_ID_MAX] = "";
    if (!code) {
        assert_true(g->nruns < WORLD_RUNS);
        struct run *r = &g->runs[g->nruns++];
        snprintf(id, sizeof(id), "run_%u", g->nruns);
        *r = (struct run){.audit = -1, .session = {.fd = -1}};
        strcpy(r->id, id);
    }
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, text);
    br_buf_put_str(&o.buf, id);
    br_buf_put_str(&o.buf, "/srv/work/a");
    br_buf_put_str(&o.buf, "scripted");
    br_buf_put_u64(&o.buf, 1000);
    br_buf_put_u64(&o.buf, 10);
    assert_int_equal(br_chan_send(&g->down, BR_MSG_GATE_CHECKED, call, &o, NULL), 0);
}

static int on_check(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    (void)c;
    br_rd_str(&m->rd, g->last_workspace, sizeof(g->last_workspace));
    br_rd_str(&m->rd, g->last_task, sizeof(g->last_task));
    br_rd_str(&m->rd, g->last_model, sizeof(g->last_model));
    br_rd_str(&m->rd, g->last_who, sizeof(g->last_who));
    if (br_rd_done(&m->rd) < 0)
        return bad(m, err);
    if (g->hold_checks)
        g->held[g->nheld++] = m->id;
    else
        world_checked(g, m->id, g->check_code, g->check_code ? "it may not" : "");
    return 0;
}

static struct run *named(struct gateway *g, struct br_msg *m)
{
    char id[BR_ID_MAX];
    br_rd_str(&m->rd, id, sizeof(id));
    return m->rd.failed ? NULL : world_run(g, id);
}

static int on_forget(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = named(ctx, m);
    (void)c;
    if (br_rd_done(&m->rd) < 0 || !r || r->forgotten || r->asked)
        return bad(m, err);
    r->forgotten = true;
    return 0;
}

static int on_run(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    struct run *r = named(g, m);
    BR_CLEANUP_BUF struct br_buf content = BR_BUF_INIT(0);
    (void)c;
    if (!r || r->forgotten || r->asked) /* a session runs once */
        return bad(m, err);
    r->asked = true;
    r->max_tokens = br_rd_u64(&m->rd);
    r->max_calls = br_rd_u64(&m->rd);
    if (br_rd_u8(&m->rd) != 1 || br_msg_blob(m, BR_GOAL_MAX, &content, err) < 0 ||
        br_rd_done(&m->rd) < 0)
        return bad(m, err);
    r->content = strdup(br_buf_cstr(&content));
    if (!g->hold_runs)
        world_start(g, r);
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = named(ctx, m);
    uint8_t how = br_rd_u8(&m->rd);
    uint32_t code = br_rd_u32(&m->rd);
    char why[BR_ERR_TEXT_MAX];
    br_rd_str(&m->rd, why, sizeof(why));
    (void)c;
    if (br_rd_done(&m->rd) < 0 || !r || !r->asked || how > 1 || !code || !why[0])
        return bad(m, err);
    r->cancel_code = code;
    memcpy(r->cancel_why, why, sizeof(why));
    r->cancels += how == 0;
    r->kills += how == 1;
    return 0;
}

static int on_read(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    (void)c;
    br_rd_str(&m->rd, g->read_id, sizeof(g->read_id));
    uint64_t row = br_rd_u64(&m->rd);
    g->read_limit = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, g->read_before, sizeof(g->read_before));
    br_rd_str(&m->rd, g->read_words, sizeof(g->read_words));
    if (g->read_call) {
        assert_true(g->nmissed < BR_ARRAY_LEN(g->missed));
        g->missed[g->nmissed++] = g->read_call;
    }
    g->read_call = m->id;
    return br_rd_done(&m->rd) < 0 || row ? bad(m, err) : 0;
}

static const struct br_msg_rule down_rules[] = {
    {BR_MSG_GATE_CHECK, BR_PERMIT, 16, BR_MSG_MAX, 0, 0, on_check},
    {BR_MSG_GATE_FORGET, BR_PERMIT, 4, 64, 0, 0, on_forget},
    {BR_MSG_GATE_RUN, BR_PERMIT, 20, BR_MSG_MAX, 0, 1, on_run},
    {BR_MSG_GATE_CANCEL, BR_PERMIT, 14, 1200, 0, 0, on_cancel},
    {BR_MSG_GATE_READ, BR_PERMIT, 20, BR_MSG_MAX, 0, 0, on_read},
};

/* ---- what the gateway hears ---- */

static int up_checked(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return session_on_checked(ctx, m, err);
}

static int up_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return session_on_started(ctx, m, err);
}

static int up_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return session_on_ended(ctx, m, err);
}

static int up_reading(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return replay_on_reading(ctx, m, err);
}

static const struct br_msg_rule up_rules[] = {
    {BR_MSG_GATE_READING, BR_PERMIT, 8, BR_MSG_MAX, 0, 1, up_reading},
    {BR_MSG_GATE_CHECKED, BR_PERMIT, 36, BR_MSG_MAX, 0, 0, up_checked},
    {BR_MSG_GATE_STARTED, BR_PERMIT, 8, BR_MSG_MAX, 2, 2, up_started},
    {BR_MSG_GATE_ENDED, BR_PERMIT, 16, BR_MSG_MAX, 0, 0, up_ended},
};

/* ---- a run ---- */

static int on_answer(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = ctx;
    char id[BR_ID_MAX];
    struct br_err why = {.code = BR_OK};
    br_rd_str(&m->rd, id, sizeof(id));
    uint8_t scope = br_rd_u8(&m->rd);
    free(r->last_note);
    r->last_note = br_rd_strdup(&m->rd, BR_PATH_MAX);
    br_rd_str(&m->rd, r->last_who, sizeof(r->last_who));
    if (br_rd_done(&m->rd) < 0 || scope > BR_SCOPE_RUN)
        return bad(m, err);
    r->answers++;
    if (r->mute)
        return 0;
    int code = scope ? br_ledger_allow(r->ledger, id, (enum br_scope)scope, &why)
                     : br_ledger_end(r->ledger, id, BR_ASK_DENIED, &why);
    if (r->answered)
        r->answered(r, id, code);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, code == 0);
    br_buf_put_u32(&o.buf, (uint32_t)-code);
    br_buf_put_str(&o.buf, code ? why.text : "");
    (void)br_chan_send(c, BR_MSG_ANSWERED, 0, &o, NULL);
    return 0;
}

static const struct br_msg_rule run_rules[] = {
    {BR_MSG_ANSWER, BR_PERMIT, 13, 2 * BR_PATH_MAX, 0, 0, on_answer},
};

void world_start(struct gateway *g, struct run *r)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int session[2], audit[2];
    assert_int_equal(br_chan_pair(session), 0);
    assert_int_equal(br_chan_pair(audit), 0);
    br_chan_init(&r->session, session[0], "gateway", run_rules, BR_ARRAY_LEN(run_rules), r);
    r->audit = audit[0];
    r->started = true;
    r->ledger = br_ledger_new(r->id);
    br_buf_put_str(&o.buf, r->id);
    br_buf_put_str(&o.buf, "scripted");
    br_out_fd(&o, session[1], true);
    br_out_fd(&o, audit[1], true);
    assert_int_equal(br_chan_send(&g->down, BR_MSG_GATE_STARTED, 0, &o, NULL), 0);
}

void world_bytes(struct gateway *g, struct run *r, uint64_t row, const void *p, size_t n)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_chan c = {.fd = r->audit, .peer = "gateway"};
    br_buf_put_u64(&o.buf, row);
    br_out_blob(&o, p, n);
    (void)br_chan_send(&c, BR_MSG_EVENT, 0, &o, NULL); /* it may have hung up */
    world_pump(g);
}

void world_event(struct gateway *g, struct run *r, const char *type, const char *actor,
                 const char *data, ...)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_EVENT_MAX);
    va_list args;
    char *text = NULL;
    va_start(args, data);
    assert_true(vasprintf(&text, data, args) >= 0);
    va_end(args);
    br_buf_printf(&b,
                  "{\"v\":1,\"type\":\"%s\",\"eventId\":\"evt_%s_%llu\",\"at\":"
                  "\"2026-03-01T10:00:00.000+00:00\",\"actor\":\"%s\",\"data\":",
                  type, r->id, (unsigned long long)r->row + 1, actor);
    br_buf_put(&b, text, strlen(text));
    br_buf_put(&b, "}", 1);
    free(text);
    bool own = strncmp(type, "bridle.", 7) == 0;
    r->row++; /* before it is known: who reads the store may be ahead */
    if (r->row < BR_ARRAY_LEN(r->own))
        r->own[r->row] = own;
    r->seq += !own;
    world_bytes(g, r, r->row, b.data, b.len);
}

void world_ask(struct gateway *g, struct run *r, const char *call, bool run,
               char permission[BR_ID_MAX])
{
    static const uint8_t environment[BR_ENVIRONMENT_BYTES] = "here";
    assert_int_equal(br_ledger_ask(r->ledger, call, "fs.write", "a", 1,
                                   run ? BR_SCOPE_RUN : BR_SCOPE_ONCE, environment, permission,
                                   NULL),
                     0);
    world_event(g, r, "permission.requested", "kernel",
                "{\"permissionId\":\"%s\",\"sessionId\":\"%s\",\"callId\":\"%s\",\"action\":"
                "\"fs.write\",\"subject\":\"a\",\"scope\":\"once\"}",
                permission, r->id, call);
    world_event(g, r, "bridle.ask", "kernel", "{\"permissionId\":\"%s\",\"scope\":\"%s\"}",
                permission, run ? "run" : "once");
}

void world_resolved(struct gateway *g, struct run *r, const char *call, const char *permission)
{
    enum br_ask_end end = br_ledger_state(r->ledger, permission);
    bool person = end == BR_ASK_ALLOWED || end == BR_ASK_DENIED;
    assert_int_not_equal(end, BR_ASK_PENDING);
    world_event(g, r, "permission.resolved", person ? "operator" : "kernel",
                "{\"permissionId\":\"%s\",\"sessionId\":\"%s\",\"callId\":\"%s\",\"action\":"
                "\"fs.write\",\"subject\":\"a\",\"scope\":\"once\",\"decision\":\"%s\"}",
                permission, r->id, call, end == BR_ASK_ALLOWED ? "allow" : "deny");
}

void world_close_audit(struct run *r)
{
    br_close(&r->audit);
}

void world_ended(struct gateway *g, struct run *r, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    r->ended = true;
    br_buf_put_str(&o.buf, r->id);
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, text);
    br_buf_put_u32(&o.buf, (uint32_t)br_code_exit(code));
    assert_int_equal(br_chan_send(&g->down, BR_MSG_GATE_ENDED, 0, &o, NULL), 0);
    world_pump(g);
}

void world_end(struct gateway *g, struct run *r, const char *status)
{
    world_event(g, r, "agent.stopped", "kernel",
                "{\"agentId\":\"agt_1\",\"status\":\"%s\",\"steps\":1,\"toolCalls\":0}", status);
    br_chan_close(&r->session);
    world_close_audit(r);
    world_pump(g);
    world_ended(g, r, strcmp(status, "completed") == 0 ? 0 : BR_E_FAILED, "");
}

/* ---- the whole ---- */

struct gateway *world_new(void)
{
    static const struct br_world clock = {.mono_us = fake_now, .wall_us = fake_wall};
    int fds[2];
    struct gateway *g = calloc(1, sizeof(*g));
    assert_non_null(g);
    br_service_default(&g->settings);
    g->now_us = 1000000;
    assert_int_equal(br_chan_pair(fds), 0);
    br_chan_init(&g->up, fds[0], "bridled", up_rules, BR_ARRAY_LEN(up_rules), g);
    br_chan_init(&g->down, fds[1], "gateway", down_rules, BR_ARRAY_LEN(down_rules), g);
    g->store.fd = -1;
    br_world_set(&clock);
    world = g;
    return g;
}

static void count_live(void *ctx, struct gw_session *s)
{
    (void)s;
    ++*(unsigned *)ctx;
}

bool world_free(struct gateway **slot)
{
    struct gateway *g = *slot;
    unsigned live = 0;
    for (unsigned i = 0; i < WORLD_CONNS; i++)
        if (g->conns[i].used)
            world_disconnect(g, &g->conns[i]);
    world_pump(g);
    for (unsigned i = 0; i < g->nruns; i++) { /* what was canceled ends */
        struct run *r = &g->runs[i];
        if (r->asked && !r->ended) {
            br_chan_close(&r->session);
            br_close(&r->audit);
            world_pump(g);
            world_ended(g, r, BR_E_CANCELED, "canceled");
        }
        br_chan_close(&r->session);
        br_close(&r->audit);
        if (r->ledger)
            br_ledger_free(&r->ledger);
        free(r->content);
        free(r->last_note);
    }
    if (g->read_call)
        world_reading(g, BR_E_IO, "");
    for (unsigned i = 0; i < g->nmissed; i++) {
        g->read_call = g->missed[i];
        world_reading(g, BR_E_IO, "");
    }
    br_chan_close(&g->store);
    world_pump(g);
    sessions_each(g, count_live, &live);
    bool clean = live == 0 && g->counters.asks_open == 0 && g->counters.sessions_running == 0;
    for (unsigned i = 0; i < TIMERS; i++)
        clean &= !timers[i];
    for (unsigned i = 0; i < CHANS; i++)
        clean &= !chans[i].c;
    const struct sessions *all = g->sessions;
    clean &= !all || (!all->first && !all->checks && !all->watches);
    memset(timers, 0, sizeof(timers));
    memset(chans, 0, sizeof(chans));
    free(g->sessions);
    free(g->replays);
    br_chan_close(&g->up);
    br_chan_close(&g->down);
    free(g);
    *slot = world = NULL;
    return clean;
}
