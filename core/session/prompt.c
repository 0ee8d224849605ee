/*
 * What a person is shown of a question, beside the request itself: the simple commands and files
 * that needed it, what they would touch as far as that is known before they run, the rule that asks
 * with the place where it is written, and how to change the answer. Made from the decision and the
 * table; the text in it is a model's or the operator's, and the client makes it safe to show.
 */
#include <stdlib.h>
#include <string.h>

#include "session/session_priv.h"

#define PATHS_MAX 16u
#define HOSTS_MAX 8u
#define WRITABLE_MAX 8u
#define RULES_MAX 4u
/* A longer pattern is none that a person would write. */
#define PATTERN_MAX 200u

/* ---- what it would touch ---- */

static void add_once(json_t *list, const char *text, size_t n, size_t max)
{
    const json_t *v;
    size_t i;
    json_array_foreach(list, i, v)
    {
        if (json_string_length(v) == n && memcmp(json_string_value(v), text, n) == 0)
            return;
    }
    if (json_array_size(list) < max)
        json_array_append_new(list, json_stringn(text, n));
}

static void set_list(json_t *o, const char *key, json_t *list)
{
    if (json_array_size(list))
        json_object_set(o, key, list);
    json_decref(list);
}

/* The hosts of URLs among the words. Whether they can be reached is the sandbox's matter. */
static void add_hosts(json_t *hosts, const char *text)
{
    for (const char *p = text; (p = strstr(p, "://"));) {
        p += 3;
        size_t n = strcspn(p, "/ \t\n'\"?#\\"), at = 0;
        for (size_t i = 0; i < n; i++)
            if (p[i] == '@') /* what stands before it may be a password */
                at = i + 1;
        if (n > at && n - at <= 253)
            add_once(hosts, p + at, n - at, HOSTS_MAX);
        p += n;
    }
}

static void add_command(json_t *o, const struct attempt *a)
{
    json_t *reads = json_array(), *writes = json_array(), *hosts = json_array(), *piece;
    size_t i;
    json_array_foreach(a->v.pieces, i, piece)
    {
        const char *action = json_string_value(json_object_get(piece, "action"));
        const json_t *subject = json_object_get(piece, "subject");
        const char *text = json_string_value(subject);
        if (strcmp(action, "fs.read") == 0)
            add_once(reads, text, json_string_length(subject), PATHS_MAX);
        else if (strcmp(action, "fs.write") == 0)
            add_once(writes, text, json_string_length(subject), PATHS_MAX);
        else
            add_hosts(hosts, text);
    }
    set_list(o, "reads", reads);
    set_list(o, "writes", writes);
    set_list(o, "hosts", hosts);
    if (json_array_size(a->v.env))
        json_object_set(o, "env", a->v.env);
    if (a->e->op.path[0])
        json_object_set_new(o, "directory", json_string(a->e->op.path));
    if (a->e->op.text2.len)
        json_object_set_new(o, "stdinBytes", json_integer((json_int_t)a->e->op.text2.len));
}

/* Whatever a command does, it can write these and nothing else of the workspace. */
static void add_writable(struct session *s, json_t *o)
{
    json_t *writable = json_array(), *v;
    const json_t *paths = json_object_get(s->task, "allowed_paths");
    size_t i;
    json_array_foreach(paths, i, v)
    {
        if (i < WRITABLE_MAX && json_is_string(v))
            json_array_append(writable, v);
    }
    if (json_array_size(paths) > WRITABLE_MAX)
        json_object_set_new(o, "writableMore",
                            json_integer((json_int_t)(json_array_size(paths) - WRITABLE_MAX)));
    set_list(o, "writable", writable);
}

static json_t *touches(struct session *s, const struct attempt *a)
{
    json_t *o = json_object();
    const char *key = strcmp(a->e->action, "fs.write") == 0  ? "writes"
                      : strcmp(a->e->action, "fs.read") == 0 ? "reads"
                      : strcmp(a->e->action, "network") == 0 ? "hosts"
                                                             : NULL;
    if (a->e->op.op == BR_OP_EXEC) {
        add_command(o, a);
        add_writable(s, o);
    } else if (key) {
        json_object_set_new(o, key, json_pack("[s]", a->e->subject));
    }
    return o;
}

/* ---- how to change it ---- */

/* Characters that stand for themselves in a pattern and in a Lua string. */
static bool is_plain(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e || strchr("\"\\'*?`$", s[i]))
            return false;
    return n > 0 && n <= PATTERN_MAX && s[0] != ' ' && s[n - 1] != ' ' && !strstr(s, "  ");
}

/* "allow-make-test" */
static void rule_name(const char *text, char out[48])
{
    size_t at = (size_t)snprintf(out, 48, "allow");
    unsigned words = 0;
    for (const char *p = text; *p && words < 2 && at < 46; words++) {
        size_t n = strcspn(p, " /"), start = at;
        out[at++] = '-';
        for (size_t i = 0; i < n && at < 46; i++) {
            char c = (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] | 0x20 : p[i]);
            bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
            if (good)
                out[at++] = c;
        }
        if (at == start + 1)
            at = start;
        p += n + (p[n] != 0);
    }
    out[at] = 0;
}

