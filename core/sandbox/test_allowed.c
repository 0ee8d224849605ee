/*
 * The syntax of allowed paths at its limits. What is refused of existing files, and that nothing is
 * started then, is in core/launch/test_launch_refuse.c.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sandbox/allowed.h"

static void test_accepted(void **state)
{
    static const char *const good[] = {
        "a",           "a/b/c.txt",        "src/**",    "src/",     "pages/[id].tsx", "...",
        ".git/config", "name with spaces", "d\xc3\xbc", "{braces}", "a/.hidden",      "-dash",
        "x/**",
    };
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(good); i++) {
        struct br_err err = {.code = BR_OK};
        if (br_allowed_path_check(good[i], &err) != 0)
            fail_msg("'%s' was refused: %s", good[i], err.text);
        assert_int_equal(err.code, BR_OK); /* success never touches it */
    }
}

static void test_lengths(void **state)
{
    char path[BR_PATH_MAX + 2], segment[300];
    (void)state;
    /* a segment of 255 and of 256 bytes */
    memset(segment, 'a', sizeof(segment));
    segment[255] = 0;
    assert_int_equal(br_allowed_path_check(segment, NULL), 0);
    segment[255] = 'a';
    segment[256] = 0;
    assert_int_equal(br_allowed_path_check(segment, NULL), -BR_E_INVALID_ALLOWED_PATH);
    /* 4095 and 4096 bytes */
    for (size_t i = 0; i < sizeof(path); i++)
        path[i] = i % 100 == 99 ? '/' : 'a';
    path[BR_PATH_MAX - 1] = 0;
    assert_int_equal(br_allowed_path_check(path, NULL), 0);
    path[BR_PATH_MAX - 1] = 'a';
    path[BR_PATH_MAX] = 0;
    assert_int_equal(br_allowed_path_check(path, NULL), -BR_E_INVALID_ALLOWED_PATH);
}

/* The text is safe on a terminal and names the subject. */
static void test_text(void **state)
{
    struct br_err err = {.code = BR_OK};
    (void)state;
    assert_int_equal(br_allowed_path_check("a\x1b[2Jb", &err), -BR_E_INVALID_ALLOWED_PATH);
    assert_null(strchr(err.text, '\x1b'));
    assert_non_null(strstr(err.text, "'a\\x1b[2Jb'"));
}

/* Replaced between the check and the mount: noticed. */
static void test_replaced(void **state)
{
    char dir[] = "/tmp/bridle-allowed-XXXXXX";
    struct br_allowed_root root;
    struct br_allowed a;
    (void)state;
    assert_non_null(mkdtemp(dir));
    BR_CLEANUP_FD int ws = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BR_CLEANUP_FD int f = openat(ws, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(ws >= 0 && f >= 0);
    assert_int_equal(br_allowed_root_open(&root, ws, NULL), 0);
    assert_int_equal(br_allowed_open(&root, "f", &a, NULL), 0);
    assert_int_equal(br_allowed_recheck(&root, &a, NULL), 0);
    assert_int_equal(linkat(ws, "f", ws, "g", 0), 0);
    assert_int_equal(br_allowed_recheck(&root, &a, NULL), -BR_E_INVALID_ALLOWED_PATH);
    assert_int_equal(unlinkat(ws, "g", 0), 0);
    assert_int_equal(br_allowed_recheck(&root, &a, NULL), 0);
    assert_int_equal(unlinkat(ws, "f", 0), 0);
    assert_int_equal(br_allowed_recheck(&root, &a, NULL), -BR_E_INVALID_ALLOWED_PATH);
    br_allowed_close(&a);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
