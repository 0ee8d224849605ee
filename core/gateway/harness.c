/*
 * harness/acp/1, the service protocol, as docs/protocol.md says. Its clients are strict: they hang
 * up at a key, an event or a gap that they do not expect, so what goes out is exactly what the page
 * says, and what comes in is taken only if it is. conn.c calls it with whole text messages of
 * anybody who may connect; everything that a client wants done is asked of session.c.
 *
 * A request is judged in one order: is it a request, is there such a method, are its parameters
 * right, is the connection initialized, may this client do that, and only then what it is about.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/harness_priv.h"

#define EXTENSIONS_MAX 16u

/* ---- what is sent ---- */

static const char *error_name(enum harness_error code)
{
    switch (code) {
#define HARNESS_NAME_(name, number, text)                                                          \
    case HARNESS_##name:                                                                           \
        return text;
        HARNESS_ERRORS(HARNESS_NAME_)
#undef HARNESS_NAME_
    }
    return "ACP_INTERNAL_ERROR";
}

void harness_error(struct harness *h, const char *id, enum harness_error code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)rpc_verror(h->c, id, code, error_name(code), fmt, args);
    va_end(args);
}

void harness_reply(struct harness *h, const char *id, const struct br_buf *result)
{
    if (result->failed)
        harness_error(h, id, HARNESS_INTERNAL, "the answer does not fit into a message");
    else
        (void)rpc_result(h->c, id, (char *)result->data, result->len);
}

static void reply_bool(struct harness *h, const char *id, const char *key, bool value)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(128);
    br_buf_printf(&b, "{\"%s\":%s}", key, value ? "true" : "false");
    harness_reply(h, id, &b);
}

int harness_send_event(struct harness *h, const char *session, const struct gw_event *e)
{
    char head[256];
    if (e->own && !h->extended)
        return 0;
    int n = e->own ? snprintf(head, sizeof(head),
                              "{\"jsonrpc\":\"2.0\",\"method\":\"bridle/event\",\"params\":{"
                              "\"sessionId\":\"%s\",\"after\":%lld,\"seq\":%llu,\"event\":",
                              session, (long long)e->after, (unsigned long long)e->seq)
                   : snprintf(head, sizeof(head),
                              "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{"
                              "\"sessionId\":\"%s\",\"seq\":%llu,\"event\":",
                              session, (unsigned long long)e->seq);
    const struct gw_piece pieces[] = {{head, (size_t)n}, {e->bytes, e->n}, {"}}", 2}};
    int r = conn_send(h->c, pieces, BR_ARRAY_LEN(pieces));
    gw_counters(h->g)->events_out += r >= 0;
    return r;
}

/* ---- requests whose answer comes later ---- */

struct harness_call *harness_call_new(struct harness *h, struct harness_call **list, const char *id)
{
    struct harness_call *call = calloc(1, sizeof(*call));
    br_require(call);
    *call = (struct harness_call){.h = h, .id = strdup(id), .next = *list, .at = list};
    br_require(call->id);
    if (*list)
        (*list)->at = &call->next;
    *list = call;
    return call;
}

void harness_call_free(struct harness_call *call)
{
    if (call->at) {
        *call->at = call->next;
        if (call->next)
            call->next->at = call->at;
    }
    free(call->id);
    free(call);
}

/* ---- following a session ---- */

/* The answer to its prompt: 0 and a result, or an error and its text. */
static int put_answer(const struct gw_session *s, struct br_buf *b)
{
    const struct gw_result *r = session_result(s);
    const char *why = r->why[0] ? r->why : br_code_name((int)r->code);
    struct gw_about about;
    session_about(s, &about);
    if (!about.rows) { /* nothing has run, so nothing is told of how it went */
        br_buf_printf(b, "the session '%s' did not run: %s", session_id(s), why);
        return HARNESS_INTERNAL;
    }
    if (session_broken(s)) {
        br_buf_printf(b, "the session '%s' was ended, because its record broke off: %s",
                      session_id(s), why);
        return HARNESS_INTERNAL;
    }
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(HARNESS_TEXT_MAX + 2);
    br_buf_put_json_str(&text, r->text, r->ntext);
    br_buf_printf(b, "{\"status\":\"%s\",\"events\":[],\"finalText\":",
                  r->state == GW_COMPLETED ? "completed" : "failed");
    if (text.failed)
        br_buf_printf(b, "\"\"");
    else
        br_buf_put(b, text.data, text.len);
    br_buf_printf(b,
                  ",\"usage\":{\"promptTokens\":%llu,\"completionTokens\":%llu,"
                  "\"totalTokens\":%llu}}",
                  (unsigned long long)r->prompt_tokens, (unsigned long long)r->completion_tokens,
                  (unsigned long long)(r->prompt_tokens + r->completion_tokens));
    return 0;
}

