/*
 * Where a service is, and the connection to it: what is refused before anything is connected, and
 * what a server may not do.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
/* cmocka needs the above first */
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/remote.h"
#include "cli/test_peer.h"

/* ---- the URL -------------------------------------------------------------------------------- */

static void test_urls(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *authority, *path;
        unsigned port;
        bool tls;
    } rows[] = {
        {"ws://127.0.0.1", "127.0.0.1", "127.0.0.1:8765", "/acp", 8765, false},
        {"ws://127.0.0.1/", "127.0.0.1", "127.0.0.1:8765", "/acp", 8765, false},
        {"WS://localhost:1/x/y", "localhost", "localhost:1", "/x/y", 1, false},
        {"ws://LocalHost:65535", "LocalHost", "LocalHost:65535", "/acp", 65535, false},
        {"ws://127.255.255.254:80/acp", "127.255.255.254", "127.255.255.254:80", "/acp", 80, false},
        {"ws://[::1]:8765/acp", "::1", "[::1]:8765", "/acp", 8765, false},
        {"ws://[::1]", "::1", "[::1]:8765", "/acp", 8765, false},
        {"wss://example.org", "example.org", "example.org:443", "/acp", 443, true},
        {"wss://a-b.example.:8443/%7Ebob", "a-b.example.", "a-b.example.:8443", "/%7Ebob", 8443,
         true},
        {"wss://192.0.2.1:8443", "192.0.2.1", "192.0.2.1:8443", "/acp", 8443, true},
        {"wss://[2001:db8::1]", "2001:db8::1", "[2001:db8::1]:443", "/acp", 443, true},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_cli_url u;
        struct br_err err = {.code = BR_OK};
        if (br_cli_url_parse(rows[i].text, &u, &err) < 0)
            fail_msg("'%s': %s", rows[i].text, err.text);
        assert_false(u.local);
        assert_string_equal(u.host, rows[i].host);
        assert_string_equal(u.authority, rows[i].authority);
        assert_string_equal(u.path, rows[i].path);
        assert_int_equal(u.port, rows[i].port);
        assert_int_equal(u.tls, rows[i].tls);
    }
}

static void test_socket_urls(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"unix:/run/x.sock", "/run/x.sock"},       {"unix:x.sock", "x.sock"},
        {"unix:///run/x.sock", "/run/x.sock"},     {"ws+unix:///run/x.sock", "/run/x.sock"},
        {"unix:/tmp/a b@c?d#e", "/tmp/a b@c?d#e"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_cli_url u;
        assert_int_equal(br_cli_url_parse(rows[i][0], &u, NULL), 0);
        assert_true(u.local);
        assert_false(u.tls);
        assert_string_equal(u.socket, rows[i][1]);
        assert_string_equal(u.path, "/acp");
    }
    struct br_cli_url u;
    setenv("BRIDLE_STATE_DIR", "/tmp/state", 1);
    assert_int_equal(br_cli_url_parse("", &u, NULL), 0);
    assert_string_equal(u.socket, "/tmp/state/service.sock");
    assert_int_equal(br_cli_url_parse(NULL, &u, NULL), 0);
    assert_string_equal(u.socket, "/tmp/state/service.sock");
    setenv("BRIDLE_STATE_DIR", "/var/lib/bridle", 1);
    assert_int_equal(br_cli_url_parse("", &u, NULL), 0);
    assert_string_equal(u.socket, geteuid() == 0 ? "/run/bridle/service.sock"
                                                 : "/var/lib/bridle/service.sock");
    unsetenv("BRIDLE_STATE_DIR");
}

static void refused(const char *text, const char *why)
{
    struct br_cli_url u;
    struct br_err err = {.code = BR_OK};
    if (br_cli_url_parse(text, &u, &err) != -BR_E_USAGE)
        fail_msg("'%s' was taken", text);
    if (!strstr(err.text, why) || !strstr(err.text, "nothing was connected"))
        fail_msg("'%s': %s", text, err.text);
    if (strstr(err.text, "hunter2"))
        fail_msg("a password was repeated: %s", err.text);
}

