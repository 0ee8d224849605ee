/*
 * The loop: descriptors, timers, nested runs, and what callbacks may do to the loop under it. A
 * program that waits inside a handler depends on all of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/wire.h"

static struct br_loop *loop;
static int a[2], b[2]; /* [0] is watched, [1] is written */

static int setup(void **state)
{
    (void)state;
    loop = br_loop_new();
    assert_non_null(loop);
    assert_int_equal(br_chan_pair(a), 0);
    assert_int_equal(br_chan_pair(b), 0);
    alarm(20); /* a loop that blocks where it must not ends the test */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    alarm(0);
    br_loop_free(&loop);
    for (int i = 0; i < 2; i++) {
        br_close(&a[i]);
        br_close(&b[i]);
    }
    return 0;
}

static void poke(int fd)
{
    assert_int_equal(send(fd, "x", 1, 0), 1);
}

static void drain(int fd)
{
    char c;
    assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), 1);
}

static char trace[64];
static void note(char c)
{
    size_t n = strlen(trace);
    trace[n] = c;
    trace[n + 1] = 0;
}

static bool done;
static int on_a(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)err;
    assert_int_equal(fd, a[0]);
    assert_true(revents & POLLIN);
    assert_ptr_equal(ctx, &done);
    drain(fd);
    note('a');
    done = true;
    return 0;
}

static int timer_note(void *ctx, struct br_err *err)
{
    (void)err;
    note(*(const char *)ctx);
    if (*(const char *)ctx == 'z')
        done = true;
    return 0;
}

static void start(void)
{
    trace[0] = 0;
    done = false;
}

static void serves_a_descriptor(void **state)
{
    (void)state;
    start();
    assert_int_equal(br_loop_watch(loop, a[0], POLLIN, on_a, &done), 0);
    poke(a[1]);
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_string_equal(trace, "a");
    assert_int_equal(br_loop_run(loop, &done, NULL), 0); /* done before it starts: at once */
    done = false;
    uint64_t until = br_now_us() + 30000;
    assert_int_equal(br_loop_run_until(loop, &done, until, NULL), -BR_E_TIMEOUT);
    assert_in_range(br_now_us() - until, 0, 5000000);
    br_loop_unwatch(loop, a[0]);
    poke(a[1]); /* nobody looks any more */
    assert_int_equal(br_loop_run_until(loop, &done, br_now_us() + 10000, NULL), -BR_E_TIMEOUT);
    assert_string_equal(trace, "a");
}

static void timers_fire_in_time_and_once(void **state)
{
    (void)state;
    start();
    char x = 'x', y = 'y', z = 'z';
    uint64_t begin = br_now_us();
    int tz = br_loop_timer(loop, 60000, timer_note, &z);
    int tx = br_loop_timer(loop, 20000, timer_note, &x);
    int ty = br_loop_timer(loop, 30000, timer_note, &y);
    assert_true(tx > 0 && ty > 0 && tz > 0 && tx != ty && ty != tz);
    br_loop_timer_cancel(loop, &ty);
    assert_int_equal(ty, 0);
    br_loop_timer_cancel(loop, &ty); /* 0 is ignored */
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_string_equal(trace, "xz");
    assert_in_range(br_now_us() - begin, 60000, 10000000);
    assert_int_equal(br_loop_run_until(loop, NULL, br_now_us() + 40000, NULL), -BR_E_TIMEOUT);
    assert_string_equal(trace, "xz");
}

static void tables_have_an_end(void **state)
{
    (void)state;
    char z = 'z';
    int ids[64], n = 0;
    while (n < 64 && (ids[n] = br_loop_timer(loop, 1000000000, timer_note, &z)) > 0)
        n++;
    assert_int_equal(n, 32);
    assert_int_equal(ids[n], -BR_E_LIMIT_EXCEEDED);
    br_loop_timer_cancel(loop, &ids[5]);
    assert_true(br_loop_timer(loop, 1000000000, timer_note, &z) > 0);
    int fds[33];
    for (int i = 0; i < 33; i++) {
        fds[i] = dup(a[0]);
        assert_int_equal(br_loop_watch(loop, fds[i], POLLIN, on_a, NULL),
                         i < 32 ? 0 : -BR_E_LIMIT_EXCEEDED);
    }
    assert_int_equal(br_loop_watch(loop, fds[3], POLLIN, on_a, NULL), 0); /* replaced */
    br_loop_unwatch(loop, fds[4]);
    assert_int_equal(br_loop_watch(loop, fds[32], POLLIN, on_a, NULL), 0);
    assert_int_equal(br_loop_watch(loop, -1, POLLIN, on_a, NULL), -BR_E_LIMIT_EXCEEDED);
    for (int i = 0; i < 33; i++)
        close(fds[i]);
}

static int fail_with(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)ctx;
    (void)revents;
    drain(fd);
    return br_err_set(err, BR_E_STORE_FAILED, "because");
}

static void an_error_ends_the_run(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    br_loop_watch(loop, a[0], POLLIN, fail_with, NULL);
    poke(a[1]);
    assert_int_equal(br_loop_run(loop, NULL, &err), -BR_E_STORE_FAILED);
    assert_string_equal(err.text, "because");
}

static int stop_it(void *ctx, struct br_err *err)
{
    (void)ctx;
    (void)err;
    br_loop_stop(loop);
    return 0;
}

static void stop_ends_the_run(void **state)
{
    (void)state;
    br_loop_timer(loop, 1000, stop_it, NULL);
    assert_int_equal(br_loop_run(loop, NULL, NULL), 0);
    br_loop_timer(loop, 1000, stop_it, NULL); /* and it can run again */
    assert_int_equal(br_loop_run(loop, NULL, NULL), 0);
}

