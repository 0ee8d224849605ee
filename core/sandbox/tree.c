/*
 * Trees that become writable, and workspaces, seen entry by entry. Called by bridle-launch before
 * and during a launch, and by bridled to choose what a run without a manifest may write. Trusts
 * the descriptors that it is given; what lies below was prepared by whoever could write there, and
 * may change at any moment: every step opens by descriptor, beneath, without following links, and
 * compares what it opened with what it saw.
 *
 * No recursion: one frame a level, with the sorted names of its directory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/tree.h"

#define NAMES_MAX (256u * 1024) /* of files with several links, for messages */

/* One name of a file that has several. */
struct br_tree_link {
    uint64_t ino;
    uint32_t dev_major, dev_minor; /* the same for all, but on overlayfs */
    uint32_t nlink;
    uint32_t name; /* where in names, or UINT32_MAX */
};

struct names {
    char *text; /* for each entry: d_type, name, NUL */
    size_t len, cap;
    uint32_t *at;
    uint32_t n, at_cap;
};

struct frame {
    int fd;
    uint32_t path_len; /* of the walk's path without this directory's entries */
    uint32_t next;     /* entry to look at */
    bool git;          /* inside of a `.git`: only sockets and FIFOs matter */
    bool pinned;       /* a `.git` was found below it, and it is covered */
    struct names names;
};

struct walk {
    struct br_tree *t;
    const struct br_allowed_root *root; /* NULL: a search */
    const struct br_allowed *granted;   /* the directory that is walked, or those to leave out */
    uint32_t ngranted;
    bool within_other;
    enum br_code code;
    struct br_sha256 hash;
    uint32_t entries;
    uint32_t depth; /* frames in use */
    struct frame frames[BR_TREE_DEPTH_MAX];
    char path[BR_PATH_MAX];
};

