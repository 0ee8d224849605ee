/*
 * Scenarios, the request parser and the answers of the scripted provider, without processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scripted/scripted_priv.h"

/* ---- scenario ---- */

static struct br_scenario *load(const char *text)
{
    struct br_scenario *s = NULL;
    struct br_err err;
    if (br_scenario_load(text, strlen(text), &s, &err) < 0)
        fail_msg("%s was refused: %s", text, err.text);
    return s;
}

static void test_embedded_scenarios(void **state)
{
    static const char *const names[] = {"demo", "default"};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        char path[BR_PATH_MAX];
        const char *source = getenv("BRIDLE_SOURCE");
        assert_non_null(source);
        snprintf(path, sizeof(path), "%s/share/scenarios/%s.json", source, names[i]);
        BR_CLEANUP_FILE FILE *f = fopen(path, "re");
        assert_non_null(f);
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SCENARIO_MAX);
        assert_int_equal(br_read_all(fileno(f), &b, path, NULL), 0);
        struct br_scenario *s = load(br_buf_cstr(&b));
        assert_string_equal(s->name, names[i]);
        /* every text says what it is, and the last turn matches everything */
        for (unsigned k = 0; k < s->nturns; k++)
            assert_int_equal(strncmp(s->turns[k].text, "(scripted) ", 11), 0);
        const struct br_turn *last = &s->turns[s->nturns - 1];
        assert_int_equal(last->assistant_messages, -1);
        assert_int_equal(last->tool_contains.n, 0);
        br_scenario_free(&s);
    }
}

static void test_scenario_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "not JSON"},
        {"{", "ends inside"},
        {"[]", "not a JSON object"},
        {"{\"v\":1,\"v\":1}", "duplicate"},
        {"{\"name\":\"x\",\"turns\":[{\"text\":\"a\"}]}", "'v' is not 1"},
        {"{\"v\":2,\"name\":\"x\",\"turns\":[{\"text\":\"a\"}]}", "'v' is not 1"},
        {"{\"v\":1,\"turns\":[{\"text\":\"a\"}]}", "'name'"},
        {"{\"v\":1,\"name\":\"X y\",\"turns\":[{\"text\":\"a\"}]}", "'name'"},
        {"{\"v\":1,\"name\":\"x\"}", "'turns'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[]}", "'turns'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[1]}", "'turns[0]' is not an object"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{}]}", "neither 'text'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":1}]}", "'turns[0].text'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"tex\":\"a\"}]}",
         "'turns[0]' has an unknown key 'tex'; expected one of: when, text"},
        {"{\"v\":1,\"name\":\"x\",\"extra\":1,\"turns\":[{\"text\":\"a\"}]}", "'extra'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"when\":1}]}", "'turns[0].when'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"when\":{\"tool\":1}}]}", "'tool'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"when\":{\"assistant_messages\":-1}}]"
         "}",
         "whole number"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"when\":{\"last_tool_contains\":[]}}]"
         "}",
         "list of 1 to 16"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"when\":{\"last_tool_contains\":"
         "\"\"}}]}",
         "list of 1 to 16"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"tool_calls\":[]}]}", "list of 1 to"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"tool_calls\":[{\"name\":\"a\"}]}]}",
         "'turns[0].tool_calls[0]' needs"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"tool_calls\":[{\"name\":\"a\",\"arguments\":[]}]}]"
         "}",
         "needs a 'name'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"finish_reason\":\"end\"}]}",
         "finish_reason"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"fault\":\"explode\"}]}",
         "no known fault"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"fault\":{\"status\":200}}]}", "400 to 599"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"fault\":{\"body\":\"x\"}}]}", "no 'status'"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"fault\":{\"status\":429,\"retry_after\":"
         "\"1\\r\\nX: y\"}}]}",
         "no header value"},
        {"{\"v\":1,\"name\":\"x\",\"delay_ms\":60001,\"turns\":[{\"text\":\"a\"}]}", "delay_ms"},
        {"{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\",\"chunk_words\":0}]}", "chunk_words"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct br_scenario *s = NULL;
        struct br_err err;
        if (br_scenario_load(bad[i].text, strlen(bad[i].text), &s, &err) != -BR_E_INVALID_CONFIG)
            fail_msg("%s was loaded", bad[i].text);
        assert_null(s);
        if (!strstr(err.text, bad[i].why))
            fail_msg("%s was refused with: %s", bad[i].text, err.text);
    }
}

