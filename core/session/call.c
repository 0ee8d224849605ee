/*
 * One tool call from intent to result: tool.call, decision, ask, grant, effect, tool.result, in
 * this order and each recorded before the next begins.
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

int session_call_effect(struct session *s, const char *call_id, struct effect *e, json_t **output,
                        struct br_err *err)
{
    enum br_effect decided;
    char permission[BR_ID_MAX];
    struct br_grant_ref grant;
    *output = NULL;
    clamp(s, e);
    int r = session_authorize(s, call_id, e, &decided, permission, err);
    if (r == 0)
        r = br_ledger_mint(s->ledger, decided, permission[0] ? permission : NULL, call_id,
                           e->action, e->subject, strlen(e->subject), &grant, err);
    if (r == 0)
        r = session_effect(s, &grant, call_id, e, output, err);
    if (r == 0 && e->op.op == BR_OP_FS_SEARCH)
        session_withhold(s, call_id, *output);
    return r;
}

/* What the model is told: the result, or one line that says what went wrong. */
static char *tell_model(json_t *output, int code, const struct br_err *err)
{
    json_t *v = code ? json_pack("{s:b, s:o}", "ok", 0, "error", error_json(code, err))
                     : json_pack("{s:b, s:O}", "ok", 1, "output", output);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text;
}

int session_call(struct session *s, const struct call *c, char **reply_text)
{
    const char *call_id = c->id, *tool = c->name;
    struct br_err err = {.code = BR_OK};
    struct effect e = {.action = NULL};
    json_t *output = NULL;
    s->effect_started_us = 0;
    *reply_text = NULL;

    json_t *args = json_loads(c->arguments, JSON_REJECT_DUPLICATES, NULL);
    int rec = session_record(
        s, "tool.call", "agent",
        json_pack("{s:s, s:s, s:O*}", "callId", call_id, "tool", tool, "input", args));
    int r = rec;
    if (r == 0 && s->budget.calls >= s->budget.calls_max)
        r = br_err_set(&err, BR_E_BUDGET_EXCEEDED, "the run has made its %u tool calls",
                       s->budget.calls_max);
    if (r == 0) {
        s->budget.calls++; /* one that cannot be used counts as well */
        err = c->bad;
        r = err.code ? -(int)err.code : tools_resolve(tool, args, &e, &err);
    }
    if (r == 0)
        r = session_call_effect(s, call_id, &e, &output, &err);
    if (rec == 0)
        rec = session_record_result(s, call_id, tool, s->effect_started_us, output, r, &err);
    *reply_text = tell_model(output, r, &err);
    json_decref(args);
    json_decref(output);
    effect_free(&e);
    if (rec < 0)
        return rec;
    if (r == -BR_E_BUDGET_EXCEEDED) {
        session_stop(s, BR_E_BUDGET_EXCEEDED, "%s", err.text);
        return r;
    }
    return s->stop_code;
}
