/*
 * The record of a session's run, as bridle-audit shows it: the stored bytes, row by row. They are
 * passed on as they are; what the gateway itself has to know (open questions, usage, the text of
 * the last turn, that the agent has stopped) is read from a few of them. A row that is missing,
 * comes behind the end, or does not begin as every stored event does, ends the session: a client is
 * never shown a gap.
 */
#include <stdlib.h>
#include <string.h>

#include "gateway/session_priv.h"

#define TYPE_PREFIX "{\"v\":1,\"type\":\""
#define TYPE_MAX 64u
#define SAFE_MAX 9007199254740991u

/* ---- what the gateway reads itself ---- */

typedef void seen_fn(struct gw_session *s, const json_t *event, const json_t *data);

static void on_asked(struct gw_session *s, const json_t *event, const json_t *data)
{
    (void)event;
    session_ask_open(s, data);
}

static void on_ask(struct gw_session *s, const json_t *event, const json_t *data)
{
    (void)event;
    session_ask_scope(s, data);
}

static uint64_t count(const json_t *usage, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(usage, key));
    return v > 0 ? (uint64_t)v : 0;
}

/* Sums that a client can read as a number. */
static void add(uint64_t *sum, uint64_t n, uint64_t max)
{
    *sum = n > max - *sum ? max : *sum + n;
}

static void on_usage(struct gw_session *s, const json_t *usage, const json_t *data)
{
    struct gw_counters *n = gw_counters(s->g);
    uint64_t prompt = count(usage, "promptTokens"), completion = count(usage, "completionTokens");
    (void)data;
    /* their total is a number as well */
    add(&s->result.prompt_tokens, prompt, SAFE_MAX - s->result.completion_tokens);
    add(&s->result.completion_tokens, completion, SAFE_MAX - s->result.prompt_tokens);
    n->tokens_prompt += prompt;
    n->tokens_completion += completion;
}

static void on_request(struct gw_session *s, const json_t *event, const json_t *data)
{
    (void)event, (void)data;
    gw_counters(s->g)->model_requests++;
    br_buf_reset(&s->text); /* the text of the last turn is what counts */
}

static void on_text(struct gw_session *s, const json_t *event, const json_t *data)
{
    const json_t *text = json_object_get(data, "text");
    (void)event;
    if (json_is_string(text))
        br_buf_put(&s->text, json_string_value(text), json_string_length(text));
}

static void on_call(struct gw_session *s, const json_t *event, const json_t *data)
{
    (void)event, (void)data;
    gw_counters(s->g)->tool_calls++;
}

static void on_stopped(struct gw_session *s, const json_t *event, const json_t *data)
{
    const char *status = json_string_value(json_object_get(data, "status"));
    (void)event;
    snprintf(s->result.stopped, sizeof(s->result.stopped), "%s", status ? status : "");
    s->stopped = true;
}

/* A member that is an object, up to its brace. In a string, quotes are escaped. */
#define USAGE "\"usage\":{"

static const struct seen {
    const char *type;
    const char *part; /* that is parsed; "": all of it; NULL: it only counts that it came */
    seen_fn *fn;
} seen[] = {
    {"model.request", NULL, on_request},
    {"model.response", USAGE, on_usage},
    {"tool.call", NULL, on_call},
    {"permission.requested", "", on_asked},
    {"permission.resolved", "", session_ask_resolved},
    {"bridle.ask", "", on_ask},
    {"bridle.text", "", on_text},
    {"agent.stopped", "", on_stopped},
};

/* 0: there is no such part, or it is *parsed. */
static int parse(const struct gw_event *e, const char *part, json_t **parsed, struct br_err *err)
{
    size_t n = strlen(part);
    const char *at = n ? memmem(e->bytes, e->n, part, n) : e->bytes;
    if (!at)
        return 0;
    if (n)
        at += n - 1;
    *parsed = json_loadb(at, e->n - (size_t)(at - e->bytes),
                         JSON_REJECT_DUPLICATES | (n ? JSON_DISABLE_EOF_CHECK : 0), NULL);
    return *parsed ? 0
                   : br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent an event that is no JSON");
}

static int look(struct gw_session *s, const struct gw_event *e, struct br_err *err)
{
    const struct seen *k = seen, *end = seen + BR_ARRAY_LEN(seen);
    while (k < end && (strlen(k->type) != e->ntype || memcmp(k->type, e->type, e->ntype) != 0))
        k++;
    if (k == end)
        return 0;
    json_t *parsed = NULL;
    int r = k->part ? parse(e, k->part, &parsed, err) : 0;
    if (r == 0)
        k->fn(s, parsed, json_object_get(parsed, "data"));
    json_decref(parsed);
    return r;
}

/* ---- one event ---- */

