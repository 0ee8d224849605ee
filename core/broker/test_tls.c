/*
 * TLS: a server with a certificate that nobody vouches for gets no request and no key. The server
 * is openssl's (the package that ca-certificates needs anyway), and a client that does trust its
 * certificate is the positive control.
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

#include "broker/test_rig.h"

static char dir[] = "/tmp/bridle-tls-XXXXXX";
static char cert[64], key[64];
static pid_t server;
static int server_in = -1, server_out = -1;
static unsigned port;

/* stdin from a pipe whose other end is *in, output to `out`. */
static pid_t start(char *const *argv, int *in, int out)
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

/* What a program has written so far. */
static char *written(int fd)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
    char chunk[4096];
    off_t at = 0;
    for (ssize_t n; (n = pread(fd, chunk, sizeof(chunk), at)) > 0; at += n)
        br_buf_put(&b, chunk, (size_t)n);
    return strdup(b.len ? br_buf_cstr(&b) : "");
}

static bool appears(int fd, const char *text, unsigned ms)
{
    for (unsigned i = 0; i < ms; i += 10) {
        BR_CLEANUP_FREE char *s = written(fd);
        if (strstr(s, text))
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

#define ARG(s) ((char *)(uintptr_t)(s))

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(cert, sizeof(cert), "%s/cert.pem", dir);
    snprintf(key, sizeof(key), "%s/key.pem", dir);
    char *const make[] = {ARG("openssl"),
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
                          ARG("/CN=127.0.0.1"),
                          ARG("-addext"),
                          ARG("subjectAltName=IP:127.0.0.1"),
                          NULL};
    BR_CLEANUP_FD int log = memfd_create("log", MFD_CLOEXEC);
    BR_CLEANUP_FD int in = -1;
    pid_t pid = start(make, &in, log);
    assert_int_equal(rig_wait_child(pid, 20000), 0);
    char *const serve[] = {ARG("openssl"),
                           ARG("s_server"),
                           ARG("-accept"),
                           ARG("127.0.0.1:0"),
                           ARG("-cert"),
                           cert,
                           ARG("-key"),
                           key,
                           NULL};
    server_out = memfd_create("server", MFD_CLOEXEC);
    server = start(serve, &server_in, server_out);
    assert_true(appears(server_out, "ACCEPT 127.0.0.1:", 10000));
    BR_CLEANUP_FREE char *text = written(server_out);
    port = (unsigned)strtoul(strstr(text, "ACCEPT 127.0.0.1:") + 17, NULL, 10);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    br_close(&server_in);
    br_close(&server_out);
    (void)unlink(cert);
    (void)unlink(key);
    (void)rmdir(dir);
    return 0;
}

static void test_untrusted_certificate(void **state)
{
    struct rig r = {.server = NULL};
    char url[64];
    (void)state;
    snprintf(url, sizeof(url), "https://127.0.0.1:%u/v1", port);
    assert_int_equal(rig_start(&r, &(struct rig_options){.base_url = url}), 0);
    rig_ask_wait(&r, 1);
    assert_int_equal(r.end_code, BR_E_PROVIDER_UNREACHABLE);
    assert_non_null(strstr(r.end_text, "no trusted TLS connection"));
    rig_stop(&r, 0, 0);
    BR_CLEANUP_FREE char *text = written(server_out);
    assert_null(strstr(text, RIG_KEY));
    assert_null(strstr(text, "POST "));
}

/* The same server serves who trusts it, and shows what arrives. */
static void test_positive_control(void **state)
{
    char where[64];
    (void)state;
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    char *const argv[] = {ARG("openssl"),
                          ARG("s_client"),
                          ARG("-connect"),
                          where,
                          ARG("-CAfile"),
                          cert,
                          ARG("-verify_return_error"),
                          ARG("-quiet"),
                          NULL};
    BR_CLEANUP_FD int log = memfd_create("client", MFD_CLOEXEC);
    BR_CLEANUP_FD int in = -1;
    pid_t pid = start(argv, &in, log);
    assert_int_equal(br_write_all(in, "POST " RIG_KEY "\n", strlen(RIG_KEY) + 6), 0);
    bool seen = appears(server_out, "POST " RIG_KEY, 5000);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    assert_true(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_untrusted_certificate),
        cmocka_unit_test(test_positive_control),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
