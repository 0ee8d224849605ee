/*
 * Telemetry: what it sends is OTLP as the GenAI conventions have it, agrees with the counters, and
 * says nothing of what was said; a collector that is down, slow or gone costs spans and nothing
 * else. The test is in the place of bridle-egress; timers fire when it says so.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/otlp_priv.h"
#include "wire/types.h"

#define CANARY "CANARY-7f3a9c"

/* ---- the world around it ---- */

struct gw_session {
    char id[BR_ID_MAX];
    uint64_t row;
};

struct gateway {
    struct gw_counters n;
    void *otlp;
    struct br_chan *watched;
    unsigned logged;
};

static struct gateway g;
static struct br_chan egress; /* our end */
static char *const models[] = {(char *)"model-a", (char *)"vendor/model-b:7"};

void **gw_otlp_slot(struct gateway *gw)
{
    return &gw->otlp;
}
struct gw_counters *gw_counters(struct gateway *gw)
{
    return &gw->n;
}
char *const *gw_models(const struct gateway *gw, unsigned *n)
{
    (void)gw;
    *n = 2;
    return models;
}
const char *gw_version(void)
{
    return "1.2.3";
}
const char *session_id(const struct gw_session *s)
{
    return s->id;
}
void gw_log(struct gateway *gw, enum br_log_level level, const char *event, ...)
{
    (void)level, (void)event;
    gw->logged++;
}
int gw_watch_chan(struct gateway *gw, struct br_chan *c, br_chan_end_fn *on_end, void *ctx)
{
    (void)on_end, (void)ctx;
    gw->watched = c;
    return fcntl(c->fd, F_SETFL, O_NONBLOCK);
}
void gw_unwatch_chan(struct gateway *gw, struct br_chan *c)
{
    assert_ptr_equal(gw->watched, c);
    gw->watched = NULL;
}
void gw_timer_set(struct gateway *gw, struct gw_timer *t, uint64_t after_us, void (*fn)(void *ctx),
                  void *ctx)
{
    (void)gw;
    t->fn = fn;
    t->ctx = ctx;
    t->due_us = after_us;
}
void gw_timer_cancel(struct gateway *gw, struct gw_timer *t)
{
    (void)gw;
    t->due_us = 0;
}

static struct otlp *o(void)
{
    return g.otlp;
}

static void fire(struct gw_timer *t)
{
    assert_true(t->due_us > 0);
    t->due_us = 0;
    t->fn(t->ctx);
}

/* ---- the collector ---- */

static struct {
    unsigned n, canceled;
    uint64_t id;
    char path[64];
    char *text;
    json_t *json;
} got;

