/*
 * Network and ipc namespaces of boxes that have ended. The kernel takes them apart some time after
 * their last reference is gone: all that have gathered together, in 30 to 60 ms of waiting and of
 * work that does not give the processor away, and a launch that comes meanwhile waits behind it. So
 * they are kept while one box follows the other, and given up when the launcher is idle; or, when
 * there are many, all at once, and then the launcher waits until they are gone. Empty ones cost the
 * kernel 180 KiB a box.
 *
 * That a network namespace is gone, which takes longest, is seen from a file of its /proc/sys that
 * was opened in it: it reads no more. Called by box.c, and by the launcher's loop when there is
 * time. Trusts the kernel.
 */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/box_priv.h"

/* It belongs to what the kernel makes first and takes apart last. */
#define NET_FILE "/proc/sys/net/core/somaxconn"
#define GONE_DEADLINE_US 500000u

void br_net_hold(struct br_net *n)
{
    n->ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    n->ipc = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
    n->file = open(NET_FILE, O_RDONLY | O_CLOEXEC);
}

void br_net_close(struct br_net *n)
{
    br_close(&n->ns);
    br_close(&n->ipc);
    br_close(&n->file);
}

void br_nets_end(struct br_nets *all, struct br_net *n)
{
    if (n->ns >= 0 && all->n < BR_NETS_MAX)
        all->ended[all->n++] = *n;
    else
        br_net_close(n);
    *n = BR_NET_NONE;
}

static bool exists(const struct br_net *n)
{
    char text[32];
    return n->file >= 0 && pread(n->file, text, sizeof(text), 0) >= 0;
}

unsigned br_nets_remove(struct br_nets *all, bool wait)
{
    uint64_t deadline = br_now_us() + GONE_DEADLINE_US;
    unsigned left = 0;
    for (unsigned i = 0; i < all->n; i++) {
        br_close(&all->ended[i].ns);
        br_close(&all->ended[i].ipc);
    }
    for (unsigned i = all->n; wait && i > 0; i--) {
        struct timespec ms = {.tv_nsec = 1000000};
        while (exists(&all->ended[i - 1]) && br_now_us() < deadline)
            (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL);
        left += exists(&all->ended[i - 1]);
    }
    for (unsigned i = 0; i < all->n; i++)
        br_close(&all->ended[i].file);
    all->n = 0;
    return left;
}
