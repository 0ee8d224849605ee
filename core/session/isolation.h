/*
 * core/session: is what pid 1 of a sandbox measured of itself what was planned, and what the
 * launcher has read from outside?
 */
#ifndef BR_SESSION_ISOLATION_H
#define BR_SESSION_ISOLATION_H

#include <jansson.h>

#include "base/base.h"
#include "wire/types.h"

/*
 * `receipt` is the launcher's, `init` what INIT_READY said. 0, or -BR_E_REQUIREMENT_MISSING naming
 * the member, what it is and what it should be. A member that is not there is not equal.
 */
int br_isolation_check(const json_t *receipt, const json_t *init, const struct br_plan *plan,
                       struct br_err *err);
/*
 * The receipt with "init" in it and, last, "sha256": over the compact JSON with sorted keys of all
 * the rest. Takes `receipt`, and a reference of its own to `init`. NULL without memory.
 */
json_t *br_isolation_receipt(json_t *receipt, json_t *init);
/* Is "sha256" that of the rest? */
bool br_isolation_verify(const json_t *receipt);

#endif
