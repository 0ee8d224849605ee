/*
 * bridle-egress: the only program with the provider's credential and the only one that connects
 * outward. Started by bridled with its supervision channel on fd 3 and, at most, one variable in
 * its environment. It parses no body. The broker, which feeds it requests, is not trusted with
 * anything but the body and the path; where they go and with which key was fixed by EGRESS_START.
 * It is ready only when audit knows the key: no event of the run is made before that, and no
 * request is sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "egress/transfer.h"
#include "wire/types.h"
#include "wire/wire.h"

/* How long a start, or a request, waits for audit's SECRET_KNOWN. */
#define EGRESS_SECRET_WAIT_US 10000000u
/* PROV_HEAD, and PROV_END behind it. */
#define EGRESS_OUTBOX_MAX 4u

struct pending {
    enum br_msg_type type;
    struct br_out out;
};

struct request {
    uint64_t id;
    char path[256];
    char content_type[128];
    uint64_t window; /* bytes of the answer that the broker still takes */
    struct br_buf body;
    uint64_t arrived_us;
    bool waiting; /* for SECRET_KNOWN */
    bool open;    /* from PROV_REQUEST to PROV_END */
};

/* Where an OpenAI key without an address belongs. */
#define OPENAI_URL "https://api.openai.com/v1"

struct egress {
    struct br_chan sup, broker, audit;
    struct br_egress_target target;
    struct br_egress_timeouts limits;
    char unix_socket[256];
    char key_env[128];
    struct br_secret key;
    bool key_known;
    bool ready;        /* ROLE_READY was sent */
    uint64_t start_id; /* of EGRESS_START */
    uint64_t ready_by; /* SECRET_KNOWN must have come; 0: it is not waited for */
    CURLM *multi;
    struct br_transfer *transfer;
    struct request request;
    struct pending outbox[EGRESS_OUTBOX_MAX];
    unsigned npending;
    bool quit;
};

/* ---- to the broker, without ever blocking ---- */

static int outbox_flush(struct egress *e)
{
    while (e->npending) {
        struct pending *p = &e->outbox[0];
        int r = br_chan_send(&e->broker, p->type, e->request.id, &p->out, NULL);
        if (r == -BR_E_TIMEOUT)
            return r;
        br_out_free(&p->out);
        e->npending--;
        memmove(e->outbox, e->outbox + 1, e->npending * sizeof(e->outbox[0]));
        if (r < 0)
            return r;
    }
    return 0;
}

/* Takes over `out`. */
static int outbox_send(struct egress *e, enum br_msg_type type, struct br_out *out)
{
    br_require(e->npending < EGRESS_OUTBOX_MAX);
    e->outbox[e->npending++] = (struct pending){.type = type, .out = *out};
    *out = (struct br_out)BR_OUT_INIT;
    int r = outbox_flush(e);
    return r == -BR_E_TIMEOUT ? 0 : r;
}

static int sink_head(void *ctx, const struct br_egress_head *h)
{
    struct br_out out = BR_OUT_INIT;
    static struct br_headers list;
    list.n = 0;
    if (h->content_type[0])
        (void)br_headers_add(&list, "content-type", h->content_type);
    if (h->request_id[0])
        (void)br_headers_add(&list, "x-request-id", h->request_id);
    if (h->retry_after[0])
        (void)br_headers_add(&list, "retry-after", h->retry_after);
    br_buf_put_u32(&out.buf, h->status);
    br_headers_put(&out.buf, &list);
    return outbox_send(ctx, BR_MSG_PROV_HEAD, &out);
}

static int sink_data(void *ctx, const void *p, size_t n)
{
    struct egress *e = ctx;
    int r = outbox_flush(e);
    if (r < 0)
        return r;
    if (n > e->request.window)
        return -BR_E_TIMEOUT;
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_out_blob(&out, p, n);
    r = br_chan_send(&e->broker, BR_MSG_PROV_DATA, e->request.id, &out, NULL);
    if (r == 0)
        e->request.window -= n;
    return r;
}

