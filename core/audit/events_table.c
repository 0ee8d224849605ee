/*
 * The event types and their fields, in the order in which they are stored. docs/events.md says the
 * same for people. The types without prefix are contracts with existing clients, which hang up at
 * an unknown key: nothing may be added to them.
 */
#include <string.h>

#include "audit/events_priv.h"

/* One line a field: */
/* clang-format off */
#define ID(n)             {.name = n, .kind = FIELD_TEXT, .min = 1, .max = BR_NAME_MAX}
#define ID_OPT(n)         {.name = n, .kind = FIELD_TEXT, .min = 1, .max = BR_NAME_MAX, .optional = true}
#define TEXT(n, a, b)     {.name = n, .kind = FIELD_TEXT, .min = a, .max = b}
#define TEXT_OPT(n, a, b) {.name = n, .kind = FIELD_TEXT, .min = a, .max = b, .optional = true}
#define INT(n, a, b)      {.name = n, .kind = FIELD_INT, .min = a, .max = b}
#define INT_OPT(n, a, b)  {.name = n, .kind = FIELD_INT, .min = a, .max = b, .optional = true}
#define COUNT(n)          INT(n, 0, BR_EVENT_INT_MAX)
#define COUNT_OPT(n)      INT_OPT(n, 0, BR_EVENT_INT_MAX)
#define NUM(n, a, b)      {.name = n, .kind = FIELD_NUM, .min = a, .max = b}
#define BOOL(n)           {.name = n, .kind = FIELD_BOOL}
#define BOOL_OPT(n)       {.name = n, .kind = FIELD_BOOL, .optional = true}
#define ENUM(n, v)        {.name = n, .kind = FIELD_ENUM, .values = v}
#define ENUM_OPT(n, v)    {.name = n, .kind = FIELD_ENUM, .values = v, .optional = true}
#define ANY(n)            {.name = n, .kind = FIELD_ANY}
#define ANY_OR_NULL(n)    {.name = n, .kind = FIELD_ANY, .optional = true, .or_null = true}
#define OBJECT(n)         {.name = n, .kind = FIELD_OBJECT}
#define ANY_OPT(n)        {.name = n, .kind = FIELD_ANY, .optional = true}
#define USAGE(n)          {.name = n, .kind = FIELD_USAGE}
#define USAGE_OPT(n)      {.name = n, .kind = FIELD_USAGE, .optional = true}
#define RECORD_OPT(n, f)  {.name = n, .kind = FIELD_RECORD, .fields = f, .optional = true}
#define LIST(n, f, b)     {.name = n, .kind = FIELD_LIST, .fields = f, .max = b}
#define LIST_OPT(n, f, b) {.name = n, .kind = FIELD_LIST, .fields = f, .max = b, .optional = true}
#define SUBJECT           TEXT_OPT("subject", 0, BR_SUBJECT_MAX)
#define NOTE_OPT(n)       TEXT_OPT(n, 0, BR_EVENT_NOTE_MAX)
#define MESSAGE           TEXT("message", 0, BR_EVENT_NOTE_MAX)
#define END               {.name = NULL}
#define FIELDS(name)      static const struct event_field name[] =

#define EFFECTS "allow|ask|deny"
#define CHANGES_MAX 10000
#define VOTES_MAX 64
#define PIECES_MAX 32

FIELDS(error_fields) {
    ID("code"), MESSAGE, END};
FIELDS(session_created) {
    ID("sessionId"), TEXT_OPT("workspace", 1, BR_PATH_MAX), END};
FIELDS(agent_started) {
    ID("agentId"), ID("sessionId"), ID_OPT("taskId"), ID("model"), END};
FIELDS(model_request) {
    ID("requestId"), ID("model"), INT("messageCount", 1, BR_EVENT_INT_MAX), END};
FIELDS(model_response) {
    ID("requestId"), ID("model"), ENUM("finishReason", "stop|tool_calls|length|error"),
    USAGE("usage"), END};
FIELDS(tool_call) {
    ID("callId"), ID("tool"), ANY("input"), END};
FIELDS(policy_decision) {
    ID("action"), SUBJECT, ENUM("effect", EFFECTS), NOTE_OPT("reason"), ID_OPT("ruleId"), END};
