/*
 * Reading the JSON of a decision table: objects with known keys, texts with bounds, and errors that
 * name the place, what was expected there and the nearest known word. The text is hostile. Called
 * by table.c, condition.c and command.c while a table is loaded.
 */
#include <string.h>

#include "policy/load_priv.h"

/* ---- objects with known keys ---- */

static const char *type_expected(enum value_type t)
{
    static const char *const names[] = {"a text", "an integer", "true or false", "a list",
                                        "an object"};
    return names[t];
}

static bool type_is(const struct br_tree *v, enum value_type t)
{
    switch (t) {
    case VALUE_TEXT:
        return br_tree_is(v, BR_TREE_TEXT);
    case VALUE_INTEGER:
        return br_tree_is(v, BR_TREE_INTEGER);
    case VALUE_BOOLEAN:
        return br_tree_is(v, BR_TREE_TRUE) || br_tree_is(v, BR_TREE_FALSE);
    case VALUE_LIST:
        return br_tree_is(v, BR_TREE_LIST);
    case VALUE_OBJECT:
        return br_tree_is(v, BR_TREE_OBJECT);
    }
    return false;
}

/* A piece of somebody else's text for an error message. */
const char *br_load_shown(char dst[64], const char *s)
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
                      *place ? "." : "", br_load_shown(text, name), nearest->name);
}

int br_load_object(struct loader *l, const char *place, const struct br_tree *o,
                   const struct key *keys, size_t nkeys)
{
    const char *name, *dot = *place ? "." : "";
    const struct br_tree *v;
    if (!br_tree_is(o, BR_TREE_OBJECT))
        return br_err_set(l->err, BR_E_INVALID_TABLE, REFUSED "'%s' must be an object",
                          *place ? place : "the table");
    for (v = br_tree_after(o, NULL); v; v = br_tree_after(o, v)) {
        name = v->key;
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
        if (!keys[i].optional && !br_tree_get(o, keys[i].name))
            return br_err_set(l->err, BR_E_INVALID_TABLE,
                              REFUSED "'%s%s%s' is missing; %s was expected", place, dot,
                              keys[i].name, type_expected(keys[i].type));
    return 0;
}

int br_load_refuse(struct loader *l, const char *place, const char *name, const char *expected)
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

int br_load_nomem(struct loader *l)
{
    return br_err_set(l->err, BR_E_NOMEM, REFUSED "there is no memory for it");
}

/* Copies the text o.name into the arena. */
int br_load_text(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                 size_t max, const char **out)
{
    const struct br_tree *v = br_tree_get(o, name);
    char expected[80];
    size_t n = br_tree_len(v);
    if (n == 0 || n > max) {
        snprintf(expected, sizeof(expected), "a text of 1 to %zu bytes, not %zu", max, n);
        return br_load_refuse(l, place, name, expected);
    }
    *out = br_arena_strndup(&l->t->arena, br_tree_text(v), n);
    return *out ? 0 : br_load_nomem(l);
}

int br_load_name(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                 size_t max, const char **out)
{
    int r = br_load_text(l, place, o, name, max, out);
    if (r == 0 && has_control(*out))
        r = br_load_refuse(l, place, name, "a text without control characters");
    return r;
}

int br_load_integer(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                    int64_t min, int64_t max, int64_t *out)
{
    char expected[80];
    *out = br_tree_integer(br_tree_get(o, name));
    if (*out >= min && *out <= max)
        return 0;
    snprintf(expected, sizeof(expected), "an integer from %lld to %lld", (long long)min,
             (long long)max);
    return br_load_refuse(l, place, name, expected);
}

int br_load_word(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                 const char *const *words, size_t n, unsigned *out)
{
    const char *s = br_tree_text(br_tree_get(o, name));
    char expected[128] = "";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(words[i], s) == 0) {
            *out = (unsigned)i;
            return 0;
        }
        size_t at = strlen(expected);
        snprintf(expected + at, sizeof(expected) - at, "%s\"%s\"",
                 i == 0      ? ""
                 : i + 1 < n ? ", "
                             : " or ",
                 words[i]);
    }
    return br_load_refuse(l, place, name, expected);
}

int br_load_pattern_list(struct loader *l, const char *place, const char *name,
                         const struct br_tree *list, size_t max, struct br_patterns *out)
{
    size_t n = br_tree_count(list);
    char expected[96];
    *out = (struct br_patterns){.n = 0};
    snprintf(expected, sizeof(expected),
             "a list of 1 to %zu patterns, each a text of 1 to %u bytes", max, BR_PATTERN_MAX);
    if (n == 0 || n > max)
        return br_load_refuse(l, place, name, expected);
    out->list = br_arena_alloc(&l->t->arena, n * sizeof(out->list[0]));
    if (!out->list)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; out->n < n; out->n++) {
        v = br_tree_after(list, v);
        const char *s = br_tree_text(v);
        size_t len = br_tree_len(v);
        int e = s ? br_pattern_compile(BR_MATCH_TEXT, s, len, &l->t->arena, &out->list[out->n])
                  : -BR_E_INVALID_TABLE;
        if (e == -BR_E_NOMEM)
            return br_load_nomem(l);
        if (e < 0)
            return br_load_refuse(l, place, name, expected);
        out->list[out->n].assigns = memchr(s, '=', len) != NULL;
    }
    return 0;
}

int br_load_patterns(struct loader *l, const char *place, const struct br_tree *o, const char *name,
                     size_t max, struct br_patterns *out)
{
    const struct br_tree *list = br_tree_get(o, name);
    *out = (struct br_patterns){.n = 0};
    return list ? br_load_pattern_list(l, place, name, list, max, out) : 0;
}
