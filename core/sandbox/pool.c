/*
 * Boxes prepared ahead. The preparer is a copy of the launcher that does one thing: asked for a box
 * it makes one (br_box_make), as the launcher's child, and hands over its descriptors. It never
 * sees a plan, a workspace or a channel of bridled's. It dies with the launcher, and so do the
 * boxes that nobody has taken: each waits on a socket whose other end only the launcher has.
 *
 * Called by bridle-launch's loop. Trusts the preparer as itself; that it may be killed at any
 * moment is expected: the launcher knows the name of every cgroup and, through shared memory that
 * the kernel writes, the pid of every box that was asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/fds.h"
#include "sandbox/pool.h"
#include "sandbox/sys.h"

/* A box that is on its way is nearly always sooner there than one that is started now. */
#define PATIENCE_MS 100

enum slot_state { SLOT_FREE, SLOT_ASKED, SLOT_READY };

struct br_pool {
    pid_t pid; /* the preparer */
    int fd;
    char image[BR_IMAGE_ID_MAX]; /* what it makes boxes of, */
    unsigned image_made;         /* as in struct br_box */
    struct {
        enum slot_state state;
        uint64_t id;  /* of its cgroup */
        uint64_t age; /* the oldest is taken first */
        struct br_box *box;
    } slots[BR_SLOTS];
    uint64_t clock;
};

struct request {
    unsigned slot;
    uint64_t id;
};

/* The box as the preparer has it, whose descriptors come along: pidfd, ctl, mntns, those of struct
 * br_net if it has them, then the cgroups. */
struct reply {
    unsigned slot;
    int code;
    struct br_box box;
};
enum { OWN_FDS = 3, NET_FDS = 3, REPLY_FDS = OWN_FDS + NET_FDS + BR_CG_CTLS };

/* ---- the preparer ---- */

static const struct {
    const char *path;
    int type;
} homes[] = {
    {"/proc/self/ns/net", CLONE_NEWNET},
    {"/proc/self/ns/ipc", CLONE_NEWIPC},
    {"/proc/self/ns/uts", CLONE_NEWUTS},
};
#define HOMES BR_ARRAY_LEN(homes)

struct home {
    int fds[HOMES];
    uint64_t ids[BR_NS_COUNT];
};

static int send_reply(int fd, const struct reply *re)
{
    const struct br_box *b = &re->box;
    int fds[REPLY_FDS] = {b->pidfd, b->ctl, b->mntns};
    unsigned n = re->code < 0 ? 0 : OWN_FDS;
    if (n && b->net.ns >= 0) {
        fds[n++] = b->net.ns;
        fds[n++] = b->net.ipc;
        fds[n++] = b->net.file;
    }
    for (unsigned i = 0; n && i < b->cg.place->ndirs; i++)
        fds[n++] = b->cg.fds[i];
    return br_fds_send(fd, re, sizeof(*re), fds, n);
}

/* What it has left last is remembered as that: its home, whose numbers nobody gets while it lives.
 */
static void go_home(struct br_host *h, const struct home *home)
{
    h->fresh = false;
    for (unsigned i = 0; i < HOMES; i++)
        if (br_sys_setns(home->fds[i], homes[i].type) < 0)
            _exit(70);
    if (br_measure_ns("self", -1, BR_NS_NET, BR_NS_UTS + 1, h->last_ns, NULL) < 0)
        _exit(70);
    for (unsigned i = BR_NS_NET; i <= BR_NS_UTS; i++)
        if (h->last_ns[i] != home->ids[i])
            _exit(70); /* it would stay in those of a box */
}

/*
 * The namespaces in which it rests: its own, and of no box. It goes back to them from those of the
 * box that it has made, so that nobody but the box is in these, and makes those of the next box
 * only when that is asked for: what it does unasked would take a processor from the launch that
 * comes.
 */
