/*
 * The files of the lease root, all of them made by this program:
 *   ext4-1-BYTES-INODES.template  an empty file system, made once by mkfs.ext4
 *   state-NAME.img                a state lease that outlives its run; locked while in use
 *   bridle.<owner>.<random>.tmp   one of them while it is being made, or an image before it is
 *                                 unlinked; says whose it is, for the sweep
 * Called by lease_ext4.c and, for the sweep, host.c. The root was checked to be ours alone; a file
 * in it that is not ours is refused all the same.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine/confine.h"
#include "sandbox/lease_priv.h"
#include "sandbox/owner.h"
#include "sandbox/sys.h"

/* ---- the tools of e2fsprogs ---- */

#define TOOL_MEMORY (2ull << 30) /* address space */

static const char *const dirs[] = {"/usr/sbin", "/sbin"};

bool br_lease_find_tool(const char *tool, char path[64])
{
    for (unsigned i = 0; i < BR_ARRAY_LEN(dirs); i++) {
        snprintf(path, 64, "%s/%s", dirs[i], tool);
        if (access(path, X_OK) == 0)
            return true;
    }
    return false;
}

bool br_lease_has_tool(const char *tool)
{
    char path[64];
    return br_lease_find_tool(tool, path);
}

/* Everything that it prints, cut; true if it came to an end in time. */
static bool read_output(int fd, char *said, size_t cap)
{
    uint64_t deadline = br_now_us() + BR_LEASE_TOOL_MS * UINT64_C(1000);
    size_t at = 0;
    for (;;) {
        char rest[256];
        bool room = at + 1 < cap;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = br_now_us();
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / 1000 + 1)) == 0)
            return false;
        ssize_t n = read(fd, room ? said + at : rest, room ? cap - 1 - at : sizeof(rest));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += room ? (size_t)n : 0;
    }
    said[at] = 0;
    for (size_t i = 0; i < at; i++)
        if ((unsigned char)said[i] < ' ')
            said[i] = ' ';
    return true;
}

/*
 * The file may hold what a sandbox wrote: confined (core/confine), with that file as descriptor 3
 * and no other within its reach. It belongs to this user, so the tool has this user's uid.
 */
static int run_tool(const char *path, const char *const *argv, int fd, int *pipefd, char said[512],
                    int *status, struct br_err *err)
{
    const char *const env[] = {NULL};
    struct stat st = {.st_size = 0};
    struct br_confined p;
    BR_CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)fstat(fd, &st);
    struct br_confine c = {.path = path,
                           .argv = argv,
                           .env = env,
                           .fds = {null, pipefd[1], pipefd[1], fd},
                           .work = -1,
                           .read_dir = -1,
                           .file = fd,
                           .max_file = (uint64_t)st.st_size,
                           .max_memory = TOOL_MEMORY};
    int r = br_sys_spawn(&c, &p, err);
    br_close(&pipefd[1]);
    bool ended = r == 0 && read_output(pipefd[0], said, 512);
    br_close(&pipefd[0]);
    if (r < 0)
        return br_err_wrap(err, "no lease was made; nothing was started");
    if (!ended)
        br_confine_kill(&p);
    r = br_confine_wait(&p, status, err);
    if (!ended)
        *status = SIGKILL;
    return r < 0 ? br_err_wrap(err, "no lease was made; nothing was started") : 0;
}

int br_lease_tool(const char *tool, const char *const *args, int fd, char said[512],
                  struct br_err *err)
{
    char path[64], file[] = "/proc/self/fd/3";
    char *argv[32] = {(char *)(uintptr_t)tool};
    int pipefd[2], status = 0, r;
    unsigned n = 1;
    said[0] = 0;
    if (!br_lease_find_tool(tool, path))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'%s' is neither in /usr/sbin nor in /sbin; nothing was started. Install "
                          "e2fsprogs",
                          tool);
    for (; args[n - 1] && n < BR_ARRAY_LEN(argv) - 2; n++)
        argv[n] = (char *)(uintptr_t)args[n - 1];
    argv[n] = file;
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_FAILED, "no pipe for '%s'; nothing was started", tool);
    r = run_tool(path, (const char *const *)argv, fd, pipefd, said, &status, err);
    if (r < 0)
        return r;
    if (!WIFEXITED(status))
        return br_err_set(err, BR_E_FAILED, "'%s' did not come to an end; nothing was started",
                          path);
    return WEXITSTATUS(status);
}

