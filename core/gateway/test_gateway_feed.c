/*
 * The record of a run on its way to a client: what is made of it, what is not shown, how much a
 * client gets, and how it waits for one that does not keep up.
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

static void test_final_text(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    /* escaped, each of these bytes is six */
    static const struct {
        char byte;
        size_t n;
        bool fits;
    } table[] = {{'a', 512 * 1024, true},
                 {'a', 512 * 1024 + 1, false},
                 {1, 512 * 1024 / 6, true},
                 {1, 512 * 1024 / 6 + 1, false}};
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        struct run *r = created(g, c);
        prompt(g, c, r->id);
        for (size_t left = table[i].n; left;) {
            size_t n = left < 30000 ? left : 30000;
            char *text = malloc(6 * n + 1);
            for (size_t k = 0; k < n; k++)
                if (table[i].byte == 1)
                    memcpy(text + 6 * k, "\\u0001", 6);
                else
                    text[k] = 'a';
            text[table[i].byte == 1 ? 6 * n : n] = 0;
            world_event(g, r, "bridle.text", "agent", "{\"text\":\"%s\"}", text);
            free(text);
            left -= n;
        }
        world_end(g, r, "completed");
        hears_event(c, r->id, 0, "agent.stopped");
        json_t *v = world_heard_json(c);
        assert_int_equal(
            json_string_length(json_object_get(json_object_get(v, "result"), "finalText")),
            table[i].fits ? table[i].n : 0);
        json_decref(v);
    }
}

static void test_large_event(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    prompt(g, c, r->id);
    char *text = malloc(250001);
    memset(text, 'x', 250000);
    text[250000] = 0;
    world_event(g, r, "tool.result", "kernel", "{\"output\":\"%s\"}", text); /* by memfd */
    free(text);
    const char *heard = world_heard(c);
    assert_non_null(heard);
    assert_true(strlen(heard) > 250000);
    assert_int_equal(g->counters.tool_calls, 0);
}

/* ---- a record that is not in order ---- */

/* Its prompt, which has id 2, is answered with an error; what else the connection has goes on. */
static void broken(struct gateway *g, struct conn *c, struct run *r)
{
    world_pump(g);
    if (!r->ended)
        world_ended(g, r, BR_E_CANCELED, "");
    refused(c, "2", -32603, "ACP_INTERNAL_ERROR");
    silent(c);
    assert_int_equal(c->close_code, 0);
    assert_int_equal(session_state(session_find(g, r->id)), GW_FAILED);
    struct run *next = created(g, c);
    world_say(g, c, REQ("4", "session/cancel", "\"sessionId\":\"%s\""), next->id);
    hears(c, RESULT("4", "{\"canceled\":true}"));
    world_disconnect(g, c);
}

/* The client was shown how the run ended; an answer would contradict that, and nothing else is
 * heard of who does not know the extension. */
static void contradicted(struct gateway *g, struct conn *c, struct run *r)
{
    world_pump(g);
    if (!r->ended)
        world_ended(g, r, BR_E_CANCELED, "");
    silent(c);
    assert_int_equal(c->close_code, 1011);
    assert_int_equal(session_state(session_find(g, r->id)), GW_FAILED);
    world_disconnect(g, c);
}

#define EVENT(n) "{\"v\":1,\"type\":\"error\",\"eventId\":\"" n "\",\"data\":{}}"

