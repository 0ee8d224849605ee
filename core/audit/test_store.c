/*
 * The store: what is committed stays as it is, in order, whoever tries; what cannot be stored is an
 * error and leaves nothing behind; a directory or a file that others could touch is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/test_store_rig.h"

static void refused(int fd, const char *why)
{
    struct br_store *s = NULL;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_store_open(fd, &s, &err), -BR_E_STORE_FAILED);
    assert_null(s);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
}

static void test_write_and_read(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a");
    add_events(s, &run, 3);
    add_events(s, &run, 2);
    assert_int_equal(read_all(s, "run_a"), 5);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_end(s, &run, 9, "completed", NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
    br_store_close(&s);
    s = opened(p->fd);
    struct br_store_info info;
    assert_int_equal(br_store_find(s, "run_a", &info, NULL), 0);
    assert_string_equal(info.status, "completed");
    assert_int_equal(info.started_us, 5);
    assert_int_equal(info.ended_us, 9);
    assert_int_equal(info.events, 5);
    assert_string_equal(info.goal, "g");
    assert_int_equal(read_all(s, "run_a"), 5);
    struct stat st;
    assert_int_equal(fstatat(p->fd, BR_STORE_FILE, &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    br_store_close(&s);
}

/* A part of a transaction that was refused is not missing from what is committed: there is none. */
static void test_part_refused(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a"), before;
    static char body[STORE_BATCH_BYTES];
    memset(body, ' ', sizeof(body));
    add_events(s, &run, 1);
    before = run;
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_event(s, &run, body, sizeof(body) / 2, NULL), 0);
    int limit = sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, sizeof(body) / 4);
    assert_int_equal(br_store_add_event(s, &run, body, sizeof(body) / 2, NULL), -BR_E_STORE_FAILED);
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, limit);
    assert_int_equal(br_store_commit(s, NULL), -BR_E_STORE_FAILED);
    assert_int_equal(read_all(s, "run_a"), 1);
    add_events(s, &before, 1); /* and another is not concerned */
    assert_int_equal(read_all(s, "run_a"), 2);
    br_store_close(&s);
}

static void test_rolled_back_is_not_there(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a"), before = run;
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(add_event(s, &run, "{\"n\":1}", NULL), 0);
    br_store_rollback(s);
    assert_int_equal(read_all(s, "run_a"), 0);
    run = before;
    add_events(s, &run, 1);
    assert_int_equal(read_all(s, "run_a"), 1);
    br_store_close(&s);
}

static int rows_of(const struct place *p, const char *sql);
static int raw(const struct place *p, const char *sql);

/* An event of `run` is refused, when its row is written at the latest, and nothing is there. */
static void not_taken(struct br_store *s, struct br_store_run run, const char *why)
{
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(add_event(s, &run, "{}", &err), 0);
    assert_int_equal(br_store_commit(s, &err), -BR_E_STORE_FAILED);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
}

static void test_refused_by_the_store(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_info info = {.run_id = "run_a"};
    struct br_store_run run = new_run(s, "run_a"), other;
    struct br_err err = {.code = BR_OK};
    add_events(s, &run, 2);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_run(s, &info, &other, &err), -BR_E_STORE_FAILED);
    assert_non_null(strstr(err.text, "the run exists"));
    br_store_rollback(s);
    struct br_store_run gap = run, again = run, nobody = {.id = 77};
    gap.rows++;
    again.rows--;
    not_taken(s, gap, "out of order");
    not_taken(s, again, "out of order");
    not_taken(s, nobody, "FOREIGN KEY");
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_event(s, &run, "{\n}", 3, &err), -BR_E_STORE_FAILED);
    assert_int_equal(br_store_add_event(s, &run, "", 0, &err), -BR_E_STORE_FAILED);
    assert_int_equal(add_event(s, &run, "{\"n\":3}", &err), 0);
    assert_int_equal(br_store_add_end(s, &run, 1, "failed", &err), 0);
    assert_int_equal(br_store_add_end(s, &run, 1, "failed", &err), -BR_E_STORE_FAILED);
    assert_int_equal(br_store_commit(s, NULL), 0);
    not_taken(s, run, "has ended");
    assert_int_equal(read_all(s, "run_a"), 3);
    br_store_close(&s);
}

