/*
 * Promotion end to end: shown, decided, asked about, applied as the workspace's owner, recorded;
 * and everything that must not be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "promote/promote.h"
#include "promote_rig.h"

static bool root_only(void)
{
    if (geteuid() == 0)
        return true;
    print_message("leases on disk need root\n");
    return false;
}

static void sh(struct e2e *t, const char *line)
{
    char text[4096];
    snprintf(text, sizeof(text), "cd '%s' && { %s\n}", t->dir, line);
    assert_int_equal(system(text), 0);
}

static void test_promoted(void **state)
{
    (void)state;
    struct e2e t;
    struct stat st;
    char id[64], path[256];
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0,
             "echo four >> a.txt; rm src/c.txt; mkdir -p new/dir; echo x > new/dir/x; chmod 755 "
             "src/b.txt; ln -s a.txt link; printf 'e\\033[31m\\n' > esc");
    lease_kept(&t, id);
    lease_bridle(&t, 0, "8 changes of", "promote", "--dry-run", id, NULL);
    lease_bridle(&t, 0, "    +four\n", "promote", "--dry-run", id, NULL);
    lease_bridle(&t, 0, "    +e\\x1b[31m\n", "promote", "--dry-run", id, NULL);
    lease_bridle(&t, 0, "runs?  executable\n", "promote", "--dry-run", id, NULL);
    lease_bridle(&t, 0, "{\"change\":\"removed\",\"path\":\"src/c.txt\"", "promote", "--dry-run",
                 "--json", id, NULL);
    e2e_expect_file(&t, "workspace/a.txt", "one\ntwo\nthree\n");
    lease_bridle(&t, 0, "promoted ", "promote", "-p", "policy.lua", id, NULL);
    e2e_expect_file(&t, "workspace/a.txt", "one\ntwo\nthree\nfour\n");
    e2e_expect_file(&t, "workspace/src/c.txt", NULL);
    e2e_expect_file(&t, "workspace/new/dir/x", "x\n");
    sh(&t, "test $(readlink workspace/link) = a.txt");
    static const char *const owned[] = {"a.txt",     "new",       "new/dir",
                                        "new/dir/x", "src/b.txt", "link"};
    for (size_t i = 0; i < BR_ARRAY_LEN(owned); i++) {
        snprintf(path, sizeof(path), "%s/%s", t.workspace, owned[i]);
        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(st.st_uid, 1000);
        assert_true(strcmp(owned[i], "src/b.txt") != 0 || (st.st_mode & 07777) == 0755);
    }
    sh(&t, "test -z \"$(ls -d workspace/.bridle-promote-* 2>/dev/null)\"");
    /* once; and its record, linked with that of the run */
    lease_bridle(&t, 3, "is kept", "promote", "-p", "policy.lua", id, NULL);
    lease_bridle(&t, 0, "promoted  run_", "show", "last", NULL);
    lease_bridle(&t, 0, "executable: src/b.txt", "show", "last", NULL);
    lease_bridle(&t, 0, "promotion ", "show", id, NULL);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_decided(void **state)
{
    (void)state;
    struct e2e t;
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    lease_bridle(&t, 4, "no-promotion", "promote", "-p", "never.lua", "last", NULL);
    lease_bridle(&t, 4, "no-promotion", "promote", "-p", "never.lua", "--yes", "last", NULL);
    lease_bridle(&t, 4, "there is no terminal", "promote", "-p", "ask.lua", "last", NULL);
    lease_bridle(&t, 4, "there is no terminal", "promote", "last", NULL);
    lease_bridle(&t, 2, "do not go together", "promote", "--yes", "--dry-run", "last", NULL);
    lease_bridle(&t, 3, "is kept", "promote", "--yes", "run_zz", NULL);
    lease_bridle(&t, 3, "was interrupted", "promote", "--recover", "last", NULL);
    e2e_expect_file(&t, "workspace/x", NULL);
    lease_bridle(&t, 0, "allowed by the operator: --yes", "promote", "--yes", "last", NULL);
    e2e_expect_file(&t, "workspace/x", "x\n");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_conflicts(void **state)
{
    (void)state;
    struct e2e t;
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x; echo run > a.txt; mkdir .git; echo evil > .git/config");
    lease_bridle(&t, 4, "'.git': a repository's own files", "promote", "--yes", "last", NULL);
    e2e_write(&t, "workspace/a.txt", "people\n");
    lease_bridle(&t, 1, "'a.txt': it was changed in the workspace", "promote", "--yes", "--skip",
                 ".git", "last", NULL);
    e2e_expect_file(&t, "workspace/x", NULL);
    e2e_expect_file(&t, "workspace/a.txt", "people\n");
    lease_bridle(&t, 0, "1 left out", "promote", "--yes", "--git", "--skip", "a.txt", "last", NULL);
    e2e_expect_file(&t, "workspace/x", "x\n");
    e2e_expect_file(&t, "workspace/a.txt", "people\n");
    e2e_expect_file(&t, "workspace/.git/config", "evil\n");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* The workspace is the one that it was, and the run is ours. */
static void test_identity(void **state)
{
    (void)state;
    static const struct {
        const char *line, *back;
        int status;
        const char *said;
    } rows[] = {
        {"chown 1001:1000 workspace", "chown 1000:1000 workspace", 4, "its owner was 1000:1000"},
        {"mv workspace w; cp -a w workspace", "rm -r workspace; mv w workspace", 4, "its inode"},
        {"mv workspace w; ln -s w workspace", "rm workspace; mv w workspace", 5, "symbolic link"},
        {"mv workspace w", "mv w workspace", 5, "cannot be used"},
        {"chown 0:0 workspace", "chown 1000:1000 workspace", 5, "belongs to root"},
        {"sed -i 's/^owner 0$/owner 1234/' state/kept/run_*",
         "sed -i 's/^owner 1234$/owner 0/' state/kept/run_*", 4, "is of uid 1234"},
        {"sed -i 's/^workspace-device .*/workspace-device 1/' state/kept/run_*", NULL, 4,
         "its device was 1"},
    };
    struct e2e t;
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        sh(&t, rows[i].line);
        lease_bridle(&t, rows[i].status, rows[i].said, "promote", "--yes", "last", NULL);
        e2e_expect_file(&t, "workspace/x", NULL);
        if (rows[i].back)
            sh(&t, rows[i].back);
    }
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* What no sandbox could make, in a file system that somebody got at all the same. */
static void test_hostile(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "mknod m/c c 1 3",
        "mknod m/b b 7 0",
        "cp /bin/true m/s; chmod 4755 m/s",
        "mkfifo m/f",
        "ln -s ../../etc m/l",
        "mkdir m/d; chmod 2777 m/d",
        "ln -s /etc/passwd m/l",
    };
    static const char *const said[] = {"a device",    "a device",  "set-user-id", "a FIFO",
                                       "a link that", "set-group", "a link that"};
    struct e2e t;
    char line[512];
    if (!root_only())
        skip();
    lease_open(&t);
    for (size_t i = 0; i < BR_ARRAY_LEN(lines); i++) {
        lease_sh(&t, 0, "echo x > x");
        snprintf(line, sizeof(line),
                 "mkdir -p m && mount -o loop state/leases/run-*.img m && { %s; } ; r=$?; umount m "
                 "&& test $r = 0",
                 lines[i]);
        sh(&t, line);
        lease_bridle(&t, 4, said[i], "promote", "--yes", "last", NULL);
        e2e_expect_file(&t, "workspace/x", NULL);
        lease_bridle(&t, 0, NULL, "state", "purge", "--all", NULL);
    }
    e2e_expect_clean(&t);
    e2e_close(&t);
}

static void test_two(void **state)
{
    (void)state;
    struct e2e t;
    char id[64], path[256];
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    lease_kept(&t, id);
    /* somebody has the copy; somebody promotes another run to the same workspace */
    snprintf(path, sizeof(path), "%s/leases/run-%s.img", t.state, id);
    const char *const places[] = {path, t.workspace};
    for (size_t i = 0; i < BR_ARRAY_LEN(places); i++) {
        int fd = open(places[i], O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
        lease_bridle(&t, 1, i ? "another promotion to this workspace" : "is in use", "promote",
                     "--yes", "last", NULL);
        close(fd);
    }
    e2e_expect_file(&t, "workspace/x", NULL);
    /* and both at once: one of them does it */
    const char *const argv[] = {"bridle", "promote", "--yes", id, NULL};
    struct e2e_result r;
    pid_t pids[2];
    pids[0] = e2e_spawn(&t, (char *const *)argv, NULL);
    pids[1] = fork();
    if (pids[1] == 0) {
        char bin[512];
        snprintf(bin, sizeof(bin), "%s/bridle", e2e_bin());
        setenv("BRIDLE_STATE_DIR", t.state, 1);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0), dup2(null, 1), dup2(null, 2);
        execl(bin, "bridle", "promote", "--yes", id, NULL);
        _exit(127);
    }
    int status;
    e2e_wait(&t, pids[0], 60, &r);
    assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
    int other = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    assert_true((r.status == 0) + (other == 0) == 1);
    assert_true(r.status == 0 || r.status == 1 || r.status == 3);
    assert_true(other == 0 || other == 1 || other == 3);
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/x", "x\n");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* ---- interrupted ---- */

static unsigned steps_left;

static void die(void)
{
    if (--steps_left == 0)
        (void)kill(getpid(), SIGKILL);
}

/* As bridle-promote does it, with the code that it has, killed at a step. */
static bool interrupt(struct e2e *t, const char *id, unsigned step)
{
    char path[256];
    int status;
    sh(t, "mkdir -p m && mount -o loop,ro state/leases/run-*.img m");
    pid_t pid = fork();
    if (pid == 0) {
        struct br_promotion p = {.with_git = false};
        struct br_err err;
        snprintf(p.stage, sizeof(p.stage), BR_PROMOTE_STAGE "%s", id);
        snprintf(path, sizeof(path), "%s/m", t->dir);
        p.lease = open(path, O_RDONLY | O_DIRECTORY);
        p.workspace = open(t->workspace, O_RDONLY | O_DIRECTORY);
        snprintf(path, sizeof(path), "%s/leases/run-%s.base", t->state, id);
        p.base = open(path, O_RDONLY);
        snprintf(path, sizeof(path), "%s/leases/run-%s.journal", t->state, id);
        p.journal = open(path, O_RDWR | O_CREAT, 0600);
        if (setgid(1000) < 0 || setuid(1000) < 0 || br_promotion_plan(&p, &err) < 0)
            _exit(1);
        steps_left = step;
        br_promotion_step = die;
        _exit(br_promotion_apply(&p, &err) < 0 ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    sh(t, "umount m");
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

static void test_interrupted(void **state)
{
    (void)state;
    struct e2e t;
    char id[64];
    unsigned recovered = 0, anew = 0;
    if (!root_only())
        skip();
    lease_open(&t);
    for (unsigned step = 2; step < 40; step += 6) {
        sh(&t, "rm -f workspace/x; echo one > workspace/a.txt; echo y > workspace/y; chown "
               "1000:1000 workspace/*");
        lease_sh(&t, 0, "echo x > x; echo two > a.txt; rm y");
        lease_kept(&t, id);
        if (!interrupt(&t, id, step))
            break;
        BR_CLEANUP_FREE char *list = lease_list(&t);
        assert_non_null(strstr(list, "\"interrupted\":true"));
        lease_bridle(&t, 1, "bridle promote --recover", "state", "purge", id, NULL);
        lease_sh(&t, 0, "true"); /* is in nobody's way */
        bool explicit = step % 4 == 0;
        if (explicit)
            lease_bridle(&t, 0, NULL, "promote", "--recover", id, NULL);
        else
            lease_bridle(&t, 0, NULL, "promote", "--yes", id, NULL);
        BR_CLEANUP_FREE char *x = e2e_read(&t, "workspace/x");
        BR_CLEANUP_FREE char *a = e2e_read(&t, "workspace/a.txt");
        BR_CLEANUP_FREE char *y = e2e_read(&t, "workspace/y");
        bool new = x &&strcmp(a, "two\n") == 0 && !y;
        assert_true(new || (!x && strcmp(a, "one\n") == 0 && y));
        assert_true(new || explicit);
        recovered += new &&explicit;
        anew += new && !explicit;
        sh(&t, "test -z \"$(ls -d workspace/.bridle-promote-* 2>/dev/null)\"");
        lease_bridle(&t, 0, NULL, "state", "purge", "--all", NULL);
    }
    assert_true(recovered > 0 && anew > 0);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* What ends before it was allowed has changed nothing. */
static void test_killed(void **state)
{
    (void)state;
    static const char *const programs[] = {"bridle-promote", "bridle-session", "bridle-launch",
                                           "bridled"};
    struct e2e t;
    struct e2e_result r;
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        const char *const argv[] = {"bridle", "promote", "--yes", "last", NULL};
        pid_t pid = e2e_spawn(&t, (char *const *)argv, NULL);
        pid_t victim = e2e_await(pid, programs[i], 0, 5000);
        if (victim > 0)
            (void)kill(victim, SIGKILL);
        e2e_wait(&t, pid, 60, &r);
        e2e_result_free(&r);
    }
    /* whatever became of them, it is whole */
    BR_CLEANUP_FREE char *list = lease_list(&t);
    if (strstr(list, "\"kind\":\"workspace\"")) {
        usleep(300000);
        lease_bridle(&t, 0, NULL, "promote", "--yes", "last", NULL);
    }
    e2e_expect_file(&t, "workspace/x", "x\n");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* At a terminal: what is done when the question is there, and what comes of it. */
static void at_the_question(struct e2e *t, const char *action, int status, const char *said)
{
    struct e2e_result r;
    char bridle[512];
    snprintf(bridle, sizeof(bridle), "%s/bridle", e2e_bin());
    e2e_run(t, &r, "../tests/ptydrive", "-t", "60", "-e", "Allow it this once?", action, "--",
            bridle, "promote", "last", NULL);
    if (status >= 0)
        e2e_expect(&r, status, said);
    else if (r.status == 0 || !e2e_says(&r, said))
        fail_msg("%s: %d\n%s", action, r.status, br_buf_cstr(&r.out));
    e2e_result_free(&r);
}

static void test_asked(void **state)
{
    (void)state;
    /* in the pid namespace of this test there are no others */
    static const char *const programs[] = {"bridle-promote", "bridle-session", "bridle-launch",
                                           "bridle-audit",   "bridled",        "bridle"};
    struct e2e t;
    char action[256];
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    at_the_question(&t, "send:n", 4, "not permitted");
    at_the_question(&t, "send:r", 4, "not permitted"); /* there is no answer for a run */
    at_the_question(&t, "eof", 4, "not permitted");
    at_the_question(&t, "int", 1, "cancel");
    e2e_expect_file(&t, "workspace/x", NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(programs); i++) {
        snprintf(
            action, sizeof(action),
            "run:for p in /proc/[0-9]*; do test \"$(cat $p/comm 2>/dev/null)\" = %s && kill -9 "
            "${p#/proc/}; done; true",
            programs[i]);
        at_the_question(&t, action, -1, "x");
        e2e_expect_file(&t, "workspace/x", NULL);
        usleep(200000); /* the launcher lets go of the copy */
    }
    BR_CLEANUP_FREE char *list = lease_list(&t);
    assert_non_null(strstr(list, "\"interrupted\":false"));
    /* it was told to, and never could: stopped before it was, and killed then */
    struct e2e_result r;
    char bridle[512];
    snprintf(bridle, sizeof(bridle), "%s/bridle", e2e_bin());
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", "1 change of",
            "run:for p in /proc/[0-9]*; do test \"$(cat $p/comm 2>/dev/null)\" = bridle-promote && "
            "{ kill -STOP ${p#/proc/}; (sleep 1; kill -9 ${p#/proc/}) & }; done; true",
            "-e", "Allow it this once?", "send:y", "--", bridle, "promote", "last", NULL);
    e2e_expect(&r, 1, "nothing was promoted");
    e2e_result_free(&r);
    e2e_expect_file(&t, "workspace/x", NULL);
    at_the_question(&t, "send:y", 0, "promoted");
    e2e_expect_file(&t, "workspace/x", "x\n");
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* Somebody looks at the same run while one is asked about it: refused, and the journal of the one
 * that is asked stays the one that is found later. */
static void test_looked_at(void **state)
{
    (void)state;
    struct e2e t;
    struct e2e_result r;
    char id[64], bridle[512], action[4096], line[512];
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    lease_kept(&t, id);
    snprintf(bridle, sizeof(bridle), "%s/bridle", e2e_bin());
    snprintf(action, sizeof(action),
             "run:cd '%s'; export BRIDLE_STATE_DIR=$PWD/state; j=state/leases/run-%s.journal; ls "
             "-i $j > before; for a in --dry-run --yes --recover; do '%s' promote $a last > said$a "
             "2>&1; echo $? >> said$a; done; '%s' state purge %s > saidpurge 2>&1; ls -i $j > "
             "after; true",
             t.dir, id, bridle, bridle, id);
    e2e_run(&t, &r, "../tests/ptydrive", "-t", "60", "-e", "Allow it this once?", action, "-e", "",
            "send:y", "--", bridle, "promote", "last", NULL);
    e2e_expect(&r, 0, "promoted");
    e2e_result_free(&r);
    sh(&t, "set -e; cmp before after; test -s before; for a in --dry-run --yes --recover; do grep "
           "-q \"is in use\" said$a; tail -n 1 said$a | grep -qx 1; done; grep -q \"is in use\" "
           "saidpurge");
    e2e_expect_file(&t, "workspace/x", "x\n");
    snprintf(line, sizeof(line), "test ! -e state/leases/run-%s.journal", id);
    sh(&t, line);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

/* What was replaced is in a stage that no journal knows of. */
static void test_orphan(void **state)
{
    (void)state;
    struct e2e t;
    char id[64], line[512];
    if (!root_only())
        skip();
    lease_open(&t);
    lease_sh(&t, 0, "echo x > x");
    lease_kept(&t, id);
    snprintf(line, sizeof(line),
             "mkdir workspace/.bridle-promote-%s; echo only > workspace/.bridle-promote-%s/1", id,
             id);
    sh(&t, line);
    lease_bridle(&t, 8, "may hold the only copies", "promote", "--yes", "last", NULL);
    snprintf(line, sizeof(line), "grep -q only workspace/.bridle-promote-%s/1", id);
    sh(&t, line);
    e2e_expect_file(&t, "workspace/x", NULL);
    sh(&t, "rm -r workspace/.bridle-promote-*");
    lease_bridle(&t, 0, "promoted", "promote", "--yes", "last", NULL);
    e2e_expect_clean(&t);
    e2e_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promoted),    cmocka_unit_test(test_decided),
        cmocka_unit_test(test_conflicts),   cmocka_unit_test(test_identity),
        cmocka_unit_test(test_hostile),     cmocka_unit_test(test_two),
        cmocka_unit_test(test_interrupted), cmocka_unit_test(test_killed),
        cmocka_unit_test(test_asked),       cmocka_unit_test(test_looked_at),
        cmocka_unit_test(test_orphan),
    };
    e2e_isolate();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
