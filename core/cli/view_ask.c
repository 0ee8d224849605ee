/*
 * Questions to the operator, as they are shown: the request whole, what of it needed the question,
 * what it would touch, the rule that asks and how to change it; then, where a turn has more than
 * one question, the list of them. The text is a model's or the operator's and goes through the
 * functions of view_text.c.
 */
#include <stdlib.h>

#include "cli/view_priv.h"

#define LABEL 12u

static bool str_is(const json_t *o, const char *key, const char *want)
{
    size_t n;
    return strcmp(view_str(o, key, &n), want) == 0;
}

static void put_subject(struct br_cli_view *v, const json_t *data)
{
    size_t n;
    const char *subject = view_str(data, "subject", &n);
    bool exec = str_is(data, "action", "process.exec");
    if (n) /* the whole of it: this is what the answer is about */
        view_whole(v, exec ? "    $ " : "    ", exec ? "    > " : "  : ", subject, n);
}

void view_requested(struct br_cli_view *v, const json_t *data)
{
    size_t n, nr, na, nc;
    const char *id = view_str(data, "permissionId", &n);
    const char *reason = view_str(data, "reason", &nr), *action = view_str(data, "action", &na);
    snprintf(v->ask_id, sizeof(v->ask_id), "%.*s", (int)n, id);
    v->asks++;
    v->phase = NULL;
    view_asked_call(v, view_str(data, "callId", &nc), view_str(data, "subject", &n));
    br_buf_printf(&v->out, "\n  ");
    view_style_on(v, VIEW_YELLOW);
    br_buf_printf(&v->out, "permission wanted: ");
    br_cli_put_line(&v->out, action, na, 40);
    view_style_off(v, VIEW_YELLOW);
    if (str_is(data, "scope", "run"))
        br_buf_printf(&v->out, ", for the rest of this run");
    br_buf_printf(&v->out, "\n");
    put_subject(v, data);
    if (nr)
        view_labeled(v, "    why     ", LABEL, reason, nr, 4);
}

/* ---- what there is to know ------------------------------------------------------------------ */

/* The parts that needed the question, unless there is one and it is the whole. */
static void put_commands(struct br_cli_view *v, const json_t *data)
{
    const json_t *list = json_object_get(data, "commands"), *piece;
    size_t i, n, ns;
    const char *subject = view_str(data, "subject", &ns);
    if (json_array_size(list) == 1 && str_is(json_array_get(list, 0), "action", "process.exec") &&
        strcmp(view_str(json_array_get(list, 0), "subject", &n), subject) == 0)
        return;
    json_array_foreach(list, i, piece)
    {
        BR_CLEANUP_BUF struct br_buf line = BR_BUF_INIT(BR_VIEW_MAX);
        const char *text = view_str(piece, "subject", &n), *action = view_str(piece, "action", &ns);
        const char *lead = strcmp(action, "process.exec") == 0 ? "$ "
                           : strcmp(action, "fs.write") == 0   ? "write "
                           : strcmp(action, "fs.read") == 0    ? "read "
                                                               : "";
        br_buf_printf(&line, "%s%.*s", lead, (int)n, text);
        text = view_str(piece, "ruleId", &n);
        if (n)
            br_buf_printf(&line, "  (%.*s)", (int)n, text);
        view_labeled(v, i ? "" : "    asks    ", LABEL, (char *)line.data, line.len, 0);
    }
    uint64_t more = view_u64(data, "more");
    if (more)
        br_buf_printf(&v->out, "            and %llu more\n", (unsigned long long)more);
}

static void put_list(struct br_buf *b, const char *lead, const json_t *list, const char *tail)
{
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item)
        br_buf_printf(b, "%s%.*s", i ? ", " : lead, (int)json_string_length(item),
                      json_is_string(item) ? json_string_value(item) : "");
    if (json_array_size(list))
        br_buf_printf(b, "%s\n", tail);
}

static void put_touches(struct br_cli_view *v, const json_t *data)
{
    const json_t *t = json_object_get(data, "touches");
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    size_t n;
    char tail[64] = "";
    put_list(&b, "writes ", json_object_get(t, "writes"), "");
    put_list(&b, "reads ", json_object_get(t, "reads"), "");
    put_list(&b, "names the host ", json_object_get(t, "hosts"), "; the sandbox has no network");
    put_list(&b, "sets ", json_object_get(t, "env"), "");
    const char *directory = view_str(t, "directory", &n);
    if (n)
        br_buf_printf(&b, "runs in %.*s\n", (int)n, directory);
    if (view_u64(t, "stdinBytes"))
        br_buf_printf(&b, "reads %llu bytes of input\n",
                      (unsigned long long)view_u64(t, "stdinBytes"));
    if (view_u64(t, "writableMore"))
        snprintf(tail, sizeof(tail), " and %llu more",
                 (unsigned long long)view_u64(t, "writableMore"));
    put_list(&b, "can write ", json_object_get(t, "writable"), tail);
    if (b.len)
        view_labeled(v, "    touches ", LABEL, (char *)b.data, b.len, 0);
}

static void put_rule(struct br_cli_view *v, const json_t *data)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    size_t n;
    const char *rule = view_str(data, "ruleId", &n);
    br_buf_printf(&b, "%.*s", (int)n, rule);
    const char *file = view_str(data, "file", &n);
    if (n)
        br_buf_printf(&b, " in %.*s", (int)n, file);
    if (n && view_u64(data, "line"))
        br_buf_printf(&b, ":%llu", (unsigned long long)view_u64(data, "line"));
    view_labeled(v, "    rule    ", LABEL, (char *)b.data, b.len, 0);
}

