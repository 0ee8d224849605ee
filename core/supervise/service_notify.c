/*
 * What systemd wants to know of a service, and what it passes on: sd_notify(3), sd_listen_fds(3),
 * sd_watchdog_enabled(3), without libsystemd. The environment is whoever started this program's; it
 * is read once and taken away, so that no child takes it for its own. Called by service.c.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "supervise/service.h"

static uint64_t number(const char *name)
{
    const char *s = getenv(name);
    char *end;
    if (!s || !*s || strspn(s, "0123456789") != strlen(s) || strlen(s) > 18)
        return 0;
    return strtoull(s, &end, 10);
}

/* Without a pid in the environment it is for everybody; with one, for that process alone. */
static bool is_mine(const char *name)
{
    return !getenv(name) || number(name) == (uint64_t)getpid();
}

void notify_init(struct notify *n)
{
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                        "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES",
                                        "LISTEN_PIDFDID"};
    const char *socket = getenv("NOTIFY_SOCKET"), *fds = getenv("LISTEN_FDNAMES");
    memset(n, 0, sizeof(*n));
    if (socket && (socket[0] == '/' || socket[0] == '@') && strlen(socket) < sizeof(n->address))
        snprintf(n->address, sizeof(n->address), "%s", socket);
    if (is_mine("WATCHDOG_PID"))
        n->watchdog_us = number("WATCHDOG_USEC");
    if (getenv("LISTEN_PID") && is_mine("LISTEN_PID")) { /* here it must be said */
        uint64_t count = number("LISTEN_FDS");
        n->nfds = count > 1024 ? 1024 : (unsigned)count;
        if (fds && strlen(fds) < sizeof(n->names))
            snprintf(n->names, sizeof(n->names), "%s", fds);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++)
        (void)unsetenv(names[i]);
}

void notify_send(const struct notify *n, const char *fmt, ...)
{
    char text[1024];
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    va_list ap;
    if (!n->address[0])
        return;
    va_start(ap, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    size_t k = strlen(n->address);
    memcpy(sa.sun_path, n->address, k);
    if (sa.sun_path[0] == '@')
        sa.sun_path[0] = 0;
    if (fd < 0 || len <= 0 || (size_t)len >= sizeof(text) ||
        sendto(fd, text, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&sa,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + k)) < 0)
        br_log(BR_LOG_WARN, "the service manager could not be told '%.40s'", text);
}
