/*
 * The sockets of a service: made here, or passed by systemd and looked at before they are believed.
 * Nothing is accepted here; that is done by the gateway, or by bridle-tls. Called by service.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "supervise/service.h"

#define BACKLOG 4096

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
    struct sockaddr_storage all;
};

void listener_url(const struct br_listener *l, char *dst, size_t cap)
{
    bool six = strchr(l->address, ':') != NULL;
    if (l->kind == BR_LISTENER_UNIX)
        snprintf(dst, cap, "unix:%s", l->address);
    else
        snprintf(dst, cap, "%s://%s%s%s:%u/acp", l->tls ? "wss" : "ws", six ? "[" : "", l->address,
                 six ? "]" : "", l->port);
}

static int refuse(const struct br_listener *l, const char *why, const char *next,
                  struct br_err *err)
{
    char port[8] = "";
    if (l->kind == BR_LISTENER_TCP)
        snprintf(port, sizeof(port), ":%u", l->port);
    return br_err_set(err, BR_E_INVALID_CONFIG,
                      "the service cannot listen at '%s%s': %s; it was not started%s%s", l->address,
                      port, why, next[0] ? ". " : "", next);
}

/* ---- of our own ---- */

static socklen_t tcp_address(const struct br_listener *l, union address *a)
{
    memset(a, 0, sizeof(*a));
    if (inet_pton(AF_INET, l->address, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons(l->port);
        return sizeof(a->v4);
    }
    if (inet_pton(AF_INET6, l->address, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons(l->port);
        return sizeof(a->v6);
    }
    return 0;
}

static int open_tcp(struct br_listener *l, struct br_err *err)
{
    union address a;
    int one = 1;
    socklen_t n = tcp_address(l, &a);
    BR_CLEANUP_FD int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
        return refuse(l, strerror(errno), "", err);
    if (a.any.sa_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0)
        return refuse(l, strerror(errno), "", err);
    if (bind(fd, &a.any, n) < 0 || listen(fd, BACKLOG) < 0)
        return refuse(l, strerror(errno),
                      errno == EADDRINUSE ? "'ss -ltnp' shows who has the port; another one is "
                                            "chosen with 'bridle serve --listen 127.0.0.1:0'"
                                          : "",
                      err);
    socklen_t size = sizeof(a);
    if (getsockname(fd, &a.any, &size) < 0)
        return refuse(l, strerror(errno), "", err);
    l->port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return br_steal_fd(&fd);
}

/* What is there may be of a service that has died, and of nobody else. */
static int check_stale(const struct br_listener *l, int dir, const char *base, struct br_err *err)
{
    struct stat st;
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : refuse(l, strerror(errno), "", err);
    if (!S_ISSOCK(st.st_mode))
        return refuse(l, "there is something that is no socket", "", err);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%.60s", dir, base);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 || errno != ECONNREFUSED)
        return refuse(l, "somebody listens there already", "", err);
    return 0;
}

/* Made under another name, so that whoever finds the socket finds somebody who listens. */
static int open_unix(struct br_listener *l, struct listening *k, struct br_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char dir[BR_NAME_MAX], fresh[80];
    struct stat st;
    snprintf(dir, sizeof(dir), "%s", l->address);
    char *slash = strrchr(dir, '/');
    const char *base = l->address + (slash - dir) + 1;
    if (strlen(base) == 0 || strlen(base) > 60)
        return refuse(l, "its name has 1 to 60 bytes", "", err);
    *(slash == dir ? slash + 1 : slash) = 0;
    if (mkdir(dir, 0755) == 0)
        (void)chmod(dir, 0755); /* whatever the umask is */
    else if (errno != EEXIST)
        return refuse(l, strerror(errno), "Make the directory", err);
    BR_CLEANUP_FD int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return refuse(l, strerror(errno), "", err);
    int r = check_stale(l, at, base, err);
    if (r < 0)
        return r;
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(fresh, sizeof(fresh), ".%.60s.new", base);
    snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", at, fresh);
    (void)unlinkat(at, fresh, 0);
    /* who connects is asked of the kernel, so everybody may */
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        fchmodat(at, fresh, 0666, 0) < 0 || listen(fd, BACKLOG) < 0 ||
        renameat(at, fresh, at, base) < 0 || fstatat(at, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return refuse(l, strerror(errno), "", err);
    snprintf(k->path, sizeof(k->path), "%s", l->address);
    k->dev = st.st_dev;
    k->ino = st.st_ino;
    return br_steal_fd(&fd);
}

void listeners_close(struct listening l[BR_LISTENERS_MAX])
{
    struct stat st;
    for (unsigned i = 0; i < BR_LISTENERS_MAX; i++) {
        if (l[i].fd >= 0 && l[i].path[0] && lstat(l[i].path, &st) == 0 && st.st_dev == l[i].dev &&
            st.st_ino == l[i].ino)
            (void)unlink(l[i].path);
        br_close(&l[i].fd);
        l[i].path[0] = 0;
    }
}

int listeners_open(struct br_service *s, struct listening l[BR_LISTENERS_MAX], struct br_err *err)
{
    for (uint32_t i = 0; i < s->nlisteners; i++) {
        l[i] = (struct listening){.fd = -1};
        int fd = s->listeners[i].kind == BR_LISTENER_UNIX ? open_unix(&s->listeners[i], &l[i], err)
                                                          : open_tcp(&s->listeners[i], err);
        if (fd < 0) {
            listeners_close(l);
            return fd;
        }
        l[i].fd = fd;
    }
    return 0;
}

/* ---- of systemd ---- */

static int odd(int fd, const char *why, struct br_err *err)
{
    return br_err_set(
        err, BR_E_INVALID_CONFIG,
        "the socket that was passed as descriptor %d %s; the service was not started. "
        "See ListenStream= of its socket unit",
        fd, why);
}

/* What it really is, whatever it was called. */
static int look_at(int fd, struct br_listener *l, struct br_err *err)
{
    union address a;
    socklen_t n = sizeof(a);
    int type = 0, on = 0;
    memset(l, 0, sizeof(*l));
    memset(&a, 0, sizeof(a));
    socklen_t size = sizeof(int);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
        return odd(fd, "is no socket", err);
    size = sizeof(int);
    if (type != SOCK_STREAM || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) < 0 || !on)
        return odd(fd, "is not a stream that listens", err);
    if (getsockname(fd, &a.any, &n) < 0)
        return odd(fd, "has no address", err);
    l->kind = a.any.sa_family == AF_UNIX ? BR_LISTENER_UNIX : BR_LISTENER_TCP;
    if (a.any.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a.v4.sin_addr, l->address, sizeof(l->address));
        l->loopback = (ntohl(a.v4.sin_addr.s_addr) >> 24) == 127;
        l->port = ntohs(a.v4.sin_port);
    } else if (a.any.sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &a.v6.sin6_addr, l->address, sizeof(l->address));
        l->loopback = IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
        l->port = ntohs(a.v6.sin6_port);
    } else if (a.any.sa_family == AF_UNIX && n > offsetof(struct sockaddr_un, sun_path) &&
               a.un.sun_path[0] == '/') {
        snprintf(l->address, sizeof(l->address), "%s", a.un.sun_path);
    } else {
        return odd(fd, "is neither of TCP nor a Unix socket with a path", err);
    }
    return 0;
}

