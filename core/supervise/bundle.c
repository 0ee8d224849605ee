/*
 * Reading a policy bundle from a file for a standing bridled, which may be root and is told a path.
 * What decides for every later session must come from nobody but root or the owner: the file and
 * each directory on the way to it are looked at, as they really are, and what was read is what is
 * hashed, tested and kept. Called by reload.c and by tests.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/standing.h"

void (*bundle_was_read)(void) = NULL;

void policy_hash(const struct br_buf *text, char hex[65])
{
    struct br_sha256 s;
    uint8_t sum[32];
    hex[0] = 0;
    if (!text->len)
        return;
    br_sha256_init(&s);
    br_sha256_put(&s, text->data, text->len);
    br_sha256_end(&s, sum);
    br_hex(hex, sum, sizeof(sum));
}

/* What is read, and what a bad one is. */
struct kind {
    const char *what;
    enum br_code bad;
    size_t max;
};
static const struct kind policy = {"policy", BR_E_INVALID_POLICY, BR_POLICY_MAX};

static int check_owner(const char *what, const char *path, const struct stat *st, uid_t owner,
                       struct br_err *err)
{
    if (st->st_uid != 0 && st->st_uid != owner)
        return br_err_set(err, BR_E_DENIED,
                          "the %s '%s' belongs to uid %u, neither to root nor to uid %u; it was "
                          "not read",
                          what, path, (unsigned)st->st_uid, (unsigned)owner);
    /* in a directory such as /tmp nobody can replace what is another's */
    bool sticky = S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX);
    if ((st->st_mode & 022) && !sticky)
        return br_err_set(err, BR_E_DENIED,
                          "the %s '%s' can be written by others (mode %03o); it was not read. "
                          "chmod go-w it",
                          what, path, (unsigned)st->st_mode & 0777);
    return 0;
}

/* Every directory above; `real` has no link in it. */
static int check_parents(const struct kind *k, const char *real, uid_t owner, struct br_err *err)
{
    char dir[BR_PATH_MAX];
    struct stat st;
    for (const char *p = real; (p = strchr(p, '/')) != NULL; p++) {
        size_t n = p == real ? 1 : (size_t)(p - real);
        snprintf(dir, sizeof(dir), "%.*s", (int)n, real);
        if (lstat(dir, &st) < 0)
            return br_err_errno(err, BR_E_NOT_FOUND, "'%s' could not be examined", dir);
        int r = check_owner("directory", dir, &st, owner, err);
        if (r < 0)
            return br_err_wrap(err, "the %s '%s'", k->what, real);
    }
    return 0;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a FIFO" : "no regular file";
}