/* ---- files ---- */

static int image_failed(const char *what, struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "an image for a lease could not be %s; nothing was started", what);
}

/* A new file that says whose it is, locked: a sweep leaves it alone. */
static int make_tmp(int root, char name[160], struct br_err *err)
{
    char tag[128];
    uint64_t random;
    int r = br_owner_tag(tag, sizeof(tag), err);
    if (r < 0)
        return r;
    br_random(&random, sizeof(random));
    snprintf(name, 160, "%s.%016" PRIx64 ".tmp", tag, random);
    BR_CLEANUP_FD int fd = br_sys_create(root, name);
    if (fd < 0)
        return image_failed("made", err);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        (void)unlinkat(root, name, 0);
        return image_failed("locked", err);
    }
    return br_steal_fd(&fd);
}

/* Is what was opened a file that this program made, and nobody else has a way to? */
static int check_file(int fd, const char *name, uint64_t bytes, struct br_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_CONFIG, "'leases/%s' could not be examined", name);
    const char *what = !S_ISREG(st.st_mode)     ? "is no regular file"
                       : st.st_uid != geteuid() ? "belongs to somebody else"
                       : st.st_nlink != 1       ? "has another name as well (a hard link)"
                       : (st.st_mode & 077)     ? "is open to others"
                       : (uint64_t)st.st_size != bytes
                           ? "has another size than the profile asks for"
                           : NULL;
    if (what)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "'leases/%s' in the state directory %s (%" PRIu64 " bytes, planned "
                          "%" PRIu64 "); nothing was started. Move it away",
                          name, what, (uint64_t)st.st_size, bytes);
    return 0;
}

/* Open one that exists: a descriptor, 0 if there is none (0 is never a file of ours), or an error.
 */
static int open_file(int root, const char *name, uint64_t bytes, struct br_lease_super *s,
                     struct br_err *err)
{
    BR_CLEANUP_FD int fd = br_open_beneath(root, name, O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return br_err_errno(err, BR_E_INVALID_CONFIG,
                            "'leases/%s' in the state directory could not be opened; nothing was "
                            "started. If it is a link, remove it",
                            name);
    int r = check_file(fd, name, bytes, err);
    if (r == 0 && (br_lease_super_read(fd, s) < 0 || s->bytes > bytes))
        r = br_err_set(err, BR_E_INVALID_CONFIG,
                       "'leases/%s' in the state directory is no file system of a lease of %" PRIu64
                       " bytes; nothing was started. Move it away",
                       name, bytes);
    return r < 0 ? r : br_steal_fd(&fd);
}

/* Reserve every block now: a host without room refuses here, not in the middle of a run. */
static int reserve(int fd, uint64_t bytes, struct br_err *err)
{
    if (br_sys_fallocate(fd, bytes) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "%" PRIu64 " bytes could not be reserved on the file system of the "
                            "state directory for a lease; nothing was started. Make room there, or "
                            "use smaller leases",
                            bytes);
    return 0;
}

static int copy_template(int from, int to, struct br_err *err)
{
    static char data[256 * 1024];
    off_t at = 0, end;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        end = lseek(from, at, SEEK_HOLE);
        while (at < end) {
            size_t want = end - at < (off_t)sizeof(data) ? (size_t)(end - at) : sizeof(data);
            ssize_t n = pread(from, data, want, at);
            if (n <= 0 || pwrite(to, data, (size_t)n, at) != n)
                return image_failed("written", err);
            at += n;
        }
    }
    return errno == ENXIO ? 0 : image_failed("read", err);
}

/* ---- templates ---- */

