/*
 * Whose uid a sandbox has outside, and how the workspace's files become its own: a launcher that is
 * root gives it a uid that owns nothing on this host, and mounts the workspace with the owner's ids
 * mapped to it (an idmapped mount). What others own there appears inside as the overflow id and
 * cannot be written. Called by box.c and resolve.c. Trusts the kernel; the workspace is hostile.
 * See docs/decisions/0014.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"
#include "sandbox/weak.h"

const char *br_who_name(const struct br_who *w)
{
    static const char *const names[] = {[BR_WHO_DEDICATED] = "dedicated",
                                        [BR_WHO_OWNER] = "workspace-owner",
                                        [BR_WHO_USER] = "operator"};
    return names[w->kind];
}

int br_who_plan(struct br_who *w, const struct br_host *h, const struct br_plan *plan,
                const struct stat *ws, struct br_err *err)
{
    bool bind = plan->workspace == BR_WORKSPACE_BIND;
    bool owner = plan->identity == BR_IDENTITY_OWNER;
    *w = (struct br_who){.disk_uid = ws->st_uid, .disk_gid = ws->st_gid};
    if (h->uid != 0) {
        w->kind = BR_WHO_USER;
        w->uid = h->uid;
        w->gid = h->gid;
        return 0;
    }
    /* even through an idmapped mount: what it makes would be root's on disk */
    if ((bind || owner) && (ws->st_uid == 0 || ws->st_gid == 0))
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the workspace is owned by root (uid %u, gid %u), and the sandbox would "
                          "work in it as root of this host; nothing was started. Give it to an "
                          "ordinary user: chown -R USER:GROUP WORKSPACE",
                          (unsigned)ws->st_uid, (unsigned)ws->st_gid);
    w->kind = owner ? BR_WHO_OWNER : BR_WHO_DEDICATED;
    w->uid = owner ? ws->st_uid : h->box_uid;
    w->gid = owner ? ws->st_gid : h->box_uid;
    w->idmapped = !owner && (bind || plan->workspace == BR_WORKSPACE_LEASE);
    return 0;
}

bool br_who_expect(struct br_who *w, const struct br_host *h, const struct br_expect *e)
{
    bool root = h->uid == 0;
    if (root && e->identity != BR_IDENTITY_DEDICATED)
        return false; /* whoever owns the workspace */
    *w = (struct br_who){.kind = root ? BR_WHO_DEDICATED : BR_WHO_USER,
                         .uid = root ? h->box_uid : h->uid,
                         .gid = root ? h->box_uid : h->gid};
    return true;
}

static int not_mapped(const struct br_who *w, struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the sandbox's user could not be mapped to uid %u; nothing was "
                        "started. As root this needs CAP_SETUID and CAP_SETGID",
                        w->uid);
}

/* Through one descriptor: what the kernel then says the map is, is measured. */
static int write_map(const struct br_who *w, pid_t pid, const char *file, unsigned outside,
                     char measured[64], struct br_err *err)
{
    char path[64], text[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    snprintf(text, sizeof(text), "%u %u 1", BR_BOX_UID, outside);
    BR_CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 || br_sys_write_map(fd, text) < 0 ? not_mapped(w, err)
                                                    : br_measure_map(fd, file, measured, err);
}

int br_who_map(const struct br_who *w, pid_t pid, struct br_measured *m, struct br_err *err)
{
    int r = write_map(w, pid, "uid_map", w->uid, m->uid_map, err);
    if (r == 0 && w->kind == BR_WHO_USER && br_sys_idmap(pid, "setgroups", "deny") < 0)
        r = not_mapped(w, err);
    return r < 0 ? r : write_map(w, pid, "gid_map", w->gid, m->gid_map, err);
}

/*
 * Sandboxes inherit the launcher's session key ring, and the filter denies them every use of it. It
 * shall not be the operator's all the same. A kernel without key rings has none to inherit; a
 * container's filter that refuses the launcher's call refuses them as well.
 */
int br_who_leave_keyring(struct br_err *err)
{
    long serial = br_sys_new_keyring();
    if (serial == 0) /* no key ring has this one */
        errno = ECANCELED;
    if (serial <= 0 && errno != ENOSYS && errno != EPERM)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the operator's session key ring could not be left; nothing was "
                            "started. See kernel.keys.maxkeys, or /proc/key-users");
    return 0;
}

