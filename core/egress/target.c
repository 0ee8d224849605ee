/*
 * The provider's address and the credential: what is accepted as a base URL, and how the key gets
 * out of the environment. Called by bridle-egress before it reads from any peer but its supervisor.
 * Trusts nothing about the text; libcurl's own parser takes the URL apart, so that what is checked
 * here is what will be connected to.
 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

static int target_fill(struct br_egress_target *t, CURLU *u, struct url_parts *p,
                       struct br_err *err)
{
    if (url_has(u, CURLUPART_USER, p) || url_has(u, CURLUPART_PASSWORD, p) ||
        url_has(u, CURLUPART_OPTIONS, p))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the provider's base URL holds credentials; nothing was sent. Put the "
                          "key into an environment variable and name it as 'key_env'");
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
    size_t n = strlen(p->full);
    while (n && p->full[n - 1] == '/')
        n--;
    if (n > BR_EGRESS_URL_MAX)
        return br_err_set(err, BR_E_INVALID_CONFIG, "the provider's base URL is too long");
    memcpy(t->url, p->full, n);
    t->url[n] = '\0';
    snprintf(t->origin, sizeof(t->origin), "%s://%s:%s", p->scheme, p->host, p->port);
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

int br_egress_key_take(const char *name, struct br_secret *key, struct br_err *err)
{
    char *value = getenv(name);
    if (value && !value[0])
        (void)unsetenv(name);
    if (!value || !value[0])
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the environment variable '%s', which should hold the provider's key, is "
                          "not set; nothing was sent",
                          name);
    size_t n = strlen(value);
    bool ok = n >= BR_EGRESS_KEY_MIN && n <= BR_EGRESS_KEY_MAX;
    for (size_t i = 0; ok && i < n; i++)
        ok = value[i] > ' ' && value[i] <= '~';
    int r = ok ? br_secret_set(key, value, n) : 0;
    explicit_bzero(value, n);
    (void)unsetenv(name);
    if (!ok)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the environment variable '%s' does not hold a key: it must be %u to %u "
                          "printable characters without spaces or line ends; nothing was sent",
                          name, BR_EGRESS_KEY_MIN, BR_EGRESS_KEY_MAX);
    if (r < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the provider's key");
    return 0;
}

void br_egress_header_copy(char *dst, size_t cap, const char *p, size_t n)
{
    while (n && (*p == ' ' || *p == '\t')) {
        p++;
        n--;
    }
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t' || p[n - 1] == '\r' || p[n - 1] == '\n'))
        n--;
    bool ok = n < cap;
    for (size_t i = 0; ok && i < n; i++)
        ok = p[i] >= ' ' && p[i] <= '~';
    if (!ok)
        n = 0;
    memcpy(dst, p, n);
    dst[n] = '\0';
}
