/*
 * The run frame: what is written can be read, and everything else is refused by name. A refused
 * result leaves nothing that could be taken for one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "frame/frame.h"

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *const tools[] = {"read", "bash"};

static struct br_frame_expect expect(void)
{
    return (struct br_frame_expect){.run_id = "run_1",
                                    .adapter = "shell-example",
                                    .revision = 2,
                                    .tools = tools,
                                    .ntools = 2,
                                    .kind = BR_ARTIFACT_TEXT,
                                    .artifact_bytes = 1000,
                                    .output_bytes = 2000};
}

static void frame_of(struct br_buf *b, const char *json, size_t n)
{
    const uint8_t head[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    br_buf_put(b, head, 4);
    br_buf_put(b, json, n);
}

/* Read it as a result; `said` NULL: it is accepted. */
static void result_bytes(const struct br_frame_expect *e, const void *p, size_t n, const char *said)
{
    struct br_frame_result r;
    struct br_err err = {.code = BR_OK, .text = ""};
    int k = br_frame_result_get(p, n, e, &r, &err);
    if (!said) {
        if (k < 0)
            fail_msg("refused: %s", err.text);
        br_frame_result_free(&r);
        return;
    }
    assert_int_equal(k, -BR_E_INVALID_FRAME);
    if (!strstr(err.text, said))
        fail_msg("'%s' does not say '%s'", err.text, said);
    assert_null(r.root); /* nothing of it is there */
    assert_null(r.artifact);
    assert_false(r.completed);
    assert_int_equal(r.ntools, 0);
}

static void result_json(const struct br_frame_expect *e, const char *json, const char *said)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    frame_of(&b, json, strlen(json));
    result_bytes(e, b.data, b.len, said);
}

#define GOOD_HEAD                                                                                  \
    "\"runId\":\"run_1\",\"status\":\"completed\",\"adapter\":{\"id\":\"shell-example\","          \
    "\"revision\":2}"
#define GOOD                                                                                       \
    "{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"done\"},"            \
    "\"tools\":[{\"name\":\"bash\",\"status\":\"ok\",\"count\":3}]}"

static void test_whole_frames(void **state)
{
    (void)state;
    struct br_frame_expect e = expect();
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    frame_of(&b, GOOD, strlen(GOOD));
    result_bytes(&e, b.data, b.len, NULL);
    for (size_t n = 0; n < b.len; n++) /* cut anywhere */
        result_bytes(&e, b.data, n, n ? "truncated" : "there is none");
    size_t one = b.len;
    br_buf_put_u8(&b, '\n');
    result_bytes(&e, b.data, b.len, "1 bytes behind it");
    b.len = one;
    frame_of(&b, GOOD, strlen(GOOD));
    result_bytes(&e, b.data, b.len, "a second one behind it");
    /* the ceiling, and one byte more */
    e.output_bytes = strlen(GOOD);
    result_bytes(&e, b.data, one, NULL);
    e.output_bytes--;
    result_bytes(&e, b.data, one, "more than its ceiling");
    /* a length that no memory is taken for */
    result_bytes(&e, "\xff\xff\xff\xff{}", 6, "more than its ceiling");
    result_bytes(&e, "\0\0\0\0", 4, "the frame is refused");
}

