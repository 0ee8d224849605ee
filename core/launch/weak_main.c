/*
 * bridle-launch-weak: bridle-launch with locks left out, one name each, for the positive controls
 * of `bridle selftest --attack`. It serves nobody but bridle-selftest: it wants the names as its
 * argument, a channel as descriptor 3 that its own parent made, and that parent to be a
 * bridle-selftest that the same user runs. bridled neither knows nor starts it.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/launch.h"
#include "sandbox/weak.h"

static bool is_selftest(pid_t parent)
{
    char link[64], exe[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/%d/exe", (int)parent);
    ssize_t n = readlink(link, exe, sizeof(exe) - 1);
    if (n <= 0)
        return false;
    exe[n] = 0;
    char *slash = strrchr(exe, '/');
    return slash && strcmp(slash, "/bridle-selftest") == 0;
}

static bool started_by_selftest(void)
{
    struct ucred peer;
    int type = 0;
    socklen_t n = sizeof(peer), m = sizeof(type);
    return getsockopt(3, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
           getsockopt(3, SOL_SOCKET, SO_TYPE, &type, &m) == 0 && type == SOCK_SEQPACKET &&
           peer.pid == getppid() && peer.uid == getuid() && is_selftest(peer.pid);
}

int main(int argc, char **argv)
{
    br_log_init("bridle-launch-weak", BR_LOG_INFO);
    if (argc != 3 || strcmp(argv[1], "--weakened") != 0 || !started_by_selftest() ||
        br_weak_parse(argv[2]) < 0) {
        fprintf(stderr, "bridle-launch-weak makes sandboxes with locks left out, for the controls "
                        "of 'bridle selftest --attack', and is started by nothing else; nothing "
                        "was done\n");
        return 2;
    }
    return br_launch_serve(3, &(struct br_host_config){.init_fd = -1});
}
