/*
 * Finding and using cgroups. Version 1 is exercised by the launcher's tests on the hosts that have
 * it; version 2 here: the decisions and files against a tree of plain files, killing and removing
 * against the kernel's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "sandbox/cgroup.h"
#include "sandbox/owner.h"
#include "sandbox/sys.h"

#define SOMEBODY 59997u

static char dir[64];

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, text, strlen(text)), 0);
}

static void make(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/bridle-cgroup-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    br_sys_hook = NULL;
    return test_remove_tree(dir);
}

/* Plain files cannot do what cgroup.subtree_control does. */
static int no_writes(enum br_sys call)
{
    return call == BR_SYS_WRITECGROUP ? EROFS : 0;
}

static void find(struct br_cg_place *p, uid_t uid, const char *self, const char *type)
{
    char a[128], b[128], c[128], line[512];
    put("self", self);
    snprintf(line, sizeof(line),
             "22 27 0:21 / /proc rw - proc proc rw\n"
             "31 23 0:28 / %s/tree rw,nosuid shared:4 - %s rw\n",
             dir, type);
    put("mountinfo", line);
    snprintf(a, sizeof(a), "%s/self", dir);
    snprintf(b, sizeof(b), "%s/mountinfo", dir);
    snprintf(c, sizeof(c), "%s/swaps", dir);
    br_sys_hook = no_writes;
    br_cg_find(p, &(struct br_cg_env){.self_cgroup = a, .mountinfo = b, .swaps = c, .uid = uid});
    br_sys_hook = NULL;
}

