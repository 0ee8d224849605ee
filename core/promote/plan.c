/*
 * The comparison of three trees (promote.h): a walk over the lease, and then over what it lacks of
 * the record of what was copied. A file of the lease that is the very copy, and was never changed
 * since by the kernel's word, is not looked at; everything else is compared with what is in the
 * workspace now. Runs as the workspace's owner, without capabilities. No recursion.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "promote/promote_priv.h"

static const char why_changed[] = "it was changed in the workspace since the run began";
static const char why_appeared[] = "it appeared in the workspace since the run began";
static const char why_gone[] = "it was removed from the workspace since the run began";
static const char why_parent[] = "a directory above it is none in the workspace any more";
static const char why_holds[] =
    "the directory has something in the workspace that the run did not know";
static const char why_unreadable[] = "it cannot be read in the workspace";

struct level {
    DIR *dir;
    size_t path_len;
};

struct walk {
    struct br_promotion *p;
    struct level stack[BR_PROMOTE_DEPTH_MAX];
    unsigned depth;
    char path[BR_PATH_MAX];
    struct br_err *err;
};

/* ---- the list ---- */

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    while (n > 0 && top[n - 1] == '/')
        n--;
    return n > 0 && strncmp(path, top, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static bool is_skipped(const struct br_promotion *p, const char *path)
{
    for (unsigned i = 0; i < p->nskip; i++)
        if (is_below(path, p->skip[i]))
            return true;
    return false;
}

static struct br_change *add(struct br_promotion *p, const char *path, char kind,
                             struct br_err *err)
{
    if (p->nchanges == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct br_change *more =
            p->nchanges < BR_PROMOTE_CHANGES_MAX ? realloc(p->changes, cap * sizeof(*more)) : NULL;
        if (!more) {
            (void)br_err_set(err, BR_E_LIMIT_EXCEEDED,
                             "the run has changed more than %u files; nothing was promoted",
                             BR_PROMOTE_CHANGES_MAX);
            return NULL;
        }
        p->changes = more;
        p->cap = cap;
    }
    struct br_change *c = &p->changes[p->nchanges];
    *c = (struct br_change){.path = strdup(path), .kind = kind};
    if (!c->path) {
        (void)br_err_set(err, BR_E_NOMEM, "no memory for a change");
        return NULL;
    }
    p->nchanges++;
    return c;
}

static void blame(struct br_change *c, enum br_change_state state, const char *why)
{
    if (state > c->state) {
        c->state = (uint8_t)state;
        c->why = why;
    }
}

static void take_old(struct br_change *c, const struct stat *st)
{
    c->old_type = type_of(st->st_mode);
    c->old_mode = st->st_mode & 07777;
    c->old_size = (uint64_t)st->st_size;
    c->ino = st->st_ino;
    c->mtime_ns = ns_of(&st->st_mtim);
}

static void take_new(struct br_change *c, const struct stat *st)
{
    c->new_type = type_of(st->st_mode);
    c->new_mode = st->st_mode & 07777;
    c->new_size = (uint64_t)st->st_size;
}

/* ---- what cannot be promoted, and what may run ---- */

static bool odd_name(const char *path)
{
    size_t n = strlen(path);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    return br_buf_put_visible(&b, path, n, true) < 0 || b.len != n || memcmp(b.data, path, n) != 0;
}

/* Extended attributes of a file or directory of the lease. */
static uint32_t attributes(int lease, const char *path)
{
    char list[4096];
    BR_CLEANUP_FD int fd = promote_open(lease, path, O_RDONLY | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : flistxattr(fd, list, sizeof(list));
    if (n < 0)
        return errno == ERANGE ? BR_SURFACE_XATTR : 0;
    uint32_t surface = 0;
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(list + i) + 1)
        surface |=
            strcmp(list + i, "security.capability") == 0 ? BR_SURFACE_CAPABILITY : BR_SURFACE_XATTR;
    return surface;
}

static void judge_new(const struct br_promotion *p, struct br_change *c, const struct stat *st)
{
    mode_t m = st->st_mode;
    if (S_ISBLK(m) || S_ISCHR(m)) {
        c->surface |= BR_SURFACE_DEVICE;
        blame(c, BR_CHANGE_REFUSED, "a device is never promoted");
    } else if (S_ISFIFO(m)) {
        c->surface |= BR_SURFACE_FIFO;
        blame(c, BR_CHANGE_REFUSED, "a FIFO is never promoted");
    } else if (!S_ISREG(m) && !S_ISDIR(m) && !S_ISLNK(m)) {
        c->surface |= BR_SURFACE_SOCKET;
        blame(c, BR_CHANGE_REFUSED, "a socket is never promoted");
    }
    if (!S_ISLNK(m) && m & (S_ISUID | S_ISGID | S_ISVTX)) {
        c->surface |= BR_SURFACE_SETID;
        blame(c, BR_CHANGE_REFUSED, "a set-user-id, set-group-id or sticky bit is never promoted");
    }
    if (S_ISREG(m) && m & 0111)
        c->surface |= BR_SURFACE_EXECUTABLE;
    if (S_ISREG(m) && st->st_nlink > 1)
        c->surface |= BR_SURFACE_HARD_LINK;
    if (S_ISREG(m) || S_ISDIR(m))
        c->surface |= attributes(p->lease, c->path);
    if (c->surface & BR_SURFACE_CAPABILITY)
        blame(c, BR_CHANGE_REFUSED, "a file with capabilities is never promoted");
    if (S_ISLNK(m)) {
        bool stays = link_stays(p->lease, c->path);
        c->surface |= BR_SURFACE_SYMLINK | (stays ? 0 : BR_SURFACE_SYMLINK_OUT);
        if (!stays)
            blame(c, BR_CHANGE_REFUSED, "a link that leads out of the workspace is never promoted");
    }
}

/* ---- repositories that are not named like one ---- */

/* Will the directory have this afterwards? What the run has removed counts as well. */
static bool will_have(const struct br_promotion *p, const char *dir, const char *name)
{
    char path[BR_PATH_MAX + 16];
    struct stat st;
    snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", name);
    return promote_stat(p->workspace, path, &st) == 0 ||
           (!is_skipped(p, path) && promote_stat(p->lease, path, &st) == 0);
}

/* What git takes for a repository, wherever it is: these three, or a HEAD and where the other two
 * are. Of what kind they are does not matter, since links lead anywhere. */
static bool is_repository(const struct br_promotion *p, const char *dir)
{
    return will_have(p, dir, "HEAD") &&
           (will_have(p, dir, "commondir") ||
            (will_have(p, dir, "objects") && will_have(p, dir, "refs")));
}

/* Is it in such a directory, or one itself? `last` is the directory that was asked about before,
 * since the changes come in the order of their paths. */
struct last_dir {
    char path[BR_PATH_MAX];
    bool known, in;
};

static bool in_repository(const struct br_promotion *p, const struct br_change *c,
                          struct last_dir *last)
{
    char dir[BR_PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", c->path);
    char *slash = strrchr(dir, '/');
    *(slash ? slash : dir) = 0;
    if (!last->known || strcmp(last->path, dir) != 0) {
        snprintf(last->path, sizeof(last->path), "%s", dir);
        last->known = true;
        last->in = is_repository(p, "");
        for (size_t i = 0; *dir && !last->in; i++) {
            i += strcspn(dir + i, "/");
            char was = dir[i];
            dir[i] = 0;
            last->in = is_repository(p, dir);
            dir[i] = was;
            if (!was)
                break;
        }
    }
    return last->in || ((c->old_type == 'd' || c->new_type == 'd') && is_repository(p, c->path));
}

static void judge(const struct br_promotion *p, struct br_change *c, struct last_dir *last)
{
    bool repository = in_repository(p, c, last);
    c->surface |= br_surface_of_path(c->path) | (repository ? BR_SURFACE_GIT_CONFIG : 0);
    if (odd_name(c->path)) {
        c->surface |= BR_SURFACE_NAME;
        blame(c, BR_CHANGE_REFUSED, "a name with control characters is never promoted");
    }
    if ((repository || br_surface_is_git(c->path)) && !p->with_git)
        blame(c, BR_CHANGE_REFUSED, "a repository's own files are promoted with --git only");
    if (strncmp(c->path, BR_PROMOTE_STAGE, strlen(BR_PROMOTE_STAGE)) == 0)
        blame(c, BR_CHANGE_REFUSED, "this name is where promotions are prepared");
}

/* ---- comparing ---- */

static bool same_link(int a, int b, const char *path)
{
    char x[BR_PATH_MAX], y[BR_PATH_MAX];
    BR_CLEANUP_FD int fa = promote_open(a, path, O_PATH);
    BR_CLEANUP_FD int fb = promote_open(b, path, O_PATH);
    if (fa < 0 || fb < 0)
        return false;
    ssize_t n = readlinkat(fa, "", x, sizeof(x)), m = readlinkat(fb, "", y, sizeof(y));
    return n >= 0 && n == m && memcmp(x, y, (size_t)n) == 0;
}

/* -1: one cannot be read. */
static int same_content(int a, int b, const char *path)
{
    static char x[128 * 1024], y[128 * 1024];
    BR_CLEANUP_FD int fa = promote_open(a, path, O_RDONLY | O_NONBLOCK);
    BR_CLEANUP_FD int fb = promote_open(b, path, O_RDONLY | O_NONBLOCK);
    if (fa < 0 || fb < 0)
        return -1;
    for (off_t at = 0;;) {
        ssize_t n = pread(fa, x, sizeof(x), at), m = pread(fb, y, sizeof(y), at);
        if (n < 0 || m < 0)
            return -1;
        if (n != m || memcmp(x, y, (size_t)n) != 0)
            return 0;
        if (n == 0)
            return 1;
        at += n;
    }
}

/* Is the workspace's the same as the lease's, in all that would be promoted? */
static int same(const struct br_promotion *p, const char *path, const struct stat *lease,
                const struct stat *real)
{
    char type = type_of(lease->st_mode);
    if (type != type_of(real->st_mode))
        return 0;
    if (type == 'l')
        return same_link(p->lease, p->workspace, path);
    if ((lease->st_mode & 07777) != (real->st_mode & 0777))
        return 0;
    if (type != 'f')
        return type == 'd';
    return lease->st_size == real->st_size ? same_content(p->lease, p->workspace, path) : 0;
}

/* Is it still what was copied? Of a directory only that it is one counts. */
static bool is_base(const struct base_row *w, const struct stat *real)
{
    if (w->e.type != type_of(real->st_mode))
        return false;
    if (w->e.type == 'd')
        return true;
    return w->e.ino == real->st_ino && w->e.size == (uint64_t)real->st_size &&
           w->e.ctime_ns == ns_of(&real->st_ctim);
}

/* Did the run leave it as it was copied? It can make this say yes, and nothing is promoted then. */
static bool looks_untouched(const struct base_row *w, const struct stat *lease)
{
    return w->e.type == type_of(lease->st_mode) && w->e.size == (uint64_t)lease->st_size &&
           w->e.mtime_ns == ns_of(&lease->st_mtim) &&
           (w->e.type == 'l' || (w->e.mode & 0777) == (lease->st_mode & 07777));
}

/* Nothing is there, or what is above it is no directory: was it one? */
static const char *parent_trouble(const struct br_promotion *p, const char *path)
{
    char parent[BR_PATH_MAX];
    struct stat st;
    snprintf(parent, sizeof(parent), "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    const struct base_row *w = base_find(p, parent);
    if (!w || (w->e.type != 'd' && w->e.type != 'm'))
        return NULL; /* the run made it a directory, which is a change of its own */
    return promote_stat(p->workspace, parent, &st) < 0 || !S_ISDIR(st.st_mode) ? why_parent : NULL;
}

/* What is in the lease at w->path, and may have been changed. */
static int consider(struct walk *w, const struct base_row *base, const struct stat *lease)
{
    struct br_promotion *p = w->p;
    struct stat real;
    const char *why = NULL;
    int known = promote_stat(p->workspace, w->path, &real);
    if (known < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        why = why_unreadable;
    bool there = known == 0, as_copied = there && base && is_base(base, &real);
    bool both_dirs = there && S_ISDIR(real.st_mode) && S_ISDIR(lease->st_mode);
    int equal = there ? same(p, w->path, lease, &real) : 0;
    if (equal < 0)
        why = why_unreadable;
    if (equal > 0 || (base && !as_copied && looks_untouched(base, lease)))
        return 0; /* nothing to do, or only the workspace's was changed */
    if (both_dirs && (!base || (base->e.mode & 0777) == (lease->st_mode & 07777)))
        return 0; /* the mode of a directory is promoted only where the run changed it */
    if (!why)
        why = !base && there                ? why_appeared
              : base && there && !as_copied ? why_changed
              : base && !there              ? why_gone
              : !there                      ? parent_trouble(p, w->path)
                                            : NULL;
    struct br_change *c = add(p, w->path, there && as_copied ? '~' : base ? '~' : '+', w->err);
    if (!c)
        return -(int)w->err->code;
    if (there)
        take_old(c, &real);
    take_new(c, lease);
    judge_new(p, c, lease);
    if (why)
        blame(c, BR_CHANGE_CONFLICT, why);
    return 0;
}

static bool is_copy(const struct br_promotion *p, const struct base_row *w, const struct stat *st)
{
    return w && w->e.copy_ino == st->st_ino && w->e.copy_ino != 0 &&
           ns_of(&st->st_ctim) <= (int64_t)p->head.done_ns;
}

static int descend(struct walk *w, int dir, const char *name)
{
    if (w->depth == BR_PROMOTE_DEPTH_MAX)
        return br_err_set(
            w->err, BR_E_LIMIT_EXCEEDED,
            "the run has made directories nested deeper than %u; nothing was promoted",
            BR_PROMOTE_DEPTH_MAX);
    int fd = promote_open(dir, name, O_RDONLY | O_DIRECTORY);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
        (void)br_err_errno(w->err, BR_E_IO, "a directory of the run's workspace cannot be read");
        br_close(&fd);
        br_buf_put_visible(&b, w->path, strlen(w->path), true);
        return br_err_wrap(w->err, "'%.512s'", br_buf_cstr(&b) ? br_buf_cstr(&b) : "");
    }
    w->stack[w->depth++] = (struct level){.dir = d, .path_len = strlen(w->path)};
    return 0;
}

static int visit(struct walk *w, int dir, const char *name)
{
    struct stat st;
    size_t at = w->stack[w->depth - 1].path_len, n = strlen(name);
    if (at + n + 2 > sizeof(w->path))
        return br_err_set(w->err, BR_E_LIMIT_EXCEEDED,
                          "the run has made a path longer than %u bytes; nothing was promoted",
                          BR_PATH_MAX - 1);
    snprintf(w->path + at, sizeof(w->path) - at, "%s%s", at ? "/" : "", name);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return br_err_errno(w->err, BR_E_IO, "the run's workspace cannot be read");
    struct base_row *base = base_find(w->p, w->path);
    if (base)
        base->seen = true;
    if (base && base->e.type == 'm' && S_ISDIR(st.st_mode) && is_copy(w->p, base, &st))
        return 0;
    int r = is_copy(w->p, base, &st) ? 0 : consider(w, base, &st);
    return r == 0 && S_ISDIR(st.st_mode) ? descend(w, dir, name) : r;
}

static int walk_lease(struct walk *w)
{
    int r = descend(w, w->p->lease, ".");
    while (r == 0 && w->depth > 0) {
        struct level *l = &w->stack[w->depth - 1];
        w->path[l->path_len] = 0;
        errno = 0;
        struct dirent *e = readdir(l->dir);
        if (!e && errno)
            r = br_err_errno(w->err, BR_E_IO, "the run's workspace cannot be read");
        else if (!e)
            closedir(w->stack[--w->depth].dir);
        else if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = visit(w, dirfd(l->dir), e->d_name);
    }
    while (w->depth > 0)
        closedir(w->stack[--w->depth].dir);
    return r;
}

/* ---- what the lease lacks ---- */

/* Everything that is in the workspace's directory must have been known to the run, and be gone. */
static bool dir_is_known(const struct br_promotion *p, const char *path)
{
    char child[BR_PATH_MAX + NAME_MAX + 2];
    bool known = true;
    int fd = promote_open(p->workspace, path, O_RDONLY | O_DIRECTORY);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        br_close(&fd);
        return false;
    }
    for (struct dirent *e; known && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
        const struct base_row *w = base_find(p, child);
        known = w && !w->seen && w->e.type != 'm' && !is_skipped(p, child);
    }
    closedir(d);
    return known;
}

static int add_removed(struct br_promotion *p, struct base_row *w, struct br_err *err)
{
    char path[BR_PATH_MAX];
    struct stat real;
    memcpy(path, w->path, w->len);
    path[w->len] = 0;
    if (promote_stat(p->workspace, path, &real) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0; /* gone there too */
    struct br_change *c = add(p, path, '-', err);
    if (!c)
        return -(int)err->code;
    c->old_type = w->e.type;
    if (promote_stat(p->workspace, path, &real) < 0) {
        blame(c, BR_CHANGE_CONFLICT, why_parent);
        return 0;
    }
    take_old(c, &real);
    if (w->e.type == 'm')
        blame(c, BR_CHANGE_REFUSED, "something is mounted there");
    else if (!is_base(w, &real))
        blame(c, BR_CHANGE_CONFLICT, why_changed);
    else if (w->e.type == 'd' && !dir_is_known(p, path))
        blame(c, BR_CHANGE_CONFLICT, why_holds);
    return 0;
}

/* A directory that becomes something else has to be empty as well. */
static void check_replaced(struct br_promotion *p)
{
    for (size_t i = 0; i < p->nchanges; i++) {
        struct br_change *c = &p->changes[i];
        if (c->kind == '~' && c->old_type == 'd' && c->new_type != 'd' && !dir_is_known(p, c->path))
            blame(c, BR_CHANGE_CONFLICT, why_holds);
    }
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct br_change *)a)->path, ((const struct br_change *)b)->path);
}

