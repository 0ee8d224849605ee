/*
 * core/cli: the operator's client. A verb is one file; they share the argument parser, the
 * operator's files, the connection to bridled, the terminal and the view of a run, which are
 * declared here.
 *
 * The client trusts the operator and bridled. It does not trust what a model or a tool said, which
 * reaches the terminal only through the view.
 */
#ifndef BR_CLI_H
#define BR_CLI_H

#include <jansson.h>
#include <signal.h>

#include "base/base.h"
#include "promote/row.h"
#include "wire/types.h"
#include "wire/wire.h"

/* ---- verbs and arguments (verbs.c, args.c) ------------------------------------------------- */

#define BR_CLI_OPTS_MAX 20u
#define BR_CLI_WIDTH 80u
#define BR_CLI_MANY_MAX 100u

enum br_cli_complete {
    BR_COMPLETE_NONE,
    BR_COMPLETE_FILE,
    BR_COMPLETE_DIR,
    BR_COMPLETE_VERB,
    BR_COMPLETE_PROFILE, /* a built-in one, or a file */
    BR_COMPLETE_BACKEND,
    BR_COMPLETE_TOKEN,  /* an action of `bridle token` */
    BR_COMPLETE_ACCESS, /* what a token is good for */
    BR_COMPLETE_POLICY, /* an action of `bridle policy`, or a file */
};

struct br_cli_opt {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    const char *arg;  /* its name in the help; NULL: a flag */
    const char *text;
    enum br_cli_complete complete;
    bool many; /* may be given again; br_cli_opt() is the first, args.many has all */
};

struct br_cli_args;
typedef int br_cli_verb_fn(const struct br_cli_args *a);

struct br_cli_verb {
    const char *name;
    const char *synopsis; /* after the name */
    const char *summary;  /* one line, lower case */
    const char *details;  /* paragraphs for --help */
    struct br_cli_opt opts[BR_CLI_OPTS_MAX];
    unsigned operands_min, operands_max; /* before "--" */
    bool tail;                           /* "-- CMD..." is required; otherwise "--" ends options */
    /* true: what follows these operands are operands, dashes included; and from the third on they
     * may be empty */
    bool (*words)(char *const *operands, unsigned n);
    enum br_cli_complete complete; /* of the operands */
    br_cli_verb_fn *run;           /* returns the exit code */
};

/* All verbs, in the order of the help; ends with a NULL name. */
extern const struct br_cli_verb br_cli_verbs[];
const struct br_cli_verb *br_cli_verb_find(const char *name);

struct br_cli_args {
    const struct br_cli_verb *verb;
    const char *value[BR_CLI_OPTS_MAX]; /* "" for a flag that is set; NULL: not given */
    char *const *operands;              /* points into the caller's array, NULL-terminated */
    unsigned noperands;
    char *const *tail; /* what follows "--" of a verb with a tail */
    unsigned ntail;
    const char *many[BR_CLI_MANY_MAX]; /* the values of the option that may be given again */
    unsigned nmany;
    bool help;
};

/*
 * Parse what follows the verb. argv is reordered in place: operands first. -BR_E_USAGE with the
 * option's name, and the nearest known one, if it is not understood.
 */
int br_cli_parse(const struct br_cli_verb *verb, int argc, char **argv, struct br_cli_args *a,
                 struct br_err *err);
/* The value of an option by its long name; NULL if not given. The name must exist. */
const char *br_cli_opt(const struct br_cli_args *a, const char *name);
/* The nearest of `n` names, NULL if none is near enough to be meant. */
const char *br_cli_nearest(const char *word, const char *const *names, size_t n);
/* A decimal number in [min, max]; -BR_E_USAGE otherwise. */
int br_cli_number(const char *what, const char *s, uint32_t min, uint32_t max, uint32_t *out,
                  struct br_err *err);

