/*
 * Mode policy: compile, send the client the pinned table, and then decide what it asks about, with
 * the very code that decides a call of a run: shell strings are taken apart, wrappers looked
 * through, predicates asked. Nothing is recorded, asked or started. The client is the operator's
 * own; what it sends may still be somebody's export, so it is scanned and checked like anything
 * else. Ends when the client leaves.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

/* A table, and what explains it. */
#define ASK_NODES_MAX 100000u
/* ---- what every rule said ---- */

static void note_rule(const struct br_explained *e, void *ctx)
{
    br_buf_put(ctx, br_why_name(e->why), 1);
}

static json_t *votes_json(const struct br_decision *d)
{
    json_t *votes = json_array();
    for (unsigned i = 0; i < d->nvotes; i++) {
        const struct br_vote *v = &d->votes[i];
        json_t *vote =
            json_pack("{s:s, s:s, s:s, s:s*, s:s*}", "source", v->source, "ruleId", v->rule_id,
                      "effect", br_effect_name(v->effect), "reason", v->reason, "file", v->file);
        if (v->line)
            json_object_set_new(vote, "line", json_integer(v->line));
        json_array_append_new(votes, vote);
    }
    return votes;
}

/* What is known only when it runs is shown as '...'. */
static json_t *word_json(const char *word)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4 * BR_SUBJECT_MAX);
    for (; *word; word++)
        if (br_is_unknown(*word))
            br_buf_put(&b, "...", 3);
        else
            br_buf_put_u8(&b, (uint8_t)*word);
    return json_string(b.len ? br_buf_cstr(&b) : "");
}

void session_table_decide(struct session *s, const struct br_request *asked, bool against,
                          struct br_decision *d)
{
    struct br_request with = *asked, *q = &with;
    if (!q->context)
        q->context = &s->context;
    BR_CLEANUP_BUF struct br_buf rules = BR_BUF_INIT(BR_RULES_MAX + 1);
    if (!s->trace || json_array_size(s->trace) >= BR_POLICY_TRACE_MAX) {
        s->trace_cut = s->trace != NULL;
        br_table_decide(s->table, q, d);
        return;
    }
    if (br_table_explain(s->table, q, d, note_rule, &rules) < 0)
        return; /* it denies */
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s*, s:b, s:o, s:s}", "action", q->action,
                          "effect", br_effect_name(d->effect), "ruleId", d->rule_id, "source",
                          d->source, "reason", d->reason, "against", (int)against, "votes",
                          votes_json(d), "rules", rules.len ? br_buf_cstr(&rules) : "");
    if (q->words) {
        json_t *words = json_array();
        for (size_t i = 0; i < q->nwords; i++)
            json_array_append_new(words, word_json(q->words[i]));
        json_object_set_new(o, "words", words);
    } else if (q->subject) {
        json_object_set_new(o, "subject", json_stringn(q->subject, q->subject_len));
    }
    json_array_append_new(s->trace, o);
}

/* ---- requests ---- */

static json_t *failure(int code, const char *text)
{
    return json_pack("{s:{s:s, s:s}}", "error", "code", br_code_name(code), "message", text);
}

static json_t *words_decision(struct session *s, json_t *argv)
{
    const char *words[BR_EXEC_ARGS_MAX + 1] = {NULL};
    struct br_decision d;
    size_t n = json_array_size(argv);
    for (size_t i = 0; i < n; i++)
        words[i] = json_string_value(json_array_get(argv, i));
    session_table_decide(
        s, &(struct br_request){.action = "process.exec", .words = words, .nwords = n}, false, &d);
    return json_pack("{s:s, s:s, s:s, s:s, s:s*, s:b, s:o}", "action", "process.exec", "effect",
                     br_effect_name(d.effect), "ruleId", d.rule_id, "source", d.source, "reason",
                     d.reason, "opaque", 0, "votes", votes_json(&d));
}

/* A tool call as a model makes it: {"tool", "input"}. */
static int resolve_tool(json_t *q, struct effect *e, struct br_err *err)
{
    const char *tool = json_string_value(json_object_get(q, "tool"));
    json_t *input = json_object_get(q, "input");
    return tools_resolve(tool ? tool : "", input, e, err);
}

