/*
 * Whose uid a sandbox has outside, and what it can reach with it: as root with a uid of its own, as
 * root with the workspace owner's, and as an ordinary user. What the kernel shows from outside is
 * compared with what is on disk and with the receipt.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "launch/test_rig.h"

#define STRANGER 59997u

/* The host's pid of pid 1. */
static pid_t host_pid(const struct rig *r)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", r->pidfd);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    const char *p = strstr(text, "\nPid:");
    assert_non_null(p);
    return (pid_t)atoi(p + 5);
}

static void assert_status(const struct rig *r, const char *line)
{
    static char text[8192];
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)host_pid(r));
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    assert_true(n > 0);
    text[n] = 0;
    if (!strstr(text, line))
        fail_msg("no line '%s' in %s", line, text);
}

static void assert_runs_as(const struct rig *r, unsigned uid, unsigned gid)
{
    char line[128];
    snprintf(line, sizeof(line), "\nUid:\t%u\t%u\t%u\t%u\n", uid, uid, uid, uid);
    assert_status(r, line);
    snprintf(line, sizeof(line), "\nGid:\t%u\t%u\t%u\t%u\n", gid, gid, gid, gid);
    assert_status(r, line);
    assert_status(r, "\nCapBnd:\t0000000000000000\n");
}

static void assert_receipt(const struct rig *r, const char *kind, unsigned uid, bool idmapped)
{
    char want[128];
    snprintf(want, sizeof(want),
             "\"identity\":{\"kind\":\"%s\",\"uid\":%u,\"gid\":%u,\"idmapped\":%s}", kind, uid, uid,
             idmapped ? "true" : "false");
    if (!strstr(r->receipt, want))
        fail_msg("no %s in %s", want, r->receipt);
    snprintf(want, sizeof(want), "\"uidMap\":\"1000 %u 1\"", uid);
    assert_non_null(strstr(r->receipt, want));
}

static struct stat at(const struct rig *r, const char *name)
{
    struct stat st;
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", r->ws, name);
    assert_int_equal(lstat(path, &st), 0);
    return st;
}

