/*
 * One answer of a provider while it passes: server-sent events (WHATWG HTML, 9.2), an answer that
 * is not streamed, or an error. Called by bridle-broker on hostile bytes. Whatever leaves is in one
 * form ("event: NAME" where the dialect has names, one "data:" line, an empty line), so that no
 * client splits the stream differently; an event that has it already is passed on as it came.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "broker/dialect_priv.h"

const char *const br_repair_names[BR_REPAIRS] = {"finish", "ids",  "function_call",
                                                 "total",  "done", "index"};

static const struct br_dialect *dialect_of(uint32_t route)
{
    return route == BR_ROUTE_MESSAGES    ? &br_dialect_messages
           : route == BR_ROUTE_RESPONSES ? &br_dialect_responses
                                         : &br_dialect_chat;
}

static bool type_is(const char *s, const char *want)
{
    size_t n = strlen(want);
    return s && strncasecmp(s, want, n) == 0 && (s[n] == 0 || s[n] == ';' || s[n] == ' ');
}

struct br_answer *br_answer_new(const struct br_lease *l, const struct br_ask_facts *f,
                                uint32_t status, const char *content_type)
{
    struct br_answer *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    a->ask = *f;
    a->status = status;
    a->dialect = dialect_of(f->route);
    a->normalize = l->answers == BR_ANSWERS_NORMALIZE;
    a->guest = l->token[0] != 0;
    a->total_max = l->max_response_bytes;
    br_buf_init(&a->line, BR_ANSWER_LINE_MAX);
    br_buf_init(&a->data, f->stream ? BR_ANSWER_EVENT_MAX : BR_ANSWER_WHOLE_MAX);
    br_buf_init(&a->words, 2 * BR_ANSWER_WHOLE_MAX);
    if (status < 200 || status > 299)
        a->kind = BR_ANSWER_ERROR;
    else
        a->kind = f->stream ? BR_ANSWER_STREAM : BR_ANSWER_WHOLE;
    const char *want = f->stream ? "text/event-stream" : "application/json";
    if (a->kind != BR_ANSWER_ERROR && !type_is(content_type, want))
        br_err_set(&a->failed, BR_E_PROVIDER_INVALID,
                   "the provider's answer is not '%s', which was asked for; it was not used", want);
    a->read.any = a->dialect->make();
    if (!a->read.any)
        br_answer_free(&a);
    return a;
}

void br_answer_free(struct br_answer **ap)
{
    struct br_answer *a = br_steal_ptr(ap);
    if (!a)
        return;
    br_buf_free(&a->line);
    br_buf_free(&a->data);
    br_buf_free(&a->words);
    free(a->read.any);
    free(a->edits);
    free(a->calls);
    free(a);
}

const struct br_answer_facts *br_answer_facts(const struct br_answer *a)
{
    return &a->facts;
}

static int out_status(const struct br_buf *out, struct br_err *err)
{
    return out->failed ? br_err_set(err, BR_E_NOMEM, "no memory for a provider's answer") : 0;
}

/* ---- one event ---- */

static void event_begin(struct br_answer *a)
{
    a->usage = (struct br_usage){.known = false};
    a->said.is = false;
    a->type = (struct br_slice){.p = NULL};
    a->drop = false;
    a->nedits = 0;
    a->words.len = 0;
}

/* The n bytes at p with the event's edits, which lie in them. */
static void put_edited(struct br_answer *a, const char *p, size_t n, struct br_buf *out)
{
    const char *end = p + n;
    for (size_t i = 0; i < a->nedits; i++) {
        const struct br_edit *e = &a->edits[i];
        br_buf_put(out, p, (size_t)(e->p - p));
        br_buf_put(out, a->words.data + e->at, e->len);
        p = e->p + e->n;
    }
    br_buf_put(out, p, (size_t)(end - p));
}

static void put_event(struct br_answer *a, const char *p, size_t n, struct br_buf *out)
{
    if (a->drop)
        return;
    if (a->dialect->names && a->type.p) {
        br_buf_put(out, "event: ", 7);
        br_buf_put(out, a->type.p, a->type.n);
        br_buf_put(out, "\n", 1);
    }
    br_buf_put(out, "data: ", 6);
    put_edited(a, p, n, out);
    br_buf_put(out, "\n\n", 2);
}

