/*
 * core/sandbox, private: what the launcher's side (host.c, box.c, receipt.c) and the child's side
 * (child.c) of a box know of each other.
 */
#ifndef BR_SANDBOX_BOX_PRIV_H
#define BR_SANDBOX_BOX_PRIV_H

#include <linux/filter.h>

#include "sandbox/cgroup.h"
#include "sandbox/sandbox.h"
#include "sandbox/weak.h"

/* The one message of the launcher to a child that has not executed yet: the plan is in the shared
 * area, descriptors come along. The child's answer is the end of file that its exec causes, or its
 * last words in the shared area. */
#define BR_WORD_PLAN 'p'

/* Those descriptors, in this order, then one per allowed path. */
enum { BR_BOX_FD_CHAN, BR_BOX_FD_WORKSPACE, BR_BOX_FD_ALLOWED };
#define BR_BOX_FDS_MAX (BR_BOX_FD_ALLOWED + BR_ALLOWED_PATHS_MAX)

/* Memory that launcher and child share until the child executes. The child is our own code. */
struct br_box_shared {
    struct br_limits limits;
    uint32_t nallowed;
    struct br_allowed allowed[BR_ALLOWED_PATHS_MAX];
    struct br_err err; /* the child's last words */
};

struct br_host {
    struct br_host_config cfg;
    uid_t uid; /* the launcher's, before it made a user namespace */
    gid_t gid;
    uint64_t own_ns[7]; /* the host's namespaces, before anything was made */
    unsigned boxes;     /* so far */
    bool fresh;         /* the launcher sits in net, ipc and uts namespaces for the next box */
    int rootfs;         /* O_PATH of the prepared root */
    struct sock_fprog filter;
    uint32_t filter_sum; /* names the filter in receipts */
    int landlock_abi;    /* 0: none */
    struct br_cg_place place;
    unsigned swept;
    struct br_box_shared *shared;
};

/* What the launcher reads of pid 1. */
struct br_measured {
    uint64_t ns[7];
    char uid_map[64], gid_map[64];
    uint64_t caps[5]; /* inheritable, permitted, effective, bounding, ambient */
    unsigned no_new_privs, seccomp, filters;
    unsigned uid, gid;
    uint32_t mounts;
    struct br_cg_read limits;
};
extern const char *const br_ns_names[7];
struct br_box {
    struct br_host *host;
    struct br_cg cg;
    pid_t pid;
    int pidfd;
    int ctl; /* the launcher's end */
    bool started;
    uint64_t started_us;
    char name[BR_ID_MAX];
    struct br_measured measured;
};

/*
 * Make the net, ipc and uts namespaces of the next box, which is born in them, with its host name
 * and loopback. Does nothing if they are there.
 */
int br_host_refresh(struct br_host *h, struct br_err *err);

/* The child's side: never returns. `ctl` and `root` are inherited. */
_Noreturn void br_child_run(const struct br_host *h, int ctl, int root);

enum { BR_NS_CGROUP = 6, BR_NS_COUNT = 7 };
/* The ids of the namespaces first..end-1 of a process ("self" or a pid). */
int br_measure_ns(const char *who, unsigned first, unsigned end, uint64_t ns[7],
                  struct br_err *err);
/* Namespaces that pid 1 was born in: before it becomes another user. */
int br_measure_birth(struct br_box *b, struct br_err *err);
/* Id maps and limits, once they are set. */
int br_measure_limits(struct br_box *b, struct br_err *err);
/* The rest, when it has executed: in its final state, before anybody can ask it to do something. */
int br_measure_final(struct br_box *b, struct br_err *err);
/* Refuse what differs from the plan. */
int br_measure_check(const struct br_box *b, const struct br_plan *plan, struct br_err *err);
/* The isolation receipt, a JSON object. */
int br_receipt_write(struct br_buf *out, const struct br_box *b, const struct br_plan *plan,
                     struct br_err *err);

/* Landlock in the child: writing only below these. `abi` from the host. */
int br_landlock_abi(void);
int br_landlock_apply(int abi, const struct br_box_shared *s, struct br_err *err);

#endif
