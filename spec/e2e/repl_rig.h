/* For the tests of `bridle repl`: two real runs, evaluated code, records that no run would make. */
#ifndef BR_SPEC_REPL_RIG_H
#define BR_SPEC_REPL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/store_priv.h"
#include "support/e2e.h"
#include "wire/types.h"
#include "wire/wire.h"

#define ORDINARY_UID 61901u

extern struct e2e t;

/* Two runs of whoever `uid` is: one after the other, so that 'last' is the second. */
void open_with_runs(uid_t uid);
void close_all(void);
/* bridle repl -e CODE: status and what it says; no control byte may come out. */
void repl(const char *code, int status, const char *said);
/* In the store's directory, as the store's user. `f` runs in a process of its own. */
void in_store(void (*f)(struct br_store *s));
void add_run(struct br_store *s, const char *id, const char *owner, unsigned events, bool ended);
/* run_ab1, run_ab2; run_dead without an end; run_exact and run_large with 5000 and 5001 events. */
void add_odd_runs(struct br_store *s);

#endif