static int on_request(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char method[16], type[64];
    static struct br_headers h;
    struct br_buf body;
    (void)c, (void)ctx;
    br_rd_str(&m->rd, method, sizeof(method));
    br_rd_str(&m->rd, got.path, sizeof(got.path));
    br_rd_str(&m->rd, type, sizeof(type));
    br_headers_get(&m->rd, &h);
    assert_true(br_rd_u32(&m->rd) > 0);
    assert_int_equal(br_msg_blob(m, BR_BLOB_MAX, &body, err), 0);
    assert_int_equal(br_rd_done(&m->rd), 0);
    assert_string_equal(method, "POST");
    assert_string_equal(type, "application/json");
    got.n++;
    got.id = m->id;
    free(got.text);
    json_decref(got.json);
    got.text = strdup(br_buf_cstr(&body));
    got.json = json_loads(got.text, JSON_REJECT_DUPLICATES, NULL);
    if (!got.json)
        fail_msg("not JSON: %s", got.text);
    assert_null(strstr(got.text, CANARY));
    br_buf_free(&body);
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    got.canceled++;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_PROV_REQUEST, BR_PERMIT, 25, BR_MSG_MAX, 0, 1, on_request},
    {BR_MSG_PROV_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

static bool receive(void)
{
    int r = br_chan_dispatch(&egress, NULL);
    assert_true(r == 0 || r == -BR_E_TIMEOUT);
    return r == 0;
}

static void answer(uint32_t status, uint32_t code)
{
    BR_CLEANUP_OUT struct br_out head = BR_OUT_INIT, end = BR_OUT_INIT;
    br_buf_put_u32(&head.buf, status);
    br_buf_put_u32(&head.buf, 0);
    br_buf_put_u32(&end.buf, code);
    br_buf_put_str(&end.buf, code ? "no connection" : "");
    br_buf_put_u64(&end.buf, 1);
    br_buf_put_u64(&end.buf, 1);
    if (!code) {
        assert_int_equal(br_chan_send(&egress, BR_MSG_PROV_HEAD, got.id, &head, NULL), 0);
        assert_int_equal(br_chan_dispatch(g.watched, NULL), 0);
    }
    assert_int_equal(br_chan_send(&egress, BR_MSG_PROV_END, got.id, &end, NULL), 0);
    assert_int_equal(br_chan_dispatch(g.watched, NULL), 0);
}

/* ---- a run ---- */

static void event(struct gw_session *s, const char *type, const char *at, const char *data)
{
    char bytes[4096];
    int n =
        snprintf(bytes, sizeof(bytes),
                 "{\"v\":1,\"type\":\"%s\",\"eventId\":\"evt_%llu\",\"at\":\"2026-03-01T10:00:%s"
                 "+00:00\",\"actor\":\"agent\",\"data\":%s}",
                 type, (unsigned long long)++s->row, at, data);
    struct gw_event e = {.row = s->row,
                         .own = strncmp(type, "bridle.", 7) == 0,
                         .type = type,
                         .ntype = strlen(type),
                         .bytes = bytes,
                         .n = (size_t)n};
    otlp_event(&g, s, &e);
}

/* One turn that calls a tool, one that ends it; every text of it is the canary. */
static void play(struct gw_session *s, const char *status)
{
    char stopped[256];
    event(s, "session.created", "00.000",
          "{\"sessionId\":\"ses_1\",\"workspace\":\"/home/" CANARY "\"}");
    event(s, "agent.started", "01.000",
          "{\"agentId\":\"agent_1\",\"sessionId\":\"ses_1\",\"taskId\":\"" CANARY
          "\",\"model\":\"model-a (scripted)\"}");
    event(s, "model.request", "01.500",
          "{\"requestId\":\"req_1\",\"model\":\"model-a\",\"messageCount\":2}");
    event(s, "bridle.text", "02.000", "{\"stream\":\"s\",\"text\":\"" CANARY "\"}");
    event(
        s, "model.response", "03.000",
        "{\"requestId\":\"req_1\",\"model\":\"model-a\",\"finishReason\":\"tool_calls\",\"usage\":{"
        "\"promptTokens\":100,\"completionTokens\":20,\"totalTokens\":120}}");
    event(s, "tool.call", "03.100",
          "{\"callId\":\"call_1\",\"tool\":\"fs_write\",\"input\":{\"path\":\"" CANARY "\"}}");
    event(s, "tool.call", "03.100",
          "{\"callId\":\"" CANARY "\",\"tool\":\"" CANARY "\",\"input\":\"callId\"}");
    event(s, "tool.result", "03.350",
          "{\"callId\":\"call_1\",\"tool\":\"fs_write\",\"ok\":true,\"output\":\"" CANARY "\"}");
    event(s, "tool.result", "03.400",
          "{\"callId\":\"" CANARY "\",\"tool\":\"" CANARY
          "\",\"ok\":false,\"output\":null,\"error\":{"
          "\"code\":\"" CANARY "\",\"message\":\"" CANARY "\"}}");
    event(s, "model.request", "04.000",
          "{\"requestId\":\"req_2\",\"model\":\"" CANARY "\",\"messageCount\":4}");
    event(s, "model.response", "05.000",
          "{\"requestId\":\"req_2\",\"model\":\"" CANARY "\",\"finishReason\":\"stop\",\"usage\":{"
          "\"promptTokens\":130,\"completionTokens\":5,\"totalTokens\":135}}");
    snprintf(
        stopped, sizeof(stopped),
        "{\"agentId\":\"agent_1\",\"status\":\"%s\",\"steps\":2,\"toolCalls\":2,\"note\":\"" CANARY
        "\"}",
        status);
    event(s, "agent.stopped", "06.000", stopped);
    otlp_ended(&g, s);
    g.n.model_requests += 2;
    g.n.tool_calls += 2;
    g.n.tokens_prompt += 230;
    g.n.tokens_completion += 25;
    g.n.sessions_completed++;
}

static struct gw_session session(unsigned i)
{
    struct gw_session s = {.row = 0};
    snprintf(s.id, sizeof(s.id), "run_%026u", i);
    return s;
}

/* ---- reading it ---- */

static json_t *at(json_t *v, const char *key, size_t i)
{
    json_t *list = json_object_get(v, key);
    return json_array_get(list, i);
}

static json_t *spans(void)
{
    json_t *rs = at(got.json, "resourceSpans", 0), *ss = at(rs, "scopeSpans", 0);
    assert_non_null(ss);
    return json_object_get(ss, "spans");
}

static json_t *metric(const char *name)
{
    json_t *rm = at(got.json, "resourceMetrics", 0), *sm = at(rm, "scopeMetrics", 0), *m;
    size_t i;
    json_array_foreach(json_object_get(sm, "metrics"), i, m)
    {
        if (strcmp(json_string_value(json_object_get(m, "name")), name) == 0)
            return m;
    }
    return NULL;
}

static const char *text_of(json_t *attributes, const char *key)
{
    size_t i;
    json_t *a;
    json_array_foreach(attributes, i, a)
    {
        json_t *v = json_object_get(a, "value");
        if (strcmp(json_string_value(json_object_get(a, "key")), key) != 0)
            continue;
        json_t *s = json_object_get(v, "stringValue");
        return json_string_value(s ? s : json_object_get(v, "intValue"));
    }
    return "";
}

static const char *attribute(json_t *span, const char *key)
{
    return text_of(json_object_get(span, "attributes"), key);
}

static json_t *span_named(const char *name)
{
    size_t i;
    json_t *s;
    json_array_foreach(spans(), i, s)
    {
        if (strcmp(json_string_value(json_object_get(s, "name")), name) == 0)
            return s;
    }
    fail_msg("no span '%s' in %s", name, got.text);
    return NULL;
}

static uint64_t ns(json_t *v, const char *key)
{
    return strtoull(json_string_value(json_object_get(v, key)), NULL, 10);
}

static const char *str(json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

/* ---- tests ---- */

static int setup(void **state)
{
    int ends[2];
    (void)state;
    memset(&g, 0, sizeof(g));
    memset(&got, 0, sizeof(got));
    assert_int_equal(br_chan_pair(ends), 0);
    br_chan_init(&egress, ends[0], "gateway", rules, BR_ARRAY_LEN(rules), NULL);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(otlp_begin(&g, ends[1], NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_chan_close(&egress);
    br_chan_close(&o()->chan);
    while (o()->first) {
        struct otlp_span *one = o()->first;
        o()->first = one->next;
        free(one);
    }
    free(g.otlp);
    free(got.text);
    json_decref(got.json);
    return 0;
}

static void spans_of_a_run(void **state)
{
    (void)state;
    struct gw_session s = session(1);
    play(&s, "completed");
    assert_null(o()->runs);
    assert_false(receive());
    fire(&o()->spans_timer);
    assert_true(receive());
    assert_string_equal(got.path, "/v1/traces");
    assert_int_equal(json_array_size(spans()), 5);
    json_t *rs = at(got.json, "resourceSpans", 0);
    json_t *resource = json_object_get(json_object_get(rs, "resource"), "attributes");
    assert_string_equal(text_of(resource, "service.name"), "bridle");
    assert_string_equal(text_of(resource, "service.version"), "1.2.3");

    json_t *root = span_named("invoke_agent bridle");
    assert_null(json_object_get(root, "parentSpanId"));
    assert_int_equal(strlen(str(root, "traceId")), 32);
    assert_int_equal(strlen(str(root, "spanId")), 16);
    assert_int_equal(json_integer_value(json_object_get(root, "kind")), 1);
    assert_int_equal(ns(root, "startTimeUnixNano"), 1772359201000000000ull);
    assert_int_equal(ns(root, "endTimeUnixNano"), 1772359206000000000ull);
    assert_string_equal(attribute(root, "gen_ai.operation.name"), "invoke_agent");
    assert_string_equal(attribute(root, "gen_ai.provider.name"), "bridle");
    assert_string_equal(attribute(root, "gen_ai.agent.name"), "bridle");
    assert_string_equal(attribute(root, "gen_ai.agent.id"), "agent_1");
    assert_string_equal(attribute(root, "gen_ai.conversation.id"), s.id);
    assert_string_equal(attribute(root, "gen_ai.usage.input_tokens"), "230");
    assert_string_equal(attribute(root, "gen_ai.usage.output_tokens"), "25");
    assert_string_equal(attribute(root, "bridle.status"), "completed");
    assert_string_equal(attribute(root, "error.type"), "");

    json_t *chat = span_named("chat model-a");
    assert_string_equal(str(chat, "parentSpanId"), str(root, "spanId"));
    assert_string_equal(str(chat, "traceId"), str(root, "traceId"));
    assert_int_equal(json_integer_value(json_object_get(chat, "kind")), 3);
    assert_int_equal(ns(chat, "endTimeUnixNano") - ns(chat, "startTimeUnixNano"), 1500000000);
    assert_string_equal(attribute(chat, "gen_ai.operation.name"), "chat");
    assert_string_equal(attribute(chat, "gen_ai.request.model"), "model-a");
    assert_string_equal(attribute(chat, "gen_ai.usage.input_tokens"), "100");
    assert_non_null(strstr(got.text,
                           "\"gen_ai.response.finish_reasons\",\"value\":{\"arrayValue\":{"
                           "\"values\":[{\"stringValue\":\"tool_calls\"}]}}"));
    (void)span_named("chat _OTHER"); /* a model that nobody offers */

    json_t *tool = span_named("execute_tool fs_write");
    assert_string_equal(attribute(tool, "gen_ai.operation.name"), "execute_tool");
    assert_string_equal(attribute(tool, "gen_ai.tool.name"), "fs_write");
    assert_string_equal(attribute(tool, "gen_ai.tool.call.id"), "call_1");
    assert_int_equal(ns(tool, "endTimeUnixNano") - ns(tool, "startTimeUnixNano"), 250000000);
    json_t *other = span_named("execute_tool _OTHER");
    assert_string_equal(attribute(other, "error.type"), "tool_error");
    assert_string_equal(attribute(other, "gen_ai.tool.call.id"), "");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(other, "status"), "code")),
                     2);
    answer(200, 0);
    assert_int_equal(g.n.telemetry_sent, 5);
    assert_int_equal(g.n.telemetry_dropped, 0);
}

static void a_run_that_failed(void **state)
{
    (void)state;
    struct gw_session s = session(1), t = session(2);
    play(&s, "budget_exceeded");
    /* and one whose record broke off in the middle of a call */
    event(&t, "agent.started", "01.000",
          "{\"agentId\":\"a\",\"sessionId\":\"s\",\"model\":\"vendor/model-b:7\"}");
    event(&t, "tool.call", "02.000", "{\"callId\":\"call_9\",\"tool\":\"bash\",\"input\":1}");
    event(&t, "model.request", "02.000",
          "{\"requestId\":\"r\",\"model\":\"vendor/model-b:7\",\"messageCount\":1}");
    otlp_ended(&g, &t);
    fire(&o()->spans_timer);
    assert_true(receive());
    assert_int_equal(json_array_size(spans()), 8);
    json_t *root = span_named("invoke_agent bridle");
    assert_string_equal(attribute(root, "error.type"), "budget_exceeded");
    assert_string_equal(attribute(span_named("execute_tool bash"), "error.type"), "canceled");
    assert_string_equal(attribute(span_named("chat vendor/model-b:7"), "error.type"), "_OTHER");
}

static uint64_t sum_of(const char *name)
{
    json_t *sum = json_object_get(metric(name), "sum"), *p = at(sum, "dataPoints", 0);
    assert_non_null(p);
    assert_int_equal(json_integer_value(json_object_get(sum, "aggregationTemporality")), 2);
    assert_true(json_is_true(json_object_get(sum, "isMonotonic")));
    return ns(p, "asInt");
}

/* What the histograms say of a series: count and sum; and that its buckets are as many. */
static double points(const char *name, const char *key, const char *value, uint64_t *count)
{
    json_t *h = json_object_get(metric(name), "histogram"), *p, *b;
    size_t i, k;
    double sum = 0;
    *count = 0;
    assert_int_equal(json_integer_value(json_object_get(h, "aggregationTemporality")), 2);
    json_array_foreach(json_object_get(h, "dataPoints"), i, p)
    {
        uint64_t in_buckets = 0;
        json_array_foreach(json_object_get(p, "bucketCounts"), k, b) in_buckets +=
            strtoull(json_string_value(b), NULL, 10);
        assert_int_equal(in_buckets, ns(p, "count"));
        assert_int_equal(json_array_size(json_object_get(p, "bucketCounts")),
                         json_array_size(json_object_get(p, "explicitBounds")) + 1);
        if (strcmp(attribute(p, key), value) != 0)
            continue;
        *count += in_buckets;
        sum += json_number_value(json_object_get(p, "sum"));
    }
    return sum;
}

static void metrics_agree_with_the_counters(void **state)
{
    (void)state;
    uint64_t count;
    for (unsigned i = 0; i < 3; i++) {
        struct gw_session s = session(i);
        play(&s, "completed");
    }
    g.n.sessions_running = 4;
    fire(&o()->metrics_timer);
    assert_true(receive());
    assert_string_equal(got.path, "/v1/metrics");
    assert_string_equal(str(metric("gen_ai.client.token.usage"), "unit"), "{token}");
    assert_string_equal(str(metric("gen_ai.client.operation.duration"), "unit"), "s");
    assert_int_equal(
        (uint64_t)points("gen_ai.client.token.usage", "gen_ai.token.type", "input", &count),
        g.n.tokens_prompt);
    assert_int_equal(count, g.n.model_requests);
    assert_int_equal(
        (uint64_t)points("gen_ai.client.token.usage", "gen_ai.token.type", "output", &count),
        g.n.tokens_completion);
    (void)points("gen_ai.client.operation.duration", "gen_ai.operation.name", "chat", &count);
    assert_int_equal(count, g.n.model_requests);
    (void)points("gen_ai.client.operation.duration", "gen_ai.operation.name", "execute_tool",
                 &count);
    assert_int_equal(count, g.n.tool_calls);
    double s =
        points("gen_ai.client.operation.duration", "gen_ai.operation.name", "invoke_agent", &count);
    assert_int_equal(count, g.n.sessions_completed);
    assert_true(s > 14.9 && s < 15.1); /* by the clock of the events */
    /* every counter of /metrics is there by its name */
#define CHECK_(name)                                                                               \
    if (metric("bridle." #name) == NULL)                                                           \
        fail_msg("'%s' is not exported", #name);
    GW_COUNTERS(CHECK_)
#undef CHECK_
    assert_int_equal(sum_of("bridle.tool_calls"), g.n.tool_calls);
    assert_int_equal(sum_of("bridle.model_requests"), g.n.model_requests);
    assert_int_equal(sum_of("bridle.tokens_prompt"), g.n.tokens_prompt);
    json_t *gauge = json_object_get(metric("bridle.sessions_running"), "gauge");
    assert_int_equal(ns(at(gauge, "dataPoints", 0), "asInt"), 4);
    answer(200, 0);
    assert_true(o()->metrics_timer.due_us > 0);
}

static void batches_are_bounded(void **state)
{
    (void)state;
    unsigned sent = 0, requests = 0;
    for (unsigned i = 0; i < 40; i++) {
        struct gw_session s = session(i);
        play(&s, "completed");
    }
    fire(&o()->spans_timer);
    while (receive()) { /* one at a time: the next comes when this one was answered */
        assert_true(strlen(got.text) <= OTLP_BODY_MAX);
        assert_false(receive());
        sent += (unsigned)json_array_size(spans());
        requests++;
        answer(200, 0);
    }
    assert_int_equal(sent, 200);
    assert_true(requests > 2);
    assert_int_equal(g.n.telemetry_sent, 200);
    assert_int_equal(o()->nspans, 0);
    assert_int_equal(o()->bytes, 0);
    assert_true(o()->spans_timer.due_us > 0);
}

/* Nobody answers: what comes is kept up to the limit, then dropped and counted. */
static void a_collector_that_is_slow(void **state)
{
    (void)state;
    unsigned i = 0;
    struct gw_session first = session(0);
    play(&first, "completed");
    fire(&o()->spans_timer);
    assert_true(receive());
    while (!g.n.telemetry_dropped && i++ < 10000) {
        struct gw_session s = session(i);
        play(&s, "completed");
        assert_true(o()->nspans <= OTLP_SPANS_MAX && o()->bytes <= OTLP_BYTES_MAX);
    }
    assert_true(g.n.telemetry_dropped > 0);
    assert_true(o()->nspans == OTLP_SPANS_MAX || o()->bytes > OTLP_BYTES_MAX - OTLP_SPAN_MAX);
    uint64_t dropped = g.n.telemetry_dropped;
    fire(&o()->answer_timer); /* too late: given up, and the next one goes */
    assert_true(receive());
    assert_int_equal(got.canceled, 1);
    assert_int_equal(g.n.telemetry_dropped, dropped + 5);
    assert_true(receive());
    answer(200, 0);
    assert_true(g.n.telemetry_sent > 0);
}

static void a_collector_that_is_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct gw_session s = session(i);
        play(&s, "completed");
        fire(&o()->spans_timer);
        assert_true(receive());
        if (i == 1)
            answer(503, 0);
        else
            answer(0, BR_E_IO);
        assert_int_equal(g.n.telemetry_dropped, 5 * (i + 1));
        assert_int_equal(g.logged, 1); /* once, not for every batch */
    }
    struct gw_session s = session(9);
    play(&s, "completed");
    fire(&o()->spans_timer);
    assert_true(receive());
    answer(200, 0);
    assert_int_equal(g.n.telemetry_sent, 5);
    assert_int_equal(g.logged, 2);
}

static void an_egress_that_is_gone(void **state)
{
    (void)state;
    struct gw_session s = session(1);
    play(&s, "completed");
    br_chan_close(&egress);
    fire(&o()->spans_timer);
    assert_int_equal(o()->chan.fd, -1);
    assert_int_equal(g.n.telemetry_dropped, 5);
    struct gw_session t = session(2);
    play(&t, "completed");
    assert_int_equal(g.n.telemetry_dropped, 10);
    assert_int_equal(o()->nspans, 0);
}

/* More at one time than is followed, ids that are no words, and text that only looks like members.
 */
static void odd_events(void **state)
{
    (void)state;
    struct gw_session s = session(1);
    event(&s, "agent.started", "01.000", "{\"agentId\":\"a b" CANARY "\",\"sessionId\":\"s\"}");
    for (unsigned i = 0; i < OTLP_OPEN_MAX + 8; i++) {
        char data[128];
        snprintf(data, sizeof(data), "{\"callId\":\"call_%u\",\"tool\":\"grep\",\"input\":1}", i);
        event(&s, "tool.call", "02.000", data);
    }
    event(&s, "tool.call", "02.000", "{}");
    event(&s, "tool.call", "02.000", "{\"callId\":1}");
    event(&s, "tool.result", "02.000", "{\"callId\":\"call_never\",\"tool\":\"grep\",\"ok\":true}");
    event(&s, "model.response", "02.000", "{\"requestId\":\"x\\\"\",\"model\":\"model-a\"}");
    event(&s, "tool.result", "03.000",
          "{\"callId\":\"call_3\",\"tool\":\"grep\",\"ok\":true,\"output\":\"\\\"ok\\\":false\"}");
    otlp_ended(&g, &s);
    otlp_ended(&g, &s);
    fire(&o()->spans_timer);
    assert_true(receive());
    assert_int_equal(json_array_size(spans()), OTLP_OPEN_MAX + 1);
    assert_string_equal(attribute(span_named("invoke_agent bridle"), "gen_ai.agent.id"), "");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(spans_of_a_run),
        T(a_run_that_failed),
        T(metrics_agree_with_the_counters),
        T(batches_are_bounded),
        T(a_collector_that_is_slow),
        T(a_collector_that_is_down),
        T(an_egress_that_is_gone),
        T(odd_events),
    };
    return cmocka_run_group_tests_name("otlp", tests, NULL, NULL);
}
