/*
 * The isolation receipt: what the launcher reads from /proc and the cgroup files about pid 1 before
 * anybody can ask it to do something. Anything that differs from the plan refuses the launch.
 * Trusts the kernel only.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
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
    for (ssize_t n = 1; fd >= 0 && n > 0 && at < cap - 1; at += (size_t)n) {
        n = read(fd, buf + at, cap - 1 - at);
        if (n < 0)
            fd = (close(fd), -1);
        if (n <= 0)
            break;
    }
    if (fd < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "'%s' of the sandbox could not be read; nothing was started", file);
    buf[at] = 0;
    return 0;
}

static int read_map(int dir, const char *file, char dst[64], struct br_err *err)
{
    char text[256];
    unsigned inside, outside, count;
    int r = read_at(dir, file, text, sizeof(text), err);
    if (r < 0)
        return r;
    char *second = strchr(text, '\n');
    if (sscanf(text, "%u %u %u", &inside, &outside, &count) != 3 || (second && second[1]))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox's '%s' is not one line; nothing was started", file);
    snprintf(dst, 64, "%u %u %u", inside, outside, count);
    return 0;
}

int br_measure_ns(const char *who, unsigned first, unsigned end, uint64_t ns[7], struct br_err *err)
{
    char path[64], link[64];
    for (unsigned i = first; i < end; i++) {
        snprintf(path, sizeof(path), "/proc/%s/ns/%s", who, br_ns_names[i]);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        const char *digits = strchr(link, '[');
        ns[i] = digits ? strtoull(digits + 1, NULL, 10) : 0;
        if (ns[i] == 0)
            return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                                "the %s namespace of a process could not be read; nothing was "
                                "started",
                                br_ns_names[i]);
    }
    return 0;
}

static int count_mounts(int dir, uint32_t *n, struct br_err *err)
{
    static char text[1024 * 1024]; /* a workspace may have many mounts below it */
    int r = read_at(dir, "mountinfo", text, sizeof(text), err);
    for (const char *p = text; r == 0 && (p = strchr(p, '\n')); p++)
        ++*n;
    return r;
}

int br_measure_birth(struct br_box *b, struct br_err *err)
{
    char who[16];
    snprintf(who, sizeof(who), "%d", (int)b->pid);
    return br_measure_ns(who, 0, BR_NS_CGROUP, b->measured.ns, err);
}

int br_measure_limits(struct br_box *b, struct br_err *err)
{
    struct br_measured *m = &b->measured;
    BR_CLEANUP_FD int dir = open_proc(b);
    int r = read_map(dir, "uid_map", m->uid_map, err);
    if (r == 0)
        r = read_map(dir, "gid_map", m->gid_map, err);
    return r < 0 ? r : br_cg_read(&b->cg, &m->limits, err);
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
    bool ok = true;
    for (unsigned i = 0; i < 5; i++)
        ok = ok && field(text, cap_names[i], 16, &m->caps[i]);
    ok = ok && field(text, "NoNewPrivs:", 10, &v[0]) && field(text, "Seccomp:", 10, &v[1]) &&
         four(text, "Uid:", m->uids) && four(text, "Gid:", m->gids);
    if (!ok)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'/proc' does not tell a process's capabilities and filter; nothing was "
                          "started. Use a kernel with CONFIG_SECCOMP");
    (void)field(text, "Seccomp_filters:", 10, &v[2]);
    m->no_new_privs = (unsigned)v[0];
    m->seccomp = (unsigned)v[1];
    m->filters = (unsigned)v[2];
    const char *groups = strstr(text, "\nGroups:");
    m->groups = !groups || groups[8 + strspn(groups + 8, " \t")] != '\n';
    return 0;
}

int br_measure_final(struct br_box *b, struct br_err *err)
{
    char who[16];
    struct br_measured *m = &b->measured;
    BR_CLEANUP_FD int dir = open_proc(b);
    snprintf(who, sizeof(who), "%d", (int)b->pid);
    int r = br_measure_ns(who, BR_NS_CGROUP, BR_NS_COUNT, m->ns, err);
    if (r == 0)
        r = read_status(dir, m, err);
    if (r == 0)
        r = br_image_measure(b, dir, err);
    return r < 0 ? r : count_mounts(dir, &m->mounts, err);
}

