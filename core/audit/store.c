/*
 * Writing and reading the store. Every write happens in a transaction that the caller opens; the
 * hash of a row is SHA-256 over the hash of the row before it and the stored bytes, that of row 0
 * over the run's id. Called by the audit process only.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "audit/store_priv.h"

#define INFO_COLUMNS                                                                               \
    "SELECT r.id, r.run_id, r.started_us, coalesce(e.ended_us, 0), coalesce(e.status, ''), "       \
    "r.model, r.workspace, r.goal, r.owner, (SELECT coalesce(max(row), 0) FROM events WHERE "      \
    "run = r.id) FROM runs r LEFT JOIN ends e ON e.run = r.id "

/* One word of a listing, as a LIKE pattern; NULL: any run. */
#define HAS(n)                                                                                     \
    "(?" #n " IS NULL OR r.run_id LIKE ?" #n " ESCAPE '\\' OR r.goal LIKE ?" #n                    \
    " ESCAPE '\\' OR r.workspace LIKE ?" #n " ESCAPE '\\' OR r.model LIKE ?" #n                    \
    " ESCAPE '\\' OR coalesce(e.status, 'running interrupted') LIKE ?" #n " ESCAPE '\\')"

static const char *const sql[STMT_COUNT] = {
    [STMT_BEGIN] = "BEGIN IMMEDIATE",
    [STMT_COMMIT] = "COMMIT",
    [STMT_ROLLBACK] = "ROLLBACK",
    [STMT_ADD_RUN] = "INSERT INTO runs(run_id, started_us, model, workspace, goal, owner) "
                     "VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [STMT_ADD_EVENT] = "INSERT INTO events(run, row, event_id, type, body, hash) "
                       "VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [STMT_ADD_END] = "INSERT INTO ends(run, ended_us, status, events, hash) "
                     "VALUES(?1, ?2, ?3, ?4, ?5)",
    [STMT_FIND] = INFO_COLUMNS "WHERE substr(r.run_id, 1, length(?1)) = ?1 "
                               "ORDER BY r.run_id <> ?1 LIMIT 2",
    [STMT_LAST] = INFO_COLUMNS "ORDER BY r.id DESC LIMIT 1",
    [STMT_NEXT] = INFO_COLUMNS "WHERE r.id > ?1 ORDER BY r.id LIMIT 1",
    [STMT_NEXT_UNENDED] = INFO_COLUMNS "WHERE r.id > ?1 AND e.run IS NULL ORDER BY r.id LIMIT 1",
    [STMT_EARLIER] = INFO_COLUMNS
    "WHERE r.id < ?1 AND " HAS(2) " AND " HAS(3) " AND " HAS(4) " AND " HAS(5) " AND " HAS(
        6) " AND " HAS(7) " AND " HAS(8) " AND " HAS(9) " ORDER BY r.id DESC LIMIT 1",
    [STMT_READ] = "SELECT body FROM events WHERE run = ?1 AND row = ?2",
    [STMT_READ_HASHED] = "SELECT body, hash FROM events WHERE run = ?1 AND row = ?2",
    [STMT_END] = "SELECT events, hash FROM ends WHERE run = ?1",
};

/* Ready to be bound and stepped; NULL if SQLite refused it. */
static sqlite3_stmt *statement(struct br_store *s, enum store_statement which)
{
    sqlite3_stmt **st = &s->statements[which];
    if (*st)
        sqlite3_reset(*st);
    else if (sqlite3_prepare_v3(s->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL) !=
             SQLITE_OK)
        return NULL;
    return *st;
}

/* Step a statement that returns no row. */
static int run_statement(struct br_store *s, sqlite3_stmt *st, struct br_err *err, const char *what)
{
    int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
    int r = rc == SQLITE_DONE ? 0 : store_error(s, err, what);
    if (st)
        sqlite3_reset(st); /* SQLite copied nothing: what was bound may go now */
    return r;
}

