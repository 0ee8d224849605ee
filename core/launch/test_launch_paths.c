/*
 * Allowed paths and the file system view, from the plan to the inside of a sandbox: what changed
 * since the plan, trees that hold what must not be written, nested repositories, sockets, nested
 * mounts, noexec, masks of /proc. Every refusal leaves the workspace as it was, entry by entry.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "launch/test_rig.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

/* ---- the workspace as it is ---- */

static struct br_sha256 listing;

static int list_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    char line[512];
    (void)type, (void)ftw;
    int n = snprintf(line, sizeof(line), "%s %lu %o %u %u %lu %lld.%ld\n", path,
                     (unsigned long)st->st_ino, (unsigned)st->st_mode, (unsigned)st->st_uid,
                     (unsigned)st->st_gid, (unsigned long)st->st_nlink,
                     (long long)st->st_ctim.tv_sec, (long)st->st_ctim.tv_nsec);
    br_sha256_put(&listing, line, (size_t)n);
    return 0;
}

/* Names, identities, modes, owners, link counts and the time of the last change of each. */
static void list_all(const struct rig *r, uint8_t sum[32])
{
    br_sha256_init(&listing);
    assert_int_equal(nftw(r->ws, list_entry, 16, FTW_PHYS), 0);
    br_sha256_end(&listing, sum);
}

static void path_in(const struct rig *r, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", r->ws, name);
}

static void refused(struct rig *r, const char *text)
{
    if (rig_launch_at(r, -1))
        fail_msg("started, but should be refused: %s", text);
    if (r->code != BR_E_INVALID_ALLOWED_PATH || !strstr(r->text, text) ||
        !strstr(r->text, "nothing was started"))
        fail_msg("expected '%s', got %s '%s'", text, br_code_name((int)r->code), r->text);
    assert_int_equal(rig_children(r->pid), 0);
    assert_int_equal(rig_cgroups(r->pid), 0);
    assert_null(rig_ask(r, "call getpid"));
}

static int listen_at(const struct rig *r, const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.100s", path);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(s, 4), 0);
    assert_int_equal(chmod(path, 0777), 0);
    uid_t owner = r->uid ? r->uid : RIG_OWNER;
    assert_int_equal(chown(path, owner, owner), 0);
    return s;
}

/* ---- trees that are refused ---- */

static void device_in_tree(const struct rig *r)
{
    char path[512];
    path_in(r, "src/deep/dev", path);
    assert_int_equal(mknod(path, S_IFCHR | 0666, makedev(1, 3)), 0);
}

static void mount_in_tree(const struct rig *r)
{
    char path[512];
    path_in(r, "src/deep/down", path);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=4k"), 0);
}

/* The same file system: only the mount's id tells. */
static void bind_in_tree(const struct rig *r)
{
    char path[512], from[512];
    path_in(r, "src/deep/inner", path);
    path_in(r, "elsewhere", from);
    assert_int_equal(mount(from, path, NULL, MS_BIND, NULL), 0);
}

static void link_in_tree(const struct rig *r)
{
    char path[512], to[512];
    path_in(r, "elsewhere", path);
    path_in(r, "src/deep/linked", to);
    assert_int_equal(link(path, to), 0);
}

static void git_link_in_tree(const struct rig *r)
{
    char path[512];
    path_in(r, "src/deep/.git", path);
    assert_int_equal(symlink("../../elsewhere", path), 0);
}

static void deep_tree(const struct rig *r)
{
    char name[600] = "src/deep";
    for (unsigned i = 0; i < 130; i++) {
        strcat(name, "/n");
        char with[640];
        snprintf(with, sizeof(with), "%s/", name);
        rig_put((struct rig *)(uintptr_t)r, with, NULL);
    }
}

static void unmount(const struct rig *r, const char *name)
{
    char path[512];
    path_in(r, name, path);
    (void)umount2(path, MNT_DETACH);
}

