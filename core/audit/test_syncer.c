/*
 * The thread that waits for the disk: each request is answered once, with what the disk said, and
 * nothing is left of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "audit/syncer.h"
#include "base/test_tools.h"

/* It says when it is over, and not before; it ends with what was begun. */
static void it_tells_the_end(void **state)
{
    (void)state;
    unsigned before = test_open_fds();
    struct br_syncer *syncer = br_syncer_new();
    int result = -1, pipe_fds[2];
    assert_non_null(syncer);
    struct pollfd look = {.fd = br_syncer_fd(syncer), .events = POLLIN};
    assert_int_equal(poll(&look, 1, 0), 0);
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "text", 4) == 4);
    for (unsigned i = 0; i < 100; i++) {
        br_syncer_begin(syncer, i % 3 ? fd : pipe_fds[0]);
        if (i % 2) {
            assert_int_equal(poll(&look, 1, 10000), 1);
            assert_true(br_syncer_end(syncer, false, &result));
        } else {
            assert_true(br_syncer_end(syncer, true, &result));
        }
        assert_int_equal(result, i % 3 ? 0 : EINVAL);
        assert_int_equal(poll(&look, 1, 0), 0);
    }
    br_syncer_begin(syncer, fd);
    br_syncer_free(&syncer);
    br_close(&fd);
    br_close(&pipe_fds[0]);
    br_close(&pipe_fds[1]);
    assert_int_equal(test_open_fds(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_tells_the_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
