/*
 * bridle policy: the actions `check` and `show`, and what all of them write with. The bundle is
 * compiled by bridle-script under a session (policy_link.c); this program reads the operator's
 * files and prints what came out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/policy_priv.h"

#define FLUSH_BYTES (64u * 1024)

/* ---- output -------------------------------------------------------------------------------- */

void policy_out_init(struct policy_out *o)
{
    struct br_cli_term t;
    *o = (struct policy_out){.lost = false};
    br_cli_term_init(&t, STDIN_FILENO, STDOUT_FILENO);
    br_cli_view_init(&o->v, t.colour, t.width);
    o->tty = t.tty_out;
}

bool policy_out_flush(struct policy_out *o, bool all)
{
    struct br_buf *b = &o->v.out;
    if (b->failed && !o->lost) {
        o->lost = true;
        o->error = ENOMEM;
    }
    if (!o->lost && b->len && (all || b->len >= FLUSH_BYTES)) {
        if (br_write_all(STDOUT_FILENO, b->data, b->len) < 0) {
            o->lost = true;
            o->error = errno;
        }
        br_buf_reset(b);
    }
    return !o->lost;
}

int policy_out_end(struct policy_out *o, int code)
{
    (void)policy_out_flush(o, true);
    br_cli_view_free(&o->v);
    return o->lost ? br_cli_lost_output(o->error) : code;
}

void policy_out_json(struct policy_out *o, json_t *value)
{
    BR_CLEANUP_FREE char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (!text)
        o->v.out.failed = true;
    else if (o->tty)
        br_cli_put_json_safe(&o->v.out, text, strlen(text));
    else
        br_buf_put(&o->v.out, text, strlen(text));
    br_buf_put_u8(&o->v.out, '\n');
    (void)policy_out_flush(o, true);
}

static void put_padded(struct policy_out *o, const char *s, unsigned width, unsigned max)
{
    struct br_buf *b = &o->v.out;
    size_t at = b->len;
    br_cli_put_line(b, s, strlen(s), o->tty ? max : 8192);
    unsigned columns = b->len > at ? view_columns((char *)b->data + at, b->len - at) : 0;
    br_buf_printf(b, "%*s", columns < width ? (int)(width - columns) : 0, "");
}

void policy_out_cell(struct policy_out *o, const char *s, unsigned width)
{
    put_padded(o, s, width, width);
}

void policy_out_name(struct policy_out *o, const char *s, unsigned width)
{
    put_padded(o, s, width, 400);
}

/* ---- rules as text ------------------------------------------------------------------------- */

const char *policy_where(const json_t *rule, char dst[BR_PATH_MAX + 16])
{
    const char *file = json_string_value(json_object_get(rule, "file"));
    unsigned long long line = view_u64(rule, "line");
    dst[0] = 0;
    if (file && line)
        snprintf(dst, BR_PATH_MAX + 16, "%.*s:%llu", (int)BR_PATH_MAX - 1, file, line);
    else if (file)
        snprintf(dst, BR_PATH_MAX + 16, "%.*s", (int)BR_PATH_MAX - 1, file);
    return dst;
}

const char *policy_matcher(const json_t *rule, char dst[BR_PATTERN_MAX + 32])
{
    const char *match = json_string_value(json_object_get(rule, "match"));
    const char *pattern = json_string_value(json_object_get(rule, "pattern"));
    snprintf(dst, BR_PATTERN_MAX + 32, "%s%s%s", match ? match : "otherwise",
             pattern && *pattern ? " " : "", pattern ? pattern : "");
    return dst;
}

const char *policy_source(const json_t *table, const json_t *rule)
{
    const json_t *source = json_array_get(json_object_get(table, "sources"),
                                          json_integer_value(json_object_get(rule, "source")));
    const char *kind = json_string_value(json_object_get(source, "kind"));
    return kind ? kind : "?";
}

/* ---- check --------------------------------------------------------------------------------- */

