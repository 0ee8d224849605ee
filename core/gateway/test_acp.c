/*
 * The Agent Client Protocol on sessions that the test plays: what is answered, what a client is
 * told of a run, and that nothing but a choice of an offered permission ever allows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_acp_rig.h"

static int open_rig(void **state)
{
    (void)state;
    rig_open();
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    rig_close();
    return 0;
}

#define REQUEST(id, method, params)                                                                \
    "{'jsonrpc':'2.0','id':" id ",'method':'" method "','params':" params "}"
#define NOTE(method, params) "{'jsonrpc':'2.0','method':'" method "','params':" params "}"

static struct gw_session *prompted(const char *session)
{
    rig_say(REQUEST("'p'", "session/prompt",
                    "{'sessionId':'%s','prompt':[{'type':'text','text':'do it'}]}"),
            session);
    return rig_run();
}

/* ---- initialize ---- */

static void test_initialize(void **state)
{
    (void)state;
    rig_say(REQUEST("1", "session/new", "{'cwd':'/w','mcpServers':[]}"));
    assert_int_equal(rig_error("1", NULL), -32600);
    rig_say(REQUEST("2", "initialize", "{'protocolVersion':'1'}"));
    assert_int_equal(rig_error("2", NULL), -32602);
    /* a version that is not known gets the one that is; unknown keys are left alone */
    rig_say(REQUEST("3", "initialize",
                    "{'protocolVersion':7,'clientCapabilities':{'fs':{'readTextFile':true},"
                    "'terminal':true},'clientInfo':{'name':'x','version':'1'},'new':{}}"));
    json_t *r = rig_result("3");
    assert_int_equal(json_integer_value(json_object_get(r, "protocolVersion")), 1);
    assert_string_equal(rig_text(r, "agentInfo.name"), "bridle");
    assert_int_equal(json_array_size(json_object_get(r, "authMethods")), 0);
    json_t *c = json_object_get(r, "agentCapabilities");
    assert_true(json_is_true(json_object_get(c, "loadSession")));
    assert_true(json_is_false(json_object_get(json_object_get(c, "promptCapabilities"), "image")));
    assert_true(json_is_false(json_object_get(json_object_get(c, "mcpCapabilities"), "http")));
    rig_say(REQUEST("4", "initialize", "{'protocolVersion':1}"));
    assert_int_equal(rig_error("4", NULL), -32600);
    rig_say(REQUEST("5", "authenticate", "{'methodId':'x'}"));
    assert_int_equal(rig_error("5", NULL), -32602);
    assert_int_equal(rig.nsessions, 0);
}

static void test_messages_that_are_none(void **state)
{
    (void)state;
    rig_ready();
    rig_say("{'jsonrpc'");
    assert_int_equal(rig_error("null", NULL), -32700);
    json_array_clear(rig.c.sent);
    rig_say("[]");
    assert_int_equal(rig_error("null", NULL), -32600);
    json_array_clear(rig.c.sent);
    rig_say(REQUEST("1", "fs/read_text_file", "{}"));
    assert_int_equal(rig_error("1", NULL), -32601);
    rig_say(REQUEST("2", "session/cancel", "{'sessionId':'x'}")); /* is a notification */
    assert_int_equal(rig_error("2", NULL), -32601);
    rig_say(REQUEST("3", "session/prompt", "[]"));
    assert_int_equal(rig_error("3", NULL), -32602);
    size_t before = json_array_size(rig.c.sent);
    rig_say(NOTE("session/prompt", "{'sessionId':'run_01','prompt':[{'type':'text','text':'x'}]}"));
    rig_say(NOTE("nothing/known", "{}"));
    rig_say(NOTE("session/cancel", "{'sessionId':'other'}"));
    rig_say("{'jsonrpc':'2.0','id':99,'result':{}}");
    rig_say("{'jsonrpc':'2.0','id':'x','error':{'code':1,'message':'m'}}");
    rig.too_often = true;
    rig_say(REQUEST("4", "session/new", "{'cwd':'/w','mcpServers':[]}"));
    assert_int_equal(rig_error("4", NULL), -32603);
    assert_int_equal(json_array_size(rig.c.sent), before + 1);
    assert_int_equal(rig.nsessions, 1);
    assert_int_equal(rig.sessions[0].state, GW_CREATED);
}

/* ---- sessions ---- */