static int open_template(struct br_disk_lease *d, int root, struct br_err *err)
{
    char name[96], tmp[160];
    struct br_lease_super s = {0};
    uint64_t inodes = d->quota.inodes;
    snprintf(name, sizeof(name), "ext4-1-%" PRIu64 "-%" PRIu64 ".template", d->quota.bytes,
             d->quota.inodes);
    int fd = open_file(root, name, d->quota.bytes, &s, err);
    if (fd == 0) {
        BR_CLEANUP_FD int made = make_tmp(root, tmp, err);
        int r = made < 0 ? made : br_lease_ext4_format(made, d->quota.bytes, &inodes, err);
        if (r == 0 && fsync(made) < 0)
            r = image_failed("written", err);
        /* another launcher may have made the same one meanwhile */
        if (r == 0 && br_sys_rename(root, tmp, name) < 0 && errno != EEXIST)
            r = image_failed("named", err);
        if (made >= 0)
            (void)unlinkat(root, tmp, 0);
        fd = r < 0 ? r : open_file(root, name, d->quota.bytes, &s, err);
        if (fd == 0)
            fd = br_err_set(err, BR_E_FAILED, "'leases/%s' went away; nothing was started", name);
    }
    if (fd > 0 && (!s.clean || s.inodes > d->quota.inodes)) {
        br_close(&fd);
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "'leases/%s' in the state directory is not as it was made; nothing was "
                          "started. Remove it",
                          name);
    }
    d->inodes = s.inodes;
    return fd;
}

int br_lease_image_new(struct br_disk_lease *d, int root, struct br_err *err)
{
    char tmp[160];
    struct stat st;
    BR_CLEANUP_FD int master = open_template(d, root, err);
    if (master < 0)
        return master;
    d->image = make_tmp(root, tmp, err);
    if (d->image < 0)
        return d->image;
    /* from here on it lives as long as somebody has it open */
    if (br_sys_unlink(root, tmp) < 0 || fstat(d->image, &st) < 0 || st.st_nlink != 0) {
        (void)unlinkat(root, tmp, 0);
        return image_failed("unlinked", err);
    }
    d->unnamed = true;
    int r = reserve(d->image, d->quota.bytes, err);
    return r < 0 ? r : copy_template(master, d->image, err);
}

/* ---- the workspace lease of a run that may be kept ---- */

int br_lease_image_kept(struct br_disk_lease *d, int root, struct br_err *err)
{
    char tmp[160], image[BR_LEASE_NAME_MAX], base[BR_LEASE_NAME_MAX];
    br_lease_keep_names(d->keep, image, base);
    BR_CLEANUP_FD int master = open_template(d, root, err);
    if (master < 0)
        return master;
    d->image = make_tmp(root, tmp, err);
    if (d->image < 0)
        return d->image;
    int r = reserve(d->image, d->quota.bytes, err);
    if (r == 0)
        r = copy_template(master, d->image, err);
    if (r == 0 && br_sys_rename(root, tmp, image) < 0)
        r = image_failed("named", err);
    if (r < 0) {
        (void)unlinkat(root, tmp, 0);
        return r;
    }
    /* from here on br_lease_keep() removes what was made */
    d->root = fcntl(root, F_DUPFD_CLOEXEC, 3);
    d->base = br_sys_create(root, base);
    if (d->root < 0 || d->base < 0) {
        r = image_failed("recorded", err);
        if (d->root < 0)
            (void)unlinkat(root, image, 0);
    }
    return r;
}

/* ---- state leases ---- */

static int make_state(struct br_disk_lease *d, int root, const char *name, struct br_err *err)
{
    char tmp[160];
    BR_CLEANUP_FD int master = open_template(d, root, err);
    if (master < 0)
        return master;
    BR_CLEANUP_FD int fd = make_tmp(root, tmp, err);
    if (fd < 0)
        return fd;
    int r = reserve(fd, d->quota.bytes, err);
    if (r == 0)
        r = copy_template(master, fd, err);
    if (r == 0 && fsync(fd) < 0)
        r = image_failed("written", err);
    if (r == 0 && br_sys_rename(root, tmp, name) < 0 && errno != EEXIST)
        r = image_failed("named", err);
    if (r < 0 || errno == EEXIST)
        (void)unlinkat(root, tmp, 0);
    return r;
}