/* {"action", and "argv" or "shell", "cwd"; or "subject"}. A path is taken as the tools take it. */
static int resolve_action(json_t *q, struct effect *e, struct br_err *err)
{
    const char *action = json_string_value(json_object_get(q, "action"));
    json_t *subject = json_object_get(q, "subject"), *input = json_object();
    bool fs = strncmp(action, "fs.", 3) == 0;
    int r = -BR_E_NOT_FOUND;
    if (strcmp(action, "process.exec") == 0 && !subject) {
        const char *const keys[][2] = {{"argv", "argv"}, {"shell", "command"}, {"cwd", "cwd"}};
        for (size_t i = 0; i < BR_ARRAY_LEN(keys); i++)
            if (json_object_get(q, keys[i][0]))
                json_object_set(input, keys[i][1], json_object_get(q, keys[i][0]));
        r = tools_resolve("process_exec", input, e, err);
        json_decref(input);
        return r;
    }
    if (fs && json_string_length(subject)) { /* "./a" and "/workspace/a" are "a" to a session */
        json_object_set(input, "path", subject);
        r = tools_resolve("fs_list", input, e, NULL);
    }
    json_decref(input);
    if (r < 0) {
        effect_free(e);
        *e = (struct effect){.subject = subject ? strdup(json_string_value(subject)) : NULL};
        if (subject && !e->subject)
            return br_err_set(err, BR_E_NOMEM, "no memory for a request");
    }
    e->op.op = BR_OP_FS_LIST;
    e->action = action;
    e->tool = NULL; /* any of those that have this action */
    return 0;
}

/* "" for what is a request. */
static const char *request_problem(json_t *q)
{
    const char *action = json_string_value(json_object_get(q, "action"));
    json_t *subject = json_object_get(q, "subject"), *argv = json_object_get(q, "argv"), *v;
    size_t i;
    if (json_object_get(q, "tool"))
        return "";
    if (!action || !*action || strlen(action) > BR_ACTION_MAX)
        return "a request needs an action of 1 to 63 bytes";
    if (subject && !json_is_string(subject))
        return "a subject is a text";
    if (argv && (!json_is_array(argv) || json_array_size(argv) > BR_EXEC_ARGS_MAX))
        return "a command has at most 256 words";
    json_array_foreach(argv, i, v) if (!json_is_string(v)) return "a word is a text";
    argv = json_object_get(json_object_get(q, "context"), "env");
    if (argv && (!json_is_array(argv) || json_array_size(argv) > BR_EXEC_ARGS_MAX))
        return "a request changes at most 256 variables";
    json_array_foreach(argv, i,
                       v) if (!json_is_string(v)) return "a change of a variable is a text";
    return "";
}

static uint64_t count_of(json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

/* {"time", "model", "calls", "tokens", "asks", "tool", "env"}: when, in which run and by what the
 * call was made; absent is now, the beginning of a run without a model, the call's own tool, and no
 * change of the environment. What it points to lives as long as q, and as `env`. */
static void take_context(struct session *s, json_t *q, const char *env[BR_EXEC_ARGS_MAX])
{
    json_t *c = json_object_get(q, "context"), *change;
    size_t i;
    s->as_of.tool = json_string_value(json_object_get(c, "tool"));
    s->as_of.env = env;
    s->as_of.nenv = 0;
    json_array_foreach(json_object_get(c, "env"), i, change)
    {
        if (s->as_of.nenv < BR_EXEC_ARGS_MAX && json_is_string(change))
            env[s->as_of.nenv++] = json_string_value(change);
    }
    const char *model = json_string_value(json_object_get(c, "model"));
    s->as_of.unix_time = (int64_t)count_of(c, "time");
    s->as_of.asks = count_of(c, "asks");
    s->budget.calls = (uint32_t)count_of(c, "calls");
    s->budget.tokens = count_of(c, "tokens");
    snprintf(s->model, sizeof(s->model), "%s", model ? model : "");
}

json_t *session_policy_answer(struct session *s, json_t *q)
{
    struct br_err err = {.code = BR_OK};
    struct effect e = {.action = NULL};
    enum br_effect decided;
    const char *problem = request_problem(q);
    json_t *argv = json_object_get(q, "argv"), *said = NULL;
    const char *first = json_string_value(json_array_get(argv, 0)), *env[BR_EXEC_ARGS_MAX];
    if (*problem)
        return failure(BR_E_INVALID_ARGUMENTS, problem);
    take_context(s, q, env);
    if (json_is_true(json_object_get(q, "explain")))
        s->trace = json_array();
    int r = 0;
    if (argv && (!first || !*first)) { /* no tool makes such a call; the table denies it */
        said = words_decision(s, argv);
    } else {
        r = json_object_get(q, "tool") ? resolve_tool(q, &e, &err) : resolve_action(q, &e, &err);
        if (r == 0) /* a denial has its code as well; what was decided is in `said` */
            (void)session_foresee(s, "policy", &e, &decided, &said, &err);
        effect_free(&e);
    }
    if (!said)
        said = failure(r < 0 ? r : -BR_E_INTERNAL, err.text);
    if (s->trace)
        json_object_set(said, "trace", s->trace);
    if (s->trace_cut)
        json_object_set_new(said, "cut", json_true());
    s->trace_cut = false;
    json_decref(s->trace);
    s->trace = NULL;
    s->as_of.tool = NULL;
    s->as_of.env = NULL;
    s->as_of.nenv = 0;
    return said;
}

static json_t *answer_table(struct session *s)
{
    struct br_err err = {.code = BR_OK};
    struct br_table *t = NULL;
    int r = br_table_load(s->asked.text.data ? (char *)s->asked.text.data : "", s->asked.text.len,
                          &t, &err);
    if (r < 0)
        return failure(r, err.text);
    br_table_free(&s->table);
    s->table = t;
    return json_object();
}

static void answer_one(struct session *s)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    const char *p = s->asked.text.data ? (char *)s->asked.text.data : "";
    json_t *said = NULL, *q = NULL;
    if (s->asked.table) {
        said = answer_table(s);
    } else if (br_json_scan(p, s->asked.text.len, BR_JSON_DEPTH_MAX, ASK_NODES_MAX, NULL) == 0) {
        q = json_loadb(p, s->asked.text.len, JSON_REJECT_DUPLICATES, NULL);
        said = json_is_object(q) ? session_policy_answer(s, q) : NULL;
    }
    if (!said)
        said = failure(BR_E_INVALID_JSON, "the request is not a JSON object");
    BR_CLEANUP_FREE char *text = json_dumps(said, JSON_COMPACT);
    json_decref(said);
    json_decref(q);
    br_buf_free(&s->asked.text);
    s->asked.is = false;
    br_out_blob(&out, text ? text : "{}", text ? strlen(text) : 2);
    session_permit_policy(s, true);
    (void)br_chan_send(&s->client, BR_MSG_POLICY_SAID, s->asked.id, &out, NULL);
}