static void test_new_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{'mcpServers':[]}",
        "{'cwd':'w','mcpServers':[]}",
        "{'cwd':7,'mcpServers':[]}",
        "{'cwd':'/etc','mcpServers':[]}", /* outside, as bridled says */
        "{'cwd':'/w','mcpServers':[{'name':'x','command':'/bin/sh','args':[],'env':[]}]}",
        "{'cwd':'/w','mcpServers':{'x':{}}}",
        "{'cwd':'/w','mcpServers':'x'}",
        "{'cwd':'/w','mcpServers':[],'additionalDirectories':['/w2']}",
        "{'cwd':'/w','mcpServers':[],'additionalDirectories':'/w2'}",
    };
    rig_ready();
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        char id[8];
        snprintf(id, sizeof(id), "%zu", i);
        rig_say("{'jsonrpc':'2.0','id':%s,'method':'session/new','params':%s}", id, bad[i]);
        assert_int_equal(rig_error(id, NULL), -32602);
    }
    rig_say(REQUEST("20", "session/new",
                    "{'cwd':'/w','mcpServers':{},'additionalDirectories':[],'_meta':{'a':1}}"));
    assert_non_null(rig_result("20"));
    rig.c.who.access = BR_ACCESS_ANSWER;
    rig_say(REQUEST("21", "session/new", "{'cwd':'/w','mcpServers':[]}"));
    assert_int_equal(rig_error("21", NULL), -32030);
    rig.c.who.access = BR_ACCESS_OPERATE;
    rig.draining = true;
    rig_say(REQUEST("22", "session/new", "{'cwd':'/w','mcpServers':[]}"));
    assert_int_equal(rig_error("22", NULL), -32603);
    assert_int_equal(rig.nsessions, 2);
}

static void test_sessions_are_limited(void **state)
{
    (void)state;
    rig.settings.sessions_per_connection = 3;
    rig_ready();
    for (unsigned i = 0; i < 3; i++)
        rig_say("{'jsonrpc':'2.0','id':%u,'method':'session/new','params':{'cwd':'/w',"
                "'mcpServers':[]}}",
                i);
    assert_non_null(rig_result("1"));
    assert_int_equal(rig_error("2", NULL), -32603);
    assert_int_equal(rig.nsessions, 3);
    /* those that wait expire; their names stay good, and a prompt gets another run */
    for (unsigned i = 0; i < 3; i++)
        rig.sessions[i].forgotten = true;
    rig_say(REQUEST("5", "session/new", "{'cwd':'/w','mcpServers':[]}"));
    assert_non_null(rig_result("5"));
    struct gw_session *s = prompted("run_01");
    assert_string_equal(s->id, "run_05");
    rig_end(s, GW_COMPLETED, "completed");
    assert_string_equal(rig_text(rig_result("\"p\""), "stopReason"), "end_turn");
    assert_string_equal(rig_text(rig_result("\"p\""), "_meta.bridle.runId"), "run_05");
    rig_say(REQUEST("6", "session/close", "{'sessionId':'run_01'}"));
    assert_non_null(rig_result("6"));
    rig_say(REQUEST("7", "session/close", "{'sessionId':'run_01'}"));
    assert_int_equal(rig_error("7", NULL), -32002);
}

/* ---- prompts ---- */

static void test_prompt_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{'sessionId':'run_01'}",
        "{'sessionId':'run_01','prompt':[]}",
        "{'sessionId':'run_01','prompt':'x'}",
        "{'sessionId':'run_01','prompt':['x']}",
        "{'sessionId':'run_01','prompt':[{'type':'text'}]}",
        "{'sessionId':'run_01','prompt':[{'type':'text','text':''}]}",
        "{'sessionId':'run_01','prompt':[{'type':'image','data':'','mimeType':'image/png'}]}",
        "{'sessionId':'run_01','prompt':[{'type':'audio','data':'','mimeType':'audio/wav'}]}",
        "{'sessionId':'run_01','prompt':[{'type':'resource_link','uri':'file:///x'}]}",
        "{'sessionId':'run_01','prompt':[{'type':'resource','resource':{'uri':'u','blob':''}}]}",
    };
    rig_ready();
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        char id[8];
        snprintf(id, sizeof(id), "%zu", i);
        rig_say("{'jsonrpc':'2.0','id':%s,'method':'session/prompt','params':%s}", id, bad[i]);
        assert_int_equal(rig_error(id, NULL), -32602);
    }
    rig_say(REQUEST("20", "session/prompt",
                    "{'sessionId':'run_99','prompt':[{'type':'text','text':'x'}]}"));
    assert_int_equal(rig_error("20", NULL), -32002);
    assert_int_equal(rig.sessions[0].state, GW_CREATED);
}

