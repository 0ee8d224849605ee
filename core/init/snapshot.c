/*
 * What changed in the workspace during a run, for the record: metadata only, compared entry by
 * entry in the one order in which a walk visits a tree. Called by serve.c; the tree is hostile, so
 * that memory, entries and time are bounded and the answer says when it is not complete. The
 * change time cannot be set by a program, so that a rewritten file with its old size and
 * modification time is still seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/init_priv.h"

#define SNAPSHOT_PATHS_MAX (16u * 1024 * 1024)

struct item {
    uint64_t size, ino;
    int64_t mtime_ns, ctime_ns;
    uint32_t mode;
    uint32_t path; /* offset into paths */
};

struct br_init_snapshot {
    struct item *items;
    uint32_t n, cap;
    struct br_buf paths;
    bool truncated;
    int64_t taken_ns;
};

struct changes {
    struct br_init *in;
    const struct br_init_snapshot *base;
    struct br_buf *out;
    unsigned n;
    bool truncated;
};

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const char *item_path(const struct br_init_snapshot *s, uint32_t i)
{
    return (const char *)s->paths.data + s->items[i].path;
}

void br_init_snapshot_free(struct br_init_snapshot **s)
{
    if (*s) {
        free((*s)->items);
        br_buf_free(&(*s)->paths);
    }
    free(*s);
    *s = NULL;
}

/* The order of a walk: by parts, so that a separator sorts before every other byte. */
static int path_order(const char *a, const char *b)
{
    for (; *a && *a == *b; a++, b++)
        ;
    int x = *a == '/' ? 1 : *a ? 1 + (unsigned char)*a : 0;
    int y = *b == '/' ? 1 : *b ? 1 + (unsigned char)*b : 0;
    return x - y;
}

static struct item item_of(const struct stat *st)
{
    return (struct item){.size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
                         .ino = st->st_ino,
                         .mtime_ns = ns_of(st->st_mtim),
                         .ctime_ns = ns_of(st->st_ctim),
                         .mode = st->st_mode};
}

static int add_item(struct br_init_snapshot *s, const struct br_walk_entry *e)
{
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 256;
        struct item *items = realloc(s->items, cap * sizeof(*items));
        if (!items)
            return -BR_E_NOMEM;
        s->items = items;
        s->cap = cap;
    }
    struct item it = item_of(&e->st);
    it.path = (uint32_t)s->paths.len;
    int r = br_buf_put(&s->paths, e->path, strlen(e->path) + 1);
    if (r == 0)
        s->items[s->n++] = it;
    return r;
}

static int open_walk(struct br_init *in, struct br_walk *w, struct br_err *err)
{
    int fd = br_init_beneath(in->root, ".", O_RDONLY | O_DIRECTORY);
    return fd < 0 ? br_err_errno(err, BR_E_IO, "the workspace could not be opened")
                  : br_walk_open(w, fd, true, err);
}

static int take(struct br_init *in, struct br_err *err)
{
    struct br_init_snapshot *s = calloc(1, sizeof(*s));
    if (!s)
        return br_err_set(err, BR_E_NOMEM, "no memory for a snapshot");
    br_buf_init(&s->paths, SNAPSHOT_PATHS_MAX);
    s->taken_ns = (int64_t)br_now_wall_us() * 1000;
    in->base = s;
    BR_CLEANUP_WALK struct br_walk w = {.top = -1};
    int r = open_walk(in, &w, err);
    struct br_walk_entry e;
    while (r == 0 && br_walk_next(&w, &e)) {
        if (s->n == BR_INIT_WALK_ENTRIES || add_item(s, &e) < 0) {
            w.truncated = true;
            break;
        }
    }
    s->truncated = w.truncated || r < 0;
    return r;
}

