/*
 * The isolation receipt: what the launcher reads from /proc and the cgroup files about pid 1 before
 * anybody can ask it to do something. Anything that differs from the plan refuses the launch.
 * Trusts the kernel only.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/places.h"
#include "sandbox/rootfs.h"

const char *const br_ns_names[7] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
static const char *const cap_names[5] = {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"};

static int open_proc(const struct br_box *b)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d", (int)b->pid);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int read_at(int dir, const char *file, char *buf, size_t cap, struct br_err *err)
{
    BR_CLEANUP_FD int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    size_t at = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    for (; n > 0 && at<cap - 1; at += n> 0 ? (size_t)n : 0)
        n = read(fd, buf + at, cap - 1 - at);
    if (n < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%s' of the sandbox could not be read; nothing was started", file);
    buf[at] = 0;
    return 0;
}

/* "inside outside count", of an opened map. */
int br_measure_map(int fd, const char *file, char dst[64], struct br_err *err)
{
    char text[256];
    unsigned inside, outside, count;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    if (n < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%s' of the sandbox could not be read; nothing was started", file);
    text[n] = 0;
    char *second = strchr(text, '\n');
    if (sscanf(text, "%u %u %u", &inside, &outside, &count) != 3 || (second && second[1]))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox's '%s' is not one line; nothing was started", file);
    snprintf(dst, 64, "%u %u %u", inside, outside, count);
    return 0;
}

static int read_map(int dir, const char *file, char dst[64], struct br_err *err)
{
    BR_CLEANUP_FD int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    return br_measure_map(fd, file, dst, err);
}

/* linux/pidfd.h of Linux 6.11: each gives a descriptor of the process's namespace. */
#define PIDFD_GET_NS(n) _IO(0xff, n)

int br_measure_open_ns(int pidfd, unsigned which)
{
    static const unsigned char number[BR_NS_COUNT] = {[0] = 9, 3, 5, 4, 2, 10, 1};
    return ioctl(pidfd, PIDFD_GET_NS(number[which]), 0);
}

static uint64_t ns_by_name(const char *who, unsigned which)
{
    char path[64], link[64];
    snprintf(path, sizeof(path), "/proc/%s/ns/%s", who, br_ns_names[which]);
    ssize_t n = readlink(path, link, sizeof(link) - 1);
    link[n > 0 ? n : 0] = 0;
    const char *digits = strchr(link, '[');
    return digits ? strtoull(digits + 1, NULL, 10) : 0;
}

int br_measure_ns(const char *who, int pidfd, unsigned first, unsigned end, uint64_t ns[7],
                  struct br_err *err)
{
    for (unsigned i = first; i < end; i++) {
        struct stat st;
        /* names below /proc/PID cost more to look up than they tell */
        BR_CLEANUP_FD int fd = pidfd < 0 ? -1 : br_measure_open_ns(pidfd, i);
        ns[i] = fd < 0 ? ns_by_name(who, i) : fstat(fd, &st) < 0 ? 0 : st.st_ino;
        if (ns[i] == 0)
            return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                                "the %s namespace of a process could not be read; nothing was "
                                "started",
                                br_ns_names[i]);
    }
    return 0;
}

static int differs(struct br_err *err, const char *what)
{
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "the sandbox was measured and is not what was planned: %s; nothing was "
                      "started",
                      what);
}

/* Right after birth: a child that is not in namespaces of its own must not go on. */
int br_measure_birth(struct br_box *b, struct br_err *err)
{
    char who[16];
    snprintf(who, sizeof(who), "%d", (int)b->pid);
    /* bubblewrap makes the pid namespace; this is the process that will execute it */
    bool outer = b->shared->expect.backend == BR_BACKEND_BWRAP && b->pid == b->child;
    int r = br_measure_ns(who, b->pidfd, 0, BR_NS_CGROUP, b->measured.ns, err);
    for (unsigned i = 0; r == 0 && i < BR_NS_CGROUP; i++)
        if (b->measured.ns[i] == b->host->own_ns[i] && !br_weak(ANY) &&
            !(outer && strcmp(br_ns_names[i], "pid") == 0))
            r = differs(err, "it shares a namespace with this host");
    return r;
}

