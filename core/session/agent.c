/*
 * The three things a session can be asked for: an agent working on a goal, one policed command, or
 * a check of manifest and policy. Each ends with one terminal event (but the last, which has no
 * record) and one outcome for the supervisor.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define AGENT_ID "bridle-agent"
#define WARN_PERCENT 80u
/* A model that calls with arguments that never fit would otherwise burn its whole budget. */
#define FAILED_CALLS_IN_A_ROW_MAX 10u

static const char system_prompt[] =
    "You are a coding agent. You work inside a sandbox without network on the files below "
    "/workspace, only through the tools you are given. Paths are relative to the workspace. Some "
    "calls need the permission of an operator; when one is denied, do not try to get around it: "
    "do what its 'allowed' says is allowed instead, say what you could not do, or finish. When the "
    "goal is reached, answer with a short summary and no tool call.";

void outcome_set(struct outcome *o, int code, const char *text)
{
    o->code = code < 0 ? -code : code;
    o->exit_code = br_code_exit(o->code);
    snprintf(o->text, sizeof(o->text), "%s", text);
}

static json_t *maybe(json_t *object, const char *key, const char *value)
{
    if (value && *value)
        json_object_set_new(object, key, json_string(value));
    return object;
}

/* Which text the policy was, and, of a standing bridled, since when and by whom it was that. */
static void pin_json(const struct br_policy_pin *p, json_t *data)
{
    char at[32];
    maybe(data, "policySha256", p->sha256);
    if (!p->generation)
        return;
    br_time_iso(at, p->at_us);
    json_object_set_new(data, "policyGeneration", json_integer((json_int_t)p->generation));
    maybe(data, "policyAt", at);
    maybe(data, "policyBy", br_policy_by_name(p->by));
    json_object_set_new(data, "policyUid", json_integer(p->uid));
}

static int record_run(struct session *s)
{
    char hex[65], profile[65];
    br_hex(hex, br_table_sha256(s->table), 32);
    br_hex(profile, s->profile.plan.profile_sha256, 32);
    BR_CLEANUP_BUF struct br_buf goal = BR_BUF_INIT(BR_GOAL_MAX);
    const char *task_goal = json_string_value(json_object_get(s->task, "goal"));
    if (s->goal.len)
        br_buf_put(&goal, s->goal.data, br_utf8_floor(s->goal.data, s->goal.len));
    else if (s->mode == BR_RUN_AGENT && task_goal)
        br_buf_put(&goal, task_goal, strlen(task_goal));
    json_t *data = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:s}", "runId", s->run_id, "mode",
                             s->mode == BR_RUN_EXEC      ? "exec"
                             : s->mode == BR_RUN_PROMOTE ? "promote"
                                                         : "run",
                             "goal", goal.data ? br_buf_cstr(&goal) : "", "model", s->model,
                             "scripted", (int)s->scripted, "workspace", s->workspace, "policy",
                             s->policy_path[0] ? s->policy_path : "default");
    if (!data)
        return session_record(s, "bridle.run", "kernel", NULL);
    maybe(data, "manifest", s->manifest_path);
    json_object_set_new(data, "tableSha256", json_string(hex));
    json_object_set_new(data, "rules", json_integer(br_table_rules(s->table)));
    json_object_set_new(data, "profile", json_string(s->profile.plan.profile));
    json_object_set_new(data, "profileSha256", json_string(profile));
    if (s->harness.is)
        json_object_set_new(data, "adapter", json_string(s->harness.it.terms.ref));
    pin_json(&s->pin, data);
    int r = session_record_ahead(s, "bridle.run", "kernel", data);
    if (r == 0)
        r = session_record_table(s, &s->scripted_reply.data);
    for (size_t off = 0; r == 0 && off < s->warnings.len;) {
        const char *w = (const char *)s->warnings.data + off;
        r = session_record_ahead(s, "bridle.notice", "kernel",
                                 json_pack("{s:s, s:s}", "code", "POLICY_WARNING", "message", w));
        off += strlen(w) + 1;
    }
    return r;
}