static int check_file(const struct kind *k, int fd, const char *path, uid_t owner, struct stat *st,
                      struct br_err *err)
{
    if (fstat(fd, st) < 0)
        return br_err_errno(err, k->bad, "the %s '%s' could not be examined", k->what, path);
    if (!S_ISREG(st->st_mode))
        return br_err_set(err, k->bad, "the %s '%s' is %s; it was not read", k->what, path,
                          kind_of(st->st_mode));
    int r = check_owner(k->what, path, st, owner, err);
    if (r < 0)
        return r;
    if (st->st_size > (off_t)k->max)
        return br_err_set(err, k->bad, "the %s '%s' has %lld bytes, more than %zu; it was not read",
                          k->what, path, (long long)st->st_size, k->max);
    return 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static int read_whole(const struct kind *k, const char *real, uid_t owner, struct br_buf *text,
                      struct br_err *err)
{
    struct stat st, now;
    BR_CLEANUP_FD int fd = open(real, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENXIO)
        return br_err_set(err, k->bad, "the %s '%s' is no regular file; it was not read", k->what,
                          real);
    if (fd < 0)
        return br_err_errno(err, errno == ENOENT ? BR_E_NOT_FOUND : k->bad,
                            "the %s '%s' could not be opened", k->what, real);
    int r = check_file(k, fd, real, owner, &st, err);
    if (r == 0 && (r = br_read_all(fd, text, real, err)) == -BR_E_LIMIT_EXCEEDED)
        r = br_err_set(err, BR_E_IN_USE, "the %s '%s' grew while it was read", k->what, real);
    if (r < 0)
        return r;
    if (bundle_was_read)
        bundle_was_read();
    if (fstat(fd, &now) < 0 || now.st_size != st.st_size || (off_t)text->len != st.st_size ||
        !same_time(&now.st_mtim, &st.st_mtim) || !same_time(&now.st_ctim, &st.st_ctim))
        return br_err_set(err, BR_E_IN_USE,
                          "the %s '%s' changed while it was read; it was not taken. Write it "
                          "whole, or to another name and rename it, and try again",
                          k->what, real);
    if (text->len == 0 && br_buf_put_u8(text, '\n') < 0) /* no bytes mean the built-in one */
        return br_err_set(err, BR_E_NOMEM, "no memory for the %s '%s'", k->what, real);
    return 0;
}

static int read_document(const struct kind *k, const char *path, uid_t owner, struct br_buf *text,
                         struct br_err *err)
{
    br_buf_init(text, k->max);
    if (path[0] != '/')
        return br_err_set(err, BR_E_USAGE,
                          "the path '%.512s' of the %s is not absolute; it was not read", path,
                          k->what);
    BR_CLEANUP_FREE char *real = realpath(path, NULL);
    if (!real)
        return errno == ENOENT || errno == ENOTDIR
                   ? br_err_set(err, BR_E_NOT_FOUND, "the %s '%.512s' does not exist", k->what,
                                path)
                   : br_err_errno(err, k->bad, "the %s '%.512s' could not be reached", k->what,
                                  path);
    int r = strlen(real) < BR_PATH_MAX
                ? check_parents(k, real, owner, err)
                : br_err_set(err, k->bad, "the path of the %s is too long", k->what);
    if (r == 0)
        r = read_whole(k, real, owner, text, err);
    if (r < 0)
        br_buf_free(text);
    return r;
}

int bundle_read(const char *path, uid_t owner, struct br_buf *text, struct br_err *err)
{
    return read_document(&policy, path, owner, text, err);
}

int document_read(const char *what, enum br_code bad, size_t max, const char *path, uid_t owner,
                  struct br_buf *text, struct br_err *err)
{
    const struct kind k = {what, bad, max};
    return read_document(&k, path, owner, text, err);
}

/* The names of policy/, from CMake, each behind a space. */
static bool is_shipped(const char *word)
{
    size_t n = strlen(word);
    for (const char *p = BRIDLE_SHIPPED; n && p && !strchr(word, ' '); p = strchr(p + 1, ' '))
        if (strncmp(p + 1, word, n) == 0 && (p[1 + n] == ' ' || !p[1 + n]))
            return true;
    return false;
}

int bundle_open(const char *word, uid_t owner, struct br_buf *text, struct br_err *err)
{
    if (!is_shipped(word))
        return bundle_read(word, owner, text, err);
    br_buf_init(text, BR_POLICY_MAX);
    if (br_buf_printf(text,
                      "return require('bridle.policy').bundle { api = 1, name = '%s', extend = "
                      "'%s', rules = {} }\n",
                      word, word) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the policy");
    return 0;
}

static int find(const struct kind *k, const char *name, char path[BR_PATH_MAX],
                char *(*env)(const char *), struct br_err *err)
{
    const char *xdg = env("XDG_CONFIG_HOME"), *home = env("HOME");
    struct stat st;
    int n = 0;
    path[0] = 0;
    if (xdg && xdg[0] == '/')
        n = snprintf(path, BR_PATH_MAX, "%s/bridle/%s", xdg, name);
    else if (home && home[0] == '/')
        n = snprintf(path, BR_PATH_MAX, "%s/.config/bridle/%s", home, name);
    for (int i = 0; i < 2; i++) {
        if (n > 0 && n < (int)BR_PATH_MAX) {
            if (stat(path, &st) == 0)
                return 0;
            if (errno != ENOENT && errno != ENOTDIR) /* there, and never taken for "none" */
                return br_err_errno(err, k->bad, "the %s '%s' cannot be read", k->what, path);
        }
        n = snprintf(path, BR_PATH_MAX, "/etc/bridle/%s", name);
    }
    path[0] = 0;
    return 0;
}

int bundle_find(char path[BR_PATH_MAX], char *(*env)(const char *), struct br_err *err)
{
    return find(&policy, "policy.lua", path, env, err);
}

int document_find(const char *what, enum br_code bad, const char *name, char path[BR_PATH_MAX],
                  char *(*env)(const char *), struct br_err *err)
{
    const struct kind k = {what, bad, 0};
    return find(&k, name, path, env, err);
}
