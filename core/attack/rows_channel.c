/*
 * Attacks by arguments (of commands, calls and plans) and on what is handed over: grants, frames,
 * names that say who owns what. Made from outside, as a hostile manifest, model or neighbour would.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"
#include "sandbox/owner.h"

/* ---- arguments of commands ---- */

#define MARK "/workspace/out/mark"

static bool marked(const struct stage *s)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/out/mark", s->ws);
    return access(path, F_OK) == 0;
}

/* Words that are options, empty or separators: they name a program, or nothing. */
static enum outcome hostile_argv(struct stage *s)
{
    static const char *const argvs[][5] = {
        {"", "-c", "touch " MARK, NULL},
        {"-c", "touch " MARK, NULL},
        {"--", "/bin/sh", "-c", "touch " MARK, NULL},
        {"-", "touch", MARK, NULL},
        {"--bind", "/", "/workspace/out", "/bin/sh", NULL},
        {"touch " MARK, NULL},
        {"touch\t" MARK, NULL},
        {"/bin/touch\n", MARK, NULL},
        {"$(touch " MARK ")", NULL},
        {"/bin/true;touch " MARK, NULL},
        {".", MARK, NULL},
        {"/", MARK, NULL},
        {"/workspace", MARK, NULL},
        {"../../../../bin/touch2", MARK, NULL},
        {"/proc/self/exe", "--", MARK, NULL},
    };
    static const char *const plain[] = {"/bin/touch", MARK, NULL};
    struct exec_result r;
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    unsigned n = 0;
    for (; n < BR_ARRAY_LEN(argvs) && !s->control && !marked(s); n++)
        if (stage_exec(s, argvs[n], 3000, &r) < 0)
            return OUT_UNDONE;
    if (s->control && stage_exec(s, plain, 3000, &r) < 0)
        return OUT_UNDONE;
    bool hit = marked(s);
    stage_note(s, hit ? "a command ran" : "%u commands: none was taken for another", n);
    return stage_end(s) < 0 ? OUT_UNDONE : hit ? OUT_THROUGH : OUT_BLOCKED;
}

/* Every word arrives as it was sent: nothing is dropped, split, expanded or taken as an option. */
static enum outcome literal_words(struct stage *s)
{
    static const char script[] =
        "test $# -eq 9 && test \"$1\" = -- && test -z \"$2\" && test \"$3\" = -x && "
        "test \"$4\" = '$(id)' && test \"$5\" = 'a b' && test \"$6\" = '*' && "
        "test \"$7\" = --help && test \"$8\" = '\\' && test \"$9\" = -";
    const char *argv[] = {"/bin/sh", "-c",  script, "sh",     "--", "",  "-x",
                          "$(id)",   "a b", "*",    "--help", "\\", "-", NULL};
    struct exec_result r;
    if (s->control)
        argv[5] = "not empty";
    if (stage_launch(s, -1) != 0 || stage_exec(s, argv, 3000, &r) < 0 || stage_end(s) < 0)
        return OUT_UNDONE;
    stage_note(s, r.exit == 0 ? "nine words arrived as they were" : "the words changed on the way");
    return r.exit == 0 ? OUT_BLOCKED : OUT_THROUGH;
}

/* Working directories and paths of calls that lead out. */
static enum outcome hostile_paths(struct stage *s)
{
    static const char *const paths[] = {
        "/proc/self/fd/3", "/proc/self/fd",  "../..",        "/etc",
        "out/../..",       "link-dir",       "out/link-dir", "out/./..",
        "/proc/1/root",    "out/link-dir/.", "./../outside",
    };
    char target[256];
    struct exec_result r;
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    for (unsigned i = 0; i < (s->control ? 1u : BR_ARRAY_LEN(paths)); i++) {
        struct br_init_call call = {
            .op = BR_OP_EXEC, .argc = 1, .timeout_ms = 3000, .output_max = 4096};
        call.argv[0] = (char *)(uintptr_t) "/bin/pwd";
        snprintf(call.path, sizeof(call.path), "%s", s->control ? "out" : paths[i]);
        if (stage_call(s, &call, &r) < 0)
            return OUT_UNDONE;
        if (r.answered && r.exit == 0) {
            stage_note(s, "a command ran in '%s'", call.path);
            return stage_end(s) < 0 ? OUT_UNDONE : OUT_THROUGH;
        }
        struct br_init_call read = {.op = BR_OP_FS_READ, .limit = 4096};
        snprintf(target, sizeof(target), "%s/secret", paths[i]);
        memcpy(read.path, target, strlen(target) + 1);
        if (stage_call(s, &read, &r) < 0)
            return OUT_UNDONE;
        if (r.answered && strstr(r.line, s->token)) {
            stage_note(s, "'%s' was read", target);
            return stage_end(s) < 0 ? OUT_UNDONE : OUT_THROUGH;
        }
    }
    stage_note(s, "every one was refused");
    return stage_end(s) < 0 ? OUT_UNDONE : OUT_BLOCKED;
}

