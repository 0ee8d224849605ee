/*
 * Every limit of the Agent Client Protocol's agent, at N and at N + 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/acp_priv.h"
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

static void prompt(const char *session)
{
    rig_say("{'jsonrpc':'2.0','id':'p','method':'session/prompt','params':{'sessionId':'%s',"
            "'prompt':[{'type':'text','text':'x'}]}}",
            session);
}

/* PREFIX, `n` times FILL, SUFFIX. */
static char *filled(const char *prefix, const char *fill, size_t n, const char *suffix)
{
    struct br_buf b = BR_BUF_INIT(32u * 1024 * 1024);
    br_buf_printf(&b, "%s", prefix);
    for (size_t i = 0; i < n; i++)
        br_buf_put(&b, fill, strlen(fill));
    br_buf_printf(&b, "%s", suffix);
    char *text = br_buf_cstr(&b);
    assert_non_null(text);
    return text; /* b's own; the caller frees it */
}

static void test_sessions(void **state)
{
    (void)state;
    rig_ready();
    rig.settings.sessions_per_connection = 1000;
    for (unsigned i = 1; i <= ACP_SESSIONS_MAX; i++)
        rig_say("{'jsonrpc':'2.0','id':%u,'method':'session/new','params':{'cwd':'/w',"
                "'mcpServers':[]}}",
                i);
    assert_non_null(rig_result("255")); /* with that of rig_ready() */
    assert_int_equal(rig_error("256", NULL), -32603);
    assert_int_equal(rig.nsessions, ACP_SESSIONS_MAX);
    /* what is closed makes room */
    rig_say("{'jsonrpc':'2.0','id':'c','method':'session/close','params':{'sessionId':'run_07'}}");
    rig_say(
        "{'jsonrpc':'2.0','id':'d','method':'session/new','params':{'cwd':'/w','mcpServers':[]}}");
    assert_non_null(rig_result("\"d\""));
}

static void test_blocks(void **state)
{
    (void)state;
    rig_ready();
    for (unsigned extra = 2; extra-- > 0;) {
        char prefix[256];
        snprintf(prefix, sizeof(prefix),
                 "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"session/prompt\",\"params\":{"
                 "\"sessionId\":\"run_01\",\"prompt\":[{\"type\":\"text\",\"text\":\"x\"}",
                 extra);
        char *text = filled(prefix, ",{\"type\":\"text\",\"text\":\"y\"}",
                            ACP_BLOCKS_MAX - 1 + extra, "]}}");
        gw_acp.message(&rig.c, text, strlen(text));
        free(text);
    }
    assert_int_equal(rig_error("1", NULL), -32602);
    assert_int_equal(rig_run()->ncontent, ACP_BLOCKS_MAX);
}

static void test_title(void **state)
{
    (void)state;
    rig_ready();
    prompt("run_01");
    for (unsigned extra = 0; extra < 2; extra++) {
        char *data = filled("{'callId':'c','tool':'process_exec','input':{'command':'", "x",
                            ACP_TITLE_MAX + extra, "'}}");
        rig_event(rig_run(), "tool.call", data);
        free(data);
        const char *title = rig_text(rig_update("tool_call", extra), "title");
        assert_int_equal(strlen(title), ACP_TITLE_MAX + (extra ? strlen("…") : 0));
    }
}

static void test_content(void **state)
{
    (void)state;
    rig_ready();
    prompt("run_01");
    for (unsigned extra = 0; extra < 2; extra++) {
        char *data = filled("{'callId':'c','tool':'fs_read','ok':true,'output':{'bytes':1,"
                            "'content':'",
                            "x", ACP_CONTENT_MAX + extra, "'}}");
        rig_event(rig_run(), "tool.result", data);
        free(data);
        json_t *u = rig_update("tool_call_update", extra);
        const char *text = rig_text(u, "content.0.content.text");
        assert_int_equal(strstr(text, "(1 more bytes are in the record)") != NULL, extra);
        /* the client has the whole of it, too */
        assert_int_equal(strlen(rig_text(u, "rawOutput.content")), ACP_CONTENT_MAX + extra);
    }
}

#define ASK                                                                                        \
    "{'permissionId':'perm_%u','callId':'c%u','action':'fs.write','subject':'a','scope':'once',"   \
    "'ruleId':'r','source':'operator','opaque':false,'touches':{}}"

