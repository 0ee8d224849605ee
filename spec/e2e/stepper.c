/*
 * Tests only: takes the place of `bridled`, and kills the real one (beside it, as bridled.real)
 * with SIGKILL at a step that the environment names, wherever it is then:
 *
 *   BRIDLE_TEST_STEP=N      before or after its system calls, whatever of both is the N-th
 *   BRIDLE_TEST_REST=US     wait that long before, while all others run on until they wait for it
 *   BRIDLE_TEST_REPORT=FILE "killed N before|after CALL", or "through N", with N the steps taken
 *
 * Without a step it only becomes the real one. Steps are the calls by which somebody else can tell
 * that bridled has come as far: messages and descriptors sent, taken, made or closed (a closed
 * channel is a message), files, processes made, waited for and killed. What only looks, or changes
 * bridled alone (memory, prctl, poll, stat), leaves nobody a different world, and is no step; nor
 * is what the dynamic loader does before the first call of its own, but the execution itself is
 * one. Before and after a call are two steps, because others go on in between: a bridled that has
 * sent a message and dies is not one that dies when it has waited for the answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_CALL SYS_setsid /* of bridled's own */

#define STEP(name)                                                                                 \
    {                                                                                              \
        SYS_##name, #name                                                                          \
    }
static const struct {
    unsigned long nr;
    const char *name;
} steps[] = {
    STEP(setsid),
    STEP(sendmsg),
    STEP(recvmsg),
    STEP(sendto),
    STEP(recvfrom),
    STEP(write),
    STEP(writev),
    STEP(pwrite64),
    STEP(socketpair),
    STEP(socket),
    STEP(bind),
    STEP(listen),
    STEP(connect),
    STEP(pipe2),
    STEP(memfd_create),
    STEP(openat),
    STEP(openat2),
    STEP(close),
    STEP(close_range),
    STEP(dup3),
    STEP(mkdirat),
    STEP(unlinkat),
    STEP(renameat),
    STEP(renameat2),
    STEP(linkat),
    STEP(symlinkat),
    STEP(fchown),
    STEP(fchownat),
    STEP(fchmod),
    STEP(fchmodat),
    STEP(ftruncate),
    STEP(fsync),
    STEP(fdatasync),
    STEP(flock),
    STEP(clone),
    STEP(clone3),
    STEP(wait4),
    STEP(waitid),
    STEP(kill),
    STEP(pidfd_open),
    STEP(pidfd_send_signal),
    STEP(exit_group),
#ifdef SYS_open
    STEP(open),
    STEP(dup2),
    STEP(mkdir),
    STEP(unlink),
    STEP(rmdir),
    STEP(rename),
    STEP(link),
    STEP(symlink),
    STEP(chown),
    STEP(chmod),
    STEP(fork),
    STEP(vfork),
#endif
};

static const char *step_name(unsigned long nr)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i].nr == nr)
            return steps[i].name;
    return NULL;
}

static _Noreturn void die(const char *what)
{
    perror(what);
    _exit(70);
}

static _Noreturn void become_real(const char *path, char **argv)
{
    execv(path, argv);
    die(path);
}

/* A leak checker cannot look at a process that is traced. */
static void no_leak_check(void)
{
    char text[512];
    const char *options = getenv("ASAN_OPTIONS");
    snprintf(text, sizeof(text), "%s%sdetect_leaks=0", options ? options : "", options ? ":" : "");
    if (setenv("ASAN_OPTIONS", text, 1) < 0)
        _exit(70);
}

static void report(int fd, const char *how, unsigned n, const char *when, const char *name)
{
    char text[128];
    int len = snprintf(text, sizeof(text), "%s %u %s %s\n", how, n, when, name);
    if (write(fd, text, (size_t)len) != len)
        die("report");
}

static int await(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid");
    return status;
}

/* Whether this stop is a step; `when` and `name` say which. */
static bool is_step(pid_t pid, bool *begun, const char **when, const char **name)
{
    static unsigned long nr;
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
        return false; /* it is being killed */
    bool entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    if (entry)
        nr = info.entry.nr;
    *begun |= nr == FIRST_CALL;
    *when = entry ? "before" : "after";
    *name = step_name(nr);
    return *begun && *name;
}

static _Noreturn void end_as(int status)
{
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    (void)kill(getpid(), WTERMSIG(status));
    _exit(70);
}

static _Noreturn void follow(pid_t pid, unsigned at, unsigned rest_us, int fd)
{
    const char *when = "after", *name = "execve";
    unsigned n = 1; /* the first stop is the end of execve() */
    bool begun = false, killed = false, step = true;
    int status = await(pid);
    if (!WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0)
        die("trace");
    for (int signo = 0;; signo = 0) {
        if (step && n == at && !killed) {
            usleep(rest_us);
            killed = kill(pid, SIGKILL) == 0;
            report(fd, "killed", n, when, name);
        }
        /* fails if it has just been killed; the next thing to learn is its end */
        (void)ptrace(PTRACE_SYSCALL, pid, 0, signo);
        status = await(pid);
        if (!WIFSTOPPED(status))
            break;
        step = WSTOPSIG(status) == (SIGTRAP | 0x80) && is_step(pid, &begun, &when, &name);
        n += step;
        signo = WSTOPSIG(status) & 0x80 ? 0 : WSTOPSIG(status);
    }
    if (!killed)
        report(fd, "through", n, "", "");
    end_as(status);
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *at = getenv("BRIDLE_TEST_STEP"), *rest = getenv("BRIDLE_TEST_REST");
    const char *file = getenv("BRIDLE_TEST_REPORT");
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - sizeof(".real"));
    if (len <= 0 || argc < 1)
        return 70;
    memcpy(path + len, ".real", sizeof(".real"));
    if (!at || !file)
        become_real(path, argv);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        die(file);
    no_leak_check();
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            die("trace");
        become_real(path, argv);
    }
    close(3); /* the client's channel ends with the real one */
    follow(pid, (unsigned)atoi(at), rest ? (unsigned)atoi(rest) : 0, fd);
}
