/*
 * Connections of clients: accept, the bytes in both directions, WebSocket messages, time limits and
 * the end. What comes is anybody's; what a request means is http.c's, who sent it auth.c's, what a
 * message means the protocol's.
 *
 * Nothing ends inside of a call: conn_close() and a broken socket only mark a connection, and
 * conns_settle(), at the end of each turn, sends what was queued, tells the protocol (once), and
 * frees what is over. An idle connection costs its struct and nothing else.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/conn_priv.h"

static void on_timer(void *ctx);

/* ---- marks, for conns_settle() ---- */

static void mark_dirty(struct conn *c)
{
    if (c->dirty)
        return;
    c->dirty = true;
    c->next_dirty = c->g->dirty;
    c->g->dirty = c;
}

static void mark_ended(struct conn *c)
{
    if (c->ended)
        return;
    c->ended = true;
    c->next_ended = c->g->ended;
    c->g->ended = c;
}

/* It has said who it is, or never will. */
static void head_over(struct conn *c)
{
    c->peer->heads -= c->counted;
    c->counted = false;
}

/* What it holds of everybody's memory. */
static void account(struct conn *c, size_t now)
{
    c->g->held += now - c->held;
    c->held = now;
}

static void account_now(struct conn *c)
{
    account(c, c->out.bytes + c->reader.message.cap);
}

/* All together hold too much, and it is not little that this one does. */
static bool holds_too_much(const struct conn *c, size_t more)
{
    return c->g->held + more > c->g->held_max && c->held + more > CONN_HELD_SMALL;
}

static void conn_die(struct conn *c)
{
    if (c->step == CONN_DEAD)
        return;
    c->step = CONN_DEAD;
    c->io.fn = NULL;
    (void)poll_watch(c->g, EPOLL_CTL_DEL, c->fd, 0, NULL);
    br_close(&c->fd);
    gw_timer_cancel(c->g, &c->timer);
    mark_ended(c);
}

static void set_events(struct conn *c, uint32_t events)
{
    if (c->step == CONN_DEAD || c->events == events)
        return;
    c->events = events;
    if (poll_watch(c->g, EPOLL_CTL_MOD, c->fd, events, &c->io) < 0)
        conn_die(c);
}

/* ---- clocks ---- */

/* The next moment at which an open connection has to be looked at. */
static uint64_t open_due(const struct conn *c)
{
    uint64_t due = UINT64_MAX, frame = gw_settings(c->g)->frame_seconds * 1000000ull;
    if (c->frame_us)
        due = c->frame_us + frame;
    uint64_t pong = c->out.ping_us ? c->out.ping_us : c->stuck_us;
    pong = pong ? pong + CONN_PONG_US : c->in_us + CONN_IDLE_US;
    return pong < due ? pong : due;
}

/* Makes it earlier if it has to be; a timer that comes too early sets itself again. */
static void arm_open(struct conn *c)
{
    uint64_t due = open_due(c), now = br_now_us();
    if (c->step == CONN_OPEN && (!c->timer.due_us || due < c->timer.due_us))
        gw_timer_set(c->g, &c->timer, due > now ? due - now : 0, on_timer, c);
}

static void arm(struct conn *c, uint64_t after_us)
{
    gw_timer_set(c->g, &c->timer, after_us, on_timer, c);
}

static void on_open_timer(struct conn *c)
{
    uint64_t now = br_now_us();
    uint64_t waits = c->out.ping_us ? c->out.ping_us : c->stuck_us;
    if (c->frame_us && now - c->frame_us >= gw_settings(c->g)->frame_seconds * 1000000ull) {
        gw_counters(c->g)->protocol_errors++;
        conn_close(c, BR_WS_CLOSE_PROTOCOL, "a frame or message was not complete in time");
        return;
    }
    if (waits && now - waits >= CONN_PONG_US) {
        gw_counters(c->g)->slow_clients++;
        conn_close(c, BR_WS_CLOSE_TRY_AGAIN, "this client does not read, or answers no ping");
        return;
    }
    if (!waits && !c->out.first && now - c->in_us >= CONN_IDLE_US) {
        if (out_ping(&c->out) < 0)
            conn_close(c, BR_WS_CLOSE_INTERNAL, "no memory");
        c->in_us = now; /* the ping's own clock runs now */
        mark_dirty(c);
    }
    arm_open(c);
}

static void on_timer(void *ctx)
{
    struct conn *c = ctx;
    switch (c->step) {
    case CONN_HEAD:
        http_refuse(c, 408, "no complete request came in time");
        break;
    case CONN_OPEN:
        on_open_timer(c);
        break;
    default: /* it had time enough to end */
        conn_die(c);
    }
}

/* ---- the end ---- */

