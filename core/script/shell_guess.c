/*
 * What may be run in a string that the parser does not understand: words between blanks and
 * operators, quotes and here-documents read roughly. They are only ever compared with rules that
 * deny, so that a mistake makes an answer stricter. Called by shell.c with a model's text.
 */
#include <string.h>

#include "script/shell_priv.h"

struct scan {
    struct br_shell *sh;
    const char *p, *end;
    bool in_word;      /* a word is open, perhaps still empty ('') */
    size_t word_start; /* in sh->text */
};

static void put(struct scan *s, char c)
{
    /* a word is never longer than its spelling, and what ends it leaves room for its NUL */
    br_require(s->sh->text_len < s->sh->text_cap);
    s->sh->text[s->sh->text_len++] = c;
}

static const char *const reserved[] = {"if",       "then", "else", "elif", "fi",   "for", "while",
                                       "until",    "do",   "done", "case", "esac", "in",  "select",
                                       "function", "!",    "{",    "}",    "[[",   "]]"};

static bool is_assignment(const char *word)
{
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return name > 0 && (word[name] == '=' || (word[name] == '+' && word[name + 1] == '='));
}

static bool is_reserved(const char *word)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(reserved); i++)
        if (strcmp(word, reserved[i]) == 0)
            return true;
    return false;
}

static void open_word(struct scan *s)
{
    if (s->in_word)
        return;
    s->in_word = true;
    s->word_start = s->sh->text_len;
}

struct guess {
    struct scan s;
    char quote;         /* ' or " while one is open */
    bool drop;          /* the next word is the file of a redirection */
    bool here, strip;   /* that word ends a here-document; tabs in front of it do not count */
    bool here_pending;  /* the document starts at the next line */
    bool here_literal;  /* its end was quoted: nothing in it is run */
    size_t here_end[2]; /* of the word that ends it: start and length, in the text */
};

static void guess_word(struct guess *g)
{
    struct scan *s = &g->s;
    struct br_shell *sh = s->sh;
    if (!s->in_word)
        return;
    s->in_word = false;
    put(s, '\0');
    const char *word = sh->text + s->word_start;
    unsigned c = sh->ncommands;
    if (g->here) {
        g->here_end[0] = s->word_start;
        g->here_end[1] = strlen(word);
        g->here_pending = true;
    }
    bool skip =
        g->drop || sh->nwords == BR_SHELL_WORDS_MAX || c == BR_SHELL_COMMANDS_MAX ||
        (sh->commands[c].count == 0 && (!*word || is_reserved(word) || is_assignment(word)));
    g->drop = g->here = false;
    if (skip)
        return;
    if (sh->commands[c].count++ == 0)
        sh->commands[c].first = sh->commands[c].env_first = sh->nwords;
    sh->words[sh->nwords++] = word;
}

static void guess_command(struct guess *g)
{
    struct br_shell *sh = g->s.sh;
    guess_word(g);
    g->drop = g->here = false;
    if (sh->ncommands < BR_SHELL_COMMANDS_MAX && sh->commands[sh->ncommands].count)
        sh->ncommands++;
}

/* p is behind < or >. */
static void guess_redirection(struct guess *g, char c)
{
    struct scan *s = &g->s;
    const char *word = s->sh->text + s->word_start;
    size_t n = s->sh->text_len - s->word_start;
    bool number = s->in_word && n > 0;
    for (size_t i = 0; i < n && number; i++)
        number = word[i] >= '0' && word[i] <= '9';
    if (number) { /* of the descriptor */
        s->in_word = false;
        s->sh->text_len = s->word_start;
    }
    guess_word(g);
    const char *from = s->p;
    while (s->p < s->end && strchr("<>&|-", *s->p))
        s->p++;
    size_t more = (size_t)(s->p - from);
    g->drop = !(more == 2 && from[0] == '&' && from[1] == '-'); /* closing names no file */
    g->here = c == '<' && more > 0 && from[0] == '<' && !(more > 1 && from[1] == '<');
    if (g->here) {
        g->strip = more > 1;
        g->here_literal = false;
    }
}

/* At the start of a line: skip the here-document, unless its end is not found or it runs things. */
static void guess_here(struct guess *g)
{
    struct scan *s = &g->s;
    const char *end = s->sh->text + g->here_end[0];
    g->here_pending = false;
    for (const char *p = s->p; p < s->end;) {
        const char *nl = memchr(p, '\n', (size_t)(s->end - p));
        const char *stop = nl ? nl : s->end, *line = p;
        while (g->strip && line < stop && *line == '\t')
            line++;
        if ((size_t)(stop - line) == g->here_end[1] && memcmp(line, end, g->here_end[1]) == 0) {
            size_t body = (size_t)(p - s->p);
            if (g->here_literal || (!memchr(s->p, '$', body) && !memchr(s->p, '`', body)))
                s->p = stop;
            return;
        }
        p = nl ? nl + 1 : s->end;
    }
}

static void guess_quoted(struct guess *g, char c)
{
    struct scan *s = &g->s;
    if (c == g->quote) {
        g->quote = 0;
    } else if (g->quote == '\'') {
        put(s, c);
    } else if (c == '`' || (c == '$' && s->p < s->end && *s->p == '(')) {
        g->quote = 0;
        guess_command(g);
    } else if (c == '\\' && s->p < s->end && strchr("$`\"\\\n", *s->p)) {
        if (*s->p != '\n')
            put(s, *s->p);
        s->p++;
    } else {
        put(s, c);
    }
}

static void guess_char(struct guess *g, char c)
{
    struct scan *s = &g->s;
    if (g->quote) {
        guess_quoted(g, c);
    } else if (c == ' ' || c == '\t') {
        guess_word(g);
    } else if (strchr(";&|()`\n", c)) {
        guess_command(g);
        if (c == '\n' && g->here_pending)
            guess_here(g);
    } else if (c == '<' || c == '>') {
        guess_redirection(g, c);
    } else if (c == '#' && !s->in_word) {
        while (s->p < s->end && *s->p != '\n')
            s->p++;
    } else if (c == '\'' || c == '"') {
        open_word(s);
        g->quote = c;
        g->here_literal |= g->here;
    } else if (c == '\\') {
        g->here_literal |= g->here;
        if (s->p < s->end && *s->p != '\n') {
            open_word(s);
            put(s, *s->p);
        }
        s->p += s->p < s->end;
    } else {
        open_word(s);
        put(s, c);
    }
}

void shell_guess(struct br_shell *sh, const char *text, size_t n)
{
    sh->ncommands = sh->nwords = sh->nredirects = 0;
    memset(sh->commands, 0, sizeof(sh->commands));
    sh->text_len = 0;
    struct guess g = {.s = {.sh = sh, .p = text, .end = text + n}};
    while (g.s.p < g.s.end)
        guess_char(&g, *g.s.p++);
    guess_command(&g);
}
