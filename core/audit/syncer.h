/*
 * A thread that waits for the disk, so that the one that records need not. Used by the audit
 * process only, from one thread.
 */
#ifndef BR_AUDIT_SYNCER_H
#define BR_AUDIT_SYNCER_H

#include "base/base.h"

struct br_syncer;
/* Start it: it has made its first calls, and may be put under a filter. NULL: there can be none. */
struct br_syncer *br_syncer_new(void);
/* End it, after what is under way. */
void br_syncer_free(struct br_syncer **s);
/* Begin fdatasync(2) of fd, which stays open until that is over; one at a time. */
void br_syncer_begin(struct br_syncer *s, int fd);
/* Readable when it is over. */
int br_syncer_fd(const struct br_syncer *s);
/* Wait for it: 0 or an errno. It is still to be collected. */
int br_syncer_wait(const struct br_syncer *s);
/* Collect it: true, and *result is 0 or an errno; false: it is not over (never with `wait`). */
bool br_syncer_end(struct br_syncer *s, bool wait, int *result);

#endif
