/*
 * Takes a shell string apart into the simple commands that /bin/sh or bash would run, with the
 * variables that they set and the files that they are redirected to. What is not certain is marked
 * in the words, or makes the string opaque, with the reason.
 */
#ifndef BR_SCRIPT_SHELL_H
#define BR_SCRIPT_SHELL_H

#include "base/base.h"

/* A longer string, more words, commands or redirections: opaque. The answer fits into a message. */
#define BR_SHELL_MAX (32u * 1024)
#define BR_SHELL_WORDS_MAX 1024u
#define BR_SHELL_COMMANDS_MAX 128u
#define BR_SHELL_REDIRECTS_MAX 128u
/* Of the tree: nodes that are looked at, and levels of commands inside of commands. */
#define BR_SHELL_NODES_MAX 30000u
#define BR_SHELL_DEPTH_MAX 48u
/* Of the parser: its memory, and its time where the machine is idle. An honest string of the
 * longest kind needs 10 MiB and 5 ms. */
#define BR_SHELL_MEMORY_MAX (32u * 1024 * 1024)
#define BR_SHELL_PARSE_US 250000u

struct br_shell_command {
    unsigned first, count;         /* its words; never none */
    unsigned env_first, env_count; /* of the words too: NAME=VALUE in front of it */
};

struct br_shell_redirect {
    const char *target; /* as a word, relative to the working directory */
    bool read, write;
};

/*
 * Words are UTF-8 without control characters other than tab and newline. In the place of what is
 * known only when it runs there is BR_UNKNOWN_PART or BR_UNKNOWN_ANY (base.h).
 */
struct br_shell {
    bool opaque;
    const char *why; /* static; NULL unless opaque */
    unsigned ncommands, nwords, nredirects;
    bool moves; /* it changes its working directory, as cd does */
    struct br_shell_command commands[BR_SHELL_COMMANDS_MAX];
    struct br_shell_redirect redirects[BR_SHELL_REDIRECTS_MAX];
    const char *words[BR_SHELL_WORDS_MAX]; /* into text */
    char *text;                            /* owned */
    size_t text_len, text_cap;
};

/*
 * Parse n bytes. Always succeeds. Not opaque: every command that the string can run is in it, and
 * each is as the shell would make it except for the marked parts. Opaque: nothing may be allowed by
 * what is in it, but the commands are those that may be run, as far as can be seen, for rules that
 * deny. Free with br_shell_free().
 */
void br_shell_parse(struct br_shell *sh, const void *text, size_t n);
void br_shell_free(struct br_shell *sh);
/*
 * The body of SHELL_PARSED: u8 bits (1 opaque, 2 moves), str why, u32 commands {u32 n, str
 * NAME=VALUE, u32 n, str word}, u32 redirections {u8 bits (1 read, 2 write), str target}.
 */
void br_shell_reply(const struct br_shell *sh, struct br_buf *out);

#endif
