/*
 * References: posix_spawn of a program, which is what the kernel can do at best, and, by the same
 * call, the bare sandbox and bubblewrap.
 */
#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#include "bench/bench.h"

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