static void first_hash(struct br_store_run *run)
{
    crypto_hash_sha256_state h;
    crypto_hash_sha256_init(&h);
    crypto_hash_sha256_update(&h, (const uint8_t *)"bridle run 1", sizeof("bridle run 1"));
    crypto_hash_sha256_update(&h, (const uint8_t *)run->run_id, strlen(run->run_id));
    crypto_hash_sha256_final(&h, run->hash);
}

static void next_hash(uint8_t out[32], const uint8_t before[32], const void *body, size_t n)
{
    crypto_hash_sha256_state h;
    crypto_hash_sha256_init(&h);
    crypto_hash_sha256_update(&h, before, 32);
    crypto_hash_sha256_update(&h, body, n);
    crypto_hash_sha256_final(&h, out);
}

/* ---- writing ---- */

int br_store_begin(struct br_store *s, struct br_err *err)
{
    return run_statement(s, statement(s, STMT_BEGIN), err, "could not be written to");
}

int br_store_commit(struct br_store *s, struct br_err *err)
{
    int r = run_statement(s, statement(s, STMT_COMMIT), err, "could not be written to");
    if (r < 0)
        br_store_rollback(s);
    return r;
}

void br_store_rollback(struct br_store *s)
{
    if (!sqlite3_get_autocommit(s->db)) /* SQLite may have rolled back by itself */
        (void)run_statement(s, statement(s, STMT_ROLLBACK), NULL, "");
}

int br_store_add_run(struct br_store *s, const struct br_store_info *info, struct br_store_run *run,
                     struct br_err *err)
{
    const char *texts[] = {info->model, info->workspace, info->goal, info->owner};
    sqlite3_stmt *st = statement(s, STMT_ADD_RUN);
    if (!st)
        return store_error(s, err, "could not be written to");
    sqlite3_bind_text(st, 1, info->run_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, (int64_t)info->started_us);
    for (int i = 0; i < 4; i++)
        sqlite3_bind_text(st, 3 + i, texts[i], -1, SQLITE_STATIC);
    int r = run_statement(s, st, err, "could not take a new run");
    if (r < 0)
        return r;
    *run = (struct br_store_run){.id = sqlite3_last_insert_rowid(s->db)};
    memcpy(run->run_id, info->run_id, sizeof(run->run_id));
    first_hash(run);
    return 0;
}

int br_store_add_event(struct br_store *s, struct br_store_run *run, const char *event_id,
                       const char *type, const void *body, size_t n, struct br_err *err)
{
    uint8_t hash[32];
    sqlite3_stmt *st = statement(s, STMT_ADD_EVENT);
    if (!st || n > BR_EVENT_MAX)
        return store_error(s, err, "could not be written to");
    next_hash(hash, run->hash, body, n);
    sqlite3_bind_int64(st, 1, run->id);
    sqlite3_bind_int64(st, 2, (int64_t)run->rows + 1);
    sqlite3_bind_text(st, 3, event_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, type, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 5, body, (int)n, SQLITE_STATIC);
    sqlite3_bind_blob(st, 6, hash, sizeof(hash), SQLITE_STATIC);
    int r = run_statement(s, st, err, "could not be written to");
    if (r < 0)
        return r;
    run->rows++;
    memcpy(run->hash, hash, sizeof(hash));
    return 0;
}

int br_store_add_end(struct br_store *s, const struct br_store_run *run, uint64_t ended_us,
                     const char *status, struct br_err *err)
{
    sqlite3_stmt *st = statement(s, STMT_ADD_END);
    if (!st)
        return store_error(s, err, "could not be written to");
    sqlite3_bind_int64(st, 1, run->id);
    sqlite3_bind_int64(st, 2, (int64_t)ended_us);
    sqlite3_bind_text(st, 3, status, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 4, (int64_t)run->rows);
    sqlite3_bind_blob(st, 5, run->hash, sizeof(run->hash), SQLITE_STATIC);
    return run_statement(s, st, err, "could not take the end of a run");
}

/* ---- reading ---- */

