/*
 * The gate: before each of its tool calls a guest asks here, and the session decides like it does
 * for its own calls. It is advice to a guest that keeps to it, for an operator who wants to watch;
 * what a guest can do is bounded by the sandbox. Whoever connects is in the sandbox and hostile: a
 * few connections, one question at a time, frames within their ceiling, and whatever is not
 * understood ends the connection, which is a denial.
 *
 * Of a call that the policy decides by itself only its tool and the outcome are recorded. A
 * question to the operator is recorded like any other, with what it is about.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/frame.h"
#include "session/session_priv.h"

#define CONNECTIONS_MAX 8u

struct gate_conn {
    int fd; /* -1: free */
    bool gone;
    bool busy; /* its question is being answered: the place stays its own */
    struct br_buf in;
};

struct gate {
    struct session *s;
    int listener;
    unsigned calls; /* so far, for their ids */
    struct gate_conn conns[CONNECTIONS_MAX];
};

static void moved(struct session *s)
{
    if (s->init_kick)
        *s->init_kick = true;
    s->kick = true;
}

static void conn_close(struct gate *g, struct gate_conn *c)
{
    if (c->fd >= 0)
        br_loop_unwatch(g->s->loop, c->fd);
    br_close(&c->fd);
    br_buf_free(&c->in);
    c->gone = true;
}

/* The frame that it has sent, whole; 0: not yet. */
static size_t conn_frame(const struct gate_conn *c)
{
    int64_t n = br_frame_size(c->in.data ? c->in.data : (const uint8_t *)"", c->in.len,
                              BR_FRAME_ASK_MAX, NULL);
    return n > 0 && (size_t)n <= c->in.len ? (size_t)n : 0;
}

static int on_readable(void *ctx, int fd, short revents, struct br_err *err)
{
    struct gate *g = ctx;
    char chunk[16384];
    (void)err;
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct gate_conn *c = &g->conns[i];
        if (c->fd != fd)
            continue;
        ssize_t n = revents & POLLIN ? recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT) : 0;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0 || br_buf_put(&c->in, chunk, (size_t)n) < 0 ||
            br_frame_size(c->in.data, c->in.len, BR_FRAME_ASK_MAX, NULL) < 0) {
            conn_close(g, c);
            moved(g->s);
            return 0;
        }
        if (conn_frame(c)) { /* until it is answered only its end is of interest */
            if (br_loop_watch(g->s->loop, fd, 0, on_readable, g) < 0)
                conn_close(g, c);
            moved(g->s);
        }
    }
    return 0;
}

static int on_connect(void *ctx, int fd, short revents, struct br_err *err)
{
    struct gate *g = ctx;
    (void)revents, (void)err;
    int conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (conn < 0)
        return 0;
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct gate_conn *c = &g->conns[i];
        if (c->fd >= 0 || c->busy)
            continue;
        *c = (struct gate_conn){.fd = conn};
        br_buf_init(&c->in, BR_FRAME_HEAD + BR_FRAME_ASK_MAX);
        if (br_loop_watch(g->s->loop, conn, POLLIN, on_readable, g) < 0)
            conn_close(g, c);
        return 0;
    }
    br_close(&conn); /* one too many */
    return 0;
}

int gate_open(struct session *s, int fd, struct br_err *err)
{
    struct gate *g = calloc(1, sizeof(*g));
    if (!g || br_loop_watch(s->loop, fd, POLLIN, on_connect, g) < 0) {
        br_close(&fd);
        free(g);
        return br_err_set(err, BR_E_NOMEM, "the gate of the sandbox could not be served");
    }
    *g = (struct gate){.s = s, .listener = fd};
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
        g->conns[i].fd = -1;
    s->harness.gate = g;
    return 0;
}

void gate_close(struct session *s)
{
    struct gate *g = s->harness.gate;
    if (!g)
        return;
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
        conn_close(g, &g->conns[i]);
    br_loop_unwatch(s->loop, g->listener);
    br_close(&g->listener);
    free(br_steal_ptr(&s->harness.gate));
}

/* ---- what a call would do ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* The effect that the policy knows for a tool, with what it is matched against; the rest of the
 * input is not looked at. */
static int resolve(const struct br_frame_ask *ask, struct effect *e, struct br_err *err)
{
    static const char *const reads[] = {"read", "grep", "find", "ls", NULL};
    static const char *const writes[] = {"write", "edit", NULL};
    json_t *command = json_object_get(ask->input, "command"),
           *path = json_object_get(ask->input, "path"), *args = NULL;
    const char *as = NULL;
    *e = (struct effect){.action = NULL};
    if (strcmp(ask->tool, "bash") == 0) {
        as = "process_exec";
        args = json_pack("{s:O*}", "command", command);
    } else if (is_one_of(ask->tool, reads)) {
        as = strcmp(ask->tool, "read") == 0 ? "fs_read" : "fs_list";
        args = json_pack("{s:O*}", "path", path);
    } else if (is_one_of(ask->tool, writes)) {
        as = "fs_write";
        args = json_pack("{s:O*, s:s}", "path", path, "content", "");
    }
    if (!as) {
        *e = (struct effect){.action = "adapter.tool", .tool = ask->tool};
        e->subject = strdup(ask->tool);
        return e->subject ? 0 : br_err_set(err, BR_E_NOMEM, "no memory for a tool call");
    }
    int r = args ? tools_resolve(as, args, e, err)
                 : br_err_set(err, BR_E_NOMEM, "no memory for a tool call");
    json_decref(args);
    return r;
}

/* ---- deciding ---- */

