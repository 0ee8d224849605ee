/*
 * bridle-launch: the only program that makes namespaces, mounts and cgroups. Started by bridled
 * with its supervision channel on descriptor 3, as root or as the operator. End of file there: the
 * sandbox is killed and cleaned up, then the program ends. `--pool N`: how many sandboxes are kept
 * prepared (0: none). `bridle-launch --delegate UID` is the one other thing it does, for `bridle
 * doctor`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch/launch.h"

static int delegate(const char *arg)
{
    char *end;
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf told = BR_BUF_INIT(64 * 1024);
    errno = 0;
    unsigned long uid = strtoul(arg, &end, 10);
    if (errno || end == arg || *end || uid >= UINT32_MAX) {
        fprintf(stderr, "bridle-launch: '%s' is not a user id; nothing was changed\n", arg);
        return 2;
    }
    int r = br_cgroup_delegate((uid_t)uid, &told, &err);
    (void)br_write_all(STDOUT_FILENO, told.data, told.len);
    if (r < 0)
        fprintf(stderr, "bridle-launch: %s\n", err.text);
    return br_code_exit(r);
}

int main(int argc, char **argv)
{
    br_log_init("bridle-launch", BR_LOG_INFO);
    if (argc == 3 && strcmp(argv[1], "--delegate") == 0)
        return delegate(argv[2]);
    unsigned pool = BR_POOL_DEFAULT;
    if (argc == 3 && strcmp(argv[1], "--pool") == 0 && strlen(argv[2]) == 1 && argv[2][0] >= '0' &&
        argv[2][0] <= '0' + (int)BR_POOL_MAX) {
        pool = (unsigned)(argv[2][0] - '0');
        argc = 1;
    }
    if (argc > 1 || fcntl(3, F_GETFD) < 0) {
        fprintf(stderr, "bridle-launch is started by bridled; nothing was done. "
                        "Use 'bridle run', or 'bridle-launch --delegate UID'\n");
        return 2;
    }
    /* a core of it would hold what it has of the host; one of the sandbox is limited by itself */
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    return br_launch_serve(3, &(struct br_host_config){.init_fd = -1, .pool = pool});
}