static void request_end(struct egress *e, const struct br_err *end, uint64_t sent, uint64_t got)
{
    struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, end->code);
    br_buf_put_str(&out.buf, end->code ? end->text : "");
    br_buf_put_u64(&out.buf, sent);
    br_buf_put_u64(&out.buf, got);
    (void)outbox_send(e, BR_MSG_PROV_END, &out);
    br_buf_free(&e->request.body);
    e->request.open = e->request.waiting = false;
    br_chan_permit(&e->broker, BR_MSG_PROV_REQUEST);
}

static void request_refuse(struct egress *e, enum br_code code, const char *text)
{
    struct br_err end;
    br_err_set(&end, code, "%s", text);
    request_end(e, &end, 0, 0);
}

static void request_launch(struct egress *e)
{
    struct request *q = &e->request;
    struct br_err err;
    q->waiting = false;
    if (br_transfer_start(e->transfer, &e->target, e->unix_socket, &e->key, &e->limits, q->path,
                          q->content_type, &q->body, &err) < 0)
        request_refuse(e, err.code, err.text);
}

/* ---- from the broker ---- */

static int on_request(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    struct request *q = &e->request;
    char method[16];
    br_rd_str(&m->rd, method, sizeof(method));
    br_rd_str(&m->rd, q->path, sizeof(q->path));
    br_rd_str(&m->rd, q->content_type, sizeof(q->content_type));
    static struct br_headers headers; /* of a guest; the session has none */
    br_headers_get(&m->rd, &headers);
    q->window = br_rd_u32(&m->rd);
    int r = br_msg_blob(m, BR_BLOB_MAX, &q->body, err);
    if (r < 0)
        return r;
    if (br_rd_done(&m->rd) < 0 || e->npending)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'broker' sent a malformed request");
    q->id = m->id;
    q->open = true;
    q->arrived_us = br_now_us();
    br_chan_forbid(c, BR_MSG_PROV_REQUEST);
    if (strcmp(method, "POST") != 0)
        request_refuse(e, BR_E_INVALID_FRAME, "a request that is not a POST was not sent");
    else if (e->key_known)
        request_launch(e);
    else if (e->audit.fd >= 0)
        q->waiting = true;
    else
        request_refuse(e, BR_E_REDACTION_FAILED,
                       "the redactor does not know the provider's key; nothing was sent");
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    (void)c;
    (void)err;
    if (!e->request.open || m->id != e->request.id)
        return 0; /* it ended while the cancellation was on its way */
    if (e->request.waiting)
        request_refuse(e, BR_E_CANCELED, "the request was cancelled before it was sent");
    else
        br_transfer_abort(e->transfer, BR_E_CANCELED, "the request was cancelled");
    return 0;
}

static int on_credit(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    (void)c;
    uint32_t n = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'broker' sent a malformed PROV_CREDIT");
    if (e->request.open && m->id == e->request.id)
        e->request.window += n;
    return 0;
}

static const struct br_msg_rule broker_rules[] = {
    {BR_MSG_PROV_REQUEST, BR_PERMIT, 25, BR_MSG_MAX, 0, 1, on_request},
    {BR_MSG_PROV_CREDIT, BR_PERMIT, 4, 4, 0, 0, on_credit},
    {BR_MSG_PROV_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

/* ---- readiness ---- */

/* ROLE_READY, once. Returns the failure that it tells, or that of sending it. */
static int say_ready(struct egress *e, const struct br_err *why, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out out = BR_OUT_INIT;
    br_buf_put_str(&out.buf, br_code_name((int)why->code));
    br_buf_put_str(&out.buf, why->code ? why->text : "");
    e->ready = true;
    int sent = br_chan_send(&e->sup, BR_MSG_ROLE_READY, e->start_id, &out, err);
    if (!why->code)
        return sent;
    if (err)
        *err = *why;
    return -(int)why->code;
}

static int say_unknown(struct egress *e, const char *text, struct br_err *err)
{
    struct br_err why;
    br_err_set(&why, BR_E_REDACTION_FAILED, "%s", text);
    return say_ready(e, &why, err);
}

/* ---- from audit ---- */

static int on_secret_known(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    const struct br_err ok = {.code = BR_OK};
    (void)c;
    (void)m;
    e->key_known = true;
    int r = e->ready ? 0 : say_ready(e, &ok, err);
    if (e->request.waiting)
        request_launch(e);
    return r;
}

static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_SECRET_KNOWN, BR_ONCE, 0, 0, 0, 0, on_secret_known},
};

