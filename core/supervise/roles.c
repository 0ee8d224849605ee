/*
 * What each program may say to the supervisor: one permit table per role. Everything else ends the
 * program that said it and fails the run.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervise/sessions.h"

#define PID1_END_MS 10000

static int malformed(struct br_chan *c, const struct br_msg *m, struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed %s", c->peer,
                      br_msg_name(m->type));
}

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct program *p = ctx;
    char name[64], text[BR_ERR_TEXT_MAX];
    br_rd_str(&m->rd, name, sizeof(name));
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0)
        return malformed(c, m, err);
    if (strcmp(name, "OK") != 0) {
        int code = BR_E_FAILED;
        for (int k = 1; k < BR_CODE_COUNT_; k++)
            if (strcmp(br_code_name(k), name) == 0)
                code = k;
        sup_fail(p->sup, code, "%s", text);
    }
    p->ready = p->sup->kick = true;
    return 0;
}

/* ---- audit ---- */

static int on_audit_closed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct program *p = ctx;
    struct supervisor *s = p->sup;
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->audit_text, sizeof(s->audit_text));
    br_rd_str(&m->rd, s->audit_status, sizeof(s->audit_status));
    if (br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_)
        return malformed(c, m, err);
    s->audit_code = -(int)code;
    s->audit_closed = s->kick = true;
    return 0;
}

static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_AUDIT_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
    {BR_MSG_AUDIT_CLOSED, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_audit_closed},
};

/* ---- session ---- */

/* Session asks; the launcher first says whether the plan is possible, and what its sources are. */
static int resolve_plan(struct supervisor *s, const struct br_plan *plan, struct br_err *err)
{
    struct program *l = &s->programs[P_LAUNCH];
    int r = br_plan_check(plan, err);
    if (r < 0)
        return r;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_plan_put(&o.buf, plan);
    br_out_fd(&o, s->workspace_fd, false);
    br_chan_permit(&l->chan, BR_MSG_LAUNCH_RESOLVED);
    br_chan_permit(&l->chan, BR_MSG_LAUNCH_REFUSED);
    return br_chan_send(&l->chan, BR_MSG_LAUNCH_RESOLVE, 0, &o, err);
}

/* The session asked whether it is possible, and that is all that it asked. */
static int tell_resolved(struct supervisor *s, const struct br_plan *plan,
                         const struct br_buf *text, const struct br_buf *facts)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_err why = {.code = BR_OK};
    if (s->req.mode != BR_RUN_ACTIVATE)
        (void)activation_check(s, plan, facts, &why);
    br_out_blob(&o, text->data, text->len);
    br_buf_put_str(&o.buf, why.text);
    s->sandbox = SANDBOX_NONE;
    s->sandbox_over = s->kick = true;
    return br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SUP_RESOLVED, 0, &o, NULL);
}

/* The evidence of an activation that is under way. */
static int keep_facts(struct supervisor *s, const struct br_plan *plan, const struct br_buf *facts,
                      struct br_err *err)
{
    snprintf(s->activated, sizeof(s->activated), "%s", plan->profile);
    br_buf_free(&s->facts);
    br_buf_init(&s->facts, BR_EVENT_MAX);
    return br_buf_put(&s->facts, facts->data, facts->len) < 0
               ? br_err_set(err, BR_E_NOMEM, "no memory for the evidence of an activation")
               : 0;
}

/* The resolved plan goes back to the launcher as it came. */
static int launch_plan(struct supervisor *s, const struct br_plan *plan, struct br_err *err)
{
    int ends[2];
    struct program *l = &s->programs[P_LAUNCH];
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for the sandbox");
    s->init_session_end = ends[0];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_plan_put(&o.buf, plan);
    br_out_fd(&o, s->workspace_fd, false);
    br_out_fd(&o, ends[1], true);
    br_chan_permit(&l->chan, BR_MSG_LAUNCH_STARTED);
    return br_chan_send(&l->chan, BR_MSG_LAUNCH_PLAN, 0, &o, err);
}

/* `host`: the launcher said that this host lacks something. */
static void refuse_launch(struct supervisor *s, int code, const char *text, bool host)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)(code < 0 ? -code : code));
    br_buf_put_str(&o.buf, text);
    br_buf_put_u8(&o.buf, host);
    br_close(&s->init_session_end);
    s->sandbox = SANDBOX_NONE;
    s->sandbox_over = s->kick = true;
    (void)br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SUP_REFUSED, 0, &o, NULL);
}