static void linger(struct conn *c)
{
    c->step = CONN_LINGER;
    (void)shutdown(c->fd, SHUT_WR);
    arm(c, CONN_LINGER_US);
    set_events(c, EPOLLIN);
}

void conn_close(struct conn *c, unsigned code, const char *reason)
{
    if (c->step != CONN_OPEN)
        return;
    c->step = CONN_CLOSING;
    c->close_code = code;
    char peer[64], text[8];
    snprintf(text, sizeof(text), "%u", code);
    gw_log(c->g, BR_LOG_INFO, "connection.closing", "connection", conn_name(c, peer), "code", text,
           "reason", reason, NULL);
    if (code == BR_WS_CLOSE_TRY_AGAIN)
        out_drop(&c->out); /* who does not read shall read this */
    c->out.unpaced = code != BR_WS_CLOSE_NORMAL && code != BR_WS_CLOSE_GOING_AWAY;
    BR_CLEANUP_BUF struct br_buf frame = BR_BUF_INIT(256);
    br_ws_put_close(&frame, code == BR_WS_CLOSE_NO_STATUS ? BR_WS_CLOSE_NORMAL : code, reason,
                    false);
    if (frame.failed || out_put(&c->out, OUT_CLOSE, &(struct gw_piece){frame.data, frame.len}, 1))
        c->broken = true;
    arm(c, CONN_CLOSE_US);
    mark_dirty(c);
    mark_ended(c);
}

/* ---- sending ---- */

static void after_flush(struct conn *c)
{
    if (c->step == CONN_ANSWER && !c->out.first)
        linger(c);
    else if (c->step == CONN_CLOSING && !c->out.first && (c->got_close || c->broken))
        linger(c);
    if (c->step != CONN_OPEN)
        return;
    arm_open(c);
    if (!c->wants_room || c->out.messages > CONN_LOW_MESSAGES || c->out.bytes > CONN_LOW_BYTES)
        return;
    c->wants_room = false;
    if (c->protocol->writable)
        c->protocol->writable(c);
}

static void conn_flush(struct conn *c)
{
    struct gw_counters *n = gw_counters(c->g);
    uint64_t now = br_now_us(), before = n->bytes_out;
    int r = out_flush(&c->out, c->fd, now, &n->bytes_out, &n->messages_out);
    if (r < 0) {
        conn_die(c);
        return;
    }
    if (r == 0)
        c->stuck_us = 0;
    else if (!c->stuck_us || n->bytes_out != before)
        c->stuck_us = now;
    account_now(c);
    set_events(c, (c->eof ? 0 : EPOLLIN) | (r ? EPOLLOUT : 0));
    after_flush(c);
}

int conn_send(struct conn *c, const struct gw_piece *pieces, unsigned n)
{
    size_t bytes = 0;
    if (c->step != CONN_OPEN)
        return -BR_E_PEER_GONE;
    for (unsigned i = 0; i < n; i++)
        bytes += pieces[i].n;
    if ((c->out.bytes && c->out.bytes + bytes > gw_settings(c->g)->queue_bytes) ||
        holds_too_much(c, bytes)) {
        gw_counters(c->g)->slow_clients++;
        conn_close(c, BR_WS_CLOSE_TRY_AGAIN, "this client does not read what it is sent");
        return -BR_E_LIMIT_EXCEEDED;
    }
    if (out_text(&c->out, pieces, n) < 0) {
        conn_close(c, BR_WS_CLOSE_INTERNAL, "no memory");
        return -BR_E_NOMEM;
    }
    mark_dirty(c);
    account_now(c);
    if (c->out.messages < CONN_HIGH_MESSAGES && c->out.bytes < CONN_HIGH_BYTES)
        return 0;
    c->wants_room = true;
    return 1;
}

void conn_answered(struct conn *c)
{
    head_over(c);
    c->step = CONN_ANSWER;
    arm(c, CONN_ANSWER_US);
    mark_dirty(c);
}

/* ---- reading ---- */

static void on_close_frame(struct conn *c, const struct br_ws_message *m)
{
    c->got_close = true;
    if (c->step == CONN_CLOSING) {
        mark_dirty(c);
        return;
    }
    conn_close(c, m->close_code, "");
    c->out.unpaced = true; /* it answers no more pings */
}

static void on_frame(struct conn *c, const struct br_ws_message *m)
{
    struct gw_counters *n = gw_counters(c->g);
    if (m->op == BR_WS_PONG) {
        if (out_pong(&c->out, m->data, m->n, br_now_us()))
            mark_dirty(c);
    } else if (m->op == BR_WS_CLOSE) {
        on_close_frame(c, m);
    } else if (c->step != CONN_OPEN) {
        return;
    } else if (m->op == BR_WS_PING) {
        if (out_answer_ping(&c->out, m->data, m->n) < 0)
            conn_close(c, BR_WS_CLOSE_INTERNAL, "no memory");
        mark_dirty(c);
    } else if (m->op == BR_WS_BINARY) {
        n->protocol_errors++;
        conn_close(c, BR_WS_CLOSE_UNSUPPORTED, "messages are text");
    } else {
        n->messages_in++;
        c->frame_us = 0;
        c->protocol->message(c, m->data, m->n);
    }
}

