/*
 * The pass over the text: one step of the automaton per byte; where something ends, its check; what
 * is found is kept as disjoint intervals until nothing that starts earlier can still be found, and
 * is then written out. A position is decided once, whatever the borders of the chunks are: a check
 * that needs more text says so, and the scan waits there.
 *
 * '%' and '\' start a "view": the text as it reads when percent-encoding or JSON escapes are taken
 * away runs through the same automaton beside the raw text, until both are in the same state again.
 *
 * Called by the audit process and by tests. The text is untrusted.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/redact_priv.h"

/* Bytes that stay in a stream's window though they are written out: a check of word boundaries
 * looks back over one escape. */
#define HISTORY 8u

/* ---- intervals ---- */

static void insert_interval(struct redact_scan *s, size_t at, struct redact_interval iv)
{
    if (s->npending == s->cap_pending) {
        size_t cap = s->cap_pending ? 2 * s->cap_pending : 16;
        void *p = realloc(s->pending, cap * sizeof(*s->pending));
        if (!p) {
            s->failed = true;
            return;
        }
        s->pending = p;
        s->cap_pending = cap;
    }
    memmove(&s->pending[at + 1], &s->pending[at], (s->npending - at) * sizeof(*s->pending));
    s->pending[at] = iv;
    s->npending++;
}

/* Merge with every interval that it overlaps; the name is that of the one that starts first. */
void redact_mark(struct redact_scan *s, uint64_t start, uint64_t end, const char *name,
                 uint8_t rank)
{
    struct redact_interval iv = {.start = start, .end = end, .name = name, .rank = rank};
    bool written = start < s->out_pos; /* it goes on from a replacement that is written already */
    size_t at = s->npending;
    while (at > 0 && s->pending[at - 1].end > iv.start) {
        const struct redact_interval *other = &s->pending[at - 1];
        if (other->start >= iv.end) { /* behind the new one: put it before */
            at--;
            continue;
        }
        if (other->start < iv.start || (other->start == iv.start && other->rank <= iv.rank)) {
            iv.name = other->name;
            iv.rank = other->rank;
            iv.start = other->start;
        }
        if (other->end > iv.end)
            iv.end = other->end;
        memmove(&s->pending[at - 1], &s->pending[at], (s->npending - at) * sizeof(*s->pending));
        s->npending--;
        at--;
    }
    if (!written)
        insert_interval(s, at, iv);
    else if (iv.end > s->out_pos)
        s->out_pos = iv.end;
}

uint64_t redact_run_end(struct redact_scan *s, unsigned c, uint64_t at, bool *open)
{
    struct redact_run *run = &s->runs[c][0];
    if (!run->valid || at < run->start || at > run->end) {
        struct redact_run older = s->runs[c][1];
        s->runs[c][1] = *run;
        bool hit = older.valid && at >= older.start && at <= older.end;
        *run = hit ? older : (struct redact_run){.start = at, .end = at, .valid = true};
    }
    uint64_t end = run->end;
    if (c == CLASS_PEM) {
        bool belongs = true;
        while (end < s->end && run->pem != PEM_DONE) {
            run->pem = redact_pem_step(run->pem, s->text[end - s->base], &belongs);
            end += belongs;
        }
        *open = run->pem != PEM_DONE && !s->final;
    } else {
        while (end < s->end && (redact_class_of[s->text[end - s->base]] >> c & 1))
            end++;
        *open = end == s->end && !s->final;
    }
    run->end = end;
    return end;
}

void redact_mark_run(struct redact_scan *s, uint64_t start, unsigned c, uint64_t run,
                     const struct redact_pattern *p)
{
    bool open;
    uint64_t end = redact_run_end(s, c, run, &open);
    if (open)
        s->open |= 1u << c;
    /* "sk-ant-" says more than "sk-"; a registered secret (rank 0) more than any shape */
    uint8_t rank = (uint8_t)(UINT8_MAX - (p->len < 200 ? p->len : 200));
    if (end > start)
        redact_mark(s, start, end, p->name, rank);
}

