/* Inside the store: opening (store_open.c) and statements (store.c). */
#ifndef BR_AUDIT_STORE_PRIV_H
#define BR_AUDIT_STORE_PRIV_H

#include <sqlite3.h>

#include "audit/store.h"
#include "audit/syncer.h"

enum store_statement {
    STMT_BEGIN,
    STMT_COMMIT,
    STMT_ROLLBACK,
    STMT_ADD_RUN,
    STMT_ADD_EVENT,
    STMT_ADD_END,
    STMT_FIND,
    STMT_LAST,
    STMT_NEXT,
    STMT_NEXT_UNENDED,
    STMT_EARLIER,
    STMT_READ,
    STMT_NEWEST,
    STMT_END,
    STMT_COUNT,
};

/* A row of `events` holds so many bytes, or one event that is larger. */
#define STORE_BATCH_BYTES (256u * 1024)

/* Events of one run that follow each other, as they become one row: a line each. */
struct store_batch {
    int64_t run;
    uint64_t first, count;
    struct br_buf body;
    uint8_t hash[32]; /* of the last */
    bool lost;        /* others of this transaction, which cannot be committed any more */
};
/* The row that was read last, and where its next event begins. */
struct store_cursor {
    int64_t run;
    uint64_t first, count, next;
    struct br_buf body;
    size_t at;
    uint8_t hash[32]; /* of its last event */
    uint8_t seen[32]; /* of the event before `next`, if the rest was compared with `hash` */
};

struct br_store {
    sqlite3 *db;
    sqlite3_stmt *statements[STMT_COUNT];
    struct store_batch batch;   /* of the open transaction; count 0: none */
    struct store_cursor cursor; /* count 0: none */
    int log_fd;                 /* store_sync.c; -1: not open yet */
    struct br_syncer *syncer;   /* not owned; NULL: there is none */
    bool syncing;
    int sync_errno;     /* of a sync that failed; 0: none has */
    int64_t synced_run; /* of a reader: this run's rows are on disk up to synced_row */
    uint64_t synced_row;
};

void store_sync_close(struct br_store *s);
/* Fill err with what failed and what SQLite says about it. */
int store_error(struct br_store *s, struct br_err *err, const char *what);

#endif
