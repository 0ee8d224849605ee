/*
 * `bridle policy test` with the real programs and busted: a spec that holds, one that misses a
 * rule, one that fails, and every way in which there is nothing to measure. That a complete spec
 * gets 100 % means something because the one that lacks a case does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/e2e.h"

static const char bundle[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'mine', rules = {\n"
    "  policy.allow { id = 'read', action = 'fs.read' },\n"
    "  policy.deny { id = 'no-push', action = 'process.exec',\n"
    "    command = policy.command { 'git', 'push' }, reason = 'not here' },\n"
    "  policy.ask { id = 'late', action = 'fs.write',\n"
    "    when = { time = { from = '18:00', to = '24:00' } } },\n"
    "  policy.deny { id = 'by-tool', action = 'y.z', when = { tool = 'fs_search' } },\n"
    "  policy.deny { id = 'path', action = 'fs.list', when = { env = 'PATH' } },\n"
    "  policy.deny { id = 'spent', action = 'x.y', when = { budget = { calls = { used_over = 5 } } "
    "} "
    "},\n"
    "  policy.check('names', function(q) if q.subject == 'z' then return 'deny', 'zz' end end),\n"
    "}, actions = { 'x.y', 'y.z', 'fs.list' } }\n";

#define HEAD                                                                                       \
    "local testing = require 'bridle.testing'\n"                                                   \
    "describe('mine', function()\n"                                                                \
    "  local bundle = testing.load()\n"                                                            \
    "  testing.cases(bundle, {\n"
#define PUSH                                                                                       \
    "    { 'a push is refused', exec = 'cd x && git -C d push', effect = 'deny', rule = "          \
    "'no-push' },\n"
#define OTHERS                                                                                     \
    "    { action = 'fs.read', subject = 'a', effect = 'allow', rule = 'read' },\n"                \
    "    { action = 'fs.write', subject = 'a', at = '2026-11-29 22:00', effect = 'ask',\n"         \
    "      rule = 'late' },\n"                                                                     \
    "    { action = 'fs.write', subject = 'a', at = '2026-11-29 09:00', effect = 'ask',\n"         \
    "      rule = 'default' },\n"                                                                  \
    "    { action = 'y.z', subject = 'a', tool = 'fs_search', effect = 'deny',\n"                  \
    "      rule = 'by-tool' },\n"                                                                  \
    "    { action = 'fs.list', subject = 'a', env = { PATH = 'x' }, effect = 'deny',\n"            \
    "      rule = 'path' },\n"                                                                     \
    "    { action = 'y.z', subject = 'a', tool = 'fs_list', effect = 'ask' },\n"                   \
    "    { action = 'fs.list', subject = 'a', env = { A = 'PATH' }, effect = 'ask' },\n"           \
    "    { action = 'x.y', subject = 'a', budget = { calls = 6 }, effect = 'deny',\n"              \
    "      rule = 'spent' },\n"                                                                    \
    "    { action = 'x.y', subject = 'a', budget = { calls = 5 }, effect = 'ask' },\n"             \
    "    { action = 'fs.read', subject = 'z', effect = 'deny' },\n"                                \
    "    { exec = { 'git', 'log', '' }, effect = 'ask' },\n"
#define TAIL "  })\nend)\n"

static struct e2e t;
static struct e2e_result r;

static void open_project(void)
{
    e2e_open(&t, 0);
    e2e_write(&t, "mine.lua", bundle);
    e2e_write(&t, "tmp/keep", "");
}

/* Nothing runs any more, and no directory was left. */
static void close_project(void)
{
    char tmp[128];
    unsigned n = 0;
    snprintf(tmp, sizeof(tmp), "%s/tmp", t.dir);
    DIR *d = opendir(tmp);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    assert_int_equal(n, 3); /* ".", "..", "keep" */
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void run(const char *const *more)
{
    char tmp[128];
    char *argv[16] = {(char *)"bridle"};
    unsigned n = 1;
    while (*more)
        argv[n++] = (char *)(uintptr_t)*more++;
    snprintf(tmp, sizeof(tmp), "TMPDIR=%s/tmp", t.dir);
    e2e_wait(&t, e2e_spawn(&t, argv, (char *[]){tmp, NULL}), 120, &r);
}
#define TEST(...) run((const char *const[]){"policy", "test", __VA_ARGS__, NULL})

static void expect(int status, const char *text)
{
    if (r.status != status || !e2e_says(&r, text))
        fail_msg("status %d, not %d, or without '%s':\n%.*s\n%.*s", r.status, status, text,
                 (int)r.out.len, r.out.data ? (char *)r.out.data : "", (int)r.err.len,
                 r.err.data ? (char *)r.err.data : "");
}

static void test_complete(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "mine_spec.lua", HEAD PUSH OTHERS TAIL);
    TEST("mine.lua", "--min-coverage", "100", "--min-mutation", "100");
    expect(0, "12 successes / 0 failures / 0 errors");
    expect(0, "rules: 6 of 6 decided a request (100 %)");
    expect(0, "mutants: 21 of 21 are noticed (100 %)\n");
    expect(0, "  names                         ask 0, deny 1");
    expect(0, "branches: 3 of 3 are reached (100 %)");
    e2e_result_free(&r);
    TEST("--json", "mine.lua");
    json_t *o = json_loadb((char *)r.out.data, r.out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_true(json_is_true(json_object_get(o, "ok")));
    json_t *m = json_object_get(o, "mutation");
    assert_int_equal(json_integer_value(json_object_get(m, "percent")), 100);
    assert_int_equal(json_array_size(json_object_get(m, "survivors")), 0);
    json_decref(o);
    e2e_result_free(&r);
    close_project();
}

static void test_a_rule_without_a_case(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "mine_spec.lua", HEAD OTHERS TAIL);
    TEST("mine.lua");
    expect(0, "rules: 5 of 6 decided a request (83 %)");
    expect(0, "mine.lua:4            no-push                       matched    0  decided    0  <- "
              "never decided");
    expect(0, "mutants: 18 of 21 are noticed (85 %)");
    expect(0, "mine.lua:4            no-push                       its removal is not noticed");
    expect(0, "mine.lua:4            no-push                       deny -> allow is not noticed");
    e2e_result_free(&r);
    TEST("mine.lua", "--min-coverage", "83");
    expect(0, "mutants:");
    e2e_result_free(&r);
    TEST("mine.lua", "--min-coverage", "84");
    expect(12, "83 % is less than --min-coverage 84");
    e2e_result_free(&r);
    TEST("mine.lua", "--min-mutation", "86");
    expect(12, "85 % is less than --min-mutation 86");
    e2e_result_free(&r);
    TEST("mine.lua", "--min-mutation", "101");
    expect(2, "--min-mutation");
    e2e_result_free(&r);
    close_project();
}