static int secret_announce(struct egress *e, struct br_err *err)
{
    size_t n;
    const unsigned char *key = br_secret_bytes(&e->key, &n);
    struct br_out out = BR_OUT_INIT;
    /* room for everything at once, so that a growing buffer leaves no copy behind */
    char *room = calloc(1, BR_EGRESS_KEY_MAX + 512);
    if (!room)
        return br_err_set(err, BR_E_NOMEM, "no memory for the provider's key");
    out.buf.data = (uint8_t *)room;
    out.buf.cap = BR_EGRESS_KEY_MAX + 512;
    br_buf_put_str(&out.buf, e->key_env);
    br_out_blob(&out, key, n);
    br_chan_permit(&e->audit, BR_MSG_SECRET_KNOWN);
    int r = br_chan_send(&e->audit, BR_MSG_SECRET, 1, &out, err);
    explicit_bzero(out.buf.data, out.buf.cap);
    br_out_free(&out);
    return r;
}

/* ---- from bridled ---- */

static bool seconds_ok(uint32_t s)
{
    return s >= 1 && s <= BR_EGRESS_SECONDS_MAX;
}

/* An empty base URL means that of the environment, which bridled never reads, or OpenAI's own. */
static void base_url_default(char *base_url, size_t cap)
{
    char *value = getenv("OPENAI_BASE_URL");
    if (base_url[0])
        return;
    /* a value that does not fit becomes one that is refused */
    if (value && value[0])
        snprintf(base_url, cap, "%s", value);
    else
        snprintf(base_url, cap, OPENAI_URL);
    if (value)
        explicit_bzero(value, strlen(value));
    (void)unsetenv("OPENAI_BASE_URL");
}

static int egress_configure(struct egress *e, const char *base_url, struct br_err *err)
{
    int r = br_egress_target_set(&e->target, base_url, e->unix_socket, err);
    if (r < 0)
        return r;
    const struct br_egress_timeouts *t = &e->limits;
    if (!seconds_ok(t->connect_s) || !seconds_ok(t->first_byte_s) || !seconds_ok(t->idle_s) ||
        !seconds_ok(t->total_s))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a timeout of the provider is not 1 to %u seconds; nothing was sent",
                          BR_EGRESS_SECONDS_MAX);
    if (!e->key_env[0]) {
        e->key_known = true; /* there is nothing to know */
        return 0;
    }
    if (e->audit.fd < 0)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider key needs the audit channel; nothing was sent");
    r = br_egress_key_take(e->key_env, &e->key, err);
    return r < 0 ? r : secret_announce(e, err);
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    (void)c;
    char base_url[BR_EGRESS_URL_MAX + 2];
    br_rd_str(&m->rd, base_url, sizeof(base_url));
    br_rd_str(&m->rd, e->key_env, sizeof(e->key_env));
    br_rd_str(&m->rd, e->unix_socket, sizeof(e->unix_socket));
    e->limits.connect_s = br_rd_u32(&m->rd);
    e->limits.first_byte_s = br_rd_u32(&m->rd);
    e->limits.idle_s = br_rd_u32(&m->rd);
    e->limits.total_s = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed EGRESS_START");
    int broker = br_msg_take_fd(m), audit = br_msg_take_fd(m);
    if (fcntl(broker, F_SETFL, O_NONBLOCK) < 0)
        return br_err_errno(err, BR_E_IO, "the broker's channel could not be prepared");
    br_chan_init(&e->broker, broker, "broker", broker_rules, BR_ARRAY_LEN(broker_rules), e);
    if (audit >= 0)
        br_chan_init(&e->audit, audit, "audit", audit_rules, BR_ARRAY_LEN(audit_rules), e);
    struct br_err why = {.code = BR_OK};
    base_url_default(base_url, sizeof(base_url));
    int r = egress_configure(e, base_url, &why);
    explicit_bzero(base_url, sizeof(base_url));
    e->start_id = m->id;
    if (r < 0 || e->key_known)
        return say_ready(e, &why, err);
    e->ready_by = br_now_us() + EGRESS_SECRET_WAIT_US;
    return 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_EGRESS_START, BR_PERMIT | BR_ONCE, 28, BR_MSG_MAX, 1, 2, on_start},
};

