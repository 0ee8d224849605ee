/*
 * The sources of a plan's writable mounts: what they are when the plan is resolved, and whether
 * they still are that when the sandbox starts. Called by bridle-launch (resolve.c, box.c). The plan
 * comes from bridled; the workspace is hostile and may change between any two calls.
 *
 * At the start each source is opened once, its mount is cloned from that descriptor, and only then
 * the same descriptor is compared with the plan. Whatever is swapped afterwards is not what was
 * cloned.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/sources.h"

/* Does the walk of `outer` count the files of `inner`? Not what lies in a `.git`. */
static bool walks(const struct br_allowed *outer, const struct br_allowed *inner)
{
    size_t n = strlen(outer->rel);
    if (!outer->dir || strncmp(outer->rel, inner->rel, n) != 0 || inner->rel[n] != '/')
        return false;
    for (const char *p = inner->rel + n; p; p = strchr(p + 1, '/'))
        if (strncasecmp(p + 1, ".git", 4) == 0 && (p[5] == '/' || p[5] == 0))
            return false;
    return true;
}

static bool within_other(const struct br_allowed *all, uint32_t n, uint32_t i)
{
    for (uint32_t k = 0; k < n; k++)
        if (k != i && (walks(&all[k], &all[i]) || (k < i && strcmp(all[k].rel, all[i].rel) == 0)))
            return true;
    return false;
}

static int fingerprint(struct br_tree *t, struct br_allowed_root *root,
                       const struct br_allowed *all, uint32_t n, uint32_t i,
                       struct br_fingerprint *f, struct br_err *err)
{
    const struct br_allowed *a = &all[i];
    struct statx st;
    int r = br_allowed_recheck(root, a, err);
    if (r < 0)
        return r;
    if (statx(a->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_ALLOWED_PATH,
                            "the allowed path '%.512s' could not be examined; nothing was started",
                            a->rel);
    *f = (struct br_fingerprint){
        .ino = st.stx_ino,
        .mnt_id = st.stx_mnt_id,
        .dev_major = st.stx_dev_major,
        .dev_minor = st.stx_dev_minor,
        .mode = st.stx_mode,
        .uid = st.stx_uid,
        .gid = st.stx_gid,
    };
    if (!a->dir) {
        f->ctime_ns = (uint64_t)st.stx_ctime.tv_sec * 1000000000u + st.stx_ctime.tv_nsec;
        return 0;
    }
    return br_tree_fingerprint(t, root, a, within_other(all, n, i), &f->entries, f->tree_sha256,
                               err);
}

static void close_all(struct br_allowed *all, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        br_allowed_close(&all[i]);
}

int br_sources_resolve(struct br_plan *plan, int ws, struct br_err *err)
{
    struct br_allowed_root root;
    struct br_tree tree;
    uint32_t opened = 0;
    BR_CLEANUP_FREE struct br_allowed *all = calloc(BR_ALLOWED_PATHS_MAX, sizeof(*all));
    BR_CLEANUP_FREE struct br_covers *covers = calloc(1, sizeof(*covers));
    if (!all || !covers)
        return br_err_set(err, BR_E_NOMEM, "no memory for a launch plan");
    br_tree_init(&tree, covers, BR_TREE_ENTRIES_MAX);
    int r = br_allowed_root_open(&root, ws, err);
    for (; r == 0 && opened < plan->nallowed; opened++)
        r = br_allowed_open(&root, plan->allowed_paths[opened], &all[opened], err);
    for (uint32_t i = 0; r == 0 && i < plan->nallowed; i++)
        r = fingerprint(&tree, &root, all, plan->nallowed, i, &plan->sources[i], err);
    if (r == 0)
        r = br_tree_check_links(&tree, err);
    if (r == 0 && covers->n && plan->backend == BR_BACKEND_DOCKER)
        r = br_err_set(
            err, BR_E_REQUIREMENT_MISSING,
            "Docker cannot express that '%.512s', below an allowed path, stays as it is; "
            "nothing was started. Use the backend 'native', or allow less",
            covers->text + covers->items[0].path);
    plan->nsources = r == 0 ? plan->nallowed : 0;
    close_all(all, opened);
    br_tree_free(&tree);
    return r;
}

static int compare(const struct br_allowed *a, const struct br_fingerprint *planned,
                   const struct br_fingerprint *now, struct br_err *err)
{
    const char *what = NULL;
    if (planned->dev_major != now->dev_major || planned->dev_minor != now->dev_minor ||
        planned->ino != now->ino || planned->mnt_id != now->mnt_id)
        what = "another file or directory is there now";
    else if (planned->mode != now->mode || planned->uid != now->uid || planned->gid != now->gid)
        what = "its type, mode or owner changed";
    else if (planned->ctime_ns != now->ctime_ns)
        what = "it was written";
    else if (planned->entries != now->entries ||
             memcmp(planned->tree_sha256, now->tree_sha256, sizeof(now->tree_sha256)) != 0)
        what = "files in it were added, removed or replaced";
    if (!what)
        return 0;
    return br_err_set(err, BR_E_INVALID_ALLOWED_PATH,
                      "the allowed path '%.512s' is not what it was when the run was planned: %s; "
                      "nothing was started. Start again when nothing else changes the workspace",
                      a->rel, what);
}

/* ---- the order of the mounts ---- */

static const char *step_path(const struct br_box_shared *s, const struct br_step *step)
{
    return step->cover ? s->covers.text + s->covers.items[step->at].path : s->allowed[step->at].rel;
}

/* Outer before inner; where both are the same, what the operator granted by name lies on top. */
static int compare_steps(const void *a, const void *b, void *shared)
{
    const struct br_step *x = a, *y = b;
    const unsigned char *p = (const void *)step_path(shared, x);
    const unsigned char *q = (const void *)step_path(shared, y);
    while (*p && *p == *q)
        p++, q++;
    if (*p == *q)
        return (int)y->cover - (int)x->cover;
    /* the end, then the slash, then all other bytes */
    int c = *p == 0 ? 0 : *p == '/' ? 1 : *p + 2;
    int d = *q == 0 ? 0 : *q == '/' ? 1 : *q + 2;
    return c - d;
}

static void order_steps(struct br_box_shared *s)
{
    s->nsteps = 0;
    for (uint32_t i = 0; i < s->nallowed; i++)
        s->steps[s->nsteps++] = (struct br_step){.cover = false, .at = (uint16_t)i};
    for (uint32_t i = 0; i < s->covers.n; i++)
        s->steps[s->nsteps++] = (struct br_step){.cover = true, .at = (uint16_t)i};
    qsort_r(s->steps, s->nsteps, sizeof(*s->steps), compare_steps, s);
}

/* ---- the start ---- */

/* A granted tree that lies in another one finds the same `.git` again, and is a mount itself. */
static void drop_double_covers(struct br_covers *c, const struct br_allowed *granted, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const char *path = c->text + c->items[i].path;
        bool again = false;
        for (uint32_t k = 0; k < kept && !again; k++)
            again = strcmp(c->text + c->items[k].path, path) == 0;
        for (uint32_t k = 0; c->items[i].kind == BR_COVER_PIN && k < n && !again; k++)
            again = strcmp(granted[k].rel, path) == 0;
        if (!again)
            c->items[kept++] = c->items[i];
    }
    c->n = kept;
}

