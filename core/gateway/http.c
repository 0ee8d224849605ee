/*
 * Requests. Each connection carries one: an upgrade, after which it is a WebSocket, or a request
 * that is answered and ends it. No answer depends on the body of a request, so none is read.
 *
 *   GET  /acp              WebSocket; subprotocol harness.acp.1 (also without one) or acp.v1
 *   GET  /health           JSON with `ready`; from beyond this machine, and unknown, nothing else
 *   GET  /metrics          Prometheus text; from beyond this machine: access observe
 *   GET  /whoami           JSON: name and access of who asks, or 401
 *   POST /login            `Authorization: Bearer TOKEN`: a cookie for the board
 *   POST /logout           ends it
 *   GET  /, /NAME          the files of web/board, where the board is on (board.c)
 *
 * HEAD is answered as GET without a body. Host and Origin are checked before anything else.
 */
#include <string.h>

#include "gateway/board.h"
#include "gateway/conn_priv.h"

#define JSON_TYPE "application/json"
#define TEXT_MAX (256u * 1024)

/* Of every answer: nothing here is for other origins, caches or guesses. */
static const char common_fields[] = "Connection: close\r\n"
                                    "X-Content-Type-Options: nosniff\r\n"
                                    "Cross-Origin-Resource-Policy: same-origin\r\n"
                                    "Referrer-Policy: no-referrer\r\n";
