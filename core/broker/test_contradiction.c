/*
 * Answers that contradict themselves: what `strict` refuses and says, what `normalize` makes of
 * them and says that it did. Streams, whole answers, errors; and the limits, at N and N + 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/dialect_priv.h"

#define C BR_ROUTE_CHAT
#define M BR_ROUTE_MESSAGES
#define R BR_ROUTE_RESPONSES

struct answer {
    uint32_t route;
    bool stream, normalize, no_guest;
    uint32_t status;
    const char *type;
    uint64_t max;
};

static int pass(const struct answer *w, const char *body, size_t n, size_t piece,
                struct br_buf *out, struct br_answer_facts *facts, struct br_err *err)
{
    struct br_lease l = {.answers = w->normalize ? BR_ANSWERS_NORMALIZE : BR_ANSWERS_STRICT,
                         .max_response_bytes = w->max ? w->max : 64 << 20};
    struct br_ask_facts f = {.route = w->route, .stream = w->stream};
    const char *usual = w->stream ? "text/event-stream" : "application/json";
    if (!w->no_guest)
        memset(l.token, 'a', 64);
    struct br_answer *a =
        br_answer_new(&l, &f, w->status ? w->status : 200, w->type ? w->type : usual);
    int r = 0;
    assert_non_null(a);
    br_buf_reset(out);
    *err = (struct br_err){.code = BR_OK};
    for (size_t at = 0; at < n && r == 0; at += piece)
        r = br_answer_feed(a, body + at, n - at < piece ? n - at : piece, out, err);
    if (r == 0)
        r = br_answer_end(a, out, err);
    if (r < 0) { /* a failed answer stays failed, and says the same */
        struct br_err again;
        size_t len = out->len;
        assert_int_equal(br_answer_feed(a, "x", 1, out, &again), r);
        assert_int_equal(br_answer_end(a, out, NULL), r);
        assert_string_equal(again.text, err->text);
        assert_int_equal(out->len, len);
        assert_int_equal((int)err->code, -r);
        assert_false(br_answer_facts(a)->complete);
    }
    *facts = *br_answer_facts(a);
    br_answer_free(&a);
    return r;
}

/* The events of a stream are separated by '|' and written without what is always there. */
static void stream_text(uint32_t route, const char *s, struct br_buf *b)
{
    while (*s) {
        size_t n = strcspn(s, "|");
        (void)route;
        br_buf_printf(b, "data: %.*s\n\n", (int)n, s);
        s += n + (s[n] == '|');
    }
}

struct row {
    uint32_t route;
    const char *events, *strict;
    const char *normalized; /* a part of the output; with '!': of the refusal; NULL: as strict */
    uint32_t repairs;
};

#define D(delta) "{\"choices\":[{\"index\":0,\"delta\":{" delta "}}]}"
#define F(reason) "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}"
#define CALL(index, id, name, args)                                                                \
    D("\"tool_calls\":[{\"index\":" index ",\"id\":\"" id "\",\"function\":{\"name\":\"" name      \
      "\",\"arguments\":\"" args "\"}}]")
#define DONE "|[DONE]"
#define USAGE(p, c, t)                                                                             \
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":" p ",\"completion_tokens\":" c                  \
    ",\"total_tokens\":" t "}}"