static void test_broken_record(void **state)
{
    struct gateway *g = *state;
    static const struct {
        uint64_t row;
        const char *bytes;
    } table[] = {
        {3, EVENT("e")}, /* a gap */
        {1, EVENT("e")}, /* again */
        {0, EVENT("e")},
        {2, "{\"type\":\"error\",\"v\":1}"},
        {2, "{\"v\":2,\"type\":\"error\"}"},
        {2, "{\"v\":1,\"type\":\"\"}"},
        {2, "{\"v\":1,\"type\":\"err"},
        {2, "{}"},
        {2, ""},
        {2, "{\"v\":1,\"type\":\"agent.stopped\""}, /* no JSON where it is looked at */
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        struct conn *c = client(g);
        struct run *r = running(g, c);
        world_bytes(g, r, table[i].row, table[i].bytes, strlen(table[i].bytes));
        silent(c); /* it was not shown */
        assert_int_equal(r->kills, 1);
        broken(g, c, r);
    }
    /* the record ends before the agent does */
    struct conn *c = client(g);
    struct run *r = running(g, c);
    world_close_audit(r);
    world_pump(g);
    assert_int_equal(r->kills, 1);
    silent(c);
    broken(g, c, r);
    /* bridled says that all is well, and nothing was stopped */
    c = client(g);
    r = running(g, c);
    world_ended(g, r, 0, "");
    world_close_audit(r);
    broken(g, c, r);
    /* an event behind the end */
    for (unsigned i = 0; i < 2; i++) {
        c = i ? extended(g) : client(g);
        r = running(g, c);
        world_event(g, r, "agent.stopped", "kernel", "{\"status\":\"completed\"}");
        hears_event(c, r->id, 1, "agent.stopped");
        world_event(g, r, "error", "kernel", "{}");
        silent(c);
        (i ? broken : contradicted)(g, c, r);
    }
    /* the session says what it may not */
    c = client(g);
    r = running(g, c);
    assert_int_equal(br_chan_send(&r->session, BR_MSG_REPORT, 0, NULL, NULL), 0);
    broken(g, c, r);
}

#define SESSIONS "\"capabilities\":{\"streaming\":true,\"permissioning\":true,\"sessions\":true}"

/* The other sessions of a connection, and the other connections, go on; who only follows is told,
 * or where nothing would tell it, its connection ends. */
static void test_broken_beside_others(void **state)
{
    struct gateway *g = *state;
    struct conn *owner = extended(g), *strict = connect_as(g, SESSIONS, "uid:1", BR_ACCESS_OPERATE),
                *eyes = extended(g), *watching = extended(g), *reading = extended(g);
    struct run *r = running(g, owner), *other = created(g, owner);
    world_say(g, owner, REQ("8", "session/prompt", "\"sessionId\":\"%s\",\"content\":\"x\""),
              other->id);
    struct conn *const all[] = {strict, eyes, watching};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++) {
        world_say(g, all[i], REQ("7", "session/load", "\"sessionId\":\"%s\""), r->id);
        world_reading(g, 0, "");
        world_stored(g, 1, false);
        world_reading_end(g, 0);
        hears_event(all[i], r->id, 0, "error");
        hears_answer(all[i], 7);
    }
    world_say(g, watching, REQ("6", "session/watch", ""));
    hears_answer(watching, 6);
    world_say(g, reading, REQ("7", "session/load", "\"sessionId\":\"%s\""), r->id);
    world_reading(g, 0, "");
    world_close_audit(r); /* killed */
    world_pump(g);
    assert_int_equal(r->cancel_code, BR_E_PROGRAM_DIED);
    assert_string_equal(r->cancel_why, "the record of the run broke off");
    world_ended(g, r, BR_E_PROGRAM_DIED, "'audit' died");
    json_t *v = world_heard_json(owner);
    const char *why = json_string_value(json_object_get(json_object_get(v, "error"), "message"));
    assert_int_equal(json_integer_value(json_object_get(v, "id")), 2);
    assert_true(why && strstr(why, r->id) && strstr(why, "broke off"));
    json_decref(v);
    for (unsigned i = 1; i < 3; i++) {
        v = world_heard_json(all[i]);
        const json_t *p = json_object_get(v, "params");
        assert_string_equal(json_string_value(json_object_get(v, "method")), "bridle/session");
        assert_string_equal(json_string_value(json_object_get(p, "sessionId")), r->id);
        assert_string_equal(json_string_value(json_object_get(p, "status")), "failed");
        json_decref(v);
        silent(all[i]);
    }
    assert_int_equal(strict->close_code, 1011);
    /* what the store has of it is read to its end */
    world_row(g, r->id, "interrupted", "g", 2);
    world_stored(g, 1, false);
    world_stored(g, 2, false);
    world_reading_end(g, 0);
    hears_event(reading, r->id, 0, "error");
    hears_event(reading, r->id, 1, "error");
    hears(reading, RESULT("7", "{\"status\":\"failed\",\"live\":false,\"owned\":false}"));
    silent(reading);
    struct conn *const stay[] = {owner, eyes, watching, reading};
    for (size_t i = 0; i < BR_ARRAY_LEN(stay); i++)
        assert_int_equal(stay[i]->close_code, 0);
    world_event(g, other, "error", "kernel", "{}");
    world_end(g, other, "completed");
    assert_int_equal(other->cancels + other->kills, 0);
    hears_event(owner, other->id, 0, "error");
    hears_event(owner, other->id, 1, "agent.stopped");
    hears_answer(owner, 8);
}

