/*
 * `bridle policy` with the real programs: what it says of the shipped policy and of others, that a
 * recorded decision is explained and replayed with the table of its run, and for every bad input
 * the typed error, with nothing on standard output.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/e2e.h"

#define BUNDLE(name_, rules_)                                                                      \
    "local policy = require 'bridle.policy'\n"                                                     \
    "return policy.bundle { api = 1, name = '" name_ "', rules = {\n" rules_ "} }\n"
#define ALLOW_ALL "policy.allow { id = 'all', action = '*', accept = 'over-broad' },\n"

#define ALLOW_ALL_BUT                                                                              \
    "policy.allow { id = 'all', action = { 'process.exec', 'fs.write' }, accept = 'over-broad' "   \
    "},\n"

static const char manifest[] = "id: fix\ntitle: t\ngoal: g\nacceptance: [a]\n"
                               "allowed_paths: [src/**]\npermissions: {fs.write: deny}\n"
                               "delivery: {type: none}\n";

static struct e2e t;
static struct e2e_result r;

static void open_project(void)
{
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/src/a.txt", "before\n");
    e2e_write(&t, "policy.lua", BUNDLE("all", ALLOW_ALL));
    e2e_write(&t, "task.yaml", manifest);
}

static void close_project(void)
{
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Run `bridle policy ...` in t.dir. */
#define POLICY(...) e2e_run(&t, &r, "bridle", "policy", __VA_ARGS__, NULL)

static bool holds(const struct br_buf *b, const char *text)
{
    return b->len && memmem(b->data, b->len, text, strlen(text));
}

static void expect_out(int status, const char *text)
{
    e2e_expect(&r, status, text);
    if (!holds(&r.out, text))
        fail_msg("'%s' is not on standard output", text);
}

/* Refused: said on standard error, and nothing on standard output. */
static void expect_refused(int status, const char *text)
{
    e2e_expect(&r, status, text);
    if (r.out.len || !holds(&r.err, text))
        fail_msg("'%s' is not all there is, and on standard error: '%.*s'", text, (int)r.out.len,
                 (char *)r.out.data);
    e2e_result_free(&r);
}

