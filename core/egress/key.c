/*
 * How the credential gets into this process: out of its environment, or through a descriptor that
 * bridled opened. Called by bridle-egress only. Wherever it stood on the way is wiped; no message
 * says anything of it but the name that the operator gave it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "egress/egress_priv.h"

static bool key_ok(const char *value, size_t n)
{
    bool ok = n >= BR_EGRESS_KEY_MIN && n <= BR_EGRESS_KEY_MAX;
    for (size_t i = 0; ok && i < n; i++)
        ok = value[i] > ' ' && value[i] <= '~';
    return ok;
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
    bool ok = key_ok(value, n);
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

static int key_whole(struct br_egress_key_pipe *p, const char *name, struct br_secret *key,
                     struct br_err *err)
{
    size_t n = p->n;
    if (n && p->bytes[n - 1] == '\n')
        n--;
    if (n && n < p->n && p->bytes[n - 1] == '\r')
        n--;
    bool ok = key_ok(p->bytes, n);
    int r = ok ? br_secret_set(key, p->bytes, n) : 0;
    explicit_bzero(p, sizeof(*p));
    if (!ok)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "what was read as the key '%s' is none: it must be one line of %u to %u "
                          "printable characters without spaces; nothing was sent",
                          name, BR_EGRESS_KEY_MIN, BR_EGRESS_KEY_MAX);
    if (r < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the provider's key");
    return 0;
}

int br_egress_key_read(int fd, struct br_egress_key_pipe *p, const char *name,
                       struct br_secret *key, struct br_err *err)
{
    while (p->n < sizeof(p->bytes)) {
        ssize_t r = read(fd, p->bytes + p->n, sizeof(p->bytes) - p->n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno == EAGAIN)
            return 1;
        if (r < 0) {
            explicit_bzero(p, sizeof(*p));
            return br_err_errno(err, BR_E_INVALID_CONFIG,
                                "the key '%s' could not be read; nothing was sent", name);
        }
        if (r == 0)
            break;
        p->n += (size_t)r;
    }
    return key_whole(p, name, key, err);
}
