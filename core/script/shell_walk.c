/*
 * The statements of a shell string: every simple command in it, whatever stands around it, with its
 * variables and redirections. A node that is not known, and a byte between nodes that should not be
 * there, makes the string opaque; the commands that are seen are collected all the same, for rules
 * that deny. The tree is tree-sitter's and not trusted to be right (shell.c).
 */
#include <string.h>

#include "script/argv.h"
#include "script/shell_priv.h"

static void statement(struct walk *w);

/* One simple command while it is collected. */
struct simple {
    unsigned first, count, env_first, env_count;
    uint32_t at; /* the end of the last part */
};

/* ---- what runs inside of words ---- */

static void block(struct walk *w);

/*
 * Below the node at the cursor: the substitutions, and the statements that belong to a redirection.
 * `gathered`: a command among the children is the one whose words these are.
 */
static void inner(struct walk *w, bool gathered)
{
    if (!shell_enter(w))
        return;
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        if (c.kind == K_SUBSTITUTION || c.kind == K_PROCESS)
            block(w);
        else if ((c.kind == K_COMMAND && gathered) || c.kind == K_COMMAND_NAME ||
                 shell_is_word(c.kind) || c.kind == K_ASSIGNMENT || c.kind == K_FILE_REDIRECT ||
                 c.kind == K_HERE_STRING || c.kind == K_HERE_REDIRECT || c.kind == K_HERE_BODY)
            inner(w, false);
        else if (c.kind == K_OTHER) /* a part of an expansion, whose form was looked at */
            inner(w, false);
        else if (c.kind != K_TOKEN && c.kind != K_CONTENT && c.kind != K_NAME &&
                 c.kind != K_DESCRIPTOR && c.kind != K_HERE_START && c.kind != K_HERE_CONTENT &&
                 c.kind != K_HERE_END && c.kind != K_COMMENT)
            statement(w);
    }
    w->depth--;
}

/* The same for the word at the cursor itself. */
static void inner_word(struct walk *w)
{
    enum kind k = shell_kind(shell_here(w));
    if (k == K_SUBSTITUTION || k == K_PROCESS)
        block(w);
    else
        inner(w, false);
}

/* ---- parts of a simple command ---- */

static void add_word(struct walk *w, struct simple *s)
{
    TSNode n = shell_here(w);
    size_t start = w->sh->text_len;
    if (s->count > 0 && ts_node_start_byte(n) == s->at)
        shell_refuse(w->sh, SHELL_UNKNOWN); /* the shell would join them */
    shell_word(w, false);
    if (shell_add_word(w->sh, start) && s->count++ == 0)
        s->first = w->sh->nwords - 1;
    s->at = ts_node_end_byte(n);
}

/* NAME=VALUE at the cursor, as a text that begins at *start. */
static void put_assignment(struct walk *w, size_t *start)
{
    unsigned part = 0;
    uint32_t at = ts_node_start_byte(shell_here(w)), end = ts_node_end_byte(shell_here(w));
    *start = w->sh->text_len;
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        bool ok =
            ts_node_start_byte(c.node) == at && (part == 0   ? c.kind == K_NAME
                                                 : part == 1 ? shell_text_is(w, c.node, "=")
                                                             : part == 2 && shell_is_word(c.kind));
        if (!ok) {
            shell_refuse(w->sh, "it sets a variable in a way that is not taken apart");
        } else if (part < 2) {
            for (uint32_t i = ts_node_start_byte(c.node); i < ts_node_end_byte(c.node); i++)
                shell_put(w->sh, w->text[i]);
        } else {
            shell_word(w, true);
        }
        at = ts_node_end_byte(c.node);
        part++;
    }
    if (at != end || part < 2)
        shell_refuse(w->sh, SHELL_UNKNOWN);
}

static void add_variable(struct walk *w, struct simple *s)
{
    size_t start;
    if (s->count > 0)
        shell_refuse(w->sh, SHELL_UNKNOWN);
    s->at = ts_node_end_byte(shell_here(w));
    put_assignment(w, &start);
    if (shell_add_word(w->sh, start) && s->env_count++ == 0)
        s->env_first = w->sh->nwords - 1;
}

/* What stands before a redirection must not be its descriptor. */
static void check_before(struct walk *w, uint32_t from, bool descriptor)
{
    uint32_t i = from;
    static const char ends[] = " \t\n;&|()`";
    if (from == 0 || strchr(ends, w->text[from - 1]))
        return;
    while (i > 0 && w->text[i - 1] >= '0' && w->text[i - 1] <= '9')
        i--;
    if (descriptor || w->text[from - 1] == '}' || w->text[from - 1] == '\\' ||
        (i < from && (i == 0 || strchr(ends, w->text[i - 1]))))
        shell_refuse(w->sh, "it has a redirection that is not understood");
}

