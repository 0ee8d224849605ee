/*
 * Leases through real sandboxes: what the receipt says of them, what is copied into a workspace
 * lease and what is not, state leases that outlive a run, everything that is refused, and that
 * nothing is left. Quotas are attacked in test_launch_quota.c, set-up in test_launch_leasefault.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "launch/test_lease_rig.h"

static void open_with(struct rig *r, uid_t uid)
{
    rig_need_root();
    rig_open(r, uid);
    rig_config(r);
}

/* Runs a script inside and compares all of its output. */
static void says(struct rig *r, const char *script, const char *expected)
{
    const char *out;
    (void)rig_sh(r, script, &out);
    if (strcmp(out, expected) != 0)
        fail_msg("%s\nexpected: %s\ngot: %s", script, expected, out);
}

static void path_of(const struct rig *r, const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", r->ws, name);
}

static void give(const struct rig *r, const char *path)
{
    uid_t uid = r->uid ? r->uid : RIG_OWNER;
    assert_int_equal(lchown(path, uid, uid), 0);
}

/* ---- the receipt ---- */

static void test_receipt(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 0);
    rig_put(&r, "a", "hello");
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_EXT4, 8 * MIB, 512);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 100); /* no multiple of 16 */
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_TMPFS, 4 * MIB, 64);
    assert_true(rig_launch(&r));
    assert_int_equal(lease_number(&r, "workspace", "plannedBytes"), 8 * MIB);
    assert_int_equal(lease_number(&r, "workspace", "backingBytes"), 8 * MIB);
    assert_true(lease_number(&r, "workspace", "bytes") < 8 * (long long)MIB);
    assert_true(lease_number(&r, "workspace", "freeBytes") > 7 * (long long)MIB);
    assert_int_equal(lease_number(&r, "workspace", "inodes"), 512);
    assert_int_equal(lease_number(&r, "workspace", "freeInodes"), 512 - 10 - 1);
    assert_int_equal(lease_number(&r, "workspace", "files"), 1);
    assert_int_equal(lease_number(&r, "state", "inodes"), 96);
    assert_int_equal(lease_number(&r, "state", "freeInodes"), 86);
    assert_int_equal(lease_number(&r, "scratch", "bytes"), 4 * MIB);
    assert_int_equal(lease_number(&r, "scratch", "inodes"), 64);
    assert_int_equal(lease_number(&r, "scratch", "freeInodes"), 63);
    /* the sandbox's own, and empty but for the copy */
    says(&r,
         "cd / && stat -c '%n %u %g %a' workspace state scratch && find workspace state scratch",
         "workspace 1000 1000 755\nstate 1000 1000 755\nscratch 1000 1000 755\n"
         "workspace\nworkspace/a\nstate\nscratch\n");
    says(&r, "pwd; cat a", "/workspace\nhello");
    assert_int_equal(lease_loops(&r), 2);
    rig_exit(&r, 0);
    assert_int_equal(lease_files(&r, ""), 2); /* templates */
    lease_close(&r);
}

static void test_mount_flags(void **state)
{
    static const uint8_t kinds[] = {BR_QUOTA_EXT4, BR_QUOTA_TMPFS};
    static const char script[] = "for d in /workspace /state /scratch; do cp /bin/true $d/true; "
                                 "$d/true 2>/dev/null; echo $?; done";
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct rig r;
        open_with(&r, 0);
        for (int d = 0; d < BR_DISKS; d++)
            lease_plan(&r, (enum br_disk)d, kinds[i], 4 * MIB, 64);
        r.plan.flags |= BR_PLAN_SCRATCH_NOEXEC | BR_PLAN_STATE_NOEXEC;
        assert_true(rig_launch(&r));
        says(&r, script, "0\n126\n126\n");
        says(&r,
             "grep -c '/\\(workspace\\|state\\|scratch\\) rw,nosuid,nodev' /proc/self/mountinfo",
             "3\n");
        rig_exit(&r, 0);
        r.plan.flags &= ~(uint32_t)(BR_PLAN_SCRATCH_NOEXEC | BR_PLAN_STATE_NOEXEC);
        r.plan.flags |= BR_PLAN_WORKSPACE_NOEXEC;
        assert_true(rig_launch(&r));
        says(&r, script, "126\n0\n0\n");
        rig_exit(&r, 0);
        lease_close(&r);
    }
}

