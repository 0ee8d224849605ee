/*
 * One HTTP request at a time. Called by bridle-egress's loop only. Trusts libcurl and the kernel;
 * every byte of the answer is hostile, is counted before it is kept, and is never interpreted
 * beyond the four headers that are passed on. Texts of errors are composed here from libcurl's
 * constant strings and the origin, so that neither the key nor the provider can be part of them.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/transfer.h"

struct br_transfer {
    CURLM *multi;
    CURL *easy; /* reset for each request; NULL when none was made yet */
    struct br_egress_sink sink;
    struct br_egress_target target;
    struct br_egress_timeouts limits;
    struct br_buf body;
    struct curl_slist *headers;
    struct br_egress_head head;
    struct br_err end; /* why it was aborted from here; code 0 if it was not */
    CURLcode result;
    size_t header_bytes;
    uint64_t response_bytes, request_bytes;
    uint64_t started_us, activity_us;
    bool active, over, head_sent, paused;
};

struct br_transfer *br_transfer_new(CURLM *multi, const struct br_egress_sink *sink)
{
    struct br_transfer *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->multi = multi;
    t->sink = *sink;
    br_buf_init(&t->body, BR_BLOB_MAX);
    return t;
}

/* The header list holds the key. */
static void headers_wipe(struct br_transfer *t)
{
    for (struct curl_slist *h = t->headers; h; h = h->next)
        explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(t->headers);
    t->headers = NULL;
}

static void transfer_detach(struct br_transfer *t)
{
    if (!t->active)
        return;
    curl_off_t sent = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    t->request_bytes = sent > 0 ? (uint64_t)sent : 0;
    (void)curl_multi_remove_handle(t->multi, t->easy);
    t->active = false;
    t->paused = false;
    t->over = true;
    headers_wipe(t);
    br_buf_free(&t->body);
}

void br_transfer_free(struct br_transfer **pt)
{
    struct br_transfer *t = *pt;
    if (!t)
        return;
    transfer_detach(t);
    curl_easy_cleanup(t->easy);
    headers_wipe(t);
    br_buf_free(&t->body);
    free(t);
    *pt = NULL;
}

bool br_transfer_active(const struct br_transfer *t)
{
    return t->active;
}

bool br_transfer_paused(const struct br_transfer *t)
{
    return t->active && t->paused;
}

/* ---- what libcurl calls ---- */

static void transfer_fail(struct br_transfer *t, enum br_code code, const char *text)
{
    if (!t->end.code)
        br_err_set(&t->end, code, "%s", text);
}

static void header_field(struct br_transfer *t, const char *p, size_t n)
{
    static const struct {
        const char *name;
        size_t offset, cap;
    } kept[] = {
        {"content-type", offsetof(struct br_egress_head, content_type), 256},
        {"x-request-id", offsetof(struct br_egress_head, request_id), 256},
        {"retry-after", offsetof(struct br_egress_head, retry_after), 64},
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(kept); i++) {
        size_t k = strlen(kept[i].name);
        if (n > k && p[k] == ':' && strncasecmp(p, kept[i].name, k) == 0)
            br_egress_header_copy((char *)&t->head + kept[i].offset, kept[i].cap, p + k + 1,
                                  n - k - 1);
    }
}

static size_t on_header(char *p, size_t size, size_t count, void *ctx)
{
    struct br_transfer *t = ctx;
    size_t n = size * count;
    t->activity_us = br_now_us();
    t->header_bytes += n;
    if (t->header_bytes > BR_EGRESS_HEADERS_MAX) {
        transfer_fail(t, BR_E_PROVIDER_INVALID,
                      "the provider's answer has more than 64 KiB of headers; it was not used");
        return 0;
    }
    if (t->head_sent)
        return n; /* trailers */
    if (n >= 5 && memcmp(p, "HTTP/", 5) == 0) {
        memset(&t->head, 0, sizeof(t->head));
        return n;
    }
    if (n > 2) {
        header_field(t, p, n);
        return n;
    }
    long status = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return n; /* 100 Continue and the like: the real head follows */
    t->head.status = (uint32_t)status;
    t->head_sent = true;
    if (t->sink.head(t->sink.ctx, &t->head) < 0) {
        transfer_fail(t, BR_E_PEER_GONE, "the broker has gone; the answer was dropped");
        return 0;
    }
    return n;
}