/* ---- the mode ---- */

/* Texts, each with its NUL, as a list. */
static json_t *lines_json(const struct br_buf *lines)
{
    json_t *list = json_array();
    for (size_t off = 0; off < lines->len;) {
        const char *w = (const char *)lines->data + off;
        json_array_append_new(list, json_string(w));
        off += strlen(w) + 1;
    }
    return list;
}

static json_t *report_json(struct session *s, int r, const struct br_err *err)
{
    json_t *warnings = lines_json(&s->warnings), *report = json_object();
    json_object_set_new(report, "ok", json_boolean(r == 0));
    if (s->policy_path[0])
        json_object_set_new(report, "policy", json_string(s->policy_path));
    if (s->pin.generation)
        json_object_set_new(report, "generation", json_integer((json_int_t)s->pin.generation));
    json_object_set_new(report, "warnings", warnings);
    if (r < 0) {
        json_t *e = json_pack("{s:s, s:s}", "code", br_code_name(r), "message", err->text);
        if (s->scripted_reply.code < 0 && s->scripted_reply.text[0])
            json_object_set_new(e, "file", json_string(s->scripted_reply.text));
        if (s->scripted_reply.code < 0 && s->scripted_reply.n1)
            json_object_set_new(e, "line", json_integer((json_int_t)s->scripted_reply.n1));
        if (s->errors.len)
            json_object_set_new(e, "all", lines_json(&s->errors));
        json_object_set_new(report, "error", e);
        return report;
    }
    char hex[65];
    br_hex(hex, br_table_sha256(s->table), 32);
    json_object_set_new(report, "sha256", json_string(hex));
    json_object_set_new(report, "rules", json_integer(br_table_rules(s->table)));
    return report;
}

void session_run_policy(struct session *s, struct outcome *o)
{
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf table = BR_BUF_INIT(BR_TABLE_MAX);
    int r = session_compile(s, &err);
    if (r == 0 && s->stop_code) {
        r = s->stop_code;
        err = s->stop_err;
    }
    if (r == 0) /* the next answer of the script takes its place */
        br_buf_put(&table, s->scripted_reply.data.data, s->scripted_reply.data.len);
    json_t *report = report_json(s, r, &err);
    BR_CLEANUP_FREE char *text = json_dumps(report, JSON_COMPACT);
    json_decref(report);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_out_blob(&out, text ? text : "{}", text ? strlen(text) : 2);
    br_out_blob(&out, table.data ? (char *)table.data : "", table.len);
    (void)br_chan_send(&s->client, BR_MSG_POLICY_TABLE, 0, &out, NULL);
    o->code = r < 0 ? -r : 0;
    o->exit_code = br_code_exit(r);
    snprintf(o->text, sizeof(o->text), "%s", r < 0 ? err.text : "");
    if (r < 0)
        return;
    s->budget.deadline_us = 0; /* the supervisor's clock is the limit */
    session_permit_policy(s, true);
    while (!s->stop_code) {
        s->kick = false;
        if (s->asked.is)
            answer_one(s);
        else if (br_loop_run(s->loop, &s->kick, &err) < 0)
            break;
    }
    if (s->stop_code && s->stop_code != -BR_E_CANCELED) { /* the client leaves when it has enough */
        o->code = -s->stop_code;
        o->exit_code = br_code_exit(s->stop_code);
        snprintf(o->text, sizeof(o->text), "%s", s->stop_err.text);
    }
}
