/*
 * core/ws: the WebSocket protocol (RFC 6455) without its input and output: the opening handshake of
 * both sides, a reader of frames, and heads of frames to write. No extensions. Everything read is
 * untrusted; nothing here allocates more than the limits that the caller gives.
 */
#ifndef BR_WS_H
#define BR_WS_H

#include "base/base.h"

enum br_ws_op {
    BR_WS_TEXT = 1,
    BR_WS_BINARY = 2,
    BR_WS_CLOSE = 8,
    BR_WS_PING = 9,
    BR_WS_PONG = 10,
};

/* RFC 6455 section 7.4.1, and 1013 of the IANA registry. */
enum br_ws_close {
    BR_WS_CLOSE_NORMAL = 1000,
    BR_WS_CLOSE_GOING_AWAY = 1001,
    BR_WS_CLOSE_PROTOCOL = 1002,
    BR_WS_CLOSE_UNSUPPORTED = 1003,
    BR_WS_CLOSE_NO_STATUS = 1005, /* never on the wire */
    BR_WS_CLOSE_BAD_UTF8 = 1007,
    BR_WS_CLOSE_POLICY = 1008,
    BR_WS_CLOSE_TOO_LARGE = 1009,
    BR_WS_CLOSE_INTERNAL = 1011,
    BR_WS_CLOSE_TRY_AGAIN = 1013,
};

/* ---- reading frames ---- */

struct br_ws_limits {
    uint32_t message_bytes; /* of one message, all its fragments together */
    uint32_t fragments;     /* of one message */
    bool server;            /* frames must be masked (a client's must not be) */
};

/* What br_ws_read() found. `data` is valid until the next call; text is valid UTF-8. */
struct br_ws_message {
    enum br_ws_op op;
    const char *data;
    size_t n;
    unsigned close_code; /* of BR_WS_CLOSE; BR_WS_CLOSE_NO_STATUS if it brought none */
};

/* Small while nothing is under way: an idle connection costs sizeof(struct br_ws_reader). */
struct br_ws_reader {
    uint8_t head[14];
    uint8_t nhead, need;  /* of the head so far, and in all (0: not known yet) */
    uint8_t op, first_op; /* of this frame, and of the message that it is a part of (0: none) */
    bool fin, control_;
    uint32_t fragments;
    uint64_t left;    /* of the payload of this frame */
    uint32_t offset;  /* into the mask */
    uint32_t utf8;    /* state of the check */
    uint8_t *control; /* payload of a control frame, 125 bytes; NULL if there is none */
    uint8_t ncontrol;
    struct br_buf message; /* of the fragments so far; freed when it is complete and was read */
    bool delivered;
};

void br_ws_reader_init(struct br_ws_reader *r, const struct br_ws_limits *l);
void br_ws_reader_free(struct br_ws_reader *r);
/* True while a frame or a fragmented message has begun and is not complete: its time runs. */
bool br_ws_reader_open(const struct br_ws_reader *r);
/*
 * Take from *p, *n (which is unmasked in place) up to the end of the next message or control frame.
 * 1: *out is one; call again, there may be more. 0: all is taken, nothing is complete. Negative:
 * -BR_E_PEER_PROTOCOL, -BR_E_LIMIT_EXCEEDED or -BR_E_NOMEM, and *close_code is what to close with
 * (1002, 1007, 1009, 1011; 1003 is the caller's matter), err->text a reason that fits in there;
 * after that nothing more is read. Refused are: reserved bits, unknown opcodes, lengths that are
 * not in their shortest form or have the highest bit, wrong masking, control frames that are
 * fragmented or longer than 125 bytes, continuations of nothing, a new message inside of another,
 * close codes that must not be sent. Invalid UTF-8 is found at the byte where it becomes invalid.
 */
int br_ws_read(struct br_ws_reader *r, const struct br_ws_limits *l, uint8_t **p, size_t *n,
               struct br_ws_message *out, unsigned *close_code, struct br_err *err);

/* ---- writing frames ---- */