static json_t *parse_out(void)
{
    json_t *o = json_loadb((char *)r.out.data, r.out.len, JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        fail_msg("no JSON: '%.*s'", (int)r.out.len, (char *)r.out.data);
    return o;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- check and show ---- */

static void test_check(void **state)
{
    (void)state;
    open_project();
    POLICY("check");
    expect_out(0, "default.lua: ");
    expect_out(0, " rules, ");
    e2e_result_free(&r);
    e2e_write(&t, "bad.lua", BUNDLE("bad", "policy.deny { id = 'x', action = 'fs.raed' },\n"));
    POLICY("check", "bad.lua");
    expect_refused(5, "bad.lua:3: INVALID_POLICY: rule 'x': there is no action 'fs.raed'");
    e2e_write(&t, "several.lua",
              BUNDLE("several", "policy.deny { id = 'x', action = 'fs.raed' },\n"
                                "policy.deny { id = 'y', action = 'fs.write', pth = 'a' },\n"));
    POLICY("check", "several.lua");
    e2e_expect(&r, 5, "several.lua:3: INVALID_POLICY: rule 'x': there is no action 'fs.raed'");
    if (holds(&r.err, " more)"))
        fail_msg("the list of errors is followed by how many there are");
    expect_refused(5, "several.lua:4: INVALID_POLICY: 'pth' is not a field of policy.deny");
    e2e_write(&t, "worse.lua", "return {\n\n");
    POLICY("check", "worse.lua", "policy.lua");
    e2e_expect(&r, 5, "worse.lua:");
    expect_out(5, "policy.lua: "); /* the others are still checked */
    e2e_result_free(&r);
    POLICY("check", "--json", "bad.lua", "policy.lua");
    json_t *o = parse_out(), *files = json_object_get(o, "files");
    assert_int_equal(r.status, 5);
    assert_true(json_is_false(json_object_get(o, "ok")));
    assert_int_equal(json_array_size(files), 2);
    json_t *e = json_array_get(json_object_get(json_array_get(files, 0), "errors"), 0);
    assert_string_equal(text_of(e, "file"), "bad.lua");
    assert_int_equal(json_integer_value(json_object_get(e, "line")), 3);
    assert_string_equal(text_of(e, "code"), "INVALID_POLICY");
    assert_true(json_is_true(json_object_get(json_array_get(files, 1), "ok")));
    assert_int_equal(strlen(text_of(json_array_get(files, 1), "sha256")), 64);
    json_decref(o);
    e2e_result_free(&r);
    POLICY("check", "none.lua");
    expect_refused(3, "'none.lua' does not exist");
    close_project();
}

static void test_warnings(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "odd.yaml",
              "id: fix\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
              "permissions: {odd.thing: ask}\ndelivery: {type: none}\n");
    e2e_write(
        &t, "narrow.lua",
        BUNDLE("narrow", "policy.allow { id = 'a', action = 'fs.read', path = 'src/**' },\n"));
    POLICY("check", "-t", "odd.yaml", "narrow.lua");
    expect_out(0, "warning: ");
    expect_out(0, "1 warning\n");
    e2e_result_free(&r);
    POLICY("check", "--strict", "-t", "odd.yaml", "narrow.lua");
    expect_out(5, "1 warning\n");
    e2e_result_free(&r);
    POLICY("check", "--strict", "narrow.lua"); /* the control */
    expect_out(0, "0 warnings\n");
    e2e_result_free(&r);
    close_project();
}

static void test_show(void **state)
{
    (void)state;
    open_project();
    POLICY("show", "policy.lua");
    expect_out(0, "allow  operator:all ");
    expect_out(0, "policy.lua:3");
    expect_out(0, "profile:no-network");
    e2e_result_free(&r);
    POLICY("show", "--json", "-t", "task.yaml", "-p", "policy.lua");
    json_t *o = parse_out();
    assert_int_equal(strlen(text_of(o, "sha256")), 64);
    assert_int_equal(json_array_size(json_object_get(json_object_get(o, "table"), "sources")), 3);
    assert_true(holds(&r.out, "\"manifest:fs.write\""));
    json_decref(o);
    e2e_result_free(&r);
    e2e_write(&t, "bad.lua", "return 7\n");
    POLICY("show", "bad.lua");
    expect_refused(5, "bad.lua:1: ");
    POLICY("show", "a", "b");
    expect_refused(2, "'b' is one word too many");
    POLICY("shw");
    expect_refused(2, "did you mean 'show'?");
    close_project();
}

/* ---- why ---- */

static const char rules[] =
    BUNDLE("some", "policy.allow { id = 'exec', action = 'process.exec' },\n"
                   "policy.deny { id = 'no-push', action = 'process.exec',\n"
                   "  command = { 'git push', 'git push *' }, reason = 'not yours' },\n"
                   "policy.allow { id = 'read', action = 'fs.read', path = 'src/**' },\n");

static void test_why(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "some.lua", rules);
    POLICY("why", "-p", "some.lua", "process.exec", "git", "push", "--force");
    expect_out(0, "deny  by operator:no-push#2 (operator): not yours\n");
    expect_out(0, "+ allow  operator:exec");
    expect_out(0, "+ deny   operator:no-push#2");
    expect_out(0, "- deny   operator:no-push ");
    expect_out(0, "its pattern does not match");
    expect_out(0, "some.lua:4");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "--shell", "cd src && git push");
    expect_out(0, "deny  by operator:no-push (operator)");
    expect_out(0, "process.exec cd src\n");
    expect_out(0, "process.exec git push\n");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "fs.read", "./src/a", "--json");
    json_t *o = parse_out(), *one = json_array_get(json_object_get(o, "decided"), 0);
    assert_string_equal(text_of(o, "effect"), "allow");
    assert_string_equal(text_of(o, "subject"), "src/a");
    assert_string_equal(text_of(one, "ruleId"), "operator:read");
    assert_int_equal(json_array_size(json_object_get(one, "rules")), 1);
    json_decref(o);
    e2e_result_free(&r);
    e2e_write(&t, "other.lua",
              BUNDLE("other", "policy.otherwise { id = 'rest', action = 'fs.read' },\n"
                              "policy.allow { id = 'read', action = 'fs.read', path = 'a' },\n"));
    POLICY("why", "-p", "other.lua", "fs.read", "b");
    expect_out(0, "ask  by operator:rest (operator)");
    expect_out(0, "no rule of its source matches");
    e2e_result_free(&r);
    POLICY("why", "-p", "other.lua", "fs.read", "a");
    expect_out(0, "allow  by operator:read (operator)");
    expect_out(0, "a rule of its source matches");
    e2e_result_free(&r);
    POLICY("show", "other.lua");
    expect_out(0, "otherwise");
    e2e_result_free(&r);
    POLICY("why", "-p", "policy.lua", "-t", "task.yaml", "fs.write", "src/a");
    expect_out(0, "deny  by manifest:fs.write (manifest)");
    expect_out(0, "vote  operator allow  operator:all");
    e2e_result_free(&r);
    close_project();
}