static void make_home(struct br_host *h, struct home *home)
{
    h->nets.n = 0;    /* the launcher's */
    h->fresh = false; /* the launcher sits in those that it has now */
    if (br_host_refresh(h, NULL) < 0 ||
        br_measure_ns("self", -1, BR_NS_NET, BR_NS_UTS + 1, home->ids, NULL) < 0)
        _exit(70);
    for (unsigned i = 0; i < HOMES; i++)
        if ((home->fds[i] = open(homes[i].path, O_RDONLY | O_CLOEXEC)) < 0)
            _exit(70);
    h->fresh = false; /* no box is made in them */
}

static _Noreturn void preparer(struct br_host *h, int fd, pid_t launcher)
{
    int keep[BR_HOST_FDS + 1];
    struct home home;
    struct request rq;
    unsigned n = br_host_fds(h, keep);
    keep[n++] = fd;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != launcher)
        _exit(70);
    (void)prctl(PR_SET_NAME, "bridle-prepare");
    br_close_from(3, keep, n);
    make_home(h, &home);
    for (;;) {
        ssize_t k = recv(fd, &rq, sizeof(rq), 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k != sizeof(rq) || rq.slot >= BR_SLOTS)
            _exit(0);
        struct reply re = {.slot = rq.slot};
        re.code = br_box_make(h, &re.box, rq.slot, rq.id, true, NULL);
        go_home(h, &home);
        if (send_reply(fd, &re) < 0)
            _exit(0);
        br_close(&re.box.pidfd);
        br_close(&re.box.ctl);
        br_close(&re.box.mntns);
        br_net_close(&re.box.net);
        if (re.code == 0)
            br_cg_close(&re.box.cg);
    }
}

/* ---- the launcher ---- */

static int start(struct br_host *h, struct br_err *err)
{
    int pair[2];
    struct br_pool *p = calloc(1, sizeof(*p));
    pid_t self = getpid();
    if (!p)
        return br_err_set(err, BR_E_NOMEM, "no memory for prepared sandboxes");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        free(p);
        return br_err_errno(err, BR_E_FAILED, "no socket for the process that prepares sandboxes");
    }
    p->fd = pair[0];
    p->pid = br_sys_fork();
    if (p->pid == 0)
        preparer(h, pair[1], self);
    close(pair[1]);
    if (p->pid < 0) {
        close(pair[0]);
        free(p);
        return br_err_errno(err, BR_E_FAILED, "the process that prepares sandboxes did not start");
    }
    memcpy(p->image, h->image_id, sizeof(p->image));
    p->image_made = h->image.made;
    h->pool = p;
    return 1;
}

static unsigned count(const struct br_host *h, enum slot_state state)
{
    unsigned n = 0;
    for (unsigned i = 1; h->pool && i < BR_SLOTS; i++)
        n += h->pool->slots[i].state == state;
    return n;
}

unsigned br_pool_ready(const struct br_host *h)
{
    return count(h, SLOT_READY);
}

bool br_pool_stale(const struct br_host *h)
{
    return h->pool &&
           (strcmp(h->pool->image, h->image_id) != 0 || h->pool->image_made != h->image.made);
}

int br_pool_fd(const struct br_host *h)
{
    return h && h->pool ? h->pool->fd : -1;
}

