/*
 * See test_acp_rig.h. The other side of the interfaces that acp*.c use, for tests: conn.c,
 * session.c, replay.c and main.c, without sockets and programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_acp_rig.h"

struct rig rig;
static struct {
    gw_new_fn *done;
    void *ctx;
    char workspace[BR_PATH_MAX];
} held[16];
static unsigned nheld;
static struct {
    const struct gw_reader *r;
    void *ctx;
    char run[BR_ID_MAX];
} reading;

/* ---- what gw_acp calls ---- */

struct gateway *conn_gateway(struct conn *c)
{
    return (struct gateway *)c; /* opaque, and not NULL */
}

const struct gw_who *conn_who(const struct conn *c)
{
    return &c->who;
}

void conn_set_state(struct conn *c, void *state)
{
    c->state = state;
}

void *conn_state(struct conn *c)
{
    return c->state;
}

int conn_send(struct conn *c, const struct gw_piece *pieces, unsigned n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16u * 1024 * 1024);
    for (unsigned i = 0; i < n; i++)
        br_buf_put(&b, pieces[i].p, pieces[i].n);
    json_t *m = json_loadb((char *)b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(m);
    assert_false(c->closed);
    json_array_append_new(c->sent, m);
    return c->full;
}

void conn_close(struct conn *c, unsigned code, const char *reason)
{
    (void)code;
    (void)reason;
    c->closed = true;
}

bool conn_may_ask(struct conn *c)
{
    (void)c;
    return !rig.too_often;
}

bool conn_may_read(struct conn *c)
{
    (void)c;
    return !rig.reads_too_often;
}

const struct br_service *gw_settings(const struct gateway *g)
{
    (void)g;
    return &rig.settings;
}

bool gw_draining(const struct gateway *g)
{
    (void)g;
    return rig.draining;
}

const char *gw_version(void)
{
    return "1.2.3";
}

void gw_log(struct gateway *g, enum br_log_level level, const char *event, ...)
{
    (void)g;
    (void)level;
    (void)event;
}

static void made(gw_new_fn *done, void *ctx, const char *workspace, int code)
{
    struct br_err err = {.code = BR_OK};
    if (code == 0 && strncmp(workspace, "/w", 2) != 0)
        code = br_err_set(&err, BR_E_INVALID_WORKSPACE, "'%s' is outside of the root", workspace);
    else if (code < 0)
        br_err_set(&err, (enum br_code) - code, "refused");
    if (code < 0) {
        done(ctx, NULL, code, &err);
        return;
    }
    if (rig.nsessions == BR_ARRAY_LEN(rig.sessions)) {
        br_err_set(&err, BR_E_LIMIT_EXCEEDED, "there are too many");
        done(ctx, NULL, -BR_E_LIMIT_EXCEEDED, &err);
        return;
    }
    struct gw_session *s = &rig.sessions[rig.nsessions++];
    snprintf(s->id, sizeof(s->id), "run_%02u", rig.nsessions);
    snprintf(s->workspace, sizeof(s->workspace), "%s", workspace);
    s->owner = &rig.c;
    done(ctx, s, 0, NULL);
}

void session_create(struct gateway *g, struct conn *owner, const char *workspace,
                    const char *task_id, const char *model, gw_new_fn *done, void *ctx)
{
    (void)g;
    assert_ptr_equal(owner, &rig.c);
    assert_string_equal(task_id, "");
    assert_string_equal(model, "");
    if (!rig.hold) {
        made(done, ctx, workspace, 0);
        return;
    }
    if (nheld == BR_ARRAY_LEN(held)) {
        made(done, ctx, workspace, -BR_E_LIMIT_EXCEEDED);
        return;
    }
    held[nheld].done = done;
    held[nheld].ctx = ctx;
    snprintf(held[nheld++].workspace, BR_PATH_MAX, "%s", workspace);
}

void rig_created(int code)
{
    unsigned n = nheld;
    nheld = 0;
    for (unsigned i = 0; i < n; i++)
        made(held[i].done, held[i].ctx, held[i].workspace, code);
}

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

struct gw_session *session_find(struct gateway *g, const char *id)
{
    (void)g;
    for (unsigned i = 0; i < rig.nsessions; i++)
        if (strcmp(rig.sessions[i].id, id) == 0 && !rig.sessions[i].forgotten)
            return &rig.sessions[i];
    return NULL;
}

