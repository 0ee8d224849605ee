/*
 * What was stored, for those who ask for it: lists, the events of a run that is over, and those of
 * one that runs, put together from the store and from the run without a gap or a repetition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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

static void load(struct gateway *g, struct conn *c, const char *session, const char *more)
{
    world_say(g, c,
              "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/load\",\"params\":{"
              "\"sessionId\":\"%s\"%s}}",
              session, more);
}

#define LOADED(status, live, owned)                                                                \
    RESULT("7", "{\"status\":\"" status "\",\"live\":" live ",\"owned\":" owned "}")

static void test_capability(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g); /* which did not say sessions:true */
    load(g, c, "run_1", "");
    refused(c, "7", -32601, "ACP_METHOD_NOT_FOUND");
    world_say(g, c, REQ("7", "session/list", ""));
    refused(c, "7", -32601, "ACP_METHOD_NOT_FOUND");
    assert_int_equal(g->read_call, 0);
    /* sessions alone bring no event of Bridle's */
    c = connect_as(g,
                   "\"capabilities\":{\"streaming\":true,\"permissioning\":true,\"sessions\":true}",
                   "uid:7", BR_ACCESS_OBSERVE);
    load(g, c, "run_old", "");
    world_reading(g, 0, "");
    world_row(g, "run_old", "completed", "g", 3);
    world_stored(g, 1, false);
    world_stored(g, 2, true);
    world_stored(g, 3, false);
    world_reading_end(g, 0);
    hears_event(c, "run_old", 0, "error");
    hears_event(c, "run_old", 1, "error");
    hears(c, LOADED("completed", "false", "false"));
    world_say(g, c, REQ("7", "session/resume", "\"sessionId\":\"run_old\""));
    refused(c, "7", -32030, "ACP_FORBIDDEN"); /* that is to operate */
    world_say(g, c, REQ("7", "session/watch", ""));
    refused(c, "7", -32601, "ACP_METHOD_NOT_FOUND");
}

static void test_load_old(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    static const struct {
        const char *more;
        int64_t after, own;
    } table[] = {{"", -1, -1},
                 {",\"after\":-1,\"afterBridle\":-1", -1, -1},
                 {",\"after\":0", 0, -1},
                 {",\"afterBridle\":1", -1, 1},
                 {",\"after\":1,\"afterBridle\":0", 1, 0},
                 {",\"after\":99,\"afterBridle\":99", 99, 99}};
    for (size_t i = 0; i < BR_ARRAY_LEN(table); i++) {
        load(g, c, "run_old", table[i].more);
        assert_string_equal(g->read_id, "run_old");
        world_reading(g, 0, "");
        world_row(g, "run_old", "interrupted", "g", 5);
        for (uint64_t row = 1; row <= 5; row++)
            world_stored(g, row, row % 2 == 0);                          /* 0, own 0, 1, own 1, 2 */
        world_row(g, "run_promoted", "completed", "promote run_old", 2); /* what came of it */
        world_reading_end(g, 0);
        for (int64_t row = 1; row <= 5; row++) {
            if (row % 2 && row / 2 > table[i].after)
                hears_event(c, "run_old", (uint64_t)row / 2, "error");
            else if (row % 2 == 0 && row / 2 - 1 > table[i].own)
                hears_own(c, "run_old", row / 2 - 1, (uint64_t)row / 2 - 1, "bridle.notice");
        }
        hears(c, LOADED("interrupted", "false", "false"));
        silent(c);
    }
    static const char *const bad[] = {",\"after\":-2", ",\"after\":0.5", ",\"after\":\"0\"",
                                      ",\"afterBridle\":9007199254740992", ",\"x\":1"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        load(g, c, "run_old", bad[i]);
        refused(c, "7", -32602, "ACP_INVALID_PARAMS");
    }
}

