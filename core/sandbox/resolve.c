/*
 * Before anything is started: is the plan possible on this host, and what exactly are its sources?
 * Called by bridle-launch for a run and for `bridle plan`. The plan comes from bridled and is
 * checked here; the workspace is hostile.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "sandbox/box_priv.h"
#include "sandbox/bwrap.h"
#include "sandbox/facts.h"
#include "sandbox/reopen.h"
#include "sandbox/sources.h"

int br_plan_resolve(struct br_host *h, struct br_plan *plan, int ws_fd, struct br_buf *text,
                    struct br_buf *facts, struct br_err *err)
{
    int r = br_plan_check(plan, err);
    if (r < 0)
        return br_err_wrap(err, "nothing was started");
    r = br_cg_require(&h->place, err);
    if (r == 0)
        r = br_landlock_require(h, plan, err);
    if (r == 0 && plan->backend == BR_BACKEND_BWRAP)
        r = br_bwrap_possible(h, plan, err);
    if (r == 0)
        r = br_leases_possible(h, plan, err);
    if (r < 0)
        return r;
    struct br_who who;
    BR_CLEANUP_FD int ws = br_reopen_here(ws_fd, O_PATH | O_DIRECTORY, "the workspace", err);
    if (ws < 0)
        return ws;
    r = br_host_use_image(h, plan->image, err);
    if (r == 0)
        r = br_who_try(h, plan, ws, &who, err);
    if (r == 0)
        r = br_sources_resolve(plan, ws, err);
    if (r == 0)
        r = br_render_plan(text, h, plan, &who, err);
    br_facts_put(facts, &h->facts, plan);
    return r;
}
