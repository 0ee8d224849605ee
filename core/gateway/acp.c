/*
 * The Agent Client Protocol, version 1, for editors (subprotocol acp.v1; `bridle acp` brings it to
 * their standard input and output). conn.c calls it with whole text messages of a client that may
 * say anything. It answers initialize, authenticate and the requests that need no run; acp_turn.c
 * runs prompts, acp_store.c reads what was. The client's files, terminals and MCP servers are never
 * used: what an agent may touch is the operator's decision, not the editor's.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/acp_priv.h"

/* ---- what is sent ---- */

int acp_send(struct acp *a, const json_t *message)
{
    BR_CLEANUP_FREE char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    if (!text)
        return -BR_E_NOMEM;
    size_t n = strlen(text);
    if (n > ACP_MESSAGE_MAX)
        return -BR_E_LIMIT_EXCEEDED;
    int r = conn_send(a->c, &(struct gw_piece){text, n}, 1);
    if (r > 0)
        a->full = true;
    return r < 0 ? r : 0;
}

void acp_notify(struct acp *a, const char *method, json_t *params)
{
    json_t *m = json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);
    if (acp_send(a, m) == -BR_E_LIMIT_EXCEEDED)
        gw_log(a->g, BR_LOG_WARN, "acp.too_large", "method", method, NULL);
    json_decref(m);
}

void acp_update(struct acp *a, const char *session_id, json_t *update)
{
    acp_notify(a, "session/update",
               json_pack("{s:s, s:o}", "sessionId", session_id, "update", update));
}

void acp_reply(struct acp *a, const char *id, json_t *result)
{
    BR_CLEANUP_FREE char *text = result ? json_dumps(result, JSON_COMPACT) : NULL;
    json_decref(result);
    if (text)
        (void)rpc_result(a->c, id, text, strlen(text));
    else
        acp_fail(a, id, -32603, "ACP_INTERNAL_ERROR", "there is no memory for the answer");
}

void acp_fail(struct acp *a, const char *id, int code, const char *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)rpc_verror(a->c, id, code, name, fmt, args);
    va_end(args);
}

void acp_fail_code(struct acp *a, const char *id, int code, const struct br_err *why)
{
    bool params = code == -BR_E_INVALID_WORKSPACE || code == -BR_E_INVALID_MANIFEST ||
                  code == -BR_E_NOT_FOUND || code == -BR_E_INVALID_ARGUMENTS;
    acp_fail(a, id, params ? -32602 : -32603, br_code_name(code), "%s",
             why && why->text[0] ? why->text : "the service could not do it");
}

/* ---- sessions of the protocol ---- */

struct acp_session *acp_find(struct acp *a, const char *id)
{
    for (struct acp_session *s = id ? a->sessions : NULL; s; s = s->next)
        if (strcmp(s->id, id) == 0)
            return s;
    return NULL;
}

struct acp_session *acp_session_put(struct acp *a, const char *id, const char *cwd)
{
    struct acp_session *s = acp_find(a, id);
    char *copy = strdup(cwd);
    if (!s && copy && (s = calloc(1, sizeof(*s)))) {
        s->acp = a;
        snprintf(s->id, sizeof(s->id), "%s", id);
        s->next = a->sessions;
        a->sessions = s;
        a->nsessions++;
    }
    if (!s || !copy) {
        free(copy);
        return NULL;
    }
    free(s->cwd);
    s->cwd = copy;
    return s;
}

void acp_forget_fresh(struct acp_session *s)
{
    struct gw_session *w = s->fresh[0] ? session_find(s->acp->g, s->fresh) : NULL;
    s->fresh[0] = 0;
    if (w && session_owner(w) == s->acp->c)
        session_release(w, "the client closed its session");
}

void acp_session_drop(struct acp_session *s)
{
    struct acp *a = s->acp;
    for (struct acp_session **p = &a->sessions; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            a->nsessions--;
            break;
        }
    if (s->turn)
        acp_turn_free(s->turn);
    free(s->cwd);
    free(s);
}

struct acp_pending *acp_pending_new(struct acp *a, const char *id, const char *cwd,
                                    const char *session)
{
    struct acp_pending *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->acp = a;
    p->id = strdup(id);
    p->cwd = strdup(cwd);
    snprintf(p->session, sizeof(p->session), "%s", session);
    p->next = a->pending;
    a->pending = p;
    a->npending++;
    if (p->id && p->cwd)
        return p;
    acp_pending_free(p);
    return NULL;
}

