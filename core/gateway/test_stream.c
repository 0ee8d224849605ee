/*
 * Events from bridle-audit to a client, through the real program: in order, as they were stored,
 * and never more at once than a strict client's queue has room for; and what becomes of a run whose
 * client does not read, whose service stops, or whose bridled has gone.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

static struct gate_rig r;

static struct gate_run *begin(struct gate_client **client, enum gate_way way)
{
    static const char prompt[] = "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/prompt\","
                                 "\"params\":{\"sessionId\":\"%s\",\"content\":\"go on\"}}";
    struct gate_client *c = gate_open(&r, way, "harness.acp.1");
    char text[512];
    gate_send_text(c, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"
                      "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"strict\","
                      "\"capabilities\":{\"streaming\":true,\"permissioning\":true}}}");
    assert_non_null(strstr(gate_read_text(c), "\"result\""));
    gate_send_text(c, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/new\",\"params\":{"
                      "\"workspace\":\"/srv/work/x\"}}");
    json_t *j = json_loads(gate_read_text(c), 0, NULL);
    const char *id = json_string_value(json_object_get(json_object_get(j, "result"), "sessionId"));
    assert_non_null(id);
    snprintf(text, sizeof(text), prompt, id);
    json_decref(j);
    gate_send_text(c, text);
    *client = c;
    return gate_wait_run(&r);
}

static void put_event(char dst[512], unsigned i)
{
    snprintf(dst, 512,
             "{\"v\":1,\"type\":\"task.updated\",\"eventId\":\"evt_%u\",\"at\":"
             "\"2026-03-01T10:00:00.000+00:00\",\"data\":{\"taskId\":\"t\",\"phase\":\"running\","
             "\"note\":\"%u\"}}",
             i, i);
}

static void burst(void **state)
{
    struct gate_client *c;
    char event[512], expected[1024];
    (void)state;
    gate_start(&r, NULL);
    struct gate_run *run = begin(&c, GATE_TCP);
    c->measured = true;
    for (unsigned i = 0; i < 10000; i++) {
        put_event(event, i);
        gate_event(run, event);
    }
    for (unsigned i = 0; i < 10000; i++) {
        put_event(event, i);
        int n = snprintf(expected, sizeof(expected),
                         "\"params\":{\"sessionId\":\"%s\",\"seq\":%u,\"event\":%s}}", run->id, i,
                         event);
        char *text = gate_read_text(c);
        if (!text || c->ntext < (size_t)n || strcmp(text + c->ntext - (size_t)n, expected) != 0)
            fail_msg("event %u: %s", i, text ? text : "(the end)");
    }
    assert_true(c->deepest <= 96);
    assert_true(c->deepest > 16); /* control: it was not one by one */
    gate_end(run, 0, "");
    gate_stop(&r);
}

static void little(struct br_service *s)
{
    s->queue_bytes = 64 * 1024;
}

/* Its queue is full, it is told so, and its run ends: nobody is there any more who could answer. */
static void never_reads(void **state)
{
    const struct gate_options o = {.settings = little};
    struct gate_client *c, *other;
    char event[512];
    (void)state;
    gate_start(&r, &o);
    struct gate_run *run = begin(&c, GATE_UNIX), *second = begin(&other, GATE_UNIX);
    c->mute = true; /* no pong: 96 events fill the window, the others the queue */
    unsigned i = 0;
    while (!run->ncancels && !r.ncanceled && i < 5000) {
        put_event(event, i++);
        gate_event(run, event);
        gate_serve(&r, i < 1000 ? 0 : 1); /* it is another process, and has to get there, too */
    }
    gate_until_count(&r, run->ncancels ? &run->ncancels : &r.ncanceled, 1, "the run's cancel");
    assert_true(i < 5000);
    gate_expect_close(c, 1013);
    put_event(event, 0); /* the other one is as it was */
    gate_event(second, event);
    assert_non_null(strstr(gate_read_text(other), "\"seq\":0"));
    gate_end(run, BR_E_CANCELED, "canceled");
    gate_end(second, 0, "");
    gate_stop(&r);
}

