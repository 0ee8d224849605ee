/*
 * The other side of a connection, for tests: a WebSocket server in a child process, which does what
 * a function of the test says, also what no server may do. What it received is in the file `log` of
 * the present directory, one message a line.
 */
#ifndef BR_CLI_TEST_PEER_H
#define BR_CLI_TEST_PEER_H

#include <sys/types.h>

#include "base/base.h"
#include "ws/ws.h"

struct peer {
    int fd, log;
    struct br_ws_limits limits;
    struct br_ws_reader reader;
    uint8_t buf[64 * 1024], *at;
    size_t left;
    char request[BR_WS_HEAD_MAX]; /* as it came */
    struct br_http_head head;
    struct br_ws_offer offer;
    char *text; /* of the last message */
};
typedef void peer_play(struct peer *p);

/* Listen at the Unix socket `path`, or with NULL at 127.0.0.1:*port, and let a child serve `n`
 * connections, one after another, with `play`, which begins before the handshake. */
pid_t peer_start(const char *path, unsigned *port, unsigned n, peer_play *play);
/* Ends the child and waits for it. */
void peer_stop(pid_t pid);

/* For `play`. What cannot be done ends the child with 99. */
void peer_read_request(struct peer *p);
void peer_accept(struct peer *p, const char *protocol);
void peer_raw(struct peer *p, const void *bytes, size_t n);
void peer_say(struct peer *p, const char *text);  /* raw */
void peer_text(struct peer *p, const char *text); /* a text message */
/* The next text message, terminated, in p->text; false at a close frame, which is logged and
 * answered, and at the end. Pings are answered. */
bool peer_next(struct peer *p);
/* A handshake and a script: a line with '>' waits for a request with the method that follows, one
 * with '#' for so many milliseconds, one with '@' for a file; '?' pings and waits for the pong, and
 * '!' hangs up; every other line is a text message. Then
 * until the client leaves. */
void peer_script(struct peer *p, const char *script);
/* Until the client leaves. */
void peer_drain(struct peer *p);

#endif
