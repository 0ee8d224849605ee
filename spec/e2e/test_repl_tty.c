/*
 * `bridle repl` at a terminal: editing, completion, history, Ctrl-C, another size, colours, and
 * that nothing of it stays behind. As root and as an ordinary user.
 */
#include "repl_rig.h"

#define P "bridle> "

static char *bridle_path(void)
{
    static char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/bridle", e2e_bin());
    return path;
}

static void terminal(uid_t uid)
{
    struct e2e_result r;
    struct stat st;
    open_with_runs(uid);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, "send:1 + 1", "-e", "2\r\n" P,
            "send:error('boo')", "-e", "boo", "raw:", "-e", P, "raw:sessi", "-e", "sessi", "tab",
            "-e", "session", "raw:s[2].go", "-e", "s[2].go", "tab", "-e", "al", "raw:\n", "-e",
            "\"second\"\r\n" P, "send:for i = 7, 8 do", "-e", "... ", "send:print(i) end", "-e",
            "7\r\n8\r\n" P, "send:while true do end", "-e", "end\r\n", "run:sleep 0.3", "-e", "",
            "int", "-e", "it was interrupted", "raw:", "-e", P, "raw:dropped", "-e", "dropped",
            "int", "-e", "^C\r\n" P, "resize:50", "-e", "", "send: 'secret'", "-e", "secret\"\r\n",
            "raw:", "-e", P, "send:x = {", "-e", "... ", "int", "-e", P, "send:sessions", "-e",
            "second", "raw:", "-e", P, "eof", "--", bridle_path(), "repl", NULL);
    e2e_expect(&r, 0, NULL);
    assert_false(e2e_says(&r, "dropped\r\nbridle:"));
    e2e_result_free(&r);
    char *history = e2e_read(&t, "state/repl_history");
    assert_non_null(history);
    if (!strstr(history, "1 + 1\n") || !strstr(history, "sessions[2].goal\n") ||
        strstr(history, "secret") || strstr(history, "dropped"))
        fail_msg("%s", history);
    free(history);
    char path[160];
    snprintf(path, sizeof(path), "%s/repl_history", t.state);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* what was typed is there the next time */
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, "raw:\x10", "-e", "sessions",
            "raw:\n", "-e", "second", "raw:", "-e", P, "send:quit", "--", bridle_path(), "repl",
            NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    close_all();
}

static void test_terminal_as_root(void **state)
{
    (void)state;
    terminal(0);
}

static void test_terminal_as_user(void **state)
{
    (void)state;
    terminal(ORDINARY_UID);
}

/* Verbs, ids, names of what is in a snapshot, files: each where it may stand. */
static void test_completion(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    static const struct {
        const char *typed, *more; /* what a tab adds; NULL: it lists both of these */
        const char *all[2];
    } rows[] = {
        {"decis", "ions", {NULL}},
        {"session la", "st", {NULL}},
        {"why las", "t", {NULL}},
        {"events last perm", "ission.re", {NULL}},
        {"help co", NULL, {"copy", "count"}},
        {"policy pol", "icy.lua", {NULL}},
        {"session(\"la", "st", {NULL}},
        {"sessions[1].wor", "kspace", {NULL}},
        {"string.form", "at", {NULL}},
        {"#sess", NULL, {"sessions", "session"}},
        {"leas", NULL, {"lease", "leases"}},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char raw[64];
        snprintf(raw, sizeof(raw), "raw:%s", rows[i].typed);
        if (rows[i].more)
            e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, raw, "-e", rows[i].typed,
                    "tab", "-e", rows[i].more, "int", "-e", P, "eof", "--", bridle_path(), "repl",
                    NULL);
        else /* the first tab may add what all of them have in common */
            e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, raw, "-e", rows[i].typed,
                    "tab", "-e", "", "tab", "-e", rows[i].all[0], "raw:", "-e", rows[i].all[1],
                    "int", "-e", P, "eof", "--", bridle_path(), "repl", NULL);
        if (r.status != 0)
            fail_msg("'%s': status %d: %s", rows[i].typed, r.status, (char *)r.out.data);
        e2e_result_free(&r);
    }
    close_all();
}