/* ---- copy-in ---- */

static void make_tree(struct rig *r)
{
    char path[256], other[256];
    rig_put(r, "plain", "text");
    rig_put(r, "empty", "");
    rig_put(r, "suid", "s");
    path_of(r, "suid", path);
    assert_int_equal(chmod(path, 06751), 0);
    rig_put(r, "dir/", NULL);
    rig_put(r, "dir/deep/", NULL);
    rig_put(r, "dir/deep/file", "below");
    path_of(r, "dir/deep", path);
    assert_int_equal(chmod(path, 0555), 0);
    path_of(r, "link", path);
    assert_int_equal(symlink("/etc/shadow", path), 0);
    give(r, path);
    path_of(r, "plain", path);
    path_of(r, "hard", other);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(setxattr(path, "user.note", "x", 1, 0), 0);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    rig_put(r, "sparse", "begin");
    path_of(r, "sparse", path);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0 && pwrite(fd, "end", 3, 64 * (off_t)MIB) == 3);
}

/* What is no file, directory or link; and a mount. */
static void make_odd(struct rig *r)
{
    char path[256];
    path_of(r, "fifo", path);
    assert_int_equal(mkfifo(path, 0644), 0);
    give(r, path);
    path_of(r, "device", path);
    assert_int_equal(mknod(path, S_IFCHR | 0666, makedev(1, 3)), 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    path_of(r, "socket", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    BR_CLEANUP_FD int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
}

static void copy_in(uid_t uid, uint8_t kind)
{
    struct rig r;
    char path[256];
    const char *out;
    rig_need_root();
    rig_make(&r, uid);
    make_tree(&r);
    make_odd(&r);
    rig_put(&r, "mounted/", NULL);
    rig_put(&r, "mounted/covered", "under the mount");
    path_of(&r, "mounted", path);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=64k"), 0);
    rig_put(&r, "mounted/on-top", "in the mount");
    rig_start(&r);
    rig_config(&r);
    lease_plan(&r, BR_DISK_WORKSPACE, kind, 8 * MIB, 512);
    assert_true(rig_launch(&r));
    says(&r,
         "find . -printf '%y %m %s %p\\n' | grep -v '^d.* \\.$' | sed 's/^d \\([0-7]*\\) [0-9]*/d "
         "\\1 -/' | sort",
         "d 555 - ./dir/deep\nd 755 - ./dir\nd 755 - ./mounted\nf 644 0 ./empty\n"
         "f 644 4 ./hard\nf 644 4 ./plain\nf 644 5 ./dir/deep/file\nf 644 67108867 ./sparse\n"
         "f 751 1 ./suid\nl 777 11 ./link\n");
    says(&r, "cat plain dir/deep/file; readlink link; stat -c '%h %Y' plain; find . ! -user agent",
         "textbelow/etc/shadow\n1 1000000000\n");
    says(&r, "test $(stat -c %b sparse) -le 32 && tail -c 3 sparse; head -c 5 sparse", "endbegin");
    says(&r, "python3 -c 'import os; print(os.listxattr(\"plain\"))'", "[]\n");
    assert_int_equal(lease_number(&r, "workspace", "files"), 6);
    assert_int_equal(lease_number(&r, "workspace", "directories"), 2);
    assert_int_equal(lease_number(&r, "workspace", "links"), 1);
    assert_int_equal(lease_number(&r, "workspace", "leftOut"), 4);
    /* a copy: what changes in it changes nothing outside */
    assert_int_equal(rig_sh(&r, "echo changed > plain; rm -r mounted empty", &out), 0);
    path_of(&r, "plain", path);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[16] = "";
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    assert_string_equal(text, "text");
    path_of(&r, "empty", path);
    assert_int_equal(access(path, F_OK), 0);
    rig_exit(&r, 0);
    path_of(&r, "mounted", path);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
    path_of(&r, "dir/deep", path);
    assert_int_equal(chmod(path, 0755), 0);
    lease_close(&r);
}

static void test_copy_ext4(void **state)
{
    (void)state;
    copy_in(0, BR_QUOTA_EXT4);
}

static void test_copy_tmpfs(void **state)
{
    (void)state;
    copy_in(0, BR_QUOTA_TMPFS);
}

static void test_copy_as_user(void **state)
{
    (void)state;
    copy_in(RIG_USER, BR_QUOTA_TMPFS);
}

static void test_too_many_files(void **state)
{
    struct rig r;
    char name[32];
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 1 * MIB, 32);
    for (int i = 0; i < 31; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        rig_put(&r, name, "");
    }
    assert_true(rig_launch(&r)); /* 31 and the root */
    rig_exit(&r, 0);
    rig_put(&r, "one-more", "");
    lease_refused(&r, BR_E_LIMIT_EXCEEDED,
                  "more than the 32 files and directories that are leased");
    r.plan.disks[BR_DISK_WORKSPACE] = (struct br_quota){BR_QUOTA_EXT4, 4 * MIB, 32};
    lease_refused(&r, BR_E_LIMIT_EXCEEDED,
                  "more than the 32 files and directories that are leased");
    lease_close(&r);
}

static void test_too_many_bytes(void **state)
{
    struct rig r;
    char *text = calloc(1, 4 * MIB + 1);
    (void)state;
    assert_non_null(text);
    open_with(&r, 0);
    memset(text, 't', 4 * MIB);
    rig_put(&r, "a", text);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 4 * MIB, 32);
    assert_true(rig_launch(&r)); /* all of it */
    says(&r, "wc -c < a", "4194304\n");
    rig_exit(&r, 0);
    rig_put(&r, "b", "x");
    lease_refused(&r, BR_E_LIMIT_EXCEEDED, "4198400 bytes and 3 files");
    r.plan.disks[BR_DISK_WORKSPACE].kind = BR_QUOTA_EXT4;
    lease_refused(&r, BR_E_LIMIT_EXCEEDED, "4198400 bytes and 3 files");
    free(text);
    lease_close(&r);
}

