/*
 * The life of a service: systemd is told and passes sockets, settings are replaced as a whole or
 * not at all, it ends when it is told to, and whichever of its programs is killed: no permission is
 * left open, records are closed, nothing is left, and the next session works.
 */
#include "serve_rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tls/test_certs.h"

static struct served s;

static void notify_here(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(s.notify, sizeof(s.notify), "%s/notify", s.t.dir);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", s.notify);
    s.notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s.notified, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(chmod(s.notify, 0666), 0);
}

static void started(const char *service)
{
    served_reset(&s);
    served_config(&s, service);
    served_start(&s, NULL, NULL);
    served_ready(&s);
}

/* Begin a run and wait until it asks. */
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

/* The service could not be started, and says why; nothing listens. */
static void expect_refusal(int status, const char *why)
{
    struct stat st;
    assert_int_equal(served_ended(&s), status);
    served_logged(&s, why);
    assert_int_not_equal(lstat(s.socket, &st), 0);
}

/* ---- systemd ---- */

static void test_notify(void **state)
{
    char *const env[] = {(char *)"WATCHDOG_USEC=400000", NULL};
    (void)state;
    served_reset(&s);
    notify_here();
    served_start(&s, NULL, env);
    served_notified(&s, "READY=1");
    served_ready(&s);
    served_notified(&s, "WATCHDOG=1");
    served_notified(&s, "WATCHDOG=1");
    assert_int_equal(kill(s.service, SIGHUP), 0);
    served_notified(&s, "RELOADING=1\nMONOTONIC_USEC=");
    served_notified(&s, "READY=1");
    assert_int_equal(kill(s.service, SIGTERM), 0);
    served_notified(&s, "STOPPING=1");
    assert_int_equal(served_ended(&s), 0);
    served_stop(&s);
}

/* Sockets as systemd passes them: from descriptor 3 on, in this process. */
struct passed {
    int fds[3];
    unsigned n;
    const char *names, *pid;
};

static void start_with(const struct passed *p, bool own)
{
    char fds[32], names[64], pid[32];
    char *none[] = {NULL}, *listen[] = {(char *)"--listen", s.socket, NULL};
    char *env[] = {fds, names, pid, NULL};
    snprintf(fds, sizeof(fds), "LISTEN_FDS=%u", p->n);
    snprintf(names, sizeof(names), "LISTEN_FDNAMES=%s", p->names);
    pid_t now = fork();
    if (now == 0) { /* the service has this process's id, as systemd's children do */
        for (unsigned i = 0; i < p->n; i++)
            assert_int_equal(fcntl(p->fds[i], F_DUPFD, 20 + i), 20 + (int)i);
        for (unsigned i = 0; i < p->n; i++)
            assert_int_equal(dup2(20 + (int)i, 3 + (int)i), 3 + (int)i);
        snprintf(pid, sizeof(pid), "LISTEN_PID=%s%d", p->pid, (int)getpid());
        served_become(&s, own ? listen : none, env);
    }
    s.service = now;
}

