/*
 * Leases end to end, with the capabilities that bridled leaves its launcher: a workspace that is a
 * copy with a quota, and a state disk that outlives its run. Root only: an ordinary user is
 * refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

static void open_project(struct e2e *t)
{
    e2e_open(t, 0);
    e2e_write(t, "workspace/a.txt", "before\n");
    e2e_write(t, "policy.lua",
              "local policy = require 'bridle.policy'\n"
              "return policy.bundle { api = 1, name = 'allow-all', rules = {\n"
              "  policy.allow { id = 'all', action = '*' } } }\n");
    e2e_write(t, "task.yaml",
              "id: fix\ntitle: fix\ngoal: fix it\nacceptance: [done]\nallowed_paths: [src/**]\n"
              "permissions: {process.exec: allow, fs.read: allow, fs.write: allow}\n"
              "delivery: {type: none}\n");
    e2e_write(t, "disks.lua",
              "return { name = 'disks', version = 1, rules = { { id = 'no-network', effect = "
              "'deny', actions = { 'network' }, match = 'any', patterns = {} } }, sandbox = { "
              "backend = 'native', image = 'host', identity = 'dedicated', landlock = 'required', "
              "workspace = 'lease', limits = { memory_bytes = 1 << 30, pids = 32, cpu_percent = "
              "100, nofile = 256, fsize_bytes = 1 << 30, tmp_bytes = 1 << 20, tmp_inodes = 100, "
              "output_bytes = 4096, exec_seconds = 30, wall_seconds = 60 }, disks = { workspace = "
              "{ kind = 'ext4', bytes = 4 << 20, inodes = 64 }, state = { kind = 'ext4', bytes = "
              "2 << 20, inodes = 32, name = 'notes' } } }, offers = { 'workspace-tmpfs-v1' } }\n");
}

/* One simple command of at most three words. */
static void run(struct e2e *t, int status, const char *said, const char *a, const char *b,
                const char *c)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--profile",
            "disks.lua", "task.yaml", "--", a, b, c, NULL);
    e2e_expect(&r, status, said);
    e2e_result_free(&r);
}

static void test_disks(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    open_project(&t);
    t.activated = true;
    e2e_run(&t, &r, "bridle", "activate", "disks.lua", NULL);
    if (geteuid() != 0) {
        e2e_expect(&r, 6, "workspace-tmpfs-v1");
        e2e_result_free(&r);
        e2e_close(&t);
        return;
    }
    e2e_expect(&r, 0, "'disks' works");
    e2e_result_free(&r);
    run(&t, 0, NULL, "cp", "a.txt", "/state/note");
    run(&t, 0, NULL, "truncate", "-s0", "a.txt");
    run(&t, 0, "before", "cat", "/state/note", "a.txt");
    run(&t, 1, "No space left on device", "dd", "if=/dev/zero", "of=big");
    e2e_run(&t, &r, "bridle", "show", "last", NULL); /* the receipt has the quotas of disks */
    e2e_expect(&r, 0, "    image      host, not verified\n");
    e2e_expect(&r, 0, "    leases     /workspace  ext4  ");
    e2e_expect(&r, 0, " 32 inodes\n");
    e2e_result_free(&r);
    BR_CLEANUP_FREE char *text = e2e_read(&t, "workspace/a.txt");
    assert_string_equal(text, "before\n");
    assert_null(e2e_read(&t, "workspace/big"));
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* What 'bridle repl' says of a line. */
static void look(struct e2e *t, const char *code, const char *said)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "repl", "-e", code, NULL);
    e2e_expect(&r, 0, said);
    e2e_result_free(&r);
}

/* One disk, one run: who comes second is told which disk it is, with a code of its own. */
static void test_in_use(void **state)
{
    (void)state;
    struct e2e t, second;
    struct e2e_result r;
    if (geteuid() != 0) {
        print_message("leases need root\n");
        skip();
    }
    open_project(&t);
    t.activated = true;
    e2e_run(&t, &r, "bridle", "activate", "disks.lua", NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
    const char *const argv[] = {"bridle",     "exec",      "-C",        "workspace", "-p",
                                "policy.lua", "--profile", "disks.lua", "task.yaml", "--",
                                "sleep",      "60",        NULL};
    pid_t holder = e2e_spawn(&t, (char *const *)argv, NULL);
    assert_true(e2e_await(holder, "sleep", 0, 20000) > 0);
    open_project(&second); /* files of its own for what it says; the disk is the first one's */
    snprintf(second.state, sizeof(second.state), "%s", t.state);
    second.activated = true;
    run(&second, 1, "the state lease 'notes' is in use by another run", "touch", "/state/f", NULL);
    run(&second, 1, "(IN_USE)", "touch", "/state/f", NULL);
    look(&second, "lease('notes')[1].inUse", "true\n");
    look(&second, "leases", "state-notes.img");
    look(&second, "filter(sessions, function(s) return s.status == 'running' end)[1].runId",
         "\"run_");
    look(&second, "lease('notes')[1].kind, lease(sessions[1].runId)[1].kind",
         "\"state\"\n\"ext4\"\n");
    look(&second, "map(lease(sessions[1].runId), function(l) return l.lease end)",
         "{ \"workspace\", \"state\" }");
    assert_int_equal(kill(holder, SIGTERM), 0);
    e2e_wait(&t, holder, 30, &r);
    assert_true(r.status > 0); /* canceled */
    e2e_result_free(&r);
    run(&second, 0, NULL, "touch", "/state/f", NULL);
    look(&second, "lease('notes')[1].inUse", "false\n");
    e2e_expect_clean(&t);
    e2e_close(&second);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disks),
        cmocka_unit_test(test_in_use),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
