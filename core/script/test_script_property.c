/*
 * Properties of policies, through the real compiler and the real evaluator: the order of rules
 * changes nothing, a rule that denies or asks never loosens an answer, and a rule that the compiler
 * says never decides can be left out without changing one.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/test_random.h"
#include "policy/policy.h"
#include "script/script.h"

enum { RULES = 6, ROUNDS = 250 };

static uint64_t seed = 0x2545f4914f6cdd1dull;
static unsigned roll(unsigned n)
{
    return br_test_roll(&seed, n);
}
#define PICK(list) list[roll(BR_ARRAY_LEN(list))]

static const char *const effects[] = {"allow", "ask", "deny"};
static const char *const commands[] = {
    "'git *'",
    "'git push*'",
    "'git log'",
    "'* --force*'",
    "'rm -rf *'",
    "policy.command { 'git' }",
    "policy.command { 'git', 'push' }",
    "policy.command { 'git', { 'push', 'log' } }",
    "policy.command { 'git', 'push', flags = { { '-f', '--force' } } }",
    "policy.command { 'git', 'push', without = '--force' }",
    "policy.command { { 'rm', 'git' } }",
    "policy.command { 'rm', flags = { { '-r', '-R' }, { '-f', '--force' } } }",
    "policy.command { 'rm', arguments = { '/*', 'build/*' } }",
    "{ 'rm *', policy.command { 'git', 'log' } }",
};
static const char *const paths[] = {"'src/**'", "'src/*'", "'**/.env'", "'a'",   "{ 'a', 'src/a' }",
                                    "'**'",     "'s*'",    "'src'",     "'*/a*'"};
static const char *const hosts[] = {"'*.example'", "'a.example'", "'a.example:443'", "'*'", "'a*'"};
static const char *const whens[] = {
    "{ tool = 'fs_*' }",
    "{ model = { 'a', 'b' } }",
    "{ env = 'LD_*' }",
    "{ env = { 'A', 'LD_*' }, tool = '*' }",
    "{ time = { days = 'mon-fri', from = '20:00', to = '06:00', zone = 'utc' } }",
    "{ budget = { calls = { used_over = 5 } } }",
    "{ budget = { calls = { left_under = 9 }, asks = { used_over = 0 } } }",
};

static const char *const git_push[] = {"git", "push", "origin"};
static const char *const git_force[] = {"git", "-C", "d", "push", "--forc"};
static const char *const git_odd[] = {"git", "-c", "alias.x=push", "x", "-f"};
static const char *const git_log[] = {"git", "log"};
static const char *const rm_all[] = {"/bin/rm", "-rf", "--", "/etc"};
static const char *const rm_build[] = {"rm", "-R", "-f", "build/x"};
static const char *const here[] = {"./git", "log"};
#define WORDS(w)                                                                                   \
    {                                                                                              \
        .action = "process.exec", .words = w, .nwords = BR_ARRAY_LEN(w)                            \
    }
#define SUBJECT(a, s)                                                                              \
    {                                                                                              \
        .action = a, .subject = s, .subject_len = sizeof(s) - 1                                    \
    }
static const struct br_request asked[] = {
    WORDS(git_push),
    WORDS(git_force),
    WORDS(git_odd),
    WORDS(git_log),
    WORDS(rm_all),
    WORDS(rm_build),
    WORDS(here),
    SUBJECT("process.exec", "git push; $x"),
    {.action = "fs.read"},
    SUBJECT("fs.read", "src"),
    SUBJECT("fs.read", "src/a"),
    SUBJECT("fs.read", "src/b/.env"),
    SUBJECT("fs.read", "a"),
    SUBJECT("fs.write", "a"),
    SUBJECT("fs.write", "src/a"),
    SUBJECT("network", "a.example:443"),
    SUBJECT("network", "b.example"),
    SUBJECT("other", "x"),
};