/* One digit: sh takes more for a word of their own. */
static void check_descriptor(struct walk *w, TSNode n)
{
    uint32_t at = ts_node_start_byte(n);
    if (ts_node_end_byte(n) != at + 1 || w->text[at] < '0' || w->text[at] > '9')
        shell_refuse(w->sh, "it has a redirection that is not understood");
}

enum direction { TO_NOTHING, READ, WRITE, COPY, BOTH_WRITE };

static enum direction direction_of(const struct walk *w, TSNode n)
{
    static const char *const writes[] = {">", ">>", ">|"}, *const both[] = {"&>", "&>>"},
                             *const copies[] = {"<&", ">&"};
    if (shell_text_is(w, n, "<"))
        return READ;
    if (shell_text_in(w, n, writes, BR_ARRAY_LEN(writes)))
        return WRITE;
    if (shell_text_in(w, n, both, BR_ARRAY_LEN(both)))
        return BOTH_WRITE;
    return shell_text_in(w, n, copies, BR_ARRAY_LEN(copies)) ? COPY : TO_NOTHING;
}

static void add_redirect(struct walk *w, size_t start, enum direction d)
{
    struct br_shell *sh = w->sh;
    const char *target = sh->text + start;
    shell_put(sh, '\0');
    if (d == COPY) {
        size_t digits = strspn(target, "0123456789");
        if (target[digits] == '-')
            digits++;
        if (digits > 0 && !target[digits])
            return;
        for (const char *p = target; *p; p++) /* bash expands a file's name here once more */
            if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-", *p))
                shell_refuse(sh, "it has a redirection that is not understood");
    }
    if (sh->nredirects == BR_SHELL_REDIRECTS_MAX) {
        shell_refuse(sh, "it has too many redirections");
        return;
    }
    sh->redirects[sh->nredirects++] =
        (struct br_shell_redirect){.target = target, .read = d == READ, .write = d != READ};
}

/* [n]>target, and the words behind it, which are the command's. */
static void file_redirect(struct walk *w, struct simple *s)
{
    TSNode whole = shell_here(w);
    enum direction d = TO_NOTHING;
    bool descriptor = false, target = false, op = false;
    uint32_t at = ts_node_start_byte(whole);
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        if (c.kind == K_DESCRIPTOR && !descriptor && !op) {
            descriptor = true;
            check_descriptor(w, c.node);
        } else if (c.kind == K_TOKEN && !op) {
            static const char *const closes[] = {"<&-", ">&-"};
            if (ts_node_start_byte(c.node) != at)
                shell_refuse(w->sh, SHELL_UNKNOWN);
            op = true;
            d = direction_of(w, c.node);
            target = d == TO_NOTHING;
            if (target && !shell_text_in(w, c.node, closes, BR_ARRAY_LEN(closes)))
                shell_refuse(w->sh, SHELL_UNKNOWN);
        } else if (shell_is_word(c.kind) && !target) {
            size_t start = w->sh->text_len;
            shell_gap(w, at, ts_node_start_byte(c.node), false);
            target = true;
            shell_word(w, false);
            add_redirect(w, start, d);
        } else if (shell_is_word(c.kind) && s && d != BOTH_WRITE) {
            s->at = at;
            shell_gap(w, at, ts_node_start_byte(c.node), false);
            add_word(w, s);
        } else { /* behind &>, sh would take the next words for a command of their own */
            shell_refuse(w->sh, SHELL_UNKNOWN);
        }
        at = ts_node_end_byte(c.node);
    }
    check_before(w, ts_node_start_byte(whole), descriptor);
    if (!target)
        shell_refuse(w->sh, SHELL_UNKNOWN);
}

static void here_string(struct walk *w)
{
    size_t start = w->sh->text_len;
    unsigned words = 0;
    check_before(w, ts_node_start_byte(shell_here(w)), false);
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        if (shell_is_word(c.kind) && words++ == 0)
            shell_word(w, false);
        else if (c.kind != K_TOKEN)
            shell_refuse(w->sh, SHELL_UNKNOWN);
    }
    w->sh->text_len = start; /* the program reads it; it is no argument */
}

/* ---- here-documents ---- */

