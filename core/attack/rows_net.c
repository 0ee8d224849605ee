/*
 * Attacks on the network, on sockets and on a broker. Data, and the sockets of the host.
 */
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack/attack.h"

static int listen_in_workspace(struct stage *s, const char *name)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", s->ws, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 8) < 0 ||
        chmod(sa.sun_path, 0777) < 0 || lchown(sa.sun_path, s->owner, s->owner) < 0) {
        br_close(&fd);
        return -1;
    }
    br_close(&s->unix_fd); /* takes its place */
    s->unix_fd = fd;
    return 0;
}

static int setup_socket(struct stage *s)
{
    return listen_in_workspace(s, "socket");
}

static int setup_socket_allowed(struct stage *s)
{
    return listen_in_workspace(s, "out/socket");
}

static enum outcome socket_later(struct stage *s)
{
    struct exec_result r;
    if (stage_launch(s, -1) != 0 || listen_in_workspace(s, "late") < 0 ||
        stage_attack(s, s->attack->inside, 5000, &r) < 0)
        return OUT_UNDONE;
    enum outcome o = stage_judge(s, &r);
    return stage_end(s) < 0 ? OUT_UNDONE : o;
}

const struct attack attack_rows_net[] = {
    {"net.loopback", CLASS_NETWORK, "a port of the host on 127.0.0.1", "design", "connected",
     "host-loopback", BR_WEAK_NETNS},
    {"net.dns", CLASS_NETWORK, "a resolver of the host", "DNS as a way out", "it answers", "dns",
     BR_WEAK_NETNS},
    {"net.outside", CLASS_NETWORK, "an interface or a route beyond loopback",
     "cloud metadata at 169.254.169.254", "there is one", "outside", BR_WEAK_NETNS},
    {"net.raw", CLASS_NETWORK, "a raw socket", "CVE-2020-13401", "it is made", "raw", 0,
     A_OPERATION, .control = "made in a network namespace in which the caller is root"},
    {"net.listing", CLASS_NETWORK, "the list of the host's sockets", "containerd CVE-2020-15257",
     "/proc/net/unix shows one", "abstract-marker", BR_WEAK_NETNS},
    /* ---- sockets ---- */
    {"socket.abstract", CLASS_SOCKETS, "an abstract socket of the host",
     "containerd CVE-2020-15257", "connected", "host-abstract", BR_WEAK_NETNS | BR_WEAK_LANDLOCK},
    {"socket.path", CLASS_SOCKETS, "a socket of the host by its path", "docker.sock", "connected",
     "host-socket", BR_WEAK_HOSTROOT},
    {"socket.workspace", CLASS_SOCKETS, "a socket in the workspace that is there at the start",
     "docker.sock, ssh-agent", "connected", "workspace-socket path=/workspace/socket",
     BR_WEAK_PATHS, A_REFUSED, .setup = setup_socket},
    {"socket.allowed", CLASS_SOCKETS, "the same below an allowed path", "docker.sock, ssh-agent",
     "connected", "workspace-socket path=/workspace/out/socket", BR_WEAK_PATHS, A_REFUSED,
     .setup = setup_socket_allowed},
    {"socket.later", CLASS_SOCKETS, "a socket that the host makes in the workspace later",
     "docker.sock, ssh-agent", "connected", "late-socket", 0, A_EXPECTED | A_OPERATION,
     .run = socket_later, .control = "none is needed: it gets through"},
    {"socket.own", CLASS_SOCKETS, "a socket of the sandbox for programs of the host", "design",
     "it lies below an allowed path", "own-socket", 0, A_EXPECTED | A_OPERATION,
     .control = "none is needed: it gets through"},
    /* ---- broker: this sandbox has none ---- */
    {"broker.path", CLASS_BROKER, "a broker's socket by any path", "design",
     "there is a socket file", "broker-paths", BR_WEAK_HOSTROOT},
    {"broker.abstract", CLASS_BROKER, "a broker's socket by an abstract name",
     "containerd CVE-2020-15257", "connected", "host-abstract", BR_WEAK_NETNS | BR_WEAK_LANDLOCK},
    {"broker.descriptor", CLASS_BROKER, "a broker's socket among the descriptors", "design",
     "one of them is a socket", "socket-descriptor", BR_WEAK_FDS | BR_WEAK_INIT},
    {NULL},
};
