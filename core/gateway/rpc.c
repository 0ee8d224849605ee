/*
 * JSON-RPC 2.0, as both protocols of the gateway read and write it. What is read was written by
 * anybody: the text is scanned (UTF-8, depth, number of values) before a parser sees it, and a key
 * that comes twice is refused, because two readers would not agree on it.
 *
 * The id of a request goes back as the very bytes that came, found by walking over the text that
 * the parser has accepted: "1.0", "-0" and "\u0061" are their sender's matter. Pure functions but
 * for the two that send; called by harness.c and acp.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/gateway_priv.h"

#define RPC_PARSE_ERROR (-32700)
#define RPC_INVALID_REQUEST (-32600)

#define RPC_ID_MAX 256u /* bytes of a string, decoded */
/* Numbers that JavaScript does not round: 2^53 - 1. */
#define RPC_SAFE_INTEGER 9007199254740991.0

/* ---- numbers ---- */

bool rpc_safe_integer(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        json_int_t i = json_integer_value(v);
        if (i < -(json_int_t)RPC_SAFE_INTEGER || i > (json_int_t)RPC_SAFE_INTEGER)
            return false;
        *out = i;
        return true;
    }
    double d = json_is_real(v) ? json_real_value(v) : NAN;
    if (!(fabs(d) <= RPC_SAFE_INTEGER) || d != trunc(d))
        return false;
    *out = (int64_t)d;
    return true;
}

/* ---- walking over text that a parser has accepted ---- */

static size_t skip_blanks(const char *s, size_t n, size_t i)
{
    while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r' || s[i] == '\n'))
        i++;
    return i;
}

static size_t skip_string(const char *s, size_t n, size_t i)
{
    for (i++; i < n && s[i] != '"'; i++)
        if (s[i] == '\\')
            i++;
    return i < n ? i + 1 : n;
}

static size_t skip_value(const char *s, size_t n, size_t i)
{
    unsigned depth = 0;
    do {
        if (i < n && s[i] == '"') {
            i = skip_string(s, n, i);
        } else if (i < n && (s[i] == '{' || s[i] == '[')) {
            depth++;
            i++;
        } else if (i < n && (s[i] == '}' || s[i] == ']')) {
            depth--;
            i++;
        } else if (depth) {
            i++;
        } else { /* a number or a word */
            while (i < n && !strchr(" \t\r\n,]}", s[i]))
                i++;
        }
    } while (depth && i < n);
    return i;
}

static bool is_key(const char *token, size_t n, const char *key)
{
    if (!memchr(token, '\\', n))
        return n == strlen(key) + 2 && memcmp(token + 1, key, n - 2) == 0;
    json_t *v = json_loadb(token, n, JSON_DECODE_ANY, NULL);
    bool same = v && strcmp(json_string_value(v), key) == 0;
    json_decref(v);
    return same;
}

/* The text of the member `key` of the object that the whole text is. */
static const char *member_text(const char *s, size_t n, const char *key, size_t *len)
{
    size_t i = skip_blanks(s, n, 0) + 1;
    while (i < n) {
        i = skip_blanks(s, n, i);
        size_t begin = i;
        if (i >= n || s[i] != '"')
            return NULL;
        i = skip_string(s, n, i);
        bool found = is_key(s + begin, i - begin, key);
        i = skip_blanks(s, n, i);
        i = skip_blanks(s, n, i + 1); /* behind the colon */
        begin = i;
        i = skip_value(s, n, i);
        if (found) {
            *len = i - begin;
            return s + begin;
        }
        i = skip_blanks(s, n, i);
        if (i >= n || s[i] != ',')
            return NULL;
        i++;
    }
    return NULL;
}

/* ---- reading ---- */

/* A NUL in a string is JSON, but no text that C code would see the end of. Where the first one is;
 * n: there is none. */
static size_t find_nul(const char *s, size_t n)
{
    for (size_t i = 0; i + 6 <= n; i++) {
        if (s[i] != '\\')
            continue;
        if (memcmp(s + i, "\\u0000", 6) == 0)
            return i;
        i++;
    }
    return n;
}

/* The same text with something else in the place of each. */
static char *without_nuls(const char *s, size_t n)
{
    char *copy = malloc(n + 1);
    br_require(copy);
    memcpy(copy, s, n);
    for (size_t i = 0; (i += find_nul(copy + i, n - i)) < n;)
        memcpy(copy + i, "\\ufffd", 6);
    return copy;
}

static int parse(const char *text, size_t n, json_t **root, struct br_err *err)
{
    json_error_t why;
    *root = NULL;
    if (br_json_scan(text, n, UINT32_MAX, UINT32_MAX, err) < 0)
        return RPC_PARSE_ERROR;
    if (br_json_scan(text, n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, err) < 0)
        return RPC_INVALID_REQUEST;
    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (*root)
        return 0;
    enum json_error_code code = json_error_code(&why);
    bool valid = code == json_error_duplicate_key || code == json_error_numeric_overflow;
    br_err_set(err, BR_E_INVALID_JSON,
               code == json_error_duplicate_key      ? "the message has a key twice"
               : code == json_error_numeric_overflow ? "the message has a number that is too large"
                                                     : "the message is not JSON");
    return valid ? RPC_INVALID_REQUEST : RPC_PARSE_ERROR;
}

static bool id_valid(const json_t *v)
{
    int64_t unused;
    if (json_is_string(v))
        return json_string_length(v) >= 1 && json_string_length(v) <= RPC_ID_MAX;
    return rpc_safe_integer(v, &unused);
}

