/*
 * A datagram of a hostile peer, header and all, against a table with every kind of row and against
 * every decoder of core/wire. The first byte says how many descriptors come along and whether they
 * are good memfds. Whatever happens, no descriptor stays open.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/types.h"
#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_plan(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    (void)err;
    struct br_plan p;
    br_plan_get(&m->rd, &p);
    int r = br_rd_done(&m->rd);
    if (r == 0)
        (void)br_limits_check(&p.limits, err);
    br_plan_free(&p);
    return r;
}

static int on_call(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    struct br_grant_ref g;
    struct br_init_call call;
    br_grant_ref_get(&m->rd, &g);
    int r = br_init_call_get(m, &call, err);
    br_init_call_free(&call);
    return r;
}

static int on_probes(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    (void)err;
    struct br_probe p[4];
    struct br_lease l;
    static struct br_headers h;
    br_lease_get(&m->rd, &l);
    br_headers_get(&m->rd, &h);
    br_require(br_probes_get(&m->rd, p, 4) <= 4);
    return br_rd_done(&m->rd);
}

static int on_blob(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    BR_CLEANUP_BUF struct br_buf b = {0};
    char name[16];
    br_rd_str(&m->rd, name, sizeof(name));
    int r = br_msg_blob(m, 64, &b, err);
    br_require(b.len <= 64 && (r == 0 || r == -BR_E_PEER_PROTOCOL));
    int fd = br_msg_take_fd(m); /* a handler may take what is left */
    br_close(&fd);
    return r;
}

static const struct br_msg_rule rules[] = {
    {BR_MSG_SUP_LAUNCH, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_plan},
    {BR_MSG_INIT_CALL, BR_PERMIT, 64, BR_MSG_MAX, 0, 3, on_call},
    {BR_MSG_CTL_PROBED, BR_PERMIT | BR_ONCE, 0, 4096, 0, 0, on_probes},
    {BR_MSG_SECRET, BR_PERMIT, 1, 100, 0, 2, on_blob},
    {BR_MSG_CTL_SHOW, 0, 0, 0, 0, 0, on_plan},
};

static int one_fd(unsigned kind)
{
    return kind ? br_memfd_sealed("fuzz", "0123456789", 10)
                : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void send_datagram(int fd, unsigned how, const uint8_t *p, size_t n)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * 16)];
    } ctl = {.space = {0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    int fds[16];
    unsigned nfds = how & 15;
    for (unsigned i = 0; i < nfds; i++)
        fds[i] = one_fd(how & 16);
    if (nfds) {
        mh.msg_control = ctl.space;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * nfds);
    }
    (void)!sendmsg(fd, &mh, MSG_NOSIGNAL);
    for (unsigned i = 0; i < nfds; i++)
        br_close(&fds[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int lowest = -1;
    int fds[2];
    struct br_chan c;
    if (size < 1 || size > BR_MSG_MAX + 64)
        return 0;
    br_require(br_chan_pair(fds) == 0);
    br_chan_init(&c, fds[0], "peer", rules, BR_ARRAY_LEN(rules), NULL);
    send_datagram(fds[1], data[0], data + 1, size - 1);
    send_datagram(fds[1], data[0], data + 1, size - 1); /* again: ONCE, and a reused buffer */
    for (int i = 0; i < 2; i++) {
        struct br_err err = {.code = BR_OK};
        int r = br_chan_dispatch(&c, &err);
        br_require(r <= 0 && r > -BR_CODE_COUNT_);
        br_require(memchr(err.text, 0, sizeof(err.text)) != NULL);
    }
    br_chan_close(&c);
    br_close(&fds[1]);
    int probe = dup(0); /* the lowest free number is the same after every input */
    br_require(lowest < 0 || probe == lowest);
    lowest = probe;
    br_close(&probe);
    return 0;
}