static void test_why_of_odd_requests(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "some.lua", rules);
    POLICY("why", "-p", "some.lua", "fs.red", "a");
    expect_out(0, "ask  by default (kernel)");
    expect_out(0, "no rule speaks of the action 'fs.red'; did you mean 'fs.read'?");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "fs.read", "");
    expect_out(0, "deny  by empty-subject (kernel)");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "fs.read", "../a");
    expect_out(0, "deny  by invalid-subject (kernel)");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "process.exec", "", "a");
    expect_out(0, "deny  by empty-subject (kernel)");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "process.exec", "a\nb", "\033[31mred");
    expect_out(0, "'a\\nb' '\\x1b[31mred'");
    assert_false(holds(&r.out, "\033"));
    e2e_result_free(&r);
    char many[66 * 4 + 1] = "";
    for (int i = 0; i < 64; i++)
        strcat(many, "ls; ");
    POLICY("why", "-p", "some.lua", "--shell", many);
    expect_out(0, "process.exec ls\n");
    assert_false(holds(&r.out, "are explained"));
    e2e_result_free(&r);
    strcat(many, "git push");
    POLICY("why", "-p", "some.lua", "--shell", many);
    expect_out(0, "deny  by operator:no-push (operator)");
    expect_out(0, "only the first 64 are explained; all were decided\n");
    e2e_result_free(&r);
    POLICY("why", "-p", "some.lua", "process.exec");
    expect_refused(2, "there is no command");
    POLICY("why", "-p", "some.lua");
    expect_refused(2, "something is missing");
    POLICY("why", "process.exec", "--shell", "ls");
    expect_refused(2, "bridle policy why --shell 'LINE'");
    POLICY("why", "fs.read", "a", "b");
    expect_refused(2, "'b' is one word too many");
    POLICY("why", "fs.read", "\xff");
    expect_refused(2, "not text in UTF-8");
    POLICY("why", "--shell", "ls", "fs.read");
    expect_refused(2, "its action is process.exec");
    POLICY("why", "--call", "x");
    expect_refused(2, "say which with --run");
    close_project();
}

/* The bundle's function is asked, by the process that compiled it. */
static void test_predicates(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "check.lua",
              "local policy = require 'bridle.policy'\n"
              "return policy.bundle { api = 1, name = 'c', rules = {\n" ALLOW_ALL "},\n"
              "check = function(q) if q.subject == 'secret' then return 'deny', 'no' end\n"
              "  if q.subject == 'boom' then error('broken') end end }\n");
    POLICY("why", "-p", "check.lua", "fs.read", "secret");
    expect_out(0, "deny  by operator:check (operator): no\n");
    expect_out(0, "also  operator deny   operator:check");
    e2e_result_free(&r);
    POLICY("why", "-p", "check.lua", "fs.read", "other");
    expect_out(0, "allow  by operator:all (operator)");
    expect_out(0, "function 'check' was asked");
    e2e_result_free(&r);
    POLICY("why", "-p", "check.lua", "fs.read", "boom");
    expect_out(0, "deny  by policy-error (operator)");
    expect_out(0, "broken");
    e2e_result_free(&r);
    POLICY("diff", "policy.lua", "check.lua");
    expect_out(0, "no decision changes");
    expect_out(0, "no proof");
    e2e_result_free(&r);
    close_project();
}

