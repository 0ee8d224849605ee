/*
 * Each program of a service killed while a session waits for an answer, and while one runs: no
 * permission is left open, records are closed, nothing is left, and the next session works. The
 * positive control is the same session undisturbed (test_serve.c).
 */
#include "serve_rig.h"

#include <signal.h>
#include <sys/stat.h>

static struct served s;

static void started(void)
{
    served_reset(&s);
    served_start(&s, NULL, NULL);
    served_ready(&s);
}

static void begin_asking(char id[BR_ID_MAX])
{
    served_begin(&s, "one", "sleep", id);
    do
        served_hear(&s, "EVENT ");
    while (!strstr(s.line, " bridle.asks "));
}

static void expect_works(void)
{
    char id[BR_ID_MAX], want[128];
    served_begin(&s, "two", "echo", id);
    snprintf(want, sizeof(want), "ENDED %s OK", id);
    served_hear(&s, want);
    served_record(&s, id, "completed");
}

/* A program by its name among the descendants of the service. */
static void kill_one(const char *name, unsigned nth)
{
    pid_t pid = e2e_await(s.service, name, nth, 5000);
    if (pid <= 0)
        fail_msg("no '%s'", name);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

/* The run's own bridled: the service is one, too. False if there is none so long. */
static bool kill_run_bridled(unsigned ms)
{
    for (unsigned i = 0; i <= ms / 5; i++, usleep(5000))
        for (unsigned n = 0; n < 4; n++) {
            pid_t pid = e2e_find(s.service, "bridled", n);
            if (pid > 0 && pid != s.service)
                return kill(pid, SIGKILL) == 0;
        }
    return false;
}

static void test_gateway(void **state)
{
    char asking[BR_ID_MAX], waiting[BR_ID_MAX];
    (void)state;
    started();
    begin_asking(asking);
    served_say(&s, "CHECK two||");
    served_hear(&s, "CHECKED OK");
    snprintf(waiting, sizeof(waiting), "%s", served_word(&s, 2));
    kill_one("bridle-gateway", 0);
    assert_null(served_try(&s, "nothing"));
    served_logged(&s, "its sessions are canceled");
    for (int i = 0; i < 1000 && e2e_find(s.service, "bridle-session", 0); i++)
        usleep(10000);
    served_record(&s, asking, "canceled");
    served_recorded(&s, asking, "the gateway ended");
    served_connect(&s); /* the same socket, another gateway, which knows nothing of them */
    expect_works();
    kill_one("bridle-gateway", 0);
    assert_null(served_try(&s, "nothing"));
    served_connect(&s);
    expect_works();
    served_stop(&s);
}

/* The first thing that it is told it does not read; nor does it anything after. */
static void test_deaf_gateway(void **state)
{
    char id[BR_ID_MAX];
    (void)state;
    started();
    begin_asking(id);
    served_say(&s, "DEAF");
    kill_one("bridle-gateway", 0);
    served_connect(&s);
    expect_works();
    served_record(&s, id, "canceled");
    served_stop(&s);
}

static void test_service(void **state)
{
    char id[BR_ID_MAX];
    (void)state;
    started();
    begin_asking(id);
    assert_int_equal(kill(s.service, SIGKILL), 0);
    assert_int_equal(served_ended(&s), 128 + SIGKILL);
    /* nobody is left but the run's own programs, which bring it to its end */
    for (int i = 0; i < 2000 && e2e_await(1, "bridle-audit", 0, 0); i++)
        usleep(10000);
    assert_int_equal(e2e_await(1, "bridle-gateway", 0, 0), 0);
    assert_int_equal(e2e_await(1, "bridle-session", 0, 0), 0);
    served_start(&s, NULL, NULL);
    served_ready(&s);
    served_record(&s, id, "canceled");
    served_recorded(&s, id, "the service stopped");
    expect_works();
    served_stop(&s);
}

static void expect_failed(const char *id)
{
    char want[128];
    snprintf(want, sizeof(want), "ENDED %s PROGRAM_DIED", id);
    served_hear(&s, want);
    served_record(&s, id, "failed");
    expect_works();
    served_stop(&s);
}

static void test_run_bridled(void **state)
{
    char id[BR_ID_MAX];
    (void)state;
    started();
    begin_asking(id);
    assert_true(kill_run_bridled(5000));
    expect_failed(id);
}

/* All at once: nobody is left of the run who could say anything. */
static void test_run_bridled_and_audit(void **state)
{
    char id[BR_ID_MAX];
    (void)state;
    started();
    begin_asking(id);
    pid_t audit = e2e_await(s.service, "bridle-audit", 0, 5000);
    assert_true(kill_run_bridled(5000));
    (void)kill(audit, SIGKILL);
    expect_failed(id);
}

static void test_peers(void **state)
{
    static const char *const names[] = {"bridle-session", "bridle-broker", "bridle-egress",
                                        "bridle-launch"};
    char id[BR_ID_MAX], want[128];
    (void)state;
    started();
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++) {
        begin_asking(id);
        kill_one(names[i], 0);
        snprintf(want, sizeof(want), "ENDED %s ", id);
        served_hear(&s, want);
        assert_string_not_equal(served_word(&s, 2), "OK");
        served_record(&s, id, "failed");
    }
    expect_works();
    served_stop(&s);
}

