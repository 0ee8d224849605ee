/*
 * What lies around a sandbox: files, sockets, a terminal, System V objects, a process; and whether
 * one of them was touched. Part of stage.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/stage_priv.h"

/* ---- files ---- */

static int write_file(const char *path, const char *text, mode_t mode)
{
    BR_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd >= 0 && br_write_all(fd, text, strlen(text)) == 0 ? fchmod(fd, mode) : -1;
}

static int copy_program(const char *name, const char *to_dir, mode_t mode)
{
    char from[BR_PATH_MAX], to[BR_PATH_MAX];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(256u << 20);
    snprintf(from, sizeof(from), "%s/%s", stage_bin(), name);
    snprintf(to, sizeof(to), "%s/%s", to_dir, name);
    BR_CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    BR_CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (in < 0 || out < 0 || br_read_all(in, &b, name, NULL) < 0 ||
        br_write_all(out, b.data, b.len) < 0)
        return -1;
    return fchmod(out, mode);
}

int stage_put(struct stage *s, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", s->ws, name);
    int r = text ? write_file(path, text, 0644) : mkdir(path, 0755);
    return r < 0 || lchown(path, s->owner, s->owner) < 0 ? -1 : 0;
}

int stage_files(struct stage *s)
{
    char own[160];
    uint8_t random[16];
    br_random(random, sizeof(random));
    br_hex(s->token, random, sizeof(random));
    if (br_scratch_make(s->dir, sizeof(s->dir), "/tmp", STAGE_PREFIX) < 0)
        return -1;
    snprintf(s->ws, sizeof(s->ws), "%s/ws", s->dir);
    snprintf(s->outside, sizeof(s->outside), "%s/outside", s->dir);
    snprintf(s->secret, sizeof(s->secret), "%s/secret", s->outside);
    snprintf(own, sizeof(own), "%s/bridle-attack", s->ws);
    /* whoever gets there may do everything: nothing but the sandbox stops an attack */
    if (chmod(s->dir, 0755) < 0 || mkdir(s->ws, 0755) < 0 ||
        lchown(s->ws, s->owner, s->owner) < 0 || mkdir(s->outside, 0700) < 0 ||
        chmod(s->outside, 0777) < 0 || lchown(s->outside, s->owner, s->owner) < 0 ||
        write_file(s->secret, s->token, 0666) < 0 || lchown(s->secret, s->owner, s->owner) < 0 ||
        copy_program("bridle-attack", s->ws, 0755) < 0 || lchown(own, s->owner, s->owner) < 0)
        return -1;
    if (stage_put(s, "readme", "hello\n") < 0 || stage_put(s, "exact", "zero\n") < 0 ||
        stage_put(s, "out", NULL) < 0 || stage_put(s, ".git", NULL) < 0 ||
        stage_put(s, ".git/hooks", NULL) < 0)
        return -1;
    static const char *const programs[] = {"bridle-launch", "bridle-launch-weak", "bridle-init",
                                           "bridle-init-weak"};
    for (unsigned i = 0; s->attack->flags & A_COPY && i < BR_ARRAY_LEN(programs); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", s->dir, programs[i]);
        if (copy_program(programs[i], s->dir, 0777) < 0 || lchown(path, s->owner, s->owner) < 0)
            return -1;
    }
    char example[192];
    snprintf(example, sizeof(example), "%s/kallsyms", s->outside);
    if (write_file(example, "ffffffff81000000 T _text\n", 0644) < 0)
        return -1;
    s->leak = open(s->outside, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->leak < 0 ? -1 : 0;
}

/* ---- sockets ---- */

static int inet_socket(int type, unsigned *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(sa);
    BR_CLEANUP_FD int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        (type == SOCK_STREAM && listen(fd, 8) < 0) ||
        getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
        return -1;
    *port = ntohs(sa.sin_port);
    return br_steal_fd(&fd);
}

static int unix_socket(const char *name, bool abstract)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(sa.sun_path + abstract, name, n + 1);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&sa,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1)) < 0 ||
        listen(fd, 8) < 0 || (!abstract && chmod(name, 0777) < 0))
        return -1;
    return br_steal_fd(&fd);
}

int stage_bait(struct stage *s)
{
    s->tcp = inet_socket(SOCK_STREAM, &s->tcp_port);
    s->udp = inet_socket(SOCK_DGRAM, &s->udp_port);
    snprintf(s->abstract_name, sizeof(s->abstract_name), "bridle-attack-%s", s->token);
    s->abstract = unix_socket(s->abstract_name, true);
    snprintf(s->unix_path, sizeof(s->unix_path), "%s/socket", s->outside);
    s->unix_fd = unix_socket(s->unix_path, false);
    struct sockaddr_in self = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)s->udp_port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    /* so that the host's loopback has seen traffic, even where it has no other interface */
    (void)sendto(s->udp, "", 0, 0, (struct sockaddr *)&self, sizeof(self));
    if (s->tcp < 0 || s->udp < 0 || s->abstract < 0 || s->unix_fd < 0)
        return -1;
    if (!(s->attack->flags & A_IPC))
        return 0;
    for (int tries = 0; tries < 16 && s->shm < 0; tries++) {
        br_random(&s->shm_key, sizeof(s->shm_key));
        s->shm_key &= 0x7fffffff;
        s->shm = shmget(s->shm_key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    }
    s->queue = msgget(s->shm_key, IPC_CREAT | IPC_EXCL | 0666);
    return s->shm < 0 || s->queue < 0 ? -1 : 0;
}