/* Names that events have: they go into a line of their own. */
static bool type_ok(const struct br_slice *type)
{
    for (size_t i = 0; i < type->n; i++) {
        char c = type->p[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '.')
            return false;
    }
    return type->p && type->n > 0 && type->n < 64;
}

static bool is_fresh(const struct br_answer *a)
{
    return !a->skip_lf && !a->has_data && !a->has_name && a->line.len == 0;
}

/* ---- events that are like the one before ---- */

static void shape_learn(struct br_answer *a, const char *p, const char *end)
{
    struct br_hole h[BR_HOLES_MAX], swap;
    struct br_shape *s = &a->shape;
    unsigned n = a->dialect->holes(a, h);
    for (unsigned i = 1; i < n; i++) /* in the order of the text */
        for (unsigned k = i; k > 0 && h[k - 1].p > h[k].p; k--) {
            swap = h[k];
            h[k] = h[k - 1];
            h[k - 1] = swap;
        }
    s->n = s->nholes = 0;
    for (unsigned i = 0; i <= n; i++) {
        size_t len = (size_t)((i < n ? h[i].p : end) - p);
        if (len > BR_SHAPE_MAX - s->n)
            return;
        memcpy(s->text + s->n, p, len);
        s->n += (unsigned)len;
        if (i == n)
            break;
        s->at[i] = s->n;
        s->number[i] = h[i].number;
        p = h[i].p + h[i].n;
    }
    s->nholes = n;
}

static const char *hole_end(const char *p, const char *end, bool number)
{
    struct br_scan j;
    struct br_slice text;
    if (!number) {
        br_scan_init(&j, p, (size_t)(end - p), false);
        return br_scan_string_rest(&j, &text) ? j.p - 1 : NULL;
    }
    const char *from = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p > from && p - from < 16 && (*from != '0' || p - from == 1) ? p : NULL;
}

/* Behind the event at p, if it is like the last one; else NULL. */
static const char *shape_match(const struct br_shape *s, const char *p, const char *end)
{
    const char *from = p;
    unsigned at = 0;
    if (!s->nholes)
        return NULL;
    for (unsigned i = 0; i <= s->nholes; i++) {
        size_t len = (i < s->nholes ? s->at[i] : s->n) - at;
        if ((size_t)(end - p) < len || memcmp(p, s->text + at, len) != 0)
            return NULL;
        p += len;
        if (i == s->nholes)
            break;
        at = s->at[i];
        p = hole_end(p, end, s->number[i]);
        if (!p)
            return NULL;
    }
    return p - from <= BR_ANSWER_LINE_MAX ? p : NULL;
}

/* ---- events in the form that leaves ---- */

enum fast { FAST_NOT, FAST_PASS, FAST_REWRITTEN, FAST_FAILED };

/*
 * The event at p, if it is whole, in the form that leaves, and readable; *next is behind it. What
 * is anything else is left to the reader of lines, which says what is wrong with it.
 */
static enum fast event_fast(struct br_answer *a, const char *p, const char *end, const char **next,
                            const char **data, size_t *n, struct br_err *err)
{
    const char *name = NULL, *begin = p;
    size_t name_n = 0;
    *next = shape_match(&a->shape, p, end);
    if (*next)
        return FAST_PASS;
    a->shape.nholes = 0;
    if (a->dialect->names) {
        if (end - p < 8 || memcmp(p, "event: ", 7) != 0)
            return FAST_NOT;
        name = p + 7;
        size_t look = (size_t)(end - name) < 80 ? (size_t)(end - name) : 80;
        p = memchr(name, '\n', look);
        if (!p)
            return FAST_NOT;
        name_n = (size_t)(p++ - name);
    }
    if (end - p < 8 || memcmp(p, "data: ", 6) != 0)
        return FAST_NOT;
    const char *from = p + 6;
    struct br_scan j;
    br_scan_init(&j, from, (size_t)(end - from), false);
    event_begin(a);
    if (!a->dialect->read(a, &j, false))
        return FAST_NOT;
    const char *stop = j.p;
    while (stop < end && (*stop == ' ' || *stop == '\t'))
        stop++;
    if (end - stop < 2 || stop[0] != '\n' || stop[1] != '\n' ||
        (size_t)(stop - p) > BR_ANSWER_LINE_MAX)
        return FAST_NOT;
    if (a->dialect->names &&
        (!type_ok(&a->type) || a->type.n != name_n || memcmp(name, a->type.p, name_n) != 0))
        return FAST_NOT;
    *next = stop + 2;
    *data = from;
    *n = (size_t)(stop - from);
    if (a->dialect->apply(a, false, err) < 0)
        return FAST_FAILED;
    if (a->drop || a->nedits)
        return FAST_REWRITTEN;
    shape_learn(a, begin, *next);
    return FAST_PASS;
}

