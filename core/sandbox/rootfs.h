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
#define BR_BOX_BROKER "/broker"

/* What masks are made of (mask.c); relative to the root. */
#define BR_ROOTFS_EMPTY_FILE ".bridle-empty"
#define BR_ROOTFS_EMPTY_DIR ".bridle-void"
#define BR_ROOTFS_CGROUP "sys/fs/cgroup"
#define BR_ROOTFS_LOCKED ".bridle-locked"

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
/* The three parts of it that a root made of an image shares. An empty tmpfs, not attached. */
int br_rootfs_tmpfs(struct br_err *err);
/* Everything that is not taken from the host, in the empty directory `root`. */
int br_rootfs_fill(int root, struct br_err *err);
/* The device files and the program of pid 1, mounted over files that br_rootfs_fill() made. */
int br_rootfs_bind(int root, int init_fd, struct br_err *err);
/*
 * Is everything that br_rootfs_build(), or with `image` br_rootfs_bind(), was to mount among the
 * `n` mounts, the root first and (not of an image) within its limits? -BR_E_REQUIREMENT_MISSING.
 */
struct br_mount;
int br_rootfs_check(const struct br_mount *m, unsigned n, bool image, struct br_err *err);
/* A detached copy of the whole tree, to be moved into one sandbox; fd, or a negative code. */
int br_rootfs_clone(int rootfs, struct br_err *err);

#endif
