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
};

extern const struct br_msg_rule br_serve_policy_rules[];
extern const unsigned br_serve_policy_nrules;
extern const struct br_msg_rule br_serve_adapter_rules[];
extern const unsigned br_serve_adapter_nrules;

/* Answer a request with SCRIPT_FAILED. */
int br_serve_fail(struct br_chan *c, uint64_t id, const struct br_err *why, const char *file,
                  unsigned line, struct br_err *err);
/* A fresh state in s->script, the old one is closed. */
int br_serve_fresh(struct serve *s, struct br_err *err);

#endif
