/*
 * Applying is all or nothing: killed before every single change to the workspace and the journal,
 * with somebody who changes the workspace in between, and without room.
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
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "promote/promote_priv.h"
#include "promote/test_rig.h"

/* Every kind of step. */
static const char run_line[] =
    "echo four >> a.txt; mv src lib; rm -r old; echo x > old; ln -sfn lib link; chmod 700 .vscode; "
    "mkdir -p new/er; echo x > new/x; chmod 555 new/er; chmod 600 tool.sh; rm -f gone";

static void open_changed(struct rig *r)
{
    struct br_err err = {.code = BR_OK};
    rig_open(r);
    rig_sh(r, "workspace", "echo > gone; echo mine > untouched");
    rig_copy(r);
    rig_sh(r, "lease", run_line);
    assert_int_equal(rig_plan(r, &err), 0);
    assert_int_equal(r->p.conflicts + r->p.refused, 0);
}

static void test_apply(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    open_changed(&r);
    if (br_promotion_apply(&r.p, &err) < 0)
        fail_msg("%s", err.text);
    BR_CLEANUP_FREE char *want = rig_tree(&r, "lease"), *is = rig_tree(&r, "workspace");
    assert_string_equal(is, want);
    assert_false(br_journal_pending(r.p.journal));
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_int_equal(r.p.nchanges, 0);
    rig_close(&r);
}

static unsigned steps_left;
static void (*at_step)(void);

static void count_down(void)
{
    if (steps_left > 0 && --steps_left == 0)
        at_step();
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
}