static void test_prompt_length(void **state)
{
    (void)state;
    const char *id = rig_ready();
    for (unsigned extra = 0; extra < 2; extra++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 * BR_GOAL_MAX);
        br_buf_printf(&b,
                      "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"session/prompt\",\"params\":"
                      "{\"sessionId\":\"%s\",\"prompt\":[{\"type\":\"text\",\"text\":\"",
                      2 - extra, id);
        for (size_t i = 0; i < BR_GOAL_MAX + 1 - extra; i++)
            br_buf_put(&b, "x", 1);
        br_buf_printf(&b, "\"}]}}");
        gw_acp.message(&rig.c, (char *)b.data, b.len);
    }
    assert_int_equal(rig_error("2", NULL), -32602); /* one too many */
    assert_int_equal(rig_run()->ncontent, BR_GOAL_MAX);
    rig_end(rig_run(), GW_COMPLETED, "completed");
}

static void test_turn(void **state)
{
    (void)state;
    const char *id = rig_ready();
    rig_say(REQUEST("1", "session/prompt",
                    "{'sessionId':'%s','prompt':[{'type':'text','text':'see '},"
                    "{'type':'resource_link','uri':'file:///w/a','name':'a'},"
                    "{'type':'resource','resource':{'uri':'file:///w/b','text':'B'}}]}"),
            id);
    struct gw_session *s = rig_run();
    assert_string_equal(s->id, id); /* the first run has the session's name */
    assert_string_equal(s->content,
                        "see [a](file:///w/a)\n<context ref=\"file:///w/b\">\nB\n</context>\n");
    rig_event(s, "bridle.text", "{'stream':'t','kind':'agent','text':'Hi','final':false}");
    rig_event(s, "bridle.text", "{'stream':'t','kind':'agent','text':'','final':true}");
    rig_event(s, "tool.call",
              "{'callId':'c1','tool':'process_exec','input':{'argv':['ls','a b']}}");
    rig_event(s, "policy.decision", "{'action':'process.exec','effect':'allow'}");
    rig_event(s, "bridle.votes", "{'callId':'c1','action':'process.exec','effect':'allow'}");
    rig_event(s, "tool.result",
              "{'callId':'c1','tool':'process_exec','ok':true,'output':{'exitCode':2,'stdout':'x',"
              "'stderr':'no'}}");
    /* beside it nothing else of this session runs */
    rig_say(
        REQUEST("2", "session/prompt", "{'sessionId':'%s','prompt':[{'type':'text','text':'x'}]}"),
        id);
    assert_int_equal(rig_error("2", NULL), -32600);
    assert_false(rig_answered("1"));
    rig_end(s, GW_COMPLETED, "completed");
    assert_string_equal(rig_text(rig_result("1"), "stopReason"), "end_turn");

    assert_string_equal(rig_text(rig_update("agent_message_chunk", 0), "content.text"), "Hi");
    assert_string_equal(rig_text(rig_update("agent_message_chunk", 0), "messageId"), "t");
    assert_null(rig_update("agent_message_chunk", 1));
    json_t *call = rig_update("tool_call", 0);
    assert_string_equal(rig_text(call, "toolCallId"), "1.c1");
    assert_string_equal(rig_text(call, "title"), "ls 'a b'");
    assert_string_equal(rig_text(call, "kind"), "execute");
    assert_string_equal(rig_text(call, "status"), "pending");
    assert_string_equal(rig_text(call, "rawInput.argv.1"), "a b");
    assert_string_equal(rig_text(rig_update("tool_call_update", 0), "status"), "in_progress");
    json_t *end = rig_update("tool_call_update", 1);
    assert_string_equal(rig_text(end, "status"), "completed");
    assert_string_equal(rig_text(end, "content.0.content.text"), "```\nxno\n[exit status 2]\n```");
    /* a second prompt is another run in the same directory, and its calls other calls */
    s = prompted(id);
    assert_string_equal(s->id, "run_02");
    assert_string_equal(s->workspace, "/w");
    rig_event(s, "tool.call",
              "{'callId':'c1','tool':'fs_edit','input':{'path':'a/b.c','old_text':'x',"
              "'new_text':'y'}}");
    call = rig_update("tool_call", 1);
    assert_string_equal(rig_text(call, "toolCallId"), "2.c1");
    assert_string_equal(rig_text(call, "title"), "Edit a/b.c");
    assert_string_equal(rig_text(call, "locations.0.path"), "/w/a/b.c");
    assert_string_equal(rig_text(call, "content.0.path"), "/w/a/b.c");
    assert_string_equal(rig_text(call, "content.0.newText"), "y");
    s->result.text = "whole";
    s->result.ntext = 5;
    rig_end(s, GW_COMPLETED, "completed");
    assert_int_equal(rig.released, 2); /* an ended run is not kept for it */
    /* nothing was streamed: the text comes at the end */
    assert_string_equal(rig_text(rig_update("agent_message_chunk", 1), "content.text"), "whole");
}

