/*
 * The rig of the client's tests: a bridled that plays what the test wrote, and the client before
 * it, at a pseudo-terminal or at pipes. Everything lies in one directory, which is the present one.
 */
#ifndef BR_CLI_TEST_RIG_H
#define BR_CLI_TEST_RIG_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
/* cmocka needs the above first */
#include <cmocka.h>

#include "cli/cli.h"

#define EV(type, data)                                                                             \
    "EVENT {\"v\":1,\"type\":\"" type "\",\"eventId\":\"e\",\"at\":\"2026-01-01T00:00:00.000+"     \
    "00:00\",\"data\":" data "}\n"
#define RUN                                                                                        \
    EV("bridle.run", "{\"runId\":\"run_1\",\"mode\":\"run\",\"goal\":\"g\",\"model\":\"m\","       \
                     "\"scripted\":true,\"workspace\":\"/w\",\"policy\":\"default\",\"rules\":3}")
#define WANTED(id, scope)                                                                          \
    EV("permission.requested", "{\"permissionId\":\"" id "\",\"sessionId\":\"s\",\"action\":"      \
                               "\"process.exec\",\"subject\":\"make test\",\"scope\":\"once\"}")   \
    EV("bridle.ask",                                                                               \
       "{\"permissionId\":\"" id "\",\"callId\":\"c\",\"action\":\"process.exec\","                \
       "\"subject\":\"make test\",\"scope\":\"" scope "\",\"ruleId\":\"r\",\"source\":"            \
       "\"operator\",\"opaque\":false,\"commands\":[],\"touches\":{},\"advice\":\"\"}")
#define ASKS(list) EV("bridle.asks", "{\"asks\":[" list "]}")
#define REQUEST(id) WANTED(id, "once") ASKS("{\"permissionId\":\"" id "\"}")
#define RESOLVED(id)                                                                               \
    "RESOLVED {\"v\":1,\"type\":\"permission.resolved\",\"eventId\":\"e\",\"at\":"                 \
    "\"2026-01-01T00:00:00.000+00:00\",\"actor\":\"@ACTOR@\",\"data\":{\"permissionId\":\"" id     \
    "\",\"decision\":\"@DECISION@\"}}\n"
#define STOPPED(status)                                                                            \
    EV("agent.stopped", "{\"agentId\":\"a\",\"status\":\"" status "\",\"steps\":1,\"toolCalls\":"  \
                        "1}")
#define ASKED RUN REQUEST("p1") "ASK p1\n" RESOLVED("p1") STOPPED("completed") "END 0 0 \n"

#define PROMPT "Only y or yes does (120 s): "

struct child {
    pid_t pid;
    int fd, err; /* its terminal or output; its standard error, -1 at a terminal */
};
extern struct child child;
extern char dir[64], out_text[1 << 16]; /* what it wrote so far, as a text */
extern size_t out_len;
extern char *const run_argv[]; /* bridle run -t play goal */

int rig_setup(void **state);
int rig_teardown(void **state);
/* What bridled will do; forgets what the last one was told. */
void write_play(const char *play);
/* What bridled was told. Valid until the next call. */
const char *log_text(void);
void start_pty(char *const argv[]);
void start_pipe(char *const argv[]);
/* Reads until `text` was seen (or end of file if NULL); fails after 20 s. */
void expect(const char *text);
void type(const char *s);
/* Reads to the end. The exit code, 128 + n for a signal. */
int finish(void);

#endif
