/*
 * core/sandbox, private: descriptors in a message between the launcher and its own children.
 */
#ifndef BR_SANDBOX_FDS_H
#define BR_SANDBOX_FDS_H

#include "sandbox/box_priv.h"

/* One message with all of them (at most BR_BOX_FDS_MAX; 0: none), which stay the caller's. 0, or -1
 * and errno. */
int br_fds_send(int sock, const void *p, size_t n, const int *fds, unsigned nfds);
/*
 * One message of at most `n` bytes, as recvmsg(2) with these flags; EINTR is retried. *nfds
 * descriptors came with it, at most `max`, which are the caller's. More than that: -1 and EMSGSIZE,
 * and they are closed.
 */
ssize_t br_fds_receive(int sock, void *p, size_t n, int flags, int *fds, unsigned max,
                       unsigned *nfds);

#endif