static void test_refused_urls(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"http://127.0.0.1", "begins with none of"},
        {"127.0.0.1:8765", "begins with none of"},
        {"/run/x.sock", "begins with none of"},
        {"hunter2", "begins with none of"},
        {"ws:/127.0.0.1", "begins with none of"},
        {" ws://127.0.0.1", "begins with none of"},
        {"ws://bob:hunter2@127.0.0.1", "a user or a password"},
        {"wss://hunter2@example.org", "a user or a password"},
        {"ws://127.0.0.1@hunter2.example/", "a user or a password"},
        {"ws://127.0.0.1/?token=hunter2", "has a query"},
        {"ws://127.0.0.1?token=hunter2", "has a query"},
        {"wss://example.org/acp#hunter2", "has a fragment"},
        {"ws://", "names no host"},
        {"ws:///acp", "names no host"},
        {"ws://:80", "names no host"},
        {"ws://127.0.0.1:", "a port that is no number"},
        {"ws://127.0.0.1:0", "a port that is no number"},
        {"ws://127.0.0.1:65536", "a port that is no number"},
        {"ws://127.0.0.1:99999999999999999999", "a port that is no number"},
        {"ws://127.0.0.1:80x", "a port that is no number"},
        {"ws://127.0.0.1:-1", "a port that is no number"},
        {"ws://[::1", "without its ']'"},
        {"ws://[::1]80", "behind its ']'"},
        {"ws://[127.0.0.1]", "no IPv6 address"},
        {"wss://[fe80::1%25eth0]", "no IPv6 address"},
        {"ws://::1", "names no host"},
        {"ws://a..b", "neither a name nor an address"},
        {"ws://.a", "neither a name nor an address"},
        {"wss://-a.example", "neither a name nor an address"},
        {"wss://ex ample", "neither a name nor an address"},
        {"wss://ex%61mple.org", "neither a name nor an address"},
        {"wss://ex\xc3\xa4mple.org", "neither a name nor an address"},
        {"ws://127.1", "not written as four numbers"},
        {"ws://2130706433", "not written as four numbers"},
        {"ws://0x7f000001", "not written as four numbers"},
        {"ws://127.0.0.0x1", "not written as four numbers"},
        {"wss://192.0.2.256", "not written as four numbers"},
        {"ws://127.0.0.1\\@example.org", "a user or a password"},
        {"ws://127.0.0.1\\x", "a backslash"},
        {"ws://127.0.0.1/a b", "percent-encoded"},
        {"ws://127.0.0.1/\xc3\xa4", "percent-encoded"},
        {"ws://127.0.0.1/\r\nX: y", "a control character"},
        {"ws://127.0.0.1/\x7f", "a control character"},
        {"unix:/tmp/\x1b[2J", "a control character"},
        {"unix:", "names no socket"},
        {"ws+unix://", "names no socket"},
        /* not this machine, without TLS */
        {"ws://example.org", "Use wss://"},
        {"ws://128.0.0.1", "Use wss://"},
        {"ws://0.0.0.0", "Use wss://"},
        {"ws://[::]", "Use wss://"},
        {"ws://[::ffff:127.0.0.1]", "Use wss://"},
        {"ws://[::2]", "Use wss://"},
        {"ws://localhost.example", "Use wss://"},
        {"ws://127.0.0.1.example", "Use wss://"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        refused(rows[i][0], rows[i][1]);
}

/* A URL of N bytes, a host of N, a path of N, a socket of N; and one more. */
static void test_long_urls(void **state)
{
    (void)state;
    static char text[4096];
    struct br_cli_url u;
    memset(text, 'a', sizeof(text));
    memcpy(text, "unix:", 5);
    text[5 + sizeof(u.socket) - 1] = '\0';
    assert_int_equal(br_cli_url_parse(text, &u, NULL), 0);
    text[5 + sizeof(u.socket) - 1] = 'a';
    text[5 + sizeof(u.socket)] = '\0';
    refused(text, "is longer than 107 bytes");

    memset(text, 'a', sizeof(text));
    memcpy(text, "ws://127.0.0.1/", 15);
    text[14 + sizeof(u.path) - 1] = '\0';
    assert_int_equal(br_cli_url_parse(text, &u, NULL), 0);
    text[14 + sizeof(u.path) - 1] = 'a';
    text[14 + sizeof(u.path)] = '\0';
    refused(text, "a path that is too long");

    memset(text, 'a', sizeof(text));
    memcpy(text, "wss://", 6);
    for (unsigned i = 63; i < 253; i += 64)
        text[6 + i] = '.';
    text[6 + 253] = '\0';
    assert_int_equal(br_cli_url_parse(text, &u, NULL), 0);
    text[6 + 253] = 'a';
    text[6 + 254] = '\0';
    refused(text, "too long");

    memset(text, 'a', sizeof(text));
    memcpy(text, "ws://", 5);
    text[BR_CLI_URL_MAX] = '\0';
    refused(text, "too long");
    text[BR_CLI_URL_MAX] = 'a';
    text[BR_CLI_URL_MAX + 1] = '\0';
    refused(text, "longer than 2048 bytes");
}

