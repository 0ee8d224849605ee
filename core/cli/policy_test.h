/*
 * bridle policy test: what its files share. policy_test.c runs and counts, policy_test_put.c says
 * what came out.
 */
#ifndef BR_CLI_POLICY_TEST_H
#define BR_CLI_POLICY_TEST_H

#include "cli/policy_priv.h"

#define VARIANTS_MAX 16u

struct rule { /* as its author wrote it */
    const char *id;
    size_t len;
    const json_t *row; /* its first one */
    bool fallback;
    unsigned matched, decided;
    size_t stamp;
};

/* What a spec may load: the bundle with a profile and a manifest. */
struct variant {
    struct policy_link l;
    const char *profile, *manifest;
    unsigned *of_row; /* the rule of each row of the table; UINT_MAX: of another source */
};

struct asked {
    const json_t *record;
    unsigned variant;
    unsigned *rules, nrules; /* that a change of could be seen here */
    bool all;                /* of any */
};

struct test {
    const struct br_cli_args *a;
    struct policy_specs specs;
    struct variant v[VARIANTS_MAX];
    unsigned nv;
    struct rule *rules;
    unsigned nrules, inherited;
    json_t *records;
    struct asked *asked;
    size_t nasked;
    unsigned checked, unnamed;
    json_t *checks; /* {id: {ask, deny}} */
    json_t *survivors;
    unsigned mutants, killed, rerun, impossible;
    struct policy_sites sites; /* of the bundle's own text */
    bool *reached;             /* by site: a branch that was */
    int status;                /* of busted */
};

unsigned policy_test_percent(unsigned part, unsigned all);
/* Rules that decided, or that matched. */
unsigned policy_test_rules(const struct test *t, bool decided);
unsigned policy_test_branches(const struct test *t, bool reached);
void policy_test_put(struct policy_out *o, const struct test *t);
void policy_test_json(struct policy_out *o, const struct test *t, int code);

#endif
