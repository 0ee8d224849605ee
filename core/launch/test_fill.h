/*
 * Tests only: ways to use up a directory, for the tests' pid 1.
 */
#ifndef BR_LAUNCH_TEST_FILL_H
#define BR_LAUNCH_TEST_FILL_H

#include <stddef.h>

/* "KIND DIR N": at most N steps; the answer is "STEPS ERRNO", errno 0 if all N were possible. */
void run_fill(const char *args, char *answer, size_t cap);

#endif
