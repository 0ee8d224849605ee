/*
 * bridle-egress as a program: many requests at once, each with a connection of its own, a window
 * and clocks; providers that stand still or lie; and the key, which is where it must be and nowhere
 * else.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "egress/test_rig.h"
#include "egress/transfer.h"

static struct eg_server server;

static void start(struct eg *e, const struct eg_options *o)
{
    e->server = &server;
    eg_server_reset(&server);
    assert_int_equal(eg_start(e, o), 0);
}

static void expect(struct eg *e, uint64_t id, enum br_code code, const char *text)
{
    struct eg_answer *a = eg_of(e, id);
    if (a->ends != 1 || a->code != code || !strstr(a->text, text))
        fail_msg("request %lu: %u ends, %s: %s", (unsigned long)id, a->ends,
                 br_code_name((int)a->code), a->text);
}

/* ---- one request is one connection ---- */

static void test_one_request_one_connection(void **state)
{
    static const unsigned statuses[] = {200, 201, 204, 301, 302, 303, 304, 307, 308, 400, 401, 403,
                                        404, 407, 408, 409, 425, 429, 500, 502, 503, 504, 529};
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.key = NULL});
    for (unsigned i = 0; i < BR_ARRAY_LEN(statuses); i++) {
        char path[32];
        snprintf(path, sizeof(path), "/status/%u", statuses[i]);
        uint64_t id = eg_ask_path(&e, path);
        eg_until_ended(&e, 5000);
        expect(&e, id, BR_OK, "");
        assert_int_equal(eg_of(&e, id)->status, statuses[i]);
        assert_int_equal(eg_of(&e, id)->headers.n, 1); /* no Location, no Refresh */
        assert_string_equal(br_headers_find(&eg_of(&e, id)->headers, "retry-after"), "3");
        assert_int_equal(atomic_load(&server.shared->requests), i + 1);
        assert_int_equal(atomic_load(&server.shared->connections), i + 1);
        assert_non_null(strstr(server.shared->last, path));
    }
    eg_serve(&e, 1300); /* the one that was opened ahead is closed unused */
    assert_int_equal(atomic_load(&server.shared->requests), BR_ARRAY_LEN(statuses));
    assert_int_equal(atomic_load(&server.shared->connections), BR_ARRAY_LEN(statuses));
    assert_int_equal(atomic_load(&server.shared->empty), 1);
    eg_stop(&e, 0);
}

static void test_many_at_once(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.key = NULL});
    uint64_t stalled = eg_ask_path(&e, "/stall/half");
    for (unsigned i = 0; i < 200; i++)
        (void)eg_ask_path(&e, i % 2 ? "/chunks/1" : "/flood/100000");
    while (e.open > 1)
        eg_serve(&e, 20);
    size_t n;
    const char *body;
    (void)eg_recorded(1, &n, &body);
    for (unsigned i = 0; i < 200; i++) {
        struct eg_answer *a = eg_of(&e, stalled + 1 + i);
        expect(&e, a->id, BR_OK, "");
        assert_int_equal(a->body.len, i % 2 ? strlen(body) : 100000);
        if (i % 2)
            assert_string_equal(eg_body(a), body);
    }
    assert_int_equal(atomic_load(&server.shared->requests), 201);
    assert_int_equal(atomic_load(&server.shared->connections), 201);
    /* the one that stands is still there, and can be let go */
    assert_int_equal(eg_of(&e, stalled)->ends, 0);
    assert_int_equal(br_chan_send(&e.broker, BR_MSG_PROV_CANCEL, stalled, NULL, NULL), 0);
    eg_until_ended(&e, 5000);
    expect(&e, stalled, BR_E_CANCELED, "was cancelled");
    assert_string_equal(eg_body(eg_of(&e, stalled)), "0123456789");
    eg_stop(&e, 0);
}

