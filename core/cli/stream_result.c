/*
 * What each request is answered with, and what follows from it for the events that may come. A
 * prompt's result has to say what the events said.
 */
#include <string.h>

#include "cli/stream_priv.h"

#define TEXT(name, need, min, max)                                                                 \
    {                                                                                              \
        name, need, STREAM_TEXT, min, max, NULL                                                    \
    }
#define RESULT_TEXT_MAX (512u * 1024)
#define RESULT_LIST_MAX 128u

static int check(const json_t *o, const char *what, const struct stream_field *f, size_t n,
                 struct br_err *err)
{
    return stream_fields(o, what, f, n, true, err);
}
#define CHECK(o, what, fields, err) check(o, what, fields, BR_ARRAY_LEN(fields), err)

static int texts(const json_t *list, const char *what, size_t max, struct br_err *err)
{
    size_t i;
    const json_t *v;
    json_array_foreach(
        list, i,
        v) if (!json_is_string(v) ||
               (max && json_string_length(v) >
                           max)) return stream_fail(err,
                                                    "%s has an entry that is no text, or too long",
                                                    what);
    return 0;
}

static const char *get(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- initialize ----------------------------------------------------------------------------- */

static int on_capabilities(struct br_stream *s, const json_t *c, struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"streaming", STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL},
        {"permissioning", STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL},
        {"sessions", STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL},
        {"extensions", STREAM_OPTIONAL, STREAM_ARRAY, 0, 64, NULL},
    };
    int r = CHECK(c, "the server's capabilities", fields, err);
    if (r < 0)
        return r;
    if (!json_is_true(json_object_get(c, "streaming")) ||
        !json_is_true(json_object_get(c, "permissioning")))
        return stream_fail(err, "the server has no streaming, or no permissioning");
    const json_t *list = json_object_get(c, "extensions"), *v;
    size_t i;
    if ((r = texts(list, "the list of extensions", 128, err)) < 0)
        return r;
    json_array_foreach(list, i, v)
    {
        if (strcmp(json_string_value(v), "bridle/1") != 0)
            return stream_fail(err, "the server agreed to '%.64s', which was not asked for",
                               json_string_value(v));
        s->extended = true;
    }
    return 0;
}

static int on_initialize(struct br_stream *s, const json_t *o, struct br_err *err)
{
    static const struct stream_field fields[] = {
        TEXT("protocolVersion", STREAM_REQUIRED, 1, 128),
        TEXT("agentName", STREAM_REQUIRED, 1, 128),
        TEXT("agentVersion", STREAM_OPTIONAL, 1, 64),
        {"capabilities", STREAM_REQUIRED, STREAM_OBJECT, 0, 0, NULL},
        {"models", STREAM_REQUIRED, STREAM_ARRAY, 0, RESULT_LIST_MAX, NULL},
        {"bridle", STREAM_OPTIONAL, STREAM_OBJECT, 0, 0, NULL}, /* of the extension alone */
    };
    static const struct stream_field own[] = {
        TEXT("name", STREAM_REQUIRED, 1, 256),
        {"access", STREAM_REQUIRED, STREAM_TEXT, 1, 16, "observe|answer|operate"},
        {"detach", STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL},
        {"askSeconds", STREAM_REQUIRED, STREAM_COUNT, 0, 0, NULL},
    };
    int r = stream_fields(o, "the result of initialize", fields, BR_ARRAY_LEN(fields), true, err);
    if (r < 0)
        return r;
    if (strcmp(get(o, "protocolVersion"), "harness/acp/1") != 0)
        return stream_fail(err, "the server speaks '%.64s', not harness/acp/1",
                           get(o, "protocolVersion"));
    if ((r = texts(json_object_get(o, "models"), "the list of models", 256, err)) < 0 ||
        (r = on_capabilities(s, json_object_get(o, "capabilities"), err)) < 0)
        return r;
    const json_t *bridle = json_object_get(o, "bridle");
    if (!bridle != !s->extended)
        return stream_fail(err, "the result of initialize has %s",
                           bridle ? "'bridle', but not the extension bridle/1"
                                  : "the extension bridle/1, but not 'bridle'");
    if (bridle && (r = stream_fields(bridle, "'bridle' of initialize", own, BR_ARRAY_LEN(own),
                                     false, err)) < 0)
        return r;
    s->initialized = true;
    return 0;
}

/* ---- sessions ------------------------------------------------------------------------------- */

static int on_new(struct br_stream *s, const json_t *o, struct br_err *err)
{
    static const struct stream_field fields[] = {
        TEXT("sessionId", STREAM_REQUIRED, 1, BR_NAME_MAX)};
    int r = CHECK(o, "the result of session/new", fields, err);
    if (r < 0)
        return r;
    if (stream_session(s, get(o, "sessionId")))
        return stream_fail(err, "the session '%.64s' is not a new one", get(o, "sessionId"));
    return stream_session_make(s, get(o, "sessionId"))
               ? 0
               : stream_fail(err, "there are more than %u sessions", BR_STREAM_SESSIONS_MAX);
}

