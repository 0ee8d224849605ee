/*
 * core/wire: how the programs of Bridle talk to each other. A channel is one end of a
 * SOCK_SEQPACKET socketpair; a message is a fixed header and a payload of at most BR_MSG_MAX bytes;
 * a larger body travels as a sealed memfd; descriptors travel only with the types that say so.
 *
 * Each receiver owns a table of `struct br_msg_rule`. A message that is unknown, not permitted in
 * the present state, too short, too long, or that carries another number of descriptors than its
 * row says is a protocol violation: br_chan_dispatch() returns -BR_E_PEER_PROTOCOL, and the
 * program must end that peer and fail its session closed.
 *
 * The messages themselves are listed in msg.h.
 */
#ifndef BR_WIRE_H
#define BR_WIRE_H

#include <poll.h>

#include "base/base.h"
#include "wire/msg.h"

/* ---- channels ----------------------------------------------------------------------------- */

/* On the wire, little endian, in front of every payload. */
struct br_msg_header {
    uint16_t type;
    uint16_t nfds;
    uint32_t len; /* of the payload */
    uint64_t id;  /* correlates a request with its answers; 0 if there is nothing to correlate */
};

/* A received message. The payload is valid until the next receive on the channel. Descriptors
 * that a handler does not take with br_msg_take_fd() are closed after it returns. */
struct br_msg {
    enum br_msg_type type;
    uint64_t id;
    struct br_rd rd;
    int fds[BR_MSG_FDS_MAX];
    unsigned nfds;
    unsigned next_fd_;
};

/* Ownership passes to the caller; -1 if there is none left. */
int br_msg_take_fd(struct br_msg *m);
/*
 * Read a blob field: inline bytes, or the next descriptor as a sealed memfd whose seals and size
 * are checked. Fills `out` (initialised by this call with `max` as its maximum; free it in any
 * case). -BR_E_PEER_PROTOCOL if it is malformed or larger than max.
 */
int br_msg_blob(struct br_msg *m, size_t max, struct br_buf *out, struct br_err *err);
/* The same without a copy, of one that is inside of the message: valid as long as it is; one that
 * came as a descriptor is in `large`, to be freed in any case. NULL if it is malformed. */
const void *br_msg_blob_view(struct br_msg *m, size_t max, struct br_buf *large, size_t *n,
                             struct br_err *err);

struct br_chan;
/* 0 to go on, or a negative code, which br_chan_dispatch() returns. */
typedef int br_msg_handler(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err);

enum br_msg_flags {
    BR_PERMIT = 1, /* legal from the start; otherwise only after br_chan_permit() */
    BR_ONCE = 2,   /* legal once; forbidden again as soon as it was received */
};

struct br_msg_rule {
    enum br_msg_type type;
    unsigned flags;
    uint32_t min, max; /* payload bytes, inclusive */
    unsigned min_fds, max_fds;
    br_msg_handler *handler;
};

#define BR_CHAN_RULES_MAX 40u

struct br_chan {
    int fd;           /* owned; -1 when closed */
    const char *peer; /* for messages: "session", "launch"; static */
    const struct br_msg_rule *rules;
    unsigned nrules;
    bool permitted[BR_CHAN_RULES_MAX];
    void *ctx;
    struct br_buf in_;
};

/* Take ownership of fd. The rules outlive the channel. */
void br_chan_init(struct br_chan *c, int fd, const char *peer, const struct br_msg_rule *rules,
                  unsigned nrules, void *ctx);
void br_chan_close(struct br_chan *c);
void br_chan_permit(struct br_chan *c, enum br_msg_type type);
void br_chan_forbid(struct br_chan *c, enum br_msg_type type);

/*
 * Receive one message (blocking, or -BR_E_TIMEOUT when the fd is non-blocking and nothing is
 * there) and call its handler. -BR_E_PEER_GONE at end of file, -BR_E_PEER_PROTOCOL for a
 * violation; otherwise what the handler returned.
 */
int br_chan_dispatch(struct br_chan *c, struct br_err *err);
/*
 * Look for a message for up to `us` microseconds without going to sleep; true if there is one, or
 * the end. For an answer that takes less than waking up does: an idle processor sleeps deeply, and
 * needs 30 us and more to come back. Others run meanwhile.
 */
bool br_chan_soon(const struct br_chan *c, unsigned us);
/* The same for n descriptors, each with what poll(2) should look for. */
bool br_soon(struct pollfd *p, unsigned n, unsigned us);

