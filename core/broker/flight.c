/*
 * What is on its way to the provider and back: one pipeline for the session's own requests and for
 * those of guests. A request is checked (dialect.h), charged, told to the session, and only then
 * given to egress. An answer is counted, inspected and passed on while it comes, never faster than
 * its reader reads. At its end the account is settled with what the provider says was used; of a
 * guest that left early the rest is read up to a bound, to learn that. Neither the asker nor the
 * provider is trusted; egress is trusted to send to nobody else.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/broker.h"

/* So that the slot of an id is found without looking for it. */
#define SLOT_BITS 8
_Static_assert(BR_BROKER_FLIGHTS_MAX <= 1u << SLOT_BITS, "a slot fits into an id");

/* ---- slots ---- */

static struct flight *flight_new(struct broker *b)
{
    uint64_t slot = 0;
    while (slot < BR_BROKER_FLIGHTS_MAX && b->flights[slot])
        slot++;
    struct flight *f = slot < BR_BROKER_FLIGHTS_MAX ? calloc(1, sizeof(*f)) : NULL;
    if (!f)
        return NULL;
    f->id = ++b->requests << SLOT_BITS | slot;
    b->flights[slot] = f;
    b->nflights++;
    return f;
}

static struct flight *flight_find(const struct broker *b, uint64_t id)
{
    struct flight *f = b->flights[id & ((1u << SLOT_BITS) - 1)];
    return f && f->id == id ? f : NULL;
}

struct flight *flight_of_session_id(struct broker *b, uint64_t session_id)
{
    for (unsigned i = 0; i < BR_BROKER_FLIGHTS_MAX; i++)
        if (b->flights[i] && !b->flights[i]->of_guest && b->flights[i]->session_id == session_id)
            return b->flights[i];
    return NULL;
}

static void flight_free(struct broker *b, struct flight *f)
{
    b->flights[f->id & ((1u << SLOT_BITS) - 1)] = NULL;
    b->nflights--;
    if (f->answer)
        br_answer_free(&f->answer);
    free(f->headers);
    free(f);
}

void flight_free_all(struct broker *b)
{
    for (unsigned i = 0; i < BR_BROKER_FLIGHTS_MAX; i++)
        if (b->flights[i])
            flight_free(b, b->flights[i]);
}

/* ---- what the session is told ---- */

static int send_end(struct broker *b, uint64_t id, enum br_code code, const char *text,
                    uint64_t sent, uint64_t got, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, code);
    br_buf_put_str(&out.buf, text);
    br_buf_put_u64(&out.buf, sent);
    br_buf_put_u64(&out.buf, got);
    return broker_to_session(b, BR_MSG_PROV_END, id, &out, err);
}

void flight_refused(struct broker *b, enum br_code code, const char *text)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_account_refused(&b->account);
    if (b->told++ >= BR_REFUSALS_TOLD)
        return;
    br_buf_put_u32(&out.buf, code);
    br_buf_put_str(&out.buf, text);
    (void)broker_to_session(b, BR_MSG_GUEST_REFUSED, 0, &out, NULL);
}

static int tell_request(struct broker *b, const struct flight *f)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u64(&out.buf, f->serial);
    br_buf_put_u32(&out.buf, f->ask.route);
    br_buf_put_u32(&out.buf, f->ask.messages);
    br_buf_put_u64(&out.buf, f->res.tokens);
    br_buf_put_u64(&out.buf, f->request_bytes);
    return broker_to_session(b, BR_MSG_GUEST_REQUEST, 0, &out, NULL);
}

/* What it is charged with, as prompt and completion. */
struct charge {
    uint64_t prompt, completion;
    bool settled;
};