struct here {
    bool strip, literal;
    const char *end; /* the word that ends it, in the text */
    uint32_t end_len;
    uint32_t line, body, last; /* the newline, the first byte behind it, the line that ends it */
};

static bool here_word(struct walk *w, struct here *h, TSNode n)
{
    uint32_t from = ts_node_start_byte(n), to = ts_node_end_byte(n);
    const char *p = w->text + from;
    if (to - from >= 2 && (p[0] == '\'' || p[0] == '"') && p[to - from - 1] == p[0]) {
        h->literal = true;
        from++, to--;
    }
    h->end = w->text + from;
    h->end_len = to - from;
    if (h->end_len == 0)
        return false;
    for (uint32_t i = from; i < to; i++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-!",
                    w->text[i]))
            return false;
    const char *nl = memchr(w->text + to, '\n', w->len - to);
    if (!nl || nl[-1] == '\\')
        return false;
    h->line = (uint32_t)(nl - w->text);
    h->body = h->line + 1;
    for (uint32_t at = h->body; at <= w->len;) {
        uint32_t start = at;
        while (h->strip && start < w->len && w->text[start] == '\t')
            start++;
        const char *end = memchr(w->text + start, '\n', w->len - start);
        uint32_t stop = end ? (uint32_t)(end - w->text) : w->len;
        if (stop - start == h->end_len && memcmp(w->text + start, h->end, h->end_len) == 0) {
            h->last = start;
            return true;
        }
        at = stop + 1;
    }
    return false;
}

static void here_body(struct walk *w, const struct here *h)
{
    TSNode body = shell_here(w);
    uint32_t at = h->body;
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        if (c.kind == K_HERE_CONTENT)
            continue;
        if (h->literal ||
            !(c.kind == K_VARIABLE || c.kind == K_EXPANSION || c.kind == K_SUBSTITUTION)) {
            shell_refuse(w->sh, SHELL_UNKNOWN);
            continue;
        }
        if (ts_node_start_byte(c.node) >= at)
            shell_here_text(w, at, ts_node_start_byte(c.node));
        size_t start = w->sh->text_len;
        shell_word(w, false); /* for its checks */
        w->sh->text_len = start;
        at = ts_node_end_byte(c.node);
    }
    if (!h->literal && h->last >= at)
        shell_here_text(w, at, h->last);
    if (ts_node_end_byte(body) > h->last || ts_node_start_byte(body) < h->line)
        shell_refuse(w->sh, SHELL_UNKNOWN);
}

/* <<END and the rest of its line; the statements there are looked at by inner(). */
static void here_redirect(struct walk *w, struct simple *s)
{
    struct here h = {.strip = false};
    bool ok = false, ended = false;
    uint32_t at = ts_node_start_byte(shell_here(w));
    check_before(w, at, false);
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        if (c.kind == K_TOKEN && shell_text_is(w, c.node, "<<-"))
            h.strip = true;
        if (c.kind == K_HERE_START)
            ok = here_word(w, &h, c.node);
        if (c.kind == K_HERE_BODY && ok) {
            shell_gap(w, at, h.line, false);
            here_body(w, &h);
        } else if (c.kind == K_HERE_END) {
            ended = ok && ts_node_start_byte(c.node) == h.last;
        } else {
            shell_gap(w, at, ts_node_start_byte(c.node), false);
            if (ok && c.kind != K_HERE_BODY && ts_node_end_byte(c.node) > h.line)
                shell_refuse(w->sh, SHELL_UNKNOWN);
            if (c.kind == K_FILE_REDIRECT)
                file_redirect(w, s);
            else if (shell_is_word(c.kind) && ok && s) {
                s->at = at;
                add_word(w, s);
            } else if (c.kind == K_HERE_STRING || c.kind == K_COMMENT || c.kind == K_DESCRIPTOR ||
                       c.kind == K_OTHER)
                shell_refuse(w->sh, SHELL_UNKNOWN);
        }
        at = ts_node_end_byte(c.node);
    }
    if (!ok || !ended)
        shell_refuse(w->sh, "it has a here-document that is not understood");
    if (s)
        s->at = at;
}

/* ---- simple commands ---- */

