/*
 * A bridled that stands, and sessions that come and go while its policy is replaced: a running one
 * keeps the table that it began with, the next one has the new; what is refused changes nothing for
 * either. Also how such a bridled begins, ends and dies.
 */
#include "reload_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/* Waits for out/go, then makes the file that the goal of the run is about. */
static const char scenario[] =
    "{\"v\":1,\"name\":\"s\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0},\"text\":\"\",\"tool_calls\":[{\"name\":\"process_exec\","
    "\"arguments\":{\"argv\":[\"sh\",\"-c\",\"until test -e out/go; do sleep 0.05; done\"]}}]},"
    "{\"when\":{\"assistant_messages\":1},\"text\":\"\",\"tool_calls\":[{\"name\":\"process_exec\","
    "\"arguments\":{\"argv\":[\"touch\",\"out/NAME\"]}}]},"
    "{\"when\":{},\"text\":\"Done.\"}]}";

/* One run; without `policy` it takes what stands. */
static pid_t start_run(const char *name, const char *policy)
{
    char file[64], path[64], text[sizeof(scenario) + 16];
    const char *mark = strstr(scenario, "NAME");
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(mark - scenario), scenario, name, mark + 4);
    snprintf(file, sizeof(file), "%s.json", name);
    snprintf(path, sizeof(path), "%s", file);
    e2e_write(&t, path, text);
    const char *const with[] = {"bridle", "run",        "-C", "workspace", "-p",
                                policy,   "--scenario", file, "go",        NULL};
    const char *const without[] = {"bridle",     "run", "-C", "workspace",
                                   "--scenario", file,  "go", NULL};
    return reload_spawn(name, (char *const *)(policy ? with : without));
}

static void finish_run(const char *name, pid_t pid, bool made)
{
    char path[64];
    reload_wait(name, pid, &r);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    snprintf(path, sizeof(path), "workspace/out/%s", name);
    e2e_expect_file(&t, path, made ? "" : NULL);
}

/* The profile is activated by the first run of the support. */
static void activate(void)
{
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

static void reload(int status, const char *said)
{
    e2e_run(&t, &r, "bridle", "policy", "reload", NULL);
    e2e_expect(&r, status, said);
    e2e_result_free(&r);
}

static void expect_record(const char *text)
{
    e2e_run(&t, &r, "bridle", "show", "--json", "last", NULL);
    e2e_expect(&r, 0, text);
    e2e_result_free(&r);
}

static void test_sessions_keep_theirs(void **state)
{
    (void)state;
    reload_open(0, LOOSE);
    activate();
    pid_t a = start_run("a", NULL);
    assert_true(e2e_await(a, "sleep", 0, 30000) > 0);
    e2e_write(&t, "policy.lua", STRICT);
    reload(0, "generation 2, ");
    char *earlier = reload_rows("earlier");
    if (!strstr(earlier, "\"generation\":1,") || !strstr(earlier, "\"running\":1,\"runs\":[\"run_"))
        fail_msg("the run is not among %s", earlier);
    free(earlier);
    reload_expect_current("\"generation\":2,");
    reload_expect_current("\"running\":0,");

    /* a broken one changes nothing for anybody */
    e2e_write(&t, "policy.lua", "\n\nreturn 5 +\n");
    reload(5, "policy.lua:4: unexpected symbol");
    reload_expect_current("\"generation\":2,");
    reload_expect_log("was refused: policy.lua:4: ");

    e2e_write(&t, "workspace/out/go", "");
    pid_t b = start_run("b", NULL);
    finish_run("a", a, true);
    finish_run("b", b, false);
    expect_record("\"ruleId\":\"operator:no-touch\"");
    expect_record("\"policyGeneration\":2,");
    expect_record("\"policyBy\":\"request\"");
    e2e_run(&t, &r, "bridle", "show", "last", NULL);
    e2e_expect(&r, 0, ", generation 2, profile run-v1");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "repl", "-e",
            "print(session(sessions[1].runId).policyGeneration, "
            "session(sessions[2].runId).policyGeneration)",
            NULL);
    e2e_expect(&r, 0, "1\t2\n");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "repl", "-e",
            "map(policies, function(p) return p.kind .. p.generation end)", NULL);
    e2e_expect(&r, 0, "{ \"earlier1\", \"current2\", \"refused2\" }");
    e2e_result_free(&r);
    /* one that the operator names goes before what stands, and says so */
    e2e_write(&t, "own.lua", LOOSE);
    finish_run("c", start_run("c", "own.lua"), true);
    expect_record("\"policySha256\":\"");
    e2e_run(&t, &r, "bridle", "show", "--json", "last", NULL);
    assert_false(e2e_says(&r, "policyGeneration"));
    e2e_result_free(&r);
    char *current = reload_rows("current");
    assert_non_null(strstr(current, "\"running\":0,"));
    free(current);
    reload_close();
}

