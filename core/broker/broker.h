/*
 * core/broker, private: the program. main.c has the channels and the loop, guest.c the guests'
 * connections, flight.c what is on its way to the provider and back.
 */
#ifndef BR_BROKER_H
#define BR_BROKER_H

#include "broker/broker_priv.h"
#include "broker/dialect.h"
#include "broker/http.h"
#include "wire/wire.h"

/* Connections of guests at the same time: one for each request that a lease may allow, and idle
 * ones that clients keep. */
#define BR_GUESTS_MAX 320u
/* Bytes of an answer that may be between egress and its reader. */
#define BR_BROKER_WINDOW (512u * 1024)
/* A reader that has so many bytes before it gets no more until it has read. */
#define BR_GUEST_UNREAD_MAX (128u * 1024)
/* Bodies of guests that are being read, all together. */
#define BR_GUEST_BODIES_MAX (128u * 1024 * 1024)
/* How long a guest may take for a head, and for a body; and how long it is listened to after it
 * was refused, so that it reads why. */
#define BR_GUEST_HEAD_US (15u * 1000000u)
#define BR_GUEST_BODY_US (120u * 1000000u)
#define BR_GUEST_LINGER_US (2u * 1000000u)
#define BR_GUEST_LINGER_BYTES (32u * 1024 * 1024)
/* A guest that left: so much of its answer is read, and for so long, to learn what it used. */
#define BR_DRAIN_BYTES (4u * 1024 * 1024)
#define BR_DRAIN_US (20u * 1000000u)
/* Refusals of which the session is told one by one; the account counts all. */
#define BR_REFUSALS_TOLD 100u
/* How often limits of time are looked at while there are any. */
#define BR_TICK_US 250000u

struct flight;

enum guest_state {
    GUEST_HEAD, /* reads, or waits for, a request */
    GUEST_BODY,
    GUEST_WAIT,   /* its request is in flight; nothing is read */
    GUEST_LINGER, /* was answered for the last time; what it still says is dropped */
};

struct guest {
    struct broker *b;
    int fd;
    uint32_t slot, generation;
    uint32_t events; /* watched */
    enum guest_state state;
    bool head_sent;   /* of the present answer */
    bool close_after; /* the present answer */
    bool dirty;       /* is in the broker's list */
    bool advancing;   /* whoever ends an answer need not look for the next request */
    pid_t pid;        /* that connected, as the kernel says */
    uint64_t due_us;  /* of the present state; 0: none */
    size_t lingered;
    struct flight *flight;
    struct br_buf body, out;
    size_t out_off; /* so much of `out` was sent */
    struct br_http_chunks chunks;
    size_t in_len, scanned;
    struct br_http_request req;
    char in[BR_HTTP_HEAD_MAX];
};

/* One request, from its reservation to egress's PROV_END. */
struct flight {
    uint64_t id; /* towards egress; 0: this slot is free */
    bool of_guest;
    struct guest *guest;     /* NULL: it has gone, or was told the end */
    uint64_t serial;         /* a guest's, towards the session; */
    uint64_t session_id;     /* or the session's own */
    struct br_ask_facts ask; /* what it asks for */
    struct br_answer *answer;
    struct br_reservation res;
    uint64_t request_bytes, response_bytes;
    uint32_t status;               /* of the provider; 0: no head yet */
    uint32_t window;               /* so many bytes egress may still send */
    uint32_t taken;                /* so many were taken and are not credited */
    char content_type[64];         /* of the answer to the guest */
    struct br_headers *headers;    /* for it; NULL: none or sent */
    bool cut;                      /* egress was told to let go */
    bool blind;                    /* the answer is not understood any more (session only) */
    uint64_t drain_until, drained; /* the guest has left; 0: not */
    struct br_err end;             /* what it ended with, if not as egress says */
};

struct broker {
    int ep;
    struct br_chan sup, session, egress;
    int listener;
    uid_t guest_uid;
    char run_id[BR_ID_MAX], model[BR_NAME_MAX + 1];
    struct br_account account;
    struct flight *flights[BR_BROKER_FLIGHTS_MAX];
    unsigned nflights;
    uint64_t requests; /* ids */
    uint64_t serial;
    struct guest *guests[BR_GUESTS_MAX];
    uint32_t generation;
    unsigned nguests;
    size_t bodies; /* bytes of guests' bodies */
    unsigned told;
    uint64_t tick_us, eager_until;
    uint16_t dirty[BR_GUESTS_MAX]; /* slots of guests with something to send */
    unsigned ndirty;
    struct br_buf scratch; /* what nobody reads */
    bool started, over, done;
};

