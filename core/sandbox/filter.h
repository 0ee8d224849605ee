/*
 * core/sandbox, private: the system call filter of every sandbox.
 */
#ifndef BR_SANDBOX_FILTER_H
#define BR_SANDBOX_FILTER_H

#include <linux/filter.h>

#include "base/base.h"

/* Raised with every change of what the filter answers; a test holds version and hash together. */
#define BR_FILTER_VERSION 4u

struct br_filter_range {
    uint32_t first, last;
};

/* One look at an argument, at its low 32 bits, as the kernel does that takes an int. It passes if
 * (arg & mask) is in one of the ranges (which ascend and do not touch), or, with `not`, in none. */
struct br_filter_test {
    uint8_t arg;
    bool not ;
    bool or_next; /* it is enough that this one or the next one passes */
    uint32_t mask;
    const struct br_filter_range *in;
    unsigned n;
    int error; /* what a call gets that fails this one; ignored with or_next */
};

struct br_filter_row {
    int nr; /* system call number; -1: this machine has no such call */
    const char *name;
    bool allow; /* may happen (if all tests pass, in their order) */
    const struct br_filter_test *tests;
    unsigned ntests;
    int error;        /* what a call gets that is never allowed */
    const char *only; /* the tests in words, or NULL */
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
