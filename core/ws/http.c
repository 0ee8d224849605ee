/*
 * Heads of HTTP/1.1 (RFC 9112), of the requests of anybody and of the responses of a server. There
 * is one way to write each thing, so that nobody in front of this program can read another request
 * than it does: lines end with CRLF, a field stands in one line, has no blank before its colon, and
 * a body has one Content-Length or there is none. Nothing is copied: what is found points into the
 * bytes that were parsed.
 */
#include <string.h>
#include <strings.h>

#include "ws/ws.h"

static bool is_token_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct br_http_text t)
{
    for (size_t i = 0; i < t.n; i++)
        if (!is_token_char((unsigned char)t.p[i]))
            return false;
    return t.n > 0;
}

static bool same(struct br_http_text t, const char *name)
{
    return t.n == strlen(name) && strncasecmp(t.p, name, t.n) == 0;
}

static struct br_http_text trim(struct br_http_text t)
{
    while (t.n && (t.p[0] == ' ' || t.p[0] == '\t'))
        t.p++, t.n--;
    while (t.n && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
        t.n--;
    return t;
}

static int bad(unsigned *status, unsigned with, struct br_err *err, const char *why)
{
    if (status)
        *status = with;
    return br_err_set(err, with == 414 || with == 431 ? BR_E_LIMIT_EXCEEDED : BR_E_INVALID_FRAME,
                      "%s", why);
}

/* ---- lines ---- */

/*
 * The length of the head, empty line included; 0 if it is not complete. The first byte that cannot
 * be in a head ends the search, so that who speaks another protocol is not waited for.
 */
static int head_end(const char *p, size_t n, unsigned *status, struct br_err *err)
{
    size_t most = n < BR_WS_HEAD_MAX ? n : BR_WS_HEAD_MAX, line = 0;
    bool first = true;
    for (size_t i = 0; i < most; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '\n' && i > 0 && p[i - 1] == '\r') {
            if (i - line == 1)
                return first ? bad(status, 400, err, "the head begins with an empty line")
                             : (int)i + 1;
            first = false;
            line = i + 1;
        } else if (i > 0 && p[i - 1] == '\r') {
            return bad(status, 400, err, "the head has a CR without LF");
        } else if (c == '\n') {
            return bad(status, 400, err, "the head has a LF without CR");
        } else if ((c < ' ' && c != '\t' && c != '\r') || c == 0x7f) {
            return bad(status, 400, err, "the head has a control character");
        }
    }
    if (n >= BR_WS_HEAD_MAX)
        return first ? bad(status, 414, err, "the first line is longer than 8192 bytes")
                     : bad(status, 431, err, "the head is longer than 8192 bytes");
    return 0;
}

/* The next line of a head that is complete, without its CRLF. */
static struct br_http_text next_line(struct br_http_text *rest)
{
    const char *end = memmem(rest->p, rest->n, "\r\n", 2);
    br_require(end);
    struct br_http_text line = {rest->p, (size_t)(end - rest->p)};
    rest->n -= line.n + 2;
    rest->p = end + 2;
    return line;
}

static int parse_fields(struct br_http_text rest, struct br_http_head *out, unsigned *status,
                        struct br_err *err)
{
    for (;;) {
        struct br_http_text line = next_line(&rest);
        if (line.n == 0)
            return 0;
        if (line.p[0] == ' ' || line.p[0] == '\t')
            return bad(status, 400, err, "a field goes on in another line");
        const char *colon = memchr(line.p, ':', line.n);
        struct br_http_text name = {line.p, colon ? (size_t)(colon - line.p) : 0};
        if (!is_token(name))
            return bad(status, 400, err, "the name of a field is not a word before a ':'");
        if (out->nfields == BR_WS_FIELDS_MAX)
            return bad(status, 431, err, "the head has more than 64 fields");
        out->fields[out->nfields].name = name;
        out->fields[out->nfields++].value =
            trim((struct br_http_text){colon + 1, line.n - name.n - 1});
    }
}

/* ---- what is looked for in a head ---- */

struct br_http_text br_http_field(const struct br_http_head *h, const char *name, bool *many)
{
    struct br_http_text found = {NULL, 0};
    unsigned times = 0;
    for (unsigned i = 0; i < h->nfields; i++)
        if (same(h->fields[i].name, name) && times++ == 0)
            found = h->fields[i].value;
    if (many)
        *many = times > 1;
    return times == 1 ? found : (struct br_http_text){NULL, 0};
}

bool br_http_list_has(struct br_http_text list, const char *word)
{
    while (list.n) {
        const char *comma = memchr(list.p, ',', list.n);
        size_t n = comma ? (size_t)(comma - list.p) : list.n;
        if (same(trim((struct br_http_text){list.p, n}), word))
            return true;
        n += comma ? 1 : 0;
        list.p += n;
        list.n -= n;
    }
    return false;
}

/* ---- requests ---- */

/* HTTP/1.x at the end of the first line, or at the beginning of that of a response. */
static int parse_version(struct br_http_text t, unsigned *minor, unsigned *status,
                         struct br_err *err)
{
    if (t.n != 8 || memcmp(t.p, "HTTP/", 5) != 0 || t.p[5] < '0' || t.p[5] > '9' || t.p[6] != '.' ||
        t.p[7] < '0' || t.p[7] > '9')
        return bad(status, 400, err, "the version of HTTP is missing in the first line");
    if (t.p[5] != '1' || t.p[7] > '1')
        return bad(status, 505, err, "the version of HTTP is not 1.0 or 1.1");
    *minor = (unsigned)(t.p[7] - '0');
    return 0;
}

