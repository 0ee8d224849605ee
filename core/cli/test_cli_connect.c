/*
 * bridle connect before a service that plays what the test wrote: what is shown and answered at a
 * pseudo-terminal, and every way in which a service may not behave. Each of those ends with a typed
 * error, and the service is told why.
 */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/test_peer.h"
#include "cli/test_rig.h"
/* the rig has macros of these names for its own plays */
#undef RUN
#undef ASKS
#undef ASKED
#undef STOPPED
#include "cli/test_stream.h"

static const char *script;
static pid_t server;

static void play_script(struct peer *p)
{
    peer_script(p, script);
}

static int setup(void **state)
{
    int r = rig_setup(state);
    char path[80];
    snprintf(path, sizeof(path), "%s/state", dir);
    setenv("BRIDLE_STATE_DIR", path, 1);
    unsetenv("BRIDLE_TOKEN");
    return r;
}

static void serve(const char *text)
{
    script = text;
    server = peer_start("s", NULL, 1, play_script);
}

/* The client with pipes, its errors among its output. */
static void start_plain(char *const argv[])
{
    int p[2];
    out_len = 0;
    child.err = -1;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(p[1], 1);
        dup2(p[1], 2);
        execv("./bridle", argv);
        _exit(99);
    }
    close(p[1]);
    child.fd = p[0];
}

/* The client has left; its code. The server's as well, which must have seen it leave. */
static int ended(void)
{
    int code = finish(), status = -1;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    return code;
}

#define ARGV(...)                                                                                  \
    (char *const[])                                                                                \
    {                                                                                              \
        (char *)"bridle", (char *)"connect", (char *)"unix:s", __VA_ARGS__, NULL                   \
    }
#define A(s) (char *)(s)

/* ---- services that do what they may not ------------------------------------------------------ */

static void fails(const char *name, const char *text, int code, const char *says, const char *told)
{
    serve(text);
    start_plain(ARGV(A("--timeout"), A("1"), A("goal")));
    int got = ended();
    if (got != code || !strstr(out_text, says) || !strstr(log_text(), told))
        fail_msg("%s: exit %d: %s\nthe service was told: %s", name, got, out_text, log_text());
}

#define PROTOCOL(name, text, says)                                                                 \
    fails(name, text, 1, "protocol failure: " says, "CLOSE 1002 protocol failure")

static void test_protocol_failures(void **state)
{
    (void)state;
    PROTOCOL("a gap", RUN CREATED CALL, "session/event has seq 2 where 1 is due");
    PROTOCOL("a duplicate id",
             RUN CREATED EVENT_("session/event", "\"seq\":1", "agent.started", "e0", "",
                                "{\"agentId\":\"a\",\"sessionId\":\"s\",\"model\":\"m\"}"),
             "the event id 'e0' came twice");
    PROTOCOL("two ends", BEGUN STOPPED("2", "completed") STOPPED("3", "completed"),
             "an event came after agent.stopped");
    PROTOCOL("a result before the end", BEGUN OK("3", DONE("completed", NONE)),
             "the result of session/prompt came before agent.stopped");
    PROTOCOL("a result that conflicts",
             BEGUN STOPPED("2", "failed") OK("3", DONE("completed", NONE)),
             "the result says completed, but agent.stopped said failed");
    PROTOCOL("usage that conflicts",
             BEGUN STOPPED("2", "completed") OK("3", DONE("completed", USAGE("1", "1", "2"))),
             "the result counts 1 and 1 tokens, its events 0 and 0");
    PROTOCOL("an unknown key", RUN E("0", "session.created", "{\"sessionId\":\"s\",\"x\":1}"),
             "'session.created' has the unknown key 'x'");
    PROTOCOL("another version",
             ">initialize\n" OK("1", "{\"protocolVersion\":\"harness/acp/2\",\"agentName\":\"x\","
                                     "\"models\":[],\"capabilities\":{}}"),
             "the server speaks 'harness/acp/2'");
    PROTOCOL("control characters", RUN CREATED E("1", "tool.\\u001b[2J", "{}"),
             "'tool.\\x1b[2J' is no type of event");
}

