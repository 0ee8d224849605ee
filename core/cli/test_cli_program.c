/*
 * The whole client against a bridled that plays what the test wrote: how runs end, the other verbs,
 * and what nothing starts on.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/test_rig.h"

/* ---- ends ----------------------------------------------------------------------------------- */

static void test_interrupt(void **state)
{
    (void)state;
    write_play(RUN "WAIT\n" STOPPED("canceled") "END 7 1 the run was canceled\n");
    start_pty(run_argv);
    expect("bridle run");
    type("\003");
    assert_int_equal(finish(), 1);
    assert_non_null(strstr(out_text, "canceling"));
    assert_non_null(strstr(out_text, "bridle: the run was canceled (CANCELED)"));
    assert_non_null(strstr(log_text(), "CTL_CANCEL"));
    assert_non_null(strstr(log_text(), "\nCANCEL"));
}

static void test_second_interrupt_kills(void **state)
{
    (void)state;
    write_play(RUN "HANG\n");
    start_pty(run_argv);
    expect("bridle run");
    type("\003");
    expect("canceling");
    type("\003");
    assert_int_equal(finish(), 1);
    assert_non_null(strstr(log_text(), "EOF"));
    assert_non_null(strstr(out_text, "ended at once"));
}

static void test_terminate_is_a_clean_cancel(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGHUP};
    for (size_t i = 0; i < BR_ARRAY_LEN(signals); i++) {
        write_play(RUN "WAIT\n" STOPPED("canceled") "END 7 1 canceled\n");
        start_pipe(run_argv);
        expect("bridle run");
        assert_int_equal(kill(child.pid, signals[i]), 0);
        assert_int_equal(finish(), 1);
        assert_non_null(strstr(log_text(), "CTL_CANCEL"));
    }
}

static void test_bridled_dies(void **state)
{
    (void)state;
    write_play(RUN "DIE\n");
    start_pipe(run_argv);
    assert_int_equal(finish(), 1);
    write_play(RUN REQUEST("p1") "DIE\n");
    start_pty(run_argv);
    assert_int_equal(finish(), 1);
    assert_non_null(strstr(out_text, "'bridled' has gone"));
}

static void test_gap_in_the_record(void **state)
{
    (void)state;
    write_play(RUN "ROW 1\n" STOPPED("completed") "SLEEP 5000\nEND 0 0 \n");
    start_pty(run_argv);
    assert_int_equal(finish(), 1);
    assert_non_null(strstr(out_text, "the record has a gap"));
}

static void test_exit_code_is_bridleds(void **state)
{
    (void)state;
    write_play(RUN STOPPED("failed") "END 15 4 'fs.write x' was denied\n");
    start_pty(run_argv);
    assert_int_equal(finish(), 4);
    assert_non_null(strstr(out_text, "bridle: 'fs.write x' was denied"));
}

static void test_output_goes_away(void **state)
{
    (void)state;
    write_play(
        RUN "SLEEP 300\n" EV("bridle.text", "{\"text\":\"x\\n\",\"final\":true}") "WAIT\n" STOPPED(
            "canceled") "END 7 1 canceled\n");
    start_pipe(run_argv);
    expect("bridle run");
    close(child.fd);
    int status;
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    char said[512] = "";
    assert_true(read(child.err, said, sizeof(said) - 1) > 0);
    close(child.err);
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_non_null(strstr(said, "the output was closed, so the run was canceled (CANCELED)"));
    assert_non_null(strstr(log_text(), "CTL_CANCEL"));
}

