/*
 * The order of events in one run. One row per type that opens, answers or closes something; the
 * others only need a session that has begun and has not ended. A row first checks, then notes:
 * a refused event leaves no trace.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/events_priv.h"

/* Questions that are open at one time: a turn has at most 128 calls, each may ask more than once.
 */
#define OPEN_MAX 1024u
/* Permissions of one run: every call may ask for every simple command in it. */
#define PERMISSIONS_MAX 100000u

struct id_list {
    char **ids;
    size_t n, cap;
};

struct br_event_order {
    char *session_id, *agent_id, *status;
    char *sandbox_run, *sandbox_name;
    bool described; /* bridle.run */
    uint64_t steps, tool_calls;
    struct br_open_call *calls;
    size_t ncalls, cap_calls;
    struct br_open_permission *permissions;
    size_t npermissions, cap_permissions;
    struct id_list requests; /* open model requests */
    struct id_list asked;    /* every permission id of the run */
};

static int refuse(struct br_err *err, const char *type, const char *id, const char *why)
{
    return br_err_set(err, BR_E_EVENT_SCHEMA, "'%s'%s%.64s%s %s; it was not stored", type,
                      id ? " for '" : "", id ? id : "", id ? "'" : "", why);
}

static const char *get(const struct event_source *data, const char *key)
{
    return data->get(data->ctx, key);
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static char *copy(const char *s, bool *ok)
{
    char *c = s ? strdup(s) : NULL;
    *ok &= !s || c;
    return c;
}

static bool reserve(void **p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t want = *cap ? 2 * *cap : 16;
    void *q = realloc(*p, want * size);
    if (!q)
        return false;
    *p = q;
    *cap = want;
    return true;
}

static int no_memory(struct br_err *err)
{
    return br_err_set(err, BR_E_NOMEM, "no memory to follow the order of events");
}

/* ---- lists ---- */

static size_t id_find(const struct id_list *l, const char *id)
{
    size_t i = l->n;
    while (i > 0 && strcmp(l->ids[i - 1], id) != 0)
        i--;
    return i; /* index + 1 */
}

static bool id_add(struct id_list *l, const char *id)
{
    bool ok = reserve((void **)&l->ids, &l->cap, l->n + 1, sizeof(*l->ids));
    char *c = ok ? copy(id, &ok) : NULL;
    if (ok)
        l->ids[l->n++] = c;
    return ok;
}

static void id_remove(struct id_list *l, size_t i)
{
    free(l->ids[i]);
    l->ids[i] = l->ids[--l->n];
}

static struct br_open_call *call_find(struct br_event_order *o, const char *id)
{
    for (size_t i = 0; id && i < o->ncalls; i++)
        if (strcmp(o->calls[i].call_id, id) == 0)
            return &o->calls[i];
    return NULL;
}

static struct br_open_permission *permission_find(struct br_event_order *o, const char *id)
{
    for (size_t i = 0; i < o->npermissions; i++)
        if (strcmp(o->permissions[i].permission_id, id) == 0)
            return &o->permissions[i];
    return NULL;
}

static void permission_free(struct br_open_permission *p)
{
    free(p->permission_id);
    free(p->session_id);
    free(p->call_id);
    free(p->action);
    free(p->subject);
    free(p->scope);
}

/* ---- one function per type that has a say ---- */

typedef int rule_fn(struct br_event_order *o, const char *type, const struct event_source *data,
                    struct br_err *err);

static int on_created(struct br_event_order *o, const char *type, const struct event_source *data,
                      struct br_err *err)
{
    bool ok = true;
    if (o->session_id)
        return refuse(err, type, NULL, "came twice");
    o->session_id = copy(get(data, "sessionId"), &ok);
    return ok ? 0 : no_memory(err);
}

static int on_started(struct br_event_order *o, const char *type, const struct event_source *data,
                      struct br_err *err)
{
    bool ok = true;
    if (o->agent_id)
        return refuse(err, type, NULL, "came twice");
    if (!same(o->session_id, get(data, "sessionId")))
        return refuse(err, type, get(data, "sessionId"), "names another session");
    o->agent_id = copy(get(data, "agentId"), &ok);
    return ok ? 0 : no_memory(err);
}

static int on_run(struct br_event_order *o, const char *type, const struct event_source *data,
                  struct br_err *err)
{
    (void)data;
    if (o->described)
        return refuse(err, type, NULL, "came twice");
    o->described = true;
    return 0;
}

static int on_request(struct br_event_order *o, const char *type, const struct event_source *data,
                      struct br_err *err)
{
    const char *id = get(data, "requestId");
    if (id_find(&o->requests, id))
        return refuse(err, type, id, "is open already");
    if (o->requests.n == OPEN_MAX)
        return refuse(err, type, id, "is one open request too many");
    if (!id_add(&o->requests, id))
        return no_memory(err);
    o->steps++;
    return 0;
}

static int on_response(struct br_event_order *o, const char *type, const struct event_source *data,
                       struct br_err *err)
{
    size_t i = id_find(&o->requests, get(data, "requestId"));
    if (!i)
        return refuse(err, type, get(data, "requestId"), "answers no open request");
    id_remove(&o->requests, i - 1);
    return 0;
}

static int on_call(struct br_event_order *o, const char *type, const struct event_source *data,
                   struct br_err *err)
{
    const char *id = get(data, "callId");
    if (call_find(o, id))
        return refuse(err, type, id, "is open already");
    if (o->ncalls == OPEN_MAX)
        return refuse(err, type, id, "is one open call too many");
    bool ok = reserve((void **)&o->calls, &o->cap_calls, o->ncalls + 1, sizeof(*o->calls));
    struct br_open_call c = {.call_id = copy(id, &ok), .tool = copy(get(data, "tool"), &ok)};
    if (!ok) {
        free(c.call_id);
        free(c.tool);
        return no_memory(err);
    }
    o->calls[o->ncalls++] = c;
    o->tool_calls++;
    return 0;
}

static int on_result(struct br_event_order *o, const char *type, const struct event_source *data,
                     struct br_err *err)
{
    const char *id = get(data, "callId");
    struct br_open_call *c = call_find(o, id);
    if (!c)
        return refuse(err, type, id, "answers no open call");
    if (!same(c->tool, get(data, "tool")))
        return refuse(err, type, id, "names another tool than its call");
    if (c->waiting)
        return refuse(err, type, id, "came before the answer to its permission request");
    if (data->member(data->ctx, "ok") == MEMBER_TRUE &&
        data->member(data->ctx, "error") != MEMBER_ABSENT)
        return refuse(err, type, id, "is ok and carries an error");
    free(c->call_id);
    free(c->tool);
    memmove(c, c + 1, (size_t)(&o->calls[o->ncalls] - (c + 1)) * sizeof(*c));
    o->ncalls--;
    return 0;
}

static int on_requested(struct br_event_order *o, const char *type, const struct event_source *data,
                        struct br_err *err)
{
    const char *id = get(data, "permissionId"), *call_id = get(data, "callId");
    struct br_open_call *c = call_find(o, call_id);
    if (!same(o->session_id, get(data, "sessionId")))
        return refuse(err, type, id, "names another session");
    if (id_find(&o->asked, id))
        return refuse(err, type, id, "was asked before");
    if (call_id && !c)
        return refuse(err, type, id, "belongs to no open call");
    if (o->npermissions == OPEN_MAX || o->asked.n == PERMISSIONS_MAX)
        return refuse(err, type, id, "is one permission request too many");
    bool ok = reserve((void **)&o->permissions, &o->cap_permissions, o->npermissions + 1,
                      sizeof(*o->permissions));
    struct br_open_permission p = {.permission_id = copy(id, &ok),
                                   .session_id = copy(get(data, "sessionId"), &ok),
                                   .call_id = copy(call_id, &ok),
                                   .action = copy(get(data, "action"), &ok),
                                   .subject = copy(get(data, "subject"), &ok),
                                   .scope = copy(get(data, "scope"), &ok)};
    if (!ok || !id_add(&o->asked, id)) {
        permission_free(&p);
        return no_memory(err);
    }
    o->permissions[o->npermissions++] = p;
    if (c)
        c->waiting++;
    return 0;
}

static int on_resolved(struct br_event_order *o, const char *type, const struct event_source *data,
                       struct br_err *err)
{
    const char *id = get(data, "permissionId");
    struct br_open_permission *p = permission_find(o, id);
    if (!p)
        return refuse(err, type, id, "answers no open permission request");
    if (!same(p->session_id, get(data, "sessionId")) || !same(p->call_id, get(data, "callId")) ||
        !same(p->action, get(data, "action")) || !same(p->subject, get(data, "subject")) ||
        !same(p->scope, get(data, "scope")))
        return refuse(err, type, id, "does not agree with its request");
    struct br_open_call *c = call_find(o, p->call_id);
    if (c)
        c->waiting--;
    permission_free(p);
    memmove(p, p + 1, (size_t)(&o->permissions[o->npermissions] - (p + 1)) * sizeof(*p));
    o->npermissions--;
    return 0;
}

static int on_sandbox_started(struct br_event_order *o, const char *type,
                              const struct event_source *data, struct br_err *err)
{
    bool ok = true;
    if (o->sandbox_run)
        return refuse(err, type, NULL, "came while a sandbox is running");
    char *run = copy(get(data, "runId"), &ok), *name = copy(get(data, "containerName"), &ok);
    if (!ok) {
        free(run);
        free(name);
        return no_memory(err);
    }
    o->sandbox_run = run;
    o->sandbox_name = name;
    return 0;
}

static int on_sandbox_stopped(struct br_event_order *o, const char *type,
                              const struct event_source *data, struct br_err *err)
{
    if (!o->sandbox_run)
        return refuse(err, type, NULL, "came without a running sandbox");
    if (!same(o->sandbox_run, get(data, "runId")) ||
        !same(o->sandbox_name, get(data, "containerName")))
        return refuse(err, type, get(data, "containerName"), "names another sandbox");
    free(br_steal_ptr(&o->sandbox_run));
    free(br_steal_ptr(&o->sandbox_name));
    return 0;
}

static int on_stopped(struct br_event_order *o, const char *type, const struct event_source *data,
                      struct br_err *err)
{
    bool ok = true;
    if (o->agent_id && !same(o->agent_id, get(data, "agentId")))
        return refuse(err, type, get(data, "agentId"), "names another agent");
    if (o->npermissions)
        return refuse(err, type, o->permissions[0].permission_id,
                      "leaves a permission request open");
    if (o->ncalls)
        return refuse(err, type, o->calls[0].call_id, "leaves a tool call open");
    o->status = copy(get(data, "status"), &ok);
    return ok ? 0 : no_memory(err);
}

static const struct {
    const char *type;
    rule_fn *rule;
} rules[] = {
    {"session.created", on_created},
    {"agent.started", on_started},
    {"bridle.run", on_run},
    {"model.request", on_request},
    {"model.response", on_response},
    {"tool.call", on_call},
    {"tool.result", on_result},
    {"permission.requested", on_requested},
    {"permission.resolved", on_resolved},
    {"sandbox.started", on_sandbox_started},
    {"sandbox.stopped", on_sandbox_stopped},
    {"agent.stopped", on_stopped},
};

int event_order_apply(struct br_event_order *o, const char *type, const struct event_source *data,
                      struct br_err *err)
{
    if (o->status)
        return refuse(err, type, NULL, "came after agent.stopped");
    if (!o->session_id && strcmp(type, "session.created") != 0)
        return refuse(err, type, NULL, "came before session.created");
    for (size_t i = 0; i < BR_ARRAY_LEN(rules); i++)
        if (strcmp(rules[i].type, type) == 0)
            return rules[i].rule(o, type, data, err);
    return 0;
}

static const char *tree_get(const void *ctx, const char *key)
{
    return json_string_value(json_object_get((const json_t *)ctx, key));
}

static enum event_member tree_member(const void *ctx, const char *key)
{
    const json_t *v = json_object_get((const json_t *)ctx, key);
    return !v ? MEMBER_ABSENT : json_is_true(v) ? MEMBER_TRUE : MEMBER_OTHER;
}

int br_event_order_apply(struct br_event_order *o, const char *type, const json_t *data,
                         struct br_err *err)
{
    struct event_source src = {.get = tree_get, .member = tree_member, .ctx = data};
    return event_order_apply(o, type, &src, err);
}

void br_event_order_open(const struct br_event_order *o, struct br_event_open *open)
{
    *open = (struct br_event_open){
        .permission = o->npermissions ? &o->permissions[0] : NULL,
        .call = o->ncalls ? &o->calls[0] : NULL,
        .session_id = o->session_id,
        .agent_id = o->agent_id,
        .sandbox_run = o->sandbox_run,
        .sandbox_name = o->sandbox_name,
        .status = o->status,
        .steps = o->steps,
        .tool_calls = o->tool_calls,
    };
}

struct br_event_order *br_event_order_new(void)
{
    return calloc(1, sizeof(struct br_event_order));
}

static void id_list_free(struct id_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->ids[i]);
    free(l->ids);
}

void br_event_order_free(struct br_event_order **op)
{
    struct br_event_order *o = *op;
    if (!o)
        return;
    for (size_t i = 0; i < o->ncalls; i++) {
        free(o->calls[i].call_id);
        free(o->calls[i].tool);
    }
    for (size_t i = 0; i < o->npermissions; i++)
        permission_free(&o->permissions[i]);
    free(o->calls);
    free(o->permissions);
    id_list_free(&o->requests);
    id_list_free(&o->asked);
    free(o->session_id);
    free(o->agent_id);
    free(o->status);
    free(o->sandbox_run);
    free(o->sandbox_name);
    free(o);
    *op = NULL;
}