static void test_scenario_limits(void **state)
{
    (void)state;
    for (unsigned n = BR_SCENARIO_TURNS_MAX; n <= BR_SCENARIO_TURNS_MAX + 1; n++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SCENARIO_MAX);
        struct br_scenario *s = NULL;
        br_buf_printf(&b, "{\"v\":1,\"name\":\"x\",\"turns\":[");
        for (unsigned i = 0; i < n; i++)
            br_buf_printf(&b, "%s{\"text\":\"a\"}", i ? "," : "");
        br_buf_printf(&b, "]}");
        int r = br_scenario_load(b.data, b.len, &s, NULL);
        assert_int_equal(r, n <= BR_SCENARIO_TURNS_MAX ? 0 : -BR_E_INVALID_CONFIG);
        br_scenario_free(&s);
    }
    for (unsigned n = BR_SCENARIO_MAX; n <= BR_SCENARIO_MAX + 1; n++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_SCENARIO_MAX + 1);
        struct br_scenario *s = NULL;
        br_buf_printf(&b, "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"a\"}]}");
        while (b.len < n)
            br_buf_put_u8(&b, ' ');
        int r = br_scenario_load(b.data, b.len, &s, NULL);
        assert_int_equal(r, n <= BR_SCENARIO_MAX ? 0 : -BR_E_INVALID_CONFIG);
        br_scenario_free(&s);
    }
}

static const char *chosen(struct br_scenario *s, const char *messages)
{
    json_t *m = json_loads(messages, 0, NULL);
    assert_non_null(m);
    struct br_situation q = {.messages = m};
    for (size_t i = 0; i < json_array_size(m); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(m, i), "role"));
        q.assistant_messages += strcmp(role, "assistant") == 0;
    }
    const struct br_turn *t = br_scenario_turn(s, &q);
    json_decref(m);
    return t ? t->text : NULL;
}

static void test_choice(void **state)
{
    struct br_scenario *s = load(
        "{\"v\":1,\"name\":\"x\",\"turns\":["
        "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"magic\"},\"text\":\"magic\"},"
        "{\"when\":{\"assistant_messages\":0},\"text\":\"start\"},"
        "{\"when\":{\"assistant_messages\":1,\"last_tool_contains\":[\"DENIED\",\"EXPIRED\"]},"
        "\"text\":\"denied\"},"
        "{\"when\":{\"assistant_messages\":1,\"last_tool_lacks\":\"good\"},\"text\":\"lacks\"},"
        "{\"when\":{\"assistant_messages\":1},\"text\":\"one\"}]}");
    (void)state;
    assert_string_equal(chosen(s, "[{\"role\":\"user\",\"content\":\"a magic word\"}]"), "magic");
    assert_string_equal(chosen(s, "[{\"role\":\"user\",\"content\":\"hello\"}]"), "start");
    assert_string_equal(chosen(s, "[{\"role\":\"assistant\"},{\"role\":\"tool\",\"content\":"
                                  "\"was EXPIRED\"},{\"role\":\"tool\",\"content\":\"good\"}]"),
                        "denied");
    assert_string_equal(chosen(s, "[{\"role\":\"assistant\"},{\"role\":\"tool\",\"content\":"
                                  "\"bad\"}]"),
                        "lacks");
    assert_string_equal(chosen(s, "[{\"role\":\"tool\",\"content\":\"DENIED\"},{\"role\":"
                                  "\"assistant\"},{\"role\":\"tool\",\"content\":\"good\"}]"),
                        "one");
    assert_null(chosen(s, "[{\"role\":\"assistant\"},{\"role\":\"assistant\"}]"));
    br_scenario_free(&s);
}

/* ---- HTTP ---- */

