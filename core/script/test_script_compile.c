/*
 * Compiling policies and manifests in a real bridle-script: what comes out of good ones, and that
 * bad ones end in a typed error with file and line and leave nothing compiled.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "script/rig.h"

#define HEAD "local policy = require 'bridle.policy'\n"
#define BUNDLE(rules)                                                                              \
    HEAD "return policy.bundle { api = 1, name = 'mine', rules = { " rules " } }\n"

static const char good_manifest[] = "id: fix-parser\n"
                                    "title: Fix the parser\n"
                                    "goal: |\n"
                                    "  Make the failing test pass.\n"
                                    "acceptance:\n"
                                    "  - the test passes\n"
                                    "allowed_paths: [src/**, docs/, README.md]\n"
                                    "permissions:\n"
                                    "  process.exec:\n"
                                    "    \"git diff*\": allow\n"
                                    "    \"rm *\": deny\n"
                                    "  fs.write: ask\n"
                                    "  fs.read: {\"*\": allow, \"secret/**\": deny}\n"
                                    "budget: {max_model_tokens: 5000}\n"
                                    "delivery: {type: none}\n";

static const char *text_of(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "(none)";
}

static void test_default_policy(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g, NULL, NULL);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    assert_int_equal(g.a.id, 7);
    const json_t *sources = json_object_get(g.a.table, "sources");
    assert_int_equal(json_array_size(sources), 3);
    assert_string_equal(text_of(json_array_get(sources, 0), "name"), "run-v1");
    assert_string_equal(text_of(json_array_get(sources, 1), "name"), "default");
    assert_string_equal(text_of(json_array_get(sources, 2), "name"), "adhoc");
    assert_string_equal(text_of(rig_rule(&g, "profile:no-network"), "effect"), "deny");
    const json_t *exec = json_array_get(json_object_get(g.a.table, "fallbacks"), 0);
    assert_string_equal(text_of(exec, "id"), "operator:exec");
    assert_string_equal(text_of(exec, "effect"), "ask");
    assert_string_equal(text_of(exec, "file"), "default.lua");
    assert_string_equal(text_of(rig_rule(&g, "operator:read"), "match"), "any");
    const json_t *rm = rig_rule(&g, "operator:no-rm-absolute");
    assert_string_equal(text_of(rm, "match"), "program");
    assert_string_equal(text_of(rm, "pattern"), "rm -r|-R|--recursive with /*|~*|.|..|../*");
    assert_string_equal(text_of(json_object_get(rm, "command"), "program"), "rm");
    assert_true(json_integer_value(json_object_get(rm, "line")) > 10);
    assert_non_null(rig_rule(&g, "operator:no-root-tools#2"));
    assert_true(json_is_true(json_object_get(g.a.manifest, "generated")));
    assert_string_equal(text_of(g.a.manifest, "goal"), "make the test pass");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(g.a.manifest, "allowed_paths"), 0)),
        "src/**");
    assert_int_equal(json_array_size(g.a.warnings), 0);
    assert_int_equal(rig_stop(&g), 0);
}

static void test_manifest(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g, NULL, good_manifest);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    const json_t *rule = rig_rule(&g, "manifest:process.exec:git diff*");
    assert_string_equal(text_of(rule, "effect"), "allow");
    assert_string_equal(text_of(rule, "match"), "command");
    assert_int_equal(json_integer_value(json_object_get(rule, "source")), 2);
    assert_string_equal(text_of(rig_rule(&g, "manifest:fs.read:*"), "match"), "any");
    assert_string_equal(text_of(rig_rule(&g, "manifest:fs.read:secret/**"), "match"), "path");
    const json_t *fallbacks = json_object_get(g.a.table, "fallbacks");
    assert_int_equal(json_array_size(fallbacks), 2); /* fs.read has a "*"; one is the policy's */
    assert_string_equal(text_of(json_array_get(fallbacks, 0), "id"),
                        "manifest:process.exec:unmatched");
    assert_string_equal(text_of(json_array_get(fallbacks, 0), "effect"), "deny");
    const json_t *paths = json_object_get(g.a.manifest, "allowed_paths");
    assert_string_equal(json_string_value(json_array_get(paths, 1)), "docs/**");
    const json_t *budget = json_object_get(g.a.manifest, "budget");
    assert_int_equal(json_integer_value(json_object_get(budget, "max_model_tokens")), 5000);
    assert_null(json_object_get(budget, "max_tool_calls"));
    assert_int_equal(rig_stop(&g), 0);
}

