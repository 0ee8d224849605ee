/*
 * What a service sends, checked: a conversation that is right, and every way in which one may not
 * be. A script has one message a line; a line with '>' is a request of this client, whose ids are
 * 1, 2, 3, ...
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cli/stream.h"
#include "cli/test_stream.h"

#define ROW(id)                                                                                    \
    "{\"jsonrpc\":\"2.0\",\"method\":\"bridle/session\",\"params\":{\"sessionId\":\"" id           \
    "\",\"status\":\"failed\"}}\n"

/* Every line; the last item, and the code. */
static int play(const char *script, struct br_stream *s, struct br_err *err)
{
    static const char *const names[] = {"",
                                        "initialize",
                                        "session/new",
                                        "session/prompt",
                                        "permission/respond",
                                        "session/cancel",
                                        "session/list",
                                        "session/load",
                                        "session/resume",
                                        "session/detach",
                                        "session/watch"};
    char line[1 << 16];
    struct br_stream_item item;
    for (const char *p = script; *p;) {
        size_t n = strcspn(p, "\n");
        assert_true(n < sizeof(line));
        memcpy(line, p, n);
        line[n] = '\0';
        p += n + 1;
        if (line[0] != '>') {
            int r = br_stream_read(s, line, n, &item, err);
            if (r < 0)
                return r;
            continue;
        }
        char method[32] = "", session[32] = "", permission[32] = "", answer[32] = "";
        (void)sscanf(line + 1, "%31s %31s %31s %31s", method, session, permission, answer);
        unsigned m = BR_ARRAY_LEN(names) - 1;
        while (m && strcmp(names[m], method) != 0)
            m--;
        assert_string_equal(br_stream_method_name(m), method);
        assert_true(br_stream_ask(s, m, session, permission, strcmp(answer, "allow") == 0) > 0);
    }
    return 0;
}

static void good(const char *name, const char *script)
{
    struct br_err err = {.code = BR_OK};
    struct br_stream *s = br_stream_new();
    if (play(script, s, &err) != 0)
        fail_msg("%s: %s", name, err.text);
    br_stream_free(&s);
}

static void bad(const char *name, const char *script, const char *why)
{
    struct br_err err = {.code = BR_OK};
    struct br_stream *s = br_stream_new();
    int r = play(script, s, &err);
    if (r != -BR_E_PEER_PROTOCOL || err.code != BR_E_PEER_PROTOCOL || !strstr(err.text, why) ||
        strncmp(err.text, "protocol failure: ", 18) != 0)
        fail_msg("%s: %d: %s", name, r, err.text);
    br_stream_free(&s);
}

/* ---- what is right -------------------------------------------------------------------------- */

static void test_good(void **state)
{
    (void)state;
    good("without the extension", ">initialize\n" OK("1", BARE));
    good("a run", BEGUN STOPPED("2", "completed") OK("3", DONE("completed", NONE)));
    good("failed", BEGUN STOPPED("2", "failed") OK("3", DONE("failed", NONE)));
    good("canceled", BEGUN ">session/cancel s\n" OK("4", "{\"canceled\":true}")
                         STOPPED("2", "canceled") OK("3", DONE("failed", NONE)));
    good("over budget", BEGUN STOPPED("2", "budget_exceeded") OK("3", DONE("failed", NONE)));
    good("refused", RUN NO("3", "-32011"));
    good("own events", RUN CREATED O("0", "0", "bridle.run", "{}")
                           STARTED O("1", "1", "bridle.text", "{\"new\":1}")
                               O("1", "2", "bridle.new", "{}") STOPPED("2", "completed"));
    good("own events come first",
         ">initialize\n" OK("1", FULL) ">session/load s\n" CREATED O("0", "0", "bridle.x", "{}"));
    good("allowed", WAITING ALLOW TAKEN BY("operator", "allow") RESULT);
    good("allowed, the answer later", WAITING ALLOW BY("operator", "allow") TAKEN RESULT);
    good("denied", WAITING DENY TAKEN BY("operator", "deny"));
    good("somebody else was first", WAITING ALLOW BY("operator", "deny") NO("4", "-32021"));
    good("it had expired", WAITING ALLOW NO("4", "-32021") BY("kernel", "deny"));
    good("nobody was asked here", WAITING BY("operator", "allow") RESULT);
    good("expired", WAITING BY("kernel", "deny"));
    good("who it was", WAITING BY("operator", "allow")
                           O("4", "0", "bridle.answered",
                             "{\"permissionId\":\"p\",\"by\":\"uid:1\",\"decision\":\"allow\"}"));
    good("a list", ">initialize\n" OK("1", FULL) ">session/list\n" OK(
                       "2", "{\"sessions\":[{\"sessionId\":\"s\",\"status\":\"completed\","
                            "\"new\":1}],\"more\":false}"));
    good("loaded",
         ">initialize\n" OK("1", FULL) ">session/load s\n" CREATED STARTED STOPPED("2", "completed")
             OK("2", "{\"status\":\"completed\",\"live\":false,\"owned\":false}"));
    good("loaded, live", ">initialize\n" OK("1", FULL) ">session/resume s\n" CREATED OK(
                             "2", "{\"status\":\"running\",\"live\":true,\"owned\":true}") STARTED);
    good("watched", ">initialize\n" OK("1", FULL) ">session/watch\n" OK(
                        "2", "{\"sessions\":[]}") "{\"jsonrpc\":\"2.0\",\"method\":"
                                                  "\"bridle/session\",\"params\":{\"sessionId\":"
                                                  "\"s\",\"status\":\"running\"}}\n");
    good("followed, and its record broke off",
         ">initialize\n" OK("1", FULL) ">session/load s\n" CREATED OK(
             "2", "{\"status\":\"running\",\"live\":true,\"owned\":false}") ROW("s"));
    good(
        "any key of an input",
        BEGUN E("2", "tool.call",
                "{\"callId\":\"c\",\"tool\":\"t\",\"input\":{\"__proto__\":{\"constructor\":1}}}"));
}