static void test_colour_and_its_absence(void **state)
{
    (void)state;
    const char *play = RUN EV("model.request", "{\"requestId\":\"r\"}") "SLEEP 700\n" STOPPED(
        "completed") "END 0 0 \n";
    write_play(play);
    start_pty(run_argv);
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(out_text, "\033[1m"));
    assert_non_null(strstr(out_text, "waiting for the model"));
    setenv("NO_COLOR", "1", 1);
    start_pty(run_argv);
    assert_int_equal(finish(), 0);
    assert_null(strstr(out_text, "\033[1m"));
    assert_non_null(strstr(out_text, "\033[K")); /* the progress line is no colour */
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    start_pty(run_argv);
    assert_int_equal(finish(), 0);
    assert_null(strstr(out_text, "\033"));
    setenv("TERM", "xterm", 1);
    start_pipe(run_argv);
    assert_int_equal(finish(), 0);
    assert_null(strstr(out_text, "\033"));
    assert_null(strstr(out_text, "waiting"));
}

/* ---- the other verbs ------------------------------------------------------------------------ */

static void test_json_lines(void **state)
{
    (void)state;
    char *const argv[] = {(char *)"bridle", (char *)"run",    (char *)"-t", (char *)"play",
                          (char *)"--json", (char *)"a goal", NULL};
    write_play(ASKED);
    start_pipe(argv);
    assert_int_equal(finish(), 0);
    unsigned lines = 0;
    for (char *save = NULL, *l = strtok_r(out_text, "\n", &save); l;
         l = strtok_r(NULL, "\n", &save)) {
        json_t *event = json_loads(l, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(event);
        json_decref(event);
        lines++;
    }
    assert_int_equal(lines, 6);
}

/* At a terminal, --json still asks, on stderr. */
static void test_json_asks_at_a_terminal(void **state)
{
    (void)state;
    char *const argv[] = {(char *)"bridle", (char *)"run",    (char *)"-t", (char *)"play",
                          (char *)"--json", (char *)"a goal", NULL};
    write_play(ASKED);
    start_pty(argv);
    expect(PROMPT);
    type("y\n");
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(log_text(), "ANSWER p1 allow"));
    assert_non_null(strstr(out_text, "make test"));
}

static void test_request_fields(void **state)
{
    (void)state;
    char *const argv[] = {
        (char *)"bridle",    (char *)"run", (char *)"-t",         (char *)"w/play", (char *)"-C",
        (char *)"w/",        (char *)"-m",  (char *)"some/model", (char *)"-p",     (char *)"pol",
        (char *)"--timeout", (char *)"77",  (char *)"fix",        (char *)"this",   NULL};
    char want[256];
    write_play("END 0 0 \n");
    assert_int_equal(mkdir("w", 0700), 0);
    assert_int_equal(system("cp play w/play; echo 'return {}' > pol"), 0);
    start_pipe(argv);
    assert_int_equal(finish(), 0);
    snprintf(want, sizeof(want), "workspace=%s/w\n", dir);
    assert_non_null(strstr(log_text(), want));
    assert_non_null(strstr(log_text(), "manifest_path=w/play\ninside=1\n"));
    assert_non_null(
        strstr(log_text(), "policy_path=pol bytes=10\npolicy_from=1\nconfig_path= bytes=0\n"));
    assert_non_null(strstr(log_text(), "model=some/model\n"));
    assert_non_null(strstr(log_text(), "goal=fix this\nseconds=77\n"));
}

static void test_exec_passes_output(void **state)
{
    (void)state;
    char *const argv[] = {(char *)"bridle",
                          (char *)"exec",
                          (char *)"play",
                          (char *)"--",
                          (char *)"make",
                          (char *)"-k",
                          NULL};
    write_play(RUN EV("tool.result", "{\"callId\":\"c\",\"tool\":\"process_exec\",\"ok\":true,"
                                     "\"output\":{\"exitCode\":3,\"stdout\":\"out\\u001b[0m\\n\","
                                     "\"stderr\":\"err\\n\"}}") STOPPED("completed") "END 0 3 \n");
    start_pipe(argv);
    assert_int_equal(finish(), 3);
    assert_string_equal(out_text, "out\033[0m\n"); /* the bytes, and nothing else */
    assert_non_null(strstr(log_text(), "argv=make\nargv=-k\n"));
    start_pty(argv);
    assert_int_equal(finish(), 3);
    assert_non_null(strstr(out_text, "out\\x1b[0m")); /* a terminal gets no control characters */
}

