/*
 * Requests and answers, many at once. Called by bridle-egress's loop only. Trusts core/egress/net.c
 * and http.c; every byte of an answer is hostile and is counted before it is kept. A request is
 * written once; whatever happens after that is an end of the request and no reason to send it
 * again. The head of a request, which holds the key, stands in memory of its own kind until the
 * kernel has all of it, and is then wiped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "egress/transfer.h"

#define SLOTS BR_EGRESS_TRANSFERS_MAX
/* Connections of answers that are complete, which are closed when nobody waits for anything. */
#define ENDED_MAX 16u
/* Reads of one transfer before others have their turn. */
#define READS_MAX 4u

struct transfer {
    /* what the loop looks at */
    bool used, wait, ready, head_done;
    bool begun, sent_all, first_byte, send_broken;
    uint32_t generation;
    uint64_t id;
    uint64_t window;
    uint64_t started_us, sent_us, activity_us;
    struct br_conn conn;
    /* the request */
    bool post;
    char path[256], content_type[128];
    struct br_headers headers;
    struct br_secret head;
    size_t head_at, body_at;
    struct br_buf body;
    /* the answer */
    uint64_t got, raw;
    struct br_http http;
};

struct br_transfers {
    struct br_transfers_config c;
    char *scratch; /* where heads are written; never in a dump */
    uint8_t *room; /* where answers are read */
    size_t bodies; /* bytes of bodies that are kept */
    unsigned high; /* no slot from here on was ever used */
    unsigned nused;
    bool answered;
    unsigned nended;
    struct br_conn ended[ENDED_MAX];
    uint64_t due_us; /* no transfer is due before */
    unsigned nready;
    uint16_t ready[SLOTS];
    struct transfer *slots[SLOTS];
};

