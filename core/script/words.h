/*
 * The words of 'bridle repl': verbs of its command line, and names that its Lua code can use. One
 * table for the client, which explains and completes verbs, and for bridle-script, which explains
 * values. No Lua in it.
 */
#ifndef BR_SCRIPT_WORDS_H
#define BR_SCRIPT_WORDS_H

#include <stddef.h>

enum br_word_kind {
    BR_WORD_VERB = 1, /* of the command line */
    BR_WORD_NAME = 2, /* a Lua function or value */
};

struct br_word {
    const char *name;
    unsigned kinds;
    const char *verb; /* how it is written as a verb; NULL: it is none */
    const char *call; /* and in Lua; NULL: not there */
    const char *text;
};

extern const struct br_word br_words[]; /* ends with a NULL name */
const struct br_word *br_word_find(const char *name);

#endif
