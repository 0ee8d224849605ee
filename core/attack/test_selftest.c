/*
 * The suite itself: it runs green as root and as an ordinary user, and leaves nothing behind; it
 * tells a weak sandbox from a strong one; the launcher of its controls serves nobody else, and the
 * real one and bridled have nothing of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/test_tools.h"

#define USER (63000u + (unsigned)getpid() % 900u)

static char dir[] = "/tmp/bridle-test-selftest-XXXXXX";
static const char *const programs[] = {"bridle-selftest",    "bridle-attack", "bridle-launch",
                                       "bridle-launch-weak", "bridle-init",   "bridle-init-weak",
                                       "bridle-image"};
static const char *const v1[] = {"memory", "pids", "cpu"};

static void read_file(const char *path, struct br_buf *b)
{
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    br_buf_init(b, 512u << 20);
    assert_true(fd >= 0);
    assert_int_equal(br_read_all(fd, b, path, NULL), 0);
}

/* Where an ordinary user can start them. */
static int copy_programs(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
        return -1;
    /* on a file system that is not the root's, as /home and /opt may be, and gone with this test */
    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
         mount("tmpfs", dir, "tmpfs", MS_NODEV, "mode=755") < 0))
        return -1;
    for (unsigned i = 0; i < BR_ARRAY_LEN(programs); i++) {
        char from[512], to[512];
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
        snprintf(from, sizeof(from), "%s/%s", getenv("BRIDLE_BIN"), programs[i]);
        snprintf(to, sizeof(to), "%s/%s", dir, programs[i]);
        read_file(from, &b);
        BR_CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        if (out < 0 || br_write_all(out, b.data, b.len) < 0 || fchmod(out, 0755) < 0)
            return -1;
    }
    return 0;
}

static int remove_programs(void **state)
{
    (void)state;
    if (geteuid() == 0 && umount2(dir, MNT_DETACH) < 0)
        return -1;
    return test_remove_tree(dir);
}

/* Run the suite as `uid`; its output. */
static int run(uid_t uid, const char *const *args, struct br_buf *out)
{
    char path[256];
    const char *argv[16] = {path, "--attack"};
    char *env[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL};
    int ends[2], status = -1;
    snprintf(path, sizeof(path), "%s/bridle-selftest", dir);
    for (unsigned i = 0; args[i]; i++)
        argv[2 + i] = args[i];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], 1) < 0 || dup2(ends[1], 2) < 0 ||
            (uid && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
                     setresuid(uid, uid, uid) < 0)))
            _exit(70);
        execve(path, (char *const *)(uintptr_t)argv, env);
        _exit(70);
    }
    close(ends[1]);
    br_buf_init(out, 16u << 20);
    assert_int_equal(br_read_all(ends[0], out, "the suite", NULL), 0);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- what is left ---- */

static unsigned ours(const char *where, const char *prefix, uid_t uid)
{
    unsigned n = 0;
    DIR *d = opendir(where);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0 &&
             fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == uid;
    }
    if (d)
        closedir(d);
    return n;
}

static unsigned processes(uid_t uid)
{
    unsigned n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        n += e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
             fstatat(dirfd(d), e->d_name, &st, 0) == 0 && st.st_uid == uid;
    }
    if (d)
        closedir(d);
    return n;
}

static void check_green(int exit, struct br_buf *out)
{
    json_t *o = json_loads(br_buf_cstr(out), JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        fail_msg("exit %d, and no JSON: %.500s", exit, br_buf_cstr(out));
    const json_t *rows = json_object_get(o, "attacks");
    unsigned bad = 0;
    assert_true(json_array_size(rows) > 150);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *result = json_string_value(json_object_get(row, "result"));
        const char *control = json_string_value(json_object_get(row, "controlResult"));
        bool boundary = json_is_true(json_object_get(row, "boundary"));
        if (strcmp(result, boundary ? "blocked" : "expected") == 0 &&
            strcmp(control, boundary ? "through" : "") == 0)
            continue;
        BR_CLEANUP_FREE char *text = json_dumps(row, JSON_INDENT(2));
        print_error("%s\n", text);
        bad++;
    }
    json_decref(o);
    assert_int_equal(bad, 0);
    assert_int_equal(exit, 0);
}

static void test_as_root(void **state)
{
    static const char *const args[] = {"--json", NULL};
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(0);
    (void)state;
    check_green(run(0, args, &out), &out);
    assert_int_equal(processes(59797), 0);
}

static void delegate(uid_t uid)
{
    char path[512], arg[16];
    int status = -1;
    snprintf(path, sizeof(path), "%s/bridle-launch", dir);
    snprintf(arg, sizeof(arg), "%u", (unsigned)uid);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, 1);
        execl(path, path, "--delegate", arg, (char *)NULL);
        _exit(70);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* What --delegate made, where the hierarchies are version 1. */
