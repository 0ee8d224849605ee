/*
 * Attacks on files. Data, and the few that are made from outside while a sandbox is launched.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"

/* ---- a racing neighbour ---- */

/* Exchanges two names without a pause until it is killed. */
static pid_t exchange(const char *dir, const char *a, const char *b)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        (void)syscall(SYS_renameat2, fd, a, fd, b, RENAME_EXCHANGE);
}

static void end_exchange(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static int link_in_workspace(struct stage *s, const char *name, const char *target)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", s->ws, name);
    return symlink(target, path) < 0 ? -1 : lchown(path, s->owner, s->owner);
}

static int setup_target(struct stage *s)
{
    stage_allow(s, "target/**");
    return stage_put(s, "target", NULL) < 0 || link_in_workspace(s, "evil", s->outside) < 0 ? -1
                                                                                            : 0;
}

#define RACES 12u
#define RACES_CONTROL 300u

/* One launch in the race: OUT_THROUGH if a mark appeared outside. */
static enum outcome race_once(struct stage *s, unsigned i, unsigned *started)
{
    pid_t pid = exchange(s->ws, "target", "evil");
    char inside[64], mark[256];
    struct exec_result r;
    int k = stage_launch(s, -1);
    end_exchange(pid);
    if (k != 0)
        return k > 0 ? OUT_BLOCKED : OUT_UNDONE;
    (*started)++;
    snprintf(inside, sizeof(inside), "leave-mark n=%u", i);
    if (stage_attack(s, inside, 5000, &r) < 0 || stage_end(s) < 0)
        return OUT_UNDONE;
    snprintf(mark, sizeof(mark), "%s/mark-%u", s->outside, i);
    return access(mark, F_OK) == 0 ? OUT_THROUGH : OUT_BLOCKED;
}

/* runc CVE-2021-30465, and its repetitions of 2025: what is mounted is not what was checked. */
static enum outcome race_mount(struct stage *s)
{
    unsigned n = s->control ? RACES_CONTROL : RACES, started = 0;
    enum outcome o = OUT_BLOCKED;
    uint64_t until = br_now_us() + 8000000u;
    unsigned i = 0;
    for (; i < n && o == OUT_BLOCKED && br_now_us() < until; i++) {
        s->plan.nsources = 0;
        o = race_once(s, i, &started);
    }
    if (o == OUT_THROUGH)
        stage_note(s, "launch %u was led to a directory outside", i);
    else if (o == OUT_BLOCKED)
        stage_note(s, "%u launches in the race: %u started with the right directory, %u refused", i,
                   started, i - started);
    return o;
}

/* Another directory in the place of the one that the plan names, between plan and launch. */
static enum outcome swap_after_plan(struct stage *s)
{
    char a[256], b[256];
    struct exec_result r;
    int k = stage_resolve(s, -1);
    if (k != 0)
        return OUT_UNDONE;
    snprintf(a, sizeof(a), "%s/target", s->ws);
    snprintf(b, sizeof(b), "%s/other", s->ws);
    if (syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0)
        return OUT_UNDONE;
    k = stage_launch(s, -1);
    if (k != 0)
        return k > 0 ? OUT_BLOCKED : OUT_UNDONE;
    if (stage_attack(s, "leave-mark n=0", 5000, &r) < 0 || stage_end(s) < 0)
        return OUT_UNDONE;
    snprintf(a, sizeof(a), "%s/target/mark-0", s->ws);
    stage_note(s, "a directory that the plan never saw became writable");
    return access(a, F_OK) == 0 ? OUT_THROUGH : OUT_UNDONE;
}

static int setup_swap(struct stage *s)
{
    stage_allow(s, "target/**");
    return stage_put(s, "target", NULL) < 0 || stage_put(s, "other", NULL) < 0 ||
                   stage_put(s, "other/precious", "x") < 0
               ? -1
               : 0;
}

