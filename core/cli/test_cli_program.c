/*
 * The whole client against a bridled that plays what the test wrote: at a pseudo-terminal, where it
 * may ask, and at pipes, where it may not.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/cli.h"

#define EV(type, data)                                                                             \
    "EVENT {\"v\":1,\"type\":\"" type "\",\"eventId\":\"e\",\"at\":\"2026-01-01T00:00:00.000+"     \
    "00:00\",\"data\":" data "}\n"
#define RUN                                                                                        \
    EV("bridle.run", "{\"runId\":\"run_1\",\"mode\":\"run\",\"goal\":\"g\",\"model\":\"m\","       \
                     "\"scripted\":true,\"workspace\":\"/w\",\"policy\":\"default\",\"rules\":3}")
#define WANTED(id, scope)                                                                          \
    EV("permission.requested", "{\"permissionId\":\"" id "\",\"sessionId\":\"s\",\"action\":"      \
                               "\"process.exec\",\"subject\":\"make test\",\"scope\":\"once\"}")   \
    EV("bridle.ask",                                                                               \
       "{\"permissionId\":\"" id "\",\"callId\":\"c\",\"action\":\"process.exec\","                \
       "\"subject\":\"make test\",\"scope\":\"" scope "\",\"ruleId\":\"r\",\"source\":"            \
       "\"operator\",\"opaque\":false,\"commands\":[],\"touches\":{},\"advice\":\"\"}")
#define ASKS(list) EV("bridle.asks", "{\"asks\":[" list "]}")
#define REQUEST(id) WANTED(id, "once") ASKS("{\"permissionId\":\"" id "\"}")
#define RESOLVED(id)                                                                               \
    "RESOLVED {\"v\":1,\"type\":\"permission.resolved\",\"eventId\":\"e\",\"at\":"                 \
    "\"2026-01-01T00:00:00.000+00:00\",\"actor\":\"@ACTOR@\",\"data\":{\"permissionId\":\"" id     \
    "\",\"decision\":\"@DECISION@\"}}\n"
#define STOPPED(status)                                                                            \
    EV("agent.stopped", "{\"agentId\":\"a\",\"status\":\"" status "\",\"steps\":1,\"toolCalls\":"  \
                        "1}")
#define ASKED RUN REQUEST("p1") "ASK p1\n" RESOLVED("p1") STOPPED("completed") "END 0 0 \n"

#define PROMPT "Only y or yes does (120 s): "

static char dir[64], out_text[1 << 16];
static size_t out_len;
static struct {
    pid_t pid;
    int fd, err;
} child;

static void copy_program(const char *from, const char *to)
{
    char cmd[2 * BR_PATH_MAX];
    snprintf(cmd, sizeof(cmd), "cp '%s' '%s/%s'", from, dir, to);
    assert_int_equal(system(cmd), 0);
}

static int setup_group(void **state)
{
    (void)state;
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    char path[BR_PATH_MAX];
    snprintf(dir, sizeof(dir), "/tmp/bridle-test-cli.XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    snprintf(path, sizeof(path), "%s/bridle", bin);
    copy_program(path, "bridle");
    snprintf(path, sizeof(path), "%s/../tests/fake_bridled", bin);
    copy_program(path, "bridled");
    snprintf(path, sizeof(path), "%s/log", dir);
    setenv("BRIDLE_FAKE_LOG", path, 1);
    setenv("XDG_CONFIG_HOME", dir, 1);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    return 0;
}

static int teardown_group(void **state)
{
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
    return chdir("/") == 0 ? system(cmd) : -1;
}

static void write_play(const char *play)
{
    FILE *f = fopen("play", "we");
    assert_non_null(f);
    fputs(play, f);
    fclose(f);
    (void)unlink("log");
}

static const char *log_text(void)
{
    static char text[16384];
    text[0] = '\0';
    FILE *f = fopen("log", "re");
    if (f) {
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        fclose(f);
    }
    return text;
}

static void start_pty(char *const argv[])
{
    out_len = 0;
    child.err = -1;
    child.pid = forkpty(&child.fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 80});
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        execv("./bridle", argv);
        _exit(99);
    }
}

static void start_pipe(char *const argv[])
{
    int p[2], e[2];
    out_len = 0;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(pipe2(e, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(p[1], 1);
        dup2(e[1], 2);
        execv("./bridle", argv);
        _exit(99);
    }
    close(p[1]);
    close(e[1]);
    child.fd = p[0];
    child.err = e[0];
}

/* Reads until `text` was seen (or end of file if NULL); fails after 20 s. */
static void expect(const char *text)
{
    uint64_t until = br_now_us() + 20000000;
    for (;;) {
        out_text[out_len] = '\0';
        if (text && strstr(out_text, text))
            return;
        if (br_now_us() > until)
            fail_msg("waited for '%s'; there is: %s", text ? text : "the end", out_text);
        struct pollfd p = {.fd = child.fd, .events = POLLIN};
        if (poll(&p, 1, 100) <= 0)
            continue;
        ssize_t n = read(child.fd, out_text + out_len, sizeof(out_text) - 1 - out_len);
        if (n <= 0 && !text)
            return;
        if (n <= 0)
            fail_msg("the end came before '%s': %s", text, out_text);
        out_len += (size_t)n;
    }
}

static void type(const char *s)
{
    assert_int_equal(write(child.fd, s, strlen(s)), (ssize_t)strlen(s));
}

static int finish(void)
{
    int status;
    expect(NULL);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    close(child.fd);
    if (child.err >= 0) {
        close(child.err);
        child.err = -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static char *const run_argv[] = {(char *)"bridle", (char *)"run",  (char *)"-t",
                                 (char *)"play",   (char *)"goal", NULL};

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
    assert_int_equal(json_array_size(profiles), 6);
    for (size_t i = 0; i < 6; i++) { /* what was not probed is not there */
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
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_one_by_one),
        cmocka_unit_test(test_interrupt_at_several),
        cmocka_unit_test(test_typed_ahead_is_no_answer),
        cmocka_unit_test(test_two_asks),
        cmocka_unit_test(test_expired_ask_is_withdrawn),
        cmocka_unit_test(test_no_terminal_denies),
        cmocka_unit_test(test_interrupt_while_asking),
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
    return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
