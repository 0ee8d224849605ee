/*
 * The shell splitter: conservative and small. It knows plain words, quotes, backslashes, comments
 * and the operators ; && || | and newline. What it does not know, or what dash could understand in
 * another way, makes the whole string opaque: expansions, patterns, substitutions, redirections,
 * background jobs, groups, reserved words, assignments in front, wrappers (argv.c). The text is a
 * model's; its only power here is to be called opaque.
 */
#include <stdlib.h>
#include <string.h>

#include "script/argv.h"
#include "script/shell.h"

/* What ends a command: a newline or the end may stand alone, the others may not; a joining operator
 * needs a command behind it too. */
enum ending { END_LINE, END_LIST, END_JOIN };

struct scan {
    struct br_shell *sh;
    const char *p, *end;
    bool in_word;      /* a word is open, perhaps still empty ('') */
    size_t word_start; /* in sh->text */
    bool need_command; /* after && || | a command must follow */
};

static void put(struct scan *s, char c)
{
    /* a word is never longer than its spelling, and what ends it leaves room for its NUL */
    br_require(s->sh->text_len < s->sh->text_cap);
    s->sh->text[s->sh->text_len++] = c;
}

static bool refuse(struct br_shell *sh, const char *why)
{
    sh->opaque = true;
    sh->why = why;
    return false;
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

/* The first word of a command. Quoted reserved words are only words, but who writes them? */
static bool check_first(struct scan *s, const char *word)
{
    if (is_assignment(word))
        return refuse(s->sh, "it sets variables, which can change what runs");
    if (is_reserved(word))
        return refuse(s->sh, "it has a word of the shell's grammar, such as 'if' or '!'");
    return true;
}

static bool end_word(struct scan *s)
{
    struct br_shell *sh = s->sh;
    if (!s->in_word)
        return true;
    s->in_word = false;
    put(s, '\0');
    const char *word = sh->text + s->word_start;
    unsigned c = sh->ncommands;
    if (sh->nwords == BR_SHELL_WORDS_MAX)
        return refuse(sh, "it has too many words");
    if (sh->count[c] == 0) {
        sh->first[c] = sh->nwords;
        if (!check_first(s, word))
            return false;
    }
    sh->words[sh->nwords++] = word;
    sh->count[c]++;
    return true;
}

static bool end_command(struct scan *s, enum ending how)
{
    struct br_shell *sh = s->sh;
    if (!end_word(s))
        return false;
    unsigned c = sh->ncommands;
    if (sh->count[c] == 0)
        return how == END_LINE || refuse(sh, "an operator has no command beside it");
    const char *why;
    if (br_shell_argv_opaque(&sh->words[sh->first[c]], sh->count[c], &why))
        return refuse(sh, why);
    if (c == BR_SHELL_COMMANDS_MAX)
        return refuse(sh, "it has too many commands");
    s->need_command = how == END_JOIN;
    sh->ncommands++;
    return true;
}

static void open_word(struct scan *s)
{
    if (s->in_word)
        return;
    s->in_word = true;
    s->word_start = s->sh->text_len;
}

static bool single_quotes(struct scan *s)
{
    const char *close = memchr(s->p, '\'', (size_t)(s->end - s->p));
    if (!close)
        return refuse(s->sh, "a quote is not closed");
    while (s->p < close)
        put(s, *s->p++);
    s->p++;
    return true;
}

static bool double_quotes(struct scan *s)
{
    while (s->p < s->end) {
        char c = *s->p++;
        if (c == '"')
            return true;
        if (c == '$' || c == '`')
            return refuse(s->sh, "it has an expansion ('$' or '`')");
        if (c == '\\' && s->p < s->end && strchr("$`\"\\\n", *s->p)) {
            c = *s->p++;
            if (c == '\n')
                continue;
        }
        put(s, c);
    }
    return refuse(s->sh, "a quote is not closed");
}

static bool backslash(struct scan *s)
{
    if (s->p == s->end)
        return refuse(s->sh, "it ends in a backslash");
    char c = *s->p++;
    if (c == '\n')
        return true; /* a continued line */
    open_word(s);
    put(s, c);
    return true;
}

/* One of ; & | and newline; p is behind it. */
static bool operator(struct scan *s, char c)
{
    bool doubled = s->p < s->end && *s->p == c;
    if (c == '\n')
        return end_command(s, END_LINE);
    if (c == ';')
        return doubled ? refuse(s->sh, "';;' belongs to 'case'") : end_command(s, END_LIST);
    if (c == '&' && !doubled)
        return refuse(s->sh, "it starts a job in the background ('&')");
    s->p += doubled;
    if (s->p < s->end && (*s->p == '&' || *s->p == '|'))
        return refuse(s->sh, "its operators are not those of a simple list");
    return end_command(s, END_JOIN);
}

static bool one_char(struct scan *s)
{
    char c = *s->p++;
    switch (c) {
    case ' ':
    case '\t':
        return end_word(s);
    case '\n':
    case ';':
    case '&':
    case '|':
        return operator(s, c);
    case '\'':
        open_word(s);
        return single_quotes(s);
    case '"':
        open_word(s);
        return double_quotes(s);
    case '\\':
        return backslash(s);
    case '#':
        if (s->in_word)
            break;
        while (s->p < s->end && *s->p != '\n')
            s->p++;
        return true;
    case '$':
    case '`':
        return refuse(s->sh, "it has an expansion ('$' or '`')");
    case '<':
    case '>':
        return refuse(s->sh, "it redirects input or output");
    case '(':
    case ')':
        return refuse(s->sh, "it has a subshell or a function");
    case '~':
        if (s->in_word)
            break;
        return refuse(s->sh, "it has a word that starts with '~'");
    case '{':
    case '}':
        return refuse(s->sh, "it has braces");
    case '*':
    case '?':
    case '[':
        return refuse(s->sh, "it has a pattern, and the words it stands for depend on files");
    default:
        if ((unsigned char)c < 0x20 || c == 0x7f)
            return refuse(s->sh, "it has a control character");
        break;
    }
    open_word(s);
    put(s, c);
    return true;
}

void br_shell_free(struct br_shell *sh)
{
    free(br_steal_ptr(&sh->text));
}

static void parse(struct scan *s)
{
    while (s->p < s->end)
        if (!one_char(s))
            return;
    if (!end_command(s, END_LINE))
        return;
    if (s->need_command)
        refuse(s->sh, "an operator has no command beside it");
    else if (s->sh->ncommands == 0)
        refuse(s->sh, "it has no command");
}

void br_shell_parse(struct br_shell *sh, const void *text, size_t n)
{
    memset(sh, 0, sizeof(*sh));
    if (n == 0) {
        refuse(sh, "it has no command");
    } else if (n > BR_SHELL_MAX) {
        refuse(sh, "it is too long");
    } else if (!br_utf8_valid(text, n) || memchr(text, 0, n)) {
        refuse(sh, "it is not text");
    } else {
        sh->text_cap = n + 2;
        sh->text = malloc(sh->text_cap);
        struct scan s = {.sh = sh, .p = text, .end = (const char *)text + n};
        if (sh->text)
            parse(&s);
        else
            refuse(sh, "there is no memory to take it apart");
    }
    if (sh->opaque)
        sh->ncommands = sh->nwords = 0;
}

/* ---- what may run in an opaque string ---- */

/* Reads on where the parser gives up. Its words are only ever compared with rules that deny, so
 * that a mistake makes an answer stricter. */
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
    bool skip = g->drop || sh->nwords == BR_SHELL_WORDS_MAX || c == BR_SHELL_COMMANDS_MAX ||
                (sh->count[c] == 0 && (!*word || is_reserved(word) || is_assignment(word)));
    g->drop = g->here = false;
    if (skip)
        return;
    if (sh->count[c]++ == 0)
        sh->first[c] = sh->nwords;
    sh->words[sh->nwords++] = word;
}

static void guess_command(struct guess *g)
{
    struct br_shell *sh = g->s.sh;
    guess_word(g);
    g->drop = g->here = false;
    if (sh->ncommands < BR_SHELL_COMMANDS_MAX && sh->count[sh->ncommands])
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

void br_shell_guess(struct br_shell *sh, const void *text, size_t n)
{
    sh->ncommands = sh->nwords = 0;
    memset(sh->count, 0, sizeof(sh->count));
    if (!sh->text) /* it is no text, or there is no memory */
        return;
    sh->text_len = 0;
    struct guess g = {.s = {.sh = sh, .p = text, .end = (const char *)text + n}};
    while (g.s.p < g.s.end)
        guess_char(&g, *g.s.p++);
    guess_command(&g);
}
