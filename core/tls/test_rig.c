/*
 * The rig of the tests of bridle-tls; see test_rig.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tls/test_rig.h"

#define WAIT_MS 10000

/* ---- the program ---- */

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct tls_rig *r = ctx;
    (void)c, (void)err;
    br_rd_str(&m->rd, r->ready_code, sizeof(r->ready_code));
    br_rd_str(&m->rd, r->ready_text, sizeof(r->ready_text));
    assert_int_equal(br_rd_done(&m->rd), 0);
    r->ready = true;
    return 0;
}

static int on_conn(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct tls_rig *r = ctx;
    (void)c, (void)err;
    r->index = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, r->address, sizeof(r->address));
    br_rd_str(&m->rd, r->name, sizeof(r->name));
    assert_int_equal(br_rd_done(&m->rd), 0);
    r->plain = br_msg_take_fd(m);
    r->got = true;
    return 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 8, BR_MSG_MAX, 0, 0, on_ready},
};
static const struct br_msg_rule gateway_rules[] = {
    {BR_MSG_TLS_CONN, BR_PERMIT, 9, BR_MSG_MAX, 1, 1, on_conn},
};

void tls_rig_spawn(struct tls_rig *r)
{
    int pair[2];
    char path[BR_PATH_MAX];
    *r = (struct tls_rig){.plain = -1, .gateway.fd = -1};
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    snprintf(path, sizeof(path), "%s/bridle-tls", bin);
    assert_int_equal(br_chan_pair(pair), 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(pair[1], 3) < 0 || fcntl(3, F_SETFD, 0) < 0)
            _exit(126);
        char *argv[] = {(char *)"bridle-tls", NULL};
        /* who changes its uid may not look for leaks in itself */
        char *env[] = {(char *)"ASAN_OPTIONS=detect_leaks=0", NULL};
        execve(path, argv, env);
        _exit(127);
    }
    (void)close(pair[1]);
    br_chan_init(&r->sup, pair[0], "tls", sup_rules, BR_ARRAY_LEN(sup_rules), r);
}

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, WAIT_MS) == 1;
}

static bool wait_ready(struct tls_rig *r)
{
    struct br_err err;
    r->ready = false;
    assert_true(readable(r->sup.fd));
    if (br_chan_dispatch(&r->sup, &err) < 0) {
        print_message("%s\n", err.text);
        return false;
    }
    assert_true(r->ready);
    return strcmp(r->ready_code, "OK") == 0;
}

static void put_text(struct br_out *o, const char *s)
{
    br_out_blob(o, s ? s : "", s ? strlen(s) : 0);
}

static int listen_somewhere(unsigned *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(fd, 512), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

bool tls_rig_start(struct tls_rig *r, const struct tls_rig_options *o)
{
    int gateway[2];
    BR_CLEANUP_OUT struct br_out listen = BR_OUT_INIT, out = BR_OUT_INIT;
    tls_rig_spawn(r);
    assert_int_equal(br_chan_pair(gateway), 0);
    br_chan_init(&r->gateway, gateway[0], "tls", gateway_rules, BR_ARRAY_LEN(gateway_rules), r);
    br_buf_put_u8(&listen.buf, 5);
    br_out_fd(&listen, listen_somewhere(&r->port), true);
    assert_int_equal(br_chan_send(&r->sup, BR_MSG_TLS_LISTEN, 0, &listen, NULL), 0);
    put_text(&out, o->chain);
    put_text(&out, o->key);
    put_text(&out, o->authorities);
    br_buf_put_u8(&out.buf, o->require);
    br_buf_put_u32(&out.buf, o->seconds ? o->seconds : 30);
    br_buf_put_u32(&out.buf, o->connections ? o->connections : 100);
    br_out_fd(&out, gateway[1], true);
    assert_int_equal(br_chan_send(&r->sup, BR_MSG_TLS_START, 1, &out, NULL), 0);
    return wait_ready(r);
}

bool tls_rig_reload(struct tls_rig *r, const struct tls_rig_options *o)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    put_text(&out, o->chain);
    put_text(&out, o->key);
    put_text(&out, o->authorities);
    br_buf_put_u8(&out.buf, o->require);
    assert_int_equal(br_chan_send(&r->sup, BR_MSG_TLS_RELOAD, 2, &out, NULL), 0);
    return wait_ready(r);
}

