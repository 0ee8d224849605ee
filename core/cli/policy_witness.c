/*
 * Requests that a rule is about, made from the rule: each pattern with its wildcards filled in, in
 * a few ways, and, if it has conditions, each also in a context that these are about, so that a
 * changed rule shows in `bridle policy diff` without any history. They are witnesses: what they
 * show is so, what they do not show may still be. Nothing is matched here.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/policy_priv.h"

#define VARIANTS 3u

/* What stands for a wildcard: short and unlikely to be anybody's, nothing, or more than one part.
 */
static const struct {
    const char *star, *dirs, *one;
} fillings[VARIANTS] = {{"w", "w", "w"}, {"", "", "v"}, {"w.txt", "w/v", "w"}};

/* Append the pattern with its wildcards filled; a "**" segment that is filled with nothing takes
 * its '/' along. */
static void fill(struct br_buf *b, const char *p, unsigned variant, bool path)
{
    for (; *p; p++) {
        if (*p == '?') {
            br_buf_printf(b, "%s", fillings[variant].one);
        } else if (*p != '*') {
            br_buf_put_u8(b, (uint8_t)*p);
        } else if (path && p[1] == '*') {
            p++;
            br_buf_printf(b, "%s", fillings[variant].dirs);
            if (!*fillings[variant].dirs && p[1] == '/')
                p++;
            else if (!*fillings[variant].dirs && !p[1] && b->len && b->data[b->len - 1] == '/')
                b->len--;
        } else {
            br_buf_printf(b, "%s", fillings[variant].star);
        }
    }
}

static void add(json_t *list, json_t *request, const char *rule)
{
    json_object_set_new(request, "rule", json_string(rule));
    json_array_append_new(list, request);
}

static void add_subject(json_t *list, const char *action, const char *subject, const char *rule)
{
    add(list, json_pack("{s:s, s:s*}", "action", action, "subject", subject), rule);
}

static void add_command(json_t *list, const char *line, const char *rule)
{
    json_t *argv = json_array();
    char *copy = strdup(line), *save = NULL;
    for (char *w = copy ? strtok_r(copy, " ", &save) : NULL; w; w = strtok_r(NULL, " ", &save))
        json_array_append_new(argv, json_string(w));
    free(copy);
    if (json_array_size(argv))
        add(list, json_pack("{s:s, s:O}", "action", "process.exec", "argv", argv), rule);
    json_decref(argv);
}

static const char *first_text(const json_t *list, size_t i)
{
    const char *s = json_string_value(json_array_get(list, i % (json_array_size(list) + !list)));
    return s ? s : "";
}

/* program, sub-command, one flag of each group, an argument. */
static void add_program(json_t *list, const json_t *rule, const char *id)
{
    const json_t *c = json_object_get(rule, "command"), *group;
    const json_t *arguments = json_object_get(c, "arguments");
    size_t i, n;
    for (unsigned variant = 0; variant < VARIANTS; variant++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SUBJECT_MAX);
        fill(&b, view_str(c, "program", &n), variant, false);
        json_array_foreach(json_object_get(c, "words"), i, group)
        {
            br_buf_put_u8(&b, ' ');
            fill(&b, first_text(group, variant), variant == 1 ? 0 : variant, false);
        }
        json_array_foreach(json_object_get(c, "flags"), i, group)
            br_buf_printf(&b, " %s", first_text(group, variant));
        if (json_array_size(arguments)) {
            br_buf_put_u8(&b, ' ');
            fill(&b, first_text(arguments, variant), variant, false);
        } else if (variant == 1) {
            br_buf_printf(&b, " w");
        }
        const char *line = br_buf_cstr(&b);
        if (line)
            add_command(list, line, id);
    }
}

static void add_any(json_t *list, const char *action, const char *id)
{
    static const char *const commands[] = {"w", "w v", "sh -c w"};
    static const char *const paths[] = {"w.txt", "w/v.c", "."}, *const others[] = {"w", "w/v"};
    static const char *const hosts[] = {"w.example", "w.example:443"};
    if (strcmp(action, "process.exec") == 0)
        for (size_t i = 0; i < BR_ARRAY_LEN(commands); i++)
            add_command(list, commands[i], id);
    else if (strncmp(action, "fs.", 3) == 0)
        for (size_t i = 0; i < BR_ARRAY_LEN(paths); i++)
            add_subject(list, action, paths[i], id);
    else if (strcmp(action, "network") == 0)
        for (size_t i = 0; i < BR_ARRAY_LEN(hosts); i++)
            add_subject(list, action, hosts[i], id);
    else
        for (size_t i = 0; i < BR_ARRAY_LEN(others); i++)
            add_subject(list, action, others[i], id);
    if (strcmp(action, "process.exec") != 0)
        add_subject(list, action, NULL, id);
}

