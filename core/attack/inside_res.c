/*
 * Attacks from inside on resources. Each stops by itself a little beyond its limit, so that it does
 * no harm where there is none: that is the control. Part of bridle-attack.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attack/inside.h"

/* As many processes at once as `n`. */
static int forks(void)
{
    long want = in_number("n"), got = 0;
    int e = 0;
    for (; got < want; got++) {
        pid_t pid = fork();
        if (pid == 0) {
            sleep(20);
            _exit(0);
        }
        if (pid < 0) {
            e = errno;
            break;
        }
    }
    return got == want ? in_through("%ld processes at once", got)
                       : in_blocked("%ld processes, then %s", got, strerror(e));
}

static int threads_of_zombies(void)
{
    long want = in_number("n"), got = 0;
    for (; got < want; got++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        if (pid < 0)
            break;
    }
    return got == want ? in_through("%ld zombies", got)
                       : in_blocked("%ld zombies, then %s", got, strerror(errno));
}

static void touch_all(char *p, size_t n)
{
    for (size_t i = 0; i < n; i += 4096)
        p[i] = 1;
}

/* Memory that is really used; whoever takes too much is killed. */
static int in_child(void (*fn)(size_t), size_t bytes)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        fn(bytes);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return in_failed("%s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return in_through("%zu MiB were used", bytes >> 20);
    return in_blocked("stopped: %s", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "refused");
}

static void use_anonymous(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(1);
    touch_all(p, bytes);
}

static void use_shm(size_t bytes)
{
    int id = shmget(IPC_PRIVATE, bytes, 0600);
    char *p = id >= 0 ? shmat(id, NULL, 0) : (void *)-1;
    if (id >= 0)
        shmctl(id, IPC_RMID, NULL);
    if (p == (void *)-1)
        _exit(1);
    touch_all(p, bytes);
}

static void use_memfd(size_t bytes)
{
    int fd = memfd_create("x", 0);
    char *p = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                  ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                  : MAP_FAILED;
    if (p == MAP_FAILED)
        _exit(1);
    touch_all(p, bytes);
}

static int memory(void)
{
    return in_child(use_anonymous, (size_t)in_number("bytes"));
}

static int memory_shm(void)
{
    return in_child(use_shm, (size_t)in_number("bytes"));
}

static int memory_memfd(void)
{
    return in_child(use_memfd, (size_t)in_number("bytes"));
}

/* One end of a connection on loopback, which nobody reads, filled as far as it goes. */
static long fill_connection(int listener, const struct sockaddr_in *to)
{
    static char chunk[65536];
    long sum = 0;
    ssize_t n;
    int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c < 0 || connect(c, (const struct sockaddr *)to, sizeof(*to)) < 0 ||
        accept(listener, NULL, NULL) < 0)
        return -1;
    while ((n = send(c, chunk, sizeof(chunk), MSG_DONTWAIT)) > 0)
        sum += n;
    return sum;
}

/* A process that holds as many as its descriptors allow, and says how much is in them. */
_Noreturn static void hold_connections(int said)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(to);
    long sum = 0, more;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l < 0 || bind(l, (struct sockaddr *)&to, len) < 0 || listen(l, 8) < 0 ||
        getsockname(l, (struct sockaddr *)&to, &len) < 0)
        sum = -1;
    for (int i = 0; sum >= 0 && i < 20 && (more = fill_connection(l, &to)) >= 0; i++)
        sum += more;
    (void)!write(said, &sum, sizeof(sum));
    for (;;)
        pause();
}

static int memory_sockets(void)
{
    long want = in_number("bytes"), sum = 0, more = 0;
    pid_t pids[8];
    int n = 0, ends[2];
    for (; sum < want && n < 8; n++) {
        if (pipe(ends) < 0 || (pids[n] = fork()) < 0)
            break;
        if (pids[n] == 0)
            hold_connections(ends[1]);
        close(ends[1]);
        ssize_t got = read(ends[0], &more, sizeof(more)); /* nothing: it was killed */
        close(ends[0]);
        if (got == (ssize_t)sizeof(more) && more < 0)
            return in_failed("no connection on loopback");
        sum += got == (ssize_t)sizeof(more) ? more : 0;
    }
    while (n-- > 0)
        kill(pids[n], SIGKILL);
    return sum >= want ? in_through("%ld MiB wait in sockets", sum >> 20)
                       : in_blocked("%ld MiB wait in sockets, no more", sum >> 20);
}

static int descriptors(void)
{
    long want = in_number("n"), got = 0;
    while (got < want && open("/dev/null", O_RDONLY) >= 0)
        got++;
    return got == want ? in_through("%ld descriptors", got)
                       : in_blocked("%ld descriptors, then %s", got, strerror(errno));
}

/* The hard limit cannot be raised again. */
static int raise_limits(void)
{
    struct rlimit l = {RLIM_INFINITY, RLIM_INFINITY};
    static const int what[] = {RLIMIT_FSIZE, RLIMIT_CORE};
    for (unsigned i = 0; i < 2; i++)
        if (setrlimit((__rlimit_resource_t)what[i], &l) == 0)
            return in_through("a limit was raised to infinity");
    return in_blocked("%s", strerror(errno));
}