/* Print an error and what to do about it; returns the exit code. */
int br_cli_fail(const struct br_err *err);
/* Output that was asked for and could not be written, with its errno; returns the exit code. */
int br_cli_lost_output(int e);
/* The end of a verb that wrote to stdout by printf: 0, or the exit code of lost output. */
int br_cli_flush(void);
/* The text of --help for a verb, or for the program (verb NULL), on stdout. */
void br_cli_help(const struct br_cli_verb *verb);

br_cli_verb_fn br_cli_acp, br_cli_observe, br_cli_run, br_cli_exec, br_cli_plan, br_cli_activate,
    br_cli_validate, br_cli_show, br_cli_doctor, br_cli_demo, br_cli_bench, br_cli_selftest,
    br_cli_image, br_cli_policy, br_cli_repl, br_cli_state, br_cli_promote, br_cli_serve,
    br_cli_help_verb, br_cli_token, br_cli_connect;

/* policy.c: behind `why process.exec` everything is the command. */
bool br_cli_policy_words(char *const *operands, unsigned n);

/* ---- the operator's files (files.c) -------------------------------------------------------- */

struct br_cli_file {
    char path[BR_PATH_MAX]; /* "" if there is none */
    struct br_buf text;
};
void br_cli_file_free(struct br_cli_file *f);
/*
 * Read a regular file (a symlink to one is fine) of at most `max` bytes. `what` names it in errors,
 * `code` is the error of a file that is no such document; a missing one is -BR_E_NOT_FOUND.
 */
int br_cli_file_read(struct br_cli_file *f, const char *path, const char *what, enum br_code code,
                     size_t max, struct br_err *err);
/* `given`, or else NAME in the operator's and then the system's configuration; none is fine. */
int br_cli_file_config(struct br_cli_file *f, const char *given, const char *name, const char *what,
                       enum br_code code, size_t max, struct br_err *err);
/* An absolute path for `dir`; symbolic links in it are kept, for bridled to judge. */
int br_cli_workspace(char out[BR_PATH_MAX], const char *dir, struct br_err *err);
/* True if the real path of `file` is below the real path of `dir`. */
bool br_cli_path_below(const char *file, const char *dir);

/* The path of another program of Bridle, which lies beside this one. */
int br_cli_program(char path[BR_PATH_MAX], const char *name, struct br_err *err);

/* ---- the connection to bridled (client.c) -------------------------------------------------- */

/* One row of the list of runs. */
struct br_cli_row {
    char run_id[BR_ID_MAX];
    uint64_t started_us, ended_us; /* ended_us 0: not ended */
    char status[32];
    char model[BR_NAME_MAX];
    char workspace[BR_PATH_MAX];
    char *goal; /* owned by the client */
    uint64_t events;
};

/* One file of the lease root; name NULL: there are more than fit. */
struct br_cli_lease {
    const char *name;
    bool in_use;
    uint64_t bytes, allocated, seconds; /* when it was changed, since the epoch */
};

/* What a promotion comes to. */
struct br_cli_promotion {
    char run_id[BR_ID_MAX], workspace[BR_PATH_MAX];
    uint32_t changes, conflicts, refused, skipped;
    uint8_t recovered; /* as in PROMOTE_PLANNED */
};

/* What a verb wants to hear of; every member may be NULL. A negative return ends the connection. */
struct br_cli_hooks {
    int (*started)(void *ctx, const char *run_id, const char *model, bool scripted);
    /* the stored bytes of one event, in order; valid during the call */
    int (*event)(void *ctx, const char *text, size_t n, struct br_err *err);
    int (*row)(void *ctx, const struct br_cli_row *row);
    int (*report)(void *ctx, const char *text, size_t n);
    /* mode policy: what came of compiling, and the table */
    int (*table)(void *ctx, const struct br_buf *report, const struct br_buf *table);
    int (*said)(void *ctx, const struct br_buf *answer);
    /* one activation: the profile, when (seconds since the epoch), its evidence */
    int (*activated)(void *ctx, const char *profile, uint64_t seconds, const char *text);
    int (*probed)(void *ctx, const struct br_probe *probes, uint32_t n);
    /* one bundle of a standing bridled */
    int (*policy)(void *ctx, const struct br_policy_row *row);
    int (*leased)(void *ctx, const struct br_cli_lease *lease);
    int (*promote_row)(void *ctx, const struct br_promote_row *row, const struct br_buf *diff);
    int (*promote_plan)(void *ctx, const struct br_cli_promotion *p);
    /* one session, or one kept workspace */
    int (*state)(void *ctx, const struct br_state_row *row);
    /* the session refused an answer (it was resolved before) */
    void (*refused)(void *ctx, const char *text);
    /* SIGINT, SIGTERM or SIGHUP came for the first time */
    void (*canceling)(void *ctx, int signo);
};

