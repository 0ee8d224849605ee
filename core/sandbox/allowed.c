/*
 * Allowed paths: the patterns of a manifest that become writable mounts. Called by bridle-launch
 * with patterns that came over a channel, and (the syntax check) by programs that want to refuse
 * early. Trusts the workspace descriptor; trusts neither the patterns nor anything that lies in
 * the workspace, which an agent of an earlier run may have prepared.
 *
 * Everything is opened with openat2 beneath the workspace, never by an absolute path, and what is
 * mounted later is the very descriptor that was checked here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/allowed.h"

#define REFUSE(err, pattern, why)                                                                  \
    br_err_set(err, BR_E_INVALID_ALLOWED_PATH, "the allowed path '%s' " why, visible(pattern).s)

/* For messages: patterns may hold anything. */
struct visible {
    char s[256];
};

static struct visible visible(const char *pattern)
{
    struct visible v = {.s = "?"};
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * BR_PATH_MAX);
    if (br_buf_put_visible(&b, pattern, strnlen(pattern, BR_PATH_MAX), true) == 0 &&
        br_buf_cstr(&b))
        snprintf(v.s, sizeof(v.s), "%s", br_buf_cstr(&b));
    v.s[br_utf8_floor(v.s, strlen(v.s))] = 0;
    return v;
}

static bool has_control(const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        if (*p < 0x20 || *p == 0x7f || (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f))
            return true;
    return false;
}

size_t br_allowed_split(const char *pattern, bool *dir)
{
    size_t n = strlen(pattern);
    *dir = false;
    if (n >= 3 && strcmp(pattern + n - 3, "/**") == 0) {
        *dir = true;
        return n - 3;
    }
    if (n >= 1 && pattern[n - 1] == '/') {
        *dir = true;
        return n - 1;
    }
    return n;
}

static int check_segments(const char *pattern, size_t n, struct br_err *err)
{
    for (size_t at = 0; at <= n;) {
        const char *seg = pattern + at;
        const char *slash = memchr(seg, '/', n - at);
        size_t len = slash ? (size_t)(slash - seg) : n - at;
        if (len == 0)
            return REFUSE(err, pattern, "has an empty segment; nothing was started");
        if (len == 2 && seg[0] == '.' && seg[1] == '.')
            return REFUSE(err, pattern,
                          "has a '..' segment; nothing was started. Name the path from the "
                          "workspace downwards");
        if (len == 1 && seg[0] == '.')
            return REFUSE(err, pattern, "has a '.' segment; nothing was started. Leave it out");
        if (len > 255)
            return REFUSE(err, pattern,
                          "has a segment of more than 255 bytes; nothing was started");
        at += len + 1;
    }
    return 0;
}

int br_allowed_path_check(const char *pattern, struct br_err *err)
{
    size_t n = strnlen(pattern, BR_PATH_MAX);
    bool dir;
    if (n == 0)
        return REFUSE(err, pattern, "is empty; nothing was started");
    if (n >= BR_PATH_MAX)
        return REFUSE(err, pattern, "is longer than 4095 bytes; nothing was started");
    if (has_control(pattern))
        return REFUSE(err, pattern, "has a control character; nothing was started");
    if (!br_utf8_valid(pattern, n))
        return REFUSE(err, pattern, "is not valid UTF-8; nothing was started");
    if (pattern[0] == '/')
        return REFUSE(err, pattern,
                      "is absolute; nothing was started. Name it relative to the workspace");
    if (strcmp(pattern, "**") == 0 || strcmp(pattern, "*") == 0)
        return REFUSE(err, pattern,
                      "would make the whole workspace writable; nothing was started. Name files, "
                      "or directories as 'dir/**'");
    if (strchr(pattern, ','))
        return REFUSE(err, pattern, "has a comma; nothing was started. Rename the file");
    if (strchr(pattern, '\\'))
        return REFUSE(err, pattern, "has a backslash; nothing was started. Rename the file");
    size_t len = br_allowed_split(pattern, &dir);
    for (size_t i = 0; i < len; i++)
        if (pattern[i] == '*' || pattern[i] == '?')
            return REFUSE(err, pattern,
                          "has a wildcard other than a final '/**'; nothing was started. Name an "
                          "exact file, or a directory as 'dir/**'");
    return check_segments(pattern, len, err);
}

/* ---- what is there ---- */

int br_allowed_root_open(struct br_allowed_root *root, int ws_fd, struct br_err *err)
{
    struct statx st;
    *root = (struct br_allowed_root){.fd = ws_fd};
    if (statx(ws_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE, "the workspace could not be examined");
    if (!(st.stx_mask & STATX_MNT_ID))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this kernel does not report mount ids (statx), so nested mounts cannot "
                          "be told apart; nothing was started. Use Linux 5.8 or newer");
    root->mnt_id = st.stx_mnt_id;
    root->dev_major = st.stx_dev_major;
    root->dev_minor = st.stx_dev_minor;
    struct statfs fs;
    root->overlay = fstatfs(ws_fd, &fs) == 0 && (uint32_t)fs.f_type == OVERLAYFS_SUPER_MAGIC;
    return 0;
}