static int check_usage(const struct stream_session *x, const json_t *u, struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"promptTokens", STREAM_REQUIRED, STREAM_COUNT, 0, 0, NULL},
        {"completionTokens", STREAM_REQUIRED, STREAM_COUNT, 0, 0, NULL},
        {"totalTokens", STREAM_REQUIRED, STREAM_COUNT, 0, 0, NULL},
    };
    int r = CHECK(u, "'usage' of a result", fields, err);
    if (r < 0)
        return r;
    uint64_t p = (uint64_t)json_integer_value(json_object_get(u, "promptTokens"));
    uint64_t c = (uint64_t)json_integer_value(json_object_get(u, "completionTokens"));
    uint64_t t = (uint64_t)json_integer_value(json_object_get(u, "totalTokens"));
    if (t != p + c)
        return stream_fail(err, "'totalTokens' of a result is not the sum of the other two");
    if (p != x->prompt_tokens || c != x->completion_tokens)
        return stream_fail(err, "the result counts %llu and %llu tokens, its events %llu and %llu",
                           (unsigned long long)p, (unsigned long long)c,
                           (unsigned long long)x->prompt_tokens,
                           (unsigned long long)x->completion_tokens);
    return 0;
}

static int on_prompt(struct stream_session *x, const json_t *o, struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"status", STREAM_REQUIRED, STREAM_TEXT, 1, 16, "completed|failed"},
        {"events", STREAM_REQUIRED, STREAM_ARRAY, 0, RESULT_LIST_MAX, NULL},
        TEXT("finalText", STREAM_REQUIRED, 0, RESULT_TEXT_MAX),
        {"usage", STREAM_REQUIRED, STREAM_OBJECT, 0, 0, NULL},
    };
    int r = CHECK(o, "the result of session/prompt", fields, err);
    if (r < 0 || (r = texts(json_object_get(o, "events"), "'events' of a result", 0, err)) < 0)
        return r;
    if (!x->stopped[0])
        return stream_fail(err, "the result of session/prompt came before agent.stopped");
    bool completed = strcmp(get(o, "status"), "completed") == 0;
    if (completed != (strcmp(x->stopped, "completed") == 0))
        return stream_fail(err, "the result says %s, but agent.stopped said %s", get(o, "status"),
                           x->stopped);
    x->closed = true;
    return check_usage(x, json_object_get(o, "usage"), err);
}

static int on_load(struct stream_session *x, const json_t *o, struct br_err *err)
{
    static const struct stream_field fields[] = {
        TEXT("status", STREAM_REQUIRED, 1, 64),
        {"live", STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL},
        {"owned", STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL},
    };
    int r =
        stream_fields(o, "the result of session/load", fields, BR_ARRAY_LEN(fields), false, err);
    if (r < 0)
        return r;
    bool live = json_is_true(json_object_get(o, "live"));
    if (!live)
        x->closed = true;
    return 0;
}

int stream_row(const json_t *row, struct br_err *err)
{
    static const struct stream_field fields[] = {
        TEXT("sessionId", STREAM_REQUIRED, 1, BR_NAME_MAX),
        {"status", STREAM_REQUIRED, STREAM_TEXT, 1, 64, NULL},
        TEXT("workspace", STREAM_OPTIONAL, 0, BR_PATH_MAX),
        TEXT("model", STREAM_OPTIONAL, 0, BR_NAME_MAX),
        TEXT("goal", STREAM_OPTIONAL, 0, 0),
        TEXT("startedAt", STREAM_OPTIONAL, 0, 40),
        TEXT("endedAt", STREAM_OPTIONAL, 0, 40),
        {"events", STREAM_OPTIONAL, STREAM_COUNT, 0, 0, NULL},
        {"live", STREAM_OPTIONAL, STREAM_BOOL, 0, 0, NULL},
        {"owned", STREAM_OPTIONAL, STREAM_BOOL, 0, 0, NULL},
    };
    return stream_fields(row, "a session of the list", fields, BR_ARRAY_LEN(fields), false, err);
}

static int on_rows(const json_t *o, struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"sessions", STREAM_REQUIRED, STREAM_ARRAY, 0, 2000, NULL},
        {"more", STREAM_OPTIONAL, STREAM_BOOL, 0, 0, NULL},
    };
    int r = stream_fields(o, "the list of sessions", fields, BR_ARRAY_LEN(fields), false, err);
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(o, "sessions"), i, row) if (r == 0) r = stream_row(row, err);
    return r;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int on_flag(const json_t *o, const char *what, const char *name, bool must,
                   struct br_err *err)
{
    const struct stream_field field = {name, STREAM_REQUIRED, STREAM_BOOL, 0, 0, NULL};
    int r = stream_fields(o, what, &field, 1, true, err);
    if (r == 0 && must && !json_is_true(json_object_get(o, name)))
        return stream_fail(err, "'%s' of %s is not true", name, what);
    return r;
}

int stream_result(struct br_stream *s, const struct stream_pending *p, const json_t *result,
                  struct br_err *err)
{
    struct stream_session *x = stream_session(s, p->session);
    switch (p->method) {
    case BR_STREAM_INITIALIZE:
        return on_initialize(s, result, err);
    case BR_STREAM_NEW:
        return on_new(s, result, err);
    case BR_STREAM_PROMPT:
        return x ? on_prompt(x, result, err) : stream_fail(err, "a result of no session");
    case BR_STREAM_RESPOND: {
        int r = on_flag(result, "the result of permission/respond", "accepted", true, err);
        return r == 0 && x ? stream_answer_taken(x, p->permission, true, err) : r;
    }
    case BR_STREAM_CANCEL:
        return on_flag(result, "the result of session/cancel", "canceled", false, err);
    case BR_STREAM_DETACH:
        return on_flag(result, "the result of session/detach", "detached", true, err);
    case BR_STREAM_LOAD:
    case BR_STREAM_RESUME:
        return x ? on_load(x, result, err) : stream_fail(err, "a result of no session");
    case BR_STREAM_LIST:
        return on_rows(result, err);
    case BR_STREAM_WATCH:
        s->watching = true;
        return on_rows(result, err);
    }
    return stream_fail(err, "a result that was not asked for");
}
