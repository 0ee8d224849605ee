/*
 * Trees that somebody else filled: walking one in a fixed order, and removing one. Called for the
 * unpacked files of an image. Opens every directory by its parent's descriptor without following
 * links, so that nothing outside of the tree is ever reached; nobody else may be changing it (the
 * programs that unpacked it have ended), except for a lenient walk, which only looks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/image_priv.h"

#define NAMES_MAX 1000000u /* in one directory */

struct level {
    int fd;
    char **names;
    size_t n, at;
    size_t path_len; /* of the path up to and including this directory's '/' */
};

/* Whoever only looks begins above the image's files. */
#define LENIENT_DEPTH_MAX (BR_IMAGE_DEPTH_MAX + 8u)

struct walk {
    struct level levels[LENIENT_DEPTH_MAX];
    bool lenient;
    unsigned depth;
    char path[BR_PATH_MAX];
    dev_t dev;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(struct level *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free((void *)l->names);
    l->names = NULL;
    l->n = 0;
}

static void leave(struct walk *w)
{
    struct level *l = &w->levels[--w->depth];
    free_names(l);
    br_close(&l->fd);
}

static int read_names(struct level *l, struct br_err *err)
{
    int fd = openat(l->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    size_t cap = 0;
    int r = 0;
    if (!d) {
        br_close(&fd);
        return br_err_errno(err, BR_E_INVALID_IMAGE, "a directory of an image cannot be read");
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (l->n == cap) {
            cap = cap ? cap * 2 : 32;
            char **p = cap > NAMES_MAX * 2
                           ? NULL
                           : (char **)realloc((void *)l->names, cap * sizeof(*l->names));
            if (!p)
                r = br_err_set(err, BR_E_LIMIT_EXCEEDED, "a directory of an image is too large");
            else
                l->names = p;
        }
        if (r == 0 && !(l->names[l->n++] = strdup(e->d_name))) {
            l->n--;
            r = br_err_set(err, BR_E_NOMEM, "no memory to read an image");
        }
    }
    closedir(d);
    if (l->n)
        qsort((void *)l->names, l->n, sizeof(*l->names), by_name);
    return r;
}

static int enter(struct walk *w, int parent, const char *name, size_t path_len, struct br_err *err)
{
    struct stat st;
    if (w->depth == (w->lenient ? LENIENT_DEPTH_MAX : BR_IMAGE_DEPTH_MAX))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the image has more than %u directories within each other",
                          BR_IMAGE_DEPTH_MAX);
    struct level *l = &w->levels[w->depth++];
    *l = (struct level){.fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                        .path_len = path_len};
    if (l->fd < 0 || fstat(l->fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_IMAGE, "'%.200s' of an image cannot be read",
                            w->path);
    if (w->depth == 1)
        w->dev = st.st_dev;
    else if (st.st_dev != w->dev)
        return br_err_set(err, BR_E_INVALID_IMAGE, "'%.200s' of an image is a mount point",
                          w->path);
    return read_names(l, err);
}

/* The next entry of the deepest level. */
static int step(struct walk *w, br_walk_fn *fn, void *ctx, struct br_err *err)
{
    struct level *l = &w->levels[w->depth - 1];
    const char *name = l->names[l->at++];
    struct br_walk_entry e = {.path = w->path, .dir = l->fd, .name = name};
    size_t n = strlen(name);
    if (l->path_len + n + 2 > sizeof(w->path))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the image has a path of more than %zu bytes",
                          sizeof(w->path));
    memcpy(w->path + l->path_len, name, n + 1);
    if (fstatat(l->fd, name, &e.st, AT_SYMLINK_NOFOLLOW) < 0)
        return w->lenient ? 0
                          : br_err_errno(err, BR_E_INVALID_IMAGE, "'%.200s' of an image vanished",
                                         w->path);
    bool dir = S_ISDIR(e.st.st_mode);
    int r = fn(ctx, &e, err);
    if (r < 0 || !dir)
        return r;
    size_t path_len = l->path_len + n + 1;
    memcpy(w->path + path_len - 1, "/", 2);
    r = enter(w, l->fd, name, path_len, err);
    if (r < 0 && w->lenient && r != -BR_E_LIMIT_EXCEEDED) {
        leave(w);
        return 0;
    }
    return r;
}

int br_walk(int root, bool lenient, br_walk_fn *fn, void *ctx, struct br_err *err)
{
    struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return br_err_set(err, BR_E_NOMEM, "no memory to read an image");
    w->lenient = lenient;
    int r = enter(w, root, ".", 0, err);
    while (r == 0 && w->depth) {
        const struct level *l = &w->levels[w->depth - 1];
        if (l->at == l->n)
            leave(w);
        else
            r = step(w, fn, ctx, err);
    }
    while (w->depth)
        leave(w);
    free(w);
    return r;
}

/* ---- removing ---- */

/*
 * Empty one directory into its ancestor `top`: files are removed, directories are moved up. So any
 * depth is removed with two open descriptors.
 */
static int flatten(int top, const char *name, uint64_t *serial)
{
    (void)fchmodat(top, name, 0700, 0); /* not a link: it failed to be removed as one */
    int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int r = 0;
    if (!d) {
        br_close(&fd);
        return -1;
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        char up[32];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            unlinkat(dirfd(d), e->d_name, 0) == 0)
            continue;
        (void)fchmodat(dirfd(d), e->d_name, 0700, 0); /* moving one writes to its ".." */
        do {
            snprintf(up, sizeof(up), "up.%llu", (unsigned long long)++*serial);
            r = renameat2(dirfd(d), e->d_name, top, up, RENAME_NOREPLACE);
        } while (r < 0 && errno == EEXIST);
    }
    closedir(d);
    return r < 0 ? r : unlinkat(top, name, AT_REMOVEDIR);
}

/* One pass over the top directory; the number of entries that it removed, or -1. */
static long pass(int top, uint64_t *serial)
{
    int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    long n = 0;
    if (!d) {
        br_close(&fd);
        return -1;
    }
    for (struct dirent *e; n >= 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(top, e->d_name, 0) < 0 && flatten(top, e->d_name, serial) < 0)
            n = -1;
        else
            n++;
    }
    closedir(d);
    return n;
}

int br_remove_tree(int dir, const char *name, struct br_err *err)
{
    struct stat st;
    uint64_t serial = 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : br_err_errno(err, BR_E_IO, "'%s' was not removed", name);
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid())
        (void)fchmodat(dir, name, 0700, 0);
    BR_CLEANUP_FD int top =
        br_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 0); /* no link, no way out */
    long n = top < 0 ? -1 : 1;
    while (n > 0)
        n = pass(top, &serial);
    if (n < 0 || unlinkat(dir, name, AT_REMOVEDIR) < 0)
        return br_err_errno(err, BR_E_IO, "'%s' in the store of images was not removed", name);
    return 0;
}
