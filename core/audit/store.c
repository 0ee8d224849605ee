/*
 * Writing and reading the store. Every write happens in a transaction that the caller opens; the
 * hash of an event is SHA-256 over the hash of the event before it and the stored bytes, that of
 * event 0 over the run's id. Events that are stored together are lines of one row of the table
 * (docs/decisions/0122), which keeps the hash of its last one. Called by the audit process only.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/store_priv.h"

#define INFO_COLUMNS                                                                               \
    "SELECT r.id, r.run_id, r.started_us, coalesce(e.ended_us, 0), coalesce(e.status, ''), "       \
    "r.model, r.workspace, r.goal, r.owner, coalesce((SELECT row + count - 1 FROM events WHERE "   \
    "run = r.id ORDER BY row DESC LIMIT 1), 0) FROM runs r LEFT JOIN ends e ON e.run = r.id "

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
    [STMT_ADD_EVENT] = "INSERT INTO events(run, row, count, body, hash) VALUES(?1, ?2, ?3, ?4, ?5)",
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
    [STMT_READ] = "SELECT row, count, body, hash FROM events WHERE run = ?1 AND row <= ?2 ORDER BY "
                  "row DESC LIMIT 1",
    [STMT_NEWEST] = "SELECT coalesce(max(row), 0) FROM events WHERE run = ?1",
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
    struct br_sha256 h;
    br_sha256_init(&h);
    br_sha256_put(&h, "bridle run 1", sizeof("bridle run 1"));
    br_sha256_put(&h, run->run_id, strlen(run->run_id));
    br_sha256_end(&h, run->hash);
}

static void next_hash(uint8_t out[32], const uint8_t before[32], const void *body, size_t n)
{
    struct br_sha256 h;
    br_sha256_init(&h);
    br_sha256_put(&h, before, 32);
    br_sha256_put(&h, body, n);
    br_sha256_end(&h, out);
}

/* ---- writing ---- */

int br_store_begin(struct br_store *s, struct br_err *err)
{
    return run_statement(s, statement(s, STMT_BEGIN), err, "could not be written to");
}

/* The events that wait become a row. */
static int write_batch(struct br_store *s, struct br_err *err)
{
    struct store_batch *b = &s->batch;
    if (!b->count)
        return 0;
    sqlite3_stmt *st = statement(s, STMT_ADD_EVENT);
    if (!st)
        return store_error(s, err, "could not be written to");
    sqlite3_bind_int64(st, 1, b->run);
    sqlite3_bind_int64(st, 2, (int64_t)b->first);
    sqlite3_bind_int64(st, 3, (int64_t)b->count);
    sqlite3_bind_text(st, 4, (const char *)b->body.data, (int)b->body.len, SQLITE_STATIC);
    sqlite3_bind_blob(st, 5, b->hash, sizeof(b->hash), SQLITE_STATIC);
    int r = run_statement(s, st, err, "could not be written to");
    b->count = 0;
    b->lost |= r < 0;
    br_buf_reset(&b->body);
    return r;
}

int br_store_commit(struct br_store *s, struct br_err *err)
{
    int r = br_store_commit_later(s, err);
    return r == 0 ? br_store_sync(s, err) : r;
}

int br_store_commit_later(struct br_store *s, struct br_err *err)
{
    int r = write_batch(s, err);
    if (r == 0 && s->batch.lost)
        r = br_err_set(err, BR_E_STORE_FAILED, "a part of what was to be stored was refused");
    if (r == 0)
        r = run_statement(s, statement(s, STMT_COMMIT), err, "could not be written to");
    if (r < 0)
        br_store_rollback(s);
    return r;
}

void br_store_rollback(struct br_store *s)
{
    s->batch.count = 0;
    s->batch.lost = false;
    br_buf_reset(&s->batch.body);
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

int br_store_add_event(struct br_store *s, struct br_store_run *run, const void *body, size_t n,
                       struct br_err *err)
{
    struct store_batch *b = &s->batch;
    if (n > BR_EVENT_MAX || n == 0 || memchr(body, '\n', n))
        return br_err_set(err, BR_E_STORE_FAILED,
                          "an event of %zu bytes is no line of text; it was not stored", n);
    bool follows = b->count && b->run == run->id && b->first + b->count == run->rows + 1;
    if (b->count && (!follows || b->body.len + n >= STORE_BATCH_BYTES)) {
        int r = write_batch(s, err);
        if (r < 0)
            return r;
    }
    if (!b->count) {
        b->run = run->id;
        b->first = run->rows + 1;
    } else {
        br_buf_put_u8(&b->body, '\n');
    }
    if (br_buf_put(&b->body, body, n) < 0) {
        b->lost = true;
        return br_err_set(err, BR_E_STORE_FAILED, "no memory for the audit store");
    }
    next_hash(b->hash, run->hash, body, n);
    memcpy(run->hash, b->hash, sizeof(b->hash));
    b->count++;
    run->rows++;
    return 0;
}

int br_store_add_end(struct br_store *s, const struct br_store_run *run, uint64_t ended_us,
                     const char *status, struct br_err *err)
{
    int r = write_batch(s, err);
    if (r < 0)
        return r;
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

/* Another process may have committed this row and not synced it yet: what is shown is on disk. */
static int settle(struct br_store *s, int64_t run, uint64_t row, struct br_err *err)
{
    if (s->synced_run == run && row <= s->synced_row)
        return 0;
    sqlite3_stmt *st = statement(s, STMT_NEWEST);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_bind_int64(st, 1, run);
    int rc = sqlite3_step(st);
    uint64_t newest = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    sqlite3_reset(st);
    if (rc != SQLITE_ROW)
        return store_error(s, err, "could not be read");
    int r = br_store_sync(s, err);
    if (r == 0) {
        s->synced_run = run;
        s->synced_row = newest;
    }
    return r;
}

/* The row of the table that holds event `row` becomes the cursor's. 1; 0: there is none. */
static int load(struct br_store *s, int64_t run, uint64_t row, struct br_err *err)
{
    struct store_cursor *c = &s->cursor;
    sqlite3_stmt *st = statement(s, STMT_READ);
    c->count = 0;
    br_buf_reset(&c->body);
    if (!st)
        return store_error(s, err, "could not be read");
    sqlite3_bind_int64(st, 1, run);
    sqlite3_bind_int64(st, 2, (int64_t)row);
    int rc = sqlite3_step(st), r = 0;
    uint64_t first = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    uint64_t count = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 1) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        r = store_error(s, err, "could not be read");
    } else if (rc == SQLITE_ROW && row - first < count) {
        const void *text = sqlite3_column_text(st, 2);
        if (br_buf_put(&c->body, text, (size_t)sqlite3_column_bytes(st, 2)) < 0) {
            r = br_err_set(err, BR_E_STORE_FAILED, "an event of the audit store is too large");
        } else {
            memset(c->hash, 0, sizeof(c->hash)); /* of another length: no hash is that */
            if (sqlite3_column_bytes(st, 3) == 32)
                memcpy(c->hash, sqlite3_column_blob(st, 3), 32);
            c->run = run;
            c->first = c->next = first;
            c->count = count;
            c->at = 0;
            r = 1;
        }
    }
    sqlite3_reset(st);
    int settled = r == 1 ? settle(s, run, first, err) : 0;
    if (settled < 0)
        c->count = 0;
    return settled < 0 ? settled : r;
}

