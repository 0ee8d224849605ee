/*
 * What a program does that hostile bytes have taken over, for tests: it stands for gzip, umoci or
 * e2fsck, tries to reach what the file "targets" beside it names, and says in one line on stderr
 * what it got. Started without confinement it gets everything, which is the control.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct targets {
    char socket[108], abstract[100], file[256];
    int port, victim;
};

static int read_targets(struct targets *t)
{
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 16);
    if (n <= 0)
        return -1;
    path[n] = 0;
    char *end = strrchr(path, '/');
    if (!end)
        return -1;
    memcpy(end, "/targets", 9);
    FILE *f = fopen(path, "re");
    int got = f ? fscanf(f, "%107s %99s %255s %d %d", t->socket, t->abstract, t->file, &t->port,
                         &t->victim)
                : 0;
    if (f)
        (void)fclose(f);
    return got == 5 && t->victim > 1 ? 0 : -1;
}

static int to_socket(const char *name, int is_abstract)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(a.sun_path + is_abstract, name, n);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = s < 0 ? -1
                  : connect(s, (struct sockaddr *)&a,
                            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1));
    if (s >= 0)
        (void)close(s);
    return r;
}

static int to_port(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = s < 0 ? -1 : connect(s, (struct sockaddr *)&a, sizeof(a));
    if (s >= 0)
        (void)close(s);
    return r;
}

static int opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)close(fd);
    return fd < 0 ? -1 : 0;
}

/* Somebody who stays when this has ended. */
static int stays(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        if (fork() == 0) {
            for (int i = 0; i < 4; i++)
                (void)close(i);
            (void)sleep(300);
        }
        _exit(0);
    }
    return pid < 0 || waitpid(pid, NULL, 0) != pid ? -1 : 0;
}

static int has_memory(void)
{
    return mmap(NULL, 64ul << 30, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED
               ? -1
               : 0;
}

int main(void)
{
    struct targets t;
    char got[512] = "";
    size_t n = 0;
    unsigned uid = (unsigned)getuid();
    if (read_targets(&t) < 0) {
        (void)fprintf(stderr, "evil has no targets: %s\n", strerror(errno));
        return 9;
    }
#define TRY(name, expr)                                                                            \
    if ((expr) == 0)                                                                               \
    n += (size_t)snprintf(got + n, sizeof(got) - n, " " name)
    TRY("unix", to_socket(t.socket, 0));
    TRY("abstract", to_socket(t.abstract, 1));
    TRY("tcp", to_port(t.port));
    TRY("kill", kill(t.victim, SIGKILL));
    TRY("stay", stays());
    TRY("write", opens(t.file, O_WRONLY | O_APPEND));
    TRY("read", opens(t.file, O_RDONLY));
    TRY("create", opens("/var/tmp/bridle-evil", O_WRONLY | O_CREAT));
    TRY("shadow", opens("/etc/shadow", O_RDONLY));
    TRY("memory", has_memory());
    TRY("userns", unshare(CLONE_NEWUSER));
    TRY("trace", (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    (void)unlink("/var/tmp/bridle-evil");
    (void)fprintf(stderr, "evil uid=%u got:%s.\n", uid, got);
    return 3;
}
