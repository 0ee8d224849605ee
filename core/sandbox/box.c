/*
 * One sandbox, from the launcher's side: make pid 1, hand it the plan, measure what became of it,
 * and afterwards verify that nothing is left. pid 1 acts only on its init channel, whose other end
 * nobody uses before the measurement was found equal to the plan. Called by bridle-launch. The plan
 * comes from bridled and is checked again here; the workspace and what lies in it are hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/attach.h"
#include "sandbox/box_priv.h"
#include "sandbox/bwrap.h"
#include "sandbox/fds.h"
#include "sandbox/reopen.h"
#include "sandbox/rootfs.h"
#include "sandbox/sources.h"
#include "sandbox/sys.h"

/* Setting up takes about a millisecond; a host that needs this long has other problems. */
#define SETUP_DEADLINE_S 20
/* With a workspace that is copied into its lease. */
#define COPY_DEADLINE_S 300

/* net, ipc and uts: br_host_refresh(); cgroup: in the child, after it was put into its cgroup */
#define BOX_NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)

static int clone_child(struct br_box *b, int root, bool sibling, struct br_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return br_err_errno(err, BR_E_FAILED, "no socket for a sandbox");
    struct timeval deadline = {.tv_sec = SETUP_DEADLINE_S};
    (void)setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
    int into = br_cg_v2_fd(&b->cg), pidfd = -1;
    bool pidns = !br_weak(PIDNS) && b->shared->expect.backend == BR_BACKEND_NATIVE;
    struct clone_args args = {
        .flags = (BOX_NAMESPACES & ~(pidns ? 0 : (uint64_t)CLONE_NEWPID)) | CLONE_PIDFD |
                 CLONE_PARENT_SETTID | (sibling ? CLONE_PARENT : 0) |
                 (into >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .parent_tid = (uint64_t)(uintptr_t)&b->shared->pid,
        .exit_signal = sibling ? 0 : SIGCHLD,
        .cgroup = into >= 0 ? (uint64_t)into : 0,
    };
    struct br_uid_before before;
    long pid = br_uid_enter(b->host, &before);
    if (pid == 0)
        pid = br_sys_clone3(&args, sizeof(args));
    if (pid == 0)
        br_child_run(b->host, b->shared, pair[1], root);
    br_uid_leave(&before);
    int saved = errno;
    br_close(&pair[1]);
    if (pid < 0) {
        br_close(&pair[0]);
        errno = saved;
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the namespaces of a sandbox could not be made; nothing was started. "
                            "See 'bridle doctor'");
    }
    b->child = b->pid = (pid_t)pid;
    b->pidfd = pidfd;
    b->ctl = pair[0];
    br_net_hold(&b->net); /* this process is in it as well */
    b->host->fresh = false;
    b->host->boxes++;
    return 0;
}

int br_box_child_failed(const struct br_box *b, struct br_err *err)
{
    const struct br_err *said = &b->shared->err;
    bool silent = said->code <= BR_OK || said->code >= BR_CODE_COUNT_;
    if (silent && b->shared->copying)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the process that copies the workspace into its lease was killed, as by "
                          "the sandbox's memory limit of %llu bytes, which a lease in memory is "
                          "charged to; nothing was started. Use a profile with more memory",
                          (unsigned long long)b->shared->limits.memory_bytes);
    if (silent)
        return br_err_set(err, BR_E_INTERNAL,
                          "the process that sets up the sandbox died; nothing was started");
    if (err) {
        *err = *said;
        err->text[sizeof(err->text) - 1] = 0;
    }
    return -(int)said->code;
}

/* A box that is half made. Its parent (and with `sibling` that is somebody else) reaps it. */
static void discard(struct br_box *b, bool sibling)
{
    br_close(&b->ctl); /* it ends by this alone */
    if (!sibling) {
        (void)br_box_kill(b);
        while (waitpid(b->child, NULL, __WALL) < 0 && errno == EINTR)
            ;
        (void)br_cg_remove(&b->cg, NULL);
    }
    br_cg_close(&b->cg);
    br_close(&b->mntns);
    br_net_close(&b->net);
    br_close(&b->pidfd);
}

/* The child learns where its cgroups are and goes into them; that it did is measured later. */
static int send_place(struct br_box *b, struct br_err *err)
{
    int ways[BR_CG_CTLS];
    int n = br_cg_open_ways(&b->cg, ways, err);
    if (n < 0)
        return n;
    int r = br_fds_send(b->ctl, (char[]){BR_WORD_PLACED}, 1, ways, (unsigned)n);
    while (n > 0)
        br_close(&ways[--n]);
    return r == 0 ? 0 : br_box_child_failed(b, err);
}

