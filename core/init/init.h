/*
 * core/init: what pid 1 of every sandbox does. It serves one channel (to bridle-session): it checks
 * the grant of each call a second time, reads and writes files below the workspace, runs commands,
 * takes snapshots, and reaps what is left over. The same code runs when it is not pid 1 (tests);
 * then it ends only the process groups that it started.
 *
 * Everything on the channel is bounded by core/wire; everything in the workspace is hostile.
 */
#ifndef BR_INIT_H
#define BR_INIT_H

#include "wire/types.h"
#include "wire/wire.h"

/* ---- limits ------------------------------------------------------------------------------- */

/* Content of one FS_READ: JSON escapes may double it and the result is still one tool result. */
#define BR_INIT_READ_MAX (BR_TOOL_RESULT_MAX / 2)
/* A file that FS_WRITE makes or FS_EDIT changes: both hold it in memory. */
#define BR_INIT_FILE_MAX (8u * 1024 * 1024)
/* Entries of one FS_LIST: seven JSON values each, within BR_JSON_NODES_MAX. */
#define BR_INIT_LIST_MAX 1000u
#define BR_INIT_LIST_DEFAULT 500u
/* One FS_SEARCH: matches, bytes of one line shown, of one needle, of one file, of all, and time. */
#define BR_INIT_MATCHES_MAX 500u
#define BR_INIT_MATCHES_DEFAULT 100u
#define BR_INIT_LINE_MAX 300u
#define BR_INIT_NEEDLE_MAX 4096u
#define BR_INIT_SEARCH_FILE_MAX (4u * 1024 * 1024)
#define BR_INIT_SEARCH_BYTES_MAX (512u * 1024 * 1024)
/* Any walk of a tree: entries (also of one directory, which is read whole), depth, time. */
#define BR_INIT_WALK_ENTRIES 50000u
#define BR_INIT_WALK_DEPTH 64u
#define BR_INIT_WALK_US 10000000u
/* Entries of one INIT_CHANGES: seven JSON values each. */
#define BR_INIT_CHANGES_MAX 1000u
/* The longest time that one EXEC may ask for. */
#define BR_INIT_TIMEOUT_MS_MAX (3600u * 1000)
/* How long killed processes may take to disappear before the whole sandbox is given up. */
#define BR_INIT_REAP_US 5000000u

/* ---- the server --------------------------------------------------------------------------- */

struct br_init_exec;
struct br_init_snapshot;

struct br_init {
    int root;                 /* owned: the workspace */
    bool pid1;                /* may kill and reap everything else */
    uint64_t last_serial;     /* of the newest grant that was seen */
    struct br_init_exec *run; /* the present EXEC, or NULL */
    struct br_init_snapshot *base;
    struct br_loop *loop; /* owned */
    struct br_chan chan;  /* owned */
    int sigfd;            /* owned: SIGCHLD */
    uint64_t call_id;     /* of the present call: its INIT_PROGRESS carries it */
    unsigned inherited;   /* open descriptors beyond the channel, at the start */
    int sockets[2];       /* owned until INIT_READY: of the provider, of the gate; -1: none */
    struct br_buf raw;    /* stdout of the present GUEST */
    int fatal;            /* negative code: the channel ended during a call; serve no more */
};

/*
 * Take chan_fd and root_fd (a directory), and block SIGCHLD in this thread. `pid1` must only be
 * true if getpid() is 1. Free with br_init_close() in any case.
 */
int br_init_open(struct br_init *in, int chan_fd, int root_fd, bool pid1, struct br_err *err);
void br_init_close(struct br_init *in);
/* sockets.c: make one of the sockets that BR_INIT_PROVIDER and BR_INIT_GATE name. */
int br_init_listen(struct br_init *in, const char *word, struct br_err *err);
/* Send INIT_READY and serve until the session goes: -BR_E_PEER_GONE then, or another code. */
int br_init_serve(struct br_init *in, struct br_err *err);

/* ---- operations --------------------------------------------------------------------------- */

/*
 * The second check of a grant (the ledger of the session is the first): its serial must be higher
 * than every one before, its action must fit the operation, and its subject hash must be the one of
 * this call. The serial is used up in any case. -BR_E_GRANT_USED or -BR_E_GRANT_MISMATCH.
 */
int br_init_check_grant(struct br_init *in, const struct br_grant_ref *grant,
                        const struct br_init_call *call, struct br_err *err);

/*
 * Each appends its result, a JSON object of at most BR_TOOL_RESULT_MAX bytes (see wire/types.h), to
 * `out`. A negative code means that nothing was changed, or, for an EXEC that was aborted, that the
 * command is dead; `out` then holds nothing, or an object with details.
 */
typedef int br_init_op_fn(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                          struct br_err *err);
br_init_op_fn br_init_fs_read;
br_init_op_fn br_init_fs_list;
br_init_op_fn br_init_fs_search;
br_init_op_fn br_init_fs_write;
br_init_op_fn br_init_fs_edit;
/* Serves the channel while the command runs; in->fatal is set if that ended. */
br_init_op_fn br_init_exec;
/* The same for a GUEST; what it wrote to stdout is in in->raw. */
br_init_op_fn br_init_guest;

/* INIT_ABORT: end the present EXEC, if there is one. */
void br_init_exec_abort(struct br_init *in);
/* SIGCHLD: notice the end of the present EXEC; as pid 1 reap everything. */
void br_init_exec_reap(struct br_init *in);

/* What this process measures of itself, as a JSON object; `inherited` as in struct br_init. */
int br_init_measure(struct br_buf *out, unsigned inherited);

/* The first call remembers the tree and answers no changes; later ones compare with the first. */
int br_init_snapshot(struct br_init *in, struct br_buf *out, struct br_err *err);
void br_init_snapshot_free(struct br_init_snapshot **s);

#endif
