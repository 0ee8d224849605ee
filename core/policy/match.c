/*
 * Patterns: compiled once into a literal prefix, a literal suffix, and what lies between them. Most
 * patterns have a single star there, which costs two comparisons. The rest becomes a bit-parallel
 * automaton over bytes: one bit per position, all positions advance at once, so that the time is
 * n * ceil(m / 64) whatever the pattern and whatever the subject. There is no backtracking and no
 * recursion. Patterns and subjects come from manifests and models and are not trusted.
 *
 * '?' is one character: a byte that does not continue a UTF-8 sequence, with those that do.
 */
#include <string.h>

#include "policy/policy_priv.h"

enum token {
    TOK_ONE = 256, /* '?' */
    TOK_STAR,      /* anything but the separator */
    TOK_ALL,       /* anything */
    TOK_DIRS,      /* whole segments, none included, each with its '/' */
    TOK_TREE,      /* nothing, or '/' and anything */
};

#define NO_SEPARATOR (-1)
#define WORDS_MAX ((BR_PATTERN_MAX + 1 + 63) / 64)

/* Classes of bytes that the pattern does not name; literals follow. */
enum { CLASS_PLAIN = 0, CLASS_SEPARATOR = 1, CLASS_CONTINUE = 2, CLASS_LITERAL = 3 };

struct br_nfa {
    uint16_t words;
    uint16_t classes;
    uint8_t map[256]; /* byte to class */
    /* start, accept, skip, then consume and loop of each class; `words` each. A bit in `skip` says
     * that entering this position also enters the next. */
    uint64_t masks[];
};

static bool is_continuation(uint8_t c)
{
    return (c & 0xc0) == 0x80;
}

/* ---- lexing ---- */

static void push_star(uint16_t *tok, size_t *k, enum token star)
{
    if (*k > 0 && tok[*k - 1] == TOK_DIRS)
        tok[*k - 1] = TOK_ALL; /* whole segments and a part of one: anything */
    else if (*k == 0 || tok[*k - 1] != TOK_ALL)
        tok[(*k)++] = (uint16_t)star;
}

static size_t stars_end(const char *s, size_t n, size_t i)
{
    while (i < n && s[i] == '*')
        i++;
    return i;
}

/* Behind a whole "**" segment: skip further ones, which add nothing. */
static size_t skip_tree_segments(const char *s, size_t n, size_t i)
{
    while (i < n && s[i] == '/') {
        size_t j = stars_end(s, n, i + 1);
        if (j - i - 1 < 2 || (j < n && s[j] != '/'))
            break;
        i = j;
    }
    return i;
}

static size_t lex_path(const char *s, size_t n, uint16_t *tok)
{
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != '*') {
            tok[k++] = s[i] == '?' ? TOK_ONE : (uint8_t)s[i];
            i++;
            continue;
        }
        size_t j = stars_end(s, n, i);
        bool segment = (i == 0 || s[i - 1] == '/') && (j == n || s[j] == '/');
        if (j - i < 2) {
            push_star(tok, &k, TOK_STAR);
        } else if (!segment) {
            push_star(tok, &k, TOK_ALL);
        } else {
            j = skip_tree_segments(s, n, j);
            if (j < n) {
                tok[k++] = TOK_DIRS;
                j++;
            } else if (k > 0) {
                tok[k - 1] = TOK_TREE; /* takes the '/' before it along */
            } else {
                tok[k++] = TOK_ALL;
            }
        }
        i = j;
    }
    return k;
}

static size_t lex_plain(enum br_match_kind kind, const char *s, size_t n, uint16_t *tok)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '*') {
            push_star(tok, &k, TOK_ALL);
        } else if (c == '?') {
            tok[k++] = TOK_ONE;
        } else if (c == ' ' && kind == BR_MATCH_COMMAND) {
            if (i == 0 || s[i - 1] != ' ')
                tok[k++] = 0;
        } else if (kind == BR_MATCH_HOST && c >= 'A' && c <= 'Z') {
            tok[k++] = (uint8_t)(c - 'A' + 'a');
        } else {
            tok[k++] = (uint8_t)c;
        }
    }
    return k;
}

/* ---- the automaton ---- */

static int separator_of(enum br_match_kind kind)
{
    return kind == BR_MATCH_PATH ? '/' : kind == BR_MATCH_COMMAND ? 0 : NO_SEPARATOR;
}

static void set_bit(uint64_t *mask, size_t bit)
{
    mask[bit / 64] |= 1ull << (bit % 64);
}

/* Masks of positions, before they are spread over the classes. */
struct nfa_parts {
    uint64_t one[WORDS_MAX];       /* consume a character here */
    uint64_t star[WORDS_MAX];      /* stay on anything but the separator */
    uint64_t all[WORDS_MAX];       /* stay on anything */
    uint64_t character[WORDS_MAX]; /* stay on the rest of a character */
};

static uint8_t literal_of(uint16_t tok)
{
    return tok < 256 ? (uint8_t)tok : '/'; /* TOK_DIRS, TOK_TREE */
}