/* SUP_LAUNCH, SUP_RESOLVE */
static int on_sup_plan(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    struct br_plan plan;
    br_plan_get(&m->rd, &plan);
    int r = br_rd_done(&m->rd) < 0 || plan.nsources || plan.keep[0] || s->sandbox != SANDBOX_NONE
                ? malformed(c, m, err)
                : 0;
    if (r == 0 && m->type == BR_MSG_SUP_LAUNCH)
        r = activation_text(s, &plan, err);
    if (r == 0) {
        struct br_err why = {.code = BR_OK};
        s->sandbox = SANDBOX_ASKED;
        s->only_resolve = m->type == BR_MSG_SUP_RESOLVE;
        s->sandbox_over = false;
        int k = program_running(s, P_LAUNCH)
                    ? resolve_plan(s, &plan, &why)
                    : br_err_set(&why, BR_E_PROGRAM_DIED, "the launcher has gone");
        if (k < 0)
            refuse_launch(s, k, why.text, false);
    }
    br_plan_free(&plan);
    return r;
}

static int on_sup_stop(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    (void)c, (void)m, (void)err;
    if (s->sandbox == SANDBOX_UP)
        (void)br_chan_send(&s->programs[P_LAUNCH].chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL);
    return 0;
}

static int on_session_done(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    uint32_t code = br_rd_u32(&m->rd), exit_code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->session_text, sizeof(s->session_text));
    if (br_rd_done(&m->rd) < 0 || code >= BR_CODE_COUNT_ || exit_code > 255)
        return malformed(c, m, err);
    s->session_code = (int)code;
    s->session_exit = (int)exit_code;
    s->session_done = s->kick = true;
    s->programs[P_SESSION].expected = true;
    return 0;
}

/* Who accepts on it is the broker, which checks that it is a socket that listens. */
static int on_listener(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (!s->req.adapter[0] || s->sandbox != SANDBOX_UP)
        return malformed(c, m, err);
    br_buf_put_u64(&o.buf, br_rd_u64(&m->rd));
    br_out_fd(&o, br_msg_take_fd(m), true);
    (void)br_chan_send(&s->programs[P_BROKER].chan, BR_MSG_BROKER_LISTEN, 0, &o, NULL);
    return 0;
}

/* Of a self-test: the client is told as it came. */
static int on_tested(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (s->req.mode != BR_RUN_SELFTEST)
        return malformed(c, m, err);
    br_buf_put(&o.buf, m->rd.p, m->rd.len);
    (void)br_chan_send(&s->control, BR_MSG_CTL_TESTED, 0, &o, NULL);
    return 0;
}

/* Of a promotion: it was allowed. */
static int on_sup_promote(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m;
    return promote_go(((struct program *)ctx)->sup, err);
}

static const struct br_msg_rule session_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
    {BR_MSG_SUP_LAUNCH, BR_PERMIT | BR_ONCE, 60, BR_MSG_MAX, 0, 0, on_sup_plan},
    /* looks, and starts nothing */
    {BR_MSG_SUP_RESOLVE, BR_PERMIT, 60, BR_MSG_MAX, 0, 0, on_sup_plan},
    {BR_MSG_SUP_LISTENER, BR_PERMIT | BR_ONCE, 8, 8, 1, 1, on_listener},
    {BR_MSG_SUP_STOP, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_sup_stop},
    {BR_MSG_SUP_TESTED, BR_PERMIT | BR_ONCE, 24, 4096, 0, 0, on_tested},
    {BR_MSG_SUP_PROMOTE, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_sup_promote},
    {BR_MSG_SESSION_DONE, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_session_done},
};

/* ---- launch ---- */

