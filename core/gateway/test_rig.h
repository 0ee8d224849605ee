/*
 * A rig for tests of bridle-gateway: the real program, with this process as bridled (and as the
 * session and the audit of each run) on fd 3, and clients on raw sockets whose frames are made and
 * read here, not by core/ws. Everything is served while a client waits, so that a test reads from
 * top to bottom:
 *
 *     struct gate_rig r;
 *     gate_start(&r, NULL);
 *     struct gate_client *c = gate_open(&r, GATE_TCP, "harness.acp.1");
 *     gate_send_text(c, "{\"jsonrpc\":...}");
 *     char *answer = gate_read_text(c);           // valid until the next read
 *     struct gate_run *run = gate_wait_run(&r);   // GATE_RUN has come, GATE_STARTED was sent
 *     gate_event(run, "{\"v\":1,...}");           // the next stored event
 *     gate_end(run, 0, "");                       // its end
 *     gate_stop(&r);                              // ends by itself, with status 0
 *
 * A wait that takes longer than GATE_WAIT_MS fails the test.
 */
#ifndef BR_GATEWAY_TEST_RIG_H
#define BR_GATEWAY_TEST_RIG_H

#include <sys/types.h>

#include "wire/service.h"
#include "wire/types.h"
#include "wire/wire.h"

#define GATE_WAIT_MS 10000
#define GATE_RUNS_MAX 64u
#define GATE_CLIENTS_MAX 64u
#define GATE_TOKEN_OPERATE "1111111111111111111111111111111111111111111111111111111111111111"
#define GATE_TOKEN_ANSWER "2222222222222222222222222222222222222222222222222222222222222222"
#define GATE_TOKEN_OBSERVE "3333333333333333333333333333333333333333333333333333333333333333"

/* Which of the rig's listeners. */
enum gate_way {
    GATE_TCP,  /* 127.0.0.1 */
    GATE_UNIX, /* with credentials of this process */
    GATE_TCP6, /* ::1 */
    GATE_ANY,  /* the wildcard address, plaintext; connected to by 127.0.0.1 */
    GATE_TLS,  /* what bridle-tls hands over: from "192.0.2.7" */
    GATE_WAYS
};

struct gate_options {
    /* Change the settings before the start: tokens "operator", "answerer" and "observer" are there,
     * the root is /srv/work. NULL: as they are. */
    void (*settings)(struct br_service *s);
    bool no_tokens;
    const char *cert;          /* what clients of GATE_TLS show; NULL: nothing */
    const char *const *models; /* NULL-terminated; NULL: "model-a", "model-b" */
    bool no_wait;              /* do not wait for ROLE_READY */
};

/* A run that the gateway asked for. */
struct gate_run {
    struct gate_rig *rig;
    char id[BR_ID_MAX];
    char *content; /* of the prompt */
    uint64_t max_tokens, max_calls;
    bool resolver;
    struct br_chan session, audit; /* our ends */
    uint64_t row;                  /* of the last event */
    struct {
        char permission[BR_ID_MAX], note[256], who[BR_WHO_MAX];
        uint8_t scope;
    } answers[32];
    unsigned nanswers, ncancels; /* ANSWER, CANCEL on its session channel */
    uint32_t answer_code;        /* what ANSWERED says; 0: accepted */
    bool hold_answers;           /* do not say ANSWERED; gate_answered() does */
    uint64_t held[32];           /* message ids */
    unsigned nheld;
    bool ended, gone; /* gone: the gateway closed the session channel */
};

/* A question of the gateway, for a test that answers it itself. */
struct gate_check {
    char workspace[BR_PATH_MAX], task_id[BR_NAME_MAX], model[BR_NAME_MAX + 1], who[BR_WHO_MAX];
    uint64_t id;
};
struct gate_read {
    char run_id[BR_ID_MAX], before[BR_ID_MAX], words[BR_NAME_MAX];
    uint64_t row, id;
    uint32_t limit;
};

/* A row of the store's list, as GATE_READ is answered. */
struct gate_row {
    const char *run_id, *status, *model, *workspace, *goal;
    uint64_t started_us, ended_us, events;
};

struct gate_rig {
    pid_t pid;
    struct br_loop *loop;
    struct br_chan bridled, tls; /* our ends */
    struct br_service settings;
    struct br_token tokens[BR_TOKENS_MAX];
    unsigned ntokens;
    const struct gate_options *options;
    char dir[64], socket[96];
    uint16_t ports[GATE_WAYS];
    int log_fd; /* its standard error */
    char *log_;
    bool ready, exited;
    int status; /* of waitpid(2) */
    /* what it asked */
    struct gate_check checks[64];
    unsigned nchecks;
    uint32_t check_code; /* what the next checks are answered with; 0: a session */
    char check_text[256];
    uint64_t check_tokens, check_calls; /* of the manifest */
    const char *check_workspace;        /* by real path; NULL: as asked */
    bool hold_checks;                   /* gate_checked() answers */
    struct gate_run *runs[GATE_RUNS_MAX];
    unsigned nruns, nruns_waited;
    bool refuse_runs; /* GATE_ENDED instead of GATE_STARTED */
    char canceled[64][BR_ID_MAX];
    uint8_t canceled_how[64];
    uint32_t canceled_code; /* of the last */
    char canceled_why[BR_ERR_TEXT_MAX];
    unsigned ncanceled;
    char forgotten[64][BR_ID_MAX];
    unsigned nforgotten;
    struct gate_read reads[64];
    unsigned nreads;
    uint32_t read_code;
    const struct gate_row *rows; /* the list */
    unsigned nrows;
    const char *const *events; /* the events of every run of the store; NULL-terminated */
    unsigned last_id;
    struct gate_client *clients[GATE_CLIENTS_MAX];
};

