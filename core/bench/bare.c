/*
 * The baseline that bridle-launch is measured against: one file, no library, no plan, no leases,
 * nothing measured, nothing verified. All seven namespaces, an id map, a tmpfs root with the host's
 * /usr read-only, /proc, /tmp, a minimal /dev, pivot_root, limits of memory, processes and CPU
 * (where the host has them as cgroup version 1), capabilities dropped, no_new_privs, Landlock and a
 * small seccomp filter; written the way somebody would who wants it fast and correct.
 *
 * Called by the benches, in their own process. As root the ids map to uid 1000, otherwise to the
 * caller. Nothing of the product links it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bare.h"

#define DIE(what)                                                                                  \
    do {                                                                                           \
        perror(what);                                                                              \
        _exit(70);                                                                                 \
    } while (0)

#define REFUSE(name)                                                                               \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (name), 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    REFUSE(SYS_mount),
    REFUSE(SYS_umount2),
    REFUSE(SYS_pivot_root),
    REFUSE(SYS_move_mount),
    REFUSE(SYS_open_tree),
    REFUSE(SYS_fsopen),
    REFUSE(SYS_mount_setattr),
    REFUSE(SYS_unshare),
    REFUSE(SYS_setns),
    REFUSE(SYS_clone3),
    REFUSE(SYS_ptrace),
    REFUSE(SYS_bpf),
    REFUSE(SYS_perf_event_open),
    REFUSE(SYS_userfaultfd),
    REFUSE(SYS_io_uring_setup),
    REFUSE(SYS_add_key),
    REFUSE(SYS_request_key),
    REFUSE(SYS_keyctl),
    REFUSE(SYS_kexec_load),
    REFUSE(SYS_init_module),
    REFUSE(SYS_finit_module),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void write_file(pid_t pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        DIE(path);
    close(fd);
}

static void bind_ro(const char *from, const char *to)
{
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0 ||
        mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        DIE(to);
}

static void device(const char *from, const char *to)
{
    int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || mount(from, to, NULL, MS_BIND, NULL) < 0)
        DIE(to);
    close(fd);
}

static void make_root(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m") < 0 ||
        chdir("/tmp") < 0)
        DIE("root");
    static const char *const dirs[] = {"usr", "proc", "tmp", "dev", "old"};
    for (unsigned i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        if (mkdir(dirs[i], 0755) < 0)
            DIE(dirs[i]);
    if (symlink("usr/bin", "bin") < 0 || symlink("usr/lib", "lib") < 0 ||
        symlink("usr/lib64", "lib64") < 0 || symlink("usr/sbin", "sbin") < 0)
        DIE("symlink");
    bind_ro("/usr", "usr");
    device("/dev/null", "dev/null");
    device("/dev/zero", "dev/zero");
    device("/dev/urandom", "dev/urandom");
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
        mount("tmpfs", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m,nr_inodes=20000"))
        DIE("mounts");
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ||
        mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
        DIE("pivot_root");
}

/* Writing only below /tmp. */
static void landlock(void)
{
    uint64_t writing = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                       LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                       LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                       LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                       LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
    struct landlock_ruleset_attr attr = {.handled_access_fs = writing};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);
    if (rules < 0)
        return; /* this kernel has none */
    struct landlock_path_beneath_attr rule = {.allowed_access = writing,
                                              .parent_fd = open("/tmp", O_PATH | O_CLOEXEC)};
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        DIE("landlock");
    close(rule.parent_fd);
    close(rules);
}

