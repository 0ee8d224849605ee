/*
 * What evil tries to reach, made for a test: sockets that listen, a process, a file. Everything
 * belongs to the user who calls, so that nothing but the confinement is in the way.
 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "confine/test_evil.h"

static int listen_at(int family, const void *addr, socklen_t n)
{
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, addr, n), 0);
    assert_int_equal(listen(s, 8), 0);
    return s;
}

static void write_targets(struct evil_rig *r)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/targets", r->dir);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "%s/socket bridle-evil-%d %s %d %d\n", r->dir, (int)getpid(), r->secret, r->port,
            (int)r->victim);
    assert_int_equal(fclose(f), 0);
}

/* A process that the program would like to end; of its own uid. */
static pid_t make_victim(uid_t uid)
{
    pid_t pid = fork();
    if (pid == 0) {
        if ((uid && setresuid(uid, uid, uid) < 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            _exit(70);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

void evil_rig_make(struct evil_rig *r, uid_t uid)
{
    char cmd[512], path[128];
    struct sockaddr_un u = {.sun_family = AF_UNIX}, a = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(in);
    memset(r, 0, sizeof(*r));
    r->uid = uid;
    snprintf(r->dir, sizeof(r->dir), "/usr/local/lib/bridle-confine-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->evil, sizeof(r->evil), "%s/evil", r->dir);
    snprintf(r->secret, sizeof(r->secret), "/var/tmp/bridle-secret-%d", (int)getpid());
    snprintf(cmd, sizeof(cmd),
             "set -e; cd %s; cp '%s/../tests/confine-evil' evil; chmod 755 . evil; echo s >%s; "
             "chmod 600 %s; mkdir work; chown %u:%u %s work",
             r->dir, getenv("BRIDLE_BIN"), r->secret, r->secret, uid, uid, r->secret);
    assert_int_equal(system(cmd), 0); /* NOLINT(cert-env33-c) */
    snprintf(u.sun_path, sizeof(u.sun_path), "%s/socket", r->dir);
    r->unix_socket = listen_at(AF_UNIX, &u, sizeof(u));
    snprintf(path, sizeof(path), "%s/socket", r->dir);
    assert_int_equal(chown(path, uid, uid) | chmod(path, 0600), 0);
    int k = snprintf(a.sun_path + 1, 100, "bridle-evil-%d", (int)getpid());
    r->abstract =
        listen_at(AF_UNIX, &a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)k));
    r->tcp = listen_at(AF_INET, &in, n);
    assert_int_equal(getsockname(r->tcp, (struct sockaddr *)&in, &n), 0);
    r->port = ntohs(in.sin_port);
    r->victim = make_victim(uid);
    write_targets(r);
}

bool evil_victim_lives(const struct evil_rig *r)
{
    return waitpid(r->victim, NULL, WNOHANG) == 0;
}

unsigned evil_left_over(const struct evil_rig *r)
{
    unsigned n = 0;
    DIR *d = opendir("/proc");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char link[300], exe[256];
        snprintf(link, sizeof(link), "/proc/%s/exe", e->d_name);
        ssize_t k = readlink(link, exe, sizeof(exe) - 1);
        if (k <= 0)
            continue;
        exe[k] = 0;
        if (strcmp(exe, r->evil) == 0 && atoi(e->d_name) > 1) {
            (void)kill(atoi(e->d_name), SIGKILL);
            n++;
        }
    }
    closedir(d);
    return n;
}

void evil_rig_end(struct evil_rig *r)
{
    char cmd[128];
    (void)evil_left_over(r);
    (void)kill(r->victim, SIGKILL);
    (void)waitpid(r->victim, NULL, 0);
    close(r->unix_socket);
    close(r->abstract);
    close(r->tcp);
    snprintf(cmd, sizeof(cmd), "rm -rf %s %s", r->dir, r->secret);
    assert_int_equal(system(cmd), 0); /* NOLINT(cert-env33-c) */
}
