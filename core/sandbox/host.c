/*
 * What one launcher prepares once: its own mount namespace (an ordinary user: in a user namespace
 * of its own, where it is itself), the read-only root, the filter, the place for cgroups, and the
 * sweep of what dead launchers left. Called by bridle-launch at its start.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/facts.h"
#include "sandbox/filter.h"
#include "sandbox/pool.h"
#include "sandbox/reopen.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

static int userns_failed(struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "user namespaces are not available to ordinary users; nothing was started. "
                        "As root: sysctl -w user.max_user_namespaces=15000; on Debian and Ubuntu "
                        "also kernel.unprivileged_userns_clone=1, "
                        "kernel.apparmor_restrict_unprivileged_userns=0");
}

/* An ordinary user gets CAP_SYS_ADMIN over its own mounts, and over nothing else. */
static int own_user_namespace(uid_t uid, gid_t gid, struct br_err *err)
{
    char map[64];
    if (br_sys_unshare(CLONE_NEWUSER) < 0)
        return userns_failed(err);
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
    if (br_sys_idmap(getpid(), "uid_map", map) < 0 ||
        br_sys_idmap(getpid(), "setgroups", "deny") < 0)
        return userns_failed(err);
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
    return br_sys_idmap(getpid(), "gid_map", map) < 0 ? userns_failed(err) : 0;
}

/* Test suites talk to themselves over 127.0.0.1. */
static int loopback_up(void)
{
    struct ifreq ifr = {.ifr_name = "lo"};
    BR_CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifr.ifr_flags = IFF_UP;
    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &ifr);
}

/*
 * What follows an unshare changes mounts, the host name and the network: it must not happen to the
 * host's, nor in what the last sandbox has used. 0, or -1 and errno.
 */
static int has_left(struct br_host *h, const char *ns)
{
    for (unsigned i = 0; i < BR_NS_COUNT; i++) {
        uint64_t now[BR_NS_COUNT];
        if (strcmp(br_ns_names[i], ns) != 0)
            continue;
        if (br_measure_ns("self", -1, i, i + 1, now, NULL) < 0)
            return -1;
        bool same = now[i] == h->own_ns[i] || now[i] == h->last_ns[i];
        h->last_ns[i] = now[i];
        errno = ECANCELED;
        return same ? -1 : 0;
    }
    return -1;
}

static void find_view(struct br_host *h)
{
    char text[4096];
    (void)br_read_text(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));
    const struct br_cg_dir *d = br_cg_dir_of(&h->place, BR_CG_MEMORY);
    h->cg_view = !d                          ? BR_CG_VIEW_NONE
                 : d->v2                     ? BR_CG_VIEW_V2
                 : strstr(text, ":memory:/") ? BR_CG_VIEW_V1
                                             : BR_CG_VIEW_NONE;
}

/* Every /proc of a kernel has the same. */
static void find_masked(struct br_host *h)
{
    char path[64];
    const char *name;
    for (unsigned i = 0; (name = br_mask_path(i)); i++) {
        snprintf(path, sizeof(path), "/%s", name);
        h->masked |= (uint64_t)(access(path, F_OK) == 0) << i;
    }
}

/* Would mounts that are made here appear in another namespace? */
static bool still_shared(void)
{
    struct br_mounts m;
    bool shared = br_mounts_read(&m, "self", NULL) < 0;
    for (unsigned i = 0; i < m.n; i++)
        shared |= (m.list[i].flags & BR_MNT_SHARED) != 0;
    br_mounts_free(&m);
    errno = ECANCELED;
    return shared;
}

/* Where no more can be made, those of ended boxes are in the way. */
static int unshare_next(struct br_host *h, int what)
{
    int r = br_sys_unshare(what);
    if (r == 0 || errno != ENOSPC || h->nets.n == 0)
        return r;
    (void)br_nets_remove(&h->nets, true);
    return br_sys_unshare(what);
}

