/*
 * One cgroup per sandbox: make, join, limit, read back, remove, and sweep what dead owners left.
 * Called by the launcher (as root, or as the operator in a delegated place). Trusts the kernel's
 * files; where they are is found by cgroup_find.c.
 *
 * The launcher itself never joins: pid 1 of the sandbox is born inside (version 2), or goes in by
 * itself (version 1). Who puts another process in has to stop every fork of the host for a moment,
 * and on an idle system waits 7 to 12 ms for an RCU grace period; a thread that moves itself, 0.02.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/cgroup.h"
#include "sandbox/owner.h"
#include "sandbox/sys.h"

#define CPU_PERIOD_US 100000u
/* Version 1 counts buffers of sockets (on loopback, where nobody reads) apart, and without a limit
 * not at all; version 2 counts them as memory */
#define SOCKETS_FILE "memory.kmem.tcp.limit_in_bytes"
#define SOCKETS_SHARE 8u /* of the memory */
#define EMPTY_DEADLINE_US 2000000u

int br_cg_require(const struct br_cg_place *p, struct br_err *err)
{
    for (int c = 0; c < BR_CG_CTLS; c++)
        if (!(p->have & 1u << c))
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "the limit '%s' cannot be enforced: %s; nothing was started. %s",
                              br_cg_ctl_names[c], p->missing[c], p->fix[c]);
    return 0;
}

const struct br_cg_dir *br_cg_dir_of(const struct br_cg_place *p, enum br_cg_ctl c)
{
    for (unsigned i = 0; i < p->ndirs; i++)
        if (p->dirs[i].ctls & 1u << c)
            return &p->dirs[i];
    return NULL;
}

void br_cg_close_files(struct br_cg *cg)
{
    for (unsigned i = 0; i < BR_CG_FILES; i++)
        br_close(&cg->files[i]);
}

void br_cg_close(struct br_cg *cg)
{
    br_cg_close_files(cg);
    for (unsigned i = 0; i < BR_CG_CTLS; i++)
        br_close(&cg->fds[i]);
}

static int open_one(const struct br_cg_dir *d, const char *name)
{
    return openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

void br_cg_init(const struct br_cg_place *p, struct br_cg *cg)
{
    *cg = (struct br_cg){.place = p, .fds = {-1, -1, -1}};
    for (unsigned i = 0; i < BR_CG_FILES; i++)
        cg->files[i] = -1;
}

bool br_cg_has_v2(const struct br_cg_place *p)
{
    for (unsigned i = 0; i < p->ndirs; i++)
        if (p->dirs[i].v2)
            return true;
    return false;
}

static void name_cgroup(const struct br_cg_place *p, struct br_cg *cg, uint64_t id)
{
    br_cg_init(p, cg);
    snprintf(cg->name, sizeof(cg->name), "%s.%016" PRIx64, p->tag, id);
}

void br_cg_open(const struct br_cg_place *p, struct br_cg *cg, uint64_t id)
{
    name_cgroup(p, cg, id);
    for (unsigned i = 0; i < p->ndirs; i++)
        cg->fds[i] = open_one(&p->dirs[i], cg->name);
}

int br_cg_make(const struct br_cg_place *p, struct br_cg *cg, uint64_t id, struct br_err *err)
{
    name_cgroup(p, cg, id);
    for (unsigned i = 0; i < p->ndirs; i++) {
        int r = br_sys_mkcgroup(p->dirs[i].fd, cg->name);
        if (r == 0) {
            cg->fds[i] = open_one(&p->dirs[i], cg->name);
            if (cg->fds[i] < 0)
                (void)unlinkat(p->dirs[i].fd, cg->name, AT_REMOVEDIR);
        }
        if (cg->fds[i] < 0) {
            r = br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                             "a cgroup could not be made in '%s'; nothing was started",
                             p->dirs[i].path);
            (void)br_cg_remove(cg, NULL);
            return r;
        }
    }
    return 0;
}