/* More text has come: what was marked up to the end of the window may go on. */
static void extend_open(struct redact_scan *s, uint64_t old_end)
{
    static const struct redact_pattern more = {.name = ""};
    uint32_t open = s->open;
    s->open = 0;
    for (unsigned c = 0; open; c++, open >>= 1)
        if (open & 1)
            redact_mark_run(s, old_end ? old_end - 1 : 0, c, old_end, &more);
}

/* ---- views ---- */

static uint64_t view_start(const struct redact_scan *s, const struct redact_view *v, uint64_t back)
{
    if (back > v->count)
        return v->start_at - (back - v->count);
    return back ? v->ring[(v->count - back) & s->ring_mask] : s->pos;
}

/* One decoded byte, which stands at `at` in the raw text and ends at s->pos. */
static void view_emit(struct redact_scan *s, struct redact_view *v, uint8_t byte, uint64_t at)
{
    const struct br_redact *r = s->r;
    v->state = r->next[v->state + r->class_of[byte]];
    v->ring[v->count++ & s->ring_mask] = at;
    if (v->state < r->special)
        return;
    const struct redact_state *st = &r->states[v->state / r->columns];
    if (st->secret) {
        const struct redact_pattern *p = &r->patterns[st->secret - 1];
        redact_mark(s, view_start(s, v, p->len), s->pos, p->name, 0);
    }
}

static int hex_digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void emit_code_point(struct redact_scan *s, struct redact_view *v, unsigned cp, uint64_t at)
{
    if (cp < 0x80) {
        view_emit(s, v, (uint8_t)cp, at);
    } else if (cp < 0x800) {
        view_emit(s, v, (uint8_t)(0xc0 | cp >> 6), at);
        view_emit(s, v, (uint8_t)(0x80 | (cp & 0x3f)), at);
    } else {
        view_emit(s, v, (uint8_t)(0xe0 | cp >> 12), at);
        view_emit(s, v, (uint8_t)(0x80 | (cp >> 6 & 0x3f)), at);
        view_emit(s, v, (uint8_t)(0x80 | (cp & 0x3f)), at);
    }
}

/* Is pending[] (whose last byte is new) still an escape? 1: complete and emitted, 0: incomplete,
 * -1: no escape. */
static int view_escape(struct redact_scan *s, struct redact_view *v, int kind)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    unsigned n = v->npending, skip = kind == VIEW_JSON ? 2 : 1;
    uint8_t last = v->pending[n - 1];
    if (kind == VIEW_JSON && n == 2) {
        const char *p = last ? strchr(from, last) : NULL;
        if (p)
            view_emit(s, v, (uint8_t)to[p - from], v->pending_at);
        return p ? 1 : last == 'u' ? 0 : -1;
    }
    if (hex_digit(last) < 0)
        return -1;
    if (n < (kind == VIEW_JSON ? 6u : 3u))
        return 0;
    unsigned cp = 0;
    for (unsigned i = skip; i < n; i++)
        cp = cp << 4 | (unsigned)hex_digit(v->pending[i]);
    if (kind == VIEW_JSON)
        emit_code_point(s, v, cp, v->pending_at);
    else
        view_emit(s, v, (uint8_t)cp, v->pending_at);
    return 1;
}

/* The first n pending bytes are no escape: they stand for themselves. */
static void view_literal(struct redact_scan *s, struct redact_view *v, unsigned n)
{
    uint64_t pos = s->pos;
    for (unsigned i = 0; i < n; i++) {
        s->pos = v->pending_at + i + 1;
        view_emit(s, v, v->pending[i], v->pending_at + i);
    }
    s->pos = pos;
    v->npending = 0;
}

