/*
 * The operator's policy as a snapshot: what 'bridle policy show --json' prints, from a process of
 * this program, since a verb writes to standard output. Called for a name in Lua code, which
 * chooses nothing: neither the policy nor an option.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/repl.h"

#define PATIENCE_US (60u * 1000 * 1000)
#define COMPLAINT_MAX (16u * 1024)

/* In the child, after fork. */
static _Noreturn void show_policy(const char *path, int out, int err)
{
    char *const argv[] = {(char *)"bridle", (char *)"policy", (char *)"show", (char *)"--json",
                          NULL};
    sigset_t none;
    (void)setsid(); /* Ctrl-C is for the client */
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(path, argv);
    _exit(127);
}

/* Read both to their ends. False if that took too long, was too much, or was interrupted. */
static bool collect(int fds[2], struct br_buf *bufs[2])
{
    uint64_t until = br_now_us() + PATIENCE_US;
    uint8_t chunk[16384];
    while (fds[0] >= 0 || fds[1] >= 0) {
        struct pollfd p[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
        if (repl_interrupted || br_now_us() > until)
            return false;
        if (poll(p, 2, 50) <= 0)
            continue;
        for (int i = 0; i < 2; i++) {
            if (fds[i] < 0 || !p[i].revents)
                continue;
            ssize_t n = read(fds[i], chunk, sizeof(chunk));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                br_close(&fds[i]);
            else if (br_buf_put(bufs[i], chunk, (size_t)n) < 0 && i == 0)
                return false;
        }
    }
    return true;
}

int repl_policy_get(struct br_buf *lines, struct br_err *err)
{
    char path[BR_PATH_MAX];
    int out[2] = {-1, -1}, says[2] = {-1, -1}, status = 0;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(COMPLAINT_MAX);
    int r = br_cli_program(path, "bridle", err);
    if (r < 0)
        return r;
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(says, O_CLOEXEC) < 0) {
        br_close(&out[0]);
        br_close(&out[1]);
        return br_err_errno(err, BR_E_IO, "no pipe for 'bridle policy'");
    }
    pid_t pid = fork();
    if (pid == 0)
        show_policy(path, out[1], says[1]);
    br_close(&out[1]);
    br_close(&says[1]);
    int fds[2] = {out[0], says[0]};
    bool whole = pid > 0 && collect(fds, (struct br_buf *[2]){lines, &text});
    br_close(&fds[0]);
    br_close(&fds[1]);
    if (pid < 0)
        return br_err_errno(err, BR_E_IO, "'%s' could not be started", path);
    if (!whole)
        (void)kill(pid, SIGTERM); /* at which it ends what it has started */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!whole && repl_interrupted)
        return br_err_set(err, BR_E_CANCELED, "interrupted; nothing more was read");
    if (!whole)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the policy is too large, or took too long, to be looked at here");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    const char *why = br_buf_cstr(&text);
    size_t n = why ? strcspn(why, "\n") : 0;
    if (n > 8 && strncmp(why, "bridle: ", 8) == 0) {
        why += 8;
        n -= 8;
    }
    return br_err_set(err, BR_E_INVALID_POLICY, "%.*s", (int)(n ? n : 28),
                      n ? why : "'bridle policy show' failed");
}