int br_cg_open_ways(const struct br_cg *cg, int *fds, struct br_err *err)
{
    int n = 0;
    for (unsigned i = 0; i < cg->place->ndirs; i++) {
        if (cg->place->dirs[i].v2)
            continue;
        fds[n] = openat(cg->fds[i], "tasks", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fds[n] >= 0) {
            n++;
            continue;
        }
        int r = br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                             "the cgroup in '%s' cannot be joined; nothing was started",
                             cg->place->dirs[i].path);
        while (n > 0)
            br_close(&fds[--n]);
        return r;
    }
    return n;
}

int br_cg_enter(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (br_sys_joincgroup(fds[i]) < 0)
            return -1;
    return 0;
}

int br_cg_v2_fd(const struct br_cg *cg)
{
    for (unsigned i = 0; i < cg->place->ndirs; i++)
        if (cg->place->dirs[i].v2)
            return cg->fds[i];
    return -1;
}

/* ---- limits ---- */

/* Version 1 and 2 */
static const char *const file_names[BR_CG_FILES][2] = {
    [BR_CG_FILE_MEMORY] = {"memory.limit_in_bytes", "memory.max"},
    [BR_CG_FILE_SWAP] = {"memory.memsw.limit_in_bytes", "memory.swap.max"},
    [BR_CG_FILE_SOCKETS] = {SOCKETS_FILE, ""},
    [BR_CG_FILE_PIDS] = {"pids.max", "pids.max"},
    [BR_CG_FILE_QUOTA] = {"cpu.cfs_quota_us", "cpu.max"},
    [BR_CG_FILE_PERIOD] = {"cpu.cfs_period_us", ""},
};

static const char *file_name(const struct br_cg *cg, unsigned dir, enum br_cg_file file)
{
    return file_names[file][cg->place->dirs[dir].v2];
}

/* Opened once, to write a limit and to read it back. -1 and errno. */
static int file_of(struct br_cg *cg, unsigned dir, enum br_cg_file file)
{
    if (cg->files[file] < 0)
        cg->files[file] =
            openat(cg->fds[dir], file_name(cg, dir, file), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return cg->files[file];
}

static bool has_file(struct br_cg *cg, unsigned dir, enum br_cg_file file)
{
    return file_of(cg, dir, file) >= 0 || errno != ENOENT;
}

static int set(struct br_cg *cg, unsigned dir, enum br_cg_file file, const char *value,
               struct br_err *err)
{
    int fd = file_of(cg, dir, file);
    if (fd >= 0 && br_sys_writelimit(fd, value) == 0)
        return 0;
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the host refused '%s' as '%s' in '%s'; nothing was started. Ask for less, "
                        "or raise the limit of the cgroup that bridle runs in",
                        value, file_name(cg, dir, file), cg->place->dirs[dir].path);
}

static int set_number(struct br_cg *cg, unsigned dir, enum br_cg_file file, uint64_t value,
                      struct br_err *err)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return set(cg, dir, file, text, err);
}

static int limit_memory(struct br_cg *cg, unsigned i, uint64_t bytes, struct br_err *err)
{
    bool v2 = cg->place->dirs[i].v2;
    bool with_swap = has_file(cg, i, BR_CG_FILE_SWAP);
    int r = with_swap ? 0 : br_cg_require_no_swap(cg->place, err);
    /* version 1 wants limit <= limit with swap at every moment: raise the latter first */
    if (with_swap && !v2 && cg->set.memory_bytes && bytes > cg->set.memory_bytes) {
        r = set_number(cg, i, BR_CG_FILE_SWAP, bytes, err);
        with_swap = false;
    }
    if (r == 0)
        r = set_number(cg, i, BR_CG_FILE_MEMORY, bytes, err);
    if (r == 0 && with_swap)
        r = set_number(cg, i, BR_CG_FILE_SWAP, v2 ? 0 : bytes, err);
    if (r == 0 && !v2 && has_file(cg, i, BR_CG_FILE_SOCKETS))
        r = set_number(cg, i, BR_CG_FILE_SOCKETS, bytes / SOCKETS_SHARE, err);
    return r;
}

