/*
 * Quotas attacked from inside: every way to use up bytes or inodes ends at the limit, on ext4 and
 * on tmpfs, as root and as an ordinary user; the same goes on where there is no limit; and the
 * host's free space does not move beyond what was leased.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "launch/test_lease_rig.h"

#define BLOCK 4096

enum unit { BYTES, INODES, NAMES };
static const struct {
    const char *kind;
    enum unit unit;     /* what a step uses on ext4: a block, an inode, a name in a directory */
    unsigned per_inode; /* tmpfs: what a step uses of inodes, in thirds; 0: bytes */
} fillers[] = {
    {"bytes", BYTES, 0},    {"sparse", BYTES, 0}, {"deleted", BYTES, 0}, {"fallocate", BYTES, 0},
    {"mmap", BYTES, 0},     {"files", INODES, 3}, {"names", NAMES, 3},   {"links", NAMES, 3},
    {"symlinks", BYTES, 3}, {"xattrs", BYTES, 3},
};

/* Two leases of each kind: with few bytes, and with few inodes. */
static const char *lease_for(enum unit unit)
{
    return unit == BYTES ? "workspace" : unit == INODES ? "state" : "scratch";
}

static void plan(struct rig *r, uint8_t kind)
{
    lease_plan(r, BR_DISK_WORKSPACE, kind, 4 * MIB, 2048);
    lease_plan(r, BR_DISK_STATE, kind, 4 * MIB, 64);
    lease_plan(r, BR_DISK_SCRATCH, kind, 1 * MIB, 64);
}

static void fill(struct rig *r, const char *kind, const char *point, long max, long *steps, int *e)
{
    const char *a = rig_ask(r, "fill %s %s/fill %ld", kind, point, max);
    assert_non_null(a);
    assert_int_equal(sscanf(a, "%ld %d", steps, e), 2);
}

static void empty(struct rig *r, const char *point)
{
    char script[64];
    snprintf(script, sizeof(script), "rm -rf %s/fill", point);
    assert_int_equal(rig_sh(r, script, NULL), 0);
}

/* No more than this many steps are possible; `slack`: so many fewer may be. */
static long limit(const struct rig *r, unsigned i, bool tmpfs, long *slack)
{
    const char *lease = lease_for(fillers[i].unit);
    long blocks = (long)(lease_number(r, lease, "freeBytes") / BLOCK);
    long inodes = (long)lease_number(r, lease, "freeInodes") - 1; /* the directory */
    assert_true(blocks > 0 && inodes > 0);
    *slack = 0;
    if (tmpfs && fillers[i].per_inode) {
        /* a link is an inode, and its first name is another; attributes use several */
        *slack = fillers[i].unit == NAMES ? 1 : 0;
        if (strcmp(fillers[i].kind, "xattrs") == 0)
            *slack = inodes * 4 / 5;
        return strcmp(fillers[i].kind, "symlinks") == 0 && blocks < inodes ? blocks : inodes;
    }
    switch (fillers[i].unit) {
    case BYTES:
        *slack = tmpfs ? 0 : 48; /* the file's and the directory's own blocks */
        return blocks;
    case INODES:
        return inodes;
    case NAMES:
        break;
    }
    /* blocks of directories, which are at least half full: 255 bytes of name, or 7 */
    bool many = strcmp(fillers[i].kind, "links") == 0;
    long fit = blocks * (many ? BLOCK / 16 : BLOCK / 264);
    *slack = fit * 2 / 3;
    return fit;
}

static void one_filler(struct rig *r, unsigned i, bool tmpfs)
{
    const char *kind = fillers[i].kind;
    char point[32];
    long most, slack, n, again;
    int e;
    snprintf(point, sizeof(point), "/%s", lease_for(fillers[i].unit));
    most = limit(r, i, tmpfs, &slack);
    fill(r, kind, point, most + 1, &n, &e);
    if (tmpfs && strcmp(kind, "xattrs") == 0 && e == EOPNOTSUPP)
        return; /* this kernel's tmpfs has none: nothing to be used up */
    if (e != ENOSPC && e != EDQUOT)
        fail_msg("%s in %s: %ld steps of %ld, errno %d", kind, point, n, most, e);
    if (n > most || n < most - slack)
        fail_msg("%s in %s: %ld steps, expected %ld to %ld", kind, point, n, most - slack, most);
    empty(r, point);
    /* N works, N + 1 does not; where blocks of the file system's own come and go, nearly N */
    long exact = tmpfs || fillers[i].unit == INODES ? n : n - n / 8;
    fill(r, kind, point, exact, &again, &e);
    if (again != exact || e != 0)
        fail_msg("%s in %s: %ld steps of %ld the second time, errno %d", kind, point, again, exact,
                 e);
    empty(r, point);
    fill(r, kind, point, n + 1 + (exact == n ? 0 : slack), &again, &e);
    if (e != ENOSPC && e != EDQUOT)
        fail_msg("%s in %s: %ld steps the third time, errno %d", kind, point, again, e);
    empty(r, point);
}