void gate_start(struct gate_rig *r, const struct gate_options *o);
/* Close its channel and all clients; it has to end by itself, with status 0. */
void gate_stop(struct gate_rig *r);
/* Wait until it has ended; its status as of waitpid(2). */
int gate_wait_exit(struct gate_rig *r);
/* GATE_RELOAD with r->settings and r->tokens. */
void gate_reload(struct gate_rig *r);
void gate_drain(struct gate_rig *r, uint32_t seconds);
/* What it has logged so far. */
const char *gate_log(struct gate_rig *r);
/* Serve until true (fails after GATE_WAIT_MS), or for a while. */
void gate_until(struct gate_rig *r, bool (*is)(void *ctx), void *ctx, const char *what);
void gate_serve(struct gate_rig *r, unsigned ms);
/* Serve until the counter is at least `n`. */
void gate_until_count(struct gate_rig *r, const unsigned *counter, unsigned n, const char *what);

/* ---- what bridled says ---- */

/* The next run that no gate_wait_run() has returned yet. */
struct gate_run *gate_wait_run(struct gate_rig *r);
/* Answer a check that was held: number i. */
void gate_checked(struct gate_rig *r, unsigned i, uint32_t code, const char *text);
/* The next stored event of a run; `n` bytes, which are a JSON object. */
void gate_event_bytes(struct gate_run *run, const char *json, size_t n);
void gate_event(struct gate_run *run, const char *json);
/* The same with the envelope around it: "agent.started", {"agentId":...}. */
void gate_event_of(struct gate_run *run, const char *type, const char *data);
/* The audit's end and GATE_ENDED. */
void gate_end(struct gate_run *run, uint32_t code, const char *text);
/* Only the audit's end; only GATE_ENDED. */
void gate_end_audit(struct gate_run *run, uint32_t code, const char *text);
void gate_end_run(struct gate_run *run, uint32_t code, const char *text);
/* Say ANSWERED to a held answer. */
void gate_answered(struct gate_run *run, unsigned i, uint32_t code, const char *text);

/* ---- clients ---- */

struct gate_client {
    struct gate_rig *rig;
    enum gate_way way;
    int fd;
    uint8_t *in; /* what was not taken yet */
    size_t nin;
    uint8_t *base_; /* where it is allocated */
    size_t cap_;
    char *text; /* the last message, terminated */
    size_t ntext;
    bool mute;        /* answer no pings and no close */
    bool eof, closed; /* the stream has ended; a close frame came */
    unsigned close_code, pings, pongs, messages;
    bool measured; /* find `deepest`: messages that were there after one read */
    unsigned deepest;
    unsigned status;   /* of the last HTTP answer */
    char *head, *body; /* of it, terminated */
    size_t nbody;
};

/* Connect; nothing is sent. */
struct gate_client *gate_connect(struct gate_rig *r, enum gate_way way);
/* Connect and upgrade at /acp, which has to succeed. protocol: "" for none. */
struct gate_client *gate_open(struct gate_rig *r, enum gate_way way, const char *protocol);
/* The same with a bearer token. */
struct gate_client *gate_open_as(struct gate_rig *r, enum gate_way way, const char *protocol,
                                 const char *token);
void gate_close(struct gate_client *c); /* the socket, and forget it */

/* A request and its answer on a connection of its own; `fields` as "Name: value\r\n...". Host is
 * there unless `fields` has one. The status; c->head and c->body have the rest. */
struct gate_client *gate_http(struct gate_rig *r, enum gate_way way, const char *method,
                              const char *path, const char *fields);
/* The value of a field of the answer; "" if there is none. Valid until the next call. */
const char *gate_field(const struct gate_client *c, const char *name);
/* Read the head of an answer; what comes behind it stays. */
void gate_read_head(struct gate_client *c);
/* Send an upgrade with these fields, and read its answer: the status. */
unsigned gate_upgrade(struct gate_client *c, const char *path, const char *fields);

void gate_send_bytes(struct gate_client *c, const void *p, size_t n);
void gate_send_text(struct gate_client *c, const char *text);
/* Any frame: the first byte with its flags (0x81: a whole text), masked. */
void gate_send_frame(struct gate_client *c, uint8_t first, const void *p, size_t n);
/* Append it to a buffer instead. */
void gate_put_frame(struct br_buf *b, uint8_t first, const void *p, size_t n);

/* The next message, terminated; pings are answered meanwhile. NULL: the connection has ended. */
char *gate_read_text(struct gate_client *c);
/* A message if there is one within the time. */
char *gate_poll_text(struct gate_client *c, unsigned ms);
/* Read until the close frame, which has to have this code; messages before it are thrown away. */
void gate_expect_close(struct gate_client *c, unsigned code);
/* Read until the stream's end, with or without a close frame. */
void gate_expect_eof(struct gate_client *c);

#endif