struct br_transfers *br_transfers_new(void)
{
    struct br_transfers *ts = calloc(1, sizeof(*ts));
    if (!ts)
        return NULL;
    ts->due_us = UINT64_MAX;
    ts->room = malloc(BR_EGRESS_ROOM + BR_EGRESS_READ_MAX);
    void *p =
        mmap(NULL, BR_HTTP_REQUEST_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ts->scratch = p == MAP_FAILED ? NULL : p;
    if (!ts->room || !ts->scratch) {
        br_transfers_free(&ts);
        return NULL;
    }
    (void)mlock(p, BR_HTTP_REQUEST_MAX);
    (void)madvise(p, BR_HTTP_REQUEST_MAX, MADV_DONTDUMP);
    return ts;
}

void br_transfers_configure(struct br_transfers *ts, const struct br_transfers_config *c)
{
    ts->c = *c;
}

/* ---- slots ---- */

static void release(struct br_transfers *ts, struct transfer *t)
{
    br_conn_close(ts->c.net, &t->conn);
    br_secret_wipe(&t->head);
    ts->bodies -= t->body.cap;
    br_buf_free(&t->body);
    t->used = false;
    t->generation++;
    ts->nused--;
}

void br_transfers_free(struct br_transfers **pts)
{
    struct br_transfers *ts = *pts;
    if (!ts)
        return;
    br_transfers_tidy(ts);
    for (unsigned i = 0; i < ts->high; i++) {
        if (ts->slots[i]->used)
            release(ts, ts->slots[i]);
        free(ts->slots[i]);
    }
    if (ts->scratch) {
        explicit_bzero(ts->scratch, BR_HTTP_REQUEST_MAX);
        (void)munmap(ts->scratch, BR_HTTP_REQUEST_MAX);
    }
    free(ts->room);
    free(ts);
    *pts = NULL;
}

static struct transfer *find(struct br_transfers *ts, uint64_t id)
{
    for (unsigned i = 0; i < ts->high; i++)
        if (ts->slots[i]->used && ts->slots[i]->id == id)
            return ts->slots[i];
    return NULL;
}

/* Its number, or -1. */
static int slot_take(struct br_transfers *ts)
{
    unsigned i = 0;
    while (i < ts->high && ts->slots[i]->used)
        i++;
    if (i == SLOTS)
        return -1;
    if (i == ts->high) {
        ts->slots[i] = calloc(1, sizeof(*ts->slots[i]));
        if (!ts->slots[i])
            return -1;
        ts->high++;
    }
    ts->nused++;
    return (int)i;
}

static void make_ready(struct br_transfers *ts, unsigned i)
{
    if (ts->slots[i]->ready)
        return;
    ts->slots[i]->ready = true;
    ts->ready[ts->nready++] = (uint16_t)i;
}

static uint64_t tag_of(unsigned i, const struct transfer *t)
{
    return ((uint64_t)(t->generation & 0x3fffffff) << 16) | i;
}

/* ---- ends ---- */

static void end(struct br_transfers *ts, struct transfer *t, const struct br_err *why)
{
    /* the reader does not wait for the connection to be closed; `why` may be part of it */
    ts->c.sink.end(ts->c.sink.ctx, t->id, why, t->body_at, t->got);
    release(ts, t);
}

/* `again`: its connection can carry another request. */
static void end_ok(struct br_transfers *ts, struct transfer *t, bool again)
{
    const struct br_err ok = {.code = BR_OK};
    ts->c.sink.end(ts->c.sink.ctx, t->id, &ok, t->body_at, t->got);
    if (!again || !br_net_keep(ts->c.net, &t->conn)) {
        ts->answered = true;
        if (ts->nended < ENDED_MAX) {
            ts->ended[ts->nended++] = t->conn;
            t->conn = (struct br_conn){.fd = -1};
        }
    }
    release(ts, t);
}

void br_transfers_tidy(struct br_transfers *ts)
{
    while (ts->nended)
        br_conn_close(ts->c.net, &ts->ended[--ts->nended]);
}

static void end_truncated(struct br_transfers *ts, struct transfer *t)
{
    struct br_err e;
    br_err_set(&e, BR_E_PROVIDER_TRUNCATED, "the connection to the provider at '%s' was cut %s",
               ts->c.target->origin,
               t->head_done    ? "in the middle of its answer"
               : t->first_byte ? "in the head of its answer"
                               : "before it answered");
    end(ts, t, &e);
}

static void end_invalid(struct br_transfers *ts, struct transfer *t, const struct br_err *why)
{
    struct br_err e;
    br_err_set(&e, BR_E_PROVIDER_INVALID, "the provider at '%s' did not answer in HTTP/1.1: %s",
               ts->c.target->origin, why->text);
    end(ts, t, &e);
}

/* ---- time ---- */

static uint64_t after(uint64_t us, uint32_t seconds)
{
    return us + (uint64_t)seconds * 1000000;
}

/* When it is given up as it stands, and what is said then. */
static uint64_t due(const struct br_transfers *ts, const struct transfer *t, const char **what,
                    uint32_t *seconds)
{
    const struct br_egress_timeouts *l = &ts->c.limits;
    uint64_t total = after(t->started_us, l->total_s), at;
    if (t->wait) {
        return UINT64_MAX;
    } else if (t->conn.state != BR_CONN_OPEN) {
        *what = "there was no connection";
        *seconds = l->connect_s;
        at = after(t->started_us, l->connect_s);
    } else if (!t->sent_all && !t->first_byte) {
        *what = "it did not take the request";
        *seconds = l->idle_s;
        at = after(t->activity_us, l->idle_s);
    } else if (!t->first_byte) {
        *what = "it did not begin to answer";
        *seconds = l->first_byte_s;
        at = after(t->sent_us, l->first_byte_s);
    } else if (t->window == 0 || ts->c.sink.blocked(ts->c.sink.ctx)) {
        at = UINT64_MAX; /* the reader does not keep up */
    } else {
        *what = t->head_done ? "its answer stood still" : "the head of its answer stood still";
        *seconds = l->idle_s;
        at = after(t->activity_us, l->idle_s);
    }
    if (total > at)
        return at;
    *what = "its answer did not end";
    *seconds = l->total_s;
    return total;
}

static void watch(struct br_transfers *ts, const struct transfer *t)
{
    const char *what;
    uint32_t s;
    uint64_t at = due(ts, t, &what, &s);
    if (t->conn.again_us && t->conn.again_us < at)
        at = t->conn.again_us;
    if (at < ts->due_us)
        ts->due_us = at;
}

static void check_clocks(struct br_transfers *ts)
{
    uint64_t now = br_now_us();
    if (now < ts->due_us)
        return;
    ts->due_us = UINT64_MAX;
    for (unsigned i = 0; i < ts->high; i++) {
        struct transfer *t = ts->slots[i];
        const char *what = "";
        uint32_t s = 0;
        if (!t->used)
            continue;
        if (now >= due(ts, t, &what, &s)) {
            struct br_err e;
            br_err_set(&e, BR_E_TIMEOUT, "the provider at '%s' was given up: %s within %u s",
                       ts->c.target->origin, what, s);
            end(ts, t, &e);
            continue;
        }
        if (t->conn.again_us && now >= t->conn.again_us)
            make_ready(ts, i);
        watch(ts, t);
    }
}

/* ---- sending ---- */

/* Write the head into the scratch, or, for TLS and for what the kernel did not take at once, where
 * it can stay. */
static ssize_t head_write(struct br_transfers *ts, const struct transfer *t)
{
    const struct br_http_request q = {
        .post = t->post,
        .keep = !ts->c.target->unix_socket,
        .target = ts->c.target,
        .path = t->path,
        .content_type = t->content_type,
        .headers = &t->headers,
        .key = ts->c.key,
        .auth = ts->c.auth,
        .body = t->body.len,
    };
    return br_http_request(ts->scratch, BR_HTTP_REQUEST_MAX, &q);
}

static void sent(struct br_transfers *ts, struct transfer *t)
{
    t->sent_all = true;
    t->sent_us = t->activity_us;
    br_secret_wipe(&t->head);
    ts->bodies -= t->body.cap;
    br_buf_free(&t->body);
}

/* Some of it was written. `head` is how long the head is. */
static void written(struct transfer *t, size_t head, size_t n)
{
    size_t of_head = n < head - t->head_at ? n : head - t->head_at;
    t->head_at += of_head;
    t->body_at += n - of_head;
    t->activity_us = br_now_us();
}

/* False if the transfer has ended. */
static bool send_first(struct br_transfers *ts, struct transfer *t)
{
    ssize_t head = head_write(ts, t), n = 0;
    bool ok = head > 0;
    t->begun = true;
    t->activity_us = br_now_us();
    if (ok && !t->conn.easy) {
        const struct iovec v[2] = {{ts->scratch, (size_t)head}, {t->body.data, t->body.len}};
        n = br_conn_write(&t->conn, v, 2);
        if (n > 0)
            written(t, (size_t)head, (size_t)n);
        t->send_broken = n < 0 && n != -EAGAIN;
    }
    if (ok && t->head_at < (size_t)head)
        ok = br_secret_set(&t->head, ts->scratch, (size_t)head) == 0;
    explicit_bzero(ts->scratch, head > 0 ? (size_t)head : BR_HTTP_REQUEST_MAX);
    if (!ok) {
        struct br_err e;
        br_err_set(&e, BR_E_FAILED, "the request to '%s' could not be prepared; nothing was sent",
                   ts->c.target->origin);
        end(ts, t, &e);
        return false;
    }
    if (t->head_at == (size_t)head && t->body_at == t->body.len)
        sent(ts, t);
    return true;
}

static void send_more(struct br_transfers *ts, struct transfer *t)
{
    size_t head = 0;
    const unsigned char *p = br_secret_bytes(&t->head, &head);
    while (!t->sent_all && !t->send_broken && t->conn.writable) {
        struct iovec v[2];
        int k = 0;
        if (t->head_at < head)
            v[k++] = (struct iovec){(void *)(uintptr_t)(p + t->head_at), head - t->head_at};
        if (t->body_at < t->body.len)
            v[k++] = (struct iovec){t->body.data + t->body_at, t->body.len - t->body_at};
        ssize_t n = br_conn_write(&t->conn, v, k);
        if (n == -EAGAIN)
            return;
        if (n <= 0) {
            t->send_broken = true; /* it may have answered before it closed */
            return;
        }
        written(t, t->head_at < head ? head : t->head_at, (size_t)n);
        if (t->head_at >= head && t->body_at == t->body.len)
            sent(ts, t);
    }
}

/* ---- receiving ---- */

/* False if the transfer has ended. */
static bool take(struct br_transfers *ts, struct transfer *t, uint8_t *p, size_t n)
{
    struct br_http_out out;
    struct br_err err;
    const struct br_egress_sink *s = &ts->c.sink;
    t->first_byte = true;
    t->raw += n;
    t->activity_us = br_now_us();
    if (br_http_feed(&t->http, p, n, &out, &err) < 0) {
        end_invalid(ts, t, &err);
        return false;
    }
    if (out.head) {
        t->head_done = true;
        s->head(s->ctx, t->id, t->http.status, &t->http.headers);
    }
    t->got += out.n;
    t->window -= out.n;
    if (t->got > BR_EGRESS_RESPONSE_MAX || t->raw > 2ull * BR_EGRESS_RESPONSE_MAX) {
        br_err_set(&err, BR_E_LIMIT_EXCEEDED,
                   "the provider's answer is larger than 64 MiB; the rest was not read");
        t->got -= out.n;
        end(ts, t, &err);
        return false;
    }
    if (out.n)
        s->data(s->ctx, t->id, out.body, out.n);
    if (out.end)
        end_ok(ts, t, t->http.keep && t->sent_all && !out.more);
    return !out.end;
}

static void receive(struct br_transfers *ts, struct transfer *t)
{
    for (unsigned i = 0; i < READS_MAX; i++) {
        size_t max = t->window < BR_EGRESS_READ_MAX ? (size_t)t->window : BR_EGRESS_READ_MAX;
        if (!t->conn.readable || max == 0 || ts->c.sink.blocked(ts->c.sink.ctx))
            return;
        ssize_t n = br_conn_read(&t->conn, ts->room + BR_EGRESS_ROOM, max);
        if (n == -EAGAIN)
            return;
        if (n > 0 && !take(ts, t, ts->room + BR_EGRESS_ROOM, (size_t)n))
            return;
        if (n == 0 && t->head_done && br_http_ended(&t->http)) {
            end_ok(ts, t, false);
            return;
        }
        if (n <= 0) {
            end_truncated(ts, t);
            return;
        }
    }
}

/* ---- going on ---- */

static void step(struct br_transfers *ts, unsigned i)
{
    struct transfer *t = ts->slots[i];
    uint32_t generation = t->generation;
    if (t->conn.state == BR_CONN_OPENING && t->conn.again_us)
        br_conn_event(ts->c.net, &t->conn, 0);
    if (t->conn.state == BR_CONN_FAILED) {
        end(ts, t, &t->conn.why);
        return;
    }
    if (t->conn.state != BR_CONN_OPEN) {
        watch(ts, t);
        return;
    }
    if (!t->begun && !send_first(ts, t))
        return;
    send_more(ts, t);
    receive(ts, t);
    if (!t->used || t->generation != generation)
        return;
    watch(ts, t);
    if (t->conn.readable && t->window && !ts->c.sink.blocked(ts->c.sink.ctx))
        make_ready(ts, i); /* it had its turn */
}

static void open_now(struct br_transfers *ts, unsigned i)
{
    struct transfer *t = ts->slots[i];
    t->wait = false;
    t->started_us = br_now_us();
    br_conn_open(ts->c.net, &t->conn, tag_of(i, t));
    step(ts, i);
}

int br_transfers_start(struct br_transfers *ts, struct br_egress_request *q, bool wait,
                       struct br_err *err)
{
    if (!br_egress_path_ok(q->path) || (q->post && !br_egress_content_type_ok(q->content_type)) ||
        (!q->post && (q->body.len || q->content_type[0])) || q->window == 0 || find(ts, q->id))
        return br_err_set(err, BR_E_INVALID_FRAME, "what is no request was not sent");
    for (uint32_t i = 0; i < q->headers.n; i++)
        if (!br_http_may_send(q->headers.h[i].name))
            return br_err_set(err, BR_E_INVALID_FRAME,
                              "a request with the header '%s' was not sent", q->headers.h[i].name);
    int i = ts->bodies + q->body.cap > BR_EGRESS_BODIES_MAX ? -1 : slot_take(ts);
    if (i < 0)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "there are too many requests at once; this one was not sent");
    struct transfer *t = ts->slots[i];
    uint32_t generation = t->generation;
    bool ready = t->ready;
    memset(t, 0, offsetof(struct transfer, http));
    t->generation = generation;
    t->ready = ready;
    t->used = true;
    t->wait = wait;
    t->id = q->id;
    t->post = q->post;
    t->window = q->window;
    t->conn.fd = -1;
    memcpy(t->path, q->path, sizeof(t->path));
    memcpy(t->content_type, q->content_type, sizeof(t->content_type));
    t->headers.n = q->headers.n;
    memcpy(t->headers.h, q->headers.h, q->headers.n * sizeof(q->headers.h[0]));
    t->body = q->body;
    br_buf_init(&q->body, q->body.max);
    ts->bodies += t->body.cap;
    br_http_begin(&t->http);
    if (!wait)
        open_now(ts, (unsigned)i);
    return 0;
}