/* The kernel's name of a cgroup ends with that of ours, in each hierarchy that has limits. */
int br_measure_place(struct br_box *b, struct br_err *err)
{
    char text[8192], *save = NULL;
    unsigned found = 0;
    size_t n = strlen(b->cg.name);
    BR_CLEANUP_FD int dir = open_proc(b);
    int r = read_at(dir, "cgroup", text, sizeof(text), err);
    if (r < 0)
        return r;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t len = strlen(line);
        found += len > n && line[len - n - 1] == '/' && strcmp(line + len - n, b->cg.name) == 0;
    }
    b->measured.in_cgroup = found == b->cg.place->ndirs || br_weak(ANY);
    if (!b->measured.in_cgroup)
        return differs(err, "it is not in its cgroup");
    r = read_at(dir, "oom_score_adj", text, sizeof(text), err);
    if (r == 0 && strtol(text, NULL, 10) != strtol(BR_BOX_OOM_SCORE, NULL, 10))
        r = differs(err, "the host would not end it first when memory is short");
    return r;
}

int br_measure_limits(struct br_box *b, struct br_err *err)
{
    struct br_measured *m = &b->measured;
    BR_CLEANUP_FD int dir = m->uid_map[0] && m->gid_map[0] ? -1 : open_proc(b);
    int r = 0;
    /* who wrote a map has read it back, and the kernel lets nobody write it again */
    if (!m->uid_map[0])
        r = read_map(dir, "uid_map", m->uid_map, err);
    if (r == 0 && !m->gid_map[0])
        r = read_map(dir, "gid_map", m->gid_map, err);
    r = r < 0 ? r : br_cg_read(&b->cg, &m->limits, err);
    br_cg_close_files(&b->cg);
    return r;
}

static bool field(const char *text, const char *name, int base, uint64_t *out)
{
    const char *p = text;
    size_t n = strlen(name);
    while (p && strncmp(p, name, n) != 0) {
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    if (!p)
        return false;
    *out = strtoull(p + n, NULL, base);
    return true;
}

/* "Uid:	1	1	1	1" */
static bool four(const char *text, const char *name, unsigned v[4])
{
    const char *p = strstr(text, name);
    return p && sscanf(p + strlen(name), "%u %u %u %u", &v[0], &v[1], &v[2], &v[3]) == 4;
}

static int read_status(int dir, struct br_measured *m, struct br_err *err)
{
    char text[8192];
    uint64_t v[3] = {0};
    int r = read_at(dir, "status", text, sizeof(text), err);
    if (r < 0)
        return r;
    bool ok = four(text, "\nUid:", m->uids) && four(text, "\nGid:", m->gids);
    for (unsigned i = 0; i < 5; i++)
        ok = ok && field(text, cap_names[i], 16, &m->caps[i]);
    ok = ok && field(text, "NoNewPrivs:", 10, &v[0]) && field(text, "Seccomp:", 10, &v[1]) &&
         field(text, "Seccomp_filters:", 10, &v[2]);
    if (!ok)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'/proc' does not tell a process's capabilities and filters; nothing was "
                          "started. Use Linux 5.9 or newer with CONFIG_SECCOMP");
    m->no_new_privs = (unsigned)v[0];
    m->seccomp = (unsigned)v[1];
    m->filters = (unsigned)v[2];
    const char *groups = strstr(text, "\nGroups:");
    m->groups = !groups || groups[8 + strspn(groups + 8, " \t")] != '\n';
    return 0;
}

