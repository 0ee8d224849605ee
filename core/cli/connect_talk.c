/*
 * The conversation of 'bridle connect' with a service: requests, answers, events, signals. Every
 * message goes through the checks of stream.c before anything is made of it; one that fails them
 * ends the connection with 1002.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/connect.h"
#include "policy/policy.h"
#include "ws/ws.h"

#define TICK_US (250u * 1000)
#define CONNECT_NAMES_MAX 600u

/* ---- what arrives --------------------------------------------------------------------------- */

/* The codes of the protocol, as errors of this program. */
static enum br_code code_of(int code)
{
    static const struct {
        int rpc;
        enum br_code code;
    } codes[] = {
        {-32602, BR_E_INVALID_ARGUMENTS},
        {-32603, BR_E_INTERNAL},
        {-32001, BR_E_PEER_PROTOCOL},
        {-32010, BR_E_NOT_FOUND},
        {-32011, BR_E_IN_USE},
        {-32012, BR_E_LIMIT_EXCEEDED},
        {-32020, BR_E_NOT_FOUND},
        {-32021, BR_E_IN_USE},
        {-32031, BR_E_LIMIT_EXCEEDED},
        {-32030, BR_E_DENIED},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(codes); i++)
        if (codes[i].rpc == code)
            return codes[i].code;
    return BR_E_FAILED;
}

/* Is it for the model that was named? Then those that there are. */
static bool model_refused(struct connect *c, const struct br_stream_item *item)
{
    const char *model = br_cli_opt(c->args, "model");
    const json_t *name;
    size_t i;
    if (item->method != BR_STREAM_NEW || !model || json_array_size(c->models) == 0)
        return false;
    BR_CLEANUP_BUF struct br_buf names = BR_BUF_INIT(CONNECT_NAMES_MAX);
    json_array_foreach(c->models, i, name)
    {
        const char *s = json_string_value(name);
        if (s && strcmp(s, model) == 0)
            return false;
        if (s && names.len + strlen(s) + 16 < CONNECT_NAMES_MAX)
            br_buf_printf(&names, "%s%s", names.len ? ", " : "", s);
        else if (s && !names.failed && names.data[names.len - 1] != '.')
            br_buf_printf(&names, ", ...");
    }
    (void)br_err_set(&c->refusal, code_of(item->code),
                     "the service does not offer the model '%.200s'; it offers %s. No session was "
                     "created",
                     model, br_buf_cstr(&names));
    return true;
}

static void on_refused(struct connect *c, const struct br_stream_item *item)
{
    if (item->id == c->want && model_refused(c, item)) {
        c->got = true;
        return;
    }
    if (item->id == c->want) {
        (void)br_err_set(&c->refusal, code_of(item->code), "the service refused '%s': %.900s",
                         br_stream_method_name(item->method), item->text);
        c->got = true;
        return;
    }
    if (item->method == BR_STREAM_RESPOND)
        br_cli_asking_refused(&c->asking, item->text);
    if (item->method == BR_STREAM_DETACH) {
        c->detach_soon = false;
        connect_say(c, "it cannot be left alone: ");
        connect_say(c, item->text);
        connect_say(c, "\n");
    }
}

static void on_result(struct connect *c, const struct br_stream_item *item)
{
    if (item->method == BR_STREAM_DETACH) {
        c->detached = true;
        c->got = true;
    }
    if (item->id != c->want)
        return;
    json_decref(c->result);
    c->result = json_deep_copy(item->value);
    c->got = true;
}

static int on_event(struct connect *c, const struct br_stream_item *item, struct br_err *err)
{
    if (strcmp(item->session, c->session) != 0)
        return 0; /* of one that was left */
    int r = connect_show_event(c, item, err);
    if (r < 0)
        return r;
    if (c->detach_soon && !c->detached) {
        c->detach_soon = false;
        connect_detach(c);
    }
    if (c->watching && br_stream_stopped(c->stream, c->session))
        c->got = true;
    return 0;
}

