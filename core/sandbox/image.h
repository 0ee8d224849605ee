/*
 * core/sandbox, private: the read-only root made of an image. One at a time per launcher, made on
 * first use and kept for the next sandbox with the same image.
 */
#ifndef BR_SANDBOX_IMAGE_H
#define BR_SANDBOX_IMAGE_H

#include "image/image.h"
#include "sandbox/mounts.h"

struct br_image_root {
    char id[BR_IMAGE_ID_MAX]; /* "": none */
    int root;                 /* O_PATH, as of br_rootfs_build(); -1 */
    unsigned made;            /* how many roots this launcher has made */
    int at;                   /* O_PATH of BR_STAGE_POINT, opened before /sys is covered; -1 */
    int stage;                /* the tmpfs that it is made of, still attached */
    enum br_image_how how;    /* of the last check */
    const char *mounted;      /* "erofs", "erofs-loop", "tree": how its files are reached */
    struct br_image_stamp file;
    struct br_mounts mounts; /* what is mounted in it, measured */
};
void br_image_root_init(struct br_image_root *r);

/*
 * Where the stage is attached: below the host's /sys, which no sandbox gets anything of, and beside
 * BR_ROOTFS_POINT, not on it: a copy of that root must not hold this one.
 */
#define BR_STAGE_POINT "/sys/kernel"

/*
 * Check the image in the store of `state_fd` and, if it is not the one that is there, make the root
 * of it. `init_fd` is the program of pid 1. On failure there is none, and the next call tries
 * again. -BR_E_NOT_FOUND, -BR_E_INVALID_IMAGE, -BR_E_REQUIREMENT_MISSING.
 */
int br_image_root_use(struct br_image_root *r, const char *id, int state_fd, bool as_root,
                      int init_fd, struct br_err *err);
void br_image_root_close(struct br_image_root *r);

/* Tests: mount through a loop device even if the kernel could do without. */
extern bool br_image_force_loop;

#endif
