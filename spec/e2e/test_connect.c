/*
 * bridle connect and bridle serve, as two terminals: runs in real sandboxes with a scripted model,
 * answers of the one who prompted and of another operator, the end of a client that is killed, a
 * session that is left and taken over, tokens, and a narrow terminal in tmux.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka needs the above first */
#include <cmocka.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/e2e.h"
#include "tls/test_certs.h"

#define ASK "these do (120 s): "
#define ASK_NARROW "else no (120 s):" /* tmux drops blanks at the end */

static struct e2e t;
static pid_t service;
static char url[160], bridle[BR_PATH_MAX], pty[BR_PATH_MAX];

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'served', rules = {\n"
    "  policy.allow { id = 'echo', action = 'process.exec', command = 'echo *' },\n"
    "  policy.ask { id = 'touch', action = 'process.exec', command = 'touch *' },\n"
    "} }\n";

static const char scenario[] =
    "{\"v\":1,\"name\":\"served\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"touch\"},\"text\":\"May I?\","
    "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"touch\",\"out/x\"]}}]},"
    "{\"when\":{\"assistant_messages\":0,\"last_user_contains\":\"echo\"},\"text\":\"I say it.\","
    "\"tool_calls\":[{\"name\":\"process_exec\",\"arguments\":{\"argv\":[\"echo\",\"\\u001b[31m"
    "hi\"]}}]},"
    "{\"text\":\"Done.\"}]}";

/* The line of the service that has this in it; free it. Before any other program is started, which
 * would write into the same file. */
static char *await_said(const char *text)
{
    for (int i = 0; i < 800; i++) {
        char *said = e2e_read(&t, "out.txt"), *at = said ? strstr(said, text) : NULL;
        char *line = at && strchr(at, '\n') ? strndup(at, strcspn(at, " \n")) : NULL;
        free(said);
        if (line)
            return line;
        (void)poll(NULL, 0, 25);
    }
    fail_msg("the service never says '%s'", text);
    return NULL;
}

/* Everything but the service. */
static void prepare(void)
{
    struct e2e_result r;
    e2e_open(&t, 0);
    snprintf(url, sizeof(url), "unix:%s/s.sock", t.dir);
    snprintf(bridle, sizeof(bridle), "%s/bridle", e2e_bin());
    snprintf(pty, sizeof(pty), "%s/../tests/ptydrive", e2e_bin());
    e2e_write(&t, "workspace/one/out/seed", "");
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

/* `settings` begins inside of the list of listeners. */
static void start(const char *settings)
{
    char text[2048];
    snprintf(text, sizeof(text), "return { api = 1, service = { root = '%s', listen = { %s } }\n",
             t.workspace, settings);
    e2e_write(&t, "bridle.lua", text);
    char *const argv[] = {(char *)"bridle",
                          (char *)"serve",
                          (char *)"-c",
                          (char *)"bridle.lua",
                          (char *)"-p",
                          (char *)"policy.lua",
                          (char *)"--scenario",
                          (char *)"scenario.json",
                          NULL};
    service = e2e_spawn(&t, argv, NULL);
    free(await_said("unix:"));
}

static void begin(const char *settings)
{
    char text[512];
    prepare();
    snprintf(text, sizeof(text), "'%s' }, %s", url + 5, settings);
    start(text);
}

static void end(void)
{
    struct e2e_result r;
    assert_int_equal(kill(service, SIGTERM), 0);
    e2e_wait(&t, service, 30, &r);
    service = 0;
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
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
        e2e_result_free(&r);
    }
    service = 0;
    return 0;
}

static void sees(struct e2e_result *r, int status, const char *text)
{
    e2e_expect(r, status, text);
    e2e_result_free(r);
}

/* The newest session's line of the list says this; waits a little. */
static void listed(const char *text)
{
    struct e2e_result r;
    for (int i = 0; i < 200; i++) {
        e2e_run(&t, &r, "bridle", "connect", url, "--list", NULL);
        bool says = r.status == 0 && e2e_says(&r, text);
        e2e_result_free(&r);
        if (says)
            return;
        (void)poll(NULL, 0, 25);
    }
    fail_msg("the list never says '%s'", text);
}

/* What the one before has left. */
static void forget(void)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/one/out/x", t.workspace);
    (void)unlink(path);
}

#define CONNECT "--", bridle, "connect", url, "-C", "workspace/one"

