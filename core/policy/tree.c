/*
 * The parser of decision tables: strict JSON into one array of nodes, without an allocation for
 * each value, since a table of 10,000 rules has 100,000 of them and every session reads it. The
 * text is hostile; it was scanned for UTF-8, NUL, depth and number of values before. Called by
 * table.c; a test and the fuzzer compare what it accepts with what jansson does.
 */
#include <errno.h>
#include <stdlib.h>

#include "policy/tree.h"

#define DEPTH_MAX 32u

static int refuse(struct br_trees *t, const char *why)
{
    snprintf(t->why, sizeof(t->why), "%s", why);
    t->line = t->column = 1;
    for (size_t i = 0; i < t->at && i < t->len; i++) {
        t->column = t->text[i] == '\n' ? 1 : t->column + 1;
        t->line += t->text[i] == '\n';
    }
    return -BR_E_INVALID_JSON;
}

static void skip_blanks(struct br_trees *t)
{
    while (t->text[t->at] == ' ' || t->text[t->at] == '\n' || t->text[t->at] == '\t' ||
           t->text[t->at] == '\r')
        t->at++;
}

static struct br_tree *add_node(struct br_trees *t, const char *key)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        struct br_tree *p = realloc(t->nodes, cap * sizeof(*p));
        if (!p)
            return NULL;
        t->nodes = p;
        t->cap = cap;
    }
    struct br_tree *v = &t->nodes[t->n++];
    *v = (struct br_tree){.key = key, .span = 1};
    return v;
}

/* ---- texts ---- */

static int hex4(const char *s)
{
    int v = 0;
    for (unsigned i = 0; i < 4; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) /* also the NUL at the end of the text */
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static char *put_utf8(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        *out++ = (char)cp;
    } else if (cp < 0x800) {
        *out++ = (char)(0xc0 | cp >> 6);
        *out++ = (char)(0x80 | (cp & 0x3f));
    } else if (cp < 0x10000) {
        *out++ = (char)(0xe0 | cp >> 12);
        *out++ = (char)(0x80 | (cp >> 6 & 0x3f));
        *out++ = (char)(0x80 | (cp & 0x3f));
    } else {
        *out++ = (char)(0xf0 | cp >> 18);
        *out++ = (char)(0x80 | (cp >> 12 & 0x3f));
        *out++ = (char)(0x80 | (cp >> 6 & 0x3f));
        *out++ = (char)(0x80 | (cp & 0x3f));
    }
    return out;
}

/* The escape at *in, behind its backslash; what it means is never longer than itself. */
static int unescape(struct br_trees *t, char **in, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char *s = *in;
    const char *known = *s ? strchr(names, *s) : NULL;
    if (known) {
        *(*out)++ = values[known - names];
        *in = s + 1;
        return 0;
    }
    int cp = *s == 'u' ? hex4(s + 1) : -1;
    if (cp <= 0)
        return refuse(t, "an escape in a text is malformed");
    s += 5;
    if (cp >= 0xdc00 && cp <= 0xdfff)
        return refuse(t, "a text has half of a surrogate pair");
    if (cp >= 0xd800 && cp <= 0xdbff) {
        int low = s[0] == '\\' && s[1] == 'u' ? hex4(s + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return refuse(t, "a text has half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xd800) << 10 | (low - 0xdc00));
        s += 6;
    }
    *out = put_utf8(*out, (uint32_t)cp);
    *in = s;
    return 0;
}

/* The text that begins at the quotation mark here; it stays where it is, ends with NUL and is
 * unescaped. */
static int parse_text(struct br_trees *t, const char **text, uint32_t *n)
{
    char *start = t->text + t->at + 1, *in = start;
    while (*in != '"' && *in != '\\' && (unsigned char)*in >= 0x20)
        in++;
    char *out = in;
    while (*in != '"') {
        t->at = (size_t)(in - t->text);
        if ((unsigned char)*in < 0x20) /* the end as well */
            return refuse(t, "a text has a control character");
        if (*in != '\\') {
            *out++ = *in++;
            continue;
        }
        in++;
        int r = unescape(t, &in, &out);
        if (r < 0)
            return r;
    }
    t->at = (size_t)(in + 1 - t->text);
    *out = 0;
    *text = start;
    *n = (uint32_t)(out - start);
    return 0;
}

/* ---- numbers and words ---- */

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

static int parse_number(struct br_trees *t, struct br_tree *v)
{
    char *s = t->text + t->at;
    size_t n = *s == '-', whole = digits(s + n);
    bool real = false;
    if (whole == 0 || (whole > 1 && s[n] == '0'))
        return refuse(t, "a value is none of JSON's");
    n += whole;
    if (s[n] == '.') {
        size_t part = digits(s + n + 1);
        if (part == 0)
            return refuse(t, "a number is malformed");
        n += 1 + part;
        real = true;
    }
    if (s[n] == 'e' || s[n] == 'E') {
        n += 1 + (s[n + 1] == '+' || s[n + 1] == '-');
        size_t part = digits(s + n);
        if (part == 0)
            return refuse(t, "a number is malformed");
        n += part;
        real = true;
    }
    v->type = real ? BR_TREE_REAL : BR_TREE_INTEGER;
    errno = 0;
    if (!real)
        v->integer = strtoll(s, NULL, 10);
    if (errno == ERANGE)
        return refuse(t, "an integer is too large");
    t->at += n;
    return 0;
}

static int parse_word(struct br_trees *t, struct br_tree *v)
{
    static const struct {
        const char *word;
        uint8_t type;
    } words[] = {{"true", BR_TREE_TRUE}, {"false", BR_TREE_FALSE}, {"null", BR_TREE_NULL}};
    for (unsigned i = 0; i < BR_ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i].word);
        if (strncmp(t->text + t->at, words[i].word, n) == 0) {
            v->type = words[i].type;
            t->at += n;
            return 0;
        }
    }
    return refuse(t, "a value is none of JSON's");
}