static void test_load_errors(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    load(g, c, "run_none", "");
    world_reading(g, BR_E_NOT_FOUND, "there is no run 'run_none'");
    refused(c, "7", -32010, "ACP_SESSION_NOT_FOUND");
    load(g, c, "run_none", ""); /* found to be missing later */
    world_reading(g, 0, "");
    world_reading_end(g, BR_E_NOT_FOUND);
    refused(c, "7", -32010, "ACP_SESSION_NOT_FOUND");
    load(g, c, "run_00000000000000000000000000000000000000000000000000000000", "");
    refused(c, "7", -32010, "ACP_SESSION_NOT_FOUND");
    static const char *const no_ids[] = {"run\\\"x", "run\\n", "a b", "\\u00e4", "../a", "\\\\"};
    for (size_t i = 0; i < BR_ARRAY_LEN(no_ids); i++) {
        load(g, c, no_ids[i], "");
        refused(c, "7", -32010, "ACP_SESSION_NOT_FOUND");
    }
    assert_int_equal(g->read_call, 0); /* no id is so: nobody was asked */
    load(g, c, "run_broken", "");
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    world_reading_end(g, BR_E_STORE_FAILED);
    hears_event(c, "run_broken", 0, "error");
    refused(c, "7", -32603, "ACP_INTERNAL_ERROR");
    load(g, c, "run_gap", "");
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    world_stored(g, 3, false);
    hears_event(c, "run_gap", 0, "error");
    refused(c, "7", -32603, "ACP_INTERNAL_ERROR"); /* and the third was not shown */
    load(g, c, "run_cut", "");
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    br_chan_close(&g->store);
    world_pump(g);
    hears_event(c, "run_cut", 0, "error");
    refused(c, "7", -32603, "ACP_INTERNAL_ERROR");
    silent(c);
    /* gone while it is read, and before bridled has answered */
    load(g, c, "run_a", "");
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    load(g, c, "run_b", "");
    world_disconnect(g, c);
    world_stored(g, 2, false);
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    world_reading_end(g, 0);
    /* nine at one time are too many */
    c = extended(g);
    for (unsigned i = 0; i < 9; i++)
        load(g, c, "run_x", "");
    refused(c, "7", -32600, "ACP_INVALID_REQUEST");
}

/* The store is ahead of what is shown live: what it had is not shown again. */
static void test_store_ahead(void **state)
{
    struct gateway *g = *state;
    for (uint64_t ahead = 0; ahead < 4; ahead++) {
        struct conn *owner = client(g), *c = extended(g);
        struct run *r = running(g, owner); /* one row */
        load(g, c, r->id, "");
        world_reading(g, 0, "");
        world_row(g, r->id, "running", "g", 1 + ahead);
        for (uint64_t row = 1; row <= 1 + ahead; row++)
            world_stored(g, row, false);
        world_reading_end(g, 0);
        for (uint64_t seq = 0; seq < 1 + ahead; seq++)
            hears_event(c, r->id, seq, "error");
        hears(c, LOADED("running", "true", "true"));
        for (uint64_t i = 0; i < 5; i++) /* they come now, and others behind them */
            world_event(g, r, "error", "kernel", "{}");
        for (uint64_t seq = 1 + ahead; seq < 6; seq++)
            hears_event(c, r->id, seq, "error");
        silent(c);
        world_end(g, r, "completed");
        hears_event(c, r->id, 6, "agent.stopped");
        world_disconnect(g, owner);
        world_disconnect(g, c);
    }
}