static void put_change(struct br_cli_view *v, const json_t *data)
{
    const json_t *rules = json_object_get(data, "rules"), *rule;
    size_t i, n;
    const char *text = view_str(data, "advice", &n);
    if (n)
        view_labeled(v, "    change  ", LABEL, text, n, 0);
    json_array_foreach(rules, i, rule)
    {
        text = view_str(rule, "text", &n);
        view_block(v, "              ", text, n, 0);
    }
    text = view_str(data, "why", &n);
    if (n)
        view_labeled(v, "    explain ", LABEL, text, n, 0);
}

void view_ask(struct br_cli_view *v, json_t *data)
{
    view_style_on(v, VIEW_DIM);
    put_commands(v, data);
    put_touches(v, data);
    put_rule(v, data);
    put_change(v, data);
    view_style_off(v, VIEW_DIM);
    if (!v->questions)
        v->questions = json_array();
    json_array_append(v->questions, data);
}

/* ---- more than one -------------------------------------------------------------------------- */

static const json_t *question_of(const struct br_cli_view *v, const char *permission, size_t *at)
{
    const json_t *q;
    size_t i;
    json_array_foreach(v->questions, i, q)
    {
        *at = i;
        if (str_is(q, "permissionId", permission))
            return q;
    }
    return NULL;
}

static void put_short(struct br_cli_view *v, const json_t *q, unsigned max)
{
    size_t n, ns;
    const char *action = view_str(q, "action", &n), *subject = view_str(q, "subject", &ns);
    unsigned used = n < 16 ? (unsigned)n : 16;
    br_cli_put_line(&v->out, action, n, 16);
    br_buf_put_u8(&v->out, ' ');
    br_cli_put_line(&v->out, subject, ns, max > used + 1 ? max - used - 1 : 1);
}

void view_asks(struct br_cli_view *v, const json_t *data)
{
    const json_t *list = json_object_get(data, "asks"), *entry;
    size_t i, n, at, count = json_array_size(list);
    v->grouped = count > 1;
    if (count < 2)
        return;
    br_buf_printf(&v->out, "\n  ");
    view_style_on(v, VIEW_YELLOW);
    br_buf_printf(&v->out, "%zu permissions wanted in this turn:", count);
    view_style_off(v, VIEW_YELLOW);
    br_buf_printf(&v->out, "\n");
    json_array_foreach(list, i, entry)
    {
        const json_t *q = question_of(v, view_str(entry, "permissionId", &n), &at);
        bool run = str_is(q, "scope", "run");
        br_buf_printf(&v->out, "    %3zu  ", i + 1);
        put_short(v, q, view_room(v, run ? 9 : 22));
        br_buf_printf(&v->out, run ? "\n" : "  (once only)\n");
    }
}

void br_cli_view_question(struct br_cli_view *v, const char *permission, unsigned i, unsigned n)
{
    size_t at, nc, ns;
    const json_t *q = question_of(v, permission, &at);
    if (!q)
        return;
    const char *call_id = view_str(q, "callId", &nc);
    json_decref(v->call);
    v->call = json_incref(json_object_get(v->calls, call_id));
    v->call_shown = false;
    view_asked_call(v, call_id, view_str(q, "subject", &ns));
    br_buf_printf(&v->out, "\n  ");
    view_style_on(v, VIEW_YELLOW);
    br_buf_printf(&v->out, "%u of %u: ", i, n);
    br_cli_put_line(&v->out, view_str(q, "action", &ns), strlen(view_str(q, "action", &ns)), 40);
    view_style_off(v, VIEW_YELLOW);
    br_buf_printf(&v->out, "\n");
    put_subject(v, q);
}

/* ---- the answer ----------------------------------------------------------------------------- */

void view_resolved(struct br_cli_view *v, const json_t *event, const json_t *data)
{
    size_t n, np, at;
    bool allow = str_is(data, "decision", "allow");
    bool person = str_is(event, "actor", "operator");
    const char *note = view_str(data, "note", &n);
    v->allowed += allow;
    v->denied += !allow && person;
    v->unanswered += !allow && !person;
    v->ask_id[0] = '\0';
    br_buf_printf(&v->out, "  ");
    view_word(v, allow ? VIEW_GREEN : VIEW_RED, allow ? "allowed" : "denied", 0);
    if (person) /* otherwise Bridle itself: the note says why */
        br_buf_printf(&v->out, " by the operator");
    else if (!n)
        br_buf_printf(&v->out, ": nobody answered");
    if (n) {
        br_buf_printf(&v->out, ": ");
        br_cli_put_line(&v->out, note, n, view_room(v, 30));
    }
    br_buf_printf(&v->out, "\n");
    const json_t *q = question_of(v, view_str(data, "permissionId", &np), &at);
    if (q && v->grouped) {
        br_buf_printf(&v->out, "          ");
        put_short(v, q, view_room(v, 10));
        br_buf_printf(&v->out, "\n");
    }
    if (q)
        json_array_remove(v->questions, at);
}

void view_answered(struct br_cli_view *v, const json_t *data)
{
    size_t n;
    const char *by = view_str(data, "by", &n);
    view_style_on(v, VIEW_DIM);
    br_buf_printf(&v->out, "          answered by ");
    br_cli_put_line(&v->out, by, n, view_room(v, 24));
    br_buf_printf(&v->out, "\n");
    view_style_off(v, VIEW_DIM);
}

void view_grant(struct br_cli_view *v, const json_t *data)
{
    bool exec = str_is(data, "action", "process.exec");
    view_style_on(v, VIEW_DIM);
    br_buf_printf(&v->out, exec ? "          exactly this command, in this directory, is not "
                                  "asked about again\n"
                                : "          exactly this is not asked about again\n");
    view_style_off(v, VIEW_DIM);
}