static void test_trees(void **state)
{
    static const struct {
        void (*make)(const struct rig *r);
        const char *text;
    } trees[] = {
        {device_in_tree, "'src/deep/dev', which is a device"},
        {mount_in_tree, "'src/deep/down', which is a mount below it"},
        {bind_in_tree, "'src/deep/inner', which is a mount below it"},
        {link_in_tree, "'src/deep/linked' in an allowed path has 2 hard links of which 1"},
        {git_link_in_tree, "'src/deep/.git', which is a symbolic link"},
        {deep_tree, "is more than 128 levels deep"},
    };
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(trees); i++) {
        struct rig r;
        uint8_t before[32], after[32];
        rig_make(&r, 0);
        rig_put(&r, "elsewhere", "x");
        rig_put(&r, "src/", NULL);
        rig_put(&r, "src/deep/", NULL);
        rig_put(&r, "src/deep/inner", "x");
        rig_put(&r, "good/", NULL);
        trees[i].make(&r);
        list_all(&r, before);
        rig_start(&r);
        rig_allow(&r, "good/**");
        rig_allow(&r, "src/**");
        refused(&r, trees[i].text);
        list_all(&r, after);
        assert_memory_equal(before, after, sizeof(before));
        unmount(&r, "src/deep/down");
        unmount(&r, "src/deep/inner");
        if (trees[i].make == deep_tree) { /* cannot be searched for sockets either */
            rig_close(&r);
            continue;
        }
        /* the same without that tree */
        br_plan_free(&r.plan);
        br_plan_default(&r.plan);
        rig_allow(&r, "good/**");
        assert_true(rig_launch(&r));
        rig_exit(&r, 0);
        rig_close(&r);
    }
}

/* ---- what changed since the plan ---- */

static void exchange_file(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "exact", a);
    path_in(r, "decoy", b);
    assert_int_equal(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE), 0);
}

static void exchange_dir(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "src", a);
    path_in(r, "decoys", b);
    assert_int_equal(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE), 0);
}

static void exchange_types(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "src", a);
    path_in(r, "decoy", b);
    assert_int_equal(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE), 0);
}

static void swap_for_link(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "src", a);
    path_in(r, "moved", b);
    assert_int_equal(rename(a, b), 0);
    assert_int_equal(symlink("decoys", a), 0);
}

static void swap_parent_for_link(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "outer", a);
    path_in(r, "moved", b);
    assert_int_equal(rename(a, b), 0);
    assert_int_equal(symlink("moved", a), 0);
}

static void write_file(const struct rig *r)
{
    rig_put((struct rig *)(uintptr_t)r, "exact", "other");
}

static void change_mode(const struct rig *r)
{
    char a[512];
    path_in(r, "src", a);
    assert_int_equal(chmod(a, 0777), 0);
}

static void change_owner(const struct rig *r)
{
    char a[512];
    path_in(r, "src", a);
    assert_int_equal(chown(a, RIG_OWNER, RIG_OWNER + 1), 0);
}

static void add_file(const struct rig *r)
{
    rig_put((struct rig *)(uintptr_t)r, "src/new", "x");
}

static void replace_file(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "src/a", a);
    path_in(r, "decoy", b);
    assert_int_equal(rename(b, a), 0);
}

static void link_file(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "exact", a);
    path_in(r, "other-name", b);
    assert_int_equal(link(a, b), 0);
}

static void link_inner(const struct rig *r)
{
    char a[512], b[512];
    path_in(r, "src/a", a);
    path_in(r, "other-name", b);
    assert_int_equal(link(a, b), 0);
}

static void mount_over(const struct rig *r)
{
    char a[512];
    path_in(r, "src", a);
    assert_int_equal(mount("tmpfs", a, "tmpfs", 0, "size=4k"), 0);
}

static void mount_inside(const struct rig *r)
{
    char a[512];
    path_in(r, "src/sub", a);
    assert_int_equal(mount("tmpfs", a, "tmpfs", 0, "size=4k"), 0);
}

static void remove_it(const struct rig *r)
{
    char a[512];
    path_in(r, "exact", a);
    assert_int_equal(unlink(a), 0);
}

static void nothing(const struct rig *r)
{
    (void)r;
}

