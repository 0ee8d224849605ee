/*
 * What bridle-egress adds: a request and its first byte, one fast stream, and 200 paced ones, each
 * against a direct connection to the same server on loopback. The figures are printed with
 * BRIDLE_TEST_VERBOSE; asserted is only that every byte arrives, so that a busy machine fails
 * nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "egress/egress_priv.h"
#include "wire/types.h"
#include "wire/wire.h"

#define ROUNDS                                                                                     \
    (getenv("BRIDLE_BENCH_ROUNDS") ? (unsigned)atoi(getenv("BRIDLE_BENCH_ROUNDS")) : 200u)
#define FAST_BYTES (48u << 20)
#define PACED 200u
#define PACED_EVENTS 20u
#define PACED_MS 20u
#define PACED_BYTES 64u
#define CONNS 1024

/* ---- the server: one process, epoll, keep-alive ---- */

struct peer {
    int timer, of; /* a timer has the connection it is of */
    unsigned events;
    size_t left;
    char in[4096];
    size_t n;
};
static struct peer peers[CONNS];
static int loop_fd;

static void server_want(int fd, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.fd = fd};
    (void)epoll_ctl(loop_fd, EPOLL_CTL_MOD, fd, &ev);
}

static void server_fast(int fd)
{
    static char block[1 << 18];
    struct peer *p = &peers[fd];
    while (p->left) {
        ssize_t r = send(fd, block, p->left < sizeof(block) ? p->left : sizeof(block),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (r <= 0)
            break;
        p->left -= (size_t)r;
    }
    server_want(fd, p->left > 0);
}

static void server_say(int fd, const char *text)
{
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return;
}

static void server_answer(int fd)
{
    static const char small[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                "Content-Length: 13\r\n\r\n{\"good\":true}";
    struct peer *p = &peers[fd];
    char head[128];
    if (strstr(p->in, "/fast ")) {
        snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", FAST_BYTES);
        server_say(fd, head);
        p->left = FAST_BYTES;
        server_fast(fd);
    } else if (strstr(p->in, "/paced ")) {
        const struct itimerspec every = {{0, PACED_MS * 1000000L}, {0, PACED_MS * 1000000L}};
        int t = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = t};
        if (t < 0 || t >= CONNS)
            return;
        snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n",
                 PACED_EVENTS * PACED_BYTES);
        server_say(fd, head);
        peers[t] = (struct peer){.timer = 1, .of = fd};
        (void)timerfd_settime(t, 0, &every, NULL);
        (void)epoll_ctl(loop_fd, EPOLL_CTL_ADD, t, &ev);
    } else {
        server_say(fd, small);
    }
}

static void server_tick(int t)
{
    uint64_t n = 0;
    char event[PACED_BYTES];
    memset(event, 'e', sizeof(event));
    if (read(t, &n, sizeof(n)) != sizeof(n))
        return;
    for (; n && peers[t].events < PACED_EVENTS; n--, peers[t].events++)
        if (send(peers[t].of, event, sizeof(event), MSG_NOSIGNAL) < 0)
            break;
    if (peers[t].events == PACED_EVENTS)
        (void)close(t);
}

static void server_read(int fd)
{
    struct peer *p = &peers[fd];
    ssize_t r = recv(fd, p->in + p->n, sizeof(p->in) - 1 - p->n, MSG_DONTWAIT);
    if (r < 0 && errno == EAGAIN)
        return;
    if (r <= 0) {
        (void)close(fd);
        return;
    }
    p->n += (size_t)r;
    p->in[p->n] = '\0';
    const char *end = strstr(p->in, "\r\n\r\n"), *len = strstr(p->in, "Content-Length:");
    if (!end || !len || p->n < (size_t)(end + 4 - p->in) + strtoul(len + 15, NULL, 10))
        return;
    p->n = 0;
    server_answer(fd);
}

static void server_run(int listener)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = listener}, got[64];
    const int one = 1;
    loop_fd = epoll_create1(EPOLL_CLOEXEC);
    (void)epoll_ctl(loop_fd, EPOLL_CTL_ADD, listener, &ev);
    for (;;) {
        int n = epoll_wait(loop_fd, got, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = got[i].data.fd;
            if (fd == listener) {
                int c = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (c < 0 || c >= CONNS)
                    continue;
                peers[c] = (struct peer){.timer = 0};
                (void)setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                ev = (struct epoll_event){.events = EPOLLIN, .data.fd = c};
                (void)epoll_ctl(loop_fd, EPOLL_CTL_ADD, c, &ev);
                server_read(c);
            } else if (peers[fd].timer) {
                server_tick(fd);
            } else if (got[i].events & EPOLLOUT) {
                server_fast(fd);
            } else {
                server_read(fd);
            }
        }
    }
}

