/*
 * Questions: what a grant for the run covers and what it does not, that each question gets exactly
 * one answer, that those of a turn are put together, and what a model is told of a denial. The
 * session's own code with the real evaluator and the real splitter; the client and pid 1 are the
 * rig's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "session/test_rig.h"

#define RULE(id, action, match, pattern, effect)                                                   \
    "{\"id\":\"operator:" id "\",\"source\":0,\"action\":\"" action "\",\"match\":\"" match "\","  \
    "\"pattern\":\"" pattern "\",\"effect\":\"" effect "\",\"file\":\"policy.lua\",\"line\":7}"

static const char head[] = "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"test\"}],"
                           "\"rules\":[";
static const char rules[] = RULE("ls", "process.exec", "command", "ls*", "allow") "," RULE(
    "wc", "process.exec", "command", "wc *",
    "allow") "," RULE("make", "process.exec", "command", "make*",
                      "ask") "," RULE("rm", "process.exec", "command", "rm *",
                                      "deny") "," RULE("reads", "fs.read", "path", "src/**",
                                                       "allow") "," RULE("keys", "fs.read", "path",
                                                                         "**/*.key",
                                                                         "deny") "," RULE("docs",
                                                                                          "fs."
                                                                                          "write",
                                                                                          "path",
                                                                                          "docs/**",
                                                                                          "allow");
static const char tail[] =
    "],\"fallbacks\":[{\"id\":\"operator:exec\",\"source\":0,\"action\":"
    "\"process.exec\",\"effect\":\"ask\",\"file\":\"policy.lua\",\"line\":9},"
    "{\"id\":\"operator:write\",\"source\":0,\"action\":\"fs.write\","
    "\"effect\":\"ask\"}],\"predicates\":false}";

struct fixture {
    struct session_rig rig;
    struct session_rig_options o;
    char table[8192];
    unsigned calls;
};

static void open_as(struct fixture *f, const char *more, struct session_rig_options o)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->table, sizeof(f->table), "%s%s%s%s", head, rules, more, tail);
    f->o = o;
    f->o.mode = BR_RUN_AGENT;
    f->o.table = f->table;
    f->o.sandbox = true;
    session_rig_open(&f->rig, &f->o);
    session_rig_load(&f->rig, &f->o);
    f->rig.s.budget.calls_max = 1000;
}

static void open_more(struct fixture *f, const char *answers, const char *more)
{
    open_as(f, more, (struct session_rig_options){.answers = answers});
}

static void open_who(struct fixture *f, const char *answers, const char *who)
{
    open_as(f, "", (struct session_rig_options){.answers = answers, .who = who});
}

static void open_with(struct fixture *f, const char *answers)
{
    open_more(f, answers, "");
}

/* One turn: pairs of tool and arguments. Returns how many effects it had. */
static unsigned turn(struct fixture *f, const char *const *pairs, char **replies)
{
    struct call calls[8];
    size_t n = 0;
    unsigned before = f->rig.seen->effects;
    struct br_err err;
    char *local[8] = {NULL};
    for (; pairs[2 * n]; n++) {
        calls[n] = (struct call){.arguments = NULL};
        snprintf(calls[n].id, sizeof(calls[n].id), "call-%u", ++f->calls);
        assert_int_equal(session_call_read(&calls[n], pairs[2 * n], pairs[2 * n + 1], &err), 0);
    }
    int r = session_calls(&f->rig.s, calls, n, replies ? replies : local);
    if (r < 0 && !f->rig.s.stop_code)
        fail_msg("%d", r);
    for (size_t i = 0; i < n; i++) {
        free(calls[i].arguments);
        free(local[i]);
    }
    return f->rig.seen->effects - before;
}

static unsigned exec_with(struct fixture *f, const char *arguments)
{
    return turn(f, (const char *const[]){"process_exec", arguments, NULL}, NULL);
}