static int on_resolved(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    struct br_plan plan;
    struct br_err why = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_EVENT_MAX);
    BR_CLEANUP_BUF struct br_buf facts = BR_BUF_INIT(BR_EVENT_MAX);
    br_plan_get(&m->rd, &plan);
    int r = br_msg_blob(m, BR_EVENT_MAX, &text, err);
    if (r == 0)
        r = br_msg_blob(m, BR_EVENT_MAX, &facts, err);
    if (r < 0 || br_rd_done(&m->rd) < 0 || plan.nsources != plan.nallowed ||
        s->sandbox != SANDBOX_ASKED) {
        br_plan_free(&plan);
        return malformed(c, m, err);
    }
    br_chan_forbid(c, BR_MSG_LAUNCH_RESOLVED);
    if (s->only_resolve) {
        br_chan_forbid(c, BR_MSG_LAUNCH_REFUSED);
        (void)tell_resolved(s, &plan, &text, &facts);
        br_plan_free(&plan);
        return 0;
    }
    r = s->req.mode == BR_RUN_ACTIVATE ? keep_facts(s, &plan, &facts, &why)
                                       : activation_check(s, &plan, &facts, &why);
    if (r == 0 && s->req.mode != BR_RUN_ACTIVATE)
        r = session_open(s, &plan, &why);
    if (r == 0)
        r = kept_begin(s, &plan, &why);
    if (r == 0)
        r = launch_plan(s, &plan, &why);
    else
        br_chan_forbid(c, BR_MSG_LAUNCH_REFUSED);
    br_plan_free(&plan);
    if (r < 0)
        refuse_launch(s, r, why.text, false);
    return 0;
}

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    char name[BR_NAME_MAX], image[BR_NAME_MAX], network[16];
    BR_CLEANUP_BUF struct br_buf receipt = BR_BUF_INIT(BR_EVENT_MAX);
    br_rd_str(&m->rd, name, sizeof(name));
    uint32_t mounts = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, image, sizeof(image));
    br_rd_str(&m->rd, network, sizeof(network));
    int r = br_msg_blob(m, BR_EVENT_MAX, &receipt, err);
    if (r < 0 || br_rd_done(&m->rd) < 0 || s->sandbox != SANDBOX_ASKED)
        return malformed(c, m, err);
    br_close(&s->sandbox_pidfd);
    s->sandbox_pidfd = br_msg_take_fd(m);
    s->sandbox = SANDBOX_UP;
    br_chan_forbid(c, BR_MSG_LAUNCH_STARTED);
    br_chan_forbid(c, BR_MSG_LAUNCH_REFUSED);
    br_chan_permit(c, BR_MSG_LAUNCH_STOPPED);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, name);
    br_buf_put_str(&o.buf, image);
    br_buf_put_str(&o.buf, network);
    br_buf_put_u32(&o.buf, mounts);
    br_out_blob(&o, receipt.data, receipt.len);
    br_out_fd(&o, br_steal_fd(&s->init_session_end), true);
    (void)br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SUP_LAUNCHED, 0, &o, NULL);
    return 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) == 0 && code != 0 && code < BR_CODE_COUNT_ && s->promoting)
        return promote_lease_refused(s, (int)code, text) < 0 ? malformed(c, m, err) : 0;
    if (br_rd_done(&m->rd) < 0 || code == 0 || code >= BR_CODE_COUNT_ ||
        s->sandbox != SANDBOX_ASKED)
        return malformed(c, m, err);
    br_chan_forbid(c, BR_MSG_LAUNCH_STARTED);
    br_chan_forbid(c, BR_MSG_LAUNCH_RESOLVED);
    br_chan_forbid(c, BR_MSG_LAUNCH_REFUSED);
    refuse_launch(s, (int)code, text, code == BR_E_REQUIREMENT_MISSING);
    return 0;
}

/* The copy of a run that is promoted. */
static int on_leased(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    if (br_rd_done(&m->rd) < 0)
        return malformed(c, m, err);
    int fd = br_msg_take_fd(m);
    if (promote_leased(((struct program *)ctx)->sup, fd) == 0)
        return 0;
    br_close(&fd);
    return malformed(c, m, err);
}

static void tell_stopped(struct supervisor *s, uint8_t verified)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, verified);
    br_buf_put_u32(&o.buf, s->sandbox_status);
    br_buf_put_u64(&o.buf, s->sandbox_ms);
    br_buf_put_str(&o.buf, s->sandbox_detail);
    (void)br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SUP_STOPPED, 0, &o, NULL);
}

static int on_stopped(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    uint8_t verified = br_rd_u8(&m->rd);
    s->sandbox_status = br_rd_u32(&m->rd);
    s->sandbox_ms = br_rd_u64(&m->rd);
    br_rd_str(&m->rd, s->sandbox_detail, sizeof(s->sandbox_detail));
    if (br_rd_done(&m->rd) < 0 || s->sandbox != SANDBOX_UP)
        return malformed(c, m, err);
    s->sandbox = verified ? SANDBOX_GONE : SANDBOX_UNVERIFIED;
    s->sandbox_over = s->kick = true;
    br_chan_forbid(c, BR_MSG_LAUNCH_STOPPED);
    br_close(&s->sandbox_pidfd);
    tell_stopped(s, verified);
    return 0;
}