static int get_numbers(struct br_cg *cg, unsigned dir, enum br_cg_file file, uint64_t *a,
                       uint64_t *b, struct br_err *err)
{
    char text[128], *end;
    int fd = file_of(cg, dir, file);
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    if (n <= 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING, "'%s' could not be read back",
                            file_name(cg, dir, file));
    errno = 0;
    *a = strtoull(text, &end, 10);
    if (strncmp(text, "max", 3) == 0) {
        *a = UINT64_MAX;
        end = text + 3;
    }
    if (end == text || errno)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING, "'%s' holds no limit",
                          file_name(cg, dir, file));
    if (b)
        *b = strtoull(end, NULL, 10);
    return 0;
}

static int limit_cpu(struct br_cg *cg, unsigned i, uint32_t percent, struct br_err *err)
{
    uint64_t period = 0, quota = (uint64_t)percent * (CPU_PERIOD_US / 100);
    if (cg->place->dirs[i].v2) {
        char text[64];
        snprintf(text, sizeof(text), "%" PRIu64 " %u", quota, CPU_PERIOD_US);
        return set(cg, i, BR_CG_FILE_QUOTA, text, err);
    }
    /* a new cgroup has this one, and writing it costs the kernel more than reading */
    int r = get_numbers(cg, i, BR_CG_FILE_PERIOD, &period, NULL, NULL);
    if (r < 0 || period != CPU_PERIOD_US)
        r = set_number(cg, i, BR_CG_FILE_PERIOD, CPU_PERIOD_US, err);
    return r < 0 ? r : set_number(cg, i, BR_CG_FILE_QUOTA, quota, err);
}

int br_cg_limit_one(struct br_cg *cg, enum br_cg_ctl c, const struct br_limits *l,
                    struct br_err *err)
{
    for (unsigned i = 0; i < cg->place->ndirs; i++) {
        if (!(cg->place->dirs[i].ctls & 1u << c))
            continue;
        if (c == BR_CG_MEMORY)
            return limit_memory(cg, i, l->memory_bytes, err);
        if (c == BR_CG_PIDS)
            return set_number(cg, i, BR_CG_FILE_PIDS, l->pids, err);
        return limit_cpu(cg, i, l->cpu_percent, err);
    }
    return br_cg_require(cg->place, err);
}

bool br_cg_is(const struct br_cg *cg, const struct br_limits *l)
{
    return cg->set.memory_bytes == l->memory_bytes && cg->set.pids == l->pids &&
           cg->set.cpu_percent == l->cpu_percent;
}

int br_cg_limit(struct br_cg *cg, const struct br_limits *l, struct br_err *err)
{
    const bool same[BR_CG_CTLS] = {
        [BR_CG_MEMORY] = cg->set.memory_bytes == l->memory_bytes,
        [BR_CG_PIDS] = cg->set.pids == l->pids,
        [BR_CG_CPU] = cg->set.cpu_percent == l->cpu_percent,
    };
    int r = br_cg_require(cg->place, err);
    if (r == 0 && !same[BR_CG_MEMORY] && (r = br_cg_limit_one(cg, BR_CG_MEMORY, l, err)) == 0)
        cg->set.memory_bytes = l->memory_bytes;
    if (r == 0 && !same[BR_CG_PIDS] && (r = br_cg_limit_one(cg, BR_CG_PIDS, l, err)) == 0)
        cg->set.pids = l->pids;
    if (r == 0 && !same[BR_CG_CPU] && (r = br_cg_limit_one(cg, BR_CG_CPU, l, err)) == 0)
        cg->set.cpu_percent = l->cpu_percent;
    return r;
}