static void test_v2_root(void **state)
{
    struct br_cg_place p;
    struct br_cg cg;
    struct br_cg_read got;
    struct br_err err = {.code = BR_OK};
    char name[256];
    static const char *const files[] = {"memory.max", "memory.swap.max", "pids.max", "cpu.max"};
    (void)state;
    make("tree");
    make("tree/bridle");
    put("tree/cgroup.subtree_control", "cpu io memory pids\n");
    put("tree/bridle/cgroup.subtree_control", "cpu memory pids\n");
    find(&p, 0, "0::/init.scope\n", "cgroup2 cgroup2");
    assert_int_equal(br_cg_require(&p, &err), 0);
    assert_int_equal(p.ndirs, 1);
    assert_true(p.dirs[0].v2);
    assert_non_null(strstr(p.dirs[0].path, "/tree/bridle"));
    assert_int_equal(br_cg_make(&p, &cg, 0x1234, &err), 0);
    assert_int_equal(br_cg_v2_fd(&cg), cg.fds[0]);
    for (unsigned i = 0; i < BR_ARRAY_LEN(files); i++) {
        snprintf(name, sizeof(name), "tree/bridle/%s/%s", cg.name, files[i]);
        put(name, "max\n");
    }
    /* unlimited is not what was asked */
    assert_int_equal(br_cg_read(&cg, &got, &err), -BR_E_REQUIREMENT_MISSING); /* no CPU period */
    snprintf(name, sizeof(name), "tree/bridle/%s/cpu.max", cg.name);
    put(name, "max 100000\n");
    assert_int_equal(br_cg_read(&cg, &got, &err), 0);
    assert_int_equal(br_cg_compare(&got, &br_limits_default, &err), -BR_E_REQUIREMENT_MISSING);
    assert_int_equal(br_cg_limit(&cg, &br_limits_default, &err), 0);
    assert_int_equal(br_cg_read(&cg, &got, &err), 0);
    assert_int_equal(br_cg_compare(&got, &br_limits_default, &err), 0);
    assert_true(got.memory_bytes == br_limits_default.memory_bytes);
    assert_true(got.swap_total_bytes == got.memory_bytes); /* no swap */
    assert_int_equal(got.cpu_percent, 200);
    for (unsigned i = 0; i < BR_ARRAY_LEN(files); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/tree/bridle/%s/%s", dir, cg.name, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(br_cg_remove(&cg, &err), 0);
    br_cg_place_close(&p);
}

/* ---- swap that the kernel does not count ---- */

#define SWAPS "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
#define SWAP_AREA "/dev/dm-1                               partition\t999420\t\t0\t\t-2\n"

static int set_read_compare(struct br_cg *cg, struct br_cg_read *got, struct br_err *err)
{
    int r = br_cg_limit_one(cg, BR_CG_MEMORY, &br_limits_default, err);
    if (r == 0)
        r = br_cg_read(cg, got, err);
    got->pids = br_limits_default.pids; /* only memory is here */
    got->cpu_percent = br_limits_default.cpu_percent;
    return r < 0 ? r : br_cg_compare(got, &br_limits_default, err);
}

#define SOCKETS_FILE "memory.kmem.tcp.limit_in_bytes"

/* Buffers of sockets are a memory of their own in version 1 only: limited there, and read back. */
static void check_sockets(struct br_cg *cg, bool apart)
{
    struct br_cg_read got;
    struct br_err err;
    char name[256];
    uint64_t share = br_limits_default.memory_bytes / 8;
    snprintf(name, sizeof(name), "tree/bridle/%s/" SOCKETS_FILE, cg->name);
    put(name, "max\n");
    assert_int_equal(set_read_compare(cg, &got, &err), 0);
    assert_true(got.socket_bytes == (apart ? share : 0));
    put(name, "9223372036854771712\n"); /* not what was written */
    got.socket_bytes = 0;
    assert_int_equal(br_cg_read(cg, &got, &err), 0);
    got.pids = br_limits_default.pids;
    got.cpu_percent = br_limits_default.cpu_percent;
    assert_int_equal(br_cg_compare(&got, &br_limits_default, &err),
                     apart ? -BR_E_REQUIREMENT_MISSING : 0);
    if (apart)
        assert_non_null(strstr(err.text, "for the buffers of sockets"));
}

static void check_swap(const char *type, const char *limit, const char *swap, const char *all)
{
    struct br_cg_place p;
    struct br_cg cg;
    struct br_cg_read got;
    struct br_err err = {.code = BR_OK};
    char name[256];
    bool v2 = type[6] == '2';
    make("tree");
    make("tree/bridle");
    put("tree/cgroup.subtree_control", "cpu memory pids\n");
    put("tree/bridle/cgroup.subtree_control", "cpu memory pids\n");
    put("swaps", SWAPS SWAP_AREA);
    find(&p, 0, v2 ? "0::/\n" : "4:memory:/bridle\n", type);
    assert_int_equal(p.ndirs, 1);
    assert_int_equal(p.dirs[0].v2, v2);
    p.dirs[0].ctls = 1u << BR_CG_MEMORY;
    assert_int_equal(br_cg_make(&p, &cg, 0x1234, &err), 0);
    snprintf(name, sizeof(name), "tree/bridle/%s/%s", cg.name, limit);
    put(name, "max\n");
    /* refused, with the fix, before anything is set */
    assert_int_equal(set_read_compare(&cg, &got, &err), -BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(err.text, "swap cannot be limited"));
    assert_non_null(strstr(err.text, "/dev/dm-1; nothing was started. Boot with swapaccount=1"));
    assert_non_null(strstr(err.text, "swapoff -a"));
    assert_int_equal(br_cg_read(&cg, &got, &err), -BR_E_REQUIREMENT_MISSING);
    /* a list that is none */
    put("swaps", "");
    assert_int_equal(set_read_compare(&cg, &got, &err), -BR_E_REQUIREMENT_MISSING);
    put("swaps", "what is this\n");
    assert_int_equal(set_read_compare(&cg, &got, &err), -BR_E_REQUIREMENT_MISSING);
    /* no swap: said, and not as a number */
    put("swaps", SWAPS);
    assert_int_equal(set_read_compare(&cg, &got, &err), 0);
    assert_true(got.no_swap);
    assert_int_equal(got.swap_total_bytes, 0);
    put("swaps", SWAPS SWAP_AREA); /* switched on meanwhile */
    assert_int_equal(br_cg_read(&cg, &got, &err), -BR_E_REQUIREMENT_MISSING);
    /* the control: with the file it is limited, whatever there is */
    snprintf(name, sizeof(name), "tree/bridle/%s/%s", cg.name, swap);
    put(name, "max\n");
    assert_int_equal(set_read_compare(&cg, &got, &err), 0);
    assert_false(got.no_swap);
    assert_true(got.swap_total_bytes == br_limits_default.memory_bytes);
    put(name, all); /* and what is not the limit is not taken for one */
    assert_int_equal(br_cg_read(&cg, &got, &err), 0);
    assert_int_equal(br_cg_compare(&got, &br_limits_default, &err), -BR_E_REQUIREMENT_MISSING);
    put(name, "max\n");
    check_sockets(&cg, !v2);
    for (int i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/tree/bridle/%s/%s", dir, cg.name,
                 i == 0   ? limit
                 : i == 1 ? swap
                          : SOCKETS_FILE);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(br_cg_remove(&cg, &err), 0);
    br_cg_place_close(&p);
}

static void test_v1_swap(void **state)
{
    (void)state;
    check_swap("cgroup cgroup rw,memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes",
               "9223372036854771712\n");
}

static void test_v2_swap(void **state)
{
    (void)state;
    check_swap("cgroup2 cgroup2", "memory.max", "memory.swap.max", "max\n");
}

/* One controller that the tree does not have: nothing weaker, and the fix. */
static void test_v2_without_cpu(void **state)
{
    struct br_cg_place p;
    struct br_err err = {.code = BR_OK};
    (void)state;
    make("tree");
    make("tree/bridle");
    put("tree/cgroup.subtree_control", "memory pids\n");
    put("tree/bridle/cgroup.subtree_control", "memory pids\n");
    find(&p, 0, "0::/\n", "cgroup2 cgroup2");
    assert_int_equal(p.have, 1u << BR_CG_MEMORY | 1u << BR_CG_PIDS);
    assert_int_equal(br_cg_require(&p, &err), -BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(err.text, "'cpu' cannot be enforced"));
    assert_non_null(strstr(err.text, "nothing was started"));
    br_cg_place_close(&p);
}

static void test_v2_user(void **state)
{
    struct br_cg_place p;
    struct br_err err = {.code = BR_OK};
    char path[128];
    (void)state;
    if (geteuid() != 0) {
        print_message("needs root: it gives a directory to an ordinary user\n");
        skip();
    }
    make("tree");
    make("tree/scope");
    put("tree/scope/cgroup.subtree_control", "cpu memory pids\n");
    put("tree/scope/cgroup.procs", "");
    /* somebody else's scope */
    find(&p, SOMEBODY, "0::/scope\n", "cgroup2 cgroup2");
    assert_int_equal(br_cg_require(&p, &err), -BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(err.text, "systemd-run --user --scope -p Delegate=yes"));
    br_cg_place_close(&p);
    /* delegated to this user */
    snprintf(path, sizeof(path), "%s/tree/scope", dir);
    assert_int_equal(chown(path, SOMEBODY, SOMEBODY), 0);
    find(&p, SOMEBODY, "0::/scope\n", "cgroup2 cgroup2");
    assert_int_equal(br_cg_require(&p, &err), 0);
    snprintf(path, sizeof(path), "%s/tree/scope/bridle-supervisor", dir);
    assert_int_equal(access(path, F_OK), 0);
    br_cg_place_close(&p);
}

static void test_v1_paths(void **state)
{
    struct br_cg_place p;
    char path[128];
    (void)state;
    make("tree");
    make("tree/system");
    /* one hierarchy with all three, seen through a mount of a part of it */
    find(&p, 0, "4:memory,pids,cpu:/system\n0::/\n", "cgroup cgroup rw,memory,pids,cpu");
    snprintf(path, sizeof(path), "%s/tree/system", dir);
    assert_int_equal(p.ndirs, 1);
    assert_string_equal(p.dirs[0].path, path);
    assert_false(p.dirs[0].v2);
    assert_int_equal(p.have, 7);
    br_cg_place_close(&p);
    /* "memory" is not a part of "memoryx" */
    find(&p, 0, "4:memoryx:/system\n", "cgroup cgroup rw,memoryx");
    assert_int_equal(p.have, 0);
    br_cg_place_close(&p);
}

/* ---- the kernel's own tree ---- */

static int open_unified(void)
{
    static const char *const points[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(points); i++) {
        int fd = open(points[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && faccessat(fd, "cgroup.subtree_control", W_OK, AT_EACCESS) == 0)
            return fd;
        br_close(&fd);
    }
    return -1;
}

static pid_t sleeper(int into)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)into};
    pid_t pid = (pid_t)br_sys_clone3(&args, sizeof(args));
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static void test_v2_kill_and_remove(void **state)
{
    struct br_cg_place p = {.ndirs = 1, .have = 7, .stale_seconds = 3600};
    struct br_cg cg;
    struct br_err err = {.code = BR_OK};
    int status = 0;
    (void)state;
    p.dirs[0] = (struct br_cg_dir){.fd = open_unified(), .v2 = true, .path = "unified"};
    if (p.dirs[0].fd < 0) {
        print_message("needs a writable cgroup version 2 tree\n");
        skip();
    }
    assert_int_equal(br_owner_tag(p.tag, sizeof(p.tag), &err), 0);
    assert_int_equal(br_cg_make(&p, &cg, 0x1234, &err), 0);
    pid_t a = sleeper(br_cg_v2_fd(&cg)), b = sleeper(br_cg_v2_fd(&cg));
    assert_true(a > 0 && b > 0);
    /* a sweep leaves it alone: its owner, this process, lives */
    assert_int_equal(br_cg_sweep(&p), 0);
    assert_int_equal(kill(a, 0), 0);
    assert_int_equal(br_cg_remove(&cg, &err), 0);
    assert_int_equal(waitpid(a, &status, 0), a);
    assert_int_equal(status, SIGKILL);
    assert_int_equal(waitpid(b, &status, 0), b);
    assert_int_equal(status, SIGKILL);
    br_cg_place_close(&p);
}