/* The raw byte before s->pos. */
static void view_step(struct redact_scan *s, int kind, uint8_t byte)
{
    struct redact_view *v = &s->views[kind];
    uint8_t lead = kind == VIEW_JSON ? '\\' : '%';
    uint64_t at = s->pos - 1;
    if (v->npending == 0) {
        if (byte != lead) {
            view_emit(s, v, byte, at);
            return;
        }
        v->pending_at = at;
        v->pending[v->npending++] = byte;
        return;
    }
    v->pending[v->npending++] = byte;
    int r = view_escape(s, v, kind);
    if (r == 0)
        return;
    if (r > 0) {
        v->npending = 0;
        return;
    }
    view_literal(s, v, v->npending - 1); /* the last one may start an escape itself */
    view_step(s, kind, byte);
}

/* `state`: of the automaton before the byte that starts an escape. */
static void view_activate(struct redact_scan *s, int kind, uint32_t state)
{
    struct redact_view *v = &s->views[kind];
    if (v->active)
        return;
    v->active = true;
    v->state = state;
    v->start_at = s->pos - 1;
    v->count = 0;
    v->npending = 0;
}

/* ---- the pass ---- */

/* Look at what ends in the present state. False: an anchor needs more text. */
static bool scan_outputs(struct redact_scan *s)
{
    const struct br_redact *r = s->r;
    const struct redact_state *st = &r->states[s->state / r->columns];
    if (st->secret) {
        const struct redact_pattern *p = &r->patterns[st->secret - 1];
        redact_mark(s, s->pos - p->len, s->pos, p->name, 0);
    }
    for (unsigned i = st->anchors; i; i = r->chain[i - 1].next)
        if (redact_verify(s, &r->patterns[r->chain[i - 1].pattern]) == VERDICT_MORE)
            return false;
    return true;
}

/* Step the views that are active over the byte before s->pos; drop those that have caught up. */
static bool step_views(struct redact_scan *s, uint32_t before, uint8_t byte)
{
    bool any = false;
    if (byte == '%')
        view_activate(s, VIEW_PERCENT, before);
    if (byte == '\\')
        view_activate(s, VIEW_JSON, before);
    for (int k = 0; k < VIEW_COUNT; k++) {
        struct redact_view *v = &s->views[k];
        if (!v->active)
            continue;
        view_step(s, k, byte);
        v->active = v->npending > 0 || v->state != s->state;
        any |= v->active;
    }
    return any;
}

/* Step to the end of the window, or to an anchor that needs more text. */
static void scan_window(struct redact_scan *s)
{
    const struct br_redact *r = s->r;
    const uint32_t *next = r->next, special = r->special;
    const uint8_t *class_of = r->class_of;
    bool slow = false, views = r->nsecrets > 0;
    for (int k = 0; k < VIEW_COUNT; k++)
        slow |= s->views[k].active;
    if (s->retry && !scan_outputs(s))
        return;
    s->retry = false;
    const uint8_t *p = s->text + (s->pos - s->base), *end = s->text + (s->end - s->base);
    uint32_t state = s->state;
    while (p < end && !s->failed) {
        uint32_t before = state;
        uint8_t byte = *p++;
        state = next[state + class_of[byte]];
        if (state < special && !slow)
            continue;
        s->state = state;
        s->pos = s->base + (uint64_t)(p - s->text);
        if (views && (slow || r->states[state / r->columns].escape))
            slow = step_views(s, before, byte);
        if (state >= special && !scan_outputs(s)) {
            s->retry = true;
            return;
        }
    }
    s->state = state;
    s->pos = s->base + (uint64_t)(p - s->text);
    /* an escape that the end of the text cuts off is none */
    for (int k = 0; s->final && k < VIEW_COUNT; k++)
        if (s->views[k].active)
            view_literal(s, &s->views[k], s->views[k].npending);
}

/* Everything before this position is decided. */
static uint64_t scan_safe(const struct redact_scan *s)
{
    const struct br_redact *r = s->r;
    if (s->final && !s->retry)
        return s->end;
    uint64_t safe = s->pos - r->states[s->state / r->columns].depth;
    for (int k = 0; k < VIEW_COUNT; k++) {
        const struct redact_view *v = &s->views[k];
        if (!v->active)
            continue;
        uint64_t at = view_start(s, v, r->states[v->state / r->columns].depth);
        if (v->npending && v->pending_at < at)
            at = v->pending_at;
        if (at < safe)
            safe = at;
    }
    return safe;
}