/* Where its record broke off no event says that it is over. */
static void on_row(struct connect *c, const json_t *row)
{
    const char *id = json_string_value(json_object_get(row, "sessionId")),
               *status = json_string_value(json_object_get(row, "status"));
    if (c->watching && strcmp(id, c->session) == 0 && strcmp(status, "created") != 0 &&
        strcmp(status, "running") != 0)
        c->got = c->lost = true;
}

static int on_message(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct connect *c = ctx;
    struct br_stream_item item;
    int r = br_stream_read(c->stream, text, n, &item, err);
    if (r < 0)
        return r;
    if (c->json && (r = connect_show_message(c, text, n)) < 0)
        return r;
    switch (item.kind) {
    case BR_STREAM_EVENT:
        return on_event(c, &item, err);
    case BR_STREAM_REFUSED:
        on_refused(c, &item);
        return 0;
    case BR_STREAM_RESULT:
        on_result(c, &item);
        return 0;
    case BR_STREAM_ROW:
        on_row(c, item.value);
        return 0;
    }
    return 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

int connect_send(struct connect *c, enum br_stream_method m, const char *permission, bool allow,
                 const struct br_buf *params, uint64_t *id, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * CONNECT_PROMPT_MAX);
    uint64_t n = br_stream_ask(c->stream, m, c->session, permission, allow);
    if (!n)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "too much was asked of the service at once");
    br_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":",
                  (unsigned long long)n, br_stream_method_name(m));
    br_buf_put(&b, params->data, params->len);
    br_buf_put_u8(&b, '}');
    if (b.failed || params->failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "a request to the service is too large");
    if (id)
        *id = n;
    return br_cli_remote_send(c->remote, (char *)b.data, b.len, err);
}

static int wait_for(struct connect *c, uint64_t until, struct br_err *err)
{
    c->got = false;
    if (c->left)
        return 0;
    int r = br_loop_run_until(c->loop, &c->got, until, err);
    if (r == -BR_E_TIMEOUT && err->code == BR_OK)
        return br_err_set(err, BR_E_TIMEOUT, "the service did not answer within %u s", c->seconds);
    if (r == -BR_E_PEER_GONE && c->got) { /* a service that stops says the last word, and goes */
        *err = (struct br_err){.code = BR_OK};
        return 0;
    }
    return r;
}

int connect_call(struct connect *c, enum br_stream_method m, const struct br_buf *params,
                 bool patient, json_t **result, struct br_err *err)
{
    *result = NULL;
    c->refusal = (struct br_err){.code = BR_OK};
    int r = connect_send(c, m, "", false, params, &c->want, err);
    if (r == 0)
        r = wait_for(c, patient ? UINT64_MAX : br_now_us() + c->seconds * 1000000ull, err);
    c->want = 0;
    if (r < 0)
        return r;
    if (c->refusal.code) {
        *err = c->refusal;
        return -(int)c->refusal.code;
    }
    *result = br_steal_ptr(&c->result);
    return 0;
}

int connect_follow(struct connect *c, struct br_err *err)
{
    return c->lost || br_stream_stopped(c->stream, c->session) ? 0 : wait_for(c, UINT64_MAX, err);
}

static void put_session(const struct connect *c, struct br_buf *b)
{
    br_buf_printf(b, "{\"sessionId\":");
    br_buf_put_json_str(b, c->session, strlen(c->session));
}

void connect_cancel(struct connect *c)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    if (c->canceling)
        return;
    c->canceling = true;
    put_session(c, &b);
    br_buf_printf(&b, "}");
    (void)connect_send(c, BR_STREAM_CANCEL, "", false, &b, NULL, NULL);
}

void connect_detach(struct connect *c)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    if (!c->detachable) {
        connect_say(c, "it cannot be left alone: the service's operator does not allow it\n");
        return;
    }
    put_session(c, &b);
    br_buf_printf(&b, "}");
    (void)connect_send(c, BR_STREAM_DETACH, "", false, &b, NULL, NULL);
}

