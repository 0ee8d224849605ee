/*
 * The events of a session as they come from a server. Their fields and their order are checked by
 * the same table and rules that bridle-audit stores them by (core/audit/events.h); here are the
 * numbers that they come with, ids that must not come again, and the answers of this client.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/stream_priv.h"

#define OWN_PREFIX "bridle."
#define PERMISSIONS_MAX 20000u

/* ---- sessions ------------------------------------------------------------------------------- */

struct stream_session *stream_session(const struct br_stream *s, const char *id)
{
    for (unsigned i = 0; i < s->nsessions; i++)
        if (strcmp(s->sessions[i].id, id) == 0)
            return (struct stream_session *)&s->sessions[i];
    return NULL;
}

struct stream_session *stream_session_make(struct br_stream *s, const char *id)
{
    struct stream_session *x = stream_session(s, id);
    if (x || s->nsessions == BR_STREAM_SESSIONS_MAX)
        return x;
    x = &s->sessions[s->nsessions];
    *x = (struct stream_session){.id = strdup(id), .order = br_event_order_new()};
    if (!x->id || !x->order) {
        stream_session_free(x);
        return NULL;
    }
    s->nsessions++;
    return x;
}

void stream_session_free(struct stream_session *x)
{
    for (size_t i = 0; i < x->npermissions; i++) {
        free(x->permissions[i].id);
        free(x->permissions[i].action);
        free(x->permissions[i].subject);
    }
    free(x->permissions);
    free(x->seen);
    free(x->id);
    br_event_order_free(&x->order);
}

/* ---- ids that come once --------------------------------------------------------------------- */

static bool is_empty(const uint8_t slot[16])
{
    static const uint8_t none[16];
    return memcmp(slot, none, sizeof(none)) == 0;
}

/* Where it is, or would be. */
static size_t slot_of(const struct stream_session *x, const uint8_t hash[16])
{
    size_t at;
    memcpy(&at, hash, sizeof(at));
    at %= x->cap_seen;
    while (!is_empty(x->seen[at]) && memcmp(x->seen[at], hash, 16) != 0)
        at = (at + 1) % x->cap_seen;
    return at;
}

static bool grow(struct stream_session *x)
{
    size_t old = x->cap_seen;
    uint8_t(*before)[16] = x->seen;
    uint8_t(*after)[16] = calloc(old ? 2 * old : 256, 16);
    if (!after)
        return false;
    x->seen = after;
    x->cap_seen = old ? 2 * old : 256;
    for (size_t i = 0; i < old; i++)
        if (!is_empty(before[i]))
            memcpy(x->seen[slot_of(x, before[i])], before[i], 16);
    free(before);
    return true;
}

static int note_id(struct stream_session *x, const char *event_id, struct br_err *err)
{
    uint8_t hash[32];
    struct br_sha256 h;
    br_sha256_init(&h);
    br_sha256_put(&h, event_id, strlen(event_id));
    br_sha256_end(&h, hash);
    if (2 * (x->nseen + 1) > x->cap_seen && !grow(x))
        return br_err_set(err, BR_E_NOMEM, "no memory for the ids of events");
    size_t at = slot_of(x, hash);
    if (!is_empty(x->seen[at]))
        return stream_fail(err, "the event id '%.64s' came twice", event_id);
    memcpy(x->seen[at], hash, 16);
    x->nseen++;
    return 0;
}

/* ---- questions and answers ------------------------------------------------------------------ */