static void populate(struct rig *r)
{
    rig_put(r, "exact", "x");
    rig_put(r, "decoy", "x");
    rig_put(r, "src/", NULL);
    rig_put(r, "src/a", "x");
    rig_put(r, "src/sub/", NULL);
    rig_put(r, "decoys/", NULL);
    rig_put(r, "outer/", NULL);
    rig_put(r, "outer/inner/", NULL);
    rig_allow(r, "src/**");
    rig_allow(r, "exact");
    rig_allow(r, "outer/inner/**");
}

static void test_changed_since_the_plan(void **state)
{
    static const struct {
        void (*change)(const struct rig *r);
        const char *text;
    } changes[] = {
        {nothing, NULL},
        {exchange_file, "another file or directory is there now"},
        {exchange_dir, "another file or directory is there now"},
        {exchange_types, "is a file but was written like a directory"},
        {swap_for_link, "goes through a symbolic link"},
        {swap_parent_for_link, "goes through a symbolic link"},
        {write_file, "it was written"},
        {change_mode, "its type, mode or owner changed"},
        {change_owner, "its type, mode or owner changed"},
        {add_file, "files in it were added, removed or replaced"},
        {replace_file, "files in it were added, removed or replaced"},
        {link_file, "more than one hard link"},
        {link_inner, "has 2 hard links"},
        {mount_over, "lies on another file system"},
        {mount_inside, "is a mount below it"},
        {remove_it, "does not exist"},
    };
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(changes); i++) {
        struct rig r;
        uint8_t before[32], after[32];
        rig_open(&r, 0);
        populate(&r);
        assert_true(rig_resolve(&r, -1));
        assert_int_equal(r.plan.nsources, 3);
        changes[i].change(&r);
        list_all(&r, before);
        bool started = rig_launch_resolved(&r, -1);
        if (!changes[i].text) {
            assert_true(started);
            assert_int_equal(rig_call(&r, "getpid"), 0);
            rig_exit(&r, 0);
        } else {
            if (started || r.code != BR_E_INVALID_ALLOWED_PATH || !strstr(r.text, changes[i].text))
                fail_msg("%u: expected '%s', got %s '%s'", i, changes[i].text,
                         started ? "started" : br_code_name((int)r.code), r.text);
            assert_non_null(strstr(r.text, "nothing was started"));
            assert_int_equal(rig_children(r.pid), 0);
            assert_null(rig_ask(&r, "call getpid"));
        }
        list_all(&r, after);
        assert_memory_equal(before, after, sizeof(before)); /* and no placeholder */
        unmount(&r, "src/sub");
        unmount(&r, "src");
        rig_close(&r);
    }
}

/* A plan that was not resolved does not start. */
static void test_sources_missing(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    populate(&r);
    r.plan.nsources = 0;
    assert_false(rig_launch_resolved(&r, -1));
    assert_int_equal(r.code, BR_E_INVALID_ALLOWED_PATH);
    assert_non_null(strstr(r.text, "does not say what its allowed paths were"));
    assert_int_equal(rig_children(r.pid), 0);
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    rig_close(&r);
}

/* ---- nested repositories ---- */

static void must(struct rig *r, const char *script)
{
    const char *out;
    int code = rig_sh(r, script, &out);
    if (code != 0)
        fail_msg("'%s' failed inside (%d): %s", script, code, out);
}

static void must_not(struct rig *r, const char *script, const char *why)
{
    const char *out;
    if (rig_sh(r, script, &out) == 0)
        fail_msg("this succeeded inside: %s", script);
    if (!strstr(out, why))
        fail_msg("'%s' failed, but not with '%s': %s", script, why, out);
}

#define EXCHANGE(a, b)                                                                             \
    "python3 -c 'import ctypes,os,sys\nl=ctypes.CDLL(None,use_errno=True)\n"                       \
    "r=l.renameat2(-100,b\"" a "\",-100,b\"" b "\",2)\n"                                           \
    "sys.exit(os.strerror(ctypes.get_errno()) if r else 0)'"