static const struct row chat[] = {
    {C, D("\"content\":\"a\"") "|" F("stop") DONE, NULL, "\"stop\"", 0},
    {C, CALL("0", "c", "f", "{}") "|" F("stop") DONE, "finishes with 'stop'",
     "\"finish_reason\":\"tool_calls\"", BR_REPAIR_FINISH},
    {C, D("\"content\":\"a\"") "|" F("tool_calls") DONE, "has none", "\"finish_reason\":\"stop\"",
     BR_REPAIR_FINISH},
    {C, CALL("0", "c", "f", "{}") "|" CALL("1", "c", "f", "{}") "|" F("tool_calls") DONE, "one id",
     "\"id\":\"c_2\"", BR_REPAIR_IDS},
    {C,
     CALL("0", "c", "f", "{}") "|" CALL("1", "c", "f", "{") "|" CALL("1", "c", "f", "}") "|" CALL(
         "2", "c_2", "f", "") "|" F("tool_calls") DONE,
     "one id", "\"id\":\"c_2_2\"", BR_REPAIR_IDS},
    {C, CALL("0", "c", "f", "{") "|" F("tool_calls") DONE, "not a JSON object", NULL, 0},
    {C, CALL("0", "c", "f", "[]") "|" F("tool_calls") DONE, "not a JSON object", NULL, 0},
    {C, CALL("0", "c", "f", "{}{}") "|" F("tool_calls") DONE, "not a JSON object", NULL, 0},
    {C, CALL("0", "c", "f", "{'a':1}") "|" F("stop") DONE, "finishes with 'stop'",
     "!not a JSON object", 0},
    {C, CALL("0", "c", "f", "{\\\"a") "|" F("length") DONE, "not a JSON object", NULL, 0},
    {C, CALL("0", "", "f", "{}") "|" F("tool_calls") DONE, "usable id", NULL, 0},
    {C, CALL("0", "\\u0000", "f", "{}") "|" F("tool_calls") DONE, "usable id", NULL, 0},
    {C, CALL("1", "c", "f", "{}") "|" F("tool_calls") DONE, "usable index",
     "\"index\":0,\"id\":\"c\"", BR_REPAIR_INDEX},
    {C, CALL("0", "c", "f", "{}") "|" CALL("0", "d", "g", "{}") "|" F("tool_calls") DONE,
     "changes its name", "\"index\":1,\"id\":\"d\"", BR_REPAIR_INDEX},
    {C,
     CALL("0", "c", "f", "") "|" CALL("0", "d", "f", "{") "|" D(
         "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]") "|" F("tool_calls")
         DONE,
     "changes its id", "\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"}\"}}]",
     BR_REPAIR_INDEX},
    {C,
     D("\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":"
       "\"d\","
       "\"function\":{\"name\":\"f\"}}]") "|" F("tool_calls") DONE,
     "usable index", "{\"index\":1,\"id\":\"d\"", BR_REPAIR_INDEX},
    {C, D("\"tool_calls\":[{\"index\":0,\"id\":\"c\"}]") DONE, "without a name", NULL, 0},
    {C, D("\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"type\":\"custom\",\"custom\":{}}]") DONE,
     "not a function", NULL, 0},
    {C, CALL("0", "c", "f", "") "|" D("\"tool_calls\":[{\"index\":0,\"id\":\"d\"}]") DONE,
     "changes its id", NULL, 0},
    {C, CALL("0", "c", "f", "") "|" CALL("0", "c", "g", "") DONE, "changes its name", NULL, 0},
    {C,
     D("\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":"
       "{}}}]") DONE,
     "no text", NULL, 0},
    {C,
     D("\"function_call\":{\"name\":\"f\",\"arguments\":\"{\"}") "|" D(
         "\"function_call\":{\"arguments\":\"}\"}") "|" F("function_call") DONE,
     "legacy 'function_call'",
     "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]}",
     BR_REPAIR_FUNCTION},
    {C,
     D("\"content\":null,\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"},"
       "\"tool_calls\":[]") "|" F("function_call") DONE,
     "legacy 'function_call'",
     "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}",
     BR_REPAIR_FUNCTION},
    {C, CALL("0", "c", "f", "{}") "|" D("\"function_call\":{\"name\":\"f\"}") DONE,
     "legacy 'function_call'", "!tool calls and the legacy", 0},
    {C, D("\"function_call\":{\"name\":\"f\"}") "|" CALL("0", "c", "f", "{}") DONE,
     "legacy 'function_call'", "!tool calls and the legacy", 0},
    {C, D("\"function_call\":null") "|" F("stop") DONE, NULL, "\"stop\"", 0},
    {C, "{\"choices\":[{\"index\":0},{\"index\":1}]}" DONE, "more than one choice", NULL, 0},
    {C, "{\"choices\":[{\"index\":1,\"delta\":{}}]}" DONE, "more than one choice", NULL, 0},
    {C, "{}" DONE, "no list of choices", NULL, 0},
    {C, "{\"choices\":{}}" DONE, "no list of choices", NULL, 0},
    {C, "[]" DONE, "not a JSON object", NULL, 0},
    {C, "{\"choices\":[]" DONE, "not JSON", NULL, 0},
    {C, "{\"choices\":[],\"choi\\u0063es\":[]}" DONE, "a key twice", NULL, 0},
    {C, D("\"content\":\"a\",\"content\":\"b\"") DONE, "a key twice", NULL, 0},
    {C, D("\"content\":1") DONE, "no text", NULL, 0},
    {C, D("\"content\":\"\xff\"") DONE, "UTF-8", NULL, 0},
    {C, D("\"content\":\"\\x\"") DONE, "unknown escape", NULL, 0},
    {C, D("\"content\":\"a\"") DONE, "without a finish reason", NULL, 0},
    {C, F("eos") DONE, "unknown finish reason", NULL, 0},
    {C, F("stop") "|" F("stop") DONE, "finishes twice", "\"stop\"", 0},
    {C, F("stop") "|" F("length") DONE, "finishes twice", NULL, 0},
    {C, F("stop") "|" D("\"content\":\"x\"") DONE, "goes on behind", NULL, 0},
    {C, F("stop") "|" D("\"content\":\"\"") DONE, NULL, "\"stop\"", 0},
    {C, F("stop") "|" USAGE("3", "4", "7") DONE, NULL, "\"total_tokens\":7", 0},
    {C, F("stop") "|" USAGE("3", "4", "9") DONE, "not the sum", "\"total_tokens\":7",
     BR_REPAIR_TOTAL},
    {C, F("stop") "|" USAGE("3", "4", "1") DONE, "not the sum", "\"total_tokens\":7",
     BR_REPAIR_TOTAL},
    {C, F("stop") "|" USAGE("-3", "4", "1") DONE, "token counts", NULL, 0},
    {C, F("stop") "|" USAGE("3.0", "4", "7") DONE, "token counts", NULL, 0},
    {C, F("stop") "|" USAGE("9007199254740993", "4", "7") DONE, "token counts", NULL, 0},
    {C, F("stop") "|" USAGE("3", "4", "7") "|" USAGE("3", "2", "5") DONE, "became smaller",
     "[DONE]", BR_REPAIR_TOTAL},
    {C, F("stop") "|{\"choices\":[],\"usage\":{\"total_tokens\":1}}" DONE, "token counts", NULL, 0},
    {C, F("stop") "|" USAGE("3", "4", "7"), "ended before", "[DONE]", BR_REPAIR_DONE},
    {C, F("stop"), "ended before", NULL, 0},
    {C, "{\"error\":{\"message\":\"too \\u001b[31mhot\",\"type\":\"x\"}}" DONE,
     "reported an error: too \\x1b[31mhot", NULL, 0},
    {C, "{\"error\":{\"message\":\"key sk-1\",\"code\":\"invalid_api_key\"}}" DONE,
     "no reason that may be shown", NULL, 0},
    {C, "{\"error\":\"plain\"}" DONE, "error: plain", NULL, 0},
    {C, "{\"error\":true}" DONE, "reported an error", NULL, 0},
    {C, F("stop") "|{\"choices\":[],\"error\":null}" DONE, NULL, "[DONE]", 0},
    {C, "", "ended before", NULL, 0},
};

