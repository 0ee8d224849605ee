/*
 * Inside bridle-audit: the recorder that turns data into stored events (recorder.c), streamed text
 * (text.c), the client's feed (feed.c), the end of a record (finish.c), and the three modes.
 */
#ifndef BR_AUDIT_PRIV_H
#define BR_AUDIT_PRIV_H

#include "audit/events.h"
#include "audit/quick.h"
#include "audit/redact.h"
#include "audit/store.h"
#include "wire/types.h"
#include "wire/wire.h"

/* Events of the session that share one transaction; the last message of them may bring more. */
#define AUDIT_BATCH_MAX 64u
/* Streams of text that may be open at one time: one model request is. */
#define AUDIT_STREAMS_MAX 8u
/* Streamed text is stored after this long, or this much, or before any other event. */
#define AUDIT_TEXT_US 50000u
#define AUDIT_TEXT_MAX 4096u
/* How long a client that reads nothing is waited for at the end of a run. */
#define AUDIT_CLIENT_WAIT_US 5000000u

enum audit_mode { AUDIT_RECORD = 0, AUDIT_READ = 1, AUDIT_RECOVER = 2 };

/* ---- recorder ---- */

/* Events that are kept for the client, so that they need not be read back: those that follow the
 * last one that it has, as EVENTS carries them. */
#define AUDIT_KEPT_MAX (1024u * 1024)
struct kept {
    bool wanted; /* there is a client */
    uint64_t first, count;
    size_t at; /* where the first one begins in `bytes` */
    struct br_buf bytes;
};

struct recorder {
    struct br_store *store;
    struct br_redact *redact;
    struct br_event_order *order;
    struct br_store_run run, committed;
    uint64_t durable; /* rows that are on disk, and may be shown; at most those of `committed` */
    struct br_quick *quick;
    struct kept kept;
    uint8_t random[640]; /* for the ids of the next events */
    size_t random_used;
    bool open;      /* a transaction is */
    bool accounted; /* bridle.provider.account is there */
};
/* Redact, check, number, store (not yet committed). With `redacted`, the data is known to be. */
int recorder_add(struct recorder *r, const char *type, const char *actor, const json_t *data,
                 bool redacted, struct br_err *err);
/* The same with data that is text, where that is quick: 1, or 0: nothing was done, parse it. */
int recorder_add_text(struct recorder *r, const char *type, const char *actor, const void *data,
                      size_t n, struct br_err *err);
/* Everything that was added is on disk, or none of it and the run goes on from the last commit. */
int recorder_commit(struct recorder *r, struct br_err *err);
/* The same without waiting for the disk: `durable` stays as it is. */
int recorder_commit_later(struct recorder *r, struct br_err *err);
/* Read what is on disk of r->committed's run, and go on from there. */
int recorder_reload(struct recorder *r, struct br_err *err);

/* account.c: before the end of a record, what is on the page of its provider lease, if it has one.
 * Once. */
int account_add(struct recorder *r, struct br_err *err);
/* The record is closed and has it. */
void account_remove(const char *run_id);

/* How a record ends that did not end itself. */
struct ending {
    uint32_t code;
    char status[BR_STORE_STATUS_MAX];
    char note[BR_EVENT_NOTE_MAX + 1];
    const char *workspace;
    uint8_t sandbox; /* 0 none was started, 1 removed and verified, 2 not verified */
    uint32_t exit_status;
    uint64_t duration_ms;
};
/* Close what is open and add agent.stopped; nothing if it is there. Commits. */
int record_finish(struct recorder *r, const struct ending *e, struct br_err *err);

/* ---- the program ---- */

struct text_stream {
    char id[BR_NAME_MAX + 1];
    char kind[16];
    struct br_redact_stream *redact; /* NULL: unused */
    struct br_buf out;               /* redacted, not stored yet */
};

struct reply {
    uint64_t id;
    int code;     /* 0: stored */
    uint64_t row; /* the last one; 0: none */
    char text[BR_ERR_TEXT_MAX];
};

/* What the session asked for and is not answered yet. */
struct batch {
    struct reply replies[AUDIT_BATCH_MAX];
    unsigned n, events;
};

