/*
 * One run from request to verified end. The order matters: the store is open before anything is
 * recorded, the client has its channels before the session may ask, and nothing is called over
 * before the sandbox is gone and the record is closed.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/sessions.h"

#define START_TIMEOUT_US (15u * 1000000u)
#define GRACE_US (15u * 1000000u)
#define SWEEP_US (5u * 1000000u)
#define EXIT_GRACE_US (300u * 1000u)
#define WALL_GRACE_S 20u
#define DOCUMENT_INLINE_MAX 4096u

static int wait_ready(struct supervisor *s, enum program_id id, uint64_t timeout,
                      struct br_err *err)
{
    int r = sup_wait_of(s, &s->programs[id], &s->programs[id].ready, timeout, false);
    if (r == -BR_E_TIMEOUT)
        return br_err_set(err, BR_E_TIMEOUT, "the %s did not start in time", program_name(id));
    if (r == -BR_E_PROGRAM_DIED && !s->fail_code)
        return br_err_set(err, BR_E_PROGRAM_DIED, "the %s ended before it was ready",
                          program_name(id));
    if (r == 0) /* it may have said that it is not */
        r = s->fail_code;
    if (r < 0 && err)
        *err = s->fail_err;
    return r;
}

/* Audit has the directory of the store as a descriptor: its path is added here. */
static int name_store(struct supervisor *s, int r, struct br_err *err)
{
    if (r != -BR_E_STORE_FAILED || s->fail_code != r || !s->programs[P_AUDIT].ready)
        return r;
    (void)br_err_wrap(&s->fail_err, "the state directory '%s' cannot be used", s->state_dir);
    if (err)
        *err = s->fail_err;
    return r;
}

int audit_start(struct supervisor *s, uint8_t mode, int session_fd, int client_fd, int egress_fd,
                struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    char owner[128] = "";
    uint8_t flags = (session_fd >= 0 ? 1 : 0) | (client_fd >= 0 ? 2 : 0) | (egress_fd >= 0 ? 4 : 0);
    br_out_fd(&o, s->store_fd, false);
    const int peers[] = {session_fd, client_fd, egress_fd};
    for (size_t i = 0; i < BR_ARRAY_LEN(peers); i++)
        if (peers[i] >= 0)
            br_out_fd(&o, peers[i], true);
    int r = program_start(s, P_AUDIT, err);
    if (r == 0)
        r = program_owner(&s->programs[P_AUDIT], owner, err);
    if (r < 0)
        return r;
    s->audit_closed = false;
    br_buf_put_u8(&o.buf, mode);
    br_buf_put_u8(&o.buf, flags);
    br_buf_put_str(&o.buf, mode == 0 ? s->run_id : "");
    br_buf_put_u64(&o.buf, s->started_us);
    br_buf_put_str(&o.buf, s->req.workspace);
    br_buf_put_str(&o.buf, s->provider.model);
    BR_CLEANUP_BUF struct br_buf goal = BR_BUF_INIT(BR_GOAL_MAX);
    size_t n = s->req.goal.len > BR_PATH_MAX / 2 ? BR_PATH_MAX / 2 : s->req.goal.len;
    br_buf_put(&goal, s->req.goal.data, br_utf8_floor(s->req.goal.data, n));
    br_buf_put_str(&o.buf, goal.len ? br_buf_cstr(&goal) : "");
    br_buf_put_str(&o.buf, owner);
    br_buf_put_str(&o.buf, mode == 0 ? s->harness.token : "");
    br_show_put(&o.buf, &s->show);
    r = br_chan_send(&s->programs[P_AUDIT].chan, BR_MSG_AUDIT_START, 0, &o, err);
    return r < 0 ? r : name_store(s, wait_ready(s, P_AUDIT, START_TIMEOUT_US, err), err);
}

/* Close the records that dead owners left. Failure is told, but does not stop a new run: the store
 * itself is opened and checked again right after. */