/* "[DONE]": the end of a stream of chat completions; the others have an event for it. */
static int done_take(struct br_answer *a, struct br_buf *out, struct br_err *err)
{
    if (a->dialect != &br_dialect_chat)
        return 0;
    if (!a->facts.finish[0])
        return br_answer_invalid(err, "ends without a finish reason");
    a->done = a->facts.complete = true;
    br_buf_printf(out, "data: [DONE]\n\n");
    return 0;
}

static int unreadable(const struct br_scan *j, bool last, struct br_err *err)
{
    if (last)
        return br_err_set(err, BR_E_PROVIDER_TRUNCATED,
                          "the provider's answer ends in the middle; it was not used");
    if (j->state == BR_SCAN_REFUSED)
        return br_answer_invalid(err, j->why);
    return br_err_set(err, BR_E_PROVIDER_INVALID,
                      "the provider's answer is not JSON (%s); it was not used", j->why);
}

static int event_judge(struct br_answer *a, bool last, struct br_buf *out, struct br_err *err)
{
    char *p = (char *)a->data.data;
    size_t n = a->data.len;
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    if (n == 6 && memcmp(p, "[DONE]", 6) == 0)
        return done_take(a, out, err);
    struct br_scan j;
    br_scan_init(&j, p, a->data.len, true);
    event_begin(a);
    if (!a->dialect->read(a, &j, false) || !br_scan_done(&j))
        return unreadable(&j, last, err);
    if (a->dialect->names && !a->said.is) {
        if (!type_ok(&a->type))
            return br_answer_invalid(err, "has an event without a usable type");
        if (a->has_name &&
            (strlen(a->name) != a->type.n || memcmp(a->name, a->type.p, a->type.n) != 0))
            return br_answer_invalid(err, "has an event whose name is not its type");
    }
    for (char *lf = p; (lf = memchr(lf, '\n', a->data.len - (size_t)(lf - p)));)
        *lf = ' '; /* between values only */
    int r = a->dialect->apply(a, false, err);
    if (r == 0)
        put_event(a, p, a->data.len, out);
    return r;
}

/* ---- lines ---- */

static int event_end(struct br_answer *a, bool last, struct br_buf *out, struct br_err *err)
{
    int r = a->data.len ? event_judge(a, last, out, err) : 0;
    br_buf_reset(&a->data);
    a->has_data = a->has_name = false;
    return r;
}

static int too_long(struct br_err *err, const char *what, unsigned max)
{
    return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                      "the provider's answer has %s of more than %u bytes; it was not used", what,
                      max);
}

static int field_take(struct br_answer *a, const char *p, size_t n, struct br_err *err)
{
    const char *colon = memchr(p, ':', n);
    size_t name = colon ? (size_t)(colon - p) : n;
    const char *value = colon ? colon + 1 : p + n;
    size_t len = (size_t)(p + n - value);
    if (len && *value == ' ') {
        value++;
        len--;
    }
    if (name == 4 && memcmp(p, "data", 4) == 0) {
        if (a->data.len + a->has_data + len > BR_ANSWER_EVENT_MAX)
            return too_long(err, "an event", BR_ANSWER_EVENT_MAX);
        if (a->has_data)
            br_buf_put(&a->data, "\n", 1);
        a->has_data = true;
        if (br_buf_put(&a->data, value, len) < 0)
            return br_err_set(err, BR_E_NOMEM, "no memory for a provider's answer");
    } else if (name == 5 && memcmp(p, "event", 5) == 0) {
        size_t keep = len < sizeof(a->name) - 1 ? len : sizeof(a->name) - 1;
        memcpy(a->name, value, keep);
        a->name[keep] = 0;
        a->has_name = true;
    }
    return 0; /* id and retry are for browsers that come back */
}

