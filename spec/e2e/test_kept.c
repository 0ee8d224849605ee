/*
 * Workspaces that stay after their run: only those that were changed, listed with owner and
 * retention, removed when that is over, and in nobody's way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "promote_rig.h"

/* Files below the state directory whose name begins like this. */
static unsigned count(struct e2e *t, const char *dir, const char *prefix)
{
    char path[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/%s", t->state, dir);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        closedir(d);
    return n;
}

static bool root_only(void)
{
    if (geteuid() == 0)
        return true;
    print_message("leases on disk need root\n");
    return false;
}

static void test_changed(void **state)
{
    (void)state;
    static const char *const same[] = {"true", "cat a.txt src/*", "test -d src && ls -lR"};
    static const char *const changes[] = {
        "echo x > new",      "rm a.txt",
        "chmod 755 a.txt",   "mv a.txt z.txt",
        "ln -s a.txt l",     "mkdir d",
        "echo >> src/b.txt", "touch -r Makefile -d '2001-01-01' src/c.txt"};
    struct e2e t;
    if (!root_only())
        skip();
    lease_open(&t);
    for (size_t i = 0; i < BR_ARRAY_LEN(same); i++)
        lease_sh(&t, 0, same[i]);
    assert_int_equal(count(&t, "kept", "run_"), 0);
    assert_int_equal(count(&t, "leases", "run-"), 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(changes); i++) {
        lease_sh(&t, 0, changes[i]);
        assert_int_equal(count(&t, "kept", "run_"), i + 1);
        assert_int_equal(count(&t, "leases", "run-"), 2 * (i + 1));
    }
    e2e_expect_file(&t, "workspace/a.txt", "one\ntwo\nthree\n");
    lease_bridle(&t, 0, "removed workspace of run_", "state", "purge", "--all", NULL);
    assert_int_equal(count(&t, "kept", "run_"), 0);
    assert_int_equal(count(&t, "leases", "run-"), 0);
    lease_bridle(&t, 0, "no session and no workspace is kept", "state", "list", NULL);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Make the record say that it ended long ago. */
static void age(struct e2e *t, const char *id)
{
    char path[256], line[5000];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    snprintf(path, sizeof(path), "%s/kept/%s", t->state, id);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        br_buf_printf(&b, "%s", strncmp(line, "ended ", 6) == 0 ? "ended 1000\n" : line);
    fclose(f);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    fclose(f);
}

static void test_listed(void **state)
{
    (void)state;
    struct e2e t;
    char first[64], second[64];
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo CANARY-CONTENT > secret.txt");
    lease_kept(&t, first);
    assert_true(first[0]);
    BR_CLEANUP_FREE char *text = lease_list(&t);
    assert_non_null(strstr(text, "\"owner\":0,\"profile\":\"disks\",\"image\":\"host\""));
    assert_non_null(strstr(text, "\"inUse\":false,\"interrupted\":false"));
    assert_null(strstr(text, "CANARY"));
    /* what is not used of the disk takes no room */
    const char *bytes = strstr(text, "\"bytes\":");
    assert_true(bytes && strtoull(bytes + 8, NULL, 10) < (4u << 20));
    lease_bridle(&t, 0, "disks  ", "state", "list", NULL);
    lease_bridle(&t, 3, "nothing was removed", "state", "purge", "run_0", NULL);
    lease_bridle(&t, 2, "one of ID", "state", "purge", NULL);
    lease_bridle(&t, 2, "one of ID", "state", "purge", first, "--all", NULL);
    lease_bridle(&t, 2, "no action", "state", "remove", NULL);
    lease_bridle(&t, 0, NULL, "state", "purge", "--expired", NULL);
    assert_int_equal(count(&t, "kept", "run_"), 1);
    /* a run removes what is over, and keeps its own */
    age(&t, first);
    lease_sh(&t, 0, "echo y > y");
    lease_kept(&t, second);
    assert_string_not_equal(first, second);
    assert_int_equal(count(&t, "kept", "run_"), 1);
    assert_int_equal(count(&t, "leases", "run-"), 2);
    age(&t, second);
    lease_bridle(&t, 0, second, "state", "purge", "--expired", NULL);
    assert_int_equal(count(&t, "leases", "run-"), 0);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Whatever is killed: the lease stays while it may be wanted, and nobody takes it while it is. */
static void test_killed(void **state)
{
    (void)state;
    static const char *const programs[] = {"bridle-launch", "bridle-session", "bridled", NULL};
    struct e2e t;
    struct e2e_result r;
    char id[64];
    if (!root_only())
        skip();
    lease_open(&t);
    const char *const argv[] = {
        "bridle",    "exec",      "-C", "workspace", "-p", "policy.lua",           "--profile",
        "disks.lua", "task.yaml", "--", "/bin/sh",   "-c", "echo k > k; sleep 60", NULL};
    for (unsigned i = 0; programs[i]; i++) {
        pid_t holder = e2e_spawn(&t, (char *const *)argv, NULL);
        assert_true(e2e_await(holder, "sleep", 0, 20000) > 0);
        lease_kept(&t, id);
        lease_bridle(&t, 1, "is in use", "state", "purge", id, NULL);
        pid_t victim = e2e_find(holder, programs[i], 0);
        assert_true(victim > 0);
        assert_int_equal(kill(victim, SIGKILL), 0);
        e2e_wait(&t, holder, 30, &r);
        assert_true(r.status > 0);
        e2e_result_free(&r);
        /* the launcher lets go a moment after its supervisor has died */
        for (int tries = 0; tries < 100; tries++) {
            BR_CLEANUP_FREE char *text = lease_list(&t);
            if (!strstr(text, "\"inUse\":true"))
                break;
            usleep(50000);
        }
        lease_sh(&t, 0, "true"); /* sweeps; nothing is taken away that is within its time */
        lease_bridle(&t, 0, id, "state", "purge", id, NULL);
        assert_int_equal(count(&t, "leases", "run-"), 0);
    }
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_killed),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
