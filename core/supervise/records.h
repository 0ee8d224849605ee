/*
 * core/supervise: small files of the state directory that only bridled writes and reads: lines of
 * "name value". Sessions and kept workspace leases are described by them. Values are text; what
 * would end a line is escaped.
 */
#ifndef BR_SUPERVISE_RECORDS_H
#define BR_SUPERVISE_RECORDS_H

#include "base/base.h"

#define RECORD_MAX (64u * 1024)

/* Append a line. The name is [a-z-]+. */
void record_put(struct br_buf *b, const char *name, const char *value);
void record_put_u64(struct br_buf *b, const char *name, uint64_t value);
/* The value of a name; false, and dst "", if there is none or it does not fit. */
bool record_get(const char *text, const char *name, char *dst, size_t cap);
/* A decimal number; `none` if there is none. */
uint64_t record_get_u64(const char *text, const char *name, uint64_t none);

/* The directory `name` of the state directory, made if `make`: a descriptor, or -1 and errno. */
int record_dir(int state_fd, const char *name, bool make);
/* Write it in the place of what is there, all or nothing. -BR_E_STORE_FAILED. */
int record_write(int dir, const char *name, const struct br_buf *b, struct br_err *err);
/*
 * Read one; terminated. -BR_E_NOT_FOUND; -BR_E_STORE_FAILED if it is no file of this user's that
 * only this user may write. `b` is initialised in any case.
 */
int record_read(int dir, const char *name, struct br_buf *b, struct br_err *err);
/* May this be the name of a record? Letters, digits, '-' and '_'. */
bool record_name_ok(const char *name);

#endif
