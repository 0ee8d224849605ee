/*
 * Answers as providers really send them (core/broker/streams): what passes, that no way of cutting
 * a stream into pieces and no way of writing its lines changes anything, and that a stream that is
 * cut off at any byte is an error or the identical result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/dialect.h"

static const struct stream {
    const char *file;
    uint32_t route;
    const char *finish;
    uint32_t calls;
    uint64_t prompt, completion;
} streams[] = {
    {"chat-text.sse", BR_ROUTE_CHAT, "stop", 0, 31, 17},
    {"chat-tools.sse", BR_ROUTE_CHAT, "tool_calls", 2, 31, 17},
    {"chat-other.sse", BR_ROUTE_CHAT, "tool_calls", 1, 5, 9},
    {"messages-text.sse", BR_ROUTE_MESSAGES, "stop", 0, 32, 15},
    {"messages-tools.sse", BR_ROUTE_MESSAGES, "tool_calls", 2, 472, 89},
    {"responses-text.sse", BR_ROUTE_RESPONSES, "stop", 0, 37, 11},
    {"responses-tools.sse", BR_ROUTE_RESPONSES, "tool_calls", 1, 37, 11},
};

static void load(const char *file, struct br_buf *b)
{
    char path[4096], piece[4096];
    const char *source = getenv("BRIDLE_SOURCE");
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/core/broker/streams/%s", source ? source : ".", file);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    if (!f)
        fail_msg("%s could not be opened", path);
    while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
        br_buf_put(b, piece, n);
}

struct result {
    struct br_buf out;
    struct br_err err;
    struct br_answer_facts facts;
    int code;
};

static struct br_answer *begin(uint32_t route, bool normalize, bool hide)
{
    struct br_lease l = {.answers = normalize ? BR_ANSWERS_NORMALIZE : BR_ANSWERS_STRICT,
                         .max_response_bytes = 64 << 20};
    struct br_ask_facts f = {.route = route, .stream = true, .hide_usage = hide};
    memset(l.token, 'a', 64);
    struct br_answer *a = br_answer_new(&l, &f, 200, "text/event-stream; charset=utf-8");
    assert_non_null(a);
    return a;
}

/* `size` says how long the next piece is; NULL: all at once. */
static void pass(struct br_answer *a, const uint8_t *p, size_t n, size_t (*size)(size_t at),
                 struct result *r)
{
    *r = (struct result){.out = BR_BUF_INIT(64 << 20)};
    for (size_t at = 0; at < n && r->code == 0;) {
        size_t k = size ? size(at) : n;
        k = k > n - at ? n - at : k;
        /* a copy of just these bytes, so that a sanitizer sees who reads on */
        uint8_t *piece = malloc(k ? k : 1);
        assert_non_null(piece);
        memcpy(piece, p + at, k);
        r->code = br_answer_feed(a, piece, k, &r->out, &r->err);
        free(piece);
        at += k;
    }
    if (r->code == 0)
        r->code = br_answer_end(a, &r->out, &r->err);
    r->facts = *br_answer_facts(a);
    br_answer_free(&a);
}

static void same(const struct result *a, const struct result *b, const char *what)
{
    if (a->code != b->code || a->out.len != b->out.len ||
        (a->out.len && memcmp(a->out.data, b->out.data, a->out.len) != 0) ||
        strcmp(a->facts.finish, b->facts.finish) != 0 || a->facts.calls != b->facts.calls ||
        a->facts.prompt != b->facts.prompt || a->facts.completion != b->facts.completion ||
        a->facts.complete != b->facts.complete || strcmp(a->err.text, b->err.text) != 0)
        fail_msg("%s: code %d and %d (%s; %s), %zu and %zu bytes:\n%.*s\n---\n%.*s", what, a->code,
                 b->code, a->err.text, b->err.text, a->out.len, b->out.len, (int)a->out.len,
                 (const char *)a->out.data, (int)b->out.len, (const char *)b->out.data);
}

static uint64_t seed;

static size_t size_one(size_t at)
{
    (void)at;
    return 1;
}

static size_t size_random(size_t at)
{
    (void)at;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return 1 + (size_t)(seed >> 33) % ((seed >> 60) < 8 ? 4 : 300);
}

static size_t split_at;
static size_t size_split(size_t at)
{
    return at < split_at ? split_at - at : SIZE_MAX;
}

static void test_recorded(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++)
        for (int normalize = 0; normalize < 2; normalize++) {
            const struct stream *s = &streams[i];
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
            struct result r;
            load(s->file, &b);
            pass(begin(s->route, normalize, false), b.data, b.len, NULL, &r);
            if (r.code < 0)
                fail_msg("%s: %s", s->file, r.err.text);
            if (strcmp(s->file, "chat-other.sse") != 0) { /* has comments, which are emptied */
                assert_int_equal(r.out.len, b.len);
                assert_memory_equal(r.out.data, b.data, b.len);
            }
            assert_string_equal(r.facts.finish, s->finish);
            assert_int_equal(r.facts.calls, s->calls);
            assert_true(r.facts.usage_known && r.facts.complete);
            assert_int_equal(r.facts.prompt, s->prompt);
            assert_int_equal(r.facts.completion, s->completion);
            assert_int_equal(r.facts.repairs, 0);
            br_buf_free(&r.out);
        }
}