/* An outgoing message under construction. */
struct br_out {
    struct br_buf buf; /* payload */
    int fds[BR_MSG_FDS_MAX];
    bool owned[BR_MSG_FDS_MAX];
    unsigned nfds;
    bool failed;
};
#define BR_OUT_INIT                                                                                \
    {                                                                                              \
        .buf = BR_BUF_INIT(BR_MSG_MAX), .nfds = 0, .failed = false                                 \
    }
void br_out_free(struct br_out *o);
#define BR_CLEANUP_OUT __attribute__((cleanup(br_out_free)))
/* Attach a descriptor; it stays the caller's unless `take`, then it is closed with the message. */
void br_out_fd(struct br_out *o, int fd, bool take);
/* Append a blob field: inline if small, else a sealed memfd. */
void br_out_blob(struct br_out *o, const void *p, size_t n);
/*
 * Send (blocking). -BR_E_PEER_GONE if the peer has gone, -BR_E_TIMEOUT if the fd is non-blocking
 * and its buffer is full, -BR_E_LIMIT_EXCEEDED if the message is too large. `o` may be NULL for an
 * empty payload. The message is kept, and may be sent again. Where the uid has too many descriptors
 * on their way, it waits for up to BR_CHAN_IN_FLIGHT_MS; then -BR_E_IO.
 */
#define BR_CHAN_IN_FLIGHT_MS 2000u
int br_chan_send(struct br_chan *c, enum br_msg_type type, uint64_t id, const struct br_out *o,
                 struct br_err *err);

/* The same for a payload of one blob inside of the message, which is not copied; n is at most
 * BR_BYTES_MAX. */
#define BR_BYTES_MAX (BR_MSG_MAX - 5u)
int br_chan_send_bytes(struct br_chan *c, enum br_msg_type type, uint64_t id, const void *p,
                       size_t n, struct br_err *err);

/* The same for a payload of a u64 and n bytes, at most BR_MSG_MAX - 8. */
int br_chan_send_fixed(struct br_chan *c, enum br_msg_type type, uint64_t id, uint64_t first,
                       const void *p, size_t n, struct br_err *err);

/* A SEQPACKET pair, both ends close-on-exec; 0 or -1 and errno. */
int br_chan_pair(int fds[2]);

/* The name of a type, "AUDIT_APPEND", for messages and logs; "UNKNOWN" for another number. */
const char *br_msg_name(unsigned type);

/* ---- loop --------------------------------------------------------------------------------- */

/*
 * A poll(2) loop: descriptors and one-shot timers, single-threaded, no allocation after add.
 * Every program of Bridle uses this one (docs/decisions says why not libuv).
 */
struct br_loop;
/* `revents` as from poll(2). Negative return ends br_loop_run() with that value. */
typedef int br_loop_fd_fn(void *ctx, int fd, short revents, struct br_err *err);
typedef int br_loop_timer_fn(void *ctx, struct br_err *err);

struct br_loop *br_loop_new(void);
void br_loop_free(struct br_loop **l);
/* Watch fd (not owned) for `events`; replaces an earlier watch of the same fd. 0 or -code. */
int br_loop_watch(struct br_loop *l, int fd, short events, br_loop_fd_fn *fn, void *ctx);
void br_loop_unwatch(struct br_loop *l, int fd);
/* Watch a channel: dispatches its messages; a violation or end of file ends the loop with that
 * code, unless on_end is set, which then decides (its return value counts). on_end is called after
 * the channel was unwatched; closing it is the callee's job. */
typedef int br_chan_end_fn(struct br_chan *c, int code, void *ctx, struct br_err *err);
int br_loop_watch_chan(struct br_loop *l, struct br_chan *c, br_chan_end_fn *on_end, void *ctx);
void br_loop_unwatch_chan(struct br_loop *l, struct br_chan *c);
/* A one-shot timer; returns an id > 0, or a negative code. */
int br_loop_timer(struct br_loop *l, uint64_t after_us, br_loop_timer_fn *fn, void *ctx);
void br_loop_timer_cancel(struct br_loop *l, int *id); /* sets *id to 0; 0 is ignored */
/* Dispatch until `*done` is true (may be NULL), br_loop_stop() or an error. Nested runs are
 * allowed: an inner run serves the same watches until its own `done`. */
int br_loop_run(struct br_loop *l, const bool *done, struct br_err *err);
/* The same, at most until the absolute monotonic time: -BR_E_TIMEOUT then. */
int br_loop_run_until(struct br_loop *l, const bool *done, uint64_t deadline_us,
                      struct br_err *err);
void br_loop_stop(struct br_loop *l);

#endif
