/*
 * EXEC: one command in the sandbox. It is started as cheaply as the kernel can (posix_spawn, which
 * is CLONE_VM | CLONE_VFORK), with a fixed environment and only descriptors 0 to 2, in a session of
 * its own. When it ends, runs out of time or is aborted, everything that it left behind is killed
 * and reaped before the result is sent, so that no process outlives the call that it came from.
 * Called by serve.c after the grant was checked; the command and its output are hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init_priv.h"

#define EXEC_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PROGRESS_US 1000000u

static char *const exec_env[] = {
    (char[]){"PATH=" EXEC_PATH},
    (char[]){"HOME=/home/agent"},
    (char[]){"USER=agent"},
    (char[]){"LANG=C.UTF-8"},
    (char[]){"TERM=dumb"},
    (char[]){"TMPDIR=/tmp"},
    NULL,
};

struct br_init_exec {
    struct br_init *in;
    uint64_t id; /* of the call, for progress */
    pid_t pid;
    int status;
    bool done;
    bool timed_out, aborted;
    struct br_buf *raw; /* of a GUEST: where its stdout goes, whole */
    bool overflow;      /* and it was more than that may be */
    uint64_t started_us;
    int out_fd[2]; /* reading ends of stdout and stderr */
    struct br_capture out[2];
    int timeout, progress; /* timers */
};

/* ---- starting ---- */

struct child {
    char program[BR_PATH_MAX];
    int cwd, stdin_fd, pipe[2][2];
};

static void child_close(struct child *c)
{
    br_close(&c->cwd);
    br_close(&c->stdin_fd);
    for (int i = 0; i < 2; i++) {
        br_close(&c->pipe[i][0]);
        br_close(&c->pipe[i][1]);
    }
}

/* The file for a command name, as execvp(3) would find it: 0, or ENOENT or EACCES. */
static int find_program(const char *name, char dst[BR_PATH_MAX])
{
    int answer = ENOENT;
    if (strchr(name, '/') || !*name) {
        snprintf(dst, BR_PATH_MAX, "%s", name);
        return *name && strlen(name) < BR_PATH_MAX ? 0 : ENOENT;
    }
    for (const char *dir = EXEC_PATH; *dir;) {
        size_t n = strcspn(dir, ":");
        struct stat st;
        snprintf(dst, BR_PATH_MAX, "%.*s/%s", (int)n, dir, name);
        if (stat(dst, &st) == 0 && S_ISREG(st.st_mode)) {
            if (access(dst, X_OK) == 0)
                return 0;
            answer = EACCES;
        }
        dir += n + (dir[n] == ':');
    }
    return answer;
}