#define START                                                                                      \
    "{\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":9,"       \
    "\"output_tokens\":1}}}|"
#define TOOL(i, id)                                                                                \
    "{\"type\":\"content_block_start\",\"index\":" i                                               \
    ",\"content_block\":{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{}}}|"
#define JSON(i, text)                                                                              \
    "{\"type\":\"content_block_delta\",\"index\":" i                                               \
    ",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"" text "\"}}|"
#define BSTOP(i) "{\"type\":\"content_block_stop\",\"index\":" i "}|"
#define TEXT(i)                                                                                    \
    "{\"type\":\"content_block_start\",\"index\":" i                                               \
    ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}|"
#define MDELTA(reason)                                                                             \
    "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" reason                             \
    "\"},\"usage\":{\"output_tokens\":5}}"
#define MSTOP "|{\"type\":\"message_stop\"}"

static const struct row messages[] = {
    {M, START TOOL("0", "c") JSON("0", "{}") BSTOP("0") MDELTA("tool_use") MSTOP, NULL,
     "\"tool_use\"", 0},
    {M, START TOOL("0", "c") BSTOP("0") MDELTA("end_turn") MSTOP, "stops for another reason",
     "\"stop_reason\":\"tool_use\"", BR_REPAIR_FINISH},
    {M, START MDELTA("tool_use") MSTOP, "has none", "\"stop_reason\":\"end_turn\"",
     BR_REPAIR_FINISH},
    {M, START TOOL("0", "c") BSTOP("0") TOOL("1", "c") BSTOP("1") MDELTA("tool_use") MSTOP,
     "one id", "\"id\":\"c_2\"", BR_REPAIR_IDS},
    {M, START TOOL("0", "c") JSON("0", "{") BSTOP("0") MDELTA("tool_use") MSTOP,
     "not a JSON object", NULL, 0},
    {M, START TOOL("0", "c") JSON("0", "{") BSTOP("0") MDELTA("max_tokens") MSTOP,
     "not a JSON object", NULL, 0},
    {M, START MDELTA("end_turn"), "ended before", "event: message_stop", BR_REPAIR_DONE},
    {M, START TEXT("0"), "ended before", NULL, 0},
    {M, START MDELTA("pause") MSTOP, "unknown stop reason", NULL, 0},
    {M, START MDELTA("end_turn") "|" MDELTA("end_turn") MSTOP, "stops twice", NULL, 0},
    {M, START "{\"type\":\"message_stop\"}", "without a stop reason", NULL, 0},
    {M, START TEXT("1"), "in no order", NULL, 0},
    {M, START TEXT("0") TEXT("1"), "in no order", NULL, 0},
    {M, START BSTOP("0"), "in no order", NULL, 0},
    {M, TEXT("0"), "in no order", NULL, 0},
    {M, START START, "begins twice", NULL, 0},
    {M, START TEXT("0") JSON("0", "{}"), "does not fit its block", NULL, 0},
    {M, START TEXT("0") MDELTA("end_turn") MSTOP, "inside of a block", NULL, 0},
    {M,
     START "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":"
           "\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\"}}",
     "did not ask for", NULL, 0},
    {M, START "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}",
     "reported an error: busy", NULL, 0},
    {M, START "{\"type\":\"future_event\"}|" MDELTA("end_turn") MSTOP, NULL, "message_stop", 0},
    {M, "{\"type\":\"a b\"}", "usable type", NULL, 0},
    {M, "{}", "usable type", NULL, 0},
    {M, START "{\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":\"5\"}}",
     "token counts", NULL, 0},
};

