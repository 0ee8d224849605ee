/*
 * Who may use a provider lease: the process that connected, in its sandbox, with the run's token,
 * as long as the lease lasts. Each attack has a positive control: the same bytes from the right
 * process are served.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/test_client.h"

#define OTHER_UID 61234

static struct eg_server provider;
static struct rig rig;

static int setup(void **state)
{
    static const struct br_lease lease = {.max_requests = 20,
                                          .max_request_bytes = 100000,
                                          .max_response_bytes = 1u << 20,
                                          .max_tokens = 100000,
                                          .seconds = 60,
                                          .max_answer_tokens = 1000,
                                          .max_in_flight = 8,
                                          .routes = BR_ROUTES_ALL,
                                          .answers = BR_ANSWERS_STRICT,
                                          .token = CLIENT_TOKEN};
    char url[64];
    (void)state;
    eg_server_start_with(&provider, client_provider);
    rig = (struct rig){.server = NULL};
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", provider.port);
    assert_int_equal(rig_start(&rig, &(struct rig_options){.lease = lease, .base_url = url}), 0);
    rig_listen(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_stop(&rig, 0, 0);
    eg_server_stop(&provider);
    return 0;
}

/* ---- what another process does, and how it went: its exit status ---- */

enum { SERVED = 10, FORBIDDEN, CLOSED, UNREACHABLE, BROKEN };

/* Send this and see what comes. Runs in another process: no assertions. */
static int try_bytes(int fd, const void *p, size_t n)
{
    char text[256] = "";
    size_t got = 0;
    if (n && send(fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
        return CLOSED;
    while (got < 12) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        ssize_t r = poll(&pf, 1, 10000) == 1 ? recv(fd, text + got, sizeof(text) - got, 0) : -1;
        if (r <= 0)
            return r < 0 && errno == EAGAIN ? BROKEN : CLOSED;
        got += (size_t)r;
    }
    return strncmp(text, "HTTP/1.1 200", 12) == 0   ? SERVED
           : strncmp(text, "HTTP/1.1 403", 12) == 0 ? FORBIDDEN
                                                    : BROKEN;
}

static void good_request(struct br_buf *q)
{
    client_post(q, "whole", false, NULL, "Connection: close\r\n");
}

static int try_request(int fd)
{
    BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(8192);
    good_request(&q);
    return fd < 0 ? UNREACHABLE : try_bytes(fd, q.data, q.len);
}

/* How the child ended, while the rig is served. */
static int outcome(pid_t pid)
{
    int status;
    for (int i = 0; i < 3000; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        (void)rig_until(&rig, NULL, 5);
    }
    fail_msg("the other process hangs");
    return -1;
}

static unsigned upstream(void)
{
    return atomic_load(&provider.shared->requests);
}

/* The outcome, and whether anything went upstream. */
static void expect(pid_t pid, int want, unsigned before)
{
    int got = outcome(pid);
    if (got != want)
        fail_msg("it went %d, not %d", got, want);
    assert_int_equal(upstream(), before + (want == SERVED));
}

/* ---- the attacks ---- */

static void test_copied_token(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        unsigned before = upstream(), refused = rig.nrefused;
        pid_t pid = fork();
        if (pid == 0) {
            /* it knows path and token, and is another user, as every other sandbox is */
            if (other && (setresgid(OTHER_UID, OTHER_UID, OTHER_UID) < 0 ||
                          setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0))
                _exit(BROKEN);
            _exit(try_request(client_connect(&rig)));
        }
        if (other && geteuid() != 0) { /* an ordinary user cannot become another one */
            assert_int_equal(outcome(pid), BROKEN);
            continue;
        }
        expect(pid, other ? CLOSED : SERVED, before);
        if (other)
            rig_until_refused(&rig, refused + 1);
        assert_int_equal(rig.nrefused, refused + (unsigned)other);
    }
}

static void test_wrong_token(void **state)
{
    struct client_answer a;
    BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(8192);
    char token[65] = CLIENT_TOKEN;
    unsigned before = upstream();
    (void)state;
    token[63] ^= 1;
    client_post(&q, "whole", false, token, NULL);
    int fd = client_connect(&rig);
    client_send(fd, (const char *)q.data, q.len);
    assert_true(client_read(&rig, fd, &a));
    assert_int_equal(a.status, 401);
    assert_false(client_has(&a, CLIENT_TOKEN)); /* nor says it what would be right */
    client_answer_free(&a);
    (void)close(fd);
    assert_int_equal(upstream(), before);
}