FIELDS(permission_requested) {
    ID("permissionId"), ID("sessionId"), ID_OPT("callId"), ID("action"), SUBJECT,
    ENUM("scope", "once|run"), NOTE_OPT("reason"), END};
FIELDS(permission_resolved) {
    ID("permissionId"), ID("sessionId"), ID_OPT("callId"), ID("action"), SUBJECT,
    ENUM("scope", "once|run"), ENUM("decision", "allow|deny"), NOTE_OPT("note"), END};
/* a call that failed has no output, and a reader of the contract expects the key */
FIELDS(tool_result) {
    ID("callId"), ID("tool"), BOOL("ok"), ANY_OR_NULL("output"),
    RECORD_OPT("error", error_fields), COUNT_OPT("durationMs"), END};
FIELDS(sandbox_started) {
    ID("runId"), ID("containerName"), ID("image"), ENUM("network", "none|enabled"),
    COUNT("mounts"), END};
FIELDS(sandbox_stopped) {
    ID("runId"), ID("containerName"), ENUM("status", "completed|failed|canceled"),
    INT_OPT("exitCode", -BR_EVENT_INT_MAX, BR_EVENT_INT_MAX), COUNT_OPT("durationMs"), END};
FIELDS(task_updated) {
    ID("taskId"), ENUM("phase", "planned|running|verifying|delivered|blocked"),
    NOTE_OPT("note"), END};
FIELDS(budget_warning) {
    ID_OPT("taskId"), ENUM("metric", "tokens|tool_calls"), COUNT("used"), COUNT("limit"),
    NUM("pct", 0, BR_EVENT_INT_MAX), END};
FIELDS(run_recorded) {
    ID("runId"), ID("taskId"), ENUM("status", "passed|failed|blocked"),
    TEXT("reportPath", 1, BR_PATH_MAX), END};
FIELDS(agent_stopped) {
    ID("agentId"), ENUM("status", "completed|failed|canceled|budget_exceeded"),
    COUNT("steps"), COUNT("toolCalls"), NOTE_OPT("note"), END};
FIELDS(error_event) {
    ID("code"), MESSAGE, BOOL_OPT("retryable"), END};

FIELDS(bridle_run) {
    ID("runId"), ENUM("mode", "run|exec|promote"), TEXT("goal", 0, BR_GOAL_MAX),
    TEXT("model", 0, BR_NAME_MAX), BOOL("scripted"), TEXT("workspace", 1, BR_PATH_MAX),
    TEXT("policy", 0, BR_PATH_MAX), TEXT_OPT("manifest", 0, BR_PATH_MAX),
    TEXT("tableSha256", 64, 64), INT("rules", 0, BR_RULES_MAX),
    TEXT("profile", 0, BR_NAME_MAX), TEXT_OPT("profileSha256", 64, 64),
    TEXT_OPT("policySha256", 64, 64), COUNT_OPT("policyGeneration"), TEXT_OPT("policyAt", 1, 64),
    ENUM_OPT("policyBy", "start|signal|request"), COUNT_OPT("policyUid"), ID_OPT("adapter"), END};
FIELDS(bridle_table) {
    INT("part", 1, BR_RULES_MAX), INT("parts", 1, BR_RULES_MAX), OBJECT("table"), END};
FIELDS(bridle_text) {
    ID("stream"), ENUM("kind", "agent"), TEXT("text", 0, BR_EVENT_TEXT_MAX), BOOL("final"), END};
FIELDS(vote) {
    TEXT("source", 0, BR_NAME_MAX), TEXT("ruleId", 0, BR_NAME_MAX), ENUM("effect", EFFECTS),
    NOTE_OPT("reason"), END};
FIELDS(piece) {
    ID("action"), TEXT("subject", 0, BR_SUBJECT_MAX), ENUM("effect", EFFECTS), ID_OPT("ruleId"),
    ID_OPT("source"), END};
