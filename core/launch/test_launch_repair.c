/*
 * The repair of a state lease by an e2fsck that the lease's content has taken over: evil
 * (core/confine) is mounted in its place, in a mount namespace of this program.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "confine/test_evil.h"
#include "launch/test_lease_rig.h"

static void place(const char *how, const char *from, const char *to)
{
    char cmd[1100];
    snprintf(cmd, sizeof(cmd), "%s %s %s", how, from, to);
    assert_int_equal(system(cmd), 0); /* NOLINT(cert-env33-c) */
}

static void test_taken_over(void **state)
{
    struct rig r;
    struct evil_rig evil;
    char image[512], copy[512], tool[128], said[512] = "";
    const char *out;
    int p[2];
    (void)state;
    rig_need_root();
    lease_own_mounts();
    evil_rig_make(&evil, 0);
    place("cp -L", "/usr/sbin/mkfs.ext4", evil.dir);
    snprintf(tool, sizeof(tool), "%s/e2fsck", evil.dir);
    place("mv", evil.evil, tool);
    snprintf(evil.evil, sizeof(evil.evil), "/usr/sbin/e2fsck");
    assert_int_equal(mount(evil.dir, "/usr/sbin", NULL, MS_BIND, NULL), 0);
    rig_open(&r, 0);
    rig_config(&r);
    lease_plan(&r, BR_DISK_STATE, BR_QUOTA_EXT4, 4 * MIB, 64);
    strcpy(r.plan.state, "s");
    assert_true(rig_launch(&r));
    (void)rig_sh(&r, "echo kept > /state/file; sync /state/file /state", &out);
    snprintf(image, sizeof(image), "%s", lease_file(&r, "state-s.img"));
    snprintf(copy, sizeof(copy), "%s/copy", r.dir);
    place("cp", image, copy);
    rig_exit(&r, 0);
    place("cp", copy, image); /* as after a crash of the host */
    lease_refused(&r, BR_E_INVALID_CONFIG, "evil uid=0 got:.");
    assert_true(evil_victim_lives(&evil));
    assert_int_equal(evil_left_over(&evil), 0);
    /* the control: not confined it gets everything */
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(p[1], 2);
        (void)execl(evil.evil, "e2fsck", (char *)NULL);
        _exit(70);
    }
    close(p[1]);
    assert_true(read(p[0], said, sizeof(said) - 1) > 0);
    close(p[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_equal(said, "evil uid=0 got:" EVIL_ALL " shadow" EVIL_MORE "\n");
    assert_int_equal(evil_left_over(&evil), 1);
    lease_close(&r);
    assert_int_equal(umount2("/usr/sbin", MNT_DETACH), 0);
    evil_rig_end(&evil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken_over)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
