/*
 * core/sandbox, private to it and bridle-launch's loop: boxes that are prepared ahead, by a process
 * of their own (the preparer), on another core than the one that runs a box. Each is taken at most
 * once. See docs/decisions/0011.
 */
#ifndef BR_SANDBOX_POOL_H
#define BR_SANDBOX_POOL_H

#include "sandbox/sandbox.h"

/*
 * Ask for boxes until `want` (at most BR_POOL_MAX) are ready or on their way. Starts the preparer
 * if there is none. 1: it was started, watch br_pool_fd(). 0: it was there. A negative code: there
 * is no pool; boxes can still be made one by one.
 */
int br_pool_fill(struct br_host *h, unsigned want, struct br_err *err);
/* Its preparer was started before the host got another image: what it makes would not fit. Unwatch
 * br_pool_fd() and stop the pool. */
bool br_pool_stale(const struct br_host *h);
/* Readable when a box is ready or the preparer has ended; -1 without a preparer. */
int br_pool_fd(const struct br_host *h);
/* Take in what is ready, without waiting. -BR_E_PEER_GONE: the preparer has ended; stop the pool.
 */
int br_pool_receive(struct br_host *h);
/* Ready, not counting those on their way. */
unsigned br_pool_ready(const struct br_host *h);
/* A prepared box that fits this plan, waiting a little for one that is on its way; NULL: make one.
 * One that does not fit is thrown away: whoever asks for something else will do so again. */
struct br_box *br_pool_take(struct br_host *h, const struct br_plan *plan);
/* Until the preparer has made all that it was asked for, and rests; but not for more than a tenth
 * of a second. */
void br_pool_settle(struct br_host *h);
/* End the preparer, throw away every box that was not taken, and verify that they are gone. */
void br_pool_stop(struct br_host *h);

#endif
