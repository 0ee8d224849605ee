/*
 * The matchers: a table of cases, the limits, the time, and a comparison with the reference on
 * random patterns over a small alphabet, where every kind of near miss turns up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/test_random.h"
#include "policy/policy_priv.h"
#include "policy/ref_match.h"

static const struct {
    const char *pattern, *subject;
    bool yes;
} path_cases[] = {
    {"src/a", "src/a", true},
    {"src/a", "src/ab", false},
    {"src/a", "src", false},
    {"src/*", "src/a", true},
    {"src/*", "src/a/b", false},
    {"src/*", "src", false},
    {"src/**", "src/a", true},
    {"src/**", "src/a/b", true},
    {"src/**", "src", true},
    {"src/**", "src2", false},
    {"src/**", "src2/a", false},
    {"src/**", "a/src/b", false},
    {"**", "a", true},
    {"**", "a/b/c", true},
    {"**/x", "x", true},
    {"**/x", "a/x", true},
    {"**/x", "a/b/x", true},
    {"**/x", "ax", false},
    {"**/x", "x/a", false},
    {"**/*.ts", "a.ts", true},
    {"**/*.ts", "a/b/c.ts", true},
    {"**/*.ts", "a/b/c.tsx", false},
    {"a/**/b", "a/b", true},
    {"a/**/b", "a/x/b", true},
    {"a/**/b", "a/x/y/b", true},
    {"a/**/b", "ab", false},
    {"a/**/b", "a/xb", false},
    {"a/**/**/b", "a/b", true},
    {"a/**/**", "a", true},
    {"a/**/**", "a/b/c", true},
    {"**/**", "a/b", true},
    {"**/a/**", "a", true},
    {"**/a/**", "x/a/y/z", true},
    {"**/a/**", "x/b/y", false},
    {"src**", "src2/a", true},
    {"src**", "sr", false},
    {"a**b", "a/x/b", true},
    {"a**b", "ab", true},
    {"*", "a", true},
    {"*", "a/b", false},
    {"*.md", "README.md", true},
    {"*.md", "docs/README.md", false},
    {"*/*.md", "docs/README.md", true},
    {"a?c", "abc", true},
    {"a?c", "a/c", false},
    {"a?c", "ac", false},
    {"a?c",
     "a\xc3\xa9"
     "c",
     true},
    {"a??c",
     "a\xc3\xa9"
     "c",
     false},
    {"?*", "a", true},
    {"*?", "a", true},
    {"*?*", "", false},
    {"*a*b*", "xxaxxbxx", true},
    {"*a*b*", "xxbxxaxx", false},
    {"a*a", "a", false},
    {"SRC/a", "src/a", false},
    {".env*", ".env.local", true},
    {"a[b]", "a[b]", true},
    {"a[b]", "ab", false},
    {"a\\*", "a*", false},
    {"a\\*", "a\\x", true},
};

