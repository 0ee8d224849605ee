/*
 * Tests only: ways to use up a directory's bytes and inodes, each one step at a time, so that the
 * last one that works can be counted. Part of the tests' pid 1 (test_init.c); no sanitizers. DIR is
 * made, and what is made in it is left there (but for deleted files, which live until the end).
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "launch/test_fill.h"

#define STEP 4096

static int dir;        /* the directory */
static int fd;         /* of kinds that use one file */
static char name[256]; /* of the one that a step makes */
static char block[STEP * 2];
static char *map;
static sigjmp_buf bus;

static const char *short_name(int i)
{
    snprintf(name, sizeof(name), "f%06d", i);
    return name;
}

static const char *long_name(int i)
{
    memset(name, 'n', 255);
    name[255] = 0;
    snprintf(name, 8, "%07d", i);
    name[7] = 'x';
    return name;
}

static int make_empty(const char *file)
{
    int f = openat(dir, file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return f < 0 ? -1 : close(f);
}

/* Links to "s0"; to another file when that one has as many as the file system allows. */
static int link_step(const char *to)
{
    static char from[16] = "s0";
    static int source;
    int r = linkat(dir, from, dir, to, 0);
    if (r == 0 || (errno != EMLINK && errno != ENOENT))
        return r;
    snprintf(from, sizeof(from), "s%d", errno == ENOENT ? (source = 0) : ++source);
    return make_empty(from) < 0 ? -1 : linkat(dir, from, dir, to, 0);
}

static int write_block(int i)
{
    ssize_t n = pwrite(fd, block, STEP, (off_t)i * STEP);
    if (n >= 0 && n != STEP)
        errno = ENOSPC;
    return n == STEP ? 0 : -1;
}

static int step_bytes(int i)
{
    return write_block(i);
}

static int step_files(int i)
{
    return make_empty(short_name(i));
}

static int step_fallocate(int i)
{
    return fallocate(fd, 0, (off_t)i * STEP, STEP);
}

static int step_xattrs(int i)
{
    int f = openat(dir, short_name(i), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    memcpy(block, &i, sizeof(i)); /* ext4 shares blocks of equal attributes */
    int r = f < 0 ? -1 : fsetxattr(f, "user.fill", block, 3000, 0);
    int e = errno;
    if (f >= 0)
        close(f);
    errno = e;
    return r;
}

static int step_names(int i)
{
    return link_step(long_name(i));
}

static int step_links(int i)
{
    return link_step(short_name(i));
}

static int step_symlinks(int i)
{
    static char target[4001];
    memset(target, 't', 4000);
    return symlinkat(target, dir, short_name(i));
}

static int step_mmap(int i)
{
    if (sigsetjmp(bus, 1) != 0) {
        errno = ENOSPC; /* a mapping has no other way to say it */
        return -1;
    }
    map[(size_t)i * STEP] = 1;
    return 0;
}

static void on_bus(int sig)
{
    (void)sig;
    siglongjmp(bus, 1);
}

static int open_one(int max, int grow, int gone)
{
    fd = openat(dir, "one", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (grow && ftruncate(fd, (off_t)max * STEP) < 0))
        return -1;
    return gone ? unlinkat(dir, "one", 0) : 0;
}

static int open_map(int max)
{
    if (open_one(max, 1, 0) < 0)
        return -1;
    map = mmap(NULL, (size_t)max * STEP, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    signal(SIGBUS, on_bus);
    return map == MAP_FAILED ? -1 : 0;
}

static const struct {
    const char *kind;
    int (*step)(int i);
    int one, grow, gone, mapped; /* how the one file is made, if there is one */
} kinds[] = {
    {"bytes", step_bytes, 1, 0, 0, 0},   {"sparse", step_bytes, 1, 1, 0, 0},
    {"deleted", step_bytes, 1, 0, 1, 0}, {"fallocate", step_fallocate, 1, 0, 0, 0},
    {"mmap", step_mmap, 0, 0, 0, 1},     {"files", step_files, 0, 0, 0, 0},
    {"xattrs", step_xattrs, 0, 0, 0, 0}, {"names", step_names, 0, 0, 0, 0},
    {"links", step_links, 0, 0, 0, 0},   {"symlinks", step_symlinks, 0, 0, 0, 0},
};

void run_fill(const char *args, char *answer, size_t cap)
{
    char kind[32], path[256];
    int max = 0, i = 0, e = 0;
    unsigned k = 0;
    if (sscanf(args, "%31s %255s %d", kind, path, &max) != 3)
        return;
    while (k < sizeof(kinds) / sizeof(kinds[0]) && strcmp(kinds[k].kind, kind) != 0)
        k++;
    if (k == sizeof(kinds) / sizeof(kinds[0]))
        return;
    dir = fd = -1;
    memset(block, 'b', sizeof(block));
    if (mkdir(path, 0700) < 0 || (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        (kinds[k].one && open_one(max, kinds[k].grow, kinds[k].gone) < 0) ||
        (kinds[k].mapped && open_map(max) < 0)) {
        snprintf(answer, cap, "-1 %d", errno);
        close(fd);
        close(dir);
        return;
    }
    for (; i < max && e == 0; i += e == 0)
        e = kinds[k].step(i) < 0 ? errno : 0;
    if (kinds[k].mapped)
        munmap(map, (size_t)max * STEP);
    if (kinds[k].one || kinds[k].mapped)
        close(fd);
    close(dir);
    snprintf(answer, cap, "%d %d", i, e);
}
