/*
 * What tests of several folders need. Tests only.
 */
#ifndef BR_BASE_TEST_TOOLS_H
#define BR_BASE_TEST_TOOLS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

/* Leave a test that plays root and an ordinary user in turn, where this is not root. */
static inline void test_need_root(void)
{
    if (geteuid() != 0) {
        print_message("needs root: it plays root and an ordinary user in turn\n");
        skip();
    }
}

/* Descriptors of this process, of those below 512. */
static inline unsigned test_open_fds(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 512; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static inline int test_remove_one(const char *path, const struct stat *st, int type,
                                  struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* Remove a directory and all that is in it, whoever owns it; 0, or what remove(3) failed with. */
static inline int test_remove_tree(const char *path)
{
    return nftw(path, test_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