/* A file in memory, so that nobody has to feed a pipe. */
static int stdin_file(const struct br_buf *text)
{
    if (text->len == 0)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    BR_CLEANUP_FD int fd = memfd_create("stdin", MFD_CLOEXEC);
    if (fd < 0 || br_write_all(fd, text->data, text->len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -1;
    return br_steal_fd(&fd);
}

/* 0, or the errno of what failed; exec's own errors included. */
static int spawn(const struct child *c, char *const *argv, pid_t *pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    int e = posix_spawnattr_setflags(&attr, br_init_weak ? flags : flags | POSIX_SPAWN_SETSID);
    if (!e)
        e = posix_spawn_file_actions_addfchdir_np(&fa, c->cwd);
    if (!e)
        e = posix_spawn_file_actions_adddup2(&fa, c->stdin_fd, 0);
    for (int i = 0; i < 2 && !e; i++)
        e = posix_spawn_file_actions_adddup2(&fa, c->pipe[i][1], i + 1);
    if (!e && !br_init_weak) /* all are close-on-exec; this is the second bolt */
        e = posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    if (!e)
        e = posix_spawn(pid, c->program, &fa, &attr, argv, exec_env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return e;
}

/* ---- ending ---- */

/* Everything else in the sandbox, or, where we are not its pid 1, the group of the command. */
static void kill_rest(const struct br_init_exec *x)
{
    if (x->in->pid1)
        (void)kill(-1, SIGKILL);
    else
        (void)kill(-x->pid, SIGKILL);
}

void br_init_exec_reap(struct br_init *in)
{
    struct br_init_exec *x = in->run;
    if (!in->pid1) {
        siginfo_t si = {0};
        /* WNOWAIT: the pid must stay ours until its group was killed */
        if (x && !x->done && waitid(P_PID, (id_t)x->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            si.si_pid == x->pid) {
            kill_rest(x);
            x->done = waitpid(x->pid, &x->status, 0) == x->pid;
        }
        return;
    }
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (x && pid == x->pid) {
            x->status = status;
            x->done = true;
        }
    }
}

/* Kill and reap until nothing is left; false if something does not go. */
static bool end_all(struct br_init_exec *x)
{
    struct br_init *in = x->in;
    if (!in->pid1) {
        if (!x->done) {
            kill_rest(x);
            x->done = waitpid(x->pid, &x->status, 0) == x->pid;
        }
        return x->done;
    }
    kill_rest(x);
    uint64_t deadline = br_now_us() + BR_INIT_REAP_US;
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return true;
        if (pid == x->pid) {
            x->status = status;
            x->done = true;
        }
        if (pid > 0)
            continue;
        if (br_now_us() > deadline)
            return false;
        struct pollfd p = {.fd = in->sigfd, .events = POLLIN};
        char drop[256];
        if (poll(&p, 1, 1000) > 0)
            (void)!read(in->sigfd, drop, sizeof(drop));
    }
}

void br_init_exec_abort(struct br_init *in)
{
    if (in->run && !in->run->done) {
        in->run->aborted = true;
        kill_rest(in->run);
    }
}

/* ---- while it runs ---- */

/* Of more than it may be the beginning is kept, which is enough to say what was wrong. */
static void put_raw(struct br_init_exec *x, const char *chunk, size_t n)
{
    size_t room = x->raw->max - x->raw->len;
    br_buf_put(x->raw, chunk, n < room ? n : room);
    x->out[0].total += n;
    if (n > room && !x->overflow && !x->done)
        kill_rest(x);
    x->overflow |= n > room;
}

enum piece { PIECE_END, PIECE_READ, PIECE_LATER };

static enum piece read_some(struct br_init_exec *x, int i)
{
    char chunk[65536];
    ssize_t r = read(x->out_fd[i], chunk, sizeof(chunk));
    if (r < 0)
        return errno == EAGAIN ? PIECE_LATER : errno == EINTR ? PIECE_READ : PIECE_END;
    if (i == 0 && x->raw)
        put_raw(x, chunk, (size_t)r);
    else
        br_capture_put(&x->out[i], chunk, (size_t)r);
    return r > 0 ? PIECE_READ : PIECE_END;
}

static int on_output(void *ctx, int fd, short revents, struct br_err *err)
{
    (void)revents;
    (void)err;
    struct br_init_exec *x = ctx;
    int i = fd == x->out_fd[1];
    if (read_some(x, i) == PIECE_END) {
        br_loop_unwatch(x->in->loop, fd);
        br_close(&x->out_fd[i]);
    }
    return 0;
}

static int on_timeout(void *ctx, struct br_err *err)
{
    (void)err;
    struct br_init_exec *x = ctx;
    x->timeout = 0;
    if (!x->done) {
        x->timed_out = true;
        kill_rest(x);
    }
    return 0;
}

static int on_progress(void *ctx, struct br_err *err)
{
    struct br_init_exec *x = ctx;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u64(&o.buf, x->out[0].total);
    br_buf_put_u64(&o.buf, x->out[1].total);
    br_buf_put_u64(&o.buf, (br_now_us() - x->started_us) / 1000);
    x->progress = br_loop_timer(x->in->loop, PROGRESS_US, on_progress, x);
    return br_chan_send(&x->in->chan, BR_MSG_INIT_PROGRESS, x->id, &o, err);
}

/* Serve the loop until the command has ended and nothing of it is left. */
static int run(struct br_init_exec *x, uint32_t timeout_ms, struct br_err *err)
{
    struct br_loop *loop = x->in->loop;
    struct br_err why = {.code = BR_OK};
    int r = 0;
    for (int i = 0; i < 2 && r == 0; i++)
        r = br_loop_watch(loop, x->out_fd[i], POLLIN, on_output, x);
    x->timeout = br_loop_timer(loop, (uint64_t)timeout_ms * 1000, on_timeout, x);
    x->progress = br_loop_timer(loop, PROGRESS_US, on_progress, x);
    if (x->timeout < 0 || x->progress < 0)
        r = -BR_E_LIMIT_EXCEEDED;
    x->in->run = x;
    if (r == 0)
        r = br_loop_run(loop, &x->done, &why);
    bool gone = end_all(x);
    x->in->run = NULL;
    br_loop_timer_cancel(loop, &x->timeout);
    br_loop_timer_cancel(loop, &x->progress);
    for (int i = 0; i < 2; i++) {
        if (x->out_fd[i] < 0)
            continue;
        /* what is still in the pipe; whoever could write more is dead (or not ours to wait for) */
        for (int n = 0; n < 64 && read_some(x, i) == PIECE_READ; n++)
            ;
        br_loop_unwatch(loop, x->out_fd[i]);
    }
    if (r < 0) {
        x->in->fatal = r;
        return br_err_set(err, (enum br_code) - r, "%s", why.text);
    }
    if (!gone) {
        x->in->fatal = -BR_E_INTERNAL;
        return br_err_set(err, BR_E_INTERNAL, "processes of the command could not be killed");
    }
    return 0;
}

/* ---- the result ---- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool put_result(const struct br_init_exec *x, size_t max, struct br_buf *out)
{
    uint64_t o = x->raw ? 0 : x->out[0].total, e = x->out[1].total;
    /* half is stderr's if it needs it, and each may use what the other leaves */
    uint64_t keep_e = min_u64(e, max / 2), keep_o = min_u64(o, max - keep_e);
    keep_e = min_u64(e, max - keep_o);
    if (WIFEXITED(x->status))
        br_buf_printf(out, "{\"exitCode\":%d", WEXITSTATUS(x->status));
    else
        br_buf_printf(out, "{\"signal\":%d", WTERMSIG(x->status));
    if (x->raw) {
        br_buf_printf(out, ",\"overflow\":%s", x->overflow ? "true" : "false");
    } else {
        br_buf_printf(out, ",\"stdout\":");
        br_capture_json(&x->out[0], keep_o, out);
    }
    br_buf_printf(out, ",\"stderr\":");
    br_capture_json(&x->out[1], keep_e, out);
    br_buf_printf(out,
                  ",\"stdoutBytes\":%llu,\"stderrBytes\":%llu,\"truncated\":%s,\"timedOut\":%s,"
                  "\"durationMs\":%llu}",
                  (unsigned long long)x->out[0].total, (unsigned long long)e,
                  keep_o < o || keep_e < e ? "true" : "false", x->timed_out ? "true" : "false",
                  (unsigned long long)((br_now_us() - x->started_us) / 1000));
    return !out->failed;
}

/* A command that could not be started, as a shell would say it. */
static int put_not_started(int e, const char *name, struct br_buf *out)
{
    struct br_shown s = br_init_shown(name);
    bool missing = e == ENOENT || e == ENOTDIR;
    const char *why = !missing ? strerror(e)
                      : strchr(name, '/') != NULL
                          ? "it, or the interpreter that it names, does not exist"
                          : "there is no such command in the sandbox";
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(1024);
    br_buf_printf(&text, "%s was not started: %s\n", s.text, why);
    br_buf_printf(out, "{\"exitCode\":%d,\"stdout\":\"\",\"stderr\":", missing ? 127 : 126);
    br_buf_put_json_str(out, (const char *)text.data, text.len);
    br_buf_printf(out,
                  ",\"stdoutBytes\":0,\"stderrBytes\":%zu,\"truncated\":false,\"timedOut\":false,"
                  "\"durationMs\":0}",
                  text.len);
    return 0;
}

static int check_arguments(const struct br_init_call *call, struct br_err *err)
{
    bool guest = call->op == BR_OP_GUEST;
    uint32_t longest = guest ? BR_RUN_SECONDS_MAX * 1000u : BR_INIT_TIMEOUT_MS_MAX;
    uint32_t most = guest ? BR_GUEST_OUTPUT_MAX : BR_EXEC_OUTPUT_MAX;
    if (call->argc == 0 || call->argc > BR_EXEC_ARGS_MAX)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "a command has 1 to %u words, not %u; nothing was started",
                          BR_EXEC_ARGS_MAX, call->argc);
    if (call->timeout_ms == 0 || call->timeout_ms > longest)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the time limit is %u ms, it must be 1 to %u; nothing was started",
                          call->timeout_ms, longest);
    if (call->output_max == 0 || call->output_max > most ||
        (guest && (call->limit == 0 || call->limit > BR_EXEC_OUTPUT_MAX)))
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the output limit is %llu bytes, it must be 1 to %u; nothing was started",
                          (unsigned long long)call->output_max, most);
    return 0;
}