/* The workspace itself exchanged for a link while the launcher opens it again. */
static enum outcome race_workspace(struct stage *s)
{
    const char *const look[] = {"/bin/sh", "-c", "test -e /workspace/secret", NULL};
    unsigned n = s->control ? RACES_CONTROL : RACES, started = 0, i = 0;
    uint64_t until = br_now_us() + 8000000u;
    enum outcome o = OUT_BLOCKED;
    BR_CLEANUP_FD int ws = open(s->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (; i < n && o == OUT_BLOCKED && br_now_us() < until; i++) {
        struct exec_result r;
        s->plan.nsources = 0;
        pid_t pid = exchange(s->dir, "ws", "evil");
        int k = stage_launch(s, ws);
        end_exchange(pid);
        if (k > 0)
            continue;
        started++;
        if (k < 0 || stage_exec(s, look, 5000, &r) < 0 || stage_end(s) < 0)
            o = OUT_UNDONE;
        else if (r.exit == 0)
            o = OUT_THROUGH;
    }
    char evil[256];
    struct stat st;
    snprintf(evil, sizeof(evil), "%s/evil", s->dir);
    if (lstat(s->ws, &st) == 0 && S_ISLNK(st.st_mode))
        (void)syscall(SYS_renameat2, AT_FDCWD, s->ws, AT_FDCWD, evil, RENAME_EXCHANGE);
    if (o == OUT_THROUGH)
        stage_note(s, "launch %u got a directory that was never given", i);
    else if (o == OUT_BLOCKED)
        stage_note(s, "%u launches in the race: %u started with the right one, %u refused", i,
                   started, i - started);
    return o;
}

static int setup_workspace_race(struct stage *s)
{
    char evil[256], out[256], exact[256];
    snprintf(evil, sizeof(evil), "%s/evil", s->dir);
    snprintf(out, sizeof(out), "%s/out", s->outside);
    snprintf(exact, sizeof(exact), "%s/exact", s->outside);
    /* everything that the plan asks for is there as well */
    return symlink(s->outside, evil) < 0 || mkdir(out, 0755) < 0 || symlink("secret", exact) < 0
               ? -1
               : 0;
}

/* ---- allowed paths that are not what they seem ---- */

static int setup_absent(struct stage *s)
{
    stage_allow(s, "absent/**");
    return 0;
}

/* Nothing may be made in the user's tree so that a mount has something to stand on. */
static enum outcome absent(struct stage *s)
{
    char path[256];
    int k = s->control ? (stage_put(s, "absent", NULL), 1) : stage_launch(s, -1);
    snprintf(path, sizeof(path), "%s/absent", s->ws);
    if (access(path, F_OK) == 0) {
        stage_note(s, "'absent' was made in the workspace");
        return OUT_THROUGH;
    }
    if (k == 0)
        return stage_end(s) < 0 ? OUT_UNDONE : OUT_THROUGH;
    return k > 0 ? OUT_BLOCKED : OUT_UNDONE;
}

static int setup_hardlinked_file(struct stage *s)
{
    char path[256];
    stage_allow(s, "linked");
    snprintf(path, sizeof(path), "%s/linked", s->ws);
    return link(s->secret, path);
}

static int setup_hardlink_inside(struct stage *s)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/out/linked", s->ws);
    return link(s->secret, path);
}

static int setup_links(struct stage *s)
{
    return link_in_workspace(s, "out/link-file", s->secret) < 0 ||
                   link_in_workspace(s, "out/link-dir", s->outside) < 0 ||
                   link_in_workspace(s, "link-dir", s->outside) < 0
               ? -1
               : 0;
}

int attack_setup_git(struct stage *s)
{
    return stage_put(s, "out/a", NULL) < 0 || stage_put(s, "out/a/lib", NULL) < 0 ||
                   stage_put(s, "out/a/lib/.git", NULL) < 0 ||
                   stage_put(s, "out/a/lib/.git/HEAD", "ref: refs/heads/main\n") < 0
               ? -1
               : 0;
}

#define RW_ALL (BR_WEAK_RW | BR_WEAK_LANDLOCK)