static void one_terminal(void)
{
    struct e2e_result r;
    e2e_run(&t, &r, "bridle", "connect", url, "-C", "workspace/one", "echo", "please", NULL);
    e2e_expect(&r, 0, "| Done.");
    e2e_expect(&r, 0, "> process_exec  argv: [\"echo\",\"\\u001B[31mhi\"]  ok");
    e2e_expect(&r, 0, "2 steps, 1 tool call, ");
    assert_null(memchr(r.out.data, 0x1b, r.out.len));
    e2e_result_free(&r);
    /* somebody answers, or nobody can */
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, "send:y", CONNECT, "touch", NULL);
    e2e_expect(&r, 0, "allowed by the operator");
    sees(&r, 0, "answered by uid:");
    e2e_expect_file(&t, "workspace/one/out/x", "");
    e2e_run(&t, &r, "bridle", "connect", url, "-C", "workspace/one", "touch", NULL);
    sees(&r, 0, "denied by the operator: there was no terminal");
    /* outside of the root, and a model that is not offered */
    e2e_run(&t, &r, "bridle", "connect", url, "-C", "/usr", "echo", NULL);
    sees(&r, 5, "refused 'session/new'");
    e2e_run(&t, &r, "bridle", "connect", url, "-C", "workspace/one", "-m", "nobody/none", "echo",
            NULL);
    sees(&r, 5, "does not offer the model 'nobody/none'; it offers scripted/");
    /* one prompt after another */
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", "bridle> ", "raw:echo it\r", "-e",
            "bridle> ", "raw:just talk\r", "-e", "bridle> ", "eof", CONNECT, NULL);
    e2e_expect(&r, 0, "I say it.");
    sees(&r, 0, "1 step, 0 tool calls");
    e2e_run(&t, &r, "bridle", "connect", url, "--list", "just talk", NULL);
    sees(&r, 0, "just talk");
    forget();
}

/* One has prompted, the other watches and answers; the first sees who it was. */
static void two_terminals(void)
{
    struct e2e_result r;
    char run[4 * BR_PATH_MAX];
    snprintf(run, sizeof(run),
             "run:'%s' -t 30 -e '" ASK "' send:y -- '%s' connect '%s' --watch "
             "$('%s' connect '%s' --list | head -n 1 | cut -d ' ' -f 1) > two.txt 2>&1",
             pty, bridle, url, bridle, url);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, run, CONNECT, "touch", NULL);
    e2e_expect(&r, 0, "answered by uid:");
    sees(&r, 0, "1 allowed");
    BR_CLEANUP_FREE char *two = e2e_read(&t, "two.txt");
    assert_non_null(two);
    if (!strstr(two, "May I?") || !strstr(two, "allowed by the operator") ||
        !strstr(two, "completed"))
        fail_msg("the second terminal: %s", two);
    e2e_expect_file(&t, "workspace/one/out/x", "");
    forget();
}

/* Canceled, and killed: what was asked is denied, and nothing was done. */
static void ends_of_a_client(void)
{
    struct e2e_result r;
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, "int", CONNECT, "touch", NULL);
    e2e_expect(&r, 1, "canceling...");
    sees(&r, 1, "the run was canceled (CANCELED)");
    listed("canceled");
    char *argv[] = {(char *)"../tests/ptydrive",
                    (char *)"-t",
                    (char *)"60",
                    (char *)"--",
                    bridle,
                    (char *)"connect",
                    url,
                    (char *)"-C",
                    (char *)"workspace/one",
                    (char *)"touch later",
                    NULL};
    pid_t driver = e2e_spawn(&t, argv, NULL);
    listed("running, asks\n  scripted/custom  touch later");
    pid_t client = e2e_await(driver, "bridle", 0, 5000);
    assert_true(client > 0);
    assert_int_equal(kill(client, SIGKILL), 0);
    e2e_wait(&t, driver, 30, &r);
    assert_int_equal(r.status, 128 + SIGKILL);
    e2e_result_free(&r);
    listed("canceled\n  scripted/custom  touch later");
    e2e_run(&t, &r, "bridle", "show", "last", NULL);
    sees(&r, 0, "canceled");
    /* the gateway is killed: the client says so, and the service goes on with another */
    argv[9] = (char *)"touch again";
    driver = e2e_spawn(&t, argv, NULL);
    listed("running, asks\n  scripted/custom  touch again");
    assert_int_equal(kill(e2e_await(service, "bridle-gateway", 0, 5000), SIGKILL), 0);
    e2e_wait(&t, driver, 30, &r);
    sees(&r, 1, "(PEER_GONE)");
    listed("canceled\n  scripted/custom  touch again");
    e2e_expect_file(&t, "workspace/one/out/x", NULL);
    forget();
}

