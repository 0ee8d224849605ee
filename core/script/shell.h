/*
 * Takes a shell string apart into the simple commands that /bin/sh will run, when their words are
 * certain. Everything else is opaque, with the reason.
 */
#ifndef BR_SCRIPT_SHELL_H
#define BR_SCRIPT_SHELL_H

#include "base/base.h"

/* A longer string, more words or more commands: opaque. The answer fits into one message. */
#define BR_SHELL_MAX (32u * 1024)
#define BR_SHELL_WORDS_MAX 1024u
#define BR_SHELL_COMMANDS_MAX 128u

struct br_shell {
    bool opaque;
    const char *why; /* static; NULL unless opaque */
    unsigned ncommands;
    unsigned first[BR_SHELL_COMMANDS_MAX + 1]; /* the index of a command's first word */
    unsigned count[BR_SHELL_COMMANDS_MAX + 1];
    unsigned nwords;
    const char *words[BR_SHELL_WORDS_MAX]; /* into text */
    char *text;                            /* owned */
    size_t text_len, text_cap;
};

/*
 * Parse n bytes. Always succeeds; opaque results have no commands. Free with br_shell_free().
 * Grammar: POSIX shell (2.2 quoting, 2.3 tokens, 2.9 lists and pipelines), as dash runs it.
 */
void br_shell_parse(struct br_shell *sh, const void *text, size_t n);
/*
 * For a string that is opaque, behind br_shell_parse() of the same bytes: fills in the commands
 * that may be in it, whatever stands around them. Nothing may be allowed by them; they are for
 * rules that deny. Words that depend on files or variables are as they are written.
 */
void br_shell_guess(struct br_shell *sh, const void *text, size_t n);
void br_shell_free(struct br_shell *sh);

#endif