/* What is half there is given back, and nothing more is kept, also of one that is being closed. */
static void stop_reading(struct conn *c)
{
    gw_counters(c->g)->slow_clients += c->step == CONN_OPEN;
    conn_close(c, BR_WS_CLOSE_TRY_AGAIN, "the service holds too much for its clients");
    c->broken = true;
    br_ws_reader_free(&c->reader);
    account_now(c);
    mark_dirty(c);
}

static void on_bytes(struct conn *c, uint8_t *p, size_t n)
{
    const struct br_service *s = gw_settings(c->g);
    const struct br_ws_limits limits = {
        .message_bytes = s->message_bytes, .fragments = s->fragments, .server = true};
    while (c->step == CONN_OPEN || (c->step == CONN_CLOSING && !c->broken && !c->got_close)) {
        struct br_ws_message m;
        struct br_err err = {.code = BR_OK};
        unsigned code = BR_WS_CLOSE_PROTOCOL;
        int r = br_ws_read(&c->reader, &limits, &p, &n, &m, &code, &err);
        if (r == 0)
            break;
        if (r < 0) {
            c->broken = true;
            gw_counters(c->g)->protocol_errors++;
            conn_close(c, code, err.text);
            mark_dirty(c);
            break;
        }
        on_frame(c, &m);
    }
    account_now(c);
    if (holds_too_much(c, 0))
        stop_reading(c);
    if (c->step != CONN_OPEN)
        return;
    if (!br_ws_reader_open(&c->reader))
        c->frame_us = 0;
    else if (!c->frame_us)
        c->frame_us = br_now_us();
    arm_open(c);
}

void conn_upgraded(struct conn *c, const struct gw_protocol *p)
{
    const struct br_service *s = gw_settings(c->g);
    const struct br_ws_limits limits = {
        .message_bytes = s->message_bytes, .fragments = s->fragments, .server = true};
    br_ws_reader_init(&c->reader, &limits);
    head_over(c);
    c->step = CONN_OPEN;
    c->protocol = p;
    c->in_us = br_now_us();
    gw_timer_cancel(c->g, &c->timer);
    arm_open(c);
    mark_dirty(c);
    p->open(c);
}

static void on_head(struct conn *c, uint8_t *scratch)
{
    struct br_http_head h;
    struct br_err err = {.code = BR_OK};
    unsigned status = 400;
    int end = br_http_request((const char *)c->in.data, c->in.len, &h, &status, &err);
    if (end == 0)
        return;
    if (end < 0) {
        gw_counters(c->g)->protocol_errors++;
        http_refuse(c, status, err.text);
    } else {
        http_request(c, &h);
    }
    size_t rest = c->step == CONN_OPEN && end > 0 ? c->in.len - (size_t)end : 0;
    if (rest)
        memcpy(scratch, c->in.data + end, rest);
    br_buf_free(&c->in);
    if (rest)
        on_bytes(c, scratch, rest);
}

static void on_eof(struct conn *c)
{
    c->eof = true;
    if (c->step == CONN_ANSWER) /* it may still read */
        set_events(c, c->events & ~(uint32_t)EPOLLIN);
    else
        conn_die(c);
}

static void conn_input(struct conn *c)
{
    static uint8_t bytes[CONN_READ_MAX];
    size_t most = c->step == CONN_HEAD ? BR_WS_HEAD_MAX - c->in.len : sizeof(bytes);
    ssize_t r = recv(c->fd, bytes, most, MSG_DONTWAIT);
    if (r < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (r <= 0) {
        if (r < 0)
            conn_die(c);
        else
            on_eof(c);
        return;
    }
    gw_counters(c->g)->bytes_in += (uint64_t)r;
    c->in_us = br_now_us();
    if (c->step == CONN_OPEN || c->step == CONN_CLOSING) {
        on_bytes(c, bytes, (size_t)r);
    } else if (c->step == CONN_HEAD) {
        if (br_buf_put(&c->in, bytes, (size_t)r) < 0)
            conn_die(c);
        else
            on_head(c, bytes);
    }
}

static void on_io(void *ctx, uint32_t events)
{
    struct conn *c = ctx;
    if (events & EPOLLOUT)
        mark_dirty(c);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (c->eof)
            conn_die(c);
        else
            conn_input(c);
    }
}

/* ---- settling ---- */