static void test_too_deep(void **state)
{
    struct rig r;
    char name[256] = "";
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 4 * MIB, 256);
    for (int i = 0; i < 99; i++) { /* with the root: 100 */
        strcat(name, "d/");
        rig_put(&r, name, NULL);
    }
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    strcat(name, "d/");
    rig_put(&r, name, NULL);
    lease_refused(&r, BR_E_LIMIT_EXCEEDED, "directories nested deeper than 100, at 'd/d/");
    lease_close(&r);
}

/* What the owner of the workspace cannot read is not copied, although the launcher could. */
static void test_unreadable(void **state)
{
    static const uid_t uids[] = {0, 1}; /* 1: RIG_USER */
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct rig r;
        char path[256];
        open_with(&r, uids[i] ? RIG_USER : 0);
        lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 4 * MIB, 64);
        rig_put(&r, "secret", "root's");
        path_of(&r, "secret", path);
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chmod(path, 0600), 0);
        lease_refused(&r, BR_E_INVALID_WORKSPACE, "'secret' of the workspace could not be read");
        assert_int_equal(chmod(path, 0644), 0); /* control: readable for everybody */
        assert_true(rig_launch(&r));
        says(&r, "cat secret", "root's");
        rig_exit(&r, 0);
        lease_close(&r);
    }
}

/* Until it is killed: a directory and a link to another place change places all the time. */
static pid_t start_swapping(const char *a, const char *b)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    for (;;)
        (void)renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