/* The store ends before, at and behind what the follower was shown when it began. */
static void test_load_live(void **state)
{
    struct gateway *g = *state;
    for (uint64_t before = 0; before < 4; before++) {
        for (uint64_t during = 0; during < 4; during++) {
            for (uint64_t stored = before; stored <= before + during; stored++) {
                struct conn *owner = client(g), *c = extended(g);
                struct run *r = created(g, owner);
                prompt(g, owner, r->id);
                for (uint64_t i = 0; i < before; i++)
                    world_event(g, r, "error", "kernel", "{}");
                load(g, c, r->id, "");
                world_reading(g, 0, "");
                world_row(g, r->id, "running", "g", stored);
                for (uint64_t i = 0; i < during; i++)
                    world_event(g, r, "error", "kernel", "{}");
                for (uint64_t row = 1; row <= stored; row++)
                    world_stored(g, row, false);
                world_reading_end(g, 0);
                world_event(g, r, "bridle.notice", "kernel", "{}");
                world_event(g, r, "error", "kernel", "{}");
                uint64_t seq = 0;
                for (; seq < before + during; seq++)
                    hears_event(c, r->id, seq, "error");
                hears(c, LOADED("running", "true", "true"));
                hears_own(c, r->id, (int64_t)seq - 1, 0, "bridle.notice");
                hears_event(c, r->id, seq++, "error");
                world_end(g, r, "completed");
                hears_event(c, r->id, seq, "agent.stopped");
                silent(c); /* the prompt was not its own */
                world_disconnect(g, owner);
                world_disconnect(g, c);
            }
        }
    }
}

/* It ends while its record is read: the reading goes to the end. */
static void test_ends_while_loading(void **state)
{
    struct gateway *g = *state;
    struct conn *owner = client(g), *c = extended(g);
    struct run *r = running(g, owner);
    load(g, c, r->id, "");
    world_reading(g, 0, "");
    world_row(g, r->id, "running", "g", 1);
    world_stored(g, 1, false);
    world_event(g, r, "error", "kernel", "{}");
    world_end(g, r, "completed");
    world_stored(g, 2, false); /* the rest was stored before the reading came to its end, or not */
    world_reading_end(g, 0);
    for (uint64_t seq = 0; seq < 2; seq++)
        hears_event(c, r->id, seq, "error");
    hears_event(c, r->id, 2, "agent.stopped");
    hears(c, LOADED("completed", "false", "false"));
    silent(c);
}

