/*
 * The head of an HTTP/1.1 request (RFC 9112), as little of it as a private peer needs: exact line
 * ends, no folding, no chunked bodies, one Content-Length. Called by bridle-scripted on bytes from
 * its socket, all of which are hostile.
 */
#include <string.h>
#include <strings.h>

#include "scripted/scripted_priv.h"

static int refuse(unsigned *status, unsigned value)
{
    *status = value;
    return -BR_E_INVALID_FRAME;
}

static bool is_token(const char *p, size_t n)
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++)
        if (!p[i] || !strchr(set, p[i]))
            return false;
    return n > 0;
}

static int copy(char *dst, size_t cap, const char *p, size_t n)
{
    if (n >= cap)
        return -1;
    memcpy(dst, p, n);
    dst[n] = '\0';
    return 0;
}

static int parse_request_line(const char *p, size_t n, struct br_http_request *r, unsigned *status)
{
    const char *sp = memchr(p, ' ', n);
    if (!sp || !is_token(p, (size_t)(sp - p)) ||
        copy(r->method, sizeof(r->method), p, (size_t)(sp - p)) < 0)
        return refuse(status, 400);
    const char *path = sp + 1, *end = p + n;
    sp = memchr(path, ' ', (size_t)(end - path));
    if (!sp || sp == path || path[0] != '/')
        return refuse(status, 400);
    for (const char *c = path; c < sp; c++)
        if (*c <= ' ' || *c > '~')
            return refuse(status, 400);
    if (copy(r->path, sizeof(r->path), path, (size_t)(sp - path)) < 0)
        return refuse(status, 414);
    sp++;
    if (end - sp != 8 || memcmp(sp, "HTTP/1.", 7) != 0 || (sp[7] != '0' && sp[7] != '1'))
        return refuse(status, 505);
    return 0;
}

static int parse_length(const char *p, size_t n, struct br_http_request *r, bool *seen,
                        unsigned *status)
{
    if (*seen || n == 0 || n > 9)
        return refuse(status, n > 9 && !*seen ? 413 : 400);
    size_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return refuse(status, 400);
        v = v * 10 + (size_t)(p[i] - '0');
    }
    if (v > BR_SCRIPTED_BODY_MAX)
        return refuse(status, 413);
    r->body_len = v;
    *seen = true;
    return 0;
}

static int parse_field(const char *p, size_t n, struct br_http_request *r, bool *length_seen,
                       unsigned *status)
{
    const char *colon = memchr(p, ':', n);
    if (!colon || !is_token(p, (size_t)(colon - p)))
        return refuse(status, 400);
    size_t k = (size_t)(colon - p), v = n - k - 1;
    const char *value = colon + 1;
    for (; v && (*value == ' ' || *value == '\t'); v--)
        value++;
    while (v && (value[v - 1] == ' ' || value[v - 1] == '\t'))
        v--;
    for (size_t i = 0; i < v; i++)
        if (((unsigned char)value[i] < ' ' && value[i] != '\t') || value[i] == 0x7f)
            return refuse(status, 400);
    if (k == 14 && strncasecmp(p, "content-length", k) == 0)
        return parse_length(value, v, r, length_seen, status);
    if (k == 17 && strncasecmp(p, "transfer-encoding", k) == 0)
        return refuse(status, 501);
    if (k == 12 && strncasecmp(p, "content-type", k) == 0 &&
        copy(r->content_type, sizeof(r->content_type), value, v) < 0)
        return refuse(status, 400);
    return 0;
}

/* The length of the line at p without its CR LF; -1: not complete; -2: a bare CR or LF. */
static long line_length(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n')
            return -2;
        if (p[i] != '\r')
            continue;
        if (i + 1 == n)
            return -1;
        return p[i + 1] == '\n' ? (long)i : -2;
    }
    return -1;
}

int br_http_parse(const char *p, size_t n, struct br_http_request *r, unsigned *status)
{
    size_t at = 0;
    bool length_seen = false;
    *r = (struct br_http_request){.body_len = 0};
    for (unsigned line = 0; line <= BR_HTTP_FIELDS_MAX + 1; line++) {
        size_t left = n - at < BR_HTTP_HEAD_MAX - at ? n - at : BR_HTTP_HEAD_MAX - at;
        long len = line_length(p + at, left);
        if (len == -2)
            return refuse(status, 400);
        if (len < 0)
            return n >= BR_HTTP_HEAD_MAX ? refuse(status, 431) : 1;
        if (len == 0 && line > 0) {
            r->head_len = at + 2;
            if (strcmp(r->method, "POST") == 0 && !length_seen)
                return refuse(status, 411);
            return 0;
        }
        int bad = line == 0 ? parse_request_line(p + at, (size_t)len, r, status)
                            : parse_field(p + at, (size_t)len, r, &length_seen, status);
        if (bad)
            return bad;
        at += (size_t)len + 2;
    }
    return refuse(status, 431);
}
