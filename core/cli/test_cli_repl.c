/*
 * Lines of 'bridle repl' (verb or Lua, words, ranges, what was meant) and what events say together.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/repl.h"

static void test_verb_or_lua(void **state)
{
    (void)state;
    static const struct {
        const char *line, *verb; /* NULL: Lua */
    } rows[] = {
        {"sessions", "sessions"},
        {"  sessions  ", "sessions"},
        {"session last", "session"},
        {"session \"last\"", "session"},
        {"events last ..5", "events"},
        {"events last tool.call", "events"},
        {"why process.exec rm -rf x", "why"},
        {"limits 3 4", "limits"},
        {"help", "help"},
        {"help events", "help"},
        {"quit", "quit"},
        {"exit", "quit"},
        {"policy ./my.lua", "policy"},
        {"policy /etc/x.lua", "policy"},
        {"policy ~/x.lua", "policy"},
        {"policy ~= nil", NULL},
        {"policy '/etc/x.lua'", "policy"},
        {"sessions[1]", NULL},
        {"sessions [1]", NULL},
        {"sessions = 1", NULL},
        {"sessions == nil", NULL},
        {"#sessions", NULL},
        {"sessions.x", NULL},
        {"sessions . x", NULL},
        {"events(\"last\")", NULL},
        {"events (\"last\")", NULL},
        {"help(x)", NULL},
        {"lease{1}", NULL},
        {"lease {1}", NULL},
        {"policy + 1", NULL},
        {"policy - 1", NULL},
        {"leases, x = 1, 2", NULL},
        {"exit 3", NULL},
        {"sessionz", NULL},
        {"session\xc3\xa9 x", NULL},
        {"Sessions", NULL},
        {"", NULL},
        {"   ", NULL},
        {"=sessions", NULL},
        {"-- sessions", NULL},
        {"print", NULL},
        {"filter x", NULL},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        const struct br_word *w = repl_line_verb(rows[i].line);
        const char *name = w ? w->name : NULL;
        if (!name != !rows[i].verb || (name && strcmp(name, rows[i].verb) != 0))
            fail_msg("'%s': %s, not %s", rows[i].line, name ? name : "Lua",
                     rows[i].verb ? rows[i].verb : "Lua");
    }
}

static void check_words(const char *line, unsigned n, const char *const *want)
{
    struct repl_line l;
    struct br_err err = {.code = BR_OK};
    if (repl_line_split(line, &l, &err) < 0)
        fail_msg("'%s': %s", line, err.text);
    assert_int_equal(l.n, n);
    for (unsigned i = 0; i < n; i++)
        assert_string_equal(l.words[i], want[i]);
    assert_null(l.words[n]);
    repl_line_free(&l);
}

static void check_refused(const char *line, const char *says)
{
    struct repl_line l;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(repl_line_split(line, &l, &err), -BR_E_USAGE);
    if (!strstr(err.text, says) || !strstr(err.text, "nothing was done"))
        fail_msg("'%s' is not in '%s'", says, err.text);
    repl_line_free(&l);
}

static void test_words(void **state)
{
    (void)state;
    check_words("", 0, NULL);
    check_words(" \t\r\n ", 0, NULL);
    check_words("a  b\tc", 3, (const char *const[]){"a", "b", "c"});
    check_words("why process.exec 'rm -rf x' \"it's\" a'b c'd ''", 6,
                (const char *const[]){"why", "process.exec", "rm -rf x", "it's", "ab cd", ""});
    check_words("a \"\" b", 3, (const char *const[]){"a", "", "b"});
    check_words("x \\n '\\'", 3, (const char *const[]){"x", "\\n", "\\"});
    check_refused("a 'b c", "quote ' is not closed");
    check_refused("a \"", "quote \" is not closed");
    check_refused("session \xff\xfe", "not valid UTF-8");
    check_refused("session \xed\xa0\x80", "not valid UTF-8");
}

