/*
 * The launcher's channel: plans in, sandboxes and their ends out. One sandbox at a time. As soon as
 * it is idle it prepares the next pid 1, which waits for its plan. Called by main() only. bridled
 * is trusted to decide what to launch, not to decide that a check may be left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch.h"
#include "sandbox/pool.h"
#include "sandbox/sandbox.h"
#include "sandbox/weak.h"
#include "wire/types.h"
#include "wire/wire.h"

/* After a sandbox has started or ended: how long to wait before preparing for the next one. */
#define IDLE_PREPARE_US 2000u
/* Fewer prepared ones are few. */
#define POOL_LOW 2u
/* The process that prepares was killed: when to start another one; longer each time while none has
 * prepared anything. */
#define POOL_AGAIN_US 20000u
#define POOL_AGAIN_MAX_US 10000000u

struct launcher {
    struct br_loop *loop;
    struct br_chan chan;
    struct br_host *host;
    struct br_err host_err; /* why there is no host */
    int init_fd;
    struct br_box *box; /* prepared or running */
    unsigned pool;      /* as in struct br_host_config */
    unsigned launches;
    bool running;
    uint64_t plan_id;
    int idle_timer;
    uint64_t again_us;    /* POOL_AGAIN_US or more */
    int state_fd;         /* the state directory, or -1 */
    struct br_kept *kept; /* the lease of an ended run, mounted; or NULL */
};

/* bridle-init, or the one that goes with a weakened sandbox */
#define INIT_NAME (br_weak(INIT) ? "bridle-init-weak" : "bridle-init")

static int find_init(struct br_err *err)
{
    char path[BR_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("bridle-init-weak"));
    if (n <= 0)
        return br_err_errno(err, BR_E_INTERNAL, "'/proc/self/exe' is not readable");
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (!slash)
        return br_err_set(err, BR_E_INTERNAL, "bridle-launch does not know where it lies");
    memcpy(slash + 1, INIT_NAME, strlen(INIT_NAME) + 1);
    int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%.512s' is missing, so no sandbox can start; build or install it "
                            "beside bridle-launch",
                            path);
    return fd;
}

/* ---- the sandbox ---- */

static int send_stopped(struct launcher *l, const struct br_box_end *end, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, end->verified);
    br_buf_put_u32(&o.buf, (uint32_t)end->wait_status);
    br_buf_put_u64(&o.buf, end->duration_us / 1000);
    br_buf_put_str(&o.buf, end->detail);
    return br_chan_send(&l->chan, BR_MSG_LAUNCH_STOPPED, l->plan_id, &o, err);
}

static int prepare_next(void *ctx, struct br_err *err);

/* What is done if nothing else comes before; it replaces what was to be done so. */
static void later(struct launcher *l, uint64_t us, int (*what)(void *ctx, struct br_err *err))
{
    br_loop_timer_cancel(l->loop, &l->idle_timer);
    l->idle_timer = br_loop_timer(l->loop, us, what, l);
}

static int pool_ready(void *ctx, int fd, short revents, struct br_err *err)
{
    struct launcher *l = ctx;
    (void)revents, (void)err;
    if (br_pool_receive(l->host) < 0) {
        br_loop_unwatch(l->loop, fd);
        br_pool_stop(l->host);
        later(l, l->again_us, prepare_next);
        l->again_us = l->again_us < POOL_AGAIN_MAX_US / 2 ? l->again_us * 2 : POOL_AGAIN_MAX_US;
    } else if (br_pool_ready(l->host) > 0) {
        l->again_us = POOL_AGAIN_US;
    }
    return 0;
}

/* A failure is found again, and reported, when a plan arrives. */
static void fill_pool(struct launcher *l, unsigned want)
{
    struct br_err ignored = {.code = BR_OK};
    if (br_pool_stale(l->host)) {
        br_loop_unwatch(l->loop, br_pool_fd(l->host));
        br_pool_stop(l->host);
    }
    if (br_pool_fill(l->host, want, &ignored) > 0 &&
        br_loop_watch(l->loop, br_pool_fd(l->host), POLLIN, pool_ready, l) < 0)
        br_pool_stop(l->host);
}