static json_t *task_json(const struct session *s, const char *phase)
{
    return json_pack("{s:s, s:s}", "taskId", s->task_id, "phase", phase);
}

/* session.created .. agent.started */
int session_begin_record(struct session *s, struct br_err *err)
{
    int r =
        session_record(s, "session.created", "kernel",
                       json_pack("{s:s, s:s}", "sessionId", s->run_id, "workspace", s->workspace));
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    r = session_compile(s, err);
    if (r < 0) {
        json_t *data =
            json_pack("{s:s, s:s}", "code", br_code_name(err->code), "message", err->text);
        maybe(data, "file", s->scripted_reply.text);
        if (s->scripted_reply.n1)
            json_object_set_new(data, "line", json_integer((json_int_t)s->scripted_reply.n1));
        (void)session_record(s, "bridle.policy.error", "kernel", data);
        return r;
    }
    r = s->harness.is ? harness_check(s, err) : 0;
    if (r < 0)
        return r;
    s->ledger = br_ledger_new(s->run_id);
    if (!s->ledger)
        return br_err_set(err, BR_E_NOMEM, "no memory for the permission ledger");
    session_permit_answers(s);
    r = record_run(s);
    if (r == 0)
        r = session_record_ahead(s, "agent.started", "kernel",
                                 maybe(json_pack("{s:s, s:s, s:s}", "agentId", AGENT_ID,
                                                 "sessionId", s->run_id, "model", s->model),
                                       "taskId", s->task_given ? s->task_id : NULL));
    if (r == 0 && s->task_given)
        r = session_record_ahead(s, "task.updated", "kernel", task_json(s, "running"));
    if (r == 0)
        r = session_record_flush(s);
    if (r < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    return 0;
}

/* The same, and the sandbox is ready. */
int session_begin(struct session *s, struct br_err *err)
{
    int r = session_begin_record(s, err);
    if (r == 0 && s->harness.is)
        r = observe_schema(s, err);
    return r < 0 ? r : session_launch(s, err);
}

static const char *status_of(int code)
{
    switch (-code) {
    case 0:
        return "completed";
    case BR_E_CANCELED:
        return "canceled";
    case BR_E_BUDGET_EXCEEDED:
        return "budget_exceeded";
    default:
        return "failed";
    }
}

/* Everything that closes the record, in order, whatever happened before. */
void session_end(struct session *s, int code, const char *text, const char *note)
{
    (void)session_changes(s);
    int gone = session_unlaunch(s, code);
    if (code == 0 && gone < 0) {
        code = gone;
        text = s->stop_err.text;
    }
    if (code < 0)
        (void)session_record_ahead(
            s, "error", "kernel",
            json_pack("{s:s, s:s}", "code", br_code_name(code), "message", text));
    if (s->task_given)
        (void)session_record_ahead(s, "task.updated", "kernel",
                                   task_json(s, code < 0 ? "blocked" : "delivered"));
    json_t *data = json_pack("{s:s, s:s, s:i, s:i}", "agentId", AGENT_ID, "status", status_of(code),
                             "steps", (int)s->budget.steps, "toolCalls", (int)s->budget.calls);
    (void)session_record(s, "agent.stopped", "kernel", maybe(data, "note", code < 0 ? text : note));
}

static int warn_budget(struct session *s, const char *metric, uint64_t used, uint64_t limit,
                       bool *warned)
{
    if (*warned || limit == 0 || used * 100 < limit * WARN_PERCENT)
        return 0;
    *warned = true;
    json_t *data = json_pack("{s:s, s:I, s:I, s:I}", "metric", metric, "used", (json_int_t)used,
                             "limit", (json_int_t)limit, "pct", (json_int_t)(used * 100 / limit));
    return session_record(s, "budget.warning", "kernel",
                          maybe(data, "taskId", s->task_given ? s->task_id : NULL));
}

static json_t *assistant_message(const struct response *resp)
{
    json_t *calls = json_array();
    for (size_t i = 0; i < resp->ncalls; i++)
        json_array_append_new(calls, json_pack("{s:s, s:s, s:s}", "id", resp->calls[i].id, "name",
                                               resp->calls[i].name, "arguments",
                                               resp->calls[i].arguments));
    return json_pack("{s:s, s:s, s:o}", "role", "assistant", "content", resp->text, "toolCalls",
                     calls);
}

static int add_reply(struct session *s, const struct call *c, const char *answer, unsigned *failed)
{
    bool ok = answer && strncmp(answer, "{\"ok\":true", 10) == 0;
    *failed = ok ? 0 : *failed + 1;
    if (answer && json_array_append_new(s->messages,
                                        json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "callId",
                                                  c->id, "name", c->name, "content", answer)) == 0)
        return 0;
    session_stop(s, BR_E_NOMEM, "no memory for a tool result");
    return -BR_E_NOMEM;
}