static int differs(struct br_err *err, const char *what)
{
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "the sandbox was measured and is not what was planned: %s; nothing was "
                      "started",
                      what);
}

int br_measure_check(const struct br_box *b, const struct br_plan *plan, struct br_err *err)
{
    const struct br_measured *m = &b->measured;
    if (br_weak(ANY))
        return 0;
    for (unsigned i = 0; i < BR_ARRAY_LEN(m->ns); i++)
        if (m->ns[i] == b->host->own_ns[i])
            return differs(err, "it shares a namespace with this host");
    uint64_t caps = 0;
    for (unsigned i = 0; i < 5; i++)
        caps |= m->caps[i];
    if (caps)
        return differs(err, "it still has capabilities");
    if (m->no_new_privs != 1)
        return differs(err, "no_new_privs is not set");
    if (m->seccomp != 2)
        return differs(err, "it has no system call filter");
    if (b->who.uid == 0 || b->who.gid == 0)
        return differs(err, "it is root outside");
    int r = br_who_check(&b->who, m, err);
    if (r < 0)
        return r;
    if (m->mounts < 10)
        return differs(err, "mounts are missing");
    return br_cg_compare(&m->limits, &plan->limits, err);
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

int br_receipt_write(struct br_buf *out, const struct br_box *b, const struct br_plan *plan,
                     struct br_err *err)
{
    const struct br_measured *m = &b->measured;
    const struct br_limits *l = &plan->limits;
    br_buf_printf(out, "{\"backend\":\"native\",\"pid\":%d,\"namespaces\":{", (int)b->pid);
    for (unsigned i = 0; i < BR_ARRAY_LEN(m->ns); i++)
        br_buf_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "", br_ns_names[i], m->ns[i]);
    br_buf_printf(out, "},\"image\":");
    br_image_json(b, out);
    br_buf_printf(out, ",\"identity\":");
    br_who_json(&b->who, out);
    br_buf_printf(out, ",\"uidMap\":\"%s\",\"gidMap\":\"%s\"", m->uid_map, m->gid_map);
    br_buf_printf(out,
                  ",\"capabilities\":{\"inheritable\":%" PRIu64 ",\"permitted\":%" PRIu64
                  ",\"effective\":%" PRIu64 ",\"bounding\":%" PRIu64 ",\"ambient\":%" PRIu64 "}",
                  m->caps[0], m->caps[1], m->caps[2], m->caps[3], m->caps[4]);
    br_buf_printf(out, ",\"noNewPrivs\":%s,\"seccomp\":%u,\"seccompFilter\":",
                  m->no_new_privs ? "true" : "false", m->seccomp);
    br_host_filter_json(b->host, out);
    br_buf_printf(out, ",\"landlock\":%d",
                  plan->flags & BR_PLAN_NO_LANDLOCK ? 0 : b->host->landlock_abi);
    br_buf_printf(out, ",\"mounts\":%u,\"allowedPaths\":%u,\"leases\":", m->mounts, plan->nallowed);
    br_leases_receipt(out, &b->leases, &b->shared->copied);
    br_buf_printf(out, ",\"cgroups\":[");
    put_cgroups(out, b);
    br_buf_printf(out,
                  "],\"limits\":{\"memoryBytes\":%" PRIu64 ",\"memorySwapBytes\":%" PRIu64
                  ",\"pids\":%" PRIu64 ",\"cpuPercent\":%" PRIu64,
                  m->limits.memory_bytes, m->limits.swap_total_bytes, m->limits.pids,
                  m->limits.cpu_percent);
    br_buf_printf(out,
                  ",\"nofile\":%u,\"fsizeBytes\":%" PRIu64 ",\"tmpBytes\":%" PRIu64
                  ",\"tmpInodes\":%" PRIu64 "}}",
                  l->nofile, l->fsize_bytes, l->tmp_bytes, l->tmp_inodes);
    return out->failed ? br_err_set(err, BR_E_INTERNAL, "the isolation receipt is too large") : 0;
}