static void copy_text(sqlite3_stmt *st, int column, char *dst, size_t cap)
{
    const char *s = (const char *)sqlite3_column_text(st, column);
    snprintf(dst, cap, "%s", s ? s : "");
}

static void read_info(sqlite3_stmt *st, struct br_store_info *info)
{
    *info = (struct br_store_info){.id = sqlite3_column_int64(st, 0),
                                   .started_us = (uint64_t)sqlite3_column_int64(st, 2),
                                   .ended_us = (uint64_t)sqlite3_column_int64(st, 3),
                                   .events = (uint64_t)sqlite3_column_int64(st, 9)};
    copy_text(st, 1, info->run_id, sizeof(info->run_id));
    copy_text(st, 4, info->status, sizeof(info->status));
    copy_text(st, 5, info->model, sizeof(info->model));
    copy_text(st, 6, info->workspace, sizeof(info->workspace));
    copy_text(st, 7, info->goal, sizeof(info->goal));
    copy_text(st, 8, info->owner, sizeof(info->owner));
}

int br_store_find(struct br_store *s, const char *name, struct br_store_info *info,
                  struct br_err *err)
{
    bool last = strcmp(name, "last") == 0;
    sqlite3_stmt *st = statement(s, last ? STMT_LAST : STMT_FIND);
    if (!st)
        return store_error(s, err, "could not be read");
    if (!last)
        sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(st), r = 0;
    if (rc == SQLITE_ROW) {
        read_info(st, info);
        bool exact = last || strcmp(info->run_id, name) == 0;
        rc = exact ? SQLITE_DONE : sqlite3_step(st);
        if (rc == SQLITE_ROW)
            r = br_err_set(err, BR_E_NOT_FOUND,
                           "'%.64s' is the beginning of more than one run; nothing was read. Use "
                           "more of its id ('bridle show' lists them)",
                           name);
    } else if (rc == SQLITE_DONE) {
        r = last ? br_err_set(err, BR_E_NOT_FOUND, "no run is recorded yet")
                 : br_err_set(err, BR_E_NOT_FOUND,
                              "no run '%.64s' is recorded ('bridle show' lists them)", name);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        r = store_error(s, err, "could not be read");
    sqlite3_reset(st);
    return r;
}

int br_store_next_run(struct br_store *s, int64_t after, bool unended, struct br_store_info *info,
                      struct br_err *err)
{
    sqlite3_stmt *st = statement(s, unended ? STMT_NEXT_UNENDED : STMT_NEXT);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_bind_int64(st, 1, after);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_info(st, info);
    int r = rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : store_error(s, err, "could not be read");
    sqlite3_reset(st);
    return r;
}

void br_store_words(struct br_store_words *w, const char *text)
{
    static const char blanks[] = " \t\r\n";
    w->n = 0;
    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        size_t n = w->n == BR_STORE_WORDS_MAX - 1 ? strlen(text) : strcspn(text, blanks);
        snprintf(w->word[w->n++], sizeof(w->word[0]), "%.*s", (int)n, text);
        text += n;
    }
}

/* %word%, with what LIKE gives a meaning to taken from it. */
static void put_pattern(char dst[2 * BR_SHOW_WORDS_MAX + 2], const char *word)
{
    size_t n = 0;
    dst[n++] = '%';
    for (; *word; word++) {
        if (*word == '%' || *word == '_' || *word == '\\')
            dst[n++] = '\\';
        dst[n++] = *word;
    }
    dst[n++] = '%';
    dst[n] = 0;
}

int br_store_earlier_run(struct br_store *s, int64_t before, const struct br_store_words *words,
                         struct br_store_info *info, struct br_err *err)
{
    char pattern[2 * BR_SHOW_WORDS_MAX + 2];
    sqlite3_stmt *st = statement(s, STMT_EARLIER);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_clear_bindings(st);
    sqlite3_bind_int64(st, 1, before);
    for (unsigned i = 0; i < words->n; i++) {
        put_pattern(pattern, words->word[i]);
        sqlite3_bind_text(st, 2 + (int)i, pattern, -1, SQLITE_TRANSIENT);
    }
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        read_info(st, info);
    int r = rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : store_error(s, err, "could not be read");
    sqlite3_reset(st);
    return r;
}

