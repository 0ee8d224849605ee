/*
 * For tests of the whole program: starts bridle-audit as bridled does, over real socketpairs, and
 * plays the other ends. Every function fails the test when something does not go as asked.
 */
#ifndef BR_AUDIT_TEST_HARNESS_H
#define BR_AUDIT_TEST_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/resource.h>

#include "audit/store.h"
#include "wire/types.h"
#include "wire/wire.h"

enum { H_RECORD = 0, H_READ = 1, H_RECOVER = 2 };
enum { H_SESSION = 1, H_CLIENT = 2, H_EGRESS = 4 };

/* The last message that was received on a channel. */
struct h_message {
    enum br_msg_type type;
    uint64_t id;
    uint32_t code;    /* APPEND_FAILED, AUDIT_CLOSED, EVENTS_END */
    uint64_t row;     /* APPENDED, EVENT */
    char text[2048];  /* AUDIT_READY's code name, APPENDED's event id, EVENTS_END's text, run id */
    char status[256]; /* AUDIT_READY, AUDIT_CLOSED, RUN_ROW */
    struct br_buf body; /* EVENT */
};

struct harness {
    char dir[64];
    pid_t pid;
    struct br_chan sup, session, client, egress;
    struct h_message m;
    struct br_buf many; /* EVENTS, from which one EVENT after the other is taken */
    size_t many_at;
    uint64_t many_row;
    uint64_t next_id;
    const char *goal, *workspace, *model; /* of AUDIT_START; NULL: something harmless */
    struct br_show show;                  /* of mode read, beside the run id */
    const char *token;                    /* likewise; NULL: none */
    uid_t uid;                            /* who runs it; 0: the caller */
    rlim_t fsize;                         /* RLIMIT_FSIZE of the program; 0: none */
};

/* A store directory of the right owner and mode in /tmp. */
void h_init(struct harness *h);
/* Ends the program if it still runs, and removes the directory. */
void h_free(struct harness *h);
/* Start and wait for AUDIT_READY; its code name is in h->m.text. */
void h_start(struct harness *h, int mode, unsigned flags, const char *run_id, const char *owner);
/* The same, and it must be OK. */
void h_record(struct harness *h, unsigned flags, const char *run_id);
/* Wait for the exit status (128 + signal if killed). */
int h_wait(struct harness *h);
void h_close(struct br_chan *c);
/* Close all our ends. */
void h_hangup(struct harness *h);

/* Receive one message (5 s at most) into h->m. Returns 0 or the negative code. */
int h_receive(struct harness *h, struct br_chan *c);
void h_expect(struct harness *h, struct br_chan *c, enum br_msg_type type);

void h_send_append(struct harness *h, const char *type, const char *actor, const char *data);
/* n notices in one message; the one at `bad` has a type that there is not. */
void h_send_appends(struct harness *h, int n, int bad);
/* Send and receive the answer. */
void h_append(struct harness *h, const char *type, const char *actor, const char *data);
/* The answer must be APPENDED / APPEND_FAILED with this code. */
void h_good(struct harness *h, const char *type, const char *data);
void h_bad(struct harness *h, const char *type, const char *data, enum br_code code);
void h_text(struct harness *h, const char *stream, const char *bytes, bool final);
void h_secret(struct harness *h, const char *name, const char *value);
/* Receive one EVENT; its bytes as a string (valid until the next). */
const char *h_event(struct harness *h);
void h_send_close(struct harness *h, enum br_code code, const char *status, const char *note,
                  unsigned sandbox);

void h_has(const char *text, const char *part);
/* The next event of the client has this type; its bytes. */
const char *h_next(struct harness *h, const char *type);
/* EVENTS_END, AUDIT_CLOSED and the exit of the program are these. */
void h_end(struct harness *h, enum br_code code, const char *status, int exit_status);
/* Read one run through mode read: how many events, contiguous; their types into `types`. */
unsigned h_read_back(struct harness *h, const char *run, char *types, size_t cap);
/* Is it in any file of the store? */
bool h_in_files(const struct harness *h, const char *needle);
void h_no_more(struct harness *h, struct br_chan *c);

#define H_NOTICE "{\"code\":\"X\",\"message\":\"m\"}"
#define H_CALL "{\"callId\":\"c1\",\"tool\":\"fs_write\",\"input\":{\"path\":\"a\"}}"
#define H_ASK                                                                                      \
    "{\"permissionId\":\"p1\",\"sessionId\":\"ses_1\",\"callId\":\"c1\",\"action\":\"fs.write\","  \
    "\"subject\":\"a\",\"scope\":\"once\"}"
#define H_SANDBOX                                                                                  \
    "{\"runId\":\"run_1\",\"containerName\":\"box\",\"image\":\"i\",\"network\":\"none\","         \
    "\"mounts\":1}"

/* session.created and agent.started */
void h_begin(struct harness *h);
/* "pid:start-time:boot-id" of a process. */
void h_owner(char dst[BR_STORE_OWNER_MAX], pid_t pid);

#endif
