/*
 * A resolved plan as its backend would make it real, for `bridle plan` and for whoever compares two
 * hosts: a JSON object. Called by br_plan_resolve(); starts nothing. What is written here about
 * mounts is what box.c and child.c do, and a test launches one and compares.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/bwrap.h"
#include "sandbox/facts.h"
#include "sandbox/rootfs.h"

static void put_str(struct br_buf *out, const char *key, const char *value)
{
    br_buf_printf(out, "\"%s\":", key);
    br_buf_put_json_str(out, value, strlen(value));
}

static void put_hex(struct br_buf *out, const char *key, const uint8_t *p, size_t n)
{
    br_buf_printf(out, "\"%s\":\"", key);
    for (size_t i = 0; i < n; i++)
        br_buf_printf(out, "%02x", p[i]);
    br_buf_printf(out, "\"");
}

static void put_limits(struct br_buf *out, const struct br_limits *l)
{
    br_buf_printf(out,
                  "\"limits\":{\"memoryBytes\":%" PRIu64 ",\"pids\":%u,\"cpuPercent\":%u"
                  ",\"nofile\":%u,\"fsizeBytes\":%" PRIu64 ",\"tmpBytes\":%" PRIu64
                  ",\"tmpInodes\":%" PRIu64 ",\"outputBytes\":%" PRIu64
                  ",\"execSeconds\":%u,\"wallSeconds\":%u}",
                  l->memory_bytes, l->pids, l->cpu_percent, l->nofile, l->fsize_bytes, l->tmp_bytes,
                  l->tmp_inodes, l->output_bytes, l->exec_seconds, l->wall_seconds);
}

static void put_leases(struct br_buf *out, const struct br_plan *plan)
{
    const char *sep = "";
    br_buf_printf(out, "\"leases\":[");
    for (unsigned i = 0; i < BR_DISKS; i++) {
        const struct br_quota *q = &plan->disks[i];
        if (q->kind == BR_QUOTA_NONE)
            continue;
        br_buf_printf(out,
                      "%s{\"name\":\"%s\",\"target\":\"%s\",\"kind\":\"%s\",\"bytes\":%" PRIu64
                      ",\"inodes\":%" PRIu64 "}",
                      sep, br_disk_names[i], br_disk_points[i], br_quota_names[q->kind], q->bytes,
                      q->inodes);
        sep = ",";
    }
    br_buf_printf(out, "]");
    if (plan->state[0]) /* kebab-case, as checked */
        br_buf_printf(out, ",\"stateLease\":\"%s\"", plan->state);
}

static void put_sources(struct br_buf *out, const struct br_plan *plan)
{
    br_buf_printf(out, "\"allowedPaths\":[");
    for (uint32_t i = 0; i < plan->nsources; i++) {
        const struct br_fingerprint *f = &plan->sources[i];
        bool tree;
        (void)br_allowed_split(plan->allowed_paths[i], &tree);
        br_buf_printf(out, "%s{", i ? "," : "");
        put_str(out, "path", plan->allowed_paths[i]);
        br_buf_printf(out,
                      ",\"type\":\"%s\",\"device\":\"%u:%u\",\"inode\":%" PRIu64
                      ",\"mount\":%" PRIu64 ",\"mode\":\"%04o\",\"uid\":%u,\"gid\":%u"
                      ",\"ctimeNs\":%" PRIu64 ",\"entries\":%u,",
                      tree ? "directory" : "file", f->dev_major, f->dev_minor, f->ino, f->mnt_id,
                      f->mode & 07777, f->uid, f->gid, f->ctime_ns, f->entries);
        put_hex(out, "treeSha256", f->tree_sha256, sizeof(f->tree_sha256));
        br_buf_printf(out, "}");
    }
    br_buf_printf(out, "]");
}