int br_store_read(struct br_store *s, int64_t run, uint64_t row, struct br_buf *body,
                  struct br_err *err)
{
    sqlite3_stmt *st = statement(s, STMT_READ);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_bind_int64(st, 1, run);
    sqlite3_bind_int64(st, 2, (int64_t)row);
    int rc = sqlite3_step(st), r = 0;
    if (rc == SQLITE_DONE)
        r = br_err_set(err, BR_E_NOT_FOUND, "a run has no event %llu", (unsigned long long)row);
    else if (rc != SQLITE_ROW)
        r = store_error(s, err, "could not be read");
    else if (br_buf_put(body, sqlite3_column_text(st, 0), (size_t)sqlite3_column_bytes(st, 0)) < 0)
        r = br_err_set(err, BR_E_STORE_FAILED, "an event of the audit store is too large");
    sqlite3_reset(st);
    return r;
}

void br_store_rewind(const struct br_store_info *info, struct br_store_run *run)
{
    *run = (struct br_store_run){.id = info->id};
    memcpy(run->run_id, info->run_id, sizeof(run->run_id));
    first_hash(run);
}

static int record_changed(const struct br_store_run *run, struct br_err *err)
{
    return br_err_set(err, BR_E_STORE_FAILED,
                      "the record of run '%s' was changed after event %llu; do not rely on it",
                      run->run_id, (unsigned long long)run->rows);
}

/* Behind the last row: does the recorded end say the same? 1: it knows of more rows. */
static int check_end(struct br_store *s, const struct br_store_run *run, struct br_err *err)
{
    sqlite3_stmt *st = statement(s, STMT_END);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_bind_int64(st, 1, run->id);
    int rc = sqlite3_step(st), r = 0;
    if (rc == SQLITE_ROW && (uint64_t)sqlite3_column_int64(st, 0) > run->rows)
        r = 1;
    else if (rc == SQLITE_ROW && ((uint64_t)sqlite3_column_int64(st, 0) != run->rows ||
                                  sqlite3_column_bytes(st, 1) != 32 ||
                                  memcmp(sqlite3_column_blob(st, 1), run->hash, 32) != 0))
        r = record_changed(run, err);
    else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        r = store_error(s, err, "could not be read");
    sqlite3_reset(st);
    return r;
}

int br_store_next_event(struct br_store *s, struct br_store_run *run, struct br_buf *body,
                        struct br_err *err)
{
    sqlite3_stmt *st = statement(s, STMT_READ_HASHED);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_bind_int64(st, 1, run->id);
    sqlite3_bind_int64(st, 2, (int64_t)run->rows + 1);
    int rc = sqlite3_step(st), r = 1;
    if (rc == SQLITE_DONE) {
        r = check_end(s, run, err);
        if (r <= 0)
            return r;
        /* more rows and the end came since: look once more */
        sqlite3_reset(st);
        rc = sqlite3_step(st);
    }
    if (rc == SQLITE_DONE) {
        r = record_changed(run, err);
    } else if (rc != SQLITE_ROW) {
        r = store_error(s, err, "could not be read");
    } else {
        uint8_t hash[32];
        const void *text = sqlite3_column_text(st, 0);
        size_t n = (size_t)sqlite3_column_bytes(st, 0);
        next_hash(hash, run->hash, text, n);
        if (sqlite3_column_bytes(st, 1) != 32 ||
            memcmp(sqlite3_column_blob(st, 1), hash, 32) != 0) {
            r = record_changed(run, err);
        } else if (br_buf_put(body, text, n) < 0) {
            r = br_err_set(err, BR_E_STORE_FAILED, "an event of the audit store is too large");
        } else {
            run->rows++;
            memcpy(run->hash, hash, sizeof(hash));
        }
    }
    sqlite3_reset(st);
    return r;
}
