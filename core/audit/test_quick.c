/*
 * The common event takes the short way, and what it becomes there is what it becomes the long way:
 * to the byte, with the same order noted. What has anything unusual goes the long way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "audit/quick.h"
#include "audit/quick_compare.h"

struct rig {
    struct br_quick *q;
    struct br_redact *r;
};

static int setup(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->q = br_quick_new();
    rig->r = br_redact_new();
    assert_int_equal(br_redact_secret(rig->r, "KEY", "upstream-key-17", 15, NULL), 0);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    br_quick_free(&rig->q);
    br_redact_free(&rig->r);
    free(rig);
    return 0;
}

static bool quick(struct rig *rig, const char *type, const char *data)
{
    enum quick_compare c = quick_compare(rig->q, rig->r, NULL, type, "kernel", data, strlen(data));
    if (c == QUICK_DIFFERS)
        fail_msg("not the same either way: %s", data);
    return c == QUICK_SAME;
}

#define USAGE "\"usage\":{\"promptTokens\":8,\"completionTokens\":2,\"totalTokens\":10}"

static void common_events_are_quick(void **state)
{
    static const char *const events[][2] = {
        {"session.created", "{\"sessionId\":\"ses_1\",\"workspace\":\"/home/somebody/it's\"}"},
        {"session.created", " { \"workspace\" : \"/w\" ,\n\t\"sessionId\":\"s\"}\r\n"},
        {"model.request", "{\"requestId\":\"r\",\"model\":\"m\",\"messageCount\":12}"},
        {"model.response",
         "{\"requestId\":\"r\",\"model\":\"m\",\"finishReason\":\"stop\"," USAGE "}"},
        {"model.response",
         "{" USAGE ",\"finishReason\":\"length\",\"requestId\":\"r\",\"model\":\"m\"}"},
        {"tool.call",
         "{\"callId\":\"c\",\"tool\":\"t\",\"input\":{\"path\":\"a\\\\b\\\"c\\n\\r\\t\\/d\"}}"},
        {"tool.call",
         "{\"callId\":\"c\",\"tool\":\"t\",\"input\":[1,-2,0,[],{},[[{\"x\":[null]}]],true]}"},
        {"tool.call",
         "{\"callId\":\"c\",\"tool\":\"t\",\"input\":\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"}"},
        {"tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":{\"\":1,\"max_tokens\":4096}}"},
        {"tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":99999999999999999}"},
        {"tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":null}"},
        {"tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":false,\"error\":{\"code\":\"E\","
                        "\"message\":\"\"}}"},
        {"tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"output\":false}"},
        {"budget.warning", "{\"metric\":\"tokens\",\"used\":8,\"limit\":10,\"pct\":80}"},
        {"policy.decision", "{\"action\":\"fs.read\",\"effect\":\"allow\"}"},
        {"bridle.votes", "{\"callId\":\"c\",\"action\":\"a\",\"effect\":\"deny\",\"ruleId\":\"\","
                         "\"source\":\"\",\"opaque\":true,\"votes\":[{\"source\":\"s\",\"ruleId\":"
                         "\"r\",\"effect\":\"deny\"},{\"source\":\"t\",\"ruleId\":\"r\",\"effect\":"
                         "\"ask\",\"reason\":\"b\"}]}"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(events); i++)
        if (!quick(*state, events[i][0], events[i][1]))
            fail_msg("not quick: %s", events[i][1]);
}

static void the_rest_is_not(void **state)
{
    static const char *const inputs[] = {
        "1.0",
        "1e3",
        "-0",
        "-",
        "01",
        "123456789012345678",
        "99999999999999999999",
        "tru",
        "nul",
        "\"\\u0041\"",
        "\"\\b\"",
        "\"\\x\"",
        "\"\x7f\"",
        "\"\x01\"",
        "\"\xc3\"",
        "\"\xed\xa0\x80\"",
        "\"sk-ant-abcdefghij0123456789\"",
        "\"it is upstream-key-17\"",
        "\"upstream%2Dkey-17\"",
        "{\"password\":\"x\"}",
        "{\"a\":1,\"a\":1}",
        "{\"a\":{\"b\":1,\"b\":2}}",
        "{\"a\" 1}",
        "{a:1}",
        "[1 2]",
        "[1,]",
        "{\"a\":1,}",
        "[",
        "{",
        "\"",
        "{\"upstream-key-17\":1}",
        "",
        "1}",
        "1,",
        "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(inputs); i++) {
        char data[256];
        snprintf(data, sizeof(data), "{\"callId\":\"c\",\"tool\":\"t\",\"input\":%s}", inputs[i]);
        if (quick(*state, "tool.call", data))
            fail_msg("quick: %s", data);
    }
    static const char *const others[][2] = {
        {"nothing.known", "{}"},
        {"bridle.text", "{\"stream\":\"s\",\"kind\":\"agent\",\"text\":\"t\",\"final\":true}"},
        {"error", "{\"code\":\"E\",\"message\":\"m\",\"more\":1}"},
        {"error", "{\"code\":\"E\"}"},
        {"error", "{\"code\":\"\",\"message\":\"m\"}"},
        {"error", "{\"code\":\"E\",\"message\":null}"},
        {"error", "[]"},
        {"error", "{\"code\":\"E\",\"message\":\"m\"} x"},
        {"model.request", "{\"requestId\":\"r\",\"model\":\"m\",\"messageCount\":0}"},
        {"model.response",
         "{\"requestId\":\"r\",\"model\":\"m\",\"finishReason\":\"stop|length\"," USAGE "}"},
        {"model.response",
         "{\"requestId\":\"r\",\"model\":\"m\",\"finishReason\":\"stop\",\"usage\":"
         "{\"promptTokens\":8,\"completionTokens\":2,\"totalTokens\":11}}"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(others); i++)
        if (quick(*state, others[i][0], others[i][1]))
            fail_msg("quick: %s", others[i][1]);
}

/* Sizes at their limits: N is quick, N + 1 is not. */
static void limits(void **state)
{
    static char data[3 * BR_QUICK_BYTES_MAX];
    static const char front[] = "{\"callId\":\"c\",\"tool\":\"t\",\"input\":";
    for (unsigned over = 0; over < 2; over++) {
        size_t n = BR_QUICK_BYTES_MAX - (sizeof(front) - 1) - 3 + over;
        int at = snprintf(data, sizeof(data), "%s\"", front);
        memset(data + at, 'x', n);
        snprintf(data + at + n, sizeof(data) - (size_t)at - n, "\"}");
        assert_int_equal(strlen(data), BR_QUICK_BYTES_MAX + over);
        assert_int_equal(quick(*state, "tool.call", data), !over);
        /* the root, callId, tool, input and its values */
        at = snprintf(data, sizeof(data), "%s[0", front);
        for (unsigned i = 5; i < BR_QUICK_NODES_MAX + over; i++)
            at += snprintf(data + at, sizeof(data) - (size_t)at, ",0");
        snprintf(data + at, sizeof(data) - (size_t)at, "]}");
        assert_int_equal(quick(*state, "tool.call", data), !over);
        at = snprintf(data, sizeof(data), "%s", front);
        for (unsigned i = 1; i < BR_QUICK_DEPTH_MAX + over; i++)
            data[at++] = '[';
        for (unsigned i = 1; i < BR_QUICK_DEPTH_MAX + over; i++)
            data[at++] = ']';
        snprintf(data + at, sizeof(data) - (size_t)at, "}");
        assert_int_equal(quick(*state, "tool.call", data), !over);
    }
    /* every byte an escape: the most that is written */
    int at = snprintf(data, sizeof(data), "%s\"", front);
    while (at < (int)BR_QUICK_BYTES_MAX - 3)
        at += snprintf(data + at, sizeof(data) - (size_t)at, "\\n");
    snprintf(data + at, sizeof(data) - (size_t)at, "\"}");
    assert_true(quick(*state, "tool.call", data));
}

