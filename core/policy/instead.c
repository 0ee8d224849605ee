/*
 * What is allowed instead: for a request that was not allowed, patterns of the same action that
 * are, the nearest first. For people and models, after a decision; nothing decides by it. A pattern
 * counts only if an example of it, made by filling its wildcards, is allowed by the whole table.
 * The request is not trusted; the table is the operator's.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy_priv.h"

#define EXAMPLE_MAX 1024u
#define EXAMPLE_WORDS_MAX 64u

struct candidate {
    const struct br_rule *rule;
    size_t score;
};

/* ---- an example ---- */

static void put(char *out, size_t *at, const char *s, size_t n)
{
    if (*at + n < EXAMPLE_MAX) {
        memcpy(out + *at, s, n);
        *at += n;
    }
    out[*at] = 0;
}

/* n bytes of pattern with its wildcards filled. */
static void fill(char *out, size_t *at, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '*' && (i == 0 || p[i - 1] != '*'))
            put(out, at, "w", 1);
        else if (p[i] == '?')
            put(out, at, "w", 1);
        else if (p[i] != '*')
            put(out, at, p + i, 1);
    }
}

/* A structured command as it is shown: of "a|b" the first, nothing of what is "without". */
static void fill_program(char *out, size_t *at, const char *shown)
{
    bool skip = false;
    for (const char *p = shown; *p;) {
        size_t n = strcspn(p, " "), first = strcspn(p, "| ");
        bool without = n == 7 && strncmp(p, "without", n) == 0;
        bool with = n == 4 && strncmp(p, "with", n) == 0;
        if (!skip && !without && !with) {
            if (*at)
                put(out, at, " ", 1);
            fill(out, at, p, first);
        }
        skip = without;
        p += n + (p[n] == ' ');
    }
}

static bool example_allowed(const struct br_table *t, const struct br_rule *r, const char *action,
                            const struct br_context *context)
{
    char text[EXAMPLE_MAX + 1] = "", *save = NULL;
    const char *words[EXAMPLE_WORDS_MAX];
    size_t at = 0, n = 0;
    struct br_decision d;
    struct br_request q = {.action = action, .subject = text, .context = context};
    if (r->text_len >= EXAMPLE_MAX)
        return false;
    if (r->pattern.kind == BR_MATCH_PROGRAM)
        fill_program(text, &at, r->text);
    else
        fill(text, &at, r->pattern.kind == BR_MATCH_ANY ? "w" : r->text,
             r->pattern.kind == BR_MATCH_ANY ? 1 : r->text_len);
    q.subject_len = at;
    if (strcmp(action, "process.exec") == 0) {
        for (char *w = strtok_r(text, " ", &save); w && n < EXAMPLE_WORDS_MAX;
             w = strtok_r(NULL, " ", &save))
            words[n++] = w;
        q.words = words;
        q.nwords = n;
    }
    br_table_decide(t, &q, &d);
    return d.effect == BR_EFFECT_ALLOW;
}

/* ---- nearness ---- */

/* Is the n bytes of word one of "a|b|c"; the rest of the list ends at a blank. */
static bool one_of(const char *list, const char *word, size_t n)
{
    for (const char *p = list;; p++) {
        size_t len = strcspn(p, "| ");
        if (len == n && strncmp(p, word, n) == 0)
            return true;
        p += len;
        if (*p != '|')
            return false;
    }
}

/* The same program counts most, then how much the two have in common from the start, in whole words
 * or directories. */
static size_t score(const struct br_rule *r, const char *near)
{
    size_t common = 0, whole = 0, word = strcspn(near, " ");
    const char *slash = memrchr(near, '/', word);
    const char *name = slash ? slash + 1 : near;
    size_t len = (size_t)(near + word - name);
    for (; common < r->text_len && near[common] && near[common] == r->text[common]; common++)
        if (strchr(" /.:", near[common]))
            whole = common + 1;
    if (!near[common])
        whole = common;
    bool same = len > 0 && r->pattern.kind != BR_MATCH_PATH && one_of(r->text, name, len);
    return whole + (same ? BR_SUBJECT_MAX : 0);
}

static bool nearer(const struct candidate *a, const struct candidate *b)
{
    bool program = a->rule->pattern.kind == BR_MATCH_PROGRAM; /* these say more in one line */
    if (a->score != b->score)
        return a->score > b->score;
    if (program != (b->rule->pattern.kind == BR_MATCH_PROGRAM))
        return program;
    return a->rule->index < b->rule->index;
}

unsigned br_table_instead(const struct br_table *t, const char *action, const char *near,
                          const struct br_context *context, struct br_instead *out, unsigned max)
{
    struct candidate best[BR_INSTEAD_MAX] = {{.rule = NULL}};
    unsigned n = 0;
    if (max > BR_INSTEAD_MAX)
        max = BR_INSTEAD_MAX;
    for (uint32_t i = 0; t && max && i < t->nrules; i++) {
        const struct br_rule *r = &t->rules[i];
        if (r->effect != BR_EFFECT_ALLOW ||
            (strcmp(r->action, action) != 0 && strcmp(r->action, "*") != 0))
            continue;
        struct candidate c = {.rule = r, .score = score(r, near ? near : "")};
        bool listed = n == max && !nearer(&c, &best[n - 1]);
        for (unsigned k = 0; k < n && !listed; k++)
            listed = strcmp(best[k].rule->text, r->text) == 0;
        if (listed || !example_allowed(t, r, action, context))
            continue;
        unsigned at = n < max ? n++ : n - 1;
        for (; at > 0 && nearer(&c, &best[at - 1]); at--)
            best[at] = best[at - 1];
        best[at] = c;
    }
    for (unsigned i = 0; i < n; i++) {
        const struct br_rule *r = best[i].rule;
        out[i] = (struct br_instead){.pattern = r->pattern.kind == BR_MATCH_ANY ? "*" : r->text,
                                     .rule_id = r->id};
    }
    return n;
}

bool br_table_where(const struct br_table *t, const char *source, const char *rule_id,
                    struct br_where *out)
{
    *out = (struct br_where){.file = NULL};
    for (uint32_t i = 0; t && source && rule_id && i < t->nrules; i++) {
        const struct br_rule *r = &t->rules[i];
        if (strcmp(r->id, rule_id) != 0 || strcmp(br_source_name(r->source), source) != 0)
            continue;
        *out = (struct br_where){.file = r->file, .line = r->line};
        return true;
    }
    for (uint32_t i = 0; t && source && rule_id && i < t->nfallbacks; i++) {
        const struct br_fallback *f = &t->fallbacks[i];
        if (strcmp(f->id, rule_id) != 0 || strcmp(br_source_name(f->source), source) != 0)
            continue;
        *out = (struct br_where){.file = f->file, .line = f->line, .otherwise = true};
        return true;
    }
    return false;
}