static int run_calls(struct session *s, const struct response *resp, unsigned *failed)
{
    char **answers = calloc(resp->ncalls + 1, sizeof(*answers));
    if (!answers) {
        session_stop(s, BR_E_NOMEM, "no memory for the calls of a turn");
        return -BR_E_NOMEM;
    }
    int r = session_calls(s, resp->calls, resp->ncalls, answers);
    for (size_t i = 0; r == 0 && i < resp->ncalls; i++)
        r = add_reply(s, &resp->calls[i], answers[i], failed);
    if (r == 0)
        r = warn_budget(s, "tool_calls", s->budget.calls, s->budget.calls_max,
                        &s->budget.warned_calls);
    for (size_t i = 0; i < resp->ncalls; i++)
        free(answers[i]);
    free(answers);
    return r;
}

/* Turns until the model has nothing more to call. *final is what it said last; owned. */
static int loop(struct session *s, char **final, struct br_err *err)
{
    unsigned failed = 0;
    while (s->budget.steps < s->budget.steps_max) {
        struct response resp;
        s->budget.steps++;
        int r = session_turn(s, &resp, err);
        if (r < 0)
            return r;
        bool over = resp.ncalls == 0, cut = strcmp(resp.finish, "length") == 0;
        r = json_array_append_new(s->messages, assistant_message(&resp)) < 0
                ? br_err_set(err, BR_E_NOMEM, "no memory for the conversation")
                : warn_budget(s, "tokens", s->budget.tokens, s->budget.tokens_max,
                              &s->budget.warned_tokens);
        bool spent = s->budget.tokens > s->budget.tokens_max;
        if (r == 0 && !spent)
            r = run_calls(s, &resp, &failed);
        if (over)
            *final = br_steal_ptr(&resp.text);
        response_free(&resp);
        if (r < 0)
            return err->code == BR_E_NOMEM
                       ? r
                       : br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
        if (spent)
            return br_err_set(err, BR_E_BUDGET_EXCEEDED, "the run used %llu of %llu model tokens",
                              (unsigned long long)s->budget.tokens,
                              (unsigned long long)s->budget.tokens_max);
        if (over && cut)
            return br_err_set(err, BR_E_BUDGET_EXCEEDED,
                              "the model's answer was cut at its token limit");
        if (over)
            return 0;
        if (failed >= FAILED_CALLS_IN_A_ROW_MAX)
            return br_err_set(err, BR_E_FAILED, "%u tool calls in a row failed", failed);
    }
    return br_err_set(err, BR_E_BUDGET_EXCEEDED, "the run took its %u steps", s->budget.steps_max);
}

char *session_prompt(struct session *s, struct br_buf *text)
{
    const char *goal = json_string_value(json_object_get(s->task, "goal"));
    const char *said = s->goal.len ? br_buf_cstr(&s->goal) : goal;
    br_buf_printf(text, "%s", said ? said : "");
    if (s->task_given && s->goal.len && goal)
        br_buf_printf(text, "\n\nThe task: %s", goal);
    json_t *accept = json_object_get(s->task, "acceptance"), *v;
    size_t i;
    if (s->task_given)
        json_array_foreach(accept, i, v)
            br_buf_printf(text, "%s\n- %s", i ? "" : "\n\nIt is done when:", json_string_value(v));
    return br_buf_cstr(text);
}

