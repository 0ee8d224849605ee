/*
 * Support for the tests of promotion; see test_rig.h. The record is written as
 * core/sandbox/lease_copy.c does it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "promote/promote_priv.h"
#include "promote/test_rig.h"

void rig_sh(struct rig *r, const char *where, const char *line)
{
    char text[4096];
    snprintf(text, sizeof(text), "cd '%s/%s' && { %s\n}", r->dir, where, line);
    assert_int_equal(system(text), 0);
}

static int open_dir(struct rig *r, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", r->dir, name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int open_file(struct rig *r, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", r->dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

void rig_open(struct rig *r)
{
    *r = (struct rig){.p = {.lease = -1}};
    umask(022);
    /* in memory, where there is one: each of many promotions waits for the disk */
    snprintf(r->dir, sizeof(r->dir), "/dev/shm/bridle-promote.XXXXXX");
    if (!mkdtemp(r->dir)) {
        snprintf(r->dir, sizeof(r->dir), "/tmp/bridle-promote.XXXXXX");
        assert_non_null(mkdtemp(r->dir));
    }
    assert_int_equal(chmod(r->dir, 0755), 0);
    rig_sh(r, ".", "mkdir lease workspace");
    snprintf(r->lease, sizeof(r->lease), "%s/lease", r->dir);
    snprintf(r->workspace, sizeof(r->workspace), "%s/workspace", r->dir);
    rig_sh(r, "workspace",
           "mkdir -p src/deep .vscode && printf 'one\\ntwo\\nthree\\n' > a.txt && echo bee > "
           "src/b.txt && echo sea > src/deep/c.txt && ln -s a.txt link && echo run > tool.sh && "
           "chmod 755 tool.sh && mkdir old && echo 1 > old/one && echo 2 > old/two");
}

static void forget(struct rig *r)
{
    br_promotion_free(&r->p);
    br_close(&r->p.lease);
    br_close(&r->p.workspace);
    br_close(&r->p.base);
    br_close(&r->p.journal);
}

void rig_close(struct rig *r)
{
    char line[128];
    if (r->p.lease >= 0)
        forget(r);
    snprintf(line, sizeof(line), "chmod -R u+rwx '%s'; rm -rf '%s'", r->dir, r->dir);
    assert_int_equal(system(line), 0);
}

static int base_fd, lease_fd, root_len;
static uint64_t entries;

static int record(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    struct stat copy;
    (void)kind, (void)ftw;
    const char *name = path + root_len;
    if (!*name++)
        return 0;
    assert_int_equal(fstatat(lease_fd, name, &copy, AT_SYMLINK_NOFOLLOW), 0);
    const struct br_base_entry e = {.type = type_of(st->st_mode),
                                    .path_len = (uint16_t)strlen(name),
                                    .mode = st->st_mode & 07777,
                                    .ino = st->st_ino,
                                    .size = (uint64_t)st->st_size,
                                    .mtime_ns = ns_of(&st->st_mtim),
                                    .ctime_ns = ns_of(&st->st_ctim),
                                    .copy_ino = copy.st_ino};
    assert_int_equal(write(base_fd, &e, sizeof(e)), sizeof(e));
    assert_int_equal(write(base_fd, name, e.path_len), e.path_len);
    entries++;
    return 0;
}

void rig_copy(struct rig *r)
{
    struct timespec t;
    struct br_base_head h = {.magic = BR_BASE_MAGIC};
    rig_sh(r, ".", "cp -a workspace/. lease");
    base_fd = open_file(r, "base");
    lease_fd = open_dir(r, "lease");
    entries = 0;
    root_len = (int)strlen(r->workspace);
    assert_int_equal(lseek(base_fd, sizeof(h), SEEK_SET), sizeof(h));
    assert_int_equal(nftw(r->workspace, record, 32, FTW_PHYS), 0);
    clock_gettime(CLOCK_REALTIME, &t);
    h.entries = entries;
    h.done_ns = (uint64_t)ns_of(&t);
    assert_int_equal(pwrite(base_fd, &h, sizeof(h), 0), sizeof(h));
    close(base_fd);
    close(lease_fd);
    do
        clock_gettime(CLOCK_REALTIME_COARSE, &t);
    while (ns_of(&t) <= (int64_t)h.done_ns);
}

int rig_plan(struct rig *r, struct br_err *err)
{
    if (r->p.lease >= 0)
        forget(r);
    bool git = r->p.with_git;
    const char *const *skip = r->p.skip;
    unsigned nskip = r->p.nskip;
    r->p = (struct br_promotion){.lease = open_dir(r, "lease"),
                                 .workspace = open_dir(r, "workspace"),
                                 .base = open_file(r, "base"),
                                 .journal = open_file(r, "journal"),
                                 .stage = BR_PROMOTE_STAGE "run_1",
                                 .with_git = git,
                                 .skip = skip,
                                 .nskip = nskip};
    return br_promotion_plan(&r->p, err);
}

const struct br_change *rig_change(const struct rig *r, const char *path)
{
    for (size_t i = 0; i < r->p.nchanges; i++)
        if (strcmp(r->p.changes[i].path, path) == 0)
            return &r->p.changes[i];
    return NULL;
}

char *rig_tree(struct rig *r, const char *where)
{
    char line[512];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1 << 20);
    snprintf(line, sizeof(line),
             "cd '%s/%s' && find . ! -type d -printf '%%p %%y %%m %%l\\n' -type f -exec cat {} + , "
             "-type d -printf '%%p/ %%m\\n' | LC_ALL=C sort",
             r->dir, where);
    FILE *f = popen(line, "re");
    assert_non_null(f);
    char text[4096];
    for (size_t n; (n = fread(text, 1, sizeof(text), f)) > 0;)
        br_buf_put(&b, text, n);
    assert_int_equal(pclose(f), 0);
    return strdup(br_buf_cstr(&b));
}
