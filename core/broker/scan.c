/*
 * The reader of JSON text behind scan.h. Used on answers of providers and on requests of guests,
 * both hostile. One pass, no memory, no recursion; strings are passed over sixteen bytes at a time
 * where the processor can.
 */
#include "broker/scan.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define likely(x) __builtin_expect(!!(x), 1)

bool br_scan_fail(struct br_scan *j, enum br_scan_state state, const char *why)
{
    if (j->state == BR_SCAN_OK) {
        j->state = (uint8_t)state;
        j->why = why;
    }
    return false;
}

static bool bad(struct br_scan *j, const char *why)
{
    return br_scan_fail(j, j->p >= j->end ? BR_SCAN_SHORT : BR_SCAN_BAD, why);
}

static inline bool skip_white(struct br_scan *j)
{
    const char *p = j->p;
    while (p < j->end && (*p == ' ' || *p == '\t' || (j->lines && (*p == '\n' || *p == '\r'))))
        p++;
    j->p = p;
    return p < j->end;
}

char br_scan_peek(struct br_scan *j)
{
    if (j->state != BR_SCAN_OK)
        return 0;
    if (!skip_white(j)) {
        br_scan_fail(j, BR_SCAN_SHORT, "it ends in the middle");
        return 0;
    }
    if (*j->p == 0)
        br_scan_fail(j, BR_SCAN_BAD, "it holds NUL");
    return *j->p;
}

bool br_scan_open(struct br_scan *j, char c)
{
    if (br_scan_peek(j) != c)
        return bad(j, c == '{' ? "an object is missing" : "a list is missing");
    if (++j->depth > BR_JSON_DEPTH_MAX)
        return br_scan_fail(j, BR_SCAN_BAD, "it is nested too deeply");
    j->p++;
    return true;
}

/* ---- strings ---- */

/* Behind what needs no look: printable ASCII without quote and backslash. */
static inline const char *plain(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), back = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(0x20);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* signed: a byte from 0x80 on is below the space as well */
        __m128i m = _mm_or_si128(_mm_cmplt_epi8(v, space),
                                 _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, back)));
        unsigned bits = (unsigned)_mm_movemask_epi8(m);
        if (bits)
            return p + __builtin_ctz(bits);
        p += 16;
    }
#endif
    while (p < end && (signed char)*p >= 0x20 && *p != '"' && *p != '\\')
        p++;
    return p;
}