static void nested_git(uid_t uid)
{
    struct rig r;
    uint8_t before[32], after[32];
    rig_open(&r, uid);
    static const char *const dirs[] = {"sub/",     "sub/.git/",      "sub/.git/hooks/",
                                       "sub/.hg/", "sub/.hg/hooks/", "mod/",
                                       "granted/", "granted/.git/",  "granted/.git/hooks/",
                                       "sub/a/",   "sub/a/lib/",     "sub/a/lib/.git/",
                                       "sub/b/",   "sub/b/lib/",     "sub/b/lib/.hg/"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(dirs); i++)
        rig_put(&r, dirs[i], NULL);
    rig_put(&r, "sub/.git/config", "[core]\n");
    rig_put(&r, "mod/.git", "gitdir: ../.git/modules/mod\n");
    list_all(&r, before);
    rig_allow(&r, "sub/**");
    rig_allow(&r, "mod/**");
    rig_allow(&r, "granted/**");
    rig_allow(&r, "granted/.git/**");
    assert_true(rig_launch(&r));
    /* readable */
    must(&r, "cat sub/.git/config mod/.git");
    list_all(&r, after);
    assert_memory_equal(before, after, sizeof(before));
    /* not writable, by no detour */
    must_not(&r, "echo x > sub/.git/hooks/pre-commit", "Read-only file system");
    must_not(&r, "echo x >> sub/.git/config", "Read-only file system");
    must_not(&r, "chmod 755 sub/.git/hooks", "Read-only file system");
    must_not(&r, "mv sub/.git sub/git", "busy");
    must_not(&r, "rm -rf sub/.git", "Read-only file system");
    must_not(&r, "ln sub/.git/config sub/config", "Invalid cross-device link");
    must_not(&r, "echo x > sub/a/lib/.git/config", "Read-only file system");
    must_not(&r, "mv sub/a/lib sub/a/old", "busy"); /* and a copy with another .git in its place */
    must_not(&r, "mv sub/a sub/old", "busy");
    must_not(&r, "mv -T sub/b sub/a", "busy");
    must_not(&r, EXCHANGE("sub/b", "sub/a"), "busy");
    must_not(&r, "echo 'gitdir: /tmp' > mod/.git", "Read-only file system");
    must_not(&r, "rm -f mod/.git", "busy");
    /* control: the same beside it */
    must(&r, "echo x > sub/.hg/hooks/pre-commit && mv sub/.hg sub/hg && rm -rf sub/hg");
    must(&r, "echo x > mod/git");
    must(&r, "mkdir sub/c");
    must(&r, EXCHANGE("sub/b", "sub/c"));
    must(&r, EXCHANGE("sub/b", "sub/c") " && rmdir sub/c");
    must(&r, "mv sub/b/lib sub/b/old && mv sub/b sub/c && mv sub/c sub/b");
    must(&r, "echo x > sub/a/x && echo x > sub/a/lib/x && mv sub/a/lib/x sub/a/y && "
             "mkdir sub/a/lib/n && mv sub/a/lib/n sub/a/lib/m && rm -r sub/a/lib/m sub/a/x");
    /* and where the operator named it */
    must(&r, "echo x > granted/.git/hooks/pre-commit");
    rig_exit(&r, 0);
    rig_close(&r);
}

/* ---- sockets and FIFOs ---- */

static void test_nested_git(void **state)
{
    (void)state;
    rig_need_root();
    nested_git(0);
    nested_git(RIG_USER);
}

#define CONNECT(path)                                                                              \
    "python3 -c 'import socket\ns=socket.socket(socket.AF_UNIX)\ns.connect(\"" path "\")\n"        \
    "print(\"connected\")'"

static void connects_from_here(const struct rig *r, const char *name)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%.60s/%.40s", r->ws, name);
    BR_CLEANUP_FD int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
}