static void test_result_json(void **state)
{
    (void)state;
    struct br_frame_expect e = expect();
    static const struct {
        const char *json, *said;
    } cases[] = {
        {"[]", "not a JSON object"},
        {"{", "ends inside 1 brackets"},
        {"{\"a\":1,\"a\":1}", "not JSON"},
        {"{\"a\":\"\\u0000\"}", "the frame is refused"},
        {"{\"a\":NaN}", "the frame is refused"},
        {"{\"a\":\"\xff\"}", "the frame is refused"},
        {"{}", "'runId' is missing"},
        {"{" GOOD_HEAD "}", "'session' is missing"},
        {"{" GOOD_HEAD
         ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":[],"
         "\"more\":1}",
         "a key that it cannot have"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":null,\"tools\":[]}", "'artifact' is null"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"json\",\"value\":1},\"tools\":[]}",
         "'artifact.kind' is json and not text"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"none\"},\"tools\":[]}",
         "neither text nor json"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\"},\"tools\":[]}",
         "'artifact.text' is missing"},
        {"{" GOOD_HEAD ",\"session\":{\"id\":\"x\"},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},"
         "\"tools\":[]}",
         "'session.id' is not the one"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"curl\",\"status\":\"ok\",\"count\":1}]}",
         "the adapter does not have"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"bash\",\"status\":\"fine\",\"count\":1}]}",
         "none of ok, error and denied"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"bash\",\"status\":\"ok\",\"count\":0}]}",
         "'tools[].count'"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"bash\",\"status\":\"ok\",\"count\":1000001}]}",
         "'tools[].count'"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"bash\",\"status\":\"ok\",\"count\":1000000}]}",
         NULL},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"bash\",\"status\":\"ok\",\"count\":1,\"output\":\"secret\"}]}",
         "a key that it cannot have"},
        {"{" GOOD_HEAD ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":"
         "[{\"name\":\"bash\",\"status\":\"ok\",\"count\":1},{\"name\":\"bash\",\"status\":\"ok\","
         "\"count\":1}]}",
         "twice with one status"},
        {"{" GOOD_HEAD
         ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":[],"
         "\"usage\":{\"promptTokens\":1,\"completionTokens\":1,\"totalTokens\":3}}",
         "not the sum"},
        {"{" GOOD_HEAD
         ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":[],"
         "\"usage\":{\"promptTokens\":-1,\"completionTokens\":1,\"totalTokens\":0}}",
         "no count of tokens"},
        {"{" GOOD_HEAD
         ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":[],"
         "\"usage\":{\"promptTokens\":1,\"completionTokens\":2,\"totalTokens\":3},"
         "\"providerRevision\":\"fp_44709d6fcb\"}",
         NULL},
        {"{" GOOD_HEAD
         ",\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":\"\"},\"tools\":[],"
         "\"providerRevision\":\"two words\"}",
         "'providerRevision' is no name"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(cases); i++)
        result_json(&e, cases[i].json, cases[i].said);
}

static void test_identity(void **state)
{
    (void)state;
    struct br_frame_expect e = expect();
    result_json(&e, GOOD, NULL);
    e.run_id = "run_2";
    result_json(&e, GOOD, "another run");
    e = expect();
    e.adapter = "pi-coding";
    result_json(&e, GOOD, "'adapter' is another one than 'pi-coding@2'");
    e = expect();
    e.revision = 3;
    result_json(&e, GOOD, "'shell-example@3'");
    e = expect();
    e.session = "ses_1";
    result_json(&e, GOOD, "'session.id' is not the one");
    /* one that failed needs no artifact, and may have one */
    e = expect();
    result_json(&e,
                "{\"runId\":\"run_1\",\"status\":\"failed\",\"adapter\":{\"id\":\"shell-example\","
                "\"revision\":2},\"session\":{},\"artifact\":null,\"tools\":[]}",
                NULL);
    result_json(&e,
                "{\"runId\":\"run_1\",\"status\":\"odd\",\"adapter\":{\"id\":\"shell-example\","
                "\"revision\":2},\"session\":{},\"artifact\":null,\"tools\":[]}",
                "neither completed nor failed");
}

static void put_text_result(struct br_buf *b, size_t bytes)
{
    br_buf_printf(b, "{" GOOD_HEAD ",\"session\":{},\"tools\":[],\"artifact\":{\"kind\":\"text\","
                     "\"text\":\"");
    for (size_t i = 0; i < bytes; i++)
        br_buf_put_u8(b, 'a');
    br_buf_printf(b, "\"}}");
}

static void test_artifact_ceiling(void **state)
{
    (void)state;
    struct br_frame_expect e = expect();
    for (size_t n = 997; n <= 999; n++) { /* two more for its quotes */
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
        put_text_result(&b, n);
        result_json(&e, br_buf_cstr(&b), n > 998 ? "its artifact has 1001 bytes" : NULL);
    }
}

