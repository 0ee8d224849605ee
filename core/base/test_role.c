/*
 * br_role_enter() in a child that then looks at itself: identity, capabilities, no_new_privs,
 * limits, and the system call filter (which a build with sanitizers does not have). What is
 * expected as root and as an ordinary user is tested as both, when started by root.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

#define ROLE_UID 59799u

/* Run `body` in a child after it entered the role; its wait status. */
static int in_role(const struct br_role *role, int (*body)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct br_err err = {.code = BR_OK};
        if (br_role_enter(role, &err) < 0)
            _exit(100);
        int r = body();
        (void)syscall(SYS_exit_group, r); /* no handlers of the runtime behind the filter */
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int exit_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The value of a member of /proc/self/status, as hexadecimal. */
static unsigned long long status_member(const char *name)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n < 0)
        return ~0ull;
    close(fd);
    text[n] = 0;
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 16) : ~0ull;
}

static int look_around(void)
{
    if (status_member("\nNoNewPrivs:") != 1)
        return 1;
    if (status_member("\nCapEff:") || status_member("\nCapPrm:") || status_member("\nCapInh:") ||
        status_member("\nCapAmb:"))
        return 2;
    struct rlimit lim;
    if (getrlimit(RLIMIT_CORE, &lim) < 0 || lim.rlim_max != 0)
        return 3;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_max != 64)
        return 4;
    if (getrlimit(RLIMIT_CPU, &lim) < 0 || lim.rlim_max != 600)
        return 5;
    return 0;
}

static int look_around_as_role(void)
{
    uid_t r, e, s;
    gid_t rg, eg, sg;
    if (getresuid(&r, &e, &s) < 0 || r != ROLE_UID || e != ROLE_UID || s != ROLE_UID)
        return 20;
    if (getresgid(&rg, &eg, &sg) < 0 || rg != ROLE_UID || eg != ROLE_UID || sg != ROLE_UID)
        return 21;
    if (getgroups(0, NULL) != 0)
        return 22;
    if (setuid(0) == 0 || setgid(0) == 0 || geteuid() == 0)
        return 23;
    if (status_member("\nCapBnd:"))
        return 24;
    if (open("/etc/shadow", O_RDONLY) >= 0)
        return 25;
    return look_around();
}

static void root_becomes_the_role(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can change its uid\n");
        skip();
    }
    static const gid_t groups[] = {4, 20};
    assert_int_equal(setgroups(2, groups), 0);
    int shadow = open("/etc/shadow", O_RDONLY); /* the control: before, it can */
    assert_true(shadow >= 0);
    close(shadow);
    struct br_role role = {.name = "test", .uid = ROLE_UID, .max_nofile = 64, .max_cpu_s = 600};
    assert_int_equal(exit_of(in_role(&role, look_around_as_role)), 0);
    assert_int_equal(geteuid(), 0); /* this process was not touched */
}

static int same_uid(void)
{
    return geteuid() == 1000 && getuid() == 1000 ? look_around() : 30;
}

/* An ordinary user keeps the uid: the role's belongs to somebody else. */
static void an_ordinary_user_stays_one(void **state)
{
    (void)state;
    struct br_role role = {.name = "test", .uid = ROLE_UID, .max_nofile = 64, .max_cpu_s = 600};
    if (geteuid() != 0) {
        assert_int_equal(exit_of(in_role(&role, look_around)), 0);
        return;
    }
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setgid(1000) < 0 || setuid(1000) < 0)
            _exit(90);
        _exit(exit_of(in_role(&role, same_uid)) & 0xff);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(exit_of(status), 0);
}

static int nofile_now(void)
{
    struct rlimit lim;
    return getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_max == 32 ? 0 : 1;
}

static void a_limit_is_never_raised(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit lim = {.rlim_cur = 32, .rlim_max = 32};
        setrlimit(RLIMIT_NOFILE, &lim);
        struct br_role role = {.name = "test", .max_nofile = 64};
        _exit(exit_of(in_role(&role, nofile_now)) & 0xff);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(exit_of(status), 0);
}

static int try_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid < 0 && errno == EAGAIN ? 0 : 1;
}

static void no_fork_means_no_fork(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: the limit belongs to a uid of the role's own\n");
        skip();
    }
    struct br_role role = {.name = "test", .uid = ROLE_UID, .no_fork = true};
    assert_int_equal(exit_of(in_role(&role, try_fork)), 0);
    role.no_fork = false; /* the control */
    assert_int_equal(exit_of(in_role(&role, try_fork)), 1);
}

/* ---- the filter, and the limit of memory: builds with sanitizers have neither ---- */

#ifndef BR_SANITIZED

static int use_listed(void)
{
    char buf[64];
    if (syscall(SYS_getcwd, buf, sizeof(buf)) <= 0)
        return 1;
    void *p = malloc(1 << 20); /* allocate, look at the clock, log: what every role needs */
    if (!p || br_now_us() == 0)
        return 2;
    free(p);
    char id[BR_ID_MAX];
    br_id_make(id, "t");
    int fd = br_memfd_sealed("t", "x", 1);
    return fd >= 0 && close(fd) == 0 ? 0 : 3;
}

