/*
 * core/egress, private: requests to the provider and their answers, many at a time. A request
 * is written once: no redirects, no retries. Bodies are opaque bounded bytes, and of each
 * answer no more is read than its reader has room for.
 */
#ifndef BR_EGRESS_TRANSFER_H
#define BR_EGRESS_TRANSFER_H

#include "egress/http.h"
#include "egress/net.h"

/* At once. Twice what the paced streams of a bench take, and a descriptor or two each. */
#define BR_EGRESS_TRANSFERS_MAX 512u
/* Bodies of requests that have not been sent yet, together. */
#define BR_EGRESS_BODIES_MAX (256u * 1024 * 1024)
/* What is read at once: it fits into one message. */
#define BR_EGRESS_READ_MAX BR_BLOB_INLINE_MAX
/* Bytes in front of a part of a body that br_egress_sink.data may overwrite. */
#define BR_EGRESS_ROOM 8u

struct br_egress_timeouts {
    uint32_t connect_s;    /* name, proxy, connection and TLS */
    uint32_t first_byte_s; /* from the whole request to the first byte of the answer */
    uint32_t idle_s;       /* between two bytes, while the reader keeps up */
    uint32_t total_s;      /* of everything */
};

/* Where answers go. Nothing may be called back from inside of these. */
struct br_egress_sink {
    void (*head)(void *ctx, uint64_t id, uint32_t status, const struct br_headers *h);
    void (*data)(void *ctx, uint64_t id, uint8_t *p, size_t n);
    /* code BR_OK: complete. Bytes of the bodies. */
    void (*end)(void *ctx, uint64_t id, const struct br_err *end, uint64_t sent, uint64_t got);
    /* True: nothing more is read until br_transfers_unblocked(). */
    bool (*blocked)(void *ctx);
    void *ctx;
};

struct br_transfers;

struct br_transfers_config {
    struct br_net *net;                    /* borrowed, as is: */
    const struct br_egress_target *target; /* with */
    const struct br_secret *key;           /* which may be empty */
    uint8_t auth;                          /* enum br_auth */
    struct br_egress_timeouts limits;
    struct br_egress_sink sink;
};
/* NULL without memory. */
struct br_transfers *br_transfers_new(void);
void br_transfers_configure(struct br_transfers *ts, const struct br_transfers_config *c);
void br_transfers_free(struct br_transfers **ts);

struct br_egress_request {
    uint64_t id; /* of no other one that has not ended */
    bool post;
    char path[256], content_type[128];
    struct br_headers headers; /* those of the guest that are passed on */
    uint32_t window;           /* bytes of the answer's body that may come, at least 1 */
    struct br_buf body;        /* taken over: left empty */
};
/*
 * Start one; with `wait` it stays until br_transfers_go(). -BR_E_INVALID_FRAME for what is no
 * request, -BR_E_LIMIT_EXCEEDED if there are too many: the sink hears nothing of these.
 */
int br_transfers_start(struct br_transfers *ts, struct br_egress_request *q, bool wait,
                       struct br_err *err);
/* Send what waits. */
void br_transfers_go(struct br_transfers *ts);
/* The reader has taken so many bytes; an unknown id is ignored. */
void br_transfers_credit(struct br_transfers *ts, uint64_t id, uint32_t bytes);
/* End it as this, if it has not ended; its connection is closed at once. */
void br_transfers_abort(struct br_transfers *ts, uint64_t id, enum br_code code, const char *text);
/* The same for all. */
void br_transfers_abort_all(struct br_transfers *ts, enum br_code code, const char *text);
void br_transfers_unblocked(struct br_transfers *ts);
/* Something came from br_net_wait() for a tag below BR_NET_TAGS that is a transfer's. */
void br_transfers_event(struct br_transfers *ts, const struct br_net_event *ev);
/* Go on with what can: reads a bounded amount each. Milliseconds until there is something to do
 * again; -1: only with an event. */
int br_transfers_run(struct br_transfers *ts);
/* True once after a complete answer whose connection cannot be used again: another request may
 * follow, and find one. */
bool br_transfers_answered(struct br_transfers *ts);
/* Close the connections of complete answers: for when there is nothing else to do. */
void br_transfers_tidy(struct br_transfers *ts);

#endif
