/*
 * Decisions: every example of the manifest's contract, precedence, refusal of what cannot be
 * evaluated, and two properties on random tables: a deny or an ask added to profile or operator
 * never loosens an answer, and the order of rules never changes one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/test_random.h"
#include "policy/policy_priv.h"

#define SOURCES                                                                                    \
    "\"sources\":[{\"kind\":\"profile\",\"name\":\"p\"},{\"kind\":\"operator\",\"name\":\"o\"},"   \
    "{\"kind\":\"manifest\",\"name\":\"m\"}]"

/* One rule: "source action match pattern effect"; the id is its text. Fallbacks: "fallback action
 * effect". Fields are separated by '|'. */
static void put_row(struct br_buf *rules, struct br_buf *fallbacks, const char *row)
{
    char copy[256], *f[5] = {NULL};
    unsigned n = 0;
    snprintf(copy, sizeof(copy), "%s", row);
    for (char *p = copy; p && n < 5; n++) {
        f[n] = p;
        p = strchr(p, '|');
        if (p)
            *p++ = 0;
    }
    if (strcmp(f[0], "fallback") == 0) {
        br_buf_printf(fallbacks,
                      "%s{\"id\":\"%s\",\"source\":2,\"action\":\"%s\",\"effect\":\"%s\"}",
                      fallbacks->len ? "," : "", row, f[1], f[2]);
        return;
    }
    int source = strcmp(f[0], "profile") == 0 ? 0 : strcmp(f[0], "operator") == 0 ? 1 : 2;
    br_buf_printf(rules,
                  "%s{\"id\":\"%s\",\"source\":%d,\"action\":\"%s\",\"match\":\"%s\",\"pattern\":"
                  "\"%s\",\"effect\":\"%s\",\"reason\":\"because\"}",
                  rules->len ? "," : "", row, source, f[1], f[2], f[3], f[4]);
}

static struct br_table *table(const char *const *rows, size_t n)
{
    BR_CLEANUP_BUF struct br_buf rules = BR_BUF_INIT(BR_TABLE_MAX);
    BR_CLEANUP_BUF struct br_buf fallbacks = BR_BUF_INIT(BR_TABLE_MAX);
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(BR_TABLE_MAX);
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    for (size_t i = 0; i < n; i++)
        put_row(&rules, &fallbacks, rows[i]);
    br_buf_printf(&json,
                  "{\"v\":2," SOURCES ",\"rules\":[%s],\"fallbacks\":[%s],\"predicates\":false}",
                  br_buf_cstr(&rules), br_buf_cstr(&fallbacks));
    if (br_table_load(json.data, json.len, &t, &err) < 0)
        fail_msg("%s", err.text);
    return t;
}

/* A subject is "=text", "-" for none, or "$word word ..." for a command. */
static struct br_request request(const char *action, const char *subject, char *copy,
                                 const char **words)
{
    struct br_request q = {.action = action};
    if (subject[0] == '=') {
        q.subject = subject + 1;
        q.subject_len = strlen(q.subject);
    } else if (subject[0] == '$') {
        strcpy(copy, subject + 1);
        q.words = words;
        for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
            words[q.nwords++] = w;
    }
    return q;
}

