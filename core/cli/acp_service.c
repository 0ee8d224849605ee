/*
 * A service of one's own: what `bridle acp` starts where none runs. It listens on a Unix socket in
 * a directory that only this user may enter, for workspaces below one root, and ends when this
 * process does, however that is. It is `bridle serve`, so that it is configured, and confined, as
 * any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/acp_priv.h"
#include "cli/cli.h"

#define PREFIX "bridle-acp-"
#define START_US (30u * 1000 * 1000)
#define STOP_US (60u * 1000 * 1000)
#define STEP_US (5u * 1000)

/* What bridled is told; paths are absolute, since it leaves this directory. */
struct words {
    const char *argv[16];
    unsigned n;
    char path[4][BR_PATH_MAX];
    unsigned npaths;
};

static int add(struct words *w, const char *name, const char *value, bool word, struct br_err *err)
{
    if (!value)
        return 0;
    char *to = w->path[w->npaths];
    int r = word ? 0 : br_cli_workspace(to, value, err);
    w->argv[w->n++] = name;
    w->argv[w->n++] = word ? value : to;
    w->npaths += !word;
    return r;
}

static int say(struct words *w, const struct acp_service *s, const struct acp_service_options *o,
               struct br_err *err)
{
    *w =
        (struct words){.argv = {"bridled", "--service", "--beside", "--listen", s->socket}, .n = 5};
    int r = add(w, "--root", o->root ? o->root : ".", false, err);
    if (r == 0 && !o->root && strcmp(w->path[0], "/") == 0)
        return br_err_set(err, BR_E_USAGE,
                          "the present directory is '/', and an agent would have all of it as its "
                          "workspace; name one with '--root'. Nothing was started");
    if (r == 0)
        r = add(w, "--config", o->config, false, err);
    if (r == 0)
        r = add(w, "--policy", o->policy, o->policy && br_cli_is_shipped(o->policy), err);
    return r == 0 ? add(w, "--scenario", o->scenario, false, err) : r;
}

static _Noreturn void become_service(const char *program, const struct words *w, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    int in = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* out of the protocol's way, and gone with this process */
    if (in < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(in, STDOUT_FILENO) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(126);
    execv(program, (char *const *)w->argv);
    _exit(127);
}

static bool listens(const char *path)
{
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    return fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
}

/* It has said why on standard error. */
static int await_service(struct acp_service *s, struct br_err *err)
{
    uint64_t until = br_now_us() + START_US;
    while (!listens(s->socket)) {
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
            return br_err_set(err, BR_E_PROGRAM_DIED,
                              "no service runs on this machine, and one of its own could not be "
                              "started; nothing was connected");
        }
        if (br_now_us() > until)
            return br_err_set(err, BR_E_TIMEOUT,
                              "the service did not listen within %u seconds; it was ended",
                              START_US / 1000000);
        (void)usleep(STEP_US);
    }
    return 0;
}

int acp_service_start(struct acp_service *s, const struct acp_service_options *o,
                      struct br_err *err)
{
    static struct words w;
    char program[BR_PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && tmp[0] == '/' ? tmp : "/tmp";
    *s = (struct acp_service){.pid = 0};
    int r = br_cli_program(program, "bridled", err);
    if (r < 0)
        return r;
    br_scratch_sweep(tmp, PREFIX);
    if (br_scratch_make(s->scratch, sizeof(s->scratch), tmp, PREFIX) < 0) {
        s->scratch[0] = 0;
        return br_err_errno(err, BR_E_IO, "a directory in '%.512s' could not be made", tmp);
    }
    snprintf(s->socket, sizeof(s->socket), "%s/service", s->scratch);
    if (strlen(s->socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        acp_service_stop(s);
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the path '%.512s' (TMPDIR) is too long for a socket", tmp);
    }
    if ((r = say(&w, s, o, err)) < 0) {
        acp_service_stop(s);
        return r;
    }
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid == 0)
        become_service(program, &w, parent);
    r = s->pid < 0 ? br_err_errno(err, BR_E_IO, "a service could not be started")
                   : await_service(s, err);
    if (r < 0)
        acp_service_stop(s);
    return r;
}

void acp_service_stop(struct acp_service *s)
{
    uint64_t until = br_now_us() + STOP_US;
    if (s->pid > 0) {
        (void)kill(s->pid, SIGTERM);
        while (waitpid(s->pid, NULL, WNOHANG) == 0) {
            if (br_now_us() > until)
                (void)kill(s->pid, SIGKILL);
            (void)usleep(STEP_US);
        }
        s->pid = 0;
    }
    if (s->scratch[0])
        (void)br_scratch_remove(s->scratch);
    s->scratch[0] = 0;
}