/* Nobody is at a terminal, so the client denies; the service says that it was allowed. */
static void test_contradicted(void **state)
{
    (void)state;
    PROTOCOL("it was denied",
             RUN CREATED STARTED CALL ASKED O("3", "0", "bridle.asks",
                                              "{\"asks\":[{\"permissionId\":\"p\"}]}")
                 DENY OK("4", "{\"accepted\":true}") BY("operator", "allow"),
             "permission 'p' was resolved with allow, but this client's answer, which was "
             "accepted, is deny");
    assert_non_null(strstr(log_text(), "\"decision\":\"deny\",\"note\":\"there was no terminal"));
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int code;
        const char *says;
    } rows[] = {
        {">initialize\n" NO("1", "-32001"), 1, "refused 'initialize': no"},
        {">initialize\n" OK("1", FULL) ">session/new\n" NO("2", "-32602"), 5,
         "refused 'session/new': no (INVALID_ARGUMENTS)"},
        {">initialize\n" OK("1", FULL) ">session/new\n" NO("2", "-32012"), 7, "(LIMIT_EXCEEDED)"},
        {">initialize\n" OK("1", FULL) ">session/new\n" NO("2", "-32030"), 4, "(DENIED)"},
        {RUN NO("3", "-32011"), 1, "refused 'session/prompt': no (IN_USE)"},
        {RUN NO("3", "-32603"), 1, "(INTERNAL_ERROR)"},
        {RUN CREATED STARTED NO("3", "-32603"), 1, "(INTERNAL_ERROR)"},
        {RUN CREATED STARTED "!\n", 1, "ended without a word (PEER_GONE)"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        serve(rows[i].script);
        start_plain(ARGV(A("goal")));
        int code = ended();
        if (code != rows[i].code || !strstr(out_text, rows[i].says))
            fail_msg("row %zu: exit %d: %s", i, code, out_text);
    }
}

