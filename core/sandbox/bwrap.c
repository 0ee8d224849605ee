/*
 * The launcher's side of a sandbox that bubblewrap makes: its command line, waiting for pid 1, and
 * the end. Called by box.c, resolve.c and render.c. bubblewrap is trusted as far as it is measured:
 * what it made is read back and compared like a native sandbox.
 */
#include "sandbox/bwrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/child_priv.h"
#include "sandbox/rootfs.h"

#define EXEC_DEADLINE_US 20000000u
#define END_PATIENCE_MS 2000

static void arg(struct br_bwrap_argv *a, const char *text)
{
    if (a->n + 1 >= BR_BWRAP_ARGS_MAX)
        a->full = true;
    else
        a->v[a->n++] = text;
}

/* A copy of two texts as one. */
static const char *joined(struct br_bwrap_argv *a, const char *one, const char *two, size_t n)
{
    size_t len = strlen(one);
    char *at = a->text + a->used;
    if (a->used + len + n + 1 > sizeof(a->text)) {
        a->full = true;
        return "";
    }
    memcpy(at, one, len);
    memcpy(at + len, two, n);
    at[len + n] = 0;
    a->used += len + n + 1;
    return at;
}

static void put_number(struct br_bwrap_argv *a, const char *option, unsigned number)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    arg(a, option);
    arg(a, joined(a, "", text, strlen(text)));
}

static void put_masks(struct br_bwrap_argv *a, uint64_t masked)
{
    const char *path;
    for (unsigned i = 0; (path = br_mask_path(i)); i++) {
        if (!(masked >> i & 1))
            continue;
        arg(a, "--dev-bind"); /* which changes nothing: the source is read-only */
        arg(a, br_mask_is_dir(i) ? BR_ROOTFS_POINT "/" BR_ROOTFS_EMPTY_DIR
                                 : BR_ROOTFS_POINT "/" BR_ROOTFS_EMPTY_FILE);
        arg(a, joined(a, "/", path, strlen(path)));
    }
}

int br_bwrap_argv(struct br_bwrap_argv *a, uint64_t masked, uint32_t flags, struct br_err *err)
{
    char *init[BR_BOX_ARGS_MAX];
    static const char *const first[] = {
        BR_BWRAP_PROGRAM, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net",
        "--unshare-uts", "--unshare-cgroup", "--die-with-parent", "--new-session", "--as-pid-1",
        "--cap-drop", "ALL", "--hostname", BR_BOX_HOSTNAME,
        /* the root as it was prepared, with the mounts of the plan in it; "dev", because the other
         * kinds of bind close the device files */
        "--dev-bind", BR_ROOTFS_POINT, "/", "--proc", "/proc"};
    static const char *const last[] = {"--remount-ro",   "/proc", "--chdir",
                                       BR_BOX_WORKSPACE, "--",    BR_BOX_INIT};
    a->n = 0;
    a->used = 0;
    a->full = false;
    for (unsigned i = 0; i < BR_ARRAY_LEN(first); i++)
        arg(a, first[i]);
    put_masks(a, masked);
    put_number(a, "--uid", BR_BOX_UID);
    put_number(a, "--gid", BR_BOX_UID);
    put_number(a, "--info-fd", BR_BWRAP_FD_INFO);
    put_number(a, "--seccomp", BR_BWRAP_FD_FILTER);
    arg(a, "--clearenv");
    for (unsigned i = 0; br_child_env[i]; i++) {
        const char *eq = strchr(br_child_env[i], '=');
        arg(a, "--setenv");
        arg(a, joined(a, "", br_child_env[i], (size_t)(eq - br_child_env[i])));
        arg(a, eq + 1);
    }
    for (unsigned i = 0; i < BR_ARRAY_LEN(last); i++)
        arg(a, last[i]);
    br_child_init_argv(flags, init);
    for (unsigned i = 1; init[i]; i++)
        arg(a, init[i]);
    a->v[a->n] = NULL;
    return a->full ? br_err_set(err, BR_E_INTERNAL, "bubblewrap's command line is too long") : 0;
}

