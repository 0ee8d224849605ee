/*
 * core/sandbox, private: find a file of another mount namespace in this one.
 */
#ifndef BR_SANDBOX_REOPEN_H
#define BR_SANDBOX_REOPEN_H

#include "base/base.h"

/*
 * Open what `fd` refers to again, by the path that the kernel has for it, in the mount namespace of
 * the caller (mounts can only be cloned from there), and check that it is the same file. Links on
 * the way are refused: the kernel's path has none. A new fd, or -BR_E_INVALID_WORKSPACE with
 * `what` as the subject.
 */
int br_reopen_here(int fd, int flags, const char *what, struct br_err *err);

#endif
