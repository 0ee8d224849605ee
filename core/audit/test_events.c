/*
 * The event schema: for every type one event with everything in it, and every way to spoil it; the
 * limits at N and N + 1; and the order in which events may come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "audit/events.h"

#define AT 1772359200123456u /* 2026-03-01T10:00:00.123 */
#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* `optional`: keys that may be missing; `any`: keys that take any value; `blank`: strings that may
 * be empty; `below`: numbers that may be negative. Each with a blank on both sides. */
static const struct sample {
    const char *type, *data, *optional, *any, *blank, *below;
} samples[] = {
    {"session.created", "{'sessionId':'s','workspace':'/w'}", " workspace ", "", "", ""},
    {"agent.started", "{'agentId':'a','sessionId':'s','taskId':'t','model':'m'}", " taskId ", "",
     "", ""},
    {"model.request", "{'requestId':'r','model':'m','messageCount':1}", "", "", "", ""},
    {"model.response",
     "{'requestId':'r','model':'m','finishReason':'stop','usage':{'promptTokens':1,"
     "'completionTokens':2,'totalTokens':3}}",
     "", "", "", ""},
    {"tool.call", "{'callId':'c','tool':'fs_read','input':{'path':'a'}}", "", " input ", "", ""},
    {"policy.decision",
     "{'action':'fs.read','subject':'a','effect':'allow','reason':'r','ruleId':'x'}",
     " subject reason ruleId ", "", " subject reason ", ""},
    {"permission.requested",
     "{'permissionId':'p','sessionId':'s','callId':'c','action':'fs.write','subject':'a',"
     "'scope':'once','reason':'r'}",
     " callId subject reason ", "", " subject reason ", ""},
    {"permission.resolved",
     "{'permissionId':'p','sessionId':'s','callId':'c','action':'fs.write','subject':'a',"
     "'scope':'run','decision':'deny','note':'n'}",
     " callId subject note ", "", " subject note ", ""},
    {"tool.result",
     "{'callId':'c','tool':'fs_read','ok':false,'output':null,'error':{'code':'X','message':'m'},"
     "'durationMs':5}",
     " output error durationMs ", " output ", "", ""},
    {"sandbox.started", "{'runId':'r','containerName':'n','image':'i','network':'none','mounts':0}",
     "", "", "", ""},
    {"sandbox.stopped",
     "{'runId':'r','containerName':'n','status':'completed','exitCode':0,'durationMs':1}",
     " exitCode durationMs ", "", "", " exitCode "},
    {"task.updated", "{'taskId':'t','phase':'planned','note':'n'}", " note ", "", " note ", ""},
    {"budget.warning", "{'taskId':'t','metric':'tokens','used':1,'limit':2,'pct':50}", " taskId ",
     "", "", ""},
    {"run.recorded", "{'runId':'r','taskId':'t','status':'passed','reportPath':'p'}", "", "", "",
     ""},
    {"agent.stopped", "{'agentId':'a','status':'completed','steps':1,'toolCalls':0,'note':'n'}",
     " note ", "", " note ", ""},
    {"error", "{'code':'X','message':'m','retryable':true}", " retryable ", "", " message ", ""},
    {"bridle.run",
     "{'runId':'r','mode':'run','goal':'g','model':'m','scripted':false,'workspace':'/w',"
     "'policy':'p','manifest':'f','tableSha256':'" SHA
     "','rules':1,'profile':'workspace-v1','profileSha256':'" SHA "'}",
     " manifest profileSha256 ", "", " goal model policy manifest profile ", ""},
    {"bridle.text", "{'stream':'r','kind':'agent','text':'hello','final':false}", "", "", " text ",
     ""},
    {"bridle.votes",
     "{'callId':'c','action':'fs.read','subject':'a','effect':'ask','ruleId':'x','source':'policy',"
     "'opaque':false,'votes':[{'source':'policy','ruleId':'x','effect':'ask','reason':'r'}]}",
     " subject ", "", " subject ruleId source ", ""},
    {"bridle.launch",
     "{'sandbox':'s','image':'i','network':'enabled','mounts':3,'receipt':{'a':[1,{}]}}", "", "",
     "", ""},
    {"bridle.provider",
     "{'requestId':'r','status':200,'requestBytes':1,'responseBytes':2,'durationMs':3,"
     "'scripted':true,'providerRequestId':'q','error':{'code':'X','message':'m'}}",
     " providerRequestId error ", "", "", ""},
    {"bridle.workspace", "{'changed':[{'path':'a','change':'added','size':1}],'truncated':false}",
     "", "", "", ""},
    {"bridle.notice", "{'code':'X','message':'m'}", "", "", " message ", ""},
    {"bridle.policy.error", "{'code':'X','message':'m','file':'f','line':2}", " file line ", "",
     " message file ", ""},
    {"bridle.exec", "{'progress':'c','stdoutBytes':1,'stderrBytes':2,'elapsedMs':3}", "", "", "",
     ""},
    {"bridle.table", "{'part':1,'parts':2,'table':{'v':1,'rules':[{'id':'a'}]}}", "", "", "", ""},
    {"bridle.provider.account",
     "{'requests':5,'settled':2,'unsettled':1,'released':2,'refused':1,'requestBytes':1,"
     "'responseBytes':2,'tokensReserved':3,'tokensCharged':4,'cut':1,'repaired':1,"
     "'repairs':[{'name':'finish'}]}",
     "", "", "", ""},
};