int br_bwrap_possible(const struct br_host *h, const struct br_plan *plan, struct br_err *err)
{
    struct stat st;
    /* in the user namespace of an ordinary user's launcher everybody else is this one */
    uid_t others = h->uid == 0 ? 0 : 65534;
    if (!(plan->flags & BR_PLAN_NO_LANDLOCK))
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the backend 'bwrap' cannot express Landlock (who is under it may not "
                          "mount, and bubblewrap mounts), which the profile requires; nothing was "
                          "started. Use the backend 'native', or a profile with landlock = 'none'");
    if (stat(BR_BWRAP_PROGRAM, &st) < 0)
        return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                            "the backend 'bwrap' needs '" BR_BWRAP_PROGRAM
                            "'; nothing was started. apt-get install bubblewrap");
    if (!S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != others) || st.st_mode & 022)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "'" BR_BWRAP_PROGRAM "' is not a program that only root can change; "
                          "nothing was started. Reinstall the package bubblewrap");
    return 0;
}

/* ---- pid 1 ---- */

/* What bubblewrap says of itself, to the end; 0: nothing that names a pid. */
static pid_t read_info(int fd)
{
    char text[512];
    size_t at = 0;
    for (ssize_t n = 1; n > 0 && at<sizeof(text) - 1; at += n> 0 ? (size_t)n : 0) {
        do {
            n = read(fd, text + at, sizeof(text) - 1 - at); /* SO_RCVTIMEO bounds it */
        } while (n < 0 && errno == EINTR);
    }
    text[at] = 0;
    const char *pid = strstr(text, "\"child-pid\":");
    return pid ? (pid_t)strtol(pid + strlen("\"child-pid\":"), NULL, 10) : 0;
}

/* What is named must be its own: it is killed when something fails. */
static bool is_child(pid_t pid, pid_t parent)
{
    char path[32], text[512];
    int of = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    (void)br_read_text(AT_FDCWD, path, text, sizeof(text));
    const char *behind = strrchr(text, ')'); /* "pid (name) state parent" */
    return behind && sscanf(behind, ") %*c %d", &of) == 1 && of == parent;
}

/* Has it executed bridle-init, under a filter? Both are read of one process, held by its pidfd. */
static bool executed(const struct br_box *b)
{
    char path[64];
    struct stat is, want;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)b->pid);
    return fstat(b->host->cfg.init_fd, &want) == 0 && stat(path, &is) == 0 &&
           is.st_dev == want.st_dev && is.st_ino == want.st_ino;
}

static int await_init(const struct br_box *b, struct br_err *err)
{
    uint64_t deadline = br_now_us() + EXEC_DEADLINE_US;
    struct pollfd ended = {.fd = b->pidfd, .events = POLLIN};
    while (!executed(b)) {
        if (poll(&ended, 1, 0) != 0)
            return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                              "bubblewrap could not make the sandbox; nothing was started. Try "
                              "'bridle doctor', or the backend 'native'");
        if (br_now_us() >= deadline)
            return br_err_set(err, BR_E_TIMEOUT,
                              "bubblewrap took more than %u seconds; nothing was started",
                              EXEC_DEADLINE_US / 1000000u);
        struct timespec wait = {.tv_nsec = 200000};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
    }
    return 0;
}

int br_bwrap_await(struct br_box *b, struct br_err *err)
{
    pid_t pid = read_info(b->ctl);
    if (b->shared->err.code != BR_OK)
        return br_box_child_failed(b, err);
    int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pidfd < 0 || !is_child(pid, b->child)) { /* looked at while the descriptor holds it */
        br_close(&pidfd);
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "bubblewrap could not make the sandbox; nothing was started. Try 'bridle "
                          "doctor', or the backend 'native'");
    }
    br_close(&b->pidfd);
    b->pidfd = pidfd;
    b->pid = pid;
    /* which descriptors it got is what pid 1 itself says, and the session compares: an ordinary
     * user's launcher cannot list those of a process that is not dumpable */
    int r = await_init(b, err);
    if (r < 0)
        return r;
    /* the namespaces are bubblewrap's, not those that its own process was born in */
    b->measured.uid_map[0] = b->measured.gid_map[0] = 0;
    br_close(&b->mntns);
    r = br_mntns_hold(b, err);
    if (r == 0)
        r = br_measure_birth(b, err);
    return r < 0 ? r : br_measure_limits(b, err);
}

void br_bwrap_end(const struct br_box *b)
{
    siginfo_t info;
    for (int ms = 0; ms < END_PATIENCE_MS; ms++) {
        struct timespec wait = {.tv_nsec = 1000000};
        info.si_pid = 0;
        if (waitid(P_PID, (id_t)b->child, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid)
            return;
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
    }
    (void)kill(b->child, SIGKILL); /* our child, not waited for yet: the pid is still its */
}

int br_bwrap_status(int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) > 128)
        return WEXITSTATUS(status) - 128; /* as waitpid() gives a signal */
    return status;
}
