/*
 * core/sandbox: makes native sandboxes. Only bridle-launch links it. A host is what one launcher
 * prepares once (its own mount namespace, the read-only root that all its sandboxes share, the
 * compiled system call filter, the place for cgroups); a box is one sandbox.
 *
 * Nothing in here is weaker than asked: a limit, a namespace or a mount that the host cannot give
 * refuses the launch with BR_E_REQUIREMENT_MISSING and the fix.
 */
#ifndef BR_SANDBOX_H
#define BR_SANDBOX_H

#include "base/base.h"
#include "sandbox/allowed.h"
#include "wire/types.h"

struct br_host;
struct br_box;

#define BR_POOL_MAX 4u
#define BR_POOL_DEFAULT 3u

struct br_host_config {
    int init_fd; /* the program that becomes pid 1, O_PATH or O_RDONLY; not owned, kept open */
    /* Boxes that are kept prepared. 0: none. 1: the launcher makes one when it is idle. More: after
     * the first, a process of their own makes them. At most BR_POOL_MAX. */
    unsigned pool;
};

/*
 * Prepare this process for making sandboxes: it leaves its mount namespace (an ordinary user: its
 * user namespace as well). Once per process, single-threaded. -BR_E_REQUIREMENT_MISSING with the
 * fix if the host cannot do it. The cgroup place is part of it, but what is missing there is only
 * reported by br_box_prepare().
 */
int br_host_open(struct br_host **h, const struct br_host_config *cfg, struct br_err *err);
void br_host_close(struct br_host **h);
/* How many cgroups of dead launchers were removed by br_host_open(). */
unsigned br_host_swept(const struct br_host *h);

/*
 * Where images and leases are (the state directory, or -1); h keeps a copy.
 */
int br_host_set_state(struct br_host *h, int state_fd, struct br_err *err);
/*
 * Mount the workspace lease that an ended run has left (see br_plan.keep), read-only, with uid and
 * gid in the place of the sandbox's. *mount is the caller's; the image stays locked until
 * br_kept_close(). -BR_E_NOT_FOUND, -BR_E_IN_USE, -BR_E_REQUIREMENT_MISSING.
 */
struct br_kept;
int br_kept_open(struct br_kept **out, struct br_host *h, const char *run_id, unsigned uid,
                 unsigned gid, int *mount, struct br_err *err);
void br_kept_close(struct br_kept **k);
/* Remove what dead launchers left in `leases/` of the state directory; returns how many files. */
unsigned br_host_sweep_leases(const struct br_host *h);
/*
 * From here on boxes are made with the root of this image: "host", or an id, which is checked each
 * time. Call it before a plan with that image starts, and before its box is made.
 * -BR_E_NOT_FOUND, -BR_E_INVALID_IMAGE, -BR_E_REQUIREMENT_MISSING.
 */
int br_host_use_image(struct br_host *h, const char *image, struct br_err *err);

/*
 * Make a box as far as is possible without knowing the plan: an empty cgroup, a pid 1 in its new
 * namespaces with its root, /proc and host name, waiting. Cheap to throw away with br_box_free().
 * One box at a time per host.
 */
int br_box_prepare(struct br_host *h, struct br_box **b, struct br_err *err);

/* From now on boxes are prepared for plans like this one. */
void br_host_expect(struct br_host *h, const struct br_plan *plan);

/* Can this prepared box become the plan's? Not if it lives no more, or was made from other things
 * than the plan asks for. */
bool br_box_fits(const struct br_box *b, const struct br_plan *plan);

/*
 * A box has been started, and there is nothing to do: a launcher that makes one after another makes
 * the network namespace of the next one now. It takes longer than all the rest of a launch. For
 * the first box this does nothing, since most launchers make only one.
 */
void br_host_idle(struct br_host *h);

/*
 * The network namespaces of boxes that have ended: gives them up if there is nothing to do
 * (`idle`), or if there are many, and then waits until they are gone: mostly 60 ms for 64, and half
 * a second if a process outside holds one, which is logged.
 */
void br_host_tidy(struct br_host *h, bool idle);

/*
 * Check everything about the plan that can be checked without starting anything, and fill in
 * plan->sources. `text` gets the plan as the native backend renders it (a JSON object), `facts` the
 * facts of this host that an activation pins (lines of "name value"). Same errors as
 * br_box_start().
 */
int br_plan_resolve(struct br_host *h, struct br_plan *plan, int ws_fd, struct br_buf *text,
                    struct br_buf *facts, struct br_err *err);

/* What br_box_start() says of the sandbox that it started. */
struct br_box_info {
    char name[BR_ID_MAX];
    char image[BR_IMAGE_ID_MAX];
    uint32_t mounts;
    struct br_buf receipt; /* JSON object; the caller frees it */
};

/*
 * Check the plan, apply it, measure, and let pid 1 execute the init program with the sandbox end
 * of the init channel as descriptor 3. The plan and both descriptors stay the caller's. On failure
 * nothing runs and, after br_box_free(), nothing is left. Errors: -BR_E_INVALID_WORKSPACE,
 * -BR_E_INVALID_ALLOWED_PATH, -BR_E_LIMIT_EXCEEDED, -BR_E_REQUIREMENT_MISSING, -BR_E_INTERNAL.
 */
int br_box_start(struct br_box *b, const struct br_plan *plan, int ws_fd, int chan_fd,
                 struct br_box_info *info, struct br_err *err);
/* The pidfd of pid 1 (readable when it has ended); the box's. */
int br_box_pidfd(const struct br_box *b);
/* Kill everything inside. Asynchronous: wait on the pidfd. */
int br_box_kill(struct br_box *b);

/* How a box ended. */
struct br_box_end {
    bool verified;   /* every process is gone, its cgroup is empty and removed, and with them its
                        mounts */
    int wait_status; /* as from waitpid(2) */
    uint64_t duration_us;
    char detail[256]; /* why not verified */
};
/* Wait for pid 1 (kill it first, or wait for its pidfd), verify and remove everything. Frees it. */
void br_box_finish(struct br_box **b, struct br_box_end *end);
/* Throw away a box in any state; kills, verifies, removes. */
void br_box_free(struct br_box **b);

/*
 * What this host can enforce: real operations, in children, nothing kept. `h` may be NULL if
 * br_host_open() failed with `why`. Returns the number of rows.
 */
uint32_t br_probe_run(const struct br_host *h, const struct br_err *why, struct br_probe *rows,
                      uint32_t max);

/*
 * Root only: give an ordinary user a place for cgroups (version 1: directories `bridle-UID`;
 * version 2: says what to tell systemd). What was done is appended to `told`, one line each.
 */
int br_cgroup_delegate(uid_t uid, struct br_buf *told, struct br_err *err);

#endif
