/*
 * bridle connect before a service that plays what the test wrote: what is shown, asked and
 * answered.
 */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/test_connect_rig.h"

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
    /* the newest one */
    serve(">initialize\n" OK("1", FULL) ">session/list\n" OK(
        "2", "{\"sessions\":[{\"sessionId\":\"s\",\"status\":\"failed\"}"
             "],\"more\":true}") ">session/load\n" PAST STOPPED("6", "failed")
              OK("3", "{\"status\":\"failed\",\"live\":false,\"owned\":false}"));
    start_plain(ARGV(A("--watch"), A("last")));
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(log_text(), "{\"limit\":1}"));
    assert_non_null(strstr(log_text(), "{\"sessionId\":\"s\"}"));
    serve(">initialize\n" OK("1", FULL) ">session/list\n" OK("2",
                                                             "{\"sessions\":[],\"more\":false}"));
    start_plain(ARGV(A("--watch"), A("last")));
    assert_int_equal(ended(), 3);
    /* one that is over */
    serve(WATCH PAST STOPPED("6", "failed") LOADED("false"));
    start_plain(ARGV(A("--watch"), A("s")));
    assert_int_equal(ended(), 1);
    assert_null(strstr(log_text(), "permission/respond"));
    /* one whose record breaks off */
    serve(
        WATCH PAST LOADED("true") "{\"jsonrpc\":\"2.0\",\"method\":\"bridle/session\",\"params\":{"
                                  "\"sessionId\":\"s\",\"status\":\"failed\"}}\n");
    start_plain(ARGV(A("--watch"), A("s")));
    assert_int_equal(ended(), 1);
    assert_non_null(strstr(out_text, "the session has no end in its record"));
    serve(WATCH NO("2", "-32010"));
    start_plain(ARGV(A("--watch"), A("s")));
    assert_int_equal(ended(), 3);
}

/* Without a terminal, and at the end of input, the answer is left to others. */
/* A question that has waited a minute is put with what is left of its two. */
static void test_watch_late(void **state)
{
    (void)state;
    static const char *const clocks[] = {"T00:01:01.500+00:00", "T01:01:02+01:00", "T00:01:01Z"};
    for (size_t i = 0; i < BR_ARRAY_LEN(clocks); i++) {
        char text[8192];
        snprintf(text, sizeof(text),
                 ">initialize\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{" HELLO_
                 ",\"agentVersion\":\"1\",\"capabilities\":{\"streaming\":true,"
                 "\"permissioning\":true,\"sessions\":true,\"extensions\":[\"bridle/1\"]},"
                 "\"bridle\":{\"name\":\"uid:0\",\"access\":\"operate\",\"detach\":false,"
                 "\"askSeconds\":120,\"serverTime\":\"2026-01-01%s\"}}}\n"
                 ">session/load\n%s",
                 clocks[i],
                 CREATED HEADER STARTED CALL ASKED WANT("once")
                     LOADED("true") ">permission/respond\n" OK("3", "{\"accepted\":true}")
                         BY("operator", "allow") RESULT STOPPED("6", "completed"));
        serve(text);
        start_terminal(ARGV(A("--watch"), A("s")), 80);
        expect("Only y or yes does (5"); /* 58 s, or a little less */
        type("y\n");
        assert_int_equal(ended(), 0);
    }
}

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
    /* to be copied: a shell joins it again */
    assert_non_null(strstr(out_text, "bridle connect unix:s \\\r\n    --watch s\r\n"));
    if (widest() > 40)
        fail_msg("%u columns: %s", widest(), out_text);
    assert_non_null(strstr(out_text, " s, 0 tokens, 1 call"));
    assert_non_null(strstr(out_text, "12 ms\r\n"));
    serve(">initialize\n" OK("1", FULL));
    start_terminal(ARGV(NULL), 40);
    expect("connected as uid:0, model m. Each prompt\r\nis a run; Ctrl-D leaves.\r\n");
    expect("bridle> ");
    type("\004");
    assert_int_equal(ended(), 0);
}

