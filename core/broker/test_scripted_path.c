/*
 * The scripted provider as the upstream of the real broker and egress, over its Unix socket: the
 * embedded scenarios as conversations, and each fault as the session sees it.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_rig.h"

static void ask(struct rig *r, uint64_t id, const char *messages, bool stream)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    br_buf_printf(&b,
                  "{\"model\":\"test-model\",\"messages\":%s,\"max_tokens\":100,\"stream\":%s%s}",
                  messages, stream ? "true" : "false",
                  stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
    rig_send(r, id, BR_PATH_CHAT, "application/json", 200, (const char *)b.data, b.len);
    assert_true(rig_until(r, &r->have_end, 20000));
    assert_int_equal(r->end_id, id);
}

static void ask_stream(struct rig *r, uint64_t id)
{
    static const char body[] = "{\"model\":\"test-model\",\"messages\":[{}],\"max_tokens\":1,"
                               "\"stream\":true}";
    rig_send(r, id, BR_PATH_CHAT, "application/json", 200, body, sizeof(body) - 1);
}

static void start(struct rig *r, const char *scenario, struct rig_options *o)
{
    o->scenario = scenario;
    o->key_env = "";
    assert_int_equal(rig_start(r, o), 0);
}

static char *embedded(const char *name)
{
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/share/scenarios/%s.json", getenv("BRIDLE_SOURCE"), name);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    assert_non_null(f);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    assert_int_equal(br_read_all(fileno(f), &b, path, NULL), 0);
    return strdup(br_buf_cstr(&b));
}

#define TOOL(text) "{\"role\":\"tool\",\"content\":\"" text "\"}"
#define SAID "{\"role\":\"assistant\",\"content\":\"x\"},"

/* Each row: a conversation so far, and what the scripted agent does next. */
static void test_demo_conversation(void **state)
{
    static const struct {
        const char *messages, *next, *never;
    } rows[] = {
        {"[{\"role\":\"user\",\"content\":\"go\"}]", "fs_list", "fs_edit"},
        {"[" SAID TOOL("{\\\"ok\\\":true}") "]", "fs_read", "fs_edit"},
        {"[" SAID SAID TOOL("{\\\"ok\\\":true}") "]", "process_exec", "fs_edit"},
        {"[" SAID SAID TOOL("{\\\"ok\\\":false}") "]", "Nothing was changed", "tool_calls\":["},
        {"[" SAID SAID SAID TOOL("not ok 3 - hours") "]", "fs_edit", "process_exec"},
        {"[" SAID SAID SAID TOOL("code DENIED") "]", "operator denied running 'lua5.4 test.lua'",
         "tool_calls\":["},
        {"[" SAID SAID SAID TOOL("broken") "]", "Nothing was changed", "tool_calls\":["},
        {"[" SAID SAID SAID SAID TOOL("{\\\"ok\\\":true}") "]", "process_exec", "fs_edit"},
        {"[" SAID SAID SAID SAID TOOL("DENIED") "]", "operator denied the correction",
         "tool_calls\":["},
        {"[" SAID SAID SAID SAID SAID TOOL("\\\"exitCode\\\":0") "]", "All tests pass",
         "tool_calls\":["},
        {"[" SAID SAID SAID SAID SAID TOOL("\\\"exitCode\\\":1") "]", "still does not pass",
         "tool_calls\":["},
        {"[" SAID SAID SAID SAID SAID TOOL("DENIED") "]", "not verified", "tool_calls\":["},
    };
    BR_CLEANUP_FREE char *scenario = embedded("demo");
    struct rig r = {.server = NULL};
    (void)state;
    start(&r, scenario, &(struct rig_options){.key = NULL});
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        ask(&r, i + 1, rows[i].messages, false);
        assert_int_equal(r.end_code, 0);
        assert_int_equal(r.status, 200);
        if (!strstr(rig_body(&r), rows[i].next) || strstr(rig_body(&r), rows[i].never))
            fail_msg("row %u: %s", i, rig_body(&r));
    }
    rig_stop(&r, 0, 0);
}