static void undelegate(uid_t uid)
{
    char path[512];
    for (unsigned i = 0; i < BR_ARRAY_LEN(v1); i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/bridle-%u", v1[i], (unsigned)uid);
        for (int tries = 0; rmdir(path) < 0 && errno == EBUSY && tries < 2000; tries++)
            usleep(1000);
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void test_as_user(void **state)
{
    static const char *const args[] = {"--json", NULL};
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(0);
    uid_t uid = USER;
    (void)state;
    delegate(uid);
    int exit = run(uid, args, &out);
    undelegate(uid); /* also shows that no cgroup of a sandbox is left in it */
    check_green(exit, &out);
    assert_int_equal(processes(uid), 0);
    assert_int_equal(ours("/tmp", "bridle-selftest-", uid), 0);
}

static void test_list_and_class(void **state)
{
    static const char *const list[] = {"--list", "--json", NULL};
    static const char *const class[] = {"--class", "broker,terminal", NULL};
    static const char *const none[] = {"--class", "nothing", NULL};
    static const char *const twice[] = {"--frobnicate", NULL};
    BR_CLEANUP_BUF struct br_buf a = BR_BUF_INIT(0), b = BR_BUF_INIT(0), c = BR_BUF_INIT(0),
                                 d = BR_BUF_INIT(0);
    (void)state;
    assert_int_equal(run(0, list, &a), 0);
    json_t *o = json_loads(br_buf_cstr(&a), JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_array_size(o) > 150);
    for (size_t i = 0; i < json_array_size(o); i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(json_string_value(json_object_get(json_array_get(o, i), "id")),
                                    json_string_value(json_object_get(json_array_get(o, k), "id")));
    json_decref(o);
    assert_int_equal(run(0, class, &b), 0);
    assert_non_null(strstr(br_buf_cstr(&b), "broker.path"));
    assert_non_null(strstr(br_buf_cstr(&b), "tty.open"));
    assert_null(strstr(br_buf_cstr(&b), "fs.write-workspace"));
    assert_int_equal(run(0, none, &c), 2);
    assert_int_equal(run(0, twice, &d), 2);
}

/* A suite that could not fail would say nothing: with a weak launcher in its place it fails. */
static void test_finds_breakouts(void **state)
{
    static const char *const args[] = {"--only", "arg.plan", NULL};
    char launch[256], saved[256];
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(0);
    (void)state;
    snprintf(launch, sizeof(launch), "%s/bridle-init", dir);
    snprintf(saved, sizeof(saved), "%s/saved", dir);
    assert_int_equal(rename(launch, saved), 0);
    assert_int_equal(run(0, args, &out), 6); /* no sandbox, so nothing was attacked */
    assert_int_equal(rename(saved, launch), 0);
    /* the init of the controls in the place of the real one: commands can look into it */
    static const char *const look[] = {"--only", "proc.init-memory", NULL};
    char weak[256];
    BR_CLEANUP_BUF struct br_buf second = BR_BUF_INIT(0);
    snprintf(weak, sizeof(weak), "%s/bridle-init-weak", dir);
    assert_int_equal(rename(launch, saved), 0);
    assert_int_equal(link(weak, launch), 0);
    assert_int_equal(run(0, look, &second), 1);
    assert_non_null(strstr(br_buf_cstr(&second), "breakout"));
    assert_int_equal(unlink(launch), 0);
    assert_int_equal(rename(saved, launch), 0);
}

/* ---- who has what ---- */

static bool contains(const char *program, const char *text)
{
    char path[512];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(0);
    snprintf(path, sizeof(path), "%s/%s", getenv("BRIDLE_BIN"), program);
    read_file(path, &b);
    return memmem(b.data, b.len, text, strlen(text)) != NULL;
}

static void test_no_switches(void **state)
{
    static const char *const switches[] = {"br_weak_left_out", "br_weak_parse", "hostroot,",
                                           "--weakened", "bridle-init-weak"};
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(switches); i++) {
        if (contains("bridle-launch", switches[i]))
            fail_msg("bridle-launch has '%s'", switches[i]);
        if (contains("bridled", switches[i]))
            fail_msg("bridled has '%s'", switches[i]);
    }
    assert_false(contains("bridled", "bridle-launch-weak"));
    assert_false(contains("bridle-init", "bridle-init-weak"));
    /* they would be found */
    assert_true(contains("bridle-launch-weak", "br_weak_left_out"));
    assert_true(contains("bridle-launch-weak", "--weakened"));
    assert_true(contains("bridle-launch-weak", "bridle-init-weak"));
    assert_true(contains("bridled", "bridle-launch"));
}

/* The threat model names attacks that exist, and every class of them. */
static void test_threat_model(void **state)
{
    static const char *const list[] = {"--list", "--json", NULL};
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0), out = BR_BUF_INIT(0);
    char path[512], name[64], want[80];
    unsigned named = 0;
    (void)state;
    snprintf(path, sizeof(path), "%s/docs/threat-model.md", getenv("BRIDLE_SOURCE"));
    read_file(path, &text);
    assert_int_equal(run(0, list, &out), 0);
    const char *ids = br_buf_cstr(&out);
    for (const char *p = br_buf_cstr(&text); (p = strchr(p, '`'));) {
        const char *end = strchr(p + 1, '`');
        assert_non_null(end);
        int n = (int)(end - p - 1);
        const char *dot = memchr(p + 1, '.', (size_t)n);
        static const char *const prefix[] = {"fs",   "proc",   "ns",     "tty",  "signal",
                                             "net",  "socket", "broker", "res",  "arg",
                                             "hand", "image",  "lease",  "mount"};
        for (unsigned i = 0; dot && dot < end - 1 && i < BR_ARRAY_LEN(prefix); i++) {
            if (strlen(prefix[i]) != (size_t)(dot - p - 1) ||
                memcmp(prefix[i], p + 1, (size_t)(dot - p - 1)) != 0)
                continue;
            snprintf(name, sizeof(name), "%.*s", n, p + 1);
            snprintf(want, sizeof(want), "\"id\":\"%s\"", name);
            if (!strstr(ids, want))
                fail_msg("the threat model names '%s', which is no attack", name);
            named++;
        }
        p = end + 1;
    }
    assert_true(named > 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),        cmocka_unit_test(test_as_user),
        cmocka_unit_test(test_list_and_class), cmocka_unit_test(test_finds_breakouts),
        cmocka_unit_test(test_no_switches),    cmocka_unit_test(test_threat_model),
    };
    return cmocka_run_group_tests(tests, copy_programs, remove_programs);
}