static int prepare_next(void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    struct br_err ignored = {.code = BR_OK};
    (void)err;
    l->idle_timer = 0;
    if (!l->host)
        return 0;
    br_host_tidy(l->host, true);
    if (l->pool > 1 && l->launches)
        fill_pool(l, l->pool);
    else if (!l->box && l->pool)
        (void)br_box_prepare(l->host, &l->box, &ignored);
    else
        br_host_idle(l->host);
    return 0;
}

static int idle(void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    (void)err;
    l->idle_timer = 0;
    br_host_tidy(l->host, true);
    br_host_idle(l->host);
    return 0;
}

static void after_start(struct launcher *l)
{
    l->launches++;
    later(l, IDLE_PREPARE_US, idle);
}

/*
 * If few are left, one more is made while this one is removed, and the removal waits for it: a
 * launch that follows at once then meets neither. On an idle machine it is quieter to make them
 * later.
 */
static void finish(struct launcher *l, struct br_box_end *end)
{
    bool low = l->pool > 1 && br_pool_fd(l->host) >= 0 && !br_pool_stale(l->host) &&
               br_pool_ready(l->host) < POOL_LOW;
    if (low)
        fill_pool(l, POOL_LOW);
    br_box_finish(&l->box, end);
    if (low)
        br_pool_settle(l->host);
    br_host_tidy(l->host, false);
}

static int box_ended(void *ctx, int fd, short revents, struct br_err *err)
{
    struct launcher *l = ctx;
    struct br_box_end end;
    (void)revents;
    br_loop_unwatch(l->loop, fd);
    finish(l, &end);
    l->running = false;
    if (!end.verified)
        br_log(BR_LOG_ERROR, "the sandbox was not removed completely: %s", end.detail);
    int r = send_stopped(l, &end, err);
    later(l, IDLE_PREPARE_US, prepare_next);
    return r;
}

static int send_refused(struct launcher *l, const struct br_err *why, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)why->code);
    br_buf_put_str(&o.buf, why->text);
    return br_chan_send(&l->chan, BR_MSG_LAUNCH_REFUSED, l->plan_id, &o, err);
}

static int send_started(struct launcher *l, const struct br_box_info *info, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, info->name);
    br_buf_put_u32(&o.buf, info->mounts);
    br_buf_put_str(&o.buf, info->image);
    br_buf_put_str(&o.buf, "none");
    br_out_blob(&o, info->receipt.data, info->receipt.len);
    br_out_fd(&o, br_box_pidfd(l->box), false);
    return br_chan_send(&l->chan, BR_MSG_LAUNCH_STARTED, l->plan_id, &o, err);
}

static int start(struct launcher *l, const struct br_plan *plan, int ws, int chan,
                 struct br_box_info *info, struct br_err *why)
{
    if (!l->host) {
        *why = l->host_err;
        return -(int)why->code;
    }
    if (plan->backend == BR_BACKEND_DOCKER)
        return br_err_set(why, BR_E_REQUIREMENT_MISSING,
                          "this build starts no sandbox with the backend '%s'; nothing was "
                          "started. Use a profile with backend = \"native\"",
                          br_backend_names[plan->backend]);
    br_loop_timer_cancel(l->loop, &l->idle_timer);
    int r = br_host_use_image(l->host, plan->image, why);
    if (r < 0) {
        br_box_free(&l->box);
        return r;
    }
    br_host_expect(l->host, plan);
    if (l->box && !br_box_fits(l->box, plan))
        br_box_free(&l->box);
    if (!l->box)
        l->box = br_pool_take(l->host, plan);
    r = l->box ? 0 : br_box_prepare(l->host, &l->box, why);
    if (r == 0)
        r = br_box_start(l->box, plan, ws, chan, info, why);
    if (r == 0)
        r = br_loop_watch(l->loop, br_box_pidfd(l->box), POLLIN, box_ended, l);
    if (r < 0)
        br_box_free(&l->box);
    return r;
}