void harness_prompt_end(struct harness *h, const char *id, int code, struct br_buf *b)
{
    if (code && br_buf_cstr(b))
        harness_error(h, id, code, "%s", br_buf_cstr(b));
    else
        harness_reply(h, id, b);
}

/* Its prompt is answered, behind all of its events. */
static void end_prompt(struct harness_follow *f, struct gw_session *s)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(HARNESS_TEXT_MAX + 1024);
    int code = put_answer(s, &b);
    if (session_broken(s) && session_stopped(s) && !f->h->extended)
        /* it was shown how the run ended, and no answer would fit to that */
        conn_close(f->h->c, BR_WS_CLOSE_INTERNAL, "the record of a session was not in order");
    else if (f->load)
        harness_load_answer(f->load, br_steal_ptr(&f->prompt), code, &b);
    else
        harness_prompt_end(f->h, f->prompt, code, &b);
}

/* To who follows it and waits for no answer: a record that breaks off does not say so itself. */
static void end_broken(struct harness_follow *f, struct gw_session *s)
{
    if (!f->h->extended)
        conn_close(f->h->c, BR_WS_CLOSE_INTERNAL, "the record of a session broke off");
    else if (!f->h->watch.gateway_) /* else it was told */
        harness_ext_changed(f->h, s);
}

/*
 * What waits for a client is bounded, and who is beyond that is closed. A run is not to be ended
 * because it says much at once to one that reads steadily: half of that room is left for it, and
 * then its record waits in the store. Others who follow do not hold it up.
 */
static void on_event(struct gw_sink *k, struct gw_session *s, const struct gw_event *e)
{
    struct harness_follow *f = (struct harness_follow *)k;
    struct harness *h = f->h;
    if (f->load) {
        harness_load_hold(f->load, e);
        return;
    }
    int r = f->quiet ? 0 : harness_send_event(h, session_id(s), e);
    h->behind = r > 0 ? h->behind + e->n : 0;
    if (session_owner(s) == h->c && h->behind > gw_settings(h->g)->queue_bytes / 2)
        session_pause(s, true);
}

static void on_ended(struct gw_sink *k, struct gw_session *s)
{
    struct harness_follow *f = (struct harness_follow *)k;
    struct gw_about about;
    session_about(s, &about);
    if (f->prompt)
        end_prompt(f, s);
    else if (session_broken(s) && about.rows && !f->load && !f->quiet)
        end_broken(f, s);
    while (f->cancels) {
        reply_bool(f->h, f->cancels->id, "canceled", session_state(s) == GW_CANCELED);
        harness_call_free(f->cancels);
    }
    if (f->load)
        harness_load_ended(f->load, session_state(s));
    f->load = NULL;
    harness_follow_free(f);
}

struct harness_follow *harness_follow_find(const struct harness *h, const struct gw_session *s)
{
    struct harness_follow *f = h->follows;
    while (f && f->sink.session_ != s)
        f = f->next;
    return f;
}

struct harness_follow *harness_follow_new(struct harness *h, struct gw_session *s)
{
    struct harness_follow *f = harness_follow_find(h, s);
    if (f)
        return f;
    f = calloc(1, sizeof(*f));
    br_require(f);
    *f = (struct harness_follow){
        .sink = {.event = on_event, .ended = on_ended}, .h = h, .next = h->follows};
    h->follows = f;
    session_follow(s, &f->sink);
    return f;
}

void harness_follow_free(struct harness_follow *f)
{
    struct harness_follow **p = &f->h->follows;
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    while (f->cancels)
        harness_call_free(f->cancels);
    session_unfollow(&f->sink);
    free(f->prompt);
    free(f);
}