/* ---- the connection ------------------------------------------------------------------------- */

static char dir[64], socket_path[80];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-test-remote.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(socket_path, sizeof(socket_path), "%s/s", dir);
    return chdir(dir);
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"s", "log", "token"};
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++)
        (void)unlink(names[i]);
    return chdir("/") == 0 ? rmdir(dir) : -1;
}

static const char *log_text(void)
{
    static char text[1 << 16];
    FILE *f = fopen("log", "re");
    text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    return text;
}

struct seen {
    char text[256];
    unsigned messages;
    bool done;
    unsigned until; /* so many messages */
};

static int on_message(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct seen *s = ctx;
    (void)err;
    assert_int_equal(strlen(text), n);
    snprintf(s->text, sizeof(s->text), "%s", text);
    s->done = ++s->messages == s->until;
    return 0;
}

static const struct br_cli_remote_hooks hooks = {.message = on_message};
static char *no_env(const char *name)
{
    (void)name;
    return NULL;
}
static struct br_cli_remote_options options = {
    .protocol = "harness.acp.1", .env = no_env, .seconds = 5};

/* It would end at the first connection. */
static void play_never(struct peer *p)
{
    peer_read_request(p);
}

/* Connect, and serve until `until` messages came or it broke. The code. */
static int serve(peer_play *play, unsigned until, struct seen *s, struct br_err *err)
{
    char text[100];
    struct br_cli_url u;
    struct br_cli_remote *r = NULL;
    struct br_loop *loop = br_loop_new();
    *s = (struct seen){.until = until};
    *err = (struct br_err){.code = BR_OK};
    pid_t pid = peer_start(socket_path, NULL, 1, play);
    snprintf(text, sizeof(text), "unix:%s", socket_path);
    assert_int_equal(br_cli_url_parse(text, &u, err), 0);
    int code = br_cli_remote_open(&r, loop, &u, &options, &hooks, s, err);
    if (code == 0)
        code = br_cli_remote_send(r, "hello", 5, err);
    if (code == 0)
        code = br_loop_run(loop, &s->done, err);
    br_cli_remote_close(&r, 1000, "bye");
    br_loop_free(&loop);
    int status = 0;
    if (play == play_never) {
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0); /* it still waits for somebody */
        peer_stop(pid);
        return code;
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return code;
}

static void hello(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
}

static void play_polite(struct peer *p)
{
    hello(p);
    peer_raw(p, "\x89\x02hi", 4);
    peer_raw(p, "\x01\x03one", 5); /* two fragments with a ping between them */
    peer_raw(p, "\x89\x00", 2);
    peer_raw(p, "\x80\x03two", 5);
    if (peer_next(p))
        peer_text(p, "{\"second\":true}");
    peer_drain(p);
}

static void test_polite(void **state)
{
    (void)state;
    struct seen s;
    struct br_err err;
    assert_int_equal(serve(play_polite, 2, &s, &err), 0);
    assert_string_equal(s.text, "{\"second\":true}");
    assert_non_null(strstr(log_text(), "HEAD GET /acp HTTP/1.1"));
    assert_non_null(strstr(log_text(), "PONG hi\n"));
    assert_non_null(strstr(log_text(), "TEXT hello\n"));
    assert_non_null(strstr(log_text(), "CLOSE 1000 bye\n"));
    assert_null(strcasestr(log_text(), "authorization"));
}

/* What came in the same packet as the handshake. */
static void play_early(struct peer *p)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    peer_read_request(p);
    br_ws_put_accept(&b, &p->offer, "harness.acp.1");
    br_ws_put(&b, BR_WS_TEXT, "early", 5, false);
    br_ws_put(&b, BR_WS_TEXT, "late", 4, false);
    peer_raw(p, b.data, b.len);
    peer_drain(p);
}

static void test_early(void **state)
{
    (void)state;
    struct seen s;
    struct br_err err;
    assert_int_equal(serve(play_early, 2, &s, &err), 0);
    assert_string_equal(s.text, "late");
}