void br_render_common(struct br_buf *out, const struct br_plan *plan)
{
    put_str(out, "backend", br_backend_names[plan->backend]);
    br_buf_printf(out, ",\"profile\":{");
    put_str(out, "name", plan->profile);
    br_buf_printf(out, ",\"version\":%u,", plan->profile_version);
    put_hex(out, "sha256", plan->profile_sha256, sizeof(plan->profile_sha256));
    br_buf_printf(out, "},");
    put_str(out, "image", plan->image);
    /* nothing pins what is in the host's /usr */
    br_buf_printf(out, ",\"imageAssurance\":\"%s\"",
                  strcmp(plan->image, "host") == 0 ? "lower" : "pinned");
    br_buf_printf(out, ",\"network\":\"none\",");
    put_limits(out, &plan->limits);
    br_buf_printf(out, ",");
    put_leases(out, plan);
    br_buf_printf(out, ",");
    put_sources(out, plan);
}

/* ---- the backends that this build launches ---- */

static void put_mount(struct br_buf *out, const char *target, const char *source, const char *type,
                      bool writable, bool noexec)
{
    br_buf_printf(out, "%s{", out->data && out->data[out->len - 1] == '[' ? "" : ",");
    put_str(out, "target", target);
    br_buf_printf(out, ",");
    put_str(out, "source", source);
    br_buf_printf(out, ",\"type\":\"%s\",\"flags\":[\"%s\",\"nosuid\",\"nodev\"%s]}", type,
                  writable ? "rw" : "ro", noexec ? ",\"noexec\"" : "");
}

static void put_allowed_mounts(struct br_buf *out, const struct br_plan *plan, bool noexec)
{
    for (uint32_t i = 0; i < plan->nallowed; i++) {
        char target[BR_PATH_MAX + 16], source[BR_PATH_MAX + 16];
        const char *p = plan->allowed_paths[i];
        bool tree;
        size_t n = br_allowed_split(p, &tree);
        snprintf(target, sizeof(target), BR_BOX_WORKSPACE "/%.*s", (int)n, p);
        snprintf(source, sizeof(source), "workspace:%.*s", (int)n, p);
        put_mount(out, target, source, "bind", true, noexec);
    }
}

static void put_mounts(struct br_buf *out, const struct br_plan *plan)
{
    bool host = strcmp(plan->image, "host") == 0;
    br_buf_printf(out, "\"mounts\":[");
    put_mount(out, "/", host ? "image:host (/usr, a minimal /etc, /dev)" : plan->image,
              host ? "tmpfs" : "image", false, false);
    put_mount(out, "/proc", "proc", "proc", false, true);
    put_mount(out, "/tmp", "tmpfs", "tmpfs", true, plan->flags & BR_PLAN_TMP_NOEXEC);
    put_mount(out, BR_BOX_HOME, "tmpfs", "tmpfs", true, plan->flags & BR_PLAN_HOME_NOEXEC);
    bool noexec = plan->flags & BR_PLAN_WORKSPACE_NOEXEC;
    if (plan->workspace == BR_WORKSPACE_BIND)
        put_mount(out, BR_BOX_WORKSPACE, "workspace", "bind", false, noexec);
    else if (plan->workspace == BR_WORKSPACE_NONE)
        put_mount(out, BR_BOX_WORKSPACE, "none", "empty", false, true);
    put_allowed_mounts(out, plan, noexec);
    for (unsigned i = 0; i < BR_DISKS; i++) {
        char source[64];
        if (plan->disks[i].kind == BR_QUOTA_NONE)
            continue;
        snprintf(source, sizeof(source), "lease:%s", br_disk_names[i]);
        put_mount(out, br_disk_points[i], source, br_quota_names[plan->disks[i].kind], true,
                  plan->flags & br_disk_noexec[i]);
    }
    if (plan->flags & BR_BOX_SOCKETS)
        put_mount(out, BR_BOX_BROKER, "tmpfs", "tmpfs", true, true);
    br_buf_printf(out, "]");
}

