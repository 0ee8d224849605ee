/*
 * What the checks of a policy are asked: one request as JSON. Written by the session, and by what
 * measures it; read by lua/bridle/policy.lua (docs/man/bridle-policy.5.scd).
 */
#ifndef BR_SCRIPT_QUESTION_H
#define BR_SCRIPT_QUESTION_H

#include "policy/policy.h"

struct br_question {
    const char *action, *subject, *call_id;
    enum br_effect effect;    /* what was decided so far */
    const char *manifest;     /* what the manifest said; NULL if nothing */
    const char *const *words; /* of a command that is an argv; NULL for others */
    size_t nwords;
    const struct br_context *context;
};

/* Append it. 0, -BR_E_INVALID_JSON if a text is not UTF-8, -BR_E_LIMIT_EXCEEDED; what is in the
 * buffer then is no question. */
int br_question_put(struct br_buf *b, const struct br_question *q);

/* How long the session looks for an answer, and bridle-script for another question, before it goes
 * to sleep: see br_chan_soon(). A line that was taken apart is shown to the checks next. */
#define BR_ANSWER_SOON_US 100u
#define BR_QUESTION_SOON_US 50u

#endif