static void test_swapped(void **state)
{
    struct rig r;
    char a[256], b[256], secret[256], via[300];
    unsigned copied = 0, seen = 0;
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 4 * MIB, 64);
    rig_put(&r, "x/", NULL);
    rig_put(&r, "x/file", "harmless");
    snprintf(secret, sizeof(secret), "%s/outside", r.dir);
    assert_int_equal(mkdir(secret, 0755), 0);
    snprintf(via, sizeof(via), "%s/file", secret);
    BR_CLEANUP_FD int fd = open(via, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && write(fd, "marker", 6) == 6);
    path_of(&r, "x", a);
    path_of(&r, "y", b);
    assert_int_equal(symlink("../outside", b), 0);
    pid_t swapper = start_swapping(a, b);
    for (int i = 0; i < 20; i++) {
        if (!rig_launch_at(&r, -1)) {
            assert_int_equal(r.code, BR_E_INVALID_WORKSPACE);
            continue;
        }
        copied++;
        says(&r, "grep -rl marker . /workspace/*/ 2>/dev/null", "");
        rig_exit(&r, 0);
    }
    /* control: who goes by names is led outside */
    snprintf(via, sizeof(via), "%s/x/file", r.ws);
    for (int i = 0; i < 100000 && !seen; i++) {
        char text[8] = "";
        BR_CLEANUP_FD int f = open(via, O_RDONLY | O_CLOEXEC);
        seen += f >= 0 && read(f, text, 6) == 6 && strcmp(text, "marker") == 0;
    }
    assert_int_equal(kill(swapper, SIGKILL), 0);
    assert_int_equal(waitpid(swapper, NULL, 0), swapper);
    assert_true(seen && copied);
    lease_close(&r);
}

/* ---- state leases ---- */

static void test_state_outlives(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    strcpy(r.plan.state, "notes");
    assert_true(rig_launch(&r));
    says(&r, "ls -A /state; echo kept > /state/file; mkdir /state/d", "");
    rig_exit(&r, 0);
    assert_int_equal(lease_files(&r, "state-notes.img"), 1);
    assert_true(rig_launch(&r));
    says(&r, "cat /state/file; stat -c '%u %g' /state/file", "kept\n1000 1000\n");
    rig_exit(&r, 0);
    r.plan.state[0] = 0; /* control: without a name it is another one each time */
    assert_true(rig_launch(&r));
    says(&r, "ls -A /state", "");
    rig_exit(&r, 0);
    /* the same name with another quota */
    strcpy(r.plan.state, "notes");
    r.plan.disks[BR_DISK_STATE].bytes = 5 * MIB;
    lease_refused(&r, BR_E_INVALID_CONFIG, "another size");
    r.plan.disks[BR_DISK_STATE] = (struct br_quota){BR_QUOTA_EXT4, 4 * MIB, 128};
    lease_refused(&r, BR_E_INVALID_CONFIG, "64 inodes");
    lease_close(&r);
}