/* The bound of what is in flight, at N and N + 1. */
static void test_too_many(void **state)
{
    struct eg e;
    (void)state;
    _Static_assert(BR_EGRESS_TRANSFERS_MAX + 1 > EG_ANSWERS, "ids are used twice here");
    start(&e, &(struct eg_options){.key = NULL});
    for (unsigned i = 0; i < EG_ANSWERS - 1; i++)
        (void)eg_ask_path(&e, "/stall/nothing");
    eg_serve(&e, 300);
    assert_int_equal(e.open, EG_ANSWERS - 1);
    /* an id that is in use is no new request */
    for (unsigned i = 1; i < EG_ANSWERS; i++)
        assert_int_equal(eg_of(&e, i)->ends, 0);
    eg_of(&e, 1)->id = 0;
    e.open--;
    assert_int_equal(eg_ask_path(&e, "/ok"), 1);
    eg_serve(&e, 200);
    expect(&e, 1, BR_E_INVALID_FRAME, "was not sent");
    eg_stop(&e, 0);
}

/* ---- windows ---- */

/* A slow reader slows its own provider down, and nobody else's. */
static void test_windows(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.timeouts = {5, 5, 1, 30}});
    e.no_credit = true;
    uint64_t slow = eg_ask(&e, &(struct eg_request){.path = "/flood/30000000", .window = 10000});
    uint64_t quick = eg_ask(&e, &(struct eg_request){.path = "/flood/300000", .window = 300000});
    while (eg_of(&e, quick)->ends == 0)
        eg_serve(&e, 10);
    expect(&e, quick, BR_OK, "");
    eg_serve(&e, 1500); /* longer than the idle clock, which stands */
    assert_int_equal(eg_of(&e, slow)->body.len, 10000);
    assert_int_equal(eg_of(&e, slow)->ends, 0);
    unsigned long sent = atomic_load(&server.shared->sent);
    assert_true(sent < 20000000); /* what the kernel holds, and no more */
    eg_credit(&e, slow, 1);
    eg_serve(&e, 50);
    assert_int_equal(eg_of(&e, slow)->body.len, 10001);
    eg_credit(&e, slow + 400, 1000); /* of nobody */
    eg_credit(&e, slow, UINT32_MAX);
    eg_until_ended(&e, 20000);
    expect(&e, slow, BR_OK, "");
    assert_int_equal(eg_of(&e, slow)->body.len, 30000000);
    eg_stop(&e, 0);
}

/* A broker that does not read: everything waits, nothing is lost. */
static void test_deaf_broker(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.timeouts = {5, 5, 1, 30}});
    for (unsigned i = 0; i < 32; i++)
        (void)eg_ask(&e, &(struct eg_request){.path = "/flood/500000", .window = 600000});
    (void)poll(NULL, 0, 1500);
    eg_until_ended(&e, 20000);
    for (unsigned i = 1; i <= 32; i++) {
        expect(&e, i, BR_OK, "");
        assert_int_equal(eg_of(&e, i)->body.len, 500000);
    }
    eg_stop(&e, 0);
}

/* ---- providers that stand still ---- */

/* A listener whose queue is full: loopback drops the handshake. */
static unsigned full_listener(int fds[5])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fds[0], (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fds[0], 0), 0);
    assert_int_equal(getsockname(fds[0], (struct sockaddr *)&a, &len), 0);
    for (unsigned i = 1; i < 5; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fds[i], (struct sockaddr *)&a, sizeof(a));
    }
    return ntohs(a.sin_port);
}