/* How a run ends is how the client ends. */
static void test_ends(void **state)
{
    (void)state;
#define ERROR_(code) E("2", "error", "{\"code\":\"" code "\",\"message\":\"why\"}")
    static const struct {
        const char *script;
        int code;
        const char *says;
    } rows[] = {
        {BEGUN STOPPED("2", "completed") OK("3", DONE("completed", NONE)), 0, "completed"},
        {BEGUN STOPPED("2", "failed") OK("3", DONE("failed", NONE)), 1, "the run failed"},
        {BEGUN STOPPED("2", "canceled") OK("3", DONE("failed", NONE)), 1, "(CANCELED)"},
        {BEGUN STOPPED("2", "budget_exceeded") OK("3", DONE("failed", NONE)), 7,
         "(BUDGET_EXCEEDED)"},
        {BEGUN ERROR_("AUDIT_STORE_FAILED") STOPPED("3", "failed") OK("3", DONE("failed", NONE)), 8,
         "the run failed: why (AUDIT_STORE_FAILED)"},
        {BEGUN ERROR_("TIMEOUT") STOPPED("3", "failed") OK("3", DONE("failed", NONE)), 7,
         "(TIMEOUT)"},
        {BEGUN ERROR_("SOMETHING_NEW") STOPPED("3", "failed") OK("3", DONE("failed", NONE)), 1,
         "the run failed: why"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        serve(rows[i].script);
        start_plain(ARGV(A("goal")));
        int code = ended();
        if (code != rows[i].code || !strstr(out_text, rows[i].says))
            fail_msg("row %zu: exit %d: %s", i, code, out_text);
        assert_null(strstr(out_text, "\033"));
    }
}

static void play_401(struct peer *p)
{
    peer_read_request(p);
    peer_say(p, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
}
static void play_301(struct peer *p)
{
    peer_read_request(p);
    peer_say(p, "HTTP/1.1 301 Moved\r\nLocation: unix:t\r\nContent-Length: 0\r\n\r\n");
}
static void play_key(struct peer *p)
{
    peer_read_request(p);
    peer_say(p, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
}
static void play_binary(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    peer_raw(p, "\x82\x02hi", 4);
    peer_drain(p);
}
static void play_masked(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    peer_raw(p, "\x81\x82\x00\x00\x00\x00{}", 8);
    peer_drain(p);
}
static void play_huge(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    peer_raw(p, "\x81\x7f\x00\x00\x00\x00\x01\x00\x00\x01", 10);
    peer_drain(p);
}
static void play_closes_early(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    peer_raw(p, "\x88\x02\x03\xe9", 4);
    peer_drain(p);
}
static void play_mute(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    peer_drain(p); /* it answers pings, and nothing else */
}

static void test_transport(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        peer_play *play;
        int code;
        const char *says, *told;
    } rows[] = {
        {"401", play_401, 4, "(DENIED)", ""},
        {"301", play_301, 1, "protocol failure", ""},
        {"wrong key", play_key, 1, "protocol failure", ""},
        {"binary", play_binary, 1, "protocol failure", "CLOSE 1003"},
        {"masked", play_masked, 1, "protocol failure", "CLOSE 1002"},
        {"huge", play_huge, 1, "protocol failure", "CLOSE 1009"},
        {"closes early", play_closes_early, 1, "(PEER_GONE)", "CLOSE 1001"},
        {"never answers", play_mute, 7, "did not answer within 1 s (TIMEOUT)", "CLOSE 1000"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        server = peer_start("s", NULL, 1, rows[i].play);
        start_plain(ARGV(A("--timeout"), A("1"), A("goal")));
        int code = ended();
        if (code != rows[i].code || !strstr(out_text, rows[i].says) ||
            !strstr(log_text(), rows[i].told))
            fail_msg("%s: exit %d: %s%s", rows[i].name, code, out_text, log_text());
    }
}

/* ---- arguments --------------------------------------------------------------------------------
 */

static void refused(int code, const char *says, char *const argv[])
{
    start_plain(argv);
    int got = finish();
    if (got != code || !strstr(out_text, says))
        fail_msg("exit %d: %s", got, out_text);
}

static void test_arguments(void **state)
{
    (void)state;
#define BARE_ARGV(...) (char *const[]){(char *)"bridle", (char *)"connect", __VA_ARGS__, NULL}
    refused(2, "a user or a password", BARE_ARGV(A("ws://me:hunter2@127.0.0.1"), A("goal")));
    assert_null(strstr(out_text, "hunter2"));
    refused(2, "Use wss://", BARE_ARGV(A("ws://192.0.2.1:8765"), A("goal")));
    refused(2, "begins with none of", BARE_ARGV(A("http://127.0.0.1:8765"), A("goal")));
    refused(2, "there is no prompt", BARE_ARGV(A("unix:s")));
    refused(2, "exclude each other", BARE_ARGV(A("--list"), A("--watch"), A("s")));
    refused(2, "belong together", BARE_ARGV(A("--cert"), A("x"), A("goal")));
    refused(2, "--timeout", BARE_ARGV(A("--timeout"), A("0"), A("goal")));
    refused(2, "--tokens", BARE_ARGV(A("--tokens"), A("-1"), A("goal")));
    refused(2, "--calls", BARE_ARGV(A("--calls"), A("many"), A("goal")));
    refused(1, "no service listens at 'nowhere'", BARE_ARGV(A("unix:nowhere"), A("goal")));
    refused(1, "/state/service.sock'", BARE_ARGV(A("goal")));
    refused(3, "the token's file 'nowhere'",
            BARE_ARGV(A("unix:nowhere"), A("--token-file"), A("nowhere"), A("goal")));
}

/* 512 KiB are a prompt, one byte more is none; and what is no text is none. */
static void test_piped(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        bool taken;
    } rows[] = {
        {"head -c 524288 /dev/zero | tr '\\0' a | ./bridle connect unix:s", true},
        {"head -c 524289 /dev/zero | tr '\\0' a | ./bridle connect unix:s", false},
        {"printf 'a\\0b' | ./bridle connect unix:s", false},
        {"printf '\\377' | ./bridle connect unix:s", false},
        {"printf ' \\n' | ./bridle connect unix:s", false},
        {"./bridle connect unix:s < /dev/null", false},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        if (rows[i].taken)
            serve(RUN CREATED STARTED STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
        int status = system(rows[i].command);
        if (WEXITSTATUS(status) != (rows[i].taken ? 0 : 2))
            fail_msg("%s: exit %d", rows[i].command, WEXITSTATUS(status));
        if (rows[i].taken)
            assert_int_equal(waitpid(server, &status, 0), server);
    }
}

/* What is sent is what was given. */
static void test_requests(void **state)
{
    (void)state;
    serve(RUN CREATED STARTED STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
    start_plain(ARGV(A("-t"), A("fix-it"), A("-m"), A("small"), A("--tokens"), A("500"),
                     A("--calls"), A("7"), A("say"), A("\"hi\"")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(log_text(), "\"extensions\":[\"bridle/1\"]"));
    char text[200];
    snprintf(text, sizeof(text), "\"workspace\":\"%s\",\"taskId\":\"fix-it\",\"model\":\"small\"}",
             dir);
    assert_non_null(strstr(log_text(), text));
    assert_non_null(strstr(log_text(), "\"content\":\"say \\\"hi\\\"\",\"maxModelTokens\":500,"
                                       "\"maxToolCalls\":7}"));
    assert_non_null(strstr(log_text(), "CLOSE 1000"));
}

/* ---- what is shown ----------------------------------------------------------------------------
 */

#define TEXT_(seq, after, text)                                                                    \
    O(after, seq, "bridle.text",                                                                   \
      "{\"stream\":\"t\",\"kind\":\"agent\",\"text\":\"" text "\",\"final\":false}")
#define HEADER                                                                                     \
    O("0", "0", "bridle.run",                                                                      \
      "{\"runId\":\"s\",\"mode\":\"run\",\"goal\":\"g\",\"model\":\"m\",\"scripted\":true,"        \
      "\"workspace\":\"/w\",\"policy\":\"default\",\"tableSha256\":\"\",\"rules\":3}")
#define TOLD RUN CREATED HEADER STARTED
#define SHELL(n)                                                                                   \
    E("2", "tool.call",                                                                            \
      "{\"callId\":\"c\",\"tool\":\"shell\",\"input\":{\"command\":\"make " n "\"}}")
#define DECIDED(effect)                                                                            \
    E("3", "policy.decision",                                                                      \
      "{\"action\":\"process.exec\",\"subject\":\"make\",\"effect\":\"" effect                     \
      "\",\"ruleId\":\"r\"}")
#define SHELL_DONE(seq)                                                                            \
    E(seq, "tool.result",                                                                          \
      "{\"callId\":\"c\",\"tool\":\"shell\",\"ok\":true,\"output\":{\"exitCode\":0,\"stdout\":"    \
      "\"built\\n\"},\"durationMs\":12}")
#define SHOWN                                                                                      \
    TOLD TEXT_("1", "1", "Building \\u001b[31mit.\\n") SHELL("all") DECIDED("allow")               \
        SHELL_DONE("4") STOPPED("5", "completed") OK("3", DONE("completed", NONE))

static void test_shown(void **state)
{
    (void)state;
    serve(SHOWN);
    start_plain(ARGV(A("goal")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "| Building \\x1b[31mit.\n"));
    assert_non_null(strstr(out_text, "\n> shell  command: \"make all\"  ok     12 ms  exit 0\n"));
    assert_null(strstr(out_text, "built"));
    assert_non_null(strstr(out_text, "bridle connect unix:s --watch s\n"));
    serve(SHOWN);
    start_plain(ARGV(A("-v"), A("goal")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "\n> shell  command: \"make all\"\n"));
    assert_non_null(strstr(out_text, "  allow  process.exec make"));
    assert_non_null(strstr(out_text, "  : built\n"));
    serve(SHOWN);
    start_plain(ARGV(A("--json"), A("goal")));
    assert_int_equal(ended(), 0);
    unsigned lines = 0;
    for (char *line = strtok(out_text, "\n"); line; line = strtok(NULL, "\n"), lines++)
        assert_int_equal(strncmp(line, "{\"jsonrpc\":\"2.0\"", 16), 0);
    assert_int_equal(lines, 11);
}

/* A service that knows nothing but harness/acp/1. */
static void test_without_extension(void **state)
{
    (void)state;
    serve(">initialize\n" OK("1", BARE) ">session/new\n" OK(
        "2", "{\"sessionId\":\"s\"}") ">session/prompt\n" CREATED STARTED CALL ASKED DENY TAKEN
              BY("operator",
                 "deny") E("5", "tool.result",
                           "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":false,\"output\":null}")
                  STOPPED("6", "completed")
                      OK("3", "{\"status\":\"completed\",\"events\":[],\"finalText\":\"All done."
                              "\\u0007\",\"usage\":" NONE "}"));
    start_plain(ARGV(A("goal")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "All done.\\x07\n"));
    assert_non_null(strstr(log_text(), "\"decision\":\"deny\""));
    assert_null(strstr(log_text(), "\"scope\""));
    serve(">initialize\n" OK("1", BARE));
    start_plain(ARGV(A("--list")));
    assert_int_equal(ended(), 6);
    assert_non_null(strstr(out_text, "keeps no list of sessions"));
}

static void test_list(void **state)
{
    (void)state;
#define ROW(id, status, more)                                                                      \
    "{\"sessionId\":\"" id "\",\"status\":\"" status                                               \
    "\",\"workspace\":\"/w\",\"model\":\"m\",\"goal\":\"fix \\u001b[2Jit\",\"startedAt\":"         \
    "\"2026-01-01T12:00:00.000+00:00\",\"events\":3," more "}"
    serve(">initialize\n" OK("1", FULL) ">session/list\n" OK(
        "2",
        "{\"sessions\":[" ROW(
            "run_1", "running",
            "\"live\":true,\"owned\":false,\"asks\":1") "," ROW("run_2", "completed",
                                                                "\"live\":false,\"owned\":false,"
                                                                "\"asks\":0") "],\"more\":"
                                                                              "true}"));
    start_plain(ARGV(A("--list"), A("two"), A("words")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(log_text(), "{\"limit\":200,\"query\":\"two words\"}"));
    assert_non_null(strstr(out_text, "run_1  2026-01-01 "));
    assert_non_null(strstr(out_text, "running, asks, detached\n"));
    assert_non_null(strstr(out_text, "fix \\x1b[2Jit\n"));
    assert_non_null(strstr(out_text, "there are more"));
    serve(">initialize\n" OK("1", FULL) ">session/list\n" OK("2",
                                                             "{\"sessions\":[],\"more\":false}"));
    start_plain(ARGV(A("--list")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "there are no sessions"));
}

/* ---- at a terminal ----------------------------------------------------------------------------
 */

static void start_terminal(char *const argv[], unsigned short columns)
{
    out_len = 0;
    child.err = -1;
    child.pid = forkpty(&child.fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = columns});
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        execv("./bridle", argv);
        _exit(99);
    }
}

#define WANT(scope)                                                                                \
    O("3", "1", "bridle.ask",                                                                      \
      "{\"permissionId\":\"p\",\"callId\":\"c\",\"action\":\"x\",\"subject\":\"y\",\"scope\":"     \
      "\"" scope "\",\"ruleId\":\"r\",\"source\":\"operator\",\"opaque\":false,\"commands\":[],"   \
      "\"touches\":{},\"advice\":\"\"}")                                                           \
    O("3", "2", "bridle.asks", "{\"asks\":[{\"permissionId\":\"p\"}]}")
#define ASKS(scope) TOLD CALL ASKED WANT(scope)
#define ANSWERED(decision)                                                                         \
    ">permission/respond\n" TAKEN BY("operator", decision)                                         \
    RESULT STOPPED("6", "completed") OK("3", DONE("completed", NONE))
#define ONCE "Allow it this once? Only y or yes does (120 s): "
#define EITHER "Allow it? y once, r for this run; only these do (120 s): "

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *script, *prompt, *typed, *sent;
    } rows[] = {
        {ASKS("once") ANSWERED("allow"), ONCE, "y\n", "\"decision\":\"allow\",\"scope\":\"once\"}"},
        {ASKS("once") ANSWERED("allow"), ONCE, " YES \n", "\"decision\":\"allow\""},
        {ASKS("run") ANSWERED("allow"), EITHER, "r\n", "\"decision\":\"allow\",\"scope\":\"run\"}"},
        {ASKS("once") ANSWERED("deny"), ONCE, "r\n", "\"decision\":\"deny\"}"},
        {ASKS("once") ANSWERED("deny"), ONCE, "n\n", "\"decision\":\"deny\"}"},
        {ASKS("once") ANSWERED("deny"), ONCE, "\n", "\"decision\":\"deny\"}"},
        {ASKS("once") ANSWERED("deny"), ONCE, "yep\n", "\"decision\":\"deny\"}"},
        {ASKS("once") ANSWERED("deny"), ONCE, "\004", "\"decision\":\"deny\",\"note\":"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        serve(rows[i].script);
        start_terminal(ARGV(A("goal")), 80);
        expect(rows[i].prompt);
        type(rows[i].typed);
        assert_int_equal(ended(), 0);
        if (!strstr(log_text(), rows[i].sent))
            fail_msg("row %zu: %s", i, log_text());
        assert_non_null(strstr(out_text, "permission wanted: x"));
    }
}

/* With --json the question has what led to it, on stderr, which is the terminal here. */
static void test_json_asks(void **state)
{
    (void)state;
    serve(ASKS("once") ANSWERED("allow"));
    start_terminal(ARGV(A("--json"), A("goal")), 80);
    expect("permission wanted: x");
    expect(ONCE);
    type("y\n");
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(log_text(), "\"decision\":\"allow\",\"scope\":\"once\""));
    assert_null(strstr(out_text, "working..."));
    assert_null(strstr(out_text, "completed\r\n"));
}

/* Typed before the question was there. */
static void test_typed_ahead(void **state)
{
    (void)state;
    serve(TOLD TEXT_("1", "1", "thinking\\n") "#500\n" CALL ASKED O(
        "3", "2", "bridle.asks", "{\"asks\":[{\"permissionId\":\"p\"}]}") ANSWERED("deny"));
    start_terminal(ARGV(A("goal")), 80);
    expect("thinking");
    type("y\nyes\ny");
    expect(ONCE);
    (void)poll(NULL, 0, 200);
    assert_null(strstr(log_text(), "permission/respond"));
    type("n\n");
    assert_int_equal(ended(), 0);
}

/* Another operator was faster: the question is taken back, and it is said who it was. */
static void test_answered_elsewhere(void **state)
{
    (void)state;
    serve(ASKS("run") "#300\n" BY("operator", "allow") O(
        "4", "3", "bridle.answered",
        "{\"permissionId\":\"p\",\"by\":\"token:ops\",\"decision\":\"allow\",\"scope\":\"once\"}")
              RESULT "#300\n" STOPPED("6", "completed") OK("3", DONE("completed", NONE)));
    start_terminal(ARGV(A("goal")), 80);
    expect(EITHER);
    expect("answered by token:ops");
    type("y\n");
    assert_int_equal(ended(), 0);
    assert_null(strstr(log_text(), "permission/respond"));
    assert_non_null(strstr(out_text, " by the operator"));
}

/* Both at one time: the service takes the other answer. */
static void test_too_late(void **state)
{
    (void)state;
    serve(ASKS("run") ">permission/respond\n" BY("operator", "deny") NO("4", "-32021") E(
        "5", "tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":false,\"output\":null}")
              STOPPED("6", "completed") OK("3", DONE("completed", NONE)));
    start_terminal(ARGV(A("goal")), 80);
    expect(EITHER);
    type("r\n");
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "the answer came too late"));
}

