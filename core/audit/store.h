/*
 * The audit store: one SQLite database, audit.db, in a directory that nobody else may enter. Runs
 * and events are only ever added (docs/events.md): triggers refuse UPDATE and DELETE, rows of a run
 * are contiguous, and the hash of the last event of a row is over all events before it. What
 * br_store_commit() has answered for is on disk.
 *
 * Every failure is -BR_E_STORE_FAILED, except where a function says otherwise. One thread.
 */
#ifndef BR_AUDIT_STORE_H
#define BR_AUDIT_STORE_H

#include "base/base.h"

#define BR_STORE_FILE "audit.db"
#define BR_STORE_APPLICATION_ID 0x42726431 /* "Brd1" */
#define BR_STORE_VERSION 2
/* The goal as a listing shows it; the whole is in the record. */
#define BR_STORE_GOAL_MAX 1024u
#define BR_STORE_OWNER_MAX 128u
#define BR_STORE_STATUS_MAX 32u

struct br_store;

/*
 * Open, and create if it is not there, the store in the directory `dirfd` (stays the caller's). It
 * becomes the working directory of the process. The directory and the files must belong to the
 * effective user and be closed to everybody else; set umask(077) before.
 */
int br_store_open(int dirfd, struct br_store **out, struct br_err *err);
void br_store_close(struct br_store **s);

/* A run that is being recorded, or read. */
struct br_store_run {
    int64_t id;
    char run_id[BR_ID_MAX];
    uint64_t rows;    /* events so far, with those of the open transaction */
    uint8_t hash[32]; /* of the last of them */
};

/* ---- writing: begin, any number of the others, commit ---- */
int br_store_begin(struct br_store *s, struct br_err *err);
int br_store_commit(struct br_store *s, struct br_err *err);
void br_store_rollback(struct br_store *s);
/* Committed, and on disk with the next sync. Until then it may be gone after a loss of power. */
int br_store_commit_later(struct br_store *s, struct br_err *err);

/* ---- syncing what was committed later ---- */
int br_store_sync(struct br_store *s, struct br_err *err); /* waits */
/* Who syncs in the background, and outlives the store; without one, it is waited for. */
struct br_syncer;
void br_store_use(struct br_store *s, struct br_syncer *syncer);
/* In the background: 1: br_store_sync_end() will tell, once br_store_sync_fd() is readable; 0: it
 * is done already. One at a time; what is committed meanwhile needs another. */
int br_store_sync_begin(struct br_store *s, struct br_err *err);
int br_store_sync_fd(const struct br_store *s);
/* 0, or the failure; -BR_E_TIMEOUT: not yet (never with `wait`). */
int br_store_sync_end(struct br_store *s, bool wait, struct br_err *err);

struct br_store_info {
    char run_id[BR_ID_MAX];
    uint64_t started_us, ended_us; /* ended_us 0: no end was recorded */
    char status[BR_STORE_STATUS_MAX];
    char model[BR_NAME_MAX + 1];
    char workspace[BR_PATH_MAX];
    char goal[BR_STORE_GOAL_MAX + 1];
    char owner[BR_STORE_OWNER_MAX]; /* "pid:start-time:boot-id" */
    uint64_t events;
    int64_t id;
};
/* A new run; fills `run`. ended_us, status, events and id of `info` are not read. */
int br_store_add_run(struct br_store *s, const struct br_store_info *info, struct br_store_run *run,
                     struct br_err *err);
/* One event: n bytes in one line. It becomes a row together with those after it, at the commit at
 * the latest: that it does not follow the last one of its run is an error then. */
int br_store_add_event(struct br_store *s, struct br_store_run *run, const void *body, size_t n,
                       struct br_err *err);
/* Nothing can be added to the run afterwards. */
int br_store_add_end(struct br_store *s, const struct br_store_run *run, uint64_t ended_us,
                     const char *status, struct br_err *err);

/* ---- reading ---- */

/* One run by its id, a prefix that no other run shares, or "last". -BR_E_NOT_FOUND if there is none
 * or more than one. */
int br_store_find(struct br_store *s, const char *name, struct br_store_info *info,
                  struct br_err *err);
/* The next run after `after` (an id; 0: the first), oldest first, or, with `unended`, the next
 * without an end. 1 and `info`, or 0 if there is none. */
int br_store_next_run(struct br_store *s, int64_t after, bool unended, struct br_store_info *info,
                      struct br_err *err);
/* What a listing is narrowed by: the words of a text, parted by blanks; behind the last one that
 * has room, the rest of the text counts as one word. */
#define BR_STORE_WORDS_MAX 8u
struct br_store_words {
    unsigned n;
    char word[BR_STORE_WORDS_MAX][BR_SHOW_WORDS_MAX];
};
void br_store_words(struct br_store_words *w, const char *text);
/*
 * The next run before `before` (an id), newest first, that has each of the words in its id, goal,
 * workspace, model or status, whatever the case of ASCII letters. The status of one without an end
 * is not known here: it counts as having all that it could be. 1 and `info`, or 0.
 */
int br_store_earlier_run(struct br_store *s, int64_t before, const struct br_store_words *words,
                         struct br_store_info *info, struct br_err *err);
/* Append the stored bytes of one event; -BR_E_NOT_FOUND if the run has no such row. */
int br_store_read(struct br_store *s, int64_t run, uint64_t row, struct br_buf *body,
                  struct br_err *err);
/*
 * Read a run from its first row on. `run` is filled with its id and no rows; each call appends the
 * next event, checks its hash and counts it. 1, or 0 behind the last one (whose hash is then also
 * checked against the recorded end, if there is one).
 */
void br_store_rewind(const struct br_store_info *info, struct br_store_run *run);
int br_store_next_event(struct br_store *s, struct br_store_run *run, struct br_buf *body,
                        struct br_err *err);

#endif
