/*
 * One sandbox for one try of an attack, and a host around it that is as careless as it may be: a
 * workspace with hostile neighbours, descriptors, environment and a terminal that the launcher
 * inherits, sockets on the loopback, abstract and in a directory that everybody may write, a
 * process of the sandbox's own user. Plays bridled and bridle-session for the launcher and for
 * bridle-init. Called by attack_try() and the attacks; what runs inside is hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/inside.h"
#include "attack/stage_priv.h"

#define PATIENCE_MS 15000u
#define LEAK_FD 20 /* what the launcher inherits: a directory, a socket */

volatile sig_atomic_t stage_interrupted;

void stage_note(struct stage *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->note, sizeof(s->note), fmt, ap);
    va_end(ap);
}

const char *stage_bin(void)
{
    static char path[BR_PATH_MAX];
    if (path[0])
        return path;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    br_require(n > 0);
    path[n] = 0;
    *strrchr(path, '/') = 0;
    return path;
}

/* ---- messages ---- */

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct stage *s = ctx;
    (void)m, (void)err;
    *(c == &s->init ? &s->init_ready : &s->ready) = true;
    return 0;
}

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct stage *s = ctx;
    char name[BR_ID_MAX], image[128], network[64];
    BR_CLEANUP_BUF struct br_buf receipt = BR_BUF_INIT(0);
    (void)c;
    br_rd_str(&m->rd, name, sizeof(name));
    (void)br_rd_u32(&m->rd);
    br_rd_str(&m->rd, image, sizeof(image));
    br_rd_str(&m->rd, network, sizeof(network));
    int r = br_msg_blob(m, BR_BLOB_MAX, &receipt, err);
    if (r < 0)
        return r;
    free(s->receipt);
    s->receipt = strdup(br_buf_cstr(&receipt));
    br_close(&s->pidfd);
    s->pidfd = br_msg_take_fd(m);
    s->started = true;
    const char *map = s->receipt ? strstr(s->receipt, "\"uidMap\":\"") : NULL;
    unsigned in;
    if (!map || sscanf(map, "\"uidMap\":\"%u %u", &in, &s->sandbox_uid) != 2)
        s->sandbox_uid = s->owner;
    return 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct stage *s = ctx;
    (void)c, (void)err;
    s->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->text, sizeof(s->text));
    s->refused = true;
    return 0;
}

static int on_stopped(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct stage *s = ctx;
    (void)c, (void)err;
    s->verified = br_rd_u8(&m->rd);
    (void)br_rd_u32(&m->rd);
    (void)br_rd_u64(&m->rd);
    br_rd_str(&m->rd, s->text, sizeof(s->text));
    s->stopped = true;
    return 0;
}

static int on_resolved(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct stage *s = ctx;
    (void)c, (void)err;
    br_plan_free(&s->plan);
    br_plan_get(&m->rd, &s->plan);
    s->resolved = true;
    return 0;
}

static int on_progress(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static int on_result(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct stage *s = ctx;
    struct exec_result *out = s->answer;
    BR_CLEANUP_BUF struct br_buf json = BR_BUF_INIT(0);
    (void)c;
    if (m->id != s->serial) {
        s->forged = true; /* nobody asked for it */
        return 0;
    }
    out->answered = br_rd_u8(&m->rd);
    out->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, out->text, sizeof(out->text));
    int r = br_msg_blob(m, BR_BLOB_MAX, &json, err);
    if (r < 0)
        return r;
    stage_parse_result(br_buf_cstr(&json), json.len, out);
    s->result = true;
    return 0;
}

static const struct br_msg_rule launch_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_ready},
    {BR_MSG_LAUNCH_STARTED, BR_PERMIT, 0, BR_MSG_MAX, 0, 2, on_started},
    {BR_MSG_LAUNCH_REFUSED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_refused},
    {BR_MSG_LAUNCH_STOPPED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_stopped},
    {BR_MSG_LAUNCH_RESOLVED, BR_PERMIT, 0, BR_MSG_MAX, 0, 2, on_resolved},
};

static const struct br_msg_rule init_rules[] = {
    {BR_MSG_INIT_READY, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_ready},
    {BR_MSG_INIT_PROGRESS, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_progress},
    {BR_MSG_INIT_RESULT, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_result},
};

