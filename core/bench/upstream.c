/*
 * The server behind the measurements of the provider's path: HTTP/1.1 on loopback, kept
 * connections, one process that waits in epoll. What a request gets is in its body: "mode=whole" a
 * small answer, "mode=stream" a small stream, "mode=bulk" many megabytes of large events,
 * "mode=small" the same of small ones, "mode=paced" an event every 20 ms. Trusts its one client,
 * which is this program.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/upstream.h"

#define PEERS_MAX 512u
#define REQUEST_MAX 8192u

static const char whole_body[] =
    "{\"id\":\"c1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"bench\",\"choices\":[{"
    "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"ok\"},\"finish_reason\":"
    "\"stop\"}],"
    "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}";
static const char head[] =
    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Type: text/event-stream\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";
#define EVENT_BEFORE                                                                               \
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\"," \
    "\"choices\":[{\"index\":0,\"delta\":{"
static const char event_text[] = EVENT_BEFORE "\"content\":\"%s\"},\"finish_reason\":null}]}\n\n";
static const char event_last[] = EVENT_BEFORE
    "},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":"
    "\"bench\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,"
    "\"total_tokens\":6}}\n\ndata: [DONE]\n\n";

struct peer {
    int fd;
    char request[REQUEST_MAX];
    size_t have;
    const struct br_buf *block; /* what is sent again and again */
    uint64_t left;              /* of it, in bytes */
    size_t at;                  /* in it */
    uint64_t due_us;            /* of the next paced event; 0: none */
    unsigned events;            /* still to be sent */
};

static struct peer peers[PEERS_MAX];
static struct br_buf whole, bulk, small, one, first, last;
static int epoll_fd = -1;

static void put_chunk(struct br_buf *b, const char *text, size_t n)
{
    br_buf_printf(b, "%zx\r\n", n);
    br_buf_put(b, text, n);
    br_buf_put(b, "\r\n", 2);
}

static void put_event(struct br_buf *b, size_t text)
{
    char *filler = calloc(1, text + 1), *event = malloc(text + sizeof(event_text));
    br_require(filler && event);
    memset(filler, 'x', text);
    int n = snprintf(event, text + sizeof(event_text), event_text, filler);
    put_chunk(b, event, (size_t)n);
    free(filler);
    free(event);
}

static void blocks_make(void)
{
    br_buf_init(&whole, 4096);
    br_buf_init(&bulk, 2u << 20);
    br_buf_init(&small, 2u << 20);
    br_buf_init(&one, 4096);
    br_buf_init(&first, 4096);
    br_buf_init(&last, 4096);
    br_buf_printf(&whole,
                  "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Type: "
                  "application/json\r\nContent-Length: %zu\r\n"
                  "\r\n%s",
                  sizeof(whole_body) - 1, whole_body);
    while (bulk.len < 512u << 10)
        put_event(&bulk, 16u << 10);
    while (small.len < 512u << 10)
        put_event(&small, 64);
    put_event(&one, 8);
    br_buf_put(&first, head, sizeof(head) - 1);
    put_event(&first, 8);
    put_chunk(&last, event_last, sizeof(event_last) - 1);
    br_buf_put(&last, "0\r\n\r\n", 5);
}

static void peer_end(struct peer *p)
{
    (void)close(p->fd);
    *p = (struct peer){.fd = -1};
}

/* These small pieces always fit: the client reads them before it asks again. */
static void peer_send(struct peer *p, const void *data, size_t n)
{
    if (p->fd >= 0 && send(p->fd, data, n, MSG_NOSIGNAL) != (ssize_t)n)
        peer_end(p);
}

static void peer_wait(struct peer *p, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = p};
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_MOD, p->fd, &e);
}

static void peer_bulk(struct peer *p)
{
    while (p->left) {
        size_t n = p->block->len - p->at;
        ssize_t k = send(p->fd, p->block->data + p->at, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            peer_wait(p, EPOLLIN | EPOLLOUT);
            return;
        }
        if (k <= 0) {
            peer_end(p);
            return;
        }
        p->at = (p->at + (size_t)k) % p->block->len;
        p->left -= (uint64_t)k < p->left ? (uint64_t)k : p->left;
        if (p->at) /* end between two events */
            p->left = p->left ? p->left : 1;
    }
    peer_wait(p, EPOLLIN);
    peer_send(p, last.data, last.len);
}

