/*
 * bridle acp: the Agent Client Protocol on standard input and output, as editors start an agent. A
 * line is one JSON message; it becomes a text frame to the service, and what the service says
 * becomes a line. The gateway is the agent, this is a pipe with limits; what it looks for in the
 * messages is which of them are answered, since it leaves only then. Standard output carries the
 * protocol and nothing else; what goes wrong is said on standard error. Neither the editor nor the
 * service is trusted with more than the size of one message.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/acp_priv.h"
#include "cli/cli.h"
#include "ws/ws.h"

/* The service's own limit, unless its operator has raised it. */
#define LINE_MAX_BYTES (1024u * 1024)
#define READ_BYTES (64u * 1024)
/* What may wait for a service that reads slowly, before the editor has to wait. */
#define QUEUE_BYTES (2u * 1024 * 1024)
#define LOOK_AGAIN_US (10u * 1000)
/* What answers may take once standard input has ended; and a prompt, which has to be ended. */
#define ANSWERS_US (4u * 1000 * 1000)
#define PROMPTS_US (30u * 1000 * 1000)

struct bridge {
    struct br_loop *loop;
    struct br_cli_remote *remote;
    struct br_buf line; /* the beginning of one */
    bool skip;          /* it was too long: until its end */
    bool in_ended, done;
    bool cut;             /* in the middle of a line */
    struct acp_owed owed; /* answers that are to come */
    int timer, signals;
};

/* ---- to the editor ---- */

/* An editor that does not read may still end its agent: so many bytes at a time that a pipe which
 * is ready takes them all. */
static int put(struct bridge *b, const uint8_t *p, size_t n, struct br_err *err)
{
    while (n && !b->done) {
        struct pollfd f[2] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
                              {.fd = b->signals, .events = POLLIN}};
        if (poll(f, 2, -1) < 0 && errno != EINTR)
            return br_err_errno(err, BR_E_IO, "standard output could not be waited for");
        if (f[1].revents)
            b->done = true;
        if (b->done || !f[0].revents)
            continue;
        ssize_t m = write(STDOUT_FILENO, p, n < PIPE_BUF ? n : PIPE_BUF);
        if (m < 0 && errno == EPIPE && b->in_ended) { /* the editor has gone altogether */
            b->done = true;
            continue;
        }
        if (m < 0 && errno != EINTR && errno != EAGAIN)
            return br_err_errno(err, BR_E_IO, "standard output could not be written to");
        p += m > 0 ? m : 0;
        n -= m > 0 ? (size_t)m : 0;
    }
    return 0;
}

/* A message that the service sent is JSON, in which an end of line is a blank. */
static int on_message(void *ctx, const char *text, size_t n, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf m = BR_BUF_INIT(BR_CLI_REMOTE_MESSAGE_MAX + 1);
    (void)br_buf_put(&m, text, n);
    (void)br_buf_put(&m, "\n", 1);
    if (m.failed)
        return br_err_set(err, BR_E_NOMEM, "there is no memory for a message of the service");
    for (size_t i = 0; i < n; i++)
        if (m.data[i] == '\n' || m.data[i] == '\r')
            m.data[i] = ' ';
    struct bridge *b = ctx;
    int r = put(b, m.data, m.len, err);
    acp_owed_heard(&b->owed, text, n);
    if (b->in_ended && acp_owed_count(&b->owed) == 0)
        b->done = true;
    return r;
}

/* A line that the service never gets is answered here, as it would. */
static int refuse_line(struct bridge *b, int code, const char *name, const char *text,
                       struct br_err *err)
{
    char m[512];
    int n = snprintf(m, sizeof(m),
                     "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":%d,\"message\":\"%s\","
                     "\"data\":{\"code\":\"%s\"}}}\n",
                     code, text, name);
    return put(b, (const uint8_t *)m, (size_t)n, err);
}

/* ---- from the editor ---- */

static bool is_blank(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r')
            return false;
    return true;
}

static int take_line(struct bridge *b, const uint8_t *p, size_t n, struct br_err *err)
{
    if (is_blank(p, n))
        return 0;
    if (!br_utf8_valid(p, n))
        return refuse_line(b, -32700, "ACP_PARSE_ERROR", "the line is not valid UTF-8", err);
    acp_owed_sent(&b->owed, (const char *)p, n);
    return br_cli_remote_send(b->remote, (const char *)p, n, err);
}

