/*
 * core/sandbox, private: what an activation pins of this host, and a plan as people read it.
 */
#ifndef BR_SANDBOX_FACTS_H
#define BR_SANDBOX_FACTS_H

#include "base/base.h"
#include "wire/types.h"

struct br_host;
struct br_who;

/*
 * The facts that every launch of this launcher has in common, one "name value" a line, sorted by
 * nothing but their place in the table. Called once by br_host_open(), while /sys is still there
 * and before the launcher has namespaces of its own.
 */
void br_facts_gather(struct br_buf *out, const struct br_host *h);
/*
 * Those, and what the plan adds: profile, image, backend, identity, workspace, Landlock and all
 * other flags, limits, disks, and the programs of others that it needs. The plan was checked.
 */
void br_facts_put(struct br_buf *out, const struct br_buf *common, const struct br_plan *plan);

/*
 * Append the resolved plan as its backend renders it, a JSON object. `ws` is the workspace. -code
 * of what the backend cannot express exactly.
 */
int br_render_plan(struct br_buf *out, const struct br_host *h, const struct br_plan *plan,
                   const struct br_who *who, struct br_err *err);
/* Members that all backends have in common, behind an opening brace; no closing one. */
void br_render_common(struct br_buf *out, const struct br_plan *plan);

/* What only the caller knows of a `docker run`. */
struct br_docker_env {
    const char *workspace; /* path on the host, "" none */
    const char *init;      /* path of bridle-init on the host */
    const char *seccomp;   /* path of the filter as Docker reads it */
    unsigned uid, gid;     /* the workspace's owner */
};
/*
 * The argument vector of `docker run` for a plan, as a JSON array of texts: no shell, no
 * environment, nothing that is not in the plan. Pure. -BR_E_REQUIREMENT_MISSING naming what Docker
 * cannot express exactly.
 */
int br_docker_argv(struct br_buf *out, const struct br_plan *plan, const struct br_docker_env *env,
                   struct br_err *err);

#endif