static void give(const struct rig *r, const char *name, uid_t uid, mode_t mode)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", r->ws, name);
    assert_int_equal(chown(path, uid, uid), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void open_with_files(struct rig *r, uid_t uid)
{
    rig_need_root();
    rig_open(r, uid);
    rig_put(r, "dir/", NULL);
    rig_put(r, "dir/mine", "mine\n");
    rig_put(r, "dir/theirs", "theirs\n");
    rig_put(r, "dir/roots", "root's\n");
    rig_put(r, "dir/secret", "secret\n");
    give(r, "dir/mine", uid ? uid : RIG_OWNER, 0600);
    /* writable for everybody, so that only the missing mapping stands in the way */
    give(r, "dir/theirs", STRANGER, 0666);
    give(r, "dir/roots", 0, 0644);
    give(r, "dir/secret", STRANGER, 0600);
    rig_allow(r, "dir/**");
}

static void check_owner_on_disk(struct rig *r, unsigned owner)
{
    const char *out;
    assert_int_equal(rig_sh(r,
                            "cat dir/mine && echo more >> dir/mine && echo new > dir/new && "
                            "mkdir dir/sub && ln -s new dir/link && ln dir/new dir/hard && "
                            "mkfifo dir/fifo && chmod 640 dir/new && "
                            "stat -c %u:%g dir dir/mine dir/new dir/link",
                            &out),
                     0);
    assert_string_equal(out, "mine\n1000:1000\n1000:1000\n1000:1000\n1000:1000\n");
    static const char *const made[] = {"dir/mine", "dir/new", "dir/sub", "dir/link", "dir/fifo"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(made); i++) {
        struct stat st = at(r, made[i]);
        assert_int_equal(st.st_uid, owner);
        assert_int_equal(st.st_gid, owner);
    }
}

static void test_dedicated(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    open_with_files(&r, 0);
    assert_true(rig_launch(&r));
    unsigned uid = rig_box_uid(&r);
    assert_runs_as(&r, uid, uid);
    assert_receipt(&r, "dedicated", uid, true);
    check_owner_on_disk(&r, RIG_OWNER);
    /* files of others: the overflow id; readable if everybody may, and never written */
    assert_int_equal(rig_sh(&r, "stat -c %u:%g dir/theirs dir/roots; cat dir/theirs", &out), 0);
    assert_string_equal(out, "65534:65534\n65534:65534\ntheirs\n");
    static const char *const refused[] = {"echo x > dir/theirs",   "echo x >> dir/theirs",
                                          "cat dir/secret",        "chmod 777 dir/theirs",
                                          "chown 1000 dir/theirs", "touch -d yesterday dir/theirs",
                                          "echo x > dir/roots",    "chown 65534 dir/mine",
                                          "chgrp 0 dir/mine",      "truncate -s0 dir/theirs"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(refused); i++)
        if (rig_sh(&r, refused[i], &out) == 0)
            fail_msg("this succeeded inside: %s", refused[i]);
    assert_int_equal(at(&r, "dir/theirs").st_size, 7);
    assert_int_equal(at(&r, "dir/theirs").st_uid, STRANGER);
    rig_exit(&r, 0);
    /* the next workspace of this launcher has another owner: another mapping */
    give(&r, ".", STRANGER, 0755);
    give(&r, "dir", STRANGER, 0755);
    assert_true(rig_launch(&r));
    assert_receipt(&r, "dedicated", uid, true);
    assert_int_equal(rig_sh(&r, "cat dir/secret && echo x > dir/theirs && echo x > dir/y", &out),
                     0);
    assert_int_not_equal(rig_sh(&r, "cat dir/mine", &out), 0);
    assert_int_equal(at(&r, "dir/y").st_uid, STRANGER);
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_owner(void **state)
{
    struct rig r;
    (void)state;
    open_with_files(&r, 0);
    r.plan.identity = BR_IDENTITY_OWNER;
    assert_true(rig_launch(&r));
    assert_runs_as(&r, RIG_OWNER, RIG_OWNER);
    assert_receipt(&r, "workspace-owner", RIG_OWNER, false);
    check_owner_on_disk(&r, RIG_OWNER);
    rig_exit(&r, 0);
    rig_close(&r);
}

/* The kernel gives an ordinary user no other uid than its own, and the receipt says so. */
static void test_user(void **state)
{
    struct rig r;
    (void)state;
    open_with_files(&r, RIG_USER);
    assert_true(rig_launch(&r));
    assert_runs_as(&r, RIG_USER, RIG_USER);
    assert_receipt(&r, "operator", RIG_USER, false);
    check_owner_on_disk(&r, RIG_USER);
    rig_exit(&r, 0);
    rig_close(&r);
}

static void refused(struct rig *r, enum br_code code, const char *text, const char *also)
{
    assert_false(rig_launch_at(r, -1));
    assert_int_equal(r->code, code);
    if (!strstr(r->text, text) || !strstr(r->text, also))
        fail_msg("'%s' or '%s' is not in '%s'", text, also, r->text);
    assert_int_equal(rig_children(r->pid), 0);
    assert_int_equal(rig_cgroups(r->pid), 0);
}

static void test_root_owned_is_refused(void **state)
{
    static const uint8_t kinds[] = {BR_IDENTITY_DEDICATED, BR_IDENTITY_OWNER};
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    give(&r, ".", 0, 0755);
    for (unsigned i = 0; i < BR_ARRAY_LEN(kinds); i++) {
        r.plan.identity = kinds[i];
        refused(&r, BR_E_INVALID_WORKSPACE, "is owned by root", "chown");
    }
    rig_close(&r);
}

/* A file system that cannot: refused, by its type, with the profile that would work; and it does.
 */
static void test_file_system_without(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    pid_t pid = fork(); /* the mount must not be left behind */
    assert_true(pid >= 0);
    if (pid == 0) {
        assert_int_equal(unshare(CLONE_NEWNS), 0);
        assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
        rig_make(&r, 0);
        assert_int_equal(mount("none", r.ws, "ramfs", 0, NULL), 0);
        give(&r, ".", RIG_OWNER, 0755);
        rig_put(&r, "dir/", NULL);
        rig_allow(&r, "dir/**");
        rig_start(&r);
        refused(&r, BR_E_REQUIREMENT_MISSING, "'ramfs'", "run-owner-v1");
        assert_null(rig_ask(&r, "call getpid"));
        r.plan.identity = BR_IDENTITY_OWNER;
        assert_true(rig_launch(&r));
        assert_int_equal(rig_sh(&r, "echo x > dir/new", &out), 0);
        rig_exit(&r, 0);
        assert_int_equal(at(&r, "dir/new").st_uid, RIG_OWNER);
        assert_int_equal(umount2(r.ws, MNT_DETACH), 0);
        rig_close(&r);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A mapping that was not applied although the call succeeded is noticed. */
static void test_mapping_is_measured(void **state)
{
    bool seen = false;
    (void)state;
    rig_need_root();
    for (int n = 1; n < 40 && !seen; n++) {
        struct rig r;
        char fault[64];
        rig_make(&r, 0);
        snprintf(fault, sizeof(fault), "MOUNT_SETATTR:%d:nothing", n);
        r.fault = fault;
        rig_start(&r);
        if (!rig_launch_at(&r, -1))
            seen = strstr(r.text, "is not mapped as it was planned") != NULL;
        rig_close(&r);
    }
    assert_true(seen);
}

/* ---- no way back to a privilege, nothing inherited ---- */

static void check_privilege(uid_t uid)
{
    struct rig r;
    const char *out;
    rig_need_root();
    rig_open(&r, uid);
    assert_true(rig_launch(&r));
    /* NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, and all four locked */
    assert_int_equal(rig_sh(&r,
                            "python3 -c 'import ctypes\nl=ctypes.CDLL(None)\n"
                            "print(hex(l.prctl(27,0,0,0,0)),l.prctl(28,0,0,0,0),"
                            "l.prctl(8,1,0,0,0),l.prctl(47,2,0,0,0))'",
                            &out),
                     0);
    assert_string_equal(out, "0xef -1 -1 -1\n");
    assert_int_equal(rig_sh(&r, "cat /proc/self/oom_score_adj; ulimit -Hc", &out), 0);
    assert_string_equal(out, "1000\n0\n");
    /* a session of its own, and no terminal to take */
    assert_int_equal(
        rig_sh(&r, "cut -d' ' -f6,7 /proc/1/stat; (exec 5<>/dev/tty) 2>/dev/null || echo none",
               &out),
        0);
    assert_string_equal(out, "1 0\nnone\n");
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_privilege(void **state)
{
    (void)state;
    rig_need_root();
    check_privilege(0);
    check_privilege(RIG_USER);
}

/* Every way to a file that takes its owner's identity when somebody else starts it. */
static void make_set_id(const char *weak, bool made)
{
    static const struct {
        const char *how, *file;
        unsigned mode;
    } ways[] = {
        {"os.chmod(f,0o4755)", "chmod", 04755},
        {"os.fchmod(os.open(f,2),0o4755)", "fchmod", 04755},
        {"l.syscall(452,-100,f.encode(),0o4755,0)", "fchmodat2", 04755},
        {"os.open(f+\"x\",os.O_CREAT|os.O_WRONLY,0o4755)", "openx", 04755},
        {"os.open(f+\"x\",os.O_CREAT|os.O_WRONLY,0o2755)", "gidx", 02755},
        {"os.mknod(f+\"x\",0o104755)", "mknodx", 04755},
        {"l.syscall(85,(f+\"x\").encode(),0o4755)", "creatx", 04755},
        {"l.syscall(437,-100,(f+\"x\").encode(),struct.pack(\"QQQ\",65,0o4755,0),24)", "openat2x",
         04755},
    };
    struct rig r;
    const char *out;
    char script[1024];
    rig_need_root();
    rig_make(&r, 0);
    rig_put(&r, "dir/", NULL);
    rig_allow(&r, "dir/**");
    for (unsigned i = 0; i < BR_ARRAY_LEN(ways); i++) {
        char name[64];
        snprintf(name, sizeof(name), "dir/%.*s", (int)strcspn(ways[i].file, "x"), ways[i].file);
        rig_put(&r, name, "#!/bin/sh\n");
    }
    r.weak = weak;
    rig_start(&r);
    assert_true(rig_launch(&r));
    for (unsigned i = 0; i < BR_ARRAY_LEN(ways); i++) {
        struct stat st;
        char path[256];
        snprintf(script, sizeof(script),
                 "python3 -c 'import ctypes,os,struct\nos.umask(0)\nl=ctypes.CDLL(None)\n"
                 "f=\"dir/%.*s\"\n%s'",
                 (int)strcspn(ways[i].file, "x"), ways[i].file, ways[i].how);
        (void)rig_sh(&r, script, &out);
        snprintf(path, sizeof(path), "%s/dir/%s", r.ws, ways[i].file);
        bool there = stat(path, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID));
        if (there != made)
            fail_msg("%s: %s %s", weak ? weak : "with the filter", ways[i].how, out);
        if (made) {
            assert_int_equal(st.st_mode & 07777, ways[i].mode);
            assert_int_equal(st.st_uid, RIG_OWNER);
        }
    }
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_no_set_id(void **state)
{
    (void)state;
    make_set_id(NULL, false);
    make_set_id("filter", true); /* control */
}

static const char change_it[] = "import mmap,os\nm=mmap.mmap(os.open(\"%s\",os.O_RDWR),4)\n"
                                "m[0:4]=b\"evil\"\nm.flush()";

/* One that is there already would keep the bit when it is changed through a mapping. */
static void test_set_id_that_is_there(void **state)
{
    struct rig r;
    const char *out;
    char python[512], script[1024];
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    rig_put(&r, "dir/", NULL);
    rig_put(&r, "dir/tool", "good tool\n");
    give(&r, "dir/tool", RIG_OWNER, 04755);
    rig_put(&r, "tool", "good tool\n");
    give(&r, "tool", RIG_OWNER, 04755);
    rig_allow(&r, "dir/**");
    assert_true(rig_launch(&r));
    snprintf(python, sizeof(python), change_it, "dir/tool");
    snprintf(script, sizeof(script), "python3 -c '%s'", python);
    assert_int_not_equal(rig_sh(&r, script, &out), 0);
    assert_non_null(strstr(out, "Read-only file system"));
    assert_int_not_equal(rig_sh(&r, "rm -f dir/tool; chmod 777 dir/tool", &out), 0);
    assert_int_equal(rig_sh(&r, "cat dir/tool; echo x > dir/other", &out), 0);
    assert_string_equal(out, "good tool\n");
    assert_int_equal(at(&r, "dir/tool").st_mode & 07777, 04755);
    rig_exit(&r, 0);
    rig_allow(&r, "tool");
    refused(&r, BR_E_INVALID_ALLOWED_PATH, "is a set-user-id program", "chmod u-s");
    rig_close(&r);
}

/* Control: without that, its owner changes it and the bit stays. */
static void test_set_id_control(void **state)
{
    struct rig r;
    char python[512], path[256], text[16] = "";
    int status = -1;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    rig_put(&r, "tool", "good tool\n");
    give(&r, "tool", RIG_OWNER, 04755);
    snprintf(path, sizeof(path), "%s/tool", r.ws);
    snprintf(python, sizeof(python), change_it, path);
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid(RIG_OWNER, RIG_OWNER, RIG_OWNER) == 0 &&
            setresuid(RIG_OWNER, RIG_OWNER, RIG_OWNER) == 0)
            execl("/usr/bin/python3", "python3", "-c", python, (char *)NULL);
        _exit(70);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, 9), 9);
    assert_string_equal(text, "evil tool");
    assert_int_equal(at(&r, "tool").st_mode & 07777, 04755);
    rig_close(&r);
}

/* A key of the operator is looked for in a sandbox without the filter. */
static void look_for_key(const char *fault, const char *found)
{
    struct rig r;
    const char *out;
    rig_make(&r, 0);
    r.weak = "filter";
    r.fault = fault;
    rig_start(&r);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r,
                            "python3 -c 'import ctypes\nl=ctypes.CDLL(None,use_errno=True)\n"
                            "k=l.syscall(249,b\"user\",b\"bridle-test-key\",0,0)\n"
                            "print(k>0 or ctypes.get_errno())'",
                            &out),
                     0);
    assert_string_equal(out, found);
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_key_rings(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    pid_t pid = fork(); /* this program's own key ring stays as it was */
    assert_true(pid >= 0);
    if (pid == 0) {
        assert_true(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0);
        assert_true(
            syscall(SYS_add_key, "user", "bridle-test-key", "x", 1, KEY_SPEC_SESSION_KEYRING) > 0);
        look_for_key(NULL, "126\n"); /* ENOKEY */
        /* control: a launcher that could not leave the key ring hands it on */
        look_for_key("KEYCTL:1:1", "True\n");
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    rig_make(&r, 0);
    r.fault = "KEYCTL:1:122"; /* EDQUOT */
    rig_start(&r);
    refused(&r, BR_E_REQUIREMENT_MISSING, "session key ring", "maxkeys");
    rig_close(&r);
}

/* ---- who the kernel charges ---- */

/* In a process of the sandbox's uid on the host: what do kill and ptrace say? */
static int attack_from_host(unsigned uid, pid_t victim, bool trace)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
            _exit(70);
        _exit((trace ? ptrace(PTRACE_ATTACH, victim, NULL, NULL) : kill(victim, 0)) < 0 ? errno
                                                                                        : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static unsigned namespace_owner(const struct rig *r)
{
    char path[64];
    uid_t uid = 0;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)host_pid(r));
    BR_CLEANUP_FD int ns = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(ns >= 0);
    assert_int_equal(ioctl(ns, NS_GET_OWNER_UID, &uid), 0);
    return uid;
}

#define INOTIFY_ALL                                                                                \
    "python3 -c 'import ctypes\nl=ctypes.CDLL(None)\nn=0\nwhile n<100000 and "                     \
    "l.inotify_init1(0)>=0:"                                                                       \
    "n+=1\nprint(n>8,flush=True)\nimport time; time.sleep(%d)'"

/* An inotify instance of root of this host, while a sandbox has as many as it gets. */
static int host_while_exhausted(const char *weak)
{
    struct rig r;
    const char *out;
    char script[512];
    rig_make(&r, 0);
    r.weak = weak;
    rig_start(&r);
    r.plan.limits.nofile = 1024;
    assert_true(rig_launch(&r));
    snprintf(script, sizeof(script),
             INOTIFY_ALL " >/tmp/said 2>&1 </dev/null & sleep 1; cat /tmp/said", 60);
    assert_int_equal(rig_sh(&r, script, &out), 0);
    assert_string_equal(out, "True\n");
    int fd = inotify_init1(IN_CLOEXEC), e = fd < 0 ? errno : 0;
    br_close(&fd);
    rig_exit(&r, 0);
    rig_close(&r);
    return e;
}

static void test_counters_of_root(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    for (int owner = 0; owner < 2; owner++) {
        rig_open(&r, 0);
        r.plan.identity = owner ? BR_IDENTITY_OWNER : BR_IDENTITY_DEDICATED;
        assert_true(rig_launch(&r));
        unsigned uid = namespace_owner(&r); /* nobody else's, not even the workspace's owner's */
        assert_in_range(uid, BR_UID_SANDBOX, BR_UID_SANDBOX_LAST);
        if (!owner)
            assert_int_equal(uid, rig_box_uid(&r));
        else /* so the owner gets no power over it from outside, though it has the same uid */
            assert_int_equal(attack_from_host(RIG_OWNER, host_pid(&r), true), EPERM);
        rig_exit(&r, 0);
        rig_close(&r);
    }
    assert_int_equal(host_while_exhausted(NULL), 0);
    /* control: a namespace of root's */
    assert_int_equal(host_while_exhausted("owner"), EMFILE);
}

/* ---- two sandboxes at once ---- */

static void test_two_do_not_see_each_other(void **state)
{
    struct rig a, b;
    const char *out;
    char script[256];
    (void)state;
    rig_need_root();
    rig_open(&a, 0);
    rig_open(&b, 0);
    assert_true(rig_launch(&a));
    assert_true(rig_launch(&b));
    pid_t victim = host_pid(&b);
    /* control: the same uid in the host's pid namespace may signal it */
    assert_int_equal(attack_from_host(rig_box_uid(&b), victim, false), 0);
    /* the other sandbox has another uid */
    assert_int_not_equal(rig_box_uid(&a), rig_box_uid(&b));
    assert_int_equal(attack_from_host(rig_box_uid(&a), victim, false), EPERM);
    assert_int_equal(attack_from_host(rig_box_uid(&a), victim, true), EPERM);
    snprintf(script, sizeof(script),
             "python3 -c 'import os\nfor p in (%d,%d):\n  try:\n    os.kill(p,0)\n    "
             "print(\"reached\")\n  except ProcessLookupError: print(\"none\")'",
             (int)victim, (int)host_pid(&a));
    assert_int_equal(rig_sh(&a, script, &out), 0);
    assert_string_equal(out, "none\nnone\n");
    /* everything that it can reach at all is its own */
    assert_int_equal(rig_sh(&a, "kill -KILL -1; true", &out), 0);
    assert_int_equal(rig_call(&a, "getpid"), 0);
    assert_int_equal(rig_call(&b, "getpid"), 0);
    rig_exit(&a, 0);
    rig_exit(&b, 0);
    rig_close(&a);
    rig_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dedicated),
        cmocka_unit_test(test_counters_of_root),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_root_owned_is_refused),
        cmocka_unit_test(test_file_system_without),
        cmocka_unit_test(test_mapping_is_measured),
        cmocka_unit_test(test_privilege),
        cmocka_unit_test(test_no_set_id),
        cmocka_unit_test(test_set_id_that_is_there),
        cmocka_unit_test(test_set_id_control),
        cmocka_unit_test(test_key_rings),
        cmocka_unit_test(test_two_do_not_see_each_other),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
