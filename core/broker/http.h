/*
 * core/broker, private: HTTP/1.1 as guests speak it (RFC 9110, RFC 9112), apart from any socket so
 * that tests and a fuzzer can call it. Strict: what two readers might understand differently is
 * refused.
 */
#ifndef BR_BROKER_HTTP_H
#define BR_BROKER_HTTP_H

#include "base/base.h"
#include "wire/types.h"

/* Request line and headers together. SDKs send about 1 KiB. */
#define BR_HTTP_HEAD_MAX (16u * 1024)
#define BR_HTTP_LINES_MAX 100u
#define BR_HTTP_PATH_MAX 256u
/* One size line of a chunked body: 8 digits and CRLF. */
#define BR_HTTP_CHUNK_LINE_MAX 10u

struct br_http_request {
    char method[8];
    char path[BR_HTTP_PATH_MAX]; /* with its /v1, without a query */
    char content_type[128];      /* "" if there is none */
    bool chunked;
    bool has_length;
    uint64_t length; /* of the body; 0 without has_length */
    bool expects_continue;
    bool close;                /* Connection: close */
    unsigned ntokens;          /* tokens that were presented, */
    const char *tokens[2];     /* which point into the head */
    size_t token_len[2];       /* at most BR_HTTP_HEAD_MAX */
    struct br_headers headers; /* those that are passed on to the provider */
};

/* The length of a head with its empty line, or 0 if it is not there yet. `from`: so many bytes
 * were looked at before. */
size_t br_http_head_end(const char *p, size_t n, size_t from);
/*
 * Parse the n bytes of a head, empty line included. 0, or the status to refuse it with, and `err`
 * with a sentence; the connection must not be used for another request then, since where the next
 * one would begin is not known.
 */
unsigned br_http_head(const char *p, size_t n, struct br_http_request *out, struct br_err *err);

/* A chunked body on its way in. Zero is its beginning. */
struct br_http_chunks {
    uint8_t state;
    uint8_t line; /* bytes of the present size line */
    uint32_t left;
    bool done;
};
/*
 * Decode n bytes into `body`, of which at most body->max are taken. *used: so many were part of the
 * body; the rest, once it is done, belongs to the next request. 0, or a status.
 */
unsigned br_http_chunks_feed(struct br_http_chunks *c, const char *p, size_t n, size_t *used,
                             struct br_buf *body, struct br_err *err);

/* "Not Found" and the like; "Error" for a status without a name of its own. */
const char *br_http_reason(unsigned status);
/* True if the n bytes are `secret`, in a time that does not depend on how many of them are. */
bool br_http_token_same(const char *p, size_t n, const char *secret);

#endif
