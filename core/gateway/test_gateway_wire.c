/*
 * harness/acp/1 against the real program, over real sockets: a run from its prompt to its result,
 * a question answered by somebody else, what was stored put together with what is live, and what
 * becomes of a session whose client goes. What each request is answered with, in every case, is
 * tested in the played world (test_gateway_harness.c and its neighbours).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/test_rig.h"

#define INIT(extensions)                                                                           \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"     \
    "\"harness/acp/1\",\"clientName\":\"c\",\"capabilities\":{\"streaming\":true,"                 \
    "\"permissioning\":true" extensions "}}}"
#define EXTENDED ",\"sessions\":true,\"extensions\":[\"bridle/1\"]"

static void say(struct gate_client *c, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    gate_send_text(c, text);
}

/* The next message has this in it. */
static const char *hears(struct gate_client *c, const char *what)
{
    const char *text = gate_read_text(c);
    if (!text || !strstr(text, what))
        fail_msg("heard '%.300s', not '%s'", text ? text : "nothing", what);
    return text;
}

static struct gate_client *client(struct gate_rig *r, const char *init, const char *token)
{
    struct gate_client *c = gate_open_as(r, GATE_TCP, "harness.acp.1", token);
    gate_send_text(c, init);
    hears(c, "\"id\":0,\"result\":{\"protocolVersion\"");
    return c;
}