static int unix_socket(bool listens)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", s.socket);
    (void)unlink(s.socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(chmod(s.socket, 0666), 0);
    if (listens)
        assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static int tcp_socket(uint32_t address)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void test_activation(void **state)
{
    struct stat st;
    (void)state;
    served_reset(&s);
    struct passed p = {.names = "a:b", .pid = "", .n = 2};
    p.fds[0] = unix_socket(true);
    p.fds[1] = tcp_socket(INADDR_LOOPBACK);
    start_with(&p, false);
    served_ready(&s);
    served_say(&s, "INFO");
    served_hear(&s, "INFO ");
    assert_non_null(strstr(s.line, "listeners=2"));
    expect_works();
    assert_int_equal(kill(s.service, SIGTERM), 0);
    assert_int_equal(served_ended(&s), 0);
    assert_int_equal(lstat(s.socket, &st), 0); /* it is systemd's */
    br_close(&p.fds[0]);
    br_close(&p.fds[1]);
    served_stop(&s);
}

static void test_bad_activation(void **state)
{
    (void)state;
    served_reset(&s);
    int good = unix_socket(true), deaf = unix_socket(false), any = tcp_socket(INADDR_ANY),
        file = open("/dev/null", O_RDWR | O_CLOEXEC),
        packets = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)unlink(s.socket);
    const struct {
        struct passed p;
        const char *why;
    } rows[] = {
        {{{deaf}, 1, "a", ""}, "is not a stream that listens"},
        {{{file}, 1, "a", ""}, "is no socket"},
        {{{packets}, 1, "a", ""}, "is not a stream"},
        {{{good}, 1, "a:b", ""}, "names more than"},
        {{{good, any}, 2, "a", ""}, "names fewer than"},
        {{{any}, 1, "a", ""}, "has no TLS"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        start_with(&rows[i].p, false);
        expect_refusal(5, rows[i].why);
    }
    /* what bridle.lua has must be what was passed */
    served_config(&s, "listen = { '127.0.0.1:1' }");
    struct passed other = {{good}, 1, "a", ""};
    start_with(&other, false);
    expect_refusal(5, "which 'listen' of 'service' does not have");
    served_config(&s, "listen = { '127.0.0.1:1', '/x' }");
    start_with(&other, false);
    expect_refusal(5, "1 sockets were passed, and the service has 2");
    /* for somebody else: they are not looked at */
    served_config(&s, "");
    struct passed foreign = {{file}, 1, "a", "1"};
    start_with(&foreign, true);
    served_ready(&s);
    int fds[] = {good, deaf, any, file, packets};
    for (size_t i = 0; i < BR_ARRAY_LEN(fds); i++)
        close(fds[i]);
    served_stop(&s);
}

/* ---- places ---- */

static void test_sockets(void **state)
{
    struct stat st, again;
    (void)state;
    started("");
    assert_int_equal(lstat(s.socket, &st), 0);
    assert_true(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0666);
    pid_t first = s.service;
    /* another one over the same state directory, and one over another with the same socket */
    char *more[] = {(char *)"--listen", (char *)"127.0.0.1:0", NULL};
    served_start(&s, more, NULL);
    assert_int_equal(served_ended(&s), 1);
    served_logged(&s, "another bridled stands over");
    char *env[] = {(char *)"BRIDLE_STATE_DIR=/tmp/bridle-e2e-other", NULL};
    char other[160];
    snprintf(other, sizeof(other), "BRIDLE_STATE_DIR=%s/other", s.t.dir);
    env[0] = other;
    served_start(&s, NULL, env);
    assert_int_equal(served_ended(&s), 5);
    served_logged(&s, "somebody listens there already");
    s.service = first;
    served_connect(&s); /* who looked whether somebody listens was a client, too */
    expect_works();
    assert_int_equal(lstat(s.socket, &again), 0);
    assert_int_equal(again.st_ino, st.st_ino);
    /* one that died leaves a socket at which nobody listens: it is replaced */
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(served_ended(&s), 128 + SIGKILL);
    assert_int_equal(lstat(s.socket, &st), 0);
    served_start(&s, NULL, NULL);
    served_ready(&s);
    expect_works();
    assert_int_equal(kill(s.service, SIGTERM), 0);
    assert_int_equal(served_ended(&s), 0);
    assert_int_not_equal(lstat(s.socket, &st), 0);
    /* what is no socket stays */
    e2e_write(&s.t, "gate.sock", "precious");
    served_start(&s, NULL, NULL);
    assert_int_equal(served_ended(&s), 5);
    served_logged(&s, "something that is no socket");
    e2e_expect_file(&s.t, "gate.sock", "precious");
    served_stop(&s);
}

/* ---- settings ---- */

static void write_private(const char *path, const char *text, mode_t mode)
{
    char full[200];
    e2e_write(&s.t, path, text);
    snprintf(full, sizeof(full), "%s/%s", s.t.dir, path);
    assert_int_equal(chmod(full, mode), 0);
}

#define HASH "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void reload(int status, const char *says)
{
    struct e2e_result r;
    e2e_run(&s.t, &r, "bridle", "policy", "reload", NULL);
    e2e_expect(&r, status, says);
    e2e_result_free(&r);
}

static void test_reload(void **state)
{
    (void)state;
    started("limits = { running = 2 }");
    served_config(&s, "limits = { running = 3 }, users = { 1234 }, detach = 'allow'");
    write_private("state/tokens", "# comment\n\nops operate " HASH "\nwatch observe " HASH "\n",
                  0600);
    reload(0, "generation 2");
    served_hear(&s, "SETTINGS ");
    assert_non_null(strstr(s.line, "running=3"));
    assert_non_null(strstr(s.line, "uids=1"));
    assert_non_null(strstr(s.line, "detach=1"));
    assert_non_null(strstr(s.line, "tokens=ops=3,watch=1,"));
    /* the first model that is offered is the one of a session that names none */
    served_config(&s, "}, providers = { l = { base_url = 'http://127.0.0.1:9/v1', "
                      "models = { 'a', 'b' } } }, profiles = {");
    reload(0, "generation 3");
    served_hear(&s, "SETTINGS ");
    assert_non_null(strstr(s.line, "models=scripted/custom,l/a,l/b,"));
    assert_int_equal(kill(s.service, SIGHUP), 0);
    served_hear(&s, "SETTINGS ");
    expect_works();
    served_stop(&s);
}

/* Whatever is bad of it: it is refused by name, nothing of the rest is taken, and it goes on. */
static void test_bad_reload(void **state)
{
    static const struct {
        const char *service, *tokens, *policy;
        mode_t mode;
        const char *says;
    } rows[] = {
        {"limits = { runing = 3 }", "", NULL, 0600, "did you mean 'running'"},
        {"users = { 'nobody-has-this-name' }", "", NULL, 0600, "has no user"},
        {"root = '/nowhere/at/all'", "", NULL, 0600, "root"},
        {"tls = { cert = '/nowhere.pem', key = '/nowhere.key' }", "", NULL, 0600,
         "the certificate"},
        {"", "ops operate " HASH "\n", NULL, 0644, "other users may use it"},
        {"", "ops admin " HASH "\n", NULL, 0600, "line 1"},
        {"", "ops operate sha256:12\n", NULL, 0600, "line 1"},
        {"", "ops operate " HASH "\nops observe " HASH "\n", NULL, 0600, "the same name"},
        {"", "", "return 7", 0600, "policy"},
        {"", "", "return {", 0600, "policy.lua"},
    };
    (void)state;
    started("limits = { running = 2 }");
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        served_config(&s, rows[i].service);
        write_private("state/tokens", rows[i].tokens, rows[i].mode);
        e2e_write(&s.t, "policy.lua", rows[i].policy ? rows[i].policy : served_policy);
        reload(5, rows[i].says);
    }
    served_config(&s, "limits = { running = 2 }");
    write_private("state/tokens", "", 0600);
    e2e_write(&s.t, "policy.lua", served_policy);
    expect_works();
    reload(0, "generation 2"); /* and only now one was taken */
    served_hear(&s, "SETTINGS ");
    served_stop(&s);
}