struct dirent64_ { /* as getdents64(2) says */
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

void br_tree_init(struct br_tree *t, struct br_covers *covers, uint32_t entries_max)
{
    *t = (struct br_tree){.covers = covers, .entries_max = entries_max};
    br_buf_init(&t->names, NAMES_MAX);
    covers->n = covers->used = 0;
}

void br_tree_free(struct br_tree *t)
{
    free(t->links);
    br_buf_free(&t->names);
    *t = (struct br_tree){.covers = NULL};
}

/* ---- refusals ---- */

struct shown {
    char s[512];
};

static struct shown show(const char *path)
{
    struct shown v = {.s = "?"};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    if (br_buf_put_visible(&b, path, strnlen(path, BR_PATH_MAX), true) == 0 && br_buf_cstr(&b))
        snprintf(v.s, sizeof(v.s), "%s", br_buf_cstr(&b));
    v.s[br_utf8_floor(v.s, strlen(v.s))] = 0;
    return v;
}

/* "the allowed path 'dir/..' holds 'dir/x', which WHY" */
static int refuse(const struct walk *w, const char *why, struct br_err *err)
{
    if (!w->root)
        return br_err_set(err, w->code, "'%s' in the workspace %s", show(w->path).s, why);
    return br_err_set(err, w->code, "the allowed path '%s' holds '%s', which %s",
                      show(w->granted->rel).s, show(w->path).s, why);
}

static int too_many(const struct walk *w, struct br_err *err)
{
    if (!w->root)
        return br_err_set(err, w->code,
                          "the workspace has more than %u entries, so it cannot be searched for "
                          "sockets; nothing was started. Use a smaller directory, or a profile "
                          "with a workspace lease",
                          w->t->entries_max);
    return br_err_set(err, w->code,
                      "the allowed path '%s' and those before it have more than %u entries; "
                      "nothing was started. Allow smaller directories, or use a profile with a "
                      "workspace lease",
                      show(w->granted->rel).s, w->t->entries_max);
}

static int nomem(struct br_err *err)
{
    return br_err_set(err, BR_E_NOMEM, "no memory for the entries of a directory");
}

/* ---- one directory ---- */

static bool grow(void **p, size_t *cap, size_t need, size_t item)
{
    if (need <= *cap)
        return true;
    size_t to = *cap ? *cap * 2 : 64;
    while (to < need)
        to *= 2;
    void *q = realloc(*p, to * item);
    if (!q)
        return false;
    *p = q;
    *cap = to;
    return true;
}

static bool add_name(struct names *n, const struct dirent64_ *d)
{
    size_t len = strlen(d->name) + 2, at_cap = n->at_cap;
    void *text = n->text, *at = n->at;
    bool ok = grow(&text, &n->cap, n->len + len, 1);
    n->text = text;
    ok = ok && grow(&at, &at_cap, (size_t)n->n + 1, sizeof(*n->at));
    n->at = at;
    n->at_cap = (uint32_t)at_cap;
    if (!ok)
        return false;
    n->at[n->n++] = (uint32_t)n->len;
    n->text[n->len] = (char)d->type;
    memcpy(n->text + n->len + 1, d->name, len - 1);
    n->len += len;
    return true;
}

static int compare_names(const void *a, const void *b, void *text)
{
    const char *t = text;
    return strcmp(t + *(const uint32_t *)a + 1, t + *(const uint32_t *)b + 1);
}

static bool matters(const struct walk *w, const struct frame *f, uint8_t type)
{
    return (w->root && !f->git) || type == DT_DIR || type == DT_UNKNOWN || type == DT_SOCK ||
           type == DT_FIFO;
}

static int list(struct walk *w, struct frame *f, struct br_err *err)
{
    _Alignas(struct dirent64_) static char buf[64 * 1024];
    for (;;) {
        long n = syscall(SYS_getdents64, f->fd, buf, sizeof(buf));
        if (n < 0)
            return refuse(w, "could not be read; nothing was started", err);
        if (n == 0)
            break;
        for (long at = 0; at < n;) {
            const struct dirent64_ *d = (const void *)(buf + at);
            at += d->reclen;
            if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
                continue;
            if (w->t->entries >= w->t->entries_max)
                return too_many(w, err);
            w->t->entries++;
            if (matters(w, f, d->type) && !add_name(&f->names, d))
                return nomem(err);
        }
    }
    if (w->root && f->names.n) /* the order of readdir(3) is the file system's own business */
        qsort_r(f->names.at, f->names.n, sizeof(*f->names.at), compare_names, f->names.text);
    return 0;
}

/* ---- the stack ---- */

static void pop(struct walk *w)
{
    struct frame *f = &w->frames[--w->depth];
    br_close(&f->fd);
    free(f->names.text);
    free(f->names.at);
    w->path[f->path_len] = 0;
}

/* Takes `fd`. The walk's path names the directory. */
static int push(struct walk *w, int fd, uint32_t path_len, bool git, struct br_err *err)
{
    if (w->depth == BR_TREE_DEPTH_MAX) {
        close(fd);
        return refuse(w,
                      "is more than 128 levels deep; nothing was started. Allow smaller "
                      "directories, or use a profile with a workspace lease",
                      err);
    }
    w->frames[w->depth] = (struct frame){.fd = fd, .path_len = path_len, .git = git};
    return list(w, &w->frames[w->depth++], err);
}

static int open_dir(const struct walk *w, int dirfd, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | (w->root ? RESOLVE_NO_XDEV : 0)};
    for (int i = 0;; i++) {
        int fd = (int)syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR) || i == 16)
            return fd;
    }
}

static int look(int dirfd, const char *name, struct statx *st)
{
    return statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH),
                 STATX_TYPE | STATX_INO | STATX_NLINK | STATX_MNT_ID, st);
}

static bool is_left_out(const struct walk *w)
{
    for (uint32_t i = 0; i < w->ngranted; i++)
        if (w->granted[i].dir && strcmp(w->granted[i].rel, w->path) == 0)
            return true;
    return false;
}