static void test_interrupt(void **state)
{
    (void)state;
    serve(ASKS("once") ">session/cancel\n" OK("4", "{\"canceled\":true}") BY("kernel", "deny") E(
        "5", "tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":false,\"output\":null}")
              STOPPED("6", "canceled") OK("3", DONE("failed", NONE)));
    start_terminal(ARGV(A("goal")), 80);
    expect(ONCE);
    type("\003");
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(out_text, "canceling... (again to leave at once)"));
    assert_non_null(strstr(out_text, "the run was canceled (CANCELED)"));
    /* the service denies what is open, as part of the cancel */
    assert_null(strstr(log_text(), "permission/respond"));
}

/* A service that does not end it is left. */
static void test_interrupt_twice(void **state)
{
    (void)state;
    serve(TOLD ">session/cancel\n");
    start_terminal(ARGV(A("goal")), 80);
    expect("run  s");
    type("\003");
    expect("canceling...");
    type("\003");
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(out_text, "left at once"));
    assert_non_null(strstr(log_text(), "CLOSE 1000"));
}

#define MAY_DETACH                                                                                 \
    "{" HELLO_ ",\"capabilities\":{\"streaming\":true,\"permissioning\":true,\"sessions\":true,"   \
    "\"extensions\":[\"bridle/1\"]},\"bridle\":{\"name\":\"uid:0\",\"access\":\"operate\","        \
    "\"detach\":true,\"askSeconds\":60,\"serverTime\":\"2026-01-01T00:00:00Z\"}}"