static void test_validate(void **state)
{
    (void)state;
    char *const argv[] = {(char *)"bridle", (char *)"validate", (char *)"play", NULL};
    write_play(
        "REPORT {\"ok\":true,\"warnings\":[],\"manifest\":{\"id\":\"a-task\",\"allowed_paths\":"
        "[\"src/**\"]},\"rules\":4}\nEND 0 0 \n");
    start_pipe(argv);
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(out_text, "play: valid"));
    assert_non_null(strstr(out_text, "a-task"));
    write_play("REPORT {\"ok\":false,\"warnings\":[]}\nEND 17 5 bad\n");
    start_pipe(argv);
    assert_int_equal(finish(), 5);
    assert_non_null(strstr(out_text, "play: not valid"));
}

static void test_show(void **state)
{
    (void)state;
    char *const list[] = {(char *)"bridle", (char *)"show", NULL};
    char *const json[] = {(char *)"bridle", (char *)"show", (char *)"--json", NULL};
    char *const one[] = {(char *)"bridle", (char *)"show", (char *)"run_00000000000000000000000001",
                         NULL};
    char long_name[BR_ID_MAX + 1];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[BR_ID_MAX] = '\0';
    char *const vague[] = {(char *)"bridle", (char *)"show", long_name, NULL};
    start_pty(list);
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(out_text, "run_00000000000000000000000001"));
    assert_non_null(strstr(out_text, "a \\x1b[31mgoal"));
    start_pipe(json);
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(out_text, "\"goal\":\"a \\u001b[31mgoal\",\"events\":3}"));
    start_pipe(one);
    assert_int_equal(finish(), 0);
    assert_non_null(strstr(out_text, "no end was recorded"));
    start_pipe(vague);
    assert_int_equal(finish(), 3);
    assert_string_equal(out_text, "");
}

