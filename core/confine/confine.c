/*
 * Starts, ends and waits for a confined program; the caller's half. Called by bridle-image and, for
 * the tools of e2fsprogs, by bridle-launch; both have one thread. It trusts nothing of what the
 * program does: the report comes from pid 1 and from before the program was executed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine/priv.h"

static int missing(const char *what, struct br_err *err)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "a program that reads what nobody vouches for cannot be confined: %s; it "
                        "was not started. Use a Linux that lets you make namespaces "
                        "(user.max_user_namespaces), or do this as root",
                        what);
}

static int write_file(pid_t pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ? -1 : 0;
}

/* Inside of its user namespace everybody is who they are outside. */
static int map_ids(pid_t pid)
{
    char uid[64], gid[64];
    snprintf(uid, sizeof(uid), "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(gid, sizeof(gid), "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    return write_file(pid, "setgroups", "deny") < 0 || write_file(pid, "uid_map", uid) < 0 ||
                   write_file(pid, "gid_map", gid) < 0
               ? -1
               : 0;
}

static pid_t clone_into(uint64_t flags, int *pidfd)
{
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)pidfd, .exit_signal = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

int br_confine_start(const struct br_confine *c, struct br_confined *p, struct br_err *err)
{
    bool root = geteuid() == 0, users = !root && !c->trusted;
    uint64_t flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    int report[2], go[2];
    *p = (struct br_confined){.pid = -1, .pidfd = -1, .report = -1, .group = c->trusted && !root};
    if (!c->trusted)
        flags |= CLONE_NEWNET | (users ? CLONE_NEWUSER : 0);
    if (p->group)
        flags = 0;
    if (pipe2(report, O_CLOEXEC) < 0)
        return missing("there is no pipe", err);
    if (pipe2(go, O_CLOEXEC) < 0) {
        (void)close(report[0]);
        (void)close(report[1]);
        return missing("there is no pipe", err);
    }
    p->pid = clone_into(flags, &p->pidfd);
    if (p->pid == 0) {
        (void)close(report[0]);
        (void)close(go[1]);
        if (p->group)
            br_confine_group(c, report[1]);
        br_confine_inside(c, go[0], report[1], users);
    }
    int saved = errno;
    (void)close(report[1]);
    (void)close(go[0]);
    bool ok = p->pid > 0, mapped = ok && (!users || map_ids(p->pid) == 0);
    if (ok && !mapped)
        saved = errno;
    if (mapped)
        (void)!write(go[1], "", 1);
    (void)close(go[1]); /* without the byte it ends */
    p->report = report[0];
    if (mapped)
        return 0;
    if (ok) {
        int status;
        br_confine_kill(p);
        (void)br_confine_wait(p, &status, NULL);
    }
    br_close(&p->report);
    errno = saved;
    return missing(ok ? "its user namespace could not be set up" : "it gets no namespaces", err);
}

void br_confine_ask(const struct br_confined *p)
{
    (void)kill(p->group ? -p->pid : p->pid, SIGTERM);
}

void br_confine_kill(const struct br_confined *p)
{
    if (p->group)
        (void)kill(-p->pid, SIGKILL);
    (void)kill(p->pid, SIGKILL);
}

int br_confine_wait(struct br_confined *p, int *status, struct br_err *err)
{
    struct br_confine_report r;
    pid_t w;
    int own = 0;
    do
        w = waitpid(p->pid, &own, 0);
    while (w < 0 && errno == EINTR);
    if (p->group)
        (void)kill(-p->pid, SIGKILL); /* what it may have left in its group */
    /* everybody who had the other end is dead: this does not wait */
    ssize_t n = w == p->pid ? read(p->report, &r, sizeof(r)) : -1;
    br_close(&p->report);
    br_close(&p->pidfd);
    p->pid = -1;
    *status = own;
    if (n == (ssize_t)sizeof(r) && r.error) {
        errno = r.error;
        r.step[sizeof(r.step) - 1] = 0;
        return missing(r.step, err);
    }
    if (n == (ssize_t)sizeof(r))
        *status = r.status;
    else if (!p->group && WIFEXITED(own))
        *status = SIGKILL; /* pid 1 ended without a word */
    return 0;
}
