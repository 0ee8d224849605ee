/*
 * bridle-egress: the only program with the provider's credential and the only one that connects
 * outward. Started by bridled with its supervision channel on fd 3 and, at most, one variable in
 * its environment. It parses the heads of answers and no body. The broker, which feeds it requests,
 * is not trusted with anything but bodies and paths; where they go and with which key was fixed by
 * EGRESS_START. It is ready only when audit knows the key: no event of the run is made before that,
 * and no request is sent.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "egress/outbox.h"
#include "egress/transfer.h"
#include "wire/types.h"
#include "wire/wire.h"

/* How long a start, and the requests that came before its end, wait for audit's SECRET_KNOWN. */
#define EGRESS_SECRET_WAIT_US 10000000u
/* Messages of the broker that are served before answers have their turn. */
#define EGRESS_MESSAGES_MAX 32u
/* The certificates of an operator. */
#define EGRESS_CA_MAX (1024u * 1024)

/* Where an OpenAI key without an address belongs. */
#define OPENAI_URL "https://api.openai.com/v1"

/* Tags of br_net_wait(); below are transfers. */
enum { TAG_SUP, TAG_BROKER, TAG_AUDIT, TAG_KEY };
#define TAG(which) ((1ull << 50) | (which))

struct egress {
    struct br_chan sup, broker, audit;
    struct br_egress_target target;
    struct br_egress_timeouts limits;
    char unix_socket[256], proxy[BR_EGRESS_URL_MAX + 2];
    char key_name[BR_NAME_MAX];
    uint8_t key_from, auth;
    int key_fd;
    struct br_egress_key_pipe key_pipe;
    struct br_secret key;
    struct br_buf ca;
    bool key_known;
    bool ready;        /* ROLE_READY was sent */
    uint64_t start_id; /* of EGRESS_START */
    uint64_t ready_by; /* SECRET_KNOWN must have come; 0: it is not waited for */
    struct br_net *net;
    struct br_transfers *transfers;
    struct br_outbox outbox;
    bool quit;
};

/* ---- to the broker, without ever blocking ---- */

static void after_send(struct egress *e, int r)
{
    if (r == -BR_E_TIMEOUT)
        (void)br_net_watch(e->net, e->broker.fd, TAG(TAG_BROKER), true);
}

static void sink_head(void *ctx, uint64_t id, uint32_t status, const struct br_headers *h)
{
    struct egress *e = ctx;
    struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, status);
    br_headers_put(&out.buf, h);
    after_send(e, br_outbox_send(&e->outbox, BR_MSG_PROV_HEAD, id, &out));
}

static void sink_data(void *ctx, uint64_t id, uint8_t *p, size_t n)
{
    struct egress *e = ctx;
    after_send(e, br_outbox_data(&e->outbox, id, p, n));
}

static void sink_end(void *ctx, uint64_t id, const struct br_err *end, uint64_t sent, uint64_t got)
{
    struct egress *e = ctx;
    struct br_out out = BR_OUT_INIT;
    br_buf_put_u32(&out.buf, end->code);
    br_buf_put_str(&out.buf, end->code ? end->text : "");
    br_buf_put_u64(&out.buf, sent);
    br_buf_put_u64(&out.buf, got);
    after_send(e, br_outbox_send(&e->outbox, BR_MSG_PROV_END, id, &out));
}

static bool sink_blocked(void *ctx)
{
    const struct egress *e = ctx;
    return e->outbox.first != NULL;
}

static void request_refuse(struct egress *e, uint64_t id, enum br_code code, const char *text)
{
    struct br_err end;
    br_err_set(&end, code, "%s", text);
    sink_end(e, id, &end, 0, 0);
}

/* ---- from the broker ---- */