static size_t on_body(char *p, size_t size, size_t count, void *ctx)
{
    struct br_transfer *t = ctx;
    size_t n = size * count;
    t->activity_us = br_now_us();
    if (t->response_bytes + n > BR_EGRESS_RESPONSE_MAX) {
        transfer_fail(t, BR_E_LIMIT_EXCEEDED,
                      "the provider's answer is larger than 64 MiB; the rest was not read");
        return 0;
    }
    int r = t->sink.data(t->sink.ctx, p, n);
    if (r == -BR_E_TIMEOUT) {
        t->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (r < 0) {
        transfer_fail(t, BR_E_PEER_GONE, "the broker has gone; the answer was dropped");
        return 0;
    }
    t->response_bytes += n;
    return n;
}

/* Whatever a name resolved to: plaintext never leaves this machine. */
static curl_socket_t on_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct br_transfer *t = ctx;
    const struct sockaddr *sa = (const struct sockaddr *)&a->addr;
    bool ok = purpose == CURLSOCKTYPE_IPCXN;
    if (t->target.unix_socket) {
        ok = ok && a->family == AF_UNIX;
    } else if (a->family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;
        ok = ok && (!t->target.plaintext || (ntohl(in->sin_addr.s_addr) >> 24) == 127);
    } else if (a->family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)sa;
        ok = ok && (!t->target.plaintext || IN6_IS_ADDR_LOOPBACK(&in->sin6_addr));
    } else {
        ok = false;
    }
    if (!ok)
        return CURL_SOCKET_BAD;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* ---- starting ---- */

static int headers_build(struct br_transfer *t, const struct br_secret *key,
                         const char *content_type)
{
    size_t n;
    const unsigned char *k = br_secret_bytes(key, &n);
    BR_CLEANUP_BUF struct br_buf line = BR_BUF_INIT(BR_EGRESS_KEY_MAX + 64);
    br_buf_printf(&line, "Content-Type: %s", content_type);
    const char *text = br_buf_cstr(&line);
    struct curl_slist *next = text ? curl_slist_append(NULL, text) : NULL;
    if (!next)
        return -BR_E_NOMEM;
    t->headers = next;
    if (!(next = curl_slist_append(t->headers, "Expect:")))
        return -BR_E_NOMEM;
    if (n == 0)
        return 0;
    /* one allocation, so that no copy of the key is left behind by a growing buffer */
    BR_CLEANUP_FREE char *auth = malloc(n + 32);
    if (!auth)
        return -BR_E_NOMEM;
    int at = snprintf(auth, 32, "Authorization: Bearer ");
    memcpy(auth + at, k, n);
    auth[(size_t)at + n] = '\0';
    next = curl_slist_append(t->headers, auth);
    explicit_bzero(auth, (size_t)at + n);
    return next ? 0 : -BR_E_NOMEM;
}

static bool content_type_ok(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] < ' ' || s[i] > '~')
            return false;
    return n > 0 && n < 128;
}

/* CURLOPT_* that never differ; every one is part of a promise of docs/providers.md. */
static bool options_fixed(struct br_transfer *t)
{
    CURL *e = t->easy;
    const char *schemes = t->target.plaintext ? "http" : "https";
    bool ok = curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, schemes) == CURLE_OK;
    ok = curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_PROXY, "") == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_NOPROXY, "*") == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK && ok;
    /* libcurl replays a request on a reused connection that turns out to be dead; a fresh one for
     * each request is what makes "no retries" true */
    ok = curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "identity") == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HTTP_CONTENT_DECODING, 0L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_TCP_NODELAY, 1L) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_USERAGENT, "bridle/0.1") == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_socket) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, t) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HEADERDATA, t) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK && ok;
    return curl_easy_setopt(e, CURLOPT_WRITEDATA, t) == CURLE_OK && ok;
}

