/*
 * Child programs that take hostile archives apart (skopeo, umoci, tar, mkfs.erofs, decompressors).
 * Called by bridle-image. Each runs with a fixed argument vector and environment, in the import's
 * private directory, without capabilities and new privileges, and under Landlock: it can write only
 * below that directory, make no device file anywhere, and read only that and the system's programs.
 * So whatever an archive makes it do, nothing outside is changed. What it writes is measured while
 * it runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/make_priv.h"

#define LOOK_MS 100             /* how often what it wrote is measured */
#define SLACK_BYTES (64u << 20) /* beyond the image's files: headers, checksums, metadata */
#define SLACK_ENTRIES 4096u
#define STAY_MS 10000 /* for a trusted one to clean up after itself */

/* Directories within the reach of a child, for programs and libraries: nothing personal. */
static const char *const readable[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/containers",
    "/proc",
    "/dev/urandom",
};

#define WRITE_RIGHTS                                                                               \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                               \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |  \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_MAKE_SOCK)
#define READ_RIGHTS                                                                                \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define DEVICE_RIGHTS (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK)
#define RIGHT_REFER (1ULL << 13)
#define RIGHT_TRUNCATE (1ULL << 14)

const char *br_tool_dirs = "/usr/bin:/bin:/usr/sbin:/sbin";

/* ---- in the child ---- */