/* With a full output, or without one. */
static int run_lost(const char *const argv[], bool full)
{
    int e[2], status;
    out_len = 0;
    assert_int_equal(pipe2(e, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        dup2(e[1], 2);
        if (full)
            dup2(open("/dev/full", O_WRONLY), 1);
        else
            close(1);
        execv("./bridle", (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    close(e[1]);
    child.fd = e[0];
    expect(NULL);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Output that got lost is no success, and it is said. */
static void test_full_output(void **state)
{
    (void)state;
    static const char *const rows[][6] = {{"bridle", "show"},
                                          {"bridle", "show", "run_1"},
                                          {"bridle", "show", "--json"},
                                          {"bridle", "help"},
                                          {"bridle", "help", "show"},
                                          {"bridle", "--help"},
                                          {"bridle", "run", "--help"},
                                          {"bridle", "help", "--completion=bash"},
                                          {"bridle", "--version"},
                                          {"bridle", "doctor"},
                                          {"bridle", "validate", "play"}};
    write_play("REPORT {\"ok\":true,\"rules\":1}\nEND 0 0 \n");
    for (size_t i = 0; i < 2 * BR_ARRAY_LEN(rows); i++) {
        const char *const *argv = rows[i / 2];
        int code = run_lost(argv, i % 2);
        if (code != 1 || !strstr(out_text, "the output could not be written") ||
            !strstr(out_text, "(IO_ERROR)"))
            fail_msg("%s %s: exit %d, %s", argv[1], argv[2] ? argv[2] : "", code, out_text);
    }
}

/* The same for what a command says; nothing is lost of one that says nothing. */
static void test_full_output_of_a_command(void **state)
{
    (void)state;
    static const char *const argv[] = {"bridle", "exec", "play", "--", "id", NULL};
    static const char *const says[] = {"uid=0", ""};
    for (int i = 0; i < 4; i++) {
        char play[2048];
        snprintf(play, sizeof(play),
                 RUN EV("tool.result", "{\"callId\":\"c\",\"tool\":\"process_exec\",\"ok\":true,"
                                       "\"output\":{\"exitCode\":0,\"stdout\":\"%s\","
                                       "\"stderr\":\"\"}}") STOPPED("completed") "END 0 0 \n",
                 says[i / 2]);
        write_play(play);
        int code = run_lost(argv, i % 2);
        bool told = strstr(out_text, "the output could not be written") != NULL;
        if (code != (i < 2) || told != (i < 2))
            fail_msg("%d: exit %d, %s", i, code, out_text);
    }
}

static void test_doctor(void **state)
{
    (void)state;
    char *const argv[] = {(char *)"bridle", (char *)"doctor", NULL};
    char *const json[] = {(char *)"bridle", (char *)"doctor", (char *)"--json", NULL};
    start_pipe(argv);
    assert_int_equal(finish(), 6);
    assert_non_null(strstr(out_text, "cannot run here"));
    assert_non_null(strstr(out_text, "fix: boot with cgroup_enable"));
    assert_non_null(strstr(out_text, "observer-v1           no        it needs: bubblewrap"));
    start_pipe(json);
    assert_int_equal(finish(), 6);
    json_t *table = json_loads(out_text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(table, "requirements")), 3);
    const json_t *profiles = json_object_get(table, "profiles");
    assert_int_equal(json_array_size(profiles), 7);
    for (size_t i = 0; i < 7; i++) { /* what was not probed is not there */
        const json_t *p = json_array_get(profiles, i);
        assert_true(json_is_false(json_object_get(p, "eligible")));
        assert_true(json_array_size(json_object_get(p, "missing")) > 0);
    }
    json_decref(table);
    setenv("BRIDLE_FAKE_HEALTHY", "1", 1);
    start_pipe(argv);
    assert_int_equal(finish(), 0);
    setenv("BRIDLE_FAKE_HEALTHY", "nothing", 1);
    start_pipe(argv);
    assert_int_equal(finish(), 1); /* no answer is not a good one */
    assert_string_equal(out_text, "");
    unsetenv("BRIDLE_FAKE_HEALTHY");
}

/* ---- bridle policy --------------------------------------------------------------------------- */

#define ONE_TABLE                                                                                  \
    "TABLE {\"ok\":true,\"warnings\":[],\"sources\":[{\"kind\":\"operator\",\"name\":\"o\"}],"     \
    "\"rules\":[{\"id\":\"operator:a\\u001b[31m\",\"source\":0,\"action\":\"fs.read\",\"match\":"  \
    "\"path\",\"pattern\":\"p\\u009b1m\",\"effect\":\"deny\",\"file\":\"f\\u0007\",\"line\":7}]}"  \
    "\n"

static int policy_with(const char *play, const char *action, const char *json)
{
    char *const argv[] = {(char *)"bridle", (char *)"policy",          (char *)"-t",
                          (char *)"play",   (char *)(uintptr_t)action, (char *)"fs.read",
                          (char *)"a",      (char *)(uintptr_t)json,   NULL};
    char *const shorter[] = {
        (char *)"bridle",          (char *)"policy",        (char *)"-t", (char *)"play",
        (char *)(uintptr_t)action, (char *)(uintptr_t)json, NULL};
    write_play(play);
    start_pty(strcmp(action, "why") == 0 ? argv : shorter);
    return finish();
}

/* What a rule, a reason or an error says reaches the terminal as text. */
static void test_policy_shows_text_only(void **state)
{
    (void)state;
    static const char said[] =
        ONE_TABLE "SAID {\"action\":\"fs.read\",\"subject\":\"a\\u001b[2J\",\"effect\":\"deny\","
                  "\"ruleId\":\"r\\u001bc\",\"source\":\"operator\",\"reason\":\"\\u0007why\","
                  "\"votes\":[{\"source\":\"kernel\",\"ruleId\":\"k\\u001b\",\"effect\":\"ask\"}],"
                  "\"trace\":[{\"action\":\"fs.read\",\"subject\":\"a\\u001b\",\"votes\":[],"
                  "\"rules\":\"m\"}]}\nEND 0 0 \n";
    setenv("NO_COLOR", "1", 1);
    assert_int_equal(policy_with(said, "why", NULL), 0);
    assert_non_null(strstr(out_text, "matches"));
    assert_null(strpbrk(out_text, "\033\007"));
    assert_non_null(strstr(log_text(), "POLICY_ASK {"));
    assert_int_equal(policy_with(said, "why", "--json"), 0);
    assert_null(strpbrk(out_text, "\033\007"));
    assert_int_equal(policy_with(ONE_TABLE "END 0 0 \n", "show", NULL), 0);
    assert_non_null(strstr(out_text, "operator:a"));
    assert_null(strpbrk(out_text, "\033\007"));
    assert_int_equal(policy_with("TABLE {\"ok\":false,\"warnings\":[],\"error\":{\"code\":"
                                 "\"INVALID_POLICY\",\"message\":\"p:3: \\u001b[31mx\",\"file\":"
                                 "\"p\\u0007\",\"line\":3}}\nEND 9 5 \n",
                                 "check", NULL),
                     5);
    assert_non_null(strstr(out_text, ":3: INVALID_POLICY: "));
    assert_null(strpbrk(out_text, "\033\007"));
    unsetenv("NO_COLOR");
}

/* A warning has its own place and code where it says so. */
static void test_policy_findings(void **state)
{
    (void)state;
    static const char play[] =
        "TABLE {\"ok\":true,\"rules\":1,\"sha256\":\"0\",\"warnings\":["
        "\"default.lua:3: [over-broad] it is broad\",\"other.lua:12: [dead] it is dead\","
        "\"a: b\",\"x:7 and [no] code\"]}\nEND 0 0 \n";
    assert_int_equal(policy_with(play, "check", NULL), 0);
    assert_non_null(strstr(out_text, "default.lua:3: over-broad: it is broad"));
    assert_non_null(strstr(out_text, "other.lua:12: dead: it is dead"));
    assert_non_null(strstr(out_text, "default.lua: warning: a: b"));
    assert_non_null(strstr(out_text, "default.lua: warning: x:7 and [no] code"));
    assert_non_null(strstr(out_text, "default.lua: 1 rule, 4 warnings"));
    assert_int_equal(policy_with(play, "check", "--strict"), 5);
    assert_int_equal(policy_with(play, "check", "--json"), 0);
    assert_non_null(
        strstr(out_text, "\"code\":\"over-broad\",\"text\":\"it is broad\",\"line\":3}"));
}

/* Whatever becomes of the other side, the client ends and says so. */
static void test_policy_without_an_answer(void **state)
{
    (void)state;
    static const struct {
        const char *play, *says;
    } rows[] = {
        {"DIE\n", "has gone"},
        {ONE_TABLE "SLEEP 50\nDIE\n", "has gone"},
        {"TABLE 7\nEND 0 0 \n", "an answer that is none"},
        {ONE_TABLE "SAID {\nEND 0 0 \n", "an answer that is none"},
        {ONE_TABLE "SAID []\nEND 0 0 \n", "an answer that is none"},
        {ONE_TABLE "SAID {\"error\":{\"message\":\"not so\"}}\nEND 0 0 \n", "not so"},
        {"END 9 5 it did not compile\n", "it did not compile"},
        {ONE_TABLE "END 7 1 it is over\n", "it is over"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        assert_int_not_equal(policy_with(rows[i].play, "why", NULL), 0);
        if (!strstr(out_text, rows[i].says))
            fail_msg("play %zu: no '%s' in: %s", i, rows[i].says, out_text);
    }
}

/* A path as bridled says it is text; an answer that is none is an error. */
static void test_policy_reload(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int code;
        const char *log;
    } rows[] = {
        {"/x/good", 0, "reload=/x/good\n"}, {"strict", 1, "reload=strict\n"},
        {"/x/bad", 5, "reload=/x/bad\n"},   {"/x/odd", 1, "reload=/x/odd\n"},
        {"/x/none", 1, "reload=/x/none\n"}, {NULL, 1, "reload=\n"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char *argv[] = {(char *)"bridle", (char *)"policy", (char *)"reload",
                        (char *)(uintptr_t)rows[i].file, NULL};
        (void)unlink("log");
        start_pipe(argv);
        assert_int_equal(finish(), rows[i].code);
        assert_non_null(strstr(log_text(), rows[i].log));
        if (rows[i].code == 0)
            assert_non_null(strstr(out_text,
                                   "a \\x1b[31mfile: generation 2, 1 rule, 0 warnings, 30 "
                                   "probes decided"));
        else
            assert_string_equal(out_text, "");
    }
    char *relative[] = {(char *)"bridle", (char *)"policy", (char *)"reload", (char *)"good.lua",
                        NULL};
    char want[128];
    start_pipe(relative);
    assert_int_equal(finish(), 0);
    snprintf(want, sizeof(want), "reload=%s/good.lua\n", dir);
    assert_non_null(strstr(log_text(), want));
    char *json[] = {(char *)"bridle", (char *)"policy", (char *)"reload",
                    (char *)"--json", (char *)"/good",  NULL};
    start_pipe(json);
    assert_int_equal(finish(), 0);
    json_t *row = json_loads(out_text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(row, "by")), "request");
    assert_string_equal(json_string_value(json_object_get(row, "at")),
                        "2026-01-01T00:00:00.000+00:00");
    json_decref(row);
}

static void test_nothing_starts_on_bad_input(void **state)
{
    (void)state;
    (void)unlink("log");
    static const struct {
        const char *words[8];
        int code;
    } rows[] = {
        {{"run"}, 2},
        {{"run", "  "}, 2},
        {{"run", "--timeout", "0", "x"}, 2},
        {{"run", "-t", "missing", "x"}, 3},
        {{"run", "-t", ".", "x"}, 5},
        {{"run", "-p", "/dev/zero", "x"}, 5},
        {{"exec", "play"}, 2},
        {{"validate", "missing"}, 3},
        {{"policy"}, 2},
        {{"policy", "frobnicate"}, 2},
        {{"policy", "check", "missing"}, 3},
        {{"policy", "why", "process.exec"}, 2},
        {{"policy", "replay", "-p", "x", "missing.json"}, 3},
        {{"policy", "diff", "a", "b"}, 3},
        {{"policy", "reload", "a", "b"}, 2},
        {{"policy", "hold", "a", "b"}, 2},
        {{"frobnicate"}, 2},
        {{"help", "frobnicate"}, 2},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char *argv[10] = {(char *)"bridle"};
        for (int k = 0; k < 8 && rows[i].words[k]; k++)
            argv[k + 1] = (char *)(uintptr_t)rows[i].words[k];
        start_pipe(argv);
        assert_int_equal(finish(), rows[i].code);
        assert_string_equal(out_text, "");
        assert_string_equal(log_text(), "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_second_interrupt_kills),
        cmocka_unit_test(test_terminate_is_a_clean_cancel),
        cmocka_unit_test(test_bridled_dies),
        cmocka_unit_test(test_gap_in_the_record),
        cmocka_unit_test(test_exit_code_is_bridleds),
        cmocka_unit_test(test_output_goes_away),
        cmocka_unit_test(test_colour_and_its_absence),
        cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_json_asks_at_a_terminal),
        cmocka_unit_test(test_request_fields),
        cmocka_unit_test(test_exec_passes_output),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_full_output),
        cmocka_unit_test(test_full_output_of_a_command),
        cmocka_unit_test(test_doctor),
        cmocka_unit_test(test_policy_shows_text_only),
        cmocka_unit_test(test_policy_findings),
        cmocka_unit_test(test_policy_without_an_answer),
        cmocka_unit_test(test_policy_reload),
        cmocka_unit_test(test_nothing_starts_on_bad_input),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
