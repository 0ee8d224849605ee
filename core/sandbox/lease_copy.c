/*
 * The copy of a workspace into its lease. Runs in the child, in the sandbox's cgroup, with the
 * sandbox's uid and without effective capabilities, on a tree that anybody may change meanwhile:
 * every name is opened relative to its directory's descriptor, without following a link and
 * without leaving the mount, and what was opened is what is copied. Parses nothing.
 *
 * Copied are directories, regular files (holes stay holes, a hard link becomes a file of its own)
 * and symbolic links (as they are), with their permission bits and times. Left out and counted:
 * sockets, FIFOs, devices, and what is mounted inside. Extended attributes are dropped. No
 * recursion and no allocation. Of a lease that may stay, each of them is recorded (lease_base.h).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/lease_base.h"
#include "sandbox/lease_priv.h"
#include "sandbox/sys.h"

/* Levels of directories: each costs two descriptors and a buffer. */
#define DEPTH_MAX 100u
/* Names that are looked at, copied or not: bounds the time that a hostile tree takes. */
#define ENTRIES_MAX 4000000u
#define MODES 0777u

struct level {
    int from, to;
    size_t path_len; /* of its directory's path */
    size_t at, end;  /* in dents */
    mode_t mode;     /* what the copy gets when it is complete */
    struct timespec times[2];
    char dents[4096];
};

struct copy {
    struct level *stack;
    unsigned depth; /* levels in use */
    struct br_copied *c;
    uint64_t entries, inodes;
    bool full;           /* the lease is: the rest is only counted */
    uint64_t inodes_max; /* not 0: names are counted against it, and nothing is copied */
    struct br_err *err;
    int base; /* where it is recorded, or -1; */
    uint64_t recorded;
    off_t base_at;          /* the end of what was written of it */
    char path[BR_PATH_MAX]; /* for messages, and for the record */
};

/* The child is a process of its own, so that static memory is private to one copy. */
static struct level levels[DEPTH_MAX];
static char data[256 * 1024];
static char records[64 * 1024]; /* that wait to be written, */
static size_t records_len;      /* so many bytes of it */

/* The path for a message: a long one without its middle. */
static const char *shown(const struct copy *k, char dst[160])
{
    size_t n = strlen(k->path);
    if (n < 140)
        snprintf(dst, 160, "%s", n ? k->path : ".");
    else
        snprintf(dst, 160, "%.60s ... %s", k->path, k->path + n - 60);
    return dst;
}

static int failed(const struct copy *k, const char *what)
{
    char path[160];
    return br_err_errno(k->err, BR_E_INVALID_WORKSPACE,
                        "'%s' of the workspace could not be %s; nothing was started",
                        shown(k, path), what);
}

static int too_much(const struct copy *k, const char *what, unsigned max)
{
    char path[160];
    return br_err_set(k->err, BR_E_LIMIT_EXCEEDED,
                      "the workspace has more than can be copied into a lease: %s than %u, at "
                      "'%s'; nothing was started. Use a smaller workspace, or a profile that works "
                      "on the workspace itself, such as run-v1",
                      what, max, shown(k, path));
}

static int too_many(const struct copy *k)
{
    return br_err_set(k->err, BR_E_LIMIT_EXCEEDED,
                      "the workspace does not fit into its lease: it has more than the %" PRIu64
                      " files and directories that are leased; nothing was started, and nothing "
                      "copied. Use a smaller workspace, or a profile with a larger lease",
                      k->inodes_max);
}

/* A write that found no room is not an error yet: the rest is counted, for the message. */
static bool out_of_room(struct copy *k)
{
    if (errno != ENOSPC && errno != EDQUOT)
        return false;
    k->full = true;
    return true;
}

/* ---- the record ---- */