static uint64_t host_free(const struct rig *r)
{
    char path[128];
    struct statfs s;
    snprintf(path, sizeof(path), "%s/state", r->dir);
    assert_int_equal(statfs(path, &s), 0);
    return (uint64_t)s.f_bfree * (uint64_t)s.f_bsize;
}

static void run(uid_t uid, uint8_t kind)
{
    struct rig r;
    bool ext4 = kind == BR_QUOTA_EXT4;
    rig_need_root();
    rig_make(&r, uid);
    lease_state_tmpfs(&r, "64m"); /* so that nobody else changes what is free */
    rig_start(&r);
    rig_config(&r);
    plan(&r, kind);
    uint64_t before = host_free(&r);
    assert_true(rig_launch(&r));
    uint64_t leased = before - host_free(&r), room = ext4 ? 9 * MIB : 0;
    /* all of it now, and the templates */
    assert_true(leased >= room && leased <= room + 2 * MIB);
    for (unsigned i = 0; i < BR_ARRAY_LEN(fillers); i++) {
        one_filler(&r, i, !ext4);
        assert_int_equal(before - host_free(&r), leased);
    }
    rig_exit(&r, 0);
    lease_nothing_left(&r);
    /* what is still used are templates */
    assert_true(before - host_free(&r) <= 2 * MIB);
    br_close(&r.init);
    lease_state_umount(&r);
    lease_close(&r);
}

static void test_ext4(void **state)
{
    (void)state;
    run(0, BR_QUOTA_EXT4);
}

static void test_tmpfs(void **state)
{
    (void)state;
    run(0, BR_QUOTA_TMPFS);
}

static void test_tmpfs_as_user(void **state)
{
    (void)state;
    run(RIG_USER, BR_QUOTA_TMPFS);
}

/* The positive control: the same fillers, beyond the same numbers, where nothing limits them. */
static void test_without_a_lease(void **state)
{
    struct rig r;
    (void)state;
    rig_need_root();
    rig_open(&r, 0);
    rig_put(&r, "dir/", NULL);
    rig_allow(&r, "dir/**");
    assert_true(rig_launch(&r));
    for (unsigned i = 0; i < BR_ARRAY_LEN(fillers); i++) {
        long most = fillers[i].unit == BYTES                ? 4 * (long)MIB / BLOCK
                    : fillers[i].unit == INODES             ? 64
                    : strcmp(fillers[i].kind, "links") == 0 ? (long)MIB / 16
                                                            : (long)MIB / 264;
        long n;
        int e;
        fill(&r, fillers[i].kind, "/workspace/dir", most + 1, &n, &e);
        if (n != most + 1 || e != 0)
            fail_msg("%s without a limit: %ld steps, errno %d", fillers[i].kind, n, e);
        empty(&r, "/workspace/dir");
    }
    rig_exit(&r, 0);
    lease_close(&r);
}

/* ---- whose memory is it ---- */

/* What the memory controller has charged to the sandbox; version 1 counts in portions. */
static long long charged(const struct rig *r)
{
    static const char *const files[] = {"memory.usage_in_bytes", "memory.current"};
    for (const char *p = r->receipt; (p = strstr(p, "\"path\":\"")); p++) {
        char path[512], text[64] = "";
        size_t n = strcspn(p + 8, "\"");
        for (unsigned i = 0; i < BR_ARRAY_LEN(files); i++) {
            snprintf(path, sizeof(path), "%.*s/%s", (int)n, p + 8, files[i]);
            BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
                return atoll(text);
        }
    }
    fail_msg("no memory cgroup in the receipt");
    return 0;
}

static void charge(uid_t uid)
{
    struct rig r;
    rig_need_root();
    rig_open(&r, uid);
    rig_config(&r);
    lease_plan(&r, BR_DISK_WORKSPACE, BR_QUOTA_TMPFS, 16 * MIB, 64);
    assert_true(rig_launch(&r));
    long long base = charged(&r);
    rig_exit(&r, 0);
    /* what was copied in is charged before the first command runs */
    char *text = malloc(8 * MIB + 1);
    assert_non_null(text);
    memset(text, 't', 8 * MIB);
    text[8 * MIB] = 0;
    rig_put(&r, "big", text);
    free(text);
    assert_true(rig_launch(&r));
    long long copied = charged(&r);
    assert_true(copied - base >= 7 * (long long)MIB);
    assert_int_equal(rig_sh(&r, "dd if=/dev/zero of=/workspace/more bs=1M count=6 2>&1", NULL), 0);
    assert_true(charged(&r) - copied >= 5 * (long long)MIB);
    rig_exit(&r, 0);
    lease_close(&r);
}

static void test_charged(void **state)
{
    (void)state;
    charge(0);
}

static void test_charged_as_user(void **state)
{
    (void)state;
    charge(RIG_USER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ext4),          cmocka_unit_test(test_tmpfs),
        cmocka_unit_test(test_tmpfs_as_user), cmocka_unit_test(test_without_a_lease),
        cmocka_unit_test(test_charged),       cmocka_unit_test(test_charged_as_user),
    };
    lease_own_mounts();
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
