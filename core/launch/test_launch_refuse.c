/*
 * What the launcher refuses, with its code, and that nothing happened: no process, no cgroup, pid 1
 * never ran; and that the launcher is as good as before afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

static void refused_as(struct rig *r, int ws_fd, enum br_code code, const char *text)
{
    if (rig_launch_at(r, ws_fd))
        fail_msg("started, but should be refused: %s", text);
    if (r->code != (uint32_t)code || !strstr(r->text, text))
        fail_msg("expected %s '%s', got %s '%s'", br_code_name((int)code), text,
                 br_code_name((int)r->code), r->text);
    assert_non_null(strstr(r->text, "nothing was started"));
    assert_int_equal(rig_children(r->pid), 0);
    assert_int_equal(rig_cgroups(r->pid), 0);
    /* the sandbox end of the channel was closed unread */
    assert_null(rig_ask(r, "call getpid"));
}

static void works_again(struct rig *r)
{
    br_plan_free(&r->plan);
    br_plan_default(&r->plan);
    assert_true(rig_launch(r));
    assert_int_equal(rig_call(r, "getpid"), 0);
    rig_exit(r, 0);
}

/* Paths of a workspace that must not become writable. */
static void populate(struct rig *r)
{
    char path[512], other[512];
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    rig_put(r, "file", "x");
    rig_put(r, "dir/", NULL);
    rig_put(r, "dir/inner", "x");
    rig_put(r, "linked", "x");
    snprintf(path, sizeof(path), "%s/linked", r->ws);
    snprintf(other, sizeof(other), "%s/linked-too", r->ws);
    assert_int_equal(link(path, other), 0);
    snprintf(other, sizeof(other), "%s/symlink", r->ws);
    assert_int_equal(symlink("file", other), 0);
    snprintf(other, sizeof(other), "%s/dirlink", r->ws);
    assert_int_equal(symlink("dir", other), 0);
    snprintf(other, sizeof(other), "%s/escape", r->ws);
    assert_int_equal(symlink("/etc", other), 0);
    snprintf(other, sizeof(other), "%s/fifo", r->ws);
    assert_int_equal(mkfifo(other, 0644), 0);
    snprintf(other, sizeof(other), "%s/device", r->ws);
    assert_int_equal(mknod(other, S_IFCHR | 0644, makedev(1, 3)), 0);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", r->ws);
    BR_CLEANUP_FD int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
    rig_put(r, "mounted/", NULL);
    rig_put(r, "above/", NULL);
    rig_put(r, "above/deep/", NULL);
}

static const struct {
    const char *pattern, *text;
} bad[] = {
    {"", "is empty"},
    {"/etc/passwd", "is absolute"},
    {"/", "is absolute"},
    {"../up", "has a '..' segment"},
    {"dir/../file", "has a '..' segment"},
    {"dir/..", "has a '..' segment"},
    {"./file", "has a '.' segment"},
    {"dir//inner", "has an empty segment"},
    {"dir//", "has an empty segment"},
    {"*", "the whole workspace"},
    {"**", "the whole workspace"},
    {"*.c", "has a wildcard"},
    {"d?r/**", "has a wildcard"},
    {"dir/*", "has a wildcard"},
    {"**/inner", "has a wildcard"},
    {"dir/**/x", "has a wildcard"},
    {"dir/***", "has a wildcard"},
    {"file,rw", "has a comma"},
    {"fi\\le", "has a backslash"},
    {"fi\nle", "has a control character"},
    {"fi\x7fle", "has a control character"},
    {"fi\xc2\x85le", "has a control character"},
    {"fi\xffle", "is not valid UTF-8"},
    {"missing", "does not exist"},
    {"missing/**", "does not exist"},
    {"dir", "is a directory"},
    {"file/**", "is a file but was written like a directory"},
    {"file/", "is a file but was written like a directory"},
    {"file/x", "not a directory"},
    {"symlink", "symbolic link"},
    {"dirlink/**", "symbolic link"},
    {"dirlink/inner", "symbolic link"},
    {"escape/passwd", "symbolic link"},
    {"linked", "more than one hard link"},
    {"fifo", "is a FIFO"},
    {"device", "is a device"},
    {"socket", "is a socket"},
    {"mounted/**", "lies on another file system"},
    {"above/**", "is a mount below it"},
};