static bool same(const struct br_listener *a, const struct br_listener *b)
{
    return a->kind == b->kind && strcmp(a->address, b->address) == 0 &&
           (a->kind == BR_LISTENER_UNIX || a->port == b->port);
}

/* bridle.lua says what each is for; without it the name of a descriptor says which speaks TLS. */
static int identify(const struct br_service *want, struct br_listener *l, const char *name, int fd,
                    bool used[BR_LISTENERS_MAX], struct br_err *err)
{
    if (want->nlisteners == 0) {
        l->tls = l->kind == BR_LISTENER_TCP && strcmp(name, "tls") == 0;
        return 0;
    }
    for (uint32_t i = 0; i < want->nlisteners; i++) {
        if (used[i] || !same(&want->listeners[i], l))
            continue;
        used[i] = true;
        l->tls = want->listeners[i].tls;
        l->plaintext = want->listeners[i].plaintext;
        return 0;
    }
    char url[BR_NAME_MAX + 32];
    listener_url(l, url, sizeof(url));
    return br_err_set(err, BR_E_INVALID_CONFIG,
                      "the socket that was passed as descriptor %d is at '%s', which 'listen' of "
                      "'service' does not have; the service was not started",
                      fd, url);
}

int listeners_adopt(struct br_service *want, unsigned nfds, const char *names, int first,
                    struct listening l[BR_LISTENERS_MAX], struct br_err *err)
{
    static struct br_listener got[BR_LISTENERS_MAX];
    bool used[BR_LISTENERS_MAX] = {false};
    const char *at = names;
    if (nfds > BR_LISTENERS_MAX || (want->nlisteners && want->nlisteners != nfds))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "%u sockets were passed, and the service has %u; it was not started. "
                          "Name each of them in 'listen' of 'service', or none",
                          nfds, want->nlisteners ? want->nlisteners : BR_LISTENERS_MAX);
    for (unsigned i = 0; i < nfds; i++) {
        char name[64] = "";
        int fd = first + (int)i;
        size_t n = strcspn(at, ":");
        if (*names && !*at)
            return br_err_set(err, BR_E_INVALID_CONFIG,
                              "LISTEN_FDNAMES names fewer than the %u sockets that were passed; "
                              "the service was not started",
                              nfds);
        snprintf(name, sizeof(name), "%.*s", (int)n, at);
        at += n + (at[n] == ':');
        int r = look_at(fd, &got[i], err);
        if (r == 0)
            r = identify(want, &got[i], name, fd, used, err);
        if (r < 0)
            return r;
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        l[i] = (struct listening){.fd = fd, .activated = true};
    }
    if (*at)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "LISTEN_FDNAMES names more than the %u sockets that were passed; the "
                          "service was not started",
                          nfds);
    memcpy(want->listeners, got, sizeof(got));
    want->nlisteners = nfds;
    return 0;
}