/* A run whose record could not even be begun: nothing is missing, and bridled says why. */
static void test_no_record(void **state)
{
    struct gateway *g = *state;
    for (unsigned over = 0; over < 2; over++) {
        struct conn *c = client(g);
        struct run *r = created(g, c), *other = running(g, c);
        prompt(g, c, r->id);
        if (over)
            world_ended(g, r, BR_E_STORE_FAILED, "its file system is full");
        world_close_audit(r);
        world_pump(g);
        assert_int_equal(r->cancels, !over);
        assert_int_equal(r->kills, 0);
        if (!over)
            world_ended(g, r, BR_E_STORE_FAILED, "its file system is full");
        world_pump(g);
        json_t *v = world_heard_json(c), *error = json_object_get(v, "error");
        assert_int_equal(json_integer_value(json_object_get(error, "code")), -32603);
        assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "is full"));
        json_decref(v);
        assert_int_equal(session_state(session_find(g, r->id)), GW_FAILED);
        assert_int_equal(c->close_code, 0); /* its other session goes on */
        assert_int_equal(session_state(session_find(g, other->id)), GW_RUNNING);
        world_disconnect(g, c);
    }
}

/* One event more than a client takes is never sent; the run is ended long before. */
static void test_events_limit(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    prompt(g, c, r->id);
    for (unsigned i = 0; i < 8999; i++)
        world_event(g, r, "error", "kernel", "{}");
    world_event(g, r, "bridle.notice", "kernel", "{}");
    assert_int_equal(r->cancels, 0);
    world_event(g, r, "error", "kernel", "{}");
    assert_int_equal(r->cancels, 1);
    for (unsigned i = 9000; i < 9999; i++) /* all that it still has to say */
        world_event(g, r, "error", "kernel", "{}");
    world_end(g, r, "canceled");
    for (unsigned i = 0; i < 9999; i++)
        hears_event(c, r->id, i, "error");
    hears_event(c, r->id, 9999, "agent.stopped");
    json_t *v = world_heard_json(c);
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "result"), "status")),
                        "failed");
    json_decref(v);
    assert_int_equal(session_state(session_find(g, r->id)), GW_FAILED);
    assert_int_equal(c->close_code, 0);
    /* and one that does not listen */
    c = client(g);
    r = created(g, c);
    prompt(g, c, r->id);
    for (unsigned i = 0; i < 10000; i++)
        world_event(g, r, "error", "kernel", "{}");
    assert_int_equal(c->nsent - c->read, 10000);
    assert_int_equal(r->kills, 0);
    world_event(g, r, "error", "kernel", "{}");
    assert_int_equal(c->nsent - c->read, 10000);
    assert_int_equal(r->kills, 1);
    for (unsigned i = 0; i < 10000; i++)
        hears_event(c, r->id, i, "error");
    broken(g, c, r);
}

