/*
 * What changed in a text, for people: the lines that differ, by Myers' greedy algorithm, within
 * bounds. What is too large, too different or no text is said in one line. The content is hostile:
 * everything that a terminal acts on is made visible.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "promote/promote_priv.h"

#define LINES_MAX 20000u
/* Differences that are looked for; the memory is a square of it. */
#define EDITS_MAX 400
#define LINE_SHOWN 400u
#define CONTEXT 2

struct line {
    const char *p;
    size_t n;
};

struct text {
    struct line *lines;
    long n;
};

static int split(const char *p, size_t n, struct text *t)
{
    size_t count = 1;
    for (size_t i = 0; i < n; i++)
        count += p[i] == '\n';
    t->n = 0;
    t->lines = count <= LINES_MAX ? calloc(count + 1, sizeof(*t->lines)) : NULL;
    if (!t->lines)
        return -1;
    for (size_t at = 0; at < n;) {
        const char *end = memchr(p + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (p + at)) + 1 : n - at;
        t->lines[t->n++] = (struct line){p + at, len};
        at += len;
    }
    return 0;
}

static bool equal(const struct line *a, const struct line *b)
{
    return a->n == b->n && memcmp(a->p, b->p, a->n) == 0;
}

static bool put_line(struct br_buf *out, char mark, const struct line *l, size_t end)
{
    size_t n = l->n > 0 && l->p[l->n - 1] == '\n' ? l->n - 1 : l->n;
    bool cut = n > LINE_SHOWN;
    if (out->len >= end)
        return false;
    br_buf_put_u8(out, (uint8_t)mark);
    br_buf_put_visible(out, l->p, cut ? br_utf8_floor(l->p, LINE_SHOWN) : n, true);
    br_buf_printf(out, cut ? " ...\n" : "\n");
    return true;
}

/* The furthest x on each diagonal, before each round of edits. */
struct trace {
    long *rows; /* EDITS_MAX + 1 rows of WIDTH */
    long found; /* edits, or -1 */
};
#define WIDTH (2 * EDITS_MAX + 3)
#define AT(k) (EDITS_MAX + 1 + (k))

/* Is the last edit of this diagonal an insertion? */
static bool is_down(const long *v, long d, long k)
{
    return k == -d || (k != d && v[AT(k - 1)] < v[AT(k + 1)]);
}

static void find_edits(const struct text *a, const struct text *b, struct trace *t, long *v)
{
    for (long d = 0; d <= EDITS_MAX && t->found < 0; d++) {
        memcpy(t->rows + d * WIDTH, v, WIDTH * sizeof(*v));
        for (long k = -d; k <= d && t->found < 0; k += 2) {
            long x = is_down(v, d, k) ? v[AT(k + 1)] : v[AT(k - 1)] + 1, y = x - k;
            while (x < a->n && y < b->n && equal(&a->lines[x], &b->lines[y]))
                x++, y++;
            v[AT(k)] = x;
            if (x >= a->n && y >= b->n)
                t->found = d;
        }
    }
}

/* One mark for each line of the script, in order: ' ', '-' or '+'. NULL: too different. */
static char *script_of(const struct text *a, const struct text *b, size_t *len)
{
    struct trace t = {.found = -1};
    BR_CLEANUP_FREE long *v = calloc(WIDTH, sizeof(*v));
    BR_CLEANUP_FREE long *rows = calloc((size_t)(EDITS_MAX + 1) * WIDTH, sizeof(*rows));
    BR_CLEANUP_FREE char *marks = calloc((size_t)(a->n + b->n) + 1, 1);
    t.rows = rows;
    if (v && rows && marks)
        find_edits(a, b, &t, v);
    if (t.found < 0)
        return NULL;
    long x = a->n, y = b->n;
    size_t at = (size_t)(a->n + b->n);
    for (long d = t.found; d > 0; d--) {
        const long *row = rows + d * WIDTH, k = x - y;
        bool down = is_down(row, d, k);
        long from = down ? k + 1 : k - 1, px = row[AT(from)], py = px - from;
        for (; x > px + !down && y > py + down; x--, y--)
            marks[--at] = ' ';
        marks[--at] = down ? '+' : '-';
        x = px;
        y = py;
    }
    for (; x > 0 && y > 0; x--, y--)
        marks[--at] = ' ';
    *len = (size_t)(a->n + b->n) - at;
    memmove(marks, marks + at, *len);
    return br_steal_ptr(&marks);
}