static void tell_response(struct broker *b, const struct flight *f, enum br_code code,
                          const char *text, const struct charge *c)
{
    static const struct br_answer_facts none;
    const struct br_answer_facts *facts = f->answer ? br_answer_facts(f->answer) : &none;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u64(&out.buf, f->serial);
    br_buf_put_u32(&out.buf, code);
    br_buf_put_str(&out.buf, text);
    br_buf_put_u32(&out.buf, f->status);
    br_buf_put_str(&out.buf, facts->finish);
    br_buf_put_u64(&out.buf, c->prompt);
    br_buf_put_u64(&out.buf, c->completion);
    br_buf_put_u8(&out.buf, c->settled);
    br_buf_put_u32(&out.buf, facts->repairs);
    br_buf_put_u32(&out.buf, facts->calls);
    br_buf_put_u64(&out.buf, f->response_bytes);
    (void)broker_to_session(b, BR_MSG_GUEST_RESPONSE, 0, &out, NULL);
}

/* ---- the account ---- */

/*
 * The end of the reservation. A provider that was certainly not reached was sent nothing; one that
 * refused the request (4xx) says that it did not serve it. Everything else is charged: a whole
 * answer with the usage that the provider reported, any other as it was reserved, or with what it
 * had reported by then if that is more; a stream says its usage from the first event on, and that
 * is not what it will have used.
 */
static struct charge settle(struct broker *b, struct flight *f, enum br_code code, uint64_t sent)
{
    static const struct br_answer_facts none;
    const struct br_answer_facts *facts = f->answer ? br_answer_facts(f->answer) : &none;
    struct charge c = {.settled = true};
    if (f->of_guest)
        br_account_answered(&b->account, facts->repairs, f->end.code != 0);
    if (code == BR_E_PROVIDER_UNREACHABLE && sent == 0 && f->response_bytes == 0 && !f->status) {
        br_account_release(&b->account, &f->res, false);
    } else if (code == BR_OK && f->status >= 400 && f->status < 500) {
        br_account_release(&b->account, &f->res, true);
    } else if (facts->complete && facts->usage_known &&
               br_account_settle(&b->account, &f->res, facts->prompt, facts->completion)) {
        c.prompt = facts->prompt;
        c.completion = facts->completion;
    } else if (facts->usage_known && f->res.open &&
               facts->prompt + facts->completion > f->res.tokens) {
        c.prompt = facts->prompt;
        c.completion = facts->completion;
        c.settled = br_account_settle(&b->account, &f->res, c.prompt, c.completion);
    } else {
        if (f->res.open)
            (void)br_account_settle(&b->account, &f->res, 0, 0);
        c.settled = false;
        c.completion = f->ask.max_tokens < f->res.tokens ? f->ask.max_tokens : f->res.tokens;
        c.prompt = f->res.tokens - c.completion;
    }
    return c;
}

/* ---- to egress ---- */

static int send_request(struct broker *b, struct flight *f, const char *method, const char *path,
                        const char *content_type, const struct br_headers *headers,
                        const struct br_buf *body, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, method);
    br_buf_put_str(&out.buf, path);
    br_buf_put_str(&out.buf, content_type);
    if (headers)
        br_headers_put(&out.buf, headers);
    else
        br_buf_put_u32(&out.buf, 0);
    br_buf_put_u32(&out.buf, BR_BROKER_WINDOW);
    br_out_blob(&out, body->data, body->len);
    f->window = BR_BROKER_WINDOW;
    return broker_to_egress(b, BR_MSG_PROV_REQUEST, f->id, &out, err);
}

static void give_credit(struct broker *b, struct flight *f)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, f->taken);
    f->window += f->taken;
    f->taken = 0;
    (void)broker_to_egress(b, BR_MSG_PROV_CREDIT, f->id, &out, NULL);
}

/* So many bytes were taken off the window, and their reader is not behind. */
static void took(struct broker *b, struct flight *f)
{
    if (f->taken >= BR_BROKER_WINDOW / 4 && !f->cut)
        give_credit(b, f);
}

void flight_credit(struct flight *f)
{
    if (f->guest && guest_unread(f->guest) < BR_GUEST_UNREAD_MAX)
        took(f->guest->b, f);
}

/* ---- refusals and failures, as a guest sees them ---- */