/* A descriptor that a child inherited. */
static void test_inherited(void **state)
{
    (void)state;
    for (int child = 0; child < 2; child++) {
        unsigned before = upstream();
        pid_t pid = fork();
        if (pid == 0) {
            int fd = client_connect(&rig);
            pid_t heir = child ? fork() : 0;
            if (heir == 0)
                _exit(try_request(fd));
            int status;
            _exit(waitpid(heir, &status, 0) == heir ? WEXITSTATUS(status) : BROKEN);
        }
        expect(pid, child ? FORBIDDEN : SERVED, before);
    }
}

/* The head comes from the right process, the body from another one; and the reverse. */
static void test_half_inherited(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        unsigned before = upstream();
        pid_t pid = fork();
        if (pid == 0) {
            BR_CLEANUP_BUF struct br_buf q = BR_BUF_INIT(8192);
            good_request(&q);
            int fd = client_connect(&rig), status;
            size_t half = q.len - 20;
            if (first && send(fd, q.data, half, MSG_NOSIGNAL) != (ssize_t)half)
                _exit(BROKEN);
            pid_t heir = fork();
            if (heir == 0)
                _exit(first ? try_bytes(fd, q.data + half, q.len - half)
                            : send(fd, q.data, half, MSG_NOSIGNAL) != (ssize_t)half);
            if (waitpid(heir, &status, 0) != heir)
                _exit(BROKEN);
            _exit(first ? WEXITSTATUS(status) : try_bytes(fd, q.data + half, q.len - half));
        }
        int got = outcome(pid);
        assert_true(got == FORBIDDEN || got == CLOSED);
        assert_int_equal(upstream(), before);
    }
}

static int receive_fd(int from)
{
    char c, space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = &c, .iov_len = 1};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    int fd = -1;
    if (recvmsg(from, &mh, 0) == 1 && CMSG_FIRSTHDR(&mh))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof(fd));
    return fd;
}

static bool pass_fd(int to, int fd)
{
    char c = 'x', space[CMSG_SPACE(sizeof(int))] = "";
    struct iovec iov = {.iov_base = &c, .iov_len = 1};
    struct msghdr mh = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(h), &fd, sizeof(fd));
    return sendmsg(to, &mh, MSG_NOSIGNAL) == 1;
}

/* A descriptor that was passed on to a process that is no child, or taken by it. */
static void test_passed(void **state)
{
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        unsigned before = upstream();
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        int fd = client_connect(&rig);
        pid_t pid = fork();
        if (pid == 0) {
            (void)close(fd);
            int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);
            int got = taken ? (int)syscall(SYS_pidfd_getfd, parent, fd, 0) : receive_fd(ends[1]);
            _exit(got < 0 ? UNREACHABLE : try_request(got));
        }
        if (!taken)
            assert_true(pass_fd(ends[0], fd));
        int how = outcome(pid);
        /* where a process may not take another's descriptors, there is nothing to refuse */
        assert_true(how == FORBIDDEN || (taken && how == UNREACHABLE));
        assert_int_equal(upstream(), before);
        (void)close(fd);
        (void)close(ends[0]);
        (void)close(ends[1]);
        pid = fork(); /* positive control */
        if (pid == 0)
            _exit(try_request(client_connect(&rig)));
        expect(pid, SERVED, before);
    }
}

/* A socket is not opened again through /proc. */
static void test_proc_fd(void **state)
{
    char path[64];
    (void)state;
    int fd = client_connect(&rig), ends[2];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    assert_true(open(path, O_RDWR | O_CLOEXEC) < 0 && errno == ENXIO);
    (void)close(fd);
    assert_int_equal(pipe(ends), 0); /* positive control: what is no socket is */
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), ends[0]);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Descriptors that a guest sends are not taken, and end it. */
static void test_sends_descriptors(void **state)
{
    struct client_answer a;
    unsigned before = upstream();
    (void)state;
    int fd = client_connect(&rig);
    assert_true(pass_fd(fd, 0));
    assert_true(client_read(&rig, fd, &a));
    assert_int_equal(a.status, 403);
    client_answer_free(&a);
    (void)close(fd);
    assert_int_equal(upstream(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copied_token),
        cmocka_unit_test(test_wrong_token),
        cmocka_unit_test(test_inherited),
        cmocka_unit_test(test_half_inherited),
        cmocka_unit_test(test_passed),
        cmocka_unit_test(test_proc_fd),
        cmocka_unit_test(test_sends_descriptors),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
