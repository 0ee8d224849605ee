/*
 * bridle-gateway: speaks with clients (gateway_priv.h says what it is made of). Started by bridled
 * with its channel on fd 3, which brings settings, tokens and listening sockets (GATE_*), and ends
 * with it. It opens no file and no socket of its own but one to ask the kernel whose a loopback
 * connection is: after the role is entered, open(2), socket(2) and connect(2) end the program,
 * which is why it needs no empty root directory.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/conn_priv.h"
#include "wire/types.h"

#define MAIN_MODELS_MAX 128u
/* Connections, two channels for each run that may go on, listeners and our own. */
#define MAIN_FILES_BESIDE 4096u
#define MAIN_CONNECTIONS_MAX 65536u /* that bridle.lua can say */
#define MAIN_NOFILE (MAIN_CONNECTIONS_MAX + MAIN_FILES_BESIDE)
/* How long the last connections may take to end when all is over. */
#define MAIN_LEAVE_US (6u * 1000000u)

/* ---- from bridled ---- */

static int malformed(struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridled' sent a malformed %s",
                      br_msg_name(m->type));
}

static void models_free(char **models, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        free(models[i]);
    free(models);
}

/* What START and RELOAD have in common; nothing is changed unless all of it is right. */
static int take_settings(struct gateway *g, struct br_msg *m, bool fds, uint8_t *which,
                         struct br_err *err)
{
    BR_CLEANUP_FREE struct br_service *s = malloc(sizeof(*s));
    BR_CLEANUP_FREE struct br_token *tokens = calloc(BR_TOKENS_MAX, sizeof(*tokens));
    BR_CLEANUP_FREE char **models = calloc(MAIN_MODELS_MAX, sizeof(*models));
    if (!s || !tokens || !models)
        return br_err_set(err, BR_E_NOMEM, "no memory for the settings of the service");
    br_service_get(&m->rd, s);
    uint32_t ntokens = br_rd_u32(&m->rd);
    for (uint32_t i = 0; ntokens <= BR_TOKENS_MAX && i < ntokens; i++)
        br_token_get(&m->rd, &tokens[i]);
    uint32_t nmodels = br_rd_u32(&m->rd);
    uint32_t got = 0;
    while (nmodels <= MAIN_MODELS_MAX && got < nmodels &&
           (models[got] = br_rd_strdup(&m->rd, BR_NAME_MAX)))
        got++;
    *which = fds ? br_rd_u8(&m->rd) : 0;
    if (br_rd_done(&m->rd) < 0 || ntokens > BR_TOKENS_MAX || nmodels > MAIN_MODELS_MAX) {
        for (uint32_t i = 0; i < got; i++)
            free(models[i]);
        return malformed(m, err);
    }
    if (g->started) { /* the listeners stay as they are */
        s->nlisteners = g->settings.nlisteners;
        memcpy(s->listeners, g->settings.listeners, sizeof(s->listeners));
    }
    g->settings = *s;
    memcpy(g->auth.tokens, tokens, sizeof(g->auth.tokens));
    g->auth.ntokens = ntokens;
    models_free(g->models, g->nmodels);
    g->models = br_steal_ptr(&models);
    g->nmodels = nmodels;
    auth_forget(&g->auth);
    return 0;
}

static int on_listen(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    uint8_t index = br_rd_u8(&m->rd);
    (void)c;
    if (br_rd_done(&m->rd) < 0 || index >= BR_LISTENERS_MAX || g->listen_fds[index] >= 0)
        return malformed(m, err);
    g->listen_fds[index] = br_msg_take_fd(m);
    return 0;
}

static int on_tls_conn(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    char address[64], cert[64];
    uint8_t index = br_rd_u8(&m->rd);
    br_rd_str(&m->rd, address, sizeof(address));
    br_rd_str(&m->rd, cert, sizeof(cert));
    (void)c;
    if (br_rd_done(&m->rd) < 0 || index >= g->settings.nlisteners ||
        !g->settings.listeners[index].tls)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'bridle-tls' sent a malformed TLS_CONN");
    if (!g->leave_us)
        conn_adopt(g, index, br_msg_take_fd(m), address, cert);
    return 0;
}

static const struct br_msg_rule tls_rules[] = {
    {BR_MSG_TLS_CONN, BR_PERMIT, 9, 256, 1, 1, on_tls_conn},
};

/* Without it no new TLS connection comes, and those that there are have ended; bridled sees it
 * too, and decides. */
static int on_tls_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    gw_log(g, BR_LOG_ERROR, "tls.gone", "reason", err ? err->text : br_code_name(code), NULL);
    br_chan_close(c);
    return 0;
}

