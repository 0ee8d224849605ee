/*
 * All changes, or none (promote.h). What is new is made ready in a directory of the workspace, the
 * stage; then the journal says that it happens; then each step is one rename(2), which puts one
 * thing in its place and what was there into the stage. So each step can be told done from not done
 * by what the stage holds, and can be taken back. A step that finds something else than was
 * compared puts it back, and all steps are taken back. Runs as the workspace's owner: a link that
 * somebody swaps in meets a user who could have done the same by hand, and is not followed.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "promote/promote_priv.h"

enum op_kind {
    OP_TAKE = 'T',     /* what is there goes into the stage */
    OP_EXCHANGE = 'X', /* and what is in the stage takes its place, at once */
    OP_PLACE = 'P',    /* what is in the stage goes where nothing is */
    OP_MODE = 'M',     /* of a directory, when it is complete */
};

/* In the journal, before its path. */
struct op {
    char kind; /* enum op_kind */
    char dir;  /* TAKE: a directory, which must be empty */
    uint16_t path_len;
    uint32_t index; /* its name in the stage */
    uint32_t old_mode, new_mode;
    uint64_t old_ino, old_size, new_ino;
    int64_t old_mtime, new_ctime;
};

struct ops {
    struct op *ops;
    char **paths; /* owned */
    size_t n, cap;
};

void (*br_promotion_step)(void);

static void step(void)
{
    if (br_promotion_step)
        br_promotion_step();
}

static void ops_free(struct ops *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->paths[i]);
    free(o->paths);
    free(o->ops);
    *o = (struct ops){.n = 0};
}

static int ops_add(struct ops *o, const struct op *op, const char *path, struct br_err *err)
{
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 64;
        struct op *ops = realloc(o->ops, cap * sizeof(*ops));
        if (ops)
            o->ops = ops;
        char **paths = realloc(o->paths, cap * sizeof(*paths));
        if (paths)
            o->paths = paths;
        if (!ops || !paths)
            return br_err_set(err, BR_E_NOMEM, "no memory for a promotion");
        o->cap = cap;
    }
    o->ops[o->n] = *op;
    o->ops[o->n].path_len = (uint16_t)strlen(path);
    o->paths[o->n] = strdup(path);
    if (!o->paths[o->n])
        return br_err_set(err, BR_E_NOMEM, "no memory for a promotion");
    o->n++;
    return 0;
}

static const char *shown(const char *path, char dst[256])
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    br_buf_put_visible(&b, path, strlen(path), true);
    snprintf(dst, 256, "%.240s", br_buf_cstr(&b) ? br_buf_cstr(&b) : "?");
    return dst;
}

static int failed(const char *path, const char *what, struct br_err *err)
{
    char text[256];
    return br_err_errno(err, BR_E_FAILED, "'%s' could not be %s", shown(path, text), what);
}

static int in_the_way(const char *path, struct br_err *err)
{
    char text[256];
    return br_err_set(err, BR_E_IN_USE,
                      "'%s' was changed in the workspace while the run was promoted",
                      shown(path, text));
}

/* ---- the stage ---- */

static void name_of(uint32_t index, char name[16])
{
    snprintf(name, 16, "%u", index);
}

static int open_stage(const struct br_promotion *p)
{
    return promote_open(p->workspace, p->stage, O_RDONLY | O_DIRECTORY);
}