/* "FILE:LINE: [CODE] TEXT" as the compiler says it; place and code may be absent. FILE is a last
 * component: that of `file` is `file`. */
static json_t *finding(const char *file, const char *code, const char *text)
{
    const char *colon = strchr(text, ':'), *slash = strrchr(file, '/');
    const char *last = slash ? slash + 1 : file;
    char *end = NULL, own[BR_NAME_MAX];
    size_t n = colon ? (size_t)(colon - text) : 0;
    unsigned long long line = colon ? strtoull(colon + 1, &end, 10) : 0;
    bool placed = line && strncmp(end, ": ", 2) == 0 && n > 0 && !memchr(text, ' ', n);
    bool other = placed && (strlen(last) != n || memcmp(last, text, n) != 0);
    json_t *at = other ? json_stringn(text, n) : json_string(file);
    if (placed)
        text = end + 2;
    n = text[0] == '[' ? strcspn(text, "] ") : 0;
    if (n > 1 && n < sizeof(own) && strncmp(text + n, "] ", 2) == 0) {
        snprintf(own, sizeof(own), "%.*s", (int)n - 1, text + 1);
        code = own;
        text += n + 2;
    }
    json_t *f = json_pack("{s:o, s:s, s:s}", "file", at, "code", code, "text", text);
    if (placed)
        json_object_set_new(f, "line", json_integer((json_int_t)line));
    return f;
}

static void put_finding(struct br_buf *b, const json_t *f)
{
    const char *file = json_string_value(json_object_get(f, "file"));
    const char *code = json_string_value(json_object_get(f, "code"));
    const char *text = json_string_value(json_object_get(f, "text"));
    br_buf_put_visible(b, file, strlen(file), true);
    if (json_object_get(f, "line"))
        br_buf_printf(b, ":%llu", (unsigned long long)view_u64(f, "line"));
    br_buf_printf(b, ": %s: ", code);
    br_buf_put_visible(b, text, strlen(text), true);
    br_buf_put_u8(b, '\n');
}

/* {file, ok, errors, warnings, rules?, sha256?} of a report. */
static json_t *check_result(const char *file, const json_t *report)
{
    const json_t *e = json_object_get(report, "error"), *w;
    json_t *errors = json_array(), *warnings = json_array(), *out;
    size_t i;
    if (e) {
        const char *at = json_string_value(json_object_get(e, "file"));
        const char *code = json_string_value(json_object_get(e, "code"));
        const char *text = json_string_value(json_object_get(e, "message"));
        const json_t *all = json_object_get(e, "all");
        if (!code)
            code = "INVALID_POLICY";
        if (!at || !*at)
            at = file;
        json_array_foreach(all, i, w)
            json_array_append_new(errors, finding(at, code, json_string_value(w)));
        if (json_array_size(all) == 0) {
            json_t *f = finding(at, code, text ? text : "");
            if (view_u64(e, "line") && !json_object_get(f, "line"))
                json_object_set(f, "line", json_object_get(e, "line"));
            json_array_append_new(errors, f);
        }
    }
    json_array_foreach(json_object_get(report, "warnings"), i, w)
        json_array_append_new(warnings, finding(file, "warning", json_string_value(w)));
    out = json_pack("{s:s, s:b, s:o, s:o}", "file", file, "ok", e == NULL, "errors", errors,
                    "warnings", warnings);
    if (json_object_get(report, "rules")) {
        json_object_set(out, "rules", json_object_get(report, "rules"));
        json_object_set(out, "sha256", json_object_get(report, "sha256"));
    }
    return out;
}