static void test_stall_before_connection(void **state)
{
    static struct eg es[3];
    int fds[5];
    char url[3][64];
    (void)state;
    unsigned full = full_listener(fds);
    snprintf(url[0], sizeof(url[0]), "http://127.0.0.1:%u/v1", full);
    snprintf(url[1], sizeof(url[1]), "https://127.0.0.1:%u/v1", full);
    /* a server that takes the connection, and no handshake comes */
    snprintf(url[2], sizeof(url[2]), "https://127.0.0.1:%u/v1", server.port);
    for (unsigned i = 0; i < 3; i++) {
        start(&es[i], &(struct eg_options){.base_url = url[i], .timeouts = {1, 9, 9, 9}});
        assert_int_equal(eg_ask_path(&es[i], "/ok"), 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        eg_until_ended(&es[i], 5000);
        expect(&es[i], 1, BR_E_TIMEOUT, "there was no connection within 1 s");
        assert_int_equal(eg_of(&es[i], 1)->sent, 0);
        eg_stop(&es[i], 0);
    }
    for (unsigned i = 0; i < 5; i++)
        (void)close(fds[i]);
    assert_int_equal(atomic_load(&server.shared->requests), 0);
}

/* All of them at the same time. */
static void test_stalls(void **state)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"/stall/nothing", "it did not begin to answer within 1 s"},
        {"/stall/head", "the head of its answer stood still within 1 s"},
        {"/stall/body", "its answer stood still within 1 s"},
        {"/stall/half", "its answer stood still within 1 s"},
    };
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.timeouts = {9, 1, 1, 9}});
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++)
        (void)eg_ask_path(&e, rows[i].path);
    /* a body that is larger than what the kernel takes, and a server that does not read it */
    static char body[12u << 20];
    memset(body, 'b', sizeof(body));
    uint64_t early =
        eg_ask(&e, &(struct eg_request){.path = "/early", .body = body, .n = sizeof(body)});
    eg_until_ended(&e, 6000);
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        expect(&e, i + 1, BR_E_TIMEOUT, rows[i].text);
        assert_int_equal(eg_of(&e, i + 1)->heads, i >= 2);
        assert_int_equal(eg_of(&e, i + 1)->sent, 13);
    }
    /* who answers before it has read everything has answered */
    expect(&e, early, BR_OK, "");
    assert_true(eg_of(&e, early)->sent < sizeof(body));
    assert_int_equal(atomic_load(&server.shared->requests), 5);
    eg_stop(&e, 0);
}

static void test_total_time(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.timeouts = {9, 9, 9, 1}});
    (void)eg_ask_path(&e, "/stall/nothing");
    (void)eg_ask_path(&e, "/stall/half");
    e.no_credit = true;
    uint64_t full = eg_ask(&e, &(struct eg_request){.path = "/flood/100000", .window = 10});
    eg_until_ended(&e, 4000);
    for (uint64_t i = 1; i <= full; i++)
        expect(&e, i, BR_E_TIMEOUT, "did not end within 1 s");
    assert_int_equal(eg_of(&e, full)->body.len, 10);
    eg_stop(&e, 0);
}

/* ---- answers that are cut, or none ---- */

static void test_every_cut(void **state)
{
    struct eg e;
    (void)state;
    for (unsigned t = 0; t < EG_RECORDED; t++) {
        const char *body;
        size_t n, bytes = 0;
        (void)eg_recorded(t, &n, &body);
        start(&e, &(struct eg_options){.key = NULL});
        for (unsigned cut = 0; cut <= n; cut++) {
            char path[32];
            snprintf(path, sizeof(path), "/cut/%u/%u", t, cut);
            (void)eg_ask_path(&e, path);
        }
        eg_until_ended(&e, 20000);
        for (unsigned cut = 0; cut < n; cut++) {
            struct eg_answer *a = eg_of(&e, cut + 1);
            expect(&e, cut + 1, BR_E_PROVIDER_TRUNCATED,
                   cut == 0   ? "before it answered"
                   : a->heads ? "in the middle of its answer"
                              : "in the head of its answer");
            assert_true(a->body.len >= bytes); /* never less than with a byte less */
            bytes = a->body.len;
            assert_memory_equal(eg_body(a), body, bytes);
        }
        expect(&e, n + 1, BR_OK, "");
        assert_string_equal(eg_body(eg_of(&e, n + 1)), body);
        assert_int_equal(atomic_load(&server.shared->requests), n + 1);
        eg_stop(&e, 0);
    }
}

static void test_odd_answers(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.key = NULL});
    for (unsigned i = 0; i < EG_ODD; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/odd/%u", i);
        (void)eg_ask_path(&e, path);
    }
    eg_until_ended(&e, 5000);
    for (unsigned i = 0; i < EG_ODD; i++) {
        expect(&e, i + 1, BR_E_PROVIDER_INVALID, "did not answer in HTTP/1.1: ");
        assert_null(strstr(eg_of(&e, i + 1)->text, "hello"));
    }
    assert_int_equal(atomic_load(&server.shared->requests), EG_ODD);
    eg_stop(&e, 0);
}

