/*
 * What clients saw when a program was killed under load: every event that a client got is in the
 * record, byte for byte, in its order and without a gap; records end once, with no question open;
 * nothing is left, and the next session works. The positive control is a round in which nobody is
 * killed: there clients see the whole record. Real programs throughout.
 */
#include "reload_rig.h"

#include <signal.h>
#include <sys/wait.h>

#define CLIENTS 3u
#define PATIENCE_MS 20000

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'seen', rules = {\n"
    "  policy.allow { id = 'sleep', action = 'process.exec', command = 'sleep *' } } }\n";

static const char scenario[] =
    "{\"v\":1,\"name\":\"seen\",\"delay_ms\":4,\"chunk_words\":1,\"turns\":["
    "{\"when\":{\"assistant_messages\":0},\"text\":\"one two three four five six seven eight nine "
    "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty\","
    "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"sleep\",\"0.15\"]}}]},"
    "{\"text\":\"and so on and on and on and on and on until it is done\"}]}";

static pid_t service;
static char url[160];
static unsigned events_seen, records_seen, killed, disturbed;

/* ---- the service and its clients ---- */

static void start(void)
{
    char path[128], socket[128];
    snprintf(socket, sizeof(socket), "%s/s.sock", t.dir);
    snprintf(url, sizeof(url), "unix:%s", socket);
    snprintf(path, sizeof(path), "%s/out.serve", t.dir);
    (void)unlink(path);
    char *argv[] = {(char *)"bridle",
                    (char *)"serve",
                    (char *)"--root",
                    t.workspace,
                    (char *)"--listen",
                    socket,
                    (char *)"-p",
                    (char *)"policy.lua",
                    (char *)"--scenario",
                    (char *)"scenario.json",
                    NULL};
    service = reload_spawn("serve", argv);
    for (int i = 0; i < PATIENCE_MS / 10; i++, usleep(10000)) {
        char *said = e2e_read(&t, "out.serve");
        bool ready = said && strstr(said, "Listening");
        free(said);
        if (ready)
            return;
    }
    fail_msg("the service is not ready: %s", e2e_read(&t, "err.serve"));
}

static pid_t connect_one(unsigned i)
{
    char name[8], one[128];
    snprintf(name, sizeof(name), "c%u", i);
    snprintf(one, sizeof(one), "%s/w%u", t.workspace, i);
    char *argv[] = {(char *)"bridle", (char *)"connect", url, (char *)"-C", one,
                    (char *)"--json", (char *)"hello",   NULL};
    return reload_spawn(name, argv);
}

/* ---- what they saw ---- */

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

/* The seq of a message, which must follow the one before it of its kind. */
static void expect_next(const char *line, const char *method, long *last)
{
    const char *seq = strstr(line, "\"seq\":");
    if (!strstr(line, method))
        return;
    assert_non_null(seq);
    assert_int_equal(strtol(seq + 6, NULL, 10), *last + 1);
    ++*last;
}

/* Each event of the output is in the record, in the same order; how many there were. */
static unsigned compare(char *out, const char *record)
{
    long seq = -1, own = -1;
    unsigned n = 0;
    char *save = NULL;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *event = strstr(line, "\"event\":{");
        if (!strstr(line, "/event\",\"params\"") || !event)
            continue;
        expect_next(line, "\"session/event\"", &seq);
        expect_next(line, "\"bridle/event\"", &own);
        event += strlen("\"event\":");
        size_t len = strlen(event);
        assert_true(len > 2 && strcmp(event + len - 2, "}}") == 0);
        event[len - 2] = '\0';
        const char *at = strstr(record, event);
        if (!at)
            fail_msg("a client saw what is not stored, or in another order: %.600s", event);
        record = at + len - 2;
        n++;
    }
    return n;
}

/* The record of a session, once it has its end: whoever was killed, somebody writes it. */
static void await_record(const char *id, struct e2e_result *shown)
{
    for (int i = 0; i < PATIENCE_MS / 50; i++, usleep(50000)) {
        e2e_run(&t, shown, "bridle", "show", id, "--json", NULL);
        e2e_expect(shown, 0, NULL);
        if (strstr((const char *)shown->out.data, "\"type\":\"agent.stopped\""))
            return;
        e2e_result_free(shown);
    }
    fail_msg("the record of '%s' has no end", id);
}