/* The child gets a place, and its identity if the plan has no say in it. */
static int place(struct br_box *b, struct br_err *err)
{
    const struct br_expect *e = &b->shared->expect;
    /* another plan changes what differs; where the host refuses one, the plan's own may still be
     * possible */
    if (!br_weak(LIMITS))
        (void)br_cg_limit(&b->cg, &e->limits, NULL);
    int r = br_measure_birth(b, err);
    if (r == 0)
        r = br_mntns_hold(b, err);
    /* when the host is out of memory, the workload goes first */
    if (r == 0 && br_sys_idmap(b->pid, "oom_score_adj", BR_BOX_OOM_SCORE) < 0)
        r = br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                         "the sandbox's 'oom_score_adj' could not be raised; nothing was started");
    if (r == 0 && br_who_expect(&b->who, b->host, e)) {
        r = br_who_map(&b->who, b->pid, &b->measured, err);
        b->shared->mapped = r == 0;
    }
    if (r == 0)
        r = send_place(b, err);
    /* while the child goes on */
    if (r == 0 && b->shared->mapped)
        r = br_measure_limits(b, err);
    b->read = r == 0 && b->shared->mapped;
    br_cg_close_files(&b->cg); /* another process may take the box over */
    return r;
}

int br_box_make(struct br_host *h, struct br_box *b, unsigned slot, uint64_t id, bool sibling,
                struct br_err *err)
{
    *b = (struct br_box){.host = h,
                         .slot = slot,
                         .shared = &h->shared[slot],
                         .pidfd = -1,
                         .ctl = -1,
                         .mntns = -1,
                         .net = BR_NET_NONE};
    br_leases_init(&b->leases);
    br_cg_init(&h->place, &b->cg);
    b->shared->pid = 0;
    b->shared->nallowed = 0;
    b->shared->disks = 0;
    b->shared->copying = false;
    b->shared->mapped = false;
    b->shared->err.code = BR_OK;
    int r = br_cg_require(&h->place, err);
    if (r == 0 && !h->fresh)
        r = br_host_refresh(h, err);
    bool born_inside = br_cg_has_v2(&h->place);
    if (r == 0 && born_inside)
        r = br_cg_make(&h->place, &b->cg, id, err);
    if (r < 0)
        return r;
    memcpy(b->image, h->image_id, sizeof(b->image));
    b->image_made = h->image.made;
    BR_CLEANUP_FD int root = br_rootfs_clone(br_host_root(h), err);
    r = root < 0 ? root : br_mask_remember(h, br_host_root(h), err);
    if (r == 0)
        r = clone_child(b, root, sibling, err);
    if (r < 0) {
        (void)br_cg_remove(&b->cg, NULL);
        return r;
    }
    /* while the child makes its root */
    r = born_inside ? 0 : br_cg_make(&h->place, &b->cg, id, err);
    if (r == 0)
        r = place(b, err);
    if (r < 0)
        discard(b, sibling);
    return r;
}

int br_box_prepare(struct br_host *h, struct br_box **out, struct br_err *err)
{
    uint64_t id;
    struct br_box *b = calloc(1, sizeof(*b));
    *out = NULL;
    if (!b)
        return br_err_set(err, BR_E_NOMEM, "no memory for a sandbox");
    br_random(&id, sizeof(id));
    h->shared[0].expect = h->expect;
    int r = br_box_make(h, b, 0, id, false, err);
    if (r < 0) {
        free(b);
        return r;
    }
    *out = b;
    if (h->uid == 0)
        (void)br_idmap_make(&h->idmap, NULL); /* a failure is found again when it is needed */
    return 0;
}

bool br_box_fits(const struct br_box *b, const struct br_plan *plan)
{
    struct pollfd ended = {.fd = b->pidfd, .events = POLLIN};
    bool other = b->host->uid == 0 && b->shared->expect.identity != plan->identity;
    other |= b->shared->expect.backend != plan->backend;
    return !other && br_image_fits(b, plan) && poll(&ended, 1, 0) == 0;
}

/* ---- talking to the child ---- */

/* Wait until the child has made its mounts and can make no more, or for the end of file that a good
 * exec causes. */
