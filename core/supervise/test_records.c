/*
 * Records of the state directory: what is written is what is read, a torn or foreign one is
 * neither.
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
#include <unistd.h>

#include "supervise/records.h"

static char dir_path[64];

static int open_dir(void)
{
    snprintf(dir_path, sizeof(dir_path), "/tmp/bridle-records.XXXXXX");
    assert_non_null(mkdtemp(dir_path));
    int fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void close_dir(int fd)
{
    char line[128];
    close(fd);
    snprintf(line, sizeof(line), "rm -rf %s", dir_path);
    assert_int_equal(system(line), 0); /* NOLINT(cert-env33-c) */
}

static void test_values(void **state)
{
    (void)state;
    static const char *const values[] = {"",   "x",    "a b",  " a",       "a\nb",
                                         "\\", "a\\n", "\n\n", "ends \\\n"};
    char got[64];
    for (size_t i = 0; i < BR_ARRAY_LEN(values); i++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(RECORD_MAX);
        record_put(&b, "before", "name other");
        record_put(&b, "name", values[i]);
        record_put_u64(&b, "number", 1234567890123u);
        const char *text = br_buf_cstr(&b);
        assert_true(record_get(text, "name", got, sizeof(got)));
        assert_string_equal(got, values[i]);
        assert_int_equal(record_get_u64(text, "number", 7), 1234567890123u);
        assert_int_equal(record_get_u64(text, "name", 7), 7);
        assert_int_equal(record_get_u64(text, "missing", 7), 7);
        assert_false(record_get(text, "missing", got, sizeof(got)));
        assert_string_equal(got, "");
    }
    assert_true(record_get("n 123\n", "n", got, 4));
    assert_false(record_get("n 1234\n", "n", got, 4)); /* one more than fits */
    assert_int_equal(record_get_u64("n 99999999999999999999\n", "n", 7), 7);
    assert_int_equal(record_get_u64("n -1\n", "n", 7), 7);
    assert_int_equal(record_get_u64("n 1x\n", "n", 7), 7);
    assert_int_equal(record_get_u64("n 1", "n", 7), 7); /* cut */
}

static void test_names(void **state)
{
    (void)state;
    char name[80];
    memset(name, 'a', sizeof(name));
    name[63] = 0;
    assert_true(record_name_ok(name));
    name[63] = 'a';
    name[64] = 0;
    assert_false(record_name_ok(name));
    assert_true(record_name_ok("run_01ab-Z"));
    static const char *const bad[] = {"", ".", "..", "a/b", ".a", "a.b", "a b", "a\n"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_false(record_name_ok(bad[i]));
}

static void test_files(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(RECORD_MAX);
    struct br_buf got;
    int dir = open_dir();
    record_put(&b, "name", "value");
    assert_int_equal(record_read(dir, "one", &got, &err), -BR_E_NOT_FOUND);
    br_buf_free(&got);
    assert_int_equal(record_read(dir, "../one", &got, &err), -BR_E_NOT_FOUND);
    br_buf_free(&got);
    assert_int_equal(record_write(dir, "../one", &b, &err), -BR_E_STORE_FAILED);
    for (int i = 0; i < 2; i++) { /* and in the place of one */
        assert_int_equal(record_write(dir, "one", &b, &err), 0);
        assert_int_equal(record_read(dir, "one", &got, &err), 0);
        assert_string_equal((char *)got.data, "name value\n");
        br_buf_free(&got);
    }
    /* what others may write, a link, a directory, and what is no text */
    assert_int_equal(fchmodat(dir, "one", 0622, 0), 0);
    assert_int_equal(record_read(dir, "one", &got, &err), -BR_E_STORE_FAILED);
    br_buf_free(&got);
    assert_int_equal(fchmodat(dir, "one", 0600, 0), 0);
    assert_int_equal(symlinkat("one", dir, "link"), 0);
    assert_int_equal(record_read(dir, "link", &got, &err), -BR_E_STORE_FAILED);
    br_buf_free(&got);
    assert_int_equal(mkdirat(dir, "dir", 0700), 0);
    assert_int_equal(record_read(dir, "dir", &got, &err), -BR_E_STORE_FAILED);
    br_buf_free(&got);
    int fd = openat(dir, "one", O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "", 1), 1);
    close(fd);
    assert_int_equal(record_read(dir, "one", &got, &err), -BR_E_STORE_FAILED);
    br_buf_free(&got);
    close_dir(dir);
}

static void test_dir(void **state)
{
    (void)state;
    int dir = open_dir();
    assert_int_equal(record_dir(dir, "sub", false), -1);
    int sub = record_dir(dir, "sub", true);
    assert_true(sub >= 0);
    close(sub);
    assert_int_equal(fchmodat(dir, "sub", 0777, 0), 0);
    assert_int_equal(record_dir(dir, "sub", true), -1);
    assert_int_equal(symlinkat("/tmp", dir, "out"), 0);
    assert_int_equal(record_dir(dir, "out", true), -1);
    assert_int_equal(record_dir(-1, "sub", true), -1);
    close_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