/* The same document in JSON makes the same table. */
static void test_manifest_json(void **state)
{
    (void)state;
    struct rig g, h;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_start(&h, BR_SCRIPT_POLICY);
    rig_compile(&g, NULL, good_manifest);
    rig_compile(
        &h, NULL,
        "{\"id\":\"fix-parser\",\"title\":\"Fix the parser\","
        "\"goal\":\"Make the failing test pass.\\n\",\"acceptance\":[\"the test passes\"],"
        "\"allowed_paths\":[\"src/**\",\"docs/\",\"README.md\"],\"permissions\":{\"process.exec\":"
        "{\"rm *\":\"deny\",\"git diff*\":\"allow\"},\"fs.write\":\"ask\","
        "\"fs.read\":{\"*\":\"allow\",\"secret/**\":\"deny\"}},"
        "\"budget\":{\"max_model_tokens\":5000},\"delivery\":{\"type\":\"none\"}}");
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_int_equal(h.a.type, BR_MSG_COMPILED);
    assert_true(json_equal(g.a.table, h.a.table));
    assert_true(json_equal(g.a.manifest, h.a.manifest));
    assert_int_equal(rig_stop(&g), 0);
    assert_int_equal(rig_stop(&h), 0);
}

/* A manifest inside the workspace loses its allows, and keeps what tightens. */
static void test_manifest_in_workspace(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile_n(&g, NULL, 0, good_manifest, strlen(good_manifest), true);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_null(rig_rule(&g, "manifest:process.exec:git diff*"));
    assert_null(rig_rule(&g, "manifest:fs.read:*"));
    assert_non_null(rig_rule(&g, "manifest:process.exec:rm *"));
    assert_non_null(rig_rule(&g, "manifest:fs.write"));
    assert_int_equal(json_array_size(json_object_get(g.a.table, "fallbacks")), 2);
    assert_int_equal(json_array_size(g.a.warnings), 2);
    assert_non_null(strstr(json_string_value(json_array_get(g.a.warnings, 0)),
                           "'manifest:fs.read:*' is not counted"));
    assert_int_equal(rig_stop(&g), 0);
}