static void recover(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    s->programs[P_AUDIT].expected = true;
    int r = audit_start(s, 2, -1, -1, -1, &err);
    s->programs[P_AUDIT].expected = true;
    if (r == 0 &&
        sup_wait_of(s, &s->programs[P_AUDIT], &s->audit_closed, START_TIMEOUT_US, true) < 0)
        r = -BR_E_STORE_FAILED;
    if (r < 0 && !s->fail_code)
        sup_fail(s, err.code ? (int)err.code : r, "%s",
                 err.code ? err.text : "the store could not be checked");
    program_stop(s, P_AUDIT, EXIT_GRACE_US);
}

static int start_script(struct supervisor *s, enum program_id id, uint8_t purpose, int fd,
                        struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, purpose);
    br_out_fd(&o, fd, true);
    int r = program_start(s, id, err);
    return r < 0 ? r : br_chan_send(&s->programs[id].chan, BR_MSG_SCRIPT_START, 0, &o, err);
}

/* The two ends of every channel between peers of a run. */
struct links {
    int client[2], audit_client[2], audit_session[2], policy[2], adapter[2], broker[2], secret[2];
};

static int links_open(struct links *l, struct br_err *err)
{
    int *pairs[] = {l->client,  l->audit_client, l->audit_session, l->policy,
                    l->adapter, l->broker,       l->secret};
    for (size_t i = 0; i < BR_ARRAY_LEN(pairs); i++)
        pairs[i][0] = pairs[i][1] = -1;
    for (size_t i = 0; i < BR_ARRAY_LEN(pairs); i++)
        if (br_chan_pair(pairs[i]) < 0)
            return br_err_errno(err, BR_E_IO, "no channels for a run");
    return 0;
}

static void links_close(struct links *l)
{
    int *all = (int *)l;
    for (size_t i = 0; i < sizeof(*l) / sizeof(int); i++)
        br_close(&all[i]);
}

/* A run that leaves a record. */
static bool records(const struct supervisor *s)
{
    return s->req.mode == BR_RUN_AGENT || s->req.mode == BR_RUN_EXEC ||
           s->req.mode == BR_RUN_PROMOTE;
}

/* Neither workspace, state, image nor launcher. */
static bool only_compiles(const struct supervisor *s)
{
    return s->req.mode == BR_RUN_VALIDATE || s->req.mode == BR_RUN_POLICY ||
           s->req.mode == BR_RUN_SELFTEST;
}

static int tell_started(struct supervisor *s, struct links *l, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, s->run_id);
    br_buf_put_str(&o.buf, s->provider.model);
    br_buf_put_u8(&o.buf, s->provider.scripted);
    br_out_fd(&o, br_steal_fd(&l->client[0]), true);
    if (records(s))
        br_out_fd(&o, br_steal_fd(&l->audit_client[0]), true);
    return br_chan_send(&s->control, BR_MSG_CTL_STARTED, 0, &o, err);
}

/* Only a small document travels inside of the message: profile, paths and the command need the
 * room. */
static void put_blob(struct br_out *o, const struct br_buf *b)
{
    size_t max = o->buf.len + DOCUMENT_INLINE_MAX;
    o->buf.max = max < BR_MSG_MAX ? max : BR_MSG_MAX;
    br_out_blob(o, b->data, b->len);
    o->buf.max = BR_MSG_MAX;
}