/* 0 with m->id, or that it is none. */
static int read_id(const char *text, size_t n, const json_t *id, struct rpc_message *m,
                   struct br_err *err)
{
    size_t len = 0;
    const char *p = id_valid(id) ? member_text(text, n, "id", &len) : NULL;
    if (!p || len >= sizeof(m->id) || find_nul(p, len) < len) {
        br_err_set(err, BR_E_INVALID_JSON, "'id' is no string of 1 to %u bytes and no safe integer",
                   RPC_ID_MAX);
        return RPC_INVALID_REQUEST;
    }
    memcpy(m->id, p, len);
    m->id[len] = 0;
    return 0;
}

static int refuse(struct br_err *err, const char *why)
{
    br_err_set(err, BR_E_INVALID_JSON, "%s", why);
    return RPC_INVALID_REQUEST;
}

/* `what`: the keys that this kind of message has. */
static bool only(const json_t *root, const char *const *keys)
{
    size_t found = 0;
    for (; *keys; keys++)
        found += json_object_get(root, *keys) != NULL;
    return found == json_object_size(root);
}

static int read_response(struct rpc_message *m, struct br_err *err)
{
    json_t *result = json_object_get(m->root_, "result"),
           *error = json_object_get(m->root_, "error");
    if (!json_object_get(m->root_, "id") || (!result && !json_is_object(error)))
        return refuse(err, "the message is neither a request nor a response");
    m->kind = RPC_RESPONSE;
    m->result = error ? NULL : json_incref(result);
    return 0;
}

static int read_request(bool strict, struct rpc_message *m, struct br_err *err)
{
    static const char *const keys[] = {"jsonrpc", "id", "method", "params", NULL};
    json_t *method = json_object_get(m->root_, "method"),
           *params = json_object_get(m->root_, "params");
    const char *name = json_string_value(method);
    if (!name)
        return refuse(err, "'method' is missing, or no string");
    if (strict && !only(m->root_, keys))
        return refuse(err, "the request has a key beside 'jsonrpc', 'id', 'method' and 'params'");
    if (!strict && json_is_null(params))
        params = NULL;
    if (params && !json_is_object(params) && !json_is_array(params))
        return refuse(err, "'params' is no object");
    m->kind = json_object_get(m->root_, "id") ? RPC_REQUEST : RPC_NOTIFICATION;
    /* a name that is longer than any method is the name of none */
    if (json_string_length(method) < sizeof(m->method))
        memcpy(m->method, name, json_string_length(method) + 1);
    m->params = json_incref(params);
    return 0;
}

int rpc_read(const char *text, size_t n, bool strict, struct rpc_message *m, struct br_err *err)
{
    *m = (struct rpc_message){.id = "null"};
    /* refused below: whoever sent it is to know which of its requests that was */
    BR_CLEANUP_FREE char *copy = find_nul(text, n) < n ? without_nuls(text, n) : NULL;
    int r = parse(copy ? copy : text, n, &m->root_, err);
    json_t *id = json_object_get(m->root_, "id");
    if (r == 0 && !json_is_object(m->root_))
        r = refuse(err, "the message is no object; batches are not taken");
    if (r == 0 && id)
        r = read_id(text, n, id, m, err);
    if (r == 0 && copy)
        r = refuse(err, "the message holds a NUL");
    const char *version = json_string_value(json_object_get(m->root_, "jsonrpc"));
    if (r == 0 && (!version || strcmp(version, "2.0") != 0))
        r = refuse(err, "'jsonrpc' is not \"2.0\"");
    if (r == 0 && !strict && !json_object_get(m->root_, "method"))
        r = read_response(m, err);
    else if (r == 0)
        r = read_request(strict, m, err);
    if (r < 0) {
        json_decref(m->root_);
        m->root_ = NULL;
    }
    return r;
}

void rpc_free(struct rpc_message *m)
{
    json_decref(m->params);
    json_decref(m->result);
    json_decref(m->root_);
    m->params = m->result = m->root_ = NULL;
}

/* ---- writing ---- */

#define PIECE(s)                                                                                   \
    {                                                                                              \
        (s), sizeof(s) - 1                                                                         \
    }

int rpc_result(struct conn *c, const char *id, const char *result, size_t n)
{
    const struct gw_piece pieces[] = {PIECE("{\"jsonrpc\":\"2.0\",\"id\":"),
                                      {id, strlen(id)},
                                      PIECE(",\"result\":"),
                                      {result, n},
                                      PIECE("}")};
    return conn_send(c, pieces, BR_ARRAY_LEN(pieces));
}

int rpc_verror(struct conn *c, const char *id, int code, const char *name, const char *fmt,
               va_list args)
{
    char text[BR_ERR_TEXT_MAX];
    vsnprintf(text, sizeof(text), fmt, args);
    text[br_utf8_floor(text, strlen(text))] = 0;
    return rpc_error(c, id, code, name, text);
}

int rpc_error(struct conn *c, const char *id, int code, const char *name, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16 * BR_ERR_TEXT_MAX);
    br_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":%d,\"message\":", id,
                  code);
    br_buf_put_json_str(&b, text, strlen(text));
    br_buf_printf(&b, ",\"data\":{\"code\":\"%s\"}}}", name);
    const struct gw_piece piece = {b.data, b.len};
    br_require(!b.failed);
    return conn_send(c, &piece, 1);
}