/* Left running, watched, taken over and canceled; and where that is not allowed. */
static void test_detach(void **state)
{
    (void)state;
    struct e2e_result r;
    begin("detach = 'allow'");
    char run[2 * BR_PATH_MAX];
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, "raw:\034", CONNECT, "touch", NULL);
    sees(&r, 0, "it goes on without you: bridle connect unix:");
    listed("running, asks, detached");
    snprintf(run, sizeof(run),
             "exec '%s' connect '%s' --resume $('%s' connect '%s' --list | head "
             "-n 1 | cut -d ' ' -f 1)",
             bridle, url, bridle, url);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, "send:y", "--", "/bin/sh", "-c",
            run, NULL);
    e2e_expect(&r, 0, "May I?");
    sees(&r, 0, "allowed by the operator");
    listed("completed");
    e2e_expect_file(&t, "workspace/one/out/x", "");
    end();
    begin("");
    e2e_run(&t, &r, "bridle", "connect", url, "-C", "workspace/one", "--detach", "echo", NULL);
    sees(&r, 4, "nothing was started (DENIED)");
    e2e_run(&t, &r, "bridle", "connect", url, "--list", NULL);
    sees(&r, 0, "there are no sessions");
    end();
}

/* Forty columns, in tmux. */
static void test_tmux(void **state)
{
    (void)state;
    struct e2e_result r;
    char text[4 * BR_PATH_MAX];
    begin("");
    snprintf(text, sizeof(text),
             "#!/bin/sh\n"
             "tmux() { command tmux -S '%s/tmux' -f /dev/null \"$@\"; }\n"
             "wait_for() { for i in $(seq 400); do tmux capture-pane -p -S - -t t | "
             "grep -qF \"$1\" && return; sleep 0.05; done; echo never: \"$1\"; }\n"
             "tmux new-session -d -s t -x 40 -y 24 \"TERM=screen '%s' connect '%s' "
             "-C workspace/one touch; echo left \\$?; cat\"\n"
             "wait_for '" ASK_NARROW "'\n"
             "tmux send-keys -t t y Enter\n"
             "wait_for 'left 0'\n"
             "tmux capture-pane -p -S - -t t\n"
             "tmux kill-server\n",
             t.dir, bridle, url);
    e2e_write(&t, "tmux.sh", text);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "--", "/bin/sh", "tmux.sh", NULL);
    e2e_expect(&r, 0, "permission wanted: process.exec");
    e2e_expect(&r, 0, "y once, r run; else no (120 s): y");
    e2e_expect(&r, 0, "  did        2 steps, 1 call, ");
    if (e2e_says(&r, "never:"))
        fail_msg("%s", (char *)r.out.data);
    assert_false(e2e_says(&r, "working..."));
    e2e_result_free(&r);
    end();
}

/* ---- elsewhere --------------------------------------------------------------------------------
 */

static void write_pem(const char *path, const char *pem)
{
    char full[200];
    e2e_write(&t, path, pem);
    snprintf(full, sizeof(full), "%s/%s", t.dir, path);
    assert_int_equal(chmod(full, 0600), 0);
}