static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    json_t *v = json_loads(copy, JSON_DECODE_ANY, NULL);
    if (!v)
        fail_msg("the test's own JSON is wrong: %s", copy);
    free(copy);
    return v;
}

static int build(const char *type, const char *actor, const json_t *data, char **bytes)
{
    struct br_buf out = BR_BUF_INIT(2 * BR_EVENT_MAX);
    struct br_err err = {.code = BR_OK};
    int r = br_event_build(type, actor, data, "evt_1", AT, &out, &err);
    assert_true(r == 0 ||
                (r == -BR_E_EVENT_SCHEMA && err.code == BR_E_EVENT_SCHEMA && err.text[0]));
    if (r == 0 && bytes)
        *bytes = strdup(br_buf_cstr(&out));
    br_buf_free(&out);
    return r;
}

static void want(const char *type, const json_t *data, bool good, const char *what)
{
    int r = build(type, "kernel", data, NULL);
    if ((r == 0) != good) {
        char *text = json_dumps(data, 0);
        fail_msg("%s (%s): %s was %s", type, what, text, good ? "refused" : "accepted");
    }
}

static bool listed(const char *list, const char *key)
{
    char word[64];
    snprintf(word, sizeof(word), " %s ", key);
    return strstr(list, word) != NULL;
}

/* The data with one key replaced (value NULL: removed). */
static void with(const struct sample *s, const char *key, json_t *value, bool good,
                 const char *what)
{
    json_t *data = parse(s->data);
    if (value)
        json_object_set_new(data, key, value);
    else
        json_object_del(data, key);
    want(s->type, data, good, what);
    json_decref(data);
}

static void spoil(const struct sample *s, const char *key, const json_t *value)
{
    with(s, key, NULL, listed(s->optional, key), "missing");
    if (listed(s->any, key))
        return;
    with(s, key, json_null(), false, "null");
    if (!json_is_string(value))
        with(s, key, json_string("x"), false, "a string");
    if (!json_is_number(value))
        with(s, key, json_integer(7), false, "a number");
    if (!json_is_boolean(value))
        with(s, key, json_true(), false, "true");
    if (!json_is_object(value))
        with(s, key, json_object(), false, "an object");
    if (!json_is_array(value))
        with(s, key, json_array(), false, "a list");
    if (json_is_string(value))
        with(s, key, json_string(""), listed(s->blank, key), "empty");
    if (json_is_integer(value)) {
        with(s, key, json_integer(-1), listed(s->below, key), "negative");
        with(s, key, json_integer(BR_EVENT_INT_MAX + 1), false, "too large");
        with(s, key, json_real(1.5), strcmp(key, "pct") == 0, "a fraction");
    }
    if (json_is_object(value) && strcmp(key, "receipt") != 0 && strcmp(key, "table") != 0) {
        json_t *more = json_deep_copy(value);
        json_object_set_new(more, "unknown", json_true());
        with(s, key, more, false, "with an unknown key inside");
        more = json_deep_copy(value);
        json_object_del(more, json_object_iter_key(json_object_iter(more)));
        with(s, key, more, false, "with a missing key inside");
    }
}

