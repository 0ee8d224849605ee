/*
 * Paths of the workspace: the one way by which the file operations open something. Paths come from
 * a model and the tree from whoever wrote it; neither is trusted. Opened name by name, from
 * directory to directory, through no link: the filter has no openat2 (docs/decisions/0010). The
 * checks before that exist so that one file has one spelling, the one that the policy saw.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "init/init_priv.h"

struct br_shown br_init_shown(const char *path)
{
    struct br_shown s;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    br_buf_put_visible(&b, path, strlen(path), true);
    const char *text = br_buf_cstr(&b);
    size_t n = text ? strlen(text) : 0;
    bool cut = n > 200;
    n = cut ? br_utf8_floor(text, 200) : n;
    snprintf(s.text, sizeof(s.text), "'%.*s'%s", (int)n, text ? text : "", cut ? "..." : "");
    return s;
}

static bool is_root(const char *path)
{
    return !*path || strcmp(path, ".") == 0;
}

int br_init_path_check(const char *path, bool root_ok, struct br_err *err)
{
    if (is_root(path)) {
        if (root_ok)
            return 0;
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the path of a file is needed, relative to the workspace; got '%s'",
                          path);
    }
    struct br_shown s = br_init_shown(path);
    if (path[0] == '/')
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "%s is absolute; paths are relative to the workspace", s.text);
    if (!br_utf8_valid(path, strlen(path)))
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s is not valid UTF-8", s.text);
    for (const char *at = path; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s holds a control character", s.text);
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/' && part != path;
        size_t n = strcspn(part, "/");
        if (n == 0 || (n <= 2 && strspn(part, ".") >= n))
            return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                              "%s is not a plain path: give it without '.', '..' or double slashes",
                              s.text);
    }
    return 0;
}

/* The first symlink on the way, as the length of that part of the path; 0 if there is none. */
static size_t find_link(int root, const char *path)
{
    char part[BR_PATH_MAX];
    for (size_t n = 0; path[n];) {
        n += path[n] == '/';
        n += strcspn(path + n, "/");
        struct stat st;
        snprintf(part, sizeof(part), "%.*s", (int)n, path);
        if (fstatat(root, part, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return 0;
        if (S_ISLNK(st.st_mode))
            return n;
    }
    return 0;
}

int br_init_path_err(struct br_init *in, const char *path, const char *undone, struct br_err *err)
{
    int e = errno;
    struct br_shown s = br_init_shown(path);
    size_t n = e == ELOOP || e == ENOTDIR ? find_link(in->root, path) : 0;
    if (n) {
        char part[BR_PATH_MAX];
        snprintf(part, sizeof(part), "%.*s", (int)n, path);
        struct br_shown link = br_init_shown(part);
        return br_err_set(
            err, BR_E_DENIED,
            "%s is a symbolic link, and links are not followed; %s. Use the path that "
            "it points to",
            link.text, undone);
    }
    errno = e;
    switch (e) {
    case ENOENT:
        return br_err_set(err, BR_E_NOT_FOUND, "%s does not exist; %s", s.text, undone);
    case ENOTDIR:
        return br_err_set(err, BR_E_NOT_FOUND,
                          "%s goes through something that is not a directory; "
                          "%s",
                          s.text, undone);
    case EISDIR:
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s is a directory; %s", s.text, undone);
    case ENXIO:
    case ENODEV:
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s is not a regular file; %s", s.text,
                          undone);
    case ENAMETOOLONG:
        return br_err_set(err, BR_E_INVALID_ARGUMENTS, "%s is too long; %s", s.text, undone);
    case EROFS:
        return br_err_set(err, BR_E_DENIED, "%s is not among the paths that this run may write; %s",
                          s.text, undone);
    case ELOOP:
    case EXDEV:
    case EACCES:
    case EPERM:
        return br_err_errno(err, BR_E_DENIED, "%s may not be accessed; %s", s.text, undone);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return br_err_errno(err, BR_E_LIMIT_EXCEEDED, "%s does not fit; %s", s.text, undone);
    default:
        return br_err_errno(err, BR_E_IO, "%s could not be accessed; %s", s.text, undone);
    }
}

int br_init_beneath(int dirfd, const char *path, int flags)
{
    BR_CLEANUP_FD int held = -1;
    char part[NAME_MAX + 1];
    for (int at = dirfd;; at = held) {
        size_t n = strcspn(path, "/");
        if (n > NAME_MAX || (n == 2 && path[0] == '.' && path[1] == '.')) {
            errno = n > NAME_MAX ? ENAMETOOLONG : EXDEV;
            return -1;
        }
        if (!path[n])
            return openat(at, path, flags | O_NOFOLLOW | O_CLOEXEC);
        memcpy(part, path, n);
        part[n] = 0;
        int next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return -1;
        br_close(&held);
        held = next;
        path += n + 1;
    }
}

int br_init_path_open(struct br_init *in, const char *path, bool root_ok, int flags,
                      const char *undone, struct br_err *err)
{
    int r = br_init_path_check(path, root_ok, err);
    if (r < 0)
        return r;
    int fd = br_init_beneath(in->root, is_root(path) ? "." : path, flags);
    return fd >= 0 ? fd : br_init_path_err(in, path, undone, err);
}

int br_init_open_file(struct br_init *in, const char *path, const char *undone, struct stat *st,
                      struct br_err *err)
{
    /* O_NONBLOCK: a FIFO without a writer would hold us for ever, a device might */
    BR_CLEANUP_FD int fd =
        br_init_path_open(in, path, false, O_RDONLY | O_NONBLOCK | O_NOCTTY, undone, err);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        return br_init_path_err(in, path, undone, err);
    if (!S_ISREG(st->st_mode)) {
        errno = S_ISDIR(st->st_mode) ? EISDIR : ENXIO;
        return br_init_path_err(in, path, undone, err);
    }
    return br_steal_fd(&fd);
}

int br_init_pread(int fd, uint64_t offset, size_t max, struct br_buf *out)
{
    char chunk[16384];
    while (max) {
        ssize_t r = pread(fd, chunk, max < sizeof(chunk) ? max : sizeof(chunk), (off_t)offset);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -BR_E_IO : 0;
        if (br_buf_put(out, chunk, (size_t)r) < 0)
            return -BR_E_LIMIT_EXCEEDED;
        offset += (uint64_t)r;
        max -= (size_t)r;
    }
    return 0;
}