void harness_follow_drop(struct harness_follow *f)
{
    if (f->quiet && !f->prompt && !f->cancels && !f->load)
        harness_follow_free(f);
}

struct gw_session *harness_session(struct harness *h, const char *id, const char *session,
                                   bool followed)
{
    struct gw_session *s = session_find(h->g, session);
    bool own = s && session_owner(s) == h->c;
    if (own || (s && followed && harness_follow_find(h, s)))
        return s;
    harness_error(h, id, HARNESS_NO_SESSION, "this connection has no session '%.64s'", session);
    return NULL;
}

/* ---- the methods ---- */

static void put_list(struct br_buf *b, char *const *names, unsigned n)
{
    for (unsigned i = 0, put = 0; i < n && put < HARNESS_MODELS_MAX; i++) {
        size_t len = strlen(names[i]);
        if (!len || len > BR_NAME_MAX)
            continue;
        br_buf_put(b, ",", put++ ? 1 : 0);
        br_buf_put_json_str(b, names[i], len);
    }
}

static void put_bridle(struct harness *h, struct br_buf *b)
{
    static const char *const names[] = {"none", "observe", "answer", "operate"};
    const struct gw_who *who = conn_who(h->c);
    const struct br_service *set = gw_settings(h->g);
    char now[32];
    br_time_iso(now, br_now_wall_us());
    br_buf_printf(b, ",\"bridle\":{\"name\":");
    br_buf_put_json_str(b, who->name, strlen(who->name));
    br_buf_printf(b, ",\"access\":\"%s\",\"detach\":%s,\"askSeconds\":%u,\"serverTime\":\"%s\"}",
                  names[who->access], set->detach ? "true" : "false", set->ask_seconds, now);
}

static bool is_extended(const json_t *capabilities)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(capabilities, "extensions"), i,
                       v) if (strcmp(json_string_value(v), HARNESS_EXTENSION) == 0) return true;
    return false;
}

static void do_initialize(struct harness *h, const char *id, const struct harness_args *a)
{
    const json_t *caps = a->value[3];
    if (h->initialized) {
        harness_error(h, id, HARNESS_REQUEST, "the connection is initialized already");
        return;
    }
    if (strcmp(a->text[0], HARNESS_VERSION) != 0) {
        harness_error(h, id, HARNESS_PROTOCOL_VERSION,
                      "'%s' is not spoken here; '" HARNESS_VERSION "' is", a->text[0]);
        return;
    }
    if (!json_is_true(json_object_get(caps, "streaming")) ||
        !json_is_true(json_object_get(caps, "permissioning"))) {
        harness_error(h, id, HARNESS_PARAMS,
                      "'capabilities' must have 'streaming' and 'permissioning' true");
        return;
    }
    h->initialized = true;
    h->sessions = json_is_true(json_object_get(caps, "sessions"));
    h->extended = is_extended(caps);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    unsigned n;
    char *const *models = gw_models(h->g, &n);
    br_buf_printf(&b,
                  "{\"protocolVersion\":\"" HARNESS_VERSION "\",\"agentName\":\"bridle\","
                  "\"agentVersion\":\"%s\",\"capabilities\":{\"streaming\":true,"
                  "\"permissioning\":true,\"sessions\":%s%s},\"models\":[",
                  gw_version(), h->sessions ? "true" : "false",
                  h->extended ? ",\"extensions\":[\"" HARNESS_EXTENSION "\"]" : "");
    put_list(&b, models, n);
    br_buf_printf(&b, "]");
    if (h->extended)
        put_bridle(h, &b);
    br_buf_printf(&b, "}");
    harness_reply(h, id, &b);
}

static void on_new(void *ctx, struct gw_session *s, int code, const struct br_err *why)
{
    struct harness_call *call = ctx;
    struct harness *h = call->h;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(256);
    if (s) {
        br_buf_printf(&b, "{\"sessionId\":\"%s\"}", session_id(s));
        harness_reply(h, call->id, &b);
    } else {
        bool params = code == -BR_E_INVALID_WORKSPACE || code == -BR_E_INVALID_MANIFEST ||
                      code == -BR_E_NOT_FOUND || code == -BR_E_INVALID_ARGUMENTS;
        h->made--;
        harness_error(h, call->id,
                      params                         ? HARNESS_PARAMS
                      : code == -BR_E_LIMIT_EXCEEDED ? HARNESS_SESSION_LIMIT
                                                     : HARNESS_INTERNAL,
                      "%s", why->text);
    }
    harness_call_free(call);
}