#define DETACHABLE                                                                                 \
    ">initialize\n" OK("1", MAY_DETACH) ">session/new\n" OK(                                       \
        "2", "{\"sessionId\":\"s\"}") ">session/prompt s\n" CREATED HEADER STARTED

static void test_detach(void **state)
{
    (void)state;
    serve(DETACHABLE ">session/detach\n" OK("4", "{\"detached\":true}"));
    start_terminal(ARGV(A("goal")), 80);
    expect("run  s");
    type("\034");
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "it goes on without you: bridle connect unix:s --watch s"));
    assert_null(strstr(log_text(), "session/cancel"));
    serve(DETACHABLE ">session/detach\n" OK("4", "{\"detached\":true}"));
    start_plain(ARGV(A("--detach"), A("goal")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "it goes on without you"));
    /* where the operator does not let it */
    serve(TOLD "#500\n" STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
    start_terminal(ARGV(A("goal")), 80);
    expect("run  s");
    type("\034");
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "the service's operator does not allow it"));
    assert_null(strstr(log_text(), "session/detach"));
    serve(">initialize\n" OK("1", FULL));
    start_plain(ARGV(A("--detach"), A("goal")));
    assert_int_equal(ended(), 4);
    assert_null(strstr(log_text(), "session/new"));
}

