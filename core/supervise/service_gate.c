/*
 * The service and its gateway: the programs that clients reach (bridle-gateway, bridle-tls, and
 * bridle-egress for telemetry), and the table of what the gateway may ask. It parses what anybody
 * sends, so each row says why the request is safe if the gateway has been taken over.
 *
 * When the gateway or bridle-tls dies, all three are ended and started again with the same
 * listeners; the sessions are canceled, as when their clients disconnect.
 */
#include <stdlib.h>
#include <string.h>

#include "supervise/service.h"

#define EXPORT_CONNECT_S 5u
#define EXPORT_TOTAL_S 30u

/* ---- to the gateway ---- */

bool gate_send(struct service *sv, enum br_msg_type type, uint64_t id, const struct br_out *o)
{
    struct br_err err = {.code = BR_OK};
    if (sv->gateway.chan.fd < 0)
        return false;
    int r = br_chan_send(&sv->gateway.chan, type, id, o, &err);
    if (r == 0)
        return true;
    if (r != -BR_E_PEER_GONE) {
        br_log(BR_LOG_ERROR, "'bridle-gateway' was ended: %s could not be sent: %s",
               br_msg_name(type), err.code ? err.text : br_code_name(r));
        kid_kill(&sv->gateway);
    }
    return false;
}

void gate_ended(struct run *r)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (r->told)
        return;
    r->told = true;
    br_buf_put_str(&o.buf, r->id);
    br_buf_put_u32(&o.buf, r->code);
    br_buf_put_str(&o.buf, r->text);
    br_buf_put_u32(&o.buf, r->exit_code);
    (void)gate_send(r->sv, BR_MSG_GATE_ENDED, 0, &o);
}

void gate_checked(struct service *sv, uint64_t id, int code, const struct br_err *why,
                  const struct run *r)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)-code);
    br_buf_put_str(&o.buf, why ? why->text : "");
    br_buf_put_str(&o.buf, r ? r->id : "");
    br_buf_put_str(&o.buf, r ? r->workspace : "");
    br_buf_put_str(&o.buf, r ? r->model : "");
    br_buf_put_u64(&o.buf, r ? r->ceilings.tokens : 0);
    br_buf_put_u64(&o.buf, r ? r->ceilings.tool_calls : 0);
    (void)gate_send(sv, BR_MSG_GATE_CHECKED, id, &o);
}

/* ---- what it may ask ---- */

static int malformed(const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "it sent a malformed %s", br_msg_name(m->type));
}

/* Of "ws://HOST:PORT/acp" the "ws" becomes "http" (and of "wss:" "https:"), and "acp" is left off.
 */
static void announce_board(const struct br_service *s, const struct br_listener *l, const char *url)
{
    size_t n = strlen(url);
    if (l->kind == BR_LISTENER_TCP && s->board && (l->loopback || s->board_remote) && n > 5)
        printf("The board is at http%.*s\n", (int)(n - 5), url + 2);
}

static void announce(const struct service *sv)
{
    char url[BR_NAME_MAX + 32];
    for (uint32_t i = 0; i < sv->now->c.s.nlisteners; i++) {
        listener_url(&sv->now->c.s.listeners[i], url, sizeof(url));
        printf("Listening at %s (bridle connect '%s')\n", url, url);
        announce_board(&sv->now->c.s, &sv->now->c.s.listeners[i], url);
    }
    (void)fflush(stdout);
}

bool has_tls(const struct br_service *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->nlisteners; i++)
        any |= s->listeners[i].tls;
    return any;
}

/* Once those who accept can do so. */
static void now_ready(struct service *sv)
{
    if (!sv->gate_ready || (has_tls(&sv->now->c.s) && !sv->tls_ready))
        return;
    if (!sv->announced)
        announce(sv);
    sv->announced = true;
    notify_send(&sv->notify, "READY=1\nSTATUS=%u listeners, root %.512s", sv->now->c.s.nlisteners,
                sv->now->c.s.root);
}