/* The cursor's next event; false: the row has no more. */
static bool next_line(struct store_cursor *c, const uint8_t **p, size_t *n)
{
    if (c->at > c->body.len || c->next - c->first >= c->count)
        return false;
    *p = c->body.data + c->at;
    const uint8_t *end = memchr(*p, '\n', c->body.len - c->at);
    *n = end ? (size_t)(end - *p) : c->body.len - c->at;
    c->at += *n + 1;
    c->next++;
    return true;
}

/* The cursor stands before event `row`. 1; 0: there is none. */
static int seek(struct br_store *s, int64_t run, uint64_t row, struct br_err *err)
{
    struct store_cursor *c = &s->cursor;
    const uint8_t *p;
    size_t n;
    if (!c->count || c->run != run || row < c->first || row - c->first >= c->count) {
        int r = load(s, run, row, err);
        if (r <= 0)
            return r;
    }
    if (c->next > row) {
        c->next = c->first;
        c->at = 0;
    }
    while (c->next < row)
        if (!next_line(c, &p, &n))
            return br_err_set(err, BR_E_STORE_FAILED, "an event of the audit store is missing");
    return 1;
}

int br_store_read(struct br_store *s, int64_t run, uint64_t row, struct br_buf *body,
                  struct br_err *err)
{
    const uint8_t *p;
    size_t n;
    int r = seek(s, run, row, err);
    if (r < 0)
        return r;
    if (r == 0 || !next_line(&s->cursor, &p, &n))
        return br_err_set(err, BR_E_NOT_FOUND, "a run has no event %llu", (unsigned long long)row);
    if (br_buf_put(body, p, n) < 0)
        return br_err_set(err, BR_E_STORE_FAILED, "an event of the audit store is too large");
    return 0;
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

/* Do the events from the cursor on, which stands behind run->rows, lead to the hash of the row, and
 * are there as many as it says? The cursor stays where it is. */
static bool chain_holds(struct store_cursor *c, const struct br_store_run *run)
{
    uint64_t next = c->next;
    size_t at = c->at, n;
    uint8_t hash[32];
    const uint8_t *p;
    memcpy(hash, run->hash, sizeof(hash));
    while (next_line(c, &p, &n))
        next_hash(hash, hash, p, n);
    bool all = c->next - c->first == c->count && c->at == c->body.len + 1;
    c->next = next;
    c->at = at;
    return all && memcmp(hash, c->hash, sizeof(hash)) == 0;
}

int br_store_next_event(struct br_store *s, struct br_store_run *run, struct br_buf *body,
                        struct br_err *err)
{
    struct store_cursor *c = &s->cursor;
    const uint8_t *p;
    size_t n;
    uint64_t row = run->rows + 1;
    bool checked = c->count && c->run == run->id && c->next == row && c->next > c->first &&
                   c->next - c->first < c->count && memcmp(c->seen, run->hash, 32) == 0;
    int r = checked ? 1 : seek(s, run->id, row, err);
    if (r == 0) {
        r = check_end(s, run, err);
        if (r <= 0)
            return r;
        /* more rows and the end came since: look once more */
        r = seek(s, run->id, row, err);
        if (r == 0)
            return record_changed(run, err);
    }
    if (r < 0)
        return r;
    if ((!checked && !chain_holds(c, run)) || !next_line(c, &p, &n))
        return record_changed(run, err);
    if (br_buf_put(body, p, n) < 0)
        return br_err_set(err, BR_E_STORE_FAILED, "an event of the audit store is too large");
    next_hash(run->hash, run->hash, p, n);
    memcpy(c->seen, run->hash, sizeof(c->seen));
    run->rows++;
    return 1;
}
