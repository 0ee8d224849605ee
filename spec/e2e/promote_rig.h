/*
 * Support for tests of kept workspaces and their promotion: a project whose profile gives it a copy
 * of the workspace on a small disk, and a policy that allows everything but what a test says.
 */
#ifndef BR_SPEC_PROMOTE_RIG_H
#define BR_SPEC_PROMOTE_RIG_H

#include "support/e2e.h"

/* A workspace with a few files, disks.lua activated. Root only. */
void lease_open(struct e2e *t);
/* `bridle exec` of a line for /bin/sh in a copy of the workspace. */
void lease_sh(struct e2e *t, int status, const char *line);
/* The id of the youngest run whose workspace is kept; "" if there is none. */
void lease_kept(struct e2e *t, char id[64]);
/* One value of 'bridle state list --json' of the only entry, as text; free it. */
char *lease_list(struct e2e *t);
/* Run bridle and expect a status and a text. Ends with NULL. */
void lease_bridle(struct e2e *t, int status, const char *said, ...) __attribute__((sentinel));

#endif
