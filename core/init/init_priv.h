/* What the files of core/init share among themselves. */
#ifndef BR_INIT_PRIV_H
#define BR_INIT_PRIV_H

#include <sys/stat.h>

#include "init/init.h"

/* Only bridle-init-weak, the control of `bridle selftest --attack`, is compiled with it: there, a
 * command inherits descriptors and the session, and may look into pid 1. */
#ifdef BR_INIT_WEAK
#define br_init_weak 1
#else
#define br_init_weak 0
#endif

/* ---- paths ---- */

/* A path as it may be shown in a message: visible, at most 200 bytes of it. */
struct br_shown {
    char text[224];
};
struct br_shown br_init_shown(const char *path);

/*
 * Relative, normal (no "", "." or ".." between slashes), UTF-8, no control characters. With
 * `root_ok`, "" and "." name the workspace itself. -BR_E_INVALID_ARGUMENTS.
 */
int br_init_path_check(const char *path, bool root_ok, struct br_err *err);
/*
 * Open a plain path below dirfd, from directory to directory, through no link and no "..". With
 * O_PATH also O_DIRECTORY, since O_PATH alone opens a link itself. An fd of the caller, or -1 and
 * errno.
 */
int br_init_beneath(int dirfd, const char *path, int flags);
/*
 * Check and open below the workspace, through no symlink. `undone` completes messages: "it was not
 * read". An fd of the caller, or a negative code.
 */
int br_init_path_open(struct br_init *in, const char *path, bool root_ok, int flags,
                      const char *undone, struct br_err *err);
/* The error for `errno` of a system call on this path; names the symlink in the way of it. */
int br_init_path_err(struct br_init *in, const char *path, const char *undone, struct br_err *err);
/* Open for reading and require a regular file; never blocks on a FIFO. */
int br_init_open_file(struct br_init *in, const char *path, const char *undone, struct stat *st,
                      struct br_err *err);

/* ---- walks ---- */

struct br_walk_frame {
    int fd;
    char **names; /* sorted; into `arena` */
    char *arena;
    size_t arena_len;
    unsigned n, at;
    size_t path_len; /* of the path of this directory */
};

/* A walk in a fixed order: each directory by byte order of its names, a directory before its
 * contents. No recursion; symlinks are entries and are never followed. */
struct br_walk {
    struct br_walk_frame frames[BR_INIT_WALK_DEPTH];
    int top; /* -1: over */
    bool recursive;
    bool descend;   /* the last entry was a directory */
    bool truncated; /* something was left out */
    uint64_t deadline_us;
    size_t arena_used;
    char path[BR_PATH_MAX];
};

struct br_walk_entry {
    const char *path; /* relative to the start; valid until the next call */
    const char *name; /* its last part */
    int dirfd;        /* of the directory it is in; not owned */
    struct stat st;
};

/* Takes dirfd. Close in any case. */
int br_walk_open(struct br_walk *w, int dirfd, bool recursive, struct br_err *err);
/* 1 and *e, or 0 at the end. */
int br_walk_next(struct br_walk *w, struct br_walk_entry *e);
void br_walk_close(struct br_walk *w);
#define BR_CLEANUP_WALK __attribute__((cleanup(br_walk_close)))

/* ---- captured output ---- */

/* The first and the last part of a stream: together `cap` bytes. */
struct br_capture {
    uint8_t *bytes; /* cap: head, then ring */
    size_t cap, head;
    uint64_t total;
};
int br_capture_init(struct br_capture *c, size_t cap);
void br_capture_free(struct br_capture *c);
void br_capture_put(struct br_capture *c, const void *p, size_t n);
/*
 * Append a JSON string with at most `budget` bytes (<= cap): all of it, or the first half, a line
 * that says how much is missing, and the last half. NUL and invalid UTF-8 become U+FFFD.
 */
void br_capture_json(const struct br_capture *c, size_t budget, struct br_buf *out);

/* Read up to `max` bytes from `offset` into `out`, which may become shorter than asked. */
int br_init_pread(int fd, uint64_t offset, size_t max, struct br_buf *out);

#endif
