/*
 * harness/acp/1 as a strict client sees it: each request, each error, each limit at its last good
 * value and one beyond, and that a refusal asks nothing of anybody. Sessions and protocol are the
 * real ones, in the played world of test_world.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_strict.h"

static int setup(void **state)
{
    *state = world_new();
    return 0;
}

static int teardown(void **state)
{
    struct gateway *g = *state;
    return world_free(&g) ? 0 : -1;
}

/* ---- initialize ---- */

static void test_initialize(void **state)
{
    struct gateway *g = *state;
    struct conn *c = world_connect(g, &gw_harness, "uid:1000", BR_ACCESS_OBSERVE);
    world_say(g, c, INIT(CAPS));
    hears(c, RESULT("0", "{\"protocolVersion\":\"harness/acp/1\",\"agentName\":\"bridle\","
                         "\"agentVersion\":\"0.1.0\",\"capabilities\":{\"streaming\":true,"
                         "\"permissioning\":true,\"sessions\":false},\"models\":[\"scripted\","
                         "\"m\\\"2\"]}"));
    /* once */
    world_say(g, c, INIT(CAPS));
    refused(c, "0", -32600, "ACP_INVALID_REQUEST");
    /* sessions:true brings the methods, and the capability back */
    c = world_connect(g, &gw_harness, "uid:1000", BR_ACCESS_OBSERVE);
    world_say(g, c,
              INIT("\"clientVersion\":\"1\",\"capabilities\":{\"streaming\":true,"
                   "\"permissioning\":true,\"sessions\":true,\"extensions\":[\"other/9\"]}"));
    json_t *v = world_heard_json(c);
    json_t *caps = json_object_get(json_object_get(v, "result"), "capabilities");
    assert_true(json_is_true(json_object_get(caps, "sessions")));
    assert_null(json_object_get(caps, "extensions"));
    assert_null(json_object_get(json_object_get(v, "result"), "bridle"));
    json_decref(v);
}

static void test_initialize_extended(void **state)
{
    struct gateway *g = *state;
    struct conn *c = world_connect(g, &gw_harness, "token:ops", BR_ACCESS_ANSWER);
    g->settings.detach = 1;
    world_say(g, c, INIT(EXT));
    json_t *v = world_heard_json(c), *caps, *models;
    const char *name, *access, *at, *version, *agent, *agent_version;
    int detach, ask;
    assert_int_equal(json_unpack_ex(json_object_get(v, "result"), NULL, JSON_STRICT,
                                    "{s:s, s:s, s:s, s:o, s:o, s:{s:s, s:s, s:b, s:i, s:s}}",
                                    "protocolVersion", &version, "agentName", &agent,
                                    "agentVersion", &agent_version, "capabilities", &caps, "models",
                                    &models, "bridle", "name", &name, "access", &access, "detach",
                                    &detach, "askSeconds", &ask, "serverTime", &at),
                     0);
    assert_string_equal(name, "token:ops");
    assert_string_equal(access, "answer");
    assert_true(detach);
    assert_int_equal(ask, 120);
    assert_int_equal(strlen(at), 29);
    assert_string_equal(json_string_value(json_array_get(json_object_get(caps, "extensions"), 0)),
                        "bridle/1");
    json_decref(v);
}

