/*
 * Snapshots for people. Everything in them was written by somebody else (a model, a tool, a policy)
 * and reaches the terminal through br_cli_put_line() only, which makes it visible and cuts it.
 */
#include <stdlib.h>

#include "cli/repl.h"
#include "cli/view_priv.h"

#define LABEL 14u

static void put_str(struct br_cli_view *v, const json_t *o, const char *key, unsigned max)
{
    size_t n;
    const char *s = view_str(o, key, &n);
    br_cli_put_line(&v->out, s, n, max);
}

/* The same, padded to `width` columns. */
static void put_cell(struct br_cli_view *v, const json_t *o, const char *key, unsigned width)
{
    size_t at = v->out.len;
    put_str(v, o, key, width - 1);
    unsigned used = v->out.failed ? width : view_columns((char *)v->out.data + at, v->out.len - at);
    for (; used < width; used++)
        br_buf_put_u8(&v->out, ' ');
}

/* A value on one line: a text bare, everything else as JSON. */
static void put_value(struct br_cli_view *v, const json_t *value, unsigned max)
{
    if (json_is_string(value)) {
        br_cli_put_line(&v->out, json_string_value(value), json_string_length(value), max);
        return;
    }
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    br_cli_put_line(&v->out, text ? text : "?", text ? strlen(text) : 1, max);
    free(text);
}

/* "10:00:00.123" of a time stamp, as it was stored. */
static void put_clock(struct br_cli_view *v, const json_t *o, const char *key)
{
    size_t n;
    const char *s = view_str(o, key, &n);
    br_cli_put_line(&v->out, n > 23 ? s + 11 : s, n > 23 ? 12 : n, 12);
}

static void head(struct br_cli_view *v, bool first, const char *text)
{
    if (!first)
        return;
    view_style_on(v, VIEW_BOLD);
    br_buf_printf(&v->out, "%s\n", text);
    view_style_off(v, VIEW_BOLD);
}

/* All members, one a line; those of `data` of an event among them. */
static void put_members(struct br_cli_view *v, const json_t *o, unsigned indent)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        if (indent == 0 && strcmp(key, "data") == 0 && json_is_object(value)) {
            br_buf_printf(&v->out, "data\n");
            put_members(v, value, 2);
            continue;
        }
        char label[48];
        snprintf(label, sizeof(label), "%*s%.40s", (int)indent, "", key);
        view_word(v, VIEW_DIM, label, LABEL + 2);
        br_buf_put_u8(&v->out, ' ');
        put_value(v, value, 4 * v->width);
        br_buf_put_u8(&v->out, '\n');
    }
}

static void put_session_row(struct br_cli_view *v, const json_t *s, bool first)
{
    size_t n;
    const char *status = view_str(s, "status", &n);
    head(v, first, "session                         started               status        events");
    put_cell(v, s, "runId", 32);
    const char *at = view_str(s, "startedAt", &n);
    br_cli_put_line(&v->out, at, n > 19 ? 19 : n, 19);
    br_buf_printf(&v->out, "   ");
    view_word(v, strcmp(status, "completed") == 0 ? VIEW_GREEN : VIEW_YELLOW, status, 12);
    br_buf_printf(&v->out, "  %llu\n  ", (unsigned long long)view_u64(s, "events"));
    view_style_on(v, VIEW_DIM);
    put_str(v, s, "model", 24);
    br_buf_printf(&v->out, "  ");
    (void)view_str(s, "goal", &n);
    put_str(v, s, n ? "goal" : "workspace", v->width - 30);
    view_style_off(v, VIEW_DIM);
    br_buf_put_u8(&v->out, '\n');
}

/* Names that only tie events together. */
static bool is_tie(const char *key)
{
    static const char *const ties[] = {"sessionId", "runId",        "requestId", "agentId",
                                       "taskId",    "permissionId", "stream"};
    for (size_t i = 0; i < BR_ARRAY_LEN(ties); i++)
        if (strcmp(ties[i], key) == 0)
            return true;
    return false;
}

/* Names that say most, and are said first. */
static bool is_told_first(const char *key)
{
    static const char *const first[] = {"effect", "decision", "status", "ok",   "tool",
                                        "action", "phase",    "code",   "final"};
    for (size_t i = 0; i < BR_ARRAY_LEN(first); i++)
        if (strcmp(first[i], key) == 0)
            return true;
    return false;
}