static void test_usage(void **state)
{
    (void)state;
#define TURN(q, n, m, id, p, c, t)                                                                 \
    E(n, "model.request", "{\"requestId\":\"" id "\",\"model\":\"m\",\"messageCount\":1}")         \
    E(m, "model.response",                                                                         \
      "{\"requestId\":\"" id                                                                       \
      "\",\"model\":\"m\",\"finishReason\":\"stop\",\"usage\":" USAGE(p, c, t) "}")
#define TWO                                                                                        \
    BEGUN TURN("", "2", "3", "r1", "10", "2", "12") TURN("", "4", "5", "r2", "20", "3", "23")
    good("the sum",
         TWO STOPPED("6", "completed") OK("3", DONE("completed", USAGE("30", "5", "35"))));
    bad("the last one",
        TWO STOPPED("6", "completed") OK("3", DONE("completed", USAGE("20", "3", "23"))),
        "the result counts 20 and 3 tokens, its events 30 and 5");
    bad("no sum", TWO STOPPED("6", "completed") OK("3", DONE("completed", USAGE("30", "5", "36"))),
        "'totalTokens' of a result is not the sum");
    bad("no sum in an event", BEGUN TURN("", "2", "3", "r1", "10", "2", "13"),
        "totalTokens that is not the sum");
    bad("a fraction",
        TWO STOPPED("6", "completed") OK("3", DONE("completed", USAGE("30.0", "5", "35"))),
        "'promptTokens' of 'usage' of a result");
    bad("more than can be counted",
        BEGUN TURN("", "2", "3", "r1", "9007199254740991", "0", "9007199254740991")
            TURN("", "4", "5", "r2", "1", "0", "1"),
        "more than can be counted");
}

/* ---- events --------------------------------------------------------------------------------- */

static void test_numbers(void **state)
{
    (void)state;
    bad("a gap", RUN CREATED CALL, "session/event has seq 2 where 1 is due: there is a gap");
    bad("a gap at the beginning", RUN STARTED, "has seq 1 where 0 is due: there is a gap");
    bad("again", RUN CREATED CREATED, "has seq 0 where 1 is due: it came before");
    bad("an own gap", RUN CREATED O("0", "1", "bridle.x", "{}"),
        "bridle/event has seq 1 where 0 is due: there is a gap");
    bad("after too much", RUN CREATED O("1", "0", "bridle.x", "{}"),
        "'after' of bridle/event is 1, but the last session/event is 0");
    bad("after too little", BEGUN O("0", "0", "bridle.x", "{}"),
        "'after' of bridle/event is 0, but the last session/event is 1");
    bad("no after", RUN CREATED EVENT_("bridle/event", "\"seq\":0", "bridle.x", "o", "", "{}"),
        "bridle/event has no 'after'");
    bad("negative",
        RUN EVENT_("session/event", "\"seq\":-1", "session.created", "e", "",
                   "{\"sessionId\":\"s\"}"),
        "'seq' of session/event");
    bad("a fraction",
        RUN EVENT_("session/event", "\"seq\":0.0", "session.created", "e", "",
                   "{\"sessionId\":\"s\"}"),
        "'seq' of session/event");
    bad("too large",
        RUN EVENT_("session/event", "\"seq\":9007199254740992", "session.created", "e", "",
                   "{\"sessionId\":\"s\"}"),
        "'seq' of session/event");
    bad("the same id",
        RUN CREATED EVENT_("session/event", "\"seq\":1", "agent.started", "e0", "",
                           "{\"agentId\":\"a\",\"sessionId\":\"s\",\"model\":\"m\"}"),
        "the event id 'e0' came twice");
    bad("the same id of both kinds",
        RUN CREATED EVENT_("bridle/event", "\"after\":0,\"seq\":0", "bridle.x", "e0", "", "{}"),
        "the event id 'e0' came twice");
}