static const struct {
    const char *title, *name; /* of the kernel and of the receipt */
} rlimits[BR_RLIMITS] = {
    [BR_RLIMIT_CORE] = {"\nMax core file size ", "core"},
    [BR_RLIMIT_FSIZE] = {"\nMax file size ", "fsize"},
    [BR_RLIMIT_NOFILE] = {"\nMax open files ", "nofile"},
    [BR_RLIMIT_SIGPENDING] = {"\nMax pending signals ", "sigpending"},
    [BR_RLIMIT_MSGQUEUE] = {"\nMax msgqueue size ", "msgqueue"},
};

/* Of another user: prlimit(2) would take one more capability than reading a file. */
static int read_rlimits(struct br_box *b, int dir, struct br_err *err)
{
    char text[4096], soft[32], hard[32];
    int r = read_at(dir, "limits", text, sizeof(text), err);
    for (unsigned i = 0; r == 0 && i < BR_RLIMITS; i++) {
        const char *p = strstr(text, rlimits[i].title);
        if (!p || sscanf(p + strlen(rlimits[i].title), "%31s %31s", soft, hard) != 2)
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "the sandbox's limits could not be read; nothing was started");
        /* whichever is larger counts: the soft one can be raised to the hard one */
        b->measured.rlimits[i] =
            strcmp(hard, "unlimited") == 0 ? UINT64_MAX : strtoull(hard, NULL, 10);
    }
    return r;
}

int br_measure_mounts(struct br_box *b, struct br_err *err)
{
    char who[16];
    snprintf(who, sizeof(who), "%d", (int)b->pid);
    int r = br_mounts_read(&b->measured.mounts, who, err);
    if (r == 0)
        br_mounts_sort(&b->measured.mounts);
    return r;
}

/* Nothing that is asked like a debugger asks: between "not dumpable" and the end of its exec an
 * ordinary user's launcher would be refused. */
int br_measure_settled(struct br_box *b, struct br_err *err)
{
    struct br_measured *m = &b->measured;
    BR_CLEANUP_FD int dir = open_proc(b);
    int r = read_rlimits(b, dir, err);
    m->session = getsid(b->pid);
    cpu_set_t cpus;
    m->cpus = sched_getaffinity(b->pid, sizeof(cpus), &cpus) == 0 ? (unsigned)CPU_COUNT(&cpus) : 0;
    return r;
}

int br_measure_final(struct br_box *b, struct br_err *err)
{
    char who[16];
    struct br_measured *m = &b->measured;
    BR_CLEANUP_FD int dir = open_proc(b);
    snprintf(who, sizeof(who), "%d", (int)b->pid);
    int r = br_measure_ns(who, b->pidfd, BR_NS_CGROUP, BR_NS_COUNT, m->ns, err);
    if (r == 0)
        r = read_status(dir, m, err);
    if (r == 0)
        r = br_image_measure(b, dir, err);
    ssize_t n = r == 0 ? readlinkat(dir, "cwd", m->cwd, sizeof(m->cwd) - 1) : 0;
    m->cwd[n > 0 ? n : 0] = 0;
    return r;
}

int br_measure_self(struct br_host *h, struct br_err *err)
{
    struct br_measured m = {.no_new_privs = 0};
    BR_CLEANUP_FD int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = read_status(dir, &m, err);
    h->own_filters = m.filters;
    return r;
}

int br_measure_root(struct br_mounts *m, const char *point, bool image, struct br_err *err)
{
    br_mounts_free(m);
    int r = br_mounts_read(m, "self", err);
    if (r < 0)
        return r;
    br_mounts_below(m, point);
    br_mounts_sort(m);
    for (unsigned i = 0; i < m->n && !br_weak(ANY); i++) {
        const struct br_mount *e = &m->list[i];
        unsigned must = BR_MNT_RO | BR_MNT_NOSUID |
                        (strncmp(e->target, "/dev/", 5) == 0 ? BR_MNT_NOEXEC : BR_MNT_NODEV);
        if ((e->flags & must) != must || e->flags & (BR_MNT_SHARED | BR_MNT_SLAVE))
            return differs(err, "a mount of its root can be written, or more than that");
    }
    return br_rootfs_check(m->list, m->n, image, err);
}

