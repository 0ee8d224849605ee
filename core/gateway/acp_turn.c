/*
 * One prompt of the Agent Client Protocol: a run from its beginning to its end. Called by acp.c,
 * and by session.c with the run's stored events. Its questions become requests to the client;
 * whatever the client answers that is not one of the offered permissions denies, and so does its
 * silence, which bridle-session's clock ends. A denial is the result of a call, never the end of a
 * prompt.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/acp_priv.h"

/* A question that the client was asked. */
struct acp_ask {
    uint64_t request; /* the id of our request */
    char permission[BR_NAME_MAX];
    bool run; /* may be allowed for the run */
    struct acp_ask *next;
};

struct acp_turn {
    struct acp_session *s;
    char *id;               /* of the prompt, as JSON */
    struct gw_session *run; /* NULL: not there yet */
    struct gw_sink sink;
    bool creating; /* bridled is asked for a session */
    bool canceled; /* by the client */
    bool said;     /* the agent's text was shown */
    struct br_buf content;
    struct acp_ask *asks;
    json_t *calls; /* callId -> data of tool.call, until its result */
    size_t ncalls; /* bytes of their events */
    bool forgot;   /* a call was too large to be remembered */
    struct acp_account account;
};

static struct acp_scope scope_of(const struct acp_turn *t)
{
    return (struct acp_scope){.session_id = t->s->id,
                              .cwd = t->s->cwd,
                              .turn = t->s->turns,
                              .notices = t->s->acp->notices};
}

void acp_turn_free(struct acp_turn *t)
{
    if (t->run)
        session_unfollow(&t->sink);
    for (struct acp_ask *k = t->asks, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    if (t->s->turn == t)
        t->s->turn = NULL;
    json_decref(t->calls);
    br_buf_free(&t->content);
    free(t->id);
    free(t);
}

/* ---- questions ---- */

static void on_answered(void *ctx, int code, const struct br_err *why)
{
    if (code < 0) /* somebody was faster, or it had ended */
        gw_log(ctx, BR_LOG_INFO, "acp_answer_refused", "code", br_code_name(code), "why",
               why ? why->text : "", NULL);
}

static void deny(struct acp_turn *t, const char *permission, const char *note)
{
    struct acp *a = t->s->acp;
    session_answer(t->run, conn_who(a->c), permission, 0, note, on_answered, a->g);
}

/* The client is not waited for any more: a question is closed, or its prompt has ended. */
static void withdraw(struct acp_turn *t, struct acp_ask **at)
{
    struct acp_ask *k = *at;
    *at = k->next;
    acp_notify(t->s->acp, "$/cancel_request",
               json_pack("{s:I}", "requestId", (json_int_t)k->request));
    free(k);
}

static void ask(struct acp_turn *t, const json_t *data)
{
    struct acp *a = t->s->acp;
    struct acp_scope scope = scope_of(t);
    const char *permission = json_string_value(json_object_get(data, "permissionId")),
               *call = json_string_value(json_object_get(data, "callId")),
               *how = json_string_value(json_object_get(data, "scope"));
    if (!permission || strlen(permission) >= BR_NAME_MAX)
        return;
    const json_t *asked = json_object_get(t->calls, call ? call : "");
    struct acp_ask *k = calloc(1, sizeof(*k));
    /* nobody allows what they are not shown whole */
    json_t *params = k && (asked || !t->forgot) ? acp_map_ask(&scope, data, asked) : NULL;
    json_t *m =
        params ? json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", (json_int_t)a->requests,
                           "method", "session/request_permission", "params", params)
               : NULL;
    if (!m || acp_send(a, m) < 0) { /* who cannot be asked cannot allow */
        free(k);
        deny(t, permission, "the question could not be shown to the client");
    } else {
        k->request = a->requests++;
        k->run = how && strcmp(how, "run") == 0;
        snprintf(k->permission, sizeof(k->permission), "%s", permission);
        k->next = t->asks;
        t->asks = k;
    }
    json_decref(m);
}

