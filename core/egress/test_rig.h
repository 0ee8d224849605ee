/*
 * A rig for tests of bridle-egress alone: this process plays bridled, the broker and audit. The
 * provider is a forked process with a thread for each connection, whose behaviour the path of the
 * request says; a small CONNECT proxy is another one. Whatever egress says is kept, so that a test
 * can look for the key in it.
 */
#ifndef BR_EGRESS_TEST_RIG_H
#define BR_EGRESS_TEST_RIG_H

#include <stdatomic.h>
#include <sys/types.h>

#include "egress/egress_priv.h"
#include "wire/types.h"
#include "wire/wire.h"

#define EG_KEY_ENV "BRIDLE_TEST_KEY"
#define EG_KEY "sk-canary-91be7720fa33d0c4"
#define EG_ANSWERS 512u

/* ---- the provider ---- */

struct eg_shared {
    /* connections that carried a byte, those that carried none, whole requests */
    _Atomic unsigned connections, empty, requests;
    _Atomic unsigned long sent;
    _Atomic unsigned last_len;
    char last[32768]; /* the last request, head and body */
};
struct eg_server {
    pid_t pid;
    unsigned port;
    struct eg_shared *shared;
};
/*
 * Paths below /v1: /ok, /status/N, /cut/T/N (the first N bytes of recorded answer T), /chunks/T
 * (answer T byte by byte), /stall/PLACE (nothing, head, body, half), /say (the request's head),
 * /flood/N (N bytes), /early (answers before it has read the body), /odd/N (an answer that is
 * none).
 */
void eg_server_start(struct eg_server *s);
/* A server that runs `each` in a thread for each connection. */
void eg_server_start_with(struct eg_server *s, void (*each)(struct eg_shared *, int fd));
void eg_server_stop(struct eg_server *s);
void eg_server_reset(struct eg_server *s);

#define EG_RECORDED 4u
#define EG_ODD 16u
/* Recorded answer T: all of its bytes, and of those the body as it is decoded. */
const char *eg_recorded(unsigned t, size_t *n, const char **body);
const char *eg_odd(unsigned t);

/* Only CONNECT. `refuse`: the status that it answers with; 0: it does as it is told. */
struct eg_proxy {
    struct eg_server server;
};
void eg_proxy_start(struct eg_proxy *p, unsigned refuse);

/* ---- egress ---- */

struct eg_options {
    const char *base_url;                  /* NULL: that of the server, over http */
    const char *unix_socket, *proxy, *key; /* key NULL: EG_KEY; "": none */
    uint8_t key_from;                      /* 0: BR_KEY_ENV, if there is a key */
    uint8_t auth;                          /* 0: BR_AUTH_BEARER */
    int key_fd, ca_fd;                     /* 0: none */
    uint32_t timeouts[4];                  /* connect, first byte, idle, total; 0: 10 s */
    const char *env;                       /* another variable of its environment, NAME=VALUE */
    bool expect_refused;
};

struct eg_answer {
    uint64_t id;
    unsigned heads, ends;
    uint32_t status;
    struct br_headers headers;
    struct br_buf body;
    uint32_t code;
    char text[BR_ERR_TEXT_MAX];
    uint64_t sent, got;
};

struct eg {
    struct eg_server *server;
    pid_t pid;
    struct br_chan sup, broker, audit;
    char ready_code[64], ready_text[BR_ERR_TEXT_MAX];
    bool broker_gone;
    unsigned secrets;
    char secret_name[256];
    bool secret_right, no_credit;
    unsigned open; /* asked and not ended */
    int log_fd;
    struct br_buf seen;
    struct eg_answer *answers; /* EG_ANSWERS of them, by id */
};

/* Open the program now, so that it can be started after this process became another user. */
void eg_open_program(void);
/* 0, or -1 if it refused (ready_code, ready_text). */
int eg_start(struct eg *e, const struct eg_options *o);
/* Ends it, which must be with this status (-1: any), and looks for the key in all that it said. */
void eg_stop(struct eg *e, int status);

struct eg_request {
    const char *method, *path, *content_type; /* NULL: POST, "/ok", application/json */
    const struct br_headers *headers;
    uint32_t window; /* 0: 256 KiB, and what arrives is credited */
    const char *body;
    size_t n;
};
/* Asks with the next id, which it returns. */
uint64_t eg_ask(struct eg *e, const struct eg_request *q);
uint64_t eg_ask_path(struct eg *e, const char *path);
struct eg_answer *eg_of(struct eg *e, uint64_t id);
void eg_credit(struct eg *e, uint64_t id, uint32_t bytes);
/* Serve until all that was asked has ended; fails after `ms`. */
void eg_until_ended(struct eg *e, unsigned ms);
void eg_serve(struct eg *e, unsigned ms);
const char *eg_body(struct eg_answer *a);
/* How often it is in the writable memory of a process: in pages that no core dump has, and in
 * others. False if this process may not look. */
bool eg_count(pid_t pid, const char *text, unsigned *hidden, unsigned *elsewhere);
/* A temporary file with this in it, open for reading; unlinked. */
int eg_file(const char *text, size_t n);

#endif
