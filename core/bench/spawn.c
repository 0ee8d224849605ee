/*
 * How programs are started. References: posix_spawn of a program, which is what the kernel can do
 * at best, and, by the same call, the bare sandbox and bubblewrap.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "wire/wire.h"

int bench_role_start(const char *name, bool quiet, pid_t *pid, int *end, struct br_err *err)
{
    char path[BR_PATH_MAX + 32];
    int ends[2];
    *pid = *end = -1;
    snprintf(path, sizeof(path), "%s/%s", bench_bin_path(), name);
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "a channel could not be made");
    *pid = fork();
    if (*pid == 0) {
        char *argv[] = {(char *)(uintptr_t)name, NULL}, *envp[] = {NULL};
        int null = quiet ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
        if (quiet && (null < 0 || dup2(null, STDERR_FILENO) < 0))
            _exit(126);
        if (ends[1] == 3)
            (void)fcntl(3, F_SETFD, 0);
        else if (dup2(ends[1], 3) < 0)
            _exit(126);
        execve(path, argv, envp);
        _exit(127);
    }
    br_close(&ends[1]);
    *end = ends[0];
    return *pid < 0 ? br_err_errno(err, BR_E_IO, "'%s' could not be started", name) : 0;
}

int bench_spawn(char *const *argv, struct br_err *err)
{
    char *const env[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    pid_t pid;
    int status = 0;
    int r = posix_spawn(&pid, argv[0], NULL, NULL, argv, env);
    if (r != 0) {
        errno = r;
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", argv[0]);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0 ? 0
                       : br_err_set(err, BR_E_FAILED, "'%s' ended with status 0x%x", argv[0],
                                    (unsigned)status);
}
