/*
 * A service for tests: `bridle serve` over the state directory of `t`, with `served` in the place
 * of bridle-gateway, to which a test says and from which it hears lines.
 */
#ifndef BR_SPEC_SERVE_RIG_H
#define BR_SPEC_SERVE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/e2e.h"

struct served {
    const char *without; /* "-c", "-p" or "--scenario": the next service is not given it */
    struct e2e t;
    char bin[128];
    pid_t service; /* 0: none */
    int link;      /* to the gateway; -1 */
    char root[96], socket[160], notify[160];
    int notified; /* -1: nobody listens to sd_notify */
    struct br_buf heard;
    char line[20000]; /* the last one that was heard */
};

/* A policy that asks before 'sleep', allows 'echo', and denies the rest. */
extern const char served_policy[];
/* The scenario: 'sleep' or 'echo' if the prompt has that word, else only text. */
extern const char served_scenario[];

/* Once; then each test begins with what is as at first, and ends with served_stop(). */
void served_open(struct served *s, uid_t uid);
void served_reset(struct served *s);
/* Write bridle.lua: what is in `service = { ... }`, beside the root and the listener. */
void served_config(struct served *s, const char *service);
/* Start it with more arguments (NULL: none; ends with NULL) and environment (NULL). */
void served_start(struct served *s, char *const *more, char *const *env);
/* In a child: become it, with the descriptors of this process if `env` begins with LISTEN_FDS. */
void served_become(struct served *s, char *const *more, char *const *env);
/* Wait until it says that it listens, and connect to its gateway. */
void served_ready(struct served *s);
void served_connect(struct served *s);
void served_say(struct served *s, const char *fmt, ...) BR_PRINTF(2, 3);
/* The next line that begins so; those before it are skipped. Fails the test after 20 s. */
const char *served_hear(struct served *s, const char *start);
/* The same, or NULL if the gateway has gone. */
const char *served_try(struct served *s, const char *start);
/* One word of the last line, from 0. */
const char *served_word(struct served *s, unsigned n);
/* CHECK a workspace and RUN it with this content; its id. */
void served_begin(struct served *s, const char *workspace, const char *content, char id[BR_ID_MAX]);
/* Wait for the service's end: its status. */
int served_ended(struct served *s);
/* The next message of sd_notify(3), which must hold the text. */
void served_notified(struct served *s, const char *text);
/* What it has said on stderr has this. Waits a little. */
void served_logged(struct served *s, const char *text);
/* The record of a run ends once and so, and no question is open. */
void served_record(struct served *s, const char *id, const char *status);
/* Ends it if it runs, and looks at what is left. */
/* and why it ended. */
void served_recorded(struct served *s, const char *id, const char *why);
void served_stop(struct served *s);
void served_close(struct served *s);

#endif