static void resolved(struct acp_turn *t, const json_t *data)
{
    const char *permission = json_string_value(json_object_get(data, "permissionId"));
    for (struct acp_ask **p = &t->asks; permission && *p; p = &(*p)->next)
        if (strcmp((*p)->permission, permission) == 0) {
            withdraw(t, p);
            return;
        }
}

bool acp_turn_answer(struct acp *a, const struct rpc_message *m)
{
    char *end;
    uint64_t request = strtoull(m->id, &end, 10);
    if (end == m->id || *end)
        return false;
    for (struct acp_session *s = a->sessions; s; s = s->next)
        for (struct acp_ask **p = s->turn ? &s->turn->asks : NULL; p && *p; p = &(*p)->next)
            if ((*p)->request == request) {
                const char *note;
                struct acp_ask *k = *p;
                unsigned scope = acp_map_answer(m->result, k->run, &note);
                if (conn_who(a->c)->access < BR_ACCESS_ANSWER) {
                    scope = 0;
                    note = "the client may not answer";
                }
                *p = k->next;
                session_answer(s->turn->run, conn_who(a->c), k->permission, scope, note,
                               on_answered, a->g);
                free(k);
                return true;
            }
    return false;
}

/* ---- events ---- */

static bool is(const struct gw_event *e, const char *name)
{
    return strlen(name) == e->ntype && memcmp(e->type, name, e->ntype) == 0;
}

static void remember(struct acp_turn *t, const struct gw_event *e, json_t *data)
{
    const char *call = json_string_value(json_object_get(data, "callId"));
    if (!call)
        return;
    if (is(e, "tool.result")) {
        json_object_del(t->calls, call);
        if (!json_object_size(t->calls))
            t->ncalls = 0;
    } else if (t->ncalls + e->n <= ACP_CALLS_MAX && json_object_set(t->calls, call, data) == 0) {
        t->ncalls += e->n;
    } else {
        t->forgot = true;
    }
}

static void on_event(struct gw_sink *k, struct gw_session *w, const struct gw_event *e)
{
    struct acp_turn *t = (struct acp_turn *)((char *)k - offsetof(struct acp_turn, sink));
    struct acp_scope scope = scope_of(t);
    (void)w;
    json_t *root = json_loadb(e->bytes, e->n, 0, NULL), *data = json_object_get(root, "data");
    acp_account_event(&t->account, e->type, e->ntype, data);
    if (is(e, "tool.call"))
        remember(t, e, data);
    if (is(e, "bridle.ask"))
        ask(t, data);
    if (is(e, "permission.resolved"))
        resolved(t, data);
    json_t *update = data ? acp_map_event(&scope, e->type, e->ntype, data) : NULL;
    if (update) {
        t->said = t->said || is(e, "bridle.text");
        acp_update(t->s->acp, t->s->id, update);
    }
    if (is(e, "tool.result"))
        remember(t, e, data);
    json_decref(root);
}

/* ---- the end ---- */

static void answer_prompt(struct acp_turn *t, const char *stop, const char *run)
{
    acp_reply(
        t->s->acp, t->id,
        run ? json_pack("{s:s, s:{s:{s:s}}}", "stopReason", stop, "_meta", "bridle", "runId", run)
            : json_pack("{s:s}", "stopReason", stop));
}

static void on_ended(struct gw_sink *k, struct gw_session *w)
{
    struct acp_turn *t = (struct acp_turn *)((char *)k - offsetof(struct acp_turn, sink));
    struct acp *a = t->s->acp;
    const struct gw_result *r = session_result(w);
    const char *stop = acp_account_stop(&t->account, r, t->canceled);
    while (t->asks)
        withdraw(t, &t->asks);
    if (!t->said && r->ntext)
        acp_update(a, t->s->id, acp_map_text(r->text, r->ntext));
    if (stop && strcmp(stop, "refusal") == 0)
        acp_update(a, t->s->id, acp_map_text(t->account.text, strlen(t->account.text)));
    if (stop)
        answer_prompt(t, stop, session_id(w));
    else
        acp_fail(a, t->id, -32603,
                 t->account.code[0] ? t->account.code : br_code_name((int)r->code), "%s",
                 t->account.text[0]  ? t->account.text
                 : r->why && *r->why ? r->why
                                     : "the run failed");
    acp_turn_free(t);
    session_release(w, "it has ended");
}

