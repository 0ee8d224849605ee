/*
 * core/cli: what the files of 'bridle connect' share. One connection, one session at a time; one
 * loop serves the server, the terminal and signals.
 */
#ifndef BR_CLI_CONNECT_H
#define BR_CLI_CONNECT_H

#include <signal.h>

#include "cli/asking.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/stream.h"

#define CONNECT_PROMPT_MAX (512u * 1024) /* of session/prompt */
#define CONNECT_LIST_MAX 200u
#define CONNECT_RECORD_MAX (32u * 1024)

struct connect {
    const struct br_cli_args *args;
    struct br_cli_url url;
    const char *url_text; /* as it was given; "" for this machine's own service */
    unsigned seconds;     /* that the server may take for an answer */
    bool json;
    uint32_t tokens, calls; /* 0: as the manifest says */

    struct br_loop *loop;
    struct br_cli_remote *remote;
    struct br_stream *stream;
    int signals, tick;
    unsigned nsignals;
    sigset_t old_mask;
    struct br_cli_term term;  /* where the view goes */
    struct br_cli_term asker; /* where questions are put: the same, or stderr with --json */
    struct br_cli_view view;
    struct br_cli_asking asking;

    /* what the server said of itself */
    bool extended, detachable;
    char name[BR_NAME_MAX], access[16], model[BR_NAME_MAX + 1];
    json_t *models;  /* that it offers */
    bool clock;      /* its clock is known: */
    int64_t skew_us; /* so much it is ahead of this one */

    /* the answer that is waited for */
    uint64_t want;
    bool got; /* it came, or something else ended the waiting */
    json_t *result;
    struct br_err refusal;

    /* the session that is shown */
    char session[BR_NAME_MAX + 1];
    bool running;     /* its events come */
    bool watching;    /* no answer of a prompt ends it: agent.stopped does */
    bool lost;        /* the record of the session broke off: no event says that it is over */
    bool mine;        /* Ctrl-C cancels it */
    bool detach_soon; /* as soon as it runs */
    bool detached;    /* it goes on without this client */
    bool canceling;
    bool left;                /* the operator did not want to wait */
    bool stalled, writable;   /* the output takes nothing; and now it does */
    bool editing, edit_break; /* at the prompt; and Ctrl-C there */
    uint64_t began_us;
    uint64_t limits[2]; /* that a warning told of: tokens, tool calls */
    enum br_code error; /* of its last 'error' event */
    char error_text[BR_ERR_TEXT_MAX];
    char record[CONNECT_RECORD_MAX]; /* the command that shows it again, but for its id */
};

/* connect_talk.c */

/* Connect and initialize. */
int connect_open(struct connect *c, struct br_err *err);
/* The end; `code` is what it ended with. */
void connect_close(struct connect *c, int code);
/* Send a request whose answer is not waited for here. 0, or a negative code. */
int connect_send(struct connect *c, enum br_stream_method m, const char *permission, bool allow,
                 const struct br_buf *params, uint64_t *id, struct br_err *err);
/* Send it and serve until its answer came: 0 and *result (the caller's), or a negative code, which
 * may be the server's refusal. `patient`: there is no time limit. Where the operator left or
 * detached meanwhile, 0 and *result NULL. */
int connect_call(struct connect *c, enum br_stream_method m, const struct br_buf *params,
                 bool patient, json_t **result, struct br_err *err);
/* Serve until agent.stopped, or the operator leaves. */
int connect_follow(struct connect *c, struct br_err *err);
/* Ask the server to let the session go on alone. */
void connect_detach(struct connect *c);
void connect_cancel(struct connect *c);

/* connect_show.c */

int connect_show_message(struct connect *c, const char *text, size_t n);
int connect_show_event(struct connect *c, const struct br_stream_item *item, struct br_err *err);
void connect_show_tick(struct connect *c);
void connect_say(struct connect *c, const char *text);
/* What is shown begins anew. */
void connect_show_begin(struct connect *c);
/* The summary, and the exit code of the session; `err` for a sentence about it. */
int connect_show_end(struct connect *c, struct br_err *err);
/* "2026-03-01T10:00:00.000+00:00", or with a Z, in microseconds since the epoch. */
bool connect_time(const char *iso, int64_t *us);
void connect_show_list(struct connect *c, const json_t *result, const char *words);

/* connect_edit.c: the prompt */

struct connect_edit;
struct connect_edit *connect_edit_open(struct connect *c);
void connect_edit_close(struct connect_edit **e);
/* 1 and a prompt, valid until the next call; 0: the operator is done; or a negative code. */
int connect_edit_read(struct connect_edit *e, const char **prompt, struct br_err *err);

#endif