static int on_request(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    static struct br_egress_request q;
    char method[16];
    (void)c;
    br_rd_str(&m->rd, method, sizeof(method));
    br_rd_str(&m->rd, q.path, sizeof(q.path));
    br_rd_str(&m->rd, q.content_type, sizeof(q.content_type));
    br_headers_get(&m->rd, &q.headers);
    q.window = br_rd_u32(&m->rd);
    int r = br_msg_blob(m, BR_BLOB_MAX, &q.body, err);
    struct br_err why;
    q.id = m->id;
    q.post = strcmp(method, "POST") == 0;
    if (r == 0 && (br_rd_done(&m->rd) < 0 || (!q.post && strcmp(method, "GET") != 0)))
        r = br_err_set(err, BR_E_PEER_PROTOCOL, "'broker' sent a malformed request");
    if (r == 0 && !e->key_known && e->audit.fd < 0)
        request_refuse(e, q.id, BR_E_REDACTION_FAILED,
                       "the redactor does not know the provider's key; nothing was sent");
    else if (r == 0 && br_transfers_start(e->transfers, &q, !e->key_known, &why) < 0)
        request_refuse(e, q.id, why.code, why.text);
    br_buf_free(&q.body);
    return r;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    (void)c;
    (void)err;
    br_transfers_abort(e->transfers, m->id, BR_E_CANCELED, "the request was cancelled");
    return 0;
}

static int on_credit(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    (void)c;
    uint32_t n = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'broker' sent a malformed PROV_CREDIT");
    br_transfers_credit(e->transfers, m->id, n);
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
    br_transfers_go(e->transfers);
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
    struct br_secret room = {0};
    static const char zeros[BR_EGRESS_KEY_MAX + 512];
    if (br_secret_set(&room, zeros, sizeof(zeros)) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the provider's key");
    out.buf.data = (uint8_t *)(uintptr_t)br_secret_bytes(&room, &out.buf.cap);
    br_buf_put_str(&out.buf, e->key_name);
    br_out_blob(&out, key, n);
    br_chan_permit(&e->audit, BR_MSG_SECRET_KNOWN);
    int r = br_chan_send(&e->audit, BR_MSG_SECRET, 1, &out, err);
    br_secret_wipe(&room);
    e->ready_by = br_now_us() + EGRESS_SECRET_WAIT_US;
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

static int configure_net(struct egress *e, int ca_fd, struct br_err *err)
{
    if (e->proxy[0] && e->target.plaintext)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider that is spoken to in plaintext has no proxy; nothing was "
                          "sent. Use https, or no 'proxy'");
    int r = e->proxy[0] ? br_egress_proxy_check(e->proxy, err) : 0;
    br_buf_init(&e->ca, EGRESS_CA_MAX);
    if (r == 0 && ca_fd >= 0)
        r = br_read_all(ca_fd, &e->ca, "ca_file", err);
    if (r < 0)
        return r;
    const struct br_net_config net = {
        .target = &e->target,
        .unix_socket = e->unix_socket,
        .proxy = e->proxy,
        .ca = ca_fd >= 0 ? &e->ca : NULL,
    };
    return br_net_configure(e->net, &net, err);
}

/* What came through the descriptor so far. */
static int key_read(struct egress *e, struct br_err *err)
{
    int r = br_egress_key_read(e->key_fd, &e->key_pipe, e->key_name, &e->key, err);
    if (r > 0)
        return br_net_watch(e->net, e->key_fd, TAG(TAG_KEY), false) < 0
                   ? br_err_set(err, BR_E_IO, "the key '%s' could not be waited for", e->key_name)
                   : 0;
    br_net_unwatch(e->net, e->key_fd);
    br_close(&e->key_fd);
    return r < 0 ? r : secret_announce(e, err);
}

static int configure_key(struct egress *e, struct br_err *err)
{
    if (e->key_from == BR_KEY_NONE) {
        e->key_known = true; /* there is nothing to know */
        return 0;
    }
    if (e->audit.fd < 0)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "a provider key needs the audit channel; nothing was sent");
    if (e->key_from != BR_KEY_ENV) {
        if (e->key_fd < 0 || fcntl(e->key_fd, F_SETFL, O_NONBLOCK) < 0)
            return br_err_set(err, BR_E_INVALID_CONFIG,
                              "the key '%s' did not arrive; nothing was sent", e->key_name);
        return key_read(e, err);
    }
    int r = br_egress_key_take(e->key_name, &e->key, err);
    return r < 0 ? r : secret_announce(e, err);
}

static int egress_configure(struct egress *e, const char *base_url, int ca_fd, struct br_err *err)
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
    r = configure_net(e, ca_fd, err);
    if (r < 0)
        return r;
    const struct br_transfers_config c = {
        .net = e->net,
        .target = &e->target,
        .key = &e->key,
        .auth = e->auth,
        .limits = e->limits,
        .sink = {sink_head, sink_data, sink_end, sink_blocked, e},
    };
    br_transfers_configure(e->transfers, &c);
    return configure_key(e, err);
}