static int record_gate(struct session *s, const char *call_id, const struct br_frame_ask *ask,
                       const char *action, bool allow, bool asked, const char *rule)
{
    return session_record(s, "bridle.harness.gate", "kernel",
                          json_pack("{s:s, s:s, s:s*, s:s, s:b, s:s*}", "callId", call_id, "tool",
                                    ask->tool, "action", action, "decision",
                                    allow ? "allow" : "deny", "asked", (int)asked, "ruleId",
                                    rule && *rule ? rule : NULL));
}

/* The operator is asked, and who asks may leave meanwhile. a->code 0 if it may be done, else a->err
 * says why not. A negative code ends the run. */
static int ask_operator(struct session *s, struct gate_conn *c, const char *call_id,
                        const struct br_frame_ask *ask, const struct effect *e, struct attempt *a)
{
    int r =
        session_record(s, "tool.call", "agent",
                       json_pack("{s:s, s:s, s:{s:s, s:s}}", "callId", call_id, "tool", ask->tool,
                                 "input", "action", e->action, "subject", e->subject));
    if (r < 0) {
        a->code = br_err_set(&a->err, (enum br_code) - r, "%s", s->stop_err.text);
        return r;
    }
    s->attempts = a;
    s->nattempts = 1;
    s->harness.withdrawn = &c->gone;
    r = attempt_open(s, a, call_id, e);
    if (r == 0)
        r = attempts_answer(s, a, 1);
    s->harness.withdrawn = NULL;
    s->attempts = NULL;
    s->nattempts = 0;
    int k = session_record_result(s, call_id, ask->tool, 0, NULL, a->code, &a->err);
    return r < 0 ? r : k;
}

static int ask_of(struct session *s, struct gate_conn *c, const char *call_id,
                  const struct br_frame_ask *ask, const struct effect *e, bool *allow,
                  struct br_err *why)
{
    struct attempt *a = calloc(1, sizeof(*a));
    if (!a)
        return br_err_set(why, BR_E_NOMEM, "no memory for a call");
    int r = ask_operator(s, c, call_id, ask, e, a);
    *allow = r == 0 && a->code == 0;
    if (a->code < 0)
        *why = a->err;
    attempt_free(a);
    free(a);
    return r;
}

/* *allow and `why`; a negative code ends the run. */
static int decide(struct session *s, struct gate_conn *c, const struct br_frame_ask *ask,
                  bool *allow, struct br_err *why)
{
    char call_id[32];
    struct effect e = {.action = NULL};
    struct verdict v;
    snprintf(call_id, sizeof(call_id), "gate-%u", ++s->harness.gate->calls);
    int usable = s->budget.calls < s->budget.calls_max
                     ? resolve(ask, &e, why)
                     : br_err_set(why, BR_E_BUDGET_EXCEEDED, "the run has made its %u tool calls",
                                  s->budget.calls_max);
    s->budget.calls += s->budget.calls < s->budget.calls_max;
    if (usable < 0) {
        effect_free(&e);
        return record_gate(s, call_id, ask, NULL, false, false, NULL);
    }
    verdict_init(&v);
    int r = session_decide(s, call_id, &e, NULL, &v);
    bool asked = r == 0 && v.effect == BR_EFFECT_ASK;
    *allow = r == 0 && v.effect == BR_EFFECT_ALLOW;
    if (asked)
        r = ask_of(s, c, call_id, ask, &e, allow, why);
    else if (r == 0 && !*allow)
        (void)session_denied(&v, &e, why);
    if (r == 0)
        r = record_gate(s, call_id, ask, e.action, *allow, asked, v.rule_id);
    verdict_free(&v);
    effect_free(&e);
    return r;
}

/* One question of one connection. */
static int serve(struct gate *g, struct gate_conn *c, size_t n)
{
    struct session *s = g->s;
    const struct br_adapter *a = &s->harness.it.adapter;
    const char *tools[BR_LEASE_TOOLS_MAX];
    struct br_frame_ask ask;
    struct br_err why = {.code = BR_OK, .text = ""};
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(BR_FRAME_ASK_MAX);
    bool allow = false;
    for (uint32_t i = 0; i < a->ntools; i++)
        tools[i] = a->tools[i];
    int r = 0, bad = br_frame_ask_get(c->in.data, n, tools, a->ntools, &ask, &why);
    if (bad == 0)
        r = decide(s, c, &ask, &allow, &why);
    bool told = bad == 0 && r == 0 && c->fd >= 0 &&
                br_frame_answer_put(&out, ask.id, allow, allow ? "" : why.text, NULL) == 0 &&
                send(c->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)out.len;
    br_frame_ask_free(&ask);
    if (!told) { /* it is gone, does not read, or said what is no question */
        conn_close(g, c);
        return r;
    }
    memmove(c->in.data, c->in.data + n, c->in.len - n);
    c->in.len -= n;
    if (br_frame_size(c->in.data ? c->in.data : (const uint8_t *)"", c->in.len, BR_FRAME_ASK_MAX,
                      NULL) < 0 ||
        br_loop_watch(s->loop, c->fd, POLLIN, on_readable, g) < 0)
        conn_close(g, c);
    return r;
}

int gate_serve(struct session *s)
{
    struct gate *g = s->harness.gate;
    int r = 0;
    for (bool more = g != NULL; more && r == 0 && !s->stop_code;) {
        more = false;
        for (unsigned i = 0; i < CONNECTIONS_MAX && r == 0; i++) {
            struct gate_conn *c = &g->conns[i];
            size_t n = c->fd >= 0 ? conn_frame(c) : 0;
            if (!n)
                continue;
            more = true;
            c->busy = true;
            r = serve(g, c, n);
            c->busy = false;
        }
    }
    return r;
}
