/*
 * Structured commands: spellings that mean the same are caught by a deny and an ask, and an allow
 * takes only what is certain; what is refused when a table is loaded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/test_random.h"
#include "policy/policy_priv.h"

#define PROGRAMS                                                                                   \
    "\"programs\":[{\"name\":\"git\",\"options\":[\"-p\",\"--no-pager\",\"-P\"],\"values\":["      \
    "\"-C\",\"-c\",\"--git-dir\",\"--config-env\"],\"unsafe\":[\"-c\",\"--config-env\"],"          \
    "\"rewrites\":[\"alias.\",\"include\"]},"                                                      \
    "{\"name\":\"kubectl\",\"values\":[\"-n\",\"--namespace\"],\"anywhere\":true}]"

#define PUSH "{\"program\":\"git\",\"words\":[[\"push\",\"send-*\"]]}"
#define RM_RF                                                                                      \
    "{\"program\":\"rm\",\"flags\":[[\"-r\",\"-R\",\"--recursive\"],[\"-f\",\"--force\"]]}"
#define RM_ABSOLUTE "{\"program\":\"rm\",\"flags\":[[\"-r\"]],\"arguments\":[\"/*\",\"~*\"]}"
#define RM_BUILD "{\"program\":\"rm\",\"arguments\":[\"build/*\",\"../old\"]}"
#define REMOTE_ADD "{\"program\":\"git\",\"words\":[[\"remote\"],[\"add\"]]}"
#define FIND "{\"program\":\"find\",\"flags\":[[\"-delete\"]]}"
#define BRANCH "{\"program\":\"git\",\"words\":[[\"branch\"]],\"without\":[\"-D\",\"--delete\"]}"
#define GET "{\"program\":\"kubectl\",\"words\":[[\"get\"],[\"pods\"]]}"
#define PUSH_FORCE "{\"program\":\"git\",\"words\":[[\"push\"]],\"flags\":[[\"-f\",\"--force\"]]}"
#define MKFS "{\"program\":\"mkfs*\"}"
#define GRADLEW "{\"program\":\"./gradlew\",\"words\":[[\"test\"]]}"
#define CARGO "{\"program\":\"cargo\",\"words\":[[\"build\"]]}"

/* Words are separated by '|'. Does a deny match, does an allow. */
static const struct {
    const char *command, *words;
    bool deny, allow;
} cases[] = {
    /* the program */
    {PUSH, "git|push", 1, 1},
    {PUSH, "/usr/bin/git|push", 1, 1},
    {PUSH, "./git|push", 1, 0},
    {PUSH, "/tmp/bin/git|push", 1, 0},
    {PUSH, "git/|push", 0, 0},
    {PUSH, "gitk|push", 0, 0},
    {PUSH, "git", 0, 0},
    {PUSH, "|git|push", 0, 0},
    {MKFS, "mkfs.ext4|x", 1, 1},
    {MKFS, "/sbin/mkfs", 1, 1},
    {MKFS, "/mkfs/x", 0, 0},
    {GRADLEW, "./gradlew|test", 1, 1},
    {GRADLEW, "gradlew|test", 1, 1},
    {GRADLEW, "/tmp/gradlew|test", 0, 0},
    /* the sub-command behind global options */
    {PUSH, "git|push|origin|main", 1, 1},
    {PUSH, "git|send-email", 1, 1},
    {PUSH, "git|status", 0, 0},
    {PUSH, "git|log|push", 0, 0},
    {PUSH, "git|-C|dir|push", 1, 1},
    {PUSH, "git|-C|push|status", 0, 0},
    {PUSH, "git|-C|push", 0, 0},
    {PUSH, "git|-C", 0, 0},
    {PUSH, "git|--git-dir=x|push", 1, 1},
    {PUSH, "git|--git-dir|x|push", 1, 1},
    {PUSH, "git|-p|--no-pager|push", 1, 1},
    {PUSH, "git|-pP|push", 1, 1},
    {PUSH, "git|-Cdir|push", 1, 1},
    {PUSH, "git|-c|a.b=c|push", 1, 0}, /* unsafe */
    {PUSH, "git|-ca.b=c|push", 1, 0},
    {PUSH, "git|-c|a.b=c|status", 0, 0},
    {PUSH, "git|-c|alias.x=push|x", 1, 0},
    {PUSH, "git|-c|ALIAS.x=push|x", 1, 0},
    {PUSH, "git|--config-env=alias.x=V|x", 1, 0},
    {PUSH, "git|-c|include.path=x|status", 1, 0},
    {PUSH, "git|-C|alias.x|status", 0, 0},
    {PUSH, "git|--unknown|push", 1, 0},
    {PUSH, "git|--unknown|x|push", 1, 0}, /* x may be its argument */
    {PUSH, "git|--unknown=1|x|push", 0, 0},
    {PUSH, "git|--unknown|x|y|push", 0, 0},
    {PUSH, "git|-pX|x|push", 1, 0},
    {PUSH, "git|--|push", 1, 0},
    {REMOTE_ADD, "git|remote|add|x", 1, 1},
    {REMOTE_ADD, "git|remote|-v|add", 1, 0},
    {REMOTE_ADD, "git|remote|-x|remote|add", 1, 0},
    {REMOTE_ADD, "git|-x|remote|remote|add", 1, 0}, /* either "remote" may be the sub-command */
    {REMOTE_ADD, "git|remote|show|add", 0, 0},
    {REMOTE_ADD, "git|remote", 0, 0},
    {GET, "kubectl|get|-n|x|pods", 1, 1},
    {GET, "kubectl|-n|pods|get|svc", 0, 0},
    {GET, "kubectl|get|-o|x|pods", 1, 0},
    {CARGO, "cargo|build", 1, 1},
    {CARGO, "cargo|--offline|build", 1, 0},
    /* flags */
    {RM_RF, "rm|-rf|x", 1, 1},
    {RM_RF, "rm|-fr|x", 1, 1},
    {RM_RF, "rm|-r|-f|x", 1, 1},
    {RM_RF, "rm|x|-f|-R", 1, 1},
    {RM_RF, "rm|--recursive|--force|x", 1, 1},
    {RM_RF, "rm|--recurs|--f|x", 1, 0}, /* abbreviations */
    {RM_RF, "rm|--r|-f|x", 1, 0},
    {RM_RF, "rm|-rvf|x", 1, 0}, /* v may take an argument, as far as anybody knows */
    {RM_RF, "rm|-r|x", 0, 0},
    {RM_RF, "rm|-f|x", 0, 0},
    {RM_RF, "rm|-r|--|-f", 0, 0},
    {RM_RF, "rm|--|-rf", 0, 0},
    {RM_RF, "rm|-r|--force=yes|x", 1, 1},
    {RM_RF, "rm|-r|--forced|x", 0, 0},
    {RM_RF, "rm|-r|-force|x", 1, 0},
    {RM_RF, "rm|r|f", 0, 0},
    {RM_RF, "rm|-|-r", 0, 0},
    {FIND, "find|.|-delete", 1, 1},
    {FIND, "find|.|--delete", 1, 0},
    {FIND, "find|.|-d", 0, 0},
    {PUSH_FORCE, "git|push|-f", 1, 1},
    {PUSH_FORCE, "git|push|origin|--force", 1, 1},
    {PUSH_FORCE, "git|-C|--force|push", 0, 0}, /* a directory */
    {PUSH_FORCE, "git|push|-C|--force", 1, 1}, /* not a global option any more */
    {PUSH_FORCE, "git|-c|alias.x=push|x|-f", 1, 0},
    {PUSH_FORCE, "git|push", 0, 0},
    {BRANCH, "git|branch|x", 1, 1},
    {BRANCH, "git|branch|-D|x", 0, 0},
    {BRANCH, "git|branch|--delete|x", 0, 0},
    {BRANCH, "git|branch|--del|x", 1, 0}, /* not certain: counts against both */
    {BRANCH, "git|branch|-qD|x", 1, 0},
    /* arguments */
    {RM_ABSOLUTE, "rm|-r|/etc", 1, 1},
    {RM_ABSOLUTE, "rm|-r|a|/etc|b", 1, 0},
    {RM_ABSOLUTE, "rm|-r|a", 0, 0},
    {RM_ABSOLUTE, "rm|-r|~", 1, 1},
    {RM_ABSOLUTE, "rm|-r|--|/etc", 1, 1},
    {RM_ABSOLUTE, "rm|-r|--target=/etc", 1, 0},
    {RM_ABSOLUTE, "rm|-r|-t/etc", 1, 0},
    {RM_BUILD, "rm|build/x", 1, 1},
    {RM_BUILD, "rm|-f|build/x|build/y", 1, 1},
    {RM_BUILD, "rm|build/x|src", 1, 0},
    {RM_BUILD, "rm|build/../src", 1, 0},
    {RM_BUILD, "rm|../old", 1, 1},
    {RM_BUILD, "rm|build/..", 1, 0},
    {RM_BUILD, "rm|build/..x", 1, 1},
    {RM_BUILD, "rm", 0, 0}, /* nothing of what it speaks of */
    {RM_BUILD, "rm|-f", 0, 0},
    {RM_BUILD, "rm|build/x|--output=/etc/x", 1, 0},
    {RM_BUILD, "rm|build/x|-o/etc/x", 1, 0},
    {RM_BUILD, "rm|build/x|--|--x", 1, 0},
};

