/*
 * core/sandbox, private: what the files of the probes share.
 */
#ifndef BR_SANDBOX_PROBE_PRIV_H
#define BR_SANDBOX_PROBE_PRIV_H

#include "sandbox/box_priv.h"

/* No probe takes longer: its child is killed. */
#define BR_PROBE_SECONDS 10u

/* Begin a row; the fix stays empty if there is nothing to fix. */
void br_probe_row(struct br_probe *p, const char *requirement, enum br_probe_result result,
                  bool required, const char *fix);
/* Run it in a child that is born in the namespaces `flags`, as their root: 0, or the errno of what
 * failed. */
int br_probe_child(int (*run)(void), uint64_t flags);
/* Why ordinary users get no user namespace here, and the fix; NULL if nothing is known. */
const char *br_probe_userns_cause(const char **fix);

/* probe_more.c: the rows that need more than one call in a child. Returns how many, at most
 * BR_PROBES_MORE. */
#define BR_PROBES_MORE 10u
uint32_t br_probe_more(const struct br_host *h, struct br_probe *rows);

#endif