static bool is_literal(uint16_t tok)
{
    return tok < 256 || tok == TOK_DIRS || tok == TOK_TREE;
}

static void nfa_classes(struct br_nfa *nfa, const uint16_t *tok, size_t ntok, int sep)
{
    for (unsigned c = 0; c < 256; c++)
        nfa->map[c] = (int)c == sep                 ? CLASS_SEPARATOR
                      : is_continuation((uint8_t)c) ? CLASS_CONTINUE
                                                    : CLASS_PLAIN;
    nfa->classes = CLASS_LITERAL;
    for (size_t i = 0; i < ntok; i++)
        if (is_literal(tok[i]) && nfa->map[literal_of(tok[i])] < CLASS_LITERAL)
            nfa->map[literal_of(tok[i])] = (uint8_t)nfa->classes++;
}

static uint64_t *nfa_consume(struct br_nfa *nfa, unsigned class)
{
    return nfa->masks + (size_t)nfa->words * (3 + 2 * class);
}

/* Literals go straight into their class, everything else into `parts`. */
static void nfa_positions(struct br_nfa *nfa, struct nfa_parts *parts, const uint16_t *tok,
                          size_t ntok)
{
    uint64_t *accept = nfa->masks + nfa->words, *skip = accept + nfa->words;
    size_t pos = 0;
    for (size_t i = 0; i < ntok; i++) {
        if (tok[i] == TOK_STAR) {
            set_bit(parts->star, pos);
            continue;
        }
        if (tok[i] == TOK_ALL) {
            set_bit(parts->all, pos);
            continue;
        }
        if (tok[i] == TOK_ONE) {
            set_bit(parts->one, pos);
            set_bit(parts->character, pos + 1);
        } else {
            set_bit(nfa_consume(nfa, nfa->map[literal_of(tok[i])]), pos);
        }
        if (tok[i] == TOK_DIRS) {
            set_bit(parts->all, pos);
            set_bit(skip, pos);
        } else if (tok[i] == TOK_TREE) {
            set_bit(accept, pos);
            set_bit(parts->all, pos + 1);
        }
        pos++;
    }
    set_bit(accept, pos);
    set_bit(nfa->masks, 0);
    if (skip[0] & 1)
        set_bit(nfa->masks, 1);
}

static void nfa_spread(struct br_nfa *nfa, const struct nfa_parts *parts, int sep)
{
    uint8_t sample[256] = {0}; /* any byte of each class */
    for (unsigned c = 0; c < 256; c++)
        sample[nfa->map[c]] = (uint8_t)c;
    for (unsigned k = 0; k < nfa->classes; k++) {
        if (k == CLASS_SEPARATOR && nfa->map[sample[k]] != k)
            continue; /* the pattern names the separator, or there is none */
        uint64_t *consume = nfa_consume(nfa, k), *loop = consume + nfa->words;
        bool separates = k == CLASS_SEPARATOR || (k >= CLASS_LITERAL && (int)sample[k] == sep);
        bool continues = is_continuation(sample[k]);
        for (unsigned w = 0; w < nfa->words; w++) {
            if (!separates && !continues)
                consume[w] |= parts->one[w];
            loop[w] = parts->all[w] | (separates ? 0 : parts->star[w]) |
                      (continues ? parts->character[w] : 0);
        }
    }
}

static int nfa_build(struct br_pattern *p, const uint16_t *tok, size_t ntok, int sep,
                     struct br_arena *a)
{
    struct br_nfa shape = {.words = 0};
    struct nfa_parts parts = {.one = {0}};
    size_t positions = 1;
    for (size_t i = 0; i < ntok; i++)
        positions += tok[i] != TOK_STAR && tok[i] != TOK_ALL;
    shape.words = (uint16_t)((positions + 63) / 64);
    br_require(shape.words <= WORDS_MAX);
    nfa_classes(&shape, tok, ntok, sep);
    struct br_nfa *nfa = br_arena_alloc(a, sizeof(*nfa) + sizeof(uint64_t) * shape.words *
                                                              (3u + 2u * shape.classes));
    if (!nfa)
        return -BR_E_NOMEM;
    memcpy(nfa, &shape, sizeof(shape));
    nfa_positions(nfa, &parts, tok, ntok);
    nfa_spread(nfa, &parts, sep);
    p->nfa = nfa;
    return 0;
}

static bool nfa_match_word(const struct br_nfa *nfa, const uint8_t *s, size_t n)
{
    const uint64_t *classes = nfa->masks + 3;
    uint64_t state = nfa->masks[0], skip = nfa->masks[2];
    for (size_t i = 0; i < n && state; i++) {
        const uint64_t *k = classes + 2 * nfa->map[s[i]];
        uint64_t next = (state & k[0]) << 1;
        next |= (next & skip) << 1;
        state = next | (state & k[1]);
    }
    return (state & nfa->masks[1]) != 0;
}