static struct br_table *load(const char *command, const char *effect, struct br_err *err)
{
    char json[2048];
    struct br_table *t = NULL;
    int n = snprintf(json, sizeof(json),
                     "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"}],\"rules\":["
                     "{\"id\":\"r\",\"source\":0,\"action\":\"process.exec\",\"match\":\"program\","
                     "\"pattern\":\"shown\",\"effect\":\"%s\",\"command\":%s}],\"fallbacks\":[],"
                     "\"predicates\":false," PROGRAMS "}",
                     effect, command);
    (void)br_table_load(json, (size_t)n, &t, err);
    return t;
}

static bool matches(const char *command, const char *effect, const char *text)
{
    char copy[256], *save = copy;
    const char *words[32];
    struct br_request q = {.action = "process.exec", .words = words};
    struct br_decision d;
    struct br_err err = {.code = BR_OK};
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *w = strsep(&save, "|"); w; w = strsep(&save, "|"))
        words[q.nwords++] = w;
    struct br_table *t = load(command, effect, &err);
    if (!t)
        fail_msg("%s: %s", command, err.text);
    br_table_decide(t, &q, &d);
    br_table_free(&t);
    return d.nvotes == 1;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        const char *c = cases[i].command, *w = cases[i].words;
        if (matches(c, "deny", w) != cases[i].deny || matches(c, "ask", w) != cases[i].deny)
            fail_msg("%s: a deny %s '%s'", c, cases[i].deny ? "misses" : "matches", w);
        if (matches(c, "allow", w) != cases[i].allow)
            fail_msg("%s: an allow %s '%s'", c, cases[i].allow ? "misses" : "matches", w);
    }
}

