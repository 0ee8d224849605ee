/*
 * The comparison of a mount table with what was planned, and reading this process's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>

#include <cmocka.h>

#include "sandbox/mounts.h"
#include "sandbox/places.h"

#define RO_LOCKED (BR_MNT_RO | BR_MNT_NOSUID | BR_MNT_NODEV)

static void want_all(struct br_mount_wants *w)
{
    *w = (struct br_mount_wants){.n = 0};
    (void)br_want(w, "/", RO_LOCKED, 0);
    struct br_mount_want *tmp = br_want(w, "/tmp", BR_MNT_NOSUID | BR_MNT_NODEV, 0);
    tmp->type = "tmpfs";
    tmp->bytes = 8191; /* two pages */
    tmp->inodes = 7;
    (void)br_want(w, "/workspace", RO_LOCKED, BR_MNT_NOEXEC);
    (void)br_want(w, "/workspace/a b", BR_MNT_NOSUID | BR_MNT_NODEV, BR_MNT_RO);
    br_want(w, "/workspace", RO_LOCKED, BR_MNT_NOEXEC)->kind = BR_WANT_BELOW;
    br_want(w, "/proc/keys", RO_LOCKED, 0)->kind = BR_WANT_MAYBE;
}

static struct br_mount table[8];

static void have_all(struct br_mounts *m)
{
    const struct br_mount all[] = {
        {.target = "/", .type = "tmpfs", .flags = RO_LOCKED},
        {.target = "/tmp",
         .type = "tmpfs",
         .flags = BR_MNT_NOSUID | BR_MNT_NODEV,
         .bytes = 8192,
         .inodes = 7},
        {.target = "/workspace", .type = "ext4", .flags = RO_LOCKED},
        {.target = "/workspace/a\\040b", .type = "ext4", .flags = BR_MNT_NOSUID | BR_MNT_NODEV},
        {.target = "/workspace/mnt", .type = "nfs", .flags = RO_LOCKED | BR_MNT_NOEXEC},
    };
    memcpy(table, all, sizeof(all));
    *m = (struct br_mounts){.list = table, .n = BR_ARRAY_LEN(all)};
}

static int compare(struct br_mounts *m, struct br_err *err)
{
    struct br_mount_wants w;
    want_all(&w);
    *err = (struct br_err){.code = BR_OK};
    int r = br_mounts_compare(m, &w, err);
    br_wants_free(&w);
    return r;
}

static void refused(struct br_mounts *m, const char *said)
{
    struct br_err err;
    if (compare(m, &err) != -BR_E_REQUIREMENT_MISSING || !strstr(err.text, said))
        fail_msg("expected '%s', not '%s'", said, err.text);
    have_all(m);
}

static void test_compare(void **state)
{
    struct br_mounts m;
    struct br_err err;
    (void)state;
    have_all(&m);
    if (compare(&m, &err) < 0)
        fail_msg("%s", err.text);
    /* what may be there, once */
    table[5] = (struct br_mount){.target = "/proc/keys", .type = "tmpfs", .flags = RO_LOCKED};
    m.n = 6;
    assert_int_equal(compare(&m, &err), 0);
    table[6] = table[5];
    m.n = 7;
    refused(&m, "'/proc/keys' was not planned");
    table[5] = (struct br_mount){.target = "/run", .type = "tmpfs", .flags = RO_LOCKED};
    m.n = 6;
    refused(&m, "'/run' was not planned");
    /* a second one over it */
    table[5] = table[1];
    m.n = 6;
    refused(&m, "'/tmp' was not planned");
    m.n = 3; /* of a workspace's own something may have gone meanwhile: somebody else's doing */
    assert_true(compare(&m, &err) < 0);
    assert_non_null(strstr(err.text, "nothing was started"));
    have_all(&m);
    table[1] = table[4];
    m.n = 4;
    refused(&m, "'/tmp' is missing");
    /* each flag less, and one more */
    for (unsigned f = BR_MNT_RO; f <= BR_MNT_NODEV; f <<= 1) {
        table[0].flags &= ~f;
        refused(&m, "'/' has the flags");
    }
    table[0].flags |= BR_MNT_SHARED;
    refused(&m, "shared");
    table[1].flags |= BR_MNT_NOEXEC;
    refused(&m, "'/tmp' has the flags");
    table[4].flags &= ~(unsigned)BR_MNT_RO;
    refused(&m, "'/workspace/mnt' has the flags");
    table[1].type = "ramfs";
    refused(&m, "is a ramfs, not a tmpfs");
    table[1].bytes = 12288;
    refused(&m, "holds 12288 bytes");
    table[1].bytes = 4096;
    refused(&m, "holds 4096 bytes");
    table[1].inodes = 8;
    refused(&m, "8 inodes");
    table[1].bytes = 0; /* no limit */
    refused(&m, "holds 0 bytes");
    assert_int_equal(compare(&m, &err), 0);
}