static void test_allowed_paths(void **state)
{
    struct rig r;
    char mounted[512], deep[512], path[512];
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    populate(&r);
    snprintf(mounted, sizeof(mounted), "%s/mounted", r.ws);
    snprintf(deep, sizeof(deep), "%s/above/deep", r.ws);
    assert_int_equal(mount("tmpfs", mounted, "tmpfs", 0, "size=4k"), 0);
    assert_int_equal(mount("tmpfs", deep, "tmpfs", 0, "size=4k"), 0);
    rig_start(&r);
    for (unsigned i = 0; i < BR_ARRAY_LEN(bad); i++) {
        br_plan_free(&r.plan);
        rig_allow(&r, "dir/**"); /* a good one first: still all or nothing */
        rig_allow(&r, bad[i].pattern);
        refused_as(&r, -1, BR_E_INVALID_ALLOWED_PATH, bad[i].text);
    }
    works_again(&r);
    assert_int_equal(umount(mounted), 0);
    assert_int_equal(umount(deep), 0);
    snprintf(path, sizeof(path), "%s/dir/inner", r.ws);
    assert_int_equal(access(path, F_OK), 0);
    rig_close(&r);
}

static void test_workspaces(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    rig_put(&r, "file", "x");
    char path[512];
    snprintf(path, sizeof(path), "%s/file", r.ws);
    BR_CLEANUP_FD int file = open(path, O_RDONLY | O_CLOEXEC);
    refused_as(&r, file, BR_E_INVALID_WORKSPACE, "is not a directory");
    assert_int_equal(chown(r.ws, 0, RIG_OWNER), 0);
    refused_as(&r, -1, BR_E_INVALID_WORKSPACE, "is owned by root");
    assert_non_null(strstr(r.text, "chown -R USER:GROUP"));
    assert_int_equal(chown(r.ws, RIG_OWNER, 0), 0);
    refused_as(&r, -1, BR_E_INVALID_WORKSPACE, "is owned by root");
    assert_int_equal(chown(r.ws, RIG_OWNER, RIG_OWNER), 0);
    /* removed while the descriptor is open */
    snprintf(path, sizeof(path), "%s/gone", r.dir);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(chown(path, RIG_OWNER, RIG_OWNER), 0);
    BR_CLEANUP_FD int gone = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(rmdir(path), 0);
    refused_as(&r, gone, BR_E_INVALID_WORKSPACE, "the workspace");
    works_again(&r);
    rig_close(&r);
}

/* A plan for another backend is not started by this one, resolved or not. */
static void test_docker(void **state)
{
    (void)state;
    struct rig r = {.weak = NULL};
    rig_open(&r, 0);
    r.plan.backend = BR_BACKEND_DOCKER;
    assert_false(rig_launch_resolved(&r, -1));
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.text, "the backend 'docker'; nothing was started"));
    assert_false(rig_resolve(&r, -1));
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.text, "Docker cannot express"));
    r.plan.backend = BR_BACKEND_NATIVE;
    assert_true(rig_launch(&r)); /* the control */
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_limits(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    r.plan.limits.pids = 0;
    refused_as(&r, -1, BR_E_LIMIT_EXCEEDED, "the limit 'pids' is 0");
    r.plan.limits = br_limits_default;
    r.plan.limits.memory_bytes = br_limits_ceiling.memory_bytes + 1;
    refused_as(&r, -1, BR_E_LIMIT_EXCEEDED, "the limit 'memory_bytes'");
    r.plan.limits = br_limits_default;
    works_again(&r);
    rig_close(&r);
}

/* An ordinary user without a place for cgroups: refused, with the way to get one. */
static void test_user_without_cgroups(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, RIG_USER); /* this program's group fixture delegates nothing */
    refused_as(&r, -1, BR_E_REQUIREMENT_MISSING, "the limit 'memory' cannot be enforced");
    if (!strstr(r.text, "sudo bridle doctor --delegate") && !strstr(r.text, "systemd-run --user"))
        fail_msg("no fix: %s", r.text);
    rig_close(&r);
}

static const struct br_probe *probe(const struct rig *r, const char *requirement)
{
    for (uint32_t i = 0; i < r->nprobes; i++)
        if (strcmp(r->probes[i].requirement, requirement) == 0)
            return &r->probes[i];
    fail_msg("no row '%s'", requirement);
    return NULL;
}

static void ask_probes(struct rig *r)
{
    assert_int_equal(br_chan_send(&r->chan, BR_MSG_LAUNCH_PROBE, 3, NULL, NULL), 0);
    while (!r->probed)
        assert_int_equal(br_chan_dispatch(&r->chan, NULL), 0);
    assert_true(r->nprobes >= 10);
    for (uint32_t i = 0; i < r->nprobes; i++) {
        assert_true(r->probes[i].detail[0]);
        if (r->probes[i].result != BR_PROBE_OK)
            assert_true(r->probes[i].fix[0]);
    }
}