static unsigned write_to(struct fixture *f, const char *path, const char *content)
{
    char args[512];
    snprintf(args, sizeof(args), "{\"path\":\"%s\",\"content\":\"%s\"}", path, content);
    return turn(f, (const char *const[]){"fs_write", args, NULL}, NULL);
}

static void expect_counts(const struct fixture *f, unsigned requested, unsigned allowed,
                          unsigned denied)
{
    const struct session_rig_seen *s = f->rig.seen;
    if (s->requested != requested || s->resolved_allow != allowed || s->resolved_deny != denied)
        fail_msg("%u requested, %u allowed, %u denied; not %u, %u, %u:\n%s", s->requested,
                 s->resolved_allow, s->resolved_deny, requested, allowed, denied, s->order);
}

/* ---- scope ---------------------------------------------------------------------------------- */

static const char make_test[] = "{\"argv\":[\"make\",\"test\"],\"cwd\":\"src\"}";

static void test_run_covers_the_same(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "r");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(exec_with(&f, make_test), 1);
    expect_counts(&f, 1, 1, 0);
    assert_int_equal(f.rig.seen->granted, 1);
    assert_int_equal(f.rig.seen->covered, 2);
    assert_int_equal(f.rig.seen->asks, 3); /* each decision is in the record, as what it was */
    assert_non_null(strstr(f.rig.seen->resolved, "for the rest of this run"));
    /* a path for the run covers each later write of it */
    assert_int_equal(write_to(&f, "src/a.c", "1"), 1);
    assert_int_equal(write_to(&f, "src/a.c", "2"), 1);
    expect_counts(&f, 2, 2, 0);
    session_rig_close(&f.rig);
}

/* Who answered through the service is said right behind the answer; at the own terminal nobody. */
static void test_who_answered(void **state)
{
    struct fixture f;
    const char *const answers[] = {"y", "r", "n"};
    const char *const said[] = {"\"decision\":\"allow\",\"scope\":\"once\"",
                                "\"decision\":\"allow\",\"scope\":\"run\"",
                                "\"decision\":\"deny\",\"scope\":\"once\""};
    (void)state;
    open_with(&f, "y");
    assert_int_equal(exec_with(&f, make_test), 1);
    assert_string_equal(f.rig.seen->answered, "");
    session_rig_close(&f.rig);
    for (unsigned i = 0; i < 3; i++) {
        open_who(&f, answers[i], "token:ops");
        (void)exec_with(&f, make_test);
        assert_non_null(strstr(f.rig.seen->answered, "\"by\":\"token:ops\""));
        assert_non_null(strstr(f.rig.seen->answered, said[i]));
        assert_non_null(strstr(f.rig.seen->order, i == 1 ? "permission.resolved call-1\n"
                                                           "bridle.answered -\nbridle.grant"
                                                         : "permission.resolved call-1\n"
                                                           "bridle.answered -\n"));
        session_rig_close(&f.rig);
    }
    /* nobody answered: nobody is named */
    open_who(&f, "s", "token:ops");
    (void)exec_with(&f, make_test);
    assert_string_equal(f.rig.seen->answered, "");
    session_rig_close(&f.rig);
}

/* What is no name ends the session, and nothing is allowed. */
static void test_who_is_checked(void **state)
{
    struct fixture f;
    (void)state;
    open_who(&f, "y", "token:\001");
    assert_int_equal(exec_with(&f, make_test), 0);
    assert_int_equal(f.rig.seen->resolved_allow, 0);
    session_rig_close(&f.rig);
}

static void test_time_to_answer(void **state)
{
    struct fixture f;
    (void)state;
    open_as(&f, "", (struct session_rig_options){.answers = "x", .ceilings = {.ask_seconds = 1}});
    assert_int_equal(exec_with(&f, make_test), 0);
    assert_non_null(strstr(f.rig.seen->resolved, "nobody answered in time"));
    session_rig_close(&f.rig);
}

