/*
 * core/diag: whose is the other end of a TCP connection that stays on this machine? Asked by
 * bridle-gateway about its clients, and by 'bridle' about who took the port of a service.
 */
#ifndef BR_DIAG_H
#define BR_DIAG_H

#include <sys/types.h>

#include "base/base.h"

/* Somebody who has no uid in this user namespace, and therefore nobody. */
#define BR_DIAG_UID_OVERFLOW 65534u
/* A socket to ask the kernel with; opened before a role is entered. -1 and errno. */
int br_diag_open(void);
/*
 * 0 and *uid, if both ends of the connected TCP socket are loopback addresses of the network
 * namespace of `diag`, and its other end is open and belongs to one user. 1: nobody has accepted it
 * yet, so that it is nobody's and may become somebody's. Else -1: it is nobody's.
 */
int br_diag_peer_uid(int diag, int fd, uid_t *uid);

#endif