struct audit {
    struct br_loop *loop;
    struct br_chan sup, session, client, egress;
    enum audit_mode mode;
    int dirfd;
    bool started;
    struct br_store_info info; /* of AUDIT_START; redacted when the row of the run is made */
    char goal[BR_PATH_MAX];    /* as it came; info.goal is what is stored of it */
    bool with_egress, secret_known;
    char token[BR_NAME_MAX]; /* of a guest at its provider; until the redactor knows it */
    char wanted[BR_NAME_MAX + 1];
    struct br_show show;
    struct recorder rec;
    struct text_stream streams[AUDIT_STREAMS_MAX];
    int text_timer;
    struct batch batches[3];
    unsigned filling; /* one is filled: taken, and committed unless a commit failed */
    unsigned syncing; /* one is committed; the disk is waited for */
    struct br_syncer *syncer;
    bool in_sync;     /* it is, in the background, up to sync_rows */
    bool many;        /* the sync before was of many events: more come soon */
    unsigned slow;    /* syncs in the background that took long, in sequence */
    unsigned at_once; /* syncs that are waited for */
    uint64_t sync_rows, sync_started_us;
    struct br_err broken; /* the first failure; nothing is stored after it but the end */
    /* feed */
    uint64_t sent; /* rows that the client has */
    uint64_t progress_us;
    bool closing, done;
    int wait_timer;
};

/* text.c. All return 0 or the failure. */
int text_feed(struct audit *a, const char *stream, const char *kind, const void *bytes, size_t n,
              bool final, struct reply *reply, struct br_err *err);
/* Is there any text that must be stored before the next event? */
bool text_waits(const struct audit *a);
int text_flush(struct audit *a, struct br_err *err);  /* what is decided */
int text_finish(struct audit *a, struct br_err *err); /* and the rest, as final */
void text_free(struct audit *a);

/* feed.c: send what the client lacks of the committed rows; never blocks. */
void feed_init(struct audit *a);
int feed_pump(struct audit *a, struct br_err *err);
/* Is there nothing left to send, or nobody to send it to? */
bool feed_idle(const struct audit *a);
/* Send one message, waiting for the client to read at most AUDIT_CLIENT_WAIT_US. */
int feed_send(struct audit *a, enum br_msg_type type, const struct br_out *o, struct br_err *err);
void feed_end(struct audit *a, int code, const char *text);

/* batch.c: what was taken from the session is committed, synced, shown and answered, while the next
 * is taken already. */
struct reply *batch_reply(struct audit *a, uint64_t id);
/* So many events of it were taken. */
void batch_count(struct audit *a, unsigned events);
/* Of one message: note a failure in its reply, and for everything that follows. */
void batch_settle(struct audit *a, struct reply *rep, int r, const struct br_err *err);
/* In the middle of a message: what has come to the disk meanwhile is shown and answered. */
int batch_look(struct audit *a, struct br_err *err);
/* Take what waits at the session's channel and commit it; -BR_E_TIMEOUT if nothing did, or if no
 * more may be taken now. */
int batch_serve(struct audit *a, struct br_err *err);
/* Wait until everything that was taken is on disk, shown and answered. */
int batch_flush(struct audit *a, struct br_err *err);
/* Nobody is there to be answered. */
void batch_forget(struct audit *a);

/* record.c */
int record_start(struct audit *a, struct br_err *err);
/* Take what waits on the session's channel, store it, answer, until it is empty. */
int record_serve(struct audit *a, struct br_err *err);
/* Look for messages of the session, or leave them where they are. */
void record_watch(struct audit *a, bool yes);
int record_on_close(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err);
/* The supervisor has gone, or a peer broke the protocol: close the record as failed. */
void record_abandon(struct audit *a, int code, const char *note);

/* read.c, recover.c: the other modes, to their end. */
int read_run(struct audit *a, struct br_err *err);
int recover_run(struct audit *a, unsigned *closed, struct br_err *err);
/* Is the process of "pid:start-time:boot-id" there? Unknown counts as alive. */
bool owner_alive(const char *owner);

int audit_send_closed(struct audit *a, int code, const char *text, const char *status);

#endif
