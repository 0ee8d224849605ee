/*
 * A client's side of JSON-RPC: which answers are due, and what each message is. Everything that
 * comes is a server's, which may be anybody's: one message out of place, and the connection is over
 * (docs/protocol.md). Pure; used by connect.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/stream_priv.h"

/* An event may have BR_JSON_DEPTH_MAX levels in its data, and as many nodes as its type allows. */
#define DEPTH_MAX (BR_JSON_DEPTH_MAX + 8)
#define NODES_MAX (BR_EVENT_NODES_MAX + 100)

static const char *const method_names[] = {
    [BR_STREAM_INITIALIZE] = "initialize", [BR_STREAM_NEW] = "session/new",
    [BR_STREAM_PROMPT] = "session/prompt", [BR_STREAM_RESPOND] = "permission/respond",
    [BR_STREAM_CANCEL] = "session/cancel", [BR_STREAM_LIST] = "session/list",
    [BR_STREAM_LOAD] = "session/load",     [BR_STREAM_RESUME] = "session/resume",
    [BR_STREAM_DETACH] = "session/detach", [BR_STREAM_WATCH] = "session/watch",
};

const char *br_stream_method_name(enum br_stream_method m)
{
    return method_names[m];
}

struct br_stream *br_stream_new(void)
{
    struct br_stream *s = calloc(1, sizeof(*s));
    if (s)
        s->next_id = 1;
    return s;
}

static void pending_free(struct stream_pending *p)
{
    free(p->session);
    free(p->permission);
    *p = (struct stream_pending){.id = 0};
}

void br_stream_free(struct br_stream **sp)
{
    struct br_stream *s = br_steal_ptr(sp);
    if (!s)
        return;
    for (unsigned i = 0; i < BR_STREAM_PENDING_MAX; i++)
        pending_free(&s->pending[i]);
    pending_free(&s->last);
    for (unsigned i = 0; i < s->nsessions; i++)
        stream_session_free(&s->sessions[i]);
    json_decref(s->root);
    free(s);
}

uint64_t br_stream_ask(struct br_stream *s, enum br_stream_method m, const char *session,
                       const char *permission, bool allow)
{
    struct stream_pending *p = NULL;
    for (unsigned i = 0; i < BR_STREAM_PENDING_MAX && !p; i++)
        p = s->pending[i].id ? NULL : &s->pending[i];
    if (!p)
        return 0;
    bool follows = m == BR_STREAM_LOAD || m == BR_STREAM_RESUME;
    struct stream_session *x = follows || m == BR_STREAM_PROMPT ? stream_session_make(s, session)
                                                                : stream_session(s, session);
    if ((follows || m == BR_STREAM_PROMPT) && !x)
        return 0;
    *p = (struct stream_pending){
        .method = m, .session = strdup(session), .permission = strdup(permission)};
    if (!p->session || !p->permission) {
        pending_free(p);
        return 0;
    }
    if (m == BR_STREAM_PROMPT)
        x->prompted = true;
    if (follows)
        x->followed = true;
    if (m == BR_STREAM_RESPOND && x)
        (void)stream_answered(x, permission, allow);
    p->id = s->next_id++;
    return p->id;
}

/* ---- messages ------------------------------------------------------------------------------- */

static int parse(struct br_stream *s, const char *text, size_t n, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    json_decref(s->root);
    s->root = NULL;
    if (br_json_scan(text, n, DEPTH_MAX, NODES_MAX, &why) < 0)
        return stream_fail(err, "the server sent what is not JSON within its limits: %.200s",
                           why.text);
    s->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(s->root))
        return stream_fail(err, "the server sent what is not a JSON object");
    const char *version = json_string_value(json_object_get(s->root, "jsonrpc"));
    if (!version || strcmp(version, "2.0") != 0)
        return stream_fail(err, "the server sent what is not JSON-RPC 2.0");
    return 0;
}

static int on_notification(struct br_stream *s, struct br_stream_item *out, struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"jsonrpc", STREAM_REQUIRED, STREAM_TEXT, 3, 3, NULL},
        {"method", STREAM_REQUIRED, STREAM_TEXT, 1, 128, NULL},
        {"params", STREAM_REQUIRED, STREAM_OBJECT, 0, 0, NULL},
    };
    if (json_object_get(s->root, "id"))
        return stream_fail(err, "the server sent a request, and this protocol has none of them");
    int r = stream_fields(s->root, "a notification", fields, BR_ARRAY_LEN(fields), true, err);
    if (r < 0)
        return r;
    const char *method = json_string_value(json_object_get(s->root, "method"));
    const json_t *params = json_object_get(s->root, "params");
    if (strcmp(method, "session/event") == 0)
        return stream_event(s, params, false, out, err);
    if (strcmp(method, "bridle/event") == 0)
        return stream_event(s, params, true, out, err);
    /* without session/watch, only of one that is followed: its record broke off */
    const char *id = json_string_value(json_object_get(params, "sessionId"));
    const struct stream_session *x = id && s->extended ? stream_session(s, id) : NULL;
    if (strcmp(method, "bridle/session") == 0 && (s->watching || (x && x->followed))) {
        out->kind = BR_STREAM_ROW;
        out->value = params;
        return stream_row(params, err);
    }
    return stream_fail(err, "the server sent the notification '%.64s', which is none that is due",
                       method);
}