struct br_cli_client {
    struct br_loop *loop;
    struct br_chan ctl, session, audit;
    const struct br_cli_hooks *hooks;
    void *ctx;
    pid_t pid; /* bridled; 0 if it does not run */
    int signals;
    sigset_t old_mask;
    unsigned nsignals;
    uint64_t row;      /* of the last event */
    bool audited;      /* a record is being shown */
    bool listing_done; /* and it was shown to its end */
    bool ended, done;
    struct br_err broken; /* what a channel of the run ended with */
    bool killed;          /* by the operator's second signal */
    enum br_code code;
    char text[BR_ERR_TEXT_MAX];
    uint32_t exit_code;
    char run_id[BR_ID_MAX];
};

/* Start `bridled --private` from the directory of this program. Signals that end a program are
 * from here to br_cli_client_close() delivered as hooks. */
int br_cli_client_open(struct br_cli_client *c, const struct br_cli_hooks *hooks, void *ctx,
                       struct br_err *err);
/* Send a verb; `o` may be NULL. */
int br_cli_client_send(struct br_cli_client *c, enum br_msg_type type, const struct br_out *o,
                       struct br_err *err);
/* Serve until bridled says how it ended and every event was delivered. Then c->code, c->text and
 * c->exit_code hold. A negative return means that bridled or a channel broke. */
int br_cli_client_wait(struct br_cli_client *c, struct br_err *err);
/* All three: open it, send this one message, wait. Close it in any case. */
int br_cli_client_ask(struct br_cli_client *c, const struct br_cli_hooks *hooks, void *ctx,
                      enum br_msg_type type, const struct br_out *o, struct br_err *err);
/* The payload of CTL_SHOW: everything of one run, or ("") all runs. */
void br_cli_put_show(struct br_buf *b, const char *run_id);
/* Answer an ask: 0 no, else an enum br_scope. Errors are ignored (then the session has ended it
 * already). */
void br_cli_client_answer(struct br_cli_client *c, const char *permission_id, unsigned scope,
                          const char *note);
/* Ask for a clean end of the run. */
void br_cli_client_cancel(struct br_cli_client *c);
void br_cli_client_close(struct br_cli_client *c);

/* ---- the terminal (term.c) ----------------------------------------------------------------- */

struct br_cli_term {
    int in, out;
    bool tty_in, tty_out;
    bool colour;
    unsigned width;
    bool status_shown;
    bool broken; /* the output went away, */
    int error;   /* for this reason */
    /* The output takes nothing at present: a pager, Ctrl-S. Returns when it does again, or false to
     * drop what was to be written. NULL: writing waits. */
    bool (*stalled)(void *ctx, int fd);
    void *stalled_ctx;
    unsigned stalls; /* how often that was */
};
/* `out` is where the view goes, `in` where answers come from. Reads NO_COLOR, TERM and COLUMNS. */
void br_cli_term_init(struct br_cli_term *t, int in, int out);
void br_cli_term_write(struct br_cli_term *t, const void *p, size_t n);
/* One line that is rewritten in place; nothing where the output is not a terminal. */
void br_cli_term_status(struct br_cli_term *t, const char *text);
void br_cli_term_clear_status(struct br_cli_term *t);