static int start_session(struct supervisor *s, struct links *l, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    const struct request *q = &s->req;
    char *defaults[BR_ALLOWED_PATHS_MAX];
    uint32_t ndefaults = 0;
    if (q->mode == BR_RUN_AGENT && q->manifest.len == 0)
        ndefaults = workspace_defaults(s, defaults);
    br_buf_put_str(&o.buf, s->run_id);
    br_buf_put_u8(&o.buf, (uint8_t)q->mode);
    br_buf_put_u8(&o.buf, q->manifest_in_workspace);
    br_buf_put_str(&o.buf, q->workspace);
    br_buf_put_str(&o.buf, q->manifest_path);
    put_blob(&o, &q->manifest);
    br_buf_put_str(&o.buf, q->policy_path);
    put_blob(&o, &q->policy);
    br_policy_pin_put(&o.buf, &q->pin);
    br_buf_put_str(&o.buf, s->provider.model);
    br_buf_put_u8(&o.buf, s->provider.scripted);
    br_buf_put_u8(&o.buf, q->has_terminal);
    br_buf_put_u8(&o.buf, s->provider.streaming);
    br_buf_put_u32(&o.buf, q->wall_seconds);
    br_ceilings_put(&o.buf, &q->ceilings);
    br_profile_choice_put(&o.buf, &q->choice);
    br_buf_put_u32(&o.buf, s->nimages);
    for (uint32_t i = 0; i < s->nimages; i++) {
        br_buf_put_str(&o.buf, s->images[i].profile);
        br_buf_put_str(&o.buf, s->images[i].image);
    }
    put_blob(&o, &q->goal);
    br_allowed_put(&o.buf, (char *const *)q->argv, q->argc);
    br_allowed_put(&o.buf, defaults, ndefaults);
    for (uint32_t i = 0; i < ndefaults; i++)
        free(defaults[i]);
    br_buf_put_u8(&o.buf, q->adapter[0] != 0);
    if (q->adapter[0]) {
        s->harness.adapter.routes &= s->provider.routes; /* what it is told is what the lease has */
        br_harness_put(&o.buf, &s->harness);
        put_blob(&o, &q->schema);
    }
    br_out_fd(&o, br_steal_fd(&l->client[1]), true);
    if (records(s))
        br_out_fd(&o, br_steal_fd(&l->audit_session[1]), true);
    br_out_fd(&o, br_steal_fd(&l->policy[1]), true);
    if (q->mode == BR_RUN_AGENT) {
        if (!q->adapter[0])
            br_out_fd(&o, br_steal_fd(&l->adapter[1]), true);
        br_out_fd(&o, br_steal_fd(&l->broker[1]), true);
    }
    int r = program_start(s, P_SESSION, err);
    if (q->mode == BR_RUN_PLAN || q->mode == BR_RUN_PROMOTE || only_compiles(s))
        br_chan_forbid(&s->programs[P_SESSION].chan, BR_MSG_SUP_LAUNCH);
    if (r == 0)
        r = br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SESSION_START, 0, &o, err);
    return r;
}

int launcher_configure(struct supervisor *s, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (s->state_fd < 0) /* a plan makes none */
        return 0;
    br_out_fd(&o, s->state_fd, false);
    return br_chan_send(&s->programs[P_LAUNCH].chan, BR_MSG_LAUNCH_CONFIG, 0, &o, err);
}

static int start_all(struct supervisor *s, struct links *l, struct br_err *err)
{
    bool agent = s->req.mode == BR_RUN_AGENT, look = only_compiles(s);
    int r = 0;
    bool launches = !look && s->req.mode != BR_RUN_PROMOTE;
    if (launches) /* it prepares itself while the others start */
        r = program_start(s, P_LAUNCH, err);
    if (r == 0 && launches)
        r = launcher_configure(s, err);
    if (r == 0 && s->req.mode == BR_RUN_ACTIVATE)
        r = launcher_probe(s, err);
    if (r == 0 && records(s))
        r = audit_start(s, 0, br_steal_fd(&l->audit_session[0]), br_steal_fd(&l->audit_client[1]),
                        agent ? br_steal_fd(&l->secret[0]) : -1, err);
    if (r == 0)
        r = start_script(s, P_POLICY, BR_SCRIPT_POLICY, br_steal_fd(&l->policy[0]), err);
    if (r == 0 && agent && !s->req.adapter[0]) /* who speaks to the model is in the sandbox */
        r = start_script(s, P_ADAPTER, BR_SCRIPT_ADAPTER, br_steal_fd(&l->adapter[0]), err);
    if (r == 0 && agent)
        r = provider_start(s, br_steal_fd(&l->broker[0]), br_steal_fd(&l->secret[1]), err);
    if (r == 0)
        r = tell_started(s, l, err);
    if (r == 0 && agent)
        r = key_wait(s, err);
    if (r == 0 && agent) /* no event of the run before the redactor knows the provider's key */
        r = wait_ready(s, P_EGRESS, START_TIMEOUT_US, err);
    if (r == 0)
        r = start_session(s, l, err);
    return r;
}

