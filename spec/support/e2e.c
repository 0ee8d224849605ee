/*
 * See e2e.h. Processes of a test are told by the path of their executable, so that two test runs
 * beside each other do not see one another's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test_tools.h"
#include "support/e2e.h"

#define WORKSPACE_UID 1000u
#define CLEAN_WAIT_MS 3000

const char *e2e_bin(void)
{
    const char *bin = getenv("BRIDLE_BIN");
    assert_non_null(bin);
    return bin;
}

/* Wait for `pid`, reaping whatever else ends meanwhile, and end as it did. */
static _Noreturn void follow(pid_t pid)
{
    int status = 0;
    for (pid_t k = 0; k != pid;) {
        k = waitpid(-1, &status, 0);
        if (k < 0 && errno != EINTR)
            _exit(1);
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

void e2e_isolate(void)
{
    if (geteuid() != 0)
        return;
    assert_int_equal(unshare(CLONE_NEWPID | CLONE_NEWNS), 0);
    pid_t pid1 = fork();
    assert_true(pid1 >= 0);
    if (pid1 > 0)
        follow(pid1);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), 0);
    pid_t test = fork(); /* not pid 1 itself: the leak check of a sanitizer fails there */
    assert_true(test >= 0);
    if (test > 0)
        follow(test);
}

/* All cgroups of launchers in this pid namespace, one a line: "bridle.<pid namespace>. ..." */
static void list_cgroups(char *dst, size_t cap)
{
    char link[64], command[256];
    ssize_t len = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    assert_true(len > 6);
    link[len - 1] = 0; /* pid:[4026531836] */
    snprintf(command, sizeof(command),
             "find /sys/fs/cgroup -type d -name 'bridle.%s.*' 2>/dev/null | sort", link + 5);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    size_t n = fread(dst, 1, cap - 1, p);
    dst[n] = 0;
    pclose(p);
}

/* Whose the workspace is: the ordinary user's who runs bridle, or somebody's who is not root. */
static uid_t owner(const struct e2e *t)
{
    return t->uid ? t->uid : WORKSPACE_UID;
}

void e2e_open(struct e2e *t, uid_t uid)
{
    memset(t, 0, sizeof(*t));
    t->uid = geteuid() == 0 ? uid : 0;
    snprintf(t->dir, sizeof(t->dir), "/tmp/bridle-e2e-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    snprintf(t->workspace, sizeof(t->workspace), "%s/workspace", t->dir);
    snprintf(t->state, sizeof(t->state), "%s/state", t->dir);
    assert_int_equal(mkdir(t->workspace, 0755), 0);
    assert_int_equal(chmod(t->dir, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(t->workspace, owner(t), owner(t)), 0);
        assert_int_equal(chown(t->dir, t->uid, t->uid), 0);
    }
    list_cgroups(t->cgroups, sizeof(t->cgroups));
}

void e2e_close(struct e2e *t)
{
    assert_int_equal(test_remove_tree(t->dir), 0);
}

void e2e_write(struct e2e *t, const char *path, const char *text)
{
    char full[BR_PATH_MAX];
    snprintf(full, sizeof(full), "%s/%s", t->dir, path);
    bool inside = strncmp(path, "workspace/", 10) == 0;
    for (char *p = full + strlen(t->dir) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        if (mkdir(full, 0755) == 0 && geteuid() == 0 && inside)
            assert_int_equal(chown(full, owner(t), owner(t)), 0);
        *p = '/';
    }
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, text, strlen(text)), 0);
    if (geteuid() == 0 && inside)
        assert_int_equal(fchown(fd, owner(t), owner(t)), 0);
    close(fd);
}

char *e2e_read(struct e2e *t, const char *path)
{
    char full[BR_PATH_MAX];
    struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    snprintf(full, sizeof(full), "%s/%s", t->dir, path);
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    assert_int_equal(br_read_all(fd, &b, full, NULL), 0);
    close(fd);
    return br_buf_cstr(&b);
}