static void do_new(struct harness *h, const char *id, const struct harness_args *a)
{
    unsigned max = gw_settings(h->g)->sessions_per_connection;
    if (h->made >= max) {
        harness_error(h, id, HARNESS_SESSION_LIMIT,
                      "this connection has made %u sessions, which is all that it may", max);
        return;
    }
    h->made++;
    session_create(h->g, h->c, a->text[0], a->text[1], a->text[2], on_new,
                   harness_call_new(h, &h->creates, id));
}

static void do_prompt(struct harness *h, const char *id, const struct harness_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct gw_session *s = harness_session(h, id, a->text[0], false);
    if (!s)
        return;
    if (session_state(s) != GW_CREATED) {
        harness_error(h, id, HARNESS_ALREADY_RUN, "the session '%s' has run, runs, or was canceled",
                      session_id(s));
        return;
    }
    struct harness_follow *f = harness_follow_new(h, s);
    f->quiet = false;
    int r =
        session_run(s, a->text[1], a->n[1], (uint64_t)a->number[2], (uint64_t)a->number[3], &err);
    if (r == 0) {
        f->prompt = strdup(id);
        br_require(f->prompt);
        return;
    }
    f = harness_follow_find(h, s); /* it may have ended */
    if (f)
        harness_follow_free(f);
    harness_error(h, id, r == -BR_E_IN_USE ? HARNESS_ALREADY_RUN : HARNESS_INTERNAL, "%s",
                  err.text);
}

static void on_answered(void *ctx, int code, const struct br_err *why)
{
    struct harness_call *call = ctx;
    if (call->h && code == 0)
        reply_bool(call->h, call->id, "accepted", true);
    else if (call->h)
        harness_error(call->h, call->id,
                      code == -BR_E_NOT_FOUND ? HARNESS_NO_PERMISSION
                      : code == -BR_E_IN_USE  ? HARNESS_RESOLVED
                      : code == -BR_E_DENIED  ? HARNESS_PARAMS
                                              : HARNESS_INTERNAL,
                      "%s", why->text);
    harness_call_free(call);
}

static void do_respond(struct harness *h, const char *id, const struct harness_args *a)
{
    struct gw_session *s = harness_session(h, id, a->text[0], true);
    if (!s)
        return;
    bool allow = strcmp(a->text[2], "allow") == 0;
    bool run = a->text[4] && strcmp(a->text[4], "run") == 0;
    session_answer(s, conn_who(h->c), a->text[1],
                   !allow ? 0
                   : run  ? 2
                          : 1,
                   a->text[3] ? a->text[3] : "", on_answered, harness_call_new(h, &h->answers, id));
}

static void do_cancel(struct harness *h, const char *id, const struct harness_args *a)
{
    struct gw_session *s = harness_session(h, id, a->text[0], true);
    if (!s)
        return;
    bool runs = session_state(s) == GW_RUNNING;
    bool follows = harness_follow_find(h, s) != NULL;
    struct harness_follow *f = runs ? harness_follow_new(h, s) : NULL;
    if (f && !follows) /* it wants no events, only to know the end */
        f->quiet = true;
    if (f) /* answered when it has ended, with what has become of it */
        (void)harness_call_new(h, &f->cancels, id);
    bool canceled = session_cancel(s, "a client canceled the run");
    if (!f)
        reply_bool(h, id, "canceled", canceled);
}

