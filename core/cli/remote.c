/*
 * A WebSocket connection to a service: connect, TLS through bridle-tls, the opening handshake, then
 * frames on the caller's loop. Used by connect and acp. What the server sends is bounded here and
 * checked by core/ws; a violation closes the connection with the code that the protocol has for it.
 * The bearer token comes from a file or the environment, and is wiped as soon as it was sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/remote_priv.h"

#define TOKEN_MAX 1024u
#define OUT_MAX (4u * BR_CLI_REMOTE_MESSAGE_MAX)
#define CLOSE_US (1000u * 1000)
/* How an answer of TLS begins to what is none. */
#define TLS_ALERT 0x15
#define FRAGMENTS_MAX 4096u
/* So much may wait for its user before nothing more is read. */
#define HELD_MAX (8u * 1024 * 1024)

/* A message that was read and is still to be delivered. */
struct held {
    struct held *next;
    size_t n;
    char text[];
};

struct br_cli_remote {
    struct br_loop *loop;
    const struct br_cli_remote_hooks *hooks;
    void *ctx;
    int fd;
    pid_t tls; /* bridle-tls; 0: none */
    int tls_chan;
    struct br_ws_limits limits;
    struct br_ws_reader reader;
    struct br_buf out; /* what the server has not taken yet, from `sent` on */
    size_t sent;
    uint8_t *early; /* bytes behind the handshake */
    size_t nearly;
    int tick, soon;
    uint64_t heard_us; /* when something came last */
    uint64_t alive_us; /* how long it may be silent after a ping */
    bool pinged;
    struct held *first, *last; /* messages to deliver; pings are answered before */
    size_t held;               /* bytes of them */
    bool busy;                 /* one is being delivered */
    unsigned holds;            /* br_cli_remote_hold() */
    struct br_err end;         /* code set: it has ended, which is told behind the messages */
    bool over;                 /* and it was told */
};

/* ---- the token ------------------------------------------------------------------------------ */

static int check_token(char *token, size_t n, const char *where, struct br_err *err)
{
    while (n && (token[n - 1] == '\n' || token[n - 1] == '\r' || token[n - 1] == ' '))
        token[--n] = '\0';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)token[i] <= 0x20 || (unsigned char)token[i] >= 0x7f)
            n = 0;
    if (n == 0)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "%s holds no token: one line of printable ASCII without blanks; nothing "
                          "was connected",
                          where);
    return 0;
}

static int token_file(char token[TOKEN_MAX + 2], const char *path, struct br_err *err)
{
    char where[300];
    struct stat st;
    snprintf(where, sizeof(where), "'%.256s'", path);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, errno == ENOENT ? BR_E_NOT_FOUND : BR_E_INVALID_CONFIG,
                            "the token's file %s could not be read; nothing was connected", where);
    if (!S_ISREG(st.st_mode))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the token's file %s is not a regular file; nothing was connected",
                          where);
    if (st.st_mode & S_IRWXO)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "every user of this machine may use the token's file %s; nothing was "
                          "connected. chmod 600 it, and have another token made",
                          where);
    ssize_t n = read(fd, token, TOKEN_MAX + 1);
    if (n < 0 || (size_t)n > TOKEN_MAX)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the token's file %s has more than %u bytes; nothing was connected",
                          where, TOKEN_MAX);
    token[n] = '\0';
    return check_token(token, (size_t)n, where, err);
}

/* As a token's file; one that is not there is said to be missing when it is read. */
static int check_key(const char *path, struct br_err *err)
{
    struct stat st;
    if (!path || stat(path, &st) < 0 || !(st.st_mode & S_IRWXO))
        return 0;
    return br_err_set(err, BR_E_INVALID_CONFIG,
                      "every user of this machine may use the private key '%.256s'; nothing was "
                      "connected. chmod 600 it, and have another one made",
                      path);
}

static int get_token(char token[TOKEN_MAX + 2], const struct br_cli_remote_options *o,
                     struct br_err *err)
{
    token[0] = '\0';
    if (o->token_file)
        return token_file(token, o->token_file, err);
    char *value = o->env ? o->env("BRIDLE_TOKEN") : NULL;
    if (!value || !*value)
        return 0;
    size_t n = strlen(value);
    if (n > TOKEN_MAX)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "BRIDLE_TOKEN has more than %u bytes; nothing was connected", TOKEN_MAX);
    memcpy(token, value, n + 1);
    return check_token(token, n, "BRIDLE_TOKEN", err);
}

/* ---- the opening handshake ------------------------------------------------------------------ */

