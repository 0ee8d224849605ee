/*
 * No grant, no effect: the real ledger, the real bridle-init (not as pid 1, on a directory of the
 * test's own), and the file system as the witness. Every refusal is followed by a look at the file.
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/session_priv.h"

struct fixture {
    struct session s;
    char dir[64], file[96];
    pid_t pid;
};

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void expect_file(const struct fixture *f, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    int fd = open(f->file, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(br_read_all(fd, &b, f->file, NULL), 0);
    close(fd);
    assert_string_equal(br_buf_cstr(&b), text);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    int ends[2];
    const char *bin = getenv("BRIDLE_BIN");
    char program[BR_PATH_MAX];
    assert_non_null(bin);
    snprintf(program, sizeof(program), "%s/bridle-init", bin);
    snprintf(f->dir, sizeof(f->dir), "/tmp/bridle-effect-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->file, sizeof(f->file), "%s/note.txt", f->dir);
    write_file(f->file, "before");
    assert_int_equal(br_chan_pair(ends), 0);
    f->pid = fork();
    if (f->pid == 0) {
        if (chdir(f->dir) == 0 && dup2(ends[1], 3) == 3)
            execl(program, "bridle-init", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    f->s.loop = br_loop_new();
    f->s.ledger = br_ledger_new("session-1");
    assert_non_null(f->s.loop);
    assert_non_null(f->s.ledger);
    session_adopt_init(&f->s, ends[0]);
    assert_int_equal(session_wait(&f->s, &f->s.init_is_ready, 5000000, false), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    int status = 0;
    br_loop_unwatch_chan(f->s.loop, &f->s.init);
    br_chan_close(&f->s.init);
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    reply_free(&f->s.inited);
    br_buf_free(&f->s.init_ready);
    br_ledger_free(&f->s.ledger);
    br_loop_free(&f->s.loop);
    unlink(f->file);
    rmdir(f->dir);
    free(f);
    return 0;
}

static void write_effect(struct effect *e, const char *path, const char *content)
{
    json_t *args = json_pack("{s:s, s:s}", "path", path, "content", content);
    struct br_err err;
    assert_int_equal(tools_resolve("fs_write", args, e, &err), 0);
    json_decref(args);
}

static int mint(struct fixture *f, const char *call, const struct effect *e,
                struct br_grant_ref *grant)
{
    return br_ledger_mint(f->s.ledger, BR_EFFECT_ALLOW, NULL, NULL, call, e->action, e->subject,
                          strlen(e->subject), grant, NULL);
}

static int run(struct fixture *f, const struct br_grant_ref *g, const char *call,
               const struct effect *e)
{
    json_t *out = NULL;
    struct br_err err = {.code = BR_OK};
    int r = session_effect(&f->s, g, call, e, &out, &err);
    if (r < 0)
        assert_true(err.text[0] != 0);
    json_decref(out);
    return r;
}

static void test_granted_effect_happens(void **state)
{
    struct fixture *f = *state;
    struct effect e;
    struct br_grant_ref g;
    write_effect(&e, "note.txt", "after");
    assert_int_equal(mint(f, "call-1", &e, &g), 0);
    assert_int_equal(run(f, &g, "call-1", &e), 0);
    expect_file(f, "after");
    effect_free(&e);
}

/* Canceled between the decision and the effect. */
static void test_stopped_before(void **state)
{
    struct fixture *f = *state;
    struct effect e;
    struct br_grant_ref g;
    write_effect(&e, "note.txt", "after");
    assert_int_equal(mint(f, "call-1", &e, &g), 0);
    session_stop(&f->s, BR_E_CANCELED, "the operator canceled the run");
    assert_int_equal(run(f, &g, "call-1", &e), -BR_E_CANCELED);
    expect_file(f, "before");
    effect_free(&e);
}

static void test_no_grant(void **state)
{
    struct fixture *f = *state;
    struct effect e;
    struct br_grant_ref g = {.serial = 1, .call_id = "call-1", .action = "fs.write"};
    write_effect(&e, "note.txt", "after");
    assert_int_equal(run(f, &g, "call-1", &e), -BR_E_NO_GRANT);
    expect_file(f, "before");
    effect_free(&e);
}

