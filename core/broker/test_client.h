/*
 * For tests of guests: a client of HTTP/1.1 on the broker's socket, and a provider with a thread
 * for each connection, whose behaviour the text of the message says.
 */
#ifndef BR_BROKER_TEST_CLIENT_H
#define BR_BROKER_TEST_CLIENT_H

#include "broker/test_rig.h"
#include "egress/test_rig.h"

#define CLIENT_TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/*
 * The provider: the request's last message is one of
 *   whole, stream   an answer with a usage of 12 + 5 tokens; streamed whatever was asked for
 *   slow            the same, an event each 20 ms for a second
 *   hang            the beginning of a stream, then nothing
 *   flood           a stream without end
 *   mute            nothing at all
 *   cut             a stream that ends in the middle
 *   calls           a stream with a tool call that finishes with "stop"
 *   wrong           the same, not streamed
 *   N               the status N, with an error that repeats the key
 */
void client_provider(struct eg_shared *sh, int fd);

struct client_answer {
    unsigned status;
    bool chunked, whole, closes; /* whole: its end has come */
    char head[4096];
    struct br_buf body; /* decoded */
};
void client_answer_free(struct client_answer *a);

int client_connect(const struct rig *r);
void client_send(int fd, const char *p, size_t n);
/* POST /v1/chat/completions with this message; `token` NULL: the right one. `stream`: asks for it.
 * The bytes of the request into dst. */
void client_post(struct br_buf *dst, const char *message, bool stream, const char *token,
                 const char *more_headers);
void client_ask(int fd, const char *message, bool stream);
/* Read one answer while the rig is served. False if the connection ended before it was whole. */
bool client_read(struct rig *r, int fd, struct client_answer *a);
/* Ask on a connection of its own; the answer is whole. */
void client_once(struct rig *r, const char *message, bool stream, struct client_answer *a);
/* Read until the connection ends, and forget it; false if it does not in 10 s. */
bool client_ends(struct rig *r, int fd);
bool client_has(const struct client_answer *a, const char *text);

#endif