/* A client may ask for less than the manifest says, never for more. */
static void test_ceilings_clamp(void **state)
{
    static const struct {
        uint64_t asked, has, gets;
    } rows[] = {{0, 100, 100}, {99, 100, 99}, {100, 100, 100}, {101, 100, 100}, {UINT64_MAX, 7, 7}};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct session s = {.ceilings = {.tokens = rows[i].asked, .tool_calls = rows[i].asked}};
        s.budget.tokens_max = s.budget.calls_max = (uint32_t)rows[i].has;
        session_clamp(&s);
        assert_int_equal(s.budget.tokens_max, rows[i].gets);
        assert_int_equal(s.budget.calls_max, rows[i].gets);
    }
}

static void test_once_covers_nothing_more(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "y");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(exec_with(&f, make_test), 1);
    expect_counts(&f, 3, 3, 0);
    assert_int_equal(f.rig.seen->granted + f.rig.seen->covered, 0);
    session_rig_close(&f.rig);
}

/* The first is allowed for the run; whatever differs is asked about again, and denied here. */
static void test_run_does_not_cover(void **state)
{
    static const char *const others[] = {
        "{\"argv\":[\"make\",\"test\",\"all\"],\"cwd\":\"src\"}", /* a word more */
        "{\"argv\":[\"make\"],\"cwd\":\"src\"}",                  /* the program's name */
        "{\"argv\":[\"make\",\"tests\"],\"cwd\":\"src\"}",
        "{\"argv\":[\"make\",\"test\",\"\"],\"cwd\":\"src\"}",
        "{\"argv\":[\"make test\"],\"cwd\":\"src\"}",
        "{\"argv\":[\"make\",\"test\"]}", /* another directory */
        "{\"argv\":[\"make\",\"test\"],\"cwd\":\"lib\"}",
        "{\"argv\":[\"make\",\"test\"],\"cwd\":\"src/sub\"}",
        "{\"argv\":[\"make\",\"test\"],\"cwd\":\"src\",\"stdin\":\"x\"}", /* another input */
        "{\"command\":\"make test\",\"cwd\":\"src\"}",                    /* a line for a shell */
        "{\"command\":\"A=1 make test\",\"cwd\":\"src\"}",                /* another environment */
        "{\"argv\":[\"env\",\"A=1\",\"make\",\"test\"],\"cwd\":\"src\"}",
        "{\"command\":\"make test && ls\",\"cwd\":\"src\"}", /* it and something harmless */
        "{\"command\":\"make test > docs/x\",\"cwd\":\"src\"}",
        "{\"argv\":[\"./make\",\"test\"],\"cwd\":\"src\"}",
        "{\"argv\":[\"nice\",\"make\",\"test\"],\"cwd\":\"src\"}",
    };
    struct fixture f;
    (void)state;
    open_with(&f, "rn");
    assert_int_equal(exec_with(&f, make_test), 1);
    for (size_t i = 0; i < BR_ARRAY_LEN(others); i++) {
        if (exec_with(&f, others[i]) != 0)
            fail_msg("%s was covered", others[i]);
        expect_counts(&f, 2 + (unsigned)i, 1, 1 + (unsigned)i);
    }
    /* another action with the same subject */
    assert_int_equal(write_to(&f, "make test", "x"), 0);
    assert_int_equal(exec_with(&f, make_test), 1); /* the control: it is covered still */
    session_rig_close(&f.rig);
}

/* A compound line is granted as a whole, and its parts are not. */
static void test_run_of_a_compound(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "rn");
    const char *line = "{\"command\":\"make a && gcc -c x.c\"}";
    assert_int_equal(exec_with(&f, line), 1);
    assert_int_equal(exec_with(&f, "{\"command\":\"make a\"}"), 0);
    assert_int_equal(exec_with(&f, "{\"command\":\"gcc -c x.c\"}"), 0);
    assert_int_equal(exec_with(&f, "{\"command\":\"gcc -c x.c && make a\"}"), 0);
    assert_int_equal(exec_with(&f, "{\"command\":\"make a  && gcc -c x.c\"}"), 0);
    assert_int_equal(exec_with(&f, line), 1);
    expect_counts(&f, 5, 1, 4);
    session_rig_close(&f.rig);
}

