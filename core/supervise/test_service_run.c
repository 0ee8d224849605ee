/*
 * Runs of a service whose own bridled does not do what it should: the programs around them, and the
 * time, are played here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "supervise/service.h"

static uint64_t now_us;
static struct service sv;
static struct standing st;
static struct service_settings settings;
static unsigned kills, hang_ups, ended;
static uint64_t tick_us; /* when the next one is wanted; 0: it is not */
static struct run *run;

static uint64_t mono(void)
{
    return now_us;
}

/* ---- what service_run.c calls ---- */

int kid_start_private(struct service *s, struct kid *k, const struct br_msg_rule *rules,
                      unsigned nrules, kid_ended_fn *fn, struct br_err *err)
{
    (void)err;
    *k = (struct kid){.sv = s, .name = "bridled", .pid = 1234567, .pidfd = -1, .ended = fn};
    br_chan_init(&k->chan, -1, "bridled", rules, nrules, k);
    return 0;
}

void kid_kill(struct kid *k)
{
    (void)k;
    kills++;
}

void kid_hang_up(struct kid *k)
{
    (void)k;
    hang_ups++;
}

void kid_discard(struct kid *k)
{
    k->pid = 0;
}

void kid_release(struct kid *k)
{
    k->pid = 0;
}

bool gate_send(struct service *s, enum br_msg_type type, uint64_t id, const struct br_out *o)
{
    (void)s, (void)type, (void)id, (void)o;
    return true;
}

void gate_ended(struct run *r)
{
    (void)r;
    ended++;
}

void service_tick(struct service *s, uint64_t us)
{
    (void)s;
    if (!tick_us || now_us + us < tick_us)
        tick_us = now_us + us;
}

void service_check_end(struct service *s)
{
    (void)s;
}

bool orphans_reap(struct service *s)
{
    (void)s;
    return false;
}

void orphans_kill(struct service *s)
{
    (void)s;
}

/* ---- */

/* The ticks that were asked for, and no others. */
static void pass(uint64_t us)
{
    uint64_t until = now_us + us;
    while (tick_us && tick_us <= until) {
        now_us = tick_us;
        tick_us = 0;
        runs_tick(&sv);
    }
    now_us = until;
}

static int setup(void **state)
{
    static const struct br_world world = {.mono_us = mono};
    (void)state;
    br_world_set(&world);
    now_us = 1000000;
    tick_us = 0;
    kills = hang_ups = ended = 0;
    memset(&sv, 0, sizeof(sv));
    settings.c.s.running = 1;
    sv.st = &st;
    sv.now = &settings;
    run = run_new(&sv);
    assert_non_null(run);
    run->workspace = strdup("/w");
    run->root = strdup("/");
    run->state = RUN_CHECKED;
    return 0;
}

static int teardown(void **state)
{
    static const struct br_world none = {NULL};
    (void)state;
    while (sv.runs)
        run_free(sv.runs);
    br_world_set(&none);
    return 0;
}

/* It was let go of and does not end: after a minute it is ended, and what it left is swept. */
static void test_hangs(void **state)
{
    (void)state;
    run->state = RUN_RUNNING;
    (void)kid_start_private(&sv, &run->kid, NULL, 0, NULL, NULL);
    run_cancel(run, false);
    pass(600u * 1000000u);
    assert_int_equal(kills, 0); /* asked to, it may take its time */
    run_cancel(run, true);
    assert_int_equal(hang_ups, 1);
    pass(30u * 1000000u);
    run_cancel(run, true); /* which gives it no more time */
    pass(30u * 1000000u);
    assert_int_equal(kills, 0);
    pass(1000000u);
    assert_true(kills > 0);
    assert_int_equal(hang_ups, 1);
    assert_int_equal(ended, 0);
    assert_int_equal(run->state, RUN_RUNNING); /* until its end was heard of */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