static void test_whose(void **state)
{
    (void)state;
    bad("before the prompt", NEW CREATED, "which was not started");
    bad("of nobody", ">initialize\n" OK("1", FULL) CREATED, "which was not started");
    bad("after the result", BEGUN STOPPED("2", "completed") OK("3", DONE("completed", NONE)) CALL,
        "after agent.stopped");
    bad("after a refusal", RUN NO("3", "-32011") CREATED, "after the end");
    bad("of one that is over",
        ">initialize\n" OK("1", FULL) ">session/load s\n" OK(
            "2", "{\"status\":\"interrupted\",\"live\":false,\"owned\":false}") CREATED,
        "after the end");
    bad("without the extension",
        ">initialize\n" OK("1", BARE) ">session/new\n" OK(
            "2", "{\"sessionId\":\"s\"}") ">session/prompt s\n" CREATED O("0", "0", "bridle.x",
                                                                          "{}"),
        "bridle/1 was not agreed on");
    bad("own as another", RUN CREATED E("1", "bridle.x", "{}"), "'bridle.x' came as session/event");
    bad("another as own", RUN CREATED O("0", "0", "task.updated", "{}"),
        "'task.updated' came as bridle/event");
    bad("two ends", BEGUN STOPPED("2", "completed") STOPPED("3", "completed"),
        "after agent.stopped");
    bad("own behind the end", BEGUN STOPPED("2", "completed") O("2", "0", "bridle.x", "{}"),
        "after agent.stopped");
    bad("a second beginning", BEGUN E("2", "session.created", "{\"sessionId\":\"s\"}"),
        "came twice");
    bad("no beginning",
        RUN EVENT_("session/event", "\"seq\":0", "agent.started", "e", "",
                   "{\"agentId\":\"a\",\"sessionId\":\"s\",\"model\":\"m\"}"),
        "came before session.created");
    bad("an open call", BEGUN CALL STOPPED("3", "completed"), "leaves a tool call open");
    bad("a result of nothing",
        BEGUN E("2", "tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"output\":1}"),
        "answers no open call");
}