/* Is a changed line within CONTEXT of this one? */
static bool near_change(const char *marks, size_t n, size_t i)
{
    size_t from = i > CONTEXT ? i - CONTEXT : 0, to = i + CONTEXT < n ? i + CONTEXT : n - 1;
    for (size_t j = from; j <= to; j++)
        if (marks[j] != ' ')
            return true;
    return false;
}

void br_diff_lines(const char *a, size_t na, const char *b, size_t nb, size_t shown,
                   struct br_buf *out)
{
    struct text x = {.lines = NULL}, y = {.lines = NULL};
    size_t n = 0, end = out->len + shown, i = 0, j = 0, hidden = 0;
    char *marks = split(a, na, &x) == 0 && split(b, nb, &y) == 0 ? script_of(&x, &y, &n) : NULL;
    if (!marks)
        br_buf_printf(out, "  too different to be shown: %zu bytes become %zu\n", na, nb);
    bool gap = false;
    for (size_t m = 0; marks && m < n; m++) {
        const struct line *l = marks[m] == '+' ? &y.lines[j] : &x.lines[i];
        i += marks[m] != '+';
        j += marks[m] != '-';
        if (!near_change(marks, n, m)) {
            gap = true;
            continue;
        }
        if (gap && out->len < end)
            br_buf_printf(out, "@@ line %zu\n", marks[m] == '+' ? j : i);
        gap = false;
        hidden += !put_line(out, marks[m], l, end);
    }
    if (hidden)
        br_buf_printf(out, "  and %zu more lines\n", hidden);
    free(marks);
    free(x.lines);
    free(y.lines);
}

/* false: it cannot be read, or is too large. */
static bool read_text(int tree, const char *path, struct br_buf *b)
{
    br_buf_init(b, BR_PROMOTE_DIFF_FILE);
    BR_CLEANUP_FD int fd = promote_open(tree, path, O_RDONLY | O_NONBLOCK);
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           br_read_all(fd, b, "a file", NULL) == 0;
}

static bool is_text(const struct br_buf *b)
{
    return !b->len || (!memchr(b->data, 0, b->len) && br_utf8_valid(b->data, b->len));
}

static void put_link(int tree, const char *path, char mark, struct br_buf *out)
{
    char target[BR_PATH_MAX];
    BR_CLEANUP_FD int fd = promote_open(tree, path, O_PATH);
    ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof(target));
    if (n < 0)
        return;
    br_buf_printf(out, "%c-> ", mark);
    br_buf_put_visible(out, target, (size_t)n, true);
    br_buf_put_u8(out, '\n');
}

void br_promotion_diff(const struct br_promotion *p, const struct br_change *c, struct br_buf *out)
{
    struct br_buf a = BR_BUF_INIT(0), b = BR_BUF_INIT(0);
    bool old = c->old_type == 'f' && c->state != BR_CHANGE_CONFLICT, new = c->new_type == 'f';
    if (c->old_type == 'l')
        put_link(p->workspace, c->path, '-', out);
    if (c->new_type == 'l')
        put_link(p->lease, c->path, '+', out);
    if (!old && !new)
        return;
    bool ok = (!old || read_text(p->workspace, c->path, &a)) &&
              (!new || read_text(p->lease, c->path, &b));
    if (!ok || !is_text(&a) || !is_text(&b))
        br_buf_printf(out, "  %s: %llu bytes become %llu\n",
                      ok ? "no text" : "too large to be shown",
                      (unsigned long long)(old ? c->old_size : 0),
                      (unsigned long long)(new ? c->new_size : 0));
    else
        br_diff_lines((const char *)(a.len ? a.data : (const uint8_t *)""), a.len,
                      (const char *)(b.len ? b.data : (const uint8_t *)""), b.len,
                      BR_PROMOTE_DIFF_SHOWN, out);
    br_buf_free(&a);
    br_buf_free(&b);
}