static void child(struct e2e *t, char *const *argv, char *const *env)
{
    char program[BR_PATH_MAX], state[128], home[128];
    snprintf(program, sizeof(program), "%s/%s", e2e_bin(), argv[0]);
    snprintf(state, sizeof(state), "BRIDLE_STATE_DIR=%s", t->state);
    snprintf(home, sizeof(home), "HOME=%s", t->dir);
    char *full[32] = {state, home, (char *)"PATH=/usr/bin:/bin", (char *)"NO_COLOR=1"};
    int n = 4;
    const char *asan = getenv("ASAN_OPTIONS");
    char asan_env[512];
    if (asan) {
        snprintf(asan_env, sizeof(asan_env), "ASAN_OPTIONS=%s", asan);
        full[n++] = asan_env;
    }
    for (; env && *env && n < 31; env++)
        full[n++] = *env;
    int in = open("/dev/null", O_RDONLY);
    if (chdir(t->dir) < 0 || in < 0)
        _exit(126);
    int out = open("out.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    br_close_from(3, NULL, 0);
    (void)setsid(); /* no terminal, and no signal from the test runner's */
    if (t->uid && (setgroups(0, NULL) < 0 || setresgid(t->uid, t->uid, t->uid) < 0 ||
                   setresuid(t->uid, t->uid, t->uid) < 0))
        _exit(126);
    execve(program, argv, full);
    _exit(127);
}

/* What an activation left, and for whom: the same programs on the same host leave the same. */
static struct {
    char bin[BR_PATH_MAX];
    uid_t uid;
    char *evidence;
} activation;

static void make_owned_dir(const struct e2e *t, const char *path)
{
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    if (geteuid() == 0)
        assert_int_equal(chown(path, t->uid, t->uid), 0);
}

static void copy_activation(const struct e2e *t)
{
    char path[BR_PATH_MAX];
    make_owned_dir(t, t->state);
    snprintf(path, sizeof(path), "%s/activations", t->state);
    make_owned_dir(t, path);
    snprintf(path, sizeof(path), "%s/activations/run-v1", t->state);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(br_write_all(fd, activation.evidence, strlen(activation.evidence)), 0);
    if (geteuid() == 0)
        assert_int_equal(fchown(fd, t->uid, t->uid), 0);
    close(fd);
}

static void activate(struct e2e *t)
{
    char *argv[] = {(char *)"bridle", (char *)"activate", (char *)"run-v1", NULL};
    int status;
    if (activation.evidence && activation.uid == t->uid && strcmp(activation.bin, e2e_bin()) == 0) {
        copy_activation(t);
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        child(t, argv, NULL);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    t->activated = status == 0; /* else the run that follows is refused, and says why */
    if (!t->activated)
        return;
    free(activation.evidence);
    activation.evidence = e2e_read(t, "state/activations/run-v1");
    activation.uid = t->uid;
    snprintf(activation.bin, sizeof(activation.bin), "%s", e2e_bin());
}

pid_t e2e_spawn(struct e2e *t, char *const *argv, char *const *env)
{
    for (char *const *a = argv + 1; *a && !t->activated; a++)
        if (strcmp(*a, "run") == 0 || strcmp(*a, "exec") == 0) {
            t->activated = true;
            activate(t);
        }
    pid_t pid = fork();
    if (pid == 0)
        child(t, argv, env);
    assert_true(pid > 0);
    return pid;
}

static void collect(struct e2e *t, const char *name, struct br_buf *b)
{
    char *text = e2e_read(t, name);
    br_buf_init(b, BR_BLOB_MAX);
    if (text)
        br_buf_put(b, text, strlen(text));
    free(text);
    (void)br_buf_cstr(b);
}

void e2e_wait(struct e2e *t, pid_t pid, unsigned seconds, struct e2e_result *r)
{
    uint64_t start = br_now_us(), deadline = start + seconds * 1000000ull;
    int status = 0;
    r->status = -1;
    for (;;) {
        pid_t k = waitpid(pid, &status, WNOHANG);
        if (k == pid) {
            r->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            break;
        }
        if (br_now_us() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        usleep(2000);
    }
    r->us = br_now_us() - start;
    collect(t, "out.txt", &r->out);
    collect(t, "err.txt", &r->err);
}

void e2e_result_free(struct e2e_result *r)
{
    br_buf_free(&r->out);
    br_buf_free(&r->err);
}

void e2e_run(struct e2e *t, struct e2e_result *r, const char *arg0, ...)
{
    char *argv[160] = {(char *)arg0};
    int n = 1;
    va_list ap;
    va_start(ap, arg0);
    while (n < 159 && (argv[n] = va_arg(ap, char *)))
        n++;
    va_end(ap);
    e2e_wait(t, e2e_spawn(t, argv, NULL), 60, r);
}

bool e2e_says(const struct e2e_result *r, const char *text)
{
    size_t n = strlen(text);
    return (r->out.len && memmem(r->out.data, r->out.len, text, n)) ||
           (r->err.len && memmem(r->err.data, r->err.len, text, n));
}

void e2e_expect(const struct e2e_result *r, int status, const char *said)
{
    if (r->status != status || (said && !e2e_says(r, said)))
        fail_msg("status %d, not %d; expected '%s' in:\n%s%s", r->status, status, said ? said : "",
                 r->out.data ? (char *)r->out.data : "", r->err.data ? (char *)r->err.data : "");
}

void e2e_expect_file(struct e2e *t, const char *path, const char *text)
{
    char *is = e2e_read(t, path);
    if (!text ? is != NULL : !is || strcmp(is, text) != 0)
        fail_msg("'%s' is '%s', not '%s'", path, is ? is : "(absent)", text ? text : "(absent)");
    free(is);
}

/* ---- processes ---- */

static bool read_stat(pid_t pid, char comm[64], pid_t *parent)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    if (!f || !fgets(line, sizeof(line), f))
        return false;
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    int ppid;
    char state;
    if (!open || !close || sscanf(close + 1, " %c %d", &state, &ppid) != 2 || state == 'Z')
        return false;
    snprintf(comm, 64, "%.*s", (int)(close - open - 1), open + 1);
    *parent = ppid;
    return true;
}

static bool descends(pid_t pid, pid_t root)
{
    char comm[64];
    for (int depth = 0; depth < 16 && pid > 1; depth++) {
        if (pid == root)
            return true;
        if (!read_stat(pid, comm, &pid))
            return false;
    }
    return false;
}

pid_t e2e_find(pid_t root, const char *comm, unsigned nth)
{
    DIR *d = opendir("/proc");
    pid_t found = 0;
    assert_non_null(d);
    for (struct dirent *e; !found && (e = readdir(d));) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0, parent;
        char name[64];
        if (pid <= 0 || !read_stat(pid, name, &parent))
            continue;
        /* the kernel keeps 15 bytes of a name */
        if (strncmp(name, comm, 15) == 0 && strlen(name) == strnlen(comm, 15) &&
            descends(pid, root) && nth-- == 0)
            found = pid;
    }
    closedir(d);
    return found;
}

pid_t e2e_await(pid_t root, const char *comm, unsigned nth, unsigned ms)
{
    for (unsigned i = 0; i <= ms; i++) {
        pid_t pid = e2e_find(root, comm, nth);
        if (pid)
            return pid;
        usleep(1000);
    }
    return 0;
}

/* Running processes whose executable is in our bin directory, as text. */
static void list_programs(char *dst, size_t cap)
{
    DIR *d = opendir("/proc");
    size_t at = 0, nbin = strlen(e2e_bin());
    dst[0] = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char link[64], exe[BR_PATH_MAX];
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(link, sizeof(link), "/proc/%s/exe", e->d_name);
        ssize_t n = readlink(link, exe, sizeof(exe) - 1);
        if (n <= 0)
            continue;
        exe[n] = 0;
        if (strncmp(exe, e2e_bin(), nbin) == 0 && exe[nbin] == '/' && at < cap)
            at += (size_t)snprintf(dst + at, cap - at, "%s %s\n", e->d_name, exe + nbin + 1);
    }
    closedir(d);
}

