/*
 * The programs of a service: started, listened to, waited for. There are more of them than a loop
 * of core/wire has places, so they have an epoll set of their own in one of its places. What a kid
 * says is served by the table that it was started with; one that breaks it is killed.
 *
 * The service is the reaper of what its kids leave behind when they are killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/service.h"

#define EVENTS_AT_ONCE 64
#define ORPHANS_MAX 1024u

/* ---- starting ---- */

static bool move_channel(int channel, int *bin)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int ch = fcntl(channel, F_DUPFD_CLOEXEC, 10);
    *bin = *bin < 0 ? -1 : fcntl(*bin, F_DUPFD_CLOEXEC, 10);
    if (null < 0 || ch < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(ch, 3) < 0)
        return false;
    br_close_from(4, bin, *bin >= 0);
    return true;
}

static void forget_signals(void)
{
    sigset_t none;
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Both run in the child, and only return on failure. */
static void become_role(const char *binary, uid_t uid, bool quiet, int channel, int bin,
                        pid_t parent)
{
    char *argv[] = {(char *)(uintptr_t)binary, quiet ? (char *)(uintptr_t) "--quiet" : NULL, NULL};
    char *env[4] = {NULL};
#ifdef BR_SANITIZED
    static char asan[1024], ubsan[1024];
    unsigned n = 0;
    /* a role may not trace itself, which the search for leaks does */
    const char *options = getenv("ASAN_OPTIONS");
    snprintf(asan, sizeof(asan), "ASAN_OPTIONS=%s%sdetect_leaks=0", options ? options : "",
             options ? ":" : "");
    env[n++] = asan;
    if (getenv("UBSAN_OPTIONS")) {
        snprintf(ubsan, sizeof(ubsan), "UBSAN_OPTIONS=%s", getenv("UBSAN_OPTIONS"));
        env[n++] = ubsan;
    }
#endif
    if (!move_channel(channel, &bin))
        return;
    forget_signals();
    (void)setsid(); /* Ctrl-C goes to the service, which lets everybody come to an end */
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
        return;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        return;
    fexecve(bin, argv, env);
}

static void become_private(const struct service *sv, int channel)
{
    char *const argv[] = {(char *)(uintptr_t) "bridled", (char *)(uintptr_t) "--private", NULL};
    int none = -1;
    if (!move_channel(channel, &none))
        return;
    forget_signals();
    execv(sv->st->program, argv);
}

static int listen_to(struct kid *k, int ours, const struct br_msg_rule *rules, unsigned nrules,
                     struct br_err *err)
{
    struct epoll_event message = {.events = EPOLLIN, .data.ptr = &k->ears[0]},
                       end = {.events = EPOLLIN, .data.ptr = &k->ears[1]};
    br_chan_init(&k->chan, ours, k->name, rules, nrules, k);
    k->ears[0] = (struct kid_ear){.kid = k};
    k->ears[1] = (struct kid_ear){.kid = k, .end = true};
    k->pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0);
    if (k->pidfd >= 0 && epoll_ctl(k->sv->epoll, EPOLL_CTL_ADD, k->chan.fd, &message) == 0 &&
        epoll_ctl(k->sv->epoll, EPOLL_CTL_ADD, k->pidfd, &end) == 0)
        return 0;
    int r = br_err_errno(err, BR_E_INTERNAL, "'%s' could not be watched", k->name);
    kid_discard(k);
    return r;
}