void br_transfers_go(struct br_transfers *ts)
{
    for (unsigned i = 0; i < ts->high; i++)
        if (ts->slots[i]->used && ts->slots[i]->wait)
            open_now(ts, i);
}

static void go_on(struct br_transfers *ts, unsigned i)
{
    struct transfer *t = ts->slots[i];
    t->activity_us = br_now_us(); /* its idle clock stood */
    watch(ts, t);
    if (t->conn.readable)
        make_ready(ts, i);
}

void br_transfers_credit(struct br_transfers *ts, uint64_t id, uint32_t bytes)
{
    for (unsigned i = 0; i < ts->high; i++) {
        struct transfer *t = ts->slots[i];
        if (!t->used || t->id != id)
            continue;
        bool stood = t->window == 0;
        t->window += bytes;
        if (stood && bytes && t->conn.state == BR_CONN_OPEN)
            go_on(ts, i);
        return;
    }
}

void br_transfers_unblocked(struct br_transfers *ts)
{
    for (unsigned i = 0; i < ts->high; i++)
        if (ts->slots[i]->used && ts->slots[i]->begun && ts->slots[i]->window)
            go_on(ts, i);
}

void br_transfers_abort(struct br_transfers *ts, uint64_t id, enum br_code code, const char *text)
{
    struct transfer *t = find(ts, id);
    struct br_err e;
    if (!t)
        return;
    br_err_set(&e, code, "%s", text);
    end(ts, t, &e);
}