/* A rule that allows exactly this, as an operator would write it. */
static void add_rule(json_t *rules, const char *action, const char *text)
{
    char line[PATTERN_MAX + 160], name[48];
    const char *key = strcmp(action, "process.exec") == 0 ? "command"
                      : strncmp(action, "fs.", 3) == 0    ? "path"
                      : strcmp(action, "network") == 0    ? "host"
                                                          : "text";
    if (json_array_size(rules) == RULES_MAX || !is_plain(text))
        return;
    rule_name(text, name);
    snprintf(line, sizeof(line), "policy.allow { id = \"%s\", action = \"%s\", %s = \"%s\" },",
             name, action, key, text);
    json_array_append_new(rules, json_pack("{s:s}", "text", line));
}

static json_t *suggested_rules(const struct attempt *a)
{
    json_t *rules = json_array(), *piece;
    size_t i;
    json_array_foreach(a->v.asking, i, piece)
        add_rule(rules, json_string_value(json_object_get(piece, "action")),
                 json_string_value(json_object_get(piece, "subject")));
    if (!json_array_size(a->v.asking))
        add_rule(rules, a->e->action, a->e->subject);
    return rules;
}

/* Where such a rule goes. A policy without a path is one that is shipped; one that is held for many
 * runs takes no other file for one of them, and no change by itself. */
static void advise_rule(struct session *s, struct br_buf *b)
{
    const char *name = s->policy_path[0] ? s->policy_path : "default";
    bool held = s->pin.generation != 0;
    if (strchr(name, '/') || strstr(name, ".lua"))
        br_buf_printf(b, "To be asked no more, add to 'rules' in %s%s:", name,
                      held ? ", and run 'bridle policy reload'" : "");
    else
        br_buf_printf(b,
                      "To be asked no more, add to 'rules' of a policy of your own (extend = "
                      "\"%s\"), and %s:",
                      name, held ? "run 'bridle policy reload FILE'" : "run with -p FILE");
}

static void advise(struct session *s, const struct attempt *a, const struct br_where *w, bool known,
                   bool rules, struct br_buf *b)
{
    const char *source = a->v.source, *id = a->v.rule_id;
    if (strcmp(source, "manifest") == 0)
        br_buf_printf(b, "The task manifest asks, under 'permissions'; no policy can loosen that.");
    else if (strcmp(source, "profile") == 0)
        br_buf_printf(b, "The sandbox's profile asks; no policy can loosen that.");
    else if (strcmp(id, "opaque-command") == 0)
        br_buf_printf(b, "No rule can allow a command that cannot be taken apart; as plain "
                         "commands it would be decided by the rules for them.");
    else if (!known && strcmp(source, "operator") == 0)
        br_buf_printf(b, "A check of the policy asks; it can only be changed there.");
    else if (known && !w->otherwise)
        br_buf_printf(b,
                      "An ask is stricter than every allow: to be asked no more, narrow or remove "
                      "the rule '%.128s'.",
                      id);
    else if (rules)
        advise_rule(s, b);
    else
        br_buf_printf(b, "A rule that allows it would answer this; see bridle-policy(5).");
}

/* Of those, the ones that say a rule can be added. A run is promoted once: no rule names it. */
static bool can_add(const struct attempt *a, const struct br_where *w, bool known)
{
    if (strcmp(a->e->action, "workspace.promote") == 0)
        return false;
    return (known && w->otherwise && strcmp(a->v.source, "operator") == 0) ||
           strcmp(a->v.rule_id, BR_RULE_DEFAULT) == 0;
}

static bool is_word(const char *s)
{
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
              *s == '_' || *s == '-' || *s == '.'))
            return false;
    return true;
}

json_t *prompt_data(struct session *s, const struct attempt *a)
{
    struct br_where w;
    char why[BR_NAME_MAX + 128];
    const struct verdict *v = &a->v;
    bool known = br_table_where(s->table, v->source, v->rule_id, &w);
    BR_CLEANUP_BUF struct br_buf advice = BR_BUF_INIT(BR_PATH_MAX + 512);
    json_t *rules = can_add(a, &w, known) ? suggested_rules(a) : json_array();
    advise(s, a, &w, known, json_array_size(rules) > 0, &advice);
    json_t *data = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:O, s:o, s:s}", "permissionId", a->permission,
        "callId", a->call_id, "action", a->e->action, "subject", a->e->subject, "scope",
        a->scope == BR_SCOPE_RUN ? "run" : "once", "ruleId", v->rule_id, "source", v->source,
        "opaque", (int)v->opaque, "commands", v->asking, "touches", touches(s, a), "advice",
        advice.len && br_buf_cstr(&advice) ? br_buf_cstr(&advice) : "");
    if (!data) {
        json_decref(rules);
        return NULL;
    }
    if (v->reason)
        json_object_set_new(data, "reason", json_string(v->reason));
    if (w.file)
        json_object_set_new(data, "file", json_string(w.file));
    if (w.line)
        json_object_set_new(data, "line", json_integer(w.line));
    if (v->more)
        json_object_set_new(data, "more", json_integer(v->more));
    set_list(data, "rules", rules);
    if (is_word(a->call_id) && strlen(a->call_id) <= 64) {
        snprintf(why, sizeof(why), "bridle policy why --run %s --call %s", s->run_id, a->call_id);
        json_object_set_new(data, "why", json_string(why));
    }
    return data;
}