/* In a child that ends at the n-th step; false if it came to its end before. */
static bool killed_at(struct rig *r, unsigned n, bool recover)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct br_err err = {.code = BR_OK};
        bool applied;
        steps_left = n;
        at_step = die;
        br_promotion_step = count_down;
        int ret =
            recover ? br_promotion_recover(&r->p, &applied, &err) : br_promotion_apply(&r->p, &err);
        if (ret < 0)
            fprintf(stderr, "%s\n", err.text);
        _exit(ret < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* Killed anywhere, and killed anywhere again while that is put right: old or new, never half. */
static void test_killed(void **state)
{
    (void)state;
    unsigned old = 0, new = 0, n;
    for (n = 1;; n++) {
        struct rig r;
        struct br_err err = {.code = BR_OK};
        bool applied = false;
        open_changed(&r);
        BR_CLEANUP_FREE char *before = rig_tree(&r, "workspace"), *after = rig_tree(&r, "lease");
        bool killed = killed_at(&r, n, false);
        if (killed && n % 3 == 0) /* and once more */
            (void)killed_at(&r, 1 + n % 7, true);
        if (killed && br_promotion_recover(&r.p, &applied, &err) < 0)
            fail_msg("step %u: %s", n, err.text);
        BR_CLEANUP_FREE char *is = rig_tree(&r, "workspace");
        assert_string_equal(is, applied || !killed       ? after
                                : strcmp(is, after) == 0 ? after
                                                         : before);
        old += strcmp(is, before) == 0;
        new += strcmp(is, after) == 0;
        assert_false(br_journal_pending(r.p.journal));
        rig_close(&r);
        if (!killed)
            break;
    }
    assert_int_equal(old + new, n);
    assert_true(old > 10 && new > 20);
}

/* ---- somebody who changes the workspace meanwhile ---- */

static struct rig *raced;
static const char *race_line;

static void race(void)
{
    br_promotion_step = NULL;
    rig_sh(raced, "workspace", race_line);
    br_promotion_step = count_down;
}

/* Does what is theirs survive, with everything else as it was? */
static void try_race(const char *line, const char *probe)
{
    unsigned n, failed = 0;
    for (n = 1; n < 200; n += 6) {
        struct rig r;
        struct br_err err = {.code = BR_OK};
        open_changed(&r);
        rig_sh(&r, ".", "mkdir outside; echo safe > outside/b.txt; echo safe > outside/x");
        BR_CLEANUP_FREE char *outside = rig_tree(&r, "outside");
        raced = &r;
        race_line = line;
        steps_left = n;
        at_step = race;
        br_promotion_step = count_down;
        int ret = br_promotion_apply(&r.p, &err);
        br_promotion_step = NULL;
        BR_CLEANUP_FREE char *still = rig_tree(&r, "outside");
        assert_string_equal(outside, still);
        bool over = steps_left > 0;
        if (!over) /* whatever came of it, nothing of theirs is lost */
            rig_sh(&r, "workspace", probe);
        failed += ret < 0;
        if (ret < 0 && !br_journal_pending(r.p.journal)) {
            rig_sh(&r, "workspace", "test ! -e lib/deep -a -f gone -a -d old");
            assert_true(err.code == BR_E_IN_USE || err.code == BR_E_FAILED);
        }
        rig_close(&r);
        if (over)
            break;
    }
    assert_true(n < 200 && failed > 0);
}

static void test_races(void **state)
{
    (void)state;
    try_race("rm -f a.txt; ln -s ../outside/x a.txt", "test \"$(readlink a.txt)\" = ../outside/x");
    try_race("if [ -d src ]; then mv src theirs; ln -s ../outside src; fi",
             "test ! -d theirs -o -f theirs/b.txt -o -n \"$(ls .bridle-promote-run_1)\"");
    try_race("echo theirs > a.txt.new; mv a.txt.new a.txt", "grep -q theirs a.txt");
    try_race("mkdir -p new", "test -d new");
}

/* What appears at the last moment is not overwritten, and what is there is not lost. */
static void test_late(void **state)
{
    (void)state;
    static const char *const lines[] = {"echo theirs > new", "echo theirs > a.txt",
                                        "echo theirs > old/three", "rm tool.sh"};
    static const char *const probes[] = {"grep -q theirs new", "grep -q theirs a.txt",
                                         "grep -q theirs old/three", "test ! -e tool.sh"};
    for (size_t i = 0; i < BR_ARRAY_LEN(lines); i++) {
        struct rig r;
        struct br_err err = {.code = BR_OK};
        open_changed(&r);
        rig_sh(&r, "workspace", lines[i]); /* after it was compared */
        BR_CLEANUP_FREE char *before = rig_tree(&r, "workspace");
        assert_int_equal(br_promotion_apply(&r.p, &err), -BR_E_IN_USE);
        assert_non_null(strstr(err.text, "nothing was promoted"));
        rig_sh(&r, "workspace", probes[i]);
        BR_CLEANUP_FREE char *after = rig_tree(&r, "workspace");
        assert_string_equal(before, after);
        assert_false(br_journal_pending(r.p.journal));
        rig_close(&r);
    }
}

/* No room for what is made ready: nothing has happened. */
static void test_no_room(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    struct rlimit was, small = {.rlim_cur = 4096};
    rig_open(&r);
    rig_copy(&r);
    rig_sh(&r, "lease", "echo x > a.txt; dd if=/dev/zero of=big bs=64k count=1 status=none");
    assert_int_equal(rig_plan(&r, &err), 0);
    BR_CLEANUP_FREE char *before = rig_tree(&r, "workspace");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int ret = br_promotion_apply(&r.p, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(ret, -BR_E_FAILED);
    assert_non_null(strstr(err.text, "nothing was promoted: 'big'"));
    BR_CLEANUP_FREE char *after = rig_tree(&r, "workspace");
    assert_string_equal(before, after);
    /* with room it works */
    assert_int_equal(rig_plan(&r, &err), 0);
    assert_int_equal(br_promotion_apply(&r.p, &err), 0);
    rig_sh(&r, "workspace", "test -f big");
    rig_close(&r);
}

/* What was made ready is changed by somebody between the crash and the recovery. */
static void test_stage_changed(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    bool applied = true;
    unsigned n;
    for (n = 1;; n++) {
        open_changed(&r);
        assert_true(killed_at(&r, n, false));
        if (br_journal_read_state(r.p.journal) == BR_JOURNAL_COMMITTED)
            break;
        rig_close(&r);
    }
    BR_CLEANUP_FREE char *before = rig_tree(&r, "workspace");
    rig_sh(&r, "workspace",
           "for f in .bridle-promote-run_1/*; do test -f $f && echo evil > $f; done; true");
    assert_int_equal(br_promotion_recover(&r.p, &applied, &err), 0);
    assert_false(applied);
    rig_sh(&r, "workspace", "! grep -rq evil . && test ! -e .bridle-promote-run_1 -a -d src");
    rig_close(&r);
}

static void test_two(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    open_changed(&r);
    int first = br_promotion_lock(r.p.workspace, &err);
    assert_true(first >= 0);
    assert_int_equal(br_promotion_lock(r.p.workspace, &err), -BR_E_IN_USE);
    close(first);
    first = br_promotion_lock(r.p.workspace, &err);
    assert_true(first >= 0);
    close(first);
    assert_int_equal(br_promotion_alone(&r.p, &err), 0);
    rig_sh(&r, "workspace", "mkdir .bridle-promote-run_2");
    assert_int_equal(br_promotion_alone(&r.p, &err), -BR_E_IN_USE);
    assert_non_null(strstr(err.text, "--recover run_2"));
    rig_close(&r);
}

static void test_damaged_journal(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    bool applied;
    unsigned n;
    for (n = 1;; n++) {
        open_changed(&r);
        assert_true(killed_at(&r, n, false));
        if (br_journal_read_state(r.p.journal) == BR_JOURNAL_COMMITTED)
            break;
        rig_close(&r);
    }
    rig_sh(&r, ".",
           "cp journal whole; printf x | dd of=journal bs=1 seek=100 conv=notrunc status=none");
    assert_int_equal(br_promotion_recover(&r.p, &applied, &err), -BR_E_STORE_FAILED);
    rig_sh(&r, ".", "cat whole > journal");
    assert_int_equal(br_promotion_recover(&r.p, &applied, &err), 0);
    assert_true(applied);
    rig_close(&r);
}

/* One whose sum is right, and whose first step is of no kind. */
static void test_kind_of_none(void **state)
{
    (void)state;
    struct rig r;
    struct br_err err = {.code = BR_OK};
    struct br_journal_head h;
    struct br_sha256 sum;
    bool applied;
    static char steps[64 * 1024];
    unsigned n;
    for (n = 1;; n++) {
        open_changed(&r);
        assert_true(killed_at(&r, n, false));
        if (br_journal_read_state(r.p.journal) == BR_JOURNAL_COMMITTED)
            break;
        rig_close(&r);
    }
    BR_CLEANUP_FREE char *before = rig_tree(&r, "workspace");
    assert_int_equal(pread(r.p.journal, &h, sizeof(h), 0), sizeof(h));
    assert_true(h.bytes < sizeof(steps));
    assert_int_equal(pread(r.p.journal, steps, h.bytes, sizeof(h)), h.bytes);
    steps[0] = 0;
    br_sha256_init(&sum);
    br_sha256_put(&sum, steps, h.bytes);
    br_sha256_end(&sum, h.sum);
    assert_int_equal(pwrite(r.p.journal, &h, sizeof(h), 0), sizeof(h));
    assert_int_equal(pwrite(r.p.journal, steps, h.bytes, sizeof(h)), h.bytes);
    assert_int_equal(br_promotion_recover(&r.p, &applied, &err), -BR_E_STORE_FAILED);
    assert_true(br_journal_pending(r.p.journal));
    BR_CLEANUP_FREE char *after = rig_tree(&r, "workspace");
    assert_string_equal(before, after);
    rig_close(&r);
}

static void make_orphan(void)
{
    br_promotion_step = NULL;
    rig_sh(raced, "workspace", "mkdir .bridle-promote-run_1; echo only > .bridle-promote-run_1/1");
}

/* A stage that no journal knows of holds what may be nowhere else. */
static void test_orphan(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 3; n++) { /* there before, and made at the last moment */
        struct rig r;
        struct br_err err = {.code = BR_OK};
        open_changed(&r);
        raced = &r;
        steps_left = n;
        at_step = make_orphan;
        if (n == 0)
            make_orphan();
        if (n == 0) {
            assert_int_equal(br_promotion_alone(&r.p, &err), -BR_E_STORE_FAILED);
            assert_non_null(strstr(err.text, "'.bridle-promote-run_1'"));
        }
        br_promotion_step = count_down;
        assert_int_equal(br_promotion_apply(&r.p, &err), -BR_E_STORE_FAILED);
        br_promotion_step = NULL;
        assert_non_null(strstr(err.text, "'.bridle-promote-run_1'"));
        assert_false(br_journal_pending(r.p.journal));
        rig_sh(&r, "workspace", "grep -q only .bridle-promote-run_1/1 && test -d src -a -f gone");
        assert_int_equal(br_promotion_alone(&r.p, &err), -BR_E_STORE_FAILED);
        /* out of the way, it goes on */
        rig_sh(&r, "workspace", "mv .bridle-promote-run_1 ../saved");
        assert_int_equal(br_promotion_alone(&r.p, &err), 0);
        assert_int_equal(br_promotion_apply(&r.p, &err), 0);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply),   cmocka_unit_test(test_killed),
        cmocka_unit_test(test_races),   cmocka_unit_test(test_late),
        cmocka_unit_test(test_no_room), cmocka_unit_test(test_stage_changed),
        cmocka_unit_test(test_two),     cmocka_unit_test(test_damaged_journal),
        cmocka_unit_test(test_orphan),  cmocka_unit_test(test_kind_of_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
