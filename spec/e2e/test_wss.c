/*
 * wss end to end: bridle serve with certificates, its bridle-tls and its gateway, and clients whose
 * TLS is a bridle-tls of their own, as that of 'bridle connect' is. Who has a certificate that the
 * operator named works; who has another, none, or one of another authority does not get in, and
 * nobody sends anything to a server that is not the one that was meant.
 */
#include "strict_client.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/e2e.h"
#include "tls/test_rig.h"

static struct e2e t;
static pid_t service;
static unsigned port;
static struct cert authority, other, server, laptop, watcher, stranger, foreign;

static const char policy[] =
    "local policy = require 'bridle.policy'\n"
    "return policy.bundle { api = 1, name = 'wss', rules = {\n"
    "  policy.allow { id = 'echo', action = 'process.exec', command = 'echo *' } } }\n";
static const char scenario[] =
    "{\"v\":1,\"name\":\"wss\",\"turns\":["
    "{\"when\":{\"assistant_messages\":0},\"text\":\"I say it.\",\"tool_calls\":[{\"name\":"
    "\"process_exec\",\"arguments\":{\"argv\":[\"echo\",\"hi\"]}}]},{\"text\":\"Done.\"}]}";

/* ---- the service ---- */

static void put_certificate(const struct cert *c)
{
    char path[128];
    e2e_write(&t, "server.pem", c->pem);
    e2e_write(&t, "server.key", c->key_pem);
    snprintf(path, sizeof(path), "%s/server.key", t.dir);
    assert_int_equal(chmod(path, 0600), 0);
}

/* bridle.lua; `tls`: more of its table. */
static void put_config(const char *tls)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "return { api = 1, service = { root = '%s', "
             "listen = { { address = '127.0.0.1:0', tls = true } }, "
             "certificates = { ['ops laptop'] = 'operate', watcher = 'observe' }, "
             "tls = { cert = '%s/server.pem', key = '%s/server.key', %s } } }\n",
             t.workspace, t.dir, t.dir, tls);
    e2e_write(&t, "bridle.lua", text);
}

static pid_t spawn(void)
{
    char config[128], rules[128], played[128];
    snprintf(config, sizeof(config), "%s/bridle.lua", t.dir);
    snprintf(rules, sizeof(rules), "%s/policy.lua", t.dir);
    snprintf(played, sizeof(played), "%s/scenario.json", t.dir);
    char *const argv[] = {
        (char *)"bridle",     (char *)"serve", (char *)"-c", config, (char *)"-p", rules,
        (char *)"--scenario", played,          NULL};
    return e2e_spawn(&t, argv, NULL);
}

