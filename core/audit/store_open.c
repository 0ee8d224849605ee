/*
 * Opening the store: the directory and its files are checked, SQLite is told to trust nothing in
 * the file, and the schema must be exactly ours. Called by the audit process inside its role; the
 * directory comes from bridled, the file may have been written by an earlier run of the same user.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/store_priv.h"

#define BUSY_MS 10000
#define VFS_NAME "bridle"

/* The whole schema; what a database holds must be these texts. */
static const char *const schema[] = {
    "CREATE TABLE runs(id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE CHECK(run_id <> ''), "
    "started_us INTEGER NOT NULL, model TEXT NOT NULL, workspace TEXT NOT NULL, goal TEXT NOT "
    "NULL, owner TEXT NOT NULL) STRICT",
    "CREATE TABLE events(run INTEGER NOT NULL REFERENCES runs(id), row INTEGER NOT NULL CHECK(row "
    ">= 1), count INTEGER NOT NULL CHECK(count >= 1), body TEXT NOT NULL, hash BLOB NOT NULL "
    "CHECK(length(hash) = 32), UNIQUE(run, row)) STRICT",
    "CREATE TABLE ends(run INTEGER PRIMARY KEY REFERENCES runs(id), ended_us INTEGER NOT NULL, "
    "status TEXT NOT NULL, events INTEGER NOT NULL, hash BLOB NOT NULL CHECK(length(hash) = 32)) "
    "STRICT",
    "CREATE TRIGGER events_in_order BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'an event is "
    "out of order') WHERE NEW.row IS NOT coalesce((SELECT row + count FROM events WHERE run = "
    "NEW.run ORDER BY row DESC LIMIT 1), 1); SELECT RAISE(ABORT, 'the run has ended') FROM ends "
    "WHERE run = NEW.run; END",
    "CREATE TRIGGER runs_once BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'the run exists') "
    "FROM runs WHERE run_id = NEW.run_id OR id = NEW.id; END",
    "CREATE TRIGGER ends_once BEFORE INSERT ON ends BEGIN SELECT RAISE(ABORT, 'the run has ended') "
    "FROM ends WHERE run = NEW.run; END",
    "CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the record "
    "is append-only'); END",
    "CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the record "
    "is append-only'); END",
    "CREATE TRIGGER runs_no_update BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'the record is "
    "append-only'); END",
    "CREATE TRIGGER runs_no_delete BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'the record is "
    "append-only'); END",
    "CREATE TRIGGER ends_no_update BEFORE UPDATE ON ends BEGIN SELECT RAISE(ABORT, 'the record is "
    "append-only'); END",
    "CREATE TRIGGER ends_no_delete BEFORE DELETE ON ends BEGIN SELECT RAISE(ABORT, 'the record is "
    "append-only'); END",
};

int store_error(struct br_store *s, struct br_err *err, const char *what)
{
    const char *why = s->db ? sqlite3_errmsg(s->db) : "no memory";
    int os = s->db ? sqlite3_system_errno(s->db) : 0, code = s->db ? sqlite3_errcode(s->db) : 0;
    if ((code & 0xff) == SQLITE_FULL || (os == ENOSPC && (code & 0xff) == SQLITE_IOERR))
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the audit store '%s' %s: its file system is full. Make room where the "
                          "state directory is, and start again",
                          BR_STORE_FILE, what);
    return br_err_set(err, BR_E_STORE_FAILED, "the audit store '%s' %s: %s", BR_STORE_FILE, what,
                      why);
}

/* SQLite makes every name absolute, which needs search permission on all parents, and the audit
 * user has none. Names stay as they are: relative to the directory we are in. */
static int keep_name(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    (void)vfs;
    if ((size_t)n <= strlen(name))
        return SQLITE_CANTOPEN;
    memcpy(out, name, strlen(name) + 1);
    return SQLITE_OK;
}

static int register_vfs(struct br_err *err)
{
    static sqlite3_vfs ours;
    if (ours.zName)
        return 0;
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");
    if (!unix_vfs)
        return br_err_set(err, BR_E_STORE_FAILED, "SQLite has no file system; nothing is recorded");
    ours = *unix_vfs;
    ours.pNext = NULL;
    ours.zName = VFS_NAME;
    ours.xFullPathname = keep_name;
    if (sqlite3_vfs_register(&ours, 0) != SQLITE_OK)
        return br_err_set(err, BR_E_STORE_FAILED, "SQLite refused its file system");
    return 0;
}

