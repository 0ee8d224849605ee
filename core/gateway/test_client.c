/*
 * The rig: clients. Frames are made and read here, by the letter of RFC 6455 and not by core/ws, so
 * that both have to be right for a test to pass.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

/* ---- connecting ---- */

static int connect_tls(struct gate_rig *r)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    br_buf_put_u8(&o.buf, GATE_TLS);
    br_buf_put_str(&o.buf, "192.0.2.7");
    br_buf_put_str(&o.buf, r->options && r->options->cert ? r->options->cert : "");
    br_out_fd(&o, ends[1], true);
    assert_int_equal(br_chan_send(&r->tls, BR_MSG_TLS_CONN, 0, &o, NULL), 0);
    return ends[0];
}

static int connect_way(struct gate_rig *r, enum gate_way way)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } a;
    socklen_t n = sizeof(a.in);
    memset(&a, 0, sizeof(a));
    if (way == GATE_TLS)
        return connect_tls(r);
    if (way == GATE_UNIX) {
        a.un.sun_family = AF_UNIX;
        snprintf(a.un.sun_path, sizeof(a.un.sun_path), "%s", r->socket);
        n = sizeof(a.un);
    } else if (way == GATE_TCP6) {
        a.in6.sin6_family = AF_INET6;
        a.in6.sin6_addr = in6addr_loopback;
        a.in6.sin6_port = htons(r->ports[way]);
        n = sizeof(a.in6);
    } else {
        a.in.sin_family = AF_INET;
        a.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        a.in.sin_port = htons(r->ports[way]);
    }
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &a.any, n), 0);
    return fd;
}

struct gate_client *gate_connect(struct gate_rig *r, enum gate_way way)
{
    struct gate_client *c = calloc(1, sizeof(*c));
    unsigned i = 0;
    assert_non_null(c);
    while (i < GATE_CLIENTS_MAX && r->clients[i])
        i++;
    assert_true(i < GATE_CLIENTS_MAX);
    r->clients[i] = c;
    c->rig = r;
    c->way = way;
    c->fd = connect_way(r, way);
    assert_true(fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0);
    return c;
}

void gate_close(struct gate_client *c)
{
    for (unsigned i = 0; i < GATE_CLIENTS_MAX; i++)
        if (c->rig->clients[i] == c)
            c->rig->clients[i] = NULL;
    br_close(&c->fd);
    free(c->base_);
    free(c->text);
    free(c->head);
    free(c->body);
    free(c);
}

/* ---- bytes ---- */

void gate_send_bytes(struct gate_client *c, const void *p, size_t n)
{
    const uint8_t *at = p;
    uint64_t until = br_now_us() + GATE_WAIT_MS * 1000ull;
    while (n) {
        ssize_t r = send(c->fd, at, n, MSG_NOSIGNAL);
        if (r > 0) {
            at += r;
            n -= (size_t)r;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            return; /* it has closed; reading tells */
        assert_true(errno == EAGAIN);
        if (br_now_us() > until)
            fail_msg("the gateway does not read");
        gate_serve(c->rig, 1);
    }
}

static size_t whole_frame(const struct gate_client *c, size_t *head);

/* How many messages wait now: a client that takes them between two reads has so many unread. */
static void measure(struct gate_client *c)
{
    struct gate_client at = *c;
    unsigned waiting = 0;
    size_t head = 0, n;
    while ((n = whole_frame(&at, &head))) {
        waiting += (at.in[0] & 15) == 1;
        at.in += n;
        at.nin -= n;
    }
    if (waiting > c->deepest)
        c->deepest = waiting;
}

/* Read what is there; false: nothing. */
static bool fill(struct gate_client *c)
{
    if (c->nin && c->in != c->base_)
        memmove(c->base_, c->in, c->nin);
    if (c->cap_ - c->nin < 65536) {
        c->cap_ = c->cap_ * 2 + 131072;
        c->base_ = realloc(c->base_, c->cap_);
        assert_non_null(c->base_);
    }
    c->in = c->base_;
    ssize_t r = recv(c->fd, c->in + c->nin, c->cap_ - c->nin, 0);
    if (r > 0) {
        c->nin += (size_t)r;
        if (c->measured)
            measure(c);
        return true;
    }
    if (r == 0 || errno == ECONNRESET)
        c->eof = true;
    return c->eof;
}

static void eat(struct gate_client *c, size_t n)
{
    c->in += n;
    c->nin -= n;
}

/* Serve until there are more bytes or the end; false: not in time. */
static bool wait_more(struct gate_client *c, uint64_t until)
{
    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (fill(c))
            return true;
        if (br_now_us() > until)
            return false;
        if (poll(&p, 1, 0) == 0)
            gate_serve(c->rig, 1); /* a loop whose time is over does not look at all */
    }
}

