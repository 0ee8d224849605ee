/*
 * bridle-gateway with this process in the place of bridled: it gets a listener and settings, and
 * its questions are answered at once. Started by the rows of the service; it is the real program in
 * its own role.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/gate.h"
#include "wire/service.h"

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_gate *g = ctx;
    char code[BR_NAME_MAX], text[BR_ERR_TEXT_MAX];
    (void)c;
    br_rd_str(&m->rd, code, sizeof(code));
    br_rd_str(&m->rd, text, sizeof(text));
    g->ready = true;
    return strcmp(code, br_code_name(BR_OK)) == 0
               ? 0
               : br_err_set(err, BR_E_FAILED, "'bridle-gateway' did not start: %s", text);
}

static int on_check(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_gate *g = ctx;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    snprintf(g->session, sizeof(g->session), "run_%026u", ++g->sessions);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, g->session);
    br_buf_put_str(&o.buf, "/tmp");
    br_buf_put_str(&o.buf, "bench-model");
    br_buf_put_u64(&o.buf, 0);
    br_buf_put_u64(&o.buf, 0);
    g->checked = true;
    return br_chan_send(c, BR_MSG_GATE_CHECKED, m->id, &o, err);
}

static int on_run(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct bench_gate *g = ctx;
    (void)c;
    (void)err;
    g->run = true;
    g->run_id = m->id;
    return 0;
}

static int on_other(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_GATE_CHECK, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_check},
    {BR_MSG_GATE_RUN, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_run},
    {BR_MSG_GATE_CANCEL, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_other},
    {BR_MSG_GATE_FORGET, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_other},
};

static int serve_until(struct bench_gate *g, const bool *done, struct br_err *err)
{
    while (!*done) {
        struct pollfd p = {.fd = g->chan.fd, .events = POLLIN};
        if (poll(&p, 1, 10000) != 1)
            return br_err_set(err, BR_E_TIMEOUT, "'bridle-gateway' does not answer");
        int r = br_chan_dispatch(&g->chan, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int bench_gate_open(struct bench_gate *g, struct br_err *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    *g = (struct bench_gate){.chan = {.fd = -1}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return br_err_errno(err, BR_E_IO, "no listener for 'bridle-gateway'");
    g->port = ntohs(a.sin_port);
    int end, r = bench_role_start("bridle-gateway", true, &g->pid, &end, err);
    br_chan_init(&g->chan, end, "gateway", rules, BR_ARRAY_LEN(rules), g);
    BR_CLEANUP_FREE struct br_service *s = calloc(1, sizeof(*s));
    br_require(s != NULL);
    br_service_default(s);
    s->nlisteners = 1;
    s->listeners[0] = (struct br_listener){
        .kind = BR_LISTENER_TCP, .loopback = 1, .port = g->port, .address = "127.0.0.1"};
    snprintf(s->root, sizeof(s->root), "/tmp");
    s->requests_per_second = 0;
    BR_CLEANUP_OUT struct br_out l = BR_OUT_INIT, o = BR_OUT_INIT;
    br_buf_put_u8(&l.buf, 0);
    br_out_fd(&l, fd, true);
    br_service_put(&o.buf, s);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_u32(&o.buf, 1);
    br_buf_put_str(&o.buf, "bench-model");
    br_buf_put_u8(&o.buf, 0);
    if (r == 0)
        r = br_chan_send(&g->chan, BR_MSG_GATE_LISTEN, 0, &l, err);
    if (r == 0)
        r = br_chan_send(&g->chan, BR_MSG_GATE_START, 1, &o, err);
    return r == 0 ? serve_until(g, &g->ready, err) : r;
}

static int say(struct bench_ws *w, const char *text, struct br_err *err)
{
    bench_ws_put(w, text, strlen(text));
    return bench_ws_flush(w, err);
}

int bench_gate_session(struct bench_gate *g, struct bench_ws *w, struct bench_recorder *rec,
                       int *session, struct br_err *err)
{
    char answer[4096], prompt[512];
    int ends[2];
    g->checked = g->run = false;
    int r = bench_ws_open(w, g->port, "/acp", err);
    if (r == 0)
        r = say(w,
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"
                "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"bench\",\"capabilities\":{"
                "\"streaming\":true,\"permissioning\":true}}}",
                err);
    if (r == 0)
        r = bench_ws_wait(w, "\"result\"", answer, sizeof(answer), err);
    if (r == 0)
        r = say(w,
                "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/new\",\"params\":{"
                "\"workspace\":\"/tmp\"}}",
                err);
    if (r == 0)
        r = serve_until(g, &g->checked, err);
    if (r == 0)
        r = bench_ws_wait(w, "\"sessionId\"", answer, sizeof(answer), err);
    snprintf(prompt, sizeof(prompt),
             "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"session/prompt\",\"params\":{"
             "\"sessionId\":\"%s\",\"content\":\"measure\"}}",
             g->session);
    if (r == 0)
        r = say(w, prompt, err);
    if (r == 0)
        r = serve_until(g, &g->run, err);
    if (r < 0)
        return r;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "a channel could not be made");
    br_buf_put_str(&o.buf, g->session);
    br_buf_put_str(&o.buf, "bench-model");
    br_out_fd(&o, ends[1], true);
    br_out_fd(&o, br_steal_fd(&rec->client), true);
    *session = ends[0];
    return br_chan_send(&g->chan, BR_MSG_GATE_STARTED, g->run_id, &o, err);
}

int bench_gate_end(struct bench_gate *g, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, g->session);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    br_buf_put_u32(&o.buf, 0);
    return br_chan_send(&g->chan, BR_MSG_GATE_ENDED, 0, &o, err);
}

void bench_gate_close(struct bench_gate *g)
{
    struct rusage used;
    br_chan_close(&g->chan);
    if (g->pid > 0 && wait4(g->pid, NULL, 0, &used) == g->pid)
        g->cpu_us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
                    (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    g->pid = 0;
}
