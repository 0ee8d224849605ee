/*
 * Loading a decision table. The text comes from a program that ran Lua, so it is treated as
 * hostile: scanned before it is parsed, parsed strictly, and every value checked against what may
 * stand there. Errors name the place and what was expected. Once loaded a table never changes.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "policy/load_priv.h"

static int get_action(struct loader *l, const char *place, const struct br_tree *o,
                      const char **out)
{
    int r = br_load_name(l, place, o, "action", BR_ACTION_MAX, out);
    if (r == 0 && strcmp(*out, "*") != 0 && strpbrk(*out, "*? "))
        r = br_load_refuse(l, place, "action",
                           "the name of one action, or \"*\"; it is not a pattern");
    return r;
}

static int get_source(struct loader *l, const char *place, const struct br_tree *o, uint8_t *out)
{
    int64_t i = br_tree_integer(br_tree_get(o, "source"));
    if (i < 0 || i >= (int64_t)l->nsources)
        return br_load_refuse(l, place, "source", "the index of an entry of 'sources'");
    *out = (uint8_t)l->source_kind[i];
    return 0;
}

static int get_effect(struct loader *l, const char *place, const struct br_tree *o, bool may_allow,
                      uint8_t *out)
{
    const struct br_tree *v = br_tree_get(o, "effect");
    enum br_effect e = br_effect_parse(br_tree_text(v), br_tree_len(v));
    if (e == BR_EFFECT_NONE || (e == BR_EFFECT_ALLOW && !may_allow))
        return br_load_refuse(l, place, "effect",
                              may_allow ? "\"allow\", \"ask\" or \"deny\"" : "\"ask\" or \"deny\"");
    *out = (uint8_t)e;
    return 0;
}

/* ---- rules ---- */

static int get_match(struct loader *l, const char *place, const struct br_tree *o,
                     enum br_match_kind *out)
{
    static const char *const names[] = {"any", "path", "command", "host", "text", "program"};
    const char *s = br_tree_text(br_tree_get(o, "match"));
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        if (strcmp(names[i], s) == 0) {
            *out = (enum br_match_kind)i;
            return 0;
        }
    }
    return br_load_refuse(l, place, "match",
                          "\"any\", \"path\", \"command\", \"host\", \"text\" or \"program\"");
}

/* A matcher that can never see a subject of this action would make a rule that does nothing. */
static int check_match_of_action(struct loader *l, const char *place, const struct br_rule *r,
                                 enum br_match_kind kind)
{
    if (kind == BR_MATCH_ANY)
        return 0;
    bool exec = strcmp(r->action, "process.exec") == 0;
    if (exec && kind != BR_MATCH_COMMAND && kind != BR_MATCH_PROGRAM)
        return br_load_refuse(l, place, "match",
                              "\"command\", \"program\" or \"any\" for the action 'process.exec'");
    if (kind == BR_MATCH_PROGRAM && (!exec || r->source == BR_SOURCE_MANIFEST))
        return br_load_refuse(l, place, "match",
                              "another matcher: \"program\" is for the action 'process.exec' of a "
                              "profile or an operator");
    bool path = strcmp(r->action, "fs.read") == 0 || strcmp(r->action, "fs.write") == 0;
    if (path && kind != BR_MATCH_PATH && kind != BR_MATCH_TEXT)
        return br_load_refuse(l, place, "match",
                              "\"path\", \"text\" or \"any\" for an action on files");
    if (strcmp(r->action, "network") == 0 && kind != BR_MATCH_HOST && kind != BR_MATCH_TEXT)
        return br_load_refuse(l, place, "match",
                              "\"host\", \"text\" or \"any\" for the action 'network'");
    return 0;
}

static bool host_pattern_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool name = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!name && !strchr("-_.:[]*?", c))
            return false;
    }
    return n > 0 && s[n - 1] != '.' && s[n - 1] != ':';
}

/* Patterns that are well-formed but match nothing, which their author cannot have meant. */
static int check_pattern_text(struct loader *l, const char *place, enum br_match_kind kind,
                              const char *s, size_t n)
{
    if (kind == BR_MATCH_PATH && !br_path_valid(s, n))
        return br_load_refuse(
            l, place, "pattern",
            "relative to the workspace, without empty, \".\" or \"..\" segments and "
            "without '/' at its end; a whole directory is 'dir/**'");
    if (kind == BR_MATCH_COMMAND && (s[0] == ' ' || s[n - 1] == ' '))
        return br_load_refuse(l, place, "pattern", "a command without spaces at its start or end");
    if (kind == BR_MATCH_HOST && !host_pattern_valid(s, n))
        return br_load_refuse(l, place, "pattern",
                              "a host or host:port of letters, digits, '-', '_', '.', '*' and '?'");
    return 0;
}

