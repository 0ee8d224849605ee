/*
 * The client asks: at a pseudo-terminal, where it may, and at pipes, where it may not. Its bridled
 * plays what the test wrote.
 */
#include <string.h>

#include "cli/test_rig.h"

/* ---- asking --------------------------------------------------------------------------------- */

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *logged;
    } rows[] = {
        {"y\n", "ANSWER p1 allow"},
        {"yes\n", "ANSWER p1 allow"},
        {"Y\n", "ANSWER p1 allow"},
        {"  YES \n", "ANSWER p1 allow"},
        {"n\n", "ANSWER p1 deny"},
        {"\n", "ANSWER p1 deny"},
        {"\004", "ANSWER p1 deny"},
        {"yup\n", "ANSWER p1 deny"},
        {"y\004\004", "ANSWER p1 deny"},
        {"n\ny\n", "ANSWER p1 deny"},
        {"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n",
         "ANSWER p1 deny"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        write_play(ASKED);
        start_pty(run_argv);
        expect(PROMPT);
        type(rows[i].typed);
        assert_int_equal(finish(), 0);
        if (!strstr(log_text(), rows[i].logged) || !strstr(log_text(), "terminal=1"))
            fail_msg("answer %zu: %s", i, log_text());
        bool allows = strstr(rows[i].logged, "allow") != NULL;
        assert_non_null(strstr(out_text, allows ? "allowed" : "denied"));
        assert_null(strstr(out_text, allows ? "denied" : "allowed"));
    }
}

#define GRANT(id) EV("bridle.grant", "{\"permissionId\":\"" id "\",\"action\":\"process.exec\"}")
#define ONE(scope, grant)                                                                          \
    RUN WANTED("p1", scope) ASKS("{\"permissionId\":\"p1\"}") "ASK p1\n" RESOLVED("p1")            \
        grant STOPPED("completed") "END 0 0 \n"
#define TWO(one, two, grant)                                                                       \
    RUN WANTED("p1", one) WANTED("p2", two)                                                        \
        ASKS("{\"permissionId\":\"p1\"},{\"permissionId\":\"p2\"}") "ASK p1\n" RESOLVED("p1")      \
            grant "ASK p2\n" RESOLVED("p2") STOPPED("completed") "END 0 0 \n"
#define ONCE_OR_RUN "Allow it? y once, r for this run; only these do (120 s): "
#define ALL_OR_RUN "Allow all 2? y once, r for this run, e one by one; only these do (120 s): "
#define ALL_ONCE "Allow all 2? y once, e one by one; only these do (120 s): "

/* What is offered, and what each line answers. */
static void test_scopes(void **state)
{
    (void)state;
    static const struct {
        const char *play, *prompt, *typed, *prompt2, *typed2, *logged[2];
    } rows[] = {
        {ONE("run", ""), ONCE_OR_RUN, "y\n", NULL, NULL, {"p1 allow", ""}},
        {ONE("run", GRANT("p1")), ONCE_OR_RUN, "r\n", NULL, NULL, {"p1 run", ""}},
        {ONE("run", GRANT("p1")), ONCE_OR_RUN, " RUN\n", NULL, NULL, {"p1 run", ""}},
        {ONE("run", ""), ONCE_OR_RUN, "e\n", NULL, NULL, {"p1 deny", ""}},
        {ONE("run", ""), ONCE_OR_RUN, "\n", NULL, NULL, {"p1 deny", ""}},
        {ONE("once", ""), PROMPT, "r\n", NULL, NULL, {"p1 deny", ""}},
        {TWO("run", "run", ""), ALL_OR_RUN, "y\n", NULL, NULL, {"p1 allow", "p2 allow"}},
        {TWO("run", "run", ""), ALL_OR_RUN, "r\n", NULL, NULL, {"p1 run", "p2 run"}},
        {TWO("run", "run", ""), ALL_OR_RUN, "n\n", NULL, NULL, {"p1 deny", "p2 deny"}},
        {TWO("run", "run", ""), ALL_OR_RUN, "\004", NULL, NULL, {"p1 deny", "p2 deny"}},
        {TWO("run", "run", ""), ALL_OR_RUN, "1\n", NULL, NULL, {"p1 deny", "p2 deny"}},
        {TWO("run", "once", ""), ALL_ONCE, "r\n", NULL, NULL, {"p1 deny", "p2 deny"}},
        {TWO("run", "once", ""), ALL_ONCE, "y\n", NULL, NULL, {"p1 allow", "p2 allow"}},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        write_play(rows[i].play);
        start_pty(run_argv);
        expect(rows[i].prompt);
        type(rows[i].typed);
        assert_int_equal(finish(), 0);
        for (size_t k = 0; k < 2; k++)
            if (!strstr(log_text(), rows[i].logged[k]))
                fail_msg("row %zu: '%s' is not in %s", i, rows[i].logged[k], log_text());
    }
}

