/*
 * See test_peer.h.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/test_peer.h"

#define PATIENCE_MS 20000

static _Noreturn void give_up(const char *why)
{
    fprintf(stderr, "the test's server: %s\n", why);
    _exit(99);
}

static void put_log(struct peer *p, const char *kind, const char *text, size_t n)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u * 1024 * 1024);
    br_buf_printf(&b, "%s ", kind);
    br_buf_put_visible(&b, text, n, true);
    br_buf_put_u8(&b, '\n');
    if (br_write_all(p->log, b.data, b.len) < 0)
        give_up("the log");
}

void peer_raw(struct peer *p, const void *bytes, size_t n)
{
    (void)br_write_all(p->fd, bytes, n); /* it may have gone: that is what some tests are about */
}

void peer_say(struct peer *p, const char *text)
{
    peer_raw(p, text, strlen(text));
}

static bool more(struct peer *p)
{
    struct pollfd w = {.fd = p->fd, .events = POLLIN};
    if (poll(&w, 1, PATIENCE_MS) <= 0)
        give_up("the client says nothing");
    ssize_t n = read(p->fd, p->buf, sizeof(p->buf));
    p->at = p->buf;
    p->left = n > 0 ? (size_t)n : 0;
    return n > 0;
}

void peer_read_request(struct peer *p)
{
    size_t have = 0;
    unsigned status;
    int r = 0;
    while (r == 0) {
        if (!more(p))
            _exit(0); /* it left before it said anything */
        if (have + p->left > sizeof(p->request))
            give_up("a request that is too long");
        memcpy(p->request + have, p->buf, p->left);
        have += p->left;
        r = br_http_request(p->request, have, &p->head, &status, NULL);
    }
    put_log(p, "HEAD", p->request, have);
    p->left = 0;
    if (r < 0 || br_ws_offer(&p->head, &p->offer, &status, NULL) != 0)
        give_up("a request that is none");
}

void peer_accept(struct peer *p, const char *protocol)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    br_ws_put_accept(&b, &p->offer, protocol);
    peer_raw(p, b.data, b.len);
}

void peer_text(struct peer *p, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64u * 1024 * 1024);
    br_ws_put(&b, BR_WS_TEXT, text, strlen(text), false);
    peer_raw(p, b.data, b.len);
}

/* The next message, which was logged; 0 at the end. A ping is answered, and so is a close. */
static unsigned next_op(struct peer *p)
{
    struct br_ws_message m;
    struct br_err err = {.code = BR_OK};
    unsigned code;
    int r;
    while ((r = br_ws_read(&p->reader, &p->limits, &p->at, &p->left, &m, &code, &err)) == 0)
        if (!more(p))
            return 0;
    if (r < 0)
        give_up(err.text);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    if (m.op == BR_WS_CLOSE) {
        char text[160];
        snprintf(text, sizeof(text), "%u %.*s", m.close_code, (int)m.n, m.data);
        put_log(p, "CLOSE", text, strlen(text));
        br_ws_put_close(&b, m.close_code == BR_WS_CLOSE_NO_STATUS ? 1000 : m.close_code, "", false);
        peer_raw(p, b.data, b.len);
        return 0;
    }
    if (m.op == BR_WS_PING) {
        br_ws_put(&b, BR_WS_PONG, m.data, m.n, false);
        peer_raw(p, b.data, b.len);
    }
    put_log(p, m.op == BR_WS_TEXT ? "TEXT" : m.op == BR_WS_PING ? "PING" : "PONG", m.data, m.n);
    if (m.op == BR_WS_TEXT) {
        free(p->text);
        p->text = strndup(m.data, m.n);
    }
    return m.op;
}

bool peer_next(struct peer *p)
{
    unsigned op;
    do {
        op = next_op(p);
    } while (op && op != BR_WS_TEXT);
    return op != 0;
}

void peer_drain(struct peer *p)
{
    while (peer_next(p))
        ;
}

static void wait_method(struct peer *p, const char *line)
{
    char method[80];
    snprintf(method, sizeof(method), "\"method\":\"%.*s\"", (int)strcspn(line, " \n"), line);
    do {
        if (!peer_next(p))
            _exit(0);
    } while (!strstr(p->text, method));
}

static void ping(struct peer *p)
{
    unsigned op;
    peer_raw(p, "\x89\x02hi", 4);
    do {
        op = next_op(p);
    } while (op && op != BR_WS_PONG);
}

static void wait_file(const char *name)
{
    for (int i = 0; i < PATIENCE_MS / 10 && access(name, F_OK) < 0; i++)
        (void)poll(NULL, 0, 10);
}

void peer_script(struct peer *p, const char *script)
{
    peer_read_request(p);
    peer_accept(p, "harness.acp.1");
    for (const char *at = script; *at;) {
        size_t n = strcspn(at, "\n");
        char *line = strndup(at, n);
        if (!line)
            give_up("no memory");
        if (*line == '>')
            wait_method(p, line + 1);
        else if (*line == '#')
            (void)poll(NULL, 0, atoi(line + 1));
        else if (*line == '!')
            _exit(0);
        else if (*line == '?')
            ping(p);
        else if (*line == '@')
            wait_file(line + 1);
        else
            peer_text(p, line);
        free(line);
        at += n + (at[n] == '\n');
    }
    peer_drain(p);
}

static int listen_at(const char *path, unsigned *port)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(in);
    int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
    if (path) {
        snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
        (void)unlink(path);
        r = bind(fd, (struct sockaddr *)&un, sizeof(un));
    } else {
        r = bind(fd, (struct sockaddr *)&in, sizeof(in));
    }
    if (fd < 0 || r < 0 || listen(fd, 8) < 0)
        give_up("it cannot listen");
    if (!path && getsockname(fd, (struct sockaddr *)&in, &n) == 0)
        *port = ntohs(in.sin_port);
    return fd;
}

pid_t peer_start(const char *path, unsigned *port, unsigned n, peer_play *play)
{
    int fd = listen_at(path, port);
    (void)unlink("log");
    pid_t pid = fork();
    if (pid != 0) {
        close(fd);
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < n; i++) {
        struct peer *p = calloc(1, sizeof(*p));
        if (!p)
            give_up("no memory");
        p->limits = (struct br_ws_limits){
            .message_bytes = 16u * 1024 * 1024, .fragments = 64, .server = true};
        br_ws_reader_init(&p->reader, &p->limits);
        p->log = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        p->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (p->fd < 0 || p->log < 0)
            give_up("nobody came");
        play(p);
        close(p->fd);
        close(p->log);
        br_ws_reader_free(&p->reader);
        free(p->text);
        free(p);
    }
    _exit(0);
}

void peer_stop(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}
