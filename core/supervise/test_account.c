/*
 * The page of a provider lease's account, made by bridled: it has its room on the disk before
 * anybody maps it, and where there is none, there is no page and no run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/supervise_priv.h"
#include "wire/account.h"

static char dir[64];
static struct supervisor s;

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-account-XXXXXX");
    assert_non_null(mkdtemp(dir));
    s.store_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(s.store_fd >= 0);
    strcpy(s.run_id, "run_x");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_close(&s.store_fd);
    return br_scratch_remove(dir);
}

static void test_room(void **state)
{
    struct br_err err = {.code = BR_OK};
    struct stat st;
    (void)state;
    int fd = account_open(&s, &err);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, BR_ACCOUNT_PAGE);
    assert_true(st.st_blocks * 512 >= BR_ACCOUNT_PAGE);
    br_close(&fd);
    assert_int_equal(account_open(&s, &err), -BR_E_STORE_FAILED); /* of another run */
    assert_int_equal(fstatat(s.store_fd, BR_ACCOUNT_DIR "/run_x", &st, 0), 0);
}

static void test_no_room(void **state)
{
    struct br_err err = {.code = BR_OK};
    struct rlimit was, less;
    struct stat st;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    less = was;
    less.rlim_cur = BR_ACCOUNT_PAGE - 1;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    int fd = account_open(&s, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(fd, -BR_E_STORE_FAILED);
    assert_int_equal(fstatat(s.store_fd, BR_ACCOUNT_DIR "/run_x", &st, 0), -1);
    fd = account_open(&s, &err); /* and with room it is made */
    assert_true(fd >= 0);
    br_close(&fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