void acp_pending_free(struct acp_pending *p)
{
    for (struct acp_pending **at = &p->acp->pending; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            p->acp->npending--;
            break;
        }
    free(p->id);
    free(p->cwd);
    free(p);
}

/* ---- params ---- */

const char *acp_string(const json_t *params, const char *key, size_t max)
{
    const json_t *v = json_object_get(params, key);
    size_t n = json_string_length(v);
    return n >= 1 && n <= max && strlen(json_string_value(v)) == n ? json_string_value(v) : NULL;
}

static void invalid(struct acp *a, const char *id, const char *text)
{
    acp_fail(a, id, -32602, "ACP_INVALID_PARAMS", "%s", text);
}

/* Some editors write an empty list as an empty object. */
static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* cwd, mcpServers and additionalDirectories of session/new and session/load. NULL: refused. */
static const char *cwd_of(struct acp *a, const char *id, const json_t *params)
{
    const char *cwd = acp_string(params, "cwd", BR_PATH_MAX - 1);
    if (!cwd || cwd[0] != '/')
        invalid(a, id, "'cwd' must be an absolute path; no session was made");
    else if (!is_empty(json_object_get(params, "mcpServers")))
        invalid(a, id,
                "'mcpServers' must be empty: what an agent may reach is decided by the operator's "
                "policy; no session was made");
    else if (!is_empty(json_object_get(params, "additionalDirectories")))
        invalid(a, id,
                "'additionalDirectories' must be empty: a run has one workspace; no session was "
                "made");
    else
        return cwd;
    return NULL;
}

static bool may(struct acp *a, const char *id, enum br_access access)
{
    const struct gw_who *w = conn_who(a->c);
    if (w->access >= access)
        return true;
    acp_fail(a, id, ACP_FORBIDDEN, "ACP_FORBIDDEN",
             "'%s' may not do this; the operator can give more access", w->name);
    return false;
}

/* ---- methods ---- */

static void on_initialize(struct acp *a, const char *id, const json_t *params)
{
    const json_t *version = json_object_get(params, "protocolVersion");
    if (a->initialized) {
        acp_fail(a, id, -32600, "ACP_INVALID_REQUEST", "'initialize' was said before");
        return;
    }
    if (!json_is_integer(version) || json_integer_value(version) < 0 ||
        json_integer_value(version) > 65535) {
        invalid(a, id, "'protocolVersion' must be a number");
        return;
    }
    const json_t *session =
        json_object_get(json_object_get(params, "clientCapabilities"), "session");
    const json_t *notices = json_object_get(session, "notices");
    a->notices = json_is_object(notices) || json_is_true(notices);
    a->initialized = true;
    /* another version was asked for: this is the one there is, and the client decides */
    acp_reply(a, id,
              json_pack("{s:i, s:{s:b, s:{s:b, s:b, s:b}, s:{s:b, s:b}, s:{s:{}, s:{}}}, s:[], "
                        "s:{s:s, s:s, s:s}}",
                        "protocolVersion", 1, "agentCapabilities", "loadSession", 1,
                        "promptCapabilities", "image", 0, "audio", 0, "embeddedContext", 1,
                        "mcpCapabilities", "http", 0, "sse", 0, "sessionCapabilities", "list",
                        "close", "authMethods", "agentInfo", "name", "bridle", "title", "Bridle",
                        "version", gw_version()));
}

static void on_authenticate(struct acp *a, const char *id, const json_t *params)
{
    (void)params;
    invalid(a, id,
            "there is no method to authenticate with: who a client is was decided when it "
            "connected");
}

static void on_created(void *ctx, struct gw_session *w, int code, const struct br_err *why)
{
    struct acp_pending *p = ctx;
    struct acp *a = p->acp;
    struct acp_session *s = NULL;
    if (!w || code < 0) {
        acp_fail_code(a, p->id, code, why);
    } else if (!(s = acp_session_put(a, p->session[0] ? p->session : session_id(w), p->cwd))) {
        session_release(w, "there is no memory");
        acp_fail(a, p->id, -32603, "OUT_OF_MEMORY", "there is no memory for another session");
    } else {
        acp_forget_fresh(s);
        snprintf(s->fresh, sizeof(s->fresh), "%s", session_id(w));
        if (p->session[0])
            acp_load_begin(a, p->id, s);
        else
            acp_reply(a, p->id, json_pack("{s:s}", "sessionId", s->id));
    }
    acp_pending_free(p);
}