/* ---- what is sent ---- */

static void test_requests(void **state)
{
    struct eg e;
    struct br_headers h = {.n = 0};
    (void)state;
    start(&e, &(struct eg_options){.auth = BR_AUTH_X_API_KEY});
    assert_true(br_headers_add(&h, "anthropic-version", "2023-06-01"));
    uint64_t get = eg_ask(
        &e,
        &(struct eg_request){.method = "GET", .path = "/say", .content_type = "", .headers = &h});
    eg_until_ended(&e, 5000);
    expect(&e, get, BR_OK, "");
    assert_non_null(strstr(eg_body(eg_of(&e, get)), "GET /v1/say HTTP/1.1\r\n"));
    assert_non_null(strstr(eg_body(eg_of(&e, get)), "anthropic-version: 2023-06-01\r\n"));
    /* positive control of every search for the key */
    assert_non_null(strstr(eg_body(eg_of(&e, get)), "x-api-key: " EG_KEY));
    assert_null(strstr(eg_body(eg_of(&e, get)), "Authorization"));
    unsigned before = atomic_load(&server.shared->requests);
    h.n = 0;
    assert_true(br_headers_add(&h, "idempotency-key", "1"));
    static const char *const bad_paths[] = {"/../x", "//x", "x", "/a?b", "/a b", ""};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad_paths); i++)
        (void)eg_ask(&e, &(struct eg_request){.path = bad_paths[i]});
    (void)eg_ask(&e, &(struct eg_request){.headers = &h});
    (void)eg_ask(&e, &(struct eg_request){.content_type = ""});
    (void)eg_ask(&e, &(struct eg_request){.method = "GET"}); /* with a content type */
    eg_until_ended(&e, 5000);
    for (uint64_t i = get + 1; eg_of(&e, i)->id; i++)
        expect(&e, i, BR_E_INVALID_FRAME, "was not sent");
    assert_int_equal(atomic_load(&server.shared->requests), before);
    eg_stop(&e, 0);
}

/* Nothing of the environment decides where it goes. */
static void test_environment_is_ignored(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.env = "https_proxy=http://127.0.0.1:1"});
    uint64_t id = eg_ask_path(&e, "/ok");
    eg_until_ended(&e, 5000);
    expect(&e, id, BR_OK, "");
    eg_stop(&e, 0);
    start(&e, &(struct eg_options){.env = "ALL_PROXY=http://127.0.0.1:1",
                                   .base_url = "https://127.0.0.1:1/v1"});
    id = eg_ask_path(&e, "/ok");
    eg_until_ended(&e, 5000);
    expect(&e, id, BR_E_PROVIDER_UNREACHABLE, "cannot be reached (");
    eg_stop(&e, 0);
}

/* ---- the one that is opened ahead ---- */

/* Who is told nothing has nothing to say: such a connection is not used. */
static void talker(struct eg_shared *sh, int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char in[4096];
    bool first = atomic_fetch_add(&sh->connections, 1) % 2 == 0;
    if (!first)
        (void)send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
    if (read(fd, in, sizeof(in)) > 0) {
        atomic_fetch_add(&sh->requests, 1);
        (void)send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
    } else {
        atomic_fetch_add(&sh->empty, 1);
    }
}