/* Write a whole bridle.lua whose providers are `providers`, and a service. */
static void with_providers(const char *providers)
{
    char text[1024];
    snprintf(text, sizeof(text), "return { api = 1, %s%s%s service = { root = '%s' } }\n",
             *providers ? "providers = { " : "", providers, *providers ? " }," : "", s.root);
    e2e_write(&s.t, "bridle.lua", text);
}

#define LOCAL "['local'] = { base_url = 'http://127.0.0.1:9/v1', models = { 'one', 'two' } }"
#define OPEN "open = { base_url = 'http://127.0.0.1:9/v1' }"

/* A model that no session could get is not offered. */
static void test_models(void **state)
{
    static const struct {
        const char *model, *providers, *says;
    } bad[] = {
        {"nosuch/model", LOCAL,
         "has the model 'nosuch/model'. The providers are 'local', their "
         "models 'local/one', 'local/two'. The service was not started"},
        {"local/other", LOCAL ", " OPEN, "The providers are 'local', 'open'"},
        {"loca/one", LOCAL, "has the model 'loca/one'"},
        {"plain", LOCAL, "has the model 'openai/plain'"},
        {"nosuch/model", "", "no provider is configured for the model 'nosuch/model'"},
        {"scripted/nosuch", "", "there is no scripted model 'scripted/nosuch'"},
    };
    (void)state;
    served_reset(&s);
    s.without = "--scenario";
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        char *more[] = {(char *)"--model", (char *)(uintptr_t)bad[i].model, NULL};
        with_providers(bad[i].providers);
        served_start(&s, more, NULL);
        expect_refusal(5, bad[i].says);
    }
    static const char *const good[] = {"local/two", "open/anything", "scripted/demo"};
    for (size_t i = 0; i < BR_ARRAY_LEN(good); i++) {
        char *more[] = {(char *)"--model", (char *)(uintptr_t)good[i], (char *)"--listen", s.socket,
                        NULL};
        with_providers(LOCAL ", " OPEN);
        served_start(&s, more, NULL);
        served_ready(&s);
        if (i == 0) { /* taken away: refused, and what was goes on */
            with_providers(OPEN);
            reload(5, "has the model 'local/two'. The providers are 'open'. Nothing has changed");
        }
        served_stop(&s);
    }
    s.without = NULL;
}

