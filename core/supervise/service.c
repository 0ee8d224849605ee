/*
 * The life of a service: it is ready when its gateway is; it goes on when that dies, with the same
 * listeners; told to end, it lets those that run come to their end, for as long as the operator
 * says. Called by standing.c, whose loop it lives in; see service.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "supervise/service.h"

#define BACKOFF_MIN_US 100000u
#define BACKOFF_MAX_US (10u * 1000000u)
/* A gateway that lived so long has not died of how it was started. */
#define GOOD_US (30u * 1000000u)
/* Those that were canceled are waited for so long, and those that were told to end at once. */
#define CLEANUP_US (40u * 1000000u)
#define HURRY_US (10u * 1000000u)
#define TICK_US 100000u

/* ---- words ---- */

static int usage(struct br_err *err, const char *what, const char *value)
{
    return br_err_set(err, BR_E_USAGE, "%s '%.200s'; the service was not started", what, value);
}

static int read_one(struct service_args *a, const char *name, const char *value, struct br_err *err)
{
    const struct {
        const char *name;
        char *to;
        size_t cap;
    } rows[] = {{"--config", a->config, sizeof(a->config)},
                {"--root", a->root, sizeof(a->root)},
                {"--scenario", a->scenario, sizeof(a->scenario)},
                {"--policy", a->policy, sizeof(a->policy)},
                {"--model", a->model, sizeof(a->model)}};
    if (strcmp(name, "--listen") == 0) {
        if (a->nlisten >= BR_LISTENERS_MAX)
            return usage(err, "there are too many places to listen at, from", value);
        int r = br_listener_parse(value, &a->listen[a->nlisten], err);
        a->nlisten += r == 0;
        return r;
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        if (strcmp(name, rows[i].name) != 0)
            continue;
        if (strlen(value) >= rows[i].cap)
            return usage(err, "this is too long for", name);
        snprintf(rows[i].to, rows[i].cap, "%s", value);
        return 0;
    }
    return usage(err, "there is no option", name);
}