static const char *const preload[] = {"LD_PRELOAD=x", "A=1"}, *const only_a[] = {"A=1"};
static const struct br_context contexts[] = {
    {.tool = NULL}, /* nothing is known */
    {.tool = "fs_read",
     .model = "a",
     .has_env = true,
     .has_time = true,
     .unix_time = 1767571200,
     .has_local = true,
     .counters = {{true, 3, 100}, {true, 0, 5}, {true, 0, 9}}},
    {.tool = "process_exec",
     .model = "c",
     .has_env = true,
     .env = preload,
     .nenv = 2,
     .has_time = true,
     .unix_time = 1767571200 + 12 * 3600,
     .counters = {{true, 7, 3}, {true, 0, 5}, {true, 1, 9}}},
    {.tool = "process_exec", .has_env = true, .env = only_a, .nenv = 1},
};
enum { ANSWERS = BR_ARRAY_LEN(asked) * BR_ARRAY_LEN(contexts) };

static void put_rule(char *dst, size_t size, unsigned id, const char *effect, bool conditions)
{
    static const char *const actions[] = {"process.exec", "process.exec", "fs.read",
                                          "fs.write",     "network",      "*"};
    const char *action = PICK(actions), *kind = "command", *match = PICK(commands);
    char when[160] = "";
    if (action[0] == 'f')
        kind = "path", match = PICK(paths);
    if (action[0] == 'n')
        kind = "host", match = PICK(hosts);
    if (conditions && roll(3) == 0)
        snprintf(when, sizeof(when), ", when = %s", PICK(whens));
    if (action[0] == '*' || roll(6) == 0)
        snprintf(dst, size, "policy.%s { id = 'r%u', action = '%s'%s },\n", effect, id, action,
                 when);
    else
        snprintf(dst, size, "policy.%s { id = 'r%u', action = '%s', %s = %s%s },\n", effect, id,
                 action, kind, match, when);
}

/* The table of these rules, or NULL with why they are refused. */
static json_t *compile(const char *const *rules, size_t n, struct br_err *err)
{
    char text[4096];
    size_t at = (size_t)snprintf(text, sizeof(text),
                                 "local policy = require 'bridle.policy'\n"
                                 "return policy.bundle { api = 1, name = 'p', rules = {\n");
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s", rules[i]);
    snprintf(text + at, sizeof(text) - at, "} }");
    struct br_compile_in in = {.profile_path = "",
                               .policy_path = "p.lua",
                               .policy = text,
                               .policy_len = strlen(text),
                               .manifest_path = "",
                               .goal = "g",
                               .goal_len = 1};
    static struct br_compile_out out;
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    json_t *table = NULL;
    err->code = BR_OK;
    br_compile_out_init(&out);
    if (br_compile(s, &in, &out, err) == 0)
        table = json_loadb((char *)out.table.data, out.table.len, 0, NULL);
    else if (err->code != BR_E_INVALID_POLICY || !strstr(err->text, ": ["))
        fail_msg("%s in\n%s", err->text, text);
    br_compile_out_free(&out);
    br_script_free(&s);
    return table;
}

/* Every answer of a table, which is taken. */
static void decide_all(json_t *table, enum br_effect out[ANSWERS])
{
    char *text = json_dumps(table, JSON_COMPACT);
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    json_decref(table);
    if (br_table_load(text, strlen(text), &t, &err) < 0)
        fail_msg("%s", err.text);
    free(text);
    for (size_t i = 0; i < ANSWERS; i++) {
        struct br_request q = asked[i % BR_ARRAY_LEN(asked)];
        struct br_decision d;
        q.context = &contexts[i / BR_ARRAY_LEN(asked)];
        br_table_decide(t, &q, &d);
        out[i] = d.effect;
    }
    br_table_free(&t);
}

static void random_rules(char text[RULES + 1][256], const char *rules[RULES + 1], bool conditions)
{
    for (unsigned i = 0; i < RULES + 1; i++) {
        /* the last one tightens */
        put_rule(text[i], 256, i, i < RULES ? PICK(effects) : effects[1 + roll(2)], conditions);
        rules[i] = text[i];
    }
}