void stage_answer_dns(struct stage *s)
{
    char packet[512];
    struct sockaddr_in from;
    socklen_t n = sizeof(from);
    ssize_t got =
        recvfrom(s->udp, packet, sizeof(packet), MSG_DONTWAIT, (struct sockaddr *)&from, &n);
    if (got > 0)
        (void)sendto(s->udp, packet, (size_t)got, MSG_DONTWAIT, (struct sockaddr *)&from, n);
}

int stage_terminal(struct stage *s)
{
    char name[64];
    int unlock = 0;
    s->pty = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (s->pty < 0 || ioctl(s->pty, TIOCSPTLCK, &unlock) < 0 ||
        ptsname_r(s->pty, name, sizeof(name)) != 0)
        return -1;
    return open(name, O_RDWR | O_CLOEXEC | O_NOCTTY);
}

/* ---- a process ---- */

static int said_fd;

static void said(int sig)
{
    (void)sig;
    (void)!write(said_fd, "!", 1);
}

int stage_victim(struct stage *s)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    s->victim = fork();
    if (s->victim == 0) {
        uid_t uid = s->sandbox_uid;
        said_fd = ends[1];
        br_close_from(3, &said_fd, 1);
        if (setsid() < 0 ||
            (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
                                setresuid(uid, uid, uid) < 0)))
            _exit(1);
        (void)prctl(PR_SET_DUMPABLE, 1);
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where Yama would protect it */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)signal(SIGUSR1, said);
        (void)!write(said_fd, "+", 1);
        for (int i = 0; i < 600; i++)
            sleep(1);
        _exit(0);
    }
    close(ends[1]);
    s->victim_said = ends[0];
    return s->victim > 0 && read(ends[0], &byte, 1) == 1 ? 0 : -1;
}

/* ---- was something touched? ---- */

static bool secret_changed(struct stage *s)
{
    char text[64] = "";
    BR_CLEANUP_FD int fd = open(s->secret, O_RDONLY | O_CLOEXEC);
    return fd < 0 || read(fd, text, sizeof(text) - 1) < 0 || strcmp(text, s->token) != 0;
}

bool stage_harmed(struct stage *s)
{
    char text[4096], path[256];
    struct stat st;
    struct pollfd p = {.fd = s->victim_said, .events = POLLIN};
    if (secret_changed(s)) {
        stage_note(s, "the host's file '%s' was changed", s->secret);
        return true;
    }
    snprintf(path, sizeof(path), "%s/readme", s->ws);
    if (stat(path, &st) < 0 || st.st_size != 6) {
        stage_note(s, "a file of the workspace that is not allowed was changed");
        return true;
    }
    if (s->victim > 0 && poll(&p, 1, 0) == 1) {
        stage_note(s, "a process of the host was signalled");
        return true;
    }
    ssize_t n = s->pty >= 0 ? read(s->pty, text, sizeof(text)) : 0;
    if (n > 0 && memmem(text, (size_t)n, s->token, strlen(s->token))) {
        stage_note(s, "the operator's terminal was written to");
        return true;
    }
    if (s->forged) {
        stage_note(s, "a result that pid 1 never sent was received");
        return true;
    }
    return false;
}

void stage_remove_bait(struct stage *s)
{
    if (s->victim > 0) {
        (void)kill(s->victim, SIGKILL);
        (void)waitpid(s->victim, NULL, 0);
    }
    br_close(&s->victim_said);
    br_close(&s->tcp);
    br_close(&s->udp);
    br_close(&s->abstract);
    br_close(&s->unix_fd);
    br_close(&s->leak);
    br_close(&s->mounts);
    br_close(&s->pty);
    if (s->shm >= 0)
        (void)shmctl(s->shm, IPC_RMID, NULL);
    if (s->queue >= 0)
        (void)msgctl(s->queue, IPC_RMID, NULL);
    if (s->dir[0])
        (void)br_scratch_remove(s->dir);
}

/* ---- the answer of pid 1 ---- */

void stage_parse_result(const char *json, size_t n, struct exec_result *out)
{
    json_t *o = json ? json_loadb(json, n, 0, NULL) : NULL;
    out->kept = n;
    if (!o)
        return;
    const json_t *signal = json_object_get(o, "signal"), *exit = json_object_get(o, "exitCode");
    const char *text = json_string_value(json_object_get(o, "stdout"));
    if (!text)
        text = json_string_value(json_object_get(o, "content"));
    out->exit = exit ? (int)json_integer_value(exit) : -1;
    out->signal = (int)json_integer_value(signal);
    out->timed_out = json_is_true(json_object_get(o, "timedOut"));
    out->truncated = json_is_true(json_object_get(o, "truncated"));
    out->bytes = (uint64_t)json_integer_value(json_object_get(o, "stdoutBytes")) +
                 (uint64_t)json_integer_value(json_object_get(o, "stderrBytes"));
    snprintf(out->line, sizeof(out->line), "%s", text ? text : "");
    json_decref(o);
}