int service_args_read(struct service_args *a, int argc, char **argv, struct br_err *err)
{
    memset(a, 0, sizeof(*a));
    for (int i = 0; i < argc; i += 2) {
        if (strcmp(argv[i], "--beside") == 0) {
            a->beside = true;
            i--;
            continue;
        }
        if (i + 1 >= argc)
            return usage(err, "a value is missing behind", argv[i]);
        int r = read_one(a, argv[i], argv[i + 1], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- ticks ---- */

static void start_sweeper(struct service *sv);

static int on_tick(void *ctx, struct br_err *err)
{
    struct service *sv = ctx;
    uint64_t now = br_now_us();
    (void)err;
    sv->tick_timer = 0;
    runs_tick(sv);
    if (sv->sweep_wanted && sv->sweeper.pid == 0 && sv->listening) {
        if (orphans_reap(sv))
            service_tick(sv, TICK_US);
        else
            start_sweeper(sv);
    }
    if (!sv->draining)
        return 0;
    if (sv->drain_until_us && now >= sv->drain_until_us) {
        sv->drain_until_us = 0;
        runs_cancel(sv, false, "the service stopped");
    }
    service_check_end(sv);
    service_tick(sv, TICK_US);
    return 0;
}

/* The earlier one counts. */
void service_tick(struct service *sv, uint64_t us)
{
    uint64_t due = br_now_us() + us;
    if (sv->tick_timer > 0 && sv->tick_due_us <= due)
        return;
    br_loop_timer_cancel(sv->loop, &sv->tick_timer);
    sv->tick_timer = br_loop_timer(sv->loop, us, on_tick, sv);
    sv->tick_due_us = due;
}

static int on_watchdog(void *ctx, struct br_err *err)
{
    struct service *sv = ctx;
    (void)err;
    notify_send(&sv->notify, "WATCHDOG=1");
    sv->watchdog_timer = br_loop_timer(sv->loop, sv->notify.watchdog_us / 2, on_watchdog, sv);
    return 0;
}

/* ---- what died ---- */

static void on_swept(struct kid *k, int status)
{
    struct service *sv = k->sv;
    (void)status;
    sv->sweep_wanted = false;
    for (struct run *r = sv->runs, *next; r; r = next) {
        next = r->next;
        if (r->state != RUN_SWEEPING)
            continue;
        if (!r->swept) { /* it came while the sweep was under way */
            sv->sweep_wanted = true;
            continue;
        }
        gate_ended(r);
        run_free(r);
    }
    if (sv->sweep_wanted)
        service_tick(sv, TICK_US);
    runs_advance(sv);
    service_check_end(sv);
}

static int on_sweep_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    (void)ctx;
    br_rd_str(&m->rd, text, sizeof(text));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_ENDED", c->peer);
    if (code)
        br_log(BR_LOG_ERROR, "what was left of runs that died could not be ended: %s", text);
    return 0;
}

static const struct br_msg_rule sweep_rules[] = {
    {BR_MSG_CTL_ENDED, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_sweep_ended},
};

static void start_sweeper(struct service *sv)
{
    struct br_err err = {.code = BR_OK};
    for (struct run *r = sv->runs; r; r = r->next)
        r->swept = r->state == RUN_SWEEPING;
    int k =
        kid_start_private(sv, &sv->sweeper, sweep_rules, BR_ARRAY_LEN(sweep_rules), on_swept, &err);
    if (k == 0)
        k = br_chan_send(&sv->sweeper.chan, BR_MSG_CTL_SWEEP, 0, NULL, &err);
    if (k < 0) {
        br_log(BR_LOG_ERROR, "%s", err.text);
        service_tick(sv, BACKOFF_MAX_US);
    }
}

static int on_restart(void *ctx, struct br_err *unused)
{
    struct service *sv = ctx;
    struct br_err err = {.code = BR_OK};
    (void)unused;
    sv->restart_timer = 0;
    if (sv->draining || sv->gateway.pid > 0)
        return 0;
    if (gate_start(sv, &err) == 0)
        return 0;
    br_log(BR_LOG_ERROR, "%s", err.text);
    if (sv->gateway.pid > 0)
        kid_kill(&sv->gateway); /* its end is heard of */
    else
        service_gate_died(sv);
    return 0;
}

void service_gate_died(struct service *sv)
{
    bool good = br_now_us() - sv->gate_since_us >= GOOD_US;
    gate_stop(sv);
    reads_drop(sv);
    for (struct run *r = sv->runs; r; r = r->next)
        r->told = true; /* a gateway that comes after it does not know them */
    runs_cancel(sv, false, "the gateway ended");
    if (sv->draining) {
        service_check_end(sv);
        return;
    }
    if (sv->st->leave)
        return;           /* and it is known why */
    if (!sv->announced) { /* it never was ready: so it will not be */
        sv->st->failed =
            br_err_set(&sv->st->why, BR_E_PROGRAM_DIED,
                       "'bridle-gateway' ended before it was ready; the service was not started");
        sv->st->leave = true;
        return;
    }
    sv->backoff_us = good || !sv->backoff_us ? BACKOFF_MIN_US : 2 * sv->backoff_us;
    if (sv->backoff_us > BACKOFF_MAX_US)
        sv->backoff_us = BACKOFF_MAX_US;
    br_loop_timer_cancel(sv->loop, &sv->restart_timer);
    sv->restart_timer = br_loop_timer(sv->loop, sv->backoff_us, on_restart, sv);
}

/* ---- settings ---- */

static int open_sockets(struct service *sv, struct br_service *s, struct br_err *err)
{
    int r = sv->notify.nfds
                ? listeners_adopt(s, sv->notify.nfds, sv->notify.names, 3, sv->sockets, err)
                : listeners_open(s, sv->sockets, err);
    if (r == 0 && sv->notify.nfds) /* what was passed may be anywhere */
        r = listeners_check(s, sv->next->ntokens, err);
    return r;
}

static int first_settings(struct service *sv, struct br_err *err)
{
    struct br_service *s = &sv->next->c.s;
    int r = open_sockets(sv, s, err);
    if (r < 0)
        return r;
    sv->listening = true;
    sv->now = br_steal_ptr(&sv->next);
    sv->sweep_wanted = true; /* of a service that died */
    service_tick(sv, TICK_US);
    return gate_start(sv, err);
}

static bool same_listeners(const struct br_service *a, const struct br_service *b)
{
    bool same = a->nlisteners == b->nlisteners;
    for (uint32_t i = 0; same && i < a->nlisteners; i++)
        same = strcmp(a->listeners[i].address, b->listeners[i].address) == 0 &&
               (a->listeners[i].port == b->listeners[i].port || b->listeners[i].port == 0) &&
               a->listeners[i].tls == b->listeners[i].tls;
    return same;
}

static void later_settings(struct service *sv)
{
    struct br_service *was = &sv->now->c.s, *is = &sv->next->c.s;
    if (is->nlisteners && !same_listeners(was, is))
        br_log(BR_LOG_WARN, "'listen' has changed: that counts when the service is started anew");
    if (strcmp(was->otlp, is->otlp) != 0)
        br_log(BR_LOG_WARN, "'otlp' has changed: that counts when the service is started anew");
    memcpy(is->listeners, was->listeners, sizeof(is->listeners));
    is->nlisteners = was->nlisteners;
    memcpy(is->otlp, was->otlp, sizeof(is->otlp));
    settings_free(&sv->now);
    sv->now = br_steal_ptr(&sv->next);
    gate_reload(sv);
    runs_advance(sv);
}

int service_settle(struct service *sv, bool commit, struct br_err *err)
{
    int r = 0;
    if (commit && !sv->listening)
        r = first_settings(sv, err);
    else if (commit && sv->next)
        later_settings(sv);
    settings_free(&sv->next);
    if (sv->gate_ready)
        notify_send(&sv->notify, "READY=1");
    return r;
}

/* ---- the end ---- */

bool service_is_over(const struct service *sv)
{
    return sv->draining && (sv->hurried || !sv->drain_until_us);
}

void service_check_end(struct service *sv)
{
    uint64_t now = br_now_us();
    if (!sv->draining || sv->st->leave)
        return;
    bool busy = runs_live(sv) > 0;
    /* a gateway takes its leave of its clients before it goes */
    bool polite = sv->gateway.pid > 0 && now < sv->gate_until_us;
    if ((!busy && !polite) || now >= sv->leave_by_us)
        sv->st->leave = true;
}

/* SIGTERM and SIGINT. */
void service_signal(struct service *sv)
{
    uint64_t now = br_now_us(), seconds = sv->now ? sv->now->c.drain_seconds : 0;
    if (!sv->listening || !sv->now) {
        sv->st->leave = true;
        return;
    }
    if (sv->draining) {
        if (!sv->hurried)
            br_log(BR_LOG_WARN, "everything is ended at once");
        sv->hurried = true;
        sv->leave_by_us = now + HURRY_US;
        gate_stop(sv);
        runs_cancel(sv, true, "the service stopped");
        service_check_end(sv);
        return;
    }
    br_log(BR_LOG_INFO, "no new session begins; %u that run have %u seconds", runs_live(sv),
           (unsigned)seconds);
    notify_send(&sv->notify, "STOPPING=1\nSTATUS=%u sessions run, for at most %u seconds",
                runs_live(sv), (unsigned)seconds);
    sv->draining = true;
    sv->drain_until_us = now + seconds * 1000000u + 1;
    sv->leave_by_us = sv->drain_until_us + CLEANUP_US;
    sv->gate_until_us = sv->drain_until_us + HURRY_US;
    gate_drain(sv, (uint32_t)seconds);
    service_tick(sv, TICK_US);
    service_check_end(sv);
}

void service_close(struct service *sv)
{
    gate_stop(sv);
    reads_drop(sv);
    while (sv->runs)
        run_free(sv->runs);
    if (sv->config.pid > 0)
        kid_discard(&sv->config);
    if (sv->tls_test.pid > 0)
        kid_discard(&sv->tls_test);
    if (sv->sweeper.pid > 0)
        kid_release(&sv->sweeper);
    if (sv->listening)
        listeners_close(sv->sockets);
    settings_free(&sv->now);
    settings_free(&sv->next);
    br_close(&sv->epoll);
    br_close(&sv->bindir);
}

int service_open(struct service *sv, struct standing *st, struct br_err *err)
{
    char dir[BR_PATH_MAX];
    sv->st = st;
    sv->loop = st->loop;
    sv->epoll = sv->bindir = -1;
    struct kid *all[] = {&sv->config, &sv->tls_test, &sv->gateway,
                         &sv->tls,    &sv->egress,   &sv->sweeper};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        all[i]->chan.fd = all[i]->pidfd = -1;
    for (unsigned i = 0; i < BR_LISTENERS_MAX; i++)
        sv->sockets[i].fd = -1;
    snprintf(dir, sizeof(dir), "%s", st->program);
    *strrchr(dir, '/') = 0;
    sv->bindir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (sv->bindir < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be opened", dir);
    if (sv->notify.watchdog_us)
        sv->watchdog_timer = br_loop_timer(sv->loop, sv->notify.watchdog_us / 2, on_watchdog, sv);
    return kids_watch(sv, err);
}
