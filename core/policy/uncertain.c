/*
 * Commands whose words are known only in part, because a shell will expand them (base.h says what
 * the marks in them stand for). An allow counts only where its pattern matches whatever the marks
 * become, an ask or a deny where it matches something that they can become. The patterns are the
 * operator's, the words a model's; all rules of the action are looked at, within a budget, and what
 * it does not reach is taken for a match that denies or asks.
 */
#include <string.h>

#include "policy/policy_priv.h"

/* Steps of the matcher in one decision: a few milliseconds. */
#define STEPS_MAX 4000000u

/* Pattern positions that can be reached, as bytes: 1 reached. */
struct states {
    uint8_t on[BR_PATTERN_MAX + 2];
};

struct glob {
    uint16_t tok[BR_PATTERN_MAX + 1];
    unsigned n;
    uint64_t *steps;
};
#define TOK_STAR 256u
#define TOK_ONE 257u

static void lex(struct glob *g, const char *s, size_t n)
{
    g->n = 0;
    for (size_t i = 0; i < n && g->n < BR_PATTERN_MAX; i++) {
        if (s[i] == ' ') {
            while (i + 1 < n && s[i + 1] == ' ')
                i++;
            g->tok[g->n++] = 0;
        } else {
            g->tok[g->n++] = s[i] == '*' ? TOK_STAR : s[i] == '?' ? TOK_ONE : (uint8_t)s[i];
        }
    }
}

static void close_stars(const struct glob *g, struct states *s)
{
    for (unsigned i = 0; i < g->n; i++)
        if (s->on[i] && g->tok[i] == TOK_STAR)
            s->on[i + 1] = 1;
}

/* One byte that is known. */
static void step_byte(const struct glob *g, struct states *s, uint8_t c)
{
    bool tail = (c & 0xc0) == 0x80; /* of a character that '?' has begun */
    for (unsigned i = g->n + 1; i-- > 0;) {
        uint8_t from =
            i > 0 && s->on[i - 1] && (g->tok[i - 1] == c || (g->tok[i - 1] == TOK_ONE && c != 0));
        uint8_t stay = s->on[i] && ((i < g->n && g->tok[i] == TOK_STAR) ||
                                    (tail && i > 0 && g->tok[i - 1] == TOK_ONE));
        s->on[i] = from | stay;
    }
    close_stars(g, s);
    *g->steps += g->n + 1;
}

/* A mark: any bytes, but for those that it cannot be. */
static void step_mark(const struct glob *g, struct states *s, char mark)
{
    for (unsigned i = 0; i < g->n; i++) {
        bool passes = mark == BR_UNKNOWN_ANY ||
                      (g->tok[i] != 0 && !(mark == BR_UNKNOWN_FILE && g->tok[i] == '/'));
        if (s->on[i] && passes)
            s->on[i + 1] = 1;
    }
    *g->steps += g->n + 1;
}

static bool add_states(struct states *to, const struct states *more, unsigned n)
{
    bool grew = false;
    for (unsigned i = 0; i <= n; i++) {
        grew |= more->on[i] && !to->on[i];
        to->on[i] |= more->on[i];
    }
    return grew;
}

static void step_word(const struct glob *g, struct states *s, const char *word)
{
    for (; *word; word++)
        if (br_is_unknown(*word))
            step_mark(g, s, *word);
        else
            step_byte(g, s, (uint8_t)*word);
}

static bool vanishes(const char *word)
{
    return word[0] == BR_UNKNOWN_ANY && !word[1];
}

/* Can the words become something that the pattern matches. */
static bool glob_could(const struct glob *g, const char *const *words, size_t n)
{
    struct states s = {.on = {1}}, t;
    close_stars(g, &s);
    for (size_t i = 0; i < n && *g->steps < STEPS_MAX; i++) {
        struct states before = s;
        if (i > 0)
            step_byte(g, &s, 0);
        step_word(g, &s, words[i]);
        /* the names of several files */
        for (t = s; br_has_mark(words[i], BR_UNKNOWN_FILE) && *g->steps < STEPS_MAX;) {
            step_byte(g, &t, 0);
            step_word(g, &t, words[i]);
            if (!add_states(&s, &t, g->n))
                break;
        }
        if (vanishes(words[i]))
            add_states(&s, &before, g->n);
    }
    return *g->steps >= STEPS_MAX || s.on[g->n];
}