static int on_gate_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct service *sv = ((struct kid *)ctx)->sv;
    char name[64], text[BR_ERR_TEXT_MAX];
    (void)c;
    br_rd_str(&m->rd, name, sizeof(name));
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    if (strcmp(name, "OK") != 0)
        return br_err_set(err, BR_E_FAILED, "%s", text);
    sv->gate_ready = true;
    sv->gate_since_us = br_now_us();
    now_ready(sv);
    return 0;
}

static int on_check(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct service *sv = ((struct kid *)ctx)->sv;
    char workspace[BR_PATH_MAX + 1], task[BR_NAME_MAX], model[BR_NAME_MAX + 1], who[BR_WHO_MAX];
    (void)c;
    br_rd_str(&m->rd, workspace, sizeof(workspace));
    br_rd_str(&m->rd, task, sizeof(task));
    br_rd_str(&m->rd, model, sizeof(model));
    br_rd_str(&m->rd, who, sizeof(who));
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    check_begin(sv, m->id, workspace, task, model);
    return 0;
}

static struct run *named(struct service *sv, struct br_msg *m)
{
    char id[BR_ID_MAX];
    br_rd_str(&m->rd, id, sizeof(id));
    return m->rd.failed ? NULL : run_find(sv, id);
}

static int on_forget(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = named(((struct kid *)ctx)->sv, m);
    (void)c;
    if (br_rd_done(&m->rd) < 0 || (r && r->state != RUN_CHECKED))
        return malformed(m, err);
    if (r)
        run_free(r);
    return 0;
}

static int on_run(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = named(((struct kid *)ctx)->sv, m);
    uint64_t tokens = br_rd_u64(&m->rd), calls = br_rd_u64(&m->rd);
    uint8_t resolver = br_rd_u8(&m->rd);
    (void)c;
    if (!r || r->state != RUN_CHECKED || resolver > 1 ||
        br_msg_blob(m, BR_GOAL_MAX, &r->content, err) < 0 || br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    r->ceilings.tokens = tokens; /* the session takes the least of what it hears of */
    r->ceilings.tool_calls = calls;
    r->resolver = resolver;
    if (service_is_over(r->sv)) { /* sent before it heard of that */
        r->state = RUN_WAITING;
        run_cancel(r, false, BR_E_CANCELED, "the service stopped");
    } else {
        run_queue(r);
    }
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = named(((struct kid *)ctx)->sv, m);
    uint8_t how = br_rd_u8(&m->rd);
    uint32_t code = br_rd_u32(&m->rd);
    char why[BR_ERR_TEXT_MAX];
    br_rd_str(&m->rd, why, sizeof(why));
    (void)c;
    if (br_rd_done(&m->rd) < 0 || how > 1 || (r && r->state == RUN_CHECKED) || code == 0 ||
        code >= BR_CODE_COUNT_ || !br_utf8_valid(why, strlen(why)))
        return malformed(m, err);
    if (r) /* else it is over, which the gateway will hear */
        run_cancel(r, how == 1, (enum br_code)code, why);
    return 0;
}

static int on_read(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_show w;
    (void)c;
    br_show_get(&m->rd, &w);
    if (br_rd_done(&m->rd) < 0 || (!w.run_id[0] && (w.limit == 0 || w.limit > 1000)))
        return malformed(m, err);
    /* an id is one, and no beginning of one, nor 'last' */
    if ((w.run_id[0] && !br_is_run_id(w.run_id)) || (w.before[0] && !br_is_run_id(w.before))) {
        read_refuse(((struct kid *)ctx)->sv, m->id, BR_E_NOT_FOUND, "there is no such session");
        return 0;
    }
    read_queue(((struct kid *)ctx)->sv, m->id, &w);
    return 0;
}

static const struct br_msg_rule gate_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_gate_ready},
    /* a directory is opened below the operator's root, and a file of it read; nothing is said of
       either but whether it may be a workspace or a task */
    {BR_MSG_GATE_CHECK, BR_PERMIT, 16, 3 * BR_PATH_MAX, 0, 0, on_check},
    {BR_MSG_GATE_FORGET, BR_PERMIT, 5, 4 + BR_ID_MAX, 0, 0, on_forget},
    /* what was checked is what runs, under the operator's policy, profile and budget, and only so
       many at one time; a question that nobody answers is denied */
    {BR_MSG_GATE_RUN, BR_PERMIT, 23, BR_MSG_MAX, 0, 1, on_run},
    {BR_MSG_GATE_CANCEL, BR_PERMIT, 14, 13 + BR_ID_MAX + BR_ERR_TEXT_MAX, 0, 0, on_cancel},
    /* the record is redacted before it is stored: whoever operates the service may read it */
    {BR_MSG_GATE_READ, BR_PERMIT, 24, 512, 0, 0, on_read},
};