/* What cannot be taken apart is never granted for the run, whatever a client says. */
static void test_opaque_is_once(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "wyy");
    const char *line = "{\"command\":\"eval \\\"$X\\\"\"}";
    assert_int_equal(exec_with(&f, line), 0);
    assert_int_equal(f.rig.seen->refused, 1);
    assert_int_equal(f.rig.seen->accepted, 1);
    assert_non_null(strstr(f.rig.seen->ask, "\"scope\":\"once\""));
    assert_int_equal(exec_with(&f, line), 1);
    assert_int_equal(exec_with(&f, line), 1);
    expect_counts(&f, 3, 2, 1);
    assert_int_equal(f.rig.seen->granted, 0);
    session_rig_close(&f.rig);
}

static void use_table(struct fixture *f, const char *more)
{
    struct br_table *t = NULL;
    struct br_err err;
    snprintf(f->table, sizeof(f->table), "%s%s%s%s", head, rules, more, tail);
    if (br_table_load(f->table, strlen(f->table), &t, &err) < 0)
        fail_msg("%s", err.text);
    br_table_free(&f->rig.s.table);
    f->rig.s.table = t;
}

/* A deny is never overridden, and no grant survives a change of the policy. */
static void test_deny_and_another_policy(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "rn");
    assert_int_equal(exec_with(&f, make_test), 1);
    assert_int_equal(exec_with(&f, make_test), 1);
    use_table(&f, "," RULE("no-make", "process.exec", "command", "make test", "deny"));
    assert_int_equal(exec_with(&f, make_test), 0);
    expect_counts(&f, 1, 1, 0); /* nobody was asked */
    assert_non_null(strstr(f.rig.seen->result, "denied by rule 'operator:no-make'"));
    /* a policy that says the same of this call is another one */
    use_table(&f, "," RULE("other", "process.exec", "command", "other", "deny"));
    assert_int_equal(exec_with(&f, make_test), 0);
    expect_counts(&f, 2, 1, 1);
    use_table(&f, "");
    assert_int_equal(exec_with(&f, make_test), 1); /* the control: back to the first one */
    session_rig_close(&f.rig);
}

/* Another rule that asks was not answered. */
static void test_another_rule_asks(void **state)
{
    struct session_rig rig;
    struct session *s = &rig.s;
    (void)state;
    memset(&rig, 0, sizeof(rig));
    char words[2][8] = {"make", "test"};
    struct effect e = {.action = "process.exec", .subject = (char *)(uintptr_t) "make test"};
    e.op.op = BR_OP_EXEC;
    e.op.argv[0] = words[0];
    e.op.argv[1] = words[1];
    e.op.argc = 2;
    struct attempt a = {.e = &e}, b = {.e = &e};
    uint8_t one[BR_ENVIRONMENT_BYTES], two[BR_ENVIRONMENT_BYTES];
    char id[] = "r1", source[] = "operator";
    verdict_init(&a.v);
    a.v.rule_id = id;
    a.v.source = source;
    json_array_append_new(a.v.votes, json_pack("{s:s, s:s, s:s}", "source", "operator", "ruleId",
                                               "r1", "effect", "ask"));
    b.v = a.v;
    session_environment(s, &a, one);
    session_environment(s, &b, two);
    assert_memory_equal(one, two, sizeof(one));
    b.v.votes = json_deep_copy(a.v.votes);
    json_array_append_new(b.v.votes, json_pack("{s:s, s:s, s:s}", "source", "manifest", "ruleId",
                                               "r2", "effect", "ask"));
    session_environment(s, &b, two);
    assert_memory_not_equal(one, two, sizeof(one));
    json_decref(b.v.votes);
    b.v.votes = a.v.votes;
    const char *env[] = {"A=1"};
    s->as_of.env = env;
    s->as_of.nenv = 1;
    session_environment(s, &b, two);
    assert_memory_not_equal(one, two, sizeof(one));
    s->as_of.nenv = 0;
    /* the same bytes, divided otherwise */
    char joined[] = "maketest", none[] = "";
    e.op.argv[0] = joined;
    e.op.argv[1] = none;
    session_environment(s, &b, two);
    assert_memory_not_equal(one, two, sizeof(one));
    json_decref(a.v.votes);
    json_decref(a.v.pieces);
    json_decref(a.v.asking);
    json_decref(a.v.env);
}

