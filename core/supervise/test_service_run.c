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
#include <sys/socket.h>
#include <unistd.h>

#include "supervise/service.h"

static uint64_t now_us;
static struct service sv;
static struct standing st;
static struct service_settings settings;
static unsigned kills, hang_ups, ended, started;
static int theirs = -1;  /* the end of a channel that its bridled has */
static uint64_t tick_us; /* when the next one is wanted; 0: it is not */
static char ended_why[BR_ERR_TEXT_MAX];
static struct run *run;

static uint64_t mono(void)
{
    return now_us;
}

/* ---- what service_run.c calls ---- */

int kid_start_private(struct service *s, struct kid *k, const struct br_msg_rule *rules,
                      unsigned nrules, kid_ended_fn *fn, struct br_err *err)
{
    int ends[2];
    (void)err;
    assert_int_equal(br_chan_pair(ends), 0);
    *k = (struct kid){.sv = s, .name = "bridled", .pid = 1234567, .pidfd = -1, .ended = fn};
    br_chan_init(&k->chan, ends[0], "bridled", rules, nrules, k);
    theirs = ends[1];
    return 0;
}

void kid_kill(struct kid *k)
{
    (void)k;
    kills++;
}

void kid_hang_up(struct kid *k)
{
    br_chan_close(&k->chan);
    hang_ups++;
}

void kid_discard(struct kid *k)
{
    k->pid = 0;
}

void kid_release(struct kid *k)
{
    br_chan_close(&k->chan);
    k->pid = 0;
}

bool gate_send(struct service *s, enum br_msg_type type, uint64_t id, const struct br_out *o)
{
    (void)s, (void)id, (void)o;
    started += type == BR_MSG_GATE_STARTED;
    return true;
}

void gate_ended(struct run *r)
{
    snprintf(ended_why, sizeof(ended_why), "%s", r->text);
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
    kills = hang_ups = ended = started = 0;
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
    br_close(&theirs);
    br_world_set(&none);
    return 0;
}

/* What was checked is forgotten when it is canceled; but not at the end of all, where its GATE_RUN
 * may be on its way, unless that gateway is gone. */
static void test_checked_at_the_end(void **state)
{
    (void)state;
    char id[BR_ID_MAX];
    strcpy(id, run->id);
    sv.draining = true;
    runs_cancel(&sv, false, "the gateway ended");
    runs_cancel(&sv, true, "the service stopped");
    assert_ptr_equal(run_find(&sv, id), run);
    assert_int_equal(run->state, RUN_CHECKED);
    assert_int_equal(runs_live(&sv), 0); /* nobody waits for it */
    run->state = RUN_WAITING;            /* GATE_RUN came */
    run_cancel(run, false, BR_E_CANCELED, "a client canceled the run");
    assert_int_equal(ended, 1);
    assert_null(run_find(&sv, id));
    for (unsigned i = 0; i < 2; i++) {
        run = run_new(&sv);
        run->state = RUN_CHECKED;
        run->told = sv.draining = i;
        runs_cancel(&sv, false, "the gateway ended");
        assert_null(sv.runs);
    }
    assert_int_equal(ended, 1);
}

static void on_nothing(struct kid *k, int status)
{
    (void)k, (void)status;
}

/* It was let go of and does not end: after a minute it is ended, and what it left is swept. */
static void test_hangs(void **state)
{
    (void)state;
    run->state = RUN_RUNNING;
    (void)kid_start_private(&sv, &run->kid, NULL, 0, NULL, NULL);
    run_cancel(run, false, BR_E_CANCELED, "a client canceled the run");
    pass(600u * 1000000u);
    assert_int_equal(kills, 0); /* asked to, it may take its time */
    run_cancel(run, true, BR_E_CANCELED, "too late");
    assert_int_equal(hang_ups, 1);
    pass(30u * 1000000u);
    run_cancel(run, true, BR_E_CANCELED, "too late"); /* which gives it no more time */
    pass(30u * 1000000u);
    assert_int_equal(kills, 0);
    pass(1000000u);
    assert_true(kills > 0);
    assert_int_equal(hang_ups, 1);
    assert_int_equal(ended, 0);
    assert_int_equal(run->state, RUN_RUNNING); /* until its end was heard of */
}

/* Why it was canceled first is told to its bridled, and is how it ended if nobody said more. */
static void test_cause(void **state)
{
    char id[BR_ID_MAX], message[BR_MSG_MAX] = "";
    (void)state;
    strcpy(id, run->id);
    run->state = RUN_RUNNING;
    (void)kid_start_private(&sv, &run->kid, NULL, 0, on_nothing, NULL);
    run_cancel(run, true, BR_E_PROGRAM_DIED, "the record of the run broke off");
    run_cancel(run, true, BR_E_CANCELED, "the service stopped");
    ssize_t n = recv(theirs, message, sizeof(message), MSG_DONTWAIT);
    assert_true(n > 0 && memmem(message, (size_t)n, "the record of the run broke off", 31));
    assert_true(recv(theirs, message, sizeof(message), MSG_DONTWAIT) <= 0); /* once */
    assert_int_equal(run->cause.code, BR_E_PROGRAM_DIED);
    run->state = RUN_WAITING; /* and of one that never ran */
    run->cause.code = BR_OK;
    run_cancel(run, false, BR_E_CANCELED, "the service stopped");
    assert_int_equal(ended, 1);
    assert_string_equal(ended_why, "the service stopped");
    assert_null(run_find(&sv, id));
}

/* Its gateway died before it began: the one that came after does not know it. */
static void test_starts_for_another(void **state)
{
    (void)state;
    for (unsigned told = 0; told < 2; told++) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        struct br_chan c;
        struct br_err err = {.code = BR_OK};
        if (told) {
            teardown(state);
            setup(state);
        }
        run_queue(run);
        assert_int_equal(run->state, RUN_RUNNING);
        run->told = told;
        br_chan_init(&c, theirs, "service", NULL, 0, NULL);
        br_buf_put_str(&o.buf, run->id);
        br_buf_put_str(&o.buf, "m");
        br_buf_put_u8(&o.buf, 1);
        br_out_fd(&o, STDIN_FILENO, false);
        br_out_fd(&o, STDIN_FILENO, false);
        assert_int_equal(br_chan_send(&c, BR_MSG_CTL_STARTED, 0, &o, &err), 0);
        assert_int_equal(br_chan_dispatch(&run->kid.chan, &err), 0);
        assert_int_equal(started, !told);
        char message[BR_MSG_MAX];
        assert_true(read(theirs, message, sizeof(message)) > 0); /* CTL_RUN */
        bool canceled = recv(theirs, message, sizeof(message), MSG_DONTWAIT) > 0;
        assert_int_equal(canceled, told);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_checked_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cause, setup, teardown),
        cmocka_unit_test_setup_teardown(test_starts_for_another, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