static void test_every_type(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(samples); i++) {
        const struct sample *s = &samples[i];
        json_t *data = parse(s->data), *value;
        const char *key;
        want(s->type, data, true, "whole");
        json_object_foreach(data, key, value) spoil(s, key, value);
        with(s, "unknown", json_string("x"), false, "an unknown key");
        with(s, "", json_string("x"), false, "an empty key");
        json_decref(data);
    }
}

static void test_enums(void **state)
{
    (void)state;
    static const struct {
        size_t sample;
        const char *key, *good;
    } enums[] = {
        {3, "finishReason", "stop|tool_calls|length|error"},
        {5, "effect", "allow|ask|deny"},
        {6, "scope", "once|run"},
        {7, "decision", "allow|deny"},
        {9, "network", "none|enabled"},
        {10, "status", "completed|failed|canceled"},
        {11, "phase", "planned|running|verifying|delivered|blocked"},
        {12, "metric", "tokens|tool_calls"},
        {13, "status", "passed|failed|blocked"},
        {14, "status", "completed|failed|canceled|budget_exceeded"},
        {16, "mode", "run|exec|promote"},
        {17, "kind", "agent"},
        {18, "effect", "allow|ask|deny"},
        {19, "network", "none|enabled"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(enums); i++) {
        const struct sample *s = &samples[enums[i].sample];
        char *copy = strdup(enums[i].good), *save = NULL;
        with(s, enums[i].key, json_string(enums[i].good), !strchr(enums[i].good, '|'),
             "all of them");
        for (char *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save)) {
            char more[64];
            with(s, enums[i].key, json_string(w), true, w);
            snprintf(more, sizeof(more), "%sx", w);
            with(s, enums[i].key, json_string(more), false, more);
            more[strlen(w) - 1] = 0;
            with(s, enums[i].key, json_string(more), false, more);
        }
        free(copy);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    char *bytes = NULL;
    /* keys in the order of the table, whatever order they came in */
    json_t *data =
        parse("{'durationMs':1,'output':{'b':1,'a':[]},'ok':true,'tool':'t','callId':'c'}");
    assert_int_equal(build("tool.result", "sandbox-runner", data, &bytes), 0);
    assert_string_equal(bytes, "{\"v\":1,\"type\":\"tool.result\",\"eventId\":\"evt_1\",\"at\":"
                               "\"2026-03-01T10:00:00.123+00:00\",\"actor\":\"sandbox-runner\","
                               "\"data\":{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"output\":"
                               "{\"b\":1,\"a\":[]},\"durationMs\":1}}");
    free(bytes);
    json_decref(data);
    /* a failed call need not say that it has no output; the stored event does */
    data = parse("{'callId':'c','tool':'t','ok':false,'error':{'code':'X','message':'m'}}");
    assert_int_equal(build("tool.result", "", data, &bytes), 0);
    assert_non_null(strstr(bytes, "\"ok\":false,\"output\":null,\"error\":{\"code\""));
    free(bytes);
    json_decref(data);
    data = parse("{'sessionId':'s\\u00e4\\n'}");
    assert_int_equal(build("session.created", "", data, &bytes), 0);
    assert_string_equal(bytes, "{\"v\":1,\"type\":\"session.created\",\"eventId\":\"evt_1\",\"at\":"
                               "\"2026-03-01T10:00:00.123+00:00\",\"data\":{\"sessionId\":"
                               "\"s\xc3\xa4\\n\"}}");
    free(bytes);
    json_decref(data);
}

static void test_envelope(void **state)
{
    (void)state;
    json_t *data = parse("{'sessionId':'s'}"), *list = json_array();
    static const char *const actors[] = {"",      "kernel",   "agent",
                                         "model", "operator", "sandbox-runner"};
    for (size_t i = 0; i < BR_ARRAY_LEN(actors); i++)
        assert_int_equal(build("session.created", actors[i], data, NULL), 0);
    assert_int_equal(build("session.created", NULL, data, NULL), 0);
    assert_int_equal(build("session.created", "root", data, NULL), -BR_E_EVENT_SCHEMA);
    assert_int_equal(build("session.created", "kernel|agent", data, NULL), -BR_E_EVENT_SCHEMA);
    assert_int_equal(build("session.create", "kernel", data, NULL), -BR_E_EVENT_SCHEMA);
    assert_int_equal(build("", "kernel", data, NULL), -BR_E_EVENT_SCHEMA);
    assert_int_equal(build("session.created", "kernel", list, NULL), -BR_E_EVENT_SCHEMA);
    struct br_buf out = BR_BUF_INIT(4096);
    assert_int_equal(br_event_build("session.created", NULL, data, "", AT, &out, NULL),
                     -BR_E_EVENT_SCHEMA);
    br_buf_free(&out);
    json_decref(list);
    json_decref(data);
    assert_true(br_event_is_internal("bridle.text"));
    assert_false(br_event_is_internal("bridle.run"));
}

static void test_usage(void **state)
{
    (void)state;
    const struct sample *s = &samples[3];
    with(s, "usage", parse("{'promptTokens':0,'completionTokens':0,'totalTokens':0}"), true,
         "zero");
    with(s, "usage", parse("{'promptTokens':1,'completionTokens':2,'totalTokens':4}"), false,
         "sum");
    with(s, "usage", parse("{'promptTokens':-1,'completionTokens':1,'totalTokens':0}"), false,
         "-1");
    with(s, "usage", parse("{'promptTokens':1,'totalTokens':1}"), false, "two");
    with(s, "usage",
         parse("{'promptTokens':1,'completionTokens':2,'totalTokens':3,'cachedTokens':0}"), false,
         "four");
}

static char *text_of(size_t n)
{
    char *s = malloc(n + 1);
    memset(s, 'x', n);
    s[n] = 0;
    return s;
}

static void test_text_limits(void **state)
{
    (void)state;
    static const struct {
        size_t sample;
        const char *key;
        size_t max;
    } limits[] = {
        {0, "sessionId", BR_NAME_MAX},      {0, "workspace", BR_PATH_MAX},
        {1, "model", BR_NAME_MAX},          {4, "callId", BR_NAME_MAX},
        {4, "tool", BR_NAME_MAX},           {5, "subject", BR_SUBJECT_MAX},
        {5, "reason", BR_EVENT_NOTE_MAX},   {7, "note", BR_EVENT_NOTE_MAX},
        {15, "message", BR_EVENT_NOTE_MAX}, {16, "goal", BR_GOAL_MAX},
        {17, "text", BR_EVENT_TEXT_MAX},    {13, "reportPath", BR_PATH_MAX},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(limits); i++) {
        char *s = text_of(limits[i].max + 1);
        with(&samples[limits[i].sample], limits[i].key, json_string(s), false, "N + 1");
        s[limits[i].max] = 0;
        with(&samples[limits[i].sample], limits[i].key, json_string(s), true, "N");
        free(s);
    }
    with(&samples[16], "tableSha256", json_string(SHA "0"), false, "65 digits");
    with(&samples[16], "rules", json_integer(BR_RULES_MAX), true, "N");
    with(&samples[16], "rules", json_integer(BR_RULES_MAX + 1), false, "N + 1");
    with(&samples[25], "part", json_integer(0), false, "no part");
    with(&samples[25], "parts", json_integer(BR_RULES_MAX), true, "N");
    with(&samples[25], "parts", json_integer(BR_RULES_MAX + 1), false, "N + 1");
    with(&samples[25], "table", json_array(), false, "no object");
    with(&samples[2], "messageCount", json_integer(0), false, "no message");
    with(&samples[2], "messageCount", json_integer(BR_EVENT_INT_MAX), true, "N");
}

static json_t *repeated(const char *item, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, parse(item));
    return list;
}

