/*
 * core/sandbox, trees: what lies below a directory that becomes writable, and below the workspace.
 * Part of bridle_allowed. Walks by descriptor, follows no link, and stops at a number of entries.
 */
#ifndef BR_SANDBOX_TREE_H
#define BR_SANDBOX_TREE_H

#include "sandbox/allowed.h"

/* Entries of all granted trees of one run: each is examined twice per launch, at 2 us. */
#define BR_TREE_ENTRIES_MAX 200000u
/* Entries of a workspace that are looked at for sockets, at 0.3 us. */
#define BR_TREE_SEARCH_MAX 1000000u
/* One open descriptor a level, of the 1024 that a process usually has. */
#define BR_TREE_DEPTH_MAX 128u
/* Each becomes a mount. */
#define BR_COVERS_MAX 256u
#define BR_COVERS_TEXT (64u * 1024)

/* What is covered by a mount inside of the sandbox, and only there. */
enum br_cover_kind {
    /* a `.git` or a set-user-id program in a granted tree: by itself, read-only */
    BR_COVER_READ_ONLY = 1,
    BR_COVER_HIDE = 2, /* a socket or FIFO: by an empty file */
    /* a directory between a granted one and a `.git` below it: by itself, writable; but what is
     * mounted on can be neither renamed nor removed, and so the `.git` stays where it is */
    BR_COVER_PIN = 3,
};
struct br_cover {
    uint8_t kind; /* enum br_cover_kind */
    uint32_t dev_major, dev_minor;
    uint64_t ino;
    uint32_t path; /* where in `text`; relative to the workspace */
};
/* A fixed size, because launcher and child share it. */
struct br_covers {
    uint32_t n, used;
    struct br_cover items[BR_COVERS_MAX];
    char text[BR_COVERS_TEXT];
};

struct br_tree_link;
/* One look at the granted trees of a run, or at a workspace. */
struct br_tree {
    struct br_covers *covers; /* not owned */
    uint32_t entries_max;     /* the constants above; tests choose less */
    uint32_t entries;         /* so far */
    struct br_tree_link *links;
    size_t nlinks, links_cap;
    struct br_buf names; /* of those links, as many as fit */
};
void br_tree_init(struct br_tree *t, struct br_covers *covers, uint32_t entries_max);
void br_tree_free(struct br_tree *t);

/*
 * Walk the granted directory `a` (opened beneath `root`): how many entries it has and a hash of
 * their names, types, identities and link counts. What is inside of a `.git` counts for neither,
 * since it is covered; so are sockets and FIFOs. -BR_E_INVALID_ALLOWED_PATH naming the entry for: a
 * device, another mount or file system, a `.git` that is a link, what cannot be read, too many
 * entries or levels, what changes meanwhile. `within_other`: its files are already counted for
 * another grant.
 */
int br_tree_fingerprint(struct br_tree *t, const struct br_allowed_root *root,
                        const struct br_allowed *a, bool within_other, uint32_t *entries,
                        uint8_t sha256[32], struct br_err *err);
/*
 * After all granted directories: -BR_E_INVALID_ALLOWED_PATH naming a file that has a hard link
 * outside of them, since writing it would write there.
 */
int br_tree_check_links(struct br_tree *t, struct br_err *err);
/*
 * Find the sockets and FIFOs of a workspace, outside of the granted directories, nested mounts
 * included. -BR_E_INVALID_WORKSPACE for too many entries or levels.
 */
int br_tree_search(struct br_tree *t, int ws_fd, const struct br_allowed *granted, uint32_t n,
                   struct br_err *err);

#endif