/* Every line of `now` stood in `before` already. */
static bool nothing_new(const char *now, const char *before)
{
    for (const char *line = now; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        const char *at = memmem(before, strlen(before), line, n);
        if (!at)
            return false;
        line += n;
    }
    return true;
}

void e2e_expect_clean(struct e2e *t)
{
    char programs[8192] = "", cgroups[sizeof(t->cgroups)] = "";
    for (int ms = 0; ms < CLEAN_WAIT_MS; ms += 20) {
        list_programs(programs, sizeof(programs));
        list_cgroups(cgroups, sizeof(cgroups));
        if (!programs[0] && nothing_new(cgroups, t->cgroups))
            return;
        usleep(20000);
    }
    fail_msg("left behind:\n%s%s(at the start: %s)", programs, cgroups, t->cgroups);
}

/* ---- a bin directory of the test's own ---- */

void e2e_copy(const char *from, const char *to)
{
    struct stat st;
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_true(in >= 0 && out >= 0 && fstat(in, &st) == 0);
    for (off_t off = 0; off < st.st_size;)
        assert_true(sendfile(out, in, &off, (size_t)(st.st_size - off)) > 0);
    assert_int_equal(fchmod(out, 0755), 0);
    close(in);
    close(out);
}

void e2e_copy_bin(struct e2e *t, const char *replaced, const char *by, char bin[128])
{
    char from[BR_PATH_MAX], to[BR_PATH_MAX];
    const char *real = e2e_bin();
    snprintf(bin, 128, "%s/bin", t->dir);
    assert_int_equal(mkdir(bin, 0755), 0);
    DIR *d = opendir(real);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "bridle", 6) != 0)
            continue;
        snprintf(from, sizeof(from), "%s/%s", real, e->d_name);
        if (replaced && strcmp(e->d_name, replaced) == 0)
            snprintf(from, sizeof(from), "%s/../tests/%s", real, by);
        snprintf(to, sizeof(to), "%s/%s", bin, e->d_name);
        e2e_copy(from, to);
    }
    closedir(d);
}