static unsigned status_of(const struct broker *b, enum br_code code)
{
    switch (code) {
    case BR_E_LEASE_REFUSED:
    case BR_E_BUDGET_EXCEEDED:
    case BR_E_DENIED:
    case BR_E_CANCELED:
    case BR_E_LIMIT_EXCEEDED: /* the lease's ceiling */
        return 403;
    case BR_E_TIMEOUT:
        return b->over ? 403 : 504;
    case BR_E_NOMEM:
        return 503;
    default:
        return 502;
    }
}

/* The guest is told the end, and belongs to this request no more. */
static void guest_fails(struct flight *f, enum br_code code, const char *text)
{
    struct guest *g = br_steal_ptr(&f->guest);
    if (!g)
        return;
    g->flight = NULL;
    if (!g->head_sent) {
        guest_refuse(g, f->ask.route, status_of(g->b, code), code, text);
        return;
    }
    bool sse = strncmp(f->content_type, "text/event-stream", 17) == 0;
    if (sse) {
        size_t mark = guest_chunk_begin(g);
        br_error_body(f->ask.route, true, code, text, &g->out);
        guest_chunk_end(g, mark);
    }
    guest_done(g, sse);
}

void flight_cut(struct broker *b, struct flight *f, enum br_code code, const char *text)
{
    if (f->cut)
        return;
    f->cut = true;
    if (!f->end.code)
        br_err_set(&f->end, code, "%s", text);
    (void)broker_to_egress(b, BR_MSG_PROV_CANCEL, f->id, NULL, NULL);
    guest_fails(f, f->end.code, f->end.text);
}

void flight_cut_all(struct broker *b, enum br_code code, const char *text)
{
    for (unsigned i = 0; i < BR_BROKER_FLIGHTS_MAX; i++)
        if (b->flights[i])
            flight_cut(b, b->flights[i], code, text);
}

void flight_left(struct flight *f)
{
    f->guest = NULL;
    if (f->cut || f->end.code)
        return;
    br_err_set(&f->end, BR_E_CANCELED, "the guest left before its answer was complete");
    f->drain_until = br_now_us() + BR_DRAIN_US;
}

/* A guest's answer that nobody reads: the rest is of interest only for its usage. */
static void drain(struct broker *b, struct flight *f, size_t n)
{
    f->drained += n;
    if (f->drained > BR_DRAIN_BYTES)
        flight_cut(b, f, BR_E_CANCELED, f->end.text);
    else
        took(b, f);
}

void flight_tick(struct broker *b, uint64_t now)
{
    for (unsigned i = 0; i < BR_BROKER_FLIGHTS_MAX && b->nflights; i++) {
        struct flight *f = b->flights[i];
        if (!f || !f->drain_until)
            continue;
        if (now >= f->drain_until)
            flight_cut(b, f, BR_E_CANCELED, f->end.text);
        else if (f->taken) /* what its reader had not read */
            took(b, f);
    }
}

/* ---- requests ---- */

/* Charge it and send it. What counts is what came or what is sent, whichever is more. On failure
 * nothing is charged but, maybe, its place in the count. */
static int launch(struct broker *b, struct flight *f, uint64_t reserve, size_t came,
                  const char *method, const char *path, const char *content_type,
                  const struct br_headers *headers, const struct br_buf *body, struct br_err *err)
{
    int r = b->egress.fd < 0
                ? br_err_set(err, BR_E_LEASE_REFUSED, "'bridle-egress' has gone; nothing was sent")
                : br_account_reserve(&b->account, &f->res, br_now_us(),
                                     body->len > came ? body->len : came, reserve,
                                     f->ask.max_tokens, err);
    if (r < 0)
        return r;
    f->request_bytes = body->len;
    r = send_request(b, f, method, path, content_type, headers, body, err);
    if (f->of_guest)
        (void)tell_request(b, f);
    broker_eager(b);
    if (r == -BR_E_PEER_GONE)
        return 0; /* its end of file ends the request */
    return r;
}

static int no_memory(struct br_err *err)
{
    return br_err_set(err, BR_E_NOMEM, "no memory for a request; nothing was sent");
}

