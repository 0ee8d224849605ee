/*
 * The Agent Client Protocol through the real bridle-gateway: its subprotocol, a prompt that becomes
 * GATE_RUN, stored events that become updates, answers that reach the run's session, and what a run
 * hears when its editor goes. The test is bridled, the session and the audit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gateway/test_rig.h"

#include <cmocka.h>
#include <jansson.h>

static struct gate_rig r;

static int start(void **state)
{
    (void)state;
    gate_start(&r, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    gate_stop(&r);
    return 0;
}

static void say(struct gate_client *c, const char *text)
{
    char json[4096];
    snprintf(json, sizeof(json), "%s", text);
    for (char *s = json; *s; s++)
        if (*s == '\'')
            *s = '"';
    gate_send_text(c, json);
}

/* The next message, which has to have this in it. */
static const char *expect(struct gate_client *c, const char *what)
{
    const char *text = gate_read_text(c);
    if (!text || !strstr(text, what))
        fail_msg("not '%s' but '%s'", what, text ? text : "(the end)");
    return text;
}

static struct gate_client *editor(enum gate_way way)
{
    struct gate_client *c = gate_open(&r, way, "acp.v1");
    say(c, "{'jsonrpc':'2.0','id':0,'method':'initialize','params':{'protocolVersion':1}}");
    expect(c, "\"protocolVersion\":1");
    say(c, "{'jsonrpc':'2.0','id':1,'method':'session/new','params':{'cwd':'/srv/work/x',"
           "'mcpServers':[]}}");
    expect(c, "\"sessionId\"");
    return c;
}

static struct gate_run *prompt(struct gate_client *c)
{
    char text[512], id[BR_ID_MAX] = "";
    const char *at = strstr(c->text, "sessionId\":\"");
    assert_non_null(at);
    sscanf(at + 12, "%47[^\"]", id);
    snprintf(text, sizeof(text),
             "{'jsonrpc':'2.0','id':2,'method':'session/prompt','params':{'sessionId':'%s',"
             "'prompt':[{'type':'text','text':'do it'}]}}",
             id);
    say(c, text);
    struct gate_run *run = gate_wait_run(&r);
    assert_string_equal(run->id, id);
    assert_string_equal(run->content, "do it");
    assert_true(run->resolver);
    gate_event_of(run, "session.created", "{\"sessionId\":\"s\"}");
    gate_event_of(run, "agent.started", "{\"agentId\":\"a\",\"sessionId\":\"s\",\"model\":\"m\"}");
    return run;
}

static void ask(struct gate_client *c, struct gate_run *run)
{
    gate_event_of(run, "tool.call",
                  "{\"callId\":\"c\",\"tool\":\"fs_write\",\"input\":{\"path\":\"a\",\"content\":"
                  "\"b\"}}");
    expect(c, "\"tool_call\"");
    gate_event_of(run, "permission.requested",
                  "{\"permissionId\":\"perm_1\",\"sessionId\":\"s\",\"callId\":\"c\",\"action\":"
                  "\"fs.write\",\"subject\":\"a\",\"scope\":\"once\"}");
    gate_event_of(run, "bridle.ask",
                  "{\"permissionId\":\"perm_1\",\"callId\":\"c\",\"action\":\"fs.write\","
                  "\"subject\":\"a\",\"scope\":\"run\",\"ruleId\":\"r\",\"source\":\"operator\","
                  "\"opaque\":false,\"commands\":[],\"touches\":{\"writes\":[\"a\"]},\"advice\":"
                  "\"\"}");
    expect(c, "\"session/request_permission\"");
}

static void finish(struct gate_run *run, const char *status)
{
    char data[128];
    snprintf(data, sizeof(data),
             "{\"agentId\":\"a\",\"status\":\"%s\",\"steps\":1,\"toolCalls\":1}", status);
    gate_event_of(run, "agent.stopped", data);
    gate_end(run, 0, "");
}