static void test_titles_are_harmless(void **state)
{
    (void)state;
    struct gw_session *s = prompted(rig_ready());
    rig_event(s, "tool.call",
              "{'callId':'c','tool':'process_exec','input':{'command':'a\\u202eb\\u001b[2J\\nc'}}");
    rig_event(s, "tool.call", "{'callId':'d','tool':'fs_read','input':{'path':'../x'}}");
    rig_event(s, "tool.call", "{'callId':'e','tool':'odd','input':[1]}");
    assert_string_equal(rig_text(rig_update("tool_call", 0), "title"), "a\\u202eb\\x1b[2J\\nc");
    assert_null(json_object_get(rig_update("tool_call", 1), "locations"));
    assert_string_equal(rig_text(rig_update("tool_call", 2), "title"), "odd");
    assert_string_equal(rig_text(rig_update("tool_call", 2), "kind"), "other");
    /* fences of an output are shorter than those around it */
    rig_event(s, "tool.result",
              "{'callId':'c','tool':'process_exec','ok':true,'output':{'exitCode':0,'stdout':"
              "'````\\n# no heading\\n','stderr':''}}");
    assert_string_equal(rig_text(rig_update("tool_call_update", 0), "content.0.content.text"),
                        "`````\n````\n# no heading\n`````");
}

static void test_stop_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *type, *data;
        enum gw_state state;
        const char *stopped, *want;
        int error;
    } rows[] = {
        {"model.response", "{'finishReason':'stop'}", GW_COMPLETED, "completed", "end_turn", 0},
        {"model.response", "{'finishReason':'length'}", GW_FAILED, "budget_exceeded", "max_tokens",
         0},
        {"budget.warning", "{'metric':'tokens','used':9,'limit':10,'pct':90}", GW_FAILED,
         "budget_exceeded", "max_tokens", 0},
        {"budget.warning", "{'metric':'tool_calls','used':9,'limit':10,'pct':90}", GW_FAILED,
         "budget_exceeded", "max_turn_requests", 0},
        {"error", "{'code':'DENIED','message':'no'}", GW_FAILED, "failed", "refusal", 0},
        {"error", "{'code':'PROVIDER_STATUS','message':'no'}", GW_FAILED, "failed", "", -32603},
        {"task.updated", "{'phase':'blocked'}", GW_FAILED, "", "", -32603},
        {"task.updated", "{'phase':'blocked'}", GW_CANCELED, "canceled", "cancelled", 0},
    };
    rig_ready();
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        json_array_clear(rig.c.sent);
        struct gw_session *s = prompted("run_01");
        rig_event(s, rows[i].type, rows[i].data);
        rig_end(s, rows[i].state, rows[i].stopped);
        assert_string_equal(rig_text(rig_result("\"p\""), "stopReason"), rows[i].want);
        assert_int_equal(rig_error("\"p\"", NULL), rows[i].error);
    }
}

/* Notices are for clients that say that they show them. */
static void test_notices(void **state)
{
    (void)state;
    static const char warning[] = "{'metric':'tokens','used':90,'limit':100,'pct':90}";
    struct gw_session *s = prompted(rig_ready());
    rig_event(s, "budget.warning", warning);
    assert_null(rig_update("notice", 0));
    rig_close();
    rig_open();
    rig_say(REQUEST("'j'", "initialize",
                    "{'protocolVersion':1,'clientCapabilities':{'session':{'notices':{}}}}"));
    rig_say(REQUEST("'n'", "session/new", "{'cwd':'/w','mcpServers':[]}"));
    s = prompted("run_01");
    rig_event(s, "budget.warning", warning);
    rig_event(s, "bridle.notice", "{'code':'X','message':'a\\u0007b'}");
    assert_string_equal(rig_text(rig_update("notice", 0), "severity"), "warning");
    assert_string_equal(rig_text(rig_update("notice", 0), "title"),
                        "90 % of the budget of model tokens is used (90 of 100)");
    assert_string_equal(rig_text(rig_update("notice", 1), "title"), "a\\x07b");
}

