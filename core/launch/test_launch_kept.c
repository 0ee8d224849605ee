/*
 * A workspace lease that stays after its run: only if something was changed in it, with a record of
 * what was copied, and with nothing left of a launch that is refused. And the same lease later,
 * mounted for nothing but looking; nothing else of the lease root is.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "launch/test_lease_rig.h"
#include "sandbox/lease_base.h"

#define RUN "run_0123abc"

static void open_kept(struct rig *r, const char *fault)
{
    rig_make(r, 0);
    lease_plan(r, BR_DISK_WORKSPACE, BR_QUOTA_EXT4, 4 * MIB, 64);
    snprintf(r->plan.keep, sizeof(r->plan.keep), RUN);
    rig_put(r, "file", "text");
    rig_put(r, "dir/", NULL);
    rig_put(r, "dir/inner", "more");
    r->fault = fault;
    r->pool = fault ? "0" : NULL;
    rig_start(r);
    rig_config(r);
}

static void expect_files(struct rig *r, int images)
{
    assert_int_equal(lease_files(r, ".img") > 0 ? lease_files(r, ".img") : 0, images);
    assert_int_equal(lease_files(r, ".base") > 0 ? lease_files(r, ".base") : 0, images);
}

static void test_kept(void **state)
{
    (void)state;
    static const char *const same[] = {"true", "cat file dir/inner; ls -lR"};
    static const char *const changes[] = {"echo x >> file", "rm dir/inner", "chmod 700 dir",
                                          "ln -s a l", "touch -d @0 file"};
    const char *out;
    rig_need_root();
    for (size_t i = 0; i < BR_ARRAY_LEN(same) + BR_ARRAY_LEN(changes); i++) {
        struct rig r;
        bool change = i >= BR_ARRAY_LEN(same);
        open_kept(&r, NULL);
        assert_true(rig_launch(&r));
        expect_files(&r, 1); /* from the beginning, whoever dies */
        const char *line = change ? changes[i - BR_ARRAY_LEN(same)] : same[i];
        char script[256];
        snprintf(script, sizeof(script), "cd /workspace && %s", line);
        assert_int_equal(rig_sh(&r, script, &out), 0);
        rig_exit(&r, 0);
        expect_files(&r, change);
        lease_close(&r);
    }
}

/* What was copied, with the identity that it had in the workspace. */
static void test_base(void **state)
{
    (void)state;
    struct rig r;
    struct br_base_head h;
    char path[256], name[64];
    const char *out;
    unsigned n = 0;
    rig_need_root();
    open_kept(&r, NULL);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "echo x > /workspace/new", &out), 0);
    rig_exit(&r, 0);
    int fd = open(lease_file(&r, "run-" RUN ".base"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &h, sizeof(h)), sizeof(h));
    assert_memory_equal(h.magic, BR_BASE_MAGIC, sizeof(h.magic));
    assert_int_equal(h.entries, 3);
    for (; n < h.entries; n++) {
        struct br_base_entry e;
        struct stat st;
        assert_int_equal(read(fd, &e, sizeof(e)), sizeof(e));
        assert_true(e.path_len < sizeof(name));
        assert_int_equal(read(fd, name, e.path_len), e.path_len);
        name[e.path_len] = 0;
        snprintf(path, sizeof(path), "%s/%s", r.ws, name);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(e.type, S_ISDIR(st.st_mode) ? 'd' : 'f');
        assert_int_equal(e.ino, st.st_ino);
        assert_int_equal(e.size, st.st_size);
        assert_int_equal(e.ctime_ns, (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec);
        assert_true(e.copy_ino != 0 && (uint64_t)e.ctime_ns < h.done_ns);
    }
    assert_int_equal(read(fd, name, 1), 0);
    close(fd);
    lease_close(&r);
}

/* Each call that makes its files fails, or only says that it works: refused, and nothing is left.
 */
static void test_faults(void **state)
{
    (void)state;
    static const char *const words[] = {"1", "once"}; /* EPERM */
    rig_need_root();
    for (size_t k = 0; k < BR_ARRAY_LEN(words); k++) {
        bool through = false;
        for (int n = 1; !through && n < 12; n++) {
            struct rig r;
            char fault[64];
            snprintf(fault, sizeof(fault), "LEASEFILE:%d:%s", n, words[k]);
            open_kept(&r, fault);
            through = rig_launch(&r);
            if (through)
                rig_exit(&r, 0);
            expect_files(&r, 0);
            if (through && n <= 4)
                fail_msg("%s: started", fault);
            rig_close(&r);
        }
        assert_true(through);
    }
}