/* ---- loop ---- */

/* Serve one channel; 0, or a negative code that ends the program. */
static int serve(struct egress *e, struct br_chan *c, struct br_err *err)
{
    int r = br_chan_dispatch(c, err);
    if (r == -BR_E_TIMEOUT)
        return 0;
    if (r != -BR_E_PEER_GONE)
        return r;
    if (c == &e->sup) {
        e->quit = true;
        return 0;
    }
    br_chan_close(c);
    if (c == &e->broker) {
        br_transfer_abort(e->transfer, BR_E_PEER_GONE, "the broker has gone");
        e->request.waiting = false;
        return 0;
    }
    /* without audit nothing more is sent, and what runs is cut */
    e->key_known = false;
    if (e->ready_by && !e->ready)
        return say_unknown(e,
                           "'bridle-audit' has gone before it knew the provider's key; nothing "
                           "was sent",
                           err);
    br_transfer_abort(e->transfer, BR_E_PROGRAM_DIED,
                      "'bridle-audit' has gone; the request to the provider was cut");
    if (e->request.waiting)
        request_refuse(e, BR_E_REDACTION_FAILED,
                       "'bridle-audit' has gone before it knew the provider's key; nothing was "
                       "sent");
    return 0;
}

static int loop_wait_ms(const struct egress *e)
{
    int ms = br_transfer_wait_ms(e->transfer);
    return ms < 0 || (e->request.waiting && ms > 1000) ? 1000 : ms;
}

/* There is room for what libcurl delivers at once. */
static bool window_open(const struct egress *e)
{
    return e->request.window >= CURL_MAX_WRITE_SIZE;
}

static int loop_poll(struct egress *e, struct br_err *err)
{
    struct br_chan *chans[] = {&e->sup, &e->broker, &e->audit};
    struct curl_waitfd fds[3];
    struct br_chan *who[3];
    unsigned n = 0;
    for (unsigned i = 0; i < 3; i++) {
        if (chans[i]->fd < 0)
            continue;
        fds[n] = (struct curl_waitfd){.fd = chans[i]->fd, .events = CURL_WAIT_POLLIN};
        if (chans[i] == &e->broker &&
            (e->npending || (br_transfer_paused(e->transfer) && window_open(e))))
            fds[n].events |= CURL_WAIT_POLLOUT;
        who[n++] = chans[i];
    }
    int running;
    CURLMcode mc = curl_multi_poll(e->multi, fds, n, loop_wait_ms(e), NULL);
    if (mc != CURLM_OK)
        return br_err_set(err, BR_E_IO, "waiting failed: %s", curl_multi_strerror(mc));
    for (unsigned i = 0; i < n; i++) {
        int r = (fds[i].revents & ~CURL_WAIT_POLLOUT) ? serve(e, who[i], err) : 0;
        if (r < 0)
            return r;
    }
    if (e->broker.fd >= 0 && outbox_flush(e) == 0 && window_open(e))
        br_transfer_resume(e->transfer);
    mc = curl_multi_perform(e->multi, &running);
    return mc == CURLM_OK
               ? 0
               : br_err_set(err, BR_E_IO, "a transfer failed: %s", curl_multi_strerror(mc));
}