static int read_memory(struct br_cg *cg, unsigned i, struct br_cg_read *out, struct br_err *err)
{
    bool v2 = cg->place->dirs[i].v2;
    int r = get_numbers(cg, i, BR_CG_FILE_MEMORY, &out->memory_bytes, NULL, err);
    if (r == 0 && !v2 && has_file(cg, i, BR_CG_FILE_SOCKETS))
        r = get_numbers(cg, i, BR_CG_FILE_SOCKETS, &out->socket_bytes, NULL, err);
    out->no_swap = !has_file(cg, i, BR_CG_FILE_SWAP);
    if (r < 0 || out->no_swap)
        return r < 0 ? r : br_cg_require_no_swap(cg->place, err);
    uint64_t more = 0;
    r = get_numbers(cg, i, BR_CG_FILE_SWAP, &more, NULL, err);
    /* version 1 counts both together */
    out->swap_total_bytes = !v2                                     ? more
                            : more > UINT64_MAX - out->memory_bytes ? UINT64_MAX
                                                                    : out->memory_bytes + more;
    return r;
}

static int read_cpu(struct br_cg *cg, unsigned i, struct br_cg_read *out, struct br_err *err)
{
    uint64_t quota = 0, period = 0;
    bool v2 = cg->place->dirs[i].v2;
    int r = get_numbers(cg, i, BR_CG_FILE_QUOTA, &quota, v2 ? &period : NULL, err);
    if (r == 0 && !v2)
        r = get_numbers(cg, i, BR_CG_FILE_PERIOD, &period, NULL, err);
    if (r == 0 && period == 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING, "the CPU limit has no period");
    if (r == 0)
        out->cpu_percent = quota > UINT64_MAX / 100 ? UINT64_MAX : quota * 100 / period;
    return r;
}

int br_cg_read(struct br_cg *cg, struct br_cg_read *out, struct br_err *err)
{
    int r = 0;
    *out = (struct br_cg_read){0};
    for (unsigned i = 0; r == 0 && i < cg->place->ndirs; i++) {
        unsigned ctls = cg->place->dirs[i].ctls;
        if (ctls & 1u << BR_CG_MEMORY)
            r = read_memory(cg, i, out, err);
        if (r == 0 && (ctls & 1u << BR_CG_PIDS))
            r = get_numbers(cg, i, BR_CG_FILE_PIDS, &out->pids, NULL, err);
        if (r == 0 && (ctls & 1u << BR_CG_CPU))
            r = read_cpu(cg, i, out, err);
    }
    return r;
}

int br_cg_compare(const struct br_cg_read *got, const struct br_limits *want, struct br_err *err)
{
    /* the kernel rounds memory down to whole pages */
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), floor = want->memory_bytes / page * page;
    if (got->memory_bytes < floor || got->memory_bytes > want->memory_bytes ||
        (!got->no_swap &&
         (got->swap_total_bytes < floor || got->swap_total_bytes > want->memory_bytes)))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the kernel holds a memory limit of %" PRIu64 " (with swap %" PRIu64
                          ") bytes, not %" PRIu64 "; nothing was started",
                          got->memory_bytes, got->swap_total_bytes, want->memory_bytes);
    if (got->socket_bytes > want->memory_bytes / SOCKETS_SHARE)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the kernel holds a limit of %" PRIu64
                          " bytes for the buffers of sockets, not %" PRIu64 "; nothing was started",
                          got->socket_bytes, want->memory_bytes / SOCKETS_SHARE);
    if (got->pids != want->pids || got->cpu_percent != want->cpu_percent)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the kernel holds limits of %" PRIu64 " processes and %" PRIu64
                          " %% CPU, not %u and %u; nothing was started",
                          got->pids, got->cpu_percent, want->pids, want->cpu_percent);
    return 0;
}

/* ---- removal ---- */

/* Kill every process that cgroup.procs lists; returns how many there were, -1 on error. */
static int kill_inside(int fd, bool v2)
{
    char text[65536];
    ssize_t n = br_read_text(fd, "cgroup.procs", text, sizeof(text));
    if (n <= 0)
        return n < 0 ? -1 : 0;
    if (v2 && br_sys_writecgroup(fd, "cgroup.kill", "1") == 0)
        return 1;
    int count = 0;
    for (char *p = text, *end; *p; p = end) {
        long pid = strtol(p, &end, 10);
        if (end == p)
            break;
        /* 0: a process outside of our pid namespace */
        if (pid > 1 && pid != getpid())
            (void)kill((pid_t)pid, SIGKILL);
        count++;
    }
    return count;
}