static const struct {
    const char *rows[4];
    const char *action, *subject;
    enum br_effect effect;
    const char *rule_id;
} cases[] = {
    /* the examples of the contract, and around them */
    {{"manifest|process.exec|command|rm *|deny", "manifest|process.exec|any|*|allow"},
     "process.exec",
     "$rm -rf /etc",
     BR_EFFECT_DENY,
     "manifest|process.exec|command|rm *|deny"},
    {{"manifest|process.exec|command|rm *|deny", "manifest|process.exec|command|*|allow"},
     "process.exec",
     "$rm -rf x",
     BR_EFFECT_DENY,
     "manifest|process.exec|command|rm *|deny"},
    {{"manifest|process.exec|command|rm *|deny", "manifest|process.exec|command|*|allow"},
     "process.exec",
     "$ls",
     BR_EFFECT_ALLOW,
     "manifest|process.exec|command|*|allow"},
    {{"manifest|process.exec|command|rm *|deny", "manifest|process.exec|command|*|allow"},
     "process.exec",
     "$rm",
     BR_EFFECT_ALLOW,
     "manifest|process.exec|command|*|allow"},
    {{"manifest|process.exec|command|git diff*|allow", "manifest|process.exec|command|*|deny"},
     "process.exec",
     "$git diff src/a.ts",
     BR_EFFECT_ALLOW,
     "manifest|process.exec|command|git diff*|allow"},
    {{"manifest|process.exec|command|git diff*|allow", "manifest|process.exec|command|*|deny"},
     "process.exec",
     "$curl x",
     BR_EFFECT_DENY,
     "manifest|process.exec|command|*|deny"},
    {{"manifest|process.exec|command|git diff*|allow", "manifest|process.exec|command|*|deny"},
     "process.exec",
     "$sh",
     BR_EFFECT_DENY,
     "manifest|process.exec|command|*|deny"},
    /* no rule for an action: ask */
    {{NULL}, "git.push", "-", BR_EFFECT_ASK, "default"},
    {{"manifest|fs.read|any||allow"}, "git.push", "=x", BR_EFFECT_ASK, "default"},
    {{"manifest|git.push|any||deny"},
     "git.push",
     "-",
     BR_EFFECT_DENY,
     "manifest|git.push|any||deny"},
    /* a pattern map that matches nothing */
    {{"manifest|fs.write|path|src/**|allow", "fallback|fs.write|deny"},
     "fs.write",
     "=docs/a",
     BR_EFFECT_DENY,
     "fallback|fs.write|deny"},
    {{"manifest|fs.write|path|src/**|allow", "fallback|fs.write|deny"},
     "fs.write",
     "=src/a/b",
     BR_EFFECT_ALLOW,
     "manifest|fs.write|path|src/**|allow"},
    {{"manifest|fs.write|path|src/**|allow", "fallback|fs.write|deny"},
     "fs.write",
     "-",
     BR_EFFECT_ASK,
     "fallback|fs.write|deny"},
    {{"manifest|fs.write|path|src/**|allow", "fallback|fs.write|deny"},
     "fs.write",
     "=",
     BR_EFFECT_DENY,
     "empty-subject"},
    {{"manifest|x|text|a|allow", "fallback|x|ask"}, "x", "=b", BR_EFFECT_ASK, "fallback|x|ask"},
    {{"manifest|x|text|a|allow", "fallback|*|deny"}, "y", "=b", BR_EFFECT_DENY, "fallback|*|deny"},
    {{"fallback|x|ask", "fallback|*|deny"}, "x", "=b", BR_EFFECT_DENY, "fallback|*|deny"},
    {{"manifest|x|any||allow"}, "x", "=", BR_EFFECT_DENY, "empty-subject"},
    /* '*' is the default of a map, for every subject and for none */
    {{"manifest|fs.write|path|src/**|allow", "manifest|fs.write|path|*|deny"},
     "fs.write",
     "=a/b/c",
     BR_EFFECT_DENY,
     "manifest|fs.write|path|*|deny"},
    {{"manifest|fs.write|path|src/**|deny", "manifest|fs.write|path|*|allow"},
     "fs.write",
     "-",
     BR_EFFECT_ALLOW,
     "manifest|fs.write|path|*|allow"},
    /* outside a manifest it is what the matcher says */
    {{"operator|fs.write|path|*|allow"}, "fs.write", "=a/b", BR_EFFECT_ASK, "default"},
    /* among matching patterns the longest wins, on a tie the strictest */
    {{"manifest|fs.read|path|src/**|deny", "manifest|fs.read|path|src/ok/**|allow"},
     "fs.read",
     "=src/ok/a",
     BR_EFFECT_ALLOW,
     "manifest|fs.read|path|src/ok/**|allow"},
    {{"manifest|fs.read|path|src/**|allow", "manifest|fs.read|path|src/no/**|deny"},
     "fs.read",
     "=src/no/a",
     BR_EFFECT_DENY,
     "manifest|fs.read|path|src/no/**|deny"},
    {{"manifest|fs.read|path|a*|allow", "manifest|fs.read|path|*b|ask"},
     "fs.read",
     "=ab",
     BR_EFFECT_ASK,
     "manifest|fs.read|path|*b|ask"},
    {{"manifest|fs.read|path|a?|ask", "manifest|fs.read|path|?b|deny",
      "manifest|fs.read|path|??|allow"},
     "fs.read",
     "=ab",
     BR_EFFECT_DENY,
     "manifest|fs.read|path|?b|deny"},
    /* elsewhere the strictest */
    {{"operator|fs.read|path|src/**|deny", "operator|fs.read|path|src/ok/**|allow"},
     "fs.read",
     "=src/ok/a",
     BR_EFFECT_DENY,
     "operator|fs.read|path|src/**|deny"},
    {{"profile|fs.read|any||allow", "profile|*|any||ask"},
     "fs.read",
     "=a",
     BR_EFFECT_ASK,
     "profile|*|any||ask"},
    /* each source only tightens */
    {{"profile|fs.write|any||deny", "operator|fs.write|any||allow", "manifest|fs.write|any||allow"},
     "fs.write",
     "=a",
     BR_EFFECT_DENY,
     "profile|fs.write|any||deny"},
    {{"profile|fs.write|any||allow", "operator|fs.write|any||ask", "manifest|fs.write|any||allow"},
     "fs.write",
     "=a",
     BR_EFFECT_ASK,
     "operator|fs.write|any||ask"},
    {{"profile|fs.write|any||allow", "operator|fs.write|any||ask", "manifest|fs.write|any||deny"},
     "fs.write",
     "=a",
     BR_EFFECT_DENY,
     "manifest|fs.write|any||deny"},
    {{"profile|fs.write|any||ask", "operator|fs.write|any||ask"},
     "fs.write",
     "=a",
     BR_EFFECT_ASK,
     "profile|fs.write|any||ask"},
    /* any action */
    {{"operator|*|text|*secret*|deny"},
     "x.y",
     "=my secret",
     BR_EFFECT_DENY,
     "operator|*|text|*secret*|deny"},
    {{"operator|*|command|* --force*|deny"},
     "process.exec",
     "$git push --force",
     BR_EFFECT_DENY,
     "operator|*|command|* --force*|deny"},
    {{"operator|*|host|*.bad.example|deny"},
     "network",
     "=A.bad.example:443",
     BR_EFFECT_DENY,
     "operator|*|host|*.bad.example|deny"},
    {{"operator|*|host|*|allow"}, "fs.read", "=a/b", BR_EFFECT_ASK, "default"},
    {{"operator|*|path|**/.env|deny"},
     "fs.read",
     "=a/.env",
     BR_EFFECT_DENY,
     "operator|*|path|**/.env|deny"},
    /* hosts */
    {{"operator|network|host|api.example:443|allow"},
     "network",
     "=api.example:443",
     BR_EFFECT_ALLOW,
     "operator|network|host|api.example:443|allow"},
    {{"operator|network|host|api.example:443|allow"},
     "network",
     "=api.example:80",
     BR_EFFECT_ASK,
     "default"},
    {{"operator|network|host|*|allow"},
     "network",
     "=evil.example.",
     BR_EFFECT_DENY,
     "invalid-subject"},
    /* a string that could not be taken apart matches no command pattern */
    {{"operator|process.exec|command|*|allow"}, "process.exec", "=ls", BR_EFFECT_ASK, "default"},
    {{"manifest|process.exec|command|ls|allow", "fallback|process.exec|deny"},
     "process.exec",
     "=ls",
     BR_EFFECT_DENY,
     "fallback|process.exec|deny"},
    /* paths in any form but the one */
    {{"operator|fs.read|any||allow"}, "fs.read", "=../x", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=a/../x", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=./x", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=a/.", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|path|**|allow"},
     "fs.read",
     "=.",
     BR_EFFECT_ALLOW,
     "operator|fs.read|path|**|allow"},
    {{"operator|fs.read|path|.|allow"},
     "fs.read",
     "=.",
     BR_EFFECT_ALLOW,
     "operator|fs.read|path|.|allow"},
    {{"operator|fs.read|path|src/**|allow"}, "fs.read", "=.", BR_EFFECT_ASK, "default"},
    {{"operator|fs.read|path|**|allow"}, "fs.read", "=./.", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=..", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=/etc/passwd", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=a//b", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"}, "fs.read", "=a/", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|fs.read|any||allow"},
     "fs.read",
     "=..a/.b./...",
     BR_EFFECT_ALLOW,
     "operator|fs.read|any||allow"},
    {{"operator|lint|path|src/**|allow"}, "lint", "=src/../x", BR_EFFECT_DENY, "invalid-subject"},
    {{"operator|lint|text|src/*|allow"},
     "lint",
     "=src/../x",
     BR_EFFECT_ALLOW,
     "operator|lint|text|src/*|allow"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++) {
        char copy[256];
        const char *words[16];
        struct br_decision d;
        size_t n = 0;
        while (n < 4 && cases[i].rows[n])
            n++;
        struct br_table *t = table(cases[i].rows, n);
        struct br_request q = request(cases[i].action, cases[i].subject, copy, words);
        br_table_decide(t, &q, &d);
        if (d.effect != cases[i].effect || strcmp(d.rule_id, cases[i].rule_id) != 0)
            fail_msg("case %zu (%s %s): %s by '%s'", i, cases[i].action, cases[i].subject,
                     br_effect_name(d.effect), d.rule_id);
        br_table_free(&t);
        assert_null(t);
    }
}

