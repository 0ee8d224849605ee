/*
 * Who asks, and may it come from there? Host and Origin are checked for every request: a page that
 * some browser shows must not speak to us in its user's name, neither from another origin nor by a
 * name that was made to lead here. Who it is: by the token that it brings, by the cookie that
 * /login gave for one, by its uid on this machine, or by its certificate. What was brought and is
 * wrong is refused, also from a uid that could do without.
 *
 * Tokens are kept as hashes and compared with all of them in constant time; what was presented is
 * never logged, put into an answer or kept.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "gateway/conn_priv.h"

#define COOKIE_BYTES 32u
#define COOKIE_DIGITS (2 * COOKIE_BYTES)

static bool text_is(struct br_http_text t, const char *s)
{
    return t.p && t.n == strlen(s) && strncasecmp(t.p, s, t.n) == 0;
}

/* ---- Host ---- */

/* Without the port; the brackets of an IPv6 address go as well. False: it is none. */
static bool host_of(struct br_http_text t, char dst[BR_NAME_MAX])
{
    size_t n = t.n, from = 0;
    if (t.n && t.p[0] == '[') {
        const char *end = memchr(t.p, ']', t.n);
        from = 1;
        n = end ? (size_t)(end - t.p) - 1 : 0;
        size_t rest = end ? t.n - n - 2 : 0;
        if (rest && end[1] != ':')
            return false;
    } else {
        const char *colon = memchr(t.p, ':', t.n);
        if (colon)
            n = (size_t)(colon - t.p);
    }
    if (!n || n >= BR_NAME_MAX)
        return false;
    memcpy(dst, t.p + from, n);
    dst[n] = 0;
    return !strpbrk(dst, "@/\\ ");
}

/* Is this the address that the connection came to? */
static bool is_own_address(const struct conn *c, const char *host)
{
    struct sockaddr_storage own = {.ss_family = 0};
    socklen_t n = sizeof(own);
    uint8_t a[16];
    if (c->tls || getsockname(c->fd, (struct sockaddr *)&own, &n) < 0)
        return false;
    if (own.ss_family == AF_INET)
        return inet_pton(AF_INET, host, a) == 1 &&
               memcmp(a, &((struct sockaddr_in *)&own)->sin_addr, 4) == 0;
    const struct in6_addr *in6 = &((struct sockaddr_in6 *)&own)->sin6_addr;
    if (own.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(in6))
        return inet_pton(AF_INET, host, a) == 1 && memcmp(a, in6->s6_addr + 12, 4) == 0;
    return own.ss_family == AF_INET6 && inet_pton(AF_INET6, host, a) == 1 &&
           memcmp(a, in6, 16) == 0;
}

unsigned auth_host(const struct conn *c, const struct br_http_head *h)
{
    const struct br_service *s = gw_settings(c->g);
    char host[BR_NAME_MAX], name[BR_NAME_MAX];
    if (c->unix_socket) /* no browser and no name leads there */
        return 0;
    if (!host_of(br_http_field(h, "Host", NULL), host))
        return 400;
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
        strcmp(host, "::1") == 0)
        return 0;
    for (uint32_t i = 0; i < s->nlisteners; i++)
        if (s->listeners[i].kind == BR_LISTENER_TCP &&
            strcasecmp(host, s->listeners[i].address) == 0)
            return 0;
    for (uint32_t i = 0; i < s->nhosts; i++)
        if (host_of((struct br_http_text){s->hosts[i], strlen(s->hosts[i])}, name) &&
            strcasecmp(host, name) == 0)
            return 0;
    return is_own_address(c, host) ? 0 : 403;
}

/* ---- Origin ---- */

unsigned auth_origin(const struct conn *c, const struct br_http_head *h)
{
    const struct br_service *s = gw_settings(c->g);
    bool many = false;
    struct br_http_text origin = br_http_field(h, "Origin", &many);
    struct br_http_text host = br_http_field(h, "Host", NULL);
    if (!origin.p)
        return many ? 400 : 0;
    for (uint32_t i = 0; i < s->norigins; i++)
        if (text_is(origin, s->origins[i]) && !text_is(origin, "null"))
            return 0;
    /* our own pages: the name in Host was checked */
    const char *scheme = c->tls ? "https://" : "http://";
    size_t n = strlen(scheme);
    bool own = origin.n == n + host.n && strncasecmp(origin.p, scheme, n) == 0 &&
               strncasecmp(origin.p + n, host.p, host.n) == 0;
    return own && s->board && (c->local || s->board_remote) ? 0 : 403;
}

/* ---- tokens ---- */

/* Every byte of every token is looked at, whatever was presented. */
static const struct br_token *token_find(const struct auth *a, const uint8_t hash[32])
{
    const struct br_token *found = NULL;
    for (unsigned i = 0; i < a->ntokens; i++) {
        volatile uint8_t differs = 0;
        for (size_t k = 0; k < 32; k++)
            differs |= a->tokens[i].sha256[k] ^ hash[k];
        if (!differs)
            found = &a->tokens[i];
    }
    return found;
}

