/*
 * The two directories that a run is about: the workspace, which must be what the operator named and
 * nothing else, and the audit store, which must be out of every agent's reach.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/tree.h"
#include "supervise/supervise_priv.h"

/*
 * Of a client that may only name what lies below a root: the path is as it really was when it was
 * checked, so a link anywhere in it has been put there since.
 */
static int open_below(struct supervisor *s, struct br_err *err)
{
    const char *path = s->req.workspace, *root = s->req.root;
    size_t n = strlen(root);
    bool below = strncmp(path, root, n) == 0 && (!path[n] || path[n] == '/' || root[n - 1] == '/');
    BR_CLEANUP_FD int dir = open(root, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *rest = below ? path + n : "";
    while (*rest == '/')
        rest++;
    if (below && dir >= 0)
        s->workspace_fd = br_open_beneath(dir, *rest ? rest : ".", O_RDONLY | O_DIRECTORY, 0);
    if (s->workspace_fd >= 0)
        return 0;
    return br_err_set(
        err, BR_E_INVALID_WORKSPACE,
        "the workspace '%s' is not in '%s' any more, or cannot be opened; nothing was "
        "started",
        path, root);
}

int workspace_open(struct supervisor *s, struct br_err *err)
{
    const char *path = s->req.workspace;
    struct stat st;
    if (path[0] != '/')
        return br_err_set(err, BR_E_INVALID_WORKSPACE, "the workspace '%s' is not an absolute path",
                          path);
    if (!br_utf8_valid(path, strlen(path))) /* the record could not name it */
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the path of the workspace is not valid UTF-8; nothing was started. "
                          "Rename it, or reach it by another path");
    if (lstat(path, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE,
                            "the workspace '%s' cannot be used; nothing was started", path);
    if (S_ISLNK(st.st_mode))
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the workspace '%s' is a symbolic link; nothing was started. Name the "
                          "directory it leads to",
                          path);
    if (!S_ISDIR(st.st_mode))
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the workspace '%s' is not a directory; nothing was started", path);
    if (s->req.root[0] && open_below(s, err) < 0)
        return -BR_E_INVALID_WORKSPACE;
    if (s->workspace_fd < 0)
        s->workspace_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->workspace_fd < 0 || fstat(s->workspace_fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE,
                            "the workspace '%s' cannot be opened; nothing was started", path);
    if (geteuid() == 0 && (st.st_uid == 0 || st.st_gid == 0))
        return br_err_set(
            err, BR_E_INVALID_WORKSPACE,
            "the workspace '%s' belongs to root (%s), and the sandbox runs as the owner of "
            "the workspace; nothing was started. If it is a project, give it to an ordinary "
            "user and group: chown -R USER:GROUP '%s'. Nothing of the system's can be one",
            path,
            st.st_gid   ? "its owner is root"
            : st.st_uid ? "its group is root"
                        : "its owner and its group are root",
            path);
    return 0;
}

#define OBSERVER_DIR "observer"

int workspace_none(struct supervisor *s, struct br_err *err)
{
    int r = store_open(s, err);
    if (r < 0)
        return r;
    if (mkdirat(s->state_fd, OBSERVER_DIR, 0700) < 0 && errno != EEXIST)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "'%s/" OBSERVER_DIR "' could not be made; nothing was started",
                            s->state_dir);
    s->workspace_fd = br_open_beneath(s->state_fd, OBSERVER_DIR, O_RDONLY | O_DIRECTORY, 0);
    if (s->workspace_fd < 0 ||
        (geteuid() == 0 && fchown(s->workspace_fd, BR_UID_SESSION, BR_UID_SESSION) < 0))
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "'%s/" OBSERVER_DIR "' could not be used; nothing was started",
                            s->state_dir);
    return 0;
}