/* ---- the operator --------------------------------------------------------------------------- */

static void on_answer(void *ctx, const char *permission, unsigned scope, const char *note)
{
    struct connect *c = ctx;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16384);
    put_session(c, &b);
    br_buf_printf(&b, ",\"permissionId\":");
    br_buf_put_json_str(&b, permission, strlen(permission));
    br_buf_printf(&b, ",\"decision\":\"%s\"", scope ? "allow" : "deny");
    if (c->extended && scope)
        br_buf_printf(&b, ",\"scope\":\"%s\"", scope == BR_SCOPE_RUN ? "run" : "once");
    if (note[0]) {
        br_buf_printf(&b, ",\"note\":");
        br_buf_put_json_str(&b, note, strlen(note));
    }
    br_buf_printf(&b, "}");
    (void)connect_send(c, BR_STREAM_RESPOND, permission, scope != 0, &b, NULL, NULL);
}

static void on_stuck(void *ctx)
{
    connect_cancel(ctx);
}

static void leave(struct connect *c)
{
    c->left = c->got = true;
}

static void on_stop(struct connect *c, int signo)
{
    if (c->editing) {
        c->edit_break = true;
        if (signo != SIGINT)
            leave(c);
        return;
    }
    if (++c->nsignals > 1 || !c->running || !c->mine) {
        leave(c);
        return;
    }
    br_cli_term_clear_status(&c->term);
    connect_cancel(c);
    c->asking.guest = true; /* the service denies what is open, as part of the cancel */
    br_cli_asking_cancel(&c->asking);
    if (signo != SIGHUP)
        connect_say(c, "canceling... (again to leave at once)\n");
}

