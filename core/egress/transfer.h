/*
 * core/egress, private: one HTTP request at a time through libcurl, without redirects, retries,
 * proxies, cookies or connection reuse. Bodies are opaque bounded bytes.
 */
#ifndef BR_EGRESS_TRANSFER_H
#define BR_EGRESS_TRANSFER_H

#include <curl/curl.h>

#include "egress/egress_priv.h"

struct br_egress_timeouts {
    uint32_t connect_s;    /* name, connection and TLS */
    uint32_t first_byte_s; /* from the connection to the first header */
    uint32_t idle_s;       /* between two bytes of the answer, while the reader keeps up */
    uint32_t total_s;      /* of everything */
};

/* What an answer says about itself; all that is passed on of its headers. */
struct br_egress_head {
    uint32_t status;
    char content_type[256];
    char request_id[256];
    char retry_after[64];
};

/* Where an answer goes. head: 0 or a negative code. data: 0, or -BR_E_TIMEOUT to be called again
 * with the same bytes after br_transfer_resume(), or another negative code. */
struct br_egress_sink {
    int (*head)(void *ctx, const struct br_egress_head *h);
    int (*data)(void *ctx, const void *p, size_t n);
    void *ctx;
};

struct br_transfer;

/* Both borrowed for the life of the transfer object. NULL without memory. */
struct br_transfer *br_transfer_new(CURLM *multi, const struct br_egress_sink *sink);
void br_transfer_free(struct br_transfer **t);

/*
 * Start a POST. Takes over `body` (which is left empty). `key` may hold nothing: then no
 * Authorization is sent. -BR_E_INVALID_FRAME for a method, path or content type that is not one.
 */
int br_transfer_start(struct br_transfer *t, const struct br_egress_target *target,
                      const char *unix_socket, const struct br_secret *key,
                      const struct br_egress_timeouts *limits, const char *path,
                      const char *content_type, struct br_buf *body, struct br_err *err);
bool br_transfer_active(const struct br_transfer *t);
bool br_transfer_paused(const struct br_transfer *t);
/* The sink has room again. */
void br_transfer_resume(struct br_transfer *t);
/* End it as this; br_transfer_ended() reports it. The connection is closed at once. */
void br_transfer_abort(struct br_transfer *t, enum br_code code, const char *text);
/* Milliseconds until br_transfer_check() has something to do; -1 for ever. */
int br_transfer_wait_ms(const struct br_transfer *t);
/* Enforce first-byte and idle time-outs. */
void br_transfer_check(struct br_transfer *t);
/*
 * True once per transfer, when it is over: `err` holds its end (code BR_OK: complete), and the
 * counts of body bytes sent and received are set.
 */
bool br_transfer_ended(struct br_transfer *t, struct br_err *err, uint64_t *request_bytes,
                       uint64_t *response_bytes);

#endif
