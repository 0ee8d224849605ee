/*
 * Branches of the functions in a bundle's text, for `bridle policy test`: where they are, and the
 * text with one of them changed. The sandboxed state that runs checks has no hooks; a branch is
 * reached if a request would meet an error there, and tested if a case notices another condition or
 * another answer. Lua's syntax is known as far as words that open and close blocks; the text has
 * been compiled, so they match. What is inserted has no line end: places in the text stay right.
 * Operands of 'and' and 'or' are no branches here.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/policy_priv.h"

#define DEPTH_MAX 200u /* Lua's own limit of nesting */

enum block { FUNCTION, IF, LOOP_HEAD, LOOP, DO, REPEAT };

struct open_block {
    enum block kind;
    bool has_else, in_head; /* IF: between if and then; FUNCTION: before its body */
    size_t condition;       /* where the one that is read began */
};

struct reader {
    const char *s;
    size_t n, at;
    unsigned line;
    struct open_block open[DEPTH_MAX];
    unsigned depth, functions;
    struct policy_sites *out;
    bool failed;
};

static void add(struct reader *r, enum policy_site_kind kind, size_t at, size_t end,
                const char *what)
{
    struct policy_sites *o = r->out;
    if (r->functions == 0) /* runs once, when the bundle is loaded */
        return;
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 32;
        struct policy_site *more = realloc(o->list, cap * sizeof(*more));
        if (!more) {
            r->failed = true;
            return;
        }
        o->list = more;
        o->cap = cap;
    }
    o->list[o->n++] = (struct policy_site){kind, at, end, r->line, what};
}

/* ---- words ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static char look(const struct reader *r, size_t ahead)
{
    return r->at + ahead < r->n ? r->s[r->at + ahead] : '\0';
}

static void step(struct reader *r)
{
    r->line += r->s[r->at] == '\n';
    r->at++;
}

/* A long bracket that opens here is skipped with what is in it. */
static bool skip_long(struct reader *r)
{
    size_t level = 0;
    if (look(r, 0) != '[')
        return false;
    while (look(r, 1 + level) == '=')
        level++;
    if (look(r, 1 + level) != '[')
        return false;
    for (r->at += level + 2; r->at < r->n; step(r)) {
        size_t k = 0;
        if (r->s[r->at] != ']')
            continue;
        while (k < level && look(r, 1 + k) == '=')
            k++;
        if (k == level && look(r, 1 + level) == ']') {
            r->at += level + 2;
            return true;
        }
    }
    return true;
}

static void skip_comment(struct reader *r)
{
    r->at += 2;
    if (!skip_long(r))
        while (r->at < r->n && r->s[r->at] != '\n')
            r->at++;
}

static void skip_string(struct reader *r)
{
    char quote = r->s[r->at++];
    while (r->at < r->n && r->s[r->at] != quote) {
        if (r->s[r->at] == '\\' && r->at + 1 < r->n)
            step(r);
        step(r);
    }
    r->at += r->at < r->n;
}

/* ---- blocks ---- */

static void push(struct reader *r, enum block kind)
{
    if (r->depth == DEPTH_MAX) {
        r->failed = true;
        return;
    }
    r->open[r->depth++] = (struct open_block){.kind = kind, .in_head = true, .condition = r->at};
    r->functions += kind == FUNCTION;
}

static struct open_block *top(struct reader *r)
{
    return r->depth ? &r->open[r->depth - 1] : NULL;
}

static void close_block(struct reader *r, size_t word)
{
    struct open_block *b = top(r);
    if (!b) {
        r->failed = true;
        return;
    }
    if (b->kind == IF && !b->has_else)
        add(r, POLICY_SITE_OTHERWISE, word, word, "a condition is never false");
    r->functions -= b->kind == FUNCTION;
    r->depth--;
}

/* 'return "deny"': the answer of a check. */
static void note_answer(struct reader *r)
{
    static const char *const answers[] = {"\"deny\"", "'deny'", "\"ask\"", "'ask'"};
    size_t at = r->at;
    while (at < r->n && (r->s[at] == ' ' || r->s[at] == '\n' || r->s[at] == '\t'))
        at++;
    for (size_t i = 0; i < BR_ARRAY_LEN(answers); i++) {
        size_t n = strlen(answers[i]);
        if (n <= r->n - at && memcmp(r->s + at, answers[i], n) == 0)
            add(r, i < 2 ? POLICY_SITE_DENY : POLICY_SITE_ASK, at, at + n, "another answer");
    }
}

static bool is(const struct reader *r, size_t start, const char *word)
{
    size_t n = strlen(word);
    return r->at - start == n && memcmp(r->s + start, word, n) == 0;
}

