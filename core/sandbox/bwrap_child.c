/*
 * What runs between clone3 and the exec of bubblewrap: a child in a user and a mount namespace of
 * the launcher's (so that the launcher keeps its authority over what bubblewrap makes in them),
 * already in the cgroup of the sandbox. It puts the prepared root, and in it the mounts of the
 * plan, where bubblewrap is told to take them from, and becomes the sandbox's user.
 *
 * Called by br_child_run() only. Trusts the launcher, whose copy it is. Uses no memory allocation.
 * Any failure is written to the shared area and ends the child.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/attach.h"
#include "sandbox/bwrap.h"
#include "sandbox/child_priv.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

/* Where descriptors are kept out of the way of those that bubblewrap gets. */
#define HIGH_FD 100

static int prepare(int root, struct br_err *err)
{
    (void)prctl(PR_SET_NAME, "bridle-box");
    STEP(br_sys_setsid(), "setsid");
    STEP(br_sys_move_mount(root, "", AT_FDCWD, BR_ROOTFS_POINT, MOVE_MOUNT_F_EMPTY_PATH),
         "attach the root");
    return br_child_null_stdio(err);
}

/* The mounts of the plan, made as a native sandbox makes them: with the prepared root as root. */
static int mount_plan(const struct br_host *h, struct br_box_shared *s, const int *fds,
                      struct br_err *err)
{
    BR_CLEANUP_FD int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    STEP(host, "open /");
    STEP(br_sys_unshare(CLONE_NEWCGROUP), "cgroup namespace"); /* which has its cgroup as root */
    STEP(chroot(BR_ROOTFS_POINT), "enter the root");
    STEP(br_sys_chdir("/"), "enter the root");
    int r = br_child_mount_cgroup(h, err);
    if (r == 0)
        r = br_child_mount_own(&s->limits, s->flags, 0, err);
    if (r == 0)
        r = br_child_mount_plan(h, s, fds, err);
    if (r < 0)
        return r;
    /* back: who sits in a chroot may not make user namespaces */
    STEP(br_sys_fchdir(host), "leave the root");
    STEP(chroot("."), "leave the root");
    return 0;
}

/* The filter of native sandboxes, as bubblewrap takes it. */
static int filter_file(const struct br_host *h, struct br_err *err)
{
    size_t n = h->filter.len * sizeof(*h->filter.filter);
    BR_CLEANUP_FD int fd = memfd_create("bridle-filter", MFD_CLOEXEC);
    STEP(fd, "a file for the system call filter");
    int r = br_write_all(fd, h->filter.filter, n);
    if (r < 0) {
        errno = -r;
        return br_child_fail(err, "a file for the system call filter");
    }
    STEP(lseek(fd, 0, SEEK_SET), "a file for the system call filter");
    return br_steal_fd(&fd);
}

/* 0, 1, 2, the init channel as 3, and the two that bubblewrap closes itself. */
static int arrange_fds(int *ctl, int filter, int chan, struct br_err *err)
{
    int from[] = {chan, *ctl, filter}, to[] = {3, BR_BWRAP_FD_INFO, BR_BWRAP_FD_FILTER};
    for (unsigned i = 0; i < BR_ARRAY_LEN(from); i++) {
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, HIGH_FD);
        STEP(from[i], "descriptors");
    }
    for (unsigned i = 0; i < BR_ARRAY_LEN(from); i++)
        STEP(br_sys_dup2(from[i], to[i]), "descriptors");
    *ctl = BR_BWRAP_FD_INFO;
    STEP(br_sys_close_range(BR_BWRAP_FD_FILTER + 1, ~0u), "close descriptors");
    return 0;
}

static int settle(const struct br_host *h, int ctl, struct br_err *err)
{
    char byte;
    int r = br_child_become(h, err);
    if (r < 0)
        return r;
    /* after the identity changed, which clears it; bubblewrap does the same for pid 1 */
    STEP(br_sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0), "die with the launcher");
    if (recv(ctl, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
        _exit(0); /* it died before that */
    /* a set-user-id bubblewrap runs as what it is then */
    STEP(br_sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0), "no_new_privs");
    return 0;
}

int br_bwrap_child(const struct br_host *h, struct br_box_shared *s, int ctl, int root)
{
    static struct br_bwrap_argv argv; /* of this process alone */
    static char *const none[] = {NULL};
    struct br_err *err = &s->err;
    int fds[BR_BOX_FDS_MAX];
    br_close_from(3, (int[]){ctl, root}, 2);
    int r = prepare(root, err);
    if (r == 0)
        r = br_child_take_place(ctl, err);
    if (r == 0)
        r = br_child_receive(ctl, s, fds, err); /* the ids are mapped by now in any case */
    if (r == 0)
        r = settle(h, ctl, err);
    if (r == 0)
        r = mount_plan(h, s, fds, err);
    if (r == 0)
        r = br_bwrap_argv(&argv, h->masked, s->flags, err);
    int filter = r < 0 ? r : filter_file(h, err);
    r = filter < 0 ? filter : arrange_fds(&ctl, filter, fds[BR_BOX_FD_CHAN], err);
    if (r == 0)
        r = br_child_limits(s, err);
    if (r < 0)
        return r;
    (void)br_sys_exec(BR_BWRAP_PROGRAM, (char *const *)(uintptr_t)argv.v, none);
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "'" BR_BWRAP_PROGRAM "' could not be executed; nothing was started. "
                        "apt-get install bubblewrap");
}