static pid_t server;
static unsigned port;

/* ---- the program ---- */

static struct br_chan sup, to_egress;
static pid_t egress;
static bool ready;

static struct {
    uint64_t id, first_us, end_us, bytes;
    uint32_t code, open;
    uint64_t taken[PACED + 1];
} seen;

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char code[64], text[BR_ERR_TEXT_MAX];
    (void)c, (void)ctx, (void)err;
    br_rd_str(&m->rd, code, sizeof(code));
    br_rd_str(&m->rd, text, sizeof(text));
    if (strcmp(code, "OK") != 0)
        fail_msg("%s", text);
    ready = true;
    return 0;
}

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)ctx, (void)err;
    assert_int_equal(br_rd_u32(&m->rd), 200);
    return 0;
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)ctx, (void)err;
    size_t n;
    (void)br_rd_u8(&m->rd);
    (void)br_rd_bytes(&m->rd, BR_MSG_MAX, &n);
    if (!seen.first_us)
        seen.first_us = br_now_us();
    seen.bytes += n;
    seen.taken[m->id % (PACED + 1)] += n;
    if (seen.taken[m->id % (PACED + 1)] < 128 * 1024)
        return 0;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, (uint32_t)seen.taken[m->id % (PACED + 1)]);
    seen.taken[m->id % (PACED + 1)] = 0;
    return br_chan_send(c, BR_MSG_PROV_CREDIT, m->id, &out, NULL);
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char text[BR_ERR_TEXT_MAX];
    (void)c, (void)ctx, (void)err;
    seen.code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    if (seen.code)
        fail_msg("%s", text);
    seen.end_us = br_now_us();
    seen.open--;
    return 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
};
static const struct br_msg_rule rules[] = {
    {BR_MSG_PROV_HEAD, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_PROV_DATA, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_data},
    {BR_MSG_PROV_END, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_end},
};

static void start_egress(void)
{
    int a[2], b[2];
    char url[64], path[BR_PATH_MAX];
    assert_int_equal(br_chan_pair(a), 0);
    assert_int_equal(br_chan_pair(b), 0);
    snprintf(path, sizeof(path), "%s/bridle-egress", getenv("BRIDLE_BIN"));
    egress = fork();
    assert_true(egress >= 0);
    if (egress == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int keep = fcntl(a[1], F_DUPFD, 10);
        (void)dup2(keep, 3);
        br_close_from(4, NULL, 0);
        execl(path, "bridle-egress", NULL);
        _exit(127);
    }
    br_chan_init(&sup, a[0], "egress", sup_rules, 1, NULL);
    br_chan_init(&to_egress, b[0], "egress", rules, 3, NULL);
    (void)close(a[1]);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", port);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, url);
    br_buf_put_str(&out.buf, "");
    br_buf_put_u8(&out.buf, BR_KEY_NONE);
    br_buf_put_u8(&out.buf, BR_AUTH_BEARER);
    br_buf_put_str(&out.buf, "");
    br_buf_put_str(&out.buf, "");
    for (unsigned i = 0; i < 4; i++)
        br_buf_put_u32(&out.buf, 60);
    br_buf_put_u8(&out.buf, 0);
    br_out_fd(&out, b[1], true);
    assert_int_equal(br_chan_send(&sup, BR_MSG_EGRESS_START, 1, &out, NULL), 0);
    while (!ready)
        assert_int_equal(br_chan_dispatch(&sup, NULL), 0);
}

static int setup(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    (void)state;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 512), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    port = ntohs(a.sin_port);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        server_run(fd);
    }
    (void)close(fd);
    start_egress();
    return 0;
}

static int teardown(void **state)
{
    int status;
    (void)state;
    br_chan_close(&sup);
    br_chan_close(&to_egress);
    (void)waitpid(egress, &status, 0);
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    return status == 0 ? 0 : -1;
}

