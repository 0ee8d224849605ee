/*
 * Ten thousand idle connections to the real program: all are served, and cost little. It prints
 * what one costs. Without the privilege to open so many descriptors, as many as there can be.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/test_rig.h"

#define MANY 10000u
/* Of one idle connection in the program: its struct, its timer, its part of the allocator's. */
#ifdef BR_SANITIZED
#define EACH_MAX 8192u
#else
#define EACH_MAX 1536u
#endif

static const char head[] = "GET /acp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                           "Sec-WebSocket-Protocol: harness.acp.1\r\n\r\n";

/* Its own memory, without what its file and its libraries have in common with others. */
static size_t own_memory(const struct gate_rig *r)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)r->pid);
    assert_true(br_read_text(-1, path, text, sizeof(text)) > 0);
    char *at = strstr(text, "RssAnon:");
    assert_non_null(at);
    return strtoul(at + 8, NULL, 10) * 1024;
}

static void no_rate(struct br_service *s)
{
    s->requests_per_second = 0;
}

static int connect_one(const struct gate_rig *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char answer[512];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", r->socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(write(fd, head, sizeof(head) - 1), sizeof(head) - 1);
    ssize_t n = read(fd, answer, sizeof(answer));
    assert_true(n > 12);
    assert_memory_equal(answer, "HTTP/1.1 101", 12);
    return fd;
}

static void many(void **state)
{
    static const char ping[] = "\x89\x80\0\0\0\0";
    const struct gate_options o = {.settings = no_rate};
    struct gate_rig r;
    struct rlimit files;
    char pong[8];
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 20000 ? files.rlim_max : 20000;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    unsigned n = files.rlim_cur < MANY + 200 ? (unsigned)files.rlim_cur - 200 : MANY;
    int *fds = calloc(n, sizeof(int));
    assert_non_null(fds);
    gate_start(&r, &o);
    size_t before = own_memory(&r);
    for (unsigned i = 0; i < n; i++)
        fds[i] = connect_one(&r);
    size_t after = own_memory(&r);
    printf("%u connections: %zu bytes each, %.1f MB of the program's own\n", n,
           (after - before) / n, (double)after / 1e6);
    assert_true((after - before) / n <= EACH_MAX);
    for (unsigned i = 0; i < n; i += 37) { /* each of them lives */
        assert_int_equal(write(fds[i], ping, sizeof(ping) - 1), sizeof(ping) - 1);
        assert_int_equal(read(fds[i], pong, sizeof(pong)), 2);
        assert_memory_equal(pong, "\x8a\0", 2);
    }
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
    /* and nothing of them stays */
    struct gate_client *c = NULL;
    for (unsigned i = 0; i < 100 && !(c && strstr(c->body, "\nbridle_connections_open 1\n")); i++) {
        if (c)
            gate_close(c);
        c = gate_http(&r, GATE_UNIX, "GET", "/metrics", "");
    }
    assert_non_null(strstr(c->body, "\nbridle_connections_open 1\n"));
    gate_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
