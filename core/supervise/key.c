/*
 * The provider's credential on its way to bridle-egress: the operator's file is opened here,
 * because only the operator may read it, and the operator's command is started here, because egress
 * may start nothing. What they hold is read by egress alone. Trusts bridle.lua, which is the
 * operator's; a file that others could have written or read is refused all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/supervise_priv.h"

static int refuse(struct br_err *err, const char *name, const char *path, const char *why)
{
    return br_err_set(err, BR_E_INVALID_CONFIG,
                      "the key '%s' was not read from '%s': %s; nothing was started", name, path,
                      why);
}

static int open_file(const struct provider *p, int *fd, struct br_err *err)
{
    const char *name = p->key_name, *path = p->key_file;
    struct stat st;
    BR_CLEANUP_FD int f = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (f < 0 && errno == ELOOP)
        return refuse(err, name, path, "it is a symbolic link");
    if (f < 0 || fstat(f, &st) < 0)
        return refuse(err, name, path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse(err, name, path, "it is not a regular file");
    if (st.st_nlink > 1)
        return refuse(err, name, path, "it has another name (a hard link)");
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return refuse(err, name, path, "it belongs to another user");
    if (st.st_mode & 077)
        return refuse(err, name, path, "other users may use it; 'chmod 600' it");
    *fd = br_steal_fd(&f);
    return 0;
}

/* In the child: only what a command of the operator needs, and nothing that it writes is shown. */
static void run_command(const struct provider *p, int out)
{
    char *argv[KEY_WORDS_MAX + 1] = {NULL};
    const struct rlimit none = {0, 0};
    sigset_t empty;
    for (uint32_t i = 0; i < p->nkey_command; i++)
        argv[i] = (char *)(uintptr_t)p->key_command[i];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int keep = fcntl(out, F_DUPFD_CLOEXEC, 10);
    if (null < 0 || keep < 0 || dup2(null, 0) < 0 || dup2(keep, 1) < 0 || dup2(null, 2) < 0)
        return;
    br_close_from(3, NULL, 0);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGPIPE, SIG_DFL);
    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);
    (void)setsid(); /* so that all of it can be ended */
    execv(argv[0], argv);
}

static int on_command_end(void *ctx, int fd, short revents, struct br_err *err)
{
    struct supervisor *s = ctx;
    struct key_command *k = &s->key_command;
    (void)revents, (void)err;
    br_loop_unwatch(s->loop, fd);
    while (waitpid(k->pid, &k->status, 0) < 0 && errno == EINTR)
        ;
    k->ended = s->kick = true;
    return 0;
}

static int start_command(struct supervisor *s, int *fd, struct br_err *err)
{
    const struct provider *p = &s->provider;
    struct key_command *k = &s->key_command;
    int ends[2];
    if (access(p->key_command[0], X_OK) < 0)
        return refuse(err, p->key_name, p->key_command[0], strerror(errno));
    if (pipe2(ends, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_IO, "no pipe for the key '%s'", p->key_name);
    BR_CLEANUP_FD int from = ends[0], to = ends[1];
    pid_t pid = fork();
    if (pid == 0) {
        run_command(p, to);
        _exit(127);
    }
    if (pid < 0)
        return br_err_errno(err, BR_E_IO, "the command of the key '%s' could not be started",
                            p->key_name);
    *k = (struct key_command){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
    if (k->pidfd < 0 || br_loop_watch(s->loop, k->pidfd, POLLIN, on_command_end, s) < 0)
        return br_err_errno(err, BR_E_INTERNAL, "the command of the key '%s' could not be watched",
                            p->key_name);
    *fd = br_steal_fd(&from);
    return 0;
}

int key_open(struct supervisor *s, int *fd, struct br_err *err)
{
    *fd = -1;
    switch (s->provider.key_from) {
    case BR_KEY_FILE:
        return open_file(&s->provider, fd, err);
    case BR_KEY_COMMAND:
        return start_command(s, fd, err);
    default:
        return 0;
    }
}

int key_open_ca(struct supervisor *s, int *fd, struct br_err *err)
{
    const char *path = s->provider.ca_file;
    struct stat st;
    *fd = -1;
    if (!path[0])
        return 0;
    BR_CLEANUP_FD int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f < 0 || fstat(f, &st) < 0)
        return br_err_errno(err, BR_E_INVALID_CONFIG,
                            "the 'ca_file' '%s' could not be opened; nothing was started", path);
    if (!S_ISREG(st.st_mode))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the 'ca_file' '%s' is not a regular file; nothing was started", path);
    *fd = br_steal_fd(&f);
    return 0;
}

static void kill_command(const struct key_command *k)
{
    if (k->pid > 0 && !k->ended && kill(-k->pid, SIGKILL) < 0)
        (void)kill(k->pid, SIGKILL); /* it has no session of its own yet */
}

int key_wait(struct supervisor *s, struct br_err *err)
{
    struct key_command *k = &s->key_command;
    const char *name = s->provider.key_name, *program = s->provider.key_command[0];
    if (k->pid <= 0)
        return 0;
    uint32_t seconds = s->provider.key_command_s; /* a person may have to unlock a store first */
    bool late = sup_wait(s, &k->ended, (uint64_t)seconds * 1000000, true) < 0;
    key_end(s);
    if (!late && WIFEXITED(k->status) && WEXITSTATUS(k->status) == 0)
        return 0;
    s->fail_code = 0; /* what egress made of half a key is no reason */
    if (late)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the command '%s' did not say the key '%s' within %u s; nothing was "
                          "started",
                          program, name, seconds);
    if (WIFSIGNALED(k->status))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the command '%s' of the key '%s' was killed by signal %d; nothing was "
                          "started",
                          program, name, WTERMSIG(k->status));
    return br_err_set(err, BR_E_INVALID_CONFIG,
                      "the command '%s' of the key '%s' ended with status %d; nothing was started. "
                      "Run it by hand to see why",
                      program, name, WEXITSTATUS(k->status));
}

void key_end(struct supervisor *s)
{
    struct key_command *k = &s->key_command;
    if (k->pid <= 0)
        return;
    kill_command(k);
    if (!k->ended) {
        br_loop_unwatch(s->loop, k->pidfd);
        while (waitpid(k->pid, &k->status, 0) < 0 && errno == EINTR)
            ;
        k->ended = true;
    }
    br_close(&k->pidfd);
    k->pid = 0;
}
