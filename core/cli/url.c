/*
 * Where a service is, as people write it. The text comes from the operator's command line, perhaps
 * pasted from elsewhere: it is taken apart strictly, and what looks like a password in it is
 * refused without being repeated, because errors end up in logs. Without TLS only this machine is
 * spoken to. Used by connect and acp; no input or output.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/remote.h"

#define DEFAULT_PATH "/acp"
#define SYSTEM_STATE "/var/lib/bridle"
#define SYSTEM_SOCKET "/run/bridle/service.sock"

static int refuse(struct br_err *err, const char *why)
{
    return br_err_set(err, BR_E_USAGE, "the service's URL %s; nothing was connected", why);
}

static bool has_prefix(const char *s, const char *prefix)
{
    return strncasecmp(s, prefix, strlen(prefix)) == 0;
}

static int set_socket(struct br_cli_url *u, const char *path, struct br_err *err)
{
    if (!*path)
        return refuse(err, "names no socket");
    if (strlen(path) >= sizeof(u->socket))
        return br_err_set(err, BR_E_USAGE,
                          "the path of the service's socket is longer than %zu bytes; nothing was "
                          "connected",
                          sizeof(u->socket) - 1);
    u->local = true;
    snprintf(u->socket, sizeof(u->socket), "%s", path);
    snprintf(u->authority, sizeof(u->authority), "localhost");
    snprintf(u->path, sizeof(u->path), DEFAULT_PATH);
    return 0;
}

/* A service of root lies in /run, any other in its state directory. */
static int default_socket(struct br_cli_url *u, struct br_err *err)
{
    char state[BR_PATH_MAX], path[BR_PATH_MAX + 16];
    int r = br_state_path(state, getenv, err);
    if (r < 0)
        return r;
    if (geteuid() == 0 && strcmp(state, SYSTEM_STATE) == 0)
        return set_socket(u, SYSTEM_SOCKET, err);
    snprintf(path, sizeof(path), "%s/service.sock", state);
    return set_socket(u, path, err);
}

/* Labels of letters, digits, '-' and '_', with single dots between them. */
static bool is_name(const char *s)
{
    size_t n = strlen(s), label = 0;
    if (n == 0 || n > 253)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '.') {
            if (label == 0)
                return false;
            label = 0;
            continue;
        }
        bool good =
            (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '_';
        if (!good || ++label > 63 || (label == 1 && c == '-'))
            return false;
    }
    return label > 0 || n > 1; /* one dot may stand at the end */
}

/* 127.1, 0x7f000001 and 2130706433 are addresses to some resolvers, and names to others. */
static bool looks_numeric(const char *host)
{
    const char *dot = strrchr(host, '.'), *last = dot ? dot + 1 : host;
    if (strncasecmp(last, "0x", 2) == 0)
        return true;
    return *last && strspn(last, "0123456789") == strlen(last);
}

static bool is_loopback(const struct br_cli_url *u)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, u->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, u->host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(u->host, "localhost") == 0;
}

static int set_port(struct br_cli_url *u, const char *digits, size_t n, struct br_err *err)
{
    unsigned port = 0;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9' || n > 5)
            return refuse(err, "has a port that is no number from 1 to 65535");
        port = port * 10 + (unsigned)(digits[i] - '0');
    }
    if (n == 0 || port == 0 || port > 65535)
        return refuse(err, "has a port that is no number from 1 to 65535");
    u->port = (uint16_t)port;
    return 0;
}

/* HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT */
static int set_authority(struct br_cli_url *u, const char *s, size_t n, struct br_err *err)
{
    struct in6_addr v6;
    struct in_addr v4;
    bool bracket = n && *s == '[';
    const char *end = bracket ? memchr(s, ']', n) : memchr(s, ':', n);
    if (bracket && !end)
        return refuse(err, "has a '[' without its ']'");
    const char *host = s + bracket, *after = end ? end + bracket : s + n;
    size_t nhost = (size_t)((end ? end : s + n) - host);
    if (nhost == 0)
        return refuse(err, "names no host");
    if (nhost >= sizeof(u->host) - 2)
        return refuse(err, "names a host that is too long");
    memcpy(u->host, host, nhost);
    u->host[nhost] = '\0';
    if (bracket ? inet_pton(AF_INET6, u->host, &v6) != 1 : !is_name(u->host))
        return refuse(err, bracket ? "has no IPv6 address in its brackets"
                                   : "names a host that is neither a name nor an address");
    if (!bracket && looks_numeric(u->host) && inet_pton(AF_INET, u->host, &v4) != 1)
        return refuse(err, "names an address that is not written as four numbers");
    u->port = u->tls ? 443 : BR_CLI_REMOTE_PORT;
    if (after < s + n) {
        if (*after != ':')
            return refuse(err, "has something behind its ']'");
        int r = set_port(u, after + 1, (size_t)(s + n - after - 1), err);
        if (r < 0)
            return r;
    }
    snprintf(u->authority, sizeof(u->authority), bracket ? "[%s]:%u" : "%s:%u", u->host,
             (unsigned)u->port);
    return 0;
}

static int parse_net(const char *rest, struct br_cli_url *u, struct br_err *err)
{
    size_t n = strcspn(rest, "/");
    const char *path = rest + n;
    if (strchr(path, '\\') || memchr(rest, '\\', n))
        return refuse(err, "has a backslash in it");
    int r = set_authority(u, rest, n, err);
    if (r < 0)
        return r;
    if (strlen(path) >= sizeof(u->path))
        return refuse(err, "has a path that is too long");
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p >= 0x7f || strchr(" \"<>`{}|^", *p))
            return refuse(err, "has a character in its path that must be percent-encoded");
    snprintf(u->path, sizeof(u->path), "%s", path[0] && path[1] ? path : DEFAULT_PATH);
    if (!u->tls && !is_loopback(u))
        return br_err_set(err, BR_E_USAGE,
                          "'%s' is not this machine, and ws:// is not encrypted; nothing was "
                          "connected. Use wss://",
                          u->host);
    return 0;
}

int br_cli_url_parse(const char *text, struct br_cli_url *u, struct br_err *err)
{
    *u = (struct br_cli_url){.port = 0};
    if (!text || !*text)
        return default_socket(u, err);
    if (strlen(text) > BR_CLI_URL_MAX)
        return refuse(err, "is longer than 2048 bytes");
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return refuse(err, "has a control character in it");
    if (has_prefix(text, "ws+unix://"))
        return set_socket(u, text + strlen("ws+unix://"), err);
    if (has_prefix(text, "unix:")) {
        const char *path = text + strlen("unix:");
        return set_socket(u, strncmp(path, "///", 3) == 0 ? path + 2 : path, err);
    }
    u->tls = has_prefix(text, "wss://");
    if (!u->tls && !has_prefix(text, "ws://"))
        return refuse(err, "begins with none of ws://, wss:// and unix:");
    const char *rest = text + (u->tls ? 6 : 5);
    if (memchr(rest, '@', strcspn(rest, "/?#")))
        return refuse(err, "has a user or a password in it; a token comes from --token-file or "
                           "BRIDLE_TOKEN");
    if (strchr(rest, '#'))
        return refuse(err, "has a fragment ('#')");
    if (strchr(rest, '?'))
        return refuse(err, "has a query ('?'); a token comes from --token-file or BRIDLE_TOKEN");
    return parse_net(rest, u, err);
}
