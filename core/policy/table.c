/*
 * Loading a decision table. The text comes from a program that ran Lua, so it is treated as
 * hostile: scanned before it is parsed, parsed strictly, and every value checked against what may
 * stand there. Errors name the place and what was expected. Once loaded a table never changes.
 */
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy_priv.h"

#define REFUSED "the decision table was not loaded: "
#define PLACE_MAX 64u

struct loader {
    struct br_table *t;
    struct br_err *err;
    unsigned source_kind[TABLE_SOURCES]; /* by index in "sources" */
    unsigned nsources;
};

/* ---- objects with known keys ---- */

enum value_type { VALUE_TEXT, VALUE_INTEGER, VALUE_BOOLEAN, VALUE_LIST };

struct key {
    const char *name;
    enum value_type type;
    bool optional;
};

static const char *type_expected(enum value_type t)
{
    static const char *const names[] = {"a text", "an integer", "true or false", "a list"};
    return names[t];
}

static bool type_is(const json_t *v, enum value_type t)
{
    switch (t) {
    case VALUE_TEXT:
        return json_is_string(v);
    case VALUE_INTEGER:
        return json_is_integer(v);
    case VALUE_BOOLEAN:
        return json_is_boolean(v);
    case VALUE_LIST:
        return json_is_array(v);
    }
    return false;
}

/* A piece of somebody else's text for an error message. */
static const char *shown(char dst[64], const char *s)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(512);
    size_t n = strnlen(s, 40);
    br_buf_put_visible(&b, s, br_utf8_floor(s, n), true);
    const char *text = br_buf_cstr(&b);
    snprintf(dst, 64, "%s%s", text ? text : "?", s[n] ? "..." : "");
    return dst;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Levenshtein distance of short words; SIZE_MAX for long ones. */
static size_t distance(const char *a, const char *b)
{
    enum { WORD = 24 };
    size_t row[WORD + 1], na = strlen(a), nb = strlen(b);
    if (na > WORD || nb > WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t up = row[j];
            row[j] = min3(up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = up;
        }
    }
    return row[nb];
}

static int refuse_key(struct loader *l, const char *place, const char *name, const struct key *keys,
                      size_t nkeys)
{
    char text[64];
    const struct key *nearest = &keys[0];
    for (size_t i = 1; i < nkeys; i++)
        if (distance(name, keys[i].name) < distance(name, nearest->name))
            nearest = &keys[i];
    return br_err_set(l->err, BR_E_INVALID_TABLE,
                      REFUSED "'%s%s%s' is not a known key; the nearest one is '%s'", place,
                      *place ? "." : "", shown(text, name), nearest->name);
}

static int check_object(struct loader *l, const char *place, const json_t *o,
                        const struct key *keys, size_t nkeys)
{
    const char *name, *dot = *place ? "." : "";
    json_t *v;
    if (!json_is_object(o))
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "'%s' must be an object",
                          *place ? place : "the table");
    json_object_foreach((json_t *)o, name, v)
    {
        size_t i = 0;
        while (i < nkeys && strcmp(keys[i].name, name) != 0)
            i++;
        if (i == nkeys)
            return refuse_key(l, place, name, keys, nkeys);
        if (!type_is(v, keys[i].type))
            return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "'%s%s%s' must be %s", place, dot,
                              name, type_expected(keys[i].type));
    }
    for (size_t i = 0; i < nkeys; i++)
        if (!keys[i].optional && !json_object_get(o, keys[i].name))
            return br_err_set(l->err, BR_E_INVALID_TABLE,
                              REFUSED "'%s%s%s' is missing; %s was expected", place, dot,
                              keys[i].name, type_expected(keys[i].type));
    return 0;
}

static int refuse(struct loader *l, const char *place, const char *name, const char *expected)
{
    return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "'%s.%s' must be %s", place, name,
                      expected);
}

/* ---- values ---- */

static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return true;
    return false;
}

static int no_memory(struct loader *l)
{
    return br_err_set(l->err, BR_E_NOMEM, REFUSED "there is no memory for it");
}

