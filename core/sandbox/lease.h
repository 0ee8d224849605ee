/*
 * core/sandbox, private: leases, the directories with an enforced quota of bytes and inodes that a
 * sandbox gets: a tmpfs, or an ext4 image on a loop device below the lease root (`leases/` of the
 * state directory). The launcher makes each as a mount that lies nowhere, hands it to the child,
 * reads the quota back from the kernel, and after the end verifies that nothing is left.
 */
#ifndef BR_SANDBOX_LEASE_H
#define BR_SANDBOX_LEASE_H

#include "base/base.h"
#include "wire/types.h"

struct br_host;
struct br_who;
struct br_box_shared;

/* What the kernel says of a mounted lease. */
struct br_lease_stat {
    uint64_t bytes, free_bytes; /* f_blocks, f_bavail, in bytes */
    uint64_t inodes, free_inodes;
    uint64_t backing_bytes; /* ext4: size of the image; tmpfs: 0 */
    bool nosuid, nodev, noexec;
};

struct br_disk_lease {
    struct br_quota quota; /* as planned; kind BR_QUOTA_NONE: there is none, all else is unset */
    bool noexec;
    uint64_t inodes;      /* that its file system has: ext4 rounds down to whole blocks of inodes */
    unsigned uid, gid;    /* outside: who its root must belong to */
    bool unnamed;         /* ext4: no name leads to the image */
    char keep[BR_ID_MAX]; /* ext4: the workspace's, which stays if it was changed; else "" */
    int root;             /* then the lease root; owned */
    int base;             /* and what was copied, as the child writes it; owned */
    uint64_t copied_ns;   /* when that was; 0: it did not come to its end */
    int mount;            /* O_PATH of its root; owned */
    int image;            /* ext4: the image; owned */
    bool read_only;       /* ext4: nothing is written to it */
    int loop;             /* ext4: number of the loop device while attached, else -1 */
    struct br_lease_stat stat;
};

struct br_leases {
    struct br_disk_lease disks[BR_DISKS];
};

/* How many bytes and files a workspace has that is copied into a lease. */
struct br_copied {
    uint64_t files, dirs, links; /* regular files, directories, symbolic links */
    uint64_t bytes;              /* allocated in the lease, in blocks of 4 KiB */
    uint64_t left_out;           /* sockets, FIFOs, devices, and what is mounted in it */
    uint64_t done_ns;            /* when a recorded copy was complete: CLOCK_REALTIME; else 0 */
};

/* ---- the launcher's side ---- */

/*
 * Is a backend for every quota of the plan here? Starts and keeps nothing.
 * -BR_E_REQUIREMENT_MISSING names what is not there, and the profile that does without;
 * -BR_E_LIMIT_EXCEEDED: tmpfs leases that the plan's memory limit could never hold.
 */
int br_leases_possible(const struct br_host *h, const struct br_plan *plan, struct br_err *err);

/* Nothing is leased; br_leases_close() is legal. */
void br_leases_init(struct br_leases *ls);
/*
 * Make and mount every lease of the plan, for the uid and gid of `who`, and compare it with its
 * quota. On failure what was made is still in `ls`: close it.
 */
int br_leases_open(struct br_leases *ls, struct br_host *h, const struct br_plan *plan,
                   const struct br_who *who, struct br_err *err);
/* Duplicates of the mounts, for the child, in the order of enum br_disk, and behind them the record
 * of what is copied, if there is to be one; says in s->disks and s->based which. Returns how many;
 * -1 and errno on failure. */
int br_leases_give(const struct br_leases *ls, struct br_box_shared *s, int fds[BR_DISKS + 1]);
/* When the child has executed: is each of them what is mounted at its place, with the planned
 * flags and quota? `rebound`: through a bind of it, as bubblewrap makes. -BR_E_REQUIREMENT_MISSING
 * naming what differs. */
int br_leases_measure(struct br_leases *ls, pid_t pid, bool rebound, struct br_err *err);
/* Before anything runs in the box: whatever it changes is later than the copy, by the clock that
 * file systems have. */
void br_leases_settle(struct br_leases *ls, const struct br_box_shared *s);
/* Append the JSON array of the receipt. */
void br_leases_receipt(struct br_buf *out, const struct br_leases *ls, const struct br_copied *c);
/*
 * After the last process of the box is gone: unmount, and verify that each loop device has let go
 * of its image. 0, or -BR_E_FAILED naming what is left. Idempotent.
 */
int br_leases_close(struct br_leases *ls, struct br_err *err);

/* Remove what launchers that no longer live left in the lease root. Returns how many files. */
unsigned br_leases_sweep(const struct br_host *h);

/*
 * For `bridle doctor`: make, measure and remove a small lease. 0 with `detail` for people, or
 * -BR_E_REQUIREMENT_MISSING with cause and fix in err->text. Needs no state directory.
 */
int br_lease_probe_ext4(const struct br_host *h, char detail[256], struct br_err *err);
int br_lease_probe_tmpfs(const struct br_host *h, char detail[256], struct br_err *err);

/* ---- the child's side ---- */

/*
 * Attach the leases that s->disks names; fds as from br_leases_give(). With a workspace lease
 * the tree of `source` (a mount of its own) is copied into it first, and it becomes the working
 * directory. -BR_E_LIMIT_EXCEEDED if it does not fit, naming needed and leased.
 */
int br_leases_attach(struct br_box_shared *s, int source, const int *fds, struct br_err *err);

#endif
