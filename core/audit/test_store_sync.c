/*
 * When a commit is on disk: what is synced in the background is told once, and a failure is told to
 * everybody.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/test_store_rig.h"

/* What was committed later is there for readers, who bring it to the disk; the end of a sync in the
 * background is told once. */
static void test_sync_in_the_background(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd), *reader = opened(p->fd);
    struct br_syncer *syncer = br_syncer_new();
    struct br_store_run run = new_run(s, "run_a");
    assert_int_equal(br_store_sync_begin(s, NULL), 0); /* nobody is there for it */
    br_store_use(s, syncer);
    for (unsigned i = 0; i < 20; i++) {
        char body[64];
        snprintf(body, sizeof(body), "{\"n\":%u}", i + 1);
        assert_int_equal(br_store_begin(s, NULL), 0);
        assert_int_equal(add_event(s, &run, body, NULL), 0);
        assert_int_equal(br_store_commit_later(s, NULL), 0);
        assert_int_equal(br_store_sync_begin(s, NULL), 1);
        if (i % 2) /* the next is committed meanwhile */
            assert_int_equal(read_all(reader, "run_a"), (int)i + 1);
        assert_int_equal(br_store_sync_end(s, true, NULL), 0);
        assert_int_equal(br_store_sync(s, NULL), 0);
    }
    assert_int_equal(read_all(reader, "run_a"), 20);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_commit_later(s, NULL), 0);
    assert_int_equal(br_store_sync_begin(s, NULL), 1);
    br_store_close(&s); /* with one under way */
    br_store_close(&reader);
    br_syncer_free(&syncer);
}

/* A sync that has failed is not made good by one that says nothing of it. */
static void test_sync_failed(void **state)
{
    struct place *p = *state;
    int pipe_fds[2];
    struct br_syncer *syncer = br_syncer_new();
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    for (unsigned background = 0; background < 2; background++) {
        struct br_store *s = opened(p->fd);
        br_store_use(s, syncer);
        struct br_store_run run = new_run(s, background ? "run_b" : "run_a");
        add_events(s, &run, 1);
        assert_int_equal(br_store_sync(s, NULL), 0);
        int log = s->log_fd;
        s->log_fd = pipe_fds[0]; /* which cannot be synced */
        int r = background ? br_store_sync_begin(s, NULL) : br_store_sync(s, NULL);
        assert_int_equal(r, background ? 1 : -BR_E_STORE_FAILED);
        r = background ? br_store_sync_end(s, true, NULL) : r;
        assert_int_equal(r, -BR_E_STORE_FAILED);
        s->log_fd = log;
        assert_int_equal(br_store_sync(s, NULL), -BR_E_STORE_FAILED);
        assert_int_equal(br_store_sync_begin(s, NULL), -BR_E_STORE_FAILED);
        br_store_close(&s);
    }
    /* one is told of it, whoever else has asked meanwhile: that holds for both */
    for (unsigned waiting = 0; waiting < 2; waiting++) {
        struct br_store *s = opened(p->fd);
        br_store_use(s, syncer);
        assert_int_equal(br_store_sync(s, NULL), 0);
        int log = s->log_fd;
        s->log_fd = waiting ? log : pipe_fds[0];
        assert_int_equal(br_store_sync_begin(s, NULL), 1);
        struct pollfd look = {.fd = br_store_sync_fd(s), .events = POLLIN};
        assert_int_equal(poll(&look, 1, 10000), 1);
        s->log_fd = waiting ? pipe_fds[0] : log;
        assert_int_equal(br_store_sync(s, NULL), -BR_E_STORE_FAILED);
        s->log_fd = log;
        assert_int_equal(poll(&look, 1, 0), 1); /* it is still to be told */
        assert_int_equal(br_store_sync_end(s, false, NULL), -BR_E_STORE_FAILED);
        br_store_close(&s);
    }
    br_close(&pipe_fds[0]);
    br_close(&pipe_fds[1]);
    br_syncer_free(&syncer);
    struct br_store *s = opened(p->fd); /* another program begins anew */
    assert_int_equal(br_store_sync(s, NULL), 0);
    br_store_close(&s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_sync_in_the_background),
        T(test_sync_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
