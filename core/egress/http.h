/*
 * core/egress, private: HTTP/1.1 as a client speaks it, RFC 9112, for one request on one
 * connection. No memory is allocated and nothing is read or written here: bytes in, facts out.
 */
#ifndef BR_EGRESS_HTTP_H
#define BR_EGRESS_HTTP_H

#include "egress/egress_priv.h"
#include "wire/types.h"

/* The beginning of a line that is looked at; what is longer is no field that matters. */
#define BR_HTTP_LINE_MAX 1024u
/* The head of a request: path, key, and the headers that are passed on. */
#define BR_HTTP_REQUEST_MAX (BR_EGRESS_URL_MAX + BR_EGRESS_KEY_MAX + 8u * 1024)

enum br_http_state {
    BR_HTTP_STATUS,
    BR_HTTP_FIELDS,
    BR_HTTP_BODY, /* of `left` bytes */
    BR_HTTP_UNTIL_CLOSE,
    BR_HTTP_CHUNK_SIZE,
    BR_HTTP_CHUNK_DATA,
    BR_HTTP_CHUNK_END,
    BR_HTTP_TRAILERS,
    BR_HTTP_DONE,
};

/* One answer as it arrives. */
struct br_http {
    enum br_http_state state;
    uint32_t status;
    bool has_length, chunked, encoded, cr, any;
    bool newest, closes; /* HTTP/1.1; it says that the connection ends */
    bool keep;           /* once the head is complete: it says that the connection stays */
    uint64_t left;
    size_t head_bytes; /* of all heads and trailers */
    size_t line_len;   /* of the present line, also beyond what is kept */
    char line[BR_HTTP_LINE_MAX];
    struct br_headers headers; /* of those that are passed on */
};

struct br_http_out {
    bool head;     /* the head became complete: status and headers hold */
    bool end;      /* the answer is complete */
    bool more;     /* and something came behind it, which is nobody's */
    uint8_t *body; /* a part of what was fed; the chunks are already joined in place */
    size_t n;
};

void br_http_begin(struct br_http *h);
/*
 * Take `n` bytes apart, which are changed. -BR_E_PROVIDER_INVALID if they are not HTTP/1.1, if the
 * head has more than BR_EGRESS_HEADERS_MAX bytes, is framed in two ways, or announces a compressed
 * body; nothing of `out` counts then.
 */
int br_http_feed(struct br_http *h, uint8_t *p, size_t n, struct br_http_out *out,
                 struct br_err *err);
/* The connection has ended: true if the answer is complete with that. */
bool br_http_ended(const struct br_http *h);
/* A byte of an answer's head has come, and its body has not begun. */
bool br_http_in_head(const struct br_http *h);

struct br_http_request {
    bool post, keep; /* keep: another request may come on this connection */
    const struct br_egress_target *target;
    const char *path, *content_type;
    const struct br_headers *headers; /* of the guest */
    const struct br_secret *key;      /* empty: none is sent */
    uint8_t auth;                     /* enum br_auth */
    size_t body;                      /* bytes */
};

/* True if a guest may have this header of its own sent. */
bool br_http_may_send(const char *name);
/*
 * Write the head of a request: its length, or -1 if it does not fit, or a header is none of those
 * that are passed on.
 */
ssize_t br_http_request(char *dst, size_t cap, const struct br_http_request *q);

#endif