static void test_initialize_again(void **state)
{
    static const struct {
        const char *params;
        int code;
        const char *name;
    } table[] = {
        {"\"protocolVersion\":\"harness/acp/2\",\"clientName\":\"c\"," CAPS, -32001,
         "ACP_PROTOCOL_VERSION"},
        {"\"clientName\":\"c\"," CAPS, -32602, "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":1,\"clientName\":\"c\"," CAPS, -32602, "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":\"harness/acp/1\"," CAPS, -32602, "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"\"," CAPS, -32602,
         "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"c\"", -32602,
         "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"c\",\"x\":1," CAPS, -32602,
         "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"c\",\"__proto__\":{}," CAPS,
         -32602, "ACP_INVALID_PARAMS"},
        {"\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"c\",\"clientVersion\":\"\"," CAPS,
         -32602, "ACP_INVALID_PARAMS"},
#define WITH(caps)                                                                                 \
    "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"c\",\"capabilities\":" caps
        {WITH("[]"), -32602, "ACP_INVALID_PARAMS"},
        {WITH("null"), -32602, "ACP_INVALID_PARAMS"},
        {WITH("{}"), -32602, "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true}"), -32602, "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true,\"permissioning\":false}"), -32602, "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":1,\"permissioning\":true}"), -32602, "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true,\"permissioning\":true,\"sessions\":null}"), -32602,
         "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true,\"permissioning\":true,\"constructor\":true}"), -32602,
         "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true,\"permissioning\":true,\"extensions\":{}}"), -32602,
         "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true,\"permissioning\":true,\"extensions\":[1]}"), -32602,
         "ACP_INVALID_PARAMS"},
        {WITH("{\"streaming\":true,\"permissioning\":true,\"extensions\":[\"\"]}"), -32602,
         "ACP_INVALID_PARAMS"},
    };
    struct gateway *g = *state;
    struct conn *c = world_connect(g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        world_say(g, c,
                  "{\"jsonrpc\":\"2.0\",\"id\":\"i\",\"method\":\"initialize\",\"params\":{%s}}",
                  table[i].params);
        refused(c, "\"i\"", table[i].code, table[i].name);
        world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
        refused(c, "1", -32002, "ACP_NOT_INITIALIZED");
    }
    assert_int_equal(g->nruns, 0);
    world_say(g, c, INIT(CAPS)); /* a failed one may be tried again */
    json_t *v = world_heard_json(c);
    assert_non_null(json_object_get(v, "result"));
    json_decref(v);
}

/* ---- what is no request, no method, no parameter ---- */

static void test_order_of_judgement(void **state)
{
    struct gateway *g = *state;
    struct conn *c = world_connect(g, &gw_harness, "uid:1000", BR_ACCESS_OBSERVE);
    world_say(g, c, "{");
    refused(c, "null", -32700, "ACP_PARSE_ERROR");
    world_say(g, c, "[]");
    refused(c, "null", -32600, "ACP_INVALID_REQUEST");
    world_say(g, c, "[" INIT(CAPS) "]");
    refused(c, "null", -32600, "ACP_INVALID_REQUEST");
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"initialize\"}");
    refused(c, "null", -32600, "ACP_INVALID_REQUEST");
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":9007199254740992,\"method\":\"initialize\"}");
    refused(c, "null", -32600, "ACP_INVALID_REQUEST");
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"initialize\",\"extra\":1}");
    refused(c, "5", -32600, "ACP_INVALID_REQUEST");
    /* notifications, known or not */
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{}}");
    refused(c, "null", -32600, "ACP_INVALID_REQUEST");
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"method\":\"nothing\"}");
    refused(c, "null", -32600, "ACP_INVALID_REQUEST");
    /* before initialize */
    static const char *const unknown[] = {"",
                                          "Initialize",
                                          "__proto__",
                                          "toString",
                                          "session/event",
                                          "session/list",
                                          "session/load",
                                          "session/resume",
                                          "session/watch",
                                          "session/unfollow",
                                          "session/detach",
                                          "bridle/event"};
    for (size_t i = 0; i < BR_ARRAY_LEN(unknown); i++) {
        world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"%s\",\"params\":{\"a\":1}}",
                  unknown[i]);
        refused(c, "6", -32601, "ACP_METHOD_NOT_FOUND");
    }
    world_say(g, c, REQ("7", "session/new", ""));
    refused(c, "7", -32602, "ACP_INVALID_PARAMS");
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/new\"}");
    refused(c, "7", -32602, "ACP_INVALID_PARAMS");
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/new\",\"params\":[]}");
    refused(c, "7", -32602, "ACP_INVALID_PARAMS");
    static const char *const calls[] = {
        REQ("8", "session/new", "\"workspace\":\"/w\""),
        REQ("8", "session/prompt", "\"sessionId\":\"s\",\"content\":\"x\""),
        REQ("8", "permission/respond",
            "\"sessionId\":\"s\",\"permissionId\":\"p\",\"decision\":\"allow\""),
        REQ("8", "session/cancel", "\"sessionId\":\"s\"")};
    for (size_t i = 0; i < BR_ARRAY_LEN(calls); i++) {
        world_say(g, c, "%s", calls[i]);
        refused(c, "8", -32002, "ACP_NOT_INITIALIZED");
    }
    /* after it, who only observes may do none of this, whatever it is about */
    world_say(g, c, INIT(CAPS));
    json_decref(world_heard_json(c));
    for (size_t i = 0; i < BR_ARRAY_LEN(calls); i++) {
        world_say(g, c, "%s", calls[i]);
        refused(c, "8", -32030, "ACP_FORBIDDEN");
    }
    c->refuse = true;
    world_say(g, c, "%s", calls[0]);
    refused(c, "8", -32031, "ACP_RATE_LIMITED");
    assert_int_equal(g->nruns, 0);
    silent(c);
}