static void write_raw(struct redact_scan *s, uint64_t to, struct br_buf *out)
{
    if (to > s->out_pos) {
        br_buf_put(out, s->text + (s->out_pos - s->base), (size_t)(to - s->out_pos));
        s->out_pos = to;
    }
}

static void scan_write(struct redact_scan *s, struct br_buf *out)
{
    uint64_t safe = scan_safe(s);
    size_t n = 0;
    for (; n < s->npending && (s->pending[n].start < safe || s->final); n++) {
        const struct redact_interval *iv = &s->pending[n];
        write_raw(s, iv->start, out);
        if (!s->brief) {
            br_buf_put(out, "[redacted:", 10);
            br_buf_put(out, iv->name, strlen(iv->name));
        }
        br_buf_put_u8(out, s->brief ? '*' : ']');
        s->out_pos = iv->end;
    }
    if (n) {
        memmove(s->pending, s->pending + n, (s->npending - n) * sizeof(*s->pending));
        s->npending -= n;
    }
    /* an interval that is kept starts at `safe` or later */
    write_raw(s, safe < s->end ? safe : s->end, out);
}

static int scan_init(struct redact_scan *s, const struct br_redact *r)
{
    *s = (struct redact_scan){.r = r};
    if (!r->next)
        return -BR_E_REDACTION_FAILED;
    if (r->nsecrets) {
        size_t ring = 16;
        while (ring < r->max_depth + 8u)
            ring *= 2;
        s->ring_mask = ring - 1;
        for (int k = 0; k < VIEW_COUNT; k++) {
            s->views[k].ring = calloc(ring, sizeof(uint64_t));
            if (!s->views[k].ring)
                return -BR_E_REDACTION_FAILED;
        }
    }
    return 0;
}

static void scan_free(struct redact_scan *s)
{
    for (int k = 0; k < VIEW_COUNT; k++)
        free(s->views[k].ring);
    free(s->pending);
    *s = (struct redact_scan){.r = NULL};
}

static int scan_result(const struct redact_scan *s, const struct br_buf *out, struct br_err *err)
{
    if (s->failed || out->failed)
        return br_err_set(err, BR_E_REDACTION_FAILED,
                          "a text could not be redacted within its limits; it was not stored");
    return 0;
}

static int redact_whole(const struct br_redact *r, const void *text, size_t n, bool brief,
                        struct br_buf *out, struct br_err *err)
{
    struct redact_scan s;
    int ret = scan_init(&s, r);
    if (ret == 0) {
        s.text = text;
        s.end = n;
        s.final = true;
        s.brief = brief;
        scan_window(&s);
        br_check(!s.retry);
        scan_write(&s, out);
        ret = scan_result(&s, out, err);
    } else {
        br_err_set(err, BR_E_REDACTION_FAILED, "no memory to redact a text; it was not stored");
    }
    scan_free(&s);
    return ret;
}

int br_redact_text(const struct br_redact *r, const void *text, size_t n, struct br_buf *out,
                   struct br_err *err)
{
    return redact_whole(r, text, n, false, out, err);
}

int br_redact_text_brief(const struct br_redact *r, const void *text, size_t n, struct br_buf *out,
                         struct br_err *err)
{
    return redact_whole(r, text, n, true, out, err);
}

bool br_redact_clean(const struct br_redact *r, const void *text, size_t n)
{
    const uint8_t *p = text;
    uint32_t state = 0;
    size_t i = 0;
    if (!r->next)
        return false;
    while (i < n && state < r->special)
        state = r->next[state + r->class_of[p[i++]]];
    if (state < r->special)
        return true;
    /* something looks like the beginning of one */
    struct redact_scan s;
    bool clean = false;
    if (scan_init(&s, r) == 0) {
        s.text = text;
        s.end = n;
        s.final = true;
        scan_window(&s);
        clean = !s.failed && !s.retry && s.npending == 0;
    }
    scan_free(&s);
    return clean;
}

