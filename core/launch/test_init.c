/*
 * Tests only: takes the place of bridle-init as pid 1 of a sandbox. A static program without
 * sanitizers that does what it is told over descriptor 3, one datagram a command, one an answer:
 *
 *   sh SCRIPT        /bin/sh -c SCRIPT; answer "EXIT\nOUTPUT" (128 + n for a signal)
 *   call NAME        one system call; answer "0" or its errno
 *   fork N           start N processes at once; answer how many were started
 *   eat MIB          a child touches that much memory; answer its exit as for sh
 *   fill KIND DIR N  use up a directory; see test_fill.c
 *   exit N           end with this status
 *
 * End of file: exit 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/test_fill.h"

#define ANSWER_MAX 60000

static int exit_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    pid_t r;
    do {
        r = wait(&status);
    } while (r != pid && (r > 0 || errno == EINTR));
    return r == pid ? exit_of(status) : 255;
}

static void run_shell(const char *script, char *answer)
{
    int pipefd[2];
    size_t at = 0;
    char out[ANSWER_MAX - 64] = "";
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        (void)!dup2(pipefd[1], 1);
        (void)!dup2(pipefd[1], 2);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    close(pipefd[1]);
    for (ssize_t n; (n = read(pipefd[0], out + at, sizeof(out) - 1 - at)) > 0;)
        at += (size_t)n;
    out[at] = 0;
    close(pipefd[0]);
    snprintf(answer, ANSWER_MAX, "%d\n%s", pid < 0 ? 254 : wait_for(pid), out);
}

static long call_ioctl(unsigned long cmd)
{
    char c = 'x';
    return syscall(SYS_ioctl, 0, cmd, &c);
}

static long call_socket(int family)
{
    int fd = socket(family, SOCK_DGRAM, 0);
    if (fd >= 0)
        close(fd);
    return fd;
}

/* In a child, so that a call that works does not change pid 1. */
static long call_named(const char *name)
{
    static const struct {
        const char *name;
        long nr, a, b;
    } plain[] = {
        {"unshare-user", SYS_unshare, CLONE_NEWUSER, 0},
        {"unshare-net", SYS_unshare, CLONE_NEWNET, 0},
        {"unshare-files", SYS_unshare, CLONE_FILES, 0},
        {"clone-user", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0},
        {"clone3", SYS_clone3, 0, 0},
        {"setns", SYS_setns, 0, 0},
        {"fsopen", SYS_fsopen, (long)"tmpfs", 0},
        {"open_tree", SYS_open_tree, AT_FDCWD, (long)"/tmp"},
        {"chroot", SYS_chroot, (long)"/tmp", 0},
        {"bpf", SYS_bpf, 0, 0},
        {"keyctl", SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING},
        {"userfaultfd", SYS_userfaultfd, 1, 0},
        {"io_uring_setup", SYS_io_uring_setup, 1, 0},
        {"perf_event_open", SYS_perf_event_open, 0, 0},
        {"init_module", SYS_init_module, 0, 0},
        {"kexec_load", SYS_kexec_load, 0, 0},
        {"swapon", SYS_swapon, (long)"/tmp", 0},
        {"reboot", SYS_reboot, 0, 0},
        {"personality-32", SYS_personality, PER_LINUX32, 0},
        {"personality-odd", SYS_personality, READ_IMPLIES_EXEC, 0},
        {"unknown", 1000, 0, 0},
        {"setuid", SYS_setuid, 0, 0},
        {"getpid", SYS_getpid, 0, 0},
    };
    for (unsigned i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(name, plain[i].name) == 0) {
            long r = syscall(plain[i].nr, plain[i].a, plain[i].b, 0, 0, 0);
            if (r == 0 && plain[i].nr == SYS_clone)
                _exit(0);
            return r;
        }
    if (strcmp(name, "mount") == 0)
        return mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
    if (strcmp(name, "ptrace") == 0)
        return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    if (strcmp(name, "tiocsti") == 0)
        return call_ioctl(0x5412);
    if (strcmp(name, "tiocsti-high") == 0)
        return call_ioctl(0x100005412ul);
    if (strcmp(name, "tioclinux") == 0)
        return call_ioctl(0x541c);
    if (strcmp(name, "ioctl-other") == 0)
        return call_ioctl(0x5413);
    if (strncmp(name, "socket ", 7) == 0)
        return call_socket(atoi(name + 7));
    errno = ENOMSG;
    return -1;
}

static void run_call(const char *name, char *answer)
{
    int pipefd[2], e = 0;
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        e = call_named(name) < 0 ? errno : 0;
        (void)!write(pipefd[1], &e, sizeof(e));
        _exit(0);
    }
    close(pipefd[1]);
    if (pid < 0 || read(pipefd[0], &e, sizeof(e)) != sizeof(e))
        e = 9999; /* killed */
    close(pipefd[0]);
    (void)wait_for(pid);
    snprintf(answer, ANSWER_MAX, "%d", e);
}

static void run_fork(int n, char *answer)
{
    int started = 0, e = 0;
    for (int i = 0; i < n && e == 0; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (;;)
                pause();
        }
        if (pid > 0)
            started++;
        else
            e = errno;
    }
    (void)kill(-1, SIGKILL);
    while (wait(NULL) > 0)
        ;
    snprintf(answer, ANSWER_MAX, "%d %d", started, e);
}

static void run_eat(int mib, char *answer)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < mib; i++) {
            char *p = malloc(1024 * 1024);
            if (!p)
                _exit(1);
            memset(p, i + 1, 1024 * 1024);
        }
        _exit(0);
    }
    snprintf(answer, ANSWER_MAX, "%d", wait_for(pid));
}

int main(void)
{
    static char command[ANSWER_MAX], answer[ANSWER_MAX];
    for (;;) {
        ssize_t n = recv(3, command, sizeof(command) - 1, 0);
        if (n <= 0)
            return 0;
        command[n] = 0;
        snprintf(answer, sizeof(answer), "?");
        if (strncmp(command, "sh ", 3) == 0)
            run_shell(command + 3, answer);
        else if (strncmp(command, "call ", 5) == 0)
            run_call(command + 5, answer);
        else if (strncmp(command, "fork ", 5) == 0)
            run_fork(atoi(command + 5), answer);
        else if (strncmp(command, "eat ", 4) == 0)
            run_eat(atoi(command + 4), answer);
        else if (strncmp(command, "fill ", 5) == 0)
            run_fill(command + 5, answer, sizeof(answer));
        else if (strncmp(command, "exit ", 5) == 0)
            return atoi(command + 5);
        (void)!send(3, answer, strlen(answer), MSG_NOSIGNAL);
    }
}