static int too_long(struct bridge *b, struct br_err *err)
{
    b->skip = true;
    br_buf_reset(&b->line);
    return refuse_line(b, -32600, "LIMIT_EXCEEDED",
                       "the line is longer than 1048576 bytes; it was not sent", err);
}

static int take(struct bridge *b, const uint8_t *p, size_t n, struct br_err *err)
{
    int r = 0;
    while (r == 0 && n) {
        const uint8_t *end = memchr(p, '\n', n);
        size_t m = end ? (size_t)(end - p) : n;
        if (!b->skip && b->line.len + m > LINE_MAX_BYTES)
            r = too_long(b, err);
        else if (!b->skip && end && b->line.len == 0)
            r = take_line(b, p, m, err);
        else if (!b->skip && br_buf_put(&b->line, p, m) < 0)
            r = br_err_set(err, BR_E_NOMEM, "there is no memory for a line");
        else if (!b->skip && end)
            r = take_line(b, b->line.data, b->line.len, err);
        if (end) {
            b->skip = false;
            br_buf_reset(&b->line);
        }
        p += end ? m + 1 : m;
        n -= end ? m + 1 : m;
    }
    return r;
}

static int on_input(void *ctx, int fd, short revents, struct br_err *err);

static int on_timer(void *ctx, struct br_err *err)
{
    struct bridge *b = ctx;
    b->timer = 0;
    if (br_cli_remote_queued(b->remote) <= QUEUE_BYTES) {
        if (br_loop_watch(b->loop, STDIN_FILENO, POLLIN, on_input, b) < 0)
            return br_err_set(err, BR_E_IO, "standard input could not be watched");
        return 0;
    }
    b->timer = br_loop_timer(b->loop, LOOK_AGAIN_US, on_timer, b);
    return 0;
}

static int on_late(void *ctx, struct br_err *err)
{
    struct bridge *b = ctx;
    b->timer = 0;
    return br_err_set(
        err, BR_E_TIMEOUT,
        "standard input has ended, and what was asked was not answered in time (%u open "
        "requests); the service was left",
        acp_owed_count(&b->owed));
}

/* What was asked is answered all the same; but a prompt, of which nobody could see more, is
 * canceled first. */
static int end_of_input(struct bridge *b, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf cancels = BR_BUF_INIT(QUEUE_BYTES);
    b->in_ended = true;
    b->cut = b->line.len || b->skip;
    b->done = acp_owed_count(&b->owed) == 0;
    br_loop_unwatch(b->loop, STDIN_FILENO);
    if (b->done)
        return 0;
    bool prompts = acp_owed_cancels(&b->owed, &cancels);
    int r = 0;
    for (size_t at = 0, n; r == 0 && at < cancels.len; at += n + 1) {
        n = (size_t)((uint8_t *)memchr(cancels.data + at, '\n', cancels.len - at) -
                     (cancels.data + at));
        r = br_cli_remote_send(b->remote, (const char *)cancels.data + at, n, err);
    }
    b->timer = br_loop_timer(b->loop, prompts ? PROMPTS_US : ANSWERS_US, on_late, b);
    if (r == 0 && b->timer < 0)
        return br_err_set(err, BR_E_INTERNAL, "the end of waiting could not be set");
    return r;
}

static int on_input(void *ctx, int fd, short revents, struct br_err *err)
{
    struct bridge *b = ctx;
    uint8_t buf[READ_BYTES];
    (void)revents;
    ssize_t n = read(fd, buf, sizeof(buf));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n < 0)
        return br_err_errno(err, BR_E_IO, "standard input could not be read");
    if (n == 0)
        return end_of_input(b, err);
    int r = take(b, buf, (size_t)n, err);
    if (r == 0 && br_cli_remote_queued(b->remote) > QUEUE_BYTES) {
        br_loop_unwatch(b->loop, STDIN_FILENO);
        b->timer = br_loop_timer(b->loop, LOOK_AGAIN_US, on_timer, b);
    }
    return r;
}

/* ---- the whole ---- */