/* A little later each time: before its bridled has said anything, while the sandbox is made, while
 * it runs, at its end. Whatever it was, it is over, once, and is not called well if it was not. */
static void test_moments(void **state)
{
    static const unsigned after_ms[] = {0, 15, 40, 80, 160};
    char id[BR_ID_MAX], want[128];
    unsigned killed = 0; /* a run may be over by then */
    (void)state;
    started();
    for (size_t i = 0; i < BR_ARRAY_LEN(after_ms); i++) {
        served_begin(&s, "one", "echo", id);
        usleep(after_ms[i] * 1000);
        killed += kill_run_bridled(200);
        snprintf(want, sizeof(want), "ENDED %s ", id);
        served_hear(&s, want);
        bool well = strcmp(served_word(&s, 2), "OK") == 0;
        struct e2e_result r;
        e2e_run(&s.t, &r, "bridle", "show", id, "--json", NULL);
        const char *end = r.status == 0 ? strstr((char *)r.out.data, "\"agent.stopped\"") : NULL;
        bool completed = end && strstr(end, "\"status\":\"completed\"");
        assert_true(completed || !well); /* it may have been over, and nobody could say so */
        if (end)
            served_record(&s, id, completed ? "completed" : "failed");
        e2e_result_free(&r);
    }
    assert_true(killed >= 2);
    for (size_t i = 0; i < BR_ARRAY_LEN(after_ms); i += 2) {
        served_begin(&s, "one", "echo", id);
        usleep(after_ms[i] * 1000);
        kill_one("bridle-gateway", 0);
        assert_null(served_try(&s, "nothing"));
        served_connect(&s);
    }
    expect_works();
    served_stop(&s);
}

/* What exports figures dies: nobody's session does. */
static void test_telemetry(void **state)
{
    char id[BR_ID_MAX], want[128];
    (void)state;
    served_reset(&s);
    served_config(&s, "otlp = 'http://127.0.0.1:9'");
    served_start(&s, NULL, NULL);
    served_ready(&s);
    pid_t egress = e2e_await(s.service, "bridle-egress", 0, 5000);
    begin_asking(id);
    assert_int_equal(kill(egress, SIGKILL), 0);
    served_logged(&s, "nothing is exported");
    served_say(&s, "CANCEL %s 0", id);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id);
    served_hear(&s, want); /* of the same gateway */
    expect_works();
    served_stop(&s);
}

static void test_audit(void **state)
{
    char id[BR_ID_MAX], want[128];
    (void)state;
    started();
    begin_asking(id);
    kill_one("bridle-audit", 0);
    snprintf(want, sizeof(want), "ENDED %s ", id);
    served_hear(&s, want);
    assert_string_not_equal(served_word(&s, 2), "OK");
    expect_works(); /* what the dead one left open was closed by another */
    served_record(&s, id, "failed");
    served_stop(&s);
}

static int open_all(void **state)
{
    (void)state;
    served_open(&s, 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    served_close(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gateway),
        cmocka_unit_test(test_deaf_gateway),
        cmocka_unit_test(test_service),
        cmocka_unit_test(test_run_bridled),
        cmocka_unit_test(test_run_bridled_and_audit),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_telemetry),
        cmocka_unit_test(test_audit),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, open_all, close_all);
}