static void ask(const char *path)
{
    static uint64_t id;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, "POST");
    br_buf_put_str(&out.buf, path);
    br_buf_put_str(&out.buf, "application/json");
    br_buf_put_u32(&out.buf, 0);
    br_buf_put_u32(&out.buf, 256 * 1024);
    br_out_blob(&out, "{\"model\":\"m\"}", 13);
    seen.open++;
    assert_int_equal(br_chan_send(&to_egress, BR_MSG_PROV_REQUEST, ++id, &out, NULL), 0);
}

static void until_ended(void)
{
    while (seen.open)
        assert_int_equal(br_chan_dispatch(&to_egress, NULL), 0);
}

/* ---- the direct way ---- */

static int direct_connect(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)port)};
    const int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void direct_ask(int fd, const char *path)
{
    char text[256];
    int n = snprintf(
        text, sizeof(text),
        "POST /v1%s HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"model\":\"m\"}", path);
    assert_int_equal(send(fd, text, (size_t)n, 0), n);
}

/* Reads head and body; returns when the first byte came. */
static uint64_t direct_read(int fd, size_t body)
{
    static char room[1 << 18];
    uint64_t first = 0;
    size_t n = 0, head = 0;
    while (!head || n < head + body) {
        ssize_t r = recv(fd, room + (head ? 0 : n), sizeof(room) - (head ? 0 : n), 0);
        assert_true(r > 0);
        if (!first)
            first = br_now_us();
        n += (size_t)r;
        char *end = head ? NULL : memmem(room, n, "\r\n\r\n", 4);
        if (end)
            head = (size_t)(end + 4 - room);
    }
    return first;
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void say(const char *fmt, ...) BR_PRINTF(1, 2);
static void say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (getenv("BRIDLE_TEST_VERBOSE"))
        (void)vprintf(fmt, ap);
    va_end(ap);
}

static void say_times(const char *what, uint64_t *us, unsigned n)
{
    qsort(us, n, sizeof(*us), by_value);
    say("%-36s median %4lu us, p99 %5lu us\n", what, (unsigned long)us[n / 2],
        (unsigned long)us[n * 99 / 100]);
}

static void test_requests(void **state)
{
    unsigned n = ROUNDS;
    uint64_t *kept = calloc(n, 8), *fresh = calloc(n, 8), *first = calloc(n, 8),
             *end = calloc(n, 8);
    (void)state;
    int fd = direct_connect();
    for (unsigned i = 0; i < n; i++) { /* in turns, so that a busy moment hits all alike */
        uint64_t t = br_now_us();
        direct_ask(fd, "/small");
        kept[i] = direct_read(fd, 13) - t;
        t = br_now_us();
        int one = direct_connect();
        direct_ask(one, "/small");
        fresh[i] = direct_read(one, 13) - t;
        (void)close(one);
        memset(&seen, 0, sizeof(seen));
        t = br_now_us();
        ask("/small");
        until_ended();
        assert_int_equal(seen.bytes, 13);
        first[i] = seen.first_us - t;
        end[i] = seen.end_us - t;
    }
    (void)close(fd);
    say_times("direct, one connection: first byte", kept, n);
    say_times("direct, fresh connections: first byte", fresh, n);
    say_times("through egress: first byte", first, n);
    say_times("through egress: end", end, n);
    free(kept);
    free(fresh);
    free(first);
    free(end);
}

static void test_fast_stream(void **state)
{
    (void)state;
    int fd = direct_connect();
    uint64_t t = br_now_us();
    direct_ask(fd, "/fast");
    (void)direct_read(fd, FAST_BYTES);
    uint64_t direct = br_now_us() - t;
    (void)close(fd);
    memset(&seen, 0, sizeof(seen));
    t = br_now_us();
    ask("/fast");
    until_ended();
    assert_int_equal(seen.bytes, FAST_BYTES);
    say("%-36s %lu MB/s direct, %lu MB/s through egress\n", "one stream",
        (unsigned long)(FAST_BYTES / direct), (unsigned long)(FAST_BYTES / (seen.end_us - t)));
}

static void test_paced_streams(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    uint64_t t = br_now_us();
    for (unsigned i = 0; i < PACED; i++)
        ask("/paced");
    until_ended();
    assert_int_equal(seen.bytes, (uint64_t)PACED * PACED_EVENTS * PACED_BYTES);
    say("%u paced streams of %u ms: %lu ms\n", PACED, PACED_EVENTS * PACED_MS,
        (unsigned long)(seen.end_us - t) / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_fast_stream),
        cmocka_unit_test(test_paced_streams),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