/* ---- questions ---- */

#define ASK(scope)                                                                                 \
    "{'permissionId':'perm_1','callId':'c1','action':'fs.write','subject':'a','scope':'" scope     \
    "','ruleId':'writes','source':'operator','reason':'why','opaque':false,'commands':[],"         \
    "'touches':{'writes':['a']},'advice':''}"

static struct gw_session *asked(const char *scope)
{
    struct gw_session *s = prompted(rig_ready());
    rig_event(s, "tool.call",
              "{'callId':'c1','tool':'fs_write','input':{'path':'a','content':'new'}}");
    rig_event(s, "bridle.votes", "{'callId':'c1','action':'fs.write','effect':'ask'}");
    rig_event(s, "permission.requested", "{'permissionId':'perm_1','callId':'c1'}");
    assert_null(rig_sent("session/request_permission", 0));
    rig_event(s, "bridle.ask", scope[0] == 'r' ? ASK("run") : ASK("once"));
    assert_non_null(rig_sent("session/request_permission", 0));
    return s;
}

static void test_ask(void **state)
{
    (void)state;
    struct gw_session *s = asked("run");
    json_t *m = json_object_get(rig_sent("session/request_permission", 0), "params");
    assert_string_equal(rig_text(m, "sessionId"), "run_01");
    assert_string_equal(rig_text(m, "toolCall.toolCallId"), "1.c1");
    assert_string_equal(rig_text(m, "toolCall.title"), "Write a");
    assert_string_equal(rig_text(m, "toolCall.status"), "pending");
    assert_string_equal(rig_text(m, "toolCall.rawInput.content"), "new");
    assert_string_equal(rig_text(m, "toolCall.content.0.content.text"),
                        "fs.write: a\n\nRule 'writes' (operator) asks: why\nwrites: a\n");
    assert_string_equal(rig_text(m, "toolCall.content.1.newText"), "new");
    assert_int_equal(json_array_size(json_object_get(m, "options")), 3);
    assert_string_equal(rig_text(m, "options.1.kind"), "allow_always");
    assert_string_equal(rig_text(m, "options.1.name"), "Allow for this run");
    assert_string_equal(rig_text(m, "options.2.kind"), "reject_once");
    assert_null(rig_update("tool_call_update", 0)); /* still pending */
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
            "'allow_once'}}}");
    assert_int_equal(rig.nanswers, 1);
    assert_string_equal(rig.answers[0].permission, "perm_1");
    assert_string_equal(rig.answers[0].who, "uid:1000");
    assert_int_equal(rig.answers[0].scope, 1);
    /* a second answer is to nothing */
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
            "'reject_once'}}}");
    assert_int_equal(rig.nanswers, 1);
    rig_event(s, "permission.resolved",
              "{'permissionId':'perm_1','callId':'c1','decision':'allow'}");
    assert_string_equal(rig_text(rig_update("tool_call_update", 0), "status"), "in_progress");
    rig_event(s, "tool.result", "{'callId':'c1','tool':'fs_write','ok':true,'output':{'bytes':3}}");
    rig_end(s, GW_COMPLETED, "completed");
    assert_null(rig_sent("$/cancel_request", 0));
}

