/*
 * Descriptors in a message: how the launcher hands the plan's to a child, and how the process that
 * prepares sandboxes hands over what it made. Called by box.c, child.c
 * and pool.c. Both ends are our own code; channels between programs are core/wire's. Uses no memory
 * allocation.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/fds.h"

union control {
    struct cmsghdr align;
    char space[CMSG_SPACE(sizeof(int) * BR_BOX_FDS_MAX)];
};

int br_fds_send(int sock, const void *p, size_t n, const int *fds, unsigned nfds)
{
    union control ctl;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    br_require(nfds <= BR_BOX_FDS_MAX);
    if (nfds) {
        memset(&ctl, 0, sizeof(ctl));
        mh.msg_control = ctl.space;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * nfds);
    }
    return sendmsg(sock, &mh, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

ssize_t br_fds_receive(int sock, void *p, size_t n, int flags, int *fds, unsigned max,
                       unsigned *nfds)
{
    union control ctl;
    struct iovec iov = {.iov_base = p, .iov_len = n};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.space};
    ssize_t r;
    *nfds = 0;
    br_require(max <= BR_BOX_FDS_MAX);
    do {
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * max);
        r = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | flags);
    } while (r < 0 && errno == EINTR);
    struct cmsghdr *h = r < 0 ? NULL : CMSG_FIRSTHDR(&mh);
    if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
        return r;
    unsigned got = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    /* the room for an odd number holds one more; what had no room at all the kernel has closed */
    if (got > max || mh.msg_flags & MSG_CTRUNC) {
        const int *extra = (const int *)(const void *)CMSG_DATA(h);
        for (unsigned i = 0; i < got; i++)
            (void)close(extra[i]);
        errno = EMSGSIZE;
        return -1;
    }
    memcpy(fds, CMSG_DATA(h), sizeof(int) * got);
    *nfds = got;
    return r;
}