static void test_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++) {
        const struct stream *s = &streams[i];
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
        struct result whole, r;
        load(s->file, &b);
        pass(begin(s->route, false, true), b.data, b.len, NULL, &whole);
        pass(begin(s->route, false, true), b.data, b.len, size_one, &r);
        same(&whole, &r, s->file);
        br_buf_free(&r.out);
        for (split_at = 1; split_at < b.len; split_at++) {
            pass(begin(s->route, false, true), b.data, b.len, size_split, &r);
            same(&whole, &r, s->file);
            br_buf_free(&r.out);
        }
        for (unsigned k = 0; k < 50; k++) {
            seed = k;
            pass(begin(s->route, false, true), b.data, b.len, size_random, &r);
            same(&whole, &r, s->file);
            br_buf_free(&r.out);
        }
        br_buf_free(&whole.out);
    }
}

/* Cut off after every byte: an error, or the identical result. */
static void test_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++)
        for (int normalize = 0; normalize < 2; normalize++) {
            const struct stream *s = &streams[i];
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
            struct result whole, r;
            size_t good = 0;
            load(s->file, &b);
            pass(begin(s->route, normalize, false), b.data, b.len, NULL, &whole);
            for (size_t n = 0; n < b.len; n++) {
                pass(begin(s->route, normalize, false), b.data, n, NULL, &r);
                if (r.code == 0) {
                    good++;
                    same(&whole, &r, s->file);
                } else {
                    assert_int_equal(r.code, -BR_E_PROVIDER_TRUNCATED);
                    assert_false(r.facts.complete);
                    assert_true(r.out.len <= whole.out.len);
                }
                br_buf_free(&r.out);
            }
            assert_in_range(good, 1, normalize ? 100 : 4);
            br_buf_free(&whole.out);
        }
}

/* ---- the same stream, written in other ways ---- */

static void put_line(struct br_buf *b, const char *p, size_t n, const char *eol)
{
    br_buf_put(b, p, n);
    br_buf_printf(b, "%s", eol);
}

/* One line of data as many: after each comma that is followed by a quote. */
static void put_lines(struct br_buf *b, const char *p, size_t n, const char *eol)
{
    size_t from = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && quoted)
            i++;
        else if (p[i] == '"')
            quoted = !quoted;
        if (i > 6 && p[i] == ',' && !quoted) {
            put_line(b, p + from, i + 1 - from, eol);
            br_buf_printf(b, "data:");
            from = i + 1;
        }
    }
    put_line(b, p + from, n - from, eol);
}

enum { CRLF = 1, CR = 2, COMMENTS = 4, FIELDS = 8, TIGHT = 16, LINES = 32, MARK = 64, BLANK = 128 };

static void rewrite(const struct br_buf *in, unsigned how, struct br_buf *out)
{
    const char *eol = how & CRLF ? "\r\n" : how & CR ? "\r" : "\n";
    const char *p = (const char *)in->data, *end = p + in->len;
    if (how & MARK)
        br_buf_printf(out, "\xef\xbb\xbf");
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)(lf - p);
        if (n && (how & COMMENTS))
            br_buf_printf(out, "event: dropped%s: in the event%s", eol, eol);
        if (n && (how & FIELDS))
            br_buf_printf(out, "id: 7%sretry: 10%sunknown%sdatax: 1%s", eol, eol, eol, eol);
        if (n > 6 && (how & TIGHT) && memcmp(p, "data: ", 6) == 0) {
            br_buf_printf(out, "data:");
            put_line(out, p + 6, n - 6, eol);
        } else if (n > 6 && (how & LINES) && memcmp(p, "data: {", 7) == 0) {
            put_lines(out, p, n, eol);
        } else {
            put_line(out, p, n, eol);
        }
        if (!n && (how & BLANK))
            br_buf_printf(out, "%s%s", eol, eol);
        p = lf + 1;
    }
}

static void drop_spaces(struct br_buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++)
        if (b->data[i] != ' ')
            b->data[n++] = b->data[i];
    b->len = n;
}

