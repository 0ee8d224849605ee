/*
 * How somebody else's text gets onto a terminal: made visible, folded to the width, behind a gutter
 * that this program alone writes, so that neither a model nor a tool can draw a line that looks
 * like a decision or a prompt. Used by the view; trusts nothing that it is given.
 */
#include <stdlib.h>

#include "cli/view_priv.h"

#define TEXT_GUTTER "| "

static uint32_t decode(const uint8_t *p, size_t n, size_t *len)
{
    *len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (*len > n)
        *len = n;
    uint32_t cp = *len == 1 ? p[0] : p[0] & (0x7fu >> *len);
    for (size_t i = 1; i < *len; i++)
        cp = cp << 6 | (p[i] & 0x3fu);
    return cp;
}

static unsigned columns_of(uint32_t cp)
{
    if ((cp >= 0x300 && cp <= 0x36f) || (cp >= 0x200b && cp <= 0x200d) ||
        (cp >= 0x1ab0 && cp <= 0x1aff) || (cp >= 0x20d0 && cp <= 0x20ff) ||
        (cp >= 0xfe00 && cp <= 0xfe0f) || (cp >= 0xfe20 && cp <= 0xfe2f))
        return 0;
    if ((cp >= 0x1100 && cp <= 0x115f) || (cp >= 0x2e80 && cp <= 0xa4cf) ||
        (cp >= 0xac00 && cp <= 0xd7a3) || (cp >= 0xf900 && cp <= 0xfaff) ||
        (cp >= 0xfe30 && cp <= 0xfe6f) || (cp >= 0xff00 && cp <= 0xff60) ||
        (cp >= 0xffe0 && cp <= 0xffe6) || (cp >= 0x1f300 && cp <= 0x1faff) ||
        (cp >= 0x20000 && cp <= 0x3fffd))
        return 2;
    return 1;
}

unsigned view_columns(const char *s, size_t n)
{
    unsigned columns = 0;
    for (size_t i = 0, len; i < n; i += len)
        columns += columns_of(decode((const uint8_t *)s + i, n - i, &len));
    return columns;
}

/* The longest prefix of at most `max` columns (at least one character), and its columns. */
static size_t fit(const char *s, size_t n, unsigned max, unsigned *columns)
{
    size_t i = 0, len;
    *columns = 0;
    while (i < n) {
        unsigned w = columns_of(decode((const uint8_t *)s + i, n - i, &len));
        if (*columns + w > max && i > 0)
            break;
        *columns += w;
        i += len;
    }
    return i;
}

void br_cli_put_line(struct br_buf *b, const char *s, size_t n, unsigned max)
{
    /* four times as many bytes as columns can show more than enough; the rest need not be looked at
     */
    size_t take = n > 8u * max + 16 ? br_utf8_floor(s, 8u * max + 16) : n;
    BR_CLEANUP_BUF struct br_buf line = BR_BUF_INIT(BR_VIEW_MAX);
    if (br_buf_put_visible(&line, s, take, true) < 0) {
        b->failed = true;
        return;
    }
    unsigned columns;
    size_t k = fit((char *)line.data, line.len, max, &columns);
    if (line.len == 0)
        return;
    if (k == line.len && take == n) {
        br_buf_put(b, line.data, k);
        return;
    }
    k = fit((char *)line.data, line.len, max > 3 ? max - 3 : max, &columns);
    br_buf_put(b, line.data, k);
    br_buf_put(b, "...", 3);
}

void br_cli_put_words(struct br_buf *b, const char *s, size_t n, unsigned column, unsigned indent,
                      unsigned width, const char *joint)
{
    unsigned spare = (unsigned)strlen(joint);
    bool first = true; /* of its line */
    for (size_t at = 0, end; at < n; at = end + 1, first = false) {
        bool quoted = false;
        for (end = at; end < n && (s[end] != ' ' || (quoted && spare)); end++)
            quoted ^= s[end] == '\'';
        unsigned columns = view_columns(s + at, end - at), last = end < n ? spare : 0;
        if (!first && column + 1 + columns + last > width) {
            br_buf_printf(b, "%s\n%*s", joint, (int)indent, "");
            column = indent;
        } else if (!first) {
            br_buf_put_u8(b, ' ');
            column++;
        }
        br_buf_put(b, s + at, end - at);
        column += columns;
    }
}

/* Where to break a line of at most `max` columns: after a space if there is one near the end. */
static size_t fold(const char *s, size_t n, unsigned max)
{
    unsigned columns;
    size_t k = fit(s, n, max, &columns);
    if (k == n)
        return k;
    for (size_t i = k; i > k / 2; i--)
        if (s[i - 1] == ' ')
            return i;
    return k;
}

/* A row of a block: trailing blanks are dropped, also the gutter's if the row is empty. */
static void put_row(struct br_buf *out, const char *gutter, const uint8_t *s, size_t n)
{
    size_t margin = strlen(gutter);
    while (n && s[n - 1] == ' ')
        n--;
    while (!n && margin && gutter[margin - 1] == ' ')
        margin--;
    br_buf_put(out, gutter, margin);
    if (n)
        br_buf_put(out, s, n);
    br_buf_put_u8(out, '\n');
}

/* `first` stands before the first row, `next` before every other line, `wrap` before the rest of
 * a line that was folded; all of one width. Returns false if not all was shown. */