/* A text parameter of n bytes. */
static void with_text(struct gateway *g, struct conn *c, const char *method, const char *before,
                      const char *key, size_t n)
{
    char *text = malloc(n + 1);
    memset(text, 'a', n);
    text[n] = 0;
    world_say(g, c, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"%s\",\"params\":{%s\"%s\":\"%s\"}}",
              method, before, key, text);
    free(text);
}

static void test_limits_of_text(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    char before[256];
    static const struct {
        const char *method, *before, *key;
        size_t max;
        int code; /* at max */
        const char *name;
    } table[] = {
        {"session/new", "", "workspace", 4096, -32602, "ACP_INVALID_PARAMS"}, /* no such path */
        {"session/new", "\"workspace\":\"/w\",", "model", 256, -32602, "ACP_INVALID_PARAMS"},
        {"session/prompt", "\"content\":\"x\",", "sessionId", 256, -32010, "ACP_SESSION_NOT_FOUND"},
        {"session/cancel", "", "sessionId", 256, -32010, "ACP_SESSION_NOT_FOUND"},
        {"permission/respond", "\"sessionId\":\"run_1\",\"decision\":\"deny\",", "permissionId",
         256, -32020, "ACP_PERMISSION_NOT_FOUND"},
        {"permission/respond",
         "\"sessionId\":\"run_1\",\"permissionId\":\"p\",\"decision\":\"deny\",", "note", 4096,
         -32020, "ACP_PERMISSION_NOT_FOUND"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        with_text(g, c, table[i].method, table[i].before, table[i].key, table[i].max);
        refused(c, "3", table[i].code, table[i].name);
        with_text(g, c, table[i].method, table[i].before, table[i].key, table[i].max + 1);
        refused(c, "3", -32602, "ACP_INVALID_PARAMS");
        if (strcmp(table[i].key, "note") == 0)
            continue;
        with_text(g, c, table[i].method, table[i].before, table[i].key, 0);
        refused(c, "3", -32602, "ACP_INVALID_PARAMS");
    }
    assert_int_equal(g->nruns, 1);
    /* kebab-case of 128 bytes, and what is none */
    with_text(g, c, "session/new", "\"workspace\":\"/w\",", "taskId", 129);
    refused(c, "3", -32602, "ACP_INVALID_PARAMS");
    static const char *const no_tasks[] = {"",     "A",    "a_b", "-a", "a-",
                                           "a--b", "../a", "a/b", "a b"};
    for (size_t i = 0; i < BR_ARRAY_LEN(no_tasks); i++) {
        world_say(g, c, REQ("3", "session/new", "\"workspace\":\"/w\",\"taskId\":\"%s\""),
                  no_tasks[i]);
        refused(c, "3", -32602, "ACP_INVALID_PARAMS");
    }
    assert_int_equal(g->nruns, 1);
    with_text(g, c, "session/new", "\"workspace\":\"/w\",", "taskId", 128);
    hears(c, RESULT("3", "{\"sessionId\":\"run_2\"}"));
    assert_int_equal(strlen(g->last_task), 128);
    /* content, last: the session runs then */
    snprintf(before, sizeof(before), "\"sessionId\":\"%s\",", r->id);
    with_text(g, c, "session/prompt", before, "content", 0);
    refused(c, "3", -32602, "ACP_INVALID_PARAMS");
    with_text(g, c, "session/prompt", before, "content", 512 * 1024 + 1);
    refused(c, "3", -32602, "ACP_INVALID_PARAMS");
    assert_false(r->asked);
    with_text(g, c, "session/prompt", before, "content", 512 * 1024);
    assert_true(r->asked);
    assert_int_equal(strlen(r->content), 512 * 1024);
    silent(c);
}

static void test_bytes_not_characters(void **state)
{
    struct gateway *g = *state;
    struct conn *c = world_connect(g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    for (unsigned n = 65; n >= 64; n--) { /* of two bytes each: 130 and 128 */
        char name[256] = "";
        for (unsigned i = 0; i < n; i++)
            strcat(name, "\xc3\xa4");
        world_say(g, c,
                  "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
                  "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"%s\"," CAPS "}}",
                  name);
        if (n == 65)
            refused(c, "0", -32602, "ACP_INVALID_PARAMS");
    }
    json_t *v = world_heard_json(c);
    assert_non_null(json_object_get(v, "result"));
    json_decref(v);
}

static void test_budgets(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    static const char *const bad[] = {
        "0", "-1", "1.5", "9007199254740992", "1e999", "\"1\"", "null", "true", "[1]", "-0"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        bool huge = strcmp(bad[i], "1e999") == 0; /* no number that anybody reads */
        world_say(g, c,
                  REQ("3", "session/prompt",
                      "\"sessionId\":\"%s\",\"content\":\"x\",\"maxModelTokens\":%s"),
                  r->id, bad[i]);
        refused(c, huge ? "null" : "3", huge ? -32600 : -32602,
                huge ? "ACP_INVALID_REQUEST" : "ACP_INVALID_PARAMS");
        world_say(g, c,
                  REQ("3", "session/prompt",
                      "\"sessionId\":\"%s\",\"content\":\"x\",\"maxToolCalls\":%s"),
                  r->id, bad[i]);
        refused(c, huge ? "null" : "3", huge ? -32600 : -32602,
                huge ? "ACP_INVALID_REQUEST" : "ACP_INVALID_PARAMS");
    }
    assert_false(r->asked);
    world_say(g, c,
              REQ("3", "session/prompt",
                  "\"sessionId\":\"%s\",\"content\":\"x\\u00e4\",\"maxModelTokens\":"
                  "9007199254740991,\"maxToolCalls\":1e0"),
              r->id);
    assert_true(r->asked);
    assert_int_equal(r->max_tokens, 9007199254740991);
    assert_int_equal(r->max_calls, 1);
    assert_string_equal(r->content, "x\xc3\xa4");
}

/* ---- sessions ---- */

static void test_new(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    static const struct {
        int code, want;
        const char *name;
    } table[] = {{BR_E_INVALID_WORKSPACE, -32602, "ACP_INVALID_PARAMS"},
                 {BR_E_INVALID_MANIFEST, -32602, "ACP_INVALID_PARAMS"},
                 {BR_E_NOT_FOUND, -32602, "ACP_INVALID_PARAMS"},
                 {BR_E_LIMIT_EXCEEDED, -32012, "ACP_SESSION_LIMIT"},
                 {BR_E_IO, -32603, "ACP_INTERNAL_ERROR"},
                 {9999, -32603, "ACP_INTERNAL_ERROR"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        g->check_code = table[i].code;
        world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
        refused(c, "1", table[i].want, table[i].name);
    }
    g->check_code = 0;
    world_say(g, c,
              REQ("1", "session/new",
                  "\"workspace\":\"/srv/work/a\",\"taskId\":\"t-1\",\"model\":\"m\""));
    hears(c, RESULT("1", "{\"sessionId\":\"run_1\"}"));
    assert_string_equal(g->last_workspace, "/srv/work/a");
    assert_string_equal(g->last_task, "t-1");
    assert_string_equal(g->last_model, "m");
    assert_string_equal(g->last_who, "uid:1000");
    g->draining = true;
    world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
    refused(c, "1", -32603, "ACP_INTERNAL_ERROR");
    prompt(g, c, "run_1");
    refused(c, "2", -32603, "ACP_INTERNAL_ERROR");
    assert_false(g->runs[0].asked);
}

static void test_session_limit(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    g->check_code = BR_E_INVALID_WORKSPACE; /* those that were never made do not count */
    for (unsigned i = 0; i < 40; i++) {
        world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
        refused(c, "1", -32602, "ACP_INVALID_PARAMS");
    }
    g->check_code = 0;
    for (unsigned i = 0; i < 32; i++) {
        struct run *r = created(g, c);
        world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
        hears(c, RESULT("3", "{\"canceled\":true}"));
        assert_true(r->forgotten);
    }
    world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
    refused(c, "1", -32012, "ACP_SESSION_LIMIT");
    assert_int_equal(g->nruns, 32);
    struct conn *other = client(g); /* which has its own */
    created(g, other);
    /* those that are being made count */
    g->hold_checks = true;
    g->settings.sessions_per_connection = 2;
    other = client(g);
    for (unsigned i = 0; i < 3; i++)
        world_say(g, other, REQ("1", "session/new", "\"workspace\":\"/w\""));
    refused(other, "1", -32012, "ACP_SESSION_LIMIT");
    assert_int_equal(g->nheld, 2);
    world_checked(g, g->held[1], 0, "");
    world_checked(g, g->held[0], BR_E_NOT_FOUND, "no");
    world_pump(g);
    json_decref(world_heard_json(other));
    refused(other, "1", -32602, "ACP_INVALID_PARAMS");
}

static void test_gone_while_created(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    g->hold_checks = true;
    world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
    world_disconnect(g, c);
    world_checked(g, g->held[0], 0, "");
    world_pump(g);
    assert_true(g->runs[0].forgotten);
    assert_null(session_find(g, "run_1"));
}

/* A refusal that comes too late is nobody's. */
static void test_gone_while_refused(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    g->hold_checks = true;
    world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/w\""));
    world_disconnect(g, c);
    unsigned said = c->nsent;
    world_checked(g, g->held[0], BR_E_INVALID_WORKSPACE, "no");
    world_pump(g);
    assert_int_equal(c->nsent, said);
    assert_int_equal(g->nruns, 0);
}

static void test_run(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    assert_int_equal(g->counters.sessions_running, 0);
    prompt(g, c, r->id);
    assert_int_equal(g->counters.sessions_running, 1);
    assert_string_equal(r->content, "do it");
    silent(c);
    const char *id = r->id;
    world_event(g, r, "session.created", "kernel", "{\"sessionId\":\"%s\"}", id);
    hears(c,
          "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{\"sessionId\":\"run_1\","
          "\"seq\":0,\"event\":{\"v\":1,\"type\":\"session.created\",\"eventId\":\"evt_run_1_1\","
          "\"at\":\"2026-03-01T10:00:00.000+00:00\",\"actor\":\"kernel\",\"data\":{\"sessionId\":"
          "\"run_1\"}}}}");
    world_event(g, r, "bridle.run", "kernel", "{}");
    world_event(g, r, "agent.started", "kernel", "{}");
    for (unsigned i = 0; i < 2; i++) {
        world_event(g, r, "model.request", "kernel", "{}");
        world_event(g, r, "bridle.text", "agent", "{\"text\":\"turn %u \",\"final\":false}", i);
        world_event(g, r, "bridle.text", "agent", "{\"text\":\"\\u00e4\\n\",\"final\":true}");
        world_event(g, r, "model.response", "model",
                    "{\"usage\":{\"promptTokens\":10,\"completionTokens\":%u,\"totalTokens\":%u}}",
                    i, 10 + i);
    }
    silent(client(g)); /* nobody else hears of it */
    world_end(g, r, "completed");
    static const char *const types[] = {"agent.started", "model.request",  "model.response",
                                        "model.request", "model.response", "agent.stopped"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(types); i++)
        hears_event(c, id, i + 1, types[i]);
    hears(c, RESULT("2", "{\"status\":\"completed\",\"events\":[],\"finalText\":\"turn 1 "
                         "\xc3\xa4\\n\",\"usage\":{\"promptTokens\":20,\"completionTokens\":1,"
                         "\"totalTokens\":21}}"));
    silent(c);
    assert_int_equal(g->counters.sessions_completed, 1);
    assert_int_equal(g->counters.model_requests, 2);
    assert_int_equal(g->counters.tokens_prompt, 20);
    assert_int_equal(g->counters.events_out, 7);
    assert_int_equal(g->otlp_ended, 1);
    assert_int_equal(c->close_code, 0);
    /* it has run */
    prompt(g, c, id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), id);
    hears(c, RESULT("3", "{\"canceled\":false}"));
    assert_int_equal(r->cancels, 0);
}

