/*
 * core/sandbox, private: what the launcher's side (host.c, box.c, receipt.c) and the child's side
 * (child.c) of a box know of each other.
 */
#ifndef BR_SANDBOX_BOX_PRIV_H
#define BR_SANDBOX_BOX_PRIV_H

#include <linux/capability.h>
#include <linux/filter.h>
#include <sys/stat.h>

#include "sandbox/cgroup.h"
#include "sandbox/image.h"
#include "sandbox/lease.h"
#include "sandbox/mounts.h"
#include "sandbox/sandbox.h"
#include "sandbox/tree.h"
#include "sandbox/weak.h"

/* The last message of the launcher to a child that has not executed yet: the plan is in the shared
 * area, descriptors come along. The child's answer is the end of file that its exec causes, or its
 * last words in the shared area. */
#define BR_WORD_PLAN 'p'
/* Before it: its cgroups are there, and descriptors of br_cg_open_ways() come along; if that was
 * possible without the plan, its ids are mapped. */
#define BR_WORD_PLACED 'j'
/* The child's one word: its mounts are made, and it has no capability to make more. */
#define BR_WORD_MOUNTED 'm'

/* Those descriptors, in this order, then one per allowed path, then one per lease, then, if a
 * workspace lease may stay, that of what is copied into it. */
enum { BR_BOX_FD_CHAN, BR_BOX_FD_WORKSPACE, BR_BOX_FD_ALLOWED };
#define BR_BOX_FDS_MAX (BR_BOX_FD_ALLOWED + BR_ALLOWED_PATHS_MAX + BR_DISKS + 1)

/* Of every process of a sandbox. */
#define BR_BOX_OOM_SCORE "1000"

/* Queued signals and timers, and bytes of POSIX message queues, of all processes of a sandbox
 * together: the kernel keeps them in memory of its own. */
#define BR_BOX_SIGPENDING 4096u
#define BR_BOX_MSGQUEUE 819200u

/* Flags with which there is a tmpfs for sockets, how large that is, and how many inodes it has: the
 * directory and its sockets. */
#define BR_BOX_SOCKETS (BR_PLAN_BROKER | BR_PLAN_GATE)
#define BR_BOX_BROKER_BYTES 4096ull
static inline unsigned long long br_box_broker_inodes(uint32_t flags)
{
    return 1ull + (unsigned)__builtin_popcount(flags & BR_BOX_SOCKETS);
}

/* One mount on the workspace: an allowed path, or a cover. */
struct br_step {
    bool cover;
    uint16_t at; /* in br_box_shared.allowed, or in .covers.items */
};

/* What the next boxes are prepared for: what the last plan asked for. */
struct br_expect {
    uint8_t backend;  /* enum br_backend; never docker */
    uint8_t identity; /* enum br_identity */
    uint32_t flags;   /* enum br_plan_flag */
    struct br_limits limits;
};

/* Memory that launcher and child share until the child executes. The child is our own code. */
struct br_box_shared {
    int32_t pid; /* of the child, written by the kernel; 0: none */
    struct br_expect expect;
    bool mapped; /* its ids are mapped before the plan */
    struct br_limits limits;
    uint32_t nallowed;
    struct br_allowed allowed[BR_ALLOWED_PATHS_MAX];
    uint32_t flags;    /* enum br_plan_flag */
    uint8_t workspace; /* enum br_workspace */
    struct br_covers covers;
    uint32_t nsteps; /* in the order of mounting */
    struct br_step steps[BR_ALLOWED_PATHS_MAX + BR_COVERS_MAX];
    uint8_t disks; /* which leases there are, as bits of 1 << enum br_disk */
    struct br_quota quotas[BR_DISKS];
    bool based;              /* what is copied into the workspace lease is recorded */
    struct br_copied copied; /* into the workspace lease; the child says it */
    bool copying;            /* it is at it */
    struct br_err err;       /* the child's last words */
};

/* Whose uid the sandbox has outside; inside it is always BR_BOX_UID. */
struct br_who {
    enum { BR_WHO_DEDICATED, BR_WHO_OWNER, BR_WHO_USER } kind;
    unsigned uid, gid;           /* outside: what a lease of the sandbox must belong to */
    unsigned disk_uid, disk_gid; /* the workspace's owner */
    bool idmapped;               /* the workspace's mounts map the one to the other */
};

/* A user namespace that maps the owner of a mount's files; kept for the next sandbox. */
struct br_idmap {
    int ns, uid_map, gid_map; /* -1: none yet */
    bool mapped;
    unsigned disk_uid, disk_gid, uid, gid; /* the former to the latter, as in struct br_who */
};

