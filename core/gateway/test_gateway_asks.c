/*
 * Questions and answers, and what the extension adds to them: who may answer, once, for what; and
 * what everybody else is told. The ledger that decides is the real one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_strict.h"

static int setup(void **state)
{
    *state = world_new();
    return 0;
}

static int teardown(void **state)
{
    struct gateway *g = *state;
    return world_free(&g) ? 0 : -1;
}

static void respond(struct gateway *g, struct conn *c, const char *session, const char *permission,
                    const char *more)
{
    world_say(g, c,
              "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"permission/respond\",\"params\":{"
              "\"sessionId\":\"%s\",\"permissionId\":\"%s\",%s}}",
              session, permission, more);
}

#define ALLOW "\"decision\":\"allow\""
#define DENY "\"decision\":\"deny\""
#define ACCEPTED RESULT("5", "{\"accepted\":true}")

static void asked(struct gateway *g, struct conn *c, struct run *r, bool run, char id[BR_ID_MAX])
{
    uint64_t seq = r->seq;
    world_ask(g, r, "c1", run, id);
    hears_event(c, r->id, seq, "permission.requested");
}

static void test_answers(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = running(g, c);
    char id[BR_ID_MAX];
    for (unsigned allow = 0; allow < 2; allow++) {
        asked(g, c, r, true, id);
        assert_int_equal(g->counters.asks_open, 1);
        respond(g, c, r->id, id, allow ? ALLOW ",\"note\":\"go\"" : DENY ",\"note\":\"\"");
        hears(c, ACCEPTED);
        assert_string_equal(r->last_who, "uid:1000");
        assert_string_equal(r->last_note, allow ? "go" : "");
        assert_int_equal(br_ledger_state(r->ledger, id), allow ? BR_ASK_ALLOWED : BR_ASK_DENIED);
        /* a plain yes is a yes to this once, whatever was offered */
        assert_int_equal(br_ledger_scope(r->ledger, id), BR_SCOPE_ONCE);
        /* the second is late, before and after the record says so */
        respond(g, c, r->id, id, allow ? DENY : ALLOW);
        refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
        world_resolved(g, r, "c1", id);
        hears_event(c, r->id, r->seq - 1, "permission.resolved");
        assert_int_equal(g->counters.asks_open, 0);
        unsigned answers = r->answers;
        respond(g, c, r->id, id, ALLOW);
        refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
        assert_int_equal(r->answers, answers); /* it went nowhere */
        assert_int_equal(br_ledger_state(r->ledger, id), allow ? BR_ASK_ALLOWED : BR_ASK_DENIED);
    }
    assert_int_equal(g->counters.asks_allowed, 1);
    assert_int_equal(g->counters.asks_denied, 1);
    world_end(g, r, "completed");
    hears_event(c, r->id, r->seq - 1, "agent.stopped");
    hears_answer(c, 2);
    respond(g, c, r->id, id, ALLOW); /* the session is over, and its questions are known */
    refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
}

static void test_wrong_answers(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g), *other = client(g);
    struct run *a = running(g, c), *b = running(g, c), *theirs = running(g, other);
    char id[BR_ID_MAX];
    asked(g, c, a, true, id);
    static const char *const bad[] = {
        "\"decision\":\"yes\"",     "\"decision\":true",         "\"decision\":null",
        "\"note\":\"x\"",           ALLOW ",\"note\":1",         ALLOW ",\"x\":1",
        ALLOW ",\"scope\":\"run\"", ALLOW ",\"scope\":\"once\"", "\"decision\":\"\""};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        respond(g, c, a->id, id, bad[i]);
        refused(c, "5", -32602, "ACP_INVALID_PARAMS");
    }
    static const char *const unknown[] = {"perm_x", "__proto__", "evt_run_1_1", "\\u00e4"};
    for (size_t i = 0; i < BR_ARRAY_LEN(unknown); i++) {
        respond(g, c, a->id, unknown[i], ALLOW);
        refused(c, "5", -32020, "ACP_PERMISSION_NOT_FOUND");
    }
    respond(g, c, b->id, id, ALLOW); /* of another session of the same connection */
    refused(c, "5", -32020, "ACP_PERMISSION_NOT_FOUND");
    respond(g, other, theirs->id, id, ALLOW); /* of another connection's */
    refused(other, "5", -32020, "ACP_PERMISSION_NOT_FOUND");
    respond(g, other, a->id, id, ALLOW); /* in its session */
    refused(other, "5", -32010, "ACP_SESSION_NOT_FOUND");
    struct run *idle = created(g, c);
    respond(g, c, idle->id, id, ALLOW);
    refused(c, "5", -32020, "ACP_PERMISSION_NOT_FOUND");
    assert_int_equal(a->answers + b->answers + theirs->answers, 0);
    assert_int_equal(br_ledger_state(a->ledger, id), BR_ASK_PENDING);
    respond(g, c, a->id, id, ALLOW); /* it can be answered still */
    hears(c, ACCEPTED);
}