/* `e` is no answer; each question is shown and put again, behind what became of the one before. */
static void test_one_by_one(void **state)
{
    (void)state;
    write_play(TWO("run", "once", GRANT("p1")));
    start_pty(run_argv);
    expect("2 permissions wanted in this turn:");
    expect("(once only)");
    expect(ALL_ONCE);
    type("e\ny\ny\n"); /* what is typed ahead is thrown away */
    expect("1 of 2: process.exec");
    expect(ONCE_OR_RUN);
    (void)poll(NULL, 0, 200);
    assert_null(strstr(log_text(), "ANSWER"));
    type("r\n");
    expect("2 of 2: process.exec");
    const char *first = strstr(out_text, "is not asked about again");
    assert_true(first && first < strstr(out_text, "2 of 2"));
    expect(PROMPT);
    (void)poll(NULL, 0, 200);
    assert_null(strstr(log_text(), "ANSWER p2"));
    type("no\n");
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(log_text(), "ANSWER p1 run"));
    assert_non_null(strstr(log_text(), "ANSWER p2 deny"));
}

/* Not an answer first: with a denial alone a run goes on, and may end well before it is canceled.
 */
static void expect_canceled_first(void)
{
    const char *cancel = strstr(log_text(), "CANCEL"), *answer = strstr(log_text(), "ANSWER");
    assert_non_null(cancel);
    assert_true(!answer || answer > cancel);
    assert_null(strstr(log_text(), "allow"));
    assert_null(strstr(log_text(), " run\n"));
}

static void test_interrupt_at_several(void **state)
{
    (void)state;
    write_play(TWO("run", "run", ""));
    start_pty(run_argv);
    expect(ALL_OR_RUN);
    type("\003");
    assert_int_equal(finish(), 0);
    expect_canceled_first();
}

static void test_typed_ahead_is_no_answer(void **state)
{
    (void)state;
    write_play(
        RUN EV("bridle.text", "{\"text\":\"thinking\\n\",\"final\":true}") "SLEEP 700\n" REQUEST(
            "p1") "ASK p1\n" RESOLVED("p1") STOPPED("completed") "END 0 0 \n");
    start_pty(run_argv);
    expect("thinking");
    type("y\nyes\ny");
    expect(PROMPT);
    (void)poll(NULL, 0, 300);
    assert_null(strstr(log_text(), "ANSWER"));
    type("n\n");
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(log_text(), "ANSWER p1 deny"));
}

/* What is typed after a first answer does not answer the second question. */
static void test_two_asks(void **state)
{
    (void)state;
    write_play(RUN REQUEST("p1") "ASK p1\n" RESOLVED("p1") "SLEEP 300\n" REQUEST(
        "p2") "ASK p2\n" RESOLVED("p2") STOPPED("completed") "END 0 0 \n");
    start_pty(run_argv);
    expect(PROMPT);
    type("y\ny\n");
    expect("allowed");
    out_len = 0;
    expect(PROMPT);
    (void)poll(NULL, 0, 300);
    assert_null(strstr(log_text(), "ANSWER p2"));
    type("no\n");
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(log_text(), "ANSWER p1 allow"));
    assert_non_null(strstr(log_text(), "ANSWER p2 deny"));
}

static void test_expired_ask_is_withdrawn(void **state)
{
    (void)state;
    write_play(RUN REQUEST("p1") "EXPIRE 300\n" RESOLVED("p1") "SLEEP 500\n" STOPPED(
        "completed") "END 0 0 \n");
    start_pty(run_argv);
    expect("denied");
    type("y\n");
    assert_int_equal(finish(), 0);
    assert_null(strstr(log_text(), "ANSWER"));
}

static void test_no_terminal_denies(void **state)
{
    (void)state;
    write_play(ASKED);
    start_pipe(run_argv);
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(log_text(), "terminal=0"));
    assert_non_null(strstr(log_text(), "ANSWER p1 deny there was no terminal"));
    assert_null(strstr(out_text, "\033"));
}

static void test_interrupt_while_asking(void **state)
{
    (void)state;
    write_play(ASKED);
    start_pty(run_argv);
    expect(PROMPT);
    type("\003");
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(out_text, "canceling"));
    expect_canceled_first();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_one_by_one),
        cmocka_unit_test(test_interrupt_at_several),
        cmocka_unit_test(test_typed_ahead_is_no_answer),
        cmocka_unit_test(test_two_asks),
        cmocka_unit_test(test_expired_ask_is_withdrawn),
        cmocka_unit_test(test_no_terminal_denies),
        cmocka_unit_test(test_interrupt_while_asking),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
