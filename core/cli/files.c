/*
 * The operator's files: manifest, policy, configuration, scenario. They are read here, as the
 * operator and with the operator's rights, and travel to bridled as bytes; no other program opens
 * them. A directory, FIFO, device or socket is refused before it is read, and so is a file over its
 * limit. A missing optional file means "none"; one that is there but cannot be read is an error,
 * never "none".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

void br_cli_file_free(struct br_cli_file *f)
{
    br_buf_free(&f->text);
    f->path[0] = '\0';
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* 1 if it was read, 0 if `optional` and there is none, or a negative code. */
static int read_file(struct br_cli_file *f, const char *path, const char *what, enum br_code code,
                     size_t max, bool optional, struct br_err *err)
{
    br_buf_init(&f->text, max);
    f->path[0] = '\0';
    if (strlen(path) >= sizeof(f->path))
        return br_err_set(err, code, "the path of the %s is too long; nothing was started", what);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        if (optional)
            return 0;
        return br_err_set(err, BR_E_NOT_FOUND, "the %s '%s' does not exist; nothing was started",
                          what, path);
    }
    struct stat st;
    if (fd < 0 && errno == ENXIO)
        return br_err_set(err, code, "the %s '%s' is not a regular file; nothing was started", what,
                          path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, code, "the %s '%s' could not be read; nothing was started", what,
                            path);
    if (!S_ISREG(st.st_mode))
        return br_err_set(err, code, "the %s '%s' is %s, not a file; nothing was started", what,
                          path, kind_of(st.st_mode));
    if (st.st_size > (off_t)max)
        return br_err_set(err, code,
                          "the %s '%s' has %lld bytes, more than %zu; nothing was started", what,
                          path, (long long)st.st_size, max);
    int r = br_read_all(fd, &f->text, path, err);
    if (r < 0)
        return err ? (err->code = code, -(int)code) : r;
    /* on the wire, no bytes mean no document; an empty document is one blank line */
    if (f->text.len == 0 && br_buf_put_u8(&f->text, '\n') < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the %s '%s'", what, path);
    snprintf(f->path, sizeof(f->path), "%s", path);
    return 1;
}

int br_cli_file_read(struct br_cli_file *f, const char *path, const char *what, enum br_code code,
                     size_t max, struct br_err *err)
{
    int r = read_file(f, path, what, code, max, false, err);
    return r < 0 ? r : 0;
}

int br_cli_file_config(struct br_cli_file *f, const char *given, const char *name, const char *what,
                       enum br_code code, size_t max, struct br_err *err)
{
    if (given)
        return br_cli_file_read(f, given, what, code, max, err);
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char path[BR_PATH_MAX];
    int n = 0;
    if (xdg && xdg[0] == '/') /* a relative one is to be ignored, says the XDG specification */
        n = snprintf(path, sizeof(path), "%s/bridle/%s", xdg, name);
    else if (home && home[0] == '/')
        n = snprintf(path, sizeof(path), "%s/.config/bridle/%s", home, name);
    if (n > 0 && (size_t)n < sizeof(path)) {
        int r = read_file(f, path, what, code, max, true, err);
        if (r != 0)
            return r < 0 ? r : 0;
        br_buf_free(&f->text);
    }
    snprintf(path, sizeof(path), "/etc/bridle/%s", name);
    int r = read_file(f, path, what, code, max, true, err);
    return r < 0 ? r : 0;
}

/* Removes "." and empty components, and ".." as written. */
static void lexical(char *out, size_t cap, const char *path)
{
    size_t n = 0;
    out[0] = '\0';
    while (*path) {
        path += strspn(path, "/");
        size_t len = strcspn(path, "/");
        if (len == 2 && path[0] == '.' && path[1] == '.') {
            while (n > 0 && out[--n] != '/')
                ;
            out[n] = '\0';
        } else if (len && !(len == 1 && path[0] == '.') && n + len + 2 <= cap) {
            out[n++] = '/';
            memcpy(out + n, path, len);
            n += len;
            out[n] = '\0';
        }
        path += len;
    }
    if (n == 0)
        snprintf(out, cap, "/");
}

static bool same_object(const char *a, const char *b)
{
    struct stat sa, sb;
    return lstat(a, &sa) == 0 && lstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

int br_cli_workspace(char out[BR_PATH_MAX], const char *dir, struct br_err *err)
{
    char cwd[BR_PATH_MAX] = "", joined[2 * BR_PATH_MAX];
    if (dir[0] != '/' && !getcwd(cwd, sizeof(cwd)))
        return br_err_errno(err, BR_E_INVALID_WORKSPACE,
                            "the present directory has no usable path; nothing was started");
    int n = snprintf(joined, sizeof(joined), "%s%s%s", cwd, dir[0] == '/' ? "" : "/", dir);
    if (n < 0 || (size_t)n >= BR_PATH_MAX || dir[0] == '\0')
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the path of the workspace is empty or too long; nothing was started");
    /* A trailing slash would make the kernel follow a link that bridled has to see. */
    while (n > 1 && joined[n - 1] == '/')
        joined[--n] = '\0';
    lexical(out, BR_PATH_MAX, joined);
    if (strstr(joined, "..") && !same_object(out, joined))
        snprintf(out, BR_PATH_MAX, "%.*s", (int)BR_PATH_MAX - 1, joined);
    return 0;
}

bool br_cli_path_below(const char *file, const char *dir)
{
    BR_CLEANUP_FREE char *f = realpath(file, NULL);
    BR_CLEANUP_FREE char *d = realpath(dir, NULL);
    if (!f || !d)
        return true; /* what cannot be told apart counts as the agent's */
    size_t n = strlen(d);
    if (n == 1)
        return true;
    return strncmp(f, d, n) == 0 && (f[n] == '/' || f[n] == '\0');
}

int br_cli_program(char path[BR_PATH_MAX], const char *name, struct br_err *err)
{
    char self[BR_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return br_err_errno(err, BR_E_FAILED,
                            "this program could not find itself; nothing was started");
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    int len = slash ? snprintf(path, BR_PATH_MAX, "%.*s/%s", (int)(slash - self), self, name) : -1;
    if (len < 0 || (size_t)len >= BR_PATH_MAX)
        return br_err_set(err, BR_E_FAILED, "'%s' has no usable directory; nothing was started",
                          self);
    if (access(path, X_OK) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' cannot be started; build or install it again",
                            path);
    return 0;
}
