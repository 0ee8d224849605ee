/*
 * HTTP/1.1 requests of guests. Called by bridle-broker on bytes of a sandbox, which are hostile.
 * There is one way to write each thing: lines end with CRLF, a header has no space before its colon
 * and does not go on in another line, a length stands once and in digits, chunks have no
 * extensions and no trailers, and a body is never compressed. Headers that are not listed here are
 * checked for their form and then forgotten.
 */
#include <string.h>
#include <strings.h>

#include "broker/http.h"

#define REFUSE(status, ...) (br_err_set(err, BR_E_INVALID_FRAME, __VA_ARGS__), (status))

struct text {
    const char *p;
    size_t n;
};

static bool is_token_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool same(struct text t, const char *name)
{
    return t.n == strlen(name) && strncasecmp(t.p, name, t.n) == 0;
}

size_t br_http_head_end(const char *p, size_t n, size_t from)
{
    from = from > 3 ? from - 3 : 0;
    const char *at = n > from ? memmem(p + from, n - from, "\r\n\r\n", 4) : NULL;
    return at ? (size_t)(at - p) + 4 : 0;
}

/* The next line without its CRLF; false if it has a CR or LF of its own, or a NUL. */
static bool next_line(struct text *rest, struct text *line)
{
    const char *end = memmem(rest->p, rest->n, "\r\n", 2);
    if (!end)
        return false;
    *line = (struct text){rest->p, (size_t)(end - rest->p)};
    rest->n -= line->n + 2;
    rest->p = end + 2;
    for (size_t i = 0; i < line->n; i++) {
        unsigned char c = (unsigned char)line->p[i];
        if ((c < ' ' && c != '\t') || c >= 0x7f)
            return false;
    }
    return true;
}

/* ---- the request line ---- */

static unsigned parse_path(struct text t, struct br_http_request *out, struct br_err *err)
{
    /* the one query that a client's library adds by itself, and which changes nothing */
    static const char beta[] = "?beta=true";
    size_t k = sizeof(beta) - 1;
    if (t.n > k && memcmp(t.p + t.n - k, beta, k) == 0)
        t.n -= k;
    if (t.n == 0 || t.p[0] != '/')
        return REFUSE(400, "the request's target is not a path; nothing was sent");
    if (t.n >= sizeof(out->path))
        return REFUSE(414, "the request's path is too long; nothing was sent");
    for (size_t i = 0; i < t.n; i++)
        if (!is_token_char((unsigned char)t.p[i]) && t.p[i] != '/' && t.p[i] != ':')
            return REFUSE(404, "the request's path is not one of a provider; nothing was sent");
    if (memmem(t.p, t.n, "..", 2) || memmem(t.p, t.n, "//", 2))
        return REFUSE(404, "the request's path is not one of a provider; nothing was sent");
    memcpy(out->path, t.p, t.n);
    return 0;
}

static unsigned parse_request_line(struct text line, struct br_http_request *out,
                                   struct br_err *err)
{
    const char *sp = memchr(line.p, ' ', line.n);
    if (!sp || sp == line.p)
        return REFUSE(400, "the first line is not one of HTTP/1.1; nothing was sent");
    struct text method = {line.p, (size_t)(sp - line.p)};
    struct text rest = {sp + 1, line.n - method.n - 1};
    const char *sp2 = memchr(rest.p, ' ', rest.n);
    if (!sp2)
        return REFUSE(400, "the first line is not one of HTTP/1.1; nothing was sent");
    struct text path = {rest.p, (size_t)(sp2 - rest.p)};
    struct text version = {sp2 + 1, rest.n - path.n - 1};
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) != 0)
        return REFUSE(400, "the first line is not one of HTTP/1.1; nothing was sent");
    if (memcmp(version.p + 5, "1.1", 3) != 0)
        return REFUSE(505, "only HTTP/1.1 is spoken here; nothing was sent");
    if (method.n >= sizeof(out->method))
        return REFUSE(405, "the request's method is neither GET nor POST; nothing was sent");
    memcpy(out->method, method.p, method.n);
    if (strcmp(out->method, "GET") != 0 && strcmp(out->method, "POST") != 0)
        return REFUSE(405, "the request's method is neither GET nor POST; nothing was sent");
    return parse_path(path, out, err);
}

/* ---- headers ---- */

/* What was seen of them, so that nothing counts twice. */
struct seen {
    bool host, length, transfer, type, expect, connection;
};

static unsigned parse_length(struct text v, struct br_http_request *out, struct br_err *err)
{
    if (v.n == 0 || v.n > 15)
        return REFUSE(v.n ? 413 : 400, "the length of the body is not one; nothing was sent");
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9')
            return REFUSE(400, "the length of the body is not one; nothing was sent");
        out->length = out->length * 10 + (uint64_t)(v.p[i] - '0');
    }
    out->has_length = true;
    return 0;
}