static int write_records(struct copy *k)
{
    for (size_t done = 0; done < records_len;) {
        ssize_t w = br_sys_pwrite(k->base, records + done, records_len - done, k->base_at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return br_err_errno(k->err, BR_E_REQUIREMENT_MISSING,
                                "what is copied into the lease could not be recorded; nothing was "
                                "started. Make room on the file system of the state directory");
        done += (size_t)w;
        k->base_at += w;
    }
    records_len = 0;
    return 0;
}

/* `to`: a descriptor of the copy, or, with a name, the directory that it is in. */
static int record(struct copy *k, char type, const struct stat *st, int to, const char *name)
{
    size_t n = strlen(k->path);
    struct stat copied = {.st_ino = 0};
    if (k->base < 0 || k->full || n == 0)
        return 0;
    if (fstatat(to, name, &copied, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
        return failed(k, "recorded");
    const struct br_base_entry e = {
        .type = type,
        .path_len = (uint16_t)n,
        .mode = st->st_mode & 07777,
        .ino = st->st_ino,
        .size = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
        .copy_ino = copied.st_ino};
    int r = records_len + sizeof(e) + n > sizeof(records) ? write_records(k) : 0;
    memcpy(records + records_len, &e, sizeof(e));
    memcpy(records + records_len + sizeof(e), k->path, n);
    records_len += sizeof(e) + n;
    k->recorded++;
    return r;
}

/* The header comes last: it says that the rest is complete. */
static int record_end(struct copy *k, const struct stat *root)
{
    struct timespec now;
    int r = write_records(k);
    if (r < 0 || clock_gettime(CLOCK_REALTIME, &now) < 0)
        return r < 0 ? r : failed(k, "recorded");
    k->c->done_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    const struct br_base_head h = {.magic = BR_BASE_MAGIC,
                                   .done_ns = k->c->done_ns,
                                   .entries = k->recorded,
                                   .dev = (uint64_t)root->st_dev};
    memcpy(records, &h, sizeof(h));
    records_len = sizeof(h);
    k->base_at = 0;
    return write_records(k);
}

static int open_in(int dir, const char *name, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
}

static void times_of(const struct stat *st, struct timespec times[2])
{
    times[0] = st->st_mtim;
    times[1] = st->st_mtim;
}

static uint64_t blocks(uint64_t n)
{
    return (n + BR_LEASE_BLOCK - 1) / BR_LEASE_BLOCK * BR_LEASE_BLOCK;
}

/* ---- a regular file ---- */

static int write_range(struct copy *k, int out, const char *p, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t w = br_sys_pwrite(out, p, n, at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return out_of_room(k) ? 0 : failed(k, "written");
        p += w, at += w, n -= (size_t)w;
    }
    return 0;
}

static int copy_range(struct copy *k, int in, int out, off_t at, off_t end)
{
    k->c->bytes += blocks((uint64_t)(end - at));
    while (at < end && !k->full) {
        size_t want = end - at < (off_t)sizeof(data) ? (size_t)(end - at) : sizeof(data);
        ssize_t n = pread(in, data, want, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(k, "read");
        if (n == 0)
            break; /* it became shorter meanwhile */
        int r = write_range(k, out, data, (size_t)n, at);
        if (r < 0)
            return r;
        at += n;
    }
    return 0;
}

/* Only what holds data; as long as it was when it was opened. */
static int copy_data(struct copy *k, int in, int out, off_t size)
{
    int r = 0;
    for (off_t at = 0; r == 0 && at < size;) {
        off_t from = lseek(in, at, SEEK_DATA);
        if (from < 0 && errno == ENXIO)
            break; /* the rest is a hole */
        if (from < 0)
            from = at;
        off_t to = from < size ? lseek(in, from, SEEK_HOLE) : size;
        if (to < 0 || to > size)
            to = size;
        if (from < to)
            r = copy_range(k, in, out, from, to);
        at = to > at ? to : size;
    }
    if (r == 0 && !k->full && ftruncate(out, size) < 0 && !out_of_room(k))
        r = failed(k, "written");
    return r;
}

static int copy_file(struct copy *k, const struct level *l, const char *name)
{
    struct stat st;
    struct timespec times[2];
    BR_CLEANUP_FD int out = -1;
    /* not waiting: it may have become a FIFO since it was looked at */
    BR_CLEANUP_FD int in = open_in(l->from, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (in < 0 || fstat(in, &st) < 0)
        return failed(k, "read");
    if (!S_ISREG(st.st_mode)) {
        k->c->left_out++;
        return 0;
    }
    k->c->files++;
    k->inodes++;
    if (!k->full) {
        out = br_sys_make(l->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0 && !out_of_room(k))
            return failed(k, "written");
    }
    int r = copy_data(k, in, out, st.st_size);
    if (r < 0 || k->full)
        return r;
    times_of(&st, times);
    if (fchmod(out, st.st_mode & MODES) < 0 || futimens(out, times) < 0)
        return failed(k, "written");
    return record(k, 'f', &st, out, "");
}

static int copy_link(struct copy *k, const struct level *l, const char *name, const struct stat *st)
{
    char target[BR_PATH_MAX];
    ssize_t n = readlinkat(l->from, name, target, sizeof(target) - 1);
    if (n < 0)
        return failed(k, "read");
    target[n] = 0;
    k->c->links++;
    k->inodes++;
    k->c->bytes += n < 60 ? 0 : BR_LEASE_BLOCK;
    if (!k->full && br_sys_symlink(target, l->to, name) < 0 && !out_of_room(k))
        return failed(k, "written");
    return record(k, 'l', st, l->to, name);
}

/* ---- directories ---- */

static int enter(struct copy *k, int from, int to, const struct stat *st)
{
    struct level *l = &k->stack[k->depth++];
    l->from = from;
    l->to = to;
    l->path_len = strlen(k->path);
    l->at = l->end = 0;
    l->mode = st->st_mode & MODES;
    times_of(st, l->times);
    return 0;
}

static int enter_dir(struct copy *k, const struct level *l, const char *name,
                     const struct stat *outer)
{
    struct stat st;
    BR_CLEANUP_FD int from = open_in(l->from, name, O_RDONLY | O_DIRECTORY);
    if (from < 0 && errno == EXDEV) {
        k->c->left_out++; /* something is mounted there: an empty directory in its place */
        if (!k->full && br_sys_mkdir(l->to, name, 0755) < 0 && !out_of_room(k))
            return failed(k, "made");
        return record(k, 'm', outer, l->to, name);
    }
    if (from < 0 || fstat(from, &st) < 0)
        return failed(k, "read");
    if (k->depth == DEPTH_MAX)
        return too_much(k, "directories nested deeper", DEPTH_MAX);
    k->c->dirs++;
    k->inodes++;
    k->c->bytes += blocks((uint64_t)(st.st_size > 0 ? st.st_size : 1));
    BR_CLEANUP_FD int to = -1;
    if (!k->full) {
        int made = br_sys_mkdir(l->to, name, 0700);
        if (made < 0 && !out_of_room(k))
            return failed(k, "made");
        if (made == 0 && (to = open_in(l->to, name, O_RDONLY | O_DIRECTORY)) < 0)
            return failed(k, "made");
    }
    int r = record(k, 'd', &st, to, "");
    return r < 0 ? r : enter(k, br_steal_fd(&from), br_steal_fd(&to), &st);
}

/* The copy of a directory gets its mode last: it may forbid writing. */
static int leave(struct copy *k)
{
    struct level *l = &k->stack[--k->depth];
    int r = 0;
    k->path[l->path_len] = 0;
    /* the root of the lease keeps the mode that it has */
    if (!k->full && k->depth > 0 && (fchmod(l->to, l->mode) < 0 || futimens(l->to, l->times) < 0))
        r = failed(k, "written");
    br_close(&l->from);
    br_close(&l->to);
    return r;
}

static int copy_entry(struct copy *k, const char *name)
{
    const struct level *l = &k->stack[k->depth - 1];
    struct stat st;
    size_t n = strlen(name);
    if (++k->entries > ENTRIES_MAX)
        return too_much(k, "more names", ENTRIES_MAX);
    if (l->path_len + n + 2 > sizeof(k->path))
        return too_much(k, "a path longer", (unsigned)sizeof(k->path) - 1);
    snprintf(k->path + l->path_len, sizeof(k->path) - l->path_len, "%s%s", l->path_len ? "/" : "",
             name);
    if (fstatat(l->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : failed(k, "read"); /* it has gone meanwhile */
    if (S_ISDIR(st.st_mode))
        return k->inodes_max && k->inodes >= k->inodes_max ? too_many(k)
                                                           : enter_dir(k, l, name, &st);
    if (k->inodes_max && (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
        return ++k->inodes > k->inodes_max ? too_many(k) : 0;
    if (S_ISREG(st.st_mode))
        return copy_file(k, l, name);
    if (S_ISLNK(st.st_mode))
        return copy_link(k, l, name, &st);
    k->c->left_out++;
    return 0;
}

struct dirent64_ {
    uint64_t ino;
    int64_t off;
    uint16_t len;
    uint8_t type;
    char name[];
};

/* The next name of the innermost directory; NULL at its end. */
static int next_name(struct copy *k, const char **name)
{
    struct level *l = &k->stack[k->depth - 1];
    *name = NULL;
    if (l->at == l->end) {
        long n = syscall(SYS_getdents64, l->from, l->dents, sizeof(l->dents));
        if (n < 0)
            return failed(k, "read");
        if (n == 0)
            return 0;
        l->at = 0;
        l->end = (size_t)n;
    }
    const struct dirent64_ *d = (const struct dirent64_ *)(const void *)(l->dents + l->at);
    l->at += d->len;
    *name = d->name;
    return 0;
}

static int walk(struct copy *k)
{
    int r = 0;
    while (k->depth > 0 && r == 0) {
        const char *name;
        r = next_name(k, &name);
        if (r == 0 && !name)
            r = leave(k);
        else if (r == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            r = copy_entry(k, name);
        if (k->depth > 0)
            k->path[k->stack[k->depth - 1].path_len] = 0;
    }
    return r;
}

static void let_go(struct copy *k)
{
    while (k->depth > 0) {
        struct level *l = &k->stack[--k->depth];
        br_close(&l->from);
        br_close(&l->to);
    }
}

/* More names than the lease has inodes: known before anything is copied. */
static int count(int source, const struct br_quota *q, struct br_err *err)
{
    struct br_copied c = {0};
    struct copy k = {.stack = levels,
                     .c = &c,
                     .err = err,
                     .inodes = 1,
                     .full = true,
                     .inodes_max = q->inodes,
                     .base = -1};
    struct stat st;
    BR_CLEANUP_FD int from = openat(source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) < 0)
        return failed(&k, "opened");
    int r = enter(&k, br_steal_fd(&from), -1, &st);
    if (r == 0)
        r = walk(&k);
    let_go(&k);
    return r;
}

int br_lease_copy(int source, int target, const struct br_quota *q, int base, struct br_copied *c,
                  struct br_err *err)
{
    struct copy k = {.stack = levels,
                     .c = c,
                     .err = err,
                     .inodes = 1,
                     .base = base,
                     .base_at = sizeof(struct br_base_head)};
    struct stat st;
    *c = (struct br_copied){0};
    int r = q->inodes ? count(source, q, err) : 0;
    if (r < 0)
        return r;
    BR_CLEANUP_FD int from = openat(source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BR_CLEANUP_FD int to = openat(target, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0 || to < 0 || fstat(from, &st) < 0)
        return failed(&k, "opened");
    r = enter(&k, br_steal_fd(&from), br_steal_fd(&to), &st);
    if (r == 0)
        r = walk(&k);
    let_go(&k);
    if (r == 0 && k.full)
        r = br_err_set(err, BR_E_LIMIT_EXCEEDED,
                       "the workspace does not fit into its lease: it needs about %" PRIu64
                       " bytes and %" PRIu64 " files and directories, leased are %" PRIu64
                       " and %" PRIu64 "; nothing was started. Use a smaller workspace, or a "
                       "profile with a larger lease",
                       c->bytes, k.inodes, q->bytes, q->inodes);
    return r == 0 && base >= 0 ? record_end(&k, &st) : r;
}
