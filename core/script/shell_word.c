/*
 * Words: what the shell makes of quotes, backslashes and expansions, with a mark in the place of
 * everything that is known only when it runs. The tree says where a word begins and ends; each of
 * its bytes is read again here, and one that does not belong where the tree has it makes the string
 * opaque. sh and bash differ in places; where they do, the word is marked or the string is opaque.
 */
#include <string.h>

#include "script/shell_priv.h"

#define MISREAD "it has a word that is not understood"

struct word {
    struct walk *w;
    size_t start;      /* in the text of the result */
    bool begun;        /* it has a part already */
    bool assignment;   /* the value of one: '~' behind a colon counts */
    bool equals;       /* an unquoted '=' came */
    bool brace, comma; /* unquoted, as in {a,b} and {1..2} */
    bool covered;      /* a mark stands for all that follows */
    char last;         /* the last unquoted byte, 0 behind anything else */
};

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool shell_is_word(enum kind k)
{
    switch (k) {
    case K_WORD:
    case K_STRING:
    case K_RAW_STRING:
    case K_ANSI_STRING:
    case K_CONCATENATION:
    case K_VARIABLE:
    case K_EXPANSION:
    case K_ARITHMETIC:
    case K_BRACES:
    case K_PATTERN:
    case K_SUBSTITUTION:
    case K_PROCESS:
        return true;
    default:
        return false;
    }
}

static void put(struct word *s, char c)
{
    if (!s->covered)
        shell_put(s->w->sh, c);
    s->begun = true;
}

static void mark(struct word *s, char mark)
{
    struct br_shell *sh = s->w->sh;
    s->begun = true;
    s->last = 0;
    if (s->covered || (sh->text_len > s->start && sh->text[sh->text_len - 1] == BR_UNKNOWN_ANY))
        return; /* what is there stands for this one too */
    shell_put(sh, mark);
}

/* Bytes outside of quotes. */
static void put_bare(struct word *s, uint32_t from, uint32_t to)
{
    const char *text = s->w->text;
    for (uint32_t i = from; i < to; i++) {
        char c = text[i], before = s->last;
        s->last = c;
        switch (c) {
        case '\\':
            if (++i >= to) {
                shell_refuse(s->w->sh, "it has a backslash at an end");
                return;
            }
            s->last = 0;
            if (text[i] != '\n')
                put(s, text[i]);
            else
                s->last = before;
            continue;
        case '*':
        case '?':
            mark(s, BR_UNKNOWN_FILE);
            continue;
        case '[': /* where that ends, shells do not agree */
            mark(s, BR_UNKNOWN_ANY);
            s->covered = true;
            continue;
        case '~':
            if (!s->begun || before == '=' || (before == ':' && (s->equals || s->assignment))) {
                mark(s, BR_UNKNOWN_ANY);
                continue;
            }
            break;
        case '#':
            if (!s->begun)
                shell_refuse(s->w->sh, MISREAD);
            break;
        case '=':
            s->equals = true;
            break;
        case '{':
            s->brace = true;
            break;
        case ',':
            s->comma |= s->brace;
            break;
        case '.':
            s->comma |= s->brace && before == '.';
            break;
        case '$':
        case '`':
        case '"':
        case '\'':
        case '(':
        case ')':
        case '<':
        case '>':
        case '|':
        case '&':
        case ';':
        case ' ':
        case '\t':
        case '\n':
            shell_refuse(s->w->sh, MISREAD);
            break;
        default:
            break;
        }
        put(s, c);
    }
}

/* Does a '$' at `i` begin an expansion, for any shell? */
static bool is_expansion(const struct walk *w, uint32_t i)
{
    char c = i + 1 < w->len ? w->text[i + 1] : 0;
    return is_name_char(c) || (c && strchr("{([@*#?!$-", c));
}

/* Bytes inside of double quotes. */
static void put_quoted(struct word *s, uint32_t from, uint32_t to)
{
    const char *text = s->w->text;
    for (uint32_t i = from; i < to; i++) {
        char c = text[i];
        if (c == '"' || c == '`' || (c == '$' && is_expansion(s->w, i))) {
            shell_refuse(s->w->sh, MISREAD);
        } else if (c == '\\') {
            if (++i >= to) {
                shell_refuse(s->w->sh, MISREAD);
                return;
            }
            if (text[i] == '\n')
                continue;
            if (!strchr("$`\"\\", text[i]))
                put(s, '\\');
            c = text[i];
        }
        put(s, c);
    }
}

/* $NAME, $1, $?: the name ends where the tree says. */
static bool variable_ok(const struct walk *w, uint32_t from, uint32_t to)
{
    const char *p = w->text + from;
    uint32_t n = to - from;
    if (n < 2 || p[0] != '$')
        return false;
    if (!is_name_char(p[1]))
        return n == 2 && strchr("@*#?!$-", p[1]);
    for (uint32_t i = 1; i < n; i++)
        if (!is_name_char(p[i]))
            return false;
    bool digit = p[1] >= '0' && p[1] <= '9';
    return digit ? n == 2 : to == w->len || !is_name_char(w->text[to]);
}

