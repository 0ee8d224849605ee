/*
 * Somebody swaps what an allowed path names, as fast as the machine can, while plans are resolved
 * and started. Each launch must end in a sandbox that writes the planned object and nothing else,
 * or in a refusal INVALID_ALLOWED_PATH; a canary outside never changes. The control does by path
 * strings what the launcher does by descriptors, and is fooled.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

#define LAUNCHES 120u
#define CONTROL_TRIES 200000u

struct race {
    struct rig rig;
    char outside[128], canary[160]; /* a directory beside the workspace that anybody may write */
    char target[160], spare[160];   /* ws/granted, and a second name */
    int planned, inner;             /* the directory that was made first, and one in it */
    pid_t swapper;
    unsigned started, refused;
};

/* ---- the swappers: each turns the place over and back again ---- */

static void swap_symlink(const struct race *c)
{
    (void)rename(c->target, c->spare);
    (void)symlink(c->outside, c->target);
    (void)unlink(c->target);
    (void)rename(c->spare, c->target);
    usleep(500); /* or no launch would ever find it in place */
}

static void swap_symlink_atomic(const struct race *c) /* the spare is a link */
{
    (void)renameat2(AT_FDCWD, c->target, AT_FDCWD, c->spare, RENAME_EXCHANGE);
    (void)renameat2(AT_FDCWD, c->target, AT_FDCWD, c->spare, RENAME_EXCHANGE);
}

static void swap_hard_link(const struct race *c)
{
    char from[256], to[256];
    snprintf(from, sizeof(from), "%s/file", c->outside);
    snprintf(to, sizeof(to), "%s/file", c->target);
    (void)link(from, to);
    (void)unlink(to);
}

static void swap_mount(const struct race *c)
{
    char inner[256];
    snprintf(inner, sizeof(inner), "%s/inner", c->target);
    (void)mount(c->outside, inner, NULL, MS_BIND, NULL);
    usleep(1500); /* a mount table that always changes keeps everybody else here waiting */
    (void)umount2(inner, MNT_DETACH);
    usleep(1500);
}

/* ---- before ---- */

static void make_link(const struct race *c)
{
    assert_int_equal(symlink(c->outside, c->spare), 0);
}

static void make_dir(const struct race *c)
{
    assert_int_equal(mkdir(c->spare, 0777), 0);
    assert_int_equal(chown(c->spare, RIG_OWNER, RIG_OWNER), 0);
}

static void make_file(const struct race *c)
{
    BR_CLEANUP_FD int fd = open(c->spare, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0 && fchown(fd, RIG_OWNER, RIG_OWNER) == 0);
}

static void make_nothing(const struct race *c)
{
    (void)c;
}

static void put(const char *path)
{
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0 && fchmod(fd, 0666) == 0 && br_write_all(fd, "canary", 6) == 0);
}

static void open_race(struct race *c)
{
    char path[256];
    *c = (struct race){.swapper = -1};
    rig_open(&c->rig, 0);
    snprintf(c->outside, sizeof(c->outside), "%s/outside", c->rig.dir);
    assert_int_equal(mkdir(c->outside, 0777), 0);
    assert_int_equal(chmod(c->outside, 0777), 0);
    snprintf(c->canary, sizeof(c->canary), "%s/out", c->outside);
    put(c->canary);
    snprintf(path, sizeof(path), "%s/file", c->outside);
    put(path);
    rig_put(&c->rig, "granted/", NULL);
    rig_put(&c->rig, "granted/inner/", NULL);
    snprintf(c->target, sizeof(c->target), "%s/granted", c->rig.ws);
    snprintf(c->spare, sizeof(c->spare), "%s/spare", c->rig.ws);
    c->planned = open(c->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c->inner = openat(c->planned, "inner", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(c->planned >= 0 && c->inner >= 0);
    rig_allow(&c->rig, "granted/**");
}

static void start_swapper(struct race *c, void (*swap)(const struct race *))
{
    c->swapper = fork();
    assert_true(c->swapper >= 0);
    if (c->swapper == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            swap(c);
    }
}

static void stop_swapper(struct race *c)
{
    assert_int_equal(kill(c->swapper, SIGKILL), 0);
    assert_int_equal(waitpid(c->swapper, NULL, 0), c->swapper);
    c->swapper = -1;
}

static void check_canary(const struct race *c)
{
    char text[16] = "", path[256];
    const char *const names[] = {"out", "file"};
    struct stat st;
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", c->outside, names[i]);
        BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && read(fd, text, sizeof(text)) == 6);
        assert_memory_equal(text, "canary", 6);
    }
    snprintf(path, sizeof(path), "%s/new", c->outside);
    assert_int_equal(lstat(path, &st), -1);
}