/* ---- what is found ---- */

/* The first `len` bytes of the walk's path. */
static int cover_at(struct walk *w, enum br_cover_kind kind, const struct statx *st, size_t len,
                    struct br_err *err)
{
    struct br_covers *c = w->t->covers;
    if (c->n == BR_COVERS_MAX || len + 1 > sizeof(c->text) - c->used)
        return br_err_set(err, w->code,
                          "'%s' is one too many of the sockets, FIFOs and nested repositories (and "
                          "directories above these) that can be covered in a sandbox (%u); nothing "
                          "was started. Use a smaller directory, or a profile with a workspace "
                          "lease",
                          show(w->path).s, BR_COVERS_MAX);
    memcpy(c->text + c->used, w->path, len);
    c->text[c->used + len] = 0;
    c->items[c->n++] = (struct br_cover){.kind = (uint8_t)kind,
                                         .dev_major = st->stx_dev_major,
                                         .dev_minor = st->stx_dev_minor,
                                         .ino = st->stx_ino,
                                         .path = c->used};
    c->used += (uint32_t)len + 1;
    return 0;
}

static int cover(struct walk *w, enum br_cover_kind kind, const struct statx *st,
                 struct br_err *err)
{
    return cover_at(w, kind, st, strlen(w->path), err);
}

/* The directories above a `.git` named `name`, but for the granted one, which is a mount anyway. */
static int pin_above(struct walk *w, const char *name, struct br_err *err)
{
    for (uint32_t i = 1; i < w->depth; i++) {
        struct frame *f = &w->frames[i];
        struct statx st;
        size_t len =
            i + 1 < w->depth ? w->frames[i + 1].path_len : strlen(w->path) - strlen(name) - 1;
        if (f->pinned)
            continue;
        if (look(f->fd, "", &st) < 0)
            return refuse(w, "could not be examined; nothing was started", err);
        int r = cover_at(w, BR_COVER_PIN, &st, len, err);
        if (r < 0)
            return r;
        f->pinned = true;
    }
    return 0;
}

static int add_link(struct walk *w, const struct statx *st, struct br_err *err)
{
    struct br_tree *t = w->t;
    void *links = t->links;
    size_t len = strlen(w->path) + 1, at = t->names.len;
    bool fits = len <= t->names.max - at;
    if (!grow(&links, &t->links_cap, t->nlinks + 1, sizeof(*t->links)))
        return nomem(err);
    t->links = links;
    if (fits && br_buf_put(&t->names, w->path, len) < 0)
        return nomem(err);
    t->links[t->nlinks++] = (struct br_tree_link){.dev_major = st->stx_dev_major,
                                                  .dev_minor = st->stx_dev_minor,
                                                  .ino = st->stx_ino,
                                                  .nlink = st->stx_nlink,
                                                  .name = fits ? (uint32_t)at : UINT32_MAX};
    return 0;
}

static void hash_entry(struct walk *w, const char *name, const struct statx *st)
{
    uint8_t head[16];
    uint16_t type = st->stx_mode & S_IFMT, len = (uint16_t)strlen(name);
    uint32_t nlink = st->stx_nlink;
    memcpy(head, &st->stx_ino, 8);
    memcpy(head + 8, &nlink, 4);
    memcpy(head + 12, &type, 2);
    memcpy(head + 14, &len, 2);
    br_sha256_put(&w->hash, head, sizeof(head));
    br_sha256_put(&w->hash, name, len);
    w->entries++;
}

