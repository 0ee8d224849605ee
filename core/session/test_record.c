/*
 * What belongs together is recorded together, in order; nothing waits to be recorded while
 * something else is waited for. The audit is the rig's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/test_rig.h"

static const struct session_rig_options options = {.mode = BR_RUN_AGENT};

static int setup(void **state)
{
    struct session_rig *r = calloc(1, sizeof(*r));
    session_rig_open(r, &options);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    session_rig_close(*state);
    free(*state);
    return 0;
}

static json_t *notice(size_t n)
{
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = 0;
    json_t *data = json_pack("{s:s, s:s}", "code", "X", "message", text);
    free(text);
    return data;
}

static int ahead(struct session *s, size_t n)
{
    return session_record_ahead(s, "bridle.notice", "kernel", notice(n));
}

static int record(struct session *s, const char *type)
{
    return session_record(s, type, "kernel", notice(1));
}

static void together(void **state)
{
    struct session_rig *r = *state;
    assert_int_equal(ahead(&r->s, 1), 0);
    assert_int_equal(session_record_ahead(&r->s, "bridle.run", "kernel", notice(1)), 0);
    assert_int_equal(r->seen->events, 0);
    assert_int_equal(record(&r->s, "bridle.votes"), 0);
    assert_int_equal(r->seen->events, 3);
    assert_int_equal(r->seen->appends, 1);
    assert_string_equal(r->seen->types, "bridle.notice\nbridle.run\nbridle.votes\n");
    assert_int_equal(record(&r->s, "bridle.votes"), 0); /* nothing is sent twice */
    assert_int_equal(r->seen->events, 4);
    assert_int_equal(r->seen->appends, 2);
}

/* As many as one message takes; a large one travels alone, behind those before it. */
static void not_more_than_fits(void **state)
{
    struct session_rig *r = *state;
    for (unsigned i = 0; i < BR_APPEND_MAX; i++)
        assert_int_equal(ahead(&r->s, 1), 0);
    assert_int_equal(r->seen->appends, 0);
    assert_int_equal(record(&r->s, "bridle.run"), 0);
    assert_int_equal(r->seen->appends, 2);
    assert_int_equal(r->seen->events, BR_APPEND_MAX + 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ahead(&r->s, 15000), 0);
    assert_int_equal(record(&r->s, "bridle.run"), 0);
    assert_int_equal(r->seen->appends, 4);
    assert_int_equal(ahead(&r->s, 1), 0);
    assert_int_equal(ahead(&r->s, 100000), 0);
    assert_int_equal(r->seen->appends, 6);
    assert_int_equal(record(&r->s, "bridle.run"), 0);
    assert_int_equal(r->seen->appends, 7);
    assert_int_equal(r->seen->events, BR_APPEND_MAX + 1 + 4 + 3);
}

/* One that cannot be written ends the run; those before it are recorded all the same. */
static void what_cannot_be_written(void **state)
{
    struct session_rig *r = *state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ahead(&r->s, 1), 0);
        assert_int_equal(
            (i ? session_record : session_record_ahead)(&r->s, "bridle.run", "kernel", NULL),
            -BR_E_EVENT_SCHEMA);
        assert_int_equal(r->s.stop_code, -BR_E_EVENT_SCHEMA);
        assert_int_equal(r->seen->events, i + 1);
        assert_int_equal(r->s.nevents, 0);
    }
}

/* It is a mistake in the session's own code, which ends the program. */
static void nothing_else_is_waited_for(void **state)
{
    struct session_rig *r = *state;
    for (unsigned i = 0; i < 2; i++) {
        int status;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            const struct rlimit none = {0, 0};
            bool done = true;
            (void)setrlimit(RLIMIT_CORE, &none);
            r->s.nevents = i; /* 0: the control */
            _exit(session_wait(&r->s, &done, 1000, false) ? 1 : 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(i ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT : status == 0);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(together),
        T(not_more_than_fits),
        T(what_cannot_be_written),
        T(nothing_else_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