/* ---- the record ---- */

static void record(void)
{
    e2e_write(&t, "scenario.json",
              "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
              "\"tool_calls\":["
              "{\"name\":\"fs_read\",\"arguments\":{\"path\":\"src/a.txt\"}},"
              "{\"name\":\"process_exec\",\"arguments\":{\"command\":\"true && echo hello\"}},"
              "{\"name\":\"fs_write\",\"arguments\":{\"path\":\"src/b\",\"content\":\"x\"}}]},"
              "{\"text\":\"The end.\"}]}");
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "-t", "task.yaml", "-p",
            "policy.lua", "--scenario", "scenario.json", "go", NULL);
    e2e_expect(&r, 0, "\"type\":\"bridle.table\"");
    e2e_result_free(&r);
}

static void test_why_of_a_record(void **state)
{
    (void)state;
    open_project();
    record();
    POLICY("why", "--run", "last");
    e2e_expect(&r, 2, "Say --call with one of: ");
    char id[64] = "";
    const char *at = memmem(r.err.data, r.err.len, "one of: ", 8);
    assert_non_null(at);
    assert_int_equal(sscanf(at + 8, "%63[^, (\n]", id), 1);
    expect_refused(2, "which call of 'run_");
    POLICY("why", "--run", "last", "--call", id);
    expect_out(0, "recorded: allow  by operator:all (operator)");
    expect_out(0, "explained with the table that was pinned then\n");
    expect_out(0, "now: allow  by operator:all (operator)");
    expect_out(0, "fs.read src/a.txt");
    e2e_result_free(&r);
    e2e_write(&t, ".config/bridle/policy.lua", "return 'broken'\n"); /* and is not needed */
    POLICY("why", "--run", "last", "--call", id, "--json");
    json_t *o = parse_out();
    assert_string_equal(text_of(json_object_get(o, "recorded"), "callId"), id);
    assert_string_equal(text_of(json_object_get(o, "now"), "effect"), "allow");
    json_decref(o);
    e2e_result_free(&r);
    POLICY("why", "--run", "last", "--call", "nobody");
    expect_refused(3, "no decision about a call 'nobody'");
    POLICY("why", "--run", "run_nobody", "--call", id);
    expect_refused(3, "no run 'run_nobody' is recorded");
    POLICY("why", "--run", "last", "--call", id, "fs.read");
    expect_refused(2, "it takes no request");
    close_project();
}

static void export_record(const char *path, size_t cut)
{
    e2e_run(&t, &r, "bridle", "show", "--json", "last", NULL);
    assert_int_equal(r.status, 0);
    r.out.len -= cut;
    r.out.data[r.out.len] = 0;
    e2e_write(&t, path, (char *)r.out.data);
    e2e_result_free(&r);
}