static void hash_of(const char *p, size_t n, uint8_t out[32])
{
    struct br_sha256 s;
    br_sha256_init(&s);
    br_sha256_put(&s, p, n);
    br_sha256_end(&s, out);
    explicit_bzero(&s, sizeof(s));
}

static void is_token(struct conn *c, const struct br_token *t)
{
    c->how = AUTH_TOKEN;
    memcpy(c->proof, t->sha256, sizeof(c->proof));
    snprintf(c->who.name, sizeof(c->who.name), "token:%s", t->name);
    c->who.access = t->access;
}

/*
 * Compared first, whoever asks: a token has 256 random bits, so that nobody finds one by trying,
 * and somebody else at the same address (a proxy, a translated network) must not lock its owner
 * out. What is limited are failures: beyond the burst they are neither told apart nor logged.
 */
static unsigned token_check(struct conn *c, struct br_http_text token)
{
    struct gw_counters *n = gw_counters(c->g);
    char id[64], peer[64];
    uint8_t hash[32];
    hash_of(token.p, token.n < AUTH_TOKEN_MAX ? token.n : AUTH_TOKEN_MAX, hash);
    const struct br_token *t = token_find(&c->g->auth, hash);
    if (t && token.n <= AUTH_TOKEN_MAX) {
        is_token(c, t);
        return 0;
    }
    if (!peer_rate(&c->peer->failure_at, br_now_us(), AUTH_FAILURE_US, AUTH_FAILURES_BURST)) {
        n->rate_limited++;
        return 429;
    }
    n->auth_refused++;
    gw_log(c->g, BR_LOG_WARN, "token.refused", "connection", conn_name(c, id), "peer",
           conn_peer(c, peer), NULL);
    return 401;
}

/* The token of `Authorization: Bearer`; n 0 if there is none. *bad: it is something else. */
static struct br_http_text bearer_of(const struct br_http_head *h, bool *bad)
{
    static const char scheme[] = "Bearer ";
    struct br_http_text t = br_http_field(h, "Authorization", bad);
    if (!t.p)
        return t;
    if (t.n <= sizeof(scheme) - 1 || strncasecmp(t.p, scheme, sizeof(scheme) - 1) != 0) {
        *bad = true;
        return (struct br_http_text){NULL, 0};
    }
    t.p += sizeof(scheme) - 1;
    t.n -= sizeof(scheme) - 1;
    while (t.n && *t.p == ' ') {
        t.p++;
        t.n--;
    }
    return t;
}

/* The value of `token` in a query; as it stands, since a token has no character to escape. */
static struct br_http_text token_of_query(struct br_http_text q)
{
    while (q.p && q.n) {
        const char *amp = memchr(q.p, '&', q.n);
        size_t n = amp ? (size_t)(amp - q.p) : q.n;
        if (n > 6 && memcmp(q.p, "token=", 6) == 0)
            return (struct br_http_text){q.p + 6, n - 6};
        q.p += n + (amp != NULL);
        q.n -= n + (amp != NULL);
    }
    return (struct br_http_text){NULL, 0};
}

/* ---- cookies ---- */

static const char *cookie_name(const struct conn *c)
{
    return c->tls ? "__Host-bridle" : "bridle";
}

/* The value of ours in all fields `Cookie`. */
static struct br_http_text cookie_of(const struct conn *c, const struct br_http_head *h)
{
    const char *name = cookie_name(c);
    size_t nname = strlen(name);
    for (unsigned i = 0; i < h->nfields; i++) {
        struct br_http_text t = h->fields[i].value;
        if (!text_is(h->fields[i].name, "Cookie"))
            continue;
        while (t.n) {
            const char *end = memchr(t.p, ';', t.n);
            size_t n = end ? (size_t)(end - t.p) : t.n;
            if (n == nname + 1 + COOKIE_DIGITS && memcmp(t.p, name, nname) == 0 &&
                t.p[nname] == '=')
                return (struct br_http_text){t.p + nname + 1, COOKIE_DIGITS};
            t.p += n;
            t.n -= n;
            while (t.n && (*t.p == ';' || *t.p == ' ')) {
                t.p++;
                t.n--;
            }
        }
    }
    return (struct br_http_text){NULL, 0};
}

static struct auth_cookie *cookie_find(const struct conn *c, const struct br_http_head *h)
{
    struct auth *a = &c->g->auth;
    struct br_http_text t = cookie_of(c, h);
    uint8_t hash[32];
    if (!t.p)
        return NULL;
    hash_of(t.p, t.n, hash);
    for (unsigned i = 0; i < AUTH_COOKIES_MAX; i++) {
        struct auth_cookie *k = &a->cookies[i];
        if (k->expires_us > br_now_us() && memcmp(k->sha256, hash, sizeof(hash)) == 0)
            return k->has_uid == c->has_uid && (!k->has_uid || k->uid == c->uid) ? k : NULL;
    }
    return NULL;
}