static int take_channels(struct egress *e, struct br_msg *m, uint8_t fds, int *ca_fd,
                         struct br_err *err)
{
    int broker = br_msg_take_fd(m);
    int audit = fds & BR_EGRESS_FD_AUDIT ? br_msg_take_fd(m) : -1;
    e->key_fd = fds & BR_EGRESS_FD_KEY ? br_msg_take_fd(m) : -1;
    *ca_fd = fds & BR_EGRESS_FD_CA ? br_msg_take_fd(m) : -1;
    br_chan_init(&e->broker, broker, "broker", broker_rules, BR_ARRAY_LEN(broker_rules), e);
    if (audit >= 0)
        br_chan_init(&e->audit, audit, "audit", audit_rules, BR_ARRAY_LEN(audit_rules), e);
    br_outbox_init(&e->outbox, &e->broker);
    if (fcntl(broker, F_SETFL, O_NONBLOCK) < 0 ||
        br_net_watch(e->net, broker, TAG(TAG_BROKER), false) < 0 ||
        (audit >= 0 && br_net_watch(e->net, audit, TAG(TAG_AUDIT), false) < 0))
        return br_err_errno(err, BR_E_IO, "the broker's channel could not be prepared");
    return 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct egress *e = ctx;
    (void)c;
    char base_url[BR_EGRESS_URL_MAX + 2];
    br_rd_str(&m->rd, base_url, sizeof(base_url));
    br_rd_str(&m->rd, e->key_name, sizeof(e->key_name));
    e->key_from = br_rd_u8(&m->rd);
    e->auth = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, e->unix_socket, sizeof(e->unix_socket));
    br_rd_str(&m->rd, e->proxy, sizeof(e->proxy));
    e->limits.connect_s = br_rd_u32(&m->rd);
    e->limits.first_byte_s = br_rd_u32(&m->rd);
    e->limits.idle_s = br_rd_u32(&m->rd);
    e->limits.total_s = br_rd_u32(&m->rd);
    uint8_t fds = br_rd_u8(&m->rd);
    unsigned nfds = 1u + (unsigned)__builtin_popcount(fds);
    if (br_rd_done(&m->rd) < 0 || fds > BR_EGRESS_FDS_ALL || nfds != m->nfds ||
        e->key_from > BR_KEY_COMMAND || e->auth < BR_AUTH_BEARER || e->auth > BR_AUTH_X_API_KEY)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed EGRESS_START");
    BR_CLEANUP_FD int ca_fd = -1;
    int r = take_channels(e, m, fds, &ca_fd, err);
    if (r < 0)
        return r;
    struct br_err why = {.code = BR_OK};
    base_url_default(base_url, sizeof(base_url));
    r = egress_configure(e, base_url, ca_fd, &why);
    explicit_bzero(base_url, sizeof(base_url));
    e->start_id = m->id;
    return r < 0 || e->key_known ? say_ready(e, &why, err) : 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_EGRESS_START, BR_PERMIT | BR_ONCE, 35, BR_MSG_MAX, 1, 4, on_start},
};

/* ---- loop ---- */

static void forget(struct egress *e, struct br_chan *c)
{
    br_net_unwatch(e->net, c->fd);
    br_chan_close(c);
}

static int audit_gone(struct egress *e, struct br_err *err)
{
    /* without audit nothing more is sent, and what runs is cut */
    e->key_known = false;
    if (!e->ready)
        return say_unknown(e,
                           "'bridle-audit' has gone before it knew the provider's key; nothing "
                           "was sent",
                           err);
    br_transfers_abort_all(e->transfers, BR_E_PROGRAM_DIED,
                           "'bridle-audit' has gone; the request to the provider was cut");
    return 0;
}

/* Serve one channel; 0, or a negative code that ends the program. */
static int serve(struct egress *e, struct br_chan *c, struct br_err *err)
{
    int r = 0;
    unsigned max = c == &e->broker ? EGRESS_MESSAGES_MAX : 1; /* the others would block */
    for (unsigned i = 0; r == 0 && i < max && c->fd >= 0; i++)
        r = br_chan_dispatch(c, err);
    if (r == -BR_E_TIMEOUT || r == 0)
        return 0;
    if (r != -BR_E_PEER_GONE)
        return r;
    if (c == &e->sup) {
        e->quit = true;
        return 0;
    }
    forget(e, c);
    if (c == &e->audit)
        return audit_gone(e, err);
    br_outbox_free(&e->outbox);
    br_transfers_abort_all(e->transfers, BR_E_PEER_GONE, "the broker has gone");
    return 0;
}