static int listen_all(struct gateway *g, struct br_err *err)
{
    for (unsigned i = 0; i < BR_LISTENERS_MAX; i++) {
        bool wanted = i < g->settings.nlisteners && !g->settings.listeners[i].tls;
        if (wanted != (g->listen_fds[i] >= 0))
            return br_err_set(err, BR_E_PEER_PROTOCOL,
                              "'bridled' sent a socket for another listener than the settings say");
        int r = wanted ? conn_listen(g, i, br_steal_fd(&g->listen_fds[i]), err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    uint8_t fds;
    int r = take_settings(g, m, true, &fds, err);
    if (r < 0)
        return r;
    if (fds > (BR_GATE_FD_TLS | BR_GATE_FD_EXPORT) || m->nfds != (unsigned)__builtin_popcount(fds))
        return malformed(m, err);
    g->started = true;
    if (fds & BR_GATE_FD_TLS) {
        br_chan_init(&g->tls, br_msg_take_fd(m), "tls", tls_rules, BR_ARRAY_LEN(tls_rules), g);
        if (gw_watch_chan(g, &g->tls, on_tls_end, g) < 0)
            return br_err_set(err, BR_E_IO, "the channel of 'bridle-tls' cannot be watched");
    }
    if (fds & BR_GATE_FD_EXPORT)
        r = otlp_begin(g, br_msg_take_fd(m), err);
    if (r == 0)
        r = listen_all(g, err);
    if (r < 0)
        return r;
    br_chan_forbid(c, BR_MSG_GATE_LISTEN);
    br_chan_permit(c, BR_MSG_GATE_RELOAD);
    br_chan_permit(c, BR_MSG_GATE_DRAIN);
    BR_CLEANUP_OUT struct br_out ready = BR_OUT_INIT;
    br_buf_put_str(&ready.buf, "OK");
    br_buf_put_str(&ready.buf, "");
    char files[24];
    snprintf(files, sizeof(files), "%llu", (unsigned long long)g->max_files);
    gw_log(g, BR_LOG_INFO, "ready", "version", gw_version(), NULL);
    if (g->max_files < g->settings.connections + MAIN_FILES_BESIDE)
        gw_log(g, BR_LOG_WARN, "few.descriptors", "limit", files, "reason",
               "the limit of open files (ulimit -Hn, LimitNOFILE=) is below the limit of "
               "connections; those beyond it wait",
               NULL);
    return gw_to_bridled(g, BR_MSG_ROLE_READY, m->id, &ready, err);
}

static int on_reload(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    uint8_t none;
    int r = take_settings(g, m, false, &none, err);
    (void)c;
    if (r < 0)
        return r;
    gw_log(g, BR_LOG_INFO, "reloaded", NULL);
    conns_recheck(g);
    return 0;
}

/* ---- the end ---- */

static void cancel_one(void *ctx, struct gw_session *s)
{
    (void)ctx;
    (void)session_cancel(s, "the service stopped");
}

static void cancel_created(void *ctx, struct gw_session *s)
{
    (void)ctx;
    if (session_state(s) == GW_CREATED)
        (void)session_cancel(s, "the service stopped");
}

static void on_drain_timer(void *ctx)
{
    struct gateway *g = ctx;
    gw_log(g, BR_LOG_WARN, "drain.over", "reason", "what still runs is canceled", NULL);
    sessions_each(g, cancel_one, g);
}

static int on_drain(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    uint32_t seconds = br_rd_u32(&m->rd);
    (void)c;
    if (br_rd_done(&m->rd) < 0)
        return malformed(m, err);
    if (!g->draining)
        gw_log(g, BR_LOG_INFO, "draining", NULL);
    g->draining = true; /* who comes now is told so (503), and /health says it */
    sessions_each(g, cancel_created, g);
    gw_timer_set(g, &g->drain, seconds * 1000000ull, on_drain_timer, g);
    return 0;
}

static void count_one(void *ctx, struct gw_session *s)
{
    enum gw_state state = session_state(s);
    *(unsigned *)ctx += state == GW_CREATED || state == GW_RUNNING;
}

/* Is it over? Nothing runs: who is still there is told, and gets a moment to hear it. */
static bool drained(struct gateway *g)
{
    unsigned live = 0;
    if (!g->draining)
        return false;
    sessions_each(g, count_one, &live);
    if (!g->leave_us && live)
        return false;
    if (!g->leave_us) {
        g->leave_us = br_now_us() + MAIN_LEAVE_US;
        conns_stop_listening(g);
        gw_timer_set(g, &g->drain, MAIN_LEAVE_US, on_drain_timer, g);
        conns_close_all(g, BR_WS_CLOSE_GOING_AWAY, "the service stops");
        conns_settle(g);
    }
    return !g->conns || br_now_us() >= g->leave_us;
}

/* ---- the table ---- */

static int on_checked(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return session_on_checked(ctx, m, err);
}

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return session_on_started(ctx, m, err);
}

static int on_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return session_on_ended(ctx, m, err);
}