/* The user of a connection runs the loop inside of a message: what comes then waits for its turn,
 * but pings do not. */
struct nested {
    struct br_loop *loop;
    char order[64];
    unsigned depth;
    bool done;
};

static int on_nested(void *ctx, const char *text, size_t n, struct br_err *err)
{
    struct nested *s = ctx;
    (void)n;
    assert_int_equal(s->depth, 0);
    s->depth++;
    snprintf(s->order + strlen(s->order), 16, "%s ", text);
    if (strcmp(text, "one") == 0)
        assert_int_equal(br_loop_run_until(s->loop, NULL, br_now_us() + 300000, err),
                         -BR_E_TIMEOUT);
    s->done = strcmp(text, "three") == 0;
    s->depth--;
    return 0;
}

static void play_nested(struct peer *p)
{
    hello(p);
    peer_text(p, "one");
    peer_raw(p, "\x89\x02hi", 4);
    peer_text(p, "two");
    (void)poll(NULL, 0, 100);
    peer_raw(p, "\x89\x02ho", 4);
    peer_text(p, "three");
    peer_drain(p);
}

static void nested(bool hold)
{
    static const struct br_cli_remote_hooks nested_hooks = {.message = on_nested};
    char text[100];
    struct br_cli_url u;
    struct br_cli_remote *r = NULL;
    struct br_err err = {.code = BR_OK};
    struct nested s = {.loop = br_loop_new()};
    pid_t pid = peer_start(socket_path, NULL, 1, play_nested);
    snprintf(text, sizeof(text), "unix:%s", socket_path);
    assert_int_equal(br_cli_url_parse(text, &u, NULL), 0);
    assert_int_equal(br_cli_remote_open(&r, s.loop, &u, &options, &nested_hooks, &s, &err), 0);
    if (hold) {
        br_cli_remote_hold(r, true);
        assert_int_equal(br_loop_run_until(s.loop, NULL, br_now_us() + 300000, &err),
                         -BR_E_TIMEOUT);
        assert_string_equal(s.order, "");
        assert_non_null(strstr(log_text(), "PONG ho"));
        br_cli_remote_hold(r, false);
    }
    err.code = BR_OK;
    assert_int_equal(br_loop_run(s.loop, &s.done, &err), 0);
    assert_string_equal(s.order, "one two three ");
    assert_non_null(strstr(log_text(), "PONG ho"));
    br_cli_remote_close(&r, 1000, "");
    br_loop_free(&s.loop);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_nested(void **state)
{
    (void)state;
    nested(false);
    nested(true);
}

#define PLAY_HEAD(name, text)                                                                      \
    static void name(struct peer *p)                                                               \
    {                                                                                              \
        peer_read_request(p);                                                                      \
        peer_say(p, text);                                                                         \
    }
#define PLAY_FRAMES(name, bytes)                                                                   \
    static void name(struct peer *p)                                                               \
    {                                                                                              \
        hello(p);                                                                                  \
        peer_raw(p, bytes, sizeof(bytes) - 1);                                                     \
        peer_drain(p);                                                                             \
    }
PLAY_HEAD(play_301,
          "HTTP/1.1 301 Moved\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
PLAY_HEAD(play_401, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
PLAY_HEAD(play_403, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
PLAY_HEAD(play_404, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
PLAY_HEAD(play_503, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
PLAY_HEAD(play_200, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
PLAY_HEAD(play_garbage, "\x15\x03\x01\x00\x02\x02\x46\n\n")
PLAY_HEAD(play_wrong_key,
          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
          "Sec-WebSocket-Protocol: harness.acp.1\r\n\r\n")
static void play_other_protocol(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "acp.v1");
}
static void play_no_protocol(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "");
}
static void play_silent(struct peer *p)
{
    peer_read_request(p);
    (void)poll(&(struct pollfd){.fd = p->fd, .events = POLLRDHUP}, 1, 30000);
}
static void play_hangs_up(struct peer *p)
{
    peer_read_request(p);
}
static void play_endless_head(struct peer *p)
{
    static char line[1024];
    peer_read_request(p);
    peer_say(p, "HTTP/1.1 101 Switching Protocols\r\n");
    memset(line, 'a', sizeof(line));
    memcpy(line, "X: ", 3);
    memcpy(line + sizeof(line) - 2, "\r\n", 2);
    for (int i = 0; i < 20; i++)
        peer_raw(p, line, sizeof(line));
}
static void play_ends(struct peer *p)
{
    hello(p);
}
PLAY_FRAMES(play_masked, "\x81\x82\x00\x00\x00\x00hi")
PLAY_FRAMES(play_binary, "\x82\x02hi")
PLAY_FRAMES(play_bad_utf8, "\x81\x02\xc3\x28")
PLAY_FRAMES(play_reserved, "\xc1\x02hi")
PLAY_FRAMES(play_long_length, "\x81\x7e\x00\x02hi")
PLAY_FRAMES(play_huge, "\x81\x7f\x00\x00\x00\x00\x01\x00\x00\x01")
PLAY_FRAMES(play_largest_length, "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff")
PLAY_FRAMES(play_lone_continuation, "\x80\x02hi")
PLAY_FRAMES(play_long_ping, "\x89\x7e\x00\x7e")
PLAY_FRAMES(play_bad_close, "\x88\x02\x03\xed")
PLAY_FRAMES(play_drains, "\x88\x16\x03\xe9the \x1b[31mservice end")
PLAY_FRAMES(play_no_status, "\x88\x00")

static void test_bad_servers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        peer_play *play;
        int code;
        const char *text, *close; /* what it was told */
    } rows[] = {
        {"301", play_301, BR_E_PEER_PROTOCOL, "", ""},
        {"401", play_401, BR_E_DENIED, "", ""},
        {"403", play_403, BR_E_DENIED, "", ""},
        {"404", play_404, BR_E_NOT_FOUND, "", ""},
        {"503", play_503, BR_E_LIMIT_EXCEEDED, "", ""},
        {"200", play_200, BR_E_PEER_PROTOCOL, "protocol failure", ""},
        {"garbage", play_garbage, BR_E_PEER_PROTOCOL, "protocol failure", ""},
        {"wrong key", play_wrong_key, BR_E_PEER_PROTOCOL, "Sec-WebSocket-Accept", ""},
        {"other protocol", play_other_protocol, BR_E_PEER_PROTOCOL, "did not choose", ""},
        {"no protocol", play_no_protocol, BR_E_PEER_PROTOCOL, "did not choose", ""},
        {"hangs up", play_hangs_up, BR_E_PEER_GONE, "during the handshake", ""},
        {"endless head", play_endless_head, BR_E_PEER_PROTOCOL, "protocol failure", ""},
        {"ends", play_ends, BR_E_PEER_GONE, "without a word", ""},
        {"masked", play_masked, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1002"},
        {"binary", play_binary, BR_E_PEER_PROTOCOL, "a binary message", "CLOSE 1003"},
        {"bad UTF-8", play_bad_utf8, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1007"},
        {"reserved", play_reserved, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1002"},
        {"long length", play_long_length, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1002"},
        {"huge", play_huge, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1009"},
        {"largest", play_largest_length, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1002"},
        {"continuation", play_lone_continuation, BR_E_PEER_PROTOCOL, "protocol failure",
         "CLOSE 1002"},
        {"long ping", play_long_ping, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1002"},
        {"bad close", play_bad_close, BR_E_PEER_PROTOCOL, "protocol failure", "CLOSE 1002"},
        {"drains", play_drains, BR_E_PEER_GONE, "going away (1001, the \\x1b[31mservice end)",
         "CLOSE 1001"},
        {"no status", play_no_status, BR_E_PEER_GONE, "gave no reason", "CLOSE 1000"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct seen s;
        struct br_err err;
        int code = serve(rows[i].play, 1, &s, &err);
        if (code != -rows[i].code || (int)err.code != rows[i].code ||
            !strstr(err.text, rows[i].text))
            fail_msg("%s: %d, %s: %s", rows[i].name, code, br_code_name((int)err.code), err.text);
        assert_int_equal(s.messages, 0);
        if (!strstr(log_text(), rows[i].close))
            fail_msg("%s: the server was told %s", rows[i].name, log_text());
    }
}

static void test_silent_servers(void **state)
{
    (void)state;
    struct seen s;
    struct br_err err;
    options.seconds = 1;
    assert_int_equal(serve(play_silent, 1, &s, &err), -BR_E_TIMEOUT);
    assert_non_null(strstr(err.text, "did not answer the handshake in time"));
    options.seconds = 5;
}

static void play_deaf(struct peer *p)
{
    hello(p);
    (void)poll(&(struct pollfd){.fd = p->fd, .events = POLLRDHUP}, 1, 30000);
}

/* It does not answer a ping. */
static void test_no_sign_of_life(void **state)
{
    (void)state;
    struct seen s;
    struct br_err err;
    options.seconds = 1;
    assert_int_equal(serve(play_deaf, 1, &s, &err), -BR_E_TIMEOUT);
    assert_non_null(strstr(err.text, "no sign of life"));
    options.seconds = 5;
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct br_cli_url u;
    struct br_cli_remote *r = NULL;
    struct br_err err = {.code = BR_OK};
    struct br_loop *loop = br_loop_new();
    assert_int_equal(br_cli_url_parse("unix:nowhere", &u, NULL), 0);
    assert_int_equal(br_cli_remote_open(&r, loop, &u, &options, &hooks, NULL, &err),
                     -BR_E_PEER_GONE);
    assert_non_null(strstr(err.text, "no service listens at 'nowhere'"));
    assert_null(r);
    br_loop_free(&loop);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static char env_token[32];
static char *token_env(const char *name)
{
    return strcmp(name, "BRIDLE_TOKEN") == 0 ? env_token : NULL;
}

static void write_token(const char *text, mode_t mode)
{
    int fd = open("token", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(br_write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void test_tokens(void **state)
{
    (void)state;
    struct seen s;
    struct br_err err;
    write_token("file-token\n", 0600);
    options.token_file = "token";
    assert_int_equal(serve(play_early, 2, &s, &err), 0);
    assert_non_null(strcasestr(log_text(), "authorization: Bearer file-token\\x0d"));
    options.env = token_env;
    snprintf(env_token, sizeof(env_token), "env-token");
    assert_int_equal(serve(play_early, 2, &s, &err), 0);
    assert_non_null(strstr(log_text(), "Bearer file-token")); /* the file goes first */
    options.token_file = NULL;
    assert_int_equal(serve(play_early, 2, &s, &err), 0);
    assert_non_null(strstr(log_text(), "Bearer env-token"));
    options.env = no_env;
}

/* Nothing is connected with a token that is none, or that everybody can read. */
static void test_bad_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mode_t mode;
        const char *why;
    } rows[] = {
        {"", 0600, "holds no token"},
        {"\n", 0600, "holds no token"},
        {"two words\n", 0600, "holds no token"},
        {"a\nb\n", 0600, "holds no token"},
        {"a\tb", 0600, "holds no token"},
        {"\xc3\xa4", 0600, "holds no token"},
        {"secret\n", 0604, "chmod 600"},
        {"secret\n", 0602, "chmod 600"},
    };
    struct seen s;
    struct br_err err;
    options.token_file = "token";
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        write_token(rows[i].text, rows[i].mode);
        assert_int_equal(serve(play_never, 1, &s, &err), -BR_E_INVALID_CONFIG);
        if (!strstr(err.text, rows[i].why) || strstr(err.text, "secret"))
            fail_msg("row %zu: %s", i, err.text);
        assert_null(strstr(log_text(), "HEAD"));
    }
    options.token_file = "nowhere";
    assert_int_equal(serve(play_never, 1, &s, &err), -BR_E_NOT_FOUND);
    options.token_file = "/dev/zero";
    assert_int_equal(serve(play_never, 1, &s, &err), -BR_E_INVALID_CONFIG);
    options.token_file = NULL;
}

/* 1024 bytes are a token, 1025 are not. */
static void test_long_token(void **state)
{
    (void)state;
    static char text[1026];
    struct seen s;
    struct br_err err;
    options.token_file = "token";
    memset(text, 'a', 1024);
    write_token(text, 0600);
    assert_int_equal(serve(play_early, 2, &s, &err), 0);
    memset(text, 'a', 1025);
    write_token(text, 0600);
    assert_int_equal(serve(play_never, 2, &s, &err), -BR_E_INVALID_CONFIG);
    options.token_file = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_socket_urls),
        cmocka_unit_test(test_refused_urls),
        cmocka_unit_test(test_long_urls),
        cmocka_unit_test_setup_teardown(test_polite, setup, teardown),
        cmocka_unit_test_setup_teardown(test_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nested, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_servers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silent_servers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_sign_of_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody_listens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_token, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
