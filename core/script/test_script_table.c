/*
 * From Lua to a decision: what the compiler makes of the shipped policy, of operators' rules and of
 * manifests, asked of the evaluator that will decide (core/policy).
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "script/script.h"

#define MANIFEST(permissions)                                                                      \
    "id: a\ntitle: t\ngoal: g\nacceptance: [x]\nallowed_paths: [src/**]\n"                         \
    "delivery: {type: none}\npermissions: " permissions "\n"

static struct br_table *compile(const char *policy, const char *manifest, bool in_workspace)
{
    static struct br_compile_out out;
    const char *allowed[] = {"src/**"};
    struct br_compile_in in = {.policy_path = "mine.lua",
                               .policy = policy,
                               .policy_len = policy ? strlen(policy) : 0,
                               .manifest_path = "m.yaml",
                               .manifest = manifest,
                               .manifest_len = manifest ? strlen(manifest) : 0,
                               .manifest_in_workspace = in_workspace,
                               .goal = "goal",
                               .goal_len = 4,
                               .allowed = allowed,
                               .nallowed = 1};
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    struct br_err err = {.code = BR_OK};
    struct br_table *t = NULL;
    br_compile_out_init(&out);
    if (br_compile(s, &in, &out, &err) < 0 ||
        br_table_load(out.table.data, out.table.len, &t, &err) < 0)
        fail_msg("%s", err.text);
    br_compile_out_free(&out);
    br_script_free(&s);
    return t;
}

/* The words of a command are separated by one space here. */
static struct br_decision decide(const struct br_table *t, const char *action, const char *subject)
{
    struct br_decision d = {0};
    static const struct br_context context = {.has_env = true};
    struct br_request q = {
        .action = action, .subject = subject, .subject_len = strlen(subject), .context = &context};
    const char *words[32];
    char copy[256], *save = NULL;
    if (strcmp(action, "process.exec") == 0) {
        snprintf(copy, sizeof(copy), "%s", subject);
        for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
            words[q.nwords++] = w;
        q.words = words;
    }
    br_table_decide(t, &q, &d);
    return d;
}

struct expect {
    const char *action, *subject;
    enum br_effect effect;
    const char *rule;
};

static void expect_all(struct br_table *t, const struct expect *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct br_decision d = decide(t, list[i].action, list[i].subject);
        if (d.effect != list[i].effect || strcmp(d.rule_id, list[i].rule) != 0)
            fail_msg("%s '%s': %s by '%s', not %s by '%s'", list[i].action, list[i].subject,
                     br_effect_name(d.effect), d.rule_id, br_effect_name(list[i].effect),
                     list[i].rule);
    }
    br_table_free(&t);
}

static void test_default(void **state)
{
    (void)state;
    static const struct expect list[] = {
        {"fs.read", "src/a.c", BR_EFFECT_ALLOW, "operator:read"},
        {"fs.read", ".", BR_EFFECT_ALLOW, "operator:read"},
        {"fs.read", ".env", BR_EFFECT_ASK, "operator:read-environment"},
        {"fs.read", "a/.env.local", BR_EFFECT_ASK, "operator:read-environment#2"},
        {"fs.read", "deploy/key.pem", BR_EFFECT_DENY, "operator:read-keys"},
        {"fs.read", "id_rsa", BR_EFFECT_DENY, "operator:read-keys"},
        {"fs.write", "src/a.c", BR_EFFECT_ALLOW, "operator:write"},
        {"fs.write", ".git/hooks/pre-commit", BR_EFFECT_DENY, "profile:no-git-internals"},
        {"fs.write", "sub/.git/config", BR_EFFECT_DENY, "profile:no-git-internals"},
        {"fs.write", ".gitignore", BR_EFFECT_ALLOW, "operator:write"},
        {"fs.write", ".gitattributes", BR_EFFECT_ASK, "operator:write-repository#5"},
        {"fs.read", ".git/HEAD", BR_EFFECT_ALLOW, "operator:read"},
        {"process.exec", "make test", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "ls -la src", BR_EFFECT_ALLOW, "operator:harmless"},
        {"process.exec", "git diff a", BR_EFFECT_ALLOW, "operator:harmless"},
        {"process.exec", "git log --outp=x", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "sort -uo x x", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "find -- . -fprint x", BR_EFFECT_ASK, "operator:find-acts"},
        {"process.exec", "grep x .env", BR_EFFECT_ASK, "operator:exec-secrets"},
        {"process.exec", "cat .ssh/config", BR_EFFECT_ASK, "operator:exec-secrets"},
        {"process.exec", "rm -rf /", BR_EFFECT_DENY, "operator:no-rm-absolute"},
        {"process.exec", "rm -rf build", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "git push", BR_EFFECT_DENY, "operator:no-push"},
        {"process.exec", "git -C d push", BR_EFFECT_DENY, "operator:no-push"},
        {"process.exec", "git --git-dir=x push", BR_EFFECT_DENY, "operator:no-push"},
        {"process.exec", "git -c alias.x=push x", BR_EFFECT_DENY, "operator:no-push"},
        {"process.exec", "/usr/bin/git push -f", BR_EFFECT_DENY, "operator:no-push"},
        {"process.exec", "git stash push", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "rm --recurs --force /etc", BR_EFFECT_DENY, "operator:no-rm-absolute"},
        {"process.exec", "/bin/rm -v -R ~", BR_EFFECT_DENY, "operator:no-rm-absolute"},
        {"process.exec", "rm -fr -- /", BR_EFFECT_DENY, "operator:no-rm-absolute"},
        {"process.exec", "rm -f /etc/x", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "sudo ls", BR_EFFECT_DENY, "operator:no-root-tools"},
        {"process.exec", "/sbin/mkfs.ext4 x", BR_EFFECT_DENY, "operator:no-root-tools"},
        {"process.exec", "dd if=a of=/dev/sda", BR_EFFECT_DENY, "operator:no-root-tools"},
        {"process.exec", "dd if=a of=b", BR_EFFECT_ASK, "operator:exec"},
        {"process.exec", "systemctl --no-pager reboot", BR_EFFECT_DENY, "operator:no-root-tools"},
        {"network", "example.org:443", BR_EFFECT_DENY, "profile:no-network"},
        {"deploy", "x", BR_EFFECT_ASK, "default"},
    };
    struct br_table *t = compile(NULL, NULL, false);
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++) {
        struct br_decision d = decide(t, list[i].action, list[i].subject);
        size_t n = strcspn(list[i].rule, "#");
        /* which of the patterns of one rule is named first does not matter */
        if (d.effect != list[i].effect || strncmp(d.rule_id, list[i].rule, n) != 0)
            fail_msg("%s '%s': %s by '%s'", list[i].action, list[i].subject,
                     br_effect_name(d.effect), d.rule_id);
    }
    br_table_free(&t);
}