static void test_votes(void **state)
{
    (void)state;
    const char *const rows[] = {"profile|fs.write|any||ask", "operator|fs.read|any||deny",
                                "manifest|fs.write|path|a|allow"};
    struct br_table *t = table(rows, 3);
    struct br_request q = {.action = "fs.write", .subject = "a", .subject_len = 1};
    struct br_decision d;
    br_table_decide(t, &q, &d);
    assert_int_equal(d.nvotes, 2);
    assert_string_equal(d.votes[0].source, "profile");
    assert_int_equal(d.votes[0].effect, BR_EFFECT_ASK);
    assert_string_equal(d.votes[1].source, "manifest");
    assert_string_equal(d.votes[1].rule_id, rows[2]);
    assert_string_equal(d.votes[1].reason, "because");
    assert_string_equal(d.source, "profile");
    q.subject = "b";
    br_table_decide(t, &q, &d);
    assert_int_equal(d.nvotes, 1);
    q.action = "other";
    br_table_decide(t, &q, &d);
    assert_int_equal(d.nvotes, 0);
    assert_string_equal(d.source, "kernel");
    br_table_free(&t);
}

static void check_denied(const struct br_table *t, const struct br_request *q, const char *id)
{
    struct br_decision d;
    br_table_decide(t, q, &d);
    assert_int_equal(d.effect, BR_EFFECT_DENY);
    assert_string_equal(d.rule_id, id);
    assert_string_equal(d.source, "kernel");
    assert_int_equal(d.nvotes, 0);
}

