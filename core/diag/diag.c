/*
 * Whose is the other end of a TCP connection that stays on this machine? The kernel says it to
 * whoever asks (sock_diag(7)), as `ss -e` does. What has to hold for the answer to mean anything:
 *
 * - Both addresses are loopback and the socket is of the network namespace that is asked: a socket
 *   of another one may have the same addresses.
 * - The other end is ESTABLISHED, and so is ours after the answer. As long as ours is, no FIN and
 *   no RST has come, so the port of the other end was not given to anybody else in between: who
 *   connects, sends, closes and lets another user's program get the same port is nobody here.
 * - The answer names exactly the pair of addresses and ports that was asked for.
 * - Somebody has it: a connection that nobody has accepted is said to be root's by many kernels,
 * and whoever listens there can take it later. It has no inode.
 */
#include <errno.h>
#include <netinet/in.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "diag/diag.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* of the kernel's enum, which is not in <linux/tcp.h> */
#define STATE_ESTABLISHED 1u
#define STATE_SYN_RECV 3u
#define STATE_LISTEN 10u
#define DIAG_WAIT_MS 1000 /* the kernel answers before sendto() returns */

struct ends {
    uint8_t family;
    uint16_t port, peer_port;      /* network order */
    struct in6_addr address, peer; /* or an IPv4 address in the first four bytes */
};

int br_diag_open(void)
{
    return socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

static bool same_namespace(int diag, int fd)
{
    uint64_t a = 0, b = 1;
    socklen_t na = sizeof(a), nb = sizeof(b);
    return getsockopt(diag, SOL_SOCKET, SO_NETNS_COOKIE, &a, &na) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &b, &nb) == 0 && a == b;
}

static bool established(int fd)
{
    struct tcp_info info = {.tcpi_state = 0};
    socklen_t n = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 &&
           info.tcpi_state == STATE_ESTABLISHED;
}

/* One address; IPv4 in IPv6 becomes IPv4, which is where the kernel looks for it. False: it is not
 * loopback. */
static bool end_of(const struct sockaddr_storage *ss, uint8_t *family, uint16_t *port,
                   struct in6_addr *address)
{
    memset(address, 0, sizeof(*address));
    if (ss->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
        *family = AF_INET;
        *port = in->sin_port;
        memcpy(address, &in->sin_addr, 4);
    } else if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)ss;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr);
        *family = mapped ? AF_INET : AF_INET6;
        *port = in->sin6_port;
        if (mapped)
            memcpy(address, (const uint8_t *)&in->sin6_addr + 12, 4);
        else
            *address = in->sin6_addr;
    } else {
        return false;
    }
    return *family == AF_INET ? *(const uint8_t *)address == 127 : IN6_IS_ADDR_LOOPBACK(address);
}

static bool ends_of(int fd, struct ends *e)
{
    struct sockaddr_storage own = {.ss_family = 0}, peer = {.ss_family = 0};
    socklen_t n = sizeof(own), m = sizeof(peer);
    uint8_t family;
    if (getsockname(fd, (struct sockaddr *)&own, &n) < 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &m) < 0)
        return false;
    return end_of(&own, &e->family, &e->port, &e->address) &&
           end_of(&peer, &family, &e->peer_port, &e->peer) && family == e->family;
}

static int ask(int diag, const struct ends *e, uint32_t seq)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } q = {.head = {.nlmsg_len = sizeof(q),
                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                    .nlmsg_flags = NLM_F_REQUEST,
                    .nlmsg_seq = seq},
           .body = {.sdiag_family = e->family,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_states = 1u << STATE_ESTABLISHED}};
    /* as the other end sees it */
    q.body.id.idiag_sport = e->peer_port;
    q.body.id.idiag_dport = e->port;
    memcpy(q.body.id.idiag_src, &e->peer, sizeof(e->peer));
    memcpy(q.body.id.idiag_dst, &e->address, sizeof(e->address));
    q.body.id.idiag_cookie[0] = q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    return sendto(diag, &q, sizeof(q), 0, (struct sockaddr *)&kernel, sizeof(kernel)) ==
                   (ssize_t)sizeof(q)
               ? 0
               : -1;
}

/* An IPv6 socket that speaks IPv4 is answered as IPv6. */
static bool same_address(uint8_t family, const __be32 found[4], const struct in6_addr *asked,
                         uint8_t asked_family)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *p = (const uint8_t *)found;
    if (family == AF_INET6 && asked_family == AF_INET)
        return memcmp(p, mapped, sizeof(mapped)) == 0 && memcmp(p + 12, asked, 4) == 0;
    return family == asked_family && memcmp(p, asked, family == AF_INET ? 4 : 16) == 0;
}

static bool is_what_was_asked(const struct inet_diag_msg *m, const struct ends *e)
{
    return m->id.idiag_sport == e->peer_port && m->id.idiag_dport == e->port &&
           m->idiag_uid != BR_DIAG_UID_OVERFLOW &&
           same_address(m->idiag_family, m->id.idiag_src, &e->peer, e->family) &&
           same_address(m->idiag_family, m->id.idiag_dst, &e->address, e->family);
}

static int answer(int diag, const struct ends *e, uint32_t seq, uid_t *uid)
{
    union {
        struct nlmsghdr head;
        char space[4096];
    } in;
    for (;;) {
        struct pollfd p = {.fd = diag, .events = POLLIN};
        struct sockaddr_nl from = {.nl_pid = 1};
        socklen_t nfrom = sizeof(from);
        if (poll(&p, 1, DIAG_WAIT_MS) <= 0)
            return -1;
        ssize_t n = recvfrom(diag, &in, sizeof(in), MSG_TRUNC, (struct sockaddr *)&from, &nfrom);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)sizeof(in.head) || n > (ssize_t)sizeof(in))
            return -1;
        if (from.nl_pid != 0 || in.head.nlmsg_seq != seq)
            continue; /* not the kernel, or not for this question */
        if (in.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
            in.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)) ||
            in.head.nlmsg_len > (size_t)n)
            return -1; /* NLMSG_ERROR: there is no such socket */
        const struct inet_diag_msg *m = NLMSG_DATA(&in.head);
        if (m->idiag_state == STATE_SYN_RECV || m->idiag_state == STATE_LISTEN)
            return 1;
        if (m->idiag_state != STATE_ESTABLISHED || !is_what_was_asked(m, e))
            return -1;
        if (!m->idiag_inode)
            return 1;
        *uid = m->idiag_uid;
        return 0;
    }
}

int br_diag_peer_uid(int diag, int fd, uid_t *uid)
{
    static uint32_t seq;
    struct ends e;
    uid_t found;
    if (diag < 0 || !same_namespace(diag, fd) || !ends_of(fd, &e))
        return -1;
    if (ask(diag, &e, ++seq) < 0)
        return -1;
    int r = answer(diag, &e, seq, &found);
    if (r < 0 || !established(fd))
        return -1;
    if (r == 0)
        *uid = found;
    return r;
}
