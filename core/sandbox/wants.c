/*
 * Which mounts a sandbox is to have, from the plan and from the root that was prepared. The
 * launcher compares the kernel's table with it before anybody can ask pid 1 to do something.
 * Whoever makes a sandbox mount something more says so here, or every launch is refused.
 */
#include <string.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/rootfs.h"

#define LOCKED (BR_MNT_NOSUID | BR_MNT_NODEV)
#define INHERITED (BR_MNT_RO | BR_MNT_NOEXEC)

static unsigned noexec(const struct br_plan *plan, uint32_t flag)
{
    return plan->flags & flag ? BR_MNT_NOEXEC : 0;
}

/* The empty file and directory of the root that was prepared, as the mount table names them. */
static void put_sources(struct br_mount_wants *w, const struct br_mounts *root)
{
    const struct br_mount *top = root->list; /* "/" is the first of a sorted table */
    for (unsigned i = 0; i < BR_ARRAY_LEN(w->masks); i++) {
        (void)snprintf(w->mask_roots[i], sizeof(w->mask_roots[i]), "%s/%s",
                       strcmp(top->root, "/") == 0 ? "" : top->root, br_mask_source(i == 1));
        w->masks[i] =
            (struct br_mount){.dev = top->dev, .type = top->type, .root = w->mask_roots[i]};
    }
}

static void want_masks(struct br_mount_wants *w, const struct br_host *h)
{
    char path[64];
    const char *name;
    for (unsigned i = 0; (name = br_mask_path(i)); i++) {
        snprintf(path, sizeof(path), "/%s", name);
        struct br_mount_want *e = br_want(w, path, BR_MNT_RO | LOCKED, 0);
        e->same = &w->masks[br_mask_is_dir(i)];
        if (!(h->masked >> i & 1))
            e->kind = BR_WANT_MAYBE; /* where the launcher's own /proc does not show everything */
    }
}

static void want_tmpfs(struct br_mount_wants *w, const char *path, unsigned more,
                       const struct br_plan *plan)
{
    struct br_mount_want *e = br_want(w, path, LOCKED | more, 0);
    e->type = "tmpfs";
    e->bytes = plan->limits.tmp_bytes;
    e->inodes = plan->limits.tmp_inodes;
}

/* The host's directory and what is mounted on it. */
static void want_workspace(struct br_mount_wants *w, const struct br_box *b,
                           const struct br_plan *plan)
{
    const struct br_box_shared *s = b->shared;
    unsigned more =
        noexec(plan, BR_PLAN_WORKSPACE_NOEXEC) | (b->who.idmapped ? BR_MNT_IDMAPPED : 0);
    char path[2 * BR_PATH_MAX];
    (void)br_want(w, BR_BOX_WORKSPACE, BR_MNT_RO | LOCKED | more, BR_MNT_NOEXEC);
    for (uint32_t i = 0; i < s->nallowed; i++) {
        snprintf(path, sizeof(path), BR_BOX_WORKSPACE "/%s", s->allowed[i].rel);
        (void)br_want(w, path, LOCKED | more, INHERITED);
    }
    for (uint32_t i = 0; i < s->nsteps; i++) {
        if (!s->steps[i].cover)
            continue;
        const struct br_cover *c = &s->covers.items[s->steps[i].at];
        bool hide = c->kind == BR_COVER_HIDE;
        snprintf(path, sizeof(path), BR_BOX_WORKSPACE "/%s", s->covers.text + c->path);
        if (c->kind == BR_COVER_PIN) {
            (void)br_want(w, path, LOCKED | more, INHERITED); /* as the granted one above it */
            continue;
        }
        struct br_mount_want *e =
            br_want(w, path, BR_MNT_RO | LOCKED | (hide ? 0 : more), BR_MNT_NOEXEC);
        if (hide)
            e->kind = BR_WANT_MAYBE; /* it may have gone meanwhile */
    }
    /* what the host has mounted below it: visible, never writable */
    br_want(w, BR_BOX_WORKSPACE, BR_MNT_RO | LOCKED | more, BR_MNT_NOEXEC)->kind = BR_WANT_BELOW;
}

/* Their quotas are compared by br_leases_measure(). */
static void want_leases(struct br_mount_wants *w, const struct br_plan *plan)
{
    for (unsigned i = 0; i < BR_DISKS; i++) {
        bool ext4 = plan->disks[i].kind == BR_QUOTA_EXT4;
        if (plan->disks[i].kind == BR_QUOTA_NONE)
            continue;
        struct br_mount_want *e =
            br_want(w, br_disk_points[i],
                    LOCKED | noexec(plan, br_disk_noexec[i]) | (ext4 ? BR_MNT_IDMAPPED : 0), 0);
        e->type = ext4 ? "ext4" : "tmpfs";
    }
}

void br_wants_of(struct br_mount_wants *w, const struct br_box *b, const struct br_plan *plan)
{
    bool host = strcmp(b->image, BR_IMAGE_HOST) == 0;
    const struct br_mounts *root = host ? &b->host->root_mounts : &b->host->image.mounts;
    br_want_root(w, root);
    put_sources(w, root);
    br_want(w, "/proc", BR_MNT_RO | LOCKED | BR_MNT_NOEXEC, 0)->type = "proc";
    want_masks(w, b->host);
    if (b->host->cg_view != BR_CG_VIEW_NONE) {
        bool v1 = b->host->cg_view == BR_CG_VIEW_V1;
        br_want(w, v1 ? "/" BR_ROOTFS_CGROUP "/memory" : "/" BR_ROOTFS_CGROUP,
                BR_MNT_RO | LOCKED | BR_MNT_NOEXEC, 0)
            ->type = v1 ? "cgroup" : "cgroup2";
    }
    want_tmpfs(w, "/tmp", noexec(plan, BR_PLAN_TMP_NOEXEC), plan);
    want_tmpfs(w, BR_BOX_HOME, noexec(plan, BR_PLAN_HOME_NOEXEC), plan);
    if (plan->workspace == BR_WORKSPACE_BIND)
        want_workspace(w, b, plan);
    want_leases(w, plan);
    if (plan->flags & BR_BOX_SOCKETS) {
        struct br_mount_want *e = br_want(w, BR_BOX_BROKER, LOCKED | BR_MNT_NOEXEC, 0);
        e->type = "tmpfs";
        e->bytes = BR_BOX_BROKER_BYTES;
        e->inodes = br_box_broker_inodes(plan->flags);
    }
}
