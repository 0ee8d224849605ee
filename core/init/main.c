/*
 * bridle-init: pid 1 of every sandbox. bridle-launch starts it, already unprivileged and behind the
 * system call filter, with the workspace as its working directory, /dev/null on 0 to 2 and its
 * channel on 3. It trusts nothing that runs beside it: commands have the same uid, so that it makes
 * itself undumpable, which closes ptrace, /proc/1/mem and pidfd_getfd to them. When the channel
 * ends, everything in the sandbox ends.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init_priv.h"
#include "observe.h"

#define CHANNEL_FD 3

/* How many descriptors beyond the channel are open that should not be: one system call. */
static unsigned count_inherited(void)
{
    struct pollfd p[256 - CHANNEL_FD - 1];
    unsigned n = BR_ARRAY_LEN(p), open = 0;
    struct rlimit l; /* poll(2) takes no more than may be open */
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < n)
        n = (unsigned)l.rlim_cur;
    for (unsigned i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = CHANNEL_FD + 1 + (int)i};
    if (poll(p, n, 0) < 0)
        return n;
    for (unsigned i = 0; i < n; i++)
        open += !(p[i].revents & POLLNVAL);
    return open;
}

static int start(struct br_init *in, bool pid1, char *const *words, struct br_err *err)
{
    unsigned inherited = count_inherited();
    for (int fd = 0; fd <= CHANNEL_FD; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return br_err_set(err, BR_E_USAGE,
                              "descriptor %d is not open; this program is started by bridle-launch",
                              fd);
    if (!br_init_weak)
        br_close_from(CHANNEL_FD + 1, NULL, 0);
    if (!br_init_weak && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return br_err_errno(err, BR_E_FAILED, "the program could not make itself undumpable");
    (void)umask(022);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that becomes too large is an error of its write */
    (void)signal(SIGPIPE, SIG_IGN);
    int root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return br_err_errno(err, BR_E_INVALID_WORKSPACE, "the workspace could not be opened");
    int r = br_init_open(in, CHANNEL_FD, root, pid1, err);
    in->inherited = inherited;
    for (; pid1 && r == 0 && *words; words++)
        r = br_init_listen(in, *words, err);
    return r;
}

int main(int argc, char **argv)
{
    struct br_init in = {.root = -1, .sigfd = -1, .chan = {.fd = -1}, .sockets = {-1, -1}};
    struct br_err err = {.code = BR_OK};
    bool pid1 = getpid() == 1;
    /* As a command in a sandbox that has no other program: the guest of observer@1, and what an
     * activation runs. */
    if (!pid1 && argc == 2 && strcmp(argv[1], "observe") == 0)
        return br_observe_main();
    if (!pid1 && argc == 2 && strcmp(argv[1], "true") == 0)
        return 0;
    br_log_init("bridle-init", BR_LOG_WARN);
    int r = start(&in, pid1, argv + (argc > 0), &err);
    if (r == 0)
        r = br_init_serve(&in, &err);
    if (r < 0 && r != -BR_E_PEER_GONE)
        br_log(BR_LOG_ERROR, "%s", err.text);
    br_init_close(&in);
    if (pid1)
        (void)kill(-1, SIGKILL);
    return r == -BR_E_PEER_GONE ? 0 : 1;
}