FIELDS(bridle_votes) {
    ID("callId"), ID("action"), SUBJECT, ENUM("effect", EFFECTS),
    TEXT("ruleId", 0, BR_NAME_MAX), TEXT("source", 0, BR_NAME_MAX), BOOL("opaque"),
    LIST("votes", vote, VOTES_MAX), LIST_OPT("pieces", piece, PIECES_MAX),
    ID_OPT("grant"), END};
FIELDS(rule_text) {
    TEXT("text", 1, BR_EVENT_NOTE_MAX), END};
FIELDS(bridle_ask) {
    ID("permissionId"), ID("callId"), ID("action"), SUBJECT, ENUM("scope", "once|run"),
    ID("ruleId"), ID("source"), NOTE_OPT("reason"), TEXT_OPT("file", 0, BR_PATH_MAX),
    COUNT_OPT("line"), BOOL("opaque"), LIST("commands", piece, PIECES_MAX), COUNT_OPT("more"),
    OBJECT("touches"), TEXT("advice", 0, 2 * BR_EVENT_NOTE_MAX), LIST_OPT("rules", rule_text, 8),
    TEXT_OPT("why", 1, BR_EVENT_NOTE_MAX), END};
FIELDS(permission) {
    ID("permissionId"), END};
FIELDS(bridle_asks) {
    LIST("asks", permission, 128), END};
FIELDS(bridle_grant) {
    ID("permissionId"), ID("callId"), ID("action"), SUBJECT, ENUM("scope", "run"),
    TEXT("environment", 64, 64), ID("ruleId"), ID("source"), END};
FIELDS(bridle_answered) {
    ID("permissionId"), ID("by"), ENUM("decision", "allow|deny"), ENUM("scope", "once|run"), END};
FIELDS(bridle_launch) {
    ID("sandbox"), ID("image"), ENUM("network", "none|enabled"), COUNT("mounts"),
    OBJECT("receipt"), END};
FIELDS(bridle_provider) {
    ID("requestId"), INT("status", 0, 999), COUNT("requestBytes"), COUNT("responseBytes"),
    COUNT("durationMs"), BOOL("scripted"), ID_OPT("providerRequestId"),
    ENUM_OPT("route", "chat|responses|messages|models"), COUNT_OPT("reservedTokens"),
    BOOL_OPT("settled"), COUNT_OPT("toolCalls"), COUNT_OPT("repairs"),
    RECORD_OPT("error", error_fields), END};
FIELDS(bridle_provider_refused) {
    ID("code"), MESSAGE, END};
FIELDS(harness_session) {
    ENUM("intent", "new|resume"), ID_OPT("id"), END};
FIELDS(harness_lease) {
    COUNT("requests"), COUNT("tokens"), COUNT("requestBytes"), COUNT("responseBytes"),
    COUNT("answerTokens"), COUNT("inFlight"), COUNT("seconds"), END};
FIELDS(harness_tool) {
    ID("name"), END};
FIELDS(bridle_harness_started) {
    ID("runId"), ID("adapter"), INT("revision", 1, 1000000), TEXT("adapterSha256", 64, 64),
    ID("profile"), ID("image"), ID("model"), RECORD_OPT("session", harness_session),
    LIST("tools", harness_tool, 32), BOOL("gate"), BOOL("contextFiles"),
    RECORD_OPT("lease", harness_lease), COUNT("outputBytes"), COUNT("traceBytes"),
    TEXT("deadline", 1, 64), END};
FIELDS(bridle_harness_gate) {
    ID("callId"), ID("tool"), ID_OPT("action"), ENUM("decision", "allow|deny"), BOOL("asked"),
    ID_OPT("ruleId"), END};
FIELDS(harness_artifact) {
    ENUM("kind", "text|json"), TEXT_OPT("text", 0, 512 * 1024), ANY_OPT("value"), END};
FIELDS(harness_receipt) {
    ID("name"), ENUM("status", "ok|error|denied"), INT("count", 1, 1000000), END};
FIELDS(bridle_harness_result) {
    ID("runId"), ENUM("status", "completed|failed|refused"), ID("adapter"),
    INT("revision", 1, 1000000), RECORD_OPT("session", harness_session),
    RECORD_OPT("artifact", harness_artifact), LIST("tools", harness_receipt, 96),
    USAGE_OPT("usage"), ID_OPT("providerRevision"), INT_OPT("exitCode", 0, 255),
    INT_OPT("signal", 1, 255), COUNT("stdoutBytes"), COUNT("stderrBytes"), COUNT("durationMs"),
    RECORD_OPT("error", error_fields), END};