/* Copies the text o.name into the arena. */
static int get_text(struct loader *l, const char *place, const json_t *o, const char *name,
                    size_t max, const char **out)
{
    const json_t *v = json_object_get(o, name);
    char expected[80];
    size_t n = json_string_length(v);
    if (n == 0 || n > max) {
        snprintf(expected, sizeof(expected), "a text of 1 to %zu bytes, not %zu", max, n);
        return refuse(l, place, name, expected);
    }
    *out = br_arena_strndup(&l->t->arena, json_string_value(v), n);
    return *out ? 0 : no_memory(l);
}

static int get_name(struct loader *l, const char *place, const json_t *o, const char *name,
                    size_t max, const char **out)
{
    int r = get_text(l, place, o, name, max, out);
    if (r == 0 && has_control(*out))
        r = refuse(l, place, name, "a text without control characters");
    return r;
}

static int get_action(struct loader *l, const char *place, const json_t *o, const char **out)
{
    int r = get_name(l, place, o, "action", BR_ACTION_MAX, out);
    if (r == 0 && strcmp(*out, "*") != 0 && strpbrk(*out, "*? "))
        r = refuse(l, place, "action", "the name of one action, or \"*\"; it is not a pattern");
    return r;
}

static int get_source(struct loader *l, const char *place, const json_t *o, uint8_t *out)
{
    json_int_t i = json_integer_value(json_object_get(o, "source"));
    if (i < 0 || i >= (json_int_t)l->nsources)
        return refuse(l, place, "source", "the index of an entry of 'sources'");
    *out = (uint8_t)l->source_kind[i];
    return 0;
}

static int get_effect(struct loader *l, const char *place, const json_t *o, bool may_allow,
                      uint8_t *out)
{
    const json_t *v = json_object_get(o, "effect");
    enum br_effect e = br_effect_parse(json_string_value(v), json_string_length(v));
    if (e == BR_EFFECT_NONE || (e == BR_EFFECT_ALLOW && !may_allow))
        return refuse(l, place, "effect",
                      may_allow ? "\"allow\", \"ask\" or \"deny\"" : "\"ask\" or \"deny\"");
    *out = (uint8_t)e;
    return 0;
}

/* ---- rules ---- */

static int get_match(struct loader *l, const char *place, const json_t *o, enum br_match_kind *out)
{
    static const char *const names[] = {"any", "path", "command", "host", "text"};
    const char *s = json_string_value(json_object_get(o, "match"));
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        if (strcmp(names[i], s) == 0) {
            *out = (enum br_match_kind)i;
            return 0;
        }
    }
    return refuse(l, place, "match", "\"any\", \"path\", \"command\", \"host\" or \"text\"");
}

/* A matcher that can never see a subject of this action would make a rule that does nothing. */
static int check_match_of_action(struct loader *l, const char *place, const struct br_rule *r,
                                 enum br_match_kind kind)
{
    if (kind == BR_MATCH_ANY)
        return 0;
    if (strcmp(r->action, "process.exec") == 0 && kind != BR_MATCH_COMMAND)
        return refuse(l, place, "match", "\"command\" or \"any\" for the action 'process.exec'");
    bool path = strcmp(r->action, "fs.read") == 0 || strcmp(r->action, "fs.write") == 0;
    if (path && kind != BR_MATCH_PATH && kind != BR_MATCH_TEXT)
        return refuse(l, place, "match", "\"path\", \"text\" or \"any\" for an action on files");
    if (strcmp(r->action, "network") == 0 && kind != BR_MATCH_HOST && kind != BR_MATCH_TEXT)
        return refuse(l, place, "match", "\"host\", \"text\" or \"any\" for the action 'network'");
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
        return refuse(l, place, "pattern",
                      "relative to the workspace, without empty, \".\" or \"..\" segments and "
                      "without '/' at its end; a whole directory is 'dir/**'");
    if (kind == BR_MATCH_COMMAND && (s[0] == ' ' || s[n - 1] == ' '))
        return refuse(l, place, "pattern", "a command without spaces at its start or end");
    if (kind == BR_MATCH_HOST && !host_pattern_valid(s, n))
        return refuse(l, place, "pattern",
                      "a host or host:port of letters, digits, '-', '_', '.', '*' and '?'");
    return 0;
}