int session_run(struct gw_session *s, const char *content, size_t n, uint64_t max_tokens,
                uint64_t max_calls, struct br_err *err)
{
    assert_int_equal(max_tokens, 0);
    assert_int_equal(max_calls, 0);
    if (s->state != GW_CREATED)
        return br_err_set(err, BR_E_IN_USE, "'%s' has run", s->id);
    s->state = GW_RUNNING;
    s->ncontent = n;
    snprintf(s->content, sizeof(s->content), "%.*s", (int)n, content);
    return 0;
}

void session_follow(struct gw_session *s, struct gw_sink *k)
{
    assert_null(s->sink);
    s->sink = k;
    k->session_ = s;
}

void session_unfollow(struct gw_sink *k)
{
    k->session_->sink = NULL;
}

void session_answer(struct gw_session *s, const struct gw_who *who, const char *permission,
                    unsigned scope, const char *note, gw_answer_fn *done, void *ctx)
{
    struct rig_answer *a = &rig.answers[rig.nanswers++ % BR_ARRAY_LEN(rig.answers)];
    assert_int_equal(s->state, GW_RUNNING);
    snprintf(a->permission, sizeof(a->permission), "%s", permission);
    snprintf(a->note, sizeof(a->note), "%s", note ? note : "");
    snprintf(a->who, sizeof(a->who), "%s", who->name);
    a->scope = scope;
    done(ctx, 0, NULL);
}

bool session_cancel(struct gw_session *s, const char *why)
{
    (void)why;
    if (s->state != GW_CREATED && s->state != GW_RUNNING)
        return false;
    rig.canceled++;
    if (s->state == GW_CREATED) {
        s->state = GW_CANCELED;
        s->forgotten = true;
    }
    return true;
}

void session_release(struct gw_session *s, const char *why)
{
    (void)session_cancel(s, why);
    s->owner = NULL;
    rig.released++;
}

void sessions_disown(struct gateway *g, struct conn *c)
{
    (void)g;
    (void)c;
    rig.disowned++;
    for (unsigned i = 0; i < rig.nsessions; i++)
        assert_null(rig.sessions[i].sink);
    nheld = 0;
}

struct gw_replay *replay_begin(struct gateway *g, const char *run_id, uint32_t limit,
                               const char *before, const char *words, const struct gw_reader *r,
                               void *ctx)
{
    (void)g;
    (void)limit;
    (void)before;
    assert_string_equal(words, "");
    reading.r = r;
    reading.ctx = ctx;
    snprintf(reading.run, sizeof(reading.run), "%s", run_id);
    rig.replays++;
    if (!rig.hold_replay)
        rig_replay(0);
    return (struct gw_replay *)&reading;
}

void replay_more(struct gw_replay *p)
{
    (void)p;
    rig.reads++;
}

void replay_cancel(struct gw_replay **p)
{
    *p = NULL;
    reading.r = NULL;
}

static void replayed(const char *type, uint64_t row, const char *data)
{
    char bytes[1024];
    snprintf(bytes, sizeof(bytes), "{\"v\":1,\"type\":\"%s\",\"data\":%s}", type, data);
    struct gw_event e = {.row = row,
                         .own = strncmp(type, "bridle.", 7) == 0,
                         .type = type,
                         .ntype = strlen(type),
                         .bytes = bytes,
                         .n = strlen(bytes)};
    reading.r->event(reading.ctx, &e);
}

void rig_replay(int code)
{
    struct br_err err = {.code = BR_OK};
    const struct gw_reader *r = reading.r;
    assert_non_null(r);
    if (code == 0 && !reading.run[0]) {
        for (unsigned i = 0; i < rig.more_rows; i++)
            r->row(reading.ctx, &(struct gw_run_row){.run_id = "run_c", .workspace = "/w/c"});
        r->row(reading.ctx, &(struct gw_run_row){.run_id = "run_b",
                                                 .status = "completed",
                                                 .workspace = "/w/b",
                                                 .goal = "first line\nsecond",
                                                 .started_us = 1772359200000000});
        r->row(reading.ctx, &(struct gw_run_row){.run_id = "run_a",
                                                 .status = "failed",
                                                 .workspace = "/w/a",
                                                 .goal = "other",
                                                 .started_us = 1772359200000000});
    } else if (code == 0 && strcmp(reading.run, "run_old") == 0) {
        replayed("session.created", 1, "{\"sessionId\":\"run_old\"}");
        replayed("bridle.run", 2, "{\"goal\":\"say hello\"}");
        if (r->room && !r->room(reading.ctx))
            return;
        replayed("bridle.text", 3, "{\"stream\":\"t\",\"text\":\"hello\",\"final\":true}");
    } else if (code == 0) {
        code = br_err_set(&err, BR_E_NOT_FOUND, "there is no run '%s'", reading.run);
    }
    reading.r = NULL;
    r->done(reading.ctx, code, &err);
}