static int remove_stage(const struct br_promotion *p, struct br_err *err)
{
    int fd = open_stage(p);
    if (fd < 0 && errno == ENOENT)
        return 0;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        br_close(&fd);
        return failed(p->stage, "removed", err);
    }
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        step();
        if (unlinkat(dirfd(d), e->d_name, 0) < 0 &&
            (errno != EISDIR || unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) < 0))
            r = failed(p->stage, "emptied", err);
    }
    closedir(d);
    step();
    if (r == 0 && unlinkat(p->workspace, p->stage, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = failed(p->stage, "removed", err);
    return r;
}

static int copy_file(const struct br_promotion *p, int stage, const char *name,
                     const struct br_change *c, struct br_err *err)
{
    static char data[256 * 1024];
    BR_CLEANUP_FD int in = promote_open(p->lease, c->path, O_RDONLY | O_NONBLOCK);
    if (in < 0)
        return failed(c->path, "read", err);
    BR_CLEANUP_FD int out =
        openat(stage, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return failed(c->path, "made ready", err);
    for (off_t at = 0;;) {
        ssize_t n = pread(in, data, sizeof(data), at);
        if (n < 0)
            return failed(c->path, "read", err);
        if (n == 0)
            break;
        if (br_write_all(out, data, (size_t)n) < 0)
            return failed(c->path, "made ready", err);
        at += n;
    }
    return fchmod(out, c->new_mode & 0777) < 0 ? failed(c->path, "made ready", err) : 0;
}

static int make_ready(const struct br_promotion *p, int stage, const struct br_change *c,
                      struct op *op, struct br_err *err)
{
    char name[16], target[BR_PATH_MAX];
    struct stat st;
    int r = 0;
    name_of(op->index, name);
    step();
    if (c->new_type == 'f') {
        r = copy_file(p, stage, name, c, err);
    } else if (c->new_type == 'd') {
        if (mkdirat(stage, name, 0700) < 0)
            r = failed(c->path, "made ready", err);
    } else {
        BR_CLEANUP_FD int fd = promote_open(p->lease, c->path, O_PATH);
        ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        if (n <= 0 || symlinkat(target, stage, name) < 0)
            r = failed(c->path, "made ready", err);
    }
    if (r == 0 && fstatat(stage, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = failed(c->path, "made ready", err);
    op->new_ino = r == 0 ? st.st_ino : 0;
    op->new_ctime = r == 0 ? ns_of(&st.st_ctim) : 0;
    return r;
}

/* ---- which steps ---- */

static int add_take(struct ops *o, const struct br_change *c, uint32_t index, struct br_err *err)
{
    const struct op op = {.kind = OP_TAKE,
                          .dir = c->old_type == 'd',
                          .index = index,
                          .old_ino = c->ino,
                          .old_size = c->old_size,
                          .old_mtime = c->mtime_ns};
    return ops_add(o, &op, c->path, err);
}

static bool swaps(const struct br_change *c)
{
    return c->kind == '~' && c->old_type != 'd' && c->new_type != 'd';
}

static int add_new(struct ops *o, const struct br_promotion *p, int stage,
                   const struct br_change *c, uint32_t index, struct br_err *err)
{
    struct op op = {.kind = swaps(c) ? OP_EXCHANGE : OP_PLACE,
                    .index = index,
                    .old_ino = c->ino,
                    .old_size = c->old_size,
                    .old_mtime = c->mtime_ns};
    int r = make_ready(p, stage, c, &op, err);
    return r < 0 ? r : ops_add(o, &op, c->path, err);
}

/* First what goes, the innermost first; then what comes, the outermost first; then the modes of
 * directories, since one may forbid writing in it. */
static int list_steps(const struct br_promotion *p, int stage, struct ops *o, struct br_err *err)
{
    int r = 0;
    for (size_t i = p->nchanges; r == 0 && i-- > 0;) {
        const struct br_change *c = &p->changes[i];
        bool both_dirs = c->old_type == 'd' && c->new_type == 'd';
        if (c->kind == '-' || (c->kind == '~' && !swaps(c) && !both_dirs))
            r = add_take(o, c, (uint32_t)(2 * i + 1), err);
    }
    for (size_t i = 0; r == 0 && i < p->nchanges; i++) {
        const struct br_change *c = &p->changes[i];
        bool both_dirs = c->old_type == 'd' && c->new_type == 'd';
        if (c->kind != '-' && !both_dirs)
            r = add_new(o, p, stage, c, (uint32_t)(2 * i), err);
    }
    for (size_t i = p->nchanges; r == 0 && i-- > 0;) {
        const struct br_change *c = &p->changes[i];
        const struct op op = {.kind = OP_MODE,
                              .old_mode = c->old_type == 'd' ? c->old_mode : 0700,
                              .new_mode = c->new_mode & 0777};
        if (c->new_type == 'd' && op.old_mode != op.new_mode)
            r = ops_add(o, &op, c->path, err);
    }
    return r;
}

/* ---- one step, there and back ---- */

struct place {
    int stage, dir;
    const char *name; /* in dir */
    char staged[16];  /* in stage */
    const char *path;
};

static bool stat_in(int dir, const char *name, struct stat *st)
{
    return fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_old(const struct op *op, const struct stat *st)
{
    return st->st_ino == op->old_ino &&
           (S_ISDIR(st->st_mode) ||
            ((uint64_t)st->st_size == op->old_size && ns_of(&st->st_mtim) == op->old_mtime));
}

static bool is_empty(int dir, const char *name)
{
    bool empty = true;
    int fd = promote_open(dir, name, O_RDONLY | O_DIRECTORY);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        br_close(&fd);
        return false;
    }
    for (struct dirent *e; empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(d);
    return empty;
}

static int move(int from, const char *a, int to, const char *b, unsigned flags)
{
    step();
    return renameat2(from, a, to, b, flags);
}

/* Was the step taken? The stage tells. */
static bool is_done(const struct op *op, const struct place *w)
{
    struct stat st;
    bool there = stat_in(w->stage, w->staged, &st);
    return op->kind == OP_TAKE    ? there
           : op->kind == OP_PLACE ? !there
                                  : there && st.st_ino != op->new_ino;
}

static int do_exchange(const struct op *op, const struct place *w, bool undo, struct br_err *err)
{
    struct stat st;
    if (!stat_in(w->stage, w->staged, &st))
        return failed(w->path, "found where it was made ready", err);
    if (!undo && ns_of(&st.st_ctim) != op->new_ctime)
        return br_err_set(err, BR_E_IN_USE, "'%s' was changed where it was made ready", w->path);
    if (move(w->stage, w->staged, w->dir, w->name, RENAME_EXCHANGE) < 0)
        return errno == ENOENT ? in_the_way(w->path, err) : failed(w->path, "replaced", err);
    if (stat_in(w->stage, w->staged, &st) && (undo ? st.st_ino == op->new_ino : is_old(op, &st)))
        return 0;
    /* something else was there: it goes back */
    (void)move(w->stage, w->staged, w->dir, w->name, RENAME_EXCHANGE);
    return in_the_way(w->path, err);
}

static int do_place(const struct op *op, const struct place *w, bool undo, struct br_err *err)
{
    struct stat st;
    if (undo) {
        if (!stat_in(w->dir, w->name, &st) || st.st_ino != op->new_ino)
            return in_the_way(w->path, err);
        return move(w->dir, w->name, w->stage, w->staged, RENAME_NOREPLACE) < 0
                   ? failed(w->path, "taken back", err)
                   : 0;
    }
    if (!stat_in(w->stage, w->staged, &st) || st.st_ino != op->new_ino ||
        (!S_ISDIR(st.st_mode) && ns_of(&st.st_ctim) != op->new_ctime))
        return br_err_set(err, BR_E_IN_USE, "'%s' was changed where it was made ready", w->path);
    if (move(w->stage, w->staged, w->dir, w->name, RENAME_NOREPLACE) == 0)
        return 0;
    return errno == EEXIST ? in_the_way(w->path, err) : failed(w->path, "put in its place", err);
}

static int do_take(const struct op *op, const struct place *w, bool undo, struct br_err *err)
{
    struct stat st;
    if (undo) {
        if (move(w->stage, w->staged, w->dir, w->name, RENAME_NOREPLACE) == 0)
            return 0;
        return errno == EEXIST ? in_the_way(w->path, err) : failed(w->path, "put back", err);
    }
    if (move(w->dir, w->name, w->stage, w->staged, RENAME_NOREPLACE) < 0)
        return errno == ENOENT ? in_the_way(w->path, err) : failed(w->path, "removed", err);
    if (stat_in(w->stage, w->staged, &st) && is_old(op, &st) &&
        (bool)op->dir == S_ISDIR(st.st_mode) && (!op->dir || is_empty(w->stage, w->staged)))
        return 0;
    (void)move(w->stage, w->staged, w->dir, w->name, RENAME_NOREPLACE);
    return in_the_way(w->path, err);
}

static int do_mode(const struct br_promotion *p, const struct op *op, const char *path, bool undo,
                   struct br_err *err)
{
    BR_CLEANUP_FD int fd = promote_open(p->workspace, path, O_RDONLY | O_DIRECTORY);
    step();
    if (fd < 0 || fchmod(fd, undo ? op->old_mode : op->new_mode) < 0)
        return undo && errno == ENOENT ? 0 : failed(path, "given its mode", err);
    return 0;
}

static int take_step(const struct br_promotion *p, int stage, const struct ops *o, size_t i,
                     bool undo, struct br_err *err)
{
    const struct op *op = &o->ops[i];
    if (op->kind == OP_MODE)
        return do_mode(p, op, o->paths[i], undo, err);
    struct place w = {.stage = stage, .path = o->paths[i]};
    name_of(op->index, w.staged);
    /* what is as it should be needs no directory, which may have been taken itself */
    if (is_done(op, &w) != undo)
        return 0;
    BR_CLEANUP_FD int dir = promote_open_parent(p->workspace, o->paths[i], &w.name);
    if (dir < 0)
        return errno == ELOOP || errno == ENOTDIR || errno == ENOENT
                   ? in_the_way(o->paths[i], err)
                   : failed(o->paths[i], "reached", err);
    w.dir = dir;
    return op->kind == OP_EXCHANGE ? do_exchange(op, &w, undo, err)
           : op->kind == OP_PLACE  ? do_place(op, &w, undo, err)
                                   : do_take(op, &w, undo, err);
}

/* ---- the journal ---- */

static int journal_failed(struct br_err *err)
{
    return br_err_errno(err, BR_E_STORE_FAILED, "the journal of a promotion could not be written");
}

static int write_at(int fd, const void *p, size_t n, off_t at)
{
    const char *c = p;
    while (n > 0) {
        ssize_t w = pwrite(fd, c, n, at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return -1;
        c += w;
        n -= (size_t)w;
        at += w;
    }
    return 0;
}

static int set_state(const struct br_promotion *p, enum br_journal_state state, struct br_err *err)
{
    char byte = (char)state;
    step();
    return write_at(p->journal, &byte, 1, offsetof(struct br_journal_head, state)) < 0 ||
                   fsync(p->journal) < 0
               ? journal_failed(err)
               : 0;
}

/* An empty one: from here on there may be a stage. */
static int journal_begin(const struct br_promotion *p, struct br_err *err)
{
    const struct br_journal_head h = {.magic = BR_JOURNAL_MAGIC, .state = BR_JOURNAL_STAGING};
    step();
    return ftruncate(p->journal, 0) < 0 || write_at(p->journal, &h, sizeof(h), 0) < 0 ||
                   fsync(p->journal) < 0
               ? journal_failed(err)
               : 0;
}

static int journal_steps(const struct br_promotion *p, const struct ops *o, struct br_err *err)
{
    struct br_journal_head h = {
        .magic = BR_JOURNAL_MAGIC, .state = BR_JOURNAL_STAGING, .nops = o->n};
    struct br_sha256 sum;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_PROMOTE_BASE_MAX);
    for (size_t i = 0; i < o->n; i++) {
        br_buf_put(&b, &o->ops[i], sizeof(o->ops[i]));
        br_buf_put(&b, o->paths[i], o->ops[i].path_len);
    }
    if (b.failed)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the changes of the run do not fit a journal");
    h.bytes = b.len;
    br_sha256_init(&sum);
    br_sha256_put(&sum, b.data, b.len);
    br_sha256_end(&sum, h.sum);
    step();
    return write_at(p->journal, b.data, b.len, sizeof(h)) < 0 ||
                   write_at(p->journal, &h, sizeof(h), 0) < 0 || fsync(p->journal) < 0
               ? journal_failed(err)
               : 0;
}

static int journal_damaged(struct br_err *err)
{
    return br_err_set(err, BR_E_STORE_FAILED,
                      "the journal of the interrupted promotion is damaged; nothing was done. What "
                      "was replaced is in the directory " BR_PROMOTE_STAGE "... of the workspace");
}

static int journal_read(const struct br_promotion *p, struct ops *o, struct br_err *err)
{
    struct br_journal_head h;
    struct br_sha256 sum;
    uint8_t is[32];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_PROMOTE_BASE_MAX);
    if (lseek(p->journal, 0, SEEK_SET) < 0)
        return journal_damaged(err);
    int r = br_read_all(p->journal, &b, "the journal of a promotion", err);
    if (r < 0)
        return r;
    if (b.len < sizeof(h))
        return journal_damaged(err);
    memcpy(&h, b.data, sizeof(h));
    if (b.len - sizeof(h) != h.bytes)
        return journal_damaged(err);
    br_sha256_init(&sum);
    br_sha256_put(&sum, b.data + sizeof(h), h.bytes);
    br_sha256_end(&sum, is);
    if (memcmp(is, h.sum, sizeof(is)) != 0)
        return journal_damaged(err);
    for (size_t at = sizeof(h); r == 0 && at < b.len;) {
        struct op op;
        char path[BR_PATH_MAX];
        if (b.len - at < sizeof(op))
            return journal_damaged(err);
        memcpy(&op, b.data + at, sizeof(op));
        at += sizeof(op);
        if (op.path_len >= sizeof(path) || b.len - at < op.path_len || !op.kind ||
            !strchr("TXPM", op.kind))
            return journal_damaged(err);
        memcpy(path, b.data + at, op.path_len);
        path[op.path_len] = 0;
        at += op.path_len;
        r = ops_add(o, &op, path, err);
    }
    return r == 0 && o->n != h.nops ? journal_damaged(err) : r;
}

/* ---- all of it ---- */

/* Everything that was renamed is on the disk before the journal says so. */
static int settle(const struct br_promotion *p, enum br_journal_state state, struct br_err *err)
{
    if (syncfs(p->workspace) < 0)
        return br_err_errno(err, BR_E_IO, "the workspace could not be written to its disk");
    return set_state(p, state, err);
}

static int undo(const struct br_promotion *p, int stage, const struct ops *o, size_t n,
                struct br_err *err)
{
    int r = set_state(p, BR_JOURNAL_UNDOING, err);
    for (size_t i = n; r == 0 && i-- > 0;)
        r = take_step(p, stage, o, i, true, err);
    if (r == 0)
        r = settle(p, BR_JOURNAL_UNDONE, err);
    return r;
}

/* Take the steps of a committed journal; those that cannot be taken take all others back. */
static int take_steps(const struct br_promotion *p, int stage, const struct ops *o,
                      struct br_err *err)
{
    struct br_err first = {.code = BR_OK}, why = {.code = BR_OK};
    int r = 0;
    size_t i = 0;
    for (; r == 0 && i < o->n; i++)
        r = take_step(p, stage, o, i, false, &first);
    if (r == 0)
        return settle(p, BR_JOURNAL_DONE, err);
    if (undo(p, stage, o, i, &why) == 0)
        return br_err_set(err, first.code,
                          "nothing was promoted, and what had been is taken back: %s", first.text);
    return br_err_set(err, BR_E_FAILED,
                      "the workspace is HALF promoted: %.500s; and it could not be brought back: "
                      "%.500s. Put that right, then: bridle promote --recover",
                      first.text, why.text);
}

static int journal_clear(const struct br_promotion *p, struct br_err *err)
{
    step();
    return ftruncate(p->journal, 0) < 0 || fsync(p->journal) < 0 ? journal_failed(err) : 0;
}

/* After DONE, UNDONE, or before COMMITTED: only the stage is left. */
static int clear(const struct br_promotion *p, struct br_err *err)
{
    int r = remove_stage(p, err);
    return r == 0 ? journal_clear(p, err) : r;
}

/* A stage without a journal that knows of it: what was replaced may be nowhere else. */
static int orphan(const struct br_promotion *p, struct br_err *err)
{
    return br_err_set(err, BR_E_STORE_FAILED,
                      "the directory '%s' of the workspace is there, and no journal says of which "
                      "promotion; it may hold the only copies of what was replaced, and is not "
                      "touched. Nothing was promoted. Look into it, put back what is missing, move "
                      "it out of the workspace, and promote again",
                      p->stage);
}

/* The stage, made by this promotion and by no other: only then may it be removed again. */
static int make_stage(const struct br_promotion *p, int *stage, bool *made, struct br_err *err)
{
    step();
    *made = mkdirat(p->workspace, p->stage, 0700) == 0;
    if (!*made && errno == EEXIST)
        return orphan(p, err);
    if (!*made || (*stage = open_stage(p)) < 0)
        return failed(p->stage, "made", err);
    return 0;
}

int br_promotion_apply(struct br_promotion *p, struct br_err *err)
{
    struct ops o = {.n = 0};
    struct stat st;
    int stage = -1;
    bool committed = false, made = false;
    if (stat_in(p->workspace, p->stage, &st)) /* or a journal would say that it is this one's */
        return orphan(p, err);
    int r = journal_begin(p, err);
    if (r == 0)
        r = make_stage(p, &stage, &made, err);
    if (r == 0)
        r = list_steps(p, stage, &o, err);
    if (r == 0 && syncfs(stage) < 0)
        r = br_err_errno(err, BR_E_IO, "the workspace could not be written to its disk");
    if (r == 0)
        r = journal_steps(p, &o, err);
    if (r == 0)
        r = set_state(p, BR_JOURNAL_COMMITTED, err);
    if (r == 0) {
        committed = true;
        r = take_steps(p, stage, &o, err);
    }
    br_close(&stage);
    ops_free(&o);
    enum br_journal_state s = br_journal_read_state(p->journal);
    if (s == BR_JOURNAL_COMMITTED || s == BR_JOURNAL_UNDOING)
        return r;
    struct br_err ignored = {.code = BR_OK};
    struct br_err *why = r < 0 ? &ignored : err;
    int cleared = made ? clear(p, why) : journal_clear(p, why);
    if (r < 0 && !committed)
        return br_err_wrap(err, "nothing was promoted");
    return r < 0 ? r : cleared;
}

int br_promotion_recover(struct br_promotion *p, bool *applied, struct br_err *err)
{
    struct ops o = {.n = 0};
    enum br_journal_state s = br_journal_read_state(p->journal);
    int r = 0;
    *applied = s == BR_JOURNAL_DONE;
    if (s == BR_JOURNAL_COMMITTED || s == BR_JOURNAL_UNDOING) {
        BR_CLEANUP_FD int stage = open_stage(p);
        r = stage < 0 ? failed(p->stage, "opened", err) : journal_read(p, &o, err);
        if (r == 0 && s == BR_JOURNAL_UNDOING)
            r = undo(p, stage, &o, o.n, err);
        else if (r == 0)
            r = take_steps(p, stage, &o, err);
        ops_free(&o);
        s = br_journal_read_state(p->journal);
        *applied = s == BR_JOURNAL_DONE;
        if (s == BR_JOURNAL_UNDONE)
            r = 0; /* it could not be brought forward, and was brought back */
    }
    return r < 0 ? r : clear(p, err);
}

int br_promotion_lock(int workspace, struct br_err *err)
{
    BR_CLEANUP_FD int fd = promote_open(workspace, ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return br_err_errno(err, BR_E_IO, "the workspace cannot be opened as its owner");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return br_err_set(err, BR_E_IN_USE,
                          "another promotion to this workspace is under way; nothing was promoted. "
                          "Wait for its end");
    return br_steal_fd(&fd);
}

int br_promotion_alone(const struct br_promotion *p, struct br_err *err)
{
    int r = 0, fd = promote_open(p->workspace, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        br_close(&fd);
        return br_err_errno(err, BR_E_IO, "the workspace cannot be read as its owner");
    }
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        size_t n = strlen(BR_PROMOTE_STAGE);
        char text[256];
        if (strcmp(e->d_name, p->stage) == 0)
            r = br_journal_pending(p->journal) ? 0 : orphan(p, err);
        else if (strncmp(e->d_name, BR_PROMOTE_STAGE, n) == 0)
            r = br_err_set(err, BR_E_IN_USE,
                           "a promotion of the run '%s' to this workspace was interrupted; nothing "
                           "was promoted. Finish it first: bridle promote --recover %s",
                           shown(e->d_name + n, text), shown(e->d_name + n, text));
    }
    closedir(d);
    return r;
}