static void test_fields(void **state)
{
    (void)state;
    bad("an unknown key", RUN E("0", "session.created", "{\"sessionId\":\"s\",\"x\":1}"),
        "has the unknown key 'x'");
    bad("a missing one", RUN E("0", "session.created", "{}"), "is missing");
    bad("an unknown type", RUN CREATED E("1", "tool.news", "{}"), "is no type of event");
    bad("no data",
        RUN "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{"
            "\"sessionId\":\"s\",\"seq\":0,\"event\":{\"v\":1,\"type\":\"error\","
            "\"eventId\":\"e\"," AT "}}}\n",
        "an event has no 'data'");
    bad("a key beside them",
        RUN "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{"
            "\"sessionId\":\"s\",\"seq\":0,\"event\":{\"v\":1,\"type\":"
            "\"error\",\"eventId\":\"e\"," AT ",\"data\":{},\"x\":1}}}\n",
        "an event has the unknown key 'x'");
    bad("a key in params",
        RUN "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{"
            "\"sessionId\":\"s\",\"seq\":0,\"after\":-1,\"event\":{}}}\n",
        "session/event has the unknown key 'after'");
    bad("another version",
        RUN "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{\"sessionId\":\"s\","
            "\"seq\":0,\"event\":{\"v\":2,\"type\":\"error\",\"eventId\":\"e\"," AT
            ",\"data\":{}}}}\n",
        "another version");
    bad("an actor",
        RUN EVENT_("session/event", "\"seq\":0", "session.created", "e", "\"actor\":\"root\",",
                   "{\"sessionId\":\"s\"}"),
        "'actor' of an event");
    bad("two in one",
        RUN EVENT_("session/event", "\"seq\":0", "session.created", "e",
                   "\"actor\":\"kernel|agent\",", "{\"sessionId\":\"s\"}"),
        "'actor' of an event");
    bad("an empty id",
        RUN EVENT_("session/event", "\"seq\":0", "session.created", "", "",
                   "{\"sessionId\":\"s\"}"),
        "'eventId' of an event");
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *at;
        bool good;
    } rows[] = {
        {"2026-01-01T00:00:00.000+00:00", true},
        {"2026-01-01T00:00:00Z", true},
        {"2026-01-01T00:00:00.123456789-08:00", true},
        {"2026-01-01T00:00:00", false},
        {"2026-01-01T00:00:00.000", false},
        {"2026-01-01 00:00:00.000Z", false},
        {"2026-01-01T00:00:00.Z......", false},
        {"2026-01-01T00:00:00.1234567890Z", false},
        {"2026-01-01T00:00:00+0000", false},
        {"2026-01-01T00:00:00+00:00x", false},
        {"yesterday, at about four", false},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char script[4096];
        snprintf(script, sizeof(script),
                 RUN "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{\"sessionId\":"
                     "\"s\",\"seq\":0,\"event\":{\"v\":1,\"type\":\"session.created\","
                     "\"eventId\":\"e\",\"at\":\"%s\",\"data\":{\"sessionId\":\"s\"}}}}\n",
                 rows[i].at);
        if (rows[i].good)
            good(rows[i].at, script);
        else
            bad(rows[i].at, script, "'at' of an event");
    }
}

/* ---- permissions ---------------------------------------------------------------------------- */

static void test_permissions(void **state)
{
    (void)state;
    bad("allowed, but denied", WAITING ALLOW TAKEN BY("operator", "deny"),
        "resolved with deny, but this client's answer, which was accepted, is allow");
    bad("denied, but allowed", WAITING DENY TAKEN BY("operator", "allow"),
        "resolved with allow, but this client's answer, which was accepted, is deny");
    bad("denied, but allowed, the answer later", WAITING DENY BY("operator", "allow") TAKEN,
        "resolved with allow, but this client's answer, which was accepted, is deny");
    bad("not a person's", WAITING DENY TAKEN BY("kernel", "deny"), "is not an operator's");
    bad("twice",
        WAITING BY("operator", "allow") EVENT_("session/event", "\"seq\":5", "permission.resolved",
                                               "e5", "", "{" SUBJECT_ ",\"decision\":\"allow\"}"),
        "answers no open permission request");
    bad("another subject",
        WAITING E("4", "permission.resolved",
                  "{\"permissionId\":\"p\",\"sessionId\":\"s\",\"callId\":\"c\",\"action\":\"x\","
                  "\"subject\":\"z\",\"scope\":\"once\",\"decision\":\"allow\"}"),
        "does not agree with its request");
    bad("another scope",
        WAITING E("4", "permission.resolved",
                  "{\"permissionId\":\"p\",\"sessionId\":\"s\",\"callId\":\"c\",\"action\":\"x\","
                  "\"subject\":\"y\",\"scope\":\"run\",\"decision\":\"allow\"}"),
        "does not agree with its request");
    bad("asked twice",
        WAITING BY("operator", "deny") E("5", "permission.requested", "{" SUBJECT_ "}"),
        "was asked before");
    bad("a result while it waits",
        WAITING E("4", "tool.result",
                  "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"output\":null}"),
        "came before the answer to its permission request");
    bad("an end while it waits", WAITING STOPPED("4", "completed"),
        "leaves a permission request open");
    bad("no answer", WAITING ALLOW OK("4", "{\"accepted\":false}"), "'accepted'");
#define ASK_(action, subject)                                                                      \
    O("3", "0", "bridle.ask",                                                                      \
      "{\"permissionId\":\"p\",\"action\":\"" action "\",\"subject\":\"" subject "\"}")
    good("what is shown", WAITING ASK_("x", "y"));
    bad("another subject is shown", WAITING ASK_("x", "z"), "'bridle.ask' does not agree");
    bad("another action is shown", WAITING ASK_("z", "y"), "'bridle.ask' does not agree");
    bad("another answer is shown",
        WAITING BY("operator", "allow")
            O("4", "0", "bridle.answered", "{\"permissionId\":\"p\",\"decision\":\"deny\"}"),
        "'bridle.answered' does not agree");
    bad("an answer is shown too early",
        WAITING O("3", "0", "bridle.answered", "{\"permissionId\":\"p\",\"decision\":\"deny\"}"),
        "'bridle.answered' does not agree");
}