/* How one line answers a question, trimmed and in any case: `y` or `yes`, `r` or `run`, `e` or
 * `each`; everything else is a no. */
enum br_cli_answer { BR_ANSWER_NO, BR_ANSWER_ONCE, BR_ANSWER_RUN, BR_ANSWER_EACH };
enum br_cli_answer br_cli_answer_read(const char *line, size_t n);

/* ---- the view of a run (view.c, view_tool.c, view_end.c) ----------------------------------- */

#define BR_VIEW_MAX (8u * 1024 * 1024)
#define BR_VIEW_WIDTH_MIN 40u

struct br_cli_view {
    struct br_buf out; /* what is to be printed; the owner prints and resets it */
    bool colour;
    unsigned width;
    bool exec; /* a run of one command: its output is the program's own */
    /* set these after br_cli_view_init() */
    bool receipt;       /* show the isolation receipt */
    bool folded;        /* a tool call is one line, unless it is asked about or denied */
    const char *record; /* how to see the record again; NULL: bridle show */

    /* streamed text */
    bool in_text;
    unsigned column;
    struct br_buf word;

    char type[64];             /* of the last event */
    json_t *call;              /* the last tool.call that has no result */
    bool call_shown;           /* it was shown whole, and nothing but its decision since */
    json_t *calls;             /* by id: every tool.call that has no result */
    char at_call[BR_NAME_MAX]; /* the one that was shown last, so that its result follows it */
    json_t *questions;         /* bridle.ask events that have no answer */
    bool grouped;              /* there were more of them in this turn */
    bool at_fold;              /* a folded call was shown last */
    json_t *decision;          /* held until the next event says how it went on */
    char last_tool[BR_NAME_MAX];
    char last_error[BR_ERR_TEXT_MAX]; /* as shown last, so that it is not said again */

    /* what is going on, for the status line */
    const char *phase; /* NULL: nothing */
    char phase_what[64];
    uint64_t phase_since_us;
    uint64_t progress_bytes;

    /* the open ask; empty if there is none */
    char ask_id[BR_NAME_MAX];

    /* for the summary */
    char run_id[BR_NAME_MAX], model[BR_NAME_MAX];
    bool scripted, started, stopped, sandboxed, promotion;
    uint64_t first_us, last_us;
    unsigned decisions[4]; /* by enum br_effect */
    unsigned asks, allowed, denied, unanswered;
    uint64_t prompt_tokens, completion_tokens, tool_calls, steps;
    char status[32];
    char note[BR_ERR_TEXT_MAX];
    json_t *changes;
};

void br_cli_view_init(struct br_cli_view *v, bool colour, unsigned width);
void br_cli_view_free(struct br_cli_view *v);
/* Render one stored event into v->out. -BR_E_INVALID_JSON if it is not an event. */
int br_cli_view_event(struct br_cli_view *v, const char *text, size_t n, struct br_err *err);
/* Show one question of several again, before it is put by itself: the i-th of n. */
void br_cli_view_question(struct br_cli_view *v, const char *permission, unsigned i, unsigned n);
/* The closing summary; nothing if no run was seen. */
void br_cli_view_summary(struct br_cli_view *v);
/* What the status line says now; false if nothing is going on. */
bool br_cli_view_status(const struct br_cli_view *v, char *dst, size_t cap);
/* Text that was written by somebody else, on one line, at most `max` columns. */
void br_cli_put_line(struct br_buf *b, const char *s, size_t n, unsigned max);
/*
 * Visible text of one line, broken at blanks into lines of at most `width` columns. The first
 * begins at `column`, each other one behind `indent` blanks. `joint` stands before each break; with
 * one, what is in single quotes is a word.
 */
void br_cli_put_words(struct br_buf *b, const char *s, size_t n, unsigned column, unsigned indent,
                      unsigned width, const char *joint);
/* The same stored JSON on one line, with what a terminal acts on as \u escapes. */
void br_cli_put_json_safe(struct br_buf *b, const char *s, size_t n);