/* ---- start ---- */

static void on_gate_end(struct kid *k, int status)
{
    struct service *sv = k->sv;
    sv->gate_ready = false;
    if (!sv->draining || status)
        br_log(BR_LOG_ERROR, "'bridle-gateway' ended (status %d); its sessions are canceled",
               status);
    service_gate_died(sv);
}

static void on_tls_end(struct kid *k, int status)
{
    if (k->sv->draining && status == 0)
        return; /* the gateway has taken its leave */
    br_log(BR_LOG_ERROR, "'%s' ended (status %d); the gateway is started anew", k->name, status);
    kid_kill(&k->sv->gateway);
}

/* Nobody's session ends over figures. */
static void on_export_end(struct kid *k, int status)
{
    if (k->sv->draining && status == 0)
        return;
    br_log(BR_LOG_ERROR,
           "'%s' ended (status %d); nothing is exported until the gateway is started anew", k->name,
           status);
}

static int on_peer_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char name[64], text[BR_ERR_TEXT_MAX];
    struct kid *k = ctx;
    struct service *sv = k->sv;
    br_rd_str(&m->rd, name, sizeof(name));
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    if (strcmp(name, "OK") != 0 && !sv->announced && k == &sv->tls) {
        sv->st->failed =
            br_err_set(&sv->st->why, BR_E_INVALID_CONFIG, "%s; the service was not started", text);
        sv->st->leave = true;
    } else if (strcmp(name, "OK") != 0) {
        br_log(BR_LOG_ERROR, "'%s' says: %s", c->peer, text);
    } else if (k == &sv->tls && !sv->tls_ready) {
        sv->tls_ready = true;
        now_ready(sv);
    }
    return 0;
}

static const struct br_msg_rule peer_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 8, 4096, 0, 0, on_peer_ready},
};

static int send_listener(struct kid *k, enum br_msg_type type, uint32_t i, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, (uint8_t)i);
    br_out_fd(&o, k->sv->sockets[i].fd, false);
    return br_chan_send(&k->chan, type, 0, &o, err);
}

void put_certificates(struct br_out *o, const struct service_settings *s)
{
    br_out_blob(o, s->cert.data, s->cert.len);
    br_out_blob(o, s->key.data, s->key.len);
    br_out_blob(o, s->ca.data, s->ca.len);
    br_buf_put_u8(&o->buf, s->c.require_client_cert);
}

static int start_tls(struct service *sv, int gateway_fd, struct br_err *err)
{
    const struct service_settings *s = sv->now;
    BR_CLEANUP_FD int fd = gateway_fd;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int r = kid_start_role(sv, &sv->tls, "bridle-tls", BR_UID_TLS, peer_rules,
                           BR_ARRAY_LEN(peer_rules), on_tls_end, err);
    for (uint32_t i = 0; r == 0 && i < s->c.s.nlisteners; i++)
        if (s->c.s.listeners[i].tls)
            r = send_listener(&sv->tls, BR_MSG_TLS_LISTEN, i, err);
    put_certificates(&o, s);
    br_buf_put_u32(&o.buf, s->c.s.handshake_seconds);
    br_buf_put_u32(&o.buf, s->c.s.connections);
    br_out_fd(&o, br_steal_fd(&fd), true);
    if (r == 0)
        r = br_chan_send(&sv->tls.chan, BR_MSG_TLS_START, 0, &o, err);
    if (o.buf.data)
        explicit_bzero(o.buf.data, o.buf.len);
    return r;
}

