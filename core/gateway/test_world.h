/*
 * core/gateway, tests: a world in which the gateway's sessions and protocols are real and
 * everything around them is played: connections that keep what they were sent, a bridled, and runs
 * whose record and whose ledger (the real one) are in the test's hands. Nothing moves but by
 * world_pump(), and time only by world_wait().
 */
#ifndef BR_GATEWAY_TEST_WORLD_H
#define BR_GATEWAY_TEST_WORLD_H

#include "gateway/gateway_priv.h"
#include "policy/policy.h"

#define WORLD_CONNS 16u
#define WORLD_RUNS 64u

struct conn {
    bool used, closing;
    struct gw_who who;
    uint64_t id;
    void *state;
    const struct gw_protocol *protocol;
    struct br_buf *sent; /* messages */
    unsigned nsent, read, cap;
    unsigned close_code; /* 0: open */
    bool refuse;         /* conn_may_ask() says no */
    bool refuse_reading; /* conn_may_read() says no */
    unsigned room;       /* conn_send() says 1 from so many unread messages on; 0: never */
};

/* bridled's side of one session. */
struct run {
    char id[BR_ID_MAX];
    bool forgotten, asked, started, ended;
    uint64_t max_tokens, max_calls;
    char *content;
    unsigned cancels, kills; /* GATE_CANCEL, cleanly and at once */
    uint32_t cancel_code;    /* of the last one */
    char cancel_why[BR_ERR_TEXT_MAX];
    struct br_chan session;
    int audit; /* our end; -1 */
    uint64_t row, seq;
    bool own[512]; /* rows that are of Bridle's types; those beyond are not noted */
    struct br_ledger *ledger;
    unsigned answers; /* ANSWERs that came */
    char last_who[BR_WHO_MAX];
    char *last_note;
    void (*answered)(struct run *r, const char *permission, int code); /* by the ledger */
    bool mute; /* answers are taken and not acknowledged */
};

struct gateway {
    struct br_service settings;
    struct gw_counters counters;
    bool draining;
    bool manual; /* world_pump() does nothing; world_step() moves one message */
    void *sessions, *replays;
    struct br_chan up, down; /* fd 3 of the gateway, and bridled's end of it */
    struct conn conns[WORLD_CONNS];
    struct run runs[WORLD_RUNS];
    unsigned nruns;
    uint64_t nconns;
    uint64_t now_us;
    /* what bridled does */
    int check_code;   /* of the next GATE_CHECKED; 0: it may */
    bool hold_checks; /* do not answer */
    uint64_t held[8]; /* ids of those that were not answered */
    unsigned nheld;
    bool hold_runs; /* do not start what is to run */
    char last_workspace[BR_PATH_MAX], last_task[256], last_model[256], last_who[BR_WHO_MAX];
    /* the store */
    int read_code;
    char read_id[BR_ID_MAX], read_before[BR_ID_MAX], read_words[512];
    uint32_t read_limit;
    uint64_t read_call;   /* id of the GATE_READ that was not answered; 0: none */
    uint64_t missed[256]; /* those before it that were not answered */
    unsigned nmissed;
    struct br_chan store; /* our end of it */
    bool store_full;      /* what world_stored() could not send, because nobody reads */
    unsigned logs;
    unsigned otlp_ended;
};

struct gateway *world_new(void);
/* False if anything was left: a session, a follower, a channel. */
bool world_free(struct gateway **g);
struct conn *world_connect(struct gateway *g, const struct gw_protocol *p, const char *name,
                           enum br_access access);
void world_disconnect(struct gateway *g, struct conn *c);
void world_say(struct gateway *g, struct conn *c, const char *fmt, ...) BR_PRINTF(3, 4);
/* The next message that it was sent; NULL: there is none. Valid until the connection is gone. */
const char *world_heard(struct conn *c);
/* The same, parsed; owned by the caller. */
json_t *world_heard_json(struct conn *c);
/* Everything that is on its way arrives. */
void world_pump(struct gateway *g);
void world_wait(struct gateway *g, uint64_t us);
/* One message of one way, if there is one. */
enum world_way {
    WORLD_TO_BRIDLED,
    WORLD_FROM_BRIDLED,
    WORLD_TO_SESSION,
    WORLD_FROM_SESSION,
    WORLD_FROM_AUDIT,
    WORLD_WAYS
};
bool world_step(struct gateway *g, enum world_way way);
/* Is there one? */
bool world_waits(struct gateway *g, enum world_way way);

struct run *world_run(struct gateway *g, const char *id); /* NULL: bridled does not know it */
void world_checked(struct gateway *g, uint64_t call, int code, const char *text);
void world_start(struct gateway *g, struct run *r);
/* An event of its record. `data` is the text of an object. */
void world_event(struct gateway *g, struct run *r, const char *type, const char *actor,
                 const char *data, ...) BR_PRINTF(5, 6);
void world_bytes(struct gateway *g, struct run *r, uint64_t row, const void *p, size_t n);
/* A question of the ledger, and its events; the id is put into `permission`. */
void world_ask(struct gateway *g, struct run *r, const char *call, bool run,
               char permission[BR_ID_MAX]);
/* Its permission.resolved, as the ledger says. */
void world_resolved(struct gateway *g, struct run *r, const char *call, const char *permission);
/* agent.stopped, the record's end, GATE_ENDED. */
void world_end(struct gateway *g, struct run *r, const char *status);
void world_ended(struct gateway *g, struct run *r, int code, const char *text);
void world_close_audit(struct run *r);

/* The store, for the GATE_READ that came last: a code, or a channel on which it is shown. */
void world_reading(struct gateway *g, int code, const char *text);
void world_row(struct gateway *g, const char *id, const char *status, const char *goal,
               uint64_t events);
/* `own`: of Bridle's types. Row `row`, with the number in it. */
void world_stored(struct gateway *g, uint64_t row, bool own);
void world_reading_end(struct gateway *g, int code);

#endif