static void test_v2_sweep(void **state)
{
    struct br_cg_place p = {.ndirs = 1, .have = 7, .stale_seconds = 3600};
    struct br_cg cg;
    struct br_err err = {.code = BR_OK};
    int status = 0;
    (void)state;
    p.dirs[0] = (struct br_cg_dir){.fd = open_unified(), .v2 = true, .path = "unified"};
    if (p.dirs[0].fd < 0) {
        print_message("needs a writable cgroup version 2 tree\n");
        skip();
    }
    assert_int_equal(br_owner_tag(p.tag, sizeof(p.tag), &err), 0);
    strcat(p.tag, "9"); /* this pid, but another start time: somebody that is dead */
    assert_int_equal(br_cg_make(&p, &cg, 0x1234, &err), 0);
    pid_t pid = sleeper(br_cg_v2_fd(&cg));
    assert_int_equal(br_cg_sweep(&p), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, SIGKILL);
    assert_int_equal(faccessat(p.dirs[0].fd, cg.name, F_OK, 0), -1);
    br_cg_close(&cg);
    br_cg_place_close(&p);
}

/* Of another pid namespace: kept while it is new, or has something in it. */
static void test_v2_foreign(void **state)
{
    struct br_cg_place p = {.ndirs = 1, .have = 7, .stale_seconds = 3600};
    struct br_cg cg;
    struct br_err err = {.code = BR_OK};
    int status = 0;
    (void)state;
    p.dirs[0] = (struct br_cg_dir){.fd = open_unified(), .v2 = true, .path = "unified"};
    if (p.dirs[0].fd < 0) {
        print_message("needs a writable cgroup version 2 tree\n");
        skip();
    }
    char tag[128];
    assert_int_equal(br_owner_tag(tag, sizeof(tag), &err), 0);
    snprintf(p.tag, sizeof(p.tag), "bridle.1%s", strchr(tag + 7, '.'));
    assert_int_equal(br_cg_make(&p, &cg, 0x1234, &err), 0);
    assert_true(br_owner_is_foreign(cg.name));
    assert_false(br_owner_is_foreign(tag));
    assert_int_equal(br_cg_sweep(&p), 0);
    p.stale_seconds = 0;
    pid_t pid = sleeper(br_cg_v2_fd(&cg));
    (void)br_cg_sweep(&p); /* there may be those of others */
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(faccessat(p.dirs[0].fd, cg.name, F_OK, 0), 0);
    assert_true(br_cg_sweep(&p) >= 1);
    assert_int_equal(faccessat(p.dirs[0].fd, cg.name, F_OK, 0), -1);
    br_cg_close(&cg);
    br_cg_place_close(&p);
}