static void host_sockets(uid_t uid)
{
    struct rig r;
    uint8_t before[32], after[32];
    char path[512];
    int s[4];
    rig_open(&r, uid);
    rig_put(&r, "run/", NULL);
    rig_put(&r, "src/", NULL);
    rig_put(&r, "src/.git/", NULL);
    rig_allow(&r, "src/**");
    static const char *const names[] = {"run/s", "src/s", "src/.git/ipc"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++) {
        path_in(&r, names[i], path);
        s[i] = listen_at(&r, path);
    }
    path_in(&r, "run/fifo", path);
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(chmod(path, 0666), 0);
    list_all(&r, before);
    assert_true(rig_launch(&r));
    list_all(&r, after);
    assert_memory_equal(before, after, sizeof(before));
    must_not(&r, CONNECT("run/s"), "Permission denied");
    must_not(&r, CONNECT("src/s"), "Permission denied");
    must_not(&r, CONNECT("src/.git/ipc"), "Permission denied");
    must(&r, "test -f run/s && test ! -s run/s && test -f run/fifo");
    must_not(&r, "rm -f src/s", "busy");
    must_not(&r, "mv src/s src/t", "busy");
    must_not(&r, "exec 5> run/fifo", "Read-only file system");
    for (unsigned i = 0; i < BR_ARRAY_LEN(names); i++)
        connects_from_here(&r, names[i]);
    /* control, and the gap that docs/decisions names: a socket that appears while it runs */
    path_in(&r, "run/late", path);
    s[3] = listen_at(&r, path);
    const char *abi = strstr(r.receipt, "\"landlock\":");
    assert_non_null(abi);
    if (atoi(abi + strlen("\"landlock\":")) >= 9)
        must_not(&r, CONNECT("run/late"), "Permission denied");
    else
        must(&r, CONNECT("run/late"));
    /* its own sockets work */
    must(&r, "cd /tmp && python3 -c 'import socket\ns=socket.socket(socket.AF_UNIX)\n"
             "s.bind(\"own\")\ns.listen()\nc=socket.socket(socket.AF_UNIX)\nc.connect(\"own\")'");
    rig_exit(&r, 0);
    for (unsigned i = 0; i < BR_ARRAY_LEN(s); i++)
        close(s[i]);
    rig_close(&r);
}

static void test_host_sockets(void **state)
{
    (void)state;
    rig_need_root();
    host_sockets(0);
    host_sockets(RIG_USER);
}

/* ---- mounts ---- */

/* What the host has mounted below the workspace, writable, set-id and with devices. */
static void test_nested_mount_is_read_only(void **state)
{
    struct rig r;
    char path[512], inner[512];
    const char *out;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    rig_put(&r, "data/", NULL);
    path_in(&r, "data", path);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=1m,mode=0777"), 0);
    path_in(&r, "data/more", inner);
    assert_int_equal(mkdir(inner, 0777), 0);
    assert_int_equal(mount("tmpfs", inner, "tmpfs", 0, "size=1m,mode=0777"), 0);
    rig_put(&r, "src/", NULL);
    rig_start(&r);
    rig_allow(&r, "src/**");
    assert_true(rig_launch(&r));
    must_not(&r, "echo x > data/x", "Read-only file system");
    must_not(&r, "echo x > data/more/x", "Read-only file system");
    must(&r, "echo x > src/x");
    assert_int_equal(
        rig_sh(&r, "grep -c ' /workspace/data.* ro,nosuid,nodev' /proc/self/mountinfo", &out), 0);
    assert_string_equal(out, "2\n");
    assert_int_equal(rig_sh(&r, "grep ' /workspace/src ' /proc/self/mountinfo", &out), 0);
    assert_non_null(strstr(out, " rw,nosuid,nodev"));
    rig_exit(&r, 0);
    assert_int_equal(umount(inner), 0);
    assert_int_equal(umount(path), 0);
    rig_close(&r);
}