int session_event_type(struct gw_event *e)
{
    size_t prefix = sizeof(TYPE_PREFIX) - 1;
    if (e->n <= prefix || memcmp(e->bytes, TYPE_PREFIX, prefix) != 0)
        return -BR_E_PEER_PROTOCOL;
    e->type = e->bytes + prefix;
    size_t left = e->n - prefix;
    const char *end = memchr(e->type, '"', left < TYPE_MAX ? left : TYPE_MAX);
    if (!end || end == e->type)
        return -BR_E_PEER_PROTOCOL;
    e->ntype = (size_t)(end - e->type);
    e->own = e->ntype > 7 && memcmp(e->type, "bridle.", 7) == 0;
    return 0;
}

/* Every follower that was there before it; they may leave meanwhile. */
static void dispatch(struct gw_session *s, const struct gw_event *e)
{
    s->dispatching++;
    for (struct gw_sink *k = s->sinks; k; k = s->next_sink) {
        s->next_sink = k->next_;
        if (e->row > k->from_)
            k->event(k, s, e);
    }
    s->dispatching--;
}

static int take(struct gw_session *s, uint64_t row, const void *bytes, size_t n, struct br_err *err)
{
    struct gw_event e = {.row = row, .bytes = bytes, .n = n};
    if (row != s->row + 1)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "the record has a gap: row %llu came after %llu",
                          (unsigned long long)row, (unsigned long long)s->row);
    if (s->stopped)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an event came after the end of the agent");
    if (session_event_type(&e) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an event does not begin as one");
    if (!e.own && (s->seq >= SESSION_EVENTS_MAX || n > SESSION_EVENT_BYTES_MAX))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "an event is more than a client takes");
    int r = look(s, &e, err);
    if (r < 0)
        return r;
    s->row = row;
    e.seq = e.own ? s->own++ : s->seq++;
    e.after = e.own ? (int64_t)s->seq - 1 : -1;
    dispatch(s, &e);
    otlp_event(s->g, s, &e);
    if (s->seq == SESSION_EVENTS_MAX - SESSION_EVENTS_RESERVE && !e.own && !s->stopped) {
        s->limited = true;
        snprintf(s->why, sizeof(s->why), "the session has as many events as a client takes");
        (void)session_cancel(s, s->why);
    }
    return 0;
}

/* ---- its channel ---- */

static int on_event(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gw_session *s = ctx;
    BR_CLEANUP_BUF struct br_buf large;
    uint64_t row = br_rd_u64(&m->rd);
    size_t n = 0;
    const void *bytes = br_msg_blob_view(m, BR_EVENT_MAX, &large, &n, err);
    (void)c;
    if (br_rd_done(&m->rd) < 0 || !bytes)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent a malformed EVENT");
    return take(s, row, bytes, n, err);
}

/* Several in one message. The session may end over one of them: the rest is not taken then. */
static int on_events(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gw_session *s = ctx;
    uint64_t row = br_rd_u64(&m->rd);
    while (m->rd.off < m->rd.len) {
        size_t n = 0;
        const void *bytes = br_rd_bytes(&m->rd, BR_MSG_MAX, &n);
        if (!bytes || !n)
            return br_err_set(err, BR_E_PEER_PROTOCOL, "'audit' sent malformed EVENTS");
        int r = take(s, row++, bytes, n, err);
        if (r < 0 || c->fd < 0)
            return r;
    }
    return 0;
}

static int on_events_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err; /* how a run ended is said by bridled */
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_EVENT, BR_PERMIT, 13, BR_MSG_MAX, 0, 1, on_event},
    {BR_MSG_EVENTS, BR_PERMIT, 13, BR_MSG_MAX, 0, 0, on_events},
    {BR_MSG_EVENTS_END, BR_PERMIT | BR_ONCE, 8, BR_ERR_TEXT_MAX + 16, 0, 0, on_events_end},
};

static int on_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gw_session *s = ctx;
    br_chan_close(c);
    if (code != -BR_E_PEER_GONE)
        session_break(s, (enum br_code) - code,
                      err && err->text[0] ? err->text : br_code_name(code));
    else if (!s->stopped && s->row)
        session_break(s, BR_E_PROGRAM_DIED, "the record of the run broke off");
    else if (!s->stopped && !s->over) /* it never began: bridled is going to say why */
        (void)session_cancel(s, "nothing of it could be stored");
    session_check_end(s);
    return 0;
}

int session_feed(struct gw_session *s, int fd)
{
    s->fed = true;
    br_chan_init(&s->audit, fd, "audit", rules, BR_ARRAY_LEN(rules), s);
    return gw_watch_chan(s->g, &s->audit, on_end, s);
}

void session_pause(struct gw_session *s, bool yes)
{
    if (s->audit.fd < 0 || s->paused == yes)
        return;
    s->paused = yes;
    if (yes)
        gw_unwatch_chan(s->g, &s->audit);
    else if (gw_watch_chan(s->g, &s->audit, on_end, s) < 0)
        session_break(s, BR_E_INTERNAL, "the run's record could not be watched");
}

void session_unfeed(struct gw_session *s)
{
    s->paused = false;
    if (s->audit.fd < 0)
        return;
    gw_unwatch_chan(s->g, &s->audit);
    br_chan_close(&s->audit);
}