FIELDS(repair) {
    ID("name"), END};
FIELDS(bridle_provider_account) {
    COUNT("requests"), COUNT("settled"), COUNT("unsettled"), COUNT("released"), COUNT("refused"),
    COUNT("requestBytes"), COUNT("responseBytes"), COUNT("tokensReserved"),
    COUNT("tokensCharged"), COUNT("cut"), COUNT("repaired"), LIST("repairs", repair, 8), END};
FIELDS(change) {
    TEXT("path", 1, BR_PATH_MAX), ENUM("change", "added|modified|removed"),
    COUNT_OPT("size"), ENUM_OPT("set_group", "cleared|kept"), END};
FIELDS(bridle_workspace) {
    LIST("changed", change, CHANGES_MAX), BOOL("truncated"), END};
FIELDS(bridle_notice) {
    ID("code"), MESSAGE, END};
FIELDS(bridle_policy_error) {
    ID("code"), MESSAGE, TEXT_OPT("file", 0, BR_PATH_MAX), COUNT_OPT("line"), END};
FIELDS(surface_change) {
    TEXT("change", 1, 8192), END};
FIELDS(bridle_promote) {
    ID("runId"), TEXT("workspace", 1, BR_PATH_MAX), ENUM("status", "promoted|refused|recovered"),
    COUNT("added"), COUNT("modified"), COUNT("removed"), COUNT("skipped"),
    LIST("surface", surface_change, 64), COUNT("surfaceMore"), NOTE_OPT("note"), END};
FIELDS(bridle_exec) {
    ID("progress"), COUNT("stdoutBytes"), COUNT("stderrBytes"), COUNT("elapsedMs"), END};
/* clang-format on */

static const struct event_type types[] = {
    {"session.created", session_created, false},
    {"agent.started", agent_started, false},
    {"model.request", model_request, false},
    {"model.response", model_response, false},
    {"tool.call", tool_call, false},
    {"policy.decision", policy_decision, false},
    {"permission.requested", permission_requested, false},
    {"permission.resolved", permission_resolved, false},
    {"tool.result", tool_result, false},
    {"sandbox.started", sandbox_started, false},
    {"sandbox.stopped", sandbox_stopped, false},
    {"task.updated", task_updated, false},
    {"budget.warning", budget_warning, false},
    {"run.recorded", run_recorded, false},
    {"agent.stopped", agent_stopped, false},
    {"error", error_event, false},
    {"bridle.run", bridle_run, false},
    {"bridle.table", bridle_table, false},
    {"bridle.text", bridle_text, true},
    {"bridle.votes", bridle_votes, false},
    {"bridle.ask", bridle_ask, false},
    {"bridle.asks", bridle_asks, false},
    {"bridle.grant", bridle_grant, false},
    {"bridle.answered", bridle_answered, false},
    {"bridle.launch", bridle_launch, false},
    {"bridle.provider", bridle_provider, false},
    {"bridle.provider.refused", bridle_provider_refused, false},
    {"bridle.harness.started", bridle_harness_started, false},
    {"bridle.harness.gate", bridle_harness_gate, false},
    {"bridle.harness.result", bridle_harness_result, false},
    {"bridle.provider.account", bridle_provider_account, false},
    {"bridle.workspace", bridle_workspace, false},
    {"bridle.promote", bridle_promote, false},
    {"bridle.notice", bridle_notice, false},
    {"bridle.policy.error", bridle_policy_error, false},
    {"bridle.exec", bridle_exec, false},
};

const struct event_type *event_type_find(const char *type)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        if (strcmp(types[i].type, type) == 0)
            return &types[i];
    return NULL;
}

const struct event_type *event_type_at(size_t i)
{
    return i < BR_ARRAY_LEN(types) ? &types[i] : NULL;
}

bool br_event_is_internal(const char *type)
{
    const struct event_type *t = event_type_find(type);
    return t && t->internal;
}