static void put_check(struct policy_out *o, const json_t *result)
{
    const json_t *f;
    size_t i;
    BR_CLEANUP_BUF struct br_buf talk = BR_BUF_INIT(BR_VIEW_MAX);
    json_array_foreach(json_object_get(result, "errors"), i, f) put_finding(&talk, f);
    (void)br_write_all(STDERR_FILENO, talk.data, talk.len);
    json_array_foreach(json_object_get(result, "warnings"), i, f) put_finding(&o->v.out, f);
    size_t warnings = json_array_size(json_object_get(result, "warnings"));
    if (json_is_true(json_object_get(result, "ok"))) {
        const char *file = json_string_value(json_object_get(result, "file"));
        br_buf_put_visible(&o->v.out, file, strlen(file), true);
        unsigned long long rules = view_u64(result, "rules");
        br_buf_printf(&o->v.out, ": %llu rule%s, %zu warning%s\n", rules, rules == 1 ? "" : "s",
                      warnings, warnings == 1 ? "" : "s");
    }
    (void)policy_out_flush(o, true);
}

/* One file; NULL is the one that a run would take. */
static int check_one(const struct br_cli_args *a, const char *file, struct policy_out *o,
                     json_t *all)
{
    struct br_err err = {.code = BR_OK};
    struct policy_link l;
    int r = policy_open(&l, a, file, &err), code = 0;
    if (r < 0) {
        code = br_cli_fail(&err);
    } else {
        const char *standing = json_string_value(json_object_get(l.report, "policy"));
        const char *named = standing             ? standing
                            : l.d.policy.path[0] ? l.d.policy.path
                                                 : "default.lua";
        json_t *result = check_result(named, l.report);
        bool warned = json_array_size(json_object_get(result, "warnings")) > 0;
        bool ok = json_is_true(json_object_get(result, "ok"));
        if (!ok)
            code = l.c.exit_code ? (int)l.c.exit_code : br_code_exit(BR_E_INVALID_POLICY);
        else if (warned && br_cli_opt(a, "strict"))
            code = br_code_exit(BR_E_INVALID_POLICY);
        if (!all)
            put_check(o, result);
        else
            json_array_append(all, result);
        json_decref(result);
    }
    policy_close(&l);
    return code;
}

static int check(const struct br_cli_args *a)
{
    struct policy_out o;
    json_t *all = br_cli_opt(a, "json") ? json_array() : NULL;
    int code = 0;
    policy_out_init(&o);
    for (unsigned i = 1; i < a->noperands || i == 1; i++) {
        int r = check_one(a, i < a->noperands ? a->operands[i] : NULL, &o, all);
        code = code ? code : r;
    }
    if (all)
        policy_out_json(&o, json_pack("{s:b, s:o}", "ok", code == 0, "files", all));
    return policy_out_end(&o, code);
}

/* ---- show ---------------------------------------------------------------------------------- */

static void put_rule_row(struct policy_out *o, const json_t *table, const json_t *rule,
                         const unsigned w[4])
{
    char where[BR_PATH_MAX + 16], matcher[BR_PATTERN_MAX + 32];
    size_t n;
    const char *effect = view_str(rule, "effect", &n);
    view_word(&o->v, view_effect_style(effect), effect, 5);
    const char *cells[] = {view_str(rule, "id", &n), view_str(rule, "action", &n),
                           policy_matcher(rule, matcher), policy_where(rule, where)};
    for (unsigned i = 0; i < 4; i++) {
        br_buf_printf(&o->v.out, "  ");
        (i == 2 ? policy_out_cell : policy_out_name)(o, cells[i], w[i]);
        if (i == 2) {
            br_buf_printf(&o->v.out, "  ");
            policy_out_cell(o, policy_source(table, rule), 8);
        }
    }
    const char *reason = view_str(rule, "reason", &n);
    if (n) {
        br_buf_printf(&o->v.out, "  ");
        br_cli_put_line(&o->v.out, reason, n, o->tty ? o->v.width : 8192);
    }
    br_buf_printf(&o->v.out, "\n");
}

static unsigned wider(unsigned now, const char *s, unsigned max)
{
    size_t n = strlen(s);
    unsigned columns = n > 4u * max ? max : view_columns(s, n);
    return columns < now ? now : columns > max ? max : columns;
}

