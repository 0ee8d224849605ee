/*
 * The decision of a command on what will run: an argv or a line for a shell is looked through
 * (argv.h), a line is taken apart by whoever has the parser, each simple command and each
 * redirection is decided with the one table, and the strictest answer is that of the whole. Used by
 * the session, by `bridle policy` and by tests, so that all of them give the same answer.
 */
#ifndef BR_SCRIPT_COMMAND_H
#define BR_SCRIPT_COMMAND_H

#include "policy/policy.h"

/* Commands inside of commands, and lines inside of lines: opaque beyond. */
#define BR_COMMAND_DEPTH_MAX 16u
#define BR_COMMAND_LINES_MAX 32u
#define BR_COMMAND_WORDS_MAX 4096u

struct br_verdict {
    enum br_effect effect;           /* allow, ask or deny */
    bool opaque;                     /* a part of it could not be looked at */
    char *rule_id, *source, *reason; /* owned; reason may be NULL */
};
void br_verdict_free(struct br_verdict *v);
/* Take over (rule, source, reason) if `effect` is stricter than what is there. */
void br_verdict_tighten(struct br_verdict *v, enum br_effect effect, const char *rule_id,
                        const char *source, const char *reason);

/* A simple command, or a file that the shell opens for one. */
struct br_command_piece {
    const char *action;    /* "process.exec", "fs.read", "fs.write" */
    const char *text;      /* e.g. "rm -rf x", or a path; `?`: known only when it runs */
    enum br_effect effect; /* of this piece alone; none: no rule speaks of it */
    const char *rule_id, *source, *reason; /* who said so; each may be NULL */
};

struct br_commander {
    const struct br_table *table;
    const struct br_context *context; /* of every request; may be NULL */
    void *ctx;
    /* br_table_decide(), for whoever wants to see the requests (may be NULL). `against`: only what
     * is stricter than the rest counts. */
    void (*decide)(void *ctx, const struct br_request *q, bool against, struct br_decision *d);
    /* Have n bytes parsed: *body is then that of SHELL_PARSED, good until the next call. 0 or a
     * negative code, which denies. The body is not trusted. */
    int (*shell)(void *ctx, const char *line, size_t n, const void **body, size_t *len);
    /* Each vote that came in (may be NULL). */
    void (*vote)(void *ctx, const char *source, const char *rule_id, enum br_effect effect,
                 const char *reason);
    /* Each piece that was decided, for people (may be NULL). */
    void (*piece)(void *ctx, const struct br_command_piece *p);
    /* Each change of the environment in front of a command, NAME=VALUE or NAME, where a byte may be
     * one of the marks of br_is_unknown() (may be NULL). */
    void (*env)(void *ctx, const char *change);
};

/*
 * Decide n words, or a line of text for /bin/sh, in a directory of the workspace ("" or ".": the
 * workspace). *v is all zero before; it is to be freed.
 */
void br_command_argv(const struct br_commander *c, const char *const *words, size_t n,
                     const char *directory, struct br_verdict *v);
void br_command_line(const struct br_commander *c, const char *line, const char *directory,
                     struct br_verdict *v);

#endif