/* Rows of the table hold what was committed together, up to a size; reading sees events only. */
static void test_events_of_one_row(void **state)
{
    struct place *p = *state;
    static char large[200 * 1024];
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a"), other = new_run(s, "run_b");
    struct br_buf body = BR_BUF_INIT(BR_EVENT_MAX);
    add_events(s, &run, 7);
    add_events(s, &other, 2);
    add_events(s, &run, 5);
    assert_int_equal(rows_of(p, "SELECT count(*) FROM events"), 3);
    for (unsigned i = 1; i <= 12; i++) { /* both ways, and from one row to the other */
        unsigned row = i % 2 ? i : 13 - i;
        char want[32];
        snprintf(want, sizeof(want), "{\"n\":%u}", row);
        br_buf_reset(&body);
        assert_int_equal(br_store_read(s, run.id, row, &body, NULL), 0);
        assert_string_equal(br_buf_cstr(&body), want);
    }
    assert_int_equal(br_store_read(s, run.id, 13, &body, NULL), -BR_E_NOT_FOUND);
    assert_int_equal(br_store_read(s, run.id, 0, &body, NULL), -BR_E_NOT_FOUND);
    /* two readers by turns, one of them in the middle of a row */
    assert_int_equal(read_all(s, "run_b"), 2);
    assert_int_equal(read_all(s, "run_a"), 12);
    memset(large, 'x', sizeof(large));
    assert_int_equal(br_store_begin(s, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(br_store_add_event(s, &run, large, sizeof(large), NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
    assert_int_equal(rows_of(p, "SELECT count(*) FROM events"), 6);
    br_buf_reset(&body);
    assert_int_equal(br_store_read(s, run.id, 15, &body, NULL), 0);
    assert_int_equal(body.len, sizeof(large));
    br_buf_free(&body);
    br_store_close(&s);
}

/* A store of version 1: one event a row. Its bytes and its chain go on as they were. */
static void test_older_store_is_taken_over(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a");
    for (unsigned i = 0; i < 3; i++)
        add_events(s, &run, 1); /* a row each, as version 1 had it */
    br_store_close(&s);
    assert_int_equal(
        raw(p, "DROP TRIGGER events_in_order; DROP TRIGGER events_no_update; DROP TRIGGER "
               "events_no_delete; CREATE TABLE e(run INTEGER, row INTEGER, body TEXT, hash BLOB); "
               "INSERT INTO e SELECT run, row, body, hash FROM events; DROP TABLE events; "
               "CREATE TABLE events(run INTEGER NOT NULL REFERENCES runs(id), row INTEGER NOT NULL "
               "CHECK(row >= 1), event_id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, body TEXT NOT "
               "NULL, hash BLOB NOT NULL CHECK(length(hash) = 32), UNIQUE(run, row)) STRICT; "
               "INSERT INTO events SELECT run, row, 'evt_' || row, 'error', body, hash FROM e; "
               "DROP TABLE e; CREATE TRIGGER events_in_order BEFORE INSERT ON events BEGIN SELECT "
               "1; END; CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT 1; "
               "END; CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT "
               "RAISE(ABORT, 'append-only'); END; PRAGMA user_version = 1"),
        SQLITE_OK);
    s = opened(p->fd);
    assert_int_equal(read_all(s, "run_a"), 3);
    add_events(s, &run, 2);
    assert_int_equal(read_all(s, "run_a"), 5);
    assert_int_equal(raw(p, "DELETE FROM events"), SQLITE_CONSTRAINT);
    br_store_close(&s);
    s = opened(p->fd);
    br_store_close(&s);
}

/* ---- somebody else opens the file ---- */

static sqlite3 *raw_open(const struct place *p)
{
    char path[128];
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/%s", p->dir, BR_STORE_FILE);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    return db;
}

static int raw(const struct place *p, const char *sql)
{
    sqlite3 *db = raw_open(p);
    int r = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_close(db);
    return r;
}

static int rows_of(const struct place *p, const char *sql)
{
    sqlite3 *db = raw_open(p);
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    int n = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

static void test_append_only(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a");
    for (unsigned i = 0; i < 3; i++)
        add_events(s, &run, 1);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_end(s, &run, 9, "completed", NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
    static const char *const attacks[] = {
        "UPDATE events SET body = '{}' WHERE row = 2",
        "UPDATE events SET row = 9 WHERE row = 3",
        "DELETE FROM events WHERE row = 3",
        "DELETE FROM events",
        "UPDATE runs SET goal = 'x'",
        "DELETE FROM runs",
        "UPDATE ends SET status = 'failed'",
        "DELETE FROM ends",
        "UPDATE events SET count = 2 WHERE row = 3",
        "INSERT OR REPLACE INTO events SELECT run, row, count, '{}', hash FROM events WHERE row = "
        "3",
        "INSERT OR REPLACE INTO events SELECT run, 2, 2, '{}', hash FROM events WHERE row = 3",
        "INSERT OR REPLACE INTO runs SELECT id, run_id, 1, model, 'x', goal, owner FROM runs",
        "INSERT OR REPLACE INTO ends SELECT run, 1, 'failed', 0, hash FROM ends",
        "INSERT INTO events SELECT run, 4, 1, '{}', hash FROM events WHERE row = 3",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(attacks); i++)
        if (raw(p, attacks[i]) != SQLITE_CONSTRAINT)
            fail_msg("not refused: %s", attacks[i]);
    assert_int_equal(read_all(s, "run_a"), 3);
    /* positive control: the same connection reads, and without the trigger it would have worked */
    assert_int_equal(raw(p, "SELECT * FROM events"), SQLITE_OK);
    assert_int_equal(raw(p, "DROP TRIGGER events_no_update; UPDATE events SET body = '{\"n\":9}' "
                            "WHERE row = 3"),
                     SQLITE_OK);
    /* and even that is noticed */
    struct br_store_info info;
    struct br_store_run again;
    struct br_buf body = BR_BUF_INIT(BR_EVENT_MAX);
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_store_find(s, "run_a", &info, NULL), 0);
    br_store_rewind(&info, &again);
    assert_int_equal(br_store_next_event(s, &again, &body, &err), 1);
    assert_int_equal(br_store_next_event(s, &again, &body, &err), 1);
    assert_int_equal(br_store_next_event(s, &again, &body, &err), -BR_E_STORE_FAILED);
    assert_non_null(strstr(err.text, "was changed"));
    br_buf_free(&body);
    br_store_close(&s);
    refused(p->fd, "schema of");
}

static void test_cut_record_is_noticed(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a");
    add_events(s, &run, 2);
    add_events(s, &run, 1);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_end(s, &run, 9, "completed", NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
    assert_int_equal(read_all(s, "run_a"), 3);
    static const char *const changes[] = {
        "DROP TRIGGER events_no_update; UPDATE events SET body = '{\"n\":1}' WHERE row = 1",
        "UPDATE events SET body = '{\"n\":1}' || char(10) || '{\"n\":2}' || char(10) WHERE row = 1",
        "UPDATE events SET body = body || '{}' WHERE row = 1",
        "UPDATE events SET count = 3, body = '{\"n\":1}' || char(10) || '{\"n\":2}' WHERE row = 1",
        "UPDATE events SET count = 1, body = '{\"n\":1}' || char(10) || '{\"n\":2}' WHERE row = 1",
        "UPDATE events SET count = 2, body = '{\"n\":1}' || char(10) || '{\"n\":2}' WHERE row = 1; "
        "DROP TRIGGER events_no_delete; DELETE FROM events WHERE row = 3",
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(changes); i++) {
        assert_int_equal(raw(p, changes[i]), SQLITE_OK);
        if (read_all(s, "run_a") != -BR_E_STORE_FAILED)
            fail_msg("not noticed: %s", changes[i]);
    }
    br_store_close(&s);
}

static void test_foreign_files_are_refused(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    br_store_close(&s);
    assert_int_equal(raw(p, "PRAGMA user_version = 3"), SQLITE_OK);
    refused(p->fd, "schema version 3");
    assert_int_equal(raw(p, "PRAGMA user_version = 2; PRAGMA application_id = 7"), SQLITE_OK);
    refused(p->fd, "another program");
    char sql[64];
    snprintf(sql, sizeof(sql), "PRAGMA application_id = %d", BR_STORE_APPLICATION_ID);
    assert_int_equal(raw(p, sql), SQLITE_OK);
    s = opened(p->fd);
    br_store_close(&s);
    assert_int_equal(raw(p, "CREATE TABLE more(x)"), SQLITE_OK);
    refused(p->fd, "schema of");
    assert_int_equal(raw(p, "DROP TABLE more; CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE "
                            "FROM events; END"),
                     SQLITE_OK);
    refused(p->fd, "schema of");
}

static void overwrite(const struct place *p, off_t at, const char *bytes)
{
    int fd = openat(p->fd, BR_STORE_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, strlen(bytes), at), (ssize_t)strlen(bytes));
    close(fd);
}

static void test_corrupt_file_is_refused(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_run run = new_run(s, "run_a");
    add_events(s, &run, 50);
    br_store_close(&s);
    /* the root page of the schema */
    overwrite(p, 100, "garbage garbage garbage garbage garbage");
    refused(p->fd, "malformed");
    overwrite(p, 0, "this was a database once");
    refused(p->fd, "not a database");
}

static void test_directory_must_be_closed(void **state)
{
    struct place *p = *state;
    static const mode_t modes[] = {0770, 0701, 0704, 0710, 0777, 0750};
    struct stat st;
    for (size_t i = 0; i < BR_ARRAY_LEN(modes); i++) {
        assert_int_equal(fchmod(p->fd, modes[i]), 0);
        refused(p->fd, "open to other users");
        assert_int_equal(fstatat(p->fd, BR_STORE_FILE, &st, 0), -1);
    }
    assert_int_equal(fchmod(p->fd, 0700), 0);
    struct br_store *s = opened(p->fd);
    br_store_close(&s);
}

static void test_files_must_be_closed(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    br_store_close(&s);
    assert_int_equal(fchmodat(p->fd, BR_STORE_FILE, 0640, 0), 0);
    refused(p->fd, "open to other users");
    assert_int_equal(fchmodat(p->fd, BR_STORE_FILE, 0600, 0), 0);
    assert_int_equal(linkat(p->fd, BR_STORE_FILE, p->fd, "other", 0), 0);
    refused(p->fd, "hard links");
    assert_int_equal(unlinkat(p->fd, BR_STORE_FILE, 0), 0);
    assert_int_equal(symlinkat("other", p->fd, BR_STORE_FILE), 0);
    refused(p->fd, "not a regular file");
    assert_int_equal(unlinkat(p->fd, BR_STORE_FILE, 0), 0);
    assert_int_equal(mkdirat(p->fd, BR_STORE_FILE, 0700), 0);
    refused(p->fd, "not a regular file");
    assert_int_equal(unlinkat(p->fd, BR_STORE_FILE, AT_REMOVEDIR), 0);
    int file = openat(p->fd, "other", O_RDONLY | O_CLOEXEC);
    refused(file, "not a directory");
    close(file);
    if (geteuid() == 0) {
        assert_int_equal(fchown(p->fd, 1000, 1000), 0);
        refused(p->fd, "belongs to uid 1000");
        assert_int_equal(fchown(p->fd, 0, 0), 0);
    }
    assert_int_equal(renameat(p->fd, "other", p->fd, BR_STORE_FILE), 0);
    struct br_store *again = opened(p->fd);
    br_store_close(&again);
}

/* Runs fn in a child; asserts fail it there. As root it has its own mounts. */
static void in_child(struct place *p, uid_t uid, void (*fn)(struct place *))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 &&
            (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
            _exit(90);
        if (uid && geteuid() == 0 && (setgid(uid) < 0 || setuid(uid) < 0))
            _exit(91);
        fn(p);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with wait status 0x%x", (unsigned)status);
}

/* In a child: no cmocka, only exit codes. */
#define CHILD(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #cond);                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void child_read_only(struct place *p)
{
    struct br_store *s = NULL;
    struct br_err err = {.code = BR_OK};
    CHILD(br_store_open(p->fd, &s, &err) == -BR_E_STORE_FAILED && !s);
    CHILD(strstr(err.text, "could not be opened"));
}

static void child_read_only_mount(struct place *p)
{
    CHILD(mount("none", p->dir, "tmpfs", MS_RDONLY, "mode=0700") == 0);
    struct place q = {.fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    child_read_only(&q);
}

static void test_read_only_directory(void **state)
{
    struct place *p = *state;
    uid_t uid = geteuid() == 0 ? 1000 : geteuid();
    assert_int_equal(fchown(p->fd, uid, (gid_t)-1), 0);
    assert_int_equal(fchmod(p->fd, 0500), 0);
    in_child(p, uid, child_read_only);
    assert_int_equal(fchmod(p->fd, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(fchown(p->fd, 0, 0), 0);
        in_child(p, 0, child_read_only_mount);
    }
}

/* Append until it fails; what was committed before is all there, and nothing of what was not. */
static void fill(int fd)
{
    static char body[20000];
    struct br_err err = {.code = BR_OK};
    struct br_store *s = opened(fd);
    struct br_store_run run = new_run(s, "run_a"), committed = run;
    memset(body, 'x', sizeof(body) - 1);
    int r = 0;
    for (unsigned i = 0; i < 1000 && r == 0; i++) {
        r = br_store_begin(s, &err);
        if (r == 0)
            r = add_event(s, &run, body, &err);
        if (r == 0)
            r = br_store_commit(s, &err);
        if (r == 0)
            committed = run;
        else
            br_store_rollback(s);
    }
    CHILD(r == -BR_E_STORE_FAILED && err.code == BR_E_STORE_FAILED);
    CHILD(committed.rows > 3 && committed.rows < 1000);
    struct br_store_info info;
    struct br_store_run again;
    struct br_buf out = BR_BUF_INIT(BR_EVENT_MAX);
    CHILD(br_store_find(s, "run_a", &info, NULL) == 0);
    br_store_rewind(&info, &again);
    while ((r = br_store_next_event(s, &again, &out, &err)) == 1)
        br_buf_reset(&out);
    CHILD(r == 0 && again.rows == committed.rows);
    CHILD(memcmp(again.hash, committed.hash, 32) == 0);
    br_buf_free(&out);
    br_store_close(&s);
}

static void child_full_disk(struct place *p)
{
    CHILD(mount("none", p->dir, "tmpfs", 0, "size=400k,mode=0700") == 0);
    int fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fill(fd);
    CHILD(chdir("/") == 0);
    close(fd);
}

static void child_file_limit(struct place *p)
{
    struct rlimit lim = {300000, 300000};
    signal(SIGXFSZ, SIG_IGN);
    CHILD(setrlimit(RLIMIT_FSIZE, &lim) == 0);
    fill(p->fd);
}

static void test_full_disk(void **state)
{
    struct place *p = *state;
    if (geteuid() == 0)
        in_child(p, 0, child_full_disk);
    uid_t uid = geteuid() == 0 ? 1000 : geteuid();
    assert_int_equal(fchown(p->fd, uid, (gid_t)-1), 0);
    in_child(p, uid, child_file_limit);
}

static void test_find(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    struct br_store_info info;
    struct br_err err = {.code = BR_OK};
    assert_int_equal(br_store_find(s, "last", &info, &err), -BR_E_NOT_FOUND);
    new_run(s, "run_aa");
    new_run(s, "run_ab");
    new_run(s, "run_abc");
    assert_int_equal(br_store_find(s, "run_aa", &info, &err), 0);
    assert_string_equal(info.run_id, "run_aa");
    assert_int_equal(br_store_find(s, "run_ab", &info, &err), 0); /* the whole id wins */
    assert_string_equal(info.run_id, "run_ab");
    assert_int_equal(br_store_find(s, "run_abc", &info, &err), 0);
    assert_int_equal(br_store_find(s, "run_a", &info, &err), -BR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "more than one"));
    assert_int_equal(br_store_find(s, "run_b", &info, &err), -BR_E_NOT_FOUND);
    assert_int_equal(br_store_find(s, "%", &info, &err), -BR_E_NOT_FOUND);
    assert_int_equal(br_store_find(s, "last", &info, &err), 0);
    assert_string_equal(info.run_id, "run_abc");
    unsigned n = 0;
    info.id = 0;
    while (br_store_next_run(s, info.id, true, &info, NULL) == 1)
        n++;
    assert_int_equal(n, 3);
    br_store_close(&s);
}

/* Runs of these words, newest first, as "run_c run_a ". */
static void listed(struct br_store *s, const char *text, const char *expected)
{
    char got[256] = "";
    struct br_store_words words;
    struct br_store_info info = {.id = INT64_MAX};
    br_store_words(&words, text);
    while (br_store_earlier_run(s, info.id, &words, &info, NULL) == 1)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s ", info.run_id);
    assert_string_equal(got, expected);
}

static void run_about(struct br_store *s, const char *id, const char *goal, const char *workspace,
                      const char *status)
{
    struct br_store_info info = {.started_us = 5, .model = "open/m1"};
    struct br_store_run run;
    snprintf(info.run_id, sizeof(info.run_id), "%s", id);
    snprintf(info.goal, sizeof(info.goal), "%s", goal);
    snprintf(info.workspace, sizeof(info.workspace), "%s", workspace);
    assert_int_equal(br_store_begin(s, NULL), 0);
    assert_int_equal(br_store_add_run(s, &info, &run, NULL), 0);
    if (status)
        assert_int_equal(br_store_add_end(s, &run, 6, status, NULL), 0);
    assert_int_equal(br_store_commit(s, NULL), 0);
}

/* Words are words: nothing that SQL or LIKE gives a meaning to has one. */
static void test_words(void **state)
{
    struct place *p = *state;
    struct br_store *s = opened(p->fd);
    run_about(s, "run_a", "mend 100% of it", "/srv/one", "completed");
    run_about(s, "run_b", "mend 100 of_it", "/srv/two", "failed");
    run_about(s, "run_c", "O'Brien \\ \"x\"", "/srv/two", NULL);
    listed(s, "", "run_c run_b run_a ");
    listed(s, " \t ", "run_c run_b run_a ");
    listed(s, "mend", "run_b run_a ");
    listed(s, "MEND two", "run_b ");
    listed(s, "two mend", "run_b ");
    listed(s, "100%", "run_a ");
    listed(s, "of_it", "run_b ");
    listed(s, "%", "run_a ");
    listed(s, "_", "run_c run_b run_a "); /* each id has one */
    listed(s, "o'brien", "run_c ");
    listed(s, "\\", "run_c ");
    listed(s, "' OR 1=1 --", "");
    listed(s, "running", "run_c "); /* as far as the store knows */
    listed(s, "failed", "run_b ");
    listed(s, "run_a", "run_a ");
    listed(s, "open/m1 srv", "run_c run_b run_a ");
    listed(s, "m e n d 1 0 0", "run_b run_a ");
    listed(s, "m e n d 1 0 0 %", "run_a ");       /* eight of them, */
    listed(s, "m e n d 1 0 0 100% of", "run_a "); /* and what is behind is one word */
    listed(s, "m e n d 1 0 0 of 100%", "");
    br_store_close(&s);
}

static void test_two_writers(void **state)
{
    struct place *p = *state;
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            struct br_store *s = NULL;
            if (br_store_open(p->fd, &s, NULL) < 0)
                _exit(1);
            struct br_store_run run = new_run(s, i ? "run_b" : "run_a");
            for (int k = 0; k < 50; k++)
                add_events(s, &run, 2);
            br_store_close(&s);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    struct br_store *s = opened(p->fd);
    assert_int_equal(read_all(s, "run_a"), 100);
    assert_int_equal(read_all(s, "run_b"), 100);
    br_store_close(&s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_write_and_read),
        T(test_part_refused),
        T(test_rolled_back_is_not_there),
        T(test_refused_by_the_store),
        T(test_events_of_one_row),
        T(test_older_store_is_taken_over),
        T(test_append_only),
        T(test_cut_record_is_noticed),
        T(test_foreign_files_are_refused),
        T(test_corrupt_file_is_refused),
        T(test_directory_must_be_closed),
        T(test_files_must_be_closed),
        T(test_read_only_directory),
        T(test_full_disk),
        T(test_find),
        T(test_words),
        T(test_two_writers),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