bool acp_may_run(struct acp *a, const char *id)
{
    unsigned n = 0, max = gw_settings(a->g)->sessions_per_connection;
    for (const struct acp_pending *p = a->pending; p; p = p->next)
        n += !p->prompt; /* of those the session is counted */
    for (const struct acp_session *s = a->sessions; s; s = s->next) {
        const struct gw_session *w = s->fresh[0] ? session_find(a->g, s->fresh) : NULL;
        n += s->turn != NULL || (w && session_state(w) == GW_CREATED);
    }
    if (n < max)
        return true;
    acp_fail(a, id, -32603, "LIMIT_EXCEEDED",
             "this connection has its %u sessions that run or wait for a prompt; nothing was done",
             max);
    return false;
}

/* The service says whether the directory will do before a session is promised. */
static void create(struct acp *a, const char *id, const char *cwd, const char *load)
{
    struct acp_pending *p;
    if (a->nsessions + a->npending >= ACP_SESSIONS_MAX) {
        acp_fail(a, id, -32603, "LIMIT_EXCEEDED",
                 "this connection has its %u sessions; close some with session/close",
                 ACP_SESSIONS_MAX);
        return;
    }
    if (gw_draining(a->g)) {
        acp_fail(a, id, -32603, "ACP_INTERNAL_ERROR", "the service stops; no session was made");
        return;
    }
    if (!acp_may_run(a, id))
        return;
    if (!(p = acp_pending_new(a, id, cwd, load))) {
        acp_fail(a, id, -32603, "OUT_OF_MEMORY", "there is no memory for another session");
        return;
    }
    session_create(a->g, a->c, cwd, "", "", on_created, p);
}

static void on_new(struct acp *a, const char *id, const json_t *params)
{
    const char *cwd = cwd_of(a, id, params);
    if (cwd && may(a, id, BR_ACCESS_OPERATE))
        create(a, id, cwd, "");
}

static void on_load(struct acp *a, const char *id, const json_t *params)
{
    const char *cwd = cwd_of(a, id, params);
    const char *load = acp_string(params, "sessionId", BR_ID_MAX - 1);
    if (!cwd || !may(a, id, BR_ACCESS_OPERATE))
        return;
    if (!load) {
        acp_fail(a, id, ACP_NOT_FOUND, "ACP_SESSION_NOT_FOUND", "there is no such session");
        return;
    }
    struct acp_session *s = acp_find(a, load);
    struct gw_session *live = session_find(a->g, load);
    enum gw_state state = live ? session_state(live) : GW_COMPLETED;
    if (s && !s->turn && !s->known) /* nothing was said in it yet */
        acp_reply(a, id, json_object());
    else if ((s && s->turn) || a->load || state == GW_RUNNING || (state == GW_CREATED && !s))
        acp_fail(a, id, -32600, "IN_USE", "'%s' cannot be loaded while it is in use", load);
    else if (acp_may_read(a, id))
        create(a, id, cwd, load);
}

static struct acp_session *session_of(struct acp *a, const char *id, const json_t *params)
{
    struct acp_session *s = acp_find(a, acp_string(params, "sessionId", BR_ID_MAX - 1));
    if (!s && id)
        acp_fail(a, id, ACP_NOT_FOUND, "ACP_SESSION_NOT_FOUND",
                 "this connection has no such session");
    return s;
}

static void on_prompt(struct acp *a, const char *id, const json_t *params)
{
    struct br_err err = {0};
    BR_CLEANUP_BUF struct br_buf content = BR_BUF_INIT(BR_GOAL_MAX);
    struct acp_session *s = session_of(a, id, params);
    if (!s || !may(a, id, BR_ACCESS_OPERATE))
        return;
    int r = acp_map_prompt(json_object_get(params, "prompt"), &content, &err);
    if (r < 0)
        acp_fail(a, id, -32602, "ACP_INVALID_PARAMS", "%s", err.text);
    else if (s->turn || acp_load_is(a, s))
        acp_fail(a, id, -32600, "IN_USE",
                 "a prompt of this session is running; nothing was run beside it");
    else if (gw_draining(a->g))
        acp_fail(a, id, -32603, "ACP_INTERNAL_ERROR", "the service stops; nothing was run");
    else
        acp_turn_begin(s, id, &content);
}

static void on_close(struct acp *a, const char *id, const json_t *params)
{
    struct acp_session *s = session_of(a, id, params);
    if (!s || !may(a, id, BR_ACCESS_OPERATE))
        return;
    if (acp_load_is(a, s))
        acp_load_give_up(a);
    acp_forget_fresh(s);
    /* its prompt is answered, then nobody hears of it any more */
    if (s->turn)
        acp_turn_close(s->turn, "the client closed its session");
    acp_session_drop(s);
    acp_reply(a, id, json_object());
}