/* A decision from another minute is made again, and can only get stricter. */
static void test_decided_again(void **state)
{
    struct fixture f;
    (void)state;
    static const struct {
        const char *more;
        int code;
        const char *said;
    } rows[] = {
        {"", 0, ""},
        {"," RULE("no-ls", "process.exec", "command", "ls x", "deny"), -BR_E_DENIED, "no-ls"},
        {"," RULE("ask-ls", "process.exec", "command", "ls x", "ask"), -BR_E_DENIED, "has changed"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct effect e;
        struct attempt a;
        struct br_err err;
        json_t *output = NULL, *args = json_pack("{s:[s,s]}", "argv", "ls", "x");
        open_with(&f, "y");
        assert_int_equal(tools_resolve("process_exec", args, &e, &err), 0);
        assert_int_equal(attempt_open(&f.rig.s, &a, "call-1", &e), 0);
        assert_int_equal(a.code, 0);
        if (i)
            use_table(&f, rows[i].more);
        unsigned decisions = f.rig.seen->events;
        a.minute--;
        assert_int_equal(attempt_run(&f.rig.s, &a, &output), rows[i].code);
        if (!strstr(a.err.text, rows[i].said))
            fail_msg("%s", a.err.text);
        /* another answer is recorded, the same one is not recorded twice */
        assert_int_equal(f.rig.seen->events - decisions, i ? 2 : 0);
        assert_int_equal(f.rig.seen->effects, i ? 0 : 1);
        attempt_free(&a);
        effect_free(&e);
        json_decref(output);
        json_decref(args);
        session_rig_close(&f.rig);
    }
}

/* A run of one command has no second time to answer for. */
static void test_exec_is_once(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "w");
    f.rig.s.mode = BR_RUN_EXEC;
    assert_int_equal(exec_with(&f, make_test), 0);
    assert_int_equal(f.rig.seen->refused, 1);
    expect_counts(&f, 1, 0, 1);
    session_rig_close(&f.rig);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void test_foreign_and_used_ids(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "udn");
    assert_int_equal(exec_with(&f, make_test), 1);
    assert_int_equal(f.rig.seen->refused, 2); /* unknown, and none at all */
    assert_int_equal(f.rig.seen->accepted, 1);
    assert_int_equal(exec_with(&f, make_test), 1);
    assert_int_equal(exec_with(&f, make_test), 0);
    assert_int_equal(f.rig.seen->refused, 4); /* the second and third answer to one question */
    expect_counts(&f, 3, 2, 1);
    assert_int_equal(f.rig.seen->granted, 0);
    session_rig_close(&f.rig);
}

static void test_no_terminal(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, NULL);
    assert_int_equal(exec_with(&f, make_test), 0);
    expect_counts(&f, 1, 0, 1);
    assert_int_equal(f.rig.seen->prompts, 0);
    assert_non_null(strstr(f.rig.seen->result, "\"answer\":\"unavailable\""));
    session_rig_close(&f.rig);
}

/* ---- together ------------------------------------------------------------------------------- */

static const char *const three[] = {"process_exec",
                                    make_test,
                                    "fs_read",
                                    "{\"path\":\"src/a.c\"}",
                                    "fs_write",
                                    "{\"path\":\"src/b.c\",\"content\":\"x\"}",
                                    "process_exec",
                                    "{\"argv\":[\"rm\",\"x\"]}",
                                    "process_exec",
                                    "{\"argv\":[\"gcc\",\"x.c\"]}",
                                    NULL};

