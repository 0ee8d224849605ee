/*
 * What the events of one session say together: the session as one object, its decisions with their
 * votes and answers, the leases of its sandbox. Fed with stored events in order; they were checked
 * against their schema when they were stored, and are still read as if anything could be in them.
 */
#include <string.h>

#include "cli/repl.h"

/* Decisions that are kept; a run has at most BR_TOOL_CALLS_MAX calls, of some decisions each. */
#define DECISIONS_MAX 5000u

static void set(json_t *o, const char *key, const json_t *from, const char *name)
{
    json_t *v = json_object_get(from, name);
    if (v && !json_is_null(v))
        (void)json_object_set(o, key, v);
}

static void count(json_t *o, const char *key, const char *name)
{
    json_t *counts = json_object_get(o, key);
    if (!counts) {
        counts = json_object();
        (void)json_object_set_new(o, key, counts);
    }
    json_int_t n = json_integer_value(json_object_get(counts, name));
    (void)json_object_set_new(counts, name, json_integer(n + 1));
}

int repl_join_open(struct repl_join *j, const struct br_cli_row *row, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u * 1024);
    *j = (struct repl_join){.decisions = json_array(), .leases = json_array()};
    br_cli_put_row_json(&b, row);
    j->session = b.failed ? NULL : json_loadb((char *)b.data, b.len, 0, NULL);
    if (!json_is_object(j->session) || !j->decisions || !j->leases)
        return br_err_set(err, BR_E_NOMEM, "no memory for a session");
    return 0;
}

static void on_run(struct repl_join *j, const json_t *data)
{
    static const char *const keys[] = {
        "mode",        "goal",     "scripted",      "policy",       "manifest",         "profile",
        "tableSha256", "rules",    "profileSha256", "policySha256", "policyGeneration", "policyAt",
        "policyBy",    "policyUid"};
    for (size_t i = 0; i < BR_ARRAY_LEN(keys); i++)
        set(j->session, keys[i], data, keys[i]);
}

static void on_launch(struct repl_join *j, const json_t *data)
{
    const json_t *receipt = json_object_get(data, "receipt");
    json_t *leases = json_object_get(receipt, "leases");
    set(j->session, "sandbox", data, "sandbox");
    set(j->session, "image", data, "image");
    if (json_is_array(leases))
        (void)json_array_extend(j->leases, leases);
}

static void on_decision(struct repl_join *j, uint64_t row, const json_t *event, const json_t *data)
{
    json_t *d = json_object();
    j->open = NULL;
    if (!d || json_array_size(j->decisions) >= DECISIONS_MAX) {
        json_decref(d);
        return;
    }
    (void)json_object_set_new(d, "row", json_integer((json_int_t)row));
    set(d, "at", event, "at");
    set(d, "actor", event, "actor");
    set(d, "action", data, "action");
    set(d, "subject", data, "subject");
    set(d, "effect", data, "effect");
    set(d, "rule", data, "ruleId");
    set(d, "reason", data, "reason");
    if (json_array_append_new(j->decisions, d) == 0)
        j->open = d;
    const char *effect = json_string_value(json_object_get(data, "effect"));
    if (effect)
        count(j->session, "decisions", effect);
}

static bool same(const json_t *a, const json_t *b, const char *key)
{
    const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    return x && y ? json_equal(x, y) : x == y;
}

/* The last decision about this call, or NULL. */
static json_t *decision_of(struct repl_join *j, const json_t *data)
{
    for (size_t i = json_array_size(j->decisions); i > 0; i--) {
        json_t *d = json_array_get(j->decisions, i - 1);
        if (json_object_get(d, "callId") && same(d, data, "callId") && same(d, data, "action") &&
            same(d, data, "subject"))
            return d;
    }
    return NULL;
}

static void on_votes(struct repl_join *j, const json_t *data)
{
    static const char *const keys[] = {"callId", "source", "opaque", "votes", "grant"};
    json_t *d = j->open;
    if (!d || !same(d, data, "action") || !same(d, data, "subject"))
        return;
    for (size_t i = 0; i < BR_ARRAY_LEN(keys); i++)
        set(d, keys[i], data, keys[i]);
}

static void on_requested(struct repl_join *j, const json_t *data)
{
    json_t *d = decision_of(j, data);
    if (!d)
        d = j->open;
    if (!d)
        return;
    set(d, "permissionId", data, "permissionId");
    set(d, "scope", data, "scope");
}

static void on_resolved(struct repl_join *j, const json_t *event, const json_t *data)
{
    for (size_t i = json_array_size(j->decisions); i > 0; i--) {
        json_t *d = json_array_get(j->decisions, i - 1);
        if (!json_object_get(d, "permissionId") || !same(d, data, "permissionId"))
            continue;
        json_t *answer = json_object();
        set(answer, "decision", data, "decision");
        set(answer, "actor", event, "actor");
        set(answer, "at", event, "at");
        set(answer, "note", data, "note");
        (void)json_object_set_new(d, "answer", answer);
        return;
    }
}

static void on_stopped(struct repl_join *j, const json_t *data)
{
    set(j->session, "steps", data, "steps");
    set(j->session, "toolCalls", data, "toolCalls");
    set(j->session, "note", data, "note");
}

static void on_response(struct repl_join *j, const json_t *data)
{
    const json_t *usage = json_object_get(data, "usage");
    static const char *const keys[] = {"promptTokens", "completionTokens", "totalTokens"};
    json_t *sum = json_object_get(j->session, "usage");
    if (!sum) {
        sum = json_object();
        (void)json_object_set_new(j->session, "usage", sum);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(keys); i++) {
        json_int_t n = json_integer_value(json_object_get(sum, keys[i])), all;
        if (!__builtin_add_overflow(n, json_integer_value(json_object_get(usage, keys[i])), &all))
            (void)json_object_set_new(sum, keys[i], json_integer(all));
    }
}

int repl_join_event(struct repl_join *j, uint64_t row, const char *text, size_t n,
                    struct br_err *err)
{
    if (br_json_scan(text, n, BR_JSON_DEPTH_MAX + 4, 4 * BR_JSON_NODES_MAX, err) < 0)
        return br_err_wrap(err, "event %llu", (unsigned long long)row);
    json_t *event = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *data = json_object_get(event, "data");
    const char *type = json_string_value(json_object_get(event, "type"));
    if (!type || !json_is_object(data)) {
        json_decref(event);
        return br_err_set(err, BR_E_INVALID_JSON, "event %llu is no event",
                          (unsigned long long)row);
    }
    count(j->session, "types", type);
    if (strcmp(type, "bridle.run") == 0)
        on_run(j, data);
    else if (strcmp(type, "bridle.launch") == 0)
        on_launch(j, data);
    else if (strcmp(type, "policy.decision") == 0)
        on_decision(j, row, event, data);
    else if (strcmp(type, "bridle.votes") == 0)
        on_votes(j, data);
    else if (strcmp(type, "permission.requested") == 0)
        on_requested(j, data);
    else if (strcmp(type, "permission.resolved") == 0)
        on_resolved(j, event, data);
    else if (strcmp(type, "model.response") == 0)
        on_response(j, data);
    else if (strcmp(type, "agent.stopped") == 0)
        on_stopped(j, data);
    json_decref(event);
    return 0;
}

void repl_join_free(struct repl_join *j)
{
    json_decref(j->session);
    json_decref(j->decisions);
    json_decref(j->leases);
    *j = (struct repl_join){.session = NULL};
}