/* The longest note, and one byte more. */
static void test_notes(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = running(g, c);
    char id[BR_ID_MAX], more[5000];
    asked(g, c, r, true, id);
    for (int n = 4097; n >= 4096; n--) {
        int at = sprintf(more, ALLOW ",\"note\":\"");
        memset(more + at, 'x', (size_t)n);
        strcpy(more + at + n, "\"");
        respond(g, c, r->id, id, more);
        if (n == 4097)
            refused(c, "5", -32602, "ACP_INVALID_PARAMS");
    }
    hears(c, ACCEPTED);
    assert_int_equal(strlen(r->last_note), 4096);
    assert_int_equal(r->answers, 1);
}

static void test_late_answers(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    static const enum br_ask_end ends[] = {BR_ASK_EXPIRED, BR_ASK_CANCELED};
    for (size_t i = 0; i < BR_ARRAY_LEN(ends); i++) {
        struct run *r = running(g, c);
        char id[BR_ID_MAX];
        asked(g, c, r, true, id);
        assert_int_equal(br_ledger_end(r->ledger, id, ends[i], NULL), 0);
        respond(g, c, r->id, id, ALLOW); /* before anybody could know */
        refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
        world_resolved(g, r, "c1", id);
        hears_event(c, r->id, 2, "permission.resolved");
        respond(g, c, r->id, id, ALLOW);
        refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
        assert_int_equal(br_ledger_state(r->ledger, id), ends[i]);
    }
    assert_int_equal(g->counters.asks_expired, 2);
    /* the run ends while an answer is on its way */
    struct run *r = running(g, c);
    char id[BR_ID_MAX];
    asked(g, c, r, true, id);
    r->mute = true;
    respond(g, c, r->id, id, ALLOW);
    silent(c);
    br_chan_close(&r->session);
    world_pump(g);
    refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
    respond(g, c, r->id, id, ALLOW);
    refused(c, "5", -32021, "ACP_PERMISSION_RESOLVED");
    assert_int_equal(br_ledger_end(r->ledger, id, BR_ASK_CANCELED, NULL), 0);
    world_resolved(g, r, "c1", id);
    world_end(g, r, "failed");
}

/* Who asked has gone before the answer came back: nobody is told, nothing is touched. */
static void test_answerer_gone(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = running(g, c);
    char id[BR_ID_MAX];
    asked(g, c, r, true, id);
    r->mute = true;
    respond(g, c, r->id, id, ALLOW);
    respond(g, c, r->id, id, ALLOW);
    world_disconnect(g, c);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u8(&o.buf, 1);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    assert_int_equal(br_chan_send(&r->session, BR_MSG_ANSWERED, 0, &o, NULL), 0);
    world_pump(g);
    /* an acknowledgement of nothing ends the session */
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(br_chan_send(&r->session, BR_MSG_ANSWERED, 0, &o, NULL), 0);
    world_pump(g);
    assert_int_equal(r->kills, 1);
}

/* ---- several operators ---- */

static void test_own_events(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    struct run *r = created(g, c);
    prompt(g, c, r->id);
    world_event(g, r, "bridle.run", "kernel", "{}");
    hears_own(c, r->id, -1, 0, "bridle.run");
    world_event(g, r, "session.created", "kernel", "{}");
    hears_event(c, r->id, 0, "session.created");
    world_event(g, r, "bridle.notice", "kernel", "{}");
    world_event(g, r, "bridle.text", "agent", "{\"text\":\"a\"}");
    hears_own(c, r->id, 0, 1, "bridle.notice");
    hears_own(c, r->id, 0, 2, "bridle.text");
    world_event(g, r, "bridlex", "kernel", "{}"); /* not of the prefix */
    hears_event(c, r->id, 1, "bridlex");
    world_end(g, r, "completed");
    hears_event(c, r->id, 2, "agent.stopped");
    hears_answer(c, 2);
    silent(c);
}

static void test_scope(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    struct run *r = running(g, c);
    char id[BR_ID_MAX];
    for (unsigned run = 0; run < 2; run++) {
        world_ask(g, r, "c1", run != 0, id);
        json_decref(world_heard_json(c));
        json_decref(world_heard_json(c));
        respond(g, c, r->id, id, ALLOW ",\"scope\":\"run\"");
        if (!run) { /* it was not offered; the question is open still */
            refused(c, "5", -32602, "ACP_INVALID_PARAMS");
            assert_int_equal(br_ledger_state(r->ledger, id), BR_ASK_PENDING);
            respond(g, c, r->id, id, ALLOW ",\"scope\":\"once\"");
        }
        hears(c, ACCEPTED);
        assert_int_equal(br_ledger_scope(r->ledger, id), run ? BR_SCOPE_RUN : BR_SCOPE_ONCE);
    }
    world_ask(g, r, "c1", true, id);
    json_decref(world_heard_json(c));
    json_decref(world_heard_json(c));
    respond(g, c, r->id, id, DENY ",\"scope\":\"run\""); /* a no is a no */
    hears(c, ACCEPTED);
    assert_int_equal(br_ledger_state(r->ledger, id), BR_ASK_DENIED);
    respond(g, c, r->id, id, ALLOW ",\"scope\":\"forever\"");
    refused(c, "5", -32602, "ACP_INVALID_PARAMS");
}

