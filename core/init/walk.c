/*
 * A bounded walk of a tree that somebody else wrote: fixed order, no recursion, no symlink
 * followed, names and depth and time limited, and `truncated` set for whatever was left out.
 * Called by the list, search and snapshot operations.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/init_priv.h"

/* Bytes of the names that are held at one time, over all open directories. */
#define WALK_ARENA_MAX (16u * 1024 * 1024)

static void frame_free(struct br_walk *w, struct br_walk_frame *f)
{
    w->arena_used -= f->arena_len;
    br_close(&f->fd);
    free(f->names);
    free(f->arena);
    f->names = NULL;
    f->arena = NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names of the directory, one after the other; false if it has too many. */
static bool read_names(int fd, struct br_buf *arena, unsigned *n)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d) {
        br_close(&copy);
        return false;
    }
    bool ok = true;
    const struct dirent *e;
    while (ok && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ok = *n < BR_INIT_WALK_ENTRIES && br_buf_put(arena, e->d_name, strlen(e->d_name) + 1) == 0;
        *n += ok;
    }
    closedir(d);
    return ok;
}

/* Takes fd. A directory that cannot be read whole gets no entries, and the walk says so. */
static void push_frame(struct br_walk *w, int fd, size_t path_len)
{
    struct br_walk_frame f = {.fd = fd, .path_len = path_len};
    struct br_buf arena = BR_BUF_INIT(WALK_ARENA_MAX - w->arena_used);
    bool ok = read_names(fd, &arena, &f.n);
    f.names = ok ? calloc(f.n + 1, sizeof(*f.names)) : NULL;
    if (!f.names) {
        w->truncated = true;
        br_buf_free(&arena);
        br_close(&f.fd);
        return;
    }
    f.arena = (char *)arena.data;
    f.arena_len = arena.len;
    w->arena_used += arena.len;
    char *at = f.arena;
    for (unsigned i = 0; i < f.n; i++) {
        f.names[i] = at;
        at += strlen(at) + 1;
    }
    qsort(f.names, f.n, sizeof(*f.names), by_name);
    w->frames[++w->top] = f;
}

int br_walk_open(struct br_walk *w, int dirfd, bool recursive, struct br_err *err)
{
    w->top = -1;
    w->recursive = recursive;
    w->descend = w->truncated = false;
    w->deadline_us = br_now_us() + BR_INIT_WALK_US;
    w->arena_used = 0;
    w->path[0] = 0;
    push_frame(w, dirfd, 0);
    return w->top == 0 ? 0
                       : br_err_set(err, BR_E_LIMIT_EXCEEDED,
                                    "the directory has more than %u entries, or may not be read",
                                    BR_INIT_WALK_ENTRIES);
}

/* Go into the directory that the last entry was. */
static void descend(struct br_walk *w)
{
    struct br_walk_frame *f = &w->frames[w->top];
    w->descend = false;
    if (w->top + 1 == (int)BR_INIT_WALK_DEPTH) {
        w->truncated = true;
        return;
    }
    int fd = openat(f->fd, f->names[f->at - 1], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        push_frame(w, fd, strlen(w->path));
    else
        w->truncated = true;
}

int br_walk_next(struct br_walk *w, struct br_walk_entry *e)
{
    if (w->descend)
        descend(w);
    while (w->top >= 0) {
        struct br_walk_frame *f = &w->frames[w->top];
        w->path[f->path_len] = 0;
        if (f->at == f->n) {
            frame_free(w, f);
            w->top--;
            continue;
        }
        if (br_now_us() > w->deadline_us) {
            w->truncated = true;
            return 0;
        }
        const char *name = f->names[f->at++];
        size_t n = strlen(name), start = f->path_len + (f->path_len > 0);
        if (start + n >= sizeof(w->path)) {
            w->truncated = true;
            continue;
        }
        if (fstatat(f->fd, name, &e->st, AT_SYMLINK_NOFOLLOW) < 0) {
            w->truncated |= errno != ENOENT;
            continue;
        }
        if (start)
            w->path[f->path_len] = '/';
        memcpy(w->path + start, name, n + 1);
        e->path = w->path;
        e->name = w->path + start;
        e->dirfd = f->fd;
        w->descend = w->recursive && S_ISDIR(e->st.st_mode);
        return 1;
    }
    return 0;
}

void br_walk_close(struct br_walk *w)
{
    for (; w->top >= 0; w->top--)
        frame_free(w, &w->frames[w->top]);
}