static void test_http(void **state)
{
    static const struct {
        const char *text;
        int result;
        unsigned status;
    } rows[] = {
        {"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ncontent-length:  12 \r\n\r\n", 0, 0},
        {"GET /v1/models HTTP/1.0\r\n\r\n", 0, 0},
        {"", 1, 0},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\n", 1, 0},
        {"POST / HTTP/1.1\r\n\r\n", -1, 411},
        {"POST / HTTP/1.1\nHost: x\n\n", -1, 400},
        {"POST / HTTP/1.1\rHost", -1, 400},
        {"POST  / HTTP/1.1\r\n\r\n", -1, 400},
        {"POST x HTTP/1.1\r\n\r\n", -1, 400},
        {"P@ST / HTTP/1.1\r\n\r\n", -1, 400},
        {"GET / HTTP/2.0\r\n\r\n", -1, 505},
        {"GET / HTTP/1.1 \r\n\r\n", -1, 505},
        {"\r\nGET / HTTP/1.1\r\n\r\n", -1, 400},
        {"GET / HTTP/1.1\r\nA : b\r\n\r\n", -1, 400},
        {"GET / HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n", -1, 400},
        {"GET / HTTP/1.1\r\nA: \x01\r\n\r\n", -1, 400},
        {"GET / HTTP/1.1\r\n: b\r\n\r\n", -1, 400},
        {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", -1, 400},
        {"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", -1, 400},
        {"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", -1, 400},
        {"POST / HTTP/1.1\r\nContent-Length:\r\n\r\n", -1, 400},
        {"POST / HTTP/1.1\r\nContent-Length: 16777216\r\n\r\n", 0, 0},
        {"POST / HTTP/1.1\r\nContent-Length: 16777217\r\n\r\n", -1, 413},
        {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", -1, 413},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", -1, 501},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_http_request r;
        unsigned status = 0;
        int k = br_http_parse(rows[i].text, strlen(rows[i].text), &r, &status);
        if ((k < 0 ? -1 : k) != rows[i].result || (k < 0 && status != rows[i].status))
            fail_msg("row %zu: %d, status %u: %s", i, k, status, rows[i].text);
        if (k == 0)
            assert_int_equal(r.head_len, strlen(rows[i].text));
    }
}

static void test_http_limits(void **state)
{
    struct br_http_request r;
    unsigned status = 0;
    (void)state;
    for (unsigned n = BR_HTTP_FIELDS_MAX; n <= BR_HTTP_FIELDS_MAX + 1; n++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
        br_buf_printf(&b, "GET / HTTP/1.1\r\n");
        for (unsigned i = 0; i < n; i++)
            br_buf_printf(&b, "A: b\r\n");
        br_buf_printf(&b, "\r\n");
        int k = br_http_parse((const char *)b.data, b.len, &r, &status);
        assert_int_equal(k, n <= BR_HTTP_FIELDS_MAX ? 0 : -BR_E_INVALID_FRAME);
    }
    for (unsigned n = BR_HTTP_HEAD_MAX; n <= BR_HTTP_HEAD_MAX + 1; n++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
        status = 0;
        br_buf_printf(&b, "GET / HTTP/1.1\r\nA: ");
        while (b.len < n - 4)
            br_buf_put_u8(&b, 'a');
        br_buf_printf(&b, "\r\n\r\n");
        int k = br_http_parse((const char *)b.data, b.len, &r, &status);
        assert_int_equal(k, n <= BR_HTTP_HEAD_MAX ? 0 : -BR_E_INVALID_FRAME);
        assert_int_equal(status, n <= BR_HTTP_HEAD_MAX ? 0 : 431);
    }
}

/* ---- answers ---- */

static const char one_turn[] =
    "{\"v\":1,\"name\":\"x\",\"turns\":[{\"text\":\"one two three four\",\"delay_ms\":5,"
    "\"chunk_words\":2,\"tool_calls\":[{\"name\":\"t\",\"arguments\":{\"path\":\"\xc3\xa4\xc3\xb6"
    "\xc3\xbc-a-longer-name.txt\"}},{\"name\":\"u\",\"arguments\":{}}]}]}";

/* The whole answer as it would go over the wire. */
static char *answer(const char *scenario, const char *path, const char *body)
{
    struct br_scenario *s = load(scenario);
    struct br_http_request r = {.method = "POST", .body_len = strlen(body)};
    struct br_answer a;
    snprintf(r.path, sizeof(r.path), "%s", path);
    br_answer_init(&a);
    br_answer_make(&a, s, &r, body, 9);
    assert_false(a.failed);
    char *text = strdup(br_buf_cstr(&a.bytes));
    br_answer_free(&a);
    br_scenario_free(&s);
    return text;
}

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in: %s", part, text);
}

