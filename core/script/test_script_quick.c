/*
 * What quick.c recognises must be what the Lua beside it makes, and what it does not must be
 * refused in the same words. A value with a metatable is never recognised, so each bundle is
 * compiled twice, as it is and with one on everything: the tables, or the errors, are the same. And
 * the pool that a state's blocks come from, against plain memory.
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
#include "script/pool.h"
#include "script/script.h"

static uint64_t seed = 0x9e3779b97f4a7c15ull;
static unsigned roll(unsigned n)
{
    return br_test_roll(&seed, n);
}
#define PICK(list) list[roll(BR_ARRAY_LEN(list))]

static const char head[] =
    "local policy = require 'bridle.policy'\n"
    "local odd = %s\n"
    "local function T(t) return odd and setmetatable(t, {}) or t end\n"
    "return policy.bundle { api = 1, name = 'p', actions = { 'own.x' }, rules = {\n"
    "%s\n} }";

static int compile(const char *rules, bool odd, struct br_buf *table, char says[BR_ERR_TEXT_MAX])
{
    static char text[16384];
    static struct br_compile_out out;
    int n = snprintf(text, sizeof(text), head, odd ? "true" : "false", rules);
    struct br_compile_in in = {.profile_path = "",
                               .policy_path = "p.lua",
                               .policy = text,
                               .policy_len = (size_t)n,
                               .manifest_path = "",
                               .goal = "g",
                               .goal_len = 1};
    struct br_err err = {.code = BR_OK};
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    assert_non_null(s);
    br_compile_out_init(&out);
    int r = br_compile(s, &in, &out, &err);
    br_buf_reset(table);
    br_buf_put(table, out.table.data, out.table.len);
    snprintf(says, BR_ERR_TEXT_MAX, "%s", r < 0 ? err.text : "");
    br_compile_out_free(&out);
    br_script_free(&s);
    return r;
}

static bool same(const char *rules)
{
    BR_CLEANUP_BUF struct br_buf a = BR_BUF_INIT(BR_TABLE_MAX), b = BR_BUF_INIT(BR_TABLE_MAX);
    char says[BR_ERR_TEXT_MAX], other[BR_ERR_TEXT_MAX];
    int r = compile(rules, false, &a, says), q = compile(rules, true, &b, other);
    if (r != q || strcmp(says, other) != 0 || a.len != b.len ||
        (a.len && memcmp(a.data, b.data, a.len) != 0))
        fail_msg("%s\nquick: %s\nclose: %s", rules, says, other);
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    if (r == 0 && br_table_load(a.data, a.len, &t, &err) < 0)
        fail_msg("%s\ncompiles, but: %s", rules, err.text);
    br_table_free(&t);
    return r == 0;
}

static const char *const ids[] = {
    "'a'", "'a.b-c_9'", "'9'",           "'A'",           "'-a'",   "''",    "'a b'",
    "nil", "7",         "('a'):rep(64)", "('a'):rep(65)", "'a\\0'", "'a\\n'"};
static const char *const actions[] = {"'process.exec'", "'fs.read'", "'network'",    "'mcp.call'",
                                      "'own.x'",        "'*'",       "'fs.raed'",    "'list'",
                                      "{ 'fs.read' }",  "nil",       "'fs.write'",   "''",
                                      "'git.push'",     "3",         "'other.thing'"};
static const char *const matchers[] = {"command", "path", "host", "text"};
static const char *const patterns[] = {
    "'a.example.'",
    "'a:'",
    "'*.'",
    "'[::1]:1'",
    "'git *'",
    "'git'",
    "'git  *'",
    "' git'",
    "'git '",
    "'a;'",
    "'a && b'",
    "'src/**'",
    "'src/'",
    "'/src'",
    "'a/../b'",
    "'a/./b'",
    "'..'",
    "'.'",
    "'...'",
    "'a//b'",
    "'*.example'",
    "'A.example'",
    "'a.b:443'",
    "'http://x'",
    "'a\\\\b'",
    "'ä'",
    "'\\xff'",
    "'a\\tb'",
    "'a\\0b'",
    "''",
    "('a'):rep(1024)",
    "('a'):rep(1025)",
    "{ 'a', 'b' }",
    "{}",
    "5",
    "'tool+x *'",
    "'**/.env'",
    "'-x'",
    "'a_b/c-d.e'",
    "'a b c'",
    "policy.command(T { T { 'git' }, T { 'push', 'pull' } })",
    "policy.command(T { T { 'git' } , flags = T { T { '-f', '--force' }, T { '-r' } } })",
    "policy.command(T { T { 'rm' }, flags = T { T { '-rf' } } })",
    "policy.command(T { T { 'rm' }, flags = T { T { '--' } } })",
    "policy.command(T { T { 'rm' }, flags = T { T { '-' } } })",
    "policy.command(T { T { 'rm' }, flags = T { T { '--x=y' } } })",
    "policy.command(T { T { 'rm' }, flags = T { T { '-find' } } })",
    "policy.command(T { T { 'rm' }, flags = T {} })",
    "policy.command(T { T { 'rm', 'rm' }, without = '-f' })",
    "policy.command(T { T { 'rm' }, arguments = '/*' })",
    "policy.command(T { T { 'r m' } })",
    "policy.command(T { T { '-rm' } })",
    "policy.command(T { T { '/bin/rm' } })",
    "policy.command(T { T { 'git' }, T { '-x' } })",
    "policy.command(T { T { 'git' }, T { 'a*' } })",
    "policy.command(T { T { 'git' }, T {} })",
    "policy.command(T { T { 'git', nil, 'x' } })",
    "policy.command(T { T { 'g+.x', 'B_c-d' }, T { 'up' }, T { 'a' }, T { 'b' } })",
    "policy.command(T { 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j' })",
    "policy.command(T { T { ('a'):rep(255) }, T { ('b'):rep(255) }, T { 'c', 'd' } })",
    "policy.command(T { T { ('a'):rep(256) } })",
    "policy.command(T { T { 'a' }, flag = 'x' })",
    "policy.command(T { T { 'a' }, [3] = 'x' })",
};
static const char *const more[] = {"reason = 'so it is'",
                                   "reason = ''",
                                   "reason = 'ä'",
                                   "reason = 'a\\nb'",
                                   "reason = 5",
                                   "accept = 'over-broad'",
                                   "when = { tool = 'fs_read' }",
                                   "reson = 'x'",
                                   "[1] = 'x'",
                                   "reason = ('x'):rep(513)",
                                   "reason = ('x'):rep(512)"};

