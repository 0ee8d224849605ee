/*
 * The service protocol against the whole service: bridle serve, its gateway, real runs in real
 * sandboxes with the scripted provider. What a client was shown is what is stored, byte for byte;
 * what it asked for has happened, and nothing else; nothing is left when it goes, in whatever state
 * that was, and when the gateway is killed.
 */
#include "protocol_rig.h"

#include <signal.h>

/* ---- runs and questions ---- */

static void test_run_and_asks(void **state)
{
    struct strict c, second;
    char id[2][BR_ID_MAX], session[BR_ID_MAX];
    (void)state;
    protocol_begin("");
    strict_open(&c, protocol_socket, false);
    strict_open(&second, protocol_socket, true);
    strict_new(&c, "one");
    strict_prompt(&c, "echo");
    strict_until(&c, "\"type\":\"agent.stopped\"");
    const char *text = strict_hear(&c);
    assert_non_null(strstr(text, "\"id\":2,\"result\":{\"status\":\"completed\",\"events\":[],"
                                 "\"finalText\":\"Done.\",\"usage\":{\"promptTokens\":"));
    protocol_check(c.session, "completed", &c);
    assert_true(c.next_seq > 8 && !strstr(br_buf_cstr(&c.seen), "bridle."));
    /* a question of each kind of answer; the second of them by another client */
    strict_new(&c, "one");
    strict_prompt(&c, "touch");
    strict_asked(&c, id[0]);
    strict_asked(&c, id[1]);
    snprintf(session, sizeof(session), "%s", c.session);
    assert_false(protocol_exists("out/a") || protocol_exists("out/b"));
    strict_respond(&second, session, id[1], "allow"); /* it does not follow */
    strict_until(&second, "ACP_SESSION_NOT_FOUND");
    strict_say(&second,
               "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/load\",\"params\":{"
               "\"sessionId\":\"%s\"}}",
               session);
    strict_until(&second, "\"live\":true");
    strict_respond(&c, session, id[0], "deny");
    strict_until(&c, "\"accepted\":true");
    strict_respond(&second, session, id[0], "allow"); /* late */
    strict_until(&second, "ACP_PERMISSION_RESOLVED");
    strict_respond(&second, session, "perm_00000000000000000000000000", "allow");
    strict_until(&second, "ACP_PERMISSION_NOT_FOUND");
    strict_respond(&second, session, id[1], "allow");
    strict_until(&second, "\"accepted\":true");
    strict_respond(&c, session, id[1], "deny");
    strict_until(&c, "ACP_PERMISSION_RESOLVED");
    strict_until(&second, "\"type\":\"bridle.answered\"");
    strict_until(&c, "\"id\":2,\"result\":{\"status\":\"completed\"");
    assert_true(!protocol_exists("out/a") && protocol_exists("out/b"));
    protocol_check(session, "completed", &c);
    char *stored = protocol_record(session);
    assert_int_equal(protocol_count(stored, "\"decision\":\"deny\""),
                     2); /* resolution and bridle.answered */
    assert_int_equal(protocol_count(stored, "\"type\":\"bridle.answered\""), 2);
    free(stored);
    /* what has ended is answered no more, and loaded as it was */
    strict_respond(&c, session, id[1], "allow");
    strict_until(&c, "ACP_PERMISSION_RESOLVED");
    strict_close(&second);
    strict_open(&second, protocol_socket, true);
    snprintf(second.session, sizeof(second.session), "%s", session);
    strict_say(&second,
               "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"session/load\",\"params\":{"
               "\"sessionId\":\"%s\"}}",
               session);
    strict_until(&second, "\"id\":8,\"result\":{\"status\":\"completed\",\"live\":false");
    assert_int_equal(second.seen.len, c.seen.len);
    assert_memory_equal(second.seen.data, c.seen.data, c.seen.len);
    strict_close(&c);
    strict_close(&second);
    protocol_end();
}

