/*
 * bridle-broker: one provider lease. It sits between the session, which may ask for anything, and
 * bridle-egress, which has the key and sends whatever it is given. No network, no files, no key.
 * A request is checked, charged, and only then passed on; an answer is counted while it passes and
 * is cut at the lease's ceiling. Refusals are PROV_END with PROVIDER_LEASE_REFUSED, and the
 * upstream has seen nothing of them.
 */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_memory.h"
#include "broker/broker_priv.h"
#include "wire/wire.h"

/* Bytes of an answer that may be between egress and the session. */
#define BROKER_WINDOW (256u * 1024)

struct broker {
    struct br_loop *loop;
    struct br_chan sup, session, egress;
    char run_id[BR_ID_MAX], model[BR_NAME_MAX + 1], route[128];
    struct br_account account;
    /* the request in flight */
    uint64_t id;
    size_t request_bytes;
    uint64_t response_bytes;
    uint32_t taken;    /* bytes of it that were passed on and not yet credited */
    struct br_err cut; /* why its answer was cut; code 0 if it was not */
    int lease_timer;
    bool done;
};

/* ---- to the session ---- */

static int send_end(struct broker *b, uint64_t id, enum br_code code, const char *text,
                    uint64_t sent, uint64_t got, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, code);
    br_buf_put_str(&out.buf, text);
    br_buf_put_u64(&out.buf, sent);
    br_buf_put_u64(&out.buf, got);
    int r = br_chan_send(&b->session, BR_MSG_PROV_END, id, &out, err);
    return r == -BR_E_PEER_GONE ? 0 : r; /* its end of file says so as well */
}

/* The request in flight is over. */
static int flight_end(struct broker *b, enum br_code code, const char *text, uint64_t sent,
                      struct br_err *err)
{
    br_account_end(&b->account);
    if (b->egress.fd >= 0) {
        br_chan_forbid(&b->egress, BR_MSG_PROV_HEAD);
        br_chan_forbid(&b->egress, BR_MSG_PROV_DATA);
        br_chan_forbid(&b->egress, BR_MSG_PROV_END);
    }
    if (b->session.fd < 0)
        return 0;
    if (b->cut.code)
        return send_end(b, b->id, b->cut.code, b->cut.text, sent, b->response_bytes, err);
    return send_end(b, b->id, code, text, sent, b->response_bytes, err);
}

/* Stop the answer here. The session hears of it when egress has let go of the connection. */
static void flight_cut(struct broker *b, enum br_code code, const char *text)
{
    if (!b->account.in_flight || b->cut.code)
        return;
    br_err_set(&b->cut, code, "%s", text);
    (void)br_chan_send(&b->egress, BR_MSG_PROV_CANCEL, b->id, NULL, NULL);
}

/* ---- from the session ---- */

static int request_pass_on(struct broker *b, const char *method, const char *path,
                           const char *content_type, const struct br_buf *body, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, method);
    br_buf_put_str(&out.buf, path);
    br_buf_put_str(&out.buf, content_type);
    br_buf_put_u32(&out.buf, 0); /* no headers */
    br_buf_put_u32(&out.buf, BROKER_WINDOW);
    br_out_blob(&out, body->data, body->len);
    b->taken = 0;
    b->request_bytes = body->len;
    b->response_bytes = 0;
    b->cut = (struct br_err){.code = BR_OK};
    br_chan_permit(&b->egress, BR_MSG_PROV_HEAD);
    br_chan_permit(&b->egress, BR_MSG_PROV_END);
    return br_chan_send(&b->egress, BR_MSG_PROV_REQUEST, b->id, &out, err);
}