static void test_forged_token(void **state)
{
    struct fixture *f = *state;
    struct effect e;
    struct br_grant_ref g;
    write_effect(&e, "note.txt", "after");
    assert_int_equal(mint(f, "call-1", &e, &g), 0);
    g.token[3] ^= 1;
    assert_int_equal(run(f, &g, "call-1", &e), -BR_E_NO_GRANT);
    expect_file(f, "before");
    effect_free(&e);
}

static void test_used_grant(void **state)
{
    struct fixture *f = *state;
    struct effect e;
    struct br_grant_ref g;
    write_effect(&e, "note.txt", "after");
    assert_int_equal(mint(f, "call-1", &e, &g), 0);
    assert_int_equal(run(f, &g, "call-1", &e), 0);
    write_file(f->file, "before");
    assert_int_equal(run(f, &g, "call-1", &e), -BR_E_GRANT_USED);
    expect_file(f, "before");
    effect_free(&e);
}

static void test_grant_of_another_call_or_subject(void **state)
{
    struct fixture *f = *state;
    struct effect e, other;
    struct br_grant_ref g;
    write_effect(&e, "note.txt", "after");
    write_effect(&other, "other.txt", "after");
    assert_int_equal(mint(f, "call-1", &e, &g), 0);
    assert_int_equal(run(f, &g, "call-2", &e), -BR_E_GRANT_MISMATCH);
    expect_file(f, "before");
    assert_int_equal(mint(f, "call-3", &other, &g), 0);
    assert_int_equal(run(f, &g, "call-3", &e), -BR_E_GRANT_MISMATCH);
    expect_file(f, "before");
    effect_free(&e);
    effect_free(&other);
}

/* A session that lost its mind still meets the second check, in bridle-init. */
static void test_init_checks_as_well(void **state)
{
    struct fixture *f = *state;
    struct effect e, other;
    struct br_grant_ref g;
    write_effect(&e, "note.txt", "after");
    write_effect(&other, "other.txt", "after");
    assert_int_equal(mint(f, "call-1", &other, &g), 0);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_grant_ref_put(&o.buf, &g);
    br_init_call_put(&o, &e.op);
    uint64_t id = session_expect(&f->s, &f->s.inited);
    assert_int_equal(br_chan_send(&f->s.init, BR_MSG_INIT_CALL, id, &o, NULL), 0);
    assert_int_equal(session_wait(&f->s, &f->s.inited.done, 5000000, false), 0);
    assert_int_equal(f->s.inited.code, -BR_E_GRANT_MISMATCH);
    expect_file(f, "before");
    effect_free(&e);
    effect_free(&other);
}

static void test_ask_that_was_denied_mints_nothing(void **state)
{
    struct fixture *f = *state;
    struct effect e;
    struct br_grant_ref g = {.serial = 0};
    char permission[BR_ID_MAX];
    write_effect(&e, "note.txt", "after");
    assert_int_equal(br_ledger_ask(f->s.ledger, "call-1", e.action, e.subject, strlen(e.subject),
                                   BR_SCOPE_ONCE, NULL, permission, NULL),
                     0);
    assert_int_equal(br_ledger_end(f->s.ledger, permission, BR_ASK_DENIED, NULL), 0);
    assert_int_equal(br_ledger_mint(f->s.ledger, BR_EFFECT_ASK, permission, NULL, "call-1",
                                    e.action, e.subject, strlen(e.subject), &g, NULL),
                     -BR_E_NO_GRANT);
    assert_int_equal(run(f, &g, "call-1", &e), -BR_E_NO_GRANT);
    expect_file(f, "before");
    effect_free(&e);
}

int main(void)
{
#define T_(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T_(test_granted_effect_happens),
        T_(test_stopped_before),
        T_(test_no_grant),
        T_(test_forged_token),
        T_(test_used_grant),
        T_(test_grant_of_another_call_or_subject),
        T_(test_init_checks_as_well),
        T_(test_ask_that_was_denied_mints_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
