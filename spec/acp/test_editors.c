/*
 * Editors, from end to end: the clients of packages.txt (an SDK and acpx, in node), 'bridle acp',
 * 'bridle serve', the real sandbox, the scripted provider. What is asserted of a client is in the
 * .mjs files; here is what they run in, and that nothing is left behind. ACP_CLIENTS is where
 * prepare.sh has put them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/e2e.h"

static struct e2e world;
static pid_t service;
static char socket_path[128];

/* ---- the world ---- */

static void copy(const char *name)
{
    char path[BR_PATH_MAX];
    struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    snprintf(path, sizeof(path), "%s/spec/acp/%s", getenv("BRIDLE_SOURCE"), name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(br_read_all(fd, &b, path, NULL), 0);
    close(fd);
    e2e_write(&world, name, br_buf_cstr(&b));
    br_buf_free(&b);
}

static void set(const char *name, const char *file)
{
    char path[BR_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", world.dir, file);
    assert_int_equal(setenv(name, path, 1), 0);
}

/* A port that is free now. */
static unsigned free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static bool listens(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", socket_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    close(fd);
    return is;
}

static void start_service(void)
{
    char port[32], address[48];
    snprintf(port, sizeof(port), "%u", free_port());
    snprintf(address, sizeof(address), "127.0.0.1:%s", port);
    setenv("PORT", port, 1);
    const char *argv[] = {"bridle",     "serve",         "--listen",  socket_path, "--listen",
                          address,      "--root",        "workspace", "--policy",  "policy.lua",
                          "--scenario", "scenario.json", NULL};
    service = e2e_spawn(&world, (char *const *)argv, NULL);
    for (unsigned i = 0; !listens(); i++) {
        if (i > 3000 || waitpid(service, NULL, WNOHANG) != 0)
            fail_msg("the service does not listen");
        (void)usleep(10000);
    }
}

static int open_world(void **state)
{
    (void)state;
    struct e2e_result r;
    char bridle[BR_PATH_MAX], page[BR_PATH_MAX], home[BR_PATH_MAX];
    e2e_open(&world, 0);
    copy("policy.lua");
    copy("scenario.json");
    e2e_write(&world, "bridle.lua",
              "return { api = 1, service = { limits = { ask_seconds = 1 } } }\n");
    snprintf(home, sizeof(home), "%s/home", world.dir);
    assert_int_equal(mkdir(home, 0700), 0);
    snprintf(socket_path, sizeof(socket_path), "%s/service", world.dir);
    snprintf(bridle, sizeof(bridle), "%s/bridle", e2e_bin());
    snprintf(page, sizeof(page), "%s/docs/editors.md", getenv("BRIDLE_SOURCE"));
    setenv("BRIDLE", bridle, 1);
    setenv("PAGE", page, 1);
    setenv("SOCKET", socket_path, 1);
    setenv("WORKSPACE", world.workspace, 1);
    setenv("BRIDLE_STATE_DIR", world.state, 1);
    setenv("TMPDIR", world.dir, 1);
    set("HOME", "home");
    set("CONFIG", "bridle.lua");
    set("POLICY", "policy.lua");
    set("SCENARIO", "scenario.json");
    e2e_run(&world, &r, "bridle", "activate", "run-v1", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    world.activated = true;
    start_service();
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    struct e2e_result r;
    assert_int_equal(kill(service, SIGTERM), 0);
    e2e_wait(&world, service, 30, &r);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    e2e_expect_clean(&world);
    e2e_close(&world);
    return 0;
}

/* ---- clients ---- */

/* Run a script of spec/acp to its end, which has to be good. */
static void node(const char *script, const char *const *args)
{
    const char *argv[16] = {"node"};
    char program[BR_PATH_MAX], path[BR_PATH_MAX], out[BR_PATH_MAX];
    int status;
    snprintf(program, sizeof(program), "%s/node/bin/node", getenv("ACP_CLIENTS"));
    snprintf(path, sizeof(path), "%s/spec/acp/%s", getenv("BRIDLE_SOURCE"), script);
    snprintf(out, sizeof(out), "%s/said", world.dir);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        (void)dup2(fd, 1);
        (void)dup2(fd, 2);
        (void)alarm(120);
        argv[1] = path;
        for (unsigned i = 0; args[i]; i++)
            argv[2 + i] = args[i];
        execv(program, (char *const *)argv);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    BR_CLEANUP_FREE char *said = e2e_read(&world, "said");
    if (status != 0)
        fail_msg("%s %s ended with %#x:\n%s", script, args[0], (unsigned)status, said);
    assert_non_null(strstr(said, " passed, 0 failed"));
}

static void test_stdio(void **state)
{
    (void)state;
    node("cases.mjs", (const char *[]){"stdio", NULL});
}

static void test_a_service_of_its_own(void **state)
{
    (void)state;
    node("own.mjs", (const char *[]){"stdio", NULL});
}

#ifndef BR_SANITIZED
static void test_websocket(void **state)
{
    (void)state;
    /* the same gateway: what the way to it could change */
    node("cases.mjs",
         (const char *[]){"ws", "initialize", "text", "allow_once", "reject", "disconnect_denies",
                          "late_answer_is_none", "refusals", "load_and_list", NULL});
}

static void test_acpx(void **state)
{
    (void)state;
    node("acpx.mjs", (const char *[]){"acpx", NULL});
}

static void test_what_the_page_says(void **state)
{
    (void)state;
    node("page.mjs", (const char *[]){"page", NULL});
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stdio),
        cmocka_unit_test(test_a_service_of_its_own),
#ifndef BR_SANITIZED /* those say more about node than about what the sanitizers look at */
        cmocka_unit_test(test_websocket),
        cmocka_unit_test(test_acpx),
        cmocka_unit_test(test_what_the_page_says),
#endif
    };
    e2e_isolate();
    return cmocka_run_group_tests_name("e2e_editors", tests, open_world, close_world);
}