/* Each refusal next to the nearest request that is not refused. */
static void test_not_evaluable(void **state)
{
    (void)state;
    const char *const rows[] = {"operator|*|any||allow"};
    struct br_table *t = table(rows, 1);
    struct br_decision d;
    char action[BR_ACTION_MAX + 2];
    memset(action, 'a', sizeof(action));
    action[BR_ACTION_MAX] = 0;
    struct br_request q = {.action = action};
    br_table_decide(t, &q, &d);
    assert_int_equal(d.effect, BR_EFFECT_ALLOW);
    action[BR_ACTION_MAX] = 'a';
    action[BR_ACTION_MAX + 1] = 0;
    check_denied(t, &q, BR_RULE_INVALID_REQUEST);
    q.action = NULL;
    check_denied(t, &q, BR_RULE_INVALID_REQUEST);
    q.action = "";
    check_denied(t, &q, BR_RULE_INVALID_REQUEST);
    check_denied(NULL, &q, BR_RULE_INVALID_REQUEST);
    check_denied(t, NULL, BR_RULE_INVALID_REQUEST);

    BR_CLEANUP_FREE char *s = malloc(BR_SUBJECT_MAX + 2);
    memset(s, 'a', BR_SUBJECT_MAX + 1);
    s[BR_SUBJECT_MAX + 1] = 0;
    q = (struct br_request){.action = "x", .subject = s, .subject_len = BR_SUBJECT_MAX};
    br_table_decide(t, &q, &d);
    assert_int_equal(d.effect, BR_EFFECT_ALLOW);
    q.subject_len++;
    check_denied(t, &q, BR_RULE_TOO_LONG);
    q = (struct br_request){.action = "x", .subject = "a\0b", .subject_len = 3};
    check_denied(t, &q, BR_RULE_INVALID_SUBJECT);

    const char *words[] = {"ls", s, NULL};
    q = (struct br_request){.action = "process.exec", .words = words, .nwords = 2};
    check_denied(t, &q, BR_RULE_TOO_LONG);
    s[BR_SUBJECT_MAX - 3] = 0; /* "ls", a boundary, and the rest */
    br_table_decide(t, &q, &d);
    assert_int_equal(d.effect, BR_EFFECT_ALLOW);
    s[BR_SUBJECT_MAX - 3] = 'a';
    s[BR_SUBJECT_MAX - 2] = 0;
    check_denied(t, &q, BR_RULE_TOO_LONG);
    q.nwords = 3;
    check_denied(t, &q, BR_RULE_INVALID_REQUEST);
    q.nwords = 0;
    check_denied(t, &q, BR_RULE_EMPTY);
    words[0] = "";
    q.nwords = 1;
    check_denied(t, &q, BR_RULE_EMPTY);
    br_table_free(&t);
}