/* After a compile the table is pinned: a second COMPILE is a violation and ends the program. */
static void test_compile_once(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g, NULL, NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    rig_compile(&g, NULL, NULL);
    assert_int_equal(g.a.type, 1);
    int status = rig_ended(&g, 5000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

/* A predicate before anything was compiled is a violation. */
static void test_predicate_before(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_predicate(&g, "{}");
    assert_int_equal(g.a.type, 1);
    int status = rig_ended(&g, 5000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

struct bad {
    const char *text;
    const char *code;
    unsigned line;
    const char *says;
};

/* Each text is refused as said by a program that can still compile a good one afterwards. */
static void refuse_all(const struct bad *list, size_t n, bool manifest)
{
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (size_t i = 0; i < n; i++) {
        if (manifest)
            rig_compile(&g, NULL, list[i].text);
        else
            rig_compile(&g, list[i].text, NULL);
        if (g.a.type != BR_MSG_SCRIPT_FAILED)
            fail_msg("not refused (0x%x): %s", g.a.type, list[i].text);
        if (!strstr(g.a.text, list[i].says) || g.a.line != list[i].line)
            fail_msg("'%s' in line %u, got line %u: %s", list[i].says, list[i].line, g.a.line,
                     g.a.text);
        assert_string_equal(br_code_name((int)g.a.code), list[i].code);
        assert_string_equal(g.a.file, manifest ? "tasks/task.yaml" : "/etc/somewhere/policy.lua");
    }
    rig_compile(&g, BUNDLE(""), NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_int_equal(rig_stop(&g), 0);
}

static void test_bad_policies(void **state)
{
    (void)state;
    static const struct bad list[] = {
        {"\n\nlocal x = = 1", "INVALID_POLICY", 3, "policy.lua:3:"},
        {"return 1", "INVALID_POLICY", 1, "the policy returned a number"},
        {"return 'allow'", "INVALID_POLICY", 1, "the policy returned a string"},
        {"return nil", "INVALID_POLICY", 1, "the policy returned nothing"},
        {"", "INVALID_POLICY", 0, ""}, /* replaced below: an empty policy means the default */
        {"return {}", "INVALID_POLICY", 1, "the policy returned a table"},
        {"return { api = 1, rules = {} }", "INVALID_POLICY", 1, "policy.bundle"},
        {HEAD "\nreturn policy.bundel {}", "INVALID_POLICY", 3, "did you mean 'bundle'"},
        {HEAD "return policy.bundle { api = 2 }", "INVALID_POLICY", 2, "api = 1"},
        {HEAD "return policy.bundle { api = 1, name = 'x', rules = {}, chekc = 1 }",
         "INVALID_POLICY", 2, "did you mean 'check'"},
        {HEAD "return policy.bundle { api = 1, name = 'x', rules = 7 }", "INVALID_POLICY", 2,
         "list of rules"},
        {BUNDLE("{ id = 'a' }"), "INVALID_POLICY", 2, "'rules' is a list"},
        {BUNDLE("7"), "INVALID_POLICY", 2, "is a number, not a rule"},
        {BUNDLE("\npolicy.deny { id = 'a', action = 'process.exce', command = 'rm *' }"),
         "INVALID_POLICY", 3, "process.exec"},
        {BUNDLE("\npolicy.deny { id = 'a', action = 'fs.wirte' }"), "INVALID_POLICY", 3,
         "did you mean 'fs.write'"},
        {BUNDLE("\n\npolicy.ask { id = 'a', acton = 'fs.read' }"), "INVALID_POLICY", 4,
         "did you mean 'action'"},
        {BUNDLE("policy.ask { action = 'fs.read' }"), "INVALID_POLICY", 2, "needs an id"},
        {BUNDLE("policy.ask { id = 'a' }"), "INVALID_POLICY", 2, "needs an action"},
        {BUNDLE("policy.ask { id = 'a', action = 'fs.read', command = 'x' }"), "INVALID_POLICY", 2,
         "use 'path'"},
        {BUNDLE("policy.ask { id = 'a', action = 'fs.read', path = '/etc/*' }"), "INVALID_POLICY",
         2, "relative to the workspace"},
        {BUNDLE("policy.ask { id = 'a', action = 'process.exec', command = 'a && b' }"),
         "INVALID_POLICY", 2, "simple command"},
        {BUNDLE("policy.ask { id = 'a', action = 'fs.read' },\n"
                "policy.ask { id = 'a', action = 'fs.write' }"),
         "INVALID_POLICY", 3, "is used in line 2"},
        {HEAD "policy.allwo { id = 'a' }", "INVALID_POLICY", 2, "did you mean 'allow'"},
        {"error { code = 7 }", "INVALID_POLICY", 1, "an error that is a table"},
        {"error(setmetatable({}, { __tostring = function() while true do end end }))",
         "INVALID_POLICY", 1, "an error that is a table"},
        {"error()", "INVALID_POLICY", 1, "an error that is a nil"},
        {"x = 1", "INVALID_POLICY", 1, "global 'x' cannot be set"},
        {"local y = poliyc", "INVALID_POLICY", 1, "did you mean 'policy'"},
        {"local y = policy.deny", "INVALID_POLICY", 1, "begin with 'local policy = require"},
        {HEAD "return policy.bundle { name = 'x' }", "INVALID_POLICY", 2, "does not say api = 1"},
        {"\xef\xbb\xbf"
         "return 1",
         "INVALID_POLICY", 1, "the policy returned a number"},
        {"local y = tostrin", "INVALID_POLICY", 1, "did you mean 'tostring'"},
        {"require 'os'", "INVALID_POLICY", 1, "there is no module 'os'"},
        {"\x1bLua\x54", "INVALID_POLICY", 0, "binary chunk"},
    };
    struct bad copy[BR_ARRAY_LEN(list)];
    memcpy(copy, list, sizeof(list));
    copy[4] = (struct bad){" ", "INVALID_POLICY", 1, "the policy returned nothing"};
    refuse_all(copy, BR_ARRAY_LEN(copy), false);
}

#define MAN(rest)                                                                                  \
    "id: a\ntitle: t\ngoal: g\nacceptance: [x]\nallowed_paths: [src/**]\npermissions: {}\n"        \
    "delivery: {type: none}\n" rest
#define PATHS(list)                                                                                \
    "id: a\ntitle: t\ngoal: g\nacceptance: [x]\nallowed_paths: " list "\npermissions: {}\n"        \
    "delivery: {type: none}\n"

static void test_bad_manifests(void **state)
{
    (void)state;
    static const struct bad list[] = {
        {" \n", "INVALID_MANIFEST", 0, "is empty"},
        {"# nothing", "INVALID_MANIFEST", 2, "empty"},
        {"just text", "INVALID_MANIFEST", 1, "expected a mapping"},
        {"- a\n- b\n", "INVALID_MANIFEST", 1, "expected a mapping"},
        {MAN("titel: x\n"), "INVALID_MANIFEST", 8, "did you mean 'title'"},
        {MAN("title: again\n"), "INVALID_MANIFEST", 8, "in the mapping already"},
        {MAN("budget: {max_model_token: 1}\n"), "INVALID_MANIFEST", 8, "'max_model_tokens'"},
        {MAN("budget: {max_tool_calls: 0}\n"), "INVALID_MANIFEST", 8, "an integer from 1"},
        {MAN("budget: {max_tool_calls: '7'}\n"), "INVALID_MANIFEST", 8, "found the text"},
        {MAN("budget: {max_tool_calls: 1.5}\n"), "INVALID_MANIFEST", 8, "found the text"},
        {MAN("budget: ~\n"), "INVALID_MANIFEST", 8, "found null"},
        {MAN("budget: &x {}\n"), "INVALID_MANIFEST", 8, "an anchor"},
        {MAN("budget: *x\n"), "INVALID_MANIFEST", 8, "an alias"},
        {MAN("budget: !!map {}\n"), "INVALID_MANIFEST", 8, "a tag"},
        {MAN("budget: !x 1\n"), "INVALID_MANIFEST", 8, "a tag"},
        {MAN("<<: {}\n"), "INVALID_MANIFEST", 8, "a merge key"},
        {MAN("? [a]\n: 1\n"), "INVALID_MANIFEST", 8, "a key must be a text"},
        {MAN("---\nid: b\n"), "INVALID_MANIFEST", 8, "one document"},
        {MAN("x: \"a\\0b\"\n"), "INVALID_MANIFEST", 8, "NUL"},
        {MAN("x: [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]\n"), "INVALID_MANIFEST", 8, "too deeply"},
        {MAN("x: [1\n"), "INVALID_MANIFEST", 9, "expected"},
        {MAN("x: \"\xff\"\n"), "INVALID_MANIFEST", 0, "UTF-8"},
        {"%YAML 1.1\n---\nid: a\n", "INVALID_MANIFEST", 1, "a directive"},
        {"id: Not Kebab\ntitle: t\ngoal: g\nacceptance: [x]\nallowed_paths: [a]\npermissions: {}\n"
         "delivery: {type: none}\n",
         "INVALID_MANIFEST", 1, "kebab-case"},
        {"id: a\n", "INVALID_MANIFEST", 1, "lacks the key 'acceptance'"},
        {PATHS("[]"), "INVALID_MANIFEST", 5, "at least 1"},
        {PATHS("[/etc]"), "INVALID_ALLOWED_PATH", 5, "absolute"},
        {PATHS("[src/../x]"), "INVALID_ALLOWED_PATH", 5, "'..'"},
        {PATHS("['**']"), "INVALID_ALLOWED_PATH", 5, "whole workspace"},
        {PATHS("['src/*.c']"), "INVALID_ALLOWED_PATH", 5, "wildcard"},
        {PATHS("['src/**/x']"), "INVALID_ALLOWED_PATH", 5, "wildcard"},
        {PATHS("['a,b']"), "INVALID_ALLOWED_PATH", 5, "','"},
        {PATHS("['a\\b']"), "INVALID_ALLOWED_PATH", 5, "'\\'"},
        {PATHS("[\"a\\nb\"]"), "INVALID_ALLOWED_PATH", 5, "control character"},
        {PATHS("['']"), "INVALID_ALLOWED_PATH", 5, "empty"},
        {PATHS("['.']"), "INVALID_ALLOWED_PATH", 5, "'.'"},
        {PATHS("[a//b]"), "INVALID_ALLOWED_PATH", 5, "empty segment"},
        {PATHS("[7]"), "INVALID_ALLOWED_PATH", 5, "found 7"},
        {PATHS("[docs/, docs/**]"), "INVALID_ALLOWED_PATH", 5, "twice"},
        {"{\"id\":\"a\",\"id\":\"b\"}", "INVALID_MANIFEST", 1, "duplicate"},
        {"{\n\"id\": nope}", "INVALID_MANIFEST", 2, "malformed"},
        {"{\"id\":1", "INVALID_MANIFEST", 0, "ends inside"},
        {"{\"id\":\"\\u0000\"}", "INVALID_MANIFEST", 0, "NUL"},
        {"{\"id\":\"\xc3\x28\"}", "INVALID_MANIFEST", 0, "UTF-8"},
        {"{} {}", "INVALID_MANIFEST", 1, "end of file"},
    };
    refuse_all(list, BR_ARRAY_LEN(list), true);
}

static void test_bad_permissions(void **state)
{
    (void)state;
#define PERM(map)                                                                                  \
    "id: a\ntitle: t\ngoal: g\nacceptance: [x]\nallowed_paths: [a]\ndelivery: {type: none}\n"      \
    "permissions: " map "\n"
    static const struct bad list[] = {
        {PERM("[]"), "INVALID_MANIFEST", 7, "expected a mapping"},
        {PERM("{process.exce: deny}"), "INVALID_MANIFEST", 7, "did you mean 'process.exec'"},
        {PERM("{fs.write: allwo}"), "INVALID_MANIFEST", 7, "did you mean 'allow'"},
        {PERM("{fs.write: yes}"), "INVALID_MANIFEST", 7, "found the text \"yes\""},
        {PERM("{fs.write: true}"), "INVALID_MANIFEST", 7, "found true"},
        {PERM("{fs.write: [allow]}"), "INVALID_MANIFEST", 7, "found a list"},
        {PERM("{fs.write: {}}"), "INVALID_MANIFEST", 7, "empty map"},
        {PERM("{fs.write: {a: {b: allow}}}"), "INVALID_MANIFEST", 7, "found a mapping"},
        {PERM("{fs.write: {/etc/x: deny}}"), "INVALID_MANIFEST", 7, "relative"},
        {PERM("{process.exec: {'a | b': deny}}"), "INVALID_MANIFEST", 7, "simple command"},
        {PERM("{'not an action': deny}"), "INVALID_MANIFEST", 7, "is not an action"},
    };
    refuse_all(list, BR_ARRAY_LEN(list), true);
}

/* Limits at N and N + 1. */
static void test_limits(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (unsigned extra = 0; extra < 2; extra++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
        br_buf_printf(&b, "%s", PATHS("[x]"));
        while (b.len < BR_MANIFEST_MAX)
            br_buf_put_u8(&b, '#');
        if (extra) {
            rig_compile_n(&g, NULL, 0, b.data, BR_MANIFEST_MAX + 1, false);
            assert_int_equal(g.a.type, 1); /* a longer document is never sent: a violation */
            continue;
        }
        b.data[b.len - 1] = '\n';
        rig_compile_n(&g, NULL, 0, b.data, BR_MANIFEST_MAX, false);
        assert_int_equal(g.a.type, BR_MSG_COMPILED);
        assert_int_equal(rig_stop(&g), 0);
        rig_start(&g, BR_SCRIPT_POLICY);
    }
    int status = rig_ended(&g, 5000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    rig_start(&g, BR_SCRIPT_POLICY);
    for (unsigned n = 65; n >= 64; n--) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
        br_buf_printf(&b, "id: a\ntitle: t\ngoal: g\nacceptance: [x]\npermissions: {}\n"
                          "delivery: {type: none}\nallowed_paths:\n");
        for (unsigned i = 0; i < n; i++)
            br_buf_printf(&b, "  - f%u\n", i);
        rig_compile_n(&g, NULL, 0, b.data, b.len, false);
        assert_int_equal(g.a.type, n == 64 ? BR_MSG_COMPILED : BR_MSG_SCRIPT_FAILED);
    }
    assert_int_equal(rig_stop(&g), 0);
}

/* 10,000 rules compile, within the time that is said in the design; 10,001 are refused. */
static void test_many_rules(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (int extra = 1; extra >= 0; extra--) {
        char text[512];
        snprintf(text, sizeof(text),
                 HEAD "local r = {}\nfor i = 1, %d do r[i] = policy.ask { id = 'r' .. i, action = "
                      "'process.exec', command = 'tool' .. i .. ' *' } end\n"
                      "return policy.bundle { api = 1, name = 'many', rules = r }",
                 10000 - 5 + extra); /* the profile has five */
        uint64_t start = br_now_us();
        rig_compile(&g, text, NULL);
        if (extra) {
            rig_code(&g, "INVALID_POLICY");
            rig_says(&g, "at most 10000");
        } else {
            assert_int_equal(g.a.type, BR_MSG_COMPILED);
            assert_int_equal(json_array_size(json_object_get(g.a.table, "rules")), 10000);
            print_message("10000 rules: %llu ms\n",
                          (unsigned long long)(br_now_us() - start) / 1000);
        }
    }
    assert_int_equal(rig_stop(&g), 0);
}

static void test_predicates(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g,
                HEAD "return policy.bundle { api = 1, name = 'p', rules = {}, check = function(q)\n"
                     "  if q.subject == 'loop' then while true do end end\n"
                     "  if q.subject == 'raise' then error('no') end\n"
                     "  if q.subject == 'odd' then return 'allways' end\n"
                     "  if q.subject == 'nest' then return q.env.a[2].b end\n"
                     "  if q.subject == 'odd key' then return q.efect end\n"
                     "  if q.subject == 'absent' then return q.model end\n"
                     "  if q.subject == 'allow' then return 'allow' end\n"
                     "  if q.subject:find('^prod') then return 'deny', 'not in production' end\n"
                     "  if q.subject == 'ask' then return 'ask' end\n"
                     "end }",
                NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_true(json_is_true(json_object_get(g.a.table, "predicates")));
    rig_predicate(&g, "{\"action\":\"x\",\"subject\":\"prod-1\"}");
    assert_int_equal(g.a.type, BR_MSG_PREDICATE_VOTE);
    assert_int_equal(g.a.flag, BR_EFFECT_DENY);
    assert_string_equal(g.a.file, "operator:check");
    assert_string_equal(g.a.text, "not in production");
    rig_predicate(&g, "{\"subject\":\"ask\"}");
    assert_int_equal(g.a.flag, BR_EFFECT_ASK);
    rig_predicate(&g, "{\"subject\":\"allow\"}");
    rig_code(&g, "POLICY_ERROR");
    rig_says(&g, "to allow, write a rule");
    rig_predicate(&g, "{\"subject\":\"nest\",\"env\":{\"a\":[1,{\"b\":\"ask\"}]}}");
    assert_int_equal(g.a.flag, BR_EFFECT_ASK);
    rig_predicate(&g, "{\"subject\":\"odd key\"}");
    rig_code(&g, "POLICY_ERROR");
    rig_says(&g, "a request has no field 'efect'; did you mean 'effect'?");
    rig_predicate(&g, "{\"subject\":\"absent\"}");
    assert_int_equal(g.a.flag, BR_EFFECT_NONE);
    rig_predicate(&g, "{\"subject\":\"other\"}");
    assert_int_equal(g.a.type, BR_MSG_PREDICATE_VOTE);
    assert_int_equal(g.a.flag, BR_EFFECT_NONE);
    rig_predicate(&g, "{\"subject\":\"loop\"}");
    rig_code(&g, "POLICY_ERROR");
    rig_says(&g, "ran for more than");
    assert_int_equal(g.a.line, 3);
    rig_predicate(&g, "{\"subject\":\"raise\"}");
    rig_code(&g, "POLICY_ERROR");
    assert_int_equal(g.a.line, 4);
    rig_predicate(&g, "{\"subject\":\"odd\"}");
    rig_code(&g, "POLICY_ERROR");
    rig_predicate(&g, "{\"subject\":");
    rig_code(&g, "INVALID_JSON");
    rig_predicate(&g, "{\"subject\":\"prod-1\"}"); /* still the same */
    assert_int_equal(g.a.flag, BR_EFFECT_DENY);
    assert_int_equal(rig_stop(&g), 0);
}

/* As many rules as there may be, each with a command and a condition of its own, fit into memory.
 */
static void test_many_commands(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    rig_compile(&g,
                HEAD "local rules = {}\n"
                     "for i = 1, 9900 do\n"
                     "  rules[i] = policy.ask { id = 'r' .. i, action = 'process.exec',\n"
                     "    when = { model = 'm' .. i % 500 }, command = policy.command { 'p' .. i,\n"
                     "      { 'run', 'test' }, flags = { { '-f', '--force' } } } }\n"
                     "end\n"
                     "return policy.bundle { api = 1, name = 'x', rules = rules }",
                NULL);
    if (g.a.type != BR_MSG_COMPILED)
        fail_msg("%s", g.a.text);
    assert_true(json_array_size(json_object_get(g.a.table, "rules")) >= 9900);
    assert_int_equal(rig_stop(&g), 0);
}

/* ---- several errors of one policy ---- */

static void check_errors(struct rig *g, const char *text, const char *const *says, size_t n)
{
    rig_compile(g, text, NULL);
    rig_code(g, "INVALID_POLICY");
    if (json_array_size(g->a.errors) != n)
        fail_msg("%zu errors, not %zu: %s", json_array_size(g->a.errors), n, g->a.text);
    for (size_t i = 0; i < n; i++) {
        const char *e = json_string_value(json_array_get(g->a.errors, i));
        if (strncmp(e, says[i], strlen(says[i])) != 0)
            fail_msg("error %zu is not '%s' but: %s", i, says[i], e);
    }
    const char *first = n ? json_string_value(json_array_get(g->a.errors, 0)) : "";
    if (strncmp(g->a.text, first, strlen(first)) != 0 || (n > 1 && !strstr(g->a.text, " more)")))
        fail_msg("the refusal does not say '%s' and how many more: %s", first, g->a.text);
}

/* All of them, each with its place, whoever finds them; a policy with one has no list. */
static void test_all_errors(void **state)
{
    (void)state;
    static const char *const made[] = {
        "policy.lua:3: 'comand' is not a field of policy.deny; did you mean 'command'?",
        "policy.lua:4: policy.ask needs an id",
        "policy.lua:5: the program 'git push' has a space in it",
        "policy.lua:6: 'when' is not a field of policy.otherwise",
        "policy.lua:7: policy.group shares nothing",
        "policy.lua:8: policy.check takes an id and a function",
        "policy.lua:10: rule 'twice': the id is used in line 9 already",
        "policy.lua:11: rule 'own': there is no action 'mail.send'",
        "policy.lua:2: 'check' must be a function of one request"};
    static const char *const proven[] = {"policy.lua:4: [dead-rule] rule 'b' never decides",
                                         "policy.lua:5: [dead-rule] rule 'c' never decides"};
    static const char *const later[] = {"policy.lua:2: the id 'A' must be lower-case",
                                        "policy.lua:3: attempt to call a nil value"};
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    check_errors(&g,
                 HEAD "local bundle = policy.bundle { api = 1, name = 'x', check = 1, rules = {\n"
                      "policy.deny { id = 'a', action = 'fs.read', comand = 'x' },\n"
                      "policy.ask { action = 'fs.read' },\n"
                      "policy.deny { id = 'c', action = 'process.exec', command = policy.command "
                      "{ 'git push' } },\n"
                      "policy.otherwise { id = 'd', action = 'fs.read', when = {} },\n"
                      "policy.group { policy.deny { id = 'e', action = 'fs.read' } },\n"
                      "policy.check('f', 7),\n"
                      "policy.deny { id = 'twice', action = 'fs.read' },\n"
                      "policy.ask { id = 'twice', action = 'fs.write' },\n"
                      "policy.ask { id = 'own', action = 'mail.send' },\n"
                      "} }\nreturn bundle",
                 made, BR_ARRAY_LEN(made));
    check_errors(&g,
                 HEAD "return policy.bundle { api = 1, name = 'x', rules = {\n"
                      "policy.deny { id = 'a', action = 'fs.write' },\n"
                      "policy.allow { id = 'b', action = 'fs.write', path = 'a' },\n"
                      "policy.ask { id = 'c', action = 'fs.write', path = 'b' } } }",
                 proven, BR_ARRAY_LEN(proven));
    check_errors(&g, HEAD "policy.deny { id = 'A', action = 'fs.read' }\nlocal x = nil x()", later,
                 BR_ARRAY_LEN(later));
    check_errors(&g,
                 HEAD "return policy.bundle { api = 1, name = 'x', rules = { policy.deny {} } }",
                 NULL, 0);
    rig_compile(&g, BUNDLE(""), NULL);
    assert_int_equal(g.a.type, BR_MSG_COMPILED);
    assert_int_equal(rig_stop(&g), 0);
}

/* The limit, and what is behind it. */
static void test_errors_are_bounded(void **state)
{
    (void)state;
    struct rig g;
    rig_start(&g, BR_SCRIPT_POLICY);
    for (unsigned n = 20; n <= 21; n++) {
        char text[256];
        snprintf(text, sizeof(text),
                 HEAD "local rules = {} for i = 1, %u do rules[i] = policy.deny { id = i } end\n"
                      "return policy.bundle { api = 1, name = 'x', rules = rules }",
                 n);
        rig_compile(&g, text, NULL);
        rig_code(&g, "INVALID_POLICY");
        assert_int_equal(json_array_size(g.a.errors), n);
        const char *last = json_string_value(json_array_get(g.a.errors, n - 1));
        if ((n > 20) != (strcmp(last, "and 1 more") == 0))
            fail_msg("of %u the last one is '%s'", n, last);
    }
    assert_int_equal(rig_stop(&g), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_commands),
        cmocka_unit_test(test_all_errors),
        cmocka_unit_test(test_errors_are_bounded),
        cmocka_unit_test(test_default_policy),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_manifest_json),
        cmocka_unit_test(test_manifest_in_workspace),
        cmocka_unit_test(test_compile_once),
        cmocka_unit_test(test_predicate_before),
        cmocka_unit_test(test_bad_policies),
        cmocka_unit_test(test_bad_manifests),
        cmocka_unit_test(test_bad_permissions),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_rules),
        cmocka_unit_test(test_predicates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