static int check_closed(const struct stat *st, const char *name, mode_t type, struct br_err *err)
{
    if ((st->st_mode & S_IFMT) != type)
        return br_err_set(err, BR_E_STORE_FAILED,
                          "'%s' of the audit store is not a %s; nothing is recorded", name,
                          type == S_IFDIR ? "directory" : "regular file");
    if (st->st_uid != geteuid())
        return br_err_set(err, BR_E_STORE_FAILED,
                          "'%s' of the audit store belongs to uid %u, not %u; nothing is recorded. "
                          "Give it to that user or choose another directory",
                          name, (unsigned)st->st_uid, (unsigned)geteuid());
    if (st->st_mode & 077)
        return br_err_set(err, BR_E_STORE_FAILED,
                          "'%s' of the audit store is open to other users (mode %03o); nothing is "
                          "recorded. Run chmod go= on it",
                          name, (unsigned)(st->st_mode & 0777));
    if (type == S_IFREG && st->st_nlink > 1)
        return br_err_set(
            err, BR_E_STORE_FAILED,
            "'%s' of the audit store has other names (hard links); nothing is recorded", name);
    return 0;
}

static int check_directory(int dirfd, struct br_err *err)
{
    static const char *const files[] = {BR_STORE_FILE, BR_STORE_FILE "-wal", BR_STORE_FILE "-shm",
                                        BR_STORE_FILE "-journal"};
    struct stat st;
    if (fstat(dirfd, &st) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "the audit store could not be looked at");
    int r = check_closed(&st, "audit", S_IFDIR, err);
    for (size_t i = 0; i < BR_ARRAY_LEN(files) && r == 0; i++) {
        if (fstatat(dirfd, files[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            r = check_closed(&st, files[i], S_IFREG, err);
        else if (errno != ENOENT)
            r = br_err_errno(err, BR_E_STORE_FAILED, "'%s' could not be looked at", files[i]);
    }
    return r;
}

static int exec(struct br_store *s, const char *sql, struct br_err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : store_error(s, err, "could not be set up");
}

static int configure(struct br_store *s, struct br_err *err)
{
    static const struct {
        int option, value;
    } options[] = {{SQLITE_DBCONFIG_DEFENSIVE, 1},
                   {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
                   {SQLITE_DBCONFIG_DQS_DDL, 0},
                   {SQLITE_DBCONFIG_DQS_DML, 0},
                   {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
                   {SQLITE_DBCONFIG_ENABLE_VIEW, 0}};
    for (size_t i = 0; i < BR_ARRAY_LEN(options); i++)
        if (sqlite3_db_config(s->db, options[i].option, options[i].value, NULL) != SQLITE_OK)
            return store_error(s, err, "could not be set up");
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, 4 * (int)BR_EVENT_MAX);
    sqlite3_extended_result_codes(s->db, 1);
    return exec(s,
                "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA foreign_keys=ON; "
                "PRAGMA recursive_triggers=ON; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; "
                "PRAGMA synchronous=NORMAL;",
                err);
}

/* The first column of the first row, or `none` if there is no row. */
static int get_int(struct br_store *s, const char *sql, const char *arg, int64_t none,
                   int64_t *value, struct br_err *err)
{
    sqlite3_stmt *st = NULL;
    *value = none;
    int r = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (r == SQLITE_OK && arg)
        r = sqlite3_bind_text(st, 1, arg, -1, SQLITE_STATIC);
    if (r == SQLITE_OK)
        r = sqlite3_step(st);
    if (r == SQLITE_ROW)
        *value = sqlite3_column_int64(st, 0);
    int ret = r == SQLITE_ROW || r == SQLITE_DONE ? 0 : store_error(s, err, "could not be read");
    sqlite3_finalize(st);
    return ret;
}

static int create_schema(struct br_store *s, struct br_err *err)
{
    char sql[128];
    int r = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(schema) && r == 0; i++)
        r = exec(s, schema[i], err);
    snprintf(sql, sizeof(sql), "PRAGMA application_id=%d; PRAGMA user_version=%d",
             BR_STORE_APPLICATION_ID, BR_STORE_VERSION);
    return r == 0 ? exec(s, sql, err) : r;
}

/* What is in the database must be exactly the schema. */
static int check_objects(struct br_store *s, struct br_err *err)
{
    int64_t objects, found;
    if (get_int(s, "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL", NULL, 0, &objects,
                err) < 0)
        return -BR_E_STORE_FAILED;
    for (size_t i = 0; i < BR_ARRAY_LEN(schema); i++) {
        if (get_int(s, "SELECT count(*) FROM sqlite_schema WHERE sql = ?1", schema[i], 0, &found,
                    err) < 0)
            return -BR_E_STORE_FAILED;
        objects -= found;
        if (found != 1)
            break;
    }
    if (objects != 0)
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the schema of '%s' was changed; nothing is recorded. Move the file away",
                          BR_STORE_FILE);
    return 0;
}

/* Version 1 had one event a row, with its id and type. The bytes and the chain are the same. */
static int migrate(struct br_store *s, struct br_err *err)
{
    char sql[64];
    int r = exec(s,
                 "DROP TRIGGER events_in_order; DROP TRIGGER events_no_update; DROP TRIGGER "
                 "events_no_delete; ALTER TABLE events RENAME TO events_1",
                 err);
    for (size_t i = 0; i < BR_ARRAY_LEN(schema) && r == 0; i++)
        if (strncmp(schema[i], "CREATE TABLE events(", 20) == 0)
            r = exec(s, schema[i], err);
    if (r == 0)
        r = exec(s,
                 "INSERT INTO events(run, row, count, body, hash) SELECT run, row, 1, body, hash "
                 "FROM events_1 ORDER BY rowid; DROP TABLE events_1",
                 err);
    for (size_t i = 0; i < BR_ARRAY_LEN(schema) && r == 0; i++)
        if (strncmp(schema[i], "CREATE TRIGGER events_", 22) == 0)
            r = exec(s, schema[i], err);
    snprintf(sql, sizeof(sql), "PRAGMA user_version=%d", BR_STORE_VERSION);
    return r == 0 ? exec(s, sql, err) : r;
}

static int check_schema(struct br_store *s, struct br_err *err)
{
    int64_t application, version, objects;
    if (get_int(s, "PRAGMA application_id", NULL, 0, &application, err) < 0 ||
        get_int(s, "PRAGMA user_version", NULL, 0, &version, err) < 0 ||
        get_int(s, "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL", NULL, 0, &objects,
                err) < 0)
        return -BR_E_STORE_FAILED;
    if (application == 0 && version == 0 && objects == 0)
        return create_schema(s, err);
    if (application != BR_STORE_APPLICATION_ID)
        return br_err_set(err, BR_E_STORE_FAILED,
                          "'%s' is a database of another program; nothing is recorded",
                          BR_STORE_FILE);
    if (version == 1) {
        int r = migrate(s, err);
        if (r < 0)
            return r;
        return check_objects(s, err);
    }
    if (version != BR_STORE_VERSION)
        return br_err_set(err, BR_E_STORE_FAILED,
                          "'%s' has schema version %lld and this program knows version %d; nothing "
                          "is recorded. Use the bridle that wrote it, or move the file away",
                          BR_STORE_FILE, (long long)version, BR_STORE_VERSION);
    return check_objects(s, err);
}

static int open_database(struct br_store *s, struct br_err *err)
{
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    if (sqlite3_open_v2(BR_STORE_FILE, &s->db, flags, VFS_NAME) != SQLITE_OK)
        return store_error(s, err, "could not be opened; nothing is recorded");
    int r = configure(s, err);
    /* the first two processes may meet here: SQLite does not wait for this lock by itself */
    for (int i = 0; r == 0 && i < 100; i++) {
        int rc = sqlite3_exec(s->db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            break;
        if ((rc & 0xff) != SQLITE_BUSY || i == 99)
            return store_error(s, err, "could not be opened for writing; nothing is recorded");
        sqlite3_sleep(20);
    }
    if (r == 0)
        r = exec(s, "BEGIN IMMEDIATE", err);
    if (r == 0)
        r = check_schema(s, err);
    if (r == 0)
        r = exec(s, "COMMIT", err);
    return r;
}

int br_store_open(int dirfd, struct br_store **out, struct br_err *err)
{
    *out = NULL;
    int r = check_directory(dirfd, err);
    if (r == 0)
        r = register_vfs(err);
    if (r < 0)
        return r;
    if (fchdir(dirfd) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the directory of the audit store could not be entered");
    struct br_store *s = calloc(1, sizeof(*s));
    if (!s)
        return br_err_set(err, BR_E_STORE_FAILED, "no memory for the audit store");
    s->log_fd = -1;
    br_buf_init(&s->batch.body, STORE_BATCH_BYTES + BR_EVENT_MAX + 1);
    br_buf_init(&s->cursor.body, STORE_BATCH_BYTES + BR_EVENT_MAX + 1);
    r = open_database(s, err);
    if (r == 0)
        r = check_directory(dirfd, err); /* also what was created just now */
    if (r < 0)
        br_store_close(&s);
    *out = s;
    return r;
}

void br_store_close(struct br_store **s)
{
    if (!*s)
        return;
    store_sync_close(*s);
    br_buf_free(&(*s)->batch.body);
    br_buf_free(&(*s)->cursor.body);
    for (int i = 0; i < STMT_COUNT; i++)
        sqlite3_finalize((*s)->statements[i]);
    sqlite3_close((*s)->db);
    free(*s);
    *s = NULL;
}