static int get_pattern(struct loader *l, const char *place, const json_t *o, struct br_rule *r)
{
    enum br_match_kind kind = BR_MATCH_ANY;
    int e = get_match(l, place, o, &kind);
    if (e < 0 || (e = check_match_of_action(l, place, r, kind)) < 0)
        return e;
    const json_t *v = json_object_get(o, "pattern");
    const char *s = v ? json_string_value(v) : "";
    size_t n = v ? json_string_length(v) : 0;
    if (kind == BR_MATCH_ANY) {
        if (n > 0 && strcmp(s, "*") != 0)
            return refuse(l, place, "pattern", "left out, \"\" or \"*\" where 'match' is \"any\"");
    } else if (!v) {
        return refuse(l, place, "pattern", "there where 'match' is not \"any\"");
    } else if (n == 0 || n > BR_PATTERN_MAX) {
        char expected[80];
        snprintf(expected, sizeof(expected), "a pattern of 1 to %u bytes, not %zu", BR_PATTERN_MAX,
                 n);
        return refuse(l, place, "pattern", expected);
    } else if ((e = check_pattern_text(l, place, kind, s, n)) < 0) {
        return e;
    }
    r->text = br_arena_strndup(&l->t->arena, s, n);
    r->text_len = (uint32_t)n;
    if (!r->text)
        return no_memory(l);
    if (r->source == BR_SOURCE_MANIFEST && strcmp(s, "*") == 0)
        kind = BR_MATCH_ANY; /* the default of a pattern map */
    e = br_pattern_compile(kind, s, n, &l->t->arena, &r->pattern);
    if (e == -BR_E_NOMEM)
        return no_memory(l);
    return e < 0 ? refuse(l, place, "pattern", "a pattern of its kind") : 0;
}

static int load_rule(struct loader *l, const char *place, const json_t *o, struct br_rule *r)
{
    static const struct key keys[] = {
        {"id", VALUE_TEXT},        {"source", VALUE_INTEGER},  {"action", VALUE_TEXT},
        {"match", VALUE_TEXT},     {"pattern", VALUE_TEXT, 1}, {"effect", VALUE_TEXT},
        {"reason", VALUE_TEXT, 1},
    };
    int e = check_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = get_name(l, place, o, "id", BR_RULE_ID_MAX, &r->id)) < 0 ||
        (e = get_source(l, place, o, &r->source)) < 0 ||
        (e = get_action(l, place, o, &r->action)) < 0 ||
        (e = get_effect(l, place, o, true, &r->effect)) < 0 ||
        (e = get_pattern(l, place, o, r)) < 0)
        return e;
    if (json_object_get(o, "reason"))
        e = get_text(l, place, o, "reason", BR_REASON_MAX, &r->reason);
    return e;
}

static int load_rules(struct loader *l, const json_t *list)
{
    struct br_table *t = l->t;
    size_t n = json_array_size(list);
    char place[PLACE_MAX];
    if (n > BR_RULES_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "'rules' has %zu rules, more than %u",
                          n, BR_RULES_MAX);
    t->rules = br_arena_alloc(&t->arena, n * sizeof(t->rules[0]));
    if (!t->rules)
        return no_memory(l);
    for (; t->nrules < n; t->nrules++) {
        snprintf(place, sizeof(place), "rules[%u]", t->nrules);
        t->rules[t->nrules].index = t->nrules;
        int e = load_rule(l, place, json_array_get(list, t->nrules), &t->rules[t->nrules]);
        if (e < 0)
            return e;
    }
    return 0;
}

/* ---- sources, fallbacks, the document ---- */

static int load_sources(struct loader *l, const json_t *list)
{
    static const struct key keys[] = {{"kind", VALUE_TEXT}, {"name", VALUE_TEXT}};
    static const char *const kinds[] = {"profile", "operator", "manifest"};
    char place[PLACE_MAX];
    const char *name;
    if (json_array_size(list) > TABLE_SOURCES)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'sources' has %zu entries, more than %u", json_array_size(list),
                          TABLE_SOURCES);
    unsigned next = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        snprintf(place, sizeof(place), "sources[%zu]", i);
        int e = check_object(l, place, o, keys, BR_ARRAY_LEN(keys));
        if (e < 0 || (e = get_name(l, place, o, "name", BR_RULE_ID_MAX, &name)) < 0)
            return e;
        const char *kind = json_string_value(json_object_get(o, "kind"));
        while (next < TABLE_SOURCES && strcmp(kinds[next], kind) != 0)
            next++;
        if (next == TABLE_SOURCES)
            return refuse(l, place, "kind",
                          "\"profile\", \"operator\" or \"manifest\", in this order, once each");
        l->source_kind[l->nsources++] = next++;
    }
    return 0;
}