static unsigned take_token(struct text v, struct br_http_request *out, struct br_err *err)
{
    if (out->ntokens == 2)
        return REFUSE(400, "the run's token stands more than twice; nothing was sent");
    out->tokens[out->ntokens] = v.p;
    out->token_len[out->ntokens++] = v.n;
    return 0;
}

static unsigned parse_authorization(struct text v, struct br_http_request *out, struct br_err *err)
{
    static const char scheme[] = "Bearer ";
    size_t k = sizeof(scheme) - 1;
    if (v.n < k || strncasecmp(v.p, scheme, k) != 0)
        return REFUSE(401, "the run's token is expected as 'Authorization: Bearer TOKEN'; nothing "
                           "was sent");
    return take_token((struct text){v.p + k, v.n - k}, out, err);
}

/* A list of options, of which one matters. */
static void parse_connection(struct text v, struct br_http_request *out)
{
    while (v.n) {
        size_t n = 0;
        while (n < v.n && v.p[n] != ',')
            n++;
        struct text one = {v.p, n};
        while (one.n && (one.p[0] == ' ' || one.p[0] == '\t'))
            one.p++, one.n--;
        while (one.n && (one.p[one.n - 1] == ' ' || one.p[one.n - 1] == '\t'))
            one.n--;
        out->close |= same(one, "close");
        v.p += n;
        v.n -= n;
        if (v.n)
            v.p++, v.n--;
    }
}

static bool once(bool *seen)
{
    bool first = !*seen;
    *seen = true;
    return first;
}

/* Of what a request can switch on by a header, that which cannot make it dearer than the lease
 * says: longer prompts, other tiers and tools that run at the provider are none of it. */
static bool betas_ok(const char *value)
{
    static const char *const known[] = {
        "prompt-caching-",        "interleaved-thinking-", "fine-grained-tool-streaming-",
        "token-efficient-tools-", "max-tokens-",           "token-counting-",
        "structured-outputs-"};
    for (const char *p = value; *p;) {
        p += strspn(p, " ,");
        size_t n = strcspn(p, " ,"), i = 0;
        while (n && i < BR_ARRAY_LEN(known) && strncmp(p, known[i], strlen(known[i])) != 0)
            i++;
        if (i == BR_ARRAY_LEN(known))
            return false;
        p += n;
    }
    return true;
}

static unsigned parse_passed_on(struct text name, struct text v, struct br_http_request *out,
                                struct br_err *err)
{
    static const char *const passed[] = {"accept", "anthropic-version", "anthropic-beta",
                                         "openai-beta"};
    for (size_t i = 0; i < BR_ARRAY_LEN(passed); i++) {
        char value[BR_HEADER_VALUE_MAX];
        if (!same(name, passed[i]))
            continue;
        if (v.n >= sizeof(value) || br_headers_find(&out->headers, passed[i])[0])
            return REFUSE(400, "the header '%s' is too long or stands twice; nothing was sent",
                          passed[i]);
        memcpy(value, v.p, v.n);
        value[v.n] = 0;
        if (strcmp(passed[i], "anthropic-beta") == 0 && !betas_ok(value))
            return REFUSE(403,
                          "the header '%s' asks for what the provider lease does not allow; "
                          "nothing was sent",
                          passed[i]);
        if (v.n && !br_headers_add(&out->headers, passed[i], value))
            return REFUSE(400, "the header '%s' is malformed; nothing was sent", passed[i]);
    }
    return 0;
}

static unsigned parse_body_headers(struct text name, struct text v, struct seen *seen,
                                   struct br_http_request *out, struct br_err *err)
{
    if (same(name, "content-length"))
        return once(&seen->length)
                   ? parse_length(v, out, err)
                   : REFUSE(400, "the length of the body stands twice; nothing was sent");
    if (same(name, "transfer-encoding")) {
        if (!once(&seen->transfer) || !same(v, "chunked"))
            return REFUSE(501, "a body may be 'chunked' and nothing else; nothing was sent");
        out->chunked = true;
    } else if (same(name, "content-encoding") && !same(v, "identity")) {
        return REFUSE(415, "a compressed body is not read; nothing was sent");
    } else if (same(name, "content-type")) {
        if (!once(&seen->type) || v.n >= sizeof(out->content_type))
            return REFUSE(400, "the content type is too long or stands twice; nothing was sent");
        memcpy(out->content_type, v.p, v.n);
    } else if (same(name, "expect")) {
        if (!once(&seen->expect) || !same(v, "100-continue"))
            return REFUSE(417, "only '100-continue' can be expected; nothing was sent");
        out->expects_continue = true;
    }
    return 0;
}