static void test_state_one_at_a_time(void **state)
{
    struct rig a, b;
    char from[160], to[160];
    (void)state;
    open_with(&a, 0);
    rig_need_root();
    rig_make(&b, 0);
    /* the same state directory */
    snprintf(from, sizeof(from), "%s/state", a.dir);
    snprintf(to, sizeof(to), "%s/state", b.dir);
    assert_int_equal(mkdir(to, 0700), 0);
    assert_int_equal(mount(from, to, NULL, MS_BIND, NULL), 0);
    rig_start(&b);
    rig_config(&b);
    lease_plan(&a, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_plan(&b, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    strcpy(a.plan.state, "one");
    strcpy(b.plan.state, "one");
    assert_true(rig_launch(&a));
    lease_refused(&b, BR_E_IN_USE, "'one' is in use by another run");
    assert_int_equal(strncmp(b.text, "the state lease 'one'", 21), 0); /* said once */
    strcpy(b.plan.state, "two");                                       /* control */
    assert_true(rig_launch(&b));
    rig_exit(&b, 0);
    says(&a, "echo still > /state/f; cat /state/f", "still\n");
    rig_exit(&a, 0);
    strcpy(b.plan.state, "one");
    assert_true(rig_launch(&b));
    says(&b, "cat /state/f", "still\n");
    rig_exit(&b, 0);
    br_close(&b.init);
    assert_int_equal(umount2(to, MNT_DETACH), 0);
    lease_close(&b);
    lease_close(&a);
}

static void copy_file(const char *from, const char *to)
{
    BR_CLEANUP_BUF struct br_buf data = BR_BUF_INIT(16 * MIB);
    BR_CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    BR_CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(br_read_all(in, &data, from, NULL), 0);
    assert_int_equal(br_write_all(out, data.data, data.len), 0);
}

/* As after a crash of the host: an image that was in use, and was never unmounted. */
static void test_state_unclean(void **state)
{
    struct rig r;
    char image[512], copy[512];
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    strcpy(r.plan.state, "s");
    assert_true(rig_launch(&r));
    says(&r, "echo kept > /state/file; sync /state/file /state", "");
    snprintf(image, sizeof(image), "%s", lease_file(&r, "state-s.img"));
    snprintf(copy, sizeof(copy), "%s/copy", r.dir);
    copy_file(image, copy);
    rig_exit(&r, 0);
    copy_file(copy, image);
    assert_true(rig_launch(&r)); /* repaired */
    says(&r, "cat /state/file; echo more > /state/f2; cat /state/f2", "kept\nmore\n");
    rig_exit(&r, 0);
    /* one that cannot be repaired without asking: the bitmaps and tables are not there */
    BR_CLEANUP_FD int fd = open(copy, O_WRONLY | O_CLOEXEC);
    char *junk = malloc(MIB);
    assert_non_null(junk);
    memset(junk, 0xa5, MIB);
    assert_int_equal(pwrite(fd, junk, MIB, 4096), MIB);
    free(junk);
    copy_file(copy, image);
    lease_refused(&r, BR_E_INVALID_CONFIG, "could not be repaired without asking");
    lease_close(&r);
}

/* ---- refused: what lies in the state directory ---- */

static void test_lease_root(void **state)
{
    struct rig r;
    char path[512], away[512];
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    assert_true(rig_launch(&r)); /* control; and makes it */
    rig_exit(&r, 0);
    snprintf(path, sizeof(path), "%s", lease_file(&r, ""));
    snprintf(away, sizeof(away), "%s/away", r.dir);
    assert_int_equal(chmod(path, 0770), 0);
    lease_refused(&r, BR_E_INVALID_CONFIG, "mode 0770");
    assert_int_equal(chmod(path, 0702), 0);
    lease_refused(&r, BR_E_INVALID_CONFIG, "mode 0702");
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(chown(path, RIG_OWNER, 0), 0);
    lease_refused(&r, BR_E_INVALID_CONFIG, "belongs to uid 59998");
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(symlink(away, path), 0);
    lease_refused(&r, BR_E_INVALID_CONFIG, "no directory of its own");
    assert_int_equal(unlink(path), 0);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    lease_refused(&r, BR_E_INVALID_CONFIG, "no directory of its own");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(away, path), 0);
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    lease_close(&r);
}

/* Each way to spoil a file of the lease root, for a template and for a state image. */
static void spoil(struct rig *r, const char *name)
{
    char path[512], away[512], full[512];
    snprintf(path, sizeof(path), "%s", lease_file(r, name));
    snprintf(away, sizeof(away), "%s/away", r->dir);
    assert_int_equal(link(path, away), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "hard link");
    assert_int_equal(unlink(away), 0);
    assert_int_equal(chown(path, RIG_OWNER, 0), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "somebody else");
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(chmod(path, 0644), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "open to others");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 4 * MIB + 1), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "another size");
    assert_int_equal(truncate(path, 4 * MIB - 1), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "another size");
    assert_int_equal(truncate(path, 4 * MIB), 0);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(symlink(away, path), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "could not be opened");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "no regular file");
    assert_int_equal(unlink(path), 0);
    snprintf(full, sizeof(full), "head -c 4194304 /dev/zero > %s && chmod 600 %s", path, path);
    assert_int_equal(system(full), 0);
    lease_refused(r, BR_E_INVALID_CONFIG, "no file system of a lease");
    assert_int_equal(rename(away, path), 0);
    assert_true(rig_launch(r)); /* control: all is well again */
    rig_exit(r, 0);
}