/* Everything, before `until`; the descriptor does not block. */
static int write_until(int fd, const uint8_t *p, size_t n, uint64_t until)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            int r = br_remote_wait(fd, POLLOUT, until);
            if (r < 0)
                return r;
            continue;
        }
        if (k < 0)
            return -BR_E_PEER_GONE;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int protocol_failure(struct br_err *err)
{
    if (err)
        err->code = BR_E_PEER_PROTOCOL;
    br_err_wrap(err, "protocol failure");
    return -BR_E_PEER_PROTOCOL;
}

/* It has closed. */
static int no_head(const struct br_cli_url *u, size_t have, struct br_err *err)
{
    if (u->tls || u->local || have)
        return br_err_set(err, BR_E_PEER_GONE,
                          "the server closed the connection during the handshake");
    return br_err_set(err, BR_E_PEER_GONE,
                      "the server closed the connection during the handshake; if it speaks TLS, "
                      "the URL begins with wss://");
}

static int read_head(struct br_cli_remote *r, const struct br_cli_url *u, uint8_t *buf, size_t cap,
                     size_t *have, struct br_http_head *head, uint64_t until, struct br_err *err)
{
    *have = 0;
    for (;;) {
        if (*have && buf[0] == TLS_ALERT)
            return br_err_set(err, BR_E_PEER_PROTOCOL,
                              "protocol failure: the server speaks TLS; then the URL begins with "
                              "wss://");
        if (*have) {
            int n = br_http_response((char *)buf, *have, head, err);
            if (n < 0)
                return protocol_failure(err);
            if (n > 0)
                return n;
        }
        if (*have == cap)
            return br_err_set(err, BR_E_PEER_PROTOCOL,
                              "protocol failure: the server answered the handshake with more than "
                              "%zu bytes",
                              cap);
        ssize_t k = read(r->fd, buf + *have, cap - *have);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (br_remote_wait(r->fd, POLLIN, until) < 0)
                return br_err_set(err, BR_E_TIMEOUT,
                                  "the server did not answer the handshake in time");
            continue;
        }
        if (k <= 0)
            return no_head(u, *have, err);
        *have += (size_t)k;
    }
}

/* What came behind the 101 belongs to the first frames. */
static int keep_early(struct br_cli_remote *r, const uint8_t *p, size_t n)
{
    if (n == 0)
        return 0;
    r->early = malloc(n);
    if (!r->early)
        return -BR_E_NOMEM;
    memcpy(r->early, p, n);
    r->nearly = n;
    return 0;
}

static int shake_hands(struct br_cli_remote *r, const struct br_cli_url *u,
                       const struct br_cli_remote_options *o, const char *token, struct br_err *err)
{
    char key[25];
    uint64_t until = br_now_us() + o->seconds * 1000000ull;
    struct br_buf request = BR_BUF_INIT(BR_WS_HEAD_MAX);
    br_ws_put_request(&request, u->authority, u->path, o->protocol, token, "", key);
    int code = request.failed ? -BR_E_LIMIT_EXCEEDED
                              : write_until(r->fd, request.data, request.len, until);
    if (request.data)
        explicit_bzero(request.data, request.cap);
    br_buf_free(&request);
    if (code < 0)
        return br_err_set(err, (enum br_code) - code,
                          code == -BR_E_TIMEOUT ? "the server did not take the handshake in time"
                                                : "the handshake could not be sent");
    uint8_t buf[BR_WS_HEAD_MAX];
    struct br_http_head head;
    size_t have;
    int n = read_head(r, u, buf, sizeof(buf), &have, &head, until, err);
    if (n < 0)
        return n;
    code = br_ws_check_accept(&head, key, o->protocol, err);
    if (code == -BR_E_PEER_PROTOCOL)
        return protocol_failure(err);
    if (code == -BR_E_DENIED && head.status == 401 && token[0])
        return br_err_set(err, BR_E_DENIED,
                          "the server refused the token of %s%.256s%s (401): it does not know it, "
                          "or not any more; 'bridle token add' there makes another one",
                          o->token_file ? "'" : "", o->token_file ? o->token_file : "BRIDLE_TOKEN",
                          o->token_file ? "'" : "");
    return code < 0 ? code : keep_early(r, buf + n, have - (size_t)n);
}

/* ---- frames --------------------------------------------------------------------------------- */

static int flush(struct br_cli_remote *r)
{
    while (r->sent < r->out.len) {
        ssize_t k = write(r->fd, r->out.data + r->sent, r->out.len - r->sent);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            break;
        if (k < 0)
            return -BR_E_PEER_GONE;
        r->sent += (size_t)k;
    }
    if (r->sent == r->out.len) {
        br_buf_reset(&r->out);
        r->sent = 0;
    }
    return 0;
}