static void test_replay(void **state)
{
    (void)state;
    open_project();
    record();
    POLICY("replay", "--policy", "policy.lua");
    expect_out(0, "3 decisions of 1 run: 0 would be looser, 0 stricter, 0 the same by another");
    e2e_result_free(&r);
    e2e_write(
        &t, "rest.lua",
        BUNDLE("rest", "policy.otherwise { id = 'rest', action = 'fs.read' },\n" ALLOW_ALL_BUT));
    POLICY("replay", "--policy", "rest.lua", "last"); /* the candidate's fallbacks as well */
    expect_out(10, "operator:all -> operator:rest");
    expect_out(10, "0 would be looser, 1 stricter, 0 the same by another");
    e2e_result_free(&r);
    e2e_write(&t, "strict.lua",
              BUNDLE("strict", "policy.ask { id = 'ask', action = { 'fs.read', 'fs.write' } },\n"
                               "policy.deny { id = 'no', action = 'process.exec',\n"
                               "  command = 'echo *', reason = 'be quiet' },\n"));
    POLICY("replay", "--policy", "strict.lua", "last");
    expect_out(10, "allow -> ask ");
    expect_out(10, "operator:all -> operator:ask");
    expect_out(10, "allow -> deny ");
    expect_out(10, "true && echo hello");
    expect_out(10, "operator:all -> operator:no: be quiet");
    /* the manifest of the run still denies the write */
    expect_out(10, "3 decisions of 1 run: 0 would be looser, 2 stricter, 0 the same by another");
    assert_false(holds(&r.out, "fs.write"));
    assert_false(holds(&r.out, "redacted"));
    e2e_result_free(&r);
    POLICY("replay", "-p", "strict.lua", "--json");
    json_t *o = parse_out();
    assert_int_equal(r.status, 10);
    assert_int_equal(json_integer_value(json_object_get(o, "tightened")), 2);
    assert_int_equal(json_array_size(json_object_get(o, "changes")), 2);
    assert_int_equal(json_array_size(json_object_get(o, "notes")), 0);
    json_decref(o);
    e2e_result_free(&r);
    POLICY("replay", "last");
    expect_refused(2, "there is no candidate");
    POLICY("replay", "-p", "strict.lua", "run_nobody");
    expect_refused(3, "no run 'run_nobody' is recorded");
    POLICY("replay", "-p", "none.lua", "last");
    expect_refused(3, "'none.lua' does not exist");
    e2e_write(&t, "bad.lua", "return 7\n");
    POLICY("replay", "-p", "bad.lua", "last");
    expect_refused(5, "bad.lua:1: ");
    close_project();
}

static void test_replay_of_a_file(void **state)
{
    (void)state;
    open_project();
    record();
    e2e_write(&t, "none.lua", BUNDLE("none", "policy.deny { id = 'no', action = '*' },\n"));
    export_record("whole.json", 0);
    POLICY("replay", "-p", "none.lua", "./whole.json");
    expect_out(10, "3 decisions of 1 run: 0 would be looser, 2 stricter, 1 the same by another");
    e2e_result_free(&r);
    export_record("cut.json", 20);
    POLICY("replay", "-p", "none.lua", "cut.json");
    expect_refused(5, "it is not an event of a record");
    BR_CLEANUP_FREE char *whole = e2e_read(&t, "whole.json");
    assert_non_null(whole);
    char *last = whole + strlen(whole) - 1; /* the last line is missing as a whole */
    *last = 0;
    last = strrchr(whole, '\n');
    last[1] = 0;
    e2e_write(&t, "short.json", whole);
    POLICY("replay", "-p", "none.lua", "short.json");
    expect_refused(5, "the end is missing");
    e2e_write(&t, "odd.json", "{\"v\":1,\"type\":\"bridle.votes\",\"at\":\"x\",\"data\":{}}\n");
    POLICY("replay", "-p", "none.lua", "odd.json");
    expect_refused(5, "'odd.json' line 1: it does not belong where it stands");
    e2e_write(&t, "empty.json", "\n");
    POLICY("replay", "-p", "none.lua", "empty.json");
    expect_refused(5, "holds no record");
    POLICY("replay", "-p", "none.lua", "nowhere.json");
    expect_refused(3, "'nowhere.json' could not be read");
    close_project();
}