static int serve_broker(struct egress *e, struct br_err *err)
{
    if (e->outbox.first && br_outbox_flush(&e->outbox) != -BR_E_TIMEOUT) {
        (void)br_net_watch(e->net, e->broker.fd, TAG(TAG_BROKER), false);
        br_transfers_unblocked(e->transfers);
    }
    return serve(e, &e->broker, err);
}

static int serve_key(struct egress *e, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    return key_read(e, &why) < 0 ? say_ready(e, &why, err) : 0;
}

static int handle(struct egress *e, const struct br_net_event *ev, struct br_err *err)
{
    switch (ev->tag) {
    case TAG(TAG_SUP):
        return serve(e, &e->sup, err);
    case TAG(TAG_BROKER):
        return e->broker.fd >= 0 ? serve_broker(e, err) : 0;
    case TAG(TAG_AUDIT):
        return e->audit.fd >= 0 ? serve(e, &e->audit, err) : 0;
    case TAG(TAG_KEY):
        return e->key_fd >= 0 ? serve_key(e, err) : 0;
    default:
        br_transfers_event(e->transfers, ev);
        return 0;
    }
}

static int egress_loop(struct egress *e, struct br_err *err)
{
    bool ahead = false;
    while (!e->quit) {
        struct br_net_event ev[BR_NET_EVENTS];
        int ms = br_transfers_run(e->transfers);
        if (e->ready_by && !e->ready)
            ms = ms < 0 || ms > 100 ? 100 : ms;
        if (br_transfers_answered(e->transfers)) {
            ahead = true;
            (void)sched_yield(); /* whoever reads the answer goes first */
        }
        int n = br_net_wait(e->net, ev, ahead ? 0 : ms, err);
        if (n == 0 && ahead) { /* there is nothing else to do, so nobody waits for this */
            br_transfers_tidy(e->transfers);
            br_net_spare(e->net);
            ahead = false;
            n = br_net_wait(e->net, ev, ms, err);
        }
        if (n < 0)
            return n;
        for (int i = 0; i < n && !e->quit; i++) {
            int r = handle(e, &ev[i], err);
            if (r < 0)
                return r;
        }
        if (e->ready_by && !e->ready && br_now_us() > e->ready_by)
            return say_unknown(e,
                               "'bridle-audit' did not say that it knows the provider's key; "
                               "nothing was sent",
                               err);
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
        .max_nofile = 2 * BR_EGRESS_TRANSFERS_MAX + 64,
        .max_as = 2048ull * 1024 * 1024,
        .syscalls = egress_calls,
        .nsyscalls = BR_ARRAY_LEN(egress_calls),
    };
    int r = br_role_enter(&role, err);
    if (r == 0)
        r = br_net_new(&e->net, err);
    if (r < 0)
        return r;
    e->transfers = br_transfers_new();
    if (!e->transfers || br_net_watch(e->net, e->sup.fd, TAG(TAG_SUP), false) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory to start");
    return egress_loop(e, err);
}

int main(void)
{
    static struct egress e = {.broker.fd = -1, .audit.fd = -1, .key_fd = -1};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-egress", BR_LOG_WARN);
    (void)signal(SIGPIPE, SIG_IGN);
    br_close_from(4, NULL, 0);
    br_chan_init(&e.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &e);
    int r = egress_run(&e, &err);
    if (r < 0)
        br_log(BR_LOG_ERROR, "%s", err.text);
    br_transfers_free(&e.transfers);
    br_net_free(&e.net);
    br_outbox_free(&e.outbox);
    br_buf_free(&e.ca);
    br_close(&e.key_fd);
    br_chan_close(&e.broker);
    br_chan_close(&e.audit);
    br_chan_close(&e.sup);
    explicit_bzero(&e.key_pipe, sizeof(e.key_pipe));
    br_secret_wipe(&e.key);
    return r < 0 ? 1 : 0;
}
