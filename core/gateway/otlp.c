/*
 * Telemetry: what the events of a session say of time, tokens and outcome, as spans and histograms
 * of the GenAI semantic conventions of OpenTelemetry (docs/telemetry.md). Called by session.c for
 * every event, before anything is sent to a client; it never waits, and keeps what is bounded.
 *
 * Nothing of a prompt, an answer, an argument, a result or a path is looked at. What names things
 * (models, tools, ids) comes from a record whose author may be a model: a name that is none of ours
 * becomes "_OTHER", an id that is no plain word is left out.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/otlp_priv.h"

struct otlp_open {
    char id[BR_ID_MAX], name[OTLP_NAME_MAX];
    uint64_t start_ns;
    bool tool;
};

/* One run. */
struct otlp_run {
    struct otlp_run *next;
    const struct gw_session *s; /* only compared */
    char trace[33], root[17];
    char session[BR_ID_MAX], agent[BR_ID_MAX], model[OTLP_NAME_MAX], status[24];
    uint64_t start_ns, last_ns, input, output;
    struct otlp_open open[OTLP_OPEN_MAX];
    unsigned nopen;
};

/* ---- names ---- */

static bool is_word(const char *s, size_t n, size_t max)
{
    if (!n || n >= max)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr("._:/@+-", c)))
            return false;
    }
    return true;
}

/* The tools of Bridle and of the harnesses that it runs; another name may say anything. */
static const char *tool_name(const char *s, size_t n)
{
    static const char *const tools[] = {
        "fs_edit", "fs_list", "fs_read", "fs_search", "fs_write", "read",        "write",
        "edit",    "bash",    "grep",    "find",      "ls",       "process_exec"};
    for (size_t i = 0; i < BR_ARRAY_LEN(tools); i++)
        if (strlen(tools[i]) == n && memcmp(tools[i], s, n) == 0)
            return tools[i];
    return "_OTHER";
}

/* A model that the operator offers, or the label of one ("NAME (scripted)"). */
static void model_name(struct gateway *g, char dst[OTLP_NAME_MAX], const char *s)
{
    unsigned n;
    char *const *models = gw_models(g, &n);
    snprintf(dst, OTLP_NAME_MAX, "_OTHER");
    for (unsigned i = 0; s && i < n; i++) {
        size_t k = strlen(models[i]);
        if (strncmp(s, models[i], k) == 0 && (s[k] == 0 || s[k] == ' ') && k < OTLP_NAME_MAX)
            snprintf(dst, OTLP_NAME_MAX, "%s", models[i]);
    }
}

/* ---- what an event says ---- */

