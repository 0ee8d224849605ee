/*
 * bridle acp as an editor starts it: lines become messages and messages lines, and what cannot be a
 * message is answered here. The real program, against a server that the test plays.
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
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/test_peer.h"

#define MAX_LINE (1024u * 1024)

static char dir[] = "/tmp/bridle-acp-test-XXXXXX", at[64];

static int enter(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || chdir(dir) < 0)
        return -1;
    snprintf(at, sizeof(at), "unix:%s/s", dir);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    (void)unlink("s");
    (void)unlink("log");
    return chdir("/") == 0 ? rmdir(dir) : -1;
}

/* ---- the program ---- */

struct editor {
    pid_t pid;
    int in, out, err;
    struct br_buf got, said;
};

static void start(struct editor *e, const char *arg0, const char *arg1)
{
    char program[BR_PATH_MAX];
    int in[2], out[2], err[2];
    snprintf(program, sizeof(program), "%s/bridle", getenv("BRIDLE_BIN"));
    assert_true(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 &&
                pipe2(err, O_CLOEXEC) == 0);
    br_buf_init(&e->got, 8 * MAX_LINE);
    br_buf_init(&e->said, MAX_LINE);
    e->pid = fork();
    assert_true(e->pid >= 0);
    if (e->pid == 0) {
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        (void)dup2(err[1], 2);
        execl(program, "bridle", "acp", arg0, arg1, NULL);
        _exit(99);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    e->in = in[1];
    e->out = out[0];
    e->err = err[0];
}

static void say(struct editor *e, const void *p, size_t n)
{
    assert_int_equal(br_write_all(e->in, p, n), 0);
}

static void say_text(struct editor *e, const char *text)
{
    say(e, text, strlen(text));
}

static unsigned lines(const struct br_buf *b)
{
    unsigned n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

static void hear(struct editor *e, unsigned n)
{
    uint8_t buf[64 * 1024];
    while (lines(&e->got) < n) {
        struct pollfd p = {.fd = e->out, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        ssize_t m = read(e->out, buf, sizeof(buf));
        if (m <= 0)
            fail_msg("it ended after %u lines of %u", lines(&e->got), n);
        assert_int_equal(br_buf_put(&e->got, buf, (size_t)m), 0);
    }
}

/* Its exit status, once it was told that there is no more. */
static int end(struct editor *e)
{
    char buf[4096];
    int status;
    ssize_t n;
    br_close(&e->in);
    while ((n = read(e->out, buf, sizeof(buf))) > 0)
        br_buf_put(&e->got, buf, (size_t)n);
    while ((n = read(e->err, buf, sizeof(buf))) > 0)
        br_buf_put(&e->said, buf, (size_t)n);
    br_close(&e->out);
    br_close(&e->err);
    assert_int_equal(waitpid(e->pid, &status, 0), e->pid);
    assert_true(WIFEXITED(status));
    assert_non_null(br_buf_cstr(&e->got));
    assert_non_null(br_buf_cstr(&e->said));
    return WEXITSTATUS(status);
}

static void forget(struct editor *e)
{
    br_buf_free(&e->got);
    br_buf_free(&e->said);
}

/* ---- the server ---- */

/* Says how long each message was. */
static void measure(struct peer *p)
{
    char text[64];
    peer_read_request(p);
    peer_accept(p, "acp.v1");
    while (peer_next(p)) {
        snprintf(text, sizeof(text), "{\"bytes\":%zu,\"first\":\"%c\"}", strlen(p->text),
                 p->text[0]);
        peer_text(p, text);
    }
}

static void greet(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "acp.v1");
    peer_text(p, "{\n \"a\":\r\n 1}\n");
    peer_drain(p);
}

static void other_protocol(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    peer_drain(p);
}

static void turn_away(struct peer *p)
{
    struct br_buf b = BR_BUF_INIT(256);
    peer_read_request(p);
    peer_accept(p, "acp.v1");
    (void)peer_next(p);
    br_ws_put_close(&b, BR_WS_CLOSE_TOO_LARGE, "too large", false);
    peer_raw(p, b.data, b.len);
    br_buf_free(&b);
    peer_drain(p);
}

static void flood(struct peer *p)
{
    static char text[64 * 1024];
    memset(text, 'x', sizeof(text) - 1);
    peer_read_request(p);
    peer_accept(p, "acp.v1");
    for (unsigned i = 0; i < 4; i++)
        peer_text(p, text);
    peer_drain(p);
}

/* Answers a request only after what the editor sends at the end of its input. */
static void answer_late(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "acp.v1");
    (void)peer_next(p);
    peer_text(p, "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{}}");
    while (peer_next(p) && !strstr(p->text, "session/cancel"))
        ;
    peer_text(p, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"stopReason\":\"cancelled\"}}");
    peer_text(p,
              "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"no\"}}");
    peer_text(p, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"late\":true}}");
    peer_drain(p);
}

static void never_answer(struct peer *p)
{
    peer_read_request(p);
    peer_accept(p, "acp.v1");
    peer_drain(p);
}

/* ---- tests ---- */

static void test_lines_are_messages(void **state)
{
    (void)state;
    struct editor e;
    pid_t peer = peer_start("s", NULL, 1, measure);
    start(&e, "--connect", at);
    say_text(&e, "{\"a\":1}\n\n  \t\r\n{\"b\":22}\r\n");
    hear(&e, 2);
    say_text(&e, "{\"in "); /* in two pieces, with another behind it */
    say_text(&e, "two\":1}\n{}\n");
    hear(&e, 4);
    assert_int_equal(end(&e), 0);
    assert_string_equal((char *)e.got.data,
                        "{\"bytes\":7,\"first\":\"{\"}\n{\"bytes\":9,\"first\":\"{\"}\n"
                        "{\"bytes\":12,\"first\":\"{\"}\n{\"bytes\":2,\"first\":\"{\"}\n");
    assert_string_equal((char *)e.said.data, "");
    forget(&e);
    peer_stop(peer);
}

static void test_messages_are_lines(void **state)
{
    (void)state;
    struct editor e;
    pid_t peer = peer_start("s", NULL, 1, greet);
    start(&e, "--connect", at);
    hear(&e, 1);
    assert_int_equal(end(&e), 0);
    assert_string_equal((char *)e.got.data, "{  \"a\":   1} \n");
    forget(&e);
    peer_stop(peer);
}

/* A line of N bytes is sent, one of N + 1 is not; what comes behind it is. */
static void test_long_lines(void **state)
{
    (void)state;
    struct editor e;
    char *text = malloc(MAX_LINE + 2);
    assert_non_null(text);
    memset(text, 'x', MAX_LINE + 2);
    pid_t peer = peer_start("s", NULL, 1, measure);
    start(&e, "--connect", at);
    text[MAX_LINE] = '\n';
    say(&e, text, MAX_LINE + 1);
    hear(&e, 1);
    text[MAX_LINE] = 'x';
    text[MAX_LINE + 1] = '\n';
    say(&e, text, MAX_LINE + 2);
    hear(&e, 2);
    say_text(&e, "{}\n");
    hear(&e, 3);
    assert_int_equal(end(&e), 0);
    assert_string_equal((char *)e.got.data,
                        "{\"bytes\":1048576,\"first\":\"x\"}\n"
                        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":"
                        "\"the line is longer than 1048576 bytes; it was not sent\",\"data\":"
                        "{\"code\":\"LIMIT_EXCEEDED\"}}}\n"
                        "{\"bytes\":2,\"first\":\"{\"}\n");
    forget(&e);
    peer_stop(peer);
    free(text);
}

/* What was asked before the end of input is answered; a prompt is canceled for that. */
static void test_answers_after_the_end(void **state)
{
    (void)state;
    struct editor e;
    pid_t peer = peer_start("s", NULL, 1, answer_late);
    start(&e, "--connect", at);
    say_text(&e, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"session/prompt\",\"params\":{"
                 "\"sessionId\":\"s \\\"1\",\"prompt\":[]}}\nno json\n"
                 "{\"jsonrpc\":\"2.0\",\"method\":\"note\"}\n"
                 "{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":null}\n"
                 "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"initialize\"}\n");
    hear(&e, 1);
    assert_int_equal(end(&e), 0);
    assert_int_equal(lines(&e.got), 4);
    assert_non_null(strstr((char *)e.got.data, "\"late\":true"));
    assert_string_equal((char *)e.said.data, "");
    forget(&e);
    peer_stop(peer);
    BR_CLEANUP_BUF struct br_buf log = BR_BUF_INIT(1 << 16);
    BR_CLEANUP_FD int fd = open("log", O_RDONLY | O_CLOEXEC);
    assert_int_equal(br_read_all(fd, &log, "log", NULL), 0);
    const char *told = strstr(br_buf_cstr(&log), "session/cancel");
    assert_non_null(told);
    assert_non_null(strstr(told, "{\"sessionId\":\"s \\\"1\"}"));
    assert_null(strstr(told + 1, "session/cancel"));
    /* the same for an editor that has gone: nobody is told */
    peer = peer_start("s", NULL, 1, answer_late);
    start(&e, "--connect", at);
    say_text(&e, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"session/prompt\",\"params\":{"
                 "\"sessionId\":\"s\"}}\n");
    hear(&e, 1);
    br_close(&e.out);
    assert_int_equal(end(&e), 0);
    assert_string_equal((char *)e.said.data, "");
    forget(&e);
    peer_stop(peer);
    /* one that never comes */
    peer = peer_start("s", NULL, 1, never_answer);
    start(&e, "--connect", at);
    say_text(&e, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n");
    assert_int_equal(end(&e), 7);
    assert_non_null(strstr((char *)e.said.data, "(1 open requests)"));
    forget(&e);
    peer_stop(peer);
}

static void test_bad_lines(void **state)
{
    (void)state;
    struct editor e;
    pid_t peer = peer_start("s", NULL, 1, measure);
    start(&e, "--connect", at);
    say_text(&e, "{\"\xc3\x28\"}\n{\"\xed\xa0\x80\"}\n{}\n");
    hear(&e, 3);
    say_text(&e, "{\"unfinished\":");
    assert_int_equal(end(&e), 5);
    assert_non_null(strstr((char *)e.got.data, "-32700"));
    assert_non_null(strstr((char *)e.got.data, "{\"bytes\":2,\"first\":\"{\"}\n"));
    assert_null(strstr((char *)e.got.data, "\"bytes\":14"));
    assert_non_null(strstr((char *)e.said.data, "ended inside of a line"));
    assert_non_null(strstr((char *)e.said.data, "INVALID_FRAME"));
    forget(&e);
    peer_stop(peer);
}

static void test_server_that_is_none(void **state)
{
    (void)state;
    struct editor e;
    start(&e, "--connect", at); /* nobody listens; named, so nothing is started instead */
    assert_int_equal(end(&e), 1);
    assert_non_null(strstr((char *)e.said.data, "bridle serve"));
    assert_string_equal((char *)e.got.data, "");
    forget(&e);
    pid_t peer = peer_start("s", NULL, 1, other_protocol);
    start(&e, "--connect", at);
    assert_int_equal(end(&e), 1);
    assert_non_null(strstr((char *)e.said.data, "PEER_PROTOCOL"));
    assert_string_equal((char *)e.got.data, "");
    forget(&e);
    peer_stop(peer);
    peer = peer_start("s", NULL, 1, turn_away);
    start(&e, "--connect", at);
    say_text(&e, "{}\n");
    struct pollfd p = {.fd = e.out, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1); /* it leaves by itself */
    assert_int_equal(end(&e), 1);
    assert_non_null(strstr((char *)e.said.data, "PEER_GONE"));
    assert_string_equal((char *)e.got.data, "");
    forget(&e);
    peer_stop(peer);
}

static void test_arguments(void **state)
{
    (void)state;
    struct editor e;
    start(&e, "--connect=unix:s", "--root=/tmp");
    assert_int_equal(end(&e), 2);
    assert_non_null(strstr((char *)e.said.data, "'--connect' names a service that runs"));
    forget(&e);
    start(&e, "--connect", "ws://user:secret@127.0.0.1");
    assert_int_equal(end(&e), 2);
    assert_null(strstr((char *)e.said.data, "secret"));
    forget(&e);
}

/* An editor that ends its agent: it leaves as at the end of input. */
static void test_signals(void **state)
{
    (void)state;
    struct editor e;
    pid_t peer = peer_start("s", NULL, 1, measure);
    start(&e, "--connect", at);
    say_text(&e, "{}\n");
    hear(&e, 1);
    assert_int_equal(kill(e.pid, SIGTERM), 0);
    struct pollfd p = {.fd = e.out, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(end(&e), 0);
    forget(&e);
    peer_stop(peer);
}

/* Also while the editor does not read what it is told. */
static void test_signal_while_nobody_reads(void **state)
{
    (void)state;
    struct editor e;
    int waiting = 0, status = -1;
    pid_t peer = peer_start("s", NULL, 1, flood), got = 0;
    start(&e, "--connect", at);
    for (unsigned i = 0; waiting < 61440 && i < 20000; i++) { /* the pipe takes no more */
        assert_int_equal(ioctl(e.out, FIONREAD, &waiting), 0);
        (void)usleep(1000);
    }
    assert_true(waiting >= 61440);
    assert_int_equal(kill(e.pid, SIGTERM), 0);
    for (unsigned i = 0; got == 0 && i < 20000; i++) {
        got = waitpid(e.pid, &status, WNOHANG);
        (void)usleep(1000);
    }
    assert_int_equal(got, e.pid);
    assert_int_equal(status, 0);
    br_close(&e.in);
    br_close(&e.out);
    br_close(&e.err);
    forget(&e);
    peer_stop(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_messages),
        cmocka_unit_test(test_messages_are_lines),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_answers_after_the_end),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_server_that_is_none),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_signal_while_nobody_reads),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, enter, leave);
}
