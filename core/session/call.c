/*
 * Tool calls from intent to result: tool.call, decision, ask, grant, effect, tool.result, of each
 * call in this order and each recorded before the next begins. Of the calls of a turn all are
 * decided before the first one runs, so that questions about them can be put together.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

/* What is shown of arguments that cannot be used. */
#define UNPARSED_MAX 2048u

/* The object that the text says, or NULL with the reason for the model. */
static json_t *parse_arguments(const char *text, size_t n, struct br_err *err)
{
    json_error_t je;
    if (n > BR_TOOL_JSON_MAX) {
        br_err_set(err, BR_E_LIMIT_EXCEEDED,
                   "the arguments have more than %u bytes; nothing was done; use smaller pieces",
                   BR_TOOL_JSON_MAX);
        return NULL;
    }
    if (br_json_scan(text, n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, err) < 0) {
        err->code = BR_E_INVALID_ARGUMENTS;
        br_err_wrap(err, "the arguments");
        return NULL;
    }
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(v)) {
        br_err_set(err, BR_E_INVALID_ARGUMENTS, "the arguments are not a valid JSON object: %s",
                   v ? "a list" : je.text);
        json_decref(v);
        return NULL;
    }
    /* the record has its own spelling of numbers, which may be longer */
    BR_CLEANUP_FREE char *again = json_dumps(v, JSON_COMPACT);
    if (again && strlen(again) <= BR_TOOL_JSON_MAX)
        return v;
    br_err_set(err, BR_E_LIMIT_EXCEEDED, "the arguments, written out, have more than %u bytes",
               BR_TOOL_JSON_MAX);
    json_decref(v);
    return NULL;
}

/* The name as it may be recorded and shown; what had to be changed is no tool's name. */
static void show_name(const char *name, char out[BR_NAME_MAX])
{
    size_t n = strlen(name), room = BR_NAME_MAX - 1;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_NAME_MAX);
    br_buf_put_visible(&b, name, n <= room ? n : br_utf8_floor(name, room), true);
    const char *text = n ? br_buf_cstr(&b) : "(no name)";
    bool whole = n <= room && text && strlen(text) <= room;
    size_t shown = !text ? 0 : whole ? strlen(text) : br_utf8_floor(text, 200);
    snprintf(out, BR_NAME_MAX, "%.*s%s", (int)shown, text ? text : "", whole ? "" : "...");
}

int session_call_read(struct call *c, const char *name, const char *text, struct br_err *err)
{
    if (!*text) /* what some models say for "none" */
        text = "{}";
    size_t n = strlen(text);
    c->bad = (struct br_err){.code = BR_OK};
    show_name(name, c->name);
    json_t *args = parse_arguments(text, n, &c->bad);
    if (args) {
        c->arguments = strdup(text);
    } else {
        size_t cut = n <= UNPARSED_MAX ? n : br_utf8_floor(text, UNPARSED_MAX);
        json_t *shown = json_pack("{s:s%}", "unparsed", text, cut);
        c->arguments = json_dumps(shown, JSON_COMPACT);
        json_decref(shown);
    }
    json_decref(args);
    return c->arguments ? 0 : br_err_set(err, BR_E_NOMEM, "no memory for a tool call");
}

/* Messages quote, cut, what models and tools said. */
static json_t *error_json(int code, const struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_ERR_TEXT_MAX);
    br_buf_put_visible(&b, err->text, strlen(err->text), false);
    const char *text = br_buf_cstr(&b);
    return json_pack("{s:s, s:s}", "code", br_code_name(code), "message", text ? text : "");
}

int session_record_result(struct session *s, const char *call_id, const char *tool,
                          uint64_t started_us, json_t *output, int code, const struct br_err *err)
{
    json_t *data = json_pack("{s:s, s:s, s:b}", "callId", call_id, "tool", tool, "ok", code == 0);
    if (output)
        json_object_set(data, "output", output);
    if (code)
        json_object_set_new(data, "error", error_json(code, err));
    json_object_set_new(
        data, "durationMs",
        json_integer((json_int_t)((started_us ? br_now_us() - started_us : 0) / 1000)));
    return session_record(s, "tool.result", "sandbox-runner", data);
}

/* The profile's limits of one command are ceilings, whoever asked for more. */
static void clamp(const struct session *s, struct effect *e)
{
    const struct br_limits *l = &s->profile.plan.limits;
    if (e->op.op != BR_OP_EXEC)
        return;
    if (e->op.timeout_ms / 1000 > l->exec_seconds)
        e->op.timeout_ms = l->exec_seconds * 1000;
    if (e->op.output_max > l->output_bytes)
        e->op.output_max = l->output_bytes;
}

static json_t *denied_output(struct session *s, const struct attempt *a)
{
    json_t *denied = instead_json(s, a);
    return denied ? json_pack("{s:o}", "denied", denied) : NULL;
}

