/*
 * Starting, watching and ending programs. A child is its role's uid before it execs, has nothing
 * but its supervision channel (fd 3) and stderr, and an empty environment; it is executed by
 * descriptor, so no path is looked up with less privilege.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/supervise_priv.h"

static const struct {
    const char *name;   /* for people */
    const char *binary; /* beside bridled */
    uid_t uid;          /* when bridled is root; 0: stays root */
    bool cleans_up;     /* ends by itself, after its own cleanup, when bridled dies */
} program_table[P_COUNT] = {
    [P_AUDIT] = {"audit", "bridle-audit", BR_UID_AUDIT, true},
    [P_SESSION] = {"session", "bridle-session", BR_UID_SESSION, false},
    [P_POLICY] = {"policy script", "bridle-script", BR_UID_SCRIPT, false},
    [P_ADAPTER] = {"adapter script", "bridle-script", BR_UID_SCRIPT, false},
    [P_CONFIG] = {"config script", "bridle-script", BR_UID_SCRIPT, false},
    [P_BROKER] = {"broker", "bridle-broker", BR_UID_BROKER, false},
    [P_EGRESS] = {"egress", "bridle-egress", BR_UID_EGRESS, false},
    [P_SCRIPTED] = {"scripted provider", "bridle-scripted", BR_UID_SCRIPTED, false},
    [P_LAUNCH] = {"launch", "bridle-launch", 0, true},
    [P_PROMOTE] = {"promotion", "bridle-promote", 0, true}, /* as the workspace's owner */
};

/* How long the quiet end of a program waits for a louder one to explain it. */
#define BLAME_US 200000u

/* How long a program may take to end once it has closed its channel. */
#define DEAF_US (5u * 1000000u)

const char *program_name(enum program_id id)
{
    return program_table[id].name;
}

uid_t program_uid(enum program_id id)
{
    return geteuid() == 0 ? program_table[id].uid : geteuid();
}

bool program_running(const struct supervisor *s, enum program_id id)
{
    return s->programs[id].pid > 0 && !s->programs[id].ended;
}

/* The environment of a child: nothing, but what egress needs to find its credential, and what the
 * sanitizers' runtime reads in builds that have one. */
static void child_environment(const struct supervisor *s, enum program_id id, char *env[8],
                              char *text, size_t cap)
{
    unsigned n = 0;
    size_t at = 0;
    const char *names[4] = {NULL};
    unsigned k = 0;
    if (id == P_EGRESS && s->provider.key_env[0])
        names[k++] = s->provider.key_env;
    if (id == P_EGRESS && !s->provider.base_url[0])
        names[k++] = "OPENAI_BASE_URL";
#ifdef BR_SANITIZED
    /* a role may not trace itself, which the search for leaks does */
    const char *options = getenv("ASAN_OPTIONS");
    int asan = snprintf(text, cap, "ASAN_OPTIONS=%s%sdetect_leaks=0", options ? options : "",
                        options ? ":" : "");
    if (asan > 0 && (size_t)asan < cap) {
        env[n++] = text;
        at = (size_t)asan + 1;
    }
    names[k++] = "UBSAN_OPTIONS";
#endif
    for (unsigned i = 0; i < k; i++) {
        const char *value = getenv(names[i]);
        int len = value ? snprintf(text + at, cap - at, "%s=%s", names[i], value) : -1;
        if (len < 0 || (size_t)len >= cap - at)
            continue;
        env[n++] = text + at;
        at += (size_t)len + 1;
    }
    env[n] = NULL;
}

/* Runs in the child; only returns on failure. */
static void child_exec(const struct supervisor *s, enum program_id id, int channel, int binary)
{
    char *argv[] = {(char *)program_table[id].binary, NULL};
    char *env[8], text[16384];
    sigset_t none;
    child_environment(s, id, env, text, sizeof(text));
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* move both out of the way of the low numbers first */
    int ch = fcntl(channel, F_DUPFD_CLOEXEC, 10), bin = fcntl(binary, F_DUPFD_CLOEXEC, 10);
    if (null < 0 || ch < 0 || bin < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(ch, 3) < 0)
        return;
    br_close_from(4, &bin, 1);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    uid_t uid = program_table[id].uid;
    gid_t gid = uid;
    if (id == P_PROMOTE)
        uid = promote_uid(s, &gid);
    if (id == P_PROMOTE && geteuid() == 0 && (uid == 0 || gid == 0))
        return;
    if (geteuid() == 0 && uid != 0 &&
        (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0))
        return;
    if (!program_table[id].cleans_up)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    fexecve(bin, argv, env);
}

static int on_quiet_end(void *ctx, struct br_err *err)
{
    struct program *p = ctx;
    (void)err;
    if (p->pid > 0 && p->ended && !p->expected)
        sup_fail(p->sup, BR_E_PROGRAM_DIED, "'%s' ended unexpectedly; the run cannot go on",
                 program_table[p->id].binary);
    return 0;
}

