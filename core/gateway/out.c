/*
 * What waits to be sent to one client: whole messages, in order, each with the head of its frame.
 *
 * Pacing. A strict client of harness/acp/1 hangs up when 128 messages are unread. A pong shows that
 * it has read everything before the ping that it answers, so a ping with the number of messages so
 * far goes behind every 32nd, and no message is sent while 96 are not answered for. The number
 * comes back in the pong; one that was not sent is ignored, since a client may send pongs unasked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "gateway/conn_priv.h"

#define OUT_IOV 128u
#define OUT_BYTES (512u * 1024) /* of one call */
#define PONG_MAX 125u

static void node_append(struct out *o, struct out_node *node)
{
    node->next = NULL;
    if (o->last)
        o->last->next = node;
    else
        o->first = node;
    o->last = node;
    o->bytes += node->n;
    if (node->kind == OUT_TEXT) {
        o->messages++;
        o->queued++;
    }
    o->pongs += node->kind == OUT_PONG;
}

static struct out_node *node_pop(struct out *o)
{
    struct out_node *node = o->first;
    o->first = node->next;
    if (!o->first)
        o->last = NULL;
    o->bytes -= node->n - o->off;
    o->off = 0;
    if (node->kind == OUT_TEXT)
        o->messages--;
    o->pongs -= node->kind == OUT_PONG;
    return node;
}

void out_free(struct out *o)
{
    while (o->first)
        free(node_pop(o));
}

int out_put(struct out *o, enum out_kind kind, const struct gw_piece *pieces, unsigned n)
{
    size_t bytes = 0, nhead = 0;
    uint8_t head[14];
    for (unsigned i = 0; i < n; i++)
        bytes += pieces[i].n;
    if (kind == OUT_TEXT)
        nhead = br_ws_head(head, BR_WS_TEXT, bytes, NULL);
    if (bytes > UINT32_MAX - sizeof(head))
        return -1;
    struct out_node *node = malloc(sizeof(*node) + nhead + bytes);
    if (!node)
        return -1;
    node->n = (uint32_t)(nhead + bytes);
    node->kind = (uint8_t)kind;
    memcpy(node->data, head, nhead);
    uint8_t *at = node->data + nhead;
    for (unsigned i = 0; i < n; i++) {
        if (pieces[i].n)
            memcpy(at, pieces[i].p, pieces[i].n);
        at += pieces[i].n;
    }
    node_append(o, node);
    return 0;
}

int out_ping(struct out *o)
{
    uint8_t frame[14 + 24];
    char text[24];
    int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)o->queued);
    size_t head = br_ws_head(frame, BR_WS_PING, (uint64_t)n, NULL);
    memcpy(frame + head, text, (size_t)n);
    return out_put(o, OUT_PING, &(struct gw_piece){frame, head + (size_t)n}, 1);
}

int out_text(struct out *o, const struct gw_piece *pieces, unsigned n)
{
    if (out_put(o, OUT_TEXT, pieces, n) < 0)
        return -1;
    return o->queued % CONN_PING_EVERY == 0 ? out_ping(o) : 0;
}

void out_drop(struct out *o)
{
    uint32_t off = o->off;
    struct out_node *keep = off ? node_pop(o) : NULL;
    out_free(o);
    if (!keep)
        return;
    node_append(o, keep);
    o->queued -= keep->kind == OUT_TEXT;
    o->off = off;
    o->bytes -= off;
}

int out_answer_ping(struct out *o, const void *p, size_t n)
{
    struct out_node *node = o->last;
    br_require(n <= PONG_MAX);
    if (o->pongs >= CONN_PONGS_MAX && node->kind == OUT_PONG && !(node == o->first && o->off)) {
        o->bytes -= node->n;
    } else {
        node = malloc(sizeof(*node) + 2 + PONG_MAX);
        if (!node)
            return -1;
        node->kind = OUT_PONG;
        node->n = 0;
        node_append(o, node);
    }
    size_t head = br_ws_head(node->data, BR_WS_PONG, n, NULL);
    if (n)
        memcpy(node->data + head, p, n);
    node->n = (uint32_t)(head + n);
    o->bytes += node->n;
    return 0;
}

bool out_pong(struct out *o, const char *p, size_t n, uint64_t now)
{
    uint64_t said = 0;
    if (!n || n > 19)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        said = said * 10 + (uint64_t)(p[i] - '0');
    }
    if (!o->ping_us || said > o->ping || said < o->acked)
        return false;
    o->acked = said;
    o->ping_us = said == o->ping ? 0 : now;
    return true;
}

/* A node was sent whole. */
static void sent(struct out *o, struct out_node *node, uint64_t now, uint64_t *messages)
{
    if (node->kind == OUT_TEXT) {
        o->sent++;
        ++*messages;
    } else if (node->kind == OUT_PING) {
        o->ping = o->sent;
        if (!o->ping_us)
            o->ping_us = now;
    }
    free(node);
}

/* The pieces that may be sent now. */
static unsigned gather(const struct out *o, struct iovec iov[OUT_IOV])
{
    uint64_t window = o->unpaced ? UINT64_MAX : CONN_WINDOW - (o->sent - o->acked);
    unsigned n = 0;
    size_t bytes = 0;
    for (struct out_node *node = o->first; node && n < OUT_IOV && bytes < OUT_BYTES;
         node = node->next) {
        if (node->kind == OUT_TEXT && window-- == 0)
            break;
        uint32_t off = node == o->first ? o->off : 0;
        iov[n++] = (struct iovec){.iov_base = node->data + off, .iov_len = node->n - off};
        bytes += node->n - off;
    }
    return n;
}

int out_flush(struct out *o, int fd, uint64_t now, uint64_t *bytes, uint64_t *messages)
{
    for (;;) {
        struct iovec iov[OUT_IOV];
        struct msghdr mh = {.msg_iov = iov, .msg_iovlen = gather(o, iov)};
        if (!mh.msg_iovlen)
            return 0;
        ssize_t r = sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 1 : -1;
        *bytes += (uint64_t)r;
        size_t left = (size_t)r;
        while (o->first && left >= o->first->n - o->off) {
            left -= o->first->n - o->off;
            sent(o, node_pop(o), now, messages);
        }
        o->off += (uint32_t)left;
        o->bytes -= left;
    }
}