static bool options_request(struct br_transfer *t, const char *unix_socket, const char *path)
{
    CURL *e = t->easy;
    char url[BR_EGRESS_URL_MAX + 512];
    if (snprintf(url, sizeof(url), "%s%s", t->target.url, path) >= (int)sizeof(url))
        return false;
    bool ok = curl_easy_setopt(e, CURLOPT_URL, url) == CURLE_OK;
    if (unix_socket && unix_socket[0] == '@')
        ok = curl_easy_setopt(e, CURLOPT_ABSTRACT_UNIX_SOCKET, unix_socket + 1) == CURLE_OK && ok;
    else if (unix_socket && unix_socket[0])
        ok = curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, unix_socket) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)t->limits.connect_s * 1000) ==
             CURLE_OK &&
         ok;
    ok = curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)t->limits.total_s * 1000) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK && ok;
    ok = curl_easy_setopt(e, CURLOPT_POST, 1L) == CURLE_OK && ok;
    ok =
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.len) == CURLE_OK && ok;
    const char *body = t->body.data ? (const char *)t->body.data : "";
    return curl_easy_setopt(e, CURLOPT_POSTFIELDS, body) == CURLE_OK && ok;
}

int br_transfer_start(struct br_transfer *t, const struct br_egress_target *target,
                      const char *unix_socket, const struct br_secret *key,
                      const struct br_egress_timeouts *limits, const char *path,
                      const char *content_type, struct br_buf *body, struct br_err *err)
{
    br_require(!t->active && !t->over);
    if (!br_egress_path_ok(path) || !content_type_ok(content_type))
        return br_err_set(err, BR_E_INVALID_FRAME,
                          "a request with a malformed path or content type was not sent");
    if (!t->easy)
        t->easy = curl_easy_init();
    else
        curl_easy_reset(t->easy);
    t->target = *target;
    t->limits = *limits;
    t->head = (struct br_egress_head){0};
    t->end = (struct br_err){.code = BR_OK};
    t->header_bytes = 0;
    t->request_bytes = t->response_bytes = 0;
    t->head_sent = t->paused = false;
    br_buf_free(&t->body);
    t->body = *body;
    br_buf_init(body, body->max);
    headers_wipe(t);
    t->started_us = t->activity_us = br_now_us();
    if (!t->easy || headers_build(t, key, content_type) < 0 || !options_fixed(t) ||
        !options_request(t, unix_socket, path) ||
        curl_multi_add_handle(t->multi, t->easy) != CURLM_OK) {
        headers_wipe(t);
        return br_err_set(err, BR_E_FAILED, "the request to '%s' could not be prepared",
                          target->origin);
    }
    t->active = true;
    return 0;
}

void br_transfer_resume(struct br_transfer *t)
{
    if (!br_transfer_paused(t))
        return;
    t->paused = false;
    t->activity_us = br_now_us();
    (void)curl_easy_pause(t->easy, CURLPAUSE_CONT);
}

void br_transfer_abort(struct br_transfer *t, enum br_code code, const char *text)
{
    if (!t->active)
        return;
    transfer_fail(t, code, text);
    transfer_detach(t);
}

/* ---- time-outs ---- */

static bool transfer_connected(const struct br_transfer *t)
{
    curl_off_t us = 0;
    return curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &us) == CURLE_OK && us > 0;
}

/* The end of the present phase, or UINT64_MAX where libcurl keeps the time (connecting, total) or
 * the reader does (paused). `phase` names it. */