static int on_child_end(void *ctx, int fd, short revents, struct br_err *err)
{
    struct program *p = ctx;
    struct supervisor *s = p->sup;
    (void)revents, (void)err;
    /* what it said before it died counts: drain the channel first */
    while (p->chan.fd >= 0) {
        struct pollfd pfd = {.fd = p->chan.fd, .events = POLLIN};
        if (poll(&pfd, 1, 0) <= 0 || !(pfd.revents & POLLIN) ||
            br_chan_dispatch(&p->chan, NULL) < 0)
            break;
    }
    br_loop_unwatch(s->loop, fd);
    while (waitpid(p->pid, &p->status, 0) < 0 && errno == EINTR)
        ;
    p->ended = true;
    s->kick = true;
    if (p->id == P_LAUNCH)
        sandbox_lost(s);
    if (p->expected)
        return 0;
    if (WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0) {
        /* it ended because a peer of its own has ended: give that one the chance to be named */
        if (br_loop_timer(s->loop, BLAME_US, on_quiet_end, p) > 0)
            return 0;
    }
    if (WIFSIGNALED(p->status))
        sup_fail(s, BR_E_PROGRAM_DIED, "'%s' was killed by signal %d; the run cannot go on",
                 program_table[p->id].binary, WTERMSIG(p->status));
    else
        sup_fail(s, BR_E_PROGRAM_DIED,
                 "'%s' ended unexpectedly with status %d; the run cannot go on",
                 program_table[p->id].binary, WEXITSTATUS(p->status));
    return 0;
}

static void end_program(struct program *p)
{
    (void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
}

static int on_deaf(void *ctx, struct br_err *err)
{
    struct program *p = ctx;
    (void)err;
    if (p->pid <= 0 || p->ended || p->expected || p->chan.fd >= 0)
        return 0;
    sup_fail(p->sup, BR_E_PROGRAM_DIED,
             "'%s' closed its channel and did not end; the run cannot go on",
             program_table[p->id].binary);
    end_program(p);
    return 0;
}

static int on_channel_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct program *p = ctx;
    if (code == -BR_E_PEER_PROTOCOL) {
        sup_fail(p->sup, code, "%s", err ? err->text : "a program broke the protocol");
        end_program(p);
    } else if (code != -BR_E_PEER_GONE) {
        sup_fail(p->sup, code, "%s", err ? err->text : br_code_name(code));
    }
    br_close(&c->fd);
    /* its end comes through the pidfd, and soon */
    if (br_loop_timer(p->sup->loop, DEAF_US, on_deaf, p) < 0)
        end_program(p);
    return 0;
}

int program_start(struct supervisor *s, enum program_id id, struct br_err *err)
{
    struct program *p = &s->programs[id];
    int ends[2];
    unsigned nrules;
    const struct br_msg_rule *rules = role_rules(id, &nrules);
    const char *binary = program_table[id].binary;
    BR_CLEANUP_FD int bin = openat(s->bindir, binary, O_RDONLY | O_CLOEXEC);
    if (bin < 0)
        return br_err_errno(err, BR_E_FAILED,
                            "the program '%s' is missing beside bridled; build or install it again",
                            binary);
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for '%s'", binary);
    BR_CLEANUP_FD int ours = ends[0], theirs = ends[1];
    pid_t pid = fork();
    if (pid == 0) {
        child_exec(s, id, theirs, bin);
        br_log(BR_LOG_ERROR, "'%s' could not be started: %s", binary, strerror(errno));
        _exit(127);
    }
    if (pid < 0)
        return br_err_errno(err, BR_E_IO, "'%s' could not be started", binary);
    *p = (struct program){.id = id, .sup = s, .pid = pid, .pidfd = -1};
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    br_close(&theirs);
    br_chan_init(&p->chan, br_steal_fd(&ours), binary, rules, nrules, p);
    if (p->pidfd < 0 || br_loop_watch(s->loop, p->pidfd, POLLIN, on_child_end, p) < 0 ||
        br_loop_watch_chan(s->loop, &p->chan, on_channel_end, p) < 0)
        return br_err_errno(err, BR_E_INTERNAL, "'%s' could not be watched", binary);
    return 0;
}

int program_owner(const struct program *p, char dst[128], struct br_err *err)
{
    char path[64], stat[1024] = "", boot[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)p->pid);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    BR_CLEANUP_FILE FILE *b = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !b || !fgets(stat, sizeof(stat), f) || !fgets(boot, sizeof(boot), b))
        return br_err_errno(err, BR_E_IO, "'%s' could not be read", path);
    boot[strcspn(boot, "\n")] = 0;
    /* field 22, counted behind the last ')' of the command name, which may hold anything */
    char *at = strrchr(stat, ')'), *save = NULL, *field = NULL;
    unsigned n = 2;
    for (char *w = at ? strtok_r(at + 1, " ", &save) : NULL; w && n < 22;
         w = strtok_r(NULL, " ", &save))
        if (++n == 22)
            field = w;
    if (!field)
        return br_err_set(err, BR_E_INTERNAL, "'%s' is not understood", path);
    snprintf(dst, 128, "%d:%s:%s", (int)p->pid, field, boot);
    return 0;
}

void program_stop(struct supervisor *s, enum program_id id, uint64_t grace_us)
{
    struct program *p = &s->programs[id];
    if (p->pid <= 0)
        return;
    p->expected = true;
    if (p->chan.fd >= 0)
        br_loop_unwatch_chan(s->loop, &p->chan);
    br_chan_close(&p->chan);
    if (!p->ended && grace_us)
        (void)sup_wait(s, &p->ended, grace_us, true);
    if (!p->ended) {
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
        (void)sup_wait(s, &p->ended, 5u * 1000000u, true);
    }
    br_loop_unwatch(s->loop, p->pidfd);
    br_close(&p->pidfd);
    p->pid = 0;
}
