/*
 * A rig for tests of the session: the session's own code runs in the test, its peers (bridled, the
 * client, audit, the policy script) are one child process that answers as it is told. What the
 * session sent to audit is kept.
 */
#ifndef BR_SESSION_TEST_RIG_H
#define BR_SESSION_TEST_RIG_H

#include "session/session_priv.h"

/* What becomes of a predicate's question about a subject with "bad" in it; others have no opinion.
 */
enum session_rig_predicate {
    PREDICATE_ANSWERS, /* no opinion either */
    PREDICATE_FAILS,   /* with a file and a line */
    PREDICATE_GARBAGE, /* an effect that does not exist */
    PREDICATE_SILENT,
    PREDICATE_DIES, /* the channel is closed */
};

struct session_rig_options {
    enum br_run_mode mode;
    const char *table;    /* decision table, as JSON; NULL: one that allows everything */
    unsigned warnings;    /* of the compiler */
    bool compiled_again;  /* the script sends COMPILED once more while a warning is recorded */
    bool answer_at_start; /* the client answers before anything was asked */
    bool ask_at_start;    /* the client asks about the policy before there is one */
    enum session_rig_predicate predicate;
    bool always; /* it is so for every question */
    /*
     * With a terminal: how the client answers each question, one letter for each, the last one for
     * all that follow. y once, r for the run (once where no more is offered), n no; w for the run
     * whatever is offered, then no; u an unknown id, another session's, then yes; d yes, then for
     * the run and no; s not at all, and the run is canceled; x not
     * at all. NULL: there is no terminal.
     */
    const char *answers;
    const char *who; /* answers; NULL: the operator at bridled's own terminal */
    struct br_ceilings ceilings;
    bool sandbox;      /* there is a pid 1, which says {} to everything */
    bool answer_flood; /* the client answers what nobody asked, and does not read what it is told */
};

struct session_rig {
    struct session s;
    pid_t peers;
    int init; /* of pid 1, until it is loaded */
    struct session_rig_seen {
        char types[16384];        /* of the events, in order, one a line */
        char launched[4096];      /* allowed paths of SUP_LAUNCH, one a line */
        char errors[4096];        /* the data of bridle.policy.error events, one a line */
        unsigned events, appends; /* and the messages that brought them */
        unsigned asked;           /* predicates */
        unsigned asks;            /* policy.decision with ask */
        unsigned requested, prompts, covered, granted; /* by run-scoped allows */
        unsigned resolved_allow, resolved_deny;
        unsigned accepted, refused; /* answers */
        unsigned effects;           /* of the sandbox */
        char order[65536];          /* "TYPE CALL-OR-PERMISSION" of each event, one a line */
        char ask[16384];            /* the last bridle.ask */
        char resolved[16384];       /* the last permission.resolved */
        char answered[1024];        /* the last bridle.answered */
        char result[16384];         /* the last tool.result */
        unsigned tested, probes;    /* SUP_TESTED: how often; and of the last one these */
        unsigned rules, warnings, line;
        char tested_table[65], tested_file[BR_NAME_MAX];
    } * seen;
};

/* Start the peers and serve the supervision channel until the other channels are open. */
void session_rig_open(struct session_rig *r, const struct session_rig_options *o);
/* Load the table and make the ledger, as after a compilation. */
void session_rig_load(struct session_rig *r, const struct session_rig_options *o);
/* Decide, and ask if need be: 0 if it may run. */
int session_rig_authorize(struct session_rig *r, const struct effect *e, enum br_effect *decided,
                          struct br_err *err);
void session_rig_close(struct session_rig *r);

#endif