static void test_typed_value(void **state)
{
    (void)state;
    struct br_frame_expect e = expect();
    e.kind = BR_ARTIFACT_JSON;
    e.artifact_bytes = 20;
    result_json(&e,
                "{" GOOD_HEAD ",\"session\":{},\"tools\":[],\"artifact\":{\"kind\":\"json\","
                "\"value\":{\"n\":[1,2,null]}}}",
                NULL);
    result_json(&e,
                "{" GOOD_HEAD ",\"session\":{},\"tools\":[],\"artifact\":{\"kind\":\"json\","
                "\"value\":null}}",
                NULL);
    result_json(&e, "{" GOOD_HEAD ",\"session\":{},\"tools\":[],\"artifact\":{\"kind\":\"json\"}}",
                "not {kind, value}");
    result_json(&e,
                "{" GOOD_HEAD ",\"session\":{},\"tools\":[],\"artifact\":{\"kind\":\"json\","
                "\"value\":\"aaaaaaaaaaaaaaaaaaaa\"}}",
                "more than its ceiling of 20");
    e.kind = BR_ARTIFACT_NONE;
    result_json(&e, GOOD, "'artifact.kind' is text and not none");
}

static struct br_frame_packet packet(void)
{
    return (struct br_frame_packet){.run_id = "run_1",
                                    .adapter = "shell-example",
                                    .revision = 2,
                                    .profile = "workspace-v1",
                                    .prompt = "do \"it\"\n",
                                    .prompt_len = 8,
                                    .system = "be brief",
                                    .model = {.id = "m", .routes = 5, .answer_tokens = 100},
                                    .socket = "/broker/provider.sock",
                                    .token = TOKEN,
                                    .gate = "/broker/gate.sock",
                                    .tools = {"read", "bash"},
                                    .ntools = 2,
                                    .resume = true,
                                    .session = "ses_1",
                                    .context_files = true,
                                    .output_bytes = BR_FRAME_OUTPUT_MAX,
                                    .trace_bytes = BR_FRAME_TRACE_MAX,
                                    .deadline = "2026-03-01T10:00:00.000+00:00"};
}

static void test_packet(void **state)
{
    (void)state;
    struct br_frame_packet p = packet(), got;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    assert_int_equal(br_frame_packet_put(&b, &p, &err), 0);
    assert_int_equal(br_frame_packet_get(b.data, b.len, &got, &err), 0);
    assert_string_equal(got.prompt, "do \"it\"\n");
    assert_string_equal(got.session, "ses_1");
    assert_string_equal(got.gate, "/broker/gate.sock");
    assert_string_equal(got.tools[1], "bash");
    assert_int_equal(got.model.routes, 5);
    assert_true(got.resume && got.context_files && !got.model.streaming);
    /* cut anywhere it is none */
    for (size_t n = 0; n < b.len; n++) {
        struct br_frame_packet part;
        assert_int_equal(br_frame_packet_get(b.data, n, &part, &err), -BR_E_INVALID_FRAME);
        br_frame_packet_free(&part);
    }
    br_frame_packet_free(&got);
    p.prompt = "\xff";
    p.prompt_len = 1;
    b.len = 0;
    assert_int_equal(br_frame_packet_put(&b, &p, &err), -BR_E_INVALID_FRAME);
    assert_int_equal(b.len, 0);
}