#define ADDED(i, id)                                                                               \
    "{\"type\":\"response.output_item.added\",\"output_index\":" i                                 \
    ",\"item\":{\"type\":\"function_call\",\"call_id\":\"" id                                      \
    "\",\"name\":\"f\",\"arguments\":\"\"}}|"
#define ADELTA(i, text)                                                                            \
    "{\"type\":\"response.function_call_arguments.delta\",\"output_index\":" i                     \
    ",\"delta\":\"" text "\"}|"
#define ADONE(i, text)                                                                             \
    "{\"type\":\"response.function_call_arguments.done\",\"output_index\":" i                      \
    ",\"arguments\":\"" text "\"}|"
#define FC(id, args)                                                                               \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\",\"arguments\":\"" args "\"" \
    "}"
#define COMPLETED(output)                                                                          \
    "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[" output  \
    "],\"usage\":{\"input_tokens\":1,\"output_tokens\":2,\"total_tokens\":3}}}"

static const struct row responses[] = {
    {R, ADDED("0", "c") ADELTA("0", "{") ADELTA("0", "}") ADONE("0", "{}") COMPLETED(FC("c", "{}")),
     NULL, "response.completed", 0},
    {R, COMPLETED(FC("c", "{}")), NULL, "response.completed", 0},
    {R, ADDED("0", "c") ADONE("0", "{\\u0022a\\u0022:1}") COMPLETED(FC("c", "{\\\"a\\\":1}")), NULL,
     "response.completed", 0},
    {R, ADDED("0", "c") ADELTA("0", "{}") ADONE("0", "{ }"), "in two ways", NULL, 0},
    {R, ADDED("0", "c") ADELTA("0", "{}") COMPLETED(FC("c", "{ }")), "in two ways", NULL, 0},
    {R, ADDED("0", "c") ADONE("0", "{}") ADELTA("0", "x"), "said to be whole", NULL, 0},
    {R, ADDED("0", "c") ADELTA("0", "{}") COMPLETED(""), "leaves out", NULL, 0},
    {R, ADDED("0", "c") COMPLETED(FC("d", "{}")), "changes its id", NULL, 0},
    {R, ADDED("0", "c") COMPLETED(FC("c", "{")), "not a JSON object", NULL, 0},
    {R, ADDED("0", "c") ADDED("1", "c") COMPLETED(FC("c", "{}") "," FC("c", "{}")), "one id",
     "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call\","
     "\"call_id\":\"c_2\"",
     BR_REPAIR_IDS},
    {R, ADELTA("0", "{"), "without a tool call", NULL, 0},
    {R,
     "{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":"
     "\"web_search_call\"}}",
     "did not ask for", NULL, 0},
    {R, COMPLETED("{\"type\":\"mcp_call\"}"), "did not ask for", NULL, 0},
    {R,
     "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":"
     "\"server_error\",\"message\":\"oh\"}}}",
     "reported an error: oh", NULL, 0},
    {R, "{\"type\":\"error\",\"code\":\"x\",\"message\":\"bad\",\"param\":null}",
     "reported an error: bad", NULL, 0},
    {R,
     "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[],"
     "\"usage\":{\"input_tokens\":1,\"output_tokens\":2,\"total_tokens\":4}}}",
     "not the sum", "\"total_tokens\":3", BR_REPAIR_TOTAL},
    {R, "{\"type\":\"response.completed\",\"response\":{\"status\":\"queued\",\"output\":[]}}",
     "unknown status", NULL, 0},
    {R, "{\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null}}",
     "ended before", NULL, 0},
};