static int allow(int rules, int fd, uint64_t rights)
{
    struct stat st;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    if (fstat(fd, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        rule.allowed_access &= LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |
                               LANDLOCK_ACCESS_FS_EXECUTE | RIGHT_TRUNCATE;
    return (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

static int allow_path(int rules, const char *path, uint64_t rights)
{
    BR_CLEANUP_FD int fd = open(path, O_PATH | O_CLOEXEC);
    return fd < 0 ? 0 : allow(rules, fd, rights); /* what is not there needs no rule */
}

static int landlock(const struct br_work *w, const struct br_tool *t)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    uint64_t own = WRITE_RIGHTS | READ_RIGHTS | RIGHT_REFER | (abi >= 3 ? RIGHT_TRUNCATE : 0);
    struct landlock_ruleset_attr attr = {.handled_access_fs = own | DEVICE_RIGHTS};
    if (abi < 2) { /* the first version forbids hard links between directories */
        errno = EOPNOTSUPP;
        return -1;
    }
    BR_CLEANUP_FD int rules =
        (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);
    int r = rules < 0 ? -1 : allow(rules, w->fd, own);
    for (unsigned i = 0; r == 0 && i < BR_ARRAY_LEN(readable); i++)
        r = allow_path(rules, readable[i], READ_RIGHTS);
    if (r == 0)
        r = allow_path(rules, "/dev/null",
                       LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
    if (r == 0 && t->read_dir >= 0)
        r = allow(rules, t->read_dir, LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR);
    return r < 0 ? r : (int)syscall(SYS_landlock_restrict_self, rules, 0);
}

/* Of root's capabilities only to read what others own, and that only to pack a directory. */
static int drop_capabilities(bool reads)
{
    uint32_t keep = reads && geteuid() == 0 ? 1u << CAP_DAC_READ_SEARCH : 0;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {{.effective = keep, .permitted = keep}};
    for (int cap = 0; cap < 64; cap++)
        if ((cap >= 32 || !(keep & 1u << cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* EINVAL: the kernel knows no more; EPERM: an ordinary user has none */
    return (int)syscall(SYS_capset, &head, caps);
}

static void limit(int what, uint64_t value)
{
    struct rlimit l = {.rlim_cur = value, .rlim_max = value};
    (void)setrlimit(what, &l);
}

static const char *passed(const char *name, char *dst, size_t cap)
{
    const char *v = getenv(name);
    int n = v ? snprintf(dst, cap, "%s=%s", name, v) : -1;
    return n > 0 && (size_t)n < cap ? dst : NULL;
}

/* Where mmdebstrap makes its tree: in the private directory, which is swept. An ordinary user's ids
 * of /etc/subuid cannot reach that. */
static const char *own_tmpdir(const struct br_work *w)
{
    static char text[BR_PATH_MAX + 8] = "TMPDIR=";
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", w->fd);
    ssize_t n = geteuid() == 0 ? readlink(link, text + 7, BR_PATH_MAX) : -1;
    if (n <= 0 || n == BR_PATH_MAX)
        return "TMPDIR=/tmp";
    text[7 + n] = 0;
    return text;
}

static _Noreturn void child(const struct br_work *w, const struct br_tool *t, const char *path,
                            int null, int talk)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "no_proxy"};
    static char values[BR_ARRAY_LEN(proxies)][1024];
    const char *env[8] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/nonexistent",
                          t->trusted ? own_tmpdir(w) : "TMPDIR=."};
    unsigned n = 4;
    for (unsigned i = 0; t->trusted && i < BR_ARRAY_LEN(proxies); i++)
        if (passed(proxies[i], values[i], sizeof(values[i])))
            env[n++] = values[i];
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || fchdir(w->fd) < 0)
        _exit(126);
    umask(022);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, w->max_bytes + SLACK_BYTES);
    if (!t->trusted) {
        bool ok = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && landlock(w, t) == 0 &&
                  drop_capabilities(t->read_dir >= 0) == 0;
        if (!ok) {
            (void)dprintf(talk, "Landlock could not be applied: %s\n", strerror(errno));
            _exit(125);
        }
    }
    if (dup2(t->in < 0 ? null : t->in, 0) < 0 || dup2(t->out < 0 ? null : t->out, 1) < 0 ||
        dup2(talk, 2) < 0)
        _exit(126);
    if (t->read_dir >= 0 && dup2(t->read_dir, 3) < 0)
        _exit(126);
    br_close_from(t->read_dir >= 0 ? 4 : 3, NULL, 0);
    execve(path, (char *const *)(uintptr_t)t->argv, (char *const *)(uintptr_t)env);
    _exit(127);
}

/* ---- in bridle-image ---- */

int br_tool_find(const char *program, const char *package, char path[BR_PATH_MAX],
                 struct br_err *err)
{
    for (const char *at = br_tool_dirs; *at;) {
        size_t n = strcspn(at, ":");
        snprintf(path, BR_PATH_MAX, "%.*s/%s", (int)n, at, program);
        if (access(path, X_OK) == 0)
            return 0;
        at += n + (at[n] == ':');
    }
    return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                      "'%s' is not installed; no image was made. As root: apt-get install %s",
                      program, package);
}

struct usage {
    uint64_t bytes, entries;
};

static int count(void *ctx, struct br_walk_entry *e, struct br_err *err)
{
    struct usage *u = ctx;
    (void)err;
    u->bytes += (uint64_t)e->st.st_blocks * 512;
    u->entries++;
    return br_image_stop ? -BR_E_CANCELED : 0;
}

static int check_usage(const struct br_work *w, const struct br_tool *t, const struct usage *before,
                       struct br_err *err)
{
    struct usage now = {0, 0};
    unsigned copies = t->trusted ? 4 : 1; /* it has the packages, the tree and the archive */
    int r = br_walk(w->fd, true, count, &now, err);
    if (r == -BR_E_LIMIT_EXCEEDED)
        return br_err_wrap(err, "no image was made");
    if (now.bytes <= before->bytes + copies * w->max_bytes + SLACK_BYTES &&
        now.entries <= before->entries + copies * w->max_entries + SLACK_ENTRIES)
        return 0;
    return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                      "the image is larger than %llu bytes or %llu files; no image was made",
                      (unsigned long long)w->max_bytes, (unsigned long long)w->max_entries);
}

/* What a program says on stderr: its end is kept. */
struct talk {
    int fd;
    char text[2048];
    size_t n;
};

static void listen_to(struct talk *t)
{
    char chunk[1024];
    ssize_t n = read(t->fd, chunk, sizeof(chunk));
    if (n <= 0) {
        if (n == 0 || (errno != EINTR && errno != EAGAIN))
            br_close(&t->fd);
        return;
    }
    size_t k = (size_t)n, room = sizeof(t->text) - 1 - t->n;
    if (k > room) {
        size_t cut = k - room;
        memmove(t->text, t->text + cut, t->n - cut);
        t->n -= cut;
    }
    memcpy(t->text + t->n, chunk, k);
    t->n += k;
    t->text[t->n] = 0;
}

