/*
 * core/sandbox, allowed paths: which patterns of a manifest may become writable mounts. A library
 * of its own (bridle_allowed, needs only core/base), so that every program can apply the syntax
 * check; only bridle-launch opens.
 */
#ifndef BR_SANDBOX_ALLOWED_H
#define BR_SANDBOX_ALLOWED_H

#include "base/base.h"

/*
 * Syntax only, no file system access: an exact file, or `dir/` or `dir` followed by a slash and
 * two stars, relative to the workspace. 0, or -BR_E_INVALID_ALLOWED_PATH for: empty, too long,
 * absolute, a `.`, `..` or empty segment, another wildcard, a bare `**`, a comma, a backslash, a
 * control character, invalid UTF-8.
 */
int br_allowed_path_check(const char *pattern, struct br_err *err);
/* Of a pattern that passes: the length of its path, without what ends it; *dir says whether that is
 * the slash, or the slash and the stars, of a directory. */
size_t br_allowed_split(const char *pattern, bool *dir);

/* One allowed path, opened and checked. */
struct br_allowed {
    int fd;                /* O_PATH; owned */
    bool dir;              /* the directory and its whole tree */
    char rel[BR_PATH_MAX]; /* without the trailing slash or stars */
    uint64_t ino;
    uint32_t dev_major, dev_minor;
};

/* What a pattern is compared with: the workspace that it must lie in. */
struct br_allowed_root {
    int fd; /* not owned */
    uint64_t mnt_id;
    uint32_t dev_major, dev_minor;
    bool overlay; /* overlayfs: what is no directory has the device of the layer that it is on */
};
/* Look at the workspace once for any number of patterns. 0 or a negative code. */
int br_allowed_root_open(struct br_allowed_root *root, int ws_fd, struct br_err *err);
/* Can a file of this type and device lie on the workspace's file system? Mounts: by mnt_id. */
bool br_allowed_same_fs(const struct br_allowed_root *root, uint32_t mode, uint32_t dev_major,
                        uint32_t dev_minor);

/*
 * Syntax check, then open beneath the workspace without following any link, and check what is
 * there. -BR_E_INVALID_ALLOWED_PATH for: missing, a symlink on the way or at the end, a directory
 * without the stars, stars on a file, a hard-linked file, a device, socket or FIFO, another file
 * system or mount. What lies below a directory: tree.h. Close with br_allowed_close() in any case.
 */
int br_allowed_open(struct br_allowed_root *root, const char *pattern, struct br_allowed *out,
                    struct br_err *err);
/* The same checks again on the descriptor, right before it is mounted. */
int br_allowed_recheck(struct br_allowed_root *root, const struct br_allowed *a,
                       struct br_err *err);
void br_allowed_close(struct br_allowed *a);

#endif