/* ---- results and JSON-RPC ------------------------------------------------------------------- */

static void test_results(void **state)
{
    (void)state;
    bad("too early", BEGUN OK("3", DONE("completed", NONE)), "came before agent.stopped");
    bad("it failed", BEGUN STOPPED("2", "failed") OK("3", DONE("completed", NONE)),
        "the result says completed, but agent.stopped said failed");
    bad("it completed", BEGUN STOPPED("2", "completed") OK("3", DONE("failed", NONE)),
        "the result says failed, but agent.stopped said completed");
    bad("another status", BEGUN STOPPED("2", "canceled") OK("3", DONE("canceled", NONE)),
        "'status' of the result of session/prompt");
    bad("a key",
        BEGUN STOPPED("2", "failed")
            OK("3", "{\"status\":\"failed\",\"events\":[],\"finalText\":\"\",\"usage\":" NONE
                    ",\"x\":1}"),
        "has the unknown key 'x'");
    bad("no text",
        BEGUN STOPPED("2", "failed")
            OK("3", "{\"status\":\"failed\",\"events\":[1],\"finalText\":\"\",\"usage\":" NONE "}"),
        "no text");
    bad("not a new one", NEW ">session/new\n" OK("3", "{\"sessionId\":\"s\"}"), "is not a new one");
    bad("no id", ">initialize\n" OK("1", FULL) ">session/new\n" OK("2", "{}"), "no 'sessionId'");
    bad("another protocol",
        ">initialize\n" OK("1", "{\"protocolVersion\":\"harness/acp/2\",\"agentName\":\"x\","
                                "\"models\":[],\"capabilities\":{}}"),
        "speaks 'harness/acp/2'");
    bad("no streaming",
        ">initialize\n" OK("1", "{" HELLO_ ",\"capabilities\":{\"streaming\":false,"
                                "\"permissioning\":true,\"sessions\":true}}"),
        "no streaming");
    bad("another extension",
        ">initialize\n" OK("1",
                           "{" HELLO_ ",\"capabilities\":{\"streaming\":true,"
                           "\"permissioning\":true,\"sessions\":true,\"extensions\":[\"x\"]}}"),
        "was not asked for");
    bad("half of it",
        ">initialize\n" OK("1", "{" HELLO_ ",\"capabilities\":{\"streaming\":true,\"permissioning\""
                                ":true,\"sessions\":true,\"extensions\":[\"bridle/1\"]}}"),
        "but not 'bridle'");
    bad("a row",
        ">initialize\n" OK("1", FULL) ">session/list\n" OK(
            "2", "{\"sessions\":[{\"status\":\"x\"}],\"more\":false}"),
        "no 'sessionId'");
}

static void test_rpc(void **state)
{
    (void)state;
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"", "sent what is not"},
        {"hello", "sent what is not"},
        {"[]", "not a JSON object"},
        {"{}", "not JSON-RPC 2.0"},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}", "not JSON-RPC 2.0"},
        {"{\"jsonrpc\":\"2.0\",\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", "not a JSON object"},
        {"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}", "what was not asked"},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{}}", "what was not asked"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":{}}", "what was not asked"},
        {"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}", "what was not asked"},
        {"{\"jsonrpc\":\"2.0\",\"id\":-1,\"result\":{}}", "what was not asked"},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"m\"}}",
         "did not understand this client: m"},
        {"{\"jsonrpc\":\"2.0\",\"result\":{}}", "not exactly jsonrpc, id"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", "not exactly jsonrpc, id"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"x\":1}", "not exactly jsonrpc, id"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}", "not exactly jsonrpc, id"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[]}", "is not an object"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}", "has no code"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"x\"}", "has no code"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1}}", "no 'message'"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":99999999999,\"message\":\"\"}}",
         "has no code"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\",\"x\":1}}",
         "unknown key"},
        {"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"fs/read\",\"params\":{}}", "sent a request"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{}}", "none that is due"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"bridle/session\",\"params\":{\"sessionId\":\"s\"}}",
         "none that is due"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"session/event\"}", "no 'params'"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":[]}", "'params' of"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{},\"x\":1}",
         "has the unknown key 'x'"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        char script[4096];
        snprintf(script, sizeof(script), ">initialize\n%s\n", rows[i].line);
        bad(rows[i].line, script, rows[i].why);
    }
    bad("of another than is followed",
        ">initialize\n" OK("1", FULL) ">session/load s\n" CREATED ROW("t"), "none that is due");
    bad("answered twice", ">initialize\n" OK("1", FULL) OK("1", FULL), "answered it twice");
}

