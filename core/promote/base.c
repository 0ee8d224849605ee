/*
 * The record of what was copied into a lease, and opening below a directory. The record was written
 * by the launcher's child before anything ran; it is checked all the same, since a file can be
 * damaged. Called by plan.c and apply.c.
 */
#include <errno.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "promote/promote_priv.h"

int promote_open(int dir, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

int promote_open_parent(int dir, const char *path, const char **name)
{
    char parent[BR_PATH_MAX];
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash)
        return promote_open(dir, ".", O_RDONLY | O_DIRECTORY);
    size_t n = (size_t)(slash - path);
    if (n >= sizeof(parent)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, n);
    parent[n] = 0;
    return promote_open(dir, parent, O_RDONLY | O_DIRECTORY);
}

int promote_stat(int dir, const char *path, struct stat *st)
{
    BR_CLEANUP_FD int fd = promote_open(dir, path, O_PATH);
    return fd < 0 ? -1 : fstat(fd, st);
}

static int compare_rows(const void *a, const void *b)
{
    const struct base_row *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int r = memcmp(x->path, y->path, n);
    return r ? r : (int)x->len - (int)y->len;
}

/* A path as the copy makes them: no empty part, no "." and no "..". */
static bool path_ok(const char *p, size_t n)
{
    size_t start = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && p[i] != '/') {
            if (p[i] == 0)
                return false;
            continue;
        }
        size_t len = i - start;
        if (len == 0 || (len == 1 && p[start] == '.') ||
            (len == 2 && p[start] == '.' && p[start + 1] == '.'))
            return false;
        start = i + 1;
    }
    return n < BR_PATH_MAX;
}

static int damaged(struct br_err *err)
{
    return br_err_set(err, BR_E_STORE_FAILED,
                      "the record of what was copied for the run is damaged; nothing was promoted");
}

int base_load(struct br_promotion *p, struct br_err *err)
{
    br_buf_init(&p->base_text, BR_PROMOTE_BASE_MAX);
    if (lseek(p->base, 0, SEEK_SET) < 0)
        return br_err_errno(err, BR_E_IO, "the record of what was copied cannot be read");
    int r = br_read_all(p->base, &p->base_text, "the record of what was copied", err);
    if (r < 0)
        return r;
    const uint8_t *at = p->base_text.data, *end = at + p->base_text.len;
    if (p->base_text.len < sizeof(p->head) || memcmp(at, BR_BASE_MAGIC, sizeof(p->head.magic)) != 0)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "the workspace of the run was never copied to its end; there is nothing "
                          "to promote");
    memcpy(&p->head, at, sizeof(p->head));
    at += sizeof(p->head);
    if (p->head.entries > p->base_text.len / sizeof(struct br_base_entry))
        return damaged(err);
    p->rows = calloc(p->head.entries + 1, sizeof(*p->rows));
    if (!p->rows)
        return br_err_set(err, BR_E_NOMEM, "no memory for the record of what was copied");
    for (; p->nrows < p->head.entries; p->nrows++) {
        struct base_row *w = &p->rows[p->nrows];
        if ((size_t)(end - at) < sizeof(w->e))
            return damaged(err);
        memcpy(&w->e, at, sizeof(w->e));
        at += sizeof(w->e);
        if ((size_t)(end - at) < w->e.path_len || !path_ok((const char *)at, w->e.path_len) ||
            !memchr("fdlm", w->e.type, 4))
            return damaged(err);
        w->path = (const char *)at;
        w->len = w->e.path_len;
        at += w->len;
    }
    if (at != end)
        return damaged(err);
    qsort(p->rows, p->nrows, sizeof(*p->rows), compare_rows);
    return 0;
}

struct base_row *base_find(const struct br_promotion *p, const char *path)
{
    size_t n = strlen(path);
    if (n >= BR_PATH_MAX || p->nrows == 0)
        return NULL;
    const struct base_row key = {.path = path, .len = (uint16_t)n};
    return bsearch(&key, p->rows, p->nrows, sizeof(*p->rows), compare_rows);
}
