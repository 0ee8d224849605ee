#include "strict_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PATIENCE_MS 20000

static bool fill(struct strict *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (poll(&p, 1, PATIENCE_MS) <= 0)
        fail_msg("nothing was heard for %d s; the last was '%.300s'", PATIENCE_MS / 1000,
                 c->text ? c->text : "");
    ssize_t n = read(c->fd, c->in, sizeof(c->in));
    c->at = c->in;
    c->left = n > 0 ? (size_t)n : 0;
    return n > 0;
}

static void put_frame(struct strict *c, enum br_ws_op op, const void *p, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(2 << 20);
    br_ws_put(&b, op, p, n, true);
    for (size_t off = 0; off < b.len;) { /* the other side may have gone */
        ssize_t r = send(c->fd, b.data + off, b.len - off, MSG_NOSIGNAL);
        if (r <= 0)
            return;
        off += (size_t)r;
    }
}

void strict_say(struct strict *c, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    assert_true(n > 0);
    put_frame(c, BR_WS_TEXT, text, (size_t)n);
    free(text);
}

/* An event of its session: the next one, and not behind the end. */
static void keep_event(struct strict *c)
{
    char head[256];
    int n = snprintf(head, sizeof(head),
                     "{\"jsonrpc\":\"2.0\",\"method\":\"session/event\",\"params\":{"
                     "\"sessionId\":\"%s\",\"seq\":",
                     c->session);
    if (!c->session[0] || strncmp(c->text, head, (size_t)n) != 0)
        return;
    char *event = strstr(c->text + n, ",\"event\":");
    size_t len = strlen(c->text);
    assert_non_null(event);
    assert_int_equal(strtoull(c->text + n, NULL, 10), c->next_seq);
    assert_false(c->stopped);
    c->next_seq++;
    event += 9;
    br_buf_put(&c->seen, event, len - (size_t)(event - c->text) - 2);
    br_buf_put(&c->seen, "\n", 1);
    c->stopped = strstr(event, "{\"v\":1,\"type\":\"agent.stopped\"") == event;
}

static void keep_ask(struct strict *c)
{
    if (!strstr(c->text, "\"type\":\"permission.requested\""))
        return;
    const char *at = strstr(c->text, "\"permissionId\":\"");
    assert_non_null(at);
    assert_true(c->nasks < STRICT_ASKS);
    snprintf(c->asks[c->nasks++], BR_ID_MAX, "%.*s", (int)strcspn(at + 16, "\""), at + 16);
}

const char *strict_hear(struct strict *c)
{
    struct br_err err = {.code = BR_OK};
    for (;;) {
        struct br_ws_message m;
        unsigned code = 0;
        if (!c->left && !fill(c))
            return NULL;
        int r = br_ws_read(&c->reader, &c->limits, &c->at, &c->left, &m, &code, &err);
        if (r < 0)
            fail_msg("the server's framing: %s", err.text);
        if (r == 0)
            continue;
        if (m.op == BR_WS_PING)
            put_frame(c, BR_WS_PONG, m.data, m.n);
        if (m.op == BR_WS_CLOSE) {
            c->close_code = m.close_code;
            return NULL;
        }
        if (m.op != BR_WS_TEXT)
            continue;
        free(c->text);
        c->text = strndup(m.data, m.n);
        keep_event(c);
        keep_ask(c);
        return c->text;
    }
}

const char *strict_until(struct strict *c, const char *what)
{
    const char *text;
    do
        text = strict_hear(c);
    while (text && !strstr(text, what));
    if (!text)
        fail_msg("the connection ended (%u) before '%s'; the last was '%.300s'", c->close_code,
                 what, c->text ? c->text : "");
    return text;
}

int strict_upgrade(struct strict *c, int fd, const char *bearer)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    struct br_http_head head;
    char key[25], got[4096];
    struct br_err err = {.code = BR_OK};
    size_t n = 0;
    int r = 0;
    *c = (struct strict){.fd = fd, .limits = {.message_bytes = 2u << 20, .fragments = 1024}};
    br_buf_init(&c->seen, 64u << 20);
    br_ws_reader_init(&c->reader, &c->limits);
    br_ws_put_request(&b, "localhost", "/acp", "harness.acp.1", bearer, "", key);
    (void)send(c->fd, b.data, b.len, MSG_NOSIGNAL);
    while (r == 0 && n < sizeof(got)) { /* the server says nothing behind it before it is asked */
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        assert_true(poll(&p, 1, PATIENCE_MS) > 0);
        ssize_t k = read(c->fd, got + n, sizeof(got) - n);
        if (k <= 0)
            return -BR_E_PEER_GONE;
        n += (size_t)k;
        r = br_http_response(got, n, &head, &err);
    }
    return r < 0 ? r : br_ws_check_accept(&head, key, "harness.acp.1", &err);
}

void strict_initialize(struct strict *c, bool extended)
{
    strict_say(c,
               "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
               "\"protocolVersion\":\"harness/acp/1\",\"clientName\":\"test\",\"capabilities\":{"
               "\"streaming\":true,\"permissioning\":true%s}}}",
               extended ? ",\"sessions\":true,\"extensions\":[\"bridle/1\"]" : "");
    strict_until(c, "\"protocolVersion\"");
}

void strict_open(struct strict *c, const char *socket_path, bool extended)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int r = 0, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", socket_path);
    for (int i = 0;
         i < PATIENCE_MS / 20 && (r = connect(fd, (struct sockaddr *)&sa, sizeof(sa))) < 0; i++)
        usleep(20000);
    if (r < 0)
        fail_msg("%s: %s", socket_path, strerror(errno));
    r = strict_upgrade(c, fd, "");
    if (r < 0)
        fail_msg("no upgrade: %s", br_code_name(-r));
    strict_initialize(c, extended);
}

void strict_close(struct strict *c)
{
    br_close(&c->fd);
    br_ws_reader_free(&c->reader);
    free(c->text);
    br_buf_free(&c->seen);
}

void strict_new(struct strict *c, const char *workspace)
{
    strict_say(c,
               "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{"
               "\"workspace\":\"%s\"}}",
               workspace);
    const char *text = strict_until(c, "\"id\":1,"), *at = strstr(text, "\"sessionId\":\"");
    if (!at)
        fail_msg("no session: %s", text);
    snprintf(c->session, sizeof(c->session), "%.*s", (int)strcspn(at + 13, "\""), at + 13);
    c->next_seq = 0;
    c->stopped = false;
    br_buf_reset(&c->seen);
    c->nasks = 0;
}

void strict_prompt(struct strict *c, const char *content)
{
    strict_say(c,
               "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"session/prompt\",\"params\":{"
               "\"sessionId\":\"%s\",\"content\":\"%s\"}}",
               c->session, content);
}

void strict_asked(struct strict *c, char permission[BR_ID_MAX])
{
    if (c->nasks == 0)
        (void)strict_until(c, "\"type\":\"permission.requested\"");
    assert_true(c->nasks > 0);
    snprintf(permission, BR_ID_MAX, "%s", c->asks[0]);
    memmove(c->asks[0], c->asks[1], --c->nasks * sizeof(c->asks[0]));
}

void strict_respond(struct strict *c, const char *session, const char *permission,
                    const char *decision)
{
    strict_say(c,
               "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"permission/respond\",\"params\":{"
               "\"sessionId\":\"%s\",\"permissionId\":\"%s\",\"decision\":\"%s\"}}",
               session, permission, decision);
}