static void test_in_use(void **state)
{
    (void)state;
    struct rig r;
    const char *out;
    rig_need_root();
    open_kept(&r, NULL);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_lease(&r, RUN, 1234, 2345), -1); /* its run has it */
    assert_int_equal(r.code, BR_E_IN_USE);
    assert_int_equal(rig_sh(&r, "echo x > /workspace/new", &out), 0);
    rig_exit(&r, 0);
    rig_close(&r);
}

/* A launcher of its own, since it is asked once. */
static int ask(struct rig *r, const char *id)
{
    return rig_lease(r, id, 1234, 2345);
}

static void test_mounted(void **state)
{
    (void)state;
    struct rig r;
    struct stat st;
    struct statvfs fs;
    const char *out;
    rig_need_root();
    open_kept(&r, NULL);
    assert_true(rig_launch(&r));
    assert_int_equal(rig_sh(&r, "echo x > /workspace/new", &out), 0);
    rig_exit(&r, 0);
    int fd = ask(&r, RUN);
    if (fd < 0)
        fail_msg("%s", r.text);
    assert_int_equal(fstatat(fd, "new", &st, 0), 0);
    assert_int_equal(st.st_uid, 1234);
    assert_int_equal(st.st_gid, 2345);
    assert_int_equal(fstatvfs(fd, &fs), 0);
    assert_true((fs.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC)) ==
                (ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC));
    assert_int_equal(openat(fd, "new", O_WRONLY | O_CLOEXEC), -1);
    assert_int_equal(errno, EROFS);
    int image = open(lease_file(&r, "run-" RUN ".img"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(image, LOCK_EX | LOCK_NB), -1); /* nobody else has it */
    close(image);
    close(fd); /* the last of the mount: the kernel takes it down in its own time */
    for (unsigned ms = 0; ms < 5000 && lease_loops(&r); ms += 10)
        usleep(10000);
    lease_close(&r);
}

/* Nothing but a lease of ours, whatever it is called. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *make, *id;
        enum br_code code;
    } rows[] = {
        {"true", "none", BR_E_NOT_FOUND},
        {"true", "../leases/run-" RUN, BR_E_NOT_FOUND},
        {"true", "a/b", BR_E_NOT_FOUND},
        {"ln -s run-" RUN ".img run-link.img", "link", BR_E_INVALID_CONFIG},
        {"ln run-" RUN ".img run-twin.img", "twin", BR_E_INVALID_CONFIG},
        {"cp run-" RUN ".img run-open.img; chmod 644 run-open.img", "open", BR_E_INVALID_CONFIG},
        {"cp run-" RUN ".img run-alien.img; chmod 600 run-alien.img; chown 1000 run-alien.img",
         "alien", BR_E_INVALID_CONFIG},
        {"dd if=/dev/zero of=run-zero.img bs=1M count=1 status=none; chmod 600 run-zero.img",
         "zero", BR_E_INVALID_CONFIG},
        {"mkfifo -m 600 run-fifo.img", "fifo", BR_E_INVALID_CONFIG},
    };
    rig_need_root();
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct rig r;
        const char *out;
        char line[512];
        open_kept(&r, NULL);
        assert_true(rig_launch(&r));
        assert_int_equal(rig_sh(&r, "echo x > /workspace/new", &out), 0);
        rig_exit(&r, 0);
        snprintf(line, sizeof(line), "cd '%s' && { %s; }", lease_file(&r, ""), rows[i].make);
        assert_int_equal(system(line), 0); /* NOLINT(cert-env33-c) */
        if (ask(&r, rows[i].id) >= 0 || r.code != rows[i].code)
            fail_msg("'%s': %u %s", rows[i].id, r.code, r.text);
        assert_int_equal(lease_loops(&r), 0);
        lease_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),    cmocka_unit_test(test_base),
        cmocka_unit_test(test_faults),  cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_mounted), cmocka_unit_test(test_refused),
    };
    lease_own_mounts();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