/* The head of an unfragmented frame; a client's has a fresh random mask, and the payload is then to
 * be put through br_ws_mask(). Its length (2 to 14). */
size_t br_ws_head(uint8_t dst[14], enum br_ws_op op, uint64_t payload, const uint8_t mask[4]);
/* XOR with the mask, the first byte being number `offset` of the payload. */
void br_ws_mask(void *p, size_t n, const uint8_t mask[4], uint64_t offset);
/* Append a whole frame; `mask`: with a fresh one. */
void br_ws_put(struct br_buf *b, enum br_ws_op op, const void *p, size_t n, bool mask);
/* Append a close frame with a reason, which is cut at 123 bytes. */
void br_ws_put_close(struct br_buf *b, unsigned code, const char *reason, bool mask);

/* ---- HTTP/1.1 heads (RFC 9112) ---- */

#define BR_WS_HEAD_MAX 8192u /* of a request or of a response */
#define BR_WS_FIELDS_MAX 64u

struct br_http_text {
    const char *p; /* inside of what was parsed; NULL: there is none */
    size_t n;
};
struct br_http_head {
    /* a request */
    struct br_http_text method, path, query; /* the query without its '?' */
    uint64_t content_length;                 /* 0 if it brings no body */
    /* a response */
    unsigned status;
    unsigned minor; /* of HTTP/1.x */
    unsigned nfields;
    struct {
        struct br_http_text name, value; /* values without blanks around them */
    } fields[BR_WS_FIELDS_MAX];
};
/*
 * Parse a head, its empty line included. The number of bytes of it, 0 if it is not complete yet (at
 * most BR_WS_HEAD_MAX bytes are looked at), or -BR_E_INVALID_FRAME (bare LF or CR, obsolete
 * folding, blanks before ':', control characters, no or several Host fields in a request, a target
 * that is no path, a body whose length is not told by one Content-Length, ...),
 * -BR_E_LIMIT_EXCEEDED. What is wrong is found at the byte that makes it so, or when the head is
 * complete. *status is then what a server answers (400, 414, 431, 501, 505).
 */
int br_http_request(const char *p, size_t n, struct br_http_head *out, unsigned *status,
                    struct br_err *err);
int br_http_response(const char *p, size_t n, struct br_http_head *out, struct br_err *err);
/* The only field of this name, case does not matter; p NULL if there is none or more than one
 * (*many tells, and may be NULL). */
struct br_http_text br_http_field(const struct br_http_head *h, const char *name, bool *many);
/* Is the word one of a comma-separated list, case aside? */
bool br_http_list_has(struct br_http_text list, const char *word);

/* ---- the opening handshake ---- */

struct br_ws_offer {
    char accept[29];               /* the value of Sec-WebSocket-Accept */
    struct br_http_text protocols; /* Sec-WebSocket-Protocol; p NULL: none */
    struct br_http_text origin, host, authorization;
};
/* Is this request an upgrade to WebSocket? 0 with *out; 1: it does not ask for one; or
 * -BR_E_INVALID_FRAME and *status (400, 405, 426 with `Sec-WebSocket-Version: 13`). */
int br_ws_offer(const struct br_http_head *h, struct br_ws_offer *out, unsigned *status,
                struct br_err *err);
/* Append the 101; `protocol` may be "". */
void br_ws_put_accept(struct br_buf *b, const struct br_ws_offer *o, const char *protocol);

/* A client's request; `protocol`, `bearer` and `origin` may be "". key: what it sends, for the
 * check. */
void br_ws_put_request(struct br_buf *b, const char *host, const char *path, const char *protocol,
                       const char *bearer, const char *origin, char key[25]);
/* The server's answer to it: 0, or -BR_E_PEER_PROTOCOL, -BR_E_DENIED (401, 403), -BR_E_NOT_FOUND,
 * -BR_E_LIMIT_EXCEEDED (429, 503) with a sentence. It must have chosen `protocol`, or none where
 * that is "". */
int br_ws_check_accept(const struct br_http_head *h, const char *key, const char *protocol,
                       struct br_err *err);

#endif
