/*
 * core/sandbox, private: the child's mounts that need descriptors of the launcher, and masks.
 */
#ifndef BR_SANDBOX_ATTACH_H
#define BR_SANDBOX_ATTACH_H

#include "sandbox/box_priv.h"

/* Attach the workspace and all that lies on it; fds as in box_priv.h, which stay the caller's. */
int br_attach_workspace(const struct br_host *h, const struct br_box_shared *s, const int *fds,
                        struct br_err *err);

/*
 * What masks are made of: an empty file or an empty directory of the prepared root, opened at its
 * name below the current root and compared with what the launcher made. An O_PATH descriptor, or
 * -BR_E_REQUIREMENT_MISSING.
 */
enum br_mask { BR_MASK_FILE, BR_MASK_DIR };
int br_mask_open(const struct br_host *h, enum br_mask which, struct br_err *err);
/* By the launcher, for the root of the next box: what its masks are made of. */
int br_mask_remember(struct br_host *h, int rootfs, struct br_err *err);
/* Mask what of /proc is not the sandbox's business. The working directory is its new root. */
int br_mask_proc(const struct br_host *h, struct br_err *err);

#endif