void acp_turn_close(struct acp_turn *t, const char *why)
{
    struct gw_session *w = t->run;
    while (t->asks)
        withdraw(t, &t->asks);
    answer_prompt(t, "cancelled", w ? session_id(w) : NULL);
    if (w)
        session_unfollow(&t->sink);
    t->run = NULL;
    acp_turn_free(t);
    if (w)
        session_release(w, why);
}

void acp_turn_cancel(struct acp_turn *t)
{
    t->canceled = true;
    if (t->run) /* it may end in here */
        (void)session_cancel(t->run, "a client canceled the run");
}

bool acp_turn_is(const struct acp_turn *t, const char *id)
{
    return strcmp(t->id, id) == 0;
}

/* ---- the beginning ---- */

static void run(struct acp_turn *t, struct gw_session *w)
{
    struct acp_session *s = t->s;
    struct acp *a = s->acp;
    struct br_err err = {0};
    t->sink = (struct gw_sink){.event = on_event, .ended = on_ended};
    t->run = w;
    session_follow(w, &t->sink);
    int r = session_run(w, (char *)t->content.data, t->content.len, 0, 0, &err);
    if (s->turn != t) /* that has ended it, which was answered */
        return;
    if (r < 0) {
        acp_fail_code(a, t->id, r, &err);
        acp_turn_free(t);
        session_release(w, "it could not be run");
        return;
    }
    br_buf_free(&t->content);
}

static void on_created(void *ctx, struct gw_session *w, int code, const struct br_err *why)
{
    struct acp_pending *p = ctx;
    struct acp *a = p->acp;
    struct acp_session *s = acp_find(a, p->session);
    struct acp_turn *t = s ? s->turn : NULL;
    bool mine = t && t->creating && strcmp(t->id, p->id) == 0;
    if (mine)
        t->creating = false;
    if (w && (!mine || t->canceled))
        session_release(w, "a client canceled the run");
    if (mine && t->canceled) {
        answer_prompt(t, "cancelled", NULL);
        acp_turn_free(t);
    } else if (mine && (!w || code < 0)) {
        acp_fail_code(a, t->id, code, why);
        acp_turn_free(t);
    } else if (mine) {
        run(t, w);
    }
    acp_pending_free(p);
}

void acp_turn_begin(struct acp_session *s, const char *id, struct br_buf *content)
{
    struct acp *a = s->acp;
    struct gw_session *w = s->fresh[0] ? session_find(a->g, s->fresh) : NULL;
    bool fresh = w && session_state(w) == GW_CREATED && session_owner(w) == a->c;
    if (!fresh && !acp_may_run(a, id))
        return;
    struct acp_turn *t = calloc(1, sizeof(*t));
    s->fresh[0] = 0;
    if (!t || !(t->id = strdup(id)) || !(t->calls = json_object())) {
        if (t)
            free(t->id);
        free(t);
        acp_fail(a, id, -32603, "OUT_OF_MEMORY", "there is no memory for the prompt");
        return;
    }
    t->s = s;
    t->content = *content;
    br_buf_init(content, 0);
    s->turn = t;
    s->turns++;
    s->known = true;
    if (fresh) {
        run(t, w);
        return;
    }
    struct acp_pending *p = acp_pending_new(a, id, s->cwd, s->id);
    if (!p) {
        acp_fail(a, id, -32603, "OUT_OF_MEMORY", "there is no memory for the prompt");
        acp_turn_free(t);
        return;
    }
    t->creating = true;
    p->prompt = true;
    session_create(a->g, a->c, s->cwd, "", "", on_created, p);
}
