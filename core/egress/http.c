/*
 * HTTP/1.1 of one request and its answer. Called by core/egress/transfer.c only. Every byte of an
 * answer is hostile: a line is kept up to a bound, every rule is the strict one where a lenient one
 * would leave it open where the body ends, and nothing but the listed headers comes out. Because
 * this, and no library, writes requests, one is written once and never again.
 */
#include <string.h>
#include <strings.h>

#include "egress/http.h"

/* What of an answer's head is passed on, and how long it may be. */
static const struct {
    const char *name;
    bool prefix;
    size_t max;
} answer_headers[] = {
    {"content-type", false, 255},  {"x-request-id", false, 255},
    {"request-id", false, 255},    {"retry-after", false, 63},
    {"retry-after-ms", false, 63}, {"openai-processing-ms", false, 63},
    {"x-ratelimit-", true, 127},   {"anthropic-ratelimit-", true, 127},
};

/* What of a guest's head is passed on; content-type is a field of its own. */
static const char *const request_headers[] = {"accept", "anthropic-version", "anthropic-beta",
                                              "openai-beta"};

void br_http_begin(struct br_http *h)
{
    memset(h, 0, offsetof(struct br_http, headers));
    h->headers.n = 0;
}

static int invalid(struct br_err *err, const char *why)
{
    return br_err_set(err, BR_E_PROVIDER_INVALID, "%s", why);
}

/* ---- lines of a head ---- */

static const char *header_value(char *line, size_t colon)
{
    char *v = line + colon + 1;
    while (*v == ' ' || *v == '\t')
        v++;
    size_t n = strlen(v);
    while (n && (v[n - 1] == ' ' || v[n - 1] == '\t'))
        v[--n] = '\0';
    return v;
}

static int take_length(struct br_http *h, const char *v, struct br_err *err)
{
    uint64_t n = 0;
    size_t digits = strspn(v, "0123456789");
    if (digits == 0 || digits > 18 || v[digits])
        return invalid(err, "its Content-Length is no number");
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (uint64_t)(v[i] - '0');
    if (h->has_length && n != h->left)
        return invalid(err, "it has two Content-Lengths");
    h->has_length = true;
    h->left = n;
    return 0;
}

static void keep_header(struct br_http *h, const char *name, const char *v)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(answer_headers); i++) {
        bool is = answer_headers[i].prefix
                      ? strncmp(name, answer_headers[i].name, strlen(answer_headers[i].name)) == 0
                      : strcmp(name, answer_headers[i].name) == 0;
        if (!is)
            continue;
        if (strlen(v) <= answer_headers[i].max && !br_headers_find(&h->headers, name)[0])
            (void)br_headers_add(&h->headers, name, v);
        return;
    }
}

static int take_field(struct br_http *h, struct br_err *err)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789"
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t colon = strspn(h->line, token);
    bool cut = h->line_len >= sizeof(h->line);
    if (colon == 0 || (h->line[colon] != ':' && !(cut && colon == sizeof(h->line) - 1)))
        return invalid(err, "a line of its head is no header");
    h->line[colon] = '\0';
    if (colon >= BR_HEADER_NAME_MAX)
        return 0;
    for (char *c = h->line; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c + 32);
    const char *name = h->line, *v = header_value(h->line, colon);
    bool framing = strcmp(name, "content-length") == 0 || strcmp(name, "transfer-encoding") == 0 ||
                   strcmp(name, "content-encoding") == 0;
    if (framing && cut)
        return invalid(err, "its framing is not to be read");
    if (strcmp(name, "content-length") == 0)
        return take_length(h, v, err);
    if (strcmp(name, "transfer-encoding") == 0) {
        if (h->chunked || strcasecmp(v, "chunked") != 0)
            return invalid(err, "its Transfer-Encoding is not 'chunked'");
        h->chunked = true;
    } else if (strcmp(name, "connection") == 0) {
        h->keep |= strcasestr(v, "keep-alive") != NULL;
        h->closes |= cut || strcasestr(v, "close") != NULL;
    } else if (strcmp(name, "content-encoding") == 0) {
        h->encoded |= v[0] && strcasecmp(v, "identity") != 0;
    } else if (!cut) {
        keep_header(h, name, v);
    }
    return 0;
}

