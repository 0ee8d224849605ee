/*
 * Landlock, a second lock on what the mounts already say: writing, creating, removing and renaming
 * only below /tmp, the home directory, /dev and the allowed paths; reading and executing only below
 * the sandbox's own root; no signal to, and no abstract socket of, anybody outside of it. Every
 * right over files that the kernel knows is handled. Ports are not: a rule cannot say "all", and
 * the network namespace has no other network than loopback.
 *
 * The child makes the rules while it has the launcher's descriptors, so that they hold for the very
 * mounts, and is restricted by them right before its filter.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

/* Newer than the headers that this is built with; the numbers are the kernel's for ever. */
#define FS_REFER (1ULL << 13)        /* ABI 2 */
#define FS_TRUNCATE (1ULL << 14)     /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15)    /* ABI 5 */
#define FS_RESOLVE_UNIX (1ULL << 16) /* ABI 9: connect to sockets that were made outside */
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0) /* ABI 6 */
#define SCOPE_SIGNAL (1ULL << 1)

#define READ_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FILE_RIGHTS (LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE)
#define TREE_RIGHTS                                                                                \
    (FILE_RIGHTS | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |    \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | \
     LANDLOCK_ACCESS_FS_MAKE_SYM | FS_REFER)

/* struct landlock_ruleset_attr of ABI 6 and later; before, less of it is passed. */
struct ruleset_attr {
    uint64_t fs, net, scoped;
};

int br_landlock_abi(void)
{
    int abi =
        br_sys_landlock(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION, 0);
    return abi < 0 ? 0 : abi;
}

int br_landlock_require(const struct br_host *h, const struct br_plan *plan, struct br_err *err)
{
    if (h->landlock_abi > 0 || (plan->flags & BR_PLAN_NO_LANDLOCK))
        return 0;
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "the profile requires Landlock, which this kernel does not have or has not "
                      "enabled; nothing was started. Boot with lsm=landlock,... (a kernel with "
                      "CONFIG_SECURITY_LANDLOCK), or use the profile run-nolandlock-v1");
}

/* Of these rights, those that the kernel knows. */
static uint64_t known(int abi, uint64_t rights)
{
    static const struct {
        int abi;
        uint64_t right;
    } since[] = {{2, FS_REFER}, {3, FS_TRUNCATE}, {5, FS_IOCTL_DEV}, {9, FS_RESOLVE_UNIX}};
    for (unsigned i = 0; i < BR_ARRAY_LEN(since); i++)
        if (abi < since[i].abi)
            rights &= ~since[i].right;
    return rights;
}

static int allow_fd(int ruleset, int fd, uint64_t rights)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    return br_sys_landlock(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH,
                           (long)(uintptr_t)&rule, 0);
}

static int allow(int ruleset, const char *path, uint64_t rights)
{
    BR_CLEANUP_FD int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -1 : allow_fd(ruleset, fd, rights);
}

static int rules_failed(struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "the rules of Landlock could not be made; nothing was started");
}

int br_landlock_rules(int abi, struct br_err *err)
{
    uint64_t tree = known(abi, TREE_RIGHTS);
    struct ruleset_attr attr = {
        .fs = known(abi, READ_RIGHTS | TREE_RIGHTS | FS_IOCTL_DEV | FS_RESOLVE_UNIX),
        .scoped = abi < 6 ? 0 : SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL,
    };
    size_t size = abi < 4 ? sizeof(attr.fs) : abi < 6 ? 2 * sizeof(attr.fs) : sizeof(attr);
    BR_CLEANUP_FD int rules =
        br_sys_landlock(SYS_landlock_create_ruleset, (long)(uintptr_t)&attr, (long)size, 0, 0);
    bool ok = rules >= 0 && allow(rules, "/", READ_RIGHTS) == 0 &&
              allow(rules, "/tmp", tree) == 0 && allow(rules, BR_BOX_HOME, tree) == 0 &&
              allow(rules, "/dev", known(abi, FILE_RIGHTS | FS_IOCTL_DEV)) == 0;
    return ok ? br_steal_fd(&rules) : rules_failed(err);
}

int br_landlock_allow(int abi, int rules, const struct br_box_shared *s, const int *fds,
                      struct br_err *err)
{
    uint64_t tree = known(abi, TREE_RIGHTS), file = known(abi, FILE_RIGHTS);
    bool ok = true;
    for (uint32_t i = 0; ok && i < s->nallowed; i++)
        ok = allow_fd(rules, fds[BR_BOX_FD_ALLOWED + i], s->allowed[i].dir ? tree : file) == 0;
    for (int i = 0; ok && i < __builtin_popcount(s->disks); i++)
        ok = allow_fd(rules, fds[BR_BOX_FD_ALLOWED + s->nallowed + (unsigned)i], tree) == 0;
    /* made once, by pid 1; nobody can remove them and put others in their place */
    if (ok && s->flags & BR_BOX_SOCKETS)
        ok = allow(rules, BR_BOX_BROKER, LANDLOCK_ACCESS_FS_MAKE_SOCK) == 0;
    return ok ? 0 : rules_failed(err);
}

/*
 * The kernel does not tell what a process's rules are. A FIFO that everybody may write, in the
 * read-only root (which does not count for FIFOs): nothing but Landlock refuses to open it.
 */
static bool refuses(void)
{
    BR_CLEANUP_FD int fd = open("/" BR_ROOTFS_LOCKED, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 && errno == EACCES;
}

int br_landlock_apply(int rules, struct br_err *err)
{
    if (br_sys_landlock(SYS_landlock_restrict_self, rules, 0, 0, 0) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "Landlock could not be applied; nothing was started");
    if (!refuses())
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "Landlock was applied, and does not refuse what it must; nothing was "
                          "started");
    return 0;
}