/* How long the UTF-8 sequence at p is; 0: it is none, -1: the text ends in it. */
static inline int sequence(const unsigned char *p, const unsigned char *end)
{
    unsigned c = p[0];
    int n = c >= 0xc2 && c <= 0xdf   ? 2
            : c >= 0xe0 && c <= 0xef ? 3
            : c >= 0xf0 && c <= 0xf4 ? 4
                                     : 0;
    if (!n)
        return 0;
    for (int i = 1; i < n; i++) {
        if (p + i >= end)
            return -1;
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
        (c == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

static int hex_digit(unsigned char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* The escape at j->p. */
static bool skip_escape(struct br_scan *j)
{
    if (j->end - j->p < 2)
        return br_scan_fail(j, BR_SCAN_SHORT, "it ends in a string");
    char c = j->p[1];
    if (c == 'u') {
        for (int i = 2; i < 6; i++) {
            if (j->p + i >= j->end)
                return br_scan_fail(j, BR_SCAN_SHORT, "it ends in a string");
            if (hex_digit((unsigned char)j->p[i]) < 0)
                return br_scan_fail(j, BR_SCAN_BAD, "a string has an unknown escape");
        }
        j->p += 6;
        return true;
    }
    if (!memchr("\"\\/bfnrt", c, 8))
        return br_scan_fail(j, BR_SCAN_BAD, "a string has an unknown escape");
    j->p += 2;
    return true;
}

/* j->p is behind the opening quote. */
bool br_scan_string_rest(struct br_scan *j, struct br_slice *s)
{
    const char *from = j->p;
    bool escaped = false;
    for (;;) {
        const char *p = plain(j->p, j->end);
        j->p = p;
        if (p >= j->end)
            return br_scan_fail(j, BR_SCAN_SHORT, "it ends in a string");
        if (likely(*p == '"'))
            break;
        if (*p == '\\') {
            escaped = true;
            if (!skip_escape(j))
                return false;
            continue;
        }
        /* other alphabets come in runs */
        while (p < j->end && (unsigned char)*p >= 0x80) {
            int n = sequence((const unsigned char *)p, (const unsigned char *)j->end);
            if (n < 0)
                return br_scan_fail(j, BR_SCAN_SHORT, "it ends in a string");
            if (n == 0)
                return br_scan_fail(j, BR_SCAN_BAD, "it is not valid UTF-8");
            p += n;
        }
        if (p == j->p)
            return br_scan_fail(j, BR_SCAN_BAD, "a string holds a control character");
        j->p = p;
    }
    *s = (struct br_slice){.p = from, .n = (size_t)(j->p - from), .escaped = escaped};
    j->p++;
    return true;
}

bool br_scan_string(struct br_scan *j, struct br_slice *s)
{
    if (br_scan_peek(j) != '"')
        return bad(j, "a string is missing");
    j->p++;
    return br_scan_string_rest(j, s);
}

/* ---- numbers and words ---- */

static bool skip_word(struct br_scan *j, const char *word)
{
    size_t n = strlen(word), have = (size_t)(j->end - j->p);
    if (memcmp(j->p, word, have < n ? have : n) != 0)
        return br_scan_fail(j, BR_SCAN_BAD, "it holds something that is no value");
    if (have < n)
        return br_scan_fail(j, BR_SCAN_SHORT, "it ends in the middle");
    j->p += n;
    return true;
}

static bool digits(struct br_scan *j)
{
    const char *from = j->p;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
        j->p++;
    return j->p > from ? true : bad(j, "a number is not one");
}

static bool skip_number(struct br_scan *j)
{
    if (*j->p == '-')
        j->p++;
    if (j->p < j->end && *j->p == '0')
        j->p++;
    else if (!digits(j))
        return false;
    if (j->p < j->end && *j->p == '.') {
        j->p++;
        if (!digits(j))
            return false;
    }
    if (j->p < j->end && (*j->p | 0x20) == 'e') {
        j->p++;
        if (j->p < j->end && (*j->p == '+' || *j->p == '-'))
            j->p++;
        if (!digits(j))
            return false;
    }
    /* no text of ours is a bare number, so there is something behind it */
    return j->p < j->end ? true : br_scan_fail(j, BR_SCAN_SHORT, "it ends in a number");
}

static bool skip_plain(struct br_scan *j, char c)
{
    struct br_slice s;
    switch (c) {
    case '"':
        j->p++;
        return br_scan_string_rest(j, &s);
    case 't':
        return skip_word(j, "true");
    case 'f':
        return skip_word(j, "false");
    case 'n':
        return skip_word(j, "null");
    default:
        if (c == '-' || (c >= '0' && c <= '9'))
            return skip_number(j);
        return bad(j, "it holds something that is no value");
    }
}

bool br_scan_null(struct br_scan *j, bool *is)
{
    *is = br_scan_peek(j) == 'n';
    return *is ? skip_word(j, "null") : j->state == BR_SCAN_OK;
}

bool br_scan_bool(struct br_scan *j, bool *v, const char *why)
{
    char c = br_scan_peek(j);
    if (c != 't' && c != 'f')
        return br_scan_refuse(j, why);
    *v = c == 't';
    return skip_word(j, *v ? "true" : "false");
}

bool br_scan_string_or_null(struct br_scan *j, struct br_slice *s, const char *why)
{
    char c = br_scan_peek(j);
    *s = (struct br_slice){.p = NULL};
    if (c == '"')
        return br_scan_string(j, s);
    return c == 'n' ? skip_word(j, "null") : br_scan_refuse(j, why);
}

bool br_scan_count(struct br_scan *j, uint64_t *v, const char *why)
{
    br_scan_peek(j);
    const char *from = j->p;
    uint64_t n = 0;
    if (j->state != BR_SCAN_OK || *from < '0' || *from > '9')
        return br_scan_refuse(j, why);
    if (!skip_number(j))
        return false;
    if (j->p - from > 16)
        return br_scan_refuse(j, why);
    for (const char *p = from; p < j->p; p++) {
        if (*p < '0' || *p > '9')
            return br_scan_refuse(j, why);
        n = n * 10 + (uint64_t)(*p - '0');
    }
    if (n > (1ull << 53))
        return br_scan_refuse(j, why);
    *v = n;
    return true;
}

/* ---- objects and lists ---- */

static inline bool name_is(const struct br_scan_name *name, const char *p, size_t n)
{
    return name->n == n && memcmp(name->name, p, n) == 0;
}

static int key_find(const struct br_scan_keys *t, struct br_scan_in *in, const struct br_slice *s)
{
    char plain_text[64];
    const char *p = s->p;
    size_t n = s->n;
    if (!t->n)
        return -1;
    if (s->escaped) {
        int len = br_slice_text(s, plain_text, sizeof(plain_text));
        if (len < 0)
            return -1; /* longer than any name */
        p = plain_text;
        n = (size_t)len;
    }
    unsigned i = in->next < t->n ? in->next : 0;
    for (unsigned k = 0; k < t->n; k++, i = i + 1 < t->n ? i + 1 : 0) {
        if (name_is(&t->names[i], p, n)) {
            in->next = i + 1;
            return (int)i;
        }
    }
    return -1;
}

/* The comma between members. False at the end, and after a failure. */
static inline bool member(struct br_scan *j, struct br_scan_in *in, char close)
{
    char c = br_scan_peek(j);
    if (c == close) {
        j->p++;
        j->depth--;
        return false;
    }
    if (!in->any) {
        in->any = true;
        return c != 0;
    }
    if (c != ',')
        return bad(j, "a comma is missing");
    j->p++;
    if (br_scan_peek(j) == close)
        return br_scan_fail(j, BR_SCAN_BAD, "there is a comma too many");
    return j->state == BR_SCAN_OK;
}

bool br_scan_key(struct br_scan *j, struct br_scan_in *in, const struct br_scan_keys *t, int *id,
                 struct br_slice *text)
{
    struct br_slice s;
    if (!member(j, in, '}'))
        return false;
    if (*j->p != '"')
        return br_scan_fail(j, BR_SCAN_BAD, "a key is missing");
    const char *at = j->p++;
    if (!br_scan_string_rest(j, &s))
        return false;
    *id = key_find(t, in, &s);
    if (*id >= 0) {
        if (in->seen >> *id & 1)
            return br_scan_refuse(j, "an object has a key twice");
        in->seen |= 1ull << *id;
    }
    if (br_scan_peek(j) != ':')
        return bad(j, "a colon is missing");
    j->p++;
    j->key = at;
    if (text)
        *text = s;
    return true;
}

bool br_scan_element(struct br_scan *j, struct br_scan_in *in)
{
    return member(j, in, ']');
}

/* The members of what was opened, down to its end; which brackets are open is in `kinds`, one bit
 * each, so that nothing here recurses. */
static bool skip_nested(struct br_scan *j, char c)
{
    static const struct br_scan_keys none = {NULL, 0};
    unsigned base = j->depth;
    uint64_t kinds = 0, any = 0; /* bit: level above base */
    int id;
    if (!br_scan_open(j, c))
        return false;
    kinds = c == '{';
    while (j->depth > base) {
        unsigned level = j->depth - base - 1;
        struct br_scan_in in = {.any = (any >> level & 1) != 0};
        bool object = (kinds >> level & 1) != 0;
        bool more = object ? br_scan_key(j, &in, &none, &id, NULL) : br_scan_element(j, &in);
        if (!more) {
            if (j->state != BR_SCAN_OK)
                return false;
            continue;
        }
        any |= 1ull << level;
        c = br_scan_peek(j);
        if (c == '{' || c == '[') {
            if (!br_scan_open(j, c))
                return false;
            uint64_t bit = 1ull << (level + 1);
            any &= ~bit;
            kinds = c == '{' ? kinds | bit : kinds & ~bit;
        } else if (!skip_plain(j, c)) {
            return false;
        }
    }
    return true;
}

bool br_scan_skip(struct br_scan *j, struct br_slice *s)
{
    char c = br_scan_peek(j);
    const char *from = j->p;
    bool ok = c == '{' || c == '[' ? skip_nested(j, c) : skip_plain(j, c);
    if (ok && s)
        *s = (struct br_slice){.p = from, .n = (size_t)(j->p - from)};
    return ok;
}

bool br_scan_done(struct br_scan *j)
{
    if (j->state != BR_SCAN_OK)
        return false;
    return skip_white(j) ? br_scan_fail(j, BR_SCAN_BAD, "something follows behind it") : true;
}

/* ---- what is in a string ---- */

static size_t utf8(unsigned c, char *dst)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (char)(0xc0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (char)(0xe0 | c >> 12);
        dst[1] = (char)(0x80 | (c >> 6 & 0x3f));
        dst[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    dst[0] = (char)(0xf0 | c >> 18);
    dst[1] = (char)(0x80 | (c >> 12 & 0x3f));
    dst[2] = (char)(0x80 | (c >> 6 & 0x3f));
    dst[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static unsigned hex4(const char *p)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 4 | (unsigned)hex_digit((unsigned char)p[i]);
    return v;
}

/* The escape at p, of which n bytes are left and which was checked; *used of them. */
static unsigned unescape(const char *p, size_t n, size_t *used)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (p[1] != 'u') {
        *used = 2;
        const char *at = strchr(from, p[1]);
        return at && *at ? (unsigned)to[at - from] : '?';
    }
    unsigned c = hex4(p + 2);
    *used = 6;
    if (c >= 0xd800 && c < 0xdc00 && n >= 12 && p[6] == '\\' && p[7] == 'u') {
        unsigned low = hex4(p + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            *used = 12;
            return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return c;
}

size_t br_slice_take(struct br_slice *s, char *dst, size_t cap)
{
    size_t n = 0;
    while (s->n && n + 4 <= cap) {
        if (*s->p != '\\') {
            const char *stop = s->escaped ? memchr(s->p, '\\', s->n) : NULL;
            size_t run = stop ? (size_t)(stop - s->p) : s->n;
            if (run > cap - n)
                run = cap - n;
            memcpy(dst + n, s->p, run);
            n += run;
            s->p += run;
            s->n -= run;
            continue;
        }
        size_t used;
        n += utf8(unescape(s->p, s->n, &used), dst + n);
        s->p += used;
        s->n -= used;
    }
    return n;
}

int br_slice_text(const struct br_slice *s, char *dst, size_t cap)
{
    size_t n = 0;
    struct br_slice rest = *s;
    char piece[8];
    if (!s->escaped) {
        if (s->n >= cap || memchr(s->p, 0, s->n))
            return -1;
        memcpy(dst, s->p, s->n);
        dst[s->n] = 0;
        return (int)s->n;
    }
    while (rest.n) {
        size_t used = 1, k = 1;
        if (*rest.p == '\\') {
            unsigned c = unescape(rest.p, rest.n, &used);
            k = utf8(c >= 0xd800 && c < 0xe000 ? 0xfffd : c, piece);
        } else {
            piece[0] = *rest.p;
        }
        if (n + k >= cap || piece[0] == 0)
            return -1;
        memcpy(dst + n, piece, k);
        n += k;
        rest.p += used;
        rest.n -= used;
    }
    dst[n] = 0;
    return (int)n;
}

bool br_slice_is(const struct br_slice *s, const char *text)
{
    char plain_text[64];
    if (!s->p)
        return false;
    if (!s->escaped)
        return s->n == strlen(text) && memcmp(s->p, text, s->n) == 0;
    return br_slice_text(s, plain_text, sizeof(plain_text)) >= 0 && strcmp(plain_text, text) == 0;
}