static int take_status(struct br_http *h, struct br_err *err)
{
    const char *l = h->line;
    bool ok = strncmp(l, "HTTP/1.", 7) == 0 && (l[7] == '0' || l[7] == '1') && l[8] == ' ';
    for (int i = 9; ok && i < 12; i++)
        ok = l[i] >= '0' && l[i] <= '9';
    if (!ok || (l[12] != ' ' && l[12] != '\0') || l[9] == '0')
        return invalid(err, "it does not begin as HTTP/1.1 does");
    h->status = (uint32_t)((l[9] - '0') * 100 + (l[10] - '0') * 10 + (l[11] - '0'));
    h->has_length = h->chunked = h->encoded = h->keep = h->closes = false;
    h->newest = l[7] == '1';
    h->left = 0;
    h->headers.n = 0;
    h->state = BR_HTTP_FIELDS;
    return 0;
}

static int end_head(struct br_http *h, struct br_http_out *out, struct br_err *err)
{
    if (h->status == 101)
        return invalid(err, "it wants to speak another protocol");
    if (h->status < 200) { /* the real head follows */
        h->state = BR_HTTP_STATUS;
        return 0;
    }
    if (h->chunked && h->has_length)
        return invalid(err, "it has both a length and chunks");
    if (h->encoded)
        return invalid(err, "its body is compressed, though none was asked for");
    out->head = true;
    h->keep = h->keep && !h->closes && h->newest;
    if (h->status == 204 || h->status == 304)
        h->state = BR_HTTP_DONE;
    else if (h->chunked)
        h->state = BR_HTTP_CHUNK_SIZE;
    else if (h->has_length)
        h->state = h->left ? BR_HTTP_BODY : BR_HTTP_DONE;
    else
        h->state = BR_HTTP_UNTIL_CLOSE;
    return 0;
}

static int take_chunk_size(struct br_http *h, struct br_err *err)
{
    uint64_t n = 0;
    size_t digits = strspn(h->line, "0123456789abcdefABCDEF");
    if (digits == 0 || digits > 15 || (h->line[digits] && !strchr("; \t", h->line[digits])))
        return invalid(err, "the size of a chunk is no number");
    for (size_t i = 0; i < digits; i++) {
        int c = h->line[i] | 0x20;
        n = n * 16 + (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    h->left = n;
    h->state = n ? BR_HTTP_CHUNK_DATA : BR_HTTP_TRAILERS;
    return 0;
}

static int take_line(struct br_http *h, struct br_http_out *out, struct br_err *err)
{
    size_t n = h->line_len < sizeof(h->line) ? h->line_len : sizeof(h->line) - 1;
    h->line[n] = '\0';
    switch (h->state) {
    case BR_HTTP_STATUS:
        return take_status(h, err);
    case BR_HTTP_FIELDS:
        return n ? take_field(h, err) : end_head(h, out, err);
    case BR_HTTP_CHUNK_SIZE:
        return take_chunk_size(h, err);
    case BR_HTTP_CHUNK_END:
        if (n)
            return invalid(err, "a chunk is longer than it says");
        h->state = BR_HTTP_CHUNK_SIZE;
        return 0;
    default: /* trailers say nothing that is passed on */
        if (n == 0)
            h->state = BR_HTTP_DONE;
        return 0;
    }
}

/* One byte of a line. */
static int line_byte(struct br_http *h, uint8_t c, struct br_http_out *out, struct br_err *err)
{
    bool chunk = h->state == BR_HTTP_CHUNK_SIZE || h->state == BR_HTTP_CHUNK_END;
    if (!chunk && ++h->head_bytes > BR_EGRESS_HEADERS_MAX)
        return invalid(err, "it has more than 64 KiB of headers");
    if (c == '\0' || (h->cr && c != '\n'))
        return invalid(err, "a line of it holds what no line may hold");
    if (c == '\n') {
        int r = take_line(h, out, err);
        h->line_len = 0;
        h->cr = false;
        return r;
    }
    if (c == '\r') {
        h->cr = true;
        return 0;
    }
    if (chunk && h->line_len == sizeof(h->line) - 1)
        return invalid(err, "the size of a chunk is no number");
    if (h->line_len < sizeof(h->line) - 1)
        h->line[h->line_len] = (char)c;
    if (h->line_len < sizeof(h->line))
        h->line_len++;
    return 0;
}

/* ---- the answer ---- */

int br_http_feed(struct br_http *h, uint8_t *p, size_t n, struct br_http_out *out,
                 struct br_err *err)
{
    size_t at = 0;
    *out = (struct br_http_out){.body = p};
    h->any |= n > 0;
    while (at < n && h->state != BR_HTTP_DONE) {
        bool counted = h->state == BR_HTTP_BODY || h->state == BR_HTTP_CHUNK_DATA;
        if (!counted && h->state != BR_HTTP_UNTIL_CLOSE) {
            int r = line_byte(h, p[at++], out, err);
            if (r < 0)
                return r;
            continue;
        }
        size_t k = n - at;
        if (counted && k > h->left)
            k = (size_t)h->left;
        if (out->n == 0)
            out->body = p + at;
        else
            memmove(out->body + out->n, p + at, k);
        out->n += k;
        at += k;
        if (counted && (h->left -= k) == 0)
            h->state = h->state == BR_HTTP_BODY ? BR_HTTP_DONE : BR_HTTP_CHUNK_END;
    }
    out->end = h->state == BR_HTTP_DONE;
    out->more = at < n;
    return 0;
}

bool br_http_ended(const struct br_http *h)
{
    return h->state == BR_HTTP_DONE || h->state == BR_HTTP_UNTIL_CLOSE;
}

bool br_http_in_head(const struct br_http *h)
{
    return h->any && h->state <= BR_HTTP_FIELDS;
}

/* ---- the request ---- */

bool br_http_may_send(const char *name)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(request_headers); i++)
        if (strcmp(name, request_headers[i]) == 0)
            return true;
    return false;
}