/* ---- the end of the service ---- */

static bool is_exited(void *ctx)
{
    return ((struct gate_rig *)ctx)->exited;
}

static void stopped(struct gate_run *run)
{
    gate_event_of(run, "agent.stopped",
                  "{\"agentId\":\"a\",\"status\":\"completed\",\"steps\":1,\"toolCalls\":0}");
    gate_end(run, 0, "");
}

static void drained(void **state)
{
    struct gate_client *c, *created, *late, *health;
    (void)state;
    gate_start(&r, NULL);
    struct gate_run *run = begin(&c, GATE_TCP);
    created = gate_open(&r, GATE_UNIX, "harness.acp.1");
    late = gate_connect(&r, GATE_TCP);
    gate_drain(&r, 30);
    gate_serve(&r, 50);
    assert_false(r.exited); /* something runs */
    assert_int_equal(r.ncanceled + run->ncancels, 0);
    assert_int_equal(gate_upgrade(late, "/acp", ""), 503);
    gate_close(late);
    late = gate_connect(&r, GATE_UNIX); /* who comes only now does not hang */
    assert_int_equal(gate_upgrade(late, "/acp", ""), 503);
    health = gate_http(&r, GATE_TCP, "GET", "/health", "");
    assert_int_equal(health->status, 503);
    assert_non_null(strstr(health->body, "\"ready\":false"));
    gate_close(health);
    stopped(run);
    assert_non_null(strstr(gate_read_text(c), "agent.stopped"));
    assert_non_null(strstr(gate_read_text(c), "\"id\":3")); /* the answer to its prompt */
    gate_expect_close(c, 1001);
    gate_expect_close(created, 1001);
    gate_close(c);
    gate_close(created);
    gate_close(late);
    gate_until(&r, is_exited, &r, "the end of the gateway");
    assert_int_equal(gate_wait_exit(&r), 0);
    gate_stop(&r);
}

static void cut(void **state)
{
    struct gate_client *c;
    (void)state;
    gate_start(&r, NULL);
    struct gate_run *run = begin(&c, GATE_TCP);
    gate_drain(&r, 0);
    while (!run->ncancels && !r.ncanceled)
        gate_serve(&r, 5);
    stopped(run);
    gate_expect_close(c, 1001);
    gate_close(c);
    gate_until(&r, is_exited, &r, "the end of the gateway");
    gate_stop(&r);
}

static void bridled_is_gone(void **state)
{
    struct gate_client *c;
    (void)state;
    gate_start(&r, NULL);
    (void)begin(&c, GATE_TCP);
    br_loop_unwatch_chan(r.loop, &r.bridled);
    br_chan_close(&r.bridled);
    gate_expect_close(c, 1011);
    gate_stop(&r);
}

/* ---- what it may ---- */

static void role(void **state)
{
    char path[64], text[8192];
    (void)state;
    gate_start(&r, NULL);
    snprintf(path, sizeof(path), "/proc/%d/status", (int)r.pid);
    assert_true(br_read_text(-1, path, text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "\nNoNewPrivs:\t1\n"));
    assert_non_null(strstr(text, "\nCapEff:\t0000000000000000\n"));
    assert_non_null(strstr(text, "\nCapPrm:\t0000000000000000\n"));
#ifndef BR_SANITIZED
    assert_non_null(strstr(text, "\nSeccomp:\t2\n"));
#endif
    if (geteuid() == 0) {
        assert_non_null(strstr(text, "\nUid:\t60718\t60718\t60718\t60718\n"));
        assert_non_null(strstr(text, "\nGroups:\t \n"));
    }
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst), cmocka_unit_test(never_reads),     cmocka_unit_test(drained),
        cmocka_unit_test(cut),   cmocka_unit_test(bridled_is_gone), cmocka_unit_test(role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