static void test_only_an_offered_option_allows(void **state)
{
    (void)state;
    static const struct {
        const char *scope, *answer;
        unsigned want;
    } rows[] = {
        {"once", "'result':{'outcome':{'outcome':'selected','optionId':'allow_once'}}", 1},
        {"run", "'result':{'outcome':{'outcome':'selected','optionId':'allow_always'}}", 2},
        /* it was not offered */
        {"once", "'result':{'outcome':{'outcome':'selected','optionId':'allow_always'}}", 0},
        {"run", "'result':{'outcome':{'outcome':'selected','optionId':'reject_once'}}", 0},
        {"run", "'result':{'outcome':{'outcome':'selected','optionId':'reject_always'}}", 0},
        {"run", "'result':{'outcome':{'outcome':'selected','optionId':'ALLOW_ONCE'}}", 0},
        {"run", "'result':{'outcome':{'outcome':'selected','optionId':''}}", 0},
        {"run", "'result':{'outcome':{'outcome':'selected','optionId':['allow_once']}}", 0},
        {"run", "'result':{'outcome':{'outcome':'selected'}}", 0},
        {"run", "'result':{'outcome':{'outcome':'cancelled','optionId':'allow_once'}}", 0},
        {"run", "'result':{'outcome':{'outcome':'allowed','optionId':'allow_once'}}", 0},
        {"run", "'result':{'outcome':{'optionId':'allow_once'}}", 0},
        {"run", "'result':{'outcome':'selected','optionId':'allow_once'}", 0},
        {"run", "'result':{'optionId':'allow_once'}", 0},
        {"run", "'result':{}", 0},
        {"run", "'result':[]", 0},
        {"run", "'result':'allow_once'", 0},
        {"run", "'result':null", 0},
        {"run", "'error':{'code':-32603,'message':'x'}", 0},
        {"run", "'error':{'code':-32800,'message':'allow_once'}", 0},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        if (i) {
            rig_close();
            rig_open();
        }
        struct gw_session *s = asked(rows[i].scope);
        rig_say("{'jsonrpc':'2.0','id':0,%s}", rows[i].answer);
        assert_int_equal(rig.nanswers, 1);
        if (rig.answers[0].scope != rows[i].want)
            fail_msg("%s: %u", rows[i].answer, rig.answers[0].scope);
        assert_int_equal(rig.canceled, 0);
        /* what follows a denial is the result of a call, and the model's last word */
        if (rows[i].want == 0) {
            rig_event(s, "permission.resolved",
                      "{'permissionId':'perm_1','callId':'c1','decision':'deny'}");
            rig_event(s, "tool.result",
                      "{'callId':'c1','tool':'fs_write','ok':false,'output':{'denied':{}},'error':"
                      "{'code':'DENIED','message':'fs.write was denied by the operator'}}");
            json_t *u = rig_update("tool_call_update", 0);
            assert_string_equal(rig_text(u, "status"), "failed");
            assert_string_equal(rig_text(u, "content.0.content.text"),
                                "Denied: fs.write was denied by the operator");
        }
        rig_end(s, GW_COMPLETED, "completed");
        assert_string_equal(rig_text(rig_result("\"p\""), "stopReason"), "end_turn");
    }
}

static void test_answered_elsewhere(void **state)
{
    (void)state;
    struct gw_session *s = asked("run");
    rig_event(s, "permission.resolved",
              "{'permissionId':'perm_1','callId':'c1','decision':'deny'}");
    json_t *m = rig_sent("$/cancel_request", 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(m, "params"), "requestId")),
                     0);
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
            "'allow_once'}}}");
    assert_int_equal(rig.nanswers, 0);
    rig_end(s, GW_COMPLETED, "completed");
}

static void test_nothing_dangles(void **state)
{
    (void)state;
    struct gw_session *s = asked("once");
    rig_end(s, GW_FAILED, "failed");
    assert_non_null(rig_sent("$/cancel_request", 0));
    assert_null(rig_sent("$/cancel_request", 1));
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
            "'allow_once'}}}");
    assert_int_equal(rig.nanswers, 0);
    /* the next one has another id */
    s = prompted("run_01");
    rig_event(s, "bridle.ask", ASK("once"));
    assert_int_equal(
        json_integer_value(json_object_get(rig_sent("session/request_permission", 1), "id")), 1);
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
            "'allow_once'}}}");
    assert_int_equal(rig.nanswers, 0);
}

static void test_who_may_not_answer_denies(void **state)
{
    (void)state;
    asked("once");
    rig.c.who.access = BR_ACCESS_OBSERVE;
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'selected','optionId':"
            "'allow_once'}}}");
    assert_int_equal(rig.nanswers, 1);
    assert_int_equal(rig.answers[0].scope, 0);
}

/* ---- the end of things ---- */