/* A call that is not remembered any more cannot be shown with its question, and is denied. */
static void test_calls(void **state)
{
    (void)state;
    char ask[256];
    rig_ready();
    prompt("run_01");
    size_t each = BR_TOOL_JSON_MAX - 1024, n = 0;
    for (; (n + 1) * (each + 256) <= ACP_CALLS_MAX; n++) {
        char prefix[128];
        snprintf(prefix, sizeof(prefix),
                 "{'callId':'c%zu','tool':'fs_write','input':{'path':'a',"
                 "'content':'",
                 n);
        char *data = filled(prefix, "x", each, "'}}");
        rig_event(rig_run(), "tool.call", data);
        free(data);
    }
    assert_true(n >= 15);
    snprintf(ask, sizeof(ask), ASK, 0, 0);
    rig_event(rig_run(), "bridle.ask", ask);
    assert_non_null(rig_sent("session/request_permission", 0));
    char *data = filled("{'callId':'c99','tool':'fs_write','input':{'path':'a','content':'", "x",
                        each, "'}}");
    rig_event(rig_run(), "tool.call", data);
    free(data);
    snprintf(ask, sizeof(ask), ASK, 99, 99);
    rig_event(rig_run(), "bridle.ask", ask);
    assert_null(rig_sent("session/request_permission", 1));
    assert_int_equal(rig.nanswers, 1);
    assert_string_equal(rig.answers[0].permission, "perm_99");
    assert_int_equal(rig.answers[0].scope, 0);
}

/* A question that does not fit into a message is denied. */
static void test_message(void **state)
{
    (void)state;
    rig_ready();
    prompt("run_01");
    char *data = filled("{'permissionId':'perm_1','action':'process.exec','scope':'once','ruleId':"
                        "'r','source':'operator','opaque':false,'touches':{},'subject':'",
                        "x", ACP_MESSAGE_MAX, "'}");
    rig_event(rig_run(), "bridle.ask", data);
    free(data);
    assert_null(rig_sent("session/request_permission", 0));
    assert_int_equal(rig.nanswers, 1);
    assert_int_equal(rig.answers[0].scope, 0);
    assert_string_equal(rig.answers[0].note, "the question could not be shown to the client");
    /* the largest that there can be fits: 64 KiB of subject, all of it made visible */
    data = filled("{'permissionId':'perm_2','action':'process.exec','scope':'once','ruleId':'r',"
                  "'source':'operator','opaque':false,'touches':{},'subject':'",
                  "\\u202e", BR_SUBJECT_MAX / 3, "'}");
    rig_event(rig_run(), "bridle.ask", data);
    free(data);
    assert_non_null(rig_sent("session/request_permission", 0));
}

static void test_page(void **state)
{
    (void)state;
    rig_ready();
    rig.more_rows = ACP_LIST_PAGE - 3; /* and two */
    rig_say("{'jsonrpc':'2.0','id':1,'method':'session/list','params':{}}");
    assert_string_equal(rig_text(rig_result("1"), "nextCursor"), "");
    rig.more_rows++;
    rig_say("{'jsonrpc':'2.0','id':2,'method':'session/list','params':{}}");
    assert_string_equal(rig_text(rig_result("2"), "nextCursor"), "run_a");
}

/* Names and paths: the longest that there are, and one byte more. */
static void test_texts(void **state)
{
    (void)state;
    rig_ready();
    for (unsigned extra = 0; extra < 2; extra++) {
        char prefix[128];
        snprintf(prefix, sizeof(prefix),
                 "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"session/new\",\"params\":{"
                 "\"mcpServers\":[],\"cwd\":\"/w/",
                 extra);
        char *text = filled(prefix, "x", BR_PATH_MAX - 1 - 3 + extra, "\"}}");
        gw_acp.message(&rig.c, text, strlen(text));
        free(text);
    }
    assert_non_null(rig_result("0"));
    assert_int_equal(rig_error("1", NULL), -32602);
    char *name = filled("", "x", BR_ID_MAX, "");
    prompt(name);
    free(name);
    assert_int_equal(rig_error("\"p\"", NULL), -32002);
}

/* The record is read so often by one of those that are known, and then nothing is done. */
static void test_readings(void **state)
{
    (void)state;
    rig_ready();
    unsigned sessions = rig.nsessions;
    rig.reads_too_often = true;
    rig_say("{'jsonrpc':'2.0','id':1,'method':'session/list','params':{}}");
    assert_int_equal(rig_error("1", NULL), -32603);
    rig_say("{'jsonrpc':'2.0','id':2,'method':'session/load','params':{'sessionId':'run_old',"
            "'cwd':'/w','mcpServers':[]}}");
    const char *name = NULL;
    assert_int_equal(rig_error("2", &name), -32603);
    assert_string_equal(name, "LIMIT_EXCEEDED");
    assert_int_equal(rig.replays, 0);
    assert_int_equal(rig.nsessions, sessions);
    rig.reads_too_often = false;
    rig_say("{'jsonrpc':'2.0','id':3,'method':'session/load','params':{'sessionId':'run_old',"
            "'cwd':'/w','mcpServers':[]}}");
    assert_non_null(rig_result("3"));
    rig_say("{'jsonrpc':'2.0','id':4,'method':'session/list','params':{}}");
    assert_non_null(rig_result("4"));
    assert_int_equal(rig.replays, 2);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        T(test_sessions), T(test_blocks), T(test_title), T(test_content),  T(test_calls),
        T(test_message),  T(test_page),   T(test_texts), T(test_readings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
