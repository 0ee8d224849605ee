/*
 * Which command lines run something else than their first word says, and what they run. A library
 * of its own (bridle_argv) without Lua and without the parser, for bridle-session; the shell
 * decomposer uses it too.
 */
#ifndef BR_SCRIPT_ARGV_H
#define BR_SCRIPT_ARGV_H

#include "base/base.h"

/*
 * What br_argv_unwrap() found. Words may have marks for what is not known (base.h). The texts that
 * a callback gets are gone behind it, `why` is static.
 */
struct br_argv_sink {
    void *ctx;
    void (*command)(void *ctx, const char *const *words, size_t n); /* it runs this one as well */
    void (*line)(void *ctx, const char *line, bool certain);        /* and this one, in a shell */
    void (*env)(void *ctx, const char *change); /* NAME=VALUE, or NAME removed */
};

enum br_argv_kind {
    /* It is what it says. */
    BR_ARGV_PLAIN,
    /* It does something by itself, and runs what the sink got (find). */
    BR_ARGV_BOTH,
    /* It does nothing but to run what the sink got (timeout, env, sh -c). */
    BR_ARGV_WRAPPER,
    /* It runs what cannot be seen; the sink may have got a part of it. */
    BR_ARGV_OPAQUE,
};

/*
 * Look through one wrapper. *why (may be NULL) is set for BR_ARGV_OPAQUE, NULL otherwise. A program
 * is known by the last part of its path, but only one from the system's directories is a wrapper
 * and nothing else.
 */
enum br_argv_kind br_argv_unwrap(const char *const *words, size_t n,
                                 const struct br_argv_sink *sink, const char **why);

/* The index of git's sub-command behind its global options, or 0. */
size_t br_argv_git_command(const char *const *words, size_t n);

/*
 * Other spellings of the same command, for rules that deny: without the path of its program, git
 * without its global options, rm with its options as one word. Each is told to fn.
 */
void br_argv_spellings(const char *const *words, size_t n,
                       void (*fn)(void *ctx, const char *const *words, size_t n), void *ctx);

/* Is a mark for something unknown in the word? */
bool br_word_unknown(const char *word);

/* Can this change of the environment (NAME=VALUE or NAME) alter what a program runs? */
bool br_env_harmless(const char *change);
/* The same for a variable of the shell that is not exported, unless it is already. */
bool br_env_local(const char *change);

#endif