/* As in a container: files there have other devices than directories. */
static void test_overlay(void **state)
{
    struct rig r;
    char upper[512], options[2048];
    const char *out;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    rig_put(&r, "src/", NULL);
    rig_put(&r, "src/below", "below\n");
    rig_put(&r, "file", "x\n");
    snprintf(upper, sizeof(upper), "%s/upper", r.dir);
    assert_int_equal(mkdir(upper, 0755), 0);
    assert_int_equal(mount("tmpfs", upper, "tmpfs", 0, "size=1m"), 0);
    snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s/u,workdir=%s/w", r.ws, upper,
             upper);
    for (const char *const *d = (const char *const[]){"u", "w", NULL}; *d; d++) {
        char path[600];
        snprintf(path, sizeof(path), "%s/%s", upper, *d);
        assert_int_equal(mkdir(path, 0755), 0);
        assert_int_equal(chown(path, RIG_OWNER, RIG_OWNER), 0);
    }
    assert_int_equal(mount("overlay", r.ws, "overlay", 0, options), 0);
    rig_start(&r);
    r.plan.identity = BR_IDENTITY_OWNER;
    rig_allow(&r, "src/**");
    rig_allow(&r, "file");
    assert_true(rig_launch(&r));
    must(&r, "echo new > src/new && echo y > file && echo z > src/below");
    must_not(&r, "echo x > other", "Read-only file system");
    assert_int_equal(rig_sh(&r, "cat src/below src/new file", &out), 0);
    assert_string_equal(out, "z\nnew\ny\n");
    rig_exit(&r, 0);
    assert_int_equal(umount(r.ws), 0);
    assert_int_equal(umount(upper), 0);
    rig_close(&r);
}

static void test_noexec(void **state)
{
    static const struct {
        uint32_t flag;
        const char *dir;
    } places[] = {
        {BR_PLAN_TMP_NOEXEC, "/tmp"},
        {BR_PLAN_HOME_NOEXEC, "/home/agent"},
        {BR_PLAN_WORKSPACE_NOEXEC, "/workspace/src"},
    };
    (void)state;
    rig_need_root();
    for (unsigned with = 0; with <= BR_ARRAY_LEN(places); with++) {
        struct rig r;
        char script[256];
        rig_open(&r, 0);
        rig_put(&r, "src/", NULL);
        rig_allow(&r, "src/**");
        r.plan.flags &=
            ~(uint32_t)(BR_PLAN_TMP_NOEXEC | BR_PLAN_HOME_NOEXEC | BR_PLAN_WORKSPACE_NOEXEC);
        if (with < BR_ARRAY_LEN(places))
            r.plan.flags |= places[with].flag;
        assert_true(rig_launch(&r));
        for (unsigned i = 0; i < BR_ARRAY_LEN(places); i++) {
            snprintf(script, sizeof(script), "cp /bin/true %s/t && %s/t", places[i].dir,
                     places[i].dir);
            if (i == with)
                must_not(&r, script, "Permission denied");
            else
                must(&r, script);
            snprintf(script, sizeof(script),
                     "grep ' %s ' /proc/self/mountinfo | grep -q nosuid,nodev", places[i].dir);
            must(&r, script);
        }
        rig_exit(&r, 0);
        rig_close(&r);
    }
}

/* A plan without a workspace shows none of it. */
static void test_no_workspace(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    rig_put(&r, "file", "x");
    r.plan.workspace = BR_WORKSPACE_NONE;
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "pwd; ls -A /workspace", &out), 0);
    assert_string_equal(out, "/workspace\n");
    must_not(&r, "echo x > /workspace/x", "Read-only file system");
    rig_exit(&r, 0);
    rig_close(&r);
}

/* ---- /proc and /dev ---- */