static void test_turn(void **state)
{
    (void)state;
    struct gate_client *c = editor(GATE_UNIX);
    struct gate_run *run = prompt(c);
    gate_event_of(run, "bridle.text",
                  "{\"stream\":\"t\",\"kind\":\"agent\",\"text\":\"Hi\",\"final\":true}");
    expect(c, "\"agent_message_chunk\"");
    ask(c, run);
    say(c, "{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
           "'allow_always'}}}");
    gate_until_count(&r, &run->nanswers, 1, "an answer");
    assert_string_equal(run->answers[0].permission, "perm_1");
    assert_int_equal(run->answers[0].scope, 2);
    assert_true(strncmp(run->answers[0].who, "uid:", 4) == 0);
    gate_event_of(run, "permission.resolved",
                  "{\"permissionId\":\"perm_1\",\"sessionId\":\"s\",\"callId\":\"c\",\"action\":"
                  "\"fs.write\",\"subject\":\"a\",\"scope\":\"once\",\"decision\":\"allow\"}");
    expect(c, "\"in_progress\"");
    gate_event_of(run, "tool.result",
                  "{\"callId\":\"c\",\"tool\":\"fs_write\",\"ok\":true,\"output\":{\"bytes\":1}}");
    expect(c, "\"completed\"");
    finish(run, "completed");
    expect(c, "\"stopReason\":\"end_turn\"");
    gate_close(c);
}

static void test_cancel(void **state)
{
    (void)state;
    char text[256];
    struct gate_client *c = editor(GATE_TCP);
    struct gate_run *run = prompt(c);
    ask(c, run);
    snprintf(text, sizeof(text),
             "{'jsonrpc':'2.0','method':'session/cancel','params':{'sessionId':'%s'}}", run->id);
    say(c, text);
    gate_until_count(&r, &r.ncanceled, 1, "GATE_CANCEL");
    gate_event_of(run, "permission.resolved",
                  "{\"permissionId\":\"perm_1\",\"sessionId\":\"s\",\"callId\":\"c\",\"action\":"
                  "\"fs.write\",\"subject\":\"a\",\"scope\":\"once\",\"decision\":\"deny\"}");
    expect(c, "$/cancel_request");
    finish(run, "canceled");
    expect(c, "\"stopReason\":\"cancelled\"");
    /* an answer after that is none */
    say(c, "{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
           "'allow_once'}}}");
    say(c, "{'jsonrpc':'2.0','id':9,'method':'nonsense'}");
    expect(c, "-32601");
    assert_int_equal(run->nanswers, 0);
    gate_close(c);
}

static void test_the_editor_goes(void **state)
{
    (void)state;
    struct gate_client *c = editor(GATE_UNIX);
    struct gate_run *run = prompt(c);
    ask(c, run);
    gate_close(c);
    gate_until_count(&r, &r.ncanceled, 1, "GATE_CANCEL");
    for (unsigned i = 0; i < run->nanswers; i++)
        assert_int_equal(run->answers[i].scope, 0);
    finish(run, "canceled");
    gate_serve(&r, 50);
}

static void test_refusals(void **state)
{
    (void)state;
    struct gate_client *c = editor(GATE_UNIX);
    r.check_code = BR_E_INVALID_WORKSPACE;
    snprintf(r.check_text, sizeof(r.check_text), "'/etc' is outside of the root");
    say(c, "{'jsonrpc':'2.0','id':5,'method':'session/new','params':{'cwd':'/etc','mcpServers':"
           "[]}}");
    expect(c, "-32602");
    r.check_code = 0;
    say(c, "{'jsonrpc':'2.0','id':6,'method':'session/prompt','params':{'sessionId':'nobody',"
           "'prompt':[{'type':'text','text':'x'}]}}");
    expect(c, "-32002");
    r.refuse_runs = true;
    gate_close(c);
    c = editor(GATE_UNIX);
    const char *at = strstr(c->text, "sessionId\":\"");
    char id[BR_ID_MAX] = "", text[256];
    sscanf(at + 12, "%47[^\"]", id);
    snprintf(text, sizeof(text),
             "{'jsonrpc':'2.0','id':7,'method':'session/prompt','params':{'sessionId':'%s',"
             "'prompt':[{'type':'text','text':'x'}]}}",
             id);
    say(c, text);
    expect(c, "-32603");
    gate_close(c);
}

static void test_who_observes_runs_nothing(void **state)
{
    (void)state;
    struct gate_client *c = gate_open_as(&r, GATE_ANY, "acp.v1", GATE_TOKEN_OBSERVE);
    say(c, "{'jsonrpc':'2.0','id':0,'method':'initialize','params':{'protocolVersion':1}}");
    expect(c, "\"protocolVersion\":1");
    say(c,
        "{'jsonrpc':'2.0','id':1,'method':'session/new','params':{'cwd':'/srv/work','mcpServers':"
        "[]}}");
    expect(c, "-32030");
    assert_int_equal(r.nchecks, 0);
    gate_close(c);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        T(test_turn),
        T(test_cancel),
        T(test_the_editor_goes),
        T(test_refusals),
        T(test_who_observes_runs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