static void closer(struct eg_shared *sh, int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char in[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    atomic_fetch_add(&sh->connections, 1);
    if (poll(&p, 1, 100) <= 0 || read(fd, in, sizeof(in)) <= 0)
        return; /* it does not wait for long */
    atomic_fetch_add(&sh->requests, 1);
    (void)send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
}

/* ---- the one that stays ---- */

/* Says that it keeps the connection, and does; the path says what it does otherwise. */
static void keeper(struct eg_shared *sh, int fd)
{
    char in[4096];
    ssize_t n;
    atomic_fetch_add(&sh->connections, 1);
    while ((n = read(fd, in, sizeof(in) - 1)) > 0) {
        char text[256];
        in[n] = '\0';
        atomic_fetch_add(&sh->requests, 1);
        if (strstr(in, "/lies"))
            return; /* it had said that it would stay */
        snprintf(text, sizeof(text),
                 "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok%s",
                 strstr(in, "/more") ? "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno" : "");
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
    }
    atomic_fetch_add(&sh->empty, 1); /* here: those that the other end closed */
}

static void ask_keeper(struct eg *e, const char *path, enum br_code code, unsigned requests,
                       unsigned connections)
{
    uint64_t id = eg_ask_path(e, path);
    eg_until_ended(e, 5000);
    expect(e, id, code, code ? "before it answered" : "");
    if (!code)
        assert_string_equal(eg_body(eg_of(e, id)), "ok");
    assert_int_equal(atomic_load(&e->server->shared->requests), requests);
    assert_int_equal(atomic_load(&e->server->shared->connections), connections);
}

/* It is used again for a moment; and a request that it loses is lost, and not sent again. */
static void test_kept_connection(void **state)
{
    struct eg_server s;
    struct eg e = {.server = &s};
    (void)state;
    eg_server_start_with(&s, keeper);
    assert_int_equal(eg_start(&e, &(struct eg_options){.key = NULL}), 0);
    ask_keeper(&e, "/ok", BR_OK, 1, 1);
    ask_keeper(&e, "/ok", BR_OK, 2, 1);
    ask_keeper(&e, "/ok", BR_OK, 3, 1);
    eg_serve(&e, 1300); /* then it is closed */
    assert_int_equal(atomic_load(&s.shared->empty), 1);
    ask_keeper(&e, "/ok", BR_OK, 4, 2);
    ask_keeper(&e, "/lies", BR_E_PROVIDER_TRUNCATED, 5, 2);
    eg_serve(&e, 200);
    assert_int_equal(atomic_load(&s.shared->requests), 5); /* once */
    ask_keeper(&e, "/ok", BR_OK, 6, 3);
    eg_stop(&e, 0);
    eg_server_stop(&s);
}

/* Who says more than was asked is not asked again on that connection. */
static void test_kept_connection_that_talks(void **state)
{
    struct eg_server s;
    struct eg e = {.server = &s};
    (void)state;
    eg_server_start_with(&s, keeper);
    assert_int_equal(eg_start(&e, &(struct eg_options){.key = NULL}), 0);
    uint64_t id = eg_ask_path(&e, "/more");
    eg_until_ended(&e, 5000);
    assert_string_equal(eg_body(eg_of(&e, id)), "ok");
    eg_serve(&e, 100);
    id = eg_ask_path(&e, "/ok");
    eg_until_ended(&e, 5000);
    assert_string_equal(eg_body(eg_of(&e, id)), "ok");
    assert_int_equal(atomic_load(&s.shared->requests), 2);
    assert_int_equal(atomic_load(&s.shared->connections), 2);
    eg_stop(&e, 0);
    eg_server_stop(&s);
}

static void spare_is_not_used(void (*each)(struct eg_shared *, int))
{
    struct eg_server s;
    struct eg e = {.server = &s};
    eg_server_start_with(&s, each);
    assert_int_equal(eg_start(&e, &(struct eg_options){.key = NULL}), 0);
    for (unsigned i = 1; i <= 3; i++) {
        uint64_t id = eg_ask_path(&e, "/ok");
        eg_until_ended(&e, 5000);
        expect(&e, id, BR_OK, "");
        assert_string_equal(eg_body(eg_of(&e, id)), "ok");
        eg_serve(&e, 200);
        assert_int_equal(atomic_load(&s.shared->requests), i);
        assert_int_equal(atomic_load(&s.shared->connections), 2 * i);
    }
    eg_stop(&e, 0);
    eg_server_stop(&s);
}

static void test_spare_that_talks(void **state)
{
    (void)state;
    spare_is_not_used(talker);
}

static void test_spare_that_closes(void **state)
{
    (void)state;
    spare_is_not_used(closer);
}

/* ---- the key ---- */

static void expect_key(uint8_t from, const char *bytes, size_t n, const char *refused)
{
    struct eg e = {.server = &server};
    int fd = eg_file(bytes, n);
    eg_server_reset(&server);
    int r = eg_start(&e, &(struct eg_options){
                             .key = "", .key_from = from, .key_fd = fd, .expect_refused = true});
    if (refused) {
        assert_int_equal(r, -1);
        assert_string_equal(e.ready_code, "INVALID_CONFIG");
        assert_non_null(strstr(e.ready_text, refused));
        assert_int_equal(e.secrets, 0);
        eg_stop(&e, 1);
    } else {
        assert_int_equal(r, 0);
        assert_int_equal(e.secrets, 1);
        assert_true(e.secret_right);
        assert_string_equal(e.secret_name, "work");
        (void)eg_ask_path(&e, "/ok");
        eg_until_ended(&e, 5000);
        assert_non_null(strstr(server.shared->last, "Authorization: Bearer " EG_KEY "\r\n"));
        eg_stop(&e, 0);
    }
    (void)close(fd);
}

static void test_key_from_descriptor(void **state)
{
    static char big[BR_EGRESS_KEY_MAX + 8];
    (void)state;
    expect_key(BR_KEY_FILE, EG_KEY, strlen(EG_KEY), NULL);
    expect_key(BR_KEY_FILE, EG_KEY "\n", strlen(EG_KEY) + 1, NULL);
    expect_key(BR_KEY_COMMAND, EG_KEY "\r\n", strlen(EG_KEY) + 2, NULL);
    static const char *const bad[] = {"",
                                      "\n",
                                      "short\n",
                                      "two words here\n",
                                      EG_KEY "\n\n",
                                      EG_KEY "\nmore\n",
                                      "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        expect_key(BR_KEY_FILE, bad[i], strlen(bad[i]), "what was read as the key 'work' is none");
    memset(big, 'k', sizeof(big));
    expect_key(BR_KEY_FILE, big, BR_EGRESS_KEY_MAX + 1, "is none");
}

/* A key that comes slowly, as a command says it, and one that never comes. */
static void test_key_from_pipe(void **state)
{
    struct eg e = {.server = &server};
    int p[2];
    (void)state;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (const char *k = EG_KEY "\n"; *k; k++) {
            (void)poll(NULL, 0, 5);
            if (write(p[1], k, 1) != 1)
                _exit(1);
        }
        _exit(0);
    }
    (void)close(p[1]);
    assert_int_equal(
        eg_start(&e, &(struct eg_options){.key = "", .key_from = BR_KEY_COMMAND, .key_fd = p[0]}),
        0);
    assert_true(e.secret_right);
    eg_stop(&e, 0);
    (void)close(p[0]);
}

/* /proc/PID of a running egress has the variable's name, and nothing of its value. */
static void test_key_is_hidden(void **state)
{
    struct eg e;
    (void)state;
    start(&e, &(struct eg_options){.key = NULL});
    (void)eg_ask_path(&e, "/stall/half");
    eg_serve(&e, 100);
    assert_non_null(strstr(server.shared->last, EG_KEY));
    static const char *const files[] = {"environ", "cmdline"};
    for (unsigned i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)e.pid, files[i]);
        BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue; /* not dumpable: an ordinary user may not even look */
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1u << 20);
        assert_int_equal(br_read_all(fd, &b, path, NULL), 0);
        assert_null(memmem(b.data ? b.data : (void *)"", b.len, EG_KEY, strlen(EG_KEY)));
        if (i == 0)
            assert_non_null(memmem(b.data, b.len, EG_KEY_ENV, strlen(EG_KEY_ENV)));
    }
    char path[64], limits[4096];
    snprintf(path, sizeof(path), "/proc/%d/limits", (int)e.pid);
    assert_true(br_read_text(AT_FDCWD, path, limits, sizeof(limits)) > 0);
    const char *core = strstr(limits, "Max core file size");
    assert_non_null(core);
    assert_true(strncmp(core + 18 + strspn(core + 18, " "), "0 ", 2) == 0);
    eg_stop(&e, 0);
}

