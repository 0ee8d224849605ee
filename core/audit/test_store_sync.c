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

#include "audit/store_priv.h"
#include "base/test_tools.h"

struct place {
    char dir[64];
    int fd;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    umask(077);
    snprintf(p->dir, sizeof(p->dir), "/tmp/bridle-store-test-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->fd >= 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    close(p->fd);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(test_remove_tree(p->dir), 0);
    free(p);
    return 0;
}

static struct br_store *opened(int fd)
{
    struct br_store *s = NULL;
    struct br_err err = {.code = BR_OK};
    if (br_store_open(fd, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static struct br_store_run new_run(struct br_store *s, const char *id)
{
    struct br_store_info info = {.started_us = 5, .model = "m", .workspace = "/w", .goal = "g"};
    struct br_store_run run;
    snprintf(info.run_id, sizeof(info.run_id), "%s", id);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_run(s, &info, &run, NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
    return run;
}

static int add_event(struct br_store *s, struct br_store_run *run, const char *body,
                     struct br_err *err)
{
    return br_store_add_event(s, run, body, strlen(body), err);
}

static void add_events(struct br_store *s, struct br_store_run *run, unsigned n)
{
    char body[64];
    assert_int_equal(br_store_begin(s, NULL), 0);
    for (unsigned i = 0; i < n; i++) {
        snprintf(body, sizeof(body), "{\"n\":%llu}", (unsigned long long)run->rows + 1);
        assert_int_equal(add_event(s, run, body, NULL), 0);
    }
    assert_int_equal(br_store_commit(s, NULL), 0);
}

/* Reads all rows with their hashes; returns how many, or the failure. */
static int read_all(struct br_store *s, const char *id)
{
    struct br_store_info info;
    struct br_store_run run;
    struct br_buf body = BR_BUF_INIT(BR_EVENT_MAX);
    int n = 0, r = br_store_find(s, id, &info, NULL);
    if (r < 0)
        return r;
    br_store_rewind(&info, &run);
    while ((r = br_store_next_event(s, &run, &body, NULL)) == 1) {
        char want[64];
        snprintf(want, sizeof(want), "{\"n\":%d}", ++n);
        assert_string_equal(br_buf_cstr(&body), want);
        br_buf_reset(&body);
    }
    br_buf_free(&body);
    return r < 0 ? r : n;
}

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