/* "below" is not "beside". */
/* A mask is the very file that was prepared: not another one, not the same name elsewhere. */
static void test_source(void **state)
{
    static const struct br_mount empty = {.dev = "0:45", .root = "/.empty", .type = "tmpfs"};
    static const struct {
        struct br_mount m;
        int result;
    } rows[] = {
        {{.dev = "0:45", .root = "/.empty", .type = "tmpfs"}, 0},
        {{.dev = "0:46", .root = "/.empty", .type = "tmpfs"}, -BR_E_REQUIREMENT_MISSING},
        {{.dev = "0:45", .root = "/.other", .type = "tmpfs"}, -BR_E_REQUIREMENT_MISSING},
        {{.dev = "0:45", .root = "/.empty", .type = "ext4"}, -BR_E_REQUIREMENT_MISSING},
    };
    (void)state;
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_mount one = rows[i].m;
        struct br_mounts m = {.list = &one, .n = 1};
        struct br_mount_wants w = {.n = 0};
        struct br_err err = {.code = BR_OK};
        one.target = "/proc/keys";
        one.flags = RO_LOCKED;
        br_want(&w, "/proc/keys", RO_LOCKED, 0)->same = &empty;
        assert_int_equal(br_mounts_compare(&m, &w, &err), rows[i].result);
        if (rows[i].result < 0)
            assert_non_null(strstr(err.text, "is not the one that was prepared"));
        br_wants_free(&w);
    }
}

static void test_names(void **state)
{
    struct br_mounts m;
    (void)state;
    have_all(&m);
    table[4].target = "/workspaces";
    refused(&m, "'/workspaces' was not planned");
    table[4].target = "/workspace2/x";
    refused(&m, "was not planned");
}

static void test_read_own(void **state)
{
    struct br_mounts m;
    struct br_err err = {.code = BR_OK};
    bool proc = false, root = false;
    (void)state;
    assert_int_equal(br_mounts_read(&m, "self", &err), 0);
    for (unsigned i = 0; i < m.n; i++) {
        root |= strcmp(m.list[i].target, "/") == 0;
        proc |= strcmp(m.list[i].target, "/proc") == 0 && strcmp(m.list[i].type, "proc") == 0;
    }
    assert_true(root && proc);
    br_mounts_below(&m, "/proc");
    br_mounts_sort(&m);
    assert_true(m.n >= 1);
    assert_string_equal(m.list[0].target, "/");
    br_mounts_free(&m);
    assert_int_equal(br_mounts_read(&m, "0", &err), -BR_E_REQUIREMENT_MISSING);
    br_mounts_free(&m);
}

static unsigned own_mounts(void)
{
    BR_CLEANUP_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
    unsigned n = 0;
    for (int c; f && (c = getc(f)) != EOF;)
        n += c == '\n';
    return n;
}

/* In a mount namespace with that many mounts: what reading them says. */
static int read_with(unsigned want, struct br_err *err)
{
    struct br_mounts m;
    unsigned have = 0;
    if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -BR_E_INTERNAL;
    for (have = own_mounts(); have < want; have++)
        if (mount("/proc", "/proc", NULL, MS_BIND | MS_REC, NULL) < 0 || own_mounts() != have + 1)
            break;
    if (have != want)
        return -BR_E_INTERNAL;
    int r = br_mounts_read(&m, "self", err);
    if (r == 0 && m.n != want)
        r = -BR_E_INTERNAL;
    br_mounts_free(&m);
    return r;
}

static void test_number(void **state)
{
    (void)state;
    for (unsigned more = 0; more < 2; more++) {
        struct br_err err = {.code = BR_OK};
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            int r = read_with(BR_MOUNTS_MAX + more, &err);
            bool said = !more || strstr(err.text, "there are 1025 mounts, more than 1024");
            _exit(said ? -r : 99);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), more ? BR_E_LIMIT_EXCEEDED : 0);
    }
}

/* The same flags at the same target, and yet another directory. */
static void test_places(void **state)
{
    struct br_err err = {.code = BR_OK};
    struct statx st;
    (void)state;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(root >= 0);
    static const char *const paths[] = {"proc", "usr"};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(statx(root, paths[i], AT_SYMLINK_NOFOLLOW, STATX_INO, &st), 0);
        struct br_mask_id id = {st.stx_ino, st.stx_dev_major, st.stx_dev_minor};
        if (i == 0) {
            assert_int_equal(br_place_check(root, paths[i], &id, &err), 0);
        } else { /* the directory that was planned, but nothing is mounted */
            assert_int_equal(br_place_check(root, paths[i], &id, &err), -BR_E_INVALID_ALLOWED_PATH);
            assert_non_null(strstr(err.text, "'/usr' is not mounted there"));
        }
        for (unsigned k = 0; k < 3; k++) {
            struct br_mask_id other = {id.ino + (k == 0), id.dev_major + (k == 1),
                                       id.dev_minor + (k == 2)};
            assert_int_equal(br_place_check(root, paths[i], &other, &err),
                             -BR_E_INVALID_ALLOWED_PATH);
            assert_non_null(strstr(err.text, "is another file or directory; nothing was started"));
        }
    }
    assert_int_equal(br_place_check(root, "nothing", &(struct br_mask_id){0}, &err),
                     -BR_E_INVALID_ALLOWED_PATH);
    close(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare), cmocka_unit_test(test_source),
        cmocka_unit_test(test_names),   cmocka_unit_test(test_read_own),
        cmocka_unit_test(test_places),  cmocka_unit_test(test_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
