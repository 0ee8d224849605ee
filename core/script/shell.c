/*
 * The shell splitter: conservative and small. It knows plain words, quotes, backslashes, comments
 * and the operators ; && || | and newline. What it does not know, or what dash could understand in
 * another way, makes the whole string opaque: expansions, substitutions, redirections, background
 * jobs, groups, reserved words, assignments in front, wrappers (argv.c), patterns in the place of
 * a program. The text is a model's; its only power here is to be called opaque.
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
    bool pattern;      /* the open word has an unquoted * ? [ */
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

/* The first word of a command. Quoted reserved words are only words, but who writes them? */
static bool check_first(struct scan *s, const char *word)
{
    if (s->pattern)
        return refuse(s->sh, "the program is a pattern, and which it is depends on files");
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (name > 0 && (word[name] == '=' || (word[name] == '+' && word[name + 1] == '=')))
        return refuse(s->sh, "it sets variables, which can change what runs");
    for (size_t i = 0; i < BR_ARRAY_LEN(reserved); i++)
        if (strcmp(word, reserved[i]) == 0)
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
    s->pattern = false;
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
        open_word(s);
        s->pattern = true;
        put(s, c);
        return true;
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

static void run(struct scan *s)
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
            run(&s);
        else
            refuse(sh, "there is no memory to take it apart");
    }
    if (sh->opaque)
        sh->ncommands = sh->nwords = 0;
}
