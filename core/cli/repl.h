/*
 * Inside 'bridle repl': what its files share. The client reads the store and the leases through
 * bridled, like every verb, and prints; Lua is evaluated by a bridle-script that it starts, which
 * gets copies of what was read and nothing else.
 */
#ifndef BR_CLI_REPL_H
#define BR_CLI_REPL_H

#include <signal.h>

#include "cli/cli.h"
#include "script/words.h"

/* ---- a line (repl_line.c) ---- */

#define REPL_LINE_MAX (64u * 1024)
#define REPL_WORDS_MAX 64u

struct repl_line {
    char *words[REPL_WORDS_MAX + 1]; /* ends with NULL */
    unsigned n;
    char *text; /* owned; the words point into it */
};
/* The verb that the line begins with; NULL: it is Lua. */
const struct br_word *repl_line_verb(const char *line);
/* Take the line apart at blanks; '...' and "..." hold them together. Free it in any case.
 * -BR_E_USAGE. */
int repl_line_split(const char *line, struct repl_line *l, struct br_err *err);
void repl_line_free(struct repl_line *l);
/* "FROM..TO", "FROM..", "..TO" or "ROW"; 0: no limit. False if it is none of them. */
bool repl_line_range(const char *word, uint64_t *from, uint64_t *to);
/* For a line that failed as Lua: the verb that was meant, NULL if none is near. */
const char *repl_line_meant(const char *line);

/* ---- snapshots (repl_data.c, repl_join.c) ---- */

#define REPL_DATA_MAX (6u * 1024 * 1024)
#define REPL_ROWS_MAX 5000u

struct repl_query {
    const char *what; /* the name of a word */
    const char *id;   /* "" where there is none */
    const char *type; /* "": all; one that ends in a dot: all that begin so */
    uint64_t from, to;
    uint64_t rows; /* at most; 0: REPL_ROWS_MAX */
};
struct repl_data {
    struct br_buf lines; /* JSON values, one a line */
    uint64_t n;
    uint64_t left_out, next; /* how many more there are, and (events) the row that goes on */
};
/* Free it in any case. A record that is damaged gives what comes before the damage, and its error.
 */
int repl_data_get(const struct repl_query *q, struct repl_data *d, struct br_err *err);
void repl_data_free(struct repl_data *d);

/* Append the operator's policy as it compiles, a JSON value (repl_policy.c). */
int repl_policy_get(struct br_buf *lines, struct br_err *err);

/* What the events of a session say together. */
struct repl_join {
    json_t *session;   /* object */
    json_t *decisions; /* array */
    json_t *leases;    /* array */
    json_t *open;      /* the last decision, borrowed */
};
int repl_join_open(struct repl_join *j, const struct br_cli_row *row, struct br_err *err);
int repl_join_event(struct repl_join *j, uint64_t row, const char *text, size_t n,
                    struct br_err *err);
void repl_join_free(struct repl_join *j);

/* ---- the Lua process (repl_script.c) ---- */

struct repl_limits {
    uint32_t depth, items, bytes;
};
struct repl_script {
    struct br_chan chan;
    pid_t pid; /* 0: not started */
    bool ready, done, killed;
    uint8_t status; /* 0 done, 1 the code is not complete, 2 failed */
    struct br_err why;
    uint32_t line;
    struct br_buf result;
    struct br_buf names; /* NUL after each */
    /* text to print; what was left out of a snapshot */
    void (*print)(void *ctx, const char *s, size_t n);
    void (*left_out)(void *ctx, const struct repl_query *q, const struct repl_data *d);
    void *ctx;
    uint64_t silent_since_us;
    size_t printed; /* by this evaluation, in bytes */
};
#define REPL_JSON 1u
#define REPL_MORE 2u
/* Set by SIGINT. */
extern volatile sig_atomic_t repl_interrupted;
void repl_script_init(struct repl_script *s);
/* Evaluate; starts the process if there is none. 0 and s->status, or -code if it could not be done
 * or the process died, which is gone then. */
int repl_script_eval(struct repl_script *s, unsigned flags, const struct repl_limits *limits,
                     const char *chunk, uint32_t line, const char *code, size_t n,
                     struct br_err *err);
/* How the last name of `text` may go on: s->names. */
int repl_script_names(struct repl_script *s, const char *text, struct br_err *err);
void repl_script_close(struct repl_script *s);

/* ---- the verbs (repl_verbs.c, repl_print.c) ---- */

struct repl {
    struct br_cli_view view; /* its buffer, width and colours */
    struct br_cli_term term;
    struct repl_script script;
    struct repl_limits limits;
    struct br_buf pending; /* lines of Lua that are not complete yet */
    uint32_t pending_line;
    bool json, interactive, quit;
};
/* 0, or -code with what to say. */
int repl_verb(struct repl *r, const struct br_word *verb, struct repl_line *l, struct br_err *err);
/* Print what is in the view's buffer. */
void repl_flush(struct repl *r);
void repl_say_left_out(struct repl *r, const struct repl_query *q, const struct repl_data *d);
/* One value of a snapshot for people, into the view's buffer. */
void repl_print_value(struct repl *r, const char *what, const json_t *v, bool first);
/* What the record says of a decision; the votes as well, unless somebody else says them. */
void repl_print_why(struct repl *r, const json_t *decision, bool with_votes);

/* ---- the terminal (repl_edit.c) ---- */

struct repl_edit;
struct repl_edit *repl_edit_open(struct repl *r);
void repl_edit_close(struct repl_edit **e);
enum repl_edit_end { REPL_EDIT_LINE, REPL_EDIT_EOF, REPL_EDIT_INTERRUPTED };
/* A line without its end, valid until the next call. */
enum repl_edit_end repl_edit_read(struct repl_edit *e, bool more, const char **line);
void repl_edit_remember(struct repl_edit *e, const char *line);

#endif