/* ---- another's session ------------------------------------------------------------------------
 */

#define PAST CREATED HEADER STARTED CALL ASKED WANT("once") BY("operator", "allow") RESULT
#define LOADED(live) OK("2", "{\"status\":\"running\",\"live\":" live ",\"owned\":true}")
#define ASK_NOW                                                                                    \
    E("6", "tool.call", "{\"callId\":\"d\",\"tool\":\"t\",\"input\":{}}")                          \
    E("7", "permission.requested",                                                                 \
      "{\"permissionId\":\"q\",\"sessionId\":\"s\",\"callId\":\"d\",\"action\":\"x\",\"scope\":"   \
      "\"once\"}")                                                                                 \
    O("7", "3", "bridle.asks", "{\"asks\":[{\"permissionId\":\"q\"}]}")
#define NOW_RESOLVED(actor, decision)                                                              \
    EVENT_("session/event", "\"seq\":8", "permission.resolved", "e8", "\"actor\":\"" actor "\",",  \
           "{\"permissionId\":\"q\",\"sessionId\":\"s\",\"callId\":\"d\",\"action\":\"x\","        \
           "\"scope\":\"once\",\"decision\":\"" decision "\"}")                                    \
    E("9", "tool.result", "{\"callId\":\"d\",\"tool\":\"t\",\"ok\":true,\"output\":null}")         \
    STOPPED("10", "completed")
