/*
 * Memory that runs out: the n-th allocation of a compile and of a vote fails, for many n, once
 * (Lua then collects everything, in the middle of whatever it does, and tries again) and for good.
 * Each must end in a typed refusal, or in the same result as with memory; never in a crash, a leak
 * or another answer. The linker replaces malloc() and its kin for the whole program.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script/script.h"

/* ---- allocations ---- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static unsigned long allocations; /* since the last reset */
static unsigned long fail_at;     /* 0: never */
static bool for_good;

static bool fails(void)
{
    allocations++;
    return fail_at && (for_good ? allocations >= fail_at : allocations == fail_at);
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = fails() ? NULL : __real_malloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

static void arm(unsigned long at, bool good)
{
    allocations = 0;
    fail_at = at;
    for_good = good;
}

/* ---- what is done ---- */

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "local long = ('x'):rep(300) -- [==[ ]==]\n"
    "return policy.bundle { api = 1, name = 'small', rules = {\n"
    "  policy.deny { id = 'a', action = 'process.exec', command = { 'rm *', 'dd *' } },\n"
    "  policy.ask { id = 'c', action = 'process.exec', when = { env = 'PATH=*' },\n"
    "    command = policy.command { 'git', 'push', flags = { { '-f', '--force' } } } },\n"
    "  policy.group { reason = 'shared', policy.ask { id = 'd', action = 'network', host = 'a.b' } "
    "},\n"
    "  policy.otherwise { id = 'e', action = 'mcp.call' },\n"
    "  { policy.ask { id = 'b', action = { 'fs.read', 'fs.write' }, path = 'a/**', reason = 'so' } "
    "},\n"
    "}, check = function(request)\n"
    "  local ok, e = pcall(function() return json.decode('{\"a\":[1,2.5,null]}').a[1] + #long "
    "end)\n"
    "  if request.subject:find('^x+$') then return 'deny', 'no x ' .. tostring(ok and e) end\n"
    "end }\n";
static const char manifest[] = "id: a\ntitle: t\ngoal: g\nacceptance: [x]\npermissions: {fs.read: "
                               "{'a*': deny}}\nallowed_paths: [src/**]\ndelivery: {type: none}\n";
static const char request[] = "{\"action\":\"fs.read\",\"subject\":\"xxx\",\"callId\":\"c\"}";

struct run {
    struct br_script *s;
    struct br_compile_out out;
    struct br_err err;
    enum br_effect effect;
    struct br_buf reason;
};

static int compile(struct run *r)
{
    const char *const allowed[] = {"src/**"};
    struct br_compile_in in = {.policy_path = "p.lua",
                               .policy = policy,
                               .policy_len = sizeof(policy) - 1,
                               .manifest_path = "m.yaml",
                               .manifest = manifest,
                               .manifest_len = sizeof(manifest) - 1,
                               .allowed = allowed,
                               .nallowed = 1};
    r->err = (struct br_err){.code = BR_OK};
    br_compile_out_init(&r->out);
    return br_compile(r->s, &in, &r->out, &r->err);
}

static int vote(struct run *r)
{
    r->err = (struct br_err){.code = BR_OK};
    br_buf_init(&r->reason, 4096);
    char id[BR_NAME_MAX];
    return br_compile_vote(r->s, request, strlen(request), &r->effect, id, &r->reason, &r->err);
}

static struct run good; /* with memory */

static int setup(void **state)
{
    (void)state;
    good.s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    if (compile(&good) < 0)
        fail_msg("%s", good.err.text);
    if (vote(&good) < 0)
        fail_msg("%s", good.err.text);
    assert_int_equal(good.effect, BR_EFFECT_DENY);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_compile_out_free(&good.out);
    br_buf_free(&good.reason);
    br_script_free(&good.s);
    return 0;
}

static void same(const struct br_buf *a, const struct br_buf *b, unsigned long n)
{
    size_t i = 0;
    while (i < a->len && i < b->len && a->data[i] == b->data[i])
        i++;
    i -= i < 60 ? i : 60;
    if (a->len != b->len || memcmp(a->data, b->data, a->len) != 0)
        fail_msg("allocation %lu: another result than with memory: ...%.*s, not ...%.*s", n,
                 (int)(b->len - i), (const char *)b->data + i, (int)(a->len - i),
                 (const char *)a->data + i);
}

/* True while allocation n was reached. */
static bool new_at(unsigned long n, bool forever)
{
    arm(n, forever);
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    bool reached = allocations >= n;
    arm(0, false);
    if (!s && !reached)
        fail_msg("no state, with memory");
    br_script_free(&s);
    return reached;
}

static bool compile_at(unsigned long n, bool forever)
{
    struct run r = {.s = br_script_new(BR_SCRIPT_MEMORY_MAX)};
    assert_non_null(r.s);
    int top = lua_gettop(r.s->L);
    arm(n, forever);
    int code = compile(&r);
    bool reached = allocations >= n;
    arm(0, false);
    if ((code < 0) != (r.err.code != BR_OK) || (code < 0 && !r.err.text[0]))
        fail_msg("allocation %lu: %d without a reason", n, code);
    assert_true(code == 0 || (int)r.err.code == -code);
    if (code == 0) {
        same(&good.out.table, &r.out.table, n);
        same(&good.out.manifest, &r.out.manifest, n);
        same(&good.out.launch, &r.out.launch, n);
        if (!json_equal(good.out.warnings, r.out.warnings))
            fail_msg("allocation %lu: other warnings", n);
    }
    assert_int_equal(lua_gettop(r.s->L), top);
    br_compile_out_free(&r.out);
    br_script_free(&r.s);
    return reached;
}

/* In one state: after each failure it answers as before. */
static bool vote_at(unsigned long n, bool forever)
{
    struct run r = {.s = good.s};
    arm(n, forever);
    int code = vote(&r);
    bool reached = allocations >= n;
    arm(0, false);
    if ((code < 0) != (r.err.code != BR_OK) || (code < 0 && !r.err.text[0]))
        fail_msg("allocation %lu: %d without a reason", n, code);
    assert_int_equal(r.effect, BR_EFFECT_DENY); /* the predicate's, or because there is none */
    br_buf_free(&r.reason);
    if (vote(&r) < 0)
        fail_msg("allocation %lu: later: %s", n, r.err.text);
    same(&good.reason, &r.reason, n);
    br_buf_free(&r.reason);
    return reached;
}

/* Some allocations, more of them where memory is watched; most are others each time that the
 * program changes. BRIDLE_TEST_STRIDE=1: each. */
static unsigned long stride(void)
{
#ifdef BR_SANITIZED
    unsigned long n = 3;
#else
    unsigned long n = 7;
#endif
    const char *asked = getenv("BRIDLE_TEST_STRIDE");
    return asked && atoi(asked) > 0 ? (unsigned long)atoi(asked) : n;
}

static unsigned long every(bool (*at)(unsigned long, bool), bool forever)
{
    unsigned long n = 1, by = stride();
    while (at(n, forever))
        n += by;
    return n - 1;
}

static void test_new(void **state)
{
    (void)state;
    assert_true(every(new_at, false) > 100);
    assert_true(every(new_at, true) > 100);
}

static void test_compile_once(void **state)
{
    (void)state;
    assert_true(every(compile_at, false) > 1000);
}

static void test_compile_for_good(void **state)
{
    (void)state;
    assert_true(every(compile_at, true) > 1000);
}

static void test_vote(void **state)
{
    (void)state;
    assert_true(every(vote_at, false) > 10);
    assert_true(every(vote_at, true) > 10);
}

/* As in bridle-script: a block of malloc() is a chunk of many, so that fewer can fail. */
static void test_compile_pooled(void **state)
{
    (void)state;
    br_script_plain_memory = false;
    unsigned long once = every(compile_at, false), forever = every(compile_at, true);
    br_script_plain_memory = true;
    assert_true(once > 50 && forever > 50);
}

int main(void)
{
    br_script_plain_memory = true; /* every block of a state is one that can fail */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile_pooled), cmocka_unit_test(test_new),
        cmocka_unit_test(test_compile_once),   cmocka_unit_test(test_compile_for_good),
        cmocka_unit_test(test_vote),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