static void put_cgroups(struct br_buf *out, const struct br_cg_place *place)
{
    br_buf_printf(out, "\"cgroups\":[");
    for (unsigned i = 0; i < place->ndirs; i++) {
        const char *sep = "";
        br_buf_printf(out, "%s{\"version\":%d,", i ? "," : "", place->dirs[i].v2 ? 2 : 1);
        put_str(out, "below", place->dirs[i].path);
        br_buf_printf(out, ",\"controllers\":[");
        for (int c = 0; c < BR_CG_CTLS; c++)
            if (place->dirs[i].ctls & 1u << c) {
                br_buf_printf(out, "%s\"%s\"", sep, br_cg_ctl_names[c]);
                sep = ",";
            }
        br_buf_printf(out, "]}");
    }
    br_buf_printf(out, "]");
}

static int put_bwrap(struct br_buf *out, const struct br_host *h, const struct br_plan *plan,
                     struct br_err *err)
{
    struct br_bwrap_argv a;
    int r = br_bwrap_argv(&a, h->masked, plan->flags, err);
    br_buf_printf(out, ",\"argv\":[");
    for (unsigned i = 0; r == 0 && i < a.n; i++) {
        br_buf_printf(out, "%s", i ? "," : "");
        br_buf_put_json_str(out, a.v[i], strlen(a.v[i]));
    }
    br_buf_printf(out, "]");
    return r;
}

static int render_launched(struct br_buf *out, const struct br_host *h, const struct br_plan *plan,
                           const struct br_who *who, struct br_err *err)
{
    br_buf_printf(out, "{");
    br_render_common(out, plan);
    br_buf_printf(out, ",");
    br_buf_printf(out, "\"identity\":");
    br_who_json(who, out);
    br_buf_printf(out, ",");
    put_mounts(out, plan);
    br_buf_printf(out,
                  ",\"namespaces\":[\"user\",\"mnt\",\"pid\",\"net\",\"ipc\",\"uts\",\"cgroup\"]"
                  ",\"capabilities\":[],\"noNewPrivs\":true,\"seccompFilter\":");
    br_host_filter_json(h, out);
    br_buf_printf(out, ",\"landlock\":{\"required\":%s,\"abi\":%d},",
                  plan->flags & BR_PLAN_NO_LANDLOCK ? "false" : "true", h->landlock_abi);
    put_cgroups(out, &h->place);
    int r = plan->backend == BR_BACKEND_BWRAP ? put_bwrap(out, h, plan, err) : 0;
    br_buf_printf(out, "}");
    return r;
}

static int render_docker(struct br_buf *out, const struct br_plan *plan, const struct br_who *who,
                         struct br_err *err)
{
    const struct br_docker_env env = {.workspace = "WORKSPACE",
                                      .init = "BRIDLE-INIT",
                                      .seccomp = "SECCOMP",
                                      .uid = who->uid,
                                      .gid = who->gid};
    br_buf_printf(out, "{");
    br_render_common(out, plan);
    br_buf_printf(out, ",\"argv\":");
    int r = br_docker_argv(out, plan, &env, err);
    br_buf_printf(out, "}");
    return r;
}

int br_render_plan(struct br_buf *out, const struct br_host *h, const struct br_plan *plan,
                   const struct br_who *who, struct br_err *err)
{
    int r = 0;
    switch (plan->backend) {
    case BR_BACKEND_NATIVE:
    case BR_BACKEND_BWRAP:
        r = render_launched(out, h, plan, who, err);
        break;
    case BR_BACKEND_DOCKER:
        r = render_docker(out, plan, who, err);
        break;
    default:
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the backend '%s' is not one that this build can render; nothing was "
                          "started",
                          br_backend_names[plan->backend]);
    }
    if (r == 0 && out->failed)
        return br_err_set(err, BR_E_INTERNAL, "the plan is too large to show");
    return r;
}