static void test_spoiled(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    spoil(&r, "ext4-1-4194304-64.template");
    strcpy(r.plan.state, "s");
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    spoil(&r, "state-s.img");
    lease_close(&r);
}

/* ---- refused: what the host does not have ---- */

static void test_host_is_full(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_make(&r, 0);
    lease_state_tmpfs(&r, "6m");
    rig_start(&r);
    rig_config(&r);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    assert_true(rig_launch(&r)); /* control */
    rig_exit(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 8 * MIB, 64);
    lease_refused(&r, BR_E_REQUIREMENT_MISSING, "8388608 bytes could not be reserved");
    br_close(&r.init);
    lease_state_umount(&r);
    lease_close(&r);
}

static void test_no_backend(void **state)
{
    static const char *const tools[] = {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"};
    struct rig r;
    (void)state;
    open_with(&r, RIG_USER);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_refused(&r, BR_E_REQUIREMENT_MISSING, "--profile workspace-tmpfs-v1");
    assert_false(rig_resolve(&r, -1)); /* and already when it is planned */
    assert_int_equal(r.code, BR_E_REQUIREMENT_MISSING);
    r.plan.disks[BR_DISK_SCRATCH].kind = BR_QUOTA_TMPFS; /* control: what it offers */
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    lease_close(&r);
    for (unsigned i = 0; i < BR_ARRAY_LEN(tools); i++)
        if (access(tools[i], X_OK) == 0)
            assert_int_equal(mount("/dev/null", tools[i], NULL, MS_BIND, NULL), 0);
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_refused(&r, BR_E_REQUIREMENT_MISSING, "Install e2fsprogs");
    lease_close(&r);
    assert_int_equal(umount2(tools[0], MNT_DETACH), 0);
    assert_int_equal(mount("/dev/null", "/dev/loop-control", NULL, MS_BIND, NULL), 0);
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_refused(&r, BR_E_REQUIREMENT_MISSING, "no loop device");
    lease_close(&r);
    assert_int_equal(umount2("/dev/loop-control", MNT_DETACH), 0);
}

static void test_no_state_directory(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    lease_refused(&r, BR_E_REQUIREMENT_MISSING, "no state directory");
    lease_close(&r);
}

static void test_more_than_memory(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_TMPFS, 32 * MIB, 64);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_TMPFS, 32 * MIB, 64);
    r.plan.limits.memory_bytes = 64 * MIB - 4096;
    lease_refused(&r, BR_E_LIMIT_EXCEEDED, "67108864 bytes");
    r.plan.limits.memory_bytes = 64 * MIB;
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    lease_close(&r);
}

/* A copy that the memory limit has no room for, although the lease has. */
static void test_copy_without_memory(void **state)
{
    struct rig r;
    char *text = calloc(1, 31 * MIB + 1);
    (void)state;
    assert_non_null(text);
    memset(text, 't', 31 * MIB);
    open_with(&r, 0);
    rig_put(&r, "big", text);
    free(text);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 31 * MIB + 4096, 64);
    r.plan.limits.memory_bytes = 31 * MIB + 4096;
    lease_refused(&r, BR_E_LIMIT_EXCEEDED, "was killed, as by the sandbox's memory limit");
    r.plan.limits.memory_bytes = 64 * MIB;
    assert_true(rig_launch(&r));
    rig_exit(&r, 0);
    lease_close(&r);
}

