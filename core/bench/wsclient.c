/*
 * A WebSocket client for measuring: one connection, no fragments, whole messages. It trusts the
 * server that it has started itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <netinet/tcp.h>

#include "bench/wsclient.h"

#define ROOM (1u << 20)
enum { OP_TEXT = 1, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

static int shake(struct bench_ws *w, const char *path, struct br_err *err)
{
    char ask[512];
    int n = snprintf(ask, sizeof(ask),
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: "
                     "Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                     "Sec-WebSocket-Version: 13\r\n\r\n",
                     path);
    if (write(w->fd, ask, (size_t)n) != n)
        return br_err_errno(err, BR_E_IO, "the server took no request");
    for (;;) {
        ssize_t r = read(w->fd, w->in + w->have, w->room - w->have - 1);
        if (r <= 0)
            return br_err_set(err, BR_E_PEER_GONE, "the server ended the handshake");
        w->have += (size_t)r;
        w->in[w->have] = 0;
        char *end = strstr((char *)w->in, "\r\n\r\n");
        if (!end)
            continue;
        if (strncmp((char *)w->in, "HTTP/1.1 101", 12) != 0)
            return br_err_set(err, BR_E_FAILED, "the server answered '%.40s'", (char *)w->in);
        size_t head = (size_t)(end + 4 - (char *)w->in);
        memmove(w->in, w->in + head, w->have - head);
        w->have -= head;
        return 0;
    }
}

int bench_ws_open(struct bench_ws *w, uint16_t port, const char *path, struct br_err *err)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    *w = (struct bench_ws){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                           .out = BR_BUF_INIT(ROOM),
                           .in = malloc(ROOM),
                           .room = ROOM};
    if (w->fd < 0 || !w->in || connect(w->fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return br_err_errno(err, BR_E_IO, "no connection to port %u", port);
    (void)setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return shake(w, path, err);
}

void bench_ws_close(struct bench_ws *w)
{
    br_close(&w->fd);
    free(br_steal_ptr(&w->in));
    br_buf_free(&w->out);
}

static void put_frame(struct bench_ws *w, unsigned op, const char *p, size_t n)
{
    static const uint8_t mask[4] = {1, 2, 3, 4};
    br_buf_put_u8(&w->out, (uint8_t)(0x80 | op));
    if (n < 126) {
        br_buf_put_u8(&w->out, (uint8_t)(0x80 | n));
    } else {
        br_require(n < 65536);
        br_buf_put_u8(&w->out, 0x80 | 126);
        br_buf_put_u8(&w->out, (uint8_t)(n >> 8));
        br_buf_put_u8(&w->out, (uint8_t)n);
    }
    br_buf_put(&w->out, mask, sizeof(mask));
    size_t at = w->out.len;
    br_buf_put(&w->out, p, n);
    br_require(!w->out.failed);
    for (size_t i = 0; i < n; i++)
        w->out.data[at + i] ^= mask[i & 3];
}

void bench_ws_put(struct bench_ws *w, const char *text, size_t n)
{
    put_frame(w, OP_TEXT, text, n);
}

int bench_ws_flush(struct bench_ws *w, struct br_err *err)
{
    size_t done = 0;
    while (done < w->out.len) {
        ssize_t r = send(w->fd, w->out.data + done, w->out.len - done, MSG_NOSIGNAL);
        if (r < 0 && errno != EINTR)
            return br_err_errno(err, BR_E_IO, "the server does not read");
        done += r > 0 ? (size_t)r : 0;
    }
    br_buf_reset(&w->out);
    return 0;
}

/* The frame at `p`, of which n bytes are there: its size, 0 if it is not whole. */
static size_t frame(const uint8_t *p, size_t n, size_t *head)
{
    if (n < 2)
        return 0;
    uint64_t size = p[1] & 127;
    *head = size == 126 ? 4 : size == 127 ? 10 : 2;
    if (n < *head)
        return 0;
    for (size_t i = 2, first = size >= 126; i < *head; i++, first = 0)
        size = (first ? 0 : size << 8) | p[i];
    return n - *head < size ? 0 : *head + (size_t)size;
}

int bench_ws_take(struct bench_ws *w, bench_ws_fn *text, void *ctx, struct br_err *err)
{
    ssize_t r = recv(w->fd, w->in + w->have, w->room - w->have, MSG_DONTWAIT);
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (r <= 0)
        return br_err_set(err, BR_E_PEER_GONE, "the server has closed the connection");
    w->have += (size_t)r;
    size_t at = 0, size, head = 0;
    while ((size = frame(w->in + at, w->have - at, &head)) > 0) {
        const char *p = (char *)w->in + at + head;
        unsigned op = w->in[at] & 15;
        if (op == OP_TEXT)
            text(ctx, p, size - head);
        else if (op == OP_PING)
            put_frame(w, OP_PONG, p, size - head);
        else if (op == OP_CLOSE)
            return br_err_set(err, BR_E_PEER_GONE, "the server closes: %.*s",
                              (int)(size - head > 2 ? size - head - 2 : 0), p + 2);
        at += size;
    }
    memmove(w->in, w->in + at, w->have - at);
    w->have -= at;
    return bench_ws_flush(w, err);
}

struct waiting {
    const char *part;
    char *dst;
    size_t cap;
    bool found;
};

static void look(void *ctx, const char *text, size_t n)
{
    struct waiting *w = ctx;
    if (w->found || !memmem(text, n, w->part, strlen(w->part)))
        return;
    w->found = true;
    snprintf(w->dst, w->cap, "%.*s", (int)n, text);
}

int bench_ws_wait(struct bench_ws *w, const char *part, char *dst, size_t cap, struct br_err *err)
{
    struct waiting wait = {.part = part, .dst = dst, .cap = cap};
    uint64_t until = br_now_us() + 10000000;
    int r = bench_ws_flush(w, err);
    while (r == 0 && !wait.found) {
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        if (br_now_us() > until)
            return br_err_set(err, BR_E_TIMEOUT, "the server did not say '%s'", part);
        (void)poll(&p, 1, 100);
        r = bench_ws_take(w, look, &wait, err);
    }
    return r;
}
