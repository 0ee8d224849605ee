/*
 * core/sandbox, private: the limits of a sandbox through control groups, version 2 or 1, whichever
 * carries the controller on this host.
 */
#ifndef BR_SANDBOX_CGROUP_H
#define BR_SANDBOX_CGROUP_H

#include "base/base.h"
#include "wire/types.h"

enum br_cg_ctl { BR_CG_MEMORY, BR_CG_PIDS, BR_CG_CPU, BR_CG_CTLS };
extern const char *const br_cg_ctl_names[BR_CG_CTLS];

/* Where the kernel is asked; tests point it at a tree of their own. */
struct br_cg_env {
    const char *self_cgroup; /* "/proc/self/cgroup" */
    const char *mountinfo;   /* "/proc/self/mountinfo" */
    const char *swaps;       /* NULL: "/proc/swaps" */
    uid_t uid;               /* the launcher's */
};

struct br_cg_dir {
    int fd; /* directory in which cgroups of runs are made; owned */
    bool v2;
    unsigned ctls; /* bit mask of 1 << enum br_cg_ctl */
    char path[BR_PATH_MAX];
};

/* The directories under which this launcher makes its cgroups. */
struct br_cg_place {
    struct br_cg_dir dirs[BR_CG_CTLS];
    unsigned ndirs;
    unsigned have;                         /* controllers that work, as bits */
    char missing[BR_CG_CTLS][BR_PATH_MAX]; /* why not, and the fix, for the others */
    char fix[BR_CG_CTLS][512];
    char swaps[96];         /* where the kernel lists swap areas; "": /proc/swaps */
    char tag[128];          /* names the owner: what all its cgroups start with */
    uint32_t stale_seconds; /* how long the sweep keeps what it cannot judge, if it is empty */
};

/* The files of limits. */
enum br_cg_file {
    BR_CG_FILE_MEMORY,
    BR_CG_FILE_SWAP,
    BR_CG_FILE_SOCKETS,
    BR_CG_FILE_PIDS,
    BR_CG_FILE_QUOTA, /* of the CPU; version 2: and the period */
    BR_CG_FILE_PERIOD,
    BR_CG_FILES
};

/* One cgroup, in as many hierarchies as the place has. */
struct br_cg {
    const struct br_cg_place *place;
    char name[160];
    int fds[BR_CG_CTLS];    /* one per dir of the place; -1 where not made */
    int files[BR_CG_FILES]; /* opened to be written and read back; -1: not */
    struct br_limits set;   /* what was written last; 0: nothing */
};

/* Find out where cgroups can be made. Never fails: what is missing is in `missing` and `fix`. */
void br_cg_find(struct br_cg_place *p, const struct br_cg_env *env);
void br_cg_place_close(struct br_cg_place *p);
/* -BR_E_REQUIREMENT_MISSING naming the first controller that cannot be used. */
int br_cg_require(const struct br_cg_place *p, struct br_err *err);

/* Where cgroups with this controller are made; NULL if nowhere. */
const struct br_cg_dir *br_cg_dir_of(const struct br_cg_place *p, enum br_cg_ctl c);

/* One that is not made. */
void br_cg_init(const struct br_cg_place *p, struct br_cg *cg);
/* Is a process born in its cgroup, with CLONE_INTO_CGROUP? */
bool br_cg_has_v2(const struct br_cg_place *p);
/* Make an empty cgroup, named by the place's tag and `id`. On failure nothing is left. */
int br_cg_make(const struct br_cg_place *p, struct br_cg *cg, uint64_t id, struct br_err *err);
/* The one of that name that another process made; -1 in fds where it does not exist. */
void br_cg_open(const struct br_cg_place *p, struct br_cg *cg, uint64_t id);
/*
 * Open the ways into the version 1 hierarchies: at most BR_CG_CTLS descriptors, the caller's.
 * Returns how many; -BR_E_REQUIREMENT_MISSING names the one that does not open.
 */
int br_cg_open_ways(const struct br_cg *cg, int *fds, struct br_err *err);
/* Go in, as a process with one thread. Whoever opened them is asked for the permission, not the
 * caller. 0, or -1 and errno. */
int br_cg_enter(const int *fds, unsigned n);
/* The descriptor for CLONE_INTO_CGROUP, or -1 if no version 2 hierarchy is used. */
int br_cg_v2_fd(const struct br_cg *cg);
/* Set memory (swap included), pids and cpu, where they are not set so already. A kernel that does
 * not count swap will do only where there is none.
 * -BR_E_REQUIREMENT_MISSING if the host refuses one. */
int br_cg_limit(struct br_cg *cg, const struct br_limits *l, struct br_err *err);

/*
 * For a kernel that does not count swap: 0 if this host has no swap area now,
 * -BR_E_REQUIREMENT_MISSING with the fix if it has one, or if that cannot be told.
 */
int br_cg_require_no_swap(const struct br_cg_place *p, struct br_err *err);

/* Is that what was written last? */
bool br_cg_is(const struct br_cg *cg, const struct br_limits *l);

/* One controller only. */
int br_cg_limit_one(struct br_cg *cg, enum br_cg_ctl c, const struct br_limits *l,
                    struct br_err *err);

/* What the kernel says the limits are. */
struct br_cg_read {
    uint64_t memory_bytes, swap_total_bytes; /* swap_total: memory + swap */
    uint64_t socket_bytes;                   /* where those are counted apart (version 1); else 0 */
    bool no_swap; /* the kernel does not count it, and this host has none: no swap_total */
    uint64_t pids, cpu_percent;
};
int br_cg_read(struct br_cg *cg, struct br_cg_read *out, struct br_err *err);
/* Once the limits are written and read: nobody needs the files any more. */
void br_cg_close_files(struct br_cg *cg);
/* -BR_E_REQUIREMENT_MISSING if what was read differs from what was asked. */
int br_cg_compare(const struct br_cg_read *got, const struct br_limits *want, struct br_err *err);

/*
 * Wait (at most two seconds, killing what is still inside) until it is empty, and remove it.
 * 0 only if it is gone in every hierarchy.
 */
int br_cg_remove(struct br_cg *cg, struct br_err *err);
/* Forget it without removing (for a child that only inherited the descriptors). */
void br_cg_close(struct br_cg *cg);

/* Kill and remove what launchers that no longer live left in this place, and (root) in those beside
 * it. Returns how many. */
unsigned br_cg_sweep(const struct br_cg_place *p);

#endif
