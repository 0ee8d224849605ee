/*
 * One line of 'bridle repl': is it a verb or Lua, and the words of a verb. Pure functions over what
 * the operator typed, or what came through a pipe; nothing in it is trusted to be text.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/repl.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* The first word: its length, and what stands behind the blanks after it. */
static size_t first_word(const char **line, const char **rest)
{
    while (is_blank(**line))
        ++*line;
    size_t n = 0;
    while (is_word((*line)[n]))
        n++;
    *rest = *line + n;
    while (is_blank(**rest))
        ++*rest;
    return n;
}

/*
 * `events (x)`, `events = 1` and `sessions[1]` are Lua. A word that is glued to something else is
 * no word, and neither is one before an operator; but `events last ..5` is a verb.
 */
static bool goes_on_as_lua(const char *end, const char *rest)
{
    if (*end && !is_blank(*end))
        return true;
    if (*rest == '\0')
        return false;
    if (strchr("=([{:,+*%^&|<>#;", *rest))
        return true;
    /* "./policy.lua", "~/policy.lua", "-x" and "..5" are words */
    return (*rest == '.' && is_word(rest[1])) || (*rest == '.' && is_blank(rest[1])) ||
           (*rest == '~' && rest[1] == '=') || (*rest == '-' && is_blank(rest[1]));
}

const struct br_word *repl_line_verb(const char *line)
{
    const char *rest;
    size_t n = first_word(&line, &rest);
    if (n == 0 || goes_on_as_lua(line + n, rest))
        return NULL;
    if (n == 4 && memcmp(line, "exit", 4) == 0 && *rest == '\0')
        return br_word_find("quit");
    for (const struct br_word *w = br_words; w->name; w++)
        if ((w->kinds & BR_WORD_VERB) && strlen(w->name) == n && memcmp(w->name, line, n) == 0)
            return w;
    return NULL;
}

int repl_line_split(const char *line, struct repl_line *l, struct br_err *err)
{
    *l = (struct repl_line){.n = 0};
    size_t len = strlen(line);
    if (len > REPL_LINE_MAX)
        return br_err_set(err, BR_E_USAGE, "the line is longer than %u bytes; nothing was done",
                          REPL_LINE_MAX);
    if (!br_utf8_valid(line, len))
        return br_err_set(err, BR_E_USAGE, "the line is not valid UTF-8; nothing was done");
    l->text = malloc(len + 1);
    if (!l->text)
        return br_err_set(err, BR_E_NOMEM, "no memory for a line");
    char *out = l->text;
    for (const char *p = line;;) {
        while (is_blank(*p))
            p++;
        if (*p == '\0')
            return 0;
        if (l->n == REPL_WORDS_MAX)
            return br_err_set(err, BR_E_USAGE, "the line has more than %u words; nothing was done",
                              REPL_WORDS_MAX);
        l->words[l->n++] = out;
        for (char quote = '\0'; *p && (quote || !is_blank(*p)); p++) {
            if (quote ? *p == quote : *p == '\'' || *p == '"')
                quote = quote ? '\0' : *p;
            else
                *out++ = *p;
            if (quote && p[1] == '\0')
                return br_err_set(err, BR_E_USAGE, "the quote %c is not closed; nothing was done",
                                  quote);
        }
        *out++ = '\0';
    }
}

void repl_line_free(struct repl_line *l)
{
    free(l->text);
    *l = (struct repl_line){.n = 0};
}

static bool number(const char *s, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    if (n > 15)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    *out = v;
    return n == 0 || v > 0;
}

bool repl_line_range(const char *word, uint64_t *from, uint64_t *to)
{
    const char *dots = strstr(word, "..");
    size_t n = dots ? (size_t)(dots - word) : strlen(word);
    if (!number(word, n, from) || (!dots && n == 0))
        return false;
    if (!dots) {
        *to = *from;
        return true;
    }
    if (!number(dots + 2, strlen(dots + 2), to) || (n == 0 && dots[2] == '\0'))
        return false;
    return !*to || *from <= *to;
}

const char *repl_line_meant(const char *line)
{
    static const char *const lua[] = {"local",    "return", "for",   "while", "if",
                                      "repeat",   "do",     "break", "not",   "goto",
                                      "function", "nil",    "true",  "false"};
    const char *names[64], *rest;
    char word[41];
    size_t k = 0, n = first_word(&line, &rest);
    if (n == 0 || n >= sizeof(word) || goes_on_as_lua(line + n, rest) ||
        (*rest && !is_word(*rest) && *rest != '\'' && *rest != '"'))
        return NULL;
    snprintf(word, sizeof(word), "%.*s", (int)n, line);
    for (size_t i = 0; i < BR_ARRAY_LEN(lua); i++)
        if (strcmp(lua[i], word) == 0)
            return NULL;
    for (const struct br_word *w = br_words; w->name && k < BR_ARRAY_LEN(names); w++)
        if (w->kinds & BR_WORD_VERB)
            names[k++] = w->name;
    return br_cli_nearest(word, names, k);
}