int tls_rig_connect(struct tls_rig *r, const char *host, int net, const struct tls_rig_options *o)
{
    int pair[2];
    struct timeval limit = {WAIT_MS / 1000, 0};
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    tls_rig_spawn(r);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    br_buf_put_str(&out.buf, host);
    put_text(&out, o->authorities);
    put_text(&out, o->chain);
    put_text(&out, o->key);
    br_buf_put_u32(&out.buf, o->seconds ? o->seconds : 30);
    br_out_fd(&out, net, true);
    br_out_fd(&out, pair[1], true);
    assert_int_equal(br_chan_send(&r->sup, BR_MSG_TLS_CONNECT, 1, &out, NULL), 0);
    if (wait_ready(r))
        return pair[0];
    (void)close(pair[0]);
    return -1;
}

bool tls_rig_next(struct tls_rig *r)
{
    struct br_err err;
    struct timeval limit = {WAIT_MS / 1000, 0};
    r->got = false;
    if (!readable(r->gateway.fd) || br_chan_dispatch(&r->gateway, &err) < 0)
        return false;
    assert_int_equal(fcntl(r->plain, F_SETFL, 0), 0); /* blocking, with a limit */
    assert_int_equal(setsockopt(r->plain, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(setsockopt(r->plain, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
    return r->got;
}

bool tls_rig_none(struct tls_rig *r)
{
    struct pollfd p = {.fd = r->gateway.fd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

int tls_rig_stop(struct tls_rig *r)
{
    int status;
    br_close(&r->plain);
    br_chan_close(&r->gateway);
    br_chan_close(&r->sup);
    for (unsigned i = 0; i < WAIT_MS / 5; i++) {
        if (waitpid(r->pid, &status, WNOHANG) == r->pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        (void)poll(NULL, 0, 5);
    }
    (void)kill(r->pid, SIGKILL);
    (void)waitpid(r->pid, &status, 0);
    return -1;
}

/* ---- a client ---- */

int tls_dial(unsigned port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {WAIT_MS / 1000, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

bool tls_client_open(struct tls_client *c, unsigned port, const struct tls_client_options *o)
{
    *c = (struct tls_client){.fd = tls_dial(port), .ctx = SSL_CTX_new(TLS_client_method())};
    assert_non_null(c->ctx);
    SSL_CTX_set_security_level(c->ctx, 0); /* it may also offer what is too old */
    SSL_CTX_set_options(c->ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_min_proto_version(c->ctx, o->min);
    SSL_CTX_set_max_proto_version(c->ctx, o->max);
    if (o->trust) {
        assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(c->ctx), o->trust->x509), 1);
        SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
    }
    if (o->identity) {
        assert_int_equal(SSL_CTX_use_certificate(c->ctx, o->identity->x509), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(c->ctx, o->identity->key), 1);
    }
    if (o->alpn)
        SSL_CTX_set_alpn_protos(c->ctx, (const unsigned char *)o->alpn, (unsigned)strlen(o->alpn));
    c->ssl = SSL_new(c->ctx);
    assert_int_equal(SSL_set_fd(c->ssl, c->fd), 1);
    return SSL_connect(c->ssl) == 1;
}

void tls_client_close(struct tls_client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    br_close(&c->fd);
}

bool tls_send_all(SSL *ssl, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        int k = SSL_write(ssl, (const char *)p + at, (int)(n - at));
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

bool tls_recv_all(SSL *ssl, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        int k = SSL_read(ssl, (char *)p + at, (int)(n - at));
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

bool fd_send_all(int fd, const void *p, size_t n)
{
    return br_write_all(fd, p, n) == 0;
}

bool fd_recv_all(int fd, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = read(fd, (char *)p + at, n - at);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

bool fd_at_end(int fd)
{
    char c;
    return read(fd, &c, 1) == 0;
}