static void put_rule(char *dst, size_t size, bool good)
{
    static const char *const effects[] = {"allow", "ask", "deny"};
    char id[32] = "", match[256] = "", extra[64] = "";
    snprintf(id, sizeof(id), "'r%u'", roll(1000000));
    unsigned action = roll(good ? 3 : (unsigned)BR_ARRAY_LEN(actions));
    if (roll(6))
        snprintf(match, sizeof(match), ", %s = %s",
                 action < 3 && roll(10) ? matchers[action] : PICK(matchers), PICK(patterns));
    if (roll(3) == 0)
        snprintf(extra, sizeof(extra), ", %s", PICK(more));
    snprintf(dst, size, "policy.%s(T { id = %s, action = %s%s%s }),\n", PICK(effects),
             good || roll(5) ? id : PICK(ids), actions[action], match, extra);
}

static void test_quick_is_close(void **state)
{
    (void)state;
    unsigned compiled = 0;
    for (unsigned i = 0; i < 200; i++) {
        char rules[4096] = "";
        put_rule(rules, sizeof(rules), i % 2);
        compiled += same(rules);
    }
    assert_true(compiled > 15 && compiled < 185);
}

/* Every pattern with every matcher, and every one of the rest, each alone. */
static void test_each(void **state)
{
    (void)state;
    char rule[2048];
    for (size_t i = 0; i < BR_ARRAY_LEN(patterns); i++) {
        snprintf(rule, sizeof(rule), "policy.deny(T { id = 'a', action = '%s', %s = %s }),",
                 i % 2 ? "network" : "fs.read", i % 2 ? "host" : "path", patterns[i]);
        same(rule);
        snprintf(rule, sizeof(rule),
                 "policy.deny(T { id = 'a', action = 'process.exec', command = "
                 "%s }),",
                 patterns[i]);
        same(rule);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(ids); i++) {
        snprintf(rule, sizeof(rule), "policy.deny(T { id = %s, action = 'fs.read' }),", ids[i]);
        same(rule);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(actions); i++) {
        snprintf(rule, sizeof(rule), "policy.ask(T { id = 'a', action = %s }),", actions[i]);
        same(rule);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(more); i++) {
        snprintf(rule, sizeof(rule), "policy.ask(T { id = 'a', action = 'fs.write', %s }),",
                 more[i]);
        same(rule);
    }
}

/* ---- the pool ---- */

enum { BLOCKS = 200, STEPS = 60000 };

static void test_pool(void **state)
{
    (void)state;
    for (unsigned plain = 0; plain < 2; plain++) {
        struct br_pool p = {.max = 64 * 1024, .plain = plain};
        uint8_t *block[BLOCKS] = {NULL};
        size_t size[BLOCKS] = {0}, refused = 0;
        for (unsigned i = 0; i < STEPS; i++) {
            unsigned k = roll(BLOCKS);
            size_t n = roll(4) ? 1 + roll(600) : 1 + roll(4000);
            for (size_t b = 0; b < size[k]; b++)
                assert_int_equal(block[k][b], (uint8_t)k);
            if (roll(3) == 0) {
                br_pool_free(&p, block[k], size[k]);
                block[k] = NULL;
                size[k] = 0;
                continue;
            }
            uint8_t *moved = br_pool_realloc(&p, block[k], size[k], n);
            assert_true(moved || (!plain && n > size[k]));
            if (!moved) {
                refused++;
                continue;
            }
            assert_int_equal((uintptr_t)moved % 16, 0);
            memset(moved, (int)k, n);
            block[k] = moved;
            size[k] = n;
        }
        assert_true(plain ? refused == 0 : refused > 0 && p.bytes <= p.max);
        for (unsigned k = 0; k < BLOCKS; k++)
            br_pool_free(&p, block[k], size[k]);
        br_pool_end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick_is_close),
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