/* Errors of the host that are not the command's. */
static int start_err(int e, struct br_err *err)
{
    errno = e;
    return br_err_errno(err,
                        e == EAGAIN || e == ENOMEM || e == EMFILE ? BR_E_LIMIT_EXCEEDED : BR_E_IO,
                        "the command was not started");
}

static bool is_exec_error(int e)
{
    return e == ENOENT || e == ENOTDIR || e == EACCES || e == EPERM || e == ENOEXEC || e == ELOOP ||
           e == EISDIR || e == ENAMETOOLONG || e == EINVAL || e == ETXTBSY || e == ELIBBAD;
}

static void exec_free(struct br_init_exec *x)
{
    for (int i = 0; i < 2; i++) {
        br_close(&x->out_fd[i]);
        br_capture_free(&x->out[i]);
    }
}

/* `raw`: where the stdout of a guest goes; NULL for a command. */
static int exec_call(struct br_init *in, const struct br_init_call *call, struct br_buf *raw,
                     struct br_buf *out, struct br_err *err)
{
    const size_t keep[2] = {raw ? 2 : call->output_max, raw ? call->limit : call->output_max};
    __attribute__((cleanup(exec_free))) struct br_init_exec x = {
        .in = in, .id = in->call_id, .raw = raw, .out_fd = {-1, -1}};
    __attribute__((cleanup(child_close))) struct child c = {
        .cwd = -1, .stdin_fd = -1, .pipe = {{-1, -1}, {-1, -1}}};
    c.cwd =
        br_init_path_open(in, call->path, true, O_PATH | O_DIRECTORY, "nothing was started", err);
    if (c.cwd < 0)
        return c.cwd;
    int e = find_program(call->argv[0], c.program);
    if (e)
        return put_not_started(e, call->argv[0], out);
    c.stdin_fd = stdin_file(&call->text2);
    if (c.stdin_fd < 0)
        return start_err(errno, err);
    for (int i = 0; i < 2; i++) {
        if (pipe2(c.pipe[i], O_CLOEXEC) < 0 || fcntl(c.pipe[i][0], F_SETFL, O_NONBLOCK) < 0 ||
            br_capture_init(&x.out[i], keep[i]) < 0)
            return start_err(errno, err);
    }
    x.started_us = br_now_us();
    e = spawn(&c, call->argv, &x.pid);
    if (e == E2BIG)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the words of the command are too long; nothing was started");
    if (e)
        return is_exec_error(e) ? put_not_started(e, call->argv[0], out) : start_err(e, err);
    x.out_fd[0] = br_steal_fd(&c.pipe[0][0]);
    x.out_fd[1] = br_steal_fd(&c.pipe[1][0]);
    child_close(&c);
    int r = run(&x, call->timeout_ms, err);
    if (r < 0)
        return r;
    for (size_t max = keep[1]; !put_result(&x, max, out); max = max * 3 / 4) {
        br_buf_reset(out); /* escapes made it too large: show less, and say so */
        if (max == 0)
            return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the result does not fit");
    }
    return x.aborted ? br_err_set(err, BR_E_CANCELED, "the command was aborted and killed") : 0;
}

int br_init_exec(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                 struct br_err *err)
{
    int r = check_arguments(call, err);
    return r < 0 ? r : exec_call(in, call, NULL, out, err);
}

int br_init_guest(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                  struct br_err *err)
{
    int r = check_arguments(call, err);
    if (r < 0)
        return r;
    br_buf_init(&in->raw, call->output_max);
    return exec_call(in, call, &in->raw, out, err);
}