static int on_plan(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    struct br_plan plan;
    struct br_box_info info = {.receipt = BR_BUF_INIT(0)};
    struct br_err why = {.code = BR_OK};
    (void)c;
    br_plan_get(&m->rd, &plan);
    BR_CLEANUP_FD int ws = br_msg_take_fd(m);
    BR_CLEANUP_FD int chan = br_msg_take_fd(m);
    if (br_rd_done(&m->rd) < 0 || l->running) {
        br_plan_free(&plan);
        return br_err_set(err, BR_E_PEER_PROTOCOL,
                          l->running ? "a second plan came while a sandbox runs"
                                     : "a launch plan is malformed");
    }
    l->plan_id = m->id;
    int r = start(l, &plan, ws, chan, &info, &why);
    br_plan_free(&plan);
    if (r < 0) {
        br_buf_free(&info.receipt);
        if (l->host)
            later(l, IDLE_PREPARE_US, idle);
        return send_refused(l, &why, err);
    }
    l->running = true;
    r = send_started(l, &info, err);
    br_buf_free(&info.receipt);
    after_start(l);
    return r;
}

static int on_config(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    (void)c;
    l->state_fd = br_msg_take_fd(m);
    int r = l->host ? br_host_set_state(l->host, l->state_fd, err) : 0;
    unsigned n = l->host && r == 0 ? br_host_sweep_leases(l->host) : 0;
    if (n)
        br_log(BR_LOG_INFO, "removed %u files of leases that dead launchers left", n);
    return r;
}

static int send_resolved(struct launcher *l, const struct br_plan *plan, const struct br_buf *text,
                         const struct br_buf *facts, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_plan_put(&o.buf, plan);
    br_out_blob(&o, text->data, text->len);
    br_out_blob(&o, facts->data, facts->len);
    return br_chan_send(&l->chan, BR_MSG_LAUNCH_RESOLVED, l->plan_id, &o, err);
}

static int on_resolve(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    struct br_plan plan;
    struct br_err why = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_EVENT_MAX);
    BR_CLEANUP_BUF struct br_buf facts = BR_BUF_INIT(BR_EVENT_MAX);
    (void)c;
    br_plan_get(&m->rd, &plan);
    BR_CLEANUP_FD int ws = br_msg_take_fd(m);
    if (br_rd_done(&m->rd) < 0 || plan.nsources) {
        br_plan_free(&plan);
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a launch plan to resolve is malformed");
    }
    l->plan_id = m->id;
    int r = l->host ? br_plan_resolve(l->host, &plan, ws, &text, &facts, &why)
                    : (why = l->host_err, -(int)why.code);
    r = r < 0 ? send_refused(l, &why, err) : send_resolved(l, &plan, &text, &facts, err);
    br_plan_free(&plan);
    return r;
}

static int on_lease(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    struct br_err why = {.code = BR_OK};
    char run_id[BR_ID_MAX];
    int mount = -1;
    br_rd_str(&m->rd, run_id, sizeof(run_id));
    uint32_t uid = br_rd_u32(&m->rd), gid = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || l->kept)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a request for a lease is malformed");
    l->plan_id = m->id;
    int r = l->host ? br_kept_open(&l->kept, l->host, run_id, uid, gid, &mount, &why)
                    : (why = l->host_err, -(int)why.code);
    if (r < 0)
        return send_refused(l, &why, err);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_fd(&o, mount, true);
    return br_chan_send(c, BR_MSG_LAUNCH_LEASED, m->id, &o, err);
}

static int on_kill(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    (void)c, (void)m, (void)err;
    /* it may have ended in the meantime; then LAUNCH_STOPPED is already on its way */
    if (l->running)
        (void)br_box_kill(l->box);
    return 0;
}