static void test_manifest_only_tightens(void **state)
{
    (void)state;
    static const struct expect outside[] = {
        {"process.exec", "git diff --ext-diff", BR_EFFECT_ASK, "operator:exec"}, /* it asks */
        {"process.exec", "rm x", BR_EFFECT_DENY, "manifest:process.exec:rm *"},
        {"process.exec", "other", BR_EFFECT_DENY, "manifest:process.exec:unmatched"},
        {"fs.read", "a", BR_EFFECT_ALLOW, "operator:read"},
        {"fs.read", "secret/a", BR_EFFECT_DENY, "manifest:fs.read:secret/**"},
        {"fs.read", "id_rsa", BR_EFFECT_DENY, "operator:read-keys"},
        {"network", "a", BR_EFFECT_DENY, "profile:no-network"},
    };
    static const char manifest[] =
        MANIFEST("{process.exec: {'git diff*': allow, 'rm *': deny}, network: allow,"
                 " fs.read: {'*': allow, 'secret/**': deny, 'id_rsa': allow}}");
    struct br_table *t = compile(NULL, manifest, false);
    for (size_t i = 0; i < BR_ARRAY_LEN(outside); i++) {
        struct br_decision d = decide(t, outside[i].action, outside[i].subject);
        assert_int_equal(d.effect, outside[i].effect);
    }
    br_table_free(&t);
    /* in the workspace the allows are gone, and nothing that they overruled has become looser */
    static const struct expect inside[] = {
        {"process.exec", "git diff a", BR_EFFECT_DENY, "manifest:process.exec:unmatched"},
        {"process.exec", "rm x", BR_EFFECT_DENY, "manifest:process.exec:rm *"},
        {"fs.read", "secret/a", BR_EFFECT_DENY, "manifest:fs.read:secret/**"},
    };
    expect_all(compile(NULL, manifest, true), inside, BR_ARRAY_LEN(inside));
}

/* Adding a rule never loosens, and order never matters. */
static void test_order(void **state)
{
    (void)state;
#define RULE_A "policy.allow { id = 'a', action = 'process.exec', command = 'git *' }"
#define RULE_B "policy.deny { id = 'b', action = 'process.exec', command = 'git push*' }"
#define RULE_C                                                                                     \
    "policy.ask { id = 'c', action = { 'process.exec', 'fs.write' }, when = { tool = '*' } }"
#define BUNDLE(list)                                                                               \
    "local policy = require 'bridle.policy'\n"                                                     \
    "return policy.bundle { api = 1, name = 'o', rules = { " list " } }"
    static const char *const policies[] = {BUNDLE(RULE_A "," RULE_B "," RULE_C),
                                           BUNDLE(RULE_C "," RULE_B "," RULE_A),
                                           BUNDLE("{ " RULE_B ", { " RULE_C " } }," RULE_A)};
    static const struct expect list[] = {
        {"process.exec", "git push x", BR_EFFECT_DENY, "operator:b"},
        {"process.exec", "git diff", BR_EFFECT_ASK, "operator:c"},
        {"fs.write", "a", BR_EFFECT_ASK, "operator:c#2"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(policies); i++)
        expect_all(compile(policies[i], NULL, false), list, BR_ARRAY_LEN(list));
    static const struct expect allowed[] = {
        {"process.exec", "git diff", BR_EFFECT_ALLOW, "operator:a"},
        {"process.exec", "git push", BR_EFFECT_DENY, "operator:b"},
    };
    expect_all(compile(BUNDLE(RULE_A "," RULE_B), NULL, false), allowed, BR_ARRAY_LEN(allowed));
}

/* Long patterns make long ids, which the table cuts and keeps apart. */
static void test_long_ids(void **state)
{
    (void)state;
    char word[1001], manifest[4096];
    memset(word, 'x', 1000);
    word[1000] = '\0';
    snprintf(manifest, sizeof(manifest), MANIFEST("{fs.write: {'%s': deny, '%sy': ask}}"), word,
             word);
    struct br_table *t = compile(NULL, manifest, false);
    struct br_decision d = decide(t, "fs.write", word);
    assert_int_equal(d.effect, BR_EFFECT_DENY);
    assert_true(strlen(d.rule_id) <= BR_RULE_ID_MAX);
    br_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_manifest_only_tightens),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_long_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
