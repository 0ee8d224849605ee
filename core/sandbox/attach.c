/*
 * The workspace in the sandbox: the read-only clone, the writable clones of the allowed paths over
 * it, and what is covered again (nested `.git` and the way to them, sockets, FIFOs). Called in the
 * child, before it gives up its capabilities. Trusts the launcher and its descriptors; the
 * workspace is hostile, so that every mount point is opened beneath it, compared by identity, and
 * mounted on by descriptor.
 *
 * Uses no memory allocation.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/attach.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

static int replaced(const char *rel, struct br_err *err)
{
    return br_err_set(err, BR_E_INVALID_ALLOWED_PATH,
                      "the path '%.512s' was replaced while the sandbox was being made; nothing "
                      "was started. Start again when nothing else changes the workspace",
                      rel);
}

/* The mount point, if it still is what the launcher saw. */
static int open_point(int ws, const char *rel, uint64_t ino, uint32_t major, uint32_t minor)
{
    struct statx st;
    BR_CLEANUP_FD int at = br_open_beneath(ws, rel, O_PATH | O_NOFOLLOW, 0);
    if (at < 0)
        return -1;
    if (statx(at, "", AT_EMPTY_PATH, STATX_INO, &st) < 0 || st.stx_ino != ino ||
        st.stx_dev_major != major || st.stx_dev_minor != minor) {
        errno = ESTALE;
        return -1;
    }
    return br_steal_fd(&at);
}

static int attach(int tree, int at, const char *rel, struct br_err *err)
{
    if (br_sys_move_mount(tree, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0)
        return 0;
    /* removed after it was opened: the kernel mounts on nothing that has no name */
    if (errno == ENOENT || errno == ESTALE)
        return replaced(rel, err);
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "'%.512s' could not be mounted; nothing was started", rel);
}

static int attach_allowed(int ws, const struct br_allowed *a, int tree, struct br_err *err)
{
    BR_CLEANUP_FD int at = br_weak(PATHS)
                               ? openat(ws, a->rel, O_PATH | O_CLOEXEC)
                               : open_point(ws, a->rel, a->ino, a->dev_major, a->dev_minor);
    return at < 0 ? replaced(a->rel, err) : attach(tree, at, a->rel, err);
}

static int attach_cover(int ws, const struct br_cover *c, const char *rel, int empty,
                        struct br_err *err)
{
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    bool hide = c->kind == BR_COVER_HIDE;
    BR_CLEANUP_FD int at = open_point(ws, rel, c->ino, c->dev_major, c->dev_minor);
    if (at < 0 && hide && errno == ENOENT)
        return 0; /* it has gone: nothing to hide */
    if (at < 0)
        return replaced(rel, err);
    BR_CLEANUP_FD int tree =
        br_sys_open_tree(hide ? empty : at, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
    if (tree < 0 ||
        (c->kind != BR_COVER_PIN && br_sys_mount_setattr(tree, "", AT_EMPTY_PATH, &ro) < 0))
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%.512s' could not be covered; nothing was started", rel);
    return attach(tree, at, rel, err);
}

int br_attach_workspace(const struct br_host *h, const struct br_box_shared *s, const int *fds,
                        struct br_err *err)
{
    int ws = fds[BR_BOX_FD_WORKSPACE];
    if (br_sys_move_mount(ws, "", AT_FDCWD, BR_BOX_WORKSPACE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the workspace could not be attached; nothing was started");
    BR_CLEANUP_FD int empty = -1;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        const struct br_step *step = &s->steps[i];
        const struct br_cover *c = &s->covers.items[step->at];
        if (step->cover && c->kind == BR_COVER_HIDE && empty < 0)
            empty = br_mask_open(h, BR_MASK_FILE, err);
        if (step->cover && c->kind == BR_COVER_HIDE && empty < 0)
            return empty;
        int r = step->cover ? attach_cover(ws, c, s->covers.text + c->path, empty, err)
                            : attach_allowed(ws, &s->allowed[step->at],
                                             fds[BR_BOX_FD_ALLOWED + step->at], err);
        if (r < 0)
            return r;
    }
    return 0;
}