/* The empty file and the empty directory of the prepared root. */
struct br_mask_id {
    uint64_t ino;
    uint32_t dev_major, dev_minor;
};

/* The network and the ipc namespace of a box: descriptors that keep them, and one of a file in the
 * network namespace, which reads as long as there is one. Its owner closes them; all are -1: none.
 */
struct br_net {
    int ns, ipc, file;
};
#define BR_NET_NONE ((struct br_net){.ns = -1, .ipc = -1, .file = -1})

/* Those of boxes that have ended (nets.c): so many that giving them up together, which takes 30 to
 * 100 ms, is rare, and so few that they are 12 MB of kernel memory. */
#define BR_NETS_MAX 64u
struct br_nets {
    unsigned n, max; /* max: as many as there are descriptors for */
    struct br_net ended[BR_NETS_MAX];
};

/* One box of the launcher's own, the prepared ones, and one that has been taken from them. */
#define BR_SLOTS (2 + BR_POOL_MAX)

struct br_host {
    struct br_host_config cfg;
    uid_t uid; /* the launcher's, before it made a user namespace */
    gid_t gid;
    unsigned box_uid;    /* launcher root: of its sandboxes, and the owner of their namespaces */
    int uid_taken;       /* a socket that keeps other launchers from it, or -1 */
    uint64_t own_ns[7];  /* the host's namespaces, before anything was made */
    uint64_t last_ns[7]; /* those that the launcher was in last */
    unsigned boxes;      /* so far */
    bool fresh;          /* the launcher sits in net, ipc and uts namespaces for the next box */
    int rootfs;          /* O_PATH of the prepared root, of the image "host" */
    struct br_mounts root_mounts; /* what is mounted in it, measured */
    unsigned own_filters;         /* system call filters that the launcher itself is under */
    /* how a sandbox is shown its own limits; version 1 only if memory has a hierarchy of its own */
    enum { BR_CG_VIEW_NONE, BR_CG_VIEW_V1, BR_CG_VIEW_V2 } cg_view;
    uint64_t masked;                /* which of what br_mask_path() names this kernel has */
    int state_fd;                   /* the state directory: images and leases; -1: none was given */
    struct br_image_root image;     /* the root of another image */
    char image_id[BR_IMAGE_ID_MAX]; /* what the next box gets: "host" or image.id */
    struct br_expect expect;
    struct br_mask_id masks[2]; /* of the root of the next box: the descriptor of that root, */
    int masks_root;             /* and which image's (br_image_root.made) */
    unsigned masks_made;
    bool masks_known;
    struct sock_fprog filter;
    char filter_sha256[65]; /* of the program, in hex */
    int landlock_abi;       /* 0: none */
    struct br_cg_place place;
    struct br_idmap idmap;
    struct br_idmap lease_map; /* BR_BOX_UID, as on the disk of a lease, to the sandbox */
    int trial; /* a mount that br_who_try() made, to be closed when there is time; or -1 */
    unsigned swept;
    struct br_box_shared *shared; /* BR_SLOTS of them; 0: of the box that the launcher makes */
    struct br_pool *pool;         /* NULL: not started */
    bool taken[BR_SLOTS];         /* of `shared`: a box that came from the pool has it */
    struct br_nets nets;
    struct br_buf facts; /* of this host, for activations (facts.h) */
};

enum {
    BR_RLIMIT_CORE,
    BR_RLIMIT_FSIZE,
    BR_RLIMIT_NOFILE,
    BR_RLIMIT_SIGPENDING,
    BR_RLIMIT_MSGQUEUE,
    BR_RLIMITS
};

/* What the launcher reads of pid 1. */
struct br_measured {
    uint64_t ns[7];
    char uid_map[64], gid_map[64];
    uint64_t caps[5]; /* inheritable, permitted, effective, bounding, ambient */
    unsigned no_new_privs, seccomp, filters;
    unsigned uids[4], gids[4]; /* real, effective, saved, file system */
    bool groups;               /* it has supplementary ones */
    pid_t session;
    bool in_cgroup;
    unsigned cpus; /* that it may run on; 0: more than can be told */
    char cwd[64];
    uint64_t rlimits[BR_RLIMITS];
    struct br_mounts mounts;
    struct br_cg_read limits;
};
extern const char *const br_ns_names[7];
struct br_box {
    struct br_host *host;
    unsigned slot;
    struct br_box_shared *shared; /* &host->shared[slot] */
    struct br_cg cg;
    pid_t child;       /* what this process has to wait for: pid 1, or bubblewrap */
    pid_t pid;         /* of pid 1 */
    int pidfd;         /* likewise */
    int ctl;           /* the launcher's end */
    int mntns;         /* its mount namespace, which so outlives pid 1 */
    uint64_t mntns_id; /* 0: this kernel does not number them */
    struct br_net net;
    bool started;
    bool read; /* measured.limits and the maps are those of .cg.set */
    uint64_t started_us;
    struct br_who who;
    struct br_mask_id workspace_id; /* the directory that is bound */
    char name[BR_ID_MAX];
    char image[BR_IMAGE_ID_MAX]; /* whose root it was made with, */
    unsigned image_made;         /* and which root of it (br_image_root.made) */
    struct br_measured measured;
    struct br_buf mounts_text; /* measured.mounts, for the receipt */
    struct br_leases leases;
};