int br_pool_fill(struct br_host *h, unsigned want, struct br_err *err)
{
    int r = h->pool ? 0 : start(h, err);
    if (r < 0)
        return r;
    struct br_pool *p = h->pool;
    unsigned have = count(h, SLOT_READY) + count(h, SLOT_ASKED);
    for (unsigned i = 1; i < BR_SLOTS && have < want; i++) {
        struct request rq = {.slot = i};
        if (p->slots[i].state != SLOT_FREE || h->taken[i])
            continue;
        br_random(&rq.id, sizeof(rq.id));
        h->shared[i].pid = 0;
        h->shared[i].expect = h->expect;
        if (send(p->fd, &rq, sizeof(rq), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(rq))
            break; /* it has ended: seen as end of file */
        p->slots[i].state = SLOT_ASKED;
        p->slots[i].id = rq.id;
        have++;
    }
    return r;
}

/* What the preparer may have made for this request, without telling. */
static void clean_slot(struct br_host *h, unsigned i)
{
    struct br_cg cg;
    pid_t pid = h->shared[i].pid;
    if (pid > 0) { /* our child, not waited for yet: the pid is still its */
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
            ;
    }
    br_cg_open(&h->place, &cg, h->pool->slots[i].id);
    (void)br_cg_remove(&cg, NULL);
    h->shared[i].pid = 0;
    h->pool->slots[i].state = SLOT_FREE;
}

static void take_in(struct br_host *h, struct reply *re, const int *fds, unsigned nfds)
{
    struct br_pool *p = h->pool;
    unsigned i = re->slot;
    /* the numbers in it are the preparer's */
    unsigned n = OWN_FDS + (re->box.net.ns >= 0 ? NET_FDS : 0);
    struct br_box *b = re->code == 0 && nfds == n + h->place.ndirs ? calloc(1, sizeof(*b)) : NULL;
    if (!b) {
        for (unsigned k = 0; k < nfds; k++)
            close(fds[k]);
        clean_slot(h, i);
        return;
    }
    *b = re->box;
    b->host = h;
    b->shared = &h->shared[i];
    b->pidfd = fds[0];
    b->ctl = fds[1];
    b->mntns = fds[2];
    b->net =
        n > OWN_FDS ? (struct br_net){.ns = fds[3], .ipc = fds[4], .file = fds[5]} : BR_NET_NONE;
    b->cg.place = &h->place;
    for (unsigned k = 0; k < h->place.ndirs; k++)
        b->cg.fds[k] = fds[n + k];
    p->slots[i].state = SLOT_READY;
    p->slots[i].age = p->clock++;
    p->slots[i].box = b;
}

int br_pool_receive(struct br_host *h)
{
    struct reply re;
    int fds[REPLY_FDS];
    unsigned nfds;
    for (;;) {
        ssize_t n =
            br_fds_receive(h->pool->fd, &re, sizeof(re), MSG_DONTWAIT, fds, REPLY_FDS, &nfds);
        if (n < 0 && errno == EAGAIN)
            return 0;
        bool good =
            n == sizeof(re) && re.slot < BR_SLOTS && h->pool->slots[re.slot].state == SLOT_ASKED;
        if (!good) {
            while (nfds > 0)
                br_close(&fds[--nfds]);
            (void)shutdown(h->pool->fd, SHUT_RDWR); /* seen by who watches it, too */
            return -BR_E_PEER_GONE;
        }
        take_in(h, &re, fds, nfds);
    }
}

static bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

void br_pool_settle(struct br_host *h)
{
    uint64_t end = br_now_us() + PATIENCE_MS * 1000, now;
    while (count(h, SLOT_ASKED) && (now = br_now_us()) < end)
        if (!readable(h->pool->fd, (int)((end - now) / 1000)) || br_pool_receive(h) < 0)
            return;
}

struct br_box *br_pool_take(struct br_host *h, const struct br_plan *plan)
{
    struct br_pool *p = h->pool;
    while (p) {
        unsigned oldest = 0;
        for (unsigned i = 1; i < BR_SLOTS; i++)
            if (p->slots[i].state == SLOT_READY &&
                (!oldest || p->slots[i].age < p->slots[oldest].age))
                oldest = i;
        if (!oldest) {
            if (!count(h, SLOT_ASKED) || !readable(p->fd, PATIENCE_MS) || br_pool_receive(h) < 0)
                return NULL;
            continue;
        }
        struct br_box *b = p->slots[oldest].box;
        p->slots[oldest].state = SLOT_FREE;
        p->slots[oldest].box = NULL;
        h->taken[oldest] = true;
        if (br_box_fits(b, plan))
            return b;
        br_box_free(&b);
    }
    return NULL;
}

void br_pool_stop(struct br_host *h)
{
    struct br_pool *p = h->pool;
    if (!p)
        return;
    (void)kill(p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    (void)br_pool_receive(h);
    for (unsigned i = 1; i < BR_SLOTS; i++) {
        if (p->slots[i].state == SLOT_READY)
            br_box_free(&p->slots[i].box);
        else if (p->slots[i].state == SLOT_ASKED)
            clean_slot(h, i);
    }
    br_close(&p->fd);
    h->pool = NULL;
    free(p);
}