static int start(struct service *sv, struct kid *k, const char *name, uid_t uid, bool role,
                 const struct br_msg_rule *rules, unsigned nrules, kid_ended_fn *ended,
                 struct br_err *err)
{
    int ends[2];
    pid_t self = getpid();
    memset(k, 0, sizeof(*k));
    *k = (struct kid){.sv = sv, .name = name, .pidfd = -1, .ended = ended};
    k->chan.fd = -1;
    BR_CLEANUP_FD int bin = role ? openat(sv->bindir, name, O_RDONLY | O_CLOEXEC) : -1;
    if (role && bin < 0)
        return br_err_errno(err, BR_E_FAILED,
                            "the program '%s' is missing beside bridled; build or install it again",
                            name);
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for '%s'", name);
    BR_CLEANUP_FD int ours = ends[0], theirs = ends[1];
    const struct timeval patience = {.tv_sec = SERVICE_SEND_SECONDS};
    (void)setsockopt(ours, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    k->pid = fork();
    if (k->pid == 0) {
        if (role)
            become_role(name, uid, sv->args.beside && k == &sv->gateway, theirs, bin, self);
        else
            become_private(sv, theirs);
        br_log(BR_LOG_ERROR, "'%s' could not be started: %s", name, strerror(errno));
        _exit(127);
    }
    if (k->pid < 0) {
        k->pid = 0;
        return br_err_errno(err, BR_E_IO, "'%s' could not be started", name);
    }
    return listen_to(k, br_steal_fd(&ours), rules, nrules, err);
}

int kid_start_role(struct service *sv, struct kid *k, const char *binary, uid_t uid,
                   const struct br_msg_rule *rules, unsigned nrules, kid_ended_fn *ended,
                   struct br_err *err)
{
    return start(sv, k, binary, uid, true, rules, nrules, ended, err);
}

int kid_start_private(struct service *sv, struct kid *k, const struct br_msg_rule *rules,
                      unsigned nrules, kid_ended_fn *ended, struct br_err *err)
{
    return start(sv, k, "bridled", 0, false, rules, nrules, ended, err);
}

/* ---- ending ---- */

void kid_kill(struct kid *k)
{
    if (k->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
}

/*
 * Epoll forgets a descriptor by itself only when no copy of it is left; a kid that was forked and
 * has not called exec yet holds a copy of each.
 */
static void unwatch(struct kid *k, int fd)
{
    if (fd >= 0)
        (void)epoll_ctl(k->sv->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void kid_hang_up(struct kid *k)
{
    unwatch(k, k->chan.fd);
    br_chan_close(&k->chan);
}

static int reap(struct kid *k)
{
    int status = 0;
    while (waitpid(k->pid, &status, 0) < 0 && errno == EINTR)
        ;
    unwatch(k, k->pidfd);
    br_close(&k->pidfd);
    k->pid = 0;
    return status;
}

void kid_discard(struct kid *k)
{
    kid_hang_up(k);
    if (k->pid <= 0)
        return;
    if (k->pidfd >= 0)
        kid_kill(k);
    else
        (void)kill(k->pid, SIGKILL);
    (void)reap(k);
}

void kid_release(struct kid *k)
{
    kid_hang_up(k);
    unwatch(k, k->pidfd);
    br_close(&k->pidfd);
    k->pid = 0;
}

/* ---- listening ---- */

static void on_message(struct kid *k)
{
    struct br_err err = {.code = BR_OK};
    int r = br_chan_dispatch(&k->chan, &err);
    if (r == 0 || r == -BR_E_TIMEOUT)
        return;
    if (r != -BR_E_PEER_GONE) {
        br_log(BR_LOG_ERROR, "'%s' was ended: %s", k->name, err.code ? err.text : br_code_name(r));
        k->mute = true;
        kid_kill(k);
    }
    kid_hang_up(k);
}

/* What it said before it ended counts. */
static void drain(struct kid *k)
{
    for (struct pollfd p = {.fd = k->chan.fd, .events = POLLIN}; k->chan.fd >= 0 && !k->mute;) {
        if (poll(&p, 1, 0) <= 0 || !(p.revents & POLLIN))
            break;
        on_message(k);
    }
}

static void on_end(struct kid *k)
{
    drain(k);
    kid_hang_up(k);
    int status = reap(k);
    k->ended(k, status);
}

/* One at a time: what is done for one may end another. */
static int on_kids(void *ctx, int fd, short revents, struct br_err *err)
{
    struct epoll_event e;
    (void)ctx, (void)revents, (void)err;
    for (int i = 0; i < EVENTS_AT_ONCE && epoll_wait(fd, &e, 1, 0) == 1; i++) {
        struct kid_ear *ear = e.data.ptr;
        if (ear->end)
            on_end(ear->kid);
        else if (ear->kid->chan.fd >= 0)
            on_message(ear->kid);
    }
    return 0;
}

int kids_watch(struct service *sv, struct br_err *err)
{
    sv->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (sv->epoll < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
        br_loop_watch(sv->loop, sv->epoll, POLLIN, on_kids, sv) < 0)
        return br_err_errno(err, BR_E_INTERNAL, "the service's programs could not be watched");
    return 0;
}

/* ---- orphans ---- */

/* Children, as the kernel lists them; 0 where it does not. */
static unsigned children(pid_t pids[ORPHANS_MAX])
{
    char path[64], text[16384];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    if (br_read_text(AT_FDCWD, path, text, sizeof(text)) < 0)
        return 0;
    char *save = NULL;
    for (char *w = strtok_r(text, " \n", &save); w && n < ORPHANS_MAX;
         w = strtok_r(NULL, " \n", &save))
        pids[n++] = (pid_t)strtol(w, NULL, 10);
    return n;
}

static bool is_known(const struct service *sv, pid_t pid)
{
    if (pid == sv->gateway.pid || pid == sv->tls.pid || pid == sv->egress.pid ||
        pid == sv->sweeper.pid || pid == sv->config.pid || pid == sv->tls_test.pid ||
        pid == sv->st->next.pid)
        return true;
    return service_is_own(sv, pid);
}

bool orphans_reap(struct service *sv)
{
    pid_t pids[ORPHANS_MAX];
    bool left = false;
    unsigned n = children(pids);
    for (unsigned i = 0; i < n; i++)
        if (pids[i] > 0 && !is_known(sv, pids[i]) && waitpid(pids[i], NULL, WNOHANG) == 0)
            left = true;
    return left;
}

void orphans_kill(struct service *sv)
{
    pid_t pids[ORPHANS_MAX];
    unsigned n = children(pids);
    for (unsigned i = 0; i < n; i++)
        if (pids[i] > 0 && !is_known(sv, pids[i]))
            (void)kill(pids[i], SIGKILL);
}