void auth_forget(struct auth *a)
{
    for (unsigned i = 0; i < AUTH_COOKIES_MAX; i++)
        if (a->cookies[i].expires_us && !token_find(a, a->cookies[i].proof))
            a->cookies[i] = (struct auth_cookie){.expires_us = 0};
}

unsigned auth_login(struct conn *c, const struct br_http_head *h, struct br_buf *set_cookie)
{
    struct auth *a = &c->g->auth;
    struct auth_cookie *k = &a->cookies[0];
    uint8_t raw[COOKIE_BYTES];
    char digits[COOKIE_DIGITS + 1];
    bool bad = false;
    struct br_http_text token = bearer_of(h, &bad);
    unsigned status = token.n ? token_check(c, token) : 401;
    if (status)
        return status;
    for (unsigned i = 0; i < AUTH_COOKIES_MAX; i++) /* a free one, or the oldest */
        if (a->cookies[i].expires_us < k->expires_us)
            k = &a->cookies[i];
    br_random(raw, sizeof(raw));
    br_hex(digits, raw, sizeof(raw));
    *k = (struct auth_cookie){
        .expires_us = br_now_us() + AUTH_COOKIE_US, .has_uid = c->has_uid, .uid = c->uid};
    hash_of(digits, COOKIE_DIGITS, k->sha256);
    hash_of(token.p, token.n, k->proof);
    br_buf_printf(set_cookie, "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%llu%s",
                  cookie_name(c), digits, (unsigned long long)(AUTH_COOKIE_US / 1000000),
                  c->tls ? "; Secure" : "");
    explicit_bzero(raw, sizeof(raw));
    explicit_bzero(digits, sizeof(digits));
    return 0;
}

void auth_logout(struct conn *c, const struct br_http_head *h, struct br_buf *set_cookie)
{
    struct auth_cookie *k = cookie_find(c, h);
    if (k)
        *k = (struct auth_cookie){.expires_us = 0};
    br_buf_printf(set_cookie, "%s=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0%s", cookie_name(c),
                  c->tls ? "; Secure" : "");
}

/* ---- who ---- */

bool auth_uid(const struct gateway *g, uid_t uid)
{
    if (uid == 0 || uid == g->auth.bridled)
        return true;
    for (uint32_t i = 0; i < g->settings.nuids; i++)
        if (g->settings.uids[i] == uid)
            return true;
    return false;
}

static enum br_access cert_access(const struct gateway *g, const char *name)
{
    for (uint32_t i = 0; i < g->settings.nnames; i++)
        if (strcmp(g->settings.names[i].name, name) == 0)
            return g->settings.names[i].access;
    return BR_ACCESS_NONE;
}

unsigned auth_who(struct conn *c, const struct br_http_head *h)
{
    bool bad = false;
    struct br_http_text token = bearer_of(h, &bad);
    if (!token.p && !bad && gw_settings(c->g)->token_in_url)
        token = token_of_query(h->query);
    if (bad)
        return 401;
    if (token.p)
        return token_check(c, token);
    const struct auth_cookie *k = cookie_find(c, h);
    const struct br_token *t = k ? token_find(&c->g->auth, k->proof) : NULL;
    if (t) {
        is_token(c, t);
        return 0;
    }
    if (c->has_uid && auth_uid(c->g, c->uid)) {
        c->how = AUTH_UID;
        snprintf(c->who.name, sizeof(c->who.name), "uid:%u", (unsigned)c->uid);
        c->who.access = BR_ACCESS_OPERATE;
        return 0;
    }
    enum br_access access = c->cert ? cert_access(c->g, c->cert) : BR_ACCESS_NONE;
    if (access == BR_ACCESS_NONE) {
        gw_counters(c->g)->auth_refused++;
        return 401;
    }
    c->how = AUTH_CERT;
    snprintf(c->who.name, sizeof(c->who.name), "cert:%s", c->cert);
    c->who.access = access;
    return 0;
}

bool auth_still(const struct conn *c)
{
    const struct auth *a = &c->g->auth;
    if (c->how == AUTH_UID)
        return auth_uid(c->g, c->uid);
    if (c->how == AUTH_CERT)
        return cert_access(c->g, c->cert) == c->who.access;
    for (unsigned i = 0; i < a->ntokens; i++)
        if (memcmp(a->tokens[i].sha256, c->proof, sizeof(c->proof)) == 0)
            return a->tokens[i].access == c->who.access &&
                   strcmp(a->tokens[i].name, c->who.name + strlen("token:")) == 0;
    return false;
}