static void on_word(struct reader *r, size_t start)
{
    struct open_block *b = top(r);
    if (is(r, start, "function")) {
        push(r, FUNCTION);
    } else if (is(r, start, "if")) {
        push(r, IF);
    } else if (is(r, start, "elseif") && b) {
        b->in_head = true;
        b->condition = r->at;
    } else if (is(r, start, "then") && b) {
        b->in_head = false;
        add(r, POLICY_SITE_CONDITION, b->condition, start, "the opposite of a condition");
        add(r, POLICY_SITE_BRANCH, r->at, r->at, "a condition is never true");
    } else if (is(r, start, "else") && b) {
        b->has_else = true;
        add(r, POLICY_SITE_BRANCH, r->at, r->at, "a condition is never false");
    } else if (is(r, start, "while") || is(r, start, "for")) {
        push(r, LOOP_HEAD);
    } else if (is(r, start, "do")) {
        if (b && b->kind == LOOP_HEAD) {
            b->kind = LOOP;
            add(r, POLICY_SITE_BRANCH, r->at, r->at, "a loop never runs");
        } else {
            push(r, DO);
        }
    } else if (is(r, start, "repeat")) {
        push(r, REPEAT);
    } else if (is(r, start, "until") || is(r, start, "end")) {
        close_block(r, start);
    } else if (is(r, start, "return")) {
        note_answer(r);
    }
}

/* a.b and a:b, but neither a..b nor ::a::b */
static bool is_field(const struct reader *r, size_t start)
{
    char c = start ? r->s[start - 1] : ' ';
    return (c == '.' || c == ':') && (start < 2 || r->s[start - 2] != c);
}

static void read_one(struct reader *r)
{
    char c = r->s[r->at];
    struct open_block *b = top(r);
    if (c == '-' && look(r, 1) == '-') {
        skip_comment(r);
    } else if (c == '"' || c == '\'') {
        skip_string(r);
    } else if (c == '[' && skip_long(r)) {
        ;
    } else if (is_word(c)) {
        size_t start = r->at;
        while (r->at < r->n && is_word(r->s[r->at]))
            r->at++;
        if (!is_field(r, start))
            on_word(r, start);
    } else {
        step(r);
        if (c == ')' && b && b->kind == FUNCTION && b->in_head) { /* its parameters */
            b->in_head = false;
            add(r, POLICY_SITE_BRANCH, r->at, r->at, "a function is never called");
        }
    }
}

int policy_sites_find(struct policy_sites *out, const char *text, size_t n, struct br_err *err)
{
    struct reader *r = calloc(1, sizeof(*r));
    memset(out, 0, sizeof(*out));
    if (!r)
        return br_err_set(err, BR_E_NOMEM, "no memory for the branches");
    *r = (struct reader){.s = text, .n = n, .line = 1, .out = out};
    while (r->at < r->n && !r->failed)
        read_one(r);
    bool failed = r->failed || r->depth;
    free(r);
    return failed ? br_err_set(err, BR_E_INTERNAL, "the branches of the bundle cannot be counted")
                  : 0;
}

void policy_sites_free(struct policy_sites *s)
{
    free(s->list);
    memset(s, 0, sizeof(*s));
}

bool policy_site_is_branch(const struct policy_site *s)
{
    return s->kind == POLICY_SITE_BRANCH || s->kind == POLICY_SITE_OTHERWISE;
}

int policy_site_change(struct br_buf *out, const char *text, size_t n, const struct policy_site *s,
                       struct br_err *err)
{
    br_buf_init(out, BR_POLICY_MAX);
    br_buf_put(out, text, s->at);
    switch (s->kind) {
    case POLICY_SITE_BRANCH:
        br_buf_printf(out, " do error('" POLICY_SITE_MARK "') end ");
        break;
    case POLICY_SITE_OTHERWISE:
        br_buf_printf(out, " else error('" POLICY_SITE_MARK "') ");
        break;
    case POLICY_SITE_CONDITION:
        br_buf_printf(out, " not (");
        br_buf_put(out, text + s->at, s->end - s->at);
        br_buf_printf(out, ") ");
        break;
    case POLICY_SITE_DENY:
        br_buf_printf(out, "'ask'");
        break;
    case POLICY_SITE_ASK:
        br_buf_printf(out, "'deny'");
        break;
    }
    br_buf_put(out, text + s->end, n - s->end);
    return out->failed ? br_err_set(err, BR_E_LIMIT_EXCEEDED,
                                    "the bundle is too big for its branches to be tried")
                       : 0;
}
