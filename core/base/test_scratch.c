/*
 * Working directories of tools: what is swept, what is left alone, and that nothing outside of one
 * is touched.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static char top[64];

static int setup(void **state)
{
    (void)state;
    snprintf(top, sizeof(top), "/tmp/bridle-test-scratch.XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return br_scratch_remove(top);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void fill(const char *dir, const char *outside)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/a", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/a/b", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/a/b/file", dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0400));
    snprintf(path, sizeof(path), "%s/a/link", dir);
    assert_int_equal(symlink(outside, path), 0);
    snprintf(path, sizeof(path), "%s/a/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
}

/* A directory that a process made which is dead by now. */
static void make_orphan(char path[256], const char *prefix, const char *outside)
{
    int p[2], status;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char own[256];
        if (br_scratch_make(own, sizeof(own), top, prefix) < 0)
            _exit(1);
        fill(own, outside);
        _exit(write(p[1], own, sizeof(own)) == sizeof(own) ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(p[0], path, 256), 256);
    close(p[0]);
    close(p[1]);
    assert_true(exists(path));
}

static void test_sweep(void **state)
{
    (void)state;
    char outside[128], kept[160], live[256], dead[256], other[256], odd[128], link[300];
    snprintf(outside, sizeof(outside), "%s/outside", top);
    snprintf(kept, sizeof(kept), "%s/kept", outside);
    snprintf(odd, sizeof(odd), "%s/tool-XXXXXX", top); /* the owner is not told */
    assert_int_equal(mkdir(outside, 0700), 0);
    close(open(kept, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(mkdir(odd, 0700), 0);
    assert_int_equal(br_scratch_make(live, sizeof(live), top, "tool-"), 0);
    make_orphan(dead, "tool-", outside);
    make_orphan(other, "toolbox-", outside);
    make_orphan(link, "tool-", outside); /* a link in the place of one */
    assert_int_equal(br_scratch_remove(link), 0);
    assert_int_equal(symlink(outside, link), 0);
    br_scratch_sweep(top, "tool-");
    assert_false(exists(dead));
    assert_true(exists(live));  /* its owner lives */
    assert_true(exists(other)); /* another tool's */
    assert_true(exists(odd));
    assert_true(exists(kept)); /* neither the link inside nor the one in its place led there */
    assert_true(exists(link));
    assert_int_equal(unlink(link), 0);
    assert_int_equal(br_scratch_remove(live), 0);
    assert_false(exists(live));
}

/* What belongs to somebody else stays, dead owner or not. */
static void test_sweep_of_others(void **state)
{
    (void)state;
    char theirs[256], outside[] = "/";
    if (geteuid() != 0)
        return;
    make_orphan(theirs, "tool-", outside);
    assert_int_equal(chown(theirs, 1, 1), 0);
    br_scratch_sweep(top, "tool-");
    assert_true(exists(theirs));
    assert_int_equal(br_scratch_remove(theirs), -1);
    assert_int_equal(chown(theirs, 0, 0), 0);
    br_scratch_sweep(top, "tool-");
    assert_false(exists(theirs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sweep),
                                       cmocka_unit_test(test_sweep_of_others)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