static void test_list_limits(void **state)
{
    (void)state;
    const char *change = "{'path':'a','change':'removed'}";
    const char *vote = "{'source':'s','ruleId':'','effect':'deny'}";
    with(&samples[21], "changed", repeated(change, 0), true, "none");
    with(&samples[21], "changed", repeated(change, 10000), true, "N");
    with(&samples[21], "changed", repeated(change, 10001), false, "N + 1");
    with(&samples[21], "changed",
         repeated("{'path':'a','change':'added','size':1,'set_group':'cleared'}", 1), true,
         "a bit that was cleared");
    with(&samples[21], "changed", repeated("{'path':'a','change':'added','set_group':'x'}", 1),
         false, "what became of a bit is not free text");
    with(&samples[21], "changed", repeated("{'path':'a','change':'x'}", 1), false, "bad entry");
    with(&samples[21], "changed", repeated("{'path':'a'}", 1), false, "short entry");
    with(&samples[21], "changed", repeated("7", 1), false, "no entry");
    with(&samples[18], "votes", repeated(vote, 64), true, "N");
    with(&samples[18], "votes", repeated(vote, 65), false, "N + 1");
    with(&samples[18], "votes", repeated("{'source':'s','ruleId':'','effect':'allow','x':1}", 1),
         false, "long entry");
    const size_t account = BR_ARRAY_LEN(samples) - 1;
    with(&samples[account], "repairs", repeated("{'name':'ids'}", 8), true, "N");
    with(&samples[account], "repairs", repeated("{'name':'ids'}", 9), false, "N + 1");
}