/* "effect=allow action=fs.read subject=src/a.lua", in at most `max` columns. */
static void put_summary(struct br_cli_view *v, const json_t *data, unsigned max)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_EVENT_MAX);
    const char *key;
    json_t *value;
    for (int pass = 0; pass < 2; pass++)
        json_object_foreach((json_t *)(uintptr_t)data, key, value)
        {
            if (is_tie(key) || is_told_first(key) != (pass == 0) || b.len > 8u * max)
                continue;
            char *text = json_is_string(value) ? strdup(json_string_value(value))
                                               : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
            br_buf_printf(&b, "%s%s=", b.len ? " " : "", key);
            if (text)
                br_buf_put(&b, text, strlen(text));
            free(text);
        }
    br_cli_put_line(&v->out, b.len ? (char *)b.data : "", b.len, max);
}

static void put_event_row(struct br_cli_view *v, const json_t *e)
{
    br_buf_printf(&v->out, "%6llu  ", (unsigned long long)view_u64(e, "row"));
    view_style_on(v, VIEW_DIM);
    put_clock(v, e, "at");
    view_style_off(v, VIEW_DIM);
    br_buf_printf(&v->out, "  ");
    put_cell(v, e, "type", 22);
    put_summary(v, json_object_get(e, "data"), v->width > 66 ? v->width - 46 : 20);
    br_buf_put_u8(&v->out, '\n');
}

static void put_decision_row(struct br_cli_view *v, const json_t *d)
{
    size_t n;
    const char *effect = view_str(d, "effect", &n);
    br_buf_printf(&v->out, "%6llu  ", (unsigned long long)view_u64(d, "row"));
    view_word(v, view_effect_style(effect), effect, 6);
    put_cell(v, d, "action", 14);
    put_str(v, d, "subject", v->width > 50 ? v->width - 30 : 20);
    br_buf_printf(&v->out, "\n        ");
    view_style_on(v, VIEW_DIM);
    br_buf_printf(&v->out, "rule ");
    (void)view_str(d, "rule", &n);
    if (n)
        put_str(v, d, "rule", 40);
    else
        br_buf_printf(&v->out, "(none)");
    (void)view_str(d, "callId", &n);
    if (n) {
        br_buf_printf(&v->out, ", call ");
        put_str(v, d, "callId", 32);
    }
    br_buf_printf(&v->out, ", %zu vote%s", json_array_size(json_object_get(d, "votes")),
                  json_array_size(json_object_get(d, "votes")) == 1 ? "" : "s");
    const json_t *answer = json_object_get(d, "answer");
    if (answer) {
        br_buf_printf(&v->out, ", answered ");
        put_str(v, answer, "decision", 8);
        br_buf_printf(&v->out, " by ");
        put_str(v, answer, "actor", 16);
    }
    view_style_off(v, VIEW_DIM);
    br_buf_put_u8(&v->out, '\n');
}

static void put_votes(struct br_cli_view *v, const json_t *d)
{
    size_t n, i;
    const json_t *vote, *votes = json_object_get(d, "votes");
    const char *rule = view_str(d, "rule", &n);
    if (json_is_true(json_object_get(d, "opaque")))
        br_buf_printf(&v->out, "        the command could not be taken apart and was decided as a "
                               "whole\n");
    json_array_foreach(votes, i, vote)
    {
        size_t m;
        const char *effect = view_str(vote, "effect", &m), *id = view_str(vote, "ruleId", &m);
        bool won = id[0] && strcmp(id, rule) == 0;
        br_buf_printf(&v->out, "      %s ", won ? "->" : "  ");
        view_word(v, view_effect_style(effect), effect[0] ? effect : "none", 6);
        put_cell(v, vote, "source", 10);
        put_str(v, vote, "ruleId", 40);
        (void)view_str(vote, "reason", &m);
        if (m) {
            br_buf_printf(&v->out, ": ");
            put_str(v, vote, "reason", v->width);
        }
        br_buf_put_u8(&v->out, '\n');
    }
    if (json_array_size(votes) == 0)
        br_buf_printf(&v->out, "        no votes are recorded for it\n");
}