/* ---- main.c ---- */

/* To egress, waiting until there is room; -BR_E_PEER_GONE if it has gone. */
int broker_to_egress(struct broker *b, enum br_msg_type type, uint64_t id, const struct br_out *o,
                     struct br_err *err);
/* 0 also if the session has gone: its end of file says so as well. */
int broker_to_session(struct broker *b, enum br_msg_type type, uint64_t id, const struct br_out *o,
                      struct br_err *err);
/* Add, change or (with fd closed by the caller afterwards) forget what is watched. */
int broker_watch(struct broker *b, int op, int fd, uint32_t events, uint64_t tag);
/* Something will come soon. */
void broker_eager(struct broker *b);
/* The lease is over: nothing new is taken, what is in flight is cut with this. */
void broker_over(struct broker *b, enum br_code code, const char *text);

/* ---- guest.c ---- */

/* Take over a listening socket, and watch it. */
int guest_listen(struct broker *b, int fd, struct br_err *err);
void guest_accept(struct broker *b);
/* Something happened to the guest in this slot. */
void guest_event(struct broker *b, uint32_t slot, uint32_t generation, uint32_t events);
void guest_tick(struct broker *b, uint64_t now);
void guest_close(struct guest *g);
/* Its request was taken. */
void guest_body_free(struct guest *g);
/* Close the listener, and all guests that wait for nothing. */
void guest_close_idle(struct broker *b);
/* The whole of an answer of ours. */
void guest_answer(struct guest *g, unsigned status, const char *content_type, bool retry,
                  const struct br_buf *body);
/* Refuse the present request: an error in the route's shape. */
void guest_refuse(struct guest *g, uint32_t route, unsigned status, enum br_code code,
                  const char *text);
/* The head of a chunked answer, into g->out. */
void guest_head(struct guest *g, unsigned status, const char *content_type,
                const struct br_headers *h);
/* Forget what was sent of g->out; offsets into it change. */
void guest_compact(struct guest *g);
/* A chunk in g->out: bytes that are appended between these two are its data. */
size_t guest_chunk_begin(struct guest *g);
void guest_chunk_end(struct guest *g, size_t mark);
/* The present answer is whole, or (if not `whole`) cut here for everybody to see. */
void guest_done(struct guest *g, bool whole);
/* Send what is there. False if the guest has gone and was closed. */
bool guest_flush(struct guest *g);
/* Send it, but not before the next guest_flush_all(). */
void guest_flush_later(struct guest *g);
void guest_flush_all(struct broker *b);
static inline size_t guest_unread(const struct guest *g)
{
    return g->out.len - g->out_off;
}

/* ---- flight.c ---- */

/* The present request of a guest, whose head and body are complete. */
void flight_of_guest(struct guest *g);
/* PROV_REQUEST of the session. */
int flight_of_session(struct broker *b, struct br_msg *m, struct br_err *err);
int flight_on_head(struct broker *b, struct br_msg *m, struct br_err *err);
int flight_on_data(struct broker *b, struct br_msg *m, struct br_err *err);
int flight_on_end(struct broker *b, struct br_msg *m, struct br_err *err);
/* The guest has read something: more may come. */
void flight_credit(struct flight *f);
/* The guest has gone. */
void flight_left(struct flight *f);
/* Stop the answer here; its reader is told. */
void flight_cut(struct broker *b, struct flight *f, enum br_code code, const char *text);
void flight_cut_all(struct broker *b, enum br_code code, const char *text);
/* Egress has gone: so have all. */
int flight_egress_gone(struct broker *b, struct br_err *err);
struct flight *flight_of_session_id(struct broker *b, uint64_t session_id);
void flight_tick(struct broker *b, uint64_t now);
/* A guest was refused: the account counts it, and the session is told. */
void flight_refused(struct broker *b, enum br_code code, const char *text);
void flight_free_all(struct broker *b);

#endif