/* Over TCP: the peer's user is known here; with TLS it counts who is certified by whom. */
static void test_tls(void **state)
{
    (void)state;
    struct e2e_result r;
    char text[300];
    struct cert good =
        cert_make(NULL, &(struct cert_wish){.cn = "service", .san = "IP:127.0.0.1,DNS:localhost"});
    struct cert other =
        cert_make(NULL, &(struct cert_wish){.cn = "other", .san = "IP:127.0.0.1,DNS:localhost"});
    struct cert client = cert_make(NULL, &(struct cert_wish){.cn = "ops laptop"});
    prepare();
    write_pem("service.pem", good.pem);
    write_pem("service.key", good.key_pem);
    write_pem("other.pem", other.pem);
    write_pem("client.pem", client.pem);
    write_pem("client.key", client.key_pem);
    snprintf(text, sizeof(text),
             "'%s', '127.0.0.1:0', { address = '127.0.0.1:0', tls = true } }, tls = { cert = "
             "'%s/service.pem', "
             "key = '%s/service.key', client_ca = '%s/client.pem' }, "
             "certificates = { ['ops laptop'] = 'operate' }, ",
             url + 5, t.dir, t.dir, t.dir);
    start(text);
    BR_CLEANUP_FREE char *wss = await_said("wss://"), *ws = await_said("ws://");
    e2e_run(&t, &r, "bridle", "connect", ws, "-C", "workspace/one", "echo", NULL);
    sees(&r, 0, "| Done.");
    e2e_run(&t, &r, "bridle", "connect", wss, "--ca-file", "service.pem", "--cert", "client.pem",
            "--key", "client.key", "-C", "workspace/one", "echo", NULL);
    sees(&r, 0, "| Done.");
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", ASK, "send:y", "--", bridle, "connect",
            wss, "--ca-file", "service.pem", "--cert", "client.pem", "--key", "client.key", "-C",
            "workspace/one", "touch", NULL);
    sees(&r, 0, "answered by cert:ops laptop");
    e2e_run(&t, &r, "bridle", "connect", wss, "--ca-file", "other.pem", "--cert", "client.pem",
            "--key", "client.key", "--list", NULL);
    sees(&r, 4, "(DENIED)");
    e2e_run(&t, &r, "bridle", "connect", wss, "--list", NULL);
    sees(&r, 4, "(DENIED)");
    e2e_run(&t, &r, "bridle", "connect", wss, "--ca-file", "nowhere.pem", "--list", NULL);
    sees(&r, 3, "'nowhere.pem' does not exist");
    char plain[140]; /* to a listener that speaks TLS */
    snprintf(plain, sizeof(plain), "ws%s", wss + 3);
    e2e_run(&t, &r, "bridle", "connect", plain, "--timeout", "5", "--list", NULL);
    sees(&r, 1, "the URL begins with wss://");
    snprintf(plain, sizeof(plain), "wss%s", ws + 2);
    e2e_run(&t, &r, "bridle", "connect", plain, "--timeout", "5", "--list", NULL);
    sees(&r, 1, "the URL begins with ws://");
    end();
    cert_free(&good);
    cert_free(&other);
    cert_free(&client);
}

/* A token that is none is refused, also where the peer alone would do. */
static void token(void)
{
    struct e2e_result r;
    char text[200];
    e2e_run(&t, &r, "bridle", "token", "add", "watcher", "--access", "observe", NULL);
    e2e_expect(&r, 0, NULL);
    (void)br_buf_cstr(&r.out);
    snprintf(text, sizeof(text), "%.*s\n", (int)strcspn((char *)r.out.data, "\n"),
             (char *)r.out.data);
    e2e_result_free(&r);
    e2e_write(&t, "token", text);
    e2e_write(&t, "wrong", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n");
    char path[2][128];
    snprintf(path[0], sizeof(path[0]), "%s/token", t.dir);
    snprintf(path[1], sizeof(path[1]), "%s/wrong", t.dir);
    assert_int_equal(chmod(path[0], 0600), 0);
    assert_int_equal(chmod(path[1], 0600), 0);
    assert_int_equal(kill(service, SIGHUP), 0);
    for (int i = 0; i < 200; i++) { /* until it knows the token */
        e2e_run(&t, &r, "bridle", "connect", url, "--token-file", "token", "--list", NULL);
        if (r.status == 0 || i == 199)
            break;
        e2e_result_free(&r);
        (void)poll(NULL, 0, 25);
    }
    sees(&r, 0, "touch again");
    e2e_run(&t, &r, "bridle", "connect", url, "--token-file", "token", "-C", "workspace/one",
            "echo", NULL);
    sees(&r, 4, "may not call 'session/new' (DENIED)");
    e2e_run(&t, &r, "bridle", "connect", url, "--token-file", "wrong", "--list", NULL);
    sees(&r, 4, "refused the token of 'wrong'");
    forget();
}

/* On one service. */
static void test_here(void **state)
{
    (void)state;
    begin("");
    one_terminal();
    two_terminals();
    ends_of_a_client();
    token();
    end();
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_here, teardown),
        cmocka_unit_test_teardown(test_detach, teardown),
        cmocka_unit_test_teardown(test_tmux, teardown),
        cmocka_unit_test_teardown(test_tls, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
