/*
 * The only way from a session to its sandbox. No grant, no effect: the ledger uses the grant up for
 * exactly this call, action and subject before a byte is sent; bridle-init checks the same once
 * more at the other end.
 */
#include <string.h>

#include "session/session_priv.h"

/* What an operation may take beyond its own time limit before it is aborted, then given up. */
#define GRACE_US (5u * 1000000u)
#define FS_TIMEOUT_US (60u * 1000000u)

static void report_progress(struct session *s, const char *call_id)
{
    s->progress_new = false;
    (void)session_record(s, "bridle.exec", "sandbox-runner",
                         json_pack("{s:s, s:I, s:I, s:I}", "progress", call_id, "stdoutBytes",
                                   (json_int_t)s->progress_out, "stderrBytes",
                                   (json_int_t)s->progress_err, "elapsedMs",
                                   (json_int_t)s->progress_ms));
}

/* Wait for the result; on cancel or time-out tell pid 1 to stop and wait a little longer. */
static int await_result(struct session *s, const char *call_id, uint64_t timeout_us,
                        struct br_err *err)
{
    uint64_t deadline = br_now_us() + timeout_us;
    bool aborted = false;
    while (!s->inited.done) {
        uint64_t now = br_now_us();
        bool over = now >= deadline || s->stop_code;
        if (over && aborted)
            return br_err_set(err, BR_E_TIMEOUT, "the sandbox did not answer");
        if (over || s->init.fd < 0) {
            if (s->init.fd < 0 || br_chan_send(&s->init, BR_MSG_INIT_ABORT, 0, NULL, NULL) < 0)
                return br_err_set(err, BR_E_PROGRAM_DIED, "the sandbox has gone");
            aborted = true;
            deadline = now + GRACE_US;
        }
        uint64_t wait = deadline > now ? deadline - now : 1;
        bool moved = false;
        s->init_kick = &moved;
        int r = aborted ? session_wait(s, &s->inited.done, wait, true)
                        : session_wait(s, &moved, wait, false);
        s->init_kick = NULL;
        if (aborted && r < 0)
            return br_err_set(err, BR_E_TIMEOUT, "the sandbox did not answer");
        if (s->harness.is) {
            s->progress_new = false; /* how much a guest wrote is told at its end */
            (void)harness_serve(s);  /* a failure has stopped the run */
        }
        if (s->progress_new && !s->inited.done)
            report_progress(s, call_id);
    }
    return 0;
}

int session_effect(struct session *s, const struct br_grant_ref *g, const char *call_id,
                   const struct effect *e, json_t **output, struct br_err *err)
{
    *output = NULL;
    if (s->stop_code) /* canceled while the decision was asked about or recorded */
        return br_err_set(err, (enum br_code) - s->stop_code, "%s did not happen: %s", e->action,
                          s->stop_err.text);
    int r = br_ledger_redeem(s->ledger, g, call_id, e->action, e->subject, strlen(e->subject), err);
    if (r < 0)
        return r;
    if (e->op.op == BR_OP_GUEST && (r = harness_started(s)) < 0)
        return br_err_set(err, (enum br_code) - r, "%s", s->stop_err.text);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_grant_ref_put(&o.buf, g);
    br_init_call_put(&o, &e->op);
    uint64_t id = session_expect(s, &s->inited);
    s->effect_started_us = br_now_us();
    r = br_chan_send(&s->init, BR_MSG_INIT_CALL, id, &o, err);
    if (r < 0)
        return r;
    uint64_t timeout = e->op.op == BR_OP_EXEC || e->op.op == BR_OP_GUEST
                           ? (uint64_t)e->op.timeout_ms * 1000u + GRACE_US
                           : FS_TIMEOUT_US;
    r = await_result(s, call_id, timeout, err);
    if (r < 0) {
        session_stop(s, r, "%s", err->text); /* pid 1 is lost: nothing more can run in there */
        return r;
    }
    if (s->inited.code < 0) {
        *err = s->inited.err;
        return s->inited.code;
    }
    const char *p = (const char *)s->inited.data.data;
    struct br_err why;
    if (br_json_scan(p ? p : "", s->inited.data.len, BR_JSON_DEPTH_MAX, 10 * BR_JSON_NODES_MAX,
                     &why) == 0)
        *output = json_loadb(p ? p : "", s->inited.data.len, JSON_REJECT_DUPLICATES, NULL);
    return *output ? 0 : br_err_set(err, BR_E_INVALID_JSON, "the sandbox gave no usable result");
}