static void check_row(const struct row *row, bool normalize)
{
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(1 << 20), out = BR_BUF_INIT(1 << 20);
    struct answer w = {.route = row->route, .stream = true, .normalize = normalize};
    struct br_answer_facts f;
    struct br_err err;
    stream_text(row->route, row->events, &body);
    const char *refused = row->strict, *want = NULL;
    if (normalize && row->normalized) {
        refused = *row->normalized == '!' ? row->normalized + 1 : NULL;
        want = refused ? NULL : row->normalized;
    }
    for (size_t piece = 1; piece < 100000; piece += 99990) {
        int r = pass(&w, br_buf_cstr(&body), body.len, piece, &out, &f, &err);
        if ((r < 0) != (refused != NULL))
            fail_msg("%s (%d): %d %s", row->events, normalize, r, err.text);
        if (refused && !strstr(err.text, refused))
            fail_msg("%s (%d): %s", row->events, normalize, err.text);
        if (refused && strstr(br_buf_cstr(&out), "[DONE]"))
            fail_msg("%s (%d): was completed", row->events, normalize);
        if (want && !strstr(br_buf_cstr(&out), want))
            fail_msg("%s became %s", row->events, br_buf_cstr(&out));
        if (!refused)
            assert_int_equal(f.repairs, normalize ? row->repairs : 0);
    }
}

static void test_streams(void **state)
{
    static const struct {
        const struct row *rows;
        size_t n;
    } all[] = {{chat, BR_ARRAY_LEN(chat)},
               {messages, BR_ARRAY_LEN(messages)},
               {responses, BR_ARRAY_LEN(responses)}};
    (void)state;
    for (size_t k = 0; k < BR_ARRAY_LEN(all); k++)
        for (size_t i = 0; i < all[k].n; i++) {
            check_row(&all[k].rows[i], false);
            check_row(&all[k].rows[i], true);
        }
}

/* ---- whole answers ---- */

struct whole_row {
    uint32_t route;
    const char *body, *strict, *normalized;
    uint32_t repairs;
};

#define WC(message, finish)                                                                        \
    "{\"id\":\"x\",\"choices\":[{\"index\":0,\"message\":{" message "},\"finish_reason\":" finish  \
    "}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}"
#define WCALL(id, args)                                                                            \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"" args  \
    "\"}}"

