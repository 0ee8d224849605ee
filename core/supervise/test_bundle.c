/*
 * Reading a bundle for a standing bridled: what is read is what is there, once, and only where
 * nobody else could have written it. Limits at N and N+1; each refusal leaves the buffer empty.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "supervise/standing.h"

static char dir[64], path[128];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-bundle-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/p.lua", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bundle_was_read = NULL;
    (void)unlink(path);
    return br_scratch_remove(dir);
}

static void put(const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, text, n), 0);
    close(fd);
}

static void good(const char *file, const char *text)
{
    struct br_buf b;
    struct br_err err = {.code = BR_OK};
    if (bundle_read(file, geteuid(), &b, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(br_buf_cstr(&b), text);
    br_buf_free(&b);
}

static void bad(const char *file, uid_t owner, enum br_code code, const char *said)
{
    struct br_buf b;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(bundle_read(file, owner, &b, &err), -(int)code);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, said))
        fail_msg("'%s' is not in '%s'", said, err.text);
    assert_int_equal(b.len, 0);
    br_buf_free(&b);
}

static void test_reads(void **state)
{
    (void)state;
    char hex[65], link[128];
    struct br_buf b = BR_BUF_INIT(64);
    put("return 1", 8);
    good(path, "return 1");
    snprintf(link, sizeof(link), "%s/l.lua", dir);
    assert_int_equal(symlink("p.lua", link), 0);
    good(link, "return 1");
    put("", 0);
    good(path, "\n"); /* which is not the built-in one */
    policy_hash(&b, hex);
    assert_string_equal(hex, "");
    br_buf_put(&b, "abc", 3);
    policy_hash(&b, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    br_buf_free(&b);
}

static void test_limits(void **state)
{
    (void)state;
    char *big = malloc(BR_POLICY_MAX + 1);
    assert_non_null(big);
    memset(big, ' ', BR_POLICY_MAX + 1);
    put(big, BR_POLICY_MAX + 1);
    bad(path, geteuid(), BR_E_INVALID_POLICY, "has 1048577 bytes, more than 1048576");
    put(big, BR_POLICY_MAX);
    big[BR_POLICY_MAX] = '\0';
    good(path, big);
    free(big);
}

static void test_kinds(void **state)
{
    (void)state;
    bad("p.lua", geteuid(), BR_E_USAGE, "is not absolute");
    bad(path, geteuid(), BR_E_NOT_FOUND, "does not exist");
    bad("/dev/null", geteuid(), BR_E_INVALID_POLICY, "is no regular file");
    bad(dir, geteuid(), BR_E_INVALID_POLICY, "is a directory");
    assert_int_equal(mkfifo(path, 0644), 0);
    bad(path, geteuid(), BR_E_INVALID_POLICY, "is a FIFO");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("p.lua", path), 0);
    bad(path, geteuid(), BR_E_INVALID_POLICY, "could not be reached");
}

static void test_owners(void **state)
{
    (void)state;
    put("return 1", 8);
    assert_int_equal(chmod(path, 0664), 0);
    bad(path, geteuid(), BR_E_DENIED, "(mode 664); it was not read. chmod go-w");
    assert_int_equal(chmod(path, 0642), 0);
    bad(path, geteuid(), BR_E_DENIED, "(mode 642)");
    assert_int_equal(chmod(path, 0600), 0);
    good(path, "return 1");
    assert_int_equal(chmod(dir, 0770), 0);
    bad(path, geteuid(), BR_E_DENIED, "(mode 770)");
    assert_int_equal(chmod(dir, 01777), 0); /* as /tmp: nobody can replace it there */
    good(path, "return 1");
    assert_int_equal(chmod(dir, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 23456, 0), 0);
        bad(path, 0, BR_E_DENIED, "the policy '");
        assert_int_equal(chown(dir, 23456, 0), 0);
        assert_int_equal(chown(path, 0, 0), 0);
        bad(path, 0, BR_E_DENIED, "the directory '");
        assert_int_equal(chown(dir, 0, 0), 0);
    }
}

/* ---- while it is read ---- */

static void append(void)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(br_write_all(fd, "x", 1), 0);
    close(fd);
}

static void shorten(void)
{
    assert_int_equal(truncate(path, 3), 0);
}

static void same_size(void)
{
    struct timeval later[2] = {{.tv_sec = 2000000000}, {.tv_sec = 2000000000}};
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(br_write_all(fd, "R", 1), 0);
    close(fd);
    assert_int_equal(utimes(path, later), 0);
}

static void replace(void)
{
    char other[160];
    snprintf(other, sizeof(other), "%s.new", path);
    int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(br_write_all(fd, "return 2", 8), 0);
    close(fd);
    assert_int_equal(rename(other, path), 0);
}

static void test_changes(void **state)
{
    (void)state;
    void (*const changes[])(void) = {append, shorten, same_size};
    for (size_t i = 0; i < BR_ARRAY_LEN(changes); i++) {
        put("return 1", 8);
        bundle_was_read = changes[i];
        bad(path, geteuid(), BR_E_IN_USE, "changed while it was read");
    }
    put("return 1", 8);
    bundle_was_read = replace; /* another file: what was read is whole, and is what counts */
    bad(path, geteuid(), BR_E_IN_USE, "changed while it was read"); /* its link count did */
    bundle_was_read = NULL;
    good(path, "return 2");
}

/* ---- words ---- */

static const char *home;
static char *env(const char *name)
{
    return strcmp(name, "HOME") == 0 ? (char *)(uintptr_t)home : NULL;
}

static void test_words(void **state)
{
    (void)state;
    struct br_buf b;
    struct br_err err = {.code = BR_OK};
    char found[BR_PATH_MAX];
    assert_int_equal(bundle_open("strict", geteuid(), &b, &err), 0);
    assert_non_null(strstr(br_buf_cstr(&b), "extend = 'strict'"));
    br_buf_free(&b);
    assert_int_equal(bundle_open("stric", geteuid(), &b, &err), -BR_E_USAGE);
    br_buf_free(&b);
    assert_int_equal(bundle_open("default strict", geteuid(), &b, &err), -BR_E_USAGE);
    br_buf_free(&b);
    home = dir;
    assert_int_equal(bundle_find(found, env, &err), 0);
    assert_true(found[0] == '\0' || strcmp(found, "/etc/bridle/policy.lua") == 0);
    put("return 1", 8);
    home = path; /* a file in the way is not there */
    assert_int_equal(bundle_find(found, env, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_owners, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_words, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