#define WATCH ">initialize\n" OK("1", FULL) ">session/load\n"

static void test_watch(void **state)
{
    (void)state;
    /* what was asked before is not asked again; what is asked now may be answered */
    serve(WATCH PAST "#200\n" LOADED("true") ASK_NOW
          ">permission/respond\n" OK("3", "{\"accepted\":true}") NOW_RESOLVED("operator", "allow"));
    start_terminal(ARGV(A("--watch"), A("s")), 80);
    expect(ONCE);
    type("y\n");
    assert_int_equal(ended(), 0);
    char *first = strstr(out_text, ONCE);
    assert_null(strstr(first + 1, ONCE));
    assert_non_null(strstr(log_text(), "\"permissionId\":\"q\",\"decision\":\"allow\""));
    /* one that is over */
    serve(WATCH PAST STOPPED("6", "failed") LOADED("false"));
    start_plain(ARGV(A("--watch"), A("s")));
    assert_int_equal(ended(), 1);
    assert_null(strstr(log_text(), "permission/respond"));
    serve(WATCH NO("2", "-32010"));
    start_plain(ARGV(A("--watch"), A("s")));
    assert_int_equal(ended(), 3);
}

/* Without a terminal, and at the end of input, the answer is left to others. */
static void test_watch_denies_nothing(void **state)
{
    (void)state;
    serve(WATCH PAST LOADED("true") ASK_NOW "#200\n" NOW_RESOLVED("operator", "allow"));
    start_plain(ARGV(A("--watch"), A("s")));
    assert_int_equal(ended(), 0);
    assert_null(strstr(log_text(), "permission/respond"));
    serve(WATCH PAST LOADED("true") ASK_NOW "#400\n" NOW_RESOLVED("operator", "allow"));
    start_terminal(ARGV(A("--watch"), A("s")), 80);
    expect(ONCE);
    type("\004");
    assert_int_equal(ended(), 0);
    assert_null(strstr(log_text(), "permission/respond"));
    /* and Ctrl-C leaves it alone */
    serve(WATCH PAST LOADED("true"));
    start_terminal(ARGV(A("--watch"), A("s")), 80);
    expect("ok");
    (void)poll(NULL, 0, 100);
    type("\003");
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(out_text, "left; the run goes on"));
    assert_null(strstr(log_text(), "session/cancel"));
}

static void test_resume(void **state)
{
    (void)state;
    serve(">initialize\n" OK("1", FULL) ">session/resume\n" PAST LOADED(
        "true") ">session/cancel\n" OK("3", "{\"canceled\":true}") STOPPED("6", "canceled"));
    start_terminal(ARGV(A("--resume"), A("s")), 80);
    expect("ok");
    (void)poll(NULL, 0, 100);
    type("\003");
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(log_text(), "session/cancel"));
    assert_non_null(strstr(out_text, "(CANCELED)"));
}

/* ---- the prompt -------------------------------------------------------------------------------
 */

#define SECOND(s)                                                                                  \
    ">session/new\n" OK("4", "{\"sessionId\":\"t\"}") ">session/prompt\n" NO("5", "-32603")

/* Reads until the next `text` that begins behind *seen, which is moved behind it. */
static void expect_next(const char *text, size_t *seen)
{
    size_t n = strlen(text);
    uint64_t until = br_now_us() + 20000000;
    for (;;) {
        out_text[out_len] = '\0';
        char *at = strstr(out_text + *seen, text);
        if (at) {
            *seen = (size_t)(at - out_text) + n;
            return;
        }
        struct pollfd p = {.fd = child.fd, .events = POLLIN};
        ssize_t k = br_now_us() < until && poll(&p, 1, 1000) >= 0 && p.revents
                        ? read(child.fd, out_text + out_len, sizeof(out_text) - 1 - out_len)
                        : -1;
        if (k <= 0 && br_now_us() >= until)
            fail_msg("waited for '%s'; there is: %s", text, out_text + *seen);
        out_len += k > 0 ? (size_t)k : 0;
    }
}