/* Colours are for terminals, and for who wants them; a long record comes a screen at a time. */
static void test_terminal_output(void **state)
{
    (void)state;
    struct e2e_result r;
    open_with_runs(0);
    in_store(add_odd_runs);
    static const char *const env[] = {"TERM=xterm", "TERM=dumb"};
    for (size_t i = 0; i < 3; i++) {
        e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", P, "send:events run_exact", "-e",
                "the next is row 201", "raw:", "-e", P, "send:quit", "--", "/usr/bin/env",
                i < 2 ? "-uNO_COLOR" : "TERM=xterm", env[i % 2], bridle_path(), "repl", NULL);
        e2e_expect(&r, 0, "4800 more were left out");
        e2e_expect(&r, 0, "\\x1b[2J \\u202e 200");
        assert_false(e2e_says(&r, "u202e 201"));
        assert_int_equal(e2e_says(&r, "\033[2m"), i == 0);
        assert_false(e2e_says(&r, "\033[2J"));
        e2e_result_free(&r);
    }
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "--", bridle_path(), "repl", "--json", "-e",
            "events run_ab1 1", NULL);
    e2e_expect(&r, 0, "\\u202e 1");
    assert_false(e2e_says(&r, "\xe2\x80\xae"));
    e2e_result_free(&r);
    close_all();
}

/* Whatever happens to the client, nothing of it stays. */
static void test_killed(void **state)
{
    (void)state;
    struct e2e_result r;
    static const int signals[] = {SIGKILL, SIGTERM, SIGHUP, SIGINT};
    open_with_runs(0);
    for (size_t i = 0; i < BR_ARRAY_LEN(signals); i++) {
        char *argv[] = {(char *)"bridle",
                        (char *)"repl",
                        (char *)"-e",
                        (char *)"print(#sessions) while true do end",
                        (char *)"-e",
                        (char *)"print('went on')",
                        NULL};
        pid_t pid = e2e_spawn(&t, argv, NULL);
        assert_true(e2e_await(pid, "bridle-script", 0, 20000) > 0);
        usleep(100000);
        assert_int_equal(kill(pid, signals[i]), 0);
        e2e_wait(&t, pid, 30, &r);
        assert_true(signals[i] == SIGINT ? r.status == 1 : r.status == 128 + signals[i]);
        if (signals[i] == SIGINT)
            e2e_expect(&r, 1, "it was interrupted");
        assert_false(e2e_says(&r, "went on"));
        e2e_result_free(&r);
        e2e_expect_clean(&t);
    }
    close_all();
}

/* A history that is a link, or somebody else's, is left alone. */
static void test_history_file(void **state)
{
    (void)state;
    struct e2e_result r;
    char path[160];
    open_with_runs(0);
    snprintf(path, sizeof(path), "%s/repl_history", t.state);
    e2e_write(&t, "precious.txt", "precious\n");
    assert_int_equal(symlink("../precious.txt", path), 0);
#define TYPE_ONE                                                                                   \
    "../tests/ptydrive", "-t", "60", "-e", P, "send:1 + 1", "-e", "2\r\n" P, "eof", "--",          \
        bridle_path(), "repl"
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_file(&t, "precious.txt", "precious\n");
    assert_int_equal(unlink(path), 0);
    char hard[160];
    snprintf(hard, sizeof(hard), "%s/precious.txt", t.dir);
    assert_int_equal(link(hard, path), 0);
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_file(&t, "precious.txt", "precious\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    assert_int_equal(rmdir(path), 0);
    /* 1000 lines are kept */
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    for (int i = 1; i <= 1001; i++)
        br_buf_printf(&b, "%d\n", i);
    e2e_write(&t, "state/repl_history", br_buf_cstr(&b));
    e2e_run(&t, &r, TYPE_ONE, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    char *history = e2e_read(&t, "state/repl_history");
    assert_int_equal(strncmp(history, "2\n3\n", 4), 0);
    assert_non_null(strstr(history, "\n1001\n1 + 1\n"));
    free(history);
    close_all();
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal_as_root), cmocka_unit_test(test_terminal_as_user),
        cmocka_unit_test(test_completion),       cmocka_unit_test(test_terminal_output),
        cmocka_unit_test(test_killed),           cmocka_unit_test(test_history_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