static const char *check_privilege(const struct br_box *b)
{
    const struct br_measured *m = &b->measured;
    const struct br_host *h = b->host;
    uint64_t caps = 0;
    for (unsigned i = 0; i < 5; i++)
        caps |= m->caps[i];
    if (caps)
        return "it still has capabilities";
    if (m->no_new_privs != 1)
        return "no_new_privs is not set";
    if (m->seccomp != 2 || m->filters != h->own_filters + 1)
        return "it has no system call filter of its own";
    if (b->who.uid == 0 || b->who.gid == 0)
        return "it is root outside";
    return NULL;
}

static const char *check_rest(const struct br_box *b, const struct br_plan *plan)
{
    const struct br_measured *m = &b->measured;
    for (unsigned i = 0; i < BR_NS_COUNT; i++)
        if (m->ns[i] == b->host->own_ns[i])
            return "it shares a namespace with this host";
    if (!m->in_cgroup)
        return "it is not in its cgroup";
    if (m->session != b->pid)
        return "it has no session of its own";
    if (strcmp(m->cwd, BR_BOX_WORKSPACE) != 0)
        return "it is not in its workspace";
    if (m->cpus > (plan->limits.cpu_percent + 99) / 100)
        return "it sees more CPUs than it may use";
    if (m->rlimits[BR_RLIMIT_CORE] != 0 ||
        m->rlimits[BR_RLIMIT_FSIZE] != plan->limits.fsize_bytes ||
        m->rlimits[BR_RLIMIT_NOFILE] != plan->limits.nofile)
        return "its limits on files and core dumps are others";
    if (m->rlimits[BR_RLIMIT_SIGPENDING] > BR_BOX_SIGPENDING ||
        m->rlimits[BR_RLIMIT_MSGQUEUE] > BR_BOX_MSGQUEUE)
        return "its limits on signals and queues are others";
    return NULL;
}

static int check_mounts(struct br_box *b, const struct br_plan *plan, struct br_err *err)
{
    struct br_mount_wants w = {.n = 0};
    br_wants_of(&w, b, plan);
    int r = br_mounts_compare(&b->measured.mounts, &w, err);
    br_wants_free(&w);
    return r;
}

int br_measure_check_settled(struct br_box *b, const struct br_plan *plan, struct br_err *err)
{
    if (br_weak(ANY))
        return 0; /* tests only: what is weaker is what they are about */
    int r = check_mounts(b, plan, err);
    return r < 0 ? r : br_cg_compare(&b->measured.limits, &plan->limits, err);
}

int br_measure_check(struct br_box *b, const struct br_plan *plan, struct br_err *err)
{
    if (br_weak(ANY))
        return 0;
    const char *what = check_privilege(b);
    if (!what)
        what = check_rest(b, plan);
    int r = what ? differs(err, what) : br_who_check(&b->who, &b->measured, err);
    return r < 0 ? r : br_places_check(b, plan, err);
}

static void put_cgroups(struct br_buf *out, const struct br_box *b)
{
    for (unsigned i = 0; i < b->cg.place->ndirs; i++) {
        const struct br_cg_dir *d = &b->cg.place->dirs[i];
        char path[BR_PATH_MAX + 192];
        snprintf(path, sizeof(path), "%s/%s", d->path, b->cg.name);
        br_buf_printf(out, "%s{\"version\":%d,\"path\":", i ? "," : "", d->v2 ? 2 : 1);
        br_buf_put_json_str(out, path, strlen(path));
        br_buf_put_u8(out, '}');
    }
}

static void put_ids(struct br_buf *out, const char *name, const unsigned v[4])
{
    br_buf_printf(out, ",\"%s\":[%u,%u,%u,%u]", name, v[0], v[1], v[2], v[3]);
}