void br_transfers_abort_all(struct br_transfers *ts, enum br_code code, const char *text)
{
    struct br_err e;
    br_err_set(&e, code, "%s", text);
    for (unsigned i = 0; i < ts->high; i++)
        if (ts->slots[i]->used)
            end(ts, ts->slots[i], &e);
}

void br_transfers_event(struct br_transfers *ts, const struct br_net_event *ev)
{
    unsigned i = (unsigned)(ev->tag & 0xffff);
    if (i >= ts->high || !ts->slots[i]->used || ev->tag != tag_of(i, ts->slots[i]))
        return; /* of one that has ended meanwhile */
    br_conn_event(ts->c.net, &ts->slots[i]->conn, ev->events);
    step(ts, i);
}

int br_transfers_run(struct br_transfers *ts)
{
    unsigned n = ts->nready;
    for (unsigned k = 0; k < n; k++) {
        unsigned i = ts->ready[k];
        ts->slots[i]->ready = false;
        if (ts->slots[i]->used && !ts->slots[i]->wait)
            step(ts, i);
    }
    memmove(ts->ready, ts->ready + n, (ts->nready - n) * sizeof(ts->ready[0]));
    ts->nready -= n;
    check_clocks(ts);
    if (ts->nready)
        return 0;
    if (ts->due_us == UINT64_MAX)
        return -1;
    uint64_t now = br_now_us();
    uint64_t ms = ts->due_us <= now ? 0 : (ts->due_us - now + 999) / 1000;
    return ms > 60000 ? 60000 : (int)ms;
}

bool br_transfers_answered(struct br_transfers *ts)
{
    bool is = ts->answered;
    ts->answered = false;
    return is;
}