static void test_group(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "y");
    assert_int_equal(turn(&f, three, NULL), 4);
    expect_counts(&f, 3, 3, 0);
    assert_int_equal(f.rig.seen->prompts, 1);
    /* everything is asked before anything runs, and the results come in the order of the calls */
    const char *p = strstr(f.rig.seen->order, "bridle.asks -");
    assert_non_null(p);
    assert_null(strstr(p, "permission.requested"));
    static const char *const then[] = {"permission.resolved call-1", "permission.resolved call-3",
                                       "permission.resolved call-5", "tool.result call-1",
                                       "tool.result call-2",         "tool.result call-3",
                                       "tool.result call-4",         "tool.result call-5"};
    for (size_t i = 0; i < BR_ARRAY_LEN(then); i++)
        if (!(p = strstr(p, then[i])))
            fail_msg("'%s' is missing or too early in:\n%s", then[i], f.rig.seen->order);
    session_rig_close(&f.rig);
}

static void test_group_one_by_one(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "nyr");
    assert_int_equal(turn(&f, three, NULL), 3);
    expect_counts(&f, 3, 2, 1);
    assert_int_equal(f.rig.seen->prompts, 1);
    assert_int_equal(f.rig.seen->granted, 1);
    session_rig_close(&f.rig);
}

/* The same twice in a turn: two questions, each with its answer; afterwards none. */
static void test_group_of_the_same(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "r");
    const char *const same[] = {"process_exec", make_test, "process_exec", make_test, NULL};
    assert_int_equal(turn(&f, same, NULL), 2);
    expect_counts(&f, 2, 2, 0);
    assert_int_equal(turn(&f, same, NULL), 2);
    expect_counts(&f, 2, 2, 0);
    session_rig_close(&f.rig);
}

static void test_group_is_canceled(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "s");
    assert_int_equal(turn(&f, three, NULL), 0);
    expect_counts(&f, 3, 0, 3);
    assert_int_equal(f.rig.s.stop_code, -BR_E_CANCELED);
    const char *p = f.rig.seen->types;
    unsigned results = 0;
    for (; (p = strstr(p, "tool.result")); p++)
        results++;
    assert_int_equal(results, 5); /* each call that was begun has one */
    session_rig_close(&f.rig);
}

/* A call that is over the budget ends the run after those before it. */
static void test_group_and_budget(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "y");
    f.rig.s.budget.calls_max = 2;
    assert_int_equal(turn(&f, three, NULL), 2);
    expect_counts(&f, 1, 1, 0);
    assert_int_equal(f.rig.s.stop_code, -BR_E_BUDGET_EXCEEDED);
    assert_null(strstr(f.rig.seen->order, "tool.call call-4"));
    session_rig_close(&f.rig);
}

/* ---- what is shown -------------------------------------------------------------------------- */

static json_t *asked(struct fixture *f, const char *arguments)
{
    assert_int_equal(exec_with(f, arguments), 0);
    json_t *data = json_loads(f->rig.seen->ask, 0, NULL);
    assert_non_null(data);
    return data;
}