static void test_long_command(void **state)
{
    (void)state;
    const char *const rows[] = {"operator|process.exec|command|echo *z|deny"};
    struct br_table *t = table(rows, 1);
    struct br_decision d;
    BR_CLEANUP_FREE char *s = malloc(BR_SUBJECT_MAX);
    memset(s, 'a', BR_SUBJECT_MAX);
    const char *words[] = {"echo", s};
    struct br_request q = {.action = "process.exec", .words = words, .nwords = 2};
    for (size_t n = 1000; n < BR_SUBJECT_MAX - 5; n += n < 1100 ? 1 : 9973) {
        s[n] = 'z';
        s[n + 1] = 0;
        br_table_decide(t, &q, &d);
        assert_int_equal(d.effect, BR_EFFECT_DENY);
        s[n] = 0;
        br_table_decide(t, &q, &d);
        assert_int_equal(d.effect, BR_EFFECT_ASK);
        s[n] = s[n + 1] = 'a';
    }
    br_table_free(&t);
}

static void test_effects(void **state)
{
    (void)state;
    assert_int_equal(br_effect_parse("allow", 5), BR_EFFECT_ALLOW);
    assert_int_equal(br_effect_parse("ask", 3), BR_EFFECT_ASK);
    assert_int_equal(br_effect_parse("deny", 4), BR_EFFECT_DENY);
    assert_int_equal(br_effect_parse("denyx", 5), BR_EFFECT_NONE);
    assert_int_equal(br_effect_parse("Allow", 5), BR_EFFECT_NONE);
    assert_int_equal(br_effect_parse("none", 4), BR_EFFECT_NONE);
    assert_int_equal(br_effect_parse("", 0), BR_EFFECT_NONE);
    assert_int_equal(br_effect_parse(NULL, 0), BR_EFFECT_NONE);
    assert_int_equal(br_effect_strictest(BR_EFFECT_ASK, BR_EFFECT_ALLOW), BR_EFFECT_ASK);
    assert_int_equal(br_effect_strictest(BR_EFFECT_ASK, BR_EFFECT_DENY), BR_EFFECT_DENY);
    assert_int_equal(br_effect_strictest(BR_EFFECT_NONE, BR_EFFECT_ALLOW), BR_EFFECT_ALLOW);
    assert_int_equal(br_effect_strictest(BR_EFFECT_ALLOW, (enum br_effect)77), BR_EFFECT_DENY);
    assert_int_equal(br_effect_strictest((enum br_effect) - 1, BR_EFFECT_ALLOW), BR_EFFECT_DENY);
    assert_string_equal(br_effect_name(BR_EFFECT_NONE), "none");
    assert_string_equal(br_effect_name((enum br_effect)77), "deny");
}

/* ---- properties ---- */

static uint64_t seed = 0x2545f4914f6cdd1dull;
static unsigned roll(unsigned n)
{
    return br_test_roll(&seed, n);
}
#define PICK(list) list[roll(BR_ARRAY_LEN(list))]