/* clang-format off */
const struct harness_method harness_base[] = {
    {"initialize", NEEDS_NOTHING, BR_ACCESS_NONE, {
        {"protocolVersion", PARAM_TEXT, true, 1, 128}, {"clientName", PARAM_TEXT, true, 1, 128},
        {"clientVersion", PARAM_TEXT, false, 1, 64}, {"capabilities", PARAM_CAPABILITIES, true, 0, 0},
     }, do_initialize},
    {"session/new", NEEDS_NOTHING, BR_ACCESS_OPERATE, {
        {"workspace", PARAM_TEXT, true, 1, 4096}, {"taskId", PARAM_KEBAB, false, 1, 128},
        {"model", PARAM_TEXT, false, 1, 256},
     }, do_new},
    {"session/prompt", NEEDS_NOTHING, BR_ACCESS_OPERATE, {
        {"sessionId", PARAM_TEXT, true, 1, 256}, {"content", PARAM_TEXT, true, 1, HARNESS_CONTENT_MAX},
        {"maxModelTokens", PARAM_COUNT, false, 1, 0}, {"maxToolCalls", PARAM_COUNT, false, 1, 0},
     }, do_prompt},
    {"permission/respond", NEEDS_NOTHING, BR_ACCESS_ANSWER, {
        {"sessionId", PARAM_TEXT, true, 1, 256}, {"permissionId", PARAM_TEXT, true, 1, 256},
        {"decision", PARAM_DECISION, true, 0, 0}, {"note", PARAM_TEXT, false, 0, HARNESS_NOTE_MAX},
        {"scope", PARAM_SCOPE, false, 0, 0},
     }, do_respond},
    {"session/cancel", NEEDS_NOTHING, BR_ACCESS_OPERATE, {
        {"sessionId", PARAM_TEXT, true, 1, 256},
     }, do_cancel},
};
/* clang-format on */
const unsigned harness_base_count = BR_ARRAY_LEN(harness_base);

/* ---- parameters ---- */

static bool one_of(const char *text, const char *a, const char *b)
{
    return text && (strcmp(text, a) == 0 || strcmp(text, b) == 0);
}

static const char *wrong_capabilities(const json_t *v)
{
    static const char *const flags[] = {"streaming", "permissioning", "sessions"};
    size_t known = 0, i;
    json_t *e;
    if (!json_is_object(v))
        return "is no object";
    for (i = 0; i < BR_ARRAY_LEN(flags); i++) {
        const json_t *flag = json_object_get(v, flags[i]);
        known += flag != NULL;
        if (flag && !json_is_boolean(flag))
            return "has a member that is neither true nor false";
    }
    const json_t *extensions = json_object_get(v, "extensions");
    known += extensions != NULL;
    if (extensions && (!json_is_array(extensions) || json_array_size(extensions) > EXTENSIONS_MAX))
        return "has 'extensions' that are no list of at most 16";
    json_array_foreach(
        extensions, i,
        e) if (!json_is_string(e) || !json_string_length(e) ||
               json_string_length(e) >
                   64) return "has an extension whose name is no string of 1 to 64 bytes";
    return known == json_object_size(v) ? NULL : "has a key that is not known";
}

/* What is wrong with a value; NULL: nothing. */
static const char *wrong_value(const struct harness *h, const struct harness_param *p,
                               const json_t *v, struct harness_args *a, size_t i)
{
    int64_t number;
    const char *text = json_string_value(v);
    size_t n = json_string_length(v);
    switch (p->kind) {
    case PARAM_TEXT:
    case PARAM_KEBAB:
        if (!text || n < p->min || n > p->max)
            return "is no string of the length that it may have";
        if (p->kind == PARAM_KEBAB && !br_is_kebab(text, p->max))
            return "is no kebab-case name";
        break;
    case PARAM_COUNT:
    case PARAM_ROW:
        if (!rpc_safe_integer(v, &number) || number < (p->kind == PARAM_ROW ? -1 : 1) ||
            (p->max && number > p->max))
            return "is no integer of the range that it may have";
        a->number[i] = number;
        break;
    case PARAM_DECISION:
        if (!one_of(text, "allow", "deny"))
            return "is neither 'allow' nor 'deny'";
        break;
    case PARAM_SCOPE:
        if (!h->extended)
            return "is not known";
        if (!one_of(text, "once", "run"))
            return "is neither 'once' nor 'run'";
        break;
    case PARAM_CAPABILITIES:
        return wrong_capabilities(v);
    }
    a->text[i] = text;
    a->n[i] = n;
    return NULL;
}