/* A case that says the effect alone notices less than one that names the rule. */
static void test_weak_case(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "mine_spec.lua",
              HEAD OTHERS "    { exec = 'git push', rule = 'no-push' },\n" TAIL);
    TEST("mine.lua");
    expect(0, "rules: 6 of 6 decided");
    expect(0, "mutants: 19 of 21 are noticed");
    expect(0, "no-push                       deny -> allow is not noticed");
    e2e_result_free(&r);
    close_project();
}

static void test_free_form(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "spec/a_spec.lua",
              HEAD OTHERS "  })\n  it('pushes', function()\n"
                          "    local d = bundle:decide { exec = 'git push' }\n"
                          "    assert.equal('not here', d.reason)\n"
                          "    assert.equal('mine.lua:4', d.where)\n"
                          "    assert.equal('no-push', d.rule)\n"
                          "    assert.has_error(function() bundle:decide { exce = 'x' } end)\n"
                          "    local long = ('a'):rep(64)\n"
                          "    assert.has_error(function() bundle:decide { action = long } end)\n"
                          "  end)\nend)\n");
    TEST("mine.lua", "--spec", "spec");
    expect(0, "rules: 6 of 6 decided a request (100 %)");
    expect(0, "mutants: 19 of 21 are noticed (90 %), busted ran again for 3\n");
    e2e_result_free(&r);
    close_project();
}

#define CHECKED(cases)                                                                             \
    "local testing = require 'bridle.testing'\n"                                                   \
    "describe('checked', function()\n"                                                             \
    "  local bundle = testing.load()\n" cases "end)\n"