static int get_pattern(struct loader *l, const char *place, const struct br_tree *o,
                       struct br_rule *r)
{
    enum br_match_kind kind = BR_MATCH_ANY;
    int e = get_match(l, place, o, &kind);
    if (e < 0 || (e = check_match_of_action(l, place, r, kind)) < 0)
        return e;
    const struct br_tree *v = br_tree_get(o, "pattern");
    const char *s = v ? br_tree_text(v) : "";
    size_t n = v ? br_tree_len(v) : 0;
    if (kind == BR_MATCH_ANY) {
        if (n > 0 && strcmp(s, "*") != 0)
            return br_load_refuse(l, place, "pattern",
                                  "left out, \"\" or \"*\" where 'match' is \"any\"");
    } else if (!v) {
        return br_load_refuse(l, place, "pattern", "there where 'match' is not \"any\"");
    } else if (n == 0 || n > BR_PATTERN_MAX) {
        char expected[80];
        snprintf(expected, sizeof(expected), "a pattern of 1 to %u bytes, not %zu", BR_PATTERN_MAX,
                 n);
        return br_load_refuse(l, place, "pattern", expected);
    } else if ((e = check_pattern_text(l, place, kind, s, n)) < 0) {
        return e;
    }
    r->text = br_arena_strndup(&l->t->arena, s, n);
    r->text_len = (uint32_t)n;
    if (!r->text)
        return br_load_nomem(l);
    const struct br_tree *command = br_tree_get(o, "command");
    if (!command != (kind != BR_MATCH_PROGRAM))
        return br_load_refuse(l, place, "command", "there exactly where 'match' is \"program\"");
    if (command) {
        char here[PLACE_MAX];
        snprintf(here, sizeof(here), "%.80s.command", place);
        return br_command_load(l, here, command, r);
    }
    if (r->source == BR_SOURCE_MANIFEST && strcmp(s, "*") == 0)
        kind = BR_MATCH_ANY; /* the default of a pattern map */
    e = br_pattern_compile(kind, s, n, &l->t->arena, &r->pattern);
    if (e == -BR_E_NOMEM)
        return br_load_nomem(l);
    return e < 0 ? br_load_refuse(l, place, "pattern", "a pattern of its kind") : 0;
}

/* "file" and "line"; most rules are in the file of the one before. */
static int get_origin(struct loader *l, const char *place, const struct br_tree *o,
                      struct br_rule *r)
{
    int64_t line = 0;
    int e = 0;
    const char *file = br_tree_text(br_tree_get(o, "file"));
    const char *last = r > l->t->rules ? r[-1].file : NULL;
    if (file && last && strcmp(file, last) == 0)
        r->file = last;
    else if (file)
        e = br_load_name(l, place, o, "file", BR_NAME_MAX - 1, &r->file);
    if (e == 0 && br_tree_get(o, "line"))
        e = br_load_integer(l, place, o, "line", 0, INT32_MAX, &line);
    r->line = (uint32_t)line;
    return e;
}

/* "when": indices of conditions, in any order, none twice. */
static int get_when(struct loader *l, const char *place, const struct br_tree *o, struct br_rule *r)
{
    static const char expected[] = "a list of 1 to 16 indices of 'conditions', none twice";
    const struct br_tree *list = br_tree_get(o, "when");
    size_t n = br_tree_count(list);
    if (!list)
        return 0;
    if (r->source == BR_SOURCE_MANIFEST)
        return br_load_refuse(l, place, "when", "left out in a rule of a manifest");
    if (n == 0 || n > RULE_CONDITIONS_MAX)
        return br_load_refuse(l, place, "when", expected);
    uint16_t *when = br_arena_alloc(&l->t->arena, n * sizeof(*when));
    if (!when)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (size_t i = 0; i < n; i++) {
        v = br_tree_after(list, v);
        int64_t k = br_tree_is(v, BR_TREE_INTEGER) ? br_tree_integer(v) : -1;
        size_t at = i;
        if (k < 0 || k >= (int64_t)l->t->nconditions)
            return br_load_refuse(l, place, "when", expected);
        for (; at > 0 && when[at - 1] > k; at--)
            when[at] = when[at - 1];
        if (at > 0 && when[at - 1] == k)
            return br_load_refuse(l, place, "when", expected);
        when[at] = (uint16_t)k;
    }
    r->when = when;
    r->nwhen = (uint8_t)n;
    return 0;
}