/* Nothing but a command of words has a program. */
static void test_other_requests(void **state)
{
    (void)state;
    static const struct br_request asked[] = {
        {.action = "process.exec", .subject = "git push", .subject_len = 8},
        {.action = "process.exec"},
    };
    struct br_err err;
    struct br_decision d;
    struct br_table *t = load(PUSH, "allow", &err);
    assert_non_null(t);
    for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
        br_table_decide(t, &asked[i], &d);
        assert_int_equal(d.nvotes, 0);
    }
    br_table_free(&t);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *command, *says;
    } bad[] = {
        {"{}", "'rules[0].command.program' is missing"},
        {"{\"program\":\"\"}", "'rules[0].command.program' must be a text of 1 to 255"},
        {"{\"program\":\"a/\"}", "'rules[0].command.program' must be a name"},
        {"{\"program\":\"-a\"}", "'rules[0].command.program' must be a name"},
        {"{\"program\":\"./a*\"}", "'rules[0].command.program' must be a name"},
        {"{\"program\":\"a\\n\"}", "without control"},
        {"{\"program\":\"a\",\"flag\":[]}", "is not a known key; the nearest one is 'flags'"},
        {"{\"program\":\"a\",\"words\":[]}", "'rules[0].command.words' must be a list of 1 to 8"},
        {"{\"program\":\"a\",\"words\":[\"x\"]}", "'rules[0].command.words[0]' must be a list"},
        {"{\"program\":\"a\",\"words\":[[]]}", "'rules[0].command.words[0]' must be a list"},
        {"{\"program\":\"a\",\"words\":[[\"\"]]}", "'rules[0].command.words[0]' must be a list"},
        {"{\"program\":\"a\",\"words\":[[\"1\"],[\"2\"],[\"3\"],[\"4\"],[\"5\"],[\"6\"],[\"7\"],"
         "[\"8\"],[\"9\"]]}",
         "'rules[0].command.words' must be a list of 1 to 8"},
        {"{\"program\":\"a\",\"flags\":[]}", "'rules[0].command.flags' must be a list"},
        {"{\"program\":\"a\",\"flags\":[[\"r\"]]}", "'rules[0].command.flags[0]' must be a list"},
        {"{\"program\":\"a\",\"flags\":[[\"--\"]]}", "'rules[0].command.flags[0]' must be a list"},
        {"{\"program\":\"a\",\"flags\":[[\"-\"]]}", "'rules[0].command.flags[0]' must be a list"},
        {"{\"program\":\"a\",\"flags\":[[\"--a=b\"]]}", "'rules[0].command.flags[0]' must be"},
        {"{\"program\":\"a\",\"without\":[\"x\"]}", "'rules[0].command.without' must be a list"},
        {"{\"program\":\"a\",\"arguments\":[]}", "'rules[0].command.arguments' must be a list"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct br_err err = {.code = BR_OK};
        struct br_table *t = load(bad[i].command, "deny", &err);
        if (t || !strstr(err.text, bad[i].says))
            fail_msg("%s: '%s' does not say '%s'", bad[i].command, err.text, bad[i].says);
    }
}

