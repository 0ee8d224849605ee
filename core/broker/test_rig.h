/*
 * A rig for tests of the provider path: this process plays bridled, the session and audit; the
 * broker, egress and the scripted provider are the real programs; odd providers are a forked server
 * on loopback that counts what reaches it. Everything the rig sees is kept, so that a test can look
 * for the key in it.
 */
#ifndef BR_BROKER_TEST_RIG_H
#define BR_BROKER_TEST_RIG_H

#include <stdatomic.h>
#include <sys/types.h>

#include "broker/broker_priv.h"
#include "wire/wire.h"

#define RIG_KEY_ENV "BRIDLE_TEST_KEY"
#define RIG_KEY "sk-canary-4f1d2c8e77aa90b3"

enum odd_mode {
    ODD_JSON,          /* 200 and a small JSON body */
    ODD_STATUS,        /* server->status with a body */
    ODD_REDIRECT,      /* 307 to itself */
    ODD_HALF,          /* Content-Length 1000, 10 bytes, close */
    ODD_HALF_CHUNKED,  /* a chunk, no end, close */
    ODD_CLOSE,         /* reads the request and closes */
    ODD_RESET,         /* reads the request and resets the connection */
    ODD_SILENT,        /* reads the request and says nothing */
    ODD_STALL,         /* head and 10 bytes, then nothing */
    ODD_DRIP,          /* a byte every 100 ms, for ever */
    ODD_NOISE,         /* bytes that are not HTTP */
    ODD_FLOOD,         /* a body without end */
    ODD_HEADERS,       /* more than 64 KiB of headers */
    ODD_HEADER_TRICKS, /* odd values of the headers that are passed on */
    ODD_GZIP,          /* says gzip */
    ODD_CONTINUE,      /* 100 Continue, then 200 */
    ODD_ECHO_STREAM,   /* a chat completion that says the key, cut in the middle by two chunks */
    ODD_ECHO_WHOLE,    /* the same, not streamed */
    ODD_ECHO_REFUSED,  /* 401, and an error that says the key */
};

struct odd_server {
    pid_t pid;
    unsigned port;
    struct odd_shared {
        /* connections that carried at least a byte, and whole requests */
        _Atomic unsigned mode, status, connections, requests;
        _Atomic unsigned long sent;
        char last[32768]; /* the last request, head and body */
        _Atomic unsigned last_len;
    } * shared;
};
void odd_start(struct odd_server *s);
void odd_stop(struct odd_server *s);

/* What a lease of a test needs besides its ceilings. */
#define RIG_LEASE_REST                                                                             \
    .max_answer_tokens = 100000, .max_in_flight = 1, .routes = BR_ROUTE_CHAT,                      \
    .answers = BR_ANSWERS_STRICT, .any_tools = 1

struct rig_options {
    const char *base_url;    /* NULL: the odd server, over http */
    const char *unix_socket; /* NULL: none */
    const char *key_env;     /* NULL: RIG_KEY_ENV; "" none */
    const char *key;         /* NULL: RIG_KEY */
    const char *proxy;       /* NULL: none */
    uint8_t auth;            /* 0: BR_AUTH_BEARER */
    int ca_fd;               /* certificates to trust; 0: the system's */
    const char *scenario;    /* not NULL: start bridle-scripted and use it */
    const char *model;       /* NULL: "test-model" */
    struct br_lease lease;   /* all 0: a generous one */
    uint32_t timeouts[4];    /* connect, first byte, idle, total; 0: 5 s */
    bool no_secret_known;    /* audit stays silent */
    bool expect_refused;     /* a start that must fail */
};

struct rig {
    struct odd_server *server;
    pid_t egress, broker, scripted;
    struct br_chan sup_egress, sup_broker, sup_scripted, session, audit;
    char ready_code[64], ready_text[BR_ERR_TEXT_MAX]; /* of the first program that refused */
    struct br_buf seen;                               /* every byte that reached the session */
    int log_fd;                                       /* stderr of all programs */
    char dir[64], socket[128];
    /* the last answer */
    bool have_head, have_end, session_gone;
    uint32_t status;
    char content_type[256], request_id[256], retry_after[64];
    struct br_buf body;
    uint64_t head_id, end_id;
    uint32_t end_code;
    char end_text[BR_ERR_TEXT_MAX];
    uint64_t request_bytes, response_bytes;
    unsigned ends;
    /* of guests, as the session is told */
    int page;           /* of the account */
    char listener[128]; /* path of the guests' socket; "": none yet */
    unsigned nrequests, nresponses, nrefused;
    struct rig_response {
        uint64_t serial;
        uint32_t code, status, repairs, calls;
        char text[BR_ERR_TEXT_MAX], finish[32];
        uint64_t prompt, completion, bytes;
        uint8_t settled;
    } response; /* the last one */
    struct {
        uint64_t serial, reserved, bytes;
        uint32_t route, messages;
    } request;
    uint32_t refused_code;
    char refused_text[BR_ERR_TEXT_MAX];
    /* audit */
    unsigned secrets;
    bool secret_right, silent;
};

/* Open the programs now, so that they can be started after this process became another user. */
void rig_open_programs(void);
/* 0, or -1 if a program refused its start (ready_code, ready_text say why). */
int rig_start(struct rig *r, const struct rig_options *o);
/* Ends everything by closing the supervision channels; checks that all programs end by themselves
 * with these statuses: 0, or -1 to accept any. Checks that the key is in nothing that was seen. */
void rig_stop(struct rig *r, int broker_status, int egress_status);

void rig_send(struct rig *r, uint64_t id, const char *path, const char *type, uint32_t reserve,
              const char *body, size_t n);
/* A good request for the lease's model. */
void rig_ask(struct rig *r, uint64_t id);
/* Serve until `*flag` or `ms` have passed; true if the flag was set. */
bool rig_until(struct rig *r, const bool *flag, unsigned ms);
/* rig_ask() and wait for its end. */
void rig_ask_wait(struct rig *r, uint64_t id);
const char *rig_body(struct rig *r);
/* Give the broker a socket for guests; r->listener is its path. */
void rig_listen(struct rig *r);
/* What is on the account's page. */
struct br_account_sums rig_account(const struct rig *r);
/* Serve until so many GUEST_RESPONSE, or GUEST_REFUSED, have come. */
void rig_until_responses(struct rig *r, unsigned n);
void rig_until_refused(struct rig *r, unsigned n);
/* Wait for a child; its status as waitpid(2) gives it, or -1 after ms. */
int rig_wait_child(pid_t pid, unsigned ms);

#endif