/* ---- the user namespace that describes the mapping of a mount ---- */

void br_idmap_close(struct br_idmap *m)
{
    br_close(&m->ns);
    br_close(&m->uid_map);
    br_close(&m->gid_map);
    m->mapped = false;
}

static int open_of(pid_t pid, const char *file, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    return open(path, flags | O_CLOEXEC);
}

/*
 * A user namespace without a process in it and without a mapping yet: descriptors keep it. The
 * files of its mapping belong to the namespace, not to the process through which they were opened.
 */
int br_idmap_make(struct br_idmap *m, struct br_err *err)
{
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    int gate[2], status = 0;
    if (m->ns >= 0)
        return 0;
    if (pipe2(gate, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_FAILED, "no pipe for a user namespace");
    long pid = br_sys_clone3(&args, sizeof(args));
    if (pid == 0) {
        char byte;
        (void)close(gate[1]);
        (void)!read(gate[0], &byte, 1);
        _exit(0);
    }
    int saved = errno;
    br_close(&gate[0]);
    if (pid > 0) {
        m->ns = open_of((pid_t)pid, "ns/user", O_RDONLY);
        m->uid_map = open_of((pid_t)pid, "uid_map", O_WRONLY);
        m->gid_map = open_of((pid_t)pid, "gid_map", O_WRONLY);
        saved = errno;
    }
    br_close(&gate[1]);
    while (pid > 0 && waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)
        ;
    errno = saved;
    if (m->ns >= 0 && m->uid_map >= 0 && m->gid_map >= 0)
        return 0;
    br_idmap_close(m);
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "a user namespace for the workspace's mount could not be made; nothing was "
                        "started. As root: sysctl -w user.max_user_namespaces=15000");
}

/* The namespace that maps w's owner to w, made ahead or kept from the sandbox before. The host's.
 */
static int idmap_for(struct br_idmap *m, const struct br_who *w, struct br_err *err)
{
    char uids[64], gids[64];
    if (m->mapped && m->disk_uid == w->disk_uid && m->disk_gid == w->disk_gid && m->uid == w->uid &&
        m->gid == w->gid)
        return m->ns;
    if (m->mapped)
        br_idmap_close(m);
    int r = br_idmap_make(m, err);
    if (r < 0)
        return r;
    snprintf(uids, sizeof(uids), "%u %u 1", w->disk_uid, w->uid);
    snprintf(gids, sizeof(gids), "%u %u 1", w->disk_gid, w->gid);
    if (br_sys_write_map(m->uid_map, uids) < 0 || br_sys_write_map(m->gid_map, gids) < 0) {
        (void)br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                           "the owner of a mount (uid %u, gid %u) could not be mapped; "
                           "nothing was started. As root this needs CAP_SETUID and CAP_SETGID",
                           w->disk_uid, w->disk_gid);
        br_idmap_close(m);
        return -BR_E_REQUIREMENT_MISSING;
    }
    m->mapped = true;
    m->disk_uid = w->disk_uid;
    m->disk_gid = w->disk_gid;
    m->uid = w->uid;
    m->gid = w->gid;
    return m->ns;
}

int br_idmap_leases(struct br_host *h, const struct br_who *w, struct br_err *err)
{
    struct br_who lease = {
        .disk_uid = BR_BOX_UID, .disk_gid = BR_BOX_UID, .uid = w->uid, .gid = w->gid};
    return idmap_for(&h->lease_map, &lease, err);
}

/* ---- mounts ---- */

/* The type of the file system that `fd` is on; "?" if /proc does not say. */
static void fs_type(int fd, char dst[64])
{
    struct statx st;
    struct br_mounts m;
    snprintf(dst, 64, "?");
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
        return;
    if (br_mounts_read(&m, "self", NULL) == 0)
        for (unsigned i = 0; i < m.n; i++)
            if (m.list[i].id == st.stx_mnt_id)
                snprintf(dst, 64, "%s", m.list[i].type);
    br_mounts_free(&m);
}

static int not_mappable(int fd, struct br_err *err)
{
    char type[64];
    int e = errno;
    fs_type(fd, type);
    errno = e;
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the workspace, or a mount below it, is on a file system without idmapped "
                        "mounts (the workspace's type is '%s'), so the sandbox cannot have a uid "
                        "of its own; nothing was started. Use the profile run-owner-v1, in which "
                        "it has the uid of the workspace's owner",
                        type);
}