/* Ask the session to end cleanly; it denies what is asked, stops the sandbox, closes the record. */
static void cancel_session(struct supervisor *s, int code, const char *why)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, why);
    (void)br_chan_send(&s->programs[P_SESSION].chan, BR_MSG_SESSION_CANCEL, 0, &o, NULL);
}

static void follow_session(struct supervisor *s)
{
    uint32_t wall = s->req.wall_seconds ? s->req.wall_seconds : br_limits_default.wall_seconds;
    uint64_t deadline = br_now_us() + (uint64_t)(wall + WALL_GRACE_S) * 1000000u;
    bool told = false;
    while (!s->session_done && !s->fail_code) {
        uint64_t now = br_now_us();
        if (s->canceled && !told) {
            cancel_session(s, (int)s->cancel.code, s->cancel.text);
            told = true;
            if (deadline > now + GRACE_US)
                deadline = now + GRACE_US;
        }
        if (now >= deadline) {
            sup_fail(s, told ? BR_E_CANCELED : BR_E_TIMEOUT,
                     told ? "the session did not end in time after it was canceled"
                          : "the run went %u seconds over its time limit",
                     WALL_GRACE_S);
            break;
        }
        s->kick = false;
        int r = br_loop_run_until(s->loop, &s->kick, deadline, NULL);
        if (r < 0 && r != -BR_E_TIMEOUT)
            sup_fail(s, r, "the supervisor's loop failed");
    }
}

/* The sandbox must be gone before anything is called over. */
static void end_sandbox(struct supervisor *s)
{
    if (s->sandbox == SANDBOX_ASKED && program_running(s, P_LAUNCH)) {
        bool never = false; /* a launch under way ends in STARTED or REFUSED */
        for (int i = 0; i < 20 && s->sandbox == SANDBOX_ASKED; i++)
            (void)sup_wait(s, &never, 100000, true);
    }
    if (s->sandbox == SANDBOX_UP && program_running(s, P_LAUNCH)) {
        (void)br_chan_send(&s->programs[P_LAUNCH].chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL);
        (void)sup_wait_of(s, &s->programs[P_LAUNCH], &s->sandbox_over, GRACE_US, true);
    }
    sandbox_lost(s); /* whatever the launcher did not end */
    br_close(&s->init_session_end);
}

/* A launcher that died may have left a cgroup behind, also one that it had only prepared; the next
 * one sweeps it at its start. */
static void sweep(struct supervisor *s)
{
    struct br_err err;
    bool died = s->programs[P_LAUNCH].ended;
    program_stop(s, P_LAUNCH, GRACE_US);
    died |= WIFSIGNALED(s->programs[P_LAUNCH].status); /* it did not end by itself */
    if (!died)
        return;
    if (program_start(s, P_LAUNCH, &err) == 0) {
        s->programs[P_LAUNCH].expected = true;
        (void)sup_wait_of(s, &s->programs[P_LAUNCH], &s->programs[P_LAUNCH].ready, SWEEP_US, true);
        program_stop(s, P_LAUNCH, GRACE_US);
    }
}

/* What programs say of a failure may hold what a provider or a tool said: only audit's redacted
 * copy of it goes to the client. */