/* ---- callbacks that change the loop ---- */

static int drop_both(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)ctx;
    (void)revents;
    (void)err;
    note('d');
    drain(fd);
    br_loop_unwatch(loop, a[0]);
    br_loop_unwatch(loop, b[0]);
    done = true;
    return 0;
}

static void an_unwatched_descriptor_is_not_called(void **state)
{
    (void)state;
    start();
    br_loop_watch(loop, a[0], POLLIN, drop_both, NULL);
    br_loop_watch(loop, b[0], POLLIN, drop_both, NULL);
    poke(a[1]);
    poke(b[1]); /* both are ready in the same poll */
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_string_equal(trace, "d");
}

static int must_not_run(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)ctx;
    (void)fd;
    (void)revents;
    (void)err;
    note('!');
    return 0;
}

static int swap_b(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)ctx;
    (void)revents;
    (void)err;
    drain(fd);
    /* the number of b[0] now means something else, on which nothing has happened */
    int fds[2];
    assert_int_equal(br_chan_pair(fds), 0);
    br_loop_unwatch(loop, b[0]);
    assert_int_equal(dup2(fds[0], b[0]), b[0]);
    close(fds[0]);
    close(fds[1]);
    br_loop_unwatch(loop, a[0]);
    br_loop_watch(loop, b[0], POLLOUT, must_not_run, NULL);
    done = true;
    return 0;
}

static void a_reused_number_is_not_mistaken(void **state)
{
    (void)state;
    start();
    br_loop_watch(loop, a[0], POLLIN, swap_b, NULL);
    br_loop_watch(loop, b[0], POLLIN, must_not_run, NULL);
    poke(a[1]);
    poke(b[1]);
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_string_equal(trace, "");
}

/* ---- nested runs ---- */

static struct br_chan ca, cb;
static bool inner_done;

static int on_b_msg(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)m;
    (void)ctx;
    (void)err;
    note('b');
    inner_done = true;
    return 0;
}

static int on_a_msg(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)m;
    (void)ctx;
    note('(');
    int r = br_loop_run(loop, &inner_done, err);
    note(')');
    done = true;
    return r;
}

static const struct br_msg_rule rules_a[] = {
    {BR_MSG_CTL_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_a_msg},
};
static const struct br_msg_rule rules_b[] = {
    {BR_MSG_CTL_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_b_msg},
};

static void watch_channels(br_chan_end_fn *on_end)
{
    start();
    inner_done = false;
    br_chan_init(&ca, br_steal_fd(&a[0]), "a", rules_a, 1, NULL);
    br_chan_init(&cb, br_steal_fd(&b[0]), "b", rules_b, 1, NULL);
    assert_int_equal(br_loop_watch_chan(loop, &ca, on_end, NULL), 0);
    assert_int_equal(br_loop_watch_chan(loop, &cb, on_end, NULL), 0);
}

static void send_cancel(int fd)
{
    struct br_chan c;
    br_chan_init(&c, fd, "x", NULL, 0, NULL);
    assert_int_equal(br_chan_send(&c, BR_MSG_CTL_CANCEL, 0, NULL, NULL), 0);
}

static void an_inner_run_serves_the_others(void **state)
{
    (void)state;
    watch_channels(NULL);
    send_cancel(a[1]);
    send_cancel(b[1]); /* both ready at once: the inner run takes what the outer poll saw */
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_string_equal(trace, "(b)");
    /* and the outer run does not wait for it on a channel where nothing is left */
    br_chan_close(&ca);
    br_chan_close(&cb);
}

static int ended_code;
static int on_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    (void)ctx;
    note(c == &ca ? 'A' : 'B');
    ended_code = code;
    if (code == -BR_E_PEER_PROTOCOL)
        assert_non_null(err);
    done = true;
    br_chan_close(c);
    return 0;
}

static void the_end_of_a_channel_is_told_once(void **state)
{
    (void)state;
    watch_channels(on_end);
    br_close(&a[1]);
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_int_equal(ended_code, -BR_E_PEER_GONE);
    done = false;
    struct br_chan c;
    br_chan_init(&c, b[1], "x", NULL, 0, NULL);
    assert_int_equal(br_chan_send(&c, BR_MSG_CTL_SHOW, 0, NULL, NULL), 0); /* not permitted */
    assert_int_equal(br_loop_run(loop, &done, NULL), 0);
    assert_int_equal(ended_code, -BR_E_PEER_PROTOCOL);
    assert_string_equal(trace, "AB");
    br_chan_close(&ca);
    br_chan_close(&cb);
}

static void without_on_end_it_ends_the_loop(void **state)
{
    (void)state;
    struct br_err err = {.code = BR_OK};
    watch_channels(NULL);
    br_close(&b[1]);
    assert_int_equal(br_loop_run(loop, &done, &err), -BR_E_PEER_GONE);
    assert_string_equal(err.text, "'b' has gone");
    /* it is not watched any more: what remains goes on */
    inner_done = true;
    send_cancel(a[1]);
    assert_int_equal(br_loop_run(loop, &done, &err), 0);
    br_chan_close(&ca);
    br_chan_close(&cb);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(serves_a_descriptor),
        T(timers_fire_in_time_and_once),
        T(tables_have_an_end),
        T(an_error_ends_the_run),
        T(stop_ends_the_run),
        T(an_unwatched_descriptor_is_not_called),
        T(a_reused_number_is_not_mistaken),
        T(an_inner_run_serves_the_others),
        T(the_end_of_a_channel_is_told_once),
        T(without_on_end_it_ends_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