static int setup_links_out(struct stage *s)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/link-dir", s->ws);
    if (symlink(s->outside, path) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/out/link-dir", s->ws);
    return symlink(s->outside, path);
}

/* ---- plans ---- */

static void hostile_plan(struct br_plan *p, unsigned i)
{
    static const char *const images[] = {"",
                                         "--privileged",
                                         "../../etc",
                                         "host/",
                                         "sha256:..",
                                         "HOST",
                                         "sha256:../../../../../../../../../../etc/passwd"};
    static const char *const paths[] = {"-rf",       "--",       "",     "/",  "..",
                                        "out/../..", ".",        "*",    "**", "/proc/self/fd/3",
                                        "out,rw",    "out:/etc", "out\n"};
    unsigned n = BR_ARRAY_LEN(images);
    if (i < n) {
        snprintf(p->image, sizeof(p->image), "%s", images[i]);
        return;
    }
    i -= n;
    if (i < BR_ARRAY_LEN(paths)) {
        free(p->allowed_paths[0]);
        p->allowed_paths[0] = strdup(paths[i]);
        return;
    }
    switch (i - BR_ARRAY_LEN(paths)) {
    case 0:
        snprintf(p->profile, sizeof(p->profile), "../run-v1");
        break;
    case 1:
        p->backend = 99;
        break;
    case 2:
        p->identity = 0;
        break;
    case 3:
        p->flags = 0x80000000u;
        break;
    case 4:
        snprintf(p->state, sizeof(p->state), "../../state");
        break;
    case 5:
        p->limits.memory_bytes = UINT64_MAX;
        break;
    case 6:
        p->limits.pids = 0;
        break;
    case 7:
        p->workspace = 0;
        break;
    default:
        p->disks[BR_DISK_SCRATCH].kind = 77;
    }
}
#define HOSTILE_PLANS 29u

static enum outcome hostile_plans(struct stage *s)
{
    unsigned n = 0;
    for (; n < (s->control ? 1u : HOSTILE_PLANS); n++) {
        br_plan_free(&s->plan);
        br_plan_default(&s->plan);
        stage_allow(s, "out/**");
        if (!s->control)
            hostile_plan(&s->plan, n);
        int k = stage_launch(s, -1);
        if (k == 0) {
            stage_note(s, "plan %u started", n);
            return stage_end(s) < 0 ? OUT_UNDONE : OUT_THROUGH;
        }
        if (k < 0) /* it may also end the launcher, as a violation */
            break;
    }
    if (n < HOSTILE_PLANS)
        return OUT_UNDONE;
    stage_note(s, "%u plans were refused", n);
    return OUT_BLOCKED;
}

