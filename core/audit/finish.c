/*
 * The end of a record that did not end itself: a program died, the run was canceled, the supervisor
 * went away. Afterwards nothing is open: every question has an answer, every call a result, and the
 * last event is agent.stopped. What is not known (a sandbox that could not be verified as gone) is
 * not claimed.
 */
#include <string.h>

#include "audit/audit_priv.h"

static int add(struct recorder *r, const char *type, json_t *data, struct br_err *err)
{
    int ret = data ? recorder_add(r, type, "kernel", data, true, err)
                   : br_err_set(err, BR_E_NOMEM, "no memory for a '%s' event", type);
    json_decref(data);
    return ret;
}

static int finish_permissions(struct recorder *r, struct br_err *err)
{
    for (;;) {
        struct br_event_open open;
        br_event_order_open(r->order, &open);
        const struct br_open_permission *p = open.permission;
        if (!p)
            return 0;
        json_t *data = json_pack("{s:s, s:s, s:s*, s:s, s:s*, s:s, s:s, s:s}", "permissionId",
                                 p->permission_id, "sessionId", p->session_id, "callId", p->call_id,
                                 "action", p->action, "subject", p->subject, "scope", p->scope,
                                 "decision", "deny", "note", "the run ended before an answer came");
        int ret = add(r, "permission.resolved", data, err);
        if (ret < 0)
            return ret;
    }
}

static int finish_calls(struct recorder *r, const char *code, struct br_err *err)
{
    for (;;) {
        struct br_event_open open;
        br_event_order_open(r->order, &open);
        if (!open.call)
            return 0;
        json_t *data =
            json_pack("{s:s, s:s, s:b, s:n, s:{s:s, s:s}}", "callId", open.call->call_id, "tool",
                      open.call->tool, "ok", 0, "output", "error", "code", code, "message",
                      "the run ended before the call did; what it may have done is not known");
        int ret = add(r, "tool.result", data, err);
        if (ret < 0)
            return ret;
    }
}

static int finish_sandbox(struct recorder *r, const struct ending *e, const char *status,
                          struct br_err *err)
{
    struct br_event_open open;
    br_event_order_open(r->order, &open);
    if (!open.sandbox_run || e->sandbox != 1)
        return 0;
    /* the exit status as a shell gives it; a wait status of an exit is understood as well */
    uint32_t exit_code = e->exit_status <= 255 ? e->exit_status : e->exit_status >> 8 & 0xff;
    const char *how = strcmp(status, "completed") == 0  ? "completed"
                      : strcmp(status, "canceled") == 0 ? "canceled"
                                                        : "failed";
    json_t *data = json_pack("{s:s, s:s, s:s, s:I, s:I}", "runId", open.sandbox_run,
                             "containerName", open.sandbox_name, "status", how, "exitCode",
                             (json_int_t)exit_code, "durationMs", (json_int_t)e->duration_ms);
    return add(r, "sandbox.stopped", data, err);
}

static const char *known_status(const char *status)
{
    static const char *const all[] = {"completed", "failed", "canceled", "budget_exceeded"};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        if (strcmp(all[i], status) == 0)
            return all[i];
    return "failed";
}

/* The note, redacted like everything else; NULL without memory. */
static json_t *safe_text(struct recorder *r, const char *text, struct br_err *err)
{
    json_t *plain = json_stringn(text, br_utf8_floor(text, strlen(text)));
    json_t *safe = plain ? br_redact_json(r->redact, plain, false, err) : NULL;
    json_decref(plain);
    if (safe && json_string_length(safe) > BR_EVENT_NOTE_MAX) {
        size_t n = br_utf8_floor(json_string_value(safe), BR_EVENT_NOTE_MAX);
        json_t *cut = json_stringn(json_string_value(safe), n);
        json_decref(safe);
        safe = cut;
    }
    return safe;
}

static int finish_agent(struct recorder *r, const struct ending *e, const char *status,
                        struct br_err *err)
{
    struct br_event_open open;
    json_t *note = safe_text(r, e->note[0] ? e->note : br_code_name((int)e->code), err);
    int ret = note ? 0 : br_err_set(err, BR_E_REDACTION_FAILED, "a note could not be redacted");
    if (ret == 0 && e->code)
        ret =
            add(r, "error",
                json_pack("{s:s, s:O}", "code", br_code_name((int)e->code), "message", note), err);
    br_event_order_open(r->order, &open);
    if (ret == 0)
        ret = add(r, "agent.stopped",
                  json_pack("{s:s, s:s, s:I, s:I, s:O*}", "agentId",
                            open.agent_id ? open.agent_id : r->run.run_id, "status", status,
                            "steps", (json_int_t)open.steps, "toolCalls",
                            (json_int_t)open.tool_calls, "note", e->note[0] ? note : NULL),
                  err);
    json_decref(note);
    return ret;
}

int record_finish(struct recorder *r, const struct ending *e, struct br_err *err)
{
    struct br_event_open open;
    const char *status = known_status(e->status);
    int ret = 0;
    br_event_order_open(r->order, &open);
    if (open.status)
        return recorder_commit(r, err);
    if (!open.session_id) {
        const char *workspace = e->workspace && *e->workspace ? e->workspace : NULL;
        if (workspace && !br_utf8_valid(workspace, strlen(workspace)))
            return br_err_set(err, BR_E_EVENT_SCHEMA,
                              "'workspace' of 'session.created' is not valid UTF-8; nothing was "
                              "stored");
        ret =
            add(r, "session.created",
                json_pack("{s:s, s:s*}", "sessionId", r->run.run_id, "workspace", workspace), err);
    }
    if (ret == 0)
        ret = finish_permissions(r, err);
    if (ret == 0)
        ret = finish_calls(r, br_code_name(e->code ? (int)e->code : BR_E_CANCELED), err);
    if (ret == 0)
        ret = finish_sandbox(r, e, status, err);
    if (ret == 0)
        ret = finish_agent(r, e, status, err);
    int commit = recorder_commit(r, ret == 0 ? err : NULL);
    return ret < 0 ? ret : commit;
}