static void test_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(path_cases); i++) {
        const char *p = path_cases[i].pattern, *s = path_cases[i].subject;
        if (br_match_path(p, s, strlen(s)) != path_cases[i].yes)
            fail_msg("path '%s' against '%s'", p, s);
        if (ref_match_path(p, s, strlen(s)) != path_cases[i].yes)
            fail_msg("the reference: path '%s' against '%s'", p, s);
    }
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
static const struct {
    const char *pattern;
    const char *const *words;
    bool yes;
} word_cases[] = {
    {"rm *", WORDS("rm", "-rf", "/etc"), true},
    {"rm *", WORDS("rm", "x"), true},
    {"rm *", WORDS("rm"), false},
    {"rm *", WORDS("rmdir", "x"), false},
    {"rm *", WORDS("rm", ""), true},
    {"rm", WORDS("rm"), true},
    {"rm*", WORDS("rm"), true},
    {"rm*", WORDS("rmdir", "x"), true},
    {"git diff*", WORDS("git", "diff", "src/a.ts"), true},
    {"git diff*", WORDS("git", "diff"), true},
    {"git diff*", WORDS("git", "difftool"), true},
    {"git diff*", WORDS("git", "push"), false},
    {"git diff *", WORDS("git", "diff", "x"), true},
    {"git   diff  *", WORDS("git", "diff", "x"), true},
    {"git diff *", WORDS("git diff", "x"), false},
    {"git diff*", WORDS("git diff", "x"), false},
    {"git*", WORDS("git diff", "x"), true},
    {"*", WORDS("anything", "at", "all"), true},
    {"* --force", WORDS("git", "push", "--force"), true},
    {"* --force", WORDS("git push", "--force"), true},
    {"* --force*", WORDS("git", "push", "--force-with-lease"), true},
    {"git ? x", WORDS("git", "a", "x"), true},
    {"git ? x", WORDS("git", "ab", "x"), false},
    {"git?x", WORDS("git", "x"), false},
    {"git?x", WORDS("git x"), true},
    {"cat /etc/*", WORDS("cat", "/etc/ssh/key"), true},
    {"npm test", WORDS("npm", "test"), true},
    {"npm test", WORDS("npm", "test", "x"), false},
    {"npm test", WORDS("npm", "test", ""), false},
    {"a  b", WORDS("a", "", "b"), false},
    {"a*b", WORDS("a", "", "b"), true},
};

static size_t count(const char *const *words)
{
    size_t n = 0;
    while (words[n])
        n++;
    return n;
}

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(word_cases); i++) {
        const char *const *w = word_cases[i].words;
        if (br_match_words(word_cases[i].pattern, w, count(w)) != word_cases[i].yes)
            fail_msg("command '%s', case %zu", word_cases[i].pattern, i);
        if (ref_match_words(word_cases[i].pattern, w, count(w)) != word_cases[i].yes)
            fail_msg("the reference: command '%s', case %zu", word_cases[i].pattern, i);
    }
    assert_false(br_match_words("*", word_cases[0].words, 0));
}

static const struct {
    const char *pattern, *subject;
    bool yes;
} host_cases[] = {
    {"example.com", "example.com", true},
    {"example.com", "EXAMPLE.com", true},
    {"Example.COM", "example.com", true},
    {"example.com", "example.com:443", true},
    {"example.com:443", "example.com:443", true},
    {"example.com:443", "example.com:80", false},
    {"example.com:443", "example.com:4430", false},
    {"example.com:443", "example.com", false},
    {"example.com:443", "example.com:0443", false},
    {"example.com:*", "example.com:80", true},
    {"example.com:*", "example.com", true},
    {"*.example.com", "a.example.com", true},
    {"*.example.com", "a.b.example.com:1", true},
    {"*.example.com", "example.com", false},
    {"*.example.com", "badexample.com", false},
    {"example.*", "example.org:99", true},
    {"*", "anything:1", true},
    {"*", "[::1]:80", true},
    {"[::1]:80", "[::1]:80", true},
    {"[::1]:80", "[::1]:81", false},
    {"[::1]", "[::1]:81", true},
    {"::1", "::1", true},
    {"example.com", "example.com.", false},
    {"*", "example.com.", false},
    {"*", "a..b", false},
    {"*", "a/b", false},
    {"*", "user@host", false},
    {"*", "host:", false},
    {"*", "host:65536", false},
    {"*", "host:65535", true},
    {"*", "host:0443", false},
    {"*", "host:0", false},
    {"*", ":80", false},
    {"*", "[::1", false},
};

static void test_host(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(host_cases); i++) {
        const char *p = host_cases[i].pattern, *s = host_cases[i].subject;
        if (br_match_host(p, s, strlen(s)) != host_cases[i].yes)
            fail_msg("host '%s' against '%s'", p, s);
    }
    char host[300];
    memset(host, 'a', sizeof(host));
    assert_true(br_match_host("*", host, 253));
    assert_false(br_match_host("*", host, 254));
}