/* A workspace that is a part of /proc or of the host's system. */
static enum outcome hostile_workspace(struct stage *s)
{
    static const char *const dirs[] = {"/proc",           "/proc/self", "/proc/self/fd",
                                       "/proc/self/task", "/sys",       "/dev/pts"};
    for (unsigned i = 0; i < (s->control ? 1u : BR_ARRAY_LEN(dirs)); i++) {
        BR_CLEANUP_FD int ws =
            open(s->control ? s->ws : dirs[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        br_plan_free(&s->plan);
        s->plan.nsources = 0;
        int k = stage_launch(s, ws);
        if (k < 0)
            return OUT_UNDONE;
        if (k == 0) {
            stage_note(s, "a sandbox started in '%s'", s->control ? s->ws : dirs[i]);
            return stage_end(s) < 0 ? OUT_UNDONE : OUT_THROUGH;
        }
    }
    stage_note(s, "every one was refused; last: %.200s", s->text);
    return OUT_BLOCKED;
}

/* ---- handover ---- */

/* A grant that was used, and one for something else. */
static enum outcome replay(struct stage *s)
{
    struct br_init_call call = {
        .op = BR_OP_EXEC, .argc = 2, .timeout_ms = 3000, .output_max = 4096};
    struct br_grant_ref g;
    struct exec_result r;
    char mark[256];
    call.argv[0] = (char *)(uintptr_t) "/bin/touch";
    call.argv[1] = (char *)(uintptr_t)MARK;
    snprintf(mark, sizeof(mark), "%s/out/mark", s->ws);
    if (stage_launch(s, -1) != 0)
        return OUT_UNDONE;
    stage_grant(s, &call, &g);
    if (stage_call_grant(s, &call, &g, &r) < 0 || !marked(s) || unlink(mark) < 0)
        return OUT_UNDONE;
    if (s->control)
        stage_grant(s, &call, &g); /* a new one */
    if (stage_call_grant(s, &call, &g, &r) < 0)
        return OUT_UNDONE;
    bool again = marked(s);
    for (unsigned i = 0; i < 3 && !again && !s->control; i++) {
        stage_grant(s, &call, &g);
        if (i == 0)
            g.subject_sha256[31] ^= 1;
        else if (i == 1)
            snprintf(g.action, sizeof(g.action), "fs.read");
        else
            g.serial = 0;
        if (stage_call_grant(s, &call, &g, &r) < 0)
            return OUT_UNDONE;
        again = marked(s);
    }
    stage_note(s, again ? "the command ran" : "refused: %.300s", r.text);
    return stage_end(s) < 0 ? OUT_UNDONE : again ? OUT_THROUGH : OUT_BLOCKED;
}

static int accept_any(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)err;
    (*(unsigned *)ctx)++;
    return 0;
}

/* A pid 1 that was taken over writes what it likes to its channel. */
static enum outcome hostile_frames(struct stage *s)
{
    static const struct br_msg_rule rules[] = {
        {BR_MSG_INIT_RESULT, BR_PERMIT, 0, 1024, 0, 0, accept_any}};
    static char big[200000];
    struct {
        struct br_msg_header h;
        char body[64];
    } m;
    unsigned taken = 0, n = s->control ? 1 : 7;
    for (unsigned i = 0; i < n; i++) {
        int ends[2];
        struct br_chan c;
        ssize_t sent;
        if (br_chan_pair(ends) < 0)
            return OUT_UNDONE;
        br_chan_init(&c, ends[0], "init", rules, BR_ARRAY_LEN(rules), &taken);
        memset(&m, 0, sizeof(m));
        m.h = (struct br_msg_header){.type = BR_MSG_INIT_RESULT, .len = sizeof(m.body)};
        size_t size = sizeof(m);
        if (!s->control && i == 0)
            m.h.len = 0xffffffff;
        else if (!s->control && i == 1)
            m.h.len = 0;
        else if (!s->control && i == 2)
            m.h.type = BR_MSG_INIT_CALL;
        else if (!s->control && i == 3)
            m.h.nfds = 9;
        else if (!s->control && i == 4)
            size = sizeof(m.h) - 1;
        else if (!s->control && i == 5)
            m.h.type = 0xffff;
        memcpy(big, &m, sizeof(m));
        sent = send(ends[1], big, i == 6 && !s->control ? 65536 + 32 : size, MSG_NOSIGNAL);
        int r = sent < 0 ? -1 : br_chan_dispatch(&c, NULL);
        br_chan_close(&c);
        close(ends[1]);
        if (s->control && r < 0)
            return OUT_UNDONE;
    }
    stage_note(s, taken ? "%u frames were taken" : "every frame ended its peer", taken);
    return taken ? OUT_THROUGH : OUT_BLOCKED;
}

/* Names that claim an owner: only of a process that is gone may anything be removed. */
static enum outcome forged_owner(struct stage *s)
{
    char own[160], name[256], ns[32], boot[16];
    struct br_err err;
    static const char *const forged[] = {
        "bridle",
        "bridle.",
        "bridle.1",
        "bridle.0.00000000.1.1",
        "bridle.%s.%s.0.1",
        "bridle.%s.%s.-1.1",
        "bridle.%s.00000000.999999999.1",
        "bridle.1.%s.999999999.1",
        "bridle.%s.%s.x.1",
        "../bridle.%s.%s.999999999.1",
        " bridle.%s.%s.999999999.1",
    };
    if (br_owner_tag(own, sizeof(own), &err) < 0 ||
        sscanf(own, "bridle.%31[0-9].%15[0-9a-f]", ns, boot) != 2)
        return OUT_UNDONE;
    if (s->control) { /* one whose process is really gone */
        snprintf(name, sizeof(name), "bridle.%s.%s.999999999.1", ns, boot);
        stage_note(s, "a name of a process that is gone counts as dead");
        return br_owner_is_dead(name) ? OUT_THROUGH : OUT_UNDONE;
    }
    for (unsigned i = 0; i < BR_ARRAY_LEN(forged); i++) {
        const char *p = forged[i];
        char *q = name;
        for (unsigned k = 0; *p && q < name + 200;) {
            if (p[0] == '%' && p[1] == 's') {
                const char *v = strstr(forged[i], ".00000000.") || k ? (k ? boot : ns) : ns;
                if (i == 7)
                    v = boot;
                q += snprintf(q, 40, "%s", v);
                k++;
                p += 2;
            } else {
                *q++ = *p++;
            }
        }
        *q = 0;
        if (br_owner_is_dead(name)) {
            stage_note(s, "'%s' counts as dead", name);
            return OUT_THROUGH;
        }
    }
    stage_note(s, "%zu forged names: none counts as dead", BR_ARRAY_LEN(forged));
    return br_owner_is_dead(own) ? OUT_THROUGH : OUT_BLOCKED;
}

/* The program with the switches serves nobody but this one. */
static enum outcome weak_launcher(struct stage *s)
{
    char path[BR_PATH_MAX], command[BR_PATH_MAX + 128];
    int status = 0, ends[2];
    if (s->control) { /* started by us, it serves: is what every other control does */
        s->without = BR_WEAK_FILTER;
        stage_note(s, "it serves bridle-selftest");
        return s->ready ? OUT_THROUGH : OUT_UNDONE;
    }
    snprintf(path, sizeof(path), "%s/bridle-launch-weak", stage_bin());
    snprintf(command, sizeof(command), "'%s' --weakened filter 3<&0 2>/dev/null; exit $?", path);
    if (br_chan_pair(ends) < 0)
        return OUT_UNDONE;
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(ends[1], 0);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(70);
    }
    close(ends[1]);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    (void)poll(&p, 1, 5000);
    char byte;
    bool served = recv(ends[0], &byte, 1, MSG_DONTWAIT) > 0;
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return OUT_UNDONE;
    stage_note(s, served ? "it serves a shell" : "it refused, with status %d", WEXITSTATUS(status));
    return served || !WIFEXITED(status) || WEXITSTATUS(status) != 2 ? OUT_THROUGH : OUT_BLOCKED;
}