/*
 * Make the net, ipc and uts namespaces of the next box, which is born in them, with its host name
 * and loopback. Does nothing if they are there.
 */
int br_host_refresh(struct br_host *h, struct br_err *err);

/* Descriptors that making a box needs: what the process that prepares boxes keeps. */
#define BR_HOST_FDS (2 + BR_CG_CTLS)
unsigned br_host_fds(const struct br_host *h, int *fds);

/* The child's side: never returns. `ctl` and `root` are inherited. */
_Noreturn void br_child_run(const struct br_host *h, struct br_box_shared *s, int ctl, int root);

/*
 * What br_box_prepare() does, into `b`, with the cgroup's random number and a slot that is free. On
 * failure nothing is left. `shared->expect` is set. With `sibling` pid 1 becomes a child of this
 * process's parent, which has to clean up after a failure.
 */
int br_box_make(struct br_host *h, struct br_box *b, unsigned slot, uint64_t id, bool sibling,
                struct br_err *err);

/* The child ended before it should: what it said, or that it said nothing. */
int br_box_child_failed(const struct br_box *b, struct br_err *err);

/* gone.c. Hold the mount namespace of a box that was just born. */
int br_mntns_hold(struct br_box *b, struct br_err *err);
/* Drop it, with its mounts; -BR_E_FAILED if somebody else still holds it. */
int br_mntns_release(struct br_box *b, struct br_err *err);

/* nets.c. Of this process, whose limit of descriptors is what it will be. */
void br_nets_init(struct br_nets *all);
/* Hold the namespaces in which this process is; none if one of the descriptors cannot be had. */
void br_net_hold(struct br_net *n);
void br_net_close(struct br_net *n);
/* Its box has ended: keep it with the others, or give it up if there is no room. */
void br_nets_end(struct br_nets *all, struct br_net *n);
/* Give all up. `wait`, half a second at most, until they are gone: how many are not, because
 * somebody else holds one. */
unsigned br_nets_remove(struct br_nets *all, bool wait);

enum { BR_NS_MNT = 1, BR_NS_NET = 3, BR_NS_UTS = 5, BR_NS_CGROUP = 6, BR_NS_COUNT = 7 };
/* The ids of the namespaces first..end-1 of a process ("self" or a pid, and its pidfd or -1). */
int br_measure_ns(const char *who, int pidfd, unsigned first, unsigned end, uint64_t ns[7],
                  struct br_err *err);
/* A descriptor of the namespace; -1 before Linux 6.11. */
int br_measure_open_ns(int pidfd, unsigned which);
/* An opened uid_map or gid_map, which has one line. */
int br_measure_map(int fd, const char *file, char dst[64], struct br_err *err);
/* Namespaces that pid 1 was born in: before it becomes another user. */
int br_measure_birth(struct br_box *b, struct br_err *err);
/* It is in its cgroup, in every hierarchy, and the first to go when memory is short. */
int br_measure_place(struct br_box *b, struct br_err *err);
/* What the launcher itself is under. */
int br_measure_self(struct br_host *h, struct br_err *err);
/* Id maps and limits, once they are set. */
int br_measure_limits(struct br_box *b, struct br_err *err);
/* Its mounts, when it can make no more. */
int br_measure_mounts(struct br_box *b, struct br_err *err);
/*
 * What only itself could still change, and does not: it is our own code, and has nothing left to do
 * but to install its filter and to execute. So this is measured, and compared, meanwhile.
 */
int br_measure_settled(struct br_box *b, struct br_err *err);
/* The rest, when it has executed: in its final state, before anybody can ask it to do something. */
int br_measure_final(struct br_box *b, struct br_err *err);
/* Refuse what differs from the plan: what was measured before it executed, */
int br_measure_check_settled(struct br_box *b, const struct br_plan *plan, struct br_err *err);
/* and after; the workspace's names, which others can change, last. */
int br_measure_check(struct br_box *b, const struct br_plan *plan, struct br_err *err);
/* The isolation receipt, a JSON object. */
int br_receipt_write(struct br_buf *out, const struct br_box *b, const struct br_plan *plan,
                     struct br_err *err);