/* Whole: it saw all that there is. */
static void check(unsigned i, bool whole)
{
    char name[16], id[BR_ID_MAX];
    struct e2e_result shown;
    snprintf(name, sizeof(name), "out.c%u", i);
    char *out = e2e_read(&t, name);
    const char *at = out ? strstr(out, "\"sessionId\":\"run_") : NULL;
    if (!at || !strstr(out, "/event\"")) { /* killed before anything was shown */
        assert_false(whole);
        free(out);
        return;
    }
    snprintf(id, sizeof(id), "%.30s", at + strlen("\"sessionId\":\""));
    await_record(id, &shown);
    const char *record = (const char *)shown.out.data;
    assert_int_equal(count(record, "\"type\":\"agent.stopped\""), 1);
    assert_int_equal(count(record, "\"type\":\"permission.requested\""),
                     count(record, "\"type\":\"permission.resolved\""));
    unsigned seen = compare(out, record), stored = count(record, "{\"v\":1,\"type\":\"");
    assert_true(seen > 0 && seen <= stored);
    if (whole)
        assert_int_equal(seen, stored);
    events_seen += seen;
    records_seen++;
    e2e_result_free(&shown);
    free(out);
}

/* ---- rounds ---- */

static pid_t find(const char *victim)
{
    bool own = strcmp(victim, "bridled") == 0; /* of a run: the service is one, too */
    for (unsigned n = 0; n < 8; n++) {
        pid_t pid = e2e_find(service, victim, n);
        if (pid > 0 && (!own || pid != service))
            return pid;
    }
    return 0;
}

/* A client is shown what a model is asked: all programs are there. */
static void await_text(unsigned client)
{
    char name[16];
    snprintf(name, sizeof(name), "out.c%u", client);
    for (int i = 0; i < PATIENCE_MS / 2; i++, usleep(2000)) {
        char *out = e2e_read(&t, name);
        bool there = out && strstr(out, "model.request");
        free(out);
        if (there)
            return;
    }
    fail_msg("nothing is shown");
}

static void play(const char *victim, unsigned after_ms)
{
    char first[128];
    snprintf(first, sizeof(first), "%s/out.c0", t.dir);
    (void)unlink(first);
    pid_t clients[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i] = connect_one(i);
    if (victim) {
        await_text(0);
        usleep(after_ms * 1000);
        pid_t pid = strcmp(victim, "service") == 0 ? service : find(victim);
        if (pid > 0 && kill(pid, SIGKILL) == 0)
            killed++;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        char name[8];
        struct e2e_result end;
        snprintf(name, sizeof(name), "c%u", i);
        reload_wait(name, clients[i], &end);
        assert_int_not_equal(end.status, -1); /* it does not wait for what will not come */
        if (!victim)
            e2e_expect(&end, 0, NULL);
        disturbed += end.status != 0;
        e2e_result_free(&end);
    }
    if (victim && strcmp(victim, "service") == 0) {
        assert_int_equal(waitpid(service, NULL, 0), service);
        start();
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        check(i, !victim);
}

/* Told to end while all of them run: they come to their end, and are told so before it goes. */
static void drain(void)
{
    char out[128];
    pid_t clients[CLIENTS];
    int status = -1;
    for (unsigned i = 0; i < CLIENTS; i++) {
        snprintf(out, sizeof(out), "%s/out.c%u", t.dir, i);
        (void)unlink(out);
        clients[i] = connect_one(i);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        await_text(i);
    assert_int_equal(kill(service, SIGTERM), 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        char name[8];
        struct e2e_result end;
        snprintf(name, sizeof(name), "c%u", i);
        reload_wait(name, clients[i], &end);
        e2e_expect(&end, 0, NULL);
        e2e_result_free(&end);
        check(i, true);
    }
    assert_int_equal(waitpid(service, &status, 0), service);
    assert_int_equal(status, 0);
}

static void test_seen(void **state)
{
    static const struct {
        const char *victim;
        unsigned after_ms;
    } rounds[] = {
        {NULL, 0},       {"bridle-gateway", 60}, {"bridle-audit", 60},  {"bridle-session", 100},
        {"bridled", 60}, {"service", 100},       {"bridle-audit", 200}, {"bridle-egress", 20}};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rounds); i++)
        play(rounds[i].victim, rounds[i].after_ms);
    play(NULL, 0);
    assert_int_equal(killed, BR_ARRAY_LEN(rounds) - 1);
    assert_true(disturbed >= killed - 1); /* of a run that was over already nothing could be lost */
    assert_true(records_seen >= 2 * CLIENTS + BR_ARRAY_LEN(rounds) && events_seen > 100);
    drain();
    e2e_expect_clean(&t);
}

static int open_all(void **state)
{
    (void)state;
    e2e_open(&t, 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        char path[64];
        snprintf(path, sizeof(path), "workspace/w%u/out/seed", i);
        e2e_write(&t, path, "");
    }
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    start();
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    e2e_close(&t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seen)};
    e2e_isolate();
    return cmocka_run_group_tests(tests, open_all, close_all);
}