static const struct {
    const char *json, *says;
} bad_tables[] = {
    {"[{\"name\":\"a/b\"}]", "'programs[0].name' must be the name of a program"},
    {"[{\"name\":\"a\"},{\"name\":\"a\"}]", "'programs[1].name' must be a name that no other"},
    {"[{\"name\":\"a\",\"values\":[\"C\"]}]", "'programs[0].values' must be a list"},
    {"[{\"name\":\"a\",\"options\":[]}]", "'programs[0].options' must be a list"},
    {"[{\"name\":\"a\",\"rewrites\":[\"\"]}]", "'programs[0].rewrites' must be a list"},
    {"[{\"name\":\"a\",\"anywhere\":1}]", "'programs[0].anywhere' must be true or false"},
    {"[{\"name\":\"a\",\"unsave\":[]}]", "the nearest one is 'unsafe'"},
};

static void test_bad_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad_tables); i++) {
        char json[512];
        struct br_err err = {.code = BR_OK};
        struct br_table *t;
        int n = snprintf(json, sizeof(json),
                         "{\"v\":2,\"sources\":[],\"rules\":[],\"fallbacks\":[],\"predicates\":"
                         "false,\"programs\":%s}",
                         bad_tables[i].json);
        assert_int_equal(br_table_load(json, (size_t)n, &t, &err), -BR_E_INVALID_TABLE);
        if (!strstr(err.text, bad_tables[i].says))
            fail_msg("%s: '%s' does not say '%s'", bad_tables[i].json, err.text,
                     bad_tables[i].says);
    }
}

static unsigned roll(unsigned n)
{
    static uint64_t seed = 0x9e3779b97f4a7c15ull;
    return br_test_roll(&seed, n);
}