static void test_packet_limits(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_FREE char *prompt = malloc(BR_GOAL_MAX + 2);
    assert_non_null(prompt);
    memset(prompt, 1, BR_GOAL_MAX + 1); /* each becomes six */
    prompt[BR_GOAL_MAX + 1] = 0;
    for (size_t n = BR_GOAL_MAX; n <= BR_GOAL_MAX + 1; n++) {
        struct br_frame_packet p = packet(), got;
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
        p.prompt = prompt;
        p.prompt_len = n;
        assert_int_equal(br_frame_packet_put(&b, &p, &err), 0);
        int r = br_frame_packet_get(b.data, b.len, &got, &err);
        assert_int_equal(r, n > BR_GOAL_MAX ? -BR_E_INVALID_FRAME : 0);
        br_frame_packet_free(&got);
    }
    struct br_frame_packet p = packet(), got;
    p.output_bytes = BR_FRAME_OUTPUT_MAX + 1;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    assert_int_equal(br_frame_packet_put(&b, &p, &err), 0);
    assert_int_equal(br_frame_packet_get(b.data, b.len, &got, &err), -BR_E_INVALID_FRAME);
    assert_non_null(strstr(err.text, "'ceilings'"));
    br_frame_packet_free(&got);
}

static void test_result_written(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    struct br_frame_expect e = expect();
    json_t *text = json_string("done\n");
    struct br_frame_result r = {.run_id = "run_1",
                                .completed = true,
                                .adapter = "shell-example",
                                .revision = 2,
                                .kind = BR_ARTIFACT_TEXT,
                                .artifact = text,
                                .tools = {{"bash", BR_FRAME_TOOL_DENIED, 7}},
                                .ntools = 1,
                                .has_usage = true,
                                .prompt_tokens = 3,
                                .completion_tokens = 4};
    struct br_frame_result got;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    assert_int_equal(br_frame_result_put(&b, &r, &err), 0);
    assert_int_equal(br_frame_result_get(b.data, b.len, &e, &got, &err), 0);
    assert_string_equal(json_string_value(got.artifact), "done\n");
    assert_int_equal(got.tools[0].status, BR_FRAME_TOOL_DENIED);
    assert_int_equal(got.tools[0].count, 7);
    assert_int_equal(got.completion_tokens, 4);
    assert_null(got.session);
    br_frame_result_free(&got);
    json_decref(text);
}

static void ask_json(const char *json, const char *said)
{
    struct br_frame_ask a;
    struct br_err err = {.code = BR_OK, .text = ""};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    frame_of(&b, json, strlen(json));
    int r = br_frame_ask_get(b.data, b.len, tools, 2, &a, &err);
    assert_int_equal(r, said ? -BR_E_INVALID_FRAME : 0);
    if (said && !strstr(err.text, said))
        fail_msg("'%s' does not say '%s'", err.text, said);
    br_frame_ask_free(&a);
}

static void test_gate(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    ask_json("{\"id\":\"1\",\"tool\":\"bash\",\"input\":{\"command\":\"ls\"}}", NULL);
    ask_json("{\"id\":\"1\",\"tool\":\"curl\",\"input\":{}}", "does not have");
    ask_json("{\"id\":\"\",\"tool\":\"bash\",\"input\":{}}", "'id' has 0 bytes");
    ask_json("{\"id\":\"1\",\"tool\":\"bash\",\"input\":[]}", "'input' is not an object");
    ask_json("{\"id\":\"1\",\"tool\":\"bash\"}", "'input' is missing");
    ask_json("{\"id\":\"1\",\"tool\":\"bash\",\"input\":{},\"decision\":\"allow\"}", "a key that");
    assert_int_equal(br_frame_size("\0\0\0", 3, 10, &err), 0);
    assert_int_equal(br_frame_size("\0\0\0\12", 4, 10, &err), 14);
    assert_int_equal(br_frame_size("\0\0\0\13", 4, 10, &err), -BR_E_INVALID_FRAME);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    assert_int_equal(br_frame_answer_put(&b, "1", false, "no", &err), 0);
    assert_string_equal(br_buf_cstr(&b) + 4,
                        "{\"id\":\"1\",\"decision\":\"deny\",\"reason\":\"no\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_frames),  cmocka_unit_test(test_result_json),
        cmocka_unit_test(test_identity),      cmocka_unit_test(test_artifact_ceiling),
        cmocka_unit_test(test_typed_value),   cmocka_unit_test(test_packet),
        cmocka_unit_test(test_packet_limits), cmocka_unit_test(test_result_written),
        cmocka_unit_test(test_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