static void expect_json(const json_t *data, const char *key, const char *want)
{
    BR_CLEANUP_FREE char *text =
        json_dumps(json_object_get(data, key), JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    if (!text || strcmp(text, want) != 0)
        fail_msg("%s is %s, not %s", key, text ? text : "absent", want);
}

static void test_prompt(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "n");
    json_t *d = asked(&f, "{\"command\":\"ls && A=1 make x > out/log < in.txt; curl "
                          "https://u:secret@example.com/y?z\",\"stdin\":\"abc\"}");
    /* what is allowed is no reason to ask */
    BR_CLEANUP_FREE char *commands = json_dumps(json_object_get(d, "commands"), JSON_COMPACT);
    static const char *const parts[] = {"\"make x\"", "curl 'https://u:secret@example.com/y?z'",
                                        "\"out/log\""};
    for (size_t i = 0; i < BR_ARRAY_LEN(parts); i++)
        if (!strstr(commands, parts[i]))
            fail_msg("%s is not in %s", parts[i], commands);
    assert_null(strstr(commands, "\"ls\""));
    expect_json(d, "touches",
                "{\"env\":[\"A=1\"],\"hosts\":[\"example.com\"],\"reads\":[\"in.txt\"],"
                "\"stdinBytes\":3,\"writes\":[\"out/log\"]}");
    json_decref(d);

    d = asked(&f, "{\"argv\":[\"gcc\",\"-c\",\"x.c\"]}");
    expect_json(d, "file", "\"policy.lua\"");
    expect_json(d, "line", "9");
    expect_json(d, "ruleId", "\"operator:exec\"");
    expect_json(
        d, "rules",
        "[{\"text\":\"policy.allow { id = \\\"allow-gcc-c\\\", action = \\\"process.exec\\\", "
        "command = \\\"gcc -c x.c\\\" },\"}]");
    expect_json(d, "why", "\"bridle policy why --run run-1 --call call-2\"");
    json_decref(d);

    d = asked(&f, make_test); /* a rule that asks: no allow helps */
    assert_null(json_object_get(d, "rules"));
    assert_non_null(strstr(json_string_value(json_object_get(d, "advice")), "narrow or remove"));
    expect_json(d, "touches", "{\"directory\":\"src\"}");
    json_decref(d);

    /* where the rule goes, and how it comes into force */
    static const struct {
        const char *path;
        uint64_t generation;
        const char *says;
    } ways[] = {
        {"/etc/p.lua", 0, "To be asked no more, add to 'rules' in /etc/p.lua:"},
        {"/etc/p.lua", 2,
         "To be asked no more, add to 'rules' in /etc/p.lua, and run 'bridle policy reload':"},
        {"", 0,
         "To be asked no more, add to 'rules' of a policy of your own (extend = \"default\"), and "
         "run with -p FILE:"},
        {"", 1,
         "To be asked no more, add to 'rules' of a policy of your own (extend = \"default\"), and "
         "run 'bridle policy reload FILE':"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(ways); i++) {
        snprintf(f.rig.s.policy_path, sizeof(f.rig.s.policy_path), "%s", ways[i].path);
        f.rig.s.pin.generation = ways[i].generation;
        d = asked(&f, "{\"argv\":[\"gcc\",\"-c\",\"x.c\"]}");
        assert_string_equal(json_string_value(json_object_get(d, "advice")), ways[i].says);
        json_decref(d);
    }

    /* what would be another pattern, or no Lua, is not suggested */
    static const char *const odd[] = {
        "{\"argv\":[\"gcc\",\"*.c\"]}", "{\"argv\":[\"gcc\",\"a\\\"b\"]}",
        "{\"argv\":[\"gcc\",\"a b\"]}", "{\"argv\":[\"gcc\",\"\\u001b[2J\"]}"};
    for (size_t i = 0; i < BR_ARRAY_LEN(odd); i++) {
        d = asked(&f, odd[i]);
        assert_null(json_object_get(d, "rules"));
        json_decref(d);
    }
    session_rig_close(&f.rig);
}

/* ---- what a model is told ------------------------------------------------------------------- */

static json_t *denial(struct fixture *f, const char *tool, const char *arguments)
{
    char *reply[8] = {NULL};
    assert_int_equal(turn(f, (const char *const[]){tool, arguments, NULL}, reply), 0);
    assert_non_null(reply[0]);
    assert_null(strchr(reply[0], '\n'));
    json_t *v = json_loads(reply[0], JSON_REJECT_DUPLICATES, NULL);
    free(reply[0]);
    assert_true(json_is_false(json_object_get(v, "ok")));
    json_t *denied = json_incref(json_object_get(v, "denied"));
    json_decref(v);
    assert_non_null(denied);
    return denied;
}

static void test_denial(void **state)
{
    struct fixture f;
    (void)state;
    open_with(&f, "n");
    json_t *d = denial(&f, "process_exec", "{\"argv\":[\"rm\",\"-r\",\"x\"]}");
    expect_json(d, "action", "\"process.exec\"");
    expect_json(d, "effect", "\"deny\"");
    expect_json(d, "rule", "\"operator:rm\"");
    expect_json(d, "allowed", "[\"ls*\",\"wc *\"]");
    assert_null(json_object_get(d, "answer"));
    json_decref(d);
    /* the nearest first */
    d = denial(&f, "process_exec", "{\"command\":\"wc a; rm x\"}");
    expect_json(d, "allowed", "[\"ls*\",\"wc *\"]");
    json_decref(d);
    d = denial(&f, "process_exec", "{\"argv\":[\"./wc\",\"x\"]}");
    expect_json(d, "effect", "\"ask\"");
    expect_json(d, "answer", "\"denied\"");
    expect_json(d, "allowed", "[\"wc *\",\"ls*\"]");
    json_decref(d);
    d = denial(&f, "fs_read", "{\"path\":\"src/my.key\"}");
    expect_json(d, "allowed", "[\"src/**\"]");
    json_decref(d);
    d = denial(&f, "fs_write", "{\"path\":\"src/x\",\"content\":\"\"}");
    expect_json(d, "allowed", "[\"docs/**\"]");
    json_decref(d);
    /* and it is recorded as it was told */
    json_t *result = json_loads(f.rig.seen->result, 0, NULL);
    assert_non_null(json_object_get(json_object_get(result, "output"), "denied"));
    json_decref(result);
    session_rig_close(&f.rig);
}

/* Bounded, and without what looks like a credential. */
static void test_denial_is_small_and_clean(void **state)
{
    struct fixture f;
    (void)state;
    BR_CLEANUP_BUF struct br_buf more = BR_BUF_INIT(6000);
    for (unsigned i = 0; i < 12; i++)
        br_buf_printf(&more, "," RULE("x%u", "git.push", "text", "b%u*", "allow"), i, i);
    br_buf_printf(&more, "," RULE("long", "fs.write", "path", "docs2/%0300d", "allow"), 0);
    br_buf_printf(&more, "," RULE("key", "fs.write", "path",
                                  "docs3/ghp_0123456789abcdefghijABCDEFGHIJ012345", "allow"));
    open_more(&f, "n", br_buf_cstr(&more));
    json_t *d = denial(&f, "fs_write", "{\"path\":\"docs3/x\",\"content\":\"\"}"), *v;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(d, "allowed")), 3);
    json_array_foreach(json_object_get(d, "allowed"), i, v)
    {
        assert_true(json_string_length(v) <= 163);
        assert_null(strstr(json_string_value(v), "0123456789abcdef"));
    }
    json_decref(d);
    struct br_instead list[BR_INSTEAD_MAX];
    assert_int_equal(br_table_instead(f.rig.s.table, "git.push", "b7", NULL, list, 99),
                     BR_INSTEAD_MAX);
    assert_string_equal(list[0].pattern, "b7*");
    session_rig_close(&f.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_covers_the_same),
        cmocka_unit_test(test_who_answered),
        cmocka_unit_test(test_who_is_checked),
        cmocka_unit_test(test_time_to_answer),
        cmocka_unit_test(test_ceilings_clamp),
        cmocka_unit_test(test_once_covers_nothing_more),
        cmocka_unit_test(test_run_does_not_cover),
        cmocka_unit_test(test_run_of_a_compound),
        cmocka_unit_test(test_opaque_is_once),
        cmocka_unit_test(test_deny_and_another_policy),
        cmocka_unit_test(test_another_rule_asks),
        cmocka_unit_test(test_decided_again),
        cmocka_unit_test(test_exec_is_once),
        cmocka_unit_test(test_foreign_and_used_ids),
        cmocka_unit_test(test_no_terminal),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_group_one_by_one),
        cmocka_unit_test(test_group_of_the_same),
        cmocka_unit_test(test_group_is_canceled),
        cmocka_unit_test(test_group_and_budget),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_denial),
        cmocka_unit_test(test_denial_is_small_and_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