static int line_take(struct br_answer *a, const char *p, size_t n, struct br_buf *out,
                     struct br_err *err)
{
    if (n == 0)
        return event_end(a, false, out, err);
    if (*p != ':')
        return field_take(a, p, n, err);
    /* a sign of life; what else it says is not for a guest */
    if (!a->has_data && !a->has_name)
        br_buf_put(out, ":\n\n", 3);
    return 0;
}

static const char *line_end(const char *p, const char *end)
{
    const char *lf = memchr(p, '\n', (size_t)(end - p));
    const char *cr = memchr(p, '\r', (size_t)((lf ? lf : end) - p));
    return cr ? cr : lf;
}

/* Up to the end of a line, or all that there is. */
static int line_feed(struct br_answer *a, const char **pp, const char *end, struct br_buf *out,
                     struct br_err *err)
{
    const char *p = *pp;
    a->shape.nholes = 0;
    if (a->skip_lf) {
        a->skip_lf = false;
        if (*p == '\n') {
            ++*pp;
            return 0;
        }
    }
    const char *stop = line_end(p, end);
    size_t n = (size_t)((stop ? stop : end) - p);
    if (a->line.len + n > BR_ANSWER_LINE_MAX)
        return too_long(err, "a line", BR_ANSWER_LINE_MAX);
    if (!stop || a->line.len)
        if (br_buf_put(&a->line, p, n) < 0)
            return br_err_set(err, BR_E_NOMEM, "no memory for a provider's answer");
    if (!stop) {
        *pp = end;
        return 0;
    }
    *pp = stop + 1;
    a->skip_lf = *stop == '\r';
    if (!a->line.len)
        return line_take(a, p, n, out, err);
    int r = line_take(a, (const char *)a->line.data, a->line.len, out, err);
    br_buf_reset(&a->line);
    return r;
}

static int stream_feed(struct br_answer *a, const char *p, const char *end, struct br_buf *out,
                       struct br_err *err)
{
    const char *run = p, *next = NULL, *data = NULL; /* [run, p) passes on as it came */
    size_t n = 0;
    int r = 0;
    while (p < end && !a->done && r == 0) {
        enum fast how = is_fresh(a) ? event_fast(a, p, end, &next, &data, &n, err) : FAST_NOT;
        if (how == FAST_PASS) {
            p = next;
            continue;
        }
        br_buf_put(out, run, (size_t)(p - run));
        if (how == FAST_FAILED)
            return -(int)err->code;
        if (how == FAST_REWRITTEN) {
            put_event(a, data, n, out);
            p = next;
        } else {
            r = line_feed(a, &p, end, out, err);
        }
        run = p;
    }
    br_buf_put(out, run, (size_t)(p - run));
    return r;
}

/* ---- the body ---- */

/* Past the byte order mark; refused if it is compressed. */
static int head_take(struct br_answer *a, size_t *skip, struct br_err *err)
{
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    a->started = true;
    *skip = a->nhead >= 3 && memcmp(a->head, mark, 3) == 0 ? 3 : 0;
    if ((a->nhead >= 2 && a->head[0] == 0x1f && a->head[1] == 0x8b) ||
        (a->nhead == 4 && memcmp(a->head, zstd, 4) == 0))
        return br_answer_invalid(err, "is compressed, which nobody asked for");
    return 0;
}

static int body_feed(struct br_answer *a, const char *p, size_t n, struct br_buf *out,
                     struct br_err *err)
{
    if (a->kind == BR_ANSWER_STREAM)
        return stream_feed(a, p, p + n, out, err);
    size_t max = a->kind == BR_ANSWER_ERROR ? BR_ANSWER_ERROR_MAX : BR_ANSWER_WHOLE_MAX;
    size_t room = max - a->data.len;
    if (n > room) {
        if (a->kind != BR_ANSWER_ERROR)
            return too_long(err, "a body", (unsigned)max);
        n = room;
    }
    return br_buf_put(&a->data, p, n) < 0
               ? br_err_set(err, BR_E_NOMEM, "no memory for a provider's answer")
               : 0;
}

