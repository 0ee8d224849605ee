/*
 * Where a symbolic link leads, told without following one: its target is taken apart name by name
 * from the directory that the link is in, and a link on the way is taken apart in turn. A tree that
 * somebody hostile has written; only names are read. Called by plan.c.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "promote/promote_priv.h"

/* As the kernel has it. */
#define HOPS_MAX 40u

/* Take the last name off; false at the root. */
static bool up(char *dir)
{
    char *slash = strrchr(dir, '/');
    if (!dir[0])
        return false;
    *(slash ? slash : dir) = 0;
    return true;
}

static bool append(char *dst, size_t cap, const char *name, size_t n, const char *sep)
{
    size_t at = strlen(dst), s = at ? strlen(sep) : 0;
    if (at + s + n + 1 > cap)
        return false;
    memcpy(dst + at, sep, s);
    memcpy(dst + at + s, name, n);
    dst[at + s + n] = 0;
    return true;
}

/* The target of a link, in front of what is left to resolve. */
static bool put_before(char *rest, size_t cap, const char *target, const char *left)
{
    char copy[2 * BR_PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", left);
    size_t n = strlen(target);
    if (n + strlen(copy) + 2 > cap)
        return false;
    snprintf(rest, cap, "%s%s%s", target, copy[0] ? "/" : "", copy);
    return true;
}

static ssize_t read_link(int tree, const char *path, char target[BR_PATH_MAX])
{
    BR_CLEANUP_FD int fd = promote_open(tree, path, O_PATH);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (!S_ISLNK(st.st_mode))
        return 0;
    ssize_t n = readlinkat(fd, "", target, BR_PATH_MAX - 1);
    if (n >= 0)
        target[n] = 0;
    return n;
}

bool link_stays(int tree, const char *path)
{
    char dir[BR_PATH_MAX] = "", rest[2 * BR_PATH_MAX] = "", target[BR_PATH_MAX];
    unsigned hops = 0;
    if (!append(rest, sizeof(rest), path, strlen(path), "/"))
        return false;
    while (rest[0]) {
        size_t skip = strspn(rest, "/"), n = strcspn(rest + skip, "/");
        char name[BR_PATH_MAX];
        if (n >= sizeof(name))
            return false;
        memcpy(name, rest + skip, n);
        name[n] = 0;
        memmove(rest, rest + skip + n, strlen(rest + skip + n) + 1);
        if (n == 0 || strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            if (!up(dir))
                return false;
            continue;
        }
        if (!append(dir, sizeof(dir), name, n, "/"))
            return false;
        ssize_t len = read_link(tree, dir, target);
        if (len < 0 && errno != ENOENT && errno != ENOTDIR)
            return false;
        if (len <= 0)
            continue; /* nothing, or what it is leads nowhere else */
        if (target[0] == '/' || ++hops > HOPS_MAX || !up(dir) ||
            !put_before(rest, sizeof(rest), target, rest + strspn(rest, "/")))
            return false;
    }
    return true;
}