/* True if `fd` is `dir` or lies below it, told by identity and not by name. */
static bool lies_within(int fd, int dir)
{
    struct stat want, at, up;
    BR_CLEANUP_FD int here = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (here < 0 || fstat(dir, &want) < 0)
        return true;
    for (;;) {
        if (fstat(here, &at) < 0)
            return true;
        if (at.st_dev == want.st_dev && at.st_ino == want.st_ino)
            return true;
        int next = openat(here, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (next < 0 || fstat(next, &up) < 0) {
            br_close(&next);
            return true;
        }
        bool top = up.st_dev == at.st_dev && up.st_ino == at.st_ino;
        br_close(&here);
        here = next;
        if (top)
            return false;
    }
}

/* A directory of the state directory; made if it is not there. */
static int open_part(struct supervisor *s, const char *name, uid_t uid, struct br_err *err)
{
    struct stat st;
    if (mkdirat(s->state_fd, name, 0700) < 0 && errno != EEXIST)
        return br_err_errno(err, BR_E_STORE_FAILED, "'%s/%s' could not be made", s->state_dir,
                            name);
    BR_CLEANUP_FD int fd = br_open_beneath(s->state_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOSYS)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this kernel refuses 'openat2', without which no path can be opened "
                          "safely; nothing was started. Use Linux 5.8 or newer; in a container, a "
                          "seccomp profile that allows openat2");
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "'%s/%s' could not be opened; nothing was started", s->state_dir, name);
    if (geteuid() == 0 && st.st_uid == 0 && uid != 0 && fchown(fd, uid, uid) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED, "'%s/%s' has a wrong owner", s->state_dir,
                            name);
    return br_steal_fd(&fd);
}

int state_open(struct supervisor *s, bool make, struct br_err *err)
{
    const char *path = s->state_dir;
    struct stat st;
    int r = br_state_path(s->state_dir, getenv, err);
    if (r == 0 && !make && lstat(path, &st) < 0 && errno == ENOENT)
        return 0;
    if (r == 0)
        r = br_state_open(path, err);
    if (r < 0)
        return r;
    s->state_fd = r;
    if (s->workspace_fd >= 0 &&
        (lies_within(s->state_fd, s->workspace_fd) || lies_within(s->workspace_fd, s->state_fd)))
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the state directory '%s' and the workspace '%s' lie one within the "
                          "other; nothing was started. Choose another one with BRIDLE_STATE_DIR",
                          path, s->req.workspace);
    return 0;
}

int store_open(struct supervisor *s, struct br_err *err)
{
    int r = state_open(s, true, err);
    if (r < 0)
        return r;
    s->store_fd = open_part(s, "audit", BR_UID_AUDIT, err);
    return s->store_fd < 0 ? s->store_fd : 0;
}

/* Would the launcher accept the whole tree? `left`: how many entries all of them may still have. */
static bool is_grantable(const struct br_allowed_root *root, const struct br_allowed *a,
                         struct br_covers *scratch, uint32_t *left)
{
    struct br_tree tree;
    uint8_t sha256[32];
    uint32_t entries;
    if (!a->dir)
        return true;
    br_tree_init(&tree, scratch, *left);
    bool ok = br_tree_fingerprint(&tree, root, a, false, &entries, sha256, NULL) == 0 &&
              br_tree_check_links(&tree, NULL) == 0;
    if (ok)
        *left -= tree.entries;
    br_tree_free(&tree);
    return ok;
}

/* The pattern that grants an entry of the workspace; false if there is none that would be accepted.
 */
static bool default_pattern(struct br_allowed_root *root, const char *name, bool dir,
                            struct br_covers *scratch, uint32_t *left, char pattern[NAME_MAX + 8])
{
    struct br_allowed a = {.fd = -1};
    snprintf(pattern, NAME_MAX + 8, "%s%s", name, dir ? "/**" : "");
    bool ok =
        br_allowed_open(root, pattern, &a, NULL) == 0 && is_grantable(root, &a, scratch, left);
    br_allowed_close(&a);
    return ok;
}

/*
 * Visible top-level entries only: a run that nobody wrote a manifest for does not get at `.git`,
 * editor settings or other dotfiles. What cannot be granted exactly is left read-only.
 */
uint32_t workspace_defaults(struct supervisor *s, char *out[BR_ALLOWED_PATHS_MAX])
{
    uint32_t n = 0;
    struct stat st;
    struct br_allowed_root root;
    uint32_t left = BR_TREE_ENTRIES_MAX;
    BR_CLEANUP_FREE struct br_covers *scratch = calloc(1, sizeof(*scratch));
    int fd = openat(s->workspace_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        br_close(&fd);
        return 0;
    }
    if (scratch && br_allowed_root_open(&root, s->workspace_fd, NULL) == 0) {
        for (struct dirent *e; (e = readdir(d)) && n < BR_ALLOWED_PATHS_MAX;) {
            char pattern[NAME_MAX + 8];
            if (e->d_name[0] == '.' ||
                fstatat(s->workspace_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                !default_pattern(&root, e->d_name, S_ISDIR(st.st_mode), scratch, &left, pattern))
                continue;
            out[n] = strdup(pattern);
            n += out[n] != NULL;
        }
    }
    closedir(d);
    return n;
}