static json_t *nested(unsigned depth)
{
    json_t *v = json_array();
    while (--depth) {
        json_t *a = json_array();
        json_array_append_new(a, v);
        v = a;
    }
    return v;
}

static void test_tool_json_limits(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct sample *s = &samples[i ? 8 : 4];
        const char *key = i ? "output" : "input";
        char *text = text_of(BR_TOOL_JSON_MAX - 1);
        with(s, key, json_string(text), false, "N + 1 bytes");
        text[BR_TOOL_JSON_MAX - 2] = 0;
        with(s, key, json_string(text), true, "N bytes");
        free(text);
        with(s, key, nested(BR_JSON_DEPTH_MAX), true, "N levels");
        with(s, key, nested(BR_JSON_DEPTH_MAX + 1), false, "N + 1 levels");
        with(s, key, repeated("1", BR_JSON_NODES_MAX - 1), true, "N values");
        with(s, key, repeated("1", BR_JSON_NODES_MAX), false, "N + 1 values");
    }
}

static void test_event_limit(void **state)
{
    (void)state;
    /* 512 KiB of goal become 3 MiB when every character needs an escape */
    char *goal = text_of(BR_GOAL_MAX);
    memset(goal, 1, BR_GOAL_MAX);
    with(&samples[16], "goal", json_string(goal), false, "over the event's limit");
    free(goal);
}

static void test_parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(samples); i++) {
        char *bytes = NULL;
        struct br_event e;
        json_t *data = parse(samples[i].data);
        assert_int_equal(build(samples[i].type, "kernel", data, &bytes), 0);
        assert_int_equal(br_event_parse(bytes, strlen(bytes), &e, NULL), 0);
        assert_string_equal(e.type, samples[i].type);
        assert_string_equal(e.actor, "kernel");
        assert_true(json_equal(data, e.data)); /* every sample has every key */
        br_event_free(&e);
        assert_int_equal(br_event_parse(bytes, strlen(bytes) - 1, &e, NULL), -BR_E_EVENT_SCHEMA);
        br_event_free(&e);
        free(bytes);
        json_decref(data);
    }
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"v\":1}",
        "{\"v\":2,\"type\":\"error\",\"eventId\":\"e\",\"at\":\"x\",\"data\":{\"code\":\"X\","
        "\"message\":\"\"}}",
        "{\"v\":1,\"type\":\"error\",\"eventId\":\"e\",\"at\":\"x\",\"data\":{\"code\":\"X\","
        "\"message\":\"\"},\"z\":1}",
        "{\"v\":1,\"type\":\"error\",\"eventId\":\"e\",\"at\":\"x\",\"data\":{\"code\":\"X\"}}",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct br_event e;
        assert_int_equal(br_event_parse(bad[i], strlen(bad[i]), &e, NULL), -BR_E_EVENT_SCHEMA);
        br_event_free(&e);
    }
}

/* ---- order ---- */