/* The longest of everything, all the way down: it is taken, or refused by what it is about. */
static void test_longest(void **state)
{
    struct strict c;
    char *x = malloc(512 * 1024 + 1);
    (void)state;
    memset(x, 'x', 512 * 1024);
    x[512 * 1024] = 0;
    protocol_begin("");
    strict_open(&c, protocol_socket, true);
#define SAY(method, params, n)                                                                     \
    strict_say(&c,                                                                                 \
               "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"" method "\",\"params\":{" params "}}", \
               (int)(n), x)
    SAY("session/new", "\"workspace\":\"%.*s\"", 4096);
    strict_until(&c, "ACP_INVALID_PARAMS");
    SAY("session/new", "\"workspace\":\"%.*s\"", 4095);
    strict_until(&c, "ACP_INVALID_PARAMS");
    SAY("session/new", "\"workspace\":\"one\",\"model\":\"%.*s\"", 256);
    strict_until(&c, "ACP_INVALID_PARAMS");
    SAY("session/new", "\"workspace\":\"one\",\"model\":\"%.*s\"", 255);
    strict_until(&c, "ACP_INVALID_PARAMS");
    SAY("session/new", "\"workspace\":\"one\",\"taskId\":\"%.*s\"", 128);
    strict_until(&c, "ACP_INVALID_PARAMS");
    SAY("session/list", "\"query\":\"%.*s\",\"limit\":200", 256);
    strict_until(&c, "\"sessions\":[],\"more\":false");
    SAY("session/list", "\"before\":\"%.*s\"", 256);
    strict_until(&c, "ACP_SESSION_NOT_FOUND");
    SAY("session/load", "\"sessionId\":\"%.*s\"", 256);
    strict_until(&c, "ACP_SESSION_NOT_FOUND");
    SAY("session/load", "\"sessionId\":\"%.*s\"", 47);
    strict_until(&c, "ACP_SESSION_NOT_FOUND");
    strict_new(&c, "one");
    strict_say(
        &c,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":{\"sessionId\":"
        "\"%s\",\"content\":\"%s\",\"maxModelTokens\":9007199254740991,\"maxToolCalls\":"
        "9007199254740991}}",
        c.session, x);
    strict_until(&c, "\"id\":2,");
    assert_non_null(strstr(c.text, "\"result\":{\"status\":\"completed\""));
    protocol_check(c.session, "completed", &c);
    free(x);
    strict_close(&c);
    protocol_end();
}

static void test_time_runs_out(void **state)
{
    struct strict c;
    char id[BR_ID_MAX];
    (void)state;
    protocol_begin("limits = { ask_seconds = 1 }");
    strict_open(&c, protocol_socket, false);
    strict_new(&c, "one");
    strict_prompt(&c, "touch");
    strict_asked(&c, id);
    strict_until(&c, "\"type\":\"permission.resolved\"");
    assert_non_null(strstr(c.text, "\"actor\":\"kernel\""));
    strict_respond(&c, c.session, id, "allow");
    strict_until(&c, "ACP_PERMISSION_RESOLVED");
    strict_until(&c, "\"id\":2,\"result\"");
    assert_false(protocol_exists("out/a") || protocol_exists("out/b"));
    protocol_check(c.session, "completed", &c);
    char *stored = protocol_record(c.session);
    assert_int_equal(protocol_count(stored, "\"decision\":\"deny\""), 2);
    free(stored);
    strict_close(&c);
    protocol_end();
}

/* ---- the end of a session, in every state ---- */

enum when { CREATED, PROMPTED, STARTED, ASKED, WHENS };

static void come_to(struct strict *c, enum when w, char session[BR_ID_MAX])
{
    char id[BR_ID_MAX];
    strict_new(c, "one");
    snprintf(session, BR_ID_MAX, "%s", c->session);
    if (w > CREATED)
        strict_prompt(c, "touch");
    if (w == STARTED)
        strict_until(c, "\"type\":\"sandbox.started\"");
    if (w == ASKED)
        strict_asked(c, id);
}