/* It sends to one address, with no key. */
static int start_export(struct service *sv, int gateway_fd, struct br_err *err)
{
    BR_CLEANUP_FD int fd = gateway_fd;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int r = kid_start_role(sv, &sv->egress, "bridle-egress", BR_UID_EGRESS, peer_rules,
                           BR_ARRAY_LEN(peer_rules), on_export_end, err);
    br_buf_put_str(&o.buf, sv->now->c.s.otlp);
    br_buf_put_str(&o.buf, "");
    br_buf_put_u8(&o.buf, BR_KEY_NONE);
    br_buf_put_u8(&o.buf, BR_AUTH_BEARER);
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, "");
    br_buf_put_u32(&o.buf, EXPORT_CONNECT_S);
    for (int i = 0; i < 3; i++)
        br_buf_put_u32(&o.buf, EXPORT_TOTAL_S);
    br_buf_put_u8(&o.buf, 0);
    br_out_fd(&o, br_steal_fd(&fd), true);
    return r < 0 ? r : br_chan_send(&sv->egress.chan, BR_MSG_EGRESS_START, 0, &o, err);
}

static void put_settings(struct br_out *o, const struct service_settings *s)
{
    br_service_put(&o->buf, &s->c.s);
    br_buf_put_u32(&o->buf, s->ntokens);
    for (unsigned i = 0; i < s->ntokens; i++)
        br_token_put(&o->buf, &s->tokens[i]);
    br_buf_put_u32(&o->buf, s->nmodels);
    for (unsigned i = 0; i < s->nmodels; i++)
        br_buf_put_str(&o->buf, s->models[i]);
}

/* The peers of the gateway, and its ends of their channels. */
static int start_peers(struct service *sv, struct br_out *o, uint8_t *fds, struct br_err *err)
{
    int ends[2], r = 0;
    if (has_tls(&sv->now->c.s)) {
        if (br_chan_pair(ends) < 0)
            return br_err_errno(err, BR_E_IO, "no channel for 'bridle-tls'");
        br_out_fd(o, ends[0], true);
        *fds |= BR_GATE_FD_TLS;
        r = start_tls(sv, ends[1], err);
    }
    if (r == 0 && sv->now->c.s.otlp[0]) {
        if (br_chan_pair(ends) < 0)
            return br_err_errno(err, BR_E_IO, "no channel for telemetry");
        br_out_fd(o, ends[0], true);
        *fds |= BR_GATE_FD_EXPORT;
        r = start_export(sv, ends[1], err);
    }
    return r;
}

int gate_start(struct service *sv, struct br_err *err)
{
    const struct br_service *s = &sv->now->c.s;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    uint8_t fds = 0;
    sv->gate_since_us = br_now_us();
    int r = start_peers(sv, &o, &fds, err);
    if (r == 0)
        r = kid_start_role(sv, &sv->gateway, "bridle-gateway", BR_UID_GATEWAY, gate_rules,
                           BR_ARRAY_LEN(gate_rules), on_gate_end, err);
    for (uint32_t i = 0; r == 0 && i < s->nlisteners; i++)
        if (!s->listeners[i].tls)
            r = send_listener(&sv->gateway, BR_MSG_GATE_LISTEN, i, err);
    put_settings(&o, sv->now);
    br_buf_put_u8(&o.buf, fds);
    return r < 0 ? r : br_chan_send(&sv->gateway.chan, BR_MSG_GATE_START, 0, &o, err);
}

void gate_reload(struct service *sv)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT, tls = BR_OUT_INIT;
    put_settings(&o, sv->now);
    (void)gate_send(sv, BR_MSG_GATE_RELOAD, 0, &o);
    if (sv->tls.chan.fd < 0)
        return;
    put_certificates(&tls, sv->now);
    (void)br_chan_send(&sv->tls.chan, BR_MSG_TLS_RELOAD, 0, &tls, NULL);
    if (tls.buf.data)
        explicit_bzero(tls.buf.data, tls.buf.len);
}

void gate_drain(struct service *sv, uint32_t seconds)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, seconds);
    (void)gate_send(sv, BR_MSG_GATE_DRAIN, 0, &o);
}

void gate_stop(struct service *sv)
{
    struct kid *all[] = {&sv->gateway, &sv->tls, &sv->egress};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        if (all[i]->pid > 0)
            kid_discard(all[i]);
    sv->gate_ready = sv->tls_ready = false;
}
