/* What the handlers of bridle-script share. Private to main.c and serve_*.c. */
#ifndef BR_SCRIPT_SERVE_H
#define BR_SCRIPT_SERVE_H

#include "script/script.h"
#include "wire/wire.h"

struct serve {
    struct br_loop *loop;
    struct br_chan sup;
    struct br_chan peer;
    uint8_t purpose; /* enum br_script_purpose */
    struct br_script *script;
    /* purpose policy */
    bool predicates; /* the compiled bundle has one */
    /* purpose adapter: why the response that is being read has failed already */
    struct br_err adapt_err;
    /* purpose inspect */
    bool busy;                  /* something is being evaluated */
    bool broken;                /* the client has gone, or broke the protocol */
    struct br_err data_err;     /* what came of the last snapshot that was asked for, */
    struct br_buf data;         /* or what it says */
    struct br_buf said, result; /* not sent yet */
    size_t said_total;
};

extern const struct br_msg_rule br_serve_policy_rules[];
extern const unsigned br_serve_policy_nrules;
extern const struct br_msg_rule br_serve_adapter_rules[];
extern const unsigned br_serve_adapter_nrules;

/* The handlers of purpose inspect, whose messages come on the supervision channel. */
br_msg_handler br_serve_inspect_eval, br_serve_inspect_data, br_serve_inspect_names;
/* Permit its messages, and let SIGINT stop what is being evaluated. */
int br_serve_inspect_start(struct serve *s, struct br_err *err);

/* SCRIPT_ADAPTER: what an adapter.lua says; and the terms of bridle.lua (serve_harness.c). */
br_msg_handler br_serve_harness, br_serve_declared;
void br_serve_put_terms(struct br_buf *b, const json_t *list);

/* VALUE: a schema, and what is to fit it (serve_value.c). */
br_msg_handler br_serve_value;

/* Answer a request with SCRIPT_FAILED. */
int br_serve_fail(struct br_chan *c, uint64_t id, const struct br_err *why, const char *file,
                  unsigned line, struct br_err *err);
/* A fresh state in s->script, the old one is closed. */
int br_serve_fresh(struct serve *s, struct br_err *err);
/* The rest of a message, which is a path (BR_PATH_MAX bytes) and a text of at most `max` bytes, and
 * a fresh state for it. `text` is initialised by this call; free it in any case. */
int br_serve_document(struct serve *s, struct br_msg *m, size_t max, char *path,
                      struct br_buf *text, struct br_err *err);

#endif