const struct attack attack_rows_fs[] = {
    {"fs.write-workspace", CLASS_FILESYSTEM, "write what is not an allowed path", "design",
     "a file of the workspace is written, made, renamed, removed or its metadata changed",
     "write-workspace", RW_ALL},
    {"fs.late-files", CLASS_FILESYSTEM, "files that are absent at the start and appear later",
     "bubblewrap GHSA-j2qp-rvxj-43vj; git hooks, shell and editor files",
     "a hook, .bashrc or editor file is made where the host's programs would execute it",
     "late-files", RW_ALL},
    {"fs.allowed-hook", CLASS_FILESYSTEM, "the same below an allowed path",
     "what interpreters of the host run is the operator's choice",
     "a hook is made below an allowed path", "allowed-hook", 0, A_EXPECTED | A_OPERATION,
     .control = "none is needed: it gets through"},
    {"fs.git-moved", CLASS_FILESYSTEM, "move a repository away and put another in its place",
     "git core.fsmonitor and hooks",
     "a .git below an allowed path is written or replaced, and the host's git runs what it says",
     "move-git", BR_WEAK_PATHS, .setup = attack_setup_git},
    {"fs.mounts-readonly", CLASS_FILESYSTEM, "a mount that was forgotten", "design",
     "a mount other than the allowed paths, /tmp and the home directory is writable",
     "mounts-readonly", RW_ALL},
    {"fs.mounts-alone", CLASS_FILESYSTEM, "write where Landlock is missing", "design",
     "a file of the workspace is written, made, renamed, removed or its metadata changed",
     "write-workspace", RW_ALL, .base = BR_WEAK_LANDLOCK},
    {"fs.landlock-alone", CLASS_FILESYSTEM, "write where only the mounts are in the way", "design",
     "a file is made in the workspace although the mounts are read-only", "landlock-alone", RW_ALL,
     .base = BR_WEAK_RW},
    {"fs.hardlink-out", CLASS_FILESYSTEM, "a hard link from what is read-only to what is writable",
     "Linux fs.protected_hardlinks", "a file that may not be written gets a name that may be",
     "hardlink", RW_ALL},
    {"fs.hardlink-file", CLASS_FILESYSTEM, "an allowed file that has a second name outside",
     "hard link into a writable path", "the host's file outside of the workspace is written",
     "hardlink-inside path=/workspace/linked", BR_WEAK_PATHS, A_REFUSED,
     .setup = setup_hardlinked_file},
    {"fs.hardlink-tree", CLASS_FILESYSTEM, "the same, deep in an allowed directory",
     "hard link into a writable path", "the host's file outside of the workspace is written",
     "hardlink-inside path=/workspace/out/linked", BR_WEAK_PATHS, A_REFUSED,
     .setup = setup_hardlink_inside},
    {"fs.links-out", CLASS_FILESYSTEM, "symbolic links in the workspace that lead out",
     "CVE-2024-21626, CVE-2018-15664", "a file of the host is read or written through a link",
     "through-link", 0, A_OPERATION, .setup = setup_links,
     .control = "the same links, on the host"},
    {"fs.host-file", CLASS_FILESYSTEM, "a file of the host by its name", "design",
     "it is read, through the old root, /proc/1/root or ..", "host-file", BR_WEAK_HOSTROOT},
    {"fs.mount-race", CLASS_FILESYSTEM, "exchange the mount target for a link during the launch",
     "runc CVE-2021-30465, CVE-2025-31133, CVE-2025-52565",
     "a directory outside of the workspace is mounted writable", NULL, BR_WEAK_PATHS, 0,
     .run = race_mount, .setup = setup_target},
    {"fs.swap-after-plan", CLASS_FILESYSTEM,
     "exchange an allowed directory after the plan was made", "runc CVE-2021-30465",
     "a directory that the plan never saw becomes writable", NULL, BR_WEAK_PATHS, 0,
     .run = swap_after_plan, .setup = setup_swap},
    {"fs.workspace-race", CLASS_FILESYSTEM, "exchange the workspace for a link during the launch",
     "runc CVE-2021-30465", "the launcher follows the link", NULL, BR_WEAK_PATHS, 0,
     .run = race_workspace, .setup = setup_workspace_race},
    {"fs.absent-allowed", CLASS_FILESYSTEM, "an allowed path that does not exist",
     "CVE-2021-30465; placeholder files of container runtimes",
     "something is made in the user's tree, or the launch goes on", NULL, 0, 0, .run = absent,
     .setup = setup_absent, .control = "the directory is made by hand"},
    {"fs.setuid-counts", CLASS_FILESYSTEM, "setuid programs", "design",
     "a setuid bit counts on some mount, or no_new_privs is not set", "setuid-counts",
     BR_WEAK_SUID},
    {"fs.setuid-left", CLASS_FILESYSTEM, "a setuid file left below an allowed path",
     "sudo and mail spool lore",
     "the file lies on the host with its bit, owned by the owner of the "
     "workspace",
     "setuid-left", BR_WEAK_FILTER},
    {"fs.file-capability", CLASS_FILESYSTEM, "a capability in a file", "CVE-2023-2640",
     "security.capability is set", "file-capability", 0, A_OPERATION,
     .control = "set in a user namespace in which the caller is root"},
    {"fs.device", CLASS_FILESYSTEM, "make and use a device file", "lxc, runc CVE-2016-9962",
     "a device file is made, or device files count on some mount", "make-device", 0, A_OPERATION,
     .control = "a device file is made on the host (as an ordinary user: the one that leads "
                "nowhere)"},
    {"fs.dev-is-ours", CLASS_FILESYSTEM, "a /dev with more in it, or with other devices",
     "crun CVE-2022-27650, youki CVE-2025-62161 (symlinked /dev), runc CVE-2025-52565 "
     "(/dev/console)",
     "a console, terminal, disk or kernel device exists, or a device is not what its name says",
     "dev-is-ours", 0, A_OPERATION, .control = "the same look at the host's /dev"},
    {"fs.runtime-overwrite", CLASS_FILESYSTEM, "overwrite bridle-init through /proc/1/exe",
     "runc CVE-2019-5736", "the program can be opened for writing, by its user, now or later",
     "overwrite-runtime", RW_ALL, A_COPY},
    {"fs.runtime-shebang", CLASS_FILESYSTEM, "let the runtime execute itself in a process of ours",
     "runc CVE-2019-5736", "the program can be opened for writing through /proc/PID/exe",
     "overwrite-shebang", RW_ALL | BR_WEAK_INIT, A_COPY},
    {"fs.chroot", CLASS_FILESYSTEM, "chroot, and out of it again", "chroot(2)", "chroot works",
     "chroot-escape", BR_WEAK_FILTER | BR_WEAK_CAPS},
    {NULL},
};