/* Does the owner of `source` appear through `tree` as planned? */
static bool appears(const struct br_who *w, int source, int tree)
{
    struct stat disk, seen;
    if (fstat(source, &disk) < 0 || fstat(tree, &seen) < 0)
        return false;
    return (disk.st_uid != w->disk_uid || seen.st_uid == w->uid) &&
           (disk.st_gid != w->disk_gid || seen.st_gid == w->gid) &&
           (disk.st_uid == w->disk_uid || seen.st_uid != w->uid);
}

int br_who_clone_mount(struct br_host *h, const struct br_who *w, int fd, uint64_t set,
                       unsigned recursive, const char *what, struct br_err *err)
{
    struct mount_attr attr = {.attr_set =
                                  set & ~((br_weak(RW) ? (uint64_t)MOUNT_ATTR_RDONLY : 0) |
                                          (br_weak(SUID) ? (uint64_t)MOUNT_ATTR_NOSUID : 0)),
                              .propagation = br_weak(SHARED) ? 0 : MS_PRIVATE};
    if (w->idmapped) {
        int ns = idmap_for(&h->idmap, w, err);
        if (ns < 0)
            return ns;
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)ns;
    }
    BR_CLEANUP_FD int tree = br_sys_open_tree(fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH | recursive);
    if (tree >= 0 && br_sys_mount_setattr(tree, "", AT_EMPTY_PATH | recursive, &attr) == 0) {
        if (!w->idmapped || appears(w, fd, tree))
            return br_steal_fd(&tree);
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the owner of '%.512s' is not mapped as it was planned; nothing was "
                          "started",
                          what);
    }
    if (tree >= 0 && w->idmapped && (errno == EINVAL || errno == EPERM || errno == EOPNOTSUPP))
        return not_mappable(fd, err);
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "'%.512s' could not be mounted; nothing was started", what);
}

int br_who_try(struct br_host *h, const struct br_plan *plan, int ws, struct br_who *w,
               struct br_err *err)
{
    struct stat st;
    if (fstat(ws, &st) < 0 || !S_ISDIR(st.st_mode))
        return br_err_set(err, BR_E_INVALID_WORKSPACE,
                          "the workspace is not a directory; nothing was started");
    int r = br_who_plan(w, h, plan, &st, err);
    if (r < 0 || !w->idmapped)
        return r;
    int tree = br_who_clone_mount(h, w, ws, MOUNT_ATTR_RDONLY, AT_RECURSIVE, "the workspace", err);
    if (tree < 0)
        return tree;
    /* to take a mount apart waits for a grace period, which a launch need not: br_host_idle() */
    br_close(&h->trial);
    h->trial = tree;
    return 0;
}

/* ---- measuring ---- */

int br_who_check(const struct br_who *w, const struct br_measured *m, struct br_err *err)
{
    char uids[64], gids[64];
    snprintf(uids, sizeof(uids), "%u %u 1", BR_BOX_UID, w->uid);
    snprintf(gids, sizeof(gids), "%u %u 1", BR_BOX_UID, w->gid);
    if (strcmp(m->uid_map, uids) != 0 || strcmp(m->gid_map, gids) != 0)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox was measured and is not what was planned: it maps uid '%s' "
                          "and gid '%s', not '%s' and '%s'; nothing was started",
                          m->uid_map, m->gid_map, uids, gids);
    for (unsigned i = 0; i < 4; i++)
        if (m->uids[i] != w->uid || m->gids[i] != w->gid)
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "the sandbox was measured and is not what was planned: it runs as "
                              "uid %u, gid %u, not as %u, %u; nothing was started",
                              m->uids[i], m->gids[i], w->uid, w->gid);
    if (m->groups && w->kind != BR_WHO_USER)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox was measured and is not what was planned: it has "
                          "supplementary groups; nothing was started");
    return 0;
}

void br_who_json(const struct br_who *w, struct br_buf *out)
{
    br_buf_printf(out, "{\"kind\":\"%s\",\"uid\":%u,\"gid\":%u,\"idmapped\":%s}", br_who_name(w),
                  w->uid, w->gid, w->idmapped ? "true" : "false");
}