static void test_written(void **state)
{
    static const unsigned ways[] = {CRLF,
                                    CR,
                                    MARK,
                                    FIELDS,
                                    TIGHT,
                                    BLANK,
                                    LINES,
                                    CRLF | FIELDS,
                                    CR | LINES | TIGHT,
                                    MARK | CRLF,
                                    CR | FIELDS | BLANK,
                                    CRLF | LINES | FIELDS};
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++)
        for (size_t w = 0; w < BR_ARRAY_LEN(ways); w++) {
            const struct stream *s = &streams[i];
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20), other = BR_BUF_INIT(1 << 20);
            struct result plain, r, bytes;
            load(s->file, &b);
            rewrite(&b, ways[w], &other);
            pass(begin(s->route, false, false), b.data, b.len, NULL, &plain);
            pass(begin(s->route, false, false), other.data, other.len, NULL, &r);
            pass(begin(s->route, false, false), other.data, other.len, size_one, &bytes);
            same(&r, &bytes, s->file);
            if (ways[w] & LINES) { /* line ends became spaces */
                drop_spaces(&plain.out);
                drop_spaces(&r.out);
            }
            same(&plain, &r, s->file);
            br_buf_free(&plain.out);
            br_buf_free(&r.out);
            br_buf_free(&bytes.out);
        }
}

/* A name in an event of chat completions means nothing; in the others it must be the type. */
static void test_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++) {
        const struct stream *s = &streams[i];
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20), other = BR_BUF_INIT(1 << 20);
        struct result plain, r;
        load(s->file, &b);
        rewrite(&b, COMMENTS, &other);
        pass(begin(s->route, false, false), b.data, b.len, NULL, &plain);
        pass(begin(s->route, false, false), other.data, other.len, NULL, &r);
        if (s->route == BR_ROUTE_CHAT) {
            assert_int_equal(r.code, 0);
        } else {
            assert_int_equal(r.code, -BR_E_PROVIDER_INVALID);
            assert_non_null(strstr(r.err.text, "name is not its type"));
        }
        br_buf_free(&plain.out);
        br_buf_free(&r.out);
    }
}

/* Without names the events get them: clients of these dialects go by the name. */
static void test_unnamed(void **state)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20), other = BR_BUF_INIT(1 << 20);
    struct result plain, r;
    (void)state;
    load("messages-tools.sse", &b);
    for (char *p = br_buf_cstr(&b), *lf; (lf = strchr(p, '\n')); p = lf + 1)
        if (strncmp(p, "event:", 6) != 0)
            put_line(&other, p, (size_t)(lf - p), "\n");
    pass(begin(BR_ROUTE_MESSAGES, false, false), b.data, b.len, NULL, &plain);
    pass(begin(BR_ROUTE_MESSAGES, false, false), other.data, other.len, NULL, &r);
    same(&plain, &r, "without names");
    br_buf_free(&plain.out);
    br_buf_free(&r.out);
}

/* The chunk that we asked for is not for a guest that did not. */
static void test_usage_hidden(void **state)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    struct result r;
    (void)state;
    load("chat-text.sse", &b);
    pass(begin(BR_ROUTE_CHAT, false, true), b.data, b.len, NULL, &r);
    assert_int_equal(r.code, 0);
    assert_null(strstr(br_buf_cstr(&r.out), "prompt_tokens"));
    assert_non_null(strstr(br_buf_cstr(&r.out), "[DONE]"));
    assert_true(r.facts.usage_known);
    br_buf_free(&r.out);
}

/* What follows the end of a stream is not looked at, and not passed on. */
static void test_behind_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++) {
        const struct stream *s = &streams[i];
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
        struct result plain, r, bytes;
        load(s->file, &b);
        pass(begin(s->route, false, false), b.data, b.len, NULL, &plain);
        br_buf_printf(&b, "data: {\"error\":\"late\"}\n\ndata: [DONE]\n\nxx");
        pass(begin(s->route, false, false), b.data, b.len, NULL, &r);
        pass(begin(s->route, false, false), b.data, b.len, size_one, &bytes);
        same(&plain, &r, s->file);
        same(&plain, &bytes, s->file);
        br_buf_free(&plain.out);
        br_buf_free(&r.out);
        br_buf_free(&bytes.out);
    }
}

/* Any one byte changed: any way of cutting gives the same verdict, and nothing hangs or crashes. */
static void test_damaged(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(streams); i++) {
        const struct stream *s = &streams[i];
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
        struct result r, other;
        load(s->file, &b);
        for (size_t at = 0; at < b.len; at++) {
            uint8_t was = b.data[at];
            b.data[at] = (uint8_t) "\n\r\"\\{}0\xff"[at % 8];
            pass(begin(s->route, true, false), b.data, b.len, NULL, &r);
            seed = at;
            pass(begin(s->route, true, false), b.data, b.len, size_random, &other);
            same(&r, &other, s->file);
            br_buf_free(&r.out);
            br_buf_free(&other.out);
            b.data[at] = was;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),     cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_cut),          cmocka_unit_test(test_written),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_unnamed),
        cmocka_unit_test(test_usage_hidden), cmocka_unit_test(test_behind_the_end),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