/* ---- what a test calls ---- */

void rig_open(void)
{
    memset(&rig, 0, sizeof(rig));
    nheld = 0;
    br_service_default(&rig.settings);
    rig.c.sent = json_array();
    rig.c.who.access = BR_ACCESS_OPERATE;
    snprintf(rig.c.who.name, sizeof(rig.c.who.name), "uid:1000");
    gw_acp.open(&rig.c);
}

void rig_close(void)
{
    gw_acp.closed(&rig.c);
    assert_null(rig.c.state);
    assert_int_equal(rig.disowned, 1);
    json_decref(rig.c.sent);
}

static void quotes(char *s)
{
    for (; *s; s++)
        if (*s == '\'')
            *s = '"';
}

void rig_say(const char *fmt, ...)
{
    char text[8192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    quotes(text);
    char *exact = strndup(text, strlen(text));
    gw_acp.message(&rig.c, exact, strlen(exact));
    free(exact);
}

static json_t *answer(const char *id)
{
    size_t i;
    json_t *m, *found = NULL;
    json_array_foreach(rig.c.sent, i, m)
    {
        BR_CLEANUP_FREE char *text =
            json_dumps(json_object_get(m, "id"), JSON_ENCODE_ANY | JSON_COMPACT);
        if (!json_object_get(m, "method") && text && strcmp(text, id) == 0) {
            assert_null(found); /* once */
            found = m;
        }
    }
    return found;
}

bool rig_answered(const char *id)
{
    return answer(id) != NULL;
}

json_t *rig_result(const char *id)
{
    return json_object_get(answer(id), "result");
}

int rig_error(const char *id, const char **name)
{
    json_t *e = json_object_get(answer(id), "error");
    if (name)
        *name = rig_text(e, "data.code");
    assert_true(!e || rig_text(e, "message")[0]);
    return (int)json_integer_value(json_object_get(e, "code"));
}

json_t *rig_sent(const char *method, unsigned nth)
{
    size_t i;
    json_t *m;
    json_array_foreach(rig.c.sent, i, m)
    {
        if (strcmp(rig_text(m, "method"), method) == 0 && nth-- == 0)
            return m;
    }
    return NULL;
}

json_t *rig_update(const char *kind, unsigned nth)
{
    size_t i;
    json_t *m;
    json_array_foreach(rig.c.sent, i, m)
    {
        json_t *u = json_object_get(json_object_get(m, "params"), "update");
        if (strcmp(rig_text(u, "sessionUpdate"), kind) == 0 && nth-- == 0)
            return u;
    }
    return NULL;
}

const char *rig_text(const json_t *o, const char *path)
{
    char key[64];
    while (o && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof(key), "%.*s", (int)n, path);
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(key)) : json_object_get(o, key);
        path += n + (path[n] == '.');
    }
    return json_is_string(o) ? json_string_value(o) : "";
}

const char *rig_ready(void)
{
    rig_say("{'jsonrpc':'2.0','id':'i','method':'initialize','params':{'protocolVersion':1}}");
    assert_non_null(rig_result("\"i\""));
    rig_say(
        "{'jsonrpc':'2.0','id':'n','method':'session/new','params':{'cwd':'/w','mcpServers':[]}}");
    assert_non_null(rig_result("\"n\""));
    return rig_text(rig_result("\"n\""), "sessionId");
}

struct gw_session *rig_run(void)
{
    struct gw_session *s = &rig.sessions[rig.nsessions - 1];
    assert_int_equal(s->state, GW_RUNNING);
    assert_non_null(s->sink);
    return s;
}

void rig_event(struct gw_session *s, const char *type, const char *data)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * 1024 * 1024);
    char *text = strdup(data);
    quotes(text);
    br_buf_printf(&b, "{\"v\":1,\"type\":\"%s\",\"eventId\":\"e\",\"data\":%s}", type, text);
    free(text);
    struct gw_event e = {.row = ++s->rows,
                         .own = strncmp(type, "bridle.", 7) == 0,
                         .type = type,
                         .ntype = strlen(type),
                         .bytes = (char *)b.data,
                         .n = b.len};
    assert_non_null(s->sink);
    s->sink->event(s->sink, s, &e);
}

void rig_end(struct gw_session *s, enum gw_state state, const char *stopped)
{
    s->state = state;
    s->result.state = state;
    if (!s->result.text)
        s->result.text = "";
    snprintf(s->result.stopped, sizeof(s->result.stopped), "%s", stopped);
    s->sink->ended(s->sink, s);
    assert_null(s->sink);
    s->forgotten = true;
}
