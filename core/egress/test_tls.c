/*
 * TLS with a certificate authority of the test's own: who is vouched for gets the request, over a
 * direct connection and through a proxy; a server that nobody vouches for, or that is another host,
 * gets neither request nor key. The servers are openssl's (the package that ca-certificates needs
 * anyway), and show what arrives.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "egress/test_rig.h"

#define ARG(s) ((char *)(uintptr_t)(s))

static char dir[] = "/tmp/bridle-tls-XXXXXX";

struct tls_server {
    pid_t pid;
    int in, out;
    unsigned port;
    char url[64];
};
/* `right` is 127.0.0.1; `wrong` has a good certificate of another host. */
static struct tls_server right, wrong;
static int ca_fd, other_ca_fd;

/* ---- openssl ---- */

static pid_t spawn(char *const *argv, int *in, int out)
{
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(p[0], 0);
        (void)dup2(out, 1);
        (void)dup2(out, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    (void)close(p[0]);
    *in = p[1];
    return pid;
}

static char *path_of(const char *name, const char *kind)
{
    char *p = NULL;
    assert_true(asprintf(&p, "%s/%s.%s", dir, name, kind) > 0);
    return p;
}

/* A key and a certificate; signed by `ca`, or by itself. */
static void certificate(const char *name, const char *ca, const char *alt)
{
    BR_CLEANUP_FREE char *key = path_of(name, "key"), *cert = path_of(name, "pem"), *subject = NULL;
    BR_CLEANUP_FREE char *ca_key = path_of(ca ? ca : name, "key"),
                         *ca_cert = path_of(ca ? ca : name, "pem");
    assert_true(asprintf(&subject, "/CN=%s", name) > 0);
    char *argv[32] = {ARG("openssl"),
                      ARG("req"),
                      ARG("-x509"),
                      ARG("-newkey"),
                      ARG("ec"),
                      ARG("-pkeyopt"),
                      ARG("ec_paramgen_curve:prime256v1"),
                      ARG("-nodes"),
                      ARG("-keyout"),
                      key,
                      ARG("-out"),
                      cert,
                      ARG("-subj"),
                      subject};
    unsigned n = 14;
    if (ca) {
        argv[n++] = ARG("-CA");
        argv[n++] = ca_cert;
        argv[n++] = ARG("-CAkey");
        argv[n++] = ca_key;
        argv[n++] = ARG("-addext");
        argv[n++] = ARG("basicConstraints=critical,CA:FALSE");
        argv[n++] = ARG("-addext");
        argv[n++] = ARG(alt);
    }
    BR_CLEANUP_FD int log = memfd_create("log", MFD_CLOEXEC);
    BR_CLEANUP_FD int in = -1;
    int status = -1;
    pid_t pid = spawn(argv, &in, log);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) {
        char text[4096] = "";
        assert_true(pread(log, text, sizeof(text) - 1, 0) >= 0);
        fail_msg("openssl: %s", text);
    }
}

static int open_pem(const char *name)
{
    BR_CLEANUP_FREE char *path = path_of(name, "pem");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* What the server has shown so far, and whether this is in it. */
static char *shown(const struct tls_server *s)
{
    char chunk[4096];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    off_t at = 0;
    for (ssize_t n; (n = pread(s->out, chunk, sizeof(chunk), at)) > 0; at += n)
        br_buf_put(&b, chunk, (size_t)n);
    return strdup(b.len ? br_buf_cstr(&b) : "");
}

static unsigned times(const struct tls_server *s, const char *text)
{
    BR_CLEANUP_FREE char *all = shown(s);
    unsigned n = 0;
    for (const char *p = all; (p = strstr(p, text)); p++)
        n++;
    return n;
}

static bool appears(const struct tls_server *s, const char *text, unsigned count)
{
    for (unsigned i = 0; i < 1000; i++) {
        if (times(s, text) >= count)
            return true;
        (void)poll(NULL, 0, 5);
    }
    return false;
}

static void server_start(struct tls_server *s, const char *name)
{
    BR_CLEANUP_FREE char *key = path_of(name, "key"), *cert = path_of(name, "pem");
    char *const argv[] = {ARG("openssl"),
                          ARG("s_server"),
                          ARG("-accept"),
                          ARG("127.0.0.1:0"),
                          ARG("-cert"),
                          cert,
                          ARG("-key"),
                          key,
                          NULL};
    s->out = memfd_create("server", MFD_CLOEXEC);
    s->pid = spawn(argv, &s->in, s->out);
    assert_true(appears(s, "ACCEPT 127.0.0.1:", 1));
    BR_CLEANUP_FREE char *text = shown(s);
    s->port = (unsigned)strtoul(strstr(text, "ACCEPT 127.0.0.1:") + 17, NULL, 10);
    snprintf(s->url, sizeof(s->url), "https://127.0.0.1:%u/v1", s->port);
}

static void server_stop(struct tls_server *s)
{
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    br_close(&s->in);
    br_close(&s->out);
}

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    certificate("authority", NULL, NULL);
    certificate("another", NULL, NULL);
    certificate("right", "authority", "subjectAltName=IP:127.0.0.1");
    certificate("wrong", "authority", "subjectAltName=DNS:other.example,IP:127.0.0.2");
    ca_fd = open_pem("authority");
    other_ca_fd = open_pem("another");
    server_start(&right, "right");
    server_start(&wrong, "wrong");
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"authority", "another", "right", "wrong"};
    (void)state;
    server_stop(&right);
    server_stop(&wrong);
    (void)close(ca_fd);
    (void)close(other_ca_fd);
    for (unsigned i = 0; i < 4; i++) {
        BR_CLEANUP_FREE char *key = path_of(names[i], "key"), *cert = path_of(names[i], "pem");
        (void)unlink(key);
        (void)unlink(cert);
    }
    return rmdir(dir);
}