/* The file of its output, whose name e2e_spawn() chooses. */
static bool said(const char *what, unsigned *number)
{
    char command[160], line[512];
    bool found = false;
    snprintf(command, sizeof(command), "cat %s/out.* 2>/dev/null", t.dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (!found && fgets(line, sizeof(line), f)) {
        char *at = strstr(line, what);
        found = at && sscanf(at + strlen(what), "%u", number) == 1;
    }
    pclose(f);
    return found;
}

static void begin(const char *require)
{
    char tls[256];
    struct e2e_result r;
    e2e_open(&t, 0);
    e2e_write(&t, "workspace/one/out/seed", "");
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    e2e_write(&t, "ca.pem", authority.pem);
    put_certificate(&server);
    snprintf(tls, sizeof(tls), "client_ca = '%s/ca.pem', require_client_cert = %s", t.dir, require);
    put_config(tls);
    e2e_run(&t, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    service = spawn();
    for (unsigned i = 0; i < 2000 && !said("wss://127.0.0.1:", &port); i++)
        usleep(10000);
    assert_true(port > 0);
}

static void end(void)
{
    struct e2e_result r;
    assert_int_equal(kill(service, SIGTERM), 0);
    e2e_wait(&t, service, 30, &r);
    service = 0;
    e2e_expect(&r, 0, NULL);
    assert_false(e2e_says(&r, "PRIVATE"));
    if (e2e_says(&r, "started anew"))
        fail_msg("a program of the service ended: %s", (char *)r.err.data);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
    port = 0;
}

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

/* ---- clients ---- */

struct client {
    struct tls_rig tls;
    struct strict c;
};

/* Connect, and upgrade: 0, or a negative code; -BR_E_PEER_PROTOCOL where TLS did not come about. */
static int dial(struct client *k, const struct cert *trust, const struct cert *mine,
                const char *bearer)
{
    int fd = tls_rig_connect(&k->tls, "localhost", tls_dial(port),
                             &(struct tls_rig_options){.authorities = trust->pem,
                                                       .chain = mine ? mine->pem : NULL,
                                                       .key = mine ? mine->key_pem : NULL});
    if (fd < 0) {
        k->c = (struct strict){.fd = -1};
        return -BR_E_PEER_PROTOCOL;
    }
    return strict_upgrade(&k->c, fd, bearer);
}

static void hang_up(struct client *k)
{
    strict_close(&k->c);
    (void)tls_rig_stop(&k->tls);
}

static void assert_runs(struct client *k)
{
    char where[160];
    strict_initialize(&k->c, false);
    snprintf(where, sizeof(where), "%s/one", t.workspace);
    strict_new(&k->c, where);
    strict_prompt(&k->c, "say it");
    assert_non_null(strstr(strict_until(&k->c, "\"id\":2,"), "\"status\":\"completed\""));
    assert_true(k->c.stopped && k->c.next_seq > 5);
}

static void test_mutual(void **state)
{
    struct client k;
    struct e2e_result r;
    (void)state;
    begin("true");
    assert_int_equal(dial(&k, &authority, &laptop, ""), 0);
    assert_runs(&k);
    e2e_run(&t, &r, "bridle", "show", k.c.session, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    hang_up(&k);
    /* it may look, and nothing else */
    assert_int_equal(dial(&k, &authority, &watcher, ""), 0);
    strict_initialize(&k.c, true);
    strict_say(&k.c, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/list\",\"params\":{}}");
    assert_non_null(strstr(strict_until(&k.c, "\"id\":3"), "\"sessions\":[{"));
    strict_say(&k.c,
               "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"session/new\",\"params\":{"
               "\"workspace\":\"%s/one\"}}",
               t.workspace);
    assert_non_null(strstr(strict_until(&k.c, "\"id\":4"), "-32030"));
    hang_up(&k);
    /* an authority's certificate is not enough: the operator has to know the name */
    assert_int_equal(dial(&k, &authority, &stranger, ""), -BR_E_DENIED);
    hang_up(&k);
    end();
}

static void test_who_does_not_get_in(void **state)
{
    struct client k;
    (void)state;
    begin("true");
    /* no certificate, one of another authority with the same names, one for servers */
    const struct cert *const bad[] = {NULL, &foreign, &server};
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        int code = dial(&k, &authority, bad[i], "");
        assert_true(code == -BR_E_PEER_GONE || code == -BR_E_PEER_PROTOCOL);
        hang_up(&k);
    }
    /* a server that nobody vouches for gets no byte of HTTP */
    assert_int_equal(dial(&k, &other, &laptop, ""), -BR_E_PEER_PROTOCOL);
    assert_string_equal(k.tls.ready_code, "DENIED");
    hang_up(&k);
    assert_int_equal(dial(&k, &authority, &laptop, ""), 0); /* the control */
    assert_runs(&k);
    hang_up(&k);
    end();
}

/* Where a certificate is not required, a token does as well; an address says nothing. */
static void test_tokens(void **state)
{
    struct client k;
    struct e2e_result r;
    char token[80];
    (void)state;
    begin("false");
    assert_int_equal(dial(&k, &authority, NULL, ""), -BR_E_DENIED);
    hang_up(&k);
    e2e_run(&t, &r, "bridle", "token", "add", "remote", "--access", "operate", NULL);
    e2e_expect(&r, 0, NULL);
    snprintf(token, sizeof(token), "%.*s", (int)strcspn((char *)r.out.data, "\n"),
             (char *)r.out.data);
    e2e_result_free(&r);
    assert_int_equal(strlen(token), 64);
    assert_int_equal(kill(service, SIGHUP), 0);
    int code = -1;
    for (unsigned i = 0; i < 200 && code != 0; i++) { /* when it was read */
        code = dial(&k, &authority, NULL, token);
        if (code != 0) {
            hang_up(&k);
            usleep(50000);
        }
    }
    assert_int_equal(code, 0);
    assert_runs(&k);
    hang_up(&k);
    end();
}

/* A new certificate from now on, a wrong one never; who is connected stays so. */
static void test_reload(void **state)
{
    struct client k, old;
    (void)state;
    struct cert fresh = cert_make(
        &other, &(struct cert_wish){.cn = "server", .san = "DNS:localhost", .usage = "serverAuth"});
    begin("true");
    assert_int_equal(dial(&old, &authority, &laptop, ""), 0);
    put_certificate(&fresh);
    e2e_write(&t, "server.key", server.key_pem);
    assert_int_equal(kill(service, SIGHUP), 0);
    usleep(500000); /* it may take its time; nothing is to happen */
    assert_int_equal(dial(&k, &authority, &laptop, ""), 0);
    hang_up(&k);
    put_certificate(&fresh);
    assert_int_equal(kill(service, SIGHUP), 0);
    int code = -1;
    for (unsigned i = 0; i < 200 && code != 0; i++) {
        code = dial(&k, &other, &laptop, "");
        if (code != 0) {
            hang_up(&k);
            usleep(50000);
        }
    }
    assert_int_equal(code, 0);
    assert_runs(&k);
    hang_up(&k);
    assert_runs(&old);
    hang_up(&old);
    end();
    cert_free(&fresh);
}

/* bridle-tls is killed: its connections end, the next ones are served. Then the service is told to
 * stop: a client hears it. */
static void test_killed_and_stopped(void **state)
{
    struct client k;
    struct e2e_result r;
    (void)state;
    begin("true");
    assert_int_equal(dial(&k, &authority, &laptop, ""), 0);
    pid_t pid = e2e_find(service, "bridle-tls", 0);
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_null(strict_hear(&k.c));
    hang_up(&k);
    int code = -1;
    for (unsigned i = 0; i < 200 && code != 0; i++) {
        code = dial(&k, &authority, &laptop, "");
        if (code != 0) {
            hang_up(&k);
            usleep(50000);
        }
    }
    assert_int_equal(code, 0);
    assert_runs(&k);
    assert_int_equal(kill(service, SIGTERM), 0);
    assert_null(strict_hear(&k.c));
    assert_int_equal(k.c.close_code, 1001);
    hang_up(&k);
    e2e_wait(&t, service, 30, &r);
    service = 0;
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
    port = 0;
}

/* A key that is not the certificate's: nothing is served at all. */
static void test_wrong_key(void **state)
{
    struct e2e_result r;
    char path[128];
    (void)state;
    e2e_open(&t, 0);
    e2e_write(&t, "policy.lua", policy);
    e2e_write(&t, "scenario.json", scenario);
    put_certificate(&server);
    e2e_write(&t, "server.key", laptop.key_pem);
    snprintf(path, sizeof(path), "%s/server.key", t.dir);
    assert_int_equal(chmod(path, 0600), 0);
    put_config("");
    service = spawn();
    e2e_wait(&t, service, 30, &r);
    service = 0;
    e2e_expect(&r, 5, "the private key does not belong to the certificate");
    assert_false(e2e_says(&r, "Listening"));
    e2e_result_free(&r);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_mutual, teardown),
        cmocka_unit_test_teardown(test_who_does_not_get_in, teardown),
        cmocka_unit_test_teardown(test_tokens, teardown),
        cmocka_unit_test_teardown(test_reload, teardown),
        cmocka_unit_test_teardown(test_killed_and_stopped, teardown),
        cmocka_unit_test_teardown(test_wrong_key, teardown),
    };
    e2e_isolate();
    (void)signal(SIGPIPE, SIG_IGN);
    authority = cert_make(NULL, &(struct cert_wish){.cn = "authority"});
    other = cert_make(NULL, &(struct cert_wish){.cn = "authority"});
    server = cert_make(
        &authority,
        &(struct cert_wish){.cn = "server", .san = "DNS:localhost", .usage = "serverAuth"});
    laptop = cert_make(&authority, &(struct cert_wish){.cn = "ops laptop", .usage = "clientAuth"});
    watcher = cert_make(&authority, &(struct cert_wish){.cn = "watcher", .usage = "clientAuth"});
    stranger = cert_make(&authority, &(struct cert_wish){.cn = "stranger", .usage = "clientAuth"});
    foreign = cert_make(&other, &(struct cert_wish){.cn = "ops laptop", .usage = "clientAuth"});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