static int on_probe(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    static struct br_probe rows[BR_PROBES_MAX];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    uint32_t n = br_probe_run(l->host, l->host ? NULL : &l->host_err, rows, BR_PROBES_MAX);
    br_probes_put(&o.buf, rows, n);
    return br_chan_send(c, BR_MSG_LAUNCH_PROBED, m->id, &o, err);
}

static const struct br_msg_rule rules[] = {
    /* root makes a sandbox: safe for a compromised caller because the plan can only choose limits
     * below the ceiling, a workspace that it could open, and paths in it */
    {BR_MSG_LAUNCH_PLAN, BR_PERMIT, 1, BR_MSG_MAX, 2, 2, on_plan},
    /* only this process's own view of where images and leases are; bridled opened it */
    {BR_MSG_LAUNCH_CONFIG, BR_PERMIT | BR_ONCE, 0, 0, 1, 1, on_config},
    /* looks, and changes nothing */
    {BR_MSG_LAUNCH_RESOLVE, BR_PERMIT, 1, BR_MSG_MAX, 1, 1, on_resolve},
    /* root mounts a file system that a sandbox wrote: safe for a compromised caller because it is
     * one of the lease root, by a name without '/', read-only, without set-id, devices and
     * programs, and detached */
    {BR_MSG_LAUNCH_LEASE, BR_PERMIT | BR_ONCE, 13, 256, 0, 0, on_lease},
    /* can only end what the caller started */
    {BR_MSG_LAUNCH_KILL, BR_PERMIT, 0, 0, 0, 0, on_kill},
    /* changes nothing */
    {BR_MSG_LAUNCH_PROBE, BR_PERMIT, 0, 0, 0, 0, on_probe},
};

/* Set up, and what dead launchers left was swept. A host that cannot make sandboxes is ready too:
 * it says why to a plan, and can be probed. */
static int send_ready(struct launcher *l, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, br_code_name(BR_OK));
    br_buf_put_str(&o.buf, l->host ? "" : l->host_err.text);
    return br_chan_send(&l->chan, BR_MSG_ROLE_READY, 0, &o, err);
}

static int supervisor_gone(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct launcher *l = ctx;
    (void)c;
    if (code != -BR_E_PEER_GONE)
        br_log(BR_LOG_ERROR, "%s", err ? err->text : br_code_name(code));
    br_loop_stop(l->loop);
    return code == -BR_E_PEER_GONE ? 0 : code;
}

int br_launch_serve(int fd, const struct br_host_config *base)
{
    struct launcher l = {
        .init_fd = -1, .state_fd = -1, .pool = base->pool, .again_us = POOL_AGAIN_US};
    struct br_err err = {.code = BR_OK};
    br_chan_init(&l.chan, fd, "supervise", rules, BR_ARRAY_LEN(rules), &l);
    l.loop = br_loop_new();
    int r = l.loop ? br_loop_watch_chan(l.loop, &l.chan, supervisor_gone, &l) : -BR_E_NOMEM;
    if (r < 0)
        return 1;
    l.init_fd = find_init(&l.host_err);
    if (l.init_fd >= 0) {
        struct br_host_config cfg = *base;
        cfg.init_fd = l.init_fd;
        (void)br_host_open(&l.host, &cfg, &l.host_err);
    }
    r = send_ready(&l, &err);
    if (r == 0)
        r = prepare_next(&l, NULL);
    if (r == 0)
        r = br_loop_run(l.loop, NULL, &err);
    if (r == -BR_E_PEER_GONE)
        r = 0; /* noticed while sending: the same as end of file */
    if (r < 0)
        br_log(BR_LOG_ERROR, "%s", err.code ? err.text : br_code_name(r));
    br_box_free(&l.box);
    br_kept_close(&l.kept);
    br_host_close(&l.host);
    br_close(&l.init_fd);
    br_close(&l.state_fd);
    br_chan_close(&l.chan);
    br_loop_free(&l.loop);
    return r < 0 ? 1 : 0;
}
