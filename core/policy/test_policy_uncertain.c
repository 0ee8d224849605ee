/*
 * Words that are known only in part: an allow must match everything that they can become, an ask or
 * a deny one of these things. Random patterns and words are compared with the plain evaluator,
 * given each of many things that the marks can become.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

#define FILE_ "\xfd"
#define PART "\xfe"
#define ANY "\xff"

static struct br_table *load(const char *json)
{
    struct br_table *t;
    struct br_err err = {.code = BR_OK};
    if (br_table_load(json, strlen(json), &t, &err) < 0)
        fail_msg("%s: %s", json, err.text);
    return t;
}

static struct br_table *one_rule(const char *kind, const char *pattern, const char *effect)
{
    char json[2048];
    snprintf(json, sizeof(json),
             "{\"v\":2,\"sources\":[{\"kind\":\"%s\",\"name\":\"t\"}],\"rules\":[{\"id\":\"r\","
             "\"source\":0,\"action\":\"process.exec\",\"match\":\"command\",\"pattern\":\"%s\","
             "\"effect\":\"%s\"}],\"fallbacks\":[],\"predicates\":false}",
             kind, pattern, effect);
    return load(json);
}

static enum br_effect decide(const struct br_table *t, const char *joined, bool unknown)
{
    const char *words[16];
    char copy[128];
    size_t n = 0;
    struct br_decision d;
    snprintf(copy, sizeof(copy), "%s", joined);
    for (char *p = copy; p && n < 16;)
        words[n++] = strsep(&p, "|");
    br_table_decide(t,
                    &(struct br_request){
                        .action = "process.exec", .words = words, .nwords = n, .unknown = unknown},
                    &d);
    return d.effect;
}

static const struct {
    const char *pattern, *words;
    bool certain, could;
} cases[] = {
    {"ls *", "ls|" PART, true, true},
    {"ls *", "ls|" FILE_ ".c", true, true},
    {"ls *", "ls|" ANY, true, true}, /* and for `ls` alone */
    {"ls*", "ls|" ANY, true, true},
    {"ls", "ls|" ANY, false, true},
    {"ls", "ls|" PART, false, false},
    {"ls", "ls|" FILE_, false, false},
    {"ls ?", "ls|" PART, false, true},
    {"ls a*", "ls|" PART, false, true},
    {"ls a*", "ls|a" PART, true, true},
    {"ls a*", "ls|b" PART, false, false},
    {"ls *.c", "ls|" FILE_ ".c", true, true},
    {"ls *.c", "ls|" PART ".h", false, false},
    {"git push*", "git|" PART, false, true},
    {"git push*", "git|log|" ANY, false, false},
    {"git push *", "git|" ANY, false, true},
    {"rm -rf *", "rm|" PART, false, false},
    {"rm -rf *", "rm|" PART "|x", false, true},
    {"rm -rf *", "rm|" ANY, false, true},
    {"rm -rf *", "rm|" FILE_, false, true}, /* files named -rf and x */
    {"rm -rf *", "rm|" FILE_ ".o", false, false},
    {"rm -rf /*", "rm|-rf|" FILE_, false, false},
    {"rm -rf /*", "rm|-rf|" PART, false, true},
    {"a * b", "a|" ANY "|b", false, true},
    {"a * b *", "a|" ANY "|b|" ANY, false, true},
    {"*", "a|" ANY, true, true},
    {"* x", "a|" PART, false, true},
    {"* x", "a|" ANY "|x", false, true},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        struct br_table *allow = one_rule("operator", cases[i].pattern, "allow");
        struct br_table *deny = one_rule("operator", cases[i].pattern, "deny");
        bool certain = decide(allow, cases[i].words, true) == BR_EFFECT_ALLOW;
        bool could = decide(deny, cases[i].words, true) == BR_EFFECT_DENY;
        if (certain != cases[i].certain || could != cases[i].could)
            fail_msg("%s, %s: %d %d", cases[i].pattern, cases[i].words, certain, could);
        br_table_free(&allow);
        br_table_free(&deny);
    }
}

/* Within a manifest the longest pattern that matches in any case hides what is behind it. */
static void test_manifest(void **state)
{
    (void)state;
    struct br_table *t =
        load("{\"v\":2,\"sources\":[{\"kind\":\"manifest\",\"name\":\"t\"}],\"rules\":["
             "{\"id\":\"a\",\"source\":0,\"action\":\"process.exec\",\"match\":\"command\","
             "\"pattern\":\"ls *\",\"effect\":\"allow\"},"
             "{\"id\":\"b\",\"source\":0,\"action\":\"process.exec\",\"match\":\"command\","
             "\"pattern\":\"ls secret*\",\"effect\":\"deny\"},"
             "{\"id\":\"c\",\"source\":0,\"action\":\"process.exec\",\"match\":\"command\","
             "\"pattern\":\"l*\",\"effect\":\"ask\"}],\"fallbacks\":[{\"id\":\"f\",\"source\":0,"
             "\"action\":\"process.exec\",\"effect\":\"deny\"}],\"predicates\":false}");
    assert_int_equal(decide(t, "ls|x" PART, true), BR_EFFECT_ALLOW);
    assert_int_equal(decide(t, "ls|" PART, true), BR_EFFECT_DENY);
    assert_int_equal(decide(t, "ls|se" PART, true), BR_EFFECT_DENY);
    assert_int_equal(decide(t, "ls|sx" PART, true), BR_EFFECT_ALLOW);
    assert_int_equal(decide(t, "lx|" PART, true), BR_EFFECT_ASK);
    assert_int_equal(decide(t, "x|" PART, true), BR_EFFECT_DENY);
    br_table_free(&t);
}

