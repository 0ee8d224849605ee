/*
 * The client and the provider of the tests of guests; see test_client.h. Test code: failures are
 * cmocka assertions, but in the provider, which is another process.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_client.h"

/* ---- the provider ---- */

#define EVENT(content) "data: {\"choices\":[{\"index\":0,\"delta\":" content "}]}\n\n"
#define FINISH(reason)                                                                             \
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}\n\n"
#define USAGE                                                                                      \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5,"               \
    "\"total_tokens\":17}}\n\n"
#define SSE_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: up-1\r\n\r\n"
#define CALL                                                                                       \
    "{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":"    \
    "\"f\",\"arguments\":\"{}\"}}]}"

static bool say(struct eg_shared *sh, int fd, const char *text)
{
    size_t n = strlen(text);
    ssize_t r = send(fd, text, n, MSG_NOSIGNAL);
    if (r > 0)
        atomic_fetch_add(&sh->sent, (unsigned long)r);
    return r == (ssize_t)n;
}

static void say_json(struct eg_shared *sh, int fd, const char *body)
{
    char head[256];
    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Request-Id: up-1\r\n"
             "Content-Length: %zu\r\n\r\n",
             strlen(body));
    (void)(say(sh, fd, head) && say(sh, fd, body));
}

static void linger(int fd)
{
    char c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 20000) > 0 && read(fd, &c, 1) > 0)
        ;
}

static void say_status(struct eg_shared *sh, int fd, const char *in, unsigned status)
{
    char text[1024], key[128] = "none";
    const char *auth = strstr(in, "Authorization: Bearer ");
    if (auth)
        (void)sscanf(auth, "Authorization: Bearer %127s", key);
    snprintf(text, sizeof(text),
             "HTTP/1.1 %u Odd\r\nContent-Type: application/json\r\nRetry-After: 3\r\n"
             "Location: http://127.0.0.1/\r\nX-RateLimit-Remaining-Tokens: 7\r\n"
             "Set-Cookie: a=b\r\n\r\n"
             "{\"error\":{\"message\":\"no, %s\",\"type\":\"odd\",\"code\":\"odd_code\"}}",
             status, key);
    (void)say(sh, fd, text);
}

static void slow(struct eg_shared *sh, int fd)
{
    (void)say(sh, fd, SSE_HEAD);
    for (int i = 0; i < 50 && say(sh, fd, EVENT("{\"content\":\"x\"}")); i++)
        (void)poll(NULL, 0, 20);
    (void)say(sh, fd, FINISH("stop") USAGE "data: [DONE]\n\n");
}

static void flood(struct eg_shared *sh, int fd)
{
    static char text[16384];
    (void)say(sh, fd, SSE_HEAD);
    if (!text[0]) {
        char x[1025] = "";
        memset(x, 'x', 1024);
        for (unsigned i = 0, at = 0; i < 14; i++)
            at +=
                (unsigned)snprintf(text + at, sizeof(text) - at, EVENT("{\"content\":\"%s\"}"), x);
    }
    (void)say(sh, fd, USAGE); /* of what was used by now, as some say it all the time */
    while (say(sh, fd, text))
        ;
}

static void answer(struct eg_shared *sh, int fd, const char *in, const char *mode)
{
    unsigned status = (unsigned)strtoul(mode, NULL, 10);
    if (status)
        say_status(sh, fd, in, status);
    else if (strcmp(mode, "whole") == 0)
        say_json(sh, fd,
                 "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                 "\"hi\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,"
                 "\"completion_tokens\":5,\"total_tokens\":17}}");
    else if (strcmp(mode, "stream") == 0)
        (void)say(sh, fd,
                  SSE_HEAD EVENT("{\"content\":\"h\"}") EVENT("{\"content\":\"i\"}") FINISH("stop")
                      USAGE "data: [DONE]\n\n");
    else if (strcmp(mode, "slow") == 0)
        slow(sh, fd);
    else if (strcmp(mode, "hang") == 0)
        (void)say(sh, fd, SSE_HEAD EVENT("{\"content\":\"h\"}")), linger(fd);
    else if (strcmp(mode, "flood") == 0)
        flood(sh, fd);
    else if (strcmp(mode, "mute") == 0)
        linger(fd);
    else if (strcmp(mode, "cut") == 0)
        (void)say(sh, fd,
                  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999"
                  "\r\n\r\n" EVENT("{\"content\":\"h\"}"));
    else if (strcmp(mode, "calls") == 0)
        (void)say(sh, fd, SSE_HEAD EVENT(CALL) FINISH("stop") USAGE "data: [DONE]\n\n");
    else if (strcmp(mode, "wrong") == 0)
        say_json(sh, fd,
                 "{\"choices\":[{\"index\":0,\"message\":" CALL ",\"finish_reason\":\"stop\"}]}");
}

void client_provider(struct eg_shared *sh, int fd)
{
    static const char mark[] = "\"content\":\"";
    BR_CLEANUP_BUF struct br_buf in = BR_BUF_INIT(BR_BLOB_MAX);
    char block[65536], mode[32] = "";
    const char *end = NULL, *text = NULL;
    size_t length = 0;
    do {
        ssize_t r = read(fd, block, sizeof(block));
        if (r <= 0)
            return;
        br_buf_put(&in, block, (size_t)r);
        text = br_buf_cstr(&in);
        if (!end && (end = strstr(text, "\r\n\r\n"))) {
            const char *l = strstr(text, "Content-Length: ");
            length = (size_t)(end - text) + 4 + (l ? strtoul(l + 16, NULL, 10) : 0);
        }
    } while (!end || in.len < length);
    atomic_fetch_add(&sh->requests, 1);
    snprintf(sh->last, sizeof(sh->last), "%s", text);
    for (const char *p = text; (p = strstr(p, mark)); p += sizeof(mark))
        snprintf(mode, sizeof(mode), "%.*s", (int)strcspn(p + sizeof(mark) - 1, "\""),
                 p + sizeof(mark) - 1);
    answer(sh, fd, text, mode);
}