/* A bounded writer into memory that the caller wipes: no copy stays anywhere else. */
struct writer {
    char *p;
    size_t n, cap;
    bool failed;
};

static void put(struct writer *w, const void *p, size_t n)
{
    if (w->failed || n > w->cap - w->n) {
        w->failed = true;
        return;
    }
    memcpy(w->p + w->n, p, n);
    w->n += n;
}

static void put_text(struct writer *w, const char *s)
{
    put(w, s, strlen(s));
}

static void put_field(struct writer *w, const char *name, const char *value)
{
    put_text(w, name);
    put_text(w, ": ");
    put_text(w, value);
    put_text(w, "\r\n");
}

ssize_t br_http_request(char *dst, size_t cap, const struct br_http_request *q)
{
    struct writer w = {.p = dst, .cap = cap};
    char number[32];
    size_t n = 0;
    const void *key = br_secret_bytes(q->key, &n);
    put_text(&w, q->post ? "POST " : "GET ");
    put_text(&w, q->target->prefix);
    put_text(&w, q->path);
    put_text(&w, " HTTP/1.1\r\n");
    put_field(&w, "Host", q->target->host_field);
    put_field(&w, "User-Agent", "bridle/0.1");
    put_field(&w, "Accept-Encoding", "identity");
    put_field(&w, "Connection", q->keep ? "keep-alive" : "close");
    if (!br_headers_find(q->headers, "accept")[0])
        put_field(&w, "Accept", "*/*");
    for (uint32_t i = 0; i < q->headers->n; i++) {
        if (!br_http_may_send(q->headers->h[i].name))
            return -1;
        put_field(&w, q->headers->h[i].name, q->headers->h[i].value);
    }
    if (q->content_type[0])
        put_field(&w, "Content-Type", q->content_type);
    if (n) {
        put_text(&w, q->auth == BR_AUTH_X_API_KEY ? "x-api-key: " : "Authorization: Bearer ");
        put(&w, key, n);
        put_text(&w, "\r\n");
    }
    if (q->post) {
        snprintf(number, sizeof(number), "%zu", q->body);
        put_field(&w, "Content-Length", number);
    }
    put_text(&w, "\r\n");
    return w.failed ? -1 : (ssize_t)w.n;
}