const struct attack attack_rows_channel[] = {
    {"arg.command", CLASS_ARGUMENTS, "commands that are options, empty, separators or shell text",
     "flatpak CVE-2024-32462, CVE-2021-21261; argv starting with '-'",
     "something else than a program of that name is executed", NULL, 0, 0, .run = hostile_argv,
     .control = "the plain command"},
    {"arg.words", CLASS_ARGUMENTS, "arguments that are options, empty, '--' or shell text",
     "flatpak CVE-2024-32462", "a word does not arrive as it was sent", NULL, 0, 0,
     .run = literal_words, .control = "a command line in which one word is another"},
    {"arg.paths", CLASS_ARGUMENTS, "a working directory or file under /proc/self/fd, .. or a link",
     "runc CVE-2024-21626", "a command runs, or a file is read, outside of the workspace", NULL, 0,
     0, .run = hostile_paths, .setup = setup_links_out,
     .control = "a working directory in the workspace"},
    {"arg.plan", CLASS_ARGUMENTS, "plans with hostile images, paths, names and numbers",
     "flatpak CVE-2021-21261", "one of them starts", NULL, 0, 0, .run = hostile_plans,
     .control = "the plan without"},
    {"arg.workspace", CLASS_ARGUMENTS, "/proc, /proc/self/fd, /sys or /dev/pts as the workspace",
     "runc CVE-2024-21626", "a sandbox starts in it", NULL, 0, 0, .run = hostile_workspace,
     .control = "the workspace"},
    /* ---- handover ---- */
    {"hand.forged-result", CLASS_HANDOVER, "a result on the channel of pid 1 from a command",
     "design", "a result that pid 1 never sent is received", "forge-result",
     BR_WEAK_FDS | BR_WEAK_INIT},
    {"hand.replay", CLASS_HANDOVER, "a grant that was used, or is for something else", "design",
     "the command runs", NULL, 0, 0, .run = replay, .control = "a fresh grant"},
    {"hand.frames", CLASS_HANDOVER, "frames that are too long, too short, unknown or out of turn",
     "design", "one is taken", NULL, 0, 0, .run = hostile_frames,
     .control = "a frame that is right"},
    {"hand.forged-owner", CLASS_HANDOVER, "names that claim to belong to a dead launcher",
     "firejail CVE-2022-31214 (join spoofing)", "the sweep would take it for dead", NULL, 0, 0,
     .run = forged_owner, .control = "the name of a process that is gone"},
    {"hand.weak-launcher", CLASS_HANDOVER, "use the launcher of the controls", "this suite",
     "it serves somebody else than bridle-selftest", NULL, BR_WEAK_FILTER, 0, .run = weak_launcher},
    {NULL},
};
