/*
 * A bridled that stands over the state directory of a test, and what the tests of reloading ask
 * about it. One test program at a time, hence one set of globals.
 */
#ifndef BR_SPEC_RELOAD_RIG_H
#define BR_SPEC_RELOAD_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

#define BUNDLE(head_, rules_)                                                                      \
    "local policy = require 'bridle.policy'\n" head_ "\n"                                          \
    "return policy.bundle { api = 1, name = 'p',\n" rules_ "}\n"
#define ALLOW "policy.allow { id = 'all', action = '*', accept = 'over-broad' },"
/* Everything; all but `touch`. */
#define LOOSE BUNDLE("", "rules = { " ALLOW " } ")
#define STRICT                                                                                     \
    BUNDLE("", "rules = { " ALLOW "\n"                                                             \
               "  policy.deny { id = 'no-touch', action = 'process.exec', command = "              \
               "'touch *' } } ")

extern struct e2e t;
extern struct e2e_result r;
extern pid_t standing; /* 0: none */

/* Open a project, and let a bridled stand over it with this text as policy.lua. */
void reload_open(uid_t uid, const char *policy);
/* End it, if it still stands, and see that nothing is left. */
void reload_close(void);
/* Of a test that failed: nothing that it started goes on. */
int reload_teardown(void **state);
/* Start one with `bridled --standing --policy FILE`; it need not come up. */
void reload_start(const char *file);
/* Wait until it is ready, or fail. */
void reload_ready(void);
/* Its exit status, once it has ended. */
int reload_ended(void);
/* Start a program with its output in out.NAME and err.NAME. */
pid_t reload_spawn(const char *name, char *const *argv);
/* Its status, and what it said. */
void reload_wait(const char *name, pid_t pid, struct e2e_result *res);
/* The rows of `policies` of one kind ("": of all), as JSON, one a line; free it. */
char *reload_rows(const char *kind);
/* Fail unless there is this text in what stands, or in its log. */
void reload_expect_current(const char *text);
void reload_expect_log(const char *text);

#endif