static int load_rule(struct loader *l, const char *place, const struct br_tree *o,
                     struct br_rule *r)
{
    static const struct key keys[] = {
        {"id", VALUE_TEXT},        {"source", VALUE_INTEGER},    {"action", VALUE_TEXT},
        {"match", VALUE_TEXT},     {"pattern", VALUE_TEXT, 1},   {"effect", VALUE_TEXT},
        {"reason", VALUE_TEXT, 1}, {"file", VALUE_TEXT, 1},      {"line", VALUE_INTEGER, 1},
        {"when", VALUE_LIST, 1},   {"command", VALUE_OBJECT, 1},
    };
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = br_load_name(l, place, o, "id", BR_RULE_ID_MAX, &r->id)) < 0 ||
        (e = get_source(l, place, o, &r->source)) < 0 ||
        (e = get_action(l, place, o, &r->action)) < 0 ||
        (e = get_effect(l, place, o, true, &r->effect)) < 0 ||
        (e = get_pattern(l, place, o, r)) < 0 || (e = get_origin(l, place, o, r)) < 0 ||
        (e = get_when(l, place, o, r)) < 0)
        return e;
    if (br_tree_get(o, "reason"))
        e = br_load_text(l, place, o, "reason", BR_REASON_MAX, &r->reason);
    return e;
}

static int load_rules(struct loader *l, const struct br_tree *list)
{
    struct br_table *t = l->t;
    size_t n = br_tree_count(list);
    char place[PLACE_MAX];
    if (n > BR_RULES_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "'rules' has %zu rules, more than %u",
                          n, BR_RULES_MAX);
    t->rules = br_arena_alloc(&t->arena, n * sizeof(t->rules[0]));
    if (!t->rules)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; t->nrules < n; t->nrules++) {
        v = br_tree_after(list, v);
        snprintf(place, sizeof(place), "rules[%u]", t->nrules);
        t->rules[t->nrules].index = t->nrules;
        int e = load_rule(l, place, v, &t->rules[t->nrules]);
        if (e < 0)
            return e;
    }
    return 0;
}

/* ---- conditions ---- */

static int load_conditions(struct loader *l, const struct br_tree *list)
{
    struct br_table *t = l->t;
    size_t n = br_tree_count(list);
    char place[PLACE_MAX];
    if (n > TABLE_CONDITIONS_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'conditions' has %zu entries, more than %u", n,
                          TABLE_CONDITIONS_MAX);
    t->conditions = br_arena_alloc(&t->arena, n * sizeof(t->conditions[0]));
    if (!t->conditions)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; t->nconditions < n; t->nconditions++) {
        v = br_tree_after(list, v);
        snprintf(place, sizeof(place), "conditions[%u]", t->nconditions);
        int e = br_condition_load(l, place, v, &t->conditions[t->nconditions]);
        if (e < 0)
            return e;
    }
    return 0;
}

/* ---- sources, fallbacks, the document ---- */

static int load_sources(struct loader *l, const struct br_tree *list)
{
    static const struct key keys[] = {{"kind", VALUE_TEXT}, {"name", VALUE_TEXT}};
    static const char *const kinds[] = {"profile", "operator", "manifest"};
    char place[PLACE_MAX];
    const char *name;
    if (br_tree_count(list) > TABLE_SOURCES)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'sources' has %zu entries, more than %u", br_tree_count(list),
                          TABLE_SOURCES);
    unsigned next = 0;
    const struct br_tree *o = NULL;
    for (size_t i = 0; i < br_tree_count(list); i++) {
        o = br_tree_after(list, o);
        snprintf(place, sizeof(place), "sources[%zu]", i);
        int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
        if (e < 0 || (e = br_load_name(l, place, o, "name", BR_RULE_ID_MAX, &name)) < 0)
            return e;
        const char *kind = br_tree_text(br_tree_get(o, "kind"));
        while (next < TABLE_SOURCES && strcmp(kinds[next], kind) != 0)
            next++;
        if (next == TABLE_SOURCES)
            return br_load_refuse(
                l, place, "kind",
                "\"profile\", \"operator\" or \"manifest\", in this order, once each");
        l->source_kind[l->nsources++] = next++;
    }
    return 0;
}

static int load_fallback(struct loader *l, const char *place, const struct br_tree *o,
                         struct br_fallback *f)
{
    static const struct key keys[] = {{"id", VALUE_TEXT},        {"source", VALUE_INTEGER},
                                      {"action", VALUE_TEXT},    {"effect", VALUE_TEXT},
                                      {"reason", VALUE_TEXT, 1}, {"file", VALUE_TEXT, 1},
                                      {"line", VALUE_INTEGER, 1}};
    int64_t line = 0;
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = br_load_name(l, place, o, "id", BR_RULE_ID_MAX, &f->id)) < 0 ||
        (e = get_source(l, place, o, &f->source)) < 0 ||
        (e = get_action(l, place, o, &f->action)) < 0 ||
        (e = get_effect(l, place, o, false, &f->effect)) < 0)
        return e;
    if (f->source == BR_SOURCE_PROFILE)
        return br_load_refuse(l, place, "source", "the manifest or the operator");
    if (f->source == BR_SOURCE_OPERATOR && f->effect != BR_EFFECT_ASK)
        return br_load_refuse(l, place, "effect", "\"ask\" where the source is the operator");
    if (br_tree_get(o, "reason"))
        e = br_load_text(l, place, o, "reason", BR_REASON_MAX, &f->reason);
    if (e == 0 && br_tree_get(o, "file"))
        e = br_load_name(l, place, o, "file", BR_NAME_MAX - 1, &f->file);
    if (e == 0 && br_tree_get(o, "line"))
        e = br_load_integer(l, place, o, "line", 0, INT32_MAX, &line);
    if (e < 0)
        return e;
    f->line = (uint32_t)line;
    for (const struct br_fallback *g = l->t->fallbacks; g < f; g++)
        if (g->source == f->source && strcmp(g->action, f->action) == 0)
            return br_load_refuse(l, place, "action", "an action that has no fallback yet");
    return 0;
}