/* After it was read, told to audit, and sent with a request, it stands where no dump has it. */
static void test_key_is_in_no_dump(void **state)
{
    static const char *const ways[] = {"environment", "file"};
    unsigned hidden, elsewhere;
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(ways); i++) {
        struct eg e;
        int fd = eg_file(EG_KEY "\n", strlen(EG_KEY) + 1);
        const struct eg_options file = {.key = "", .key_from = BR_KEY_FILE, .key_fd = fd};
        const struct eg_options env = {.key = NULL};
        start(&e, i ? &file : &env);
        (void)eg_ask_path(&e, "/ok");
        (void)eg_ask_path(&e, "/stall/half");
        eg_serve(&e, 100);
        assert_non_null(strstr(server.shared->last, EG_KEY));
        if (eg_count(e.pid, EG_KEY, &hidden, &elsewhere)) { /* root may look */
            assert_true(hidden >= 1);
            assert_int_equal(elsewhere, 0);
            /* the control: what is no secret is found there */
            assert_true(eg_count(e.pid, EG_KEY_ENV, &hidden, &elsewhere));
            if (i == 0)
                assert_true(elsewhere > 0);
        }
        eg_stop(&e, 0);
        (void)close(fd);
    }
}

static void test_refused_starts(void **state)
{
    static const struct {
        struct eg_options o;
        const char *text;
    } rows[] = {
        {{.base_url = "https://u:" EG_KEY "@h/v1"}, "holds credentials"},
        {{.base_url = "https://h/v1", .proxy = "http://u:" EG_KEY "@p:1"}, "holds credentials"},
        {{.base_url = "https://h/v1", .proxy = "socks5://p:1"}, "the proxy's address"},
        {{.base_url = "https://h/v1", .proxy = "http://p:1/x"}, "the proxy's address"},
        {{.proxy = "http://127.0.0.1:1"}, "has no proxy"},
        {{.base_url = "http://192.0.2.1/v1"}, "plaintext"},
        {{.timeouts = {1, 1, 86401, 1}}, "timeout"},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct eg e = {.server = &server};
        struct eg_options o = rows[i].o;
        o.expect_refused = true;
        eg_server_reset(&server);
        assert_int_equal(eg_start(&e, &o), -1);
        assert_string_equal(e.ready_code, "INVALID_CONFIG");
        if (!strstr(e.ready_text, rows[i].text))
            fail_msg("refused with: %s", e.ready_text);
        assert_int_equal(atomic_load(&server.shared->connections), 0);
        eg_stop(&e, 1);
    }
}

