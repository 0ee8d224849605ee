/*
 * How the parts of a shell string are reached: the cursor's steps with their budget, what may stand
 * between two nodes, and tokens and comments by their text. Used by shell_walk.c and shell_word.c.
 * The tree is tree-sitter's and not trusted to be right (shell.c): what is odd makes the string
 * opaque.
 */
#include <string.h>

#include "script/shell_priv.h"

bool shell_gap(struct walk *w, uint32_t from, uint32_t to, bool lines)
{
    bool blank = false;
    for (uint32_t i = from; i < to; i++) {
        char c = w->text[i];
        if (c == ' ' || c == '\t' || (c == '\n' && lines))
            blank = true;
        else if (c == '\\' && i + 1 < to && w->text[i + 1] == '\n')
            i++;
        else
            return shell_refuse(w->sh, SHELL_UNKNOWN);
    }
    /* a continued line alone parts nothing: the shell joins what is before and behind it */
    return (from <= to && (from == to || blank)) || shell_refuse(w->sh, SHELL_UNKNOWN);
}

bool shell_count(struct walk *w)
{
    return ++w->nodes <= BR_SHELL_NODES_MAX || shell_refuse(w->sh, "it has too many parts");
}

bool shell_enter(struct walk *w)
{
    return w->depth < BR_SHELL_DEPTH_MAX ? ++w->depth > 0
                                         : shell_refuse(w->sh, "it is nested too deeply");
}

TSNode shell_here(struct walk *w)
{
    return ts_tree_cursor_current_node(&w->cursor);
}

bool shell_first_child(struct walk *w)
{
    return ts_tree_cursor_goto_first_child(&w->cursor);
}

static bool next_child(struct walk *w)
{
    if (shell_count(w) && ts_tree_cursor_goto_next_sibling(&w->cursor))
        return true;
    ts_tree_cursor_goto_parent(&w->cursor);
    return false;
}

bool shell_each(struct walk *w, struct shell_child *c)
{
    c->inside = c->inside ? next_child(w) : shell_first_child(w);
    if (!c->inside)
        return false;
    c->node = shell_here(w);
    c->kind = shell_kind(c->node);
    return true;
}

bool shell_each_apart(struct walk *w, struct shell_child *c, uint32_t *at, bool lines)
{
    if (!shell_each(w, c))
        return false;
    shell_gap(w, *at, ts_node_start_byte(c->node), lines);
    *at = ts_node_end_byte(c->node);
    return true;
}

bool shell_text_is(const struct walk *w, TSNode n, const char *s)
{
    uint32_t from = ts_node_start_byte(n), len = ts_node_end_byte(n) - from;
    return strlen(s) == len && memcmp(w->text + from, s, len) == 0;
}

bool shell_text_in(const struct walk *w, TSNode n, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (shell_text_is(w, n, list[i]))
            return true;
    return false;
}

void shell_check_token(struct walk *w)
{
    static const char *const known[] = {
        ";",  "\n",   "&",    "&&", "||", "|",    "|&",   "(",  ")",  "{",     "}",     "if", "fi",
        "do", "then", "elif", "!",  "`",  "else", "done", "<(", ">(", "while", "until", "$("};
    if (!shell_text_in(w, shell_here(w), known, BR_ARRAY_LEN(known)))
        shell_refuse(w->sh, SHELL_UNKNOWN);
}

/* From a '#' in front of a word to the end of the line, and not further. */
void shell_check_comment(struct walk *w)
{
    uint32_t from = ts_node_start_byte(shell_here(w)), to = ts_node_end_byte(shell_here(w));
    bool ok = from < to && w->text[from] == '#' &&
              (from == 0 || strchr(" \t\n;&|()", w->text[from - 1])) &&
              !memchr(w->text + from, '\n', to - from) && (to == w->len || w->text[to] == '\n');
    if (!ok)
        shell_refuse(w->sh, "it has a comment that is not understood");
}
