/* core/cli, private to acp*.c: a service of one's own for an editor, and what it owes it. */
#ifndef BR_CLI_ACP_PRIV_H
#define BR_CLI_ACP_PRIV_H

#include "cli/remote.h"

struct acp_service {
    pid_t pid;                 /* 0: none */
    char scratch[BR_PATH_MAX]; /* 0700, with the socket in it; "": none */
    char socket[BR_PATH_MAX + 16];
};

struct acp_service_options {
    const char *root;                       /* workspaces lie in it; NULL: the present directory */
    const char *config, *policy, *scenario; /* NULL: as `bridle serve` does by itself */
};

/*
 * Start a service that nobody but this user can reach, and which ends with this process. 0 when it
 * listens; else nothing is left of it.
 */
int acp_service_start(struct acp_service *s, const struct acp_service_options *o,
                      struct br_err *err);
/* Its runs are ended, its socket is removed. Nothing if there is none. */
void acp_service_stop(struct acp_service *s);

/* ---- acp_owed.c ---- */

struct acp_owed {
    struct acp_request *first; /* those that were sent and not answered, */
    unsigned n;                /* so many of them, */
    unsigned nameless;         /* and lines that will be refused without an id */
};
/* A message went to the service; one came from it. */
void acp_owed_sent(struct acp_owed *o, const char *text, size_t n);
void acp_owed_heard(struct acp_owed *o, const char *text, size_t n);
/* Answers that are still to come. */
unsigned acp_owed_count(const struct acp_owed *o);
/* Appends what cancels the prompts among them, a message a line. True: there are some. */
bool acp_owed_cancels(const struct acp_owed *o, struct br_buf *lines);
void acp_owed_free(struct acp_owed *o);

#endif