/* An entry of a granted tree, and not of a `.git` in it. */
static int examine_granted(struct walk *w, const char *name, const struct statx *st,
                           struct br_err *err)
{
    static const char fix[] = "; nothing was started. Remove it, or allow a directory beside it";
    char why[160];
    const char *what = NULL;
    bool hide = false;
    switch (st->stx_mode & S_IFMT) {
    case S_IFDIR:
    case S_IFREG:
    case S_IFLNK:
        break;
    case S_IFSOCK: /* an earlier run may have left them */
    case S_IFIFO:
        hide = true;
        break;
    default:
        what = "is a device";
    }
    if (!br_allowed_same_fs(w->root, st->stx_mode, st->stx_dev_major, st->stx_dev_minor))
        what = "is a mount below it, or lies on another file system";
    else if (st->stx_mnt_id != w->root->mnt_id)
        what = "is a mount below it";
    bool git = strcasecmp(name, ".git") == 0;
    if (!what && git && S_ISLNK(st->stx_mode))
        what = "is a symbolic link, so it cannot be kept read-only";
    if (what) {
        snprintf(why, sizeof(why), "%s%s", what, fix);
        return refuse(w, why, err);
    }
    hash_entry(w, name, st);
    if (hide)
        return cover(w, BR_COVER_HIDE, st, err);
    int r = git ? pin_above(w, name, err) : 0;
    if (r < 0)
        return r;
    /* a set-user-id program would stay one when it is changed through a shared mapping */
    if (git || (S_ISREG(st->stx_mode) && st->stx_mode & S_ISUID))
        return cover(w, BR_COVER_READ_ONLY, st, err);
    return S_ISREG(st->stx_mode) && st->stx_nlink > 1 && !w->within_other ? add_link(w, st, err)
                                                                          : 0;
}

/* Go down. In a search, what went away or may not be entered is of no use to the sandbox either. */
static int enter(struct walk *w, const struct frame *f, const char *name, const struct statx *st,
                 uint32_t path_len, bool git, struct br_err *err)
{
    struct statx now;
    int fd = open_dir(w, f->fd, name);
    bool strict = w->root && !f->git;
    if (fd < 0 && !strict && errno != EMFILE && errno != ENFILE && errno != ENOMEM) {
        if (errno != EACCES || faccessat(f->fd, name, X_OK, AT_EACCESS) < 0)
            return 1;
        return refuse(w,
                      "can be entered but not read, so it cannot be searched for sockets; nothing "
                      "was started. chmod u+r it",
                      err);
    }
    if (fd < 0)
        return refuse(w, "could not be opened; nothing was started. Make it readable", err);
    if (strict && (look(fd, "", &now) < 0 || now.stx_ino != st->stx_ino)) {
        close(fd);
        return refuse(w, "was replaced while it was examined; nothing was started", err);
    }
    return push(w, fd, path_len, git, err);
}

static int set_path(struct walk *w, const char *name, uint32_t *before, struct br_err *err)
{
    size_t have = strlen(w->path), len = strlen(name);
    *before = (uint32_t)have;
    if (have + len + 2 > sizeof(w->path))
        return refuse(w, "has a path of more than 4095 bytes below it; nothing was started", err);
    if (have)
        w->path[have++] = '/';
    memcpy(w->path + have, name, len + 1);
    return 0;
}

/* The next entry of the innermost directory. */
static int step(struct walk *w, struct frame *f, struct br_err *err)
{
    const char *entry = f->names.text + f->names.at[f->next++], *name = entry + 1;
    bool plain = w->root && !f->git;
    uint8_t type = (uint8_t)*entry;
    struct statx st = {.stx_mode = 0};
    uint32_t before;
    int r = set_path(w, name, &before, err);
    if (r < 0)
        return r;
    if (plain || type != DT_DIR) {
        if (look(f->fd, name, &st) < 0) {
            if (plain)
                return refuse(w, "went away while it was examined; nothing was started", err);
            st.stx_mode = 0; /* gone: nothing to hide */
        }
        type = IFTODT(st.stx_mode);
    }
    if (plain)
        r = examine_granted(w, name, &st, err);
    else if (type == DT_SOCK || type == DT_FIFO)
        r = cover(w, BR_COVER_HIDE, &st, err);
    if (r == 0 && type == DT_DIR && !(!w->root && is_left_out(w))) {
        bool git = f->git || (w->root && strcasecmp(name, ".git") == 0);
        uint32_t depth = w->depth;
        r = enter(w, f, name, &st, before, git, err);
        if (r == 0 && w->depth > depth)
            return 0; /* the path stays */
    }
    if (r >= 0)
        w->path[before] = 0;
    return r < 0 ? r : 0;
}