static void test_prompt(void **state)
{
    (void)state;
    struct stat st;
    size_t seen = 0;
    serve(RUN CREATED HEADER STARTED STOPPED("2", "completed") OK("3", DONE("completed", NONE))
              SECOND());
    start_terminal(ARGV(NULL), 80);
    expect_next("connected as uid:0, model m", &seen);
    expect_next("bridle> ", &seen);
    type("first \303\244\\\r");
    expect_next("    ... ", &seen);
    type("goal\r");
    expect_next("completed", &seen);
    expect_next("bridle> ", &seen);
    type("nothing\003");
    expect_next("^C\r\n", &seen);
    expect_next("bridle> ", &seen);
    type("second\r");
    expect_next("refused 'session/prompt': no (INTERNAL_ERROR)", &seen);
    expect_next("bridle> ", &seen);
    type("\004");
    (void)ended();
    assert_non_null(strstr(log_text(), "\"content\":\"first \303\244\\ngoal\""));
    assert_non_null(strstr(log_text(), "\"content\":\"second\""));
    assert_null(strstr(log_text(), "nothing"));
    assert_int_equal(stat("state/connect_history", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    /* the history of the next one */
    seen = 0;
    serve(RUN NO("3", "-32603"));
    start_terminal(ARGV(NULL), 80);
    expect_next("bridle> ", &seen);
    type("\020\r");
    expect_next("refused", &seen);
    expect_next("bridle> ", &seen);
    type("\004");
    (void)ended();
    assert_non_null(strstr(log_text(), "\"content\":\"second\""));
}

/* While a prompt is typed the service is served: it is known when it goes. */
static void play_goes(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    if (peer_next(p))
        peer_text(p, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":" FULL "}");
    peer_raw(p, "\x89\x04ping", 6);
    (void)poll(NULL, 0, 300);
    peer_raw(p, "\x88\x02\x03\xe9", 4);
    peer_drain(p);
}

static void test_prompt_is_served(void **state)
{
    (void)state;
    server = peer_start("s", NULL, 1, play_goes);
    start_terminal(ARGV(NULL), 80);
    expect("bridle> ");
    type("half a li");
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(out_text, "it is going away (1001)"));
    assert_non_null(strstr(log_text(), "PONG ping"));
}

/* ---- terminals --------------------------------------------------------------------------------
 */

/* The longest line of what was shown, escapes aside; '\r' begins a line anew. */
static unsigned widest(void)
{
    unsigned column = 0, most = 0;
    for (size_t i = 0; i < out_len; i++) {
        if (out_text[i] == '\033') {
            while (i < out_len && !((out_text[i] | 32) >= 'a' && (out_text[i] | 32) <= 'z'))
                i++;
            continue;
        }
        column = out_text[i] == '\n' || out_text[i] == '\r' ? 0 : column + 1;
        most = column > most ? column : most;
    }
    return most;
}

static void test_narrow(void **state)
{
    (void)state;
    serve(TOLD TEXT_("1", "1",
                     "A sentence that is much longer than forty columns are, of ordinary words.\\n")
              SHELL("a-target-with-a-name-that-is-long another-one") DECIDED("allow")
                  SHELL_DONE("4") "#1200\n" STOPPED("5", "completed")
                      OK("3", DONE("completed", NONE)));
    start_terminal(ARGV(A("goal")), 40);
    assert_int_equal(ended(), 0);
    char *record = strstr(out_text, "bridle connect unix:s --watch s");
    assert_non_null(record); /* which is to be copied, and not folded */
    memset(record, '\n', strlen("bridle connect unix:s --watch s"));
    if (widest() > 40)
        fail_msg("%u columns: %s", widest(), out_text);
    assert_non_null(strstr(out_text, " s, 0 tokens, 1 call"));
    assert_non_null(strstr(out_text, "12 ms\r\n"));
}

static void test_plain_terminals(void **state)
{
    (void)state;
    setenv("NO_COLOR", "1", 1);
    serve(SHOWN);
    start_terminal(ARGV(A("goal")), 80);
    assert_int_equal(ended(), 0);
    assert_null(strstr(out_text, "\033[3"));
    assert_null(strstr(out_text, "\033[1m"));
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    serve(TOLD "#800\n" STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
    start_terminal(ARGV(A("goal")), 80);
    assert_int_equal(ended(), 0);
    assert_null(strstr(out_text, "\033"));
    setenv("TERM", "xterm", 1);
    serve(SHOWN);
    start_terminal(ARGV(A("goal")), 80);
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "\033[1m"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(test_protocol_failures),
        T(test_contradicted),
        T(test_refusals),
        T(test_ends),
        T(test_transport),
        T(test_arguments),
        T(test_piped),
        T(test_requests),
        T(test_shown),
        T(test_without_extension),
        T(test_list),
        T(test_answers),
        T(test_json_asks),
        T(test_typed_ahead),
        T(test_answered_elsewhere),
        T(test_too_late),
        T(test_interrupt),
        T(test_interrupt_twice),
        T(test_detach),
        T(test_watch),
        T(test_watch_denies_nothing),
        T(test_resume),
        T(test_prompt),
        T(test_prompt_is_served),
        T(test_narrow),
        T(test_plain_terminals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