static void test_watch(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g);
    struct run *r = created(g, c);
    struct conn *w = connect_as(g, EXT, "token:eyes", BR_ACCESS_OBSERVE);
    char id[BR_ID_MAX];
    world_say(g, w, REQ("9", "session/watch", ""));
    json_t *v = world_heard_json(w), *one;
    const char *session, *status, *workspace, *model, *goal, *at;
    int asks, owned, events, live;
    one = json_array_get(json_object_get(json_object_get(v, "result"), "sessions"), 0);
    assert_int_equal(
        json_unpack_ex(one, NULL, JSON_STRICT, "{s:s, s:s, s:s, s:s, s:s, s:i, s:b, s:s, s:i, s:b}",
                       "sessionId", &session, "status", &status, "workspace", &workspace, "model",
                       &model, "startedAt", &at, "asks", &asks, "owned", &owned, "goal", &goal,
                       "events", &events, "live", &live),
        0);
    assert_string_equal(session, r->id);
    assert_string_equal(status, "created");
    assert_true(owned && live);
    json_decref(v);
    prompt(g, c, r->id);
    world_event(g, r, "session.created", "kernel", "{}");
    world_ask(g, r, "c1", false, id);
    static const struct {
        const char *status;
        int asks;
    } want[] = {{"running", 0}, {"running", 1}, {"completed", 0}};
    assert_int_equal(br_ledger_end(r->ledger, id, BR_ASK_EXPIRED, NULL), 0);
    world_end(g, r, "completed");
    for (size_t i = 0; i < BR_ARRAY_LEN(want); i++) {
        do { /* one that is the same again does no harm */
            v = world_heard_json(w);
            assert_non_null(v);
            assert_string_equal(json_string_value(json_object_get(v, "method")), "bridle/session");
            assert_int_equal(json_unpack_ex(json_object_get(v, "params"), NULL, JSON_STRICT,
                                            "{s:s, s:s, s:s, s:s, s:s, s:i, s:b}", "sessionId",
                                            &session, "status", &status, "workspace", &workspace,
                                            "model", &model, "startedAt", &at, "asks", &asks,
                                            "owned", &owned),
                             0);
            bool same = strcmp(status, want[i].status) == 0 && asks == want[i].asks;
            json_decref(v);
            if (same)
                break;
        } while (true);
    }
    world_disconnect(g, w);
    created(g, client(g)); /* nobody is told */
}

static void test_detach(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    struct run *r = running(g, c);
    world_say(g, c, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
    refused(c, "6", -32030, "ACP_FORBIDDEN"); /* the operator's default */
    g->settings.detach = 1;
    struct conn *other = extended(g);
    world_say(g, other, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
    refused(other, "6", -32010, "ACP_SESSION_NOT_FOUND");
    world_say(g, c, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("6", "{\"detached\":true}"));
    world_event(g, r, "error", "kernel", "{}");
    hears_event(c, r->id, 1, "error"); /* it follows still */
    prompt(g, c, r->id);
    refused(c, "2", -32010, "ACP_SESSION_NOT_FOUND"); /* and owns it no more */
    world_disconnect(g, c);
    assert_int_equal(r->cancels, 0);
    assert_non_null(session_find(g, r->id));
    assert_null(session_owner(session_find(g, r->id)));
    world_end(g, r, "completed");
    assert_null(session_find(g, r->id));
    assert_int_equal(g->counters.sessions_completed, 1);
    /* one that has ended stays with its owner */
    r = running(g, other);
    world_end(g, r, "completed");
    hears_event(other, r->id, 1, "agent.stopped");
    hears_answer(other, 2);
    world_say(g, other, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
    refused(other, "6", -32011, "ACP_SESSION_ALREADY_RUN");
    world_disconnect(g, other);
    assert_null(session_find(g, r->id));
}

static void test_unfollow(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    struct run *r = running(g, c);
    world_say(g, c, REQ("6", "session/unfollow", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("6", "{}"));
    world_event(g, r, "error", "kernel", "{}");
    silent(c);
    world_end(g, r, "completed");
    hears_answer(c, 2); /* which was asked for */
    silent(c);
    world_say(g, c, REQ("6", "session/unfollow", "\"sessionId\":\"nothing\""));
    refused(c, "6", -32010, "ACP_SESSION_NOT_FOUND");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_answers),       T(test_wrong_answers), T(test_late_answers), T(test_notes),
        T(test_answerer_gone), T(test_own_events),    T(test_scope),        T(test_watch),
        T(test_detach),        T(test_unfollow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