static void test_answer_stream(void **state)
{
    BR_CLEANUP_FREE char *text =
        answer(one_turn, "/v1/chat/completions",
               "{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":"
               "true,\"stream_options\":{\"include_usage\":true}}");
    (void)state;
    expect_in(text, "HTTP/1.1 200 OK\r\nServer: bridle-scripted\r\nX-Bridle-Scripted: x\r\n"
                    "X-Request-Id: scripted-9\r\n");
    expect_in(text, "Content-Type: text/event-stream\r\n");
    expect_in(text, "\"model\":\"scripted/x\",\"system_fingerprint\":\"scripted\"");
    expect_in(text, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    expect_in(text, "\"delta\":{\"content\":\"one two\"}");
    expect_in(text, "\"delta\":{\"content\":\" three four\"}");
    expect_in(text, "{\"index\":0,\"id\":\"call_scripted_0_0\",\"type\":\"function\",\"function\":"
                    "{\"name\":\"t\",\"arguments\":\"\"}}");
    expect_in(text, "\"id\":\"call_scripted_0_1\"");
    expect_in(text, "\"finish_reason\":\"tool_calls\"");
    expect_in(text, "\"choices\":[],\"usage\":{\"prompt_tokens\":");
    expect_in(text, "data: [DONE]\n\n\r\n0\r\n\r\n");
    assert_true(br_utf8_valid(text, strlen(text)));
}

static void test_answer_whole(void **state)
{
    BR_CLEANUP_FREE char *text =
        answer(one_turn, "/chat/completions",
               "{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    (void)state;
    const char *body = strstr(text, "\r\n\r\n");
    assert_non_null(body);
    json_t *v = json_loads(body + 4, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(v);
    const char *content, *finish, *args;
    int prompt, completion, total;
    assert_int_equal(json_unpack(v, "{s:[{s:{s:s,s:[{s:{s:s}},o]},s:s}],s:{s:i,s:i,s:i}}",
                                 "choices", "message", "content", &content, "tool_calls",
                                 "function", "arguments", &args, &(json_t *){NULL}, "finish_reason",
                                 &finish, "usage", "prompt_tokens", &prompt, "completion_tokens",
                                 &completion, "total_tokens", &total),
                     0);
    assert_string_equal(content, "one two three four");
    assert_string_equal(finish, "tool_calls");
    assert_string_equal(args, "{\"path\":\"\xc3\xa4\xc3\xb6\xc3\xbc-a-longer-name.txt\"}");
    assert_true(prompt > 0 && completion > 0 && total == prompt + completion);
    json_decref(v);
}

static void test_answer_refusals(void **state)
{
    static const struct {
        const char *path, *body, *status, *text;
    } rows[] = {
        {"/v1/embeddings", "{}", "404", "does not have this route"},
        {"/v1/chat/completions", "{", "400", "ends inside"},
        {"/v1/chat/completions", "nonsense", "400", "not JSON"},
        {"/v1/chat/completions", "{}", "400", "needs 'model'"},
        {"/v1/chat/completions", "{\"model\":\"x\",\"messages\":[]}", "400", "needs 'model'"},
        {"/v1/chat/completions", "{\"model\":\"x\",\"messages\":[{\"role\":\"assistant\"}]}", "500",
         "no turn that matches"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        BR_CLEANUP_FREE char *text =
            answer("{\"v\":1,\"name\":\"x\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
                   "\"text\":\"a\"}]}",
                   rows[i].path, rows[i].body);
        assert_int_equal(strncmp(text + 9, rows[i].status, 3), 0);
        expect_in(text, rows[i].text);
        expect_in(text, "\"type\":\"scripted_error\"");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedded_scenarios),
        cmocka_unit_test(test_scenario_refused),
        cmocka_unit_test(test_scenario_limits),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_http_limits),
        cmocka_unit_test(test_answer_stream),
        cmocka_unit_test(test_answer_whole),
        cmocka_unit_test(test_answer_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
