/*
 * Network namespaces of boxes that have ended: kept, given up together, and seen to be gone; or
 * not, where somebody else holds one. In a user namespace of a child's own, so that it is the same
 * for everybody.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "sandbox/box_priv.h"

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 200 + 1);                                                             \
    } while (0)

/* As many, each held by *all, and this process in another one. */
static void make(struct br_nets *all, unsigned count)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    MUST(home >= 0);
    for (unsigned i = 0; i < count; i++) {
        struct br_net n;
        MUST(unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0);
        br_net_hold(&n);
        MUST(n.ns >= 0 && n.ipc >= 0 && n.file >= 0);
        br_nets_end(all, &n);
        MUST(n.ns == -1 && n.ipc == -1 && n.file == -1);
    }
    MUST(setns(home, CLONE_NEWNET) == 0);
    close(home);
}

static bool reads(int fd)
{
    char text[32];
    return pread(fd, text, sizeof(text), 0) > 0;
}

static void in_child(void (*check)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        MUST(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
        check();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Each is there while it is kept; afterwards all are gone, and no descriptor is left. */
static void all_gone(void)
{
    static struct br_nets all;
    br_nets_init(&all);
    int before = (int)test_open_fds(), last;
    make(&all, 8);
    MUST(all.n == 8);
    for (unsigned i = 0; i < all.n; i++)
        MUST(reads(all.ended[i].file));
    MUST((last = dup(all.ended[7].file)) >= 0);
    MUST(br_nets_remove(&all, true) == 0);
    MUST(all.n == 0 && !reads(last));
    close(last);
    MUST((int)test_open_fds() == before);
    MUST(br_nets_remove(&all, true) == 0); /* none */
}

/* The third of five is held. */
static void one_held(void)
{
    static struct br_nets all;
    br_nets_init(&all);
    make(&all, 5);
    int held = dup(all.ended[2].ns), file = dup(all.ended[2].file), gone = dup(all.ended[4].file);
    MUST(held >= 0 && file >= 0 && gone >= 0);
    MUST(br_nets_remove(&all, true) == 1);
    MUST(reads(file) && !reads(gone));
    MUST(all.n == 0);
}

/* Nobody waits, and the kernel removes them all the same. */
static void without_waiting(void)
{
    static struct br_nets all;
    br_nets_init(&all);
    make(&all, 3);
    int last = dup(all.ended[2].file);
    MUST(br_nets_remove(&all, false) == 0);
    for (unsigned ms = 0; reads(last); ms++) {
        MUST(ms < 10000);
        usleep(1000);
    }
}

/* There is no room for one more: it is given up at once. One that was never held is no matter. */
static void no_room(void)
{
    static struct br_nets all;
    br_nets_init(&all);
    struct br_net n = BR_NET_NONE;
    MUST(all.max == BR_NETS_MAX);
    br_nets_end(&all, &n);
    MUST(all.n == 0);
    int before = (int)test_open_fds();
    make(&all, BR_NETS_MAX + 2);
    MUST(all.n == BR_NETS_MAX);
    MUST((int)test_open_fds() == before + 3 * (int)BR_NETS_MAX);
    MUST(br_nets_remove(&all, true) == 0);
}

/* As many as there are descriptors for: two, and none. */
static void few_descriptors(void)
{
    static struct br_nets all;
    struct rlimit l;
    MUST(getrlimit(RLIMIT_NOFILE, &l) == 0);
    l.rlim_cur = 192 + 2 * 3 + 2;
    MUST(setrlimit(RLIMIT_NOFILE, &l) == 0);
    br_nets_init(&all);
    make(&all, 3);
    MUST(all.n == 2);
    MUST(br_nets_remove(&all, true) == 0);
    l.rlim_cur = 192 + 2;
    MUST(setrlimit(RLIMIT_NOFILE, &l) == 0);
    br_nets_init(&all);
    make(&all, 1);
    MUST(all.n == 0);
}

static void test_all_gone(void **state)
{
    (void)state;
    in_child(all_gone);
}

static void test_one_held(void **state)
{
    (void)state;
    in_child(one_held);
}

static void test_without_waiting(void **state)
{
    (void)state;
    in_child(without_waiting);
}

static void test_no_room(void **state)
{
    (void)state;
    in_child(no_room);
}

static void test_few_descriptors(void **state)
{
    (void)state;
    in_child(few_descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_gone),        cmocka_unit_test(test_one_held),
        cmocka_unit_test(test_without_waiting), cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