static int on_signal(void *ctx, int fd, short revents, struct br_err *err)
{
    struct connect *c = ctx;
    struct signalfd_siginfo si;
    (void)revents;
    (void)err;
    if (read(fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
        return 0;
    if (si.ssi_signo != SIGQUIT)
        on_stop(c, (int)si.ssi_signo);
    else if (c->running && !c->mine)
        leave(c);
    else if (c->running)
        connect_detach(c);
    return 0;
}

static int on_tick(void *ctx, struct br_err *err)
{
    struct connect *c = ctx;
    (void)err;
    connect_show_tick(c);
    c->tick = br_loop_timer(c->loop, TICK_US, on_tick, c);
    return 0;
}

static int on_writable(void *ctx, int fd, short revents, struct br_err *err)
{
    struct connect *c = ctx;
    (void)revents;
    (void)err;
    br_loop_unwatch(c->loop, fd);
    c->writable = true;
    return 0;
}

/* The output takes nothing: the service and signals are served until it does, so that a pager or a
 * Ctrl-S does not look like a client that is dead. What the service says meanwhile waits. */
static bool on_stalled(void *ctx, int fd)
{
    struct connect *c = ctx;
    struct br_err err = {.code = BR_OK};
    if (c->stalled || c->left || !c->remote)
        return !c->stalled && !c->left;
    c->stalled = true;
    c->writable = false;
    br_cli_remote_hold(c->remote, true);
    int r = br_loop_watch(c->loop, fd, POLLOUT, on_writable, c);
    while (r >= 0 && !c->writable && !c->left) {
        r = br_loop_run_until(c->loop, &c->writable, br_now_us() + TICK_US, &err);
        if (r == -BR_E_TIMEOUT && err.code == BR_OK)
            r = 0;
    }
    br_loop_unwatch(c->loop, fd);
    br_cli_remote_hold(c->remote, false);
    c->stalled = false;
    return r >= 0 && c->writable;
}

/* ---- open and close ------------------------------------------------------------------------- */

static int take_signals(struct connect *c, struct br_err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigprocmask(SIG_BLOCK, &set, &c->old_mask);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (c->signals < 0 || br_loop_watch(c->loop, c->signals, POLLIN, on_signal, c) < 0)
        return br_err_errno(err, BR_E_FAILED, "signals could not be watched");
    return 0;
}

static void note_server(struct connect *c, const json_t *o)
{
    const json_t *own = json_object_get(o, "bridle");
    const char *name = json_string_value(json_object_get(own, "name"));
    const char *access = json_string_value(json_object_get(own, "access"));
    const char *model = json_string_value(json_array_get(json_object_get(o, "models"), 0));
    c->extended = br_stream_extended(c->stream);
    c->detachable = json_is_true(json_object_get(own, "detach"));
    json_int_t seconds = json_integer_value(json_object_get(own, "askSeconds"));
    c->asking.seconds = seconds > 0 && seconds < 86400 ? (unsigned)seconds : 0;
    snprintf(c->name, sizeof(c->name), "%s", name ? name : "");
    snprintf(c->access, sizeof(c->access), "%s", access ? access : "operate");
    snprintf(c->model, sizeof(c->model), "%s", model ? model : "");
    json_decref(c->models);
    c->models = json_deep_copy(json_object_get(o, "models"));
    int64_t at;
    c->clock = connect_time(json_string_value(json_object_get(own, "serverTime")), &at);
    c->skew_us = c->clock ? at - (int64_t)br_now_wall_us() : 0;
}

static int initialize(struct connect *c, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    json_t *result;
    br_buf_printf(&b, "{\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"bridle\","
                      "\"capabilities\":{\"streaming\":true,\"permissioning\":true,"
                      "\"sessions\":true,\"extensions\":[\"bridle/1\"]}}");
    int r = connect_call(c, BR_STREAM_INITIALIZE, &b, false, &result, err);
    if (r == 0 && result)
        note_server(c, result);
    json_decref(result);
    return r;
}

int connect_open(struct connect *c, struct br_err *err)
{
    static const struct br_cli_remote_hooks hooks = {.message = on_message};
    const struct br_cli_remote_options o = {.protocol = "harness.acp.1",
                                            .token_file = br_cli_opt(c->args, "token-file"),
                                            .ca_file = br_cli_opt(c->args, "ca-file"),
                                            .cert = br_cli_opt(c->args, "cert"),
                                            .key = br_cli_opt(c->args, "key"),
                                            .server_uid = br_cli_opt(c->args, "server-uid"),
                                            .env = getenv,
                                            .seconds = c->seconds};
    c->loop = br_loop_new();
    c->stream = br_stream_new();
    if (!c->loop || !c->stream)
        return br_err_set(err, BR_E_NOMEM, "no memory for a connection");
    bool can_ask = c->asker.tty_in && c->asker.tty_out;
    c->asking = (struct br_cli_asking){.loop = c->loop,
                                       .term = &c->asker,
                                       .view = &c->view,
                                       .answer = on_answer,
                                       .stuck = on_stuck,
                                       .ctx = c,
                                       .can_ask = can_ask};
    c->term.stalled = c->asker.stalled = on_stalled;
    c->term.stalled_ctx = c->asker.stalled_ctx = c;
    int r = br_cli_remote_open(&c->remote, c->loop, &c->url, &o, &hooks, c, err);
    (void)unsetenv("BRIDLE_TOKEN");
    if (r == 0)
        r = take_signals(c, err);
    if (r == 0)
        r = initialize(c, err);
    if (r == 0 && c->term.tty_out && !c->json)
        c->tick = br_loop_timer(c->loop, TICK_US, on_tick, c);
    return r;
}

void connect_close(struct connect *c, int code)
{
    bool failed = code == -BR_E_PEER_PROTOCOL;
    c->term.stalled = c->asker.stalled = NULL;
    br_cli_remote_close(&c->remote, failed ? BR_WS_CLOSE_PROTOCOL : BR_WS_CLOSE_NORMAL,
                        failed ? "protocol failure" : "");
    if (c->signals >= 0) {
        br_close(&c->signals);
        sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
    }
    br_stream_free(&c->stream);
    br_loop_free(&c->loop);
    json_decref(c->result);
    json_decref(c->models);
    br_cli_view_free(&c->view);
}