/* ---- the client ---- */

void client_answer_free(struct client_answer *a)
{
    br_buf_free(&a->body);
}

int client_connect(const struct rig *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, r->listener, strlen(r->listener) + 1);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        int e = errno;
        (void)close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

void client_send(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t r = send(fd, p, n, MSG_NOSIGNAL);
        assert_true(r > 0);
        p += r;
        n -= (size_t)r;
    }
}

void client_post(struct br_buf *dst, const char *message, bool stream, const char *token,
                 const char *more_headers)
{
    char body[2048];
    int n = snprintf(body, sizeof(body),
                     "{\"model\":\"test-model\",\"max_tokens\":100%s,\"messages\":[{\"role\":"
                     "\"user\",\"content\":\"%s\"}]}",
                     stream ? ",\"stream\":true" : "", message);
    br_buf_printf(dst,
                  "POST /v1/chat/completions HTTP/1.1\r\nHost: provider\r\n"
                  "Authorization: Bearer %s\r\nContent-Type: application/json\r\n%s"
                  "Content-Length: %d\r\n\r\n%s",
                  token ? token : CLIENT_TOKEN, more_headers ? more_headers : "", n, body);
}

void client_ask(int fd, const char *message, bool stream)
{
    BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(8192);
    client_post(&q, message, stream, NULL, NULL);
    client_send(fd, (const char *)q.data, q.len);
}

/* The next bytes, while the rig is served; 0 at the end. */
static ssize_t next(struct rig *r, int fd, void *p, size_t n)
{
    for (unsigned i = 0; i < 2000; i++) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        if (poll(&pf, 1, 0) > 0) {
            ssize_t k = recv(fd, p, n, 0);
            return k < 0 ? 0 : k;
        }
        (void)rig_until(r, NULL, 5);
    }
    fail_msg("the broker says nothing more");
    return 0;
}

static bool fill(struct rig *r, int fd, struct br_buf *in)
{
    char block[65536];
    ssize_t k = next(r, fd, block, sizeof(block));
    return k > 0 && br_buf_put(in, block, (size_t)k) == 0;
}

/* The body of a chunked answer at in->data + at. */
static bool read_chunks(struct rig *r, int fd, struct br_buf *in, size_t at, struct br_buf *body)
{
    for (;;) {
        const char *text = br_buf_cstr(in), *line = strstr(text + at, "\r\n");
        size_t size = line ? strtoul(text + at, NULL, 16) : 0;
        size_t need = line ? (size_t)(line - text) + 2 + size + 2 : in->len + 1;
        if (in->len < need) {
            if (!fill(r, fd, in))
                return false;
            continue;
        }
        assert_memory_equal(text + need - 2, "\r\n", 2);
        if (size == 0) {
            assert_int_equal(in->len, need); /* nothing that nobody asked for */
            return true;
        }
        br_buf_put(body, line + 2, size);
        at = need;
    }
}

bool client_read(struct rig *r, int fd, struct client_answer *a)
{
    BR_CLEANUP_BUF struct br_buf in = BR_BUF_INIT(64u << 20);
    const char *end = NULL;
    *a = (struct client_answer){.status = 0};
    br_buf_init(&a->body, 64u << 20);
    while (!end) {
        if (!fill(r, fd, &in))
            return false;
        end = strstr(br_buf_cstr(&in), "\r\n\r\n");
    }
    const char *text = (const char *)in.data;
    size_t head = (size_t)(end - text) + 4;
    snprintf(a->head, sizeof(a->head), "%.*s", (int)head, text);
    assert_int_equal(sscanf(text, "HTTP/1.1 %u", &a->status), 1);
    a->closes = strstr(a->head, "\r\nconnection: close\r\n");
    a->chunked = strstr(a->head, "\r\ntransfer-encoding: chunked\r\n");
    if (a->status == 100)
        return a->whole = true;
    const char *l = strstr(a->head, "\r\ncontent-length: ");
    assert_true(!l == a->chunked);
    if (a->chunked)
        return a->whole = read_chunks(r, fd, &in, head, &a->body);
    size_t n = strtoul(l + 18, NULL, 10);
    while (in.len < head + n)
        if (!fill(r, fd, &in))
            return false;
    br_buf_put(&a->body, in.data + head, in.len - head); /* of a second answer, too */
    return a->whole = true;
}

void client_once(struct rig *r, const char *message, bool stream, struct client_answer *a)
{
    int fd = client_connect(r);
    assert_true(fd >= 0);
    client_ask(fd, message, stream);
    assert_true(client_read(r, fd, a));
    (void)close(fd);
}

bool client_ends(struct rig *r, int fd)
{
    char c[65536];
    while (next(r, fd, c, sizeof(c)) > 0)
        ;
    (void)close(fd);
    return true;
}

bool client_has(const struct client_answer *a, const char *text)
{
    return a->body.data && memmem(a->body.data, a->body.len, text, strlen(text));
}
