/* core/cli, private to acp*.c: a service of one's own for an editor. */
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

#endif