static void take_redacted(struct supervisor *s)
{
    snprintf(s->session_text, sizeof(s->session_text), "%s", s->audit_text);
    snprintf(s->fail_err.text, sizeof(s->fail_err.text), "%s", s->audit_text);
}

static void close_record(struct supervisor *s)
{
    static const char *const statuses[] = {"completed", "failed", "canceled", "budget_exceeded"};
    int code = s->fail_code ? -s->fail_code : s->session_code;
    unsigned i = code == 0 ? 0 : code == BR_E_CANCELED ? 2 : code == BR_E_BUDGET_EXCEEDED ? 3 : 1;
    if (!program_running(s, P_AUDIT)) {
        sup_fail(s, BR_E_STORE_FAILED, "the audit ended before it had closed the record");
        program_stop(s, P_AUDIT, 0);
        /* a fresh audit closes what the dead one left open; that the run has failed is no reason
         * not to wait for it */
        if (s->store_fd >= 0)
            (void)audit_start(s, 2, -1, -1, -1, NULL);
        (void)sup_wait_of(s, &s->programs[P_AUDIT], &s->audit_closed, START_TIMEOUT_US, true);
        program_stop(s, P_AUDIT, EXIT_GRACE_US);
        return;
    }
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)code);
    br_buf_put_str(&o.buf, statuses[i]);
    br_buf_put_str(&o.buf, s->fail_code ? s->fail_err.text : s->session_text);
    br_buf_put_u8(&o.buf, s->sandbox == SANDBOX_NONE ? 0 : s->sandbox == SANDBOX_GONE ? 1 : 2);
    int status = (int)s->sandbox_status; /* as a shell gives it */
    br_buf_put_u32(&o.buf, WIFSIGNALED(status) ? 128u + (unsigned)WTERMSIG(status)
                                               : (unsigned)WEXITSTATUS(status));
    br_buf_put_u64(&o.buf, s->sandbox_ms);
    s->programs[P_AUDIT].expected = true;
    if (br_chan_send(&s->programs[P_AUDIT].chan, BR_MSG_AUDIT_CLOSE, 0, &o, NULL) == 0)
        (void)sup_wait_of(s, &s->programs[P_AUDIT], &s->audit_closed, START_TIMEOUT_US, true);
    if (s->audit_closed && s->audit_code == 0) {
        take_redacted(s);
    } else if (s->audit_closed) {
        sup_fail(s, s->audit_code, "%s", s->audit_text);
    } else {
        sup_fail(s, BR_E_STORE_FAILED, "the record could not be closed");
    }
    program_stop(s, P_AUDIT, EXIT_GRACE_US);
}

/* Only a sandbox that worked and is verified gone is evidence. */
static void end_activation(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    activation_workspace_end(s);
    if (s->fail_code || s->session_code)
        return;
    if (s->sandbox != SANDBOX_GONE || !s->activated[0])
        sup_fail(s, BR_E_FAILED,
                 "the sandbox could not be verified gone; the profile was not activated");
    else if (activation_store(s, &err) < 0)
        sup_fail(s, (int)err.code, "%s", err.text);
}

static void finish(struct supervisor *s)
{
    static const enum program_id quiet[] = {P_SESSION, P_ADAPTER, P_POLICY,
                                            P_BROKER,  P_EGRESS,  P_SCRIPTED};
    promote_settle(s);
    for (enum program_id id = 0; id < P_COUNT; id++)
        s->programs[id].expected = true;
    if (!s->session_done && program_running(s, P_SESSION)) {
        /* whatever failed, the session may still write the end of the record itself */
        cancel_session(s, s->fail_code ? -s->fail_code : BR_E_CANCELED,
                       s->fail_code ? s->fail_err.text : "the run ends");
        (void)sup_wait_of(s, &s->programs[P_SESSION], &s->session_done, GRACE_US, true);
    }
    end_sandbox(s);
    key_end(s);
    promote_end(s);
    for (size_t i = 0; i < BR_ARRAY_LEN(quiet); i++)
        program_stop(s, quiet[i], 0);
    sweep(s);
    kept_end(s);
    session_close(s);
    if (records(s))
        close_record(s);
    if (s->req.mode == BR_RUN_ACTIVATE)
        end_activation(s);
}

