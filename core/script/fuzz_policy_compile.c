/*
 * A bundle's text from anywhere: it ends in a typed refusal that says something, or in a table that
 * loads and decides, the same one each time, whatever the order of its rules.
 *
 * An input that begins with a printable byte is Lua behind `local policy = ...`, without words that
 * make loops or functions, so that each is over in a moment. Another one is a list of choices, from
 * which rules are written: most of these are well-formed and reach the proofs and the table.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "script/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT_MAX 2000u
#define RULES_MAX 12u
#define STATE_ROUNDS 100u /* what policy.lua keeps of bundles grows */

/* ---- a bundle out of choices ---- */

struct choices {
    const uint8_t *p;
    size_t n;
};

static unsigned choose(struct choices *c, unsigned of)
{
    if (c->n == 0)
        return 0;
    c->n--;
    return *c->p++ % of;
}
#define CHOOSE(c, list) list[choose(c, (unsigned)BR_ARRAY_LEN(list))]

static const char *const actions[] = {"'process.exec'",
                                      "'fs.read'",
                                      "'fs.write'",
                                      "'network'",
                                      "'mcp.call'",
                                      "'own.one'",
                                      "{ 'fs.read', 'own.one' }",
                                      "'*'",
                                      "'fs.reed'",
                                      "nil",
                                      "{ 'fs.write', 'fs.read' }"};
static const char *const matchers[] = {"command", "path", "host", "text"};
static const char *const whens[] = {
    "{ tool = 'fs_*' }",
    "{ tool = 'fs_raed', model = { 'a', 'b?' } }",
    "{ env = { 'A', 'LD_*' } }",
    "{ time = { days = 'mon-fri', from = '20:00', to = '06:00', zone = '+02:00' } }",
    "{ budget = { calls = { used_over = 5, used_under = 4 } } }",
    "{ budget = { asks = { left_under = 9 } } }",
    "{ tool = 'a' }, accept = 'unknown-tool'",
    "{}",
    "{ time = { from = '24:00' } }"};
static const char *const values[] = {"'git *'",     "'*'", "'src/**'",    "'a'",
                                     "'*.example'", "{}",  "{ 'a', 'b' }"};

/* A pattern of the bytes that mean something, and of a few that must not. */
static void put_pattern(struct choices *c, struct br_buf *b)
{
    static const char alphabet[] = "ab/.*?:- gitrm*\\=\x01\xc3\xa4\"~{";
    br_buf_put_u8(b, '\'');
    for (unsigned n = choose(c, 14); n > 0; n--) {
        char x = alphabet[choose(c, sizeof(alphabet) - 1)];
        if (x == '\\')
            br_buf_put_u8(b, '\\');
        br_buf_put_u8(b, (uint8_t)x);
    }
    br_buf_put_u8(b, '\'');
}

static void put_command(struct choices *c, struct br_buf *b)
{
    static const char *const words[] = {
        "'git'", "{ 'rm', 'git' }", "'push'", "{ 'log', 'a*' }", "'*'", "'-x'", "'./x'", "{}"};
    static const char *const more[] = {"flags = { { '-f', '--force' } }",
                                       "flags = '-r'",
                                       "flags = { '-a', '-b' }",
                                       "without = '--force'",
                                       "without = { '-f' }, flags = { { '-f' } }",
                                       "arguments = '/*'",
                                       "flag = 1"};
    br_buf_printf(b, "policy.command { %s", CHOOSE(c, words));
    for (unsigned n = choose(c, 3); n > 0; n--)
        br_buf_printf(b, ", %s", CHOOSE(c, words));
    if (choose(c, 2))
        br_buf_printf(b, ", %s", CHOOSE(c, more));
    br_buf_put(b, " }", 2);
}

static void put_rule(struct choices *c, struct br_buf *b, unsigned id)
{
    static const char *const makers[] = {"deny", "ask", "allow", "allow", "otherwise"};
    /* one after another: compilers differ in the order of arguments */
    unsigned action = choose(c, BR_ARRAY_LEN(actions));
    unsigned shape = choose(c, 8);
    const char *maker = CHOOSE(c, makers);
    if (choose(c, 16) == 0)
        id = 0;
    br_buf_printf(b, "policy.%s { id = 'r%u', action = %s", maker, id, actions[action]);
    if (shape > 0) {
        const char *kind = action < 4 && choose(c, 8) ? matchers[action > 0 ? (action + 1) / 2 : 0]
                                                      : CHOOSE(c, matchers);
        br_buf_printf(b, ", %s = ", kind);
        if (shape < 3)
            put_command(c, b);
        else if (shape < 5)
            br_buf_printf(b, "%s", CHOOSE(c, values));
        else
            put_pattern(c, b);
    }
    if (choose(c, 4) == 0)
        br_buf_printf(b, ", when = %s", CHOOSE(c, whens));
    if (choose(c, 6) == 0)
        br_buf_printf(b, ", reason = 'so'");
    br_buf_put(b, " },\n", 4);
}

/* Rules, each on a line of its own; the number of them. */
static unsigned put_rules(struct choices *c, struct br_buf rules[RULES_MAX])
{
    unsigned n = 1 + choose(c, RULES_MAX);
    for (unsigned i = 0; i < n; i++)
        put_rule(c, &rules[i], i);
    return n;
}