/* Exports `last` without the events of one type. */
static void export_without(const char *path, const char *type)
{
    BR_CLEANUP_BUF struct br_buf kept = BR_BUF_INIT(1u << 20);
    char *save = NULL;
    e2e_run(&t, &r, "bridle", "show", "--json", "last", NULL);
    assert_int_equal(r.status, 0);
    char *first = strtok_r((char *)r.out.data, "\n", &save); /* how many there are */
    assert_non_null(first);
    for (char *l = strtok_r(NULL, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        if (!strstr(l, type))
            br_buf_printf(&kept, "%s\n", l);
    assert_non_null(br_buf_cstr(&kept));
    e2e_write(&t, path, (char *)kept.data);
    e2e_result_free(&r);
}

/* A record of before there were tables, and one whose table held what looks like a credential. */
static void test_records_that_say_less(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "policy.lua",
              BUNDLE("all", ALLOW_ALL "policy.deny { id = 'no-deploy', action = 'process.exec',\n"
                                      "  command = 'deploy --token=ghp_"
                                      "0123456789abcdefghijABCDEFGHIJ012345 *' },\n"));
    record();
    e2e_run(&t, &r, "bridle", "show", "--json", "last", NULL);
    e2e_expect(&r, 0, "deploy --token=[redacted:");
    assert_false(e2e_says(&r, "ghp_0123456789"));
    e2e_result_free(&r);
    POLICY("replay", "-p", "policy.lua", "last");
    expect_out(0, "something in its recorded table was redacted, or changed");
    expect_out(0, "3 decisions of 1 run: 0 would be looser, 0 stricter");
    e2e_result_free(&r);
    export_without("old.json", "\"bridle.table\"");
    POLICY("replay", "-p", "policy.lua", "old.json"); /* nor the manifest, which denies writes */
    expect_out(10, "deny  -> allow");
    expect_out(10, "its record holds no table: the rules of its profile and manifest do not");
    e2e_result_free(&r);
    POLICY("replay", "-p", "policy.lua", "-t", "task.yaml", "old.json");
    expect_out(0, "3 decisions of 1 run: 0 would be looser, 0 stricter");
    e2e_result_free(&r);
    export_without("blind.json", "\"tool.call\"");
    POLICY("replay", "-p", "policy.lua", "blind.json");
    expect_out(0, "3 decisions of 1 run");
    e2e_result_free(&r);
    close_project();
}

/* ---- diff ---- */

static void test_diff(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "some.lua", rules);
    e2e_write(&t, "looser.lua",
              BUNDLE("some", "policy.allow { id = 'exec', action = 'process.exec' },\n"
                             "policy.deny { id = 'no-push', action = 'process.exec',\n"
                             "  command = 'git push', reason = 'not yours' },\n"
                             "policy.ask { id = 'write', action = 'fs.write', path = '*.c' },\n"
                             "policy.allow { id = 'read', action = 'fs.read', path = '**' },\n"));
    POLICY("diff", "some.lua", "looser.lua");
    expect_out(10, "- deny   operator:no-push#2");
    expect_out(10, "newly allowed: ");
    expect_out(10, "process.exec  git push w  (made)\n    deny by operator:no-push#2, now allow");
    expect_out(10, "fs.read  w/v  (made)\n    ask by default, now allow by operator:read");
    expect_out(10, "by witnesses and no proof");
    assert_false(holds(&r.out, "newly denied"));
    e2e_result_free(&r);
    POLICY("diff", "looser.lua", "some.lua", "--json");
    json_t *o = parse_out();
    assert_int_equal(r.status, 10);
    assert_int_equal(json_integer_value(json_object_get(o, "newlyAllowed")), 0);
    assert_true(json_integer_value(json_object_get(o, "newlyDenied")) > 0);
    assert_true(json_integer_value(json_object_get(o, "newlyAsked")) > 0);
    assert_true(json_is_false(json_object_get(o, "proof")));
    json_decref(o);
    e2e_result_free(&r);
    e2e_write(&t, "meant.lua",
              BUNDLE("meant", "policy.deny { id = 'no-push',\n"
                              "  action = 'process.exec',\n"
                              "  command = policy.command { 'git', 'push' } },\n"));
    e2e_write(&t, "empty.lua", BUNDLE("meant", ""));
    POLICY("diff", "empty.lua", "meant.lua");
    expect_out(10, "+ deny   operator:no-push");
    expect_out(10, "newly denied: ");
    expect_out(10, "process.exec  git push");
    e2e_result_free(&r);
    e2e_write(&t, "often.lua",
              BUNDLE("meant",
                     "policy.ask { id = 'often', action = 'process.exec', command = 'w *',\n"
                     "  when = { tool = 'mcp_*', env = 'LD_*',\n"
                     "    time = { days = 'sat-sun', from = '22:30', to = '01:00', zone = "
                     "'+02:00' },\n"
                     "    budget = { calls = { used_over = 50 }, asks = { left_under = 3 } "
                     "} } },\n"
                     "policy.allow { id = 'w', action = 'process.exec',\n"
                     "  command = 'w *' },\n"));
    e2e_write(&t, "never.lua",
              BUNDLE("meant", "policy.allow { id = 'w', action = 'process.exec',\n"
                              "  command = 'w *' },\n"));
    POLICY("diff", "never.lua", "often.lua");
    expect_out(10, "newly asked: ");
    expect_out(10, "process.exec  w w  (made with {\"asks\":4000000000,\"calls\":51,"
                   "\"env\":[\"LD_w=w\"],\"time\":1768077000,\"tool\":\"mcp_w\"})\n    allow by "
                   "operator:w, now ask by operator:often");
    e2e_result_free(&r);
    POLICY("diff", "some.lua", "some.lua");
    expect_out(0, "no decision changes");
    e2e_result_free(&r);
    record(); /* allowed by policy.lua; 'echo' is nobody's pattern */
    e2e_write(&t, "quiet.lua",
              BUNDLE("all", ALLOW_ALL "policy.deny { id = 'no-hello',\n"
                                      "  action = 'process.exec',\n"
                                      "  command = '? hello' },\n"));
    e2e_write(&t, "quieter.lua",
              BUNDLE("all", ALLOW_ALL "policy.deny { id = 'no-hello',\n"
                                      "  action = 'process.exec',\n"
                                      "  command = '*o hello' },\n"));
    POLICY("diff", "quiet.lua", "quieter.lua");
    expect_out(10, "process.exec  true && echo hello  (run_"); /* the record knows */
    e2e_result_free(&r);
    POLICY("diff", "some.lua");
    expect_refused(2, "it takes two policies");
    POLICY("diff", "some.lua", "none.lua");
    expect_refused(3, "'none.lua' does not exist");
    close_project();
}