/* ---- image.c ---- */

/* The root that the next box gets. */
int br_host_root(const struct br_host *h);
/* Has the box the root of the plan's image, as it is now? */
bool br_image_fits(const struct br_box *b, const struct br_plan *plan);
/* Is pid 1 in the root that was planned? */
int br_image_measure(const struct br_box *b, int proc, struct br_err *err);
/* The receipt's "image" object. */
void br_image_json(const struct br_box *b, struct br_buf *out);

/* The "seccompFilter" object of plan and receipt. */
void br_host_filter_json(const struct br_host *h, struct br_buf *out);

/* ---- uid.c ---- */

/* What br_uid_leave() puts back. */
struct br_uid_before {
    bool entered;
    int dumpable, on_death;
    pid_t parent;
    struct __user_cap_data_struct caps[2];
};
/* h->box_uid: of the reserved range, one that no other launcher has. */
void br_uid_pick(struct br_host *h);
/*
 * As root: be the sandboxes' uid, with all capabilities, while a user namespace is made, which so
 * belongs to it. -1 and errno: not so; br_uid_leave() is called in any case. Single-threaded.
 */
int br_uid_enter(const struct br_host *h, struct br_uid_before *b);
void br_uid_leave(const struct br_uid_before *b);

/* ---- identity.c ---- */

/* "dedicated", "workspace-owner" or "operator" (an ordinary user's launcher). */
const char *br_who_name(const struct br_who *w);
/* What the plan means on this host. -BR_E_INVALID_WORKSPACE: it would be root. */
int br_who_plan(struct br_who *w, const struct br_host *h, const struct br_plan *plan,
                const struct stat *ws, struct br_err *err);
/* What br_who_plan() will say of uid and gid, if that can be told without the workspace. */
bool br_who_expect(struct br_who *w, const struct br_host *h, const struct br_expect *e);
/* Write the id maps of the box's user namespace, and read them back into *m. */
int br_who_map(const struct br_who *w, pid_t pid, struct br_measured *m, struct br_err *err);
/* Leave the operator's session key ring; once per launcher. */
int br_who_leave_keyring(struct br_err *err);
/* Ahead of time: a user namespace for idmapped mounts. 0 if it is there. */
int br_idmap_make(struct br_idmap *m, struct br_err *err);
/* The namespace that maps the owner of everything on a lease's disk to the sandbox. The host's. */
int br_idmap_leases(struct br_host *h, const struct br_who *w, struct br_err *err);
void br_idmap_close(struct br_idmap *m);
/* A detached clone of the mount at fd with these attributes, its owner mapped as planned. An fd of
 * the caller; -BR_E_REQUIREMENT_MISSING names the file system that cannot. */
int br_who_clone_mount(struct br_host *h, const struct br_who *w, int fd, uint64_t set,
                       unsigned recursive, const char *what, struct br_err *err);
/* All of it as a trial, with nothing attached anywhere; *w is what it will be. */
int br_who_try(struct br_host *h, const struct br_plan *plan, int ws, struct br_who *w,
               struct br_err *err);
/* Is what was measured what was planned? */
int br_who_check(const struct br_who *w, const struct br_measured *m, struct br_err *err);
/* The receipt's "identity" object. */
void br_who_json(const struct br_who *w, struct br_buf *out);
/* The mounts of a sandbox as the plan says (wants.c). */
void br_wants_of(struct br_mount_wants *w, const struct br_box *b, const struct br_plan *plan);

/* The n-th path below the root that is masked, if the kernel has it; NULL at the end. At most 64.
 */
const char *br_mask_path(unsigned n);
bool br_mask_is_dir(unsigned n);
/* What masks are made of, in the prepared root. */
const char *br_mask_source(bool dir);

/* Landlock. The ABI of this kernel; 0: none. */
int br_landlock_abi(void);
/* -BR_E_REQUIREMENT_MISSING for a plan that requires what this host does not have. */
int br_landlock_require(const struct br_host *h, const struct br_plan *plan, struct br_err *err);
/* In the child: a descriptor of the rules that every sandbox has. */
int br_landlock_rules(int abi, struct br_err *err);
/* And those of the plan, with the launcher's descriptors. */
int br_landlock_allow(int abi, int rules, const struct br_box_shared *s, const int *fds,
                      struct br_err *err);
/* In the child, after no_new_privs. */
int br_landlock_apply(int rules, struct br_err *err);

#endif