static int on_ready(void *ctx, int fd, short revents, struct br_err *err);

static int watch(struct br_cli_remote *r)
{
    if (r->early || r->end.code) /* what came with the handshake goes first */
        return 0;
    short events = r->held > HELD_MAX ? 0 : POLLIN;
    return br_loop_watch(r->loop, r->fd, r->out.len ? events | POLLOUT : events, on_ready, r);
}

/* Nothing is read or sent any more. */
static void mark_end(struct br_cli_remote *r, enum br_code code, const char *text)
{
    if (r->end.code)
        return;
    (void)br_err_set(&r->end, code, "%s", text);
    br_loop_unwatch(r->loop, r->fd);
    br_loop_timer_cancel(r->loop, &r->tick);
}

static int tell_end(struct br_cli_remote *r, struct br_err *err)
{
    int code = -(int)r->end.code;
    r->over = true;
    if (err)
        *err = r->end;
    return r->hooks->ended ? r->hooks->ended(r->ctx, code, err) : code;
}

/* What was read, one by one, then the end. Its user may run the loop inside of a message: what is
 * read then waits for its turn. */
static int deliver(struct br_cli_remote *r, struct br_err *err)
{
    bool stopped = r->held > HELD_MAX;
    if (r->busy || r->holds || r->over)
        return 0;
    int code = 0;
    r->busy = true;
    while (code == 0 && r->first && !r->holds) {
        struct held *m = r->first;
        r->first = m->next;
        r->last = r->first ? r->last : NULL;
        r->held -= m->n;
        code = r->hooks->message(r->ctx, m->text, m->n, err);
        free(m);
    }
    r->busy = false;
    if (code < 0)
        return code;
    if (stopped)
        (void)watch(r);
    return r->end.code && !r->first && !r->holds ? tell_end(r, err) : 0;
}

static int end_now(struct br_cli_remote *r, enum br_code code, const char *text, struct br_err *err)
{
    mark_end(r, code, text);
    return deliver(r, err);
}

static int gone(struct br_cli_remote *r, struct br_err *err)
{
    return end_now(r, BR_E_PEER_GONE, "the connection to the server ended without a word", err);
}

/* What was queued goes out now as far as it goes. */
static int push(struct br_cli_remote *r, struct br_err *err)
{
    if (r->out.failed)
        return end_now(r, BR_E_LIMIT_EXCEEDED, "the server does not read what it is sent", err);
    if (flush(r) < 0) { /* what the server said before it left is still to be read */
        br_buf_reset(&r->out);
        r->sent = 0;
    }
    return watch(r) < 0 ? gone(r, err) : 0;
}

/* The other side broke the protocol: say so and end it. */
static void violation(struct br_cli_remote *r, unsigned close_code, const char *why)
{
    char text[BR_ERR_TEXT_MAX];
    br_buf_reset(&r->out); /* whatever waited is of no use to such a server */
    br_ws_put_close(&r->out, close_code, why, true);
    r->sent = 0;
    (void)flush(r);
    snprintf(text, sizeof(text), "protocol failure: %s", why);
    mark_end(r, BR_E_PEER_PROTOCOL, text);
}

static void closed_by_server(struct br_cli_remote *r, const struct br_ws_message *m)
{
    static const struct {
        unsigned code;
        const char *why;
    } known[] = {
        {BR_WS_CLOSE_NORMAL, "it is done"},
        {BR_WS_CLOSE_GOING_AWAY, "it is going away"},
        {BR_WS_CLOSE_PROTOCOL, "it says that this client broke the protocol"},
        {BR_WS_CLOSE_POLICY, "it does not allow this"},
        {BR_WS_CLOSE_TOO_LARGE, "a message was too large for it"},
        {BR_WS_CLOSE_INTERNAL, "something failed inside of it"},
        {BR_WS_CLOSE_TRY_AGAIN, "this client read too slowly, or it has too much to do"},
        {BR_WS_CLOSE_NO_STATUS, "it gave no reason"},
    };
    const char *why = "no reason that is known";
    for (size_t i = 0; i < BR_ARRAY_LEN(known); i++)
        if (known[i].code == m->close_code)
            why = known[i].why;
    BR_CLEANUP_BUF struct br_buf reason = BR_BUF_INIT(1024);
    br_buf_put_visible(&reason, m->data, m->n, true);
    const char *text = br_buf_cstr(&reason);
    br_ws_put_close(&r->out, m->close_code == BR_WS_CLOSE_NO_STATUS ? 1000 : m->close_code, "",
                    true);
    (void)flush(r);
    char all[BR_ERR_TEXT_MAX];
    snprintf(all, sizeof(all), "the server closed the connection: %s (%u%s%s)", why, m->close_code,
             text && *text ? ", " : "", text ? text : "");
    mark_end(r, BR_E_PEER_GONE, all);
}