static int load_fallbacks(struct loader *l, const struct br_tree *list)
{
    struct br_table *t = l->t;
    size_t n = br_tree_count(list);
    char place[PLACE_MAX];
    if (n > TABLE_FALLBACKS_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'fallbacks' has %zu entries, more than %u", n,
                          TABLE_FALLBACKS_MAX);
    t->fallbacks = br_arena_alloc(&t->arena, n * sizeof(t->fallbacks[0]));
    if (!t->fallbacks)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; t->nfallbacks < n; t->nfallbacks++) {
        v = br_tree_after(list, v);
        snprintf(place, sizeof(place), "fallbacks[%u]", t->nfallbacks);
        int e = load_fallback(l, place, v, &t->fallbacks[t->nfallbacks]);
        if (e < 0)
            return e;
    }
    return 0;
}

static int load_document(struct loader *l, const struct br_tree *o)
{
    static const struct key keys[] = {{"v", VALUE_INTEGER},          {"sources", VALUE_LIST},
                                      {"rules", VALUE_LIST},         {"fallbacks", VALUE_LIST},
                                      {"predicates", VALUE_BOOLEAN}, {"conditions", VALUE_LIST, 1},
                                      {"programs", VALUE_LIST, 1}};
    int e = br_load_object(l, "", o, keys, BR_ARRAY_LEN(keys));
    if (e < 0)
        return e;
    if (br_tree_integer(br_tree_get(o, "v")) != 2)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'v' must be 2, the only version there is");
    if ((e = load_sources(l, br_tree_get(o, "sources"))) < 0 ||
        (e = load_conditions(l, br_tree_get(o, "conditions"))) < 0 ||
        (e = br_programs_load(l, br_tree_get(o, "programs"))) < 0 ||
        (e = load_rules(l, br_tree_get(o, "rules"))) < 0 ||
        (e = load_fallbacks(l, br_tree_get(o, "fallbacks"))) < 0)
        return e;
    l->t->predicates = br_tree_is(br_tree_get(o, "predicates"), BR_TREE_TRUE);
    return br_index_build(l->t) < 0 ? br_load_nomem(l) : 0;
}

static int parse(struct loader *l, const char *text, size_t n)
{
    struct br_err scan = {.code = BR_OK};
    if (n > BR_TABLE_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "it has %zu bytes, more than %u", n,
                          BR_TABLE_MAX);
    if (n == 0)
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "it is empty");
    if (br_json_scan(text, n, TABLE_DEPTH_MAX, TABLE_NODES_MAX, &scan) < 0)
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "%.512s", scan.text);
    struct br_trees trees;
    int r = br_trees_parse(&trees, text, n, TABLE_DEPTH_MAX);
    if (r == -BR_E_NOMEM)
        br_load_nomem(l);
    else if (r < 0)
        br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "line %u, column %u: %s", trees.line,
                   trees.column, trees.why);
    else
        r = load_document(l, trees.nodes);
    br_trees_free(&trees);
    return r == -BR_E_INVALID_JSON ? -BR_E_INVALID_TABLE : r;
}

int br_table_load(const void *json, size_t n, struct br_table **out, struct br_err *err)
{
    *out = NULL;
    struct br_table *t = calloc(1, sizeof(*t));
    struct loader l = {.t = t, .err = err};
    if (!t)
        return br_load_nomem(&l);
    int r = parse(&l, json, n);
    if (r < 0) {
        br_table_free(&t);
        return r;
    }
    crypto_hash_sha256(t->sha256, json, n);
    *out = t;
    return 0;
}

void br_table_free(struct br_table **t)
{
    if (!*t)
        return;
    br_arena_free(&(*t)->arena);
    free(*t);
    *t = NULL;
}

const uint8_t *br_table_sha256(const struct br_table *t)
{
    return t->sha256;
}

unsigned br_table_rules(const struct br_table *t)
{
    return t->nrules;
}

bool br_table_has_predicates(const struct br_table *t)
{
    return t->predicates;
}