static void put_change(struct changes *c, const char *path, const char *what, uint32_t mode,
                       uint64_t size, const char *set_group)
{
    size_t before = c->out->len;
    br_buf_printf(c->out, "%s{\"path\":", c->n ? "," : "");
    br_buf_put_json_str(c->out, path, strlen(path));
    br_buf_printf(c->out, ",\"change\":\"%s\"", what);
    if (S_ISREG(mode) && strcmp(what, "removed") != 0)
        br_buf_printf(c->out, ",\"size\":%llu", (unsigned long long)size);
    if (set_group)
        br_buf_printf(c->out, ",\"set_group\":\"%s\"", set_group);
    br_buf_put_u8(c->out, '}');
    if (c->n == BR_INIT_CHANGES_MAX || c->out->failed || c->out->len + 64 > c->out->max) {
        c->out->len = before;
        c->out->failed = false;
        c->truncated = true;
        return;
    }
    c->n++;
}

static void put_removed(struct changes *c, const struct item *it)
{
    const char *path = (const char *)c->base->paths.data + it->path;
    struct stat st;
    /* a walk that ended early has not seen everything: ask */
    if (c->truncated && (fstatat(c->in->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ||
                         (errno != ENOENT && errno != ENOTDIR)))
        return;
    put_change(c, path, "removed", it->mode, 0, NULL);
}

/*
 * A program that takes the workspace's group was not there before, and does not stay: the filter
 * cannot refuse the bit, because of directories (docs/decisions/0010). Commands have ended when
 * this is called, so that nobody sets it again. What became of the bit, or NULL without one.
 */
static const char *clear_set_group(const struct br_walk_entry *e, const struct item *was)
{
    mode_t mode = e->st.st_mode;
    if (!S_ISREG(mode) || !(mode & S_ISGID) ||
        (was && was->ino == e->st.st_ino && was->mode & S_ISGID))
        return NULL;
    return fchmodat(e->dirfd, e->name, mode & 07777 & ~(mode_t)(S_ISGID | S_ISUID),
                    AT_SYMLINK_NOFOLLOW) == 0
               ? "cleared"
               : "kept";
}

static void put_added(struct changes *c, const struct br_walk_entry *e)
{
    /* an entry that an incomplete first walk had left out is not new; a coarse clock may lag */
    if (c->base->truncated && ns_of(e->st.st_ctim) < c->base->taken_ns - 20000000)
        return;
    put_change(c, e->path, "added", e->st.st_mode, (uint64_t)e->st.st_size,
               clear_set_group(e, NULL));
}

static bool differs(const struct item *a, const struct item *b)
{
    if (S_ISDIR(a->mode) && S_ISDIR(b->mode))
        return false; /* its entries say it */
    return a->size != b->size || a->ino != b->ino || a->mtime_ns != b->mtime_ns ||
           a->ctime_ns != b->ctime_ns || a->mode != b->mode;
}

static int compare(struct changes *c, struct br_err *err)
{
    BR_CLEANUP_WALK struct br_walk w = {.top = -1};
    int r = open_walk(c->in, &w, err);
    if (r < 0)
        return r;
    const struct br_init_snapshot *s = c->base;
    struct br_walk_entry e;
    uint32_t i = 0;
    for (unsigned seen = 0; br_walk_next(&w, &e); seen++) {
        if (seen == BR_INIT_WALK_ENTRIES) {
            w.truncated = true;
            break;
        }
        c->truncated |= w.truncated;
        int order = -1;
        while (i < s->n && (order = path_order(item_path(s, i), e.path)) < 0)
            put_removed(c, &s->items[i++]);
        struct item now = item_of(&e.st);
        if (i == s->n || order > 0)
            put_added(c, &e);
        else if (differs(&s->items[i++], &now))
            put_change(c, e.path, "modified", now.mode, now.size,
                       clear_set_group(&e, &s->items[i - 1]));
    }
    c->truncated |= w.truncated;
    while (i < s->n)
        put_removed(c, &s->items[i++]);
    c->truncated |= s->truncated;
    return 0;
}

int br_init_snapshot(struct br_init *in, struct br_buf *out, struct br_err *err)
{
    struct changes c = {.in = in, .base = in->base, .out = out};
    br_buf_printf(out, "{\"changed\":[");
    int r = in->base ? compare(&c, err) : take(in, err);
    if (!c.base && in->base)
        c.truncated = in->base->truncated;
    br_buf_printf(out, "],\"truncated\":%s}", c.truncated || r < 0 ? "true" : "false");
    return r == -BR_E_LIMIT_EXCEEDED ? 0 : r; /* the answer says it */
}
