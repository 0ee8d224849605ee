/*
 * The record's place, on which a run depends: a state directory that cannot be used refuses the run
 * before anything is started, and a full disk ends one in the middle of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/e2e.h"

static const char allow_all[] = "local policy = require \"bridle.policy\"\n"
                                "return policy.bundle { api = 1, name = \"test\", rules = {\n"
                                "  policy.allow { id = \"exec\", action = \"process.exec\" },\n"
                                "  policy.allow { id = \"read\", action = \"fs.read\" },\n"
                                "  policy.allow { id = \"write\", action = \"fs.write\" },\n} }\n";

static void open_project(struct e2e *t)
{
    e2e_open(t, 0);
    e2e_write(t, "workspace/src/a.txt", "before\n");
    e2e_write(t, "policy.lua", allow_all);
    e2e_write(t, "task.yaml",
              "id: e2e\ntitle: t\ngoal: g\nacceptance: [a]\nallowed_paths: [src/**]\n"
              "permissions: {}\ndelivery: {type: none}\n");
}

static void close_project(struct e2e *t)
{
    e2e_expect_clean(t);
    e2e_close(t);
}

/* What would leave a file behind if it were run. */
static void touch(struct e2e *t, struct e2e_result *r)
{
    e2e_run(t, r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "task.yaml", "--",
            "touch", "src/x", NULL);
}

static void test_store_inside_workspace(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    snprintf(t.state, sizeof(t.state), "%s/state", t.workspace);
    touch(&t, &r);
    e2e_expect(&r, 8, "nothing was started");
    e2e_expect_file(&t, "workspace/src/x", NULL);
    e2e_result_free(&r);
    close_project(&t);
}

/* A store that audit refuses is told at once; nothing is started. */
static void test_store_open_to_others(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    (void)mkdir(t.state, 0700);
    assert_int_equal(chmod(t.state, 0755), 0);
    touch(&t, &r);
    e2e_expect(&r, 8, "open to other users");
    e2e_expect(&r, 8, t.state); /* said by a program that does not know the path */
    e2e_expect_file(&t, "workspace/src/x", NULL);
    assert_true(r.us < 10000000u);
    e2e_result_free(&r);
    if (geteuid() == 0) { /* nor one of somebody else's */
        assert_int_equal(chmod(t.state, 0700), 0);
        assert_int_equal(chown(t.state, 1000, 1000), 0);
        touch(&t, &r);
        e2e_expect(&r, 8, "belongs to uid 1000, and this is uid 0; nothing was started");
        e2e_expect_file(&t, "workspace/src/x", NULL);
        e2e_result_free(&r);
    }
    close_project(&t);
}

static void test_store_is_a_link(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char path[128];
    open_project(&t);
    snprintf(path, sizeof(path), "%s/elsewhere", t.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(symlink("elsewhere", t.state), 0);
    t.activated = true;
    touch(&t, &r);
    e2e_expect(&r, 8, "is a symbolic link; nothing was started");
    e2e_expect(&r, 8, t.state);
    e2e_expect_file(&t, "workspace/src/x", NULL);
    assert_int_equal(rmdir(path), 0); /* nothing was made in it */
    e2e_result_free(&r);
    close_project(&t);
}

/* The store's disk is full in the middle of a run: the run is aborted, exit 8. */
static void test_audit_disk_full(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    if (geteuid() != 0) {
        print_message("an ordinary user cannot mount a small disk; root's run covers this\n");
        skip();
    }
    open_project(&t);
    assert_int_equal(mkdir(t.state, 0700), 0);
    assert_int_equal(mount("tmpfs", t.state, "tmpfs", 0, "size=320k"), 0);
    static const char many[] = "{\"name\":\"process_exec\",\"arguments\":{\"argv\":"
                               "[\"seq\",\"1\",\"9000\"]}},";
    char scenario[1024];
    snprintf(scenario, sizeof(scenario),
             "{\"v\":1,\"name\":\"t\",\"turns\":[{\"when\":{\"assistant_messages\":0},"
             "\"tool_calls\":[%s%s%s{\"name\":\"fs_write\",\"arguments\":{\"path\":"
             "\"src/a.txt\",\"content\":\"after\"}}]},{\"text\":\"The end.\"}]}",
             many, many, many);
    e2e_write(&t, "scenario.json", scenario);
    e2e_run(&t, &r, "bridle", "run", "--json", "-C", "workspace", "-t", "task.yaml", "-p",
            "policy.lua", "--scenario", "scenario.json", "go", NULL);
    assert_int_equal(umount(t.state), 0);
    e2e_expect(&r, 8, "AUDIT_STORE_FAILED");
    e2e_expect_file(&t, "workspace/src/a.txt", "before\n");
    e2e_result_free(&r);
    close_project(&t);
}

int main(void)
{
    e2e_isolate();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_inside_workspace),
        cmocka_unit_test(test_store_open_to_others),
        cmocka_unit_test(test_store_is_a_link),
        cmocka_unit_test(test_audit_disk_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