static const struct whole_row wholes[] = {
    {C, WC("\"content\":\"a\"", "\"stop\""), NULL, "\"content\":\"a\"", 0},
    {C, "\xef\xbb\xbf" WC("\"content\":\"a\"", "\"stop\""), NULL, "\"content\":\"a\"", 0},
    {C, WC("\"tool_calls\":[" WCALL("a", "{}") "," WCALL("b", "") "]", "\"tool_calls\""), NULL,
     "\"id\":\"b\"", 0},
    {C, WC("\"tool_calls\":[" WCALL("a", "{}") "," WCALL("a", "") "]", "\"stop\""), "one id",
     "\"id\":\"a_2\"", BR_REPAIR_IDS | BR_REPAIR_FINISH},
    {C, WC("\"tool_calls\":[" WCALL("a", "{") "]", "\"tool_calls\""), "not a JSON object", NULL, 0},
    {C, WC("\"content\":\"a\"", "null"), "no finish reason", NULL, 0},
    {C, WC("\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}", "\"function_call\""),
     "legacy 'function_call'",
     "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
     BR_REPAIR_FUNCTION},
    {C, "{\"choices\":[]}", "has no choice", NULL, 0},
    {C, "{\"choices\":[{\"finish_reason\":\"stop\"}]}", "without a message", NULL, 0},
    {C, "{\"error\":{\"message\":\"oh\"}}", "reported an error: oh", NULL, 0},
    {C, "{\"choices\":[{\"mess", "ends in the middle", NULL, 0},
    {C, "", "ends in the middle", NULL, 0},
    {C, "<html>", "not a JSON object", NULL, 0},
    {C, WC("\"content\":\"a\"", "\"stop\"") "{}", "something follows", NULL, 0},
    {M,
     "{\"type\":\"message\",\"content\":[{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\","
     "\"input\":{\"a\":[1]}}],\"stop_reason\":\"end_turn\",\"usage\":{\"input_tokens\":1,"
     "\"output_tokens\":2}}",
     "stops for another reason", "\"stop_reason\":\"tool_use\"", BR_REPAIR_FINISH},
    {M,
     "{\"content\":[{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":[]}],"
     "\"stop_reason\":\"tool_use\"}",
     "not a JSON object", NULL, 0},
    {M, "{\"content\":[{\"type\":\"mcp_tool_use\"}],\"stop_reason\":\"end_turn\"}",
     "did not ask for", NULL, 0},
    {M, "{\"content\":[]}", "no stop reason", NULL, 0},
    {M, "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"oh\"}}",
     "reported an error: oh", NULL, 0},
    {R,
     "{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},"
     "\"output\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}",
     NULL, "incomplete", 0},
    {R, "{\"status\":\"completed\",\"output\":[" FC("c", "{}") "," FC("c", "{}") "]}", "one id",
     "\"call_id\":\"c_2\"", BR_REPAIR_IDS},
    {R, "{\"status\":\"failed\",\"error\":{\"code\":\"c\",\"message\":\"oh\"},\"output\":[]}",
     "reported an error: oh", NULL, 0},
    {R, "{\"status\":\"completed\"}", "no output", NULL, 0},
};

static void test_wholes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * BR_ARRAY_LEN(wholes); i++) {
        const struct whole_row *row = &wholes[i / 2];
        struct answer w = {.route = row->route, .normalize = i % 2};
        BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
        struct br_answer_facts f;
        struct br_err err;
        bool ok = !row->strict || (w.normalize && row->normalized);
        for (size_t piece = 1; piece < 100000; piece += 99990) {
            int r = pass(&w, row->body, strlen(row->body), piece, &out, &f, &err);
            if ((r == 0) != ok)
                fail_msg("%s (%d): %d %s", row->body, w.normalize, r, err.text);
            if (!ok && (!strstr(err.text, row->strict) || out.len))
                fail_msg("%s (%d): %s", row->body, w.normalize, err.text);
            if (ok && w.normalize && !strstr(br_buf_cstr(&out), row->normalized))
                fail_msg("%s became %s", row->body, br_buf_cstr(&out));
            if (ok)
                assert_int_equal(f.repairs, w.normalize ? row->repairs : 0);
        }
    }
}

/* Cut off after any byte it is refused, and nothing of it is passed on. */
static void test_wholes_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(wholes); i++) {
        const struct whole_row *row = &wholes[i];
        const struct answer w = {.route = row->route, .normalize = true};
        for (size_t n = 0; n < strlen(row->body); n++) {
            BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
            struct br_answer_facts f;
            struct br_err err;
            if (pass(&w, row->body, n, 16, &out, &f, &err) == 0 &&
                strcmp(row->strict ? row->strict : "", "something follows") != 0)
                fail_msg("%.*s", (int)n, row->body);
            assert_true(err.code == 0 || out.len == 0);
        }
    }
}

/* ---- kinds of bodies ---- */