static int compare_all(const struct br_plan *plan, struct br_allowed_root *root, int ws,
                       struct br_box_shared *s, struct br_err *err)
{
    struct br_fingerprint now[BR_ALLOWED_PATHS_MAX];
    struct br_tree tree;
    int r = 0;
    br_tree_init(&tree, &s->covers, BR_TREE_ENTRIES_MAX);
    for (uint32_t i = 0; r == 0 && i < plan->nallowed; i++)
        r = fingerprint(&tree, root, s->allowed, plan->nallowed, i, &now[i], err);
    if (r == 0)
        r = br_tree_check_links(&tree, err);
    for (uint32_t i = 0; r == 0 && i < plan->nallowed; i++)
        r = compare(&s->allowed[i], &plan->sources[i], &now[i], err);
    tree.entries = 0;
    tree.entries_max = BR_TREE_SEARCH_MAX;
    if (r == 0)
        r = br_tree_search(&tree, ws, s->allowed, plan->nallowed, err);
    br_tree_free(&tree);
    if (r == 0)
        drop_double_covers(&s->covers, s->allowed, plan->nallowed);
    return r;
}

int br_sources_open(const struct br_plan *plan, int ws, struct br_box_shared *s,
                    br_clone_source *clone, void *ctx, int *fds, unsigned *n, struct br_err *err)
{
    struct br_allowed_root root;
    uint32_t opened = 0;
    s->nallowed = s->nsteps = s->covers.n = 0;
    if (plan->nsources != plan->nallowed)
        return br_err_set(err, BR_E_INVALID_ALLOWED_PATH,
                          "the plan does not say what its allowed paths were when it was made; "
                          "nothing was started. Have it resolved first");
    if (plan->workspace != BR_WORKSPACE_BIND)
        return 0; /* nothing of the host's is to be seen */
    int r = br_allowed_root_open(&root, ws, err);
    for (; r == 0 && opened < plan->nallowed; opened++) {
        struct br_allowed *a = &s->allowed[opened];
        r = br_weak(PATHS) ? br_weak_open_allowed(ws, plan->allowed_paths[opened], a)
                           : br_allowed_open(&root, plan->allowed_paths[opened], a, err);
        int tree = r < 0 ? r : clone(ctx, a->fd, plan->allowed_paths[opened], err);
        if (tree < 0)
            r = tree;
        else
            fds[(*n)++] = tree;
    }
    if (r == 0 && !br_weak(PATHS))
        r = compare_all(plan, &root, ws, s, err);
    close_all(s->allowed, opened);
    if (r < 0)
        return r;
    s->nallowed = plan->nallowed;
    order_steps(s);
    return 0;
}
