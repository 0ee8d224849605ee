#include "reload_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct e2e t;
struct e2e_result r;
pid_t standing;
static char built[BR_PATH_MAX]; /* where the programs are, while copies of them are used */

static void be(const char *name, char *const *argv)
{
    char program[BR_PATH_MAX], state[128], home[128], out[64], err[64];
    snprintf(program, sizeof(program), "%s/%s", e2e_bin(), argv[0]);
    snprintf(state, sizeof(state), "BRIDLE_STATE_DIR=%s", t.state);
    snprintf(home, sizeof(home), "HOME=%s", t.dir);
    char *env[5] = {state, home, (char *)"PATH=/usr/bin:/bin"};
    char asan[512];
    if (getenv("ASAN_OPTIONS")) {
        snprintf(asan, sizeof(asan), "ASAN_OPTIONS=%s", getenv("ASAN_OPTIONS"));
        env[3] = asan;
    }
    snprintf(out, sizeof(out), "out.%s", name);
    snprintf(err, sizeof(err), "err.%s", name);
    int in = open("/dev/null", O_RDONLY);
    if (chdir(t.dir) < 0 || in < 0)
        _exit(126);
    int o = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    int e = open(err, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    if (dup2(in, 0) < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0)
        _exit(126);
    br_close_from(3, NULL, 0);
    (void)setsid();
    if (t.uid && (setgroups(0, NULL) < 0 || setresgid(t.uid, t.uid, t.uid) < 0 ||
                  setresuid(t.uid, t.uid, t.uid) < 0))
        _exit(126);
    execve(program, argv, env);
    _exit(127);
}

pid_t reload_spawn(const char *name, char *const *argv)
{
    pid_t pid = fork();
    if (pid == 0)
        be(name, argv);
    assert_true(pid > 0);
    return pid;
}

static void collect(const char *kind, const char *name, struct br_buf *b)
{
    char path[64];
    snprintf(path, sizeof(path), "%s.%s", kind, name);
    char *text = e2e_read(&t, path);
    br_buf_init(b, BR_BLOB_MAX);
    if (text)
        br_buf_put(b, text, strlen(text));
    free(text);
    (void)br_buf_cstr(b);
}

static int status_of(pid_t pid)
{
    int status = 0;
    for (int i = 0; i < 6000; i++, usleep(10000))
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -1;
}

void reload_wait(const char *name, pid_t pid, struct e2e_result *res)
{
    res->status = status_of(pid);
    collect("out", name, &res->out);
    collect("err", name, &res->err);
}

void reload_start(const char *file)
{
    char *const argv[] = {(char *)"bridled", (char *)"--standing", (char *)"--policy", (char *)file,
                          NULL};
    char log[128];
    snprintf(log, sizeof(log), "%s/err.standing", t.dir);
    (void)unlink(log); /* of one before it */
    standing = reload_spawn("standing", argv);
}

void reload_ready(void)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/control", t.state);
    for (int i = 0; i < 3000; i++, usleep(10000)) {
        int status;
        if (waitpid(standing, &status, WNOHANG) == standing) {
            char *log = e2e_read(&t, "err.standing");
            standing = 0;
            fail_msg("no bridled stands: %s", log ? log : "");
        }
        char *log = e2e_read(&t, "err.standing");
        bool ready = lstat(path, &st) == 0 && log && strstr(log, "is generation 1");
        free(log);
        if (ready)
            return;
    }
    fail_msg("no bridled stands after half a minute");
}

int reload_ended(void)
{
    int status = status_of(standing);
    standing = 0;
    return status;
}

void reload_open(uid_t uid, const char *policy)
{
    char path[128];
    e2e_open(&t, uid);
    if (uid && geteuid() == 0) { /* the build may lie where only root gets to */
        char bin[128];
        snprintf(built, sizeof(built), "%s", e2e_bin());
        e2e_copy_bin(&t, NULL, NULL, bin);
        assert_int_equal(setenv("BRIDLE_BIN", bin, 1), 0);
    }
    e2e_write(&t, "workspace/out/seed", "");
    e2e_write(&t, "policy.lua", policy);
    snprintf(path, sizeof(path), "%s/policy.lua", t.dir);
    reload_start(path);
    reload_ready();
}

static void use_built(void)
{
    if (built[0])
        assert_int_equal(setenv("BRIDLE_BIN", built, 1), 0);
    built[0] = '\0';
}

void reload_close(void)
{
    char path[128];
    struct stat st;
    if (standing) {
        assert_int_equal(kill(standing, SIGTERM), 0);
        assert_int_equal(reload_ended(), 0);
    }
    snprintf(path, sizeof(path), "%s/control", t.state);
    assert_int_equal(lstat(path, &st), -1);
    e2e_expect_clean(&t);
    e2e_close(&t);
    use_built();
}

int reload_teardown(void **state)
{
    (void)state;
    use_built();
    if (standing) {
        (void)kill(standing, SIGKILL);
        (void)waitpid(standing, NULL, 0);
    }
    standing = 0;
    return 0;
}

char *reload_rows(const char *kind)
{
    struct e2e_result res;
    char what[32];
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    char *const argv[] = {(char *)"bridle", (char *)"repl",     (char *)"--json",
                          (char *)"-e",     (char *)"policies", NULL};
    snprintf(what, sizeof(what), "\"kind\":\"%s%s", kind, *kind ? "\"" : "");
    reload_wait("rows", reload_spawn("rows", argv), &res);
    e2e_expect(&res, 0, "\"kind\":\"current\"");
    for (char *p = (char *)res.out.data, *nl; p && *p && (nl = strchr(p, '\n')); p = nl + 1) {
        *nl = '\0';
        if (strstr(p, what))
            br_buf_printf(&b, "%s\n", p);
    }
    e2e_result_free(&res);
    return strdup(b.len ? br_buf_cstr(&b) : "");
}

void reload_expect_current(const char *text)
{
    char *rows = reload_rows("current");
    if (!strstr(rows, text))
        fail_msg("'%s' is not in %s", text, rows);
    free(rows);
}

void reload_expect_log(const char *text)
{
    char *log = e2e_read(&t, "err.standing");
    if (!log || !strstr(log, text))
        fail_msg("'%s' is not in the log: %s", text, log ? log : "(none)");
    free(log);
}