static void test_kinds(void **state)
{
    static const struct {
        const char *body, *type;
        size_t n;
        bool stream;
        const char *refused;
    } rows[] = {
        {"\x1f\x8b\x08\x00xxxxxxxx", NULL, 12, true, "is compressed"},
        {"\x1f\x8b\x08\x00xxxxxxxx", NULL, 12, false, "is compressed"},
        {"\x28\xb5\x2f\xfdxxxx", NULL, 8, false, "is compressed"},
        {"{}", "application/json", 2, true, "'text/event-stream'"},
        {"data: {}\n\n", "text/event-stream", 10, false, "'application/json'"},
        {"data: {}\n\n", "text/event-streamx", 10, true, "'text/event-stream'"},
        {"data: {}\n\n", "", 10, true, "'text/event-stream'"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct answer w = {.route = C, .stream = rows[i].stream, .type = rows[i].type};
        BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
        struct br_answer_facts f;
        struct br_err err;
        for (size_t piece = 1; piece < 100; piece += 98) {
            assert_int_equal(pass(&w, rows[i].body, rows[i].n, piece, &out, &f, &err),
                             -BR_E_PROVIDER_INVALID);
            assert_non_null(strstr(err.text, rows[i].refused));
            assert_int_equal(out.len, 0);
        }
    }
}

static void test_errors(void **state)
{
    static const struct {
        uint32_t route, status;
        const char *body, *want;
    } rows[] = {
        {C, 400,
         "{\"error\":{\"message\":\"too long\",\"type\":\"invalid_request_error\",\"code\":"
         "\"context_length_exceeded\",\"param\":\"x\"},\"secret\":1}",
         "{\"error\":{\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\","
         "\"param\":null,\"message\":\"the provider reported an error: too long\"}}"},
        {C, 401, "{\"error\":{\"message\":\"bad key sk-1\",\"type\":\"x\"}}",
         "{\"error\":{\"type\":\"x\",\"code\":null,\"param\":null,\"message\":\"the provider "
         "answered with status 401\"}}"},
        {C, 500, "<html>secret</html>",
         "{\"error\":{\"type\":\"api_error\",\"code\":null,\"param\":null,\"message\":\"the "
         "provider answered with status 500\"}}"},
        {C, 503, "",
         "{\"error\":{\"type\":\"api_error\",\"code\":null,\"param\":null,\"message\":\"the "
         "provider answered with status 503\"}}"},
        {C, 422, "{\"detail\":\"no\"}",
         "{\"error\":{\"type\":\"invalid_request_error\",\"code\":null,\"param\":null,\"message\":"
         "\"the provider reported an error: no\"}}"},
        {C, 429, "{\"error\":{\"type\":\"a b\",\"code\":429,\"message\":7}}",
         "{\"error\":{\"type\":\"rate_limit_error\",\"code\":null,\"param\":null,\"message\":\"the "
         "provider answered with status 429\"}}"},
        {M, 529, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"b\"}}",
         "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"code\":null,\"param\":"
         "null,\"message\":\"the provider reported an error: b\"}}"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct answer w = {.route = rows[i].route,
                           .stream = true,
                           .status = rows[i].status,
                           .type = "application/json"};
        BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
        struct br_answer_facts f;
        struct br_err err;
        assert_int_equal(pass(&w, rows[i].body, strlen(rows[i].body), 7, &out, &f, &err), 0);
        if (strcmp(br_buf_cstr(&out), rows[i].want) != 0)
            fail_msg("%s became %s", rows[i].body, br_buf_cstr(&out));
        assert_false(f.complete || f.usage_known);
    }
}

static void test_error_body(void **state)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(4096);
    (void)state;
    br_error_body(C, false, BR_E_LEASE_REFUSED, "no\n\"way\"", &out);
    assert_string_equal(br_buf_cstr(&out),
                        "{\"error\":{\"type\":\"invalid_request_error\",\"code\":"
                        "\"PROVIDER_LEASE_REFUSED\",\"param\":null,\"message\":\"no\\\\n\\\"way\\\""
                        "\"}}");
    br_buf_reset(&out);
    br_error_body(M, true, BR_E_PROVIDER_INVALID, "x", &out);
    assert_string_equal(br_buf_cstr(&out),
                        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
                        "\"code\":\"PROVIDER_INVALID_RESPONSE\",\"param\":null,\"message\":\"x\"}}"
                        "\n\n");
    br_buf_reset(&out);
    br_error_body(R, true, BR_E_TIMEOUT, "x", &out);
    assert_non_null(strstr(br_buf_cstr(&out), "\"code\":\"TIMEOUT\",\"param\":null,\"message\":"
                                              "\"x\"}\n\n"));
}

/* ---- limits ---- */

static void fill(struct br_buf *b, char c, size_t n)
{
    char piece[4096];
    memset(piece, c, sizeof(piece));
    for (; n; n -= n < sizeof(piece) ? n : sizeof(piece))
        br_buf_put(b, piece, n < sizeof(piece) ? n : sizeof(piece));
}

static int limited(const struct answer *w, struct br_buf *body, size_t piece)
{
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(64 << 20);
    struct br_answer_facts f;
    struct br_err err;
    int r = pass(w, br_buf_cstr(body), body->len, piece, &out, &f, &err);
    br_buf_reset(body);
    return r;
}

static void test_limits(void **state)
{
    static const char begin[] = "data: {\"choices\":[{\"delta\":{\"content\":\"", end[] = "\"}}]}";
    static const char tail[] = "\n\ndata: " F("stop") "\n\ndata: [DONE]\n\n";
    struct answer w = {.route = C, .stream = true};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64 << 20);
    (void)state;
    for (size_t more = 0; more < 2; more++)
        for (size_t piece = 32768; piece < 100000000; piece += 90000000) {
            int want = more ? -BR_E_LIMIT_EXCEEDED : 0;
            /* one line */
            br_buf_printf(&b, "%s", begin);
            fill(&b, 'x', BR_ANSWER_LINE_MAX + more - sizeof(begin) - sizeof(end) + 2);
            br_buf_printf(&b, "%s%s", end, tail);
            assert_int_equal(limited(&w, &b, piece), want);
            /* one event of many lines: 1024 of 4095 spaces and the line ends between, and its text
             */
            for (size_t i = 0; i < BR_ANSWER_EVENT_MAX / 4096 - 1; i++) {
                br_buf_printf(&b, "data: ");
                fill(&b, ' ', 4095);
                br_buf_printf(&b, "\n");
            }
            br_buf_printf(&b, "%s", begin);
            fill(&b, 'x', 4096 + more - (sizeof(begin) - 7) - (sizeof(end) - 1));
            br_buf_printf(&b, "%s%s", end, tail);
            assert_int_equal(limited(&w, &b, piece), want);
            /* the lease's ceiling */
            br_buf_printf(&b, "%s%s%s", begin, end, tail);
            w.max = b.len - more;
            assert_int_equal(limited(&w, &b, piece), want);
            w.max = 0;
        }
}

