/*
 * core/sandbox, private: what the files of the leases (lease*.c) know of each other.
 */
#ifndef BR_SANDBOX_LEASE_PRIV_H
#define BR_SANDBOX_LEASE_PRIV_H

#include <sys/stat.h>

#include "sandbox/box_priv.h"
#include "sandbox/lease.h"

/* Files of a workspace lease that stays: its image, and what was copied into it. */
#define BR_LEASE_NAME_MAX (BR_ID_MAX + 16u)
static inline void br_lease_keep_names(const char *keep, char image[BR_LEASE_NAME_MAX],
                                       char base[BR_LEASE_NAME_MAX])
{
    snprintf(image, BR_LEASE_NAME_MAX, "run-%.47s.img", keep);
    snprintf(base, BR_LEASE_NAME_MAX, "run-%.47s.base", keep);
}

/* Blocks of an ext4 image; what a file or directory occupies is rounded up to it. */
#define BR_LEASE_BLOCK 4096u
/* How long a tool of e2fsprogs may take, and a loop device to let go. */
#define BR_LEASE_TOOL_MS 60000
#define BR_LEASE_DETACH_US 3000000u

/* The lease root, checked: owned by this user, writable for nobody else. An fd, or
 * -BR_E_REQUIREMENT_MISSING without a state directory, -BR_E_INVALID_CONFIG. */
int br_lease_root_open(const struct br_host *h, struct br_err *err);
/* Mount flags that a lease always has, as MOUNT_ATTR_*. */
uint64_t br_lease_attrs(const struct br_disk_lease *d);

/* tmpfs: a mount whose root belongs to d->uid and d->gid. */
int br_lease_tmpfs(struct br_disk_lease *d, struct br_err *err);

/* ext4: is everything here that it needs? */
int br_lease_ext4_possible(const struct br_host *h, struct br_err *err);
/*
 * ext4: image, loop device, mount. `root`: the lease root; `state`: the name of a lease that
 * outlives the run, or "". On disk all belongs to BR_BOX_UID; `userns` maps that for the mount.
 */
int br_lease_ext4(struct br_disk_lease *d, int root, const char *state, int userns,
                  struct br_err *err);
/* The same on a file that exists, empty or not (the probe uses a memory file). */
int br_lease_ext4_mount(struct br_disk_lease *d, int userns, struct br_err *err);
/* Run mkfs.ext4 on a file of `bytes`: *inodes is what it should have at most, and then has. */
int br_lease_ext4_format(int fd, uint64_t bytes, uint64_t *inodes, struct br_err *err);
/* Before an image that nobody will see again is unmounted: nothing of it need be written. */
void br_lease_ext4_forget(const struct br_disk_lease *d);
/* Does the loop device still hold the image? */
bool br_lease_loop_holds(const struct br_disk_lease *d);
/* Is the loop device what it should be: all of the image, nothing else? */
int br_lease_loop_check(const struct br_disk_lease *d, struct br_err *err);

/* The files of the lease root: templates, images, state images. lease_image.c */
/* A new, empty image that no name leads to, with all its blocks reserved, and a copy of the
 * template in it. */
int br_lease_image_new(struct br_disk_lease *d, int root, struct br_err *err);
/* The same with a name, d->keep, and beside it an empty record of what will be copied. */
int br_lease_image_kept(struct br_disk_lease *d, int root, struct br_err *err);
/* That image, of a run that has ended: locked, and clean. -BR_E_NOT_FOUND, -BR_E_IN_USE. */
int br_lease_image_ended(struct br_disk_lease *d, int root, const char *run_id, struct br_err *err);
/* Is it to be found under its name, and the record beside it? */
bool br_lease_is_named(const struct br_disk_lease *d);
/* Was anything in it changed after the copy? Of what cannot be told, it is. lease_keep.c */
bool br_lease_changed(const struct br_disk_lease *d);
/* Before it is unmounted: what is not used needs no room on the host any more. */
void br_lease_trim(const struct br_disk_lease *d);
/* After that: it is on the disk, or (with `keep` false) its files are gone. */
int br_lease_keep(struct br_disk_lease *d, bool keep, struct br_err *err);
/* The image of a state lease, locked, made if there is none. */
int br_lease_image_state(struct br_disk_lease *d, int root, const char *state, struct br_err *err);

/* Run a tool of e2fsprogs by its fixed path (looked for in /usr/sbin and /sbin) on the file `fd`:
 * its exit status, or a negative code. `said` gets what it printed. */
int br_lease_tool(const char *tool, const char *const *args, int fd, char said[512],
                  struct br_err *err);
bool br_lease_has_tool(const char *tool);
/* And where. */
bool br_lease_find_tool(const char *tool, char path[64]);

/* The fields of an ext4 superblock that are checked. */
struct br_lease_super {
    uint64_t bytes;
    uint32_t inodes, per_group, groups;
    bool clean;
};
/* -1 unless it is one that br_lease_ext4_format() made. */
int br_lease_super_read(int fd, struct br_lease_super *s);

/* Copy a directory tree into an empty directory; see lease_copy.c. */
/* `base`: where what is copied is recorded (lease_base.h); -1: nowhere. */
int br_lease_copy(int source, int target, const struct br_quota *q, int base, struct br_copied *c,
                  struct br_err *err);

#endif