int stage_await(struct stage *s, const bool *a, const bool *b, unsigned ms)
{
    uint64_t until = br_now_us() + ms * 1000ull;
    while (!*a && !*b) {
        struct br_err err = {.code = BR_OK};
        struct pollfd p[3] = {{.fd = s->launch.fd, .events = POLLIN},
                              {.fd = s->init.fd, .events = POLLIN},
                              {.fd = s->udp, .events = POLLIN}};
        uint64_t now = br_now_us();
        int r = now < until ? poll(p, 3, (int)((until - now) / 1000) + 1) : 0;
        if (r <= 0 || stage_interrupted) {
            stage_note(s, stage_interrupted ? "interrupted" : "no answer within %u ms", ms);
            return -1;
        }
        if (p[2].revents)
            stage_answer_dns(s);
        r = p[0].revents ? br_chan_dispatch(&s->launch, &err) : 0;
        if (r < 0) {
            stage_note(s, "the launcher: %s", err.code ? err.text : br_code_name(r));
            return -1;
        }
        if (p[1].revents && (r = br_chan_dispatch(&s->init, &err)) < 0) {
            br_chan_close(&s->init);
            if (a != &s->result)
                continue;
            stage_note(s, "pid 1: %s", err.code ? err.text : br_code_name(r));
            return -1;
        }
    }
    return 0;
}

/* ---- the launcher ---- */

static void weak_names(unsigned mask, char *dst, size_t cap)
{
    static const char *const names[] = {
#define NAME_(name, text, what) text,
        BR_WEAKNESSES(NAME_)
#undef NAME_
    };
    size_t at = 0;
    *dst = 0;
    for (unsigned i = 0; i < BR_WEAK_BITS_; i++)
        if (mask & (1u << i))
            at += (size_t)snprintf(dst + at, cap - at, "%s%s", at ? "," : "", names[i]);
}

static _Noreturn void exec_launcher(const struct stage *s, int chan, int slave, int gate)
{
    char path[BR_PATH_MAX], names[256], mark[80];
    char *argv[] = {path, NULL, NULL, NULL};
    /* the runtime of the sanitizer would forbid core dumps, which one control needs */
    char *env[] = {mark, (char *)(uintptr_t) "ASAN_OPTIONS=disable_coredump=0", NULL};
    const char *dir = s->attack->flags & A_COPY ? s->dir : stage_bin();
    struct rlimit core;
    snprintf(path, sizeof(path), "%s/bridle-launch%s", dir, s->without ? "-weak" : "");
    weak_names(s->without, names, sizeof(names));
    if (s->without) {
        argv[1] = (char *)(uintptr_t) "--weakened";
        argv[2] = names;
    }
    snprintf(mark, sizeof(mark), "BRIDLE_ATTACK_MARK=%s", s->token);
    if (getrlimit(RLIMIT_CORE, &core) == 0) {
        core.rlim_cur = core.rlim_max < (1u << 20) ? core.rlim_max : (1u << 20);
        (void)setrlimit(RLIMIT_CORE, &core);
    }
    /* its controlling terminal is the operator's; descriptors that somebody forgot are open */
    if (s->attack->flags & A_MOUNT) {
        char proc[256];
        snprintf(proc, sizeof(proc), "%s/chroot/proc", s->ws);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", proc, "proc", 0, NULL) < 0)
            _exit(70);
        char
            held; /* until somebody holds the namespace: the launcher leaves it, and it would end */
        if (br_write_all(gate, "", 1) < 0 || read(gate, &held, 1) != 1)
            _exit(70);
    }
    if (setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0 || dup2(chan, 60) < 0)
        _exit(70);
    (void)dup2(s->leak, LEAK_FD);
    (void)dup2(s->unix_fd, LEAK_FD + 1);
    int null = open("/dev/null", O_RDWR);
    if (dup2(slave, 0) < 0 || dup2(slave, 1) < 0 ||
        dup2(getenv("BRIDLE_ATTACK_TALK") ? 2 : null, 2) < 0 || dup2(60, 3) < 0)
        _exit(70);
    br_close_from(4, (int[]){LEAK_FD, LEAK_FD + 1}, 2);
    execve(path, argv, env);
    _exit(70);
}