void flight_of_guest(struct guest *g)
{
    struct broker *b = g->b;
    const struct br_http_request *q = &g->req;
    struct br_ask_facts ask = {.route = BR_ROUTE_CHAT};
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(BR_BLOB_MAX);
    const void *bytes = g->body.data ? (const void *)g->body.data : "";
    const char *path = q->path + 3; /* without /v1 */
    int r = b->over ? br_err_set(&err, BR_E_LEASE_REFUSED,
                                 "the provider lease has ended; the request was not sent")
                    : br_ask_check(&b->account.lease, b->model, q->method, path, q->content_type,
                                   bytes, g->body.len, &body, &ask, &err);
    size_t came = g->body.len;
    guest_body_free(g);
    if (r < 0 && strstr(path, "/messages"))
        ask.route = BR_ROUTE_MESSAGES; /* whose shape of errors its clients expect */
    if (r == 0 && ask.route == BR_ROUTE_MODELS) {
        guest_answer(g, 200, "application/json", true, &body);
        return;
    }
    struct flight *f = r == 0 ? flight_new(b) : NULL;
    if (r == 0 && !f)
        r = b->nflights < BR_BROKER_FLIGHTS_MAX
                ? no_memory(&err)
                : br_err_set(&err, BR_E_LEASE_REFUSED,
                             "%u requests are in flight; this one was not sent", b->nflights);
    if (f) {
        f->of_guest = true;
        f->ask = ask;
        f->serial = ++b->serial;
        r = launch(b, f, ask.reserve > ask.max_tokens ? ask.reserve : ask.max_tokens, came,
                   q->method, path, q->content_type, &q->headers, &body, &err);
    }
    if (r < 0) {
        if (f && f->res.open) { /* charged, and it is not known what egress has of it */
            (void)br_account_settle(&b->account, &f->res, 0, 0);
        }
        if (f)
            flight_free(b, f);
        flight_refused(b, err.code, err.text);
        guest_refuse(g, ask.route, status_of(b, err.code), err.code, err.text);
        return;
    }
    f->guest = g;
    g->flight = f;
}

static int session_launch(struct broker *b, uint64_t id, const char *method, const char *path,
                          const char *content_type, uint32_t reserve, const struct br_buf *body,
                          struct br_err *why)
{
    struct br_ask_facts ask;
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(BR_BLOB_MAX);
    int r = br_ask_check(&b->account.lease, b->model, method, path, content_type,
                         body->data ? (const void *)body->data : "", body->len, &out, &ask, why);
    if (r == 0 && ask.route == BR_ROUTE_MODELS)
        r = br_err_set(why, BR_E_LEASE_REFUSED, "the session has no use for the list of models");
    if (r == 0 && flight_of_session_id(b, id))
        r = br_err_set(why, BR_E_LEASE_REFUSED, "a request with this id is in flight");
    struct flight *f = r == 0 ? flight_new(b) : NULL;
    if (r == 0 && !f)
        r = no_memory(why);
    if (!f)
        return r;
    f->session_id = id;
    f->ask = ask;
    /* an estimate below the largest answer is a mistake, one below ours is not believed */
    uint64_t tokens = reserve < ask.max_tokens || reserve > ask.reserve ? reserve : ask.reserve;
    r = launch(b, f, tokens, body->len, method, path, content_type, NULL, &out, why);
    if (r < 0)
        flight_free(b, f);
    return r;
}