/* The places that the run needs, before any program is started. */
static int open_places(struct supervisor *s, struct br_err *err)
{
    int r = 0;
    switch (s->req.mode) {
    case BR_RUN_VALIDATE:
    case BR_RUN_POLICY:
    case BR_RUN_SELFTEST:
        return 0;
    case BR_RUN_ACTIVATE:
        r = state_open(s, true, err);
        return r < 0 ? r : activation_workspace(s, err);
    case BR_RUN_PROMOTE:
        return promote_open(s, err);
    case BR_RUN_PLAN:
        r = workspace_open(s, err);
        return r < 0 ? r : state_open(s, false, err);
    default:
        if (s->req.schema.len) /* it observes */
            return workspace_none(s, err);
        r = workspace_open(s, err);
        return r < 0 ? r : store_open(s, err);
    }
}

void run_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    struct links l;
    int r = links_open(&l, &err);
    s->started_us = br_now_wall_us();
    if (s->req.run_id[0])
        memcpy(s->run_id, s->req.run_id, sizeof(s->run_id));
    else
        br_id_make(s->run_id, "run");
    if (r == 0)
        r = policy_take(s, &err);
    if (r == 0)
        r = open_places(s, &err);
    if (r == 0)
        r = harness_declared(s, &err);
    if (r == 0)
        r = provider_choose(s, &err);
    if (r == 0)
        r = harness_choose(s, &err);
    if (r == 0)
        r = provider_speaks(s, &err);
    if (r == 0)
        r = images_resolve(s, &err);
    if (r == 0 && records(s)) {
        if (s->req.mode != BR_RUN_PROMOTE) { /* which is about what is kept */
            kept_sweep(s);
            sessions_sweep(s);
        }
        recover(s);
        if (s->fail_code) {
            r = s->fail_code;
            err = s->fail_err;
        }
    }
    bool over = false;
    if (r == 0 && s->req.mode == BR_RUN_PROMOTE)
        r = promote_compare(s, &over, &err);
    if (r < 0 || over)
        promote_end(s);
    if (over && r == 0) {
        links_close(&l);
        sup_end(s, 0, 0, "");
        return;
    }
    if (r < 0) {
        if (s->req.mode == BR_RUN_ACTIVATE)
            activation_workspace_end(s);
        links_close(&l);
        sup_end(s, -r, br_code_exit(r), err.text);
        return;
    }
    r = start_all(s, &l, &err);
    links_close(&l);
    if (r < 0)
        sup_fail(s, r, "%s", err.text);
    else
        follow_session(s);
    finish(s);
    if (s->fail_code)
        sup_end(s, -s->fail_code, br_code_exit(s->fail_code), s->fail_err.text);
    else
        sup_end(s, s->session_code, s->session_exit, s->session_text);
}

/* Nothing runs here: the launcher sweeps at its start, audit closes what nobody else can. */
void sweep_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    int r = store_open(s, &err);
    if (r == 0)
        r = program_start(s, P_LAUNCH, &err);
    if (r == 0)
        r = launcher_configure(s, &err);
    if (r == 0) {
        s->programs[P_LAUNCH].expected = true;
        (void)sup_wait_of(s, &s->programs[P_LAUNCH], &s->programs[P_LAUNCH].ready, SWEEP_US, true);
        program_stop(s, P_LAUNCH, GRACE_US);
        recover(s);
        r = s->fail_code;
        err = s->fail_err;
    }
    sup_end(s, -r, br_code_exit(r), r < 0 ? err.text : "");
}
