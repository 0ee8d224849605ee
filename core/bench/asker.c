/*
 * A client of the provider's path: one request after another on a kept connection, with the times
 * of its first byte of text and of its end. It trusts the servers, which this program started, and
 * reads no more of an answer than it takes to see its end.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/asker.h"

static int asker_connect(const struct bench_way *w)
{
    if (w->path[0]) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        snprintf(a.sun_path, sizeof(a.sun_path), "%s", w->path);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
            br_close(&fd);
        return fd;
    }
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(w->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        br_close(&fd);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

int bench_asker_open(struct bench_asker *a, const struct bench_way *w, const char *mode,
                     bool stream, struct br_err *err)
{
    char body[512];
    *a = (struct bench_asker){.fd = asker_connect(w)};
    if (a->fd < 0)
        return br_err_errno(err, BR_E_IO, "%s could not be connected to", w->name);
    int n = snprintf(
        body, sizeof(body),
        "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":\"mode=%s\"}],"
        "\"max_tokens\":16%s}",
        mode, stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    int k = snprintf(a->request, sizeof(a->request),
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: provider\r\n"
                     "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                     "Content-Length: %d\r\n\r\n%s",
                     w->token, n, body);
    a->request_len = (size_t)k;
    return 0;
}

int bench_asker_ask(struct bench_asker *a, struct br_err *err)
{
    a->length = a->bytes = a->first_us = a->ended_us = 0;
    memset(a->tail, 0, sizeof(a->tail));
    a->started_us = br_now_us();
    if (send(a->fd, a->request, a->request_len, MSG_NOSIGNAL) != (ssize_t)a->request_len)
        return br_err_errno(err, BR_E_IO, "a request of the measurement could not be sent");
    return 0;
}

/* How long the whole answer is; 0: it is chunked. The head comes in one piece. */
static uint64_t whole_length(const char *p, size_t n)
{
    const char *end = memmem(p, n, "\r\n\r\n", 4);
    if (!end)
        return 0;
    for (const char *line = p; line && line < end;) {
        if (strncasecmp(line, "content-length:", 15) == 0)
            return (uint64_t)(end - p) + 4 + strtoul(line + 15, NULL, 10);
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    return 0;
}

static bool over(const struct bench_asker *a)
{
    if (a->length)
        return a->bytes >= a->length;
    return memcmp(a->tail, "\r\n0\r\n\r\n", 7) == 0;
}

static void keep_tail(struct bench_asker *a, const char *p, size_t n)
{
    if (n >= 7) {
        memcpy(a->tail, p + n - 7, 7);
        return;
    }
    memmove(a->tail, a->tail + n, 7 - n);
    memcpy(a->tail + 7 - n, p, n);
}

int bench_asker_read(struct bench_asker *a, struct br_err *err)
{
    static char block[512 << 10];
    ssize_t n = recv(a->fd, block, sizeof(block), 0);
    if (n <= 0)
        return br_err_errno(err, BR_E_IO, "an answer of the measurement was cut");
    if (a->bytes == 0 && memcmp(block, "HTTP/1.1 200", 12) != 0)
        return br_err_set(err, BR_E_FAILED, "the measurement was answered '%.*s'",
                          (int)(n < 600 ? n : 600), block);
    if (a->bytes == 0)
        a->length = whole_length(block, (size_t)n);
    a->bytes += (uint64_t)n;
    keep_tail(a, block, (size_t)n);
    if (!a->first_us && (memmem(block, (size_t)n, "data:", 5) || a->length))
        a->first_us = br_now_us();
    if (!over(a))
        return 0;
    a->ended_us = br_now_us();
    return 1;
}

int bench_asker_exchange(struct bench_asker *a, struct br_err *err)
{
    int r = bench_asker_ask(a, err);
    while (r == 0)
        r = bench_asker_read(a, err);
    return r < 0 ? r : 0;
}

void bench_asker_close(struct bench_asker *a)
{
    br_close(&a->fd);
}