/* ---- the end ---- */

/* How many descriptors of the launcher are images, or mounts of leases. */
static unsigned descriptors(const struct rig *r)
{
    char path[64], target[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)r->pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ssize_t k = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);
        target[k > 0 ? k : 0] = 0;
        n += strstr(target, "/leases") || strcmp(target, "/workspace") == 0 ||
             strcmp(target, "/state") == 0;
    }
    closedir(d);
    return n;
}

/* Many, one after another, with data that nobody has written to the disk yet. */
static void test_many(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 0);
    r.pool = "0";
    rig_put(&r, "file", "text");
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_EXT4, 8 * MIB, 64);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    strcpy(r.plan.state, "kept");
    for (int i = 0; i < 12; i++) {
        char script[128];
        assert_true(rig_launch(&r));
        assert_int_equal(descriptors(&r), 4); /* control */
        snprintf(script, sizeof(script),
                 "cat /state/n; echo %d > /state/n; "
                 "dd if=/dev/zero of=big bs=1M count=5 2>/dev/null",
                 i);
        char expected[16] = "";
        if (i > 0)
            snprintf(expected, sizeof(expected), "%d\n", i - 1);
        says(&r, i ? script : script + 14, expected);
        rig_exit(&r, 0);
        assert_int_equal(descriptors(&r), 0);
        lease_nothing_left(&r);
    }
    lease_close(&r);
}

/* "Stopped" is not verified while the loop device still holds the image. */
static void test_still_attached(void **state)
{
    struct rig r;
    char dev[32];
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_SCRATCH, BR_QUOTA_EXT4, 4 * MIB, 64);
    assert_true(rig_launch(&r));
    const char *p = strstr(r.receipt, "\"device\":\"");
    assert_non_null(p);
    assert_int_equal(sscanf(p, "\"device\":\"%31[^\"]", dev), 1);
    BR_CLEANUP_FD int held = open(dev, O_RDONLY | O_CLOEXEC);
    assert_true(held >= 0);
    assert_true(send(r.init, "exit 0", 6, MSG_NOSIGNAL) == 6);
    rig_wait_stopped(&r);
    assert_int_equal(r.verified, 0);
    assert_non_null(strstr(r.text, dev));
    br_close(&held);
    lease_close(&r);
}

static void test_killed(void **state)
{
    struct rig r;
    (void)state;
    open_with(&r, 0);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_EXT4, 4 * MIB, 64);
    assert_true(rig_launch(&r));
    says(&r,
         "(sleep 1000 > /workspace/held 2>&1 &) ; cd /workspace && (setsid sleep 1000 > fd 2>&1 &)",
         "");
    assert_int_equal(br_chan_send(&r.chan, BR_MSG_LAUNCH_KILL, 0, NULL, NULL), 0);
    rig_wait_stopped(&r);
    assert_int_equal(r.verified, 1);
    lease_nothing_left(&r);
    lease_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_receipt),
        cmocka_unit_test(test_mount_flags),
        cmocka_unit_test(test_copy_ext4),
        cmocka_unit_test(test_copy_tmpfs),
        cmocka_unit_test(test_copy_as_user),
        cmocka_unit_test(test_too_many_files),
        cmocka_unit_test(test_too_many_bytes),
        cmocka_unit_test(test_too_deep),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_state_outlives),
        cmocka_unit_test(test_state_one_at_a_time),
        cmocka_unit_test(test_state_unclean),
        cmocka_unit_test(test_lease_root),
        cmocka_unit_test(test_spoiled),
        cmocka_unit_test(test_host_is_full),
        cmocka_unit_test(test_no_backend),
        cmocka_unit_test(test_no_state_directory),
        cmocka_unit_test(test_copy_without_memory),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_more_than_memory),
        cmocka_unit_test(test_still_attached),
        cmocka_unit_test(test_killed),
    };
    lease_own_mounts();
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
