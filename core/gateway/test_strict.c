/*
 * A client of harness/acp/1 in the played world: it says what a test wants and looks at every byte
 * of what it hears.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_strict.h"

void hears(struct conn *c, const char *text)
{
    const char *heard = world_heard(c);
    assert_non_null(heard);
    assert_string_equal(heard, text);
}

void silent(struct conn *c)
{
    const char *heard = world_heard(c);
    if (heard)
        fail_msg("heard '%s', and nothing was to be", heard);
}

/* An error with this id (as JSON), code and name, and nothing else in it. */
void refused(struct conn *c, const char *id, int code, const char *name)
{
    json_t *v = world_heard_json(c), *want = json_loads(id, JSON_DECODE_ANY, NULL);
    json_t *got_id, *message;
    const char *version, *data;
    int got;
    if (!v || json_unpack_ex(v, NULL, JSON_STRICT, "{s:s, s:o, s:{s:i, s:o, s:{s:s}}}", "jsonrpc",
                             &version, "id", &got_id, "error", "code", &got, "message", &message,
                             "data", "code", &data) < 0)
        fail_msg("no error %d was heard", code);
    if (got != code || strcmp(data, name) != 0 || !json_equal(got_id, want))
        fail_msg("heard %d (%s) '%s', not %d (%s) for id %s", got, data, json_string_value(message),
                 code, name, id);
    assert_true(json_string_length(message) > 0);
    json_decref(v);
    json_decref(want);
}

struct conn *connect_as(struct gateway *g, const char *caps, const char *name,
                        enum br_access access)
{
    struct conn *c = world_connect(g, &gw_harness, name, access);
    world_say(g, c,
              "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
              "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"c\",%s}}",
              caps);
    json_t *v = world_heard_json(c);
    assert_non_null(json_object_get(v, "result"));
    json_decref(v);
    return c;
}

struct conn *client(struct gateway *g)
{
    return connect_as(g, CAPS, "uid:1000", BR_ACCESS_OPERATE);
}

struct conn *extended(struct gateway *g)
{
    return connect_as(g, EXT, "token:ops", BR_ACCESS_OPERATE);
}

/* A session of its own; bridled's side of it. */
struct run *created(struct gateway *g, struct conn *c)
{
    world_say(g, c, REQ("1", "session/new", "\"workspace\":\"/srv/work/a\""));
    struct run *r = &g->runs[g->nruns - 1];
    char want[128];
    snprintf(want, sizeof(want), RESULT("1", "{\"sessionId\":\"%s\"}"), r->id);
    hears(c, want);
    return r;
}

void prompt(struct gateway *g, struct conn *c, const char *session)
{
    world_say(g, c, REQ("2", "session/prompt", "\"sessionId\":\"%s\",\"content\":\"do it\""),
              session);
}

struct run *running(struct gateway *g, struct conn *c)
{
    struct run *r = created(g, c);
    prompt(g, c, r->id);
    assert_true(r->started);
    world_event(g, r, "session.created", "kernel", "{\"sessionId\":\"%s\"}", r->id);
    json_decref(world_heard_json(c));
    return r;
}

/* The next message is this session/event; its type is given. */
void hears_event(struct conn *c, const char *session, uint64_t seq, const char *type)
{
    json_t *v = world_heard_json(c), *event;
    const char *version, *method, *id, *got;
    json_int_t n;
    if (!v || json_unpack_ex(v, NULL, JSON_STRICT, "{s:s, s:s, s:{s:s, s:I, s:o}}", "jsonrpc",
                             &version, "method", &method, "params", "sessionId", &id, "seq", &n,
                             "event", &event) < 0)
        fail_msg("no event was heard, not %s", type);
    assert_string_equal(method, "session/event");
    assert_string_equal(id, session);
    got = json_string_value(json_object_get(event, "type"));
    if ((uint64_t)n != seq || strcmp(got, type) != 0)
        fail_msg("heard %s %lld, not %s %llu", got, (long long)n, type, (unsigned long long)seq);
    json_decref(v);
}

void hears_own(struct conn *c, const char *session, int64_t after, uint64_t seq, const char *type)
{
    json_t *v = world_heard_json(c), *event;
    const char *version, *method, *id;
    json_int_t n, behind;
    if (!v || json_unpack_ex(v, NULL, JSON_STRICT, "{s:s, s:s, s:{s:s, s:I, s:I, s:o}}", "jsonrpc",
                             &version, "method", &method, "params", "sessionId", &id, "after",
                             &behind, "seq", &n, "event", &event) < 0)
        fail_msg("no event of Bridle's was heard, not %s", type);
    assert_string_equal(method, "bridle/event");
    assert_string_equal(id, session);
    assert_int_equal(behind, after);
    assert_int_equal(n, seq);
    assert_string_equal(json_string_value(json_object_get(event, "type")), type);
    json_decref(v);
}

void hears_answer(struct conn *c, int id)
{
    json_t *v = world_heard_json(c);
    assert_int_equal(json_integer_value(json_object_get(v, "id")), id);
    assert_non_null(json_object_get(v, "result"));
    json_decref(v);
}
