/*
 * Each program of a run killed in the middle of it, as its client sees it: what it was shown is
 * stored, byte for byte and without a gap; nothing that was asked happens; no question stays open;
 * and the service goes on. And sessions that outlive the connection that made them.
 */
#include "protocol_rig.h"

#include <signal.h>

static const char *const programs[] = {"bridle-session", "bridle-audit", "bridle-launch",
                                       "bridle-broker", "bridled"};

/* The run's own bridled is a child of the service, which is one as well. */
static pid_t find(const char *name)
{
    for (int i = 0; i < 500; i++, usleep(10000))
        for (unsigned n = 0; n < 4; n++) {
            pid_t pid = e2e_find(protocol_service, name, n);
            if (pid > 0 && pid != protocol_service)
                return pid;
        }
    fail_msg("there is no '%s'", name);
    return 0;
}

/* It is told of a failure, on a connection that goes on. */
static void hears_end(struct strict *c)
{
    const char *text;
    while ((text = strict_hear(c)) && !strstr(text, "\"id\":2,"))
        ;
    assert_non_null(text);
    assert_true(strstr(text, "\"status\":\"failed\"") || strstr(text, "\"code\":-32603"));
}

static void killed(const char *name, bool asked)
{
    struct strict c;
    char id[BR_ID_MAX];
    strict_open(&c, protocol_socket, false);
    strict_new(&c, "one");
    strict_prompt(&c, asked ? "touch" : "load");
    if (asked)
        strict_asked(&c, id);
    for (unsigned i = 0; !asked && i < 4; i++)
        strict_until(&c, "\"type\":\"tool.result\"");
    assert_int_equal(kill(find(name), SIGKILL), 0);
    hears_end(&c);
    protocol_await(c.session);
    protocol_check(c.session, NULL, &c);
    assert_false(protocol_exists("out/a") || protocol_exists("out/b"));
    strict_close(&c);
}

static void test_killed(void **state)
{
    (void)state;
    protocol_begin("");
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        killed(programs[i], true);
        killed(programs[i], false);
    }
    struct strict c; /* and it goes on */
    strict_open(&c, protocol_socket, false);
    strict_new(&c, "one");
    strict_prompt(&c, "echo");
    strict_until(&c, "\"id\":2,\"result\":{\"status\":\"completed\"");
    protocol_check(c.session, "completed", &c);
    strict_close(&c);
    protocol_end();
}

/* ---- sessions without their connection ---- */

static void load(struct strict *c, const char *method, const char *session)
{
    strict_say(c,
               "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/%s\",\"params\":{"
               "\"sessionId\":\"%s\"}}",
               method, session);
}

static void test_detached(void **state)
{
    struct strict c, next;
    char id[2][BR_ID_MAX], session[BR_ID_MAX];
    (void)state;
    protocol_begin("detach = 'allow'");
    strict_open(&c, protocol_socket, true);
    strict_new(&c, "one");
    strict_prompt(&c, "touch");
    strict_asked(&c, id[0]);
    strict_asked(&c, id[1]);
    snprintf(session, sizeof(session), "%s", c.session);
    strict_say(&c,
               "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"session/detach\",\"params\":{"
               "\"sessionId\":\"%s\"}}",
               session);
    strict_until(&c, "\"detached\":true");
    strict_close(&c); /* and it waits for an answer still */
    strict_open(&next, protocol_socket, true);
    snprintf(next.session, sizeof(next.session), "%s", session);
    load(&next, "resume", session);
    strict_until(&next, "\"id\":7,\"result\":{\"status\":\"running\",\"live\":true,"
                        "\"owned\":true}");
    strict_respond(&next, session, id[0], "allow");
    strict_until(&next, "\"accepted\":true");
    strict_respond(&next, session, id[1], "deny");
    strict_until(&next, "\"accepted\":true");
    strict_until(&next, "\"type\":\"agent.stopped\"");
    protocol_await(session);
    protocol_check(session, "completed", &next); /* all of it, though it came late */
    assert_true(protocol_exists("out/a") && !protocol_exists("out/b"));
    protocol_remove();
    strict_close(&next);
    protocol_end();
}

/* Many who join while it runs, at different places: each is shown the same, without a gap. */
static void test_joined(void **state)
{
    enum { N = 6 };
    struct strict c;
    static struct strict late[N];
    (void)state;
    protocol_begin("");
    strict_open(&c, protocol_socket, false);
    for (unsigned i = 0; i < N; i++)
        strict_open(&late[i], protocol_socket, true);
    strict_new(&c, "one");
    strict_prompt(&c, "load");
    for (unsigned i = 0; i < N; i++) {
        strict_until(&c, "\"type\":\"tool.result\"");
        snprintf(late[i].session, sizeof(late[i].session), "%s", c.session);
        load(&late[i], "load", c.session);
    }
    strict_until(&c, "\"id\":2,\"result\":{\"status\":\"completed\"");
    for (unsigned i = 0; i < N; i++) {
        while (!late[i].stopped)
            assert_non_null(strict_hear(&late[i]));
        assert_int_equal(late[i].seen.len, c.seen.len);
        assert_memory_equal(late[i].seen.data, c.seen.data, c.seen.len);
        strict_close(&late[i]);
    }
    protocol_check(c.session, "completed", &c);
    strict_close(&c);
    protocol_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_killed, protocol_teardown),
        cmocka_unit_test_teardown(test_detached, protocol_teardown),
        cmocka_unit_test_teardown(test_joined, protocol_teardown),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