/* ---- requests ---- */

/* Asks, sees the request arrive, answers, and sees the answer arrive. */
static void ask_and_answer_with(struct eg *e, const char *fields)
{
    char answer[256];
    snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\n%sContent-Length: 3\r\n\r\nok\n", fields);
    unsigned before = times(&right, "POST /v1/ok HTTP/1.1");
    uint64_t id = eg_ask_path(e, "/ok");
    for (unsigned i = 0; i < 500 && times(&right, "{\"model\":\"m\"}") == before; i++)
        eg_serve(e, 10);
    if (times(&right, "POST /v1/ok HTTP/1.1") != before + 1)
        fail_msg("it did not arrive: %s", eg_of(e, id)->text);
    assert_int_equal(br_write_all(right.in, answer, strlen(answer)), 0);
    eg_until_ended(e, 5000);
    if (eg_of(e, id)->code)
        fail_msg("%s", eg_of(e, id)->text);
    assert_string_equal(eg_body(eg_of(e, id)), "ok\n");
}

static void ask_and_answer(struct eg *e)
{
    ask_and_answer_with(e, "");
}

static void expect_refused(struct tls_server *s, const struct eg_options *o, const char *text)
{
    struct eg e = {.server = NULL};
    unsigned keys = times(s, EG_KEY), posts = times(s, "POST ");
    struct eg_options mine = *o;
    mine.base_url = s->url;
    assert_int_equal(eg_start(&e, &mine), 0);
    uint64_t id = eg_ask_path(&e, "/ok");
    eg_until_ended(&e, 5000);
    struct eg_answer *a = eg_of(&e, id);
    /* what is wrong is the server's certificate, or what the text says */
    const char *why = strstr(text, "TLS") ? "peer certificate" : text;
    if (a->code != BR_E_PROVIDER_UNREACHABLE || !strstr(a->text, text) || !strstr(a->text, why))
        fail_msg("%s: %s", br_code_name((int)a->code), a->text);
    assert_non_null(strstr(a->text, "nothing was sent"));
    assert_int_equal(a->sent, 0);
    eg_stop(&e, 0);
    assert_int_equal(times(s, EG_KEY), keys);
    assert_int_equal(times(s, "POST "), posts);
}

static void test_trusted(void **state)
{
    struct eg e = {.server = NULL};
    (void)state;
    assert_int_equal(eg_start(&e, &(struct eg_options){.base_url = right.url, .ca_fd = ca_fd}), 0);
    for (unsigned i = 0; i < 3; i++) { /* the later ones over connections opened ahead */
        ask_and_answer(&e);
        eg_serve(&e, 50);
    }
    assert_true(appears(&right, "Authorization: Bearer " EG_KEY, 3));
    unsigned hidden, elsewhere; /* what OpenSSL encrypted, it encrypted in place */
    if (eg_count(e.pid, EG_KEY, &hidden, &elsewhere)) {
        assert_true(hidden >= 1);
        assert_int_equal(elsewhere, 0);
    }
    eg_stop(&e, 0);
}