static void peer_answer(struct peer *p)
{
    const char *mode = memmem(p->request, p->have, "mode=", 5);
    char c = mode ? mode[5] : 'w';
    char second = mode ? mode[6] : 'h';
    p->have = 0;
    if (c == 'w') {
        peer_send(p, whole.data, whole.len);
    } else if (c == 's' && second == 't') {
        peer_send(p, first.data, first.len);
        peer_send(p, last.data, last.len);
    } else if (c == 'b' || c == 's') {
        peer_send(p, head, sizeof(head) - 1);
        p->block = c == 'b' ? &bulk : &small;
        p->left = BENCH_BULK_BYTES;
        p->at = 0;
        if (p->fd >= 0)
            peer_bulk(p);
    } else {
        peer_send(p, first.data, first.len);
        p->due_us = br_now_us() + BENCH_PACE_US;
        p->events = BENCH_PACED_EVENTS;
    }
}

/* A request is whole when as much follows its head as Content-Length says. */
static bool request_whole(const struct peer *p)
{
    const char *end = memmem(p->request, p->have, "\r\n\r\n", 4);
    if (!end)
        return false;
    size_t at = (size_t)(end - p->request) + 4, length = 0;
    for (const char *line = p->request; line && line < end;) {
        if (strncasecmp(line, "content-length:", 15) == 0)
            length = strtoul(line + 15, NULL, 10);
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    return p->have >= at + length;
}

static void peer_read(struct peer *p)
{
    ssize_t n = recv(p->fd, p->request + p->have, REQUEST_MAX - p->have, 0);
    if (n <= 0) {
        peer_end(p);
        return;
    }
    p->have += (size_t)n;
    if (request_whole(p))
        peer_answer(p);
    else if (p->have == REQUEST_MAX)
        peer_end(p);
}

static void peer_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    for (unsigned i = 0; fd >= 0 && i < PEERS_MAX; i++) {
        if (peers[i].fd >= 0)
            continue;
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &peers[i]};
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        peers[i] = (struct peer){.fd = fd};
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
        return;
    }
    if (fd >= 0)
        (void)close(fd);
}

/* Send what is due; the milliseconds until the next, or -1. */
static int pace(void)
{
    uint64_t now = br_now_us(), next = UINT64_MAX;
    for (unsigned i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &peers[i];
        while (p->fd >= 0 && p->due_us && p->due_us <= now) {
            p->due_us += BENCH_PACE_US;
            if (--p->events) {
                peer_send(p, one.data, one.len);
            } else {
                p->due_us = 0;
                peer_send(p, last.data, last.len);
            }
        }
        if (p->fd >= 0 && p->due_us && p->due_us < next)
            next = p->due_us;
    }
    return next == UINT64_MAX ? -1 : next <= now ? 0 : (int)((next - now + 999) / 1000);
}

static void serve(int listener)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, got[64];
    for (unsigned i = 0; i < PEERS_MAX; i++)
        peers[i].fd = -1;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epoll_fd, got, 64, pace());
        for (int i = 0; i < n; i++) {
            struct peer *p = got[i].data.ptr;
            if (!p)
                peer_accept(listener);
            else if (got[i].events & EPOLLIN)
                peer_read(p);
            else if (p->fd >= 0 && got[i].events & EPOLLOUT)
                peer_bulk(p);
            else if (p->fd >= 0)
                peer_end(p);
        }
    }
}

int bench_upstream_start(struct bench_upstream *u, struct br_err *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    BR_CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 512) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        return br_err_errno(err, BR_E_IO, "no socket for the server of the measurement");
    u->port = ntohs(a.sin_port);
    u->pid = fork();
    if (u->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        blocks_make();
        serve(fd);
        _exit(0);
    }
    return u->pid < 0 ? br_err_errno(err, BR_E_IO, "no process for the server") : 0;
}