/* It leaves while the record is read for it, and a reading that fails leaves it nothing. */
static void test_unfollow_while_loading(void **state)
{
    struct gateway *g = *state;
    for (unsigned fails = 0; fails < 2; fails++) {
        struct conn *owner = client(g), *c = extended(g);
        struct run *r = running(g, owner);
        load(g, c, r->id, "");
        world_reading(g, 0, "");
        world_stored(g, 1, false);
        hears_event(c, r->id, 0, "error");
        if (!fails) {
            world_say(g, c, REQ("6", "session/unfollow", "\"sessionId\":\"%s\""), r->id);
            hears(c, RESULT("6", "{}"));
        }
        world_event(g, r, "error", "kernel", "{}");
        world_reading_end(g, fails ? BR_E_STORE_FAILED : 0);
        if (fails) {
            refused(c, "7", -32603, "ACP_INTERNAL_ERROR");
        } else {
            hears_event(c, r->id, 1, "error");
            hears(c, LOADED("running", "true", "true"));
        }
        world_event(g, r, "error", "kernel", "{}");
        world_say(g, c, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
        refused(c, "3", -32010, "ACP_SESSION_NOT_FOUND"); /* it follows no more */
        silent(c);
        world_end(g, r, "completed");
        silent(c);
    }
}

/* More comes than is held: the reading begins again, behind what was sent. */
static void test_overflow(void **state)
{
    struct gateway *g = *state;
    struct conn *owner = client(g), *c = extended(g);
    struct run *r = running(g, owner);
    char *text = malloc(200001);
    memset(text, 'x', 200000);
    text[200000] = 0;
    load(g, c, r->id, "");
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    for (unsigned i = 0; i < 6; i++)
        world_event(g, r, "error", "kernel", "{\"message\":\"%s\"}", text);
    free(text);
    world_stored(g, 2, false);
    world_reading_end(g, 0);
    hears_event(c, r->id, 0, "error");
    hears_event(c, r->id, 1, "error");
    silent(c);
    world_reading(g, 0, "");
    world_event(g, r, "error", "kernel", "{}"); /* held again */
    for (uint64_t row = 1; row <= 7; row++)
        world_stored(g, row, false);
    world_reading_end(g, 0);
    for (uint64_t seq = 2; seq < 8; seq++)
        hears_event(c, r->id, seq, "error");
    hears(c, LOADED("running", "true", "true"));
    silent(c);
}

/* A client that takes its time: nothing is read that it has no room for, and audit gives up on it;
 * the reading goes on where it was. */
static void test_slow_reader(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    c->room = 2;
    load(g, c, "run_old", "");
    world_reading(g, 0, "");
    world_row(g, "run_old", "completed", "g", 4);
    for (uint64_t row = 1; row <= 4; row++)
        world_stored(g, row, false);
    assert_int_equal(c->nsent - c->read, 2);
    hears_event(c, "run_old", 0, "error");
    hears_event(c, "run_old", 1, "error");
    gw_harness.writable(c);
    world_pump(g);
    assert_int_equal(c->nsent - c->read, 2);
    br_chan_close(&g->store); /* it waited too long */
    hears_event(c, "run_old", 2, "error");
    hears_event(c, "run_old", 3, "error");
    gw_harness.writable(c);
    world_pump(g);
    world_reading(g, 0, "");
    world_row(g, "run_old", "completed", "g", 5);
    for (uint64_t row = 1; row <= 5; row++)
        world_stored(g, row, false);
    world_reading_end(g, 0);
    hears_event(c, "run_old", 4, "error");
    c->room = 0;
    gw_harness.writable(c);
    world_pump(g);
    hears(c, LOADED("completed", "false", "false"));
    silent(c);
}

static bool store_hung_up(const struct br_chan *store)
{
    char byte;
    return recv(store->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Where many take their time, they do not keep the store from the others: the last that waits is
 * given up, and goes on where it was when its client has read. */
static void test_many_slow_readers(void **state)
{
    enum { MANY = 16 };
    struct gateway *g = *state;
    struct br_chan store[MANY];
    struct conn *c[3] = {extended(g), extended(g), extended(g)};
    c[0]->room = c[1]->room = 1;
    for (unsigned i = 0; i < MANY; i++) {
        load(g, c[i / 8], "run_old", "");
        world_reading(g, 0, "");
        world_row(g, "run_old", "completed", "g", 2);
        world_stored(g, 1, false);
        hears_event(c[i / 8], "run_old", 0, "error");
        store[i] = g->store;
        g->store = (struct br_chan){.fd = -1};
        for (unsigned k = 0; k <= i; k++)
            assert_int_equal(store_hung_up(&store[k]), k == MANY - 1);
    }
    world_wait(g, 0);
    silent(c[1]);
    load(g, c[2], "run_old", ""); /* who keeps up is served */
    world_reading(g, 0, "");
    world_row(g, "run_old", "completed", "g", 2);
    for (uint64_t row = 1; row <= 2; row++)
        world_stored(g, row, false);
    world_reading_end(g, 0);
    hears_event(c[2], "run_old", 0, "error");
    hears_event(c[2], "run_old", 1, "error");
    hears(c[2], LOADED("completed", "false", "false"));
    assert_int_equal(g->read_call, 0);
    c[1]->room = 0;
    gw_harness.writable(c[1]);
    world_pump(g);
    world_reading(g, 0, ""); /* the one that was given up */
    world_row(g, "run_old", "completed", "g", 2);
    for (uint64_t row = 1; row <= 2; row++)
        world_stored(g, row, false);
    world_reading_end(g, 0);
    hears_event(c[1], "run_old", 1, "error");
    hears(c[1], LOADED("completed", "false", "false"));
    silent(c[1]);
    for (unsigned i = 0; i < MANY; i++)
        br_chan_close(&store[i]);
    for (unsigned i = 0; i < 3; i++)
        world_disconnect(g, c[i]);
}

static void test_load_of_sessions(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g), *other = extended(g);
    struct run *r = created(g, c);
    load(g, other, r->id, "");
    hears(other, LOADED("created", "true", "true"));
    assert_int_equal(g->read_call, 0);
    g->hold_runs = true;
    prompt(g, c, r->id);
    load(g, c, r->id, "");
    refused(c, "7", -32600, "ACP_INVALID_REQUEST"); /* its events come already */
    world_start(g, r);
    world_pump(g);
    world_event(g, r, "session.created", "kernel", "{}");
    hears_event(c, r->id, 0, "session.created");
    hears_event(other, r->id, 0, "session.created");
    world_end(g, r, "completed");
    /* nothing of it is stored yet */
    g->hold_runs = false;
    r = created(g, extended(g));
    load(g, other, r->id, "");
    json_decref(world_heard_json(other)); /* agent.stopped of the first */
    hears(other, LOADED("created", "true", "true"));
    /* canceled: it never ran */
    struct conn *third = extended(g);
    r = created(g, third);
    world_say(g, third, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    hears(third, RESULT("3", "{\"canceled\":true}"));
    load(g, other, r->id, "");
    hears(other, LOADED("canceled", "false", "false"));
}

/* Whoever left its running prompt comes back to it: nothing is missing, nothing comes twice, and
 * the answer to the prompt is behind all events, whenever the run ends. */
static void test_load_again(void **state)
{
    enum { STAYS, ENDS, BREAKS, FAILS, ENDS_AND_FAILS, CASES };
    struct gateway *g = *state;
    for (unsigned how = 0; how < CASES; how++) {
        struct conn *c = extended(g);
        struct run *r = running(g, c); /* row 1, seq 0 */
        world_say(g, c, REQ("6", "session/unfollow", "\"sessionId\":\"%s\""), r->id);
        hears(c, RESULT("6", "{}"));
        world_event(g, r, "error", "kernel", "{}");
        silent(c);
        load(g, c, r->id, ",\"after\":0");
        world_reading(g, 0, "");
        world_row(g, r->id, "running", "g", 2);
        load(g, c, r->id, "");
        refused(c, "7", -32600, "ACP_INVALID_REQUEST"); /* they come already */
        world_stored(g, 1, false);
        world_stored(g, 2, false);
        hears_event(c, r->id, 1, "error");
        world_event(g, r, "error", "kernel", "{}");
        if (how == ENDS || how == ENDS_AND_FAILS) {
            world_end(g, r, "completed");
        } else if (how == BREAKS) {
            world_close_audit(r);
            world_pump(g);
            world_ended(g, r, BR_E_PROGRAM_DIED, "'audit' died");
        }
        silent(c); /* the reading is before it */
        bool fails = how == FAILS || how == ENDS_AND_FAILS;
        world_reading_end(g, fails ? BR_E_STORE_FAILED : 0);
        if (fails) {
            refused(c, "7", -32603, "ACP_INTERNAL_ERROR");
        } else {
            hears_event(c, r->id, 2, "error");
            if (how == ENDS)
                hears_event(c, r->id, 3, "agent.stopped");
        }
        if (how == STAYS) {
            hears(c, LOADED("running", "true", "true"));
            load(g, c, r->id, "");
            refused(c, "7", -32600, "ACP_INVALID_REQUEST");
            world_event(g, r, "error", "kernel", "{}");
            hears_event(c, r->id, 3, "error");
            world_end(g, r, "completed");
            hears_event(c, r->id, 4, "agent.stopped");
        } else if (how == ENDS) {
            hears(c, LOADED("completed", "false", "false"));
        } else if (how == BREAKS) {
            hears(c, LOADED("failed", "false", "false"));
            refused(c, "2", -32603, "ACP_INTERNAL_ERROR");
        } else if (how == FAILS) {
            world_event(g, r, "error", "kernel", "{}"); /* nothing may come behind a gap */
            world_end(g, r, "completed");
        }
        if (how != BREAKS)
            hears_answer(c, 2);
        silent(c);
        assert_int_equal(c->close_code, 0);
        world_disconnect(g, c);
    }
    /* it goes while both are due */
    struct conn *c = extended(g);
    struct run *r = running(g, c);
    world_say(g, c, REQ("6", "session/unfollow", "\"sessionId\":\"%s\""), r->id);
    load(g, c, r->id, "");
    world_reading(g, 0, "");
    world_end(g, r, "completed");
    world_disconnect(g, c);
    assert_null(session_find(g, r->id));
}

#define ANSWER                                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"permission/respond\",\"params\":{\"sessionId\":"   \
    "\"%s\",\"permissionId\":\"%s\",\"decision\":\"allow\"}}"

/* Who follows may answer and cancel, if it may at all. */
static void test_followers(void **state)
{
    struct gateway *g = *state;
    struct conn *c = client(g), *eyes = connect_as(g, EXT, "token:eyes", BR_ACCESS_OBSERVE),
                *second = connect_as(g, EXT, "token:second", BR_ACCESS_ANSWER), *ops = extended(g),
                *stranger = extended(g);
    struct conn *const all[] = {eyes, second, ops};
    struct run *r = running(g, c);
    char id[BR_ID_MAX];
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++) {
        load(g, all[i], r->id, "");
        world_reading(g, 0, "");
        world_stored(g, 1, false);
        world_reading_end(g, 0);
        hears_event(all[i], r->id, 0, "error");
        hears(all[i], LOADED("running", "true", "true"));
    }
    world_ask(g, r, "c1", false, id);
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++) {
        hears_event(all[i], r->id, 1, "permission.requested");
        hears_own(all[i], r->id, 1, 0, "bridle.ask");
    }
    world_say(g, eyes, ANSWER, r->id, id);
    refused(eyes, "5", -32030, "ACP_FORBIDDEN");
    world_say(g, stranger, ANSWER, r->id, id);
    refused(stranger, "5", -32010, "ACP_SESSION_NOT_FOUND");
    assert_int_equal(r->answers, 0);
    world_say(g, second, ANSWER, r->id, id);
    hears(second, RESULT("5", "{\"accepted\":true}"));
    assert_string_equal(r->last_who, "token:second");
    world_say(g, ops, ANSWER, r->id, id);
    refused(ops, "5", -32021, "ACP_PERMISSION_RESOLVED");
    world_say(g, second, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    refused(second, "3", -32030, "ACP_FORBIDDEN");
    assert_int_equal(r->cancels, 0);
    world_say(g, ops, REQ("3", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    assert_int_equal(r->cancels, 1);
    world_end(g, r, "canceled");
    hears_event(ops, r->id, 2, "agent.stopped");
    hears(ops, RESULT("3", "{\"canceled\":true}"));
    silent(ops);
}

static void test_resume(void **state)
{
    struct gateway *g = *state;
    g->settings.detach = 1;
    struct conn *c = extended(g), *next = extended(g);
    struct run *r = running(g, c);
    world_say(g, next, REQ("7", "session/resume", "\"sessionId\":\"%s\""), r->id);
    refused(next, "7", -32030, "ACP_FORBIDDEN"); /* it has an owner */
    world_say(g, c, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("6", "{\"detached\":true}"));
    world_disconnect(g, c);
    world_say(g, next, REQ("7", "session/resume", "\"sessionId\":\"%s\""), r->id);
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    world_reading_end(g, 0);
    hears_event(next, r->id, 0, "error");
    hears(next, LOADED("running", "true", "true"));
    assert_int_equal(r->cancels, 0);
    world_say(g, next, REQ("8", "session/unfollow", "\"sessionId\":\"%s\""), r->id);
    hears(next, RESULT("8", "{}"));
    world_say(g, next, REQ("9", "session/cancel", "\"sessionId\":\"%s\""), r->id);
    world_event(g, r, "error", "kernel", "{}");
    world_end(g, r, "canceled");
    hears(next, RESULT("9", "{\"canceled\":true}")); /* and no event that it did not want */
    silent(next);
    r = running(g, next);
    world_disconnect(g, next); /* it was its owner */
    world_pump(g);
    assert_int_equal(r->cancels, 1);
}

/* Who reads the record too often is refused before anything of it is done. */
static void test_too_many_readings(void **state)
{
    struct gateway *g = *state;
    g->settings.detach = 1;
    struct conn *c = extended(g), *next = extended(g);
    struct run *r = running(g, c), *idle = created(g, c);
    world_say(g, c, REQ("6", "session/detach", "\"sessionId\":\"%s\""), r->id);
    hears(c, RESULT("6", "{\"detached\":true}"));
    next->refuse_reading = true;
    world_say(g, next, REQ("7", "session/list", ""));
    refused(next, "7", -32031, "ACP_RATE_LIMITED");
    load(g, next, "run_old", "");
    refused(next, "7", -32031, "ACP_RATE_LIMITED");
    load(g, next, r->id, "");
    refused(next, "7", -32031, "ACP_RATE_LIMITED");
    world_say(g, next, REQ("7", "session/resume", "\"sessionId\":\"%s\""), r->id);
    refused(next, "7", -32031, "ACP_RATE_LIMITED");
    assert_int_equal(g->read_call, 0);
    assert_null(session_owner(session_find(g, r->id)));
    world_event(g, r, "error", "kernel", "{}");
    silent(next); /* nor is anything followed */
    /* what is in memory is no reading */
    load(g, next, idle->id, "");
    hears(next, LOADED("created", "true", "true"));
    next->refuse_reading = false;
    world_say(g, next, REQ("7", "session/resume", "\"sessionId\":\"%s\""), r->id);
    assert_true(session_owner(session_find(g, r->id)) == next);
    world_reading(g, 0, "");
    world_stored(g, 1, false);
    world_stored(g, 2, false);
    world_reading_end(g, 0);
    hears_event(next, r->id, 0, "error");
    hears_event(next, r->id, 1, "error");
    hears(next, LOADED("running", "true", "true"));
}

/* A reading that has to begin again, because its client is slow, counts as one more. */
static void test_begun_again_too_often(void **state)
{
    struct gateway *g = *state;
    for (unsigned often = 0; often < 2; often++) {
        struct conn *c = extended(g);
        c->room = 1;
        load(g, c, "run_old", "");
        world_reading(g, 0, "");
        world_row(g, "run_old", "completed", "g", 2);
        world_stored(g, 1, false);
        hears_event(c, "run_old", 0, "error");
        br_chan_close(&g->store); /* it waited too long */
        world_pump(g);
        c->refuse_reading = often;
        c->room = 0;
        gw_harness.writable(c);
        world_pump(g);
        gw_harness.writable(c);
        world_pump(g);
        assert_int_equal(g->read_call == 0, often);
        if (often) {
            refused(c, "7", -32031, "ACP_RATE_LIMITED");
        } else {
            world_reading(g, 0, "");
            world_row(g, "run_old", "completed", "g", 1);
            world_stored(g, 1, false);
            world_reading_end(g, 0);
            hears(c, LOADED("completed", "false", "false"));
        }
        silent(c);
        world_disconnect(g, c);
    }
}

static void test_list(void **state)
{
    struct gateway *g = *state;
    struct conn *c = extended(g);
    struct run *idle = created(g, c), *r = running(g, c);
    world_say(g, c, REQ("8", "session/list", ""));
    assert_string_equal(g->read_id, "");
    assert_int_equal(g->read_limit, 51);
    world_say(g, c, REQ("9", "session/list", ""));
    refused(c, "9", -32600, "ACP_INVALID_REQUEST"); /* one at a time */
    world_reading(g, 0, "");
    world_row(g, r->id, "running", "do it", 1);
    world_row(g, "run_old", "budget_exceeded", "say \"a\"", 12);
    world_reading_end(g, 0);
    json_t *v = world_heard_json(c), *result = json_object_get(v, "result"), *list;
    int more;
    assert_int_equal(
        json_unpack_ex(result, NULL, JSON_STRICT, "{s:o, s:b}", "sessions", &list, "more", &more),
        0);
    assert_false(more);
    assert_int_equal(json_array_size(list), 3);
    static const char *const statuses[] = {"created", "running", "budget_exceeded"};
    const char *const ids[] = {idle->id, r->id, "run_old"};
    for (size_t i = 0; i < 3; i++) {
        const char *id, *status, *workspace, *model, *goal, *start, *end = NULL;
        int events, live, owned, asks;
        assert_int_equal(json_unpack_ex(json_array_get(list, i), NULL, JSON_STRICT,
                                        "{s:s, s:s, s:s, s:s, s:s, s:s, s?s, s:i, s:b, s:b, s:i}",
                                        "sessionId", &id, "status", &status, "workspace",
                                        &workspace, "model", &model, "goal", &goal, "startedAt",
                                        &start, "endedAt", &end, "events", &events, "live", &live,
                                        "owned", &owned, "asks", &asks),
                         0);
        assert_string_equal(id, ids[i]);
        assert_string_equal(status, statuses[i]);
        assert_true(live == (i < 2) && owned == (i < 2) && (end != NULL) == (i == 2));
    }
    json_decref(v);
    /* limits, pages, words */
    static const char *const bad[] = {"\"limit\":0",     "\"limit\":201",  "\"limit\":1.5",
                                      "\"before\":\"\"", "\"query\":\"\"", "\"x\":1"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        world_say(g, c,
                  "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"session/list\",\"params\":{%s}}",
                  bad[i]);
        refused(c, "8", -32602, "ACP_INVALID_PARAMS");
    }
    world_say(g, c, REQ("8", "session/list", "\"limit\":1,\"before\":\"run_b\",\"query\":\"x y\""));
    assert_int_equal(g->read_limit, 2);
    assert_string_equal(g->read_before, "run_b");
    assert_string_equal(g->read_words, "x y");
    world_reading(g, 0, "");
    world_row(g, "run_a", "completed", "x y", 3);
    world_row(g, "run_0", "completed", "x y", 3);
    world_reading_end(g, 0);
    v = world_heard_json(c);
    result = json_object_get(v, "result");
    assert_int_equal(json_array_size(json_object_get(result, "sessions")), 1);
    assert_true(json_is_true(json_object_get(result, "more")));
    json_decref(v);
    world_say(g, c, REQ("8", "session/list", "\"before\":\"run_none\""));
    world_reading(g, BR_E_NOT_FOUND, "no such run");
    refused(c, "8", -32010, "ACP_SESSION_NOT_FOUND");
    world_say(g, c, REQ("8", "session/list", ""));
    world_reading(g, 0, "");
    world_disconnect(g, c); /* it is not waited for */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_capability),
        T(test_load_old),
        T(test_load_errors),
        T(test_load_live),
        T(test_store_ahead),
        T(test_overflow),
        T(test_unfollow_while_loading),
        T(test_ends_while_loading),
        T(test_slow_reader),
        T(test_many_slow_readers),
        T(test_load_of_sessions),
        T(test_load_again),
        T(test_followers),
        T(test_resume),
        T(test_too_many_readings),
        T(test_begun_again_too_often),
        T(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