int br_host_refresh(struct br_host *h, struct br_err *err)
{
    if (h->fresh)
        return 0;
    int what =
        CLONE_NEWUTS | (br_weak(NETNS) ? 0 : CLONE_NEWNET) | (br_weak(IPCNS) ? 0 : CLONE_NEWIPC);
    if (unshare_next(h, what) < 0 || has_left(h, "uts") < 0 ||
        (!br_weak(NETNS) && has_left(h, "net") < 0) || (!br_weak(IPCNS) && has_left(h, "ipc") < 0))
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "network, ipc and uts namespaces could not be made; nothing was "
                            "started. As root: sysctl -w user.max_net_namespaces=15000");
    struct utsname u = {.nodename = ""};
    if (br_sys_sethostname(BR_BOX_HOSTNAME) < 0 || (!br_weak(NETNS) && loopback_up() < 0) ||
        uname(&u) < 0 || strcmp(u.nodename, BR_BOX_HOSTNAME) != 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the sandbox's host name or loopback could not be set; nothing was "
                            "started. As root this needs CAP_NET_ADMIN");
    h->fresh = true;
    return 0;
}

unsigned br_host_fds(const struct br_host *h, int *fds)
{
    unsigned n = 0;
    fds[n++] = h->rootfs;
    if (h->image.root >= 0)
        fds[n++] = h->image.root;
    for (unsigned i = 0; i < h->place.ndirs; i++)
        fds[n++] = h->place.dirs[i].fd;
    return n;
}

void br_host_expect(struct br_host *h, const struct br_plan *plan)
{
    h->expect = (struct br_expect){.backend = plan->backend,
                                   .identity = plan->identity,
                                   .flags = plan->flags,
                                   .limits = plan->limits};
}

void br_host_tidy(struct br_host *h, bool idle)
{
    bool full = h->nets.max > 0 && h->nets.n == h->nets.max;
    if (!idle && !full)
        return;
    /* it must not sit in one itself, as it does in that of a box that it has made */
    bool wait = !idle && !br_weak(NETNS) && br_host_refresh(h, NULL) == 0;
    unsigned left = br_nets_remove(&h->nets, wait);
    if (left > 0)
        br_log(BR_LOG_WARN,
               "network namespaces of sandboxes that have ended still exist: %u of %u. A process "
               "outside holds them",
               left, h->nets.max);
}

void br_host_idle(struct br_host *h)
{
    br_close(&h->trial);
    if (h->boxes > 1)
        (void)br_host_refresh(h, NULL); /* a failure is found again by br_box_prepare() */
}

/* The child must not inherit that its caller ignores or blocks something. */
static void default_signals(void)
{
    sigset_t none;
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * Every sandbox is born with a copy of the launcher's mounts, and drops it. The prepared root need
 * not be among them, nor what the host has below /sys, whose files the launcher has open. A kernel
 * that clones only what is attached (before 6.15) keeps the root where it is; an ordinary user may
 * not take the host's mounts apart.
 */
static void forget_mounts(struct br_host *h)
{
    struct br_mounts m;
    if (br_weak(SHARED)) /* it would be taken apart with the other */
        return;
    BR_CLEANUP_FD int loose = br_rootfs_clone(h->rootfs, NULL);
    BR_CLEANUP_FD int again = loose < 0 ? -1 : br_rootfs_clone(loose, NULL);
    if (again < 0 || br_sys_umount(BR_ROOTFS_POINT, MNT_DETACH) < 0)
        return;
    br_close(&h->rootfs);
    h->rootfs = br_steal_fd(&loose);
    if (br_mounts_read(&m, "self", NULL) == 0)
        for (unsigned i = 0; i < m.n; i++)
            if (strncmp(m.list[i].target, BR_ROOTFS_POINT "/", sizeof(BR_ROOTFS_POINT)) == 0)
                (void)br_sys_umount(m.list[i].target, MNT_DETACH | UMOUNT_NOFOLLOW);
    br_mounts_free(&m);
}

static int open_steps(struct br_host *h, struct br_err *err)
{
    struct br_cg_env env = {
        .self_cgroup = "/proc/self/cgroup", .mountinfo = "/proc/self/mountinfo", .uid = h->uid};
    int r = br_filter_build(&h->filter, err);
    if (r == 0)
        r = br_measure_ns("self", -1, 0, BR_NS_COUNT, h->own_ns, err);
    if (r < 0)
        return r;
    if ((r = br_who_leave_keyring(err)) < 0)
        return r;
    default_signals();
    umask(022);
    br_filter_hash(&h->filter, h->filter_sha256);
    if ((r = br_measure_self(h, err)) < 0)
        return r;
    find_masked(h);
    h->landlock_abi = br_landlock_abi();
    /* before the mount namespace: the root covers /sys */
    br_cg_find(&h->place, &env);
    find_view(h);
    h->swept = br_cg_sweep(&h->place);
    br_facts_gather(&h->facts, h);
    if (h->uid != 0 && (r = own_user_namespace(h->uid, h->gid, err)) < 0)
        return r;
    if (br_sys_unshare(CLONE_NEWNS) < 0 || has_left(h, "mnt") < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "a mount namespace could not be made; nothing was started. Run as an "
                            "ordinary user, or as root with CAP_SYS_ADMIN");
    /* mounts that the host makes later still arrive; nothing of ours goes out */
    if (br_sys_mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 || still_shared())
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING, "mounts could not be made private");
    if (br_weak(SHARED)) /* with copies of its own, not with the host */
        (void)br_sys_mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL);
    BR_CLEANUP_FD int init = br_reopen_here(h->cfg.init_fd, O_PATH, "bridle-init", err);
    if (init < 0)
        return init;
    h->image.at = open(BR_STAGE_POINT, O_PATH | O_DIRECTORY | O_CLOEXEC); /* -1: no images */
    h->rootfs = br_rootfs_build(init, err);
    if (h->rootfs < 0)
        return h->rootfs;
    if ((r = br_measure_root(&h->root_mounts, BR_ROOTFS_POINT, false, err)) < 0)
        return r;
    forget_mounts(h);
    h->shared = mmap(NULL, BR_SLOTS * sizeof(*h->shared), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h->shared == MAP_FAILED) {
        h->shared = NULL;
        return br_err_set(err, BR_E_NOMEM, "no memory for a launch plan");
    }
    return h->cfg.pool ? br_host_refresh(h, err) : 0;
}

