/*
 * core/sandbox, private: the system call filter of every sandbox.
 */
#ifndef BR_SANDBOX_FILTER_H
#define BR_SANDBOX_FILTER_H

#include <linux/filter.h>

#include "base/base.h"

enum br_filter_cond {
    BR_COND_NONE,
    BR_COND_FLAGS_CLEAR, /* allow if (arg & value) == 0, low 32 bits */
    BR_COND_ARG_IN,      /* allow if arg is one of a list, all 64 bits compared */
    BR_COND_ARG_NOT_IN,  /* allow unless the low 32 bits of arg are one of a list */
};

struct br_filter_row {
    int nr; /* system call number; -1: this machine has no such call */
    const char *name;
    bool allow;        /* may happen (if the condition holds) */
    uint8_t cond, arg; /* enum br_filter_cond, and which argument it looks at */
    const uint32_t *list;
    unsigned nlist;
    int error; /* what a refused call gets */
    const char *why;
};
/* The table; what it does not name gets ENOSYS. */
extern const struct br_filter_row br_filter_rows[];
extern const unsigned br_filter_nrows;

/* Compile the table into a program for seccomp(2); prog->filter is malloc()ed. */
int br_filter_build(struct sock_fprog *prog, struct br_err *err);

#endif
