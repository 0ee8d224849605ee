/*
 * Streamed text. What the model says arrives in pieces of any size; a redactor per stream holds
 * back what may belong to a secret, and what is decided becomes bridle.text events: soon, but not
 * one for every few letters, and always before the next event of another type.
 */
#include <string.h>

#include "audit/audit_priv.h"

static struct text_stream *find_stream(struct audit *a, const char *id)
{
    for (unsigned i = 0; i < AUDIT_STREAMS_MAX; i++)
        if (a->streams[i].redact && strcmp(a->streams[i].id, id) == 0)
            return &a->streams[i];
    return NULL;
}

static struct text_stream *open_stream(struct audit *a, const char *id, const char *kind,
                                       struct br_err *err)
{
    for (unsigned i = 0; i < AUDIT_STREAMS_MAX; i++) {
        struct text_stream *s = &a->streams[i];
        if (s->redact)
            continue;
        *s = (struct text_stream){.redact = br_redact_stream_new(a->rec.redact)};
        if (!s->redact) {
            br_err_set(err, BR_E_REDACTION_FAILED, "no memory to redact the text of '%s'", id);
            return NULL;
        }
        snprintf(s->id, sizeof(s->id), "%s", id);
        snprintf(s->kind, sizeof(s->kind), "%s", kind);
        br_buf_init(&s->out, BR_BLOB_MAX + 64u * 1024);
        return s;
    }
    br_err_set(err, BR_E_EVENT_SCHEMA, "more than %u streams of text are open; '%s' was not stored",
               AUDIT_STREAMS_MAX, id);
    return NULL;
}

static void close_stream(struct text_stream *s)
{
    br_redact_stream_free(&s->redact);
    br_buf_free(&s->out);
}

/* The bytes as text: what is not valid UTF-8, and NUL, becomes U+FFFD. */
static json_t *as_text(const uint8_t *p, size_t n)
{
    BR_CLEANUP_BUF struct br_buf literal = BR_BUF_INIT(8 * (n + 1));
    br_buf_put_json_str(&literal, (const char *)p, n);
    if (literal.failed)
        return NULL;
    /* "\u0000" is the one escape that the parser refuses; a NUL is no text */
    for (size_t i = 1; i + 6 <= literal.len; i++) {
        if (literal.data[i] != '\\')
            continue;
        if (memcmp(literal.data + i, "\\u0000", 6) == 0)
            memcpy(literal.data + i, "\\ufffd", 6);
        i++;
    }
    return json_loadb((const char *)literal.data, literal.len, JSON_DECODE_ANY, NULL);
}

/* How much of the n bytes one event takes: not more than its limit allows when every bad byte
 * becomes three, and not half a character unless nothing follows. */
static size_t take(const uint8_t *p, size_t n, bool last)
{
    size_t max = BR_EVENT_TEXT_MAX / 3;
    if (n > max)
        return br_utf8_floor(p, max);
    return last ? n : br_utf8_floor(p, n);
}

/* Store what the stream has; with `last`, the last event says so, even if it is empty. */
static int store_stream(struct audit *a, struct text_stream *s, bool last, struct br_err *err)
{
    size_t off = 0;
    for (;;) {
        size_t left = s->out.len - off, n = left ? take(s->out.data + off, left, last) : 0;
        bool final = last && n == left;
        if (n == 0 && !final)
            break;
        json_t *data = json_pack("{s:s, s:s, s:o?, s:b}", "stream", s->id, "kind", s->kind, "text",
                                 as_text(n ? s->out.data + off : NULL, n), "final", (int) final);
        int r =
            data ? recorder_add(&a->rec, "bridle.text", "agent", data, true, err)
                 : br_err_set(err, BR_E_REDACTION_FAILED,
                              "a piece of the text of '%s' is no text; it was not stored", s->id);
        json_decref(data);
        if (r < 0)
            return r;
        off += n;
        if (final)
            break;
    }
    if (off) {
        memmove(s->out.data, s->out.data + off, s->out.len - off);
        s->out.len -= off;
    }
    return 0;
}

bool text_waits(const struct audit *a)
{
    for (unsigned i = 0; i < AUDIT_STREAMS_MAX; i++)
        if (a->streams[i].redact)
            return true;
    return false;
}

static int on_text_timer(void *ctx, struct br_err *err)
{
    struct audit *a = ctx;
    a->text_timer = 0;
    if (a->broken.code)
        return 0;
    int r = text_flush(a, &a->broken);
    if (r == 0)
        r = recorder_commit(&a->rec, &a->broken);
    return r == 0 ? feed_pump(a, err) : 0;
}

int text_feed(struct audit *a, const char *stream, const char *kind, const void *bytes, size_t n,
              bool final, struct reply *reply, struct br_err *err)
{
    struct text_stream *s = find_stream(a, stream);
    if (!s)
        s = open_stream(a, stream, kind, err);
    if (!s)
        return -(int)(err->code ? err->code : BR_E_REDACTION_FAILED);
    int r = strcmp(s->kind, kind) == 0
                ? br_redact_stream_feed(s->redact, bytes, n, &s->out, err)
                : br_err_set(err, BR_E_EVENT_SCHEMA, "the text of '%s' changed its kind", stream);
    if (r == 0 && final) {
        r = br_redact_stream_end(s->redact, &s->out, err);
        if (r == 0)
            r = store_stream(a, s, true, err);
        close_stream(s);
        reply->row = a->rec.run.rows;
        return r;
    }
    if (r == 0 && s->out.len >= AUDIT_TEXT_MAX) {
        uint64_t before = a->rec.run.rows;
        r = store_stream(a, s, false, err);
        reply->row = a->rec.run.rows > before ? a->rec.run.rows : 0;
    } else if (r == 0 && a->text_timer <= 0 && a->loop) {
        a->text_timer = br_loop_timer(a->loop, AUDIT_TEXT_US, on_text_timer, a);
    }
    return r;
}

int text_flush(struct audit *a, struct br_err *err)
{
    int r = 0;
    for (unsigned i = 0; i < AUDIT_STREAMS_MAX && r == 0; i++)
        if (a->streams[i].redact)
            r = store_stream(a, &a->streams[i], false, err);
    return r;
}

int text_finish(struct audit *a, struct br_err *err)
{
    int r = 0;
    for (unsigned i = 0; i < AUDIT_STREAMS_MAX && r == 0; i++) {
        struct text_stream *s = &a->streams[i];
        if (!s->redact)
            continue;
        r = br_redact_stream_end(s->redact, &s->out, err);
        if (r == 0)
            r = store_stream(a, s, true, err);
        close_stream(s);
    }
    return r;
}

void text_free(struct audit *a)
{
    for (unsigned i = 0; i < AUDIT_STREAMS_MAX; i++)
        close_stream(&a->streams[i]);
}