bool br_allowed_same_fs(const struct br_allowed_root *root, uint32_t mode, uint32_t dev_major,
                        uint32_t dev_minor)
{
    return (root->overlay && !S_ISDIR(mode)) ||
           (dev_major == root->dev_major && dev_minor == root->dev_minor);
}

static int check_type(const struct br_allowed *a, const struct statx *st, struct br_err *err)
{
    switch (st->stx_mode & S_IFMT) {
    case S_IFDIR:
        if (!a->dir)
            return REFUSE(err, a->rel,
                          "is a directory; nothing was started. Write it as 'dir/**' to allow its "
                          "whole tree");
        return 0;
    case S_IFREG:
        if (a->dir)
            return REFUSE(err, a->rel,
                          "is a file but was written like a directory; nothing was started. Name "
                          "the file without '/' or '/**' at its end");
        if (st->stx_nlink > 1)
            return REFUSE(err, a->rel,
                          "has more than one hard link, so writing it would also change a file "
                          "elsewhere; nothing was started. Copy it to break the link");
        if (st->stx_mode & S_ISUID)
            return REFUSE(
                err, a->rel,
                "is a set-user-id program, and would stay one when it is changed; nothing "
                "was started. chmod u-s it");
        return 0;
    case S_IFLNK:
        return REFUSE(err, a->rel, "is a symbolic link; nothing was started. Name its target");
    case S_IFIFO:
        return REFUSE(err, a->rel, "is a FIFO; nothing was started");
    case S_IFSOCK:
        return REFUSE(err, a->rel, "is a socket; nothing was started");
    default:
        return REFUSE(err, a->rel, "is a device; nothing was started");
    }
}

static int examine(struct br_allowed_root *root, struct br_allowed *a, bool again,
                   struct br_err *err)
{
    struct statx st;
    if (statx(a->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
        return REFUSE(err, a->rel, "could not be examined; nothing was started");
    if (again && (st.stx_ino != a->ino || st.stx_nlink == 0))
        return REFUSE(err, a->rel, "was replaced while the sandbox was being made");
    a->ino = st.stx_ino;
    a->dev_major = st.stx_dev_major;
    a->dev_minor = st.stx_dev_minor;
    int r = check_type(a, &st, err);
    if (r < 0)
        return r;
    if (!br_allowed_same_fs(root, st.stx_mode, a->dev_major, a->dev_minor))
        return REFUSE(err, a->rel,
                      "lies on another file system than the workspace; nothing was started");
    if (st.stx_mnt_id != root->mnt_id)
        return REFUSE(err, a->rel, "is a mount of its own; nothing was started");
    return 0;
}

static int open_failed(const struct br_allowed *a, int e, struct br_err *err)
{
    if (e == ENOENT)
        return REFUSE(err, a->rel,
                      "does not exist; nothing was started. Create it first, or name what exists");
    if (e == ELOOP)
        return REFUSE(err, a->rel,
                      "goes through a symbolic link; nothing was started. Name the real path");
    if (e == EXDEV)
        return REFUSE(err, a->rel, "leads out of the workspace; nothing was started");
    if (e == ENOTDIR)
        return REFUSE(err, a->rel,
                      "goes through something that is not a directory; nothing was "
                      "started");
    errno = e;
    return br_err_errno(err, BR_E_INVALID_ALLOWED_PATH,
                        "the allowed path '%s' could not be opened; nothing was started",
                        visible(a->rel).s);
}

int br_allowed_open(struct br_allowed_root *root, const char *pattern, struct br_allowed *out,
                    struct br_err *err)
{
    out->fd = -1;
    int r = br_allowed_path_check(pattern, err);
    if (r < 0)
        return r;
    size_t n = br_allowed_split(pattern, &out->dir);
    memcpy(out->rel, pattern, n);
    out->rel[n] = 0;
    /* O_NOFOLLOW with O_PATH opens a final link itself; RESOLVE_NO_SYMLINKS then refuses it. */
    out->fd = br_open_beneath(root->fd, out->rel, O_PATH, 0);
    if (out->fd < 0)
        return open_failed(out, errno, err);
    return examine(root, out, false, err);
}

int br_allowed_recheck(struct br_allowed_root *root, const struct br_allowed *a, struct br_err *err)
{
    struct br_allowed again = {.fd = a->fd, .dir = a->dir, .ino = a->ino};
    memcpy(again.rel, a->rel, sizeof(again.rel));
    return examine(root, &again, true, err);
}

void br_allowed_close(struct br_allowed *a)
{
    br_close(&a->fd);
}
