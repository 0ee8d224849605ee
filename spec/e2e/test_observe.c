/*
 * bridle observe, from end to end: the value that fits and nothing else is printed, with either
 * backend; one request; and of what does not fit nothing is kept. The schema is refused before
 * anything starts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

#define MOOD                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"good\",\"bad\"]},\"n\":{\"type\":" \
    "\"integer\"}},\"required\":[\"mood\"],\"additionalProperties\":false}"
/* What a model said, and nobody else. */
#define SAID "said-by-the-model"

static void play(struct e2e *t, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8192);
    br_buf_printf(&b, "{\"v\":1,\"name\":\"o\",\"title\":\"t\",\"delay_ms\":0,\"chunk_words\":3,"
                      "\"turns\":[{\"text\":");
    br_buf_put_json_str(&b, text, strlen(text));
    br_buf_printf(&b, "}]}");
    e2e_write(t, "play.json", br_buf_cstr(&b));
}

static void open_cell(struct e2e *t, const char *profile)
{
    struct e2e_result r;
    e2e_open(t, 0);
    t->activated = true;
    e2e_write(t, "mood.json", MOOD);
    e2e_run(t, &r, "bridle", "activate", profile, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

static bool stored(const struct e2e *t, const char *text)
{
    char command[512];
    snprintf(command, sizeof(command), "grep -raq -e '%s' %s/audit", text, t->state);
    return system(command) == 0; /* NOLINT(cert-env33-c) */
}

static unsigned count(const struct e2e_result *r, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16 << 20);
    unsigned n = 0;
    br_buf_put(&b, r->out.data, r->out.len);
    for (const char *p = br_buf_cstr(&b); (p = strstr(p, text)); p += strlen(text))
        n++;
    return n;
}

static void check_value(const char *profile)
{
    struct e2e t;
    struct e2e_result r;
    open_cell(&t, profile);
    play(&t, " ```json\n{\"n\": 3, \"mood\": \"good\"}\n``` ");
    e2e_run(&t, &r, "bridle", "observe", "--profile", profile, "--schema", "mood.json",
            "--scenario", "play.json", "what", "is it", NULL);
    e2e_expect(&r, 0, NULL);
    assert_int_equal(r.out.len, strlen("{\"mood\":\"good\",\"n\":3}\n"));
    assert_memory_equal(r.out.data, "{\"mood\":\"good\",\"n\":3}\n", r.out.len);
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "observe", "--profile", profile, "--schema", "mood.json", "--json",
            "--scenario", "play.json", "what", NULL);
    e2e_expect(&r, 0, "\"image\":\"none\"");
    e2e_expect(&r, 0, "\"lease\":{\"requests\":1,");
    e2e_expect(&r, 0, "\"artifact\":{\"kind\":\"json\",\"value\":{\"n\":3,\"mood\":\"good\"}}");
    assert_int_equal(count(&r, "\"type\":\"model.request\""), 1);
    assert_int_equal(count(&r, "\"type\":\"model.response\""), 1);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_value(void **state)
{
    (void)state;
    check_value("observer-native-v1");
}

static void test_value_bwrap(void **state)
{
    (void)state;
    check_value("observer-v1");
}

static void test_what_does_not_fit(void **state)
{
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"{\"mood\":\"" SAID "\"}", "'mood' is not one of the values"},
        {"{\"mood\":\"good\",\"" SAID "\":1}", "a property that the schema does not name"},
        {"I say " SAID ".", "not one JSON value"},
        {"{\"mood\":\"good\"} {\"mood\":\"" SAID "\"}", "not one JSON value"},
        {"{\"mood\":\"good\",\"mood\":\"bad\",\"x\":\"" SAID "\"}", "the frame is refused"},
    };
    struct e2e t;
    (void)state;
    open_cell(&t, "observer-native-v1");
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct e2e_result r;
        print_message("%s\n", rows[i].text);
        play(&t, rows[i].text);
        e2e_run(&t, &r, "bridle", "observe", "--profile", "observer-native-v1", "--schema",
                "mood.json", "--scenario", "play.json", "what", NULL);
        assert_int_not_equal(r.status, 0);
        assert_true(e2e_says(&r, rows[i].said));
        assert_false(e2e_says(&r, SAID));
        assert_int_equal(r.out.len, 0);
        assert_false(stored(&t, SAID));
        e2e_result_free(&r);
    }
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_refused_before_the_start(void **state)
{
    static const struct {
        const char *schema, *said;
        int status;
    } rows[] = {
        {"{\"pattern\":\"x\"}", "the keyword 'pattern' is not supported", 5},
        {"{\"$ref\":\"#\"}", "refers to itself", 5},
        {"{\"type\":", "ends inside", 5},
        {"{\"type\":\"object\",\"type\":\"object\"}", "duplicate", 5},
    };
    struct e2e t;
    struct e2e_result r;
    (void)state;
    open_cell(&t, "observer-native-v1");
    play(&t, "{\"mood\":\"good\"}");
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        e2e_write(&t, "bad.json", rows[i].schema);
        e2e_run(&t, &r, "bridle", "observe", "--profile", "observer-native-v1", "--schema",
                "bad.json", "--scenario", "play.json", "--json", "what", NULL);
        e2e_expect(&r, rows[i].status, rows[i].said);
        assert_false(e2e_says(&r, "sandbox.started"));
        assert_false(e2e_says(&r, "model.request"));
        e2e_result_free(&r);
    }
    e2e_run(&t, &r, "bridle", "observe", "what", NULL);
    e2e_expect(&r, 2, "there is no schema");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "observe", "--schema", "mood.json", "--input", "play.json", "what",
            NULL);
    e2e_expect(&r, 2, "both '--input' and words");
    e2e_result_free(&r);
    e2e_run(&t, &r, "bridle", "observe", "--schema", "mood.json", " ", NULL);
    e2e_expect(&r, 2, "there is no input");
    e2e_result_free(&r);
    /* it is made for its own cell, and for no other profile */
    e2e_run(&t, &r, "bridle", "observe", "--profile", "workspace-tmpfs-v1", "--schema", "mood.json",
            "what", NULL);
    e2e_expect(&r, 5, "is not made for the profile 'workspace-tmpfs-v1'");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* bridle.lua can name it; what it says of requests does not make it more than one. */
