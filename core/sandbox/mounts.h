/*
 * core/sandbox, private: the mount table of a process, read from the kernel and compared with what
 * was planned. Nothing unexpected, nothing missing, no flag less.
 */
#ifndef BR_SANDBOX_MOUNTS_H
#define BR_SANDBOX_MOUNTS_H

#include "base/base.h"

/* Flags of one mount that are compared. */
enum br_mount_flag {
    BR_MNT_RO = 1u << 0,
    BR_MNT_NOSUID = 1u << 1,
    BR_MNT_NODEV = 1u << 2,
    BR_MNT_NOEXEC = 1u << 3,
    BR_MNT_IDMAPPED = 1u << 4,
    BR_MNT_SHARED = 1u << 5, /* what is mounted in it appears elsewhere: never planned */
    BR_MNT_SLAVE = 1u << 6,  /* what is mounted elsewhere appears in it: never planned */
};

/* More than this many mounts are refused: a workspace may have mounts below it. */
#define BR_MOUNTS_MAX 1024u

/* One line of /proc/PID/mountinfo; the texts are slices of the table's, in the kernel's spelling
 * (blanks and backslashes as \ooo). */
struct br_mount {
    uint64_t id; /* as statx(2) says, STATX_MNT_ID */
    const char *target, *type, *root, *dev;
    unsigned flags;
    uint64_t bytes, inodes; /* limits of a tmpfs; 0: it says none */
};
struct br_mounts {
    struct br_buf text;
    struct br_mount *list; /* owned */
    unsigned n;
};

/*
 * Read /proc/<who>/mountinfo; `who` is "self" or a pid. Free in any case.
 * -BR_E_REQUIREMENT_MISSING, -BR_E_LIMIT_EXCEEDED.
 */
int br_mounts_read(struct br_mounts *m, const char *who, struct br_err *err);
/*
 * Keep only what is mounted at `point` and below, with `point` taken off the targets ("/" for
 * itself): the mounts of a root that was prepared there.
 */
void br_mounts_below(struct br_mounts *m, const char *point);
/* By target; of mounts at one target the kernel's order stays. */
void br_mounts_sort(struct br_mounts *m);
void br_mounts_free(struct br_mounts *m);

/*
 * The mounts of a prepared root at `point`: nothing writable, no set-user-id, no device but the
 * planned ones. With `image`, the root of an image. -BR_E_REQUIREMENT_MISSING.
 */
int br_measure_root(struct br_mounts *m, const char *point, bool image, struct br_err *err);

/* What a mount is to be. */
enum br_want_kind {
    BR_WANT_ONE,   /* exactly one there */
    BR_WANT_MAYBE, /* at most one */
    BR_WANT_BELOW, /* any number below the target, not at it */
};
struct br_mount_want {
    const char *target; /* the kernel's spelling */
    char *own;          /* what is to be freed of it */
    enum br_want_kind kind;
    const char *type;       /* NULL: any */
    unsigned must;          /* flags that it has */
    unsigned may;           /* and may have as well, as taken over from the source */
    uint64_t bytes, inodes; /* of a tmpfs, rounded up to pages by the kernel; 0: not compared */
    const struct br_mount *same; /* not NULL: the same file system and directory as this one */
    unsigned seen;
};
struct br_mount_wants {
    struct br_mount_want *list; /* owned */
    unsigned n, cap, next;
    bool failed;              /* no memory */
    struct br_mount masks[2]; /* what masks are made of: the file, the directory */
    char mask_roots[2][BR_PATH_MAX + 32];
};

/* Add one; what is not given stays 0. `target` is spelt as people do. Valid until the next call. */
struct br_mount_want *br_want(struct br_mount_wants *w, const char *target, unsigned must,
                              unsigned may);
/* Every mount of a root that was prepared, with exactly its flags. */
void br_want_root(struct br_mount_wants *w, const struct br_mounts *root);
void br_wants_free(struct br_mount_wants *w);

/*
 * Is every mount wanted, and every wanted one there? -BR_E_REQUIREMENT_MISSING naming the first
 * that differs and how.
 */
int br_mounts_compare(const struct br_mounts *m, struct br_mount_wants *w, struct br_err *err);
/* The table as a JSON array of {"target","type","flags","bytes"?,"inodes"?}. */
void br_mounts_put(struct br_buf *out, const struct br_mounts *m);

#endif