static void test_cancel(void **state)
{
    (void)state;
    struct gw_session *s = asked("run");
    rig_say(NOTE("session/cancel", "{'sessionId':'run_01'}"));
    assert_int_equal(rig.canceled, 1);
    assert_false(rig_answered("\"p\"")); /* not before everything has been cleaned up */
    rig_say("{'jsonrpc':'2.0','id':0,'result':{'outcome':{'outcome':'cancelled'}}}");
    rig_event(s, "permission.resolved",
              "{'permissionId':'perm_1','callId':'c1','decision':'deny'}");
    rig_end(s, GW_CANCELED, "canceled");
    assert_string_equal(rig_text(rig_result("\"p\""), "stopReason"), "cancelled");
    /* of a run that was over first, too: that is what the client asked for */
    s = prompted("run_01");
    json_array_clear(rig.c.sent);
    rig_say(NOTE("$/cancel_request", "{'requestId':'p'}"));
    assert_int_equal(rig.canceled, 2);
    rig_end(s, GW_FAILED, "failed");
    assert_string_equal(rig_text(rig_result("\"p\""), "stopReason"), "cancelled");
    rig_say(NOTE("session/cancel", "{'sessionId':'run_01'}"));
    rig_say(NOTE("$/cancel_request", "{'requestId':'p'}"));
    assert_int_equal(rig.canceled, 2);
}

static void test_cancel_before_it_began(void **state)
{
    (void)state;
    const char *id = rig_ready();
    rig_end(prompted(id), GW_COMPLETED, "completed");
    json_array_clear(rig.c.sent);
    rig.hold = true;
    rig_say(REQUEST("'q'", "session/prompt",
                    "{'sessionId':'run_01','prompt':[{'type':'text','text':'x'}]}"));
    rig_say(NOTE("session/cancel", "{'sessionId':'run_01'}"));
    assert_false(rig_answered("\"q\""));
    rig_created(0);
    assert_string_equal(rig_text(rig_result("\"q\""), "stopReason"), "cancelled");
    assert_int_equal(rig.canceled, 1);
    assert_int_equal(rig.sessions[1].state, GW_CANCELED);
    /* the service would not have it */
    rig_say(REQUEST("'r'", "session/prompt",
                    "{'sessionId':'run_01','prompt':[{'type':'text','text':'x'}]}"));
    rig_created(-BR_E_LIMIT_EXCEEDED);
    assert_int_equal(rig_error("\"r\"", NULL), -32603);
    /* closed while it is asked */
    rig_say(REQUEST("'s'", "session/prompt",
                    "{'sessionId':'run_01','prompt':[{'type':'text','text':'x'}]}"));
    rig_say(REQUEST("'t'", "session/close", "{'sessionId':'run_01'}"));
    assert_string_equal(rig_text(rig_result("\"s\""), "stopReason"), "cancelled");
    assert_non_null(rig_result("\"t\""));
    rig_created(0);
    assert_int_equal(rig.sessions[2].state, GW_CANCELED);
}

static void test_close_while_it_runs(void **state)
{
    (void)state;
    asked("once");
    rig_say(REQUEST("1", "session/close", "{'sessionId':'run_01'}"));
    assert_string_equal(rig_text(rig_result("\"p\""), "stopReason"), "cancelled");
    assert_non_null(rig_result("1"));
    assert_non_null(rig_sent("$/cancel_request", 0));
    assert_int_equal(rig.canceled, 1);
    assert_null(rig.sessions[0].sink);
}

/* The connection goes: whatever state things are in, everything is given back (a sanitizer looks),
 * and its sessions are disowned, which denies and cancels. */
static void test_disconnect(void **state)
{
    (void)state;
    asked("run");
    rig.hold = true;
    rig_say(REQUEST("1", "session/new", "{'cwd':'/w/2','mcpServers':[]}"));
    rig.hold_replay = true;
    rig_say(REQUEST("2", "session/list", "{}"));
}

/* ---- the record ---- */

