/*
 * For tests of adapters: a project with a profile that runs a guest from its workspace, and the
 * beginning of such a guest.
 */
#ifndef BR_SPEC_HARNESS_RIG_H
#define BR_SPEC_HARNESS_RIG_H

#include "support/e2e.h"

/* The profile 'hosted', as text. */
extern const char harness_profile[];
/* The adapter test-guest@3, whose entry is /bin/sh /workspace/guest.sh. */
extern const char harness_adapter[];
/* What every guest begins with: $json is the packet, $run the run, `result TEXT` makes a result and
 * `say JSON` writes a frame. */
extern const char harness_prelude[];

/* Profile, adapter and bridle.lua; `terms` (NULL: none) is more of the adapter's entry there. */
void harness_open(struct e2e *t, const char *terms);
/* The same for another user than root. */
void harness_open_as(struct e2e *t, uid_t uid, const char *terms);
void harness_activate(struct e2e *t, const char *profile, const char *image);
/* Write the guest of this text; run it, with up to two more words (NULL: none). */
void harness_guest(struct e2e *t, const char *body);
void harness_run(struct e2e *t, struct e2e_result *r, const char *a, const char *b);
/* Both. */
void harness_run_guest(struct e2e *t, const char *body, struct e2e_result *r);
/* Is it anywhere in what is stored? */
bool harness_stored(struct e2e *t, const char *text);

#endif