static void shuffle(const char *rules[RULES])
{
    for (unsigned i = RULES - 1; i > 0; i--) {
        unsigned k = roll(i + 1);
        const char *r = rules[i];
        rules[i] = rules[k];
        rules[k] = r;
    }
}

static void fail_rules(const char *what, const char *const *rules, size_t n, size_t answer)
{
    for (size_t i = 0; i < n; i++)
        print_message("%s", rules[i]);
    fail_msg("%s: request %zu, context %zu", what, answer % BR_ARRAY_LEN(asked),
             answer / BR_ARRAY_LEN(asked));
}

static void test_order_and_tightening(void **state)
{
    (void)state;
    unsigned ordered = 0, tightened = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        char text[RULES + 1][256];
        const char *rules[RULES + 1];
        enum br_effect before[ANSWERS], after[ANSWERS];
        struct br_err err;
        unsigned n = 2 + roll(RULES - 1);
        random_rules(text, rules, true);
        rules[n] = rules[RULES]; /* what is added */
        json_t *table = compile(rules, n, &err);
        if (!table)
            continue;
        decide_all(table, before);
        json_t *more = compile(rules, n + 1, &err);
        if (more) {
            decide_all(more, after);
            for (size_t i = 0; i < ANSWERS; i++)
                if (after[i] < before[i])
                    fail_rules("the last rule loosens an answer", rules, n + 1, i);
            tightened++;
        }
        const char *mixed[RULES];
        for (unsigned i = 0; i < RULES; i++)
            mixed[i] = i < n ? rules[i] : "";
        shuffle(mixed);
        table = compile(mixed, RULES, &err);
        assert_non_null(table);
        decide_all(table, after);
        for (size_t i = 0; i < ANSWERS; i++)
            if (after[i] != before[i])
                fail_rules("the order changes an answer", rules, n, i);
        ordered++;
    }
    print_message("%u orders, %u additions\n", ordered, tightened);
    assert_true(ordered > ROUNDS / 5 && tightened > ROUNDS / 10);
}

/* The rules of `from`, and what is known of their programs, go into `into`. */
static void add_rules(json_t *into, json_t *from)
{
    size_t i, k;
    json_t *v, *w;
    json_array_foreach(json_object_get(from, "rules"), i, v)
    {
        if (json_integer_value(json_object_get(v, "source")) == 1)
            json_array_append(json_object_get(into, "rules"), v);
    }
    json_t *programs = json_object_get(into, "programs");
    json_array_foreach(json_object_get(from, "programs"), i, v)
    {
        bool there = false;
        json_array_foreach(programs, k, w) there |=
            json_equal(json_object_get(v, "name"), json_object_get(w, "name"));
        if (!there)
            json_array_append(programs, v);
    }
}

static void test_dead_rules_are_dead(void **state)
{
    (void)state;
    unsigned dead = 0;
    for (unsigned round = 0; round < 2 * ROUNDS; round++) {
        char text[RULES + 1][256];
        const char *rules[RULES + 1], *rest[RULES];
        enum br_effect without[ANSWERS], with[ANSWERS];
        struct br_err err, ignored;
        unsigned n = 0, id;
        random_rules(text, rules, false);
        json_t *table = compile(rules, 3, &err);
        json_decref(table);
        const char *at = table ? NULL : strstr(err.text, "] rule 'r");
        if (!at || sscanf(at, "] rule 'r%u'", &id) != 1)
            continue;
        for (unsigned i = 0; i < 3; i++)
            if (i != id)
                rest[n++] = rules[i];
        table = compile(rest, n, &ignored);
        json_t *alone = compile(&rules[id], 1, &ignored);
        if (table && alone) {
            decide_all(json_deep_copy(table), without);
            add_rules(table, alone);
            decide_all(json_incref(table), with);
            for (size_t i = 0; i < ANSWERS; i++)
                if (with[i] != without[i])
                    fail_rules(err.text, rules, 3, i);
            dead++;
        }
        json_decref(table);
        json_decref(alone);
    }
    print_message("%u dead rules\n", dead);
    assert_true(dead > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_tightening),
        cmocka_unit_test(test_dead_rules_are_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