static int apply(struct br_event_order *o, const char *type, const char *text)
{
    json_t *data = parse(text);
    assert_int_equal(build(type, "kernel", data, NULL), 0);
    struct br_err err = {.code = BR_OK};
    int r = br_event_order_apply(o, type, data, &err);
    assert_true(r == 0 || (r == -BR_E_EVENT_SCHEMA && err.text[0]));
    json_decref(data);
    return r;
}

static void good(struct br_event_order *o, const char *type, const char *text)
{
    if (apply(o, type, text) != 0)
        fail_msg("%s %s was refused", type, text);
}

static void bad(struct br_event_order *o, const char *type, const char *text)
{
    if (apply(o, type, text) == 0)
        fail_msg("%s %s was accepted", type, text);
}

static struct br_event_order *begun(void)
{
    struct br_event_order *o = br_event_order_new();
    good(o, "session.created", "{'sessionId':'s'}");
    good(o, "agent.started", "{'agentId':'a','sessionId':'s','model':'m'}");
    return o;
}

#define CALL "{'callId':'c','tool':'t','input':1}"
#define RESULT "{'callId':'c','tool':'t','ok':true,'output':1}"
#define ASK                                                                                        \
    "{'permissionId':'p','sessionId':'s','callId':'c','action':'a','subject':'u','scope':'once'}"
#define ANSWER                                                                                     \
    "{'permissionId':'p','sessionId':'s','callId':'c','action':'a','subject':'u','scope':'once',"  \
    "'decision':'allow'}"
#define STOPPED "{'agentId':'a','status':'completed','steps':0,'toolCalls':1}"

static void test_order_of_a_run(void **state)
{
    (void)state;
    struct br_event_order *o = br_event_order_new();
    struct br_event_open open;
    bad(o, "agent.started", "{'agentId':'a','sessionId':'s','model':'m'}");
    bad(o, "bridle.notice", "{'code':'X','message':''}");
    good(o, "session.created", "{'sessionId':'s'}");
    bad(o, "session.created", "{'sessionId':'s'}");
    bad(o, "agent.started", "{'agentId':'a','sessionId':'other','model':'m'}");
    good(o, "agent.started", "{'agentId':'a','sessionId':'s','model':'m'}");
    bad(o, "agent.started", "{'agentId':'b','sessionId':'s','model':'m'}");
    bad(o, "agent.stopped", "{'agentId':'b','status':'completed','steps':0,'toolCalls':0}");
    br_event_order_open(o, &open);
    assert_null(open.status);
    good(o, "agent.stopped", STOPPED);
    bad(o, "agent.stopped", STOPPED);
    bad(o, "error", "{'code':'X','message':''}");
    br_event_order_open(o, &open);
    assert_string_equal(open.status, "completed");
    br_event_order_free(&o);
}

static void test_order_of_model_requests(void **state)
{
    (void)state;
    struct br_event_order *o = begun();
    const char *answer = "{'requestId':'r','model':'m','finishReason':'stop','usage':"
                         "{'promptTokens':0,'completionTokens':0,'totalTokens':0}}";
    bad(o, "model.response", answer);
    good(o, "model.request", "{'requestId':'r','model':'m','messageCount':1}");
    bad(o, "model.request", "{'requestId':'r','model':'m','messageCount':1}");
    good(o, "model.response", answer);
    bad(o, "model.response", answer);
    br_event_order_free(&o);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    struct br_event_order *o = begun();
    struct br_event_open open;
    bad(o, "tool.result", RESULT);
    good(o, "tool.call", CALL);
    bad(o, "tool.call", CALL);
    bad(o, "tool.result", "{'callId':'d','tool':'t','ok':true,'output':1}");
    bad(o, "tool.result", "{'callId':'c','tool':'u','ok':true,'output':1}");
    bad(o, "tool.result",
        "{'callId':'c','tool':'t','ok':true,'output':1,'error':{'code':'X','message':''}}");
    bad(o, "agent.stopped", STOPPED);
    br_event_order_open(o, &open);
    assert_string_equal(open.call->call_id, "c");
    good(o, "tool.result", RESULT);
    bad(o, "tool.result", RESULT);
    good(o, "tool.call", CALL); /* models do use an id twice */
    good(o, "tool.result", RESULT);
    br_event_order_open(o, &open);
    assert_int_equal(open.tool_calls, 2);
    assert_null(open.call);
    br_event_order_free(&o);
}