static void test_stream_arrives_as_it_is_made(void **state)
{
    struct rig r = {.server = NULL};
    (void)state;
    start(&r,
          "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a b c d e f g h i j\",\"chunk_words\":1,"
          "\"delay_ms\":50}]}",
          &(struct rig_options){.key = NULL});
    uint64_t begun = br_now_us();
    ask_stream(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    uint64_t head = br_now_us();
    assert_true(rig_until(&r, &r.have_end, 5000));
    assert_int_equal(r.end_code, 0);
    assert_true(br_now_us() - head >= 400000); /* ten pieces, 50 ms apart; the head was first */
    assert_true(head - begun < 400000);
    assert_string_equal(r.content_type, "text/event-stream");
    assert_non_null(strstr(rig_body(&r), "data: [DONE]\n\n"));
    assert_int_equal(strncmp(r.request_id, "scripted-", 9), 0);
    rig_stop(&r, 0, 0);
}

static void fault(const char *name, bool stream, enum br_code code, const char *text)
{
    struct rig r = {.server = NULL};
    char scenario[512];
    snprintf(
        scenario, sizeof(scenario),
        "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"one two three four\",\"chunk_words\":1,"
        "\"tool_calls\":[{\"name\":\"t\",\"arguments\":{\"a\":1}},{\"name\":\"t\","
        "\"arguments\":{\"a\":2}}],\"fault\":%s}]}",
        name);
    start(&r, scenario, &(struct rig_options){.timeouts = {2, 1, 1, 20}});
    ask(&r, 1, "[{\"role\":\"user\",\"content\":\"go\"}]", stream);
    if (r.end_code != code)
        fail_msg("%s ended with %s: %s", name, br_code_name((int)r.end_code), r.end_text);
    const char *where = code ? r.end_text : rig_body(&r);
    if (!strstr(where, text))
        fail_msg("%s: '%s' is not in: %s", name, text, where);
    rig_stop(&r, 0, 0);
}

static void test_faults(void **state)
{
    (void)state;
    for (int stream = 0; stream <= 1; stream++) {
        fault("\"silent\"", stream, BR_E_TIMEOUT, "did not begin to answer");
        fault("\"close\"", stream, BR_E_PROVIDER_TRUNCATED, "in the middle of its answer");
        fault("\"stall\"", stream, BR_E_TIMEOUT, "stood still");
        fault("\"slow\"", stream, 0, "scripted");
        fault("\"garbage\"", stream, 0, "ELF");
        fault("\"bad_tool_json\"", stream, 0, "\\\"a\\\":1");
        fault("\"duplicate_ids\"", stream, 0, "call_scripted_0_0");
        fault("\"wrong_finish\"", stream, 0, "\"finish_reason\":\"stop\"");
        fault("\"bad_usage\"", stream, 0, "total_tokens");
        fault("\"two_choices\"", stream, 0, "\"index\":1");
        fault("\"legacy_function_call\"", stream, 0, "function_call");
        fault("{\"status\":429,\"body\":\"{\\\"error\\\":\\\"busy\\\"}\",\"retry_after\":\"2\"}",
              stream, 0, "busy");
    }
    fault("\"oversized\"", true, BR_E_LIMIT_EXCEEDED, "ceiling for answers");
}

static void test_faults_leave_out(void **state)
{
    struct rig r = {.server = NULL};
    (void)state;
    start(&r, "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"fault\":\"no_done\"}]}",
          &(struct rig_options){.key = NULL});
    ask(&r, 1, "[{}]", true);
    assert_int_equal(r.end_code, 0);
    assert_non_null(strstr(rig_body(&r), "usage"));
    assert_null(strstr(rig_body(&r), "[DONE]"));
    rig_stop(&r, 0, 0);
    start(&r, "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"fault\":\"no_usage\"}]}",
          &(struct rig_options){.key = NULL});
    ask(&r, 1, "[{}]", true);
    assert_null(strstr(rig_body(&r), "prompt_tokens"));
    assert_non_null(strstr(rig_body(&r), "[DONE]"));
    rig_stop(&r, 0, 0);
    start(&r, "{\"v\":1,\"name\":\"x\",\"turns\":[{\"fault\":\"redirect\"}]}",
          &(struct rig_options){.key = NULL});
    ask(&r, 1, "[{}]", true);
    assert_int_equal(r.status, 307);
    rig_stop(&r, 0, 0);
}

static void test_refused_scenario(void **state)
{
    struct rig r = {.server = NULL};
    (void)state;
    assert_int_equal(rig_start(&r, &(struct rig_options){.scenario = "{\"v\":1,\"nam\":\"x\"}",
                                                         .expect_refused = true}),
                     -1);
    assert_string_equal(r.ready_code, "INVALID_CONFIG");
    assert_non_null(strstr(r.ready_text, "unknown key 'nam'"));
    assert_int_equal(WEXITSTATUS(rig_wait_child(r.scripted, 5000)), 1);
    r.scripted = 0;
    rig_stop(&r, -1, -1);
}

static int dial(const struct rig *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, r->socket, strlen(r->socket) + 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

/* A peer that sends nonsense gets an answer and cannot keep the server from the next one. */
static void test_raw_clients(void **state)
{
    struct rig r = {.server = NULL};
    char text[4096];
    int open[12];
    (void)state;
    start(&r, "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"fine\"}]}",
          &(struct rig_options){.key = NULL});
    static const struct {
        const char *send, *expect;
    } rows[] = {
        {"nonsense\r\n\r\n", "HTTP/1.1 400 "},
        {"POST /v1/chat/completions HTTP/1.1\r\n\r\n", "HTTP/1.1 411 "},
        {"GET /v1/models HTTP/1.1\r\n\r\n", "\"id\":\"scripted/x\""},
        {"GET /v1/models HTTP/1.1\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        BR_CLEANUP_FD int fd = dial(&r);
        size_t n = 0;
        assert_int_equal(br_write_all(fd, rows[i].send, strlen(rows[i].send)), 0);
        for (ssize_t k; (k = read(fd, text + n, sizeof(text) - 1 - n)) > 0;)
            n += (size_t)k;
        text[n] = '\0';
        if (!strstr(text, rows[i].expect))
            fail_msg("row %u: %s", i, text);
    }
    /* more connections than it takes, all silent; they go, and it serves again */
    for (unsigned i = 0; i < BR_ARRAY_LEN(open); i++)
        open[i] = dial(&r);
    (void)poll(NULL, 0, 50);
    for (unsigned i = 0; i < BR_ARRAY_LEN(open); i++)
        (void)close(open[i]);
    (void)poll(NULL, 0, 50);
    ask(&r, 1, "[{}]", false);
    assert_non_null(strstr(rig_body(&r), "fine"));
    rig_stop(&r, 0, 0);
}

static void test_scripted_killed(void **state)
{
    struct rig r = {.server = NULL};
    (void)state;
    start(&r,
          "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a b c d e f g h i\",\"chunk_words\":1,"
          "\"delay_ms\":200}]}",
          &(struct rig_options){.key = NULL});
    ask_stream(&r, 1);
    assert_true(rig_until(&r, &r.have_head, 5000));
    assert_int_equal(kill(r.scripted, SIGKILL), 0);
    assert_true(rig_until(&r, &r.have_end, 5000));
    assert_int_equal(r.end_code, BR_E_PROVIDER_TRUNCATED);
    assert_true(rig_wait_child(r.scripted, 5000) >= 0); /* and with it its listening socket */
    r.scripted = 0;
    ask(&r, 2, "[{}]", false);
    assert_int_equal(r.end_code, BR_E_PROVIDER_UNREACHABLE);
    rig_stop(&r, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo_conversation),
        cmocka_unit_test(test_stream_arrives_as_it_is_made),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_faults_leave_out),
        cmocka_unit_test(test_refused_scenario),
        cmocka_unit_test(test_raw_clients),
        cmocka_unit_test(test_scripted_killed),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