/* ---- against everything that the marks can become ---- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void random_text(uint32_t *seed, char *out, const char *const *parts, unsigned n,
                        unsigned count)
{
    out[0] = 0;
    for (unsigned i = 0; i < count; i++)
        strcat(out, parts[next_random(seed) % n]);
}

/* The text with its marks replaced, at random; NULL if that is no command. */
static bool become(uint32_t *seed, const char *text, char *out, size_t cap)
{
    static const char *const file[] = {"", "a", "b", "-", "ab"}, *const part[] = {"",  "a", "b",
                                                                                  "/", "-", "a/"},
                             *const any[] = {"", "a", "|", "a|b", "/", "|a"};
    char copy[128];
    size_t at = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    out[0] = 0;
    for (char *p = copy; p;) {
        const char *word = strsep(&p, "|");
        unsigned times = strchr(word, FILE_[0]) ? 1 + next_random(seed) % 2 : 1;
        bool gone = strcmp(word, ANY) == 0 && next_random(seed) % 3 == 0;
        for (unsigned k = 0; k < times && !gone; k++) {
            if (word != copy)
                at += (size_t)snprintf(out + at, cap - at, "|");
            for (const char *c = word; *c; c++) {
                if (*c == FILE_[0])
                    at += (size_t)snprintf(out + at, cap - at, "%s", file[next_random(seed) % 5]);
                else if (*c == PART[0])
                    at += (size_t)snprintf(out + at, cap - at, "%s", part[next_random(seed) % 6]);
                else if (*c == ANY[0])
                    at += (size_t)snprintf(out + at, cap - at, "%s", any[next_random(seed) % 6]);
                else
                    at += (size_t)snprintf(out + at, cap - at, "%c", *c);
            }
        }
    }
    return out[0] && out[0] != '|';
}

static void test_random(void **state)
{
    static const char *const patterns[] = {"a", "b", "*", "?", " ", "-", "/", "a "},
                             *const words[] = {"a", "b", "|", "-", "/", FILE_, PART, ANY, "|a"};
    (void)state;
    uint32_t seed = 7;
    unsigned allowed = 0, denied = 0;
    for (unsigned i = 0; i < 6000; i++) {
        char pattern[64], text[64], real[256], *end;
        random_text(&seed, pattern + 1, patterns, 8, 1 + next_random(&seed) % 5);
        pattern[0] = 'a';
        for (end = pattern + strlen(pattern); end > pattern && end[-1] == ' ';)
            *--end = 0;
        random_text(&seed, text + 1, words, 9, 1 + next_random(&seed) % 6);
        text[0] = 'a';
        struct br_table *allow = one_rule("operator", pattern, "allow");
        struct br_table *deny = one_rule("operator", pattern, "deny");
        bool certain = decide(allow, text, true) == BR_EFFECT_ALLOW;
        bool could = decide(deny, text, true) == BR_EFFECT_DENY;
        /* "ls *" covers `ls` too, where the word may vanish */
        size_t stem = strlen(pattern);
        struct br_table *bare = NULL;
        if (stem > 2 && strcmp(pattern + stem - 2, " *") == 0) {
            char cut[64];
            snprintf(cut, sizeof(cut), "%.*s", (int)stem - 2, pattern);
            for (end = cut + strlen(cut); end > cut && end[-1] == ' ';)
                *--end = 0;
            bare = one_rule("operator", cut, "deny");
        }
        for (unsigned k = 0; k < 40; k++) {
            if (!become(&seed, text, real, sizeof(real)))
                continue;
            bool matches = decide(deny, real, false) == BR_EFFECT_DENY;
            if (certain && !matches && !(bare && decide(bare, real, false) == BR_EFFECT_DENY))
                fail_msg("'%s' is said to match '%s' always, but not '%s'", pattern, text, real);
            if (matches && !could)
                fail_msg("'%s' is said to match '%s' never, but '%s'", pattern, text, real);
        }
        allowed += certain;
        denied += could;
        br_table_free(&bare);
        br_table_free(&allow);
        br_table_free(&deny);
    }
    assert_true(allowed > 200 && denied > 1000);
}

/* However long they are, an answer comes, and no allow. */
static void test_budget(void **state)
{
    (void)state;
    char pattern[1024] = "a *";
    for (unsigned i = 0; i < 400; i++)
        strcat(pattern, "b*");
    strcat(pattern, "h");
    struct br_table *t = one_rule("operator", pattern, "deny");
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SUBJECT_MAX);
    const char *words[3000] = {"a"};
    struct br_decision d;
    for (unsigned i = 1; i < 3000; i++)
        words[i] = "b" FILE_ "c" FILE_ "d";
    br_table_decide(t,
                    &(struct br_request){
                        .action = "process.exec", .words = words, .nwords = 3000, .unknown = true},
                    &d);
    assert_int_equal(d.effect, BR_EFFECT_DENY);
    br_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
