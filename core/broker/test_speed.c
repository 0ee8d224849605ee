/*
 * What bridle-broker and bridle-egress add together, for a guest: to a request, to the first byte
 * of a stream, and how fast one stream passes; each against a direct connection to the same server
 * on loopback. The figures are printed with BRIDLE_TEST_VERBOSE; asserted is only that every byte
 * arrives, so that a busy machine fails nothing.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
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

#include "broker/test_client.h"

#define FAST_EVENTS 8192u /* of 4 KiB */
#define EVENT_TEXT 4000u

static unsigned rounds(void)
{
    const char *n = getenv("BRIDLE_BENCH_ROUNDS");
    return n ? (unsigned)strtoul(n, NULL, 10) : 100;
}

/* ---- the server: each thread serves one connection after the other ---- */

#define THREADS 8

static const char whole[] =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 168\r\n\r\n"
    "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
    "\"hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,"
    "\"completion_tokens\":5,\"total_tokens\":17}}     ";
#define END                                                                                        \
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"              \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,"               \
    "\"total_tokens\":17}}\n\ndata: [DONE]\n\n"

static void say(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t r = send(fd, p, n, MSG_NOSIGNAL);
        if (r <= 0)
            return;
        p += r;
        n -= (size_t)r;
    }
}

static void serve_fast(int fd)
{
    static const char front[] = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"";
    static const char back[] = "\"}}]}\n\n";
    char *block = malloc(64 * 5000), *p = block;
    char head[160];
    if (!block)
        return;
    for (unsigned i = 0; i < 64; i++) {
        p = mempcpy(p, front, sizeof(front) - 1);
        memset(p, 'x', EVENT_TEXT);
        p = mempcpy(p + EVENT_TEXT, back, sizeof(back) - 1);
    }
    size_t n = (size_t)(p - block), all = n * (FAST_EVENTS / 64) + sizeof(END) - 1;
    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %zu\r\n\r\n",
             all);
    say(fd, head, strlen(head));
    for (unsigned i = 0; i < FAST_EVENTS / 64; i++)
        say(fd, block, n);
    say(fd, END, sizeof(END) - 1);
    free(block);
}

static void serve(int fd)
{
    int on = 1;
    char in[8192];
    size_t n = 0;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    for (;;) {
        ssize_t r = recv(fd, in + n, sizeof(in) - 1 - n, 0);
        if (r <= 0)
            break;
        n += (size_t)r;
        in[n] = 0;
        const char *end = strstr(in, "\r\n\r\n"), *l = strcasestr(in, "content-length: ");
        if (!end || !l || n < (size_t)(end + 4 - in) + strtoul(l + 16, NULL, 10))
            continue;
        n = 0;
        if (strstr(in, "\"fast\""))
            serve_fast(fd);
        else
            say(fd, whole, sizeof(whole) - 1);
    }
    (void)close(fd);
}

static void *serve_all(void *arg)
{
    for (;;) {
        int c = accept((int)(intptr_t)arg, NULL, NULL);
        if (c >= 0)
            serve(c);
    }
    return NULL;
}

static pid_t server;
static unsigned port;

static void start_server(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 128), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    port = ntohs(a.sin_port);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_t t;
        for (int i = 1; i < THREADS; i++)
            (void)pthread_create(&t, NULL, serve_all, (void *)(intptr_t)fd);
        (void)serve_all((void *)(intptr_t)fd);
    }
    (void)close(fd);
}