static void put_bundle(struct br_buf *b, const struct br_buf *rules, unsigned n, uint8_t how,
                       bool reversed)
{
    static const char *const heads[] = {"",
                                        "actions = { 'own.one' },",
                                        "actions = { 'own.one' }, extend = 'denials',",
                                        "actions = { 'own.one' }, check = function(r) end,",
                                        "actions = { 'fs.rea' },",
                                        "name = 2,"};
    br_buf_printf(b, "return policy.bundle { api = 1, name = 'f', %s rules = {\n",
                  heads[how % BR_ARRAY_LEN(heads)]);
    if (how & 0x40)
        br_buf_printf(b, "policy.group { reason = 'shared',\n");
    for (unsigned i = 0; i < n; i++) {
        const struct br_buf *r = &rules[reversed ? n - 1 - i : i];
        br_buf_put(b, r->data, r->len);
    }
    br_buf_printf(b, how & 0x40 ? "} } }" : "} }");
}

/* ---- what must hold ---- */

static const char *const push[] = {"git", "push"}, *const rm[] = {"/bin/rm", "-rf", "--", "a"};
static const struct br_context context = {.tool = "fs_read", .model = "a", .has_env = true};
static const struct br_request asked[] = {
    {.action = "process.exec", .words = push, .nwords = 2},
    {.action = "process.exec", .words = rm, .nwords = 4, .context = &context},
    {.action = "fs.read", .subject = "src/a", .subject_len = 5, .context = &context},
    {.action = "fs.write", .subject = "a", .subject_len = 1},
    {.action = "network", .subject = "a.example:443", .subject_len = 13},
    {.action = "own.one"},
};

struct result {
    int code;
    struct br_buf table;
    enum br_effect effects[BR_ARRAY_LEN(asked)];
};

static void decide_all(const struct br_buf *json, enum br_effect *effects)
{
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    if (br_table_load(json->data, json->len, &t, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
    br_require(t != NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(asked); i++) {
        struct br_decision d;
        br_table_decide(t, &asked[i], &d);
        br_require(d.effect >= BR_EFFECT_ALLOW && d.effect <= BR_EFFECT_DENY);
        effects[i] = d.effect;
    }
    br_table_free(&t);
}

static void compile(const struct br_buf *text, struct result *r)
{
    static const char head[] = "local policy = require 'bridle.policy' ";
    static struct br_script *s;
    static struct br_compile_kept kept;
    static unsigned rounds;
    BR_CLEANUP_BUF struct br_buf whole = BR_BUF_INIT(65536);
    struct br_err err = {.code = BR_OK};
    static struct br_compile_out out;
    if (rounds++ % STATE_ROUNDS == 0) {
        br_script_plain_memory = false; /* or nearly all of the time is spent looking for leaks */
        br_script_free(&s);
        s = br_script_new(BR_SCRIPT_MEMORY_MAX);
        br_require(s != NULL);
    }
    br_buf_put(&whole, head, sizeof(head) - 1);
    br_buf_put(&whole, text->data, text->len);
    struct br_compile_in in = {.kept = &kept,
                               .profile_path = "",
                               .policy_path = "f.lua",
                               .policy = whole.data,
                               .policy_len = whole.len,
                               .manifest_path = "",
                               .goal = "g",
                               .goal_len = 1};
    br_compile_out_init(&out);
    r->code = br_compile(s, &in, &out, &err);
    br_buf_init(&r->table, BR_TABLE_MAX);
    if (r->code < 0) {
        br_require(err.code == BR_E_INVALID_POLICY && r->code == -(int)err.code);
        br_require(err.text[0] && out.table.len == 0);
    } else {
        br_require(err.code == BR_OK && out.table.len > 0);
        br_buf_put(&r->table, out.table.data, out.table.len);
        decide_all(&r->table, r->effects);
    }
    br_compile_out_free(&out);
}

static bool has_word(const struct br_buf *b, const char *word)
{
    return memmem(b->data, b->len, word, strlen(word)) != NULL;
}

static void check_text(const uint8_t *data, size_t size)
{
    static const char *const slow[] = {"while", "for", "repeat", "goto", "function"};
    struct br_buf text = BR_BUF_INIT(TEXT_MAX);
    br_buf_put(&text, data, size);
    bool quick = true;
    for (size_t i = 0; i < BR_ARRAY_LEN(slow) && text.len; i++)
        quick &= !has_word(&text, slow[i]);
    if (quick) {
        struct result r;
        compile(&text, &r);
        br_buf_free(&r.table);
    }
    br_buf_free(&text);
}

static void check_rules(const uint8_t *data, size_t size)
{
    struct choices c = {data + 1, size - 1};
    struct br_buf rules[RULES_MAX];
    struct br_buf text = BR_BUF_INIT(32768), mixed = BR_BUF_INIT(32768);
    uint8_t how = (uint8_t)choose(&c, 256);
    for (unsigned i = 0; i < RULES_MAX; i++)
        br_buf_init(&rules[i], 2048);
    unsigned n = put_rules(&c, rules);
    struct result a, b;
    put_bundle(&text, rules, n, how, false);
    put_bundle(&mixed, rules, n, how, true);
    compile(&text, &a);
    compile(data[0] & 1 ? &mixed : &text, &b);
    br_require(a.code == b.code);
    if (a.code == 0 && data[0] & 1)
        br_require(memcmp(a.effects, b.effects, sizeof(a.effects)) == 0);
    else if (a.code == 0)
        br_require(a.table.len == b.table.len &&
                   memcmp(a.table.data, b.table.data, a.table.len) == 0);
    br_buf_free(&a.table);
    br_buf_free(&b.table);
    br_buf_free(&text);
    br_buf_free(&mixed);
    for (unsigned i = 0; i < RULES_MAX; i++)
        br_buf_free(&rules[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 && data[0] >= 0x20)
        check_text(data, size);
    else if (size > 1)
        check_rules(data, size);
    return 0;
}