/* Nanoseconds of its "at", which stands near its beginning; now if it is not as expected. */
static uint64_t event_ns(const struct gw_event *e)
{
    size_t n = e->n < 256 ? e->n : 256;
    const char *p = memmem(e->bytes, n, "\"at\":\"", 6);
    int y, mo, d, h, mi, s, ms;
    char at[32] = "";
    if (p && (size_t)(e->bytes + e->n - p) > 6 + 29)
        memcpy(at, p + 6, 29);
    if (sscanf(at, "%4d-%2d-%2dT%2d:%2d:%2d.%3d+00:00", &y, &mo, &d, &h, &mi, &s, &ms) != 7)
        return br_now_wall_us() * 1000;
    /* days since 1970 (Howard Hinnant's algorithm) */
    int yy = y - (mo <= 2);
    int era = yy / 400, yoe = yy - era * 400;
    int doy = (153 * (mo + (mo > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int64_t days = (int64_t)era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
    return (uint64_t)(((days * 24 + h) * 60 + mi) * 60 + s) * 1000000000u + (uint64_t)ms * 1000000u;
}

/* The members of "data" come in the order of the table of events, the ids first: they are read from
 * its beginning, however long the rest is. */
static bool member(const char **p, const char *end, const char *key, const char **s, size_t *n)
{
    size_t k = strlen(key);
    if ((size_t)(end - *p) < k + 6 || **p != '"' || memcmp(*p + 1, key, k) != 0 ||
        memcmp(*p + 1 + k, "\":\"", 3) != 0)
        return false;
    *s = *p + k + 4;
    const char *close = memchr(*s, '"', (size_t)(end - *s));
    if (!close || (close + 1 < end && memchr(*s, '\\', (size_t)(close - *s))))
        return false;
    *n = (size_t)(close - *s);
    *p = close + 1 + (close + 1 < end && close[1] == ',');
    return true;
}

static const char *data_of(const struct gw_event *e)
{
    const char *p = memmem(e->bytes, e->n < 512 ? e->n : 512, "\"data\":{", 8);
    return p ? p + 8 : NULL;
}

/* ---- spans ---- */

static void random_hex(char *dst, size_t bytes)
{
    uint8_t raw[16];
    br_random(raw, bytes);
    raw[0] |= 1; /* all zero is no id */
    br_hex(dst, raw, bytes);
}

static void span_begin(struct br_buf *b, const struct otlp_run *r, const char *id,
                       const char *parent, const char *name, unsigned kind, uint64_t start_ns,
                       uint64_t end_ns)
{
    br_buf_printf(b, "{\"traceId\":\"%s\",\"spanId\":\"%s\",", r->trace, id);
    if (parent)
        br_buf_printf(b, "\"parentSpanId\":\"%s\",", parent);
    br_buf_printf(b, "\"name\":");
    br_buf_put_json_str(b, name, strlen(name));
    br_buf_printf(b,
                  ",\"kind\":%u,\"startTimeUnixNano\":\"%llu\",\"endTimeUnixNano\":\"%llu\","
                  "\"attributes\":[",
                  kind, (unsigned long long)start_ns,
                  (unsigned long long)(end_ns < start_ns ? start_ns : end_ns));
}

static void span_end(struct br_buf *b, const char *error)
{
    if (error)
        otlp_text(b, "error.type", error);
    br_buf_printf(b, "],\"status\":{%s}}", error ? "\"code\":2" : "");
}

static void put_operation(struct br_buf *b, const char *operation)
{
    otlp_text(b, "gen_ai.operation.name", operation);
    otlp_text(b, "gen_ai.provider.name", "bridle");
}

static struct otlp_series *series_of(struct otlp *o, const char *operation, const char *name)
{
    for (unsigned i = 0; i < o->nseries; i++)
        if (strcmp(o->series[i].operation, operation) == 0 && strcmp(o->series[i].name, name) == 0)
            return &o->series[i];
    if (o->nseries == OTLP_SERIES_MAX) /* more models than anybody offers */
        return &o->series[OTLP_SERIES_MAX - 1];
    struct otlp_series *s = &o->series[o->nseries++];
    *s = (struct otlp_series){.operation = operation};
    snprintf(s->name, sizeof(s->name), "%s", name);
    return s;
}

static struct otlp_series *took(struct otlp *o, const char *operation, const char *name,
                                uint64_t start_ns, uint64_t end_ns)
{
    struct otlp_series *s = series_of(o, operation, name);
    otlp_count(&s->seconds, otlp_second_bounds, OTLP_BOUNDS_MAX,
               end_ns > start_ns ? (double)(end_ns - start_ns) / 1e9 : 0);
    return s;
}

/* ---- runs ---- */

static struct otlp_run *run_of(struct otlp *o, struct gw_session *s, bool make, uint64_t now)
{
    struct otlp_run *r = o->runs;
    while (r && r->s != s)
        r = r->next;
    if (r || !make || !(r = calloc(1, sizeof(*r))))
        return r;
    r->s = s;
    r->start_ns = now;
    random_hex(r->trace, 16);
    random_hex(r->root, 8);
    snprintf(r->session, sizeof(r->session), "%s", session_id(s));
    snprintf(r->model, sizeof(r->model), "_OTHER");
    r->next = o->runs;
    o->runs = r;
    return r;
}

static void open_one(struct otlp_run *r, bool tool, const char *id, size_t n, const char *name,
                     uint64_t now)
{
    if (r->nopen == OTLP_OPEN_MAX || n >= BR_ID_MAX)
        return;
    struct otlp_open *one = &r->open[r->nopen++];
    *one = (struct otlp_open){.start_ns = now, .tool = tool};
    memcpy(one->id, id, n);
    snprintf(one->name, sizeof(one->name), "%s", name);
}

static bool close_one(struct otlp_run *r, bool tool, const char *id, size_t n,
                      struct otlp_open *out)
{
    for (unsigned i = 0; i < r->nopen; i++) {
        if (r->open[i].tool != tool || strlen(r->open[i].id) != n ||
            memcmp(r->open[i].id, id, n) != 0)
            continue;
        *out = r->open[i];
        r->open[i] = r->open[--r->nopen];
        return true;
    }
    return false;
}

static void end_tool(struct otlp *o, struct otlp_run *r, const struct otlp_open *c,
                     const char *error, uint64_t now)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(OTLP_SPAN_MAX);
    char id[17], name[OTLP_NAME_MAX + 16];
    random_hex(id, 8);
    snprintf(name, sizeof(name), "execute_tool %s", c->name);
    span_begin(&b, r, id, r->root, name, 1, c->start_ns, now);
    put_operation(&b, "execute_tool");
    otlp_text(&b, "gen_ai.tool.name", c->name);
    otlp_text(&b, "gen_ai.tool.type", "function");
    if (is_word(c->id, strlen(c->id), 64) && strncmp(c->id, "call_", 5) == 0)
        otlp_text(&b, "gen_ai.tool.call.id", c->id);
    span_end(&b, error);
    otlp_put(o, &b);
    (void)took(o, "execute_tool", c->name, c->start_ns, now);
}

/* `usage` NULL: it has none. */
static void end_chat(struct otlp *o, struct otlp_run *r, const struct otlp_open *c,
                     const char *finish, const json_t *usage, uint64_t now)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(OTLP_SPAN_MAX);
    char id[17], name[OTLP_NAME_MAX + 16];
    json_int_t input = json_integer_value(json_object_get(usage, "promptTokens"));
    json_int_t output = json_integer_value(json_object_get(usage, "completionTokens"));
    random_hex(id, 8);
    snprintf(name, sizeof(name), "chat %s", c->name);
    span_begin(&b, r, id, r->root, name, 3, c->start_ns, now);
    put_operation(&b, "chat");
    otlp_text(&b, "gen_ai.request.model", c->name);
    otlp_text(&b, "gen_ai.response.model", c->name);
    otlp_text(&b, "gen_ai.conversation.id", r->session);
    bool failed = strcmp(finish, "error") == 0 || strcmp(finish, "none") == 0;
    if (!failed)
        br_buf_printf(&b,
                      ",{\"key\":\"gen_ai.response.finish_reasons\",\"value\":{\"arrayValue\":{"
                      "\"values\":[{\"stringValue\":\"%s\"}]}}}",
                      finish);
    struct otlp_series *s = took(o, "chat", c->name, c->start_ns, now);
    if (usage) {
        otlp_int(&b, "gen_ai.usage.input_tokens", (uint64_t)input);
        otlp_int(&b, "gen_ai.usage.output_tokens", (uint64_t)output);
        otlp_count(&s->input, otlp_token_bounds, OTLP_BOUNDS_MAX, (double)input);
        otlp_count(&s->output, otlp_token_bounds, OTLP_BOUNDS_MAX, (double)output);
        r->input += (uint64_t)input;
        r->output += (uint64_t)output;
    }
    span_end(&b, failed ? "_OTHER" : NULL);
    otlp_put(o, &b);
}

/* ---- one function per type ---- */

struct seen {
    struct otlp *o;
    struct otlp_run *r;
    const char *p, *end; /* data, behind its brace */
    uint64_t now;
};

static void on_started(struct seen *e)
{
    const char *s;
    size_t n;
    e->r->start_ns = e->now;
    if (member(&e->p, e->end, "agentId", &s, &n) && is_word(s, n, sizeof(e->r->agent)))
        snprintf(e->r->agent, sizeof(e->r->agent), "%.*s", (int)n, s);
    char model[OTLP_NAME_MAX] = "";
    if (!member(&e->p, e->end, "sessionId", &s, &n))
        return;
    (void)member(&e->p, e->end, "taskId", &s, &n); /* which need not be there */
    if (member(&e->p, e->end, "model", &s, &n) && n < sizeof(model)) {
        memcpy(model, s, n);
        model_name(e->o->g, e->r->model, model);
    }
}

static void on_request(struct seen *e)
{
    const char *id, *s;
    char model[OTLP_NAME_MAX] = "", name[OTLP_NAME_MAX];
    size_t n, k;
    if (!member(&e->p, e->end, "requestId", &id, &n) || !member(&e->p, e->end, "model", &s, &k))
        return;
    if (k < sizeof(model))
        memcpy(model, s, k);
    model_name(e->o->g, name, model);
    open_one(e->r, false, id, n, name, e->now);
}

static void on_response(struct seen *e)
{
    static const char *const reasons[] = {"stop", "tool_calls", "length", "error"};
    const char *id, *s, *finish = "error";
    size_t n, k;
    struct otlp_open c;
    if (!member(&e->p, e->end, "requestId", &id, &n) || !member(&e->p, e->end, "model", &s, &k) ||
        !member(&e->p, e->end, "finishReason", &s, &k) || !close_one(e->r, false, id, n, &c))
        return;
    for (size_t i = 0; i < BR_ARRAY_LEN(reasons); i++)
        if (strlen(reasons[i]) == k && memcmp(reasons[i], s, k) == 0)
            finish = reasons[i];
    json_t *usage = NULL;
    size_t left = (size_t)(e->end - e->p);
    if (left > 8 && left < 512 && memcmp(e->p, "\"usage\":", 8) == 0)
        usage = json_loadb(e->p + 8, left - 8, JSON_DISABLE_EOF_CHECK, NULL);
    end_chat(e->o, e->r, &c, finish, usage, e->now);
    json_decref(usage);
}

static void on_call(struct seen *e)
{
    const char *id, *s;
    size_t n, k;
    if (member(&e->p, e->end, "callId", &id, &n) && member(&e->p, e->end, "tool", &s, &k))
        open_one(e->r, true, id, n, tool_name(s, k), e->now);
}

static void on_result(struct seen *e)
{
    static const char failed[] = "\"ok\":false";
    const char *id, *s;
    size_t n, k;
    struct otlp_open c;
    if (!member(&e->p, e->end, "callId", &id, &n) || !member(&e->p, e->end, "tool", &s, &k) ||
        !close_one(e->r, true, id, n, &c))
        return;
    bool bad = (size_t)(e->end - e->p) >= sizeof(failed) - 1 &&
               memcmp(e->p, failed, sizeof(failed) - 1) == 0;
    end_tool(e->o, e->r, &c, bad ? "tool_error" : NULL, e->now);
}

static void on_stopped(struct seen *e)
{
    static const char *const states[] = {"completed", "failed", "canceled", "budget_exceeded"};
    const char *s;
    size_t n;
    if (!member(&e->p, e->end, "agentId", &s, &n) || !member(&e->p, e->end, "status", &s, &n))
        return;
    for (size_t i = 0; i < BR_ARRAY_LEN(states); i++)
        if (strlen(states[i]) == n && memcmp(states[i], s, n) == 0)
            snprintf(e->r->status, sizeof(e->r->status), "%s", states[i]);
}

static const struct {
    const char *type;
    void (*fn)(struct seen *e);
} types[] = {
    {"agent.started", on_started}, {"model.request", on_request}, {"model.response", on_response},
    {"tool.call", on_call},        {"tool.result", on_result},    {"agent.stopped", on_stopped},
};

void otlp_event(struct gateway *g, struct gw_session *s, const struct gw_event *e)
{
    struct otlp *o = *gw_otlp_slot(g);
    if (!o || e->own)
        return;
    size_t i = 0;
    while (i < BR_ARRAY_LEN(types) &&
           (strlen(types[i].type) != e->ntype || memcmp(types[i].type, e->type, e->ntype) != 0))
        i++;
    const char *data = i < BR_ARRAY_LEN(types) ? data_of(e) : NULL;
    if (!data)
        return;
    struct seen seen = {.o = o, .p = data, .end = e->bytes + e->n, .now = event_ns(e)};
    seen.r = run_of(o, s, true, seen.now);
    if (!seen.r)
        return;
    seen.r->last_ns = seen.now;
    types[i].fn(&seen);
}

static void put_root(struct otlp *o, struct otlp_run *r)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(OTLP_SPAN_MAX);
    bool good = strcmp(r->status, "completed") == 0;
    span_begin(&b, r, r->root, NULL, "invoke_agent bridle", 1, r->start_ns, r->last_ns);
    put_operation(&b, "invoke_agent");
    otlp_text(&b, "gen_ai.agent.name", "bridle");
    if (r->agent[0])
        otlp_text(&b, "gen_ai.agent.id", r->agent);
    otlp_text(&b, "gen_ai.conversation.id", r->session);
    otlp_text(&b, "gen_ai.request.model", r->model);
    otlp_int(&b, "gen_ai.usage.input_tokens", r->input);
    otlp_int(&b, "gen_ai.usage.output_tokens", r->output);
    otlp_text(&b, "bridle.status", r->status[0] ? r->status : "failed");
    span_end(&b, good ? NULL : r->status[0] ? r->status : "failed");
    otlp_put(o, &b);
    (void)took(o, "invoke_agent", r->model, r->start_ns, r->last_ns);
}

void otlp_ended(struct gateway *g, struct gw_session *s)
{
    struct otlp *o = *gw_otlp_slot(g);
    for (struct otlp_run **p = o ? &o->runs : NULL; p && *p; p = &(*p)->next) {
        struct otlp_run *r = *p;
        if (r->s != s)
            continue;
        for (unsigned i = 0; i < r->nopen; i++) { /* what the record left open */
            if (r->open[i].tool)
                end_tool(o, r, &r->open[i], "canceled", r->last_ns);
            else
                end_chat(o, r, &r->open[i], "none", NULL, r->last_ns);
        }
        put_root(o, r);
        *p = r->next;
        free(r);
        return;
    }
}

int otlp_begin(struct gateway *g, int fd, struct br_err *err)
{
    struct otlp *o = calloc(1, sizeof(*o));
    if (!o) {
        br_close(&fd);
        return br_err_set(err, BR_E_NOMEM, "no memory for telemetry");
    }
    o->g = g;
    *gw_otlp_slot(g) = o;
    return otlp_open(o, fd, err);
}
