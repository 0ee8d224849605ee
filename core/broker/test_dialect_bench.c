/*
 * How fast answers are inspected: streams of events of text of several sizes, in pieces as egress
 * sends them. What leaves has to be what came. Prints figures with BRIDLE_TEST_VERBOSE=1; nothing
 * here depends on time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/dialect.h"

#define BYTES (4u << 20)
#define PIECE 32768u

/* "%s" is where the text is; "%u" a number that is another one in each event. */
static const struct shape {
    const char *name;
    uint32_t route;
    const char *head, *event, *tail;
} shapes[] = {
    {"chat", BR_ROUTE_CHAT, "",
     "data: {\"id\":\"chatcmpl-Bk\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,"
     "\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":"
     "null,\"finish_reason\":null}]}\n\n",
     "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
     "data: [DONE]\n\n"},
    {"chat, other ids", BR_ROUTE_CHAT, "",
     "data: {\"id\":\"chatcmpl-%u\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,"
     "\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":"
     "null,\"finish_reason\":null}]}\n\n",
     "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
     "data: [DONE]\n\n"},
    {"messages", BR_ROUTE_MESSAGES,
     "event: message_start\ndata: "
     "{\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":"
     "{\"input_tokens\":1,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":"
     "\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
     "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
     "\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n",
     "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: "
     "message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"
     "\"usage\":{\"output_tokens\":5}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}"
     "\n\n"},
    {"responses", BR_ROUTE_RESPONSES, "",
     "event: response.output_text.delta\ndata: "
     "{\"type\":\"response.output_text.delta\",\"item_id\":"
     "\"msg_67\",\"output_index\":0,\"content_index\":0,\"sequence_number\":%u,\"delta\":\"%s\","
     "\"obfuscation\":\"x7\"}\n\n",
     "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":"
     "\"completed\",\"output\":[],\"usage\":null}}\n\n"},
};

static void put_event(struct br_buf *b, const char *event, const char *text, unsigned number)
{
    for (const char *p = event; *p;) {
        size_t n = strcspn(p, "%");
        br_buf_put(b, p, n);
        p += n;
        if (*p == '%') {
            if (p[1] == 's')
                br_buf_put(b, text, strlen(text));
            else
                br_buf_printf(b, "%u", number);
            p += 2;
        }
    }
}

/* One pass over the body; microseconds. */
static uint64_t pass(const struct shape *s, const struct br_buf *body, struct br_buf *out)
{
    const struct br_lease l = {
        .answers = BR_ANSWERS_STRICT, .max_response_bytes = 1ull << 40, .token = "t"};
    const struct br_ask_facts f = {.route = s->route, .stream = true};
    struct br_answer *a = br_answer_new(&l, &f, 200, "text/event-stream");
    assert_non_null(a);
    br_buf_reset(out);
    uint64_t us = br_now_us();
    for (size_t at = 0; at < body->len; at += PIECE) {
        size_t n = body->len - at < PIECE ? body->len - at : PIECE;
        assert_int_equal(br_answer_feed(a, body->data + at, n, out, NULL), 0);
    }
    assert_int_equal(br_answer_end(a, out, NULL), 0);
    us = br_now_us() - us;
    assert_int_equal(out->len, body->len);
    assert_memory_equal(out->data, body->data, body->len);
    br_answer_free(&a);
    return us ? us : 1;
}

static void measure(const struct shape *s, const char *letters, size_t size)
{
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(2 * BYTES), out = BR_BUF_INIT(4 * BYTES);
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(65536);
    const char *verbose = getenv("BRIDLE_TEST_VERBOSE");
    while (text.len < size)
        br_buf_put(&text, letters, strlen(letters));
    br_buf_put(&body, s->head, strlen(s->head));
    for (unsigned i = 0; body.len < BYTES; i++)
        put_event(&body, s->event, br_buf_cstr(&text), i);
    br_buf_put(&body, s->tail, strlen(s->tail));
    uint64_t best = pass(s, &body, &out);
    for (unsigned i = 0; verbose && i < 15; i++) { /* the machine has others to serve, too */
        uint64_t us = pass(s, &body, &out);
        best = us < best ? us : best;
    }
    if (verbose)
        print_message("%-20s %6zu bytes of text: %6.0f MB/s\n", s->name, text.len,
                      (double)body.len / (double)best);
}

static void test_speed(void **state)
{
    static const size_t sizes[] = {5, 100, 1000, 16000};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(shapes); i++)
        for (size_t k = 0; k < BR_ARRAY_LEN(sizes); k++)
            measure(&shapes[i], "hello", sizes[k]);
    measure(&shapes[0], "\xe4\xbd\xa0", 1000);
    measure(&shapes[0], "\\\"\\u00e4", 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