static int on_reading(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return replay_on_reading(ctx, m, err);
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_GATE_LISTEN, BR_PERMIT, 1, 1, 1, 1, on_listen},
    {BR_MSG_GATE_START, BR_PERMIT | BR_ONCE, 80, BR_MSG_MAX, 0, 2, on_start},
    {BR_MSG_GATE_RELOAD, 0, 80, BR_MSG_MAX, 0, 0, on_reload},
    {BR_MSG_GATE_DRAIN, 0, 4, 4, 0, 0, on_drain},
    {BR_MSG_GATE_CHECKED, BR_PERMIT, 36, BR_MSG_MAX, 0, 0, on_checked},
    {BR_MSG_GATE_STARTED, BR_PERMIT, 8, 1024, 2, 2, on_started},
    {BR_MSG_GATE_ENDED, BR_PERMIT, 16, BR_MSG_MAX, 0, 0, on_ended},
    {BR_MSG_GATE_READING, BR_PERMIT, 8, BR_MSG_MAX, 0, 1, on_reading},
};

static int on_sup_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct gateway *g = ctx;
    (void)c;
    if (code != -BR_E_PEER_GONE)
        gw_log(g, BR_LOG_ERROR, "bridled.wrong", "reason", err ? err->text : br_code_name(code),
               NULL);
    conns_close_all(g, BR_WS_CLOSE_INTERNAL, "the service has ended");
    conns_settle(g);
    g->over = true;
    return code == -BR_E_PEER_GONE ? 0 : code;
}

/* ---- start ---- */

static const int gateway_calls[] = {
    SYS_epoll_ctl,   SYS_epoll_pwait, SYS_accept4, SYS_getsockopt, SYS_setsockopt, SYS_getsockname,
    SYS_getpeername, SYS_shutdown,    SYS_sendto,  SYS_recvfrom,   SYS_dup,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
};

static int prepare(struct gateway *g, struct br_err *err)
{
    struct ucred bridled = {.uid = 0};
    socklen_t n = sizeof(bridled);
    size_t seed = 0;
    struct rlimit files = {.rlim_max = 0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    g->max_files = files.rlim_max;
    int r = poll_init(&g->poll, err);
    if (r < 0)
        return r;
    if (getsockopt(3, SOL_SOCKET, SO_PEERCRED, &bridled, &n) < 0)
        return br_err_errno(err, BR_E_IO, "nothing is known of who started 'bridle-gateway'");
    g->auth.bridled = bridled.uid;
    g->auth.diag = br_diag_open(); /* without it no TCP peer is known by its uid */
    g->started_us = br_now_us();
    g->held_max = CONN_HELD_MAX;
    peers_init(&g->peers);
    br_service_default(&g->settings);
    char at[32];
    br_time_iso(at, br_now_wall_us()); /* the library reads its time zone once, for no use */
    br_random(&seed, sizeof(seed));
    json_object_seed(seed | 1); /* otherwise jansson opens /dev/urandom, behind the filter */
    br_chan_init(&g->sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), g);
    if (letters_init(g) < 0 || gw_watch_chan(g, &g->sup, on_sup_end, g) < 0)
        return br_err_errno(err, BR_E_IO, "the channel of 'bridled' cannot be watched");
    return 0;
}

static int gateway_run(struct gateway *g, struct br_err *err)
{
    const struct br_role role = {
        .name = "bridle-gateway",
        .uid = BR_UID_GATEWAY,
        .max_nofile = MAIN_NOFILE,
        .max_as = 4096ull * 1024 * 1024,
        .no_fork = true,
        .syscalls = gateway_calls,
        .nsyscalls = BR_ARRAY_LEN(gateway_calls),
    };
    int r = prepare(g, err);
    if (r == 0)
        r = br_role_enter(&role, err);
    while (r == 0 && !g->over && !drained(g))
        r = poll_turn(g, -1, err);
    return r;
}

/* --quiet: only warnings and errors are logged. */
int main(int argc, char **argv)
{
    static struct gateway g = {
        .tls.fd = -1, .auth.diag = -1, .sup_out = -1, .log_fd = STDERR_FILENO};
    struct br_err err = {.code = BR_OK};
    br_log_init("bridle-gateway", BR_LOG_WARN);
    g.log_max = argc > 1 && strcmp(argv[1], "--quiet") == 0 ? BR_LOG_WARN : BR_LOG_INFO;
    /* it ends with bridled, which a terminal's ^C and a service manager ask, too */
    const int ignored[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < BR_ARRAY_LEN(ignored); i++)
        (void)signal(ignored[i], SIG_IGN);
    br_close_from(4, NULL, 0);
    for (unsigned i = 0; i < BR_LISTENERS_MAX; i++)
        g.listen_fds[i] = -1;
    int r = gateway_run(&g, &err);
    if (r < 0)
        br_log(BR_LOG_ERROR, "%s", err.code ? err.text : br_code_name(r));
    return r < 0 ? 1 : 0; /* what it holds ends with it */
}