/* The same at the start: nothing listens. */
static void test_bad_start(void **state)
{
    char path[160];
    (void)state;
    served_reset(&s);
    served_config(&s, "lisen = {}");
    served_start(&s, NULL, NULL);
    expect_refusal(5, "did you mean 'listen'");
    served_logged(&s, "the service was not started");
    served_config(&s, "");
    snprintf(path, sizeof(path), "%s/bridle.lua", s.t.dir);
    assert_int_equal(chmod(path, 0666), 0);
    served_start(&s, NULL, NULL);
    expect_refusal(4, "chmod go-w it. The service was not started");
    assert_int_equal(chmod(path, 0600), 0);
    static const char *const named[] = {"-c", "--scenario", "-p"};
    for (size_t i = 0; i < BR_ARRAY_LEN(named); i++) {
        char *nope[] = {(char *)(uintptr_t)named[i], (char *)"/nope.lua", NULL};
        s.without = named[i];
        served_start(&s, nope, NULL);
        expect_refusal(3, "'/nope.lua' does not exist; the service was not started");
    }
    s.without = NULL;
    char *nowhere[] = {(char *)"--root", (char *)"/nowhere/at/all", NULL};
    served_start(&s, nowhere, NULL);
    expect_refusal(5, "the service was not started");
    served_config(&s, "tls = { cert = '/nowhere.pem', key = '/nowhere.key' }");
    served_start(&s, NULL, NULL);
    expect_refusal(5, "No such file or directory; the service was not started");
    served_config(&s, "");
    e2e_write(&s.t, "policy.lua", "return 7");
    served_start(&s, NULL, NULL);
    expect_refusal(5, "policy");
    char *bad[] = {(char *)"--listen", (char *)"localhost:1", NULL};
    served_start(&s, bad, NULL);
    expect_refusal(5, "is a number");
    char *none[] = {NULL};
    e2e_write(&s.t, "policy.lua", served_policy);
    served_config(&s, "listen = { '0.0.0.0:18999' }");
    served_start(&s, none, NULL);
    expect_refusal(5, "has no TLS");
    served_config(&s, "listen = { { address = '0.0.0.0:18999', plaintext = true } }");
    served_start(&s, none, NULL);
    expect_refusal(5, "nobody may come from there");
    served_config(&s, "");
    char *low[] = {(char *)"--listen", (char *)"0.0.0.0:18999", NULL};
    e2e_write(&s.t, "policy.lua", served_policy);
    served_start(&s, low, NULL);
    expect_refusal(5, "has no TLS");
    served_stop(&s);
}

/* ---- certificates ---- */

static void write_cert(const char *cn, const char *san, const char *key_of_another)
{
    struct cert c = cert_make(NULL, &(struct cert_wish){.cn = cn, .san = san});
    write_private("service.pem", c.pem, 0644);
    write_private("service.key", key_of_another ? key_of_another : c.key_pem, 0600);
    cert_free(&c);
}

static void tls_config(const char *address)
{
    char text[512];
    snprintf(text, sizeof(text),
             "listen = { '%s', { address = '%s', tls = true } }, tls = { cert = '%s/service.pem', "
             "key = '%s/service.key' }",
             s.socket, address, s.t.dir, s.t.dir);
    served_config(&s, text);
}

/* A key that is not the certificate's, or that others may read: at the start nothing is started,
 * and at a reload nothing changes. */
