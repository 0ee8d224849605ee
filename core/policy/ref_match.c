/*
 * Reference matchers: see ref_match.h. They share no code with the real ones, and look at segments
 * and words as they are, not at a compiled form.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/ref_match.h"

struct ref {
    const char *p;
    size_t pn;
    const char *s;
    size_t sn;
    const char *const *words;
    size_t nwords;
    bool path;
    unsigned char failed[REF_PATTERN_MAX + 1][REF_SUBJECT_MAX + 1];
};

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static size_t run_of(const struct ref *r, size_t i, char c)
{
    size_t n = 0;
    while (i + n < r->pn && r->p[i + n] == c)
        n++;
    return n;
}

/* Length of a whole segment of two or more stars at i, 0 if there is none. */
static size_t tree_segment(const struct ref *r, size_t i)
{
    size_t n = run_of(r, i, '*');
    bool starts = i == 0 || r->p[i - 1] == '/';
    bool ends = i + n == r->pn || r->p[i + n] == '/';
    return starts && ends && n >= 2 ? n : 0;
}

/* From i on there is nothing but "/<tree segment>", at least one. */
static bool only_tree_segments(const struct ref *r, size_t i)
{
    if (i == r->pn)
        return false;
    while (i < r->pn) {
        size_t n = r->p[i] == '/' ? tree_segment(r, i + 1) : 0;
        if (n == 0)
            return false;
        i += 1 + n;
    }
    return true;
}

static bool go(struct ref *r, size_t i, size_t j);

static bool go_tree(struct ref *r, size_t i, size_t j, size_t n)
{
    if (i + n == r->pn)
        return true;
    if (go(r, i + n + 1, j))
        return true;
    for (size_t k = j; k < r->sn; k++)
        if (r->s[k] == '/' && go(r, i + n + 1, k + 1))
            return true;
    return false;
}

static bool go_star(struct ref *r, size_t i, size_t j)
{
    size_t n = run_of(r, i, '*');
    bool crosses = !r->path || n >= 2;
    for (size_t k = j; k <= r->sn; k++) {
        if (go(r, i + n, k))
            return true;
        if (k < r->sn && r->s[k] == '/' && !crosses)
            return false;
    }
    return false;
}

static bool go_new(struct ref *r, size_t i, size_t j)
{
    size_t tree = r->path ? tree_segment(r, i) : 0;
    if (tree)
        return go_tree(r, i, j, tree);
    if (i == r->pn)
        return j == r->sn;
    if (r->path && j == r->sn && only_tree_segments(r, i))
        return true;
    if (r->p[i] == '*')
        return go_star(r, i, j);
    if (j == r->sn)
        return false;
    if (r->p[i] != '?')
        return r->p[i] == r->s[j] && go(r, i + 1, j + 1);
    if (continues(r->s[j]) || (r->path && r->s[j] == '/'))
        return false;
    for (j++; j < r->sn && continues(r->s[j]);)
        j++;
    return go(r, i + 1, j);
}

static bool go(struct ref *r, size_t i, size_t j)
{
    if (r->failed[i][j])
        return false;
    if (go_new(r, i, j))
        return true;
    r->failed[i][j] = 1;
    return false;
}

static bool run(const char *pattern, const char *subject, size_t n, bool path)
{
    struct ref r = {.p = pattern, .pn = strlen(pattern), .s = subject, .sn = n, .path = path};
    if (r.pn > REF_PATTERN_MAX || n > REF_SUBJECT_MAX)
        abort();
    return r.pn > 0 && go(&r, 0, 0);
}

bool ref_match_path(const char *pattern, const char *subject, size_t n)
{
    return run(pattern, subject, n, true);
}

bool ref_match_text(const char *pattern, const char *subject, size_t n)
{
    return run(pattern, subject, n, false);
}

/* Word w, byte j of it; the two move together through the words. */
static bool go_words(struct ref *r, size_t i, size_t w, size_t j);

static bool go_words_star(struct ref *r, size_t i, size_t w, size_t j)
{
    for (i += run_of(r, i, '*'); w < r->nwords; w++, j = 0)
        for (; j <= strlen(r->words[w]); j++)
            if (go_words(r, i, w, j))
                return true;
    return false;
}

static bool go_words_new(struct ref *r, size_t i, size_t w, size_t j)
{
    const char *word = r->words[w];
    size_t len = strlen(word);
    if (i == r->pn)
        return w + 1 == r->nwords && j == len;
    if (r->p[i] == ' ')
        return j == len && w + 1 < r->nwords && go_words(r, i + run_of(r, i, ' '), w + 1, 0);
    if (r->p[i] == '*')
        return go_words_star(r, i, w, j);
    if (j == len)
        return false;
    if (r->p[i] != '?')
        return r->p[i] == word[j] && go_words(r, i + 1, w, j + 1);
    if (continues(word[j]))
        return false;
    for (j++; continues(word[j]);)
        j++;
    return go_words(r, i + 1, w, j);
}

static bool go_words(struct ref *r, size_t i, size_t w, size_t j)
{
    size_t at = j;
    for (size_t k = 0; k < w; k++)
        at += strlen(r->words[k]) + 1;
    if (at > REF_SUBJECT_MAX)
        abort();
    if (r->failed[i][at])
        return false;
    if (go_words_new(r, i, w, j))
        return true;
    r->failed[i][at] = 1;
    return false;
}

bool ref_match_words(const char *pattern, const char *const *words, size_t nwords)
{
    struct ref r = {
        .p = pattern, .pn = strlen(pattern), .words = words, .nwords = nwords, .path = false};
    return nwords > 0 && r.pn > 0 && go_words(&r, 0, 0, 0);
}