static void test_owner(void **state)
{
    char tag[128], name[256];
    uint64_t ns;
    (void)state;
    assert_int_equal(br_owner_tag(tag, sizeof(tag), NULL), 0);
    snprintf(name, sizeof(name), "%s.0123456789abcdef", tag);
    assert_false(br_owner_is_dead(name)); /* this process */
    snprintf(name, sizeof(name), "%s0.0123456789abcdef", tag);
    assert_true(br_owner_is_dead(name)); /* the pid is somebody else's by now */
    /* another pid namespace: cannot be told */
    assert_int_equal(sscanf(tag, "bridle.%lu", &ns), 1);
    snprintf(name, sizeof(name), "bridle.%lu%s0.0123456789abcdef", (unsigned long)ns + 1,
             strchr(tag + 7, '.'));
    assert_false(br_owner_is_dead(name));
    assert_false(br_owner_is_dead("bridle"));
    assert_false(br_owner_is_dead("bridle-1000"));
    assert_false(br_owner_is_dead("bridle.1.2"));
    assert_false(br_owner_is_dead("user.slice"));
}

/* An owner that has ended counts as dead before anybody has waited for it. */
static void test_owner_ended(void **state)
{
    char tag[128] = "", name[256];
    siginfo_t ended;
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char own[128];
        _exit(br_owner_tag(own, sizeof(own), NULL) == 0 &&
                      write(ends[1], own, strlen(own)) == (ssize_t)strlen(own)
                  ? 0
                  : 1);
    }
    assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
    assert_true(read(ends[0], tag, sizeof(tag) - 1) > 0);
    snprintf(name, sizeof(name), "%s.0123456789abcdef", tag);
    assert_true(br_owner_is_dead(name));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(br_owner_is_dead(name));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
#define IN_DIR(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_DIR(test_v2_root),
        IN_DIR(test_v1_swap),
        IN_DIR(test_v2_swap),
        IN_DIR(test_v2_without_cpu),
        IN_DIR(test_v2_user),
        IN_DIR(test_v1_paths),
        cmocka_unit_test(test_v2_kill_and_remove),
        cmocka_unit_test(test_v2_sweep),
        cmocka_unit_test(test_v2_foreign),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_owner_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