/* After a crash of the host. A mount of a launcher that was killed is clean. */
static int repair(int fd, const char *name, struct br_lease_super *s, struct br_err *err)
{
    static const char *const args[] = {"-p", NULL};
    char said[512];
    int r = br_lease_tool("e2fsck", args, fd, said, err);
    if (r < 0)
        return r;
    /* 0: nothing to do, 1: repaired */
    if (r > 1 || br_lease_super_read(fd, s) < 0 || !s->clean)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the state lease 'leases/%s' was not unmounted cleanly and could not be "
                          "repaired without asking; nothing was started. Run: e2fsck -f on it. It "
                          "said (%d): %s",
                          name, r, said);
    return 0;
}

int br_lease_image_state(struct br_disk_lease *d, int root, const char *state, struct br_err *err)
{
    char name[96];
    struct br_lease_super s = {0};
    snprintf(name, sizeof(name), "state-%s.img", state);
    BR_CLEANUP_FD int fd = open_file(root, name, d->quota.bytes, &s, err);
    if (fd == 0) {
        int r = make_state(d, root, name, err);
        if (r == 0)
            fd = open_file(root, name, d->quota.bytes, &s, err);
        if (r < 0)
            fd = r;
        if (fd == 0)
            fd = br_err_set(err, BR_E_FAILED, "'leases/%s' went away; nothing was started", name);
    }
    if (fd < 0)
        return fd;
    /* the loop device has this same open file: the lock is held until it lets go of it */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return br_err_set(err, BR_E_IN_USE,
                          "the state lease '%s' is in use by another run; nothing was started. "
                          "Wait for its end, or use another name",
                          state);
    /* it was in use before the lock: what was read may be old */
    if (br_lease_super_read(fd, &s) < 0 || s.inodes > d->quota.inodes ||
        d->quota.inodes - s.inodes >= 16ull * s.groups)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the state lease '%s' has %u inodes, and the profile asks for %" PRIu64
                          "; nothing was started. Use another name, or move 'leases/%s' away",
                          state, (unsigned)s.inodes, d->quota.inodes, name);
    int r = s.clean ? 0 : repair(fd, name, &s, err);
    if (r < 0)
        return r;
    d->inodes = s.inodes;
    d->image = br_steal_fd(&fd);
    return 0;
}

/* ---- the workspace lease of an ended run ---- */

int br_lease_image_ended(struct br_disk_lease *d, int root, const char *run_id, struct br_err *err)
{
    char image[BR_LEASE_NAME_MAX], base[BR_LEASE_NAME_MAX];
    struct br_lease_super s = {0};
    struct stat st;
    br_lease_keep_names(run_id, image, base);
    int r = fstatat(root, image, &st, AT_SYMLINK_NOFOLLOW);
    BR_CLEANUP_FD int fd = r < 0 ? -1 : open_file(root, image, (uint64_t)st.st_size, &s, err);
    if (r < 0 || fd == 0)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "the workspace of the run '%s' is not there any more", run_id);
    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return br_err_set(
            err, BR_E_IN_USE,
            "the workspace of the run '%s' is in use, by the run itself or by another "
            "promotion; nothing was promoted. Wait for its end",
            run_id);
    r = br_lease_super_read(fd, &s) < 0 ? -1 : s.clean ? 0 : repair(fd, image, &s, err);
    if (r < 0)
        return err && err->code ? r
                                : br_err_set(err, BR_E_INVALID_CONFIG,
                                             "'leases/%s' is no file system of a lease", image);
    d->quota = (struct br_quota){BR_QUOTA_EXT4, (uint64_t)st.st_size, s.inodes};
    d->inodes = s.inodes;
    d->image = br_steal_fd(&fd);
    return 0;
}

/* ---- the sweep ---- */

unsigned br_leases_sweep(const struct br_host *h)
{
    unsigned removed = 0;
    if (h->state_fd < 0 || faccessat(h->state_fd, "leases", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    int root = br_lease_root_open(h, NULL);
    DIR *dir = root >= 0 ? fdopendir(root) : NULL;
    if (!dir) {
        br_close(&root);
        return 0;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        if (!br_owner_is_dead(e->d_name) && !br_owner_is_past(e->d_name))
            continue;
        BR_CLEANUP_FD int fd = br_open_beneath(dirfd(dir), e->d_name, O_RDWR | O_NONBLOCK, 0);
        /* locked: somebody has it in use after all */
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(dirfd(dir), e->d_name, 0) == 0)
            removed++;
    }
    closedir(dir);
    return removed;
}
