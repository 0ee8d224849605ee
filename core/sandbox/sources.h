/*
 * core/sandbox, private: the sources of the writable mounts, from plan to start.
 */
#ifndef BR_SANDBOX_SOURCES_H
#define BR_SANDBOX_SOURCES_H

#include "sandbox/box_priv.h"

/* Check every allowed path below `ws` and fill in plan->sources. -BR_E_INVALID_ALLOWED_PATH. */
int br_sources_resolve(struct br_plan *plan, int ws, struct br_err *err);

/* A detached clone of the mount of `fd`, with what a writable mount must have: its descriptor, or a
 * negative code. */
typedef int br_clone_source(void *ctx, int fd, const char *name, struct br_err *err);

/*
 * Open every allowed path, clone its mount, and compare it with plan->sources on the descriptor
 * that was cloned; search the workspace for sockets. Fills in what the child needs in `s`. The
 * clones are appended to fds[*n], which stay the caller's to close, also after a failure.
 */
int br_sources_open(const struct br_plan *plan, int ws, struct br_box_shared *s,
                    br_clone_source *clone, void *ctx, int *fds, unsigned *n, struct br_err *err);

#endif