static void test_cancel(void **state)
{
    struct strict c;
    char session[BR_ID_MAX];
    (void)state;
    protocol_begin("");
    strict_open(&c, protocol_socket, false);
    for (enum when w = CREATED; w < WHENS; w++) {
        come_to(&c, w, session);
        strict_say(&c,
                   "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/cancel\",\"params\":{"
                   "\"sessionId\":\"%s\"}}",
                   session);
        strict_until(&c, "\"id\":3,\"result\":{\"canceled\":true}");
        if (c.next_seq) { /* one that had not begun has no record */
            assert_true(c.stopped);
            protocol_check(session, "canceled", &c);
        }
        strict_prompt(&c, "touch");
        strict_until(&c, "ACP_SESSION_ALREADY_RUN");
        assert_false(protocol_exists("out/a") || protocol_exists("out/b"));
    }
    strict_close(&c);
    protocol_end();
}

static void test_disconnect(void **state)
{
    char session[BR_ID_MAX];
    (void)state;
    protocol_begin("");
    for (enum when w = CREATED; w < WHENS; w++) {
        struct strict c;
        strict_open(&c, protocol_socket, false);
        come_to(&c, w, session);
        br_close(&c.fd);
        if (w >= STARTED) { /* before that it may not have begun at all */
            protocol_await(session);
            protocol_check(session, "canceled", &c);
        }
        strict_close(&c);
        assert_false(protocol_exists("out/a") || protocol_exists("out/b"));
    }
    protocol_end();
}

/* ---- the gateway is killed ---- */

static void test_killed_gateway(void **state)
{
    enum { N = 3 };
    static struct strict c[N];
    char asked[BR_ID_MAX], session[BR_ID_MAX], id[BR_ID_MAX];
    struct strict one;
    (void)state;
    protocol_begin("");
    strict_open(&one, protocol_socket, false);
    strict_new(&one, "one");
    strict_prompt(&one, "touch");
    strict_asked(&one, asked);
    snprintf(session, sizeof(session), "%s", one.session);
    for (unsigned i = 0; i < N; i++) {
        strict_open(&c[i], protocol_socket, false);
        strict_new(&c[i], "one");
        strict_prompt(&c[i], "load");
    }
    for (unsigned i = 0; i < N; i++) /* at different places */
        for (unsigned k = 0; k < 1 + i; k++)
            strict_until(&c[i], "\"type\":\"tool.result\"");
    pid_t gateway = e2e_await(protocol_service, "bridle-gateway", 0, 2000);
    assert_true(gateway > 0);
    assert_int_equal(kill(gateway, SIGKILL), 0);
    for (unsigned i = 0; i < N; i++) {
        while (strict_hear(&c[i])) /* what was on its way */
            ;
        protocol_await(c[i].session);
        protocol_check(c[i].session, c[i].stopped ? "completed" : "canceled", &c[i]);
    }
    protocol_await(session);
    protocol_check(session, "canceled", &one);
    assert_false(protocol_exists("out/a") || protocol_exists("out/b"));
    /* it is there again, and knows nothing of what was */
    strict_close(&one);
    strict_open(&one, protocol_socket, true);
    strict_respond(&one, session, asked, "allow");
    strict_until(&one, "ACP_SESSION_NOT_FOUND");
    strict_new(&one, "one");
    strict_prompt(&one, "touch");
    strict_asked(&one, id);
    strict_respond(&one, one.session, asked, "allow"); /* a question of another session */
    strict_until(&one, "ACP_PERMISSION_NOT_FOUND");
    strict_respond(&one, one.session, id, "allow");
    strict_until(&one, "\"accepted\":true");
    strict_asked(&one, id);
    strict_respond(&one, one.session, id, "deny");
    strict_until(&one, "\"id\":2,\"result\"");
    protocol_check(one.session, "completed", &one);
    assert_true(protocol_exists("out/a") && !protocol_exists("out/b"));
    protocol_remove();
    strict_close(&one);
    for (unsigned i = 0; i < N; i++)
        strict_close(&c[i]);
    protocol_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_run_and_asks, protocol_teardown),
        cmocka_unit_test_teardown(test_longest, protocol_teardown),
        cmocka_unit_test_teardown(test_time_runs_out, protocol_teardown),
        cmocka_unit_test_teardown(test_cancel, protocol_teardown),
        cmocka_unit_test_teardown(test_disconnect, protocol_teardown),
        cmocka_unit_test_teardown(test_killed_gateway, protocol_teardown),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