static const char page_fields[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "X-Frame-Options: DENY\r\n";

static const char *status_text(unsigned status)
{
    static const struct {
        unsigned status;
        const char *text;
    } texts[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {426, "Upgrade Required"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(texts); i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "Error";
}

/* "Mon, 02 Mar 2026 10:00:00 GMT"; by hand, since the library's reads a file of time zones. */
static void put_date(struct br_buf *b)
{
    static const char days[] = "ThuFriSatSunMonTueWed", months[] = "JanFebMarAprMayJunJulAugSepOct"
                                                                   "NovDec";
    char iso[32];
    uint64_t now = br_now_wall_us();
    br_time_iso(iso, now);
    unsigned day = (unsigned)(now / 86400000000u % 7);
    unsigned month = (unsigned)((iso[5] - '0') * 10 + iso[6] - '0' - 1) % 12;
    br_buf_printf(b, "Date: %.3s, %.2s %.3s %.4s %.8s GMT\r\n", days + 3 * day, iso + 8,
                  months + 3 * month, iso, iso + 11);
}

/* Queue an answer. `fields`: more lines, each with its end. */
static void answer(struct conn *c, unsigned status, const char *type, const void *body, size_t n,
                   const char *fields)
{
    BR_CLEANUP_BUF struct br_buf head = BR_BUF_INIT(8192);
    br_buf_printf(&head, "HTTP/1.1 %u %s\r\n%s", status, status_text(status), common_fields);
    put_date(&head);
    br_buf_printf(&head, "Content-Type: %s\r\nContent-Length: %zu\r\n%s\r\n", type, n, fields);
    const struct gw_piece pieces[] = {{head.data, head.len}, {body, c->head_only ? 0 : n}};
    if (head.failed || out_put(&c->out, OUT_RAW, pieces, 2) < 0)
        out_drop(&c->out);
    conn_answered(c);
}

static void answer_error(struct conn *c, unsigned status, const char *text, const char *fields)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    br_buf_printf(&b, "{\"error\":{\"status\":%u,\"message\":", status);
    br_buf_put_json_str(&b, text, strlen(text));
    br_buf_printf(&b, "}}\n");
    if (!b.failed)
        answer(c, status, JSON_TYPE, b.data, b.len, fields);
    else
        answer(c, status, JSON_TYPE, "", 0, fields);
}

static void log_refused(struct conn *c, unsigned status, const char *text)
{
    char id[64], peer[64], number[16];
    snprintf(number, sizeof(number), "%u", status);
    gw_log(c->g, BR_LOG_WARN, "request.refused", "connection", conn_name(c, id), "peer",
           conn_peer(c, peer), "status", number, "reason", text, NULL);
}

void http_refuse(struct conn *c, unsigned status, const char *text)
{
    const char *fields = status == 401   ? "WWW-Authenticate: Bearer realm=\"bridle\"\r\n"
                         : status == 429 ? "Retry-After: 6\r\n"
                         : status == 503 ? "Retry-After: 5\r\n"
                         : status == 426 ? "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                         : "";
    log_refused(c, status, text);
    answer_error(c, status, text, fields);
}

static void refuse_who(struct conn *c, unsigned status)
{
    http_refuse(c, status,
                status == 429 ? "too many failed authentications; try again later"
                              : "this needs a user of this machine that may operate, a token "
                                "('bridle token add') or a client's certificate");
}

/* ---- WebSocket ---- */

/* The one that we choose; NULL: none of those that are offered. *name "": none was offered. */
static const struct gw_protocol *choose(struct br_http_text offered, const char **name)
{
    static const struct gw_protocol *const known[] = {&gw_harness, &gw_acp};
    *name = "";
    if (!offered.p)
        return &gw_harness;
    for (size_t i = 0; i < BR_ARRAY_LEN(known); i++) {
        *name = known[i]->name;
        if (br_http_list_has(offered, *name))
            return known[i];
    }
    return NULL;
}

static void open_websocket(struct conn *c, const struct br_http_head *h)
{
    struct br_ws_offer offer;
    struct br_err err = {.code = BR_OK};
    unsigned status = 400;
    int r = br_ws_offer(h, &offer, &status, &err);
    if (r != 0) {
        http_refuse(c, r > 0 ? 426 : status, r > 0 ? "this is a WebSocket" : err.text);
        return;
    }
    status = auth_who(c, h);
    if (status) {
        refuse_who(c, status);
        return;
    }
    const char *name;
    const struct gw_protocol *p = choose(offer.protocols, &name);
    if (!p) {
        http_refuse(c, 400,
                    "no subprotocol that is offered is known; known are harness.acp.1 and "
                    "acp.v1");
        return;
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    br_ws_put_accept(&b, &offer, name);
    if (b.failed || out_put(&c->out, OUT_RAW, &(struct gw_piece){b.data, b.len}, 1) < 0) {
        http_refuse(c, 500, "no memory");
        return;
    }
    char id[64], peer[64];
    static const char *const access[] = {"none", "observe", "answer", "operate"};
    gw_log(c->g, BR_LOG_INFO, "connection.open", "connection", conn_name(c, id), "peer",
           conn_peer(c, peer), "who", c->who.name, "access", access[c->who.access], "protocol",
           p->name, NULL);
    conn_upgraded(c, p);
}

/* ---- pages ---- */

static void health(struct conn *c, const struct br_http_head *h)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    bool whole = c->local || auth_who(c, h) == 0;
    health_put(c->g, &b, whole);
    answer(c, gw_draining(c->g) ? 503 : 200, JSON_TYPE, b.data, b.failed ? 0 : b.len,
           "Cache-Control: no-store\r\n");
}

static void metrics(struct conn *c, const struct br_http_head *h)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(TEXT_MAX);
    unsigned status = c->local ? 0 : auth_who(c, h);
    if (!gw_settings(c->g)->metrics) {
        http_refuse(c, 404, "metrics are off");
        return;
    }
    if (status) {
        refuse_who(c, status);
        return;
    }
    metrics_put(c->g, &b);
    answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.failed ? 0 : b.len,
           "Cache-Control: no-store\r\n");
}

static void answer_who(struct conn *c, const char *fields)
{
    static const char *const access[] = {"none", "observe", "answer", "operate"};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    br_buf_printf(&b, "{\"name\":");
    br_buf_put_json_str(&b, c->who.name, strlen(c->who.name));
    br_buf_printf(&b, ",\"access\":\"%s\"}\n", access[c->who.access]);
    answer(c, 200, JSON_TYPE, b.data, b.failed ? 0 : b.len, fields);
}

static void whoami(struct conn *c, const struct br_http_head *h)
{
    unsigned status = auth_who(c, h);
    if (status)
        refuse_who(c, status);
    else
        answer_who(c, "Cache-Control: no-store\r\n");
}

static bool board_on(const struct conn *c)
{
    const struct br_service *s = gw_settings(c->g);
    return s->board && (c->local || s->board_remote);
}

