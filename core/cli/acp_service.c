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
#define STOP_US (15u * 1000 * 1000)
#define STEP_US (5u * 1000)

static _Noreturn void become_service(const struct acp_service *s,
                                     const struct acp_service_options *o, const char *program,
                                     pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* out of the protocol's way, and gone with this process */
    if (in < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(126);
    const char *argv[16] = {"bridle", "serve", "--listen", s->socket, "--root", o->root};
    unsigned n = 6;
    const struct {
        const char *name, *value;
    } more[] = {{"--config", o->config}, {"--policy", o->policy}, {"--scenario", o->scenario}};
    for (unsigned i = 0; i < BR_ARRAY_LEN(more); i++) {
        if (!more[i].value)
            continue;
        argv[n++] = more[i].name;
        argv[n++] = more[i].value;
    }
    argv[n] = NULL;
    execv(program, (char *const *)argv);
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
    char program[BR_PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    tmp = tmp && tmp[0] == '/' ? tmp : "/tmp";
    *s = (struct acp_service){.pid = 0};
    int r = br_cli_program(program, "bridle", err);
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
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid == 0)
        become_service(s, o, program, parent);
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
