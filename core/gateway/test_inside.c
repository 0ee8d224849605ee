/*
 * The gateway's connections inside of a test: see test_inside.h.
 */
#include "gateway/test_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct inside_plan inside_plan;
struct gateway inside;
static uint64_t now_us;

static uint64_t mono(void)
{
    return now_us;
}

static void on_open(struct conn *c)
{
    if (inside_plan.open)
        inside_plan.open(c);
}

static void on_message(struct conn *c, const char *text, size_t n)
{
    if (inside_plan.message)
        inside_plan.message(c, text, n);
}

static void on_writable(struct conn *c)
{
    if (inside_plan.writable)
        inside_plan.writable(c);
}

static void on_closed(struct conn *c)
{
    if (inside_plan.closed)
        inside_plan.closed(c);
}

const struct gw_protocol gw_harness = {"harness.acp.1", on_open, on_message, on_writable,
                                       on_closed};
const struct gw_protocol gw_acp = {"acp.v1", on_open, on_message, NULL, on_closed};

void inside_start(void)
{
    static const struct br_world world = {.mono_us = mono};
    memset(&inside, 0, sizeof(inside));
    memset(&inside_plan, 0, sizeof(inside_plan));
    now_us = 1000000;
    br_world_set(&world);
    br_require(poll_init(&inside.poll, NULL) == 0);
    peers_init(&inside.peers);
    br_service_default(&inside.settings);
    inside.settings.nlisteners = 1;
    inside.settings.listeners[0].kind = BR_LISTENER_UNIX;
    inside.log_fd = -1;
    inside.log_max = BR_LOG_INFO;
    inside.held_max = CONN_HELD_MAX;
    inside.auth.diag = -1;
    inside.auth.bridled = 1000;
    inside.started_us = now_us;
    inside.settings.requests_per_second = 0;
}

void inside_stop(void)
{
    static const struct br_world none = {NULL};
    conns_free(&inside);
    poll_free(&inside.poll);
    peers_free(&inside.peers);
    br_require(inside.nconns == 0 && !inside.conns && inside.counters.connections_open == 0 &&
               inside.held == 0);
    br_world_set(&none);
}

struct conn *inside_conn(int *client)
{
    const struct peer_key key = {.kind = 'u', .bytes = {1}};
    int ends[2];
    br_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    struct conn *c = conn_begin(&inside, ends[0], peer_enter(&inside.peers, &key));
    br_require(c != NULL);
    c->unix_socket = c->local = c->has_uid = true;
    c->uid = 1000;
    *client = ends[1];
    return c;
}

struct conn *inside_open(int *client)
{
    static const char head[] = "GET /acp HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                               "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    struct conn *c = inside_conn(client);
    char answer[4096];
    br_require(write(*client, head, sizeof(head) - 1) == (ssize_t)sizeof(head) - 1);
    br_require(poll_turn(&inside, 0, NULL) == 0);
    /* the answer alone: frames may stand behind it */
    ssize_t n = recv(*client, answer, sizeof(answer) - 1, MSG_PEEK);
    br_require(n > 12 && memcmp(answer, "HTTP/1.1 101", 12) == 0);
    answer[n] = 0;
    size_t end = (size_t)(strstr(answer, "\r\n\r\n") + 4 - answer);
    br_require(recv(*client, answer, end, 0) == (ssize_t)end);
    return c;
}

void inside_turn(void)
{
    for (unsigned i = 0; i < 4; i++)
        br_require(poll_turn(&inside, 0, NULL) == 0);
}

void inside_pass(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        now_us += 1000000;
        inside_turn();
    }
}

uint64_t inside_now(void)
{
    return now_us;
}

bool inside_frame(struct br_buf *in, size_t *at, struct inside_frame *f)
{
    const uint8_t *p = in->data + *at;
    size_t left = in->len - *at, head = 2;
    if (left < 2)
        return false;
    uint64_t n = p[1];
    br_require(n < 128);
    head = n == 127 ? 10 : n == 126 ? 4 : 2;
    if (left < head)
        return false;
    if (head > 2) {
        n = 0;
        for (size_t i = 2; i < head; i++)
            n = n << 8 | p[i];
    }
    if (left - head < n)
        return false;
    *f = (struct inside_frame){.op = p[0] & 15, .p = p + head, .n = (size_t)n};
    *at += head + (size_t)n;
    return true;
}

ssize_t inside_read(int client, struct br_buf *in, size_t most)
{
    static uint8_t bytes[1u << 20];
    ssize_t n = recv(client, bytes, most < sizeof(bytes) ? most : sizeof(bytes), 0);
    if (n > 0)
        br_require(br_buf_put(in, bytes, (size_t)n) == 0);
    return n < 0 && errno == ECONNRESET ? 0 : n;
}

void inside_send(int client, uint8_t first, const void *p, size_t n)
{
    uint8_t frame[4096] = {first, (uint8_t)(0x80 | n)};
    br_require(n < 126);
    memcpy(frame + 6, p, n); /* masked with zeros */
    br_require(send(client, frame, n + 6, MSG_NOSIGNAL) == (ssize_t)n + 6);
}