int br_host_open(struct br_host **out, const struct br_host_config *cfg, struct br_err *err)
{
    struct br_host *h = calloc(1, sizeof(*h));
    if (!h)
        return br_err_set(err, BR_E_NOMEM, "no memory for a sandbox");
    h->cfg = *cfg;
    struct br_plan usual;
    br_plan_default(&usual);
    br_host_expect(h, &usual);
    h->rootfs = h->state_fd = h->uid_taken = -1;
    br_nets_init(&h->nets);
    br_image_root_init(&h->image);
    snprintf(h->image_id, sizeof(h->image_id), "%s", BR_IMAGE_HOST);
    h->trial = -1;
    br_buf_init(&h->facts, BR_MSG_MAX);
    h->idmap = (struct br_idmap){.ns = -1, .uid_map = -1, .gid_map = -1};
    h->lease_map = h->idmap;
    h->uid = geteuid();
    h->gid = getegid();
    br_uid_pick(h); /* before it leaves the host's network namespace */
    int r = open_steps(h, err);
    if (r < 0)
        br_host_close(&h);
    *out = h;
    return r;
}

void br_host_close(struct br_host **hp)
{
    struct br_host *h = *hp;
    if (!h)
        return;
    *hp = NULL;
    br_pool_stop(h);
    (void)br_nets_remove(&h->nets, false);
    br_cg_place_close(&h->place);
    br_close(&h->trial);
    br_idmap_close(&h->idmap);
    br_idmap_close(&h->lease_map);
    br_image_root_close(&h->image);
    br_close(&h->image.at);
    br_close(&h->rootfs);
    br_close(&h->state_fd);
    br_close(&h->uid_taken);
    br_mounts_free(&h->root_mounts);
    free(h->filter.filter);
    br_buf_free(&h->facts);
    if (h->shared)
        munmap(h->shared, BR_SLOTS * sizeof(*h->shared));
    free(h);
}

void br_host_filter_json(const struct br_host *h, struct br_buf *out)
{
    br_buf_printf(out, "{\"tableVersion\":%u,\"sha256\":\"%s\",\"instructions\":%u}",
                  BR_FILTER_VERSION, h->filter_sha256, h->filter.len);
}

unsigned br_host_swept(const struct br_host *h)
{
    return h->swept;
}

unsigned br_host_sweep_leases(const struct br_host *h)
{
    return br_leases_sweep(h);
}
