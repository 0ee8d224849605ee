/*
 * Directories that a tool works in and removes at its end. The name says who made one (pid
 * namespace, pid, start time), so that the next start of the same tool finds those whose owner was
 * killed. Only what belongs to this effective uid is removed, by descriptor, following no symbolic
 * link and crossing into no other file system: others may write into the directory that they lie
 * in, and sandboxes wrote what lies in them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define DEPTH_MAX 400u

/* Field 22 of /proc/PID/stat; 0 and errno if there is no such process, or it has ended. */
static uint64_t start_time(long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *p = strrchr(text, ')'); /* the name may hold spaces */
    if (p && (p[2] == 'Z' || p[2] == 'X')) {
        errno = ESRCH;
        return 0;
    }
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static uint64_t own_pidns(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int br_scratch_make(char *path, size_t cap, const char *tmp, const char *prefix)
{
    int n = snprintf(path, cap, "%s/%s%" PRIu64 "-%ld-%" PRIu64 "-XXXXXX", tmp, prefix, own_pidns(),
                     (long)getpid(), start_time((long)getpid()));
    if (n < 0 || (size_t)n >= cap)
        errno = ENAMETOOLONG;
    else if (mkdtemp(path))
        return 0;
    path[0] = 0;
    return -1;
}

/* The owner of a name is a process of this pid namespace, and has ended. */
static bool owner_is_dead(const char *owner)
{
    uint64_t ns, start;
    long pid;
    int end = 0;
    if (sscanf(owner, "%" SCNu64 "-%ld-%" SCNu64 "-%n", &ns, &pid, &start, &end) != 3 || end == 0 ||
        strlen(owner + end) != 6 || pid <= 0 || ns == 0 || ns != own_pidns())
        return false;
    errno = 0;
    uint64_t now = start_time(pid);
    return now == 0 ? errno == ENOENT || errno == ESRCH : now != start;
}

static int remove_at(int dir, const char *name, dev_t dev, unsigned depth);

static int remove_inside(int fd, dev_t dev, unsigned depth)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d) {
        br_close(&copy);
        return -1;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            remove_at(fd, e->d_name, dev, depth + 1) < 0)
            r = -1;
    closedir(d);
    return r;
}

static int remove_at(int dir, const char *name, dev_t dev, unsigned depth)
{
    struct stat st;
    BR_CLEANUP_FD int fd =
        openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) /* no directory, or one that cannot be read and may still be empty */
        return unlinkat(dir, name, 0) == 0 || unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -1;
    if (depth > DEPTH_MAX || fstat(fd, &st) < 0 || st.st_dev != dev) {
        errno = depth > DEPTH_MAX ? ELOOP : EXDEV;
        return -1;
    }
    (void)remove_inside(fd, dev, depth); /* what stays keeps the directory */
    return unlinkat(dir, name, AT_REMOVEDIR);
}

/* Only what is ours; checked on what was opened. */
static int remove_own(int dir, const char *name)
{
    struct stat st;
    BR_CLEANUP_FD int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_uid != geteuid()) {
        errno = EPERM;
        return -1;
    }
    (void)remove_inside(fd, st.st_dev, 0);
    return unlinkat(dir, name, AT_REMOVEDIR);
}

int br_scratch_remove(const char *path)
{
    return remove_own(AT_FDCWD, path);
}

void br_scratch_sweep(const char *tmp, const char *prefix)
{
    BR_CLEANUP_FD int dir = open(tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int copy = dir >= 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    if (!d) {
        br_close(&copy);
        return;
    }
    size_t n = strlen(prefix);
    for (struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, prefix, n) == 0 && owner_is_dead(e->d_name + n))
            (void)remove_own(dir, e->d_name);
    closedir(d);
}
