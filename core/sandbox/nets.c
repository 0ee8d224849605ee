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
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/box_priv.h"

/* The first belongs to what the kernel makes first and takes apart last. Where the user namespace
 * is not the host's, Linux has it from 6.4 on. */
static const char *const files[] = {"/proc/sys/net/core/somaxconn",
                                    "/proc/sys/net/ipv4/ip_forward"};
#define GONE_DEADLINE_US 500000u
/* Descriptors that a launcher needs for other things, and one box here. */
#define FDS_ELSE 192u
#define FDS_EACH 3u

void br_nets_init(struct br_nets *all)
{
    struct rlimit l;
    rlim_t room = getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur > FDS_ELSE
                      ? (l.rlim_cur - FDS_ELSE) / FDS_EACH
                      : 0;
    all->n = 0;
    all->max = room < BR_NETS_MAX ? (unsigned)room : BR_NETS_MAX;
}

void br_net_hold(struct br_net *n)
{
    n->ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    n->ipc = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
    n->file = -1;
    for (unsigned i = 0; n->file < 0 && i < BR_ARRAY_LEN(files); i++)
        n->file = open(files[i], O_RDONLY | O_CLOEXEC);
    if (n->ns < 0 || n->ipc < 0 || n->file < 0)
        br_net_close(n);
}

void br_net_close(struct br_net *n)
{
    br_close(&n->ns);
    br_close(&n->ipc);
    br_close(&n->file);
}

void br_nets_end(struct br_nets *all, struct br_net *n)
{
    if (n->ns >= 0 && all->n < all->max)
        all->ended[all->n++] = *n;
    else
        br_net_close(n);
    *n = BR_NET_NONE;
}

static bool exists(const struct br_net *n)
{
    char text[32];
    return pread(n->file, text, sizeof(text), 0) >= 0;
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
