/*
 * From what an archive was unpacked to, to what an image may hold. Called by an import after every
 * child program has ended, so that nobody else changes the tree. The tree is hostile; it is reached
 * by descriptors only, and links in it are never followed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "image/make_priv.h"

/* Every sandbox has its own of these; what the archive has there would never be seen. */
static const char *const own[] = {"dev", "proc", "sys", "run", "tmp", "workspace", ".bridle-init"};

/* Files with several names that were counted already: a hash table of inode numbers. */
struct seen {
    uint64_t *slots;
    size_t n, cap; /* cap: a power of two */
};

static bool insert(uint64_t *slots, size_t cap, uint64_t ino)
{
    size_t at = (size_t)(ino * 0x9e3779b97f4a7c15u) & (cap - 1);
    while (slots[at] && slots[at] != ino)
        at = (at + 1) & (cap - 1);
    bool fresh = slots[at] == 0;
    slots[at] = ino;
    return fresh;
}

/* 1: not seen before, 0: seen, or a negative code. */
static int see(struct seen *s, uint64_t ino, struct br_err *err)
{
    if (s->n * 2 >= s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 256;
        uint64_t *slots = calloc(cap, sizeof(*slots));
        if (!slots)
            return br_err_set(err, BR_E_NOMEM, "no memory for an import; no image was made");
        for (size_t i = 0; i < s->cap; i++)
            if (s->slots[i])
                (void)insert(slots, cap, s->slots[i]);
        free(s->slots);
        s->slots = slots;
        s->cap = cap;
    }
    bool fresh = insert(s->slots, s->cap, ino);
    s->n += fresh;
    return fresh;
}

struct cleaning {
    const struct br_work *work;
    struct br_image *img;
    struct seen seen;
};

static int failed(const struct br_walk_entry *e, struct br_err *err)
{
    return br_err_errno(err, BR_E_IO,
                        "'%.200s' of the image could not be changed; no image was made", e->path);
}

/* Attributes hold capabilities, labels and what overlayfs would act on: none are kept. */
static int drop_attributes(const struct br_walk_entry *e, struct br_err *err)
{
    char path[64 + BR_NAME_MAX], list[8192];
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", e->dir, e->name);
    ssize_t n = llistxattr(path, list, sizeof(list));
    if (n < 0)
        return errno == ENOTSUP ? 0 : failed(e, err);
    for (const char *at = list; at < list + n; at += strlen(at) + 1)
        if (strncmp(at, "security.selinux", 17) != 0 && lremovexattr(path, at) < 0 &&
            errno != ENODATA)
            return failed(e, err);
    return 0;
}

static int count_entry(struct cleaning *c, const struct br_walk_entry *e, struct br_err *err)
{
    struct br_image *img = c->img;
    int fresh = 1;
    if (S_ISREG(e->st.st_mode) && e->st.st_nlink > 1)
        fresh = see(&c->seen, e->st.st_ino, err);
    if (fresh < 0)
        return fresh;
    if (S_ISREG(e->st.st_mode) && fresh &&
        __builtin_add_overflow(img->bytes, (uint64_t)e->st.st_size, &img->bytes))
        img->bytes = UINT64_MAX;
    img->entries++;
    if (img->bytes > c->work->max_bytes || img->entries > c->work->max_entries)
        return br_work_too_large(c->work, err);
    return 0;
}

static int clean_entry(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    struct cleaning *c = ctx;
    mode_t type = e->st.st_mode & S_IFMT;
    if (br_image_stop)
        return br_err_set(err, BR_E_CANCELED, "canceled; no image was made");
    if (type != S_IFREG && type != S_IFDIR && type != S_IFLNK)
        return unlinkat(e->dir, e->name, 0) < 0 ? failed(e, err) : 0;
    /* the owner reads everything, or an ordinary user could not make an image of it */
    mode_t mode = (e->st.st_mode & 0777) | (type == S_IFDIR ? 0700 : 0400);
    if (type != S_IFLNK && mode != (e->st.st_mode & 07777) &&
        fchmodat(e->dir, e->name, mode, 0) < 0)
        return failed(e, err);
    int r = drop_attributes(e, err);
    return r < 0 ? r : count_entry(c, e, err);
}

static const struct timespec epoch[2];

static int reset_times(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    (void)ctx;
    return utimensat(e->dir, e->name, epoch, AT_SYMLINK_NOFOLLOW) < 0 ? failed(e, err) : 0;
}

static int drop_own(int root, struct br_err *err)
{
    for (unsigned i = 0; i < BR_ARRAY_LEN(own); i++) {
        if (unlinkat(root, own[i], 0) == 0 || errno == ENOENT)
            continue;
        int r = br_remove_tree(root, own[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

int br_image_clean(int root, const struct br_work *w, struct br_image *img, struct br_err *err)
{
    struct cleaning c = {.work = w, .img = img};
    img->bytes = img->entries = 0;
    int r = fchmod(root, 0755) < 0
                ? br_err_errno(err, BR_E_IO, "the image could not be changed; no image was made")
                : drop_own(root, err);
    if (r == 0)
        r = br_walk(root, false, clean_entry, &c, err);
    free(c.seen.slots);
    if (r == 0)
        r = br_walk(root, false, reset_times, NULL, err);
    if (r == 0 && futimens(root, epoch) < 0)
        r = br_err_errno(err, BR_E_IO, "the image could not be changed; no image was made");
    if (r == 0 && img->entries == 0)
        r = br_err_set(err, BR_E_INVALID_IMAGE, "there are no files in it; no image was made");
    return r;
}
