/*
 * core/launch: what main() calls, and what the tests call with a weakened configuration.
 */
#ifndef BR_LAUNCH_H
#define BR_LAUNCH_H

#include "sandbox/sandbox.h"

/*
 * Serve the supervision channel on `fd` until its end: 0 after a clean end, 1 after a violation.
 * `base`: all zero, but in tests; its init_fd is ignored (bridle-init lies beside this program).
 */
int br_launch_serve(int fd, const struct br_host_config *base);

#endif