uint64_t br_redact_generation(const struct br_redact *r)
{
    return r->generation + 1;
}

/* ---- streams ---- */

struct br_redact_stream {
    const struct br_redact *r;
    struct redact_scan scan;
    struct br_buf window;
    uint64_t generation;
    uint64_t resume; /* where a new automaton has to start, to miss nothing */
};

struct br_redact_stream *br_redact_stream_new(const struct br_redact *r)
{
    struct br_redact_stream *st = calloc(1, sizeof(*st));
    if (!st)
        return NULL;
    st->r = r;
    st->generation = r->generation;
    br_buf_init(&st->window, BR_BLOB_MAX + 64u * 1024);
    if (scan_init(&st->scan, r) < 0)
        br_redact_stream_free(&st);
    return st;
}

void br_redact_stream_free(struct br_redact_stream **st)
{
    if (!*st)
        return;
    scan_free(&(*st)->scan);
    if ((*st)->window.data)
        explicit_bzero((*st)->window.data, (*st)->window.cap);
    br_buf_free(&(*st)->window);
    free(*st);
    *st = NULL;
}

size_t br_redact_stream_held(const struct br_redact_stream *st)
{
    const struct redact_scan *s = &st->scan;
    return s->end > s->out_pos ? (size_t)(s->end - s->out_pos) : 0;
}

/* A secret was registered since: a new automaton reads again what is not decided yet. What was
 * found stays found. */
static int stream_refresh(struct br_redact_stream *st)
{
    struct redact_scan fresh, *old = &st->scan;
    if (st->generation == st->r->generation)
        return 0;
    int ret = scan_init(&fresh, st->r);
    if (ret < 0)
        return ret;
    fresh.base = old->base;
    fresh.end = old->end;
    fresh.out_pos = old->out_pos;
    fresh.pos = st->resume;
    fresh.open = old->open;
    fresh.pending = br_steal_ptr(&old->pending);
    fresh.npending = old->npending;
    fresh.cap_pending = old->cap_pending;
    memcpy(fresh.runs, old->runs, sizeof(fresh.runs));
    scan_free(old);
    st->scan = fresh;
    st->generation = st->r->generation;
    return 0;
}

static int stream_run(struct br_redact_stream *st, uint64_t old_end, struct br_buf *out,
                      struct br_err *err)
{
    struct redact_scan *s = &st->scan;
    s->text = st->window.data ? st->window.data : (const uint8_t *)"";
    s->end = s->base + st->window.len;
    extend_open(s, old_end);
    scan_window(s);
    scan_write(s, out);
    /* keep what is not decided, and a little before it */
    uint64_t safe = scan_safe(s), keep = s->out_pos < safe ? s->out_pos : safe;
    st->resume = keep;
    keep = keep > s->base + HISTORY ? keep - HISTORY : s->base;
    size_t drop = (size_t)(keep - s->base);
    if (drop) {
        memmove(st->window.data, st->window.data + drop, st->window.len - drop);
        st->window.len -= drop;
        s->base = keep;
    }
    return scan_result(s, out, err);
}

int br_redact_stream_feed(struct br_redact_stream *st, const void *chunk, size_t n,
                          struct br_buf *out, struct br_err *err)
{
    if (stream_refresh(st) < 0 || br_buf_put(&st->window, chunk, n) < 0) {
        st->scan.failed = true;
        return scan_result(&st->scan, out, err);
    }
    return stream_run(st, st->scan.end, out, err);
}

int br_redact_stream_end(struct br_redact_stream *st, struct br_buf *out, struct br_err *err)
{
    if (stream_refresh(st) < 0)
        st->scan.failed = true;
    st->scan.final = true;
    int ret = stream_run(st, st->scan.end, out, err);
    struct redact_scan fresh;
    if (ret == 0 && scan_init(&fresh, st->r) == 0) {
        scan_free(&st->scan);
        st->scan = fresh;
        st->resume = 0;
        br_buf_reset(&st->window);
    } else {
        st->scan.failed = true;
        ret = scan_result(&st->scan, out, err);
    }
    return ret;
}