static int use_unlisted(void)
{
    (void)syscall(SYS_uname, NULL);
    return 0;
}

static int open_a_file(void)
{
    return open("/dev/null", O_RDONLY) >= 0 ? 0 : 1;
}

/* A thread that was there before, and does what it is told: the filter is its own as well. */
static int tell_it[2], hear_it[2];

static void *other_thread(void *ctx)
{
    char c = 0;
    (void)ctx;
    (void)!write(hear_it[1], &c, 1);
    if (read(tell_it[0], &c, 1) == 1 && c == 'u')
        (void)syscall(SYS_uname, NULL);
    (void)!write(hear_it[1], &c, 1);
    return NULL;
}

static void start_other(void *ctx)
{
    pthread_t t;
    char c;
    bool *started = ctx;
    *started = pthread_create(&t, NULL, other_thread, NULL) == 0 && read(hear_it[0], &c, 1) == 1;
}

static int tell_other(char what)
{
    char c = 0;
    (void)!write(tell_it[1], &what, 1);
    return read(hear_it[0], &c, 1) == 1 && c == what ? 0 : 1;
}

static int other_uses_listed(void)
{
    return tell_other('l');
}

static int other_uses_unlisted(void)
{
    return tell_other('u');
}

static void threads_are_filtered_as_well(void **state)
{
    static const int none[] = {SYS_getcwd};
    static bool started;
    (void)state;
    struct br_role role = {.name = "test",
                           .uid = ROLE_UID,
                           .no_fork = true,
                           .syscalls = none,
                           .nsyscalls = 1,
                           .threads = start_other,
                           .ctx = &started};
    assert_int_equal(pipe2(tell_it, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hear_it, O_CLOEXEC), 0);
    assert_int_equal(exit_of(in_role(&role, other_uses_listed)), 0);
    assert_int_equal(exit_of(in_role(&role, other_uses_unlisted)), -SIGSYS);
    for (int i = 0; i < 2; i++) {
        close(tell_it[i]);
        close(hear_it[i]);
    }
}

static int make_a_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 1;
}

static int run_a_program(void)
{
    char *const argv[] = {(char[]){"/bin/true"}, NULL};
    execv("/bin/true", argv);
    return 1;
}

static int signal_itself(void)
{
    return (int)syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0) == 0 ? 0 : 1;
}

/* Somebody else of the same uid: as an ordinary user runs everything, that is his own shell. */
static pid_t another;
static int signal_another(void)
{
    return (int)syscall(SYS_tgkill, another, another, 0) == 0 ? 0 : 1;
}

/* The kernel's signal about a descriptor, as any signal to anybody. */
static int signal_by_descriptor(void)
{
    return fcntl(0, F_SETOWN, another) == 0 ? 0 : 1;
}

#if defined(__x86_64__)
static int other_abi(void)
{
    return (int)syscall(0x40000000 | SYS_getpid) > 0; /* x32 */
}
#endif

static int is_dumpable(void)
{
    return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
}

static void the_filter_kills(void **state)
{
    (void)state;
    static const int extra[] = {SYS_getcwd};
    struct br_role with = {.name = "test", .syscalls = extra, .nsyscalls = 1};
    struct br_role without = {.name = "test"};
    assert_int_equal(exit_of(in_role(&with, use_listed)), 0);
    another = getpid();
    assert_int_equal(exit_of(in_role(&with, signal_itself)), 0);
    static int (*const attacks[])(void) = {
        use_unlisted,
        open_a_file,
        make_a_socket,
        run_a_program,
        signal_another,
        signal_by_descriptor,
#if defined(__x86_64__)
        other_abi,
#endif
    };
    for (unsigned i = 0; i < BR_ARRAY_LEN(attacks); i++)
        assert_int_equal(exit_of(in_role(&with, attacks[i])), -SIGSYS);
    for (unsigned i = 0; i < 6; i++) /* the control: without the filter they work */
        assert_int_equal(exit_of(in_role(&without, attacks[i])), 0);
    assert_int_equal(exit_of(in_role(&without, is_dumpable)), 0);
}

static int allocate(void)
{
    void *p = malloc(512u << 20);
    int r = p ? 1 : 0;
    free(p);
    return r;
}

static void memory_is_limited(void **state)
{
    (void)state;
    struct br_role role = {.name = "test", .max_as = 256u << 20};
    assert_int_equal(exit_of(in_role(&role, allocate)), 0);
    role.max_as = 0; /* the control */
    assert_int_equal(exit_of(in_role(&role, allocate)), 1);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_becomes_the_role),
        cmocka_unit_test(an_ordinary_user_stays_one),
        cmocka_unit_test(a_limit_is_never_raised),
        cmocka_unit_test(no_fork_means_no_fork),
#ifndef BR_SANITIZED
        cmocka_unit_test(the_filter_kills),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(threads_are_filtered_as_well),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