static const char *get(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static struct stream_permission *find(struct stream_session *x, const char *id)
{
    for (size_t i = x->npermissions; i > 0; i--)
        if (strcmp(x->permissions[i - 1].id, id) == 0)
            return &x->permissions[i - 1];
    return NULL;
}

static int on_requested(struct stream_session *x, const json_t *data, struct br_err *err)
{
    if (x->npermissions == PERMISSIONS_MAX)
        return stream_fail(err, "a session asks for more than %u permissions", PERMISSIONS_MAX);
    if (x->npermissions == x->cap_permissions) {
        size_t want = x->cap_permissions ? 2 * x->cap_permissions : 16;
        void *more = realloc(x->permissions, want * sizeof(x->permissions[0]));
        if (!more)
            return br_err_set(err, BR_E_NOMEM, "no memory for a permission request");
        x->permissions = more;
        x->cap_permissions = want;
    }
    const char *subject = json_string_value(json_object_get(data, "subject"));
    struct stream_permission p = {.id = strdup(get(data, "permissionId")),
                                  .action = strdup(get(data, "action")),
                                  .subject = subject ? strdup(subject) : NULL};
    x->permissions[x->npermissions++] = p;
    return p.id && p.action && (p.subject || !subject)
               ? 0
               : br_err_set(err, BR_E_NOMEM, "no memory for a permission request");
}

/* The server took this client's answer, and the session resolved it: do they agree? */
static int compare(const struct stream_permission *p, struct br_err *err)
{
    if (!p->accepted || !p->resolved)
        return 0;
    if (p->allow != p->resolved_allow)
        return stream_fail(err,
                           "permission '%.64s' was resolved with %s, but this client's answer, "
                           "which was accepted, is %s",
                           p->id, p->resolved_allow ? "allow" : "deny",
                           p->allow ? "allow" : "deny");
    if (!p->by_person)
        return stream_fail(err,
                           "permission '%.64s' was answered by this client, but the resolution "
                           "is not an operator's",
                           p->id);
    return 0;
}

static int on_resolved(struct stream_session *x, const json_t *event, const json_t *data,
                       struct br_err *err)
{
    struct stream_permission *p = find(x, get(data, "permissionId"));
    if (!p)
        return stream_fail(err, "a resolution answers no request");
    p->resolved = true;
    p->resolved_allow = strcmp(get(data, "decision"), "allow") == 0;
    p->by_person = strcmp(get(event, "actor"), "operator") == 0;
    return compare(p, err);
}

int stream_answered(struct stream_session *x, const char *permission, bool allow)
{
    struct stream_permission *p = find(x, permission);
    if (!p || p->asked_me)
        return -BR_E_NOT_FOUND;
    p->asked_me = true;
    p->allow = allow;
    return 0;
}

int stream_answer_taken(struct stream_session *x, const char *permission, bool accepted,
                        struct br_err *err)
{
    struct stream_permission *p = find(x, permission);
    if (!p)
        return 0;
    p->accepted = accepted;
    return compare(p, err);
}

/* bridle.ask is what a person is shown: it has to be about the request that they answer. */
static int on_ask(struct stream_session *x, const json_t *data, struct br_err *err)
{
    struct stream_permission *p = find(x, get(data, "permissionId"));
    const char *subject = json_string_value(json_object_get(data, "subject"));
    if (!p || strcmp(p->action, get(data, "action")) != 0 || !p->subject != !subject ||
        (subject && strcmp(p->subject, subject) != 0))
        return stream_fail(err, "'bridle.ask' does not agree with the request that it is about");
    return 0;
}

static int on_answered(struct stream_session *x, const json_t *data, struct br_err *err)
{
    struct stream_permission *p = find(x, get(data, "permissionId"));
    bool allow = strcmp(get(data, "decision"), "allow") == 0;
    if (!p || !p->resolved || p->resolved_allow != allow)
        return stream_fail(err, "'bridle.answered' does not agree with the resolution");
    return 0;
}

/* ---- one event ------------------------------------------------------------------------------ */

static bool digits(const char **p, unsigned n)
{
    for (; n; n--, (*p)++)
        if (**p < '0' || **p > '9')
            return false;
    return true;
}

/* 2026-03-01T10:00:00, perhaps a fraction, and Z or +00:00 */
static bool is_time(const char *p)
{
    static const char marks[] = "--T::";
    for (unsigned i = 0; i < 6; i++) {
        if (!digits(&p, i ? 2 : 4) || (i < 5 && *p++ != marks[i]))
            return false;
    }
    if (*p == '.') {
        size_t n = strspn(++p, "0123456789");
        if (n == 0 || n > 9)
            return false;
        p += n;
    }
    if (strcmp(p, "Z") == 0)
        return true;
    if (*p != '+' && *p != '-')
        return false;
    p++;
    return digits(&p, 2) && *p++ == ':' && digits(&p, 2) && *p == '\0';
}

/* The rules of the store speak of storing. */
static int as_failure(const struct br_err *why, struct br_err *err)
{
    char text[BR_ERR_TEXT_MAX];
    if (why->code == BR_E_NOMEM)
        return br_err_set(err, BR_E_NOMEM, "%s", why->text);
    snprintf(text, sizeof(text), "%s", why->text);
    char *tail = strrchr(text, ';');
    if (tail && strstr(tail, "not stored"))
        *tail = '\0';
    return stream_fail(err, "%s", text);
}

static int check_envelope(const json_t *e, bool own, struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"v", STREAM_REQUIRED, STREAM_COUNT, 0, 0, NULL},
        {"type", STREAM_REQUIRED, STREAM_TEXT, 1, 64, NULL},
        {"eventId", STREAM_REQUIRED, STREAM_TEXT, 1, BR_NAME_MAX, NULL},
        {"at", STREAM_REQUIRED, STREAM_TEXT, 20, 40, NULL},
        {"actor", STREAM_OPTIONAL, STREAM_TEXT, 1, 64,
         "kernel|agent|model|operator|sandbox-runner"},
        {"data", STREAM_REQUIRED, STREAM_OBJECT, 0, 0, NULL},
    };
    int r = stream_fields(e, "an event", fields, BR_ARRAY_LEN(fields), true, err);
    if (r < 0)
        return r;
    if (json_integer_value(json_object_get(e, "v")) != 1)
        return stream_fail(err, "an event is of another version than 1");
    if (!is_time(get(e, "at")))
        return stream_fail(err, "'at' of an event is not a time");
    bool prefix = strncmp(get(e, "type"), OWN_PREFIX, strlen(OWN_PREFIX)) == 0;
    if (prefix != own)
        return stream_fail(err, "the event '%.64s' came as %s", get(e, "type"),
                           own ? "bridle/event" : "session/event");
    return 0;
}