/* The mount namespace that the child made for the launcher, for as long as this stage is. */
static void hold_namespace(struct stage *s, int gate)
{
    char path[64], made;
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)s->launcher);
    if (read(gate, &made, 1) == 1 && (s->mounts = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
        (void)br_write_all(gate, "", 1);
}

static int start_launcher(struct stage *s)
{
    int ends[2];
    BR_CLEANUP_FD int slave = stage_terminal(s);
    if (slave < 0) {
        stage_note(s, "no pseudo-terminal: %s", strerror(errno));
        return -1;
    }
    if (br_chan_pair(ends) < 0)
        return -1;
    int gate[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0) {
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    s->launcher = fork();
    if (s->launcher == 0) {
        close(gate[0]);
        exec_launcher(s, ends[1], slave, gate[1]);
    }
    close(ends[1]);
    close(gate[1]);
    if (s->launcher > 0 && s->attack->flags & A_MOUNT)
        hold_namespace(s, gate[0]);
    close(gate[0]);
    br_chan_init(&s->launch, ends[0], "launch", launch_rules, BR_ARRAY_LEN(launch_rules), s);
    return s->launcher < 0 ? -1 : stage_await(s, &s->ready, &s->ready, PATIENCE_MS);
}

int stage_open(struct stage *s, const struct attack *a, bool control)
{
    *s = (struct stage){.attack = a,
                        .control = control,
                        .without = control ? a->without : a->base,
                        .tcp = -1,
                        .udp = -1,
                        .abstract = -1,
                        .unix_fd = -1,
                        .pty = -1,
                        .leak = -1,
                        .mounts = -1,
                        .shm = -1,
                        .queue = -1,
                        .victim_said = -1,
                        .pidfd = -1,
                        .launch = {.fd = -1},
                        .init = {.fd = -1}};
    br_plan_default(&s->plan);
    if (a->flags & A_BWRAP && !control) {
        s->plan.backend = BR_BACKEND_BWRAP;
        s->plan.flags |= BR_PLAN_NO_LANDLOCK; /* which it cannot express */
    }
    s->owner = geteuid() == 0 ? STAGE_UID : geteuid();
    s->sandbox_uid = s->owner;
    if (a->flags & A_SMALL) {
        s->plan.limits.memory_bytes = 96u << 20;
        s->plan.limits.pids = 32;
        s->plan.limits.nofile = 64;
        s->plan.limits.fsize_bytes = 1u << 20;
        s->plan.limits.tmp_bytes = 1u << 20;
        s->plan.limits.tmp_inodes = 64;
    }
    if (stage_files(s) < 0 || stage_bait(s) < 0) {
        if (!s->note[0])
            stage_note(s, "the surroundings could not be made: %s", strerror(errno));
        return -1;
    }
    stage_allow(s, "out/**");
    stage_allow(s, "exact");
    if (a->setup && a->setup(s) < 0) {
        if (!s->note[0])
            stage_note(s, "the attack could not be prepared: %s", strerror(errno));
        return -1;
    }
    return start_launcher(s);
}

void stage_allow(struct stage *s, const char *pattern)
{
    br_require(s->plan.nallowed < BR_ALLOWED_PATHS_MAX);
    s->plan.allowed_paths[s->plan.nallowed++] = strdup(pattern);
}

int stage_resolve(struct stage *s, int ws_fd)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_FD int ws = ws_fd < 0 ? open(s->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    s->refused = s->resolved = false;
    br_plan_put(&o.buf, &s->plan);
    br_out_fd(&o, ws_fd < 0 ? ws : ws_fd, false);
    if (br_chan_send(&s->launch, BR_MSG_LAUNCH_RESOLVE, 1, &o, NULL) < 0 ||
        stage_await(s, &s->resolved, &s->refused, PATIENCE_MS) < 0)
        return -1;
    if (s->refused)
        stage_note(s, "refused: %.400s", s->text);
    return s->refused ? 1 : 0;
}

int stage_launch(struct stage *s, int ws_fd)
{
    int ends[2];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    BR_CLEANUP_FD int own = ws_fd < 0 ? open(s->ws, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (!s->plan.nsources && s->without & BR_WEAK_PATHS) {
        s->plan.nsources = s->plan.nallowed; /* nobody compares */
    } else if (!s->plan.nsources) {
        int r = stage_resolve(s, ws_fd);
        if (r)
            return r;
    }
    s->started = s->refused = s->stopped = s->init_ready = false;
    br_chan_close(&s->init);
    if (br_chan_pair(ends) < 0)
        return -1;
    br_chan_init(&s->init, ends[0], "init", init_rules, BR_ARRAY_LEN(init_rules), s);
    br_plan_put(&o.buf, &s->plan);
    br_out_fd(&o, ws_fd < 0 ? own : ws_fd, false);
    br_out_fd(&o, ends[1], true);
    s->serial = 0;
    int r = br_chan_send(&s->launch, BR_MSG_LAUNCH_PLAN, 2, &o, NULL);
    br_out_free(&o); /* the other end is the sandbox's alone */
    o = (struct br_out)BR_OUT_INIT;
    while (r == 0 && !s->started && !s->refused) {
        /* pid 1 may close its end before the launcher says why */
        struct pollfd p = {.fd = s->launch.fd, .events = POLLIN};
        r = poll(&p, 1, PATIENCE_MS) == 1 ? br_chan_dispatch(&s->launch, NULL) : -1;
    }
    if (r < 0) {
        stage_note(s, "the launcher does not answer");
        return -1;
    }
    if (s->refused) {
        br_chan_close(&s->init);
        stage_note(s, "refused: %.400s", s->text);
    }
    return s->refused ? 1 : 0;
}

int stage_end(struct stage *s)
{
    br_chan_close(&s->init);
    if (stage_await(s, &s->stopped, &s->stopped, PATIENCE_MS) < 0)
        return -1;
    if (!s->verified)
        stage_note(s, "the cleanup was not verified: %.300s", s->text);
    return s->verified ? 0 : -1;
}

/* ---- calls ---- */

void stage_grant(struct stage *s, const struct br_init_call *call, struct br_grant_ref *g)
{
    static const char *const actions[] = {
        [BR_OP_FS_READ] = "fs.read",   [BR_OP_FS_LIST] = "fs.read",  [BR_OP_FS_SEARCH] = "fs.read",
        [BR_OP_FS_WRITE] = "fs.write", [BR_OP_FS_EDIT] = "fs.write", [BR_OP_EXEC] = "process.exec",
    };
    BR_CLEANUP_BUF struct br_buf subject = BR_BUF_INIT(BR_BLOB_MAX);
    struct br_sha256 sha;
    *g = (struct br_grant_ref){.serial = ++s->serial, .call_id = "attack"};
    snprintf(g->action, sizeof(g->action), "%s", actions[call->op]);
    if (call->op == BR_OP_EXEC)
        (void)br_exec_subject(call->argv, call->argc, &subject);
    else
        (void)br_buf_put(&subject, call->path, strlen(call->path));
    br_sha256_init(&sha);
    br_sha256_put(&sha, subject.data, subject.len);
    br_sha256_end(&sha, g->subject_sha256);
}

int stage_call_grant(struct stage *s, struct br_init_call *call, const struct br_grant_ref *g,
                     struct exec_result *out)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    *out = (struct exec_result){.exit = -1};
    s->result = false;
    s->answer = out;
    br_grant_ref_put(&o.buf, g);
    br_init_call_put(&o, call);
    if (s->init.fd < 0 || br_chan_send(&s->init, BR_MSG_INIT_CALL, s->serial, &o, NULL) < 0) {
        stage_note(s, "pid 1 is gone");
        return -1;
    }
    return stage_await(s, &s->result, &s->result, PATIENCE_MS);
}

int stage_call(struct stage *s, struct br_init_call *call, struct exec_result *out)
{
    struct br_grant_ref g;
    stage_grant(s, call, &g);
    return stage_call_grant(s, call, &g, out);
}

int stage_exec(struct stage *s, const char *const *argv, uint32_t timeout_ms,
               struct exec_result *out)
{
    struct br_init_call call = {
        .op = BR_OP_EXEC, .timeout_ms = timeout_ms, .output_max = BR_EXEC_OUTPUT_MAX};
    while (argv[call.argc]) {
        call.argv[call.argc] = (char *)(uintptr_t)argv[call.argc];
        call.argc++;
    }
    return stage_call(s, &call, out);
}

/* What an attack may want to know. */
static unsigned facts(const struct stage *s, char text[][256], const char **argv)
{
    unsigned n = 0;
    snprintf(text[n++], 256, "secret=%s", s->secret);
    snprintf(text[n++], 256, "token=%s", s->token);
    snprintf(text[n++], 256, "tcp=%u", s->tcp_port);
    snprintf(text[n++], 256, "udp=%u", s->udp_port);
    snprintf(text[n++], 256, "abstract=%s", s->abstract_name);
    snprintf(text[n++], 256, "unix=%s", s->unix_path);
    snprintf(text[n++], 256, "victim=%d", s->victim > 0 ? (int)s->victim : 999999);
    snprintf(text[n++], 256, "address=%llu", (unsigned long long)(uintptr_t)s->token);
    snprintf(text[n++], 256, "shmkey=%d", s->shm_key);
    snprintf(text[n++], 256, "dir=%s", s->outside);
    snprintf(text[n++], 256, "ws=%s", s->ws);
    snprintf(text[n++], 256, "kallsyms=%s/kallsyms", s->outside);
    snprintf(text[n++], 256, "image=%s/image", s->dir);
    for (unsigned i = 0; i < n; i++)
        argv[i] = text[i];
    return n;
}

#define FACTS 13u
#define WORDS 8u

/* `inside` cut into words; then the facts. */
static void make_argv(const struct stage *s, const char *inside, char *words, char text[][256],
                      const char **argv)
{
    char *save = NULL;
    unsigned n = 0;
    snprintf(words, 512, "%s", inside);
    for (char *w = strtok_r(words, " ", &save); w && n < WORDS; w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    n += facts(s, text, argv + n);
    argv[n] = NULL;
}

int stage_attack(struct stage *s, const char *inside, uint32_t timeout_ms, struct exec_result *out)
{
    char words[512], text[FACTS][256];
    const char *argv[1 + WORDS + FACTS + 1] = {"/workspace/bridle-attack"};
    make_argv(s, inside, words, text, argv + 1);
    return stage_exec(s, argv, timeout_ms, out);
}

enum outcome stage_operation(struct stage *s, const char *inside)
{
    char words[512], text[FACTS][256], path[BR_PATH_MAX];
    const char *argv[2 + WORDS + FACTS + 1] = {path, "--operation"};
    struct exec_result r = {.answered = true, .exit = -1};
    int out[2], status = 0;
    snprintf(path, sizeof(path), "%s/bridle-attack", s->ws);
    make_argv(s, inside, words, text, argv + 2);
    if (pipe2(out, O_CLOEXEC) < 0)
        return OUT_UNDONE;
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(s->outside) < 0 || dup2(out[1], 1) < 0 ||
            (geteuid() == 0 &&
             (setgroups(0, NULL) < 0 || setresgid(s->owner, s->owner, s->owner) < 0 ||
              setresuid(s->owner, s->owner, s->owner) < 0)))
            _exit(70);
        execv(path, (char *const *)(uintptr_t)argv);
        _exit(70);
    }
    close(out[1]);
    ssize_t n = read(out[0], r.line, sizeof(r.line) - 1);
    close(out[0]);
    r.line[n > 0 ? n : 0] = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return OUT_UNDONE;
    if (WIFEXITED(status))
        r.exit = WEXITSTATUS(status);
    else
        r.signal = WTERMSIG(status);
    return stage_judge(s, &r);
}

enum outcome stage_judge(struct stage *s, const struct exec_result *r)
{
    if (!r->answered) {
        stage_note(s, "pid 1 refused the command: %.300s", r->text);
        return OUT_UNDONE;
    }
    if (r->signal) {
        stage_note(s, "ended by signal %d%s", r->signal, r->timed_out ? " after its time" : "");
        return s->attack->flags & A_KILLED ? OUT_BLOCKED : OUT_UNDONE;
    }
    stage_note(s, "%.*s", (int)strcspn(r->line, "\n"), r->line);
    switch (r->exit) {
    case IN_THROUGH:
        return OUT_THROUGH;
    case IN_BLOCKED:
        return OUT_BLOCKED;
    default:
        if (r->exit != IN_FAILED)
            stage_note(s, "exit status %d: %.200s", r->exit, r->line);
        return OUT_UNDONE;
    }
}

/* ---- the end ---- */

static void end_launcher(struct stage *s)
{
    int status;
    br_chan_close(&s->init);
    br_chan_close(&s->launch);
    for (int i = 0; s->launcher > 0 && i < 1000; i++) {
        if (waitpid(s->launcher, &status, WNOHANG) != 0)
            s->launcher = 0;
        else
            usleep(10000);
    }
    if (s->launcher > 0) {
        (void)kill(s->launcher, SIGKILL);
        (void)waitpid(s->launcher, &status, 0);
    }
}

void stage_close(struct stage *s)
{
    end_launcher(s);
    stage_remove_bait(s);
    br_close(&s->pidfd);
    br_plan_free(&s->plan);
    free(s->receipt);
    s->receipt = NULL;
}
