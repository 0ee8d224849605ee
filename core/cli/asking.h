/*
 * core/cli: questions put to the operator, for runs in the foreground and at a service. Only a line
 * of `y`, `yes`, `r` or `run` that was typed at a terminal after the question was shown allows;
 * everything else denies.
 */
#ifndef BR_CLI_ASKING_H
#define BR_CLI_ASKING_H

#include "cli/cli.h"

#define BR_CLI_ASKS_MAX BR_TOOL_CALLS_PER_TURN_MAX

/* A question of the present turn. */
struct br_cli_question {
    char id[BR_NAME_MAX];
    bool run;          /* may be allowed for the rest of the run */
    bool unshown;      /* it was too large to be shown whole */
    uint64_t until_us; /* when its time is over */
};

struct br_cli_asking {
    /* set by the owner, before anything else */
    struct br_loop *loop;
    struct br_cli_term *term; /* where questions are put, and answers come from */
    struct br_cli_view *view; /* what is in its output is shown before a question */
    void (*answer)(void *ctx, const char *permission, unsigned scope, const char *note);
    void (*stuck)(void *ctx); /* the terminal cannot be read: the run has to end */
    void *ctx;
    unsigned seconds;  /* that a question waits, in words; 0: BR_ASK_SECONDS */
    bool can_ask, yes; /* yes: the operator's word, on the command line */
    bool guest;        /* of somebody else's run: nothing is denied unasked, or at end of input */
    bool lone;         /* no bridle.asks will come: each question is put when it is wanted */

    /* may be changed at any time */
    bool canceling;
    uint64_t age_us; /* of the event that is being taken */
    bool hold;       /* what comes is from the past: nothing is put or answered; see release */

    /* its own */
    struct br_cli_question asks[BR_CLI_ASKS_MAX]; /* open ones, the first is the one being put */
    unsigned nasks, group; /* group: how many of the turn were put together */
    const char *after;     /* the next one is put after an event of this type */
    bool each;             /* they are put one by one */
    bool asking, complete;
    char line[64];
    size_t nline;
    bool line_long;
};

/* An event, before it is shown: a question that is over is taken back. */
void br_cli_asking_before(struct br_cli_asking *a, const char *type, const json_t *data);
/* The same event, after it was shown; `unshown`: not all of it could be. Questions are put here. */
void br_cli_asking_after(struct br_cli_asking *a, const char *type, const json_t *data,
                         bool unshown);
/* Is this a type that the above two want to see? */
bool br_cli_asking_wants(const char *type);
/* The run's side did not take an answer: somebody or something was faster. */
void br_cli_asking_refused(struct br_cli_asking *a, const char *text);
/* The past is over. */
void br_cli_asking_release(struct br_cli_asking *a);
/* The run is being canceled: what is being asked is taken back, and everything denied. */
void br_cli_asking_cancel(struct br_cli_asking *a);
/* The run is over. */
void br_cli_asking_end(struct br_cli_asking *a);

/* With --json the view is not shown, but what led to a question is kept for it. */
bool br_cli_leads_to_ask(const char *type);

#endif
