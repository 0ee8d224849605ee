/*
 * Any one program killed at any moment: the run ends failed, the sandbox is gone, the record is
 * consistent, nothing hangs and nothing is left. Positive control: the same run, undisturbed, ends
 * well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

/* A command that runs long enough to be interrupted, then an answer. */
static const char scenario[] =
    "{\"v\":1,\"name\":\"kill\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0},\"text\":\"I wait a little.\",\"tool_calls\":[{\"name\":"
    "\"process_exec\",\"arguments\":{\"argv\":[\"sleep\",\"1.5\"]}}]},"
    "{\"when\":{},\"text\":\"Done.\"}]}";

static const char policy[] =
    "local policy = require \"bridle.policy\"\n"
    "return policy.bundle { api = 1, name = \"kill\", rules = {\n"
    "  policy.allow { id = \"sleep\", action = \"process.exec\", command = "
    "\"sleep *\" },\n"
    "} }\n";

static pid_t start(struct e2e *t)
{
    const char *const argv[] = {"bridle", "run",        "-C",         "workspace",
                                "-p",     "policy.lua", "--scenario", "scenario.json",
                                "wait",   NULL};
    e2e_write(t, "workspace/a.txt", "a\n");
    e2e_write(t, "scenario.json", scenario);
    e2e_write(t, "policy.lua", policy);
    return e2e_spawn(t, (char *const *)argv, NULL);
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* The record of the last run ends once, as `status`, with nothing open. */
static void expect_record(struct e2e *t, const char *status)
{
    struct e2e_result r;
    char want[64];
    e2e_run(t, &r, "bridle", "show", "last", "--json", NULL);
    const char *out = (const char *)r.out.data;
    assert_int_equal(r.status, 0);
    assert_int_equal(count(out, "\"type\":\"agent.stopped\""), 1);
    assert_int_equal(count(out, "\"type\":\"tool.call\""), count(out, "\"type\":\"tool.result\""));
    assert_int_equal(count(out, "\"type\":\"permission.requested\""),
                     count(out, "\"type\":\"permission.resolved\""));
    const char *last = strstr(out, "\"type\":\"agent.stopped\"");
    assert_null(strstr(last, "\n{")); /* it is the last event */
    snprintf(want, sizeof(want), "\"status\":\"%s\"", status);
    if (!strstr(last, want))
        fail_msg("expected %s in %s", want, last);
    e2e_result_free(&r);
}

static void test_undisturbed(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_wait(&t, start(&t), 60, &r);
    if (r.status != 0)
        fail_msg("status %d: %s\n%s", r.status, (char *)r.err.data, (char *)r.out.data);
    expect_record(&t, "completed");
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

struct victim {
    const char *comm;
    unsigned nth;
    unsigned after_ms; /* after it was first seen */
    const char *status;
};

static void kill_one(const struct victim *v)
{
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    pid_t pid = start(&t);
    /* only then is everything there, and the sweep of old records over */
    assert_true(e2e_await(pid, ".bridle-init", 0, 10000) > 0);
    pid_t victim = e2e_await(pid, v->comm, v->nth, 10000);
    if (!victim)
        fail_msg("'%s' was never seen", v->comm);
    usleep(v->after_ms * 1000u);
    assert_int_equal(kill(victim, SIGKILL), 0);
    e2e_wait(&t, pid, 40, &r);
    if (r.status <= 0)
        fail_msg("%s after %u ms: status %d\n%s%s", v->comm, v->after_ms, r.status,
                 (char *)r.out.data, (char *)r.err.data);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    expect_record(&t, v->status);
    e2e_close(&t);
}

static void test_victims(void **state)
{
    (void)state;
    static const struct victim victims[] = {
        {"bridle-session", 0, 700, "failed"},  {"bridle-audit", 0, 700, "failed"},
        {"bridle-script", 0, 700, "failed"},   {"bridle-script", 1, 700, "failed"},
        {"bridle-broker", 0, 700, "failed"},   {"bridle-egress", 0, 700, "failed"},
        {"bridle-scripted", 0, 700, "failed"}, {"bridle-launch", 0, 700, "failed"},
        {".bridle-init", 0, 300, "failed"},    {"bridled", 0, 700, "failed"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(victims); i++)
        kill_one(&victims[i]);
}

/* The moments of a start-up, in which a program may have nothing to lose yet. A record exists as
 * soon as the audit has said so; before that there is nothing to be inconsistent. */
static void test_moments(void **state)
{
    (void)state;
    static const char *const comms[] = {"bridle-session", "bridle-audit", "bridle-launch",
                                        "bridled"};
    for (size_t i = 0; i < BR_ARRAY_LEN(comms); i++) {
        for (unsigned ms = 0; ms <= 40; ms += 8) {
            struct e2e t;
            struct e2e_result r;
            e2e_open(&t, 0);
            pid_t pid = start(&t);
            pid_t victim = e2e_await(pid, comms[i], 0, 10000);
            usleep(ms * 1000u);
            if (victim)
                (void)kill(victim, SIGKILL);
            e2e_wait(&t, pid, 40, &r);
            if (r.status < 0)
                fail_msg("%s after %u ms: hangs\n%s%s", comms[i], ms, (char *)r.out.data,
                         (char *)r.err.data);
            e2e_result_free(&r);
            e2e_expect_clean(&t);
            e2e_run(&t, &r, "bridle", "show", "--json", NULL);
            assert_int_equal(r.status, 0);
            assert_int_equal(count((char *)r.out.data, "\"status\":\"running\""), 0);
            e2e_result_free(&r);
            e2e_close(&t);
        }
    }
}

/* The client itself: what it started ends with it. */
static void test_client_killed(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    e2e_open(&t, 0);
    pid_t pid = start(&t);
    assert_true(e2e_await(pid, ".bridle-init", 0, 10000) > 0);
    usleep(300000);
    kill(pid, SIGKILL);
    e2e_wait(&t, pid, 5, &r);
    e2e_result_free(&r);
    for (int i = 0; i < 100 && e2e_find(1, "bridle-audit", 0); i++)
        usleep(100000);
    e2e_expect_clean(&t);
    expect_record(&t, "canceled");
    e2e_close(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undisturbed),
        cmocka_unit_test(test_victims),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_client_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