static void test_proc(void **state)
{
    static const char *const empty[] = {
        "kcore",     "sysrq-trigger", "keys",       "key-users", "timer_list", "sched_debug",
        "schedstat", "latency_stats", "locks",      "cmdline",   "config.gz",  "kallsyms",
        "modules",   "interrupts",    "partitions", "diskstats", "swaps",
    };
    static const char *const gone[] = {"acpi", "asound", "bus", "fs", "irq", "pressure", "scsi"};
    static const char *const needed[] = {"cpuinfo", "meminfo",     "stat",
                                         "uptime",  "loadavg",     "version",
                                         "mounts",  "self/status", "sys/kernel/pid_max"};
    static const char *const roots_own[] = {"kmsg",     "kpagecount",  "kpageflags",  "kpagecgroup",
                                            "slabinfo", "vmallocinfo", "pagetypeinfo"};
    struct rig r;
    char script[256];
    (void)state;
    rig_need_root();
    for (int weak = 0; weak < 2; weak++) {
        unsigned seen = 0;
        rig_make(&r, 0);
        r.weak = weak ? "proc" : NULL;
        rig_start(&r);
        assert_true(rig_launch(&r));
        for (unsigned i = 0; i < BR_ARRAY_LEN(empty); i++) {
            snprintf(script, sizeof(script), "test -n \"$(head -c 64 /proc/%s 2>/dev/null)\"",
                     empty[i]);
            bool says = rig_sh(&r, script, NULL) == 0;
            seen += says;
            if (says && !weak)
                fail_msg("/proc/%s says something", empty[i]);
            snprintf(script, sizeof(script), "exec 5>> /proc/%s", empty[i]);
            if (!weak && rig_sh(&r, script, NULL) == 0)
                fail_msg("/proc/%s is writable", empty[i]);
        }
        for (unsigned i = 0; i < BR_ARRAY_LEN(gone); i++) {
            snprintf(script, sizeof(script), "test -n \"$(ls -A /proc/%s 2>/dev/null)\"", gone[i]);
            bool says = rig_sh(&r, script, NULL) == 0;
            seen += says;
            if (says && !weak)
                fail_msg("/proc/%s is not empty", gone[i]);
        }
        if (weak) /* control: there is something to mask */
            assert_true(seen > 8);
        for (unsigned i = 0; i < BR_ARRAY_LEN(needed); i++) {
            snprintf(script, sizeof(script), "test -n \"$(cat /proc/%s)\"", needed[i]);
            must(&r, script);
        }
        for (unsigned i = 0; i < BR_ARRAY_LEN(roots_own); i++) {
            snprintf(script, sizeof(script), "test -e /proc/%s && head -c1 /proc/%s", roots_own[i],
                     roots_own[i]);
            assert_int_not_equal(rig_sh(&r, script, NULL), 0);
        }
        rig_exit(&r, 0);
        rig_close(&r);
    }
}

static void test_dev(void **state)
{
    struct rig r;
    const char *out;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    assert_true(rig_launch(&r));
    assert_int_equal(
        rig_sh(&r, "cd /dev && stat -c '%n %F %t:%T' null zero full random urandom tty", &out), 0);
    assert_string_equal(out,
                        "null character special file 1:3\nzero character special file 1:5\n"
                        "full character special file 1:7\nrandom character special file 1:8\n"
                        "urandom character special file 1:9\ntty character special file 5:0\n");
    assert_int_equal(rig_sh(&r, "ls /dev | tr '\\n' ' '", &out), 0);
    assert_string_equal(out, "fd full null random shm stderr stdin stdout tty urandom zero ");
    rig_exit(&r, 0);
    rig_close(&r);
}

/* A host on which /dev/null is something else. */
static void test_dev_is_not_what_it_seems(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    assert_int_equal(mount("/dev/zero", "/dev/full", NULL, MS_BIND, NULL), 0);
    rig_start(&r);
    bool started = rig_launch_at(&r, -1);
    assert_int_equal(umount("/dev/full"), 0);
    assert_false(started);
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    assert_non_null(strstr(r.text, "'/dev/full' is not that device"));
    assert_int_equal(rig_children(r.pid), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_changed_since_the_plan),
        cmocka_unit_test(test_sources_missing),
        cmocka_unit_test(test_nested_git),
        cmocka_unit_test(test_host_sockets),
        cmocka_unit_test(test_nested_mount_is_read_only),
        cmocka_unit_test(test_overlay),
        cmocka_unit_test(test_noexec),
        cmocka_unit_test(test_no_workspace),
        cmocka_unit_test(test_proc),
        cmocka_unit_test(test_dev),
        cmocka_unit_test(test_dev_is_not_what_it_seems),
    };
    /* mounts of these tests reach the launcher, and nobody else */
    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
         mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0))
        return 1;
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