/* The largest event that fits into a message which every client reads, and one byte more. */
static void test_event_size(void **state)
{
    struct gateway *g = *state;
    static const char head[] = "{\"v\":1,\"type\":\"%s\",\"data\":\"";
    for (unsigned own = 0; own < 2; own++) {
        for (size_t n = (1u << 20) - 1024; n <= (1u << 20) - 1024 + 1; n++) {
            struct conn *c = extended(g);
            struct run *r = running(g, c);
            char *text = malloc(n + 1);
            size_t at = (size_t)snprintf(text, n, head, own ? "bridle.table" : "error");
            memset(text + at, 'x', n - at);
            memcpy(text + n - 2, "\"}", 3);
            world_bytes(g, r, 2, text, n);
            free(text);
            if (own) {
                hears_own(c, r->id, 0, 0, "bridle.table");
            } else if (n == (1u << 20) - 1024) {
                hears_event(c, r->id, 1, "error");
                assert_true(c->sent[c->read - 1].len <= 1u << 20);
            } else {
                silent(c);
                assert_int_equal(r->kills, 1);
                broken(g, c, r);
            }
        }
    }
}

/* Sums that are more than a client could read stay what it can. */
static void test_usage(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = running(g, c);
    for (unsigned i = 0; i < 2; i++) {
        world_event(g, r, "model.response", "model",
                    "{\"usage\":{\"promptTokens\":9007199254740000,\"completionTokens\":990}}");
        hears_event(c, r->id, 1 + i, "model.response");
    }
    world_event(g, r, "model.response", "model", "{\"usage\":{\"promptTokens\":-5}}");
    hears_event(c, r->id, 3, "model.response");
    world_end(g, r, "completed");
    hears_event(c, r->id, 4, "agent.stopped");
    hears(c, RESULT("2", "{\"status\":\"completed\",\"events\":[],\"finalText\":\"\",\"usage\":{"
                         "\"promptTokens\":9007199254740001,\"completionTokens\":990,"
                         "\"totalTokens\":9007199254740991}}"));
}

/* Only the member counts: not what a name says, nor what is none. */
static void test_usage_is_a_member(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = running(g, c);
    world_event(g, r, "model.response", "model",
                "{\"model\":\",\\\"usage\\\":{\\\"promptTokens\\\":900}\",\"usage\":{"
                "\"promptTokens\":7,\"completionTokens\":1,\"totalTokens\":8}}");
    hears_event(c, r->id, 1, "model.response");
    world_event(g, r, "model.response", "model", "{\"model\":\"none\"}");
    hears_event(c, r->id, 2, "model.response");
    world_end(g, r, "completed");
    hears_event(c, r->id, 3, "agent.stopped");
    hears(c, RESULT("2", "{\"status\":\"completed\",\"events\":[],\"finalText\":\"\",\"usage\":{"
                         "\"promptTokens\":7,\"completionTokens\":1,\"totalTokens\":8}}"));
}

/* ---- several in a message ---- */

static void put_event(struct br_buf *b, const char *type)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "{\"v\":1,\"type\":\"%s\",\"data\":{}}", type);
    br_buf_put_lstr(b, text, (size_t)n);
}

static void send_events(struct gateway *g, struct run *r, struct br_out *o)
{
    struct br_chan c = {.fd = r->audit, .peer = "gateway"};
    (void)br_chan_send(&c, BR_MSG_EVENTS, 0, o, NULL);
    world_pump(g);
}

static void test_batches(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    struct run *r = running(g, c);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u64(&o.buf, 2);
    put_event(&o.buf, "error");
    put_event(&o.buf, "bridle.notice");
    put_event(&o.buf, "error");
    send_events(g, r, &o);
    hears_event(c, r->id, 1, "error");
    hears_own(c, r->id, 1, 0, "bridle.notice");
    hears_event(c, r->id, 2, "error");
    r->row = 4;
    world_event(g, r, "error", "kernel", "{}");
    hears_event(c, r->id, 3, "error");
    world_end(g, r, "completed");
    hears_event(c, r->id, 4, "agent.stopped");
    hears_answer(c, 2);
}