/* Branches of a check: which are reached, and whether a case notices their opposite. */
static void test_branches(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "mine.lua",
              "local policy = require 'bridle.policy'\n"
              "local function long(s) return #s > 3 end -- if x then\n"
              "return policy.bundle { api = 1, name = 'mine', rules = {\n"
              "  policy.allow { id = 'read', action = 'fs.read' },\n"
              "  policy.check('names', function(q)\n"
              "    if long(q.subject) then return 'deny', 'long' end\n"
              "    for _ in q.subject:gmatch('x') do\n"
              "      if pcall(error) then return 'ask' else return 'ask', 'if' end\n"
              "    end\n"
              "  end),\n} }\n");
    e2e_write(
        &t, "mine_spec.lua",
        CHECKED("testing.cases(bundle, {\n"
                "{ action = 'fs.read', subject = 'a', effect = 'allow', rule = 'read' } })\n"));
    TEST("mine.lua");
    expect(0, "branches: 3 of 7 are reached (42 %)\n"
              "  mine.lua:6            a condition is never true\n"
              "  mine.lua:7            a loop never runs\n"
              "  mine.lua:8            a condition is never true\n"
              "  mine.lua:8            a condition is never false\n");
    expect(0, "mine.lua:6            check                         another answer is not noticed");
    expect(0, "mine.lua:8            check                         the opposite of a condition is "
              "not noticed");
    assert_false(e2e_says(&r, "mine.lua:6            check                         the opp"));
    e2e_result_free(&r);
    TEST("mine.lua", "--min-coverage", "43");
    expect(12, "42 % is less than --min-coverage 43");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua",
              CHECKED("testing.cases(bundle, {\n"
                      "{ action = 'fs.read', subject = 'a', effect = 'allow', rule = 'read' },\n"
                      "{ action = 'fs.read', subject = 'abcd', effect = 'deny' } })\n"
                      "it('looks by itself', function()\n"
                      "  assert.equal('ask', bundle:decide({ action = 'fs.read', subject = 'x' })"
                      ".effect)\nend)\n"));
    TEST("--json", "mine.lua");
    json_t *o = json_loadb((char *)r.out.data, r.out.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *b = json_object_get(o, "branches"),
                 *missed = json_array_get(json_object_get(b, "missed"), 0);
    assert_int_equal(json_integer_value(json_object_get(b, "branches")), 7);
    assert_int_equal(json_integer_value(json_object_get(b, "reached")), 6);
    assert_int_equal(json_array_size(json_object_get(b, "missed")), 1);
    assert_string_equal(json_string_value(json_object_get(missed, "where")), "mine.lua:8");
    /* 'ask' to 'deny' in the branch that runs: only the spec itself notices */
    const json_t *m = json_object_get(o, "mutation"), *s;
    size_t i;
    unsigned answers = 0, opposites = 0;
    json_array_foreach(json_object_get(m, "survivors"), i, s)
    {
        const char *change = json_string_value(json_object_get(s, "change"));
        answers += change && strcmp(change, "another answer") == 0;
        opposites += change && strcmp(change, "the opposite of a condition") == 0;
    }
    assert_int_equal(answers, 1);
    assert_int_equal(opposites, 1); /* both of its answers are 'ask' */
    assert_true(json_integer_value(json_object_get(m, "busted")) > 0);
    json_decref(o);
    e2e_result_free(&r);
    close_project();
}

static void test_a_failing_case(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "mine_spec.lua",
              HEAD "    { 'reads',\n      action = 'fs.read', subject = 'a', effect = 'deny' },\n"
                   "    { exec = 'git push', effect = 'deny', rule = 'no-psh' },\n" TAIL);
    TEST("mine.lua");
    expect(11, "0 successes / 2 failures / 0 errors");
    expect(11, "mine_spec.lua:5: expected deny, not allow\n  request  fs.read a\n"
               "  expected deny\n  decided  allow by operator:read (mine.lua:3)\n"
               "  vote     operator allow by operator:read (mine.lua:3)");
    expect(11, "mine_spec.lua:7: expected the rule 'no-psh' to decide, not 'no-push'");
    expect(11, "the specs fail; no mutants were tried");
    e2e_result_free(&r);
    close_project();
}