static uint64_t transfer_due(const struct br_transfer *t, const char **phase)
{
    if (!t->active || t->paused)
        return UINT64_MAX;
    if (t->head_sent) {
        *phase = "its answer stood still";
        return t->activity_us + (uint64_t)t->limits.idle_s * 1000000;
    }
    if (!transfer_connected(t))
        return UINT64_MAX;
    curl_off_t us = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &us);
    *phase = "it did not begin to answer";
    return t->started_us + (uint64_t)us + (uint64_t)t->limits.first_byte_s * 1000000;
}

int br_transfer_wait_ms(const struct br_transfer *t)
{
    const char *phase;
    uint64_t due = transfer_due(t, &phase), now = br_now_us();
    if (t->active && due == UINT64_MAX)
        return 1000; /* so that the first-byte clock is looked at soon after the connection */
    if (due == UINT64_MAX)
        return -1;
    return due <= now ? 0 : due - now > 60000000 ? 60000 : (int)((due - now + 999) / 1000);
}

void br_transfer_check(struct br_transfer *t)
{
    const char *phase = "";
    if (br_now_us() < transfer_due(t, &phase))
        return;
    struct br_err e;
    br_err_set(&e, BR_E_TIMEOUT, "the provider at '%s' was given up: %s within %u s",
               t->target.origin, phase, t->head_sent ? t->limits.idle_s : t->limits.first_byte_s);
    br_transfer_abort(t, e.code, e.text);
}

/* ---- the end ---- */

static void end_timeout(const struct br_transfer *t, struct br_err *err)
{
    if (transfer_connected(t))
        br_err_set(err, BR_E_TIMEOUT,
                   "the provider at '%s' was given up: its answer did not end within %u s",
                   t->target.origin, t->limits.total_s);
    else
        br_err_set(err, BR_E_TIMEOUT,
                   "the provider at '%s' was given up: there was no connection within %u s",
                   t->target.origin, t->limits.connect_s);
}

static void end_from_curl(const struct br_transfer *t, struct br_err *err)
{
    const char *why = curl_easy_strerror(t->result), *origin = t->target.origin;
    switch (t->result) {
    case CURLE_OK:
        *err = (struct br_err){.code = BR_OK};
        return;
    case CURLE_OPERATION_TIMEDOUT:
        end_timeout(t, err);
        return;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
        br_err_set(err, BR_E_PROVIDER_TRUNCATED,
                   "the connection to the provider at '%s' was cut %s (%s)", origin,
                   t->head_sent ? "in the middle of its answer" : "before it answered", why);
        return;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        br_err_set(err, BR_E_PROVIDER_UNREACHABLE,
                   "the provider at '%s' cannot be reached (%s); nothing was sent. Check the base "
                   "URL and the network",
                   origin, why);
        return;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        br_err_set(err, BR_E_PROVIDER_UNREACHABLE,
                   "no trusted TLS connection to the provider at '%s' could be made (%s); nothing "
                   "was sent. Check the base URL and that 'ca-certificates' is installed",
                   origin, why);
        return;
    default:
        br_err_set(err, BR_E_PROVIDER_INVALID,
                   "the provider at '%s' did not answer in HTTP/1.1 (%s)", origin, why);
    }
}

bool br_transfer_ended(struct br_transfer *t, struct br_err *err, uint64_t *request_bytes,
                       uint64_t *response_bytes)
{
    int left;
    for (CURLMsg *m; t->active && (m = curl_multi_info_read(t->multi, &left));) {
        if (m->msg != CURLMSG_DONE || m->easy_handle != t->easy)
            continue;
        t->result = m->data.result;
        if (!t->end.code)
            end_from_curl(t, &t->end);
        transfer_detach(t);
    }
    if (!t->over)
        return false;
    t->over = false;
    *err = t->end;
    *request_bytes = t->request_bytes;
    *response_bytes = t->response_bytes;
    return true;
}
