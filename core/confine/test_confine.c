/*
 * The confinement by itself, as root and as an ordinary user: what a taken-over program (evil)
 * gets, and what it gets without confinement; that nothing of it is left once it has been waited
 * for; its exit status; and what happens if it cannot be confined or started.
 */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "confine/confine.h"
#include "confine/test_evil.h"

#define USER (62000u + (unsigned)getpid() % 900u)
#define TOOL_UID 60717u

static void become(uid_t uid)
{
    if (uid && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
                setresuid(uid, uid, uid) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0))
        _exit(70);
}

static struct {
    char said[1024];
    int status, result;
    struct br_err err;
} was;

struct variant {
    bool plain; /* no confinement at all */
    bool may_fork, no_users;
    const char *path;
    const char *const *argv;
};

/* In a process that is the caller: start, wait, and say how it went. */
static void caller(const struct evil_rig *r, const struct variant *v, int said, int answer)
{
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    const char *const evil_argv[] = {"evil", NULL};
    const char *path = v->path ? v->path : r->evil, *const *argv = v->argv ? v->argv : evil_argv;
    struct br_err err = {.code = BR_OK};
    struct br_confined p;
    int status = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char work[96];
    become(r->uid);
    snprintf(work, sizeof(work), "%s/work", r->dir);
    if (v->no_users) {
        struct rlimit none = {0, 0};
        if (setrlimit(RLIMIT_NPROC, &none) < 0)
            _exit(71);
    }
    if (v->plain) {
        (void)dup2(said, 2);
        (void)chdir(work);
        execve(path, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
        _exit(72);
    }
    struct br_confine c = {.path = path,
                           .argv = argv,
                           .env = env,
                           .fds = {null, null, said, -1},
                           .work = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                           .read_dir = -1,
                           .file = -1,
                           .uid = TOOL_UID,
                           .may_fork = v->may_fork,
                           .max_memory = 1ull << 30};
    int result = br_confine_start(&c, &p, &err);
    if (result == 0)
        result = br_confine_wait(&p, &status, &err);
    (void)!write(answer, &result, sizeof(result));
    (void)!write(answer, &status, sizeof(status));
    (void)!write(answer, &err, sizeof(err));
    _exit(0);
}

static void run(struct evil_rig *r, const struct variant *v)
{
    int said[2], answer[2];
    assert_int_equal(pipe2(said, O_CLOEXEC) | pipe2(answer, O_CLOEXEC), 0);
    char work[96];
    snprintf(work, sizeof(work), "%s/work", r->dir);
    assert_int_equal(chown(work, r->uid ? r->uid : TOOL_UID, r->uid ? r->uid : TOOL_UID), 0);
    pid_t pid = fork();
    if (pid == 0)
        caller(r, v, said[1], answer[1]);
    close(said[1]);
    close(answer[1]);
    assert_int_equal(waitpid(pid, &was.status, 0), pid);
    if (!v->plain) {
        assert_int_equal(read(answer[0], &was.result, sizeof(was.result)), sizeof(was.result));
        assert_int_equal(read(answer[0], &was.status, sizeof(was.status)), sizeof(was.status));
        assert_int_equal(read(answer[0], &was.err, sizeof(was.err)), sizeof(was.err));
    }
    struct pollfd p = {.fd = said[0], .events = POLLIN};
    ssize_t n = poll(&p, 1, 0) > 0 ? read(said[0], was.said, sizeof(was.said) - 1) : 0;
    was.said[n < 0 ? 0 : n] = 0;
    close(said[0]);
    close(answer[0]);
}

static void check_evil(uid_t uid)
{
    struct evil_rig r;
    char want[256];
    evil_rig_make(&r, uid);
    run(&r, &(struct variant){.may_fork = false});
    snprintf(want, sizeof(want), "evil uid=%u got:.\n", uid ? uid : TOOL_UID);
    assert_string_equal(was.said, want);
    assert_int_equal(was.result, 0);
    assert_true(WIFEXITED(was.status) && WEXITSTATUS(was.status) == 3);
    assert_true(evil_victim_lives(&r));
    assert_int_equal(evil_left_over(&r), 0);
    /* one that may have processes: they end with it */
    run(&r, &(struct variant){.may_fork = true});
    snprintf(want, sizeof(want), "evil uid=%u got: stay.\n", uid ? uid : TOOL_UID);
    assert_string_equal(was.said, want);
    assert_true(evil_victim_lives(&r));
    assert_int_equal(evil_left_over(&r), 0);
    /* the control: the same program without confinement gets all of it, and stays */
    run(&r, &(struct variant){.plain = true});
    snprintf(want, sizeof(want), "evil uid=%u got:" EVIL_ALL "%s" EVIL_MORE "\n", uid,
             uid ? "" : " shadow");
    assert_string_equal(was.said, want);
    assert_int_equal(evil_left_over(&r), 1);
    evil_rig_end(&r);
}

static void test_evil(void **state)
{
    (void)state;
    test_need_root();
    check_evil(0);
    check_evil(USER);
}

static void check_status(uid_t uid)
{
    const char *const dies[] = {"sh", "-c", "kill -9 $$", NULL};
    const char *const well[] = {"sh", "-c", "test \"$PWD$(id -u)\" = /tmp$(stat -c %u .)", NULL};
    struct evil_rig r;
    evil_rig_make(&r, uid);
    run(&r, &(struct variant){.path = "/bin/sh", .argv = dies});
    assert_int_equal(was.result, 0);
    assert_true(WIFSIGNALED(was.status) && WTERMSIG(was.status) == SIGKILL);
    run(&r, &(struct variant){.path = "/bin/sh", .argv = well, .may_fork = true});
    assert_int_equal(was.result, 0);
    assert_int_equal(was.status, 0);
    run(&r, &(struct variant){.path = "/nowhere/at/all"});
    assert_int_equal(was.result, -BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(was.err.text, "it cannot be executed"));
    evil_rig_end(&r);
}

static void test_status(void **state)
{
    (void)state;
    test_need_root();
    check_status(0);
    check_status(USER);
}

/* Without namespaces it does not run at all. */
static void test_refused(void **state)
{
    struct evil_rig r;
    (void)state;
    test_need_root();
    evil_rig_make(&r, USER);
    run(&r, &(struct variant){.no_users = true});
    assert_int_equal(was.result, -BR_E_REQUIREMENT_MISSING);
    assert_string_equal(was.said, "");
    assert_true(evil_victim_lives(&r));
    evil_rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evil),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