static const char *const indexed[] = {
    PUSH,
    RM_RF,
    RM_BUILD,
    REMOTE_ADD,
    BRANCH,
    GET,
    PUSH_FORCE,
    MKFS,
    GRADLEW,
    CARGO,
    "{\"program\":\"git\"}",
    "{\"program\":\"g*\",\"words\":[[\"push\"]]}",
    "{\"program\":\"*t\",\"flags\":[[\"-f\"]]}",
    "{\"program\":\"git\",\"words\":[[\"remote\"],[\"p*\"]]}",
    "{\"program\":\"git\",\"words\":[[\"remote\"],[\"remote\"],[\"add\"]]}",
    "{\"program\":\"git\",\"words\":[[\"push\"],[\"d\"]]}",
    "{\"program\":\"kubectl\",\"words\":[[\"get\"]]}",
};

static struct br_table *indexed_table(void)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_TABLE_MAX);
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    br_buf_printf(&b, "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"}],\"rules\":[");
    for (unsigned i = 0; i < 3 * BR_ARRAY_LEN(indexed); i++)
        br_buf_printf(&b,
                      "%s{\"id\":\"r%u\",\"source\":0,\"action\":\"process.exec\",\"match\":"
                      "\"program\",\"pattern\":\"shown\",\"effect\":\"%s\",\"command\":%s}",
                      i ? "," : "", i,
                      i % 3 == 0   ? "deny"
                      : i % 3 == 1 ? "ask"
                                   : "allow",
                      indexed[i / 3]);
    br_buf_printf(&b, "],\"fallbacks\":[],\"predicates\":false," PROGRAMS "}");
    if (br_table_load(b.data, b.len, &t, &err) < 0)
        fail_msg("%s", err.text);
    return t;
}

static void note(const struct br_explained *e, void *ctx)
{
    ((bool *)ctx)[e->index] = e->why == BR_WHY_MATCHED;
}

/* The index finds every rule that matches when it is asked by itself. */
static void test_index(void **state)
{
    (void)state;
    static char long_word[1200];
    static const char *const first[] = {"git", "git",  "/bin/git", "kubectl",
                                        "rm",  "mkfs", "gt",       "cargo"};
    static const char *const rest[] = {"push", "remote", "add",    "-C",  "d",       "--unknown",
                                       "-p",   "--",     "-c",     "a.b", "get",     "alias.x=y",
                                       "-n",   "pods",   "-f",     "-rf", "build",   "--git-dir=x",
                                       "-x=1", "",       "branch", "-D",  "build/x", long_word};
    struct br_table *t = indexed_table();
    unsigned found = 0;
    memset(long_word, 'x', sizeof(long_word) - 1);
    for (unsigned round = 0; round < 20000; round++) {
        const char *words[7] = {first[roll(BR_ARRAY_LEN(first))]};
        bool matched[3 * BR_ARRAY_LEN(indexed)];
        struct br_decision d;
        size_t n = 1 + roll(6);
        for (size_t i = 1; i < n; i++)
            words[i] = rest[roll(BR_ARRAY_LEN(rest))];
        struct br_request q = {.action = "process.exec", .words = words, .nwords = n};
        assert_int_equal(br_table_explain(t, &q, &d, note, matched), 0);
        const char *slash = strrchr(words[0], '/'), *name = slash ? slash + 1 : words[0];
        for (uint32_t i = 0; i < t->nrules; i++) {
            const struct br_rule *r = &t->rules[i];
            bool yes = br_pattern_match(&r->pattern, name, strlen(name)) &&
                       br_command_match(r->command, r->effect == BR_EFFECT_ALLOW, words, n);
            if (yes != matched[r->index])
                fail_msg("rule %u (%s) and '%s %s %s %s ...'", r->index, indexed[r->index / 3],
                         words[0], n > 1 ? words[1] : "", n > 2 ? words[2] : "",
                         n > 3 ? words[3] : "");
            found += yes;
        }
    }
    print_message("%u rules matched\n", found);
    assert_true(found > 10000);
    br_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),   cmocka_unit_test(test_other_requests),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_bad_programs),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