static bool nfa_match(const struct br_nfa *nfa, const uint8_t *s, size_t n)
{
    unsigned words = nfa->words;
    if (words == 1)
        return nfa_match_word(nfa, s, n);
    const uint64_t *accept = nfa->masks + words, *skip = accept + words, *classes = skip + words;
    uint64_t state[WORDS_MAX];
    memcpy(state, nfa->masks, words * sizeof(state[0]));
    for (size_t i = 0; i < n; i++) {
        const uint64_t *consume = classes + 2 * (size_t)words * nfa->map[s[i]];
        const uint64_t *loop = consume + words;
        uint64_t carry = 0, skip_carry = 0, alive = 0;
        for (unsigned w = 0; w < words; w++) {
            uint64_t step = state[w] & consume[w];
            uint64_t next = step << 1 | carry;
            uint64_t skipped = next & skip[w];
            carry = step >> 63;
            next |= skipped << 1 | skip_carry;
            skip_carry = skipped >> 63;
            state[w] = next | (state[w] & loop[w]);
            alive |= state[w];
        }
        if (!alive)
            return false;
    }
    for (unsigned w = 0; w < words; w++)
        if (state[w] & accept[w])
            return true;
    return false;
}

/* ---- compiling and matching ---- */

static int pattern_shape(struct br_pattern *p, const uint16_t *tok, size_t k, struct br_arena *a)
{
    size_t first = 0, last = k;
    while (first < k && tok[first] < 256)
        first++;
    while (last > first && tok[last - 1] < 256)
        last--;
    char *text = br_arena_alloc(a, k + 1);
    if (!text)
        return -BR_E_NOMEM;
    for (size_t i = 0; i < k; i++)
        text[i] = tok[i] < 256 ? (char)tok[i] : 0;
    p->prefix = text;
    p->plen = (uint16_t)first;
    p->suffix = text + last;
    p->slen = (uint16_t)(k - last);
    p->form = BR_FORM_NFA;
    if (first == last)
        p->form = BR_FORM_EXACT;
    else if (last - first == 1 && tok[first] != TOK_ONE)
        p->form = tok[first] == TOK_STAR   ? BR_FORM_STAR
                  : tok[first] == TOK_ALL  ? BR_FORM_ALL
                  : tok[first] == TOK_DIRS ? BR_FORM_DIRS
                                           : BR_FORM_TREE;
    if (p->form != BR_FORM_NFA)
        return 0;
    return nfa_build(p, tok + first, last - first, separator_of(p->kind), a);
}

/* The port of a host pattern: digits, or "*" for any. */
static int pattern_port(struct br_pattern *p, const char *port, size_t n, struct br_arena *a)
{
    if (!port || (n == 1 && port[0] == '*'))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (port[i] < '0' || port[i] > '9')
            return -BR_E_INVALID_TABLE;
    if (n == 0 || n > 5)
        return -BR_E_INVALID_TABLE;
    p->port = br_arena_strndup(a, port, n);
    return p->port ? 0 : -BR_E_NOMEM;
}

int br_pattern_compile(enum br_match_kind kind, const char *s, size_t n, struct br_arena *a,
                       struct br_pattern *out)
{
    uint16_t tok[BR_PATTERN_MAX];
    *out = (struct br_pattern){.kind = (uint8_t)kind};
    if (kind == BR_MATCH_ANY)
        return 0;
    if (n == 0 || n > BR_PATTERN_MAX || memchr(s, 0, n) || !br_utf8_valid(s, n))
        return -BR_E_INVALID_TABLE;
    if (kind == BR_MATCH_HOST) {
        const char *port;
        size_t port_len;
        br_host_split(s, n, &n, &port, &port_len);
        int r = n ? pattern_port(out, port, port_len, a) : -BR_E_INVALID_TABLE;
        if (r < 0)
            return r;
    }
    size_t k = kind == BR_MATCH_PATH ? lex_path(s, n, tok) : lex_plain(kind, s, n, tok);
    return pattern_shape(out, tok, k, a);
}

bool br_pattern_match(const struct br_pattern *p, const char *s, size_t n)
{
    if (p->kind == BR_MATCH_ANY)
        return true;
    if (n < (size_t)p->plen + p->slen || memcmp(s, p->prefix, p->plen) != 0 ||
        memcmp(s + n - p->slen, p->suffix, p->slen) != 0)
        return false;
    const char *mid = s + p->plen;
    size_t len = n - p->plen - p->slen;
    switch ((enum br_form)p->form) {
    case BR_FORM_EXACT:
        return len == 0;
    case BR_FORM_STAR:
        return memchr(mid, '/', len) == NULL;
    case BR_FORM_ALL:
        return true;
    case BR_FORM_DIRS:
        return len == 0 || mid[len - 1] == '/';
    case BR_FORM_TREE:
        return len == 0 || mid[0] == '/';
    case BR_FORM_NFA:
        return nfa_match(p->nfa, (const uint8_t *)mid, len);
    }
    return false;
}