/* At the limits, and one beyond. */
static void test_word_limits(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    struct repl_line l;
    struct br_err err = {.code = BR_OK};
    for (unsigned i = 0; i < REPL_WORDS_MAX; i++)
        br_buf_printf(&b, "w ");
    assert_int_equal(repl_line_split(br_buf_cstr(&b), &l, &err), 0);
    assert_int_equal(l.n, REPL_WORDS_MAX);
    repl_line_free(&l);
    br_buf_printf(&b, "w");
    check_refused(br_buf_cstr(&b), "more than 64 words");
    br_buf_reset(&b);
    while (b.len < REPL_LINE_MAX)
        br_buf_put_u8(&b, 'x');
    assert_int_equal(repl_line_split(br_buf_cstr(&b), &l, &err), 0);
    assert_int_equal(l.n, 1);
    repl_line_free(&l);
    br_buf_put_u8(&b, 'x');
    check_refused(br_buf_cstr(&b), "longer than 65536 bytes");
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        bool ok;
        uint64_t from, to;
    } rows[] = {
        {"3..7", true, 3, 7},
        {"3..", true, 3, 0},
        {"..7", true, 0, 7},
        {"5", true, 5, 5},
        {"7..7", true, 7, 7},
        {"999999999999999..", true, 999999999999999, 0},
        {"7..3", false, 0, 0},
        {"..", false, 0, 0},
        {"", false, 0, 0},
        {"0", false, 0, 0},
        {"0..3", false, 0, 0},
        {"a..3", false, 0, 0},
        {"3..b", false, 0, 0},
        {"3...5", false, 0, 0},
        {"-1..3", false, 0, 0},
        {"1..2..3", false, 0, 0},
        {"1000000000000000", false, 0, 0},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        uint64_t from = 99, to = 99;
        bool ok = repl_line_range(rows[i].word, &from, &to);
        if (ok != rows[i].ok || (ok && (from != rows[i].from || to != rows[i].to)))
            fail_msg("'%s': %d %llu %llu", rows[i].word, ok, (unsigned long long)from,
                     (unsigned long long)to);
    }
}

static void test_meant(void **state)
{
    (void)state;
    static const struct {
        const char *line, *meant;
    } rows[] = {
        {"evnts last", "events"},
        {"sesion run_1", "session"},
        {"decision last", "decisions"},
        {"lease5 x", "leases"},
        {"hlep", "help"},
        {"qiut", "quit"},
        {"local x = 1", NULL},
        {"for i = 1 do", NULL},
        {"evnts(1)", NULL},
        {"evnts = ", NULL},
        {"zzzzzz last", NULL},
        {"", NULL},
        {"return evnts last", NULL},
        {"1 + x", NULL},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        const char *m = repl_line_meant(rows[i].line);
        if (!m != !rows[i].meant || (m && strcmp(m, rows[i].meant) != 0))
            fail_msg("'%s': %s", rows[i].line, m ? m : "nothing");
    }
}

/* ---- the join ---- */

static void open_join(struct repl_join *j)
{
    struct br_cli_row row = {.run_id = "run_x", .started_us = 1, .goal = (char *)"g", .events = 9};
    snprintf(row.status, sizeof(row.status), "running");
    assert_int_equal(repl_join_open(j, &row, NULL), 0);
}

static void feed(struct repl_join *j, uint64_t row, const char *type, const char *data)
{
    char text[2048];
    struct br_err err = {.code = BR_OK};
    int n = snprintf(text, sizeof(text),
                     "{\"v\":1,\"type\":\"%s\",\"eventId\":\"e\",\"at\":\"t\",\"actor\":\"kernel\","
                     "\"data\":%s}",
                     type, data);
    if (repl_join_event(j, row, text, (size_t)n, &err) < 0)
        fail_msg("%s", err.text);
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void test_join(void **state)
{
    (void)state;
    struct repl_join j;
    open_join(&j);
    feed(&j, 1, "bridle.run", "{\"policy\":\"p.lua\",\"rules\":3,\"goal\":\"the goal\"}");
    feed(&j, 2, "policy.decision",
         "{\"action\":\"fs.read\",\"subject\":\"a\",\"effect\":\"allow\",\"ruleId\":\"r1\"}");
    feed(&j, 3, "bridle.votes",
         "{\"callId\":\"c1\",\"action\":\"fs.read\",\"subject\":\"a\",\"effect\":\"allow\","
         "\"source\":\"operator\",\"opaque\":false,\"votes\":[{\"ruleId\":\"r1\"}]}");
    feed(&j, 4, "policy.decision",
         "{\"action\":\"process.exec\",\"subject\":\"x\",\"effect\":\"ask\"}");
    /* votes of something else are not this decision's */
    feed(&j, 5, "bridle.votes",
         "{\"callId\":\"c9\",\"action\":\"process.exec\",\"subject\":\"y\",\"votes\":[]}");
    feed(&j, 6, "bridle.votes",
         "{\"callId\":\"c2\",\"action\":\"process.exec\",\"subject\":\"x\",\"votes\":[]}");
    feed(&j, 7, "permission.requested",
         "{\"permissionId\":\"p1\",\"callId\":\"c2\",\"action\":\"process.exec\",\"subject\":\"x\","
         "\"scope\":\"once\"}");
    feed(&j, 8, "permission.resolved",
         "{\"permissionId\":\"p1\",\"callId\":\"c2\",\"decision\":\"deny\",\"note\":\"no\"}");
    feed(&j, 9, "permission.resolved", "{\"permissionId\":\"p7\",\"decision\":\"allow\"}");
    feed(&j, 10, "model.response",
         "{\"usage\":{\"promptTokens\":3,\"completionTokens\":4,\"totalTokens\":7}}");
    feed(&j, 11, "model.response",
         "{\"usage\":{\"promptTokens\":1,\"completionTokens\":1,\"totalTokens\":2}}");
    feed(&j, 12, "bridle.launch",
         "{\"sandbox\":\"b\",\"receipt\":{\"leases\":[{\"lease\":\"scratch\"}]}}");
    feed(&j, 13, "some.new.type", "{\"x\":[1,2,{\"y\":null}]}");
    assert_int_equal(json_array_size(j.decisions), 2);
    const json_t *a = json_array_get(j.decisions, 0), *b = json_array_get(j.decisions, 1);
    assert_string_equal(text_of(a, "callId"), "c1");
    assert_string_equal(text_of(a, "rule"), "r1");
    assert_int_equal(json_array_size(json_object_get(a, "votes")), 1);
    assert_null(json_object_get(a, "answer"));
    assert_string_equal(text_of(b, "callId"), "c2");
    assert_string_equal(text_of(json_object_get(b, "answer"), "decision"), "deny");
    assert_string_equal(text_of(json_object_get(b, "answer"), "actor"), "kernel");
    assert_int_equal(json_array_size(j.leases), 1);
    assert_string_equal(text_of(j.session, "goal"), "the goal");
    assert_string_equal(text_of(j.session, "status"), "running");
    const json_t *usage = json_object_get(j.session, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "totalTokens")), 9);
    repl_join_free(&j);
}