/* One row of the list of runs, or one activation, as a JSON object (show.c, activate.c). */
void br_cli_put_policy_json(struct br_buf *b, const struct br_policy_row *w); /* policy_reload.c */
void br_cli_put_row_json(struct br_buf *b, const struct br_cli_row *row);
void br_cli_put_activation_json(struct br_buf *b, const char *profile, uint64_t seconds,
                                const char *text);

/* ---- a run in the foreground (foreground.c): what run and exec share ------------------------ */

struct br_cli_foreground {
    enum br_run_mode mode;
    const struct br_cli_args *args;
    const char *dir, *manifest, *goal;
    const char *policy;  /* NULL: --policy, if the verb has it; "": the one that is built in */
    bool no_policy;      /* --policy names something else */
    bool as_read;        /* the policy is the one that is read here, whatever is held */
    const char *model;   /* NULL: --model, if the verb has it */
    const char *profile; /* NULL: --profile, if the verb has it */
    const char *adapter; /* ID@REVISION; NULL: Bridle's own agent */
    const char *resume;  /* a session; NULL: a new one */
    const char
        *schema; /* JSON Schema of what it gives back, which is all that is shown; NULL: none */
    char *const *argv;
    unsigned argc;
    bool json;
    bool yes; /* every question is answered with yes, once; mode promote only */
    uint32_t wall_seconds;
};
/* Reads the operator's files, runs, shows; returns the exit code. */
int br_cli_foreground(const struct br_cli_foreground *f);

/* ---- what a run is made of (documents.c) ---------------------------------------------------- */

struct br_cli_documents {
    struct br_cli_file manifest, policy, config, scenario, profile;
    char workspace[BR_PATH_MAX];
    bool manifest_inside;
};
/* Free with br_cli_documents_free() in any case. */
int br_cli_documents_read(const struct br_cli_foreground *f, struct br_cli_documents *d,
                          struct br_err *err);
void br_cli_documents_free(struct br_cli_documents *d);
/* True for the name of a shipped bundle. */
bool br_cli_is_shipped(const char *word);
/* One CTL_RUN. */
int br_cli_documents_send(const struct br_cli_foreground *f, const struct br_cli_documents *d,
                          bool can_ask, struct br_cli_client *c, struct br_err *err);

/* ---- runs that end in one report: plan and activate (plan.c, activate.c) --------------------- */

struct br_cli_report {
    struct br_buf text; /* JSON, as it came */
    json_t *report;     /* the same */
    int exit_code;
};
/* Send it and wait; a refusal is a negative code, and a report as well. Free it in any case. */
int br_cli_report_get(const struct br_cli_foreground *f, struct br_cli_report *rep,
                      struct br_err *err);
void br_cli_report_free(struct br_cli_report *rep);
/* Print it as JSON; 0, or the exit code of lost output. */
int br_cli_report_json(const struct br_cli_report *rep);
/* The report for people, into v->out. */
void br_cli_report_put(struct br_cli_view *v, const char *title, const json_t *report);
/* Try a profile and keep the evidence; the report names, in "offers", profiles that would work. */
int br_cli_activation(const struct br_cli_args *a, const char *profile, struct br_cli_report *rep,
                      struct br_err *err);

/* ---- promote (promote.c) ----------------------------------------------------------------------
 */

void br_cli_promote_row(struct br_cli_view *v, const struct br_promote_row *w,
                        const struct br_buf *diff);
void br_cli_promote_row_json(struct br_buf *b, const struct br_promote_row *w,
                             const struct br_buf *diff);
void br_cli_promote_plan(struct br_cli_view *v, const struct br_cli_promotion *p);
/* Of a bridle.promote event. */
void br_cli_promote_receipt(struct br_cli_view *v, const json_t *data);

/* ---- doctor --delegate (delegate.c) --------------------------------------------------------- */

int br_cli_delegate(const char *user);

#endif