/* A key that was harmless is looked at again when a secret has been registered. */
static void a_new_secret_is_seen(void **state)
{
    struct rig *rig = *state;
    const char *data =
        "{\"callId\":\"c\",\"tool\":\"t\",\"input\":{\"later-words\":\"later-words\"}}";
    assert_true(quick(rig, "tool.call", data));
    assert_int_equal(br_redact_secret(rig->r, "LATER", "later-words", 11, NULL), 0);
    assert_false(quick(rig, "tool.call", data));
}

/* An order that is refused is refused by the long way, which says why; nothing was noted. */
static void the_order_counts(void **state)
{
    struct rig *rig = *state;
    struct br_event_order *o = br_event_order_new();
    static const struct {
        const char *type, *data;
        bool taken;
    } steps[] = {
        {"tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":1}", false},
        {"session.created", "{\"sessionId\":\"s\"}", true},
        {"session.created", "{\"sessionId\":\"s\"}", false},
        {"tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true}", false},
        {"tool.call", "{\"callId\":\"c\",\"tool\":\"t\",\"input\":1}", true},
        {"tool.result", "{\"callId\":\"c\",\"tool\":\"u\",\"ok\":true}", false},
        {"tool.result",
         "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true,\"error\":{\"code\":\"E\",\"message\":\"\"}"
         "}",
         false},
        {"tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true}", true},
        {"tool.result", "{\"callId\":\"c\",\"tool\":\"t\",\"ok\":true}", false},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(steps); i++) {
        enum quick_compare c = quick_compare(rig->q, rig->r, o, steps[i].type, "agent",
                                             steps[i].data, strlen(steps[i].data));
        if (c != (steps[i].taken ? QUICK_SAME : QUICK_NOT))
            fail_msg("step %zu", i);
    }
    br_event_order_free(&o);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(common_events_are_quick), T(the_rest_is_not), T(limits),
                                       T(a_new_secret_is_seen), T(the_order_counts)};
    return cmocka_run_group_tests_name("quick", tests, NULL, NULL);
}