static void leave_out_skipped(struct br_promotion *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->nchanges; i++) {
        if (is_skipped(p, p->changes[i].path)) {
            free(p->changes[i].path);
            p->skipped++;
        } else {
            p->changes[kept++] = p->changes[i];
        }
    }
    p->nchanges = kept;
}

int br_promotion_plan(struct br_promotion *p, struct br_err *err)
{
    struct last_dir last = {.known = false};
    struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return br_err_set(err, BR_E_NOMEM, "no memory to compare workspaces");
    w->p = p;
    w->err = err;
    int r = base_load(p, err);
    if (r == 0)
        r = walk_lease(w);
    free(w);
    for (size_t i = 0; r == 0 && i < p->nrows; i++)
        if (!p->rows[i].seen)
            r = add_removed(p, &p->rows[i], err);
    if (r < 0)
        return r;
    check_replaced(p);
    leave_out_skipped(p);
    if (p->nchanges)
        qsort(p->changes, p->nchanges, sizeof(*p->changes), by_path);
    for (size_t i = 0; i < p->nchanges; i++) {
        judge(p, &p->changes[i], &last);
        p->conflicts += p->changes[i].state == BR_CHANGE_CONFLICT;
        p->refused += p->changes[i].state == BR_CHANGE_REFUSED;
    }
    return 0;
}

void br_promotion_free(struct br_promotion *p)
{
    for (size_t i = 0; i < p->nchanges; i++)
        free(p->changes[i].path);
    free(p->changes);
    free(p->rows);
    br_buf_free(&p->base_text);
    p->changes = NULL;
    p->rows = NULL;
    p->nchanges = p->nrows = p->cap = 0;
}