static void show_table(struct policy_out *o, const struct policy_link *l)
{
    char where[BR_PATH_MAX + 16], matcher[BR_PATTERN_MAX + 32];
    unsigned w[4] = {4, 6, 7, 5};
    size_t i, n;
    const json_t *rules = json_object_get(l->table, "rules"), *rule;
    json_array_foreach((json_t *)(uintptr_t)rules, i, rule)
    {
        w[0] = wider(w[0], view_str(rule, "id", &n), 36);
        w[1] = wider(w[1], view_str(rule, "action", &n), 20);
        w[2] = wider(w[2], policy_matcher(rule, matcher), 36);
        w[3] = wider(w[3], policy_where(rule, where), 24);
    }
    const char *const head[] = {"id", "action", "matcher", "where"};
    view_style_on(&o->v, VIEW_BOLD);
    br_buf_printf(&o->v.out, "effect");
    for (unsigned k = 0; k < 4; k++) {
        br_buf_printf(&o->v.out, k ? "  " : " ");
        policy_out_cell(o, head[k], w[k]);
        if (k == 2)
            br_buf_printf(&o->v.out, "  source  ");
    }
    br_buf_printf(&o->v.out, "  reason\n");
    view_style_off(&o->v, VIEW_BOLD);
    json_array_foreach((json_t *)(uintptr_t)rules, i, rule)
    {
        put_rule_row(o, l->table, rule, w);
        if (!policy_out_flush(o, false))
            return;
    }
    json_array_foreach(json_object_get(l->table, "fallbacks"), i, rule)
    {
        put_rule_row(o, l->table, rule, w);
        if (!policy_out_flush(o, false))
            return;
    }
    const char *sha = view_str(l->report, "sha256", &n);
    br_buf_printf(&o->v.out, "%zu rules%s, table %s\n", json_array_size(rules),
                  json_is_true(json_object_get(l->table, "predicates"))
                      ? " and a function 'check', which can only tighten"
                      : "",
                  sha);
}

static int show(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct policy_link l;
    struct policy_out o;
    policy_out_init(&o);
    int code = policy_open_good(&l, a, a->noperands > 1 ? a->operands[1] : NULL, &err);
    if (code < 0)
        code = br_cli_fail(&err);
    else if (br_cli_opt(a, "json"))
        policy_out_json(&o, json_pack("{s:O, s:O}", "sha256", json_object_get(l.report, "sha256"),
                                      "table", l.table));
    else
        show_table(&o, &l);
    code = policy_out_end(&o, code);
    policy_close(&l);
    return code;
}

/* ---- the verb ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    br_cli_verb_fn *run;
    unsigned max; /* operands, its own name included */
} actions[] = {
    {"check", check, UINT32_MAX},    {"show", show, 2},
    {"why", policy_why, UINT32_MAX}, {"replay", policy_replay, UINT32_MAX},
    {"diff", policy_diff, 3},        {"test", policy_test, 2},
    {"hold", policy_hold, 2},        {"reload", policy_reload, 2},
};

bool br_cli_policy_words(char *const *operands, unsigned n)
{
    return n >= 2 && strcmp(operands[0], "why") == 0 && strcmp(operands[1], "process.exec") == 0;
}

int br_cli_policy(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    const char *names[BR_ARRAY_LEN(actions)];
    for (size_t i = 0; i < BR_ARRAY_LEN(actions); i++) {
        names[i] = actions[i].name;
        if (strcmp(a->operands[0], names[i]) != 0)
            continue;
        if (a->noperands <= actions[i].max)
            return actions[i].run(a);
        (void)br_err_set(&err, BR_E_USAGE, "'%.80s' is one word too many for 'bridle policy %s'",
                         a->operands[actions[i].max], names[i]);
        return br_cli_fail(&err);
    }
    const char *near = br_cli_nearest(a->operands[0], names, BR_ARRAY_LEN(actions));
    (void)br_err_set(&err, BR_E_USAGE,
                     near ? "'bridle policy' cannot '%.40s'; did you mean '%s'?"
                          : "'bridle policy' cannot '%.40s'; 'bridle help policy' says what it can",
                     a->operands[0], near);
    return br_cli_fail(&err);
}