static int run(struct walk *w, int fd, struct br_err *err)
{
    static const uint8_t up[1] = {'^'};
    uint32_t len = (uint32_t)strlen(w->path);
    int r = push(w, fd, len, false, err);
    while (r == 0 && w->depth > 0) {
        struct frame *f = &w->frames[w->depth - 1];
        if (f->next < f->names.n) {
            r = step(w, f, err);
        } else {
            if (w->root && !f->git)
                br_sha256_put(&w->hash, up, sizeof(up));
            pop(w);
        }
    }
    while (w->depth > 0)
        pop(w);
    return r;
}

/* ---- what is called ---- */

int br_tree_fingerprint(struct br_tree *t, const struct br_allowed_root *root,
                        const struct br_allowed *a, bool within_other, uint32_t *entries,
                        uint8_t sha256[32], struct br_err *err)
{
    BR_CLEANUP_FREE struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return nomem(err);
    w->t = t;
    w->root = root;
    w->granted = a;
    w->within_other = within_other;
    w->code = BR_E_INVALID_ALLOWED_PATH;
    memcpy(w->path, a->rel, sizeof(w->path));
    br_sha256_init(&w->hash);
    int fd = open_dir(w, a->fd, ".");
    if (fd < 0)
        return refuse(w, "could not be opened; nothing was started. Make it readable", err);
    int r = run(w, fd, err);
    if (r < 0)
        return r;
    *entries = w->entries;
    br_sha256_end(&w->hash, sha256);
    return 0;
}

static int compare_links(const void *a, const void *b)
{
    const struct br_tree_link *x = a, *y = b;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    if (x->dev_major != y->dev_major)
        return x->dev_major < y->dev_major ? -1 : 1;
    return x->dev_minor < y->dev_minor ? -1 : x->dev_minor > y->dev_minor;
}

int br_tree_check_links(struct br_tree *t, struct br_err *err)
{
    if (t->nlinks)
        qsort(t->links, t->nlinks, sizeof(*t->links), compare_links);
    for (size_t i = 0, n; i < t->nlinks; i += n) {
        const struct br_tree_link *l = &t->links[i];
        uint32_t most = 0;
        for (n = 0; i + n < t->nlinks && compare_links(&t->links[i + n], l) == 0; n++)
            most = t->links[i + n].nlink > most ? t->links[i + n].nlink : most;
        if (n < most)
            return br_err_set(
                err, BR_E_INVALID_ALLOWED_PATH,
                "'%s' in an allowed path has %u hard links of which %zu are in allowed paths, so "
                "writing it would also change a file elsewhere; nothing was started. Copy it to "
                "break the link, or use a profile with a workspace lease",
                l->name == UINT32_MAX ? "a file" : show((const char *)t->names.data + l->name).s,
                most, n);
    }
    return 0;
}

int br_tree_search(struct br_tree *t, int ws_fd, const struct br_allowed *granted, uint32_t n,
                   struct br_err *err)
{
    BR_CLEANUP_FREE struct walk *w = calloc(1, sizeof(*w));
    if (!w)
        return nomem(err);
    w->t = t;
    w->granted = granted;
    w->ngranted = n;
    w->code = BR_E_INVALID_WORKSPACE;
    int fd = open_dir(w, ws_fd, ".");
    if (fd < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE,
                            "the workspace could not be read; nothing was started");
    return run(w, fd, err);
}