static void test_list(void **state)
{
    (void)state;
    rig_ready();
    rig_say(REQUEST("1", "session/list", "{}"));
    json_t *r = rig_result("1");
    assert_int_equal(json_array_size(json_object_get(r, "sessions")), 2);
    assert_string_equal(rig_text(r, "sessions.0.sessionId"), "run_b");
    assert_string_equal(rig_text(r, "sessions.0.cwd"), "/w/b");
    assert_string_equal(rig_text(r, "sessions.0.title"), "first line");
    assert_string_equal(rig_text(r, "sessions.0.updatedAt"), "2026-03-01T10:00:00.000+00:00");
    assert_null(json_object_get(r, "nextCursor"));
    rig_say(REQUEST("2", "session/list", "{'cwd':'/w/a','cursor':null}"));
    r = rig_result("2");
    assert_int_equal(json_array_size(json_object_get(r, "sessions")), 1);
    assert_string_equal(rig_text(r, "sessions.0.sessionId"), "run_a");
    rig_say(REQUEST("3", "session/list", "{'cwd':'a'}"));
    assert_int_equal(rig_error("3", NULL), -32602);
    rig.hold_replay = true;
    rig_say(REQUEST("4", "session/list", "{}"));
    rig_say(REQUEST("5", "session/list", "{}"));
    assert_int_equal(rig_error("5", NULL), -32600);
    rig_replay(-BR_E_STORE_FAILED);
    assert_int_equal(rig_error("4", NULL), -32603);
}

static void test_load(void **state)
{
    (void)state;
    rig_ready();
    rig_say(REQUEST("1", "session/load", "{'sessionId':'run_old','cwd':'/w','mcpServers':[]}"));
    assert_non_null(rig_result("1"));
    assert_string_equal(rig_text(rig_update("user_message_chunk", 0), "content.text"), "say hello");
    assert_string_equal(rig_text(rig_update("agent_message_chunk", 0), "content.text"), "hello");
    /* its name is good for prompts, each of them a run of its own */
    struct gw_session *s = prompted("run_old");
    assert_string_equal(s->id, "run_02");
    rig_end(s, GW_COMPLETED, "completed");
    rig_say(REQUEST("2", "session/load", "{'sessionId':'run_none','cwd':'/w','mcpServers':[]}"));
    assert_int_equal(rig_error("2", NULL), -32002);
    rig_say(REQUEST("3", "session/load", "{'sessionId':'run_old','cwd':'/etc','mcpServers':[]}"));
    assert_int_equal(rig_error("3", NULL), -32602);
    rig_say(REQUEST("4", "session/load", "{'sessionId':'run_old','cwd':'/w','mcpServers':[{}]}"));
    assert_int_equal(rig_error("4", NULL), -32602);
    /* one in which nothing was said is there, and empty */
    rig_say(REQUEST("5", "session/load", "{'sessionId':'run_01','cwd':'/w','mcpServers':[]}"));
    assert_non_null(rig_result("5"));
    /* a name that could not be found is not one */
    json_array_clear(rig.c.sent);
    rig_say(REQUEST("'p'", "session/prompt",
                    "{'sessionId':'run_none','prompt':[{'type':'text','text':'x'}]}"));
    assert_int_equal(rig_error("\"p\"", NULL), -32002);
}

static void test_load_waits_for_a_slow_client(void **state)
{
    (void)state;
    rig_ready();
    rig.hold_replay = true;
    rig_say(REQUEST("1", "session/load", "{'sessionId':'run_old','cwd':'/w','mcpServers':[]}"));
    rig_say(REQUEST("2", "session/prompt",
                    "{'sessionId':'run_old','prompt':[{'type':'text','text':'x'}]}"));
    assert_int_equal(rig_error("2", NULL), -32600);
    rig.c.full = true;
    rig_replay(0); /* stops after the first update */
    assert_non_null(rig_update("user_message_chunk", 0));
    assert_null(rig_update("agent_message_chunk", 0));
    assert_false(rig_answered("1"));
    rig.c.full = false;
    gw_acp.writable(&rig.c);
    assert_int_equal(rig.reads, 1);
    /* given up by closing it */
    rig_say(REQUEST("3", "session/close", "{'sessionId':'run_old'}"));
    assert_int_equal(rig_error("1", NULL), -32800);
    assert_non_null(rig_result("3"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        T(test_initialize),
        T(test_messages_that_are_none),
        T(test_new_refuses),
        T(test_sessions_are_limited),
        T(test_prompt_refuses),
        T(test_prompt_length),
        T(test_turn),
        T(test_titles_are_harmless),
        T(test_stop_reasons),
        T(test_notices),
        T(test_ask),
        T(test_only_an_offered_option_allows),
        T(test_answered_elsewhere),
        T(test_nothing_dangles),
        T(test_who_may_not_answer_denies),
        T(test_cancel),
        T(test_cancel_before_it_began),
        T(test_close_while_it_runs),
        T(test_disconnect),
        T(test_list),
        T(test_load),
        T(test_load_waits_for_a_slow_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