static int on_error(struct br_stream *s, const struct stream_pending *p, struct br_stream_item *out,
                    struct br_err *err)
{
    static const struct stream_field fields[] = {
        {"message", STREAM_REQUIRED, STREAM_TEXT, 0, 65536, NULL},
        {"data", STREAM_OPTIONAL, STREAM_OBJECT, 0, 0, NULL},
    };
    json_t *e = json_object_get(s->root, "error"), *code = json_object_get(e, "code");
    if (!json_is_object(e) || !json_is_integer(code) || json_object_size(e) > 3 ||
        json_integer_value(code) < INT32_MIN || json_integer_value(code) > INT32_MAX)
        return stream_fail(err, "an error of the server has no code that is a number");
    int r = stream_fields(e, "an error of the server", fields, BR_ARRAY_LEN(fields), false, err);
    if (r < 0)
        return r;
    if (json_object_size(e) != (json_object_get(e, "data") ? 3u : 2u))
        return stream_fail(err, "an error of the server has an unknown key");
    out->kind = BR_STREAM_REFUSED;
    out->code = (int)json_integer_value(code);
    out->text = json_string_value(json_object_get(e, "message"));
    const char *name = json_string_value(json_object_get(json_object_get(e, "data"), "code"));
    out->name = name ? name : "";
    struct stream_session *x = stream_session(s, p->session);
    if (!x)
        return 0;
    if (p->method == BR_STREAM_RESPOND)
        return stream_answer_taken(x, p->permission, false, err);
    if (p->method == BR_STREAM_PROMPT)
        x->closed = true;
    if ((p->method == BR_STREAM_LOAD || p->method == BR_STREAM_RESUME) && !x->prompted)
        x->closed = true;
    return 0;
}

static int on_response(struct br_stream *s, struct br_stream_item *out, struct br_err *err)
{
    const json_t *id = json_object_get(s->root, "id"), *error = json_object_get(s->root, "error");
    const json_t *result = json_object_get(s->root, "result");
    if (!result == !error || json_object_size(s->root) != 3 || !id)
        return stream_fail(err, "the server sent an answer that is not exactly jsonrpc, id, and "
                                "result or error");
    if (json_is_null(id)) {
        const char *text = json_string_value(json_object_get(error, "message"));
        return stream_fail(err, "the server did not understand this client: %.200s",
                           text ? text : "no reason");
    }
    struct stream_pending *p = NULL;
    for (unsigned i = 0; json_is_integer(id) && i < BR_STREAM_PENDING_MAX && !p; i++)
        if (s->pending[i].id && json_integer_value(id) == (json_int_t)s->pending[i].id)
            p = &s->pending[i];
    if (!p)
        return stream_fail(err, "the server answered what was not asked, or answered it twice");
    pending_free(&s->last);
    s->last = *p;
    *p = (struct stream_pending){.id = 0};
    out->method = s->last.method;
    out->id = s->last.id;
    out->session = s->last.session;
    out->permission = s->last.permission;
    if (error)
        return on_error(s, &s->last, out, err);
    out->kind = BR_STREAM_RESULT;
    out->value = result;
    return stream_result(s, &s->last, result, err);
}

int br_stream_read(struct br_stream *s, const char *text, size_t n, struct br_stream_item *out,
                   struct br_err *err)
{
    *out = (struct br_stream_item){
        .session = "", .permission = "", .type = "", .text = "", .name = ""};
    int r = parse(s, text, n, err);
    if (r < 0)
        return r;
    return json_object_get(s->root, "method") ? on_notification(s, out, err)
                                              : on_response(s, out, err);
}

bool br_stream_extended(const struct br_stream *s)
{
    return s->extended;
}

const char *br_stream_stopped(const struct br_stream *s, const char *session)
{
    const struct stream_session *x = stream_session(s, session);
    return x && x->stopped[0] ? x->stopped : NULL;
}

int64_t br_stream_last(const struct br_stream *s, const char *session, bool own)
{
    const struct stream_session *x = stream_session(s, session);
    return x ? (int64_t)x->next[own] - 1 : -1;
}
