/*
 * core/promote, private: what its files know of each other.
 */
#ifndef BR_PROMOTE_PRIV_H
#define BR_PROMOTE_PRIV_H

#include <fcntl.h>

#include "promote/promote.h"

/* One entry of the record of what was copied. */
struct base_row {
    const char *path; /* not terminated */
    uint16_t len;
    bool seen; /* the lease still has something of this name */
    struct br_base_entry e;
};

static inline int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static inline char type_of(mode_t mode)
{
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : 's';
}

/* openat2, beneath, following no link and entering no other mount. */
int promote_open(int dir, const char *path, int flags);
/* The directory that holds the last name of the path, which *name is. */
int promote_open_parent(int dir, const char *path, const char **name);
/* What is there, a link itself: 0, or -1 and errno. */
int promote_stat(int dir, const char *path, struct stat *st);

/* base.c */
int base_load(struct br_promotion *p, struct br_err *err);
struct base_row *base_find(const struct br_promotion *p, const char *path);

/* link.c: does the link at `path` of the tree lead to something in the tree, or to nothing? */
bool link_stays(int tree, const char *path);

#endif