/* ---- size ---- */

/* The reader of the pipe leaves after one line. */
static int show_to_a_closed_pipe(void)
{
    int p[2], status = 0;
    char path[BR_PATH_MAX], line[16];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    snprintf(path, sizeof(path), "%s/bridle", e2e_bin());
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (chdir(t.dir) < 0 || dup2(p[1], 1) < 0 || dup2(null, 2) < 0)
            _exit(99);
        execl(path, "bridle", "policy", "show", "big.lua", (char *)NULL);
        _exit(99);
    }
    close(p[1]);
    assert_true(read(p[0], line, sizeof(line)) > 0);
    close(p[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_ten_thousand_rules(void **state)
{
    (void)state;
    open_project();
    e2e_write(&t, "big.lua",
              "local policy = require 'bridle.policy'\n"
              "local rules = {}\n"
              "for i = 1, 9900 do\n"
              "  rules[i] = policy.deny { id = 'r' .. i, action = 'fs.read', path = 'p' .. i }\n"
              "end\n"
              "return policy.bundle { api = 1, name = 'big', rules = rules }\n");
    POLICY("show", "big.lua");
    expect_out(0, "operator:r9900");
    e2e_result_free(&r);
    POLICY("why", "-p", "big.lua", "fs.read", "p9900");
    expect_out(0, "deny  by operator:r9900 (operator)");
    expect_out(0, "- deny   operator:r1 ");
    e2e_result_free(&r);
    assert_int_equal(show_to_a_closed_pipe(), 1);
    close_project();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_why),
        cmocka_unit_test(test_why_of_odd_requests),
        cmocka_unit_test(test_predicates),
        cmocka_unit_test(test_why_of_a_record),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_of_a_file),
        cmocka_unit_test(test_records_that_say_less),
        cmocka_unit_test(test_diff),
        cmocka_unit_test(test_ten_thousand_rules),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