/* What the probes say is what a launch then does. */
static void test_probes(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    ask_probes(&r);
    for (uint32_t i = 0; i < r.nprobes; i++)
        if (r.probes[i].required && r.probes[i].result != BR_PROBE_OK)
            fail_msg("a sandbox ran, but '%s' is missing: %s", r.probes[i].requirement,
                     r.probes[i].detail);
    rig_close(&r);
    rig_open(&r, RIG_USER);
    assert_false(rig_launch_at(&r, -1));
    ask_probes(&r);
    assert_int_equal(probe(&r, "user namespaces")->result, BR_PROBE_OK);
    assert_int_equal(probe(&r, "memory limit")->result, BR_PROBE_MISSING);
    assert_int_equal(probe(&r, "memory limit")->required, 1);
    rig_close(&r);
}

/* Each requirement taken away: its row says so, and what to do. The rest of the rows is there. */
static void test_probes_fail(void **state)
{
    static const struct {
        const char *fault, *row, *detail, *fix;
    } rows[] = {
        {"LANDLOCK:1:38", "Landlock", "this kernel has no Landlock", "run-nolandlock-v1"},
        {"LANDLOCK:1:95", "Landlock", "booted without it", "lsm=landlock"},
        {"LANDLOCK:3:nothing", "Landlock", "refuses nothing", "run-nolandlock-v1"},
        {"SECCOMP:1:38", "system call filter", "Function not implemented", "CONFIG_SECCOMP"},
        {"SECCOMP:1:nothing", "system call filter", "Invalid argument", "CONFIG_SECCOMP"},
        {"CLONE3:1:28", "user namespaces", "No space left", "max_user_namespaces"},
        {"FSOPEN:1:38", "mount API", "Function not implemented", "Linux 5.12"},
        {"MKCGROUP:1:13", "memory limit", "Permission denied", "--delegate"},
        {"WRITECGROUP:1:nothing", "memory admission", "64 MiB were used", "swapaccount"},
        {"LOOP:1:6", "ext4 lease", "loop", "workspace-tmpfs-v1"},
    };
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct rig r;
        rig_make(&r, 0);
        r.fault = rows[i].fault;
        rig_start(&r);
        ask_probes(&r);
        const struct br_probe *p = probe(&r, rows[i].row);
        if (p->result != BR_PROBE_MISSING || !strstr(p->detail, rows[i].detail) ||
            !strstr(p->fix, rows[i].fix))
            fail_msg("%s: '%s' %u '%s' fix '%s'", rows[i].fault, rows[i].row, p->result, p->detail,
                     p->fix);
        assert_non_null(probe(&r, "bubblewrap"));
        rig_close(&r);
    }
}

static void test_without_init(void **state)
{
    struct rig r;
    char path[256];
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    snprintf(path, sizeof(path), "%s/bridle-init", r.dir);
    assert_int_equal(unlink(path), 0);
    rig_start(&r);
    assert_false(rig_launch_at(&r, -1));
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.text, "is missing, so no sandbox can start"));
    rig_close(&r);
}

/* Violations of the protocol end the launcher, and with it the sandbox. */
static void violates(bool launched, enum br_msg_type type, const char *payload, unsigned nfds)
{
    struct rig r;
    int status = -1;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    rig_open(&r, 0);
    if (launched)
        assert_true(rig_launch(&r));
    br_buf_put(&o.buf, payload, strlen(payload));
    for (unsigned i = 0; i < nfds; i++)
        br_out_fd(&o, 0, false);
    if (type == BR_MSG_LAUNCH_PLAN && launched)
        br_plan_put(&o.buf, &r.plan);
    assert_int_equal(br_chan_send(&r.chan, type, 0, &o, NULL), 0);
    assert_int_equal(waitpid(r.pid, &status, 0), r.pid);
    assert_int_equal(status, 1 << 8);
    assert_int_equal(rig_cgroups(r.pid), 0);
    assert_null(launched ? rig_ask(&r, "call getpid") : NULL);
    br_chan_close(&r.chan);
    r.pid = 0;
    rig_close(&r);
}

static void test_violations(void **state)
{
    (void)state;
    rig_need_root();
    violates(false, BR_MSG_LAUNCH_PLAN, "garbage", 2);
    violates(false, BR_MSG_LAUNCH_PLAN, "garbage", 1);
    violates(false, BR_MSG_LAUNCH_KILL, "x", 0);
    violates(false, BR_MSG_APPEND, "x", 0);
    violates(true, BR_MSG_LAUNCH_PLAN, "", 2);
    violates(true, BR_MSG_LAUNCH_STARTED, "x", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allowed_paths),
        cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_docker),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_user_without_cgroups),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_probes_fail),
        cmocka_unit_test(test_without_init),
        cmocka_unit_test(test_violations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