static int load_fallback(struct loader *l, const char *place, const json_t *o,
                         struct br_fallback *f)
{
    static const struct key keys[] = {{"id", VALUE_TEXT},
                                      {"source", VALUE_INTEGER},
                                      {"action", VALUE_TEXT},
                                      {"effect", VALUE_TEXT}};
    int e = check_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = get_name(l, place, o, "id", BR_RULE_ID_MAX, &f->id)) < 0 ||
        (e = get_source(l, place, o, &f->source)) < 0 ||
        (e = get_action(l, place, o, &f->action)) < 0 ||
        (e = get_effect(l, place, o, false, &f->effect)) < 0)
        return e;
    if (f->source != BR_SOURCE_MANIFEST)
        return refuse(l, place, "source", "the manifest; no other source has fallbacks");
    for (const struct br_fallback *g = l->t->fallbacks; g < f; g++)
        if (strcmp(g->action, f->action) == 0)
            return refuse(l, place, "action", "an action that has no fallback yet");
    return 0;
}

static int load_fallbacks(struct loader *l, const json_t *list)
{
    struct br_table *t = l->t;
    size_t n = json_array_size(list);
    char place[PLACE_MAX];
    if (n > TABLE_FALLBACKS_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'fallbacks' has %zu entries, more than %u", n,
                          TABLE_FALLBACKS_MAX);
    t->fallbacks = br_arena_alloc(&t->arena, n * sizeof(t->fallbacks[0]));
    if (!t->fallbacks)
        return no_memory(l);
    for (; t->nfallbacks < n; t->nfallbacks++) {
        snprintf(place, sizeof(place), "fallbacks[%u]", t->nfallbacks);
        int e = load_fallback(l, place, json_array_get(list, t->nfallbacks),
                              &t->fallbacks[t->nfallbacks]);
        if (e < 0)
            return e;
    }
    return 0;
}

static int load_document(struct loader *l, const json_t *o)
{
    static const struct key keys[] = {{"v", VALUE_INTEGER},
                                      {"sources", VALUE_LIST},
                                      {"rules", VALUE_LIST},
                                      {"fallbacks", VALUE_LIST},
                                      {"predicates", VALUE_BOOLEAN}};
    int e = check_object(l, "", o, keys, BR_ARRAY_LEN(keys));
    if (e < 0)
        return e;
    if (json_integer_value(json_object_get(o, "v")) != 1)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'v' must be 1, the only version there is");
    if ((e = load_sources(l, json_object_get(o, "sources"))) < 0 ||
        (e = load_rules(l, json_object_get(o, "rules"))) < 0 ||
        (e = load_fallbacks(l, json_object_get(o, "fallbacks"))) < 0)
        return e;
    l->t->predicates = json_is_true(json_object_get(o, "predicates"));
    return br_index_build(l->t) < 0 ? no_memory(l) : 0;
}

/* jansson seeds its hash from /dev/urandom on first use, which a program in its role may not open.
 */
static void seed_jansson(void)
{
    size_t seed = 0;
    br_random(&seed, sizeof(seed));
    json_object_seed(seed ? seed : 1);
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
    json_error_t je;
    seed_jansson();
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        char why[64];
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "line %d, column %d: %s", je.line,
                          je.column, shown(why, je.text));
    }
    int r = load_document(l, root);
    json_decref(root);
    return r;
}

int br_table_load(const void *json, size_t n, struct br_table **out, struct br_err *err)
{
    *out = NULL;
    struct br_table *t = calloc(1, sizeof(*t));
    struct loader l = {.t = t, .err = err};
    if (!t)
        return no_memory(&l);
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