static int egress_loop(struct egress *e, struct br_err *err)
{
    while (!e->quit) {
        int r = loop_poll(e, err);
        if (r < 0)
            return r;
        struct br_err end;
        uint64_t sent, got;
        br_transfer_check(e->transfer);
        if (br_transfer_ended(e->transfer, &end, &sent, &got) && e->broker.fd >= 0)
            request_end(e, &end, sent, got);
        if (e->ready_by && !e->ready && br_now_us() > e->ready_by)
            return say_unknown(e,
                               "'bridle-audit' did not say that it knows the provider's key; "
                               "nothing was sent",
                               err);
        if (e->request.waiting && br_now_us() - e->request.arrived_us > EGRESS_SECRET_WAIT_US)
            request_refuse(e, BR_E_REDACTION_FAILED,
                           "'bridle-audit' did not say that it knows the provider's key; nothing "
                           "was sent");
    }
    return 0;
}

/* What libcurl, OpenSSL and the resolver need beyond the base list: sockets, files to read, the
 * resolver's thread. No exec, no ptrace, no mount, no new file. */
static const int egress_calls[] = {
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    SYS_openat,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_getdents64,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_fstatfs,
    SYS_statfs,
    SYS_ioctl,
    SYS_pipe2,
    SYS_eventfd2,
    SYS_clone,
    SYS_clone3,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_set_tid_address,
    SYS_sigaltstack,
    SYS_uname,
    SYS_sysinfo,
    SYS_sched_getaffinity,
    SYS_prlimit64,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getppid,
    SYS_prctl,
    SYS_mlock,
    SYS_munlock,
    SYS_clock_getres,
    SYS_membarrier,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_dup,
    SYS_dup3,
    SYS_getcwd,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
#ifdef SYS_open
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_pipe,
    SYS_epoll_wait,
    SYS_getrlimit,
    SYS_getpgrp,
#endif
};

static int egress_run(struct egress *e, struct br_err *err)
{
    const struct br_role role = {
        .name = "bridle-egress",
        .uid = BR_UID_EGRESS,
        .max_nofile = 64,
        .max_as = 2048ull * 1024 * 1024,
        .syscalls = egress_calls,
        .nsyscalls = BR_ARRAY_LEN(egress_calls),
    };
    int r = br_role_enter(&role, err);
    if (r < 0)
        return r;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(e->multi = curl_multi_init()))
        return br_err_set(err, BR_E_FAILED, "'libcurl' could not be initialised");
    const struct br_egress_sink sink = {.head = sink_head, .data = sink_data, .ctx = e};
    e->transfer = br_transfer_new(e->multi, &sink);
    if (!e->transfer)
        return br_err_set(err, BR_E_NOMEM, "no memory to start");
    return egress_loop(e, err);
}

int main(void)
{
    static struct egress e = {.broker.fd = -1, .audit.fd = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-egress", BR_LOG_WARN);
    (void)signal(SIGPIPE, SIG_IGN);
    br_close_from(4, NULL, 0);
    br_chan_init(&e.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &e);
    int r = egress_run(&e, &err);
    if (r < 0)
        br_log(BR_LOG_ERROR, "%s", err.text);
    if (e.transfer)
        br_transfer_free(&e.transfer);
    if (e.multi)
        curl_multi_cleanup(e.multi);
    for (unsigned i = 0; i < e.npending; i++)
        br_out_free(&e.outbox[i].out);
    br_buf_free(&e.request.body);
    br_chan_close(&e.broker);
    br_chan_close(&e.audit);
    br_chan_close(&e.sup);
    br_secret_wipe(&e.key);
    curl_global_cleanup();
    return r < 0 ? 1 : 0;
}
