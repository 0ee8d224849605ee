/*
 * core/promote: from a workspace lease that a run has changed to the workspace that it was copied
 * from. Three trees are compared: what was copied (lease_base.h), what the lease holds now, and
 * what the workspace holds now. What only the run has changed can be promoted; what both have
 * changed is a conflict. Applying is all or nothing (journal.h).
 *
 * Everything in the lease was written by somebody hostile. Names are opened one directory at a
 * time, beneath, following no link; contents are read and copied, and nothing in them is
 * interpreted.
 */
#ifndef BR_PROMOTE_H
#define BR_PROMOTE_H

#include <sys/stat.h>

#include "base/base.h"
#include "promote/journal.h"
#include "sandbox/lease_base.h"

/* Levels of directories; a copy has at most 100. */
#define BR_PROMOTE_DEPTH_MAX 128u
/* Changes of one run. */
#define BR_PROMOTE_CHANGES_MAX 200000u
/* The record of what was copied. */
#define BR_PROMOTE_BASE_MAX (512u << 20)
/* Of a text diff: one file's bytes that are looked at, and bytes of it that are shown. */
#define BR_PROMOTE_DIFF_FILE (512u * 1024)
#define BR_PROMOTE_DIFF_SHOWN (16u * 1024)
/* Where what will be promoted is made ready, in the workspace: this and the run's id. */
#define BR_PROMOTE_STAGE ".bridle-promote-"

/* What a change may make run, and when. Names: br_surface_names. */
enum br_surface {
    BR_SURFACE_GIT_CONFIG = 1u << 0,     /* git's own files, hooks of it besides */
    BR_SURFACE_GIT_HOOKS = 1u << 1,      /* what runs at a commit and the like */
    BR_SURFACE_GIT_ATTRIBUTES = 1u << 2, /* filters and diff drivers by pattern */
    BR_SURFACE_SUBMODULES = 1u << 3,
    BR_SURFACE_EDITOR = 1u << 4,     /* tasks and settings of an editor */
    BR_SURFACE_ENVRC = 1u << 5,      /* what a shell runs or takes over in this directory */
    BR_SURFACE_SCRIPTS = 1u << 6,    /* of packages and builds */
    BR_SURFACE_CI = 1u << 7,         /* what a server runs */
    BR_SURFACE_AGENT = 1u << 8,      /* what another agent reads as instructions */
    BR_SURFACE_EXECUTABLE = 1u << 9, /* a file that can be executed */
    BR_SURFACE_SYMLINK = 1u << 10,
    BR_SURFACE_SYMLINK_OUT = 1u << 11,
    BR_SURFACE_HARD_LINK = 1u << 12, /* one file with several names; each becomes its own */
    BR_SURFACE_SETID = 1u << 13,
    BR_SURFACE_DEVICE = 1u << 14,
    BR_SURFACE_FIFO = 1u << 15,
    BR_SURFACE_SOCKET = 1u << 16,
    BR_SURFACE_XATTR = 1u << 17, /* attributes, which are not promoted */
    BR_SURFACE_CAPABILITY = 1u << 18,
    BR_SURFACE_NAME = 1u << 19, /* a name that a terminal or a tool may misread */
};
#define BR_SURFACES 20u
extern const char *const br_surface_names[BR_SURFACES]; /* "git config", ...; by bit */
/* What the path alone says, of a file or a directory of it. */
uint32_t br_surface_of_path(const char *path);
/* Is it in a repository's own directory? */
bool br_surface_is_git(const char *path);

/* How a change stands. */
enum br_change_state { BR_CHANGE_OK = 0, BR_CHANGE_CONFLICT = 1, BR_CHANGE_REFUSED = 2 };
struct br_change {
    char *path;              /* owned */
    char kind;               /* '+' added, '~' modified, '-' removed */
    char old_type, new_type; /* 'f', 'd', 'l', 's' (special); 0: there is none */
    uint32_t old_mode, new_mode;
    uint64_t old_size, new_size;
    uint64_t ino; /* of what is in the workspace */
    int64_t mtime_ns;
    uint32_t surface;
    uint8_t state;   /* enum br_change_state */
    const char *why; /* a static sentence; NULL: BR_CHANGE_OK */
};

struct br_promotion {
    int lease, workspace, base, journal; /* borrowed */
    char stage[64];                      /* the name of the stage */
    bool with_git;
    const char *const *skip; /* paths that stay as they are, with what is below; nskip of them */
    unsigned nskip;
    struct br_buf base_text;
    struct br_base_head head;
    struct base_row *rows; /* of the base, by path; nrows of them */
    size_t nrows;
    struct br_change *changes; /* in the order of their paths */
    size_t nchanges, cap;
    unsigned conflicts, refused, skipped;
};

/*
 * Compare. 0, and p->changes is what would be promoted, with what cannot be and why; or a negative
 * code. br_promotion_free() in any case. The descriptors are directories (lease, workspace) and
 * files (base, journal), and stay the caller's.
 */
int br_promotion_plan(struct br_promotion *p, struct br_err *err);
void br_promotion_free(struct br_promotion *p);

/* Append what changed in a file, for people: at most BR_PROMOTE_DIFF_SHOWN bytes. Nothing for what
 * is no file. What is in it is made visible. */
void br_promotion_diff(const struct br_promotion *p, const struct br_change *c, struct br_buf *out);
/* The lines that differ of two texts; diff.c. */
void br_diff_lines(const char *a, size_t na, const char *b, size_t nb, size_t shown,
                   struct br_buf *out);

/*
 * Apply all changes, or none. 0: they are in the workspace and on its disk. A negative code: the
 * workspace is as it was, unless *err says that it could not be brought back; then the journal is
 * still pending.
 */
int br_promotion_apply(struct br_promotion *p, struct br_err *err);
/*
 * Bring to its end what an interrupted promotion began. *applied: it is in the workspace; otherwise
 * nothing of it is. A negative code: it is still pending.
 */
int br_promotion_recover(struct br_promotion *p, bool *applied, struct br_err *err);
/* Nobody else promotes to this workspace: a lock, to be closed; -BR_E_IN_USE. */
int br_promotion_lock(int workspace, struct br_err *err);
/*
 * -BR_E_IN_USE if there is the stage of another promotion in the workspace; -BR_E_STORE_FAILED if
 * there is that of this one, and the journal does not know of it.
 */
int br_promotion_alone(const struct br_promotion *p, struct br_err *err);

/* For tests: called before everything that changes the workspace or the journal. */
extern void (*br_promotion_step)(void);

#endif
