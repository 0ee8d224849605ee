/*
 * A client of harness/acp/1 for tests of the whole service, over its Unix socket. It is strict: a
 * gap in the numbers of a session's events, or an event behind its end, fails the test, and so does
 * waiting for longer than 20 s. Everything that it is shown is kept, to be compared with the store.
 */
#ifndef BR_SPEC_STRICT_CLIENT_H
#define BR_SPEC_STRICT_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ws/ws.h"

#define STRICT_ASKS 16u

struct strict {
    int fd;
    struct br_ws_reader reader;
    struct br_ws_limits limits;
    uint8_t in[65536], *at;
    size_t left;
    char *text; /* the last message */
    unsigned close_code;
    char session[BR_ID_MAX]; /* of the last session/new */
    uint64_t next_seq;       /* of its events */
    bool stopped;
    struct br_buf seen; /* its events, one a line */
    /* questions that were heard, and which strict_asked() has not told yet */
    char asks[STRICT_ASKS][BR_ID_MAX];
    unsigned nasks;
};

/* Connect, upgrade and initialize; `extended`: with the extension. */
void strict_open(struct strict *c, const char *socket, bool extended);
/* The same in two steps, on a connection of the caller's, which is taken. `bearer` may be "". 0, or
 * a negative code as of br_ws_check_accept(); -BR_E_PEER_GONE: it ended without an answer. */
int strict_upgrade(struct strict *c, int fd, const char *bearer);
void strict_initialize(struct strict *c, bool extended);
void strict_close(struct strict *c);
void strict_say(struct strict *c, const char *fmt, ...) BR_PRINTF(2, 3);
/* The next message; NULL: the connection has ended. */
const char *strict_hear(struct strict *c);
/* Go on until one has this text in it; fails if the connection ends before. */
const char *strict_until(struct strict *c, const char *what);
/* session/new (id 1) in a workspace, and its answer. */
void strict_new(struct strict *c, const char *workspace);
/* session/prompt (id 2). */
void strict_prompt(struct strict *c, const char *content);
/* The next permission.requested, also one that was heard while something else was waited for: those
 * of one turn come as they are stored, between other answers. Its id is put into `permission`. */
void strict_asked(struct strict *c, char permission[BR_ID_MAX]);
void strict_respond(struct strict *c, const char *session, const char *permission,
                    const char *decision);

#endif
