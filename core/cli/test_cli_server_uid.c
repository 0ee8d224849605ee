/*
 * Who listens? What a client of a service says to nobody but you, root, and a service that root
 * runs: the server is a child of another uid (where the test is root's), and tells what it heard.
 */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/remote.h"
#include "wire/types.h"

#define STRANGER 54321u

static char dir[64], url[128];
static const char *as; /* --server-uid */

enum { HEARD_NOTHING = 10, HEARD_TOKEN = 11 };

static int listen_at(bool local)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(in);
    int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    snprintf(un.sun_path, sizeof(un.sun_path), "%s/s", dir);
    (void)unlink(un.sun_path);
    assert_int_equal(local ? bind(fd, (struct sockaddr *)&un, sizeof(un))
                           : bind(fd, (struct sockaddr *)&in, n),
                     0);
    if (!local)
        assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    if (local)
        snprintf(url, sizeof(url), "unix:%s", un.sun_path);
    else
        snprintf(url, sizeof(url), "ws://127.0.0.1:%u", (unsigned)ntohs(in.sin_port));
    return fd;
}

/* Of one connection, all that comes before it ends or is quiet. */
static _Noreturn void play(int fd, uid_t uid, int ready)
{
    char text[4096];
    size_t n = 0;
    if (setresuid(uid, uid, uid) < 0 || listen(fd, 8) < 0 || write(ready, "x", 1) != 1)
        _exit(1);
    int c = accept(fd, NULL, NULL);
    for (ssize_t k = 1; c >= 0 && k > 0 && n<sizeof(text) - 1; n += k> 0 ? (size_t)k : 0) {
        k = read(c, text + n, sizeof(text) - 1 - n);
        if (k > 0 && memmem(text, n + (size_t)k, "Bearer secret", 13))
            _exit(HEARD_TOKEN);
    }
    _exit(c < 0 || n ? 2 : HEARD_NOTHING);
}

static char *env(const char *name)
{
    return strcmp(name, "BRIDLE_TOKEN") == 0 ? (char *)"secret" : NULL;
}

static int no_message(void *ctx, const char *text, size_t n, struct br_err *err)
{
    (void)ctx, (void)text, (void)n, (void)err;
    return 0;
}

static int dial(unsigned seconds, struct br_err *err)
{
    static const struct br_cli_remote_hooks hooks = {.message = no_message};
    const struct br_cli_remote_options o = {
        .protocol = "p", .env = env, .seconds = seconds, .server_uid = as};
    struct br_cli_url u;
    struct br_cli_remote *r = NULL;
    struct br_loop *loop = br_loop_new();
    *err = (struct br_err){.code = BR_OK};
    assert_int_equal(br_cli_url_parse(url, &u, err), 0);
    int code = br_cli_remote_open(&r, loop, &u, &o, &hooks, NULL, err);
    assert_null(r);
    br_loop_free(&loop);
    return code;
}

/* The client's code, and what a server of this uid heard. */
static int meet(bool local, uid_t uid, int *heard, struct br_err *err)
{
    int ready[2], status;
    char byte;
    int fd = listen_at(local);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        play(fd, uid, ready[1]);
    close(fd);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    int code = dial(20, err);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    *heard = WEXITSTATUS(status);
    return code;
}

static void assert_heard(bool local, uid_t uid)
{
    struct br_err err;
    int heard;
    assert_int_equal(meet(local, uid, &heard, &err), -BR_E_PEER_GONE); /* it answers nothing */
    assert_int_equal(heard, HEARD_TOKEN);
}

static void assert_refused(bool local, uid_t uid)
{
    struct br_err err;
    char want[64];
    int heard;
    assert_int_equal(meet(local, uid, &heard, &err), -BR_E_DENIED);
    assert_int_equal(heard, HEARD_NOTHING);
    snprintf(want, sizeof(want), "is uid %u:", (unsigned)uid);
    assert_non_null(strstr(err.text, want));
    snprintf(want, sizeof(want), "--server-uid %u", (unsigned)uid);
    assert_non_null(strstr(err.text, want));
}

static void test_who_listens(void **state)
{
    (void)state;
    for (unsigned local = 0; local < 2; local++) {
        char other[16];
        as = NULL;
        assert_heard(local, getuid());
        for (uid_t uid = STRANGER; getuid() == 0 && uid <= STRANGER + 1; uid++)
            assert_refused(local, uid);
        if (getuid() != 0)
            continue;
        assert_heard(local, BR_UID_GATEWAY);
        assert_heard(local, BR_UID_TLS);
        assert_refused(local, BR_UID_AUDIT); /* no other role listens */
        snprintf(other, sizeof(other), "%u", STRANGER);
        as = other;
        assert_heard(local, STRANGER);
        assert_refused(local, STRANGER + 1);
        assert_heard(local, 0); /* and those that could be before */
        as = "any";
        assert_heard(local, STRANGER + 1);
    }
    as = NULL;
}

/* Who is not root takes its own server for its own, and root's. */
static void test_as_a_user(void **state)
{
    (void)state;
    for (unsigned roots = 0; getuid() == 0 && roots < 2; roots++) {
        struct br_err err;
        int heard = 0, status, ready[2];
        char byte;
        if (roots) {
            int fd = listen_at(false);
            assert_int_equal(pipe(ready), 0);
            if (fork() == 0)
                play(fd, 0, ready[1]);
            assert_int_equal(read(ready[0], &byte, 1), 1);
            close(fd);
            close(ready[0]);
            close(ready[1]);
        }
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            if (setresuid(STRANGER, STRANGER, STRANGER) < 0)
                _exit(1);
            if (roots)
                _exit(dial(20, &err) != -BR_E_PEER_GONE);
            _exit(meet(false, STRANGER, &heard, &err) != -BR_E_PEER_GONE || heard != HEARD_TOKEN);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        if (!roots)
            continue;
        assert_true(wait(&status) > 0);
        assert_int_equal(WEXITSTATUS(status), HEARD_TOKEN);
    }
}

/* Who listens and does not accept could be anybody later: nothing is there for it to read. */
static void test_not_accepted(void **state)
{
    struct br_err err;
    char text[16];
    (void)state;
    int fd = listen_at(false);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(dial(1, &err), -BR_E_TIMEOUT);
    assert_non_null(strstr(err.text, "nothing was sent"));
    int c = accept(fd, NULL, NULL);
    assert_true(c >= 0);
    assert_int_equal(read(c, text, sizeof(text)), 0);
    close(c);
    close(fd);
}

static void test_options(void **state)
{
    static const char *const bad[] = {
        "", "x", "-1", " 1", "1 ", "1x", "Any", "4294967295", "99999999999999999999"};
    struct br_err err;
    (void)state;
    int fd = listen_at(false);
    assert_int_equal(listen(fd, 8), 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        as = bad[i];
        assert_int_equal(dial(5, &err), -BR_E_USAGE);
        assert_int_equal(poll(&p, 1, 0), 0); /* nobody came */
    }
    as = NULL;
    close(fd);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-test-uid.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char path[80];
    snprintf(path, sizeof(path), "%s/s", dir);
    (void)unlink(path);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_listens),
        cmocka_unit_test(test_as_a_user),
        cmocka_unit_test(test_not_accepted),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