static void confine(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    struct sock_fprog prog = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
        ;
    if (syscall(SYS_capset, &head, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        DIE("confine");
    landlock();
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        DIE("confine");
}

/* ---- limits, version 1 ---- */

static const struct {
    const char *controller, *file, *value;
} limits[] = {
    {"memory", "memory.limit_in_bytes", "2147483648"},
    {"memory", "memory.memsw.limit_in_bytes", "2147483648"},
    {"pids", "pids.max", "256"},
    {"cpu", "cpu.cfs_quota_us", "200000"},
};
static const char *const controllers[] = {"memory", "pids", "cpu"};
enum { CONTROLLERS = sizeof(controllers) / sizeof(controllers[0]) };
static int places[CONTROLLERS] = {-1, -1, -1};

bool bench_bare_limits(void)
{
    char line[512], path[1024];
    FILE *f = fopen("/proc/self/cgroup", "re");
    unsigned found = 0;
    while (f && fgets(line, sizeof(line), f))
        for (unsigned i = 0; i < CONTROLLERS; i++) {
            char list[256], own[256];
            if (sscanf(line, "%*d:%255[^:]:%255s", list, own) != 2 ||
                strcmp(list, controllers[i]) != 0)
                continue;
            snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s", controllers[i], own);
            places[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            found += places[i] >= 0 && faccessat(places[i], ".", W_OK, AT_EACCESS) == 0;
        }
    if (f)
        fclose(f);
    return found == CONTROLLERS;
}

static void put(unsigned controller, const char *name, const char *file, const char *value)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", name, file);
    int fd = openat(places[controller], path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        perror(path);
    close(fd);
}

static void make_limits(const char *name)
{
    for (unsigned i = 0; i < CONTROLLERS; i++) {
        if (mkdirat(places[i], name, 0755) < 0)
            perror(name);
        for (unsigned k = 0; k < sizeof(limits) / sizeof(limits[0]); k++)
            if (strcmp(limits[k].controller, controllers[i]) == 0)
                put(i, name, limits[k].file, limits[k].value);
    }
}

static void join(pid_t pid, const char *name)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", (int)pid);
    for (unsigned i = 0; i < CONTROLLERS; i++)
        put(i, name, "cgroup.procs", text);
}

/* Who has one thread and joins by itself waits for nobody. */
static void open_tasks(const char *name, int tasks[CONTROLLERS])
{
    char path[128];
    snprintf(path, sizeof(path), "%s/tasks", name);
    for (unsigned i = 0; i < CONTROLLERS; i++)
        if ((tasks[i] = openat(places[i], path, O_WRONLY | O_CLOEXEC)) < 0)
            perror(path);
}

/* ---- one sandbox ---- */

static _Noreturn void child(int go, const int *tasks, int program, char *const *argv)
{
    char word;
    char *const envp[] = {NULL};
    if (read(go, &word, 1) != 1)
        _exit(70);
    for (unsigned i = 0; tasks && i < CONTROLLERS; i++)
        if (write(tasks[i], "0", 1) != 1)
            DIE("tasks");
    if (setresgid(1000, 1000, 1000) < 0 || setresuid(1000, 1000, 1000) < 0 || setsid() < 0 ||
        sethostname("bare", 4) < 0)
        DIE("identity");
    make_root();
    confine();
    syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
    DIE("exec");
}

int bench_bare(int program, char *const *argv, enum bare_limits how, uint64_t *exit_us)
{
    static unsigned number;
    int pipefd[2], tasks[CONTROLLERS] = {-1, -1, -1}, status = 0;
    char map[64], name[64];
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return -1;
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                       CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
                              .exit_signal = SIGCHLD};
    snprintf(name, sizeof(name), "bridle-bench.%d.%u", (int)getpid(), number++);
    if (how == BARE_ITSELF) {
        make_limits(name);
        open_tasks(name, tasks);
    }
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0)
        return -1;
    if (pid == 0) {
        close(pipefd[1]);
        child(pipefd[0], how == BARE_ITSELF ? tasks : NULL, program, argv);
    }
    close(pipefd[0]);
    for (unsigned i = 0; how == BARE_ITSELF && i < CONTROLLERS; i++)
        close(tasks[i]);
    if (how == BARE_LIMITS) {
        make_limits(name);
        join((pid_t)pid, name);
    }
    snprintf(map, sizeof(map), "1000 %u 1", geteuid() ? (unsigned)geteuid() : 1000u);
    write_file((pid_t)pid, "uid_map", map);
    write_file((pid_t)pid, "setgroups", "deny");
    snprintf(map, sizeof(map), "1000 %u 1", getegid() ? (unsigned)getegid() : 1000u);
    write_file((pid_t)pid, "gid_map", map);
    if (write(pipefd[1], "g", 1) != 1)
        perror("go");
    close(pipefd[1]);
    while (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)
        ;
    *exit_us = br_now_us();
    for (unsigned i = 0; how != BARE_FREE && i < CONTROLLERS; i++)
        if (unlinkat(places[i], name, AT_REMOVEDIR) < 0)
            perror(name);
    return status;
}
