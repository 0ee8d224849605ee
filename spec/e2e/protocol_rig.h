/*
 * A whole service for tests of its protocol: `bridle serve` with the real gateway and the scripted
 * provider, over a Unix socket; and what is stored of its sessions. A prompt with `touch` asks
 * before each of two files is made (out/a, out/b in the workspace `one`), one with `load` goes on
 * for thirty turns, one with `echo` for one.
 */
#ifndef BR_SPEC_PROTOCOL_RIG_H
#define BR_SPEC_PROTOCOL_RIG_H

#include "strict_client.h"
#include "support/e2e.h"

extern struct e2e protocol_world;
extern pid_t protocol_service; /* 0: none */
extern char protocol_socket[128];

/* Start it; `settings` are members of `service` in bridle.lua. */
void protocol_begin(const char *settings);
/* Let it come to its end; nothing may be left. */
void protocol_end(void);
/* Of a test that failed: nothing that it started goes on. */
int protocol_teardown(void **state);
/* How often is it in the text? */
unsigned protocol_count(const char *text, const char *what);
/* What `bridle show --json` says of a run; free it. */
char *protocol_record(const char *id);
/*
 * The record ended once and so (NULL: not well), nothing in it is open, and what the client was
 * shown of it is a beginning of it, byte for byte; all of it if it was shown the end.
 */
void protocol_check(const char *id, const char *status, const struct strict *c);
/* Wait until the record has its end. */
void protocol_await(const char *id);
/* Is this file in the workspace? */
bool protocol_exists(const char *path);
void protocol_remove(void);

#endif