static void release(struct conn *c)
{
    struct gateway *g = c->g;
    *(c->prev ? &c->prev->next : &g->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    g->nconns--;
    gw_counters(g)->connections_open--;
    head_over(c);
    account(c, 0);
    peer_leave(&g->peers, c->peer);
    if (c->known)
        peer_leave(&g->peers, c->known);
    out_free(&c->out);
    br_buf_free(&c->in);
    if (c->protocol)
        br_ws_reader_free(&c->reader);
    free(c->cert);
    free(c->address);
    gw_bury(g, c, &c->grave);
}

static void settle_ended(struct conn *c)
{
    c->ended = false;
    if (c->protocol && !c->told) {
        char id[64], code[8];
        c->told = true;
        snprintf(code, sizeof(code), "%u", c->close_code);
        gw_log(c->g, BR_LOG_INFO, "connection.closed", "connection", conn_name(c, id), "code",
               c->close_code ? code : "none", NULL);
        c->protocol->closed(c);
    }
    if (c->step == CONN_DEAD)
        release(c);
}

void conns_settle(struct gateway *g)
{
    for (;;) {
        struct conn *c = g->dirty;
        if (c) {
            g->dirty = c->next_dirty;
            c->dirty = false;
            if (c->step != CONN_DEAD)
                conn_flush(c);
        } else if ((c = g->ended)) {
            g->ended = c->next_ended;
            settle_ended(c);
        } else {
            return;
        }
    }
}

void conns_close_all(struct gateway *g, unsigned code, const char *reason)
{
    for (struct conn *c = g->conns; c; c = c->next) {
        if (c->step == CONN_HEAD)
            conn_die(c);
        conn_close(c, code, reason);
    }
}

void conns_recheck(struct gateway *g)
{
    for (struct conn *c = g->conns; c; c = c->next)
        if (c->step == CONN_OPEN && !auth_still(c))
            conn_close(c, BR_WS_CLOSE_POLICY, "this access was withdrawn");
}

void conns_free(struct gateway *g)
{
    for (struct conn *c = g->conns; c; c = c->next)
        conn_die(c);
    conns_settle(g);
}

/* ---- what the layers above see ---- */

struct gateway *conn_gateway(struct conn *c)
{
    return c->g;
}

const struct gw_who *conn_who(const struct conn *c)
{
    return &c->who;
}

uint64_t conn_id(const struct conn *c)
{
    return c->id;
}

void conn_set_state(struct conn *c, void *state)
{
    c->state = state;
}

void *conn_state(struct conn *c)
{
    return c->state;
}

bool conn_may_ask(struct conn *c)
{
    uint32_t rate = gw_settings(c->g)->requests_per_second;
    if (!rate || peer_rate(&c->peer->ask_at, br_now_us(), 1000000u / rate, 10ull * rate))
        return true;
    gw_counters(c->g)->rate_limited++;
    return false;
}

/* The one entry of all connections of who this is. */
static struct peer *known_of(struct conn *c)
{
    struct peer_key k = {.kind = 'w'};
    struct br_sha256 s;
    uint8_t hash[32];
    if (c->known)
        return c->known;
    br_sha256_init(&s);
    br_sha256_put(&s, c->who.name, strlen(c->who.name));
    br_sha256_end(&s, hash);
    memcpy(k.bytes, hash, sizeof(k.bytes));
    return c->known = peer_enter(&c->g->peers, &k);
}

bool conn_may_read(struct conn *c)
{
    struct peer *w = known_of(c);
    if (w && peer_rate(&w->read_at, br_now_us(), 1000000u / CONN_READINGS_PER_SECOND,
                       CONN_READINGS_BURST))
        return true;
    gw_counters(c->g)->rate_limited++;
    return false;
}

const char *conn_name(const struct conn *c, char dst[64])
{
    snprintf(dst, 64, "%llu", (unsigned long long)c->id);
    return dst;
}

/* ---- accepting: accept.c begins one with this ---- */

struct conn *conn_begin(struct gateway *g, int fd, struct peer *peer)
{
    struct conn *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->io = (struct gw_io){.fn = on_io, .ctx = c};
    c->g = g;
    c->fd = fd;
    c->peer = peer;
    c->id = ++g->next_id;
    c->events = EPOLLIN;
    br_buf_init(&c->in, BR_WS_HEAD_MAX);
    if (poll_watch(g, EPOLL_CTL_ADD, fd, EPOLLIN, &c->io) < 0) {
        free(c);
        return NULL;
    }
    c->next = g->conns;
    if (c->next)
        c->next->prev = c;
    g->conns = c;
    g->nconns++;
    gw_counters(g)->connections_open++;
    gw_counters(g)->connections_accepted++;
    arm(c, gw_settings(g)->handshake_seconds * 1000000ull);
    return c;
}
