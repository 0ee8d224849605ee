/*
 * What is mounted on and in a workspace: flags and targets are the mount table's (mounts.c), but
 * which directory or file it is the table tells only by the kernel's own names. So each mount of
 * the plan is looked at where the sandbox has it, through pid 1's root, and compared by device and
 * inode with what was planned. Called by the launcher before anybody can ask pid 1 to do
 * something. The workspace's names are hostile.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "sandbox/box_priv.h"
#include "sandbox/places.h"
#include "sandbox/rootfs.h"

int br_place_check(int root, const char *path, const struct br_mask_id *want, struct br_err *err)
{
    struct statx st;
    const char *how = NULL;
    if (statx(root, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_INO, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_ALLOWED_PATH,
                            "'/%.512s' of the sandbox could not be examined; nothing was started. "
                            "Start again when nothing else changes the workspace",
                            path);
    if (st.stx_ino != want->ino || st.stx_dev_major != want->dev_major ||
        st.stx_dev_minor != want->dev_minor)
        how = "is another file or directory";
    else if (!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        how = "is not mounted there";
    /* whoever can rename things in the workspace can do this: it is the workspace that changes */
    return how ? br_err_set(err, BR_E_INVALID_ALLOWED_PATH,
                            "the sandbox was measured and is not what was planned: '/%.512s' %s; "
                            "nothing was started. Start again when nothing else changes the "
                            "workspace",
                            path, how)
               : 0;
}

int br_places_check(const struct br_box *b, const struct br_plan *plan, struct br_err *err)
{
    const struct br_box_shared *s = b->shared;
    char path[2 * BR_PATH_MAX];
    snprintf(path, sizeof(path), "/proc/%d/root", (int)b->pid);
    BR_CLEANUP_FD int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the sandbox's root could not be opened; nothing was started");
    int r = plan->workspace == BR_WORKSPACE_BIND
                ? br_place_check(root, BR_BOX_WORKSPACE + 1, &b->workspace_id, err)
                : 0;
    for (uint32_t i = 0; r == 0 && i < s->nsteps; i++) {
        const struct br_step *step = &s->steps[i];
        const struct br_cover *c = &s->covers.items[step->at];
        const struct br_allowed *a = &s->allowed[step->at];
        if (step->cover && c->kind == BR_COVER_HIDE)
            continue; /* it may have gone meanwhile */
        /* what the operator granted lies on what is covered, where both are the same */
        struct br_mask_id want = step->cover
                                     ? (struct br_mask_id){c->ino, c->dev_major, c->dev_minor}
                                     : (struct br_mask_id){a->ino, a->dev_major, a->dev_minor};
        snprintf(path, sizeof(path), "%s/%s", BR_BOX_WORKSPACE + 1,
                 step->cover ? s->covers.text + c->path : a->rel);
        r = br_place_check(root, path, &want, err);
    }
    return r;
}