static int on_request(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    char method[16], path[256], content_type[128];
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(0);
    (void)c;
    br_rd_str(&m->rd, method, sizeof(method));
    br_rd_str(&m->rd, path, sizeof(path));
    br_rd_str(&m->rd, content_type, sizeof(content_type));
    uint32_t reserve = br_rd_u32(&m->rd);
    int r = br_msg_blob(m, BR_BLOB_MAX, &body, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || m->id == 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed request");
    struct br_broker_request q = {.max_tokens = 0};
    struct br_err why;
    r = br_broker_check(b->route, b->model, method, path, content_type,
                        body.data ? (const void *)body.data : "", body.len, &q, &why);
    if (r == 0 && b->egress.fd < 0)
        r = br_err_set(&why, BR_E_LEASE_REFUSED, "'bridle-egress' has gone; nothing was sent");
    if (r == 0)
        r = br_account_reserve(&b->account, m->id, br_now_us(), body.len, reserve, q.max_tokens,
                               &why);
    if (r < 0)
        return send_end(b, m->id, why.code, why.text, 0, 0, err);
    b->id = m->id;
    r = request_pass_on(b, method, path, content_type, &body, &why);
    if (r == -BR_E_PEER_GONE)
        return 0; /* its end of file ends the request */
    if (r < 0 && err)
        *err = why;
    return r;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    (void)c;
    (void)err;
    if (m->id == b->id)
        flight_cut(b, BR_E_CANCELED, "the request was cancelled");
    return 0;
}

static int on_settle(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    (void)c;
    uint64_t prompt = br_rd_u64(&m->rd), completion = br_rd_u64(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'session' sent a malformed settlement");
    (void)br_account_settle(&b->account, m->id, prompt, completion);
    return 0;
}

static const struct br_msg_rule session_rules[] = {
    {BR_MSG_PROV_REQUEST, BR_PERMIT, 21, BR_MSG_MAX, 0, 1, on_request},
    {BR_MSG_PROV_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
    {BR_MSG_PROV_SETTLE, BR_PERMIT, 16, 16, 0, 0, on_settle},
};

/* ---- from egress ---- */

static int wrong_id(struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'egress' answered a request that is not in flight");
}

static int on_head(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    static struct br_headers h;
    uint32_t status = br_rd_u32(&m->rd);
    br_headers_get(&m->rd, &h);
    if (br_rd_done(&m->rd) < 0 || m->id != b->id || status < 200 || status > 999)
        return wrong_id(err);
    br_chan_permit(c, BR_MSG_PROV_DATA);
    if (b->cut.code || b->session.fd < 0)
        return 0;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, status);
    br_buf_put_str(&out.buf, br_headers_find(&h, "content-type"));
    br_buf_put_str(&out.buf, br_headers_find(&h, "x-request-id"));
    br_buf_put_str(&out.buf, br_headers_find(&h, "retry-after"));
    int r = br_chan_send(&b->session, BR_MSG_PROV_HEAD, b->id, &out, err);
    return r == -BR_E_PEER_GONE ? 0 : r;
}

/* The session took n bytes: so many more may come. */
static int credit(struct broker *b, size_t n, struct br_err *err)
{
    b->taken += (uint32_t)n;
    if (b->taken < BROKER_WINDOW / 2)
        return 0;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, b->taken);
    b->taken = 0;
    int r = br_chan_send(&b->egress, BR_MSG_PROV_CREDIT, b->id, &out, err);
    return r == -BR_E_PEER_GONE ? 0 : r;
}

static int on_data(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    BR_CLEANUP_BUF struct br_buf body = BR_BUF_INIT(0);
    (void)c;
    int r = br_msg_blob(m, BR_BLOB_INLINE_MAX, &body, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || m->id != b->id)
        return wrong_id(err);
    if (b->cut.code || b->session.fd < 0)
        return 0; /* on its way when it was cut */
    size_t n = br_account_receive(&b->account, body.len);
    b->response_bytes += n;
    if (n) {
        BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
        br_out_blob(&out, body.data, n);
        r = br_chan_send(&b->session, BR_MSG_PROV_DATA, b->id, &out, err);
        if (r < 0)
            return r == -BR_E_PEER_GONE ? 0 : r;
    }
    if (n < body.len)
        flight_cut(b, BR_E_LIMIT_EXCEEDED,
                   "the provider's answer is over the lease's ceiling for answers; it was cut");
    return credit(b, n, err);
}

static int on_end(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    char text[BR_ERR_TEXT_MAX];
    (void)c;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    uint64_t sent = br_rd_u64(&m->rd);
    (void)br_rd_u64(&m->rd); /* what arrived here is counted here */
    if (br_rd_done(&m->rd) < 0 || m->id != b->id || code >= BR_CODE_COUNT_)
        return wrong_id(err);
    if (code && sent == 0 && b->response_bytes == 0 && code == BR_E_PROVIDER_UNREACHABLE)
        br_account_release(&b->account, b->request_bytes);
    return flight_end(b, (enum br_code)code, text, sent, err);
}

static const struct br_msg_rule egress_rules[] = {
    {BR_MSG_PROV_HEAD, BR_ONCE, 8, BR_MSG_MAX, 0, 0, on_head},
    {BR_MSG_PROV_DATA, 0, 5, BR_MSG_MAX, 0, 0, on_data},
    {BR_MSG_PROV_END, BR_ONCE, 24, BR_MSG_MAX, 0, 0, on_end},
};

/* ---- ends of channels ---- */

static int channel_violation(int code, const struct br_err *err)
{
    if (err)
        br_log(BR_LOG_ERROR, "%s", err->text);
    return code;
}

static int on_session_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    if (code != -BR_E_PEER_GONE)
        return channel_violation(code, err);
    flight_cut(b, BR_E_PEER_GONE, "the session has gone");
    br_chan_close(c);
    return 0;
}

