/*
 * core/sandbox, private: names that say which launcher a thing belongs to, so that a later one can
 * tell what a dead one left from what a live one uses.
 */
#ifndef BR_SANDBOX_OWNER_H
#define BR_SANDBOX_OWNER_H

#include "base/base.h"

/* "bridle.<pid namespace>.<boot>.<pid>.<start time>" of the calling process. */
int br_owner_tag(char *dst, size_t cap, struct br_err *err);
/*
 * True only for a name that starts with such a tag, made in this pid namespace and since this boot,
 * whose process is gone or is another one by now. Anything that cannot be told counts as alive.
 */
bool br_owner_is_dead(const char *name);
/* True only for a name with such a tag of another pid namespace, since this boot: whether its
 * process lives cannot be told from here. */
bool br_owner_is_foreign(const char *name);
/* True only for a name with such a tag that was made before this boot. For files: what lives in the
 * kernel does not survive a boot. */
bool br_owner_is_past(const char *name);

#endif