static void test_certificates(void **state)
{
    char *none[] = {NULL}, path[200];
    (void)state;
    served_reset(&s);
    struct cert other = cert_make(NULL, &(struct cert_wish){.cn = "other", .san = "IP:127.0.0.1"});
    tls_config("127.0.0.1:0");
    write_cert("a", "IP:127.0.0.1", other.key_pem);
    served_start(&s, none, NULL);
    expect_refusal(5, "cannot be used");
    write_cert("a", "IP:127.0.0.1", NULL);
    snprintf(path, sizeof(path), "%s/service.key", s.t.dir);
    assert_int_equal(chmod(path, 0644), 0);
    served_start(&s, none, NULL);
    expect_refusal(5, "other users may use it");
    assert_int_equal(chmod(path, 0600), 0);
    served_start(&s, none, NULL);
    served_ready(&s);
    assert_true(e2e_await(s.service, "bridle-tls", 0, 5000) > 0);
    write_cert("b", "IP:127.0.0.1", other.key_pem);
    reload(5, "cannot be used");
    write_private("service.pem", "", 0644);
    reload(5, "it is empty");
    write_cert("b", "IP:127.0.0.1", NULL);
    reload(0, "generation 2");
    served_hear(&s, "SETTINGS ");
    expect_works();
    /* without it clients cannot come: both are started anew, and the sockets are the same */
    assert_int_equal(kill(e2e_await(s.service, "bridle-tls", 0, 5000), SIGKILL), 0);
    assert_null(served_try(&s, "nothing"));
    served_connect(&s);
    assert_true(e2e_await(s.service, "bridle-tls", 0, 5000) > 0);
    expect_works();
    cert_free(&other);
    served_stop(&s);
}

/* ---- the end ---- */

static void test_drain(void **state)
{
    char id[BR_ID_MAX], want[128];
    (void)state;
    started("drain = 60");
    begin_asking(id);
    const char *permission = strstr(s.line, "perm_");
    char allow[32];
    snprintf(allow, sizeof(allow), "%.31s", permission);
    assert_int_equal(kill(s.service, SIGTERM), 0);
    served_hear(&s, "DRAIN 60");
    served_say(&s, "CHECK two||");
    served_hear(&s, "CHECKED CANCELED");
    /* who runs comes to its end, questions included */
    served_say(&s, "ANSWER %s %s 1 uid:0", id, allow);
    snprintf(want, sizeof(want), "ENDED %s OK", id);
    served_hear(&s, want);
    assert_int_equal(served_ended(&s), 0);
    served_record(&s, id, "completed");
    served_stop(&s);
}

static void test_drain_is_over(void **state)
{
    char id[BR_ID_MAX], want[128];
    (void)state;
    started("drain = 1");
    begin_asking(id);
    assert_int_equal(kill(s.service, SIGTERM), 0);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id);
    served_hear(&s, want);
    assert_int_equal(served_ended(&s), 0);
    served_record(&s, id, "canceled");
    served_recorded(&s, id, "the service stopped");
    served_stop(&s);
}

/* What was sent before the gateway heard that no time is left ends, as a session that is known;
 * another one is nobody's. */
static void test_run_too_late(void **state)
{
    char id[BR_ID_MAX], late[BR_ID_MAX], want[128];
    (void)state;
    started("drain = 1");
    served_say(&s, "STAY");
    served_say(&s, "CHECK two||");
    served_hear(&s, "CHECKED OK ");
    snprintf(late, sizeof(late), "%s", served_word(&s, 2));
    begin_asking(id);
    assert_int_equal(kill(s.service, SIGTERM), 0);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", id);
    served_hear(&s, want);
    served_say(&s, "RUN %s 0 0 echo", late);
    snprintf(want, sizeof(want), "ENDED %s CANCELED", late);
    served_hear(&s, want);
    served_say(&s, "RUN %s 0 0 echo", late); /* it is not known any more */
    served_logged(&s, "malformed GATE_RUN");
    assert_int_equal(served_ended(&s), 0);
    struct e2e_result r;
    e2e_run(&s.t, &r, "bridle", "show", late, NULL);
    e2e_expect(&r, 3, NULL); /* it never ran */
    e2e_result_free(&r);
    served_stop(&s);
}

static void test_second_signal(void **state)
{
    char id[BR_ID_MAX];
    (void)state;
    started("drain = 3600");
    begin_asking(id);
    assert_int_equal(kill(s.service, SIGTERM), 0);
    served_hear(&s, "DRAIN 3600");
    assert_int_equal(kill(s.service, SIGTERM), 0);
    assert_int_equal(served_ended(&s), 0);
    served_record(&s, id, "canceled");
    served_recorded(&s, id, "the service stopped");
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
        cmocka_unit_test(test_notify),         cmocka_unit_test(test_activation),
        cmocka_unit_test(test_bad_activation), cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_reload),         cmocka_unit_test(test_bad_reload),
        cmocka_unit_test(test_bad_start),      cmocka_unit_test(test_models),
        cmocka_unit_test(test_certificates),   cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_is_over),  cmocka_unit_test(test_run_too_late),
        cmocka_unit_test(test_second_signal),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, open_all, close_all);
}