static void test_prompt_twice(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g), *other = client(g);
    struct run *r = created(g, c);
    g->hold_runs = true; /* bridled has not said anything yet */
    prompt(g, other, r->id);
    refused(other, "2", -32010, "ACP_SESSION_NOT_FOUND");
    assert_false(r->asked);
    prompt(g, c, r->id);
    assert_true(r->asked && !r->started);
    prompt(g, c, r->id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
    silent(c);
    world_start(g, r);
    world_pump(g);
    prompt(g, c, r->id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
    world_end(g, r, "failed");
    hears_event(c, r->id, 0, "agent.stopped");
    hears(c, RESULT("2", "{\"status\":\"failed\",\"events\":[],\"finalText\":\"\",\"usage\":{"
                         "\"promptTokens\":0,\"completionTokens\":0,\"totalTokens\":0}}"));
    prompt(g, c, r->id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
}

static void test_never_started(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    g->hold_runs = true;
    prompt(g, c, r->id);
    world_ended(g, r, BR_E_REQUIREMENT_MISSING, "user namespaces are not there");
    refused(c, "2", -32603, "ACP_INTERNAL_ERROR");
    prompt(g, c, r->id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
    assert_int_equal(g->counters.sessions_failed, 1);
    assert_int_equal(c->close_code, 0);
}

static void test_statuses(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    static const struct {
        const char *stopped, *status;
        enum gw_state state;
    } table[] = {{"completed", "completed", GW_COMPLETED},
                 {"failed", "failed", GW_FAILED},
                 {"canceled", "failed", GW_CANCELED},
                 {"budget_exceeded", "failed", GW_FAILED}};
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        struct run *r = created(g, c);
        prompt(g, c, r->id);
        world_end(g, r, table[i].stopped);
        hears_event(c, r->id, 0, "agent.stopped");
        json_t *v = world_heard_json(c);
        assert_string_equal(
            json_string_value(json_object_get(json_object_get(v, "result"), "status")),
            table[i].status);
        json_decref(v);
        assert_int_equal(session_state(session_find(g, r->id)), table[i].state);
    }
}

/* The record may end before bridled says so, or after. */
static void test_ends_in_any_order(void **state)
{
    struct gateway *g = *state;
    for (unsigned order = 0; order < 2; order++) {
        struct conn *c = client(g);
        struct run *r = created(g, c);
        prompt(g, c, r->id);
        world_event(g, r, "agent.stopped", "kernel", "{\"status\":\"completed\"}");
        hears_event(c, r->id, 0, "agent.stopped");
        if (order)
            world_ended(g, r, 0, "");
        else
            world_close_audit(r);
        world_pump(g);
        silent(c); /* not before both */
        if (order)
            world_close_audit(r);
        else
            world_ended(g, r, 0, "");
        world_pump(g);
        json_t *v = world_heard_json(c);
        assert_non_null(json_object_get(v, "result"));
        json_decref(v);
    }
}

/* ---- the end of a session's time ---- */

static void test_expiry(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    world_wait(g, 300u * 1000000 - 1);
    assert_false(r->forgotten);
    world_wait(g, 1);
    assert_true(r->forgotten);
    prompt(g, c, r->id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("3", "{\"canceled\":false}"));
    assert_false(r->asked);
    /* one that was prompted does not expire */
    r = created(g, c);
    prompt(g, c, r->id);
    world_wait(g, 3600u * 1000000);
    assert_false(r->forgotten);
    assert_int_equal(r->cancels, 0);
}

static void test_cancel(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("3", "{\"canceled\":true}"));
    assert_true(r->forgotten);
    prompt(g, c, r->id);
    refused(c, "2", -32011, "ACP_SESSION_ALREADY_RUN");
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("3", "{\"canceled\":false}"));
    /* one that runs: the prompt is answered, then who canceled */
    r = running(g, c);
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    world_say(g, c, REQ("4", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    silent(c);
    assert_int_equal(r->cancels, 1);
    world_wait(g, 30u * 1000000 - 1);
    assert_int_equal(r->kills, 0);
    world_wait(g, 1);
    assert_int_equal(r->kills, 1);
    world_end(g, r, "canceled");
    hears_event(c, r->id, 1, "agent.stopped");
    json_t *v = world_heard_json(c);
    assert_int_equal(json_integer_value(json_object_get(v, "id")), 2);
    json_decref(v);
    hears(c, RESULT("4", "{\"canceled\":true}"));
    hears(c, RESULT("3", "{\"canceled\":true}"));
    /* it was done before it could be canceled */
    r = running(g, c);
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    world_end(g, r, "completed");
    hears_event(c, r->id, 1, "agent.stopped");
    json_decref(world_heard_json(c));
    hears(c, RESULT("3", "{\"canceled\":false}"));
    /* it has not started */
    g->hold_runs = true;
    r = created(g, c);
    prompt(g, c, r->id);
    world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    assert_int_equal(r->cancels, 1);
    world_ended(g, r, BR_E_CANCELED, "canceled");
    refused(c, "2", -32603, "ACP_INTERNAL_ERROR");
    hears(c, RESULT("3", "{\"canceled\":true}"));
    /* somebody else's */
    struct conn *other = client(g);
    r = created(g, c);
    world_say(g, other, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    refused(other, "3", -32010, "ACP_SESSION_NOT_FOUND");
    assert_false(r->forgotten);
}

static void test_disconnect(void **state)
{
    struct gateway *g = *state;
    char permission[BR_ID_MAX];
    struct conn *c = client(g);
    struct run *idle = created(g, c), *r = running(g, c);
    world_ask(g, r, "c1", false, permission);
    world_disconnect(g, c);
    world_pump(g);
    assert_true(idle->forgotten);
    assert_null(session_find(g, idle->id));
    assert_int_equal(r->cancels, 1);
    assert_non_null(session_find(g, r->id)); /* its cleanup is waited for */
    assert_int_equal(g->counters.sessions_running, 1);
    assert_int_equal(br_ledger_end(r->ledger, permission, BR_ASK_CANCELED, NULL), 0);
    world_resolved(g, r, "c1", permission);
    world_end(g, r, "canceled");
    assert_null(session_find(g, r->id));
    assert_int_equal(g->counters.sessions_canceled, 2);
    assert_int_equal(g->counters.asks_denied, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_initialize),
        T(test_initialize_extended),
        T(test_initialize_again),
        T(test_order_of_judgement),
        T(test_limits_of_text),
        T(test_bytes_not_characters),
        T(test_budgets),
        T(test_new),
        T(test_session_limit),
        T(test_gone_while_created),
        T(test_gone_while_refused),
        T(test_run),
        T(test_prompt_twice),
        T(test_never_started),
        T(test_statuses),
        T(test_ends_in_any_order),
        T(test_expiry),
        T(test_cancel),
        T(test_disconnect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