int flight_of_session(struct broker *b, struct br_msg *m, struct br_err *err)
{
    char method[16], path[256], content_type[128];
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(0);
    br_rd_str(&m->rd, method, sizeof(method));
    br_rd_str(&m->rd, path, sizeof(path));
    br_rd_str(&m->rd, content_type, sizeof(content_type));
    uint32_t reserve = br_rd_u32(&m->rd);
    int r = br_msg_blob(m, BR_BLOB_MAX, &body, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || m->id == 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed request");
    struct br_err why = {.code = BR_OK};
    r = session_launch(b, m->id, method, path, content_type, reserve, &body, &why);
    if (r == -BR_E_LEASE_REFUSED)
        return send_end(b, m->id, why.code, why.text, 0, 0, err);
    if (r < 0 && err)
        *err = why;
    return r;
}

/* ---- answers ---- */

static int wrong_id(struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'egress' answered a request that is not in flight");
}

static int head_to_session(struct broker *b, const struct flight *f, const struct br_headers *h,
                           struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    const char *request_id = br_headers_find(h, "x-request-id");
    br_buf_put_u32(&out.buf, f->status);
    br_buf_put_str(&out.buf, br_headers_find(h, "content-type"));
    br_buf_put_str(&out.buf, request_id[0] ? request_id : br_headers_find(h, "request-id"));
    br_buf_put_str(&out.buf, br_headers_find(h, "retry-after"));
    return broker_to_session(b, BR_MSG_PROV_HEAD, f->session_id, &out, err);
}

int flight_on_head(struct broker *b, struct br_msg *m, struct br_err *err)
{
    struct flight *f = flight_find(b, m->id);
    static struct br_headers h;
    uint32_t status = br_rd_u32(&m->rd);
    br_headers_get(&m->rd, &h);
    if (br_rd_done(&m->rd) < 0 || !f || f->status || status < 200 || status > 999)
        return wrong_id(err);
    f->status = status;
    if (f->cut)
        return 0;
    broker_eager(b);
    const char *type = br_headers_find(&h, "content-type");
    f->answer = br_answer_new(&b->account.lease, &f->ask, status, type);
    if (!f->answer) {
        flight_cut(b, f, BR_E_NOMEM, "no memory for an answer; it was cut");
        return 0;
    }
    if (!f->of_guest)
        return head_to_session(b, f, &h, err);
    bool sse = status / 100 == 2 && strncasecmp(type, "text/event-stream", 17) == 0;
    snprintf(f->content_type, sizeof(f->content_type), "%s",
             sse ? "text/event-stream" : "application/json");
    if (f->guest && (f->headers = malloc(sizeof(h))))
        *f->headers = h;
    return 0;
}

/*
 * Let the inspector see n bytes (or the end, with p NULL), and put into the guest's buffer what may
 * be passed on. The head goes with the first bytes, so that an answer which is refused as a whole
 * is an error like any other; a stream's goes at once. A provider never sends a guest elsewhere.
 */
static int inspect(struct broker *b, struct flight *f, const void *p, size_t n, struct br_err *why)
{
    struct guest *g = f->guest;
    if (!g) {
        br_buf_reset(&b->scratch);
        return p ? br_answer_feed(f->answer, p, n, &b->scratch, why)
                 : br_answer_end(f->answer, &b->scratch, why);
    }
    guest_compact(g);
    size_t start = g->out.len;
    bool first = !g->head_sent;
    if (first)
        guest_head(g,
                   f->status / 100 == 2 ? 200
                   : f->status >= 400   ? f->status
                                        : 502,
                   f->content_type, f->headers);
    size_t mark = guest_chunk_begin(g);
    int r =
        p ? br_answer_feed(f->answer, p, n, &g->out, why) : br_answer_end(f->answer, &g->out, why);
    bool empty = g->out.len == mark;
    guest_chunk_end(g, mark);
    if (g->out.failed && r == 0)
        r = br_err_set(why, BR_E_NOMEM, "no memory for an answer; it was cut");
    if (first && empty && !(r == 0 && f->ask.stream && f->status / 100 == 2)) {
        g->out.len = start;
        g->head_sent = false;
    }
    return r;
}

/* For the session, which judges by itself: the bytes as they came. The inspector is asked what was
 * used, and nothing else. */
static int data_to_session(struct broker *b, struct flight *f, const void *p, size_t n,
                           struct br_err *err)
{
    struct br_err why;
    if (n == 0)
        return 0;
    if (!f->blind)
        f->blind = inspect(b, f, p, n, &why) < 0;
    if (b->session.fd < 0)
        return 0;
    int r = br_chan_send_bytes(&b->session, BR_MSG_PROV_DATA, f->session_id, p, n, err);
    return r == -BR_E_PEER_GONE ? 0 : r;
}

static void data_to_guest(struct broker *b, struct flight *f, const void *p, size_t n)
{
    struct br_err why = {.code = BR_OK};
    if (n && inspect(b, f, p, n, &why) < 0) {
        if (!f->end.code)
            f->end = why;
        flight_cut(b, f, why.code, why.text);
        return;
    }
    if (!f->guest) {
        drain(b, f, n);
    } else if (guest_unread(f->guest) < BR_GUEST_UNREAD_MAX / 2) {
        guest_flush_later(f->guest);
    } else if (guest_flush(f->guest)) { /* which may end in flight_left() */
        flight_credit(f);
    }
}

int flight_on_data(struct broker *b, struct br_msg *m, struct br_err *err)
{
    struct flight *f = flight_find(b, m->id);
    BR_CLEANUP_BUF struct br_buf none; /* no descriptor may come with it */
    size_t n;
    const void *p = br_msg_blob_view(m, BR_MSG_MAX, &none, &n, err);
    if (!p || br_rd_done(&m->rd) < 0 || !f || !f->status || n > f->window)
        return wrong_id(err);
    f->window -= (uint32_t)n;
    f->taken += (uint32_t)n;
    if (f->cut)
        return 0; /* on its way when it was cut */
    broker_eager(b);
    size_t k = br_account_receive(&b->account, n);
    f->response_bytes += k;
    if (f->of_guest) {
        data_to_guest(b, f, p, k);
    } else {
        int r = data_to_session(b, f, p, k, err);
        if (r < 0)
            return r;
        took(b, f);
    }
    if (k < n)
        flight_cut(b, f, BR_E_LIMIT_EXCEEDED,
                   "the provider's answer is over the lease's ceiling for answers; it was cut");
    return 0;
}

/* Egress has let go of the request, and this is how. */
static int finish(struct broker *b, struct flight *f, enum br_code code, const char *text,
                  uint64_t sent, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    if (code == BR_OK && !f->cut && f->answer && !f->blind) {
        if (inspect(b, f, NULL, 0, &why) < 0 && f->of_guest && !f->end.code)
            f->end = why;
    } else if (code != BR_OK && !f->end.code) {
        br_err_set(&f->end, code, "%s", text);
    }
    if (code == BR_OK && !f->answer && !f->end.code)
        br_err_set(&f->end, BR_E_PROVIDER_INVALID, "the provider's answer has no head");
    struct charge c = settle(b, f, code, sent);
    struct guest *g = f->guest;
    int r = 0;
    if (!f->of_guest) {
        r = send_end(b, f->session_id, f->end.code, f->end.code ? f->end.text : "", sent,
                     f->response_bytes, err);
    } else {
        if (g && f->end.code) {
            guest_fails(f, f->end.code, f->end.text);
        } else if (g) {
            f->guest = NULL;
            guest_done(g, true);
        }
        tell_response(b, f, f->end.code, f->end.code ? f->end.text : "", &c);
    }
    flight_free(b, f);
    return r;
}

int flight_on_end(struct broker *b, struct br_msg *m, struct br_err *err)
{
    struct flight *f = flight_find(b, m->id);
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    uint64_t sent = br_rd_u64(&m->rd);
    (void)br_rd_u64(&m->rd); /* what arrived here is counted here */
    if (br_rd_done(&m->rd) < 0 || !f || code >= BR_CODE_COUNT_)
        return wrong_id(err);
    return finish(b, f, (enum br_code)code, text, sent, err);
}

int flight_egress_gone(struct broker *b, struct br_err *err)
{
    for (unsigned i = 0; i < BR_BROKER_FLIGHTS_MAX; i++) {
        struct flight *f = b->flights[i];
        int r = f ? finish(b, f, BR_E_PROGRAM_DIED,
                           "'bridle-egress' has gone; the request to the provider was cut",
                           f->request_bytes, err)
                  : 0;
        if (r < 0)
            return r;
    }
    return 0;
}