static void on_cancel(struct acp *a, const char *id, const json_t *params)
{
    (void)id;
    struct acp_session *s = session_of(a, NULL, params);
    if (s && s->turn && conn_who(a->c)->access >= BR_ACCESS_OPERATE)
        acp_turn_cancel(s->turn);
}

/* A client gives a request up: of a prompt, that cancels it. */
static void on_cancel_request(struct acp *a, const char *id, const json_t *params)
{
    (void)id;
    const json_t *v = json_object_get(params, "requestId");
    BR_CLEANUP_FREE char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    for (struct acp_session *s = text ? a->sessions : NULL; s; s = s->next)
        if (s->turn && acp_turn_is(s->turn, text)) {
            acp_turn_cancel(s->turn);
            return;
        }
}

static const struct method {
    const char *name;
    bool notification, before; /* initialize */
    void (*fn)(struct acp *a, const char *id, const json_t *params);
} methods[] = {
    {"initialize", false, true, on_initialize},
    {"authenticate", false, false, on_authenticate},
    {"session/new", false, false, on_new},
    {"session/load", false, false, on_load},
    {"session/list", false, false, acp_list},
    {"session/close", false, false, on_close},
    {"session/prompt", false, false, on_prompt},
    {"session/cancel", true, false, on_cancel},
    {"$/cancel_request", true, false, on_cancel_request},
};

static const struct method *method_of(const struct rpc_message *m)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(methods); i++)
        if (strcmp(methods[i].name, m->method) == 0)
            return &methods[i];
    return NULL;
}

static void on_request(struct acp *a, const struct rpc_message *m)
{
    const struct method *f = method_of(m);
    bool note = m->kind == RPC_NOTIFICATION;
    if (note) { /* gets no answer; one that is not known is left alone */
        if (f && f->notification && a->initialized && json_is_object(m->params))
            f->fn(a, NULL, m->params);
    } else if (!conn_may_ask(a->c)) {
        acp_fail(a, m->id, -32603, "LIMIT_EXCEEDED", "too many requests; try again in a second");
    } else if (!f || f->notification) {
        acp_fail(a, m->id, -32601, "ACP_METHOD_NOT_FOUND", "there is no such method");
    } else if (!a->initialized && !f->before) {
        acp_fail(a, m->id, -32600, "ACP_NOT_INITIALIZED", "'initialize' must come first");
    } else if (!json_is_object(m->params) && strcmp(m->method, "session/list") != 0) {
        invalid(a, m->id, "'params' must be an object");
    } else {
        f->fn(a, m->id, m->params);
    }
}

/* ---- the connection ---- */

static void acp_open(struct conn *c)
{
    struct acp *a = calloc(1, sizeof(*a));
    conn_set_state(c, a);
    if (!a) {
        conn_close(c, BR_WS_CLOSE_INTERNAL, "no memory");
        return;
    }
    a->c = c;
    a->g = conn_gateway(c);
}

static void acp_message(struct conn *c, const char *text, size_t n)
{
    struct acp *a = conn_state(c);
    struct rpc_message m = {0};
    struct br_err err = {0};
    if (!a)
        return;
    int code = rpc_read(text, n, false, &m, &err);
    if (code) {
        acp_fail(a, m.id, code, code == -32700 ? "ACP_PARSE_ERROR" : "ACP_INVALID_REQUEST", "%s",
                 err.text);
    } else if (m.kind == RPC_RESPONSE) {
        if (!acp_turn_answer(a, &m))
            gw_log(a->g, BR_LOG_INFO, "acp.stray_response", "id", m.id, "who", conn_who(c)->name,
                   NULL);
    } else {
        on_request(a, &m);
    }
    rpc_free(&m);
}

static void acp_writable(struct conn *c)
{
    struct acp *a = conn_state(c);
    if (!a)
        return;
    a->full = false;
    if (a->load)
        acp_load_more(a);
}

static void acp_closed(struct conn *c)
{
    struct acp *a = conn_state(c);
    if (!a)
        return;
    conn_set_state(c, NULL);
    acp_load_free(a);
    while (a->sessions)
        acp_session_drop(a->sessions);
    sessions_disown(a->g, c);
    while (a->pending)
        acp_pending_free(a->pending);
    free(a);
}

const struct gw_protocol gw_acp = {
    .name = "acp.v1",
    .open = acp_open,
    .message = acp_message,
    .writable = acp_writable,
    .closed = acp_closed,
};