static int head_flush(struct br_answer *a, struct br_buf *out, struct br_err *err)
{
    size_t skip;
    int r = head_take(a, &skip, err);
    return r < 0 ? r : body_feed(a, (const char *)a->head + skip, a->nhead - skip, out, err);
}

static int feed(struct br_answer *a, const char *p, size_t n, struct br_buf *out,
                struct br_err *err)
{
    if (!a->started) {
        while (n && a->nhead < sizeof(a->head)) {
            a->head[a->nhead++] = (uint8_t)*p++;
            n--;
        }
        if (a->nhead < sizeof(a->head))
            return 0;
        int r = head_flush(a, out, err);
        if (r < 0)
            return r;
    }
    return n ? body_feed(a, p, n, out, err) : 0;
}

/* A failed answer stays failed. */
static int remember(struct br_answer *a, int r, const struct br_err *why, struct br_err *err)
{
    if (r == 0)
        return 0;
    if (!a->failed.code)
        a->failed = *why;
    if (err)
        *err = a->failed;
    return -(int)a->failed.code;
}

int br_answer_feed(struct br_answer *a, const void *p, size_t n, struct br_buf *out,
                   struct br_err *err)
{
    struct br_err why = a->failed;
    if (why.code)
        return remember(a, -1, &why, err);
    if (a->done || n == 0)
        return 0; /* behind the end of a stream nobody looks */
    uint64_t room = a->total_max - a->total;
    size_t take = n > room ? (size_t)room : n;
    a->total += take;
    int r = feed(a, p, take, out, &why);
    if (r == 0 && take < n && !a->done)
        r = br_err_set(&why, BR_E_LIMIT_EXCEEDED,
                       "the provider's answer is over the lease's ceiling for answers; it was cut");
    if (r == 0)
        r = out_status(out, &why);
    return remember(a, r, &why, err);
}

/* ---- the end ---- */

static int truncated(struct br_err *err)
{
    return br_err_set(
        err, BR_E_PROVIDER_TRUNCATED,
        "the provider's answer ended before it said that it is over; it was not used");
}

static int stream_end(struct br_answer *a, struct br_buf *out, struct br_err *err)
{
    int r = 0;
    if (a->done)
        return 0;
    if (a->line.len) {
        r = line_take(a, (const char *)a->line.data, a->line.len, out, err);
        br_buf_reset(&a->line);
    }
    if (r == 0 && a->has_data)
        r = event_end(a, true, out, err);
    if (r < 0 || a->done)
        return r;
    bool said_all = a->facts.finish[0] && a->facts.usage_known;
    if (!a->normalize || !said_all || a->dialect == &br_dialect_responses)
        return truncated(err);
    a->facts.repairs |= BR_REPAIR_DONE;
    a->done = a->facts.complete = true;
    br_buf_printf(out, a->dialect == &br_dialect_messages
                           ? "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
                           : "data: [DONE]\n\n");
    return 0;
}

static int whole_end(struct br_answer *a, struct br_buf *out, struct br_err *err)
{
    struct br_scan j;
    br_scan_init(&j, a->data.data ? (const char *)a->data.data : "", a->data.len, true);
    event_begin(a);
    if (!a->dialect->read(a, &j, true) || !br_scan_done(&j))
        return unreadable(&j, j.state == BR_SCAN_SHORT, err);
    int r = a->dialect->apply(a, true, err);
    if (r < 0)
        return r;
    a->facts.complete = true;
    put_edited(a, (const char *)a->data.data, a->data.len, out);
    return 0;
}

int br_answer_end(struct br_answer *a, struct br_buf *out, struct br_err *err)
{
    struct br_err why = a->failed;
    if (why.code)
        return remember(a, -1, &why, err);
    int r = a->started ? 0 : head_flush(a, out, &why);
    if (r == 0 && a->kind == BR_ANSWER_STREAM)
        r = stream_end(a, out, &why);
    else if (r == 0 && a->kind == BR_ANSWER_WHOLE)
        r = whole_end(a, out, &why);
    else if (r == 0)
        br_error_pass(a->ask.route, a->status, (const char *)a->data.data, a->data.len, out);
    if (r == 0)
        r = out_status(out, &why);
    return remember(a, r, &why, err);
}
