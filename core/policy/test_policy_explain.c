/*
 * Explanations: on random tables each rule is said to match exactly if its matcher alone says so,
 * the votes that were explained make the decision, and br_table_decide() says the same. And what is
 * said of requests that no rule was asked about.
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

static uint64_t seed = 0x9e3779b97f4a7c15ull;
static unsigned roll(unsigned n)
{
    return br_test_roll(&seed, n);
}
#define PICK(list) list[roll(BR_ARRAY_LEN(list))]

enum { RULES = 400 };

/* What was put into the JSON, by index. */
struct written {
    unsigned source;
    const char *action, *match, *pattern, *effect;
};

static const char *const source_names[] = {"profile", "operator", "manifest"};
static const char *const effects[] = {"allow", "ask", "deny"};
static const char *const paths[] = {"a",     "a/b",  "a/**",   "**/b", "*",      "**", "a/*",
                                    "**/*b", "?/b*", "b/**/a", "a?",   "*/*/**", "b"};
static const char *const commands[] = {"a", "a b", "a *", "* b", "*", "a*", "*a*", "? b", "b*"};

static struct written random_rule(void)
{
    struct written w = {.source = roll(3), .action = "fs.read", .match = "any", .pattern = ""};
    w.effect = PICK(effects);
    switch (roll(5)) {
    case 0:
        w.action = roll(3) ? "fs.read" : "*";
        break;
    case 1:
    case 2:
        w.action = "process.exec";
        w.match = "command";
        w.pattern = PICK(commands);
        break;
    case 3:
        w.action = "x";
        w.match = "text";
        w.pattern = PICK(commands);
        break;
    default:
        w.match = "path";
        w.pattern = PICK(paths);
    }
    return w;
}

static struct br_table *load(const struct written *w, unsigned n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_TABLE_MAX);
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    br_buf_printf(&b, "{\"v\":2," SOURCES ",\"rules\":[");
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(&b,
                      "%s{\"id\":\"r%u\",\"source\":%u,\"action\":\"%s\",\"match\":\"%s\","
                      "\"pattern\":\"%s\",\"effect\":\"%s\",\"reason\":\"because\"}",
                      i ? "," : "", i, w[i].source, w[i].action, w[i].match, w[i].pattern,
                      w[i].effect);
    br_buf_printf(&b, "],\"fallbacks\":[{\"id\":\"f\",\"source\":2,\"action\":\"x\","
                      "\"effect\":\"deny\"}],\"predicates\":false}");
    if (br_table_load(b.data, b.len, &t, &err) < 0)
        fail_msg("%s", err.text);
    return t;
}

static const char *const ab[] = {"a", "b"}, *const bab[] = {"b", "a", "b"}, *const a[] = {"a"};
static const struct br_request asked[] = {
    {"fs.read", "a", 1, NULL, 0, NULL},
    {"fs.read", "a/b", 3, NULL, 0, NULL},
    {"fs.read", "b/x/a", 5, NULL, 0, NULL},
    {"fs.read", NULL, 0, NULL, 0, NULL},
    {"fs.read", "ab/b", 4, NULL, 0, NULL},
    {"process.exec", NULL, 0, a, 1, NULL},
    {"process.exec", NULL, 0, ab, 2, NULL},
    {"process.exec", NULL, 0, bab, 3, NULL},
    {"process.exec", "a; b", 4, NULL, 0, NULL},
    {"x", "a b", 3, NULL, 0, NULL},
    {"x", NULL, 0, NULL, 0, NULL},
    {"other", "a/b", 3, NULL, 0, NULL},
    {"other", NULL, 0, NULL, 0, NULL},
};
/* No rule is asked about these. */
static const char *const hollow[] = {""};
static const struct br_request refused[] = {
    {"fs.read", "", 0, NULL, 0, NULL},    {"fs.read", "../a", 4, NULL, 0, NULL},
    {"process.exec", "", 0, ab, 0, NULL}, {"process.exec", NULL, 0, hollow, 1, NULL},
    {"", "a", 1, NULL, 0, NULL},          {"x", "a\0b", 3, NULL, 0, NULL},
};

struct seen {
    unsigned n;
    struct br_explained rule[RULES];
};

static void on_rule(const struct br_explained *e, void *ctx)
{
    struct seen *s = ctx;
    assert_int_equal(e->index, s->n);
    s->rule[s->n++] = *e;
}

static bool matches(const struct written *w, const struct br_request *q)
{
    if (strcmp(w->action, "*") != 0 && strcmp(w->action, q->action) != 0)
        return false;
    if (strcmp(w->match, "any") == 0 || (w->source == 2 && strcmp(w->pattern, "*") == 0))
        return true;
    if (strcmp(w->match, "command") == 0)
        return q->words && br_match_words(w->pattern, q->words, q->nwords);
    if (!q->subject)
        return false;
    return strcmp(w->match, "path") == 0 ? br_match_path(w->pattern, q->subject, q->subject_len)
                                         : br_match_text(w->pattern, q->subject, q->subject_len);
}

