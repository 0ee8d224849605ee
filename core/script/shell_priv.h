/*
 * core/script, private: the parts of the shell decomposer. shell.c has the parser and its budget,
 * shell_cursor.c the steps through its tree, shell_walk.c the statements, shell_word.c the words,
 * shell_guess.c what may be in a string that is not understood.
 */
#ifndef BR_SHELL_PRIV_H
#define BR_SHELL_PRIV_H

#include <tree_sitter/api.h>

#include "script/shell.h"

/* What a node is. Every name that is not in the table is K_OTHER, and makes a string opaque. */
enum kind {
    K_OTHER = 0,
    K_TOKEN, /* an anonymous one: keywords and operators */
    K_COMMENT,
    K_BLOCK, /* statements with keywords and operators between them */
    K_FUNCTION,
    K_FOR,
    K_CASE,
    K_CASE_ITEM,
    K_COMMAND,
    K_COMMAND_NAME,
    K_REDIRECTED,
    K_DECLARATION,
    K_TEST,
    K_ASSIGNMENT,
    K_ASSIGNMENTS,
    K_FILE_REDIRECT,
    K_HERE_REDIRECT,
    K_HERE_STRING,
    K_HERE_START,
    K_HERE_BODY,
    K_HERE_CONTENT,
    K_HERE_END,
    K_DESCRIPTOR,
    K_NAME, /* of a variable */
    K_WORD,
    K_STRING,
    K_CONTENT,
    K_RAW_STRING,
    K_ANSI_STRING,
    K_CONCATENATION,
    K_VARIABLE,
    K_EXPANSION,
    K_ARITHMETIC,
    K_BRACES,
    K_PATTERN,
    K_SUBSTITUTION,
    K_PROCESS,
};

struct walk {
    struct br_shell *sh;
    const char *text;
    uint32_t len;
    unsigned nodes, depth;
    bool broken;        /* the tree has errors: the textual guess knows better */
    unsigned variables; /* assignments that belong to no command */
    TSTreeCursor cursor;
};

enum kind shell_kind(TSNode node);

/* Make it opaque; the first reason stays. False, always. */
bool shell_refuse(struct br_shell *sh, const char *why);
/* Add a byte to the text; opaque when it is full. */
void shell_put(struct br_shell *sh, char c);
/* The word that was put since `start`: ends it and takes it into the list. NULL when that is full.
 */
const char *shell_add_word(struct br_shell *sh, size_t start);

/* ---- shell_cursor.c; each false has made the string opaque, but for the end of a list ---- */

#define SHELL_UNKNOWN "it has something that is not taken apart"

/* Between two nodes there may only be blanks and continued lines, and newlines where `lines`. */
bool shell_gap(struct walk *w, uint32_t from, uint32_t to, bool lines);
/* Count a node. False over the budget. */
bool shell_count(struct walk *w);
/* One level deeper, which the caller takes back (w->depth). False over the budget. */
bool shell_enter(struct walk *w);
TSNode shell_here(struct walk *w); /* the node at the cursor */
bool shell_first_child(struct walk *w);
/*
 * The children of the node at the cursor, one by one: for (struct shell_child c = {.inside =
 * false}; shell_each(w, &c);). The cursor is at the child meanwhile, and at its parent again behind
 * the last one; a loop that ends earlier has to take it back.
 */
struct shell_child {
    TSNode node;
    enum kind kind;
    bool inside;
};
bool shell_each(struct walk *w, struct shell_child *c);
/* The same with shell_gap() before each: *at is where the last one ended. */
bool shell_each_apart(struct walk *w, struct shell_child *c, uint32_t *at, bool lines);
/* Is a node's text this, or one of these? */
bool shell_text_is(const struct walk *w, TSNode n, const char *s);
bool shell_text_in(const struct walk *w, TSNode n, const char *const *list, size_t count);
/* The token or the comment at the cursor is one that is understood. */
void shell_check_token(struct walk *w);
void shell_check_comment(struct walk *w);

/* shell_word.c: put the word at the cursor as the shell would make it; never its substitutions. */
void shell_word(struct walk *w, bool assignment);
/* Is it a kind of word? */
bool shell_is_word(enum kind k);
/* A here-document's body: its literal parts must have no expansion that the tree does not show. */
void shell_here_text(struct walk *w, uint32_t from, uint32_t to);

/* shell_walk.c: the whole tree. */
void shell_walk(struct walk *w);

/* shell_guess.c */
void shell_guess(struct br_shell *sh, const char *text, size_t n);

#endif
