/*
 * Descriptors: cleanup, whole reads and writes, sealed memfds, opening below a directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

#define MEMFD_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

void br_close(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd);
        errno = saved;
    }
    *fd = -1;
}

void br_cleanup_fd(int *fd)
{
    br_close(fd);
}

void br_cleanup_free(void *p)
{
    free(*(void **)p);
}

void br_cleanup_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

int br_write_all(int fd, const void *p, size_t n)
{
    const char *at = p;
    while (n) {
        ssize_t r = write(fd, at, n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        at += r;
        n -= (size_t)r;
    }
    return 0;
}

int br_read_all(int fd, struct br_buf *out, const char *what, struct br_err *err)
{
    char chunk[16384];
    for (;;) {
        ssize_t r = read(fd, chunk, sizeof(chunk));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return br_err_errno(err, BR_E_IO, "'%s' could not be read", what);
        if (r == 0)
            return 0;
        if (br_buf_put(out, chunk, (size_t)r) < 0)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                              "'%s' is larger than %zu bytes; it was not used", what, out->max);
    }
}

ssize_t br_read_text(int dirfd, const char *path, char *dst, size_t cap)
{
    BR_CLEANUP_FD int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd >= 0 ? read(fd, dst, cap - 1) : -1;
    dst[n > 0 ? n : 0] = 0;
    return n;
}

int br_memfd_sealed(const char *name, const void *p, size_t n)
{
    BR_CLEANUP_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    int r = br_write_all(fd, p, n);
    if (r < 0) {
        errno = -r;
        return -1;
    }
    if (fcntl(fd, F_ADD_SEALS, MEMFD_SEALS) < 0)
        return -1;
    return br_steal_fd(&fd);
}

int br_memfd_read(int fd, size_t max, struct br_buf *out, struct br_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & MEMFD_SEALS) != MEMFD_SEALS || fstat(fd, &st) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "a body did not come as a sealed memfd");
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED, "a body of %lld bytes is over its limit of %zu",
                          (long long)st.st_size, max);
    size_t n = (size_t)st.st_size;
    if (n == 0)
        return 0;
    void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return br_err_errno(err, BR_E_IO, "a body could not be mapped");
    int r = br_buf_put(out, map, n);
    munmap(map, n);
    return r < 0 ? br_err_set(err, BR_E_LIMIT_EXCEEDED, "a body of %zu bytes is over its limit", n)
                 : 0;
}

int br_open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = (flags & (O_CREAT | O_TMPFILE)) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    /* RESOLVE_BENEATH may answer EAGAIN while somebody renames; a bounded number of tries. */
    for (int i = 0; i < 16; i++) {
        long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            return (int)fd;
    }
    return -1;
}