static bool put_block(struct br_cli_view *v, const char *first, const char *next, const char *wrap,
                      const char *s, size_t n, unsigned max_lines)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_VIEW_MAX);
    unsigned width = v->width - (unsigned)strlen(first), lines = 0;
    size_t at = 0;
    while (at < n) {
        const char *nl = memchr(s + at, '\n', n - at), *gutter = at ? next : first;
        size_t len = nl ? (size_t)(nl - (s + at)) : n - at;
        br_buf_reset(&text);
        if (br_buf_put_visible(&text, s + at, len, true) < 0) {
            v->out.failed = true;
            return false;
        }
        size_t done = 0;
        do {
            if (max_lines && lines == max_lines) {
                br_buf_printf(&v->out, "%s... ", gutter);
                view_put_bytes(&v->out, n - at);
                br_buf_printf(&v->out, " more\n");
                return false;
            }
            size_t k = text.len ? fold((char *)text.data + done, text.len - done, width) : 0;
            put_row(&v->out, gutter, text.data + done, k);
            gutter = wrap;
            done += k;
            lines++;
        } while (done < text.len);
        at += len + (nl != NULL);
    }
    return true;
}

/* The gutter of a folded line's rest: its mark becomes a dot. */
static void wrap_gutter(char dst[48], const char *gutter)
{
    size_t n = strlen(gutter);
    br_require(n < 48);
    memcpy(dst, gutter, n + 1);
    while (n && dst[n - 1] == ' ')
        n--;
    if (n)
        dst[n - 1] = '.';
}

bool view_block(struct br_cli_view *v, const char *gutter, const char *s, size_t n,
                unsigned max_lines)
{
    char wrap[48];
    wrap_gutter(wrap, gutter);
    while (n && s[n - 1] == '\n')
        n--;
    return put_block(v, gutter, gutter, wrap, s, n, max_lines);
}

void view_whole(struct br_cli_view *v, const char *first, const char *next, const char *s, size_t n)
{
    char wrap[48];
    wrap_gutter(wrap, next);
    (void)put_block(v, first, next, wrap, s, n, 0);
}

void view_labeled(struct br_cli_view *v, const char *label, unsigned width, const char *s, size_t n,
                  unsigned max_lines)
{
    char gutter[48];
    size_t at = v->out.len, len = strlen(label);
    br_require(width < sizeof(gutter) && len <= width);
    snprintf(gutter, sizeof(gutter), "%*s", (int)width, "");
    for (; n && (*s == ' ' || *s == '\n'); s++) /* or the label would stand in an empty line */
        n--;
    view_block(v, gutter, s, n, max_lines);
    if (v->out.len == at)
        br_buf_printf(&v->out, "%s\n", gutter);
    if (!v->out.failed)
        memcpy(v->out.data + at, label, len);
}

/* ---- streamed text -------------------------------------------------------------------------- */

static void text_newline(struct br_cli_view *v)
{
    br_buf_put_u8(&v->out, '\n');
    v->column = 0;
}

static void text_put(struct br_cli_view *v, const char *s, size_t n, unsigned columns)
{
    if (v->column == 0) {
        br_buf_printf(&v->out, TEXT_GUTTER);
        v->column = sizeof(TEXT_GUTTER) - 1;
    }
    br_buf_put(&v->out, s, n);
    v->column += columns;
}

/* Prints the word that was held back until its end was seen, folding first if need be. */
static void text_flush_word(struct br_cli_view *v)
{
    const char *s = (const char *)v->word.data;
    size_t n = v->word.len, k;
    unsigned columns;
    if (n == 0)
        return;
    const unsigned room = v->width - (sizeof(TEXT_GUTTER) - 1);
    unsigned whole = view_columns(s, n);
    if (v->column > sizeof(TEXT_GUTTER) - 1 && v->column + whole > v->width) {
        text_newline(v);
        while (n && *s == ' ') {
            s++;
            n--;
        }
    }
    for (; n; s += k, n -= k) {
        k = fit(s, n, room, &columns);
        text_put(v, s, k, columns);
        if (k < n)
            text_newline(v);
    }
    br_buf_reset(&v->word);
}

void view_text(struct br_cli_view *v, const char *s, size_t n)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(BR_VIEW_MAX);
    if (br_buf_put_visible(&text, s, n, false) < 0) {
        v->out.failed = true;
        return;
    }
    if (!v->in_text && n) {
        br_buf_put_u8(&v->out, '\n');
        v->in_text = true;
        v->column = 0;
    }
    for (size_t i = 0; i < text.len; i++) {
        char c = (char)text.data[i];
        if (c == '\n') {
            text_flush_word(v);
            if (v->column == 0)
                text_put(v, "", 0, 0);
            text_newline(v);
        } else if (c == ' ' || c == '\t') {
            text_flush_word(v);
            br_buf_put_u8(&v->word, ' ');
        } else if (br_buf_put_u8(&v->word, (uint8_t)c) < 0) {
            /* a word as long as the buffer: print what there is */
            uint8_t tail[4];
            size_t keep = br_utf8_floor(v->word.data, v->word.len), rest = v->word.len - keep;
            memcpy(tail, v->word.data + keep, rest);
            v->word.len = keep;
            v->word.failed = false;
            text_flush_word(v);
            br_buf_put(&v->word, tail, rest);
            br_buf_put_u8(&v->word, (uint8_t)c);
        }
    }
}

void view_text_end(struct br_cli_view *v)
{
    if (!v->in_text)
        return;
    text_flush_word(v);
    if (v->column)
        text_newline(v);
    v->in_text = false;
}
