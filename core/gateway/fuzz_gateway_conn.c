/*
 * Fuzzing connections: whatever bytes a client sends, in whatever pieces and with whatever pauses,
 * as an HTTP head, as frames behind an upgrade, or both. The input is a list of steps; what has to
 * hold: nothing crashes, one connection is told its end once, what is queued stays within its
 * limit, and nothing of it is left at the end.
 *
 *   byte 0: bit 0 begin upgraded, bit 1 small limits, bit 2 the protocol ends at each message,
 *           bit 3 it says much, bit 4 the client reads nothing, bit 5 a TLS connection
 *   then:   n < 224: send the n bytes that follow; 224..247: n - 223 seconds pass;
 *           248: the client reads; 249: it ends its stream; 250: the service closes all;
 *           251: a ping's pong; others: a turn
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/test_inside.h"

static uint8_t flags;
static unsigned ends, opens;
static struct conn *the_one;

static void on_open(struct conn *c)
{
    opens++;
    the_one = c;
}

static void on_message(struct conn *c, const char *text, size_t n)
{
    br_require(br_utf8_valid(text, n));
    unsigned times = flags & 8 ? 40 : 1;
    for (unsigned i = 0; i < times; i++)
        (void)conn_send(c, &(struct gw_piece){text, n}, 1);
    if (flags & 4)
        conn_close(c, 1008, text[0] == '{' ? "enough" : "");
}

static void on_closed(struct conn *c)
{
    br_require(c == the_one);
    the_one = NULL;
    ends++;
}

static void check(void)
{
    for (struct conn *c = inside.conns; c; c = c->next) {
        br_require(c->out.bytes <= inside.settings.queue_bytes + 16384u);
        br_require(c->in.len <= BR_WS_HEAD_MAX);
        br_require(c->out.sent - c->out.acked <= CONN_WINDOW || c->out.unpaced);
    }
}

static void read_all(int client, struct br_buf *in)
{
    static uint8_t bytes[65536];
    while (client >= 0 && recv(client, bytes, sizeof(bytes), 0) > 0)
        ;
    (void)in;
}

static void step(int *client, const uint8_t **p, const uint8_t *end)
{
    uint8_t n = *(*p)++;
    if (n < 224) {
        size_t left = (size_t)(end - *p), take = n < left ? n : left;
        if (*client >= 0)
            (void)send(*client, *p, take, MSG_NOSIGNAL);
        *p += take;
    } else if (n < 248) {
        inside_pass(n - 223u);
    } else if (n == 248 && !(flags & 16)) {
        read_all(*client, NULL);
    } else if (n == 249) {
        (void)shutdown(*client, SHUT_WR);
    } else if (n == 250) {
        conns_close_all(&inside, BR_WS_CLOSE_GOING_AWAY, "the service stops");
    } else if (n == 251 && *client >= 0) {
        static const char pong[] = "\x8a\x82\0\0\0\0"
                                   "32";
        (void)send(*client, pong, sizeof(pong) - 1, MSG_NOSIGNAL);
    }
    inside_turn();
    check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *p = data, *end = data + size;
    int client;
    if (!size)
        return 0;
    flags = *p++;
    ends = opens = 0;
    the_one = NULL;
    inside_start();
    inside_plan.open = on_open;
    inside_plan.message = on_message;
    inside_plan.closed = on_closed;
    inside.settings.token_in_url = 1;
    inside.auth.ntokens = 1;
    if (flags & 2) {
        inside.settings.message_bytes = 200;
        inside.settings.fragments = 4;
        inside.settings.queue_bytes = 4096;
    }
    struct conn *c = flags & 1 ? inside_open(&client) : inside_conn(&client);
    if (flags & 32) {
        c->tls = true;
        c->unix_socket = c->local = c->has_uid = false;
    }
    while (p < end)
        step(&client, &p, end);
    br_close(&client);
    inside_turn();
    inside_pass(120);
    br_require(!inside.conns && ends == opens);
    inside_stop();
    return 0;
}