void repl_print_why(struct repl *r, const json_t *d, bool with_votes)
{
    struct br_cli_view *v = &r->view;
    size_t n;
    put_decision_row(v, d);
    (void)view_str(d, "reason", &n);
    if (n) {
        br_buf_printf(&v->out, "        because ");
        put_str(v, d, "reason", 4 * v->width);
        br_buf_put_u8(&v->out, '\n');
    }
    if (with_votes)
        put_votes(v, d);
    const json_t *note = json_object_get(json_object_get(d, "answer"), "note");
    if (note) {
        br_buf_printf(&v->out, "        note ");
        put_value(v, note, 4 * v->width);
        br_buf_put_u8(&v->out, '\n');
    }
}

static void put_lease_row(struct br_cli_view *v, const json_t *l, bool first)
{
    size_t n;
    (void)view_str(l, "name", &n);
    if (n == 0) { /* of a receipt */
        put_members(v, l, 0);
        br_buf_put_u8(&v->out, '\n');
        return;
    }
    head(v, first,
         "lease                                    kind       bytes        on disk     in use");
    put_cell(v, l, "name", 41);
    put_cell(v, l, "kind", 11);
    br_buf_printf(&v->out, "%-12llu %-11llu %s\n", (unsigned long long)view_u64(l, "bytes"),
                  (unsigned long long)view_u64(l, "allocated"),
                  json_is_true(json_object_get(l, "inUse")) ? "yes" : "no");
}

static void put_activation_row(struct br_cli_view *v, const json_t *a, bool first)
{
    const json_t *facts = json_object_get(a, "facts");
    head(v, first, "profile               activated                      kernel, image");
    put_cell(v, a, "profile", 22);
    put_cell(v, a, "activatedAt", 31);
    put_str(v, facts, "kernel", 40);
    br_buf_printf(&v->out, ", ");
    put_str(v, facts, "image", 60);
    br_buf_put_u8(&v->out, '\n');
}

static void put_policy_row(struct br_cli_view *v, const json_t *p, bool first)
{
    size_t n;
    bool refused = strcmp(view_str(p, "kind", &n), "refused") == 0;
    head(v, first, "policy     generation  since                 by            table         runs");
    view_word(v,
              refused                                           ? VIEW_RED
              : strcmp(view_str(p, "kind", &n), "current") == 0 ? VIEW_GREEN
                                                                : VIEW_DIM,
              view_str(p, "kind", &n), 9);
    br_buf_printf(&v->out, "  %-10llu  ", (unsigned long long)view_u64(p, "generation"));
    const char *at = view_str(p, "at", &n);
    br_cli_put_line(&v->out, at, n > 19 ? 19 : n, 19);
    br_buf_printf(&v->out, "   ");
    put_cell(v, p, "by", 8);
    br_buf_printf(&v->out, "%-5llu ", (unsigned long long)view_u64(p, "uid"));
    const char *table = view_str(p, "tableSha256", &n);
    br_cli_put_line(&v->out, table, n > 12 ? 12 : n, 12);
    if (!refused)
        br_buf_printf(&v->out, "  %llu", (unsigned long long)view_u64(p, "running"));
    br_buf_printf(&v->out, "\n  ");
    view_style_on(v, VIEW_DIM);
    put_str(v, p, refused ? "message" : "path", 4 * v->width);
    const json_t *run;
    size_t i;
    json_array_foreach(json_object_get(p, "runs"), i, run)
    {
        br_buf_printf(&v->out, "\n  ");
        put_value(v, run, 60);
    }
    view_style_off(v, VIEW_DIM);
    br_buf_put_u8(&v->out, '\n');
}

void repl_print_value(struct repl *r, const char *what, const json_t *value, bool first)
{
    struct br_cli_view *v = &r->view;
    if (strcmp(what, "sessions") == 0)
        put_session_row(v, value, first);
    else if (strcmp(what, "events") == 0)
        put_event_row(v, value);
    else if (strcmp(what, "decisions") == 0)
        put_decision_row(v, value);
    else if (strcmp(what, "leases") == 0 || strcmp(what, "lease") == 0)
        put_lease_row(v, value, first);
    else if (strcmp(what, "policies") == 0)
        put_policy_row(v, value, first);
    else if (strcmp(what, "activations") == 0)
        put_activation_row(v, value, first);
    else
        put_members(v, value, 0);
}