/* SIGHUP reads the file again; the file of the configuration gives way; a file for all verbs. */
static void test_hangup(void **state)
{
    (void)state;
    reload_open(0, LOOSE);
    e2e_write(&t, ".config/bridle/policy.lua", "this is not even Lua");
    e2e_run(&t, &r, "bridle", "policy", "why", "process.exec", "touch", "x", NULL);
    e2e_expect(&r, 0, "allow");
    e2e_result_free(&r);
    e2e_write(&t, "policy.lua", STRICT);
    assert_int_equal(kill(standing, SIGHUP), 0);
    for (int i = 0; i < 1000; i++, usleep(10000)) {
        char *rows = reload_rows("current");
        bool there = strstr(rows, "\"generation\":2,") != NULL;
        free(rows);
        if (there)
            break;
    }
    reload_expect_current("\"by\":\"signal\"");
    e2e_run(&t, &r, "bridle", "policy", "why", "process.exec", "touch", "x", NULL);
    e2e_expect(&r, 0, "operator:no-touch");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "policy", "check", NULL);
    e2e_expect(&r, 0, "/policy.lua: ");
    e2e_result_free(&r);
    /* a shipped one by its name */
    e2e_run(&t, &r, "bridle", "policy", "reload", "strict", NULL);
    e2e_expect(&r, 0, "strict: generation 3, ");
    e2e_result_free(&r);
    reload_close();
}

/* No session begins with a bridled that is ending, and no policy is taken; the running one ends. */
static void test_ending(void **state)
{
    (void)state;
    reload_open(0, LOOSE);
    activate();
    pid_t a = start_run("a", NULL);
    assert_true(e2e_await(a, "sleep", 0, 30000) > 0);
    assert_int_equal(kill(standing, SIGTERM), 0);
    for (int i = 0; i < 500; i++, usleep(10000)) {
        char *log = e2e_read(&t, "err.standing");
        bool told = strstr(log, "no new session begins; 1 ") != NULL;
        free(log);
        if (told)
            break;
    }
    reload(1, "bridled is ending");
    reload_expect_current("\"generation\":1,");
    reload_wait("b", start_run("b", NULL), &r);
    e2e_expect(&r, 1, "lets no session begin; nothing was started");
    e2e_result_free(&r);
    e2e_write(&t, "workspace/out/go", "");
    finish_run("a", a, true);
    e2e_expect_file(&t, "workspace/out/b", NULL);
    assert_int_equal(reload_ended(), 0);
    reload_close();
}

/* One that died is not taken for none: its policy would have been that of the run. */
static void test_dead(void **state)
{
    (void)state;
    char path[128];
    reload_open(0, STRICT);
    snprintf(path, sizeof(path), "%s/policy.lua", t.dir);
    pid_t first = standing;
    reload_start(path);
    assert_int_equal(reload_ended(), 1);
    reload_expect_log("another bridled stands over");
    standing = first;
    reload_expect_current("\"generation\":1,");
    assert_int_equal(kill(standing, SIGKILL), 0);
    assert_int_equal(reload_ended(), 128 + SIGKILL);
    activate();
    e2e_write(&t, "workspace/out/go", "");
    reload_wait("a", start_run("a", NULL), &r);
    e2e_expect(&r, 1, "does not answer");
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/out/a", NULL);
    reload(1, "does not answer");
    reload_start(path);
    reload_ready();
    finish_run("b", start_run("b", NULL), false);
    reload_close();
}

/* What is wrong from the beginning stands for nothing. */
static void test_bad_begin(void **state)
{
    (void)state;
    char path[128];
    struct stat st;
    e2e_open(&t, 0);
    e2e_write(&t, "policy.lua", "return 5 +\n");
    snprintf(path, sizeof(path), "%s/policy.lua", t.dir);
    reload_start(path);
    assert_int_equal(reload_ended(), 5);
    reload_expect_log("policy.lua:2: unexpected symbol");
    reload_start("/nowhere/policy.lua");
    assert_int_equal(reload_ended(), 3);
    reload_start("relative.lua");
    assert_int_equal(reload_ended(), 2);
    snprintf(path, sizeof(path), "%s/control", t.state);
    assert_int_equal(lstat(path, &st), -1);
    reload(3, "no bridled holds a policy for this state directory; nothing was reloaded");
    reload_close();
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sessions_keep_theirs, reload_teardown),
        cmocka_unit_test_teardown(test_hangup, reload_teardown),
        cmocka_unit_test_teardown(test_ending, reload_teardown),
        cmocka_unit_test_teardown(test_dead, reload_teardown),
        cmocka_unit_test_teardown(test_bad_begin, reload_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