static void add_pattern(json_t *list, const json_t *rule, const char *action, const char *id)
{
    size_t n;
    const char *match = view_str(rule, "match", &n), *pattern = view_str(rule, "pattern", &n);
    if (strcmp(match, "any") == 0 || n == 0) {
        add_any(list, action, id);
        return;
    }
    if (strcmp(match, "program") == 0) {
        if (strcmp(action, "process.exec") == 0)
            add_program(list, rule, id);
        return;
    }
    for (unsigned variant = 0; variant < VARIANTS; variant++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * BR_SUBJECT_MAX);
        fill(&b, pattern, variant, strcmp(match, "path") == 0);
        const char *text = b.len ? br_buf_cstr(&b) : NULL;
        if (text && strcmp(match, "command") == 0)
            add_command(list, text, id);
        else if (text)
            add_subject(list, action, text, id);
    }
}

/* ---- what conditions want ---- */

#define MONDAY 1767571200 /* 2026-01-05 */
#define DAY 86400
#define MUCH 4000000000u /* uses up every budget, and is one that calls can have */

/* A time within the condition: the beginning of its first day. */
static json_int_t time_within(const json_t *time)
{
    uint64_t days = view_u64(time, "days");
    unsigned day = 0;
    while (day < 6 && !(days >> day & 1))
        day++;
    time_t t = MONDAY + (time_t)day * DAY + (time_t)(view_u64(time, "from") % 1440) * 60;
    const json_t *zone = json_object_get(time, "zone");
    struct tm tm;
    if (zone)
        t -= (time_t)(json_integer_value(zone) % 1440) * 60;
    else if (localtime_r(&t, &tm))
        t -= tm.tm_gmtoff;
    return (json_int_t)t;
}

/* A counter's use within the limit, if it is not the first one's. */
static void use_within(json_t *context, const json_t *limit)
{
    size_t n;
    bool over = strcmp(view_str(limit, "is", &n), "over") == 0;
    bool used = strcmp(view_str(limit, "value", &n), "used") == 0;
    uint64_t least = used && over ? view_u64(limit, "limit") + 1 : !used && !over ? MUCH : 0;
    const char *counter = view_str(limit, "counter", &n);
    if (least > view_u64(context, counter))
        json_object_set_new(context, counter, json_integer((json_int_t)least));
}

static void name_within(json_t *context, const char *name, const json_t *patterns)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SUBJECT_MAX);
    if (json_array_size(patterns) == 0)
        return;
    fill(&b, first_text(patterns, 0), 0, false);
    const char *text = br_buf_cstr(&b);
    if (text && strcmp(name, "env") != 0) {
        json_object_set_new(context, name, json_string(text));
    } else if (text) {
        if (!strchr(text, '='))
            br_buf_printf(&b, "=w");
        text = br_buf_cstr(&b);
        json_object_set_new(context, name, json_pack("[s*]", text));
    }
}

/* A context that the rule's conditions are about; NULL if it has none. */
static json_t *context_of(const json_t *rule, const json_t *conditions)
{
    const json_t *when = json_object_get(rule, "when"), *index, *limit;
    json_t *context = json_array_size(when) ? json_object() : NULL;
    size_t i, k;
    json_array_foreach(when, i, index)
    {
        const json_t *c = json_array_get(conditions, (size_t)json_integer_value(index));
        name_within(context, "tool", json_object_get(c, "tool"));
        name_within(context, "model", json_object_get(c, "model"));
        name_within(context, "env", json_object_get(c, "env_only"));
        name_within(context, "env", json_object_get(c, "env"));
        if (json_object_get(c, "time"))
            json_object_set_new(context, "time",
                                json_integer(time_within(json_object_get(c, "time"))));
        json_array_foreach(json_object_get(c, "budget"), k, limit) use_within(context, limit);
    }
    return context;
}

void policy_witnesses(json_t *list, const json_t *rule, const json_t *actions,
                      const json_t *conditions)
{
    size_t n, before = json_array_size(list);
    const char *action = view_str(rule, "action", &n), *id = view_str(rule, "id", &n), *name;
    json_t *unused;
    if (strcmp(action, "*") != 0) {
        add_pattern(list, rule, action, id);
    } else {
        json_object_foreach((json_t *)(uintptr_t)actions, name, unused)
            add_pattern(list, rule, name, id);
    }
    json_t *context = context_of(rule, conditions);
    size_t end = json_array_size(list);
    for (size_t i = before; context && i < end; i++) {
        json_t *q = json_copy(json_array_get(list, i));
        json_object_set(q, "context", context);
        json_array_append_new(list, q);
    }
    json_decref(context);
}
