/*
 * What a matcher may be asked about. Nothing is normalised here: a subject that has two spellings
 * is refused, because the rule was written for one of them. Subjects come from models.
 */
#include <string.h>

#include "policy/policy_priv.h"

bool br_path_valid(const char *s, size_t n)
{
    if (n == 0 || memchr(s, 0, n))
        return false;
    if (n == 1 && s[0] == '.') /* the workspace itself: its one spelling */
        return true;
    size_t start = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && s[i] != '/')
            continue;
        size_t len = i - start;
        if (len == 0 || (len <= 2 && s[start] == '.' && s[i - 1] == '.'))
            return false;
        start = i + 1;
    }
    return true;
}

void br_host_split(const char *s, size_t n, size_t *host_len, const char **port, size_t *port_len)
{
    const char *colon = memrchr(s, ':', n);
    bool bracketed = n > 0 && s[0] == '[';
    *host_len = n;
    *port = NULL;
    *port_len = 0;
    if (!colon)
        return;
    size_t at = (size_t)(colon - s);
    /* more than one colon and no brackets: an IPv6 address without port */
    if (bracketed ? (at == 0 || s[at - 1] != ']') : memchr(s, ':', n) != colon)
        return;
    *host_len = at;
    *port = colon + 1;
    *port_len = n - at - 1;
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool port_valid(const char *s, size_t n)
{
    unsigned v = 0;
    if (n == 0 || n > 5 || s[0] == '0')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (unsigned)(s[i] - '0');
    }
    return v <= 65535;
}

/* An IPv6 address, as far as characters go. */
static bool address_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(s[i] == ':' || s[i] == '.' || (s[i] >= '0' && s[i] <= '9') ||
              (s[i] >= 'a' && s[i] <= 'f') || (s[i] >= 'A' && s[i] <= 'F')))
            return false;
    return n >= 2;
}

bool br_host_valid(const char *s, size_t n)
{
    const char *port;
    size_t port_len, host_len;
    if (n == 0)
        return false;
    br_host_split(s, n, &host_len, &port, &port_len);
    if (host_len == 0 || host_len > HOST_MAX || (port && !port_valid(port, port_len)))
        return false;
    if (s[0] == '[')
        return s[host_len - 1] == ']' && host_len > 2 && address_valid(s + 1, host_len - 2);
    if (memchr(s, ':', host_len))
        return address_valid(s, host_len);
    for (size_t i = 0, label = 0; i <= host_len; i++) {
        if (i < host_len && s[i] != '.') {
            if (!is_alnum(s[i]) && s[i] != '-' && s[i] != '_')
                return false;
            label++;
            continue;
        }
        if (label == 0) /* "a..b", ".a", and "a.", which resolves like "a" */
            return false;
        label = 0;
    }
    return true;
}
