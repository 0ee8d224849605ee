/*
 * Attacks from inside on what the kernel counts for more than one sandbox: take all there is, say
 * so in a file, and keep it until somebody outside has looked. Part of bridle-attack.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/inside.h"

#define HELD "/workspace/out/held"
#define DONE "/workspace/out/done"
#define PATIENCE_MS 10000
#define HOLDERS 24 /* processes, where one has not descriptors enough */
#define MESSAGES 8 /* that a socket takes unread */
#define EACH 250   /* descriptors in one of them */

static void until_done(void)
{
    for (int ms = 0; ms < PATIENCE_MS && access(DONE, F_OK) < 0; ms += 10)
        usleep(10000);
}

static int hold(const char *what, long n)
{
    int fd = open(HELD, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return in_failed("'%s' could not be made", HELD);
    (void)close(fd);
    until_done();
    return in_blocked("%ld %s were held", n, what);
}

static int inotify_hold(void)
{
    long all = 0;
    pid_t pids[HOLDERS];
    int holders = 0;
    for (long got = 1; got > 0 && holders < HOLDERS; holders++) {
        int said[2];
        if (pipe(said) < 0)
            return in_failed("no pipe");
        pids[holders] = fork();
        if (pids[holders] == 0) {
            for (got = 0; inotify_init1(IN_CLOEXEC) >= 0;)
                got++;
            (void)!write(said[1], &got, sizeof(got));
            until_done();
            _exit(0);
        }
        (void)close(said[1]);
        if (pids[holders] < 0 || read(said[0], &got, sizeof(got)) != sizeof(got))
            return in_failed("no process");
        (void)close(said[0]);
        all += got;
    }
    int r = hold("inotify instances", all);
    while (holders > 0)
        (void)waitpid(pids[--holders], NULL, 0);
    return r;
}

static int send_many(int to, int fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * EACH)];
    } ctl;
    memset(&ctl, 0, sizeof(ctl));
    struct iovec iov = {.iov_base = (char[]){'x'}, .iov_len = 1};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = ctl.space,
                        .msg_controllen = sizeof(ctl.space)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&mh);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int) * EACH);
    for (int i = 0; i < EACH; i++)
        memcpy(CMSG_DATA(h) + (size_t)i * sizeof(int), &fd, sizeof(int));
    return sendmsg(to, &mh, MSG_DONTWAIT) < 0 ? -1 : 0;
}

static int in_flight_hold(void)
{
    int pair[2], fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    long n = 0;
    while (fd >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0)
        for (int i = 0; i < MESSAGES; i++) {
            if (send_many(pair[0], fd) < 0)
                return hold("descriptors on their way", n);
            n += EACH;
        }
    return in_failed("there is no end of descriptors on their way");
}

const struct in_attack in_count[] = {
    {"inotify-hold", inotify_hold},
    {"in-flight-hold", in_flight_hold},
    {NULL, NULL},
};