static bool is_reserved(const char *word)
{
    static const char *const list[] = {"if",       "then",   "else", "elif", "fi",     "for",
                                       "while",    "until",  "do",   "done", "case",   "esac",
                                       "in",       "select", "!",    "{",    "}",      "[[",
                                       "function", "]]",     "((",   "let",  "coproc", "]"};
    for (size_t i = 0; i < BR_ARRAY_LEN(list); i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

static bool moves(const struct br_shell *sh, const struct simple *s)
{
    static const char *const list[] = {"cd", "pushd", "popd"};
    for (unsigned i = 0; i < s->count && i < 4; i++)
        for (size_t k = 0; k < BR_ARRAY_LEN(list); k++)
            if (strcmp(sh->words[s->first + i], list[k]) == 0)
                return true;
    return false;
}

static void add_command(struct walk *w, const struct simple *s)
{
    struct br_shell *sh = w->sh;
    if (s->count == 0) {
        if (s->env_count) /* with a redirection, and no program */
            shell_refuse(sh, SHELL_UNKNOWN);
        return;
    }
    if (sh->ncommands == BR_SHELL_COMMANDS_MAX) {
        shell_refuse(sh, "it has too many commands");
        return;
    }
    const char *program = sh->words[s->first];
    if (is_reserved(program))
        shell_refuse(sh, "it has a word of the shell's grammar where a program belongs");
    if (br_word_unknown(program))
        shell_refuse(sh, "which program it runs is known only when it runs");
    sh->moves |= moves(sh, s);
    sh->commands[sh->ncommands++] = (struct br_shell_command){
        s->first, s->count, s->env_count ? s->env_first : s->first, s->env_count};
}

static void gather(struct walk *w, struct simple *s)
{
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        shell_gap(w, s->at, ts_node_start_byte(c.node), false);
        if (c.kind == K_ASSIGNMENT) {
            add_variable(w, s);
        } else if (c.kind == K_COMMAND_NAME) {
            if (shell_first_child(w)) {
                add_word(w, s);
                if (ts_tree_cursor_goto_next_sibling(&w->cursor))
                    shell_refuse(w->sh, SHELL_UNKNOWN);
                ts_tree_cursor_goto_parent(&w->cursor);
            } else {
                shell_refuse(w->sh, SHELL_UNKNOWN);
            }
        } else if (c.kind == K_FILE_REDIRECT) {
            file_redirect(w, s);
        } else if (c.kind == K_HERE_STRING) {
            here_string(w);
        } else if (c.kind == K_HERE_REDIRECT) {
            here_redirect(w, s);
        } else if (shell_is_word(c.kind) || c.kind == K_TOKEN) {
            add_word(w, s);
        } else {
            shell_refuse(w->sh, SHELL_UNKNOWN);
        }
        s->at = ts_node_end_byte(c.node);
    }
}

static void simple_command(struct walk *w)
{
    struct simple s = {.at = ts_node_start_byte(shell_here(w))};
    gather(w, &s);
    add_command(w, &s);
    inner(w, false);
}

/* `python3 - <<END`: the grammar loses a '-' that stands alone before a here-document. */
static bool lost_dash(struct walk *w, struct simple *s, uint32_t to)
{
    uint32_t at = s->at, end = to;
    while (at < end && strchr(" \t", w->text[at]))
        at++;
    while (end > at && strchr(" \t", w->text[end - 1]))
        end--;
    if (s->count == 0 || at == s->at || end == to || end - at != 1 || w->text[at] != '-')
        return false;
    size_t start = w->sh->text_len;
    shell_put(w->sh, '-');
    s->count += shell_add_word(w->sh, start) != NULL;
    return true;
}

/* A body, which may be missing, and its redirections. */
static void redirected(struct walk *w)
{
    struct simple s = {.at = ts_node_start_byte(shell_here(w))};
    bool body = false, simple = true;
    for (struct shell_child c = {.inside = false}; shell_each(w, &c);) {
        if (!(c.kind == K_HERE_REDIRECT && simple && lost_dash(w, &s, ts_node_start_byte(c.node))))
            shell_gap(w, s.at, ts_node_start_byte(c.node), false);
        if (c.kind == K_FILE_REDIRECT) {
            file_redirect(w, simple ? &s : NULL);
        } else if (c.kind == K_HERE_REDIRECT) {
            here_redirect(w, simple ? &s : NULL);
        } else if (c.kind == K_HERE_STRING) {
            here_string(w);
        } else if (!body && c.kind == K_COMMAND) {
            body = true;
            gather(w, &s);
        } else if (!body) { /* inner() looks at it */
            body = true;
            simple = false;
            if (c.kind == K_OTHER || shell_is_word(c.kind))
                shell_refuse(w->sh, SHELL_UNKNOWN);
        } else {
            shell_refuse(w->sh, SHELL_UNKNOWN);
        }
        s.at = ts_node_end_byte(c.node);
    }
    add_command(w, &s);
    inner(w, true);
}

/* X=1 that belongs to no command. */
static void check_variable(struct walk *w, bool exported)
{
    size_t start = w->sh->text_len;
    put_assignment(w, &start);
    shell_put(w->sh, '\0');
    if (exported ? !br_env_harmless(w->sh->text + start) : !br_env_local(w->sh->text + start))
        shell_refuse(w->sh, "it sets a variable that can change what runs");
    w->sh->text_len = start;
    w->variables++;
    inner(w, false);
}

static void variables(struct walk *w, bool exported)
{
    uint32_t at = ts_node_start_byte(shell_here(w));
    unsigned part = 0;
    for (struct shell_child c = {.inside = false}; shell_each_apart(w, &c, &at, false);) {
        if (c.kind == K_ASSIGNMENT)
            check_variable(w, exported);
        else if (part > 0 || c.kind != K_TOKEN || !shell_text_is(w, c.node, "export"))
            shell_refuse(w->sh, "it declares variables in a way that is not taken apart");
        part++;
    }
}

#define TEST_NAME "it has a test that may be of a variable by its name, in which bash runs commands"

/* [ ... ]: a program whose arguments nobody needs to know. */
static void test_words(struct walk *w)
{
    static const char *const known[] = {"[", "]", "=", "==", "!=", "!", "-a", "-o"};
    if (!shell_enter(w))
        return;
    uint32_t at = ts_node_start_byte(shell_here(w));
    for (struct shell_child c = {.inside = false}; shell_each_apart(w, &c, &at, false);) {
        if (c.kind == K_TOKEN && !shell_text_in(w, c.node, known, BR_ARRAY_LEN(known)))
            shell_refuse(w->sh, SHELL_UNKNOWN);
        if (shell_is_word(c.kind)) {
            size_t start = w->sh->text_len;
            shell_word(w, false);
            shell_put(w->sh, '\0');
            if (strcmp(w->sh->text + start, "-v") == 0 ||
                br_has_mark(w->sh->text + start, BR_UNKNOWN_ANY))
                shell_refuse(w->sh, TEST_NAME);
            w->sh->text_len = start;
            inner_word(w);
        } else if (c.kind == K_OTHER) {
            if (shell_text_is(w, c.node, "-v"))
                shell_refuse(w->sh, TEST_NAME);
            test_words(w);
        } else if (c.kind != K_TOKEN) {
            shell_refuse(w->sh, SHELL_UNKNOWN);
        }
    }
    w->depth--;
}

static void test_command(struct walk *w)
{
    struct br_shell *sh = w->sh;
    uint32_t from = ts_node_start_byte(shell_here(w));
    if (from + 1 >= w->len || w->text[from] != '[' || !strchr(" \t", w->text[from + 1])) {
        shell_refuse(sh, "it has a test that only bash knows");
    } else {
        size_t start = sh->text_len;
        struct simple s = {.first = sh->nwords};
        shell_put(sh, '[');
        s.count += shell_add_word(sh, start) != NULL;
        start = sh->text_len;
        shell_put(sh, BR_UNKNOWN_ANY);
        s.count += shell_add_word(sh, start) != NULL;
        if (s.count == 2)
            add_command(w, &s);
    }
    test_words(w);
}

/* ---- compound commands ---- */

static void block(struct walk *w)
{
    TSNode whole = shell_here(w);
    uint32_t at = ts_node_start_byte(whole);
    if (!shell_enter(w))
        return;
    for (struct shell_child c = {.inside = false}; shell_each_apart(w, &c, &at, true);) {
        if (c.kind == K_TOKEN)
            shell_check_token(w);
        else if (c.kind == K_COMMENT)
            shell_check_comment(w);
        else if (c.kind == K_FILE_REDIRECT) /* $(< file) */
            file_redirect(w, NULL);
        else
            statement(w);
    }
    shell_gap(w, at, ts_node_end_byte(whole), true);
    w->depth--;
}

static void for_loop(struct walk *w)
{
    uint32_t at = ts_node_start_byte(shell_here(w));
    for (struct shell_child c = {.inside = false}; shell_each_apart(w, &c, &at, true);) {
        size_t start = w->sh->text_len;
        if (c.kind == K_NAME) {
            for (uint32_t i = ts_node_start_byte(c.node); i < at; i++)
                shell_put(w->sh, w->text[i]);
            shell_put(w->sh, '\0');
            if (!br_env_local(w->sh->text + start))
                shell_refuse(w->sh, "it sets a variable that can change what runs");
        } else if (shell_is_word(c.kind)) {
            shell_word(w, false);
            inner_word(w);
            continue; /* what is inside has its words there */
        } else if (c.kind == K_BLOCK) {
            statement(w);
            continue;
        } else if (c.kind != K_TOKEN || shell_text_is(w, c.node, "select")) {
            shell_refuse(w->sh, SHELL_UNKNOWN);
        }
        w->sh->text_len = start;
    }
}

/* A pattern of `case`: its text decides nothing, but it must be one. */
static void check_pattern(struct walk *w)
{
    TSNode n = shell_here(w);
    bool extended = shell_kind(n) == K_PATTERN;
    for (uint32_t i = ts_node_start_byte(n); i < ts_node_end_byte(n); i++)
        if (strchr(";&|()<>`\n\\", w->text[i]) || (extended && w->text[i] == '$'))
            shell_refuse(w->sh, "it has a pattern that is not understood");
}

static void case_part(struct walk *w)
{
    static const char *const known[] = {"case", "in", "esac", "(", ")", "|", ";;", ";", "\n", "&"};
    uint32_t at = ts_node_start_byte(shell_here(w));
    bool item = shell_kind(shell_here(w)) == K_CASE_ITEM;
    if (!shell_enter(w))
        return;
    for (struct shell_child c = {.inside = false}; shell_each_apart(w, &c, &at, true);) {
        if (c.kind == K_TOKEN) {
            if (!shell_text_in(w, c.node, known, BR_ARRAY_LEN(known)))
                shell_refuse(w->sh, SHELL_UNKNOWN);
        } else if (c.kind == K_CASE_ITEM) {
            case_part(w);
        } else if (c.kind == K_COMMENT) {
            shell_check_comment(w);
        } else if (shell_is_word(c.kind)) {
            size_t start = w->sh->text_len;
            if (item)
                check_pattern(w);
            if (c.kind != K_PATTERN) /* for its checks */
                shell_word(w, false);
            w->sh->text_len = start;
            inner_word(w);
        } else if (item) {
            statement(w);
        } else {
            shell_refuse(w->sh, SHELL_UNKNOWN);
        }
    }
    w->depth--;
}

/* The body is decided whether it is called or not. */
static void function(struct walk *w)
{
    uint32_t at = ts_node_start_byte(shell_here(w));
    unsigned words = 0;
    for (struct shell_child c = {.inside = false}; shell_each_apart(w, &c, &at, true);) {
        if (c.kind == K_WORD && words++ == 0) {
            for (uint32_t i = ts_node_start_byte(c.node); i < at; i++)
                if (strchr("\\*?[~{}=!#", w->text[i]))
                    shell_refuse(w->sh, SHELL_UNKNOWN);
        } else if (c.kind == K_TOKEN) {
            if (!shell_text_is(w, c.node, "(") && !shell_text_is(w, c.node, ")"))
                shell_refuse(w->sh, "it has a function in a form that only bash knows");
        } else if (c.kind == K_BLOCK) {
            statement(w);
        } else {
            shell_refuse(w->sh, SHELL_UNKNOWN);
            inner_word(w);
        }
    }
}

static void statement(struct walk *w)
{
    if (!shell_enter(w))
        return;
    switch (shell_kind(shell_here(w))) {
    case K_BLOCK:
        block(w);
        break;
    case K_COMMAND:
        simple_command(w);
        break;
    case K_REDIRECTED:
        redirected(w);
        break;
    case K_ASSIGNMENT:
        check_variable(w, false);
        break;
    case K_ASSIGNMENTS:
        variables(w, false);
        break;
    case K_DECLARATION:
        variables(w, true);
        break;
    case K_TEST:
        test_command(w);
        break;
    case K_FOR:
        for_loop(w);
        break;
    case K_CASE:
        case_part(w);
        break;
    case K_FUNCTION:
        function(w);
        break;
    default:
        shell_refuse(w->sh, SHELL_UNKNOWN);
        inner(w, false);
        break;
    }
    w->depth--;
}

void shell_walk(struct walk *w)
{
    TSNode root = shell_here(w);
    if (ts_node_has_error(root) || shell_kind(root) != K_BLOCK) {
        shell_refuse(w->sh, "its grammar is not understood");
        w->broken = true;
        return;
    }
    shell_gap(w, 0, ts_node_start_byte(root), true);
    shell_gap(w, ts_node_end_byte(root), w->len, true);
    statement(w);
}
