/*
 * bridle connect before a service that does what none may do, refuses, or is not there: each ends
 * with a typed error, and the service is told why.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "cli/test_connect_rig.h"

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
        {RUN CREATED STARTED "!\n", 1, "what became of it: bridle connect unix:s --watch s"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        serve(rows[i].script);
        start_plain(ARGV(A("goal")));
        int code = ended();
        if (code != rows[i].code || !strstr(out_text, rows[i].says))
            fail_msg("row %zu: exit %d: %s", i, code, out_text);
    }
    /* a model that is not offered: those that are; one that is has been refused for something else
     */
    serve(">initialize\n" OK("1", FULL) ">session/new\n" NO("2", "-32020"));
    start_plain(ARGV(A("-m"), A("x"), A("goal")));
    assert_int_equal(ended(), 3);
    assert_non_null(strstr(out_text, "does not offer the model 'x'; it offers m. No session"));
    serve(">initialize\n" OK("1", FULL) ">session/new\n" NO("2", "-32020"));
    start_plain(ARGV(A("-m"), A("m"), A("goal")));
    assert_int_equal(ended(), 3);
    assert_non_null(strstr(out_text, "refused 'session/new': no"));
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
static void play_hang_up(struct peer *p)
{
    peer_read_request(p);
}
static void play_tls(struct peer *p)
{
    peer_read_request(p);
    peer_raw(p, "\x15\x03\x03\0\2\2\x28", 7);
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

/* Where the scheme seems to be the other one, that is said. */
static void test_schemes(void **state)
{
    (void)state;
    peer_play *const plays[] = {play_hang_up, play_tls};
    for (size_t i = 0; i < BR_ARRAY_LEN(plays); i++) {
        unsigned port = 0;
        char url[64];
        server = peer_start(NULL, &port, 1, plays[i]);
        snprintf(url, sizeof(url), "ws://127.0.0.1:%u", port);
        start_plain((char *const[]){A("bridle"), A("connect"), url, A("goal"), NULL});
        assert_int_equal(ended(), 1);
        assert_non_null(strstr(out_text, "speaks TLS"));
        assert_non_null(strstr(out_text, "the URL begins with wss://"));
    }
    server = peer_start("s", NULL, 1, play_hang_up); /* control */
    start_plain(ARGV(A("goal")));
    assert_int_equal(ended(), 1);
    assert_null(strstr(out_text, "TLS"));
}

/* A token that was brought is refused in other words than none. */
static void test_unknown(void **state)
{
    (void)state;
    server = peer_start("s", NULL, 1, play_401);
    start_plain(ARGV(A("goal")));
    assert_int_equal(ended(), 4);
    assert_non_null(strstr(out_text, "wants to know who you are (401)"));
    setenv("BRIDLE_TOKEN", "hunter2", 1);
    server = peer_start("s", NULL, 1, play_401);
    start_plain(ARGV(A("goal")));
    unsetenv("BRIDLE_TOKEN");
    assert_int_equal(ended(), 4);
    assert_non_null(strstr(out_text, "refused the token of BRIDLE_TOKEN (401)"));
    assert_null(strstr(out_text, "hunter2"));
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
    static const char *const runs[][2] = {{"--detach", NULL}, {"--dir", "/"},    {"--task", "t"},
                                          {"--model", "m"},   {"--tokens", "1"}, {"--calls", "1"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(runs); i++) {
        refused(2, "starts none", BARE_ARGV(A("--list"), A(runs[i][0]), A(runs[i][1])));
        refused(2, "starts none", BARE_ARGV(A("--watch=s"), A(runs[i][0]), A(runs[i][1])));
        refused(2, "starts none", BARE_ARGV(A("--resume=s"), A(runs[i][0]), A(runs[i][1])));
    }
    refused(2, "takes no prompt", BARE_ARGV(A("--watch"), A("s"), A("goal")));
    refused(2, "takes no prompt", BARE_ARGV(A("unix:s"), A("--resume"), A("s"), A("goal")));
    refused(2, "for a wss:// URL", BARE_ARGV(A("unix:s"), A("--ca-file"), A("x"), A("goal")));
    refused(2, "Is it ws://127.0.0.1:8765?", BARE_ARGV(A("127.0.0.1:8765"), A("hi")));
    refused(2, "Is it ws://[::1]:1?", BARE_ARGV(A("[::1]:1"), A("hi")));
    refused(2, "Is it ws://localhost:8765?", BARE_ARGV(A("localhost:8765")));
    refused(1, "no service listens", BARE_ARGV(A("127.0.0.1:8765 hi"))); /* a prompt */
    assert_null(strstr(out_text, "URL"));
    refused(1, "as a URL it is wss://build.example:443",
            BARE_ARGV(A("build.example:443"), A("hi")));
    int fd = open("key", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fchmod(fd, 0644) == 0);
    char *const tls[] = {A("bridle"), A("connect"), A("wss://127.0.0.1:1"),
                         A("--cert"), A("key"),     A("--key"),
                         A("key"),    A("goal"),    NULL};
    refused(5, "every user of this machine may use the private key 'key'", tls);
    assert_int_equal(fchmod(fd, 0640), 0);
    refused(1, "no service listens at '127.0.0.1:1'", tls); /* control */
    close(fd);
    assert_int_equal(unlink("key"), 0);
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

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, connect_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        T(test_protocol_failures),
        T(test_contradicted),
        T(test_refusals),
        T(test_ends),
        T(test_schemes),
        T(test_unknown),
        T(test_transport),
        T(test_arguments),
        T(test_piped),
        T(test_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
