/*
 * Tests of the store: a store in a directory of its own, whose events are {"n":1}, {"n":2} and so
 * on. Behind cmocka.h.
 */
#ifndef BR_TEST_STORE_RIG_H
#define BR_TEST_STORE_RIG_H

#include <fcntl.h>
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

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
    struct place *p = *state;
    close(p->fd);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(test_remove_tree(p->dir), 0);
    free(p);
    return 0;
}

static inline struct br_store *opened(int fd)
{
    struct br_store *s = NULL;
    struct br_err err = {.code = BR_OK};
    if (br_store_open(fd, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static inline struct br_store_run new_run(struct br_store *s, const char *id)
{
    struct br_store_info info = {.started_us = 5, .model = "m", .workspace = "/w", .goal = "g"};
    struct br_store_run run;
    snprintf(info.run_id, sizeof(info.run_id), "%s", id);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_run(s, &info, &run, NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
    return run;
}

static inline int add_event(struct br_store *s, struct br_store_run *run, const char *body,
                            struct br_err *err)
{
    return br_store_add_event(s, run, body, strlen(body), err);
}

static inline void add_events(struct br_store *s, struct br_store_run *run, unsigned n)
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
static inline int read_all(struct br_store *s, const char *id)
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

#endif