static int await_child(struct br_box *b, bool exec, struct br_err *err)
{
    char word = 0;
    ssize_t n;
    do {
        n = read(b->ctl, &word, 1); /* SO_RCVTIMEO bounds it */
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return br_err_set(err, BR_E_TIMEOUT,
                          "setting up the sandbox took more than %d seconds; nothing was started",
                          b->shared->disks & 1u << BR_DISK_WORKSPACE ? COPY_DEADLINE_S
                                                                     : SETUP_DEADLINE_S);
    bool done = exec ? n == 0 : n == 1 && word == BR_WORD_MOUNTED;
    done = done && b->shared->err.code == BR_OK && !b->shared->copying;
    return done ? 0 : br_box_child_failed(b, err);
}

static int send_plan(struct br_box *b, const int *fds, unsigned nfds, struct br_err *err)
{
    return br_fds_send(b->ctl, (char[]){BR_WORD_PLAN}, 1, fds, nfds) == 0
               ? 0
               : br_box_child_failed(b, err);
}

/* ---- the plan ---- */

/* The workspace in this mount namespace: an O_PATH descriptor, and who owns it. */
static int open_workspace(int ws_fd, struct stat *st, struct br_err *err)
{
    if (fstat(ws_fd, st) < 0 || !S_ISDIR(st->st_mode))
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the workspace is not a directory; nothing was started");
    return br_reopen_here(ws_fd, O_PATH | O_DIRECTORY, "the workspace", err);
}

struct source_clone {
    struct br_box *box;
    uint64_t set; /* MOUNT_ATTR_* of every mount of the workspace */
};

/* Nothing that is taken from the source is cleared: a read-only mount stays read-only. */
static int clone_source(void *ctx, int fd, const char *name, struct br_err *err)
{
    const struct source_clone *c = ctx;
    return br_who_clone_mount(c->box->host, &c->box->who, fd, c->set, 0, name, err);
}

/* The workspace, and what is writable in it. */
static int open_mounts(struct br_box *b, const struct br_plan *plan, int ws, int *fds, unsigned *n,
                       struct br_err *err)
{
    struct source_clone c = {.box = b, .set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (plan->flags & BR_PLAN_WORKSPACE_NOEXEC)
        c.set |= MOUNT_ATTR_NOEXEC;
    int r = br_sources_open(plan, ws, b->shared, clone_source, &c, fds, n, err);
    if (r < 0)
        return r;
    r = br_who_clone_mount(b->host, &b->who, ws, c.set | MOUNT_ATTR_RDONLY, AT_RECURSIVE,
                           "the workspace", err);
    fds[BR_BOX_FD_WORKSPACE] = r;
    return r < 0 ? r : 0;
}

/* Make the leases and add their mounts to what is handed over. */
static int lease_disks(struct br_box *b, const struct br_plan *plan, int *fds, unsigned *n,
                       struct br_err *err)
{
    struct timeval copying = {.tv_sec = COPY_DEADLINE_S};
    int r = br_leases_open(&b->leases, b->host, plan, &b->who, err);
    int k = r < 0 ? r : br_leases_give(&b->leases, b->shared, fds + *n);
    if (r == 0 && k < 0)
        r = br_err_errno(err, BR_E_FAILED, "no descriptor for a lease; nothing was started");
    *n += k > 0 ? (unsigned)k : 0;
    if (r == 0 && plan->workspace == BR_WORKSPACE_LEASE)
        (void)setsockopt(b->ctl, SOL_SOCKET, SO_RCVTIMEO, &copying, sizeof(copying));
    return r;
}

/* Everything up to the moment where the child has the plan. */
static int hand_over(struct br_box *b, const struct br_plan *plan, int ws_fd, int chan_fd,
                     struct br_err *err)
{
    struct stat st;
    struct br_box_shared *s = b->shared;
    int fds[BR_BOX_FDS_MAX] = {[BR_BOX_FD_CHAN] = chan_fd, [BR_BOX_FD_WORKSPACE] = -1};
    unsigned n = BR_BOX_FD_ALLOWED;
    int r = br_plan_check(plan, err);
    if (r < 0)
        return br_err_wrap(err, "nothing was started");
    if (!br_check(br_image_fits(b, plan)))
        return br_err_set(err, BR_E_INTERNAL, "a sandbox was prepared with another image");
    BR_CLEANUP_FD int ws = open_workspace(ws_fd, &st, err);
    if (ws < 0)
        return ws;
    b->workspace_id = (struct br_mask_id){st.st_ino, major(st.st_dev), minor(st.st_dev)};
    s->limits = plan->limits;
    s->flags = plan->flags;
    s->workspace = plan->workspace;
    r = plan->backend == BR_BACKEND_BWRAP ? br_bwrap_possible(b->host, plan, err) : 0;
    if (r == 0)
        r = br_landlock_require(b->host, plan, err);
    if (r == 0)
        r = br_who_plan(&b->who, b->host, plan, &st, err);
    if (r == 0)
        r = open_mounts(b, plan, ws, fds, &n, err);
    if (r == 0 && !s->mapped)
        r = br_who_map(&b->who, b->pid, &b->measured, err);
    if (r == 0 && !br_weak(LIMITS) && !br_cg_is(&b->cg, &plan->limits)) {
        b->read = false;
        r = br_cg_limit(&b->cg, &plan->limits, err);
    }
    if (r == 0)
        r = lease_disks(b, plan, fds, &n, err);
    if (r == 0)
        r = send_plan(b, fds, n, err);
    for (unsigned i = BR_BOX_FD_WORKSPACE; i < n; i++)
        br_close(&fds[i]);
    return r;
}

int br_box_start(struct br_box *b, const struct br_plan *plan, int ws_fd, int chan_fd,
                 struct br_box_info *info, struct br_err *err)
{
    *info = (struct br_box_info){.receipt = BR_BUF_INIT(BR_EVENT_MAX / 2)};
    if (!br_check(!b->started))
        return br_err_set(err, BR_E_INTERNAL, "a sandbox was started twice");
    b->started = true;
    b->started_us = br_now_us();
    br_buf_init(&b->mounts_text, BR_EVENT_MAX / 2);
    br_id_make(b->name, "box");
    int r = hand_over(b, plan, ws_fd, chan_fd, err);
    /* while the child mounts, confines itself and executes */
    if (r == 0 && !b->read)
        r = br_measure_limits(b, err);
    if (r == 0)
        r = plan->backend == BR_BACKEND_BWRAP ? br_bwrap_await(b, err) : await_child(b, false, err);
    if (r == 0) /* it cannot mount any more, and still has to execute */
        r = br_measure_mounts(b, err);
    if (r == 0)
        r = br_measure_place(b, err);
    if (r == 0)
        r = br_measure_settled(b, err);
    if (r == 0)
        r = br_measure_check_settled(b, plan, err);
    if (r == 0)
        br_mounts_put(&b->mounts_text, &b->measured.mounts);
    if (r == 0 && plan->backend != BR_BACKEND_BWRAP)
        r = await_child(b, true, err);
    if (r == 0)
        r = br_measure_final(b, err);
    if (r == 0)
        r = br_leases_measure(&b->leases, b->pid, plan->backend == BR_BACKEND_BWRAP, err);
    if (r == 0)
        br_leases_settle(&b->leases, b->shared);
    if (r == 0)
        r = br_measure_check(b, plan, err);
    if (r == 0)
        r = br_receipt_write(&info->receipt, b, plan, err);
    if (r < 0)
        return r;
    memcpy(info->name, b->name, sizeof(info->name));
    memcpy(info->image, b->image, sizeof(info->image));
    info->mounts = b->measured.mounts.n;
    return 0;
}

/* ---- the end ---- */

int br_box_pidfd(const struct br_box *b)
{
    return b->pidfd;
}

int br_box_kill(struct br_box *b)
{
    if (b->pidfd < 0)
        return 0;
    return (int)syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
}

void br_box_finish(struct br_box **bp, struct br_box_end *end)
{
    struct br_box *b = *bp;
    struct br_err err = {.code = BR_OK};
    int status = 0;
    pid_t r;
    *bp = NULL;
    *end = (struct br_box_end){.verified = false};
    br_close(&b->ctl);
    /* pid 1 becomes waitable only after every process of its pid namespace has been reaped */
    if (b->child != b->pid)
        br_bwrap_end(b);
    do {
        r = waitpid(b->child, &status, __WALL);
    } while (r < 0 && errno == EINTR);
    if (b->child != b->pid)
        status = br_bwrap_status(status);
    end->wait_status = status;
    end->duration_us = b->started ? br_now_us() - b->started_us : 0;
    if (r != b->child)
        snprintf(end->detail, sizeof(end->detail), "pid 1 of the sandbox could not be waited for");
    if (br_cg_remove(&b->cg, &err) < 0)
        snprintf(end->detail, sizeof(end->detail), "%.255s", err.text);
    if (br_mntns_release(b, &err) < 0)
        snprintf(end->detail, sizeof(end->detail), "%.255s", err.text);
    br_nets_end(&b->host->nets, &b->net);
    if (br_leases_close(&b->leases, &err) < 0)
        snprintf(end->detail, sizeof(end->detail), "%.255s", err.text);
    end->verified = end->detail[0] == 0;
    br_close(&b->pidfd);
    b->host->taken[b->slot] = false;
    br_mounts_free(&b->measured.mounts);
    br_buf_free(&b->mounts_text);
    free(b);
}

void br_box_free(struct br_box **b)
{
    struct br_box_end end;
    if (!*b)
        return;
    (void)br_box_kill(*b);
    br_box_finish(b, &end);
}
