/*
 * The provider and the proxy of the tests of egress; see test_rig.h. A forked process; a thread for
 * each connection, because most of what it does is to stand still.
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "egress/test_rig.h"

/* ---- recorded answers ---- */

#define JSON_BODY                                                                                  \
    "{\"id\":\"x\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"h\xc3\xa9\"}}]}"
#define STREAM_BODY                                                                                \
    "data: {\"a\":1}\n\n: comment\n\ndata: {\"b\":\"\xe2\x82\xac\"}\n\ndata: [DONE]\n\n"

static const struct {
    const char *all, *body;
} recorded[EG_RECORDED] = {
    {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: req-7\r\n"
     "Content-Length: 62\r\n\r\n" JSON_BODY,
     JSON_BODY},
    {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
     "f\r\ndata: {\"a\":1}\n\n\r\n"
     "0B;ext=\"v\"\r\n: comment\n\n\r\n"
     "014\r\ndata: {\"b\":\"\xe2\x82\xac\"}\n\nd\r\n"
     "D\r\nata: [DONE]\n\n\r\n"
     "0\r\nX-Trailer: 1\r\n\r\n",
     STREAM_BODY},
    {"HTTP/1.1 100 Continue\r\nX-Request-Id: early\r\n\r\n"
     "HTTP/1.0 429 Too Many Requests\r\nRetry-After: 20\r\nretry-after-ms:20000\r\n"
     "Content-Length:\t2\r\n\r\n{}",
     "{}"},
    {"HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 0\n\n", ""},
};

/* Answers that are none: each is refused as such. */
static const char *const odd[EG_ODD] = {
    "HTTP/2 200\r\n\r\n",
    "HTTP/1.1 2x0 OK\r\n\r\n",
    "HTTP/1.1 099 OK\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: "
    "chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\n folded: yes\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 5\r\n\r\nhello",
};

const char *eg_recorded(unsigned t, size_t *n, const char **body)
{
    *n = strlen(recorded[t].all);
    *body = recorded[t].body;
    return recorded[t].all;
}

const char *eg_odd(unsigned t)
{
    return odd[t];
}

/* ---- the provider ---- */

static bool say(struct eg_shared *sh, int fd, const void *p, size_t n)
{
    const char *c = p;
    while (n) {
        ssize_t r = send(fd, c, n, MSG_NOSIGNAL);
        if (r <= 0)
            return false;
        atomic_fetch_add(&sh->sent, (unsigned long)r);
        c += r;
        n -= (size_t)r;
    }
    return true;
}

static bool say_text(struct eg_shared *sh, int fd, const char *text)
{
    return say(sh, fd, text, strlen(text));
}

/* Until the peer closes, or 30 s. */
static void linger(int fd)
{
    char c[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 30000) > 0 && read(fd, c, sizeof(c)) > 0)
        ;
}

/* The same, and reads nothing. */
static void hold(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    (void)poll(&p, 1, 30000);
}

/* A request into `in` (of 32 KiB), head and body, or, if `early`, the head. False at the end. */
static bool read_request(struct eg_shared *sh, int fd, char *in, size_t *n)
{
    *n = 0;
    for (;;) {
        ssize_t r = read(fd, in + *n, 32767 - *n);
        if (r <= 0) {
            atomic_fetch_add(*n ? &sh->connections : &sh->empty, 1);
            return false;
        }
        *n += (size_t)r;
        in[*n] = '\0';
        const char *end = strstr(in, "\r\n\r\n"), *len = strstr(in, "Content-Length:");
        bool early = strstr(in, "/early") != NULL;
        if (end &&
            (early || *n >= (size_t)(end + 4 - in) + (len ? strtoul(len + 15, NULL, 10) : 0)))
            break;
        if (*n == 32767)
            return false;
    }
    atomic_fetch_add(&sh->connections, 1);
    atomic_fetch_add(&sh->requests, 1);
    memcpy(sh->last, in, *n + 1);
    atomic_store(&sh->last_len, (unsigned)*n);
    return true;
}