static const char *const sources[] = {"profile", "operator", "manifest"};
static const char *const effects[] = {"allow", "ask", "deny"};
static const char *const paths[] = {"a",     "a/b",  "a/**",   "**/b", "*",      "**", "a/*",
                                    "**/*b", "?/b*", "b/**/a", "a?",   "*/*/**", "b"};
static const char *const commands[] = {"a", "a b", "a *", "* b", "*", "a*", "*a*", "? b", "b*"};

enum { ROW = 96, ROWS = 24 };

static void random_row(char row[ROW], const char *source, const char *effect)
{
    switch (roll(4)) {
    case 0:
        snprintf(row, ROW, "%s|%s|any||%s", source, roll(3) ? "fs.read" : "*", effect);
        break;
    case 1:
        snprintf(row, ROW, "%s|process.exec|command|%s|%s", source, PICK(commands), effect);
        break;
    case 2:
        snprintf(row, ROW, "%s|x|text|%s|%s", source, PICK(commands), effect);
        break;
    default:
        snprintf(row, ROW, "%s|%s|path|%s|%s", source, roll(4) ? "fs.read" : "*", PICK(paths),
                 effect);
    }
}

static size_t random_rows(char text[ROWS][ROW], const char *rows[ROWS])
{
    size_t n = roll(ROWS - 6);
    for (size_t i = 0; i < n; i++) {
        random_row(text[i], PICK(sources), PICK(effects));
        rows[i] = text[i];
    }
    static const char *const fallbacks[] = {"fallback|fs.read|deny", "fallback|process.exec|ask",
                                            "fallback|*|deny", "fallback|x|ask"};
    for (size_t i = 0; i < BR_ARRAY_LEN(fallbacks); i++)
        if (roll(2))
            rows[n++] = fallbacks[i];
    return n;
}

static const struct {
    const char *action, *subject;
} asked[] = {
    {"fs.read", "=a"},
    {"fs.read", "=a/b"},
    {"fs.read", "=b/x/a"},
    {"fs.read", "-"},
    {"fs.read", "=ab/b"},
    {"fs.read", "=../a"},
    {"process.exec", "$a"},
    {"process.exec", "$a b"},
    {"process.exec", "$b a b"},
    {"process.exec", "=a"},
    {"x", "=a b"},
    {"x", "-"},
    {"other", "=a/b"},
    {"other", "-"},
    {"other", "=a//b"},
};

static void decide_all(const struct br_table *t, struct br_decision *d)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
        char copy[64];
        const char *words[8];
        struct br_request q = request(asked[i].action, asked[i].subject, copy, words);
        br_table_decide(t, &q, &d[i]);
        assert_true(d[i].effect >= BR_EFFECT_ALLOW && d[i].effect <= BR_EFFECT_DENY);
    }
}

static void test_adding_never_loosens(void **state)
{
    (void)state;
    unsigned tightened = 0;
    for (unsigned round = 0; round < 3000; round++) {
        char text[ROWS][ROW];
        const char *rows[ROWS];
        struct br_decision before[BR_ARRAY_LEN(asked)], after[BR_ARRAY_LEN(asked)];
        size_t n = random_rows(text, rows);
        struct br_table *t = table(rows, n);
        decide_all(t, before);
        random_row(text[n], sources[roll(2)], effects[1 + roll(2)]);
        rows[n] = text[n];
        struct br_table *u = table(rows, n + 1);
        decide_all(u, after);
        for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
            /* nobody's opinion is ask; an ask in its place is no change */
            if (after[i].effect < before[i].effect)
                fail_msg("adding '%s' turned %s into %s", rows[n], br_effect_name(before[i].effect),
                         br_effect_name(after[i].effect));
            tightened += after[i].effect > before[i].effect;
        }
        br_table_free(&t);
        br_table_free(&u);
    }
    assert_true(tightened > 500);
}