static int connect_server(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* ---- the client: only what costs as little as possible ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One request; microseconds until the first byte and until the last. `end`: how it ends. */
static void ask(int fd, const struct br_buf *q, const char *end, double *first, double *last,
                size_t *bytes)
{
    static char in[1 << 20];
    char tail[64] = "";
    size_t k = strlen(end), kept = 0;
    uint64_t t = br_now_us();
    *bytes = 0;
    client_send(fd, (const char *)q->data, q->len);
    for (;;) {
        ssize_t r = recv(fd, in, sizeof(in), 0);
        assert_true(r > 0);
        if (*bytes == 0)
            *first = (double)(br_now_us() - t);
        *bytes += (size_t)r;
        size_t n = (size_t)r < k ? (size_t)r : k;
        if (n < k) { /* what came before is part of the end, too */
            size_t keep = kept < k - n ? kept : k - n;
            memmove(tail, tail + kept - keep, keep);
            kept = keep;
        } else {
            kept = 0;
        }
        memcpy(tail + kept, in + r - n, n);
        kept += n;
        if (kept == k && memcmp(tail, end, k) == 0)
            break;
    }
    *last = (double)(br_now_us() - t);
}

struct figures {
    double first, last, p99, rate; /* us, us, us, MB/s */
};

static struct figures measure(int fd, const char *name, const char *whole_end, const char *fast_end)
{
    BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(8192), f = BR_BUF_INIT(8192);
    unsigned n = rounds();
    double *first = calloc(n, sizeof(double)), *last = calloc(n, sizeof(double)), x, y;
    size_t bytes;
    struct figures r = {.rate = 0};
    assert_true(first && last);
    client_post(&q, "whole", false, NULL, NULL);
    client_post(&f, "fast", true, NULL, NULL);
    for (unsigned i = 0; i < n; i++)
        ask(fd, &q, whole_end, &first[i], &last[i], &bytes);
    for (unsigned i = 0; i < (n > 100 ? 10 : 2); i++) {
        ask(fd, &f, fast_end, &x, &y, &bytes);
        assert_true(bytes >= (size_t)FAST_EVENTS * EVENT_TEXT);
        r.rate = (double)bytes / y > r.rate ? (double)bytes / y : r.rate;
    }
    qsort(first, n, sizeof(double), by_value);
    qsort(last, n, sizeof(double), by_value);
    r.first = first[n / 2];
    r.last = last[n / 2];
    r.p99 = last[n * 99 / 100];
    if (getenv("BRIDLE_TEST_VERBOSE"))
        print_message("%-8s first byte %.0f us, whole %.0f us, p99 %.0f us, one stream %.0f MB/s\n",
                      name, r.first, r.last, r.p99, r.rate);
    free(first);
    free(last);
    return r;
}

static void test_speed(void **state)
{
    static const struct br_lease lease = {.max_requests = 1000000,
                                          .max_request_bytes = 1ull << 40,
                                          .max_response_bytes = 1ull << 40,
                                          .max_tokens = 1ull << 40,
                                          .seconds = 600,
                                          .max_answer_tokens = 1000,
                                          .max_in_flight = 8,
                                          .routes = BR_ROUTES_ALL,
                                          .answers = BR_ANSWERS_STRICT,
                                          .token = CLIENT_TOKEN};
    struct rig r = {.server = NULL};
    char url[64];
    (void)state;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", port);
    assert_int_equal(rig_start(&r, &(struct rig_options){.lease = lease,
                                                         .base_url = url,
                                                         .timeouts = {60, 60, 60, 600}}),
                     0);
    rig_listen(&r);
    /* the session reads what it is told in another process, which is not measured */
    pid_t session = fork();
    if (session == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        char block[65536];
        while (recv(r.session.fd, block, sizeof(block), 0) > 0)
            ;
        _exit(0);
    }
    int direct = connect_server(), guest = client_connect(&r);
    struct figures a = measure(direct, "direct", "17}}     ", "[DONE]\n\n");
    struct figures b = measure(guest, "guest", "0\r\n\r\n", "0\r\n\r\n");
    if (getenv("BRIDLE_TEST_VERBOSE"))
        print_message("added: first byte %.0f us, whole %.0f us, p99 %.0f us\n", b.first - a.first,
                      b.last - a.last, b.p99 - a.p99);
    (void)close(direct);
    (void)close(guest);
    (void)kill(session, SIGKILL);
    (void)waitpid(session, NULL, 0);
    br_chan_close(&r.session); /* what the other process did not read is of no interest */
    rig_stop(&r, 0, 0);
}

static int setup(void **state)
{
    (void)state;
    rig_open_programs();
    start_server();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speed)};
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
