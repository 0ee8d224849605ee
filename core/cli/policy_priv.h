/*
 * `bridle policy`: what its files share. The client compiles and decides nothing by itself. It
 * holds a link to a session in mode policy, which has the compiled table, takes shell strings
 * apart, asks the predicates, and answers as it would decide a call of a run.
 */
#ifndef BR_CLI_POLICY_PRIV_H
#define BR_CLI_POLICY_PRIV_H

#include "cli/view_priv.h"

struct policy_link {
    struct br_cli_client c;
    struct br_cli_documents d;
    bool open;
    bool bad;          /* something arrived that is no answer */
    json_t *report;    /* {ok, warnings, error?, sha256?, rules?} */
    json_t *table;     /* as parsed; NULL if it did not compile */
    struct br_buf raw; /* its bytes */
    json_t *said;
    uint64_t next_id;
};

/*
 * Compile `file` (NULL: what --policy says, else the operator's, else the default one) with profile
 * and manifest as the arguments say. 0 if there is a report, whatever it says; close it in any
 * case.
 */
int policy_open(struct policy_link *l, const struct br_cli_args *a, const char *file,
                struct br_err *err);
/* The same, and a bundle that does not compile is an error: "FILE:LINE: text". */
int policy_open_good(struct policy_link *l, const struct br_cli_args *a, const char *file,
                     struct br_err *err);
/* Decide. Takes q; *said is a new reference. A request that is refused as such is an error. */
int policy_ask(struct policy_link *l, json_t *q, json_t **said, struct br_err *err);
/* Decide by this table (JSON text) from now on. */
int policy_use(struct policy_link *l, const char *text, size_t n, struct br_err *err);
void policy_close(struct policy_link *l);

/* ---- recorded decisions (policy_record.c) ---- */

struct policy_decision {
    json_t *call;    /* {tool, input}, or {action, subject} of a record without it */
    json_t *votes;   /* the data of its bridle.votes */
    json_t *context; /* when, and what of the budget was used */
    bool redacted;   /* something of the call is */
};
struct policy_run {
    char id[BR_NAME_MAX];
    json_t *run;   /* the data of bridle.run; may be NULL */
    json_t *table; /* see policy_table_usable() */
    uint64_t parts, seen;
    struct policy_decision *d;
    size_t n, cap;
    json_t *calls; /* that are open, by id */
    uint64_t ncalls, tokens, asks;
};
struct policy_history {
    struct policy_run *runs;
    size_t nruns;
};
void policy_history_free(struct policy_history *h);
/* One event, in the order of the record. */
int policy_history_event(struct policy_history *h, const char *text, size_t n, struct br_err *err);
/* A run of the store, by what `bridle show` takes. */
int policy_history_store(struct policy_history *h, const char *run, struct br_err *err);
/* The `last` youngest runs of the store. */
int policy_history_all(struct policy_history *h, uint32_t last, struct br_err *err);
/* What `bridle show --json RUN` wrote. */
int policy_history_file(struct policy_history *h, const char *path, struct br_err *err);
/* A word that names a file has a '/' or '.', which no run has. */
bool policy_names_file(const char *word);
/* Each of n words, or the `last` youngest runs. */
int policy_history_read(struct policy_history *h, char *const *words, unsigned n, uint32_t last,
                        struct br_err *err);
/* The record has the whole table; and it is the one that was pinned, byte for byte. */
bool policy_table_usable(const struct policy_run *r);
bool policy_table_exact(const struct policy_run *r);
/* What to ask a session. New reference. */
json_t *policy_request(const struct policy_decision *d);

/* The candidate's operator rules among the recorded rules of the others; NULL if the tables are of
 * different formats. New reference. */
json_t *policy_merge(const json_t *recorded, const json_t *candidate);
int policy_use_json(struct policy_link *l, const json_t *table, struct br_err *err);

/* Of replay and diff: something would change. */
#define POLICY_EXIT_CHANGED 10
/* Of test: a spec failed; less than --min-coverage or --min-mutation. */
#define POLICY_EXIT_SPEC 11
#define POLICY_EXIT_BELOW 12

/* ---- specs (policy_busted.c) ---- */

struct policy_specs {
    char dir[BR_PATH_MAX];    /* holds bridle/testing.lua and the record; "" before it is made */
    char record[BR_PATH_MAX]; /* a line for each request of the bundle under test */
    char self[BR_PATH_MAX], busted[BR_PATH_MAX];
    char bundle[BR_PATH_MAX]; /* real path; "" for the one that is built in */
    const char *profile, *manifest;
    const char *const *specs;
    unsigned nspecs;
    bool quiet_stdout; /* busted talks on standard error */
};
/* Find the programs, make the directory. Close it in any case. */
int policy_specs_open(struct policy_specs *s, struct br_err *err);
/* Run busted; `mutant` (JSON) is for testing.lua, and silences it; NULL: the first run, which is
 * recorded. *status is its exit code, 128 + n for a signal. */
