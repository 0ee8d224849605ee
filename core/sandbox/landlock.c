/*
 * Landlock, a second lock on what the mounts already say: writing, creating, removing and renaming
 * only below /tmp, the home directory, /dev and the allowed paths. Applied by the child right
 * before its filter; kernels without Landlock run without it (the mounts are the requirement).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

#define FILE_RIGHTS (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)
#define TREE_RIGHTS                                                                                \
    (FILE_RIGHTS | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |    \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | \
     LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER)

int br_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi < 0 ? 0 : (int)abi;
}

static uint64_t known(int abi)
{
    uint64_t rights = TREE_RIGHTS;
    if (abi < 2)
        rights &= ~LANDLOCK_ACCESS_FS_REFER;
    if (abi < 3)
        rights &= ~LANDLOCK_ACCESS_FS_TRUNCATE;
    return rights;
}

static int allow(int ruleset, int dirfd, const char *path, uint64_t rights)
{
    BR_CLEANUP_FD int fd = dirfd >= 0 ? br_open_beneath(dirfd, path, O_PATH, 0)
                                      : open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    if (fd < 0)
        return -1;
    return br_sys_landlock(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH,
                           (long)(uintptr_t)&rule, 0);
}

int br_landlock_apply(int abi, const struct br_box_shared *s, struct br_err *err)
{
    uint64_t tree = known(abi), file = tree & FILE_RIGHTS;
    struct landlock_ruleset_attr attr = {.handled_access_fs = tree};
    BR_CLEANUP_FD int rules = br_sys_landlock(SYS_landlock_create_ruleset, (long)(uintptr_t)&attr,
                                              (long)sizeof(attr.handled_access_fs), 0, 0);
    BR_CLEANUP_FD int ws = s->nallowed ? open(BR_BOX_WORKSPACE, O_PATH | O_CLOEXEC) : -1;
    bool ok = rules >= 0 && allow(rules, -1, "/tmp", tree) == 0 &&
              allow(rules, -1, BR_BOX_HOME, tree) == 0 && allow(rules, -1, "/dev", file) == 0;
    for (uint32_t i = 0; ok && i < s->nallowed; i++)
        ok = allow(rules, ws, s->allowed[i].rel, s->allowed[i].dir ? tree : file) == 0;
    if (!ok || br_sys_landlock(SYS_landlock_restrict_self, rules, 0, 0, 0) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "Landlock could not be applied; nothing was started");
    return 0;
}