static void test_nothing_to_measure(void **state)
{
    (void)state;
    char cmd[1024];
    open_project();
    TEST("mine.lua");
    expect(3, "'mine.lua' has no spec: there is neither 'mine_spec.lua' nor a directory 'spec'");
    e2e_result_free(&r);
    TEST("mine.lua", "--spec", "none_spec.lua");
    expect(3, "the spec 'none_spec.lua' could not be read");
    e2e_result_free(&r);
    TEST("--json");
    expect(3, "the policy that is built in has no specs beside it");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua", "describe('x', function(\n");
    TEST("mine.lua");
    expect(11, "mine_spec.lua:");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua", "describe('x', function() it('y', function() end) end)\n");
    TEST("mine.lua");
    expect(3, "'mine_spec.lua' asks nothing of the bundle");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua", HEAD TAIL);
    TEST("mine.lua");
    expect(11, "testing.cases has no cases; nothing is tested");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua", HEAD "    { exec = 'ls', effect = 'alow' },\n" TAIL);
    TEST("mine.lua");
    expect(11, "mine_spec.lua:5: there is no effect 'alow'");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua", HEAD "    { exec = 'ls', efect = 'allow' },\n" TAIL);
    TEST("mine.lua");
    expect(11, "mine_spec.lua:5: a case does not know 'efect'; did you mean 'effect'?");
    e2e_result_free(&r);
    e2e_write(&t, "mine_spec.lua", HEAD PUSH TAIL);
    e2e_write(&t, "mine.lua", "return {\n\n");
    TEST("mine.lua");
    expect(5, "mine.lua:");
    assert_false(e2e_says(&r, "successes"));
    e2e_result_free(&r);
    e2e_write(&t, "mine.lua", bundle);
    snprintf(cmd, sizeof(cmd),
             "cd '%s' && PATH=/nonexistent BRIDLE_STATE_DIR='%s' HOME='%s' '%s/bridle' policy test "
             "mine.lua >out.txt 2>err.txt",
             t.dir, t.state, t.dir, e2e_bin());
    int status = system(cmd); /* NOLINT */
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 6);
    BR_CLEANUP_FREE char *said = e2e_read(&t, "err.txt"), *out = e2e_read(&t, "out.txt");
    assert_non_null(strstr(said, "'busted', which runs specs, is not installed; nothing was tested."
                                 " Install the package lua-busted"));
    assert_string_equal(out ? out : "", "");
    close_project();
}

static void test_recorded(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "run.jsonl",
              "{\"type\":\"session.created\",\"at\":\"2026-11-29T10:00:00.000+00:00\","
              "\"data\":{\"sessionId\":\"run-1\"}}\n"
              "{\"type\":\"tool.call\",\"at\":\"2026-11-29T10:00:00.000+00:00\","
              "\"data\":{\"callId\":\"c1\",\"tool\":\"process_exec\",\"input\":{\"argv\":[\"git\","
              "\"push\"]}}}\n"
              "{\"type\":\"bridle.votes\",\"at\":\"2026-11-29T10:00:01.000+00:00\","
              "\"data\":{\"callId\":\"c1\",\"action\":\"process.exec\",\"subject\":\"git push\","
              "\"effect\":\"deny\",\"ruleId\":\"operator:no-push\",\"source\":\"operator\","
              "\"votes\":[]}}\n");
    e2e_write(&t, "mine_spec.lua",
              "local testing = require 'bridle.testing'\n"
              "describe('what was recorded', function()\n"
              "  local bundle = testing.load()\n"
              "  testing.cases(bundle, testing.recorded('run.jsonl', bundle))\n"
              "end)\n");
    TEST("mine.lua");
    expect(0, "1 success / 0 failures / 0 errors");
    expect(0, "no-push                       matched    1  decided    1");
    e2e_result_free(&r);
    e2e_write(&t, "run.jsonl", "{}\n");
    TEST("mine.lua");
    expect(11, "it is not an event of a record");
    e2e_result_free(&r);
    close_project();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),       cmocka_unit_test(test_a_rule_without_a_case),
        cmocka_unit_test(test_weak_case),      cmocka_unit_test(test_free_form),
        cmocka_unit_test(test_a_failing_case), cmocka_unit_test(test_nothing_to_measure),
        cmocka_unit_test(test_recorded),       cmocka_unit_test(test_branches),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