/* ---- lists and objects ---- */

static int check_key(struct br_trees *t, size_t object, const char *key)
{
    const struct br_tree *o = &t->nodes[object];
    if (o->n >= BR_TREE_MEMBERS_MAX)
        return refuse(t, "an object has too many keys");
    const struct br_tree *v = o + 1, *end = t->nodes + t->n;
    for (; v < end; v += v->span)
        if (v->key[0] == key[0] && strcmp(v->key, key) == 0)
            return refuse(t, "an object has a duplicate key");
    return 0;
}

/* One value that is no list or object, or the opening of one. */
static int parse_value(struct br_trees *t, const char *key)
{
    struct br_tree *v = add_node(t, key);
    if (!v)
        return -BR_E_NOMEM;
    char c = t->text[t->at];
    if (c == '"') {
        v->type = BR_TREE_TEXT;
        return parse_text(t, &v->text, &v->n);
    }
    if (c == '{' || c == '[') {
        v->type = c == '{' ? BR_TREE_OBJECT : BR_TREE_LIST;
        t->at++;
        return 0;
    }
    return c == '-' || (c >= '0' && c <= '9') ? parse_number(t, v) : parse_word(t, v);
}

/* Behind a value of the container, or at its beginning: *more, or it has been closed. */
static int parse_separator(struct br_trees *t, struct br_tree *o, bool *more)
{
    char close = o->type == BR_TREE_OBJECT ? '}' : ']';
    skip_blanks(t);
    *more = t->text[t->at] != close;
    if (!*more) {
        t->at++;
        return 0;
    }
    if (o->n == 0)
        return 0;
    if (t->text[t->at] != ',')
        return refuse(t, close == '}' ? "',' or '}' is missing" : "',' or ']' is missing");
    t->at++;
    skip_blanks(t);
    return 0;
}

/* The key of an object's next value, with its colon. */
static int parse_key(struct br_trees *t, size_t object, const char **key)
{
    uint32_t n;
    if (t->text[t->at] != '"')
        return refuse(t, "a key is missing");
    int r = parse_text(t, key, &n);
    if (r == 0)
        r = check_key(t, object, *key);
    if (r < 0)
        return r;
    skip_blanks(t);
    if (t->text[t->at] != ':')
        return refuse(t, "':' is missing");
    t->at++;
    skip_blanks(t);
    return 0;
}

static int parse_all(struct br_trees *t, unsigned max_depth)
{
    size_t stack[DEPTH_MAX];
    unsigned depth = 0;
    skip_blanks(t);
    if (t->text[t->at] != '{' && t->text[t->at] != '[')
        return refuse(t, "'[' or '{' is missing");
    int r = parse_value(t, NULL);
    if (r == 0)
        stack[depth++] = 0;
    while (r == 0 && depth > 0) {
        size_t at = stack[depth - 1];
        const char *key = NULL;
        bool more;
        r = parse_separator(t, &t->nodes[at], &more);
        if (r == 0 && !more) {
            t->nodes[at].span = (uint32_t)(t->n - at);
            depth--;
            continue;
        }
        if (r == 0 && t->nodes[at].type == BR_TREE_OBJECT)
            r = parse_key(t, at, &key);
        if (r == 0)
            r = parse_value(t, key);
        if (r < 0)
            break;
        t->nodes[at].n++;
        if (t->nodes[t->n - 1].type >= BR_TREE_LIST) {
            if (depth == max_depth || depth == DEPTH_MAX)
                return refuse(t, "it is too deep");
            stack[depth++] = t->n - 1;
        }
    }
    if (r < 0)
        return r;
    skip_blanks(t);
    return t->at == t->len ? 0 : refuse(t, "something follows the value");
}

int br_trees_parse(struct br_trees *t, const char *text, size_t n, unsigned max_depth)
{
    *t = (struct br_trees){.len = n};
    t->text = n < UINT32_MAX ? malloc(n + 1) : NULL;
    if (!t->text)
        return -BR_E_NOMEM;
    memcpy(t->text, text, n);
    t->text[n] = 0;
    return parse_all(t, max_depth);
}

void br_trees_free(struct br_trees *t)
{
    free(t->nodes);
    free(t->text);
    *t = (struct br_trees){.n = 0};
}
