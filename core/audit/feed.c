/*
 * What the client is shown: committed events, in order. The position is a row number: a client that
 * does not read costs a bounded memory and loses nothing, and one that has gone is forgotten, while
 * the recording goes on. The bytes are those that were handed to the store, kept until they are
 * sent, or, for a client that is further behind, read back from it (docs/decisions/0042, 0123).
 */
#include <fcntl.h>

#include "audit/audit_priv.h"

static int on_client(void *ctx, int fd, short revents, struct br_err *err);

static void watch_client(struct audit *a, short events)
{
    if (a->loop)
        (void)br_loop_watch(a->loop, a->client.fd, events, on_client, a);
}

static void drop_client(struct audit *a)
{
    if (a->client.fd < 0)
        return;
    if (a->loop)
        br_loop_unwatch(a->loop, a->client.fd);
    br_chan_close(&a->client);
    br_buf_free(&a->rec.kept.bytes);
    a->rec.kept.wanted = false;
    a->rec.kept.count = 0;
}

void feed_init(struct audit *a)
{
    if (a->client.fd < 0)
        return;
    (void)fcntl(a->client.fd, F_SETFL, O_NONBLOCK);
    br_buf_init(&a->rec.kept.bytes, 2 * AUDIT_KEPT_MAX);
    a->rec.kept.wanted = a->mode == AUDIT_RECORD;
    watch_client(a, POLLIN);
}

bool feed_idle(const struct audit *a)
{
    return a->client.fd < 0 || a->sent >= a->rec.durable;
}

/* Of one message: the socket's buffer takes several. */
#define EVENTS_BYTES (32u * 1024)

static int send_event(struct audit *a, uint64_t row, const void *p, size_t n, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u64(&o.buf, row);
    br_out_blob(&o, p, n);
    return br_chan_send(&a->client, BR_MSG_EVENT, 0, &o, err);
}

static int send_row(struct audit *a, uint64_t row, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(2 * BR_EVENT_MAX);
    int r = br_store_read(a->rec.store, a->rec.committed.id, row, &body, err);
    return r < 0 ? r : send_event(a, row, body.data, body.len, err);
}

static uint32_t length_at(const struct kept *k, size_t at)
{
    const uint8_t *p = k->bytes.data + at;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The next events from what is kept, several in one message; how many, 0 if they are not there. */
static int send_kept(struct audit *a, unsigned *n, struct br_err *err)
{
    struct kept *k = &a->rec.kept;
    uint64_t next = a->sent + 1, last = a->rec.durable;
    size_t end = k->at;
    *n = 0;
    if (!k->count || k->first != next)
        return 0;
    while (*n < k->count && next + *n <= last) {
        size_t size = 4 + length_at(k, end);
        if (end + size - k->at > EVENTS_BYTES)
            break;
        end += size;
        ++*n;
    }
    int r;
    if (*n > 1) {
        r = br_chan_send_fixed(&a->client, BR_MSG_EVENTS, 0, next, k->bytes.data + k->at,
                               end - k->at, err);
    } else {
        *n = 1;
        end = k->at + 4 + length_at(k, k->at);
        r = send_event(a, next, k->bytes.data + k->at + 4, end - k->at - 4, err);
    }
    if (r < 0)
        return r;
    k->at = end;
    k->first += *n;
    k->count -= *n;
    return 0;
}

static int send_next(struct audit *a, struct br_err *err)
{
    unsigned n;
    int r = send_kept(a, &n, err);
    if (r == 0 && n == 0) {
        a->rec.kept.count = 0; /* it is behind: what was kept is read back as well */
        r = send_row(a, a->sent + 1, err);
        n = 1;
    }
    if (r == 0)
        a->sent += n;
    return r;
}

int feed_pump(struct audit *a, struct br_err *err)
{
    while (!feed_idle(a)) {
        int r = send_next(a, err);
        if (r == -BR_E_TIMEOUT) {
            watch_client(a, POLLIN | POLLOUT);
            return 0;
        }
        if (r == -BR_E_STORE_FAILED)
            return r;
        if (r < 0) { /* gone */
            br_log(BR_LOG_INFO, "the client has gone; the run is recorded all the same");
            drop_client(a);
            return 0;
        }
        a->progress_us = br_now_us();
    }
    if (a->client.fd >= 0)
        watch_client(a, POLLIN);
    return 0;
}

static int on_client(void *ctx, int fd, short revents, struct br_err *err)
{
    struct audit *a = ctx;
    (void)fd;
    if (revents & (POLLIN | POLLHUP | POLLERR)) {
        struct br_err local = {.code = BR_OK};
        int r = br_chan_dispatch(&a->client, &local);
        if (r == -BR_E_PEER_PROTOCOL) { /* it may send nothing at all */
            *err = local;
            return r;
        }
        if (r < 0 && r != -BR_E_TIMEOUT)
            drop_client(a);
    }
    return revents & POLLOUT ? feed_pump(a, err) : 0;
}

int feed_send(struct audit *a, enum br_msg_type type, const struct br_out *o, struct br_err *err)
{
    for (;;) {
        int r = br_chan_send(&a->client, type, 0, o, err);
        if (r != -BR_E_TIMEOUT)
            return r;
        struct pollfd p = {.fd = a->client.fd, .events = POLLOUT};
        if (poll(&p, 1, AUDIT_CLIENT_WAIT_US / 1000) <= 0)
            return br_err_set(err, BR_E_PEER_GONE, "the client does not read");
    }
}

void feed_end(struct audit *a, int code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)(code < 0 ? -code : code));
    br_buf_put_str(&o.buf, text);
    /* who did not read the events in time will not read this either: no more waiting */
    if (a->client.fd >= 0 && feed_idle(a))
        (void)feed_send(a, BR_MSG_EVENTS_END, &o, NULL);
    else if (a->client.fd >= 0)
        (void)br_chan_send(&a->client, BR_MSG_EVENTS_END, 0, &o, NULL);
    drop_client(a);
}