/* Does the literal beginning of the pattern contradict what is known of the words? Most do. */
static bool contradicts(const struct br_pattern *p, const char *s, size_t n)
{
    for (size_t i = 0; i < p->plen && i < n; i++) {
        if (br_is_unknown(s[i]) || (s[i] == 0 && i + 1 < n && br_is_unknown(s[i + 1])))
            return false;
        if (s[i] != p->prefix[i])
            return true;
    }
    return false;
}

static bool pattern_could(const struct br_rule *r, const char *const *words, size_t n,
                          const char *joined, size_t len, uint64_t *steps)
{
    struct glob g = {.steps = steps};
    if (contradicts(&r->pattern, joined, len))
        return false;
    lex(&g, r->text, r->text_len);
    return glob_could(&g, words, n);
}

/*
 * Whatever the words become, the pattern matches. A star covers a mark wholly. Where a whole word
 * may be none or several, the pattern must end in a star that begins before it; "ls *" does so for
 * `ls $X`, though it does not match `ls`: who allows a command with any arguments allows none.
 */
static bool pattern_certain(const struct br_rule *r, const char *const *words, size_t n,
                            const char *joined, size_t len, uint64_t *steps)
{
    size_t prefix = 0, k = 0;
    if (memchr(r->text, '?', r->text_len))
        return false;
    for (; k < n && !vanishes(words[k]); k++)
        prefix += strlen(words[k]) + 1;
    if (k == n)
        return br_pattern_match(&r->pattern, joined, len);
    if (k == 0 || r->text_len == 0 || r->text[r->text_len - 1] != '*')
        return false;
    if (br_pattern_match(&r->pattern, joined, prefix - 1))
        return true;
    size_t cut = r->text_len - 1;
    for (size_t i = 0; i < k; i++)
        for (const char *p = words[i]; *p; p++)
            if (br_is_unknown(*p))
                return false;
    if (cut < 2 || r->text[cut - 1] != ' ')
        return false;
    struct glob g = {.steps = steps};
    lex(&g, r->text, cut - 1);
    return glob_could(&g, words, k) && *steps < STEPS_MAX;
}

static bool speaks(const struct br_rule *r, const char *action)
{
    return strcmp(r->action, "*") == 0 || strcmp(r->action, action) == 0;
}

static bool rule_matches(const struct br_rule *r, bool certain, const char *const *words, size_t n,
                         const char *joined, size_t len, uint64_t *steps)
{
    switch ((enum br_match_kind)r->pattern.kind) {
    case BR_MATCH_ANY:
        return true;
    case BR_MATCH_COMMAND:
        return certain ? pattern_certain(r, words, n, joined, len, steps)
                       : pattern_could(r, words, n, joined, len, steps);
    case BR_MATCH_PROGRAM: {
        const char *slash = strrchr(words[0], '/'), *name = slash ? slash + 1 : words[0];
        if (br_word_is_unknown(words[0]))
            return !certain;
        return br_pattern_match(&r->pattern, name, strlen(name)) &&
               br_command_match_uncertain(r->command, certain, words, n);
    }
    default:
        return false;
    }
}

bool br_word_is_unknown(const char *word)
{
    for (; *word; word++)
        if (br_is_unknown(*word))
            return true;
    return false;
}

void br_uncertain_find(const struct br_table *t, const struct br_request *q, const char *joined,
                       size_t len, uint8_t *matched, struct br_uncertain *out)
{
    uint64_t steps = 0;
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < t->nrules; i++) {
        const struct br_rule *r = &t->rules[i];
        const struct br_rule **best = &out->best[r->source];
        bool manifest = r->source == BR_SOURCE_MANIFEST, allow = r->effect == BR_EFFECT_ALLOW;
        /* within a manifest the longest pattern wins, and behind one that is certain none counts;
         * elsewhere the rules come strictest first */
        bool done = manifest ? out->certain[r->source] : *best != NULL;
        if ((done && !matched) || !speaks(r, q->action))
            continue;
        bool yes = rule_matches(r, allow, q->words, q->nwords, joined, len, &steps);
        bool applies = yes && br_rule_applies(t, r, q->context);
        if (yes && matched)
            matched[i] = applies ? BR_MATCHED : BR_UNMET;
        if (done || !applies)
            continue;
        if (!*best || r->effect > (*best)->effect)
            *best = r;
        if (manifest)
            out->certain[r->source] =
                allow || rule_matches(r, true, q->words, q->nwords, joined, len, &steps);
    }
}
