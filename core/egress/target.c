/*
 * The provider's address: what is accepted as a base URL, and as a proxy's. Called by bridle-egress
 * before it reads from any peer but its supervisor. Trusts nothing about the text; libcurl's own
 * parser takes the URL apart, so that what is checked here is what will be connected to.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "egress/egress_priv.h"

struct url_parts {
    char *scheme, *host, *port, *path, *full, *extra;
};

static void url_parts_free(struct url_parts *u)
{
    curl_free(u->scheme);
    curl_free(u->host);
    curl_free(u->port);
    curl_free(u->path);
    curl_free(u->full);
    curl_free(u->extra);
}

static void cleanup_url(CURLU **u)
{
    curl_url_cleanup(*u);
}

static bool host_is_loopback(const char *host)
{
    struct in_addr a;
    struct in6_addr a6;
    char bare[64];
    if (strcasecmp(host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, host, &a) == 1)
        return (ntohl(a.s_addr) >> 24) == 127;
    size_t n = strlen(host);
    if (n < 3 || n - 2 >= sizeof(bare) || host[0] != '[' || host[n - 1] != ']')
        return false;
    memcpy(bare, host + 1, n - 2);
    bare[n - 2] = '\0';
    return inet_pton(AF_INET6, bare, &a6) == 1 && IN6_IS_ADDR_LOOPBACK(&a6);
}

static bool url_has(CURLU *u, CURLUPart part, struct url_parts *p)
{
    curl_free(p->extra);
    p->extra = NULL;
    return curl_url_get(u, part, &p->extra, 0) == CURLUE_OK;
}

/* Without slashes at its end; false if it does not fit. */
static bool copy_path(char dst[BR_EGRESS_URL_MAX + 1], const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    if (n > BR_EGRESS_URL_MAX)
        return false;
    memcpy(dst, path, n);
    dst[n] = '\0';
    return true;
}

static int target_fill(struct br_egress_target *t, CURLU *u, struct url_parts *p,
                       struct br_err *err)
{
    if (url_has(u, CURLUPART_USER, p) || url_has(u, CURLUPART_PASSWORD, p) ||
        url_has(u, CURLUPART_OPTIONS, p))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL holds credentials; nothing was sent. Give "
                          "it a key of its own, in 'keys' or with 'key_env'");
    if (url_has(u, CURLUPART_QUERY, p) || url_has(u, CURLUPART_FRAGMENT, p))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL has a query or a fragment; nothing was sent. "
                          "Give it up to the path, as in 'https://host/v1'");
    if (curl_url_get(u, CURLUPART_SCHEME, &p->scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &p->host, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_PORT, &p->port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_URL, &p->full, 0) != CURLUE_OK)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL is not complete; nothing was sent");
    t->plaintext = strcmp(p->scheme, "http") == 0;
    if (!t->plaintext && strcmp(p->scheme, "https") != 0)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL is neither https nor http; nothing was sent");
    if (t->plaintext && !t->unix_socket && !host_is_loopback(p->host))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider at '%s' would be spoken to in plaintext; nothing was sent. "
                          "Use https; http is for loopback addresses and Unix sockets only",
                          p->host);
    if (!copy_path(t->url, p->full) || curl_url_get(u, CURLUPART_PATH, &p->path, 0) != CURLUE_OK ||
        !copy_path(t->prefix, p->path) || strlen(p->host) >= sizeof(t->host))
        return br_err_set(err, BR_E_INVALID_CONFIG, "the provider's base URL is too long");
    snprintf(t->origin, sizeof(t->origin), "%s://%s:%s", p->scheme, p->host, p->port);
    snprintf(t->host, sizeof(t->host), "%s", p->host);
    if (t->host[0] == '[')
        snprintf(t->host, sizeof(t->host), "%.*s", (int)strlen(p->host) - 2, p->host + 1);
    t->port = (uint16_t)strtoul(p->port, NULL, 10);
    if (t->port == (t->plaintext ? 80 : 443))
        snprintf(t->host_field, sizeof(t->host_field), "%s", p->host);
    else
        snprintf(t->host_field, sizeof(t->host_field), "%s:%s", p->host, p->port);
    return 0;
}

int br_egress_target_set(struct br_egress_target *t, const char *base_url, const char *unix_socket,
                         struct br_err *err)
{
    size_t n = strlen(base_url);
    bool ok = n > 0 && n <= BR_EGRESS_URL_MAX;
    for (size_t i = 0; ok && i < n; i++)
        ok = base_url[i] > ' ' && base_url[i] <= '~';
    if (!ok)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL is empty, longer than %u bytes, or holds "
                          "characters that are not printable ASCII; nothing was sent",
                          BR_EGRESS_URL_MAX);
    __attribute__((cleanup(cleanup_url))) CURLU *u = curl_url();
    if (!u)
        return br_err_set(err, BR_E_NOMEM, "no memory for the provider's base URL");
    if (curl_url_set(u, CURLUPART_URL, base_url, 0) != CURLUE_OK)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL cannot be read; nothing was sent. It should "
                          "look like 'https://host/v1'");
    struct br_egress_target fresh = {.unix_socket = unix_socket && unix_socket[0]};
    struct url_parts parts = {0};
    int r = target_fill(&fresh, u, &parts, err);
    url_parts_free(&parts);
    if (r == 0)
        *t = fresh;
    return r;
}

bool br_egress_path_ok(const char *path)
{
    if (path[0] != '/' || path[1] == '\0' || strstr(path, "..") || strstr(path, "//"))
        return false;
    return path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "/_.-")] == '\0';
}

bool br_egress_content_type_ok(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] < ' ' || s[i] > '~')
            return false;
    return n > 0 && n < 128;
}

static int proxy_fill(CURLU *u, struct url_parts *p, struct br_err *err)
{
    if (url_has(u, CURLUPART_USER, p) || url_has(u, CURLUPART_PASSWORD, p) ||
        url_has(u, CURLUPART_OPTIONS, p))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the proxy's address holds credentials; nothing was sent");
    if (url_has(u, CURLUPART_QUERY, p) || url_has(u, CURLUPART_FRAGMENT, p) ||
        curl_url_get(u, CURLUPART_SCHEME, &p->scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &p->host, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_PATH, &p->path, 0) != CURLUE_OK || strcmp(p->path, "/") != 0 ||
        (strcmp(p->scheme, "http") != 0 && strcmp(p->scheme, "https") != 0))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the proxy's address is not 'http://host:port' or 'https://host:port'; "
                          "nothing was sent");
    return 0;
}

int br_egress_proxy_check(const char *url, struct br_err *err)
{
    __attribute__((cleanup(cleanup_url))) CURLU *u = curl_url();
    if (!u)
        return br_err_set(err, BR_E_NOMEM, "no memory for the proxy's address");
    bool ok = strlen(url) <= BR_EGRESS_URL_MAX;
    for (const char *c = url; ok && *c; c++)
        ok = *c > ' ' && *c <= '~';
    if (!ok || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the proxy's address cannot be read; nothing was sent. It should look "
                          "like 'http://host:port'");
    struct url_parts parts = {0};
    int r = proxy_fill(u, &parts, err);
    url_parts_free(&parts);
    return r;
}