static int setup(void **state)
{
    (void)state;
    eg_server_start(&server);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    eg_server_stop(&server);
    return 0;
}

/* The parts in which root and ordinary users differ: identities, limits, filters. */
static int run_as_user(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_key_from_descriptor),
        cmocka_unit_test(test_refused_starts),
    };
    eg_open_program();
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(1000, 1000, 1000) < 0 ||
                           setresuid(1000, 1000, 1000) < 0))
        return 1;
    return cmocka_run_group_tests(tests, setup, teardown);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request_one_connection),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_deaf_broker),
        cmocka_unit_test(test_stall_before_connection),
        cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_total_time),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_odd_answers),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_environment_is_ignored),
        cmocka_unit_test(test_spare_that_talks),
        cmocka_unit_test(test_spare_that_closes),
        cmocka_unit_test(test_kept_connection),
        cmocka_unit_test(test_kept_connection_that_talks),
        cmocka_unit_test(test_key_from_descriptor),
        cmocka_unit_test(test_key_from_pipe),
        cmocka_unit_test(test_key_is_hidden),
        cmocka_unit_test(test_key_is_in_no_dump),
        cmocka_unit_test(test_refused_starts),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "user") == 0)
        return run_as_user();
    return cmocka_run_group_tests(tests, setup, teardown);
}