static int start_conversation(struct session *s, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(2 * BR_GOAL_MAX + BR_MANIFEST_MAX);
    char *user = session_prompt(s, &text);
    s->messages = user ? json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "system", "content",
                                   system_prompt, "role", "user", "content", user)
                       : NULL;
    s->tools = tools_describe();
    return s->messages && s->tools
               ? 0
               : br_err_set(err, BR_E_INVALID_MANIFEST, "the goal is not usable as text");
}

void session_run_agent(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_FREE char *final = NULL;
    int r = session_begin(s, &err);
    if (r == 0)
        r = start_conversation(s, &err);
    if (r == 0)
        r = loop(s, &final, &err);
    if (r < 0 && s->stop_code) { /* the reason to stop explains more than what it interrupted */
        r = s->stop_code;
        err = s->stop_err;
    }
    session_end(s, r, err.text, NULL);
    if (r == 0 && s->stop_code) {
        r = s->stop_code;
        err = s->stop_err;
    }
    outcome_set(o, r, r < 0 ? err.text : "");
}

void session_run_exec(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    struct effect e = {.action = NULL};
    json_t *output = NULL, *argv = json_array();
    for (uint32_t i = 0; i < s->argc; i++)
        json_array_append_new(argv, json_string(s->argv[i]));
    int r = session_begin(s, &err);
    if (r == 0) {
        r = session_record(s, "tool.call", "operator",
                           json_pack("{s:s, s:s, s:{s:O}}", "callId", "exec", "tool",
                                     "process_exec", "input", "argv", argv));
        if (r == 0) {
            s->budget.calls = 1;
            r = tools_resolve_argv(s->argv, s->argc, &e, &err);
            if (r == 0)
                r = session_call_effect(s, "exec", &e, &output, &err);
            (void)session_record_result(s, "exec", "process_exec", s->effect_started_us, output, r,
                                        &err);
        }
    }
    json_decref(argv);
    if (r < 0 && s->stop_code) {
        r = s->stop_code;
        err = s->stop_err;
    }
    session_end(s, r, err.text, NULL);
    if (r == 0 && s->stop_code) {
        r = s->stop_code;
        err = s->stop_err;
    }
    outcome_set(o, r, r < 0 ? err.text : "");
    if (r == 0) {
        json_t *code = json_object_get(output, "exitCode"),
               *sig = json_object_get(output, "signal");
        o->exit_code = json_is_integer(code)  ? (int)json_integer_value(code)
                       : json_is_integer(sig) ? 128 + (int)json_integer_value(sig)
                                              : 1;
        if (json_is_true(json_object_get(output, "timedOut")))
            outcome_set(o, BR_E_TIMEOUT, "the command was stopped at its time limit");
    }
    json_decref(output);
    effect_free(&e);
}

void session_run_validate(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    int r = session_compile(s, &err);
    if (r == 0 && s->stop_code) {
        r = s->stop_code;
        err = s->stop_err;
    }
    json_t *warnings = json_array();
    for (size_t off = 0; off < s->warnings.len;) {
        const char *w = (const char *)s->warnings.data + off;
        json_array_append_new(warnings, json_string(w));
        off += strlen(w) + 1;
    }
    json_t *report = json_pack("{s:b, s:o}", "ok", r == 0, "warnings", warnings);
    if (r == 0) {
        json_object_set(report, "manifest", s->task);
        json_object_set_new(report, "rules", json_integer(br_table_rules(s->table)));
    } else {
        json_object_set_new(
            report, "error",
            maybe(json_pack("{s:s, s:s}", "code", br_code_name(r), "message", err.text), "file",
                  s->scripted_reply.text));
    }
    BR_CLEANUP_FREE char *text = json_dumps(report, JSON_COMPACT);
    json_decref(report);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_out_blob(&out, text ? text : "{}", text ? strlen(text) : 2);
    (void)br_chan_send(&s->client, BR_MSG_REPORT, 0, &out, NULL);
    outcome_set(o, r, r < 0 ? err.text : "");
}