static void test_order_of_permissions(void **state)
{
    (void)state;
    struct br_event_order *o = begun();
    struct br_event_open open;
    bad(o, "permission.requested", ASK); /* no such call */
    good(o, "tool.call", CALL);
    bad(o, "permission.resolved", ANSWER);
    good(o, "permission.requested", ASK);
    bad(o, "permission.requested", ASK);
    bad(o, "tool.result", RESULT); /* nothing runs before the answer */
    bad(o, "agent.stopped", STOPPED);
    static const char *const others[] = {
        "{'permissionId':'p','sessionId':'s','callId':'d','action':'a','subject':'u','scope':'once'"
        ",'decision':'allow'}",
        "{'permissionId':'p','sessionId':'s','action':'a','subject':'u','scope':'once','decision':'"
        "allow'}",
        "{'permissionId':'p','sessionId':'s','callId':'c','action':'b','subject':'u','scope':'once'"
        ",'decision':'allow'}",
        "{'permissionId':'p','sessionId':'s','callId':'c','action':'a','subject':'v','scope':'once'"
        ",'decision':'allow'}",
        "{'permissionId':'p','sessionId':'s','callId':'c','action':'a','scope':'once','decision':'"
        "allow'}",
        "{'permissionId':'p','sessionId':'s','callId':'c','action':'a','subject':'u','scope':'run',"
        "'decision':'allow'}",
        "{'permissionId':'p','sessionId':'t','callId':'c','action':'a','subject':'u','scope':'once'"
        ",'decision':'allow'}",
        "{'permissionId':'q','sessionId':'s','callId':'c','action':'a','subject':'u','scope':'once'"
        ",'decision':'allow'}",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(others); i++)
        bad(o, "permission.resolved", others[i]);
    br_event_order_open(o, &open);
    assert_string_equal(open.permission->permission_id, "p");
    good(o, "permission.resolved", ANSWER);
    bad(o, "permission.resolved", ANSWER);
    bad(o, "permission.requested", ASK); /* an id is used once in a run */
    good(o, "tool.result", RESULT);
    good(o, "agent.stopped", STOPPED);
    br_event_order_free(&o);
}

static void test_order_of_sandboxes(void **state)
{
    (void)state;
    struct br_event_order *o = begun();
    const char *start = "{'runId':'r','containerName':'n','image':'i','network':'none','mounts':1}";
    const char *stop = "{'runId':'r','containerName':'n','status':'completed'}";
    bad(o, "sandbox.stopped", stop);
    good(o, "sandbox.started", start);
    bad(o, "sandbox.started", start);
    bad(o, "sandbox.stopped", "{'runId':'x','containerName':'n','status':'completed'}");
    bad(o, "sandbox.stopped", "{'runId':'r','containerName':'x','status':'completed'}");
    good(o, "sandbox.stopped", stop);
    bad(o, "sandbox.stopped", stop);
    good(o, "sandbox.started", start);
    /* it may be unknown whether it is gone: then nothing is claimed */
    good(o, "agent.stopped", STOPPED);
    br_event_order_free(&o);
}

static void test_open_limit(void **state)
{
    (void)state;
    struct br_event_order *o = begun();
    char text[128];
    for (int i = 0; i < 1024; i++) {
        snprintf(text, sizeof(text), "{'callId':'c%d','tool':'t','input':1}", i);
        good(o, "tool.call", text);
    }
    bad(o, "tool.call", CALL);
    br_event_order_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_enums),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_envelope),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_text_limits),
        cmocka_unit_test(test_list_limits),
        cmocka_unit_test(test_tool_json_limits),
        cmocka_unit_test(test_event_limit),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_order_of_a_run),
        cmocka_unit_test(test_order_of_model_requests),
        cmocka_unit_test(test_order_of_calls),
        cmocka_unit_test(test_order_of_permissions),
        cmocka_unit_test(test_order_of_sandboxes),
        cmocka_unit_test(test_open_limit),
    };
    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