static void test_limit_calls(void **state)
{
    struct answer w = {.route = C, .stream = true};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64 << 20);
    (void)state;
    for (unsigned n = BR_TOOL_CALLS_PER_TURN_MAX; n <= BR_TOOL_CALLS_PER_TURN_MAX + 1; n++) {
        for (unsigned i = 0; i < n; i++)
            br_buf_printf(&b,
                          "data: " D("\"tool_calls\":[{\"index\":%u,\"id\":\"c%u\",\"function\":"
                                     "{\"name\":\"f\"}}]") "\n\n",
                          i, i);
        br_buf_printf(&b, "data: " F("tool_calls") "\n\ndata: [DONE]\n\n");
        assert_int_equal(limited(&w, &b, 999),
                         n <= BR_TOOL_CALLS_PER_TURN_MAX ? 0 : -BR_E_LIMIT_EXCEEDED);
    }
    for (size_t more = 0; more < 2; more++) { /* bytes of arguments */
        br_buf_printf(&b, "data: " CALL("0", "c", "f",
                                        "{\\\"a\\\":\\\"") "\n\ndata: "
                                                           "{\"choices\":[{\"delta\":{\"tool_"
                                                           "calls\":[{\"index\":0,\"function\":{"
                                                           "\"arguments\":\"");
        fill(&b, 'x', BR_TOOL_JSON_MAX - 8 + more);
        br_buf_printf(&b, "\\\"}\"}}]}}]}\n\ndata: " F("tool_calls") "\n\ndata: [DONE]\n\n");
        assert_int_equal(limited(&w, &b, 65536), more ? -BR_E_LIMIT_EXCEEDED : 0);
    }
    for (unsigned depth = BR_JSON_DEPTH_MAX; depth <= BR_JSON_DEPTH_MAX + 1; depth++) {
        br_buf_printf(&b,
                      "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\","
                      "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":");
        fill(&b, '[', depth - 1);
        fill(&b, ']', depth - 1);
        br_buf_printf(&b, "}\"}}]}}]}\n\ndata: " F("tool_calls") "\n\ndata: [DONE]\n\n");
        assert_int_equal(limited(&w, &b, 65536),
                         depth <= BR_JSON_DEPTH_MAX ? 0 : -BR_E_PROVIDER_INVALID);
    }
}

/* A model of ours may write bad arguments: that is a failed call, which the session judges. */
static void test_without_guest(void **state)
{
    struct answer w = {.route = C, .stream = true, .no_guest = true};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    (void)state;
    stream_text(C, CALL("0", "c", "f", "{") "|" F("tool_calls") DONE, &b);
    assert_int_equal(limited(&w, &b, 5), 0);
    stream_text(C, CALL("0", "c", "f", "{") "|" F("stop") DONE, &b);
    assert_int_equal(limited(&w, &b, 5), -BR_E_PROVIDER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),       cmocka_unit_test(test_wholes),
        cmocka_unit_test(test_wholes_cut),    cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_error_body),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_limit_calls),
        cmocka_unit_test(test_without_guest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