int policy_specs_run(const struct policy_specs *s, const char *mutant, int *status,
                     struct br_err *err);
/* What was recorded: an array of {profile, manifest, request, expect, said}. */
int policy_specs_read(const struct policy_specs *s, json_t **records, struct br_err *err);
void policy_specs_close(struct policy_specs *s);

/* ---- mutants (policy_mutant.c) ---- */

/* The length of the id as its author wrote it: several patterns become "id", "id#2", ... */
size_t policy_base_id(const char *id);
/* The table with every row of a rule (by that id, with its source in front) dropped, or with this
 * effect; id NULL: without checks. {"rule", "effect"} as it is handed to a spec. New reference;
 * NULL if nothing changed. */
json_t *policy_mutate(const json_t *table, const json_t *mutant);
/* True if a vote of an answer is as strict as the answer: it decided, alone or with others. */
bool policy_carries(const json_t *said, const json_t *vote);
/* True if an answer is what a case expects: {"effect", "rule"}, either may be missing. */
bool policy_expected(const json_t *said, const json_t *expect);
/* True if a spec can see no difference between two answers. */
bool policy_same_answer(const json_t *a, const json_t *b);

/* ---- branches of the functions in a bundle (policy_branch.c) ---- */

enum policy_site_kind {
    POLICY_SITE_BRANCH,    /* a body: of a function, a loop, after then or else */
    POLICY_SITE_OTHERWISE, /* of an if without else, where no condition is true */
    POLICY_SITE_CONDITION, /* of if and elseif: can be the opposite */
    POLICY_SITE_DENY,      /* return "deny": can be "ask" */
    POLICY_SITE_ASK,
};
struct policy_site {
    enum policy_site_kind kind;
    size_t at, end; /* what of the text is changed */
    unsigned line;
    const char *what; /* is said if nothing reaches or notices it; static */
};
struct policy_sites {
    struct policy_site *list;
    size_t n, cap;
};
/* The error that is raised in a branch. */
#define POLICY_SITE_MARK "this branch was reached"
/* Of a text that compiles. Free it in any case. */
int policy_sites_find(struct policy_sites *out, const char *text, size_t n, struct br_err *err);
void policy_sites_free(struct policy_sites *s);
bool policy_site_is_branch(const struct policy_site *s);
/* The text with one of them changed; a branch then raises an error. Free out in any case. */
int policy_site_change(struct br_buf *out, const char *text, size_t n, const struct policy_site *s,
                       struct br_err *err);
/* policy_open_good(), for a bundle with its site-th place changed. */
int policy_open_changed(struct policy_link *l, const struct br_cli_args *a, const char *file,
                        size_t site, struct br_err *err);

/* ---- output: collected, written now and then, an end of it remembered ---- */

struct policy_out {
    struct br_cli_view v; /* for its ways of writing text */
    bool tty;
    bool lost;
    int error; /* errno of what could not be written */
};
void policy_out_init(struct policy_out *o);
/* Write what was collected, if it is much or `all`. False if the reader has gone. */
bool policy_out_flush(struct policy_out *o, bool all);
/* JSON on one line. Takes the value. */
void policy_out_json(struct policy_out *o, json_t *value);
/* Flush and free. `code`, or the exit code of lost output. */
int policy_out_end(struct policy_out *o, int code);
/* Somebody's text on one line, padded; at a terminal cut at `width` columns. */
void policy_out_cell(struct policy_out *o, const char *s, unsigned width);
/* The same for what somebody may look for, such as the id of a rule: it is not cut. */
void policy_out_name(struct policy_out *o, const char *s, unsigned width);

/* "src/a.lua:12", "src/a.lua" or "". */
const char *policy_where(const json_t *rule, char dst[BR_PATH_MAX + 16]);
/* "path src/[star]", or "any"; "otherwise" for a fallback. */
const char *policy_matcher(const json_t *rule, char dst[BR_PATTERN_MAX + 32]);
/* The kind of a rule's source: "profile", "operator", "manifest". */
const char *policy_source(const json_t *table, const json_t *rule);

/* ---- the actions ---- */

int policy_why(const struct br_cli_args *a);
int policy_replay(const struct br_cli_args *a);
int policy_diff(const struct br_cli_args *a);
int policy_test(const struct br_cli_args *a);
/* policy_reload.c */
int policy_hold(const struct br_cli_args *a);
int policy_reload(const struct br_cli_args *a);
/* Answer lines of JSON on standard input, one each, until its end (policy_serve.c). */
int policy_serve(const struct br_cli_args *a);
/* Append requests that a rule is about, each with "rule", its id; of a rule for every action those
 * of each key of `actions`. `conditions` are those of its table (policy_witness.c). */
void policy_witnesses(json_t *list, const json_t *rule, const json_t *actions,
                      const json_t *conditions);

#endif