static void created(struct gate_client *c, char session[BR_ID_MAX])
{
    say(c, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{\"workspace\":"
           "\"/srv/work/a\"}}");
    const char *text = hears(c, "\"sessionId\":\""), *at = strstr(text, "sessionId\":\"") + 12;
    snprintf(session, BR_ID_MAX, "%.*s", (int)strcspn(at, "\""), at);
}

static struct gate_run *running(struct gate_client *c, char session[BR_ID_MAX])
{
    created(c, session);
    say(c,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":{\"sessionId\":"
        "\"%s\",\"content\":\"do it\"}}",
        session);
    struct gate_run *run = gate_wait_run(c->rig);
    assert_string_equal(run->id, session);
    return run;
}

static void stop_run(struct gate_run *run, const char *status)
{
    char data[64];
    snprintf(data, sizeof(data), "{\"status\":\"%s\"}", status);
    gate_event_of(run, "agent.stopped", data);
    gate_end(run, 0, "");
}

static void a_run(void **state)
{
    struct gate_rig r;
    char session[BR_ID_MAX];
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = client(&r, INIT(""), NULL);
    struct gate_run *run = running(c, session);
    assert_string_equal(run->content, "do it");
    gate_event_of(run, "session.created", "{}");
    gate_event_of(run, "bridle.run", "{}");
    hears(c, "\"seq\":0,\"event\":{\"v\":1,\"type\":\"session.created\"");
    /* too large for a message of a channel: it comes by descriptor, in spite of the filter */
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    br_buf_printf(&b, "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"output\":\"");
    for (unsigned i = 0; i < 25000; i++)
        br_buf_put(&b, "0123456789", 10);
    br_buf_printf(&b, "\"}");
    gate_event_of(run, "tool.result", br_buf_cstr(&b));
    hears(c, "\"seq\":1,\"event\":{\"v\":1,\"type\":\"tool.result\"");
    assert_true(c->ntext > 250000);
    gate_event_of(run, "bridle.text", "{\"text\":\"done\"}");
    gate_event_of(run, "model.response",
                  "{\"usage\":{\"promptTokens\":3,\"completionTokens\":4,\"totalTokens\":7}}");
    stop_run(run, "completed");
    hears(c, "\"seq\":2,\"event\":{\"v\":1,\"type\":\"model.response\"");
    hears(c, "\"seq\":3,\"event\":{\"v\":1,\"type\":\"agent.stopped\"");
    assert_string_equal(gate_read_text(c),
                        "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"status\":\"completed\","
                        "\"events\":[],\"finalText\":\"done\",\"usage\":{\"promptTokens\":3,"
                        "\"completionTokens\":4,\"totalTokens\":7}}}");
    gate_stop(&r);
}

static const char *const stored[] = {
    "{\"v\":1,\"type\":\"session.created\",\"eventId\":\"e1\",\"data\":{}}",
    "{\"v\":1,\"type\":\"permission.requested\",\"eventId\":\"e2\",\"data\":{}}", NULL};

static void another_operator(void **state)
{
    struct gate_rig r;
    char session[BR_ID_MAX];
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = client(&r, INIT(""), NULL),
                       *eyes = client(&r, INIT(EXTENDED), GATE_TOKEN_OBSERVE),
                       *second = client(&r, INIT(EXTENDED), GATE_TOKEN_ANSWER);
    say(second, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/new\",\"params\":{"
                "\"workspace\":\"/srv/work/a\"}}");
    hears(second, "ACP_FORBIDDEN");
    assert_int_equal(r.nchecks, 0);
    struct gate_run *run = running(c, session);
    gate_event_of(run, "session.created", "{}");
    gate_event_of(run, "permission.requested",
                  "{\"permissionId\":\"perm_1\",\"callId\":\"c1\",\"scope\":\"once\"}");
    hears(c, "session.created");
    hears(c, "permission.requested");
    r.events = stored;
    struct gate_client *const followers[] = {eyes, second};
    for (unsigned i = 0; i < 2; i++) {
        say(followers[i],
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/load\",\"params\":{"
            "\"sessionId\":\"%s\"}}",
            session);
        hears(followers[i], "\"seq\":0,\"event\":{\"v\":1,\"type\":\"session.created\"");
        hears(followers[i], "\"seq\":1,\"event\":{\"v\":1,\"type\":\"permission.requested\"");
        hears(followers[i], "{\"status\":\"running\",\"live\":true,\"owned\":true}");
        say(followers[i],
            "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"permission/respond\",\"params\":{"
            "\"sessionId\":\"%s\",\"permissionId\":\"perm_1\",\"decision\":\"allow\","
            "\"note\":\"go on\"}}",
            session);
        hears(followers[i], i ? "\"accepted\":true" : "ACP_FORBIDDEN");
    }
    assert_int_equal(run->nanswers, 1);
    assert_string_equal(run->answers[0].permission, "perm_1");
    assert_string_equal(run->answers[0].who, "token:answerer");
    assert_string_equal(run->answers[0].note, "go on");
    assert_int_equal(run->answers[0].scope, 1);
    gate_event_of(run, "permission.resolved",
                  "{\"permissionId\":\"perm_1\",\"decision\":\"allow\"}");
    gate_event_of(run, "bridle.answered", "{\"by\":\"token:answerer\"}");
    hears(c, "\"seq\":2,\"event\":{\"v\":1,\"type\":\"permission.resolved\"");
    hears(eyes, "\"seq\":2,\"event\":{\"v\":1,\"type\":\"permission.resolved\"");
    hears(eyes, "\"after\":2,\"seq\":0,\"event\":{\"v\":1,\"type\":\"bridle.answered\"");
    stop_run(run, "completed");
    hears(c, "\"seq\":3");
    hears(c, "\"status\":\"completed\"");
    hears(eyes, "\"seq\":3");
    gate_stop(&r);
}

/* A client that goes, in every state of its session. */
static void a_client_that_goes(void **state)
{
    struct gate_rig r;
    char session[BR_ID_MAX];
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = client(&r, INIT(""), NULL);
    created(c, session); /* created */
    gate_close(c);
    gate_until_count(&r, &r.nforgotten, 1, "GATE_FORGET");
    assert_string_equal(r.forgotten[0], session);
    c = client(&r, INIT(""), NULL);
    struct gate_run *run = running(c, session); /* running */
    gate_close(c);
    gate_until_count(&r, &r.ncanceled, 1, "GATE_CANCEL");
    assert_string_equal(r.canceled[0], session);
    assert_int_equal(r.canceled_how[0], 0);
    assert_int_equal(r.canceled_code, BR_E_CANCELED);
    assert_string_equal(r.canceled_why, "the client disconnected");
    stop_run(run, "canceled");
    c = client(&r, INIT(""), NULL);
    run = running(c, session); /* asked */
    gate_event_of(run, "permission.requested", "{\"permissionId\":\"perm_1\"}");
    hears(c, "permission.requested");
    gate_close(c);
    gate_until_count(&r, &r.ncanceled, 2, "GATE_CANCEL");
    assert_int_equal(run->nanswers, 0);
    gate_event_of(run, "permission.resolved",
                  "{\"permissionId\":\"perm_1\",\"decision\":\"deny\"}");
    stop_run(run, "canceled");
    c = client(&r, INIT(""), NULL);
    run = running(c, session); /* ended */
    stop_run(run, "completed");
    hears(c, "agent.stopped");
    hears(c, "\"result\"");
    gate_close(c);
    c = client(&r, INIT(""), NULL); /* and is known to nobody else */
    say(c,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":{\"sessionId\":"
        "\"%s\",\"content\":\"x\"}}",
        session);
    hears(c, "ACP_SESSION_NOT_FOUND");
    assert_int_equal(r.ncanceled, 2);
    gate_stop(&r);
}

/* A gap is not shown: the session ends, and its connection goes on. */
static void a_gap(void **state)
{
    struct gate_rig r;
    char session[BR_ID_MAX];
    (void)state;
    gate_start(&r, NULL);
    struct gate_client *c = client(&r, INIT(""), NULL);
    struct gate_run *run = running(c, session);
    gate_event_of(run, "session.created", "{}");
    hears(c, "session.created");
    run->row++;
    gate_event_of(run, "error", "{}");
    gate_until_count(&r, &r.ncanceled, 1, "GATE_CANCEL");
    assert_int_equal(r.canceled_how[0], 1);
    assert_int_equal(r.canceled_code, BR_E_PEER_PROTOCOL);
    assert_non_null(strstr(r.canceled_why, "the record has a gap"));
    gate_end_run(run, BR_E_FAILED, "");
    hears(c, "ACP_INTERNAL_ERROR");
    run = running(c, session);
    stop_run(run, "completed");
    hears(c, "agent.stopped");
    hears(c, "completed");
    gate_stop(&r);
}

/* Many at one time: each hears its own, in order. */
static void many_sessions(void **state)
{
    enum { N = 10, EVENTS = 50 };
    struct gate_rig r;
    struct gate_client *c[N];
    struct gate_run *run[N];
    char session[BR_ID_MAX], want[64];
    (void)state;
    gate_start(&r, NULL);
    for (unsigned i = 0; i < N; i++) {
        c[i] = client(&r, INIT(""), NULL);
        run[i] = running(c[i], session);
    }
    for (unsigned k = 0; k < EVENTS; k++)
        for (unsigned i = 0; i < N; i++)
            gate_event_of(run[i], "error", "{}");
    for (unsigned i = 0; i < N; i++)
        stop_run(run[i], "completed");
    for (unsigned i = 0; i < N; i++) {
        for (unsigned k = 0; k < EVENTS; k++) {
            snprintf(want, sizeof(want), "\"sessionId\":\"%.40s\",\"seq\":%u,", run[i]->id, k);
            hears(c[i], want);
        }
        hears(c[i], "agent.stopped");
        hears(c[i], "\"result\"");
    }
    gate_stop(&r);
}

/* Lists cost a process each: one who asks for ever more of them, on as many connections as it
 * likes, is refused beyond its burst, and nobody else is. */
static void many_lists(void **state)
{
    enum { N = 4, BURST = 100, ENOUGH = 5000 };
    static const char list[] =
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/list\",\"params\":{}}";
    struct gate_rig r;
    struct gate_client *c[N];
    unsigned n = 0;
    (void)state;
    gate_start(&r, NULL);
    for (unsigned i = 0; i < N; i++)
        c[i] = client(&r, INIT(EXTENDED), GATE_TOKEN_OBSERVE);
    for (; n < ENOUGH; n++) {
        say(c[n % N], list);
        if (!strstr(hears(c[n % N], "\"id\":7"), "\"result\""))
            break;
    }
    assert_in_range(n, BURST, ENOUGH - 1);
    assert_non_null(strstr(c[n % N]->text, "-32031"));
    assert_non_null(strstr(c[n % N]->text, "ACP_RATE_LIMITED"));
    assert_int_equal(r.nreads, n);
    struct gate_client *other = client(&r, INIT(EXTENDED), NULL); /* from the same address */
    say(other, list);
    hears(other, "\"id\":7,\"result\"");
    assert_int_equal(r.nreads, n + 1);
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run),
        cmocka_unit_test(another_operator),
        cmocka_unit_test(a_client_that_goes),
        cmocka_unit_test(a_gap),
        cmocka_unit_test(many_sessions),
        cmocka_unit_test(many_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