/* Sleeps until the kernel says that it changed (version 2), or for half a millisecond. */
static void wait_change(int fd, bool v2)
{
    BR_CLEANUP_FD int events = v2 ? openat(fd, "cgroup.events", O_RDONLY | O_CLOEXEC) : -1;
    char text[256];
    if (events >= 0 && pread(events, text, sizeof(text), 0) >= 0) {
        struct pollfd p = {.fd = events, .events = POLLPRI};
        (void)poll(&p, 1, 20);
        return;
    }
    struct timespec half = {.tv_nsec = 500000};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &half, NULL);
}

/* Said to be removed is not enough for "verified". */
static bool is_gone(int parent, const char *name)
{
    if (faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return true;
    errno = EEXIST;
    return false;
}

static int remove_one(int parent, const char *name, int fd, bool v2)
{
    uint64_t deadline = br_now_us() + EMPTY_DEADLINE_US;
    for (;;) {
        /* the kernel removes a cgroup only when nothing is in it */
        if ((br_sys_rmcgroup(parent, name) == 0 || errno == ENOENT) && is_gone(parent, name))
            return 0;
        if (errno != EBUSY || br_now_us() >= deadline)
            return -1;
        (void)kill_inside(fd, v2);
        wait_change(fd, v2);
    }
}

int br_cg_remove(struct br_cg *cg, struct br_err *err)
{
    int result = 0;
    for (unsigned i = 0; i < cg->place->ndirs; i++) {
        if (cg->fds[i] < 0)
            continue;
        const struct br_cg_dir *d = &cg->place->dirs[i];
        if (remove_one(d->fd, cg->name, cg->fds[i], d->v2) < 0)
            result = br_err_errno(err, BR_E_FAILED, "the cgroup '%s/%s' could not be removed",
                                  d->path, cg->name);
    }
    br_cg_close(cg);
    return result;
}

/*
 * What a launcher in another pid namespace made, and has left empty for long: between making and
 * filling it there is a millisecond. A container that was killed as a whole leaves such. Whatever
 * is in it protects it: it is removed only if it is empty, and nothing in it is ever killed.
 */
static bool remove_stale(int parent, const char *name, uint32_t seconds)
{
    struct stat st;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return br_owner_is_foreign(name) && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.tv_sec - st.st_ctim.tv_sec >= (time_t)seconds && br_sys_rmcgroup(parent, name) == 0;
}

/* Takes the directory `fd`. Removes the cgroups of the dead in it and, if `nested`, in each of its
 * own directories as well. */
static unsigned sweep_dir(int fd, bool v2, bool nested, uint32_t stale)
{
    unsigned removed = 0;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        br_close(&fd);
        return 0;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        bool dead = br_owner_is_dead(e->d_name);
        if (!dead && e->d_type == DT_DIR && remove_stale(dirfd(dir), e->d_name, stale)) {
            removed++;
            continue;
        }
        if (e->d_type != DT_DIR || e->d_name[0] == '.' || (!dead && !nested))
            continue;
        BR_CLEANUP_FD int sub =
            openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (sub < 0)
            continue;
        if (!dead)
            removed += sweep_dir(br_steal_fd(&sub), v2, false, stale);
        else if (remove_one(dirfd(dir), e->d_name, sub, v2) == 0)
            removed++;
    }
    closedir(dir);
    return removed;
}

unsigned br_cg_sweep(const struct br_cg_place *p)
{
    unsigned removed = 0;
    for (unsigned i = 0; i < p->ndirs; i++) {
        /* places beside this one too: a launcher that ran in another session of root's */
        struct stat here, up;
        int fd = openat(p->dirs[i].fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool beside = fd >= 0 && fstat(p->dirs[i].fd, &here) == 0 && fstat(fd, &up) == 0 &&
                      here.st_dev == up.st_dev && geteuid() == 0;
        if (!beside) {
            br_close(&fd);
            fd = openat(p->dirs[i].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        if (fd >= 0)
            removed += sweep_dir(fd, p->dirs[i].v2, beside, p->stale_seconds);
    }
    return removed;
}