/*
 * What stands behind an operator in ${NAME...}, up to the brace at `end`. The tree says nothing
 * reliable about it (backquotes are letters there), and shells do not agree on its quotes, so only
 * letters, $NAME and other expansions are taken; a quote must end, and nothing in it is special.
 */
static bool operand_ok(const char *p, const char *end, unsigned depth);

/*
 * ${NAME}, ${#NAME}, and with one of the operators that neither set a variable nor run what is in
 * one: - + ? # % / and their doubled and colon forms. `p` is behind "${".
 */
static bool parameter_ok(const char *p, const char *end, unsigned depth)
{
    bool length = *p == '#' && is_name_char(p[1]);
    p += length;
    const char *name = p;
    while (p < end && is_name_char(*p))
        p++;
    if (p == name && p < end && strchr("@*?$-", *p))
        p++;
    if (p == name)
        return false;
    if (p == end)
        return true;
    if (length)
        return false;
    if (*p == ':' ? p + 1 >= end || !strchr("-+?", p[1]) : !strchr("-+?#%/", *p))
        return false;
    return operand_ok(p + 1, end, depth);
}

/* The brace that ends the "${" before `p`, or NULL. */
static const char *closing(const char *p, const char *end)
{
    for (unsigned open = 1; p < end; p++) {
        open += *p == '{';
        open -= *p == '}';
        if (open == 0)
            return p;
    }
    return NULL;
}

static bool operand_ok(const char *p, const char *end, unsigned depth)
{
    char quote = 0;
    for (; p < end; p++) {
        if (strchr("`\\{}()<>;|&\n", *p))
            return false;
        if (*p == '"' || *p == '\'') {
            if (quote && quote != *p)
                return false;
            quote = quote ? 0 : *p;
        } else if (*p == '$' && p + 1 < end && p[1] == '{') {
            const char *stop = closing(p + 2, end);
            if (quote || depth == 4 || !stop || !parameter_ok(p + 2, stop, depth + 1))
                return false;
            p = stop;
        } else if (*p == '$' &&
                   (p + 1 >= end || !(is_name_char(p[1]) || strchr("@*#?!$-", p[1])))) {
            return false; /* $'...', $[...] */
        }
    }
    return !quote;
}

static bool expansion_ok(const struct walk *w, uint32_t from, uint32_t to)
{
    const char *p = w->text + from, *end = w->text + to - 1;
    if (to - from < 4 || p[0] != '$' || p[1] != '{' || *end != '}')
        return false;
    return parameter_ok(p + 2, end, 0);
}

/* $((1 + 2)): a variable's value would be read as an expression too, and bash runs what is in it.
 */
static bool arithmetic_ok(const struct walk *w, uint32_t from, uint32_t to)
{
    const char *p = w->text + from;
    uint32_t n = to - from;
    if (n < 6 || memcmp(p, "$((", 3) != 0 || memcmp(p + n - 2, "))", 2) != 0)
        return false;
    for (uint32_t i = 3; i < n; i++)
        if (!strchr("0123456789+-*/%() ", p[i]))
            return false;
    return true;
}

/* Inside of backquotes a backslash means something else, and in quotes a quote does. */
static bool substitution_ok(const struct walk *w, uint32_t from, uint32_t to, bool quoted)
{
    const char *p = w->text + from;
    uint32_t n = to - from;
    if (n >= 3 && p[0] == '$' && p[1] == '(')
        return p[n - 1] == ')';
    return n >= 2 && p[0] == '`' && p[n - 1] == '`' && !memchr(p, '\\', n) &&
           !(quoted && memchr(p, '"', n)) && !memchr(p + 1, '`', n - 2);
}

static bool many(const struct walk *w, uint32_t from, uint32_t to)
{
    return memchr(w->text + from, '@', to - from) || memchr(w->text + from, '*', to - from);
}

static void put_expansion(struct word *s, enum kind k, TSNode node, bool quoted)
{
    struct walk *w = s->w;
    uint32_t from = ts_node_start_byte(node), to = ts_node_end_byte(node);
    bool ok = k == K_VARIABLE       ? variable_ok(w, from, to)
              : k == K_EXPANSION    ? expansion_ok(w, from, to)
              : k == K_ARITHMETIC   ? arithmetic_ok(w, from, to)
              : k == K_SUBSTITUTION ? substitution_ok(w, from, to, quoted)
                                    : false;
    if (!ok)
        shell_refuse(w->sh, "it has an expansion that is not taken apart");
    bool variable = k == K_VARIABLE || k == K_EXPANSION;
    if (k == K_VARIABLE && to - from == 2 && strchr("?#$", w->text[from + 1]))
        quoted = true; /* a number */
    mark(s, quoted && !(variable && many(w, from, to)) ? BR_UNKNOWN_PART : BR_UNKNOWN_ANY);
}