/* What is written inside is written in the directory that the plan names. */
static void check_writes(struct race *c)
{
    struct stat st;
    (void)rig_sh(&c->rig,
                 "echo pwned > granted/out; echo pwned > granted/file; echo pwned > granted/new; "
                 "echo pwned > granted/inner/out; echo pwned > granted/inner/file; "
                 "echo pwned > spare; echo pwned > spare/out",
                 NULL);
    rig_exit(&c->rig, 0);
    assert_int_equal(fstat(c->planned, &st), 0);
    bool first = st.st_ino == c->rig.plan.sources[0].ino;
    bool there = fstatat(c->planned, "new", &st, AT_SYMLINK_NOFOLLOW) == 0;
    assert_true(first || !there);
    (void)unlinkat(c->planned, "new", 0);
    (void)unlinkat(c->planned, "out", 0);
    (void)unlinkat(c->planned, "file", 0);
    (void)unlinkat(c->inner, "out", 0);
    (void)unlinkat(c->inner, "file", 0);
}

static void one_launch(struct race *c, unsigned i)
{
    struct rig *r = &c->rig;
    bool ok = rig_resolve(r, -1);
    struct br_fingerprint planned = r->plan.sources[0];
    if (ok && i % 4 == 0)
        usleep(i * 5); /* so that the start falls on another moment each time */
    ok = ok && rig_launch_resolved(r, -1);
    if (!ok && r->code != BR_E_INVALID_ALLOWED_PATH)
        fail_msg("launch %u: %s '%s'", i, br_code_name((int)r->code), r->text);
    r->plan.sources[0] = planned;
    if (ok)
        check_writes(c);
    c->started += ok;
    c->refused += !ok;
    check_canary(c);
}

static void race(void (*make)(const struct race *), void (*swap)(const struct race *))
{
    struct race c;
    open_race(&c);
    make(&c);
    start_swapper(&c, swap);
    for (unsigned i = 0; i < LAUNCHES; i++)
        one_launch(&c, i);
    stop_swapper(&c);
    print_message("%u started, %u refused\n", c.started, c.refused);
    assert_true(c.refused > 0); /* or nobody raced */
    char inner[256];
    snprintf(inner, sizeof(inner), "%s/inner", c.target);
    (void)umount2(inner, MNT_DETACH);
    close(c.planned);
    close(c.inner);
    rig_close(&c.rig);
}

static void test_symlink(void **state)
{
    (void)state;
    rig_need_root();
    race(make_nothing, swap_symlink);
}

static void test_symlink_exchange(void **state)
{
    (void)state;
    rig_need_root();
    race(make_link, swap_symlink_atomic);
}

static void test_directory_exchange(void **state)
{
    (void)state;
    rig_need_root();
    race(make_dir, swap_symlink_atomic);
}

static void test_type_change(void **state)
{
    (void)state;
    rig_need_root();
    race(make_file, swap_symlink_atomic);
}

static void test_hard_link(void **state)
{
    (void)state;
    rig_need_root();
    race(make_nothing, swap_hard_link);
}

static void test_nested_mount(void **state)
{
    (void)state;
    rig_need_root();
    race(make_nothing, swap_mount);
}

/* Looks, and then opens what it looked at by its name. */
static bool by_name(const struct race *c)
{
    char path[256], text[8] = "";
    struct stat st;
    if (lstat(c->target, &st) < 0 || !S_ISDIR(st.st_mode))
        return false;
    snprintf(path, sizeof(path), "%s/out", c->target);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && read(fd, text, 6) == 6 && memcmp(text, "canary", 6) == 0;
}

static void test_control(void **state)
{
    struct race c;
    bool fooled = false;
    (void)state;
    rig_need_root();
    open_race(&c);
    make_link(&c);
    start_swapper(&c, swap_symlink_atomic);
    for (unsigned i = 0; i < CONTROL_TRIES && !fooled; i++)
        fooled = by_name(&c);
    stop_swapper(&c);
    close(c.planned);
    close(c.inner);
    assert_true(fooled);
    rig_close(&c.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control),          cmocka_unit_test(test_symlink),
        cmocka_unit_test(test_symlink_exchange), cmocka_unit_test(test_directory_exchange),
        cmocka_unit_test(test_type_change),      cmocka_unit_test(test_hard_link),
        cmocka_unit_test(test_nested_mount),
    };
    /* mounts of these tests reach the launcher, and nobody else */
    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
         mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