static void test_one_request(void **state)
{
    struct e2e t;
    struct e2e_result r;
    (void)state;
    open_cell(&t, "observer-native-v1");
    play(&t, "{\"mood\":\"bad\"}");
    e2e_write(
        &t, "bridle.lua",
        "return { api = 1, adapters = { ['observer@1'] = { profiles = { 'observer-native-v1' },"
        " lease = { requests = 9, in_flight = 9, tokens = 5000, answer_tokens = 100 } } } }\n");
    e2e_run(&t, &r, "bridle", "observe", "--profile", "observer-native-v1", "--schema", "mood.json",
            "--scenario", "play.json", "--config", "bridle.lua", "--json", "what", NULL);
    e2e_expect(&r, 0, "\"lease\":{\"requests\":1,\"tokens\":5000,");
    e2e_expect(&r, 0, "\"answerTokens\":100,\"inFlight\":1,");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Without an activation, and with the wrong one. */
static void test_not_activated(void **state)
{
    struct e2e t;
    struct e2e_result r;
    (void)state;
    open_cell(&t, "observer-native-v1");
    play(&t, "{\"mood\":\"bad\"}");
    e2e_run(&t, &r, "bridle", "observe", "--schema", "mood.json", "--scenario", "play.json", "what",
            NULL);
    e2e_expect(&r, 6, "not activated");
    e2e_result_free(&r);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_value_bwrap),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_refused_before_the_start),
        cmocka_unit_test(test_one_request),
        cmocka_unit_test(test_not_activated),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