static void put_string(struct word *s, TSNode node)
{
    struct walk *w = s->w;
    uint32_t from = ts_node_start_byte(node), to = ts_node_end_byte(node), at = from + 1;
    s->last = 0;
    if (to - from < 2 || w->text[from] != '"' || w->text[to - 1] != '"') {
        shell_refuse(w->sh, MISREAD);
        return;
    }
    s->begun = true;
    if (ts_tree_cursor_goto_first_child(&w->cursor)) {
        do {
            TSNode child = ts_tree_cursor_current_node(&w->cursor);
            enum kind k = shell_kind(child);
            if (!shell_count(w))
                break;
            if (k == K_TOKEN || k == K_CONTENT)
                continue;
            if (!shell_is_word(k) || ts_node_start_byte(child) < at) {
                shell_refuse(w->sh, MISREAD);
                continue;
            }
            put_quoted(s, at, ts_node_start_byte(child));
            put_expansion(s, k, child, true);
            at = ts_node_end_byte(child);
        } while (ts_tree_cursor_goto_next_sibling(&w->cursor));
        ts_tree_cursor_goto_parent(&w->cursor);
    }
    put_quoted(s, at, to - 1);
}

static void put_raw(struct word *s, TSNode node)
{
    uint32_t from = ts_node_start_byte(node), to = ts_node_end_byte(node);
    const char *text = s->w->text;
    s->last = 0;
    s->begun = true;
    if (to - from < 2 || text[from] != '\'' || text[to - 1] != '\'' ||
        memchr(text + from + 1, '\'', to - from - 2)) {
        shell_refuse(s->w->sh, MISREAD);
        return;
    }
    for (uint32_t i = from + 1; i + 1 < to; i++)
        put(s, text[i]);
}

static void put_token(struct word *s, TSNode node)
{
    uint32_t from = ts_node_start_byte(node), to = ts_node_end_byte(node);
    const struct walk *w = s->w;
    if (to - from == 1 && w->text[from] == '$' && !is_expansion(w, from) &&
        (to == w->len || !strchr("'\"", w->text[to])))
        put(s, '$');
    else
        put_bare(s, from, to);
}

static bool ansi_ok(const struct walk *w, TSNode node)
{
    uint32_t from = ts_node_start_byte(node), to = ts_node_end_byte(node);
    const char *p = w->text + from;
    return to - from >= 3 && p[0] == '$' && p[1] == '\'' && p[to - from - 1] == '\'' &&
           !memchr(p + 2, '\'', to - from - 3);
}

/* One node that is no concatenation. */
static void put_part(struct word *s, TSNode node, enum kind k)
{
    switch (k) {
    case K_TOKEN:
        put_token(s, node);
        break;
    case K_WORD:
        if (ts_node_child_count(node) > 0)
            shell_refuse(s->w->sh, MISREAD);
        put_bare(s, ts_node_start_byte(node), ts_node_end_byte(node));
        break;
    case K_STRING:
        put_string(s, node);
        break;
    case K_RAW_STRING:
        put_raw(s, node);
        break;
    case K_ANSI_STRING: /* sh takes the '$' as it is, and a string ends at the first quote */
        if (!ansi_ok(s->w, node))
            shell_refuse(s->w->sh, MISREAD);
        mark(s, BR_UNKNOWN_PART);
        break;
    case K_BRACES:
    case K_PROCESS:
        mark(s, BR_UNKNOWN_ANY);
        break;
    case K_VARIABLE:
    case K_EXPANSION:
    case K_ARITHMETIC:
    case K_SUBSTITUTION:
        put_expansion(s, k, node, false);
        break;
    default:
        shell_refuse(s->w->sh, MISREAD);
        mark(s, BR_UNKNOWN_ANY);
        break;
    }
}

void shell_word(struct walk *w, bool assignment)
{
    struct word s = {.w = w, .start = w->sh->text_len, .assignment = assignment};
    TSNode node = ts_tree_cursor_current_node(&w->cursor);
    enum kind k = shell_kind(node);
    uint32_t at = ts_node_start_byte(node);
    if (k != K_CONCATENATION) {
        put_part(&s, node, k);
    } else if (ts_tree_cursor_goto_first_child(&w->cursor)) {
        do {
            TSNode child = ts_tree_cursor_current_node(&w->cursor);
            if (!shell_count(w))
                break;
            if (ts_node_start_byte(child) != at)
                shell_refuse(w->sh, MISREAD);
            put_part(&s, child, shell_kind(child));
            at = ts_node_end_byte(child);
        } while (ts_tree_cursor_goto_next_sibling(&w->cursor));
        ts_tree_cursor_goto_parent(&w->cursor);
        if (at != ts_node_end_byte(node))
            shell_refuse(w->sh, MISREAD);
    }
    if (s.brace && s.comma) { /* bash makes several words of it, sh does not */
        w->sh->text_len = s.start;
        shell_put(w->sh, BR_UNKNOWN_ANY);
    }
}

void shell_here_text(struct walk *w, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (w->text[i] == '\\')
            i++;
        else if (w->text[i] == '`' || (w->text[i] == '$' && is_expansion(w, i)))
            shell_refuse(w->sh, "it has a here-document that is not understood");
    }
}
