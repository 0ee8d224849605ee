/*
 * bridle-audit as a whole: what is appended is redacted, stored, and only then shown; what cannot
 * be is refused and ends the run; the end of a record is consistent whoever dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/test_harness.h"

#define ALL (H_SESSION | H_CLIENT | H_EGRESS)

static int setup(void **state)
{
    struct harness *h = malloc(sizeof(*h));
    h_init(h);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    h_free(*state);
    free(*state);
    return 0;
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in %s", part, text);
}

static void test_append_is_stored_and_shown(void **state)
{
    struct harness *h = *state;
    h_record(h, ALL, "run_1");
    h_good(h, "session.created", "{\"workspace\":\"/w\",\"sessionId\":\"ses_1\"}");
    assert_int_equal(h->m.row, 1);
    char id[BR_ID_MAX], want[128];
    snprintf(id, sizeof(id), "%s", h->m.text);
    const char *e = h_event(h);
    assert_int_equal(h->m.row, 1);
    snprintf(want, sizeof(want),
             "{\"v\":1,\"type\":\"session.created\",\"eventId\":\"%s\",\"at\":\"", id);
    assert_memory_equal(e, want, strlen(want));
    assert_has(e, ",\"actor\":\"kernel\",\"data\":{\"sessionId\":\"ses_1\",\"workspace\":\"/w\"}}");
    h_send_close(h, BR_OK, "completed", "", 0);
    assert_has(h_event(h), "\"type\":\"agent.stopped\"");
    h_expect(h, &h->client, BR_MSG_EVENTS_END);
    assert_int_equal(h->m.code, 0);
    h_expect(h, &h->sup, BR_MSG_AUDIT_CLOSED);
    assert_int_equal(h->m.code, 0);
    assert_string_equal(h->m.status, "completed");
    assert_int_equal(h_wait(h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_append_is_stored_and_shown, setup, teardown),
    };
    return cmocka_run_group_tests_name("audit_program", tests, NULL, NULL);
}