static void answer_status(struct eg_shared *sh, int fd, unsigned status)
{
    char text[256];
    const char *body = status == 204 || status == 304 ? "" : "{\"e\":1}";
    snprintf(text, sizeof(text),
             "HTTP/1.1 %u Some\r\nLocation: /v1/elsewhere\r\nRetry-After: 3\r\nRefresh: 0\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             status, strlen(body), body);
    say_text(sh, fd, text);
}

static void answer_stall(struct eg_shared *sh, int fd, const char *where)
{
    if (strncmp(where, "head", 4) == 0)
        say_text(sh, fd, "HTTP/1.1 200 OK\r\nContent-Ty");
    else if (strncmp(where, "body", 4) == 0)
        say_text(sh, fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
    else if (strncmp(where, "half", 4) == 0)
        say_text(sh, fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
    linger(fd);
}

static void answer_flood(struct eg_shared *sh, int fd, unsigned long bytes)
{
    char block[16384];
    memset(block, 'x', sizeof(block));
    snprintf(block, 128, "HTTP/1.1 200 OK\r\nContent-Length: %lu\r\n\r\n", bytes);
    bool ok = say_text(sh, fd, block);
    memset(block, 'x', sizeof(block));
    for (; ok && bytes; bytes -= bytes < sizeof(block) ? bytes : sizeof(block))
        ok = say(sh, fd, block, bytes < sizeof(block) ? bytes : sizeof(block));
}

static void answer_chunks(struct eg_shared *sh, int fd, unsigned t)
{
    for (const char *p = recorded[t].all; *p; p++)
        if (!say(sh, fd, p, 1))
            return;
}

static void answer_say(struct eg_shared *sh, int fd, const char *in)
{
    char head[128];
    size_t n = (size_t)(strstr(in, "\r\n\r\n") - in);
    snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n);
    say_text(sh, fd, head);
    say(sh, fd, in, n);
}

static void provider(struct eg_shared *sh, int fd)
{
    static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             "Set-Cookie: a=b\r\nX-RateLimit-Limit-Requests: 60\r\n"
                             "Content-Length: 13\r\n\r\n{\"good\":true}";
    char *in = malloc(32768);
    size_t n;
    unsigned a, b;
    if (in && read_request(sh, fd, in, &n)) {
        const char *path = strstr(in, " /v1");
        path = path ? path + 4 : "";
        if (sscanf(path, "/status/%u", &a) == 1)
            answer_status(sh, fd, a);
        else if (sscanf(path, "/cut/%u/%u", &a, &b) == 2)
            say(sh, fd, recorded[a].all, b);
        else if (sscanf(path, "/chunks/%u", &a) == 1)
            answer_chunks(sh, fd, a);
        else if (strncmp(path, "/stall/", 7) == 0)
            answer_stall(sh, fd, path + 7);
        else if (sscanf(path, "/flood/%u", &a) == 1)
            answer_flood(sh, fd, a);
        else if (sscanf(path, "/odd/%u", &a) == 1)
            say_text(sh, fd, odd[a]);
        else if (strncmp(path, "/say", 4) == 0)
            answer_say(sh, fd, in);
        else
            say_text(sh, fd, ok);
        if (strncmp(path, "/early", 6) == 0)
            hold(fd);
    }
    free(in);
}

/* ---- the process ---- */

struct served {
    void (*each)(struct eg_shared *, int);
    struct eg_shared *shared;
    int fd;
};

static void *serve_one(void *p)
{
    struct served s = *(struct served *)p;
    free(p);
    s.each(s.shared, s.fd);
    (void)shutdown(s.fd, SHUT_WR);
    (void)close(s.fd);
    return NULL;
}

static void serve_all(int listener, struct served s)
{
    const int one = 1;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (;;) {
        pthread_t t;
        struct served *p = malloc(sizeof(*p));
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || !p)
            continue;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        s.fd = fd;
        *p = s;
        if (pthread_create(&t, &attr, serve_one, p) != 0)
            _exit(1);
    }
}

void eg_server_start_with(struct eg_server *s, void (*each)(struct eg_shared *, int fd))
{
    *s = (struct eg_server){.pid = -1};
    s->shared =
        mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s->shared != MAP_FAILED);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 512), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    s->port = ntohs(a.sin_port);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve_all(fd, (struct served){.each = each, .shared = s->shared});
    }
    (void)close(fd);
}

void eg_server_start(struct eg_server *s)
{
    eg_server_start_with(s, provider);
}

void eg_server_stop(struct eg_server *s)
{
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    (void)munmap(s->shared, sizeof(*s->shared));
}

void eg_server_reset(struct eg_server *s)
{
    atomic_store(&s->shared->connections, 0);
    atomic_store(&s->shared->empty, 0);
    atomic_store(&s->shared->requests, 0);
    atomic_store(&s->shared->sent, 0);
    s->shared->last[0] = '\0';
}

/* ---- the proxy ---- */

static unsigned proxy_refuse;

static void splice_both(int a, int b)
{
    char block[16384];
    struct pollfd p[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    while (poll(p, 2, 30000) > 0)
        for (int i = 0; i < 2; i++) {
            ssize_t r = p[i].revents ? read(p[i].fd, block, sizeof(block)) : 1;
            if (r <= 0)
                return;
            if (p[i].revents && send(p[1 - i].fd, block, (size_t)r, MSG_NOSIGNAL) != r)
                return;
        }
}

static void proxy(struct eg_shared *sh, int fd)
{
    char in[32768];
    size_t n = 0;
    unsigned port;
    if (!read_request(sh, fd, in, &n))
        return;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (proxy_refuse) {
        char text[128];
        snprintf(text, sizeof(text), "HTTP/1.1 %u No\r\nContent-Length: 0\r\n\r\n", proxy_refuse);
        say_text(sh, fd, text);
        return;
    }
    if (sscanf(in, "CONNECT 127.0.0.1:%u HTTP/1.1", &port) != 1)
        return;
    a.sin_port = htons((uint16_t)port);
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(to, (struct sockaddr *)&a, sizeof(a)) == 0) {
        say_text(sh, fd, "HTTP/1.1 200 Connection established\r\n\r\n");
        splice_both(fd, to);
    }
    (void)close(to);
}

void eg_proxy_start(struct eg_proxy *p, unsigned refuse)
{
    proxy_refuse = refuse;
    eg_server_start_with(&p->server, proxy);
}