int session_call_effect(struct session *s, const char *call_id, struct effect *e, json_t **output,
                        struct br_err *err)
{
    struct attempt *a = calloc(1, sizeof(*a));
    *output = NULL;
    if (!a)
        return br_err_set(err, BR_E_NOMEM, "no memory for a call");
    clamp(s, e);
    s->attempts = a;
    s->nattempts = 1;
    int r = attempt_open(s, a, call_id, e);
    if (r == 0)
        (void)attempts_answer(s, a, 1);
    s->attempts = NULL;
    s->nattempts = 0;
    r = attempt_run(s, a, output);
    if (r < 0)
        *err = a->err;
    if (r == -BR_E_DENIED)
        *output = denied_output(s, a);
    attempt_free(a);
    free(a);
    return r;
}

/* ---- the calls of a turn ---- */

/* What the model is told: the result, or one line that says what went wrong. */
static char *tell_model(json_t *output, int code, const struct br_err *err)
{
    json_t *v = code ? json_pack("{s:b, s:o}", "ok", 0, "error", error_json(code, err))
                     : json_pack("{s:b, s:O}", "ok", 1, "output", output);
    json_t *denied = code ? json_object_get(output, "denied") : NULL;
    if (denied)
        json_object_set(v, "denied", denied);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text;
}

/* One call of a turn. */
struct turn_call {
    const struct call *call;
    struct effect e;
    bool opened; /* there is an attempt */
    int code;    /* without one: why */
    struct br_err err;
};

/* tool.call, and what the call would do. A negative code if the run must end. */
static int begin_call(struct session *s, struct turn_call *t)
{
    const struct call *c = t->call;
    json_t *args = json_loads(c->arguments, JSON_REJECT_DUPLICATES, NULL);
    int r = session_record(
        s, "tool.call", "agent",
        json_pack("{s:s, s:s, s:O*}", "callId", c->id, "tool", c->name, "input", args));
    if (r < 0) {
        t->code = r;
    } else if (s->budget.calls >= s->budget.calls_max) {
        t->code = br_err_set(&t->err, BR_E_BUDGET_EXCEEDED, "the run has made its %u tool calls",
                             s->budget.calls_max);
    } else {
        s->budget.calls++; /* one that cannot be used counts as well */
        t->err = c->bad;
        t->code = c->bad.code ? -(int)c->bad.code : tools_resolve(c->name, args, &t->e, &t->err);
    }
    json_decref(args);
    return r;
}

/* From grant to tool.result. */
static int finish_call(struct session *s, struct turn_call *t, struct attempt *a, char **reply)
{
    json_t *output = NULL;
    s->effect_started_us = 0;
    int code = t->opened ? attempt_run(s, a, &output) : t->code;
    const struct br_err *err = t->opened ? &a->err : &t->err;
    if (t->opened && code == -BR_E_DENIED)
        output = denied_output(s, a);
    int r = session_record_result(s, t->call->id, t->call->name, s->effect_started_us, output, code,
                                  err);
    *reply = tell_model(output, code, err);
    json_decref(output);
    if (r == 0 && code == -BR_E_BUDGET_EXCEEDED) {
        session_stop(s, BR_E_BUDGET_EXCEEDED, "%s", err->text);
        return code;
    }
    return r;
}

/* Decide them in their order. How many there are to go on with: one that is over the budget ends
 * the run, so nothing behind it is looked at. */
static size_t open_calls(struct session *s, struct turn_call *t, struct attempt *a, size_t n,
                         int *r)
{
    for (size_t i = 0; i < n; i++) {
        *r = begin_call(s, &t[i]);
        if (*r < 0)
            return i;
        if (t[i].code == 0) {
            clamp(s, &t[i].e);
            t[i].opened = true;
            s->nattempts = i + 1;
            *r = attempt_open(s, &a[i], t[i].call->id, &t[i].e);
        }
        if (*r < 0 || s->stop_code || t[i].code == -BR_E_BUDGET_EXCEEDED)
            return i + 1;
    }
    return n;
}

int session_calls(struct session *s, const struct call *calls, size_t n, char **replies)
{
    struct turn_call *t = calloc(n + 1, sizeof(*t));
    struct attempt *a = calloc(n + 1, sizeof(*a));
    int r = 0;
    size_t open = 0;
    for (size_t i = 0; t && i < n; i++)
        t[i].call = &calls[i];
    if (t && a) {
        s->attempts = a;
        open = open_calls(s, t, a, n, &r);
        if (r == 0)
            r = attempts_answer(s, a, open);
        s->attempts = NULL;
        s->nattempts = 0;
    } else {
        session_stop(s, BR_E_NOMEM, "no memory for the calls of a turn");
        r = -BR_E_NOMEM;
    }
    /* each that was begun gets its result, whatever happened in between */
    for (size_t i = 0; i < open; i++) {
        int one = finish_call(s, &t[i], &a[i], &replies[i]);
        r = r < 0 ? r : one;
    }
    for (size_t i = 0; i < n; i++) {
        if (t)
            effect_free(&t[i].e);
        if (a)
            attempt_free(&a[i]);
    }
    free(t);
    free(a);
    return r < 0 ? r : s->stop_code;
}

int session_call(struct session *s, const struct call *c, char **reply_text)
{
    *reply_text = NULL;
    return session_calls(s, c, 1, reply_text);
}