static void test_order_does_not_matter(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3000; round++) {
        char text[ROWS][ROW];
        const char *rows[ROWS];
        struct br_decision before[BR_ARRAY_LEN(asked)], after[BR_ARRAY_LEN(asked)];
        size_t n = random_rows(text, rows);
        struct br_table *t = table(rows, n);
        decide_all(t, before);
        for (size_t i = n; i > 1; i--) {
            size_t k = roll((unsigned)i);
            const char *swap = rows[i - 1];
            rows[i - 1] = rows[k];
            rows[k] = swap;
        }
        struct br_table *u = table(rows, n);
        decide_all(u, after);
        for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
            assert_int_equal(before[i].effect, after[i].effect);
            assert_string_equal(before[i].rule_id, after[i].rule_id);
            assert_int_equal(before[i].nvotes, after[i].nvotes);
            for (unsigned k = 0; k < before[i].nvotes; k++)
                assert_string_equal(before[i].votes[k].rule_id, after[i].votes[k].rule_id);
        }
        br_table_free(&t);
        br_table_free(&u);
    }
}

/* Rules that differ in nothing but their ids, reasons or matchers. */
static void test_twins(void **state)
{
    (void)state;
    static const char *const twins[] = {
        "{\"id\":\"a\",\"source\":1,\"action\":\"x\",\"match\":\"text\",\"pattern\":\"b\","
        "\"effect\":\"deny\",\"reason\":\"z\"}",
        "{\"id\":\"b\",\"source\":1,\"action\":\"x\",\"match\":\"text\",\"pattern\":\"b\","
        "\"effect\":\"deny\",\"reason\":\"a\"}",
        "{\"id\":\"a\",\"source\":1,\"action\":\"x\",\"match\":\"text\",\"pattern\":\"b\","
        "\"effect\":\"deny\",\"reason\":\"y\"}"};
    static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < BR_ARRAY_LEN(orders); i++) {
        char json[1024];
        int n = snprintf(json, sizeof(json),
                         "{\"v\":2," SOURCES ",\"rules\":[%s,%s,%s],\"fallbacks\":[],"
                         "\"predicates\":false}",
                         twins[orders[i][0]], twins[orders[i][1]], twins[orders[i][2]]);
        struct br_table *t;
        struct br_decision d;
        struct br_request q = {.action = "x", .subject = "b", .subject_len = 1};
        assert_int_equal(br_table_load(json, (size_t)n, &t, NULL), 0);
        br_table_decide(t, &q, &d);
        assert_string_equal(d.rule_id, "a");
        assert_string_equal(d.reason, "y");
        br_table_free(&t);
    }
}

/*
 * The index finds exactly what a scan finds: each source's vote is the first of its rules, in the
 * order of precedence, that matches.
 */
static void test_index_against_scan(void **state)
{
    (void)state;
    static const char *const parts[] = {"a", "b", "/", "c", "ab", "*", "**", "?"};
    for (unsigned round = 0; round < 300; round++) {
        char text[200][ROW];
        const char *rows[200];
        for (unsigned i = 0; i < 200; i++) {
            char pattern[32] = "";
            for (unsigned k = 1 + roll(6); k > 0; k--)
                strcat(pattern, PICK(parts));
            snprintf(text[i], ROW, "%s|x|text|%s|%s", PICK(sources), pattern, PICK(effects));
            rows[i] = text[i];
        }
        struct br_table *t = table(rows, 200);
        for (unsigned k = 0; k < 200; k++) {
            char subject[32] = "";
            for (unsigned m = 1 + roll(7); m > 0; m--)
                strcat(subject, parts[roll(5)]);
            struct br_request q = {
                .action = "x", .subject = subject, .subject_len = strlen(subject)};
            struct br_decision d;
            br_table_decide(t, &q, &d);
            unsigned votes = 0;
            for (unsigned s = 0; s < TABLE_SOURCES; s++) {
                uint32_t r = 0;
                while (r < t->nrules &&
                       !(t->rules[r].source == s &&
                         br_pattern_match(&t->rules[r].pattern, subject, strlen(subject))))
                    r++;
                if (r < t->nrules) {
                    assert_true(votes < d.nvotes);
                    assert_string_equal(d.votes[votes++].rule_id, t->rules[r].id);
                }
            }
            assert_int_equal(votes, d.nvotes);
        }
        br_table_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_votes),
        cmocka_unit_test(test_not_evaluable),
        cmocka_unit_test(test_long_command),
        cmocka_unit_test(test_effects),
        cmocka_unit_test(test_adding_never_loosens),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_index_against_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
