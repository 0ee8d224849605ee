/*
 * core/sandbox, private: the system call filter of every sandbox.
 */
#ifndef BR_SANDBOX_FILTER_H
#define BR_SANDBOX_FILTER_H

#include <linux/filter.h>

#include "base/base.h"

/* Raised with every change of what the filter answers; a test holds version and hash together. */
#define BR_FILTER_VERSION 3u

/* All arguments are compared in their low 32 bits, as the kernel does that takes an int. */
enum br_filter_cond {
    BR_COND_NONE,
    BR_COND_FLAGS_CLEAR, /* allow if (arg & list[0]) == 0 */
    BR_COND_ARG_IN,      /* allow if arg is one of the list */
    BR_COND_ARG_NOT_IN,  /* allow unless arg is one of the list */
    BR_COND_MODE_CLEAR,  /* arg holds flags of open(), the next one a mode, which is looked at only
                            if the flags have a bit of list[0]: allow if (mode & list[1]) == 0 */
};

struct br_filter_row {
    int nr; /* system call number; -1: this machine has no such call */
    const char *name;
    bool allow;        /* may happen (if the condition holds) */
    uint8_t cond, arg; /* enum br_filter_cond, and which argument it looks at */
    const uint32_t *list;
    unsigned nlist;
    int error;        /* what a refused call gets */
    const char *only; /* the condition in words, or NULL */
    const char *why;
};
/* The table; what it does not name gets ENOSYS. */
extern const struct br_filter_row br_filter_rows[];
extern const unsigned br_filter_nrows;

/* Compile the table into a program for seccomp(2); prog->filter is malloc()ed. */
int br_filter_build(struct sock_fprog *prog, struct br_err *err);
/* SHA-256 of the program as it is installed, as 64 hex digits. */
void br_filter_hash(const struct sock_fprog *prog, char hex[65]);

#endif
