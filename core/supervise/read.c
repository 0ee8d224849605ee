/*
 * The verbs that only look: `show` lets bridle-audit read the store to the client, `doctor` lets
 * bridle-launch try what the host can enforce.
 */
#include <string.h>

#include "supervise/supervise_priv.h"

#define READ_TIMEOUT_US (600u * 1000000u)
#define PROBE_TIMEOUT_US (60u * 1000000u)

void show_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    int ends[2];
    int r = store_open(s, &err);
    if (r == 0 && br_chan_pair(ends) < 0)
        r = br_err_errno(&err, BR_E_IO, "no channel to the store");
    if (r == 0) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_put_str(&o.buf, s->show.run_id);
        br_buf_put_str(&o.buf, "");
        br_buf_put_u8(&o.buf, 0);
        br_out_fd(&o, ends[0], true);
        r = br_chan_send(&s->control, BR_MSG_CTL_STARTED, 0, &o, &err);
        if (r == 0)
            r = audit_start(s, 1, -1, ends[1], -1, &err);
        else
            br_close(&ends[1]);
    }
    /* the client reads to the end and then closes; audit answers when it has sent everything */
    s->programs[P_AUDIT].expected = true;
    if (r == 0)
        r = sup_wait(s, &s->audit_closed, READ_TIMEOUT_US, false);
    if (s->fail_code) {
        r = s->fail_code;
        err = s->fail_err;
    } else if (r == 0 && s->audit_code < 0) {
        r = s->audit_code;
        br_err_set(&err, (enum br_code) - r, "%s", s->audit_text);
    }
    program_stop(s, P_AUDIT, 300000);
    sup_end(s, -r, br_code_exit(r), r < 0 ? err.text : "");
}

int launcher_probe(struct supervisor *s, struct br_err *err)
{
    int r = br_chan_send(&s->programs[P_LAUNCH].chan, BR_MSG_LAUNCH_PROBE, 1, NULL, err);
    if (r == 0 && (r = sup_wait(s, &s->probed, PROBE_TIMEOUT_US, false)) < 0)
        br_err_set(err, (enum br_code) - r, "%s",
                   s->fail_code          ? s->fail_err.text
                   : r == -BR_E_CANCELED ? "interrupted; the probes had not ended"
                                         : "the probes did not end in time");
    return r;
}

void doctor_verb(struct supervisor *s)
{
    struct br_err err = {.code = BR_OK};
    int r = program_start(s, P_LAUNCH, &err);
    if (r == 0 && state_open(s, false, NULL) == 0) /* one that cannot be used is a run's matter */
        r = launcher_configure(s, &err);
    if (r == 0)
        r = launcher_probe(s, &err);
    program_stop(s, P_LAUNCH, 5000000);
    if (r == 0 && s->nprobes == 0)
        r = br_err_set(&err, BR_E_INTERNAL, "the launcher probed nothing; nothing is known");
    int code = r;
    if (r == 0) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_probes_put(&o.buf, s->probes, s->nprobes);
        r = br_chan_send(&s->control, BR_MSG_CTL_PROBED, 0, &o, &err);
        for (uint32_t i = 0; i < s->nprobes; i++)
            if (s->probes[i].required && s->probes[i].result == BR_PROBE_MISSING)
                code = br_err_set(&err, BR_E_REQUIREMENT_MISSING,
                                  "'%s' is missing: the default profile cannot run on this host",
                                  s->probes[i].requirement);
    }
    sup_end(s, -code, br_code_exit(code), code < 0 ? err.text : "");
}