/* Where the provider says so, two requests are on one connection. */
static void test_kept(void **state)
{
    struct eg e = {.server = NULL};
    (void)state;
    assert_int_equal(eg_start(&e, &(struct eg_options){.base_url = right.url, .ca_fd = ca_fd}), 0);
    unsigned before = times(&right, "CIPHER is");
    ask_and_answer_with(&e, "Connection: keep-alive\r\n");
    ask_and_answer_with(&e, "Connection: keep-alive\r\n");
    ask_and_answer_with(&e, "Connection: close\r\n");
    assert_int_equal(times(&right, "CIPHER is"), before + 1);
    eg_serve(&e, 50);
    ask_and_answer(&e);
    assert_int_equal(times(&right, "CIPHER is"), before + 2);
    eg_stop(&e, 0);
}

static void test_untrusted(void **state)
{
    (void)state;
    expect_refused(&right, &(struct eg_options){.ca_fd = 0}, "no trusted TLS connection");
    expect_refused(&right, &(struct eg_options){.ca_fd = other_ca_fd}, "no trusted TLS connection");
    int junk = eg_file("no certificate\n", 15);
    expect_refused(&right, &(struct eg_options){.ca_fd = junk}, "certificates of 'ca_file'");
    (void)close(junk);
}

static void test_wrong_host(void **state)
{
    (void)state;
    expect_refused(&wrong, &(struct eg_options){.ca_fd = ca_fd}, "no trusted TLS connection");
}

/* It ends in the middle, and not as TLS does: no part of an answer passes for the whole. */
static void test_cut(void **state)
{
    static const char *const parts[] = {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok\n",
                                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n3\r\nok\n\r\n"};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct tls_server s;
        struct eg e = {.server = NULL};
        server_start(&s, "right");
        assert_int_equal(eg_start(&e, &(struct eg_options){.base_url = s.url, .ca_fd = ca_fd}), 0);
        uint64_t id = eg_ask_path(&e, "/ok");
        assert_true(appears(&s, "{\"model\":\"m\"}", 1));
        assert_int_equal(br_write_all(s.in, parts[i], strlen(parts[i])), 0);
        while (eg_of(&e, id)->body.len < 3)
            eg_serve(&e, 10);
        server_stop(&s);
        eg_until_ended(&e, 5000);
        assert_int_equal(eg_of(&e, id)->code, BR_E_PROVIDER_TRUNCATED);
        assert_string_equal(eg_body(eg_of(&e, id)), "ok\n");
        eg_stop(&e, 0);
    }
}

/* ---- through a proxy ---- */

static void test_proxy(void **state)
{
    struct eg e = {.server = NULL};
    struct eg_proxy p;
    char proxy[64], wanted[64];
    (void)state;
    eg_proxy_start(&p, 0);
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", p.server.port);
    assert_int_equal(
        eg_start(&e, &(struct eg_options){.base_url = right.url, .ca_fd = ca_fd, .proxy = proxy}),
        0);
    ask_and_answer(&e);
    assert_true(atomic_load(&p.server.shared->requests) >= 1);
    snprintf(wanted, sizeof(wanted), "CONNECT 127.0.0.1:%u HTTP/1.1\r\n", right.port);
    assert_non_null(strstr(p.server.shared->last, wanted));
    assert_null(strstr(p.server.shared->last, "uthorization"));
    assert_null(strstr(p.server.shared->last, "sk-"));
    eg_stop(&e, 0);
    expect_refused(&right, &(struct eg_options){.proxy = proxy}, "no trusted TLS connection");
    expect_refused(&wrong, &(struct eg_options){.proxy = proxy, .ca_fd = ca_fd},
                   "no trusted TLS connection");
    eg_server_stop(&p.server);
    /* it has gone: there is no way around it */
    expect_refused(&right, &(struct eg_options){.proxy = proxy, .ca_fd = ca_fd},
                   "through the proxy");
}

static void test_proxy_refuses(void **state)
{
    static const unsigned statuses[] = {301, 403, 407, 502};
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(statuses); i++) {
        struct eg_proxy p;
        char proxy[64];
        eg_proxy_start(&p, statuses[i]);
        snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", p.server.port);
        expect_refused(&right, &(struct eg_options){.proxy = proxy, .ca_fd = ca_fd},
                       "through the proxy");
        assert_int_equal(atomic_load(&p.server.shared->requests), 1);
        eg_server_stop(&p.server);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trusted),       cmocka_unit_test(test_kept),
        cmocka_unit_test(test_untrusted),     cmocka_unit_test(test_wrong_host),
        cmocka_unit_test(test_cut),           cmocka_unit_test(test_proxy),
        cmocka_unit_test(test_proxy_refuses),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