/* What is no event, or one in which things are not what they should be. */
static void test_join_of_nonsense(void **state)
{
    (void)state;
    static const char *const refused[] = {"",
                                          "{",
                                          "[]",
                                          "7",
                                          "{}",
                                          "{\"type\":7,\"data\":{}}",
                                          "{\"type\":\"x\"}",
                                          "{\"type\":\"x\",\"data\":[]}",
                                          "{\"type\":\"x\",\"type\":\"y\",\"data\":{}}",
                                          "{\"type\":\"x\",\"data\":{}} ",
                                          "{\"type\":\"\xff\",\"data\":{}}"};
    struct repl_join j;
    open_join(&j);
    for (size_t i = 0; i < BR_ARRAY_LEN(refused); i++) {
        struct br_err err = {.code = BR_OK};
        int r = repl_join_event(&j, 5, refused[i], strlen(refused[i]), &err);
        bool blank = i == 9; /* a blank behind it is JSON all the same */
        if ((r == 0) != blank || (r < 0 && !strstr(err.text, "event 5")))
            fail_msg("'%s': %d %s", refused[i], r, err.text);
    }
    static const char *const types[] = {
        "bridle.run",          "policy.decision", "bridle.votes",  "permission.requested",
        "permission.resolved", "model.response",  "bridle.launch", "agent.stopped"};
    static const char *const datas[] = {
        "{}", "{\"action\":7,\"effect\":[],\"callId\":{},\"permissionId\":null,\"votes\":\"x\"}",
        "{\"usage\":[],\"receipt\":7,\"decision\":{}}", "{\"receipt\":{\"leases\":{\"a\":1}}}",
        "{\"usage\":{\"totalTokens\":9223372036854775807}}"};
    for (size_t i = 0; i < BR_ARRAY_LEN(types); i++)
        for (size_t k = 0; k < BR_ARRAY_LEN(datas); k++)
            feed(&j, 1 + i, types[i], datas[k]);
    assert_int_equal(json_array_size(j.leases), 0);
    repl_join_free(&j);
}

/* Every verb and name of the table can be explained, and the table has no word twice. */
static void test_table_of_words(void **state)
{
    (void)state;
    for (const struct br_word *w = br_words; w->name; w++) {
        assert_ptr_equal(br_word_find(w->name), w);
        assert_true(w->text[0] != '\0');
        assert_int_equal((w->kinds & BR_WORD_VERB) != 0, w->verb != NULL);
        assert_int_equal((w->kinds & BR_WORD_NAME) != 0, w->call != NULL);
        for (const char *p = w->text; *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] == '\n'))
            assert_in_range(strcspn(p, "\n"), 1, BR_CLI_WIDTH + 8);
    }
    assert_null(br_word_find("nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verb_or_lua),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_word_limits),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_meant),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_join_of_nonsense),
        cmocka_unit_test(test_table_of_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
