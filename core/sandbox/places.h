/*
 * core/sandbox, private: is what is mounted in a sandbox's workspace what was planned, and not only
 * mounted like it?
 */
#ifndef BR_SANDBOX_PLACES_H
#define BR_SANDBOX_PLACES_H

#include "sandbox/box_priv.h"

/* Every workspace mount of the plan, by device and inode. -BR_E_INVALID_ALLOWED_PATH. */
int br_places_check(const struct br_box *b, const struct br_plan *plan, struct br_err *err);
/* One, by its path below `root` without a leading slash. */
int br_place_check(int root, const char *path, const struct br_mask_id *want, struct br_err *err);

#endif
