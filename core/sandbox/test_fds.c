/*
 * Descriptors in a message: as many as a plan can have, none, and one more than the receiver takes.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "sandbox/fds.h"

/* Send `sent` of them to one who takes `max`: what br_fds_receive() says. */
static ssize_t pass(unsigned sent, unsigned max, unsigned *got)
{
    int pair[2], out[BR_BOX_FDS_MAX], in[BR_BOX_FDS_MAX];
    char word = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (unsigned i = 0; i < sent; i++)
        out[i] = pair[i % 2];
    assert_int_equal(br_fds_send(pair[0], "w", 1, out, sent), 0);
    ssize_t r = br_fds_receive(pair[1], &word, 1, 0, in, max, got);
    int saved = errno;
    for (unsigned i = 0; i < *got; i++) {
        assert_int_equal(fcntl(in[i], F_GETFD), FD_CLOEXEC);
        close(in[i]);
    }
    assert_true(r < 0 || word == 'w');
    close(pair[0]);
    close(pair[1]);
    errno = saved;
    return r;
}

static void all_or_none_arrive(void **state)
{
    (void)state;
    unsigned got = 1, before = test_open_fds();
    assert_int_equal(pass(0, 3, &got), 1);
    assert_int_equal(got, 0);
    assert_int_equal(pass(BR_BOX_FDS_MAX, BR_BOX_FDS_MAX, &got), 1);
    assert_int_equal(got, BR_BOX_FDS_MAX);
    for (unsigned max = 2; max <= 5; max++) { /* an odd number leaves room for one more */
        assert_int_equal(pass(max, max, &got), 1);
        assert_int_equal(got, max);
        assert_int_equal(pass(max + 1, max, &got), -1);
        assert_int_equal(errno, EMSGSIZE);
        assert_int_equal(got, 0);
    }
    assert_int_equal(test_open_fds(), before);
}

static void the_end_and_nothing_yet_are_told_apart(void **state)
{
    (void)state;
    int pair[2], fds[1];
    unsigned got;
    char word;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(br_fds_receive(pair[0], &word, 1, MSG_DONTWAIT, fds, 1, &got), -1);
    assert_int_equal(errno, EAGAIN);
    close(pair[1]);
    assert_int_equal(br_fds_receive(pair[0], &word, 1, 0, fds, 1, &got), 0);
    assert_int_equal(br_fds_send(pair[0], "w", 1, fds, 0), -1); /* and no signal */
    assert_int_equal(errno, EPIPE);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_or_none_arrive),
        cmocka_unit_test(the_end_and_nothing_yet_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