static unsigned parse_header(struct text line, struct seen *seen, struct br_http_request *out,
                             struct br_err *err)
{
    struct text name = {line.p, 0}, v;
    while (name.n < line.n && is_token_char((unsigned char)line.p[name.n]))
        name.n++;
    if (name.n == 0 || name.n == line.n || line.p[name.n] != ':')
        return REFUSE(400, "a header is malformed; nothing was sent");
    v = (struct text){line.p + name.n + 1, line.n - name.n - 1};
    while (v.n && (v.p[0] == ' ' || v.p[0] == '\t'))
        v.p++, v.n--;
    while (v.n && (v.p[v.n - 1] == ' ' || v.p[v.n - 1] == '\t'))
        v.n--;
    if (same(name, "host"))
        return once(&seen->host) ? 0 : REFUSE(400, "two hosts are named; nothing was sent");
    if (same(name, "authorization"))
        return parse_authorization(v, out, err);
    if (same(name, "x-api-key"))
        return take_token(v, out, err);
    if (same(name, "connection"))
        parse_connection(v, out);
    unsigned status = parse_body_headers(name, v, seen, out, err);
    return status ? status : parse_passed_on(name, v, out, err);
}

unsigned br_http_head(const char *p, size_t n, struct br_http_request *out, struct br_err *err)
{
    struct text rest = {p, n}, line;
    struct seen seen = {.host = false};
    memset(out, 0, offsetof(struct br_http_request, headers));
    out->headers.n = 0;
    if (!next_line(&rest, &line))
        return REFUSE(400, "the first line is not one of HTTP/1.1; nothing was sent");
    unsigned status = parse_request_line(line, out, err);
    for (unsigned i = 0; status == 0; i++) {
        if (!next_line(&rest, &line))
            return REFUSE(400, "a header is malformed; nothing was sent");
        if (line.n == 0)
            break;
        if (i == BR_HTTP_LINES_MAX)
            return REFUSE(431, "there are more than %u headers; nothing was sent",
                          BR_HTTP_LINES_MAX);
        status = parse_header(line, &seen, out, err);
    }
    if (status)
        return status;
    if (rest.n)
        return REFUSE(400, "a header is malformed; nothing was sent");
    if (!seen.host)
        return REFUSE(400, "no host is named; nothing was sent");
    if (out->chunked && out->has_length)
        return REFUSE(400, "the body has two lengths; nothing was sent");
    bool get = strcmp(out->method, "GET") == 0;
    if (get && (out->chunked || out->length))
        return REFUSE(400, "a GET has no body; nothing was sent");
    if (!get && !out->chunked && !out->has_length)
        return REFUSE(411, "the length of the body is not said; nothing was sent");
    return 0;
}

/* ---- chunked bodies ---- */

enum chunk_state { SIZE, SIZE_LF, DATA, DATA_CR, DATA_LF, LAST_CR, LAST_LF };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One byte that is not data; false if it is not what must stand here. */
static bool chunk_byte(struct br_http_chunks *c, char byte)
{
    static const char expected[] = {
        [SIZE_LF] = '\n', [DATA_CR] = '\r', [DATA_LF] = '\n', [LAST_CR] = '\r', [LAST_LF] = '\n'};
    int digit = hex_digit(byte);
    if (c->state == SIZE && digit >= 0 && c->line < BR_HTTP_CHUNK_LINE_MAX - 2) {
        c->left = c->left << 4 | (uint32_t)digit;
        c->line++;
        return true;
    }
    if (c->state == SIZE) {
        c->state = SIZE_LF;
        return byte == '\r' && c->line > 0;
    }
    if (byte != expected[c->state])
        return false;
    switch (c->state) {
    case SIZE_LF:
        c->state = c->left ? DATA : LAST_CR;
        break;
    case DATA_LF:
        c->state = SIZE;
        c->line = 0;
        break;
    case LAST_LF:
        c->done = true;
        break;
    default: /* DATA_CR, LAST_CR */
        c->state++;
    }
    return true;
}

unsigned br_http_chunks_feed(struct br_http_chunks *c, const char *p, size_t n, size_t *used,
                             struct br_buf *body, struct br_err *err)
{
    size_t i = 0;
    while (i < n && !c->done) {
        if (c->state != DATA) {
            if (!chunk_byte(c, p[i++]))
                return REFUSE(400, "a chunk of the body is malformed; nothing was sent");
            if (c->state == DATA && c->left > body->max - body->len)
                return REFUSE(413, "the body is larger than %zu bytes; nothing was sent",
                              body->max);
            continue;
        }
        size_t k = n - i < c->left ? n - i : c->left;
        if (br_buf_put(body, p + i, k) < 0)
            return REFUSE(413, "the body is too large; nothing was sent");
        i += k;
        c->left -= (uint32_t)k;
        if (c->left == 0)
            c->state = DATA_CR;
    }
    *used = i;
    return 0;
}

/* ---- small things ---- */

const char *br_http_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } known[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(known); i++)
        if (known[i].status == status)
            return known[i].text;
    return "Error";
}

bool br_http_token_same(const char *p, size_t n, const char *secret)
{
    size_t k = strlen(secret);
    unsigned char differ = n != k || k == 0;
    for (size_t i = 0; i < k; i++)
        differ |= (unsigned char)(secret[i] ^ (n ? p[i % n] : 0));
    return differ == 0;
}
