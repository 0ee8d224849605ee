/* Inside the store: opening (store_open.c) and statements (store.c). */
#ifndef BR_AUDIT_STORE_PRIV_H
#define BR_AUDIT_STORE_PRIV_H

#include <sqlite3.h>

#include "audit/store.h"

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
    STMT_READ_HASHED,
    STMT_END,
    STMT_COUNT,
};

struct br_store {
    sqlite3 *db;
    sqlite3_stmt *statements[STMT_COUNT];
};

/* Fill err with what failed and what SQLite says about it. */
int store_error(struct br_store *s, struct br_err *err, const char *what);

#endif