static void test_broken_batches(void **state)
{
    struct gateway *g = *state;
    for (unsigned i = 0; i < 5; i++) {
        struct conn *c = client(g);
        struct run *r = running(g, c);
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_u64(&o.buf, i == 0 ? 3 : 2); /* a gap before it */
        put_event(&o.buf, "error");
        if (i == 1)
            br_buf_put_u32(&o.buf, 0); /* an empty one */
        if (i == 2)
            br_buf_put_u32(&o.buf, 1000); /* that is cut */
        if (i == 3)
            br_buf_put_lstr(&o.buf, "{}", 2);
        if (i == 4) { /* and one behind the end */
            put_event(&o.buf, "agent.stopped");
            put_event(&o.buf, "error");
        }
        send_events(g, r, &o);
        if (i > 0)
            hears_event(c, r->id, 1, "error");
        if (i == 4)
            hears_event(c, r->id, 2, "agent.stopped");
        silent(c);
        assert_int_equal(r->kills, 1);
        (i == 4 ? contradicted : broken)(g, c, r);
    }
}

/* ---- a client that does not keep up ---- */

static void test_owner_behind(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g), *second = extended(g);
    struct run *r = created(g, c);
    g->settings.queue_bytes = 2000;
    world_say(g, second, REQ("9", "session/load", "\"sessionId\":\"%s\""), r->id);
    hears_answer(second, 9);
    prompt(g, c, r->id);
    for (unsigned i = 0; i < 5; i++)
        world_event(g, r, "error", "kernel", "{}");
    assert_int_equal(c->nsent - c->read, 5); /* it keeps up */
    c->room = 1;
    for (unsigned i = 0; i < 95; i++)
        world_event(g, r, "error", "kernel", "{}");
    unsigned waiting = c->nsent - c->read;
    assert_true(waiting > 8 && waiting < 20); /* of half of the room, and no more */
    assert_int_equal(second->nsent - second->read, waiting);
    for (unsigned i = 0; i < waiting; i++)
        hears_event(c, r->id, i, "error");
    gw_harness.writable(c);
    world_pump(g);
    assert_true(c->nsent - c->read > 3 && c->nsent - c->read < 20);
    c->room = 0;
    gw_harness.writable(c);
    world_pump(g);
    for (unsigned i = waiting; i < 100; i++)
        hears_event(c, r->id, i, "error");
    second->room = 1; /* who only follows holds nothing up */
    for (unsigned i = 100; i < 150; i++) {
        world_event(g, r, "error", "kernel", "{}");
        hears_event(c, r->id, i, "error");
    }
    world_end(g, r, "completed");
    hears_event(c, r->id, 150, "agent.stopped");
    hears_answer(c, 2);
}

/* It goes, or gives the session away, while the record waits for it. */
static void test_behind_and_gone(void **state)
{
    struct gateway *g = *state;
    g->settings.queue_bytes = 1000;
    g->settings.detach = 1;
    for (unsigned detach = 0; detach < 2; detach++) {
        struct conn *c = extended(g);
        struct run *r = running(g, c);
        c->room = 1;
        for (unsigned i = 0; i < 40; i++)
            world_event(g, r, "error", "kernel", "{}");
        assert_true(c->nsent - c->read < 20);
        if (detach)
            world_say(g, c, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
        else
            world_disconnect(g, c);
        world_pump(g);
        assert_int_equal(r->cancels, !detach);
        world_end(g, r, "completed");
        assert_int_equal(g->counters.sessions_completed, 1 + detach);
        if (detach)
            world_disconnect(g, c);
        assert_null(session_find(g, r->id));
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_final_text),        T(test_large_event),
        T(test_event_size),        T(test_usage),
        T(test_broken_record),     T(test_broken_beside_others),
        T(test_usage_is_a_member), T(test_no_record),
        T(test_events_limit),      T(test_batches),
        T(test_broken_batches),    T(test_owner_behind),
        T(test_behind_and_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
