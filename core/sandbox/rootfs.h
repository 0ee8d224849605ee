/*
 * core/sandbox, private: the read-only root that all sandboxes of one launcher share.
 */
#ifndef BR_SANDBOX_ROOTFS_H
#define BR_SANDBOX_ROOTFS_H

#include "base/base.h"

/* Names inside of the sandbox. */
#define BR_BOX_HOSTNAME "bridle"
#define BR_BOX_UID 1000
#define BR_BOX_HOME "/home/agent"
#define BR_BOX_WORKSPACE "/workspace"
#define BR_BOX_INIT "/.bridle-init"

/*
 * Where the launcher keeps the root in its own mount namespace, and where a child attaches its
 * copy before it pivots into it. /sys, because no workspace lies there; descriptors that lead into
 * /sys/fs/cgroup are opened before.
 */
#define BR_ROOTFS_POINT "/sys"

/*
 * Build the root: a small tmpfs with the host's /usr, a synthesised /etc, a minimal /dev and the
 * mount points, all read-only, nosuid, and (but for the device files) nodev. The caller is in a
 * mount namespace of its own, with CAP_SYS_ADMIN in its owner. Returns an O_PATH descriptor of it.
 */
int br_rootfs_build(int init_fd, struct br_err *err);
/* A detached copy of the whole tree, to be moved into one sandbox; fd, or a negative code. */
int br_rootfs_clone(int rootfs, struct br_err *err);

#endif