/* The vote of each source from what was explained; `w` for the length of patterns. */
static void check_votes(const struct written *w, const struct seen *s, const struct br_decision *d)
{
    enum br_effect strictest = BR_EFFECT_NONE;
    for (unsigned source = 0; source < 3; source++) {
        enum br_effect vote = BR_EFFECT_NONE;
        size_t longest = 0;
        for (unsigned i = 0; i < s->n; i++) {
            const struct br_explained *e = &s->rule[i];
            size_t len = strlen(w[i].pattern);
            if (e->why != BR_WHY_MATCHED || strcmp(e->vote.source, source_names[source]) != 0)
                continue;
            if (source == 2 && vote != BR_EFFECT_NONE && len < longest)
                continue;
            if (source == 2 && len > longest)
                vote = BR_EFFECT_NONE;
            vote = br_effect_strictest(vote, e->vote.effect);
            longest = len;
        }
        for (unsigned k = 0; k < d->nvotes && vote != BR_EFFECT_NONE; k++)
            if (strcmp(d->votes[k].source, source_names[source]) == 0)
                assert_int_equal(d->votes[k].effect, vote);
        strictest = br_effect_strictest(strictest, vote);
    }
    for (unsigned k = 0; k < d->nvotes; k++) /* what no rule says: the fallback */
        if (strcmp(d->votes[k].rule_id, "f") == 0)
            strictest = br_effect_strictest(strictest, d->votes[k].effect);
    assert_int_equal(d->effect, strictest == BR_EFFECT_NONE ? BR_EFFECT_ASK : strictest);
}

static void check_same(const struct br_table *t, const struct br_request *q,
                       const struct br_decision *d)
{
    struct br_decision same;
    br_table_decide(t, q, &same);
    assert_int_equal(same.effect, d->effect);
    assert_string_equal(same.rule_id, d->rule_id);
    assert_string_equal(same.source, d->source);
    assert_int_equal(same.nvotes, d->nvotes);
    for (unsigned i = 0; i < d->nvotes; i++)
        assert_string_equal(same.votes[i].rule_id, d->votes[i].rule_id);
}

static void test_random(void **state)
{
    (void)state;
    static struct seen s;
    unsigned matched = 0, not = 0;
    for (unsigned round = 0; round < 200; round++) {
        struct written w[RULES];
        unsigned n = round % 8 ? roll(RULES / 10) : RULES;
        for (unsigned i = 0; i < n; i++)
            w[i] = random_rule();
        struct br_table *t = load(w, n);
        for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
            struct br_decision d;
            s.n = 0;
            assert_int_equal(br_table_explain(t, &asked[i], &d, on_rule, &s), 0);
            assert_int_equal(s.n, n);
            check_same(t, &asked[i], &d);
            if (strcmp(d.source, BR_KERNEL_SOURCE) == 0 && strcmp(d.rule_id, BR_RULE_DEFAULT) != 0)
                continue; /* refused: a path rule for "*" has made it so */
            for (unsigned k = 0; k < n; k++) {
                bool yes = matches(&w[k], &asked[i]);
                if (yes != (s.rule[k].why == BR_WHY_MATCHED))
                    fail_msg("rule %u (%s %s '%s') of request %zu: %s", k, w[k].action, w[k].match,
                             w[k].pattern, i, br_why_name(s.rule[k].why));
                matched += yes;
                not += !yes;
                bool speaks =
                    strcmp(w[k].action, "*") == 0 || strcmp(w[k].action, asked[i].action) == 0;
                assert_int_equal(s.rule[k].why == BR_WHY_ACTION, !speaks);
            }
            check_votes(w, &s, &d);
        }
        br_table_free(&t);
    }
    assert_true(matched > 5000 && not > 5000);
}

static void test_refused(void **state)
{
    (void)state;
    static struct seen s;
    const struct written w[] = {{1, "*", "any", "", "allow"}, {1, "fs.read", "path", "a", "ask"}};
    struct br_table *t = load(w, 2);
    for (size_t i = 0; i < BR_ARRAY_LEN(refused); i++) {
        struct br_decision d;
        s.n = 0;
        assert_int_equal(br_table_explain(t, &refused[i], &d, on_rule, &s), 0);
        assert_int_equal(d.effect, BR_EFFECT_DENY);
        assert_string_equal(d.source, BR_KERNEL_SOURCE);
        check_same(t, &refused[i], &d);
        assert_int_equal(s.n, 2);
        assert_int_equal(s.rule[0].why, BR_WHY_REFUSED);
        assert_int_equal(s.rule[1].why, BR_WHY_REFUSED);
    }
    br_table_free(&t);
}

static void test_edges(void **state)
{
    (void)state;
    static struct seen s;
    struct br_decision d;
    struct br_table *t = load(NULL, 0);
    s.n = 0;
    assert_int_equal(br_table_explain(t, &asked[0], &d, on_rule, &s), 0);
    assert_int_equal(s.n, 0);
    assert_string_equal(d.rule_id, BR_RULE_DEFAULT);
    assert_int_equal(br_table_explain(t, &asked[0], &d, NULL, NULL), 0);
    assert_int_equal(d.effect, BR_EFFECT_ASK);
    br_table_free(&t);
    assert_int_equal(br_table_explain(NULL, &asked[0], &d, on_rule, &s), 0);
    assert_int_equal(d.effect, BR_EFFECT_DENY);
    assert_string_equal(br_why_name(BR_WHY_NO_SUBJECT), "no-subject");
    assert_string_equal(br_why_name((enum br_why)77), "refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
