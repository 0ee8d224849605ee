/*
 * The sockets by which a harness reaches its provider and its gate. pid 1 makes them, in a tmpfs
 * that has room for them and nothing else, and hands the listening ends to the session: who accepts
 * is outside. They exist in this sandbox's mount namespace only, so nobody else can name them, and
 * whom a peer connects to is told by what the kernel noted of pid 1 (SO_PEERCRED) when it listened.
 * Called by main.c before anything else runs in here.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "init/init_priv.h"

/* Connections that wait to be accepted: as many as may be in flight at one time. */
#define BACKLOG 128

int br_init_listen(struct br_init *in, const char *word, struct br_err *err)
{
    static const struct {
        const char *word, *path;
    } known[] = {{BR_INIT_PROVIDER, BR_PROVIDER_SOCKET}, {BR_INIT_GATE, BR_GATE_SOCKET}};
    for (unsigned i = 0; i < BR_ARRAY_LEN(known); i++) {
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        if (strcmp(word, known[i].word) != 0 || in->sockets[i] >= 0)
            continue;
        snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", known[i].path);
        BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        /* who reads is told who sent each piece, from the first connection on */
        const int on = 1;
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
            bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, BACKLOG) < 0)
            return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                                "the socket '%s' of the sandbox could not be made", known[i].path);
        in->sockets[i] = br_steal_fd(&fd);
        return 0;
    }
    return br_err_set(err, BR_E_USAGE, "'%s' is no socket that this program can make, or one twice",
                      br_init_shown(word).text);
}