void sandbox_lost(struct supervisor *s)
{
    if (s->sandbox == SANDBOX_ASKED) {
        refuse_launch(s, BR_E_PROGRAM_DIED, "the launcher ended before it had started the sandbox",
                      false);
        return;
    }
    if (s->sandbox != SANDBOX_UP)
        return;
    /* pid 1 takes the whole namespace along */
    (void)syscall(SYS_pidfd_send_signal, s->sandbox_pidfd, SIGKILL, NULL, 0);
    struct pollfd p = {.fd = s->sandbox_pidfd, .events = POLLIN};
    bool gone = poll(&p, 1, PID1_END_MS) == 1;
    br_close(&s->sandbox_pidfd);
    s->sandbox = SANDBOX_UNVERIFIED;
    s->sandbox_over = s->kick = true;
    snprintf(s->sandbox_detail, sizeof(s->sandbox_detail),
             gone ? "the launcher ended before it had verified the cleanup"
                  : "pid 1 of the sandbox did not end");
    tell_stopped(s, 0);
}

static int on_probed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    s->nprobes = br_probes_get(&m->rd, s->probes, BR_PROBES_MAX);
    if (br_rd_done(&m->rd) < 0)
        return malformed(c, m, err);
    s->probed = s->kick = true;
    return 0;
}

static const struct br_msg_rule launch_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
    {BR_MSG_LAUNCH_RESOLVED, 0, 60, BR_MSG_MAX, 0, 2, on_resolved},
    {BR_MSG_LAUNCH_LEASED, BR_ONCE, 0, 0, 1, 1, on_leased},
    {BR_MSG_LAUNCH_STARTED, 0, 16, BR_MSG_MAX, 1, 2, on_started},
    {BR_MSG_LAUNCH_REFUSED, 0, 8, 4096, 0, 0, on_refused},
    {BR_MSG_LAUNCH_STOPPED, 0, 17, 4096, 0, 0, on_stopped},
    {BR_MSG_LAUNCH_PROBED, BR_PERMIT, 4, BR_MSG_MAX, 0, 0, on_probed},
};

/* ---- scripts ---- */

static int on_configured(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    (void)c, (void)err;
    br_buf_init(&s->config_reply, BR_MSG_MAX);
    br_buf_put(&s->config_reply, m->rd.p, m->rd.len);
    s->configured = s->kick = true;
    return 0;
}

static int on_config_failed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    char file[BR_PATH_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->config_err.text, sizeof(s->config_err.text));
    br_rd_str(&m->rd, file, sizeof(file));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || code == 0 || code >= BR_CODE_COUNT_)
        return malformed(c, m, err);
    s->config_err.code = (enum br_code)code;
    s->config_code = -(int)code;
    s->configured = s->kick = true;
    return 0;
}

static int on_adapted(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    br_adapter_get(&m->rd, &s->harness.adapter);
    s->adapted = s->configured = s->kick = true;
    return br_rd_done(&m->rd) < 0 ? malformed(c, m, err) : 0;
}

static int on_declared(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct supervisor *s = ((struct program *)ctx)->sup;
    br_rd_str(&m->rd, s->declared.adapter, sizeof(s->declared.adapter));
    br_rd_str(&m->rd, s->declared.profile, sizeof(s->declared.profile));
    s->configured = s->kick = true;
    return br_rd_done(&m->rd) < 0 ? malformed(c, m, err) : 0;
}

static const struct br_msg_rule script_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
};

static const struct br_msg_rule config_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
    {BR_MSG_SCRIPT_CONFIGURED, BR_PERMIT | BR_ONCE, 8, BR_MSG_MAX, 0, 0, on_configured},
    {BR_MSG_SCRIPT_DECLARED, BR_PERMIT | BR_ONCE, 8, 512, 0, 0, on_declared},
    {BR_MSG_SCRIPT_ADAPTED, BR_PERMIT | BR_ONCE, 60, BR_MSG_MAX, 0, 0, on_adapted},
    {BR_MSG_SCRIPT_FAILED, BR_PERMIT | BR_ONCE, 16, 8192, 0, 0, on_config_failed},
};

const struct br_msg_rule *role_rules(enum program_id id, unsigned *n)
{
    switch (id) {
    case P_AUDIT:
        *n = BR_ARRAY_LEN(audit_rules);
        return audit_rules;
    case P_SESSION:
        *n = BR_ARRAY_LEN(session_rules);
        return session_rules;
    case P_LAUNCH:
        *n = BR_ARRAY_LEN(launch_rules);
        return launch_rules;
    case P_PROMOTE:
        *n = PROMOTE_RULES;
        return promote_rules;
    case P_CONFIG:
        *n = BR_ARRAY_LEN(config_rules);
        return config_rules;
    default:
        *n = BR_ARRAY_LEN(script_rules);
        return script_rules;
    }
}