/* ---- HTTP ---- */

void gate_read_head(struct gate_client *c)
{
    uint64_t until = br_now_us() + GATE_WAIT_MS * 1000ull;
    uint8_t *end;
    while (!c->nin || !(end = memmem(c->in, c->nin, "\r\n\r\n", 4)))
        if (c->eof || !wait_more(c, until))
            fail_msg("no answer came; the log:\n%s", gate_log(c->rig));
    size_t n = (size_t)(end - c->in) + 4;
    free(c->head);
    c->head = strndup((char *)c->in, n);
    assert_int_equal(sscanf(c->head, "HTTP/1.1 %u ", &c->status), 1);
    eat(c, n);
}

const char *gate_field(const struct gate_client *c, const char *name)
{
    static char value[4096];
    size_t n = strlen(name);
    value[0] = 0;
    for (const char *p = c->head; (p = strstr(p, "\r\n")); p += 2)
        if (strncasecmp(p + 2, name, n) == 0 && p[2 + n] == ':')
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(p + 3 + n + 1, "\r"), p + 4 + n);
    return value;
}

struct gate_client *gate_http(struct gate_rig *r, enum gate_way way, const char *method,
                              const char *path, const char *fields)
{
    struct gate_client *c = gate_connect(r, way);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    br_buf_printf(&b, "%s %s HTTP/1.1\r\n%s%s\r\n", method, path,
                  strcasestr(fields, "Host:") ? "" : "Host: localhost\r\n", fields);
    gate_send_bytes(c, b.data, b.len);
    gate_read_head(c);
    gate_expect_eof(c);
    c->body = strndup((char *)c->in, c->nin);
    c->nbody = c->nin;
    return c;
}

