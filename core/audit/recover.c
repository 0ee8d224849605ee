/*
 * Mode recover: records without an end whose owner is dead are closed as failed. Those of the
 * living are left alone, and so is what another process closes at the same moment (the store
 * refuses a second end).
 */
#include <string.h>

#include "audit/audit_priv.h"

static int recover_one(struct audit *a, const struct br_store_info *info, struct br_err *err)
{
    struct recorder r = {.store = a->rec.store, .redact = a->rec.redact};
    struct ending e = {.code = BR_E_PROGRAM_DIED, .workspace = info->workspace};
    snprintf(e.status, sizeof(e.status), "failed");
    snprintf(e.note, sizeof(e.note), "the run ended without closing its record");
    r.committed.id = info->id;
    memcpy(r.committed.run_id, info->run_id, sizeof(info->run_id));
    int ret = recorder_reload(&r, err);
    if (ret == 0)
        ret = record_finish(&r, &e, err);
    if (ret == 0)
        account_remove(info->run_id);
    br_event_order_free(&r.order);
    return ret;
}

int recover_run(struct audit *a, unsigned *closed, struct br_err *err)
{
    struct br_store_info info = {.id = 0};
    int failed = 0;
    *closed = 0;
    for (;;) {
        struct br_err why = {.code = BR_OK};
        int r = br_store_next_run(a->rec.store, info.id, true, &info, err);
        if (r <= 0)
            return r < 0 ? r : failed;
        if ((a->wanted[0] && strcmp(a->wanted, info.run_id) != 0) || owner_alive(info.owner))
            continue;
        r = recover_one(a, &info, &why);
        if (r == 0) {
            ++*closed;
            continue;
        }
        br_log(BR_LOG_ERROR, "the record of run '%s' could not be closed: %s", info.run_id,
               why.text);
        if (!failed) {
            failed = r;
            if (err)
                *err = why;
        }
    }
}
