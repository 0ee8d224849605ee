/*
 * One tool call from intent to result: tool.call, decision, ask, grant, effect, tool.result, in
 * this order and each recorded before the next begins.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

static json_t *parse_arguments(const char *text, struct br_err *err)
{
    size_t n = strlen(text);
    json_error_t je;
    if (n > BR_TOOL_JSON_MAX) {
        br_err_set(err, BR_E_INVALID_ARGUMENTS, "the arguments are larger than %u bytes",
                   BR_TOOL_JSON_MAX);
        return NULL;
    }
    if (br_json_scan(text, n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, err) < 0) {
        err->code = BR_E_INVALID_ARGUMENTS;
        return NULL;
    }
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!v)
        br_err_set(err, BR_E_INVALID_ARGUMENTS, "the arguments are not valid JSON: %s", je.text);
    return v;
}

int session_record_result(struct session *s, const char *call_id, const char *tool,
                          uint64_t started_us, json_t *output, int code, const struct br_err *err)
{
    json_t *data = json_pack("{s:s, s:s, s:b}", "callId", call_id, "tool", tool, "ok", code == 0);
    if (output)
        json_object_set(data, "output", output);
    if (code)
        json_object_set_new(
            data, "error",
            json_pack("{s:s, s:s}", "code", br_code_name(code), "message", err->text));
    json_object_set_new(data, "durationMs",
                        json_integer((json_int_t)((br_now_us() - started_us) / 1000)));
    return session_record(s, "tool.result", "sandbox-runner", data);
}

int session_call_effect(struct session *s, const char *call_id, struct effect *e, json_t **output,
                        struct br_err *err)
{
    enum br_effect decided;
    char permission[BR_ID_MAX];
    struct br_grant_ref grant;
    *output = NULL;
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
    json_t *v = code ? json_pack("{s:b, s:{s:s, s:s}}", "ok", 0, "error", "code",
                                 br_code_name(code), "message", err->text)
                     : json_pack("{s:b, s:O}", "ok", 1, "output", output);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text;
}

int session_call(struct session *s, const char *call_id, const char *tool, const char *arguments,
                 char **reply_text)
{
    struct br_err err = {.code = BR_OK};
    struct effect e = {.action = NULL};
    json_t *output = NULL;
    uint64_t started = br_now_us();
    *reply_text = NULL;

    json_t *args = parse_arguments(arguments, &err);
    json_t *input = args ? json_incref(args)
                         : json_pack("{s:s%}", "unparsed", arguments, strnlen(arguments, 2048));
    if (!input) /* not even UTF-8 */
        input = json_pack("{s:s}", "unparsed", "(not valid UTF-8)");
    int rec = session_record(
        s, "tool.call", "agent",
        json_pack("{s:s, s:s, s:o}", "callId", call_id, "tool", tool, "input", input));
    int r = rec < 0 ? rec : args ? 0 : -(int)err.code;
    if (r == 0 && s->budget.calls >= s->budget.calls_max)
        r = br_err_set(&err, BR_E_BUDGET_EXCEEDED, "the run has made its %u tool calls",
                       s->budget.calls_max);
    if (r == 0) {
        s->budget.calls++;
        r = tools_resolve(tool, args, &e, &err);
    }
    if (r == 0)
        r = session_call_effect(s, call_id, &e, &output, &err);
    if (rec == 0)
        rec = session_record_result(s, call_id, tool, started, output, r, &err);
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
