/* How a connection to a service begins: shared by remote.c and dial.c. */
#ifndef BR_CLI_REMOTE_PRIV_H
#define BR_CLI_REMOTE_PRIV_H

#include "cli/remote.h"
#include "ws/ws.h"

/* Until `fd` is ready, or monotonic `until`: 0, -BR_E_TIMEOUT or -BR_E_IO. */
int br_remote_wait(int fd, short events, uint64_t until);
/* A connected socket that does not block; the caller's. */
int br_remote_dial(const struct br_cli_url *u, const struct br_cli_remote_options *o, int *out,
                   struct br_err *err);
/* Put bridle-tls between *fd and the server; *fd becomes its plain end. */
int br_remote_secure(const struct br_cli_url *u, const struct br_cli_remote_options *o, int *fd,
                     pid_t *pid, int *chan, struct br_err *err);
/* Wait for bridle-tls, which leaves when its ends are closed; 0 is left alone. */
void br_remote_reap(pid_t pid);

#endif
