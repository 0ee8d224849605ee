/*
 * core/sandbox, private: steps of a child between clone3 and exec that the native backend and the
 * one of bubblewrap share. Each returns 0, or a negative code and the child's last words in err.
 */
#ifndef BR_SANDBOX_CHILD_PRIV_H
#define BR_SANDBOX_CHILD_PRIV_H

#include "sandbox/box_priv.h"

/* errno, as the last words. */
int br_child_fail(struct br_err *err, const char *what);
/* In a function with an `err`: a call that may fail as system calls do. */
#define STEP(expr, what)                                                                           \
    do {                                                                                           \
        if ((expr) < 0)                                                                            \
            return br_child_fail(err, what);                                                       \
    } while (0)

/* The whole environment of pid 1, NULL-terminated. */
extern const char *const br_child_env[];

int br_child_null_stdio(struct br_err *err);
/* Wait until the launcher has made the cgroups, and go into them. */
int br_child_take_place(int ctl, struct br_err *err);
int br_child_become(const struct br_host *h, struct br_err *err);
/* Its own limits below the present root, in a cgroup namespace of its own. */
int br_child_mount_cgroup(const struct br_host *h, struct br_err *err);
/* /tmp and the home directory below the present root. */
int br_child_mount_own(const struct br_limits *l, uint32_t flags, unsigned long more,
                       struct br_err *err);
/* The workspace or its lease, and the other leases, below the present root. */
int br_child_mount_plan(const struct br_host *h, struct br_box_shared *s, const int *fds,
                        struct br_err *err);
int br_child_receive(int ctl, const struct br_box_shared *s, int *fds, struct br_err *err);
/* Resource limits, and the CPUs that it may use. */
int br_child_limits(const struct br_box_shared *s, struct br_err *err);

/* The words that pid 1 is started with. */
#define BR_BOX_ARGS_MAX 4
void br_child_init_argv(uint32_t flags, char *argv[BR_BOX_ARGS_MAX]);

/* bwrap_child.c: never returns but with the reason. */
int br_bwrap_child(const struct br_host *h, struct br_box_shared *s, int ctl, int root);

#endif