/* Fill a directory with bytes or with empty files. */
static int fill_bytes(void)
{
    static char chunk[65536];
    char path[4096];
    long want = in_number("bytes"), got = 0;
    snprintf(path, sizeof(path), "%s/fill", in_need("where"));
    signal(SIGXFSZ, SIG_IGN);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return in_failed("%s", strerror(errno));
    (void)unlink(path); /* deleted and open: counts all the same */
    while (got < want) {
        ssize_t n = write(fd, chunk, sizeof(chunk));
        if (n <= 0)
            return in_blocked("%ld bytes, then %s", got, strerror(errno));
        got += n;
    }
    return in_through("%ld bytes", got);
}

static int fill_inodes(void)
{
    char path[4096];
    long want = in_number("n");
    for (long i = 0; i < want; i++) {
        snprintf(path, sizeof(path), "%s/f%ld", in_need("where"), i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return in_blocked("%ld files, then %s", i, strerror(errno));
        close(fd);
    }
    return in_through("%ld files", want);
}

/* One file beyond the limit, without using disk for it. */
static int file_size(void)
{
    long limit = in_number("bytes");
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("/workspace/out/big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return in_failed("%s", strerror(errno));
    if (pwrite(fd, "x", 1, limit) == 1 || ftruncate(fd, limit + 1) == 0 ||
        fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, limit + 4096) == 0)
        return in_through("a file grew beyond %ld bytes", limit);
    return in_blocked("%s", strerror(errno));
}

/* Several files, each within the limit: an allowed path has no total. */
static int files_total(void)
{
    char path[64];
    long each = in_number("bytes");
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "/workspace/out/part%d", i);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || ftruncate(fd, each) < 0)
            return in_blocked("%s", strerror(errno));
        close(fd);
    }
    return in_through("three files of %ld bytes each", each);
}

/* This much time of the processor, however long it takes; throttling is seen from outside. */
static int spin(void)
{
    struct timespec t;
    long ms = in_number("ms");
    do {
        for (volatile int i = 0; i < 100000; i++)
            ;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
    return in_through("%ld ms of CPU time were used", ms);
}

static int flood(void)
{
    static char chunk[65536];
    long want = in_number("bytes");
    memset(chunk, 'x', sizeof(chunk));
    for (long got = 0; got < want; got += (long)sizeof(chunk))
        if (write(1, chunk, sizeof(chunk)) < 0 || write(2, chunk, sizeof(chunk)) < 0)
            return in_blocked("%s", strerror(errno));
    return in_through("written");
}

/* Does not end, and hears no signal. */
_Noreturn static int stubborn(void)
{
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_IGN);
    printf("waiting\n");
    fflush(stdout);
    for (;;)
        pause();
}

/* The same, while other processes keep every CPU busy, and pid 1 is put behind all of them, if that
 * is allowed. */
static int stubborn_spinning(void)
{
    struct sched_param none = {0};
    (void)sched_setscheduler(1, SCHED_IDLE, &none);
    (void)setpriority(PRIO_PROCESS, 1, 19);
    (void)setpriority(PRIO_PGRP, 1, 19);
    for (int i = 0; i < 16; i++)
        if (fork() == 0) {
            for (int s = 1; s < NSIG; s++)
                (void)signal(s, SIG_IGN);
            for (volatile unsigned n = 0;; n++)
                ;
        }
    return stubborn();
}

/* Leaves a grandchild in a session of its own that holds the pipes, and ends. */
static int daemon_left(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() == 0) {
            for (int s = 1; s < NSIG; s++)
                (void)signal(s, SIG_IGN);
            int fd = open("/workspace/out/alive", O_WRONLY | O_CREAT | O_APPEND, 0644);
            for (int i = 0; i < 200; i++) {
                (void)!write(fd, "x", 1);
                usleep(20000);
            }
        }
        _exit(0);
    }
    usleep(50000);
    return in_blocked("a daemon was left");
}

static int inotify(void)
{
    long got = 0, want = in_number("n");
    while (got < want && inotify_init1(IN_CLOEXEC) >= 0)
        got++;
    return got == want ? in_through("%ld inotify instances", got)
                       : in_blocked("%ld instances, then %s", got, strerror(errno));
}

static int pipes(void)
{
    int ends[2];
    long got = 0;
    while (pipe(ends) == 0) {
        (void)fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
        got++;
    }
    return in_blocked("%ld pipes, then %s", got, strerror(errno));
}

const struct in_attack in_res[] = {
    {"forks", forks},
    {"zombies", threads_of_zombies},
    {"memory", memory},
    {"memory-shm", memory_shm},
    {"memory-memfd", memory_memfd},
    {"memory-sockets", memory_sockets},
    {"descriptors", descriptors},
    {"raise-limits", raise_limits},
    {"fill-bytes", fill_bytes},
    {"fill-inodes", fill_inodes},
    {"file-size", file_size},
    {"files-total", files_total},
    {"spin", spin},
    {"flood", flood},
    {"stubborn", stubborn},
    {"stubborn-spinning", stubborn_spinning},
    {"daemon", daemon_left},
    {"inotify", inotify},
    {"pipes", pipes},
    {NULL, NULL},
};