/* Deep, and much: at the limit and beyond it. */
static void test_size(void **state)
{
    (void)state;
    static char script[1 << 16];
    for (unsigned depth = 60; depth < 90; depth += 25) {
        size_t n = (size_t)snprintf(script, sizeof(script),
                                    BEGUN "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\","
                                          "\"params\":{\"sessionId\":\"s\",\"seq\":2,\"event\":{"
                                          "\"v\":1,\"type\":\"tool.call\",\"eventId\":\"e\"," AT
                                          ",\"data\":{\"callId\":\"c\",\"tool\":\"t\",\"input\":");
        memset(script + n, '[', depth);
        memset(script + n + depth, ']', depth);
        snprintf(script + n + 2 * depth, 16, "}}}}\n");
        if (depth == 60)
            good("60 levels", script);
        else
            bad("85 levels", script, "not JSON within its limits");
    }
}

/* ---- what it knows -------------------------------------------------------------------------- */

static void test_items(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    struct br_stream *s = br_stream_new();
    struct br_stream_item item;
    assert_int_equal(play(">initialize\n", s, &err), 0);
    assert_false(br_stream_extended(s));
    assert_int_equal(play(OK("1", FULL) ">session/new\n", s, &err), 0);
    assert_true(br_stream_extended(s));
    const char *refused = NO("2", "-32012");
    assert_int_equal(br_stream_read(s, refused, strlen(refused), &item, &err), 0);
    assert_int_equal(item.kind, BR_STREAM_REFUSED);
    assert_int_equal(item.method, BR_STREAM_NEW);
    assert_int_equal(item.code, -32012);
    assert_string_equal(item.name, "ACP_X");
    assert_int_equal(play(">session/load s\n" CREATED O("0", "0", "bridle.run", "{}"), s, &err), 0);
    assert_int_equal(br_stream_last(s, "s", false), 0);
    assert_int_equal(br_stream_last(s, "s", true), 0);
    assert_int_equal(br_stream_last(s, "t", true), -1);
    assert_null(br_stream_stopped(s, "s"));
    const char *stopped = E("1", "agent.stopped",
                            "{\"agentId\":\"a\",\"status\":\"failed\","
                            "\"steps\":0,\"toolCalls\":0}");
    assert_int_equal(br_stream_read(s, stopped, strlen(stopped), &item, &err), 0);
    assert_int_equal(item.kind, BR_STREAM_EVENT);
    assert_string_equal(item.session, "s");
    assert_string_equal(item.type, "agent.stopped");
    assert_string_equal(br_stream_stopped(s, "s"), "failed");
    br_stream_free(&s);
    br_stream_free(&s);
}

/* As many answers may be due as there is room for, and no more. */
static void test_pending(void **state)
{
    (void)state;
    struct br_stream *s = br_stream_new();
    for (unsigned i = 0; i < BR_STREAM_PENDING_MAX; i++)
        assert_int_equal(br_stream_ask(s, BR_STREAM_LIST, "", "", false), i + 1);
    assert_int_equal(br_stream_ask(s, BR_STREAM_LIST, "", "", false), 0);
    br_stream_free(&s);
    s = br_stream_new();
    for (unsigned i = 0; i <= BR_STREAM_SESSIONS_MAX; i++) {
        char id[16];
        snprintf(id, sizeof(id), "s%u", i);
        assert_int_equal(br_stream_ask(s, BR_STREAM_LOAD, id, "", false) > 0,
                         i < BR_STREAM_SESSIONS_MAX);
    }
    br_stream_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_numbers),     cmocka_unit_test(test_whose),
        cmocka_unit_test(test_fields),      cmocka_unit_test(test_times),
        cmocka_unit_test(test_permissions), cmocka_unit_test(test_results),
        cmocka_unit_test(test_rpc),         cmocka_unit_test(test_size),
        cmocka_unit_test(test_items),       cmocka_unit_test(test_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
