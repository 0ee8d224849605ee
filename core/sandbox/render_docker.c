/*
 * A plan as the argument vector of `docker run`. Pure: no system call, no environment. Called for
 * `bridle plan --backend docker`; this build does not start it. What Docker cannot do exactly as
 * the plan says is refused and named, never approximated.
 */
#include <string.h>

#include "sandbox/box_priv.h"
#include "sandbox/facts.h"
#include "sandbox/rootfs.h"

struct argv {
    struct br_buf *out;
    unsigned n;
};

static void word(struct argv *a, const char *fmt, ...) BR_PRINTF(2, 3);
static void word(struct argv *a, const char *fmt, ...)
{
    char text[3 * BR_PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(text)) {
        a->out->failed = true;
        return;
    }
    br_buf_printf(a->out, a->n++ ? "," : "");
    br_buf_put_json_str(a->out, text, (size_t)n);
}

static int cannot(struct br_err *err, const char *what, const char *instead)
{
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "Docker cannot express %s of this plan exactly; nothing was started. %s",
                      what, instead);
}

static int check(const struct br_plan *plan, struct br_err *err)
{
    if (strncmp(plan->image, "sha256:", 7) != 0)
        return cannot(err, "the image 'host'",
                      "Use a profile whose image is an immutable id: sha256:...");
    if (!(plan->flags & BR_PLAN_NO_LANDLOCK))
        return cannot(err, "Landlock", "Use a profile with landlock = \"none\"");
    if (plan->identity == BR_IDENTITY_DEDICATED && plan->workspace == BR_WORKSPACE_BIND)
        return cannot(err, "an identity of its own with the workspace bound (idmapped mounts)",
                      "Use a profile with identity = \"owner\"");
    if (plan->workspace == BR_WORKSPACE_LEASE)
        return cannot(err, "a copy of the workspace with a quota",
                      "Use a profile with workspace = \"bind\"");
    for (unsigned i = 0; i < BR_DISKS; i++)
        if (plan->disks[i].kind == BR_QUOTA_EXT4)
            return cannot(err, "a lease on ext4 (quota of bytes and inodes)",
                          "Use a profile with leases on tmpfs");
    if (plan->state[0])
        return cannot(err, "a state lease that outlives the run", "Leave it out");
    return 0;
}

/* `env` is whose it is, NULL for everybody's. */
static void put_tmpfs(struct argv *a, const char *at, uint64_t bytes, uint64_t inodes, bool noexec,
                      const struct br_docker_env *env)
{
    char owner[64] = "mode=1777";
    if (env)
        snprintf(owner, sizeof(owner), "mode=0700,uid=%u,gid=%u", env->uid, env->gid);
    word(a, "--tmpfs=%s:rw,nosuid,nodev,%s,size=%llu,nr_inodes=%llu,%s", at,
         noexec ? "noexec" : "exec", (unsigned long long)bytes, (unsigned long long)inodes, owner);
}

static void put_mounts(struct argv *a, const struct br_plan *plan, const struct br_docker_env *env)
{
    const struct br_limits *l = &plan->limits;
    put_tmpfs(a, "/tmp", l->tmp_bytes, l->tmp_inodes, plan->flags & BR_PLAN_TMP_NOEXEC, NULL);
    put_tmpfs(a, BR_BOX_HOME, l->tmp_bytes, l->tmp_inodes, plan->flags & BR_PLAN_HOME_NOEXEC, env);
    for (unsigned i = 0; i < BR_DISKS; i++)
        if (plan->disks[i].kind == BR_QUOTA_TMPFS)
            put_tmpfs(a, br_disk_points[i], plan->disks[i].bytes, plan->disks[i].inodes,
                      plan->flags & br_disk_noexec[i], env);
    word(a, "--mount=type=bind,src=%s,dst=/bridle-init,readonly", env->init);
    if (plan->workspace != BR_WORKSPACE_BIND)
        return;
    /* 'readonly' does not reach what is mounted below, before version 25: so that stays out */
    word(a, "--mount=type=bind,src=%s,dst=" BR_BOX_WORKSPACE ",readonly,bind-nonrecursive=true",
         env->workspace);
    for (uint32_t i = 0; i < plan->nallowed; i++) {
        const char *p = plan->allowed_paths[i];
        bool tree;
        size_t n = br_allowed_split(p, &tree);
        /* no ',' in it: the syntax of allowed paths refuses that */
        word(a, "--mount=type=bind,src=%s/%.*s,dst=" BR_BOX_WORKSPACE "/%.*s", env->workspace,
             (int)n, p, (int)n, p);
    }
}

int br_docker_argv(struct br_buf *out, const struct br_plan *plan, const struct br_docker_env *env,
                   struct br_err *err)
{
    struct argv a = {.out = out};
    const struct br_limits *l = &plan->limits;
    int r = check(plan, err);
    if (r == 0 && (strchr(env->workspace, ',') || strchr(env->init, ',')))
        r = cannot(err, "a path with ','", "Rename it");
    if (r < 0)
        return r;
    br_buf_printf(out, "[");
    word(&a, "docker");
    word(&a, "run");
    word(&a, "--rm");
    word(&a, "--interactive");
    word(&a, "--pull=never");
    word(&a, "--network=none");
    word(&a, "--read-only");
    word(&a, "--cap-drop=ALL");
    word(&a, "--security-opt=no-new-privileges");
    word(&a, "--security-opt=seccomp=%s", env->seccomp);
    word(&a, "--ipc=none"); /* of its own, and without a /dev/shm beside what the plan counts */
    word(&a, "--cgroupns=private");
    word(&a, "--hostname=bridle");
    word(&a, "--user=%u:%u", env->uid, env->gid);
    word(&a, "--memory=%llu", (unsigned long long)l->memory_bytes);
    word(&a, "--memory-swap=%llu", (unsigned long long)l->memory_bytes);
    word(&a, "--pids-limit=%u", l->pids);
    /* '--cpus' is refused where the host has fewer */
    word(&a, "--cpu-period=100000");
    word(&a, "--cpu-quota=%llu", 1000ull * l->cpu_percent);
    word(&a, "--ulimit=nofile=%u:%u", l->nofile, l->nofile);
    word(&a, "--ulimit=fsize=%llu:%llu", (unsigned long long)l->fsize_bytes,
         (unsigned long long)l->fsize_bytes);
    word(&a, "--ulimit=core=0:0");
    word(&a, "--log-driver=none");
    word(&a, "--workdir=" BR_BOX_WORKSPACE);
    put_mounts(&a, plan, env);
    word(&a, "--entrypoint=/bridle-init");
    word(&a, "--");
    word(&a, "%s", plan->image);
    br_buf_printf(out, "]");
    return out->failed ? br_err_set(err, BR_E_INTERNAL, "the argument vector is too large") : 0;
}