static void test_text(void **state)
{
    (void)state;
    assert_true(br_match_text("a*z", "a/b c/z", 7));
    assert_true(br_match_text("a?c", "a/c", 3));
    assert_true(br_match_text("*x*", "  x  ", 5));
    assert_false(br_match_text("*x*", "  y  ", 5));
    assert_false(br_match_text("", "", 0));
}

static void test_limits(void **state)
{
    (void)state;
    BR_CLEANUP_FREE char *s = malloc(BR_SUBJECT_MAX + 2);
    char pattern[BR_PATTERN_MAX + 2];
    assert_non_null(s);
    memset(s, 'a', BR_SUBJECT_MAX + 1);
    s[BR_SUBJECT_MAX + 1] = 0;
    assert_true(br_match_path("*", s, BR_SUBJECT_MAX));
    assert_false(br_match_path("*", s, BR_SUBJECT_MAX + 1));
    assert_false(br_match_words("*", (const char *const[]){s}, 1));
    s[BR_SUBJECT_MAX] = 0;
    assert_true(br_match_words("*", (const char *const[]){s}, 1));
    assert_false(br_match_words("*", (const char *const[]){s, ""}, 2)); /* one boundary more */

    memset(pattern, 'a', sizeof(pattern));
    pattern[BR_PATTERN_MAX + 1] = 0;
    assert_false(br_match_path(pattern, pattern, BR_PATTERN_MAX + 1));
    pattern[BR_PATTERN_MAX] = 0;
    assert_true(br_match_path(pattern, pattern, BR_PATTERN_MAX));
    memset(pattern, '?', BR_PATTERN_MAX);
    assert_true(br_match_path(pattern, s, BR_PATTERN_MAX));
    assert_false(br_match_path(pattern, s, BR_PATTERN_MAX + 1));
    assert_false(br_match_path(pattern, s, BR_PATTERN_MAX - 1));
    assert_false(br_match_path("\xff*", "\xff", 1));
}

/* Patterns that make a backtracking matcher run for hours. */
static void test_time(void **state)
{
    (void)state;
    BR_CLEANUP_FREE char *s = malloc(BR_SUBJECT_MAX + 1);
    char pattern[BR_PATTERN_MAX + 1];
    assert_non_null(s);
    memset(s, 'a', BR_SUBJECT_MAX);
    s[BR_SUBJECT_MAX] = 0;
    static const char *const units[] = {"*", "*a", "*?", "**a", "?*", "*a?", "**/", "*/", "* a"};
    for (size_t u = 0; u < BR_ARRAY_LEN(units); u++) {
        size_t n = 0, len = strlen(units[u]);
        while (n + len + 3 < BR_PATTERN_MAX) {
            memcpy(pattern + n, units[u], len);
            n += len;
        }
        /* never there, so every prefix of the pattern matches in vain; and no literal end */
        strcpy(pattern + n, "*b*");
        n += 3;
        uint64_t start = br_now_us();
        assert_false(br_match_path(pattern, s, BR_SUBJECT_MAX));
        assert_false(br_match_text(pattern, s, BR_SUBJECT_MAX));
        assert_false(br_match_words(pattern, (const char *const[]){s}, 1));
        uint64_t us = br_now_us() - start;
        print_message("%zu bytes of \"%s\" against 64 KiB, three matchers: %.2f ms\n", n, units[u],
                      (double)us / 1000);
        assert_true(us < 2000000); /* milliseconds in fact; hours if it were quadratic in stars */
    }
}

static uint64_t seed = 0x9e3779b97f4a7c15ull;
static unsigned roll(unsigned n)
{
    return br_test_roll(&seed, n);
}

static size_t random_text(char *dst, size_t max, const char *const *parts, unsigned nparts)
{
    size_t n = 0;
    for (unsigned k = roll(12); k > 0; k--) {
        const char *part = parts[roll(nparts)];
        if (n + strlen(part) >= max)
            break;
        memcpy(dst + n, part, strlen(part));
        n += strlen(part);
    }
    dst[n] = 0;
    return n;
}

static const char *const pattern_parts[] = {"a", "b",   "/",   "*", "**",
                                            "?", "/**", "**/", " ", "\xc3\xa9"};