unsigned gate_upgrade(struct gate_client *c, const char *path, const char *fields)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    br_buf_printf(&b,
                  "GET %s HTTP/1.1\r\n%sUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                  "%s\r\n",
                  path, strcasestr(fields, "Host:") ? "" : "Host: localhost\r\n", fields);
    gate_send_bytes(c, b.data, b.len);
    gate_read_head(c);
    if (c->status == 101)
        assert_string_equal(gate_field(c, "Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    return c->status;
}

struct gate_client *gate_open_as(struct gate_rig *r, enum gate_way way, const char *protocol,
                                 const char *token)
{
    struct gate_client *c = gate_connect(r, way);
    char fields[1024], bearer[300] = "", offer[128] = "";
    if (token)
        snprintf(bearer, sizeof(bearer), "Authorization: Bearer %s\r\n", token);
    if (protocol[0])
        snprintf(offer, sizeof(offer), "Sec-WebSocket-Protocol: %s\r\n", protocol);
    snprintf(fields, sizeof(fields), "%s%s", bearer, offer);
    if (gate_upgrade(c, "/acp", fields) != 101)
        fail_msg("the upgrade was refused: %s\n%s", c->head, gate_log(r));
    assert_string_equal(gate_field(c, "Sec-WebSocket-Protocol"), protocol);
    return c;
}

struct gate_client *gate_open(struct gate_rig *r, enum gate_way way, const char *protocol)
{
    return gate_open_as(r, way, protocol, NULL);
}

/* ---- frames ---- */

void gate_put_frame(struct br_buf *b, uint8_t first, const void *p, size_t n)
{
    static const uint8_t mask[4] = {0x12, 0xfe, 0x5a, 0x77};
    uint8_t head[14] = {first};
    size_t nhead = 2;
    head[1] = 0x80 | (uint8_t)(n < 126 ? n : n < 65536 ? 126 : 127);
    if (n >= 126) {
        size_t width = n < 65536 ? 2 : 8;
        for (size_t i = 0; i < width; i++)
            head[nhead++] = (uint8_t)((uint64_t)n >> (8 * (width - 1 - i)));
    }
    memcpy(head + nhead, mask, 4);
    br_buf_put(b, head, nhead + 4);
    size_t at = b->len;
    br_buf_put(b, p, n);
    assert_false(b->failed);
    for (size_t i = 0; i < n; i++)
        b->data[at + i] ^= mask[i % 4];
}

void gate_send_frame(struct gate_client *c, uint8_t first, const void *p, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(n + 64);
    gate_put_frame(&b, first, p, n);
    gate_send_bytes(c, b.data, b.len);
}

void gate_send_text(struct gate_client *c, const char *text)
{
    gate_send_frame(c, 0x81, text, strlen(text));
}

/* The length of the next whole frame, or 0; *head is where its payload begins. */
static size_t whole_frame(const struct gate_client *c, size_t *head)
{
    uint64_t n;
    if (c->nin < 2)
        return 0;
    assert_int_equal(c->in[1] & 0x80, 0); /* a server does not mask */
    assert_int_equal(c->in[0] & 0x70, 0);
    assert_int_equal(c->in[0] & 0x80, 0x80);
    n = c->in[1];
    *head = n == 127 ? 10 : n == 126 ? 4 : 2;
    if (c->nin < *head)
        return 0;
    if (n >= 126) {
        n = 0;
        for (size_t i = 2; i < *head; i++)
            n = n << 8 | c->in[i];
        assert_true(n >= (*head == 4 ? 126 : 65536)); /* its shortest form */
    }
    return c->nin - *head >= n ? *head + (size_t)n : 0;
}

/* Take one frame: 1 a message, 0 anything else. */
static int take_frame(struct gate_client *c, size_t head, size_t n)
{
    const uint8_t *p = c->in + head;
    size_t len = n - head;
    int op = c->in[0] & 15, r = 0;
    if (op == 1) {
        free(c->text);
        c->text = calloc(1, len + 1);
        assert_non_null(c->text);
        memcpy(c->text, p, len);
        c->ntext = len;
        c->messages++;
        r = 1;
    } else if (op == 9) {
        c->pings++;
        if (!c->mute)
            gate_send_frame(c, 0x8a, p, len);
    } else if (op == 10) {
        c->pongs++;
    } else {
        assert_int_equal(op, 8);
        if (!c->mute)
            gate_send_frame(c, 0x88, p, len < 2 ? len : 2);
        c->closed = true;
        c->close_code = len >= 2 ? (unsigned)p[0] << 8 | p[1] : 1005;
    }
    eat(c, n);
    return r;
}

static char *read_text(struct gate_client *c, uint64_t until)
{
    for (;;) {
        size_t head = 0, n = c->closed ? 0 : whole_frame(c, &head);
        if (n) {
            if (take_frame(c, head, n) == 1)
                return c->text;
        } else if (c->eof || c->closed || !wait_more(c, until)) {
            return NULL;
        }
    }
}

char *gate_poll_text(struct gate_client *c, unsigned ms)
{
    return read_text(c, br_now_us() + ms * 1000ull);
}

char *gate_read_text(struct gate_client *c)
{
    char *text = gate_poll_text(c, GATE_WAIT_MS);
    if (!text && !c->eof && !c->closed)
        fail_msg("no message came; the log:\n%s", gate_log(c->rig));
    return text;
}

void gate_expect_close(struct gate_client *c, unsigned code)
{
    while (gate_read_text(c))
        ;
    if (!c->closed)
        fail_msg("the connection ended without a close frame");
    assert_int_equal(c->close_code, code);
}

void gate_expect_eof(struct gate_client *c)
{
    uint64_t until = br_now_us() + GATE_WAIT_MS * 1000ull;
    while (!c->eof)
        if (!wait_more(c, until))
            fail_msg("the connection does not end");
}