static void with_cookie(struct br_buf *fields, struct br_buf *cookie)
{
    br_buf_printf(fields, "Cache-Control: no-store\r\nSet-Cookie: ");
    br_buf_put(fields, cookie->data, cookie->len);
    br_buf_printf(fields, "\r\n");
    if (cookie->data)
        explicit_bzero(cookie->data, cookie->len);
}

static void login(struct conn *c, const struct br_http_head *h)
{
    BR_CLEANUP_BUF struct br_buf cookie = BR_BUF_INIT(512), fields = BR_BUF_INIT(1024);
    if (!board_on(c)) {
        http_refuse(c, 404, "the board is off");
        return;
    }
    unsigned status = auth_login(c, h, &cookie);
    if (status) {
        refuse_who(c, status);
        return;
    }
    with_cookie(&fields, &cookie);
    answer_who(c, br_buf_cstr(&fields));
    explicit_bzero(fields.data, fields.len);
}

static void logout(struct conn *c, const struct br_http_head *h)
{
    BR_CLEANUP_BUF struct br_buf cookie = BR_BUF_INIT(512), fields = BR_BUF_INIT(1024);
    auth_logout(c, h, &cookie);
    with_cookie(&fields, &cookie);
    answer(c, 200, JSON_TYPE, "{}\n", 3, br_buf_cstr(&fields));
}

/* True: it is one of the board's files, and was answered. */
static bool board_file(struct conn *c, const struct br_http_head *h)
{
    const struct board_asset *a = board_asset(h->path.p, h->path.n);
    if (!a || !board_on(c))
        return false;
    BR_CLEANUP_BUF struct br_buf fields = BR_BUF_INIT(2048);
    br_buf_printf(&fields, "%sCache-Control: no-store\r\n", page_fields);
    answer(c, 200, board_type(a), a->bytes, *a->n, br_buf_cstr(&fields));
    return true;
}

/* ---- routes ---- */

static const struct {
    const char *path, *method;
    void (*fn)(struct conn *c, const struct br_http_head *h);
} routes[] = {
    {"/acp", "GET", open_websocket}, {"/health", "GET", health}, {"/metrics", "GET", metrics},
    {"/whoami", "GET", whoami},      {"/login", "POST", login},  {"/logout", "POST", logout},
};

static bool is(struct br_http_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

static void route(struct conn *c, const struct br_http_head *h)
{
    bool get = is(h->method, "GET") || c->head_only;
    for (size_t i = 0; i < BR_ARRAY_LEN(routes); i++) {
        if (!is(h->path, routes[i].path))
            continue;
        bool post = strcmp(routes[i].method, "POST") == 0;
        if (post ? is(h->method, "POST") : get) {
            routes[i].fn(c, h);
        } else {
            log_refused(c, 405, "method");
            answer_error(c, 405, "this path knows another method",
                         post ? "Allow: POST\r\n" : "Allow: GET, HEAD\r\n");
        }
        return;
    }
    if (!get && board_asset(h->path.p, h->path.n) && board_on(c))
        answer_error(c, 405, "this path knows another method", "Allow: GET, HEAD\r\n");
    else if (!get || !board_file(c, h))
        http_refuse(c, 404, "there is nothing at this path");
}

void http_request(struct conn *c, const struct br_http_head *h)
{
    c->head_only = is(h->method, "HEAD");
    unsigned host = auth_host(c, h), origin = host ? 0 : auth_origin(c, h);
    /* a connection of its own has a rate of its own */
    bool websocket = is(h->path, "/acp");
    if (!websocket && !conn_may_ask(c))
        http_refuse(c, 429, "too many requests; try again later");
    else if (host)
        http_refuse(c, host,
                    "this name in Host does not lead here; it can be added to 'hosts' of "
                    "the service");
    else if (origin)
        http_refuse(c, origin,
                    "pages of this Origin may not speak to this service; it can be "
                    "added to 'origins' of the service");
    else if (h->content_length)
        http_refuse(c, 413, "no request here has a body");
    else if (gw_draining(c->g) && !is(h->path, "/health") && !is(h->path, "/metrics"))
        http_refuse(c, 503, "the service is stopping");
    else
        route(c, h);
}