static void put_identity(struct br_buf *out, const struct br_measured *m)
{
    br_buf_printf(out, ",\"uidMap\":\"%s\",\"gidMap\":\"%s\"", m->uid_map, m->gid_map);
    put_ids(out, "uids", m->uids);
    put_ids(out, "gids", m->gids);
    br_buf_printf(out, ",\"groups\":%s", m->groups ? "true" : "false");
    br_buf_printf(out,
                  ",\"capabilities\":{\"inheritable\":%" PRIu64 ",\"permitted\":%" PRIu64
                  ",\"effective\":%" PRIu64 ",\"bounding\":%" PRIu64 ",\"ambient\":%" PRIu64 "}",
                  m->caps[0], m->caps[1], m->caps[2], m->caps[3], m->caps[4]);
}

static void put_limits(struct br_buf *out, const struct br_measured *m)
{
    br_buf_printf(out,
                  ",\"limits\":{\"memoryBytes\":%" PRIu64 ",\"pids\":%" PRIu64
                  ",\"cpuPercent\":%" PRIu64,
                  m->limits.memory_bytes, m->limits.pids, m->limits.cpu_percent);
    if (m->limits.no_swap)
        br_buf_printf(out, ",\"swap\":\"none on this host\"");
    else
        br_buf_printf(out, ",\"memorySwapBytes\":%" PRIu64, m->limits.swap_total_bytes);
    if (m->cpus)
        br_buf_printf(out, ",\"cpus\":%u", m->cpus);
    for (unsigned i = 0; i < BR_RLIMITS; i++)
        br_buf_printf(out, ",\"%s\":%" PRIu64, rlimits[i].name, m->rlimits[i]);
    br_buf_put_u8(out, '}');
}

int br_receipt_write(struct br_buf *out, const struct br_box *b, const struct br_plan *plan,
                     struct br_err *err)
{
    const struct br_measured *m = &b->measured;
    br_buf_printf(out, "{\"version\":1,\"backend\":\"%s\",\"pid\":%d,\"namespaces\":{",
                  br_backend_names[plan->backend], (int)b->pid);
    for (unsigned i = 0; i < BR_ARRAY_LEN(m->ns); i++)
        br_buf_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "", br_ns_names[i], m->ns[i]);
    br_buf_put_u8(out, '}');
    br_buf_printf(out, ",\"image\":");
    br_image_json(b, out);
    br_buf_printf(out, ",\"identity\":");
    br_who_json(&b->who, out);
    put_identity(out, m);
    br_buf_printf(out, ",\"noNewPrivs\":%s,\"seccomp\":%u,\"seccompFilters\":%u,\"seccompFilter\":",
                  m->no_new_privs ? "true" : "false", m->seccomp, m->filters);
    br_host_filter_json(b->host, out);
    br_buf_printf(out, ",\"landlock\":%d",
                  plan->flags & BR_PLAN_NO_LANDLOCK ? 0 : b->host->landlock_abi);
    br_buf_printf(out, ",\"session\":%d,\"cwd\":", (int)m->session);
    br_buf_put_json_str(out, m->cwd, strlen(m->cwd));
    br_buf_printf(out, ",\"mounts\":%u,\"mountTable\":", m->mounts.n);
    (void)br_buf_put(out, b->mounts_text.data, b->mounts_text.len);
    br_buf_printf(out, ",\"allowedPaths\":%u,\"leases\":", plan->nallowed);
    br_leases_receipt(out, &b->leases, &b->shared->copied);
    br_buf_printf(out, ",\"cgroups\":[");
    put_cgroups(out, b);
    br_buf_put_u8(out, ']');
    put_limits(out, m);
    br_buf_put_u8(out, '}');
    return out->failed || b->mounts_text.failed
               ? br_err_set(err, BR_E_INTERNAL, "the isolation receipt is too large")
               : 0;
}
