/*
 * Where the state directory is, and opening it: the one rule that bridled and bridle-image share.
 * Called by programs, which hand in their environment; the path is the operator's word.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

int br_state_path(char dst[BR_PATH_MAX], char *(*env)(const char *), struct br_err *err)
{
    const char *own = env("BRIDLE_STATE_DIR"), *xdg = env("XDG_STATE_HOME"), *home = env("HOME");
    int n;
    if (own && *own)
        n = snprintf(dst, BR_PATH_MAX, "%s", own);
    else if (geteuid() == 0)
        n = snprintf(dst, BR_PATH_MAX, "/var/lib/bridle");
    else if (xdg && xdg[0] == '/')
        n = snprintf(dst, BR_PATH_MAX, "%s/bridle", xdg);
    else if (home && home[0] == '/')
        n = snprintf(dst, BR_PATH_MAX, "%s/.local/state/bridle", home);
    else
        return br_err_set(err, BR_E_STORE_FAILED,
                          "there is no place for the record: set BRIDLE_STATE_DIR or HOME");
    if (n < 0 || (size_t)n >= BR_PATH_MAX || dst[0] != '/')
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the state directory must be an absolute path shorter than %u bytes",
                          BR_PATH_MAX);
    return 0;
}

static int make_path(const char *path, struct br_err *err)
{
    char part[BR_PATH_MAX];
    for (size_t i = 1;; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, path[i] ? 0755 : 0700) < 0 && errno != EEXIST)
            return br_err_errno(err, BR_E_STORE_FAILED,
                                "the state directory '%s' could not be made; nothing was started",
                                part);
        if (path[i] == 0)
            return 0;
    }
}

int br_state_open(const char *path, struct br_err *err)
{
    struct stat st;
    int r = make_path(path, err);
    if (r < 0)
        return r;
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the state directory '%s' is a symbolic link; nothing was started. Name "
                          "the directory it leads to with BRIDLE_STATE_DIR",
                          path);
    if (fd < 0)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the state directory '%s' could not be opened; nothing was started",
                            path);
    if (fstat(fd, &st) < 0)
        return br_err_errno(err, BR_E_STORE_FAILED,
                            "the state directory '%s' could not be examined; nothing was started",
                            path);
    if (st.st_uid != geteuid()) /* whoever owns it can put there what they like */
        return br_err_set(err, BR_E_STORE_FAILED,
                          "the state directory '%s' belongs to uid %u, and this is uid %u; nothing "
                          "was started. Name one of your own with BRIDLE_STATE_DIR",
                          path, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 077) != 0)
        return br_err_set(
            err, BR_E_STORE_FAILED,
            "the state directory '%s' is open to other users (mode %03o); nothing "
            "was started. chmod 700 it if nothing but Bridle uses it, or name another "
            "one with BRIDLE_STATE_DIR",
            path, (unsigned)st.st_mode & 0777);
    return br_steal_fd(&fd);
}
