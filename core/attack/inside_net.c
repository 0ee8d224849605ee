/*
 * Attacks from inside on the network, on sockets and on a broker. Part of bridle-attack.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack/inside.h"

static int connect_in(int type, const char *addr, long port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, addr, &sa.sin_addr);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
        return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

static int host_loopback(void)
{
    return connect_in(SOCK_STREAM, "127.0.0.1", in_number("tcp")) >= 0
               ? in_through("connected to a port of the host")
               : in_blocked("%s", strerror(errno));
}

/* A question to the resolver that the host uses (played on its loopback). */
static int dns(void)
{
    static const char query[] = "\x12\x34\x01\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1";
    char answer[64];
    int fd = connect_in(SOCK_DGRAM, "127.0.0.1", in_number("udp"));
    if (fd < 0)
        return in_blocked("%s", strerror(errno));
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (send(fd, query, sizeof(query) - 1, 0) < 0 || poll(&p, 1, 1000) != 1 ||
        recv(fd, answer, sizeof(answer), 0) <= 0)
        return in_blocked("no answer: %s", strerror(errno));
    return in_through("a resolver of the host answered");
}

/* Anything beyond loopback: an interface, a route. */
static int outside(void)
{
    static const char *const addresses[] = {"192.0.2.1", "8.8.8.8",         "169.254.169.254",
                                            "10.0.0.1",  "255.255.255.255", "224.0.0.1"};
    struct if_nameindex *names = if_nameindex();
    for (struct if_nameindex *i = names; i && i->if_index; i++)
        if (strcmp(i->if_name, "lo") != 0)
            return in_through("there is an interface '%s'", i->if_name);
    for (unsigned i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
        if (connect_in(SOCK_DGRAM, addresses[i], 53) >= 0)
            return in_through("there is a route to %s", addresses[i]);
    int e = errno;
    const char *dev = in_read("/proc/net/dev");
    unsigned lines = 0;
    for (const char *p = dev; p && (p = strchr(p, '\n')); p++)
        lines++;
    const char *lo = dev ? strstr(dev, "lo:") : NULL;
    if (lo && strtoull(lo + 3, NULL, 10) != 0)
        return in_through("loopback has carried %llu bytes of others", strtoull(lo + 3, NULL, 10));
    if (lines > 3)
        return in_through("/proc/net/dev has %u interfaces", lines - 2);
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET6, "2001:db8::1", &sa.sin6_addr);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
        return in_through("there is an IPv6 route");
    return in_blocked("%s", strerror(e));
}

/* Needs CAP_NET_RAW; with it packets can be forged. */
static int raw(void)
{
    if (in_operation && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return in_failed("%s", strerror(errno));
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    return fd >= 0 ? in_through("a raw socket was made") : in_blocked("%s", strerror(errno));
}

static int connect_un(const char *path, bool abstract)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    if (n + 2 > sizeof(sa.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(sa.sun_path + abstract, path, n + 1);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    for (unsigned i = 0; i < 3; i++) {
        int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, len) == 0)
            return fd;
        int e = errno;
        close(fd);
        errno = e;
        if (e != EPROTOTYPE)
            break;
    }
    return -1;
}

static int host_abstract(void)
{
    return connect_un(in_need("abstract"), true) >= 0
               ? in_through("connected to an abstract socket of the host")
               : in_blocked("%s", strerror(errno));
}

/* A socket of the host by its path, whatever root it can be reached through. */
static int host_socket(void)
{
    static const char *const roots[] = {"", "/run", "/proc/1/root"};
    const char *name = in_need("unix");
    char path[4096];
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", roots[i], name);
        if (connect_un(path, false) >= 0)
            return in_through("connected to the host's '%s'", path);
    }
    return in_blocked("%s", strerror(errno));
}

static int workspace_socket(void)
{
    return connect_un(in_need("path"), false) >= 0
               ? in_through("connected to a socket of the host in the workspace")
               : in_blocked("%s", strerror(errno));
}

static int late_socket(void)
{
    return connect_un("/workspace/late", false) >= 0
               ? in_through("connected to a socket that the host made later")
               : in_blocked("%s", strerror(errno));
}

static int own_socket(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX, .sun_path = "/workspace/out/own"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0
               ? in_through("a socket of the sandbox lies below an allowed path")
               : in_blocked("%s", strerror(errno));
}

/* ---- broker ---- */

/* Every socket file in the whole tree; a sandbox without a broker has none. */
static int find_socket(const char *dir, unsigned depth, char *found, size_t cap)
{
    DIR *d = opendir(dir);
    int hit = 0;
    for (struct dirent *e; d && !hit && (e = readdir(d));) {
        char path[2048];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (lstat(path, &st) < 0 || strcmp(e->d_name, "usr") == 0 ||
            strcmp(e->d_name, "proc") == 0 || strcmp(e->d_name, "sys") == 0)
            continue;
        if (S_ISSOCK(st.st_mode)) {
            snprintf(found, cap, "%s", path);
            hit = 1;
        } else if (S_ISDIR(st.st_mode) && depth > 0) {
            hit = find_socket(path, depth - 1, found, cap);
        }
    }
    if (d)
        closedir(d);
    return hit;
}

static int broker_paths(void)
{
    static const char *const dirs[] = {"/broker", "/run", "/tmp",  "/home",
                                       "/var",    "/dev", "/state"};
    static const char *const names[] = {"/broker/provider.sock", "/run/bridle/provider.sock",
                                        "/tmp/provider.sock", "/run/bridle.sock"};
    char found[2048];
    for (unsigned i = 0; i < 4; i++)
        if (connect_un(names[i], false) >= 0)
            return in_through("connected to '%s'", names[i]);
    for (unsigned i = 0; i < 7; i++)
        if (find_socket(dirs[i], 3, found, sizeof(found)))
            return in_through("there is a socket '%s'", found);
    return in_blocked("no socket anywhere");
}

/* ---- ipc ---- */

static int host_shm(void)
{
    int id = shmget((key_t)in_number("shmkey"), 0, 0);
    return id >= 0 ? in_through("shared memory of the host was found")
                   : in_blocked("%s", strerror(errno));
}

static int host_queue(void)
{
    int id = msgget((key_t)in_number("shmkey"), 0);
    return id >= 0 ? in_through("a message queue of the host was found")
                   : in_blocked("%s", strerror(errno));
}

const struct in_attack in_net[] = {
    {"host-loopback", host_loopback},
    {"dns", dns},
    {"outside", outside},
    {"raw", raw},
    {"host-abstract", host_abstract},
    {"host-socket", host_socket},
    {"workspace-socket", workspace_socket},
    {"late-socket", late_socket},
    {"own-socket", own_socket},
    {"broker-paths", broker_paths},
    {"host-shm", host_shm},
    {"host-queue", host_queue},
    {NULL, NULL},
};
