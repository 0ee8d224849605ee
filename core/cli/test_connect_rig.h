/*
 * The rig of the tests of 'bridle connect': the client at pipes or at a terminal, before a service
 * that plays a script (test_peer.h), in the directory of test_rig.h.
 */
#ifndef BR_CLI_TEST_CONNECT_RIG_H
#define BR_CLI_TEST_CONNECT_RIG_H

#include "cli/test_peer.h"
#include "cli/test_rig.h"
/* the other rig has macros of these names for its own plays */
#undef RUN
#undef ASKS
#undef ASKED
#undef STOPPED
#include "cli/test_stream.h"

extern pid_t server;

int connect_setup(void **state);
/* A service that plays this, once. */
void serve(const char *text);
/* The client with pipes, its errors among its output. */
void start_plain(char *const argv[]);
void start_terminal(char *const argv[], unsigned short columns);
/* The client has left; its code. The server as well, which must have seen it leave. */
int ended(void);

#define ARGV(...)                                                                                  \
    (char *const[])                                                                                \
    {                                                                                              \
        (char *)"bridle", (char *)"connect", (char *)"unix:s", __VA_ARGS__, NULL                   \
    }
#define A(s) (char *)(s)

#endif