/* What shows it again has what it took to connect, so that it can be pasted. */
static void test_record(void **state)
{
    (void)state;
    int fd = open("a token", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "secret\n", 7), 7);
    close(fd);
    serve(SHOWN);
    start_plain(ARGV(A("--token-file"), A("a token"), A("--server-uid"), A("any"), A("goal")));
    assert_int_equal(ended(), 0);
    assert_non_null(strstr(out_text, "bridle connect unix:s --token-file 'a token' --server-uid "
                                     "any --watch s\n"));
    assert_null(strstr(out_text, "secret"));
    assert_int_equal(unlink("a token"), 0);
}

static void touch(const char *name)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void await_log(const char *text)
{
    for (int i = 0; i < 1000 && !strstr(log_text(), text); i++)
        (void)poll(NULL, 0, 10);
    assert_non_null(strstr(log_text(), text));
}

/* Ctrl-S, and a pager: the service is served while nothing can be shown, and nothing is lost. */
static void test_stalled(void **state)
{
    (void)state;
    serve(TOLD "@go\n" TEXT_("1", "1", "first\\n") "?\n" TEXT_("2", "1", "second\\n")
              STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
    start_terminal(ARGV(A("goal")), 80);
    expect("run  s");
    type("\023");
    (void)poll(NULL, 0, 200);
    touch("go");
    await_log("PONG hi");
    assert_null(strstr(out_text, "first"));
    type("\021");
    assert_int_equal(ended(), 0);
    char *first = strstr(out_text, "| first");
    assert_true(first && strstr(first, "| second") && strstr(first, "completed"));
    /* what is typed before a question can be seen is no answer to it */
    (void)unlink("go");
    serve(TOLD "@go\n" CALL ASKED WANT("once") "?\n" ANSWERED("deny"));
    start_terminal(ARGV(A("goal")), 80);
    expect("run  s");
    type("\023");
    (void)poll(NULL, 0, 200);
    touch("go");
    await_log("PONG hi");
    type("y\ny\n");
    (void)poll(NULL, 0, 100);
    assert_null(strstr(out_text, "permission wanted"));
    type("\021");
    expect(ONCE);
    (void)poll(NULL, 0, 200);
    assert_null(strstr(log_text(), "permission/respond"));
    type("n\n");
    assert_int_equal(ended(), 0);
    /* 150 KiB of output, for somebody who does not read yet */
    static char much[400000];
    size_t n = (size_t)snprintf(much, sizeof(much), "%s", TOLD);
    for (unsigned i = 1; i <= 150; i++) {
        char numbers[64], id[16], line[1100];
        memset(line, 'x', 1000);
        line[1000] = '\0';
        snprintf(numbers, sizeof(numbers), "\"after\":1,\"seq\":%u", i);
        snprintf(id, sizeof(id), "o%u", i);
        n += (size_t)snprintf(much + n, sizeof(much) - n,
                              "{\"jsonrpc\":\"2.0\",\"method\":\"bridle/event\",\"params\":{"
                              "\"sessionId\":\"s\",%s,\"event\":{\"v\":1,\"type\":\"bridle.text\","
                              "\"eventId\":\"%s\"," AT ",\"data\":{\"stream\":\"t\",\"kind\":"
                              "\"agent\",\"text\":\"%s\\n\",\"final\":false}}}}\n",
                              numbers, id, line);
    }
    snprintf(much + n, sizeof(much) - n, "%s",
             "?\n" STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
    serve(much);
    start_plain(ARGV(A("goal")));
    await_log("PONG hi");
    size_t total = 0;
    unsigned xs = 0;
    char chunk[4096];
    for (ssize_t k; (k = read(child.fd, chunk, sizeof(chunk))) > 0; total += (size_t)k)
        for (ssize_t i = 0; i < k; i++)
            xs += chunk[i] == 'x';
    assert_int_equal(ended(), 0);
    assert_in_range(xs, 150 * 1000, 150 * 1000 + 20); /* one or other in a path */
    assert_true(total > xs);
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
#define T(f) cmocka_unit_test_setup_teardown(f, connect_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
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
        T(test_watch_late),
        T(test_record),
        T(test_watch_denies_nothing),
        T(test_resume),
        T(test_prompt),
        T(test_prompt_is_served),
        T(test_narrow),
        T(test_stalled),
        T(test_plain_terminals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