static const char *const subject_parts[] = {"a", "b", "/", "a", "b", "\xc3\xa9", " ", "\xc3"};

static void test_reference(void **state)
{
    (void)state;
    unsigned yes = 0, rounds = 200000;
    for (unsigned i = 0; i < rounds; i++) {
        char p[REF_PATTERN_MAX], s[4][32];
        const char *words[4] = {s[0], s[1], s[2], s[3]};
        random_text(p, sizeof(p), pattern_parts, BR_ARRAY_LEN(pattern_parts));
        size_t n = random_text(s[0], sizeof(s[0]), subject_parts, BR_ARRAY_LEN(subject_parts));
        for (unsigned k = 1; k < 4; k++)
            random_text(s[k], 4, subject_parts, BR_ARRAY_LEN(subject_parts));
        size_t nwords = 1 + roll(4);
        bool path = ref_match_path(p, s[0], n), text = ref_match_text(p, s[0], n);
        bool command = ref_match_words(p, words, nwords);
        if (br_match_path(p, s[0], n) != path)
            fail_msg("path '%s' against '%s': %d in the reference", p, s[0], path);
        if (br_match_text(p, s[0], n) != text)
            fail_msg("text '%s' against '%s': %d in the reference", p, s[0], text);
        if (br_match_words(p, words, nwords) != command)
            fail_msg("command '%s' against '%s' '%s' '%s' '%s' (%zu): %d in the reference", p, s[0],
                     s[1], s[2], s[3], nwords, command);
        yes += path + text + command;
    }
    assert_true(yes > rounds / 50); /* the comparison saw matches, not only misses */
}

/* The same over patterns of more than 64 positions, which take the wide automaton. */
static void test_reference_wide(void **state)
{
    (void)state;
    unsigned yes = 0;
    for (unsigned i = 0; i < 20000; i++) {
        char p[BR_PATTERN_MAX + 1], q[REF_PATTERN_MAX], s[32];
        size_t n = random_text(s, sizeof(s), subject_parts, BR_ARRAY_LEN(subject_parts));
        random_text(q, sizeof(q), pattern_parts, BR_ARRAY_LEN(pattern_parts));
        char wide[BR_SUBJECT_MAX / 256];
        unsigned pad = 50 + roll(100);
        snprintf(p, sizeof(p), "*%0*d?%s", (int)pad, 0, q); /* zeros never occur elsewhere */
        int len = snprintf(wide, sizeof(wide), "%0*d-%s", (int)pad, 0, s);
        bool expected = ref_match_text(q, s, n) || (q[0] == 0 && n == 0);
        if (br_match_text(p, wide, (size_t)len) != expected)
            fail_msg("text '%s' against '%s': %d in the reference", q, s, expected);
        yes += expected;
    }
    assert_true(yes > 100);
}

/* The same for paths, so that each kind of position falls on each bit of a word. */
static void test_reference_wide_path(void **state)
{
    (void)state;
    unsigned yes = 0;
    for (unsigned i = 0; i < 20000; i++) {
        char p[BR_PATTERN_MAX + 1], q[REF_PATTERN_MAX], s[32], wide[256];
        size_t n = random_text(s, sizeof(s), subject_parts, BR_ARRAY_LEN(subject_parts));
        random_text(q, sizeof(q), pattern_parts, BR_ARRAY_LEN(pattern_parts));
        unsigned pad = 50 + roll(100);
        snprintf(p, sizeof(p), "*%0*d/%s", (int)pad, 0, q);
        int len = snprintf(wide, sizeof(wide), "%0*d/%s", (int)pad, 0, s);
        bool expected = ref_match_path(q, s, n) || (q[0] == 0 && n == 0);
        if (br_match_path(p, wide, (size_t)len) != expected)
            fail_msg("path '%s' against '%s': %d in the reference", q, s, expected);
        yes += expected;
    }
    assert_true(yes > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_reference_wide),
        cmocka_unit_test(test_reference_wide_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