static int hold_message(struct br_cli_remote *r, const struct br_ws_message *m, struct br_err *err)
{
    struct held *h = malloc(sizeof(*h) + m->n + 1);
    if (!h)
        return br_err_set(err, BR_E_NOMEM, "no memory for a message of the server");
    *h = (struct held){.n = m->n};
    memcpy(h->text, m->data, m->n);
    h->text[m->n] = '\0';
    if (r->last)
        r->last->next = h;
    else
        r->first = h;
    r->last = h;
    r->held += m->n;
    return 0;
}

static int take_message(struct br_cli_remote *r, const struct br_ws_message *m, struct br_err *err)
{
    switch (m->op) {
    case BR_WS_PING:
        br_ws_put(&r->out, BR_WS_PONG, m->data, m->n, true);
        return push(r, err);
    case BR_WS_PONG:
        return 0;
    case BR_WS_CLOSE:
        closed_by_server(r, m);
        return 0;
    case BR_WS_BINARY:
        violation(r, BR_WS_CLOSE_UNSUPPORTED, "the server sent a binary message");
        return 0;
    case BR_WS_TEXT:
        return hold_message(r, m, err);
    }
    return 0;
}

static int take_bytes(struct br_cli_remote *r, uint8_t *p, size_t n, struct br_err *err)
{
    struct br_ws_message m;
    struct br_err why = {.code = BR_OK};
    unsigned close_code = BR_WS_CLOSE_PROTOCOL;
    r->heard_us = br_now_us();
    r->pinged = false;
    while (!r->end.code) {
        int got = br_ws_read(&r->reader, &r->limits, &p, &n, &m, &close_code, &why);
        if (got < 0)
            violation(r, close_code, why.text);
        if (got <= 0)
            break;
        int code = take_message(r, &m, err);
        if (code < 0)
            return code;
    }
    if (r->held > HELD_MAX)
        (void)watch(r);
    return deliver(r, err);
}

static int on_ready(void *ctx, int fd, short revents, struct br_err *err)
{
    struct br_cli_remote *r = ctx;
    uint8_t buf[64 * 1024];
    int code = revents & POLLOUT ? push(r, err) : 0;
    if (code < 0)
        return code;
    if (r->end.code || !(revents & (POLLIN | POLLHUP | POLLERR)))
        return 0;
    ssize_t n = read(fd, buf, sizeof(buf));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return gone(r, err);
    return take_bytes(r, buf, (size_t)n, err);
}

/* Bytes that came with the handshake, once the loop runs; or messages that were held back. */
static int on_soon(void *ctx, struct br_err *err)
{
    struct br_cli_remote *r = ctx;
    r->soon = 0;
    if (!r->early)
        return deliver(r, err);
    uint8_t *early = br_steal_ptr(&r->early);
    int code = watch(r) < 0 ? gone(r, err) : take_bytes(r, early, r->nearly, err);
    free(early);
    return code;
}

/* A server that is silent is asked for a sign of life, then given up. */
static int on_tick(void *ctx, struct br_err *err)
{
    struct br_cli_remote *r = ctx;
    r->tick = 0;
    uint64_t silent = br_now_us() - r->heard_us;
    if (r->pinged && silent >= 2 * r->alive_us && r->held <= HELD_MAX)
        return end_now(r, BR_E_TIMEOUT, "the server gives no sign of life any more", err);
    if (!r->pinged && silent >= r->alive_us) {
        r->pinged = true;
        br_ws_put(&r->out, BR_WS_PING, "", 0, true);
        int code = push(r, err);
        if (code < 0 || r->end.code)
            return code;
    }
    r->tick = br_loop_timer(r->loop, r->alive_us / 4, on_tick, r);
    return 0;
}

/* ---- open, send, close ---------------------------------------------------------------------- */

static int start_serving(struct br_cli_remote *r, struct br_err *err)
{
    r->heard_us = br_now_us();
    if (watch(r) < 0 || (r->tick = br_loop_timer(r->loop, r->alive_us / 4, on_tick, r)) < 0 ||
        (r->early && (r->soon = br_loop_timer(r->loop, 0, on_soon, r)) < 0))
        return br_err_set(err, BR_E_INTERNAL, "the connection could not be watched");
    return 0;
}

