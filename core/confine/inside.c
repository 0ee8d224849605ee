/*
 * From the new process to the program: pid 1 of the namespaces makes its mounts, starts the program
 * and waits; when it ends, the kernel ends everything in there. Called by confine.c after clone3(),
 * in a copy of the caller; it ends by exit or exec. pid 1 reads nothing from the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine/priv.h"

#define HIGH 64 /* where descriptors wait until 0 to 3 are free */
#define MAX_PROCESSES 512
#define MAX_FILES 4096
#define CLOEXEC_RANGE 4u /* CLOSE_RANGE_CLOEXEC */
#define WORK_AT "/tmp"   /* a directory of every system; what the host has there is hidden */

static volatile pid_t program;

static _Noreturn void failed(int report, const char *step)
{
    struct br_confine_report r = {.error = errno ? errno : EINVAL};
    snprintf(r.step, sizeof(r.step), "%s", step);
    (void)!write(report, &r, sizeof(r));
    _exit(125);
}

static void limit(int what, uint64_t value)
{
    struct rlimit old, l = {.rlim_cur = value, .rlim_max = value};
    if (getrlimit(what, &old) == 0 && old.rlim_max < l.rlim_max)
        l.rlim_cur = l.rlim_max = old.rlim_max;
    (void)setrlimit(what, &l);
}

/* The working directory by its path in this namespace of mounts, if that is still the same. */
static int reopen(int dir)
{
    char link[32], path[BR_PATH_MAX];
    struct stat a, b;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0)
        return -1;
    path[n] = 0;
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(dir, &a) < 0 || fstat(fd, &b) < 0)
        return -1;
    errno = ESTALE;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino ? fd : -1;
}

static const char *mounts(const struct br_confine *c)
{
    char from[32];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return "its mounts cannot be made private";
    if (c->work >= 0 && !c->trusted) {
        int fd = reopen(c->work);
        snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
        if (fd < 0 || mount(from, WORK_AT, NULL, MS_BIND, NULL) < 0)
            return "its directory cannot be mounted";
        (void)close(fd);
    }
    /* Of the namespace's processes. A kernel within a container may refuse that to ordinary users:
     * then it sees the host's, but may open no file there. */
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 && c->trusted)
        return "/proc cannot be mounted";
    return NULL;
}

static const char *become(const struct br_confine *c, bool root)
{
    if (!root || c->uid == 0)
        return NULL;
    if (prctl(PR_SET_KEEPCAPS, c->read_all, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(c->uid, c->uid, c->uid) < 0 || setresuid(c->uid, c->uid, c->uid) < 0)
        return "it cannot become another user";
    return NULL;
}

/* Everything that the program cannot take off again. */
static const char *lock_up(const struct br_confine *c, bool users)
{
    bool root = geteuid() == 0 && !users;
    limit(RLIMIT_NOFILE, MAX_FILES);
    limit(RLIMIT_NPROC, MAX_PROCESSES);
    limit(RLIMIT_MEMLOCK, 8u << 20);
    limit(RLIMIT_MSGQUEUE, 0);
    if (c->max_memory)
        limit(RLIMIT_AS, c->max_memory);
    br_confine_bound(root && c->read_all);
    const char *step = br_confine_landlock(c);
    if (!step)
        step = become(c, root);
    if (!step)
        step = br_confine_capabilities(root && c->read_all);
    if (!step)
        step = br_confine_filter(c->may_fork);
    return step;
}

static void reset_signals(void)
{
    sigset_t none;
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void execute(const struct br_confine *c, int report, bool users)
{
    int fds[BR_CONFINE_FDS];
    reset_signals();
    umask(022);
    limit(RLIMIT_CORE, 0);
    if (c->max_file)
        limit(RLIMIT_FSIZE, c->max_file);
    if (c->work >= 0 && (c->trusted ? fchdir(reopen(c->work)) : chdir(WORK_AT)) < 0)
        failed(report, "its directory cannot be entered");
    if (c->work < 0 && chdir("/") < 0)
        failed(report, "its directory cannot be entered");
    const char *step = c->trusted                                   ? NULL
                       : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? "no_new_privs cannot be set"
                                                                    : lock_up(c, users);
    if (step)
        failed(report, step);
    int high = fcntl(report, F_DUPFD_CLOEXEC, HIGH);
    for (unsigned i = 0; i < BR_CONFINE_FDS; i++)
        fds[i] = c->fds[i] < 0 ? -1 : fcntl(c->fds[i], F_DUPFD_CLOEXEC, HIGH);
    for (unsigned i = 0; i < BR_CONFINE_FDS; i++) {
        if (c->fds[i] < 0)
            (void)close((int)i);
        else if (fds[i] < 0 || dup2(fds[i], (int)i) < 0)
            failed(high, "it gets no descriptors");
    }
    if (high < 0 || syscall(SYS_close_range, BR_CONFINE_FDS, ~0u, CLOEXEC_RANGE) < 0)
        failed(high, "descriptors cannot be closed");
    (void)execve(c->path, (char *const *)(uintptr_t)c->argv, (char *const *)(uintptr_t)c->env);
    failed(high, "it cannot be executed");
}

static void pass_on(int s)
{
    if (program > 0)
        (void)kill(program, s);
}

/* pid 1: reap until the program ends. */
static _Noreturn void reap(int report)
{
    struct br_confine_report r = {.error = 0};
    int status = 0;
    for (;;) {
        pid_t pid = waitpid(-1, &status, 0);
        if (pid == program)
            break;
        if (pid < 0 && errno != EINTR)
            failed(report, "it cannot be waited for");
    }
    r.status = status;
    (void)!write(report, &r, sizeof(r));
    _exit(0);
}

_Noreturn void br_confine_inside(const struct br_confine *c, int go, int report, bool users)
{
    char byte;
    ssize_t n;
    struct sigaction ask = {.sa_handler = pass_on};
    reset_signals();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        failed(report, "it would outlive its maker");
    do /* a maker that is dead already has closed it */
        n = read(go, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        _exit(125);
    (void)close(go);
    if (setsid() < 0)
        failed(report, "it gets no session");
    const char *step = mounts(c);
    if (step)
        failed(report, step);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    program = fork();
    if (program < 0)
        failed(report, "there is no process for it");
    if (program == 0)
        execute(c, report, users);
    if (c->trusted)
        (void)sigaction(SIGTERM, &ask, NULL);
    br_close_from(0, &report, 1);
    if (!c->trusted)
        br_confine_bound(false);
    step = c->trusted ? NULL : br_confine_capabilities(false);
    if (step)
        failed(report, step);
    reap(report);
}

_Noreturn void br_confine_group(const struct br_confine *c, int report)
{
    reset_signals();
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        failed(report, "it would outlive its maker");
    execute(c, report, false);
}