/* The fields of the types that every client gets; the own ones may have more than is known here. */
static int check_data(const json_t *e, bool own, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf scratch = BR_BUF_INIT(2 * BR_EVENT_MAX);
    if (own)
        return 0;
    if (br_event_build(get(e, "type"), json_string_value(json_object_get(e, "actor")),
                       json_object_get(e, "data"), get(e, "eventId"), 0, &scratch, &why) < 0)
        return as_failure(&why, err);
    return 0;
}

static int note_usage(struct stream_session *x, const json_t *data, struct br_err *err)
{
    const json_t *u = json_object_get(data, "usage");
    x->prompt_tokens += (uint64_t)json_integer_value(json_object_get(u, "promptTokens"));
    x->completion_tokens += (uint64_t)json_integer_value(json_object_get(u, "completionTokens"));
    if (x->prompt_tokens + x->completion_tokens > BR_EVENT_INT_MAX)
        return stream_fail(err, "the tokens of a session are more than can be counted");
    return 0;
}

static int note_meaning(struct stream_session *x, const json_t *e, struct br_err *err)
{
    const json_t *data = json_object_get(e, "data");
    const char *type = get(e, "type");
    if (strcmp(type, "permission.requested") == 0)
        return on_requested(x, data, err);
    if (strcmp(type, "permission.resolved") == 0)
        return on_resolved(x, e, data, err);
    if (strcmp(type, "model.response") == 0)
        return note_usage(x, data, err);
    if (strcmp(type, "bridle.ask") == 0)
        return on_ask(x, data, err);
    if (strcmp(type, "bridle.answered") == 0)
        return on_answered(x, data, err);
    if (strcmp(type, "agent.stopped") == 0)
        snprintf(x->stopped, sizeof(x->stopped), "%s", get(data, "status"));
    return 0;
}

/* seq and after; both kinds count by themselves. */
static int check_numbers(struct stream_session *x, const json_t *params, bool own,
                         struct br_err *err)
{
    uint64_t seq = (uint64_t)json_integer_value(json_object_get(params, "seq"));
    if (seq != x->next[own])
        return stream_fail(err, "%s has seq %llu where %llu is due: %s",
                           own ? "bridle/event" : "session/event", (unsigned long long)seq,
                           (unsigned long long)x->next[own],
                           seq > x->next[own] ? "there is a gap" : "it came before");
    if (seq >= BR_STREAM_EVENTS_MAX)
        return stream_fail(err, "a session has more than %u events", BR_STREAM_EVENTS_MAX);
    if (own && json_integer_value(json_object_get(params, "after")) != (json_int_t)x->next[0] - 1)
        return stream_fail(err,
                           "'after' of bridle/event is %lld, but the last session/event is %lld",
                           (long long)json_integer_value(json_object_get(params, "after")),
                           (long long)x->next[0] - 1);
    return 0;
}

int stream_event(struct br_stream *s, const json_t *params, bool own, struct br_stream_item *out,
                 struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"sessionId", STREAM_REQUIRED, STREAM_TEXT, 1, BR_NAME_MAX, NULL},
        {"seq", STREAM_REQUIRED, STREAM_COUNT, 0, 0, NULL},
        {"event", STREAM_REQUIRED, STREAM_OBJECT, 0, 0, NULL},
        {"after", STREAM_REQUIRED, STREAM_SEQ, 0, 0, NULL}, /* of bridle/event alone */
    };
    struct br_err why = {.code = BR_OK};
    int r = stream_fields(params, own ? "bridle/event" : "session/event", fields, own ? 4 : 3, true,
                          err);
    if (r < 0)
        return r;
    if (own && !s->extended)
        return stream_fail(err, "bridle/event came, but bridle/1 was not agreed on");
    struct stream_session *x = stream_session(s, get(params, "sessionId"));
    if (!x || !(x->prompted || x->followed))
        return stream_fail(err, "an event came of the session '%.64s', which was not started",
                           get(params, "sessionId"));
    if (x->closed || x->stopped[0])
        return stream_fail(err, "an event came after %s of its session",
                           x->stopped[0] ? "agent.stopped" : "the end");
    const json_t *e = json_object_get(params, "event"), *data = json_object_get(e, "data");
    if ((r = check_numbers(x, params, own, err)) < 0 || (r = check_envelope(e, own, err)) < 0 ||
        (r = check_data(e, own, err)) < 0 || (r = note_id(x, get(e, "eventId"), err)) < 0)
        return r;
    if (br_event_order_apply(x->order, get(e, "type"), data, &why) < 0)
        return as_failure(&why, err);
    if ((r = note_meaning(x, e, err)) < 0)
        return r;
    x->next[own]++;
    out->kind = BR_STREAM_EVENT;
    out->session = x->id;
    out->value = e;
    out->type = get(e, "type");
    out->permission = get(data, "permissionId");
    return 0;
}