/* An editor that ends its agent: as if it had closed standard input. */
static int on_signal(void *ctx, int fd, short revents, struct br_err *err)
{
    struct bridge *b = ctx;
    struct signalfd_siginfo si;
    (void)revents;
    (void)err;
    if (read(fd, &si, sizeof(si)) == sizeof(si))
        b->done = true;
    return 0;
}

static int watch_signals(struct bridge *b, struct br_err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
        (b->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
        br_loop_watch(b->loop, b->signals, POLLIN, on_signal, b) < 0)
        return br_err_errno(err, BR_E_IO, "signals could not be watched");
    return 0;
}

static int connect_to(struct bridge *b, const struct br_cli_args *a, const char *url,
                      struct br_err *err)
{
    static const struct br_cli_remote_hooks hooks = {.message = on_message};
    struct br_cli_url u;
    const struct br_cli_remote_options o = {.protocol = "acp.v1",
                                            .token_file = br_cli_opt(a, "token-file"),
                                            .ca_file = br_cli_opt(a, "ca"),
                                            .cert = br_cli_opt(a, "cert"),
                                            .key = br_cli_opt(a, "key"),
                                            .server_uid = br_cli_opt(a, "server-uid"),
                                            .env = getenv,
                                            .seconds = BR_CLI_REMOTE_SECONDS};
    int r = br_cli_url_parse(url, &u, err);
    return r < 0 ? r : br_cli_remote_open(&b->remote, b->loop, &u, &o, &hooks, b, err);
}

/* The service that was named; else the one of this machine; else one of its own. */
static int find_service(struct bridge *b, const struct br_cli_args *a, struct acp_service *own,
                        struct br_err *err)
{
    const char *url = br_cli_opt(a, "connect"), *root = br_cli_opt(a, "root");
    struct acp_service_options o = {.root = root,
                                    .config = br_cli_opt(a, "config"),
                                    .policy = br_cli_opt(a, "policy"),
                                    .scenario = br_cli_opt(a, "scenario")};
    bool mine = root || o.config || o.policy || o.scenario;
    if (url && mine)
        return br_err_set(err, BR_E_USAGE,
                          "'--connect' names a service that runs; '--root', '--config', '--policy' "
                          "and '--scenario' are for one of its own; nothing was connected");
    if (!br_cli_opt(a, "cert") != !br_cli_opt(a, "key"))
        return br_err_set(err, BR_E_USAGE,
                          "'--cert' and '--key' belong together; nothing was connected");
    if (!mine) {
        int r = connect_to(b, a, url ? url : "", err);
        if (url || (r != -BR_E_PEER_GONE && r != -BR_E_NOT_FOUND))
            return r;
    }
    char at[sizeof(own->socket) + 8];
    int r = acp_service_start(own, &o, err);
    snprintf(at, sizeof(at), "unix:%s", own->socket);
    return r < 0 ? r : connect_to(b, a, at, err);
}

int br_cli_acp(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct bridge b = {.loop = br_loop_new(), .line = BR_BUF_INIT(LINE_MAX_BYTES), .signals = -1};
    struct acp_service own = {.pid = 0};
    int r = b.loop ? watch_signals(&b, &err) : br_err_set(&err, BR_E_NOMEM, "no memory");
    if (r == 0)
        r = find_service(&b, a, &own, &err);
    if (r == 0 && br_loop_watch(b.loop, STDIN_FILENO, POLLIN, on_input, &b) < 0)
        r = br_err_errno(&err, BR_E_IO, "standard input could not be watched");
    if (r == 0 && isatty(STDIN_FILENO))
        fprintf(stderr, "bridle acp: an editor speaks to this with JSON, one message a line; see "
                        "bridle-acp(1). Ctrl-D ends it.\n");
    if (r == 0)
        r = br_loop_run(b.loop, &b.done, &err);
    if (r == 0 && b.cut)
        r = br_err_set(&err, BR_E_INVALID_FRAME,
                       "standard input ended inside of a line; what it began was not sent");
    br_cli_remote_close(&b.remote, BR_WS_CLOSE_NORMAL, "");
    acp_service_stop(&own);
    if (b.loop)
        br_loop_timer_cancel(b.loop, &b.timer);
    br_loop_free(&b.loop);
    br_close(&b.signals);
    br_buf_free(&b.line);
    acp_owed_free(&b.owed);
    return r < 0 ? br_cli_fail(&err) : 0;
}