int br_cli_remote_open(struct br_cli_remote **out, struct br_loop *loop, const struct br_cli_url *u,
                       const struct br_cli_remote_options *options,
                       const struct br_cli_remote_hooks *hooks, void *ctx, struct br_err *err)
{
    struct br_cli_remote_options o = *options;
    o.seconds = o.seconds ? o.seconds : BR_CLI_REMOTE_SECONDS;
    struct br_cli_remote *r = calloc(1, sizeof(*r));
    if (!r)
        return br_err_set(err, BR_E_NOMEM, "no memory for a connection");
    *r = (struct br_cli_remote){.loop = loop,
                                .hooks = hooks,
                                .ctx = ctx,
                                .fd = -1,
                                .tls_chan = -1,
                                .alive_us = o.seconds * 1000000ull,
                                .limits = {.message_bytes = BR_CLI_REMOTE_MESSAGE_MAX,
                                           .fragments = FRAGMENTS_MAX,
                                           .server = false}};
    br_buf_init(&r->out, OUT_MAX);
    br_ws_reader_init(&r->reader, &r->limits);
    signal(SIGPIPE, SIG_IGN);
    char token[TOKEN_MAX + 2];
    int code = get_token(token, &o, err);
    if (code == 0)
        code = check_key(o.key, err);
    if (code == 0)
        code = br_remote_dial(u, &o, &r->fd, err);
    if (code == 0 && u->tls)
        code = br_remote_secure(u, &o, &r->fd, &r->tls, &r->tls_chan, err);
    if (code == 0)
        code = shake_hands(r, u, &o, token, err);
    explicit_bzero(token, sizeof(token));
    if (code == 0)
        code = start_serving(r, err);
    if (code < 0) {
        r->over = true; /* there is nobody to say goodbye to */
        br_cli_remote_close(&r, 0, "");
        return code;
    }
    *out = r;
    return 0;
}

int br_cli_remote_send(struct br_cli_remote *r, const char *text, size_t n, struct br_err *err)
{
    if (r->over || r->end.code)
        return br_err_set(err, BR_E_PEER_GONE, "the connection to the server is gone");
    br_ws_put(&r->out, BR_WS_TEXT, text, n, true);
    if (r->out.failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the server does not read what it is sent");
    return push(r, err);
}

size_t br_cli_remote_queued(const struct br_cli_remote *r)
{
    return r->out.len - r->sent;
}

void br_cli_remote_hold(struct br_cli_remote *r, bool hold)
{
    r->holds += hold ? 1u : -1u;
    if (r->holds == 0 && (r->first || r->end.code) && !r->soon)
        r->soon = br_loop_timer(r->loop, 0, on_soon, r);
}

/* Until the server has closed as well; what it still says is dropped. */
static void say_goodbye(struct br_cli_remote *r, unsigned code, const char *reason)
{
    uint64_t until = br_now_us() + CLOSE_US;
    uint8_t buf[16 * 1024];
    br_ws_put_close(&r->out, code, reason, true);
    if (r->out.failed || write_until(r->fd, r->out.data + r->sent, r->out.len - r->sent, until) < 0)
        return;
    while (br_remote_wait(r->fd, POLLIN, until) == 0) {
        struct br_ws_message m;
        unsigned ignored;
        ssize_t n = read(r->fd, buf, sizeof(buf));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return;
        uint8_t *p = buf;
        size_t left = (size_t)n;
        int got;
        while ((got = br_ws_read(&r->reader, &r->limits, &p, &left, &m, &ignored, NULL)) > 0)
            if (m.op == BR_WS_CLOSE)
                return;
        if (got < 0)
            return;
    }
}

void br_cli_remote_close(struct br_cli_remote **rp, unsigned code, const char *reason)
{
    struct br_cli_remote *r = br_steal_ptr(rp);
    if (!r)
        return;
    if (r->fd >= 0)
        br_loop_unwatch(r->loop, r->fd);
    br_loop_timer_cancel(r->loop, &r->tick);
    br_loop_timer_cancel(r->loop, &r->soon);
    if (!r->over && !r->end.code)
        say_goodbye(r, code, reason);
    br_close(&r->fd);
    br_close(&r->tls_chan);
    br_remote_reap(r->tls);
    br_ws_reader_free(&r->reader);
    br_buf_free(&r->out);
    for (struct held *m = r->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    free(r->early);
    free(r);
}