/* The last line that says something. */
static void last_line(struct talk *t, struct br_buf *out)
{
    while (t->n && (t->text[t->n - 1] == '\n' || t->text[t->n - 1] == ' '))
        t->text[--t->n] = 0;
    const char *line = strrchr(t->text, '\n');
    line = line ? line + 1 : t->text;
    line += strspn(line, " \xe2\xa8\xaf\x1b[0123456789;m"); /* what decorates it */
    (void)br_buf_put_visible(out, line, strnlen(line, 400), true);
}

static int judge(const struct br_tool *t, int status, struct talk *talk, struct br_err *err)
{
    if (t->any_status || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return 0;
    BR_CLEANUP_BUF struct br_buf said = BR_BUF_INIT(4096);
    last_line(talk, &said);
    const char *text = br_buf_cstr(&said);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 125)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "%s; no image was made. Use Linux 5.19 or newer with Landlock "
                          "(lsm=landlock,... on the kernel's command line)",
                          text);
    if ((WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ) || strcasestr(text, "file too large"))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the image has a file that is larger than an image may be; no image was "
                          "made");
    return br_err_set(err, t->trusted ? BR_E_FAILED : BR_E_INVALID_IMAGE,
                      "'%s' refused it; no image was made. It said: %s", t->argv[0],
                      text && *text ? text : "(nothing)");
}

/* Kill the whole group; a trusted program gets time to remove what it made elsewhere. */
static void stop_child(const struct br_tool *t, pid_t pid, int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    if (t->trusted) {
        (void)kill(-pid, SIGTERM);
        (void)poll(&p, 1, STAY_MS);
    }
    (void)kill(-pid, SIGKILL);
}

/* Wait for its end. 0 or why it was killed. */
static int watch(const struct br_work *w, const struct br_tool *t, int pidfd, struct talk *talk,
                 const struct usage *before, struct br_err *err)
{
    uint64_t next = br_now_us() + LOOK_MS * 1000u;
    for (;;) {
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = talk->fd, .events = POLLIN}};
        (void)poll(p, 2, LOOK_MS);
        if (br_image_stop)
            return br_err_set(err, BR_E_CANCELED, "canceled; no image was made");
        if (talk->fd >= 0 && p[1].revents)
            listen_to(talk);
        if (p[0].revents)
            return 0;
        if (br_now_us() < next)
            continue;
        uint64_t began = br_now_us();
        int r = check_usage(w, t, before, err);
        if (r < 0)
            return r;
        /* a large tree takes long to measure: not more than a fifth of the time */
        next = br_now_us() + LOOK_MS * 1000u + 4 * (br_now_us() - began);
    }
}

int br_tool_run(const struct br_work *w, const struct br_tool *t, struct br_err *err)
{
    char path[BR_PATH_MAX];
    int pipe_fds[2], status = 0;
    struct usage before = {0, 0};
    int r = br_tool_find(t->argv[0], t->package, path, err);
    if (r < 0)
        return r;
    if (br_image_stop)
        return br_err_set(err, BR_E_CANCELED, "canceled; no image was made");
    (void)br_walk(w->fd, true, count, &before, NULL);
    BR_CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || pipe2(pipe_fds, O_CLOEXEC) < 0)
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", t->argv[0]);
    struct talk talk = {.fd = pipe_fds[0]};
    pid_t pid = fork();
    if (pid == 0)
        child(w, t, path, null, pipe_fds[1]);
    br_close(&pipe_fds[1]);
    BR_CLEANUP_FD int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pid < 0 || pidfd < 0) {
        br_close(&talk.fd);
        return br_err_errno(err, BR_E_FAILED, "'%s' could not be started", t->argv[0]);
    }
    (void)setpgid(pid, pid); /* whoever is first */
    r = watch(w, t, pidfd, &talk, &before, err);
    if (r < 0)
        stop_child(t, pid, pidfd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    (void)kill(-pid, SIGKILL); /* what it may have left in its group */
    while (talk.fd >= 0 && fcntl(talk.fd, F_SETFL, O_NONBLOCK) == 0) {
        size_t had = talk.n;
        listen_to(&talk);
        if (talk.n == had)
            br_close(&talk.fd);
    }
    if (r < 0)
        return r;
    return judge(t, status, &talk, err);
}