static int parse_request_line(struct br_http_text line, struct br_http_head *out, unsigned *status,
                              struct br_err *err)
{
    const char *sp = memchr(line.p, ' ', line.n);
    out->method = (struct br_http_text){line.p, sp ? (size_t)(sp - line.p) : 0};
    if (!is_token(out->method) || out->method.n > 32)
        return bad(status, 400, err, "the first line does not begin with a method");
    struct br_http_text rest = {sp + 1, line.n - out->method.n - 1};
    sp = memchr(rest.p, ' ', rest.n);
    struct br_http_text target = {rest.p, sp ? (size_t)(sp - rest.p) : rest.n};
    if (target.n == 0 || target.p[0] != '/')
        return bad(status, 400, err, "the target of the request is not a path");
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] <= ' ' || target.p[i] >= 0x7f || strchr("#\"<>\\^`{|}", target.p[i]))
            return bad(status, 400, err,
                       "the target of the request has a character that it may not");
    const char *mark = memchr(target.p, '?', target.n);
    out->path = (struct br_http_text){target.p, mark ? (size_t)(mark - target.p) : target.n};
    if (mark)
        out->query = (struct br_http_text){mark + 1, target.n - out->path.n - 1};
    rest.p += target.n + (sp ? 1 : 0);
    rest.n -= target.n + (sp ? 1 : 0);
    return parse_version(rest, &out->minor, status, err);
}

/* RFC 9112 section 3.2: exactly one, and nothing in it that a host and a port have not. */
static int check_host(const struct br_http_head *h, unsigned *status, struct br_err *err)
{
    struct br_http_text host = br_http_field(h, "host", NULL);
    if (!host.p)
        return bad(status, 400, err, "the request does not have exactly one Host");
    for (size_t i = 0; i < host.n; i++) {
        unsigned char c = (unsigned char)host.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr("-._~%:[]", c)))
            return bad(status, 400, err, "the Host of the request is not a host and a port");
    }
    return 0;
}

static int check_body(struct br_http_head *h, unsigned *status, struct br_err *err)
{
    bool many;
    struct br_http_text length = br_http_field(h, "content-length", &many);
    for (unsigned i = 0; i < h->nfields; i++)
        if (same(h->fields[i].name, "transfer-encoding"))
            return length.p || many
                       ? bad(status, 400, err, "the length of the body is told twice")
                       : bad(status, 501, err, "a transfer encoding is not understood");
    if (many)
        return bad(status, 400, err, "the length of the body is told twice");
    if (!length.p)
        return 0;
    if (length.n == 0 || length.n > 15)
        return bad(status, 400, err, "the Content-Length is not a number of bytes");
    for (size_t i = 0; i < length.n; i++) {
        if (length.p[i] < '0' || length.p[i] > '9')
            return bad(status, 400, err, "the Content-Length is not a number of bytes");
        h->content_length = h->content_length * 10 + (unsigned)(length.p[i] - '0');
    }
    return 0;
}

/* The bytes of a whole head, as head_end(), with its first line and the rest; `out` is emptied. */
static int begin(const char *p, size_t n, struct br_http_head *out, struct br_http_text *line,
                 struct br_http_text *rest, unsigned *status, struct br_err *err)
{
    int end = head_end(p, n, status, err);
    if (end <= 0)
        return end;
    out->method = out->path = out->query = (struct br_http_text){NULL, 0};
    out->status = out->minor = out->nfields = 0;
    out->content_length = 0;
    *rest = (struct br_http_text){p, (size_t)end};
    *line = next_line(rest);
    return end;
}

int br_http_request(const char *p, size_t n, struct br_http_head *out, unsigned *status,
                    struct br_err *err)
{
    struct br_http_text line, rest;
    int end = begin(p, n, out, &line, &rest, status, err);
    if (end <= 0)
        return end;
    int rc = parse_request_line(line, out, status, err);
    if (rc == 0)
        rc = parse_fields(rest, out, status, err);
    if (rc == 0)
        rc = check_host(out, status, err);
    if (rc == 0)
        rc = check_body(out, status, err);
    return rc < 0 ? rc : end;
}

/* ---- responses ---- */

int br_http_response(const char *p, size_t n, struct br_http_head *out, struct br_err *err)
{
    struct br_http_text line, rest;
    int end = begin(p, n, out, &line, &rest, NULL, err);
    if (end <= 0)
        return end;
    struct br_http_text version = {line.p, line.n < 8 ? line.n : 8};
    int rc = parse_version(version, &out->minor, NULL, err);
    if (rc < 0)
        return rc;
    if (line.n < 12 || line.p[8] != ' ' || (line.n > 12 && line.p[12] != ' '))
        return bad(NULL, 400, err, "the first line of the response has no status");
    for (size_t i = 9; i < 12; i++) {
        if (line.p[i] < '0' || line.p[i] > '9')
            return bad(NULL, 400, err, "the first line of the response has no status");
        out->status = out->status * 10 + (unsigned)(line.p[i] - '0');
    }
    if (out->status < 100)
        return bad(NULL, 400, err, "the first line of the response has no status");
    rc = parse_fields(rest, out, NULL, err);
    return rc < 0 ? rc : end;
}