static int on_egress_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    if (code != -BR_E_PEER_GONE)
        return channel_violation(code, err);
    br_chan_close(c);
    if (!b->account.in_flight)
        return 0;
    return flight_end(b, BR_E_PROGRAM_DIED,
                      "'bridle-egress' has gone; the request to the provider was cut",
                      b->request_bytes, err);
}

static int on_sup_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    (void)c;
    b->done = true;
    return code == -BR_E_PEER_GONE ? 0 : channel_violation(code, err);
}

/* ---- from bridled ---- */

static int on_lease_end(void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    (void)err;
    b->lease_timer = 0;
    flight_cut(b, BR_E_TIMEOUT, "the provider lease has ended; the request was cut");
    return 0;
}

static int lease_open(struct broker *b, const struct br_lease *l, struct br_err *err)
{
    if (strcmp(b->route, BR_PATH_CHAT) != 0)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "'%s' is not a route that the broker knows; expected '%s'. The lease was "
                          "not opened",
                          b->route, BR_PATH_CHAT);
    if (!b->model[0])
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider lease without a model was not opened");
    int r = br_account_open(&b->account, l, br_now_us(), err);
    if (r < 0)
        return r;
    b->lease_timer = br_loop_timer(b->loop, (uint64_t)l->seconds * 1000000, on_lease_end, b);
    if (b->lease_timer < 0 || br_loop_watch_chan(b->loop, &b->session, on_session_end, b) < 0 ||
        br_loop_watch_chan(b->loop, &b->egress, on_egress_end, b) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the provider lease");
    return 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct broker *b = ctx;
    struct br_lease lease;
    br_rd_str(&m->rd, b->run_id, sizeof(b->run_id));
    br_rd_str(&m->rd, b->model, sizeof(b->model));
    br_rd_str(&m->rd, b->route, sizeof(b->route));
    br_lease_get(&m->rd, &lease);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed BROKER_START");
    br_chan_init(&b->session, br_msg_take_fd(m), "session", session_rules,
                 BR_ARRAY_LEN(session_rules), b);
    br_chan_init(&b->egress, br_msg_take_fd(m), "egress", egress_rules, BR_ARRAY_LEN(egress_rules),
                 b);
    struct br_err why = {.code = BR_OK};
    int r = lease_open(b, &lease, &why);
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, br_code_name(r < 0 ? (int)why.code : BR_OK));
    br_buf_put_str(&out.buf, r < 0 ? why.text : "");
    int sent = br_chan_send(c, BR_MSG_ROLE_READY, m->id, &out, err);
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : sent;
}

/* Nobody is served there: the socket is closed, and who connects to it is refused. */
static int on_listen(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_BROKER_START, BR_PERMIT | BR_ONCE, 48, BR_MSG_MAX, 2, 2, on_start},
    {BR_MSG_BROKER_LISTEN, BR_PERMIT | BR_ONCE, 0, 0, 1, 1, on_listen},
};

static int broker_run(struct broker *b, struct br_err *err)
{
    static const int none[1] = {0}; /* a list, so that the filter is installed */
    const struct br_role role = {
        .name = "bridle-broker",
        .uid = BR_UID_BROKER,
        .max_nofile = 32,
        .max_as = 1024ull * 1024 * 1024,
        .no_fork = true,
        .syscalls = none,
        .nsyscalls = 0,
    };
    size_t seed = 0;
    br_random(&seed, sizeof(seed));
    json_object_seed(seed | 1); /* otherwise jansson opens /dev/urandom, behind the filter */
    int r = br_role_enter(&role, err);
    if (r < 0)
        return r;
    b->loop = br_loop_new();
    if (!b->loop || br_loop_watch_chan(b->loop, &b->sup, on_sup_end, b) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory to start");
    return br_loop_run(b->loop, &b->done, err);
}

int main(void)
{
    static struct broker b = {.session.fd = -1, .egress.fd = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-broker", BR_LOG_WARN);
    br_json_end_without_memory();
    (void)signal(SIGPIPE, SIG_IGN);
    br_close_from(4, NULL, 0);
    br_chan_init(&b.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &b);
    int r = broker_run(&b, &err);
    if (r < 0 && err.code)
        br_log(BR_LOG_ERROR, "%s", err.text);
    br_chan_close(&b.session);
    br_chan_close(&b.egress);
    br_chan_close(&b.sup);
    if (b.loop)
        br_loop_free(&b.loop);
    return r < 0 ? 1 : 0;
}