static bool read_params(struct harness *h, const char *id, const struct harness_method *method,
                        const json_t *params, struct harness_args *a)
{
    size_t known = 0;
    *a = (struct harness_args){.text = {NULL}};
    if (params && !json_is_object(params)) {
        harness_error(h, id, HARNESS_PARAMS, "'params' is no object");
        return false;
    }
    for (size_t i = 0; i < HARNESS_PARAMS_MAX && method->params[i].name; i++) {
        const struct harness_param *p = &method->params[i];
        const json_t *v = a->value[i] = json_object_get(params, p->name);
        a->number[i] = p->kind == PARAM_ROW ? -1 : 0;
        if (!v && !p->required)
            continue;
        known++;
        const char *wrong = v ? wrong_value(h, p, v, a, i) : "is missing";
        if (wrong) {
            harness_error(h, id, HARNESS_PARAMS, "'%s' of '%s' %s", p->name, method->name, wrong);
            return false;
        }
    }
    if (known == json_object_size(params))
        return true;
    harness_error(h, id, HARNESS_PARAMS, "'%s' has a parameter that is not known", method->name);
    return false;
}

/* ---- a message ---- */

static const struct harness_method *find_method(const struct harness *h, const char *name)
{
    for (size_t i = 0; i < harness_base_count; i++)
        if (strcmp(harness_base[i].name, name) == 0)
            return &harness_base[i];
    for (size_t i = 0; i < harness_more_count; i++)
        if (strcmp(harness_more[i].name, name) == 0 &&
            (harness_more[i].needs == NEEDS_SESSIONS ? h->sessions : h->extended))
            return &harness_more[i];
    return NULL;
}

static void on_request(struct harness *h, const struct rpc_message *m)
{
    const struct harness_method *method = find_method(h, m->method);
    struct harness_args args;
    if (!method)
        harness_error(h, m->id, HARNESS_METHOD, "there is no method '%s'", m->method);
    else if (!read_params(h, m->id, method, m->params, &args))
        return;
    else if (!h->initialized && method != harness_base)
        harness_error(h, m->id, HARNESS_NOT_INITIALIZED, "'initialize' comes before '%s'",
                      m->method);
    else if (conn_who(h->c)->access < method->access)
        harness_error(h, m->id, HARNESS_FORBIDDEN, "'%s' may not call '%s'", conn_who(h->c)->name,
                      m->method);
    else
        method->fn(h, m->id, &args);
}

static void harness_message(struct conn *c, const char *text, size_t n)
{
    struct harness *h = conn_state(c);
    struct rpc_message m;
    struct br_err err = {.code = BR_OK};
    int r = rpc_read(text, n, true, &m, &err);
    if (!conn_may_ask(c))
        harness_error(h, m.id, HARNESS_RATE_LIMITED, "this peer asks too often; try again later");
    else if (r < 0)
        harness_error(h, m.id, r == HARNESS_PARSE ? HARNESS_PARSE : HARNESS_REQUEST, "%s",
                      err.text);
    else if (m.kind == RPC_NOTIFICATION)
        harness_error(h, "null", HARNESS_REQUEST, "notifications are not taken");
    else
        on_request(h, &m);
    rpc_free(&m);
}

static void harness_open(struct conn *c)
{
    struct harness *h = calloc(1, sizeof(*h));
    br_require(h);
    h->c = c;
    h->g = conn_gateway(c);
    conn_set_state(c, h);
}

static void harness_closed(struct conn *c)
{
    struct harness *h = conn_state(c);
    if (!h)
        return;
    harness_ext_closed(h);
    harness_load_closed(h);
    while (h->follows)
        harness_follow_free(h->follows);
    sessions_disown(h->g, c);
    while (h->creates)
        harness_call_free(h->creates);
    while (h->answers) { /* session.c will say what came of them, to nobody */
        struct harness_call *call = h->answers;
        h->answers = call->next;
        call->h = NULL;
        call->at = NULL;
        call->next = NULL;
    }
    conn_set_state(c, NULL);
    free(h);
}

static void harness_writable(struct conn *c)
{
    struct harness *h = conn_state(c);
    h->behind = 0;
    for (struct harness_follow *f = h->follows; f; f = f->next)
        if (session_owner(f->sink.session_) == h->c)
            session_pause(f->sink.session_, false);
    harness_load_writable(h);
}

const struct gw_protocol gw_harness = {.name = "harness.acp.1",
                                       .open = harness_open,
                                       .message = harness_message,
                                       .writable = harness_writable,
                                       .closed = harness_closed};
