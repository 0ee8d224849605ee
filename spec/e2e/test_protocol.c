/*
 * The service protocol against the whole service: bridle serve, its gateway, real runs in real
 * sandboxes with the scripted provider. What a client was shown is what is stored, byte for byte;
 * what it asked for has happened, and nothing else; nothing is left when it goes, in whatever state
 * that was, and when the gateway is killed.
 */
#include "strict_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/e2e.h"

static struct e2e t;
static pid_t service;
static char sock[128];

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'served', rules = {\n"
    "  policy.allow { id = 'echo', action = 'process.exec', command = 'echo *' },\n"
    "  policy.ask { id = 'touch', action = 'process.exec', command = 'touch *' },\n"
    "} }\n";

#define CALL(a, b) "{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"" a "\",\"" b "\"]}}"
/* `touch`: two files, both asked. `load`: thirty turns of echo, each with a text. `echo`: one. */
#define TURN(n)                                                                                    \
    "{\"when\":{\"assistant_messages\":" #n ",\"last_tool_contains\":\"load\"},\"text\":"          \
    "\"Turn " #n ".\",\"tool_calls\":[" CALL("echo", "load") "," CALL("echo", "load") "]},"
static const char scenario[] =
    "{\"v\":1,\"name\":\"served\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"touch\"},\"text\":\"May I?\","
    "\"tool_calls\":[" CALL("touch", "out/a") "," CALL(
        "touch",
        "out/b") "]},"
                 "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"echo\"},\"text\":"
                 "\"I say it.\","
                 "\"tool_calls\":[" CALL(
                     "echo", "hi") "]},"
                                   "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":"
                                   "\"load\"},\"text\":\"Much.\","
                                   "\"tool_calls\":[" CALL("echo", "load") "]}," TURN(1) TURN(2)
                                       TURN(3) TURN(4) TURN(5) TURN(6) TURN(7) TURN(8) TURN(9)
                                           TURN(10) TURN(11) TURN(12) TURN(13) TURN(14) TURN(15)
                                               TURN(16) TURN(17) TURN(18) TURN(19) TURN(20) TURN(21)
                                                   TURN(22) TURN(23) TURN(24) TURN(25) TURN(26)
                                                       TURN(27) TURN(28)
                                                           TURN(29) "{\"text\":\"Done.\"}]}";

/* ---- the service ---- */

static void begin(const char *settings)
{
    char text[2048], config[128], rules[128], played[128];
    struct e2e_result r;
    e2e_open(&t, 0);
    snprintf(sock, sizeof(sock), "%s/serve.sock", t.dir);
    e2e_write(&t, "workspace/one/out/seed", "");
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    snprintf(text, sizeof(text), "return { api = 1, service = { root = '%s', %s } }\n", t.workspace,
             settings);
    e2e_write(&t, "bridle.lua", text);
    snprintf(config, sizeof(config), "%s/bridle.lua", t.dir);
    snprintf(rules, sizeof(rules), "%s/policy.lua", t.dir);
    snprintf(played, sizeof(played), "%s/scenario.json", t.dir);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    char *const argv[] = {
        (char *)"bridle",     (char *)"serve", (char *)"-c",       config, (char *)"-p", rules,
        (char *)"--scenario", played,          (char *)"--listen", sock,   NULL};
    service = e2e_spawn(&t, argv, NULL);
}

static void end(void)
{
    struct e2e_result r;
    assert_int_equal(kill(service, SIGTERM), 0);
    e2e_wait(&t, service, 30, &r);
    service = 0;
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_clean(&t); /* no program, no sandbox */
    e2e_close(&t);
}

/* Of a test that failed: nothing that it started goes on. */
static int teardown(void **state)
{
    struct e2e_result r;
    (void)state;
    if (service > 0) {
        (void)kill(service, SIGKILL);
        e2e_wait(&t, service, 10, &r);
        if (r.err.data)
            fprintf(stderr, "%.2000s\n", (char *)r.err.data);
        e2e_result_free(&r);
    }
    service = 0;
    return 0;
}

/* ---- the store ---- */

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (const char *p = text; p && (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static char *record(const char *id)
{
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "show", id, "--json", NULL);
    e2e_expect(&r, 0, NULL);
    char *text = strdup(r.out.data ? (char *)r.out.data : "");
    e2e_result_free(&r);
    return text;
}

/* An event that any client is shown; the first line is about the run. */
static bool is_shown(const char *line)
{
    return strncmp(line, "{\"v\":1,", 7) == 0 &&
           strncmp(line, "{\"v\":1,\"type\":\"bridle.", 22) != 0;
}

/* It ended once and so, nothing in it is open, and what the client saw is a beginning of it; all
 * of it if it saw the end. */
static void check_record(const char *id, const char *status, const struct strict *c)
{
    char *text = record(id), want[64], *save = NULL;
    snprintf(want, sizeof(want), "\"status\":\"%s\"", status);
    assert_int_equal(count(text, "\"type\":\"agent.stopped\""), 1);
    assert_int_equal(count(text, "\"type\":\"permission.requested\""),
                     count(text, "\"type\":\"permission.resolved\""));
    assert_int_equal(count(text, "\"type\":\"tool.call\""),
                     count(text, "\"type\":\"tool.result\""));
    if (!strstr(strstr(text, "\"type\":\"agent.stopped\""), want))
        fail_msg("it is not %s: %s", status, strstr(text, "\"type\":\"agent.stopped\""));
    size_t off = 0, n = c ? c->seen.len : 0;
    for (char *line = strtok_r(text, "\n", &save); line && off < n;
         line = strtok_r(NULL, "\n", &save)) {
        size_t len = strlen(line);
        if (!is_shown(line))
            continue;
        if (n - off < len + 1 || memcmp(c->seen.data + off, line, len) != 0 ||
            c->seen.data[off + len] != '\n')
            fail_msg("shown: %.*s stored: %s", (int)(n - off), (char *)c->seen.data + off, line);
        off += len + 1;
        assert_true(off < n || !c->stopped || strstr(line, "\"type\":\"agent.stopped\""));
    }
    assert_int_equal(off, n); /* nothing was shown that is not stored */
    free(text);
}

static bool exists(const char *path)
{
    char full[256];
    struct stat st;
    snprintf(full, sizeof(full), "%s/one/%s", t.workspace, path);
    return stat(full, &st) == 0;
}

static void remove_files(void)
{
    char full[256];
    for (const char *p = "ab"; *p; p++) {
        snprintf(full, sizeof(full), "%s/one/out/%c", t.workspace, *p);
        (void)unlink(full);
    }
}

/* ---- runs and questions ---- */

static void test_run_and_asks(void **state)
{
    struct strict c, second;
    char id[2][BR_ID_MAX], session[BR_ID_MAX];
    (void)state;
    begin("");
    strict_open(&c, sock, false);
    strict_open(&second, sock, true);
    strict_new(&c, "one");
    strict_prompt(&c, "echo");
    strict_until(&c, "\"type\":\"agent.stopped\"");
    const char *text = strict_hear(&c);
    assert_non_null(strstr(text, "\"id\":2,\"result\":{\"status\":\"completed\",\"events\":[],"
                                 "\"finalText\":\"Done.\",\"usage\":{\"promptTokens\":"));
    check_record(c.session, "completed", &c);
    assert_true(c.next_seq > 8 && !strstr(br_buf_cstr(&c.seen), "bridle."));
    /* a question of each kind of answer; the second of them by another client */
    strict_new(&c, "one");
    strict_prompt(&c, "touch");
    strict_asked(&c, id[0]);
    strict_asked(&c, id[1]);
    snprintf(session, sizeof(session), "%s", c.session);
    assert_false(exists("out/a") || exists("out/b"));
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
    assert_true(!exists("out/a") && exists("out/b"));
    check_record(session, "completed", &c);
    char *stored = record(session);
    assert_int_equal(count(stored, "\"decision\":\"deny\""),
                     2); /* resolution and bridle.answered */
    assert_int_equal(count(stored, "\"type\":\"bridle.answered\""), 2);
    free(stored);
    /* what has ended is answered no more, and loaded as it was */
    strict_respond(&c, session, id[1], "allow");
    strict_until(&c, "ACP_PERMISSION_RESOLVED");
    strict_close(&second);
    strict_open(&second, sock, true);
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
    end();
}

static void test_time_runs_out(void **state)
{
    struct strict c;
    char id[BR_ID_MAX];
    (void)state;
    begin("limits = { ask_seconds = 1 }");
    strict_open(&c, sock, false);
    strict_new(&c, "one");
    strict_prompt(&c, "touch");
    strict_asked(&c, id);
    strict_until(&c, "\"type\":\"permission.resolved\"");
    assert_non_null(strstr(c.text, "\"actor\":\"kernel\""));
    strict_respond(&c, c.session, id, "allow");
    strict_until(&c, "ACP_PERMISSION_RESOLVED");
    strict_until(&c, "\"id\":2,\"result\"");
    assert_false(exists("out/a") || exists("out/b"));
    check_record(c.session, "completed", &c);
    char *stored = record(c.session);
    assert_int_equal(count(stored, "\"decision\":\"deny\""), 2);
    free(stored);
    strict_close(&c);
    end();
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
    begin("");
    strict_open(&c, sock, false);
    for (enum when w = CREATED; w < WHENS; w++) {
        come_to(&c, w, session);
        strict_say(&c,
                   "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/cancel\",\"params\":{"
                   "\"sessionId\":\"%s\"}}",
                   session);
        strict_until(&c, "\"id\":3,\"result\":{\"canceled\":true}");
        if (c.next_seq) { /* one that had not begun has no record */
            assert_true(c.stopped);
            check_record(session, "canceled", &c);
        }
        strict_prompt(&c, "touch");
        strict_until(&c, "ACP_SESSION_ALREADY_RUN");
        assert_false(exists("out/a") || exists("out/b"));
    }
    strict_close(&c);
    end();
}

/* Wait until the record of a session has its end. */
static void await_record(const char *id)
{
    for (int i = 0; i < 1000; i++, usleep(20000)) {
        struct e2e_result r;
        e2e_run(&t, &r, "bridle", "show", id, "--json", NULL);
        bool done = r.status == 0 && e2e_says(&r, "\"type\":\"agent.stopped\"");
        e2e_result_free(&r);
        if (done)
            return;
    }
    fail_msg("the record of '%s' does not end", id);
}

static void test_disconnect(void **state)
{
    char session[BR_ID_MAX];
    (void)state;
    begin("");
    for (enum when w = CREATED; w < WHENS; w++) {
        struct strict c;
        strict_open(&c, sock, false);
        come_to(&c, w, session);
        br_close(&c.fd);
        if (w >= STARTED) { /* before that it may not have begun at all */
            await_record(session);
            check_record(session, "canceled", &c);
        }
        strict_close(&c);
        assert_false(exists("out/a") || exists("out/b"));
    }
    end();
}

/* ---- the gateway is killed ---- */

static void test_killed_gateway(void **state)
{
    enum { N = 3 };
    static struct strict c[N];
    char asked[BR_ID_MAX], session[BR_ID_MAX], id[BR_ID_MAX];
    struct strict one;
    (void)state;
    begin("");
    strict_open(&one, sock, false);
    strict_new(&one, "one");
    strict_prompt(&one, "touch");
    strict_asked(&one, asked);
    snprintf(session, sizeof(session), "%s", one.session);
    for (unsigned i = 0; i < N; i++) {
        strict_open(&c[i], sock, false);
        strict_new(&c[i], "one");
        strict_prompt(&c[i], "load");
    }
    for (unsigned i = 0; i < N; i++) /* at different places */
        for (unsigned k = 0; k < 1 + i; k++)
            strict_until(&c[i], "\"type\":\"tool.result\"");
    pid_t gateway = e2e_await(service, "bridle-gateway", 0, 2000);
    assert_true(gateway > 0);
    assert_int_equal(kill(gateway, SIGKILL), 0);
    for (unsigned i = 0; i < N; i++) {
        while (strict_hear(&c[i])) /* what was on its way */
            ;
        await_record(c[i].session);
        check_record(c[i].session, c[i].stopped ? "completed" : "canceled", &c[i]);
    }
    await_record(session);
    check_record(session, "canceled", &one);
    assert_false(exists("out/a") || exists("out/b"));
    /* it is there again, and knows nothing of what was */
    strict_close(&one);
    strict_open(&one, sock, true);
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
    check_record(one.session, "completed", &one);
    assert_true(exists("out/a") && !exists("out/b"));
    remove_files();
    strict_close(&one);
    for (unsigned i = 0; i < N; i++)
        strict_close(&c[i]);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_run_and_asks, teardown),
        cmocka_unit_test_teardown(test_time_runs_out, teardown),
        cmocka_unit_test_teardown(test_cancel, teardown),
        cmocka_unit_test_teardown(test_disconnect, teardown),
        cmocka_unit_test_teardown(test_killed_gateway, teardown),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
