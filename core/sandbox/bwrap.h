/*
 * core/sandbox, private: the backend that lets bubblewrap make the namespaces, for the same plan,
 * with the same root, limits, identity and filter, and measured like a native sandbox.
 */
#ifndef BR_SANDBOX_BWRAP_H
#define BR_SANDBOX_BWRAP_H

#include "sandbox/box_priv.h"

#define BR_BWRAP_PROGRAM "/usr/bin/bwrap"

/* Descriptors of the child that bubblewrap is told about. */
enum { BR_BWRAP_FD_INFO = 4, BR_BWRAP_FD_FILTER = 5 };

/* As many as there are masks, twice, and the rest. */
#define BR_BWRAP_ARGS_MAX 256
struct br_bwrap_argv {
    const char *v[BR_BWRAP_ARGS_MAX]; /* NULL-terminated; point into static text or `text` */
    unsigned n;
    char text[16384];
    size_t used;
    bool full;
};
/*
 * The command line. It depends on this host and this build only: what a plan asks for is mounted,
 * limited and mapped before bubblewrap starts, so that no text of a plan is ever an argument; its
 * flags only say which sockets pid 1 is to make. `masked`: which of br_mask_path() the kernel has.
 * -BR_E_INTERNAL if it is too long.
 */
int br_bwrap_argv(struct br_bwrap_argv *a, uint64_t masked, uint32_t flags, struct br_err *err);

/* -BR_E_REQUIREMENT_MISSING: bubblewrap is not there, or cannot express this plan. */
int br_bwrap_possible(const struct br_host *h, const struct br_plan *plan, struct br_err *err);

/* The launcher, once the child has the plan: wait until pid 1 has executed, and take it for the
 * box's. */
int br_bwrap_await(struct br_box *b, struct br_err *err);
/* pid 1 has ended: bubblewrap does, too, or is made to. */
void br_bwrap_end(const struct br_box *b);
/* The wait status of pid 1 from that of bubblewrap, which passes it on as a shell does. */
int br_bwrap_status(int status);

#endif
